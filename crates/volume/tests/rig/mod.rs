//! A cell on a simulated disk with a simulated clock, called directly: what the tests of it share.

pub mod counted;
pub mod paths;
pub mod shelf;
pub mod watched;

use leeward_env::disk::Disk;
use leeward_env::disk::sim::SimDisk;
use leeward_env::{Ctx, Env};
use leeward_fs::{Fs, Op, Reply, Result};
use leeward_meta::Kv;
use leeward_meta::mem::MemKv;
use leeward_pool::DirStore;
use leeward_volume::admin::{self, Df, Failure, Finding, Request};
use leeward_volume::{Cell, Config, first_batch, first_batch_of_shard};
use std::sync::Arc;

pub struct Rig {
    pub env: Env,
    pub disk: SimDisk,
    /// The engines of the other shards.
    pub others: Vec<SimDisk>,
    pub cell: Arc<Cell>,
}

pub fn engine(env: &Env, disk: &SimDisk) -> MemKv {
    MemKv::open(env.clone(), Arc::new(disk.clone())).expect("the engine opens")
}

fn start(env: &Env, disk: &SimDisk, others: &[SimDisk]) -> Arc<Cell> {
    let store = Arc::new(DirStore::new(Arc::new(disk.clone()), "data"));
    let kvs = std::iter::once(disk).chain(others).map(|disk| Box::new(engine(env, disk)) as Box<dyn Kv>);
    Cell::start_shards(env, kvs.collect(), store, &Config::default()).expect("the cell opens")
}

/// How many shards cells have, where a test does not say: 1, if the environment does not say.
fn usual_shards() -> usize {
    std::env::var("LEE_TEST_SHARDS").map_or(1, |count| count.parse().expect("a number"))
}

/// Bytes that do not compress.
pub fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Flips a bit in the largest object of a store's disk.
pub fn flip_in_largest(disk: &SimDisk, offset: u64) {
    let dirs = disk.list_dirs("").expect("listed");
    let files = dirs.iter().flat_map(|dir| {
        disk.list(dir).expect("listed").into_iter().map(move |(name, len)| (format!("{dir}/{name}"), len))
    });
    let (path, _) = files.max_by_key(|(_, len)| *len).expect("an object");
    disk.flip_bit(&path, offset).expect("flipped");
}

impl Rig {
    pub fn new() -> Rig {
        Rig::of_shards(usual_shards())
    }

    pub fn of_shards(count: usize) -> Rig {
        let (env, disk) = (Env::sim(1), SimDisk::new(1));
        engine(&env, &disk).commit(&first_batch(&env, 0, 0)).expect("the first commit");
        let other = |shard: usize| {
            let disk = SimDisk::new(1 + shard as u64);
            engine(&env, &disk).commit(&first_batch_of_shard(shard)).expect("the first commit");
            disk
        };
        let others: Vec<SimDisk> = (1..count).map(other).collect();
        let cell = start(&env, &disk, &others);
        Rig { env, disk, others, cell }
    }

    pub fn reopen(&mut self) {
        self.cell.close().expect("a clean close");
        self.start();
    }

    /// Opens what is on the disk now; the cell that was open is let go as it is.
    pub fn start(&mut self) {
        self.cell = start(&self.env, &self.disk, &self.others);
    }

    /// The power fails, and the cell is opened again.
    pub fn power_cut(&mut self, seed: u64) {
        self.disk = self.disk.power_cut(seed);
        self.others.iter_mut().for_each(|disk| *disk = disk.power_cut(seed));
        self.start();
    }

    pub fn now_secs(&self) -> i64 {
        (self.env.wall() / 1_000_000_000) as i64
    }

    pub fn call(&self, op: Op<'_>) -> Result<Reply> {
        self.cell.call(&Ctx::system(), op)
    }

    pub fn ask_as<R: Request>(&self, ctx: &Ctx, request: &R) -> std::result::Result<R::Reply, Failure> {
        self.cell.admin_as(ctx, request, &mut |_| {})
    }

    pub fn ask<R: Request>(&self, request: &R) -> std::result::Result<R::Reply, Failure> {
        self.ask_as(&Ctx::user(0, 0), request)
    }

    #[track_caller]
    pub fn admin<R: Request>(&self, request: &R) -> R::Reply {
        self.ask(request).expect("done")
    }

    pub fn df(&self) -> Df {
        self.admin(&admin::DfShow)
    }

    #[track_caller]
    pub fn findings(&self) -> Vec<Finding> {
        self.admin(&admin::Fsck).findings
    }

    /// Does what the background threads have to do.
    #[track_caller]
    pub fn rest(&self) {
        let idle = (0..10_000).any(|_| !self.cell.step().expect("a step"));
        assert!(idle, "no rest");
    }

    #[track_caller]
    pub fn idle(&self) {
        self.rest();
        self.admin(&admin::SyncAll);
    }

    #[track_caller]
    pub fn clean(&self) {
        self.idle();
        assert_eq!(self.findings(), []);
    }
}
