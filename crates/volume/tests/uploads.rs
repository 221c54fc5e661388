//! Uploads in parts: what keeps them, what ends them, and that nothing of them is left.

use crate::rig::{Rig, engine, noise};
use leeward_env::Ctx;
use leeward_fs::uploads::{PartRecord, UploadRecord, UploadTotals};
use leeward_fs::{Attr, Error, Fs, NodeId, Op, Precondition, Reply, Result, Time};
use leeward_meta::{Batch, Kv, Value};
use leeward_volume::Stored;
use leeward_volume::admin::{self, PropertyChanges};
use leeward_volume::format::keys::{self, Key};
use leeward_volume::{NOTE_BYTES_PER_USER_MAX, UPLOADS_PER_USER_MAX};
use std::time::Duration;

const ROOT: NodeId = NodeId::ROOT;
const DAY: Duration = Duration::from_secs(86_400);

fn door() -> Ctx {
    Ctx { refs: true, ..Ctx::user(1000, 1000) }
}

impl Rig {
    /// With a bucket.
    fn with_bucket() -> Rig {
        let rig = Rig::new();
        rig.publish("buc", "/");
        rig
    }

    fn publish(&self, name: &str, path: &str) {
        self.admin(&admin::BucketCreate { name: name.into(), path: path.into(), public: false });
    }

    fn begin_in(&self, dir: NodeId, key: &str) -> Result<NodeId> {
        match self.cell.call(&door(), Op::BeginUpload { dir, key: key.as_bytes(), note: b"begun" })? {
            Reply::Begun(upload) => Ok(upload),
            other => panic!("{other:?}"),
        }
    }

    fn begin(&self, key: &str) -> NodeId {
        self.begin_in(ROOT, key).expect("begun")
    }

    fn unnamed_in(&self, dir: NodeId, data: &[u8]) -> NodeId {
        let op = Op::MakeUnnamed { dir, mode: 0o666, umask: 0o22, bytes: 0 };
        let attr = attr(self.cell.call(&door(), op));
        self.write(attr.node, 0, data).expect("written");
        attr.node
    }

    fn forget(&self, node: NodeId) {
        self.cell.call(&door(), Op::Forget { node, count: 1 }).expect("forgotten");
    }

    /// Adds a part that the door has done with.
    fn part_in(&self, dir: NodeId, upload: NodeId, number: u32, data: &[u8]) -> Result<NodeId> {
        let node = self.unnamed_in(dir, data);
        let kept = self.cell.call(&door(), Op::KeepPart { node, upload, number, note: b"part" });
        self.forget(node);
        kept.map(|_| node)
    }

    fn part(&self, upload: NodeId, number: u32, data: &[u8]) -> NodeId {
        self.part_in(ROOT, upload, number, data).expect("kept")
    }

    /// Uploads that are not complete, and bytes in their parts.
    fn totals(&self) -> (u64, u64) {
        let all = self.cell.call(&door(), Op::StatUploads { bucket: None });
        let Ok(Reply::UploadTotals(UploadTotals { uploads, bytes })) = all else { panic!("{all:?}") };
        (uploads, bytes)
    }

    /// Makes the object of all parts.
    fn complete(&self, upload: NodeId, name: &[u8], over: Precondition) -> Result<Reply> {
        let node = self.unnamed_in(ROOT, b"");
        let mut at = 0;
        for part in self.cell.uploads().parts(upload, 0, usize::MAX) {
            let len = part.record.size;
            let op = Op::CopyRange { from: part.node, from_offset: 0, to: node, to_offset: at, len };
            self.cell.call(&door(), op)?;
            at += len;
        }
        let op = Op::CompleteUpload { upload, node, dir: ROOT, name, over, note: b"result" };
        let placed = self.cell.call(&door(), op);
        self.forget(node);
        placed
    }

    fn sync(&self) {
        self.call(Op::Fsync { node: ROOT }).expect("synced");
    }

    /// Files with a name, and bytes in them, as quotas and statistics count them.
    fn used(&self) -> (u64, u64) {
        {
            let usage = self.admin(&admin::UsageShow { path: "/".into() });
            (usage.files, usage.bytes)
        }
    }

    /// Inodes and objects that there are.
    fn inodes(&self) -> u64 {
        self.admin(&admin::Fsck).inodes
    }

    fn sizes(&self, upload: NodeId) -> Vec<(u32, u64)> {
        let parts = self.cell.uploads().parts(upload, 0, usize::MAX);
        parts.iter().map(|part| (part.record.number, part.record.size)).collect()
    }

    /// As after `kill -9`.
    fn killed(&mut self) {
        self.disk = self.disk.kill();
        self.start();
    }
}

fn attr(reply: Result<Reply>) -> Attr {
    match reply {
        Ok(Reply::Attr(attr)) => attr,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_upload_goes_on_where_it_was_after_any_end() {
    for kill in [false, true] {
        let mut rig = Rig::with_bucket();
        let upload = rig.begin("buc/k");
        let (first, second) = (noise(600_000, 1), noise(5000, 2));
        rig.part(upload, 1, &noise(400_000, 9));
        rig.part(upload, 1, &first);
        let last = rig.part(upload, 7, &second);
        rig.call(Op::Fsync { node: last }).expect("synced");
        let gone = rig.unnamed_in(ROOT, b"cut off");
        rig.call(Op::Fsync { node: gone }).expect("synced");
        for _ in 0..2 {
            if kill {
                rig.killed()
            } else {
                rig.reopen()
            }
            rig.clean();
            let record = rig.cell.uploads().find(upload).expect("there");
            assert_eq!((record.bucket(), record.name(), record.uid), ("buc", "k", 1000));
            assert_eq!((&*record.note, record.complete), (&b"begun"[..], false));
            assert_eq!(rig.sizes(upload), [(1, 600_000), (7, 5000)]);
            assert_eq!(rig.totals(), (1, 605_000));
            assert_eq!((rig.used(), rig.inodes()), ((0, 0), 3), "the root and two parts");
        }
        rig.part(upload, 8, b"end");
        rig.complete(upload, b"whole", Precondition::Nothing).expect("placed");
        rig.sync();
        if kill {
            rig.killed()
        } else {
            rig.reopen()
        }
        rig.clean();
        assert!(rig.read("whole").is_ok_and(|got| got == [&first[..], &second, b"end"].concat()));
        assert_eq!((rig.used().0, rig.inodes()), (1, 2), "parts are freed");
        let record = rig.cell.uploads().find(upload).expect("what became of it");
        assert_eq!((&*record.note, record.complete), (&b"result"[..], true));
        assert_eq!(rig.totals(), (0, 0));
        assert_eq!(rig.part_in(ROOT, upload, 1, b"late"), Err(Error::Stale));
        assert_eq!(rig.complete(upload, b"again", Precondition::Any), Err(Error::Stale));
        assert_eq!(rig.read("again"), Err(Error::NotFound));
        rig.env.advance(Duration::from_secs(3601));
        rig.clean();
        assert_eq!(rig.cell.uploads().find(upload), None, "it is forgotten");
    }
}

/// What a client waits for: one commit each, as for a file.
#[test]
fn a_part_costs_one_commit() {
    let rig = Rig::with_bucket();
    let commits = |op: &dyn Fn() -> NodeId| {
        let before = rig.cell.figures().stats.commits;
        let node = op();
        rig.call(Op::Fsync { node }).expect("synced");
        rig.cell.figures().stats.commits - before
    };
    let upload = rig.begin("buc/k");
    assert_eq!(commits(&|| rig.begin("buc/l")), 1);
    for size in [5, 200_000] {
        assert_eq!(commits(&|| rig.part(upload, 1, &noise(size, 1))), 1, "{size}");
    }
    let complete = || attr(rig.complete(upload, b"f", Precondition::Any)).node;
    assert_eq!(commits(&complete), 1);
}

#[test]
fn what_is_not_completed_stays_an_upload() {
    let rig = Rig::with_bucket();
    let upload = rig.begin("buc/k");
    rig.part(upload, 1, &noise(300_000, 1));
    rig.file("f", b"there");
    assert_eq!(rig.complete(upload, b"f", Precondition::Nothing), Err(Error::Exists));
    rig.admin(&admin::QuotaSet { path: "/".into(), bytes: Some(100_000), files: None });
    assert_eq!(rig.complete(upload, b"f", Precondition::Any), Err(Error::Quota));
    rig.clean();
    assert_eq!(rig.sizes(upload), [(1, 300_000)]);
    rig.admin(&admin::QuotaSet { path: "/".into(), bytes: Some(400_000), files: None });
    rig.complete(upload, b"f", Precondition::Any).expect("placed");
    rig.clean();
    assert_eq!(rig.used(), (1, 300_000));
}

#[test]
fn what_is_ended_leaves_nothing() {
    let mut rig = Rig::with_bucket();
    let (upload, other) = (rig.begin("buc/k"), rig.begin("buc/l"));
    rig.part(upload, 1, &noise(600_000, 1));
    rig.part(upload, 2, b"small");
    let read = rig.unnamed_in(ROOT, b"referred to");
    let keep = Op::KeepPart { node: read, upload, number: 3, note: b"" };
    rig.cell.call(&door(), keep).expect("kept");
    assert_eq!(rig.cell.call(&door(), keep), Err(Error::Invalid), "it is a part already");
    rig.call(Op::EndUpload { upload }).expect("ended");
    assert_eq!(rig.call(Op::EndUpload { upload }), Err(Error::Stale));
    rig.clean();
    assert!(rig.call(Op::GetAttr { node: read }).is_ok(), "until it is let go");
    rig.forget(read);
    rig.clean();
    assert_eq!((rig.inodes(), rig.totals()), (1, (1, 0)));
    // and what a crash finds in the midst of it
    rig.part(other, 1, &noise(600_000, 3));
    rig.part(other, 2, &noise(600_000, 4));
    rig.call(Op::EndUpload { upload: other }).expect("ended");
    rig.sync();
    rig.killed();
    rig.clean();
    assert_eq!((rig.inodes(), rig.totals()), (1, (0, 0)));
    assert_ne!(rig.begin("buc/k"), upload, "numbers are not used again");
}

#[test]
fn what_rests_for_a_week_is_dropped() {
    let mut rig = Rig::with_bucket();
    let (old, used) = (rig.begin("buc/old"), rig.begin("buc/used"));
    for upload in [old, used] {
        rig.part(upload, 1, &noise(300_000, 1));
    }
    rig.env.advance(DAY * 6);
    rig.part(used, 2, b"more");
    rig.reopen();
    rig.clean();
    assert_eq!(rig.totals().0, 2);
    rig.env.advance(DAY * 2);
    rig.clean();
    assert!(rig.cell.uploads().find(old).is_none() && rig.cell.uploads().find(used).is_some());
    rig.env.advance(DAY * 6);
    rig.clean();
    assert_eq!((rig.inodes(), rig.totals()), (1, (0, 0)));
}

#[test]
fn uploads_go_with_their_bucket_and_with_their_volume() {
    let mut rig = Rig::with_bucket();
    rig.publish("other", "/");
    let (here, other) = (rig.begin("buc/k"), rig.begin("other/k"));
    rig.part(here, 1, &noise(300_000, 1));
    rig.part(other, 1, &noise(300_000, 2));
    rig.admin(&admin::BucketRemove { name: "buc".into() });
    rig.clean();
    assert!(rig.cell.uploads().find(here).is_none() && rig.cell.uploads().find(other).is_some());
    // also where the crash comes between
    rig.admin(&admin::BucketRemove { name: "other".into() });
    rig.killed();
    rig.clean();
    assert_eq!((rig.inodes(), rig.totals()), (1, (0, 0)));

    rig.publish("buc", "/");
    let create = admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 1000, gid: 1000, pool: None };
    rig.admin(&create);
    let volume = rig.at("v").expect("attached");
    let (inside, outside) = (rig.begin_in(volume, "buc/v/k").expect("begun"), rig.begin("buc/k"));
    // a part is where the directory was when it came
    for (upload, dir) in [(inside, volume), (outside, volume), (inside, ROOT), (outside, ROOT)] {
        let number = 1 + u32::from(dir == ROOT);
        rig.part_in(dir, upload, number, &noise(300_000, 5)).expect("kept");
    }
    rig.clean();
    rig.admin(&admin::VolumeRemove { name: "v".into() });
    assert_eq!(rig.cell.uploads().find(inside), None);
    assert_eq!(rig.sizes(outside), [(2, 300_000)]);
    rig.clean();
    rig.killed();
    rig.clean();
    assert_eq!((rig.inodes(), rig.totals()), (2, (1, 300_000)));
}

#[test]
fn snapshots_neither_show_nor_hold_parts() {
    let mut rig = Rig::with_bucket();
    let upload = rig.begin("buc/k");
    rig.part(upload, 1, &noise(3_000_000, 1));
    let snap = rig.at(".snap").expect("there");
    let take = Op::Make { dir: snap, name: b"s", make: leeward_fs::Make::Dir, mode: 0, umask: 0 };
    rig.call(take).expect("taken");
    rig.part(upload, 1, &noise(2_000_000, 2));
    rig.part(upload, 2, &noise(1_000_000, 3));
    rig.clean();
    assert_eq!(rig.list(".snap/s"), []);
    rig.reopen();
    rig.complete(upload, b"f", Precondition::Any).expect("placed");
    rig.clean();
    let live = rig.df().live_bytes;
    assert_eq!(live, 3_000_000, "the first one is not held");
    rig.unlink("f");
    rig.clean();
    assert_eq!(rig.df().live_bytes, 0);
}

#[test]
fn a_listing_goes_on_after_any_key() {
    let rig = Rig::with_bucket();
    let all: Vec<(NodeId, &str)> = ["buc/a", "buc/b", "buc/b", "buc/dir/x", "bucc/a"]
        .into_iter()
        .map(|key| (rig.begin(key), key))
        .collect();
    let list = |prefix: &str, key: &str, id: u64, most| {
        let found = rig.cell.uploads().of_user(1000, prefix, (key, NodeId(id)), most);
        found.into_iter().map(|(id, record)| (id, record.key.to_string())).collect::<Vec<_>>()
    };
    let some = |range: std::ops::Range<usize>| {
        all[range].iter().map(|(id, key)| (*id, key.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(list("buc/", "buc/", u64::MAX, 9), some(0..4));
    assert_eq!(list("buc/", "buc/", u64::MAX, 2), some(0..2));
    assert_eq!(list("buc/", "buc/b", all[1].0.0, 9), some(2..4));
    assert_eq!(list("buc/", "buc/b", u64::MAX, 9), some(3..4));
    assert_eq!(list("buc/d", "buc/a", u64::MAX, 9), some(3..4));
    assert_eq!(rig.cell.uploads().of_user(1001, "buc/", ("", NodeId(0)), 9), []);
}

#[test]
fn there_are_so_many_of_a_user_and_no_more() {
    let rig = Rig::with_bucket();
    let first = rig.begin("buc/0");
    for n in 1..UPLOADS_PER_USER_MAX {
        rig.begin(&format!("buc/{n}"));
    }
    assert_eq!(rig.begin_in(ROOT, "buc/more"), Err(Error::TooManyUploads));
    rig.call(Op::EndUpload { upload: first }).expect("ended");
    rig.begin("buc/more");
    let rig = Rig::with_bucket();
    let note = vec![b'n'; 1 << 20];
    let begin = || rig.cell.call(&door(), Op::BeginUpload { dir: ROOT, key: b"buc/k", note: &note });
    let first = begin().expect("begun");
    let most = (NOTE_BYTES_PER_USER_MAX >> 20) - 1;
    (1..most).for_each(|_| assert!(begin().is_ok()));
    assert_eq!(begin(), Err(Error::TooManyUploads), "what is noted of them");
    let Reply::Begun(upload) = first else { panic!("{first:?}") };
    rig.call(Op::EndUpload { upload }).expect("ended");
    assert!(begin().is_ok());
    let op = Op::BeginUpload { dir: rig.file("f", b""), key: b"buc/k", note: b"" };
    assert_eq!(rig.call(op), Err(Error::NotDir));
    assert_eq!(rig.call(Op::BeginUpload { dir: ROOT, key: b"\xff", note: b"" }), Err(Error::Invalid));
}

#[test]
fn fsck_finds_what_does_not_belong_together() {
    let time = Time { secs: 1_000_000_000, nanos: 0 };
    let findings = |change: &dyn Fn(NodeId, NodeId, NodeId) -> Vec<(Key, Option<Value>)>| {
        let mut rig = Rig::with_bucket();
        let upload = rig.begin("buc/k");
        let (one, two) = (rig.part(upload, 1, b"12345"), rig.part(upload, 2, b"12345"));
        rig.clean();
        rig.cell.close().expect("a clean close");
        let kv = engine(&rig.env, &rig.disk);
        kv.commit(&Batch { writes: change(upload, one, two), inline_data: Vec::new() }).expect("changed");
        drop(kv);
        rig.start();
        rig.findings().into_iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    let part = |upload, number, size| {
        Some(Some(PartRecord { upload, number, at: time, size, note: (*b"")[..].into() }).encode())
    };
    assert_eq!(findings(&|_, _, _| Vec::new()), Vec::<String>::new());
    assert_eq!(findings(&|up, one, _| vec![(keys::orphan(one), part(up, 1, 6))]), ["upload"], "another size");
    assert_eq!(findings(&|up, one, _| vec![(keys::orphan(one), part(up, 2, 5))]), ["upload"], "twice");
    assert_eq!(findings(&|up, _, _| vec![(keys::orphan(NodeId(99)), part(up, 9, 5))]), ["upload"], "no file");
    assert_eq!(findings(&|_, one, _| vec![(keys::orphan(one), None)]), ["orphan", "parent"], "of no upload");
}

/// What may be asked of an upload of a volume with a recycle bin.
#[test]
fn a_recycle_bin_keeps_no_parts() {
    let rig = Rig::with_bucket();
    let set = PropertyChanges { bin_days: Some(7), ..PropertyChanges::default() };
    rig.admin(&admin::VolumeSet { name: "root".into(), set });
    let upload = rig.begin("buc/k");
    rig.part(upload, 1, &noise(300_000, 1));
    rig.complete(upload, b"f", Precondition::Any).expect("placed");
    let again = rig.begin("buc/k");
    rig.part(again, 1, &noise(200_000, 1));
    rig.call(Op::EndUpload { upload: again }).expect("ended");
    rig.clean();
    assert_eq!((rig.used(), rig.df().live_bytes), ((1, 300_000), 300_000));
    // a record that an older program would not know
    let record = rig.cell.uploads().find(upload).expect("there");
    assert_eq!(UploadRecord::decode(&record.encode()), Ok((*record).clone()));
}
