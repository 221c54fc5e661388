//! Metadata engines: an ordered map of byte strings with one atomic, durable [`Kv::commit`].
//!
//! The file system never sees an engine, only [`Kv`]. [`lsm::LsmKv`] (a directory) is `lsm-tree` tables below a journal
//! of our own; [`slate::SlateKv`] (below a prefix of an object store) is SlateDB; [`mem::MemKv`] keeps its tables in memory and checkpoints them to a [`leeward_env::disk::Disk`], with the same
//! journal: that is what simulations crash at every write. [`contract`] is the suite all pass.
//!
//! The journal is ours because a small durable write **rides** in it: data that fsync must make durable at once
//! goes into the same append as the metadata that points to it (one device flush), and later, when its segment is in the
//! pool, the ride is released.

pub mod contract;
mod engine;
mod error;
pub mod journal;
pub mod lsm;
pub mod mem;
pub mod slate;
mod tables;

pub use engine::{Engine, EngineOptions};
pub use error::{Error, Result};
pub use tables::{Pressure, TableStats, Tables};

use leeward_env::limits::COMMIT_RECORDS_MAX;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A value; cheap to clone.
pub type Value = Arc<[u8]>;

/// Data of an unsealed segment that must survive with this commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ride {
    /// Segment number.
    pub segment: u64,
    /// Logical offset in the segment.
    pub offset: u32,
    /// Where the data belongs, as the segment's index says it: volume, inode, offset in the file.
    pub owner: (u32, u64, u64),
    /// The bytes.
    pub bytes: Arc<[u8]>,
}

/// One atomic change. Later entries for a key win.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Keys with their new values; `None` removes.
    pub writes: Vec<(Arc<[u8]>, Option<Value>)>,
    /// Data that rides along.
    pub rides: Vec<Ride>,
}

/// Key-value pairs in order.
pub type Pairs = Vec<(Arc<[u8]>, Value)>;

/// What was committed at one moment. It stays readable while this lives, and holds back nothing but the space of what was
/// replaced since.
pub trait Moment {
    /// As [`Kv::scan`].
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Pairs>;
}

/// A batch that is durable and waits for [`Kv::insert`]: its number in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Appended(pub(crate) u64);

impl Appended {
    /// There is nothing to insert.
    pub(crate) const NOTHING: Appended = Appended(0);
}

/// An ordered KV with one writer. Keys are below eight bytes of ff: an engine may keep records of its own from there on.
pub trait Kv: Send + Sync {
    /// The value of `key` as of the last commit.
    fn get(&self, key: &[u8]) -> Result<Option<Value>>;

    /// Up to `limit` pairs with `from <= key < to` in order, as of one moment. Fewer than `limit` only at the end of
    /// the range. `reverse` starts at the end.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize, reverse: bool) -> Result<Vec<(Arc<[u8]>, Value)>>;

    /// Holds on to what is committed now.
    fn moment(&self) -> Box<dyn Moment + '_>;

    /// Applies `batch` atomically; durable and visible to readers when it returns. One caller at a time; readers go
    /// on meanwhile. Errors are those of [`Kv::append`].
    fn commit(&self, batch: &Batch) -> Result<()> {
        let appended = self.append(batch)?;
        self.insert(appended, batch);
        Ok(())
    }

    /// The first half of a commit: makes `batch` durable, which readers may see now or not yet. One caller at a time. On
    /// [`Error::Full`] nothing of the batch is durable and it may be tried again; after another error the engine answers
    /// every later call with [`Error::Broken`].
    fn append(&self, batch: &Batch) -> Result<Appended>;

    /// The second half: readers see the batch. Once for each, in the order in which they were appended, one caller at a time; others may be
    /// appended meanwhile.
    fn insert(&self, appended: Appended, batch: &Batch);

    /// Whether all that is appended had better be inserted before more is: else what is in memory, and what opening replays, grows on.
    fn wants_room(&self) -> bool {
        false
    }

    /// Segments with rides that were not released, in ascending order.
    fn ride_segments(&self) -> Vec<u64>;

    /// The rides of these segments that were not released, in any order, some perhaps twice: what recovery must put into
    /// the pool. Between opening and the first commit. Memory is in proportion to what is asked for.
    ///
    /// # Errors
    /// Corrupt, Io.
    fn rides(&self, of: &BTreeSet<u64>) -> Result<Vec<Ride>>;

    /// What was committed says that all data of this segment is durable in the pool, or not needed: its rides, all of which
    /// were committed, may be dropped. Never before that is durable: after a crash the rides are all there is. Takes effect
    /// (on journal space) in the background; forgetting it only costs space.
    fn release_ride(&self, segment: u64);

    /// One bounded step of background work (flush of the memtable, compaction, removal of old journal files);
    /// `true` when there was something to do. Called by maintenance threads, never by a user's request: with two of
    /// them flushes go on beside a long compaction, and commits hardly ever wait. After an error it may be called
    /// again, some time later.
    fn maintain(&self) -> Result<bool>;

    /// Nothing more is committed: what opening would have to replay goes where it belongs, as far as there is space. An
    /// engine that is dropped without this loses nothing.
    ///
    /// # Errors
    /// As of [`Kv::maintain`]; all that was committed stays durable.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Nothing has been committed for a while: gives back space and memory that only serve speed, by background work
    /// that [`Kv::maintain`] then does.
    fn idle(&self);

    /// Gives the engine its space reserve back or takes it: with `false` the reserve file is truncated so that
    /// removal can go on when the disk is full; with `true` it is allocated again (an error means: not yet).
    fn reserve(&self, hold: bool) -> Result<()>;

    /// From how many records on a batch is better committed than waited with.
    fn batch_records(&self) -> usize {
        COMMIT_RECORDS_MAX
    }

    /// Why this engine is of no use any more: another process has opened the same place since. Where that cannot be, never.
    fn lost(&self) -> Option<String> {
        None
    }

    /// After something was found damaged: which file that is, where records are in files. It reads all of them, so no user waits for it.
    fn damaged_file(&self) -> Option<String> {
        None
    }

    /// Bytes on disk and in memory, and queue lengths, for reports.
    fn stats(&self) -> Stats;
}

/// Figures of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes in tables on disk.
    pub table_bytes: u64,
    /// Bytes in journal files on disk.
    pub journal_bytes: u64,
    /// More of them are out of the ordinary; 0: there is no journal of ours.
    pub journal_bytes_usual: u64,
    /// Bytes in memory tables.
    pub memtable_bytes: u64,
    /// Bytes written to disk since opening: journal, flush and compaction.
    pub written_bytes: u64,
    /// Overlapping runs of tables that a lookup must visit.
    pub runs: u64,
    /// Memory tables that are full and not on disk yet.
    pub sealed: u64,
    /// Time for which commits were held up so that flush and compaction can follow, since opening, nanoseconds.
    pub slowed_nanos: u64,
}
