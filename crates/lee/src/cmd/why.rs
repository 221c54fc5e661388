//! `lee why`: what the slowest operations of the last minutes waited for.

use super::{Invocation, flows};
use crate::control::Flows;
use crate::fail::Fail;
use crate::mounts::is_below;
use crate::output::{self, Side, Table};
use crate::{mounts, system, when};
use leeward_vfs::ledger::{SlowReport, Waited};
use leeward_volume::admin;
use serde::Serialize;
use std::path::Path;

/// Explain the slowest operations of the last ten minutes
///
/// Shows what each operation was, how long it took, what it waited for, and behind whom, where that
/// is known. An operation can wait for its turn, its user's ceiling, a thread, the lock of the
/// metadata, records that are not in memory, a commit, its data to be stored, memory for more data,
/// data to be read, or its turn at the store.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A user, or a path in the cell or below its mount, with all below it [default: everybody]
    of: Option<String>,
}

/// What is shown.
#[derive(Debug, Serialize)]
struct Shown {
    operations: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    user: String,
    uid: u32,
    job: Option<String>,
    /// By which door: `mount`, `s3`, `http`.
    door: String,
    operation: String,
    path: Option<String>,
    seconds_ago: f64,
    milliseconds: f64,
    waited: Vec<Wait>,
}

#[derive(Debug, Serialize)]
struct Wait {
    for_what: String,
    behind: Option<String>,
    milliseconds: f64,
}

/// Whose operations.
enum Of {
    Everybody,
    User(u32),
    Below(String),
}

impl Of {
    fn includes(&self, slow: &SlowReport, path: Option<&String>) -> bool {
        match self {
            Of::Everybody => true,
            Of::User(uid) => slow.uid == *uid,
            Of::Below(top) => path.is_some_and(|p| is_below(p, top)),
        }
    }
}

/// Runs it.
///
/// # Errors
/// When nothing serves the cell, or there is no such user or path.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let cell = invocation.cell_anywhere()?;
    let flows = flows(&cell)?;
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

fn explain(flows: &Flows, of: &Of) -> Shown {
    let path = |slow: &SlowReport| slow.node.and_then(|node| flows.paths.get(&node));
    let chosen = flows.report.slow.iter().filter(|slow| of.includes(slow, path(slow)));
    let mut operations: Vec<Row> = chosen.map(|slow| row(slow, path(slow).cloned())).collect();
    operations.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
    Shown { operations }
}

fn row(slow: &SlowReport, path: Option<String>) -> Row {
    let wait = |w: &Waited| Wait {
        for_what: w.cause.clone(),
        behind: w.behind_work.clone().or_else(|| w.behind_uid.map(system::user_name)),
        milliseconds: w.nanos as f64 / 1e6,
    };
    Row {
        user: system::user_name(slow.uid),
        uid: slow.uid,
        job: slow.job.clone(),
        door: slow.door.clone(),
        operation: slow.operation.clone(),
        path,
        seconds_ago: slow.ago_nanos as f64 / 1e9,
        milliseconds: slow.took_nanos as f64 / 1e6,
        waited: slow.waited.iter().map(wait).collect(),
    }
}

fn text(shown: &Shown) -> String {
    if shown.operations.is_empty() {
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
    let table = Table::new(&columns).rows(&shown.operations, |r| {
        [
            r.user.clone(),
            r.job.clone().unwrap_or_else(|| "-".into()),
            r.door.clone(),
            format!("{} ago", when::ago(r.seconds_ago as i64)),
            r.operation.clone(),
            format!("{:.1}", r.milliseconds),
            waits(r),
            r.path.clone().unwrap_or_else(|| "-".into()),
        ]
    });
    table.to_string()
}

fn waits(row: &Row) -> String {
    let told = row.waited.iter().filter(|w| w.milliseconds >= 0.1).map(|w| {
        let behind = w.behind.as_ref().filter(|b| **b != row.user);
        let behind = behind.map_or_else(String::new, |b| format!(" behind {b}"));
        format!("{:.1} {}{behind}", w.milliseconds, w.for_what)
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "nothing: it was work".into() } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_vfs::ledger::Report;
    use std::collections::BTreeMap;

    fn slow(uid: u32, node: u64, took_nanos: u64) -> SlowReport {
        let commit = Waited {
            cause: "commit".into(),
            behind_uid: Some(4_000_001),
            behind_work: None,
            nanos: took_nanos / 2,
        };
        SlowReport {
            uid,
            job: None,
            door: "mount".into(),
            operation: "fsync".into(),
            node: Some(node),
            ago_nanos: 5_000_000_000,
            took_nanos,
            waited: vec![commit],
        }
    }

    fn some() -> Flows {
        let report = Report {
            slow: vec![slow(4_000_000, 7, 2_000_000), slow(4_000_001, 8, 9_000_000)],
            ..Report::default()
        };
        let paths = BTreeMap::from([(7, "/a/b".to_owned()), (8, "/ab".to_owned())]);
        Flows { report, paths, ..Flows::default() }
    }

    #[test]
    fn the_slowest_come_first_with_their_reasons() {
        let shown = explain(&some(), &Of::Everybody);
        let uids: Vec<u32> = shown.operations.iter().map(|r| r.uid).collect();
        assert_eq!(uids, [4_000_001, 4_000_000]);
        assert_eq!(waits(&shown.operations[0]), "4.5 commit", "nobody waits behind himself");
        assert_eq!(waits(&shown.operations[1]), "1.0 commit behind 4000001");
    }

    #[test]
    fn a_path_stands_for_what_is_below_it() {
        let below = |top: &str| explain(&some(), &Of::Below(top.into())).operations.len();
        assert_eq!((below("/"), below("/a"), below("/a/b"), below("/b")), (2, 1, 1, 0));
        assert_eq!(explain(&some(), &Of::User(4_000_000)).operations.len(), 1);
    }
}
