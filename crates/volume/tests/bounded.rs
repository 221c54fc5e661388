//! What one user does takes a bounded number of steps and records, also while others write, and
//! when he means harm.

use crate::rig;
use crate::rig::counted::{busy, counted, counted_with};
use crate::rig::{Rig, noise};
use leeward_env::Ctx;
use leeward_fs::{
    Allocate, Error, Fs, Make, NodeId, Op, Precondition, RenameMode, Reply, Seek, SetAttr, XattrMode,
};
use leeward_meta::{Batch, Kv, Value};
use leeward_volume::Config;
use leeward_volume::admin::{self, PropertyChanges};
use leeward_volume::format::keys::{self, Key};
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
/// What one window's record may take, whatever is written.
const RECORD_BYTES_MAX: usize = 512 << 10;

impl Rig {
    fn resize(&self, node: NodeId, size: u64) {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        match self.call(Op::SetAttr { node, set }) {
            Ok(Reply::Attr(attr)) => assert_eq!(attr.size, size),
            other => panic!("{other:?}"),
        }
        assert_eq!(self.attr(node).size, size);
    }

    fn link(&self, node: NodeId, dir: NodeId, name: &str) {
        self.call(Op::Link { node, dir, name: name.as_bytes() }).expect("linked");
    }
}

/// Both names are new in one step, and what the second one reads is of the inode that the first one
/// has made.
#[test]
fn a_directory_with_two_names_of_one_file_comes_back() {
    let mut rig = Rig::new();
    let dir = rig.dir("d");
    rig.dir("d/t");
    let (a, b) = (rig.file("d/t/a", b"content"), rig.make("d/t/fifo", Make::Fifo).expect("made"));
    let t = rig.at("d/t").expect("there");
    for n in 0..5 {
        rig.link(a, t, &format!("a{n}"));
    }
    rig.link(b, t, "fifo2");
    rig.link(a, dir, "above");
    rig.dir("d/.snap/s");
    rig.unlink("d/t/a");
    rig.idle();
    let request = |what: &str, to: Option<&str>| admin::SnapRestore {
        path: "/d".into(),
        name: "s".into(),
        what: what.into(),
        to: to.map(Into::into),
        in_place: to.is_none(),
    };
    let links = |rig: &Rig, path: &str| rig.attr(rig.at(path).expect(path)).nlink;
    rig.admin(&request("t", Some("/d/copy")));
    assert_eq!((links(&rig, "d/copy/a"), links(&rig, "d/copy/fifo")), (6, 2));
    rig.clean();
    rig.admin(&request("t", None));
    assert_eq!((links(&rig, "d/t/a4"), links(&rig, "d/t/fifo2")), (6, 2));
    rig.reopen();
    rig.admin(&request("", None));
    assert_eq!((links(&rig, "d/above"), links(&rig, "d/t/a"), links(&rig, "d/t/fifo")), (7, 7, 2));
    assert_eq!(rig.read("d/t/a3").expect("read"), b"content");
    rig.clean();
    rig.reopen();
    assert_eq!(links(&rig, "d/above"), 7);
    rig.clean();
}

/// Each time that anything waits for a segment somebody has written more.
#[test]
fn who_writes_on_and_on_keeps_nobody_from_copying_or_replacing() {
    let (rig, store) = busy();
    let log = rig.file("log", &noise(400_000, 1));
    rig.file("old", b"old");
    let copy = rig.file("copy", b"");
    let cell = rig.cell.clone();
    store.at_each_put(move |n| {
        let more = noise(300_000, n);
        cell.call(&Ctx::system(), Op::Write { node: log, offset: 400_000 + n * 300_000, data: &more })
            .expect("written");
    });
    let op = Op::CopyRange { from: log, from_offset: 0, to: copy, to_offset: 0, len: u64::MAX };
    let Ok(Reply::Written(len)) = rig.call(op) else { panic!("not copied") };
    assert!((400_000..40 << 20).contains(&len), "{len} bytes");
    assert!(store.puts() < 10, "{} puts for a copy", store.puts());
    assert_eq!(rig.read("copy").expect("read")[..400_000], noise(400_000, 1));

    // the same to a file that is being written
    let op = Op::CopyRange { from: copy, from_offset: 0, to: log, to_offset: 0, len: 400_000 };
    assert_eq!(rig.call(op), Ok(Reply::Written(400_000)));
    assert!(store.puts() < 20, "{} puts for a copy", store.puts());

    let before = store.puts();
    rig.rename("log", "old").expect("renamed");
    assert!(store.puts() < before + 10, "{} puts for a rename", store.puts() - before);
    store.quiet();
    rig.clean();
    assert_eq!(rig.read("old").expect("read")[..400_000], noise(400_000, 1));
}

#[test]
fn what_is_written_by_somebody_comes_back_from_the_bin() {
    let (rig, store) = busy();
    rig.admin(&admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 0, gid: 0, pool: None });
    let set = PropertyChanges { bin_days: Some(7), ..PropertyChanges::default() };
    rig.admin(&admin::VolumeSet { name: "v".into(), set });
    let file = rig.file("v/f", &noise(400_000, 1));
    let open = Ctx { refs: true, ..Ctx::system() };
    rig.cell.call(&open, Op::Lookup { dir: rig.at("v").expect("there"), name: b"f" }).expect("open");
    rig.unlink("v/f");
    rig.dir("v/.snap/s");
    let cell = rig.cell.clone();
    store.at_each_put(move |n| {
        let more = noise(300_000, n);
        cell.call(&Ctx::system(), Op::Write { node: file, offset: n * 300_000, data: &more })
            .expect("written");
    });
    let request = admin::BinRestore { path: "/v/f".into(), to: None, at_secs: None };
    rig.admin(&request);
    assert!(store.puts() < 10, "{} puts", store.puts());
    store.quiet();
    rig.clean();
    assert!(rig.at("v/.snap/s/f").is_err(), "it had no name then");
    assert!(rig.attr(rig.at("v/f").expect("back")).size >= 400_000);
}

#[test]
fn single_bytes_at_every_second_byte_make_no_large_record() {
    let (rig, store) = busy();
    let node = rig.make("f", Make::File).expect("made");
    let end = 200_000;
    for at in (0..end).step_by(2) {
        rig.write(node, at, &[(at % 251) as u8 + 1]).expect("written");
        if at % 20_000 == 0 {
            rig.idle();
        }
    }
    let expected: Vec<u8> = (0..end).map(|at| if at % 2 == 0 { (at % 251) as u8 + 1 } else { 0 }).collect();
    assert_eq!(rig.read("f").expect("read"), expected[..expected.len() - 1]);
    rig.clean();
    assert_eq!(rig.read("f").expect("read"), expected[..expected.len() - 1]);
    assert!(store.largest_record() < 32 << 10, "a record of {} bytes", store.largest_record());
    assert!(rig.attr(node).blocks * 512 <= end + 4096);
}

#[test]
fn holes_at_every_second_byte_make_no_large_record() {
    let (rig, store) = busy();
    let data = noise(100_000, 3);
    let node = rig.file("f", &data);
    rig.call(Op::Allocate {
        node,
        offset: 100_000,
        len: 100_000,
        mode: Allocate::Reserve { keep_size: true },
    })
    .expect("reserved");
    let mut expected = data;
    for at in (0..200_000).step_by(2) {
        rig.call(Op::Allocate { node, offset: at, len: 1, mode: Allocate::PunchHole }).expect("punched");
        if at < 100_000 {
            expected[at as usize] = 0;
        }
        if at % 20_000 == 0 {
            rig.idle();
        }
    }
    rig.idle();
    assert_eq!(rig.read("f").expect("read"), expected);
    assert_eq!(rig.attr(node).size, 100_000);
    for at in (300_000..500_000).step_by(2) {
        let mode = Allocate::Reserve { keep_size: at % 3 == 0 };
        rig.call(Op::Allocate { node, offset: at, len: 1, mode }).expect("reserved");
    }
    rig.clean();
    expected.resize(rig.attr(node).size as usize, 0);
    assert_eq!(rig.read("f").expect("read"), expected);
    assert!(store.largest_record() < 64 << 10, "a record of {} bytes", store.largest_record());
}

/// Whoever is at his quota has to take the holes along; what was there stays as it is.
#[test]
fn who_has_no_room_is_refused_and_loses_nothing() {
    let (rig, store) = busy();
    rig.dir("q");
    rig.admin(&admin::QuotaSet { path: "/q".into(), bytes: Some(2000), files: None });
    let node = rig.make("q/f", Make::File).expect("made");
    let mut written = 0;
    let refused = (0..100_000u64).step_by(2).find_map(|at| {
        let done = rig.write(node, at, b"x");
        written = if done.is_ok() { at + 1 } else { written };
        done.err()
    });
    assert_eq!(refused, Some(Error::Quota));
    rig.clean();
    let read = rig.read("q/f").expect("read");
    assert_eq!(read.len() as u64, written);
    assert!(read.iter().enumerate().all(|(n, b)| *b == if n % 2 == 0 { b'x' } else { 0 }));
    assert!(store.largest_record() < RECORD_BYTES_MAX);
}

#[test]
fn a_large_file_is_cut_in_steps_while_it_is_written() {
    let (mut rig, _) = busy();
    let node = rig.make("f", Make::File).expect("made");
    for window in 0..1000u64 {
        rig.write(node, window * 4 * MIB, b"x").expect("written");
    }
    rig.idle();
    let store = counted(&mut rig);
    let node = rig.at("f").expect("there");
    rig.write(node, 5, b"pending").expect("written");
    rig.resize(node, 3);
    let scanned = store.scanned.load(Ordering::Relaxed);
    assert!(scanned < 200_000, "{scanned} records were looked at to cut 1000");
    let longest = store.longest_scan.load(Ordering::Relaxed);
    assert!(longest <= 1024, "{longest} records in one look");
    assert_eq!(rig.read("f").expect("read"), b"x\0\0");
    rig.clean();
    assert_eq!(rig.read("f").expect("read"), b"x\0\0");
    assert_eq!(rig.attr(node).blocks, 1);
}

/// Space that is reserved past the end goes in steps, too.
#[test]
fn what_is_reserved_past_the_end_goes_when_a_file_is_cut() {
    for pending in [false, true] {
        let rig = Rig::new();
        let node = rig.file("f", b"0123456789");
        rig.call(Op::Allocate {
            node,
            offset: 0,
            len: 600 * MIB,
            mode: Allocate::Reserve { keep_size: true },
        })
        .expect("reserved");
        rig.idle();
        if pending {
            rig.write(node, 3, b"x").expect("written");
        }
        rig.resize(node, 5);
        rig.clean();
        assert_eq!(rig.read("f").expect("read").len(), 5);
        assert_eq!(rig.attr(node).blocks, 1);
        assert_eq!(rig.call(Op::SeekTo { node, offset: 5, what: Seek::Data }), Err(Error::NoSuchPosition));
    }
}

/// Small writes wait for memory by what they take, not only by their bytes.
#[test]
fn single_bytes_do_not_fill_memory() {
    let (rig, store) = busy();
    for n in 0..8 {
        let node = rig.make(&format!("f{n}"), Make::File).expect("made");
        for at in 0..20_000u64 {
            rig.write(node, at * 100_000, b"x").expect("written");
        }
    }
    // 160,000 writes of about 200 bytes of memory each
    assert!(store.puts() > 0, "nothing was put");
    for n in 0..8 {
        rig.unlink(&format!("f{n}"));
    }
    rig.clean();
}

#[test]
fn places_that_are_named_when_an_upload_ends_do_not_wait_for_its_writer() {
    let (rig, store) = busy();
    let open = Ctx { refs: true, ..Ctx::system() };
    let make = Op::MakeUnnamed { dir: NodeId::ROOT, mode: 0o644, umask: 0, bytes: 0 };
    let Ok(Reply::Attr(file)) = rig.cell.call(&open, make) else { panic!("not made") };
    rig.write(file.node, 0, &noise(400_000, 1)).expect("written");
    let (cell, node) = (rig.cell.clone(), file.node);
    store.at_each_put(move |n| {
        let more = noise(300_000, n);
        cell.call(&Ctx::system(), Op::Write { node, offset: n * 300_000, data: &more }).expect("written");
    });
    let place = Op::Place { node, dir: NodeId::ROOT, name: b"placed", over: Precondition::Any };
    let Ok(Reply::Attr(placed)) = rig.call(place) else { panic!("not placed") };
    assert!(placed.size >= 400_000);
    assert!(store.puts() < 10, "{} puts", store.puts());
    store.quiet();
    rig.clean();
    assert!(matches!(rig.admin(&admin::SyncAll), admin::Done {}));
}

impl Rig {
    /// Damages the first record of a range.
    fn damage(&mut self, (from, to): (Key, Key)) {
        self.cell.close().expect("a clean close");
        let kv = rig::engine(&self.env, &self.disk);
        let first = kv.scan(&from, &to, 1, false).expect("read");
        let (key, _) = first.first().expect("a record").clone();
        let writes = vec![(key, Some(Value::from(&b"damaged"[..])))];
        kv.commit(&Batch { writes, inline_data: Vec::new() }).expect("changed");
        drop(kv);
        self.start();
    }
}

#[test]
fn a_damaged_list_of_the_dead_keeps_no_other_from_being_freed() {
    let mut rig = Rig::new();
    for volume in ["a", "b"] {
        rig.admin(&admin::VolumeCreate {
            name: volume.into(),
            at: format!("/{volume}"),
            uid: 0,
            gid: 0,
            pool: None,
        });
        for n in 0..4 {
            rig.file(&format!("{volume}/f{n}"), &noise(100_000, n));
        }
        rig.dir(&format!("{volume}/.snap/s"));
        for n in 0..4 {
            rig.file(&format!("{volume}/f{n}"), b"short");
        }
    }
    rig.clean();
    let volume = rig.at("a").expect("there").volume();
    rig.damage(keys::deadlist_range(volume));
    for volume in ["a", "b"] {
        rig.rmdir(&format!("{volume}/.snap/s")).expect("removed");
    }
    rig.idle();
    let figures = rig.cell.figures();
    assert_eq!(figures.unreadable_records, 1);
    assert!(figures.trim_bytes <= 400_000, "{}", figures.trim_bytes);
    let left: Vec<_> = rig.findings().into_iter().filter(|f| f.kind != "no-volume").collect();
    assert!(!left.is_empty(), "fsck says what is damaged");
    rig.rest();
    // the other volume's is freed, and what is to be freed later is
    rig.dir("b/.snap/t");
    rig.unlink("b/f0");
    rig.rmdir("b/.snap/t").expect("removed");
    rig.idle();
    assert_eq!(rig.cell.figures().unreadable_records, 1);
    let volume = rig.at("b").expect("there").volume();
    rig.cell.close().expect("a clean close");
    let kv = rig::engine(&rig.env, &rig.disk);
    let (from, to) = keys::deadlist_range(volume);
    assert_eq!(kv.scan(&from, &to, 10, false).expect("read").len(), 0);
}

#[test]
fn a_damaged_file_in_a_bin_keeps_no_other_there() {
    let mut rig = Rig::new();
    for volume in ["a", "b"] {
        rig.admin(&admin::VolumeCreate {
            name: volume.into(),
            at: format!("/{volume}"),
            uid: 0,
            gid: 0,
            pool: None,
        });
        let set = PropertyChanges { bin_days: Some(7), ..PropertyChanges::default() };
        rig.admin(&admin::VolumeSet { name: volume.into(), set });
        for n in 0..100 {
            rig.file(&format!("{volume}/f{n}"), &noise(10_000, n));
        }
    }
    let damaged = rig.at("a/f0").expect("there");
    for volume in ["a", "b"] {
        (0..100).for_each(|n| rig.unlink(&format!("{volume}/f{n}")));
    }
    rig.idle();
    rig.damage((keys::inode(damaged), keys::after(&keys::inode(damaged))));
    for volume in ["a", "b"] {
        let set = PropertyChanges { bin_days: Some(0), ..PropertyChanges::default() };
        rig.admin(&admin::VolumeSet { name: volume.into(), set });
    }
    // cleaning says of each segment in which the file has something that it leaves it alone
    for _ in 0..100 {
        let _ = rig.cell.step();
    }
    assert_eq!(rig.cell.figures().unreadable_records, 1);
    assert!(!rig.findings().is_empty(), "fsck says what is damaged");
    rig.cell.close().expect("a clean close");
    let kv = rig::engine(&rig.env, &rig.disk);
    for (volume, left) in [(damaged.volume(), 1), (damaged.volume() + 1, 0)] {
        let (from, to) = keys::bin_range(volume, 0);
        assert_eq!(kv.scan(&from, &to, 200, false).expect("read").len(), left, "volume {volume}");
    }
}

/// A chain of directories that does not fit in the memory for records, the first with a quota.
#[test]
fn who_makes_a_deep_tree_is_answered_all_the_same() {
    const DEPTH: usize = 6000;
    let mut rig = Rig::new();
    let make = |rig: &Rig, dir, name: &[u8], make| match rig.call(Op::Make {
        dir,
        name,
        make,
        mode: 0o755,
        umask: 0,
    }) {
        Ok(Reply::Attr(attr)) => attr.node,
        other => panic!("{other:?}"),
    };
    let top = rig.dir("top");
    let mut bottom = top;
    for _ in 0..DEPTH {
        bottom = make(&rig, bottom, b"d", Make::Dir);
    }
    rig.dir("other");
    rig.idle();
    rig.admin(&admin::QuotaSet { path: "/top".into(), bytes: Some(1 << 30), files: None });
    let store = counted_with(&mut rig, &Config { metadata_cache_mib: 1, ..Config::default() });
    let got = |what: &str, most: usize| {
        let got = store.got.swap(0, Ordering::Relaxed);
        assert!(got < most * DEPTH, "{got} records were read {what}");
    };
    let rename = |from_dir, from_name, to_dir| {
        let mode = RenameMode::Replace;
        rig.call(Op::Rename { from_dir, from_name, to_dir, to_name: b"moved", mode })
    };
    rename(NodeId::ROOT, &b"other"[..], bottom).expect("moved to the bottom");
    got("for a move", 8);
    assert_eq!(rename(NodeId::ROOT, b"top", bottom), Err(Error::Invalid), "into itself");
    let file = make(&rig, bottom, b"f", Make::File);
    rig.write(file, 0, b"pending").expect("written");
    got("to make a file and write to it", 8);
    let bytes = |node| match rig.call(Op::GetXattr { node, name: b"leeward.rfiles" }) {
        Ok(Reply::Data(text)) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!((bytes(top), bytes(bottom)), ("1".into(), "1".into()));
    got("for exact figures", 8);
    rename(bottom, b"moved", NodeId::ROOT).expect("moved back");
    rig.clean();
}

/// What a snapshot shows is found among all that came after it, without holding anybody up.
#[test]
fn looks_at_snapshots_are_short_whatever_came_after_them() {
    let (rig, _) = busy();
    let file = {
        rig.dir("d");
        rig.file("d/f", b"")
    };
    let set = |value: &[u8]| {
        let name = b"user.a";
        rig.call(Op::SetXattr { node: file, name, value, mode: XattrMode::Set }).expect("set");
    };
    for n in 0..1500u64 {
        set(&n.to_be_bytes());
        rig.write(file, n * 4 * MIB, b"x").expect("written");
        if n % 10 == 0 {
            rig.dir(&format!("d/.snap/{n}"));
        }
    }
    rig.dir("d/.snap/last");
    set(b"later");
    for n in 0..1500u64 {
        rig.write(file, n * 4 * MIB + 5, b"y").expect("written");
    }
    let mut rig = rig;
    rig.idle();
    let store = counted(&mut rig);
    let seen = rig.at("d/.snap/last/f").expect("there");
    let names = rig.call(Op::ListXattr { node: seen }).expect("listed");
    assert_eq!(names, Reply::Names(vec![b"user.a"[..].into()]));
    let before = store.scanned.load(Ordering::Relaxed);
    for n in 0..1500u64 {
        let found = rig.call(Op::SeekTo { node: seen, offset: n * 4 * MIB + MIB, what: Seek::Data });
        let next = if n < 1499 { Ok(Reply::Offset((n + 1) * 4 * MIB)) } else { Err(Error::NoSuchPosition) };
        assert_eq!(found, next, "{n}");
    }
    let scanned = store.scanned.load(Ordering::Relaxed) - before;
    assert!(scanned < 100_000, "{scanned} records were looked at to find 1500 pieces");
    let longest = store.longest_scan.load(Ordering::Relaxed);
    assert!(longest <= 1024, "{longest} records in one look");
}

/// Changes with much in them wait for a commit as many changes do.
#[test]
fn a_commit_has_a_bounded_size() {
    let (rig, store) = busy();
    let value = vec![7u8; 60_000];
    for n in 0..2000 {
        let node = rig.make(&format!("f{n}"), Make::File).expect("made");
        rig.call(Op::SetXattr { node, name: b"user.large", value: &value, mode: XattrMode::Set })
            .expect("set");
    }
    rig.idle();
    let largest = store.largest_batch();
    assert!((16 << 20..80 << 20).contains(&largest), "a commit of {largest} bytes");
}
