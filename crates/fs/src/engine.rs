//! When background work may run: what an engine and the gate before it, in one process, tell each
//! other.

use crate::Fs;
use leeward_env::{Ctx, Nanos};
use std::sync::Arc;

/// A file system that also works in the background. The gate before it reports the requests of
/// users, and gives the background work its turns.
pub trait Engine: Fs {
    /// A user makes a request now, by the monotonic clock. Background work holds back for a while.
    fn users_ask(&self, now: Nanos);

    /// Several users make requests in turn, and count as doing so until this time of the monotonic
    /// clock.
    fn users_share(&self, until: Nanos);

    /// From now on each step of background work waits for its turn there.
    fn give_turns(&self, turns: Arc<dyn Turns>);
}

/// Gives background work its turns among the requests of users. The engine holds no lock that a
/// user needs when it calls.
pub trait Turns: Send + Sync {
    /// Runs `step` once, on this thread, when it is the turn of the context's flow. `volume`: where
    /// it works; 0: in none.
    fn in_turn(&self, ctx: &Ctx, volume: u32, step: &mut dyn FnMut());
}
