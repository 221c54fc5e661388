//! The threads that call one store. Many stores are called at once, and a store that hangs holds up
//! nobody else. A [`FairQueue`] says which call gets a thread next, by the time that calls took.
//! The gate before the store says how much they transfer at once.
//!
//! Threads are started when needed, up to a limit, and end after a while without work. Where the
//! system refuses a new thread, the existing ones do the work. Without any thread the call is
//! refused as if the store were busy, and the next call tries again. In a simulation there are no
//! threads: the call runs at once on the caller's thread. While no call runs, a caller may get
//! permission to call the store on its own thread ([`Lane::call_here`]). A call that is made on the
//! caller's thread in any case is noted ([`Lane::note_call`]), so that a hang is seen.

use leeward_env::{Ctx, Env, Nanos};
use leeward_gate::{FairQueue, Line};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

/// Calls of one store at a time.
const THREADS_MAX: usize = 4;
/// Calls that wait for a thread; more are refused.
const QUEUE_MAX: usize = 64;
/// A thread ends after this time without work.
const IDLE: Duration = Duration::from_secs(10);
/// A call that runs this long hangs: until it returns, the store counts as failing.
pub(crate) const HANG: Nanos = 15_000_000_000;
/// The same for a put of a whole object, which may have to wait behind other puts.
const HANG_WHOLE: Nanos = 180_000_000_000;

type Job = Box<dyn FnOnce() + Send>;

/// How long a call may take before the store counts as hanging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// It moves a part of an object at most.
    Short,
    /// It puts a whole object, or makes one durable.
    Whole,
    /// It grows with the store: a listing.
    Long,
}

impl Takes {
    /// When a call that begins now counts as hanging.
    fn late_at(self, now: Nanos) -> Option<Nanos> {
        match self {
            Takes::Short => Some(now + HANG),
            Takes::Whole => Some(now + HANG_WHOLE),
            Takes::Long => None,
        }
    }
}

/// The queue is full because the store is slow or hangs, or there is no thread for the call.
pub(crate) struct Busy;

pub(crate) struct Lane {
    env: Env,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<LaneState>,
    work: Condvar,
}

#[derive(Default)]
struct LaneState {
    jobs: FairQueue<(Takes, Job)>,
    threads: usize,
    idle: usize,
    /// When each of the running calls counts as hanging.
    late_at: Vec<Nanos>,
    closed: bool,
}

/// A call of the store on the caller's thread; counts as one of its calls.
pub(crate) struct CallGuard<'a> {
    shared: &'a Shared,
    late_at: Option<Nanos>,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().ended(self.late_at);
    }
}

impl LaneState {
    /// A call begins. Returns when it counts as hanging.
    fn begin(&mut self, takes: Takes, now: Nanos) -> Option<Nanos> {
        let late_at = takes.late_at(now);
        self.late_at.extend(late_at);
        late_at
    }

    /// A call has ended that would have counted as hanging then.
    fn ended(&mut self, late_at: Option<Nanos>) {
        if let Some(n) = self.late_at.iter().position(|at| Some(*at) == late_at) {
            self.late_at.swap_remove(n);
        }
    }
}

impl Lane {
    pub(crate) fn new(env: &Env) -> Lane {
        Lane { env: env.clone(), shared: Arc::default() }
    }

    /// Runs the job soon on another thread. With `Takes::Long` it may run long without counting as
    /// hanging.
    pub(crate) fn hand_over(
        &self,
        ctx: &Ctx,
        takes: Takes,
        job: impl FnOnce() + Send + 'static,
    ) -> Result<(), Busy> {
        if self.env.is_sim() {
            job();
            return Ok(());
        }
        let mut state = self.shared.state.lock();
        if state.jobs.len() >= QUEUE_MAX || state.closed {
            return Err(Busy);
        }
        let is_new = state.idle <= state.jobs.len() && state.threads < THREADS_MAX && {
            let (shared, env) = (self.shared.clone(), self.env.clone());
            self.env.try_spawn("lee-store", move || shared.serve(&env)).is_ok()
        };
        state.threads += usize::from(is_new);
        if state.threads == 0 {
            return Err(Busy);
        }
        let line = Line { flow: ctx.flow, class: ctx.class };
        state.jobs.push(line, Line::USUAL, (takes, Box::new(job)));
        if !is_new {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    /// Permission to make a short call on this thread, while no other call runs.
    pub(crate) fn call_here(&self) -> Option<CallGuard<'_>> {
        let mut state = self.shared.state.lock();
        let is_quiet = state.jobs.is_empty() && state.idle == state.threads && state.late_at.is_empty();
        is_quiet.then(|| {
            let late_at = state.begin(Takes::Short, self.env.now());
            CallGuard { shared: &self.shared, late_at }
        })
    }

    /// Notes a call that is made on this thread.
    pub(crate) fn note_call(&self, takes: Takes) -> CallGuard<'_> {
        let late_at = self.shared.state.lock().begin(takes, self.env.now());
        CallGuard { shared: &self.shared, late_at }
    }

    /// Whether a call that runs now counts as hanging at this time.
    pub(crate) fn hangs(&self, now: Nanos) -> bool {
        self.shared.state.lock().late_at.iter().any(|at| *at < now)
    }
}

impl Drop for Lane {
    /// Drops calls that have not begun, and leaves running ones to themselves.
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let mut jobs = Vec::new();
        while let Some((turn, job)) = state.jobs.pop() {
            state.jobs.done(turn, 0); // the queue goes on to count those that run
            jobs.push(job);
        }
        drop(state);
        drop(jobs); // not under the lock: what they hold may be much
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn serve(&self, env: &Env) {
        let mut state = self.state.lock();
        loop {
            if let Some((turn, (takes, job))) = state.jobs.pop() {
                let now = env.now();
                let late_at = state.begin(takes, now);
                MutexGuard::unlocked(&mut state, job);
                state.ended(late_at);
                state.jobs.done(turn, env.now().saturating_sub(now));
            } else if state.closed {
                break;
            } else {
                state.idle += 1;
                let waited = self.work.wait_for(&mut state, IDLE);
                state.idle -= 1;
                if waited.timed_out() && state.jobs.is_empty() {
                    break;
                }
            }
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, sync_channel};

    #[test]
    fn only_one_calls_a_store_on_his_own_thread_and_only_while_nothing_runs() {
        let (lane, ctx) = (Lane::new(&Env::real()), Ctx::system());
        let here = lane.call_here().expect("nothing runs");
        assert!(lane.hangs(Nanos::MAX), "it counts as a call");
        assert!(lane.call_here().is_none());
        drop(here);
        assert!(!lane.hangs(Nanos::MAX));
        let (put, listing) = (lane.note_call(Takes::Whole), lane.note_call(Takes::Long));
        assert!(lane.hangs(Nanos::MAX) && !lane.hangs(lane.env.now() + HANG), "a put takes longer");
        drop(put);
        assert!(!lane.hangs(Nanos::MAX), "a listing takes as long as it takes");
        drop(listing);
        let (sender, begun) = sync_channel(0);
        let (end, ended) = channel::<()>();
        let job = move || {
            sender.send(()).unwrap();
            let _ = ended.recv();
        };
        lane.hand_over(&ctx, Takes::Long, job).ok().unwrap();
        begun.recv().unwrap();
        assert!(lane.call_here().is_none(), "a listing runs");
        drop(end);
    }

    #[test]
    fn a_refused_thread_is_not_counted() {
        let (env, ctx) = (Env::real(), Ctx::system());
        let lane = Lane::new(&env);
        env.refuse_threads(2);
        for _ in 0..2 {
            assert!(lane.hand_over(&ctx, Takes::Short, || ()).is_err(), "there is no thread");
        }
        let (sender, done) = channel();
        for n in 0..3 {
            let sender = sender.clone();
            lane.hand_over(&ctx, Takes::Short, move || sender.send(n).unwrap()).ok().unwrap();
        }
        let mut all: Vec<i32> = done.iter().take(3).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        // while a call runs on a caller's thread, other calls wait for it
        let (block, blocked) = channel::<()>();
        lane.hand_over(&ctx, Takes::Short, move || assert!(blocked.recv().is_err())).ok().unwrap();
        env.refuse_threads(u64::MAX);
        lane.hand_over(&ctx, Takes::Short, move || sender.send(9).unwrap()).ok().unwrap();
        drop(block);
        assert_eq!(done.recv(), Ok(9));
        env.refuse_threads(0);
    }

    #[test]
    fn what_runs_when_it_is_dropped_ends_as_ever() {
        let (lane, ctx) = (Lane::new(&Env::real()), Ctx::system());
        let shared = lane.shared.clone();
        let (sender, begun) = sync_channel(0);
        let (end, ended) = channel::<()>();
        let job = move || {
            sender.send(()).unwrap();
            ended.recv().unwrap();
        };
        lane.hand_over(&ctx, Takes::Short, job).ok().unwrap();
        begun.recv().unwrap();
        drop(lane);
        end.send(()).unwrap();
        let env = Env::real();
        let gone = (0..3000).any(|_| {
            env.sleep(Duration::from_millis(10));
            shared.state.lock().threads == 0
        });
        assert!(gone, "its thread does not end");
    }
}
