//! Threads that may wait: for cold reads, fsync, every operation that answered `WouldBlock`.
//!
//! Threads are started when there is work and none is idle, up to a limit, and end when idle for a
//! while. The fair queue says which job is next. A single user may hold only some of the threads,
//! so that one user's thousand fsyncs leave a thread for the next user's first. Where several users
//! hold all of them, with a store that hangs say, a user who has few gets one of a reserve. The
//! front end limits how many jobs can be queued (every job is a request that some process waits
//! for, or background read-ahead up to the kernel's `max_background`); `held` limits their bytes.
//!
//! One lock, held for a few instructions, never while a job runs or a thread starts.

use crate::processors;
use leeward_env::{Env, Flow, limits};
use leeward_gate::{FairQueue, Line, Turn};
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Threads that one user may hold at a time.
const THREADS_PER_USER_MAX: usize = limits::BLOCKING_THREADS_MAX * 3 / 4;
/// A user who holds fewer gets one more even where all others are held.
const THREADS_PER_USER_SURE: usize = 4;
/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads that may wait. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Waiting(Arc<Shared>);

struct Shared {
    env: Env,
    state: Mutex<WaitingState>,
    work: Condvar,
}

#[derive(Default)]
struct WaitingState {
    queue: FairQueue<Job>,
    threads: usize,
    idle: usize,
    /// Idle threads that were woken and do not run yet.
    called: usize,
}

impl Waiting {
    pub(crate) fn new(env: &Env) -> Waiting {
        Waiting(Arc::new(Shared { env: env.clone(), state: Mutex::default(), work: Condvar::new() }))
    }

    /// Queues a job. Its line is charged for the time that it holds a thread.
    pub(crate) fn submit(&self, line: Line, weight: u32, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        state.queue.push(line, weight, Box::new(job));
        if state.idle > state.called {
            state.called += 1;
            self.0.work.notify_one();
        } else if state.threads < state.threads_for(line) {
            state.threads += 1;
            drop(state);
            self.start_thread();
        }
    }

    /// Jobs that wait for a thread, and the flow that has most of them.
    pub(crate) fn backlog(&self) -> (usize, Option<Flow>) {
        let state = self.0.state.lock();
        let most = state.queue.backlog().max_by_key(|(_, waiting)| *waiting);
        (state.queue.len(), most.map(|(line, _)| line.flow))
    }

    /// Starts a thread. Where the system refuses one, the job waits for another thread, or runs
    /// here when there is none.
    fn start_thread(&self) {
        let shared = self.0.clone();
        let start = || {
            self.0.env.spawn("lee-wait", move || {
                processors::as_the_process();
                shared.serve();
            })
        };
        if catch_unwind(AssertUnwindSafe(start)).is_err() {
            let mut state = self.0.state.lock();
            state.threads -= 1;
            let alone = state.threads == 0;
            let job = if alone { state.next() } else { None };
            drop(state);
            if let Some((turn, job)) = job {
                self.0.run(turn, job);
            }
        }
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((turn, job)) = state.next() {
                drop(state);
                self.run(turn, job);
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.work.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            state.called = state.called.saturating_sub(usize::from(!timed_out)).min(state.idle);
            if timed_out && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    /// Jobs answer panics themselves; this keeps the counts right whatever happens.
    fn run(&self, turn: Turn, job: Job) {
        let begun = self.env.now();
        let _ = catch_unwind(AssertUnwindSafe(job));
        let held = self.env.now().saturating_sub(begun);
        self.state.lock().queue.done(turn, held);
    }
}

impl WaitingState {
    fn next(&mut self) -> Option<(Turn, Job)> {
        let most = most_of_one(self.queue.running());
        self.queue.pop_if(|_, running| running < most)
    }

    /// How many threads there may be while a job of this line waits.
    fn threads_for(&self, line: Line) -> usize {
        let sure = self.queue.running_of(line) < THREADS_PER_USER_SURE;
        limits::BLOCKING_THREADS_MAX + if sure { limits::BLOCKING_THREADS_RESERVE } else { 0 }
    }
}

/// Threads that one user may hold while `held` are held in all.
fn most_of_one(held: usize) -> usize {
    if held < limits::BLOCKING_THREADS_MAX { THREADS_PER_USER_MAX } else { THREADS_PER_USER_SURE }
}
