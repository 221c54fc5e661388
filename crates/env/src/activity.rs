//! Whether users make requests now, and how background work holds back while they do.
//!
//! A queue alone cannot keep background work out of a user's way. A user who makes one request at a
//! time, with a pause after each answer, leaves the queue empty whenever background work looks, and
//! finds its next step in the way at the next request. So while users make requests, each step is
//! followed by a rest in proportion to its length. Background work then has a fixed small share of
//! the machine, in small pieces, and all of it as soon as nobody makes requests.

use crate::{Class, Env, Nanos};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Users who have made no request for this time are away.
const AWAY: Nanos = 200_000_000;
/// While users make requests, a step is this part (one in `STEP_PART`) of its usual size, so that
/// it holds others up for a moment only.
const STEP_PART: usize = 8;
/// Longest part of a rest before it is checked again whether the rest is still needed.
const PART: Duration = Duration::from_millis(5);

/// The activity of users. One for all layers of a cell.
#[derive(Debug, Default)]
pub struct Activity {
    /// Time of the last request of a user.
    asked: AtomicU64,
    /// Until when several users count as making requests in turn.
    shared_until: AtomicU64,
    /// Number of callers that wait for background work.
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
    /// A user makes a request.
    pub fn asked(&self, now: Nanos) {
        self.asked.store(now.max(1), Ordering::Relaxed);
    }

    /// Several users make requests, and count as doing so until this time.
    pub fn share(&self, until: Nanos) {
        self.shared_until.store(until, Ordering::Relaxed);
    }

    /// Whether there is more than one user: only then can one be in another's way.
    pub fn is_shared(&self, now: Nanos) -> bool {
        now < self.shared_until.load(Ordering::Relaxed)
    }

    /// A caller waits for background work, until this is dropped: for space that it frees.
    pub fn hurry(&self) -> Hurry<'_> {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        Hurry(self)
    }

    /// Whether a caller waits for background work.
    pub fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed) > 0
    }

    /// Whether background work should hold back.
    pub fn is_busy(&self, now: Nanos) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        asked > 0 && now.saturating_sub(asked) < AWAY && !self.is_hurried()
    }

    /// Whether users have made no request for `time` nanoseconds.
    pub fn is_idle(&self, now: Nanos, time: Nanos) -> bool {
        now.saturating_sub(self.asked.load(Ordering::Relaxed)) >= time
    }

    /// The size of a step of background work, of `whole`, the largest size that pays.
    pub fn step(&self, now: Nanos, whole: usize) -> usize {
        if self.is_busy(now) { (whole / STEP_PART).max(1) } else { whole }
    }

    /// Rests after work of a class that took `worked`, so that it gets the share of its class
    /// beside one user. Does not rest, or ends the rest, when nobody is in its way. The caller may
    /// hold no lock that users need.
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
