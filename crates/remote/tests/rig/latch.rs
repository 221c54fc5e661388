//! What a test holds up until it has seen what goes on meanwhile, and what tells the threads of a
//! test to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long anybody waits at a latch: a test that failed opens it no more.
const TIME: Duration = Duration::from_secs(30);

/// Open, until a test shuts it.
#[derive(Default)]
pub struct Latch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    waiting: usize,
}

impl Latch {
    pub fn shut(&self) {
        self.state().is_shut = true;
    }

    pub fn open(&self) {
        self.state().is_shut = false;
        self.changed.notify_all();
    }

    /// Waits while it is shut.
    pub fn pass(&self) {
        let mut state = self.state();
        state.waiting += 1;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, TIME, |state| state.is_shut);
        waited.expect("no panic").0.waiting -= 1;
    }

    /// Waits until somebody waits at it.
    pub fn is_reached(&self) {
        let waited = self.changed.wait_timeout_while(self.state(), TIME, |state| state.waiting == 0);
        assert!(waited.expect("no panic").0.waiting > 0, "nobody comes");
    }

    /// Whether somebody waits at it now.
    pub fn holds(&self) -> bool {
        self.state().waiting > 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }
}

/// Says when it goes that something is over, also when an assertion fails: threads that look at it
/// end, and the failure is seen.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
