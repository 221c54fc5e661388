//! The data log itself: appends within a budget of memory, seals, puts on its own threads (or by
//! [`DataLog::step`]), reads.
//!
//! A put that fails is repeated for ever, with growing pauses. The data stays in memory and
//! readable meanwhile. Callers that wait for the put get each failure, except passing ones: they
//! wait for a store that is away or busy. The log does not know what the data is for; the
//! [`Catalog`] does.

use crate::buffers::Buffers;
use crate::cache::CacheFigures;
use crate::disk_cache::DiskCache;
use crate::format::LOGICAL_BYTES_MAX;
use crate::lane::{Lane, Lanes, Writer};
use crate::pack;
use crate::reader::{Fetched, Layout, Piece, Reader};
use crate::segment::{Laid, Segment};
use crate::table::{Backoff, Next, Queued, Table};
use crate::{Addr, Chunk, Error, Object, Owner, PoolId, Result};
use leeward_env::limits::WRITE_BYTES_MAX;
use leeward_env::waits::{self, Cause};
use leeward_env::{Class, Ctx, Env, Flow, Wait};
use leeward_pool::{AlignedBuf, Store};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a read follows cleaning to a newer generation before it gives up.
const GENERATIONS_TRIED_MAX: usize = 8;
/// Generations that one put may use, beginning with the given one: where a store keeps another
/// object of a name, the next generation is tried.
pub const GENERATIONS_PER_PUT: u32 = 8;

/// Failed puts, over some ten seconds, before another pool is considered.
const ATTEMPTS_MIN: u32 = 12;

/// The spare buffers are freed after this time without a new segment.
const IDLE: Duration = Duration::from_secs(30);

/// Whether data is compressed when sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// With lz4, where at least an eighth is saved.
    Lz4,
    /// Never.
    None,
}

/// Limits and choices of a data log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Logical bytes of a full segment.
    pub segment_bytes: usize,
    /// Whether data is compressed when sealed.
    pub compression: Compression,
    /// Memory for data that is not durable yet, over all flows, bytes.
    pub dirty_bytes: usize,
    /// Memory for data that was read, bytes.
    pub cache_bytes: usize,
    /// Threads that put segments to pool 0. With 0, segments are put only when [`DataLog::step`] is
    /// called, or by a call that has to wait for one.
    pub put_threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: leeward_env::limits::SEGMENT_BYTES_MAX,
            compression: Compression::Lz4,
            dirty_bytes: leeward_env::limits::DIRTY_BYTES_MAX,
            cache_bytes: 64 << 20,
            put_threads: 2,
        }
    }
}

/// A sealed segment that is durable in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The object that holds it.
    pub object: Object,
    /// Length of the object in the store; 0: all of its data had died, so no object exists.
    pub object_bytes: u64,
    /// Uncompressed bytes of the chunks it holds.
    pub data_bytes: u64,
}

/// The data log's view of its owner (implemented by the volume layer). Called without data-log
/// locks held, from any thread.
pub trait Catalog: Send + Sync {
    /// A new segment number for data of this volume that is to go to this pool. The number was
    /// never used before and will never be used by another process, even if this one crashes.
    ///
    /// # Errors
    /// No number is available; the append that needs it fails.
    fn allocate_segment(&self, volume: u32, pool: PoolId) -> Result<u64>;
    /// The object that holds a durable segment now.
    fn object(&self, segment: u64) -> Option<Object>;
    /// Nothing was or will be put under this number.
    fn unused(&self, segment: u64);
    /// Whether a segment that its pool has not taken for seconds is to be put to pool 0.
    fn goes_elsewhere(&self, segment: u64, object_bytes: u64) -> bool;
    /// A put is durable. After this returns, the memory of the segment is dropped and reads go to
    /// the store.
    fn sealed(&self, info: SegmentInfo);
    /// A thread of the data log panicked: data in memory can no longer be relied on. Puts are tried
    /// again all the same, and callers that wait for one get the error.
    fn panicked(&self, what: &str) {
        tracing::error!("{what}");
    }
}

/// Why a put failed; kept for every caller that waits.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Full,
    /// The store is away or busy: callers go on waiting.
    Passing(String),
    Io {
        os: Option<i32>,
        kind: std::io::ErrorKind,
        text: String,
    },
}

impl From<leeward_pool::Error> for Failure {
    fn from(e: leeward_pool::Error) -> Failure {
        match e {
            leeward_pool::Error::Full => Failure::Full,
            e if e.is_passing() => Failure::Passing(e.to_string()),
            leeward_pool::Error::Io(e) => {
                Failure::Io { os: e.raw_os_error(), kind: e.kind(), text: e.to_string() }
            }
            e => Failure::Io { os: None, kind: std::io::ErrorKind::Other, text: e.to_string() },
        }
    }
}

impl From<&Failure> for Error {
    fn from(f: &Failure) -> Error {
        Error::Store(match f {
            Failure::Full => leeward_pool::Error::Full,
            Failure::Passing(text) => leeward_pool::Error::Away(text.clone()),
            Failure::Io { os: Some(code), .. } => std::io::Error::from_raw_os_error(*code).into(),
            Failure::Io { kind, text, .. } => std::io::Error::new(*kind, text.clone()).into(),
        })
    }
}

/// The data log of a cell.
pub struct DataLog {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Core {
    env: Env,
    lanes: Arc<Lanes>,
    options: Options,
    buffers: Buffers,
    reader: Reader,
    catalog: OnceLock<Weak<dyn Catalog>>,
    table: Mutex<Table>,
    /// A put succeeded or failed: callers that wait check.
    done: Condvar,
    /// Whether put threads run; else a caller that must wait does the puts.
    threaded: AtomicBool,
    stopping: AtomicBool,
    /// Dropped without being closed.
    abandoned: AtomicBool,
    written_bytes: AtomicU64,
    damaged_reads: AtomicU64,
    /// When the newest segment was opened.
    newest: AtomicU64,
    /// When a user last read from the store; at first the time when the log was made.
    read_at: AtomicU64,
}

impl DataLog {
    /// A data log over a store, that of pool 0. Nothing may be appended or read before
    /// [`DataLog::attach`].
    pub fn new(env: Env, store: Arc<dyn Store>, options: Options) -> Arc<DataLog> {
        let longest = LOGICAL_BYTES_MAX as usize;
        assert!((1..=longest).contains(&options.segment_bytes), "segment_bytes out of range");
        let now = env.now();
        let lanes = Arc::new(Lanes::default());
        lanes.set(0, Some(store));
        let core = Core {
            env,
            buffers: Buffers::new(options.segment_bytes),
            reader: Reader::new(lanes.clone(), options.cache_bytes),
            lanes,
            options,
            catalog: OnceLock::new(),
            table: Mutex::new(Table::default()),
            done: Condvar::new(),
            threaded: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            written_bytes: AtomicU64::new(0),
            damaged_reads: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            read_at: AtomicU64::new(now),
        };
        Arc::new(DataLog { core: Arc::new(core), threads: Mutex::new(Vec::new()) })
    }

    /// Sets the catalog and starts the put threads. Called once.
    pub fn attach(self: &Arc<Self>, catalog: Weak<dyn Catalog>) {
        assert!(self.core.catalog.set(catalog).is_ok(), "attached twice");
        self.core.threaded.store(self.core.options.put_threads > 0, Ordering::Release);
        self.core
            .lanes
            .all()
            .into_iter()
            .for_each(|lane| self.start_puts(&lane, self.core.options.put_threads));
        if self.core.is_threaded() {
            let (core, asked) = (self.core.clone(), self.core.reader.start_ahead());
            // data that cannot be read ahead is read again by the caller that needs it
            let fetch = move || {
                asked
                    .iter()
                    .for_each(|what| drop(core.caught("lee-ahead", || core.reader.fetch_ahead(&what))));
            };
            self.threads.lock().push(self.core.env.spawn("lee-ahead", fetch));
        }
    }

    fn start_puts(&self, lane: &Arc<Lane>, threads: usize) {
        for n in 0..threads {
            let (core, lane) = (self.core.clone(), lane.clone());
            let name = format!("lee-put-{}-{n}", lane.pool);
            self.threads.lock().push(self.core.env.spawn(&name, move || core.put_loop(&lane)));
        }
    }

    /// Adds a pool, or gives it another store. `None`: the pool is away; reads there fail, puts
    /// wait in memory. `put_threads`: for a new pool; none where pool 0 has none.
    pub fn set_pool(&self, pool: PoolId, store: Option<Arc<dyn Store>>, put_threads: usize) {
        if let Some(lane) = self.core.lanes.set(pool, store)
            && self.core.is_threaded()
        {
            self.start_puts(&lane, put_threads);
        }
    }

    /// Removes a pool that has no data and gets none. Returns false, and does nothing, when
    /// something in memory goes there.
    pub fn remove_pool(&self, pool: PoolId) -> bool {
        let table = self.core.table.lock(); // so that no thread is between its look and its wait
        let unused = table.has_none_of(pool);
        if unused {
            self.core.lanes.remove(pool);
        }
        unused
    }

    /// Whether nothing in memory goes to this pool.
    pub fn has_none_of(&self, pool: PoolId) -> bool {
        self.core.table.lock().has_none_of(pool)
    }

    /// Appends at most [`WRITE_BYTES_MAX`] bytes, in one piece, to the open segment that the
    /// context's flow has for this volume and pool. The segment cannot become durable before
    /// [`DataLog::unhold`]. That is to be called before this thread appends again: an append may
    /// wait until the flow's earlier segments are durable.
    ///
    /// # Errors
    /// When the flow is over its share of dirty memory for this pool: `WouldBlock` if the context
    /// forbids to wait. Else the call waits, and fails with the store's error if a put of the flow
    /// to this pool fails meanwhile.
    pub fn append(&self, ctx: &Ctx, pool: PoolId, owner: Owner, bytes: &[u8]) -> Result<Addr> {
        let core = &*self.core;
        let longest = WRITE_BYTES_MAX.min(core.options.segment_bytes);
        assert!(!bytes.is_empty() && bytes.len() <= longest, "an append of {} bytes", bytes.len());
        let lane = core.lanes.get(pool)?;
        core.admit(ctx, &lane, bytes.len() as u64)?;
        loop {
            let segment = core.open_segment(ctx.flow, owner.volume, &lane).inspect_err(|_| {
                let writer = Writer { flow: ctx.flow, pool };
                core.table.lock().give_back(writer, bytes.len() as u64);
            })?;
            if let Some(offset) = segment.append(owner, bytes, &core.options, &core.buffers) {
                return Ok(Addr { segment: segment.number, offset });
            }
            core.seal(&segment);
        }
    }

    /// The owner has recorded the address of an append (or has given the data up): the segment may
    /// become durable. Owed for every successful append, so that [`Catalog::sealed`] never comes
    /// before the owner can use it.
    pub fn unhold(&self, segment: u64) {
        let table = self.core.table.lock(); // no put thread is between its look and its wait
        if let Some(found) = table.get(segment)
            && found.unhold()
            && table.is_queued(segment)
        {
            found.lane.work.notify_one();
        }
    }

    /// These bytes are not needed any more. If the segment's object is not laid out yet, they are
    /// left out of it.
    pub fn dead(&self, addr: Addr, len: u32) {
        let segment = self.core.table.lock().get(addr.segment);
        if let Some(segment) = segment {
            segment.dead(addr.offset..addr.offset.saturating_add(len));
        }
    }

    /// Copies the data at `addr` if its segment is still in memory; returns false, with `buf`
    /// unchanged, if not.
    pub fn peek(&self, addr: Addr, buf: &mut [u8]) -> bool {
        let segment = self.core.table.lock().get(addr.segment);
        segment.is_some_and(|s| s.peek(addr.offset, buf))
    }

    /// Seals this segment if it is open. Returns at once; a put thread does the rest.
    pub fn seal(&self, segment: u64) {
        let segment = self.core.table.lock().get(segment);
        if let Some(segment) = segment {
            self.core.seal(&segment);
        }
    }

    /// Seals a flow's open segments.
    pub fn seal_flow(&self, flow: Flow) {
        let open = self.core.table.lock().all_open();
        open.iter().filter(|s| s.flow == flow).for_each(|segment| self.core.seal(segment));
    }

    /// Seals every open segment whose first byte is older than `age`. To be called now and then: it
    /// also frees memory when nothing was written for long.
    pub fn seal_older(&self, age: Duration) {
        let now = self.core.env.now();
        let (open, idle) = {
            let table = self.core.table.lock();
            (table.all_open(), table.is_empty())
        };
        let quiet = now.saturating_sub(self.core.newest.load(Ordering::Relaxed));
        if idle && u128::from(quiet) > IDLE.as_nanos() {
            self.core.buffers.clear();
        }
        for segment in open {
            if u128::from(now.saturating_sub(segment.opened)) > age.as_nanos() {
                self.core.seal(&segment);
            }
        }
    }

    /// Seals a segment if it is open and waits until it is durable.
    ///
    /// # Errors
    /// The store's, when a put of the segment failed since the call began: the data stays in memory
    /// and the put is tried again. `WouldBlock` when the context forbids to wait.
    pub fn wait_durable(&self, ctx: &Ctx, segment: u64) -> Result<()> {
        let Some(found) = self.core.table.lock().get(segment) else { return Ok(()) };
        found.waiters.fetch_add(1, Ordering::Relaxed);
        self.core.seal(&found);
        let result = self.core.await_put(ctx, segment);
        found.waiters.fetch_sub(1, Ordering::Relaxed);
        // the caller notes how long
        waits::note(Cause::Put, *found.behind.lock(), 0);
        result
    }

    /// The error of the last attempt to store a segment that is still only in memory; `None`: no
    /// put fails.
    pub fn failing(&self) -> Option<String> {
        let failure = self.core.table.lock().any_failure();
        failure.map(|failure| Error::from(&failure).to_string())
    }

    /// Whether a segment is not in memory any more: it is in the store, or none of its data was
    /// needed.
    pub fn is_durable(&self, segment: u64) -> bool {
        self.core.table.lock().get(segment).is_none()
    }

    /// Fills `buf` with the data at `addr`, verified: from memory, cache or store.
    ///
    /// # Errors
    /// `WouldBlock` when it needs the store and the context forbids to wait; `Corrupt`; `Absent`
    /// when there is no such data; the store's. The content of `buf` is undefined then.
    pub fn read(&self, ctx: &Ctx, addr: Addr, buf: &mut [u8]) -> Result<()> {
        self.read_all(ctx, vec![(addr, buf)])
    }

    /// Reads several pieces at once, which is much faster than one after another: neighbouring data
    /// is read together, and data that another thread is fetching just now is left for last.
    ///
    /// # Errors
    /// As of [`DataLog::read`].
    pub fn read_all(&self, ctx: &Ctx, mut pieces: Vec<(Addr, &mut [u8])>) -> Result<()> {
        pieces.retain_mut(|(addr, buf)| !buf.is_empty() && !self.peek(*addr, buf));
        if pieces.is_empty() {
            return Ok(());
        }
        let (asked, before) = (self.core.env.now(), waits::noted().of(Cause::Store));
        let read = self.read_groups(ctx, pieces);
        if ctx.wait == Wait::Allowed {
            let (took, for_turn) = (self.core.env.now() - asked, waits::noted().of(Cause::Store) - before);
            waits::note(Cause::Read, None, took.saturating_sub(for_turn));
        }
        read
    }

    fn read_groups(&self, ctx: &Ctx, mut pieces: Vec<(Addr, &mut [u8])>) -> Result<()> {
        pieces.sort_unstable_by_key(|(addr, _)| *addr);
        let mut groups: Vec<(u64, Vec<Piece<'_>>)> = Vec::new();
        for (addr, buf) in pieces {
            match groups.last_mut() {
                Some((segment, group)) if *segment == addr.segment => group.push((addr.offset, buf)),
                _ => groups.push((addr.segment, vec![(addr.offset, buf)])),
            }
        }
        let mut left = Vec::new();
        for (segment, mut group) in groups {
            if !self.read_stored(ctx, segment, &mut group, Fetched::Skip)? {
                left.push((segment, group));
            }
        }
        left.into_iter().try_for_each(|(segment, mut group)| {
            self.read_stored(ctx, segment, &mut group, Fetched::Await).map(drop)
        })
    }

    /// Reads pieces of one segment from its object; follows cleaning.
    fn read_stored(
        &self,
        ctx: &Ctx,
        segment: u64,
        pieces: &mut [Piece<'_>],
        others: Fetched,
    ) -> Result<bool> {
        if ctx.wait == Wait::Allowed && ctx.class != Class::Background {
            self.core.read_at.store(self.core.env.now(), Ordering::Relaxed);
        }
        let catalog = self.core.catalog().ok_or_else(detached)?;
        let mut tried = 0;
        loop {
            let Some(object) = catalog.object(segment) else {
                return Err(Error::Absent { segment, offset: pieces.first().map_or(0, |p| p.0) });
            };
            match self.core.reader.read(ctx, object, pieces, others) {
                // it was rewritten meanwhile, and may be in another pool
                Err(Error::Store(_))
                    if tried < GENERATIONS_TRIED_MAX && catalog.object(segment) != Some(object) =>
                {
                    tried += 1;
                }
                Err(e @ Error::Corrupt { .. }) => {
                    self.core.damaged_reads.fetch_add(1, Ordering::Relaxed);
                    return Err(e);
                }
                other => return other,
            }
        }
    }

    /// Counts of the cache of data that was read.
    pub fn cache_figures(&self) -> CacheFigures {
        self.core.reader.cache().figures()
    }

    /// Uses this cache on disk from now on for data that users read from the pools that it serves.
    /// Called once.
    pub fn use_disk_cache(&self, cache: Arc<DiskCache>) {
        self.core.reader.use_disk_cache(cache);
    }

    /// The cache on disk, if there is one.
    pub fn disk_cache(&self) -> Option<&DiskCache> {
        self.core.reader.disk_cache()
    }

    /// Reads of users that found damage.
    pub fn damaged_reads(&self) -> u64 {
        self.core.damaged_reads.load(Ordering::Relaxed)
    }

    /// Most bytes in memory that are not durable, over all flows.
    pub fn dirty_bytes_max(&self) -> u64 {
        self.core.options.dirty_bytes as u64
    }

    /// Bytes in memory that are not durable.
    pub fn dirty_bytes(&self) -> u64 {
        self.core.table.lock().dirty_bytes()
    }

    /// Bytes in memory that are not durable and go to this pool.
    pub fn dirty_bytes_to(&self, pool: PoolId) -> u64 {
        self.core.table.lock().dirty_bytes_to(pool)
    }

    /// Bytes in memory that are not durable, by flow.
    pub fn dirty_by_flow(&self) -> Vec<(Flow, u64)> {
        self.core.table.lock().dirty_by_flow()
    }

    /// How long no user has read from the store or filled memory that is to go there.
    pub fn quiet_for(&self) -> Duration {
        let core = &*self.core;
        let used = core.newest.load(Ordering::Relaxed).max(core.read_at.load(Ordering::Relaxed));
        Duration::from_nanos(core.env.now().saturating_sub(used))
    }

    /// Bytes put to the store since the log was made.
    pub fn written_bytes(&self) -> u64 {
        self.core.written_bytes.load(Ordering::Relaxed)
    }

    /// Performs one pending put on the caller's thread, however recently it failed. False if none
    /// was pending.
    pub fn step(&self) -> bool {
        self.core.step()
    }

    /// Seals and puts everything and ends the put threads.
    ///
    /// # Errors
    /// The store's, if something could not be stored in one more attempt. It stays in memory,
    /// readable; `step`, `wait_durable` and `close` try again.
    pub fn close(&self) -> Result<()> {
        let core = &*self.core;
        let open = core.table.lock().all_open();
        for segment in open {
            core.seal(&segment);
        }
        core.table.lock().set_closing(true);
        core.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a put thread of the data log panicked");
            }
        }
        core.threaded.store(false, Ordering::Release);
        while core.step() {}
        let mut table = core.table.lock();
        table.set_closing(false);
        core.done.notify_all(); // nobody puts for those who still wait: they do it themselves now
        match table.any_failure() {
            Some(failure) => Err((&failure).into()),
            None if table.is_empty() => Ok(()),
            None => Err(came_late()),
        }
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.core.reader
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.core.lanes
    }

    pub(crate) fn buffers(&self) -> &Buffers {
        &self.core.buffers
    }

    /// Packs chunks that are at their logical offsets in `source` and puts the object, on the
    /// caller's thread. Where another object of that name exists and stays, the object is put under
    /// the next generation.
    pub(crate) fn put_packed(
        &self,
        ctx: &Ctx,
        object: Object,
        mut source: AlignedBuf,
        chunks: Vec<Chunk>,
    ) -> Result<SegmentInfo> {
        let core = &*self.core;
        let first = object.generation;
        let mut info = SegmentInfo {
            object,
            object_bytes: 0,
            data_bytes: chunks.iter().map(|c| u64::from(c.len)).sum(),
        };
        if !chunks.is_empty() {
            let body = pack::pack(&source, chunks, core.options.compression, &core.buffers);
            let mut copied = body.copied;
            let bytes = copied.as_mut().unwrap_or(&mut source);
            let index = loop {
                let object = info.object;
                let index = pack::finish(object.id(), bytes, body.chunks.clone(), body.units.clone());
                match core.put_object(ctx, object, bytes) {
                    Err(leeward_pool::Error::Exists(_))
                        if object.generation - first + 1 < GENERATIONS_PER_PUT =>
                    {
                        info.object.generation += 1;
                    }
                    other => break other.map(|()| index)?,
                }
            };
            core.reader.cache().layout_insert(Arc::new(Layout::new(info.object, &index)));
            info.object_bytes = bytes.len() as u64;
            copied.into_iter().for_each(|b| core.buffers.give(b));
        }
        core.buffers.give(source);
        Ok(info)
    }
}

impl Drop for DataLog {
    /// Ends the threads without waiting. Data that is not durable is lost. Use [`DataLog::close`].
    fn drop(&mut self) {
        self.core.abandoned.store(true, Ordering::Release);
        self.core.stop();
    }
}

fn came_late() -> Error {
    Error::Store(std::io::Error::other("something was written while the data log was being closed").into())
}

fn detached() -> Error {
    Error::Store(std::io::Error::other("the data log is not attached to a catalog").into())
}

impl Core {
    fn catalog(&self) -> Option<Arc<dyn Catalog>> {
        self.catalog.get()?.upgrade()
    }

    /// Reserves room in the budget, waiting for it if allowed.
    fn admit(&self, ctx: &Ctx, lane: &Lane, len: u64) -> Result<()> {
        let writer = Writer { flow: ctx.flow, pool: lane.pool };
        let mut table = self.table.lock();
        self.pause(ctx, lane, &mut table, len)?;
        if self.reserve(&mut table, writer, len) {
            return Ok(());
        }
        if ctx.wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        let asked = self.env.now();
        let reserved = self.wait_for_room(&mut table, writer, len);
        waits::note(Cause::Memory, Some(ctx.flow), self.env.now().saturating_sub(asked));
        reserved
    }

    /// Slows a writer that fills a pool that is pressed.
    fn pause(&self, ctx: &Ctx, lane: &Lane, table: &mut MutexGuard<'_, Table>, len: u64) -> Result<()> {
        let mut drain = lane.drain.lock();
        if !self.is_threaded() || !drain.is_pressed() {
            return Ok(());
        }
        let writer = Writer { flow: ctx.flow, pool: lane.pool };
        let options = &self.options;
        let share = table.share_of(writer, options.dirty_bytes as u64, options.segment_bytes as u64);
        if !drain.is_slow(share) {
            return Ok(());
        }
        if ctx.wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        let pause = drain.pause(self.env.now(), len, share);
        drop(drain);
        MutexGuard::unlocked(table, || self.env.sleep(Duration::from_nanos(pause)));
        waits::note(Cause::Memory, Some(ctx.flow), pause);
        Ok(())
    }

    fn reserve(&self, table: &mut Table, writer: Writer, len: u64) -> bool {
        table.reserve(writer, len, self.options.dirty_bytes as u64, self.options.segment_bytes as u64)
    }

    /// Waits until the writer may hold `len` bytes more.
    fn wait_for_room(&self, table: &mut MutexGuard<'_, Table>, writer: Writer, len: u64) -> Result<()> {
        let failures = table.failures_of(writer).0;
        while !self.reserve(table, writer, len) {
            if let (now, Some(failure)) = table.failures_of(writer)
                && now > failures
            {
                return Err(failure.into());
            }
            if table.has_sealed(writer) {
                self.wait_done(table);
            } else if let Some(open) = table.longest_open_of(writer) {
                MutexGuard::unlocked(table, || self.seal(&open));
            } else {
                // another thread of the flow has reserved and is about to append
                MutexGuard::unlocked(table, std::thread::yield_now);
            }
        }
        Ok(())
    }

    /// Waits until some put ended, or does one where there are no threads.
    fn wait_done(&self, table: &mut MutexGuard<'_, Table>) {
        /// Bounds the wait, in case another thread of a simulation ends a put between our check and
        /// our wait.
        const LOOK_AGAIN: Duration = Duration::from_millis(10);
        if self.is_threaded() {
            self.done.wait(table);
        } else if !MutexGuard::unlocked(table, || self.step()) {
            self.done.wait_for(table, LOOK_AGAIN);
        }
    }

    fn is_threaded(&self) -> bool {
        self.threaded.load(Ordering::Acquire)
    }

    /// The open segment that the flow has for this volume and pool; a new one if it has none.
    fn open_segment(&self, flow: Flow, volume: u32, lane: &Arc<Lane>) -> Result<Arc<Segment>> {
        let writer = Writer { flow, pool: lane.pool };
        if let Some(open) = self.table.lock().open_of(writer, volume) {
            return Ok(open);
        }
        let catalog = self.catalog().expect("attached before the first append");
        let number = catalog.allocate_segment(volume, lane.pool)?;
        let now = self.env.now();
        let mut table = self.table.lock();
        if let Some(open) = table.open_of(writer, volume) {
            drop(table);
            catalog.unused(number); // another thread of the flow was faster
            return Ok(open);
        }
        self.newest.store(now, Ordering::Relaxed);
        let segment = Arc::new(Segment::new(number, flow, volume, lane.clone(), now));
        let another = table.install(segment.clone());
        drop(table);
        another.into_iter().for_each(|another| self.seal(&another));
        Ok(segment)
    }

    /// Closes the segment for appends and queues the put, once.
    fn seal(&self, segment: &Arc<Segment>) {
        let first = segment.close();
        let mut table = self.table.lock();
        table.retire(segment);
        if first {
            table.enqueue(segment.clone());
            drop(table);
            segment.lane.work.notify_one();
        }
    }

    fn await_put(&self, ctx: &Ctx, segment: u64) -> Result<()> {
        let mut table = self.table.lock();
        let Some((failures, _)) = table.segment_failures(segment) else { return Ok(()) };
        table.hurry(segment);
        if let Some(segment) = table.get(segment) {
            segment.lane.work.notify_one();
        }
        loop {
            match table.segment_failures(segment) {
                None => return Ok(()),
                Some((now, Some(failure))) if now > failures => return Err(failure.into()),
                _ if ctx.wait == Wait::Never => return Err(Error::WouldBlock),
                _ => self.wait_done(&mut table),
            }
        }
    }

    fn stop(&self) {
        self.reader.end_ahead();
        let _table = self.table.lock(); // so that no thread is between its look and its wait
        self.stopping.store(true, Ordering::Release);
        for lane in self.lanes.all() {
            lane.work.notify_all();
        }
    }

    /// Puts the segments that go to one pool, until the pool is removed, or the log is dropped or
    /// closed (then until everything was tried once more).
    fn put_loop(&self, lane: &Lane) {
        let mut table = self.table.lock();
        while !self.abandoned.load(Ordering::Acquire) && !lane.is_removed() {
            let now = self.env.now();
            match table.next(Some(lane.pool), Backoff::Respect(now)) {
                Next::Put(queued) => MutexGuard::unlocked(&mut table, || self.put_or_panic(queued)),
                _ if self.stopping.load(Ordering::Acquire) => return,
                Next::Later(due) => {
                    let pause = Duration::from_nanos(due.saturating_sub(now));
                    lane.work.wait_for(&mut table, pause);
                }
                Next::Nothing => lane.work.wait(&mut table),
            }
        }
    }

    fn step(&self) -> bool {
        let next = self.table.lock().next(None, Backoff::Ignore);
        match next {
            Next::Put(queued) => {
                self.put(queued);
                true
            }
            _ => false,
        }
    }

    /// One attempt; a panic counts as a failure. Nobody may wait for a thread that has died.
    fn put_or_panic(&self, queued: Queued) {
        let again = queued.clone();
        if let Err(why) = self.caught("a thread that stores segments", || self.put(queued)) {
            let text = format!("{why}; the cell must be opened again");
            let failure = Failure::Io { os: None, kind: std::io::ErrorKind::Other, text };
            let now = self.env.now();
            let mut table = self.table.lock();
            if table.get(again.segment.number).is_some() && !table.is_queued(again.segment.number) {
                table.failed(again, failure, now);
            }
            drop(table);
            self.done.notify_all();
        }
    }

    /// Runs `f`. Returns its result, or the text of its panic, which the catalog gets, too.
    fn caught<R>(&self, who: &str, f: impl FnOnce() -> R) -> std::result::Result<R, String> {
        catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
            let why = format!("{who} panicked: {}", leeward_env::panic_text(&*panic));
            if let Some(catalog) = self.catalog() {
                catalog.panicked(&why);
            }
            why
        })
    }

    /// Tries once to put a queued segment.
    fn put(&self, queued: Queued) {
        let segment = queued.segment.clone();
        let laid = segment.lay_out(self.options.compression, &self.buffers);
        let pool = segment.lane.pool;
        let put = match self.put_laid(&segment, &laid, pool) {
            Err(Failure::Io { .. } | Failure::Passing(_)) if self.goes_elsewhere(&queued, &laid) => {
                self.put_laid(&segment, &laid, 0).map(|()| 0)
            }
            other => other.map(|()| pool),
        };
        match put {
            Ok(pool) => self.put_done(&segment, laid, pool),
            Err(failure) => {
                if !matches!(failure, Failure::Full) {
                    segment.repeat(); // it may have been stored all the same, or pieces of it
                }
                let now = self.env.now();
                let attempts = self.table.lock().failed(queued, failure.clone(), now);
                tracing::warn!(
                    segment = segment.number,
                    pool,
                    attempts,
                    ?failure,
                    "a segment could not be stored"
                );
                self.done.notify_all();
            }
        }
    }

    /// Whether a segment that its pool does not take goes to pool 0. Otherwise callers that wait
    /// for it would wait for as long as the pool is away.
    fn goes_elsewhere(&self, queued: &Queued, laid: &Laid) -> bool {
        let segment = &queued.segment;
        segment.lane.pool != 0
            && queued.attempts >= ATTEMPTS_MIN
            && self.catalog().is_some_and(|c| c.goes_elsewhere(segment.number, laid.object_bytes))
    }

    fn put_laid(&self, segment: &Segment, laid: &Laid, pool: PoolId) -> std::result::Result<(), Failure> {
        if laid.object_bytes == 0 {
            return Ok(());
        }
        let class = if segment.is_awaited() { Class::Interactive } else { Class::Batch };
        let ctx = Ctx { flow: segment.flow, class, ..Ctx::system() };
        let before = waits::noted().of(Cause::Store);
        let put = match &laid.copied {
            Some(object) => self.put_object(&ctx, segment.object_in(pool), object),
            None => self.put_object(&ctx, segment.object_in(pool), &segment.object()),
        };
        let noted = waits::noted();
        *segment.behind.lock() = noted.behind(Cause::Store).filter(|_| noted.of(Cause::Store) > before);
        Ok(put?)
    }

    fn put_object(&self, ctx: &Ctx, object: Object, bytes: &AlignedBuf) -> leeward_pool::Result<()> {
        self.lanes.store(object.pool)?.put(ctx, object.id(), bytes)?;
        self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The order matters: a reader finds the data in memory, or a generation in the catalog.
    fn put_done(&self, segment: &Segment, laid: Laid, pool: PoolId) {
        let object = segment.object_in(pool);
        if laid.object_bytes > 0 {
            self.reader.cache().layout_insert(Arc::new(Layout::new(object, &laid.index)));
        }
        if let Some(catalog) = self.catalog() {
            catalog.sealed(SegmentInfo {
                object,
                object_bytes: laid.object_bytes,
                data_bytes: laid.index.packed_bytes(),
            });
        }
        let used_bytes = segment.used_bytes();
        if laid.object_bytes > 0 {
            let pressed = self.lanes.store(pool).is_ok_and(|store| store.is_pressed());
            segment.lane.drain.lock().was_put(self.env.now(), used_bytes, pressed);
        }
        laid.copied.into_iter().for_each(|b| self.buffers.give(b));
        let appends = segment.appends();
        self.table.lock().done(segment, (used_bytes, appends));
        self.done.notify_all();
        self.buffers.give(segment.release());
    }
}
