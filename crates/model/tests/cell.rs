//! A real cell on a simulated disk against the model: random steps, and a crash at every mutation of the disk.
//!
//! `MODEL_SEEDS=FROM..TO` chooses the seeds, `MODEL_STEPS` how many steps,
//! `MODEL_STRIDE` at every how many mutations a crash; `MODEL_USAGE=no` leaves recursive statistics out,
//! `MODEL_TRACE=1` prints the steps, for a run that hangs.
#![allow(missing_docs)]

mod busy;

use busy::BusyStore;
use leeward_env::disk::Disk;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_env::{Ctx, Env};
use leeward_meta::mem::MemKv;
use leeward_meta::{Batch, EngineOptions, Kv};
use leeward_model::Profile;
use leeward_model::content::Allocation;
use leeward_model::crash::{CrashOptions, CrashPoint, CrashTarget, Death, Moment, crash_everywhere};
use leeward_model::harness::{Options, Target, replay, run};
use leeward_model::step::Path;
use leeward_pool::{DirStore, Store};
use leeward_volume::admin::{Reply as AdminReply, Request, Usage};
use leeward_volume::{Cell, Config, NodeId, Op, Opener, Reply, Result, first_batch};
use std::sync::Arc;
use std::time::Duration;

struct SimCell {
    env: Env,
    disk: SimDisk,
    cell: Arc<Cell>,
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

fn start(env: &Env, disk: &SimDisk) -> std::result::Result<Arc<Cell>, String> {
    let on: Arc<dyn Disk> = Arc::new(disk.clone());
    let kv = open_engine(env, disk)?;
    let store = BusyStore::new(env, Arc::new(DirStore::new(on.clone(), "data")));
    let with = ("0123456789abcdef0123456789abcdef", Arc::new(Directories(on)) as Arc<dyn Opener>);
    let cell =
        Cell::start_with(env, kv, store.clone(), &Config::default(), with).map_err(|e| e.to_string())?;
    store.serve(&cell);
    Ok(cell)
}

/// Stores are directories of the same disk.
struct Directories(Arc<dyn Disk>);

impl Opener for Directories {
    fn open(&self, url: &str) -> leeward_pool::Result<Arc<dyn Store>> {
        Ok(Arc::new(DirStore::new(self.0.clone(), url)))
    }
}

impl SimCell {
    fn new(seed: u64) -> SimCell {
        SimCell::owned_by(seed, 0)
    }

    /// A cell whose root belongs to this user, who may take snapshots then.
    fn owned_by(seed: u64, uid: u32) -> SimCell {
        let (env, disk) = (Env::sim(seed), SimDisk::new(seed));
        let first: Batch = first_batch(&env, uid, uid);
        engine(&env, &disk).commit(&first).expect("the first commit");
        let cell = start(&env, &disk).expect("a new cell opens");
        SimCell { env, disk, cell }
    }

    /// A cell with a second pool.
    fn with_pools(seed: u64) -> SimCell {
        let new = SimCell::owned_by(seed, owner(seed));
        let (layout, stores) = ("single".into(), vec!["two".into()]);
        let request = Request::PoolCreate { name: "two".into(), layout, stores, force: false };
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
        let usage = match self.cell.admin(&Request::Usage { path: path.clone() }, &mut |_| {}) {
            Ok(AdminReply::Usage(usage)) => usage,
            other => panic!("usage of {path}: {other:?}"),
        };
        if self.has_snapshots() {
            match self.cell.admin(&Request::QuotaShow { path: path.clone() }, &mut |_| {}) {
                Ok(AdminReply::Quota(q)) => {
                    let used = (usage.bytes, usage.files + usage.dirs);
                    assert_eq!((q.used_bytes, q.used_files), used, "what counts for the quota of {path}");
                }
                other => panic!("quota of {path}: {other:?}"),
            }
        }
        Some(usage)
    }

    fn quota(&self, path: &Path, on: bool) {
        let Some(path) = text_of(path) else { return };
        let (bytes, files) = if on { (1 << 50, 1 << 30) } else { (0, 0) };
        let request = Request::QuotaSet { path, bytes: Some(bytes), files: Some(files) };
        // refused when the disk has died
        let _ = self.cell.admin(&request, &mut |_| {});
    }

    fn move_data(&self, pool: u8) {
        let to = ["default", "two"][usize::from(pool % 2)].into();
        // refused when the disk has died
        let _ =
            self.cell.admin(&Request::VolumeMoveData { name: "root".into(), to, wait: false }, &mut |_| {});
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
        // see docs/FORMAT.md: history and deadlists are behind the volumes, then tables of snapshots and tallies
        let table = |key: &[u8]| u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
        let left = |t: u32| (1 << 24..0xffff_ff00).contains(&t) || (0xffff_ff06..=0xffff_ff07).contains(&t);
        match all.iter().find(|(key, _)| left(table(key))) {
            None => Ok(()),
            Some((key, _)) => Err(format!("no snapshot is left, but a record {key:02x?}")),
        }
    }

    fn check(&self) -> std::result::Result<(), String> {
        match self.cell.admin(&Request::Fsck, &mut |_| {}) {
            Ok(AdminReply::Fsck(report)) if report.findings.is_empty() => Ok(()),
            other => Err(format!("fsck: {other:?}")),
        }
    }

    fn reopen(&mut self) -> std::result::Result<(), String> {
        self.cell.close().map_err(|e| e.to_string())?;
        self.cell = start(&self.env, &self.disk)?;
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
        match start(&self.env, &disk) {
            Err(e) if disk.list("").is_ok() => return Err(e),
            died => drop(died),
        }
        let disk = die(&disk, point);
        let cell = start(&self.env, &disk)?;
        Ok(SimCell { env: self.env, disk, cell })
    }
}

fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let text = std::env::var("MODEL_SEEDS").unwrap_or_default();
    match text.split_once("..").map(|(a, b)| (a.parse(), b.parse())) {
        Some((Ok(a), Ok(b))) => a..b,
        _ => default,
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn steps(default: usize) -> usize {
    number("MODEL_STEPS").map_or(default, |n| n as usize)
}

fn stride(default: u64) -> u64 {
    number("MODEL_STRIDE").unwrap_or(default)
}

#[test]
fn random_steps_agree_with_the_model() {
    for seed in seeds(0..8) {
        let trace = std::env::var("MODEL_TRACE").is_ok();
        run(|| SimCell::new(seed), &Options { trace, ..Options::new(seed, steps(2000)) });
    }
}

#[test]
fn a_crash_anywhere_leaves_an_allowed_state() {
    for seed in seeds(0..6) {
        let survived =
            crash_everywhere(|| SimCell::new(seed), &CrashOptions::new(seed, steps(200), stride(5)));
        println!("seed {seed}: {survived} crashes survived");
    }
}

fn owner(seed: u64) -> u32 {
    [0, 1000][(seed % 2) as usize]
}

/// As long as `MODEL_SEEDS` and `MODEL_STEPS` say.
#[test]
fn random_steps_with_snapshots_agree_with_the_model() {
    for seed in seeds(100..106) {
        let trace = std::env::var("MODEL_TRACE").is_ok();
        let profile = Profile::default().with_snapshots(20, 8);
        let options = Options { trace, profile, compare_every: 100, ..Options::new(seed, steps(1500)) };
        run(|| SimCell::owned_by(seed, owner(seed)), &options);
    }
}

#[test]
fn a_crash_anywhere_leaves_snapshots_whole_or_not_there() {
    for seed in seeds(100..104) {
        let profile = Profile::crash().with_snapshots(20, 3);
        let options = CrashOptions { profile, ..CrashOptions::new(seed, steps(150), stride(7)) };
        let survived = crash_everywhere(|| SimCell::owned_by(seed, owner(seed)), &options);
        println!("seed {seed}: {survived} crashes survived");
    }
}

#[test]
fn random_steps_between_two_pools_agree_with_the_model() {
    for seed in seeds(200..206) {
        let trace = std::env::var("MODEL_TRACE").is_ok();
        let profile = Profile::default().with_snapshots(8, 4).with_moves(6);
        let options = Options { trace, profile, compare_every: 100, ..Options::new(seed, steps(1500)) };
        run(|| SimCell::with_pools(seed), &options);
    }
}

#[test]
fn a_crash_anywhere_between_two_pools_loses_nothing() {
    for seed in seeds(200..204) {
        let profile = Profile::crash().with_snapshots(8, 2).with_moves(12);
        let options = CrashOptions { profile, ..CrashOptions::new(seed, steps(150), stride(5)) };
        let survived = crash_everywhere(|| SimCell::with_pools(seed), &options);
        println!("seed {seed}: {survived} crashes survived");
    }
}

/// Data that died before it was stored, of two flows in turns: the queue waits for one segment after the other has vanished.
#[test]
fn a_segment_that_vanished_early_holds_nothing_up() {
    let steps = "make /e file 644 0
u1000 write /e 446464 1016459 295
truncate /e 167936
write /e 0 351848 375
u1000 write /e 536576 222374 2
u1000 truncate /e 188947
reopen";
    replay(|| SimCell::new(0), steps);
}

/// Data of two flows that touches, and is not in records yet.
#[test]
fn between_two_pieces_that_touch_is_no_hole() {
    let steps = "make /a file 644 77
u1000 write /a 1019639 747072 174218
write /a 1137991 103897 65536
seek /a 1112701 hole";
    replay(|| SimCell::new(0), steps);
}

#[test]
fn a_removed_directory_keeps_its_modification_time() {
    replay(|| SimCell::new(0), "make /d dir 755 0\nhold 1 /d\nadvance 5\nrmdir /d\nrelease 1");
}

#[test]
fn a_name_that_was_noted_may_go_with_the_snapshot_that_saw_it() {
    let steps = "make /c dir 644 77
make /.snap/s1 dir 755 22
make /c/b file 600 0
make /c/.snap/s4 dir 755 22
make /tmp file 644 0
rename /tmp /c/b replace
rmdir /c/.snap/s4";
    replay(|| SimCell::new(0), steps);
}

#[test]
fn data_of_a_removed_snapshot_may_go_before_its_records() {
    let steps = "make /a file 644 0
make /tmp file 644 0
write /tmp 0 516605 8
rename /tmp /a replace
make /.snap/s2 dir 755 22
write /a 0 913551 2125
rmdir /.snap/s2
reopen";
    replay(|| SimCell::new(0), steps);
}

#[test]
fn an_open_file_without_a_name_takes_content_across_a_snapshot() {
    let steps = "make /e file 600 22
hold 1 /e
unlink /e
u1000 write @1 0 318105 6
make /.snap/s1 dir 755 22
u1000 allocate @1 0 24576 punch
write @1 100 565 5000
chmod @1 600
make /.snap/s2 dir 755 22
write @1 50 566 200
read @1 0 6000";
    replay(|| SimCell::new(0), steps);
}

#[test]
fn a_listing_in_a_snapshot_keeps_its_limit() {
    let steps = "make /a file 644 0
make /b file 644 0
make /c file 644 0
make /.snap/s dir 755 0
unlink /a
unlink /b
make /d file 644 0
list /.snap/s 1
list /.snap/s 2
list /.snap/s 2 a
list /.snap/s 2 b";
    replay(|| SimCell::new(0), steps);
}

/// What was read of it is still in memory.
#[test]
fn nothing_is_copied_from_a_snapshot_that_was_removed() {
    let steps = "make /a file 644 0
make /b file 644 0
write /a 0 1234 500000
syncall
make /.snap/s dir 755 0
truncate /a 0
hold 1 /.snap/s/a
read @1 0 500000
rmdir /.snap/s
copy @1 0 /b 0 500000
link @1 /c";
    replay(|| SimCell::new(0), steps);
}
