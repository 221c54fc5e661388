//! Files without a name, and how they get one.

use crate::rig::{Rig, engine, noise};
use leeward_env::Ctx;
use leeward_fs::{Attr, Error, Fs, Make, NodeId, Op, Precondition, Reply, Result, XattrMode};
use leeward_meta::{Batch, Kv, Value};
use leeward_volume::admin;
use leeward_volume::format::keys::{self, Key};

const ROOT: NodeId = NodeId::ROOT;

fn door() -> Ctx {
    Ctx { refs: true, ..Ctx::user(1000, 1000) }
}

fn attr(reply: Result<Reply>) -> Attr {
    match reply {
        Ok(Reply::Attr(attr)) => attr,
        other => panic!("{other:?}"),
    }
}

fn unnamed(rig: &Rig, bytes: u64) -> NodeId {
    attr(rig.cell.call(&door(), Op::MakeUnnamed { dir: ROOT, mode: 0o666, umask: 0o22, bytes })).node
}

fn write(rig: &Rig, node: NodeId, data: &[u8]) {
    rig.cell.call(&door(), Op::Write { node, offset: 0, data }).expect("written");
}

fn place(rig: &Rig, node: NodeId, name: &[u8], over: Precondition) -> Result<Reply> {
    rig.cell.call(&door(), Op::Place { node, dir: ROOT, name, over })
}

fn read(rig: &Rig, name: &[u8]) -> Result<Vec<u8>> {
    let node = match rig.call(Op::Lookup { dir: ROOT, name })? {
        Reply::Attr(attr) => attr.node,
        other => panic!("{other:?}"),
    };
    match rig.call(Op::Read { node, offset: 0, len: 1 << 20 })? {
        Reply::Data(data) => Ok(data),
        other => panic!("{other:?}"),
    }
}

fn forget(rig: &Rig, node: NodeId) {
    rig.cell.call(&door(), Op::Forget { node, count: 1 }).expect("forgotten");
}

fn used(rig: &Rig) -> (u64, u64) {
    {
        let usage = rig.admin(&admin::UsageShow { path: "/".into() });
        (usage.bytes, usage.files)
    }
}

#[test]
fn nothing_is_seen_of_a_file_before_it_has_its_name() {
    let mut rig = Rig::new();
    let node = unnamed(&rig, 5);
    write(&rig, node, b"hello");
    let made = attr(rig.call(Op::GetAttr { node }));
    assert_eq!((made.nlink, made.size, made.mode, made.uid), (0, 5, 0o644, 1000));
    assert_eq!((read(&rig, b"f"), used(&rig)), (Err(Error::NotFound), (0, 0)));
    let placed = attr(place(&rig, node, b"f", Precondition::Nothing));
    assert_eq!((placed.node, placed.nlink, placed.size), (node, 1, 5));
    assert_eq!((read(&rig, b"f"), used(&rig)), (Ok(b"hello".to_vec()), (5, 1)));
    assert_eq!(place(&rig, node, b"g", Precondition::Any), Err(Error::Invalid), "it has one");
    forget(&rig, node);
    assert_eq!(read(&rig, b"f"), Ok(b"hello".to_vec()));
    rig.clean();
    rig.reopen();
    assert_eq!(read(&rig, b"f"), Ok(b"hello".to_vec()));
    rig.clean();
}

#[test]
fn what_gets_no_name_is_freed() {
    let mut rig = Rig::new();
    for data in [b"small".to_vec(), noise(900_000, 1)] {
        let node = unnamed(&rig, 0);
        write(&rig, node, &data);
        rig.cell
            .call(&door(), Op::SetXattr { node, name: b"user.a", value: b"b", mode: XattrMode::Set })
            .expect("set");
        forget(&rig, node);
        rig.clean();
        assert_eq!(rig.call(Op::GetAttr { node }), Err(Error::Stale));
    }
    // and after a crash
    let node = unnamed(&rig, 0);
    write(&rig, node, &noise(900_000, 2));
    rig.call(Op::Fsync { node }).expect("synced");
    rig.start();
    rig.clean();
    assert_eq!(rig.call(Op::GetAttr { node }), Err(Error::Stale));
    assert_eq!(used(&rig), (0, 0));
}

#[test]
fn what_it_replaces_is_gone_and_nothing_else() {
    let rig = Rig::new();
    for (n, size) in [5, 300_000, 900_000].into_iter().enumerate() {
        let node = unnamed(&rig, 0);
        write(&rig, node, &noise(size, n as u64));
        place(&rig, node, b"f", Precondition::Any).expect("placed");
        forget(&rig, node);
        assert_eq!(read(&rig, b"f").map(|d| d == noise(size, n as u64)), Ok(true));
        assert_eq!(used(&rig), (size as u64, 1));
        rig.clean();
    }
    let dir = Op::Make { dir: ROOT, name: b"d", make: Make::Dir, mode: 0o755, umask: 0 };
    rig.call(dir).expect("made");
    let node = unnamed(&rig, 0);
    for (name, over, why) in [
        (&b"d"[..], Precondition::Any, Error::IsDir),
        (b"f", Precondition::Nothing, Error::Exists),
        (b".snap", Precondition::Any, Error::Exists),
        (b"..", Precondition::Any, Error::Exists),
        (b"a/b", Precondition::Any, Error::Invalid),
    ] {
        assert_eq!(place(&rig, node, name, over), Err(why), "{name:?}");
    }
    rig.clean();
}

#[test]
fn only_what_was_seen_is_replaced() {
    let rig = Rig::new();
    let first = unnamed(&rig, 0);
    place(&rig, first, b"f", Precondition::Any).expect("placed");
    let seen = attr(rig.call(Op::Lookup { dir: ROOT, name: b"f" }));
    write(&rig, first, b"changed");
    let second = unnamed(&rig, 0);
    assert_eq!(place(&rig, second, b"f", Precondition::This(first, seen.ctime)), Err(Error::Changed));
    assert_eq!(place(&rig, second, b"g", Precondition::This(first, seen.ctime)), Err(Error::Changed));
    let now = attr(rig.call(Op::Lookup { dir: ROOT, name: b"f" }));
    place(&rig, second, b"f", Precondition::This(first, now.ctime)).expect("placed");
    let remove = |over| rig.call(Op::Unlink { dir: ROOT, name: b"f", over });
    assert_eq!(remove(Precondition::Nothing), Err(Error::Exists));
    assert_eq!(remove(Precondition::This(first, now.ctime)), Err(Error::Changed));
    let now = attr(rig.call(Op::Lookup { dir: ROOT, name: b"f" }));
    write(&rig, second, b"changed");
    assert_eq!(remove(Precondition::This(second, now.ctime)), Err(Error::Changed));
    let now = attr(rig.call(Op::Lookup { dir: ROOT, name: b"f" }));
    remove(Precondition::This(second, now.ctime)).expect("removed");
    rig.clean();
}

#[test]
fn a_quota_without_room_refuses_it_at_the_beginning_and_at_the_end() {
    let rig = Rig::new();
    rig.admin(&admin::QuotaSet { path: "/".into(), bytes: Some(1_000_000), files: None });
    let made = |bytes| rig.cell.call(&door(), Op::MakeUnnamed { dir: ROOT, mode: 0o666, umask: 0, bytes });
    assert_eq!(made(1_000_001), Err(Error::Quota));
    let (a, b) = (unnamed(&rig, 600_000), unnamed(&rig, 600_000));
    for node in [a, b] {
        write(&rig, node, &noise(600_000, 3));
    }
    place(&rig, a, b"f", Precondition::Any).expect("fits");
    assert_eq!(place(&rig, b, b"g", Precondition::Any), Err(Error::Quota));
    place(&rig, b, b"f", Precondition::Any).expect("in place of as much");
    [a, b].into_iter().for_each(|node| forget(&rig, node));
    assert_eq!(used(&rig), (600_000, 1));
    rig.clean();
}

#[test]
fn a_snapshot_in_between_has_the_old_file() {
    let rig = Rig::new();
    let old = unnamed(&rig, 0);
    write(&rig, old, b"old");
    place(&rig, old, b"f", Precondition::Any).expect("placed");
    forget(&rig, old);
    let new = unnamed(&rig, 0);
    write(&rig, new, &noise(400_000, 5));
    let snap = attr(rig.call(Op::Lookup { dir: ROOT, name: b".snap" })).node;
    let take = Op::Make { dir: snap, name: b"s", make: Make::Dir, mode: 0, umask: 0 };
    let view = attr(rig.call(take)).node;
    place(&rig, new, b"f", Precondition::Any).expect("placed");
    forget(&rig, new);
    let seen = attr(rig.call(Op::Lookup { dir: view, name: b"f" })).node;
    assert_eq!(rig.call(Op::Read { node: seen, offset: 0, len: 10 }), Ok(Reply::Data(b"old".to_vec())));
    rig.clean();
    rig.call(Op::RmDir { dir: snap, name: b"s" }).expect("removed");
    rig.clean();
    assert_eq!(read(&rig, b"f").map(|d| d.len()), Ok(400_000));
}

#[test]
fn the_answer_to_a_place_carries_a_reference() {
    let rig = Rig::new();
    let node = unnamed(&rig, 2);
    write(&rig, node, b"ab");
    place(&rig, node, b"n", Precondition::Nothing).unwrap();
    rig.call(Op::Unlink { dir: ROOT, name: b"n", over: Precondition::Any }).unwrap();
    let read = || rig.call(Op::Read { node, offset: 0, len: 2 });
    forget(&rig, node);
    assert!(matches!(read(), Ok(Reply::Data(data)) if data == b"ab"), "one of two is left");
    forget(&rig, node);
    assert_eq!(read().err(), Some(Error::Stale));
}

/// A file that had several names, is held without one, and gets one again: what a machine may ask
/// for, though no kernel does.
#[test]
fn what_had_several_names_can_have_several_again() {
    let rig = Rig::new();
    let dir = rig.dir("d");
    let link = |node, dir, name: &[u8]| rig.call(Op::Link { node, dir, name });
    for to in [ROOT, dir] {
        let node = unnamed(&rig, 0);
        place(&rig, node, b"a", Precondition::Nothing).expect("placed");
        link(node, dir, b"b").expect("linked");
        ["a", "d/b"].into_iter().for_each(|name| rig.unlink(name));
        rig.cell
            .call(&door(), Op::Place { node, dir: to, name: b"c", over: Precondition::Nothing })
            .expect("placed");
        rig.clean();
        link(node, to, b"e").expect("linked");
        rig.clean();
        let at = if to == ROOT { "" } else { "d/" };
        rig.rename(&format!("{at}c"), "f").expect("renamed");
        rig.clean();
        rig.unlink("f");
        rig.clean();
        rig.unlink(&format!("{at}e"));
        forget(&rig, node);
        rig.clean();
        assert_eq!(used(&rig), (0, 0));
    }
}

#[test]
fn fsck_finds_links_that_are_counted_in_the_wrong_directory() {
    let findings = |change: &dyn Fn(NodeId, NodeId) -> Vec<(Key, Option<Value>)>| {
        let mut rig = Rig::new();
        let (dir, node) = (rig.dir("d"), rig.file("a", b"a"));
        rig.call(Op::Link { node, dir, name: b"b" }).expect("linked");
        rig.file("alone", b"a");
        rig.clean();
        rig.cell.close().expect("a clean close");
        let kv = engine(&rig.env, &rig.disk);
        kv.commit(&Batch { writes: change(node, dir), inline_data: Vec::new() }).expect("changed");
        drop(kv);
        rig.start();
        rig.findings().into_iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    let count = |n: u32| Some(n.to_be_bytes()[..].into());
    assert_eq!(findings(&|_, _| Vec::new()), [""; 0]);
    assert_eq!(findings(&|node, dir| vec![(keys::link(node, dir), None)]), ["links"], "one is missing");
    assert_eq!(findings(&|node, dir| vec![(keys::link(node, dir), count(2))]), ["links"], "one too many");
    let moved = |node, dir| vec![(keys::link(node, dir), None), (keys::link(node, ROOT), count(2))];
    assert_eq!(findings(&moved), ["links"], "as many in all");
    let unread = |node, dir| vec![(keys::link(node, dir), Some((*b"x")[..].into()))];
    assert_eq!(findings(&unread), ["links", "links"], "not read, and so missing");
}
