//! What a layout costs: the processor's part (cutting up and computing pieces), and the throughput
//! over directories of one disk, against `single` there.
//!
//!     cargo run --release -p leeward-pool --example layout_bench -- DIR [LAYOUT] [ROUNDS]
//!
//! Throughput is per raw byte: parity and heads count as written. Reads are in ranges of 4 KiB
//! (random) and of 256 KiB (one after another), also with as many stores dead as may be.
#![allow(clippy::disallowed_methods)] // a measurement

use leeward_env::disk::real::RealDisk;
use leeward_env::{Ctx, Env};
use leeward_pool::contract::{body, id};
use leeward_pool::{
    AlignedBuf, Chance, DirStore, FaultyStore, Layout, Member, Pool, PoolSpec, Store, StoreFault, StoreSpec,
    StoreState, assemble, bench,
};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OBJECT_BYTES: usize = 16 << 20;
const OBJECTS: u64 = 24;
const SMALL_READS: u64 = 2000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Made {
    pool: Arc<dyn Pool>,
    faulty: Vec<Arc<FaultyStore>>,
    _dir: tempfile::TempDir,
}

fn make(parent: &Path, layout: Layout) -> Result<Made, Failure> {
    let dir = tempfile::tempdir_in(parent)?;
    let mut faulty = Vec::new();
    for slot in 0..layout.pieces() {
        let store = dir.path().join(slot.to_string());
        std::fs::create_dir(&store)?;
        faulty.push(Arc::new(FaultyStore::new(Arc::new(DirStore::new(
            Arc::new(RealDisk::open(store).expect("a directory")),
            "",
        )))));
    }
    let store = |slot: usize| StoreSpec {
        slot: slot as u16,
        id: format!("{slot:032x}"),
        url: slot.to_string(),
        state: StoreState::Active,
    };
    let stores = (0..layout.pieces()).map(store).collect();
    let spec = PoolSpec { id: 1, name: "bench".into(), layout, stores };
    let members = faulty.iter().map(|store| Member::Open(store.clone())).collect();
    Ok(Made {
        pool: assemble(&Env::real(), &Arc::default(), &spec, members, |_, _| true)?,
        faulty,
        _dir: dir,
    })
}

fn raw_mb_per_s(made: &Made, whole: &AlignedBuf) -> Result<f64, Failure> {
    let ctx = Ctx::user(0, 0);
    let start = Instant::now();
    for segment in 0..OBJECTS {
        made.pool.put(&ctx, id(segment, 0), whole)?;
    }
    let took = start.elapsed().as_secs_f64();
    let mut raw = 0;
    for store in &made.faulty {
        raw += store.list(&ctx)?.iter().map(|(_, len)| len).sum::<u64>();
    }
    Ok(raw as f64 / 1e6 / took)
}

fn small_reads(made: &Made, whole: &[u8]) -> Result<(Duration, Duration), Failure> {
    let ctx = Ctx::user(0, 0);
    let mut times = Vec::new();
    let mut buf = AlignedBuf::zeroed(4096);
    for n in 0..SMALL_READS {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let offset = (mixed >> 20) % (OBJECT_BYTES as u64 / 4096) * 4096;
        let start = Instant::now();
        made.pool.get(&ctx, id(mixed % OBJECTS, 0), offset, &mut buf)?;
        times.push(start.elapsed());
        assert!(buf[..] == whole[offset as usize..offset as usize + 4096]);
    }
    times.sort();
    Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
}

/// In ranges of 256 KiB, one after another.
fn large_reads(made: &Made) -> Result<f64, Failure> {
    let mut buf = AlignedBuf::zeroed(256 << 10);
    let start = Instant::now();
    for segment in 0..OBJECTS {
        for offset in (0..OBJECT_BYTES).step_by(buf.len()) {
            made.pool.get(&Ctx::user(0, 0), id(segment, 0), offset as u64, &mut buf)?;
        }
    }
    Ok((OBJECTS * OBJECT_BYTES as u64) as f64 / 1e6 / start.elapsed().as_secs_f64())
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let parent = args.next().ok_or("which directory?")?;
    let layout: Layout = args.next().unwrap_or_else(|| "erasure(11+3)".into()).parse()?;
    let rounds: usize = args.next().map_or(Ok(3), |n| n.parse())?;
    let whole = body(1, OBJECT_BYTES);
    for line in bench::processor(layout, &whole) {
        println!("{line}");
    }
    for _ in 0..rounds {
        for of in [Layout::Single, layout] {
            let made = make(Path::new(&parent), of)?;
            let write = raw_mb_per_s(&made, &whole)?;
            let (p50, p99) = small_reads(&made, &whole)?;
            let read = large_reads(&made)?;
            println!(
                "{of}: write {write:.0} raw MB/s; 4 KiB read p50 {p50:.0?} p99 {p99:.0?}; read {read:.0} MB/s"
            );
            if of.parity() > 0 {
                for store in &made.faulty[..of.parity()] {
                    store.set(StoreFault::GetFails, Chance::PerMille(1000));
                }
                let (p50, p99) = small_reads(&made, &whole)?;
                let read = large_reads(&made)?;
                let dead = of.parity();
                println!("  {dead} stores dead: 4 KiB read p50 {p50:.0?} p99 {p99:.0?}; read {read:.0} MB/s");
            }
        }
    }
    Ok(())
}
