//! Background work among users: each step waits for its turn, and rests afterwards while users make
//! requests. A step that only calls stores has its turns at their gates, and rests there, or after
//! the step ([`Shard::rested`]).
//!
//! A step may hold the lock of the state for as long as it takes, so it is small. While it waits or
//! rests no lock is held except [`Shard::housekeeping`]. A caller that needs that lock ends the
//! rests ([`leeward_env::Activity::hurry`]), and meanwhile everything is done at once.

use crate::shard::Shard;
use crate::state::State;
use leeward_env::{Ctx, Flow, Nanos, Work};
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

/// Records that background work changes beside users before it commits them itself.
const OWN_COMMIT_RECORDS: usize = 256;

/// Background work in a volume, whose steps wait for their turns.
#[derive(Clone, Copy)]
pub(crate) struct Paced<'a> {
    pub(crate) shard: &'a Shard,
    /// From [`Shard::work_ctx`].
    pub(crate) ctx: &'a Ctx,
    pub(crate) volume: u32,
}

impl Paced<'_> {
    /// Runs a step when it is its turn.
    pub(crate) fn step<T>(&self, step: impl FnOnce() -> T) -> T {
        self.shard.in_turn(self.ctx, self.volume, step)
    }

    /// The size of a step, of a `whole` that is the largest that pays.
    pub(crate) fn size(&self, whole: usize) -> usize {
        self.shard.step_size(whole)
    }
}

impl Shard {
    /// The flow that does this work, and pays for it: the owner of the volume, or the system
    /// itself.
    pub(crate) fn work_ctx(&self, work: Work, volume: Option<u32>) -> Ctx {
        let owner = volume.and_then(|id| self.lock().volumes.get(&id).map(|v| Flow { uid: v.uid, job: 0 }));
        Ctx { flow: owner.unwrap_or(Flow::SYSTEM).of_work(work), ..Ctx::system() }
    }

    /// Runs a step of background work in this volume when it is its turn. `ctx`: from
    /// [`Shard::work_ctx`].
    pub(crate) fn in_turn<T>(&self, ctx: &Ctx, volume: u32, step: impl FnOnce() -> T) -> T {
        let activity = self.gate.activity();
        let turns = self.turns.lock().clone().filter(|_| !activity.is_hurried());
        let Some(turns) = turns else { return step() };
        let (mut step, mut done) = (Some(step), None);
        turns.in_turn(ctx, volume, &mut || {
            self.worker.store(ctx.flow.pack(), Ordering::Relaxed);
            done = step.take().map(|step| self.timed(step));
            self.worker.store(0, Ordering::Relaxed);
        });
        let (value, worked) = done.expect("a turn runs its step once");
        let committed = self.commit_work(ctx);
        activity.rest(&self.env, ctx.class, worked + committed);
        value
    }

    /// Runs a step that calls stores below their gates, and rests after it while users make
    /// requests.
    pub(crate) fn rested<T>(&self, ctx: &Ctx, step: impl FnOnce() -> T) -> T {
        let (value, worked) = self.timed(step);
        if self.config.fair {
            self.gate.activity().rest(&self.env, ctx.class, worked);
        }
        value
    }

    /// Waits until nobody else cleans, frees or moves; ends the rests of that work meanwhile.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        let _hurry = self.gate.activity().hurry();
        self.housekeeping.lock()
    }

    /// Beside users this work commits its changes before they are many: users' commits need not
    /// carry them. Returns how long that took.
    fn commit_work(&self, ctx: &Ctx) -> Nanos {
        let changed = |st: &State| st.running.by_flow.get(&ctx.flow).copied().unwrap_or(0);
        if !self.gate.activity().is_busy(self.env.now()) || changed(&self.lock()) < OWN_COMMIT_RECORDS {
            return 0;
        }
        // an error is reported by the next commit
        self.timed(|| self.commit_now(ctx)).1
    }

    /// The size of a step, of a `whole` that is the largest that pays.
    pub(crate) fn step_size(&self, whole: usize) -> usize {
        self.gate.activity().step(self.env.now(), whole)
    }
}
