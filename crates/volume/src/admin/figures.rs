//! Figures of a running cell for metrics. Each layer counts for itself; this module collects the
//! counts. It takes the lock of the state a few times, each time as long as `lee df` does, and
//! loads nothing but the paths of schedules.

use crate::admin::{CellStats, Df, ShardInfo};
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

/// A quota is nearly full when less than one part in this many is left.
const NEARLY_PART: u64 = 20;

/// Figures of a running cell. Counts begin when the cell is opened and only grow; bytes and lengths
/// are as of now.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The reply to [`StatsShow`](crate::admin::StatsShow).
    pub stats: CellStats,
    /// The reply to [`DfShow`](crate::admin::DfShow).
    pub df: Df,
    /// Time that commits took, including failed ones.
    pub commits: Histogram,
    /// Commits that failed.
    pub commit_errors: u64,
    /// Records in commits.
    pub committed_records: u64,
    /// Whether the cell is read-only because the engine failed.
    pub broken: bool,
    /// Time to load records that were not in memory.
    pub record_loads: Histogram,
    /// Bytes of records in memory, and the most there may be.
    pub record_cache_bytes: (u64, u64),
    /// The metadata engine.
    pub engine: Stats,
    /// Calls of the stores of all pools.
    pub store: StoreFigures,
    /// The gates before the stores, by the names of their pools. Counts of a pool begin again when
    /// the pool is opened again.
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
    /// Damaged records that background work skips.
    pub unreadable_records: u64,
    /// Volumes that are not being removed.
    pub volumes: u64,
    /// Volumes that the background is removing.
    pub volumes_removing: u64,
    /// Quotas on volumes and directories, and limits of users and groups.
    pub quotas: u64,
    /// Quotas with less than a twentieth left.
    pub quotas_nearly_full: u64,
    /// Bytes of data that only snapshots hold.
    pub snapshot_held_bytes: u64,
    /// Bytes of data that wait for trim.
    pub trim_bytes: u64,
    /// Bytes of all event logs.
    pub event_log_bytes: u64,
    /// Each shard.
    pub shards: Vec<ShardInfo>,
}

impl Figures {
    /// Adds those of another shard.
    pub(crate) fn add(&mut self, mut other: Figures) {
        self.shards.append(&mut other.shards);
        self.stats.add(other.stats);
        self.df.add(other.df);
        self.commits.add_all(&other.commits);
        self.commit_errors += other.commit_errors;
        self.committed_records += other.committed_records;
        self.broken |= other.broken;
        self.record_loads.add_all(&other.record_loads);
        self.record_cache_bytes.0 += other.record_cache_bytes.0;
        self.record_cache_bytes.1 += other.record_cache_bytes.1;
        self.engine.add(&other.engine);
        self.store.add(&other.store);
        self.cache.add(&other.cache);
        self.dirty_bytes_max += other.dirty_bytes_max;
        self.damaged_reads += other.damaged_reads;
        self.cleaned_segments += other.cleaned_segments;
        self.unreadable_records += other.unreadable_records;
        self.volumes += other.volumes;
        self.volumes_removing += other.volumes_removing;
        self.quotas += other.quotas;
        self.quotas_nearly_full += other.quotas_nearly_full;
        self.snapshot_held_bytes += other.snapshot_held_bytes;
        self.trim_bytes += other.trim_bytes;
        self.event_log_bytes += other.event_log_bytes;
    }
}

impl Shard {
    /// Collects the figures.
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
            shards: vec![self.info()],
            ..Figures::default()
        };
        let st = self.lock();
        figures.broken = st.broken.is_some();
        figures.unreadable_records = st.unreadable.count();
        figures.volumes = st.volumes.named_count() as u64;
        figures.volumes_removing = st.volumes.len() as u64 - figures.volumes;
        figures.snapshot_held_bytes = st.snapshots.all_held().bytes.max(0) as u64;
        figures.event_log_bytes = st.events.bytes();
        figures.trim_bytes = st.snapshots.all_doomed().bytes.max(0) as u64;
        for (of, quota) in st.quotas.iter().filter(|(_, quota)| quota.limit != Default::default()) {
            figures.quotas += 1;
            figures.quotas_nearly_full += u64::from(is_nearly_full(quota, st.held_in_quota(of)));
        }
        for (volume, who, limit) in st.owners.limits() {
            let of_owner = Quota { limit, used: st.owners.used(volume, who) };
            figures.quotas += 1;
            figures.quotas_nearly_full += u64::from(is_nearly_full(&of_owner, 0));
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

    /// Names of those of these volumes that there are.
    pub(crate) fn volume_names(&self, of: impl IntoIterator<Item = u32>) -> BTreeMap<u32, String> {
        let st = self.lock();
        of.into_iter().filter_map(|id| Some((id, st.volumes.get(&id)?.name.clone()))).collect()
    }
}

fn is_nearly_full(quota: &Quota, held: i64) -> bool {
    let nearly = |limit: u64, used: i64| limit > 0 && used.max(0) as u64 >= limit - limit / NEARLY_PART;
    nearly(quota.limit.0, quota.used.bytes + held) || nearly(quota.limit.1, quota.used.inodes())
}
