//! What answers go out by, whoever the client is.

use crate::message::VERSION;
use crate::pipe::Pipe;
use leeward_env::Nanos;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// An encrypted connection, and when something came by it.
pub(super) struct Line {
    pub(super) pipe: Pipe,
    /// When it was made.
    pub(super) since: Nanos,
    heard: AtomicU64,
    /// The version of the protocol that both ends speak.
    version: AtomicU16,
}

impl Line {
    pub(super) fn new(pipe: Pipe, now: Nanos) -> Line {
        Line { pipe, since: now, heard: AtomicU64::new(now), version: AtomicU16::new(VERSION) }
    }

    pub(super) fn version(&self) -> u16 {
        self.version.load(Ordering::Relaxed)
    }

    pub(super) fn speaks(&self, version: u16) {
        self.version.store(version, Ordering::Relaxed);
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
