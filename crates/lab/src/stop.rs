//! The end of a run that somebody asks for: Ctrl-C, or the one that started us. It is a flag that every loop looks at.

use leeward_env::Env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a sleeper takes to see that it is over.
const LOOK: Duration = Duration::from_millis(50);

/// Whether to stop. Clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that something else sets, such as a signal handler.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Stop {
        Stop(flag)
    }

    /// Asks everybody to stop.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps for `time`, less when it is over; says whether it is.
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
