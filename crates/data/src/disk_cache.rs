//! A cache of stored bytes on a local disk, behind the one in memory, for pools whose stores are
//! far away.
//!
//! It holds **parts** of objects as they are stored: 64 KiB of the body, or of index and trailer.
//! Objects never change, so a part never changes either; it can only leave. The policy is that of
//! the cache in memory (an entry used once leaves before one used twice), so a reader that reads
//! everything once does not push out what others use.
//!
//! **Nothing in it is trusted.** Data from it is verified by the checksums of the object itself,
//! just as data from a store is. Where they do not match, the store is asked. So the cache needs no
//! order of writes, no syncs and no checksums of its own. Its files may be old, torn, damaged or
//! foreign, and may be deleted at any time.
//!
//! **Nobody waits for it long.** It has threads of its own that read and write. A reader waits for
//! a moment. A part is not kept when too many writes wait already. A disk that fails or hangs is
//! not used for a while (with one warning), and no caller sees an error.
//!
//! Files, in a directory for one process: `leeward.blocks` has slots of 64 KiB, `leeward.index`
//! says what is in each, so that the content survives a restart.
//!
//! Locks: `adding`, then those of the entries, then `free`; `queue`, `health` and `pools` alone.
//! None over a call of the disk.

mod slots;
mod tail;

use crate::{Object, PoolId};
use leeward_env::disk::Disk;
use leeward_env::{Env, Nanos};
use leeward_pool::AlignedBuf;
use parking_lot::{Condvar, Mutex, RwLock};
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, UnitWeighter};
use rustc_hash::FxHasher;
use slots::{Files, PART_BYTES, PartPosition};
use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasherDefault;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

pub(crate) use slots::PART_BLOCKS;
pub(crate) use tail::Tail;

/// The smallest cache that makes sense.
pub const DISK_CACHE_BYTES_MIN: u64 = 16 << 20;
/// Threads that read and write.
const THREADS: usize = 4;
/// Threads that may write at a time: the others are for reads.
const WRITERS: usize = THREADS / 2;
/// More slots than entries: some are being filled.
const SLOTS_SPARE: usize = 2 * THREADS;
/// Writes that may wait; more are dropped.
const WRITES_MAX: usize = 128;
/// Reads that may wait; more go to the store.
const READS_MAX: usize = 64;
/// A read that takes longer goes to the store, and the disk is not used for a while.
const READ_WAIT: Duration = Duration::from_millis(500);
/// A disk that failed is not used for this time.
const REST: Nanos = 30_000_000_000;

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

/// Counts of the cache since it was opened, and its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheFigures {
    /// Parts that readers wanted and the cache had.
    pub hits: u64,
    /// Parts that readers wanted and the cache did not have, or could not read.
    pub misses: u64,
    /// Parts that the cache had with wrong content.
    pub bad: u64,
    /// Calls of the disk that failed or took too long.
    pub errors: u64,
    /// Bytes in the cache.
    pub bytes: u64,
    /// Most bytes in the cache.
    pub bytes_max: u64,
    /// Bytes written to the cache.
    pub written_bytes: u64,
    /// Whether the disk is not used for a while, because it failed.
    pub resting: bool,
}

/// A cache on disk. Its threads end when it is dropped.
pub struct DiskCache(Arc<Core>);

type Entries = Cache<Part, PartPosition, UnitWeighter, BuildHasherDefault<FxHasher>, Freed>;

struct Core {
    env: Env,
    /// Name of the cache, for messages.
    name: String,
    files: Files,
    entries: Entries,
    free: Freed,
    /// Held while a part is inserted.
    adding: Mutex<()>,
    queue: Mutex<Queue>,
    work: Condvar,
    health: Mutex<Health>,
    pools: RwLock<BTreeSet<PoolId>>,
    hits: AtomicU64,
    misses: AtomicU64,
    bad: AtomicU64,
    written_bytes: AtomicU64,
}

/// Empty slots: those of entries that leave come back.
#[derive(Clone, Default)]
struct Freed(Arc<Mutex<Vec<u32>>>);

impl Lifecycle<Part, PartPosition> for Freed {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: Part, place: PartPosition) {
        self.0.lock().push(place.slot);
    }
}

#[derive(Default)]
struct Queue {
    reads: VecDeque<(Vec<PartPosition>, SyncSender<io::Result<AlignedBuf>>)>,
    writes: VecDeque<(Part, AlignedBuf)>,
    /// Threads that are writing.
    writing: usize,
    closed: bool,
}

#[derive(Default)]
struct Health {
    /// Until these times nothing is read, or nothing written.
    reads_at: Nanos,
    writes_at: Nanos,
    failing: bool,
    errors: u64,
}

impl DiskCache {
    /// A cache of up to `bytes` bytes in the root of `disk`, called `name` in messages. It begins
    /// with the parts that a cache of the cell with this id left there. The caller makes sure that
    /// nobody else uses the directory.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(env: &Env, disk: &dyn Disk, name: &str, cell: &str, bytes: u64) -> io::Result<DiskCache> {
        let slots = (bytes.max(DISK_CACHE_BYTES_MIN) / PART_BYTES as u64).min(u64::from(u32::MAX / 2)) as u32;
        let (files, found) = Files::open(disk, cell, slots)?;
        let free = Freed::default();
        let capacity = slots as usize - SLOTS_SPARE;
        let hasher = BuildHasherDefault::default();
        let entries = Cache::with(capacity, capacity as u64, UnitWeighter, hasher, free.clone());
        let mut used = vec![false; slots as usize];
        for (part, place) in found {
            used[place.slot as usize] = true;
            add(&entries, &free, part, place);
        }
        free.0.lock().extend((0..slots).rev().filter(|slot| !used[*slot as usize]));
        let core = Arc::new(Core {
            env: env.clone(),
            name: name.into(),
            files,
            entries,
            free,
            adding: Mutex::default(),
            queue: Mutex::default(),
            work: Condvar::new(),
            health: Mutex::default(),
            pools: RwLock::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        });
        for n in 0..THREADS {
            let of_thread = core.clone();
            drop(env.spawn(&format!("lee-cache-{n}"), move || of_thread.serve()));
        }
        Ok(DiskCache(core))
    }

    /// Whether objects of this pool are kept from now on.
    pub fn serve(&self, pool: PoolId, serve: bool) {
        let mut pools = self.0.pools.write();
        if serve {
            pools.insert(pool)
        } else {
            pools.remove(&pool)
        };
    }

    pub(crate) fn serves(&self, pool: PoolId) -> bool {
        self.0.pools.read().contains(&pool)
    }

    /// Counts and state of the cache.
    pub fn figures(&self) -> DiskCacheFigures {
        let core = &*self.0;
        let now = core.env.now();
        let health = core.health.lock();
        DiskCacheFigures {
            hits: core.hits.load(Ordering::Relaxed),
            misses: core.misses.load(Ordering::Relaxed),
            bad: core.bad.load(Ordering::Relaxed),
            errors: health.errors,
            bytes: core.entries.len() as u64 * PART_BYTES as u64,
            bytes_max: core.entries.capacity() * PART_BYTES as u64,
            written_bytes: core.written_bytes.load(Ordering::Relaxed),
            resting: now < health.reads_at || now < health.writes_at,
        }
    }

    /// Reads parts of these lengths, one after the other, if the cache has all of them. The caller
    /// must verify them.
    pub(crate) fn read(&self, parts: &[(Part, usize)]) -> Option<AlignedBuf> {
        let core = &*self.0;
        let find = |(part, len): &(Part, usize)| core.entries.get(part).filter(|p| p.len as usize == *len);
        let found: Option<Vec<PartPosition>> = parts.iter().map(find).collect();
        let read = found.and_then(|places| core.read(places));
        let count = if read.is_some() { &core.hits } else { &core.misses };
        count.fetch_add(parts.len() as u64, Ordering::Relaxed);
        read
    }

    /// Length of a part, if the cache has it.
    pub(crate) fn len_of(&self, part: Part) -> Option<usize> {
        self.0.entries.peek(&part).map(|place| place.len as usize)
    }

    /// Drops parts that were read with wrong content.
    pub(crate) fn forget(&self, parts: &[(Part, usize)]) {
        for (part, _) in parts {
            // a part that has left meanwhile may have been overwritten while it was read
            if let Some((_, place)) = self.0.entries.remove(part) {
                self.0.free.0.lock().push(place.slot);
                self.0.bad.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Keeps a verified part, of at most 64 KiB in whole blocks, if there is time for it.
    pub(crate) fn keep(&self, part: Part, bytes: &[u8]) {
        let core = &*self.0;
        if core.entries.contains_key(&part) || core.env.now() < core.health.lock().writes_at {
            return;
        }
        let mut queue = core.queue.lock();
        if queue.writes.len() < WRITES_MAX {
            let mut copy = AlignedBuf::zeroed(bytes.len());
            copy.copy_from_slice(bytes);
            queue.writes.push_back((part, copy));
            core.work.notify_one();
        }
    }

    /// Waits until all writes are done. For tests.
    pub fn settle(&self) {
        let left = |queue: &Queue| queue.writing + queue.writes.len();
        while left(&self.0.queue.lock()) > 0 {
            self.0.env.sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        self.0.queue.lock().closed = true;
        self.0.work.notify_all();
    }
}

/// Inserts a part, in place of its earlier entry.
fn add(entries: &Entries, free: &Freed, part: Part, place: PartPosition) {
    if let Some((_, before)) = entries.remove(&part) {
        free.0.lock().push(before.slot);
    }
    entries.insert(part, place);
}

impl Core {
    fn read(&self, places: Vec<PartPosition>) -> Option<AlignedBuf> {
        if self.env.now() < self.health.lock().reads_at {
            return None;
        }
        let (sender, answer) = sync_channel(1);
        {
            let mut queue = self.queue.lock();
            if queue.reads.len() >= READS_MAX {
                return None;
            }
            queue.reads.push_back((places, sender));
            self.work.notify_one();
        }
        match answer.recv_timeout(READ_WAIT) {
            Ok(Ok(bytes)) => {
                self.worked();
                Some(bytes)
            }
            Ok(Err(e)) => {
                self.failed(&e.to_string(), true);
                None
            }
            Err(_) => {
                self.failed("it does not answer", true);
                None
            }
        }
    }

    /// The loop of a thread.
    fn serve(&self) {
        let mut queue = self.queue.lock();
        while !queue.closed {
            if let Some((places, sender)) = queue.reads.pop_front() {
                drop(queue);
                let _ = sender.send(self.files.read(&places)); // or nobody waits any more
                queue = self.queue.lock();
            } else if queue.writing < WRITERS
                && let Some((part, bytes)) = queue.writes.pop_front()
            {
                queue.writing += 1;
                drop(queue);
                self.add(part, &bytes);
                queue = self.queue.lock();
                queue.writing -= 1;
            } else {
                self.work.wait(&mut queue);
            }
        }
    }

    fn add(&self, part: Part, bytes: &[u8]) {
        let free = self.free.0.lock().pop();
        let Some(slot) = free.filter(|_| self.env.now() >= self.health.lock().writes_at) else {
            self.free.0.lock().extend(free);
            return;
        };
        match self.files.write(part, slot, bytes) {
            Ok(()) => {
                self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                let _alone = self.adding.lock();
                add(&self.entries, &self.free, part, PartPosition { slot, len: bytes.len() as u32 });
                self.worked();
            }
            Err(e) => {
                self.free.0.lock().push(slot);
                self.failed(&e.to_string(), false);
            }
        }
    }

    fn failed(&self, why: &str, reading: bool) {
        let then = self.env.now() + REST;
        let mut health = self.health.lock();
        health.errors += 1;
        health.writes_at = then;
        if reading {
            health.reads_at = then;
        }
        if !std::mem::replace(&mut health.failing, true) {
            let name = &self.name;
            tracing::warn!(
                "the cache in {name} fails ({why}): the stores are read instead; it is tried every half minute"
            );
        }
    }

    fn worked(&self) {
        if std::mem::replace(&mut self.health.lock().failing, false) {
            tracing::warn!("the cache in {} works again", self.name);
        }
    }
}
