//! Memory of requests: used again while users make requests, given back to the system when nobody
//! does.
//!
//! The memory that a load leaves free lies between the records that caches keep, in an arena for
//! each few threads, and there glibc keeps it: of 326 MB after thousands of files were made,
//! written and removed 142 MB were in use. Giving memory back walks through free memory under the
//! arena's lock, some 0.2 ms for each MB. So it is done while users are away, and only where much
//! was added since the last time.

use leeward_env::{Activity, Env, Nanos, give_memory_back, keep_memory, processor_time};
use std::sync::Weak;
use std::time::Duration;

/// Time between two checks.
const LOOK: Duration = Duration::from_secs(10);
/// Users who have made no request for this time are away, nanoseconds.
const AWAY: Nanos = 5_000_000_000;
/// The least growth that makes it worth it, bytes.
const LEAST: u64 = 16 << 20;
/// It is repeated for this time: when users have gone, the cell's own work frees more, and the
/// resident size does not show that.
const AGAIN: Nanos = 60_000_000_000;
/// A process that does so little between two checks is idle.
const LITTLE_WORK: Duration = Duration::from_millis(100);

/// For a process that serves a cell. The thread ends when nobody else keeps `activity`.
pub fn of_cell(env: &Env, activity: Weak<Activity>) {
    keep(env, move |now| Some(activity.upgrade()?.is_idle(now, AWAY)));
}

/// For another process that serves users, until it ends: users are away when it does nothing.
pub fn of_process(env: &Env) {
    let mut before = processor_time();
    keep(env, move |_| {
        let now = processor_time();
        let worked = now.saturating_sub(std::mem::replace(&mut before, now));
        Some(worked < LITTLE_WORK)
    });
}

/// Has free memory used again while users are there, and given back when they are away. `is_idle`:
/// whether they are; `None`: that is over.
fn keep(env: &Env, mut is_idle: impl FnMut(Nanos) -> Option<bool> + Send + 'static) {
    keep_memory();
    let clock = env.clone();
    env.spawn("memory", move || {
        let mut floor = Floor::default();
        loop {
            clock.sleep(LOOK);
            let now = clock.now();
            let Some(idle) = is_idle(now) else { return };
            let Some(resident) = resident().filter(|bytes| floor.is_due(now, *bytes, idle)) else { continue };
            give_memory_back();
            floor.bytes = self::resident().unwrap_or(resident);
            tracing::debug!(
                "{resident} bytes were resident, {} are after memory was given back",
                floor.bytes
            );
        }
    });
}

/// The memory that stayed after it was given back.
#[derive(Default)]
struct Floor {
    bytes: u64,
    /// Until when it is repeated, whatever the growth.
    until: Nanos,
}

impl Floor {
    fn is_due(&mut self, now: Nanos, resident: u64, idle: bool) -> bool {
        // memory that shrank by itself, and grows again, is given back again
        self.bytes = self.bytes.min(resident);
        if idle && resident >= self.bytes + LEAST {
            self.until = now + AGAIN;
        }
        idle && now < self.until
    }
}

/// Anonymous memory of this process, bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kb| kb << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_when_users_are_away_and_much_has_come() {
        let mut floor = Floor::default();
        assert!(!floor.is_due(1, LEAST - 1, true));
        assert!(!floor.is_due(1, LEAST, false), "users are there");
        assert!(floor.is_due(1, LEAST, true));
        floor.bytes = LEAST;
        assert!(floor.is_due(AGAIN, LEAST, true), "the cell's own work may have freed more");
        assert!(!floor.is_due(AGAIN, LEAST, false));
        assert!(!floor.is_due(AGAIN + 1, LEAST, true), "it ends");
        floor.bytes = 10 * LEAST;
        assert!(!floor.is_due(2 * AGAIN, 11 * LEAST - 1, true), "caches keep that");
        assert!(!floor.is_due(2 * AGAIN, 5 * LEAST, true));
        assert!(floor.is_due(2 * AGAIN, 6 * LEAST, true), "counted from the least there was");
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn what_lies_between_is_given_back() {
        const PIECES: usize = 64 << 10;
        let before = resident().expect("Linux");
        let mut kept: Vec<Vec<u8>> = (0..PIECES).map(|_| vec![1; 1 << 10]).collect();
        let full = resident().expect("Linux");
        assert!(full >= before + (32 << 20), "{before} {full}: this measures nothing");
        let mut n = 0;
        // the last of each 64: nothing at the end of the heap can be given back by itself
        kept.retain(|_| {
            n += 1;
            n % 64 == 0
        });
        give_memory_back();
        let after = resident().expect("Linux");
        assert!(after + (32 << 20) <= full, "{before}, {full}, {after} with {} pieces", kept.len());
    }
}
