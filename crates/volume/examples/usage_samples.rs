//! Measures what usage samples cost: `usage_samples DIR [VOLUMES] [USERS] [DAYS] [PERCENT]`.
//!
//! It makes a cell in DIR with so many volumes, writes the samples that so many days would have
//! left on which so many percent of the volumes and users changed, and then measures the tables,
//! one day's sampling, and what `lee report month` asks.
#![allow(clippy::disallowed_methods)]

use leeward_env::Env;
use leeward_env::disk::real::RealDisk;
use leeward_meta::lsm::{LsmKv, Options};
use leeward_meta::{Batch, Kv};
use leeward_volume::admin::{self, Day, Sampled, UsageReport};
use leeward_volume::format::keys;
use leeward_volume::format::samples::{
    Amounts, Chunk, SampleRecord, Sampled as Kind, SampledName, SampledNames, Samples, first_of_month,
};
use leeward_volume::{Cell, Config, Stored};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn main() {
    let mut args = std::env::args().skip(1);
    let dir =
        PathBuf::from(args.next().expect("usage: usage_samples DIR [VOLUMES] [USERS] [DAYS] [PERCENT]"));
    let mut number = |or: u64| args.next().map_or(or, |n| n.parse().expect("a number"));
    let (volumes, users, days, percent) = (number(73_000), number(10_000), number(730), number(10));
    let (env, config) = (Env::real(), Config::default());
    std::fs::create_dir_all(&dir).expect("a directory");
    Cell::create(&env, &dir, &config).expect("a cell");
    let begun = Instant::now();
    make_volumes(&env, &dir, &config, volumes);
    println!("{volumes} volumes made in {:.1?}", begun.elapsed());
    let before = table_bytes(&dir);
    let today = (env.wall() / 86_400_000_000_000) as u32;
    write_days(&dir, (Kind::Volume, volumes), (today - days as u32, today), percent);
    write_days(&dir, (Kind::User, users), (today - days as u32, today), percent);
    println!(
        "{days} days, {percent} % a day: {:.1} MB of tables",
        table_bytes(&dir).saturating_sub(before) as f64 / 1e6
    );
    let cell = Cell::open(&env, &dir, &config).expect("opened");
    let begun = Instant::now();
    let mut steps = 0;
    while cell.step().expect("a step") {
        steps += 1;
    }
    println!("a day's sampling beside other steps: {:.1?}, {steps} rounds", begun.elapsed());
    for round in 0..3 {
        let begun = Instant::now();
        month(&cell, Day(today));
        println!("what lee report month asks, round {round}: {:.1?}", begun.elapsed());
    }
    cell.close().expect("closed");
}

fn make_volumes(env: &Env, dir: &Path, config: &Config, volumes: u64) {
    let cell = Cell::open(env, dir, config).expect("opened");
    let next = AtomicU64::new(0);
    std::thread::scope(|threads| {
        for _ in 0..16 {
            threads.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= volumes {
                        return;
                    }
                    let (name, at) = (format!("volume-{n}"), format!("/volume-{n}"));
                    let uid = (1000 + n) as u32;
                    let request = admin::VolumeCreate { name, at, uid, gid: 0, pool: None };
                    cell.admin(&request, &mut |_| {}).expect("a volume");
                }
            });
        }
    });
    cell.close().expect("closed");
}

/// What the cell would have written, chunk by chunk.
fn write_days(dir: &Path, (of, count): (Kind, u64), (from, to): (u32, u32), percent: u64) {
    let disk = Arc::new(RealDisk::open(dir.join("meta")).expect("a directory"));
    let tables = disk.root().path().join("tables");
    let kv = LsmKv::open(Env::real(), disk, &tables, Options::default()).expect("the engine");
    let mut random = 1u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    // number 0 is the root's
    for number in 0..=count >> 8 {
        let chunk = Chunk { of, number };
        let members: Vec<u8> = (0..=255).filter(|at| (1..=count).contains(&chunk.member(*at))).collect();
        let mut batch = Batch { writes: Vec::new(), inline_data: Vec::new() };
        let mut is: Samples = members
            .iter()
            .map(|at| {
                (*at, Amounts { bytes: (next() % (1 << 28)) << 12, inodes: next() % (1 << 20), more: 0 })
            })
            .collect();
        if of == Kind::Volume {
            let name = |at| SampledName {
                name: format!("volume-{}", chunk.member(at)).into(),
                uid: 1000,
                gone: None,
            };
            let names = SampledNames(members.iter().map(|at| (*at, name(*at))).collect());
            batch.writes.push((keys::sampled_names(chunk.id()), Some(names.encode())));
        }
        let mut was: Option<Samples> = None;
        for day in from..to {
            for amounts in is.values_mut() {
                if next() % 100 < percent {
                    amounts.bytes += (next() % (1 << 16)) << 12;
                    amounts.inodes += next() % 100;
                    amounts.more = if of == Kind::Volume { day.into() } else { 0 };
                }
            }
            let before = was.as_ref().filter(|_| day != first_of_month(day));
            let record = SampleRecord::between(before, &is);
            batch.writes.push((keys::samples(chunk.id(), day), Some(record.encode())));
            was = Some(is.clone());
        }
        // as if today was still to be sampled
        batch.writes.push((keys::sampling(), None));
        kv.commit(&batch).expect("a commit");
        while kv.maintain().expect("maintained") {}
    }
    kv.close().expect("closed");
}

fn month(cell: &Cell, today: Day) {
    let first = Day(first_of_month(today.0));
    for (of, from, daily) in [
        (Sampled::Volume, first, false),
        (Sampled::User, first, false),
        (Sampled::Group, first, false),
        (Sampled::Pool, first, false),
        (Sampled::Pool, today.minus(90), true),
    ] {
        let request = UsageReport { of, from, to: None, only: Vec::new(), daily };
        let begun = Instant::now();
        let reply = cell.admin(&request, &mut |_| {}).expect("a report");
        let took = begun.elapsed();
        let json = serde_json::to_string(&reply).expect("JSON").len();
        if took > Duration::from_millis(20) {
            println!("  {of:?}: {took:.1?}, {} rows, {:.1} MB as JSON", reply.rows.len(), json as f64 / 1e6);
        }
    }
}

fn table_bytes(dir: &Path) -> u64 {
    fn of(dir: &Path) -> u64 {
        let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
        entries
            .map(|entry| match entry.file_type().expect("a type").is_dir() {
                true => of(&entry.path()),
                false => entry.metadata().map_or(0, |file| file.len()),
            })
            .sum()
    }
    of(&dir.join("meta"))
}
