//! The data log: file data is appended to open segments in memory, sealed, put to the pool as one object each, read back
//! verified, and rewritten when mostly dead.
//!
//! **Addresses are logical.** An [`Addr`] is a segment and an offset in its *uncompressed* space, fixed at append. What is
//! stored where inside the object (compression, what was already dead at sealing, what cleaning dropped later) only the
//! object's own index knows. So an extent never changes when its data is sealed, compressed or cleaned, and neither do
//! snapshots of it.
//!
//! Each flow fills its own open segment: nobody's fsync waits for another's megabytes.

mod cache;
mod error;
pub mod format;
mod log;
mod reader;
mod segment;

pub use error::{Error, Result};

use leeward_env::Flow;

/// Logical address of a byte in the data log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Addr {
    /// Segment number; numbers are never reused; 0 is no segment.
    pub segment: u64,
    /// Offset in the segment's uncompressed space.
    pub offset: u32,
}

/// Which file range a piece of data was written for: how cleaning finds who may still use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// Volume number.
    pub volume: u32,
    /// Inode number in the volume.
    pub inode: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// Which open segment an append goes to.
pub type AppendFlow = Flow;
