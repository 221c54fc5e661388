//! Lays an object out: from a buffer in logical space and the chunks of it that are kept, to a body
//! of units (compressed where it pays), block checksums, index and trailer.
//!
//! Bytes are laid out in the order of files, not of writing. So a file that was written in
//! scattered pieces is read from start to end with few requests, and related data compresses
//! better. A buffer filled in order stays as it is.
//!
//! Data that does not compress must cost next to nothing here. A sample decides whether a unit is
//! compressed at all. When nothing was dropped, moved or compressed the buffer itself becomes the
//! object, without a copy.

use crate::buffers::Buffers;
use crate::format::{self, BLOCK_BYTES, Codec, Index, UNIT_BYTES, Unit, crc};
use crate::log::Compression;
use crate::{Chunk, Owner};
use leeward_pool::{AlignedBuf, ObjectId};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Bytes of a unit that are compressed as a sample.
const SAMPLE_BYTES: usize = 4096;
/// Pieces of the sample, spread over the unit.
const SAMPLE_PIECES: usize = 4;

/// The body of an object before its index is appended.
pub(crate) struct Body {
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) units: Vec<Unit>,
    /// The buffer that it was laid out in; `None`: it is the source buffer unchanged.
    pub(crate) copied: Option<AlignedBuf>,
}

/// The chunks without dead ranges. `chunks` are sorted; `dead` may be in any order and overlap.
pub(crate) fn without_dead(chunks: &[Chunk], dead: &[Range<u32>]) -> Vec<Chunk> {
    let mut dead: Vec<_> = dead.iter().filter(|d| d.start < d.end).cloned().collect();
    dead.sort_by_key(|d| d.start);
    let mut live = Vec::with_capacity(chunks.len());
    let mut first = 0; // dead ranges before this one end before the current chunk
    for c in chunks {
        while first < dead.len() && dead[first].end <= c.offset {
            first += 1;
        }
        let mut at = c.offset;
        for d in dead[first..].iter().take_while(|d| d.start < c.end()) {
            if d.start > at {
                live.push(c.part(at, d.start));
            }
            at = at.max(d.end);
        }
        if at < c.end() {
            live.push(c.part(at, c.end()));
        }
    }
    live
}

/// Sorts chunks into the order in which they are stored: file by file in the order of their first
/// chunks, each file from its start on.
fn in_file_order(mut chunks: Vec<Chunk>) -> Vec<Chunk> {
    let mut files: FxHashMap<(u32, u64), usize> = FxHashMap::default();
    let mut keyed: Vec<_> = Vec::with_capacity(chunks.len());
    for c in &chunks {
        let next = files.len();
        let file = *files.entry((c.owner.volume, c.owner.inode)).or_insert(next);
        keyed.push((file, c.owner.offset, c.offset));
    }
    if !keyed.is_sorted() {
        let mut order: Vec<usize> = (0..chunks.len()).collect();
        order.sort_unstable_by_key(|&n| keyed[n]);
        chunks = order.into_iter().map(|n| chunks[n]).collect();
    }
    chunks
}

/// Appends a chunk, or lengthens the last one where both spaces continue.
pub(crate) fn push_chunk(chunks: &mut Vec<Chunk>, offset: u32, len: u32, owner: Owner) {
    if let Some(last) = chunks.last_mut() {
        let o = last.owner;
        let follows = o.volume == owner.volume
            && o.inode == owner.inode
            && o.offset.wrapping_add(u64::from(last.len)) == owner.offset;
        if last.end() == offset && follows {
            last.len += len;
            return;
        }
    }
    chunks.push(Chunk { offset, len, owner });
}

/// Packs sorted chunks, whose bytes are at their logical offsets in `source`.
pub(crate) fn pack(source: &[u8], chunks: Vec<Chunk>, how: Compression, buffers: &Buffers) -> Body {
    let chunks = in_file_order(chunks);
    let mut packer = Packer::new(source, &chunks, buffers);
    let mut scratch = Vec::new();
    let packed_bytes = packer.packed_bytes;
    for n in 0..packed_bytes.div_ceil(UNIT_BYTES) {
        let len = UNIT_BYTES.min(packed_bytes - n * UNIT_BYTES);
        let unit = packer.runs.take(len, &mut scratch);
        packer.add(unit, how);
    }
    let Packer { units, out, .. } = packer;
    Body { chunks, units, copied: out }
}

struct Packer<'a> {
    source: &'a [u8],
    runs: Runs<'a>,
    packed_bytes: usize,
    need_bytes: usize,
    buffers: &'a Buffers,
    out: Option<AlignedBuf>,
    /// Bytes of the body so far.
    at: usize,
    units: Vec<Unit>,
    table: CompressTable,
    sample_out: Vec<u8>,
}

impl<'a> Packer<'a> {
    fn new(source: &'a [u8], chunks: &[Chunk], buffers: &'a Buffers) -> Packer<'a> {
        let packed_bytes: usize = chunks.iter().map(|c| c.len as usize).sum();
        let (units, blocks) = (packed_bytes.div_ceil(UNIT_BYTES), packed_bytes.div_ceil(BLOCK_BYTES));
        let tail = format::tail_bytes(chunks.len(), units, blocks);
        let runs = Runs::new(source, chunks);
        let as_it_stands = matches!(&runs.rest[..], [run] if *run == (0..packed_bytes));
        let mut packer = Packer {
            source,
            runs,
            packed_bytes,
            // lz4 wants room for the worst case after the last unit
            need_bytes: packed_bytes + tail.max(get_maximum_output_size(UNIT_BYTES)) + BLOCK_BYTES,
            buffers,
            out: None,
            at: 0,
            units: Vec::with_capacity(units),
            table: CompressTable::large(),
            sample_out: vec![0; get_maximum_output_size(SAMPLE_BYTES)],
        };
        if !as_it_stands {
            packer.copy_out();
        }
        packer
    }

    /// From here on the body is laid out in a buffer of its own.
    fn copy_out(&mut self) {
        let mut out = self.buffers.take(self.need_bytes);
        out[..self.at].copy_from_slice(&self.source[..self.at]);
        self.out = Some(out);
    }

    fn add(&mut self, unit: &[u8], how: Compression) {
        let stored = match how {
            Compression::Lz4 if self.shrinks(unit) => self.compress(unit),
            _ => None,
        };
        let (len, codec) = match stored {
            Some(len) => (len, Codec::Lz4),
            None => (unit.len(), Codec::Raw),
        };
        if let (Codec::Raw, Some(out)) = (codec, &mut self.out) {
            out[self.at..self.at + len].copy_from_slice(unit);
        }
        self.at += len;
        self.units.push(Unit { stored_bytes: len as u32, codec });
    }

    /// Whether a sample of the unit shrinks by at least 1/16.
    fn shrinks(&mut self, unit: &[u8]) -> bool {
        if unit.len() <= 2 * SAMPLE_BYTES {
            return unit.len() > 64;
        }
        let mut sample = [0; SAMPLE_BYTES];
        let piece = SAMPLE_BYTES / SAMPLE_PIECES;
        for (n, part) in sample.chunks_exact_mut(piece).enumerate() {
            let at = n * (unit.len() - piece) / (SAMPLE_PIECES - 1);
            part.copy_from_slice(&unit[at..at + piece]);
        }
        compress_into_with_table(&sample, &mut self.sample_out, &mut self.table)
            .is_ok_and(|len| len <= SAMPLE_BYTES - SAMPLE_BYTES / 16)
    }

    /// Compresses a unit to the end of the body; kept if at least 1/8 is saved.
    fn compress(&mut self, unit: &[u8]) -> Option<usize> {
        if self.out.is_none() {
            self.copy_out();
        }
        let out = self.out.as_mut()?;
        let len = compress_into_with_table(unit, &mut out[self.at..], &mut self.table).ok()?;
        (len <= unit.len() - unit.len().div_ceil(8)).then_some(len)
    }
}

/// The logical ranges to keep in the order of the chunks, as one stream.
struct Runs<'a> {
    source: &'a [u8],
    /// Neighbours merged, in reverse, so that the next one is popped.
    rest: Vec<Range<usize>>,
}

impl<'a> Runs<'a> {
    fn new(source: &'a [u8], chunks: &[Chunk]) -> Runs<'a> {
        let mut rest: Vec<Range<usize>> = Vec::new();
        for c in chunks {
            let range = c.offset as usize..c.end() as usize;
            match rest.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => rest.push(range),
            }
        }
        rest.reverse();
        Runs { source, rest }
    }

    /// The next `len` bytes: borrowed where they are contiguous, else gathered in `scratch`.
    fn take<'b>(&mut self, len: usize, scratch: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        if let Some(run) = self.rest.last_mut()
            && run.len() >= len
        {
            let range = run.start..run.start + len;
            run.start = range.end;
            if run.start == run.end {
                self.rest.pop();
            }
            return &self.source[range];
        }
        scratch.clear();
        while scratch.len() < len {
            let run = self.rest.last_mut().expect("no more is asked for than the chunks hold");
            let part = run.len().min(len - scratch.len());
            scratch.extend_from_slice(&self.source[run.start..run.start + part]);
            run.start += part;
            if run.start == run.end {
                self.rest.pop();
            }
        }
        scratch
    }
}

/// Makes a whole object from a buffer that begins with the body: adds zeros, checksums, index,
/// trailer. A buffer without room for them is replaced by a longer one.
pub(crate) fn finish(id: ObjectId, object: &mut AlignedBuf, chunks: Vec<Chunk>, units: Vec<Unit>) -> Index {
    let mut index = Index { chunks, units, block_crcs: Vec::new() };
    let body_bytes = index.body_bytes() as usize;
    let blocks = body_bytes.div_ceil(BLOCK_BYTES);
    let index_at = blocks * BLOCK_BYTES;
    let total = index_at + format::tail_bytes(index.chunks.len(), index.units.len(), blocks);
    if object.capacity() < total {
        let mut longer = AlignedBuf::zeroed(total);
        longer[..body_bytes].copy_from_slice(&object[..body_bytes]);
        *object = longer;
    }
    object.set_len(total);
    object[body_bytes..index_at].fill(0);
    index.block_crcs = object[..index_at].chunks_exact(BLOCK_BYTES).map(crc).collect();
    index.encode(id, &mut object[index_at..]);
    index
}
