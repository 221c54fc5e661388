//! A cell that is served to clients in this process, and hosts that may do what a test says.
#![allow(dead_code, unreachable_pub)] // each test uses a part

#[path = "../../../../bench/delay.rs"]
#[allow(clippy::disallowed_methods)]
pub mod delay;
pub mod fake;
pub mod held;
pub mod judge;
pub mod latch;
pub mod proxy;
pub mod raw;

use latch::Latch;
use leeward_env::{Ctx, Env, Wait};
use leeward_fs::sessions::Sessions;
use leeward_fs::{Attr, Make, NodeId, Op, Result};
use leeward_remote::message::LoginAnswer;
use leeward_remote::{
    Asker, CacheOptions, CellUser, Client, ClientOptions, Given, Grant, Hosts, Keys, PublicKey, Server,
    Unreachable,
};
use leeward_vfs::{Backend, Gate, GateOptions};
use leeward_volume::{Cell, Config};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// The secret of the token that the rig invites hosts with.
pub const INVITATION: [u8; 16] = [7; 16];

/// Hosts by key.
#[derive(Default)]
pub struct Table {
    pub hosts: Mutex<BTreeMap<PublicKey, (String, Grant)>>,
    pub invites: Mutex<Vec<(String, Grant)>>,
    /// What gateways are told.
    pub told: Mutex<(u64, Vec<u8>)>,
    /// Users by their tokens. One that begins with `slow` takes a while, one that begins with
    /// `held` waits at the latch; of others nothing can be said while [`Table::is_silent`].
    pub tokens: Mutex<BTreeMap<String, CellUser>>,
    pub is_silent: AtomicBool,
    /// The command `wait` waits there, too.
    pub latch: Latch,
}

impl Hosts for Table {
    fn host_of(&self, key: &PublicKey) -> Option<(String, Grant)> {
        self.hosts.lock().expect("the hosts").get(key).cloned()
    }

    fn enrol(&self, secret: &[u8; 16], key: PublicKey) -> std::result::Result<(), String> {
        let invited = self.invites.lock().expect("the invitations").pop();
        match invited.filter(|_| *secret == INVITATION) {
            Some(host) => {
                self.hosts.lock().expect("the hosts").insert(key, host);
                Ok(())
            }
            None => Err("no such invitation".into()),
        }
    }

    fn access(&self) -> (u64, Arc<[u8]>) {
        let told = self.told.lock().expect("what is told");
        (told.0, told.1.as_slice().into())
    }

    fn login(&self, _: &str, token: &str, wait: Wait) -> LoginAnswer {
        if token.starts_with("slow") && wait == Wait::Allowed {
            Env::real().sleep(Duration::from_millis(300));
        }
        if token.starts_with("held") && wait == Wait::Allowed {
            self.latch.pass();
        }
        if self.is_silent.load(Ordering::SeqCst) {
            return LoginAnswer::Later("ask again".into());
        }
        let user = self.tokens.lock().expect("the tokens").get(token).cloned();
        user.map_or(LoginAnswer::Refused("no such token".into()), LoginAnswer::In)
    }

    fn are_any(&self) -> bool {
        !self.hosts.lock().expect("the hosts").is_empty()
    }

    /// Says as many bytes as the text names, in pieces; `wait`: first it waits at the latch.
    fn command(&self, asker: &Asker, text: &[u8], given: &Arc<Given>, tell: &mut dyn FnMut(&[u8]) -> bool) {
        let text = String::from_utf8_lossy(text);
        if text == "who" {
            tell(format!("{} {} {:?}", asker.host, asker.ctx.uid, asker.ctx.gids.all()).as_bytes());
            return;
        }
        if text == "echo" {
            return echo(given, tell);
        }
        if text == "wait" {
            self.latch.pass();
        }
        let bytes: Vec<u8> = (0..text.parse().unwrap_or(0usize)).map(|n| (n % 251) as u8).collect();
        for piece in bytes.chunks(100_000) {
            if !tell(piece) {
                tell(b"too long");
                return;
            }
        }
    }
}

/// Says how many bytes were given, and their sum; a 255 says that no more is wanted.
fn echo(given: &Given, tell: &mut dyn FnMut(&[u8]) -> bool) {
    let (mut bytes, mut sum) = (0u64, 0u64);
    loop {
        match given.next() {
            Ok(Some(piece)) if piece.contains(&255) => break,
            Ok(Some(piece)) => {
                bytes += piece.len() as u64;
                sum = piece.iter().fold(sum, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
            }
            Ok(None) => break,
            Err(e) => {
                tell(format!("broken: {e}").as_bytes());
                return;
            }
        }
    }
    tell(format!("{bytes} {sum}").as_bytes());
}

pub struct Rig {
    pub env: Env,
    pub dir: TempDir,
    pub table: Arc<Table>,
    pub cell: Arc<Cell>,
    pub gate: Gate,
    pub server: Option<Server>,
    pub at: SocketAddr,
}

/// A server after whose death another one has begun.
pub struct Dead {
    server: Option<Server>,
    cell: Arc<Cell>,
    _dir: TempDir,
}

impl Drop for Dead {
    fn drop(&mut self) {
        self.server = None;
        let _ = self.cell.close();
    }
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with_sessions(|cell| cell.clone())
    }

    /// The same, where this keeps sessions.
    pub fn with_sessions(keeping: impl FnOnce(&Arc<Cell>) -> Arc<dyn Sessions>) -> Rig {
        Rig::at_address(Ipv4Addr::LOCALHOST.into(), keeping)
    }

    /// A server at a port of this address.
    pub fn at_address(at: IpAddr, keeping: impl FnOnce(&Arc<Cell>) -> Arc<dyn Sessions>) -> Rig {
        let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
        Cell::create(&env, dir.path(), &Config::default()).expect("made");
        let (cell, gate) = open(&env, &dir);
        let table = Arc::new(Table::default());
        let listener = listen(&env, at);
        let at = listener.local_addr().expect("its address");
        let server = start_with(&env, (&cell, &gate), keeping(&cell), &table, listener);
        Rig { env, dir, table, cell, gate, server: Some(server), at }
    }

    /// Ends the server, in order or by hanging up, and starts another with the same cell.
    pub fn restart(&mut self, in_order: bool) {
        let server = self.server.take().expect("a server");
        server.stop();
        if in_order {
            self.cell.close().expect("closed");
        }
        server.hang_up(in_order);
        drop(server);
        self.cell.close().expect("closed");
        (self.cell, self.gate) = open(&self.env, &self.dir);
        self.start_again();
    }

    /// The same in order, with something done to the directory of the cell in between.
    pub fn restart_after(&mut self, work: impl FnOnce(&std::path::Path)) {
        let server = self.server.take().expect("a server");
        server.stop();
        self.cell.close().expect("closed");
        server.hang_up(true);
        drop(server);
        // held by all who have the cell
        let nothing = tempfile::tempdir().expect("a directory");
        Cell::create(&self.env, nothing.path(), &Config::default()).expect("made");
        (self.cell, self.gate) = open(&self.env, &nothing);
        work(self.dir.path());
        self.cell.close().expect("closed");
        (self.cell, self.gate) = open(&self.env, &self.dir);
        self.start_again();
    }

    /// Kills the server, and starts another with the cell as it is on disk now. `then`: in between.
    pub fn crash(&mut self, then: impl FnOnce()) {
        let left = copy_of(self.dir.path());
        let server = self.server.take().expect("a server");
        server.stop();
        server.hang_up(false);
        drop(server);
        self.cell.close().expect("closed");
        self.dir = left;
        (self.cell, self.gate) = open(&self.env, &self.dir);
        then();
        self.start_again();
    }

    /// Another server starts with the cell as it is on disk now, where another port is; the one
    /// before does not know. Whoever was connected must not hear of it any more, and `lead_on`
    /// leads them to the other one.
    pub fn die(&mut self, lead_on: impl FnOnce(SocketAddr)) -> Dead {
        let left = copy_of(self.dir.path());
        let server = self.server.take();
        let dir = std::mem::replace(&mut self.dir, left);
        let (cell, gate) = open(&self.env, &self.dir);
        let cell = std::mem::replace(&mut self.cell, cell);
        self.gate = gate;
        let listener = listen(&self.env, self.at.ip());
        self.at = listener.local_addr().expect("its address");
        lead_on(self.at);
        self.server = Some(start(&self.env, (&self.cell, &self.gate), &self.table, listener));
        Dead { server, cell, _dir: dir }
    }

    /// Starts a server where the one before has ended.
    pub fn start_again(&mut self) {
        // a client of another process may have it for a moment
        let bind = |_| {
            let bound = TcpListener::bind(self.at);
            self.env.sleep(Duration::from_millis(if bound.is_ok() { 0 } else { 20 }));
            bound.ok()
        };
        let listener = (0..500).find_map(bind).expect("the port again");
        self.server = Some(start(&self.env, (&self.cell, &self.gate), &self.table, listener));
    }

    /// Connects as a host that may do this.
    pub fn host(&self, name: &str, grant: Grant) -> Client {
        self.table.invites.lock().expect("the invitations").push((name.into(), grant));
        self.connect(self.at, seed(name), Some(INVITATION)).expect("connected")
    }

    /// From now on the host with this key may do this.
    pub fn know(&self, seed: u8, name: &str, grant: Grant) {
        let key = raw::keys(seed).public();
        self.table.hosts.lock().expect("the hosts").insert(key, (name.into(), grant));
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("a server")
    }

    /// Operations that a host has asked the server for.
    pub fn asked_by(&self, host: &str) -> u64 {
        let figures = self.server().host_figures();
        figures.iter().find(|of| of.host == host).expect("a host that was here").requests
    }

    /// Waits until a client uses what it keeps: before its first keepalive is answered it asks for
    /// everything.
    pub fn keeps(&self, client: &Client) {
        let host = client.host();
        for _ in 0..3000 {
            let before = self.asked_by(&host);
            client.call(&user(0), Op::GetAttr { node: NodeId::ROOT }).expect("attributes");
            if self.asked_by(&host) == before {
                return;
            }
            self.env.sleep(Duration::from_millis(10));
        }
        panic!("{host} keeps nothing");
    }

    /// Waits until there are no more than so many connections and sessions.
    pub fn settles(&self, connections: usize, sessions: usize) {
        for _ in 0..1000 {
            if self.server().connections() <= connections && self.server().sessions().len() <= sessions {
                return;
            }
            self.env.sleep(Duration::from_millis(5));
        }
        let (connections, sessions) = (self.server().connections(), self.server().sessions());
        panic!("{connections} connections and {} sessions are left", sessions.len());
    }

    pub fn connect(
        &self,
        at: SocketAddr,
        seed: [u8; 32],
        invitation: Option<[u8; 16]>,
    ) -> std::result::Result<Client, Unreachable> {
        client(&self.env, at, seed, invitation)
    }
}

/// What a cell that is at work leaves when its machine dies now: its metadata, and the data that
/// they speak of. Objects that it removes while they are copied are kept: the metadata may still
/// speak of them.
fn copy_of(cell: &std::path::Path) -> TempDir {
    let copy = |left: &TempDir, how: &str, what: &str| {
        let (from, to) = (cell.join(what), left.path().join(what));
        std::process::Command::new("cp")
            .arg(how)
            .args([from, to])
            .stderr(std::process::Stdio::null())
            .status()
            .expect("cp runs")
            .success()
    };
    // again if something was made, replaced or removed meanwhile
    let whole = (0..100).find_map(|_| {
        let (left, before) = (tempfile::tempdir().expect("a directory"), files_below(&cell.join("meta")));
        // those that go under way are no error
        let _ = copy(&left, "-alT", "data");
        let is_copied =
            copy(&left, "-aT", "meta") && copy(&left, "-alfT", "data") && copy(&left, "-aT", "cell");
        (is_copied && files_below(&cell.join("meta")) == before).then_some(left)
    });
    whole.expect("a copy")
}

/// Paths and inodes of what is below a directory.
fn files_below(dir: &std::path::Path) -> BTreeMap<std::path::PathBuf, u64> {
    use std::os::unix::fs::DirEntryExt;
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(files_below(&entry.path()));
        }
        all.insert(entry.path(), entry.ino());
    }
    all
}

/// Numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// What the key of a host of this name is made of.
pub fn seed(name: &str) -> [u8; 32] {
    [name.len() as u8 + name.as_bytes()[0]; 32]
}

pub fn client(
    env: &Env,
    at: SocketAddr,
    seed: [u8; 32],
    invitation: Option<[u8; 16]>,
) -> std::result::Result<Client, Unreachable> {
    caching_client(env, at, (seed, invitation), None)
}

/// The same for a known host, over a network that may break: tries until it is there.
pub fn client_at_last(env: &Env, at: SocketAddr, seed: u8) -> Client {
    loop {
        match client(env, at, [seed; 32], None) {
            Ok(client) => return client,
            Err(Unreachable::Silent(_)) => (),
            Err(refused) => panic!("{refused}"),
        }
    }
}

/// The same, with a cache on disk.
pub fn caching_client(
    env: &Env,
    at: SocketAddr,
    (seed, invitation): ([u8; 32], Option<[u8; 16]>),
    cache: Option<CacheOptions>,
) -> std::result::Result<Client, Unreachable> {
    client_of(env, &at.to_string(), (seed, invitation), cache)
}

/// The same, of servers as a mount names them.
pub fn client_of(
    env: &Env,
    server: &str,
    (seed, invitation): ([u8; 32], Option<[u8; 16]>),
    cache: Option<CacheOptions>,
) -> std::result::Result<Client, Unreachable> {
    let keys = Keys::from_seed(&seed).expect("keys");
    let key = server_keys().public();
    let options = ClientOptions { server: server.into(), key, invitation, timeout: None, cache, died: None };
    Client::connect(env, &keys, &options)
}

pub fn server_keys() -> Keys {
    Keys::from_seed(&[9; 32]).expect("keys")
}

/// Listens at a port that the system gives to no other socket while a server is started anew, and
/// that the tests of `lee` do not take, which have those from 10,000 on.
fn listen(env: &Env, at: IpAddr) -> TcpListener {
    let port = || 20_000 + u16::from_le_bytes(env.secret()) % 10_000;
    (0..1000).find_map(|_| TcpListener::bind((at, port())).ok()).expect("a port")
}

fn open(env: &Env, dir: &TempDir) -> (Arc<Cell>, Gate) {
    let cell = Cell::open(env, dir.path(), &Config::default()).expect("opened");
    let gate = Gate::new(cell.clone(), env, GateOptions::usual());
    (cell, gate)
}

fn start(env: &Env, of: (&Arc<Cell>, &Gate), table: &Arc<Table>, listener: TcpListener) -> Server {
    start_with(env, of, of.0.clone(), table, listener)
}

fn start_with(
    env: &Env,
    (cell, gate): (&Arc<Cell>, &Gate),
    sessions: Arc<dyn Sessions>,
    table: &Arc<Table>,
    listener: TcpListener,
) -> Server {
    let parts = (gate, cell.leases(), sessions);
    let server = Server::start(env, parts, &server_keys(), table.clone(), vec![listener]).expect("a server");
    assert!(server.wait_recovered());
    server
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.server = None;
        let _ = self.cell.close();
    }
}

/// A user's context, as the kernel of a mount has it.
pub fn user(uid: u32) -> Ctx {
    Ctx { refs: true, ..Ctx::user(uid, uid) }
}

pub fn lookup(client: &Client, dir: NodeId, name: &[u8]) -> Result<Attr> {
    client.call(&user(0), Op::Lookup { dir, name })?.attr()
}

pub fn make(client: &Client, dir: NodeId, name: &[u8]) -> Result<Attr> {
    let op = Op::Make { dir, name, make: Make::File, mode: 0o644, umask: 0 };
    client.call(&user(0), op)?.attr()
}

pub fn write(client: &Client, node: NodeId, data: &[u8]) -> Result<u64> {
    client.call(&user(0), Op::Write { node, offset: 0, data })?.written()
}

pub fn read(client: &Client, node: NodeId) -> Result<Vec<u8>> {
    client.call(&user(0), Op::Read { node, offset: 0, len: 1 << 20 })?.data()
}
