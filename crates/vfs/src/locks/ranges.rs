//! The ranges of one file that one owner has locked.

use leeward_fs::locks::{LAST_BYTE, LockMode, LockRange};
use std::collections::BTreeMap;

/// Ranges with their modes. They do not overlap, and neighbours of the same mode are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockedRanges(BTreeMap<u64, (u64, LockMode)>);

impl LockedRanges {
    /// From now on the range has this mode; `None`: it is not locked.
    pub fn put(&mut self, range: LockRange, mode: Option<LockMode>) {
        let overlapping: Vec<_> = self.overlapping(range).collect();
        for (old, old_mode) in overlapping {
            self.0.remove(&old.first);
            if old.first < range.first {
                self.0.insert(old.first, (range.first - 1, old_mode));
            }
            if old.last > range.last {
                self.0.insert(range.last + 1, (old.last, old_mode));
            }
        }
        if let Some(mode) = mode {
            self.insert(range, mode);
        }
    }

    /// Inserts a range that overlaps none, and joins it to its neighbours.
    fn insert(&mut self, LockRange { mut first, mut last }: LockRange, mode: LockMode) {
        if let Some((before, (end, its_mode))) = self.0.range(..first).next_back()
            && (*end, *its_mode) == (first.wrapping_sub(1), mode)
        {
            first = *before;
        }
        if last < LAST_BYTE
            && let Some((end, its_mode)) = self.0.get(&(last + 1)).copied()
            && its_mode == mode
        {
            self.0.remove(&(last + 1));
            last = end;
        }
        self.0.insert(first, (last, mode));
    }

    /// The ranges that overlap this one, in order.
    pub fn overlapping(&self, range: LockRange) -> impl Iterator<Item = (LockRange, LockMode)> + '_ {
        let before =
            self.0.range(..range.first).next_back().filter(move |(_, (last, _))| *last >= range.first);
        let rest =
            if range.first <= range.last { Some(self.0.range(range.first..=range.last)) } else { None };
        let all = before.into_iter().chain(rest.into_iter().flatten());
        all.map(|(first, (last, mode))| (LockRange { first: *first, last: *last }, *mode))
    }

    /// The first lock that is in the way of another owner's of this mode.
    pub fn in_the_way(&self, range: LockRange, mode: LockMode) -> Option<(LockRange, LockMode)> {
        self.overlapping(range).find(|(_, held)| [*held, mode].contains(&LockMode::Exclusive))
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = (LockRange, LockMode)> + '_ {
        self.overlapping(LockRange::ALL)
    }
}
