//! Records in memory: those that the running transaction has changed, and a cache of clean ones.

use crate::format::keys::{EpochPair, Key};
use crate::state::overlay::Overlay;
use leeward_env::Flow;
use leeward_meta::{InlineData, Value};
use quick_cache::sync::Cache as QuickCache;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::sync::Arc;

/// Records changed since the last commit was frozen.
#[derive(Default)]
pub struct Running {
    /// Changed records, by key.
    pub records: Overlay,
    /// Inline data for the commit.
    pub inline_data: Vec<InlineData>,
    /// Records that died and are not on their deadlists yet, see
    /// [`State::list_the_dead`](crate::state::State::list_the_dead).
    pub died: Vec<(EpochPair, Key)>,
    /// How many records each flow changed.
    pub by_flow: FxHashMap<Flow, usize>,
}

/// Clean records by key; `None`: known to be absent.
pub struct RecordCache(QuickCache<Key, Option<Value>, Weigh, FxBuildHasher>);

#[derive(Clone)]
struct Weigh;

impl quick_cache::Weighter<Key, Option<Value>> for Weigh {
    fn weight(&self, key: &Key, value: &Option<Value>) -> u64 {
        // two allocations with their headers, and the cache's own entry
        (key.len() + value.as_ref().map_or(0, |v| v.len()) + 112) as u64
    }
}

impl RecordCache {
    /// At most about `bytes` of memory.
    pub fn new(bytes: u64) -> RecordCache {
        let items = (bytes / 256).max(1024) as usize;
        RecordCache(QuickCache::with(items, bytes, Weigh, FxBuildHasher, Default::default()))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Value>> {
        self.0.get(key)
    }

    pub(crate) fn forget(&self, key: &[u8]) {
        self.0.remove(key);
    }

    /// Bytes in it, and the limit.
    pub fn bytes(&self) -> (u64, u64) {
        (self.0.weight(), self.0.capacity())
    }

    /// Keeps a clean record.
    pub fn insert(&self, key: Key, value: Option<Value>) {
        self.0.insert(key, value);
    }
}

/// A frozen transaction's records.
pub type Frozen = Arc<Overlay>;
