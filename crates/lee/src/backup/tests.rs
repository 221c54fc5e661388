//! Which task is due, and how a backup is shown, also under clocks that were ahead.

use super::*;
use leeward_volume::admin::{BackupMade, BackupTested};

const DAY: i64 = 86_400;
/// By the clock.
const NOW: i64 = 20_000 * DAY;
/// By the other one.
const AWAKE: Nanos = 1_000_000_000;

/// Every hour, and tested every day.
fn backup(volume: &str, begun_secs: i64, tested_secs: i64) -> BackupInfo {
    let last = BackupMade {
        snapshot: "backup-1".into(),
        id: "a".repeat(64),
        begun_secs,
        took_ms: 1,
        sent_bytes: 1,
        files_read: 1,
        bytes_read: 1,
    };
    let tested = BackupTested {
        id: "a".repeat(64),
        at_secs: tested_secs,
        names: 1,
        files: 1,
        bytes: 1,
        is_whole: true,
        difference_count: 0,
        differences: Vec::new(),
    };
    BackupInfo {
        volume: volume.into(),
        to: "/vault".into(),
        password_file: "/password".into(),
        every_secs: 3600,
        keep: "7d".into(),
        since_secs: NOW - 100 * DAY,
        pruned_secs: 0,
        last: Some(last),
        test_every_secs: DAY as u32,
        tested: Some(tested),
        volume_number: 1,
        is_copy: false,
    }
}

/// What is due of these, in a word each.
fn due(all: &[BackupInfo], states: &BTreeMap<Id, State>) -> Vec<(String, &'static str)> {
    let word = |(backup, task): (BackupInfo, Task)| match task {
        Task::Backup { .. } => (backup.volume, "backup"),
        Task::Test => (backup.volume, "test"),
    };
    next_due(all.to_vec(), states, AWAKE, NOW).into_iter().map(word).collect()
}

fn due_of(backup: BackupInfo) -> Option<&'static str> {
    due(&[backup], &BTreeMap::new()).pop().map(|(_, task)| task)
}

#[test]
fn tasks_are_due_at_their_intervals() {
    assert_eq!(due_of(backup("v", NOW - 3599, NOW - DAY + 1)), None);
    assert_eq!(due_of(backup("v", NOW - 3600, NOW - DAY + 1)), Some("backup"));
    assert_eq!(due_of(backup("v", NOW - 3599, NOW - DAY)), Some("test"));
    assert_eq!(due_of(BackupInfo { last: None, tested: None, ..backup("v", 0, 0) }), Some("backup"));
    assert_eq!(due_of(BackupInfo { is_copy: true, ..backup("v", 0, 0) }), None);
    assert_eq!(due_of(BackupInfo { test_every_secs: 0, ..backup("v", NOW - 10, 0) }), None);
    // another one since a test has found differences
    let mut bad = backup("v", NOW - 10, NOW - 20);
    bad.tested.as_mut().expect("tested").difference_count = 1;
    assert_eq!(due_of(bad.clone()), None);
    bad.last.as_mut().expect("made").id = "b".repeat(64);
    assert_eq!(due_of(bad), Some("test"));
}

#[test]
fn what_is_dated_in_the_future_is_due_now_and_late() {
    assert_eq!(due_of(backup("v", NOW + 400 * DAY, NOW - 10)), Some("backup"));
    assert_eq!(due_of(backup("v", NOW - 10, NOW + 400 * DAY)), Some("test"));
    let shown = |begun, tested| {
        let status = shown(backup("v", begun, tested), State::default(), NOW);
        (status.late, status.test_late, status.is_bad())
    };
    assert_eq!(shown(NOW - 7200, NOW - 2 * DAY), (false, false, false));
    assert_eq!(shown(NOW - 7201, NOW - 10), (true, false, true));
    assert_eq!(shown(NOW - 10, NOW - 2 * DAY - 1), (false, true, true));
    assert_eq!(shown(NOW + 400 * DAY, NOW - 10), (true, false, true));
    assert_eq!(shown(NOW - 10, NOW + 400 * DAY), (false, true, true));
}

/// The first one takes longer than its interval: it is due again when it ends.
#[test]
fn the_task_that_is_due_for_longest_comes_first() {
    let slow = backup("slow", NOW - 4000, NOW - DAY - 900);
    let other = backup("other", NOW - 3600 - 500, NOW - 10);
    let all = [slow, other];
    let mut states = BTreeMap::new();
    let found = due(&all, &states);
    assert_eq!(found, [("slow".to_string(), "test"), ("other".to_string(), "backup")]);
    let tested = [backup("slow", NOW - 4000, NOW - 10), all[1].clone()];
    assert_eq!(due(&tested, &states), [("other".to_string(), "backup"), ("slow".to_string(), "backup")]);
    // one that has just failed waits, and one at work is not begun again
    let mut failed = State::default();
    failed.runs.failed("no".into(), AWAKE);
    states.insert(id_of(&tested[1]), failed);
    assert_eq!(due(&tested, &states), [("slow".to_string(), "backup")]);
    states.insert(id_of(&tested[0]), State { running: true, ..State::default() });
    assert!(due(&tested, &states).is_empty());
}
