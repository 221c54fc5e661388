//! The owners of the subordinate users of containers.
//!
//! A rootless container runs as up to 65,536 users of its owner's range (`/etc/subuid`). They share
//! what their owner gets: otherwise a container would be as many users in the eyes of the gate.

use crate::people::Subordinates;
use leeward_env::Nanos;

/// How often it is checked whether the ranges changed, nanoseconds.
const LOOK_EVERY: Nanos = 10_000_000_000;

/// The known ranges.
#[derive(Default)]
pub(crate) struct Owners {
    /// The ranges, by their first user.
    ranges: Vec<Subordinates>,
    /// Time of the next check.
    look_at: Nanos,
}

impl Owners {
    /// The user who pays for what this one does.
    pub(crate) fn of(&self, uid: u32) -> u32 {
        let before = self.ranges.partition_point(|range| range.first <= uid);
        let nearest = before.checked_sub(1).and_then(|n| self.ranges.get(n));
        // the system itself is nobody's
        nearest
            .filter(|range| uid - range.first < range.count && uid != u32::MAX)
            .map_or(uid, |range| range.owner)
    }

    /// Whether the caller must make sure that somebody checks for changes.
    pub(crate) fn are_old(&mut self, now: Nanos) -> bool {
        let old = now >= self.look_at;
        if old {
            self.look_at = now + LOOK_EVERY;
        }
        old
    }

    /// Sets the ranges.
    pub(crate) fn set(&mut self, mut ranges: Vec<Subordinates>) {
        ranges.sort_unstable_by_key(|range| range.first);
        self.ranges = ranges;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_belong_to_their_owners() {
        let mut owners = Owners::default();
        assert_eq!(owners.of(100_000), 100_000);
        let range = |first, count, owner| Subordinates { first, count, owner };
        owners.set(vec![
            range(165_536, 65_536, 1001),
            range(100_000, 65_536, 1000),
            range(u32::MAX - 1, 9, 7),
        ]);
        for (uid, owner) in [
            (0, 0),
            (1000, 1000),
            (99_999, 99_999),
            (100_000, 1000),
            (165_535, 1000),
            (165_536, 1001),
            (231_071, 1001),
            (231_072, 231_072),
            (u32::MAX - 1, 7),
            (u32::MAX, u32::MAX),
        ] {
            assert_eq!(owners.of(uid), owner, "{uid}");
        }
        owners.set(Vec::new());
        assert_eq!(owners.of(100_000), 100_000);
    }

    #[test]
    fn they_are_looked_for_now_and_then() {
        let mut owners = Owners::default();
        assert!(owners.are_old(5));
        assert!(!owners.are_old(6), "somebody looks already");
        assert!(owners.are_old(5 + LOOK_EVERY));
    }
}
