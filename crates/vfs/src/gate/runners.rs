//! Threads that run the turns of doors.
//!
//! A door's thread has sockets to serve and runs no turns, and the threads that may wait
//! (`waiting`) may all be waiting. A slot must not be held by a turn that waits for a thread. So
//! these threads take a turn, and with it a slot, only when they run. There are as many as slots at
//! most, so one of them is free, or can be started, whenever a slot is.

use crate::processors;

use super::{Gate, GateState, Queued};
use leeward_env::Nanos;
use leeward_gate::Turn;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(5);

/// How many threads there are. One that was woken counts as idle until it runs.
#[derive(Default)]
pub(super) struct Runners {
    threads: usize,
    idle: usize,
    /// Turns that were begun for them.
    handed: VecDeque<(Turn, Queued)>,
}

impl Gate {
    /// Runs waiting requests on a thread of its own. A turn comes back when the system refuses the
    /// only thread: the caller runs it.
    #[must_use]
    pub(super) fn run_elsewhere(&self, state: &mut GateState, now: Nanos) -> Option<(Turn, Queued)> {
        if self.wake_runner(state, now) { None } else { state.next(self.0.options, now) }
    }

    /// Has a thread of its own run a turn that has begun. It comes back when the system refuses the
    /// only thread.
    #[must_use]
    pub(super) fn hand_over(&self, state: &mut GateState, turn: (Turn, Queued)) -> Option<(Turn, Queued)> {
        state.runners.handed.push_back(turn);
        if self.find_runner(state) { None } else { state.runners.handed.pop_back() }
    }

    /// Whether there is a thread for what may run now, or nothing may.
    fn wake_runner(&self, state: &mut GateState, now: Nanos) -> bool {
        state.queue.advance(now);
        let may_run = state.queue.has_ready() && state.running() < state.slots(self.0.options, now);
        if !may_run && state.runners.handed.is_empty() {
            return true;
        }
        self.find_runner(state)
    }

    /// Wakes or starts a thread, if all that there are do not look for the next turn by themselves.
    fn find_runner(&self, state: &mut GateState) -> bool {
        if state.runners.idle > 0 {
            self.0.runner.notify_one();
            return true;
        }
        if state.runners.threads >= self.0.options.threads {
            // all of them run a turn, and look for the next at its end
            return true;
        }
        state.runners.threads += 1;
        let gate = self.clone();
        let start = || self.0.env.spawn("gate-turns", move || gate.serve_turns());
        if catch_unwind(AssertUnwindSafe(start)).is_err() {
            state.runners.threads -= 1;
        }
        state.runners.threads > 0
    }

    fn serve_turns(&self) {
        processors::as_the_process();
        let mut state = self.0.state.lock();
        loop {
            let now = self.0.env.now();
            let handed = state.runners.handed.pop_front();
            let next = handed.or_else(|| state.next(self.0.options, now));
            self.watch_ceilings(&mut state);
            if next.is_some() {
                self.wake_runner(&mut state, now);
                drop(state);
                self.run_turns(next);
                state = self.0.state.lock();
                continue;
            }
            state.runners.idle += 1;
            let timed_out = self.0.runner.wait_for(&mut state, IDLE).timed_out();
            state.runners.idle -= 1;
            if timed_out && !state.queue.has_ready() && state.runners.handed.is_empty() {
                state.runners.threads -= 1;
                return;
            }
        }
    }
}
