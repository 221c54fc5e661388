//! `lee why`: what the slowest operations of the last minutes waited for.

use super::{Invocation, flows, reach};
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::summary::waits::{Of, Row, Shown, door, explain, lost_text, waits};
use crate::{mounts, system, when};
use leeward_volume::admin;
use std::path::Path;

/// Explain the slowest operations of late, and what other machines have lost
///
/// Shows what each operation was, how long it took, what it waited for, and behind whom, where that
/// is known. An operation can wait for its turn, its user's ceiling, a thread, the lock of the
/// metadata, records that are not in memory, a commit, its data to be stored, memory for more data,
/// data to be read, its turn at the store, or leases: another machine keeps copies of what it
/// changes. Then it says which machines have lost what they had told their programs, whose it was,
/// and why.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A user, or a path in the cell or below its mount, with all below it [default: everybody]
    of: Option<String>,
}

/// Runs it.
///
/// # Errors
/// When nothing serves the cell, or there is no such user or path.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let cell = invocation.cell_anywhere()?;
    let mut flows = flows(&cell)?;
    if cell.remote().is_some() {
        // the server is not told of all that is lost here
        let state = reach(&cell)?.mount()?;
        flows.losses.splice(..0, state.losses);
    }
    let of = match args.of.as_deref() {
        None => Of::Everybody,
        Some(text) if text.contains('/') || text == "." || text == ".." => {
            let path = mounts::path_in_cell(cell.path(), Path::new(text))?;
            invocation
                .ask("why", &admin::UsageShow { path: path.clone() })
                .map_err(|fail| Fail::new(format!("{fail}: name a path that is there, or a user")))?;
            Of::Below(path)
        }
        Some(text) => Of::User(system::owner(text)?.uid),
    };
    let shown = explain(&flows, &of);
    output::show(invocation.format, &shown, || text(&shown))
}

fn text(shown: &Shown) -> String {
    let slow = slow_text(&shown.operations);
    if shown.lost.is_empty() {
        return slow;
    }
    let lost: Vec<String> = shown.lost.iter().map(lost_text).collect();
    format!("{}\n\n{}", slow.trim_end(), lost.join("\n"))
}

fn slow_text(operations: &[Row]) -> String {
    if operations.is_empty() {
        return "nothing took longer than a millisecond in the last ten minutes".into();
    }
    let columns = [
        ("USER", Side::Left),
        ("JOB", Side::Left),
        ("DOOR", Side::Left),
        ("WHEN", Side::Left),
        ("OPERATION", Side::Left),
        ("MS", Side::Right),
        ("WAITED", Side::Left),
        ("PATH", Side::Left),
    ];
    let table = Table::new(&columns).rows(operations, |r| {
        [
            r.user.clone(),
            r.job.clone().unwrap_or_else(|| "-".into()),
            door(r),
            format!("{} ago", when::ago(r.seconds_ago as i64)),
            r.operation.clone(),
            format!("{:.1}", r.milliseconds),
            waits(r),
            r.path.clone().unwrap_or_else(|| "-".into()),
        ]
    });
    table.to_string()
}
