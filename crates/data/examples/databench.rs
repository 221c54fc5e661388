//! Measures the data log on a real directory: `databench DIR [MiB]`.
//!
//! Prints rates of sealing alone (no store), append and put of noise and of text, cold sequential
//! reads, and small random reads. The directory's files are removed.
#![allow(clippy::disallowed_methods)]

use leeward_data::{Addr, Catalog, Compression, DataLog, Object, Options, Owner, PoolId, SegmentInfo};
use leeward_env::disk::Space;
use leeward_env::disk::real::RealDisk;
use leeward_env::{Ctx, Env};
use leeward_pool::{AlignedBuf, DirStore, ObjectId, Result, Store};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const APPEND_BYTES: usize = 1 << 20;

/// Swallows objects: what remains is the log's own cost.
struct Nowhere;

impl Store for Nowhere {
    fn put(&self, _: &Ctx, _: ObjectId, _: &AlignedBuf) -> Result<()> {
        Ok(())
    }
    fn get(&self, _: &Ctx, id: ObjectId, _: u64, _: &mut [u8]) -> Result<()> {
        Err(leeward_pool::Error::NotFound(id))
    }
    fn len(&self, _: &Ctx, id: ObjectId) -> Result<u64> {
        Err(leeward_pool::Error::NotFound(id))
    }
    fn settle(&self, _: &Ctx, _: ObjectId) -> Result<()> {
        Ok(())
    }

    fn delete(&self, _: &Ctx, _: ObjectId) -> Result<()> {
        Ok(())
    }
    fn list(&self, _: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        Ok(Vec::new())
    }
    fn space(&self) -> Result<Space> {
        Ok(Space::default())
    }
}

#[derive(Default)]
struct Numbers {
    next: AtomicU64,
    sealed: Mutex<BTreeMap<u64, SegmentInfo>>,
}

impl Catalog for Numbers {
    fn allocate_segment(&self, _: u32, _: PoolId) -> leeward_data::Result<u64> {
        Ok(self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }
    fn unused(&self, _: u64) {}
    fn goes_elsewhere(&self, _: u64, _: u64) -> bool {
        false
    }
    fn object(&self, segment: u64) -> Option<Object> {
        self.sealed.lock().ok()?.get(&segment).map(|i| i.object)
    }
    fn sealed(&self, info: SegmentInfo) {
        self.sealed.lock().expect("no panic").insert(info.object.segment, info);
    }
}

struct Bench {
    log: Arc<DataLog>,
    catalog: Arc<Numbers>,
    store: Arc<dyn Store>,
}

impl Bench {
    fn new(store: Arc<dyn Store>, options: Options, catalog: Arc<Numbers>) -> Bench {
        let log = DataLog::new(Env::real(), store.clone(), options);
        let weak: std::sync::Weak<dyn Catalog> = Arc::downgrade(&(catalog.clone() as Arc<dyn Catalog>));
        log.attach(weak);
        Bench { log, catalog, store }
    }

    fn append(&self, data: &[u8], mib: usize) -> Vec<Addr> {
        let ctx = Ctx::user(1, 1);
        let append = |n: usize| {
            let at = (n * APPEND_BYTES) % (data.len() - APPEND_BYTES);
            let owner = Owner { volume: 1, inode: 1, offset: (n * APPEND_BYTES) as u64 };
            let addr = self.log.append(&ctx, 0, owner, &data[at..at + APPEND_BYTES]).expect("room");
            self.log.unhold(addr.segment);
            addr
        };
        (0..mib).map(append).collect()
    }

    fn remove(&self) {
        for info in self.catalog.sealed.lock().expect("no panic").values() {
            self.store.delete(&Ctx::system(), info.object.id()).expect("deletable");
        }
    }
}

fn rate(what: &str, bytes: usize, start: Instant) {
    let s = start.elapsed().as_secs_f64();
    println!("{what:<44} {:>8.2} GB/s  ({:.2} s)", bytes as f64 / s / 1e9, s);
}

fn xorshift(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

fn noise(len: usize) -> Vec<u8> {
    let mut x = 88_172_645_463_325_252;
    (0..len / 8).flat_map(|_| xorshift(&mut x).to_le_bytes()).collect()
}

/// Log lines: words, numbers, repetition.
fn text(len: usize) -> Vec<u8> {
    let mut x = 88_172_645_463_325_252;
    let mut v = Vec::with_capacity(len + 200);
    while v.len() < len {
        let n = xorshift(&mut x);
        let line = format!(
            "event={} run={} energy={}.{} GeV status=ok detector={}\n",
            n % 99_991,
            n % 300,
            n % 1000,
            n % 977,
            n % 12
        );
        v.extend_from_slice(line.as_bytes());
    }
    v.truncate(len);
    v
}

/// `step` on this thread only: lay-out, compression and checksums of full segments on one core.
fn sealing(what: &str, data: &[u8], mib: usize, compression: Compression) {
    let options = Options { put_threads: 0, dirty_bytes: 1 << 30, compression, ..Options::default() };
    let bench = Bench::new(Arc::new(Nowhere), options, Arc::default());
    let (mut append_ns, mut seal_ns) = (0, 0);
    for _ in 0..mib / 16 {
        let start = Instant::now();
        bench.append(data, 16);
        append_ns += start.elapsed().as_nanos();
        bench.log.seal_flow(Ctx::user(1, 1).flow);
        let start = Instant::now();
        while bench.log.step() {}
        seal_ns += start.elapsed().as_nanos();
    }
    let gbs = |ns: u128| (mib << 20) as f64 / ns as f64;
    println!("{what:<30} append {:>6.2} GB/s, sealing {:>6.2} GB/s", gbs(append_ns), gbs(seal_ns));
}

/// As `tar` writes: many files of 1 KiB, each its own chunk; appends and lay-out on this thread.
fn small_files(text: &[u8]) {
    const FILES: usize = 200_000;
    let options = Options { put_threads: 0, dirty_bytes: 1 << 30, ..Options::default() };
    let bench = Bench::new(Arc::new(Nowhere), options, Arc::default());
    let start = Instant::now();
    for n in 0..FILES {
        let owner = Owner { volume: 1, inode: n as u64, offset: 0 };
        let at = n * 1024 % (text.len() - 1024);
        let addr = bench.log.append(&Ctx::user(1, 1), 0, owner, &text[at..at + 1024]).expect("room");
        bench.log.unhold(addr.segment);
    }
    let appended = start.elapsed().as_secs_f64();
    bench.log.close().expect("stored");
    let sealed = start.elapsed().as_secs_f64() - appended;
    println!(
        "files of 1 KiB: {:.0} appends/s, {:.0}/s laid out",
        FILES as f64 / appended,
        FILES as f64 / sealed
    );
}

fn on_disk(dir: &str, what: &str, data: &[u8], mib: usize) {
    let store: Arc<dyn Store> =
        Arc::new(DirStore::new(Arc::new(RealDisk::open(dir).expect("a directory")), "databench"));
    let bench = Bench::new(store.clone(), Options::default(), Arc::default());
    let start = Instant::now();
    let addrs = bench.append(data, mib);
    bench.log.close().expect("stored");
    rate(&format!("{what}: append + put"), mib << 20, start);
    println!("{what}: {:.2} of its size in the store", bench.log.written_bytes() as f64 / (mib << 20) as f64);
    for (size, label) in [(1 << 20, "1 MiB"), (128 << 10, "128 KiB")] {
        let cold = Bench::new(store.clone(), Options::default(), bench.catalog.clone());
        let mut buf = AlignedBuf::zeroed(size);
        let start = Instant::now();
        for addr in &addrs {
            for offset in (0..1u32 << 20).step_by(size) {
                let addr = Addr { offset: addr.offset + offset, ..*addr };
                cold.log.read(&Ctx::user(1, 1), addr, &mut buf).expect("readable");
            }
        }
        rate(&format!("{what}: cold reads of {label}, one thread"), mib << 20, start);
    }
    random_reads(&bench, &store, what, &addrs);
    bench.remove();
}

fn random_reads(bench: &Bench, store: &Arc<dyn Store>, what: &str, addrs: &[Addr]) {
    const READS: u64 = 20_000;
    let options = Options { cache_bytes: 32 << 20, ..Options::default() };
    let cold = Bench::new(store.clone(), options, bench.catalog.clone());
    let mut x = 99;
    let mut buf = [0; 4096];
    let start = Instant::now();
    for _ in 0..READS {
        let at = addrs[xorshift(&mut x) as usize % addrs.len()];
        let addr = Addr { offset: at.offset + (xorshift(&mut x) as u32 % 1_044_480), ..at };
        cold.log.read(&Ctx::user(1, 1), addr, &mut buf).expect("readable");
    }
    let s = start.elapsed().as_secs_f64();
    println!("{what}: random 4 KiB reads, mostly cold {:>20.0} /s", READS as f64 / s);
    let hot = addrs[0];
    let start = Instant::now();
    for _ in 0..10 * READS {
        let addr = Addr { offset: hot.offset + (xorshift(&mut x) as u32 % 1_044_480), ..hot };
        cold.log.read(&Ctx::user(1, 1), addr, &mut buf).expect("readable");
    }
    let s = start.elapsed().as_secs_f64();
    println!("{what}: random 4 KiB reads, cached {:>25.0} /s", 10.0 * READS as f64 / s);
}

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(dir) = args.next() else {
        eprintln!("usage: databench DIR [MiB]");
        std::process::exit(2);
    };
    let mib: usize = args.next().and_then(|a| a.parse().ok()).unwrap_or(512);
    let (noise, text) = (noise(64 << 20), text(64 << 20));
    sealing("noise", &noise, mib, Compression::Lz4);
    sealing("noise, no compression", &noise, mib, Compression::None);
    sealing("text", &text, mib, Compression::Lz4);
    small_files(&text);
    on_disk(&dir, "noise", &noise, mib);
    on_disk(&dir, "text", &text, mib);
}
