//! The engine on an object store: SlateDB, an LSM whose log, tables and manifests are objects, with
//! one fenced writer.
//!
//! * A commit is one `WriteBatch`, flushed at once: it costs one put. Inline data is pairs of the
//!   same batch, under keys of its own ([`INLINE`]); the commit after a release removes them.
//! * Opening fences the process that had the database open. The log is put with `If-None-Match`,
//!   and opening takes the name under which the other process would put its next commit. The
//!   commits of that process fail from then on, and its [`Kv::lost`] says so within a second even
//!   if it is idle.
//! * A commit waits for a store that is away for as long as that lasts, because the commit may have
//!   been done already. Reads give up after [`READ_WAIT`], opening after [`OPEN_WAIT`].
//! * Flush, compaction and the removal of old objects are SlateDB's own, on threads of the bucket's
//!   runtime. [`Kv::maintain`] makes it flush after opening, after some dozen commits, and when
//!   nothing more comes: opening reads one object for each commit since. Fence objects are never
//!   removed: they keep a process that slept for days from writing.
//!
//! Lock order: `writer`; `released`, `found` and `flushing` alone.

mod cache;

use crate::journal::record::{decode_inline, encode_inline};
use crate::{Appended, Batch, Error, InlineData, Kv, Moment, Pairs, Result, Stats, Value};
use cache::Cache;
use leeward_bucket::runtime;
use leeward_env::Env;
use leeward_env::limits::COMMIT_RECORDS_MAX;
use object_store::ObjectStore;
use parking_lot::Mutex;
use slatedb::config::{
    CloseOptions, CompactionWorkerOptions, CompactorOptions, FlushOptions, FlushType,
    GarbageCollectorDirectoryOptions, GarbageCollectorOptions, ScanOptions,
};
use slatedb::{
    CloseReason, CompactorBuilder, Db, DbIterator, DbSnapshot, ErrorKind, IterationOrder, Settings,
    WriteBatch,
};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// First byte of the keys that the file system gave.
const RECORD: u8 = b'k';
/// First byte of the keys of inline data: then a number that grows, big endian.
const INLINE: u8 = b'r';
/// Longest wait for a read.
const READ_WAIT: Duration = Duration::from_secs(45);
/// Longest wait for opening, which reads the last commits.
const OPEN_WAIT: Duration = Duration::from_secs(60);
/// Longest wait for a last flush at closing: everything is durable already.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// Bytes that a scan fetches at a time.
const SCAN_AHEAD_BYTES: usize = 64 << 10;
/// A store may be away this long before SlateDB gives up a manifest, and itself.
const AWAY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Settings of the engine.
#[derive(Clone, Debug)]
pub struct SlateOptions {
    /// Memory for blocks of tables that were read.
    pub cache_bytes: u64,
    /// A table in memory is put at this size,
    pub memtable_bytes: usize,
    /// or after this many commits: it limits what opening reads.
    pub commits_max: u64,
    /// How often old objects are looked for, and how old they must be: longer than any read takes.
    pub tidy: Duration,
}

impl Default for SlateOptions {
    fn default() -> SlateOptions {
        SlateOptions {
            cache_bytes: 64 << 20,
            memtable_bytes: 16 << 20,
            commits_max: 64,
            tidy: Duration::from_secs(300),
        }
    }
}

/// The engine.
pub struct SlateKv {
    db: Db,
    /// Name of the database in messages.
    name: String,
    writer: Mutex<Writer>,
    released: Mutex<Vec<u64>>,
    broken: OnceLock<String>,
    written_bytes: AtomicU64,
    /// Commits that opening would read, and their limit.
    unflushed: AtomicU64,
    commits_max: u64,
    flushing: Mutex<()>,
}

/// Which keys have inline data.
#[derive(Default)]
struct Writer {
    next_inline: u64,
    inline_data: BTreeMap<u64, Vec<u64>>,
}

impl SlateKv {
    /// Opens or makes the database below `path`, and takes it over from a process that has it open.
    /// `name` is for messages.
    ///
    /// # Errors
    /// Io, also where the store does not answer in time; Corrupt.
    pub fn open(
        env: &Env,
        objects: Arc<dyn ObjectStore>,
        path: &str,
        name: &str,
        options: &SlateOptions,
    ) -> Result<SlateKv> {
        let begun = env.now();
        let build = runtime().enter(|| {
            let compactor = CompactorBuilder::new(path.to_string(), objects.clone())
                .with_options(compactor_options())
                .with_runtime(runtime().tables().clone());
            Db::builder(path.to_string(), objects)
                .with_settings(settings(options))
                .with_db_cache(Arc::new(Cache::new(options.cache_bytes)), 0)
                .with_compactor_builder(compactor)
                .with_gc_runtime(runtime().tables().clone())
                .build()
        });
        let db = runtime()
            .wait(async { tokio::time::timeout(OPEN_WAIT, build).await })
            .map_err(|_| late(&format!("{name}: not opened within {} s", OPEN_WAIT.as_secs())))?
            .map_err(|e| error(name, &e))?;
        let kv = SlateKv {
            db,
            name: name.to_string(),
            writer: Mutex::default(),
            released: Mutex::default(),
            broken: OnceLock::new(),
            written_bytes: AtomicU64::new(0),
            // those that were read just now, however many: else a process that is killed soon, and
            // the next one, leave more and more of them
            unflushed: AtomicU64::new(options.commits_max),
            commits_max: options.commits_max,
            flushing: Mutex::default(),
        };
        kv.find_inline_data()?;
        tracing::info!("metadata of {name} opened in {} ms", (env.now() - begun) / 1_000_000);
        Ok(kv)
    }

    fn find_inline_data(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        read(&self.name, async {
            let options = scan_options(IterationOrder::Ascending);
            let mut found = self.db.scan_with_options(vec![INLINE]..vec![INLINE + 1], &options).await?;
            while let Some(pair) = found.next().await? {
                let number = <[u8; 8]>::try_from(&pair.key[1..]).map(u64::from_be_bytes);
                let (Ok(number), Some(inline)) = (number, decode_inline(&pair.value)) else {
                    return Ok(Err(self.bad_inline()));
                };
                writer.next_inline = number + 1;
                writer.inline_data.entry(inline.segment).or_default().push(number);
            }
            Ok(Ok(()))
        })?
    }

    fn bad_inline(&self) -> Error {
        Error::Corrupt(format!("{}: a ride", self.name))
    }

    fn write(&self, writer: &mut Writer, batch: &Batch) -> Result<()> {
        let mut all = WriteBatch::new();
        for (key, value) in &batch.writes {
            match value {
                Some(value) => all.put(record_key(key), &value[..]),
                None => all.delete(record_key(key)),
            }
        }
        for segment in std::mem::take(&mut *self.released.lock()) {
            for number in writer.inline_data.remove(&segment).unwrap_or_default() {
                all.delete(inline_key(number));
            }
        }
        for inline in &batch.inline_data {
            all.put(inline_key(writer.next_inline), encode_inline(inline));
            writer.inline_data.entry(inline.segment).or_default().push(writer.next_inline);
            writer.next_inline += 1;
        }
        runtime()
            .wait(async {
                let written = self.db.write(all).await?;
                self.db.flush_with_options(FlushOptions { flush_type: FlushType::Wal }).await?;
                written.await_durable().await
            })
            .map_err(|e| error(&self.name, &e))
    }
}

impl Drop for SlateKv {
    fn drop(&mut self) {
        let close = self.db.close_with_options(CloseOptions::default());
        let closed = runtime().wait(async { tokio::time::timeout(CLOSE_WAIT, close).await });
        tracing::debug!(?closed, "metadata of {} closed", self.name);
    }
}

impl Kv for SlateKv {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let value = read(&self.name, self.db.get(record_key(key)))?;
        Ok(value.map(|v| Value::from(&v[..])))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize, reverse: bool) -> Result<Pairs> {
        if from >= to || limit == 0 {
            return Ok(Pairs::new());
        }
        let order = if reverse { IterationOrder::Descending } else { IterationOrder::Ascending };
        read(&self.name, async {
            let mut found = self.db.scan_with_options(records(from, to), &scan_options(order)).await?;
            take(&mut found, limit).await
        })
    }

    fn moment(&self) -> Box<dyn Moment + '_> {
        Box::new(SlateMoment { name: &self.name, snapshot: self.db.snapshot() })
    }

    /// The database makes a write durable and visible at once.
    fn append(&self, batch: &Batch) -> Result<Appended> {
        if let Some(why) = self.broken.get() {
            return Err(Error::Broken(why.clone()));
        }
        for (key, _) in &batch.writes {
            assert!(key.len() < usize::from(u16::MAX), "a key of {} bytes", key.len());
        }
        if batch.writes.is_empty() && batch.inline_data.is_empty() {
            return Ok(Appended::NOTHING);
        }
        match self.write(&mut self.writer.lock(), batch) {
            Ok(()) => {
                self.written_bytes.fetch_add(bytes_of(batch), Ordering::Relaxed);
                self.unflushed.fetch_add(1, Ordering::Relaxed);
                Ok(Appended::NOTHING)
            }
            Err(e) => {
                let why = match &e {
                    Error::Broken(why) => why.clone(),
                    e => self.lost().unwrap_or_else(|| e.to_string()),
                };
                let _ = self.broken.set(why); // the first one stays
                Err(e)
            }
        }
    }

    fn insert(&self, _: Appended, _: &Batch) {}

    fn inline_segments(&self) -> Vec<u64> {
        self.writer.lock().inline_data.keys().copied().collect()
    }

    fn inline_data(&self, of: &BTreeSet<u64>) -> Result<Vec<InlineData>> {
        let numbers: BTreeSet<u64> = {
            let writer = self.writer.lock();
            of.iter().filter_map(|segment| writer.inline_data.get(segment)).flatten().copied().collect()
        };
        let inline = |number| {
            let value = read(&self.name, self.db.get(inline_key(number)))?;
            value.and_then(|value| decode_inline(&value)).ok_or_else(|| self.bad_inline())
        };
        numbers.into_iter().map(inline).collect()
    }

    fn release_inline(&self, segment: u64) {
        self.released.lock().push(segment);
    }

    fn maintain(&self) -> Result<bool> {
        if let Some(why) = self.broken.get() {
            return Err(Error::Broken(why.clone()));
        }
        let Some(_one) = self.flushing.try_lock() else { return Ok(false) };
        let commits = self.unflushed.load(Ordering::Relaxed);
        if commits < self.commits_max {
            return Ok(false);
        }
        read(&self.name, self.db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }))?;
        let _ = self
            .unflushed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(now.saturating_sub(commits)));
        Ok(true)
    }

    fn idle(&self) {
        if self.unflushed.load(Ordering::Relaxed) > 0 {
            self.unflushed.fetch_add(self.commits_max, Ordering::Relaxed);
        }
    }

    fn reserve(&self, _hold: bool) -> Result<()> {
        Ok(())
    }

    /// Each commit is an object.
    fn batch_records(&self) -> usize {
        8 * COMMIT_RECORDS_MAX
    }

    fn lost(&self) -> Option<String> {
        let taken = taken_over(&self.name);
        match self.db.status().close_reason {
            Some(CloseReason::Fenced) => Some(taken),
            // a commit may have learned it before the status says so
            Some(CloseReason::Clean) | None => self.broken.get().filter(|why| **why == taken).cloned(),
            Some(_) => Some(format!("{}: the metadata engine failed: see the log", self.name)),
        }
    }

    fn stats(&self) -> Stats {
        let manifest = self.db.manifest();
        Stats {
            table_bytes: manifest.all_sst_views().map(|table| table.estimate_size()).sum(),
            runs: (manifest.l0().len() + manifest.compacted().len()) as u64,
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            ..Stats::default()
        }
    }
}

/// A snapshot of the database.
struct SlateMoment<'a> {
    name: &'a str,
    snapshot: std::result::Result<Arc<DbSnapshot>, slatedb::Error>,
}

impl Moment for SlateMoment<'_> {
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Pairs> {
        let snapshot = self.snapshot.as_ref().map_err(|e| error(self.name, e))?;
        if from >= to {
            return Ok(Pairs::new());
        }
        read(self.name, async {
            let options = scan_options(IterationOrder::Ascending);
            let mut found = snapshot.scan_with_options(records(from, to), &options).await?;
            take(&mut found, limit).await
        })
    }
}

fn record_key(key: &[u8]) -> Vec<u8> {
    [&[RECORD], key].concat()
}

fn inline_key(number: u64) -> Vec<u8> {
    [&[INLINE][..], &number.to_be_bytes()].concat()
}

fn records(from: &[u8], to: &[u8]) -> Range<Vec<u8>> {
    record_key(from)..record_key(to)
}

/// Up to `limit` pairs, without the first byte of their keys.
async fn take(found: &mut DbIterator, limit: usize) -> std::result::Result<Pairs, slatedb::Error> {
    let mut pairs = Pairs::new();
    while pairs.len() < limit
        && let Some(pair) = found.next().await?
    {
        pairs.push((Arc::from(&pair.key[1..]), Arc::from(&pair.value[..])));
    }
    Ok(pairs)
}

fn read<T>(name: &str, what: impl Future<Output = std::result::Result<T, slatedb::Error>>) -> Result<T> {
    match runtime().wait(async { tokio::time::timeout(READ_WAIT, what).await }) {
        Ok(done) => done.map_err(|e| error(name, &e)),
        Err(_) => Err(late(&format!("{name}: the store did not answer within {} s", READ_WAIT.as_secs()))),
    }
}

fn late(what: &str) -> Error {
    Error::Io(io::Error::new(io::ErrorKind::TimedOut, format!("{what}: see the log for why")))
}

fn taken_over(name: &str) -> String {
    format!("{name} was taken over by another process, which serves it now")
}

fn error(name: &str, e: &slatedb::Error) -> Error {
    match e.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => Error::Broken(taken_over(name)),
        ErrorKind::Closed(_) => Error::Broken(format!("{name}: closed: {e}")),
        ErrorKind::Data => Error::Corrupt(format!("{name}: {e}")),
        _ => Error::Io(io::Error::other(format!("{name}: {e}"))),
    }
}

fn bytes_of(batch: &Batch) -> u64 {
    let writes: usize = batch.writes.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, |v| v.len())).sum();
    let inline_data: usize = batch.inline_data.iter().map(|r| r.bytes.len()).sum();
    (writes + inline_data) as u64
}

fn scan_options(order: IterationOrder) -> ScanOptions {
    ScanOptions::default().with_order(order).with_cache_blocks(true).with_read_ahead_bytes(SCAN_AHEAD_BYTES)
}

fn settings(options: &SlateOptions) -> Settings {
    let old = GarbageCollectorDirectoryOptions {
        interval: Some(options.tidy),
        min_age: options.tidy,
        ..GarbageCollectorDirectoryOptions::default()
    };
    Settings {
        // commits are flushed as they come
        flush_interval: None,
        manifest_update_timeout: AWAY_MAX,
        l0_sst_size_bytes: options.memtable_bytes,
        max_unflushed_bytes: 16 * options.memtable_bytes,
        garbage_collector_options: Some(GarbageCollectorOptions {
            manifest_options: Some(old),
            wal_options: Some(old),
            wal_fence_options: None,
            compacted_options: Some(old),
            compactions_options: Some(old),
            detach_options: None,
            ..GarbageCollectorOptions::default()
        }),
        ..Settings::default()
    }
}

fn compactor_options() -> CompactorOptions {
    let worker = CompactionWorkerOptions {
        max_concurrent_compactions: 1,
        max_subcompactions: 1,
        max_sst_size: 64 << 20,
        ..CompactionWorkerOptions::default()
    };
    CompactorOptions {
        max_concurrent_compactions: 1,
        manifest_update_timeout: AWAY_MAX,
        worker: Some(worker),
        ..CompactorOptions::default()
    }
}
