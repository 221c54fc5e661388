//! What users and groups own, in each volume and in the cell, and limits on it. Exact at every
//! moment.
//!
//! What is stored follows from the records of inodes alone: each transaction counts what it changes
//! in them (`Tx::count_owner`). What limits count (`used`) has the content besides that is still
//! pending, as [`quota`](super::quota) does.
//!
//! In a cell of before format 15 the inodes of each volume are counted once, in the order of their
//! numbers (`space/census.rs`). Up to there, changes are counted, too; from there on they need not
//! be.

use crate::format::inode::{Pair, Stats};
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{NodeId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// So long after a user has filled a limit, clients on other machines change nothing by themselves
/// in the volume.
const TIGHT_SECS: i64 = 60;

/// What one user or group owns in a volume.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// By the records.
    recorded: Stats,
    /// With pending content.
    used: Stats,
}

/// A limit that is not kept, and how much more it would have had to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// The volume of the change.
    pub volume: u32,
    /// Whose limit.
    pub who: UserOrGroup,
    /// What the change adds.
    pub by: Stats,
}

/// What users and groups own, and their limits.
#[derive(Default)]
pub struct Owners {
    by_volume: BTreeMap<(u32, UserOrGroup), Usage>,
    /// Used in all volumes.
    in_cell: BTreeMap<UserOrGroup, Stats>,
    /// By volume; `None`: in the cell.
    limits: BTreeMap<(UserOrGroup, Option<u32>), Pair>,
    /// Volumes that are not counted yet, and from which inode on.
    uncounted: BTreeMap<u32, u64>,
    /// Whether it is still to be stored that this cell counts.
    begins: bool,
    /// What must be stored.
    dirty: BTreeSet<(u32, UserOrGroup)>,
    dirty_counts: BTreeSet<u32>,
    /// Who came near a limit, in which volume, and when last: seconds since 1970.
    tight: BTreeMap<(u32, UserOrGroup), i64>,
    /// Up to which stamp a volume's recycle bin has nothing of an owner.
    searched: BTreeMap<(u32, UserOrGroup), u64>,
}

/// What a commit stores: values by volume and owner, volumes by what is still to be counted, and
/// whether counting begins.
pub struct OwnerWrites {
    /// What is owned; `None`: nothing.
    pub owned: Vec<(u32, UserOrGroup, Option<Stats>)>,
    /// From which inode on a volume is still to be counted; `None`: it is counted.
    pub uncounted: Vec<(u32, Option<u64>)>,
    /// Whether it is to be stored that this cell counts.
    pub begins: bool,
}

impl Owners {
    /// Adds a stored record.
    pub fn load(&mut self, volume: u32, who: UserOrGroup, recorded: Stats) {
        self.by_volume.insert((volume, who), Usage { recorded, used: recorded });
        self.add_in_cell(who, recorded);
    }

    /// Adds a stored position in a volume that is still to be counted.
    pub fn load_uncounted(&mut self, volume: u32, from: u64) {
        self.uncounted.insert(volume, from);
    }

    /// The cell is of before format 15: all these volumes are to be counted.
    pub fn begin(&mut self, volumes: impl Iterator<Item = u32>) {
        self.begins = true;
        for volume in volumes {
            self.uncounted.insert(volume, 1);
            self.dirty_counts.insert(volume);
        }
    }

    /// Whether the inode counts already.
    pub fn counts(&self, node: NodeId) -> bool {
        self.uncounted.get(&node.volume()).is_none_or(|from| node.inode() < *from)
    }

    /// A volume that is not counted, and from which inode on.
    pub fn next_uncounted(&self) -> Option<(u32, u64)> {
        self.uncounted.iter().next().map(|(volume, from)| (*volume, *from))
    }

    /// Whether all of a volume is counted.
    pub fn is_counted(&self, volume: Option<u32>) -> bool {
        volume.map_or(self.uncounted.is_empty(), |volume| !self.uncounted.contains_key(&volume))
    }

    /// The volume is counted up to this inode; `None`: all of it.
    pub fn counted(&mut self, volume: u32, from: Option<u64>) {
        match from {
            Some(from) => drop(self.uncounted.insert(volume, from)),
            None => drop(self.uncounted.remove(&volume)),
        }
        self.dirty_counts.insert(volume);
    }

    /// Counts a change: of what is recorded, and of what is used.
    pub fn add(&mut self, volume: u32, who: UserOrGroup, recorded: Stats, used: Stats) {
        let usage = self.by_volume.entry((volume, who)).or_default();
        usage.used = usage.used.plus(used);
        if !recorded.is_zero() {
            usage.recorded = usage.recorded.plus(recorded);
            self.dirty.insert((volume, who));
        }
        if usage.recorded.is_zero() && usage.used.is_zero() {
            self.by_volume.remove(&(volume, who));
        }
        self.add_in_cell(who, used);
    }

    fn add_in_cell(&mut self, who: UserOrGroup, used: Stats) {
        let sum = self.in_cell.entry(who).or_default();
        *sum = sum.plus(used);
        if sum.is_zero() {
            self.in_cell.remove(&who);
        }
    }

    /// What a user or a group uses in a volume; `None`: in the cell.
    pub fn used(&self, volume: Option<u32>, who: UserOrGroup) -> Stats {
        match volume {
            Some(volume) => self.by_volume.get(&(volume, who)).map(|usage| usage.used).unwrap_or_default(),
            None => self.in_cell.get(&who).copied().unwrap_or_default(),
        }
    }

    /// Inodes in a volume, as far as they are counted.
    pub fn inodes_in(&self, volume: u32) -> u64 {
        let users = (volume, UserOrGroup::User(0))..=(volume, UserOrGroup::User(u32::MAX));
        self.by_volume.range(users).map(|(_, usage)| (usage.used.files + usage.used.dirs).max(0) as u64).sum()
    }

    /// Who owns something in volumes, from this one on.
    pub fn beginning_at(&self, first: (u32, UserOrGroup)) -> impl Iterator<Item = (u32, UserOrGroup)> {
        self.by_volume.range(first..).map(|(key, _)| *key)
    }

    /// All that is used, by volume and owner.
    pub fn iter(&self) -> impl Iterator<Item = (u32, UserOrGroup, Stats)> + '_ {
        self.by_volume.iter().map(|((volume, who), usage)| (*volume, *who, usage.used))
    }

    /// The number of the first user, or group, from this one on that owns something.
    pub fn next_in_cell(&self, from: UserOrGroup) -> Option<u64> {
        let (id, is_same): (_, fn(&UserOrGroup) -> Option<u32>) = match from {
            UserOrGroup::User(_) => {
                (from, |who| if let UserOrGroup::User(id) = who { Some(*id) } else { None })
            }
            UserOrGroup::Group(_) => {
                (from, |who| if let UserOrGroup::Group(id) = who { Some(*id) } else { None })
            }
        };
        self.in_cell.range(id..).next().and_then(|(who, _)| is_same(who)).map(u64::from)
    }

    /// All that is used, by owner.
    pub fn in_cell(&self) -> impl Iterator<Item = (UserOrGroup, Stats)> + '_ {
        self.in_cell.iter().map(|(who, used)| (*who, *used))
    }

    /// The limits of a user or a group in a volume, or (`None`) in the cell: bytes, inodes; 0:
    /// none.
    pub fn limit(&self, volume: Option<u32>, who: UserOrGroup) -> Pair {
        self.limits.get(&(who, volume)).copied().unwrap_or_default()
    }

    /// Sets limits; 0 and 0: none.
    pub fn set_limit(&mut self, volume: Option<u32>, who: UserOrGroup, limit: Pair) {
        match limit == Pair::default() {
            true => drop(self.limits.remove(&(who, volume))),
            false => drop(self.limits.insert((who, volume), limit)),
        }
    }

    /// All limits.
    pub fn limits(&self) -> impl Iterator<Item = (Option<u32>, UserOrGroup, Pair)> + '_ {
        self.limits_from(UserOrGroup::User(0))
    }

    /// Those of this user or group, and of all after it.
    pub fn limits_from(
        &self,
        who: UserOrGroup,
    ) -> impl Iterator<Item = (Option<u32>, UserOrGroup, Pair)> + '_ {
        self.limits.range((who, None)..).map(|((who, volume), limit)| (*volume, *who, *limit))
    }

    /// Whether nobody is limited.
    pub fn are_unlimited(&self) -> bool {
        self.limits.is_empty()
    }

    /// Whether `by` more keeps the limits, in the volume and in the cell.
    pub fn fits(&self, volume: u32, who: UserOrGroup, by: Stats) -> bool {
        [Some(volume), None].into_iter().all(|scope| {
            let (limit, used) = (self.limit(scope, who), self.used(scope, who));
            let over = |limit: u64, used: i64, add: i64| add > 0 && limit > 0 && used + add > limit as i64;
            !over(limit.0, used.bytes, by.bytes) && !over(limit.1, used.inodes(), by.inodes())
        })
    }

    /// Bytes that still fit, where there is a limit.
    pub fn left(&self, volume: u32, who: UserOrGroup) -> Option<u64> {
        let left = |scope| {
            let limit = self.limit(scope, who).0;
            (limit > 0).then(|| limit.saturating_sub(self.used(scope, who).bytes.max(0) as u64))
        };
        [Some(volume), None].into_iter().filter_map(left).min()
    }

    /// Somebody came near a limit by a change in this volume.
    pub fn note_tight(&mut self, volume: u32, who: UserOrGroup, now: Time) {
        self.tight.insert((volume, who), now.secs);
    }

    /// Whether somebody has lately come near a limit by changes in this volume.
    pub fn is_tight(&self, volume: u32, now: Time) -> bool {
        let range = (volume, UserOrGroup::User(0))..(volume + 1, UserOrGroup::User(0));
        self.tight.range(range).any(|(_, since)| (0..TIGHT_SECS).contains(&(now.secs - since)))
    }

    /// From which stamp on the recycle bin of a volume may have something of an owner.
    pub fn bin_search_from(&self, volume: u32, who: UserOrGroup) -> u64 {
        self.searched.get(&(volume, who)).copied().unwrap_or(0)
    }

    /// Up to this stamp it has nothing.
    pub fn note_bin_searched(&mut self, volume: u32, who: UserOrGroup, stamp: u64) {
        self.searched.insert((volume, who), stamp);
    }

    /// Removes a volume. What is stored of it goes with it, in steps.
    pub fn drop_volume(&mut self, volume: u32) {
        let of_volume: Vec<_> = self.by_volume.extract_if(.., |(of, _), _| *of == volume).collect();
        of_volume.into_iter().for_each(|((_, who), usage)| self.add_in_cell(who, usage.used.negated()));
        self.limits.retain(|(_, of), _| *of != Some(volume));
        self.uncounted.remove(&volume);
        self.dirty.retain(|(of, _)| *of != volume);
        self.dirty_counts.remove(&volume);
        self.tight.retain(|(of, _), _| *of != volume);
        self.searched.retain(|(of, _), _| *of != volume);
    }

    /// Whether there is something to commit.
    pub fn is_dirty(&self) -> bool {
        self.begins || !self.dirty.is_empty() || !self.dirty_counts.is_empty()
    }

    /// What is to be written, in order.
    pub fn freeze(&mut self) -> OwnerWrites {
        let recorded = |key: &(u32, UserOrGroup)| {
            let stats = self.by_volume.get(key).map(|usage| usage.recorded);
            stats.filter(|stats| !stats.is_zero())
        };
        let owned = self.dirty.iter().map(|key| (key.0, key.1, recorded(key))).collect();
        let uncounted =
            self.dirty_counts.iter().map(|volume| (*volume, self.uncounted.get(volume).copied())).collect();
        let begins = std::mem::take(&mut self.begins);
        self.dirty.clear();
        self.dirty_counts.clear();
        OwnerWrites { owned, uncounted, begins }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: UserOrGroup = UserOrGroup::User(7);

    fn files(bytes: i64, files: i64) -> Stats {
        Stats { bytes, files, dirs: 0 }
    }

    #[test]
    fn limits_hold_in_the_volume_and_in_the_cell() {
        let mut owners = Owners::default();
        owners.add(1, ALICE, files(60, 1), files(60, 1));
        owners.add(2, ALICE, files(30, 1), files(30, 1));
        owners.set_limit(Some(1), ALICE, Pair(100, 0));
        assert!(owners.fits(1, ALICE, files(40, 9)) && !owners.fits(1, ALICE, files(41, 0)));
        assert!(owners.fits(2, ALICE, files(1000, 1)));
        owners.set_limit(None, ALICE, Pair(0, 3));
        assert!(owners.fits(2, ALICE, files(0, 1)) && !owners.fits(2, ALICE, files(0, 2)));
        assert!(owners.fits(2, ALICE, files(-5, 0)), "what does not grow fits");
        assert_eq!((owners.left(1, ALICE), owners.left(2, ALICE)), (Some(40), None));
    }

    #[test]
    fn a_volume_that_goes_counts_no_more() {
        let mut owners = Owners::default();
        owners.add(1, ALICE, files(60, 1), files(60, 1));
        owners.add(2, ALICE, files(30, 1), files(50, 1));
        owners.drop_volume(1);
        assert_eq!(owners.used(None, ALICE), files(50, 1));
        let writes = owners.freeze();
        assert_eq!(writes.owned, [(2, ALICE, Some(files(30, 1)))]);
        assert!(!owners.is_dirty());
    }

    #[test]
    fn volumes_of_before_are_counted_up_to_where_one_is() {
        let mut owners = Owners::default();
        owners.begin([3].into_iter());
        let node = |inode| NodeId::new(3, inode);
        assert!(!owners.counts(node(1)) && !owners.is_counted(Some(3)) && owners.is_counted(Some(4)));
        owners.counted(3, Some(5));
        assert!(owners.counts(node(4)) && !owners.counts(node(5)));
        let writes = owners.freeze();
        assert!(writes.begins);
        assert_eq!(writes.uncounted, [(3, Some(5))]);
        owners.counted(3, None);
        assert!(owners.counts(node(500)) && owners.is_counted(None));
        assert_eq!(owners.freeze().uncounted, [(3, None)]);
    }
}
