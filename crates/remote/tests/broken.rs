//! Connections that break at any byte, are slow or silent, and servers that end: each operation is
//! done once, and the server holds for a client what the client holds.

use crate::rig;
use crate::rig::fake::Fake;
use crate::rig::proxy::{Fate, Proxy, WHOLE};
use crate::rig::{Random, Rig, lookup, make, read, user, write};
use leeward_env::Env;
use leeward_fs::{Error, Make, NodeId, Op, Precondition, RenameMode, Reply};
use leeward_remote::message::{Standing, ToClient};
use leeward_remote::{Client, Grant};
use leeward_vfs::Backend;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const ROOT: NodeId = NodeId::ROOT;
/// No test takes longer.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Runs each on a thread of its own, and waits for all: none may hang or panic.
fn all_end(env: &Env, jobs: Vec<Box<dyn FnOnce() + Send>>) {
    let ends = begin(env, jobs);
    wait_for(&ends);
}

/// Of threads that run these: each sends when it has ended.
fn begin(env: &Env, jobs: Vec<Box<dyn FnOnce() + Send>>) -> Receiver<std::thread::Result<()>> {
    let (send, ends) = channel();
    for job in jobs {
        let send = send.clone();
        let run = move || drop(send.send(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job))));
        env.try_spawn("worker", run).expect("a thread");
    }
    ends
}

fn wait_for(ends: &Receiver<std::thread::Result<()>>) {
    loop {
        match ends.recv_timeout(WATCHDOG) {
            Ok(ended) => ended.expect("no panic"),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("something hangs"),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// How a client of another thread connects.
#[derive(Clone)]
struct Way {
    env: Env,
    at: SocketAddr,
    seed: u8,
}

impl Way {
    fn client(&self) -> Client {
        rig::client_at_last(&self.env, self.at, self.seed)
    }
}

/// Makes, links, renames, lists and removes. Each must have been done once.
fn short_exchange(client: &Client, name: &str) {
    let (name, other) = (name.as_bytes(), format!("{name} again"));
    let call = |op: Op<'_>| client.call(&user(0), op);
    let dir = call(Op::Make { dir: ROOT, name, make: Make::Dir, mode: 0o755, umask: 0 });
    let dir = dir.and_then(Reply::attr).expect("made").node;
    let node = make(client, dir, name).expect("made").node;
    assert!(call(Op::Link { node, dir, name: other.as_bytes() }).is_ok());
    let (from_name, to_name, mode) = (other.as_bytes(), &b"moved"[..], RenameMode::NoReplace);
    assert_eq!(call(Op::Rename { from_dir: dir, from_name, to_dir: dir, to_name, mode }), Ok(Reply::Done));
    let listed = call(Op::List { dir, after: b"", limit: 10, attrs: true }).and_then(Reply::entries);
    let with_attributes = listed.expect("listed").iter().filter(|entry| entry.node == node).count();
    let unlink = |name| call(Op::Unlink { dir, name, over: Precondition::Any });
    assert_eq!(unlink(name), Ok(Reply::Removed { node, nlink: 1 }));
    assert_eq!(unlink(b"moved"), Ok(Reply::Removed { node, nlink: 0 }));
    assert!(call(Op::GetAttr { node }).is_ok(), "the client has references to it");
    // a directory, the directory of snapshots in it, and the file as often as it was told of
    client.forget(user(0), dir, 1);
    client.forget(user(0), node, 2 + with_attributes as u64);
    listed_snapshots(client, dir);
    // what comes last is waited for, so that the session ends over a connection that is whole
    assert!(call(Op::GetAttr { node: ROOT }).is_ok());
}

/// Returns the reference to the directory of snapshots, which a list has told of.
fn listed_snapshots(client: &Client, dir: NodeId) {
    if let Ok(found) = lookup(client, dir, b".snap") {
        client.forget(user(0), found.node, 2);
    }
}

/// The inodes that the host's sessions hold, when that has settled.
fn held_by(rig: &Rig, host: &str, expected: u64) -> u64 {
    let held = || rig.server().sessions().iter().filter(|s| s.host == host).map(|s| s.inodes).sum();
    for _ in 0..400 {
        if held() == expected {
            break;
        }
        rig.env.sleep(Duration::from_millis(5));
    }
    held()
}

#[test]
fn a_connection_that_is_cut_at_any_byte_loses_and_repeats_nothing() {
    const WORKERS: usize = 24;
    let rig = Arc::new(Rig::new());
    rig.know(1, "measured", Grant::default());
    let proxy = Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    let client = Way { env: rig.env.clone(), at: proxy.at, seed: 1 }.client();
    let before = proxy.passed();
    short_exchange(&client, "measured");
    assert_eq!(held_by(&rig, "measured", 0), 0);
    let all = proxy.passed();
    client.close();
    let cuts: Vec<(usize, usize)> = (0..2)
        // bytes of the handshake are all alike
        .flat_map(|way| {
            (0..all[way]).filter(move |at| *at >= before[way] || at % 32 == 0).map(move |at| (way, at))
        })
        .collect();
    let next = Arc::new(AtomicUsize::new(0));
    let jobs = (0..WORKERS).map(|worker| -> Box<dyn FnOnce() + Send> {
        let (rig, cuts, next) = (rig.clone(), cuts.clone(), next.clone());
        let (seed, host) = (10 + worker as u8, format!("cutter{worker:02}"));
        rig.know(seed, &host, Grant::default());
        Box::new(move || {
            while let Some((way, at)) = cuts.get(next.fetch_add(1, Ordering::Relaxed)) {
                cut_once(&rig, (seed, &host), *way, *at);
            }
        })
    });
    all_end(&rig.env, jobs.collect());
    rig.settles(0, 0);
}

/// Does the short exchange over a connection that is cut, and what comes after it.
fn cut_once(rig: &Rig, (seed, host): (u8, &str), way: usize, at: usize) {
    let cut = Fate { bytes: at, ..WHOLE };
    let first = if way == 0 { (cut, WHOLE) } else { (WHOLE, cut) };
    let proxy =
        Proxy::start(&rig.env, rig.at, move |number| if number == 0 { first } else { (WHOLE, WHOLE) });
    let client = Way { env: rig.env.clone(), at: proxy.at, seed }.client();
    short_exchange(&client, &format!("{way} {at:06}"));
    // how many bytes it takes depends on what is sent together: the cut is not to hit the end of
    // the session
    while proxy.passed()[way] <= at {
        client.call(&user(0), Op::StatFs { node: ROOT }).expect("figures");
    }
    // nor is it to end while there is no connection; of the root's figures it has those that it was
    // told last
    let name = b"user.nothing";
    assert_eq!(client.call(&user(0), Op::GetXattr { node: ROOT, name }), Err(Error::NoData));
    assert_eq!(held_by(rig, host, 0), 0, "cut after {at} bytes, direction {way}");
    leaves(rig, client, host);
}

/// Ends a session, and waits until the server knows that.
fn leaves(rig: &Rig, client: Client, host: &str) {
    client.close();
    for _ in 0..1000 {
        if rig.server().sessions().iter().all(|session| session.host != host) {
            return;
        }
        rig.env.sleep(Duration::from_millis(5));
    }
    let left: Vec<_> = rig.server().sessions().into_iter().filter(|session| session.host == host).collect();
    panic!("the sessions of {host} stay: {left:?}");
}

#[test]
fn a_client_that_is_closed_answers_all_that_waits_whatever_it_does() {
    let rig = Rig::new();
    rig.know(1, "closed", Grant::default());
    // of the connections after the first: silent at once, in the handshake, after it, and cut at
    // once
    let fates = [(0, false), (200, false), (600, false), (0, true)];
    for (bytes, cut) in fates {
        for wait in [0, 20, 80] {
            closes(&rig, Fate { bytes, cut, ..WHOLE }, Duration::from_millis(wait));
        }
    }
    rig.settles(0, usize::MAX);
}

fn closes(rig: &Rig, fate: Fate, wait: Duration) {
    let first = Fate { bytes: 1500, ..WHOLE };
    let proxy = Proxy::start(&rig.env, rig.at, move |number| (WHOLE, if number == 0 { first } else { fate }));
    let client = Way { env: rig.env.clone(), at: proxy.at, seed: 1 }.client();
    let (send, answers) = channel();
    for _ in 0..30 {
        let send = send.clone();
        client.run(user(0), Op::GetAttr { node: ROOT }, move |result| drop(send.send(result)));
    }
    drop(send);
    rig.env.sleep(wait);
    client.close();
    let answers: Vec<_> = answers.iter().collect();
    assert_eq!(answers.len(), 30, "{fate:?}");
    assert!(client.call(&user(0), Op::GetAttr { node: ROOT }).is_err());
    client.close();
}

/// A client whose requests wait no longer for a server that is away.
fn limited(env: &Env, at: SocketAddr, timeout: Duration) -> Client {
    let keys = leeward_remote::Keys::from_seed(&[1; 32]).expect("keys");
    let options = leeward_remote::ClientOptions {
        server: at.to_string(),
        key: rig::server_keys().public(),
        invitation: None,
        timeout: Some(timeout),
        cache: None,
        died: None,
    };
    Client::connect(env, &keys, &options).expect("connected")
}

/// What a request comes to that waits no longer, where the server does this, which is told when it
/// is answered.
fn limited_with(
    timeout: Duration,
    server: impl FnOnce(&Fake, &AtomicBool) + Send + 'static,
) -> leeward_fs::Result<Reply> {
    let (env, fake) = (Env::real(), Fake::new());
    let (at, clock, (send, answer)) = (fake.at(), env.clone(), channel());
    let answered = Arc::new(AtomicBool::new(false));
    let is_answered = answered.clone();
    let asking = move || {
        let client = limited(&clock, at, timeout);
        let _ = send.send(client.call(&user(0), Op::GetAttr { node: NodeId(9) }));
        answered.store(true, Ordering::Release);
        client.close();
    };
    let serving = move || server(&fake, &is_answered);
    all_end(&env, vec![Box::new(asking), Box::new(serving)]);
    answer.recv().expect("an answer")
}

/// A request that the server has been at for long when it goes away, which is back soon.
#[test]
fn a_time_limit_counts_from_when_the_server_went_away() {
    const LIMIT: Duration = Duration::from_secs(5);
    let answer = limited_with(LIMIT, |fake, answered| {
        let mut peer = fake.welcome(Standing::New, 1);
        peer.begin();
        let slot = peer.operation();
        // it says each second that it is there
        peer.pings(LIMIT.as_secs() as usize + 2);
        drop(peer);
        fake.hang_up();
        let mut peer = fake.welcome(Standing::Resumed, 1);
        peer.say(&ToClient::Ready);
        assert_eq!(peer.operation(), slot);
        peer.answer(slot, Err(Error::Stale), None);
        // who hangs up takes back what was not read
        while !answered.load(Ordering::Acquire) {
            Env::real().sleep(Duration::from_millis(5));
        }
    });
    assert_eq!(answer, Err(Error::Stale));
}

#[test]
fn with_a_time_limit_requests_fail_while_the_server_is_away_and_work_again_after_it() {
    let mut rig = Rig::new();
    rig.know(1, "limited", Grant::default());
    let client = limited(&rig.env, rig.at, Duration::from_millis(500));
    rig.server = None;
    let begun = rig.env.now();
    // not the root's attributes, which are kept for those who unmount
    let list = Op::List { dir: ROOT, after: b"", limit: 1, attrs: false };
    let answer = client.call(&user(0), list);
    assert!(matches!(answer, Err(Error::Io(_))), "{answer:?}");
    let took = Duration::from_nanos(rig.env.now() - begun);
    assert!((Duration::from_millis(400)..Duration::from_secs(5)).contains(&took), "{took:?}");
    rig.start_again();
    for _ in 0..1000 {
        if client.call(&user(0), list).is_ok() {
            return client.close();
        }
        rig.env.sleep(Duration::from_millis(5));
    }
    panic!("the server is back, and the client does not see it: {:?}", client.away());
}

/// What must be there, of a directory that one client changes.
struct Model {
    client: Client,
    random: Random,
    dir: NodeId,
    names: BTreeMap<String, NodeId>,
    contents: BTreeMap<NodeId, Vec<u8>>,
    references: BTreeMap<NodeId, u64>,
    made: usize,
    /// The server ends without order: operations that cannot be repeated may fail, and fsync may
    /// say that changes are lost.
    crashes: bool,
    unknown: usize,
}

impl Model {
    fn new(client: Client, seed: u64, crashes: bool) -> Model {
        let name = seed.to_string();
        let op = Op::Make { dir: ROOT, name: name.as_bytes(), make: Make::Dir, mode: 0o755, umask: 0 };
        let dir = client.call(&user(0), op).and_then(Reply::attr).expect("made").node;
        Model {
            client,
            random: Random(seed),
            dir,
            names: BTreeMap::new(),
            contents: BTreeMap::new(),
            references: BTreeMap::from([(dir, 1)]),
            made: 0,
            crashes,
            unknown: 0,
        }
    }

    fn call(&self, op: Op<'_>) -> leeward_fs::Result<Reply> {
        self.client.call(&user(0), op)
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("file {}", self.made)
    }

    fn any(&mut self) -> Option<(String, NodeId)> {
        let at = self.random.below(self.names.len().max(1));
        self.names.iter().nth(at).map(|(name, node)| (name.clone(), *node))
    }

    fn told_of(&mut self, node: NodeId) {
        *self.references.entry(node).or_default() += 1;
    }

    /// The result of an operation that may not be repeated; `None`: the outcome is unknown.
    fn known<T>(&mut self, result: leeward_fs::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(Error::Io(why)) if self.crashes && why.contains("is not known") => {
                self.unknown += 1;
                None
            }
            Err(e) => panic!("{e}"),
        }
    }

    /// What a name is now, after an operation whose outcome is unknown.
    fn look(&mut self, name: &str) {
        match lookup(&self.client, self.dir, name.as_bytes()) {
            Ok(attr) => {
                self.told_of(attr.node);
                self.names.insert(name.into(), attr.node);
                self.contents.entry(attr.node).or_default();
            }
            Err(Error::NotFound) => drop(self.names.remove(name)),
            Err(e) => panic!("{e}"),
        }
    }

    fn step(&mut self) {
        let choice = self.random.below(20);
        let Some((name, node)) = self.any() else { return self.make() };
        match choice {
            0..3 => self.make(),
            3 => match make(&self.client, self.dir, name.as_bytes()) {
                Err(Error::Exists) => (),
                other => assert!(self.known(other).is_none()),
            },
            4..7 => self.write(node),
            7..9 => assert_eq!(read(&self.client, node).as_ref(), Ok(&self.contents[&node])),
            9 => self.unlink(&name),
            10 => self.link(node),
            11..13 => self.rename(&name),
            13..15 => self.look_up(&name, node),
            15 => self.list(),
            16..18 => self.sync(node),
            _ => self.forget(node),
        }
    }

    fn make(&mut self) {
        let name = self.new_name();
        let made = make(&self.client, self.dir, name.as_bytes());
        match self.known(made) {
            Some(attr) => {
                self.told_of(attr.node);
                self.names.insert(name, attr.node);
                self.contents.insert(attr.node, Vec::new());
            }
            None => self.look(&name),
        }
    }

    fn write(&mut self, node: NodeId) {
        let len = if self.random.below(10) == 0 { 300_000 } else { 100 };
        let data: Vec<u8> = (0..1 + self.random.below(len)).map(|at| (at + self.made) as u8).collect();
        assert_eq!(write(&self.client, node, &data), Ok(data.len() as u64));
        let content = self.contents.get_mut(&node).expect("a file");
        let kept = content.split_off(data.len().min(content.len()));
        *content = [data, kept].concat();
    }

    fn unlink(&mut self, name: &str) {
        let op = Op::Unlink { dir: self.dir, name: name.as_bytes(), over: Precondition::Any };
        let result = self.call(op);
        match self.known(result) {
            Some(_) => drop(self.names.remove(name)),
            None => self.look(name),
        }
    }

    fn link(&mut self, node: NodeId) {
        let name = self.new_name();
        let result = self.call(Op::Link { node, dir: self.dir, name: name.as_bytes() });
        match self.known(result) {
            Some(_) => {
                self.told_of(node);
                self.names.insert(name, node);
            }
            None => self.look(&name),
        }
    }

    fn rename(&mut self, from: &str) {
        let over = self.any().filter(|_| self.random.below(3) == 0).map(|(name, _)| name);
        let to = over.unwrap_or_else(|| self.new_name());
        let (from_name, to_name, mode) = (from.as_bytes(), to.as_bytes(), RenameMode::Replace);
        let result = self.call(Op::Rename { from_dir: self.dir, from_name, to_dir: self.dir, to_name, mode });
        if self.known(result).is_none() {
            self.look(from);
            return self.look(&to);
        }
        // two names of one inode stay as they are
        if self.names.get(from) != self.names.get(&to) {
            let node = self.names.remove(from).expect("a name");
            self.names.insert(to, node);
        }
    }

    fn look_up(&mut self, name: &str, node: NodeId) {
        assert_eq!(lookup(&self.client, self.dir, name.as_bytes()).map(|attr| attr.node), Ok(node));
        self.told_of(node);
        assert_eq!(lookup(&self.client, self.dir, b"no such name"), Err(Error::NotFound));
    }

    fn list(&mut self) {
        let (dir, after, limit, attrs) = (self.dir, &b""[..], 1000, true);
        let listed =
            self.call(Op::List { dir, after, limit, attrs }).and_then(Reply::entries).expect("listed");
        let mut names = BTreeMap::new();
        for entry in listed {
            entry.attr.iter().for_each(|attr| self.told_of(attr.node));
            if *entry.name != *b".snap" {
                names.insert(String::from_utf8_lossy(&entry.name).into_owned(), entry.node);
            }
        }
        assert_eq!(names, self.names);
    }

    fn sync(&mut self, node: NodeId) {
        match self.call(Op::Fsync { node }) {
            Ok(_) => (),
            Err(Error::Io(why)) if self.crashes && why.contains("may be lost") => (),
            Err(e) => panic!("{e}"),
        }
    }

    /// Returns all references to an inode but one.
    fn forget(&mut self, node: NodeId) {
        if let Some(count) = self.references.get_mut(&node).filter(|count| **count > 1) {
            self.client.forget(user(0), node, *count - 1);
            *count = 1;
        }
    }

    fn check(&mut self) {
        self.list();
        for (_, node) in self.names.clone() {
            assert_eq!(read(&self.client, node).as_ref(), Ok(&self.contents[&node]));
        }
    }
}

#[test]
fn over_a_network_that_cuts_and_delays_each_operation_is_done_once() {
    let rig = Arc::new(Rig::new());
    let seed = seed();
    let jobs = (0..6u8).map(|worker| -> Box<dyn FnOnce() + Send> {
        let (rig, host) = (rig.clone(), format!("worker {worker}"));
        rig.know(50 + worker, &host, Grant::default());
        Box::new(move || random_over_cuts(&rig, (50 + worker, &host), seed + u64::from(worker)))
    });
    all_end(&rig.env, jobs.collect());
    rig.settles(0, 0);
}

fn random_over_cuts(rig: &Rig, (key, host): (u8, &str), seed: u64) {
    let until = rig.env.now() + 6_000_000_000;
    let is_whole = Arc::new(AtomicBool::new(false));
    let breaks = is_whole.clone();
    let proxy =
        Proxy::start(&rig.env, rig.at, move |number| fates(seed, number, !breaks.load(Ordering::Relaxed)));
    let client = Way { env: rig.env.clone(), at: proxy.at, seed: key }.client();
    let mut model = Model::new(client, seed, false);
    let mut steps = 0;
    // longer on a machine that has other things to do
    while rig.env.now() < until || steps < 50 || proxy.connections() < 5 {
        model.step();
        steps += 1;
    }
    is_whole.store(true, Ordering::Relaxed);
    model.check();
    println!("seed {seed}: {steps} steps, {} connections", proxy.connections());
    let held = model.references.len() as u64;
    assert_eq!(held_by(rig, host, held), held, "seed {seed}");
    for (node, count) in &model.references {
        model.client.forget(user(0), *node, *count - 1);
    }
    assert_eq!(model.call(Op::SyncAll), Ok(Reply::Done));
    rig.env.sleep(Duration::from_millis(100));
    assert_eq!(held_by(rig, host, held), held, "seed {seed}: one reference of each is left");
    let all: Vec<(NodeId, u64)> = model.references.keys().map(|node| (*node, 1)).collect();
    model.client.forget_all(user(0), &all);
    assert_eq!(held_by(rig, host, 0), 0, "seed {seed}");
    leaves(rig, model.client, host);
}

/// Of most connections one direction ends after some bytes; some are slow, or silent from then on.
fn fates(seed: u64, number: usize, broken: bool) -> (Fate, Fate) {
    let mut random = Random(seed ^ (number as u64) << 20);
    random.below(2);
    let most = [2000, 20_000, 400_000][random.below(3)];
    let bytes = 1000 + random.below(most);
    let cut = random.below(30) > 0;
    let delay = Duration::from_millis(if random.below(8) == 0 { 3 } else { 0 });
    let fate = Fate { bytes, cut, delay };
    match random.below(2) {
        _ if !broken => (WHOLE, WHOLE),
        0 => (fate, WHOLE),
        _ => (WHOLE, fate),
    }
}

fn seed() -> u64 {
    let seed = std::env::var("REMOTE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("REMOTE_SEED={seed}");
    seed
}

#[test]
fn after_an_ordered_end_of_the_server_nothing_is_unknown_or_lost() {
    restarts(true);
}

#[test]
fn after_a_crash_of_the_server_only_what_cannot_be_repeated_is_unknown() {
    restarts(false);
}

fn restarts(in_order: bool) {
    let mut rig = Rig::new();
    let (seed, done) = (seed(), Arc::new(AtomicBool::new(false)));
    let jobs = (0..4u8).map(|worker| -> Box<dyn FnOnce() + Send> {
        rig.know(80 + worker, &format!("worker {worker}"), Grant::default());
        let way = Way { env: rig.env.clone(), at: rig.at, seed: 80 + worker };
        let done = done.clone();
        Box::new(move || {
            let mut model = Model::new(way.client(), seed + u64::from(worker), !in_order);
            while !done.load(Ordering::Relaxed) {
                model.step();
            }
            model.check();
            println!("seed {seed}: {} made, {} unknown", model.made, model.unknown);
            model.client.close();
        })
    });
    let ends = begin(&rig.env, jobs.collect());
    for _ in 0..6 {
        rig.env.sleep(Duration::from_millis(400));
        rig.restart(in_order);
    }
    rig.env.sleep(Duration::from_millis(300));
    done.store(true, Ordering::Relaxed);
    wait_for(&ends);
    rig.settles(0, 0);
}
