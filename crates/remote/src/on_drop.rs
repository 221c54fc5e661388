//! What is done whatever happens, and what others do not suffer from.

use leeward_env::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does something for one among many: a panic in it is noted, and the others go on.
pub(crate) fn guarded(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        tracing::error!("an answer ended in a panic: {}", panic_text(&*panic));
    }
}

/// Does something when it is dropped: also where the work before it ends in a panic, or is never
/// begun.
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub(crate) fn new(then: F) -> OnDrop<F> {
        OnDrop(Some(then))
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then();
        }
    }
}
