//! A shard: the state of its volumes in memory, and the one way to change it.
//!
//! Every operation is [`Shard::transact`]: a closure over [`Tx`], under the one lock, without I/O.
//! Lock order: `state`, then the data log's own locks, then the engine's. Nothing calls back into
//! `state` while holding theirs.

use crate::Config;
use crate::calls::Calls;
use crate::cell::kept_identity::KeptIdentity;
use crate::clock::LockClock;
use crate::commit::committer::Committer;
use crate::invalidations::Invalidations;
use crate::pools::{Pool, Pools};
use crate::sessions::Horizon;
use crate::state::scrubs::Scrubbing;
use crate::state::which::WhichShard;
use crate::state::{RecordCache, State};
use crate::wake::Wake;
use leeward_data::{Catalog, DataLog, Object, PoolId, SegmentInfo};
use leeward_env::histogram::Durations;
use leeward_env::waits::{self, Cause};
use leeward_env::{Ctx, Env, Flow, Nanos, Wait};
use leeward_fs::leases::Leases;
use leeward_fs::{Error, NodeId, Result, Time, Turns, Watcher};
use leeward_meta::Kv;
use leeward_pool::GatedStore;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// When users have left the stores alone for this time they do not need them now.
const QUIET: Duration = Duration::from_millis(500);

/// Counters for reports.
#[derive(Default)]
pub struct Counters {
    /// Operations.
    pub operations: AtomicU64,
    /// Commits.
    pub commits: AtomicU64,
    /// Durations of commits, failed ones included.
    pub commit_took: Durations,
    /// Commits that failed.
    pub commit_errors: AtomicU64,
    /// Records in commits.
    pub committed_records: AtomicU64,
    /// Durations of loads of records that were not in memory.
    pub loads: Durations,
    /// Segments that were cleaned.
    pub cleaned_segments: AtomicU64,
    /// Turns of the maintenance thread since the last commit.
    pub quiet_turns: AtomicU64,
}

/// A shard with its engine, its data log and the objects on which its threads wait.
pub struct Shard {
    /// Which shard of the cell it is.
    pub which: WhichShard,
    /// All shards of the cell, in order.
    pub(crate) all: OnceLock<Vec<Weak<Shard>>>,
    naming: Arc<Mutex<()>>,
    /// Clock and threads.
    pub env: Env,
    /// Settings.
    pub config: Config,
    /// The metadata engine.
    pub kv: Box<dyn Kv>,
    /// The data log.
    pub log: Arc<DataLog>,
    /// The pools below it.
    pub pools: Pools,
    /// The gate before the cell's own store.
    pub gate: Arc<GatedStore>,
    /// The head of the module has the lock order.
    state: Mutex<State>,
    /// Clean records.
    pub cache: RecordCache,
    /// Group commit.
    pub committer: Committer,
    /// Wakes the maintenance thread.
    pub maintenance: Wake,
    /// Wakes the engine's upkeep thread.
    pub upkeep: Wake,
    /// Wakes the thread that repairs pools.
    pub pool_repair: Wake,
    /// The running scrub.
    pub scrubbing: Scrubbing,
    /// Pools that have to be searched for leftovers of a crash.
    pub unsearched: Mutex<BTreeSet<PoolId>>,
    /// Held while a pool is searched. Before `housekeeping`.
    pub searching: Mutex<()>,
    /// Wakes the search thread.
    pub search: Wake,
    /// Held while freeing, trimming and cleaning: by the maintenance thread, or by an operation
    /// that needs the space now. Before all other locks.
    pub housekeeping: Mutex<()>,
    /// For reports.
    pub counters: Counters,
    /// The clock for locks of snapshots.
    pub clock: LockClock,
    /// Whether a volume is being removed or is a copy, or the engine is broken: then every
    /// operation checks that first.
    cautious: AtomicBool,
    /// Operations of front ends.
    pub(crate) calls: Calls,
    /// Whether the engine holds its space reserve, for removal and commits on a full disk.
    reserve_held: AtomicBool,
    watchers: Mutex<Vec<Arc<dyn Watcher>>>,
    /// Which changes of those clients are durable.
    pub(crate) horizon: Mutex<Horizon>,
    /// What clients on other machines keep copies of.
    pub leases: Leases,
    /// Invalidations after changes by doors.
    pub(crate) invalidations: Invalidations,
    /// Gives background work its turns, where users come through a gate.
    pub turns: Mutex<Option<Arc<dyn Turns>>>,
    /// The flow whose background work has its turn now, packed; 0: none.
    pub worker: AtomicU64,
    /// Held while the format of the cell is raised, over calls of the store and a commit.
    pub(crate) identity: Mutex<KeptIdentity>,
}

impl Shard {
    /// A shard from its parts.
    pub fn new(
        env: Env,
        config: Config,
        kv: Box<dyn Kv>,
        log: Arc<DataLog>,
        (pools, gate, leases, naming): (Pools, Arc<GatedStore>, Leases, Arc<Mutex<()>>),
        mut state: State,
    ) -> Arc<Shard> {
        state.number_copies();
        let cache = RecordCache::new(u64::from(config.metadata_cache_mib) << 20);
        let cautious = state.volumes.removing().next().is_some()
            || state.volumes.values().any(|v| v.properties.copy.is_some());
        let shard = Arc::new(Shard {
            which: state.which,
            all: OnceLock::new(),
            naming,
            env,
            config,
            kv,
            log,
            pools,
            gate,
            state: Mutex::new(state),
            cache,
            committer: Committer::default(),
            maintenance: Wake::default(),
            upkeep: Wake::default(),
            pool_repair: Wake::default(),
            scrubbing: Scrubbing::default(),
            unsearched: Mutex::default(),
            searching: Mutex::default(),
            search: Wake::default(),
            housekeeping: Mutex::default(),
            counters: Counters::default(),
            clock: LockClock::default(),
            cautious: AtomicBool::new(cautious),
            calls: Calls::default(),
            reserve_held: AtomicBool::new(false),
            watchers: Mutex::default(),
            horizon: Mutex::default(),
            leases,
            invalidations: Invalidations::default(),
            turns: Mutex::default(),
            worker: AtomicU64::new(0),
            identity: Mutex::new(KeptIdentity::Nowhere),
        });
        let (stored, locked_until) = {
            let st = shard.lock();
            (st.clock_stored, st.snapshots.locked_until())
        };
        shard.clock.start(&shard.env, stored, locked_until);
        shard.look_at_space(0);
        shard
    }

    /// The shards of the cell are these.
    pub(crate) fn knows_of(&self, shards: &[Arc<Shard>]) {
        _ = self.all.set(shards.iter().map(Arc::downgrade).collect());
    }

    /// Held while a volume gets its name, in any shard of the cell. Before all other locks.
    pub(crate) fn naming(&self) -> &Mutex<()> {
        &self.naming
    }

    /// The state, locked.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.try_lock().unwrap_or_else(|| {
            let worker = self.worker.load(Ordering::Relaxed);
            let (state, waited) = self.timed(|| self.state.lock());
            waits::note(Cause::Lock, (worker > 0).then(|| Flow::unpack(worker)), waited);
            state
        })
    }

    /// The result of `f`, and how long it took.
    pub(crate) fn timed<T>(&self, f: impl FnOnce() -> T) -> (T, Nanos) {
        let begun = self.env.now();
        let value = f();
        (value, self.env.now().saturating_sub(begun))
    }

    /// The time of an operation.
    pub fn now(&self) -> Time {
        time_of(self.env.wall())
    }

    /// Adds a front end's watcher.
    pub fn add_watcher(&self, watcher: Arc<dyn Watcher>) {
        self.watchers.lock().push(watcher);
    }

    /// Whether any front end wants to be told.
    pub(crate) fn has_watchers(&self) -> bool {
        !self.watchers.lock().is_empty()
    }

    /// Tells the front ends that a name changed.
    pub fn invalidate_entry(&self, dir: NodeId, name: &[u8]) {
        let watchers = self.watchers.lock().clone();
        watchers.iter().for_each(|w| w.entry_changed(dir, name));
    }

    /// Tells the front ends that an inode changed.
    pub fn invalidate_inode(&self, node: NodeId) {
        let watchers = self.watchers.lock().clone();
        watchers.iter().for_each(|w| w.inode_changed(node));
    }

    /// Waits until the front ends have applied what they were told.
    pub fn wait_applied(&self) {
        let watchers = self.watchers.lock().clone();
        watchers.iter().for_each(|w| w.wait_applied());
    }

    /// An error if the caller may not wait: then the operation must be repeated by one that may.
    pub fn may_wait(ctx: &Ctx) -> Result<()> {
        if ctx.wait == Wait::Never { Err(Error::WouldBlock) } else { Ok(()) }
    }

    /// From now on every operation checks that its volume exists and the engine works.
    pub(crate) fn check_every_operation(&self) {
        self.cautious.store(true, Ordering::SeqCst);
    }

    /// Nothing can be changed from now on until the cell is opened again: the state in memory may
    /// be wrong, or cannot be stored. Reads go on as far as possible; callers that wait for
    /// durability get an error.
    pub(crate) fn break_down(&self, why: &str) {
        tracing::error!("{why}; nothing can be changed until the cell is opened again");
        self.lock().broken.get_or_insert_with(|| why.to_string());
        self.check_every_operation();
        self.committer.wake();
    }

    /// Why nothing can be changed any more, if so.
    pub(crate) fn broken(&self) -> Option<String> {
        if self.checks_every_operation() { self.lock().broken.clone() } else { None }
    }

    /// Whether [`Shard::check_every_operation`] was called.
    pub(crate) fn checks_every_operation(&self) -> bool {
        self.cautious.load(Ordering::Relaxed)
    }

    /// Whether users need the stores: work that can wait gives way.
    pub(crate) fn stores_are_in_use(&self) -> bool {
        self.log.quiet_for() < QUIET
    }

    /// Updates a pool's free space.
    pub fn look_at_space(&self, pool: PoolId) {
        if let Some(pool) = self.pools.get(pool) {
            pool.look_at_space();
        }
    }

    /// Total bytes of a pool, and bytes that users may still write: without the reserve for
    /// removal, in pool 0 also for metadata.
    pub fn space(&self, pool: PoolId) -> (u64, u64) {
        self.pools.get(pool).map_or((0, 0), |found| self.space_in(pool, &found))
    }

    fn space_in(&self, pool: PoolId, found: &Pool) -> (u64, u64) {
        let (total, available) = found.space();
        let kept = reserve(pool, total) + self.log.dirty_bytes_to(pool);
        (total, available.saturating_sub(kept))
    }

    /// [`Error::NoSpace`] when `bytes` more do not fit in a pool, or nothing does.
    pub fn need_space(&self, pool: PoolId, bytes: u64) -> Result<()> {
        if pool != 0 {
            self.need_space_for_records()?;
        }
        let Some(found) = self.pools.get(pool) else { return Err(Error::Io(format!("pool {pool} is gone"))) };
        if let Some(why) = found.why_away() {
            return Err(Error::Io(why));
        }
        found.will_append(bytes);
        let short = self.space_in(pool, &found).1 < bytes.max(1);
        found.set_full(short);
        if short { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Data in other pools needs records all the same: a pool 0 that is full for users still takes
    /// them, up to half of the reserve.
    pub fn need_space_for_records(&self) -> Result<()> {
        let Some(own) = self.pools.get(0) else { return Ok(()) };
        own.will_append(0);
        let (total, available) = own.space();
        let short = available < reserve(0, total) / 2;
        own.set_full(short);
        if short { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Frees the engine's space reserve: the disk is full, and removal must go on.
    pub(crate) fn release_reserve(&self) -> Result<()> {
        if self.reserve_held.swap(false, Ordering::Relaxed) {
            tracing::warn!("the disk is full: using the space held back for removal");
        }
        Ok(self.kv.reserve(false)?)
    }

    /// Takes the space reserve again when there is plenty of space.
    pub(crate) fn take_reserve(&self) {
        let (total, free) = self.space(0);
        if !self.reserve_held.load(Ordering::Relaxed) && free > total / 16 && self.kv.reserve(true).is_ok() {
            self.reserve_held.store(true, Ordering::Relaxed);
        }
    }

    /// One step of the engine's upkeep; `true` when there was something to do.
    pub(crate) fn engine_step(&self) -> Result<bool> {
        match self.kv.maintain() {
            Err(leeward_meta::Error::Full) => {
                self.release_reserve()?;
                Ok(self.kv.maintain()?)
            }
            other => Ok(other?),
        }
    }

    /// Moves changes whose data became durable into the running transaction, inode by inode.
    /// Changes for which that fails stay pending: an fsync of the file tries again, and gets the
    /// error.
    fn apply_segment(&self, segment: u64) {
        let mut from = Bound::Unbounded;
        loop {
            // nothing is added to it any more
            let batch: Vec<NodeId> = match self.lock().by_segment.get(&segment) {
                None => return,
                Some(nodes) => nodes.range((from, Bound::Unbounded)).take(64).copied().collect(),
            };
            let Some(last) = batch.last() else { return };
            from = Bound::Excluded(*last);
            for node in batch {
                if let Err(e) = self.apply_content(&Ctx::system(), node) {
                    tracing::error!("{e}");
                }
            }
        }
    }

    /// Moves the changes of a file whose data is durable into the running transaction.
    ///
    /// # Errors
    /// Errors of reading its records, which are damaged or out of reach then.
    pub(crate) fn apply_content(&self, ctx: &Ctx, node: NodeId) -> Result<()> {
        self.transact(ctx, |tx| tx.apply_ready(node)).map_err(|e| match e {
            Error::WouldBlock | Error::Stale => e,
            e => Error::Io(format!(
                "what was written to {} cannot enter its records: {e}",
                self.describe(node)
            )),
        })
    }

    /// [`Shard::apply_content`] of all files. All are tried; the first error is returned.
    pub(crate) fn apply_stored(&self) -> Result<()> {
        let nodes: Vec<NodeId> = self.lock().files.keys().copied().collect();
        let mut first = Ok(());
        for node in nodes {
            match self.apply_content(&Ctx::system(), node) {
                Err(Error::Stale) => {}
                done => first = first.and(done),
            }
        }
        first
    }
}

/// The time so many nanoseconds after the beginning of 1970.
pub(crate) fn time_of(nanos: u64) -> Time {
    Time { secs: (nanos / 1_000_000_000) as i64, nanos: (nanos % 1_000_000_000) as u32 }
}

/// Bytes of a pool that users cannot have: in pool 0 the reserve for metadata and removal,
/// elsewhere that for cleaning.
fn reserve(pool: PoolId, total: u64) -> u64 {
    match pool {
        0 => (total / 16).clamp(12 << 20, 512 << 20),
        _ => (total / 16).min(64 << 20),
    }
}

impl Catalog for Shard {
    fn allocate_segment(&self, volume: u32, pool: PoolId) -> leeward_data::Result<u64> {
        loop {
            let allocated = self.lock().segments.allocate(volume, pool);
            if let Some(number) = allocated {
                return Ok(number);
            }
            let reserved = self.commit_whole();
            reserved.map_err(|e| leeward_data::Error::Store(std::io::Error::other(e.to_string()).into()))?;
        }
    }

    fn unused(&self, segment: u64) {
        self.lock().segments.forget_open(segment);
    }

    /// Yes if inline data of it keeps the journal from being dropped.
    fn goes_elsewhere(&self, segment: u64, object_bytes: u64) -> bool {
        let inline_data = self.lock().segments.get(segment).is_some_and(|r| !r.sealed);
        inline_data && self.space(0).1 > object_bytes
    }

    fn object(&self, segment: u64) -> Option<Object> {
        self.lock().segments.get(segment).filter(|r| r.sealed).map(|r| r.object(segment))
    }

    fn sealed(&self, info: SegmentInfo) {
        let segment = info.object.segment;
        let mut st = self.lock();
        if info.object_bytes > 0 {
            st.segments.sealed(info);
            // the volume was given another pool since
            if st.segments.get(segment).is_some_and(|r| st.home_of(r).is_some()) {
                st.moves.add(segment);
            }
        } else {
            st.segments.forget_open(segment);
            if st.by_segment.contains_key(&segment) {
                // all its data was overwritten before it was stored: the changes that brought it
                // may be applied all the same
                st.vanished.insert(segment);
            }
        }
        st.released.push(segment);
        drop(st);
        self.apply_segment(segment);
    }

    fn panicked(&self, what: &str) {
        self.break_down(what);
    }
}
