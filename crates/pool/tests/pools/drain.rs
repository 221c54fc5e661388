//! Stores that are replaced, drained and missing.

use super::rig::{LAYOUTS, Rig, is_whole, length, spec};
use leeward_env::disk::real::ALIGN;
use leeward_env::{Ctx, Env};
use leeward_pool::contract::{body, holds, id};
use leeward_pool::{
    Chance, Condition, Error, FaultyStore, Layout, MemStore, Member, Pool, PoolSpec, Store, StoreFault,
    StoreSpec, StoreState, assemble,
};
use std::sync::Arc;
use std::time::Duration;

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
        let pool = assemble(&rig.env, &Arc::default(), &spec(rig.layout), without, is_whole).unwrap();
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
        let pool = assemble(&rig.env, &Arc::default(), &spec(rig.layout), replaced, is_whole).unwrap();
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
        let pool = assemble(&rig.env, &Arc::default(), &spec, both, is_whole).unwrap();
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
    let pool = assemble(&rig.env, &Arc::default(), &spec, stores, is_whole).unwrap();
    let before = rig.faulty[1].calls();
    check(&*pool, "replica(2)");
    pool.put(&Ctx::system(), id(70, 0), &body(70, ALIGN)).unwrap();
    assert_eq!(rig.faulty[1].calls(), before);
    assert_eq!(pool.health().stores[1].condition, Condition::Missing);
}

/// The store of slot 0 is being emptied into the last one.
fn draining(layout: Layout) -> PoolSpec {
    let mut spec = spec(layout);
    spec.stores[0].state = StoreState::Draining;
    spec.stores.push(StoreSpec {
        slot: 0,
        id: format!("{:032x}", 99),
        url: "mem://new".into(),
        state: StoreState::Active,
    });
    spec
}

/// A filled pool of which the store of slot 0 is to be emptied into another one.
struct Drain {
    rig: Rig,
    new: Arc<MemStore>,
    /// That other one.
    target: Arc<FaultyStore>,
    pool: Arc<dyn Pool>,
}

impl Drain {
    fn new(layout: &str, seed: u64) -> Drain {
        let rig = Rig::new(&Env::sim(seed), layout);
        fill(&rig);
        let new = Arc::new(MemStore::new());
        let target = Arc::new(FaultyStore::new(new.clone()));
        let mut members: Vec<Member> = rig.faulty.iter().map(|store| Member::Open(store.clone())).collect();
        members.push(Member::Open(target.clone()));
        let pool = assemble(&rig.env, &Arc::default(), &draining(rig.layout), members, is_whole).unwrap();
        Drain { rig, new, target, pool }
    }

    /// Steps, as the thread for them makes them, until there is nothing left to do.
    fn ends(&self, what: &str) {
        for _ in 0..10_000 {
            let more = self.pool.repair_step(&Ctx::system()).is_ok_and(|step| step.more);
            self.rig.env.advance(Duration::from_secs(if more { 0 } else { 60 }));
            if !more && self.rig.inner[0].list(&Ctx::system()).unwrap().is_empty() {
                return;
            }
        }
        panic!("{what}: the store does not become empty");
    }
}

/// Whatever the two stores answer, an object is deleted from the one only when the other has it.
#[test]
fn no_answer_of_a_store_costs_what_is_being_moved() {
    let ctx = Ctx::system();
    for layout in ["single", "replica(2)", "erasure(2+1)"] {
        for seed in super::random::seeds() {
            let drain = Drain::new(layout, seed);
            let random = Env::sim(seed + 1000);
            let below = |n: u64| random.random() % n;
            for _ in 0..60 {
                for store in [&drain.rig.faulty[0], &drain.target] {
                    if below(4) == 0 {
                        store.heal();
                        store.set_seed(random.random());
                        for _ in 0..below(4) {
                            let fault = StoreFault::ALL[below(StoreFault::ALL.len() as u64) as usize];
                            store.set(fault, Chance::PerMille([50, 300, 1000][below(3) as usize]));
                        }
                    }
                    if below(8) == 0 {
                        store.land(&ctx);
                    }
                }
                let _ = drain.pool.repair_step(&ctx); // errors are what this is about
                drain.rig.env.advance(Duration::from_secs(below(40)));
            }
            for store in [&drain.rig.faulty[0], &drain.target] {
                store.land(&ctx);
                store.heal();
            }
            drain.rig.env.advance(Duration::from_secs(300));
            let what = format!("{layout} {seed}");
            drain.ends(&what);
            check(&*drain.pool, &what);
            // and no other store has to make up for the new one
            let expected: usize =
                if layout == "single" { 12 } else { drain.rig.inner[1].list(&ctx).unwrap().len() };
            assert!(drain.new.list(&ctx).unwrap().len() >= expected.min(8), "{what}");
        }
    }
}

/// Each fault by itself, at each of the first calls that it can meet.
#[test]
fn each_fault_at_each_call_of_a_move() {
    let ctx = Ctx::system();
    for layout in ["single", "replica(2)"] {
        for &fault in StoreFault::ALL {
            for at_target in [false, true] {
                for skip in 0..6 {
                    let drain = Drain::new(layout, 1);
                    let store = if at_target { &drain.target } else { &drain.rig.faulty[0] };
                    (0..skip).for_each(|_| drop(drain.pool.repair_step(&ctx)));
                    store.set(fault, Chance::Next(1));
                    (0..30).for_each(|_| drop(drain.pool.repair_step(&ctx)));
                    store.land(&ctx);
                    store.heal();
                    let what = format!("{layout} {fault:?} target: {at_target} after {skip}");
                    drain.ends(&what);
                    check(&*drain.pool, &what);
                }
            }
        }
    }
}

#[test]
fn a_torn_copy_is_none() {
    let ctx = Ctx::system();
    for layout in ["single", "replica(2)", "erasure(2+1)"] {
        let drain = Drain::new(layout, 1);
        let there = drain.rig.inner[0].list(&ctx).unwrap();
        for (id, len) in &there {
            // as a kill in the middle of a put leaves it; once with the right length
            let mut torn = leeward_pool::AlignedBuf::zeroed(*len as usize);
            drain.rig.inner[0].get(&ctx, *id, 0, &mut torn).unwrap();
            let half = (*len as usize / 2).next_multiple_of(ALIGN).min(*len as usize - 1);
            torn[half..].fill(0);
            if id.segment % 2 == 0 {
                torn.set_len(half);
            }
            drain.new.put(&ctx, *id, &torn).unwrap();
        }
        drain.ends(layout);
        assert_eq!(drain.new.list(&ctx).unwrap(), there, "{layout}");
        check(&*drain.pool, layout);
    }
}

#[test]
fn of_two_objects_of_one_name_the_whole_one_stays() {
    let ctx = Ctx::system();
    let drain = Drain::new("single", 1);
    let torn = body(77, ALIGN);
    for segment in 0..12 {
        // recovery put it anew, while the old store still had what a kill left there
        drain.new.put(&ctx, id(segment, 0), &body(segment, length(id(segment, 0)))).unwrap();
        drain.rig.inner[0].put(&ctx, id(segment, 0), &torn).unwrap();
    }
    drain.ends("single");
    check(&*drain.pool, "single");

    // where neither is whole nothing is deleted, and it is said
    let drain = Drain::new("single", 1);
    drain.rig.inner[0].put(&ctx, id(3, 0), &torn).unwrap();
    drain.new.put(&ctx, id(3, 0), &body(78, ALIGN)).unwrap();
    let mut told = String::new();
    for _ in 0..30 {
        if let Err(Error::Io(e)) = drain.pool.repair_step(&ctx) {
            told = e.to_string();
        }
    }
    assert!(told.contains("both stay"), "{told}");
    assert_eq!(drain.rig.inner[0].list(&ctx).unwrap(), [(id(3, 0), ALIGN as u64)]);
}

#[test]
fn a_store_whose_disk_is_not_mounted_costs_nothing() {
    let ctx = Ctx::system();
    let drain = Drain::new("single", 1);
    // all fails but the listing, of the store that is filled
    for fault in [StoreFault::LenFails, StoreFault::GetFails, StoreFault::PutFails] {
        drain.target.set(fault, Chance::PerMille(1000));
    }
    (0..100).for_each(|_| drop(drain.pool.repair_step(&ctx)));
    assert_eq!(drain.rig.inner[0].list(&ctx).unwrap().len(), 12);
    check(&*drain.rig.inner[0], "the old store");
}
