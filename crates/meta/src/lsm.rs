//! The engine on a directory: `lsm-tree` tables below the journal.
//!
//! * A commit is visible when `visible` passes its sequence number, which is after its last record
//!   was inserted. The tree draws numbers for its own versions from the same counter and would make
//!   them visible at once, in the middle of a batch. So it gets a second counter for that, which
//!   nobody reads.
//! * Old versions of records and manifests are collected below [`readers::Readers::safe`] only.
//! * The tree may panic on damaged blocks, and its locks may be poisoned by that. Panics of every
//!   call into it are caught and become [`Error::Corrupt`].
//!
//! The tree reads and writes its files by itself, through the page cache, not through `Disk`. Lock
//! order: the engine's writer lock, the tree's own locks. The flush lock is never held while taking
//! the writer lock.

mod files;
mod presync;
mod readers;

use crate::engine::{Engine, EngineOptions, open_in_reserve};
use crate::tables::{Pressure, TableStats, Tables};
use crate::{Batch, Error, Moment, Pairs, Result, Value};
use leeward_env::disk::Disk;
use leeward_env::{Env, panic_text};
use lsm_tree::compaction::Leveled;
use lsm_tree::config::{BlockSizePolicy, PinningPolicy};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, Config, Guard, InternalValue, SequenceNumberCounter, Tree, ValueType,
};
use parking_lot::{Mutex, RwLock};
use presync::Presync;
use readers::{Readers, Reading};
use std::io;
use std::ops::{Bound, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of a table: small, because the last table of a compaction is synced while readers wait.
const TABLE_BYTES: u64 = 8 << 20;
/// A record of our own in each part that is flushed: its sequence number is the highest there, and
/// it is never a tombstone. So the highest number in the tables does not fall when tombstones are
/// dropped. Above all keys of [`crate::Kv`]'s users.
const LAST: [u8; 8] = [0xff; 8];
/// Runs in the first level that start a compaction.
const RUNS_COMPACTED: u8 = 4;

/// The engine on a directory.
pub type LsmKv = Engine<LsmTables>;

/// Settings of the engine on a directory.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for blocks of tables.
    pub cache_bytes: u64,
    /// Journal and memtables.
    pub engine: EngineOptions,
}

impl Default for Options {
    fn default() -> Self {
        Options { cache_bytes: 48 << 20, engine: EngineOptions::default() }
    }
}

impl LsmKv {
    /// Opens the tables in `dir` (made when missing) with their journal on `disk`.
    ///
    /// # Errors
    /// Corrupt, Io, Full.
    pub fn open(env: Env, disk: Arc<dyn Disk>, dir: &Path, options: Options) -> Result<LsmKv> {
        open_in_reserve(&*disk, &options.engine.journal.dir, || {
            let tables = LsmTables::open(disk.clone(), dir, options.cache_bytes)?;
            Engine::start(env.clone(), disk.clone(), options.engine.clone(), tables)
        })
    }
}

/// Tables of `lsm-tree`.
pub struct LsmTables {
    tree: Tree,
    dir: PathBuf,
    /// Next sequence number, of commits and of the tree's versions.
    seq: SequenceNumberCounter,
    /// Readers see records below this.
    visible: AtomicU64,
    /// Number of the last batch that was inserted. Numbers are also drawn for other purposes, and
    /// for batches before they are inserted.
    inserted: AtomicU64,
    readers: Readers,
    /// Highest sequence number known to be in tables. (The number that tables of an older version
    /// report falls when they lose tombstones.)
    durable: AtomicU64,
    /// See [`Tables::seq_held`].
    held: Option<u64>,
    written_bytes: AtomicU64,
    /// Shared by flushes and compactions, so that leftovers are removed only while none runs.
    running: RwLock<()>,
    compacting: Mutex<()>,
    /// Ids of tables that a failed flush or compaction may have left.
    leftovers: Mutex<Vec<Range<u64>>>,
    /// `dir` may be a path through the directory that this holds open. The tree uses the path until
    /// it is dropped.
    _disk: Arc<dyn Disk>,
}

impl LsmTables {
    fn open(disk: Arc<dyn Disk>, dir: &Path, cache_bytes: u64) -> Result<LsmTables> {
        files::settle(dir)?;
        files::check_manifest(dir)?;
        let seq = SequenceNumberCounter::default();
        let config = config(dir, cache_bytes, seq.clone());
        let tree = match guarded(|| config.open()) {
            Ok(AnyTree::Standard(tree)) => tree,
            Ok(AnyTree::Blob(_)) => return Err(Error::Corrupt("tables of another kind".into())),
            Err(e) => return Err(blamed(dir, e)),
        };
        for table in tree.current_version().iter_tables() {
            files::check_name(&table.path, table.id())?;
        }
        let highest = tree.get_highest_persisted_seqno();
        let last = || guarded(|| tree.get(LAST, u64::MAX)).map_err(|e| blamed(dir, e));
        let is_certain = highest.is_none() || last()?.is_some();
        let held = is_certain.then(|| highest.unwrap_or(0));
        let durable = AtomicU64::new(highest.unwrap_or(0));
        Ok(LsmTables {
            tree,
            dir: dir.to_path_buf(),
            seq,
            visible: AtomicU64::new(1),
            inserted: AtomicU64::new(highest.unwrap_or(0)),
            readers: Readers::default(),
            durable,
            held,
            written_bytes: AtomicU64::new(0),
            running: RwLock::new(()),
            compacting: Mutex::new(()),
            leftovers: Mutex::default(),
            _disk: disk,
        })
    }

    /// The number of overlapping runs, tables and levels, for reports.
    pub fn shape(&self) -> Vec<usize> {
        (0..7).map(|level| self.tree.level_table_count(level).unwrap_or(0)).collect()
    }

    fn safe(&self) -> u64 {
        self.readers.safe(self.visible.load(Ordering::SeqCst))
    }

    /// Runs a flush or compaction; `true` when it changed the tree.
    fn change(&self, f: impl FnOnce(u64) -> lsm_tree::Result<()>) -> Result<bool> {
        self.remove_leftovers();
        let _running = self.running.read();
        let (version, first) = (self.tree.current_version().id(), self.tree.next_table_id());
        let result = guarded(|| f(self.safe()));
        if matches!(result, Err(Error::Full)) {
            self.leftovers.lock().push(first..self.tree.next_table_id());
        }
        result?;
        let now = self.tree.current_version();
        let written = now.iter_tables().filter(|t| t.id() >= first).map(|t| t.metadata.file_size).sum();
        self.written_bytes.fetch_add(written, Ordering::Relaxed);
        Ok(now.id() != version)
    }

    /// Removes the files of unfinished tables when no flush or compaction runs.
    fn remove_leftovers(&self) {
        let Some(_alone) = self.running.try_write() else { return };
        let mut leftovers = self.leftovers.lock();
        if leftovers.is_empty() {
            return;
        }
        let version = self.tree.current_version();
        let named = |id: &u64| version.iter_tables().any(|t| t.id() == *id);
        files::remove_tables(&self.dir, leftovers.drain(..).flatten().filter(|id| !named(id)));
    }

    fn scan_at(
        &self,
        seq: u64,
        from: &[u8],
        to: &[u8],
        limit: usize,
        reverse: bool,
    ) -> lsm_tree::Result<Pairs> {
        let range = (Bound::Included(from), Bound::Excluded(to.min(&LAST[..])));
        let items = self.tree.range::<&[u8], _>(range, seq, None);
        let pair = |item: lsm_tree::IterGuardImpl| {
            item.into_inner().map(|(k, v)| (Arc::from(&*k), Value::from(&*v)))
        };
        if reverse {
            items.rev().take(limit).map(pair).collect()
        } else {
            items.take(limit).map(pair).collect()
        }
    }

    /// Runs `f` with a sequence number whose records and versions stay meanwhile.
    fn read<R>(&self, f: impl FnOnce(u64) -> lsm_tree::Result<R>) -> Result<R> {
        let _reading = self.readers.enter();
        let seq = self.visible.load(Ordering::SeqCst);
        guarded(|| f(seq))
    }
}

/// The error of opening; for damage, with the name of the file.
fn blamed(dir: &Path, e: Error) -> Error {
    match e {
        Error::Corrupt(_) => files::damaged_table(dir).map_or(e, Error::Corrupt),
        other => other,
    }
}

/// A sequence number whose records and versions stay.
struct LsmMoment<'a> {
    tables: &'a LsmTables,
    seq: u64,
    _reading: Reading<'a>,
}

impl Moment for LsmMoment<'_> {
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Pairs> {
        if from >= to || limit == 0 {
            return Ok(Pairs::new());
        }
        guarded(|| self.tables.scan_at(self.seq, from, to, limit, false))
    }
}

fn config(dir: &Path, cache_bytes: u64, seq: SequenceNumberCounter) -> Config {
    // index and filters of the large levels are partitioned and live in the cache, those of the
    // small ones are pinned
    Config::new(dir, seq, SequenceNumberCounter::default())
        .use_cache(Arc::new(Cache::with_capacity_bytes(cache_bytes)))
        .data_block_size_policy(BlockSizePolicy::all(4096))
        .index_block_partitioning_policy(PinningPolicy::new([false, false, true]))
        .filter_block_partitioning_policy(PinningPolicy::new([false, false, true]))
        .with_compaction_filter_factory(Some(Arc::new(Presync::new(dir))))
}

impl Tables for LsmTables {
    fn seq_next(&self) -> u64 {
        self.seq.next()
    }

    fn seq_passed(&self, seq: u64) {
        self.seq.fetch_max(seq + 1);
        self.visible.fetch_max(seq + 1, Ordering::SeqCst);
    }

    fn insert(&self, seq: u64, batch: &Batch) {
        let memtable = self.tree.active_memtable();
        for (key, value) in &batch.writes {
            let _ = match value {
                Some(value) => {
                    let item = InternalValue::from_components(&**key, &**value, seq, ValueType::Value);
                    memtable.insert(item)
                }
                None => memtable.insert(InternalValue::new_tombstone(&**key, seq)),
            };
        }
        self.inserted.fetch_max(seq, Ordering::SeqCst);
        self.visible.fetch_max(seq + 1, Ordering::SeqCst);
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let value = self.read(|seq| self.tree.get(key, seq))?;
        Ok(value.map(|v| Value::from(&*v)))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize, reverse: bool) -> Result<Pairs> {
        if *from >= LAST[..] {
            return Ok(Pairs::new());
        }
        self.read(|seq| self.scan_at(seq, from, to, limit, reverse))
    }

    fn moment(&self) -> Box<dyn Moment + '_> {
        let reading = self.readers.enter();
        Box::new(LsmMoment { tables: self, seq: self.visible.load(Ordering::SeqCst), _reading: reading })
    }

    fn seal(&self) {
        let memtable = self.tree.active_memtable();
        if memtable.size() > 0 {
            // never that of a batch which is not in the part: what is durable is not replayed
            let last = self.inserted.load(Ordering::SeqCst);
            let _ = memtable.insert(InternalValue::from_components(LAST, [], last, ValueType::Value));
        }
        self.tree.rotate_memtable();
    }

    fn flush(&self) -> Result<bool> {
        let changed = self.change(|safe| {
            let lock = self.tree.get_flush_lock();
            self.tree.flush(&lock, safe).map(|_| ())
        })?;
        let durable = self.tree.get_highest_persisted_seqno().unwrap_or(0);
        self.durable.fetch_max(durable, Ordering::AcqRel);
        Ok(changed)
    }

    fn compact(&self) -> Result<bool> {
        let Some(_one) = self.compacting.try_lock() else { return Ok(false) };
        let strategy =
            Leveled::default().with_table_target_size(TABLE_BYTES).with_l0_threshold(RUNS_COMPACTED);
        self.change(|safe| self.tree.compact(Arc::new(strategy), safe))
    }

    fn settle(&self) {
        self.visible.fetch_max(self.seq.get(), Ordering::SeqCst);
    }

    fn seq_durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    fn seq_held(&self) -> Option<u64> {
        self.held
    }

    fn damaged_file(&self) -> Option<String> {
        let _no_change = self.compacting.lock();
        files::damaged_table(&self.dir)
    }

    fn pressure(&self) -> Pressure {
        Pressure {
            active_bytes: self.tree.active_memtable().size(),
            sealed: self.tree.sealed_memtable_count(),
            runs: self.tree.l0_run_count(),
        }
    }

    fn stats(&self) -> TableStats {
        TableStats {
            disk_bytes: self.tree.disk_space(),
            memory_bytes: self.tree.version_memtable_size_sum(),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Calls the tree. Its errors become ours, and so do its panics, which only damage can cause.
fn guarded<R>(f: impl FnOnce() -> lsm_tree::Result<R>) -> Result<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(r)) => Ok(r),
        Ok(Err(lsm_tree::Error::Io(e))) => Err(from_io(e)),
        Ok(Err(e)) => Err(Error::Corrupt(format!("tables: {e}"))),
        Err(panic) => Err(Error::Corrupt(format!("tables: {}", panic_text(&*panic)))),
    }
}

/// A file that ends too early was damaged, and so was one with impossible content.
fn from_io(e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            Error::Corrupt(format!("tables: {e}"))
        }
        _ => e.into(),
    }
}
