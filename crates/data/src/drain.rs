//! How fast a pool takes puts, and how long a writer pauses because of it.
//!
//! Without pauses a writer fills its memory at once, and then waits for a whole segment to be put
//! before it may go on: one write in sixteen takes all the time. So while a pool says that it is
//! pressed ([`leeward_pool::Store::is_pressed`]) each append pauses. The pause grows with the share
//! of memory that the writer holds. At five eighths of its share it is as long as the pool takes
//! for as many bytes. Pure: the caller passes the time.

use leeward_env::Nanos;

/// The speed is averaged over about this time.
const RECENT: Nanos = 8_000_000_000;
/// Most time between two puts that counts as busy time of the pool.
const GAP_MAX: Nanos = 2_000_000_000;
/// The longest pause.
const PAUSE_MAX: Nanos = 1_000_000_000;
/// A writer that holds less than this part (one in `FREE_PART`) of its share does not pause.
const FREE_PART: u64 = 4;

/// The speed of a pool, and the pauses that follow from it.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    pressed: bool,
    put_at: Nanos,
    bytes: u64,
    nanos: Nanos,
    /// When the last pause that was given out ends.
    until: Nanos,
}

impl Drain {
    /// Takes note of a put, and whether the pool is pressed.
    pub(crate) fn was_put(&mut self, now: Nanos, bytes: u64, pressed: bool) {
        if !pressed || !self.pressed {
            *self = Drain { pressed, put_at: now, ..Drain::default() };
            return;
        }
        self.bytes += bytes;
        self.nanos += now.saturating_sub(self.put_at).min(GAP_MAX);
        self.put_at = now;
        if self.nanos > RECENT {
            (self.bytes, self.nanos) = (self.bytes / 2, self.nanos / 2);
        }
    }

    /// Whether any writer may have to pause.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed && self.bytes > 0
    }

    /// Whether a writer that holds `held` of `share` pauses at all.
    pub(crate) fn is_slow(&self, (held, share): (u64, u64)) -> bool {
        self.is_pressed() && held > share / FREE_PART
    }

    /// How long a writer that holds `held` of `share` pauses before it brings `bytes` more. Writers
    /// that pause do so one after the other.
    pub(crate) fn pause(&mut self, now: Nanos, bytes: u64, (held, share): (u64, u64)) -> Nanos {
        let over = held.saturating_sub(share / FREE_PART);
        if !self.is_slow((held, share)) {
            return 0;
        }
        let wide = |n: u64| u128::from(n);
        let takes = wide(bytes) * wide(self.nanos) / wide(self.bytes);
        let pause = takes * wide(over) * 8 / (wide(share) * 3);
        let pause = pause.min(u128::from(PAUSE_MAX)) as Nanos;
        self.until = (self.until.max(now) + pause).min(now + PAUSE_MAX);
        self.until - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: Nanos = 1_000_000_000;

    /// A pool that takes 16 MiB a second.
    fn pressed() -> Drain {
        let mut drain = Drain::default();
        (0..6).for_each(|n| drain.was_put(n * SECOND, 16 * MIB, true));
        drain
    }

    #[test]
    fn nobody_pauses_before_a_pool_that_is_not_pressed() {
        let mut drain = Drain::default();
        (0..6).for_each(|n| drain.was_put(n * SECOND, 16 * MIB, false));
        assert_eq!(drain.pause(9 * SECOND, MIB, (48 * MIB, 48 * MIB)), 0);
        let mut drain = pressed();
        drain.was_put(7 * SECOND, MIB, false);
        assert_eq!(drain.pause(9 * SECOND, MIB, (48 * MIB, 48 * MIB)), 0);
    }

    #[test]
    fn pauses_grow_with_what_is_held() {
        let pause = |held: u64| pressed().pause(9 * SECOND, MIB, (held * MIB, 48 * MIB));
        assert_eq!(pause(12), 0);
        assert_eq!(pause(30), SECOND / 16, "at five eighths as fast as it drains");
        assert_eq!(pause(48), SECOND / 8);
    }

    #[test]
    fn who_pauses_beside_others_does_so_after_them() {
        let mut drain = pressed();
        let pause = |drain: &mut Drain| drain.pause(9 * SECOND, MIB, (30 * MIB, 48 * MIB));
        let pauses: Vec<Nanos> = (0..3).map(|_| pause(&mut drain)).collect();
        assert_eq!(pauses, [SECOND / 16, SECOND / 8, 3 * SECOND / 16]);
        assert!((0..100).all(|_| pause(&mut drain) <= PAUSE_MAX));
    }

    #[test]
    fn an_hour_without_puts_says_nothing_of_the_speed() {
        let mut drain = pressed();
        drain.was_put(3600 * SECOND, 16 * MIB, true);
        let pause = drain.pause(3601 * SECOND, MIB, (30 * MIB, 48 * MIB));
        assert!(pause < SECOND / 8, "{pause}");
    }
}
