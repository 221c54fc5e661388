//! Layouts over stores: the contract, failures, repair.

mod drain;
mod faults;
mod random;
mod rig;
mod threads;
mod tiers;

use leeward_env::disk::real::ALIGN;
use leeward_env::disk::sim::SimDisk;
use leeward_env::{Ctx, Env};
use leeward_pool::contract::{self, body, holds, id};
use leeward_pool::{DirStore, Store};
use rig::{LAYOUTS, Rig, over};
use std::sync::Arc;

#[test]
fn contract_in_memory() {
    for layout in ["single"].iter().chain(&LAYOUTS) {
        contract::run(&|| Rig::new(&Env::sim(1), layout).pool);
    }
}

#[test]
fn contract_with_threads() {
    for layout in ["single", "replica(2)", "erasure(4+2)"] {
        contract::run(&|| Rig::new(&Env::real(), layout).pool);
    }
}

#[test]
fn contract_on_simulated_disks() {
    for layout in ["single", "replica(3)", "erasure(3+2)"] {
        contract::run(&|| {
            let layout: leeward_pool::Layout = layout.parse().unwrap();
            let store =
                |n| Arc::new(DirStore::new(Arc::new(SimDisk::new(n as u64)), "pool")) as Arc<dyn Store>;
            over(&Env::sim(1), layout, &(0..layout.pieces()).map(store).collect::<Vec<_>>())
        });
    }
}

#[test]
fn single_keeps_objects_as_they_are() {
    let rig = Rig::new(&Env::sim(1), "single");
    let whole = body(1, 3 * ALIGN);
    rig.pool.put(&Ctx::system(), id(5, 1), &whole).unwrap();
    assert!(holds(&*rig.inner[0], id(5, 1), &whole));
}

#[test]
fn a_short_range_touches_one_store() {
    let ctx = Ctx::system();
    for layout in LAYOUTS {
        let rig = Rig::new(&Env::sim(1), layout);
        let whole = body(1, 2 << 20);
        rig.pool.put(&ctx, id(9, 0), &whole).unwrap();
        for offset in [0, 300_000, (2 << 20) - 100] {
            let before: Vec<_> = rig.faulty.iter().map(|store| store.calls()).collect();
            let mut buf = [0; 100];
            rig.pool.get(&ctx, id(9, 0), offset, &mut buf).unwrap();
            assert_eq!(buf, whole[offset as usize..offset as usize + 100]);
            let touched: Vec<_> = rig
                .faulty
                .iter()
                .zip(&before)
                .map(|(s, b)| (s.calls().gets - b.gets, s.calls().get_bytes - b.get_bytes))
                .filter(|(gets, _)| *gets > 0)
                .collect();
            let [(gets, bytes)] = touched[..] else { panic!("{layout}: {touched:?}") };
            assert!(gets <= 2 && bytes <= 2 * ALIGN as u64, "{layout}: {touched:?}");
        }
    }
}

#[test]
fn load_goes_round() {
    let rig = Rig::new(&Env::sim(1), "erasure(4+2)");
    for segment in 0..60 {
        rig.pool.put(&Ctx::system(), id(segment, 0), &body(segment, 2 * ALIGN)).unwrap();
    }
    for store in &rig.inner {
        // two data pieces and two of parity of six
        assert_eq!(store.list(&Ctx::system()).unwrap().len(), 40);
    }
}

#[test]
fn three_quarters_of_raw_space_are_usable() {
    let rig = Rig::new(&Env::sim(1), "erasure(11+3)");
    let object = 16 << 20;
    rig.pool.put(&Ctx::system(), id(1, 0), &body(1, object)).unwrap();
    let raw: u64 = rig.inner.iter().flat_map(|s| s.list(&Ctx::system()).unwrap()).map(|(_, len)| len).sum();
    let share = object as f64 / raw as f64;
    assert!(share > 0.78, "{share}");
}

#[test]
fn health_says_how_it_is() {
    let ctx = Ctx::system();
    let rig = Rig::new(&Env::sim(1), "erasure(4+2)");
    let health = rig.pool.health();
    assert_eq!((health.may_lose, health.degraded_objects, health.searched), (2, 0, false));
    rig.faulty[2].set(leeward_pool::StoreFault::PutFails, leeward_pool::Chance::PerMille(1000));
    for segment in 0..3 {
        rig.pool.put(&ctx, id(segment, 0), &body(segment, 1 << 20)).unwrap();
    }
    let health = rig.pool.health();
    assert_eq!((health.may_lose, health.degraded_objects), (1, 3));
    assert_eq!(health.stores[2].condition, leeward_pool::Condition::Failing);
    assert!(health.stores[2].why.contains("os error 5"), "{}", health.stores[2].why);
    assert_eq!(health.stores[2].figures.put.errors, 3);
    assert!(
        health.stores.iter().enumerate().all(|(n, s)| n == 2 || s.condition == leeward_pool::Condition::Ok)
    );
    let json = serde_json::to_string(&health).unwrap();
    assert_eq!(serde_json::from_str::<leeward_pool::Health>(&json).unwrap(), health);
}
