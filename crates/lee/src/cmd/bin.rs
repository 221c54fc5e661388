//! `lee bin`: what was removed from volumes that have a recycle bin.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table, printable};
use crate::{mounts, names, size, when};
use leeward_env::dates;
use leeward_volume::admin::{self, BinEntry, BinRestored};
use std::path::{Path, PathBuf};

/// List and restore removed files
///
/// A volume has a recycle bin when its property bin-days is set: lee volume set VOLUME bin-days=7.
/// Files in the bin count as used. When a quota or the disk is full, the oldest ones go first.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List recycle bins, by the paths that the files had
    List {
        /// Only files that were at this path or below: in the cell, or below its mount
        path: Option<PathBuf>,
    },
    /// Restore a file, or a directory with all that was removed below it
    ///
    /// Missing directories above it come back, too. Directories that exist again are filled. No
    /// existing file is replaced. Of each name, the version that was removed last comes back.
    Restore {
        /// The path that it had, or an existing directory for all that was removed below it
        path: PathBuf,
        /// Only what was removed up to this time, in UTC: 2026-11-21 or 2026-11-21T12:00Z
        #[arg(long, value_name = "TIME", value_parser = when::parse_at)]
        at: Option<i64>,
        /// Another path for it, in the same volume
        #[arg(long, value_name = "PATH")]
        to: Option<PathBuf>,
    },
    /// Remove the content of recycle bins for good
    Empty {
        /// Only of this volume
        volume: Option<String>,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::List { path } => list(invocation, path.as_deref()),
        Action::Restore { path, at, to } => restore(invocation, &path, at, to.as_deref()),
        Action::Empty { volume } => {
            let reply = invocation.ask("bin empty", &admin::BinEmpty { volume })?;
            output::reply(invocation.format, &reply, || {
                format!("removed {} for good; their space comes back in the background", things(reply.purged))
            })
        }
    }
}

fn things(count: u64) -> String {
    size::counted(count, "thing", "things")
}

fn list(invocation: &Invocation, path: Option<&Path>) -> Result<(), Fail> {
    let reply = invocation.session("bin list", |cell, session| {
        let path = path.map(|p| mounts::path_in_cell(cell.path(), p)).transpose()?;
        session.ask(&admin::BinList { path, newest: None })
    })?;
    let entries = &reply.entries;
    output::reply(invocation.format, &reply, || match entries.is_empty() {
        true => "nothing in the recycle bin".into(),
        false if reply.truncated => format!(
            "{}of {} the {} that were removed last: name a directory to see others (lee bin list PATH)",
            table(entries),
            things(reply.all),
            size::count(entries.len() as u64)
        ),
        false => table(entries).to_string(),
    })
}

fn table(entries: &[BinEntry]) -> Table {
    Table::new(&[
        ("REMOVED", Side::Left),
        ("BY", Side::Left),
        ("OWNER", Side::Left),
        ("BYTES", Side::Right),
        ("PATH", Side::Left),
    ])
    .rows(entries, |e| {
        let slash = if e.is_dir { "/" } else { "" };
        [
            dates::minute(e.removed_secs),
            names::user_name(e.removed_by),
            names::user_name(e.uid),
            if e.is_dir { "-".into() } else { size::bytes(e.bytes) },
            format!("{}{slash}", e.path),
        ]
    })
}

fn restore(
    invocation: &Invocation,
    path: &Path,
    at_secs: Option<i64>,
    to: Option<&Path>,
) -> Result<(), Fail> {
    let reply = invocation.session("bin restore", |cell, session| {
        let path = mounts::path_in_cell(cell.path(), path)?;
        let to = to.map(|to| mounts::path_in_cell(cell.path(), to)).transpose()?;
        session.ask(&admin::BinRestore { path, at_secs, to })
    })?;
    let BinRestored { restored, left } = &reply;
    output::reply(invocation.format, &reply, || {
        let files = size::counted(restored.files, "file", "files");
        let dirs = size::counted(restored.dirs, "directory", "directories");
        let mut text = format!("restored {files} and {dirs} ({})", size::bytes(restored.bytes));
        if *left > 0 {
            let path = printable(&path.display().to_string());
            text += &format!(
                "\nleft in the bin, because the name is taken or the directory immutable: {} (see lee bin list {path}; restore with --to)",
                things(*left)
            );
        }
        text
    })
}
