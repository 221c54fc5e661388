//! Operations at work: a cell is closed when there are none, so what one was told is durable then.
//! And a volume becomes a copy when those have ended that began before.
//!
//! They are counted in two places in turn, so that those can be waited for that began before a
//! moment, while others begin.

use leeward_env::Env;
use leeward_fs::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How often it is looked whether all have ended, and after how many looks it is said that they are
/// waited for.
const STEP: Duration = Duration::from_millis(1);
const QUIET_STEPS: u32 = 1000;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Calls {
    at_work: [AtomicUsize; 2],
    /// The lowest bit says where those count that begin.
    turn: AtomicUsize,
    /// Who waits for those before; one at a time.
    passing: Mutex<()>,
    closed: AtomicBool,
}

/// An operation, until it is dropped.
pub(crate) struct AtWork<'a>(&'a AtomicUsize);

impl Calls {
    /// An operation begins.
    pub(crate) fn begin(&self) -> Result<AtWork<'_>> {
        let at_work = loop {
            let turn = self.turn.load(Ordering::SeqCst);
            let place = &self.at_work[turn & 1];
            // in this order: whoever closes or waits sees it, or it sees that
            place.fetch_add(1, Ordering::SeqCst);
            let at_work = AtWork(place);
            if self.turn.load(Ordering::SeqCst) == turn {
                break at_work;
            }
        };
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Io("the cell is closed".into()));
        }
        Ok(at_work)
    }

    /// From now on none begins. False: that was so before.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// Waits for those at work, until `is_lost`.
    pub(crate) fn wait(&self, env: &Env, is_lost: impl Fn() -> bool) {
        let mut steps = 0;
        while self.count() > 0 && !is_lost() {
            env.sleep(STEP);
            steps += 1;
            if steps == QUIET_STEPS {
                let count = self.count();
                tracing::warn!("{count} operations are at work: closing waits for them");
            }
        }
    }
}

impl Calls {
    fn count(&self) -> usize {
        self.at_work.iter().map(|place| place.load(Ordering::SeqCst)).sum()
    }

    /// Waits until those have ended that are at work now; false: some have not after that many
    /// looks.
    pub(crate) fn pass(&self, env: &Env, looks: u32) -> bool {
        let _alone = self.passing.lock();
        let (now, next) = {
            let turn = self.turn.load(Ordering::SeqCst);
            (&self.at_work[turn & 1], &self.at_work[(turn + 1) & 1])
        };
        let mut looks = looks;
        let mut ends = |place: &AtomicUsize| {
            while place.load(Ordering::SeqCst) > 0 && looks > 0 {
                env.sleep(STEP);
                looks -= 1;
            }
            looks > 0
        };
        // some that an earlier call has not waited for may still be there
        if !ends(next) {
            return false;
        }
        self.turn.fetch_add(1, Ordering::SeqCst);
        ends(now)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_before_are_waited_for_and_those_after_are_not() {
        let (env, calls) = (Env::real(), Calls::default());
        let before = calls.begin().expect("begun");
        assert!(!calls.pass(&env, 3), "one is at work");
        let after = calls.begin().expect("begun");
        drop(before);
        assert!(!calls.pass(&env, 3), "the second is before this moment");
        let third = calls.begin().expect("begun");
        assert!(!calls.pass(&env, 3), "nor is the place of the second free");
        drop(after);
        assert!(!calls.pass(&env, 3), "the third is at work");
        drop(third);
        assert!(calls.pass(&env, 3) && calls.pass(&env, 3));
        assert!(calls.close() && !calls.close());
        assert!(calls.begin().is_err());
        calls.wait(&env, || false);
    }
}
