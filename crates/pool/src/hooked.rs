//! A store that runs a test's code around each put, for tests of the layers above. A decorator.

use crate::{AlignedBuf, ObjectId, Result, Store};
use leeward_env::Ctx;
use leeward_env::disk::Space;
use std::sync::Arc;

/// Gets the put to run, runs it or not, and does whatever else a test wants.
type AroundPut = dyn Fn(ObjectId, &mut dyn FnMut() -> Result<()>) -> Result<()> + Send + Sync;

/// A store whose puts go through a hook.
pub struct HookedStore {
    inner: Arc<dyn Store>,
    around_put: Box<AroundPut>,
}

impl HookedStore {
    /// Calls `around_put` in place of each put, with the object's name and the put itself.
    pub fn new(
        inner: Arc<dyn Store>,
        around_put: impl Fn(ObjectId, &mut dyn FnMut() -> Result<()>) -> Result<()> + Send + Sync + 'static,
    ) -> HookedStore {
        HookedStore { inner, around_put: Box::new(around_put) }
    }
}

impl Store for HookedStore {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        (self.around_put)(id, &mut || self.inner.put(ctx, id, body))
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.get(ctx, id, offset, buf)
    }

    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        self.inner.len(ctx, id)
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.inner.settle(ctx, id)
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.inner.delete(ctx, id)
    }

    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        self.inner.list(ctx)
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }
}
