//! Pools: where data goes, how it is moved, what happens when stores are away or full.

use crate::rig;
use crate::rig::shelf::{Rig, start};
use crate::rig::{engine, noise};
use leeward_env::Ctx;
use leeward_env::disk::Disk;
use leeward_fs::{Error, Fs, Make, NodeId, Op, Precondition, Reply, XattrMode};
use leeward_meta::{Batch, Kv};
use leeward_pool::label::LABEL;
use leeward_pool::{AlignedBuf, DirStore, ObjectId, Store};
use leeward_volume::admin::{self, Failure, PoolInfo, StoreChange};
use leeward_volume::format::inode::SegmentRecord;
use leeward_volume::format::keys;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn data_of_a_volume_is_in_its_pool() {
    let mut rig = Rig::with_two();
    let root = rig.new_volume("v", "two");
    let (here, there) = (noise(300_000, 1), noise(400_000, 2));
    let a = rig.file(NodeId::ROOT, "a", &here);
    let b = rig.file(root, "b", &there);
    rig.sync();
    assert_eq!((rig.own_objects(), rig.objects("two")), (1, 1));
    let two = rig.show("two");
    assert_eq!((two.objects, two.live_bytes, two.volumes), (1, 400_000, vec!["v".to_string()]));
    rig.clean();
    rig.reopen();
    assert_eq!(rig.read(a, here.len()), Ok(here));
    assert_eq!(rig.read(b, there.len()), Ok(there));
    rig.clean();
    // small content that was inline data in the journal goes there, too
    let c = rig.file(root, "c", b"little");
    rig.call(Op::Fsync { node: c }).expect("durable");
    rig.crash();
    assert_eq!(rig.read(c, 6), Ok(b"little".to_vec()));
    rig.clean();
    assert_eq!((rig.own_objects(), rig.objects("two")), (1, 2));
}

#[test]
fn a_removed_volume_takes_whole_objects_along() {
    let rig = Rig::new();
    for n in 0..12 {
        let root = rig.new_volume(&format!("v{n}"), "default");
        rig.file(root, "a", &noise(20_000, n));
    }
    rig.sync();
    assert_eq!(rig.own_objects(), 12);
    rig.ask(&admin::VolumeRemove { name: "v3".into() }).expect("removed");
    rig.clean();
    assert_eq!(rig.own_objects(), 11);
}

#[test]
fn a_volume_is_moved_while_it_is_used() {
    let mut rig = Rig::with_two();
    let root = rig.new_volume("v", "default");
    let old: Vec<_> = (0..5).map(|n| noise(700_000, n)).collect();
    let nodes: Vec<_> = old
        .iter()
        .enumerate()
        .map(|(n, data)| {
            let node = rig.file(root, &format!("f{n}"), data);
            rig.sync();
            node
        })
        .collect();
    rig.make(rig.look_up(root, ".snap"), "s", Make::Dir);
    let new = noise(500_000, 9);
    rig.write(nodes[0], &new).expect("written");
    let info = rig.move_data("v", "two", false);
    assert_eq!(info.pool, "two");
    assert!(info.misplaced_bytes > 3_000_000, "{info:?}");
    // half way, and killed
    rig.cell.step().expect("a step");
    rig.crash();
    let info = rig.volume(&admin::VolumeShow { name: "v".into() });
    assert!(info.misplaced_bytes > 0);
    let more = rig.file(root, "more", &new);
    let info = rig.move_data("v", "two", true);
    assert_eq!((info.misplaced_bytes, info.stuck_segments), (0, 0));
    rig.clean();
    assert_eq!(rig.own_objects(), 0);
    let old_in_snapshot = rig.look_up(rig.look_up(rig.look_up(root, ".snap"), "s"), "f0");
    assert_eq!(rig.read(old_in_snapshot, 700_000).expect("read"), old[0]);
    for (node, data) in nodes.iter().zip(&old).skip(1) {
        assert_eq!(&rig.read(*node, data.len()).expect("read"), data);
    }
    assert_eq!(rig.read(more, new.len()), Ok(new));
    rig.reopen();
    rig.clean();
    // and back
    rig.move_data("v", "default", true);
    rig.clean();
    assert_eq!(rig.objects("two"), 0);
    rig.ask(&admin::PoolRemove { name: "two".into() }).expect("empty");
    rig.reopen();
    assert!(rig.ask(&admin::PoolShow { name: "two".into() }).is_err());
    rig.clean();
}

#[test]
fn a_pool_that_is_away_fails_its_own_data_only() {
    let mut rig = Rig::with_two();
    let root = rig.new_volume("v", "two");
    let data = noise(300_000, 1);
    let a = rig.file(NodeId::ROOT, "a", &data);
    let b = rig.file(root, "b", &data);
    rig.sync();
    let small = rig.file(root, "small", b"rides");
    rig.call(Op::Fsync { node: small }).expect("durable");
    rig.plug("two", false);
    rig.crash();
    assert!(rig.show("two").away.is_some());
    assert_eq!(rig.read(a, data.len()), Ok(data.clone()));
    assert_eq!(rig.read(b, 1).map_err(|e| e.errno()), Err(5));
    assert_eq!(rig.write(b, b"x").map_err(|e| e.errno()), Err(5));
    // what was in the journal is not lost, nor does the journal wait
    assert_eq!(rig.read(small, 5), Ok(b"rides".to_vec()));
    rig.file(NodeId::ROOT, "c", &data);
    let lost: Vec<_> = rig.fsck().findings.into_iter().filter_map(|f| f.path).collect();
    assert_eq!(lost, ["/v/b"]);
    rig.plug("two", true);
    rig.env.advance(Duration::from_secs(10));
    rig.rest();
    assert!(rig.show("two").away.is_none());
    assert_eq!(rig.read(b, data.len()), Ok(data));
    // what was kept elsewhere meanwhile came home
    assert_eq!(rig.volume(&admin::VolumeShow { name: "v".into() }).misplaced_bytes, 0);
    rig.clean();
    rig.reopen();
    rig.clean();
}

#[test]
fn a_full_pool_stops_its_own_writers_only() {
    let rig = Rig::with_two();
    let root = rig.new_volume("v", "two");
    rig.shelf.disk("two").set_capacity(8 << 20);
    let b = rig.make(root, "b", Make::File);
    let mut written = 0;
    let refused = loop {
        match rig.call(Op::Write { node: b, offset: written, data: &noise(1 << 20, written) }) {
            Ok(_) => written += 1 << 20,
            Err(e) => break e,
        }
        assert!(written < 64 << 20, "never full");
    };
    assert_eq!(refused, Error::NoSpace);
    let data = noise(3 << 20, 5);
    let a = rig.file(NodeId::ROOT, "a", &data);
    rig.call(Op::Fsync { node: a }).expect("durable");
    assert_eq!(rig.read(a, data.len()), Ok(data));
}

#[test]
fn what_cannot_be_is_refused() {
    let rig = Rig::with_two();
    let create = |name: &str, layout: &str, stores: &[&str]| admin::PoolCreate {
        name: name.into(),
        layout: layout.into(),
        stores: stores.iter().map(|s| s.to_string()).collect(),
        force: false,
    };
    rig.refused(&create("two", "single", &["x"]), &["two", "already"]);
    rig.refused(&create("default", "single", &["x"]), &["already"]);
    rig.refused(&create("a/b", "single", &["x"]), &["a/b"]);
    rig.refused(&create("three", "single", &["two"]), &["two", "already"]);
    rig.refused(&create("three", "single", &["x", "x"]), &["twice"]);
    rig.refused(&create("three", "nonsense", &["x"]), &["nonsense"]);
    rig.plug("y", false);
    rig.refused(&create("three", "single", &["y"]), &["three", "y"]);
    rig.refused(&admin::PoolShow { name: "none".into() }, &["none", "lee pool list"]);
    rig.refused(&admin::PoolRemove { name: "default".into() }, &["cell's own"]);
    let root = rig.new_volume("v", "two");
    rig.refused(&admin::PoolRemove { name: "two".into() }, &["volume v", "move-data"]);
    rig.file(root, "a", &noise(100_000, 1));
    rig.sync();
    rig.move_data("v", "default", false);
    rig.refused(&admin::PoolRemove { name: "two".into() }, &["holds 1 object"]);
    rig.refused(&admin::VolumeMoveData { name: "v".into(), to: "none".into(), wait: false }, &["none"]);
    rig.clean();
    rig.ask(&admin::PoolRemove { name: "two".into() }).expect("empty");
    // objects that are there already may be another cell's
    DirStore::new(Arc::new(rig.shelf.disk("used")), "")
        .put(&Ctx::system(), leeward_pool::contract::id(1, 0), &leeward_pool::contract::body(1, 4096))
        .expect("put");
    rig.refused(&create("three", "single", &["used"]), &["three", "empty"]);
    assert!(rig.disk.list("").is_ok());
}

#[test]
fn directories_name_pools() {
    let mut rig = Rig::with_two();
    let data = noise(100_000, 1);
    let dir = rig.make(NodeId::ROOT, "d", Make::Dir);
    let before = rig.file(dir, "before", &data);
    rig.sync();
    let name = b"leeward.pool";
    let set = |value: &'static [u8]| Op::SetXattr { node: dir, name, value, mode: XattrMode::Set };
    assert_eq!(rig.cell.call(&Ctx::user(7, 7), set(b"two")), Err(Error::NotPermitted));
    assert_eq!(rig.call(set(b"none")), Err(Error::Invalid));
    assert_eq!(rig.call(set(b"two")), Ok(Reply::Done));
    let sub = rig.make(dir, "sub", Make::Dir);
    let below = rig.file(sub, "below", &data);
    let shows = |node| rig.call(Op::GetXattr { node, name });
    assert_eq!(shows(below), Ok(Reply::Data(b"two".to_vec())));
    assert_eq!(shows(before), Ok(Reply::Data(b"default".to_vec())));
    rig.write(before, &data).expect("written");
    rig.sync();
    rig.clean();
    assert_eq!(rig.objects("two"), 1);
    rig.reopen();
    rig.clean();
    assert_eq!(rig.objects("two"), 1);
    assert_eq!(rig.read(below, data.len()), Ok(data));
    // until all of the volume is moved somewhere
    rig.move_data("root", "default", true);
    rig.clean();
    assert_eq!(rig.objects("two"), 0);
    assert_eq!(rig.call(Op::GetXattr { node: below, name }), Ok(Reply::Data(b"default".to_vec())));
    rig.call(Op::RemoveXattr { node: dir, name }).expect("removed");
}

const SIX: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];

impl Rig {
    fn change(&self, change: StoreChange) -> Result<PoolInfo, Failure> {
        self.ask(&admin::PoolStore { name: "wide".into(), change, force: false, lose_data: false })
    }

    /// Until nothing is left to repair.
    fn repaired(&self) {
        for _ in 0..20 {
            self.env.advance(Duration::from_secs(10));
            self.rest();
        }
        let health = self.show("wide").health.expect("there");
        assert_eq!((health.degraded_objects, health.lost_objects), (0, 0), "{health:?}");
    }

    fn may_lose(&self) -> u16 {
        self.show("wide").health.expect("there").may_lose
    }
}

#[test]
fn two_of_six_stores_may_be_lost() {
    let mut rig = Rig::new();
    rig.make_pool_of("wide", "erasure(4+2)", &SIX);
    let root = rig.new_volume("v", "wide");
    let data: Vec<_> = (0..4).map(|n| noise(900_000, n)).collect();
    let a = rig.file(root, "a", &data[0]);
    rig.sync();
    assert!(SIX.iter().all(|url| rig.objects(url) == 1), "a piece on each");
    assert_eq!(rig.may_lose(), 2);
    // away when the cell is opened
    rig.plug("s0", false);
    rig.plug("s4", false);
    rig.reopen();
    assert_eq!(rig.may_lose(), 0);
    assert_eq!(rig.read(a, 900_000).expect("read"), data[0]);
    let b = rig.file(root, "b", &data[1]);
    rig.call(Op::Fsync { node: b }).expect("durable");
    rig.sync();
    rig.crash();
    assert_eq!(rig.read(b, 900_000).expect("read"), data[1]);
    rig.plug("s0", true);
    rig.plug("s4", true);
    rig.repaired();
    assert_eq!(rig.may_lose(), 2);
    rig.clean();
    // and the others now
    rig.plug("s1", false);
    rig.plug("s2", false);
    rig.reopen();
    for (node, data) in [(a, &data[0]), (b, &data[1])] {
        assert_eq!(&rig.read(node, 900_000).expect("read"), data);
    }
    // one more is too many: EIO, and only here
    rig.plug("s3", false);
    rig.reopen();
    assert!(rig.show("wide").away.is_some());
    assert_eq!(rig.read(a, 1).map_err(|e| e.errno()), Err(5));
    rig.file(NodeId::ROOT, "c", &data[2]);
    SIX.iter().for_each(|url| rig.plug(url, true));
    rig.repaired();
    assert_eq!(rig.read(a, 900_000).expect("read"), data[0]);
    rig.clean();
}

#[test]
fn a_lost_store_is_replaced_and_a_good_one_drained() {
    let mut rig = Rig::new();
    rig.make_pool_of("wide", "erasure(4+2)", &SIX);
    let root = rig.new_volume("v", "wide");
    let data = noise(2_000_000, 1);
    let a = rig.file(root, "a", &data);
    rig.sync();
    rig.plug("s5", false);
    rig.reopen();
    let by = |store: &str, by: &str| StoreChange::Replace { store: store.into(), by: by.into() };
    let refused = rig.change(by("s9", "n5")).expect_err("no such store");
    assert!(refused.message.contains("s9"), "{refused:?}");
    rig.change(by("s5", "n5")).expect("replaced");
    rig.repaired();
    assert_eq!((rig.may_lose(), rig.objects("n5")), (2, 1));
    rig.change(StoreChange::Drain { store: "0".into(), to: "n0".into() }).expect("draining");
    rig.repaired();
    rig.change(StoreChange::Remove { store: "s0".into() }).expect("drained");
    assert_eq!(rig.all_in("s0"), [], "not even the label");
    assert_eq!(rig.objects("n0"), 1);
    rig.reopen();
    assert_eq!(rig.read(a, data.len()).expect("read"), data);
    // given up, and filled again
    rig.change(StoreChange::Remove { store: "s1".into() }).expect("given up");
    assert_eq!(rig.may_lose(), 1);
    rig.change(StoreChange::Add { url: "n1".into() }).expect("added");
    rig.repaired();
    assert_eq!(rig.may_lose(), 2);
    rig.clean();
    let pools = rig.ask(&admin::Scrub { pool: None }).expect("scrubbed").pools;
    assert_eq!(pools.len(), 2);
    assert_eq!((pools[1].bad_pieces, pools[1].lost_objects), (0, 0), "{pools:?}");
    assert!(pools[1].bytes > 2_000_000, "{pools:?}");
}

/// Stores on one disk are one risk, and losing data is another: each is allowed by its own word.
#[test]
fn force_alone_loses_nothing() {
    let rig = Rig::new();
    rig.make_pool_of("wide", "erasure(4+2)", &SIX);
    let root = rig.new_volume("v", "wide");
    rig.file(root, "a", &noise(2_000_000, 1));
    rig.sync();
    rig.change(StoreChange::Remove { store: "s1".into() }).expect("given up");
    rig.change(StoreChange::Remove { store: "s2".into() }).expect("given up");
    assert_eq!(rig.may_lose(), 0);
    let asked = |change: StoreChange, force, lose_data| {
        rig.ask(&admin::PoolStore { name: "wide".into(), change, force, lose_data })
    };
    let takes_one_more = [
        StoreChange::Remove { store: "s3".into() },
        StoreChange::Replace { store: "s3".into(), by: "n3".into() },
    ];
    for change in takes_one_more {
        let refused = asked(change, true, false).expect_err("no data may be lost");
        assert!(refused.message.contains("add --lose-data"), "{refused:?}");
    }
    asked(StoreChange::Drain { store: "s0".into(), to: "n0".into() }, false, false).expect("draining");
    let refused = asked(StoreChange::Remove { store: "s0".into() }, true, false).expect_err("not drained");
    assert!(refused.message.contains("1 objects are still on s0"), "{refused:?}");
    asked(StoreChange::Remove { store: "s0".into() }, false, true).expect("whoever says so");
}

/// Nothing else has to be committed before they are deleted.
#[test]
fn leftovers_go_from_a_cell_that_rests() {
    let mut rig = Rig::with_two();
    let root = rig.new_volume("v", "two");
    rig.file(root, "a", &noise(300_000, 1));
    rig.sync();
    rig.rest();
    let torn = ObjectId { segment: 4000, generation: 0 };
    let two = DirStore::new(Arc::new(rig.shelf.disk("two")), "");
    two.put(&Ctx::system(), torn, &AlignedBuf::zeroed(4096)).expect("put");
    rig.reopen();
    rig.rest();
    assert_eq!(rig.objects("two"), 1);
    rig.clean();
}

/// While a store that was away is looked for an operator puts another one in the place of a third,
/// and then it is there again.
#[test]
fn what_an_operator_says_meanwhile_holds() {
    let mut rig = Rig::new();
    rig.make_pool_of("wide", "erasure(4+2)", &SIX);
    let root = rig.new_volume("v", "wide");
    rig.plug("s5", false);
    rig.reopen();
    let (cell, shelf) = (rig.cell.clone(), rig.shelf.clone());
    let replace = admin::PoolStore {
        name: "wide".into(),
        change: StoreChange::Replace { store: "s3".into(), by: "n3".into() },
        force: false,
        lose_data: false,
    };
    let replace = move || {
        let failure = cell.admin(&replace, &mut |_| {}).expect_err("s3 is there, s5 is not");
        assert!(failure.message.contains("store 3 is there"), "{failure:?}");
        shelf.plug("s3", false);
        cell.admin(&replace, &mut |_| {}).expect("replaced");
        shelf.plug("s5", true);
    };
    *rig.shelf.meanwhile.lock().expect("no panic") = Some(("s4".into(), Box::new(replace)));
    rig.repaired();
    assert!(rig.shelf.meanwhile.lock().expect("no panic").is_none(), "it was not looked for");
    let file = rig.file(root, "a", &noise(900_000, 1));
    rig.sync();
    assert_eq!((rig.objects("s3"), rig.objects("n3"), rig.objects("s5")), (0, 1, 1));
    assert_eq!(rig.read(file, 900_000).expect("read"), noise(900_000, 1));
    rig.clean();
}

#[test]
fn scrubbing_finds_what_rotted() {
    let rig = Rig::new();
    rig.make_pool_of("wide", "replica(2)", &["s0", "s1"]);
    let root = rig.new_volume("v", "wide");
    let data = noise(500_000, 1);
    let a = rig.file(root, "a", &data);
    rig.sync();
    rig::flip_in_largest(&rig.shelf.disk("s1"), 100_000);
    let scrub = || rig.ask(&admin::Scrub { pool: Some("wide".into()) }).expect("answered").pools[0].clone();
    let found = scrub();
    assert_eq!((found.bad_pieces, found.repaired_objects, found.lost_objects), (1, 1, 0), "{found:?}");
    assert_eq!(scrub().bad_pieces, 0);
    assert_eq!(rig.read(a, data.len()).expect("read"), data);
}

#[test]
fn pools_are_scrubbed_by_the_clock() {
    let mut rig = Rig::new();
    rig.make_pool_of("wide", "replica(2)", &["s0", "s1"]);
    let root = rig.new_volume("v", "wide");
    rig.file(root, "a", &noise(500_000, 1));
    rig.sync();
    let every = |rig: &Rig, pool: Option<&str>, every_secs: u32| {
        rig.ask(&admin::ScrubEvery { pool: pool.map(str::to_string), every_secs }).map(|_| ())
    };
    let (hour, day) = (3600, 86_400);
    rig.refused(&admin::ScrubEvery { pool: None, every_secs: 60 }, &["too often"]);
    rig.refused(
        &admin::ScrubEvery { pool: Some("none".into()), every_secs: day },
        &["none", "lee pool list"],
    );
    let pass = |rig: &Rig, secs: u32| {
        rig.env.advance(Duration::from_secs(secs.into()));
        rig.rest();
    };
    let bad = |rig: &Rig, pool: &str| rig.show(pool).scrub.last.map(|last| last.found.bad_pieces);
    rig::flip_in_largest(&rig.shelf.disk("s1"), 100_000);
    pass(&rig, day);
    assert_eq!(bad(&rig, "wide"), None, "nobody asked for it");
    every(&rig, None, day).expect("set");
    every(&rig, Some("wide"), hour).expect("set");
    pass(&rig, hour);
    let scrub = rig.show("wide").scrub;
    let found = scrub.last.as_ref().expect("whole").found.clone();
    assert_eq!((found.pool.as_str(), found.bad_pieces, found.repaired_objects), ("wide", 1, 1));
    assert!(
        scrub.age_secs == Some(0) && !scrub.late && scrub.next_secs > scrub.last.map(|last| last.begun_secs)
    );
    assert_eq!(bad(&rig, "default"), None, "it is not due");
    // while it is away it cannot be done, and is late in the end; that and what there was is known
    // after a crash
    ["s0", "s1"].iter().for_each(|url| rig.plug(url, false));
    rig.crash();
    pass(&rig, 2 * hour);
    let scrub = rig.show("wide").scrub;
    assert!(scrub.error.is_some() && !scrub.late, "{scrub:?}");
    assert_eq!(scrub.last.map(|last| last.found), Some(found));
    pass(&rig, day);
    assert!(rig.show("wide").scrub.late);
    assert_eq!(bad(&rig, "default"), Some(0), "others are done");
    let late = |rig: &Rig| rig.ask(&admin::StatsShow).expect("answered").late_scrubs;
    assert_eq!(late(&rig), 1);
    // what was missed is made up once
    ["s0", "s1"].iter().for_each(|url| rig.plug(url, true));
    pass(&rig, 100);
    pass(&rig, 100);
    let scrub = rig.show("wide").scrub;
    assert!(!scrub.late && scrub.error.is_none(), "{scrub:?}");
    assert_eq!((bad(&rig, "wide"), late(&rig)), (Some(0), 0));
    // one that is made now is not late for what was said before
    rig.make_pool("young");
    let young = rig.show("young").scrub;
    assert!(young.every_secs == Some(day) && !young.late && young.last.is_none(), "{young:?}");
    pass(&rig, day);
    assert_eq!(bad(&rig, "young"), Some(0));
    // one at a time
    let all = admin::Scrub { pool: None };
    let mut refused = 0;
    rig.cell
        .admin(&all, &mut |_| {
            rig.refused(&all, &["is being scrubbed", "lee scrub --status"]);
            refused += 1;
        })
        .expect("scrubbed");
    assert!(refused > 0);
    // what is said of all holds for all; those of one that is gone are gone
    every(&rig, None, 0).expect("set");
    rig.reopen();
    assert_eq!(rig.show("wide").scrub.every_secs, None);
    rig.clean();
}

#[test]
fn the_journal_does_not_wait_for_a_pool() {
    let rig = Rig::with_two();
    let root = rig.new_volume("v", "two");
    rig.shelf.disk("two").power_off();
    let small = rig.file(root, "small", b"rides");
    rig.call(Op::Fsync { node: small }).expect("durable");
    let _ = rig.cell.step(); // seals the segment
    let large = rig.file(root, "large", &noise(1 << 20, 1));
    assert_eq!(rig.call(Op::Fsync { node: large }).map_err(|e| e.errno()), Err(5));
    for _ in 0..40 {
        rig.env.advance(Duration::from_secs(1));
        let _ = rig.cell.step();
    }
    assert_eq!(rig.own_objects(), 1, "what rode, and nothing else");
    assert_eq!(rig.read(small, 5), Ok(b"rides".to_vec()));
    let kinds: BTreeSet<String> = rig.fsck().findings.into_iter().map(|f| f.kind).collect();
    assert!(kinds.contains("not-stored"), "{kinds:?}");
    rig.file(NodeId::ROOT, "elsewhere", &noise(1000, 1));
}

/// Segments of cells before format 4 do not say whose they are.
#[test]
fn segments_of_old_cells_are_moved() {
    let mut rig = Rig::new();
    let root = rig.new_volume("v", "default");
    let (ours, others) = (noise(300_000, 1), noise(200_000, 2));
    let a = rig.file(root, "a", &ours);
    let b = rig.file(NodeId::ROOT, "b", &others);
    rig.clean();
    rig.cell.close().expect("a clean close");
    let kv = engine(&rig.env, &rig.disk);
    let (from, to) = keys::table_range(keys::Table::Segment);
    let mut writes = kv.scan(&from, &to, 100, false).expect("scanned");
    for (_, value) in &mut writes {
        let record = SegmentRecord { volume: None, ..SegmentRecord::decode(value).expect("a record") };
        *value = record.encode();
        assert_eq!(value[0], 1, "as it was before");
    }
    assert_eq!(writes.len(), 2);
    let writes = writes.into_iter().map(|(key, value)| (key, Some(value))).collect();
    kv.commit(&Batch { writes, inline_data: Vec::new() }).expect("committed");
    drop(kv);
    rig.cell = start(&rig.env, &rig.disk, &rig.shelf);
    rig.make_pool("two");
    rig.move_data("v", "two", true);
    rig.clean();
    assert_eq!((rig.own_objects(), rig.objects("two")), (1, 1));
    assert_eq!(rig.read(a, ours.len()), Ok(ours));
    assert_eq!(rig.read(b, others.len()), Ok(others));
}

/// Objects in a store, its label aside.
fn names(rig: &Rig, url: &str) -> Vec<ObjectId> {
    rig.all_in(url).into_iter().filter(|id| *id != LABEL).collect()
}

/// As if the disk had been put back to an earlier state.
fn roll_back(rig: &Rig, url: &str) {
    let store = DirStore::new(Arc::new(rig.shelf.disk(url)), "");
    names(rig, url).into_iter().for_each(|id| store.delete(&Ctx::system(), id).expect("deleted"));
}

#[test]
fn what_too_few_stores_have_is_said_to_be_lost() {
    for (layout, stores, spared) in [("erasure(2+1)", 3, 1), ("replica(2)", 2, 1), ("erasure(4+2)", 6, 2)] {
        let mut rig = Rig::new();
        rig.make_pool_of("wide", layout, &SIX[..stores]);
        let root = rig.new_volume("v", "wide");
        rig.file(root, "a", &noise(900_000, 1));
        rig.sync();
        let scrub = |rig: &Rig| {
            rig.ask(&admin::Scrub { pool: Some("wide".into()) }).expect("answered").pools[0].clone()
        };
        for lost in spared + 1..=stores {
            SIX[..lost].iter().for_each(|url| roll_back(&rig, url));
            rig.reopen();
            rig.rest();
            let health = rig.show("wide").health.expect("there");
            assert_eq!(health.lost_objects, 1, "{layout} without {lost}: it is known soon");
            let found = scrub(&rig);
            assert_eq!(found.lost_objects, 1, "{layout} without {lost}: {found:?}");
            assert_eq!(rig.show("wide").health.expect("there").lost_objects, 1, "{layout} without {lost}");
            let report = rig.ask(&admin::Fsck).expect("answered");
            assert!(report.findings.iter().any(|f| f.kind == "damaged-data"));
        }
    }
}

#[test]
fn what_was_deleted_while_a_store_was_away_is_a_leftover_when_it_is_back() {
    let mut rig = Rig::new();
    rig.make_pool_of("wide", "erasure(2+1)", &SIX[..3]);
    let root = rig.new_volume("v", "wide");
    rig.file(root, "a", &noise(900_000, 1));
    rig.sync();
    rig.plug("s0", false);
    rig.reopen();
    rig.call(Op::Unlink { dir: root, name: b"a", over: Precondition::Any }).expect("removed");
    rig.sync();
    rig.rest();
    assert_eq!((rig.objects("s0"), rig.objects("s1")), (1, 0));
    rig.plug("s0", true);
    rig.env.advance(Duration::from_secs(10));
    rig.cell.step().expect("a step");
    rig.clean();
    rig.rest();
    assert_eq!(rig.objects("s0"), 0);
}

#[test]
fn no_name_of_an_object_is_used_twice() {
    let mut rig = Rig::with_two();
    let root = rig.new_volume("v", "two");
    let mut before = 0;
    for round in 0..3u64 {
        for n in 0..2 {
            rig.file(root, &format!("f{round}.{n}"), &noise(900_000, 10 * round + n));
        }
        rig.sync();
        let first = names(&rig, "two");
        rig.call(Op::Unlink { dir: root, name: format!("f{round}.0").as_bytes(), over: Precondition::Any })
            .expect("removed");
        rig.sync();
        rig.rest();
        let rewritten: Vec<_> = names(&rig, "two").into_iter().filter(|id| !first.contains(id)).collect();
        let [id] = rewritten[..] else { panic!("{rewritten:?}") };
        // a leftover of an earlier process, or of an earlier attempt, may have any lower one
        assert!(id.generation > before, "{id:?} after {before}");
        before = id.generation;
        rig.clean();
        if round == 1 { rig.crash() } else { rig.reopen() }
    }
    assert!(before > 3, "generations are not counted anew for each segment");
}

#[test]
fn the_last_copy_is_not_taken_away_without_a_word() {
    let rig = Rig::with_two();
    let change = StoreChange::Remove { store: "two".into() };
    rig.refused(
        &admin::PoolStore { name: "two".into(), change, force: true, lose_data: true },
        &["two stays as it is", "0 of its stores can be had", "1 are needed"],
    );
}
