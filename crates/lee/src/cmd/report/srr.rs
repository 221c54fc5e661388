//! `lee report srr`: the storage resource report of the WLCG.

use crate::cmd::Invocation;
use crate::fail::{Fail, text};
use crate::{output, settings, srr, system};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The storage resource report, as JSON
///
/// It is the report of the WLCG, schema 4.2: what there is, for which VOs, and what is used of it,
/// from quotas and recursive statistics, at once. Each volume is a share, unless the settings name
/// others ([srr], see docs/OPERATE.md).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write it to this file, which readers see as it was or as it is now, whole
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// What the cell says, or that the file cannot be written.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let now = (invocation.env.wall() / 1_000_000_000) as i64;
    let report = invocation.session("report srr", |cell, session| {
        let config = settings::load(cell)?;
        srr::report(&config.srr, system::host(), now, None, session)
    })?;
    let json = serde_json::to_string_pretty(&report)
        .map_err(|e| Fail::new(format!("the report cannot be shown as JSON: {e}")))?;
    match &args.out {
        None => output::show(invocation.format, &report, || json.clone()),
        Some(file) => {
            replace(file, &json).map_err(|e| {
                Fail::new(format!("{}: cannot be written: {}: name another file", file.display(), text(&e)))
            })?;
            let done = serde_json::json!({"reply": "done", "file": file});
            output::show(invocation.format, &done, || format!("wrote {}", file.display()))
        }
    }
}

/// Puts a file in place whole: written beside, synced, renamed. Everybody may read it.
fn replace(file: &Path, content: &str) -> std::io::Result<()> {
    let mut name = file.as_os_str().to_os_string();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut out = std::fs::File::create(&new)?;
    let written = out
        .write_all(content.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.set_permissions(std::fs::Permissions::from_mode(0o644)))
        .and_then(|()| out.sync_all())
        .and_then(|()| std::fs::rename(&new, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}
