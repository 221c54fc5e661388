//! The suite on every store.

use leeward_env::Env;
use leeward_env::disk::Disk;
use leeward_env::disk::real::RealDisk;
use leeward_env::disk::sim::SimDisk;
use leeward_pool::{CountedStore, DirStore, FaultyStore, GatedStore, MemStore, Store, contract};
use std::cell::RefCell;
use std::sync::Arc;

fn sim() -> Arc<dyn Disk> {
    Arc::new(SimDisk::new(1))
}

#[test]
fn memory() {
    contract::run(&|| Arc::new(MemStore::new()));
}

#[test]
fn directory_on_a_simulated_disk() {
    contract::run(&|| Arc::new(DirStore::new(sim(), "pool")));
    contract::run(&|| Arc::new(DirStore::new(sim(), "")));
}

fn on_real(parent: &std::path::Path) {
    let dirs = RefCell::new(Vec::new());
    contract::run(&|| {
        let dir = tempfile::tempdir_in(parent).unwrap();
        let disk = RealDisk::open(dir.path()).expect("a directory");
        dirs.borrow_mut().clear(); // the last one is done with
        dirs.borrow_mut().push(dir);
        Arc::new(DirStore::new(Arc::new(disk), "a/pool/"))
    });
}

#[test]
fn directory_on_the_machine() {
    on_real(&std::env::temp_dir());
}

#[test]
fn directory_in_memory_of_the_machine() {
    let shm = std::path::Path::new("/dev/shm");
    if shm.is_dir() {
        on_real(shm);
    }
}

#[test]
fn decorator_without_faults() {
    contract::run(&|| Arc::new(FaultyStore::new(Arc::new(MemStore::new()))));
    let over = || -> Arc<dyn Store> { Arc::new(DirStore::new(sim(), "pool")) };
    contract::run(&|| Arc::new(FaultyStore::new(over())));
}

#[test]
fn decorator_that_counts() {
    contract::run(&|| Arc::new(CountedStore::new(&Env::sim(1), Arc::new(MemStore::new()))));
}

#[test]
fn decorator_with_a_gate() {
    for fair in [true, false] {
        let gate = |env: &Env, inner| GatedStore::new(env, inner, 64 << 10, Arc::default(), fair);
        contract::run(&|| Arc::new(gate(&Env::real(), Arc::new(MemStore::new()))));
        contract::run(&|| Arc::new(gate(&Env::sim(1), Arc::new(DirStore::new(sim(), "pool")))));
        contract::run(&|| Arc::new(gate(&Env::real(), Arc::new(DirStore::new(sim(), "pool")))));
    }
}
