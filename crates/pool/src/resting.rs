//! A store after whose calls background work rests while users make requests. For a pool of several
//! stores: its gates are called by the pool's threads, which must not rest.

use crate::{AlignedBuf, ObjectId, Result, Store};
use leeward_env::disk::Space;
use leeward_env::{Activity, Ctx, Env};
use std::sync::Arc;

/// A decorator that rests after calls of background work.
pub struct RestingStore {
    inner: Arc<dyn Store>,
    env: Env,
    activity: Arc<Activity>,
}

impl RestingStore {
    /// Rests after calls of `inner` by background work.
    pub fn new(env: &Env, inner: Arc<dyn Store>, activity: Arc<Activity>) -> RestingStore {
        RestingStore { inner, env: env.clone(), activity }
    }

    fn rested<T>(&self, ctx: &Ctx, call: impl FnOnce() -> T) -> T {
        let begun = self.env.now();
        let result = call();
        if ctx.flow.work().is_some() {
            self.activity.rest(&self.env, ctx.class, self.env.now().saturating_sub(begun));
        }
        result
    }
}

impl Store for RestingStore {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.rested(ctx, || self.inner.put(ctx, id, body))
    }

    fn replace(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.rested(ctx, || self.inner.replace(ctx, id, body))
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.rested(ctx, || self.inner.get(ctx, id, offset, buf))
    }

    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        self.inner.len(ctx, id)
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.inner.settle(ctx, id)
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.rested(ctx, || self.inner.delete(ctx, id))
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
