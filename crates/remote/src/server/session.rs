//! What the server holds of one client: its slots with answers, and its references.

use super::admit::{self, Grant};
use super::figures::Counts;
use super::line::Line;
use crate::keys::PublicKey;
use crate::message::{Caller, FRAME_BYTES_MAX, Leased, SLOTS_MAX, SessionId, Slot, ToClient, frame};
use leeward_env::{Ctx, Door, Nanos};
use leeward_fs::leases::{self, Granted, Leases};
use leeward_fs::{Error, NodeId, Op, Reply, Result};
use leeward_vfs::Gate;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// How long a session without a connection is kept, and one that was never used.
const AWAY_TIME: Nanos = 120_000_000_000;
const UNUSED_TIME: Nanos = 1_000_000_000;

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
    /// Calls at work.
    pub calls: u64,
    /// Inodes that the client may keep copies of.
    pub leases: u64,
    /// Ranges of files that its programs have locked.
    pub locks: u64,
}

/// See the module's head.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) key: PublicKey,
    since: Nanos,
    state: Mutex<State>,
    /// What its host asks for is counted there.
    pub(super) counts: Arc<Counts>,
    /// Bytes that the answers to calls at work may have.
    promised: AtomicUsize,
    /// `None`: it has ended.
    refs: Mutex<Option<FxHashMap<NodeId, u64>>>,
}

struct State {
    host: Arc<Host>,
    slots: Vec<Place>,
    connection: Option<Arc<Line>>,
    /// When the last connection was lost, or the session began.
    lost: Nanos,
    /// It is over.
    ended: bool,
}

#[derive(Default)]
struct Place {
    number: u32,
    call: Progress,
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
}

/// What becomes of a call.
pub(super) enum Begun {
    Run,
    /// After the references that it gave before were returned.
    RunAgain(Box<[NodeId]>),
    /// It is at work: the answer goes to the connection that there is then.
    Running,
    Answered(Arc<[u8]>),
    Wrong,
    /// The session has ended.
    Over,
}

/// Of an operation what its answer depends on.
#[derive(Clone, Copy)]
pub(super) struct Like {
    changes: bool,
    takes_references: bool,
    /// What the client is told of, and may keep.
    tells_of: Option<NodeId>,
}

impl Like {
    pub(super) fn of(ctx: &Ctx, op: &Op<'_>) -> Like {
        let takes_references = ctx.refs && op.gives_references();
        Like { changes: op.changes(), takes_references, tells_of: tells_of(op).filter(|_| ctx.client > 0) }
    }
}

/// What of an answer the client may keep: of what it tells, that on which the client has got leases.
fn leased(like: Option<Like>, result: &Result<Reply>) -> Leased {
    let Granted { nodes, snapshot_dir } = leases::take_granted();
    let Some(of) = like.and_then(|like| like.tells_of).filter(|_| !nodes.is_empty()) else {
        return Leased::Nothing;
    };
    let granted: FxHashSet<NodeId> = nodes.into_iter().collect();
    let told = std::iter::once(of).chain(result.iter().flat_map(Reply::references));
    Leased::AllBut { others: told.filter(|node| !granted.contains(node)).collect(), snapshot_dir }
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
        let state =
            State { host: Arc::new(host), slots: Vec::new(), connection: None, lost: now, ended: false };
        Session {
            id,
            key,
            since: now,
            state: Mutex::new(state),
            counts,
            promised: AtomicUsize::new(0),
            refs: Mutex::new(Some(FxHashMap::default())),
        }
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

    /// Answers go there from now on. The connection before ends. False: the session has ended.
    pub(super) fn connected(&self, connection: &Arc<Line>) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        let before = state.connection.replace(connection.clone());
        drop(state);
        if let Some(before) = before {
            before.pipe.close();
        }
        true
    }

    pub(super) fn lost(&self, connection: &Arc<Line>, now: Nanos) {
        let mut state = self.state.lock();
        if state.connection.as_ref().is_some_and(|c| Arc::ptr_eq(c, connection)) {
            state.connection = None;
            state.lost = now;
        }
    }

    /// Ends it if its client has been away for too long; whether it has ended. One that was not used has
    /// nothing to come back to.
    pub(super) fn expire(&self, now: Nanos) -> bool {
        let mut state = self.state.lock();
        let time = if state.slots.is_empty() { UNUSED_TIME } else { AWAY_TIME };
        state.ended |= state.connection.is_none() && now.saturating_sub(state.lost) > time;
        state.ended
    }

    pub(super) fn info(&self, leases: &Leases, now: Nanos, locks: u64) -> SessionInfo {
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
            leases: leases.count(self.id.number) as u64,
            calls: state.slots.iter().filter(|place| place.is_running()).count() as u64,
            locks,
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
            return Begun::Wrong;
        }
        let mut state = self.state.lock();
        if state.ended {
            return Begun::Over;
        }
        let place = usize::from(slot.place);
        if state.slots.len() <= place {
            state.slots.resize_with(place + 1, Place::default);
        }
        let at = &mut state.slots[place];
        let is_free = at.number == 0 || !matches!(at.call, Progress::Running);
        let mut given = None;
        match &mut at.call {
            _ if slot.number == next_number(at.number) && is_free => (),
            _ if slot.number != at.number || slot.number == 0 => return Begun::Wrong,
            Progress::Running => return Begun::Running,
            Progress::Answered(frame) => return Begun::Answered(frame.clone()),
            Progress::Listed(nodes) => given = Some(std::mem::take(nodes)),
            Progress::Repeatable => (),
        }
        *at = Place { number: slot.number, call: Progress::Running };
        given.map_or(Begun::Run, Begun::RunAgain)
    }

    /// A call that has begun was not run after all.
    pub(super) fn undo(&self, slot: Slot) {
        let at = &mut self.state.lock().slots[usize::from(slot.place)];
        *at = Place { number: slot.number, call: Progress::Repeatable };
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
            slot: Some(slot),
        }
    }

    fn answered(&self, slot: Slot, result: Result<Reply>, leased: Leased, is_kept: bool) {
        let is_listed = matches!(result, Ok(Reply::Entries(_)));
        let nodes: Box<[NodeId]> =
            result.iter().filter(|_| is_kept && is_listed).flat_map(Reply::references).collect();
        let frame = answer_frame(slot, result, leased);
        let mut state = self.state.lock();
        let at = &mut state.slots[usize::from(slot.place)];
        at.call = match is_kept {
            true if is_listed => Progress::Listed(nodes),
            true => Progress::Answered(frame[..].into()),
            false => Progress::Repeatable,
        };
        let connection = state.connection.clone();
        drop(state);
        if let Some(connection) = connection {
            connection.pipe.send(&frame);
        }
    }

    /// Whether the client has a reference to the inode, or knows it without.
    pub(super) fn knows(&self, node: NodeId) -> bool {
        node == NodeId::ROOT || self.refs.lock().as_ref().is_some_and(|refs| refs.contains_key(&node))
    }

    /// The context of an operation that the host may do, and whether the server must check what the
    /// user may do.
    pub(super) fn admit(&self, caller: &Caller, op: &Op<'_>) -> Result<(Ctx, bool)> {
        let host = self.host();
        let ctx = admit::admit(&host.grant, caller, op, &|node| self.knows(node))?;
        let is_restricted = host.grant.is_restricted();
        // of such a host each user's rights are checked here, each time
        let client = if is_restricted { 0 } else { self.id.number };
        Ok((Ctx { client, ..ctx }, is_restricted))
    }

    /// Notes the references that a reply has; false: the session has ended.
    fn note(&self, reply: &Reply) -> bool {
        let mut refs = self.refs.lock();
        let Some(refs) = refs.as_mut() else { return false };
        reply.references().for_each(|node| *refs.entry(node).or_default() += 1);
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

/// The number of a slot's call after this one. Zero is the number of none.
fn next_number(number: u32) -> u32 {
    number.wrapping_add(1).max(1)
}

/// The frame of an answer. A client takes none that is too long, and would ask again and again.
fn answer_frame(slot: Slot, result: Result<Reply>, leased: Leased) -> Vec<u8> {
    let whole = frame(&ToClient::Answer(slot, result, leased));
    if whole.len() - 4 <= FRAME_BYTES_MAX {
        return whole;
    }
    let text = "the answer is longer than a message may be".into();
    frame(&ToClient::Answer(slot, Err(Error::Io(text)), Leased::Nothing))
}

/// The answer to one call. Dropped without being given (a panic), it says EIO.
pub(super) struct Answer {
    session: Arc<Session>,
    gate: Gate,
    settle: Sender<Settled>,
    /// Whether the server takes no more calls.
    ended: Arc<AtomicBool>,
    slot: Option<Slot>,
    /// What it was promised to have at most.
    bytes: usize,
}

/// A change that is answered when the kernel of this machine has dropped what it cached of it.
pub(super) struct Settled {
    session: Arc<Session>,
    slot: Slot,
    leased: Leased,
    result: Result<Reply>,
}

impl Answer {
    /// Answers. `like`: what was done; `None`: nothing in the file system.
    pub(super) fn give(mut self, like: Option<Like>, result: Result<Reply>) {
        let Some(slot) = self.slot.take() else { return };
        let leased = leased(like, &result);
        if matches!(result, Err(Error::Io(_))) && self.ended.load(Ordering::Acquire) {
            // probably the cell is closed: it was not done, and is sent again to the next server
            return self.session.undo(slot);
        }
        if let (Some(Like { takes_references: true, .. }), Ok(reply)) = (like, &result)
            && !self.session.note(reply)
        {
            let given: Vec<_> = reply.references().map(|node| (node, 1)).collect();
            self.gate.forget_all(system(), &given);
            return;
        }
        let changes = like.is_some_and(|like| like.changes);
        if changes && result.is_ok() && self.gate.fs().is_invalidating() {
            // the thread ends with the server only
            let _ = self.settle.send(Settled { session: self.session.clone(), slot, leased, result });
            return;
        }
        let is_kept = like.is_none_or(|like| like.changes || like.takes_references);
        self.session.answered(slot, result, leased, is_kept);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.session.promised.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(slot) = self.slot.take() {
            let lost = Error::Io("the operation ended in a panic".into());
            self.session.answered(slot, Err(lost), Leased::Nothing, true);
        }
    }
}

/// Answers changes when the kernel of this machine has dropped what it cached of them.
pub(super) fn settle(gate: &Gate, settled: &Receiver<Settled>) {
    while let Ok(first) = settled.recv() {
        let all: Vec<Settled> = std::iter::once(first).chain(settled.try_iter()).collect();
        gate.fs().wait_invalidated();
        for Settled { session, slot, leased, result } in all {
            session.answered(slot, result, leased, true);
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

    fn session() -> Session {
        let host = Host { name: "host".into(), grant: Grant::default() };
        let counts = Arc::new(Counts::new(&leeward_env::Env::real(), 0));
        Session::new(SessionId { number: 1, secret: [0; 16] }, [0; 32], (host, counts), 0)
    }

    #[test]
    fn after_the_highest_number_of_a_slot_comes_the_first() {
        let session = session();
        let at = |number| Slot { place: 0, number };
        assert!(matches!(session.begin(at(1)), Begun::Run));
        session.state.lock().slots[0] = Place { number: u32::MAX, call: Progress::Repeatable };
        assert!(matches!(session.begin(at(0)), Begun::Wrong));
        assert!(matches!(session.begin(at(1)), Begun::Run));
        assert!(matches!(session.begin(at(1)), Begun::Running));
    }

    #[test]
    fn a_session_that_has_ended_takes_no_calls() {
        let session = session();
        assert!(!session.expire(UNUSED_TIME));
        assert!(matches!(session.begin(Slot { place: 0, number: 1 }), Begun::Run));
        assert!(!session.expire(2 * UNUSED_TIME), "it was used");
        assert!(session.expire(AWAY_TIME + 1));
        assert!(matches!(session.begin(Slot { place: 1, number: 1 }), Begun::Over));
    }
}
