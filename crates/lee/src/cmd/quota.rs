//! `lee quota`: exact limits on what a volume or a directory may hold.

use super::Asked;
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
/// Limits are exact: the write or create that would cross one fails (EDQUOT). They hold for everything below the directory.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Set limits; what is not named stays as it was
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
    /// Show the limits of a volume or a directory, and what counts against them
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
pub fn run(asked: &Asked, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Set { target, bytes, files } => {
            let quota = asked.session("quota set", |cell, session| {
                let path = path_of(cell, session, &target)?;
                let request = admin::QuotaSet { path, bytes: bytes.map(|l| l.0), files: files.map(|l| l.0) };
                session.ask(&request)
            })?;
            show(asked, &quota)
        }
        Action::Show { target } => {
            let quota = asked.session("quota show", |cell, session| {
                let path = path_of(cell, session, &target)?;
                session.ask(&admin::QuotaShow { path })
            })?;
            show(asked, &quota)
        }
        Action::List => list(asked),
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

fn show(asked: &Asked, quota: &QuotaInfo) -> Result<(), Fail> {
    output::reply(asked.format, quota, || {
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

fn list(asked: &Asked) -> Result<(), Fail> {
    let reply = asked.ask("quota list", &admin::QuotaList)?;
    output::reply(asked.format, &reply, || {
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
