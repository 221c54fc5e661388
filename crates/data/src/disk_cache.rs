//! The cache of stored bytes on a local disk, behind the one in memory, for pools whose stores are
//! far away.
//!
//! It holds **parts** of objects as they are stored: 64 KiB of the body, or of index and trailer.
//! Objects never change, so a part never changes either; it can only leave. Data from it is
//! verified by the checksums of the object itself, just as data from a store is. Where they do not
//! match, the store is asked.

use crate::{Object, PoolId};
use leeward_cache::{BLOCK_BYTES, Form, Key};
use leeward_env::Env;
use leeward_env::disk::Disk;
use leeward_pool::AlignedBuf;
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::io;

pub use leeward_cache::{DISK_CACHE_BYTES_MIN, DiskCacheFigures, open_apart as open_cache_apart};

/// Blocks in a part of a body.
pub(crate) const PART_BLOCKS: usize = 16;
/// Bytes in a part.
pub(crate) const PART_BYTES: usize = PART_BLOCKS * BLOCK_BYTES;
const FORM: Form = Form { magic: *b"lee-cach", part_bytes: PART_BYTES };

/// A part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) object: Object,
    /// Number of the part in the body, or with [`Part::TAIL`] in index and trailer.
    pub(crate) number: u32,
}

impl Part {
    /// The first part of index and trailer.
    pub(crate) const TAIL: u32 = 1 << 31;
}

impl Key for Part {
    /// Pool u32, segment u64, generation u32, part u32, little-endian.
    fn encode(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&self.object.pool.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.object.segment.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.object.generation.to_le_bytes());
        bytes[16..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; 20]) -> Part {
        let number = |range: std::ops::Range<usize>| {
            bytes[range].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let (pool, segment, generation) = (number(0..4) as u32, number(4..12), number(12..16) as u32);
        Part { object: Object { pool, segment, generation }, number: number(16..20) as u32 }
    }
}

/// A cache on disk. Its threads end when it is dropped.
pub struct DiskCache {
    parts: leeward_cache::DiskCache<Part>,
    pools: RwLock<BTreeSet<PoolId>>,
}

impl DiskCache {
    /// A cache of up to `bytes` bytes in the root of `disk`, called `name` in messages. It begins
    /// with the parts that a cache of the cell with this id left there. The caller makes sure that
    /// nobody else uses the directory.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(env: &Env, disk: &dyn Disk, name: &str, cell: &str, bytes: u64) -> io::Result<DiskCache> {
        let parts = leeward_cache::DiskCache::open(env, disk, (name, cell), FORM, bytes)?;
        Ok(DiskCache { parts, pools: RwLock::default() })
    }

    /// Whether objects of this pool are kept from now on.
    pub fn serve(&self, pool: PoolId, serve: bool) {
        let mut pools = self.pools.write();
        if serve {
            pools.insert(pool)
        } else {
            pools.remove(&pool)
        };
    }

    pub(crate) fn serves(&self, pool: PoolId) -> bool {
        self.pools.read().contains(&pool)
    }

    /// Counts and state of the cache.
    pub fn figures(&self) -> DiskCacheFigures {
        self.parts.figures()
    }

    /// Waits until all writes are done. For tests.
    pub fn settle(&self) {
        self.parts.settle();
    }

    /// Reads parts of these lengths, one after the other, if the cache has all of them. The caller
    /// must verify them.
    pub(crate) fn read(&self, parts: &[(Part, usize)]) -> Option<AlignedBuf> {
        self.parts.read(parts)
    }

    /// Length of a part, if the cache has it.
    pub(crate) fn len_of(&self, part: Part) -> Option<usize> {
        self.parts.len_of(part)
    }

    /// Drops parts that were read with wrong content.
    pub(crate) fn forget(&self, parts: &[(Part, usize)]) {
        self.parts.forget(parts);
    }

    /// Keeps a verified part, of at most 64 KiB in whole blocks, if there is time for it.
    pub(crate) fn keep(&self, part: Part, bytes: &[u8]) {
        self.parts.keep(part, bytes);
    }
}
