//! The pools of a running cell: their stores, open or away, and the space in each.
//!
//! Pool 0, `default`, is the directory of the cell itself: one store, always there. An operator
//! makes the others. A pool whose stores cannot be opened is *away*: its data answers EIO,
//! everything else works, and opening is tried again every few seconds.
//!
//! The hot pool of a tier is no pool here: the tier is its cold pool, and away only when both are.
//!
//! Locks: each is held for a look or an exchange only, never over a call of a store.

pub(crate) mod disk_cache;
pub(crate) mod pool_repair;
pub(crate) mod scrub_round;
pub(crate) mod scrubs;
pub(crate) mod stores;
pub(crate) mod tiers;

use crate::config::Config;
use crate::format::inode::{PoolRecord, StoreRecord, TierRecord};
use leeward_data::PoolId;
use leeward_data::format::is_whole;
use leeward_env::{Activity, Ctx, Env, Nanos};
use leeward_pool::label::{self, Label};
use leeward_pool::location::StoreLocation;
use leeward_pool::{
    CountedStore, FailedPuts, GateFigures, GatedStore, Layout, Member, Pool as Layered, PoolSpec,
    RestingStore, SpecError, Store, StoreSpec, StoreState, Tier, assemble_anew,
};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Name of pool 0.
pub const DEFAULT: &str = "default";

/// Appends after which the free space is looked at again; on a small disk after fewer.
const SPACE_EVERY_BYTES: u64 = 16 << 20;

/// A store that has not answered for this time counts as missing.
const OPEN_WAIT: Nanos = 15_000_000_000;

/// How often opening a pool that is away is tried.
const OPEN_EVERY_NS: Nanos = 3_000_000_000;

/// A store that is smaller is of no use: some segments must fit.
const STORE_BYTES_MIN: u64 = 16 << 20;

/// Opens stores by their URLs.
pub trait Opener: Send + Sync {
    /// The open store. An error says what is wrong with it and what to do.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(&self, url: &str) -> leeward_pool::Result<Arc<dyn Store>>;

    /// The disk or server of the store, which it would fail with; `None`: unknown.
    fn place(&self, _url: &str) -> Option<StoreLocation> {
        None
    }
}

/// A pool whose stores are open, as far as they are needed.
#[derive(Clone)]
pub struct OpenPool {
    /// For data.
    pub store: Arc<CountedStore>,
    /// The same pool with its layout; pool 0 has none.
    pub layout: Option<Arc<dyn Layered>>,
    /// The same pool, if it is a tier.
    pub tier: Option<Arc<Tier>>,
    /// The gates before its stores; pool 0 has its own.
    pub gates: Vec<Arc<GatedStore>>,
    /// Stores that should be there and could not be opened, with the reason.
    pub missing: Vec<String>,
    /// Whether some of its data cannot be read: one pool of a tier is away.
    pub partly: bool,
}

/// The stores of a pool, as far as they could be opened.
struct Members {
    spec: PoolSpec,
    members: Vec<Member>,
    gates: Vec<Arc<GatedStore>>,
    missing: Vec<String>,
    failed_puts: FailedPuts,
    /// Whether there are enough to read the pool.
    readable: bool,
}

impl Members {
    /// Why it cannot be read.
    fn why_not(&self) -> String {
        let open = self.members.iter().filter(|member| matches!(member, Member::Open(_))).count();
        let why: String = self.missing.iter().map(|why| format!("; {why}")).collect();
        format!("{open} of its stores can be had, {} are needed{why}", self.spec.layout.data())
    }
}

/// Records of a pool and of the hot pool in front of it, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Number of the pool.
    pub id: PoolId,
    /// Record of the pool.
    pub record: PoolRecord,
    /// Record of the hot pool. Its number is in the pool's record.
    pub hot: Option<PoolRecord>,
}

/// A pool's store, or why it is away, and what is known of its space.
pub struct Pool {
    opened: RwLock<Result<OpenPool, String>>,
    repair_at: AtomicU64,
    available_bytes: AtomicU64,
    total_bytes: AtomicU64,
    /// Bytes appended since the space was checked.
    appended: AtomicU64,
    full: AtomicBool,
}

impl Pool {
    fn new(opened: Result<OpenPool, String>) -> Pool {
        Pool {
            opened: RwLock::new(opened),
            repair_at: AtomicU64::new(0),
            available_bytes: AtomicU64::new(u64::MAX),
            total_bytes: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            full: AtomicBool::new(false),
        }
    }

    /// The store; the error says why it is away.
    pub fn store(&self) -> Result<Arc<CountedStore>, String> {
        self.opened.read().as_ref().map(|o| o.store.clone()).map_err(Clone::clone)
    }

    /// The pool with its layout, if it has one and is not away.
    pub fn layout(&self) -> Option<Arc<dyn Layered>> {
        self.opened.read().as_ref().ok()?.layout.clone()
    }

    /// Why it is away, if it is.
    pub fn why_away(&self) -> Option<String> {
        self.opened.read().as_ref().err().cloned()
    }

    /// The tier, if it is one and is not away.
    pub fn tier(&self) -> Option<Arc<Tier>> {
        self.opened.read().as_ref().ok()?.tier.clone()
    }

    /// The figures of the gates before its stores, added up; none for pool 0.
    pub fn gate_figures(&self) -> GateFigures {
        let opened = self.opened.read();
        opened.as_ref().map_or_else(|_| GateFigures::default(), |o| o.gates.iter().map(|g| g.figures()).sum())
    }

    /// Whether some or all of its data cannot be read.
    pub fn is_short(&self) -> bool {
        self.opened.read().as_ref().map_or(true, |o| o.partly)
    }

    /// Stores that should be there and could not be opened; all of them when the pool is away.
    pub fn missing(&self) -> usize {
        self.opened.read().as_ref().map_or(usize::MAX, |o| o.missing.len())
    }

    /// Whether the next check for repair is due.
    pub fn is_time_to_repair(&self, now: Nanos) -> bool {
        self.repair_at.load(Ordering::Relaxed) <= now
    }

    /// Sets the time of the next check for repair.
    pub fn repair_after(&self, then: Nanos) {
        self.repair_at.store(then, Ordering::Relaxed);
    }

    /// Updates the free space of the store.
    pub fn look_at_space(&self) {
        self.appended.store(0, Ordering::Relaxed);
        let store = self.store();
        if store.is_err() {
            self.available_bytes.store(0, Ordering::Relaxed);
        }
        let Ok(store) = store else { return };
        match store.space() {
            Ok(space) => {
                self.available_bytes.store(space.usable_bytes(), Ordering::Relaxed);
                self.total_bytes.store(space.total_bytes, Ordering::Relaxed);
            }
            // it has just come back, and says it in a moment
            Err(_) => {
                _ = self.available_bytes.compare_exchange(0, u64::MAX, Ordering::Relaxed, Ordering::Relaxed)
            }
        }
    }

    /// Total and available bytes at the last check.
    pub fn space(&self) -> (u64, u64) {
        (self.total_bytes.load(Ordering::Relaxed), self.available_bytes.load(Ordering::Relaxed))
    }

    /// Called before `bytes` are written: checks the space when it may have changed much, or was
    /// short.
    pub fn will_append(&self, bytes: u64) {
        let every = SPACE_EVERY_BYTES.min(self.total_bytes.load(Ordering::Relaxed) / 128);
        if self.appended.fetch_add(bytes, Ordering::Relaxed) > every || self.full.load(Ordering::Relaxed) {
            self.look_at_space();
        }
    }

    /// Notes whether there was too little space: then it is checked again at each write.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }
}

/// All pools.
pub struct Pools {
    env: Env,
    cell: String,
    opener: Arc<dyn Opener>,
    own: Arc<CountedStore>,
    activity: Arc<Activity>,
    /// Whether gates make anything wait.
    fair: bool,
    /// Most transfers that each gate lets through at once.
    store_transfers: usize,
    pools: RwLock<BTreeMap<PoolId, Arc<Pool>>>,
    /// Of each pool, whichever stores are open: puts that failed are repeated.
    failed_puts: Mutex<BTreeMap<PoolId, FailedPuts>>,
    /// Stores that are being opened, labelled or unlabelled, by URL, and since when.
    asked: Arc<Mutex<BTreeMap<String, Nanos>>>,
    /// Time of the next try to open pools that are away.
    next_try: AtomicU64,
}

impl Pools {
    /// Pool 0 with its store, and the opener for stores of others; `cell`: the id in their labels.
    /// The settings configure the gates before them.
    pub fn new(
        env: &Env,
        cell: &str,
        own: Arc<CountedStore>,
        opener: Arc<dyn Opener>,
        (activity, config): (Arc<Activity>, &Config),
    ) -> Pools {
        let default = OpenPool {
            store: own.clone(),
            layout: None,
            tier: None,
            gates: Vec::new(),
            missing: Vec::new(),
            partly: false,
        };
        let pools = RwLock::new(BTreeMap::from([(0, Arc::new(Pool::new(Ok(default))))]));
        let next_try = AtomicU64::new(0);
        Pools {
            env: env.clone(),
            cell: cell.into(),
            opener,
            own,
            // without fair gates users are not counted, and background work does not rest for them
            activity: if config.fair { activity } else { Arc::default() },
            fair: config.fair,
            store_transfers: config.store_transfers as usize,
            pools,
            failed_puts: Mutex::default(),
            asked: Arc::default(),
            next_try,
        }
    }

    /// The store of pool 0; its figures include all other stores.
    pub fn own(&self) -> &Arc<CountedStore> {
        &self.own
    }

    /// A pool that the cell has.
    pub fn get(&self, pool: PoolId) -> Option<Arc<Pool>> {
        self.pools.read().get(&pool).cloned()
    }

    /// Whether there is only pool 0, as in most cells: then nothing need be looked up to know where
    /// data goes.
    pub fn are_one(&self) -> bool {
        self.pools.read().len() == 1
    }

    /// All pools in order.
    pub fn all(&self) -> Vec<(PoolId, Arc<Pool>)> {
        self.pools.read().iter().map(|(id, pool)| (*id, pool.clone())).collect()
    }

    /// Pools that are away or hang.
    pub fn not_there(&self) -> Vec<PoolId> {
        let is_not_there = |pool: &Pool| pool.store().map_or(true, |store| store.is_stuck());
        self.all().into_iter().filter(|(_, pool)| is_not_there(pool)).map(|(id, _)| id).collect()
    }

    /// Whether a pool is there and hangs: background work leaves it alone.
    pub fn hangs(&self, id: PoolId) -> bool {
        let store = self.get(id).and_then(|pool| pool.store().ok());
        store.is_some_and(|store| store.is_stuck())
    }

    /// The disk or server of a store, which it would fail with.
    pub fn place(&self, url: &str) -> Option<StoreLocation> {
        self.opener.place(url)
    }

    /// Opens the stores of a pool: as many as are needed to read it must be there, of a tier those
    /// of one of its pools. The error names the stores and what is wrong with them.
    pub fn open(&self, parts: &Parts) -> Result<OpenPool, String> {
        let cold = self.open_members(parts.id, &parts.record)?;
        if let (Some(tier), Some(hot)) = (&parts.record.tier, &parts.hot) {
            return self.open_tier(parts.id, tier, self.open_members(tier.hot, hot)?, cold);
        }
        if !cold.readable {
            return Err(cold.why_not());
        }
        let (gates, missing) = (cold.gates.clone(), cold.missing.clone());
        let layout = self.assembled(cold)?;
        let store = self.in_front_of(layout.clone());
        Ok(OpenPool { store, layout: Some(layout), tier: None, gates, missing, partly: false })
    }

    fn assembled(&self, of: Members) -> Result<Arc<dyn Layered>, String> {
        let failed = &of.failed_puts;
        assemble_anew(&self.env, &self.activity, &of.spec, of.members, is_whole, failed)
            .map_err(|e| e.to_string())
    }

    /// A pool for data: counted, and background work rests after its calls.
    fn in_front_of(&self, layout: Arc<dyn Store>) -> Arc<CountedStore> {
        let resting = RestingStore::new(&self.env, layout, self.activity.clone());
        Arc::new(self.own.beside(Arc::new(resting)))
    }

    fn open_tier(
        &self,
        id: PoolId,
        tier: &TierRecord,
        hot: Members,
        cold: Members,
    ) -> Result<OpenPool, String> {
        let missing = [hot.missing.clone(), cold.missing.clone()].concat();
        let gates = [hot.gates.clone(), cold.gates.clone()].concat();
        if !hot.readable && !cold.readable {
            return Err(format!("{}; {}", hot.why_not(), cold.why_not()));
        }
        let partly = !hot.readable || !cold.readable;
        let (hot, cold) = (self.assembled(hot)?, self.assembled(cold)?);
        let tier = match self.get(id).and_then(|pool| pool.tier()) {
            Some(before) => before.anew(hot, cold, tier.options),
            None => Tier::new(&self.env, hot, cold, tier.options),
        };
        let store = self.in_front_of(tier.clone());
        Ok(OpenPool { store, layout: Some(tier.clone()), tier: Some(tier), gates, missing, partly })
    }

    fn open_members(&self, id: PoolId, record: &PoolRecord) -> Result<Members, String> {
        let spec = spec_of(id, record)?;
        let (mut members, mut gates) = (Vec::new(), Vec::new());
        let (mut missing, mut slots) = (Vec::new(), BTreeSet::new());
        for (store, open) in spec.stores.iter().zip(self.open_stores(id, &spec.stores)) {
            members.push(match open {
                Ok(open) => {
                    slots.insert(store.slot);
                    let (slice, activity) = (open.slice_bytes(), self.activity.clone());
                    let gate = GatedStore::new(&self.env, open, slice, activity, self.fair);
                    gates.push(Arc::new(gate.at_most(self.store_transfers).without_rests()));
                    Member::Open(gates[gates.len() - 1].clone())
                }
                Err(why) => {
                    if store.state != StoreState::Missing {
                        missing.push(why.clone());
                    }
                    Member::Missing(why)
                }
            });
        }
        let readable = slots.len() >= spec.layout.data();
        let failed_puts = self.failed_puts.lock().entry(id).or_default().clone();
        Ok(Members { spec, members, gates, missing, failed_puts, readable })
    }

    /// Opens stores, all at once where there are threads: a store that is away takes seconds to
    /// fail.
    fn open_stores(&self, id: PoolId, stores: &[StoreSpec]) -> Vec<Result<Arc<dyn Store>, String>> {
        let until = self.env.now() + OPEN_WAIT;
        let ask = |store: &StoreSpec| {
            let (wanted, opener, store) = (self.label(id, store), self.opener.clone(), store.clone());
            self.ask(&store.url.clone(), move || open_store(&*opener, &store, &wanted))
        };
        let asked: Vec<_> = stores.iter().map(ask).collect();
        asked
            .into_iter()
            .zip(stores)
            .map(|(answer, store)| self.answer(&answer, until, &store.url)?)
            .collect()
    }

    /// Runs a job with a store on a thread of its own, so that a store that hangs holds up nobody.
    /// Fails if an earlier call of it has hung for as long as a call is waited for.
    fn ask<T: Send + 'static>(&self, url: &str, job: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, answer) = channel();
        let now = self.env.now();
        let begun = *self.asked.lock().entry(url.into()).or_insert(now);
        if now - begun <= OPEN_WAIT {
            let (asked, of) = (self.asked.clone(), url.to_string());
            let job = move || {
                let done = job();
                asked.lock().remove(&of);
                let _ = sender.send(done); // or nobody waits any more
            };
            if self.env.is_sim() {
                job();
            } else if let Err(e) = self.env.try_spawn("open-store", job) {
                tracing::warn!("{url}: no thread to ask it: {e}");
                self.asked.lock().remove(url);
            }
        }
        answer
    }

    fn answer<T>(&self, answer: &Receiver<T>, until: Nanos, url: &str) -> Result<T, String> {
        let left = Duration::from_nanos(until.saturating_sub(self.env.now()));
        let silent = |_| format!("{url}: it does not answer: is what it is on there, and mounted?");
        answer.recv_timeout(left).map_err(silent)
    }

    fn open_store(&self, id: PoolId, store: &StoreSpec) -> Result<Arc<dyn Store>, String> {
        open_store(&*self.opener, store, &self.label(id, store))
    }

    fn label(&self, pool: PoolId, store: &StoreSpec) -> Label {
        Label { cell: self.cell.clone(), pool, slot: store.slot, store: store.id.clone() }
    }

    /// Makes an empty store one of a pool, by writing its label. The error says why that is
    /// impossible.
    pub fn take(&self, pool: PoolId, store: &StoreRecord) -> Result<(), String> {
        let (label, opener, url) =
            (self.label(pool, &store_spec(store)), self.opener.clone(), store.url.clone());
        let taken = self.ask(&store.url, move || {
            let failed = |e: &dyn std::fmt::Display| format!("{url}: {e}");
            let open = opener.open(&url).map_err(|e| failed(&e))?;
            label::write(&Ctx::system(), &*open, &label, STORE_BYTES_MIN).map_err(|e| failed(&e))
        });
        self.answer(&taken, self.env.now() + OPEN_WAIT, &store.url)?
    }

    /// Which stores of a pool are there now, by their labels; the errors say why they are not.
    pub fn look_for(&self, pool: PoolId, stores: &[StoreRecord]) -> Vec<Result<(), String>> {
        let stores: Vec<StoreSpec> = stores.iter().map(store_spec).collect();
        self.open_stores(pool, &stores).into_iter().map(|found| found.map(drop)).collect()
    }

    /// Objects on one store of a pool.
    pub fn objects_on(&self, pool: PoolId, store: &StoreRecord) -> Result<usize, String> {
        let open = self.open_store(pool, &store_spec(store))?;
        let all = open.list(&Ctx::system()).map_err(|e| format!("{}: {e}", store.url))?;
        Ok(all.iter().filter(|(id, _)| *id != label::LABEL).count())
    }

    /// Removes the label of a store that is not one of a pool any more, if it has one.
    pub fn remove_label(&self, pool: PoolId, store: &StoreRecord) {
        let (label, opener, url) =
            (self.label(pool, &store_spec(store)), self.opener.clone(), store.url.clone());
        let gone = self.ask(&store.url, move || {
            let ctx = Ctx::system();
            if let Ok(open) = opener.open(&url)
                && label::check(&ctx, &*open, &label).is_ok()
                && let Err(e) = label::remove(&ctx, &*open)
            {
                tracing::warn!("the label of {url} stays: {e}");
            }
        });
        let _ = self.answer(&gone, self.env.now() + OPEN_WAIT, &store.url); // a store that hangs keeps it, or loses it later
    }

    /// Whether opening pools that are away is due; once every few seconds.
    pub fn is_time_to_open(&self, now: Nanos) -> bool {
        let due = self.next_try.load(Ordering::Relaxed) <= now;
        if due {
            self.next_try.store(now + OPEN_EVERY_NS, Ordering::Relaxed);
        }
        due
    }

    /// Adds a pool, or changes its stores.
    pub fn set(&self, id: PoolId, opened: Result<OpenPool, String>) {
        let mut pools = self.pools.write();
        match pools.get(&id) {
            Some(pool) => {
                *pool.opened.write() = opened;
                pool.repair_after(0);
            }
            None => drop(pools.insert(id, Arc::new(Pool::new(opened)))),
        }
    }

    /// Removes a pool.
    pub fn remove(&self, id: PoolId) {
        self.pools.write().remove(&id);
        self.failed_puts.lock().remove(&id);
    }
}

fn open_store(opener: &dyn Opener, store: &StoreSpec, wanted: &Label) -> Result<Arc<dyn Store>, String> {
    if store.state == StoreState::Missing {
        return Err(format!("{} was given up", store.url));
    }
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", store.url);
    let open = opener.open(&store.url).map_err(|e| failed(&e))?;
    label::check(&Ctx::system(), &*open, wanted).map_err(|e| failed(&e))?;
    Ok(open)
}

fn store_spec(store: &StoreRecord) -> StoreSpec {
    StoreSpec {
        slot: store.slot,
        id: format!("{:032x}", store.id),
        url: store.url.clone(),
        state: store.state,
    }
}

/// The spec of a pool from its record; the error says why there is none.
pub fn spec_of(id: PoolId, record: &PoolRecord) -> Result<PoolSpec, String> {
    let layout: Layout = record.layout.parse().map_err(|e: SpecError| e.to_string())?;
    let stores = record.stores.iter().map(store_spec).collect();
    let spec = PoolSpec { id, name: record.name.clone(), layout, stores };
    spec.check().map_err(|e| e.to_string())?;
    Ok(spec)
}

#[cfg(test)]
mod tests;
