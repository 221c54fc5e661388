//! What an operator should look at, with the page that says what to do.

use crate::control::Running;
use crate::{size, when};

/// A difference of the clock that is told, seconds.
const CLOCK_SECS_MAX: i64 = 60;

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// In words.
    pub text: String,
    /// The page of docs/runbooks that says what to do; empty: the words do.
    pub page: String,
}

/// What somebody should look at.
pub fn alarms(running: &Running) -> Vec<Alarm> {
    let alarm = |text: String, page: &str| Alarm { text, page: page.into() };
    let mut all: Vec<Alarm> = running.troubles.iter().map(|t| alarm(t.what.clone(), &t.runbook)).collect();
    if let Some(server) = running.server.as_ref().filter(|server| !server.in_time) {
        let why = server.trouble.as_deref().unwrap_or("its record is not renewed: see its log");
        all.push(alarm(format!("requests wait, as the cell may be another server's by now: {why}"), ""));
    }
    if running.late_schedules > 0 {
        let late = size::counted(running.late_schedules, "schedule", "schedules");
        let text = format!("{late} of snapshots late: see lee snap schedule list");
        all.push(alarm(text, "LeewardSnapshotsLate"));
    }
    for full in running.door_connections.iter().filter(|c| c.full) {
        let why =
            "has as many connections as open files allow, others are refused: raise the limit (ulimit -Hn)";
        all.push(alarm(format!("the {} door {why}", full.door), ""));
    }
    if running.late_scrubs > 0 {
        let late = size::counted(running.late_scrubs, "pool was", "pools were");
        all.push(alarm(
            format!("{late} not scrubbed for too long: see lee scrub --status"),
            "LeewardScrubLate",
        ));
    }
    all.extend(of_journal(running));
    let ahead = running.clock_ahead_secs;
    if ahead.abs() > CLOCK_SECS_MAX {
        let (by, way) = (when::ago(ahead.abs()), if ahead > 0 { "forward" } else { "back" });
        let text = format!("the clock was set {way} by {by}: locks of snapshots do not follow it");
        all.push(alarm(text, "LeewardClockSet"));
    }
    all
}

fn of_journal(running: &Running) -> Option<Alarm> {
    let (journal, usual) = running.journal_bytes;
    let (has, at_most) = (size::bytes(journal), size::bytes(usual));
    let text = format!(
        "the metadata journal has {has}, usual are {at_most} at most: see docs/runbooks/LeewardJournalLong.md"
    );
    (usual > 0 && journal > usual).then(|| Alarm { text, page: "LeewardJournalLong".into() })
}
