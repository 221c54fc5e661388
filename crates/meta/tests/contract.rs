//! The contract, on both engines.

use leeward_env::Env;
use leeward_env::disk::Disk;
use leeward_env::disk::real::RealDisk;
use leeward_env::disk::sim::SimDisk;
use leeward_meta::lsm::{LsmKv, Options};
use leeward_meta::mem::MemKv;
use leeward_meta::{EngineOptions, Kv, contract};
use std::path::Path;
use std::sync::Arc;

/// Small enough that everything happens: seals, flushes, compactions, new journal files.
fn small() -> EngineOptions {
    let mut options =
        EngineOptions { memtable_bytes: 20 << 10, journal_bytes: 100 << 10, ..Default::default() };
    options.journal.file_bytes = 64 << 10;
    options
}

fn open_lsm(dir: &Path, engine: EngineOptions) -> Box<dyn Kv> {
    let disk = Arc::new(RealDisk::open(dir).expect("a directory"));
    let options = Options { engine, ..Options::default() };
    Box::new(LsmKv::open(Env::real(), disk, &dir.join("tables"), options).expect("open"))
}

#[test]
fn mem() {
    let make = |options: EngineOptions| {
        move || -> Box<dyn Kv> {
            let disk = Arc::new(SimDisk::new(1));
            Box::new(MemKv::open_with(Env::real(), disk, options.clone()).expect("open"))
        }
    };
    contract::run(&make(small()));
    contract::run(&make(EngineOptions::default()));
}

#[test]
fn mem_reopened() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    contract::reopened(&|| Box::new(MemKv::open_with(Env::real(), disk.clone(), small()).expect("open")));
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(2));
    contract::reopened(&|| Box::new(MemKv::open(Env::sim(1), disk.clone()).expect("open")));
}

#[test]
fn lsm() {
    let root = tempfile::tempdir().expect("tempdir");
    let count = std::cell::Cell::new(0);
    let make = |options: EngineOptions| {
        let (root, count) = (root.path(), &count);
        move || {
            count.set(count.get() + 1);
            let dir = root.join(count.get().to_string());
            std::fs::create_dir(&dir).expect("mkdir");
            open_lsm(&dir, options.clone())
        }
    };
    contract::run(&make(small()));
    contract::run(&make(EngineOptions::default()));
}

#[test]
fn lsm_reopened() {
    let root = tempfile::tempdir().expect("tempdir");
    contract::reopened(&|| open_lsm(root.path(), small()));
    let root = tempfile::tempdir().expect("tempdir");
    contract::reopened(&|| open_lsm(root.path(), EngineOptions::default()));
}
