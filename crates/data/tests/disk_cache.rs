//! The cache on a local disk: what is in it is used, nothing in it is believed, and whatever its
//! disk does, reads are right.
#![allow(clippy::disallowed_methods)]

use crate::support;
use crate::support::{Appends, Random, Rig, TestStore, ctx, owner};
use leeward_data::{Addr, DISK_CACHE_BYTES_MIN, DiskCache, Options};
use leeward_env::Env;
use leeward_env::disk::real::RealDisk;
use leeward_env::disk::{Caching, Disk, DiskFile, Space};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const CELL: &str = "53d8c6e75f553823335350d20a7fb413";

fn options() -> Options {
    Options { put_threads: 2, cache_bytes: 1 << 20, ..support::options() }
}

fn open(disk: &dyn Disk) -> Arc<DiskCache> {
    let cache = DiskCache::open(&Env::real(), disk, "a test", CELL, DISK_CACHE_BYTES_MIN).expect("a cache");
    cache.serve(0, true);
    Arc::new(cache)
}

/// A store with some segments, some of it text.
fn filled() -> (Rig, Vec<(Addr, Vec<u8>)>) {
    let rig = Rig::over(TestStore::new(), options());
    let mut random = Random(7);
    let mut written = Vec::new();
    for n in 0..40u64 {
        let len = 1 + random.below(200_000) as usize;
        let bytes = if n % 2 == 0 { random.noise(len) } else { random.text(len) };
        written.push((rig.log.write(&ctx(1), owner(n, 0), &bytes).expect("a write"), bytes));
    }
    rig.log.close().expect("stored");
    (rig, written)
}

/// Reads everything with nothing in memory; how often the store was asked.
fn read_all(rig: &Rig, written: &[(Addr, Vec<u8>)], cache: &Arc<DiskCache>) -> usize {
    let rig = rig.reopened(options());
    rig.log.use_disk_cache(cache.clone());
    let before = rig.store.gets.load(Ordering::Relaxed);
    for (addr, bytes) in written {
        let mut read = vec![0; bytes.len()];
        rig.log.read(&ctx(2), *addr, &mut read).expect("a read");
        assert!(read == *bytes, "{addr:?}");
        let from = bytes.len() / 3;
        let mut part = vec![0; (bytes.len() - from).min(5000)];
        let at = Addr { offset: addr.offset + from as u32, ..*addr };
        rig.log.read(&ctx(2), at, &mut part).expect("a read");
        assert!(part == bytes[from..from + part.len()], "{addr:?}");
    }
    cache.settle();
    rig.log.close().expect("nothing to store");
    rig.store.gets.load(Ordering::Relaxed) - before
}

#[test]
fn what_was_read_is_there_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let (rig, written) = filled();
    let cache = open(&RealDisk::open(dir.path()).expect("a directory"));
    assert!(read_all(&rig, &written, &cache) > 10);
    assert_eq!(read_all(&rig, &written, &cache), 0, "all of it was kept");
    drop(cache);
    let cache = open(&RealDisk::open(dir.path()).expect("a directory"));
    assert_eq!(read_all(&rig, &written, &cache), 0, "it is still there");
    let f = cache.figures();
    assert!(f.hits > 10 && f.misses == 0 && f.bad == 0 && f.bytes > 0 && f.written_bytes == 0, "{f:?}");
    drop(cache);
    // of another cell nothing is taken
    let other = DiskCache::open(
        &Env::real(),
        &RealDisk::open(dir.path()).expect("a directory"),
        "x",
        "another",
        1 << 20,
    )
    .expect("a cache");
    assert_eq!(other.figures().bytes, 0);
}

#[test]
fn pools_that_are_near_are_not_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let (rig, written) = filled();
    let cache = open(&RealDisk::open(dir.path()).expect("a directory"));
    cache.serve(0, false);
    assert!((0..2).all(|_| read_all(&rig, &written, &cache) > 10));
    assert_eq!(cache.figures().bytes, 0);
}

fn damage(file: &Path, seed: u64) {
    let mut bytes = std::fs::read(file).expect("a file");
    let mut random = Random(seed);
    for _ in 0..bytes.len() / 1000 {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
    }
    std::fs::write(file, bytes).expect("a file");
}

#[test]
fn damage_is_found_and_read_from_the_store() {
    let (rig, written) = filled();
    for (seed, file) in [(1, "leeward.blocks"), (2, "leeward.index"), (3, "leeward.blocks")] {
        let dir = tempfile::tempdir().expect("a directory");
        read_all(&rig, &written, &open(&RealDisk::open(dir.path()).expect("a directory")));
        damage(&dir.path().join(file), seed);
        let cache = open(&RealDisk::open(dir.path()).expect("a directory"));
        assert!(read_all(&rig, &written, &cache) > 0, "{file}");
        assert!(file != "leeward.blocks" || cache.figures().bad > 0);
        // what is fetched together differs from pass to pass
        let good = (0..9).any(|_| read_all(&rig, &written, &cache) == 0);
        assert!(good, "{file}: it was not put in order");
    }
    // what is in the slots is not what the index says
    let dir = tempfile::tempdir().expect("a directory");
    read_all(&rig, &written, &open(&RealDisk::open(dir.path()).expect("a directory")));
    let blocks = dir.path().join("leeward.blocks");
    let mut bytes = std::fs::read(&blocks).expect("a file");
    bytes.rotate_left(64 << 10);
    std::fs::write(&blocks, bytes).expect("a file");
    assert!(read_all(&rig, &written, &open(&RealDisk::open(dir.path()).expect("a directory"))) > 0);
}

#[test]
fn its_files_may_go_at_any_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let (rig, written) = filled();
    let cache = open(&RealDisk::open(dir.path()).expect("a directory"));
    read_all(&rig, &written, &cache);
    std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("leeward.blocks"))
        .expect("it")
        .set_len(0)
        .expect("cut");
    assert!(read_all(&rig, &written, &cache) > 0);
    assert!(cache.figures().errors > 0);
    for name in ["leeward.blocks", "leeward.index"] {
        std::fs::remove_file(dir.path().join(name)).expect("removed");
    }
    read_all(&rig, &written, &cache);
    drop(cache);
    assert!(read_all(&rig, &written, &open(&RealDisk::open(dir.path()).expect("a directory"))) > 0);
}

/// A disk that fails or hangs as told.
#[derive(Clone, Default)]
struct Told(Arc<State>);

#[derive(Default)]
struct State {
    reads: AtomicBool,
    writes: AtomicBool,
    hangs: Mutex<()>,
    asked: AtomicU64,
}

struct OnTold {
    disk: RealDisk,
    told: Told,
}

struct FileOnTold {
    file: Box<dyn DiskFile>,
    told: Told,
}

impl Told {
    fn ask(&self, fails: &AtomicBool) -> io::Result<()> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        drop(self.0.hangs.lock().expect("no panic"));
        if fails.load(Ordering::Relaxed) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn hang(&self) -> MutexGuard<'_, ()> {
        self.0.hangs.lock().expect("no panic")
    }
}

impl DiskFile for FileOnTold {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.told.ask(&self.told.0.reads)?;
        self.file.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.told.ask(&self.told.0.writes)?;
        self.file.write_at(offset, buf)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl OnTold {
    fn wrap(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(FileOnTold { file, told: self.told.clone() })
    }
}

impl Disk for OnTold {
    fn open(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap(self.disk.open(path, caching)?))
    }
    fn create(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap(self.disk.create(path, caching)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        self.disk.list(dir)
    }
    fn list_dirs(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list_dirs(dir)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn space(&self) -> io::Result<Space> {
        self.disk.space()
    }
}

#[test]
fn a_disk_that_fails_is_done_without() {
    let (rig, written) = filled();
    for reads in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let told = Told::default();
        let cache =
            open(&OnTold { disk: RealDisk::open(dir.path()).expect("a directory"), told: told.clone() });
        if reads {
            read_all(&rig, &written, &cache);
        }
        (if reads { &told.0.reads } else { &told.0.writes }).store(true, Ordering::Relaxed);
        assert!(read_all(&rig, &written, &cache) > 10);
        let f = cache.figures();
        assert!(f.errors > 0 && f.errors < 20 && f.resting, "it is left alone: {f:?}");
    }
}

#[test]
fn a_disk_that_hangs_is_done_without() {
    let (rig, written) = filled();
    let dir = tempfile::tempdir().expect("a directory");
    let told = Told::default();
    let cache = open(&OnTold { disk: RealDisk::open(dir.path()).expect("a directory"), told: told.clone() });
    read_all(&rig, &written, &cache);
    let hanging = told.hang();
    let before = told.0.asked.load(Ordering::Relaxed);
    let rig = rig.reopened(options());
    rig.log.use_disk_cache(cache.clone());
    for (addr, bytes) in &written {
        let mut read = vec![0; bytes.len()];
        rig.log.read(&ctx(2), *addr, &mut read).expect("a read");
        assert!(read == *bytes);
    }
    let asked = told.0.asked.load(Ordering::Relaxed) - before;
    assert!(asked <= 8, "each of {asked} reads of {} waited", written.len());
    assert!(cache.figures().resting);
    drop(hanging);
}

#[test]
fn it_stays_within_its_size_and_keeps_what_is_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::over(TestStore::new(), options());
    let mut random = Random(5);
    let mut written = Vec::new();
    // four times the cache
    for n in 0..64u64 {
        let bytes = random.noise(1 << 20);
        written.push((rig.log.write(&ctx(1), owner(n, 0), &bytes).expect("a write"), bytes));
    }
    rig.log.close().expect("stored");
    let cache = open(&RealDisk::open(dir.path()).expect("a directory"));
    for _ in 0..3 {
        read_all(&rig, &written[..4], &cache);
    }
    assert_eq!(read_all(&rig, &written[..4], &cache), 0);
    read_all(&rig, &written[4..], &cache);
    let f = cache.figures();
    assert!(f.bytes <= f.bytes_max && f.bytes_max <= DISK_CACHE_BYTES_MIN, "{f:?}");
    let blocks = std::fs::metadata(dir.path().join("leeward.blocks")).expect("a file").len();
    assert!(blocks <= DISK_CACHE_BYTES_MIN, "{blocks}");
    let asked = read_all(&rig, &written[..4], &cache);
    assert!(asked <= 4, "one pass over everything pushed out what was used: {asked}");
}
