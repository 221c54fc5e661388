//! Stopping a run on request: by Ctrl-C, or by the process that started us. The request is a flag
//! that every loop checks.

use leeward_env::Env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time after which a sleeper sees that it has to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Whether to stop. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Uses a flag that something else sets, such as a signal handler.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Stop {
        Stop(flag)
    }

    /// Asks all loops to stop.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps for `time`, or until a stop. Returns whether a stop was requested.
    pub fn sleep(&self, env: &Env, time: Duration) -> bool {
        let end = env.now() + time.as_nanos() as u64;
        while !self.asked() {
            let left = Duration::from_nanos(end.saturating_sub(env.now()));
            if left.is_zero() {
                return false;
            }
            env.sleep(left.min(LOOK));
        }
        true
    }
}
