//! The data log itself: appends under a budget, seals, puts on its own threads (or by [`DataLog::step`]), reads.
//!
//! A put that fails is repeated for ever, with growing pauses, while the data stays in memory and readable; whoever
//! waits for it is told of each failure. Nothing here knows what the data is for: the [`Catalog`] does.

use crate::buffers::Buffers;
use crate::cache::CacheFigures;
use crate::format::LOGICAL_BYTES_MAX;
use crate::pack;
use crate::reader::{Fetched, Layout, Piece, Reader};
use crate::segment::{Laid, Segment};
use crate::table::{Backoff, Next, Queued, Table};
use crate::{Addr, Chunk, Error, Owner, Result};
use leeward_env::limits::WRITE_BYTES_MAX;
use leeward_env::waits::{self, Cause};
use leeward_env::{Class, Ctx, Env, Flow, Wait};
use leeward_pool::{AlignedBuf, ObjectId, Store};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a read follows cleaning to a newer generation before it gives up.
const GENERATIONS_TRIED_MAX: usize = 8;

/// After so long without a new segment the spare buffers are given back to the system.
const IDLE: Duration = Duration::from_secs(30);

/// Whether data is compressed when sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// With lz4, where at least an eighth is saved.
    Lz4,
    /// Never.
    None,
}

/// Bounds and choices of a data log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Logical bytes of a full segment.
    pub segment_bytes: usize,
    /// Whether data is compressed when sealed.
    pub compression: Compression,
    /// Memory for data that is not durable yet, over all flows.
    pub dirty_bytes: usize,
    /// Memory for what was read.
    pub cache_bytes: usize,
    /// Threads that put segments; 0: nothing is put until [`DataLog::step`] is called, or a call has to wait for it.
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

/// What a sealed segment is, once durable in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Segment number.
    pub segment: u64,
    /// Generation of the object.
    pub generation: u32,
    /// Length of the object in the store; 0: everything in it had died, no object exists.
    pub object_bytes: u64,
    /// Uncompressed bytes of the chunks it holds.
    pub data_bytes: u64,
}

/// The data log's view of who owns it (implemented by the volume layer). Called without data-log locks held, from any
/// thread.
pub trait Catalog: Send + Sync {
    /// A number never used before.
    fn allocate_segment(&self) -> u64;
    /// Current object generation of a durable segment.
    fn generation(&self, segment: u64) -> Option<u32>;
    /// A put is durable. After this returns, the memory of the segment is dropped and reads go to the store.
    fn sealed(&self, info: SegmentInfo);
}

/// Why a put failed; kept to be told to everybody who waits.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Full,
    Io { os: Option<i32>, kind: std::io::ErrorKind, text: String },
}

impl From<leeward_pool::Error> for Failure {
    fn from(e: leeward_pool::Error) -> Failure {
        match e {
            leeward_pool::Error::Full => Failure::Full,
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
            Failure::Io { os: Some(code), .. } => std::io::Error::from_raw_os_error(*code).into(),
            Failure::Io { kind, text, .. } => std::io::Error::new(*kind, text.clone()).into(),
        })
    }
}

/// The data log of a cell. See the crate's head.
pub struct DataLog {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Core {
    env: Env,
    store: Arc<dyn Store>,
    options: Options,
    buffers: Buffers,
    reader: Reader,
    catalog: OnceLock<Weak<dyn Catalog>>,
    table: Mutex<Table>,
    /// A segment was queued, or the log is closing: put threads look.
    work: Condvar,
    /// A put succeeded or failed: those who wait look.
    done: Condvar,
    /// Put threads run; else whoever must wait does the puts.
    threaded: AtomicBool,
    stopping: AtomicBool,
    /// Dropped without being closed.
    abandoned: AtomicBool,
    written_bytes: AtomicU64,
    damaged_reads: AtomicU64,
    /// When the newest segment was opened.
    newest: AtomicU64,
    /// When a user last read from the store; at first when the log was made.
    read_at: AtomicU64,
}

impl DataLog {
    /// A data log over a store. Nothing may be appended or read before [`DataLog::attach`].
    pub fn new(env: Env, store: Arc<dyn Store>, options: Options) -> Arc<DataLog> {
        let longest = LOGICAL_BYTES_MAX as usize;
        assert!((1..=longest).contains(&options.segment_bytes), "segment_bytes out of range");
        let now = env.now();
        let core = Core {
            env,
            buffers: Buffers::new(options.segment_bytes),
            reader: Reader::new(store.clone(), options.cache_bytes),
            store,
            options,
            catalog: OnceLock::new(),
            table: Mutex::new(Table::default()),
            work: Condvar::new(),
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

    /// Names the catalog and starts the put threads. Once.
    pub fn attach(self: &Arc<Self>, catalog: Weak<dyn Catalog>) {
        assert!(self.core.catalog.set(catalog).is_ok(), "attached twice");
        let count = self.core.options.put_threads;
        self.core.threaded.store(count > 0, Ordering::Release);
        let mut threads = self.threads.lock();
        for n in 0..count {
            let core = self.core.clone();
            threads.push(self.core.env.spawn(&format!("lee-put-{n}"), move || core.put_loop()));
        }
        if count > 0 {
            let (core, asked) = (self.core.clone(), self.core.reader.start_ahead());
            let fetch = move || asked.iter().for_each(|what| core.reader.fetch_ahead(&what));
            threads.push(self.core.env.spawn("lee-ahead", fetch));
        }
    }

    /// Appends at most [`WRITE_BYTES_MAX`] bytes to the open segment of the context's flow, in one piece. The segment cannot
    /// become durable before [`DataLog::unhold`], which is to be called before this thread appends again: an append may
    /// wait until the flow's earlier segments are durable.
    ///
    /// # Errors
    /// When the flow is over its share of dirty memory: `WouldBlock` if the context forbids to wait; else waits, and
    /// fails with the store's error if a put of the flow fails meanwhile.
    pub fn append(&self, ctx: &Ctx, owner: Owner, bytes: &[u8]) -> Result<Addr> {
        let core = &*self.core;
        let longest = WRITE_BYTES_MAX.min(core.options.segment_bytes);
        assert!(!bytes.is_empty() && bytes.len() <= longest, "an append of {} bytes", bytes.len());
        core.admit(ctx, bytes.len() as u64)?;
        loop {
            let segment = core.open_segment(ctx.flow);
            if let Some(offset) = segment.append(owner, bytes, &core.options, &core.buffers) {
                return Ok(Addr { segment: segment.number, offset });
            }
            core.seal(&segment);
        }
    }

    /// The owner knows where the append went (or does not want it any more): the segment may become durable. Owed for every
    /// successful append, so that [`Catalog::sealed`] never comes before the owner can make anything of it.
    pub fn unhold(&self, segment: u64) {
        let table = self.core.table.lock(); // no put thread is between its look and its wait
        if table.get(segment).is_some_and(|s| s.unhold()) && table.is_queued(segment) {
            self.core.work.notify_one();
        }
    }

    /// These bytes are not needed any more: if the segment's object is not laid out yet they are left out of it.
    pub fn dead(&self, addr: Addr, len: u32) {
        let segment = self.core.table.lock().get(addr.segment);
        if let Some(segment) = segment {
            segment.dead(addr.offset..addr.offset.saturating_add(len));
        }
    }

    /// Copies the data at `addr` if its segment is still in memory; false, with `buf` unchanged, if not.
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

    /// Seals a flow's open segment if there is one.
    pub fn seal_flow(&self, flow: Flow) {
        let open = self.core.table.lock().open_of(flow);
        if let Some(segment) = open {
            self.core.seal(&segment);
        }
    }

    /// Seals every open segment whose first byte is older than `age`. To be called every now and then: it also gives
    /// memory back when nothing is written for long.
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
    /// The store's, when a put of the segment failed since the call began: the data stays in memory and is tried again.
    /// `WouldBlock` when the context forbids to wait.
    pub fn wait_durable(&self, ctx: &Ctx, segment: u64) -> Result<()> {
        let Some(found) = self.core.table.lock().get(segment) else { return Ok(()) };
        found.waiters.fetch_add(1, Ordering::Relaxed);
        self.core.seal(&found);
        let result = self.core.await_put(ctx, segment);
        found.waiters.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Whether a segment is not in memory any more: it is in the store, or nothing of it was needed.
    pub fn is_durable(&self, segment: u64) -> bool {
        self.core.table.lock().get(segment).is_none()
    }

    /// Fills `buf` with the data at `addr`, verified: from memory, cache or store.
    ///
    /// # Errors
    /// `WouldBlock` when it needs the store and the context forbids to wait; `Corrupt`; `Absent` when there is no such
    /// data; the store's. `buf` holds nothing sensible then.
    pub fn read(&self, ctx: &Ctx, addr: Addr, buf: &mut [u8]) -> Result<()> {
        self.read_all(ctx, vec![(addr, buf)])
    }

    /// The same for several pieces at once, which is much faster than one after another: what lies together is read
    /// together, and what another thread is fetching just now is left for last.
    ///
    /// # Errors
    /// As of [`DataLog::read`].
    pub fn read_all(&self, ctx: &Ctx, mut pieces: Vec<(Addr, &mut [u8])>) -> Result<()> {
        pieces.retain_mut(|(addr, buf)| !buf.is_empty() && !self.peek(*addr, buf));
        if pieces.is_empty() {
            return Ok(());
        }
        let asked = self.core.env.now();
        let read = self.read_groups(ctx, pieces);
        if ctx.wait == Wait::Allowed {
            waits::note(Cause::Read, None, self.core.env.now().saturating_sub(asked));
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
            let Some(generation) = catalog.generation(segment) else {
                return Err(Error::Absent { segment, offset: pieces.first().map_or(0, |p| p.0) });
            };
            match self.core.reader.read(ctx, ObjectId { segment, generation }, pieces, others) {
                // cleaning has replaced it meanwhile
                Err(Error::Store(leeward_pool::Error::NotFound(_)))
                    if tried < GENERATIONS_TRIED_MAX && catalog.generation(segment) != Some(generation) =>
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

    /// What the cache of data that was read did.
    pub fn cache_figures(&self) -> CacheFigures {
        self.core.reader.cache().figures()
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

    /// The same by flow.
    pub fn dirty_by_flow(&self) -> Vec<(Flow, u64)> {
        self.core.table.lock().dirty_by_flow()
    }

    /// For how long no user has read from the store or filled memory that is to go there.
    pub fn quiet_for(&self) -> Duration {
        let core = &*self.core;
        let used = core.newest.load(Ordering::Relaxed).max(core.read_at.load(Ordering::Relaxed));
        Duration::from_nanos(core.env.now().saturating_sub(used))
    }

    /// Bytes put to the store since the log was made.
    pub fn written_bytes(&self) -> u64 {
        self.core.written_bytes.load(Ordering::Relaxed)
    }

    /// Performs one pending put on the caller's thread, however recently it failed. False if none was pending.
    pub fn step(&self) -> bool {
        self.core.step()
    }

    /// Seals and puts everything and ends the put threads.
    ///
    /// # Errors
    /// The store's, if something could not be stored in one more attempt. It stays in memory, readable; `step`,
    /// `wait_durable` and `close` try again.
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
            None => Err(detached()),
        }
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.core.reader
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.core.store
    }

    pub(crate) fn buffers(&self) -> &Buffers {
        &self.core.buffers
    }

    /// Packs chunks that lie at their logical offsets in `source` and puts the object, on the caller's thread.
    pub(crate) fn put_packed(
        &self,
        ctx: &Ctx,
        id: ObjectId,
        mut source: AlignedBuf,
        chunks: Vec<Chunk>,
    ) -> Result<SegmentInfo> {
        let core = &*self.core;
        let mut info = SegmentInfo {
            segment: id.segment,
            generation: id.generation,
            object_bytes: 0,
            data_bytes: chunks.iter().map(|c| u64::from(c.len)).sum(),
        };
        if !chunks.is_empty() {
            let body = pack::pack(&source, chunks, core.options.compression, &core.buffers);
            let mut copied = body.copied;
            let object = copied.as_mut().unwrap_or(&mut source);
            let index = pack::finish(id, object, body.chunks, body.units);
            core.put_object(ctx, id, object)?;
            core.reader.cache().layout_insert(Arc::new(Layout::new(id, &index)));
            info.object_bytes = object.len() as u64;
            copied.into_iter().for_each(|b| core.buffers.give(b));
        }
        core.buffers.give(source);
        Ok(info)
    }
}

impl Drop for DataLog {
    /// Ends the threads without waiting: what was not made durable is lost. Use [`DataLog::close`].
    fn drop(&mut self) {
        self.core.abandoned.store(true, Ordering::Release);
        self.core.stop();
    }
}

fn detached() -> Error {
    Error::Store(std::io::Error::other("the data log is not attached to a catalog").into())
}

impl Core {
    fn catalog(&self) -> Option<Arc<dyn Catalog>> {
        self.catalog.get()?.upgrade()
    }

    /// Reserves room in the budget, waiting for it if allowed.
    fn admit(&self, ctx: &Ctx, len: u64) -> Result<()> {
        let mut table = self.table.lock();
        if self.reserve(&mut table, ctx.flow, len) {
            return Ok(());
        }
        if ctx.wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        let asked = self.env.now();
        let reserved = self.wait_for_room(&mut table, ctx.flow, len);
        waits::note(Cause::Memory, Some(ctx.flow), self.env.now().saturating_sub(asked));
        reserved
    }

    fn reserve(&self, table: &mut Table, flow: Flow, len: u64) -> bool {
        table.reserve(flow, len, self.options.dirty_bytes as u64, self.options.segment_bytes as u64)
    }

    /// Waits until the flow may hold so many bytes more.
    fn wait_for_room(&self, table: &mut MutexGuard<'_, Table>, flow: Flow, len: u64) -> Result<()> {
        let failures = table.flow_failures(flow).0;
        while !self.reserve(table, flow, len) {
            if let (now, Some(failure)) = table.flow_failures(flow)
                && now > failures
            {
                return Err(failure.into());
            }
            if table.has_sealed(flow) {
                self.wait_done(table);
            } else if let Some(open) = table.open_of(flow) {
                MutexGuard::unlocked(table, || self.seal(&open));
            } else {
                // another thread of the flow has reserved and is about to append
                MutexGuard::unlocked(table, std::thread::yield_now);
            }
        }
        Ok(())
    }

    /// Waits until some put ended, or does one where no threads do.
    fn wait_done(&self, table: &mut MutexGuard<'_, Table>) {
        /// Against a put that another thread of a simulation ends between our look and our wait.
        const LOOK_AGAIN: Duration = Duration::from_millis(10);
        if self.threaded.load(Ordering::Acquire) {
            self.done.wait(table);
        } else if !MutexGuard::unlocked(table, || self.step()) {
            self.done.wait_for(table, LOOK_AGAIN);
        }
    }

    /// The flow's open segment; a new one if it has none.
    fn open_segment(&self, flow: Flow) -> Arc<Segment> {
        let mut table = self.table.lock();
        let mut fresh = None;
        loop {
            if let Some(open) = table.open_of(flow) {
                table.spare_numbers.extend(fresh); // another thread of the flow was faster
                return open;
            }
            if let Some(number) = fresh.take().or_else(|| table.spare_numbers.pop()) {
                let now = self.env.now();
                self.newest.store(now, Ordering::Relaxed);
                let segment = Arc::new(Segment::new(number, flow, now));
                table.install(segment.clone());
                return segment;
            }
            fresh = MutexGuard::unlocked(&mut table, || {
                Some(self.catalog().expect("attached before the first append").allocate_segment())
            });
        }
    }

    /// Takes no more appends and queues the put, once.
    fn seal(&self, segment: &Arc<Segment>) {
        let first = segment.close();
        let mut table = self.table.lock();
        table.retire(segment);
        if first {
            table.enqueue(segment.clone());
            drop(table);
            self.work.notify_one();
        }
    }

    fn await_put(&self, ctx: &Ctx, segment: u64) -> Result<()> {
        let mut table = self.table.lock();
        let Some((failures, _)) = table.segment_failures(segment) else { return Ok(()) };
        table.hurry(segment);
        self.work.notify_one();
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
        self.work.notify_all();
    }

    /// Until the log is closed (then until everything was tried once more) or dropped.
    fn put_loop(&self) {
        let mut table = self.table.lock();
        while !self.abandoned.load(Ordering::Acquire) {
            let now = self.env.now();
            match table.next(Backoff::Respect(now)) {
                Next::Put(queued) => MutexGuard::unlocked(&mut table, || self.put(queued)),
                _ if self.stopping.load(Ordering::Acquire) => return,
                Next::Later(due) => {
                    let pause = Duration::from_nanos(due.saturating_sub(now));
                    self.work.wait_for(&mut table, pause);
                }
                Next::Nothing => self.work.wait(&mut table),
            }
        }
    }

    fn step(&self) -> bool {
        let next = self.table.lock().next(Backoff::Ignore);
        match next {
            Next::Put(queued) => {
                self.put(queued);
                true
            }
            _ => false,
        }
    }

    /// One attempt.
    fn put(&self, queued: Queued) {
        let segment = queued.segment.clone();
        let laid = segment.lay_out(self.options.compression, &self.buffers);
        match self.put_laid(&segment, &laid) {
            Ok(()) => self.put_done(&segment, laid),
            Err(failure) => {
                let now = self.env.now();
                let attempts = self.table.lock().failed(queued, failure.clone(), now);
                tracing::warn!(segment = segment.number, attempts, ?failure, "a segment could not be stored");
                self.done.notify_all();
            }
        }
    }

    fn put_laid(&self, segment: &Segment, laid: &Laid) -> std::result::Result<(), Failure> {
        if laid.object_bytes == 0 {
            return Ok(());
        }
        let class = if segment.is_awaited() { Class::Interactive } else { Class::Batch };
        let ctx = Ctx { flow: segment.flow, class, ..Ctx::system() };
        match &laid.copied {
            Some(object) => self.put_object(&ctx, segment.id(), object)?,
            None => self.put_object(&ctx, segment.id(), &segment.object())?,
        }
        Ok(())
    }

    fn put_object(&self, ctx: &Ctx, id: ObjectId, object: &AlignedBuf) -> leeward_pool::Result<()> {
        self.store.put(ctx, id, object)?;
        self.written_bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The order matters: a reader finds the data in memory, or a generation in the catalog.
    fn put_done(&self, segment: &Segment, laid: Laid) {
        let id = segment.id();
        if laid.object_bytes > 0 {
            self.reader.cache().layout_insert(Arc::new(Layout::new(id, &laid.index)));
        }
        if let Some(catalog) = self.catalog() {
            catalog.sealed(SegmentInfo {
                segment: id.segment,
                generation: id.generation,
                object_bytes: laid.object_bytes,
                data_bytes: laid.index.packed_bytes(),
            });
        }
        let used_bytes = segment.used_bytes();
        laid.copied.into_iter().for_each(|b| self.buffers.give(b));
        self.table.lock().done(segment, used_bytes);
        self.done.notify_all();
        self.buffers.give(segment.release());
    }
}
