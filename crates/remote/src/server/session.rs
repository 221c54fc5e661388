//! What the server holds of one client: its slots with answers, and its references.

use super::admit::{self, Grant};
use super::figures::{Counted, Counts, Family};
use super::in_order::Lines;
use super::line::Line;
use super::logins::{self, Logins};
use super::losses::WAS_SILENT;
use super::unflushed::{Unflushed, UnflushedFigures};
use crate::Hosts;
use crate::keys::PublicKey;
use crate::message::{
    Behind, Caller, FRAME_BYTES_MAX, Leased, SLOTS_MAX, SessionId, Slot, TAKES_LOCKS, ToClient, frame,
};
use crate::on_drop::{OnDrop, guarded};
use leeward_env::{Ctx, Door, Nanos, Told};
use leeward_fs::leases::{self, Granted, Leases};
use leeward_fs::locks::OwnedLock;
use leeward_fs::sessions::{self, Outcome, SessionRecord};
use leeward_fs::{Effect, Error, NodeId, Op, Reply, Result};
use leeward_vfs::Gate;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// How long a session without a connection is kept, and one that was never used.
const AWAY_TIME: Nanos = 120_000_000_000;
const UNUSED_TIME: Nanos = 1_000_000_000;

/// Inodes to which a client can have references since a process before.
const REFERRED_MAX: usize = 1 << 23;
/// Inodes to which users of a host can have references that is not believed in everything: more
/// than its kernel keeps, unless it wants to fill the memory.
const BOUNDED_REFS_MAX: usize = 1 << 24;

/// A host that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) grant: Grant,
}

/// A session, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number.
    pub number: u64,
    /// The host.
    pub host: String,
    /// The client's address; `None`: it is not connected now.
    pub address: Option<SocketAddr>,
    /// For how long there has been the session, nanoseconds.
    pub age: Nanos,
    /// For how long nothing was heard, nanoseconds.
    pub silent: Nanos,
    /// Inodes to which the client has references.
    pub inodes: u64,
    /// Whether it is noted as away: a server that starts does not wait for it.
    pub away: bool,
    /// Calls at work.
    pub calls: u64,
    /// Inodes that the client may keep copies of.
    pub leases: u64,
    /// Ranges of files that its programs have locked.
    pub locks: u64,
    /// What its programs take for done and a crash of the server could take; `None`: the session
    /// does not survive a crash, so nobody counts that.
    pub unflushed: Option<UnflushedFigures>,
    /// Names of users of the cell who have logged in there.
    pub users: Vec<String>,
}

/// See the module's head.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) key: PublicKey,
    since: Nanos,
    /// Held while something is done that its client has said, and while its client gets another
    /// connection.
    hearing: Mutex<()>,
    /// Held while it is stored, so that what is stored last holds.
    pub(super) storing: Mutex<()>,
    state: Mutex<State>,
    /// What its host asks for is counted there.
    pub(super) counts: Arc<Counts>,
    /// Bytes that the answers to calls at work may have.
    promised: AtomicUsize,
    /// Changes at work that a process after this one must know of.
    changing: AtomicUsize,
    /// Calls that run in order.
    pub(super) lines: Lines,
    /// Whether it survives the server's process.
    is_lasting: bool,
    away: AtomicBool,
    /// Exclusive leases or locks of its client were taken, and the client does not know that.
    expelled: AtomicBool,
    /// How often they were, and how long nothing was heard before they were taken last; 0: it was
    /// there.
    times_expelled: AtomicUsize,
    silence: AtomicU64,
    /// A process before had noted that it was away, and that it had lost leases or locks.
    was_away: bool,
    was_expelled: bool,
    /// Held while it is expelled: somebody else may want to do that, too.
    pub(super) expelling: Mutex<()>,
    /// Locks that were taken from its client, which does not heed that yet: it changes nothing in
    /// these files.
    lost_locks: Mutex<Vec<OwnedLock>>,
    has_lost_locks: AtomicBool,
    /// Its client has said which locks it had with the process before; that it heeds what it has
    /// lost of them.
    has_told_locks: AtomicBool,
    heeds_locks: AtomicBool,
    /// The version of the protocol that its client speaks.
    version: AtomicU16,
    /// The number of the last change that the client was told of, and up to which it knows that
    /// they are durable.
    told: AtomicU64,
    durable: AtomicU64,
    unflushed: Unflushed,
    /// `None`: it has ended.
    refs: Mutex<Option<FxHashMap<NodeId, u64>>>,
    refs_max: usize,
    /// The client is a gateway, which keeps no copies. It names inodes of snapshots without
    /// references: the snapshots that it was told of are noted.
    is_gateway: AtomicBool,
    /// Of its connection, or the last one.
    is_over_ipv6: AtomicBool,
    views: Mutex<FxHashSet<u32>>,
    pub(super) logins: Logins,
}

struct State {
    host: Arc<Host>,
    slots: Vec<Place>,
    connection: Option<Arc<Line>>,
    /// How many connections there were, with this one.
    connections: u64,
    /// When the last connection was lost, or the session began.
    lost: Nanos,
    /// It is over.
    ended: bool,
    /// It is going to be noted as away, when what its client has sent is done: nothing new comes.
    leaving: bool,
    /// A process before had it: calls in its slots have any numbers.
    is_known: bool,
    /// A client was let in.
    was_connected: bool,
}

impl State {
    /// Takes the connection away, which is to be closed without the lock.
    fn hang_up(&mut self) -> Option<Arc<Line>> {
        let connection = self.connection.take()?;
        self.lost = connection.heard();
        Some(connection)
    }
}

#[derive(Default)]
struct Place {
    number: u32,
    call: Progress,
    /// By which of its connections it was answered.
    answered_by: Option<u64>,
}

impl Place {
    fn is_running(&self) -> bool {
        self.number > 0 && matches!(self.call, Progress::Running)
    }
}

/// How far the call in a slot is.
#[derive(Default)]
enum Progress {
    #[default]
    Running,
    /// Answered; the answer is not kept, as the call can be repeated.
    Repeatable,
    /// A listing, which is long: it is made again, when the references that it gave are returned.
    Listed(Box<[NodeId]>),
    Answered(Arc<[u8]>),
    /// A process before has done it.
    Done(Told),
    /// A process before has done it, and it is lost: it is run when it comes again.
    Lost,
}

impl Progress {
    fn name(&self) -> &'static str {
        match self {
            Progress::Running => "at work",
            Progress::Repeatable => "over",
            Progress::Listed(_) => "a list",
            Progress::Answered(_) => "answered",
            Progress::Done(_) => "done by a process before",
            Progress::Lost => "lost with a process before",
        }
    }
}

/// What becomes of a call.
pub(super) enum Begun {
    Run,
    /// After the references that it gave before were returned.
    RunAgain(Box<[NodeId]>),
    /// It is at work: the answer goes to the connection that there is then. Or it went to the one
    /// that there is now.
    Running,
    Answered(Arc<[u8]>),
    /// By a process before.
    Done(Told),
    /// Its number is not the next; in words.
    Wrong(String),
    /// The session has ended.
    Over,
}

/// Of an operation what its answer depends on.
#[derive(Clone, Copy)]
pub(super) struct Like {
    changes: bool,
    takes_references: bool,
    /// The inode that it names.
    node: Option<NodeId>,
    /// What the client is told of, and may keep.
    tells_of: Option<NodeId>,
    /// Bytes that it brings.
    bytes: u64,
}

impl Like {
    pub(super) fn of(ctx: &Ctx, op: &Op<'_>) -> Like {
        let takes_references = ctx.refs && op.gives_references();
        let tells_of = tells_of(op).filter(|_| ctx.client > 0);
        let bytes = if op.changes() { op.moved_bytes() } else { 0 };
        Like { changes: op.changes(), takes_references, node: op.node(), tells_of, bytes }
    }
}

/// What of an answer the client may keep: of what it tells, that on which the client has got
/// leases.
fn leased(like: Option<Like>, result: &Result<Reply>) -> Leased {
    let Granted { nodes, exclusive: alone, snapshot_dir, mut changed } = leases::take_granted();
    let references = || result.iter().flat_map(Reply::references);
    let named = like.and_then(|like| like.node);
    changed.retain(|node| Some(*node) != named && references().all(|told| told != *node));
    let tells_of = like.and_then(|like| like.tells_of);
    // what an answer tells nothing lasting of is not kept
    let nodes = if tells_of.is_some() { nodes } else { Vec::new() };
    if nodes.is_empty() && alone.is_empty() && changed.is_empty() {
        return Leased::Nothing;
    }
    let granted: FxHashSet<NodeId> = nodes.into_iter().collect();
    let told = tells_of.into_iter().chain(references());
    let others = told.filter(|node| !granted.contains(node)).collect();
    Leased::AllBut { others, snapshot_dir, alone, changed }
}

/// The inode that the answer to an operation tells something lasting of.
fn tells_of(op: &Op<'_>) -> Option<NodeId> {
    let tells = matches!(
        op,
        Op::Lookup { .. }
            | Op::GetAttr { .. }
            | Op::SetAttr { .. }
            | Op::Make { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::RmDir { .. }
            | Op::GetXattr { .. }
            | Op::Read { .. }
            | Op::ContentVersions { .. }
            | Op::List { .. }
    );
    op.node().filter(|_| tells)
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        key: PublicKey,
        (host, counts): (Host, Arc<Counts>),
        now: Nanos,
    ) -> Session {
        let is_lasting = !host.grant.is_restricted();
        let state = State {
            host: Arc::new(host),
            slots: Vec::new(),
            connection: None,
            connections: 0,
            lost: now,
            ended: false,
            leaving: false,
            is_known: false,
            was_connected: false,
        };
        Session {
            id,
            key,
            since: now,
            hearing: Mutex::default(),
            storing: Mutex::default(),
            state: Mutex::new(state),
            counts,
            promised: AtomicUsize::new(0),
            changing: AtomicUsize::new(0),
            lines: Lines::default(),
            is_lasting,
            away: AtomicBool::new(false),
            expelled: AtomicBool::new(false),
            times_expelled: AtomicUsize::new(0),
            silence: AtomicU64::new(0),
            was_away: false,
            was_expelled: false,
            expelling: Mutex::default(),
            lost_locks: Mutex::default(),
            has_lost_locks: AtomicBool::new(false),
            has_told_locks: AtomicBool::new(false),
            heeds_locks: AtomicBool::new(false),
            version: AtomicU16::new(0),
            told: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            unflushed: Unflushed::default(),
            refs: Mutex::new(Some(FxHashMap::default())),
            refs_max: if is_lasting { usize::MAX } else { BOUNDED_REFS_MAX },
            is_gateway: AtomicBool::new(false),
            is_over_ipv6: AtomicBool::new(false),
            views: Mutex::default(),
            logins: Logins::default(),
        }
    }

    /// Its client is a gateway; whether that is new. Its doors make durable what they answer, so
    /// the session need not survive the process.
    pub(super) fn is_of_gateway(&self) -> bool {
        !self.is_gateway.swap(true, Ordering::Relaxed)
    }

    /// An operation comes; its answer is counted by what this returns.
    pub(super) fn counted(&self, op: &Op<'_>) -> Counted {
        let family = if self.is_over_ipv6.load(Ordering::Relaxed) { Family::V6 } else { Family::V4 };
        let over = (!self.is_gateway.load(Ordering::Relaxed)).then_some(family);
        self.counts.begin(over, op)
    }

    /// Notes the snapshots that a gateway is told of.
    fn note_views(&self, reply: &Reply) {
        if self.is_gateway.load(Ordering::Relaxed) {
            let views = reply.references().filter(|node| node.is_view()).map(NodeId::volume);
            let views: Vec<u32> = views.collect();
            if !views.is_empty() {
                self.views.lock().extend(views);
            }
        }
    }

    /// The session of a process before, with what came of its calls.
    pub(super) fn known(mut self, outcomes: Vec<(u16, Outcome)>, record: &SessionRecord) -> Session {
        self.was_away = record.away;
        self.was_expelled = record.expelled;
        *self.expelled.get_mut() = record.expelled;
        let state = self.state.get_mut();
        state.is_known = true;
        for (slot, outcome) in outcomes {
            let place = usize::from(slot);
            if state.slots.len() <= place {
                state.slots.resize_with(place + 1, Place::default);
            }
            let call = Progress::Done(outcome.told);
            state.slots[place] = Place { number: outcome.call, call, answered_by: None };
        }
        self
    }

    /// Whether it survives the server's process.
    pub(super) fn is_lasting(&self) -> bool {
        self.is_lasting && !self.is_gateway.load(Ordering::Relaxed)
    }

    pub(super) fn is_expelled(&self) -> bool {
        self.expelled.load(Ordering::Acquire)
    }

    /// How often exclusive leases of its client were taken.
    pub(super) fn times_expelled(&self) -> usize {
        self.times_expelled.load(Ordering::Acquire)
    }

    /// How long nothing was heard of its client before exclusive leases were taken from it last, if
    /// they were; 0: it was there, and kept them.
    pub(super) fn silence(&self) -> Option<Nanos> {
        (self.times_expelled() > 0).then(|| self.silence.load(Ordering::Acquire))
    }

    pub(super) fn set_expelled(&self, expelled: bool) {
        self.expelled.store(expelled, Ordering::Release);
    }

    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Acquire)
    }

    fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Release);
    }

    /// That it is back is durable; false: it was expelled since, more often than so many times, or
    /// is losing something at this moment, which it must be told.
    pub(super) fn comes_back(&self, times: usize) -> bool {
        let state = self.state.lock();
        let is_back = !state.leaving && self.times_expelled() == times;
        if is_back {
            self.set_away(false);
        }
        is_back
    }

    /// Whether a process before had noted that it was away.
    pub(super) fn was_away(&self) -> bool {
        self.was_away
    }

    /// Whether a process before has taken leases or locks from it, and it may not know which.
    pub(super) fn was_expelled(&self) -> bool {
        self.was_expelled
    }

    /// Whether its client is there, and has been for as long as one may be silent.
    pub(super) fn is_steady(&self, now: Nanos) -> bool {
        let is_steady = |c: Arc<Line>| now.saturating_sub(c.since) >= leases::TAKEN_AFTER;
        !self.is_silent(now) && self.connection().is_some_and(is_steady)
    }

    /// Whether nothing was heard of its client for so long that it may lose what others want.
    pub(super) fn is_silent(&self, now: Nanos) -> bool {
        now.saturating_sub(self.heard()) >= leases::TAKEN_AFTER
    }

    /// Whether its client understands that locks were taken from it.
    pub(super) fn hears_of_lost_locks(&self) -> bool {
        self.version.load(Ordering::Relaxed) >= TAKES_LOCKS
    }

    /// These locks were taken from its client. Not while anything comes from it. How many it has
    /// lost and not heeded.
    pub(super) fn lose_locks(&self, taken: impl Iterator<Item = OwnedLock>) -> usize {
        let mut lost = self.lost_locks.lock();
        lost.extend(taken);
        self.has_lost_locks.store(!lost.is_empty(), Ordering::Release);
        lost.len()
    }

    /// Its client says which locks it had with the process before, and is going to be told which of
    /// them it has lost.
    pub(super) fn tells_locks(&self, all: &[OwnedLock]) {
        if !self.heeds_before() {
            self.lose_locks(all.iter().copied());
            self.has_told_locks.store(true, Ordering::Release);
        }
    }

    pub(super) fn lost_locks(&self) -> Vec<OwnedLock> {
        self.lost_locks.lock().clone()
    }

    /// Its client knows which locks it has lost, and heeds that.
    pub(super) fn heeds_lost_locks(&self) {
        self.lost_locks.lock().clear();
        self.has_lost_locks.store(false, Ordering::Release);
        self.heeds_locks.store(true, Ordering::Release);
    }

    /// Whether its client heeds all that was taken from it, as far as it can say so.
    pub(super) fn heeds_all(&self) -> bool {
        self.heeds_before() && !self.has_lost_locks.load(Ordering::Acquire)
    }

    /// Whether it heeds what a process before has taken.
    fn heeds_before(&self) -> bool {
        !self.was_expelled || !self.hears_of_lost_locks() || self.heeds_locks.load(Ordering::Acquire)
    }

    /// Whether its client asks for a change of a file under a lock that it may not have any more.
    fn has_lost_lock_for(&self, op: &Op<'_>) -> bool {
        if !op.changes() {
            return false;
        }
        // what a process before has taken is known when the client has told what it had
        if !self.heeds_before() && !self.has_told_locks.load(Ordering::Acquire) {
            return true;
        }
        if !self.has_lost_locks.load(Ordering::Acquire) {
            return false;
        }
        let nodes = admit::nodes_of(op);
        self.lost_locks.lock().iter().any(|lock| nodes.contains(&lock.node))
    }

    /// Whether its client was told of changes that it does not know to be durable.
    pub(super) fn waits_to_hear(&self) -> bool {
        self.told.load(Ordering::Acquire) > self.durable.load(Ordering::Acquire)
    }

    /// From now on it is away, if all is durable that its client was told of, and nothing is at
    /// work. Its client comes back by another connection.
    pub(super) fn goes_away(&self) -> bool {
        let mut state = self.state.lock();
        let is_at_work = state.slots.iter().any(Place::is_running);
        if is_at_work || self.waits_to_hear() {
            return false;
        }
        self.set_away(true);
        let connection = state.hang_up();
        drop(state);
        if let Some(connection) = connection {
            connection.pipe.close();
        }
        true
    }

    /// Its client was silent for too long: nothing more comes from it until it was expelled.
    pub(super) fn leave(&self) {
        self.state.lock().leaving = true;
        self.hang_up();
    }

    /// Nothing comes from it until it may come back, if it has not come back since it had had so
    /// many connections; whether that is so.
    pub(super) fn leave_again(&self, connections: u64) -> bool {
        let mut state = self.state.lock();
        // one that is about to come back is told what it has lost, as long as it is away
        let is_gone = self.is_away() && state.connections == connections && !state.ended;
        state.leaving |= is_gone;
        is_gone
    }

    /// How many connections it has had.
    pub(super) fn connections(&self) -> u64 {
        self.state.lock().connections
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.state.lock().leaving
    }

    /// Whether something is just being heard, or changed by a call that is in no line.
    pub(super) fn is_changing(&self) -> bool {
        self.hearing.try_lock().is_none() || self.changing.load(Ordering::SeqCst) > 0
    }

    /// An operation begins; it is at work until what this returns is dropped. `None`: its client
    /// has to ask for it again, as the session is away, or soon is.
    pub(super) fn begins(self: &Arc<Self>, op: &Op<'_>) -> Option<OnDrop<impl FnOnce() + Send + use<>>> {
        let count = usize::from(matches!(op.effect(), Effect::Changes | Effect::Grows));
        self.changing.fetch_add(count, Ordering::SeqCst);
        let session = self.clone();
        let at_work = OnDrop::new(move || _ = session.changing.fetch_sub(count, Ordering::SeqCst));
        (!self.is_leaving() && !self.is_away()).then_some(at_work)
    }

    /// Its client was silent for too long: what it has sent and that is not done does not count any
    /// more, and it comes back by another connection.
    pub(super) fn expel(&self, silent: Option<Nanos>) {
        let state = self.state.lock();
        self.silence.store(silent.unwrap_or(0), Ordering::Release);
        self.times_expelled.fetch_add(1, Ordering::AcqRel);
        self.set_away(true);
        self.set_expelled(true);
        drop(state);
    }

    /// What it was to leave for is done.
    pub(super) fn may_come_back(&self) {
        self.state.lock().leaving = false;
    }

    /// Its client has another connection soon: nothing counts any more that came by the one before.
    pub(super) fn hang_up(&self) {
        let connection = self.state.lock().hang_up();
        if let Some(connection) = connection {
            connection.pipe.close();
        }
    }

    /// Whether there is nothing to come back to, and nobody who could.
    pub(super) fn is_unused(&self) -> bool {
        let state = self.state.lock();
        state.slots.is_empty() && state.connection.is_none() && !state.is_known
    }

    /// Does what came by a connection, while the session has that one. `None`: it has another by
    /// now, by which its client says again what was not answered.
    pub(super) fn hear<R>(&self, line: &Arc<Line>, act: impl FnOnce() -> R) -> Option<R> {
        let _hearing = self.hearing.lock();
        let of_line = |connection: &Arc<Line>| Arc::ptr_eq(connection, line);
        let is_heard = self.state.lock().connection.as_ref().is_some_and(of_line);
        is_heard.then(act)
    }

    /// Tells the client that changes up to this number are durable.
    pub(super) fn tell_durable(&self, lsn: u64) {
        let is_news = lsn > self.durable.fetch_max(lsn, Ordering::AcqRel);
        self.unflushed.are_durable(lsn);
        if is_news && let Some(connection) = self.connection() {
            connection.pipe.send(&frame(&ToClient::Durable(lsn)));
        }
    }

    /// Tells the client that changes up to this number are durable, whatever it was told before.
    pub(super) fn say_durable(&self, lsn: u64) {
        if let Some(connection) = self.connection() {
            connection.pipe.send(&frame(&ToClient::Durable(lsn)));
        }
    }

    /// Its client is answered a change that brings so many bytes.
    fn note_unflushed(&self, told: &Told, bytes: u64) {
        self.unflushed.answered(told, bytes, || told.lsn <= self.durable.load(Ordering::Acquire));
    }

    /// Tells the client whether a change is there that was to be done again.
    pub(super) fn tell_again(&self, (told, bytes): (&Told, u64), result: Result<()>) {
        let lsn = told.lsn;
        if result.is_ok() {
            self.note_unflushed(told, bytes);
            self.told.fetch_max(lsn, Ordering::AcqRel);
        }
        if let Some(connection) = self.connection() {
            connection.pipe.send(&frame(&ToClient::Again { lsn, result }));
        }
    }

    /// When its client was heard of last.
    pub(super) fn heard(&self) -> Nanos {
        let state = self.state.lock();
        state.connection.as_ref().map_or(state.lost, |c| c.heard())
    }

    pub(super) fn host(&self) -> Arc<Host> {
        self.state.lock().host.clone()
    }

    pub(super) fn set_host(&self, host: Host) {
        self.state.lock().host = Arc::new(host);
    }

    pub(super) fn connection(&self) -> Option<Arc<Line>> {
        self.state.lock().connection.clone()
    }

    /// Answers go there from now on. The connection before ends: what came by it is done by now, or
    /// never is. False: the session has ended, or its client must come later.
    pub(super) fn connected(&self, connection: &Arc<Line>) -> bool {
        let _hearing = self.hearing.lock();
        let mut state = self.state.lock();
        if state.ended || state.leaving || self.is_away() {
            return false;
        }
        let before = state.connection.replace(connection.clone());
        state.connections += 1;
        state.was_connected = true;
        let is_over_ipv6 = connection.pipe.peer().ip().to_canonical().is_ipv6();
        self.is_over_ipv6.store(is_over_ipv6, Ordering::Relaxed);
        self.version.store(connection.version(), Ordering::Relaxed);
        // what was said of that may have been lost with the connection before
        self.durable.store(0, Ordering::Release);
        drop(state);
        if let Some(before) = before {
            before.pipe.close();
        }
        true
    }

    /// A connection is over; whether the session has none now.
    pub(super) fn lost(&self, connection: &Arc<Line>, now: Nanos) -> bool {
        let mut state = self.state.lock();
        if state.connection.as_ref().is_some_and(|c| Arc::ptr_eq(c, connection)) {
            state.connection = None;
            state.lost = now;
        }
        state.connection.is_none()
    }

    /// Ends it if its client has been away for too long; whether it has ended. One that was not
    /// used has nothing to come back to.
    pub(super) fn expire(&self, now: Nanos) -> bool {
        let mut state = self.state.lock();
        let is_unused = state.slots.is_empty() && state.was_connected && !state.is_known;
        let time = if is_unused { UNUSED_TIME } else { AWAY_TIME };
        state.ended |= state.connection.is_none() && now.saturating_sub(state.lost) > time;
        state.ended
    }

    pub(super) fn info(&self, leases: &Leases, (now, wall): (Nanos, Nanos), locks: u64) -> SessionInfo {
        let inodes = self.refs.lock().as_ref().map_or(0, |refs| refs.len() as u64);
        let state = self.state.lock();
        let heard = state.connection.as_ref().map_or(state.lost, |c| c.heard());
        SessionInfo {
            number: self.id.number,
            host: state.host.name.clone(),
            address: state.connection.as_ref().map(|c| c.pipe.peer()),
            age: now.saturating_sub(self.since),
            silent: now.saturating_sub(heard),
            inodes,
            away: self.is_away(),
            leases: leases.count(self.id.number) as u64,
            calls: state.slots.iter().filter(|place| place.is_running()).count() as u64,
            locks,
            unflushed: self.is_lasting().then(|| self.unflushed.figures(wall)),
            users: self.logins.names(),
        }
    }

    /// Bytes that the answers to calls at work may have.
    pub(super) fn promised(&self) -> usize {
        self.promised.load(Ordering::Relaxed)
    }

    /// Whether a call is at work.
    pub(super) fn has_calls(&self) -> bool {
        self.state.lock().slots.iter().any(Place::is_running)
    }

    /// A call comes.
    pub(super) fn begin(&self, slot: Slot) -> Begun {
        if slot.place >= SLOTS_MAX {
            return wrong(slot, 0, "no slot");
        }
        let mut state = self.state.lock();
        if state.ended || self.is_away() {
            return Begun::Over;
        }
        let place = usize::from(slot.place);
        if state.slots.len() <= place {
            state.slots.resize_with(place + 1, Place::default);
        }
        let (is_known, connections) = (state.is_known, state.connections);
        let at = &mut state.slots[place];
        let is_free = at.number == 0 || !matches!(at.call, Progress::Running);
        let is_later = is_known && is_later(slot.number, at);
        let (mut given, mut done) = (None, None);
        match &mut at.call {
            _ if slot.number == next_number(at.number) && is_free => (),
            _ if is_later => (),
            _ if slot.number != at.number || slot.number == 0 => {
                return wrong(slot, at.number, at.call.name());
            }
            Progress::Running => return Begun::Running,
            // its client sent it again before it heard that, and does not wait for it any more
            Progress::Repeatable | Progress::Listed(_) if at.answered_by == Some(connections) => {
                return Begun::Running;
            }
            Progress::Answered(frame) => return Begun::Answered(frame.clone()),
            Progress::Listed(nodes) => given = Some(std::mem::take(nodes)),
            Progress::Done(told) => done = Some(*told),
            Progress::Repeatable | Progress::Lost => (),
        }
        *at = Place { number: slot.number, ..Place::default() };
        match done {
            Some(told) => Begun::Done(told),
            None => given.map_or(Begun::Run, Begun::RunAgain),
        }
    }

    /// What came of a call, if a process before has done it.
    pub(super) fn done_before(&self, slot: Slot) -> Option<Told> {
        match self.state.lock().slots.get(usize::from(slot.place)) {
            Some(Place { number, call: Progress::Done(told), .. }) if *number == slot.number => Some(*told),
            _ => None,
        }
    }

    /// What a process before has done is lost. If its client has had the answer, any later call
    /// comes next.
    pub(super) fn not_done(&self, lsn: u64) {
        let is_it = |at: &&mut Place| matches!(at.call, Progress::Done(told) if told.lsn == lsn);
        if let Some(at) = self.state.lock().slots.iter_mut().find(is_it) {
            at.call = Progress::Lost;
        }
    }

    /// A call that has begun was not run after all.
    pub(super) fn undo(&self, slot: Slot) {
        let at = &mut self.state.lock().slots[usize::from(slot.place)];
        *at = Place { number: slot.number, call: Progress::Repeatable, answered_by: None };
    }

    /// The answer to a call, of at most so many bytes, is given by this.
    pub(super) fn answer(self: &Arc<Self>, shared: &super::Shared, slot: Slot, bytes: usize) -> Answer {
        self.promised.fetch_add(bytes, Ordering::Relaxed);
        Answer {
            bytes,
            session: self.clone(),
            gate: shared.gate.clone(),
            settle: shared.settle.clone(),
            ended: shared.ended.clone(),
            hosts: shared.hosts.clone(),
            slot: Some(slot),
            coming: None,
            is_for_once: false,
        }
    }

    fn answered(
        &self,
        slot: Slot,
        result: Result<Reply>,
        (leased, told): (Leased, Option<Told>),
        is_kept: bool,
    ) {
        let is_listed = matches!(result, Ok(Reply::Entries(_)));
        let nodes: Box<[NodeId]> =
            result.iter().filter(|_| is_kept && is_listed).flat_map(Reply::references).collect();
        if let Some(told) = told {
            self.told.fetch_max(told.lsn, Ordering::AcqRel);
        }
        let frame = answer_frame(slot, result, leased, told);
        let mut state = self.state.lock();
        let connection = state.connection.clone();
        let answered_by = connection.is_some().then_some(state.connections);
        let call = match is_kept {
            true if is_listed => Progress::Listed(nodes),
            true => Progress::Answered(frame[..].into()),
            false => Progress::Repeatable,
        };
        state.slots[usize::from(slot.place)] = Place { number: slot.number, call, answered_by };
        drop(state);
        if let Some(connection) = connection {
            connection.pipe.send(&frame);
        }
    }

    /// Whether the client has a reference to the inode, or knows it without.
    pub(super) fn knows(&self, node: NodeId) -> bool {
        node == NodeId::ROOT
            || self.refs.lock().as_ref().is_some_and(|refs| refs.contains_key(&node))
            || node.is_view() && self.views.lock().contains(&node.volume())
    }

    /// The context of an operation that the host may do, and whether the server must check what the
    /// user may do.
    pub(super) fn admit(&self, caller: &Caller, op: &Op<'_>) -> Result<(Ctx, bool)> {
        let host = self.host();
        let ctx = self.user_of(&host.grant, caller, op)?;
        admit::admit(&host.grant, op, &|node| self.knows(node))?;
        if self.has_lost_lock_for(op) {
            return Err(Error::Io(WAS_SILENT.into()));
        }
        let is_restricted = host.grant.is_restricted();
        if ctx.refs && op.gives_references() && self.has_many_refs() {
            return Err(Error::Io("the host has references to too many files".into()));
        }
        // of such a host each user's rights are checked here, each time
        let keeps_copies = !is_restricted && !self.is_gateway.load(Ordering::Relaxed);
        let client = if keeps_copies { self.id.number } else { 0 };
        Ok((Ctx { client, machine: Some(self.counts.machine), ..ctx }, is_restricted))
    }

    /// The user of the cell that gives a command.
    pub(super) fn user(&self, grant: &Grant, caller: &Caller) -> Result<Ctx> {
        let caller = (self.counts.machine, caller);
        match grant.by_tokens {
            true => logins::user(&self.logins, caller),
            false => admit::user(grant, caller),
        }
    }

    fn user_of(&self, grant: &Grant, caller: &Caller, op: &Op<'_>) -> Result<Ctx> {
        let caller = (self.counts.machine, caller);
        match grant.by_tokens {
            true => logins::user_of(&self.logins, caller, op),
            false => admit::user(grant, caller),
        }
    }

    /// [`Session::admit`] for what was done before, as the client says: what the host may not do
    /// now it has to prove, and cannot.
    pub(super) fn admit_again(&self, caller: &Caller, op: &Op<'_>) -> Result<(Ctx, bool)> {
        let host = self.host();
        let ctx = self.user_of(&host.grant, caller, op)?;
        admit::admit(&host.grant, op, &|node| self.knows(node))?;
        Ok((Ctx { client: self.id.number, ..ctx }, host.grant.is_restricted()))
    }

    /// Whether its client is to get no more references. Before an operation, so that none is done
    /// whose answer cannot be given: those at work may go a little beyond.
    fn has_many_refs(&self) -> bool {
        let is_bounded = self.refs_max < usize::MAX;
        is_bounded && self.refs.lock().as_ref().is_some_and(|refs| refs.len() >= self.refs_max)
    }

    /// Notes the references that a reply has; false: the session has ended.
    fn note(&self, reply: &Reply) -> bool {
        let mut refs = self.refs.lock();
        let Some(refs) = refs.as_mut() else { return false };
        reply.references().for_each(|node| *refs.entry(node).or_default() += 1);
        true
    }

    /// Notes a reference to each of these inodes; false: the session has ended, or has too many.
    pub(super) fn note_all(&self, nodes: &[NodeId]) -> bool {
        let mut refs = self.refs.lock();
        let Some(refs) = refs.as_mut().filter(|refs| refs.len() + nodes.len() <= REFERRED_MAX) else {
            return false;
        };
        nodes.iter().for_each(|node| *refs.entry(*node).or_default() += 1);
        true
    }

    /// Takes references back: of each inode at most as many as the client has. Those taken, and the
    /// inodes that it has none of any more.
    pub(super) fn give_back(&self, all: &[(NodeId, u64)]) -> (Vec<(NodeId, u64)>, Vec<NodeId>) {
        let mut refs = self.refs.lock();
        let Some(refs) = refs.as_mut() else { return Default::default() };
        let (mut given, mut left) = (Vec::with_capacity(all.len()), Vec::new());
        for (node, count) in all {
            let held = refs.get(node).copied().unwrap_or_default();
            let count = (*count).min(held);
            if count > 0 {
                given.push((*node, count));
            }
            if count < held {
                refs.insert(*node, held - count);
            } else {
                refs.remove(node);
                left.push(*node);
            }
        }
        (given, left)
    }

    /// It is over: returns all references, and hangs up.
    pub(super) fn end(&self) -> Vec<(NodeId, u64)> {
        let mut state = self.state.lock();
        state.ended = true;
        let connection = state.connection.take();
        drop(state);
        if let Some(connection) = connection {
            connection.pipe.close();
        }
        self.refs.lock().take().unwrap_or_default().into_iter().collect()
    }
}

/// `last`: the last call in the slot, and how that is.
fn wrong(slot: Slot, last: u32, how: &str) -> Begun {
    let Slot { place, number } = slot;
    Begun::Wrong(format!(
        "a call has a number that is not its slot's next: {number} after {last} ({how}) in slot {place}"
    ))
}

/// Whether a call may come in a slot of which no more is known than a change that a process before
/// has done in it, or nothing: others may have followed.
fn is_later(number: u32, at: &Place) -> bool {
    let never = at.number == 0 && matches!(at.call, Progress::Running);
    number > 0
        && (never
            || matches!(at.call, Progress::Done(_) | Progress::Lost)
                && (1..u32::MAX / 2).contains(&number.wrapping_sub(at.number)))
}

/// The number of a slot's call after this one. Zero is the number of none.
fn next_number(number: u32) -> u32 {
    number.wrapping_add(1).max(1)
}

/// The frame of an answer. A client takes none that is too long, and would ask again and again.
fn answer_frame(slot: Slot, result: Result<Reply>, leased: Leased, told: Option<Told>) -> Vec<u8> {
    let whole = frame(&ToClient::Answer(slot, result, leased, told));
    if whole.len() - 4 <= FRAME_BYTES_MAX {
        return whole;
    }
    let text = "the answer is longer than a message may be".into();
    frame(&ToClient::Answer(slot, Err(Error::Io(text)), Leased::Nothing, None))
}

/// The answer to one call. Dropped without being given (a panic), it says EIO.
pub(super) struct Answer {
    session: Arc<Session>,
    gate: Gate,
    settle: Sender<Settled>,
    /// Whether the server takes no more calls.
    ended: Arc<AtomicBool>,
    hosts: Arc<dyn Hosts>,
    slot: Option<Slot>,
    /// What it was promised to have at most.
    bytes: usize,
    /// Its number among changes that come, if its client has told it already.
    coming: Option<u64>,
    /// Whether the call is done again when it comes again: its answer may be wrong by then.
    is_for_once: bool,
}

/// A change that is answered when the kernel of this machine has dropped what it cached of it.
pub(super) struct Settled {
    session: Arc<Session>,
    slot: Slot,
    leased: (Leased, Option<Told>),
    result: Result<Reply>,
}

impl Answer {
    /// It is not given again: the call is done again then.
    pub(super) fn for_once(mut self) -> Answer {
        self.is_for_once = true;
        self
    }

    /// Its client has told its program already what it is going to be answered.
    pub(super) fn of_told(mut self, behind: Behind, op: &Op<'_>) -> Answer {
        self.coming = Some(self.session.unflushed.comes(behind.at, op.moved_bytes()));
        self
    }

    /// Whether the call is not answered with this error: probably the cell is closed, or another
    /// server's. It was not done, and is sent again to the next server.
    pub(super) fn is_undone_by(&self, e: &Error) -> bool {
        matches!(e, Error::Io(_)) && (self.ended.load(Ordering::Acquire) || self.hosts.is_lost())
    }

    /// The call is not run, and its client sends it again.
    pub(super) fn undo(mut self) {
        if let Some(slot) = self.slot.take() {
            self.session.undo(slot);
        }
    }

    /// Answers. `like`: what was done; `None`: nothing in the file system.
    pub(super) fn give(mut self, like: Option<Like>, result: Result<Reply>) {
        let Some(slot) = self.slot.take() else { return };
        let (told, has_announced) = (sessions::take_told(), sessions::take_announced());
        let is_told = self.session.is_lasting() && like.is_some_and(|like| like.changes) && result.is_ok();
        let leased = (leased(like, &result), told.filter(|_| is_told));
        if result.as_ref().is_err_and(|e| self.is_undone_by(e)) {
            return self.session.undo(slot);
        }
        if let (Some(Like { takes_references: true, .. }), Ok(reply)) = (like, &result)
            && !self.session.note(reply)
        {
            let given: Vec<_> = reply.references().map(|node| (node, 1)).collect();
            self.gate.forget_all(system(), &given);
            return;
        }
        if let Ok(reply) = &result {
            self.session.note_views(reply);
        }
        if let (Some(told), Some(like)) = (&leased.1, like) {
            self.session.note_unflushed(told, like.bytes);
        }
        let changes = like.is_some_and(|like| like.changes);
        if changes && result.is_ok() && has_announced && self.gate.fs().is_invalidating() {
            // the thread ends with the server only
            let _ = self.settle.send(Settled { session: self.session.clone(), slot, leased, result });
            return;
        }
        let is_kept = like.map_or(!self.is_for_once, |like| like.changes || like.takes_references);
        self.session.answered(slot, result, leased, is_kept);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.session.promised.fetch_sub(self.bytes, Ordering::Relaxed);
        self.coming.into_iter().for_each(|number| self.session.unflushed.has_gone(number));
        if let Some(slot) = self.slot.take() {
            let lost = Error::Io("the operation ended in a panic".into());
            self.session.answered(slot, Err(lost), (Leased::Nothing, None), true);
        }
    }
}

/// Answers changes when the kernel of this machine has dropped what it cached of them.
pub(super) fn settle(gate: &Gate, settled: &Receiver<Settled>) {
    while let Ok(first) = settled.recv() {
        let all: Vec<Settled> = std::iter::once(first).chain(settled.try_iter()).collect();
        gate.fs().wait_invalidated();
        for Settled { session, slot, leased, result } in all {
            guarded(|| session.answered(slot, result, leased, true));
        }
    }
}

/// For what is done in nobody's name.
pub(super) fn system() -> Ctx {
    Ctx { door: Door::Remote, ..Ctx::system() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keys;
    use crate::pipe::Pipe;
    use leeward_env::Class;

    fn session() -> Session {
        let host = Host { name: "host".into(), grant: Grant::default() };
        let counts = Arc::new(Counts::new(&leeward_env::Env::real(), 0, "host"));
        Session::new(SessionId { number: 1, secret: [0; 16] }, [0; 32], (host, counts), 0)
    }

    /// Who changes what is in a directory may get a lease on that and none on the directory.
    #[test]
    fn an_answer_with_an_exclusive_lease_lets_keep_nothing_else() {
        let env = leeward_env::Env::real();
        let (leases, dir, file) = (Leases::new(&env), NodeId(5), NodeId(6));
        leases.join(1, None);
        leases.grant(1, &[file]);
        leases::take_granted();
        leases.grant_alone(1, &[file]);
        leases::note_changed(&[dir, file]);
        let ctx = Ctx { client: 1, ..Ctx::user(0, 0) };
        let like = Like::of(&ctx, &Op::Unlink { dir, name: b"x", over: leeward_fs::Precondition::Any });
        let leased = leased(Some(like), &Ok(Reply::Removed { node: file, nlink: 1 }));
        assert!(!leased.has(dir), "{leased:?}");
        assert_eq!((leased.alone(), leased.changed()), (&[file][..], &[file][..]));
    }

    /// It gets an error for what would give it one more, and nothing else: what it has it uses, and
    /// when it has returned some it gets others.
    #[test]
    fn a_host_that_refers_to_too_much_gets_no_more_references() {
        let mut session = session();
        session.refs_max = 3;
        let caller = Caller { uid: 7, gid: 7, gids: Vec::new(), class: Class::Interactive, refs: true };
        let admitted = |session: &Session, op: Op<'_>, refs: bool| {
            session.admit(&Caller { refs, ..caller.clone() }, &op).map(|_| ())
        };
        let (dir, all) = (NodeId(5), [NodeId(5), NodeId(6), NodeId(7)]);
        let lookup = || Op::Lookup { dir, name: b"x" };
        assert!(session.note_all(&all[..2]));
        assert_eq!(admitted(&session, lookup(), true), Ok(()));
        assert!(session.note_all(&all[2..]));
        assert!(matches!(admitted(&session, lookup(), true), Err(Error::Io(_))));
        assert_eq!(admitted(&session, lookup(), false), Ok(()), "it gives none");
        assert_eq!(admitted(&session, Op::GetAttr { node: dir }, true), Ok(()));
        session.give_back(&[(all[2], 1)]);
        assert_eq!(admitted(&session, lookup(), true), Ok(()));
    }

    /// Only a host that is believed in everything may have any number.
    #[test]
    fn references_of_a_host_that_is_not_believed_are_bounded() {
        let bound = |grant: Grant| {
            let host = Host { name: "host".into(), grant };
            let counts = Arc::new(Counts::new(&leeward_env::Env::real(), 0, "host"));
            Session::new(SessionId { number: 1, secret: [0; 16] }, [0; 32], (host, counts), 0).refs_max
        };
        assert_eq!(bound(Grant::default()), usize::MAX);
        assert_eq!(bound(Grant { root_squash: true, ..Grant::default() }), BOUNDED_REFS_MAX);
        assert_eq!(bound(Grant { uids: vec![(1, 9)], ..Grant::default() }), BOUNDED_REFS_MAX);
    }

    #[test]
    fn after_the_highest_number_of_a_slot_comes_the_first() {
        let session = session();
        let at = |number| Slot { place: 0, number };
        assert!(matches!(session.begin(at(1)), Begun::Run));
        session.undo(at(u32::MAX));
        assert!(matches!(session.begin(at(0)), Begun::Wrong(..)));
        assert!(matches!(session.begin(at(1)), Begun::Run));
        assert!(matches!(session.begin(at(1)), Begun::Running));
    }

    #[test]
    fn a_call_that_a_process_before_has_done_is_not_run_again() {
        let told = Told { lsn: 7, ..Told::default() };
        let record = SessionRecord { number: 1, secret: [0; 16], key: [0; 32], away: false, expelled: false };
        let session = session().known(vec![(0, Outcome { call: 5, told })], &record);
        let at = |place, number| Slot { place, number };
        for earlier in [0, 3, 4] {
            assert!(matches!(session.begin(at(0, earlier)), Begun::Wrong(..)), "{earlier}");
        }
        assert_eq!(session.done_before(at(0, 5)), Some(told));
        assert!(matches!(session.begin(at(0, 5)), Begun::Done(found) if found == told));
        assert!(matches!(session.begin(at(0, 5)), Begun::Running));
        let session = super::tests::session().known(vec![(0, Outcome { call: 5, told })], &record);
        assert!(matches!(session.begin(at(0, 6)), Begun::Run));
        assert!(matches!(session.begin(at(1, 1000)), Begun::Run), "of a slot nothing is known");
        assert!(matches!(session.begin(at(1, 1000)), Begun::Running));
        assert!(matches!(session.begin(at(1, 1002)), Begun::Wrong(..)));
    }

    #[test]
    fn a_call_that_a_process_before_has_done_and_lost_is_run_again() {
        let told = Told { lsn: 7, ..Told::default() };
        let record = SessionRecord { number: 1, secret: [0; 16], key: [0; 32], away: false, expelled: false };
        let at = |number| Slot { place: 0, number };
        let lost = || {
            let session = session().known(vec![(0, Outcome { call: 5, told })], &record);
            session.not_done(7);
            session
        };
        assert_eq!(lost().done_before(at(5)), None);
        for (number, later) in [(5, "it"), (6, "the next"), (9, "one after others that change nothing")] {
            let session = lost();
            assert!(matches!(session.begin(at(number)), Begun::Run), "{later}");
            assert!(matches!(session.begin(at(number)), Begun::Running));
        }
        assert!(matches!(lost().begin(at(4)), Begun::Wrong(_)));
    }

    #[test]
    fn a_session_is_away_only_when_nothing_can_be_lost() {
        let session = session();
        assert!(matches!(session.begin(Slot { place: 0, number: 1 }), Begun::Run));
        assert!(!session.goes_away(), "a call is at work");
        session.undo(Slot { place: 0, number: 1 });
        session.tell_again((&Told { lsn: 7, ..Told::default() }, 0), Ok(()));
        assert!(!session.goes_away(), "its client waits to hear that 7 is durable");
        session.tell_durable(7);
        assert!(session.goes_away() && session.is_away());
        assert!(matches!(session.begin(Slot { place: 0, number: 2 }), Begun::Over));
    }

    /// A connection that was heard of last at this time.
    fn line(heard: Nanos) -> Arc<Line> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        let socket = std::net::TcpStream::connect(at).expect("connected");
        let tls = Keys::from_seed(&[1; 32]).and_then(|keys| keys.server()).expect("settings");
        let tls = rustls::ServerConnection::new(tls).expect("a connection");
        Arc::new(Line::new(Pipe::new(mio::net::TcpStream::from_std(socket), at, tls.into()), heard))
    }

    #[test]
    fn a_session_that_is_noted_as_away_stays_for_two_minutes() {
        let goes_away = |session: &Session| assert!(session.goes_away());
        let is_expelled = |session: &Session| {
            session.leave();
            session.expel(None);
            session.may_come_back();
        };
        for leaves in [&goes_away as &dyn Fn(&Session), &is_expelled] {
            let (session, heard) = (session(), 5 * AWAY_TIME);
            assert!(session.connected(&line(heard)));
            assert!(matches!(session.begin(Slot { place: 0, number: 1 }), Begun::Run));
            session.undo(Slot { place: 0, number: 1 });
            leaves(&session);
            assert!(session.is_away() && session.connection().is_none());
            assert_eq!(session.heard(), heard);
            assert!(!session.expire(heard + AWAY_TIME));
            assert!(session.expire(heard + AWAY_TIME + 1));
        }
    }

    #[test]
    fn a_session_that_has_ended_takes_no_calls() {
        let session = session();
        session.state.lock().was_connected = true;
        assert!(!session.expire(UNUSED_TIME));
        assert!(matches!(session.begin(Slot { place: 0, number: 1 }), Begun::Run));
        assert!(!session.expire(2 * UNUSED_TIME), "it was used");
        assert!(session.expire(AWAY_TIME + 1));
        assert!(matches!(session.begin(Slot { place: 1, number: 1 }), Begun::Over));
    }
}
