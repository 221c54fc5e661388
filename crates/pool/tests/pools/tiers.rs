//! A hot pool in front of a cold one.

use super::rig::{Rig, spec};
use leeward_env::disk::real::ALIGN;
use leeward_env::{Ctx, Env};
use leeward_pool::contract::{self, body, holds, id};
use leeward_pool::{
    Chance, Error, FaultyStore, MemStore, Member, Pool, StoreFault, TierOptions, assemble, tier,
};
use std::sync::Arc;
use std::time::Duration;

const OBJECT: usize = 64 << 10;
/// Objects, with their heads, that a hot pool of [`Tiers`] has room for.
const ROOM: u64 = 50;
const HOT_PUT: Duration = Duration::from_millis(1);
const COLD_PUT: Duration = Duration::from_millis(20);

struct Tiers {
    env: Env,
    hot: Vec<Arc<FaultyStore>>,
    hot_inner: Vec<Arc<MemStore>>,
    cold: Rig,
    pool: Arc<dyn Pool>,
}

impl Tiers {
    fn new() -> Tiers {
        let env = Env::sim(1);
        let room = ROOM * (OBJECT + ALIGN) as u64;
        let inner = (0..2).map(|_| Arc::new(MemStore::with_capacity(room))).collect();
        Tiers::on(&env, inner, Rig::new(&env, "erasure(4+2)"))
    }

    fn on(env: &Env, hot_inner: Vec<Arc<MemStore>>, cold: Rig) -> Tiers {
        let hot: Vec<Arc<FaultyStore>> =
            hot_inner.iter().map(|s| Arc::new(FaultyStore::new(s.clone()))).collect();
        let members = hot.iter().map(|store| Member::Open(store.clone())).collect();
        let front = assemble(env, &spec("replica(2)".parse().unwrap()), members).unwrap();
        let pool = tier(front, cold.pool.clone(), TierOptions::default());
        Tiers { env: env.clone(), hot, hot_inner, cold, pool }
    }

    fn put(&self, n: u64) -> Duration {
        let before = self.env.now();
        self.pool.put(&Ctx::system(), id(n, 0), &body(n, OBJECT)).unwrap();
        Duration::from_nanos(self.env.now() - before)
    }

    fn check(&self, objects: impl Iterator<Item = u64>) {
        for n in objects {
            assert!(holds(&*self.pool, id(n, 0), &body(n, OBJECT)), "object {n}");
        }
    }

    fn steps(&self) {
        while self.pool.repair_step(&Ctx::system()).unwrap().more {}
    }

    fn slow_down(&self) {
        self.hot[0].set_delay(&self.env, HOT_PUT);
        // in a simulation stores are asked one after another: one store stands for the pool
        self.cold.faulty[0].set_delay(&self.env, COLD_PUT);
    }

    fn kill_cold(&self) {
        for store in &self.cold.faulty {
            for fault in [StoreFault::PutFails, StoreFault::GetFails, StoreFault::ListFails] {
                store.set(fault, Chance::PerMille(1000));
            }
        }
    }
}

#[test]
fn contract() {
    contract::run(&|| {
        let env = Env::sim(1);
        let (hot, cold) = (Rig::new(&env, "replica(2)"), Rig::new(&env, "erasure(4+2)"));
        tier(hot.pool, cold.pool, TierOptions::default())
    });
}

#[test]
fn objects_are_flushed_then_evicted_and_always_readable() {
    let tiers = Tiers::new();
    for n in 0..19 {
        tiers.put(n);
        tiers.steps();
    }
    let told = || tiers.pool.health().tier.unwrap();
    assert_eq!((told().flushed_bytes, told().unflushed_objects), (0, 19), "below 40 %");
    for n in 19..30 {
        tiers.put(n);
        tiers.steps();
    }
    assert_eq!(told().unflushed_objects, 0);
    assert_eq!(told().evictable_bytes, 30 * OBJECT as u64, "below 80 % nothing is evicted");
    for n in 30..200 {
        tiers.put(n);
        tiers.steps();
        assert!(told().hot_used_percent <= 80);
    }
    tiers.check(0..200);
    assert_eq!(tiers.pool.list(&Ctx::system()).unwrap().len(), 200);
    // another process knows nothing, and finds out
    let next = Tiers::on(&tiers.env, tiers.hot_inner.clone(), tiers.cold.reopened());
    next.check(0..200);
    next.steps();
    next.check(0..200);
    for n in (0..200).step_by(3) {
        next.pool.delete(&Ctx::system(), id(n, 0)).unwrap();
        let read = next.pool.get(&Ctx::system(), id(n, 0), 0, &mut [0; 10]);
        assert!(matches!(read, Err(Error::NotFound(_))));
    }
    next.check((0..200).filter(|n| n % 3 != 0));
}

/// More is put than the cold pool takes, and nothing is done in the background: what writers do is all.
#[test]
fn writers_are_slowed_smoothly_to_the_speed_of_the_cold_pool() {
    let tiers = Tiers::new();
    tiers.steps(); // what is where is known
    tiers.slow_down();
    let times: Vec<Duration> = (0..400).map(|n| tiers.put(n)).collect();
    assert!(times[..38].iter().all(|t| *t < 2 * HOT_PUT), "below 80 % nobody is slowed");
    let settled = &times[200..];
    let mean = settled.iter().sum::<Duration>() / settled.len() as u32;
    // one store of the cold pool takes its time for each object; the hot one is read and emptied besides
    let cold = COLD_PUT.as_secs_f64();
    let rate = cold / mean.as_secs_f64();
    assert!((0.85..=1.05).contains(&rate), "{rate} of the cold pool's rate, {mean:?} a put");
    let longest = settled.iter().max().unwrap();
    assert!(*longest < 3 * mean, "{longest:?} of {mean:?}");
    let early: Duration = times[40..60].iter().sum::<Duration>() / 20;
    assert!(early < mean, "slower and slower: {early:?}, {mean:?}");
    tiers.check(0..400);
}

#[test]
fn a_dead_cold_pool_is_ridden_out_until_the_hot_one_is_full() {
    let tiers = Tiers::new();
    tiers.put(0);
    tiers.steps();
    tiers.kill_cold();
    for n in 1..ROOM {
        tiers.put(n);
        tiers.steps();
    }
    let full = tiers.pool.put(&Ctx::system(), id(ROOM, 0), &body(ROOM, OBJECT));
    assert!(matches!(full, Err(Error::Full)), "{full:?}");
    assert!(!tiers.pool.health().tier.unwrap().last_error.is_empty());
    tiers.check(0..ROOM);
    tiers.cold.faulty.iter().for_each(|store| store.heal());
    tiers.env.advance(Duration::from_secs(120));
    for n in ROOM..3 * ROOM {
        tiers.put(n);
    }
    tiers.steps();
    assert_eq!(tiers.pool.health().tier.unwrap().last_error, "");
    tiers.check(0..3 * ROOM);
}

#[test]
fn a_dead_hot_store_loses_nothing() {
    let tiers = Tiers::new();
    for n in 0..15 {
        tiers.put(n);
    }
    tiers.hot[0].set(StoreFault::PutFails, Chance::PerMille(1000));
    tiers.hot[0].set(StoreFault::GetFails, Chance::PerMille(1000));
    for n in 15..120 {
        tiers.put(n);
        tiers.steps();
    }
    tiers.check(0..120);
}
