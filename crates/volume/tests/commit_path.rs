//! What becomes of data between a write and its commit when calls fail, segments vanish and
//! references move.

use crate::rig::watched::{Watch, WatchedKv};
use crate::rig::{Rig, engine, noise};
use leeward_env::{Ctx, Work};
use leeward_fs::{Engine, Fs, Make, NodeId, Op, SetAttr, Turns};
use leeward_meta::{Error as KvError, Kv};
use leeward_pool::{DirStore, HookedStore, ObjectId};
use leeward_volume::format::keys::{self, Table, tag};
use leeward_volume::{Cell, Config};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const NOBODY: u64 = 0;
/// Behind what an inode's own record describes.
const FAR: u64 = 1 << 30;

/// The extents of this inode cannot be read.
struct Damaged(Arc<AtomicU64>);

impl Watch for Damaged {
    fn get(&self, key: &[u8]) -> leeward_meta::Result<()> {
        let inode = self.0.load(Ordering::Relaxed);
        match keys::parse(&keys::Key::from(key)) {
            Some(parsed) if inode != NOBODY && parsed.tag == tag::EXTENTS && parsed.node.inode() == inode => {
                Err(KvError::Corrupt("as the test wants it".into()))
            }
            _ => Ok(()),
        }
    }
}

/// Nothing is taken of the first segment that is put while it sticks.
#[derive(Default)]
struct Sticking {
    sticks: AtomicBool,
    stuck: AtomicU64,
}

impl Sticking {
    fn check(&self, id: ObjectId) -> leeward_pool::Result<()> {
        if self.sticks.load(Ordering::Relaxed) {
            let first = self.stuck.compare_exchange(NOBODY, id.segment, Ordering::Relaxed, Ordering::Relaxed);
            if first.unwrap_or_else(|segment| segment) == NOBODY || first == Err(id.segment) {
                return Err(std::io::Error::from_raw_os_error(libc_eio()).into());
            }
        }
        Ok(())
    }
}

fn libc_eio() -> i32 {
    5
}

fn truncate(rig: &Rig, node: NodeId, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    rig.call(Op::SetAttr { node, set }).expect("truncated");
}

/// All that was written to a segment was cut off while the one before it could not be stored.
#[test]
fn a_vanished_segment_keeps_no_cell_shut() {
    let mut rig = Rig::new();
    let sticking = Arc::new(Sticking::default());
    let (inner, beside) = (Arc::new(DirStore::new(Arc::new(rig.disk.clone()), "data")), sticking.clone());
    let store = Arc::new(HookedStore::new(inner, move |id, put| beside.check(id).and_then(|()| put())));
    rig.cell.close().expect("a clean close");
    let kv = engine(&rig.env, &rig.disk);
    rig.cell = Cell::start(&rig.env, Box::new(kv), store, &Config::default()).expect("opens");
    let a = rig.make("a", Make::File).expect("made");
    let b = rig.make("b", Make::File).expect("made");
    rig.idle();
    sticking.sticks.store(true, Ordering::Relaxed);
    rig.write(b, 0, &noise(17 << 20, 1)).expect("written");
    rig.write(a, 0, &noise(1000, 2)).expect("written");
    truncate(&rig, a, 0);
    truncate(&rig, b, 0);
    for _ in 0..4 {
        let _ = rig.cell.step();
    }
    assert_ne!(sticking.stuck.load(Ordering::Relaxed), NOBODY, "nothing was stuck");
    rig.disk = rig.disk.kill();
    rig.start();
    rig.clean();
}

/// The records of a file cannot be read when what was written to it is durable: whoever syncs is
/// told.
#[test]
fn content_that_cannot_be_applied_fails_fsync_and_the_end() {
    let mut rig = Rig::new();
    let large = rig.make("large", Make::File).expect("made");
    rig.write(large, FAR, &noise(2 << 20, 1)).expect("written");
    for n in 0..4000 {
        rig.make(&format!("{n:0200}"), Make::File).expect("made");
    }
    rig.idle();
    rig.cell.close().expect("a clean close");
    let inode = Arc::new(AtomicU64::new(NOBODY));
    let kv = WatchedKv { inner: engine(&rig.env, &rig.disk), watch: Damaged(inode.clone()) };
    let store = Arc::new(DirStore::new(Arc::new(rig.disk.clone()), "data"));
    let config = Config { metadata_cache_mib: 1, ..Config::default() };
    rig.cell = Cell::start(&rig.env, Box::new(kv), store, &config).expect("opens");
    rig.write(large, FAR, &noise(1 << 20, 2)).expect("written");
    for _ in 0..3 {
        for n in 0..4000 {
            rig.at(&format!("{n:0200}")).expect("there"); // the file's records leave the cache
        }
    }
    inode.store(large.inode(), Ordering::Relaxed);
    let failed = rig.call(Op::Fsync { node: large }).expect_err("it cannot be durable");
    assert!(failed.to_string().contains("large") || failed.to_string().contains("inode"), "{failed}");
    rig.call(Op::SyncAll).expect_err("not all is durable");
    let failed = rig.cell.close().expect_err("data is lost");
    assert!(failed.message.contains("may be lost"), "{}", failed.message);
}

/// Does something at one of the steps of cleaning.
struct Meanwhile {
    cell: Weak<Cell>,
    steps: AtomicU64,
    todo: Mutex<Vec<Op<'static>>>,
}

impl Turns for Meanwhile {
    fn in_turn(&self, ctx: &Ctx, _: u32, step: &mut dyn FnMut()) {
        let is_cleaning = ctx.flow.work().is_some_and(|work| work.name() == Work::Cleaning.name());
        if is_cleaning && self.steps.fetch_add(1, Ordering::Relaxed) == 1 {
            let cell = self.cell.upgrade().expect("it is open");
            for op in self.todo.lock().drain(..) {
                cell.call(&Ctx::system(), op).expect("done");
            }
        }
        step();
    }
}

/// While references to a segment are looked up, data is shared with a file that was looked up
/// already, and as much of another one that was is removed: the sums are as before, and what is
/// shared must stay.
#[test]
fn a_share_while_a_segment_is_cleaned_keeps_its_data() {
    const SHARED: usize = 300 << 10;
    let rig = Rig::new();
    let copy = rig.make("copy", Make::File).expect("made");
    let first = rig.file("first", &noise(SHARED, 1));
    rig.file("dead", &noise(2 << 20, 2));
    for n in 0..200 {
        rig.file(&format!("between{n}"), &noise(2000, n));
    }
    let content = noise(SHARED, 3);
    let last = rig.file("last", &content);
    rig.idle();
    rig.unlink("dead");
    let len = SHARED as u64;
    let cut = |node| Op::SetAttr { node, set: SetAttr { size: Some(0), ..SetAttr::default() } };
    let todo = vec![
        Op::CopyRange { from: last, from_offset: 0, to: copy, to_offset: 0, len },
        cut(first),
        cut(last),
    ];
    let meanwhile = Arc::new(Meanwhile {
        cell: Arc::downgrade(&rig.cell),
        steps: AtomicU64::new(0),
        todo: Mutex::new(todo),
    });
    rig.cell.give_turns(meanwhile.clone());
    rig.rest();
    assert!(meanwhile.todo.lock().is_empty(), "nothing was done meanwhile");
    assert_eq!(rig.read("copy").expect("read"), content);
    rig.clean();
}

/// Back references go with the segment, however many there are.
#[test]
fn back_references_leave_nothing_behind() {
    const SHARED: usize = 300 << 10;
    let rig = Rig::new();
    let source = rig.file("source", &noise(SHARED, 1));
    rig.idle();
    for n in 0..700 {
        let to = rig.make(&format!("copy{n}"), Make::File).expect("made");
        let share = Op::CopyRange { from: source, from_offset: 0, to, to_offset: 0, len: SHARED as u64 };
        rig.call(share).expect("shared");
    }
    rig.idle();
    let left = || {
        let kv = engine(&rig.env, &rig.disk.kill());
        let (from, to) = keys::table_range(Table::Backref);
        kv.scan(&from, &to, 1000, false).expect("scan").len()
    };
    assert!(left() >= 700, "{} back references", left());
    rig.unlink("source");
    (0..700).for_each(|n| rig.unlink(&format!("copy{n}")));
    rig.clean();
    assert_eq!(left(), 0);
}
