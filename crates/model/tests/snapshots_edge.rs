//! Snapshots of a real cell at its edges: the last volume number, a full disk, a broken engine, open files without a name,
//! volumes that are removed while trim goes on, durability by fsync.
#![allow(missing_docs)]

mod sim;

use leeward_env::Ctx;
use leeward_env::disk::sim::Fault;
use leeward_volume::admin::Request;
use leeward_volume::inode::Pair;
use leeward_volume::op::Make;
use leeward_volume::{Error, NodeId, Op, Reply, keys};
use sim::{SimCell, noise};

const MIB: usize = 1 << 20;

fn file(cell: &SimCell, dir: NodeId, name: &str, len: usize, seed: u64) -> NodeId {
    let node = cell.make_in(dir, name, Make::File).expect("made");
    for (n, part) in noise(len, seed).chunks(MIB).enumerate() {
        cell.write(node, (n * MIB) as u64, part).expect("written");
    }
    node
}

fn create(cell: &SimCell, name: &str) -> Result<NodeId, i32> {
    let request = Request::VolumeCreate { name: name.into(), at: format!("/{name}"), uid: 0, gid: 0 };
    cell.admin(&request).map_err(|e| e.errno)?;
    Ok(cell.at(name).expect("attached"))
}

#[test]
fn numbers_of_volumes_end_where_those_of_views_begin() {
    let counters = Pair(u64::from(keys::VIEW_FIRST) - 1, 1);
    let cell = SimCell::with(vec![(keys::cell(), Some(counters.encode()))]);
    let last = create(&cell, "a").expect("the last one");
    assert_eq!(last.volume(), keys::VIEW_FIRST - 1);
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
        let open = Ctx { refs: true, ..Ctx::user(0, 0) };
        let node = match cell.cell.call(&open, Op::Lookup { dir: NodeId::ROOT, name: b"f" }) {
            Ok(Reply::Attr(attr)) => attr.node,
            other => panic!("{other:?}"),
        };
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
    cell.admin(&Request::VolumeRemove { name: "home".into() }).expect("removed");
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
