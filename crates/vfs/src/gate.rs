//! Gate 1: every front end's requests come through here to the file system, in an order that is fair between flows.
//!
//! A front end has a few threads that read requests. While one user is alone, each runs what it has read, at once and without a copy. As
//! soon as a second user comes, one of the threads is left to read: only as many operations run at once as there are **slots**, one less than
//! threads; who finds none is queued with its bytes and its reply. So the queue here, and not the kernel's (first come, first
//! served), decides who is next; whoever ends an operation takes the next from the queue.
//!
//! What would wait answers `WouldBlock` and is repeated on a thread that may (`waiting`). A panic in the file system becomes an error
//! here. Every operation is entered in the [`Ledger`]: what it cost, what it waited for, behind whom.
//!
//! Locks: the gate's, held for a few instructions, never while an operation runs or is answered.

use crate::ledger::{Account, Ledger, Report, Totals};
use crate::waiting::Waiting;
use crate::{Fs, OwnedOp};
use leeward_env::waits::{self, Cause, Waits};
use leeward_env::{Ctx, Env, Flow, Nanos, Wait};
use leeward_gate::{FairQueue, Line, Turn};
use leeward_volume::{Error, NodeId, Op, Reply, Result};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failures that are logged in one second; a damaged store would otherwise fill the log.
const LOGGED_PER_SEC_MAX: u64 = 10;
/// Bytes of queued requests; above, a thread runs what it has read rather than read more.
const QUEUED_BYTES_MAX: usize = 64 << 20;

/// So long after two users came in turn a thread is left to read, nanoseconds.
const SHARED_FOR: Nanos = 10_000_000_000;

/// How a gate lets through.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads with which a front end reads requests, at least 2: so many operations run at once, and one less while users share.
    pub threads: usize,
    /// Whether it decides anything. Without, all pass at once and only the ledger is kept: to see what the gate costs and gives.
    pub fair: bool,
}

impl Options {
    /// As many threads as this machine has cores, up to four: more only wait for each other.
    pub fn usual() -> Options {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Options { threads: cores.clamp(2, 4), fair: true }
    }
}

/// See the module's head. Cheap to clone.
#[derive(Clone)]
pub struct Gate(Arc<Shared>);

struct Shared {
    fs: Arc<dyn Fs>,
    env: Env,
    options: Options,
    state: Mutex<State>,
    waiting: Waiting,
    failures: FailureLog,
}

#[derive(Default)]
struct State {
    queue: FairQueue<Queued>,
    queued_bytes: usize,
    /// Flows of the operations that run.
    inside: Vec<Flow>,
    /// Who came last.
    last_flow: Option<Flow>,
    /// Until when users count as sharing.
    shared_until: Nanos,
    ledger: Ledger,
}

/// A request that waits for its turn.
struct Queued {
    arrival: Arrival,
    /// Flow that was inside when it came.
    behind: Option<Flow>,
    bytes: usize,
    job: Job,
}

/// What a queued request does with its turn.
type Job = Box<dyn FnOnce(&Gate, Arrival) -> Option<Account> + Send>;

/// A request on its way.
#[derive(Clone, Copy)]
struct Arrival {
    ctx: Ctx,
    at: Nanos,
    waits: Waits,
}

impl Arrival {
    fn line(&self) -> Line {
        Line { flow: self.ctx.flow, class: self.ctx.class }
    }
}

impl Gate {
    /// A gate before a file system.
    pub fn new(fs: Arc<dyn Fs>, env: &Env, options: Options) -> Gate {
        let failures = FailureLog { env: env.clone(), second: AtomicU64::new(0), count: AtomicU64::new(0) };
        let waiting = Waiting::new(env);
        Gate(Arc::new(Shared { fs, env: env.clone(), options, state: Mutex::default(), waiting, failures }))
    }

    /// The file system behind it.
    pub fn fs(&self) -> &Arc<dyn Fs> {
        &self.0.fs
    }

    /// Threads that a front end needs to read requests.
    pub fn reading_threads(&self) -> usize {
        self.0.options.threads
    }

    /// What flows have used and waited so far.
    pub fn report(&self) -> Report {
        let for_thread = self.0.waiting.backlog().0;
        let now = self.0.env.now();
        let state = self.0.state.lock();
        state.ledger.report((state.queue.len(), for_thread), now)
    }

    /// Sums over flows, for metrics.
    pub fn totals(&self) -> Totals {
        let for_thread = self.0.waiting.backlog().0;
        let state = self.0.state.lock();
        state.ledger.totals((state.queue.len(), for_thread))
    }

    /// Runs one operation on this thread, now: for who is inside already.
    pub fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let result = catch_unwind(AssertUnwindSafe(|| self.0.fs.call(ctx, op)))
            .unwrap_or_else(|panic| Err(Error::Io(format!("panic: {}", panic_text(&*panic)))));
        if let Err(e @ (Error::Io(_) | Error::Corrupt(_))) = &result {
            self.0.failures.failure(ctx, &op, e);
        }
        result
    }

    /// Runs one operation when it is its turn and answers it.
    pub fn run(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        let arrival = self.arrive(ctx);
        if let Some(turn) = self.pass(&arrival) {
            let account = self.attempt(arrival, op, answer);
            self.leave(turn, arrival.at, account);
            return;
        }
        let op = OwnedOp::from(op);
        let bytes = op.byte_count();
        self.queue(arrival, bytes, move |gate, arrival| gate.attempt(arrival, op.as_op(), answer));
    }

    /// Runs one operation that waits by its nature on a thread that may.
    pub fn run_waiting(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        self.wait_with(self.arrive(ctx), op, answer);
    }

    /// Runs a request of several operations, made by [`Gate::call`] with the context it is given, when it is its turn. `attempt`
    /// gives the request back when it would have to wait; it is then repeated where it may. `like`: the operation it is
    /// entered as.
    pub fn run_all<R: Send + 'static>(
        &self,
        ctx: Ctx,
        like: Op<'static>,
        request: R,
        attempt: impl Fn(&Ctx, R) -> Option<R> + Send + 'static,
    ) {
        let arrival = self.arrive(ctx);
        let perform = move |gate: &Gate, arrival: Arrival| {
            waits::take();
            match attempt(&arrival.ctx.with_wait(Wait::Never), request) {
                None => Some(gate.account(&arrival, &like, &Ok(Reply::Done))),
                Some(request) => {
                    let run = move |ctx: &Ctx| {
                        attempt(ctx, request);
                        Ok(Reply::Done)
                    };
                    gate.wait_for(arrival, like, run, drop);
                    None
                }
            }
        };
        match self.pass(&arrival) {
            Some(turn) => {
                let account = perform(self, arrival);
                self.leave(turn, arrival.at, account);
            }
            None => self.queue(arrival, 0, perform),
        }
    }

    /// Gives references back.
    pub fn forget(&self, ctx: Ctx, node: NodeId, count: u64) {
        self.run(ctx, Op::Forget { node, count }, |_| ());
    }

    fn arrive(&self, ctx: Ctx) -> Arrival {
        Arrival { ctx, at: self.0.env.now(), waits: Waits::NONE }
    }

    /// A turn at once, if a slot is free and nobody waits for one (or there is nothing to decide).
    fn pass(&self, arrival: &Arrival) -> Option<Turn> {
        let options = self.0.options;
        let state = &mut *self.0.state.lock();
        state.see(arrival);
        let open = state.queue.running() < state.slots(options, arrival.at) && state.queue.is_empty();
        (open || !options.fair || state.queued_bytes > QUEUED_BYTES_MAX).then(|| state.enter(arrival))
    }

    /// Waits for a turn without holding the thread; takes it here if a slot has become free meanwhile.
    fn queue(
        &self,
        arrival: Arrival,
        bytes: usize,
        job: impl FnOnce(&Gate, Arrival) -> Option<Account> + Send + 'static,
    ) {
        let mut state = self.0.state.lock();
        let behind = state.most_inside(arrival.ctx.flow);
        state.queued_bytes += bytes;
        state.queue.push(arrival.line(), Line::USUAL, Queued { arrival, behind, bytes, job: Box::new(job) });
        let next = state.next(self.0.options, arrival.at);
        drop(state);
        self.run_turns(next);
    }

    /// Ends a turn and runs what is next, until there is nothing or others do.
    fn leave(&self, turn: Turn, begun: Nanos, account: Option<Account>) {
        let next = self.end(turn, begun, account);
        self.run_turns(next);
    }

    fn run_turns(&self, mut next: Option<(Turn, Queued)>) {
        while let Some((turn, queued)) = next {
            let begun = self.0.env.now();
            let mut arrival = queued.arrival;
            arrival.waits.add(Cause::Turn, queued.behind, begun.saturating_sub(arrival.at));
            let account = (queued.job)(self, arrival);
            next = self.end(turn, begun, account);
        }
    }

    fn end(&self, turn: Turn, begun: Nanos, account: Option<Account>) -> Option<(Turn, Queued)> {
        let now = self.0.env.now();
        let cost = now.saturating_sub(begun);
        let mut state = self.0.state.lock();
        if let Some(n) = state.inside.iter().position(|flow| *flow == turn.line.flow) {
            state.inside.swap_remove(n);
        }
        state.queue.done(turn, cost);
        if let Some(account) = account {
            state.ledger.enter(account, cost, now);
        }
        state.next(self.0.options, now)
    }

    /// One attempt that may not wait; `None` when the operation goes on elsewhere.
    fn attempt(
        &self,
        arrival: Arrival,
        op: Op<'_>,
        answer: impl FnOnce(Result<Reply>) + Send + 'static,
    ) -> Option<Account> {
        waits::take();
        match self.call(&arrival.ctx.with_wait(Wait::Never), op) {
            Err(Error::WouldBlock) => {
                self.wait_with(arrival, op, answer);
                None
            }
            result => {
                let account = self.account(&arrival, &op, &result);
                answer(result);
                Some(account)
            }
        }
    }

    fn wait_with(&self, arrival: Arrival, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        let (gate, op) = (self.clone(), OwnedOp::from(op));
        let like = op.shape();
        self.wait_for(arrival, like, move |ctx| gate.call(ctx, op.as_op()), answer);
    }

    /// Runs something on a thread that may wait, and accounts for it.
    fn wait_for(
        &self,
        mut arrival: Arrival,
        like: Op<'static>,
        run: impl FnOnce(&Ctx) -> Result<Reply> + Send + 'static,
        answer: impl FnOnce(Result<Reply>) + Send + 'static,
    ) {
        let gate = self.clone();
        let (asked, behind) = (self.0.env.now(), self.0.waiting.backlog().1);
        self.0.waiting.submit(arrival.line(), move || {
            let begun = gate.0.env.now();
            waits::take();
            let result = run(&arrival.ctx.with_wait(Wait::Allowed));
            arrival.waits.add(Cause::Thread, behind, begun.saturating_sub(asked));
            let account = gate.account(&arrival, &like, &result);
            answer(result);
            gate.enter(account, begun);
        });
    }

    /// Enters an operation that has ended now.
    fn enter(&self, account: Account, begun: Nanos) {
        let now = self.0.env.now();
        self.0.state.lock().ledger.enter(account, now.saturating_sub(begun), now);
    }

    /// What is to be said of an operation that is about to be answered.
    fn account(&self, arrival: &Arrival, op: &Op<'_>, result: &Result<Reply>) -> Account {
        let mut waits = arrival.waits;
        waits.add_all(&waits::take());
        Account::new(&arrival.ctx, op, result, arrival.at, waits)
    }
}

impl State {
    /// Notes who comes: from the second user on they share.
    fn see(&mut self, arrival: &Arrival) {
        if self.last_flow.replace(arrival.ctx.flow).is_some_and(|last| last != arrival.ctx.flow) {
            self.shared_until = arrival.at + SHARED_FOR;
        }
    }

    /// Operations that may run at once now.
    fn slots(&self, options: Options, now: Nanos) -> usize {
        options.threads - usize::from(now < self.shared_until)
    }

    fn enter(&mut self, arrival: &Arrival) -> Turn {
        self.inside.push(arrival.ctx.flow);
        self.queue.pass(arrival.line(), Line::USUAL)
    }

    fn next(&mut self, options: Options, now: Nanos) -> Option<(Turn, Queued)> {
        if self.queue.running() >= self.slots(options, now) {
            return None;
        }
        let (turn, queued) = self.queue.pop()?;
        self.queued_bytes -= queued.bytes;
        self.inside.push(turn.line.flow);
        Some((turn, queued))
    }

    /// Who is inside: another flow than this one if there is one.
    fn most_inside(&self, flow: Flow) -> Option<Flow> {
        self.inside.iter().find(|f| **f != flow).or(self.inside.first()).copied()
    }
}

/// Where failures that are nobody's fault but ours or the store's are told.
struct FailureLog {
    env: Env,
    second: AtomicU64,
    count: AtomicU64,
}

impl FailureLog {
    fn failure(&self, ctx: &Ctx, op: &Op<'_>, e: &Error) {
        let second = self.env.now() / 1_000_000_000;
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        if self.count.fetch_add(1, Ordering::Relaxed) < LOGGED_PER_SEC_MAX {
            tracing::error!(operation = %Summary(op), uid = ctx.uid, "{e}");
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// An operation for the log: everything but the data.
struct Summary<'a>(&'a Op<'a>);

impl std::fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Op::Write { node, offset, data } => write!(f, "Write {node:?} at {offset} len {}", data.len()),
            Op::SetXattr { node, name, value, .. } => {
                write!(f, "SetXattr {node:?} {} len {}", name.escape_ascii(), value.len())
            }
            Op::Lookup { dir, name } => write!(f, "Lookup {dir:?}/{}", name.escape_ascii()),
            op => write!(f, "{op:?}"),
        }
    }
}
