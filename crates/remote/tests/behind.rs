//! Changes that a client tells its programs before the server has made them: they are what the
//! server makes of them, others see them at once, and they are lost only with a client that was
//! silent for long, which is said.
#![allow(clippy::disallowed_methods)]

use crate::rig;
use crate::rig::held::Held;
use crate::rig::proxy::{Proxy, WHOLE};
use crate::rig::raw::{HELLO, Raw, root, slot};
use crate::rig::{Random, Rig, lookup, make, seed, user, write};
use leeward_env::Ctx;
use leeward_env::limits::BEHIND_BYTES_MAX;
use leeward_fs::flows::UserOrGroup;
use leeward_fs::sessions::Sessions;
use leeward_fs::{
    Allocate, Attr, Entry, Error, Fs, Kind, Make, NodeId, Op, Precondition, RenameMode, Reply, SetAttr,
    SetTime, Time,
};
use leeward_remote::message::{Behind, Call, Hello, Refusal, SessionId, Slot, Standing, ToClient, ToServer};
use leeward_remote::{Client, Grant, UnflushedFigures};
use leeward_vfs::Backend;
use leeward_volume::admin::{OwnerLimit, QuotaSet, SnapCreate, VolumeCreate, VolumeDemote};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const ROOT: NodeId = NodeId::ROOT;

fn make_dir(client: &Client, dir: NodeId, name: &[u8]) -> NodeId {
    let op = Op::Make { dir, name, make: Make::Dir, mode: 0o755, umask: 0 };
    client.call(&user(0), op).and_then(Reply::attr).expect("made").node
}

fn list(client: &Client, dir: NodeId) -> Vec<Entry> {
    let op = Op::List { dir, after: b"", limit: 1000, attrs: true };
    let entries = client
        .call(&user(0), op)
        .and_then(Reply::entries)
        .unwrap_or_else(|e| panic!("{dir:?} is not listed: {e}"));
    entries.iter().for_each(|entry| client.forget(user(0), entry.node, 1));
    entries
}

/// A client behind a proxy, with a directory of its own in which it may change things by itself.
fn alone(rig: &Rig, name: &str) -> (Client, Proxy, NodeId) {
    rig.know(seed(name)[0], name, Grant::default());
    let proxy = Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    let client = rig.connect(proxy.at, seed(name), None).expect("connected");
    let dir = make_dir(&client, ROOT, name.as_bytes());
    make(&client, dir, b"first").expect("made");
    // numbers of inodes are asked for meanwhile, and the server's time
    rig.env.sleep(Duration::from_millis(1200));
    make(&client, dir, b"second").expect("made");
    rig.env.sleep(Duration::from_millis(100));
    (client, proxy, dir)
}

/// It rises with what programs were told, however that is sent, and falls to nothing.
#[test]
fn the_server_counts_what_is_not_durable() {
    let mut held = None;
    let rig = Rig::with_sessions(|cell| held.insert(Held::of(cell)).clone());
    let held = held.expect("a rig");
    let (a, proxy, dir) = alone(&rig, "alone");
    let figures = || {
        let sessions = rig.server().sessions();
        let session = sessions.into_iter().find(|session| session.host == "alone").expect("its session");
        session.unflushed.expect("figures of a session that survives the server")
    };
    let has = |changes: u64| {
        let count = || {
            (0..1000).find(|_| {
                figures().changes == changes || {
                    rig.env.sleep(Duration::from_millis(10));
                    false
                }
            })
        };
        assert!(count().is_some(), "{changes} are expected: {:?}", figures());
    };
    assert_eq!(a.call(&user(0), Op::SyncAll), Ok(Reply::Done));
    has(0);
    held.hides_durable.store(true, Ordering::SeqCst);
    let node = make(&a, dir, b"third").expect("made").node;
    for _ in 0..10 {
        assert_eq!(write(&a, node, &[7; 1000]), Ok(1000));
    }
    has(11);
    assert_eq!(figures().bytes, 10_000);
    // the server has not heard of this one
    proxy.hold(true);
    write(&a, node, &[7; 500]).expect("told");
    rig.env.sleep(Duration::from_millis(100));
    assert_eq!(figures().changes, 11);
    proxy.hold(false);
    has(12);
    let before = figures();
    assert!((before.bytes, before.oldest_ms >= 100) == (10_500, true), "{before:?}");
    held.hides_durable.store(false, Ordering::SeqCst);
    assert_eq!(a.call(&user(0), Op::Fsync { node }), Ok(Reply::Done));
    has(0);
    assert_eq!(figures(), UnflushedFigures::default());
    // nobody counts this of a host that is not believed
    rig.host("bounded", Grant { root_squash: true, ..Grant::default() });
    let sessions = rig.server().sessions();
    assert!(sessions.iter().any(|session| session.host == "bounded" && session.unflushed.is_none()));
}

#[test]
fn programs_do_not_wait_for_the_server_and_others_see_all() {
    let rig = Rig::new();
    let (a, proxy, dir) = alone(&rig, "alone");
    let b = rig.host("bb", Grant::default());
    proxy.hold(true);
    let begun = Instant::now();
    let node = make(&a, dir, b"third").expect("made").node;
    assert_eq!(write(&a, node, b"content"), Ok(7));
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let told = a.call(&user(0), Op::SetAttr { node, set }).and_then(Reply::attr).expect("set");
    assert_eq!((told.size, told.mode), (7, 0o600));
    // who waited for the server, from which nothing comes, would do so for ever
    println!("told in {:?}", begun.elapsed());
    proxy.hold(false);
    // b asks while the server does not have it yet, perhaps
    assert_eq!(lookup(&b, dir, b"third"), Ok(told));
    assert_eq!(rig::read(&b, node), Ok(b"content".to_vec()));
    assert_eq!(lookup(&a, dir, b"third"), Ok(told));
    assert_eq!(a.call(&user(0), Op::Fsync { node }), Ok(Reply::Done));
}

/// A write of some bytes at an offset.
fn write_at(client: &Client, node: NodeId, offset: u64, data: &[u8]) {
    let written = client.call(&user(0), Op::Write { node, offset, data });
    assert_eq!(written, Ok(Reply::Written(data.len() as u64)));
}

/// Who writes a stream faster than the server takes it waits for room, and is told again then.
#[test]
fn when_room_runs_out_changes_wait_for_it_and_are_told_all_the_same() {
    const PIECE: usize = 256 << 10;
    let rig = Rig::new();
    let (a, proxy, dir) = alone(&rig, "alone");
    let node = make(&a, dir, b"stream").expect("made").node;
    let piece = vec![5; PIECE];
    // one user's share
    let pieces = BEHIND_BYTES_MAX / 4 * 3 / PIECE as u64;
    for round in 0..3 {
        let at = round * (pieces + 3) * PIECE as u64;
        proxy.hold(true);
        (0..pieces).for_each(|n| write_at(&a, node, at + n * PIECE as u64, &piece));
        std::thread::scope(|scope| {
            let rest = scope.spawn(|| {
                (pieces..pieces + 3).for_each(|n| write_at(&a, node, at + n * PIECE as u64, &piece));
            });
            rig.env.sleep(Duration::from_millis(50));
            assert!(!rest.is_finished(), "more was told than may be");
            proxy.hold(false);
        });
        assert_eq!(a.call(&user(0), Op::Fsync { node }), Ok(Reply::Done));
    }
    let b = rig.host("bb", Grant::default());
    let size = lookup(&b, dir, b"stream").expect("found").size;
    assert_eq!(size, 3 * (pieces + 3) * PIECE as u64);
}

/// Also to files of which it is not known how much is allocated: with holes, or after a change
/// whose answer says nothing of it.
#[test]
fn writes_are_told_where_it_is_unknown_how_much_is_allocated() {
    let rig = Rig::new();
    let (a, proxy, dir) = alone(&rig, "alone");
    let holes = make(&a, dir, b"holes").expect("made").node;
    write_at(&a, holes, 70_000, &[3; 100]);
    let reserved = make(&a, dir, b"reserved").expect("made").node;
    let op =
        Op::Allocate { node: reserved, offset: 0, len: 9000, mode: Allocate::Reserve { keep_size: false } };
    assert_eq!(a.call(&user(0), op), Ok(Reply::Done));
    // with this one it is asked what the file is
    write_at(&a, reserved, 100, &[2; 100]);
    proxy.hold(true);
    for n in 0..20 {
        write_at(&a, reserved, 5000 + n * 1000, &[4; 500]);
        write_at(&a, holes, n * 7000, &[4; 500]);
    }
    proxy.hold(false);
    let b = rig.host("bb", Grant::default());
    for (name, node, size) in [(b"reserved", reserved, 24_500), (b"holes   ", holes, 133_500)] {
        let told = a.call(&user(0), Op::GetAttr { node }).and_then(Reply::attr).expect("known");
        assert_eq!(told.size, size);
        assert_eq!(lookup(&b, dir, name.trim_ascii_end()), Ok(told));
    }
}

/// One random change of what is in a directory.
fn change(random: &mut Random, client: &Client, dirs: &mut Vec<NodeId>, made: &mut usize) {
    let dir = dirs[random.below(dirs.len())];
    let known: Vec<Entry> = list(client, dir).into_iter().filter(|entry| *entry.name != *b".snap").collect();
    let one = (!known.is_empty()).then(|| known[random.below(known.len())].clone());
    let mut name = || {
        *made += 1;
        format!("{made}").into_bytes()
    };
    // each user has a line of his own, and they follow each other all the same
    let uid = [0, 0, 5][random.below(3)];
    let call = |op: Op<'_>| client.call(&user(uid), op);
    match (random.below(12), one) {
        (0, _) | (_, None) if dirs.len() < 6 => {
            let dir = make_dir(client, dir, &name());
            dirs.push(dir);
        }
        (1, _) => {
            let make = Make::Symlink(b"somewhere");
            call(Op::Make { dir, name: &name(), make, mode: 0o777, umask: 0o22 }).expect("made");
        }
        (0..4, _) | (_, None) => {
            let op = Op::Make { dir, name: &name(), make: Make::File, mode: 0o2666, umask: 0o27 };
            call(op).expect("made");
        }
        (4..7, Some(entry)) if entry.kind == Kind::File => {
            let offset = [0, 1, 100, 5000, 70_000][random.below(5)];
            let data = vec![7; 1 + random.below(9000)];
            call(Op::Write { node: entry.node, offset, data: &data }).expect("written");
        }
        (7, Some(entry)) => {
            let to = SetTime::To(Time { secs: 5, nanos: 6 });
            let set = match random.below(4) {
                0 => SetAttr { mode: Some(0o640), ..SetAttr::default() },
                1 => SetAttr { uid: Some(3), gid: Some(4), ..SetAttr::default() },
                2 => SetAttr { atime: Some(to), mtime: Some(SetTime::Now), ..SetAttr::default() },
                _ if entry.kind == Kind::File => SetAttr { size: Some(3000), ..SetAttr::default() },
                _ => SetAttr { mtime: Some(to), ..SetAttr::default() },
            };
            call(Op::SetAttr { node: entry.node, set }).expect("set");
        }
        (8, Some(entry)) if entry.kind != Kind::Dir => {
            call(Op::Unlink { dir, name: &entry.name, over: Precondition::Any }).expect("removed");
        }
        (8, Some(entry)) => match call(Op::RmDir { dir, name: &entry.name }) {
            Ok(_) => dirs.retain(|dir| *dir != entry.node),
            Err(e) => assert_eq!(e, Error::NotEmpty),
        },
        (9, Some(entry)) if entry.kind == Kind::File => {
            call(Op::Link { node: entry.node, dir, name: &name() }).expect("linked");
        }
        (_, Some(entry)) => {
            let to_dir = if entry.kind == Kind::Dir { dir } else { dirs[random.below(dirs.len())] };
            let over = known[random.below(known.len())].clone();
            let to_name = match to_dir == dir && random.below(2) == 0 && over.kind == entry.kind {
                true => over.name.to_vec(),
                false => name(),
            };
            let (from_name, mode) = (&entry.name[..], RenameMode::Replace);
            match call(Op::Rename { from_dir: dir, from_name, to_dir, to_name: &to_name, mode }) {
                Ok(_) if over.kind == Kind::Dir && *over.name == *to_name && over.node != entry.node => {
                    dirs.retain(|dir| *dir != over.node);
                }
                Ok(_) | Err(Error::NotEmpty) => (),
                Err(e) => panic!("{e}"),
            }
        }
    }
}

/// All attributes in these directories.
fn attributes(client: &Client, dirs: &[NodeId]) -> BTreeMap<(NodeId, Box<[u8]>), Attr> {
    let entries = dirs.iter().flat_map(|dir| list(client, *dir).into_iter().map(move |entry| (*dir, entry)));
    let attr = |entry: &Entry| entry.attr.expect("attributes");
    entries.map(|(dir, entry)| ((dir, entry.name.clone()), attr(&entry))).collect()
}

/// What the client tells is what the server makes of it, to the last attribute: a client that keeps
/// nothing of it sees the same, and so does another server.
#[test]
fn what_is_told_is_what_the_server_makes_of_it() {
    let mut rig = Rig::new();
    let (a, _proxy, dir) = alone(&rig, "alone");
    let b = rig.host("bb", Grant::default());
    for round in 0..80 {
        // where nobody else has looked before
        let top = make_dir(&a, dir, format!("round {round}").as_bytes());
        let (mut random, mut dirs, mut made) = (Random(seed_of_run() + round), vec![top], 0);
        for _ in 0..1 + random.below(60) {
            change(&mut random, &a, &mut dirs, &mut made);
        }
        let told = attributes(&a, &dirs);
        if round % 20 == 19 {
            rig.restart(true);
        }
        // the way there: inodes that nobody else has heard of are at the server then
        let found = lookup(&b, dir, format!("round {round}").as_bytes()).map(|attr| attr.node);
        assert_eq!(found, Ok(top));
        assert_eq!(told, attributes(&b, &dirs), "round {round}");
        assert_eq!(told, attributes(&a, &dirs), "round {round}, afterwards");
    }
    assert_eq!(a.call(&user(0), Op::SyncAll), Ok(Reply::Done), "something was lost");
}

fn seed_of_run() -> u64 {
    let given = std::env::var("LEE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
    println!("LEE_SEED={seed}");
    seed
}

#[test]
fn a_silent_client_loses_what_it_has_told_and_says_so() {
    let rig = Rig::new();
    let (a, proxy, dir) = alone(&rig, "alone");
    let b = rig.host("bb", Grant::default());
    proxy.hold(true);
    let mine = make(&a, dir, b"mine").expect("told").node;
    let begun = Instant::now();
    let theirs = make(&b, dir, b"mine").expect("a is waited for, and no longer").node;
    println!("waited for {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_ne!(mine, theirs);
    proxy.hold(false);
    let told = a.call(&user(0), Op::Fsync { node: mine });
    assert!(matches!(told, Err(Error::Io(_) | Error::Stale)), "{told:?}");
    assert_eq!(lookup(&a, dir, b"mine").map(|attr| attr.node), Ok(theirs));
    assert_eq!(lookup(&b, dir, b"mine").map(|attr| attr.node), Ok(theirs));
    assert!(make(&a, dir, b"more").is_ok() && lookup(&b, dir, b"more").is_ok());

    let losses = rig.server().losses();
    let loss = losses.iter().find(|loss| loss.uid == Some(0)).expect("the server says what was lost");
    assert_eq!((&*loss.host, loss.changes, &loss.nodes[..]), ("alone", 1, &[dir.0][..]));
    assert!(loss.why.starts_with("it was silent for "), "{}", loss.why);
    let waited = rig.gate.report();
    assert!(waited.for_machine_nanos["alone"] > 3_000_000_000, "{:?}", waited.for_machine_nanos);
    // on a busy machine other operations of it may have been slow since
    let slow = waited.slow.iter().filter(|slow| slow.machine.as_deref() == Some("bb"));
    let slowest = slow.max_by_key(|slow| slow.took_nanos).expect("the change that waited, from its machine");
    let leases = slowest.waited.iter().find(|wait| wait.cause == "leases").expect("what it waited for");
    assert_eq!((leases.machine.as_deref(), leases.were_taken), (Some("alone"), true));
    let figures = rig.server().host_figures();
    assert_eq!(figures.iter().map(|host| host.lost).sum::<u64>(), 1);
}

/// Else a server after a crash would not wait for it.
#[test]
fn a_client_that_is_back_is_not_noted_as_away_though_it_loses_its_leases_meanwhile() {
    let mut held = None;
    let rig = Rig::with_sessions(|cell| held.insert(Held::of(cell)).clone());
    let latch = &held.as_ref().expect("a rig").latch;
    let (a, proxy, dir) = alone(&rig, "alone");
    let session = || {
        let sessions = rig.server().sessions();
        sessions.into_iter().find(|session| session.host == "alone").expect("its session")
    };
    proxy.hold(true);
    for _ in 0..3000 {
        if session().away {
            break;
        }
        rig.env.sleep(Duration::from_millis(10));
    }
    assert!(session().away, "it was silent");
    latch.shut();
    proxy.hold(false);
    latch.is_reached();
    let found = std::thread::scope(|scope| {
        let looking = scope.spawn(|| rig.gate.call(&user(0), Op::Lookup { dir, name: b"first" }));
        rig.env.sleep(Duration::from_secs(1));
        latch.open();
        looking.join().expect("no panic")
    });
    assert!(found.is_ok(), "{found:?}");
    assert_eq!(a.call(&user(0), Op::SyncAll), Ok(Reply::Done));
    let number = session().number;
    let kept = Sessions::sessions(&*rig.cell).into_iter().find(|kept| kept.number == number);
    assert!(kept.is_some_and(|kept| !kept.away), "it is there");
}

#[test]
fn a_client_that_is_sent_away_with_exclusive_leases_may_have_lost_something() {
    let rig = Rig::new();
    let (a, _proxy, _) = alone(&rig, "alone");
    let b = rig.host("bb", Grant::default());
    assert!(lookup(&b, ROOT, b"alone").is_ok());
    for session in rig.server().sessions() {
        rig.server().end_session(session.number);
    }
    let losses = rig.server().losses();
    let all: Vec<_> = losses.iter().map(|loss| (&*loss.host, loss.uid, loss.changes)).collect();
    assert_eq!(all, [("alone", None, 0)], "the other one has told its programs nothing");
    assert_eq!(losses[0].why, "an operator ended the session");
    a.close();
    b.close();
    assert_eq!(rig.server().losses().len(), 1, "who ends its session has sent all");
}

/// Makes nested directories until that is refused. Returns the paths of those that were told.
fn make_trees(client: &Client, top: NodeId) -> Vec<String> {
    let mut told = Vec::new();
    for tree in 0..50_000 {
        let (mut dir, mut path) = (top, String::new());
        for depth in 0..6 {
            let name = format!("{tree}.{depth}");
            let op = Op::Make { dir, name: name.as_bytes(), make: Make::Dir, mode: 0o755, umask: 0 };
            let Ok(attr) = client.call(&user(0), op).and_then(Reply::attr) else { return told };
            dir = attr.node;
            path.push_str(&format!("/{name}"));
            told.push(path.clone());
        }
    }
    told
}

/// What a client has told its programs while a volume becomes a copy is in its snapshot, also what
/// it has made in what it had just made.
#[test]
fn a_volume_that_becomes_a_copy_shows_all_that_was_told() {
    let rig = Rig::new();
    let (a, proxy, _) = alone(&rig, "alone");
    let volume = VolumeCreate { name: "vol".into(), at: "/vol".into(), uid: 0, gid: 0, pool: None };
    rig.cell.admin(&volume, &mut |_| ()).expect("a volume");
    let vol = lookup(&a, ROOT, b"vol").expect("attached").node;
    let dir = make_dir(&a, vol, b"dir");
    make(&a, dir, b"first").expect("made");
    // numbers of inodes of this volume are asked for meanwhile
    rig.env.sleep(Duration::from_millis(1200));
    make(&a, dir, b"second").expect("made");
    rig.env.sleep(Duration::from_millis(100));
    proxy.hold(true);
    let top = make_dir(&a, dir, b"top");
    let demote = VolumeDemote { name: "vol".into(), snapshot: "last".into() };
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(|| make_trees(&a, top));
        let demoted = scope.spawn(|| rig.cell.admin(&demote, &mut |_| ()).map(drop));
        // the server has asked for what it knew then
        rig.env.sleep(Duration::from_millis(200));
        proxy.hold(false);
        assert_eq!(demoted.join().expect("answered"), Ok(()));
        told.join().expect("told")
    });
    assert!(!told.is_empty());
    println!("{} directories were told", told.len());
    let look = |dir: NodeId, name: &str| {
        let op = Op::Lookup { dir, name: name.as_bytes() };
        rig.cell.call(&Ctx::user(0, 0), op).and_then(Reply::attr).map(|attr| attr.node)
    };
    let shown = ["vol", "dir", "top"].into_iter().try_fold(ROOT, look).expect("in the copy");
    for path in &told {
        let found = path.split('/').skip(1).try_fold(shown, look);
        assert!(found.is_ok(), "{path} was told: {found:?}");
    }
    let losses = rig.server().losses();
    assert!(losses.is_empty(), "{} losses", losses.len());
    assert_eq!(a.call(&user(0), Op::SyncAll), Ok(Reply::Done), "something was lost");
}

/// What a machine has told its programs is in a snapshot `s` of all that comes after it, whoever
/// takes it. `take`: with the directory of snapshots, as another machine sees it.
fn is_in_a_snapshot(take: impl Fn(&Rig, &Client, NodeId) + Sync) {
    let rig = Rig::new();
    let (a, proxy, dir) = alone(&rig, "alone");
    let b = rig.host("bb", Grant::default());
    let snapshots = lookup(&b, ROOT, b".snap").expect("there").node;
    proxy.hold(true);
    let node = make(&a, dir, b"told").expect("told").node;
    assert_eq!(write(&a, node, b"content"), Ok(7));
    let is_early = std::thread::scope(|scope| {
        let taken = scope.spawn(|| take(&rig, &b, snapshots));
        rig.env.sleep(Duration::from_millis(200));
        let is_early = taken.is_finished();
        proxy.hold(false);
        is_early
    });
    assert!(!is_early, "it was taken without what was told");
    let path: [&[u8]; 3] = [b"s", b"alone", b"told"];
    let then = path.into_iter().try_fold(snapshots, |dir, name| lookup(&b, dir, name).map(|attr| attr.node));
    assert_eq!(then.and_then(|node| rig::read(&b, node)), Ok(b"content".to_vec()));
}

#[test]
fn what_was_told_is_in_a_snapshot_of_another_machine() {
    is_in_a_snapshot(|_, b, snapshots| {
        make_dir(b, snapshots, b"s");
    });
}

#[test]
fn what_was_told_is_in_a_snapshot_of_an_operator() {
    is_in_a_snapshot(|rig, _, _| {
        let request = SnapCreate { path: "/".into(), name: "s".into() };
        rig.cell.admin(&request, &mut |_| ()).map(drop).expect("taken");
    });
}

/// A client that says that it has told its program of something which it may not change by itself.
#[test]
fn what_a_client_says_that_it_has_told_is_not_done_without_a_lease() {
    let (rig, seed) = (Rig::new(), 41);
    rig.know(seed, "liar", Grant::default());
    let b = rig.host("bb", Grant::default());
    let dir = make_dir(&b, ROOT, b"dir");
    let file = make(&b, dir, b"file").expect("made").node;
    assert_eq!(b.call(&user(0), Op::SyncAll), Ok(Reply::Done));
    let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    let lies = [
        Op::Unlink { dir, name: b"file", over: Precondition::Any },
        Op::Write { node: file, offset: 0, data: b"lie" },
        Op::SetAttr { node: file, set },
        Op::Make { dir, name: b"lie", make: Make::File, mode: 0o644, umask: 0 },
    ];
    for (number, op) in (1..).zip(lies) {
        let (mut raw, _) = Raw::welcomed(&rig, seed, None);
        let text = format!("{op:?}");
        let behind = Behind { at: 0, node: file.0 + 1000 };
        raw.say(&ToServer::Call(slot(0, number), Call::InOrder(root(), Some(behind), op)));
        loop {
            match raw.hear() {
                Ok(ToClient::Answer(_, result, ..)) => assert!(result.is_err(), "{text}: {result:?}"),
                Ok(ToClient::Refused(..)) | Err(_) => break,
                Ok(_) => continue,
            }
            break;
        }
    }
    let attr = lookup(&b, dir, b"file").expect("there");
    assert_eq!((attr.node, attr.size, attr.mode & 0o777), (file, 0, 0o644));
    assert_eq!(lookup(&b, dir, b"lie"), Err(Error::NotFound));
}

/// Two clients make files in one directory until that is refused; nothing that was told is lost.
/// Returns how many files they made under a limit that `limit` sets.
fn filled_by_two(most: u64, limit: impl FnOnce(&Rig)) -> u64 {
    let rig = Rig::new();
    let (a, _proxy, dir) = alone(&rig, "alone");
    let b = rig.host("bb", Grant::default());
    limit(&rig);
    let fill = |client: &Client, which: &str| -> u64 {
        let made = |n: &u64| match make(client, dir, format!("{which}{n}").as_bytes()) {
            Ok(_) => true,
            Err(e) => {
                assert_eq!(e, Error::Quota);
                false
            }
        };
        (0..most).take_while(made).count() as u64
    };
    let (by_a, by_b) = std::thread::scope(|scope| {
        let by_a = scope.spawn(|| fill(&a, "a"));
        rig.env.sleep(Duration::from_millis(100));
        let by_b = fill(&b, "b");
        (by_a.join().expect("filled"), by_b)
    });
    for client in [&a, &b] {
        assert_eq!(client.call(&user(0), Op::SyncAll), Ok(Reply::Done), "something was lost");
    }
    by_a + by_b
}

/// Exactly what fits is made, by whichever of two clients.
#[test]
fn quotas_are_exact_for_what_is_told() {
    const FILES: u64 = 3000;
    let quota = QuotaSet { path: "/alone".into(), bytes: None, files: Some(FILES) };
    let made = filled_by_two(FILES, |rig| drop(rig.cell.admin(&quota, &mut |_| ()).expect("set")));
    // and the two that were there
    assert_eq!(made + 2, FILES);
}

#[test]
fn limits_of_users_are_exact_for_what_is_told() {
    const FILES: u64 = 3000;
    let who = UserOrGroup::User(0);
    let limit = OwnerLimit { volume: None, who, bytes: None, files: Some(FILES) };
    let made = filled_by_two(FILES, |rig| drop(rig.cell.admin(&limit, &mut |_| ()).expect("set")));
    // and the directory with the two that were there
    assert_eq!(made + 3, FILES);
}

/// A server that starts after a crash answers what was told before it takes calls. What waited for
/// that answer gets its slot, and is not sent: the slot's next call follows the last one that a
/// server has heard of.
#[test]
fn a_session_goes_on_after_a_crash_with_something_that_waited_for_a_told_change() {
    let mut rig = Rig::new();
    let (a, proxy, dir) = alone(&rig, "alone");
    let node = make(&a, dir, b"third").expect("made").node;
    assert_eq!(a.call(&user(0), Op::SyncAll), Ok(Reply::Done));
    let session = a.session();
    proxy.hold(true);
    let gone = Op::Unlink { dir, name: b"third", over: Precondition::Any };
    assert!(a.call(&user(0), gone).is_ok(), "it is told at once");
    a.forget(user(0), node, 1);
    let _dead = rig.die(|at| {
        proxy.lead_to(at);
        proxy.cut();
        proxy.hold(false);
    });
    assert_eq!(lookup(&a, dir, b"third"), Err(Error::NotFound));
    assert_eq!(a.call(&user(0), Op::SyncAll), Ok(Reply::Done));
    assert_eq!(a.session(), session, "its session went on");
}

/// Comes back to a session after a crash with these changes, and says why it is refused.
fn refused_with(at: SocketAddr, seed: u8, session: SessionId, told: &[(Slot, &[u8])]) -> Refusal {
    let mut raw = Raw::over(TcpStream::connect(at).expect("it listens"), rig::raw::tls(seed));
    raw.say(&ToServer::Hello(Hello { session: Some(session), ..HELLO }));
    let welcome = raw.hear();
    assert!(matches!(welcome, Ok(ToClient::Welcome { standing: Standing::Known, .. })), "{welcome:?}");
    for (slot, name) in told {
        let op = Op::Unlink { dir: ROOT, name, over: Precondition::Any };
        let behind = Behind { at: 0, node: 0 };
        raw.say(&ToServer::Call(*slot, Call::InOrder(root(), Some(behind), op)));
    }
    raw.say(&ToServer::CaughtUp);
    loop {
        match raw.hear() {
            Ok(ToClient::Refused(why, _)) => return why,
            Ok(ToClient::Answer(at, result, ..)) => assert!(result.is_ok() && at == told[0].0, "{at:?}"),
            Ok(ToClient::Again { .. }) => (),
            other => panic!("{other:?}"),
        }
    }
}

/// What follows may build on it.
#[test]
fn after_a_crash_nothing_of_a_session_runs_behind_a_change_that_does_not_follow() {
    let (mut rig, seed, names) = (Rig::new(), 40, [b"1", b"2", b"3"]);
    rig.know(seed, "host", Grant::default());
    let (mut raw, session) = Raw::welcomed(&rig, seed, None);
    for (number, name) in (1..).zip(names) {
        let op = Op::Make { dir: ROOT, name, make: Make::File, mode: 0o644, umask: 0 };
        raw.call(slot(0, number), root(), op).expect("made");
    }
    rig.cell.sync().expect("all is on disk");
    let mut refused = None;
    let _dead = rig.die(|at| {
        let told = move || {
            let told = [(slot(1, 1), &b"1"[..]), (slot(1, 3), b"2"), (slot(2, 1), b"3")];
            refused_with(at, seed, session, &told)
        };
        refused = std::thread::Builder::new().spawn(told).ok();
    });
    let is_there = |name: &[u8; 1]| rig.gate.call(&user(0), Op::Lookup { dir: ROOT, name }).is_ok();
    assert_eq!(names.map(is_there), [false, true, true]);
    let refused = refused.map(std::thread::JoinHandle::join).expect("a thread").expect("it is refused");
    assert_eq!(refused, Refusal::Ended);
}
