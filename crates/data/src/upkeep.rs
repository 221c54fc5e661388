//! Operations of recovery, cleaning and scrubbing on whole objects.

use crate::format::{BLOCK_BYTES, Index, LOGICAL_BYTES_MAX, corrupt};
use crate::log::{DataLog, SegmentInfo};
use crate::pack;
use crate::reader::{Layout, Piece};
use crate::{Chunk, Error, Object, Owner, PoolId, Result};
use leeward_env::Ctx;
use std::ops::Range;
use std::sync::Arc;

/// What [`DataLog::verify`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Bytes read.
    pub bytes: u64,
    /// Logical ranges that cannot be read, with their owners; sorted. Empty: the object is whole.
    pub damaged: Vec<Chunk>,
}

/// Blocks read at a time.
const VERIFY_BLOCKS: usize = 256;

impl DataLog {
    /// At open: restores the object of a segment of which these pieces (logical offset, owner,
    /// bytes) survived, in any order; the same bytes may come twice. An object that was put without
    /// being recorded is taken if all of it can be read: it has the pieces, and perhaps more. Else
    /// an object is put that has the pieces only. The object is in `pool` and durable at return.
    ///
    /// # Errors
    /// The store's; `Corrupt` when an offset makes no sense.
    pub fn restore(
        &self,
        ctx: &Ctx,
        pool: PoolId,
        segment: u64,
        pieces: &[(u32, Owner, Arc<[u8]>)],
    ) -> Result<SegmentInfo> {
        let first = Object { pool, segment, generation: 0 };
        let generation = match self.verify(ctx, first) {
            Ok(verified) if verified.damaged.is_empty() => return self.adopt(ctx, pool, segment),
            Err(Error::Store(leeward_pool::Error::NotFound(_))) => 0,
            // the existing object is not overwritten: it is a leftover that the next search finds
            _ => 1,
        };
        let mut sorted: Vec<_> = pieces.iter().filter(|(_, _, bytes)| !bytes.is_empty()).collect();
        sorted.sort_by_key(|(offset, _, bytes)| (*offset, std::cmp::Reverse(bytes.len())));
        let end = sorted.iter().map(|(offset, _, bytes)| *offset as usize + bytes.len()).max().unwrap_or(0);
        let object = Object { generation, ..first };
        if end > LOGICAL_BYTES_MAX as usize {
            return Err(corrupt(object.id(), "a piece lies beyond any segment's end"));
        }
        let mut source = self.buffers().take(end.max(BLOCK_BYTES));
        let mut chunks: Vec<Chunk> = Vec::new();
        for (offset, owner, bytes) in sorted {
            source[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
            let whole = Chunk { offset: *offset, len: bytes.len() as u32, owner: *owner };
            let from = chunks.last().map_or(0, Chunk::end);
            if whole.end() > from {
                let c = whole.part(from, whole.end());
                pack::push_chunk(&mut chunks, c.offset, c.len, c.owner);
            }
        }
        self.put_packed(ctx, object, source, chunks)
    }

    /// At open: the object of a segment that was put without being recorded; durable at return.
    ///
    /// # Errors
    /// The store's, `NotFound` among them; `Corrupt`.
    pub fn adopt(&self, ctx: &Ctx, pool: PoolId, segment: u64) -> Result<SegmentInfo> {
        let object = Object { pool, segment, generation: 0 };
        let data_bytes = self.index(ctx, object)?.iter().map(|c| u64::from(c.len)).sum();
        let store = self.lanes().store(pool)?;
        let object_bytes = store.len(ctx, object.id())?;
        store.settle(ctx, object.id())?;
        Ok(SegmentInfo { object, object_bytes, data_bytes })
    }

    /// The chunks of an object, from its verified index; sorted by offset.
    ///
    /// # Errors
    /// `Corrupt` when index or trailer are damaged; the store's.
    pub fn index(&self, ctx: &Ctx, object: Object) -> Result<Vec<Chunk>> {
        Ok(self.reader().index(ctx, object)?.chunks_by_offset())
    }

    /// Writes a new object to `pool` that holds only what these sorted logical ranges cover of
    /// `object`; durable at return. Its generation is `generation` or, where a store keeps another
    /// object of that name, one of the next [`crate::GENERATIONS_PER_PUT`]: the caller uses each of
    /// them once. The caller deletes the old object after its commit. If nothing remains, nothing
    /// is written and `object_bytes` is 0.
    ///
    /// # Errors
    /// `Corrupt` when data that has to be kept is damaged; the store's.
    pub fn rewrite(
        &self,
        ctx: &Ctx,
        object: Object,
        live: &[Range<u32>],
        (pool, generation): (PoolId, u32),
    ) -> Result<SegmentInfo> {
        let index = self.reader().index(ctx, object)?;
        let layout = Layout::new(object, &index);
        let chunks = only_live(&index.chunks_by_offset(), live);
        let end = chunks.last().map_or(0, |c| c.end() as usize);
        let mut source = self.buffers().take(end.max(BLOCK_BYTES));
        self.gather(ctx, &layout, &chunks, &mut source)?;
        let next = Object { pool, generation, ..object };
        self.put_packed(ctx, next, source, chunks)
    }

    /// Copies sorted chunks to their logical offsets in `source`.
    fn gather(&self, ctx: &Ctx, layout: &Layout, chunks: &[Chunk], source: &mut [u8]) -> Result<()> {
        let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(chunks.len());
        let (mut rest, mut at) = (source, 0);
        for c in chunks {
            let (_, from) = rest.split_at_mut((c.offset - at) as usize);
            let (out, more) = from.split_at_mut(c.len as usize);
            (rest, at) = (more, c.end());
            pieces.push((c.offset, out));
        }
        self.reader().read_once(ctx, layout, &mut pieces)
    }

    /// Reads the whole object, past the cache.
    ///
    /// # Errors
    /// `Corrupt` when trailer or index are unreadable, so that nothing can be said about the rest;
    /// the store's.
    pub fn verify(&self, ctx: &Ctx, object: Object) -> Result<Verified> {
        let index = self.reader().index(ctx, object)?;
        let layout = Layout::new(object, &index);
        let mut bad_blocks = vec![false; layout.blocks()];
        let mut bytes = self.reader().take_bounce();
        let mut first = 0;
        while first < layout.blocks() {
            let count = VERIFY_BLOCKS.min(layout.blocks() - first);
            let part = &mut bytes[..count * BLOCK_BYTES];
            self.check_blocks(ctx, &layout, first, part, &mut bad_blocks)?;
            first += count;
        }
        self.reader().give_bounce(bytes);
        let bytes = (layout.blocks() * BLOCK_BYTES + index.tail_bytes()) as u64;
        Ok(Verified { bytes, damaged: damaged_chunks(&layout, &index, &bad_blocks) })
    }

    /// Reads blocks from `first` on into `part` and marks the bad ones. Where the device fails for
    /// the group, each block is tried alone.
    fn check_blocks(
        &self,
        ctx: &Ctx,
        layout: &Layout,
        first: usize,
        part: &mut [u8],
        bad: &mut [bool],
    ) -> Result<()> {
        match self.reader().get(ctx, layout.object(), (first * BLOCK_BYTES) as u64, part) {
            Ok(()) => {
                for (n, block) in part.chunks_exact(BLOCK_BYTES).enumerate() {
                    bad[first + n] = layout.verify(first + n, block).is_err();
                }
                Ok(())
            }
            Err(Error::Store(leeward_pool::Error::Io(e))) if is_medium_error(&e) => {
                if part.len() == BLOCK_BYTES {
                    bad[first] = true;
                    return Ok(());
                }
                let mut blocks = part.chunks_exact_mut(BLOCK_BYTES).enumerate();
                blocks.try_for_each(|(n, block)| self.check_blocks(ctx, layout, first + n, block, bad))
            }
            Err(e) => Err(e),
        }
    }

    /// Removes an object; an absent one is no error.
    ///
    /// # Errors
    /// The store's.
    pub fn delete(&self, ctx: &Ctx, object: Object) -> Result<()> {
        self.reader().cache().forget(object);
        Ok(self.lanes().store(object.pool)?.delete(ctx, object.id())?)
    }
}

/// Whether the device says that it cannot read this range, as opposed to a failing path to it.
fn is_medium_error(e: &std::io::Error) -> bool {
    const EIO: i32 = 5;
    e.raw_os_error() == Some(EIO)
}

/// The parts of sorted `chunks` that the sorted ranges cover.
fn only_live(chunks: &[Chunk], live: &[Range<u32>]) -> Vec<Chunk> {
    let mut kept: Vec<Chunk> = Vec::new();
    let mut first = 0; // ranges before this one end before the current chunk
    for c in chunks {
        while first < live.len() && live[first].end <= c.offset {
            first += 1;
        }
        for r in live[first..].iter().take_while(|r| r.start < c.end()) {
            let from = r.start.max(kept.last().map_or(0, Chunk::end)).max(c.offset);
            let to = r.end.min(c.end());
            if from < to {
                let part = c.part(from, to);
                pack::push_chunk(&mut kept, part.offset, part.len, part.owner);
            }
        }
    }
    kept
}

/// Damaged blocks → units → logical ranges. A unit stored uncompressed loses only the block, a
/// compressed one all.
fn damaged_chunks(layout: &Layout, index: &Index, bad_blocks: &[bool]) -> Vec<Chunk> {
    let mut bad_packed: Vec<Range<usize>> = Vec::new();
    for n in 0..layout.units() {
        for block in layout.unit_blocks(n).filter(|&b| bad_blocks[b]) {
            let lost = layout.lost_with(n, block);
            match bad_packed.last_mut() {
                Some(last) if last.end >= lost.start => last.end = last.end.max(lost.end),
                _ => bad_packed.push(lost),
            }
        }
    }
    let mut damaged = Vec::new();
    let mut packed = 0usize;
    for c in &index.chunks {
        for bad in bad_packed.iter().filter(|b| b.start < packed + c.len as usize && b.end > packed) {
            let from = c.offset + bad.start.saturating_sub(packed) as u32;
            let to = c.offset + (bad.end - packed).min(c.len as usize) as u32;
            let part = c.part(from, to);
            pack::push_chunk(&mut damaged, part.offset, part.len, part.owner);
        }
        packed += c.len as usize;
    }
    damaged.sort_unstable_by_key(|c: &Chunk| c.offset);
    damaged
}
