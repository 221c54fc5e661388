//! Whether users ask for something now, and how background work holds back when they do.
//!
//! A queue alone cannot keep background work out of a user's way: who asks for one thing at a time, with a pause after each answer, leaves
//! the queue empty whenever background work looks, and finds its next step in the way whenever he comes back. So a step is followed by a
//! rest in proportion to what it took, as long as users ask: background work then has a fixed small share of the machine, in small pieces, and
//! all of it as soon as nobody asks for anything.

use crate::{Class, Env, Nanos};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Users who have asked for nothing for so long are away.
const AWAY: Nanos = 200_000_000;
/// While users ask, a step is one part in so many of what it would be: what it holds up is held up for a moment only.
const STEP_PART: usize = 8;
/// Longest part of a rest before it is looked again whether there is still need of it.
const PART: Duration = Duration::from_millis(5);

/// See the module's head. One for all layers of a cell.
#[derive(Debug, Default)]
pub struct Activity {
    /// When a user last asked for something.
    asked: AtomicU64,
    /// Until when several users count as asking in turn.
    shared_until: AtomicU64,
    /// So many wait for background work to get on.
    hurried: AtomicUsize,
}

/// While this is kept background work does not rest.
#[must_use]
pub struct Hurry<'a>(&'a Activity);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurried.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Activity {
    /// A user asks for something.
    pub fn asked(&self, now: Nanos) {
        self.asked.store(now.max(1), Ordering::Relaxed);
    }

    /// Several users ask, and are taken to do so until then.
    pub fn share(&self, until: Nanos) {
        self.shared_until.store(until, Ordering::Relaxed);
    }

    /// Whether there is more than one user: only then is anybody in another one's way.
    pub fn is_shared(&self, now: Nanos) -> bool {
        now < self.shared_until.load(Ordering::Relaxed)
    }

    /// Somebody waits for background work, until this is dropped: for space that it frees.
    pub fn hurry(&self) -> Hurry<'_> {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        Hurry(self)
    }

    /// Whether somebody waits for background work.
    pub fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed) > 0
    }

    /// Whether background work should keep out of the way.
    pub fn is_busy(&self, now: Nanos) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        asked > 0 && now.saturating_sub(asked) < AWAY && !self.is_hurried()
    }

    /// Whether users have asked for nothing for so long, in nanoseconds.
    pub fn is_idle(&self, now: Nanos, time: Nanos) -> bool {
        now.saturating_sub(self.asked.load(Ordering::Relaxed)) >= time
    }

    /// How much a step of background work does at once, of a `whole` that is as much as pays.
    pub fn step(&self, now: Nanos, whole: usize) -> usize {
        if self.is_busy(now) { (whole / STEP_PART).max(1) } else { whole }
    }

    /// Work of a class that took so long rests, so that it gets the share of its class beside one user; not, or no longer, when nobody is in
    /// its way. No lock may be held that users need.
    pub fn rest(&self, env: &Env, class: Class, worked: Nanos) {
        let share = u64::from(Class::Interactive.weight() / class.weight());
        let until = env.now() + worked.saturating_mul(share - 1);
        loop {
            let now = env.now();
            if now >= until || env.is_sim() || !self.is_busy(now) {
                return;
            }
            env.sleep(PART.min(Duration::from_nanos(until - now)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_busy_while_users_ask_and_nobody_is_in_a_hurry() {
        let activity = Activity::default();
        assert!(!activity.is_busy(5), "nobody has asked yet");
        activity.asked(1_000);
        assert!(activity.is_busy(1_000) && activity.is_busy(AWAY));
        assert!(!activity.is_busy(1_000 + AWAY));
        assert!(!activity.is_idle(1_000 + AWAY, AWAY + 1) && activity.is_idle(1_001 + AWAY, AWAY + 1));
        let hurry = activity.hurry();
        assert!(!activity.is_busy(1_000));
        drop(hurry);
        assert!(activity.is_busy(1_000));
    }
}
