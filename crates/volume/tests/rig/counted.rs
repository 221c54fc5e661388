//! A cell whose engine counts what is read of it, and whose store tells of each put.

use super::watched::{Watch, WatchedKv};
use crate::rig::{Rig, engine};
use leeward_env::Env;
use leeward_env::disk::sim::SimDisk;
use leeward_meta::mem::MemKv;
use leeward_meta::{Batch, Kv};
use leeward_pool::{DirStore, HookedStore, Store};
use leeward_volume::{Cell, Config, first_batch};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

type Hook = Arc<dyn Fn(u64) + Send + Sync>;

/// What was counted.
#[derive(Default)]
pub struct Counts {
    pub scanned: AtomicUsize,
    pub longest_scan: AtomicUsize,
    pub got: AtomicUsize,
    puts: AtomicU64,
    largest_record: AtomicUsize,
    largest_batch: AtomicUsize,
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

    /// Bytes of the values in the largest commit.
    pub fn largest_batch(&self) -> usize {
        self.largest_batch.load(Ordering::Relaxed)
    }

    /// Of those that were committed.
    pub fn largest_record(&self) -> usize {
        self.largest_record.load(Ordering::Relaxed)
    }
}

impl Watch for Arc<Counts> {
    fn get(&self, _key: &[u8]) -> leeward_meta::Result<()> {
        self.got.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn scanned(&self, records: usize) {
        self.scanned.fetch_add(records, Ordering::Relaxed);
        self.longest_scan.fetch_max(records, Ordering::Relaxed);
    }
    fn append(&self, batch: &Batch) {
        for (_, value) in &batch.writes {
            let bytes = value.as_ref().map_or(0, |v| v.len());
            self.largest_record.fetch_max(bytes, Ordering::Relaxed);
        }
        let of_values = batch.writes.iter().filter_map(|(_, value)| value.as_ref());
        self.largest_batch.fetch_max(of_values.map(|value| value.len()).sum(), Ordering::Relaxed);
    }
}

impl Counts {
    fn at_put(&self) {
        let before = self.puts.fetch_add(1, Ordering::Relaxed);
        let hook = self.hook.lock().expect("not poisoned").clone();
        // so that a test of what never ends ends
        if let Some(hook) = hook.filter(|_| before < 1000) {
            hook(before + 1);
        }
    }
}

fn cell(env: &Env, disk: &SimDisk, store: Arc<dyn Store>, config: &Config) -> (Arc<Cell>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let inner = MemKv::open(env.clone(), Arc::new(disk.clone())).expect("the engine opens");
    let kv = Box::new(WatchedKv { inner, watch: counts.clone() });
    let of_puts = counts.clone();
    let store = HookedStore::new(store, move |_, put| {
        of_puts.at_put();
        put()
    });
    let store = Arc::new(store);
    (Cell::start(env, kv, store, config).expect("the cell opens"), counts)
}

/// A new cell.
pub fn busy() -> (Rig, Arc<Counts>) {
    let (env, disk) = (Env::sim(1), SimDisk::new(1));
    engine(&env, &disk).commit(&first_batch(&env, 0, 0)).expect("the first commit");
    let store: Arc<dyn Store> = Arc::new(DirStore::new(Arc::new(disk.clone()), "data"));
    let (cell, counts) = cell(&env, &disk, store, &Config::default());
    (Rig { env, disk, others: Vec::new(), cell }, counts)
}

/// The cell is opened again, so that nothing is in memory.
pub fn counted(rig: &mut Rig) -> Arc<Counts> {
    counted_with(rig, &Config::default())
}

/// [`counted`] with these settings.
pub fn counted_with(rig: &mut Rig, config: &Config) -> Arc<Counts> {
    rig.cell.close().expect("a clean close");
    let store: Arc<dyn Store> = Arc::new(DirStore::new(Arc::new(rig.disk.clone()), "data"));
    let (cell, counts) = cell(&rig.env, &rig.disk, store, config);
    rig.cell = cell;
    counts
}
