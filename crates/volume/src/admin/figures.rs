//! Figures of a running cell for metrics: counts since it was opened, and how it is now. Every layer counts for itself; here it is
//! put together. Takes the state's lock a few times, in turn, for as long as `lee df` does; loads nothing but the paths of
//! schedules.

use crate::admin::{CellStats, Df};
use crate::pools::Pool;
use crate::shard::Shard;
use crate::state::quota::Quota;
use leeward_data::{CacheFigures, DiskCacheFigures, PoolId};
use leeward_env::histogram::Histogram;
use leeward_meta::Stats;
use leeward_pool::{GateFigures, StoreFigures};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A quota of which less than one part in so many is left is nearly full.
const NEARLY_PART: u64 = 20;

/// See the module's head. Counts only grow; bytes and lengths are as of now.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What `Stats` answers.
    pub stats: CellStats,
    /// What `Df` answers.
    pub df: Df,
    /// How long commits took, also those that failed.
    pub commits: Histogram,
    /// Commits that failed.
    pub commit_errors: u64,
    /// Records in commits.
    pub committed_records: u64,
    /// Whether the cell can be read only, because the engine failed.
    pub broken: bool,
    /// How long records were loaded that were not in memory.
    pub record_loads: Histogram,
    /// Records in memory: bytes, and most of them.
    pub record_cache_bytes: (u64, u64),
    /// The metadata engine.
    pub engine: Stats,
    /// What was asked of the stores of all pools.
    pub store: StoreFigures,
    /// The gates before the stores, by the names of their pools. One of a pool begins anew when that is assembled anew.
    pub gates: Vec<(String, GateFigures)>,
    /// The cache of file data.
    pub cache: CacheFigures,
    /// The cache on disk, if there is one.
    pub disk_cache: Option<DiskCacheFigures>,
    /// Most bytes in memory that are not stored yet.
    pub dirty_bytes_max: u64,
    /// Reads of users that found damage.
    pub damaged_reads: u64,
    /// Segments that were cleaned.
    pub cleaned_segments: u64,
    /// Damaged records that background work leaves out.
    pub unreadable_records: u64,
    /// Volumes that are not being removed.
    pub volumes: u64,
    /// Volumes whose removal goes on in the background.
    pub volumes_removing: u64,
    /// Quotas on volumes and directories.
    pub quotas: u64,
    /// Quotas of which less than a twentieth is left.
    pub quotas_nearly_full: u64,
    /// Bytes of data that only snapshots hold.
    pub snapshot_held_bytes: u64,
    /// Bytes of data that wait for trim.
    pub trim_bytes: u64,
}

impl Shard {
    /// See [`Figures`].
    pub(crate) fn figures(&self) -> Figures {
        let c = &self.counters;
        let mut figures = Figures {
            stats: self.stats(),
            df: self.df(),
            commits: c.commit_took.histogram(),
            commit_errors: c.commit_errors.load(Ordering::Relaxed),
            committed_records: c.committed_records.load(Ordering::Relaxed),
            record_loads: c.loads.histogram(),
            record_cache_bytes: self.cache.bytes(),
            engine: self.kv.stats(),
            store: self.pools.own().figures(),
            gates: self.gates(),
            cache: self.log.cache_figures(),
            disk_cache: self.log.disk_cache().map(|cache| cache.figures()),
            dirty_bytes_max: self.log.dirty_bytes_max(),
            damaged_reads: self.log.damaged_reads(),
            cleaned_segments: c.cleaned_segments.load(Ordering::Relaxed),
            ..Figures::default()
        };
        let st = self.lock();
        figures.broken = st.broken.is_some();
        figures.unreadable_records = st.unreadable.count();
        figures.volumes_removing = st.volumes.values().filter(|v| v.removing).count() as u64;
        figures.volumes = st.volumes.len() as u64 - figures.volumes_removing;
        let held: i64 = st.volumes.keys().map(|id| st.snapshots.held(*id).held.bytes).sum();
        figures.snapshot_held_bytes = held.max(0) as u64;
        figures.trim_bytes = st.snapshots.all_doomed().bytes.max(0) as u64;
        for (dir, quota) in st.quotas.iter() {
            figures.quotas += 1;
            figures.quotas_nearly_full += u64::from(is_nearly_full(quota, st.held_in_quota(dir)));
        }
        figures
    }

    fn gates(&self) -> Vec<(String, GateFigures)> {
        let of = |(id, pool): (PoolId, Arc<Pool>)| {
            let figures = if id == 0 { self.gate.figures() } else { pool.gate_figures() };
            (self.pool_name(id), figures)
        };
        self.pools.all().into_iter().map(of).collect()
    }

    /// Names of volumes by number.
    pub(crate) fn volume_names(&self) -> BTreeMap<u32, String> {
        self.lock().volumes.iter().map(|(id, v)| (*id, v.name.clone())).collect()
    }
}

fn is_nearly_full(quota: &Quota, held: i64) -> bool {
    let nearly = |limit: u64, used: i64| limit > 0 && used.max(0) as u64 >= limit - limit / NEARLY_PART;
    nearly(quota.limit.0, quota.used.bytes + held) || nearly(quota.limit.1, quota.used.inodes())
}
