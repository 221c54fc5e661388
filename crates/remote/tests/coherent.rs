//! Copies of clients are never old: whatever one client, the server's machine or nobody in
//! particular changes, all others see when the change is answered. And who keeps copies and cannot
//! be reached holds others up for a few seconds only.
#![allow(clippy::disallowed_methods)]

use crate::rig;
use crate::rig::latch::Over;
use crate::rig::proxy::{Fate, Proxy, WHOLE};
use crate::rig::raw::Raw;
use crate::rig::{INVITATION, Random, Rig, caching_client, lookup, make, seed, user};
use leeward_env::Ctx;
use leeward_fs::{
    Allocate, Error, Kind, Make, NodeId, Op, Precondition, RenameMode, Reply, Result, SetAttr, SetTime, Time,
};
use leeward_fs::{XattrMode, leases::USED_FOR};
use leeward_remote::message::{Call, Caller, Slot, ToClient, ToServer};
use leeward_remote::{CacheOptions, Client, Grant};
use leeward_vfs::{Backend, Gate};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROOT: NodeId = NodeId::ROOT;
const ACL: &[u8] = b"system.posix_acl_access";

/// Who asks.
enum Actor {
    Client(Client),
    /// A mount on the server's machine, or a door.
    Here(Gate),
}

impl Actor {
    fn call(&self, op: Op<'_>) -> Result<Reply> {
        match self {
            Actor::Client(client) => client.call(&user(0), op),
            Actor::Here(gate) => gate.call(&Ctx::user(0, 0), op),
        }
    }
}

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];

/// A random change of one of the inodes.
fn change(random: &mut Random, dirs: &[NodeId], files: &[NodeId], actor: &Actor) -> Result<Reply> {
    let (dir, to_dir) = (*random.one(dirs), *random.one(dirs));
    let (name, to_name) = (*random.one(&NAMES), *random.one(&NAMES));
    let node = *random.one(files);
    let mode = 0o600 + random.below(0o177) as u32;
    let (byte, many) = ([mode as u8], [mode as u8; 5000]);
    let (offset, other) = (random.below(20_000) as u64, *random.one(files));
    actor.call(match random.below(18) {
        0..3 => Op::Make { dir, name, make: Make::File, mode, umask: 0 },
        3 => Op::Make { dir, name, make: Make::Dir, mode: mode | 0o700, umask: 0 },
        4 | 5 => Op::Unlink { dir, name, over: Precondition::Any },
        6 => Op::RmDir { dir, name },
        7 => Op::Rename { from_dir: dir, from_name: name, to_dir, to_name, mode: RenameMode::Replace },
        8 => Op::Rename { from_dir: dir, from_name: name, to_dir, to_name, mode: RenameMode::Exchange },
        9 => Op::Link { node, dir, name },
        10 | 13 => Op::Write { node, offset, data: &many },
        14 => Op::SetAttr { node, set: SetAttr { size: Some(offset), ..SetAttr::default() } },
        15 => Op::Allocate { node, offset, len: 3000, mode: Allocate::ZeroRange { keep_size: false } },
        16 => Op::CopyRange { from: other, from_offset: 0, to: node, to_offset: offset, len: 6000 },
        11 => Op::SetAttr { node, set: SetAttr { mode: Some(mode), ..SetAttr::default() } },
        12 => {
            let time = Time { secs: random.below(1 << 30) as i64, nanos: 5 };
            Op::SetAttr { node, set: SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() } }
        }
        _ => Op::SetXattr { node, name: b"user.x", value: &byte, mode: XattrMode::Set },
    })
}

/// All that the actor sees of what the cell has, compared with the cell itself.
fn compare(rig: &Rig, actor: &Actor, nodes: &BTreeSet<NodeId>, what: &str) {
    // references that a client has returned may be worked at: what has lost the last one goes in
    // between
    let ask = |op: Op<'_>| loop {
        let (seen, is) = (actor.call(op), rig.gate.call(&Ctx::user(0, 0), op));
        rig.env.sleep(Duration::from_millis(if seen == is { 0 } else { 20 }));
        if seen == is || is == rig.gate.call(&Ctx::user(0, 0), op) {
            return (seen, is);
        }
    };
    for node in nodes {
        let (seen, is) = ask(Op::GetAttr { node: *node });
        assert_eq!(seen, is, "{what}: attributes of {node:?}");
        let Ok(Reply::Attr(attr)) = is else { continue };
        // parts of it, in order: then it is kept
        for offset in (0..attr.size).step_by(3000).take(if attr.kind == Kind::File { 20 } else { 0 }) {
            let (seen, is) = ask(Op::Read { node: *node, offset, len: 3000 });
            assert!(seen == is, "{what}: content of {node:?} at {offset}");
        }
        let (seen, is) = ask(Op::GetXattr { node: *node, name: ACL });
        assert_eq!(seen, is, "{what}: ACL of {node:?}");
        if attr.nlink == 0 || attr.kind != Kind::Dir {
            continue;
        }
        for attrs in [false, true] {
            let (seen, is) = ask(Op::List { dir: *node, after: b"", limit: 100, attrs });
            assert_eq!(seen, is, "{what}: the list of {node:?}");
        }
        for name in NAMES.into_iter().chain([&b".snap"[..]]) {
            let (seen, is) = ask(Op::Lookup { dir: *node, name });
            assert_eq!(seen, is, "{what}: {:?} in {node:?}", String::from_utf8_lossy(name));
        }
    }
}

/// In turn somebody changes something, and everybody looks.
fn everybody_sees_all_changes(first: u64, steps: usize) {
    let rig = Rig::new();
    let dirs_on_disk = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let caching = |name: &str, dir: &tempfile::TempDir| {
        rig.table.invites.lock().expect("the invitations").push((name.into(), Grant::default()));
        let cache = Some(CacheOptions { dir: dir.path().into(), bytes: 16 << 20 });
        Actor::Client(
            caching_client(&rig.env, rig.at, (seed(name), Some(INVITATION)), cache).expect("connected"),
        )
    };
    let actors = [
        caching("a", &dirs_on_disk[0]),
        caching("bb", &dirs_on_disk[1]),
        Actor::Client(rig.host("ccc", Grant::default())),
        Actor::Here(rig.gate.clone()),
    ];
    let mut random = Random(first);
    let mut nodes = BTreeSet::from([ROOT]);
    let (mut dirs, mut files) = (vec![ROOT], vec![ROOT]);
    for step in 0..steps {
        let by = random.below(actors.len());
        let done = change(&mut random, &dirs, &files, &actors[by]);
        if let Ok(Reply::Attr(attr)) = &done {
            nodes.insert(attr.node);
            let list = if attr.kind == Kind::Dir { &mut dirs } else { &mut files };
            if !list.contains(&attr.node) {
                list.push(attr.node);
            }
        }
        let mut some = BTreeSet::from([*random.one(&files)]);
        (0..4).for_each(|_| _ = some.insert(*random.one(&dirs)));
        let what = format!("seed {first}, step {step}, {done:?} by {by}");
        for (number, actor) in actors.iter().enumerate() {
            if step % 25 == 0 {
                compare(&rig, actor, &nodes, &format!("{what}, seen by {number}"));
            } else if random.below(2) == 0 {
                compare(&rig, actor, &some, &format!("{what}, seen by {number}"));
            }
        }
        if random.below(10) == 0
            && let Actor::Client(client) = random.one(&actors)
        {
            let (node, count) = (*random.one(&files), 1 + random.below(50) as u64);
            client.forget(user(0), node, count);
        }
    }
    let (leases, recalls, taken) = rig.cell.leases().figures();
    assert!(leases > 0 && recalls > 0, "{leases} leases, {recalls} recalls: nothing was kept");
    assert_eq!(taken, 0, "nobody was silent");
    let hits = actors.iter().map(|actor| match actor {
        Actor::Client(client) => client.read_ahead_figures().1,
        Actor::Here(_) => 0,
    });
    assert!(hits.sum::<u64>() > 100_000, "content was not kept");
    let on_disk = actors.iter().map(|actor| match actor {
        Actor::Client(client) => client.cache_figures().map_or(0, |figures| figures.hits),
        Actor::Here(_) => 0,
    });
    let on_disk = on_disk.sum::<u64>();
    assert!(on_disk > 10, "{on_disk} blocks were found on disk");
}

#[test]
fn what_is_answered_everybody_sees() {
    (1..=6).for_each(|seed| everybody_sees_all_changes(seed, 400));
}

#[test]
#[ignore = "longer"]
fn what_is_answered_everybody_sees_for_long() {
    (100..300).for_each(|seed| everybody_sees_all_changes(seed, 1000));
}

/// Values only grow, and whoever begins to read after another has read sees as much.
#[test]
fn values_never_go_back_whoever_reads() {
    let rig = Rig::new();
    let clients: Vec<Client> =
        ["a", "bb", "ccc"].iter().map(|name| rig.host(name, Grant::default())).collect();
    let file = make(&clients[0], ROOT, b"file").expect("made").node;
    let (seen, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let set = |client: &Client, value: u64| {
        let time = Time { secs: value as i64, nanos: 0 };
        let set = SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
        client.call(&user(0), Op::SetAttr { node: file, set }).expect("set");
    };
    set(&clients[0], 0);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _over = Over(&ended);
        for client in &clients {
            let (seen, ended, reads) = (seen.clone(), ended.clone(), &reads);
            scope.spawn(move || {
                while !ended.load(Ordering::Acquire) {
                    let before = seen.load(Ordering::Acquire);
                    let attr = client.call(&user(0), Op::GetAttr { node: file }).and_then(Reply::attr);
                    let value = attr.expect("attributes").mtime.secs as u64;
                    assert!(value >= before, "{value} was read after {before}");
                    seen.fetch_max(value, Ordering::AcqRel);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for value in 1..1500 {
            set(&clients[value as usize % 2], value);
            seen.fetch_max(value, Ordering::AcqRel);
        }
    });
    assert!(reads.load(Ordering::Relaxed) > 1500, "copies are of use");
}

/// Names of a directory that a client knows.
const NAMES_KNOWN: usize = 10_000;

/// What is known is not asked for.
#[test]
fn what_is_known_takes_no_message() {
    let rig = Rig::new();
    let here = Actor::Here(rig.gate.clone());
    let make = |dir, name, make| here.call(Op::Make { dir, name, make, mode: 0o755, umask: 0 });
    let dir = make(ROOT, b"dir", Make::Dir).and_then(Reply::attr).expect("made").node;
    let names: Vec<String> = (0..NAMES_KNOWN).map(|n| format!("file {n}")).collect();
    names.iter().for_each(|name| drop(make(dir, name.as_bytes(), Make::File).expect("made")));
    let proxy = Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    rig.table.invites.lock().expect("invites").push(("a".into(), Grant::default()));
    let a = rig.connect(proxy.at, seed("a"), Some(INVITATION)).expect("connected");
    rig.keeps(&a);
    let look = || {
        let mut after: Box<[u8]> = Box::default();
        let mut count = 0;
        loop {
            let op = Op::List { dir, after: &after, limit: 300, attrs: true };
            let entries = a.call(&user(0), op).and_then(Reply::entries).expect("listed");
            count += entries.len();
            match entries.last() {
                Some(last) if entries.len() == 300 => after = last.name.clone(),
                _ => break,
            }
        }
        assert_eq!(count, NAMES_KNOWN);
        assert_eq!(lookup(&a, dir, b"none"), Err(Error::NotFound));
        for name in &names {
            let found = lookup(&a, dir, name.as_bytes()).expect("found");
            assert_eq!(a.call(&user(0), Op::GetAttr { node: found.node }), Ok(Reply::Attr(found)));
        }
    };
    let _ = lookup(&a, ROOT, b"dir");
    look();
    assert_eq!(a.call(&user(0), Op::SyncAll), Ok(Reply::Done));
    let before = proxy.passed();
    let begun = Instant::now();
    look();
    let sent = proxy.passed()[0] - before[0];
    // keepalives
    let most = 200 * (2 + begun.elapsed().as_secs() as usize);
    assert!(sent < most, "{sent} bytes were sent");
}

/// Two clients that change one file in turn wait for a few messages each time: the other one's
/// lease is recalled, and given back.
#[test]
fn turns_at_one_file_take_few_round_trips() {
    const ONE_WAY: Duration = Duration::from_millis(20);
    const TURNS: usize = 21;
    let rig = Rig::new();
    let slow = Fate { delay: ONE_WAY, ..WHOLE };
    let clients = ["a", "bb"].map(|name| {
        let proxy = Proxy::start(&rig.env, rig.at, move |_| (slow, slow));
        rig.know(seed(name)[0], name, Grant::default());
        (rig.connect(proxy.at, seed(name), None).expect("connected"), proxy)
    });
    let node = make(&clients[0].0, ROOT, b"ball").expect("made").node;
    assert_eq!(lookup(&clients[1].0, ROOT, b"ball").expect("found").node, node);
    let mut took: Vec<Duration> = (0..TURNS)
        .map(|turn| {
            let (client, _) = &clients[turn % 2];
            let begun = Instant::now();
            let before = rig::read(client, node).expect("read");
            assert_eq!(before, if turn == 0 { vec![] } else { vec![turn as u8 - 1] });
            assert_eq!(rig::write(client, node, &[turn as u8]), Ok(1));
            begun.elapsed()
        })
        .collect();
    took.sort();
    let trips = took[TURNS / 2].as_secs_f64() / (2.0 * ONE_WAY.as_secs_f64());
    println!("a turn takes {trips:.1} round trips");
    assert!(trips < 4.5, "a turn takes {trips:.1} round trips");
}

/// In a directory that a client has made it knows what is not there: nothing is asked before
/// something is made.
#[test]
fn what_is_not_in_a_new_directory_is_known() {
    let rig = Rig::new();
    let (a, b) = (rig.host("a", Grant::default()), rig.host("bb", Grant::default()));
    rig.keeps(&a);
    let op = Op::Make { dir: ROOT, name: b"dir", make: Make::Dir, mode: 0o755, umask: 0 };
    let dir = a.call(&user(0), op).and_then(Reply::attr).expect("made").node;
    let asks = |name: &[u8]| {
        // what it was told before is sent
        assert_eq!(a.call(&user(0), Op::SyncAll), Ok(Reply::Done));
        let before = rig.asked_by("a");
        let found = lookup(&a, dir, name).map(|attr| attr.node);
        (found, rig.asked_by("a") > before)
    };
    assert_eq!(asks(b"x"), (Err(Error::NotFound), false));
    let made = make(&a, dir, b"x").expect("made").node;
    assert_eq!(asks(b"x"), (Ok(made), false));
    a.call(&user(0), Op::Unlink { dir, name: b"x", over: Precondition::Any }).expect("removed");
    assert_eq!(asks(b"x"), (Err(Error::NotFound), false));
    let (found, is_asked) = asks(b".snap");
    assert!(found.is_ok() && is_asked, "it is not in the list of names");
    lookup(&b, ROOT, b"dir").expect("found");
    let made = make(&b, dir, b"y").expect("made").node;
    assert_eq!(asks(b"y").0, Ok(made));
    assert_eq!(asks(b"z").0, Err(Error::NotFound));
    // the name of directories of snapshots changes for all
    let set = leeward_volume::admin::PropertyChanges { snapshot_dir: Some("z".into()), ..Default::default() };
    let request = leeward_volume::admin::VolumeSet { name: "root".into(), set };
    rig.cell.admin(&request, &mut |_| ()).expect("set");
    assert!(asks(b"z").0.is_ok());
    assert_eq!(asks(b".snap").0, Err(Error::NotFound));
}

/// Where the server checks what each user may do, copies of one are not another's.
#[test]
fn hosts_whose_users_are_checked_keep_nothing() {
    let rig = Rig::new();
    let few = rig.host("few", Grant { uids: vec![(0, 2000)], ..Grant::default() });
    let op = Op::Make { dir: ROOT, name: b"dir", make: Make::Dir, mode: 0o700, umask: 0 };
    let dir = few.call(&user(0), op).and_then(Reply::attr).expect("made").node;
    make(&few, dir, b"secret").expect("made");
    rig.env.sleep(Duration::from_millis(100));
    for _ in 0..2 {
        assert!(lookup(&few, dir, b"secret").is_ok());
        assert_eq!(few.call(&user(1000), Op::Lookup { dir, name: b"secret" }), Err(Error::Access));
    }
    assert_eq!(rig.cell.leases().figures().0, 0);
}

/// A client that cannot be reached holds up only those who change what it keeps, and only until it
/// cannot use that any more. When it is back it sees what has changed.
#[test]
fn a_client_that_is_cut_off_is_waited_for_six_seconds() {
    let rig = Rig::new();
    let proxy = Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    rig.table.invites.lock().expect("invites").push(("a".into(), Grant::default()));
    let a = rig.connect(proxy.at, seed("a"), Some(INVITATION)).expect("connected");
    let b = rig.host("bb", Grant::default());
    let (file, other) =
        (make(&b, ROOT, b"file").expect("made").node, make(&b, ROOT, b"other").expect("made"));
    rig.keeps(&a);
    assert_eq!(lookup(&a, ROOT, b"file").expect("found").mode, 0o644);
    proxy.hold(true);
    let chmod = |node, mode| {
        let begun = Instant::now();
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        b.call(&user(0), Op::SetAttr { node, set }).expect("set");
        assert_eq!(b.call(&user(0), Op::SyncAll), Ok(Reply::Done));
        begun.elapsed()
    };
    // whom a change waits for is asked first
    let figures = || rig.cell.leases().figures();
    let (_, recalls, taken) = figures();
    chmod(other.node, 0o600);
    assert_eq!((figures().1, figures().2), (recalls, taken), "a keeps nothing of it");
    let waited = chmod(file, 0o600);
    println!("waited for {waited:?}");
    assert!(waited > Duration::from_secs(3) && waited < Duration::from_secs(30), "{waited:?}");
    assert_eq!((figures().1, figures().2), (recalls + 1, taken + 1));
    chmod(file, 0o640);
    assert_eq!((figures().1, figures().2), (recalls + 1, taken + 1), "nothing is kept any more");
    proxy.hold(false);
    assert_eq!(lookup(&a, ROOT, b"file").expect("found").mode, 0o640, "old attributes");
    // it is there again, and not taken for silent because of the time before
    let connections = proxy.connections();
    assert_eq!(a.call(&user(0), Op::Append { node: file, data: b"more" }), Ok(Reply::Written(4)));
    chmod(file, 0o600);
    assert_eq!((figures().2, proxy.connections()), (taken + 1, connections));
    assert_eq!(lookup(&a, ROOT, b"file").map(|attr| (attr.mode, attr.size)), Ok((0o600, 4)));
}

/// While a rename is under way another client puts another inode under its new name. The client
/// that asked for the rename knows in the end what it has replaced.
#[test]
fn what_a_rename_replaces_may_have_come_after_it_was_asked_for() {
    let rig = Rig::new();
    let proxy = Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    rig.know(200, "far", Grant::default());
    let far = rig::client(&rig.env, proxy.at, [200; 32], None).expect("connected");
    let (a, b) = (rig.host("aa", Grant::default()), rig.host("bb", Grant::default()));
    let dir = |name| {
        let op = Op::Make { dir: ROOT, name, make: Make::Dir, mode: 0o755, umask: 0 };
        b.call(&user(0), op).and_then(Reply::attr).expect("made").node
    };
    let (from, to, links) = (dir(b"from"), dir(b"to"), dir(b"links"));
    let [source, _, other] = [(from, &b"source"[..]), (to, b"name"), (from, b"other")]
        .map(|(dir, name)| make(&b, dir, name).expect("made").node);
    b.call(&user(0), Op::Link { node: source, dir: links, name: b"source" }).expect("linked");
    [&a, &far].into_iter().for_each(|client| rig.keeps(client));
    for (dir, name) in [(from, &b"source"[..]), (to, b"name"), (from, b"other")] {
        lookup(&a, dir, name).expect("found");
    }
    // the rename waits for one who keeps the source, and nothing else that it is about
    lookup(&far, links, b"source").expect("found");
    proxy.hold(true);
    let rename = |client: &Client, name: &[u8]| {
        let (from_name, mode) = (name, RenameMode::Replace);
        client.call(&user(0), Op::Rename { from_dir: from, from_name, to_dir: to, to_name: b"name", mode })
    };
    let look = || {
        let attr = a.call(&user(1), Op::GetAttr { node: other }).and_then(Reply::attr);
        attr.expect("attributes").nlink
    };
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| rename(&a, b"source"));
        rig.env.sleep(Duration::from_millis(300));
        assert_eq!(rename(&b, b"other"), Ok(Reply::Done));
        assert!(!slow.is_finished() && look() == 1, "it is not replaced yet");
        proxy.hold(false);
        assert_eq!(slow.join().expect("no panic"), Ok(Reply::Done));
    });
    assert_eq!(look(), 0, "links of what was replaced");
}

/// A client that says that it is there and answers no recall loses its leases as well.
#[test]
fn a_client_that_keeps_what_it_is_asked_for_loses_it() {
    const BAD: u8 = 77;
    let rig = Rig::new();
    rig.know(BAD, "bad", Grant::default());
    let b = rig.host("bb", Grant::default());
    let file = make(&b, ROOT, b"file").expect("made").node;
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    let caller = Caller { uid: 0, gid: 0, gids: vec![], class: leeward_env::Class::Interactive, refs: true };
    let slot = Slot { place: 0, number: 1 };
    raw.call(slot, caller, Op::Lookup { dir: ROOT, name: b"file" }).expect("found");
    let ended = AtomicBool::new(false);
    let begun = Instant::now();
    let waited = std::thread::scope(|scope| {
        let _over = Over(&ended);
        scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                raw.say(&ToServer::Ping { number: 1, term: 0 });
                rig.env.sleep(Duration::from_millis(300));
            }
        });
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        b.call(&user(0), Op::SetAttr { node: file, set }).expect("set");
        begun.elapsed()
    });
    println!("waited for {waited:?}");
    assert!(waited < Duration::from_secs(30), "{waited:?}");
    assert!(waited > Duration::from_nanos(USED_FOR), "{waited:?}: it may have used them");
    // told so when it says again that it is there
    raw.say(&ToServer::Ping { number: 9, term: 0 });
    let taken = (0..100).find_map(|_| match raw.hear() {
        Ok(ToClient::Pong { number: 9, taken, .. }) => Some(taken),
        Ok(_) => None,
        Err(_) => panic!("hung up on"),
    });
    assert_eq!(taken, Some(Some(1)));
    let call = ToServer::Call(Slot { place: 0, number: 2 }, Call::Forget(vec![(file, 9)]));
    raw.say(&call);
    assert!(matches!(raw.hear(), Ok(ToClient::Answer(..))));
}

/// Many clients that keep one directory do not make a change of it slow.
#[test]
fn a_change_of_what_many_keep_is_quick() {
    let rig = Rig::new();
    let clients: Vec<Client> = (0..60)
        .map(|n| {
            rig.know(100 + n, &format!("host {n}"), Grant::default());
            rig::client(&rig.env, rig.at, [100 + n; 32], None).expect("connected")
        })
        .collect();
    let file = make(&clients[0], ROOT, b"file").expect("made").node;
    for round in 0..5 {
        clients.iter().for_each(|client| {
            lookup(client, ROOT, b"file").expect("found");
        });
        let begun = Instant::now();
        let set = SetAttr { mode: Some(0o600 + round), ..SetAttr::default() };
        clients[0].call(&user(0), Op::SetAttr { node: file, set }).expect("set");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        let seen = clients.iter().map(|client| lookup(client, ROOT, b"file").map(|attr| attr.mode));
        assert!(seen.into_iter().all(|mode| mode == Ok(0o600 + round)));
    }
}
