//! What clients cost the server: those that do not read their answers, those that are idle, and
//! those that are gone. One test at a time, as they look at the whole process.
#![allow(missing_docs, clippy::disallowed_methods)]

mod rig;

use leeward_fs::{Error, Make, NodeId, Op, Reply};
use leeward_remote::message::{Call, Caller, Leased, ToClient, ToServer, frame};
use leeward_remote::{Client, Grant};
use leeward_vfs::Backend;
use rig::raw::{Raw, root, slot};
use rig::{Rig, lookup, make, read, user, write};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::Shutdown;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const ROOT: NodeId = NodeId::ROOT;
const BAD: u8 = 1;
/// Bytes that threads hold which are not a test's: those of the server.
static HELD: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static IS_TEST: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn count(bytes: isize) {
    if !IS_TEST.try_with(Cell::get).unwrap_or(true) {
        HELD.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: the system's allocator does the work
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as our caller has promised
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as our caller has promised
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static MEMORY: Counting = Counting;

/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Memory of this process, bytes.
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("figures");
    pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).map_or(0, |pages: usize| pages * 4096)
}

/// Threads of this process with this at the beginning of their names.
fn threads(name: &str) -> usize {
    let all = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let names = all.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|comm| comm.starts_with(name)).count()
}

fn rig() -> (Rig, Client) {
    let rig = Rig::new();
    let good = rig.host("good", Grant::default());
    rig.know(BAD, "bad", Grant::default());
    (rig, good)
}

/// Sends until the server takes no more, or all was sent.
fn send_all(raw: &mut Raw, bytes: &[u8]) {
    raw.socket().set_write_timeout(Some(Duration::from_millis(500))).expect("a time");
    let _ = bytes.chunks(16 << 10).all(|piece| raw.is_taken(piece));
}

fn goes_on(good: &Client) {
    for _ in 0..20 {
        assert_eq!(lookup(good, ROOT, b"nothing"), Err(Error::NotFound));
    }
    assert!(good.away().is_none());
}

#[test]
fn who_does_not_read_its_answers_fills_no_memory() {
    let _alone = alone();
    let (rig, good) = rig();
    let node = make(&good, ROOT, b"big").expect("made").node;
    write(&good, node, &vec![7; 1 << 20]).expect("written");
    read(&good, node).expect("read");
    let before = memory();
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    let read = || Call::Op(root(), Op::Read { node, offset: 0, len: 1 << 20 });
    let calls: Vec<u8> = (0..1024).flat_map(|place| frame(&ToServer::Call(slot(place, 1), read()))).collect();
    send_all(&mut raw, &calls);
    goes_on(&good);
    rig.env.sleep(Duration::from_millis(500));
    let grown = memory().saturating_sub(before);
    assert!(grown < 200 << 20, "{} MiB for what nobody reads", grown >> 20);
    // it reads after all: each is answered
    for _ in 0..1024 {
        raw.hear().expect("an answer");
    }
    raw.say(&ToServer::Bye);
    rig.settles(1, 1);
    goes_on(&good);
}

#[test]
fn pings_and_repeated_calls_that_nobody_reads_fill_no_memory() {
    let _alone = alone();
    let (rig, good) = rig();
    let before = memory();
    let (mut pings, _) = Raw::welcomed(&rig, BAD, None);
    send_all(&mut pings, &frame(&ToServer::Ping { number: 1, term: 0 }).repeat(2_000_000));
    for number in 0..200 {
        let name = format!("{number:0>250}");
        make(&good, ROOT, name.as_bytes()).expect("made");
    }
    let (mut repeated, _) = Raw::welcomed(&rig, BAD, None);
    let list = Op::List { dir: ROOT, after: b"", limit: 1000, attrs: true };
    let call = frame(&ToServer::Call(slot(0, 1), Call::Op(root(), list)));
    send_all(&mut repeated, &call.repeat(10_000));
    // the answer to a change is kept, and given as often as it is asked for
    let change = Op::Make { dir: ROOT, name: b"x", make: Make::File, mode: 0o644, umask: 0 };
    let call = frame(&ToServer::Call(slot(1, 1), Call::Op(root(), change)));
    send_all(&mut repeated, &call.repeat(1_500_000));
    goes_on(&good);
    let grown = memory().saturating_sub(before);
    assert!(grown < 150 << 20, "{} MiB for what nobody reads", grown >> 20);
    // they are silent now: the server lets them go
    for _ in 0..1400 {
        if rig.server().connections() == 1 {
            return goes_on(&good);
        }
        rig.env.sleep(Duration::from_millis(10));
    }
    panic!("a client that reads nothing stays");
}

#[test]
fn lists_of_groups_are_bounded_and_those_known_stay() {
    const LISTS: u32 = 60_000;
    let _alone = alone();
    let (rig, good) = rig();
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    let before = memory();
    let mut refused = 0;
    for first in (0..LISTS).step_by(100) {
        for place in 0..100 {
            let gids = vec![1_000_000 + first + u32::from(place), 5];
            let caller = Caller { uid: 5000 + first / 400, gids, ..root() };
            let call = Call::Op(caller, Op::GetAttr { node: ROOT });
            raw.say(&ToServer::Call(slot(place, 1 + first / 100), call));
        }
        for _ in 0..100 {
            let answer = raw.hear().expect("an answer");
            refused += u32::from(matches!(answer, ToClient::Answer(_, Err(Error::Io(_)), ..)));
        }
    }
    assert_eq!(refused, 0, "a user has so many lists, and no more are kept");
    let grown = memory().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB for lists of groups", grown >> 20);
    let known = Caller { gids: vec![1_000_000, 5], ..root() };
    assert!(raw.call(slot(200, 1), known, Op::GetAttr { node: ROOT }).is_ok());
    raw.say(&ToServer::Bye);
    goes_on(&good);
}

#[test]
fn a_client_that_reads_slowly_gets_all_over_one_connection() {
    let _alone = alone();
    let (rig, good) = rig();
    let node = make(&good, ROOT, b"big").expect("made").node;
    write(&good, node, &vec![7; 1 << 20]).expect("written");
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    let read = || Call::Op(root(), Op::Read { node, offset: 0, len: 1 << 20 });
    for place in 0..40 {
        raw.say(&ToServer::Call(slot(place, 1), read()));
    }
    for _ in 0..40 {
        rig.env.sleep(Duration::from_millis(30));
        raw.hear().expect("an answer");
    }
    raw.say(&ToServer::Bye);
    rig.settles(1, 1);
}

#[test]
fn threads_end_with_their_server() {
    let _alone = alone();
    for round in 0..6 {
        let (rig, good) = rig();
        let mut raws: Vec<Raw> = (0..5).map(|_| Raw::welcomed(&rig, BAD, None).0).collect();
        let silent = std::net::TcpStream::connect(rig.at).expect("connected");
        if round % 2 == 0 {
            // calls are at work when it ends
            for (raw, place) in raws.iter_mut().zip(0..) {
                let op = Op::Lookup { dir: ROOT, name: b"nothing" };
                raw.say(&ToServer::Call(slot(place, 1), Call::Op(root(), op)));
            }
            raws[0].socket().shutdown(Shutdown::Both).expect("hung up");
        }
        assert!(threads("serve-") > 3);
        good.close();
        drop(rig);
        drop(silent);
        ends("serve-");
        ends("remote");
    }
}

/// Threads with these names end.
fn ends(name: &str) {
    for _ in 0..1000 {
        if threads(name) == 0 {
            return;
        }
        leeward_env::Env::real().sleep(Duration::from_millis(5));
    }
    panic!("{} threads {name} stay", threads(name));
}

#[test]
fn a_process_without_descriptors_serves_those_who_are_in() {
    let _alone = alone();
    let (rig, good) = rig();
    let mut taken = Vec::new();
    // one is left for the client's end: the server's end of the connection gets none
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
        if taken.len() > 200_000 {
            return;
        }
    }
    taken.pop();
    let stranger = std::net::TcpStream::connect(rig.at);
    goes_on(&good);
    rig.env.sleep(Duration::from_millis(200));
    goes_on(&good);
    drop((taken, stranger));
    let (mut raw, _) = Raw::welcomed(&rig, BAD, None);
    raw.say(&ToServer::Bye);
    rig.settles(1, 1);
}

/// Sessions of machines that are there and ask for nothing, and what they cost the server at most:
/// its heap for each, and the time of a change of what all of them keep.
const SESSIONS: usize = 1000;
const SESSION_BYTES_MAX: isize = 64 << 10;
const CHANGE_TIME_MAX: Duration = Duration::from_secs(10);
/// Of one host there may be 64.
const OF_ONE_HOST: usize = 50;
/// Who of them answer recalls and say that they are there, one after the other.
const AT_ONCE: usize = 2;

#[test]
fn a_thousand_sessions_cost_little_and_a_change_of_what_all_keep_is_quick() {
    let _alone = alone();
    IS_TEST.set(true);
    raise_limit_of_descriptors(3 * SESSIONS as u64);
    let (rig, good) = rig();
    let dir = Op::Make { dir: ROOT, name: b"dir", make: Make::Dir, mode: 0o755, umask: 0 };
    let dir = good.call(&user(0), dir).and_then(Reply::attr).expect("made").node;
    // a file for each: nobody has to give back what another writes
    let files = (0..=SESSIONS).map(|n| make(&good, dir, format!("file {n}").as_bytes()).expect("made").node);
    let files: Vec<NodeId> = files.collect();
    // sessions go to them by number: they are to be there
    assert_eq!(good.call(&user(0), Op::SyncAll), Ok(Reply::Done));
    // the first session makes what all share
    let first = used_session(&rig, BAD, (dir, SESSIONS, &files));
    let before = HELD.load(Ordering::Relaxed);
    let (mut all, mut said): (Vec<Raw>, _) = (Vec::new(), Instant::now());
    for number in 0..SESSIONS {
        let seed = 2 + (number / OF_ONE_HOST) as u8;
        rig.know(seed, &format!("host {seed}"), Grant::default());
        all.push(used_session(&rig, seed, (dir, number, &files)));
        if said.elapsed() > Duration::from_secs(2) {
            all_say_that_they_are_there(&mut all);
            said = Instant::now();
        }
    }
    let held = (HELD.load(Ordering::Relaxed) - before) / SESSIONS as isize;
    assert!(held <= SESSION_BYTES_MAX, "{held} bytes of heap for an idle session");
    let mut times: Vec<Duration> = (0..5).map(|round| change(&good, &mut all, (dir, round))).collect();
    times.sort_unstable();
    // the middle one: whatever else runs on this machine takes its time, too
    assert!(times[2] <= CHANGE_TIME_MAX, "changes of what {SESSIONS} machines keep took {times:?}");
    println!("{held} bytes of heap for an idle session; changes of what {SESSIONS} keep took {times:?}");
    drop((first, all));
    rig.settles(1, usize::MAX);
    let held = (HELD.load(Ordering::Relaxed) - before) / SESSIONS as isize;
    assert!(held <= SESSION_BYTES_MAX, "{held} bytes of heap for a session without a connection");
    goes_on(&good);
}

/// Leases of each session, on inodes that no other has: such cost the most.
const LEASES_EACH: usize = 1000;
const LEASE_BYTES_MAX: isize = 100;
/// Sessions that get their leases before all say that they are there.
const AT_A_TIME: usize = 50;
/// How long it may take until all of them are given back: a hundred times what it does.
const RECALL_TIME_MAX: Duration = Duration::from_secs(10);

/// With `LEE_SESSIONS=1000` it is a million of them.
#[test]
fn many_leases_cost_little_and_all_are_recalled_at_once() {
    let _alone = alone();
    IS_TEST.set(true);
    let sessions: usize =
        std::env::var("LEE_SESSIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(100);
    raise_limit_of_descriptors(3 * sessions as u64);
    let (rig, good) = rig();
    // before anybody is there: who says nothing for 10 s is hung up on
    let dirs: Vec<(NodeId, NodeId)> = (0..sessions).map(|number| dir_with_files(&rig, number)).collect();
    // what the cell keeps of inodes that were looked at is not that of leases
    assert_eq!(rig.gate.call(&user(0), Op::SyncAll), Ok(Reply::Done));
    for (dir, _) in &dirs {
        let list = Op::List { dir: *dir, after: b"", limit: LEASES_EACH, attrs: true };
        rig.gate.call(&leeward_env::Ctx::user(0, 0), list).expect("listed");
    }
    let (mut all, mut said): (Vec<(Raw, NodeId)>, _) = (Vec::new(), Instant::now());
    for (number, (dir, node)) in dirs.into_iter().enumerate() {
        let seed = 2 + (number / OF_ONE_HOST) as u8;
        rig.know(seed, &format!("host {seed}"), Grant::default());
        let (mut raw, _) = Raw::welcomed(&rig, seed, None);
        // as long as the list that comes: what connections keep for such answers is not that of
        // leases
        raw.call(slot(0, 1), without_refs(), Op::Read { node, offset: 0, len: 256 << 10 }).expect("read");
        all.push((raw, dir));
        say_now_and_then(&mut all, &mut said);
    }
    let before = HELD.load(Ordering::Relaxed);
    let begun = Instant::now();
    for from in (0..sessions).step_by(AT_A_TIME) {
        let to = sessions.min(from + AT_A_TIME);
        each(&mut all[from..to], |(raw, dir)| takes_leases(raw, *dir));
        say_now_and_then(&mut all, &mut said);
    }
    let (granted, held) = (begun.elapsed(), HELD.load(Ordering::Relaxed) - before);
    let leases: u64 = rig.server().sessions().iter().map(|session| session.leases).sum();
    assert!(leases >= (sessions * LEASES_EACH) as u64, "{leases} leases");
    each(&mut all, |(raw, _)| says_that_it_is_there(raw));
    let recalled = std::thread::scope(|scope| {
        let recalling = scope.spawn(|| {
            IS_TEST.set(true);
            let begun = Instant::now();
            rig.cell.leases().recall_volume(ROOT.volume()).wait();
            begun.elapsed()
        });
        each(&mut all, |(raw, dir)| match raw.hear().expect("a recall") {
            ToClient::Recall { number, nodes } if nodes.contains(dir) => raw.say(&ToServer::Recalled(number)),
            other => panic!("{other:?}"),
        });
        recalling.join().expect("recalled")
    });
    let held = held / leases as isize;
    println!(
        "{sessions} sessions, {leases} leases: granted in {granted:?}, {held} bytes of heap for each, all recalled \
         in {recalled:?}"
    );
    assert!(held <= LEASE_BYTES_MAX, "{held} bytes of heap for a lease");
    assert!(recalled <= RECALL_TIME_MAX, "{leases} leases were recalled in {recalled:?}");
    assert!(rig.server().sessions().iter().all(|session| session.host == "good" || session.leases == 0));
    goes_on(&good);
}

/// They say that they are there, if that is some time ago.
fn say_now_and_then(all: &mut [(Raw, NodeId)], said: &mut Instant) {
    if said.elapsed() > Duration::from_secs(2) {
        each(all, |(raw, _)| says_that_it_is_there(raw));
        *said = Instant::now();
    }
}

fn without_refs() -> Caller {
    Caller { refs: false, ..root() }
}

/// A directory with as many files as a session is to have leases, and a long one.
fn dir_with_files(rig: &Rig, number: usize) -> (NodeId, NodeId) {
    let ctx = leeward_env::Ctx::user(0, 0);
    let make = |dir, name: &str, make, mode| {
        let op = Op::Make { dir, name: name.as_bytes(), make, mode, umask: 0 };
        rig.gate.call(&ctx, op).and_then(Reply::attr).expect("made").node
    };
    let dir = make(ROOT, &format!("dir {number}"), Make::Dir, 0o755);
    (0..LEASES_EACH).for_each(|n| _ = make(dir, &format!("{n:04}"), Make::File, 0o644));
    let long = make(dir, "long", Make::File, 0o644);
    rig.gate.call(&ctx, Op::Write { node: long, offset: 0, data: &[7; 256 << 10] }).expect("written");
    (dir, long)
}

/// Lists a directory, with a lease on each inode in it.
fn takes_leases(raw: &mut Raw, dir: NodeId) {
    says_that_it_is_there(raw);
    let op = Op::List { dir, after: b"", limit: LEASES_EACH, attrs: true };
    raw.say(&ToServer::Call(slot(1, 1), Call::Op(without_refs(), op)));
    match raw.hear().expect("an answer") {
        ToClient::Answer(_, Ok(_), Leased::AllBut { others, .. }, ..) if others.is_empty() => (),
        answer => panic!("no leases: {answer:?}"),
    }
}

/// A process may have fewer at first than it may ask for.
fn raise_limit_of_descriptors(wanted: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure of that kind
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_cur.max(wanted.min(limit.rlim_max));
    // SAFETY: the same
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert!(limit.rlim_cur >= wanted, "only {} descriptors for {wanted}: raise ulimit -n", limit.rlim_cur);
}

/// A session that has read and written something.
fn used_session(rig: &Rig, seed: u8, (dir, number, files): (NodeId, usize, &[NodeId])) -> Raw {
    let (mut raw, _) = Raw::welcomed(rig, seed, None);
    let (node, name) = (files[number], format!("file {number}"));
    raw.call(slot(0, 1), root(), Op::Write { node, offset: 0, data: &[0; 10_000] }).expect("written");
    raw.call(slot(1, 1), root(), Op::Lookup { dir, name: name.as_bytes() }).expect("found");
    raw.call(slot(2, 1), root(), Op::Read { node, offset: 0, len: 10_000 }).expect("read");
    raw
}

/// Does something with each of them, on a few threads.
fn each<T: Send>(all: &mut [T], work: impl Fn(&mut T) + Sync) {
    let share = all.len().div_ceil(AT_ONCE);
    std::thread::scope(|scope| {
        for part in all.chunks_mut(share) {
            scope.spawn(|| {
                IS_TEST.set(true);
                part.iter_mut().for_each(&work);
            });
        }
    });
}

/// As a client does each second. It gives back what it was asked for meanwhile.
fn all_say_that_they_are_there(all: &mut [Raw]) {
    each(all, says_that_it_is_there);
}

fn says_that_it_is_there(raw: &mut Raw) {
    raw.say(&ToServer::Ping { number: 1, term: 0 });
    while !matches!(hear_but_recalls(raw), ToClient::Pong { taken: None, .. }) {}
}

/// What comes, after recalls, which are answered.
fn hear_but_recalls(raw: &mut Raw) -> ToClient {
    loop {
        match raw.hear().expect("something") {
            ToClient::Recall { number, .. } => raw.say(&ToServer::Recalled(number)),
            other => return other,
        }
    }
}

/// All of them list the directory, then one machine makes a file in it; how long that took.
fn change(good: &Client, all: &mut [Raw], (dir, round): (NodeId, u32)) -> Duration {
    all_say_that_they_are_there(all);
    each(all, |raw| {
        let op = Op::List { dir, after: b"", limit: 100, attrs: true };
        raw.say(&ToServer::Call(slot(3, 1 + round), Call::Op(root(), op)));
        let answer = hear_but_recalls(raw);
        let ToClient::Answer(_, Ok(_), Leased::AllBut { others, .. }, ..) = answer else {
            panic!("{answer:?}")
        };
        assert!(!others.contains(&dir), "no lease on the directory");
    });
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            IS_TEST.set(true);
            let begun = Instant::now();
            make(good, dir, format!("new {round}").as_bytes()).expect("made");
            begun.elapsed()
        });
        each(all, |raw| match raw.hear().expect("a recall") {
            ToClient::Recall { number, nodes } if nodes.contains(&dir) => {
                raw.say(&ToServer::Recalled(number))
            }
            other => panic!("{other:?}"),
        });
        changing.join().expect("changed")
    })
}
