//! Extents of one window of a file: which range of the file is in which range of which segment.
//!
//! A file is cut into windows of [`WINDOW`] bytes; the extents of a window are one record (window 0
//! of a file with few extents is in the inode record). So every change of file content is a change
//! of few records that are found by key. Invariants: sorted by offset, no overlap, none empty, all
//! within the window, neighbours that continue each other are one.

use leeward_data::Addr;
use std::ops::Range;

/// Bytes of a file per extent record.
pub const WINDOW: u64 = 4 << 20;

/// Window of a file offset.
pub fn window_of(offset: u64) -> u32 {
    (offset / WINDOW) as u32
}

/// Where the bytes of an extent are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a segment, from here on.
    Data(Addr),
    /// Allocated, never written: zeros.
    Unwritten,
}

impl Source {
    /// The source of the bytes after the first `bytes`.
    pub(crate) fn skip(self, bytes: u32) -> Source {
        match self {
            Source::Data(a) => Source::Data(Addr { segment: a.segment, offset: a.offset + bytes }),
            Source::Unwritten => Source::Unwritten,
        }
    }

    fn continues(self, before: Source, len: u32) -> bool {
        before.skip(len) == self
    }
}

/// One extent; offsets are relative to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte of the extent.
    pub offset: u32,
    /// Number of bytes.
    pub len: u32,
    /// Where the bytes are stored.
    pub source: Source,
    /// The epoch in which the data came here; 1 for extents without data.
    pub birth: u32,
}

impl Extent {
    fn end(&self) -> u32 {
        self.offset + self.len
    }

    fn cut(&self, from: u32, to: u32) -> Extent {
        Extent { offset: from, len: to - from, source: self.source.skip(from - self.offset), ..*self }
    }
}

/// The extents of one window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<Extent>);

/// Bytes of one encoded extent, without and with its birth.
const ENCODED: usize = 20;
const ENCODED_BORN: usize = 24;
/// Set in the count: the record's birth follows, and each extent has its own at the end. Otherwise
/// all are 1.
const BORN: u32 = 1 << 31;

impl Extents {
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.0.iter()
    }

    /// Number of extents.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Allocated bytes.
    pub fn allocated(&self) -> u64 {
        self.0.iter().map(|e| u64::from(e.len)).sum()
    }

    /// The parts of extents within `range`.
    pub fn within(&self, range: Range<u32>) -> impl Iterator<Item = Extent> + '_ {
        let first = self.0.partition_point(|e| e.end() <= range.start);
        self.0[first..]
            .iter()
            .take_while(move |e| e.offset < range.end)
            .map(move |e| e.cut(e.offset.max(range.start), e.end().min(range.end)))
    }

    /// Puts `source` (`None`: a hole) at `range`, in epoch `birth`; calls `dropped` with each part
    /// that was there before.
    pub fn replace(
        &mut self,
        range: Range<u32>,
        source: Option<Source>,
        birth: u32,
        mut dropped: impl FnMut(Extent),
    ) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|e| e.end() <= range.start);
        let last = first + self.0[first..].partition_point(|e| e.offset < range.end);
        let mut put: Vec<Extent> = Vec::with_capacity(3);
        for e in &self.0[first..last] {
            dropped(e.cut(e.offset.max(range.start), e.end().min(range.end)));
        }
        if first < last && self.0[first].offset < range.start {
            put.push(self.0[first].cut(self.0[first].offset, range.start));
        }
        if let Some(source) = source {
            let birth = if matches!(source, Source::Data(_)) { birth } else { 1 };
            put.push(Extent { offset: range.start, len: range.end - range.start, source, birth });
        }
        if first < last && self.0[last - 1].end() > range.end {
            put.push(self.0[last - 1].cut(range.end, self.0[last - 1].end()));
        }
        let count = put.len();
        self.0.splice(first..last, put);
        self.merge(first.saturating_sub(1), first + count + 1);
    }

    fn merge(&mut self, from: usize, to: usize) {
        let mut i = from;
        let mut end = to.min(self.0.len());
        while i + 1 < end {
            let (a, b) = (self.0[i], self.0[i + 1]);
            if a.end() == b.offset && a.birth == b.birth && b.source.continues(a.source, a.len) {
                self.0[i].len += b.len;
                self.0.remove(i + 1);
                end -= 1;
            } else {
                i += 1;
            }
        }
    }

    /// Appends the encoding of a record of epoch `birth`: count u32, then per extent offset u32,
    /// len u32, segment u64 (0: unwritten), offset u32; big-endian. Where any birth is not 1:
    /// [`BORN`] in the count, `birth` after it, and the birth u32 of each extent at its end.
    pub fn encode(&self, birth: u32, out: &mut Vec<u8>) {
        let born = birth != 1 || self.0.iter().any(|e| e.birth != 1);
        let count = self.0.len() as u32;
        out.extend_from_slice(&(if born { count | BORN } else { count }).to_be_bytes());
        if born {
            out.extend_from_slice(&birth.to_be_bytes());
        }
        for e in &self.0 {
            let (segment, at) = match e.source {
                Source::Data(a) => (a.segment, a.offset),
                Source::Unwritten => (0, 0),
            };
            out.extend_from_slice(&e.offset.to_be_bytes());
            out.extend_from_slice(&e.len.to_be_bytes());
            out.extend_from_slice(&segment.to_be_bytes());
            out.extend_from_slice(&at.to_be_bytes());
            if born {
                out.extend_from_slice(&e.birth.to_be_bytes());
            }
        }
    }

    /// The birth of the record, the encoded extents, and the bytes of each.
    fn parts(bytes: &[u8]) -> Option<(u32, &[u8], usize)> {
        let count = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?);
        let (birth, body, each) = match count & BORN {
            0 => (1, &bytes[4..], ENCODED),
            _ => (u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?), &bytes[8..], ENCODED_BORN),
        };
        (body.len() == (count & !BORN) as usize * each).then_some((birth, body, each))
    }

    /// The epoch in which an encoded record was written.
    pub fn birth_encoded(bytes: &[u8]) -> Option<u32> {
        Self::parts(bytes).map(|(birth, ..)| birth)
    }

    /// Allocated bytes of a range, directly from the encoding of a record that was written by
    /// [`Extents::encode`]: each write into a file of many extents needs this.
    pub fn allocated_encoded(bytes: &[u8], range: Range<u32>) -> u64 {
        let Some((_, list, each)) = Self::parts(bytes) else { return 0 };
        let extent = |n: usize| {
            let b = &list[n * each..];
            let u32_at = |i: usize| u32::from_be_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
            (u32_at(0), u32_at(0).saturating_add(u32_at(4)))
        };
        let (mut low, mut high) = (0, list.len() / each);
        let count = high;
        while low < high {
            let middle = (low + high) / 2;
            if extent(middle).1 <= range.start { low = middle + 1 } else { high = middle }
        }
        let touching = (low..count).map(extent).take_while(|(start, _)| *start < range.end);
        touching.map(|(start, end)| u64::from(end.min(range.end) - start.max(range.start))).sum()
    }

    /// How many extents touch a range, directly from the encoding.
    pub fn count_encoded(bytes: &[u8], range: Range<u32>) -> usize {
        let Some((_, list, each)) = Self::parts(bytes) else { return 0 };
        let u32_at = |n: usize, at: usize| {
            let b = &list[n * each + at..];
            u32::from_be_bytes([b[0], b[1], b[2], b[3]])
        };
        let first_not = |is_before: &dyn Fn(usize) -> bool| {
            let (mut low, mut high) = (0, list.len() / each);
            while low < high {
                let middle = (low + high) / 2;
                if is_before(middle) { low = middle + 1 } else { high = middle }
            }
            low
        };
        let first = first_not(&|n| u32_at(n, 0).saturating_add(u32_at(n, 4)) <= range.start);
        first_not(&|n| u32_at(n, 0) < range.end).saturating_sub(first)
    }

    /// Reads the encoding; `None` when it breaks an invariant.
    pub fn decode(bytes: &[u8]) -> Option<Extents> {
        let (_, body, each) = Self::parts(bytes)?;
        let mut list = Vec::with_capacity(body.len() / each);
        let mut end = 0;
        for b in body.chunks_exact(each) {
            let u32_at = |i: usize| u32::from_be_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
            let segment = u64::from(u32_at(8)) << 32 | u64::from(u32_at(12));
            let source = match segment {
                0 => Source::Unwritten,
                segment => Source::Data(Addr { segment, offset: u32_at(16) }),
            };
            let birth = if each == ENCODED_BORN { u32_at(20) } else { 1 };
            let e = Extent { offset: u32_at(0), len: u32_at(4), source, birth };
            if e.offset < end || e.len == 0 || u64::from(e.offset) + u64::from(e.len) > WINDOW {
                return None;
            }
            end = e.end();
            list.push(e);
        }
        Some(Extents(list))
    }
}

/// Cuts a file range at window borders: window, range within it, and how far into the file range it
/// starts.
pub fn windows(range: Range<u64>) -> impl Iterator<Item = (u32, Range<u32>, u64)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let window = window_of(at);
        let base = u64::from(window) * WINDOW;
        let end = range.end.min(base + WINDOW);
        let item = (window, (at - base) as u32..(end - base) as u32, at - range.start);
        at = end;
        Some(item)
    })
}
