//! Bytes of one simulated file: sparse pages that copies share until one of them is written.
//!
//! Sharing makes a power cut at every write affordable: a copy of a disk copies pointers.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The unit in which space is counted.
pub(super) const PAGE_BYTES: u64 = 4096;

type Page = [u8; PAGE_BYTES as usize];

static ZEROES: LazyLock<Arc<Page>> = LazyLock::new(|| Arc::new([0; PAGE_BYTES as usize]));

/// Invariant: bytes of a page at and after `len` are zero, and no page lies wholly after `len`.
#[derive(Clone, Default)]
pub(super) struct Content {
    len: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Pages that take space (holes do not).
    pub(super) fn page_count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Copies bytes to `buf`; returns how many, fewer at the end.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let count = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        each_piece(offset, count, PAGE_BYTES, |at, range| {
            let from = (at % PAGE_BYTES) as usize;
            match self.pages.get(&(at / PAGE_BYTES)) {
                Some(page) => buf[range.clone()].copy_from_slice(&page[from..from + range.len()]),
                None => buf[range].fill(0),
            }
        });
        count
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        each_piece(offset, bytes.len(), PAGE_BYTES, |at, range| {
            let from = (at % PAGE_BYTES) as usize;
            let page = self.pages.entry(at / PAGE_BYTES).or_insert_with(|| ZEROES.clone());
            Arc::make_mut(page)[from..from + range.len()].copy_from_slice(&bytes[range]);
        });
        if !bytes.is_empty() {
            self.len = self.len.max(offset + bytes.len() as u64);
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            drop(self.pages.split_off(&len.div_ceil(PAGE_BYTES)));
            let keep = (len % PAGE_BYTES) as usize;
            if keep > 0
                && let Some(page) = self.pages.get_mut(&(len / PAGE_BYTES))
            {
                Arc::make_mut(page)[keep..].fill(0);
            }
        }
        self.len = len;
    }

    /// Gives each hole below `len` a page of zeroes; extends to `len`.
    pub(super) fn reserve(&mut self, len: u64) {
        for index in 0..len.div_ceil(PAGE_BYTES) {
            self.pages.entry(index).or_insert_with(|| ZEROES.clone());
        }
        self.len = self.len.max(len);
    }

    /// How many bytes of a write of `count` at `offset` fit when `free_pages` more may be taken.
    pub(super) fn fitting(&self, offset: u64, count: usize, mut free_pages: u64) -> usize {
        let mut fits = count;
        each_piece(offset, count, PAGE_BYTES, |at, range| {
            if range.start >= fits || self.pages.contains_key(&(at / PAGE_BYTES)) {
                return;
            }
            match free_pages.checked_sub(1) {
                Some(left) => free_pages = left,
                None => fits = range.start,
            }
        });
        fits
    }

    /// Pages that [`Content::reserve`] would add.
    pub(super) fn holes_below(&self, len: u64) -> u64 {
        let pages = len.div_ceil(PAGE_BYTES);
        pages - self.pages.range(..pages).count() as u64
    }

    /// Copies from `newer` the pages that a write of `count` bytes at `offset` touched there.
    pub(super) fn adopt(&mut self, newer: &Content, offset: u64, count: usize) {
        if count == 0 {
            return;
        }
        for index in offset / PAGE_BYTES..(offset + count as u64).div_ceil(PAGE_BYTES) {
            if let Some(page) = newer.pages.get(&index) {
                self.pages.insert(index, page.clone());
            }
        }
        self.len = newer.len;
    }

    /// Inverts the lowest bit of a byte, where there is one.
    pub(super) fn flip(&mut self, offset: u64) -> bool {
        let mut byte = [0];
        if self.read(offset, &mut byte) == 0 {
            return false;
        }
        self.write(offset, &[byte[0] ^ 1]);
        true
    }
}

/// Cuts `count` bytes at `offset` at multiples of `grain`: calls `f` with each piece's offset in
/// the file and its range in the buffer.
pub(super) fn each_piece(
    offset: u64,
    count: usize,
    grain: u64,
    mut f: impl FnMut(u64, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < count {
        let at = offset + done as u64;
        let piece = ((grain - at % grain) as usize).min(count - done);
        f(at, done..done + piece);
        done += piece;
    }
}
