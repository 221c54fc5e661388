//! Operations at work: a cell is closed when there are none, so what one was told is durable then.

use leeward_env::Env;
use leeward_fs::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How often it is looked whether all have ended, and after how many looks it is said that they are waited for.
const STEP: Duration = Duration::from_millis(1);
const QUIET_STEPS: u32 = 1000;

/// See the module's head.
#[derive(Default)]
pub(super) struct Calls {
    at_work: AtomicUsize,
    closed: AtomicBool,
}

/// An operation, until it is dropped.
pub(super) struct AtWork<'a>(&'a Calls);

impl Calls {
    /// An operation begins.
    pub(super) fn begin(&self) -> Result<AtWork<'_>> {
        // in this order: whoever closes sees it, or it sees that
        self.at_work.fetch_add(1, Ordering::SeqCst);
        let at_work = AtWork(self);
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Io("the cell is closed".into()));
        }
        Ok(at_work)
    }

    /// From now on none begins. False: that was so before.
    pub(super) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// Waits for those at work, until `is_lost`.
    pub(super) fn wait(&self, env: &Env, is_lost: impl Fn() -> bool) {
        let mut steps = 0;
        while self.at_work.load(Ordering::SeqCst) > 0 && !is_lost() {
            env.sleep(STEP);
            steps += 1;
            if steps == QUIET_STEPS {
                let count = self.at_work.load(Ordering::SeqCst);
                tracing::warn!("{count} operations are at work: closing waits for them");
            }
        }
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::SeqCst);
    }
}
