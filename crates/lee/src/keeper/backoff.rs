//! How long the keeper waits before it starts a server again.
//!
//! A server that served is started again at once: its users wait. A crash loop must not take the
//! machine, so quick restarts come from a budget, which fills up again with time. When the budget
//! is empty, or the server does not even start, the pause doubles from try to try.

use leeward_env::Nanos;
use std::time::Duration;

/// The first pause.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// No pause is longer.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Restarts without a pause that a budget has.
const QUICK_MAX: u64 = 30;
/// Time in which one is added, nanoseconds.
const QUICK_EVERY: Nanos = 20_000_000_000;
/// A server that served so long starts the doubling anew.
const CALM: Duration = Duration::from_secs(60);

/// The state between two restarts.
#[derive(Debug, Default)]
pub struct Backoff {
    pause: Duration,
    /// Quick restarts that were used, and when the first of them becomes free again.
    used: u64,
    refilled: Nanos,
}

impl Backoff {
    /// The pause after a server that served for some time crashed.
    pub fn after_crash(&mut self, now: Nanos, served: Duration) -> Duration {
        if served >= CALM {
            self.pause = Duration::ZERO;
        }
        self.refill(now);
        if self.used >= QUICK_MAX {
            return self.longer();
        }
        self.used += 1;
        Duration::ZERO
    }

    /// The pause after a server that could not be started.
    pub fn after_failure(&mut self) -> Duration {
        self.longer()
    }

    fn longer(&mut self) -> Duration {
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.pause
    }

    fn refill(&mut self, now: Nanos) {
        if self.used == 0 {
            self.refilled = now;
        }
        let added = now.saturating_sub(self.refilled) / QUICK_EVERY;
        self.used = self.used.saturating_sub(added);
        self.refilled += added * QUICK_EVERY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn a_server_that_served_is_started_at_once() {
        let mut backoff = Backoff::default();
        for n in 0..QUICK_MAX {
            assert_eq!(backoff.after_crash(n * SECOND, Duration::ZERO), Duration::ZERO, "{n}");
        }
    }

    #[test]
    fn a_crash_loop_is_slowed_and_an_hour_later_it_is_not() {
        let mut backoff = Backoff::default();
        let mut now = 0;
        for _ in 0..200 {
            now += SECOND + backoff.after_crash(now, Duration::from_secs(1)).as_nanos() as Nanos;
        }
        assert!(now > 1000 * SECOND, "{now}");
        now += 3600 * SECOND;
        for _ in 0..QUICK_MAX {
            assert_eq!(backoff.after_crash(now, Duration::from_secs(3600)), Duration::ZERO);
        }
        assert_eq!(backoff.after_crash(now, Duration::ZERO), PAUSE_MIN, "it begins anew");
    }

    #[test]
    fn failed_starts_double_the_pause_up_to_a_bound() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..11).map(|_| backoff.after_failure().as_millis()).collect();
        assert_eq!(pauses[..4], [100, 200, 400, 800]);
        assert_eq!(pauses[9..], [30_000, 30_000]);
        assert_eq!(backoff.after_crash(0, Duration::ZERO), Duration::ZERO, "it came back");
        assert_eq!(backoff.after_failure(), PAUSE_MAX, "and is not calm yet");
        backoff.after_crash(SECOND, CALM);
        assert_eq!(backoff.after_failure(), PAUSE_MIN);
    }
}
