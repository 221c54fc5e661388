//! How fast a directory stores and reads segments, and what that does to somebody else's small
//! durable write.
//!
//!     cargo run --release -p leeward-pool --example store_probe -- DIR
//!
//! Puts 48 objects of 16 MiB (removing old ones: 128 MiB at a time), then reads them in 256 KiB
//! ranges, while a probe creates a file of 64 kB and syncs it every 10 ms.
#![allow(clippy::disallowed_methods)] // a measurement

use leeward_env::Ctx;
use leeward_env::disk::real::RealDisk;
use leeward_pool::{AlignedBuf, DirStore, Store, contract};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PUTS: u64 = 48;
const KEPT: u64 = 8;
const OBJECT_BYTES: usize = 16 << 20;

type Times = Vec<Duration>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn probe(dir: &Path, stop: &AtomicBool) -> Result<Times, Failure> {
    let mut times = Vec::new();
    let path = dir.join("probe");
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        std::fs::write(&path, vec![1; 64_000])?;
        std::fs::File::open(&path)?.sync_all()?;
        times.push(start.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(times)
}

fn probed(
    dir: &Path,
    what: &str,
    bytes: u64,
    work: impl FnOnce() -> Result<Times, Failure>,
) -> Result<(), Failure> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let prober = scope.spawn(|| probe(dir, &stop));
        let start = Instant::now();
        let times = work();
        let mb_per_s = bytes as f64 / 1e6 / start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let probes = prober.join().map_err(|_| "the probe panicked")??;
        println!("{what}: {mb_per_s:.0} MB/s; a call {}; probe {}", summary(times?), summary(probes));
        Ok(())
    })
}

fn summary(mut times: Times) -> String {
    times.sort();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    format!("p50 {:.2?} p99 {:.2?}", at(0.5), at(0.99))
}

fn main() -> Result<(), Failure> {
    let parent = std::env::args().nth(1).ok_or("which directory?")?;
    let dir = tempfile::tempdir_in(parent)?;
    let store = DirStore::new(Arc::new(RealDisk::open(dir.path()).expect("a directory")), "pool");
    let ctx = Ctx::system();
    probed(dir.path(), "quiet", 0, || {
        std::thread::sleep(Duration::from_secs(1));
        Ok(Vec::new())
    })?;
    probed(dir.path(), "put", PUTS * OBJECT_BYTES as u64, || {
        let whole = contract::body(1, OBJECT_BYTES);
        let mut times = Vec::new();
        for segment in 0..PUTS {
            let start = Instant::now();
            store.put(&ctx, contract::id(segment, 0), &whole)?;
            times.push(start.elapsed());
            store.delete(&ctx, contract::id(segment.wrapping_sub(KEPT), 0))?;
        }
        Ok(times)
    })?;
    probed(dir.path(), "get 256 KiB", KEPT * OBJECT_BYTES as u64, || {
        let mut buf = AlignedBuf::zeroed(256 << 10);
        let mut times = Vec::new();
        for segment in PUTS - KEPT..PUTS {
            for offset in (0..OBJECT_BYTES).step_by(buf.len()) {
                let start = Instant::now();
                store.get(&ctx, contract::id(segment, 0), offset as u64, &mut buf)?;
                times.push(start.elapsed());
            }
        }
        Ok(times)
    })?;
    Ok(())
}
