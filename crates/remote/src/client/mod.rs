//! The client's end: a [`Backend`] that is on another machine.
//!
//! Each operation is one call in a slot of the session. The thread `remote` connects, receives and
//! gives answers; whoever asks sends. When the connection is lost it connects again, to any of the
//! server's addresses, and sends again what was not answered: the server knows what it has done
//! already. A server that was started anew knows nothing of the session. If the one before has
//! ended in order, what it has not answered it has not done, and all is sent again. Else calls that
//! can be repeated without harm are, and of the others the outcome is unknown: they fail with EIO.
//!
//! After a crash of the server, files whose changes it may have lost say so: their next fsync is
//! EIO, once.
//!
//! What it tells may be kept: see [`copies`].
//!
//! Locks: `behind`, then the state, then a pipe or `copies`; `files`, then `lost_files`; `copies`,
//! `locks`, `groups`, `watcher` alone. None is held while an answer is given.

mod behind;
mod commands;
mod connect;
mod content;
mod copies;
mod disk;
mod doors;
mod drops;
mod files;
mod foretold;
mod groups;
mod locks;
mod logins;
mod read;
mod servers;
mod slots;
mod told;
mod workers;

use crate::keys::{Keys, PublicKey};
use crate::message::{Call, Caller, FRAME_BYTES_MAX, GROUPS_MAX, SessionId, Standing, ToServer, frame};
use crate::pipe::Pipe;
use behind::Behind;
pub use commands::{Begun, CommandLost, PIECE_BYTES_MAX, User};
use copies::{Asked, Copies};
pub use disk::CacheOptions;
use disk::DiskContent;
pub use doors::ForDoors;
use files::ChangedFiles;
use foretold::Foretelling;
use groups::GroupsOfPrograms;
use leeward_cache::DiskCacheFigures;
use leeward_env::{Ctx, Env, Nanos};
use leeward_fs::{Error, InodeFlags, NodeId, Op, Reply, Result, SetAttr, Watcher};
use leeward_vfs::locks::LockService;
use leeward_vfs::{Attempt, Backend};
use parking_lot::{Condvar, Mutex};
use slots::{Answer, Outstanding, Slots};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use told::ToldChanges;
use workers::Workers;

/// Inodes of one call that returns references.
const FORGETS_MAX: usize = 4096;
/// Threads for what has to wait, at most.
const THREADS: usize = 16;
/// How long the server may take to hear that the session ends.
const BYE_TIME: Duration = Duration::from_secs(1);
/// Crashes of the server that are remembered with what was lost in them.
const LOST_FILES_MAX: usize = 16;
/// Threads that a front end needs.
const READING_THREADS: usize = 2;

/// Flags with which a file takes no writes, or not all.
const REFUSE_WRITES: InodeFlags = InodeFlags::IMMUTABLE.or(InodeFlags::APPEND_ONLY);

/// Whom to connect to, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Host and port of the server: a name may have several addresses. Of a cell that several
    /// servers share, any of them, or several with commas between them.
    pub server: String,
    /// The server's key.
    pub key: PublicKey,
    /// The secret of the token that this host was invited with, if it has not enrolled.
    pub invitation: Option<[u8; 16]>,
    /// How long requests wait for a server that does not answer, before they fail; `None`: for
    /// ever.
    pub timeout: Option<Duration>,
    /// Where content that was read is kept on a disk of this machine, if anywhere.
    pub cache: Option<CacheOptions>,
    /// The session of a process before that has died, see [`Client::session`].
    pub died: Option<[u8; 32]>,
}

/// Why the first connection came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The server does not let this host in; why.
    Refused(String),
    /// It cannot be reached; why.
    Silent(String),
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreachable::Refused(why) | Unreachable::Silent(why) => f.write_str(why),
        }
    }
}

/// Files of this machine that may have lost changes, as the server knew nothing of the session any
/// more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostFiles {
    /// When that was found out, seconds since 1970.
    pub at_secs: i64,
    /// How many; `None`: any file may be one.
    pub files: Option<usize>,
}

/// A connection to the server of a cell. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    env: Env,
    server: String,
    servers: servers::Servers,
    timeout: Option<Duration>,
    tls: Arc<rustls::ClientConfig>,
    state: Mutex<State>,
    /// The phase has changed.
    changed: Condvar,
    files: Mutex<ChangedFiles>,
    /// How often files have lost changes with a process of the server.
    lost_files: Mutex<Vec<LostFiles>>,
    copies: Copies,
    /// Changes that programs were told of and that are not answered.
    behind: Mutex<Behind>,
    /// The cache on disk, when it has been opened.
    disk: Arc<OnceLock<Arc<DiskContent>>>,
    /// For reading from it.
    disk_readers: Workers,
    groups: GroupsOfPrograms,
    /// The front end, to be told what to drop.
    watcher: Mutex<Option<Arc<dyn Watcher>>>,
    /// For requests of several operations.
    workers: Workers,
    deferred: Mutex<drops::Deferred>,
    /// For waiting until pages are dropped, which requests do not hold up.
    droppers: Workers,
    locks: locks::Locks,
    logins: logins::Logins,
    /// When the server was heard of last.
    heard: AtomicU64,
}

struct State {
    phase: Phase,
    /// The connection by which answers count: there is one before the server takes calls.
    link: Option<Arc<Pipe>>,
    slots: Slots,
    told: ToldChanges,
    /// What the server knows of the session, until it takes calls.
    standing: Option<Standing>,
    session: Option<crate::message::SessionId>,
    invitation: Option<[u8; 16]>,
    /// The server's process.
    instance: Option<u64>,
    /// The name of this host at the server.
    host: String,
    wants_groups: bool,
    /// What the server said last of the root: attributes, and figures of the file system.
    root: [Option<Result<Reply>>; 2],
    /// The server said that everything is durable before it ended.
    closed_in_order: bool,
    /// How often the connection was lost.
    times_lost: u64,
    /// When all of these are gone, the server is told that lost locks are heeded.
    unheeded: Vec<Weak<()>>,
    /// The version of the protocol that the server speaks.
    version: u16,
}

/// Since when there is no connection, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Away {
    since: Nanos,
    why: String,
    /// The server does not let this host in: nothing is worth waiting for.
    refused: bool,
}

enum Phase {
    /// Not connected.
    Away(Away),
    Up(Arc<Pipe>),
    /// No longer wanted.
    Ended,
}

impl Client {
    /// Connects for the first time, and goes on from then.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn connect(env: &Env, keys: &Keys, options: &Options) -> std::result::Result<Client, Unreachable> {
        let tls = keys.client(options.key).map_err(|e| Unreachable::Silent(e.to_string()))?;
        let state = State {
            phase: Phase::Away(Away { since: env.now(), why: "not connected yet".into(), refused: false }),
            link: None,
            slots: Slots::default(),
            told: ToldChanges::default(),
            standing: None,
            session: None,
            instance: None,
            invitation: options.invitation,
            host: String::new(),
            wants_groups: false,
            root: [None, None],
            closed_in_order: false,
            times_lost: 0,
            unheeded: Vec::new(),
            version: 0,
        };
        let client = Client(Arc::new(Shared {
            env: env.clone(),
            server: options.server.clone(),
            servers: servers::Servers::new(&options.server),
            timeout: options.timeout,
            tls,
            state: Mutex::new(state),
            changed: Condvar::new(),
            files: Mutex::default(),
            lost_files: Mutex::default(),
            copies: Copies::new(env),
            behind: Mutex::default(),
            disk: options.cache.as_ref().map(|cache| open_cache(env, cache)).unwrap_or_default(),
            disk_readers: Workers::new(env, "remote-disk", THREADS),
            groups: GroupsOfPrograms::default(),
            watcher: Mutex::default(),
            workers: Workers::new(env, "remote-list", THREADS),
            deferred: Mutex::default(),
            droppers: Workers::new(env, "remote-drop", THREADS),
            locks: locks::Locks::default(),
            logins: logins::Logins::default(),
            heard: AtomicU64::new(env.now()),
        }));
        connect::start(&client.0)?;
        if let Some(died) = options.died {
            // before anything asks for what that one had leases on
            client.ask(Call::Died(SessionId::from_bytes(died)), None, Box::new(drop));
        }
        for op in [Op::GetAttr { node: NodeId::ROOT }, Op::StatFs { node: NodeId::ROOT }] {
            // asked to be noted
            let _ = client.call(&Ctx::user(0, 0), op);
        }
        Ok(client)
    }

    /// Names the session, and proves that it is one's own: a process that follows when this one has
    /// died says so.
    pub fn session(&self) -> Option<[u8; 32]> {
        self.0.state.lock().session.map(SessionId::to_bytes)
    }

    /// Host and port of all servers that may have the cell, as far as is known.
    pub fn servers(&self) -> Vec<String> {
        self.0.servers.all()
    }

    /// The name of this host at the server.
    pub fn host(&self) -> String {
        self.0.state.lock().host.clone()
    }

    /// Since when the server has not answered, nanoseconds of the monotonic clock, and why; `None`:
    /// it does.
    pub fn away(&self) -> Option<(Nanos, String)> {
        match &self.0.state.lock().phase {
            Phase::Away(away) => Some((away.since, away.why.clone())),
            Phase::Up(_) | Phase::Ended => None,
        }
    }

    /// Files that may have lost changes with a process of the server before, the latest last.
    pub fn lost_files(&self) -> Vec<LostFiles> {
        self.0.lost_files.lock().clone()
    }

    /// Ends the session, when the server has answered what programs were told. Whatever still waits
    /// fails.
    pub fn close(&self) {
        self.settle();
        self.0.copies.lost();
        let mut state = self.0.state.lock();
        let before = std::mem::replace(&mut state.phase, Phase::Ended);
        let left = state.slots.take_all();
        drop(state);
        self.0.changed.notify_all();
        if let Phase::Up(pipe) = before {
            pipe.send(&frame(&ToServer::Bye));
            pipe.end();
            let until = self.0.env.now() + BYE_TIME.as_nanos() as u64;
            while !pipe.is_over() && self.0.env.now() < until {
                self.0.env.sleep(Duration::from_millis(1));
            }
            pipe.close();
        }
        left.into_iter().for_each(|call| call.fail(Error::Io("the mount has ended".into())));
        self.end_locks("the mount has ended");
    }

    /// Bytes of files that were read ahead and are kept or under way, and bytes that were read from
    /// them.
    pub fn read_ahead_figures(&self) -> (u64, u64) {
        self.0.copies.content_figures()
    }

    /// Figures of the cache on disk, if there is one.
    pub fn cache_figures(&self) -> Option<DiskCacheFigures> {
        self.0.disk.get().map(|disk| disk.figures())
    }

    /// Waits until all is on disk that was read. For tests.
    pub fn settle_cache(&self) {
        self.0.disk.get().into_iter().for_each(|disk| disk.settle());
    }

    /// Sends a call; answered by `answer`.
    fn ask(&self, call: Call<'_>, asked: Option<Asked>, answer: Answer) {
        self.ask_in_order(call, 0, asked, answer);
    }

    /// The same for a call with a place among those that run in order; 0: it has none.
    fn ask_in_order(&self, call: Call<'_>, order: u64, asked: Option<Asked>, answer: Answer) {
        // references are returned when the session goes on, however late
        let is_kept = slots::returns_references(&call);
        let timeout = if is_kept { None } else { self.0.timeout };
        let call = Outstanding::new(call, self.0.env.now(), asked, answer).in_order(order);
        if call.byte_count() > FRAME_BYTES_MAX {
            // the server would hang up, again and again
            return call.fail(Error::Invalid);
        }
        let mut state = self.0.state.lock();
        if let Some(why) = state.hopeless(timeout, self.0.env.now()) {
            drop(state);
            return call.fail(Error::Io(why));
        }
        // under the lock: a connection that is lost meanwhile sends all that was sent, and no more
        let place = state.slots.enter(call);
        state.send(place);
    }

    fn caller(&self, ctx: &Ctx, op: &Op<'_>) -> Caller {
        let wants_groups = groups::matter_to(ctx, op) || self.0.state.lock().wants_groups;
        let mut gids = match wants_groups {
            true => self.0.groups.of(ctx, self.0.env.now()).to_vec(),
            false => ctx.gids.all().to_vec(),
        };
        // as many as the server takes: who is in more has fewer rights
        gids.truncate(GROUPS_MAX);
        Caller { uid: ctx.uid, gid: ctx.gid, gids, class: ctx.class, refs: ctx.refs }
    }

    /// Programs that unmount ask for attributes of the root and figures of the file system first.
    /// While the server is away they are told those that it had.
    fn ask_of_root(&self, ctx: Ctx, (op, which): (Op<'_>, usize), answer: Answer) {
        let state = self.0.state.lock();
        if let (Phase::Away(_), Some(known)) = (&state.phase, &state.root[which]) {
            let known = known.clone();
            drop(state);
            return answer(known);
        }
        drop(state);
        let client = self.clone();
        let noted = move |result: Result<Reply>| {
            if !matches!(result, Err(Error::Io(_))) {
                client.0.state.lock().root[which] = Some(result.clone());
            }
            answer(result);
        };
        self.ask_op(&ctx, op, Box::new(noted));
    }

    /// Before a file becomes immutable or append-only, the kernel must write the pages that
    /// programs have changed through mappings.
    fn write_pages_first(&self, ctx: Ctx, (node, set): (NodeId, SetAttr), answer: Answer) {
        let (client, watcher) = (self.clone(), self.0.watcher.lock().clone());
        self.0.workers.run(move || {
            if let Some(watcher) = watcher {
                watcher.inode_changed(node);
                watcher.wait_applied();
            }
            client.ask_op(&ctx, Op::SetAttr { node, set }, answer);
        });
    }
}

impl Away {
    fn text(&self) -> String {
        let what = if self.refused { "does not let this host in" } else { "does not answer" };
        format!("the server {what} ({})", self.why)
    }
}

impl State {
    /// Sends the calls in these slots if the server takes calls. Else that is done when it does.
    fn send(&mut self, places: impl IntoIterator<Item = u16>) {
        let Phase::Up(pipe) = &self.phase else { return };
        for place in places {
            pipe.send_large(&self.slots.sending(place));
        }
    }

    /// Holds changes back while too many are not durable, and sends those that need not wait any
    /// more.
    fn hold_changes(&mut self) {
        let holds = self.told.holds();
        let places = self.slots.hold_changes(holds);
        self.send(places);
    }

    /// Whether answers count that come by this connection. By another one calls are sent again, and
    /// answered again.
    fn hears(&self, pipe: &Arc<Pipe>) -> bool {
        self.link.as_ref().is_some_and(|link| Arc::ptr_eq(link, pipe))
    }

    /// Why a request is not to wait for the server.
    fn hopeless(&self, timeout: Option<Duration>, now: Nanos) -> Option<String> {
        match &self.phase {
            Phase::Ended => Some("the mount has ended".into()),
            Phase::Away(away) => {
                let waited = now.saturating_sub(away.since);
                let is_over = timeout.is_some_and(|time| waited > time.as_nanos() as u64);
                (is_over || away.refused).then(|| away.text())
            }
            Phase::Up(_) => None,
        }
    }
}

/// The cache on disk, which is there when it has been opened. Without it everything works.
fn open_cache(env: &Env, options: &CacheOptions) -> Arc<OnceLock<Arc<DiskContent>>> {
    let cache = Arc::<OnceLock<_>>::default();
    let (opened, of, options) = (cache.clone(), env.clone(), options.clone());
    let dir = options.dir.display().to_string();
    leeward_cache::open_apart(env, (&dir, "the server"), move || {
        let _ = opened.set(Arc::new(DiskContent::open(&of, &options)?)); // it is the only one
        Ok(())
    });
    cache
}

/// A reply that says no more than that it is done.
fn done(reply: Reply) -> Result<()> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(Error::Io(format!("a reply of the wrong kind: {other:?}"))),
    }
}

/// Which of the root's replies that are kept this asks for.
fn about_root(op: &Op<'_>) -> Option<usize> {
    match op {
        Op::GetAttr { node: NodeId::ROOT } => Some(0),
        Op::StatFs { node: NodeId::ROOT } => Some(1),
        _ => None,
    }
}

impl Backend for Client {
    fn run(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        let under_locks = self.under_locks(&op);
        let answer = move |result| {
            answer(result);
            drop(under_locks);
        };
        if let Op::SetAttr { node, set } = op
            && set.flags.is_some_and(|flags| flags.has(REFUSE_WRITES))
        {
            return self.write_pages_first(ctx, (node, set), Box::new(answer));
        }
        if let Op::Read { node, offset, len } = op {
            return self.read(ctx, (node, offset, len), Box::new(answer));
        }
        if let Some(known) = self.0.copies.answer(&ctx, &op) {
            return answer(known);
        }
        if let Some(which) = about_root(&op) {
            return self.ask_of_root(ctx, (op, which), Box::new(answer));
        }
        match self.foretell(&ctx, &op, false) {
            Foretelling::Told(reply) => return answer(Ok(reply)),
            Foretelling::NoRoom => return self.wait_for_room((ctx, op), Box::new(answer)),
            Foretelling::No => (),
        }
        let answer: Answer = match op {
            Op::Fsync { node } => {
                let (client, asked) = (self.clone(), self.0.files.lock().changes());
                Box::new(move |result| {
                    let result = client.0.files.lock().synced(node, asked, result);
                    answer(result);
                })
            }
            Op::SyncAll => {
                let (client, asked) = (self.clone(), self.0.files.lock().changes());
                Box::new(move |result| {
                    let result = client.0.files.lock().all_synced(asked, result);
                    answer(result);
                })
            }
            Op::Lookup { dir, name } => return self.look_up(ctx, (dir, name), None, Box::new(answer)),
            Op::List { attrs: true, .. } => {
                let client = self.clone();
                // the references are counted already
                let ctx = Ctx { refs: false, ..ctx };
                Box::new(move |result| match result {
                    Ok(Reply::Entries(entries)) => client.newest_entries(ctx, entries, 0, Box::new(answer)),
                    other => answer(other),
                })
            }
            _ => match files::changed(&op) {
                Some(node) => {
                    let (client, is_write) = (self.clone(), matches!(op, Op::Write { .. }));
                    Box::new(move |result| {
                        if result.is_ok() {
                            client.0.files.lock().changed(node);
                        }
                        client.answer_prepared(&ctx, (node, is_write), result, answer);
                    })
                }
                None => Box::new(answer),
            },
        };
        self.ask_op(&ctx, op, answer);
    }

    fn run_in_part(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        self.run(ctx, op, answer);
    }

    fn run_all<R: Send + 'static>(
        &self,
        ctx: Ctx,
        _: (Op<'static>, u64),
        request: R,
        attempt: impl Fn(&Ctx, R) -> Attempt<R> + Send + 'static,
    ) {
        self.0.workers.run(move || drop(attempt(&ctx.with_wait(leeward_env::Wait::Allowed), request)));
    }

    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let (send, receive) = sync_channel(1);
        self.run(*ctx, op, move |result| drop(send.send(result)));
        receive.recv().unwrap_or_else(|_| Err(Error::Io("the request was lost".into())))
    }

    fn forget(&self, ctx: Ctx, node: NodeId, count: u64) {
        self.forget_all(ctx, &[(node, count)]);
    }

    fn forget_all(&self, ctx: Ctx, all: &[(NodeId, u64)]) {
        let all = self.forget_answered(ctx, all);
        for some in all.chunks(FORGETS_MAX) {
            let (gone, asked) = self.0.copies.forget(some);
            if !gone.is_empty() {
                self.ask(Call::Forget(gone), Some(asked), Box::new(drop));
            }
        }
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        *self.0.watcher.lock() = Some(watcher);
    }

    /// The kernel takes the directory's lock to drop a name, and whoever has it may be waiting for
    /// a change that waits for this: so names are asked for again, and answered from copies.
    fn keep_names(&self) -> Duration {
        Duration::ZERO
    }

    fn keep_attr(&self, node: NodeId) -> Duration {
        self.0.copies.attr_time(node)
    }

    fn keep_entry(&self, node: NodeId) -> Duration {
        self.0.copies.entry_time(node)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn checks_rights(&self) -> bool {
        self.0.logins.rely()
    }

    fn permit(&self, ctx: Ctx, node: NodeId, want: u32, answer: impl FnOnce(Result<()>) + Send + 'static) {
        self.permit_login(ctx, node, want, answer);
    }

    fn locks(&self) -> Option<Arc<dyn LockService>> {
        Some(self.lock_service())
    }

    fn reading_threads(&self) -> usize {
        READING_THREADS
    }

    fn with_turns_asked_for(&self) -> Client {
        self.clone()
    }

    fn with_turns_elsewhere(&self) -> Client {
        self.clone()
    }

    fn has_turns(&self) -> bool {
        false
    }

    fn take_turn(&self) -> bool {
        false
    }
}
