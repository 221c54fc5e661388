//! The server's end: connections and the threads that read them.
//!
//! `serve-accept-N` accepts; `serve-N` (as many as the gate has threads for reading) read requests
//! and run them at once where it is their turn, like the threads of a mount; `serve-watch` ends
//! what is silent for too long; `serve-settle` answers changes when the kernel of this machine has
//! dropped what it cached of them.
//!
//! Locks: a connection's phase, what a session hears, the tables of connections and strangers, the
//! table of sessions, what is stored of a session, its state, its references, a pipe; later ones
//! may be taken under earlier ones. Only what a session hears is held while the gate is called, and
//! what is stored of it while the engine stores that.

mod access;
mod admit;
mod commands;
mod connection;
mod elsewhere;
mod figures;
mod in_order;
mod lasting;
mod line;
mod locks;
mod logins;
mod losses;
mod recovery;
mod rights;
mod session;
mod unflushed;

pub use admit::Grant;
pub use commands::{Asker, Given};
pub use elsewhere::Elsewhere;
pub use figures::{HostFigures, Transfers};
pub use losses::Loss;
pub use session::SessionInfo;
pub use unflushed::UnflushedFigures;

use crate::keys::{Keys, PublicKey};
use crate::message::{
    LoginAnswer, NUMBERS_AT_ONCE, Refusal, ServerList, SessionId, Standing, ToClient, frame,
};
use connection::{Connection, Conversation, Letting, Next};
use leeward_env::{Env, Nanos, Term, Wait, panic_text};
use leeward_fs::codec::{Input, Wire};
use leeward_fs::leases::{ClientId, Leases, Recaller};
use leeward_fs::sessions::Sessions;
use leeward_fs::{NodeId, Op, Reply};
use leeward_vfs::Gate;
use leeward_vfs::locks::{LockTable, OWN_MOUNT};
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use parking_lot::Mutex;
use recovery::Recovery;
use rustc_hash::{FxHashMap, FxHashSet};
use session::{Begun, Host, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Connections whose client is not let in yet, at most.
const STRANGERS_MAX: usize = 256;
/// How long a client may take to say who it is.
const STRANGER_TIME: Nanos = 10_000_000_000;
/// How long a connection may be silent. Clients say something each second.
const SILENT_TIME: Nanos = 10_000_000_000;
/// Sessions, at most: of all hosts, and of one.
const SESSIONS_MAX: usize = 20_000;
const SESSIONS_OF_HOST_MAX: usize = 64;
/// How often the times above are looked at.
const WATCH_STEP: Duration = Duration::from_millis(500);
/// How long calls at work are waited for at the end, and how often that is looked at.
const CALLS_TIME: Nanos = 2_000_000_000;
const CALLS_STEP: Duration = Duration::from_millis(1);
/// How long what a silent client has sent may take before its exclusive leases are taken all the
/// same: calls at work, which may wait for leases themselves, and what it had told its programs.
/// Others wait meanwhile. And how often that is looked at.
const LAST_CALLS_TIME: Nanos = 200_000_000;
const LINES_TIME: Nanos = 2_000_000_000;
const LINES_STEP: Duration = Duration::from_millis(5);
/// How long to wait after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Locks that a client may have lost without saying that it heeds that.
const UNHEEDED_MAX: usize = 100_000;
/// Enrolments at the same time: each waits for the disk.
const ENROLMENTS_MAX: usize = 4;
/// How soon to look again at a client that does not read its answers.
const CLOGGED_STEP: Duration = Duration::from_millis(2);
/// How soon to look again whether this server may answer.
const TERM_STEP: Duration = Duration::from_millis(10);
/// How often to look whether clients have caught up.
const RECOVERY_STEP: Duration = Duration::from_millis(2);
/// Why a client lost what it was told by a process before.
const NOT_IN_TIME: &str = "it did not catch up in time after a crash of the server";
/// The token of [`Waker`]s.
const WAKE: Token = Token(0);

/// What the server asks about hosts.
pub trait Hosts: Send + Sync + 'static {
    /// The host that has enrolled with this key: its name, and what it may do.
    fn host_of(&self, key: &PublicKey) -> Option<(String, Grant)>;

    /// Enrols a host by the secret of its invitation. Durable when it returns. May wait.
    ///
    /// # Errors
    /// For a person: why not.
    fn enrol(&self, secret: &[u8; 16], key: PublicKey) -> Result<(), String>;

    /// What a gateway has to know of users and buckets, and its version, which is never 0.
    fn access(&self) -> (u64, Arc<[u8]>) {
        (1, Arc::default())
    }

    /// Whether any host has enrolled: then clients of a server before may have locks.
    fn are_any(&self) -> bool;

    /// The user of the cell who logs in at a host by a token; or why the token is not good for
    /// that, or that it cannot be said now.
    fn login(&self, _host: &str, _token: &str, _wait: Wait) -> LoginAnswer {
        LoginAnswer::Refused("no tokens are known here".into())
    }

    /// Until when this process may answer, where several servers share the cell.
    fn term(&self) -> Term {
        Term::endless()
    }

    /// Whether this process has lost the cell to another server: what fails now is not answered,
    /// and asked for there.
    fn is_lost(&self) -> bool {
        false
    }

    /// The servers that share the cell, this one's addresses first; `None`: there is this one only.
    fn servers(&self) -> Option<ServerList> {
        None
    }

    /// Runs a command that a user of a host has given, and tells its answer in pieces until `tell`
    /// is false. May take long.
    fn command(&self, _: &Asker, _: &[u8], _: &Arc<Given>, _tell: &mut dyn FnMut(&[u8]) -> bool) {}
}

/// Serves a cell to other machines until it is closed or dropped.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

/// What all threads of a server use.
struct Shared {
    env: Env,
    gate: Gate,
    leases: Leases,
    /// What the engine keeps of sessions.
    store: Arc<dyn Sessions>,
    recovery: Recovery,
    /// Clients of a process before cannot go on.
    failed: AtomicBool,
    locks: Arc<LockTable>,
    tls: Arc<rustls::ServerConfig>,
    hosts: Arc<dyn Hosts>,
    sessions: Mutex<BTreeMap<u64, Arc<Session>>>,
    connections: Mutex<FxHashMap<usize, Arc<Connection>>>,
    /// Those whose client is not let in yet; the lowest token is that of the oldest.
    strangers: Mutex<BTreeMap<usize, Arc<Connection>>>,
    next_token: AtomicUsize,
    enrolling: AtomicUsize,
    /// Tokens of users that are judged now.
    logging_in: AtomicUsize,
    /// Tells clients whether this is still the same process.
    instance: u64,
    /// Until when this process may answer.
    term: Term,
    /// Which servers clients were told of last.
    servers: Mutex<Option<ServerList>>,
    stopping: AtomicBool,
    ended: Arc<AtomicBool>,
    wakers: Vec<Waker>,
    settle: Sender<session::Settled>,
    lasting: Sender<lasting::Job>,
    commands: commands::Commands,
    figures: figures::Figures,
    losses: losses::Losses,
}

impl Server {
    /// Serves at these listeners.
    ///
    /// # Errors
    /// What the system says: of threads, of sockets, of TLS.
    pub fn start(
        env: &Env,
        (gate, leases, store): (&Gate, &Leases, Arc<dyn Sessions>),
        keys: &Keys,
        hosts: Arc<dyn Hosts>,
        listeners: Vec<TcpListener>,
    ) -> io::Result<Server> {
        let polls = (0..gate.reading_threads()).map(|_| Poll::new()).collect::<io::Result<Vec<_>>>()?;
        let registries = polls.iter().map(|p| p.registry().try_clone()).collect::<io::Result<Vec<_>>>()?;
        let wakers = registries.iter().map(|r| Waker::new(r, WAKE)).collect::<io::Result<Vec<_>>>()?;
        let (settle, settled) = channel();
        let (lasting, jobs) = channel();
        let recovery = Recovery::new(env, &*store);
        let shared = Arc::new(Shared {
            env: env.clone(),
            gate: gate.with_turns_elsewhere(),
            leases: leases.clone(),
            store,
            recovery,
            failed: AtomicBool::new(false),
            locks: gate.share_locks(|| hosts.are_any()),
            tls: keys.server().map_err(io::Error::other)?,
            term: hosts.term(),
            servers: Mutex::new(hosts.servers()),
            hosts,
            sessions: Mutex::default(),
            connections: Mutex::default(),
            strangers: Mutex::default(),
            next_token: AtomicUsize::new(WAKE.0 + 1),
            enrolling: AtomicUsize::new(0),
            logging_in: AtomicUsize::new(0),
            instance: u64::from_le_bytes(env.secret()),
            stopping: AtomicBool::new(false),
            ended: Arc::default(),
            wakers,
            settle,
            lasting,
            commands: commands::Commands::new(env),
            figures: figures::Figures::default(),
            losses: losses::Losses::new(env),
        });
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        // from here on an error ends the threads that have begun
        let server = Server { shared, listeners, addresses };
        let shared = &server.shared;
        for (number, poll) in polls.into_iter().enumerate() {
            let shared = shared.clone();
            env.try_spawn(&format!("serve-{number}"), move || shared.read(poll))?;
        }
        leases.serve(Arc::new(Recalls(Arc::downgrade(shared))));
        shared.now_and_then("serve-watch", Shared::watch)?;
        shared.now_and_then("serve-logins", Shared::judge_old_logins)?;
        shared.now_and_then("serve-locks", Shared::take_locks_of_silent)?;
        let settling = gate.clone();
        env.try_spawn("serve-settle", move || session::settle(&settling, &settled))?;
        let keeping = Arc::downgrade(shared);
        env.try_spawn("serve-lasting", move || lasting::run(&keeping, &jobs))?;
        let recovering = shared.clone();
        env.try_spawn("serve-recover", move || recovering.recover())?;
        for listener in &server.listeners {
            listener.set_nonblocking(false)?;
        }
        for (number, listener) in server.listeners.iter().enumerate() {
            let registries = registries.iter().map(Registry::try_clone).collect::<io::Result<Vec<_>>>()?;
            let (shared, listener) = (shared.clone(), listener.try_clone()?);
            env.try_spawn(&format!("serve-accept-{number}"), move || shared.accept(&listener, &registries))?;
        }
        Ok(server)
    }

    /// Returns when clients of a process before have caught up: nothing else may use the cell until
    /// then. False: they cannot, or the server has ended.
    pub fn wait_recovered(&self) -> bool {
        while !self.shared.recovery.is_over() {
            let is_over = self.shared.has_ended() || self.shared.term.is_over();
            if is_over || self.shared.failed.load(Ordering::Acquire) {
                return false;
            }
            self.shared.env.sleep(RECOVERY_STEP);
        }
        true
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Hosts were changed: sessions of those that are gone end, what others may do holds from now
    /// on.
    pub fn hosts_changed(&self) {
        self.shared.all_sessions().iter().for_each(|session| self.shared.host_changed(session));
        self.shared.judge_logins();
    }

    /// Members of groups were changed: users who have logged in have their groups soon.
    pub fn groups_changed(&self) {
        self.shared.judge_logins_soon();
    }

    /// Who is connected.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let times = (self.shared.env.awake(), self.shared.env.wall());
        let info = |session: &Arc<Session>| {
            session.info(&self.shared.leases, times, self.shared.locks.count(session.id.number))
        };
        self.shared.all_sessions().iter().map(info).collect()
    }

    /// What each host has asked for.
    pub fn host_figures(&self) -> Vec<HostFigures> {
        let mut sessions = BTreeMap::new();
        for session in self.shared.all_sessions().iter().filter(|session| session.connection().is_some()) {
            *sessions.entry(session.host().name.clone()).or_insert(0) += 1;
        }
        self.shared.figures.all(&sessions)
    }

    /// What went between the server and machines, over IPv4 and over IPv6.
    pub fn transfers(&self) -> [Transfers; 2] {
        self.shared.figures.transfers()
    }

    /// What machines have told their programs and the server has not made, the latest first.
    pub fn losses(&self) -> Vec<Loss> {
        self.shared.losses.all()
    }

    /// How many connections there are, with those of clients that are not let in yet.
    pub fn connections(&self) -> usize {
        self.shared.connections.lock().len()
    }

    /// Ends a session; false: there is none of that number.
    pub fn end_session(&self, number: u64) -> bool {
        let session = self.shared.sessions.lock().get(&number).cloned();
        session.is_some_and(|session| {
            self.shared.end_session(&session, "an operator ended the session");
            true
        })
    }

    /// Lets nobody in any more, and takes no more calls. Calls at work are answered.
    ///
    /// Clients send first what they have told their programs: a server after an end in order knows
    /// nothing of them, and waits for nobody. One that is silent is waited for as long as for its
    /// leases.
    pub fn stop(&self) {
        if self.shared.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.leases.end_exclusive();
        self.shared.ended.store(true, Ordering::Release);
        for listener in &self.listeners {
            // SAFETY: a valid descriptor. It ends the wait for connections.
            unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }

    /// Tells all clients how the cell was closed, and hangs up. After [`Server::stop`].
    pub fn hang_up(&self, durable: bool) {
        self.stop();
        self.shared.commands.end_all();
        self.shared.end_logins();
        // clients send again what was not answered, which must not have been done then
        let durable = durable && self.shared.calls_end();
        let closing = frame(&ToClient::Closing { durable });
        for connection in self.shared.all_connections() {
            connection.line.pipe.send(&closing);
            connection.line.pipe.close();
        }
        for session in self.shared.all_sessions() {
            self.shared.leases.end(session.id.number);
            if durable {
                session.end();
            } else {
                self.shared.forget_session(&session);
                // the thread that does this else may not come to it any more
                if session.is_lasting() {
                    let _ = self.shared.store.end_session(session.id.number);
                }
            }
        }
        self.shared.sessions.lock().clear();
        self.shared.wake_all();
    }
}

/// Sends recalls to the clients of a server.
struct Recalls(Weak<Shared>);

impl Recaller for Recalls {
    fn recall(&self, client: ClientId, number: u64, nodes: &[NodeId]) {
        let Some(shared) = self.0.upgrade() else { return };
        let session = shared.sessions.lock().get(&client).cloned();
        if let Some(connection) = session.and_then(|session| session.connection()) {
            connection.pipe.send(&frame(&ToClient::Recall { number, nodes: nodes.to_vec() }));
        }
    }

    fn expel(&self, client: ClientId, silent: Option<Nanos>) {
        let Some(shared) = self.0.upgrade() else { return };
        let session = shared.sessions.lock().get(&client).cloned();
        if let Some(session) = session {
            shared.expel(&session, silent);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.hang_up(false);
    }
}

impl Shared {
    fn all_sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().cloned().collect()
    }

    fn all_connections(&self) -> Vec<Arc<Connection>> {
        self.connections.lock().values().cloned().collect()
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Does something twice a second on a thread of its own, until it says that it is over or the
    /// server is gone.
    fn now_and_then(self: &Arc<Self>, thread: &str, work: fn(&Shared) -> bool) -> io::Result<()> {
        let (shared, clock) = (Arc::downgrade(self), self.env.clone());
        let turns = move || {
            while shared.upgrade().is_some_and(|shared| work(&shared)) {
                clock.sleep(WATCH_STEP);
            }
        };
        self.env.try_spawn(thread, turns).map(drop)
    }

    /// Waits for calls at work; false: not all have ended.
    fn calls_end(&self) -> bool {
        let until = self.env.now() + CALLS_TIME;
        while self.all_sessions().iter().any(|session| session.has_calls()) {
            if self.env.now() > until {
                return false;
            }
            self.env.sleep(CALLS_STEP);
        }
        true
    }

    /// Accepts connections and gives them to the reading threads in turn.
    fn accept(&self, listener: &TcpListener, registries: &[Registry]) {
        let mut failed = false;
        loop {
            let accepted = listener.accept();
            if self.has_ended() {
                return;
            }
            let taken = accepted.and_then(|(socket, peer)| {
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
                self.make_room();
                self.take(socket, peer, registries)
            });
            if let Err(e) = &taken
                && !failed
            {
                tracing::warn!("connections of other machines cannot be taken: {e}");
            }
            failed = taken.is_err();
            if failed {
                self.env.sleep(ACCEPT_PAUSE);
            }
        }
    }

    /// Hangs up on a stranger if there are too many: on the one that was silent the longest, of the
    /// address that most of them have. A machine that only connects does not keep others out.
    fn make_room(&self) {
        let mut all = self.strangers.lock();
        if all.len() < STRANGERS_MAX {
            return;
        }
        let mut of_address: BTreeMap<IpAddr, usize> = BTreeMap::new();
        let address = |connection: &Arc<Connection>| connection.line.pipe.peer().ip();
        all.values().for_each(|stranger| *of_address.entry(address(stranger)).or_default() += 1);
        let most = of_address.iter().max_by_key(|(_, count)| **count).map(|(address, _)| *address);
        let oldest =
            all.iter().find(|(_, stranger)| Some(address(stranger)) == most).map(|(token, _)| *token);
        let oldest = oldest.and_then(|token| all.remove(&token));
        drop(all);
        if let Some(stranger) = oldest {
            stranger.line.pipe.close();
        }
    }

    fn take(&self, socket: std::net::TcpStream, peer: SocketAddr, registries: &[Registry]) -> io::Result<()> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let tls = rustls::ServerConnection::new(self.tls.clone()).map_err(io::Error::other)?;
        let socket = mio::net::TcpStream::from_std(socket);
        let mut connection = Connection::new(token, socket, peer, tls.into(), self.env.awake());
        let both = Interest::READABLE | Interest::WRITABLE;
        // only who finds it in the table looks at it, so it is there before events come
        let mut all = self.connections.lock();
        if self.has_ended() {
            return Ok(());
        }
        let socket = connection.socket_mut().ok_or(io::ErrorKind::Other)?;
        registries[token % registries.len()].register(socket, Token(token), both)?;
        let connection = Arc::new(connection);
        self.strangers.lock().insert(token, connection.clone());
        all.insert(token, connection);
        Ok(())
    }

    /// Reads and runs the requests of some connections.
    fn read(self: &Arc<Self>, mut poll: Poll) {
        let mut events = Events::with_capacity(256);
        let mut talks: FxHashMap<usize, Conversation> = FxHashMap::default();
        // connections to look at, whether or not something comes
        let (mut due, mut wait) = (BTreeSet::new(), None);
        loop {
            if let Err(e) = poll.poll(&mut events, wait)
                && e.kind() != io::ErrorKind::Interrupted
            {
                return tracing::error!("requests of other machines cannot be waited for: {e}");
            }
            for event in &events {
                let token = event.token().0;
                if token == WAKE.0 {
                    continue;
                }
                let Some(connection) = self.connections.lock().get(&token).cloned() else { continue };
                if event.is_writable() && connection.line.pipe.writable() {
                    connection.heard_at(self.env.awake());
                }
                due.insert(token);
            }
            wait = None;
            for token in std::mem::take(&mut due) {
                let pause = match self.go_on(token, &mut talks) {
                    Next::Soon => Duration::ZERO,
                    Next::Later => CLOGGED_STEP,
                    Next::InTerm => TERM_STEP,
                    Next::Event | Next::End => continue,
                };
                due.insert(token);
                wait = Some(wait.map_or(pause, |wait: Duration| wait.min(pause)));
            }
            if self.has_ended() && self.connections.lock().is_empty() {
                return;
            }
        }
    }

    /// Goes on with a connection of the thread that has these conversations.
    fn go_on(self: &Arc<Self>, token: usize, talks: &mut FxHashMap<usize, Conversation>) -> Next {
        let Some(connection) = self.connections.lock().get(&token).cloned() else { return Next::End };
        let talk = talks.entry(token).or_insert_with(|| Conversation::new(self, &connection));
        // the other connections of this thread go on
        let next = catch_unwind(AssertUnwindSafe(|| talk.go_on())).unwrap_or_else(|panic| {
            tracing::error!("a connection ends: panic: {}", panic_text(&*panic));
            Next::End
        });
        if next == Next::End {
            talks.remove(&token);
            self.drop_connection(token, &connection);
        }
        next
    }

    fn drop_connection(&self, token: usize, connection: &Arc<Connection>) {
        self.connections.lock().remove(&token);
        self.strangers.lock().remove(&token);
        if let Some(session) = connection.gone(self.env.awake()) {
            self.leases.lost(session.id.number);
        }
        if self.has_ended() {
            // the other threads may wait for the last one to go
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        self.wakers.iter().for_each(|waker| drop(waker.wake()));
    }

    /// Ends what is silent for too long; false: the server has ended.
    fn watch(&self) -> bool {
        let now = self.env.awake();
        self.locks.tick();
        for connection in self.all_connections() {
            let time = if connection.is_stranger() { STRANGER_TIME } else { SILENT_TIME };
            if now.saturating_sub(connection.line.heard()) > time {
                connection.line.pipe.close();
            }
        }
        for session in self.all_sessions() {
            session.logins.end_old(self.env.wall());
            if session.expire(now) {
                self.may_have_lost(&session, "it was away for more than two minutes");
                self.forget_session(&session);
            }
        }
        if let Some((late, any_referring)) = self.recovery.take_late() {
            late.into_iter().for_each(|number| _ = self.lasting.send(lasting::Job::Forget(number)));
            if any_referring {
                self.store.keep_all_inodes(false);
            }
        }
        self.tell_servers();
        self.leases.forget_ended();
        self.commands.drop_unheard(now);
        !self.has_ended()
    }

    /// Tells clients when other servers share the cell than they know.
    fn tell_servers(&self) {
        let now = self.hosts.servers();
        let mut told = self.servers.lock();
        if *told == now {
            return;
        }
        told.clone_from(&now);
        drop(told);
        let Some(list) = now else { return };
        let said = frame(&ToClient::Servers(list));
        for connection in self.all_connections().iter().filter(|connection| !connection.is_stranger()) {
            connection.line.pipe.send(&said);
        }
    }

    /// Has clients of a process before do their changes again.
    fn recover(self: &Arc<Self>) {
        let known = self.store.sessions();
        let close = |number| {
            let session = self.sessions.lock().get(&number).cloned();
            if let Some(session) = session {
                self.end_session(&session, NOT_IN_TIME);
            }
            let key = known.iter().find(|record| record.number == number).map(|record| record.key);
            if let Some((host, _)) = key.and_then(|key| self.hosts.host_of(&key)) {
                self.losses.may_be(&host, NOT_IN_TIME);
            }
        };
        let lost = |session: &Session, (uid, nodes): (u32, &[NodeId]), e: &leeward_fs::Error| {
            self.lost(session, uid, nodes, e);
        };
        match self.recovery.run(&*self.store, || self.has_ended(), close, lost) {
            Ok(closed) => {
                self.run_parked();
                self.locks.begin_grace();
                self.recovery.finish(&closed);
            }
            Err(e) => {
                tracing::error!("clients cannot go on: {e}");
                return self.failed.store(true, Ordering::Release);
            }
        }
        if self.recovery.are_all_named() {
            self.store.keep_all_inodes(false);
        }
        for connection in self.all_connections() {
            if !connection.is_stranger() {
                connection.line.pipe.send(&frame(&ToClient::Ready));
            }
        }
    }

    /// Runs changes that clients have told their programs and that the process before has not
    /// answered: the first that anybody asks for, so nobody has seen what they change.
    fn run_parked(self: &Arc<Self>) {
        for (number, slot, caller, behind, op) in self.recovery.take_parked() {
            let session = self.sessions.lock().get(&number).cloned();
            let (Some(session), Ok(op)) = (session, Op::take(&mut Input::new(&op))) else { continue };
            // then it is answered, or refused, when it is sent again
            if session.is_expelled() || session.done_before(slot).is_some() {
                continue;
            }
            match session.begin(slot) {
                Begun::Run => {
                    let answer = Session::answer(&session, self, slot, 0);
                    let coming = in_order::Coming { slot, caller, behind: Some(behind), op };
                    in_order::run_after_crash(self, &session, coming, answer);
                }
                Begun::Wrong(text) => self.end_before_ready(&session, &text),
                _ => (),
            }
        }
        // before anybody changes what nobody has leases on: after one more crash these would come
        // later
        if let Err(e) = self.store.commit() {
            tracing::error!("what clients had not sent cannot be made durable: {e}");
        }
    }

    /// A change that its client has told does not follow the last call in its slot. What was told
    /// after it may build on it, and does not run either: not even after one more crash, when
    /// others have gone on without it.
    fn end_before_ready(&self, session: &Arc<Session>, why: &str) {
        tracing::error!("{}: {why}: its session ends", session.host().name);
        // durable with what runs meanwhile, before others go on
        if let Err(e) = self.store.end_session(session.id.number) {
            tracing::error!("that the session of {} has ended cannot be stored: {e}", session.host().name);
        }
        self.end_session(session, why);
    }

    /// Before a silent client loses exclusive leases: a process after this one must not take what
    /// the client has not sent for something that comes first. All that it was told is durable.
    /// What it has sent is done first, under the leases that it still has.
    fn expel(&self, session: &Arc<Session>, silent: Option<Nanos>) {
        let _alone = session.expelling.lock();
        session.leave();
        // one that is there and was busy has had its time
        if silent.is_some() {
            self.await_rest(session);
        }
        let expel = || {
            session.expel(silent);
            session.may_come_back();
            true
        };
        let stored = self.store_session(session, expel).and_then(|()| self.store.sync());
        if let Err(e) = stored {
            tracing::error!("that {} is away cannot be stored: {e}", session.host().name);
        }
    }

    /// Gives locks of clients that are silent to those who want them: twice a second.
    fn take_locks_of_silent(&self) -> bool {
        // who is given one may be silent, too
        while self.take_some_locks() {}
        self.locks.forget_tried();
        !self.has_ended()
    }

    fn take_some_locks(&self) -> bool {
        let (now, sessions) = (self.env.awake(), self.all_sessions());
        let steady = sessions.iter().filter(|session| session.is_steady(now));
        let there: FxHashSet<u64> = steady.map(|session| session.id.number).chain([OWN_MOUNT]).collect();
        let is_there = |session: u64| there.contains(&session);
        let silent =
            sessions.iter().filter(|session| session.hears_of_lost_locks() && session.is_silent(now));
        let wanted = silent.filter(|session| self.locks.are_wanted(session.id.number, &is_there));
        // all of them
        wanted.filter(|session| self.take_locks(session, &is_there)).count() > 0
    }

    /// Takes locks that others want from a client that is silent, as exclusive leases are taken.
    /// Whoever gets them must find that nothing comes of what the client has sent before. That it
    /// may have lost some is durable first: after a crash it tells of them, perhaps before the one
    /// who has them by then. Whether some were taken.
    fn take_locks(&self, session: &Arc<Session>, is_there: &dyn Fn(u64) -> bool) -> bool {
        let _alone = session.expelling.lock();
        let now = self.env.awake();
        if !session.is_silent(now) || session.has_ended() {
            return false;
        }
        let silent = now.saturating_sub(session.heard());
        let connections = self.send_away(session, silent).unwrap_or_else(|e| {
            tracing::error!("that {} is away cannot be stored: {e}", session.host().name);
            None
        });
        // who has come back meanwhile is there, and has lost nothing
        if connections.is_none_or(|connections| !session.leave_again(connections)) {
            return false;
        }
        let taken = self.locks.take_wanted(session.id.number, is_there);
        if !taken.is_empty() {
            let unheeded = session.lose_locks(taken.iter().map(|(lock, _)| *lock));
            self.lost_locks(session, silent, &taken);
            if unheeded > UNHEEDED_MAX {
                self.end_session(session, "its client takes no notice of the locks that it has lost");
            }
        }
        session.may_come_back();
        !taken.is_empty()
    }

    /// Notes durably that a silent client is away and may lose locks, when what it has sent is
    /// done. It may come back as soon as that is noted. How many connections it had had; `None`:
    /// what is at work may change a file late, so nothing is noted.
    fn send_away(&self, session: &Session, silent: Nanos) -> leeward_fs::Result<Option<u64>> {
        session.leave();
        self.await_rest(session);
        let is_at_work = session.is_changing() || session.lines.are_busy();
        let expel = || {
            session.expel(Some(silent));
            true
        };
        let stored = if is_at_work { Ok(()) } else { self.store_session(session, expel) };
        let connections = session.connections();
        session.may_come_back();
        stored?;
        if is_at_work {
            return Ok(None);
        }
        self.store.sync()?;
        Ok(Some(connections))
    }

    /// Waits until what the client of a session has sent is done. What it asked for and waits for
    /// may wait for other clients, and for its own leases.
    fn await_rest(&self, session: &Session) {
        let begun = self.env.awake();
        loop {
            // first: what is being heard now goes in line
            let is_changing = session.is_changing();
            let waited = self.env.awake().saturating_sub(begun);
            let goes_on = is_changing && waited < LAST_CALLS_TIME;
            let waits = goes_on || session.lines.are_busy() && waited < LINES_TIME;
            if !waits || session.has_ended() {
                return;
            }
            self.env.sleep(LINES_STEP);
        }
    }

    /// A client says that the process has died which had another session of its host's.
    fn has_died(&self, by: &Session, id: SessionId) {
        let session = self.sessions.lock().get(&id.number).cloned();
        if let Some(session) = session.filter(|s| s.id == id && s.key == by.key && s.id != by.id) {
            self.may_have_lost(&session, "the process of its mount was killed");
            self.forget_session(&session);
            // nobody is left who could use them
            self.leases.leave(id.number);
        }
    }

    /// Reserves inode numbers for a client that makes inodes before it says so.
    fn reserve_numbers(&self, session: &Session, volume: u32) -> leeward_fs::Result<Reply> {
        if session.host().grant.is_restricted() || !session.is_lasting() {
            return Err(leeward_fs::Error::NotPermitted);
        }
        let first = self.store.reserve_numbers(session.id.number, volume, NUMBERS_AT_ONCE)?;
        Ok(Reply::Offset(first.0))
    }

    /// The session of this process that a client goes on with.
    fn going_on(&self, of: &Letting) -> Option<Arc<Session>> {
        let all = self.sessions.lock();
        let wanted = of.wanted?;
        let session = all.get(&wanted.number).filter(|s| s.id == wanted && s.key == of.key)?;
        let is_at_work =
            !self.recovery.is_awaited(wanted.number) && !session.is_away() && !session.is_leaving();
        is_at_work.then(|| session.clone())
    }

    /// The session that a client goes on with, if it is its own; else a new one. Reads what is
    /// stored of it.
    fn session(&self, of: Letting) -> Result<(Arc<Session>, Standing), (Refusal, String)> {
        if let Some(session) = self.going_on(&of) {
            return Ok((session, Standing::Resumed));
        }
        let busy = |e: leeward_fs::Error| (Refusal::Busy, e.to_string());
        let mut all = self.sessions.lock();
        if let Some(wanted) = of.wanted
            && let Some(session) = all.get(&wanted.number).filter(|s| s.id == wanted && s.key == of.key)
        {
            if session.is_leaving() {
                return Err((Refusal::Busy, "what its client has sent is being done: try again".into()));
            }
            session.hang_up();
            // it has come back from being away, or again before it had caught up
            let standing = if self.recovery.begins(session) { Standing::Known } else { Standing::Resumed };
            return Ok((session.clone(), standing));
        }
        let of_host = all.values().filter(|s| s.key == of.key).count();
        if all.len() >= SESSIONS_MAX || of_host >= SESSIONS_OF_HOST_MAX {
            let text = format!("there are {} sessions, {of_host} of them of this host", all.len());
            return Err((Refusal::Busy, text));
        }
        let (key, counts) = (of.key, self.figures.of(&self.env, &of.host.name));
        let known = of.wanted.filter(|_| !of.host.grant.is_restricted()).and_then(|wanted| {
            self.recovery.claim(|record| {
                record.number == wanted.number && record.secret == wanted.secret && record.key == key
            })
        });
        let id = known.as_ref().map_or_else(
            || SessionId { number: u64::from_le_bytes(self.env.secret()) >> 16, secret: self.env.secret() },
            |record| SessionId { number: record.number, secret: record.secret },
        );
        let session = Session::new(id, key, (of.host, counts), self.env.awake());
        let session = match &known {
            Some(record) => match self.store.outcomes(id.number) {
                Ok(outcomes) => Arc::new(session.known(outcomes, record)),
                Err(e) => {
                    self.recovery.unclaim(record.clone());
                    return Err(busy(e));
                }
            },
            None => Arc::new(session),
        };
        if known.as_ref().is_some_and(|record| !record.away) && !self.recovery.begins(&session) {
            return Err((Refusal::Busy, "the session was given up just now: try again".into()));
        }
        self.leases.join(id.number, Some(session.counts.machine));
        self.locks.begin_session(id.number);
        all.insert(id.number, session.clone());
        Ok((session, if known.is_some() { Standing::Known } else { Standing::New }))
    }

    /// What the host of a session may do holds from now on; if there is no such host, the session
    /// ends.
    fn host_changed(&self, session: &Arc<Session>) {
        match self.hosts.host_of(&session.key) {
            Some((name, grant)) if name == session.host().name => {
                let before = session.host();
                let is_checked = grant.is_restricted() && !before.grant.is_restricted();
                if grant.read_only && !before.grant.read_only {
                    // what it has told its programs may still come
                    self.leases.recall_exclusive_of(session.id.number).wait();
                }
                let is_same =
                    before.grant.volumes == grant.volumes && before.grant.by_tokens == grant.by_tokens;
                if is_same && !is_checked {
                    return session.set_host(Host { name, grant });
                }
                // it may know inodes of snapshots, which do not say of which volume they are, and
                // keep copies of what its users may not see
                self.end_session(session, "what the host may use was changed");
            }
            _ => self.end_session(session, "the host was removed"),
        }
    }

    /// The same on a thread that reads what clients say, their answers to recalls among it: what
    /// has to wait for these goes on elsewhere.
    fn host_may_have_changed(self: &Arc<Self>, session: &Arc<Session>) {
        let grant = self.hosts.host_of(&session.key).map(|(_, grant)| grant);
        let waits = grant.is_some_and(|grant| grant.read_only && !session.host().grant.read_only);
        let (of, to) = (self.clone(), session.clone());
        if !waits || self.env.try_spawn("serve-changed", move || of.host_changed(&to)).is_err() {
            self.host_changed(session);
        }
    }

    /// Ends a session, and tells its client.
    fn end_session(&self, session: &Arc<Session>, why: &str) {
        self.strike_session(session);
        if let Some(connection) = session.connection() {
            connection.pipe.send(&frame(&ToClient::Refused(Refusal::Ended, why.into())));
        }
        self.may_have_lost(session, why);
        self.forget_session(session);
    }

    /// Who comes back finds a session no more. To be done before its client is told that it ends:
    /// that comes again at once.
    fn strike_session(&self, session: &Session) {
        self.sessions.lock().remove(&session.id.number);
    }

    /// Gives back what a session holds. Its client may not hear of it.
    fn forget_session(&self, session: &Arc<Session>) {
        self.strike_session(session);
        self.commands.end_of_session(session.id.number);
        self.recovery.ended(session.id.number);
        if session.is_lasting() {
            let _ = self.lasting.send(lasting::Job::Forget(session.id.number));
        }
        if self.recovery.has_referred(session.id.number) && self.recovery.is_over() {
            self.store.keep_all_inodes(false);
        }
        self.leases.end(session.id.number);
        let held: Vec<_> = session.end();
        self.locks.end_session(session.id.number);
        if !held.is_empty() {
            self.gate.forget_all(session::system(), &held);
        }
    }
}
