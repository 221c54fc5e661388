//! A cell of several shards: what is in one of them, and what crosses their borders.

use crate::rig::{Rig, noise};
use leeward_env::disk::sim::Fault;
use leeward_env::{Ctx, Env};
use leeward_fs::{Error, Fs, Make, NodeId, Op, Precondition, RenameMode, Reply};
use leeward_volume::admin::{self, Request, VolumeCreate, VolumeCreateIn, VolumeInfo};
use leeward_volume::{Cell, Config, FORMAT, FORMAT_KEPT};

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

#[test]
fn a_cell_in_a_directory_gets_more_shards() {
    let (env, config, place) = (Env::sim(1), Config::default(), tempfile::tempdir().expect("a directory"));
    let dir = place.path();
    Cell::create(&env, dir, &config).expect("a cell");
    let text = std::fs::read_to_string(dir.join("cell")).expect("the identity");
    std::fs::write(dir.join("cell"), text.replace(&format!(": {FORMAT},"), &format!(": {FORMAT_KEPT},")))
        .expect("older");
    let open = || Cell::open(&env, dir, &config).expect("opened");
    fn ask<R: Request>(cell: &Cell, request: &R) -> R::Reply {
        cell.admin(request, &mut |_| ()).expect("done")
    }
    let cell = open();
    assert_eq!(cell.format(), FORMAT_KEPT);
    ask(&cell, &new("old", "/old"));
    let refused = Cell::add_shards(&env, dir, &config, 1).expect_err("it is open");
    assert_eq!(refused.errno, libc::EBUSY, "{refused}");
    cell.close().expect("closed");
    drop(cell);
    assert_eq!(Cell::add_shards(&env, dir, &config, 2).expect("added"), 3);
    let cell = open();
    assert_eq!(cell.format(), FORMAT);
    let made: Vec<usize> =
        (0..4).map(|n| shard_of(&ask(&cell, &new(&format!("v{n}"), &format!("/v{n}"))))).collect();
    assert_eq!(made, [1, 2, 1, 2], "two volumes are in the first");
    for (n, name) in ["old", "v0", "v1"].into_iter().enumerate() {
        let look = Op::Lookup { dir: NodeId::ROOT, name: name.as_bytes() };
        let root = cell.call(&Ctx::system(), look).and_then(Reply::attr).expect("found").node;
        let make = Op::Make { dir: root, name: b"f", make: Make::File, mode: 0o644, umask: 0 };
        let node = cell.call(&Ctx::system(), make).and_then(Reply::attr).expect("made").node;
        let data = noise(100_000, n as u64);
        cell.call(&Ctx::system(), Op::Write { node, offset: 0, data: &data }).expect("written");
    }
    cell.close().expect("closed");
    drop(cell);
    assert_eq!(Cell::add_shards(&env, dir, &config, 1).expect("added"), 4);
    let cell = open();
    let volumes: Vec<u64> =
        ask(&cell, &admin::ShardList {}).shards.iter().map(|shard| shard.volumes).collect();
    assert_eq!(volumes, [2, 2, 2, 0]);
    for (n, name) in ["old", "v0", "v1"].into_iter().enumerate() {
        let look = |dir, name| {
            cell.call(&Ctx::system(), Op::Lookup { dir, name }).and_then(Reply::attr).expect("found").node
        };
        let node = look(look(NodeId::ROOT, name.as_bytes()), b"f");
        let read =
            cell.call(&Ctx::system(), Op::Read { node, offset: 0, len: 1 << 20 }).and_then(Reply::data);
        assert!(read.expect("read") == noise(100_000, n as u64), "{name}");
    }
    assert_eq!(ask(&cell, &admin::Fsck).findings, []);
    cell.close().expect("closed");
    let most = Cell::add_shards(&env, dir, &config, 99).expect_err("too many");
    assert!(most.message.contains("32 are the most"), "{most}");
}

#[test]
fn what_several_shards_cannot_have_is_refused() {
    let (env, config, place) = (Env::sim(1), Config::default(), tempfile::tempdir().expect("a directory"));
    Cell::create(&env, place.path(), &config).expect("a cell");
    let cell = Cell::open(&env, place.path(), &config).expect("opened");
    let who = leeward_fs::flows::UserOrGroup::User(7);
    let limit = admin::OwnerLimit { volume: None, who, bytes: Some(5), files: None };
    cell.admin(&limit, &mut |_| ()).expect("limited");
    cell.close().expect("closed");
    drop(cell);
    let refused = Cell::add_shards(&env, place.path(), &config, 1).expect_err("refused");
    assert!(refused.message.contains("1 users or groups have limits in all volumes"), "{refused}");
    let rig = Rig::of_shards(2);
    assert_eq!(rig.ask(&limit).expect_err("refused").errno, libc::EOPNOTSUPP);
}
