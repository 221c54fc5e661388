//! Snapshots of a cell on a simulated disk: what they keep, what they cost, how they are compared and restored.
#![allow(missing_docs)]

use leeward_env::disk::sim::SimDisk;
use leeward_env::{Ctx, Env};
use leeward_meta::Kv;
use leeward_meta::mem::MemKv;
use leeward_pool::DirStore;
use leeward_volume::admin::{Change, ChangeKind, Df, Reply as AdminReply, Request, Usage};
use leeward_volume::op::{Kind, Make, RenameMode, XattrMode};
use leeward_volume::{Cell, Config, Error, NodeId, Op, Reply, Result, first_batch};
use std::collections::BTreeMap;
use std::sync::Arc;

struct Rig {
    env: Env,
    disk: SimDisk,
    cell: Arc<Cell>,
}

fn engine(env: &Env, disk: &SimDisk) -> MemKv {
    MemKv::open(env.clone(), Arc::new(disk.clone())).expect("the engine opens")
}

fn start(env: &Env, disk: &SimDisk) -> Arc<Cell> {
    let store = Arc::new(DirStore::new(Arc::new(disk.clone()), "data"));
    Cell::start(env, Box::new(engine(env, disk)), store, &Config::default()).expect("the cell opens")
}

/// Bytes that do not compress.
fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Kind, mode, links, size, modification time, content.
type Shown = (Kind, u32, u32, u64, i64, Vec<u8>);

impl Rig {
    fn new() -> Rig {
        let (env, disk) = (Env::sim(1), SimDisk::new(1));
        engine(&env, &disk).commit(&first_batch(&env, 0, 0)).expect("the first commit");
        let cell = start(&env, &disk);
        Rig { env, disk, cell }
    }

    fn reopen(&mut self) {
        self.cell.close().expect("a clean close");
        self.cell = start(&self.env, &self.disk);
    }

    fn call(&self, op: Op<'_>) -> Result<Reply> {
        self.cell.call(&Ctx::system(), op)
    }

    fn split(path: &str) -> (&str, &str) {
        path.rsplit_once('/').unwrap_or(("", path))
    }

    fn at(&self, path: &str) -> Result<NodeId> {
        let mut node = NodeId::ROOT;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            match self.call(Op::Lookup { dir: node, name: name.as_bytes() })? {
                Reply::Attr(attr) => node = attr.node,
                other => panic!("{other:?}"),
            }
        }
        Ok(node)
    }

    fn make(&self, path: &str, make: Make<'_>) -> Result<NodeId> {
        let (dir, name) = Self::split(path);
        let dir = self.at(dir)?;
        match self.call(Op::Make { dir, name: name.as_bytes(), make, mode: 0o755, umask: 0 })? {
            Reply::Attr(attr) => Ok(attr.node),
            other => panic!("{other:?}"),
        }
    }

    fn dir(&self, path: &str) {
        self.make(path, Make::Dir).expect(path);
    }

    fn file(&self, path: &str, data: &[u8]) {
        let node = self.at(path).or_else(|_| self.make(path, Make::File)).expect(path);
        self.call(Op::SetAttr {
            node,
            set: leeward_volume::op::SetAttr { size: Some(0), ..Default::default() },
        })
        .expect("cut");
        self.write(path, 0, data);
    }

    fn write(&self, path: &str, offset: u64, data: &[u8]) {
        let node = self.at(path).expect(path);
        for (n, part) in data.chunks(1 << 20).enumerate() {
            self.call(Op::Write { node, offset: offset + ((n as u64) << 20), data: part }).expect("written");
        }
    }

    fn read(&self, path: &str) -> Result<Vec<u8>> {
        let node = self.at(path)?;
        let mut all = Vec::new();
        loop {
            match self.call(Op::Read { node, offset: all.len() as u64, len: 1 << 20 })? {
                Reply::Data(data) if data.is_empty() => return Ok(all),
                Reply::Data(data) => all.extend(data),
                other => panic!("{other:?}"),
            }
        }
    }

    fn unlink(&self, path: &str) {
        let (dir, name) = Self::split(path);
        self.call(Op::Unlink { dir: self.at(dir).expect(dir), name: name.as_bytes() }).expect(path);
    }

    fn rmdir(&self, path: &str) -> Result<Reply> {
        let (dir, name) = Self::split(path);
        self.call(Op::RmDir { dir: self.at(dir)?, name: name.as_bytes() })
    }

    fn rename(&self, from: &str, to: &str) -> Result<Reply> {
        let ((from_dir, from_name), (to_dir, to_name)) = (Self::split(from), Self::split(to));
        self.call(Op::Rename {
            from_dir: self.at(from_dir)?,
            from_name: from_name.as_bytes(),
            to_dir: self.at(to_dir)?,
            to_name: to_name.as_bytes(),
            mode: RenameMode::Replace,
        })
    }

    fn list(&self, path: &str) -> Vec<String> {
        let dir = self.at(path).expect(path);
        match self.call(Op::List { dir, after: b"", limit: 100_000, attrs: true }).expect(path) {
            Reply::Entries(all) => {
                all.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Everything below a path: kind, mode, links, size, modification time, content.
    fn tree(&self, top: &str) -> BTreeMap<String, Shown> {
        let mut all = BTreeMap::new();
        let mut waiting = vec![String::new()];
        while let Some(below) = waiting.pop() {
            for name in self.list(&format!("{top}{below}")) {
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

    fn admin(&self, request: &Request) -> AdminReply {
        self.cell.admin(request, &mut |_| {}).expect("done")
    }

    fn df(&self) -> Df {
        match self.admin(&Request::Df) {
            AdminReply::Df(df) => df,
            other => panic!("{other:?}"),
        }
    }

    fn idle(&self) {
        while self.cell.step().expect("a step") {}
        self.admin(&Request::Sync);
    }

    fn clean(&self) {
        self.idle();
        match self.admin(&Request::Fsck) {
            AdminReply::Fsck(report) => assert_eq!(report.findings, Vec::new()),
            other => panic!("{other:?}"),
        }
    }

    fn diff(&self, path: &str, from: &str, to: Option<&str>) -> Vec<String> {
        let request = Request::SnapDiff { path: path.into(), from: from.into(), to: to.map(Into::into) };
        let AdminReply::Diff { changes } = self.admin(&request) else { panic!("no diff") };
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
        let request = Request::SnapRestore {
            path: "/d".into(),
            name: name.into(),
            what: what.into(),
            to: to.map(Into::into),
            in_place,
        };
        match self.admin(&request) {
            AdminReply::Restored(usage) => usage,
            other => panic!("{other:?}"),
        }
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
        rig.write(&format!("d/f{n}"), 1000 * n, &noise(3000, n + 100));
        if n % 3 == 0 {
            rig.unlink(&format!("d/f{n}"));
        }
    }
    rig.write("d/big", 5 << 20, &noise(2 << 20, 7));
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
    rig.write("d/small", 0, b"FIRST and more");
    rig.write("d/large", 1000, &noise(1 << 20, 2));
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
    rig.write("d/SUB/c", 0, b"X");
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
    let wrong = Request::SnapDiff { path: "/d".into(), from: "2".into(), to: Some("1".into()) };
    assert_eq!(rig.cell.admin(&wrong, &mut |_| {}).expect_err("refused").errno, libc::EINVAL);
    rig.clean();
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
    rig.write("d/t/big", 4 << 20, b"overwritten");
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
    let request = |what: &str, to: Option<&str>, in_place| Request::SnapRestore {
        path: "/d".into(),
        name: "s".into(),
        what: what.into(),
        to: to.map(Into::into),
        in_place,
    };
    let errno = |r: Request| rig.cell.admin(&r, &mut |_| {}).expect_err("refused").errno;
    assert_eq!(errno(request("t", None, false)), libc::EEXIST);
    assert_eq!(errno(request("t", None, true)), libc::EBUSY);
    assert_eq!(errno(request("nothing", None, true)), libc::ENOENT);
    assert_eq!(errno(request("t", Some("/no/where"), false)), libc::ENOENT);
    rig.admin(&Request::QuotaSet { path: "/d".into(), bytes: Some(150_000), files: None });
    assert_eq!(errno(request("t/f", Some("/d/f"), false)), libc::EDQUOT);
    assert_eq!(rig.list("d"), ["t"]);
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

#[test]
fn removing_a_volume_takes_its_history_along() {
    let rig = Rig::new();
    rig.admin(&Request::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 0, gid: 0 });
    rig.file("v/f", &noise(1 << 20, 1));
    rig.dir("v/.snap/s");
    rig.file("v/f", &noise(1 << 20, 2));
    rig.dir("v/.snap/t");
    rig.unlink("v/f");
    rig.clean();
    rig.admin(&Request::VolumeRemove { name: "v".into() });
    rig.clean();
    assert_eq!(rig.df().live_bytes, 0);
}
