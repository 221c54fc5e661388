//! A cache on a local disk of what is far away: of parts of objects in stores, of content of files
//! on another machine.
//!
//! It holds **parts** under keys that its user chooses. The policy is scan-resistant: an entry used
//! once leaves before one used twice, so a reader that reads everything once does not push out what
//! others use.
//!
//! **Nothing in it is trusted.** Its user verifies what comes from it, and asks elsewhere if that
//! fails. So the cache needs no order of writes, no syncs and no checksums of content. Its files
//! may be old, torn, damaged or foreign, and may be deleted at any time.
//!
//! **Nobody waits for it long.** It has threads of its own that read and write. A reader waits for
//! a moment. A part is not kept when too many writes wait already. A disk that fails or hangs is
//! not used for a while (with one warning), and no caller sees an error.
//!
//! [`open_apart`] opens it so that the same holds then.
//!
//! Files, in a directory for one process: `leeward.blocks` has slots of one size, `leeward.index`
//! says what is in each, so that the content survives a restart.
//!
//! Locks: `adding`, then those of the entries, then `free`; `queue` and `health` alone. None over a
//! call of the disk.

mod slots;

use leeward_env::disk::Disk;
use leeward_env::disk::real::AlignedBuf;
use leeward_env::{Env, Nanos};
use parking_lot::{Condvar, Mutex};
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, UnitWeighter};
use rustc_hash::FxHasher;
use slots::{Files, PartPosition};
use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, Hash};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

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
/// A disk that works has opened a cache after a part of this time.
const OPEN_WAIT: Duration = Duration::from_secs(2);

/// Lengths of parts are multiples of this.
pub const BLOCK_BYTES: usize = 4096;

/// The form of the files.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Says what uses them. Files of another form are not looked at.
    pub magic: [u8; 8],
    /// Most bytes of a part: a multiple of [`BLOCK_BYTES`].
    pub part_bytes: usize,
}

/// What a part is found by.
pub trait Key: Copy + Eq + Hash + Send + Sync + 'static {
    /// The encoding. It may have more than the key: the part that was kept last under an equal key
    /// counts.
    fn encode(&self) -> [u8; 20];
    /// Reads the encoding.
    fn decode(bytes: &[u8; 20]) -> Self;
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

/// Opens a cache in the directory `dir` on a thread of its own, and waits for it a moment: `open`
/// makes all calls of the disk, and gives the cache to its user, who does without it until then.
/// Where it fails it is done without, and everything comes from `elsewhere`.
pub fn open_apart(
    env: &Env,
    (dir, elsewhere): (&str, &'static str),
    open: impl FnOnce() -> io::Result<()> + Send + 'static,
) {
    let of = dir.to_string();
    let without = move |dir: &str, e: &io::Error| {
        tracing::warn!("no cache on disk: {dir}: {e}: what is read comes from {elsewhere}");
    };
    let job = move || {
        let _ = open().inspect_err(|e| without(&of, e));
    };
    match env.run_apart("lee-cache-open", OPEN_WAIT, job) {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!("the cache in {dir} does not answer: it is done without until it does");
        }
        Err(e) => without(dir, &e),
    }
}

/// A cache on disk. Its threads end when it is dropped.
pub struct DiskCache<K: Key>(Arc<Core<K>>);

type Entries<K> = Cache<K, PartPosition<K>, UnitWeighter, BuildHasherDefault<FxHasher>, Freed>;

struct Core<K: Key> {
    env: Env,
    /// Name of the cache, for messages.
    name: String,
    files: Files,
    entries: Entries<K>,
    free: Freed,
    /// Held while a part is inserted.
    adding: Mutex<()>,
    queue: Mutex<Queue<K>>,
    work: Condvar,
    health: Mutex<Health>,
    hits: AtomicU64,
    misses: AtomicU64,
    bad: AtomicU64,
    written_bytes: AtomicU64,
}

/// Empty slots: those of entries that leave come back.
#[derive(Clone, Default)]
struct Freed(Arc<Mutex<Vec<u32>>>);

impl<K: Key> Lifecycle<K, PartPosition<K>> for Freed {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: K, place: PartPosition<K>) {
        self.0.lock().push(place.slot);
    }
}

/// Takes what was read.
type ToReader = SyncSender<io::Result<AlignedBuf>>;

struct Queue<K> {
    reads: VecDeque<(Vec<PartPosition<K>>, ToReader)>,
    writes: VecDeque<(K, AlignedBuf)>,
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

impl<K: Key> DiskCache<K> {
    /// A cache of up to `bytes` bytes in the root of `disk`, called `name` in messages. It begins
    /// with the parts that a cache of the same thing, which `of` names, left there. The caller
    /// makes sure that nobody else uses the directory.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(
        env: &Env,
        disk: &dyn Disk,
        (name, of): (&str, &str),
        form: Form,
        bytes: u64,
    ) -> io::Result<DiskCache<K>> {
        let slots =
            (bytes.max(DISK_CACHE_BYTES_MIN) / form.part_bytes as u64).min(u64::from(u32::MAX / 2)) as u32;
        let (files, found) = Files::open(disk, of, form, slots)?;
        let free = Freed::default();
        let capacity = slots as usize - SLOTS_SPARE;
        let hasher = BuildHasherDefault::default();
        let entries = Cache::with(capacity, capacity as u64, UnitWeighter, hasher, free.clone());
        let mut used = vec![false; slots as usize];
        for place in found {
            used[place.slot as usize] = true;
            add(&entries, &free, place.part, place);
        }
        free.0.lock().extend((0..slots).rev().filter(|slot| !used[*slot as usize]));
        let core = Arc::new(Core {
            env: env.clone(),
            name: name.into(),
            files,
            entries,
            free,
            adding: Mutex::default(),
            queue: Mutex::new(Queue {
                reads: VecDeque::new(),
                writes: VecDeque::new(),
                writing: 0,
                closed: false,
            }),
            work: Condvar::new(),
            health: Mutex::default(),
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
            bytes: core.entries.len() as u64 * core.files.part_bytes as u64,
            bytes_max: core.entries.capacity() * core.files.part_bytes as u64,
            written_bytes: core.written_bytes.load(Ordering::Relaxed),
            resting: now < health.reads_at || now < health.writes_at,
        }
    }

    /// Reads parts of these lengths, one after the other, if the cache has all of them. The caller
    /// must verify them.
    pub fn read(&self, parts: &[(K, usize)]) -> Option<AlignedBuf> {
        let core = &*self.0;
        let find = |(part, len): &(K, usize)| core.entries.get(part).filter(|p| p.len as usize == *len);
        let found: Option<Vec<PartPosition<K>>> = parts.iter().map(find).collect();
        let read = found.and_then(|places| core.read(places));
        let count = if read.is_some() { &core.hits } else { &core.misses };
        count.fetch_add(parts.len() as u64, Ordering::Relaxed);
        read
    }

    /// Length of a part, if the cache has it.
    pub fn len_of(&self, part: K) -> Option<usize> {
        self.0.entries.peek(&part).map(|place| place.len as usize)
    }

    /// The key as it was when the part was kept, if the cache has it.
    pub fn kept_as(&self, part: K) -> Option<K> {
        self.0.entries.peek(&part).map(|place| place.part)
    }

    /// Drops parts that were read with wrong content.
    pub fn forget(&self, parts: &[(K, usize)]) {
        for (part, _) in parts {
            // a part that has left meanwhile may have been overwritten while it was read
            if let Some((_, place)) = self.0.entries.remove(part) {
                self.0.free.0.lock().push(place.slot);
                self.0.bad.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Keeps a part, of at most as many bytes as one may have, in whole blocks, if there is time
    /// for it. One that is there already stays.
    pub fn keep(&self, part: K, bytes: &[u8]) {
        let core = &*self.0;
        let is_there = |kept: PartPosition<K>| kept.part.encode() == part.encode();
        if core.entries.peek(&part).is_some_and(is_there) || core.env.now() < core.health.lock().writes_at {
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
        let left = |queue: &Queue<K>| queue.writing + queue.writes.len();
        while left(&self.0.queue.lock()) > 0 {
            self.0.env.sleep(Duration::from_millis(1));
        }
    }
}

impl<K: Key> Drop for DiskCache<K> {
    fn drop(&mut self) {
        self.0.queue.lock().closed = true;
        self.0.work.notify_all();
    }
}

/// Inserts a part, in place of its earlier entry.
fn add<K: Key>(entries: &Entries<K>, free: &Freed, part: K, place: PartPosition<K>) {
    if let Some((_, before)) = entries.remove(&part) {
        free.0.lock().push(before.slot);
    }
    entries.insert(part, place);
}

impl<K: Key> Core<K> {
    fn read(&self, places: Vec<PartPosition<K>>) -> Option<AlignedBuf> {
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

    fn add(&self, part: K, bytes: &[u8]) {
        let free = self.free.0.lock().pop();
        let Some(slot) = free.filter(|_| self.env.now() >= self.health.lock().writes_at) else {
            self.free.0.lock().extend(free);
            return;
        };
        match self.files.write(part, slot, bytes) {
            Ok(()) => {
                self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                let _alone = self.adding.lock();
                add(&self.entries, &self.free, part, PartPosition { slot, len: bytes.len() as u32, part });
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
                "the cache in {name} fails ({why}): it is gone around, and tried every half minute"
            );
        }
    }

    fn worked(&self) {
        if std::mem::replace(&mut self.health.lock().failing, false) {
            tracing::warn!("the cache in {} works again", self.name);
        }
    }
}
