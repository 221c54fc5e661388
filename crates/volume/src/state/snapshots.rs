//! Snapshots of all volumes, in memory: which exist, the data that only they hold, and the views
//! through which they are read.
//!
//! A snapshot is the end of an epoch. It sees what was born in its epoch or before and died after
//! it. A record that is superseded while a snapshot sees it goes to the history and on the
//! deadlist, where it is counted by its pair of epochs (a *tally*). Removing a snapshot removes its
//! record, nothing else. Pairs that no snapshot sees any more are *doomed*, and their entries on
//! the deadlist are freed in steps (`trim.rs`). So there is no state of a removal that a crash
//! could lose.
//!
//! A *view* is a number in place of a volume's in [`NodeId`](leeward_fs::NodeId)s and cached keys.
//! It stands for a snapshot of a volume, or for the directories of snapshots of a volume. Views are
//! numbered as they are needed and never stored.

use crate::format::inode::SnapshotRecord;
use crate::format::keys::EpochPair;
use crate::state::which::WhichShard;
use leeward_env::Nanos;
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{DIRECTORIES_FIRST, NodeId, VIEW_FIRST};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Figures of a deadlist under one pair of epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries.
    pub records: i64,
    /// Bytes of data in these entries.
    pub bytes: i64,
}

impl Tally {
    /// Sum.
    pub fn plus(self, o: Tally) -> Tally {
        Tally { records: self.records + o.records, bytes: self.bytes + o.bytes }
    }

    /// Difference.
    pub fn minus(self, o: Tally) -> Tally {
        Tally { records: self.records - o.records, bytes: self.bytes - o.bytes }
    }
}

/// The meaning of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// A volume as it was at the end of this epoch.
    Snapshot {
        /// The volume.
        volume: u32,
        /// The epoch.
        epoch: u32,
    },
    /// The same, as a copy shows it in its place in the tree: the kernel has one name for a
    /// directory, and this one has another below `.snap`.
    Shown {
        /// The volume.
        volume: u32,
        /// The epoch.
        epoch: u32,
    },
    /// The directories of snapshots; the inode number is that of the directory they are in.
    Directory {
        /// The volume.
        volume: u32,
    },
}

impl View {
    /// Its volume.
    pub fn volume(self) -> u32 {
        match self {
            View::Snapshot { volume, .. } | View::Shown { volume, .. } | View::Directory { volume } => volume,
        }
    }

    fn is_of_directories(self) -> bool {
        matches!(self, View::Directory { .. })
    }

    /// The volume and the epoch of the snapshot that it shows.
    pub fn snapshot(self) -> Option<(u32, u32)> {
        match self {
            View::Snapshot { volume, epoch } | View::Shown { volume, epoch } => Some((volume, epoch)),
            View::Directory { .. } => None,
        }
    }
}

/// Snapshots of one volume.
#[derive(Default)]
struct VolumeSnapshots {
    by_epoch: BTreeMap<u32, SnapshotRecord>,
    by_dir: FxHashMap<u64, BTreeMap<Box<[u8]>, u32>>,
    /// Records to write or, where `by_epoch` has nothing, to remove.
    changed: BTreeSet<u32>,
    /// Snapshots whose records were never written: a crash leaves no trace of them.
    unwritten: BTreeSet<u32>,
    tallies: BTreeMap<EpochPair, Tally>,
    tallies_changed: BTreeSet<EpochPair>,
    /// Sum of `tallies`, and of the doomed ones among them.
    all: Tally,
    doomed: Tally,
}

impl VolumeSnapshots {
    /// The newest snapshot before `epoch`.
    fn newest_before(&self, epoch: u32) -> Option<u32> {
        self.by_epoch.range(..epoch).next_back().map(|(s, _)| *s)
    }

    fn is_seen(&self, pair: EpochPair) -> bool {
        self.newest_before(pair.death).is_some_and(|s| s >= pair.birth)
    }

    /// Pairs that only `epoch` among the snapshots sees (whether it still exists or not).
    fn seen_alone_by(&self, epoch: u32) -> impl Iterator<Item = (EpochPair, Tally)> + '_ {
        let before = self.newest_before(epoch).unwrap_or(0);
        let after = self.by_epoch.range(epoch + 1..).next().map_or(u32::MAX, |(s, _)| *s);
        let range = EpochPair { death: epoch + 1, birth: 0 }..=EpochPair { death: after, birth: u32::MAX };
        let born = move |b: u32| b <= epoch && (before == 0 || b > before);
        self.tallies.range(range).filter(move |(pair, _)| born(pair.birth)).map(|(p, t)| (*p, *t))
    }
}

/// Space of a volume's snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Data that snapshots hold and that is not live.
    pub held: Tally,
    /// Data that no snapshot holds any more and trim has not freed yet.
    pub doomed: Tally,
}

/// The records of a volume's snapshots for a commit: records to write (`None`: to remove) and
/// changed tallies.
#[derive(Default)]
pub struct SnapshotWrites {
    /// By volume and epoch.
    pub snapshots: Vec<(u32, u32, Option<SnapshotRecord>)>,
    /// By volume and pair; `None`: nothing left.
    pub tallies: Vec<(u32, EpochPair, Option<Tally>)>,
}

/// The numbers that views of a shard may get, from the first of their kind on. They are given out
/// in turn: one that is free again comes last.
struct ViewNumbers {
    own: Range<u32>,
    next: u32,
    /// How many of each kind are used: snapshots, directories of snapshots.
    used: [usize; 2],
}

impl Default for ViewNumbers {
    fn default() -> ViewNumbers {
        ViewNumbers::new(WhichShard::default().views(), 0)
    }
}

impl ViewNumbers {
    fn new(own: Range<u32>, now: Nanos) -> ViewNumbers {
        let next = own.start + (now / 1000 % (own.len() as u64 - 1)) as u32;
        ViewNumbers { own, next, used: [0; 2] }
    }

    /// The number of what can get none: the last one, which is never given out.
    fn nowhere(&self) -> u32 {
        VIEW_FIRST + self.own.end - 1
    }

    fn take(&mut self, is_of_directories: bool, is_used: impl Fn(u32) -> bool) -> Option<u32> {
        let first = if is_of_directories { DIRECTORIES_FIRST } else { VIEW_FIRST };
        let used = &mut self.used[usize::from(is_of_directories)];
        if *used + 1 >= self.own.len() {
            return None;
        }
        *used += 1;
        loop {
            let n = self.next;
            self.next = if n + 2 < self.own.end { n + 1 } else { self.own.start };
            if !is_used(first + n) {
                return Some(first + n);
            }
        }
    }

    fn give_back(&mut self, is_of_directories: bool) {
        self.used[usize::from(is_of_directories)] -= 1;
    }
}

/// Snapshots of all volumes.
#[derive(Default)]
pub struct Snapshots {
    volumes: FxHashMap<u32, VolumeSnapshots>,
    views: FxHashMap<u32, View>,
    numbers: BTreeMap<View, u32>,
    free: ViewNumbers,
    /// Pairs that no snapshot sees.
    doomed: BTreeSet<(u32, EpochPair)>,
    /// Ends of locks, with volume and epoch.
    locks: BTreeSet<(i64, u32, u32)>,
    /// Volumes with something to write.
    dirty: BTreeSet<u32>,
}

impl Snapshots {
    /// Numbers of views begin at one that depends on `now`: those of a process before mean nothing
    /// in this one, and machines that had them may still ask.
    pub(crate) fn begin_views(&mut self, now: Nanos, own: Range<u32>) {
        self.free = ViewNumbers::new(own, now);
    }

    /// Adds a stored snapshot.
    pub fn load(&mut self, volume: u32, epoch: u32, record: SnapshotRecord) {
        if record.locked_until_secs != 0 {
            self.locks.insert((record.locked_until_secs, volume, epoch));
        }
        let v = self.volumes.entry(volume).or_default();
        v.by_dir.entry(record.dir).or_default().insert(record.name.clone(), epoch);
        v.by_epoch.insert(epoch, record);
    }

    /// Adds a stored tally; after all snapshots.
    pub fn load_tally(&mut self, volume: u32, pair: EpochPair, tally: Tally) {
        let v = self.volumes.entry(volume).or_default();
        v.tallies.insert(pair, tally);
        v.all = v.all.plus(tally);
        if !v.is_seen(pair) {
            v.doomed = v.doomed.plus(tally);
            self.doomed.insert((volume, pair));
        }
    }

    /// The newest snapshot of a volume before `epoch`: records born in it or earlier must be kept
    /// when they die in `epoch`.
    pub fn newest_before(&self, volume: u32, epoch: u32) -> Option<u32> {
        if self.volumes.is_empty() {
            return None;
        }
        self.volumes.get(&volume)?.newest_before(epoch)
    }

    /// Whether anything of the volume may be in its history.
    pub fn has_history(&self, volume: u32) -> bool {
        self.volumes.get(&volume).is_some_and(|v| !v.tallies.is_empty())
    }

    /// Number of a volume's snapshots.
    pub fn count(&self, volume: u32) -> usize {
        self.volumes.get(&volume).map_or(0, |v| v.by_epoch.len())
    }

    /// A snapshot by its epoch.
    pub fn get(&self, volume: u32, epoch: u32) -> Option<&SnapshotRecord> {
        self.volumes.get(&volume)?.by_epoch.get(&epoch)
    }

    /// All snapshots of a volume, oldest first.
    pub fn of_volume(&self, volume: u32) -> impl Iterator<Item = (u32, &SnapshotRecord)> {
        self.volumes.get(&volume).into_iter().flat_map(|v| v.by_epoch.iter().map(|(e, r)| (*e, r)))
    }

    /// Snapshots taken of one directory, by name.
    pub fn of_dir(&self, volume: u32, dir: u64) -> Option<&BTreeMap<Box<[u8]>, u32>> {
        self.volumes.get(&volume)?.by_dir.get(&dir)
    }

    /// Directories of a volume of which there are snapshots.
    pub(crate) fn dirs_in(&self, volume: u32) -> impl Iterator<Item = NodeId> {
        let dirs = self.volumes.get(&volume).into_iter().flat_map(|v| v.by_dir.keys());
        dirs.map(move |dir| NodeId::new(volume, *dir))
    }

    /// A new snapshot.
    pub fn take(&mut self, volume: u32, epoch: u32, record: SnapshotRecord) {
        let v = self.volumes.entry(volume).or_default();
        v.unwritten.insert(epoch);
        v.changed.insert(epoch);
        self.dirty.insert(volume);
        self.load(volume, epoch, record);
    }

    /// A snapshot gets another record (name, lock).
    pub fn change(&mut self, volume: u32, epoch: u32, record: SnapshotRecord) {
        self.unlink(volume, epoch);
        self.load(volume, epoch, record);
        self.volumes.entry(volume).or_default().changed.insert(epoch);
        self.dirty.insert(volume);
    }

    fn unlink(&mut self, volume: u32, epoch: u32) {
        let Some(v) = self.volumes.get_mut(&volume) else { return };
        let Some(old) = v.by_epoch.remove(&epoch) else { return };
        self.locks.remove(&(old.locked_until_secs, volume, epoch));
        if let Some(names) = v.by_dir.get_mut(&old.dir) {
            names.remove(&old.name);
            if names.is_empty() {
                v.by_dir.remove(&old.dir);
            }
        }
    }

    /// Removes a snapshot; what only it held is doomed.
    pub fn remove(&mut self, volume: u32, epoch: u32) {
        self.unlink(volume, epoch);
        self.forget_view(View::Snapshot { volume, epoch });
        self.forget_view(View::Shown { volume, epoch });
        let Some(v) = self.volumes.get_mut(&volume) else { return };
        if !v.unwritten.remove(&epoch) {
            v.changed.insert(epoch);
        } else {
            v.changed.remove(&epoch);
        }
        let alone: Vec<(EpochPair, Tally)> = v.seen_alone_by(epoch).collect();
        for (pair, tally) in alone {
            if self.doomed.insert((volume, pair)) {
                v.doomed = v.doomed.plus(tally);
            }
        }
        self.dirty.insert(volume);
    }

    /// Removes a volume with all its snapshots. Their records are removed with its other records.
    pub fn drop_volume(&mut self, volume: u32) {
        self.volumes.remove(&volume);
        self.dirty.remove(&volume);
        self.doomed.retain(|(v, _)| *v != volume);
        self.locks.retain(|(_, v, _)| *v != volume);
        let gone: Vec<View> = self.numbers.keys().copied().filter(|v| v.volume() == volume).collect();
        gone.into_iter().for_each(|view| self.forget_view(view));
    }

    /// Changes the tally of a volume's deadlist.
    pub fn add(&mut self, volume: u32, pair: EpochPair, by: Tally) {
        let v = self.volumes.entry(volume).or_default();
        let tally = v.tallies.entry(pair).or_default();
        *tally = tally.plus(by);
        v.all = v.all.plus(by);
        if self.doomed.contains(&(volume, pair)) {
            v.doomed = v.doomed.plus(by);
        }
        debug_assert!(tally.records >= 0 && tally.bytes >= 0, "tally of {pair:?} below zero");
        v.tallies_changed.insert(pair);
        self.dirty.insert(volume);
    }

    /// Nothing is on the deadlist under this pair any more. Returns what was counted nevertheless.
    pub fn finish_pair(&mut self, volume: u32, pair: EpochPair) -> Tally {
        let Some(v) = self.volumes.get_mut(&volume) else { return Tally::default() };
        let left = v.tallies.remove(&pair).unwrap_or_default();
        v.all = v.all.minus(left);
        if self.doomed.remove(&(volume, pair)) {
            v.doomed = v.doomed.minus(left);
        }
        v.tallies_changed.insert(pair);
        self.dirty.insert(volume);
        left
    }

    /// A pair that trim can free, other than these.
    pub fn doomed(&self, besides: &BTreeSet<(u32, EpochPair)>) -> Option<(u32, EpochPair)> {
        self.doomed.iter().find(|pair| !besides.contains(pair)).copied()
    }

    /// The end of the last lock, seconds since 1970; 0: there is none.
    pub fn locked_until(&self) -> i64 {
        self.locks.last().map_or(0, |(until, ..)| *until)
    }

    /// Whether trim must free this.
    pub fn is_doomed(&self, volume: u32, pair: EpochPair) -> bool {
        self.doomed.contains(&(volume, pair))
    }

    /// Whether more entries than this wait for trim under the next pair, or more pairs.
    pub fn doomed_exceeds(&self, entries: i64, pairs: usize) -> bool {
        let next = self.doomed.first().and_then(|(volume, pair)| self.volumes.get(volume)?.tallies.get(pair));
        self.doomed.len() > pairs || next.is_some_and(|t| t.records > entries)
    }

    /// What waits for trim, of all volumes.
    pub fn all_doomed(&self) -> Tally {
        self.volumes.values().fold(Tally::default(), |sum, v| sum.plus(v.doomed))
    }

    /// What snapshots hold, of all volumes.
    pub fn all_held(&self) -> Tally {
        self.volumes.values().fold(Tally::default(), |sum, v| sum.plus(v.all.minus(v.doomed)))
    }

    /// What snapshots of a volume hold, and what waits for trim.
    pub fn held(&self, volume: u32) -> Held {
        let Some(v) = self.volumes.get(&volume) else { return Held::default() };
        Held { held: v.all.minus(v.doomed), doomed: v.doomed }
    }

    /// What only this snapshot holds.
    pub fn held_alone(&self, volume: u32, epoch: u32) -> Tally {
        let Some(v) = self.volumes.get(&volume) else { return Tally::default() };
        v.seen_alone_by(epoch).fold(Tally::default(), |sum, (_, t)| sum.plus(t))
    }

    /// How many records and pieces of data of a volume are not what they were at the end of this
    /// epoch, of which there is a snapshot.
    pub fn changed_since(&self, volume: u32, epoch: u32) -> u64 {
        let Some(v) = self.volumes.get(&volume) else { return 0 };
        let died = v.tallies.range(EpochPair { death: epoch + 1, birth: 0 }..);
        let differ = died.filter(|(pair, _)| pair.birth <= epoch);
        differ.map(|(_, tally)| tally.records.max(0) as u64).sum()
    }

    /// Whether a snapshot sees records that lived in these epochs.
    pub fn is_seen(&self, volume: u32, pair: EpochPair) -> bool {
        self.volumes.get(&volume).is_some_and(|v| v.is_seen(pair))
    }

    /// Whether anything must be written.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Takes what must be written. A snapshot waits while `oldest_pending` (the oldest epoch of the
    /// volume with content that is in no record yet) is not after it: it is durable when all its
    /// content is.
    pub fn freeze(&mut self, oldest_pending: impl Fn(u32) -> u32) -> SnapshotWrites {
        let mut out = SnapshotWrites::default();
        for volume in std::mem::take(&mut self.dirty) {
            let Some(v) = self.volumes.get_mut(&volume) else { continue };
            let pending = if v.unwritten.is_empty() { u32::MAX } else { oldest_pending(volume) };
            let waits = |epoch: &u32| v.unwritten.contains(epoch) && *epoch >= pending;
            let (later, now): (BTreeSet<u32>, BTreeSet<u32>) =
                std::mem::take(&mut v.changed).into_iter().partition(waits);
            if !later.is_empty() {
                self.dirty.insert(volume);
            }
            v.changed = later;
            for epoch in now {
                v.unwritten.remove(&epoch);
                out.snapshots.push((volume, epoch, v.by_epoch.get(&epoch).cloned()));
            }
            for pair in std::mem::take(&mut v.tallies_changed) {
                out.tallies.push((volume, pair, v.tallies.get(&pair).copied()));
            }
        }
        out
    }

    /// The meaning of a view's number; `None`: it is a volume's, or not used.
    pub fn view(&self, number: u32) -> Option<View> {
        if number < VIEW_FIRST { None } else { self.views.get(&number).copied() }
    }

    /// The number of a view that has one.
    pub fn known(&self, view: View) -> Option<u32> {
        self.numbers.get(&view).copied()
    }

    /// The number of a view. There is nothing under it when all numbers are used.
    pub fn number(&mut self, view: View) -> u32 {
        if let Some(number) = self.numbers.get(&view) {
            return *number;
        }
        let Some(number) = self.free.take(view.is_of_directories(), |n| self.views.contains_key(&n)) else {
            tracing::error!(
                "all numbers of snapshots are used: the others cannot be looked at until lee restart"
            );
            return self.free.nowhere();
        };
        self.views.insert(number, view);
        self.numbers.insert(view, number);
        number
    }

    fn forget_view(&mut self, view: View) {
        if let Some(number) = self.numbers.remove(&view) {
            self.views.remove(&number);
            self.free.give_back(view.is_of_directories());
        }
    }

    /// Numbers of the views of a volume that show epoch `from` or later ones.
    pub fn views_from(&self, volume: u32, from: u32) -> impl Iterator<Item = u32> {
        let last = u32::MAX;
        let below_snap = View::Snapshot { volume, epoch: from }..=View::Snapshot { volume, epoch: last };
        let in_place = View::Shown { volume, epoch: from }..=View::Shown { volume, epoch: last };
        self.numbers.range(below_snap).chain(self.numbers.range(in_place)).map(|(_, n)| *n)
    }
}

/// Whether a user may take and remove snapshots by this list.
pub fn is_among(rights: &[UserOrGroup], uid: u32, gids: &[u32]) -> bool {
    rights.iter().any(|who| match who {
        UserOrGroup::User(id) => *id == uid,
        UserOrGroup::Group(id) => gids.contains(id),
    })
}
