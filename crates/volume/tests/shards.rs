//! A cell of several shards: what is in one of them, and what crosses their borders.

use crate::rig::{Rig, engine, noise};
use leeward_env::disk::sim::Fault;
use leeward_env::disk::sim::SimDisk;
use leeward_env::{CallNumber, Ctx, Door, Env, Told, Wait};
use leeward_fs::sessions::{Outcome, SessionRecord, Sessions, take_told};
use leeward_fs::{Error, Fs, Make, NodeId, Op, Precondition, RenameMode, Reply, SetAttr};
use leeward_meta::{Batch, Kv};
use leeward_volume::admin::{self, Request, VolumeCreate, VolumeCreateIn, VolumeInfo};
use leeward_volume::format::keys;
use leeward_volume::{Cell, Config, FORMAT, FORMAT_KEPT};
use std::collections::BTreeMap;
use std::sync::Arc;

fn new(name: &str, at: &str) -> VolumeCreate {
    VolumeCreate { name: name.into(), at: at.into(), uid: 0, gid: 0, pool: None }
}

impl Rig {
    fn volume_in(&self, shard: usize, name: &str, at: &str) -> VolumeInfo {
        self.admin(&VolumeCreateIn { volume: new(name, at), shard })
    }

    fn names_in(&self, path: &str) -> Vec<(String, NodeId)> {
        let op = Op::List { dir: self.at(path).expect(path), after: b"", limit: 100, attrs: true };
        let entries = self.call(op).and_then(Reply::entries).expect("listed");
        let named = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        entries.iter().map(|e| (named(&e.name), e.attr.expect("attributes").node)).collect()
    }
}

fn shard_of(volume: &VolumeInfo) -> usize {
    NodeId::new(volume.id, 1).shard()
}

#[test]
fn new_volumes_come_where_there_are_fewest() {
    let rig = Rig::of_shards(3);
    rig.dir("/d");
    let shards: Vec<usize> =
        (0..5).map(|n| shard_of(&rig.admin(&new(&format!("v{n}"), &format!("/d/v{n}"))))).collect();
    assert_eq!(shards, [1, 2, 0, 1, 2]);
    let inside = rig.admin(&new("inside", "/d/v0/inside"));
    assert_eq!(shard_of(&inside), 1, "what is attached in a volume is in its shard");
    for (shard, at) in [(3, "/d/x"), (2, "/d/v0/x")] {
        let refused = rig.ask(&VolumeCreateIn { volume: new("x", at), shard }).expect_err("refused");
        assert_eq!(refused.errno, libc::EINVAL, "{refused}");
    }
    let names = ["root", "v2", "v0", "v3", "inside", "v1", "v4"];
    let listed = rig.admin(&admin::VolumeList).volumes;
    assert_eq!(listed.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), names);
    assert_eq!(listed.iter().map(|v| v.at.as_str()).filter(|at| at.starts_with("/d/v")).count(), 6);
    rig.clean();
}

#[test]
fn names_lead_from_one_shard_to_the_other_and_back() {
    let mut rig = Rig::of_shards(2);
    rig.dir("/d");
    rig.dir("/d/own");
    let v = rig.volume_in(1, "v", "/d/v");
    let root = NodeId::new(v.id, 1);
    for again in [false, true] {
        if again {
            rig.reopen();
        }
        assert_eq!(rig.at("/d/v"), Ok(root));
        assert_eq!(rig.at("/d/v/.."), rig.at("/d"));
        assert_eq!(rig.names_in("/d"), [("own".into(), rig.at("/d/own").expect("own")), ("v".into(), root)]);
        assert_eq!(rig.cell.path_of(root).as_deref(), Some("/d/v"));
        assert_eq!(rig.admin(&admin::VolumeShow { name: "v".into() }).at, "/d/v");
    }
    let file = rig.make("/d/v/file", Make::File).expect("made");
    assert_eq!(rig.cell.path_of(file).as_deref(), Some("/d/v/file"));
    rig.clean();
}

#[test]
fn a_volume_of_another_shard_stays_where_it_is() {
    let rig = Rig::of_shards(2);
    let d = rig.dir("/d");
    rig.volume_in(1, "v", "/d/v");
    let away =
        Op::Rename { from_dir: d, from_name: b"v", to_dir: d, to_name: b"w", mode: RenameMode::Replace };
    assert_eq!(rig.call(away), Err(Error::Busy));
    assert_eq!(rig.call(Op::RmDir { dir: d, name: b"v" }), Err(Error::Busy));
    assert_eq!(rig.make("/d/v", Make::Dir), Err(Error::Exists));
    assert_eq!(rig.call(Op::RmDir { dir: NodeId::ROOT, name: b"d" }), Err(Error::NotEmpty));
    // and nothing is moved or linked over the border
    let file = rig.make("/d/file", Make::File).expect("made");
    let v = rig.at("/d/v").expect("v");
    let over =
        Op::Rename { from_dir: d, from_name: b"file", to_dir: v, to_name: b"f", mode: RenameMode::Replace };
    assert_eq!(rig.call(over), Err(Error::CrossVolume));
    assert_eq!(rig.call(Op::Link { node: file, dir: v, name: b"f" }), Err(Error::CrossVolume));
    let place = Op::Place { node: file, dir: v, name: b"f", over: Precondition::Any };
    assert_eq!(rig.call(place), Err(Error::CrossVolume));
    rig.clean();
}

#[test]
fn content_is_copied_over_the_border() {
    let rig = Rig::of_shards(2);
    rig.volume_in(1, "v", "/v");
    let (from, to) =
        (rig.make("/from", Make::File).expect("made"), rig.make("/v/to", Make::File).expect("made"));
    let bytes = noise(3 << 20, 7);
    for (n, piece) in bytes.chunks(1 << 20).enumerate() {
        rig.call(Op::Write { node: from, offset: (n as u64) << 20, data: piece }).expect("written");
    }
    let copy = Op::CopyRange { from, from_offset: 5, to, to_offset: 9, len: u64::MAX };
    assert_eq!(rig.call(copy), Ok(Reply::Written(bytes.len() as u64 - 5)));
    let read = rig.call(Op::Read { node: to, offset: 9, len: 1 << 20 }).and_then(Reply::data).expect("read");
    assert!(read == bytes[5..5 + (1 << 20)]);
    rig.clean();
}

#[test]
fn names_of_volumes_are_those_of_the_cell() {
    let rig = Rig::of_shards(2);
    rig.volume_in(1, "vol-v", "/v");
    rig.volume_in(0, "vol-w", "/w");
    let taken = |refused: admin::Failure| assert_eq!(refused.errno, libc::EEXIST, "{refused}");
    taken(rig.ask(&VolumeCreateIn { volume: new("vol-v", "/x"), shard: 0 }).expect_err("taken"));
    taken(rig.ask(&VolumeCreateIn { volume: new("vol-w", "/x"), shard: 1 }).expect_err("taken"));
    taken(rig.ask(&admin::VolumeRename { name: "vol-v".into(), to: "vol-w".into() }).expect_err("taken"));
    rig.admin(&admin::VolumeRename { name: "vol-v".into(), to: "vol-u".into() });
    rig.admin(&admin::VolumeRename { name: "vol-w".into(), to: "vol-v".into() });
    // a bucket goes by the name of its volume
    let buckets: Vec<String> = rig.cell.buckets().keys().map(|name| name.to_string()).collect();
    assert_eq!(buckets, ["vol-u", "vol-v"]);
    rig.admin(&admin::VolumeRemove { name: "vol-u".into() });
    assert_eq!(rig.at("/v"), Err(Error::NotFound));
    assert_eq!(rig.cell.buckets().len(), 1);
    rig.clean();
}

#[test]
fn a_volume_is_removed_when_nothing_is_attached_in_it() {
    let rig = Rig::of_shards(2);
    rig.volume_in(0, "outer", "/outer");
    rig.volume_in(1, "inner", "/outer/inner");
    let refused = rig.ask(&admin::VolumeRemove { name: "outer".into() }).expect_err("refused");
    assert!(refused.message.contains("inner"), "{refused}");
    let demote = admin::VolumeDemote { name: "outer".into(), snapshot: "s".into() };
    let refused = rig.ask(&demote).expect_err("refused");
    assert!(refused.message.contains("volume inner is attached below it"), "{refused}");
    rig.make("/outer/inner/file", Make::File).expect("made");
    rig.admin(&admin::VolumeRemove { name: "inner".into() });
    rig.admin(&admin::VolumeRemove { name: "outer".into() });
    rig.idle();
    assert_eq!(rig.admin(&admin::VolumeList).volumes.len(), 1);
    rig.clean();
}

#[test]
fn a_crash_leaves_no_volume_without_its_name() {
    for cut in 0..40 {
        let mut rig = Rig::of_shards(2);
        rig.dir("/d");
        rig.idle();
        // the power fails at some write of the first shard, or of the second
        let disk = if cut % 2 == 0 { rig.disk.clone() } else { rig.others[0].clone() };
        disk.fail_at(disk.mutations() + cut / 2, Fault::CrashBefore);
        let made = rig.ask(&VolumeCreateIn { volume: new("v", "/d/v"), shard: 1 });
        rig.disk.power_off();
        rig.others[0].power_off();
        rig.power_cut(cut);
        let there = rig.admin(&admin::VolumeList).volumes.iter().any(|v| v.name == "v");
        assert!(there || made.is_err(), "{cut}: it was said to be there");
        assert_eq!(rig.at("/d/v").is_ok(), there, "{cut}");
        if there {
            rig.admin(&admin::VolumeRemove { name: "v".into() });
        }
        rig.clean();
    }
}

/// What a machine is told of a copy over the border is durable, as it cannot ask for it again.
#[test]
fn a_copy_over_the_border_is_durable_when_a_machine_is_told() {
    let (mut rig, [first, second]) = Rig::of_two_served();
    let call = |number| client(Some(CallNumber { slot: 3, number }));
    let file = |dir, name| rig.told_in(1, dir, name).node;
    let (from, to) = (NodeId(file(first, b"from")), NodeId(file(second, b"to")));
    rig.cell.call(&client(None), Op::Write { node: from, offset: 0, data: b"content" }).expect("written");
    rig.cell.sync().expect("durable");
    let copy = Op::CopyRange { from, from_offset: 0, to, to_offset: 0, len: 7 };
    let may_not_wait = Ctx { wait: Wait::Never, ..call(2) };
    assert_eq!(rig.cell.call(&may_not_wait, copy), Err(Error::WouldBlock));
    let before = rig.cell.outcomes(1).expect("outcomes");
    assert_eq!(rig.cell.call(&call(2), copy), Ok(Reply::Written(7)));
    assert_eq!(take_told(), None, "there is nothing to ask for again");
    assert_eq!(rig.cell.outcomes(1).expect("outcomes"), before, "no part of it is the whole call");
    rig.power_cut(5);
    let read = rig.call(Op::Read { node: to, offset: 0, len: 99 }).and_then(Reply::data);
    assert_eq!(read.expect("read"), b"content");
}

#[test]
fn a_name_of_a_volume_that_is_gone_goes_at_opening() {
    let mut rig = Rig::of_shards(2);
    rig.dir("/d");
    let volume = rig.volume_in(1, "v", "/d/v");
    rig.admin(&admin::SyncAll);
    let names = rig.disk.kill();
    rig.admin(&admin::VolumeRemove { name: "v".into() });
    rig.idle();
    // the first shard is as it was before
    rig.cell.close().expect("closed");
    rig.disk = names;
    rig.start();
    assert!(rig.at("/d/v").is_err(), "{volume:?}");
    rig.clean();
}

#[test]
fn fsck_finds_names_and_records_that_differ() {
    let mut rig = Rig::of_shards(2);
    let volume = rig.volume_in(1, "v", "/v").id;
    rig.cell.close().expect("closed");
    let kv = engine(&rig.env, &rig.disk);
    let lost = Batch { writes: vec![(keys::attached(volume), None)], inline_data: Vec::new() };
    kv.commit(&lost).expect("committed");
    drop(kv);
    rig.start();
    let found = rig.findings();
    let details: Vec<&str> = found.iter().map(|finding| finding.detail.as_str()).collect();
    assert!(found.iter().all(|finding| finding.kind == "attached"), "{found:?}");
    assert_eq!(details.len(), 2, "{details:?}");
    assert!(details.iter().any(|detail| detail.contains("without a record")), "{details:?}");
    assert!(details.iter().any(|detail| detail.contains("volume v has no name")), "{details:?}");
}

#[test]
fn a_bucket_has_the_path_of_its_volume_however_it_was_written() {
    let rig = Rig::of_shards(2);
    rig.dir("/d");
    for (shard, name) in ["first", "second"].into_iter().enumerate() {
        rig.volume_in(shard, name, &format!("/d//{name}/"));
        assert_eq!(rig.cell.buckets()[name].path, format!("/d/{name}"));
    }
}

#[test]
fn a_bucket_goes_with_a_volume_inside_a_volume() {
    let rig = Rig::of_shards(2);
    rig.volume_in(1, "outer", "/outer");
    rig.admin(&new("inner", "/outer/inner"));
    assert!(rig.cell.buckets().contains_key("inner"));
    rig.admin(&admin::VolumeRemove { name: "inner".into() });
    assert!(!rig.cell.buckets().contains_key("inner"));
    let taken = rig.ask(&new("other", "/outer")).expect_err("a volume is there");
    assert_eq!(taken.errno, libc::EEXIST, "{taken}");
    rig.clean();
}

#[test]
fn other_pools_are_for_cells_of_one_shard() {
    let rig = Rig::of_shards(2);
    let pool = admin::PoolCreate {
        name: "p".into(),
        layout: "single".into(),
        stores: vec!["/nowhere".into()],
        force: true,
    };
    assert_eq!(rig.ask(&pool).expect_err("refused").errno, libc::EOPNOTSUPP);
}

/// A `cell` that says less than there is, as one from an old backup does, deletes nothing.
#[test]
fn too_few_shards_are_refused() {
    let place = InDir::new();
    let old = std::fs::read_to_string(place.dir.path().join("cell")).expect("the identity");
    let cell = place.open();
    ask(&cell, &admin::ShardAdd { count: 1 });
    cell.close().expect("closed");
    drop(cell);
    let cell = place.open();
    ask(&cell, &VolumeCreateIn { volume: new("v", "/v"), shard: 1 });
    cell.close().expect("closed");
    drop(cell);
    std::fs::write(place.dir.path().join("cell"), old).expect("an old one");
    let refused = Cell::open(&place.env, place.dir.path(), &Config::default()).err().expect("refused");
    assert!(refused.message.contains("restore `cell`"), "{refused}");
}

#[test]
fn a_schedule_covers_volumes_of_other_shards() {
    let rig = Rig::of_shards(2);
    rig.dir("/d");
    rig.volume_in(1, "v", "/d/v");
    rig.volume_in(1, "w", "/w");
    rig.admin(&admin::ScheduleSet { path: "/d".into(), interval_secs: 3600, keep: "3h".into() });
    rig.env.sleep(std::time::Duration::from_secs(7200));
    rig.idle();
    let taken =
        |path: &str| rig.admin(&admin::SnapList { path: Some(path.into()), volume: None }).snapshots.len();
    assert_eq!((taken("/d"), taken("/d/v"), taken("/w")), (1, 1, 0));
    rig.clean();
}

#[test]
fn snapshots_of_all_shards_are_seen_at_once() {
    let rig = Rig::of_shards(3);
    for shard in 0..3 {
        let name = format!("v{shard}");
        rig.volume_in(shard, &name, &format!("/{name}"));
        let file = rig.make(&format!("/{name}/file"), Make::File).expect("made");
        rig.call(Op::Write { node: file, offset: 0, data: name.as_bytes() }).expect("written");
        rig.admin(&admin::SnapCreate { path: format!("/{name}"), name: "s".into() });
        rig.call(Op::Write { node: file, offset: 0, data: b"after" }).expect("written");
    }
    for shard in 0..3 {
        let old = rig.at(&format!("/v{shard}/.snap/s/file")).expect("in the snapshot");
        assert!(old.is_view());
        assert_eq!(old.shard(), shard);
        let read = rig.call(Op::Read { node: old, offset: 0, len: 99 }).and_then(Reply::data).expect("read");
        assert_eq!(read, format!("v{shard}").as_bytes());
    }
    rig.clean();
}

struct InDir {
    env: Env,
    dir: tempfile::TempDir,
}

impl InDir {
    fn new() -> InDir {
        let (env, dir) = (Env::sim(1), tempfile::tempdir().expect("a directory"));
        Cell::create(&env, dir.path(), &Config::default()).expect("a cell");
        InDir { env, dir }
    }

    fn open(&self) -> Arc<Cell> {
        Cell::open(&self.env, self.dir.path(), &Config::default()).expect("opened")
    }
}

fn ask<R: Request>(cell: &Cell, request: &R) -> R::Reply {
    cell.admin(request, &mut |_| ()).expect("done")
}

fn refused<R: Request>(cell: &Cell, request: &R) -> String {
    cell.admin(request, &mut |_| ()).expect_err("refused").message
}

fn find(cell: &Cell, dir: NodeId, name: &str) -> NodeId {
    let look = Op::Lookup { dir, name: name.as_bytes() };
    cell.call(&Ctx::system(), look).and_then(Reply::attr).expect("found").node
}

#[test]
fn a_cell_in_a_directory_gets_more_shards() {
    let place = InDir::new();
    let cell = place.open();
    ask(&cell, &new("old", "/old"));
    assert_eq!(ask(&cell, &admin::ShardAdd { count: 2 }), admin::ShardsAdded { now: 1, then: 3 });
    assert_eq!(shard_of(&ask(&cell, &new("older", "/older"))), 0, "they come with the next opening");
    // what several cannot have is refused from now on
    let who = leeward_fs::flows::UserOrGroup::User(7);
    let limit = admin::OwnerLimit { volume: None, who, bytes: Some(5), files: None };
    assert!(refused(&cell, &limit).contains("name a volume"));
    cell.close().expect("closed");
    drop(cell);
    let cell = place.open();
    let made = |n: usize| shard_of(&ask(&cell, &new(&format!("v{n}"), &format!("/v{n}"))));
    assert_eq!((0..5).map(made).collect::<Vec<usize>>(), [1, 2, 1, 2, 1], "three volumes are in the first");
    let names = ["old", "v0", "v1"];
    for (n, name) in names.into_iter().enumerate() {
        let dir = find(&cell, NodeId::ROOT, name);
        let make = Op::Make { dir, name: b"f", make: Make::File, mode: 0o644, umask: 0 };
        let node = cell.call(&Ctx::system(), make).and_then(Reply::attr).expect("made").node;
        let data = noise(100_000, n as u64);
        cell.call(&Ctx::system(), Op::Write { node, offset: 0, data: &data }).expect("written");
    }
    assert_eq!(ask(&cell, &admin::ShardAdd { count: 1 }), admin::ShardsAdded { now: 3, then: 4 });
    cell.close().expect("closed");
    drop(cell);
    let cell = place.open();
    let shards = ask(&cell, &admin::ShardList {}).shards;
    assert_eq!(shards.iter().map(|shard| shard.volumes).collect::<Vec<u64>>(), [3, 3, 2, 0]);
    for (n, name) in names.into_iter().enumerate() {
        let node = find(&cell, find(&cell, NodeId::ROOT, name), "f");
        let read =
            cell.call(&Ctx::system(), Op::Read { node, offset: 0, len: 1 << 20 }).and_then(Reply::data);
        assert!(read.expect("read") == noise(100_000, n as u64), "{name}");
    }
    assert_eq!(ask(&cell, &admin::Fsck).findings, []);
    assert!(refused(&cell, &admin::ShardAdd { count: 29 }).contains("32 are the most"));
    cell.close().expect("closed");
}

#[test]
fn what_several_shards_cannot_have_is_refused() {
    let place = InDir::new();
    let cell = place.open();
    let who = leeward_fs::flows::UserOrGroup::User(7);
    let limit = |bytes| admin::OwnerLimit { volume: None, who, bytes: Some(bytes), files: None };
    ask(&cell, &limit(5));
    let add = admin::ShardAdd { count: 1 };
    assert!(refused(&cell, &add).contains("1 users or groups have limits everywhere"));
    ask(&cell, &limit(0));
    assert_eq!(ask(&cell, &add).then, 2);
    cell.close().expect("closed");
    let rig = Rig::of_shards(2);
    assert_eq!(rig.ask(&limit(5)).expect_err("refused").errno, libc::EOPNOTSUPP);
}

#[test]
fn a_cell_of_an_older_format_has_one_shard_until_it_is_raised() {
    let place = InDir::new();
    let path = place.dir.path().join("cell");
    let text = std::fs::read_to_string(&path).expect("the identity");
    std::fs::write(&path, text.replace(&format!(": {FORMAT},"), &format!(": {FORMAT_KEPT},")))
        .expect("older");
    let cell = place.open();
    let add = admin::ShardAdd { count: 1 };
    assert!(refused(&cell, &add).contains("lee upgrade"));
    ask(&cell, &admin::FormatRaise {});
    assert_eq!(ask(&cell, &add).then, 2);
    cell.close().expect("closed");
    assert!(std::fs::read_to_string(&path).expect("the identity").contains("\"shards\": 2"));
}

/// What was synced is there after the power has failed, in all shards, and nothing is damaged.
#[test]
fn what_was_synced_in_any_shard_survives_a_power_cut() {
    for seed in 0..40 {
        let mut rig = Rig::of_shards(3);
        let volumes: Vec<String> = (0..3)
            .map(|shard| rig.volume_in(shard, &format!("v{shard}"), &format!("/v{shard}")).at)
            .collect();
        let mut random = noise(4096, seed).into_iter().cycle();
        let mut next = move |below: usize| usize::from(random.next().expect("endless")) % below;
        let (mut now, mut synced) = (BTreeMap::new(), BTreeMap::new());
        for step in 0..60 {
            let path = format!("{}/f{}", volumes[next(3)], next(4));
            match next(6) {
                0 if now.remove(&path).is_some() => rig.unlink(&path),
                1 => {
                    rig.call(Op::SyncAll).expect("durable");
                    synced = now.clone();
                }
                2 => drop(rig.cell.step_one(next(256) as u64).expect("a step")),
                _ => {
                    let node = rig.at(&path).or_else(|_| rig.make(&path, Make::File)).expect("a file");
                    let data = noise(1 + next(200) * 400, step);
                    rig.call(Op::SetAttr { node, set: SetAttr { size: Some(0), ..SetAttr::default() } })
                        .expect("cut");
                    rig.call(Op::Write { node, offset: 0, data: &data }).expect("written");
                    now.insert(path, data);
                }
            }
        }
        // nothing has changed since, so what is there is what was synced
        if next(2) == 0 {
            rig.call(Op::SyncAll).expect("durable");
            synced = now.clone();
        }
        let is_all = synced == now;
        rig.disk.power_off();
        rig.others.iter().for_each(SimDisk::power_off);
        rig.power_cut(seed);
        for (path, data) in synced.iter().filter(|(path, _)| is_all || now.get(*path) == synced.get(*path)) {
            let node = rig.at(path).unwrap_or_else(|e| panic!("{seed}: {path}: {e}"));
            let read = rig.call(Op::Read { node, offset: 0, len: 1 << 20 }).and_then(Reply::data);
            assert!(read.as_ref() == Ok(data), "{seed}: {path}");
        }
        rig.clean();
    }
}

fn client(call: Option<CallNumber>) -> Ctx {
    Ctx { client: 1, door: Door::Remote, refs: true, call, ..Ctx::user(0, 0) }
}

impl Rig {
    /// Two shards, a volume in each, and a session that is stored.
    fn of_two_served() -> (Rig, [NodeId; 2]) {
        let rig = Rig::of_shards(2);
        let roots = [0, 1].map(|shard| {
            NodeId::new(rig.volume_in(shard, &format!("v{shard}"), &format!("/v{shard}")).id, 1)
        });
        let session =
            SessionRecord { number: 1, secret: [1; 16], key: [2; 32], away: false, expelled: false };
        rig.cell.store_session(&session).expect("stored");
        rig.cell.commit().expect("committed");
        (rig, roots)
    }

    fn told_in(&self, call: u32, dir: NodeId, name: &[u8]) -> Told {
        let number = CallNumber { slot: 3, number: call };
        let op = Op::Make { dir, name, make: Make::File, mode: 0o644, umask: 0 };
        self.cell.call(&client(Some(number)), op).expect("made");
        take_told().expect("told")
    }

    /// One shard commits, and the other does not.
    fn commit_in(&self, shard: u64) {
        const STEPS: u64 = 21;
        const COMMIT: u64 = 4;
        self.cell.step_one(COMMIT + shard * STEPS).expect("committed");
    }

    fn durable_in_all(&self) -> u64 {
        // it looks a step further each time
        (0..3).for_each(|_| _ = self.cell.durable_up_to());
        self.cell.durable_up_to()
    }
}

#[test]
fn what_is_durable_is_durable_in_all_shards() {
    let (rig, [first, second]) = Rig::of_two_served();
    let a = rig.told_in(1, first, b"a").lsn;
    let b = rig.told_in(2, second, b"b").lsn;
    let c = rig.told_in(3, first, b"c").lsn;
    assert!(a < b && b < c, "one sequence over both: {a} {b} {c}");
    assert!(rig.durable_in_all() < a);
    rig.commit_in(0);
    assert!(rig.durable_in_all() < b, "the second shard has committed nothing");
    rig.commit_in(1);
    assert!(rig.durable_in_all() >= c);
    let d = rig.told_in(4, second, b"d").lsn;
    rig.commit_in(0);
    assert!((c..d).contains(&rig.durable_in_all()));
    rig.commit_in(1);
    assert!(rig.durable_in_all() >= d);
    assert_eq!(
        rig.cell.outcomes(1).expect("outcomes"),
        [(
            3,
            Outcome { call: 4, told: Told { lsn: d, ..rig.cell.outcomes(1).expect("outcomes")[0].1.told } }
        )]
    );
}

#[test]
fn a_change_that_one_shard_has_lost_is_done_again_and_no_other() {
    let (mut rig, [first, second]) = Rig::of_two_served();
    let a = rig.told_in(1, first, b"a");
    let b = rig.told_in(2, second, b"b");
    rig.commit_in(0);
    rig.power_cut(7);
    assert_eq!(rig.cell.sessions().len(), 1);
    let make = |dir, name| Op::Make { dir, name, make: Make::File, mode: 0o644, umask: 0 };
    assert_eq!(rig.cell.do_again(&client(None), &make(first, b"a"), a), Ok(None), "it is there");
    let again = rig.cell.do_again(&client(None), &make(second, b"b"), b).expect("done again");
    assert_eq!(again.expect("an answer").attr().expect("made").node, NodeId(b.node));
    assert_eq!(rig.cell.do_again(&client(None), &make(second, b"b"), b), Ok(None), "once");
    rig.cell.go_on().expect("goes on");
    let later = rig.told_in(3, first, b"later");
    assert!(later.lsn > b.lsn);
    rig.clean();
}
