//! The bytes of one file, sparse, and what is known about their allocation.
//!
//! Invariants: a page that is all zeros is not stored; no byte at or past `size` is stored; `sure`
//! is a subset of `possible`.
//!
//! Allocation is kept as two sets, because POSIX leaves room: `sure` is what every implementation
//! counts in `st_blocks`, `possible` what it may count. They differ for space reserved past the
//! end, and for holes that were copied, and for parts of blocks.

use crate::ranges::Ranges;
use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE: u64 = 4096;

type Page = Arc<[u8; PAGE as usize]>;

/// How a file system counts what is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Data only, rounded out to units of so many bytes.
    Units(u64),
    /// With metadata, or otherwise: not compared.
    Unknown,
}

/// Content of a regular file.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Page>,
    sure: Ranges,
    possible: Ranges,
}

impl Content {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes from `offset`, short at the end of the file.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(len));
        let mut out = vec![0; end.saturating_sub(offset) as usize];
        if !out.is_empty() {
            for (&n, page) in self.pages.range(offset / PAGE..=(end - 1) / PAGE) {
                let (from, to) = (offset.max(n * PAGE), end.min((n + 1) * PAGE));
                let source = &page[(from - n * PAGE) as usize..(to - n * PAGE) as usize];
                out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        out
    }

    /// Writes, extending the file.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        self.size = self.size.max(end);
        self.put(offset, data);
        self.sure.insert(offset, end);
        self.possible.insert(offset, end);
    }

    /// Cuts, or extends with a hole. Space reserved past the end may or may not stay.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, u64::MAX);
            self.free(size, u64::MAX);
        }
        self.sure.remove(size.min(self.size), u64::MAX);
        self.size = size;
    }

    /// fallocate: what was a hole reads zeros and is allocated.
    pub fn reserve(&mut self, start: u64, end: u64, keep_size: bool) {
        if !keep_size {
            self.size = self.size.max(end);
        }
        self.sure.insert(start, end.min(self.size));
        self.possible.insert(start, end);
    }

    /// fallocate: zeros, allocated.
    pub fn zero_range(&mut self, start: u64, end: u64, keep_size: bool) {
        self.zero(start, end);
        self.reserve(start, end, keep_size);
    }

    /// fallocate: a hole.
    pub fn punch(&mut self, start: u64, end: u64) {
        self.zero(start, end);
        self.sure.remove(start, end);
        self.free(start, end);
    }

    /// Copies `len` bytes that `from` has. Whether its holes become holes here is left open.
    pub fn copy(&mut self, from: &Content, from_offset: u64, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        self.size = self.size.max(offset + len);
        self.zero(offset, offset + len);
        self.sure.remove(offset, offset + len);
        self.possible.insert(offset, offset + len);
        let from_end = from_offset + len;
        for (s, e) in from.sure.within(from_offset, from_end) {
            self.sure.insert(s - from_offset + offset, e - from_offset + offset);
        }
        for (&n, page) in from.pages.range(from_offset / PAGE..=(from_end - 1) / PAGE) {
            let (s, e) = (from_offset.max(n * PAGE), from_end.min((n + 1) * PAGE));
            let bytes = &page[(s - n * PAGE) as usize..(e - n * PAGE) as usize];
            self.put(s - from_offset + offset, bytes);
        }
    }

    /// Forgets what is known about allocation: after a crash anything between nothing and all is
    /// legal.
    pub fn forget_allocation(&mut self) {
        self.sure = Ranges::default();
        self.possible = Ranges::of(0, u64::MAX / 2);
    }

    /// Least and most bytes that may be shown as allocated.
    pub fn allocated(&self, by: Allocation) -> (u64, u64) {
        match by {
            Allocation::Units(bytes) => (self.sure.bytes(), self.possible.rounded(bytes).bytes()),
            Allocation::Unknown => (0, u64::MAX),
        }
    }

    /// Where bytes may be other than zero or allocated, from `offset`: the first such position.
    pub fn data_from(&self, offset: u64) -> Option<u64> {
        self.possible.within(offset, self.size).next().map(|(s, _)| s)
    }

    /// The first position at or after `offset` that is not allocated (the end counts as one).
    pub fn hole_from(&self, offset: u64) -> u64 {
        match self.possible.within(offset, self.size).next() {
            Some((s, e)) if s == offset => e,
            _ => offset,
        }
    }

    /// The first byte in `start..end` that is not zero.
    pub fn nonzero_in(&self, start: u64, end: u64) -> Option<u64> {
        if start >= end {
            return None;
        }
        for (&n, page) in self.pages.range(start / PAGE..=(end - 1) / PAGE) {
            let (s, e) = (start.max(n * PAGE) - n * PAGE, end.min((n + 1) * PAGE) - n * PAGE);
            if let Some(i) = page[s as usize..e as usize].iter().position(|&b| b != 0) {
                return Some(n * PAGE + s + i as u64);
            }
        }
        None
    }

    /// Where size or bytes differ first.
    pub fn first_difference(&self, other: &Content) -> Option<u64> {
        let mine = self.pages.iter().find(|(n, page)| other.pages.get(n) != Some(page)).map(|(&n, _)| n);
        let theirs = other.pages.keys().find(|n| !self.pages.contains_key(n)).copied();
        let zero = [0; PAGE as usize];
        let bytes = mine.into_iter().chain(theirs).min().map(|n| {
            let a = self.pages.get(&n).map_or(&zero, |p| &**p);
            let b = other.pages.get(&n).map_or(&zero, |p| &**p);
            n * PAGE + a.iter().zip(b).position(|(x, y)| x != y).unwrap_or(0) as u64
        });
        let sizes = (self.size != other.size).then(|| self.size.min(other.size));
        bytes.into_iter().chain(sizes).min()
    }

    /// Frees the whole blocks in a range: where space is kept in blocks, the rest stays.
    fn free(&mut self, start: u64, end: u64) {
        self.possible.remove(start.next_multiple_of(PAGE), end / PAGE * PAGE);
    }

    /// Stores bytes, page by page, without touching size or allocation.
    fn put(&mut self, offset: u64, data: &[u8]) {
        let (mut at, mut data) = (offset, data);
        while !data.is_empty() {
            let (n, within) = (at / PAGE, (at % PAGE) as usize);
            let len = data.len().min(PAGE as usize - within);
            let page = self.pages.entry(n).or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(page)[within..within + len].copy_from_slice(&data[..len]);
            if page.iter().all(|&b| b == 0) {
                self.pages.remove(&n);
            }
            (at, data) = (at + len as u64, &data[len..]);
        }
    }

    fn zero(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let touched: Vec<u64> = self.pages.range(start / PAGE..=(end - 1) / PAGE).map(|(&n, _)| n).collect();
        for n in touched {
            let (s, e) = (start.max(n * PAGE), end.min((n + 1) * PAGE));
            let zeros = [0; PAGE as usize];
            self.put(s, &zeros[..(e - s) as usize]);
        }
    }
}
