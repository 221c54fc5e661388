//! The work that is left, for several threads. The newest comes first, so few directories are open
//! at a time.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Work that makes more work.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    items: Vec<T>,
    /// Threads that may still add work.
    busy: usize,
    ended: bool,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Queue<T> {
        let state = State { items: Vec::new(), busy: 0, ended: false };
        Queue { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds work.
    pub(super) fn add(&self, items: impl IntoIterator<Item = T>) {
        self.state.lock().items.extend(items);
        self.changed.notify_all();
    }

    /// Does work until none is left, or [`Queue::end`].
    pub(super) fn work(&self, mut each: impl FnMut(T)) {
        let mut state = self.state.lock();
        loop {
            if state.ended || (state.items.is_empty() && state.busy == 0) {
                state.ended = true;
                self.changed.notify_all();
                return;
            }
            let Some(item) = state.items.pop() else {
                self.changed.wait(&mut state);
                continue;
            };
            state.busy += 1;
            parking_lot::MutexGuard::unlocked(&mut state, || each(item));
            state.busy -= 1;
        }
    }

    /// Has all threads end after what they do now.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits for the end, not longer than this. Returns whether all work is done or given up.
    pub(super) fn ended_within(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !(state.ended && state.busy == 0) {
            self.changed.wait_for(&mut state, time);
        }
        state.ended && state.busy == 0
    }
}
