//! A cell whose engine counts what is read of it, and whose store tells of each put.
#![allow(dead_code)] // not every test needs everything

use crate::rig::{Rig, engine};
use leeward_env::disk::Space;
use leeward_env::disk::sim::SimDisk;
use leeward_env::{Ctx, Env};
use leeward_meta::mem::MemKv;
use leeward_meta::{Appended, Batch, Kv, Moment, Ride, Stats, Value};
use leeward_pool::{AlignedBuf, DirStore, ObjectId, Store};
use leeward_volume::{Cell, Config, first_batch};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

type Hook = Arc<dyn Fn(u64) + Send + Sync>;

/// What was counted.
#[derive(Default)]
pub struct Counts {
    pub scanned: AtomicUsize,
    pub longest_scan: AtomicUsize,
    puts: AtomicU64,
    largest_record: AtomicUsize,
    hook: Mutex<Option<Hook>>,
}

impl Counts {
    /// From now on this is called in each put, with how many there were before.
    pub fn at_each_put(&self, hook: impl Fn(u64) + Send + Sync + 'static) {
        *self.hook.lock().expect("not poisoned") = Some(Arc::new(hook));
    }

    /// No more of that.
    pub fn quiet(&self) {
        *self.hook.lock().expect("not poisoned") = None;
    }

    pub fn puts(&self) -> u64 {
        self.puts.load(Ordering::Relaxed)
    }

    /// Of those that were committed.
    pub fn largest_record(&self) -> usize {
        self.largest_record.load(Ordering::Relaxed)
    }
}

struct CountedKv {
    inner: MemKv,
    counts: Arc<Counts>,
}

impl Kv for CountedKv {
    fn get(&self, key: &[u8]) -> leeward_meta::Result<Option<Value>> {
        self.inner.get(key)
    }
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
        reverse: bool,
    ) -> leeward_meta::Result<Vec<(Arc<[u8]>, Value)>> {
        let page = self.inner.scan(from, to, limit, reverse)?;
        self.counts.scanned.fetch_add(page.len(), Ordering::Relaxed);
        self.counts.longest_scan.fetch_max(page.len(), Ordering::Relaxed);
        Ok(page)
    }
    fn moment(&self) -> Box<dyn Moment + '_> {
        self.inner.moment()
    }
    fn append(&self, batch: &Batch) -> leeward_meta::Result<Appended> {
        for (_, value) in &batch.writes {
            let bytes = value.as_ref().map_or(0, |v| v.len());
            self.counts.largest_record.fetch_max(bytes, Ordering::Relaxed);
        }
        self.inner.append(batch)
    }
    fn insert(&self, appended: Appended, batch: &Batch) {
        self.inner.insert(appended, batch);
    }
    fn ride_segments(&self) -> Vec<u64> {
        self.inner.ride_segments()
    }
    fn rides(&self, of: &BTreeSet<u64>) -> leeward_meta::Result<Vec<Ride>> {
        self.inner.rides(of)
    }
    fn release_ride(&self, segment: u64) {
        self.inner.release_ride(segment);
    }
    fn maintain(&self) -> leeward_meta::Result<bool> {
        self.inner.maintain()
    }
    fn idle(&self) {
        self.inner.idle();
    }
    fn reserve(&self, hold: bool) -> leeward_meta::Result<()> {
        self.inner.reserve(hold)
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

struct CountedStore {
    inner: Arc<dyn Store>,
    counts: Arc<Counts>,
}

impl Store for CountedStore {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> leeward_pool::Result<()> {
        let before = self.counts.puts.fetch_add(1, Ordering::Relaxed);
        let hook = self.counts.hook.lock().expect("not poisoned").clone();
        // so that a test of what never ends ends
        if let Some(hook) = hook.filter(|_| before < 1000) {
            hook(before + 1);
        }
        self.inner.put(ctx, id, body)
    }
    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> leeward_pool::Result<()> {
        self.inner.get(ctx, id, offset, buf)
    }
    fn len(&self, ctx: &Ctx, id: ObjectId) -> leeward_pool::Result<u64> {
        self.inner.len(ctx, id)
    }
    fn settle(&self, ctx: &Ctx, id: ObjectId) -> leeward_pool::Result<()> {
        self.inner.settle(ctx, id)
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> leeward_pool::Result<()> {
        self.inner.delete(ctx, id)
    }
    fn list(&self, ctx: &Ctx) -> leeward_pool::Result<Vec<(ObjectId, u64)>> {
        self.inner.list(ctx)
    }
    fn space(&self) -> leeward_pool::Result<Space> {
        self.inner.space()
    }
}

fn cell(env: &Env, disk: &SimDisk, store: Arc<dyn Store>) -> (Arc<Cell>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let inner = MemKv::open(env.clone(), Arc::new(disk.clone())).expect("the engine opens");
    let kv = Box::new(CountedKv { inner, counts: counts.clone() });
    let store = Arc::new(CountedStore { inner: store, counts: counts.clone() });
    (Cell::start(env, kv, store, &Config::default()).expect("the cell opens"), counts)
}

/// A new cell.
pub fn busy() -> (Rig, Arc<Counts>) {
    let (env, disk) = (Env::sim(1), SimDisk::new(1));
    engine(&env, &disk).commit(&first_batch(&env, 0, 0)).expect("the first commit");
    let store: Arc<dyn Store> = Arc::new(DirStore::new(Arc::new(disk.clone()), "data"));
    let (cell, counts) = cell(&env, &disk, store);
    (Rig { env, disk, cell }, counts)
}

/// The cell is opened again, so that nothing is in memory.
pub fn counted(rig: &mut Rig) -> Arc<Counts> {
    rig.cell.close().expect("a clean close");
    let store: Arc<dyn Store> = Arc::new(DirStore::new(Arc::new(rig.disk.clone()), "data"));
    let (cell, counts) = cell(&rig.env, &rig.disk, store);
    rig.cell = cell;
    counts
}
