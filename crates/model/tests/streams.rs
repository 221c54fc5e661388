//! Snapshots of random trees go to a copy in another cell: each is there as it was, by the digests
//! of both sides, and by a walk that knows nothing of streams.
//!
//! `MODEL_SEEDS=FROM..TO` chooses the seeds, `MODEL_STEPS` how many steps.
#![allow(clippy::disallowed_methods)]

use crate::whole::{SimCell, owner, seeds, steps};
use leeward_env::Ctx;
use leeward_fs::{
    Allocate, Attr, Entry, Error, Fs, Kind, Make, NodeId, Op, Precondition, RenameMode, Reply, Seek,
    XattrMode,
};
use leeward_model::Profile;
use leeward_model::crash::{CrashPoint, CrashTarget, Death, Moment};
use leeward_model::generate::{Generator, Rng};
use leeward_model::harness::{Harness, Target};
use leeward_volume::admin::{self, Failure, Pipe, Request, Sender, Streamed};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;

/// All that a walk finds of an inode, whose number is that at the source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    attr: Attr,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    content: Vec<u8>,
    /// Where data and holes begin.
    edges: Vec<u64>,
    names: BTreeMap<Vec<u8>, u64>,
}

fn call(cell: &SimCell, op: Op<'_>) -> leeward_fs::Result<Reply> {
    cell.cell.call(&Ctx::user(0, 0), op)
}

fn attr_of(cell: &SimCell, op: Op<'_>) -> Attr {
    match call(cell, op) {
        Ok(Reply::Attr(attr)) => attr,
        other => panic!("{op:?}: {other:?}"),
    }
}

fn list(cell: &SimCell, dir: NodeId) -> Vec<Entry> {
    let (mut all, mut after): (Vec<Entry>, Box<[u8]>) = (Vec::new(), Box::default());
    loop {
        match call(cell, Op::List { dir, after: &after, limit: 1000, attrs: false }) {
            Ok(Reply::Entries(page)) if page.is_empty() => return all,
            Ok(Reply::Entries(page)) => {
                after = page[page.len() - 1].name.clone();
                all.extend(page);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Everything below a directory, by inode number.
fn walk(cell: &SimCell, top: NodeId) -> BTreeMap<u64, Found> {
    let (mut all, mut waiting) = (BTreeMap::new(), vec![top]);
    while let Some(node) = waiting.pop() {
        if all.contains_key(&node.inode()) {
            continue;
        }
        let attr = attr_of(cell, Op::GetAttr { node });
        let names = if attr.kind == Kind::Dir { list(cell, node) } else { Vec::new() };
        let names: Vec<Entry> = names.into_iter().filter(|e| e.node.volume() == node.volume()).collect();
        waiting.extend(names.iter().map(|e| e.node));
        let found = Found {
            attr: Attr { node: NodeId(node.inode()), ..attr },
            xattrs: xattrs(cell, node),
            content: content(cell, node, attr.kind),
            edges: edges(cell, node, attr.kind),
            names: names.into_iter().map(|e| (e.name.to_vec(), e.node.inode())).collect(),
        };
        all.insert(node.inode(), found);
    }
    all
}

fn xattrs(cell: &SimCell, node: NodeId) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let Ok(Reply::Names(names)) = call(cell, Op::ListXattr { node }) else { panic!("xattrs of {node:?}") };
    let value = |name: &[u8]| match call(cell, Op::GetXattr { node, name }) {
        Ok(Reply::Data(value)) => value,
        other => panic!("{other:?}"),
    };
    names.iter().map(|name| (name.to_vec(), value(name))).collect()
}

fn content(cell: &SimCell, node: NodeId, kind: Kind) -> Vec<u8> {
    if kind == Kind::Symlink {
        let Ok(Reply::Data(target)) = call(cell, Op::ReadLink { node }) else { panic!("{node:?}") };
        return target;
    }
    let mut all = Vec::new();
    // files may be as long as can be: what is data is looked at
    for edge in edges(cell, node, kind).chunks(2) {
        let end = edge.get(1).copied().unwrap_or(edge[0]);
        let mut at = edge[0];
        while at < end {
            let len = (end - at).min(1 << 20) as u32;
            let Ok(Reply::Data(data)) = call(cell, Op::Read { node, offset: at, len }) else {
                panic!("{node:?}")
            };
            at += data.len() as u64;
            all.extend(data);
        }
    }
    all
}

fn edges(cell: &SimCell, node: NodeId, kind: Kind) -> Vec<u64> {
    let (mut all, mut at) = (Vec::new(), 0);
    for what in [Seek::Data, Seek::Hole].into_iter().cycle() {
        match call(cell, Op::SeekTo { node, offset: at, what }) {
            _ if kind != Kind::File => return all,
            Ok(Reply::Offset(offset)) => {
                all.push(offset);
                at = offset;
            }
            Err(Error::NoSuchPosition) => return all,
            other => panic!("{other:?}"),
        }
    }
    all
}

fn ask<R: Request>(cell: &SimCell, request: &R) -> Result<R::Reply, Failure> {
    cell.cell.admin(request, &mut |_| {})
}

/// A file in memory, and how a request names it.
fn pipe() -> (std::fs::File, Pipe) {
    let file = tempfile::tempfile().expect("a file");
    let pipe = Pipe::of(&file);
    (file, pipe)
}

fn send(cell: &SimCell, from: Option<&str>, name: &str) -> (std::fs::File, Streamed) {
    send_of("root", cell, from, name)
}

fn send_of(volume: &str, cell: &SimCell, from: Option<&str>, name: &str) -> (std::fs::File, Streamed) {
    let (file, pipe) = pipe();
    let (volume, name, from) = (volume.into(), name.into(), from.map(Into::into));
    let request = admin::SnapSend { volume, name, from, part: None, pipe };
    let sent = ask(cell, &request).expect("sent");
    assert_eq!(file.metadata().expect("its length").len(), sent.bytes);
    (file, sent)
}

fn receive(cell: &SimCell, file: &std::fs::File) -> Result<Streamed, Failure> {
    let pipe = Pipe::of(file);
    ask(cell, &admin::SnapReceive { volume: "copy".into(), pipe, instead: false, sender: Sender::default() })
}

/// A cell with a copy that has received nothing.
fn with_copy(seed: u64) -> SimCell {
    let cell = SimCell::new(seed);
    let (name, at) = ("copy".into(), "/copy".into());
    let volume = admin::VolumeCreate { name, at, uid: 0, gid: 0, pool: None };
    ask(&cell, &admin::CopyCreate { volume }).expect("a copy");
    assert!(walk(&cell, shown(&cell)).len() == 1);
    cell
}

fn shown(cell: &SimCell) -> NodeId {
    attr_of(cell, Op::Lookup { dir: NodeId::ROOT, name: b"copy" }).node
}

/// Where a snapshot of a directory is.
fn snapshot_in(cell: &SimCell, dir: NodeId, name: &str) -> NodeId {
    let dir = attr_of(cell, Op::Lookup { dir, name: b".snap" }).node;
    attr_of(cell, Op::Lookup { dir, name: name.as_bytes() }).node
}

fn snapshot(cell: &SimCell, name: &str) -> NodeId {
    snapshot_in(cell, NodeId::ROOT, name)
}

fn same(source: &SimCell, name: &str, copy: &SimCell) {
    same_tree((source, snapshot(source, name)), (copy, shown(copy)));
}

fn same_tree((source, was): (&SimCell, NodeId), (copy, is): (&SimCell, NodeId)) {
    let (was, is) = (walk(source, was), walk(copy, is));
    for (inode, found) in &was {
        assert_eq!(is.get(inode), Some(found), "inode {inode}, the copy at the left");
    }
    assert_eq!(is.keys().collect::<Vec<_>>(), was.keys().collect::<Vec<_>>());
}

/// What backups hear of the changes between two snapshots is all that a walk of both finds.
fn changes_are_told(cell: &SimCell, old: &str, new: &str) {
    let reader = |name| cell.cell.read_snapshot("root", name).expect("a snapshot");
    let told = reader(new).changes_since(&reader(old)).expect("changes");
    let (was, is) = (walk(cell, snapshot(cell, old)), walk(cell, snapshot(cell, new)));
    let bytes = |found: &Found| (found.attr.size, found.content.clone(), found.edges.clone());
    for (inode, now) in &is {
        // those that are new have names that are
        let before = was.get(inode);
        let is_file = now.attr.kind == Kind::File;
        if is_file && before.is_some_and(|b| (&b.attr, &b.xattrs) != (&now.attr, &now.xattrs)) {
            assert!(told.inodes.contains_key(inode), "inode {inode} from {old} to {new}");
        }
        if is_file && before.is_some_and(|b| bytes(b) != bytes(now)) {
            assert_eq!(told.inodes.get(inode), Some(&true), "content of {inode} from {old} to {new}");
        }
        let leads_to_changes = || now.names.values().any(|below| told.inodes.contains_key(below));
        if before.is_some_and(|b| b.names != now.names) || leads_to_changes() {
            assert!(told.dirs.contains(inode), "directory {inode} from {old} to {new}");
        }
    }
}

fn digest(cell: &SimCell, volume: &str, name: &str) -> String {
    let request = admin::SnapDigest { volume: volume.into(), name: name.into(), from: None };
    ask(cell, &request).expect("a digest").digest
}

#[test]
fn each_snapshot_of_a_random_tree_is_in_the_copy_as_it_was() {
    for seed in seeds(0..6) {
        let profile = Profile { reopen: false, ..Profile::default() }.with_flags(5);
        let mut harness = Harness::new(SimCell::owned_by(seed, owner(seed))).expect("a cell");
        let (mut generator, mut rng) = (Generator::new(seed, profile), Rng::new(seed));
        let (mut copy, mut last): (SimCell, Option<String>) = (with_copy(seed), None);
        for round in 0..steps(1500) / 100 {
            for _ in 0..rng.below(200) {
                let step = generator.step(&harness.model);
                harness.step(&step).unwrap_or_else(|e| panic!("seed {seed}: {step}: {e}"));
            }
            let mut name = format!("s{round}");
            let take = |harness: &Harness<SimCell>, name: &str| {
                let request = admin::SnapCreate { path: "/".into(), name: name.into() };
                ask(&harness.target, &request).expect("taken");
            };
            take(&harness, &name);
            let (mut file, mut sent) = send(&harness.target, last.as_deref(), &name);
            if rng.chance(40) {
                copy = interrupted(copy, &file, &mut rng, sent.bytes);
                if rng.chance(50) {
                    // the same does not come again, but another one
                    for _ in 0..rng.below(100) {
                        let step = generator.step(&harness.model);
                        harness.step(&step).unwrap_or_else(|e| panic!("seed {seed}: {step}: {e}"));
                    }
                    name += "-again";
                    take(&harness, &name);
                    (file, sent) = send(&harness.target, last.as_deref(), &name);
                }
            }
            let got = receive(&copy, &file).unwrap_or_else(|e| panic!("seed {seed}, {name}: {e}"));
            assert_eq!(got, sent, "seed {seed}, {name}");
            same(&harness.target, &name, &copy);
            assert_eq!(digest(&harness.target, "root", &name), digest(&copy, "copy", &name));
            if let Some(old) = &last {
                changes_are_told(&harness.target, old, &name);
            }
            let old = last.replace(name);
            if let Some(old) = old.filter(|_| rng.chance(50)) {
                ask(&harness.target, &admin::SnapRemove { path: "/".into(), name: old.clone() })
                    .expect("removed");
                ask(&copy, &admin::SnapRemove { path: "/copy".into(), name: old }).expect("removed");
            }
            if rng.chance(20) {
                copy.settle().expect("work is done");
                copy.check().expect("nothing is found");
            }
        }
        copy.settle().expect("work is done");
        copy.check().expect("nothing is found");
    }
}

#[test]
fn a_copy_shows_its_snapshots_and_refuses_what_would_change_it() {
    let (source, copy) = (SimCell::new(1), with_copy(1));
    let make = |name: &[u8], make| {
        attr_of(&source, Op::Make { dir: NodeId::ROOT, name, make, mode: 0o755, umask: 0 }).node
    };
    let dir = make(b"d", Make::Dir);
    let file = make(b"f", Make::File);
    call(&source, Op::Write { node: file, offset: 0, data: b"content" }).expect("written");
    for name in ["one", "two"] {
        ask(&source, &admin::SnapCreate { path: "/".into(), name: name.into() }).expect("taken");
        call(&source, Op::Link { node: file, dir, name: name.as_bytes() }).expect("linked");
    }
    let (first, sent) = send(&source, None, "one");
    assert_eq!(receive(&copy, &first), Ok(sent));
    let (second, _) = send(&source, Some("one"), "two");
    receive(&copy, &second).expect("received");
    let root = shown(&copy);
    let snapshots = attr_of(&copy, Op::Lookup { dir: root, name: b".snap" }).node;
    let names: Vec<Entry> = list(&copy, snapshots);
    assert_eq!(names.iter().map(|e| &*e.name).collect::<Vec<_>>(), [&b"one"[..], b"two"]);
    // the kernel has one place for a directory
    assert!(names.iter().all(|e| e.node != root), "{names:?}");
    assert_eq!(attr_of(&copy, Op::Lookup { dir: root, name: b".." }).node, NodeId::ROOT);
    // users, operators
    let f = attr_of(&copy, Op::Lookup { dir: root, name: b"f" }).node;
    assert_eq!(call(&copy, Op::Write { node: f, offset: 0, data: b"x" }), Err(Error::ReadOnly));
    let (name, make) = (&b"three"[..], Make::Dir);
    let three = Op::Make { dir: snapshots, name, make, mode: 0o755, umask: 0 };
    assert_eq!(call(&copy, three), Err(Error::ReadOnly));
    let refused = |result: Result<_, Failure>, word: &str| {
        let failure = result.map(drop).expect_err(word);
        assert!(failure.message.contains(word), "{failure:?}");
    };
    let (path, name) = (String::from("/copy"), String::from("two"));
    refused(ask(&copy, &admin::SnapRemove { path: path.clone(), name: name.clone() }).map(|_| ()), "shows");
    refused(ask(&copy, &admin::SnapCreate { path: path.clone(), name: "x".into() }).map(|_| ()), "copy");
    refused(receive(&copy, &second).map(|_| ()), "already");
    refused(receive(&source, &second).map(|_| ()), "no volume copy");
    // a stream that was changed on its way
    ask(&source, &admin::SnapCreate { path: "/".into(), name: "three".into() }).expect("taken");
    let (third, _) = send(&source, Some("two"), "three");
    let mut bytes = std::fs::read(format!("/proc/self/fd/{}", third.as_raw_fd())).expect("read");
    let at = bytes.len() - 40;
    bytes[at] ^= 1;
    let (changed, _) = pipe();
    std::fs::write(format!("/proc/self/fd/{}", changed.as_raw_fd()), &bytes).expect("written");
    refused(receive(&copy, &changed).map(|_| ()), "stream");
    assert_eq!(shown(&copy), root, "it shows what it did");
    // what it has left is taken back when it is promoted
    let promoted =
        ask(&copy, &admin::VolumePromote { name: "copy".into(), handed_over: None }).expect("promoted");
    assert_eq!(promoted.copy, None);
    let (was, is) = (walk(&source, snapshot(&source, "two")), walk(&copy, shown(&copy)));
    assert_eq!(is, was);
    let new =
        attr_of(&copy, Op::Make { dir: shown(&copy), name: b"new", make: Make::File, mode: 0o644, umask: 0 });
    assert!(new.node.inode() >= 1 << 26, "apart from the numbers of the source");
    refused(receive(&copy, &third).map(|_| ()), "no copy");
    copy.settle().expect("work is done");
    copy.check().expect("nothing is found");
}

/// A stream with the header of another one and these records.
fn forged(of: &std::fs::File, records: &[u8]) -> std::fs::File {
    let bytes = std::fs::read(format!("/proc/self/fd/{}", of.as_raw_fd())).expect("read");
    let header = 26 + 4 + u32::from_le_bytes(bytes[26..30].try_into().expect("four")) as usize;
    let (file, _) = pipe();
    let all = [&bytes[..header], &(records.len() as u32).to_le_bytes(), records, &[0; 36]].concat();
    std::fs::write(format!("/proc/self/fd/{}", file.as_raw_fd()), all).expect("written");
    file
}

/// Numbers and byte strings as streams have them.
fn record(tag: u8, fields: &[&[u8]]) -> Vec<u8> {
    [&[tag][..], &fields.concat()].concat()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

#[test]
fn what_no_cell_sends_is_refused_and_changes_nothing() {
    let (source, copy) = (SimCell::new(3), with_copy(3));
    let other = admin::VolumeCreate { name: "other".into(), at: "/other".into(), uid: 0, gid: 0, pool: None };
    let other = NodeId::new(ask(&copy, &other).expect("a volume").id, 1);
    let (name, make) = (&b"f"[..], Make::File);
    let file = attr_of(&copy, Op::Make { dir: other, name, make, mode: 0o600, umask: 0 }).node;
    ask(&source, &admin::SnapCreate { path: "/".into(), name: "one".into() }).expect("taken");
    let (stream, _) = send(&source, None, "one");
    let before = (walk(&copy, other), walk(&copy, shown(&copy)));
    // numbers with the bits of another volume
    let beyond = file.0 ^ shown(&copy).0 & (u64::MAX << 40);
    let n = |number: u64| number.to_le_bytes();
    let staging = (1 << 40) - 1;
    let attr = [&[0; 24][..], &[0; 48], &0x10u32.to_le_bytes()].concat();
    let made = record(2, &[&n(7), &[1], &[0; 4], &text(b"")]);
    let then = |more: Vec<u8>| [&made[..], &more].concat();
    let wrong = [
        record(6, &[&n(beyond), &n(0), &text(b"x")]),
        record(6, &[&n(file.0), &n(0), &text(b"x")]),
        record(9, &[&n(file.0), &attr]),
        record(9, &[&n(staging), &attr]),
        record(4, &[&n(1), &text(&[b'n'; 70_000]), &[1], &text(b"")]),
        record(4, &[&n(1), &text(b"user.n"), &[1], &text(&[0; 70_000])]),
        record(2, &[&n(1), &[2], &[0; 4], &text(b"")]),
        record(2, &[&n(staging), &[2], &[0; 4], &text(b"")]),
        record(2, &[&n(9), &[3], &[0; 4], &text(&[b't'; 5000])]),
        record(3, &[&n(1), &text(b"a/b"), &n(1)]),
        record(3, &[&n(1), &text(b"root"), &n(1)]),
        then(record(6, &[&n(7), &n(u64::MAX), &text(b"x")])),
        then(record(7, &[&n(7), &n(u64::MAX - 1), &n(2)])),
        then(record(8, &[&n(7), &n(5), &n(u64::MAX)])),
        then(record(3, &[&n(7), &text(b"in a file"), &n(7)])),
        record(12, &[]),
        vec![1; 3],
    ];
    for records in &wrong {
        receive(&copy, &forged(&stream, records)).expect_err("refused");
        assert!(
            (walk(&copy, other), walk(&copy, shown(&copy))) == before,
            "{:x?}",
            &records[..9.min(records.len())]
        );
    }
    receive(&copy, &stream).expect("what is right comes all the same");
    same(&source, "one", &copy);
    copy.settle().expect("work is done");
    copy.check().expect("nothing is found");
}

#[test]
fn a_copy_has_pieces_where_the_source_has_them() {
    let (source, copy) = (SimCell::new(4), with_copy(4));
    let (dir, name, make) = (NodeId::ROOT, &b"f"[..], Make::File);
    let node = attr_of(&source, Op::Make { dir, name, make, mode: 0o600, umask: 0 }).node;
    let pieces = |from: u64| {
        for n in 0..100 {
            call(&source, Op::Write { node, offset: from + n * 320, data: &[n as u8 + 1; 100] })
                .expect("written");
        }
    };
    let take = |name: &str| {
        ask(&source, &admin::SnapCreate { path: "/".into(), name: name.into() }).expect("taken");
    };
    pieces(32 << 10);
    take("one");
    let mode = Allocate::PunchHole;
    call(&source, Op::Allocate { node, offset: 32 << 10, len: 32 << 10, mode }).expect("a hole");
    pieces(0);
    take("two");
    for (from, to) in [(None, "one"), (Some("one"), "two")] {
        let (stream, _) = send(&source, from, to);
        receive(&copy, &stream).expect("received");
        same(&source, to, &copy);
    }
}

#[test]
fn content_that_was_written_into_a_hole_is_told() {
    let source = SimCell::new(6);
    let (dir, name, make) = (NodeId::ROOT, &b"f"[..], Make::File);
    let node = attr_of(&source, Op::Make { dir, name, make, mode: 0o600, umask: 0 }).node;
    let take = |name: &str| {
        ask(&source, &admin::SnapCreate { path: "/".into(), name: name.into() }).expect("taken");
    };
    let write = |at: u64| call(&source, Op::Write { node, offset: at << 20, data: b"x" }).expect("written");
    write(300);
    take("s0");
    // windows without records, one beside the first, one far away; then the same again
    for (n, at) in [100, 8, 0, 100, 299].into_iter().enumerate() {
        write(at);
        let (old, new) = (format!("s{n}"), format!("s{}", n + 1));
        take(&new);
        changes_are_told(&source, &old, &new);
    }
}

#[test]
fn a_name_that_hides_something_here_may_come_from_there() {
    let (source, copy) = (SimCell::new(5), with_copy(5));
    let request = admin::PropertyChanges { snapshot_dir: Some(".history".into()), ..Default::default() };
    ask(&source, &admin::VolumeSet { name: "root".into(), set: request }).expect("set");
    for name in [&b".snap"[..], b".receiving"] {
        let op = Op::Make { dir: NodeId::ROOT, name, make: Make::Dir, mode: 0o755, umask: 0 };
        attr_of(&source, op);
    }
    ask(&source, &admin::SnapCreate { path: "/".into(), name: "one".into() }).expect("taken");
    let (stream, sent) = send(&source, None, "one");
    assert_eq!(receive(&copy, &stream), Ok(sent));
}

/// The first bytes of a stream.
fn beginning(of: &std::fs::File, bytes: u64) -> std::fs::File {
    let (part, _) = pipe();
    let mut whole = std::fs::read(format!("/proc/self/fd/{}", of.as_raw_fd())).expect("read");
    whole.truncate(bytes as usize);
    std::fs::write(format!("/proc/self/fd/{}", part.as_raw_fd()), &whole).expect("written");
    part
}

fn length(of: &std::fs::File) -> u64 {
    of.metadata().expect("its length").len()
}

/// A part of the stream comes, and perhaps the power fails. What is shown stays.
fn interrupted(copy: SimCell, file: &std::fs::File, rng: &mut Rng, bytes: u64) -> SimCell {
    let before = walk(&copy, shown(&copy));
    let part = beginning(file, rng.below(bytes));
    let refused = receive(&copy, &part).expect_err("it is cut short");
    assert!(refused.message.contains("ends early"), "{refused:?}");
    if rng.chance(50) {
        call(&copy, Op::SyncAll).expect("durable");
    }
    assert!(walk(&copy, shown(&copy)) == before, "a part is shown");
    let point = CrashPoint {
        mutation: rng.below(16),
        moment: Moment::After,
        death: Death::PowerCut,
        seed: rng.draw(),
    };
    let copy = if rng.chance(50) { copy.recover(&point).expect("it opens") } else { copy };
    assert!(walk(&copy, shown(&copy)) == before, "a part is shown");
    copy
}

/// Sends the rest of a stream of which a part has come; at times that part is told wrongly.
fn rest_of(
    (source, volume): (&SimCell, &str),
    (from, name): (Option<&str>, &str),
    copy: &SimCell,
    rng: &mut Rng,
) -> Option<std::fs::File> {
    let shown = ask(copy, &admin::VolumeShow { name: "copy".into() }).expect("shown");
    let part = shown.copy.expect("a copy").part?;
    let (volume, name, from): (String, String, _) = (volume.into(), name.into(), from.map(String::from));
    let send = |bytes: u64| {
        let (file, pipe) = pipe();
        let part = Some(admin::StreamPart { bytes, ..part.clone() });
        let (volume, name, from) = (volume.clone(), name.clone(), from.clone());
        (ask(source, &admin::SnapSend { volume, name, from, part, pipe }), file)
    };
    if rng.chance(20) {
        let (sent, file) = send(part.bytes + 1);
        assert!(sent.is_err() || receive(copy, &file).is_err(), "what was told wrongly is refused");
    }
    let (sent, file) = send(part.bytes);
    assert_eq!(file.metadata().expect("its length").len(), sent.expect("sent").bytes);
    Some(file)
}

/// Some megabytes: files with noise, with holes and with attributes, and many names.
fn much(source: &SimCell, rng: &mut Rng) {
    for n in 0..300 {
        let (name, make) = (format!("f{n}"), if n % 10 == 9 { Make::Dir } else { Make::File });
        let op = Op::Make { dir: NodeId::ROOT, name: name.as_bytes(), make, mode: 0o640, umask: 0 };
        let node = attr_of(source, op).node;
        if n < 8 {
            for offset in [0, 300_000, 1_500_000] {
                let data: Vec<u8> = (0..250_000).map(|_| rng.draw() as u8).collect();
                call(source, Op::Write { node, offset, data: &data }).expect("written");
            }
            let (name, value, mode) = (&b"user.n"[..], &b"value"[..], XattrMode::Set);
            call(source, Op::SetXattr { node, name, value, mode }).expect("set");
        }
    }
}

#[test]
fn a_stream_goes_on_where_it_has_ended() {
    for seed in seeds(0..4) {
        let (source, mut copy, mut rng) = (SimCell::new(seed), with_copy(seed), Rng::new(seed));
        much(&source, &mut rng);
        ask(&source, &admin::SnapCreate { path: "/".into(), name: "one".into() }).expect("taken");
        let (whole, sent) = send(&source, None, "one");
        let (mut file, mut bytes, mut came) = (whole, sent.bytes, Vec::new());
        for _ in 0..6 {
            copy = interrupted(copy, &file, &mut rng, bytes);
            let Some(rest) = rest_of((&source, "root"), (None, "one"), &copy, &mut rng) else { continue };
            file = rest;
            bytes = file.metadata().expect("its length").len();
            came.push(sent.bytes - bytes);
        }
        assert!(came.is_sorted() && came.last().is_some_and(|came| *came > 0), "seed {seed}: {came:?}");
        let got = receive(&copy, &file).expect("received");
        assert_eq!((got.header, got.digest, got.bytes), (sent.header, sent.digest, bytes), "seed {seed}");
        same(&source, "one", &copy);
        assert_eq!(digest(&source, "root", "one"), digest(&copy, "copy", "one"));
        copy.settle().expect("work is done");
        copy.check().expect("nothing is found");
    }
}

/// A cell, a copy that has half of a stream of its first snapshot, and the stream.
fn half_come(seed: u64) -> (SimCell, SimCell, std::fs::File) {
    let (source, copy) = (SimCell::new(seed), with_copy(seed));
    much(&source, &mut Rng::new(seed));
    ask(&source, &admin::SnapCreate { path: "/".into(), name: "one".into() }).expect("taken");
    let (whole, sent) = send(&source, None, "one");
    let refused = receive(&copy, &beginning(&whole, sent.bytes / 2)).expect_err("it is cut short");
    assert!(refused.message.contains("ends early"), "{refused:?}");
    (source, copy, whole)
}

fn rest_of_one(source: &SimCell, copy: &SimCell) -> Option<std::fs::File> {
    rest_of((source, "root"), (None, "one"), copy, &mut Rng::new(0))
}

/// Receives while something is done to the copy's cell as that goes on.
fn receive_while(
    copy: &SimCell,
    file: &std::fs::File,
    meanwhile: &mut dyn FnMut(admin::Progress),
) -> Result<Streamed, Failure> {
    let request = admin::SnapReceive {
        volume: "copy".into(),
        pipe: Pipe::of(file),
        instead: false,
        sender: Sender::default(),
    };
    copy.cell.admin(&request, meanwhile)
}

#[test]
fn what_has_come_stays_when_the_proof_cannot_be_read() {
    let (source, mut copy, _) = half_come(10);
    // what came before is in the store alone
    copy.reopen().expect("it opens");
    let rest = rest_of_one(&source, &copy).expect("half of it has come");
    let disk = copy.disk.clone();
    let failed = receive_while(&copy, &rest, &mut |at| {
        if at.phase != "bytes" {
            disk.fail_reads("data");
        }
    });
    failed.expect_err("what the proof is of cannot be read");
    copy.disk.heal();
    let rest = rest_of_one(&source, &copy).expect("all of it has come");
    assert!(length(&rest) < 4096, "{} bytes come again", length(&rest));
    receive(&copy, &rest).expect("received");
    same(&source, "one", &copy);
}

#[test]
fn what_has_come_stays_when_the_disk_is_full() {
    let (source, copy, _) = half_come(12);
    let rest = rest_of_one(&source, &copy).expect("half of it has come");
    let disk = copy.disk.clone();
    receive_while(&copy, &rest, &mut |_| disk.set_capacity(0)).expect_err("the disk is full");
    copy.disk.set_capacity(1 << 40);
    let again = rest_of_one(&source, &copy).expect("half of it has come");
    assert!(length(&again) <= length(&rest), "{} bytes come again", length(&again));
    receive(&copy, &again).expect("received");
    same(&source, "one", &copy);
    copy.settle().expect("work is done");
    copy.check().expect("nothing is found");
}

/// The power fails while a copy that is promoted is taken back: no stream goes on from there.
#[test]
fn a_promotion_that_is_cut_short_leaves_a_copy() {
    for cut in [1, 2, 3, 5, 8] {
        let (source, copy, whole) = half_come(20 + cut);
        let mut heard = 0;
        let request = admin::VolumePromote { name: "copy".into(), handed_over: None };
        let promoted = copy.cell.admin(&request, &mut |_| {
            heard += 1;
            if heard == cut {
                call(&copy, Op::SyncAll).expect("durable");
                copy.disk.power_off();
            }
        });
        if heard < cut {
            promoted.expect("promoted");
            assert!(cut > 1, "it is taken back before");
            return;
        }
        promoted.expect_err("the power is off");
        let (moment, death) = (Moment::After, Death::PowerCut);
        let copy = copy.recover(&CrashPoint { mutation: 5, moment, death, seed: cut }).expect("it opens");
        let file = rest_of_one(&source, &copy).unwrap_or(whole);
        receive(&copy, &file).expect("received");
        same(&source, "one", &copy);
        copy.settle().expect("work is done");
        copy.check().expect("nothing is found");
    }
}

/// A sender that tries again does not end it either.
#[test]
fn a_copy_that_is_promoted_receives_nothing() {
    let (source, copy, whole) = half_come(30);
    let (to, pipe) = (&copy, Pipe::of(&whole));
    let (promoted, received) = std::thread::scope(|scope| {
        let mut sending = None;
        let promote = admin::VolumePromote { name: "copy".into(), handed_over: None };
        let promoted = to.cell.admin(&promote, &mut |_| {
            let request =
                admin::SnapReceive { volume: "copy".into(), pipe, instead: true, sender: Sender::default() };
            let sending = sending.get_or_insert_with(|| scope.spawn(move || ask(to, &request)));
            // one that waits for the promotion is not waited for
            let patience = std::time::Instant::now();
            while !sending.is_finished() && patience.elapsed() < std::time::Duration::from_secs(5) {
                std::thread::yield_now();
            }
        });
        (promoted, sending.expect("it was taken back").join().expect("answered"))
    });
    let refused = received.expect_err("it is not ended");
    assert!(refused.message.contains("it is being promoted"), "{refused:?}");
    assert_eq!(promoted.expect("promoted").copy, None);
    assert_eq!(walk(&copy, shown(&copy)).len(), 1, "it is what it was before anything came");
    drop(source);
    copy.settle().expect("work is done");
    copy.check().expect("nothing is found");
}

/// Mirrors leave a snapshot where it is while somebody reads in it.
#[test]
fn it_is_known_whether_somebody_reads_what_a_copy_has_shown() {
    let (source, copy) = (SimCell::new(13), with_copy(13));
    let (dir, name, make) = (NodeId::ROOT, &b"f"[..], Make::File);
    let node = attr_of(&source, Op::Make { dir, name, make, mode: 0o644, umask: 0 }).node;
    let mut last = None;
    let mut transfer = |name: &'static str| {
        call(&source, Op::Write { node, offset: 0, data: name.as_bytes() }).expect("written");
        ask(&source, &admin::SnapCreate { path: "/".into(), name: name.into() }).expect("taken");
        receive(&copy, &send(&source, last.replace(name), name).0).expect("received");
    };
    let is_in_use = |name: &str| {
        let list = admin::SnapList { path: None, volume: Some("copy".into()) };
        let all = ask(&copy, &list).expect("listed").snapshots;
        all.iter().find(|snap| snap.name == name).expect("there").in_use
    };
    transfer("one");
    assert!(!is_in_use("one"));
    // as the kernel looks it up
    let ctx = Ctx { refs: true, ..Ctx::user(0, 0) };
    let look = Op::Lookup { dir: shown(&copy), name: b"f" };
    let file = copy.cell.call(&ctx, look).and_then(Reply::attr).expect("it is there").node;
    transfer("two");
    transfer("three");
    assert!(is_in_use("one") && !is_in_use("two"));
    assert_eq!(call(&copy, Op::Read { node: file, offset: 0, len: 9 }), Ok(Reply::Data(b"one".into())));
    drop(copy.cell.call(&ctx, Op::Forget { node: file, count: 1 }));
    assert!(!is_in_use("one"));
}

/// Programs change the volume that is called "copy".
fn edit(cell: &SimCell, rng: &mut Rng, times: u64) {
    for n in 0..times {
        let found = walk(cell, shown(cell));
        let volume = shown(cell).volume();
        let any = |rng: &mut Rng, is: &dyn Fn(&Found) -> bool| {
            let all: Vec<u64> = found.iter().filter(|(_, f)| is(f)).map(|(inode, _)| *inode).collect();
            (!all.is_empty()).then(|| NodeId::new(volume, all[rng.below(all.len() as u64) as usize]))
        };
        let dir = any(rng, &|f| f.attr.kind == Kind::Dir).expect("the root");
        let to_dir = any(rng, &|f| f.attr.kind == Kind::Dir).expect("the root");
        let file = any(rng, &|f| f.attr.kind == Kind::File);
        let name = format!("n{}-{n}", rng.below(1 << 30)).into_bytes();
        let old = found[&dir.inode()].names.iter().nth(rng.below(4) as usize);
        let done = match (rng.below(9), file, old) {
            (0 | 1, ..) => call(cell, Op::Make { dir, name: &name, make: Make::File, mode: 0o644, umask: 0 }),
            (2, ..) => call(cell, Op::Make { dir, name: &name, make: Make::Dir, mode: 0o755, umask: 0 }),
            (3 | 4, Some(node), _) => {
                let data = vec![n as u8; rng.below(9000) as usize + 1];
                call(cell, Op::Write { node, offset: rng.below(200_000), data: &data })
            }
            (5, Some(node), _) => call(cell, Op::Link { node, dir, name: &name }),
            (6, _, Some((old, _))) => {
                let mode = RenameMode::NoReplace;
                let (from_dir, from_name, to_name) = (dir, &old[..], &name[..]);
                call(cell, Op::Rename { from_dir, from_name, to_dir, to_name, mode })
            }
            (7, _, Some((old, inode))) if found[inode].attr.kind == Kind::Dir => {
                call(cell, Op::RmDir { dir, name: old })
            }
            (_, _, Some((old, inode))) if found[inode].attr.kind != Kind::Dir => {
                call(cell, Op::Unlink { dir, name: old, over: Precondition::Any })
            }
            _ => continue,
        };
        match done {
            Ok(_) | Err(Error::NotEmpty | Error::Invalid) => (),
            other => panic!("{other:?}"),
        }
        // the front end forgets what it was told
        for node in found.keys().map(|inode| NodeId::new(volume, *inode)) {
            drop(call(cell, Op::Forget { node, count: u64::MAX }));
        }
    }
}

/// Two cells with the same volume, of which one is a copy of the other at a time.
struct Pair {
    cells: [SimCell; 2],
    source: usize,
    /// The newest snapshot that both have.
    common: Option<String>,
    rng: Rng,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut pair = Pair {
            cells: [with_copy(seed), with_copy(seed + 1000)],
            source: 0,
            common: None,
            rng: Rng::new(seed),
        };
        pair.promote(0, None);
        let set = admin::PropertyChanges { bin_days: Some(seed as u16 % 2), ..Default::default() };
        ask(pair.source(), &admin::VolumeSet { name: "copy".into(), set }).expect("set");
        pair
    }

    fn source(&self) -> &SimCell {
        &self.cells[self.source]
    }

    fn promote(&mut self, cell: usize, handed_over: Option<&str>) {
        let handed_over = handed_over.map(str::to_owned);
        ask(&self.cells[cell], &admin::VolumePromote { name: "copy".into(), handed_over }).expect("promoted");
        self.source = cell;
    }

    fn demote(&self, cell: usize, snapshot: &str) {
        let was = walk(&self.cells[cell], shown(&self.cells[cell]));
        let request = admin::VolumeDemote { name: "copy".into(), snapshot: snapshot.into() };
        ask(&self.cells[cell], &request).expect("a copy");
        assert_eq!(walk(&self.cells[cell], shown(&self.cells[cell])), was, "it shows what it was");
    }

    fn edit(&mut self, cell: usize) {
        let times = self.rng.below(40);
        edit(&self.cells[cell], &mut self.rng, times);
    }

    fn take(&self, name: &str) {
        let request = admin::SnapCreate { path: "/copy".into(), name: name.into() };
        ask(self.source(), &request).expect("taken");
    }

    /// A snapshot comes to the other cell, perhaps not at once.
    fn transfer(&mut self, name: &str) {
        let (file, sent) = send_of("copy", self.source(), self.common.as_deref(), name);
        let copy = 1 - self.source;
        if self.rng.chance(40) {
            let whole = std::mem::replace(&mut self.cells[copy], SimCell::new(0));
            self.cells[copy] = interrupted(whole, &file, &mut self.rng, sent.bytes);
        }
        let trees = (self.common.as_deref(), name);
        let goes_on = self.rng.chance(70);
        let rest = rest_of((&self.cells[self.source], "copy"), trees, &self.cells[copy], &mut self.rng);
        match rest.filter(|_| goes_on) {
            Some(rest) => {
                let got = receive(&self.cells[copy], &rest).expect("it goes on");
                assert_eq!((got.header, got.digest), (sent.header, sent.digest));
            }
            None => assert_eq!(receive(&self.cells[copy], &file), Ok(sent)),
        }
        let was = snapshot_in(self.source(), shown(self.source()), name);
        same_tree((self.source(), was), (&self.cells[copy], shown(&self.cells[copy])));
        self.common = Some(name.into());
    }
}

#[test]
fn cells_change_their_roles_in_order_and_after_a_disaster() {
    for seed in seeds(0..6) {
        let mut pair = Pair::new(seed);
        for round in 0..steps(1500) / 100 {
            let (source, copy) = (pair.source, 1 - pair.source);
            pair.edit(source);
            let name = format!("s{round}");
            pair.take(&name);
            pair.transfer(&name);
            let (kind, kept) = (pair.rng.below(3), format!("kept{round}"));
            pair.edit(source);
            if kind == 0 {
                // in order: nothing is lost
                pair.demote(source, &kept);
                pair.transfer(&kept);
                pair.promote(copy, Some(&kept));
            } else if kind == 1 {
                // the source is away, and comes back with what it had not sent
                pair.promote(copy, None);
                pair.edit(copy);
                pair.demote(source, &kept);
                let was = walk(&pair.cells[source], shown(&pair.cells[source]));
                pair.take(&format!("back{round}"));
                pair.transfer(&format!("back{round}"));
                let old = &pair.cells[source];
                let is = walk(old, snapshot_in(old, shown(old), &kept));
                assert_eq!(is, was, "seed {seed}, round {round}: what was changed there is kept");
            }
            for cell in &pair.cells {
                cell.settle().expect("work is done");
                cell.check().expect("nothing is found");
            }
        }
    }
}

/// What a restore in place has replaced has no name, though it is freed later: also files with
/// several names there.
#[test]
fn names_in_what_was_replaced_lead_nowhere() {
    let (source, copy) = (SimCell::new(8), with_copy(8));
    let make =
        |dir, name: &[u8], make| attr_of(&source, Op::Make { dir, name, make, mode: 0o755, umask: 0 }).node;
    let take = |name: &str| {
        ask(&source, &admin::SnapCreate { path: "/".into(), name: name.into() }).expect("taken");
    };
    let link = |node, dir, name: &[u8]| drop(call(&source, Op::Link { node, dir, name }).expect("linked"));
    let dir = make(NodeId::ROOT, b"d", Make::Dir);
    let (old, outside) = (make(dir, b"old", Make::File), make(dir, b"outside", Make::File));
    link(old, dir, b"old too");
    link(outside, NodeId::ROOT, b"outside");
    take("one");
    let (first, _) = send(&source, None, "one");
    receive(&copy, &first).expect("received");
    let new = make(dir, b"new", Make::File);
    link(new, dir, b"new too");
    let (path, name, what) = ("/".into(), "one".into(), "d".into());
    ask(&source, &admin::SnapRestore { path, name, what, to: None, in_place: true }).expect("restored");
    take("two"); // nothing is freed yet
    source.settle().expect("work is done");
    take("three");
    for (from, to) in [("one", "two"), ("two", "three")] {
        let (stream, sent) = send(&source, Some(from), to);
        assert_eq!(receive(&copy, &stream), Ok(sent), "{to}");
    }
    // in "two" the source still counts a name that leads nowhere
    same(&source, "three", &copy);
    copy.settle().expect("work is done");
    copy.check().expect("nothing is found");
}

/// Schedules and snapshots of a directory that goes where a copy comes from go along.
#[test]
fn what_a_directory_had_goes_with_it() {
    let mut pair = Pair::new(9);
    let dir = shown(pair.source());
    attr_of(pair.source(), Op::Make { dir, name: b"d", make: Make::Dir, mode: 0o755, umask: 0 });
    pair.take("one");
    pair.transfer("one");
    // while nothing is sent any more: a directory that the other cell never had
    let new = attr_of(pair.source(), Op::Make { dir, name: b"new", make: Make::Dir, mode: 0o755, umask: 0 });
    let (dir, name) = (new.node, b"below");
    attr_of(pair.source(), Op::Make { dir, name, make: Make::Dir, mode: 0o755, umask: 0 });
    for path in ["/copy/d", "/copy/new/below"] {
        let (interval_secs, keep) = (3600, "24h".into());
        ask(pair.source(), &admin::ScheduleSet { path: path.into(), interval_secs, keep }).expect("set");
        ask(pair.source(), &admin::SnapCreate { path: path.into(), name: "s".into() }).expect("taken");
    }
    pair.promote(1, None);
    let dir = shown(pair.source());
    call(pair.source(), Op::RmDir { dir, name: b"d" }).expect("removed");
    let lock = |until_secs| {
        let (path, name) = ("/copy/new/below".into(), "s".into());
        ask(&pair.cells[0], &admin::SnapLock { path, name, until_secs }).expect("locked")
    };
    let now = pair.cells[0].env.wall() as i64 / 1_000_000_000;
    lock(now + 3600);
    let demote = admin::VolumeDemote { name: "copy".into(), snapshot: "kept".into() };
    let refused = ask(&pair.cells[0], &demote).expect_err("a snapshot is locked");
    assert!(refused.message.contains("snapshot s of a directory below its root is locked"), "{refused:?}");
    pair.cells[0].env.advance(std::time::Duration::from_secs(4000));
    pair.demote(0, "kept");
    pair.take("two");
    pair.transfer("two");
    pair.demote(1, "last");
    pair.transfer("last");
    pair.promote(0, Some("last"));
    let (path, volume) = (None, Some("copy".into()));
    let list = ask(pair.source(), &admin::SnapList { path, volume }).expect("listed").snapshots;
    assert!(list.iter().all(|snap| snap.path == "/copy"), "{list:?}");
    for cell in &pair.cells {
        cell.settle().expect("work is done");
        cell.check().expect("nothing is found");
    }
}

/// A switch makes a volume a copy and ends there; then the other one is promoted without what it
/// never got. That stays, under a name that no mirror removes.
#[test]
fn what_a_switch_that_was_cut_short_has_left_is_set_aside() {
    let mut pair = Pair::new(11);
    pair.take("one");
    pair.transfer("one");
    let dir = shown(pair.source());
    attr_of(pair.source(), Op::Make { dir, name: b"unsent", make: Make::Dir, mode: 0o755, umask: 0 });
    pair.demote(0, "mirror-last");
    pair.promote(1, None);
    pair.take("two");
    pair.transfer("two");
    let (path, volume) = (None, Some("copy".into()));
    let list = ask(&pair.cells[0], &admin::SnapList { path, volume }).expect("listed").snapshots;
    let names: Vec<&str> = list.iter().map(|snap| &*snap.name).collect();
    assert!(names.contains(&"set-aside-mirror-last") && !names.contains(&"mirror-last"), "{names:?}");
    let kept = snapshot_in(&pair.cells[0], shown(&pair.cells[0]), "set-aside-mirror-last");
    attr_of(&pair.cells[0], Op::Lookup { dir: kept, name: b"unsent" });
    for cell in &pair.cells {
        cell.settle().expect("work is done");
        cell.check().expect("nothing is found");
    }
}

#[test]
fn a_volume_becomes_a_copy_only_where_it_can() {
    let (cell, source) = (with_copy(7), SimCell::new(7));
    let demote = |name: &str, snapshot: &str| {
        ask(&cell, &admin::VolumeDemote { name: name.into(), snapshot: snapshot.into() })
    };
    let refused = |name: &str, snapshot: &str, word: &str| {
        let failure = demote(name, snapshot).map(drop).expect_err(word);
        assert!(failure.message.contains(word), "{failure:?}");
    };
    refused("copy", "s", "copy already");
    refused("root", "s", "root of the cell");
    refused("none", "s", "no volume");
    ask(&cell, &admin::VolumePromote { name: "copy".into(), handed_over: None }).expect("promoted");
    let make =
        |dir, name: &[u8], make| attr_of(&cell, Op::Make { dir, name, make, mode: 0o755, umask: 0 }).node;
    let (dir, file) = (make(shown(&cell), b"d", Make::Dir), make(shown(&cell), b"f", Make::File));
    call(&cell, Op::Write { node: file, offset: 0, data: b"content" }).expect("written");
    let volume = |name: &str, at: &str| {
        let volume = admin::VolumeCreate { name: name.into(), at: at.into(), uid: 0, gid: 0, pool: None };
        ask(&cell, &volume).expect("a volume");
    };
    volume("below", "/copy/d/below");
    refused("copy", "s", "volume below is attached");
    ask(&cell, &admin::VolumeRemove { name: "below".into() }).expect("removed");
    ask(&cell, &admin::SnapCreate { path: "/copy".into(), name: "s".into() }).expect("taken");
    refused("copy", "s", "already");
    refused("copy", "a/b", "a/b");
    demote("copy", "last").expect("a copy");
    // what was open before
    assert_eq!(call(&cell, Op::Read { node: file, offset: 0, len: 9 }), Err(Error::Stale));
    assert_eq!(call(&cell, Op::Write { node: file, offset: 0, data: b"x" }), Err(Error::Stale));
    let new = Op::Make { dir, name: b"new", make: Make::File, mode: 0o644, umask: 0 };
    assert_eq!(call(&cell, new), Err(Error::Stale));
    let f = attr_of(&cell, Op::Lookup { dir: shown(&cell), name: b"f" }).node;
    assert_eq!(call(&cell, Op::Read { node: f, offset: 0, len: 9 }), Ok(Reply::Data(b"content".into())));
    assert_eq!(call(&cell, Op::Write { node: f, offset: 0, data: b"x" }), Err(Error::ReadOnly));
    // a stream from nowhere, and the copy goes on to be what it is
    ask(&source, &admin::SnapCreate { path: "/".into(), name: "one".into() }).expect("taken");
    let (stream, _) = send(&source, None, "one");
    let failure = receive(&cell, &stream).expect_err("there is nothing in common");
    assert!(failure.message.contains("goes on from nothing"), "{failure:?}");
    let other = admin::VolumePromote { name: "copy".into(), handed_over: Some("s".into()) };
    let failure = ask(&cell, &other).expect_err("it shows another");
    assert!(failure.message.contains("snapshot s was handed over"), "{failure:?}");
    let is = ask(&cell, &admin::VolumePromote { name: "copy".into(), handed_over: Some("last".into()) })
        .expect("promoted");
    assert_eq!(is.copy, None);
    assert_eq!(call(&cell, Op::Read { node: file, offset: 0, len: 9 }), Ok(Reply::Data(b"content".into())));
    call(&cell, new).expect("made");
    cell.settle().expect("work is done");
    cell.check().expect("nothing is found");
}
