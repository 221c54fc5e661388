//! Stores that are replaced, drained and missing.

use super::rig::{LAYOUTS, Rig, spec};
use leeward_env::disk::real::ALIGN;
use leeward_env::{Ctx, Env};
use leeward_pool::contract::{body, holds, id};
use leeward_pool::{Condition, Layout, MemStore, Member, Pool, Store, StoreSpec, StoreState, assemble};
use std::sync::Arc;

fn steps(pool: &dyn Pool) -> u64 {
    let mut pieces = 0;
    loop {
        let step = pool.repair_step(&Ctx::system()).unwrap();
        pieces += step.pieces;
        if !step.more {
            return pieces;
        }
    }
}

fn fill(rig: &Rig) {
    for segment in 0..12 {
        let len = ALIGN * (1 + 7 * segment as usize);
        rig.pool.put(&Ctx::system(), id(segment, 0), &body(segment, len)).unwrap();
    }
}

fn check(pool: &dyn Store, layout: &str) {
    for segment in 0..12 {
        let len = ALIGN * (1 + 7 * segment as usize);
        assert!(holds(pool, id(segment, 0), &body(segment, len)), "{layout} {segment}");
    }
}

fn members(rig: &Rig) -> Vec<Member> {
    rig.inner.iter().map(|store| Member::Open(store.clone())).collect()
}

#[test]
fn an_empty_store_in_place_of_a_dead_one_is_filled() {
    for layout in LAYOUTS {
        let rig = Rig::new(&Env::sim(1), layout);
        fill(&rig);
        let mut without = members(&rig);
        without[0] = Member::Missing("no such disk".into());
        let pool = assemble(&rig.env, &Arc::default(), &spec(rig.layout), without).unwrap();
        check(&*pool, layout);
        steps(&*pool);
        let health = pool.health();
        assert_eq!(health.stores[0].condition, Condition::Missing);
        assert_eq!(health.stores[0].why, "no such disk");
        assert_eq!(health.may_lose as usize, rig.layout.parity() - 1);
        assert!(health.degraded_objects > 0);

        let new = Arc::new(MemStore::new());
        let mut replaced = members(&rig);
        replaced[0] = Member::Open(new.clone());
        let pool = assemble(&rig.env, &Arc::default(), &spec(rig.layout), replaced).unwrap();
        check(&*pool, layout);
        steps(&*pool);
        assert_eq!(new.list(&Ctx::system()).unwrap(), rig.inner[0].list(&Ctx::system()).unwrap(), "{layout}");
        check(&*pool, layout);
        assert_eq!(pool.health().may_lose as usize, rig.layout.parity());
    }
}

#[test]
fn a_draining_store_is_emptied_into_its_successor() {
    for layout in ["single"].iter().chain(&LAYOUTS) {
        let rig = Rig::new(&Env::sim(1), layout);
        fill(&rig);
        let before = rig.inner[0].list(&Ctx::system()).unwrap();
        let new = Arc::new(MemStore::new());
        let mut spec = spec(rig.layout);
        spec.stores[0].state = StoreState::Draining;
        spec.stores.push(StoreSpec {
            slot: 0,
            id: format!("{:032x}", 99),
            url: "mem://new".into(),
            state: StoreState::Active,
        });
        let mut both = members(&rig);
        both.push(Member::Open(new.clone()));
        let pool = assemble(&rig.env, &Arc::default(), &spec, both).unwrap();
        check(&*pool, layout);
        // half way through everything is there, and what is deleted stays so
        for _ in 0..5 {
            pool.repair_step(&Ctx::system()).unwrap();
        }
        check(&*pool, layout);
        pool.put(&Ctx::system(), id(50, 0), &body(50, ALIGN)).unwrap();
        pool.delete(&Ctx::system(), id(50, 0)).unwrap();
        let mut expected = pool.list(&Ctx::system()).unwrap();
        steps(&*pool);
        check(&*pool, layout);
        assert_eq!(rig.inner[0].list(&Ctx::system()).unwrap(), [], "{layout}");
        assert_eq!(new.list(&Ctx::system()).unwrap(), before, "{layout}");
        let mut now = pool.list(&Ctx::system()).unwrap();
        expected.sort();
        now.sort();
        assert_eq!(now, expected, "{layout}");
        assert_eq!(steps(&*pool), 0, "{layout}");
    }
}

#[test]
fn a_store_that_was_given_up_is_not_asked() {
    let rig = Rig::new(&Env::sim(1), "replica(2)");
    fill(&rig);
    let mut spec = spec("replica(2)".parse::<Layout>().unwrap());
    spec.stores[1].state = StoreState::Missing;
    let stores = rig.faulty.iter().map(|store| Member::Open(store.clone())).collect();
    let pool = assemble(&rig.env, &Arc::default(), &spec, stores).unwrap();
    let before = rig.faulty[1].calls();
    check(&*pool, "replica(2)");
    pool.put(&Ctx::system(), id(70, 0), &body(70, ALIGN)).unwrap();
    assert_eq!(rig.faulty[1].calls(), before);
    assert_eq!(pool.health().stores[1].condition, Condition::Missing);
}
