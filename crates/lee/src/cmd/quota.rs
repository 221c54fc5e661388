//! `lee quota`: exact limits on what a volume or a directory may hold.

use super::Invocation;
use crate::fail::Fail;
use crate::locate::CellDir;
use crate::mounts;
use crate::output::{self, Side, Table, printable};
use crate::session::Session;
use crate::size::{self, Limit};
use leeward_volume::admin::{self, QuotaInfo};
use std::path::Path;

/// Limit what a volume or a directory may hold
///
/// Limits are exact: a write or create that would cross one fails (EDQUOT). A limit covers everything
/// below its directory.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Set limits; a limit that is not named stays
    Set {
        /// A volume's name, or a directory: its path in the cell or below the mount
        #[arg(value_name = "PATH|VOLUME")]
        target: String,
        /// Most bytes, such as 10G (powers of 1024), or `none`
        #[arg(long, value_parser = size::parse_bytes, required_unless_present = "files")]
        bytes: Option<Limit>,
        /// Most files and directories, such as 1M (a million), or `none`
        #[arg(long, value_parser = size::parse_count)]
        files: Option<Limit>,
    },
    /// Show limits and usage of a volume or a directory
    Show {
        /// A volume's name, or a directory: its path in the cell or below the mount
        #[arg(value_name = "PATH|VOLUME")]
        target: String,
    },
    /// List all limits of the cell
    List,
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Set { target, bytes, files } => {
            let quota = invocation.session("quota set", |cell, session| {
                let path = path_of(cell, session, &target)?;
                let request = admin::QuotaSet { path, bytes: bytes.map(|l| l.0), files: files.map(|l| l.0) };
                session.ask(&request)
            })?;
            show(invocation, &quota)
        }
        Action::Show { target } => {
            let quota = invocation.session("quota show", |cell, session| {
                let path = path_of(cell, session, &target)?;
                session.ask(&admin::QuotaShow { path })
            })?;
            show(invocation, &quota)
        }
        Action::List => list(invocation),
    }
}

/// A name without `/` is a volume's; everything else is a path.
fn path_of(cell: &CellDir, session: &mut Session, target: &str) -> Result<String, Fail> {
    if target.contains('/') || !mounts::is_plain_name(target.as_ref()) {
        return mounts::path_in_cell(cell.path(), Path::new(target));
    }
    match session.ask(&admin::VolumeShow { name: target.into() }) {
        Ok(volume) => Ok(volume.at),
        Err(fail) => Err(Fail::new(format!("{fail} (for a directory write ./{target} or its whole path)"))),
    }
}

fn show(invocation: &Invocation, quota: &QuotaInfo) -> Result<(), Fail> {
    output::reply(invocation.format, quota, || {
        let bytes = used(size::bytes(quota.used_bytes), size::bytes_limit(quota.bytes));
        let files = used(size::count(quota.used_files), size::count_limit(quota.files));
        format!("{}: bytes: {bytes}; files: {files}", printable(&quota.path))
    })
}

fn used(value: String, limit: String) -> String {
    match limit.as_str() {
        "none" => format!("{value} used, no limit"),
        limit => format!("{value} of {limit} used"),
    }
}

fn list(invocation: &Invocation) -> Result<(), Fail> {
    let reply = invocation.ask("quota list", &admin::QuotaList)?;
    output::reply(invocation.format, &reply, || {
        Table::new(&[
            ("DIRECTORY", Side::Left),
            ("BYTES", Side::Right),
            ("LIMIT", Side::Right),
            ("FILES", Side::Right),
            ("LIMIT", Side::Right),
        ])
        .rows(&reply.quotas, |quota| {
            [
                quota.path.clone(),
                size::bytes(quota.used_bytes),
                size::bytes_limit(quota.bytes),
                size::count(quota.used_files),
                size::count_limit(quota.files),
            ]
        })
        .to_string()
    })
}
