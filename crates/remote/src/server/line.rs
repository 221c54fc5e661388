//! What answers go out by, whoever the client is.

use crate::pipe::Pipe;
use leeward_env::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// An encrypted connection, and when something came by it.
pub(super) struct Line {
    pub(super) pipe: Pipe,
    heard: AtomicU64,
}

impl Line {
    pub(super) fn new(pipe: Pipe, now: Nanos) -> Line {
        Line { pipe, heard: AtomicU64::new(now) }
    }

    /// When something came last; of a stranger, when it connected.
    pub(super) fn heard(&self) -> Nanos {
        self.heard.load(Ordering::Relaxed)
    }

    /// Something came, or was taken.
    pub(super) fn heard_at(&self, now: Nanos) {
        self.heard.store(now, Ordering::Relaxed);
    }
}
