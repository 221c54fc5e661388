//! Snapshots of a cell on a simulated disk: what they keep, what they cost, how they are compared
//! and restored.

use crate::rig::{Rig, noise};
use leeward_fs::{Error, Kind, Make, NodeId, Op, Reply, Usage, XattrMode};
use leeward_volume::admin::{self, Change, ChangeKind};
use std::collections::BTreeMap;

/// Kind, mode, links, size, modification time, content.
type Shown = (Kind, u32, u32, u64, i64, Vec<u8>);

impl Rig {
    fn overwrite(&self, path: &str, offset: u64, data: &[u8]) {
        self.write(self.at(path).expect(path), offset, data).expect("written");
    }

    /// Everything below a path: kind, mode, links, size, modification time, content.
    fn tree(&self, top: &str) -> BTreeMap<String, Shown> {
        let mut all = BTreeMap::new();
        let mut waiting = vec![String::new()];
        while let Some(below) = waiting.pop() {
            for (name, _) in self.list(&format!("{top}{below}")) {
                let below = format!("{below}/{name}");
                let path = format!("{top}{below}");
                let Ok(Reply::Attr(a)) = self.call(Op::GetAttr { node: self.at(&path).expect(&path) }) else {
                    panic!("{path}")
                };
                let content = match a.kind {
                    Kind::File => self.read(&path).expect(&path),
                    Kind::Dir => {
                        waiting.push(below.clone());
                        Vec::new()
                    }
                    _ => Vec::new(),
                };
                all.insert(below, (a.kind, a.mode, a.nlink, a.size, a.mtime.secs, content));
            }
        }
        all
    }

    fn diff(&self, path: &str, from: &str, to: Option<&str>) -> Vec<String> {
        let request = admin::SnapDiff { path: path.into(), from: from.into(), to: to.map(Into::into) };
        let changes = self.admin(&request).changes;
        let text = |c: &Change| {
            let path = String::from_utf8_lossy(c.path.as_bytes()).into_owned();
            let from = c.from_path.as_ref().map(|p| String::from_utf8_lossy(p.as_bytes()).into_owned());
            match c.kind {
                ChangeKind::Removed => format!("- {path}"),
                ChangeKind::Added => format!("+ {path}"),
                ChangeKind::Changed => format!("M {path}"),
                ChangeKind::Renamed => format!("R {} -> {path}", from.expect("renamed from somewhere")),
            }
        };
        changes.iter().map(text).collect()
    }

    fn restore(&self, name: &str, what: &str, to: Option<&str>, in_place: bool) -> Usage {
        let request = admin::SnapRestore {
            path: "/d".into(),
            name: name.into(),
            what: what.into(),
            to: to.map(Into::into),
            in_place,
        };
        self.admin(&request).0
    }
}

#[test]
fn a_snapshot_keeps_what_was_there_and_removal_gives_it_back() {
    let mut rig = Rig::new();
    rig.dir("d");
    for n in 0..20 {
        rig.file(&format!("d/f{n}"), &noise(50_000, n));
    }
    rig.file("d/big", &noise(9 << 20, 99));
    rig.idle();
    let live = rig.df().live_bytes;
    let before = rig.tree("d");
    rig.dir("d/.snap/s");
    for n in 0..20 {
        rig.overwrite(&format!("d/f{n}"), 1000 * n, &noise(3000, n + 100));
        if n % 3 == 0 {
            rig.unlink(&format!("d/f{n}"));
        }
    }
    rig.overwrite("d/big", 5 << 20, &noise(2 << 20, 7));
    assert_eq!(rig.tree("d/.snap/s"), before);
    rig.clean();
    assert_eq!(rig.tree("d/.snap/s"), before);
    rig.reopen();
    assert_eq!(rig.tree("d/.snap/s"), before, "after opening again");
    rig.unlink("d/big");
    rig.clean();
    assert_eq!(rig.tree("d/.snap/s"), before);
    rig.rmdir("d/.snap/s").expect("removed");
    rig.clean();
    let live_files: u64 = rig.tree("d").values().map(|(_, _, _, size, _, _)| *size).sum();
    assert_eq!(rig.df().live_bytes, live_files);
    assert!(live_files < live);
}

#[test]
fn content_that_is_in_no_record_yet_is_in_the_snapshot() {
    let mut rig = Rig::new();
    rig.dir("d");
    rig.file("d/small", b"first");
    rig.file("d/large", &noise(1 << 20, 1));
    rig.dir("d/.snap/s");
    rig.overwrite("d/small", 0, b"FIRST and more");
    rig.overwrite("d/large", 1000, &noise(1 << 20, 2));
    rig.dir("d/.snap/t");
    rig.unlink("d/small");
    assert_eq!(rig.read("d/.snap/s/small").unwrap(), b"first");
    assert_eq!(rig.read("d/.snap/t/small").unwrap(), b"FIRST and more");
    assert_eq!(rig.read("d/.snap/s/large").unwrap(), noise(1 << 20, 1));
    rig.clean();
    rig.reopen();
    assert_eq!(rig.read("d/.snap/s/small").unwrap(), b"first");
    assert_eq!(rig.read("d/.snap/t/small").unwrap(), b"FIRST and more");
    assert_eq!(rig.read("d/.snap/s/large").unwrap(), noise(1 << 20, 1));
}

#[test]
fn differences_are_what_changed() {
    let rig = Rig::new();
    rig.dir("d");
    rig.dir("d/sub");
    rig.dir("d/gone");
    rig.dir("out");
    for name in ["d/a", "d/b", "d/sub/c", "d/gone/x", "out/y", "d/same"] {
        rig.file(name, name.as_bytes());
    }
    rig.dir("d/.snap/1");
    assert_eq!(rig.diff("/d", "1", None), Vec::<String>::new());
    rig.file("d/a", b"another");
    rig.rename("d/b", "d/sub/b").expect("renamed");
    rig.file("d/new", b"new");
    rig.file("d/passing", b"");
    rig.unlink("d/passing");
    rig.unlink("d/gone/x");
    rig.rmdir("d/gone").expect("removed");
    rig.dir("d/.snap/2");
    rig.rename("out", "d/in").expect("moved in");
    rig.rename("d/sub", "d/SUB").expect("renamed");
    rig.overwrite("d/SUB/c", 0, b"X");
    let node = rig.at("d/same").unwrap();
    rig.call(Op::SetXattr { node, name: b"user.k", value: b"v", mode: XattrMode::Set }).expect("set");
    assert_eq!(rig.diff("/d", "1", Some("2")), ["M a", "- gone", "- gone/x", "+ new", "R b -> sub/b"]);
    assert_eq!(rig.diff("/d", "2", None), ["R sub -> SUB", "M SUB/c", "+ in", "+ in/y", "M same"]);
    assert_eq!(
        rig.diff("/d", "1", None),
        [
            "R sub -> SUB",
            "R b -> SUB/b",
            "M SUB/c",
            "M a",
            "- gone",
            "- gone/x",
            "+ in",
            "+ in/y",
            "+ new",
            "M same"
        ]
    );
    let wrong = admin::SnapDiff { path: "/d".into(), from: "2".into(), to: Some("1".into()) };
    assert_eq!(rig.cell.admin(&wrong, &mut |_| {}).expect_err("refused").errno, libc::EINVAL);
    rig.clean();
}

#[test]
fn a_file_with_several_names_is_changed_under_all_of_them() {
    let mut rig = Rig::new();
    rig.dir("d");
    let (one, two) = (rig.dir("d/one"), rig.dir("d/two"));
    let node = rig.file("d/one/a", b"content");
    let link = |rig: &Rig, dir, name: &str| {
        rig.call(Op::Link { node, dir, name: name.as_bytes() }).expect("linked");
    };
    link(&rig, one, "b");
    link(&rig, two, "c");
    link(&rig, NodeId::ROOT, "outside");
    rig.dir("d/.snap/1");
    rig.overwrite("d/two/c", 0, b"CONTENT");
    let all = ["M one/a", "M one/b", "M two/c"];
    assert_eq!(rig.diff("/d", "1", None), all);
    rig.dir("d/.snap/2");
    assert_eq!(rig.diff("/d", "1", Some("2")), all);
    rig.unlink("d/two/c");
    rig.unlink("d/one/a");
    assert_eq!(rig.diff("/d", "1", Some("2")), all, "names that are gone since");
    rig.unlink("d/one/b");
    rig.unlink("outside");
    rig.clean();
    assert_eq!(rig.diff("/d", "1", Some("2")), all, "the file is gone since");
    rig.reopen();
    assert_eq!(rig.diff("/d", "1", Some("2")), all);
}

#[test]
fn a_tree_comes_back_without_copying_data() {
    let mut rig = Rig::new();
    rig.dir("d");
    rig.dir("d/t");
    for n in 0..10 {
        rig.dir(&format!("d/t/{n}"));
        for m in 0..30 {
            rig.file(&format!("d/t/{n}/{m}"), &noise(2000 + m * 17, (n * 100 + m) as u64));
        }
    }
    rig.file("d/t/big", &noise(13 << 20, 5));
    rig.file("d/top", b"at the top");
    rig.make("d/t/link", Make::Symlink(b"big")).expect("made");
    let node = rig.at("d/t/big").unwrap();
    rig.call(Op::Link { node, dir: rig.at("d/t/3").unwrap(), name: b"other" }).expect("linked");
    rig.call(Op::SetXattr { node, name: b"user.k", value: b"v", mode: XattrMode::Set }).expect("set");
    let before = rig.tree("d");
    rig.dir("d/.snap/s");
    for n in 0..5 {
        for m in 0..30 {
            rig.unlink(&format!("d/t/{n}/{m}"));
        }
    }
    rig.overwrite("d/t/big", 4 << 20, b"overwritten");
    rig.file("d/t/extra", b"extra");
    rig.idle();
    let written = rig.df().segment_bytes;

    let done = rig.restore("s", "t", Some("/d/copy"), false);
    assert_eq!((done.files, done.dirs), (302, 11));
    assert_eq!(rig.tree("d/copy"), rig.tree("d/.snap/s/t"));
    rig.clean();
    assert!(rig.df().segment_bytes <= written, "data was copied");

    rig.restore("s", "t", None, true);
    assert_eq!(rig.tree("d/t"), rig.tree("d/.snap/s/t"));
    rig.clean();
    rig.reopen();
    assert_eq!(rig.tree("d/t"), rig.tree("d/.snap/s/t"));
    let node = rig.at("d/t/3/other").unwrap();
    assert_eq!(rig.call(Op::GetXattr { node, name: b"user.k" }), Ok(Reply::Data(b"v".to_vec())));
    assert_eq!(node, rig.at("d/t/big").unwrap());

    rig.unlink("d/top");
    rig.file("d/later", b"later");
    rig.restore("s", "", None, true);
    assert_eq!(rig.tree("d"), before);
    rig.clean();
    rig.rmdir("d/.snap/s").expect("removed");
    rig.clean();
    assert_eq!(rig.tree("d"), before);
}

#[test]
fn restore_refuses_what_would_lose_something() {
    let rig = Rig::new();
    rig.dir("d");
    rig.dir("d/t");
    rig.dir("d/t/deep");
    rig.file("d/t/f", &noise(100_000, 1));
    rig.dir("d/.snap/s");
    rig.dir("d/t/deep/.snap/own");
    let request = |what: &str, to: Option<&str>, in_place| admin::SnapRestore {
        path: "/d".into(),
        name: "s".into(),
        what: what.into(),
        to: to.map(Into::into),
        in_place,
    };
    let errno = |r: admin::SnapRestore| rig.cell.admin(&r, &mut |_| {}).expect_err("refused").errno;
    assert_eq!(errno(request("t", None, false)), libc::EEXIST);
    assert_eq!(errno(request("t", None, true)), libc::EBUSY);
    assert_eq!(errno(request("nothing", None, true)), libc::ENOENT);
    assert_eq!(errno(request("t", Some("/no/where"), false)), libc::ENOENT);
    rig.admin(&admin::QuotaSet { path: "/d".into(), bytes: Some(150_000), files: None });
    assert_eq!(errno(request("t/f", Some("/d/f"), false)), libc::EDQUOT);
    assert_eq!(rig.list("d"), [("t".to_string(), Kind::Dir)]);
    rig.clean();
}

#[test]
fn copies_from_a_snapshot_share_its_data() {
    let rig = Rig::new();
    rig.dir("d");
    rig.file("d/f", &noise(3 << 20, 1));
    rig.dir("d/.snap/s");
    rig.file("d/f", b"");
    rig.file("d/copy", b"");
    rig.idle();
    let before = rig.df().segment_bytes;
    let (from, to) = (rig.at("d/.snap/s/f").unwrap(), rig.at("d/copy").unwrap());
    let op = Op::CopyRange { from, from_offset: 0, to, to_offset: 0, len: 3 << 20 };
    assert_eq!(rig.call(op), Ok(Reply::Written(3 << 20)));
    rig.clean();
    assert!(rig.df().segment_bytes <= before);
    rig.rmdir("d/.snap/s").expect("removed");
    rig.clean();
    assert_eq!(rig.read("d/copy").unwrap(), noise(3 << 20, 1));
    assert_eq!(rig.call(Op::GetAttr { node: from }), Err(Error::Stale));
}

/// They share entries of the deadlist, which is written with the commit: whoever reads it finds
/// what is not committed too.
#[test]
fn many_records_die_in_one_commit() {
    let mut rig = Rig::new();
    rig.dir("d");
    let names: Vec<String> = (0..100).map(|n| format!("{n:02}")).collect();
    for n in &names {
        rig.file(&format!("d/{n}"), b"same");
    }
    let change = |rig: &Rig| {
        let node = |n: &String| rig.at(&format!("d/{n}")).expect(n);
        names.iter().for_each(|n| rig.write(node(n), 0, b"else").expect("written"));
    };
    let changed: Vec<String> = names.iter().map(|n| format!("M {n}")).collect();
    rig.dir("d/.snap/1");
    change(&rig);
    assert_eq!(rig.diff("/d", "1", None), changed, "before a commit");
    rig.clean();
    assert_eq!(rig.diff("/d", "1", None), changed);
    rig.reopen();
    assert_eq!(rig.diff("/d", "1", None), changed);

    rig.dir("d/.snap/2");
    change(&rig);
    rig.rmdir("d/.snap/1").expect("removed");
    rig.rmdir("d/.snap/2").expect("removed before a commit");
    rig.clean();
    let stats = rig.admin(&admin::StatsShow);
    assert_eq!(stats.trim_records, 0);
}

#[test]
fn removing_a_volume_takes_its_history_along() {
    let rig = Rig::new();
    rig.admin(&admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 0, gid: 0, pool: None });
    rig.file("v/f", &noise(1 << 20, 1));
    rig.dir("v/.snap/s");
    rig.file("v/f", &noise(1 << 20, 2));
    rig.dir("v/.snap/t");
    rig.clean();
    rig.unlink("v/f");
    rig.admin(&admin::VolumeRemove { name: "v".into() });
    rig.clean();
    assert_eq!(rig.df().live_bytes, 0);
}
