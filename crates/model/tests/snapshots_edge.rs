//! Snapshots of a real cell at its edges: the last volume number, a full disk, a broken engine,
//! open files without a name, volumes that are removed while trim goes on, durability by fsync,
//! cells of format 1.

use crate::sim::{SimCell, noise};
use leeward_env::Env;
use leeward_env::disk::sim::Fault;
use leeward_fs::{Error, Make, NodeId, Op, Reply, VIEW_FIRST, XattrMode};
use leeward_volume::admin;
use leeward_volume::first_batch;
use leeward_volume::format::inode::{Inode, Pair};
use leeward_volume::format::keys;

const MIB: usize = 1 << 20;

fn file(cell: &SimCell, dir: NodeId, name: &str, len: usize, seed: u64) -> NodeId {
    let node = cell.make_in(dir, name, Make::File).expect("made");
    for (n, part) in noise(len, seed).chunks(MIB).enumerate() {
        cell.write(node, (n * MIB) as u64, part).expect("written");
    }
    node
}

fn create(cell: &SimCell, name: &str) -> Result<NodeId, i32> {
    let request =
        admin::VolumeCreate { name: name.into(), at: format!("/{name}"), uid: 0, gid: 0, pool: None };
    cell.admin(&request).map_err(|e| e.errno)?;
    Ok(cell.at(name).expect("attached"))
}

#[test]
fn numbers_of_volumes_end_where_those_of_views_begin() {
    let counters = Pair(u64::from(VIEW_FIRST) - 1, 1);
    let cell = SimCell::with(vec![(keys::cell(), Some(counters.encode()))]);
    let last = create(&cell, "a").expect("the last one");
    assert_eq!(last.volume(), VIEW_FIRST - 1);
    assert_eq!(create(&cell, "b"), Err(Error::NoSpace.errno()));
    file(&cell, last, "f", 100, 1);
    cell.take("/a/.snap/s");
    cell.unlink("/a/f");
    cell.settle();
    assert_eq!(cell.read(cell.at("/a/.snap/s/f").expect("there"), 200), Ok(noise(100, 1)));
}

#[test]
fn a_full_disk_takes_no_snapshots() {
    let cell = SimCell::new();
    cell.disk.set_capacity(40 * MIB as u64);
    for n in 0..20 {
        file(&cell, NodeId::ROOT, &format!("f{n}"), MIB, n);
    }
    let (last, mut end) = (cell.make("last", Make::File), 0);
    for size in [MIB, 64 << 10, 4 << 10, 1] {
        while cell.write(last, end, &noise(size, end)).is_ok() {
            end += size as u64;
        }
    }
    assert_eq!(cell.make_in(NodeId::ROOT, "x", Make::File), Err(Error::NoSpace));
    assert_eq!(cell.take_as(0, "/.snap/s"), Err(Error::NoSpace));
    for n in 0..10 {
        cell.unlink(&format!("/f{n}"));
    }
    while cell.cell.step().expect("background work") {}
    cell.take("/.snap/s");
    cell.remove_as(0, "/.snap/s").expect("removed");
    cell.settle();
}

#[test]
fn a_broken_cell_takes_and_removes_no_snapshots() {
    let cell = SimCell::new();
    cell.take("/.snap/s");
    cell.call(Op::SyncAll).expect("durable");
    cell.make("x", Make::File);
    cell.disk.fail_at(cell.disk.mutations(), Fault::Eio);
    cell.call(Op::SyncAll).expect_err("nothing can be written");
    assert!(matches!(cell.take_as(0, "/.snap/t"), Err(Error::Io(_))));
    assert!(matches!(cell.remove_as(0, "/.snap/s"), Err(Error::Io(_))));
    assert_eq!(cell.list("/.snap"), ["s"], "looking goes on");
}

#[test]
fn a_snapshot_holds_nothing_of_files_that_had_no_name_when_it_was_taken() {
    for len in [1000, 20 * MIB] {
        let cell = SimCell::new();
        file(&cell, NodeId::ROOT, "f", len, 1);
        cell.take("/.snap/before");
        cell.call(Op::SyncAll).expect("durable");
        let node = cell.open("f");
        cell.unlink("/f");
        cell.take("/.snap/s");
        cell.call(Op::Forget { node, count: 1 }).expect("forgotten");
        cell.settle();
        let read = cell.read(cell.at("/.snap/before/f").expect("there"), MIB);
        assert_eq!(read, Ok(noise(len, 1)[..len.min(MIB)].to_vec()));
        cell.remove_as(0, "/.snap/before").expect("removed");
        cell.settle();
        assert_eq!(cell.df().live_bytes, 0, "of {len}");
        assert!(cell.list("/.snap/s").is_empty());
    }
}

#[test]
fn a_volume_is_freed_while_its_snapshots_are_trimmed_and_across_an_opening() {
    let cell = SimCell::new();
    let home = create(&cell, "home").expect("made");
    for n in 0..600 {
        file(&cell, home, &format!("f{n}"), 10, n);
    }
    cell.take("/home/.snap/s");
    for n in 0..600 {
        cell.unlink(&format!("/home/f{n}"));
    }
    cell.take("/home/.snap/t");
    cell.remove_as(0, "/home/.snap/s").expect("removed");
    cell.cell.step().expect("a part of trim");
    cell.admin(&admin::VolumeRemove { name: "home".into() }).expect("removed");
    cell.cell.step().expect("a part of freeing");
    let cell = cell.reopened();
    cell.settle();
    assert_eq!((cell.df().live_bytes, cell.df().segments), (0, 0));
    cell.reopened().settle();
}

#[test]
fn fsync_within_a_snapshot_makes_the_snapshot_durable() {
    for path in ["/d/.snap", "/d/.snap/s", "/d/.snap/s/f"] {
        let cell = SimCell::new();
        let dir = cell.make("d", Make::Dir);
        file(&cell, dir, "f", MIB, 1);
        cell.take("/d/.snap/s");
        let node = cell.at(path).expect("there");
        cell.call(Op::Fsync { node }).expect("durable");
        let cell = cell.after_power_cut();
        let old = cell.at("/d/.snap/s/f").unwrap_or_else(|e| panic!("after fsync of {path}: {e}"));
        assert_eq!(cell.read(old, MIB), Ok(noise(MIB, 1)), "after fsync of {path}");
    }
}

#[test]
fn attributes_of_format_1_are_in_snapshots_and_move_when_they_are_written() {
    let first = first_batch(&Env::sim(1), 0, 0).writes;
    let root =
        first.into_iter().find(|(key, _)| *key == keys::inode(NodeId::ROOT)).and_then(|(_, value)| value);
    let root = Inode { xattrs: 2, ..Inode::decode(&root.expect("there")).expect("an inode") };
    let cell = SimCell::with(vec![
        (keys::inode(NodeId::ROOT), Some(root.encode())),
        (keys::xattr_plain(NodeId::ROOT, b"user.a"), Some(b"1"[..].into())),
        (keys::xattr_plain(NodeId::ROOT, b"user.b"), Some(b"2"[..].into())),
    ]);
    let get = |node, name: &str| match cell.call(Op::GetXattr { node, name: name.as_bytes() }) {
        Ok(Reply::Data(value)) => Some(String::from_utf8(value).expect("text")),
        Err(Error::NoData) => None,
        other => panic!("{other:?}"),
    };
    let names = |node| match cell.call(Op::ListXattr { node }) {
        Ok(Reply::Names(names)) => names.len(),
        other => panic!("{other:?}"),
    };
    let set = |name: &str, value: &[u8]| {
        let op = Op::SetXattr { node: NodeId::ROOT, name: name.as_bytes(), value, mode: XattrMode::Set };
        cell.call(op).expect("set");
    };
    set("user.b", b"3");
    cell.take("/.snap/s");
    set("user.a", b"4");
    cell.take("/.snap/t");
    cell.call(Op::RemoveXattr { node: NodeId::ROOT, name: b"user.a" }).expect("removed");
    cell.settle();
    let (s, t) = (cell.at("/.snap/s").expect("there"), cell.at("/.snap/t").expect("there"));
    for (node, a, count) in [(s, Some("1"), 2), (t, Some("4"), 2), (NodeId::ROOT, None, 1)] {
        assert_eq!((get(node, "user.a").as_deref(), names(node)), (a, count), "{node:?}");
        assert_eq!(get(node, "user.b").as_deref(), Some("3"), "{node:?}");
    }
    cell.remove_as(0, "/.snap/s").expect("removed");
    cell.settle();
    assert_eq!(get(t, "user.a").as_deref(), Some("4"));
}
