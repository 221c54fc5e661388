//! An engine of which a test sees, or refuses, what is read and appended. A decorator.

use leeward_meta::mem::MemKv;
use leeward_meta::{Appended, Batch, InlineData, Kv, Moment, Result, Stats, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a test does beside the engine's calls.
pub trait Watch: Send + Sync {
    /// Before a record is read; an error is the answer.
    fn get(&self, _key: &[u8]) -> Result<()> {
        Ok(())
    }
    /// So many records were found by a scan.
    fn scanned(&self, _records: usize) {}
    /// Before a batch is appended.
    fn append(&self, _batch: &Batch) {}
}

/// The decorator.
pub struct WatchedKv<W> {
    pub inner: MemKv,
    pub watch: W,
}

impl<W: Watch> Kv for WatchedKv<W> {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.watch.get(key)?;
        self.inner.get(key)
    }
    fn scan(&self, from: &[u8], to: &[u8], limit: usize, reverse: bool) -> Result<Vec<(Arc<[u8]>, Value)>> {
        let page = self.inner.scan(from, to, limit, reverse)?;
        self.watch.scanned(page.len());
        Ok(page)
    }
    fn moment(&self) -> Box<dyn Moment + '_> {
        self.inner.moment()
    }
    fn append(&self, batch: &Batch) -> Result<Appended> {
        self.watch.append(batch);
        self.inner.append(batch)
    }
    fn insert(&self, appended: Appended, batch: &Batch) {
        self.inner.insert(appended, batch);
    }
    fn inline_segments(&self) -> Vec<u64> {
        self.inner.inline_segments()
    }
    fn inline_data(&self, of: &BTreeSet<u64>) -> Result<Vec<InlineData>> {
        self.inner.inline_data(of)
    }
    fn release_inline(&self, segment: u64) {
        self.inner.release_inline(segment);
    }
    fn maintain(&self) -> Result<bool> {
        self.inner.maintain()
    }
    fn idle(&self) {
        self.inner.idle();
    }
    fn reserve(&self, hold: bool) -> Result<()> {
        self.inner.reserve(hold)
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}
