//! `cutdisk MOUNTPOINT`: a disk in memory whose power can be cut, to keep a cell on.
//!
//! `setfattr -n user.cut -v SEED MOUNTPOINT` cuts: what was not synced is lost, or survives in
//! part, as the seed says (`tree.rs`). Whoever cuts kills the users of the disk first.
//! `--half-renames` lets a file have both names of a rename; `--lies` makes syncs do nothing, to
//! see that a trial notices. Ends when it is unmounted.
#![allow(clippy::disallowed_methods)]

mod fs;
mod tree;

use fuser::{Config, MountOption};
use std::process::ExitCode;

const THREADS: usize = 4;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let Some(at) = arguments.iter().find(|argument| !argument.starts_with("--")) else {
        eprintln!("usage: cutdisk [--half-renames] [--lies] MOUNTPOINT");
        return ExitCode::from(2);
    };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("cutdisk".into()),
        MountOption::CUSTOM("subtype=cutdisk".into()),
        MountOption::DefaultPermissions,
    ];
    config.n_threads = Some(THREADS);
    match fuser::mount(fs::CutDisk::new(has("--half-renames"), has("--lies")), at, &config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cutdisk: {at}: {e}");
            ExitCode::FAILURE
        }
    }
}
