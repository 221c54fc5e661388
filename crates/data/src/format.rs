//! The format of a segment object, versions 1 and 2. All numbers are little-endian; a block is 4096
//! bytes.
//!
//! ```text
//! object  = body, index, trailer                      a multiple of the block long
//! body    = the units one after another, then zeros up to the next block boundary
//! index   = chunk*, unit*, block checksum*, zeros up to 64 bytes before the end of the object
//! trailer = the last 64 bytes
//! ```
//!
//! Three spaces, each mapped to the next by one table of the index:
//! * **logical**: what an [`Addr`](crate::Addr) means. *Chunks* (28 bytes each) say which logical
//!   ranges the object holds; not overlapping, none empty: `offset u32 | length u32 | owner: volume
//!   u32, inode u64, file offset u64`. In version 1 they are sorted by offset. In version 2 they
//!   are in any order, which is that of their bytes in packed space: so that what belongs together
//!   in a file lies together.
//! * **packed**: the chunks' bytes one after another, without gaps. It is cut into *units* of
//!   65,536 bytes (the last one may be shorter). Each has one entry: `u32`, bit 31 = the unit is an
//!   lz4 block (no size prefix), else it is stored as it is; bits 0-30 = bytes it takes in the
//!   body.
//! * **body**: one `u32` per block: CRC-32C (Castagnoli) of the block, the zeros after the last
//!   unit included.
//!
//! If nothing was dropped and nothing pays to be compressed, the three spaces are one and the body
//! is the very buffer that was appended to.
//!
//! The trailer:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | `lee-segm` |
//! | 8 | 2 | format version: 1, or 2 if the chunks are not sorted |
//! | 10 | 2 | binary logarithm of the unit size: 16 |
//! | 12 | 4 | generation |
//! | 16 | 8 | segment number |
//! | 24 | 4 | packed bytes (sum of the chunks' lengths) |
//! | 28 | 4 | body bytes (sum of the units' stored lengths, without the zeros) |
//! | 32 | 4 | number of chunks |
//! | 36 | 4 | number of units |
//! | 40 | 4 | number of blocks of the body |
//! | 44 | 4 | object bytes |
//! | 48 | 4 | CRC-32C of the index region, its zeros included |
//! | 52 | 8 | zero |
//! | 60 | 4 | CRC-32C of bytes 0 to 60 of the trailer |
//!
//! So every byte of an object is under some checksum. The index region starts at block number
//! "number of blocks". An object of a higher version is refused; what it means is for the program
//! that wrote it.

use crate::{Chunk, Error, Owner, Result};
use leeward_pool::ObjectId;

/// The newest version of the format that this program reads and writes.
pub const FORMAT: u16 = 2;
/// The version of objects whose chunks are sorted by offset.
const FORMAT_SORTED: u16 = 1;
/// First bytes of the trailer.
pub const MAGIC: [u8; 8] = *b"lee-segm";
/// Unit of checksums, alignment and padding.
pub const BLOCK_BYTES: usize = 4096;
/// Unit of compression and caching in packed space.
pub const UNIT_BYTES: usize = 1 << UNIT_LOG2;
/// Length of the trailer.
pub const TRAILER_BYTES: usize = 64;
/// Length of a chunk's entry in the index.
pub const CHUNK_BYTES: usize = 28;
/// No object is longer. Limits the memory that a damaged or hostile object can make us allocate.
pub const OBJECT_BYTES_MAX: u64 = 256 << 20;

/// No logical offset is higher.
pub const LOGICAL_BYTES_MAX: u32 = 128 << 20;

const UNIT_LOG2: u16 = 16;
const UNIT_LZ4: u32 = 1 << 31;

/// CRC-32C.
pub fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// How a unit is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Without compression.
    Raw,
    /// Compressed, as one lz4 block.
    Lz4,
}

/// Entry of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Bytes in the body.
    pub stored_bytes: u32,
    /// How it is stored.
    pub codec: Codec,
}

/// What the index of an object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// In packed order, not overlapping.
    pub chunks: Vec<Chunk>,
    /// In packed order.
    pub units: Vec<Unit>,
    /// Checksum of each block of the body.
    pub block_crcs: Vec<u32>,
}

impl Index {
    /// Bytes of all chunks.
    pub fn packed_bytes(&self) -> u64 {
        self.chunks.iter().map(|c| u64::from(c.len)).sum()
    }

    /// The chunks sorted by offset.
    pub fn chunks_by_offset(&self) -> Vec<Chunk> {
        let mut chunks = self.chunks.clone();
        chunks.sort_unstable_by_key(|c| c.offset);
        chunks
    }

    /// Bytes of all units as stored.
    pub fn body_bytes(&self) -> u64 {
        self.units.iter().map(|u| u64::from(u.stored_bytes)).sum()
    }

    /// Bytes of index, zeros and trailer: what follows the blocks of the body.
    pub fn tail_bytes(&self) -> usize {
        tail_bytes(self.chunks.len(), self.units.len(), self.block_crcs.len())
    }

    /// Writes index and trailer over `tail`, which must be [`Index::tail_bytes`] long.
    pub fn encode(&self, id: ObjectId, tail: &mut [u8]) {
        assert_eq!(tail.len(), self.tail_bytes());
        let object_bytes = self.block_crcs.len() * BLOCK_BYTES + tail.len();
        let (region, trailer) = tail.split_at_mut(tail.len() - TRAILER_BYTES);
        let mut out = Cursor { bytes: region, at: 0 };
        for c in &self.chunks {
            out.put(&c.offset.to_le_bytes());
            out.put(&c.len.to_le_bytes());
            out.put(&c.owner.volume.to_le_bytes());
            out.put(&c.owner.inode.to_le_bytes());
            out.put(&c.owner.offset.to_le_bytes());
        }
        for u in &self.units {
            let lz4 = if u.codec == Codec::Lz4 { UNIT_LZ4 } else { 0 };
            out.put(&(u.stored_bytes | lz4).to_le_bytes());
        }
        for c in &self.block_crcs {
            out.put(&c.to_le_bytes());
        }
        let used = out.at;
        region[used..].fill(0);
        let sorted = self.chunks.is_sorted_by_key(|c| c.offset);
        let t = Trailer {
            id,
            format: if sorted { FORMAT_SORTED } else { FORMAT },
            packed_bytes: self.packed_bytes() as u32,
            body_bytes: self.body_bytes() as u32,
            chunks: self.chunks.len() as u32,
            units: self.units.len() as u32,
            blocks: self.block_crcs.len() as u32,
            object_bytes: object_bytes as u32,
            index_crc: crc(region),
        };
        t.encode(trailer);
    }

    /// Reads the index that `trailer` announces. `region` is what lies between body and trailer.
    ///
    /// # Errors
    /// `Corrupt` when the checksum or anything else does not hold.
    pub fn decode(trailer: &Trailer, region: &[u8]) -> Result<Index> {
        let damaged = |what: &str| corrupt(trailer.id, what);
        if region.len() != trailer.region_bytes() || crc(region) != trailer.index_crc {
            return Err(damaged("checksum of the index"));
        }
        let (chunks, rest) = region.split_at(trailer.chunks as usize * CHUNK_BYTES);
        let (units, rest) = rest.split_at(trailer.units as usize * 4);
        let block_crcs = &rest[..trailer.blocks as usize * 4];
        let index = Index {
            chunks: chunks.chunks_exact(CHUNK_BYTES).map(decode_chunk).collect(),
            units: units.chunks_exact(4).map(decode_unit).collect(),
            block_crcs: block_crcs.chunks_exact(4).map(|b| u32_at(b, 0)).collect(),
        };
        index.check(trailer).map_err(damaged)?;
        Ok(index)
    }

    /// Checks what readers rely on, so that an index with good checksums and senseless content
    /// cannot make them panic.
    fn check(&self, trailer: &Trailer) -> std::result::Result<(), &'static str> {
        if trailer.format == FORMAT_SORTED && !self.chunks.is_sorted_by_key(|c| c.offset) {
            return Err("order of the chunks");
        }
        let mut end = 0u32;
        for c in self.chunks_by_offset() {
            if c.offset < end || c.len == 0 {
                return Err("overlap of the chunks");
            }
            end = c.offset.checked_add(c.len).ok_or("length of a chunk")?;
            if end > LOGICAL_BYTES_MAX {
                return Err("offset of a chunk");
            }
        }
        if self.packed_bytes() != u64::from(trailer.packed_bytes) {
            return Err("sum of the chunks");
        }
        if self.body_bytes() != u64::from(trailer.body_bytes) {
            return Err("sum of the units");
        }
        for (n, u) in self.units.iter().enumerate() {
            let raw = unit_bytes(trailer.packed_bytes, n);
            let stored = u.stored_bytes as usize;
            if stored == 0 || stored > raw || (u.codec == Codec::Raw && stored != raw) {
                return Err("length of a unit");
            }
        }
        Ok(())
    }
}

/// Length of unit `n` in packed space.
pub fn unit_bytes(packed_bytes: u32, n: usize) -> usize {
    (packed_bytes as usize).saturating_sub(n * UNIT_BYTES).min(UNIT_BYTES)
}

/// Bytes of index, zeros and trailer for this many entries.
pub fn tail_bytes(chunks: usize, units: usize, blocks: usize) -> usize {
    (chunks * CHUNK_BYTES + units * 4 + blocks * 4 + TRAILER_BYTES).next_multiple_of(BLOCK_BYTES)
}

/// The last 64 bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Name of the object.
    pub id: ObjectId,
    /// Version of the format.
    pub format: u16,
    /// Bytes of all chunks.
    pub packed_bytes: u32,
    /// Bytes of all units as stored.
    pub body_bytes: u32,
    /// Number of chunks.
    pub chunks: u32,
    /// Number of units.
    pub units: u32,
    /// Number of blocks of the body.
    pub blocks: u32,
    /// Length of the object.
    pub object_bytes: u32,
    /// Checksum of the index region.
    pub index_crc: u32,
}

impl Trailer {
    fn encode(&self, trailer: &mut [u8]) {
        let mut out = Cursor { bytes: trailer, at: 0 };
        out.put(&MAGIC);
        out.put(&self.format.to_le_bytes());
        out.put(&UNIT_LOG2.to_le_bytes());
        out.put(&self.id.generation.to_le_bytes());
        out.put(&self.id.segment.to_le_bytes());
        for n in [self.packed_bytes, self.body_bytes, self.chunks, self.units, self.blocks] {
            out.put(&n.to_le_bytes());
        }
        out.put(&self.object_bytes.to_le_bytes());
        out.put(&self.index_crc.to_le_bytes());
        out.put(&[0; 8]);
        let sum = crc(&trailer[..60]);
        trailer[60..].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads the trailer of object `id`, which is `object_bytes` long, from its last 64 bytes.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged or another object's, `Newer` when this program is too old for
    /// it.
    pub fn decode(id: ObjectId, object_bytes: u64, bytes: &[u8; TRAILER_BYTES]) -> Result<Trailer> {
        let damaged = |what: &str| Err(corrupt(id, what));
        if bytes[..8] != MAGIC {
            return damaged("it does not end with a trailer");
        }
        let format = u16::from_le_bytes([bytes[8], bytes[9]]);
        if format > FORMAT {
            return Err(Error::Newer { segment: id.segment, format });
        }
        if crc(&bytes[..60]) != u32_at(bytes, 60) {
            return damaged("checksum of the trailer");
        }
        let trailer = Trailer {
            id: ObjectId { segment: u64_at(bytes, 16), generation: u32_at(bytes, 12) },
            format,
            packed_bytes: u32_at(bytes, 24),
            body_bytes: u32_at(bytes, 28),
            chunks: u32_at(bytes, 32),
            units: u32_at(bytes, 36),
            blocks: u32_at(bytes, 40),
            object_bytes: u32_at(bytes, 44),
            index_crc: u32_at(bytes, 48),
        };
        if trailer.id != id {
            return damaged("it is another object's");
        }
        if format < FORMAT_SORTED || bytes[10..12] != UNIT_LOG2.to_le_bytes() || !trailer.fits(object_bytes) {
            return damaged("lengths in the trailer");
        }
        Ok(trailer)
    }

    fn fits(&self, object_bytes: u64) -> bool {
        let (chunks, units, blocks) = (self.chunks as usize, self.units as usize, self.blocks as usize);
        let body = self.blocks as usize * BLOCK_BYTES;
        units == (self.packed_bytes as usize).div_ceil(UNIT_BYTES)
            && blocks == (self.body_bytes as usize).div_ceil(BLOCK_BYTES)
            && u64::from(self.object_bytes) == object_bytes
            && (body + tail_bytes(chunks, units, blocks)) as u64 == object_bytes
    }

    /// Where the index region begins in the object.
    pub fn region_at(&self) -> u64 {
        u64::from(self.blocks) * BLOCK_BYTES as u64
    }

    /// Length of the index region, zeros included.
    pub fn region_bytes(&self) -> usize {
        (u64::from(self.object_bytes) - self.region_at()) as usize - TRAILER_BYTES
    }
}

/// Whether these bytes are the whole object of this name: trailer, index and the checksum of each
/// block match.
pub fn is_whole(id: ObjectId, object: &[u8]) -> bool {
    let Some(last) = object.last_chunk() else { return false };
    let Ok(trailer) = Trailer::decode(id, object.len() as u64, last) else { return false };
    let (body, tail) = object.split_at(trailer.region_at() as usize);
    let Ok(index) = Index::decode(&trailer, &tail[..trailer.region_bytes()]) else { return false };
    body.chunks(BLOCK_BYTES).zip(&index.block_crcs).all(|(block, sum)| crc(block) == *sum)
}

/// A `Corrupt` error about an object.
pub(crate) fn corrupt(id: ObjectId, what: &str) -> Error {
    let what =
        if id.generation == 0 { what.into() } else { format!("{what} (generation {})", id.generation) };
    Error::Corrupt { segment: id.segment, what }
}

fn decode_chunk(b: &[u8]) -> Chunk {
    let owner = Owner { volume: u32_at(b, 8), inode: u64_at(b, 12), offset: u64_at(b, 20) };
    Chunk { offset: u32_at(b, 0), len: u32_at(b, 4), owner }
}

fn decode_unit(b: &[u8]) -> Unit {
    let n = u32_at(b, 0);
    let codec = if n & UNIT_LZ4 != 0 { Codec::Lz4 } else { Codec::Raw };
    Unit { stored_bytes: n & !UNIT_LZ4, codec }
}

/// The caller has checked the length.
fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

struct Cursor<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    fn put(&mut self, b: &[u8]) {
        self.bytes[self.at..self.at + b.len()].copy_from_slice(b);
        self.at += b.len();
    }
}
