//! A store that counts its calls and how long they took, for reports.

use crate::{AlignedBuf, Error, ObjectId, Result, Store};
use leeward_env::disk::Space;
use leeward_env::histogram::{Durations, Histogram};
use leeward_env::{Ctx, Env};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the calls of the store below it. A missing object is not counted as an error: cleaning
/// may have replaced it after the caller looked up its name.
pub struct CountedStore {
    inner: Arc<dyn Store>,
    env: Env,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    put: Calls,
    get: Calls,
    delete: Calls,
}

#[derive(Default)]
struct Calls {
    took: Durations,
    bytes: AtomicU64,
    errors: AtomicU64,
}

/// The calls of one kind that a store got since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFigures {
    /// How long the calls took, failed ones included.
    pub took: Histogram,
    /// Bytes moved by the calls that succeeded.
    pub bytes: u64,
    /// Calls that failed.
    pub errors: u64,
}

/// The calls that a store got since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFigures {
    /// Objects stored.
    pub put: CallFigures,
    /// Ranges read.
    pub get: CallFigures,
    /// Objects deleted.
    pub delete: CallFigures,
}

impl StoreFigures {
    /// Adds those of another store.
    pub fn add(&mut self, other: &StoreFigures) {
        self.put.add(&other.put);
        self.get.add(&other.get);
        self.delete.add(&other.delete);
    }
}

impl CallFigures {
    fn add(&mut self, other: &CallFigures) {
        self.took.add_all(&other.took);
        self.bytes += other.bytes;
        self.errors += other.errors;
    }
}

impl Calls {
    fn figures(&self) -> CallFigures {
        CallFigures {
            took: self.took.histogram(),
            bytes: self.bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
        }
    }
}

impl CountedStore {
    /// Counts the calls of `inner` from now on.
    pub fn new(env: &Env, inner: Arc<dyn Store>) -> CountedStore {
        CountedStore { inner, env: env.clone(), counts: Arc::default() }
    }

    /// A store that counts the calls of `inner` in the same figures as this one.
    pub fn beside(&self, inner: Arc<dyn Store>) -> CountedStore {
        CountedStore { inner, env: self.env.clone(), counts: self.counts.clone() }
    }

    /// The counts so far.
    pub fn figures(&self) -> StoreFigures {
        let c = &*self.counts;
        StoreFigures { put: c.put.figures(), get: c.get.figures(), delete: c.delete.figures() }
    }

    fn count(&self, calls: &Calls, bytes: usize, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let begun = self.env.now();
        let result = call();
        calls.took.add(self.env.now().saturating_sub(begun));
        match &result {
            Ok(()) => calls.bytes.fetch_add(bytes as u64, Ordering::Relaxed),
            Err(Error::NotFound(_)) => 0,
            Err(_) => calls.errors.fetch_add(1, Ordering::Relaxed),
        };
        result
    }
}

impl Store for CountedStore {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.count(&self.counts.put, body.len(), || self.inner.put(ctx, id, body))
    }

    fn replace(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.count(&self.counts.put, body.len(), || self.inner.replace(ctx, id, body))
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.count(&self.counts.get, buf.len(), || self.inner.get(ctx, id, offset, buf))
    }

    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        self.inner.len(ctx, id)
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.inner.settle(ctx, id)
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.count(&self.counts.delete, 0, || self.inner.delete(ctx, id))
    }

    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        self.inner.list(ctx)
    }

    fn is_pressed(&self) -> bool {
        self.inner.is_pressed()
    }

    fn is_stuck(&self) -> bool {
        self.inner.is_stuck()
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }
}
