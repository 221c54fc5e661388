//! Over the real stores: power cuts at every change of the disk, and a store that fails and lies.
#![allow(clippy::single_range_in_vec_init)]

use crate::support::{Appends, Random, TestCatalog, ctx, options, owner};
use leeward_data::{Addr, Catalog, DataLog, Error, Options};
use leeward_env::Env;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_pool::{Chance, DirStore, FaultyStore, MemStore, Store, StoreFault};
use std::sync::{Arc, Weak};

type Written = Vec<(Addr, Vec<u8>)>;

fn log_over(store: Arc<dyn Store>, catalog: &Arc<TestCatalog>, options: Options) -> Arc<DataLog> {
    let log = DataLog::new(Env::sim(1), store, options);
    let weak: Weak<dyn Catalog> = Arc::downgrade(&(catalog.clone() as Arc<dyn Catalog>));
    log.attach(weak);
    log
}

fn disk_store(disk: &SimDisk) -> Arc<dyn Store> {
    Arc::new(DirStore::new(Arc::new(disk.clone()), "pool"))
}

/// Writes, seals and cleans; goes on after errors as a process would that does not know the power
/// is off.
fn script(log: &DataLog, catalog: &TestCatalog) -> Written {
    let mut random = Random(3);
    let mut written = Written::new();
    for n in 0..12u64 {
        let len = 1 + random.below(150_000) as usize;
        let bytes = if n % 2 == 0 { random.noise(len) } else { random.text(len) };
        let uid = 1 + (n % 2) as u32;
        let addr = log.write(&ctx(uid), owner(n, 0), &bytes).expect("the budget is large");
        written.push((addr, bytes));
        if n % 3 == 2 {
            log.seal_flow(ctx(uid).flow);
            log.step();
        }
    }
    let first = written[0].0.segment;
    if let Some(id) = catalog.object(first)
        && let Ok(info) = log.rewrite(&ctx(0), id, &[0..u32::MAX], (0, id.generation + 1))
    {
        catalog.sealed(info);
        let _ = log.delete(&ctx(0), id);
    }
    let _ = log.close();
    written
}

#[test]
fn what_was_reported_durable_survives_every_power_cut() {
    let counted = SimDisk::new(1);
    let catalog = Arc::new(TestCatalog::default());
    script(&log_over(disk_store(&counted), &catalog, options()), &catalog);
    let mutations = counted.mutations();
    assert!(mutations > 20);
    for n in 0..mutations {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Eio, Fault::Enospc] {
            let disk = SimDisk::new(n);
            disk.fail_at(n, fault);
            let catalog = Arc::new(TestCatalog::default());
            let written = script(&log_over(disk_store(&disk), &catalog, options()), &catalog);
            let log = log_over(disk_store(&disk.power_cut(n ^ 77)), &catalog, options());
            for (addr, bytes) in written {
                let mut buf = vec![0; bytes.len()];
                match log.read(&ctx(1), addr, &mut buf) {
                    Ok(()) => assert!(buf == bytes, "{fault:?} at {n}: wrong data at {addr:?}"),
                    Err(Error::Absent { .. }) => {
                        let told = catalog.sealed.lock().unwrap().contains_key(&addr.segment);
                        assert!(!told, "{fault:?} at {n}: {addr:?} was reported durable");
                    }
                    Err(e) => panic!("{fault:?} at {n}: {addr:?}: {e}"),
                }
            }
        }
    }
}

/// Whatever the store does, a read gives what was written or an error; when it heals, all is there.
#[test]
fn failing_store_loses_nothing() {
    for seed in 1..20 {
        let store = Arc::new(FaultyStore::new(Arc::new(MemStore::new())));
        store.set_seed(seed);
        for fault in [StoreFault::PutFails, StoreFault::PutTorn, StoreFault::PutFull] {
            store.set(fault, Chance::PerMille(200));
        }
        let get_faults =
            [StoreFault::GetFails, StoreFault::GetShort, StoreFault::GetMissing, StoreFault::GetLies];
        for fault in get_faults {
            store.set(fault, Chance::PerMille(100));
        }
        let catalog = Arc::new(TestCatalog::default());
        let log = log_over(store.clone(), &catalog, options());
        let (written, failed) = write_and_read(&log, seed);
        assert!(failed > 0, "seed {seed}: no fault was met");
        store.heal();
        log.close().unwrap();
        for (addr, bytes) in &written {
            let mut buf = vec![0; bytes.len()];
            log.read(&ctx(1), *addr, &mut buf).unwrap();
            assert!(&buf == bytes, "seed {seed}: {addr:?}");
        }
    }
}

/// Objects that were stored wrongly are found by every read and by verify.
#[test]
fn lying_puts_are_found() {
    for seed in 1..20 {
        let store = Arc::new(FaultyStore::new(Arc::new(MemStore::new())));
        store.set_seed(seed);
        store.set(StoreFault::PutLies, Chance::PerMille(1000));
        let catalog = Arc::new(TestCatalog::default());
        let log = log_over(store.clone(), &catalog, options());
        write_and_read(&log, seed);
        log.close().unwrap();
        for info in catalog.sealed.lock().unwrap().values() {
            let id = info.object;
            let found = log.verify(&ctx(0), id);
            assert!(!matches!(found, Ok(v) if v.damaged.is_empty()), "seed {seed}: {id:?}");
        }
    }
}

/// Random appends, seals and reads; counts the reads that failed.
fn write_and_read(log: &DataLog, seed: u64) -> (Written, usize) {
    let mut random = Random(seed * 15_485_863);
    let mut written = Written::new();
    let mut failed = 0;
    for n in 0..80u64 {
        let len = 1 + random.below(200_000) as usize;
        let bytes = if n % 2 == 0 { random.noise(len) } else { random.text(len) };
        let addr = log.write(&ctx(1), owner(n, 0), &bytes).expect("the budget is large");
        written.push((addr, bytes));
        if random.below(3) == 0 {
            let _ = log.wait_durable(&ctx(1), addr.segment);
        }
        let (addr, bytes) = &written[random.below(written.len() as u64) as usize];
        let mut buf = vec![0; bytes.len()];
        match log.read(&ctx(1), *addr, &mut buf) {
            Ok(()) => assert!(&buf == bytes, "seed {seed}: wrong data at {addr:?}"),
            Err(Error::Corrupt { .. } | Error::Store(_)) => failed += 1,
            Err(e) => panic!("seed {seed}: {e}"),
        }
    }
    (written, failed)
}
