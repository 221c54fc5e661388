//! Pending content: changes of a file that are not in its records yet, because their segments are
//! not durable.
//!
//! Records only ever point to durable data, so a commit never waits for data. Until then a file's
//! changes of content queue here in order, and `pieces` shows their result on top of the records.
//! When the segments of a prefix of the queue are durable (or its data is inline in the journal),
//! that prefix is applied to the records in one transaction. So after a crash a file's content is
//! one it had at some moment since its last fsync.
//!
//! A piece hidden by a later change is dead, and may be left out of its segment, only when both
//! become durable together: since the last change of segment in the queue (`run`).
//!
//! All changes of a queue belong to one epoch: the first change of an inode after a snapshot moves
//! an older queue into the records first ([`Fail::Stage`](crate::tx::Fail)). So a snapshot sees a
//! queue whole or not at all.

use crate::format::extents::Source;
use leeward_data::Addr;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The cost of moving one window that a change clears or fills into the records, in changes.
const WINDOW_COST: usize = 16;
/// A queue of this cost takes no more changes before it is moved into the records: that is done in
/// one hold of the lock.
pub const QUEUE_COST_MAX: usize = 16_384;

/// One change of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Data that was appended to the data log.
    Write {
        /// First byte in the file.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Address of the bytes in the data log.
        addr: Addr,
    },
    /// Cuts or extends (with a hole).
    Resize {
        /// The new size.
        size: u64,
    },
    /// Makes a hole (`allocated: false`) or zeros; never changes the size.
    Zero {
        /// The range.
        range: Range<u64>,
        /// Whether it stays allocated.
        allocated: bool,
    },
    /// Allocates the holes of a range; never changes the size.
    Fill {
        /// The range.
        range: Range<u64>,
    },
}

/// A part of the file whose content the queue determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    end: u64,
    source: Option<Source>,
    sequence: u64,
}

/// The queue of one file and its result.
#[derive(Debug, Default)]
pub struct Pending {
    queue: VecDeque<(u64, Change)>,
    /// The number of the last operation in each change of the queue.
    lsns: VecDeque<u64>,
    pieces: BTreeMap<u64, Piece>,
    next: u64,
    run: u64,
    run_segment: u64,
    /// The highest cost of moving the queue into the records, in changes.
    cost: usize,
    /// The epoch of the volume that all changes belong to.
    pub epoch: u32,
    /// Size with all changes.
    pub size: u64,
    /// Allocated bytes with all changes.
    pub allocated: u64,
}

impl Pending {
    /// For a file with these values in its records.
    pub fn new(size: u64, allocated: u64, epoch: u32) -> Pending {
        Pending { size, allocated, epoch, ..Default::default() }
    }

    /// Whether all changes have been applied.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The changes in order, with their sequence numbers.
    pub fn queue(&self) -> impl Iterator<Item = &(u64, Change)> {
        self.queue.iter()
    }

    /// The number of the last operation among the changes up to `last`; 0: there are none.
    pub fn lsn_of(&self, last: u64) -> u64 {
        let changes = self.queue.iter().zip(&self.lsns).take_while(|((sequence, _), _)| *sequence <= last);
        changes.last().map_or(0, |(_, lsn)| *lsn)
    }

    /// Whether the queue must be moved into the records before it takes more.
    pub fn is_full(&self) -> bool {
        self.cost >= QUEUE_COST_MAX
    }

    /// Notes that the last changes clear or fill this many windows of records.
    pub fn add_windows(&mut self, windows: usize) {
        self.cost += windows * WINDOW_COST;
    }

    /// Adds a change of the operation with this number; calls `dead` with data that nobody will
    /// need.
    pub fn push(&mut self, change: Change, lsn: u64, mut dead: impl FnMut(Addr, u32)) {
        let sequence = self.next;
        self.next += 1;
        match &change {
            Change::Write { offset, len, addr } => {
                if addr.segment != self.run_segment {
                    (self.run, self.run_segment) = (sequence, addr.segment);
                }
                self.cover(*offset..offset + len, Some(Source::Data(*addr)), sequence, &mut dead);
                self.size = self.size.max(offset + len);
                if self.extend_last(*offset, *len, *addr, sequence) {
                    if let Some(last) = self.lsns.back_mut() {
                        *last = lsn;
                    }
                    return;
                }
            }
            Change::Resize { size } => {
                if *size < self.size {
                    self.cover(*size..u64::MAX, None, sequence, &mut dead);
                }
                self.size = *size;
            }
            Change::Zero { range, allocated } => {
                let source = allocated.then_some(Source::Unwritten);
                self.cover(range.clone(), source, sequence, &mut dead);
            }
            // `fill` adds what Fill allocates; it knows the holes below
            Change::Fill { .. } => {}
        }
        self.queue.push_back((sequence, change));
        self.lsns.push_back(lsn);
        self.cost += 1;
    }

    /// Adds a hole that the last pushed [`Change::Fill`] allocates.
    pub fn fill(&mut self, hole: Range<u64>) {
        let sequence = self.next - 1;
        self.cover(hole, Some(Source::Unwritten), sequence, &mut |_, _| {});
    }

    /// A write that continues the last one, in the file and in the segment, becomes part of it.
    fn extend_last(&mut self, offset: u64, len: u64, addr: Addr, sequence: u64) -> bool {
        let Some((last, Change::Write { offset: o, len: l, addr: a })) = self.queue.back_mut() else {
            return false;
        };
        let continues = *o + *l == offset
            && a.segment == addr.segment
            && u64::from(a.offset) + *l == u64::from(addr.offset);
        if !continues {
            return false;
        }
        *l += len;
        let (last, start) = (*last, *o);
        // the new piece takes the older number; where the old one is whole they become one
        if let Some(p) = self.pieces.get_mut(&offset) {
            debug_assert_eq!(p.sequence, sequence);
            p.sequence = last;
        }
        if let Some((&before, p)) = self.pieces.range(..offset).next_back()
            && p.end == offset
            && p.sequence == last
            && p.source
                == Some(Source::Data(Addr {
                    segment: addr.segment,
                    offset: addr.offset - (offset - before) as u32,
                }))
        {
            debug_assert!(before >= start);
            self.pieces.remove(&offset);
            self.pieces.get_mut(&before).expect("just seen").end = offset + len;
        }
        true
    }

    fn cover(
        &mut self,
        range: Range<u64>,
        source: Option<Source>,
        sequence: u64,
        dead: &mut impl FnMut(Addr, u32),
    ) {
        self.split(range.start);
        self.split(range.end);
        let inside: Vec<u64> = self.pieces.range(range.clone()).map(|(k, _)| *k).collect();
        for start in inside {
            let p = self.pieces.remove(&start).expect("just listed");
            if let Some(Source::Data(addr)) = p.source
                && p.sequence >= self.run
            {
                dead(addr, (p.end - start) as u32);
            }
        }
        self.pieces.insert(range.start, Piece { end: range.end, source, sequence });
    }

    fn split(&mut self, at: u64) {
        let Some((&start, p)) = self.pieces.range_mut(..at).next_back() else { return };
        if p.end <= at {
            return;
        }
        let rest = Piece {
            end: p.end,
            source: p.source.map(|s| match s {
                Source::Data(a) => {
                    Source::Data(Addr { segment: a.segment, offset: a.offset + (at - start) as u32 })
                }
                Source::Unwritten => Source::Unwritten,
            }),
            sequence: p.sequence,
        };
        p.end = at;
        self.pieces.insert(at, rest);
    }

    /// The parts of `range` that the queue determines, in order.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, Option<Source>)> + '_ {
        let first = self.pieces.range(..=range.start).next_back().map_or(range.start, |(k, _)| *k);
        self.pieces.range(first..range.end).filter(move |(_, p)| p.end > range.start).map(
            move |(&start, p)| {
                let from = start.max(range.start);
                let source = p.source.map(|s| match s {
                    Source::Data(a) => {
                        Source::Data(Addr { segment: a.segment, offset: a.offset + (from - start) as u32 })
                    }
                    Source::Unwritten => Source::Unwritten,
                });
                (from..p.end.min(range.end), source)
            },
        )
    }

    /// The changes whose data is durable, from the front on.
    pub fn ready(&self, durable: impl Fn(u64) -> bool) -> Vec<(u64, Change)> {
        self.queue
            .iter()
            .take_while(|(_, c)| match c {
                Change::Write { addr, .. } => durable(addr.segment),
                _ => true,
            })
            .cloned()
            .collect()
    }

    /// Removes the changes up to `last`, which are in the records now. Returns the segments that
    /// the queue no longer mentions.
    pub fn applied(&mut self, last: u64) -> Vec<u64> {
        let mut before = self.segments();
        while self.queue.front().is_some_and(|(s, _)| *s <= last) {
            self.queue.pop_front();
            self.lsns.pop_front();
        }
        self.pieces.retain(|_, p| p.sequence > last);
        if self.queue.is_empty() {
            debug_assert!(self.pieces.is_empty());
            (self.run_segment, self.cost) = (0, 0);
        }
        let left = self.segments();
        before.retain(|segment| left.binary_search(segment).is_err());
        before
    }

    /// Data that is in no segment's object yet and dies with the file.
    pub fn data(&self) -> Vec<(Addr, u32)> {
        self.queue
            .iter()
            .filter_map(|(_, c)| match c {
                Change::Write { len, addr, .. } => Some((*addr, *len as u32)),
                _ => None,
            })
            .collect()
    }

    /// Segments that the queue waits for, without repetition.
    pub fn segments(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.data().into_iter().map(|(a, _)| a.segment).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Bytes in the queue, and changes.
    pub fn amount(&self) -> (u64, usize) {
        (self.data().iter().map(|(_, len)| u64::from(*len)).sum(), self.queue.len())
    }

    /// Offset from which on the queue leaves nothing of the file; `u64::MAX`: the queue does not
    /// determine that.
    pub fn nothing_from(&self) -> u64 {
        let last = self.pieces.last_key_value().filter(|(_, p)| p.end == u64::MAX && p.source.is_none());
        last.map_or(u64::MAX, |(start, _)| *start)
    }

    /// Ranges that the queue allocates.
    pub fn allocated_ranges(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.pieces.iter().filter(|(_, p)| p.source.is_some()).map(|(s, p)| *s..p.end)
    }
}
