//! What clients cost the server: those that do not read their answers, those that are idle, and those
//! that are gone. One test at a time, as they look at the whole process.
#![allow(missing_docs)]

mod rig;

use leeward_fs::{Error, NodeId, Op};
use leeward_remote::message::{Call, Caller, ToClient, ToServer, frame};
use leeward_remote::{Client, Grant};
use leeward_vfs::Backend;
use rig::raw::{Raw, root, slot};
use rig::{Rig, lookup, make, read, user, write};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::Shutdown;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

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
    let (mut lists, _) = Raw::welcomed(&rig, BAD, None);
    let list = Op::List { dir: ROOT, after: b"", limit: 1000, attrs: true };
    let call = frame(&ToServer::Call(slot(0, 1), Call::Op(root(), list)));
    send_all(&mut lists, &call.repeat(10_000));
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
            let call = Call::Op(Caller { gids, ..root() }, Op::GetAttr { node: ROOT });
            raw.say(&ToServer::Call(slot(place, 1 + first / 100), call));
        }
        for _ in 0..100 {
            let answer = raw.hear().expect("an answer");
            refused += u32::from(matches!(answer, ToClient::Answer(_, Err(Error::Io(_)), ..)));
        }
    }
    assert!((9_000..12_000).contains(&refused), "{refused} lists were refused");
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

/// `cargo test -p leeward-remote --test memory -- --ignored --nocapture`
#[test]
#[ignore = "prints a figure"]
fn memory_of_idle_sessions() {
    const SESSIONS: usize = 1000;
    let _alone = alone();
    IS_TEST.set(true);
    let (rig, good) = rig();
    let node = make(&good, ROOT, b"big").expect("made").node;
    // the first session makes what all share
    let (first, _) = Raw::welcomed(&rig, BAD, None);
    let before = (memory(), HELD.load(Ordering::Relaxed));
    let mut all = Vec::new();
    for number in 0..SESSIONS {
        let seed = 2 + (number / 60) as u8;
        rig.know(seed, &format!("host {seed}"), Grant::default());
        let (mut raw, _) = Raw::welcomed(&rig, seed, None);
        for call in 1..20 {
            let data = vec![0; if call == 10 { 1 << 20 } else { 100 }];
            raw.call(slot(0, call), root(), Op::Write { node, offset: 0, data: &data }).expect("written");
            raw.call(slot(1, call), root(), Op::Lookup { dir: ROOT, name: b"big" }).expect("found");
        }
        all.push(raw);
    }
    let held = HELD.load(Ordering::Relaxed) - before.1;
    println!("{} bytes of heap for a session", held / SESSIONS as isize);
    println!("{} KiB with its client", memory().saturating_sub(before.0) / SESSIONS / 1024);
    drop((first, all));
    rig.settles(1, usize::MAX);
    let held = HELD.load(Ordering::Relaxed) - before.1;
    println!("{} bytes of heap without a connection", held / SESSIONS as isize);
    assert!(good.call(&user(0), Op::GetAttr { node }).is_ok());
}
