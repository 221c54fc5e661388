//! What the slowest operations of the last minutes waited for, and what other machines have lost.

use crate::control::Flows;
use crate::mounts::is_below;
use crate::{names, output, size, when};
use leeward_remote::Loss;
use leeward_vfs::ledger::{SlowReport, Waited};
use serde::Serialize;

/// What is shown.
#[derive(Debug, Serialize)]
pub struct Shown {
    pub operations: Vec<Row>,
    /// What other machines have told their programs and is lost.
    pub lost: Vec<Lost>,
}

#[derive(Debug, Serialize)]
pub struct Lost {
    pub host: String,
    /// Whose it was, where that is known.
    pub user: Option<String>,
    pub uid: Option<u32>,
    /// How many changes; null: it is not known whether there were any.
    pub changes: Option<u64>,
    /// How many locks of programs, which others wanted.
    pub locks: u64,
    /// When the first and the last was lost.
    pub first: String,
    pub last: String,
    pub why: String,
    /// Some of what they were about.
    pub paths: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub user: String,
    pub uid: u32,
    pub job: Option<String>,
    /// By which door: `mount`, `s3`, `http`, `remote`.
    pub door: String,
    /// The machine that it came from, where it is another one.
    pub machine: Option<String>,
    pub operation: String,
    pub path: Option<String>,
    pub seconds_ago: f64,
    pub milliseconds: f64,
    pub waited: Vec<Wait>,
}

#[derive(Debug, Serialize)]
pub struct Wait {
    pub for_what: String,
    pub behind: Option<String>,
    /// The machine that gave back last what was waited for.
    pub machine: Option<String>,
    /// That machine did not give it back: it was taken.
    pub taken: bool,
    pub milliseconds: f64,
}

/// Whose operations.
pub enum Of {
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

    fn includes_loss(&self, loss: &Loss, paths: &[String]) -> bool {
        match self {
            Of::Everybody => true,
            Of::User(uid) => loss.uid.is_none_or(|of| of == *uid),
            Of::Below(top) => loss.uid.is_none() || paths.iter().any(|path| is_below(path, top)),
        }
    }
}

/// Explains those.
pub fn explain(flows: &Flows, of: &Of) -> Shown {
    let path = |slow: &SlowReport| slow.node.and_then(|node| flows.paths.get(&node));
    let chosen = flows.report.slow.iter().filter(|slow| of.includes(slow, path(slow)));
    let mut operations: Vec<Row> = chosen.map(|slow| row(slow, path(slow).cloned())).collect();
    operations.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
    let lost = flows.losses.iter().map(|loss| (loss, paths_of(loss, flows)));
    let lost = lost.filter(|(loss, paths)| of.includes_loss(loss, paths));
    Shown { operations, lost: lost.map(|(loss, paths)| lost_row(loss, paths)).collect() }
}

fn paths_of(loss: &Loss, flows: &Flows) -> Vec<String> {
    loss.nodes.iter().filter_map(|node| flows.paths.get(node)).cloned().collect()
}

fn lost_row(loss: &Loss, paths: Vec<String>) -> Lost {
    Lost {
        host: loss.host.clone(),
        user: loss.uid.map(names::user_name),
        uid: loss.uid,
        changes: Some(loss.changes).filter(|changes| *changes > 0),
        locks: loss.locks,
        first: when::utc(loss.first_secs),
        last: when::utc(loss.last_secs),
        why: loss.why.clone(),
        paths,
    }
}

fn row(slow: &SlowReport, path: Option<String>) -> Row {
    let wait = |w: &Waited| Wait {
        for_what: w.cause.clone(),
        behind: w.behind_work.clone().or_else(|| w.behind_uid.map(names::user_name)),
        machine: w.machine.clone(),
        taken: w.were_taken,
        milliseconds: w.nanos as f64 / 1e6,
    };
    Row {
        user: names::user_name(slow.uid),
        uid: slow.uid,
        job: slow.job.clone(),
        door: slow.door.clone(),
        machine: slow.machine.clone(),
        operation: slow.operation.clone(),
        path,
        seconds_ago: slow.ago_nanos as f64 / 1e9,
        milliseconds: slow.took_nanos as f64 / 1e6,
        waited: slow.waited.iter().map(wait).collect(),
    }
}

/// `node17 has lost 3 changes of bob's since ...: it was silent ...`.
pub fn lost_text(lost: &Lost) -> String {
    let host = output::printable(&lost.host);
    let paths: Vec<String> = lost.paths.iter().map(|path| output::printable(path)).collect();
    let at = if paths.is_empty() { String::new() } else { format!(" ({})", paths.join(", ")) };
    let whose = lost.user.as_ref().map_or_else(String::new, |user| format!(" of {user}'s"));
    let why = output::printable(&lost.why);
    if lost.locks > 0 {
        let locks =
            if lost.locks == 1 { "a lock".into() } else { format!("{} locks", size::count(lost.locks)) };
        return format!("{host} has lost {locks}{whose}, at {}{at}: {why}", lost.last);
    }
    match lost.changes {
        None => format!("{host} may have lost what it had told its programs{whose}, at {}: {why}", lost.last),
        Some(1) => format!("{host} has lost a change{whose}, at {}{at}: {why}", lost.last),
        Some(changes) => {
            let changes = size::count(changes);
            let last =
                if lost.last == lost.first { String::new() } else { format!(", last at {}", lost.last) };
            format!("{host} has lost {changes} changes{whose} since {}{last}{at}: {why}", lost.first)
        }
    }
}

/// The door, and the machine where it is another one.
pub fn door(row: &Row) -> String {
    let machine = row.machine.as_ref().map(|machine| format!(" {}", output::printable(machine)));
    format!("{}{}", row.door, machine.unwrap_or_default())
}

/// What it waited for.
pub fn waits(row: &Row) -> String {
    let told = row.waited.iter().filter(|w| w.milliseconds >= 0.1).map(|w| {
        let behind = w.behind.as_ref().filter(|b| **b != row.user);
        let behind = behind.map_or_else(String::new, |b| format!(" behind {b}"));
        format!("{:.1} {}{behind}{}", w.milliseconds, w.for_what, holder(w))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "nothing: it was work".into() } else { told.join(", ") }
}

/// The machine that was waited for.
fn holder(wait: &Wait) -> String {
    let Some(machine) = wait.machine.as_ref().map(|machine| output::printable(machine)) else {
        return String::new();
    };
    match wait.taken {
        true => format!(" of {machine}, which did not give them back"),
        false => format!(" of {machine}"),
    }
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
            machine: None,
            were_taken: false,
            nanos: took_nanos / 2,
        };
        SlowReport {
            uid,
            job: None,
            door: "mount".into(),
            machine: None,
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
    fn the_machine_is_named_that_leases_were_waited_for() {
        let mut flows = some();
        let wait = &mut flows.report.slow[0].waited[0];
        (wait.cause, wait.behind_uid) = ("leases".into(), None);
        (wait.machine, wait.were_taken) = (Some("node17".into()), true);
        (flows.report.slow[0].door, flows.report.slow[0].machine) = ("remote".into(), Some("node2".into()));
        let row = &explain(&flows, &Of::User(4_000_000)).operations[0];
        assert_eq!(waits(row), "1.0 leases of node17, which did not give them back");
        assert_eq!(door(row), "remote node2");
    }

    #[test]
    fn losses_are_told_in_a_sentence() {
        let loss = |uid, changes, nodes: &[u64]| Loss {
            host: "node17".into(),
            uid,
            changes,
            locks: 0,
            first_secs: 0,
            last_secs: 60,
            why: "it was silent for 8 s".into(),
            nodes: nodes.to_vec(),
        };
        let locks = Loss { locks: 2, ..loss(Some(4_000_001), 0, &[8]) };
        let losses =
            vec![loss(Some(4_000_000), 3, &[7]), loss(Some(4_000_001), 1, &[8]), loss(None, 0, &[]), locks];
        let flows = Flows { losses, ..some() };
        let told = |of: &Of| explain(&flows, of).lost.iter().map(lost_text).collect::<Vec<_>>();
        assert_eq!(
            told(&Of::Everybody),
            [
                "node17 has lost 3 changes of 4000000's since 1970-01-01 00:00:00 UTC, last at 1970-01-01 \
                 00:01:00 UTC (/a/b): it was silent for 8 s",
                "node17 has lost a change of 4000001's, at 1970-01-01 00:01:00 UTC (/ab): it was silent for 8 s",
                "node17 may have lost what it had told its programs, at 1970-01-01 00:01:00 UTC: it was silent \
                 for 8 s",
                "node17 has lost 2 locks of 4000001's, at 1970-01-01 00:01:00 UTC (/ab): it was silent for 8 s",
            ]
        );
        // what may be anybody's concerns everybody
        assert_eq!((told(&Of::User(4_000_001)).len(), told(&Of::Below("/a".into())).len()), (3, 2));
    }

    #[test]
    fn a_path_stands_for_what_is_below_it() {
        let below = |top: &str| explain(&some(), &Of::Below(top.into())).operations.len();
        assert_eq!((below("/"), below("/a"), below("/a/b"), below("/b")), (2, 1, 1, 0));
        assert_eq!(explain(&some(), &Of::User(4_000_000)).operations.len(), 1);
    }
}
