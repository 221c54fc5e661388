//! Measures the engine on a directory: `kvbench DIR [records]`.
//!
//! 1. the journal alone: durable appends with 64 KiB of inline data, written direct and buffered;
//! 2. durable commits with inline data, with maintenance beside them;
//! 3. loading `records` (10 million unless said) at 5,000 a commit, with maintenance beside it;
//! 4. reads of what is there and what is not, scans, opening again, and again after a kill.
#![allow(clippy::disallowed_methods)]

use leeward_env::Env;
use leeward_env::disk::Caching;
use leeward_env::disk::real::RealDisk;
use leeward_meta::lsm::{LsmKv, Options};
use leeward_meta::{Batch, InlineData, Kv};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("usage: kvbench DIR [records]"));
    let records: u64 = args.next().map_or(10_000_000, |n| n.parse().expect("a number"));
    for caching in [Caching::Buffered, Caching::Direct] {
        inline_data(&dir.join(format!("{caching:?}")), caching);
    }
    let dir = dir.join("load");
    load(&dir, records);
    reads(&dir, records);
}

fn open(dir: &Path, caching: Caching) -> LsmKv {
    std::fs::create_dir_all(dir).expect("mkdir");
    let mut options = Options::default();
    options.engine.journal.caching = caching;
    let disk = Arc::new(RealDisk::open(dir).expect("a directory"));
    let start = Instant::now();
    let kv = LsmKv::open(Env::real(), disk, &dir.join("tables"), options).expect("open");
    println!("  open: {:.1?}, RSS {} MB", start.elapsed(), rss() >> 20);
    kv
}

fn rss() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * 4096)
}

struct Times(Vec<Duration>);

impl Times {
    fn print(mut self, what: &str) {
        self.0.sort_unstable();
        let at = |q: f64| self.0[((self.0.len() - 1) as f64 * q) as usize];
        println!(
            "  {what}: n {}, p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}, max {:.1?}",
            self.0.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
}

fn timed(times: &mut Times, f: impl FnOnce()) {
    let start = Instant::now();
    f();
    times.0.push(start.elapsed());
}

/// Runs `f` with maintenance threads beside it.
fn maintained(kv: &LsmKv, f: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let maintainers = std::env::var("MAINTAINERS").map_or(1, |n| n.parse().expect("a number"));
    std::thread::scope(|threads| {
        for _ in 0..maintainers {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if !kv.maintain().expect("maintain") {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
        f();
        done.store(true, Ordering::Relaxed);
    });
}

fn inline_batch(i: u64) -> Batch {
    let inline =
        InlineData { segment: i / 200, offset: 0, owner: (1, i, 0), bytes: vec![i as u8; 64 << 10].into() };
    let writes = (0..3).map(|tag| record(i * 3 + tag)).collect();
    Batch { writes, inline_data: vec![inline] }
}

fn inline_data(dir: &Path, caching: Caching) {
    println!("durable commits with 64 KiB of inline data, {caching:?}, every 2 ms and without pause");
    let kv = open(dir, caching);
    for pause in [2, 0] {
        let mut times = Times(Vec::new());
        maintained(&kv, || {
            for i in 0..3000 {
                let batch = inline_batch(i);
                timed(&mut times, || kv.commit(&batch).expect("commit"));
                if i % 200 == 199 {
                    kv.release_inline((i / 200).saturating_sub(2));
                }
                std::thread::sleep(Duration::from_millis(pause));
            }
            (0..16).for_each(|segment| kv.release_inline(segment));
        });
        times.print(&format!("pause {pause} ms"));
    }
    drop(kv);
    std::fs::remove_dir_all(dir).expect("remove");
}

/// Keys as the file system has them: directories of 100 files, names and inodes; 110 to 180 bytes
/// in all.
fn record(i: u64) -> (Arc<[u8]>, Option<Arc<[u8]>>) {
    let mut key = vec![0, 0, 0, 1];
    let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if i.is_multiple_of(2) {
        key.extend((i / 2).to_be_bytes());
        key.push(1);
        let mut value = vec![0; 96];
        value[..8].copy_from_slice(&mixed.to_le_bytes());
        value[40..48].copy_from_slice(&(mixed >> 7).to_le_bytes());
        (key.into(), Some(value.into()))
    } else {
        key.extend((i / 200).to_be_bytes());
        key.push(2);
        key.extend(format!("result-{:016x}-{}.dat", mixed, i % 100).as_bytes());
        (key.into(), Some(i.to_be_bytes().to_vec().into()))
    }
}

fn load(dir: &Path, records: u64) {
    println!("load of {records} records, 5,000 a commit");
    let kv = open(dir, Caching::Direct);
    let (mut times, mut bytes, mut peak) = (Times(Vec::new()), 0, 0);
    let start = Instant::now();
    maintained(&kv, || {
        for first in (0..records).step_by(5000) {
            let writes: Vec<_> = (first..first + 5000).map(record).collect();
            bytes += writes.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, |v| v.len())).sum::<usize>();
            let batch = Batch { writes, inline_data: Vec::new() };
            timed(&mut times, || kv.commit(&batch).expect("commit"));
            if first % 500_000 == 0 {
                peak = peak.max(rss());
            }
        }
    });
    let spent = start.elapsed();
    println!(
        "  {:.0} records/s, {:.0} MB, peak RSS {} MB",
        records as f64 / spent.as_secs_f64(),
        bytes as f64 / 1e6,
        peak >> 20
    );
    times.print("commit of 5,000");
    let start = Instant::now();
    while kv.maintain().expect("maintain") {}
    let stats = kv.stats();
    println!(
        "  settled {:.1?} later: {stats:?}, tables per level {:?}",
        start.elapsed(),
        kv.tables().shape()
    );
    println!(
        "  written per byte {:.2}, on disk per byte {:.2}",
        stats.written_bytes as f64 / bytes as f64,
        stats.table_bytes as f64 / bytes as f64
    );
    paced(&kv, records);
}

/// Small commits at a modest rate on the loaded tree: what a busy file system does.
fn paced(kv: &LsmKv, records: u64) {
    let mut times = Times(Vec::new());
    let mut gets = Times(Vec::new());
    maintained(kv, || {
        let start = Instant::now();
        for i in 0..4000u64 {
            let first = records + i * 100;
            let batch = Batch { writes: (first..first + 100).map(record).collect(), inline_data: Vec::new() };
            timed(&mut times, || kv.commit(&batch).expect("commit"));
            let (key, _) = record(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % records);
            timed(&mut gets, || assert!(kv.get(&key).expect("get").is_some()));
            let due = Duration::from_micros(5000 * i);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
    });
    times.print("commit of 100 every 5 ms");
    gets.print("a get after each");
}

fn reads(dir: &Path, records: u64) {
    println!("reads");
    let kv = open(dir, Caching::Direct);
    let pick = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % records;
    for (what, hot) in [("get present, anywhere", records), ("get present, of 10,000", 10_000)] {
        let mut times = Times(Vec::new());
        for i in 0..100_000 {
            let (key, _) = record(pick(i) % hot);
            timed(&mut times, || assert!(kv.get(&key).expect("get").is_some()));
        }
        times.print(what);
    }
    let mut times = Times(Vec::new());
    for i in 0..100_000 {
        let (key, _) = record(pick(i));
        let absent = [&key, &b"x"[..]].concat();
        timed(&mut times, || assert!(kv.get(&absent).expect("get").is_none()));
    }
    times.print("get absent");
    let mut times = Times(Vec::new());
    for i in 0..2000 {
        let (from, _) = record(pick(i));
        timed(&mut times, || drop(kv.scan(&from, &[0xff; 8], 1000, false).expect("scan")));
    }
    times.print("scan of 1,000");
    println!("  RSS {} MB", rss() >> 20);
    // leave a full journal, as a kill would
    for i in 0..1000 {
        let batch = Batch { writes: (i * 400..i * 400 + 400).map(record).collect(), inline_data: Vec::new() };
        kv.commit(&batch).expect("commit");
    }
    drop(kv);
    println!("after 400,000 records without maintenance");
    drop(open(dir, Caching::Direct));
}
