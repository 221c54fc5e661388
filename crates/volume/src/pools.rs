//! The pools of a cell while it runs: their stores, open or away, and the space in each.
//!
//! Pool 0, `default`, is the directory of the cell itself: one store, always there. Others are made by an operator. One whose
//! stores cannot be opened is *away*: its data answers EIO, everything else works, and it is tried again every few seconds.
//!
//! Locks: each is held for a look or an exchange only, never over a call of a store.

use crate::inode::PoolRecord;
use leeward_data::PoolId;
use leeward_env::Nanos;
use leeward_env::disk::Space;
use leeward_pool::{CountedStore, Store};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Name of pool 0.
pub const DEFAULT: &str = "default";

/// Appends after which the free space is looked at again; on a small disk after fewer.
const SPACE_EVERY_BYTES: u64 = 16 << 20;

/// How often it is tried to open a pool that is away.
const OPEN_EVERY_NS: Nanos = 3_000_000_000;

/// Opens a store by its URL.
pub trait Opener: Send + Sync {
    /// The store that is there. An error says what is wrong with it and what to do.
    fn open(&self, url: &str) -> leeward_pool::Result<Arc<dyn Store>>;
}

/// A pool's store, or why it is away, and what is known of its space.
pub struct Pool {
    store: RwLock<Result<Arc<CountedStore>, String>>,
    available_bytes: AtomicU64,
    total_bytes: AtomicU64,
    /// Appended since the space was looked at.
    appended: AtomicU64,
    full: AtomicBool,
}

impl Pool {
    fn new(store: Result<Arc<CountedStore>, String>) -> Pool {
        Pool {
            store: RwLock::new(store),
            available_bytes: AtomicU64::new(u64::MAX),
            total_bytes: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            full: AtomicBool::new(false),
        }
    }

    /// The store; the error says why it is away.
    pub fn store(&self) -> Result<Arc<CountedStore>, String> {
        self.store.read().clone()
    }

    /// Looks at the free space of the store.
    pub fn look_at_space(&self) {
        self.appended.store(0, Ordering::Relaxed);
        let space = self.store().ok().and_then(|store| store.space().ok());
        if let Some(Space { total_bytes, available_bytes, .. }) = space {
            self.available_bytes.store(available_bytes, Ordering::Relaxed);
            self.total_bytes.store(total_bytes, Ordering::Relaxed);
        }
    }

    /// Total and available bytes as last looked at.
    pub fn space(&self) -> (u64, u64) {
        (self.total_bytes.load(Ordering::Relaxed), self.available_bytes.load(Ordering::Relaxed))
    }

    /// So many bytes are about to be written: looks at the space when it may have changed much, or was short.
    pub fn will_append(&self, bytes: u64) {
        let every = SPACE_EVERY_BYTES.min(self.total_bytes.load(Ordering::Relaxed) / 128);
        if self.appended.fetch_add(bytes, Ordering::Relaxed) > every || self.full.load(Ordering::Relaxed) {
            self.look_at_space();
        }
    }

    /// Notes whether there was too little space: then it is looked at again at each write.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }
}

/// All pools.
pub struct Pools {
    opener: Arc<dyn Opener>,
    own: Arc<CountedStore>,
    pools: RwLock<BTreeMap<PoolId, Arc<Pool>>>,
    /// When what is away is tried next.
    next_try: AtomicU64,
}

impl Pools {
    /// Pool 0 with its store, and how stores of others are opened.
    pub fn new(own: Arc<CountedStore>, opener: Arc<dyn Opener>) -> Pools {
        let pools = BTreeMap::from([(0, Arc::new(Pool::new(Ok(own.clone()))))]);
        Pools { opener, own, pools: RwLock::new(pools), next_try: AtomicU64::new(0) }
    }

    /// The store of pool 0, which also has the figures of all.
    pub fn own(&self) -> &Arc<CountedStore> {
        &self.own
    }

    /// A pool that the cell has.
    pub fn get(&self, pool: PoolId) -> Option<Arc<Pool>> {
        self.pools.read().get(&pool).cloned()
    }

    /// All of them in order.
    pub fn all(&self) -> Vec<(PoolId, Arc<Pool>)> {
        self.pools.read().iter().map(|(id, pool)| (*id, pool.clone())).collect()
    }

    /// Those that are away.
    pub fn away(&self) -> Vec<PoolId> {
        let pools = self.pools.read();
        pools.iter().filter(|(_, pool)| pool.store.read().is_err()).map(|(id, _)| *id).collect()
    }

    /// Opens the stores of a pool. The error names the store, and says what to do.
    pub fn open(&self, record: &PoolRecord) -> Result<Arc<CountedStore>, String> {
        match (record.layout.as_str(), &record.stores[..]) {
            ("single", [store]) => {
                let opened = self.opener.open(&store.url).map_err(|e| format!("{}: {e}", store.url))?;
                Ok(Arc::new(self.own.beside(opened)))
            }
            ("single", _) => Err("layout single needs exactly one store".into()),
            (other, _) => Err(format!("layout {other} is not known: use a newer lee")),
        }
    }

    /// Whether what is away is to be tried again; once every few seconds.
    pub fn is_time_to_open(&self, now: Nanos) -> bool {
        let due = self.next_try.load(Ordering::Relaxed) <= now;
        if due {
            self.next_try.store(now + OPEN_EVERY_NS, Ordering::Relaxed);
        }
        due
    }

    /// Makes a pool known, or changes its store.
    pub fn set(&self, id: PoolId, store: Result<Arc<CountedStore>, String>) {
        let mut pools = self.pools.write();
        match pools.get(&id) {
            Some(pool) => *pool.store.write() = store,
            None => drop(pools.insert(id, Arc::new(Pool::new(store)))),
        }
    }

    /// Forgets a pool.
    pub fn remove(&self, id: PoolId) {
        self.pools.write().remove(&id);
    }
}
