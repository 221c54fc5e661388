//! A cell on a simulated disk, beside which other threads go on, as a target of the model.

mod busy;
mod events;

use busy::Others;
use leeward_env::disk::Disk;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_env::{Ctx, Env};
use leeward_fs::{Fs, NodeId, Op, Reply, Result, Usage};
use leeward_meta::mem::MemKv;
use leeward_meta::{Batch, EngineOptions, Kv};
use leeward_model::content::Allocation;
use leeward_model::crash::{CrashPoint, CrashTarget, Death, Moment};
use leeward_model::faults::{Ending, FaultTarget};
use leeward_model::harness::Target;
use leeward_model::step::Path;
use leeward_pool::{Chance, DirStore, FaultyStore, Store, StoreFault};
use leeward_volume::admin;
use leeward_volume::{Cell, Config, Opener, first_batch};
use std::sync::Arc;
use std::time::Duration;

/// A cell and what it stands on.
pub struct SimCell {
    pub env: Env,
    pub disk: SimDisk,
    /// Objects of the first pool.
    store: Arc<FaultyStore>,
    pub cell: Arc<Cell>,
}

/// A small journal of small files: its files come and go within some dozens of steps.
fn open_engine(env: &Env, disk: &SimDisk) -> std::result::Result<Box<dyn Kv>, String> {
    let mut options =
        EngineOptions { memtable_bytes: 16 << 10, journal_bytes: 96 << 10, ..EngineOptions::default() };
    options.journal.file_bytes = 32 << 10;
    let kv = MemKv::open_with(env.clone(), Arc::new(disk.clone()), options);
    Ok(Box::new(kv.map_err(|e| e.to_string())?))
}

fn engine(env: &Env, disk: &SimDisk) -> Box<dyn Kv> {
    open_engine(env, disk).expect("the engine opens")
}

fn store_on(disk: &SimDisk) -> Arc<FaultyStore> {
    Arc::new(FaultyStore::new(Arc::new(DirStore::new(Arc::new(disk.clone()), "data"))))
}

fn start(env: &Env, disk: &SimDisk, store: &Arc<FaultyStore>) -> std::result::Result<Arc<Cell>, String> {
    let on: Arc<dyn Disk> = Arc::new(disk.clone());
    let kv = open_engine(env, disk)?;
    let (others, store) = Others::beside(env, store.clone());
    let with = ("0123456789abcdef0123456789abcdef", Arc::new(Directories(on)) as Arc<dyn Opener>);
    let cell = Cell::start_with(env, kv, store, &Config::default(), with).map_err(|e| e.to_string())?;
    others.serve(&cell);
    Ok(cell)
}

/// Stores are directories of the same disk.
struct Directories(Arc<dyn Disk>);

impl Opener for Directories {
    fn open(&self, url: &str) -> leeward_pool::Result<Arc<dyn Store>> {
        Ok(Arc::new(DirStore::new(self.0.clone(), url)))
    }
}

/// Whatever is done counts for a project without limits: fsck compares that with what is there.
fn put_into_project(cell: &Cell) {
    let create = admin::GroupCreate { name: "a:all".into(), owner: None, gid: None, by: None };
    cell.admin(&create, &mut |_| {}).expect("a group");
    let project = admin::ProjectCreate {
        name: "all".into(),
        at: "/".into(),
        owner: "a:all".into(),
        budget: admin::Budget::default(),
        pool: None,
        counts_snapshots: None,
    };
    cell.admin(&project, &mut |_| {}).expect("a project");
    let into = admin::ProjectMove { volume: "root".into(), to: Some("all".into()) };
    cell.admin(&into, &mut |_| {}).expect("in the project");
}

impl SimCell {
    pub fn new(seed: u64) -> SimCell {
        SimCell::owned_by(seed, 0)
    }

    /// A cell whose root belongs to this user, who may take snapshots then.
    pub fn owned_by(seed: u64, uid: u32) -> SimCell {
        let (env, disk) = (Env::sim(seed), SimDisk::new(seed));
        let first: Batch = first_batch(&env, uid, uid);
        engine(&env, &disk).commit(&first).expect("the first commit");
        let store = store_on(&disk);
        let cell = start(&env, &disk, &store).expect("a new cell opens");
        if seed % 2 == 1 {
            put_into_project(&cell);
        }
        SimCell { env, disk, store, cell }
    }

    /// A cell with a second pool.
    pub fn with_pools(seed: u64) -> SimCell {
        let new = SimCell::owned_by(seed, owner(seed));
        let (layout, stores) = ("single".into(), vec!["two".into()]);
        let request = admin::PoolCreate { name: "two".into(), layout, stores, force: false };
        new.cell.admin(&request, &mut |_| {}).expect("a pool");
        new
    }
}

impl Target for SimCell {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        self.cell.call(ctx, op)
    }

    fn usage(&self, path: &Path, _node: NodeId) -> Option<Usage> {
        if std::env::var("MODEL_USAGE").is_ok_and(|v| v == "no") {
            return None;
        }
        let path = text_of(path)?;
        let usage = self.cell.admin(&admin::UsageShow { path: path.clone() }, &mut |_| {}).expect("answered");
        if self.has_snapshots() {
            let q = self.cell.admin(&admin::QuotaShow { path: path.clone() }, &mut |_| {}).expect(&path);
            let used = (usage.bytes, usage.files + usage.dirs);
            assert_eq!((q.used_bytes, q.used_files), used, "what counts for the quota of {path}");
        }
        Some(usage)
    }

    fn quota(&self, path: &Path, on: bool) {
        let Some(path) = text_of(path) else { return };
        let (bytes, files) = if on { (1 << 50, 1 << 30) } else { (0, 0) };
        let request = admin::QuotaSet { path, bytes: Some(bytes), files: Some(files) };
        // refused when the disk has died
        let _ = self.cell.admin(&request, &mut |_| {});
    }

    fn move_data(&self, pool: u8) {
        let to = ["default", "two"][usize::from(pool % 2)].into();
        // refused when the disk has died
        let _ = self.cell.admin(&admin::VolumeMoveData { name: "root".into(), to, wait: false }, &mut |_| {});
        let _ = self.cell.step();
    }

    fn advance(&self, ms: u32) {
        self.env.advance(Duration::from_millis(ms.into()));
        if self.env.random().is_multiple_of(2) {
            let _ = self.cell.step();
        }
        // what threads do comes in any order
        for _ in 0..self.env.random() % 12 {
            let _ = self.cell.step_one(self.env.random());
        }
    }

    fn settle(&self) -> std::result::Result<(), String> {
        for _ in 0..10_000 {
            if !self.cell.step().map_err(|e| e.to_string())? {
                return Ok(());
            }
        }
        Err("there is always something left to do".into())
    }

    fn nothing_of_snapshots(&self) -> std::result::Result<(), String> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.kill());
        let kv = MemKv::open(self.env.clone(), disk).map_err(|e| e.to_string())?;
        let all = kv.scan(&[], &[0xff; 64], usize::MAX / 2, false).map_err(|e| e.to_string())?;
        // see docs/FORMAT.md: history and deadlists are behind the volumes, then tables of
        // snapshots and tallies
        let table = |key: &[u8]| u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
        let left = |t: u32| (1 << 24..0xffff_ff00).contains(&t) || (0xffff_ff06..=0xffff_ff07).contains(&t);
        match all.iter().find(|(key, _)| left(table(key))) {
            None => Ok(()),
            Some((key, _)) => Err(format!("no snapshot is left, but a record {key:02x?}")),
        }
    }

    fn check(&self) -> std::result::Result<(), String> {
        match self.cell.admin(&admin::Fsck, &mut |_| {}) {
            Ok(report) if report.findings.is_empty() => events::compare(&self.cell),
            other => Err(format!("fsck: {other:?}")),
        }
    }

    fn reopen(&mut self) -> std::result::Result<(), String> {
        self.cell.close().map_err(|e| e.to_string())?;
        self.cell = start(&self.env, &self.disk, &self.store)?;
        self.check()
    }

    fn allocation(&self) -> Allocation {
        Allocation::Units(4096)
    }
}

/// A path as operators write it, where it can be written.
fn text_of(path: &Path) -> Option<String> {
    let names: Option<Vec<&str>> = path.0.iter().map(|n| std::str::from_utf8(n).ok()).collect();
    Some(format!("/{}", names?.join("/")))
}

/// What the disk holds after this death.
fn die(disk: &SimDisk, point: &CrashPoint) -> SimDisk {
    match point.death {
        Death::PowerCut => disk.power_cut(point.seed),
        Death::Kill => disk.kill(),
    }
}

impl CrashTarget for SimCell {
    fn mutations(&self) -> u64 {
        self.disk.mutations()
    }

    fn arm(&self, point: &CrashPoint) {
        let fault = match point.moment {
            Moment::Before => Fault::CrashBefore,
            Moment::After => Fault::CrashAfter,
        };
        self.disk.fail_at(point.mutation, fault);
    }

    fn crashed(&self) -> bool {
        self.disk.list("").is_err()
    }

    fn recover(self, point: &CrashPoint) -> std::result::Result<SimCell, String> {
        drop(self.cell);
        let disk = die(&self.disk, point);
        // recovery itself dies, too, at one of its first mutations or right after it
        disk.fail_at(disk.mutations() + point.mutation % 16, Fault::CrashBefore);
        match start(&self.env, &disk, &store_on(&disk)) {
            Err(e) if disk.list("").is_ok() => return Err(e),
            died => drop(died),
        }
        let disk = die(&disk, point);
        let store = store_on(&disk);
        let cell = start(&self.env, &disk, &store)?;
        Ok(SimCell { env: self.env, disk, store, cell })
    }
}

/// One call below a cell, and how it fails.
#[derive(Clone, Copy, Debug)]
pub enum Failing {
    /// Of those that change the disk, after so many others.
    Mutation(u64, Fault),
    /// Of those that read the disk, after so many others.
    Read(u64),
    /// The next one of the store that can.
    Store(StoreFault),
}

impl Failing {
    fn arm(self, disk: &SimDisk, store: &FaultyStore) {
        match self {
            Failing::Mutation(after, fault) => disk.fail_at(disk.mutations() + after, fault),
            Failing::Read(after) => disk.fail_read_at(disk.reads() + after),
            Failing::Store(fault) => store.set(fault, Chance::Next(1)),
        }
    }
}

impl FaultTarget for SimCell {
    type Fault = Failing;

    fn fail(&self, fault: &Failing) {
        fault.arm(&self.disk, &self.store);
    }

    fn heal(&self) {
        self.disk.heal();
        self.store.heal();
    }

    fn end(self, ending: Ending, opening: Option<&Failing>) -> std::result::Result<(SimCell, bool), String> {
        let said = ending == Ending::Close && self.cell.close().is_ok();
        drop(self.cell);
        let life = |disk: &SimDisk| match ending {
            Ending::PowerCut => disk.power_cut(self.env.random()),
            Ending::Kill => disk.kill(),
            Ending::Close => disk.clone(),
        };
        let mut disk = life(&self.disk);
        if let Some(fault) = opening {
            let store = store_on(&disk);
            fault.arm(&disk, &store);
            drop(start(&self.env, &disk, &store));
            disk.heal();
            disk = life(&disk);
        }
        // what was asked for in the life before and had no answer comes now, or has come
        let store = if ending == Ending::Close { self.store } else { store_on(&disk) };
        let cell = start(&self.env, &disk, &store)?;
        store.land(&Ctx::user(0, 0));
        Ok((SimCell { env: self.env, disk, store, cell }, said))
    }
}

pub fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let text = std::env::var("MODEL_SEEDS").unwrap_or_default();
    match text.split_once("..").map(|(a, b)| (a.parse(), b.parse())) {
        Some((Ok(a), Ok(b))) => a..b,
        _ => default,
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

pub fn steps(default: usize) -> usize {
    number("MODEL_STEPS").map_or(default, |n| n as usize)
}

pub fn stride(default: u64) -> u64 {
    number("MODEL_STRIDE").unwrap_or(default)
}

/// Whose the root of the cell with this seed is.
pub fn owner(seed: u64) -> u32 {
    [0, 1000][(seed % 2) as usize]
}
