//! The segment table: the referenced bytes of each segment, and the next numbers to use.
//!
//! In memory for all segments (56 bytes each; 16 MiB of data a segment), written through the
//! running transaction when a commit is frozen. A segment without references is condemned: its
//! record goes with the commit that dropped the last one, its object after that commit is durable.
//!
//! **No name of an object is used twice**, neither a segment's number nor a generation of a
//! segment, by this process or any other. A name that was deleted once, or that a process which
//! lost the cell still means to delete, may be deleted at any later time. Generations are reserved
//! by commits as numbers are: [`Reserved`] has the limit for all segments together, and a process
//! begins above what was reserved when it opened the cell. Below that each segment counts for
//! itself.

use crate::format::inode::{Openings, Reserved, SegmentRecord};
use crate::state::which::WhichShard;
use leeward_data::{GENERATIONS_PER_PUT, Object, PoolId, SegmentInfo};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Numbers are reserved in steps by commits, and used when that is durable. So none is used twice
/// even if objects outlive a lost commit, or another process has taken the cell over.
const RESERVE: u64 = 4096;
/// The same for generations: that of one segment may grow by this before the next commit has
/// reserved more.
const RESERVE_GENERATIONS: u32 = 256;

/// Bits of a segment's number that count. Above them is the number of its volume, in a cell of
/// several shards, else 0.
const COUNT_BITS: u32 = 40;

/// The part of a segment's number that counts.
pub fn count(segment: u64) -> u64 {
    segment & ((1 << COUNT_BITS) - 1)
}

/// The sealed segments of a volume in one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// How many.
    pub segments: u64,
    /// Bytes of their objects.
    pub bytes: u64,
}

/// All segments of the cell.
#[derive(Default)]
pub struct Segments {
    which: WhichShard,
    table: FxHashMap<u64, SegmentRecord>,
    /// Sums over the table, by volume and pool: there may be a million segments.
    placed: BTreeMap<(u32, PoolId), Placed>,
    /// Volume and pool of each segment in memory.
    open: FxHashMap<u64, (u32, PoolId)>,
    dirty: FxHashSet<u64>,
    /// Cleaning gave up on these until something about them changes.
    alone: FxHashSet<u64>,
    /// Whether references to these have changed since they are watched.
    watched: FxHashMap<u64, bool>,
    next: u64,
    reserved: Reserved,
    /// What durable commits have reserved.
    durable: Reserved,
    /// Earlier processes used generations below this.
    first_generation: u32,
    /// Generations up to which rewriting of segments was tried, without success so far.
    tried: FxHashMap<u64, u32>,
    /// The highest generation that was requested, whether it was available or not.
    top_generation: u32,
    /// Openings of the cell.
    openings: Openings,
    is_opening_stored: bool,
}

impl Segments {
    /// Starts with what was stored; numbers and generations continue there.
    pub fn new(stored: Reserved, which: WhichShard) -> Segments {
        Segments {
            which,
            next: stored.segments.max(1),
            reserved: stored,
            durable: stored,
            first_generation: stored.generations,
            top_generation: stored.generations,
            ..Default::default()
        }
    }

    /// Openings of the cell before, and the number of this one. It is stored before a segment is
    /// made.
    pub fn begin(&mut self, before: Openings, number: u64) {
        self.openings = before;
        self.openings.add(self.next, number);
    }

    /// The number of the opening in which a segment was made, or a later one.
    pub fn opening_of(&self, segment: u64) -> u64 {
        self.openings.of(count(segment))
    }

    /// Openings that are to be stored with the next commit, which reserves names.
    pub fn unstored_openings(&mut self) -> Option<&Openings> {
        let is_due = !std::mem::replace(&mut self.is_opening_stored, true);
        is_due.then_some(&self.openings)
    }

    /// Adds a stored record.
    pub fn load(&mut self, segment: u64, record: SegmentRecord) {
        // where nothing was reserved, a rewriting that was not committed had one of the next
        // generations
        let after = record.generation.saturating_add(1 + GENERATIONS_PER_PUT);
        if after > self.first_generation && self.durable.generations == 0 {
            (self.first_generation, self.top_generation) = (after, after);
        }
        self.table.insert(segment, record);
        self.place(record, true);
    }

    /// The record is in the table from now on, or was there until now.
    fn place(&mut self, record: SegmentRecord, is_there: bool) {
        let (true, Some(volume)) = (record.sealed, record.volume) else { return };
        let key = (volume, record.pool);
        let sum = self.placed.entry(key).or_default();
        if is_there {
            *sum = Placed { segments: sum.segments + 1, bytes: sum.bytes + record.object_bytes };
        } else {
            *sum = Placed { segments: sum.segments - 1, bytes: sum.bytes - record.object_bytes };
        }
        if sum.segments == 0 {
            self.placed.remove(&key);
        }
    }

    /// Of a volume, the pools that its sealed segments are in.
    pub fn placed(&self, volume: u32) -> impl Iterator<Item = (PoolId, Placed)> {
        let of_volume = self.placed.range((volume, PoolId::MIN)..=(volume, PoolId::MAX));
        of_volume.map(|((_, pool), placed)| (*pool, *placed))
    }

    /// A number never used before, for data of this volume that is to go to this pool; `None` until
    /// a commit has reserved more.
    pub fn allocate(&mut self, volume: u32, pool: PoolId) -> Option<u64> {
        if self.next >= self.durable.segments {
            return None;
        }
        // of several shards each counts for itself, so the volume makes the number one's own
        let of_volume = if self.which.count > 1 { u64::from(volume) << COUNT_BITS } else { 0 };
        let segment = of_volume | self.next;
        self.next += 1;
        self.open.insert(segment, (volume, pool));
        Some(segment)
    }

    /// A commit that reserved these is durable.
    pub fn reserved_durably(&mut self, reserved: Reserved) {
        self.durable.segments = self.durable.segments.max(reserved.segments);
        self.durable.generations = self.durable.generations.max(reserved.generations);
    }

    /// A generation for the next object of a segment: it and those that follow,
    /// [`GENERATIONS_PER_PUT`] in all, were not used before, and will not be given out again.
    /// `None` until a commit has reserved more.
    pub fn next_generation(&mut self, segment: u64) -> Option<u32> {
        let after_record = self.table.get(&segment).map_or(0, |r| r.generation.saturating_add(1));
        let tried = self.tried.get(&segment).copied().unwrap_or_default();
        let first = self.first_generation.max(after_record).max(tried);
        let end = first.checked_add(GENERATIONS_PER_PUT)?;
        self.top_generation = self.top_generation.max(end);
        if end > self.durable.generations {
            return None;
        }
        self.tried.insert(segment, end);
        Some(first)
    }

    /// Forgets a number: nothing was or will be stored under it.
    pub fn forget_open(&mut self, segment: u64) {
        self.open.remove(&segment);
    }

    /// Whether the number is of a segment in memory.
    pub fn is_open(&self, segment: u64) -> bool {
        self.open.contains_key(&segment)
    }

    /// Whether this is the object of a segment, or may become one.
    pub fn knows(&self, object: Object) -> bool {
        let now = self.table.get(&object.segment).map(|r| r.object(object.segment));
        now == Some(object) || self.is_open(object.segment)
    }

    /// Numbers from here on are not used yet.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether this is an object of a segment of this shard, made when `next` was to be used next,
    /// of which no record knows.
    pub fn is_unknown(&self, object: Object, next: u64) -> bool {
        let volume = (object.segment >> COUNT_BITS) as u32;
        // a cell of one shard makes none with volumes in their numbers
        let is_own = if self.which.count > 1 { self.which.has_volume(volume) } else { volume == 0 };
        is_own && count(object.segment) < next && !self.knows(object)
    }

    /// Notes the volume of a segment.
    pub fn set_volume(&mut self, segment: u64, volume: u32) {
        if let Some(record) = self.table.get_mut(&segment) {
            let before = *record;
            record.volume = Some(volume);
            let after = *record;
            self.place(before, false);
            self.place(after, true);
            self.dirty.insert(segment);
        }
    }

    fn entry(&mut self, segment: u64) -> &mut SegmentRecord {
        let open = &self.open;
        self.table.entry(segment).or_insert_with(|| match open.get(&segment) {
            Some((volume, pool)) => {
                SegmentRecord { volume: Some(*volume), pool: *pool, ..SegmentRecord::default() }
            }
            None => SegmentRecord::default(),
        })
    }

    /// Whether the next commit must reserve more; [`Segments::reserved`] has the new limit then.
    pub fn reserve(&mut self) -> bool {
        let is_short = self.is_short();
        if is_short {
            self.reserved = Reserved {
                segments: self.next + RESERVE,
                generations: self.top_generation.saturating_add(RESERVE_GENERATIONS),
            };
        }
        is_short
    }

    /// Whether names must be reserved: always at open, so that the objects of a run that ended
    /// before its first commit do not share a name with new ones.
    fn is_short(&self) -> bool {
        self.next + RESERVE / 2 > self.reserved.segments
            || self.top_generation.saturating_add(RESERVE_GENERATIONS / 2) > self.reserved.generations
    }

    /// What is, or will be with the next commit, reserved.
    pub fn reserved(&self) -> Reserved {
        self.reserved
    }

    /// The record.
    pub fn get(&self, segment: u64) -> Option<&SegmentRecord> {
        self.table.get(&segment)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &SegmentRecord)> {
        self.table.iter().map(|(n, r)| (*n, r))
    }

    /// Changes the number of referenced bytes.
    pub fn add_live(&mut self, segment: u64, bytes: i64) {
        let record = self.entry(segment);
        debug_assert!(record.live_bytes as i64 + bytes >= 0, "segment {segment}: live bytes below zero");
        record.live_bytes = record.live_bytes.saturating_add_signed(bytes);
        self.dirty.insert(segment);
        self.alone.remove(&segment);
        if let Some(changed) = self.watched.get_mut(&segment) {
            *changed = true;
        }
    }

    /// Begins to note whether references to this segment change.
    pub fn watch(&mut self, segment: u64) {
        self.watched.insert(segment, false);
    }

    /// Ends that; returns whether they changed.
    pub fn end_watch(&mut self, segment: u64) -> bool {
        self.watched.remove(&segment).unwrap_or(true)
    }

    /// Whether a record must be written.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || self.is_short()
    }

    /// Cleaning does not try this segment again as it is.
    pub fn leave_alone(&mut self, segment: u64) {
        self.alone.insert(segment);
    }

    /// Whether [`Segments::leave_alone`] was called.
    pub fn is_left_alone(&self, segment: u64) -> bool {
        self.alone.contains(&segment)
    }

    /// The object is durable (first put, or a rewriting).
    pub fn sealed(&mut self, info: SegmentInfo) {
        let segment = info.object.segment;
        let record = self.entry(segment);
        let before = *record;
        record.sealed = true;
        record.pool = info.object.pool;
        record.generation = info.object.generation;
        record.data_bytes = info.data_bytes;
        record.object_bytes = info.object_bytes;
        let after = *record;
        self.place(before, false);
        self.place(after, true);
        self.dirty.insert(segment);
        self.open.remove(&segment);
        self.tried.remove(&segment); // the record says more
    }

    /// Checks the segment again when the next commit is frozen.
    pub fn touch(&mut self, segment: u64) {
        if self.table.contains_key(&segment) {
            self.dirty.insert(segment);
        }
    }

    /// Takes the records to write: `None` for those without references that are not `in_use`
    /// otherwise, which leave the table.
    pub fn freeze(&mut self, in_use: impl Fn(u64) -> bool) -> Vec<(u64, SegmentRecord, Fate)> {
        let mut out = Vec::with_capacity(self.dirty.len());
        for segment in std::mem::take(&mut self.dirty) {
            let Some(record) = self.table.get(&segment).copied() else { continue };
            if record.live_bytes == 0 && !in_use(segment) {
                self.table.remove(&segment);
                self.place(record, false);
                self.alone.remove(&segment);
                self.tried.remove(&segment);
                out.push((segment, record, Fate::Condemned));
            } else {
                out.push((segment, record, Fate::Kept));
            }
        }
        out.sort_by_key(|(segment, ..)| *segment);
        out
    }
}

/// What happens to a segment in a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its record is written.
    Kept,
    /// Its record and its object go.
    Condemned,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment that was sealed in this generation.
    fn sealed(generation: u32) -> SegmentRecord {
        SegmentRecord { sealed: true, live_bytes: 1, generation, ..SegmentRecord::default() }
    }

    /// Numbers as after a commit.
    fn commit(segments: &mut Segments) -> Reserved {
        segments.reserve();
        segments.reserved_durably(segments.reserved());
        segments.reserved()
    }

    #[test]
    fn no_generation_is_given_out_twice_whoever_opens_the_cell() {
        let mut stored = Reserved { segments: 9, generations: 0 };
        let mut given = FxHashSet::default();
        for _ in 0..5 {
            let mut segments = Segments::new(stored, WhichShard::default());
            segments.load(7, sealed(3));
            assert_eq!(segments.next_generation(7), None, "nothing is reserved yet");
            stored = commit(&mut segments);
            for _ in 0..200 {
                let Some(first) = segments.next_generation(7) else {
                    stored = commit(&mut segments);
                    continue;
                };
                assert!(first + GENERATIONS_PER_PUT <= stored.generations);
                // a leftover of an older program may have the next one, or one of those after it
                assert!(first > 3 + GENERATIONS_PER_PUT);
                assert!((first..first + GENERATIONS_PER_PUT).all(|g| given.insert(g)), "{first}");
            }
        }
        assert!(given.len() > 5000);
    }

    #[test]
    fn sums_are_those_of_the_table() {
        let mut segments = Segments::new(Reserved::default(), WhichShard::default());
        let mut number: u64 = 7;
        let mut next = |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % below
        };
        for step in 0..5_000 {
            let segment = next(40);
            match next(5) {
                0 => {
                    let object = Object { pool: next(3) as PoolId, segment, generation: 0 };
                    segments.add_live(segment, 1);
                    segments.sealed(SegmentInfo { object, object_bytes: 1 + next(99), data_bytes: 1 });
                }
                1 => segments.set_volume(segment, next(4) as u32),
                2 => {
                    _ = segments.open.insert(segment, (next(4) as u32, next(3) as PoolId));
                    segments.add_live(segment, 1);
                }
                3 => {
                    let live = segments.get(segment).map_or(0, |record| record.live_bytes);
                    segments.add_live(segment, -(live as i64));
                }
                _ => _ = segments.freeze(|segment| segment % 3 == 0),
            }
            let mut sums: BTreeMap<(u32, PoolId), Placed> = BTreeMap::new();
            for (_, record) in segments.iter().filter(|(_, record)| record.sealed) {
                let Some(volume) = record.volume else { continue };
                let sum = sums.entry((volume, record.pool)).or_default();
                (sum.segments, sum.bytes) = (sum.segments + 1, sum.bytes + record.object_bytes);
            }
            assert_eq!(segments.placed, sums, "step {step}");
        }
        let of_one: Vec<_> = segments.placed(2).collect();
        assert!(!of_one.is_empty() && of_one.iter().all(|(pool, sum)| segments.placed[&(2, *pool)] == *sum));
    }

    #[test]
    fn each_segment_counts_for_itself() {
        let mut segments = Segments::new(Reserved { segments: 9, generations: 0 }, WhichShard::default());
        (1..9).for_each(|segment| segments.load(segment, sealed(0)));
        commit(&mut segments);
        let first: Vec<u32> = (1..9).filter_map(|segment| segments.next_generation(segment)).collect();
        assert_eq!(first, vec![1 + GENERATIONS_PER_PUT; 8]);
        let object = Object { pool: 0, segment: 1, generation: first[0] };
        segments.sealed(SegmentInfo { object, object_bytes: 1, data_bytes: 1 });
        assert_eq!(segments.next_generation(1), Some(first[0] + 1));
        assert_eq!(segments.next_generation(2), Some(first[0] + GENERATIONS_PER_PUT), "that failed");
    }
}
