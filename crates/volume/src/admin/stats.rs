//! Tells what the running process did.

use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::shard::Shard;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;

/// Tells what the running process did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatsShow;

/// Figures of the running process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellStats {
    /// Operations since start.
    pub operations: u64,
    /// Commits since start.
    pub commits: u64,
    /// Records in the running transaction.
    pub running_records: u64,
    /// Dirty data in memory, bytes.
    pub dirty_bytes: u64,
    /// Bytes written to stores since start, data and metadata.
    pub written_bytes: u64,
    /// Inodes unlinked but open.
    pub orphans: u64,
    /// Segments waiting for cleaning.
    pub cleaning_segments: u64,
    /// Snapshots of all volumes.
    pub snapshots: u64,
    /// Schedules that are late, see [`ScheduleInfo::late`](crate::admin::ScheduleInfo::late).
    pub late_schedules: u64,
    /// Pools whose last complete scrub is late, see
    /// [`ScrubStatus::late`](crate::admin::ScrubStatus::late).
    #[serde(default)]
    pub late_scrubs: u64,
    /// While a snapshot is locked: seconds by which the wall clock was set forward since start;
    /// below zero: back.
    pub clock_ahead_secs: i64,
    /// Entries of deadlists that no snapshot holds any more and trim has not freed yet.
    #[serde(default)]
    pub trim_records: u64,
}

impl CellStats {
    /// Adds what another shard says.
    pub(super) fn add(&mut self, other: CellStats) {
        self.operations += other.operations;
        self.commits += other.commits;
        self.running_records += other.running_records;
        self.dirty_bytes += other.dirty_bytes;
        self.written_bytes += other.written_bytes;
        self.orphans += other.orphans;
        self.cleaning_segments += other.cleaning_segments;
        self.snapshots += other.snapshots;
        self.late_schedules += other.late_schedules;
        self.late_scrubs += other.late_scrubs;
        if other.clock_ahead_secs.abs() > self.clock_ahead_secs.abs() {
            self.clock_ahead_secs = other.clock_ahead_secs;
        }
        self.trim_records += other.trim_records;
    }
}

impl Reply for CellStats {
    const KIND: &'static str = "stats";
}

impl Request for StatsShow {
    type Reply = CellStats;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut CellStats, other: CellStats) {
        all.add(other);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<CellStats, Failure> {
        Ok(shard.stats())
    }
}

impl Shard {
    pub(super) fn stats(&self) -> CellStats {
        let cleaning_segments = self.segments_to_clean();
        let clock_ahead_secs = self.clock_moment().ahead;
        // a schedule that cannot be read counts as late
        let late_schedules = self.schedules().map_or(1, |all| all.iter().filter(|s| s.late).count() as u64);
        let now = self.now().secs;
        let pools = self.pools.all();
        let st = self.lock();
        let late_scrubs = pools.iter().filter(|(id, _)| st.scrub_status(*id, now).late).count() as u64;
        CellStats {
            late_scrubs,
            operations: self.counters.operations.load(Ordering::Relaxed),
            commits: self.counters.commits.load(Ordering::Relaxed),
            running_records: st.running.records.len() as u64,
            dirty_bytes: self.log.dirty_bytes(),
            written_bytes: self.log.written_bytes() + self.kv.stats().written_bytes,
            orphans: st.orphans.len() as u64,
            cleaning_segments,
            snapshots: st.volumes.keys().map(|id| st.snapshots.count(*id) as u64).sum(),
            late_schedules,
            clock_ahead_secs,
            trim_records: st.snapshots.all_doomed().records as u64,
        }
    }
}
