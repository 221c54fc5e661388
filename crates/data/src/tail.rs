//! Index and trailer of objects in the cache on disk: without them nothing else of an object can be
//! read. They are usually one part.

use crate::Object;
use crate::disk_cache::{DiskCache, PART_BYTES, Part};
use crate::format::{BLOCK_BYTES, Index, Trailer};
use leeward_pool::AlignedBuf;

/// Longer ones are not kept, in parts.
const PARTS_MAX: usize = 16;

/// The end of an object: index and trailer, from `start` on, and the bytes before them.
pub(crate) struct Tail {
    pub(crate) bytes: AlignedBuf,
    pub(crate) start: usize,
    pub(crate) object_bytes: u64,
}

/// A block before the first part of a tail on disk: length of the object, length of what follows.
const HEAD_BYTES: usize = BLOCK_BYTES;

fn tail_part(object: Object, n: usize) -> Part {
    Part { object, number: Part::TAIL | n as u32 }
}

impl DiskCache {
    /// Index and trailer from the cache on disk, verified.
    pub(crate) fn index(&self, object: Object) -> Option<Index> {
        let first = tail_part(object, 0);
        let kept = self.read(&[(first, self.len_of(first)?)])?;
        let number = |at: usize| kept[at..].first_chunk().map(|b| u64::from_le_bytes(*b));
        let (object_bytes, bytes) = (number(0)?, number(8)? as usize);
        let whole = PART_BYTES;
        let (mut all, mut parts) = (kept[HEAD_BYTES.min(kept.len())..].to_vec(), vec![(first, 0)]);
        if bytes <= PARTS_MAX * whole && all.len() < bytes {
            let lens = (0..bytes - all.len()).step_by(whole).map(|at| whole.min(bytes - all.len() - at));
            let more: Vec<_> = lens.enumerate().map(|(n, len)| (tail_part(object, n + 1), len)).collect();
            all.extend_from_slice(&self.read(&more)?);
            parts.extend(more);
        }
        let index = decode_tail(object, object_bytes, &all);
        if index.is_none() {
            self.forget(&parts);
        }
        index
    }

    /// Keeps index and trailer.
    pub(crate) fn keep_tail(&self, object: Object, tail: &Tail) {
        let region = &tail.bytes[tail.start..];
        let whole = PART_BYTES;
        if region.len() > PARTS_MAX * whole || !region.len().is_multiple_of(BLOCK_BYTES) {
            return;
        }
        let (here, more) = region.split_at(region.len().min(whole - HEAD_BYTES));
        let mut first = AlignedBuf::zeroed(HEAD_BYTES + here.len());
        first[..8].copy_from_slice(&tail.object_bytes.to_le_bytes());
        first[8..16].copy_from_slice(&(region.len() as u64).to_le_bytes());
        first[HEAD_BYTES..].copy_from_slice(here);
        self.keep(tail_part(object, 0), &first);
        more.chunks(whole).enumerate().for_each(|(n, bytes)| self.keep(tail_part(object, n + 1), bytes));
    }
}

fn decode_tail(object: Object, object_bytes: u64, tail: &[u8]) -> Option<Index> {
    let (region, last) = tail.split_last_chunk()?;
    let trailer = Trailer::decode(object.id(), object_bytes, last).ok()?;
    let whole = object_bytes.checked_sub(trailer.region_at()) == Some(tail.len() as u64);
    Index::decode(&trailer, region).ok().filter(|_| whole)
}
