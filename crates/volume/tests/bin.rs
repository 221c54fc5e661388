//! The recycle bin of a cell on a simulated disk: what it keeps, how it comes back, what makes it
//! go.

use crate::rig::paths::long_name;
use crate::rig::{Rig, engine, noise};
use leeward_env::Ctx;
use leeward_env::disk::sim::Fault;
use leeward_fs::{Error, Fs, Kind, Make, NodeId, Op, Precondition, RenameMode, Reply, SetAttr, Usage};
use leeward_meta::{Batch, Kv, Value};
use leeward_volume::admin::{self, BinEntry, Failure, PropertyChanges, Request};
use leeward_volume::format::inode::BinRecord;
use leeward_volume::format::keys::{self, Key};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

impl Rig {
    /// With a bin of 7 days on the root volume.
    fn with_bin() -> Rig {
        let rig = Rig::new();
        rig.bin_days("root", 7);
        rig
    }

    fn bin_days(&self, volume: &str, days: u16) {
        let set = PropertyChanges { bin_days: Some(days), ..PropertyChanges::default() };
        self.admin(&admin::VolumeSet { name: volume.into(), set });
    }

    fn unlink_by(&self, uid: u32, path: &str) {
        let (dir, name) = Self::split(path);
        let op = Op::Unlink { dir: self.at(dir).expect(dir), name: name.as_bytes(), over: Precondition::Any };
        self.cell.call(&Ctx::user(uid, uid), op).expect(path);
    }

    /// As `rm -r`.
    fn remove_all(&self, top: &str) {
        for entry in self.list(top) {
            let path = format!("{top}/{}", entry.0);
            if entry.1 == Kind::Dir { self.remove_all(&path) } else { self.unlink(&path) }
        }
        self.rmdir(top).expect(top);
    }

    /// Everything below a path: node, kind, links, content.
    fn all_below(&self, top: &str) -> BTreeMap<String, (NodeId, Kind, u32, Vec<u8>)> {
        let mut all = BTreeMap::new();
        for (name, kind) in self.list(top) {
            let path = format!("{top}/{name}");
            let node = self.at(&path).expect(&path);
            let Ok(Reply::Attr(a)) = self.call(Op::GetAttr { node }) else { panic!("{path}") };
            let content = if kind == Kind::File { self.read(&path).expect(&path) } else { Vec::new() };
            all.insert(path.clone(), (node, kind, a.nlink, content));
            if kind == Kind::Dir {
                all.extend(self.all_below(&path));
            }
        }
        all
    }

    fn ask_by<R: Request>(&self, uid: u32, request: &R) -> std::result::Result<R::Reply, Failure> {
        self.ask_as(&Ctx::user(uid, uid), request)
    }

    fn usage(&self, path: &str) -> Usage {
        self.admin(&admin::UsageShow { path: path.into() })
    }

    fn set_quota(&self, path: &str, bytes: u64, files: u64) {
        self.admin(&admin::QuotaSet { path: path.into(), bytes: Some(bytes), files: Some(files) });
    }

    fn binned(&self, uid: u32, path: Option<&str>) -> Vec<BinEntry> {
        self.ask_by(uid, &admin::BinList { path: path.map(Into::into), newest: None })
            .expect("listed")
            .entries
    }

    fn bin(&self) -> Vec<String> {
        self.binned(0, None).into_iter().map(|e| e.path).collect()
    }

    /// Restored files and directories, and what was left.
    fn restore_as(
        &self,
        uid: u32,
        path: &str,
        at_secs: Option<i64>,
        to: Option<&str>,
    ) -> std::result::Result<(u64, u64, u64), i32> {
        let request = admin::BinRestore { path: path.into(), at_secs, to: to.map(Into::into) };
        let done = self.ask_by(uid, &request).map_err(|failure| failure.errno)?;
        Ok((done.restored.files, done.restored.dirs, done.left))
    }

    fn take_back(&self, path: &str) -> std::result::Result<(u64, u64, u64), i32> {
        self.restore_as(0, path, None, None)
    }
}

#[test]
fn a_removed_file_is_listed_counts_and_comes_back() {
    let mut rig = Rig::with_bin();
    rig.dir("d");
    let node = rig.file("d/f", &noise(3_000_000, 1));
    let before = rig.usage("/");
    rig.env.advance(DAY);
    rig.unlink("d/f");
    assert_eq!(rig.at("d/f"), Err(Error::NotFound));
    assert_eq!(rig.usage("/"), before);
    rig.clean();
    rig.reopen();
    let listed = rig.binned(0, Some("/d"));
    assert_eq!(listed.len(), 1);
    let entry = &listed[0];
    assert_eq!((&*entry.path, &*entry.volume, entry.is_dir), ("/d/f", "root", false));
    assert_eq!((entry.bytes, entry.removed_by, entry.removed_secs), (3_000_000, 0, 1_000_086_400));
    assert_eq!(rig.binned(0, Some("/e")), []);
    rig.clean();

    assert_eq!(rig.take_back("/d/f"), Ok((1, 0, 0)));
    assert_eq!(rig.at("d/f"), Ok(node));
    assert_eq!(rig.read("d/f").unwrap(), noise(3_000_000, 1));
    assert_eq!(rig.bin(), Vec::<String>::new());
    assert_eq!(rig.take_back("/d/f"), Err(libc::ENOENT));
    assert_eq!(rig.usage("/"), before);
    rig.clean();
}

#[test]
fn a_tree_comes_back_as_a_tree() {
    let mut rig = Rig::with_bin();
    rig.dir("top");
    for n in 0..3 {
        rig.dir(&format!("top/{n}"));
        rig.dir(&format!("top/{n}/deep"));
        for m in 0..40 {
            rig.file(&format!("top/{n}/deep/{m}"), &noise(1000 + m, (n * 100 + m) as u64));
        }
    }
    rig.make("top/link", Make::Symlink(b"0")).unwrap();
    let node = rig.at("top/1/deep/7").unwrap();
    rig.call(Op::Link { node, dir: rig.at("top/2").unwrap(), name: b"seven" }).unwrap();
    let (before, usage) = (rig.all_below("top"), rig.usage("/"));
    rig.remove_all("top");
    assert_eq!(rig.list(""), []);
    assert_eq!(rig.usage("/"), usage);
    assert_eq!(rig.bin().len(), 7 + 120 + 1);
    rig.clean();
    rig.reopen();

    // a part, with the directories above it
    assert_eq!(rig.take_back("/top/0/deep/3"), Ok((1, 3, 0)));
    assert_eq!(rig.list("top/0/deep"), [("3".to_string(), Kind::File)]);
    rig.clean();
    // all of it, into what is there by now
    assert_eq!(rig.take_back("/top"), Ok((120, 4, 0)));
    let mut after = rig.all_below("top");
    // a name that was not the last one of its file is not in the bin
    let linked = after.keys().filter(|p| before[*p].0 == node).count();
    assert_eq!(linked, 1);
    after.retain(|_, v| v.0 != node);
    let mut expected = before;
    expected.retain(|_, v| v.0 != node);
    assert_eq!(after, expected);
    assert_eq!(rig.usage("/"), usage);
    assert_eq!(rig.bin(), Vec::<String>::new());
    rig.clean();
}

#[test]
fn what_is_there_again_is_filled_and_never_replaced() {
    let rig = Rig::with_bin();
    rig.dir("d");
    rig.dir("d/sub");
    rig.file("d/a", b"old a");
    rig.file("d/sub/b", b"old b");
    rig.file("d/sub/c", b"old c");
    rig.remove_all("d");
    rig.dir("d");
    rig.dir("d/sub");
    rig.file("d/sub/b", b"new b");
    assert_eq!(rig.take_back("/d/sub/b"), Err(libc::EEXIST));
    assert_eq!(rig.restore_as(0, "/d/sub/b", None, Some("/d/was-b")), Ok((1, 0, 0)));
    assert_eq!(rig.read("d/was-b").unwrap(), b"old b");
    rig.unlink("d/was-b");
    assert_eq!(rig.restore_as(0, "/d/was-b", None, Some("/d/a/b")), Err(libc::ENOENT));
    assert_eq!(rig.take_back("/d"), Ok((3, 0, 0)));
    assert_eq!(rig.read("d/a").unwrap(), b"old a");
    assert_eq!(rig.read("d/sub/b").unwrap(), b"new b");
    assert_eq!(rig.read("d/sub/c").unwrap(), b"old c");
    assert_eq!(rig.bin(), Vec::<String>::new());
    rig.clean();

    // of each name what was removed last; what has a taken name stays
    rig.file("d/x", b"1");
    rig.unlink("d/x");
    rig.env.advance(DAY);
    let between = rig.now_secs();
    rig.env.advance(DAY);
    rig.file("d/x", b"2");
    rig.unlink("d/x");
    rig.rename("d/sub/c", "d/sub/b").expect("done");
    assert_eq!(rig.bin(), ["/d/sub/b", "/d/x", "/d/x"]);
    assert_eq!(rig.take_back("/d"), Ok((1, 0, 1)));
    assert_eq!(rig.read("d/x").unwrap(), b"2");
    assert_eq!(rig.restore_as(0, "/d/x", Some(between), Some("/first")), Ok((1, 0, 0)));
    assert_eq!(rig.read("first").unwrap(), b"1");
    assert_eq!(rig.bin(), ["/d/sub/b"]);
    rig.clean();
}

#[test]
fn a_full_quota_purges_the_oldest_of_what_counts_there() {
    let rig = Rig::with_bin();
    rig.dir("q");
    rig.dir("q/in");
    rig.dir("other");
    rig.set_quota("/q", 1_000_000, 0);
    rig.file("other/first", &noise(300_000, 9));
    rig.unlink("other/first");
    for n in 0..3 {
        rig.file(&format!("q/in/{n}"), &noise(300_000, n));
    }
    rig.remove_all("q/in");
    let file = rig.file("q/new", b"");
    rig.write(file, 0, &noise(350_000, 5)).expect("the oldest makes room");
    assert_eq!(rig.bin(), ["/other/first", "/q/in", "/q/in/1", "/q/in/2"]);
    rig.clean();
    rig.write(file, 0, &noise(999_000, 6)).expect("all of them make room");
    assert_eq!(rig.bin(), ["/other/first", "/q/in"]);
    assert_eq!(rig.write(file, 0, &noise(1_000_001, 7)), Err(Error::Quota));
    assert_eq!(rig.bin(), ["/other/first"]);
    rig.clean();
    // files
    rig.set_quota("/q", 0, 3);
    rig.file("q/a", b"a");
    rig.unlink("q/a");
    rig.file("q/b", b"b");
    rig.unlink("q/b");
    rig.file("q/c", b"c");
    assert_eq!(rig.bin(), ["/other/first", "/q/b"]);
    // moved under a quota with what is in the bin below it
    rig.set_quota("/q", 0, 4);
    rig.rename("other", "q/other").expect("done");
    assert_eq!(rig.bin(), ["/q/other/first"]);
    rig.file("q/d", b"d");
    assert_eq!(rig.bin(), Vec::<String>::new());
    assert_eq!(rig.make("q/e", Make::File), Err(Error::Quota));
    rig.clean();
    // only what comes along can make room
    rig.dir("more");
    rig.file("more/x", b"x");
    rig.unlink("more/x");
    rig.set_quota("/q", 0, 5);
    rig.rename("more", "q/more").expect("done");
    assert_eq!(rig.bin(), Vec::<String>::new());
    rig.clean();
}

#[test]
fn a_full_disk_purges_the_oldest() {
    let rig = Rig::with_bin();
    rig.disk.set_capacity(64 << 20);
    for n in 0..4 {
        rig.file(&format!("{n}"), &noise(8 << 20, n));
        rig.idle();
    }
    for n in 0..4 {
        rig.unlink(&format!("{n}"));
    }
    let mut written = 0;
    loop {
        match rig
            .make(&format!("new{written}"), Make::File)
            .and_then(|node| rig.write(node, 0, &noise(4 << 20, 50 + written)))
        {
            Ok(()) => written += 1,
            Err(e) => {
                assert_eq!(e, Error::NoSpace);
                break;
            }
        }
        rig.idle();
    }
    assert_eq!(rig.bin(), Vec::<String>::new());
    assert!(written >= 8, "{written} files of 4 MiB on what 4 of 8 MiB were on");
    rig.clean();
}

#[test]
fn what_is_too_old_goes() {
    let mut rig = Rig::with_bin();
    rig.dir("d");
    rig.file("d/a", &noise(100_000, 1));
    rig.file("d/b", &noise(100_000, 2));
    rig.unlink("d/a");
    rig.env.advance(DAY * 4);
    rig.unlink("d/b");
    rig.rmdir("d").expect("done");
    rig.clean();
    assert_eq!(rig.bin(), ["/d", "/d/a", "/d/b"]);
    rig.env.advance(DAY * 3);
    rig.reopen();
    rig.clean();
    assert_eq!(rig.bin(), ["/d", "/d/b"]);
    rig.env.advance(DAY * 4);
    rig.clean();
    assert_eq!(rig.bin(), Vec::<String>::new());
    assert_eq!((rig.usage("/"), rig.df().live_bytes), (Usage::default(), 0));
}

#[test]
fn a_bin_that_is_turned_off_empties_itself() {
    let rig = Rig::with_bin();
    rig.dir("d");
    rig.dir("d/e");
    for n in 0..200 {
        rig.file(&format!("d/e/{n}"), b"content");
    }
    for n in 0..199 {
        rig.unlink(&format!("d/e/{n}"));
    }
    rig.bin_days("root", 0);
    // before it is empty
    rig.unlink("d/e/199");
    rig.rmdir("d/e").expect("done");
    rig.rmdir("d").expect("done");
    assert_eq!(rig.bin().len(), 201);
    rig.clean();
    assert_eq!(rig.bin(), Vec::<String>::new());
    assert_eq!((rig.usage("/"), rig.df().live_bytes), (Usage::default(), 0));
    rig.bin_days("root", 1);
    rig.file("again", b"content");
    rig.unlink("again");
    assert_eq!(rig.admin(&admin::BinEmpty { volume: None }).purged, 1);
    assert_eq!(rig.bin(), Vec::<String>::new());
    rig.clean();
}

#[test]
fn a_file_that_is_open_is_written_to_in_the_bin() {
    let rig = Rig::with_bin();
    rig.dir("q");
    rig.set_quota("/q", 1_000_000, 0);
    let node = rig.file("q/f", &noise(100_000, 1));
    let passing = rig.make("q/lock", Make::File).unwrap();
    rig.unlink("q/lock");
    assert_eq!(rig.call(Op::GetAttr { node: passing }), Err(Error::Stale));
    let held = Ctx { refs: true, ..Ctx::system() };
    let dir = rig.at("q").unwrap();
    rig.cell.call(&held, Op::Lookup { dir, name: b"f" }).unwrap();
    rig.unlink("q/f");
    rig.write(node, 0, &noise(400_000, 2)).unwrap();
    assert_eq!(rig.usage("/q").bytes, 400_000);
    rig.clean();
    rig.call(Op::SetAttr { node, set: SetAttr { size: Some(300_000), ..SetAttr::default() } }).unwrap();
    assert_eq!(rig.usage("/q").bytes, 300_000);
    rig.clean();
    // purged while it is open: it works, and counts no longer
    rig.admin(&admin::BinEmpty { volume: Some("root".into()) });
    assert_eq!(rig.usage("/q").bytes, 0);
    rig.write(node, 0, &noise(500_000, 3)).unwrap();
    assert_eq!(rig.usage("/q").bytes, 0);
    rig.clean();
    rig.call(Op::Forget { node, count: 1 }).unwrap();
    rig.clean();
    assert_eq!(rig.df().live_bytes, 0);
}

#[test]
fn snapshots_keep_what_they_saw_and_not_what_was_in_the_bin() {
    let mut rig = Rig::with_bin();
    rig.dir("d");
    rig.file("d/before", &noise(500_000, 1));
    rig.file("d/seen", &noise(500_000, 2));
    rig.unlink("d/before");
    rig.dir("d/.snap/s");
    rig.unlink("d/seen");
    rig.clean();
    rig.reopen();
    // purged after the snapshot that did not see it: nothing holds it
    rig.admin(&admin::BinEmpty { volume: None });
    rig.clean();
    assert_eq!(rig.df().live_bytes, 500_000);
    assert_eq!(rig.read("d/.snap/s/seen").unwrap(), noise(500_000, 2));
    assert_eq!(rig.at("d/.snap/s/before"), Err(Error::NotFound));

    // content that is in no record yet when it is removed, and comes back after a snapshot
    let node = rig.file("d/late", &noise(700_000, 3));
    rig.unlink("d/late");
    rig.dir("d/.snap/t");
    rig.write(node, 0, &noise(600_000, 4)).unwrap();
    assert_eq!(rig.take_back("/d/late"), Ok((1, 0, 0)));
    assert_eq!(rig.at("d/.snap/t/late"), Err(Error::NotFound));
    rig.clean();
    rig.reopen();
    assert_eq!(rig.at("d/.snap/t/late"), Err(Error::NotFound));
    assert_eq!(rig.read("d/late").unwrap()[..600_000], noise(600_000, 4));
    for snap in ["s", "t"] {
        rig.rmdir(&format!("d/.snap/{snap}")).expect("done");
    }
    rig.clean();
    assert_eq!(rig.df().live_bytes, 700_000);
}

#[test]
fn a_restore_in_place_empties_the_bin_of_what_it_replaces() {
    let rig = Rig::with_bin();
    rig.dir("d");
    rig.dir("d/t");
    rig.dir("d/t/u");
    rig.file("d/t/u/f", &noise(1000, 1));
    rig.file("d/t/u/g", &noise(1000, 1));
    rig.file("d/f", &noise(1000, 1));
    rig.dir("d/.snap/s");
    rig.unlink("d/t/u/f");
    rig.remove_all("d/t/u");
    let request = |what: &str| admin::SnapRestore {
        path: "/d".into(),
        name: "s".into(),
        what: what.into(),
        to: None,
        in_place: true,
    };
    rig.admin(&request("t"));
    assert_eq!(rig.bin(), Vec::<String>::new());
    rig.clean();
    rig.admin(&request("f"));
    assert_eq!(rig.bin(), ["/d/f"]);
    rig.unlink("d/t/u/f");
    rig.admin(&request(""));
    rig.clean();
    assert_eq!(rig.bin(), Vec::<String>::new());
    assert_eq!(rig.usage("/d").files, 3);
}

#[test]
fn users_see_what_they_removed_or_own() {
    let rig = Rig::with_bin();
    let dir = rig.dir("d");
    for name in ["roots", "removed", "owned"] {
        let node = rig.file(&format!("d/{name}"), name.as_bytes());
        let uid = (name == "owned").then_some(1000);
        rig.call(Op::SetAttr { node, set: SetAttr { uid, ..SetAttr::default() } }).unwrap();
    }
    rig.unlink("d/roots");
    rig.unlink("d/owned");
    rig.unlink_by(1000, "d/removed");
    let seen = |uid| rig.binned(uid, None).into_iter().map(|e| e.path).collect::<Vec<_>>();
    assert_eq!(seen(0), ["/d/owned", "/d/removed", "/d/roots"]);
    assert_eq!(seen(1000), ["/d/owned", "/d/removed"]);
    assert_eq!(seen(1001), Vec::<String>::new());
    assert_eq!(rig.restore_as(1000, "/d/roots", None, None), Err(libc::ENOENT));
    assert_eq!(rig.restore_as(1001, "/d", None, None), Err(libc::ENOENT));
    assert_eq!(rig.restore_as(1000, "/d/owned", None, Some("/mine")), Err(libc::EPERM));
    let own = SetAttr { uid: Some(1000), ..SetAttr::default() };
    rig.call(Op::SetAttr { node: dir, set: own }).unwrap();
    assert_eq!(rig.restore_as(1000, "/d/owned", None, Some("/d/mine")), Ok((1, 0, 0)));
    assert_eq!(rig.restore_as(1000, "/d", None, None), Ok((1, 0, 0)));
    assert_eq!(rig.bin(), ["/d/roots"]);
    let empty = admin::BinEmpty { volume: Some("root".into()) };
    assert_eq!(rig.ask_by(1000, &empty).expect_err("refused").errno, libc::EPERM);
    rig.clean();
}

/// Bytes of the paths of a list.
fn bytes_of(entries: &[BinEntry]) -> usize {
    entries.iter().map(|entry| entry.path.len()).sum()
}

#[test]
fn long_paths_are_cut_in_lists() {
    let rig = Rig::with_bin();
    let levels = 3000;
    let mut above = vec![NodeId::ROOT];
    above.extend(rig.chain(NodeId::ROOT, levels));
    for n in (0..levels).rev() {
        rig.call(Op::RmDir { dir: above[n], name: long_name(n).as_bytes() }).expect("removed");
    }
    let all = rig.admin(&admin::BinList { path: None, newest: None });
    assert_eq!((all.entries.len(), all.all, all.truncated), (levels, levels as u64, false));
    assert!(bytes_of(&all.entries) < levels * 4500, "{} bytes", bytes_of(&all.entries));
    let whole = |n: usize| (0..n).map(|n| format!("/{}", long_name(n))).collect::<String>();
    let is_there = |path: &str| all.entries.iter().any(|entry| entry.path == path);
    // the directory of the last one has 4096 bytes
    assert!((1..=17).all(|n| is_there(&whole(n))));
    assert!(is_there(&format!("{}/…/{}", whole(16), long_name(levels - 1))));
    let below = |top: &str| rig.binned(0, Some(top)).len();
    assert_eq!((below(&whole(16)), below(&whole(3))), (levels - 15, levels - 2));
    let request = admin::BinList { path: Some(whole(17)), newest: None };
    assert_eq!(rig.ask(&request).expect_err("refused").errno, libc::ENAMETOOLONG);
    // and nobody else sees anything of it
    assert_eq!(rig.binned(1000, None), []);
}

#[test]
fn a_list_has_so_many_bytes_and_no_more() {
    let rig = Rig::with_bin();
    let dir = *rig.chain(NodeId::ROOT, 16).last().expect("a directory");
    let most = 9000;
    for n in 0..most {
        rig.level_in(dir, &long_name(n));
        rig.call(Op::RmDir { dir, name: long_name(n).as_bytes() }).expect("removed");
    }
    let list = rig.admin(&admin::BinList { path: None, newest: None });
    assert_eq!((list.truncated, list.all), (true, most as u64));
    assert!(list.entries.len() > most / 2 && bytes_of(&list.entries) <= 32 << 20);
    // those that were removed last
    let last = list.entries.iter().map(|entry| entry.path.rsplit_once('/').expect("a path").1.to_owned());
    assert!(last.eq((most - list.entries.len()..most).map(long_name)));
    let some = rig.admin(&admin::BinList { path: None, newest: Some(10) });
    assert_eq!((some.entries.len(), some.all, some.truncated), (10, most as u64, false));
}

#[test]
fn a_volume_goes_with_its_bin() {
    let rig = Rig::with_bin();
    rig.admin(&admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 5, gid: 5, pool: None });
    rig.file("v/off", b"no bin yet");
    rig.unlink("v/off");
    rig.bin_days("v", 30);
    rig.dir("v/d");
    for n in 0..300 {
        rig.file(&format!("v/d/{n}"), b"content");
    }
    rig.remove_all("v/d");
    rig.file("here", b"content");
    rig.unlink("here");
    assert_eq!(rig.binned(0, Some("/v")).len(), 301);
    assert_eq!(rig.take_back("/v/d/17"), Ok((1, 1, 0)));
    rig.clean();
    rig.admin(&admin::VolumeRemove { name: "v".into() });
    rig.clean();
    assert_eq!(rig.bin(), ["/here"]);
}

#[test]
fn fsck_finds_what_does_not_belong_together() {
    fn record() -> Value {
        BinRecord { uid: 0, name: (*b"x").into() }.encode()
    }
    fn another(inode: u64) -> Key {
        keys::binned(NodeId::new(0, inode), 1_000_000_000_000_000_000)
    }
    let findings = |change: fn(&Key) -> (Key, Option<Value>)| {
        let mut rig = Rig::with_bin();
        rig.file("f", b"content");
        rig.unlink("f");
        rig.clean();
        rig.cell.close().expect("a clean close");
        let kv = engine(&rig.env, &rig.disk);
        let (from, to) = keys::bin_range(0, 0);
        let entry = kv.scan(&from, &to, 2, false).expect("read").remove(0).0;
        kv.commit(&Batch { writes: vec![change(&entry)], inline_data: Vec::new() }).expect("changed");
        drop(kv);
        rig.start();
        rig.findings().into_iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    assert_eq!(findings(|entry| (entry.clone(), None)), ["bin"]);
    assert_eq!(findings(|_| (another(77), Some(record()))), ["missing-inode"]);
    assert_eq!(findings(|_| (another(2), Some(record()))), ["bin"]);
    assert_eq!(findings(|entry| (entry.clone(), Some(Value::from(&b"?"[..])))), ["damaged-record", "bin"]);
}

#[test]
fn a_power_cut_in_the_middle_of_purging_leaves_it_right() {
    let mut left = BTreeSet::new();
    for cut in 0..40 {
        let mut rig = Rig::with_bin();
        for d in 0..3 {
            rig.dir(&format!("{d}"));
            for n in 0..30 {
                rig.file(&format!("{d}/{n}"), &noise(5000, n));
            }
            rig.file(&format!("{d}/large"), &noise(9 << 20, d));
            rig.remove_all(&format!("{d}"));
        }
        rig.idle();
        rig.env.advance(DAY * 8);
        rig.disk.fail_at(rig.disk.mutations() + cut, Fault::CrashBefore);
        for _ in 0..40 {
            let _ = rig.cell.step();
        }
        rig.power_cut(cut);
        left.insert(rig.bin().len());
        // before anything goes on
        assert_eq!(rig.findings(), [], "cut at {cut}");
        rig.clean();
        assert_eq!(rig.bin(), Vec::<String>::new());
        assert_eq!((rig.usage("/"), rig.df().live_bytes), (Usage::default(), 0), "cut at {cut}");
    }
    assert!(left.len() > 2, "cuts in the middle: {left:?}");
}

/// Random operations with a bin, quotas and snapshots: whatever they answer, all counts are right.
fn random_operations(seed: u64) {
    let mut rig = Rig::with_bin();
    let mut state = seed;
    let mut pick = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let paths: Vec<String> = ["a", "b", "c"]
        .iter()
        .flat_map(|x| {
            let below = ["", "/a", "/b", "/a/a", "/a/b", "/b/a"];
            below.into_iter().map(move |y| format!("{x}{y}"))
        })
        .collect();
    for n in 0..600 {
        let (one, two) = (&paths[pick(paths.len())], &paths[pick(paths.len())]);
        let ((dir, name), (to_dir, to_name)) = (Rig::split(one), Rig::split(two));
        let (Ok(dir), Ok(to_dir)) = (rig.at(dir), rig.at(to_dir)) else { continue };
        let (name, to_name) = (name.as_bytes(), to_name.as_bytes());
        let _ = match pick(16) {
            0 | 1 => rig.make(one, Make::Dir).map(drop),
            2 | 3 => {
                rig.make(one, Make::File).and_then(|node| rig.write(node, 0, &noise(1000 + 97 * n, n as u64)))
            }
            4 => rig.at(one).and_then(|node| rig.write(node, 0, &noise(30_000, n as u64))),
            5 | 6 => rig.call(Op::Unlink { dir, name, over: Precondition::Any }).map(drop),
            7 | 8 => rig.call(Op::RmDir { dir, name }).map(drop),
            9 | 10 => {
                let mode = if pick(4) == 0 { RenameMode::Exchange } else { RenameMode::Replace };
                rig.call(Op::Rename { from_dir: dir, from_name: name, to_dir, to_name, mode }).map(drop)
            }
            11 => {
                rig.at(one).and_then(|node| rig.call(Op::Link { node, dir: to_dir, name: to_name })).map(drop)
            }
            12 => {
                let to = (pick(3) == 0).then(|| format!("/{two}"));
                let request = admin::BinRestore { path: format!("/{one}"), at_secs: None, to };
                drop(rig.ask(&request));
                Ok(())
            }
            13 => {
                let bytes = Some([0, 100_000, 400_000][pick(3)]);
                drop(rig.ask(&admin::QuotaSet {
                    path: format!("/{one}"),
                    bytes,
                    files: Some([0, 6][pick(2)]),
                }));
                Ok(())
            }
            14 => match pick(3) {
                0 => rig.make(&format!("{one}/.snap/s"), Make::Dir).map(drop),
                1 => rig
                    .at(&format!("{one}/.snap"))
                    .and_then(|dir| rig.call(Op::RmDir { dir, name: b"s" }))
                    .map(drop),
                _ => {
                    let request = admin::SnapRestore {
                        path: format!("/{one}"),
                        name: "s".into(),
                        what: ["", "a", "b"][pick(3)].into(),
                        to: None,
                        in_place: true,
                    };
                    drop(rig.ask(&request));
                    Ok(())
                }
            },
            _ => {
                rig.env.advance(DAY / 4);
                rig.cell.step().map(drop)
            }
        };
        if n % 60 == 59 {
            rig.clean();
        }
        if n % 150 == 149 {
            rig.reopen();
        }
    }
    rig.bin_days("root", 0);
    rig.clean();
    assert_eq!(rig.bin(), Vec::<String>::new());
    let tree = rig.all_below("");
    let dirs = tree.values().filter(|(_, kind, ..)| *kind == Kind::Dir).count();
    let files: BTreeMap<NodeId, usize> =
        tree.values().filter(|(_, kind, ..)| *kind == Kind::File).map(|f| (f.0, f.3.len())).collect();
    let used = rig.usage("/");
    assert_eq!((used.dirs, used.files), (dirs as u64, files.len() as u64));
    assert_eq!(used.bytes, files.values().sum::<usize>() as u64);
}

#[test]
fn all_counts_are_right_after_random_operations() {
    (0..12).for_each(random_operations);
}
