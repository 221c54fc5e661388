//! Measures what several shards in one process bring on this machine: `shards DIR`.
//!
//! A shard has a lock, a commit thread and a journal of its own. Threads make, look at, rename and
//! remove names, and write and read small files, on the layer below gate and doors: one and two of
//! them in one shard, and two in a shard each.
#![allow(clippy::disallowed_methods)]

use leeward_env::{Ctx, Env};
use leeward_fs::{Fs, Make, NodeId, Op, Precondition, RenameMode};
use leeward_volume::admin::{ShardAdd, VolumeCreate, VolumeCreateIn};
use leeward_volume::{Cell, Config};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::Instant;

/// Files of each thread, and how often all of it is done.
const FILES: u32 = 40_000;
const ROUNDS: usize = 5;
/// What is measured.
const WORK: [&str; 6] = ["make", "stat", "write 4 kB", "read 4 kB", "rename", "unlink"];

fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).expect("usage: shards DIR"));
    // threads in each shard
    let kinds: [(&str, &[usize]); 3] =
        [("one thread", &[1]), ("two threads", &[2]), ("two threads, a shard each", &[1, 1])];
    let mut rates = vec![[const { Vec::new() }; WORK.len()]; kinds.len()];
    for round in 0..ROUNDS {
        for (kind, (name, threads)) in kinds.iter().enumerate() {
            for (work, rate) in run(&dir.join(format!("{round}-{kind}")), threads).into_iter().enumerate() {
                rates[kind][work].push(rate);
            }
            eprintln!("round {round}: {name}");
        }
    }
    println!("operations a second, medians of {ROUNDS}");
    for (work, name) in WORK.iter().enumerate() {
        let shown = kinds.iter().zip(&mut rates).map(|((kind, _), of)| {
            of[work].sort_by(f64::total_cmp);
            format!("{kind} {:.0}", of[work][ROUNDS / 2])
        });
        println!("{name:<11} {}", shown.collect::<Vec<_>>().join(", "));
    }
}

/// Operations a second of all threads, of each kind of work.
fn run(dir: &Path, threads: &[usize]) -> [f64; WORK.len()] {
    let (env, config) = (Env::real(), Config::default());
    std::fs::create_dir_all(dir).expect("a directory");
    Cell::create(&env, dir, &config).expect("a cell");
    let open = || Cell::open(&env, dir, &config).expect("opened");
    if threads.len() > 1 {
        let cell = open();
        cell.admin(&ShardAdd { count: threads.len() - 1 }, &mut |_| ()).expect("shards");
        cell.close().expect("closed");
    }
    let cell = open();
    let all: usize = threads.iter().sum();
    let barrier = Arc::new(Barrier::new(all));
    let workers = threads.iter().enumerate().flat_map(|(shard, threads)| {
        let top = volume_in(&cell, shard);
        (0..*threads).map({
            let (cell, barrier) = (cell.clone(), barrier.clone());
            move |n| {
                let (cell, barrier) = (cell.clone(), barrier.clone());
                std::thread::spawn(move || Worker::new(&cell, top, n).run(&barrier))
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    let took: Vec<[f64; WORK.len()]> = workers.into_iter().map(|w| w.join().expect("no panic")).collect();
    cell.close().expect("closed");
    drop(cell);
    std::fs::remove_dir_all(dir).expect("removed");
    // all begin together, and the last one counts
    std::array::from_fn(|work| {
        let longest = took.iter().map(|took| took[work]).fold(0.0, f64::max);
        all as f64 * f64::from(FILES) / longest
    })
}

/// The root of a new volume in a shard.
fn volume_in(cell: &Cell, shard: usize) -> NodeId {
    let (name, at) = (format!("v{shard}"), format!("/v{shard}"));
    let volume = VolumeCreate { name, at, uid: 0, gid: 0, pool: None };
    let made = cell.admin(&VolumeCreateIn { volume, shard }, &mut |_| ()).expect("a volume");
    NodeId::new(made.id, 1)
}

/// A thread with a directory of its own.
struct Worker<'a> {
    cell: &'a Cell,
    dir: NodeId,
    nodes: Vec<NodeId>,
}

impl<'a> Worker<'a> {
    fn new(cell: &'a Cell, top: NodeId, n: usize) -> Worker<'a> {
        let mut worker = Worker { cell, dir: top, nodes: Vec::new() };
        worker.dir = worker.make(format!("dir{n}").as_bytes(), Make::Dir);
        worker
    }

    fn call(&self, op: Op<'_>) -> leeward_fs::Reply {
        self.cell.call(&Ctx::user(0, 0), op).expect("done")
    }

    fn make(&self, name: &[u8], make: Make<'_>) -> NodeId {
        let reply = self.call(Op::Make { dir: self.dir, name, make, mode: 0o755, umask: 0 });
        let node = reply.attr().expect("an inode").node;
        self.call(Op::Forget { node, count: 1 });
        node
    }

    /// Seconds of each kind of work.
    fn run(mut self, barrier: &Barrier) -> [f64; WORK.len()] {
        std::array::from_fn(|work| {
            barrier.wait();
            let begun = Instant::now();
            (0..FILES).for_each(|n| self.one(WORK[work], n));
            begun.elapsed().as_secs_f64()
        })
    }

    fn one(&mut self, work: &str, n: u32) {
        let (old, new) = (format!("file{n}"), format!("renamed{n}"));
        let (dir, node) = (self.dir, self.nodes.get(n as usize).copied().unwrap_or(NodeId::ROOT));
        if work == "make" {
            let node = self.make(old.as_bytes(), Make::File);
            return self.nodes.push(node);
        }
        self.call(match work {
            "stat" => Op::GetAttr { node },
            "write 4 kB" => Op::Write { node, offset: 0, data: &[7; 4096] },
            "read 4 kB" => Op::Read { node, offset: 0, len: 4096 },
            "rename" => Op::Rename {
                from_dir: dir,
                from_name: old.as_bytes(),
                to_dir: dir,
                to_name: new.as_bytes(),
                mode: RenameMode::Replace,
            },
            _ => Op::Unlink { dir, name: new.as_bytes(), over: Precondition::Any },
        });
    }
}
