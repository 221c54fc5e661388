//! `lee du`: what is below paths, from the recursive statistics that every directory carries.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::{mounts, size};
use leeward_fs::Usage;
use leeward_volume::admin;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Show how much is below paths, at once
///
/// This takes the same time for a tree of any size. Bytes are those allocated to files, before
/// compression.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths in the cell, or below its mount [default: the current directory in the mount, else
    /// all]
    paths: Vec<PathBuf>,
}

/// What is shown.
#[derive(Serialize)]
struct Shown {
    reply: &'static str,
    paths: Vec<PathUsage>,
}

#[derive(Serialize)]
struct PathUsage {
    path: String,
    #[serde(flatten)]
    usage: Usage,
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let paths = invocation.session("du", |cell, session| {
        let mut named = args.paths.clone();
        if named.is_empty() {
            let here = mounts::path_in_cell(cell.path(), Path::new("."));
            named.push(here.unwrap_or_else(|_| "/".into()).into());
        }
        let usage = |path: &PathBuf| {
            let path = mounts::path_in_cell(cell.path(), path)?;
            let usage = session.ask(&admin::UsageShow { path: path.clone() })?;
            Ok(PathUsage { path, usage })
        };
        named.iter().map(usage).collect::<Result<Vec<_>, Fail>>()
    })?;
    let shown = Shown { reply: "usages", paths };
    output::show(invocation.format, &shown, || table(&shown.paths).to_string())
}

fn table(paths: &[PathUsage]) -> Table {
    let columns =
        [("BYTES", Side::Right), ("FILES", Side::Right), ("DIRS", Side::Right), ("PATH", Side::Left)];
    Table::new(&columns).rows(paths, |PathUsage { path, usage }| {
        [size::bytes(usage.bytes), size::count(usage.files), size::count(usage.dirs), path.clone()]
    })
}
