//! Locks of this machine's programs: what they have, and who waits.
//!
//! The server's table decides. What is kept here serves three ends: an owner that has nothing is
//! not told to the server at each `close`; a server that is started anew is told what there is; and
//! a request that waits, or was given up while the server was away, is taken up again when the
//! server is back.
//!
//! A request has a ticket. It is in a slot only until the server has said that it is in line; how
//! it went comes in a message of its own. When the connection was lost that message may be lost,
//! too: so all that are in line are asked for again.
//!
//! So the server may come once more to a request that it has granted, and give the lock once more.
//! It must not do so after the owner has given it up, or nobody would know of the lock. So of a
//! ticket one call is under way at a time, whether it asks or cancels, and while one is nobody is
//! told how the request went.
//!
//! A request that nobody waits for any more (its program was killed, or its time is over, while the
//! server was away) is cancelled when the server is back; what was given meanwhile is unlocked.
//!
//! Where locks are lost, the open files fail from then on. What was asked for before may still be
//! on its way: so the server refuses changes of those files until it hears that all of that is
//! answered ([`Shared::heed`](super::Shared::heed)).

use super::slots::{Answer, Outstanding};
use super::{Client, Phase};
use crate::message::{Call, Caller};
use leeward_env::{Class, Ctx, Nanos};
use leeward_fs::locks::{
    FileLock, LockCall, LockKind, LockOwner, LockRange, LockReply, LockRequest, OwnedLock,
};
use leeward_fs::{Error, NodeId, Op, Reply, Result};
use leeward_vfs::locks::{LockAnswer, LockService, LockedRanges};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Locks of one call that tells of them.
const TOLD_MAX: usize = 4096;
/// A server keeps a session for two minutes after it has heard of it last. After that others may
/// have had its locks, also where another process serves by now.
const KEPT_FOR: Nanos = 110_000_000_000;

/// What an owner has of one file.
type Key = (NodeId, LockOwner);
type Lost = Arc<dyn Fn(NodeId, LockOwner) + Send + Sync>;

/// See the module's head.
#[derive(Default)]
pub(super) struct Locks(Mutex<State>);

#[derive(Default)]
struct State {
    held: FxHashMap<Key, Held>,
    /// Requests that are not answered, by ticket, in the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    /// Answers to programs that close files, which do not wait for a server that is away.
    closing: FxHashMap<u64, LockAnswer>,
    closed: u64,
    lost: Option<Lost>,
    /// Each change has it until it is answered, if it may have been asked for under a lock. Another
    /// one comes in its place when locks are lost.
    era: Arc<()>,
}

#[derive(Default)]
struct Held {
    ranges: LockedRanges,
    pid: u32,
    /// The server may have noted more: requests of the owner were under way beside each other, or
    /// one has failed on its way.
    unsure: bool,
}

struct Waiting {
    request: LockRequest,
    caller: Caller,
    /// `None`: nobody waits for it any more.
    answer: Option<LockAnswer>,
    /// A call about it is in a slot, or waits for one.
    is_under_way: bool,
    /// What the server has told of it meanwhile.
    told: Option<Result<()>>,
    /// The server has had it in line.
    was_in_line: bool,
    interrupted: bool,
    since: Nanos,
}

impl Waiting {
    fn key(&self) -> Key {
        (self.request.node, self.request.owner)
    }
}

impl State {
    fn given(&mut self, request: &LockRequest) {
        let held = self.held.entry((request.node, request.owner)).or_default();
        if let Ok(range) = request.lock.range.of_kind(request.owner.kind) {
            held.ranges.put(range, Some(request.lock.mode));
        }
        held.pid = request.lock.pid;
    }

    fn unlocked(&mut self, key: Key, range: LockRange) {
        let is_sure = !self.has_waiting(key);
        let Some(held) = self.held.get_mut(&key) else { return };
        if let Ok(range) = range.of_kind(key.1.kind) {
            held.ranges.put(range, None);
        }
        held.unsure |= !is_sure;
        if held.ranges.is_empty() && !held.unsure {
            self.held.remove(&key);
        }
    }

    fn has_waiting(&self, key: Key) -> bool {
        self.waiting.values().any(|waiting| waiting.key() == key)
    }

    fn doubt(&mut self, key: Key) {
        self.held.entry(key).or_default().unsure = true;
    }
}

impl Client {
    pub(super) fn lock_service(&self) -> Arc<dyn LockService> {
        Arc::new(self.clone())
    }

    /// What a change keeps until it is answered, if it may be under a lock.
    pub(super) fn under_locks(&self, op: &Op<'_>) -> Option<Arc<()>> {
        if !op.changes() {
            return None;
        }
        let state = self.0.locks.0.lock();
        (!state.held.is_empty()).then(|| state.era.clone())
    }

    /// Locks may be lost: the server is told when all is answered that was asked for until now.
    pub(super) fn begin_era(&self) {
        let before = std::mem::take(&mut self.0.locks.0.lock().era);
        self.heed_after(Arc::downgrade(&before));
    }

    fn heed_after(&self, over: Weak<()>) {
        self.0.state.lock().unheeded.push(over);
    }

    fn is_up(&self) -> bool {
        matches!(self.0.state.lock().phase, Phase::Up(_))
    }

    fn ask_about_locks(&self, caller: Caller, call: LockCall, answer: Answer) {
        self.ask(Call::Lock(caller, call), None, answer);
    }

    /// A call about a request begins; `None`: another one is under way.
    fn begin(&self, ticket: u64) -> Option<(Caller, LockRequest)> {
        let mut state = self.0.locks.0.lock();
        let waiting = state.waiting.get_mut(&ticket).filter(|waiting| !waiting.is_under_way)?;
        waiting.is_under_way = true;
        Some((waiting.caller.clone(), waiting.request))
    }

    /// Asks for a lock, or asks again.
    fn ask_for(&self, ticket: u64) {
        let Some((caller, request)) = self.begin(ticket) else { return };
        let (client, call) = (self.clone(), LockCall::Set { request, ticket });
        self.ask_about_locks(caller, call, Box::new(move |result| client.was_answered(ticket, result)));
    }

    /// The server has answered a request for a lock, or it has failed on its way.
    fn was_answered(&self, ticket: u64, result: Result<Reply>) {
        let result = match result {
            Ok(Reply::Lock(LockReply::Waits)) => return self.is_in_line(ticket),
            other => other.and_then(super::done),
        };
        if let Err(Error::Io(why)) = &result
            && !self.is_up()
        {
            return self.give_up(ticket, why);
        }
        let mut state = self.0.locks.0.lock();
        let Some(waiting) = state.waiting.get_mut(&ticket) else { return };
        // what was given stays given, also where asking again is refused
        let result = if waiting.told == Some(Ok(())) { Ok(()) } else { result };
        let (key, may_have_it) = (waiting.key(), waiting.was_in_line && result.is_err());
        if may_have_it {
            state.doubt(key);
        }
        self.let_go(state, ticket, result);
    }

    fn is_in_line(&self, ticket: u64) {
        let mut state = self.0.locks.0.lock();
        let Some(waiting) = state.waiting.get_mut(&ticket) else { return };
        (waiting.is_under_way, waiting.was_in_line) = (false, true);
        let is_over = waiting.interrupted || waiting.answer.is_none();
        match waiting.told.take() {
            Some(Ok(())) => self.let_go(state, ticket, Ok(())),
            // that may have been before it came to be in line again
            Some(Err(_)) => {
                drop(state);
                self.ask_for(ticket);
            }
            None if is_over => {
                drop(state);
                self.ask_to_cancel(ticket);
            }
            None => (),
        }
    }

    /// It is over for whoever asked. The server may know it all the same, and is told when it is
    /// back.
    fn give_up(&self, ticket: u64, why: &str) {
        let mut state = self.0.locks.0.lock();
        let Some(waiting) = state.waiting.get_mut(&ticket) else { return };
        waiting.is_under_way = false;
        let key = waiting.key();
        let answer = waiting.answer.take();
        state.doubt(key);
        drop(state);
        if let Some(answer) = answer {
            answer(Err(Error::Io(why.into())));
        }
    }

    /// The server tells how a request went that was in line.
    pub(super) fn decided(&self, ticket: u64, result: Result<()>) {
        let mut state = self.0.locks.0.lock();
        let Some(waiting) = state.waiting.get_mut(&ticket) else { return };
        if !waiting.is_under_way {
            return self.let_go(state, ticket, result);
        }
        if waiting.told != Some(Ok(())) {
            waiting.told = Some(result);
        }
    }

    /// Tells whoever waits how a request went. No call about it is under way.
    fn let_go(&self, mut state: MutexGuard<'_, State>, ticket: u64, result: Result<()>) {
        let Some(waiting) = state.waiting.remove(&ticket) else { return };
        let key = waiting.key();
        let answer = match (&result, waiting.answer) {
            (Ok(()), Some(answer)) => {
                state.given(&waiting.request);
                Some(answer)
            }
            (Ok(()), None) => {
                drop(state);
                return self.give_back(key, &waiting.request);
            }
            (Err(_), answer) => {
                // a lock of `flock` is given up before it is converted
                if key.1.kind == LockKind::Flock
                    && let Some(held) = state.held.get_mut(&key)
                    && held.ranges.iter().any(|(_, mode)| mode != waiting.request.lock.mode)
                {
                    held.ranges.put(LockRange::ALL, None);
                    held.unsure = true;
                }
                answer
            }
        };
        drop(state);
        if let Some(answer) = answer {
            answer(result);
        }
    }

    /// Nobody wants a lock that was given.
    fn give_back(&self, (node, owner): Key, request: &LockRequest) {
        self.unlock(&Ctx::user(0, 0), node, owner, request.lock.range, Box::new(drop));
    }

    fn ask_to_cancel(&self, ticket: u64) {
        if self.begin(ticket).is_none() {
            return;
        }
        let client = self.clone();
        let answer = move |result: Result<Reply>| match result {
            Ok(Reply::Lock(LockReply::NotWaiting)) => client.is_not_waiting(ticket),
            Ok(_) => client.let_go(client.0.locks.0.lock(), ticket, Err(Error::Interrupted)),
            Err(e) => client.give_up(ticket, &e.to_string()),
        };
        self.ask_about_locks(nobody(), LockCall::Cancel { ticket }, Box::new(answer));
    }

    /// The server does not have it in line. It was decided, or was never asked for.
    fn is_not_waiting(&self, ticket: u64) {
        let mut state = self.0.locks.0.lock();
        let Some(waiting) = state.waiting.get_mut(&ticket) else { return };
        waiting.is_under_way = false;
        if waiting.answer.is_none() {
            // it may have been given
            return self.let_go(state, ticket, Ok(()));
        }
        if let Some(result) = waiting.told.take() {
            return self.let_go(state, ticket, result);
        }
        // what told how it went comes yet, or was lost with a connection
        drop(state);
        self.ask_for(ticket);
    }

    /// The connection is up: what was in line is asked for again, what nobody wants is given up.
    pub(super) fn take_up_locks(&self) {
        let state = self.0.locks.0.lock();
        let all: Vec<(u64, bool)> =
            state.waiting.iter().map(|(ticket, waiting)| (*ticket, waiting.answer.is_some())).collect();
        drop(state);
        for (ticket, is_wanted) in all {
            if is_wanted { self.ask_for(ticket) } else { self.ask_to_cancel(ticket) }
        }
    }

    /// The connection is lost: nobody who closes a file waits for the next one.
    pub(super) fn end_closing(&self) {
        let closing = std::mem::take(&mut self.0.locks.0.lock().closing);
        closing.into_values().for_each(|answer| answer(Ok(())));
    }

    /// Requests that have waited since before `then` for a server that is away, which it is since
    /// `away`.
    pub(super) fn expire_locks(&self, (then, away): (Nanos, Nanos), why: &str) {
        let state = self.0.locks.0.lock();
        let over = state.waiting.iter().filter(|(_, waiting)| {
            !waiting.is_under_way && waiting.answer.is_some() && waiting.since.max(away) <= then
        });
        let over: Vec<u64> = over.map(|(ticket, _)| *ticket).collect();
        drop(state);
        over.into_iter().for_each(|ticket| self.give_up(ticket, why));
    }

    /// Calls that tell another server what there is. `is_kept`: nobody else can have had it. If
    /// not, all is lost.
    pub(super) fn tell_locks(&self, is_kept: bool) -> Vec<Outstanding> {
        let mut state = self.0.locks.0.lock();
        // of what was given up the new server knows nothing
        state.waiting.retain(|_, waiting| waiting.answer.is_some());
        state.waiting.values_mut().for_each(|waiting| waiting.told = None);
        state.held.values_mut().for_each(|held| held.unsure = false);
        let waits: Vec<Key> = state.waiting.values().map(Waiting::key).collect();
        state.held.retain(|key, held| !held.ranges.is_empty() || waits.contains(key));
        let mut all = Vec::new();
        for ((node, owner), held) in &state.held {
            let lock = |(range, mode)| FileLock { range, mode, pid: held.pid };
            all.extend(held.ranges.iter().map(|found| OwnedLock {
                node: *node,
                owner: *owner,
                lock: lock(found),
            }));
        }
        drop(state);
        if !is_kept {
            self.lose(&all);
            return Vec::new();
        }
        let under_way = Arc::new(());
        self.heed_after(Arc::downgrade(&under_way));
        let calls = all.chunks(TOLD_MAX).map(|some| {
            let (client, told, under_way) = (self.clone(), some.to_vec(), under_way.clone());
            let answer: Answer = Box::new(move |result| {
                client.were_told(&told, result);
                drop(under_way);
            });
            let call = Call::Lock(nobody(), LockCall::Tell(some.to_vec()));
            Outstanding::new(call, self.0.env.now(), None, answer)
        });
        calls.collect()
    }

    fn were_told(&self, told: &[OwnedLock], result: Result<Reply>) {
        match result {
            Ok(Reply::Lock(LockReply::Lost(positions))) => {
                let lost = positions.into_iter().filter_map(|at| told.get(at as usize).copied());
                self.lose(&lost.collect::<Vec<_>>());
            }
            _ => self.lose(told),
        }
    }

    /// The server has given these to others, while it did not hear of this client.
    pub(super) fn were_taken(&self, all: &[OwnedLock]) {
        let mut state = self.0.locks.0.lock();
        let is_taken = |key: Key| all.iter().any(|taken| (taken.node, taken.owner) == key);
        // what was given may have been taken since
        state.waiting.values_mut().filter(|waiting| is_taken(waiting.key())).for_each(|w| w.told = None);
        let is_held = |taken: &&OwnedLock| {
            let held = state.held.get(&(taken.node, taken.owner));
            held.is_some_and(|held| held.ranges.overlapping(taken.lock.range).next().is_some())
        };
        // of one that was given meanwhile no program has heard: it is asked for again
        let lost: Vec<OwnedLock> = all.iter().filter(is_held).copied().collect();
        drop(state);
        self.lose(&lost);
    }

    /// These are lost: others may have had them.
    fn lose(&self, all: &[OwnedLock]) {
        if all.is_empty() {
            return;
        }
        self.begin_era();
        let mut state = self.0.locks.0.lock();
        for OwnedLock { node, owner, lock } in all {
            let Some(held) = state.held.get_mut(&(*node, *owner)) else { continue };
            held.ranges.put(lock.range, None);
            // of some ranges the server may have been told
            held.unsure = true;
        }
        let tell = state.lost.clone();
        drop(state);
        let count = all.len();
        tracing::error!(
            "{}: {count} locks of programs are lost, as the server may have given them to others: what is done \
             by the open files that they belong to fails with EIO",
            self.0.server
        );
        for OwnedLock { node, owner, .. } in all {
            tell.iter().for_each(|tell| tell(*node, *owner));
        }
    }

    /// The mount ends: nobody is answered any more.
    pub(super) fn end_locks(&self, why: &str) {
        let mut state = self.0.locks.0.lock();
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        let answers = waiting.into_values().filter_map(|waiting| waiting.answer);
        answers.for_each(|answer| answer(Err(Error::Io(why.into()))));
        self.end_closing();
    }
}

impl LockService for Client {
    fn set(&self, ctx: &Ctx, request: LockRequest, ticket: u64, answer: LockAnswer) {
        let (caller, since) = (self.caller(ctx, &Op::GetAttr { node: request.node }), self.0.env.now());
        // what is refused at once needs no place here
        let hopeless = self.0.state.lock().hopeless(self.0.timeout, since);
        if let Some(why) = hopeless {
            return answer(Err(Error::Io(why)));
        }
        let waiting = Waiting {
            request,
            caller,
            answer: Some(answer),
            is_under_way: false,
            told: None,
            was_in_line: false,
            interrupted: false,
            since,
        };
        self.0.locks.0.lock().waiting.insert(ticket, waiting);
        self.ask_for(ticket);
    }

    fn cancel(&self, ticket: u64) {
        let mut state = self.0.locks.0.lock();
        let Some(waiting) = state.waiting.get_mut(&ticket) else { return };
        waiting.interrupted = true;
        drop(state);
        // else when the server is back, or has answered the call that is under way
        if self.is_up() {
            self.ask_to_cancel(ticket);
        }
    }

    fn unlock(&self, ctx: &Ctx, node: NodeId, owner: LockOwner, range: LockRange, answer: LockAnswer) {
        let key = (node, owner);
        let mut state = self.0.locks.0.lock();
        if state.has_waiting(key) {
            state.doubt(key);
        }
        drop(state);
        let client = self.clone();
        let answer = move |result: Result<Reply>| {
            let result = result.and_then(super::done);
            if result.is_ok() {
                client.0.locks.0.lock().unlocked(key, range);
            }
            answer(result);
        };
        let caller = self.caller(ctx, &Op::GetAttr { node });
        self.ask_about_locks(caller, LockCall::Unlock { node, owner, range }, Box::new(answer));
    }

    fn release(&self, node: NodeId, owner: LockOwner, answer: LockAnswer) {
        let is_up = self.is_up();
        let mut state = self.0.locks.0.lock();
        if state.held.remove(&(node, owner)).is_none() {
            drop(state);
            return answer(Ok(()));
        }
        let number = state.closed;
        state.closed += 1;
        state.closing.insert(number, answer);
        drop(state);
        let client = self.clone();
        let answered = move |_: Result<Reply>| {
            let answer = client.0.locks.0.lock().closing.remove(&number);
            if let Some(answer) = answer {
                answer(Ok(()));
            }
        };
        self.ask_about_locks(nobody(), LockCall::Release { node, owner }, Box::new(answered));
        if !is_up || !self.is_up() {
            self.end_closing();
        }
    }

    fn test(
        &self,
        ctx: &Ctx,
        request: LockRequest,
        answer: Box<dyn FnOnce(Result<Option<FileLock>>) + Send>,
    ) {
        let caller = self.caller(ctx, &Op::GetAttr { node: request.node });
        let answer = move |result| {
            answer(match result {
                Ok(Reply::Lock(LockReply::Free)) => Ok(None),
                Ok(Reply::Lock(LockReply::Held(lock))) => Ok(Some(lock)),
                other => other.and_then(super::done).map(|()| None),
            });
        };
        self.ask_about_locks(caller, LockCall::Test(request), Box::new(answer));
    }

    fn on_lost(&self, lost: Lost) {
        self.0.locks.0.lock().lost = Some(lost);
    }
}

/// Whether a session that was heard of last at `heard` may still have its locks.
pub(super) fn may_be_kept(heard: Nanos, now: Nanos) -> bool {
    now.saturating_sub(heard) < KEPT_FOR
}

/// For calls that are in no user's name.
fn nobody() -> Caller {
    Caller { uid: 0, gid: 0, gids: Vec::new(), class: Class::Interactive, refs: false }
}
