//! Metadata engines: an ordered map of byte strings with one atomic, durable [`Kv::commit`].
//!
//! The file system sees no engine, only [`Kv`]. [`lsm::LsmKv`] (a directory) is `lsm-tree` tables
//! below a journal of our own. [`slate::SlateKv`] (below a prefix of an object store) is SlateDB.
//! [`mem::MemKv`] keeps its tables in memory and checkpoints them to a [`leeward_env::disk::Disk`],
//! with the same journal: simulations crash it at every write. [`contract`] is the test suite that
//! all pass.
//!
//! The journal is our own because it carries small durable writes as **inline data**. Data that
//! fsync must make durable at once goes into the same append as the metadata that points to it (one
//! device flush). When its segment is in the pool later, the inline data is released.

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

/// Inline data: data of an unsealed segment that must survive with this commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineData {
    /// Segment number.
    pub segment: u64,
    /// Logical offset in the segment.
    pub offset: u32,
    /// The owner of the data, as in the segment's index: volume, inode, offset in the file.
    pub owner: (u32, u64, u64),
    /// The bytes.
    pub bytes: Arc<[u8]>,
}

/// One atomic change. Later entries for a key win.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Keys with their new values; `None` removes.
    pub writes: Vec<(Arc<[u8]>, Option<Value>)>,
    /// Data that the journal carries with this commit.
    pub inline_data: Vec<InlineData>,
}

/// Key-value pairs in order.
pub type Pairs = Vec<(Arc<[u8]>, Value)>;

/// The state at one moment. It stays readable while this lives. Meanwhile the only cost is the
/// space of records that were replaced since.
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

/// An ordered KV with one writer. Keys are below eight bytes of ff: an engine may keep records of
/// its own from there on.
pub trait Kv: Send + Sync {
    /// The value of `key` as of the last commit.
    fn get(&self, key: &[u8]) -> Result<Option<Value>>;

    /// Up to `limit` pairs with `from <= key < to` in order, as of one moment. Fewer than `limit`
    /// only at the end of the range. `reverse` starts at the end.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize, reverse: bool) -> Result<Vec<(Arc<[u8]>, Value)>>;

    /// Keeps the current state readable.
    fn moment(&self) -> Box<dyn Moment + '_>;

    /// Applies `batch` atomically; durable and visible to readers when it returns. One caller at a
    /// time; readers go on meanwhile. Errors are those of [`Kv::append`].
    fn commit(&self, batch: &Batch) -> Result<()> {
        let appended = self.append(batch)?;
        self.insert(appended, batch);
        Ok(())
    }

    /// The first half of a commit: makes `batch` durable. Readers may see it now or not yet. One
    /// caller at a time. On [`Error::Full`] it may be tried again, before any other batch: until
    /// the next append a crash may still show it, whole. After any other error the engine answers
    /// every later call with [`Error::Broken`].
    fn append(&self, batch: &Batch) -> Result<Appended>;

    /// The second half: readers see the batch. Called once for each batch, in the order of appends,
    /// one caller at a time. Others may be appended meanwhile.
    fn insert(&self, appended: Appended, batch: &Batch);

    /// Whether all appended batches should be inserted before more are appended: else memory, and
    /// what opening replays, go on growing.
    fn wants_room(&self) -> bool {
        false
    }

    /// Segments with inline data that was not released, in ascending order.
    fn inline_segments(&self) -> Vec<u64>;

    /// The inline data of these segments that was not released, in any order, some of it perhaps
    /// twice: recovery must put it into the pool. Called between opening and the first commit.
    /// Memory is in proportion to what is asked for.
    ///
    /// # Errors
    /// Corrupt, Io.
    fn inline_data(&self, of: &BTreeSet<u64>) -> Result<Vec<InlineData>>;

    /// Drops the inline data of this segment. The caller has committed all of it, and has committed
    /// that all data of the segment is durable in the pool, or not needed. Never call it before
    /// that commit is durable: after a crash the inline data is the only copy. Takes effect (on
    /// journal space) in the background; not calling it costs only space.
    fn release_inline(&self, segment: u64);

    /// One bounded step of background work (flush of the memtable, compaction, removal of old
    /// journal files); `true` when there was something to do. Called by maintenance threads, never
    /// by a user's request. With two of them flushes run in parallel with a long compaction, and
    /// commits hardly ever wait. After an error it may be called again, some time later.
    fn maintain(&self) -> Result<bool>;

    /// Ends commits, and moves what opening would have to replay to the tables, as far as there is
    /// space. An engine that is dropped without this loses nothing.
    ///
    /// # Errors
    /// As of [`Kv::maintain`]; all commits stay durable.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Nothing has been committed for a while: frees space and memory that serve only speed, by
    /// background work that [`Kv::maintain`] does then.
    fn idle(&self);

    /// Takes or frees the engine's space reserve. With `false` the reserve file is truncated, so
    /// that removal can go on when the disk is full. With `true` it is allocated again (an error
    /// means: not yet).
    fn reserve(&self, hold: bool) -> Result<()>;

    /// The number of records from which on a batch should be committed without further delay.
    fn batch_records(&self) -> usize {
        COMMIT_RECORDS_MAX
    }

    /// Why this engine can no longer be used: another process has opened the same directory since.
    /// `None` for ever where that is impossible.
    fn lost(&self) -> Option<String> {
        None
    }

    /// The damaged file, after an error that showed damage, where records are in files. It reads
    /// all files, so no user's request waits for it.
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
    /// Above this the journal is unusually long; 0: the engine has no journal of ours.
    pub journal_bytes_usual: u64,
    /// Bytes in memory tables.
    pub memtable_bytes: u64,
    /// Bytes written to disk since opening: journal, flush and compaction.
    pub written_bytes: u64,
    /// Overlapping runs of tables that a lookup must visit.
    pub runs: u64,
    /// Memory tables that are full and not on disk yet.
    pub sealed: u64,
    /// Time by which commits were delayed so that flush and compaction could keep up, since
    /// opening, nanoseconds.
    pub slowed_nanos: u64,
}

impl Stats {
    /// Adds those of another engine.
    pub fn add(&mut self, other: &Stats) {
        self.table_bytes += other.table_bytes;
        self.journal_bytes += other.journal_bytes;
        self.journal_bytes_usual += other.journal_bytes_usual;
        self.memtable_bytes += other.memtable_bytes;
        self.written_bytes += other.written_bytes;
        self.runs = self.runs.max(other.runs);
        self.sealed += other.sealed;
        self.slowed_nanos += other.slowed_nanos;
    }
}
