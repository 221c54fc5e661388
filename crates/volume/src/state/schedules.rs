//! Schedules of snapshots, and when each ran last.

use crate::format::schedule::{ScheduleRecord, due, slot};
use crate::state::snapshots::Snapshots;
use leeward_env::dates;
use leeward_fs::NodeId;
use std::collections::BTreeMap;

/// After a failure it is tried again after this time.
pub(crate) const RETRY_SECS: i64 = 60;

/// A schedule and its last run.
struct Schedule {
    record: ScheduleRecord,
    /// The multiple of the interval for which it ran last; `None`: to be found from the snapshots.
    slot: Option<i64>,
    retry_at: i64,
    error: Option<String>,
}

/// All schedules.
#[derive(Default)]
pub struct Schedules {
    by_dir: BTreeMap<NodeId, Schedule>,
}

impl Schedules {
    /// Sets or replaces a schedule.
    pub fn set(&mut self, dir: NodeId, record: ScheduleRecord) {
        self.by_dir.insert(dir, Schedule { record, slot: None, retry_at: 0, error: None });
    }

    /// Removes a schedule.
    pub fn remove(&mut self, dir: NodeId) {
        self.by_dir.remove(&dir);
    }

    /// Removes all schedules of a volume.
    pub fn drop_volume(&mut self, volume: u32) {
        self.by_dir.retain(|dir, _| dir.volume() != volume);
    }

    /// The schedule of exactly this directory.
    pub fn get(&self, dir: NodeId) -> Option<ScheduleRecord> {
        self.by_dir.get(&dir).map(|s| s.record)
    }

    /// All schedules, with the error of the last run.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, ScheduleRecord, Option<&str>)> {
        self.by_dir.iter().map(|(dir, s)| (*dir, s.record, s.error.as_deref()))
    }

    /// Directories of a volume that have one.
    pub(crate) fn dirs_in(&self, volume: u32) -> impl Iterator<Item = NodeId> {
        let of_volume = NodeId::new(volume, 0)..NodeId::new(volume + 1, 0);
        self.by_dir.range(of_volume).map(|(dir, _)| *dir)
    }

    /// A schedule that is due, and for which time.
    pub(crate) fn due(&mut self, now: i64, snapshots: &Snapshots) -> Option<(NodeId, ScheduleRecord, i64)> {
        self.by_dir.iter_mut().find_map(|(dir, s)| {
            let begun = slot(s.record.since_secs, s.record.interval_secs);
            let ran = *s.slot.get_or_insert_with(|| newest(snapshots, *dir, now).unwrap_or(begun));
            let at = due(ran, now, s.record.interval_secs)?;
            (now >= s.retry_at).then_some((*dir, s.record, at))
        })
    }

    pub(crate) fn ran(&mut self, dir: NodeId, slot: i64, now: i64, failed: Option<String>) {
        let Some(s) = self.by_dir.get_mut(&dir) else { return };
        match failed {
            None => s.slot = Some(slot),
            Some(_) => s.retry_at = now + RETRY_SECS,
        }
        s.error = failed;
    }
}

/// The times of the scheduled snapshots of a directory, oldest first.
pub(crate) fn scheduled(snapshots: &Snapshots, dir: NodeId) -> impl Iterator<Item = i64> + '_ {
    let names = snapshots.of_dir(dir.volume(), dir.inode()).into_iter().flat_map(|names| names.keys());
    names.filter_map(|name| dates::parse_minute(std::str::from_utf8(name).ok()?))
}

/// The time of the newest scheduled snapshot of a directory.
pub fn newest(snapshots: &Snapshots, dir: NodeId, now: i64) -> Option<i64> {
    scheduled(snapshots, dir).filter(|t| *t <= now).last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::schedule::is_late;

    fn at(text: &str) -> i64 {
        dates::parse_minute(text).expect("a time")
    }

    #[test]
    fn runs_are_due_at_multiples() {
        let dir = NodeId::ROOT;
        let begun = at("2026-11-21T10:30Z");
        let mut s = Schedules::default();
        let record =
            ScheduleRecord { interval_secs: 3600, since_secs: begun, keep: "1h".parse().expect("good") };
        s.set(dir, record);
        let none = Snapshots::default();
        assert!(s.due(begun, &none).is_none());
        assert!(s.due(at("2026-11-21T10:59Z"), &none).is_none());
        let now = at("2026-11-21T13:07Z");
        assert_eq!(s.due(now, &none).map(|d| d.2), Some(at("2026-11-21T13:00Z")));
        s.ran(dir, at("2026-11-21T13:00Z"), now, Some("no".into()));
        assert!(s.due(now + RETRY_SECS - 1, &none).is_none());
        assert!(s.due(now + RETRY_SECS, &none).is_some());
        s.ran(dir, at("2026-11-21T13:00Z"), now, None);
        assert!(s.due(now + RETRY_SECS, &none).is_none());
        assert!(is_late(None, begun, 3600, begun + 7201) && !is_late(Some(begun), 0, 3600, begun + 7200));
    }
}
