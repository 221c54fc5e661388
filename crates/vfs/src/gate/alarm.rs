//! The thread that runs requests that a ceiling held back, when they may go on. It exists while a
//! request is held back.

use crate::processors;

use super::{Gate, GateState};
use leeward_env::Nanos;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// After this time without held requests the thread ends.
const IDLE: Duration = Duration::from_secs(5);

impl Gate {
    /// Makes sure that the thread checks when the first request that a ceiling holds back may go
    /// on.
    pub(super) fn watch_ceilings(&self, state: &mut GateState) {
        if let Some(until) = state.queue.held_until() {
            self.look_at(state, until);
        }
    }

    /// Makes sure that the thread checks at this time.
    pub(super) fn look_at(&self, state: &mut GateState, at: Nanos) {
        match state.alarm_at.replace(state.alarm_at.map_or(at, |earlier| earlier.min(at))) {
            Some(earlier) if earlier <= at => (),
            Some(_) => _ = self.0.alarm.notify_one(),
            None => {
                let gate = self.clone();
                let start = || self.0.env.spawn("gate-alarm", move || gate.watch());
                if catch_unwind(AssertUnwindSafe(start)).is_err() {
                    // the system refuses a thread: the next request tries again
                    state.alarm_at = None;
                }
            }
        }
    }

    fn watch(&self) {
        processors::as_the_process();
        let mut state = self.0.state.lock();
        loop {
            let now = self.0.env.now();
            let next = state.next(self.0.options, now);
            if next.is_some() {
                drop(state);
                self.run_turns(next);
                state = self.0.state.lock();
                continue;
            }
            let held = state.queue.held_until();
            let wait = held.map_or(IDLE, |until| Duration::from_nanos(until.saturating_sub(now)));
            state.alarm_at = Some(now + wait.as_nanos() as Nanos);
            let timed_out = self.0.alarm.wait_for(&mut state, wait).timed_out();
            if timed_out && held.is_none() && state.queue.held_until().is_none() && !state.queue.has_ready() {
                state.alarm_at = None;
                return;
            }
        }
    }
}
