//! Snapshots of a real cell on a simulated disk: what random steps do not reach. Volumes, rights,
//! ACLs, quotas, space.

use crate::sim::{SimCell, noise};
use leeward_fs::{Error, Make, NodeId, Op, Reply, SetAttr, XattrMode};
use leeward_volume::admin;

const MIB: usize = 1 << 20;

fn volume(cell: &SimCell, name: &str, at: &str, uid: u32) -> NodeId {
    let request = admin::VolumeCreate { name: name.into(), at: at.into(), uid, gid: uid, pool: None };
    cell.admin(&request).expect("a volume");
    cell.at(at).expect("attached")
}

fn file(cell: &SimCell, dir: NodeId, name: &str, len: usize, seed: u64) -> NodeId {
    let node = cell.make_in(dir, name, Make::File).expect("made");
    for (n, part) in noise(len, seed).chunks(MIB).enumerate() {
        cell.write(node, (n * MIB) as u64, part).expect("written");
    }
    node
}

#[test]
fn root_and_the_owner_of_a_volume_take_and_remove_snapshots() {
    let cell = SimCell::new();
    let home = volume(&cell, "home", "/home", 1000);
    cell.make_in(home, "d", Make::Dir).expect("made");
    assert_eq!(cell.take_as(1000, "/.snap/s"), Err(Error::NotPermitted));
    assert_eq!(cell.take_as(1001, "/home/.snap/s"), Err(Error::NotPermitted));
    for (uid, path) in [(1000, "/home/.snap/s"), (1000, "/home/d/.snap/s"), (0, "/home/d/.snap/t")] {
        cell.take_as(uid, path).expect("allowed");
        assert_eq!(cell.remove_as(1001, path), Err(Error::NotPermitted));
    }
    assert_eq!(cell.remove_as(1000, "/home/d/.snap/t"), Ok(()), "whoever took it");
    assert_eq!(cell.remove_as(1000, "/home/d/.snap/t"), Err(Error::NotFound));
}

#[test]
fn snapshots_do_not_cross_volumes() {
    let cell = SimCell::new();
    let home = volume(&cell, "home", "/home", 0);
    file(&cell, home, "f", 10, 1);
    cell.make("d", Make::Dir);
    cell.take("/.snap/s");
    assert_eq!(cell.list("/.snap/s"), ["d"], "an attached volume is absent");
    assert_eq!(cell.at("/.snap/s/home"), Err(Error::NotFound));
    assert_eq!(cell.list("/d/.snap"), ["_s_1"]);
    assert!(cell.list("/home/.snap").is_empty());
    cell.take("/home/.snap/s");
    assert_eq!(cell.read(cell.at("/home/.snap/s/f").expect("there"), 100), Ok(noise(10, 1)));
    cell.settle();
    cell.admin(&admin::VolumeRemove { name: "home".into() }).expect("removed with its snapshots");
    cell.settle();
    assert_eq!(cell.list("/.snap/s"), ["d"]);
    assert_eq!(cell.df().live_bytes, 0);
}

#[test]
fn access_control_lists_are_kept_and_statistics_are_not() {
    let cell = SimCell::new();
    let node = file(&cell, NodeId::ROOT, "f", 1000, 1);
    let name = &b"system.posix_acl_access"[..];
    // user::rw-, user:1000:rw-, group::r--, mask::rw-, other::---
    let entries: [(u16, u16, u32); 5] = [(1, 6, !0), (2, 6, 1000), (4, 4, !0), (16, 6, !0), (32, 0, !0)];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        acl.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    let value = |node| cell.call(Op::GetXattr { node, name });
    cell.call(Op::SetXattr { node, name, value: &acl, mode: XattrMode::Set }).expect("set");
    cell.take("/.snap/s");
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    cell.call(Op::SetAttr { node, set }).expect("changed");
    assert_ne!(value(node), Ok(Reply::Data(acl.clone())));
    cell.take("/.snap/t");
    cell.call(Op::RemoveXattr { node, name }).expect("removed");
    let old = cell.at("/.snap/s/f").expect("there");
    assert_eq!(value(old), Ok(Reply::Data(acl)));
    assert!(matches!(value(cell.at("/.snap/t/f").expect("there")), Ok(Reply::Data(_))));
    for name in [&b"leeward.rbytes"[..], b"leeward.rfiles", b"leeward.rdirs"] {
        assert!(cell.call(Op::GetXattr { node: NodeId::ROOT, name }).is_ok());
        let old = cell.at("/.snap/s").expect("there");
        assert_eq!(cell.call(Op::GetXattr { node: old, name }), Err(Error::NoData));
    }
    cell.settle();
}

#[test]
fn quotas_count_live_data() {
    let cell = SimCell::new();
    let dir = cell.make("q", Make::Dir);
    cell.quota(&admin::QuotaSet { path: "/q".into(), bytes: Some(10_000), files: Some(1) });
    for seed in 0..3 {
        file(&cell, dir, "f", 10_000, seed);
        cell.take(&format!("/q/.snap/s{seed}"));
        cell.unlink("/q/f");
    }
    for seed in 0..3 {
        let old = cell.at(&format!("/q/.snap/s{seed}/f")).expect("there");
        assert_eq!(cell.read(old, 20_000), Ok(noise(10_000, seed)));
    }
    let info = cell.quota(&admin::QuotaShow { path: "/q".into() });
    assert_eq!((info.used_bytes, info.used_files), (0, 0));
    cell.settle();
    assert_eq!(cell.df().live_bytes, 30_000);
}

#[test]
fn what_only_a_removed_snapshot_held_is_freed() {
    let cell = SimCell::new();
    let a = file(&cell, NodeId::ROOT, "a", 4 * MIB, 1);
    cell.call(Op::SyncAll).expect("durable");
    cell.take("/.snap/s");
    cell.write(a, 0, &noise(MIB, 2)).expect("written");
    cell.take("/.snap/t");
    cell.unlink("/a");
    cell.settle();
    assert_eq!(cell.df().live_bytes, 5 * MIB as u64);
    cell.remove_as(0, "/.snap/s").expect("removed");
    cell.settle();
    assert_eq!(cell.df().live_bytes, 4 * MIB as u64, "the first MiB as it was in s");
    let cell = cell.reopened();
    assert_eq!(cell.read(cell.at("/.snap/t/a").expect("there"), MIB), Ok(noise(MIB, 2)));
    cell.remove_as(0, "/.snap/t").expect("removed");
    cell.settle();
    assert_eq!(cell.df().live_bytes, 0);
    assert_eq!(cell.df().segments, 0);
}

/// It is in no snapshot.
#[test]
fn an_open_file_without_a_name_is_freed_when_it_is_closed() {
    let cell = SimCell::new();
    file(&cell, NodeId::ROOT, "f", MIB, 1);
    cell.call(Op::SyncAll).expect("durable");
    let node = cell.open("f");
    cell.unlink("/f");
    cell.take("/.snap/s");
    assert!(cell.list("/.snap/s").is_empty());
    assert_eq!(cell.read(node, MIB), Ok(noise(MIB, 1)));
    cell.call(Op::Forget { node, count: 1 }).expect("forgotten");
    cell.settle();
    assert_eq!(cell.df().live_bytes, 0);
}

#[test]
fn restoring_a_file_shares_its_data() {
    let cell = SimCell::new();
    let node = file(&cell, NodeId::ROOT, "f", MIB, 1);
    cell.call(Op::SyncAll).expect("durable");
    cell.take("/.snap/s");
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    cell.call(Op::SetAttr { node, set }).expect("emptied");
    let old = cell.at("/.snap/s/f").expect("there");
    let copy = Op::CopyRange { from: old, from_offset: 0, to: node, to_offset: 0, len: MIB as u64 };
    assert_eq!(cell.call(copy), Ok(Reply::Written(MIB as u64)));
    assert_eq!(cell.read(node, MIB), Ok(noise(MIB, 1)));
    cell.settle();
    let stored = cell.df().segment_bytes;
    assert!(stored < 3 * MIB as u64 / 2, "{stored} bytes are stored for one MiB");
    let back = Op::CopyRange { from: node, from_offset: 0, to: old, to_offset: 0, len: 1 };
    assert_eq!(cell.call(back), Err(Error::ReadOnly));
    cell.remove_as(0, "/.snap/s").expect("removed");
    cell.settle();
    assert_eq!(cell.read(node, MIB), Ok(noise(MIB, 1)));
}

#[test]
fn names_of_snapshots_are_found_wherever_they_are_listed() {
    let cell = SimCell::new();
    let dir = cell.make("d", Make::Dir);
    cell.make_in(dir, "e", Make::Dir).expect("made");
    let longest =
        (1..=255).rev().find(|len| cell.take_as(0, &format!("/d/.snap/{}", "s".repeat(*len))).is_ok());
    assert_eq!(longest, Some(234));
    cell.take("/.snap/a_b_1");
    for path in ["/d/.snap", "/d/e/.snap"] {
        let names = cell.list(path);
        assert_eq!(names.len(), 2, "{names:?}");
        for name in names {
            cell.at(&format!("{path}/{name}")).unwrap_or_else(|e| panic!("{path}/{name}: {e}"));
        }
    }
    assert_eq!(cell.take_as(0, "/d/.snap/_x"), Err(Error::Invalid));
    assert_eq!(cell.take_as(0, "/d/.snap/.snap"), Err(Error::Invalid));
    assert_eq!(cell.remove_as(0, "/d/.snap/_a_b_1_1"), Err(Error::NotPermitted));
    assert_eq!(cell.at("/d/.snap/_a_b_1_01"), Err(Error::NotFound), "one spelling");
}

#[test]
fn a_removed_snapshot_is_stale_and_its_name_is_free() {
    let cell = SimCell::new();
    let node = file(&cell, NodeId::ROOT, "f", 100, 1);
    let root = cell.take("/.snap/s");
    let old = cell.at("/.snap/s/f").expect("there");
    cell.write(node, 0, &noise(100, 2)).expect("written");
    cell.remove_as(0, "/.snap/s").expect("removed");
    assert_eq!(cell.at("/.snap/s"), Err(Error::NotFound));
    for node in [root, old] {
        assert_eq!(cell.call(Op::GetAttr { node }), Err(Error::Stale));
    }
    assert_eq!(cell.read(old, 100), Err(Error::Stale));
    cell.take("/.snap/s");
    assert_eq!(cell.read(cell.at("/.snap/s/f").expect("there"), 100), Ok(noise(100, 2)));
    cell.settle();
}
