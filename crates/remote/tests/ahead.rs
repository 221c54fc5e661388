//! Reading ahead: streams are as quick over a network with a delay as without, others cost nothing
//! more, memory is bounded, and nobody reads what is not there any more.
#![allow(clippy::disallowed_methods)]

use crate::rig::delay;
use crate::rig::latch::Over;
use crate::rig::proxy::{Proxy, WHOLE};
use crate::rig::{INVITATION, Rig, lookup, make, seed, user};
use leeward_fs::{NodeId, Op, Reply, SetAttr};
use leeward_remote::{Client, Grant};
use leeward_vfs::Backend;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROOT: NodeId = NodeId::ROOT;
const MIB: u64 = 1 << 20;
/// What the kernel asks for at a time.
const PIECE: u32 = 128 << 10;

fn byte_at(offset: u64, of: u64) -> u8 {
    (offset / 4096 * 7 + offset % 251 + of) as u8
}

/// A file of this size, made on the server's machine.
fn fill(rig: &Rig, name: &[u8], bytes: u64) -> NodeId {
    let maker = rig.host("maker", Grant::default());
    let node = make(&maker, ROOT, name).expect("made").node;
    for offset in (0..bytes).step_by(MIB as usize) {
        let data: Vec<u8> = (offset..(offset + MIB).min(bytes)).map(|at| byte_at(at, node.inode())).collect();
        maker.call(&user(0), Op::Write { node, offset, data: &data }).expect("written");
    }
    maker.close();
    node
}

fn read_at(client: &Client, node: NodeId, offset: u64, len: u32) -> Vec<u8> {
    client.call(&user(0), Op::Read { node, offset, len }).and_then(Reply::data).expect("read")
}

fn check(data: &[u8], offset: u64, node: NodeId) {
    let wrong = data.iter().zip(offset..).find(|(byte, at)| **byte != byte_at(*at, node.inode()));
    assert_eq!(wrong, None, "in what was read at {offset}");
}

/// Reads all in order, and checks it.
fn stream(client: &Client, node: NodeId, size: u64) {
    let mut at = 0;
    while at < size {
        let data = read_at(client, node, at, PIECE);
        assert_eq!(data.len() as u64, u64::from(PIECE).min(size - at));
        check(&data, at, node);
        at += data.len() as u64;
    }
}

/// A client behind a network with this delay each way.
fn far_client(rig: &Rig, name: &str, each_way: Duration) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (at, server) = (listener.local_addr().expect("its address"), rig.at);
    std::thread::spawn(move || delay::serve(listener, server, each_way));
    rig.table.invites.lock().expect("invites").push((name.into(), Grant::default()));
    let client = rig.connect(at, seed(name), Some(INVITATION)).expect("connected");
    rig.keeps(&client);
    client
}

/// Waits until more than this was read ahead and used: on a busy machine little comes between what
/// is changed, or cut.
fn reads_ahead(rig: &Rig, clients: &[&Client], bytes: u64) {
    let used = || clients.iter().map(|client| client.read_ahead_figures().1).sum::<u64>();
    for _ in 0..600 {
        if used() > bytes {
            return;
        }
        rig.env.sleep(Duration::from_millis(100));
    }
    panic!("little was read ahead: {} bytes", used());
}

fn counted(rig: &Rig) -> (Client, Proxy) {
    let proxy = Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    rig.table.invites.lock().expect("invites").push(("counted".into(), Grant::default()));
    let client = rig.connect(proxy.at, seed("counted"), Some(INVITATION)).expect("connected");
    rig.keeps(&client);
    (client, proxy)
}

#[test]
fn a_stream_over_a_delay_is_no_round_trip_for_each_read() {
    const SIZE: u64 = 48 * MIB + 12_345;
    let rig = Rig::new();
    let node = fill(&rig, b"file", SIZE);
    // long enough that a busy machine does not count
    let client = far_client(&rig, "a", Duration::from_millis(25));
    lookup(&client, ROOT, b"file").expect("found");
    let begun = Instant::now();
    stream(&client, node, SIZE);
    let round_trips = Duration::from_millis(50) * (SIZE / u64::from(PIECE)) as u32;
    let took = begun.elapsed();
    println!("{took:?}; {round_trips:?} of round trips");
    assert!(took < round_trips / 2, "{took:?}; {round_trips:?} of round trips");
    let (bytes, hits) = client.read_ahead_figures();
    assert!(hits > SIZE * 3 / 4 && bytes < MIB, "{hits} bytes hit, {bytes} left");
}

#[test]
fn two_programs_that_read_one_file_in_turn_are_both_read_ahead() {
    const SIZE: u64 = 32 * MIB;
    let rig = Rig::new();
    let node = fill(&rig, b"file", SIZE);
    let (client, proxy) = counted(&rig);
    lookup(&client, ROOT, b"file").expect("found");
    let before = proxy.passed()[1];
    for n in 0..SIZE / 2 / u64::from(PIECE) {
        for from in [0, SIZE / 2] {
            let at = from + n * u64::from(PIECE);
            check(&read_at(&client, node, at, PIECE), at, node);
        }
    }
    let (_, hits) = client.read_ahead_figures();
    assert!(hits > SIZE * 3 / 4, "{hits} bytes hit");
    let passed = (proxy.passed()[1] - before) as u64;
    assert!(passed < SIZE * 5 / 4, "{passed} bytes for {SIZE}");
}

#[test]
fn random_reads_are_not_read_ahead() {
    const SIZE: u64 = 64 * MIB;
    let rig = Rig::new();
    let node = fill(&rig, b"file", SIZE);
    let (client, proxy) = counted(&rig);
    lookup(&client, ROOT, b"file").expect("found");
    let before = proxy.passed()[1];
    let mut random = 1u64;
    for _ in 0..1500 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (random >> 33) % (SIZE / 4096) * 4096;
        check(&read_at(&client, node, at, 4096), at, node);
    }
    let passed = proxy.passed()[1] - before;
    assert!(passed < 2 * 1500 * 4096, "{passed} bytes for {}", 1500 * 4096);
}

#[test]
fn a_small_file_is_one_call() {
    let rig = Rig::new();
    let node = fill(&rig, b"file", 200_000);
    let (client, proxy) = counted(&rig);
    lookup(&client, ROOT, b"file").expect("found");
    let (before, begun) = (proxy.passed()[0], Instant::now());
    for at in (0..200_000).step_by(32 << 10) {
        check(&read_at(&client, node, at, 32 << 10), at, node);
    }
    let sent = proxy.passed()[0] - before;
    // and keepalives
    let most = 300 + 100 * begun.elapsed().as_secs() as usize;
    assert!(sent < most, "{sent} bytes were sent");
}

#[test]
fn what_is_read_ahead_is_bounded_and_given_back() {
    const SIZE: u64 = 24 * MIB;
    let rig = Rig::new();
    let nodes: Vec<NodeId> = (0..8).map(|n| fill(&rig, format!("file {n}").as_bytes(), SIZE)).collect();
    let client = far_client(&rig, "a", Duration::from_millis(5));
    (0..8).for_each(|n| _ = lookup(&client, ROOT, format!("file {n}").as_bytes()).expect("found"));
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for node in &nodes {
            let (client, most) = (&client, &most);
            scope.spawn(move || {
                // not to the end: some of what was read ahead is left
                for at in (0..SIZE / 2).step_by(PIECE as usize) {
                    check(&read_at(client, *node, at, PIECE), at, *node);
                    most.fetch_max(client.read_ahead_figures().0, Ordering::Relaxed);
                }
            });
        }
    });
    let most = most.into_inner();
    assert!(most <= 48 * MIB, "{most} bytes");
    for _ in 0..100 {
        if client.read_ahead_figures().0 == 0 {
            return;
        }
        rig.env.sleep(Duration::from_millis(100));
    }
    panic!("{:?} is left", client.read_ahead_figures());
}

/// Two clients write, also by truncation, while others read in order: whoever begins to read after
/// a write was answered, or after another has read it, sees it.
#[test]
fn content_never_goes_back_whoever_reads() {
    const SIZE: u64 = 1280 << 10;
    let rig = Rig::new();
    let node = fill(&rig, b"file", SIZE);
    let writers = [rig.host("a", Grant::default()), far_client(&rig, "bb", Duration::from_millis(1))];
    let reader = rig.host("ccc", Grant::default());
    let clients = [&writers[0], &writers[1], &reader];
    clients.iter().for_each(|client| _ = lookup(client, ROOT, b"file").expect("found"));
    let write = |client: &Client, value: u8| {
        if value.is_multiple_of(5) {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            client.call(&user(0), Op::SetAttr { node, set }).expect("cut");
        }
        for offset in (0..SIZE).step_by(1 << 18) {
            client.call(&user(0), Op::Write { node, offset, data: &vec![value; 1 << 18] }).expect("written");
        }
    };
    write(&writers[0], 1);
    let (seen, ended) = (AtomicU64::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _over = Over(&ended);
        for client in clients {
            let (seen, ended) = (&seen, &ended);
            scope.spawn(move || {
                let mut at = 0;
                while !ended.load(Ordering::Acquire) {
                    let _ = client.call(&user(0), Op::GetAttr { node });
                    let before = seen.load(Ordering::Acquire);
                    let data = read_at(client, node, at, 32 << 10);
                    let oldest = data.iter().copied().min().map_or(before, u64::from);
                    assert!(oldest >= before, "{oldest} was read at {at} after all was {before}");
                    at = if data.is_empty() { 0 } else { (at + data.len() as u64) % SIZE };
                }
            });
        }
        for value in 2..120u8 {
            write(&writers[usize::from(value) % 2], value);
            seen.fetch_max(u64::from(value), Ordering::AcqRel);
            // time to read some of it
            rig.env.sleep(Duration::from_millis(u64::from(value) % 16));
        }
        reads_ahead(&rig, &clients, SIZE);
    });
}

/// A read that waits for a call which fails, or whose answer a recall overtakes, is asked for
/// again.
#[test]
fn reads_that_wait_are_answered_whatever_becomes_of_the_call() {
    const SIZE: u64 = 8 * MIB;
    let rig = Rig::new();
    let node = fill(&rig, b"file", SIZE);
    let proxy = Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    rig.table.invites.lock().expect("invites").push(("a".into(), Grant::default()));
    let client = rig.connect(proxy.at, seed("a"), Some(INVITATION)).expect("connected");
    lookup(&client, ROOT, b"file").expect("found");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&ended);
        for _ in 0..3 {
            scope.spawn(|| {
                while !ended.load(Ordering::Acquire) {
                    let _ = client.call(&user(0), Op::GetAttr { node });
                    stream(&client, node, SIZE);
                }
            });
        }
        for n in 0..20 {
            rig.env.sleep(Duration::from_millis(100));
            match n % 2 {
                0 => proxy.cut(),
                _ => {
                    // the same bytes: they are recalled all the same
                    let data: Vec<u8> = (0..4096).map(|at| byte_at(at, node.inode())).collect();
                    let here = leeward_env::Ctx::user(0, 0);
                    rig.gate.call(&here, Op::Write { node, offset: 0, data: &data }).expect("written");
                }
            }
        }
        reads_ahead(&rig, &[&client], SIZE);
    });
}
