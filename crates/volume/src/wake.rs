//! Lets a thread wait until there may be something to do.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// One waiter, many wakers; a wake before the wait is not lost.
#[derive(Default)]
pub struct Wake {
    wanted: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    /// Wakes the waiter.
    pub fn wake(&self) {
        *self.wanted.lock() = true;
        self.changed.notify_one();
    }

    /// Waits until woken or `time` has passed.
    pub fn wait(&self, time: Duration) {
        let mut wanted = self.wanted.lock();
        if !*wanted {
            self.changed.wait_for(&mut wanted, time);
        }
        *wanted = false;
    }
}
