//! Cache of verified data from stores: units (decompressed) and the layouts of objects. One limit
//! in bytes for both. The policy is scan-resistant: an entry used once leaves before one used
//! twice.

use crate::Object;
use crate::reader::Layout;
use quick_cache::sync::{Cache as Sync, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use rustc_hash::FxHasher;
use std::hash::BuildHasherDefault;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A shard must hold some units, so that the policy has a choice.
const SHARD_BYTES_MIN: usize = 4 << 20;
const SHARDS_MAX: usize = 16;
/// Share for entries that were used repeatedly. The rest must hold what was fetched ahead for a
/// reader of a scattered file.
const HOT_PART: f64 = 0.75;
/// Bookkeeping of the cache itself, per entry.
const ENTRY_BYTES: u64 = 64;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Layout(Object),
    Unit(Object, u32),
}

#[derive(Clone)]
enum Value {
    Layout(Arc<Layout>),
    Unit(Arc<CachedUnit>),
}

/// A unit, decompressed.
pub(crate) struct CachedUnit {
    bytes: Box<[u8]>,
    /// The unit to fetch when this one is used; 0: none.
    ahead: AtomicU32,
}

impl CachedUnit {
    pub(crate) fn new(bytes: Box<[u8]>) -> CachedUnit {
        CachedUnit { bytes, ahead: AtomicU32::new(0) }
    }

    /// When this unit is used, fetch unit `n`.
    pub(crate) fn set_ahead(&self, n: usize) {
        self.ahead.store(n as u32, Ordering::Relaxed);
    }

    /// The unit to fetch now that this one is used; returned once.
    pub(crate) fn take_ahead(&self) -> Option<usize> {
        let wanted = self.ahead.load(Ordering::Relaxed) != 0;
        let n = if wanted { self.ahead.swap(0, Ordering::Relaxed) } else { 0 };
        (n != 0).then_some(n as usize)
    }
}

impl Deref for CachedUnit {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Value> for Bytes {
    fn weight(&self, _: &Key, value: &Value) -> u64 {
        let bytes = match value {
            Value::Layout(l) => l.memory_bytes(),
            Value::Unit(u) => u.len(),
        };
        bytes as u64 + ENTRY_BYTES
    }
}

/// Counts of the cache since the data log was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Units that readers wanted and the cache had.
    pub hits: u64,
    /// Units that readers wanted and that had to be fetched.
    pub misses: u64,
    /// Bytes in the cache.
    pub bytes: u64,
    /// Most bytes in the cache.
    pub bytes_max: u64,
}

impl CacheFigures {
    /// Adds those of another cache.
    pub fn add(&mut self, other: &CacheFigures) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.bytes += other.bytes;
        self.bytes_max += other.bytes_max;
    }
}

type Hasher = BuildHasherDefault<FxHasher>;

pub(crate) struct Cache {
    entries: Sync<Key, Value, Bytes, Hasher>,
    /// Units that readers wanted and the cache had.
    hits: AtomicU64,
    /// Units that readers wanted and that had to be fetched.
    misses: AtomicU64,
}

impl Cache {
    pub(crate) fn new(bytes: usize) -> Cache {
        let options = OptionsBuilder::new()
            .shards((bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX))
            .estimated_items_capacity((bytes / crate::format::UNIT_BYTES).max(16))
            .weight_capacity(bytes as u64)
            .hot_allocation(HOT_PART)
            .build()
            .expect("capacity and number of items are given");
        let entries = Sync::with_options(options, Bytes, Hasher::default(), DefaultLifecycle::default());
        Cache { entries, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    pub(crate) fn layout(&self, object: Object) -> Option<Arc<Layout>> {
        match self.entries.get(&Key::Layout(object)) {
            Some(Value::Layout(l)) => Some(l),
            _ => None,
        }
    }

    pub(crate) fn unit(&self, object: Object, n: usize) -> Option<Arc<CachedUnit>> {
        match self.entries.get(&Key::Unit(object, n as u32)) {
            Some(Value::Unit(u)) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                Some(u)
            }
            _ => None,
        }
    }

    /// Counts units that were fetched because a reader wanted them.
    pub(crate) fn missed(&self, units: usize) {
        self.misses.fetch_add(units as u64, Ordering::Relaxed);
    }

    pub(crate) fn figures(&self) -> CacheFigures {
        CacheFigures {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes: self.entries.weight(),
            bytes_max: self.entries.capacity(),
        }
    }

    /// Whether the cache has a unit; does not count as a use.
    pub(crate) fn has_unit(&self, object: Object, n: usize) -> bool {
        self.entries.contains_key(&Key::Unit(object, n as u32))
    }

    pub(crate) fn layout_insert(&self, layout: Arc<Layout>) {
        self.entries.insert(Key::Layout(layout.object()), Value::Layout(layout));
    }

    pub(crate) fn unit_insert(&self, object: Object, n: usize, unit: Arc<CachedUnit>) {
        self.entries.insert(Key::Unit(object, n as u32), Value::Unit(unit));
    }

    /// Drops an object's layout; its units leave in time.
    pub(crate) fn forget(&self, object: Object) {
        self.entries.remove(&Key::Layout(object));
    }
}
