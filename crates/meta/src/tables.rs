//! The layer below the journal: sorted tables, in memory first, durable later.
//!
//! The engine gives every commit a sequence number of the tables, appends it to the journal, and
//! only then inserts it here, in the order of the numbers. One thread at a time inserts and
//! publishes, or seals, so a seal never splits a batch. Flushing and compacting run in parallel
//! with that and with each other.

use crate::{Batch, Moment, Result, Value};
use std::sync::Arc;

/// What waits to be written to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Bytes inserted since the last seal.
    pub active_bytes: u64,
    /// Sealed parts that are not durable yet.
    pub sealed: usize,
    /// Overlapping runs of tables that a lookup must visit.
    pub runs: usize,
}

/// Figures of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes in memory that are not (all) durable.
    pub memory_bytes: u64,
    /// Bytes written since opening.
    pub written_bytes: u64,
}

/// Sorted tables.
pub trait Tables: Send + Sync {
    /// A sequence number above all earlier ones. One caller at a time.
    fn seq_next(&self) -> u64;

    /// [`Tables::seq_next`] will return nothing at or below `seq`.
    fn seq_passed(&self, seq: u64);

    /// Applies a batch and makes it visible as a whole. All batches with lower numbers were
    /// inserted before; higher numbers may be drawn already.
    fn insert(&self, seq: u64, batch: &Batch);

    /// The value of `key` as of the last insert.
    fn get(&self, key: &[u8]) -> Result<Option<Value>>;

    /// As [`crate::Kv::scan`].
    fn scan(&self, from: &[u8], to: &[u8], limit: usize, reverse: bool) -> Result<Vec<(Arc<[u8]>, Value)>>;

    /// As [`crate::Kv::moment`].
    fn moment(&self) -> Box<dyn Moment + '_>;

    /// Closes the active part: the next flush takes it. Nobody inserts meanwhile.
    fn seal(&self);

    /// As [`crate::Kv::damaged_file`].
    fn damaged_file(&self) -> Option<String> {
        None
    }

    /// Makes the sealed parts durable; `false` when there are none.
    ///
    /// # Errors
    /// Full: nothing changed, try again later. After Io nothing may be flushed any more.
    fn flush(&self) -> Result<bool>;

    /// One step of compaction; `false` when nothing is to be done, or another thread does it.
    /// Errors as of [`Tables::flush`].
    fn compact(&self) -> Result<bool>;

    /// Called after flush and compact, when everything that was appended is inserted, and nothing
    /// is inserted meanwhile.
    fn settle(&self) {}

    /// All batches up to this sequence number are durable here.
    fn seq_durable(&self) -> u64;

    /// The value of [`Tables::seq_durable`] at opening, if it was certain: nothing above was ever
    /// durable here. Tables that an older version wrote do not have it.
    fn seq_held(&self) -> Option<u64>;

    /// What waits to be written.
    fn pressure(&self) -> Pressure;

    /// Figures.
    fn stats(&self) -> TableStats;
}
