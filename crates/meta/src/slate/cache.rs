//! Blocks, indexes and filters of tables that were read, in memory: one cache with one limit.

use async_trait::async_trait;
use quick_cache::Weighter;
use quick_cache::sync::Cache as QuickCache;
use slatedb::Error;
use slatedb::db_cache::{CachedEntry, CachedKey, DbCache};

/// Bytes that an entry takes in addition to its content.
const ENTRY_BYTES: usize = 200;
/// For the first guess of the number of entries.
const BLOCK_BYTES: u64 = 4096;

#[derive(Clone)]
struct Bytes;

impl Weighter<CachedKey, CachedEntry> for Bytes {
    fn weight(&self, _: &CachedKey, entry: &CachedEntry) -> u64 {
        (entry.size() + ENTRY_BYTES) as u64
    }
}

/// SlateDB's cache, kept in ours.
pub(super) struct Cache(QuickCache<CachedKey, CachedEntry, Bytes>);

impl Cache {
    pub(super) fn new(bytes: u64) -> Cache {
        Cache(QuickCache::with_weighter((bytes / BLOCK_BYTES) as usize, bytes, Bytes))
    }
}

type Found = Result<Option<CachedEntry>, Error>;

#[async_trait]
impl DbCache for Cache {
    async fn get_block(&self, key: &CachedKey) -> Found {
        Ok(self.0.get(key))
    }
    async fn get_index(&self, key: &CachedKey) -> Found {
        Ok(self.0.get(key))
    }
    async fn get_filter(&self, key: &CachedKey) -> Found {
        Ok(self.0.get(key))
    }
    async fn get_stats(&self, key: &CachedKey) -> Found {
        Ok(self.0.get(key))
    }
    async fn insert(&self, key: CachedKey, value: CachedEntry) {
        self.0.insert(key, value);
    }
    async fn remove(&self, key: &CachedKey) {
        self.0.remove(key);
    }
    fn entry_count(&self) -> u64 {
        self.0.len() as u64
    }
}
