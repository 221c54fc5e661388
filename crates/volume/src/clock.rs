//! The clock for locks of snapshots: it never runs ahead of the time that has really passed since
//! the cell was opened.
//!
//! It begins with the wall clock when the cell is opened and goes on with the monotonic clock.
//! Where the wall clock is behind it, the wall clock counts. So a wall clock that is set back or
//! forward ends no lock early. While nothing is locked it follows the wall clock. It cannot know
//! the time that passed while the cell was not open. So the time of the last commit is stored, and
//! a wall clock far ahead of it causes a warning.

use leeward_env::dates;
use leeward_env::{Env, Nanos};
use parking_lot::Mutex;

/// A difference of the clocks from which on the log warns.
const TELL_SECS: i64 = 60;
/// A cell that was not open for longer than this gets a warning when something is locked.
const FAR_SECS: i64 = dates::DAY_SECS;
/// The time is stored at least so often while something is locked.
pub const STORE_SECS: i64 = 3600;

/// The clock for locks of snapshots.
#[derive(Default)]
pub struct LockClock(Mutex<Base>);

#[derive(Default)]
struct Base {
    trusted: Nanos,
    monotonic: Nanos,
    /// Whether the log has warned that the clocks differ.
    told: bool,
}

/// The clock at one moment, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time for locks, since 1970.
    pub now: i64,
    /// How far the wall clock is ahead of the time that has passed; below zero: behind.
    pub ahead: i64,
}

fn secs(nanos: Nanos) -> i64 {
    (nanos / 1_000_000_000) as i64
}

impl LockClock {
    /// Starts the clock. `stored`: the time of the last commit, if it was stored; `locked_until`:
    /// the end of the last lock, 0: none.
    pub fn start(&self, env: &Env, stored: Option<i64>, locked_until: i64) {
        let (trusted, monotonic) = (env.wall(), env.now());
        *self.0.lock() = Base { trusted, monotonic, told: false };
        let Some(stored) = stored.filter(|t| locked_until > *t) else { return };
        let (now, then) = (dates::minute(secs(trusted)), dates::minute(stored));
        if secs(trusted) > stored + FAR_SECS {
            tracing::warn!(
                "the clock says {now}, the last commit was at {then}: if the clock is wrong, locks of snapshots end early; \
                 then end this process, set the clock and start again"
            );
        } else if secs(trusted) < stored - TELL_SECS {
            tracing::warn!(
                "the clock says {now}, but the last commit was at {then}: locks of snapshots end late"
            );
        }
    }

    /// The current moment. `locked_until`: as for [`LockClock::start`].
    pub fn look(&self, env: &Env, locked_until: i64) -> Moment {
        let mut base = self.0.lock();
        let (wall, monotonic) = (env.wall(), env.now());
        let trusted = base.trusted + monotonic.saturating_sub(base.monotonic);
        if secs(trusted.min(wall)) >= locked_until {
            *base = Base { trusted: wall, monotonic, told: false };
            return Moment { now: secs(wall), ahead: 0 };
        }
        let moment = Moment { now: secs(trusted.min(wall)), ahead: secs(wall) - secs(trusted) };
        let differs = moment.ahead.abs() > TELL_SECS;
        if differs && !base.told {
            tracing::warn!(
                "the clock was set by {} s while the cell was open: locks of snapshots end no earlier for it",
                moment.ahead
            );
        }
        base.told = differs;
        moment
    }
}
