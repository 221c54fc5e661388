//! A store during whose puts other threads go on: between the moment at which an object is there and the one at which
//! anybody knows, there are commits, flushes of the tables and other files' fsyncs, as the seed chooses.

use leeward_env::disk::Space;
use leeward_env::disk::real::AlignedBuf;
use leeward_env::{Ctx, Env};
use leeward_pool::{ObjectId, Result, Store};
use leeward_volume::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// See the module's head.
pub struct BusyStore {
    inner: Arc<dyn Store>,
    env: Env,
    cell: OnceLock<Weak<Cell>>,
    is_busy: AtomicBool,
}

impl BusyStore {
    /// Around a store.
    pub fn new(env: &Env, inner: Arc<dyn Store>) -> Arc<BusyStore> {
        Arc::new(BusyStore {
            inner,
            env: env.clone(),
            cell: OnceLock::new(),
            is_busy: AtomicBool::new(false),
        })
    }

    /// From now on the cell's other threads go on.
    pub fn serve(&self, cell: &Arc<Cell>) {
        let _ = self.cell.set(Arc::downgrade(cell));
    }

    fn go_on_beside(&self) {
        let Some(cell) = self.cell.get().and_then(Weak::upgrade) else { return };
        if self.is_busy.swap(true, Ordering::Relaxed) {
            return;
        }
        for _ in 0..self.env.random() % 6 {
            let _ = cell.step_beside(self.env.random()); // it fails when the disk has died
        }
        self.is_busy.store(false, Ordering::Relaxed);
    }
}

impl Store for BusyStore {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.go_on_beside();
        self.inner.put(ctx, id, body)?;
        self.go_on_beside();
        Ok(())
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
