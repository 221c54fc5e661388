//! Inode flags: what each operation is refused by, who may change them, and what stays of them.

use crate::rig::{Rig, engine};
use leeward_env::Ctx;
use leeward_fs::{
    Allocate, Attr, Error, Fs, InodeFlags, Make, NodeId, Op, Precondition, RenameMode, Reply, Result, Seek,
    SetAttr, SetTime, Time, XattrMode,
};
use leeward_meta::{Batch, Kv};
use leeward_volume::admin::{self, ChangeKind, PropertyChanges};
use leeward_volume::format::inode::Inode;
use leeward_volume::format::keys;
use std::collections::BTreeSet;

const ROOT: NodeId = NodeId::ROOT;
const CAPABILITY: &[u8] = b"security.capability";
const I: InodeFlags = InodeFlags::IMMUTABLE;
const A: InodeFlags = InodeFlags::APPEND_ONLY;
const D: InodeFlags = InodeFlags::NO_DUMP;
const NONE: InodeFlags = InodeFlags::from_bits(0);
const ANY: Precondition = Precondition::Any;
const NOTHING: SetAttr =
    SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, flags: None };
const NOW: Option<SetTime> = Some(SetTime::Now);
const THEN: Option<SetTime> = Some(SetTime::To(Time { secs: 7, nanos: 0 }));

impl Rig {
    fn set_flags_as(&self, uid: u32, node: NodeId, flags: InodeFlags) -> Result<Reply> {
        let set = SetAttr { flags: Some(flags), ..NOTHING };
        self.cell.call(&Ctx::user(uid, uid), Op::SetAttr { node, set })
    }

    #[track_caller]
    fn set_flags(&self, node: NodeId, flags: InodeFlags) {
        self.set_flags_as(0, node, flags).expect("set");
    }

    fn unnamed(&self) -> NodeId {
        let ctx = Ctx { refs: true, ..Ctx::system() };
        match self.cell.call(&ctx, Op::MakeUnnamed { dir: ROOT, mode: 0o644, umask: 0, bytes: 0 }) {
            Ok(Reply::Attr(attr)) => attr.node,
            other => panic!("{other:?}"),
        }
    }
}

/// What the operations of the table are about: `/d` with the file `f`, the empty directory `s` and
/// the symbolic link `l`; `/t` with the file `g`; a file without a name; an upload in parts.
struct World {
    rig: Rig,
    d: NodeId,
    f: NodeId,
    s: NodeId,
    l: NodeId,
    t: NodeId,
    g: NodeId,
    unnamed: NodeId,
    upload: NodeId,
}

/// Bytes in `f` and in `g`.
const BYTES: u64 = 10_000;

impl World {
    fn new() -> World {
        let rig = Rig::new();
        rig.admin(&admin::BucketCreate { name: "buc".into(), path: "/".into(), public: false });
        let (d, t) = (rig.dir("d"), rig.dir("t"));
        let (f, g) = (rig.file("d/f", &[1; BYTES as usize]), rig.file("t/g", &[2; BYTES as usize]));
        let (s, l) = (rig.dir("d/s"), rig.make("d/l", Make::Symlink(b"f")).expect("made"));
        rig.call(Op::SetXattr { node: f, name: b"user.x", value: b"1", mode: XattrMode::Set }).expect("set");
        let unnamed = rig.unnamed();
        let upload = match rig.call(Op::BeginUpload { dir: ROOT, key: b"buc/k", note: b"" }) {
            Ok(Reply::Begun(upload)) => upload,
            other => panic!("{other:?}"),
        };
        World { rig, d, f, s, l, t, g, unnamed, upload }
    }

    /// The inode that a letter of the table stands for.
    fn subject(&self, letter: &str) -> NodeId {
        match letter {
            "d" => self.d,
            "f" => self.f,
            _ => self.s,
        }
    }

    /// What a refused operation must leave as it is.
    fn shown(&self) -> Vec<(Attr, Vec<(String, leeward_fs::Kind)>)> {
        let of = |(node, path)| (self.rig.attr(node), self.rig.list(path));
        [(self.d, "d"), (self.f, "t"), (self.s, "d/s"), (self.g, "t")].into_iter().map(of).collect()
    }
}

/// An operation, and the flags that refuse it: `f+i` is the file `f` when it is immutable.
struct Case {
    op: fn(&World) -> Op<'static>,
    refused: &'static str,
}

const fn case(op: fn(&World) -> Op<'static>, refused: &'static str) -> Case {
    Case { op, refused }
}

/// Removes `f` from `d`, or replaces it.
const REMOVES_F: &str = "f+i f+a d+i d+a";
/// Removes `s` from `d`.
const REMOVES_S: &str = "s+i s+a d+i d+a";

fn rename(from: (NodeId, &'static [u8]), to: (NodeId, &'static [u8]), mode: RenameMode) -> Op<'static> {
    Op::Rename { from_dir: from.0, from_name: from.1, to_dir: to.0, to_name: to.1, mode }
}

fn set(node: NodeId, set: SetAttr) -> Op<'static> {
    Op::SetAttr { node, set }
}

fn allocate(w: &World, mode: Allocate) -> Op<'static> {
    Op::Allocate { node: w.f, offset: 4096, len: 4096, mode }
}

fn copy(w: &World, to_offset: u64) -> Op<'static> {
    Op::CopyRange { from: w.g, from_offset: 0, to: w.f, to_offset, len: 100 }
}

const TABLE: &[Case] = &[
    case(|w| Op::Lookup { dir: w.d, name: b"f" }, ""),
    case(|w| Op::GetAttr { node: w.f }, ""),
    case(|w| Op::ReadLink { node: w.l }, ""),
    case(|w| Op::Read { node: w.f, offset: 0, len: 9 }, ""),
    case(|w| Op::ContentVersions { node: w.f, block: 0 }, ""),
    case(|w| Op::List { dir: w.d, after: b"", limit: 9, attrs: true }, ""),
    case(|w| Op::GetXattr { node: w.f, name: b"user.x" }, ""),
    case(|w| Op::ListXattr { node: w.f }, ""),
    case(|w| Op::StatFs { node: w.f }, ""),
    case(|w| Op::SeekTo { node: w.f, offset: 0, what: Seek::Hole }, ""),
    case(|w| Op::Fsync { node: w.f }, ""),
    case(|_| Op::SyncAll, ""),
    case(|w| Op::Forget { node: w.f, count: 0 }, ""),
    // attributes
    case(|w| set(w.f, SetAttr { mode: Some(0o600), ..NOTHING }), "f+i f+a"),
    case(|w| set(w.f, SetAttr { uid: Some(1), ..NOTHING }), "f+i f+a"),
    case(|w| set(w.f, SetAttr { gid: Some(1), ..NOTHING }), "f+i f+a"),
    case(|w| set(w.f, SetAttr { size: Some(5), ..NOTHING }), "f+i f+a"),
    case(|w| set(w.f, SetAttr { size: Some(BYTES), ..NOTHING }), "f+i f+a"),
    case(|w| set(w.f, SetAttr { size: Some(BYTES * 2), ..NOTHING }), "f+i f+a"),
    case(|w| set(w.f, SetAttr { atime: THEN, mtime: THEN, ..NOTHING }), "f+i f+a"),
    case(|w| set(w.f, SetAttr { mtime: NOW, ..NOTHING }), "f+i f+a"),
    case(|w| set(w.f, SetAttr { atime: NOW, mtime: NOW, ..NOTHING }), "f+i"),
    case(|w| set(w.f, SetAttr { flags: Some(NONE), ..NOTHING }), ""),
    case(|w| set(w.f, SetAttr { flags: Some(I), ..NOTHING }), ""),
    case(|w| set(w.f, SetAttr { flags: Some(NONE), mode: Some(0o600), ..NOTHING }), "f+i f+a"),
    case(|w| set(w.d, SetAttr { mode: Some(0o700), ..NOTHING }), "d+i d+a"),
    case(|w| set(w.d, SetAttr { atime: NOW, mtime: NOW, ..NOTHING }), "d+i"),
    case(|w| Op::SetXattr { node: w.f, name: b"user.y", value: b"2", mode: XattrMode::Set }, "f+i f+a"),
    case(|w| Op::SetXattr { node: w.d, name: b"user.y", value: b"2", mode: XattrMode::Set }, "d+i d+a"),
    case(|w| Op::SetXattr { node: w.f, name: ACL_NAME, value: ACL, mode: XattrMode::Set }, "f+i f+a"),
    case(|w| Op::RemoveXattr { node: w.f, name: b"user.x" }, "f+i f+a"),
    case(|w| Op::RemoveXattr { node: w.d, name: b"leeward.pool" }, "d+i d+a"),
    // content
    case(|w| Op::Write { node: w.f, offset: 0, data: b"x" }, "f+i f+a"),
    case(|w| Op::Write { node: w.f, offset: BYTES - 1, data: b"xx" }, "f+i f+a"),
    case(|w| Op::Write { node: w.f, offset: BYTES, data: b"x" }, "f+i"),
    case(|w| Op::Write { node: w.f, offset: BYTES * 2, data: b"x" }, "f+i"),
    case(|w| Op::Write { node: w.f, offset: 0, data: b"" }, "f+i"),
    case(|w| Op::Append { node: w.f, data: b"x" }, "f+i"),
    case(|w| allocate(w, Allocate::Reserve { keep_size: false }), "f+i"),
    case(|w| allocate(w, Allocate::Reserve { keep_size: true }), "f+i"),
    case(|w| allocate(w, Allocate::PunchHole), "f+i f+a"),
    case(|w| allocate(w, Allocate::ZeroRange { keep_size: true }), "f+i f+a"),
    case(|w| Op::Allocate { node: w.f, offset: 1 << 30, len: 1, mode: Allocate::PunchHole }, "f+i f+a"),
    case(|w| copy(w, 0), "f+i f+a"),
    case(|w| copy(w, BYTES), "f+i"),
    case(|w| Op::CopyRange { from: w.f, from_offset: 0, to: w.g, to_offset: 0, len: 100 }, ""),
    // new names
    case(|w| Op::Make { dir: w.d, name: b"x", make: Make::File, mode: 0o644, umask: 0 }, "d+i"),
    case(|w| Op::Make { dir: w.d, name: b"x", make: Make::Dir, mode: 0o755, umask: 0 }, "d+i"),
    case(|w| Op::Make { dir: w.d, name: b"x", make: Make::Symlink(b"f"), mode: 0o755, umask: 0 }, "d+i"),
    case(|w| Op::Make { dir: w.d, name: b"x", make: Make::Fifo, mode: 0o755, umask: 0 }, "d+i"),
    case(|w| Op::MakeUnnamed { dir: w.d, mode: 0o644, umask: 0, bytes: 0 }, "d+i"),
    case(|w| Op::Link { node: w.f, dir: w.t, name: b"x" }, "f+i f+a"),
    case(|w| Op::Link { node: w.g, dir: w.d, name: b"x" }, "d+i"),
    case(|w| Op::Place { node: w.unnamed, dir: w.d, name: b"x", over: ANY }, "d+i"),
    case(|w| Op::Place { node: w.unnamed, dir: w.d, name: b"f", over: ANY }, REMOVES_F),
    // names removed and moved
    case(|w| Op::Unlink { dir: w.d, name: b"f", over: ANY }, REMOVES_F),
    case(|w| Op::RmDir { dir: w.d, name: b"s" }, REMOVES_S),
    case(|w| rename((w.d, b"f"), (w.d, b"x"), RenameMode::Replace), REMOVES_F),
    case(|w| rename((w.d, b"f"), (w.t, b"x"), RenameMode::NoReplace), REMOVES_F),
    case(|w| rename((w.d, b"f"), (w.t, b"g"), RenameMode::Replace), REMOVES_F),
    case(|w| rename((w.d, b"f"), (w.t, b"g"), RenameMode::Exchange), REMOVES_F),
    case(|w| rename((w.t, b"g"), (w.d, b"x"), RenameMode::Replace), "d+i"),
    case(|w| rename((w.t, b"g"), (w.d, b"f"), RenameMode::Replace), REMOVES_F),
    case(|w| rename((w.d, b"s"), (w.t, b"x"), RenameMode::Replace), REMOVES_S),
    case(|w| rename((w.d, b"f"), (w.d, b"f"), RenameMode::Replace), ""),
    case(|_| rename((ROOT, b"d"), (ROOT, b"x"), RenameMode::Replace), "d+i d+a"),
    // uploads in parts
    case(|w| Op::BeginUpload { dir: w.d, key: b"buc/d/x", note: b"" }, "d+i"),
    case(|w| Op::KeepPart { node: w.unnamed, upload: w.upload, number: 1, note: b"" }, ""),
    case(|w| complete(w, b"x"), "d+i"),
    case(|w| complete(w, b"f"), REMOVES_F),
    case(|w| Op::EndUpload { upload: w.upload }, ""),
    case(|w| Op::GetUpload { upload: w.upload }, ""),
    case(|w| Op::ListParts { upload: w.upload, after: 0, limit: 9 }, ""),
    case(|_| Op::ListUploads { prefix: b"", after: b"", after_upload: NodeId(0), limit: 9 }, ""),
    case(|_| Op::StatUploads { bucket: None }, ""),
    case(|w| Op::ContentVersions { node: w.f, block: 0 }, ""),
];

const ACL_NAME: &[u8] = b"system.posix_acl_access";
/// An ACL without entries: the mode says all.
const ACL: &[u8] = &[2, 0, 0, 0];

fn complete(w: &World, name: &'static [u8]) -> Op<'static> {
    Op::CompleteUpload { upload: w.upload, node: w.unnamed, dir: w.d, name, over: ANY, note: b"" }
}

/// Root asks, whom flags hold like anybody.
#[test]
fn each_operation_is_refused_by_the_flags_that_forbid_it() {
    for (number, case) in TABLE.iter().enumerate() {
        for subject in ["d", "f", "s"] {
            for (letter, flag) in [("i", I), ("a", A), ("d", D)] {
                let world = World::new();
                world.rig.set_flags(world.subject(subject), flag);
                let before = world.shown();
                let op = (case.op)(&world);
                let done = world.rig.call(op);
                let flagged = format!("{subject}+{letter}");
                let context = format!("{op:?} (number {number}) with {flagged}");
                if case.refused.split(' ').any(|refused| refused == flagged) {
                    assert_eq!(done, Err(Error::NotPermitted), "{context}");
                    assert_eq!(world.shown(), before, "{context}");
                } else if let Err(e) = done {
                    panic!("{context}: {e}");
                }
            }
        }
    }
}

#[test]
fn the_table_has_every_operation() {
    let world = World::new();
    let in_table: BTreeSet<&str> = TABLE.iter().map(|case| Op::NAMES[(case.op)(&world).number()]).collect();
    assert_eq!(in_table, Op::NAMES.iter().copied().collect());
}

#[test]
fn root_changes_all_flags_and_the_owner_only_one() {
    let rig = Rig::new();
    let f = rig.file("f", b"x");
    let chown = SetAttr { uid: Some(1000), ..NOTHING };
    rig.call(Op::SetAttr { node: f, set: chown }).expect("given");
    let attempt = |uid, flags| rig.set_flags_as(uid, f, flags).map(drop);
    assert_eq!(attempt(1000, D), Ok(()));
    assert_eq!(attempt(1001, NONE), Err(Error::NotPermitted), "another user");
    for flags in [I, A, I.or(D), D.or(A)] {
        assert_eq!(attempt(1000, flags), Err(Error::NotPermitted));
        assert_eq!(attempt(0, flags), Ok(()));
        assert_eq!(rig.attr(f).flags, flags);
        let d_changed = if flags.has(I) { Err(Error::NotPermitted) } else { Ok(()) };
        assert_eq!(attempt(1000, flags.changed(D)), d_changed, "as ext4 has it");
        assert_eq!(attempt(0, flags), Ok(()));
        assert_eq!(attempt(1000, NONE), Err(Error::NotPermitted));
        assert_eq!(attempt(0, D), Ok(()));
    }
    for unknown in [0x1, 0x80, 0x8_0000, 1 << 31] {
        assert_eq!(attempt(0, InodeFlags::from_bits(unknown).or(D)), Err(Error::NotSupported));
    }
    for make in [Make::Symlink(b"f"), Make::Fifo, Make::Socket] {
        let node = rig.make("other", make).expect("made");
        assert_eq!(rig.set_flags_as(0, node, I), Err(Error::NotSupported));
        rig.unlink("other");
    }
}

/// The kernel has root clear them before another user's write.
#[test]
fn set_ids_of_an_append_only_file_can_go() {
    let rig = Rig::new();
    let f = rig.file("f", b"x");
    let mode = |uid, mode| {
        let ctx = leeward_env::Ctx::user(uid, uid);
        rig.cell.call(&ctx, Op::SetAttr { node: f, set: SetAttr { mode: Some(mode), ..NOTHING } }).map(drop)
    };
    assert_eq!(mode(0, 0o6770), Ok(()));
    for name in [CAPABILITY, b"user.x"] {
        rig.call(Op::SetXattr { node: f, name, value: b"x", mode: XattrMode::Set }).expect("set");
    }
    rig.set_flags(f, A);
    assert_eq!(rig.call(Op::RemoveXattr { node: f, name: CAPABILITY }), Ok(Reply::Done));
    assert_eq!(rig.call(Op::RemoveXattr { node: f, name: b"user.x" }), Err(Error::NotPermitted));
    for refused in [0o777, 0o6777, 0o770 | 0o1000, 0o6770] {
        assert_eq!(mode(0, refused), Err(Error::NotPermitted), "{refused:o}");
    }
    assert_eq!(mode(0, 0o2770), Ok(()));
    assert_eq!(mode(0, 0o770), Ok(()));
    rig.set_flags(f, NONE);
    assert_eq!(mode(0, 0o4770), Ok(()));
    rig.set_flags(f, I);
    assert_eq!(mode(0, 0o770), Err(Error::NotPermitted));
}

/// Whoever changes what a program is, or whose it is, takes its capabilities away.
#[test]
fn capabilities_go_when_content_or_owner_change() {
    let rig = Rig::new();
    let (source, f) = (rig.file("source", b"other"), rig.file("f", b"content"));
    let set = |set| Op::SetAttr { node: f, set };
    let take = [
        Op::Write { node: f, offset: 0, data: b"x" },
        Op::Append { node: f, data: b"x" },
        set(SetAttr { size: Some(3), ..NOTHING }),
        set(SetAttr { uid: Some(0), ..NOTHING }),
        set(SetAttr { gid: Some(0), ..NOTHING }),
        Op::Allocate { node: f, offset: 0, len: 9, mode: Allocate::PunchHole },
        Op::Allocate { node: f, offset: 0, len: 9, mode: Allocate::Reserve { keep_size: false } },
        Op::CopyRange { from: source, from_offset: 0, to: f, to_offset: 0, len: 5 },
    ];
    let leave = [set(SetAttr { mode: Some(0o700), ..NOTHING }), set(SetAttr { mtime: NOW, ..NOTHING })];
    let add =
        |name| rig.call(Op::SetXattr { node: f, name, value: b"x", mode: XattrMode::Set }).expect("set");
    add(b"user.x");
    let left = |uid, op| {
        add(CAPABILITY);
        rig.cell.call(&Ctx::user(uid, uid), op).expect("done");
        rig.call(Op::GetXattr { node: f, name: CAPABILITY })
    };
    for uid in [0, 1000] {
        take.iter().for_each(|op| assert_eq!(left(uid, *op), Err(Error::NoData), "{uid}: {op:?}"));
        leave.iter().for_each(|op| assert!(left(uid, *op).is_ok(), "{uid}: {op:?}"));
    }
    assert_eq!(rig.call(Op::GetXattr { node: f, name: b"user.x" }), Ok(Reply::Data(b"x".to_vec())));
    rig.clean();
}

#[test]
fn setting_flags_changes_nothing_but_the_time_of_change() {
    let mut rig = Rig::new();
    let f = rig.file("f", b"content");
    let before = rig.attr(f);
    rig.env.advance(std::time::Duration::from_secs(5));
    rig.set_flags(f, I.or(D));
    let after = rig.attr(f);
    assert!(after.ctime > before.ctime);
    assert_eq!(Attr { flags: I.or(D), ctime: after.ctime, ..before }, after);
    rig.clean();
    rig.reopen();
    assert_eq!(rig.attr(f), after);
    assert_eq!(rig.read("f"), Ok(b"content".to_vec()), "written before the flag was set");
    rig.set_flags(f, NONE);
    rig.unlink("f");
    rig.clean();
}

#[test]
fn new_inodes_inherit_no_dump_alone() {
    let rig = Rig::new();
    let d = rig.dir("d");
    rig.set_flags(d, D.or(A));
    for make in [Make::File, Make::Dir, Make::Symlink(b"x"), Make::Fifo] {
        let node = rig.make("d/new", make).expect("made");
        assert_eq!(rig.attr(node).flags, D);
        rig.set_flags(d, D);
        let _ = rig.rmdir("d/new").map_err(|_| rig.unlink("d/new"));
        rig.set_flags(d, D.or(A));
    }
    let op = Op::MakeUnnamed { dir: d, mode: 0o600, umask: 0, bytes: 0 };
    let Ok(Reply::Attr(unnamed)) = rig.call(op) else { panic!("not made") };
    assert_eq!(unnamed.flags, D);
}

/// An append-only log takes appends whatever is stored already, and across closing.
#[test]
fn an_append_only_file_grows() {
    let mut rig = Rig::new();
    let f = rig.file("log", b"");
    rig.set_flags(f, A);
    let mut all = Vec::new();
    for n in 0..40u8 {
        let part = vec![n; 30_000];
        rig.write(f, all.len() as u64, &part).expect("appended");
        all.extend(part);
        assert_eq!(rig.write(f, all.len() as u64 - 1, b"xy"), Err(Error::NotPermitted));
        if n % 13 == 0 {
            rig.reopen();
        }
    }
    assert_eq!(rig.read("log"), Ok(all));
    rig.clean();
}

#[test]
fn a_snapshot_has_the_flags_of_its_time_and_takes_none() {
    let rig = Rig::new();
    let d = rig.dir("d");
    let f = rig.file("d/f", b"old");
    rig.set_flags(f, I);
    rig.set_flags(d, I);
    rig.dir("d/.snap/s");
    rig.set_flags(d, NONE);
    rig.set_flags(f, D);
    let then = rig.at("d/.snap/s/f").expect("there");
    assert_eq!(rig.attr(then).flags, I);
    assert_eq!(rig.attr(rig.at("d/.snap/s").expect("there")).flags, I);
    assert_eq!(rig.attr(rig.at("d/.snap").expect("there")).flags, NONE);
    assert_eq!(rig.set_flags_as(0, then, NONE), Err(Error::ReadOnly));
    assert_eq!(rig.set_flags_as(0, rig.at("d/.snap").expect("there"), I), Err(Error::ReadOnly));
    let diff = admin::SnapDiff { path: "/d".into(), from: "s".into(), to: None };
    let changes = rig.admin(&diff).changes;
    let changed: Vec<_> = changes.iter().map(|c| (c.kind, c.path.as_bytes().to_vec())).collect();
    assert_eq!(changed, [(ChangeKind::Changed, b"".to_vec()), (ChangeKind::Changed, b"f".to_vec())]);
    rig.clean();
}

/// A restore is an operator's: it replaces what flags keep, and the flags are those of the
/// snapshot.
#[test]
fn a_restore_replaces_immutable_files() {
    let rig = Rig::new();
    let d = rig.dir("d");
    let f = rig.file("d/f", b"old");
    rig.set_flags(f, A);
    rig.dir("d/.snap/s");
    rig.set_flags(f, NONE);
    rig.file("d/f", b"new");
    let restore = |what: &str, to: Option<&str>, in_place| admin::SnapRestore {
        path: "/d".into(),
        name: "s".into(),
        what: what.into(),
        to: to.map(Into::into),
        in_place,
    };
    rig.set_flags(f, I);
    rig.set_flags(d, I);
    rig.admin(&restore("f", None, true));
    let restored = rig.at("d/f").expect("there");
    assert_eq!((rig.read("d/f"), rig.attr(restored).flags), (Ok(b"old".to_vec()), A));
    rig.admin(&restore("", None, true));
    assert_eq!(rig.attr(d).flags, I, "the directory itself stays");
    let refused = rig.ask(&restore("f", Some("/d/new"), false)).expect_err("a new name");
    assert_eq!(refused.errno, libc::EPERM);
    rig.admin(&restore("", Some("/copy"), false));
    let copy = rig.at("copy/f").expect("there");
    assert_eq!(rig.attr(copy).flags, A);
    rig.clean();
}

/// The cell frees what nobody reaches, whatever its flags.
#[test]
fn flags_keep_no_orphan() {
    let rig = Rig::new();
    let node = rig.unnamed();
    rig.write(node, 0, &[7; 600_000]).expect("written");
    rig.set_flags(node, I);
    let linked = rig.call(Op::Link { node, dir: ROOT, name: b"x" });
    assert_eq!(linked, Err(Error::NotPermitted));
    let placed = rig.call(Op::Place { node, dir: ROOT, name: b"x", over: ANY });
    assert_eq!(placed, Err(Error::NotPermitted));
    rig.call(Op::Forget { node, count: 1 }).expect("forgotten");
    rig.clean();
    assert_eq!(rig.call(Op::GetAttr { node }), Err(Error::Stale));
}

#[test]
fn operators_add_no_name_to_an_immutable_directory() {
    let rig = Rig::new();
    let d = rig.dir("d");
    rig.admin(&admin::VolumeSet {
        name: "root".into(),
        set: PropertyChanges { bin_days: Some(7), ..PropertyChanges::default() },
    });
    rig.file("d/f", b"content");
    rig.unlink("d/f");
    let volume = |name: &str, at: &str| admin::VolumeCreate {
        name: name.into(),
        at: at.into(),
        uid: 0,
        gid: 0,
        pool: None,
    };
    rig.file("g", b"too");
    rig.unlink("g");
    rig.admin(&volume("before", "/d/before"));
    rig.set_flags(d, I);
    let created = rig.ask(&volume("v", "/d/v")).expect_err("refused");
    assert_eq!(created.errno, libc::EPERM);
    let bin = admin::BinRestore { path: "/d/f".into(), at_secs: None, to: None };
    assert_eq!(rig.ask(&bin).expect_err("refused").errno, libc::EPERM);
    let all = admin::BinRestore { path: "/".into(), at_secs: None, to: None };
    assert_eq!(rig.admin(&all).left, 1, "the rest comes back");
    assert_eq!(rig.read("g"), Ok(b"too".to_vec()));
    rig.admin(&admin::VolumeRemove { name: "before".into() });
    rig.set_flags(d, A);
    rig.admin(&volume("v", "/d/v"));
    rig.admin(&bin);
    assert_eq!(rig.read("d/f"), Ok(b"content".to_vec()));
    rig.clean();
}

#[test]
fn fsck_finds_flags_that_mean_nothing() {
    let mut rig = Rig::new();
    let f = rig.file("f", b"content");
    rig.clean();
    rig.cell.close().expect("a clean close");
    let kv = engine(&rig.env, &rig.disk);
    let record = kv.get(&keys::inode(f)).expect("read").expect("there");
    let record = Inode { flags: InodeFlags::from_bits(0x410), ..Inode::decode(&record).expect("whole") };
    let writes = vec![(keys::inode(f), Some(record.encode()))];
    kv.commit(&Batch { writes, inline_data: Vec::new() }).expect("changed");
    drop(kv);
    rig.start();
    let findings: Vec<_> = rig.findings().into_iter().map(|f| (f.kind, f.detail)).collect();
    assert_eq!(findings, [("flags".to_string(), "unknown flags 0x400".to_string())]);
    assert_eq!(rig.attr(f).flags, InodeFlags::from_bits(0x410));
}
