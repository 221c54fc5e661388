//! Pools as the data log sees them (lanes): each has a store, which may be away, and threads of its
//! own that put its segments.
//!
//! The map is read at every call of a store. It changes when an operator creates or removes a pool
//! or a store comes back.

use crate::PoolId;
use crate::drain::Drain;
use leeward_env::Flow;
use leeward_pool::Store;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flow that writes to a pool: memory is shared between writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    pub(crate) flow: Flow,
    pub(crate) pool: PoolId,
}

/// The part of the log that belongs to one pool.
pub(crate) struct Lane {
    pub(crate) pool: PoolId,
    /// Wakes the put threads: a segment was queued, or the log is closing. Used with the table's
    /// lock.
    pub(crate) work: Condvar,
    /// How fast the pool takes puts. Its lock is held only briefly.
    pub(crate) drain: Mutex<Drain>,
    store: RwLock<Option<Arc<dyn Store>>>,
    removed: AtomicBool,
}

impl Lane {
    /// Whether the pool was removed; its threads end then.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }
}

/// All pools.
#[derive(Default)]
pub(crate) struct Lanes(RwLock<BTreeMap<PoolId, Arc<Lane>>>);

impl Lanes {
    /// Sets the store of a pool. Returns the lane when it is new.
    pub(crate) fn set(&self, pool: PoolId, store: Option<Arc<dyn Store>>) -> Option<Arc<Lane>> {
        let mut lanes = self.0.write();
        if let Some(lane) = lanes.get(&pool) {
            *lane.store.write() = store;
            lane.work.notify_all();
            return None;
        }
        let lane = Arc::new(Lane {
            pool,
            work: Condvar::new(),
            drain: Mutex::default(),
            store: RwLock::new(store),
            removed: AtomicBool::new(false),
        });
        lanes.insert(pool, lane.clone());
        Some(lane)
    }

    /// Removes a pool; its threads end.
    pub(crate) fn remove(&self, pool: PoolId) {
        if let Some(lane) = self.0.write().remove(&pool) {
            lane.removed.store(true, Ordering::Release);
            lane.work.notify_all();
        }
    }

    pub(crate) fn get(&self, pool: PoolId) -> leeward_pool::Result<Arc<Lane>> {
        self.0.read().get(&pool).cloned().ok_or_else(|| away(pool))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Lane>> {
        self.0.read().values().cloned().collect()
    }

    /// The store of a pool; an error when it is away.
    pub(crate) fn store(&self, pool: PoolId) -> leeward_pool::Result<Arc<dyn Store>> {
        let store = self.0.read().get(&pool).and_then(|lane| lane.store.read().clone());
        store.ok_or_else(|| away(pool))
    }
}

fn away(pool: PoolId) -> leeward_pool::Error {
    io::Error::new(io::ErrorKind::NotConnected, format!("pool {pool} cannot be reached")).into()
}
