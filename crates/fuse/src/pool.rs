//! Threads that may wait: cold reads, fsync, whatever answered `WouldBlock`.
//!
//! Threads are started when there is work and none idle, up to a bound, and end when idle for a while. The queue has one
//! line per flow and takes from them in turn; a single flow may hold only some of the threads, so that one user's
//! thousand fsyncs leave a thread for the next user's first. How much can be queued is bounded by the kernel
//! (every job is a request that some process waits for, or background read-ahead up to `max_background`).
//!
//! One lock, held for a few instructions, never while a job runs or a thread starts.

use leeward_env::{Env, Flow, limits};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Threads of the pool that one flow may hold at a time.
const THREADS_PER_FLOW_MAX: usize = limits::BLOCKING_THREADS_MAX * 3 / 4;
/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

/// See the module's head. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    env: Env,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    flows: FxHashMap<Flow, Line>,
    /// Flows with queued jobs, in the order of their turns.
    turns: VecDeque<Flow>,
    /// Jobs in all lines.
    queued: usize,
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    running: usize,
}

impl Pool {
    pub(crate) fn new(env: &Env) -> Pool {
        Pool(Arc::new(Shared { env: env.clone(), state: Mutex::default(), work: Condvar::new() }))
    }

    /// Queues a job that a user's flow pays for.
    pub(crate) fn submit(&self, flow: Flow, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        state.push(flow, Box::new(job));
        self.0.work.notify_one();
        // A thread that was woken counts as idle until it runs, so each waiting job needs one of its own.
        if state.queued > state.idle && state.threads < limits::BLOCKING_THREADS_MAX {
            state.threads += 1;
            drop(state);
            self.start_thread();
        }
    }

    /// Where the system refuses a thread the job waits for another one, or is done here when there is none.
    fn start_thread(&self) {
        let shared = self.0.clone();
        let start = || self.0.env.spawn("fuse-wait", move || shared.serve());
        if catch_unwind(AssertUnwindSafe(start)).is_err() {
            let mut state = self.0.state.lock();
            state.threads -= 1;
            let alone = state.threads == 0;
            let job = if alone { state.pop() } else { None };
            drop(state);
            if let Some((flow, job)) = job {
                job();
                self.0.state.lock().done(flow);
            }
        }
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((flow, job)) = state.pop() {
                drop(state);
                // Jobs answer panics themselves; this keeps the counts right whatever happens.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state.lock();
                state.done(flow);
                continue;
            }
            state.idle += 1;
            let timed_out = self.work.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if timed_out && !state.has_ready() {
                state.threads -= 1;
                return;
            }
        }
    }
}

impl State {
    fn push(&mut self, flow: Flow, job: Job) {
        let line = self.flows.entry(flow).or_default();
        if line.jobs.is_empty() {
            self.turns.push_back(flow);
        }
        line.jobs.push_back(job);
        self.queued += 1;
    }

    /// The next job of the next flow that does not hold its share of threads already.
    fn pop(&mut self) -> Option<(Flow, Job)> {
        for _ in 0..self.turns.len() {
            let flow = self.turns.pop_front()?;
            let line = self.flows.get_mut(&flow)?;
            if line.running >= THREADS_PER_FLOW_MAX {
                self.turns.push_back(flow);
                continue;
            }
            let job = line.jobs.pop_front()?;
            line.running += 1;
            self.queued -= 1;
            if !line.jobs.is_empty() {
                self.turns.push_back(flow);
            }
            return Some((flow, job));
        }
        None
    }

    fn has_ready(&self) -> bool {
        self.turns.iter().any(|f| self.flows.get(f).is_some_and(|l| l.running < THREADS_PER_FLOW_MAX))
    }

    fn done(&mut self, flow: Flow) {
        if let Some(line) = self.flows.get_mut(&flow) {
            line.running -= 1;
            if line.running == 0 && line.jobs.is_empty() {
                self.flows.remove(&flow);
            }
        }
    }
}
