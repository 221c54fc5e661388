//! What an engine and the gate before it, in one process, agree on: when background work may run.

use crate::Fs;
use leeward_env::{Ctx, Nanos};
use std::sync::Arc;

/// A file system that works in the background, too. The gate before it says when users are there, and gives that work its turns.
pub trait Engine: Fs {
    /// A user asks for something at this time of the monotonic clock: background work holds back for a while.
    fn users_ask(&self, now: Nanos);

    /// Several users ask in turn, and are taken to do so until this time of the monotonic clock.
    fn users_share(&self, until: Nanos);

    /// From now on each step of background work waits for its turn there.
    fn give_turns(&self, turns: Arc<dyn Turns>);
}

/// Gives background work its turns among the requests of users: a front end's gate. Called without locks that users need.
pub trait Turns: Send + Sync {
    /// Runs `step` on this thread, once, when it is the turn of the context's flow, whose work is in this volume (0: in none).
    fn in_turn(&self, ctx: &Ctx, volume: u32, step: &mut dyn FnMut());
}
