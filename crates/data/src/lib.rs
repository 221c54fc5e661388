//! The data log. File data is appended to open segments in memory, sealed, put to the pool as one
//! object each, read back verified, and rewritten when mostly dead.
//!
//! **Addresses are logical.** An [`Addr`] is a segment and an offset in its *uncompressed* space,
//! fixed at append. Only the object's own index knows where a byte is stored in the object: it
//! depends on compression, on what was dead at sealing, and on what cleaning dropped later. So an
//! extent never changes when its data is sealed, compressed or cleaned, and neither does a snapshot
//! of it.
//!
//! Each flow fills its own open segments, one for each volume and pool that it writes to. So
//! nobody's fsync waits for another user's megabytes, a volume that is moved or removed takes whole
//! segments along, and no pool waits for another.
//!
//! Segments are in **pools**. Each pool has a store, threads that put, and memory of its own
//! (`lane.rs`): a pool that is slow, full or away holds up only its own writers.
//!
//! Life of a segment: *open* (appends, `segment.rs`) → *sealed* (queued, `table.rs`) → *put*
//! (`pack.rs` lays the object out, `format.rs` its index; [`Catalog::sealed`] is called, memory is
//! dropped) → read from the store (`reader.rs`, `cache.rs`, `disk_cache.rs`) → rewritten with less
//! data by cleaning (`upkeep.rs`), as often as needed → deleted. [`DataLog`] (`log.rs`) ties these
//! together.
//!
//! Lock order: table → segment failure. Segment state → segment buffer. The table and a segment's
//! state or buffer are never held together. None is held while the [`Catalog`] or the store is
//! called, except a segment's buffer for reading during its put.

mod buffers;
mod cache;
mod disk_cache;
mod drain;
mod error;
pub mod format;
mod lane;
mod log;
mod pack;
mod reader;
mod segment;
mod table;
mod tail;
mod upkeep;

pub use cache::CacheFigures;
pub use disk_cache::{DISK_CACHE_BYTES_MIN, DiskCache, DiskCacheFigures, open_cache_apart};
pub use error::{Error, Result};
pub use log::{Catalog, Compression, DataLog, GENERATIONS_PER_PUT, Options, SegmentInfo};
pub use upkeep::Verified;

use leeward_env::Flow;
use leeward_pool::ObjectId;

/// Logical address of a byte in the data log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Addr {
    /// Segment number; numbers are never reused; 0 is no segment.
    pub segment: u64,
    /// Offset in the segment's uncompressed space.
    pub offset: u32,
}

/// Number of a pool in a cell. Pool 0 is the cell's own, which always exists.
pub type PoolId = u32;

/// The object that holds a segment. A segment is in one pool. Rewriting it may move it to another
/// pool, under a generation that no object of the segment had before in any pool, whoever put it.
/// So a delete that is carried out late never meets a later object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Object {
    /// The pool that it is in.
    pub pool: PoolId,
    /// The segment that it holds.
    pub segment: u64,
    /// Generation: 0 as first put, higher after each rewriting.
    pub generation: u32,
}

impl Object {
    /// Its name in the pool.
    pub fn id(&self) -> ObjectId {
        ObjectId { segment: self.segment, generation: self.generation }
    }
}

/// The file range that a piece of data was written for. Cleaning uses it to find who may still use
/// the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// Volume number.
    pub volume: u32,
    /// Inode number in the volume.
    pub inode: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// A logical range of a segment that was written for one file range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Chunk {
    /// Offset in the segment's uncompressed space.
    pub offset: u32,
    /// Bytes, never 0.
    pub len: u32,
    /// The file position that its first byte was written for.
    pub owner: Owner,
}

impl Chunk {
    /// First logical offset after the chunk.
    pub fn end(&self) -> u32 {
        self.offset + self.len
    }

    /// The part of the chunk in `from..to`, which must overlap it.
    pub(crate) fn part(&self, from: u32, to: u32) -> Chunk {
        let (start, end) = (from.max(self.offset), to.min(self.end()));
        assert!(start < end, "no overlap of {from}..{to} with {self:?}");
        let skipped = u64::from(start - self.offset);
        let owner = Owner { offset: self.owner.offset.wrapping_add(skipped), ..self.owner };
        Chunk { offset: start, len: end - start, owner }
    }
}

/// Which open segment an append goes to.
pub type AppendFlow = Flow;
