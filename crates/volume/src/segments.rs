//! The segment table: what of each segment is referenced, and the numbers to give out.
//!
//! In memory for all segments (56 bytes each; 16 MiB of data a segment), written through the running transaction when a
//! commit is frozen. A segment without references is condemned: its record goes with the commit that
//! dropped the last one, its object after that commit is durable.

use crate::inode::SegmentRecord;
use leeward_data::{Object, PoolId, SegmentInfo};
use rustc_hash::{FxHashMap, FxHashSet};

/// Numbers are reserved in steps by commits, and given out when that is durable: none is given out twice even if objects outlive
/// a lost commit, or another process has taken the cell over.
const RESERVE: u64 = 4096;

/// All segments of the cell.
#[derive(Default)]
pub struct Segments {
    table: FxHashMap<u64, SegmentRecord>,
    /// Whose a segment in memory is, and which pool it is going to.
    open: FxHashMap<u64, (u32, PoolId)>,
    dirty: FxHashSet<u64>,
    /// Cleaning gave up on these until something about them changes.
    alone: FxHashSet<u64>,
    next: u64,
    reserved: u64,
    /// Numbers below this are reserved by a commit that is durable.
    durable: u64,
}

impl Segments {
    /// Starts with what was stored; numbers continue at `next`.
    pub fn new(next: u64) -> Segments {
        Segments { next: next.max(1), reserved: next, durable: next, ..Default::default() }
    }

    /// Puts in a stored record.
    pub fn load(&mut self, segment: u64, record: SegmentRecord) {
        self.table.insert(segment, record);
    }

    /// A number never used before, for data of this volume that is to go to this pool; `None` until a commit has reserved more.
    pub fn allocate(&mut self, volume: u32, pool: PoolId) -> Option<u64> {
        if self.next >= self.durable {
            return None;
        }
        let segment = self.next;
        self.next += 1;
        self.open.insert(segment, (volume, pool));
        Some(segment)
    }

    /// A commit that reserved numbers below `reserved` is durable.
    pub fn reserved_durably(&mut self, reserved: u64) {
        self.durable = self.durable.max(reserved);
    }

    /// Nothing more comes to the number, as nothing was ever stored under it.
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

    /// The next number to give out.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Notes whose a segment is.
    pub fn set_volume(&mut self, segment: u64, volume: u32) {
        if let Some(record) = self.table.get_mut(&segment) {
            record.volume = Some(volume);
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

    /// Up to which numbers must be reserved by the next commit; `Some` when that changed.
    pub fn reserve(&mut self) -> Option<u64> {
        if !self.is_short() {
            return None;
        }
        self.reserved = self.next + RESERVE;
        Some(self.reserved)
    }

    /// Whether numbers must be reserved: always at open, so that the objects of a run that ended before its first commit
    /// do not share a number with new ones.
    fn is_short(&self) -> bool {
        self.next + RESERVE / 2 > self.reserved
    }

    /// Numbers below this are, or will be with the next commit, reserved.
    pub fn reserved(&self) -> u64 {
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

    /// More or fewer referenced bytes.
    pub fn add_live(&mut self, segment: u64, bytes: i64) {
        let record = self.entry(segment);
        debug_assert!(record.live_bytes as i64 + bytes >= 0, "segment {segment}: live bytes below zero");
        record.live_bytes = record.live_bytes.saturating_add_signed(bytes);
        self.dirty.insert(segment);
        self.alone.remove(&segment);
    }

    /// Whether a record must be written.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || self.is_short()
    }

    /// Cleaning it makes no sense as it is.
    pub fn leave_alone(&mut self, segment: u64) {
        self.alone.insert(segment);
    }

    /// See [`Segments::leave_alone`].
    pub fn is_left_alone(&self, segment: u64) -> bool {
        self.alone.contains(&segment)
    }

    /// The object is durable (first put, or a rewriting).
    pub fn sealed(&mut self, info: SegmentInfo) {
        let segment = info.object.segment;
        let record = self.entry(segment);
        record.sealed = true;
        record.pool = info.object.pool;
        record.generation = info.object.generation;
        record.data_bytes = info.data_bytes;
        record.object_bytes = info.object_bytes;
        self.dirty.insert(segment);
        self.open.remove(&segment);
    }

    /// Looks at the segment again when the next commit is frozen.
    pub fn touch(&mut self, segment: u64) {
        if self.table.contains_key(&segment) {
            self.dirty.insert(segment);
        }
    }

    /// Takes the records to write: `None` for those without references that are not `in_use` otherwise, which leave
    /// the table.
    pub fn freeze(&mut self, in_use: impl Fn(u64) -> bool) -> Vec<(u64, SegmentRecord, Fate)> {
        let mut out = Vec::with_capacity(self.dirty.len());
        for segment in std::mem::take(&mut self.dirty) {
            let Some(record) = self.table.get(&segment).copied() else { continue };
            if record.live_bytes == 0 && !in_use(segment) {
                self.table.remove(&segment);
                self.alone.remove(&segment);
                out.push((segment, record, Fate::Condemned));
            } else {
                out.push((segment, record, Fate::Kept));
            }
        }
        out.sort_by_key(|(segment, ..)| *segment);
        out
    }
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its record is written.
    Kept,
    /// Its record and its object go.
    Condemned,
}
