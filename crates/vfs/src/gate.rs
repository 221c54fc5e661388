//! Gate 1: the requests of every front end pass here to the file system, in an order that is fair
//! between flows.
//!
//! A front end has a few threads that read requests. While one user is alone, each thread runs what
//! it has read, at once and without a copy. As soon as a second user comes, one of the threads is
//! left to read: only as many operations run at once as there are **slots**, one less than threads.
//! A request that finds no slot is queued with its bytes and its reply. So the queue here, and not
//! the kernel's (first come, first served), decides which request is next. When an operation ends,
//! its thread takes the next request from the queue.
//!
//! An operation that would wait answers `WouldBlock` and is repeated on a thread that may wait
//! (`waiting`). A panic in the file system becomes an error here. Every operation is entered in the
//! [`Ledger`]: what it cost, what it waited for, behind whom.
//!
//! The operator's settings for users count here (`user_shares`): weights also where threads are
//! given out. A user over a ceiling stays queued. The thread `alarm`, or the next operation that
//! ends, releases the request. Jobs (`jobs`) are lines of their own in the queue; below the gate a
//! flow is a user. Questions about users and processes are asked on a thread that may wait
//! (`asking`).
//!
//! Locks: the gate's, then that of jobs; held for a few instructions, never while an operation runs
//! or is answered.

mod alarm;
mod asking;
mod failures;
mod runners;

use crate::OwnedOp;
use crate::background::{Background, Meeting};
use crate::held::{Held, Hold};
use crate::jobs::Jobs;
use crate::ledger::{Account, Ledger, Outcome, Queues, Report, Totals};
use crate::locks::LockTable;
use crate::owners::Owners;
use crate::people::{People, UnknownUsers};
use crate::user_shares::UserShares;
use crate::waiting::Waiting;
use failures::FailureLog;
use leeward_env::waits::{self, Cause, Waits};
use leeward_env::{Ctx, Door, Env, Flow, Nanos, Term, Wait, panic_text};
use leeward_fs::flows::FlowSettings;
use leeward_fs::{Engine, Error, NodeId, Op, Reply, Result};
use leeward_gate::{FairQueue, Line, Share, Turn};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Bytes of queued requests. Above this, a thread runs what it has read rather than read more.
const QUEUED_BYTES_MAX: usize = 64 << 20;

/// FORGETs of one turn: about as long as one other operation.
const FORGETS_AT_ONCE: usize = 16;

/// After two users came in turn, one thread is left to read for this time, nanoseconds.
const SHARED_FOR: Nanos = 10_000_000_000;

/// How often an operation that waits for the server's term looks at it.
const TERM_STEP: Duration = Duration::from_millis(5);

/// Settings of a gate.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads with which a front end reads requests, at least 2. This many operations run at once,
    /// and one less while users share.
    pub threads: usize,
    /// Whether the gate makes anything wait. If not, all requests pass at once and only the ledger
    /// is kept: to measure what the gate costs and gives.
    pub fair: bool,
    /// Whether the jobs of a user are told apart, see [`People::job_of`].
    pub jobs: bool,
}

impl Options {
    /// As many threads as this machine has cores, up to four: more only wait for each other.
    pub fn usual() -> Options {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Options { threads: cores.clamp(2, 4), fair: true, jobs: false }
    }
}

/// Gate 1 of a file system. Cheap to clone.
#[derive(Clone)]
pub struct Gate(pub(crate) Arc<Shared>, Turns);

/// Who runs what is queued when a thread of the mount has run its own request.
#[derive(Clone)]
enum Turns {
    /// That thread, until nothing is queued.
    Taken,
    /// That thread, one at a time, when it calls [`Gate::take_turn`].
    AskedFor { _until_dropped: Arc<EachReads> },
    /// Another thread, as that one may be any.
    Elsewhere,
}

/// While this lives every thread reads requests of its own.
struct EachReads(Weak<Shared>);

impl Drop for EachReads {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.state.lock().each_reads = false;
        }
    }
}

pub(crate) struct Shared {
    fs: Arc<dyn Engine>,
    env: Env,
    options: Options,
    people: Arc<dyn People>,
    state: Mutex<GateState>,
    /// Wakes the thread that watches ceilings.
    alarm: Condvar,
    /// Wakes the threads that run turns of doors.
    runner: Condvar,
    jobs: Mutex<Jobs>,
    waiting: Waiting,
    /// The same for changes that a machine has told its programs of: others of the same user may
    /// wait until that machine has sent them.
    told: Waiting,
    /// Bytes of waiting requests.
    held: Held,
    failures: FailureLog,
    /// Where other machines mount the cell.
    locks: OnceLock<Arc<LockTable>>,
    /// Where several servers share it.
    term: OnceLock<Term>,
}

#[derive(Default)]
struct GateState {
    queue: FairQueue<Queued>,
    queued_bytes: usize,
    /// Steps of background work that run in addition to the slots.
    beside: usize,
    /// Flows of the running operations.
    inside: Vec<Flow>,
    /// The flow of the last request.
    last_flow: Option<Flow>,
    /// Until when users count as sharing.
    shared_until: Nanos,
    ledger: Ledger,
    shares: UserShares,
    owners: Owners,
    runners: runners::Runners,
    /// Whether every thread reads requests of its own, so that none need be left to read.
    each_reads: bool,
    /// When the thread that watches ceilings looks again; `None`: there is none.
    alarm_at: Option<Nanos>,
}

/// A request that waits for its turn.
struct Queued {
    arrival: Arrival,
    /// What it waits for: its turn, or its user's ceiling.
    cause: Cause,
    /// A flow that was running when it arrived.
    behind: Option<Flow>,
    bytes: usize,
    /// Whether its thread only waits for another one, which does a step of background work.
    stands_by: bool,
    job: Job,
}

/// How much of an operation is kept while it waits.
#[derive(Clone, Copy)]
enum Keep {
    Whole,
    /// Of a write, as much as its user may have waiting.
    Part,
}

/// An operation that waits, with its bytes counted.
struct Kept {
    op: OwnedOp,
    _hold: Hold,
}

impl Kept {
    // Closures call these rather than use the field: they would capture that alone, without the
    // hold.

    fn as_op(&self) -> Op<'_> {
        self.op.as_op()
    }

    fn shape(&self) -> Op<'static> {
        self.op.shape()
    }
}

/// The result of an attempt at a request of several operations.
#[derive(Debug)]
pub enum Attempt<R> {
    /// It is answered.
    Done(Outcome),
    /// It must wait: its state, to continue with on a thread that may.
    Wait(R),
}

/// What a queued request does with its turn.
pub(crate) type Job = Box<dyn FnOnce(&Gate, Arrival) -> Option<Account> + Send>;

/// A request at the gate.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    ctx: Ctx,
    /// The user with the job: below the gate a flow is a user.
    line: Line,
    /// Weight and ceilings of the user.
    share: Share,
    /// Bytes that it reads or writes.
    bytes: u64,
    /// Whether a user asks: the kernel returns references in nobody's name.
    asked: bool,
    at: Nanos,
    waits: Waits,
}

impl Gate {
    /// A gate before a file system.
    pub fn new(fs: Arc<dyn Engine>, env: &Env, options: Options) -> Gate {
        Gate::with_people(fs, env, options, Arc::new(UnknownUsers))
    }

    /// A gate that gets groups of users and jobs of processes from `people`.
    pub fn with_people(fs: Arc<dyn Engine>, env: &Env, options: Options, people: Arc<dyn People>) -> Gate {
        let (waiting, told, failures) = (Waiting::new(env), Waiting::new(env), FailureLog::new(env));
        let gate = Gate::of(Arc::new(Shared {
            fs,
            env: env.clone(),
            options,
            people,
            state: Mutex::default(),
            alarm: Condvar::new(),
            runner: Condvar::new(),
            jobs: Mutex::default(),
            waiting,
            told,
            held: Held::default(),
            failures,
            locks: OnceLock::new(),
            term: OnceLock::new(),
        }));
        if options.fair {
            gate.fs().give_turns(Arc::new(Background(Arc::downgrade(&gate.0))));
        }
        gate
    }

    /// The table of locks of programs on all machines. `grace`: a new table is for a cell whose
    /// clients may have locks.
    pub fn share_locks(&self, grace: impl FnOnce() -> bool) -> Arc<LockTable> {
        self.0.locks.get_or_init(|| Arc::new(LockTable::new(&self.0.env, grace()))).clone()
    }

    /// Operations run only while this term lasts, else they wait for it: out of it another server
    /// may have changed what they would answer from. Once.
    pub fn answer_within(&self, term: Term) {
        let _ = self.0.term.set(term);
    }

    /// Waits until the term lasts.
    ///
    /// # Errors
    /// `WouldBlock` where the caller must not wait; Io when it is over for ever.
    fn await_term(&self, term: &Term, wait: Wait) -> Result<()> {
        while !term.holds(self.0.env.now()) {
            if term.is_over() {
                return Err(Error::Io("another server has the cell now".into()));
            }
            if wait == Wait::Never {
                return Err(Error::WouldBlock);
            }
            self.0.env.sleep(TERM_STEP);
            waits::note(Cause::Term, None, TERM_STEP.as_nanos() as u64);
        }
        Ok(())
    }

    /// That table, if there is one.
    pub fn locks(&self) -> Option<Arc<LockTable>> {
        self.0.locks.get().cloned()
    }

    pub(crate) fn of(shared: Arc<Shared>) -> Gate {
        Gate(shared, Turns::Taken)
    }

    /// The same gate for threads each of which reads requests of its own between turns: it runs
    /// what is queued one at a time, by [`Gate::take_turn`]. None is left to read only, so all
    /// slots are given out.
    pub fn with_turns_asked_for(&self) -> Gate {
        self.0.state.lock().each_reads = true;
        Gate(self.0.clone(), Turns::AskedFor { _until_dropped: Arc::new(EachReads(Arc::downgrade(&self.0))) })
    }

    /// The same gate for operations that begin where another one is answered, which may be on any
    /// thread.
    pub fn with_turns_elsewhere(&self) -> Gate {
        Gate(self.0.clone(), Turns::Elsewhere)
    }

    /// Whether something is queued for [`Gate::take_turn`].
    pub fn has_turns(&self) -> bool {
        !self.0.state.lock().queue.is_empty()
    }

    /// Runs one operation that is queued, if there is a slot for it; else false.
    pub fn take_turn(&self) -> bool {
        let now = self.0.env.now();
        let mut state = self.0.state.lock();
        if state.queue.is_empty() {
            return false;
        }
        let next = state.next(self.0.options, now);
        self.watch_ceilings(&mut state);
        // This thread has requests to read meanwhile. What a door asked for may have to wait
        // until the kernel has dropped a name, and so for a request that this thread would read.
        let next = match next {
            Some((turn, queued)) if queued.stands_by || queued.arrival.ctx.door != Door::Mount => {
                match self.hand_over(&mut state, (turn, queued)) {
                    None => return true,
                    refused => refused,
                }
            }
            next => next,
        };
        drop(state);
        let Some((turn, queued)) = next else { return false };
        let (mut state, _) = self.run_turn(turn, queued);
        self.watch_ceilings(&mut state);
        true
    }

    /// Other weights and ceilings count from now on, also for what waits.
    pub fn set_flows(&self, settings: FlowSettings) {
        let state = &mut *self.0.state.lock();
        state.shares.set(settings);
        let now = self.0.env.now();
        state.queue.advance(now);
        state.queue.set_shares(|uid| state.shares.of(uid, now).0);
        if !state.queue.is_empty() {
            self.look_at(state, now);
        }
    }

    /// The file system behind the gate.
    pub fn fs(&self) -> &Arc<dyn Engine> {
        &self.0.fs
    }

    /// Threads that a front end needs to read requests.
    pub fn reading_threads(&self) -> usize {
        self.0.options.threads
    }

    /// What flows have used and waited so far.
    pub fn report(&self) -> Report {
        let for_thread = self.0.for_thread();
        let now = self.0.env.now();
        let state = self.0.state.lock();
        let jobs = self.0.jobs.lock();
        state.ledger.report(state.waiting(for_thread), |job| jobs.name(job), now)
    }

    /// Sums over flows, for metrics.
    pub fn totals(&self) -> Totals {
        let for_thread = self.0.for_thread();
        let state = self.0.state.lock();
        state.ledger.totals(state.waiting(for_thread))
    }

    /// Runs one operation on this thread, now: for a caller that has its turn already.
    pub fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        if let Some(term) = self.0.term.get() {
            self.await_term(term, ctx.wait)?;
        }
        let result = catch_unwind(AssertUnwindSafe(|| self.0.fs.call(ctx, op)))
            .unwrap_or_else(|panic| Err(Error::Io(format!("panic: {}", panic_text(&*panic)))));
        if let Err(e @ (Error::Io(_) | Error::Corrupt(_))) = &result {
            self.0.failures.failure(ctx, &op, e);
        }
        result
    }

    /// Runs one operation when it is its turn and answers it.
    pub fn run(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        if op.usually_waits() {
            return self.run_waiting(ctx, op, answer);
        }
        self.run_op(ctx, (op, Keep::Whole), answer);
    }

    /// Runs a write that may be answered short. Where it has to wait and its user has too many
    /// bytes waiting already, only its first piece is written.
    pub fn run_in_part(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        self.run_op(ctx, (op, Keep::Part), answer);
    }

    fn run_op(
        &self,
        ctx: Ctx,
        (op, keep): (Op<'_>, Keep),
        answer: impl FnOnce(Result<Reply>) + Send + 'static,
    ) {
        let mut arrival = self.arrive(ctx, op.moved_bytes());
        arrival.asked = !matches!(op, Op::Forget { .. });
        if let Some(turn) = self.pass(&mut arrival) {
            let account = caught(|| self.attempt(arrival, (op, keep), answer));
            return self.leave(turn, &arrival, account);
        }
        let kept = self.keep(&arrival, (op, keep));
        let bytes = kept.op.byte_count();
        self.queue(arrival, bytes, move |gate, arrival| gate.attempt_kept(arrival, kept, answer));
    }

    /// Copies a request that waits, and counts its bytes.
    fn keep(&self, arrival: &Arrival, (op, keep): (Op<'_>, Keep)) -> Kept {
        let uid = arrival.line.flow.uid;
        match (op, keep) {
            (Op::Write { node, offset, data }, Keep::Part) => {
                let hold = self.0.held.part(uid, offset, data.len());
                let op = Op::Write { node, offset, data: &data[..hold.bytes()] };
                Kept { op: op.into(), _hold: hold }
            }
            _ => {
                let op = OwnedOp::from(op);
                let hold = self.0.held.whole(uid, op.byte_count());
                Kept { op, _hold: hold }
            }
        }
    }

    /// Runs one operation that usually waits, on a thread that may.
    fn run_waiting(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        let mut arrival = self.arrive(ctx, 0);
        let may_begin = self.may_begin(&mut arrival);
        let kept = self.keep(&arrival, (op, Keep::Whole));
        if may_begin {
            return self.wait_with(arrival, kept, answer);
        }
        let go = move |gate: &Gate, arrival| {
            gate.wait_with(arrival, kept, answer);
            None
        };
        self.queue(arrival, 0, go);
    }

    /// Runs a request of several operations when it is its turn. `attempt` makes the operations by
    /// [`Gate::call`] with the context it is given. It answers the request and reports the result,
    /// or returns its state when it would have to wait; then it is repeated on a thread that may.
    /// `like`: the operation as which it is accounted for. `bytes`: what counts against a ceiling.
    pub fn run_all<R: Send + 'static>(
        &self,
        ctx: Ctx,
        (like, bytes): (Op<'static>, u64),
        request: R,
        attempt: impl Fn(&Ctx, R) -> Attempt<R> + Send + 'static,
    ) {
        let mut arrival = self.arrive(ctx, bytes);
        arrival.asked = !matches!(like, Op::Forget { .. });
        let perform = move |gate: &Gate, arrival: Arrival| {
            waits::take();
            match attempt(&arrival.ctx.with_wait(Wait::Never), request) {
                Attempt::Done(outcome) => Some(gate.account(&arrival, &like, outcome)),
                Attempt::Wait(request) => {
                    let run = move |ctx: &Ctx| match attempt(ctx, request) {
                        Attempt::Done(outcome) => outcome,
                        // a bug: the request is lost, and its caller learns of it by that
                        Attempt::Wait(_) => Outcome { failed: true, ..Outcome::default() },
                    };
                    gate.wait_for(arrival, like, run);
                    None
                }
            }
        };
        match self.pass(&mut arrival) {
            Some(turn) => {
                let account = caught(|| perform(self, arrival));
                self.leave(turn, &arrival, account);
            }
            None => self.queue(arrival, 0, perform),
        }
    }

    /// Runs a step of background work in a volume on this thread, when it is its turn.
    pub(crate) fn background(&self, ctx: &Ctx, volume: u32, step: &mut dyn FnMut()) {
        let at = self.0.env.now();
        let line = Line { flow: ctx.flow, class: ctx.class };
        let (share, waits) = (Share::USUAL, Waits::NONE);
        let mut arrival = Arrival { ctx: *ctx, line, share, bytes: 0, asked: false, at, waits };
        let mut state = self.0.state.lock();
        let behind = state.most_inside(ctx.flow);
        let (beside, slot) = if state.running() < state.slots(self.0.options, at) {
            state.beside += 1;
            (Some(state.enter(&arrival)), None)
        } else {
            let meeting = Arc::new(Meeting::default());
            // one of those who hold the slots will come upon it
            state.push(arrival, (0, true), Meeting::slot_job(&meeting));
            (None, Some(meeting))
        };
        drop(state);
        let running = slot.map(Meeting::wait_for_turn);
        let begun = self.0.env.now();
        arrival.waits.add(Cause::Turn, behind, begun.saturating_sub(at));
        waits::take();
        let done = catch_unwind(AssertUnwindSafe(step));
        arrival.waits.add_all(&waits::take());
        let now = self.0.env.now();
        let mut state = self.0.state.lock();
        if let Some(turn) = beside {
            state.beside -= 1;
            state.left(&turn);
            state.queue.done(turn, now.saturating_sub(begun));
        }
        state.ledger.enter_work((ctx.flow, volume), (at, begun, now), &arrival.waits);
        drop(state);
        drop(running);
        if let Err(panic) = done {
            resume_unwind(panic);
        }
    }

    /// Returns references.
    pub fn forget(&self, ctx: Ctx, node: NodeId, count: u64) {
        self.run(ctx, Op::Forget { node, count }, |_| ());
    }

    /// Returns references on many inodes, some at each turn.
    pub fn forget_all(&self, ctx: Ctx, all: &[(NodeId, u64)]) {
        for some in all.chunks(FORGETS_AT_ONCE) {
            let (gate, like) = (self.clone(), Op::Forget { node: some[0].0, count: 0 });
            self.run_all(ctx, (like, 0), some.to_vec(), move |ctx, some| gate.forget_some(ctx, some));
        }
    }

    fn forget_some(&self, ctx: &Ctx, mut some: Vec<(NodeId, u64)>) -> Attempt<Vec<(NodeId, u64)>> {
        while let Some((node, count)) = some.pop() {
            if let Err(Error::WouldBlock) = self.call(ctx, Op::Forget { node, count }) {
                some.push((node, count));
                return Attempt::Wait(some);
            }
        }
        Attempt::Done(Outcome::default())
    }

    fn arrive(&self, ctx: Ctx, bytes: u64) -> Arrival {
        let at = self.0.env.now();
        if self.0.options.fair {
            self.0.fs.users_ask(at);
        }
        let job = self.job_of(&ctx, at);
        let line = Line { flow: Flow { job, ..ctx.flow }, class: ctx.class };
        Arrival { ctx, line, share: Share::USUAL, bytes, asked: true, at, waits: Waits::NONE }
    }

    /// A turn at once, if a slot is free and nobody waits for one (or the gate decides nothing).
    fn pass(&self, arrival: &mut Arrival) -> Option<Turn> {
        self.see(arrival, |state, arrival, options| state.pass(options, arrival))
    }

    /// Whether an operation that needs no turn may begin: its user's ceiling may hold it back.
    fn may_begin(&self, arrival: &mut Arrival) -> bool {
        self.see(arrival, |state, arrival, options| state.may_begin(options, arrival))
    }

    /// Notes the caller and its share, and decides under the same lock.
    fn see<R>(
        &self,
        arrival: &mut Arrival,
        decide: impl FnOnce(&mut GateState, &Arrival, Options) -> R,
    ) -> R {
        let mut state = self.0.state.lock();
        let (groups, owners) = (state.see(arrival), state.owners.are_old(arrival.at));
        self.0.fs.users_share(state.shared_until);
        let decision = decide(&mut state, arrival, self.0.options);
        drop(state);
        if groups {
            self.find_groups();
        }
        if owners {
            self.find_owners();
        }
        decision
    }

    /// Waits for a turn without holding the thread; takes it here if a slot has become free
    /// meanwhile.
    fn queue(
        &self,
        arrival: Arrival,
        bytes: usize,
        job: impl FnOnce(&Gate, Arrival) -> Option<Account> + Send + 'static,
    ) {
        let mut state = self.0.state.lock();
        state.push(arrival, (bytes, false), Box::new(job));
        self.go_on(state, arrival.ctx.door, arrival.at);
    }

    /// Ends a turn and starts the next ones, until there are none or other threads do it.
    fn leave(&self, turn: Turn, arrival: &Arrival, account: Option<Account>) {
        let (state, now) = self.end(turn, arrival.at, account);
        self.go_on(state, arrival.ctx.door, now);
    }

    /// A thread that reads the kernel's requests runs what is next. A door's has sockets to serve:
    /// another thread does it then.
    fn go_on(&self, mut state: MutexGuard<'_, GateState>, door: Door, now: Nanos) {
        let next = match (door, &self.1) {
            (Door::Mount, Turns::Taken) => state.next(self.0.options, now),
            (Door::Mount, Turns::AskedFor { .. }) => None,
            _ => self.run_elsewhere(&mut state, now),
        };
        self.watch_ceilings(&mut state);
        drop(state);
        self.run_turns(next);
    }

    fn run_turns(&self, mut next: Option<(Turn, Queued)>) {
        while let Some((turn, queued)) = next {
            let (mut state, now) = self.run_turn(turn, queued);
            next = state.next(self.0.options, now);
            self.watch_ceilings(&mut state);
        }
    }

    fn run_turn(&self, turn: Turn, queued: Queued) -> (MutexGuard<'_, GateState>, Nanos) {
        let begun = self.0.env.now();
        let mut arrival = queued.arrival;
        arrival.waits.add(queued.cause, queued.behind, begun.saturating_sub(arrival.at));
        let account = caught(|| (queued.job)(self, arrival));
        self.end(turn, begun, account)
    }

    fn end(&self, turn: Turn, begun: Nanos, account: Option<Account>) -> (MutexGuard<'_, GateState>, Nanos) {
        let now = self.0.env.now();
        let cost = now.saturating_sub(begun);
        let mut state = self.0.state.lock();
        state.left(&turn);
        state.queue.done(turn, cost);
        if let Some(account) = account {
            state.ledger.enter(account, cost, now);
        }
        (state, now)
    }

    /// One attempt that may not wait; `None` when the operation continues elsewhere.
    fn attempt(
        &self,
        arrival: Arrival,
        (op, keep): (Op<'_>, Keep),
        answer: impl FnOnce(Result<Reply>) + Send + 'static,
    ) -> Option<Account> {
        match self.try_now(&arrival, op) {
            Err(Error::WouldBlock) => {
                self.wait_with(arrival, self.keep(&arrival, (op, keep)), answer);
                None
            }
            result => Some(self.answer(&arrival, &op, result, answer)),
        }
    }

    /// One attempt with an operation that is copied already.
    fn attempt_kept(
        &self,
        arrival: Arrival,
        kept: Kept,
        answer: impl FnOnce(Result<Reply>) + Send + 'static,
    ) -> Option<Account> {
        match self.try_now(&arrival, kept.as_op()) {
            Err(Error::WouldBlock) => {
                self.wait_with(arrival, kept, answer);
                None
            }
            result => Some(self.answer(&arrival, &kept.shape(), result, answer)),
        }
    }

    fn try_now(&self, arrival: &Arrival, op: Op<'_>) -> Result<Reply> {
        waits::take();
        self.call(&arrival.ctx.with_wait(Wait::Never), op)
    }

    fn answer(
        &self,
        arrival: &Arrival,
        op: &Op<'_>,
        result: Result<Reply>,
        answer: impl FnOnce(Result<Reply>),
    ) -> Account {
        let account = self.account(arrival, op, Outcome::of(op, &result));
        answer(result);
        account
    }

    fn wait_with(&self, arrival: Arrival, kept: Kept, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        let gate = self.clone();
        let like = kept.shape();
        let run = move |ctx: &Ctx| {
            let result = gate.call(ctx, kept.as_op());
            let outcome = Outcome::of(&kept.shape(), &result);
            answer(result);
            outcome
        };
        self.wait_for(arrival, like, run);
    }

    /// Runs and answers a request on a thread that may wait, and accounts for it.
    fn wait_for(
        &self,
        mut arrival: Arrival,
        like: Op<'static>,
        run: impl FnOnce(&Ctx) -> Outcome + Send + 'static,
    ) {
        let gate = self.clone();
        let threads = if arrival.ctx.foretold.is_some() { &self.0.told } else { &self.0.waiting };
        let (asked, behind) = (self.0.env.now(), threads.backlog().1);
        threads.submit(arrival.line, arrival.share.weight, move || {
            let begun = gate.0.env.now();
            waits::take();
            let outcome = run(&arrival.ctx.with_wait(Wait::Allowed));
            arrival.waits.add(Cause::Thread, behind, begun.saturating_sub(asked));
            let account = gate.account(&arrival, &like, outcome);
            gate.enter(account, begun);
        });
    }

    /// Enters an operation in the ledger that has ended now.
    fn enter(&self, account: Account, begun: Nanos) {
        let now = self.0.env.now();
        self.0.state.lock().ledger.enter(account, now.saturating_sub(begun), now);
    }

    /// The ledger's entry for an operation.
    fn account(&self, arrival: &Arrival, op: &Op<'_>, outcome: Outcome) -> Account {
        let mut waits = arrival.waits;
        waits.add_all(&waits::take());
        let Arrival { line, at, .. } = *arrival;
        Account::new((line.flow, line.class, &arrival.ctx), op, outcome, at, waits)
    }
}

impl Shared {
    /// Requests that wait for a thread.
    fn for_thread(&self) -> usize {
        self.waiting.backlog().0 + self.told.backlog().0
    }
}

/// What a turn came to. Where it ends in a panic the answer is lost, and the turn is not: it would
/// hold its slot for ever.
fn caught(turn: impl FnOnce() -> Option<Account>) -> Option<Account> {
    catch_unwind(AssertUnwindSafe(turn)).unwrap_or_else(|panic| {
        tracing::error!("an answer ended in a panic: {}", panic_text(&*panic));
        None
    })
}

impl GateState {
    /// Notes the caller (from the second flow on they share) and its share; returns whether
    /// somebody must look up its groups.
    fn see(&mut self, arrival: &mut Arrival) -> bool {
        let payer = self.owners.of(arrival.line.flow.uid);
        (arrival.line.flow.uid, arrival.ctx.flow.uid) = (payer, payer);
        let flow = arrival.line.flow;
        if arrival.asked && self.last_flow.replace(flow).is_some_and(|last| are_two(last, flow)) {
            self.shared_until = arrival.at + SHARED_FOR;
        }
        let (share, ask) = self.shares.of(flow.uid, arrival.at);
        arrival.share = share;
        ask
    }

    /// A turn at once, if a slot is free and nobody waits for one (or the gate decides nothing).
    fn pass(&mut self, options: Options, arrival: &Arrival) -> Option<Turn> {
        if !options.fair || self.queued_bytes > QUEUED_BYTES_MAX {
            return Some(self.enter(arrival));
        }
        let free = self.running() < self.slots(options, arrival.at) && !self.queue.has_ready();
        (free && self.may_begin(options, arrival)).then(|| self.enter(arrival))
    }

    /// Whether its user's ceiling lets an operation begin, which then counts.
    fn may_begin(&mut self, options: Options, arrival: &Arrival) -> bool {
        if !options.fair {
            return true;
        }
        self.queue.advance(arrival.at);
        let may = !self.is_held(arrival);
        if may {
            self.queue.spend(arrival.line, arrival.bytes);
        }
        may
    }

    fn is_held(&mut self, arrival: &Arrival) -> bool {
        arrival.share.has_ceiling() && self.queue.is_held(arrival.line, arrival.share)
    }

    fn waiting(&self, thread: usize) -> Queues {
        let ceiling = self.queue.held();
        Queues { turn: self.queue.len() - ceiling, ceiling, thread }
    }

    /// Operations that may run at once now.
    fn slots(&self, options: Options, now: Nanos) -> usize {
        options.threads - usize::from(now < self.shared_until && !self.each_reads)
    }

    fn push(&mut self, arrival: Arrival, (bytes, stands_by): (usize, bool), job: Job) {
        let (cause, behind) = match self.is_held(&arrival) {
            true => (Cause::Ceiling, None),
            false => (Cause::Turn, self.most_inside(arrival.line.flow)),
        };
        self.queued_bytes += bytes;
        self.queue.push(
            arrival.line,
            arrival.share,
            Queued { arrival, cause, behind, bytes, stands_by, job },
        );
    }

    /// Operations that hold a slot.
    fn running(&self) -> usize {
        self.queue.running() - self.beside
    }

    fn left(&mut self, turn: &Turn) {
        if let Some(n) = self.inside.iter().position(|flow| *flow == turn.line.flow) {
            self.inside.swap_remove(n);
        }
    }

    fn enter(&mut self, arrival: &Arrival) -> Turn {
        self.inside.push(arrival.line.flow);
        self.queue.pass(arrival.line, arrival.share)
    }

    fn next(&mut self, options: Options, now: Nanos) -> Option<(Turn, Queued)> {
        self.queue.advance(now);
        if self.running() >= self.slots(options, now) {
            return None;
        }
        let (turn, queued) = self.queue.pop()?;
        self.queue.spend(turn.line, queued.arrival.bytes);
        self.queued_bytes -= queued.bytes;
        self.inside.push(turn.line.flow);
        Some((turn, queued))
    }

    /// A flow that is running: another flow than this one if there is one.
    fn most_inside(&self, flow: Flow) -> Option<Flow> {
        self.inside.iter().find(|f| **f != flow).or(self.inside.first()).copied()
    }
}

/// Whether these share the gate. A job that is not known may be the same one.
fn are_two(a: Flow, b: Flow) -> bool {
    a.uid != b.uid || (a.job != b.job && a.job != 0 && b.job != 0)
}
