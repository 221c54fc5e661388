//! A hot pool in front of a cold one.

use super::rig::{Rig, is_whole, over, spec};
use leeward_env::disk::real::ALIGN;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_env::{Ctx, Env};
use leeward_pool::contract::{self, body, holds, id};
use leeward_pool::{
    Chance, DirStore, Error, FaultyStore, MemStore, Member, Pool, Store, StoreFault, Tier, TierOptions,
    assemble,
};
use std::collections::BTreeSet;
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
    pool: Arc<Tier>,
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
        let front =
            assemble(env, &Arc::default(), &spec("replica(2)".parse().unwrap()), members, is_whole).unwrap();
        let pool = Tier::new(env, front, cold.pool.clone(), TierOptions::default());
        Tiers { env: env.clone(), hot, hot_inner, cold, pool }
    }

    fn put(&self, n: u64) -> Duration {
        let before = self.env.now();
        self.pool.put(&Ctx::system(), id(n, 0), &body(n, OBJECT)).unwrap();
        Duration::from_nanos(self.env.now() - before)
    }

    fn put_all(&self, objects: std::ops::Range<u64>) {
        for n in objects {
            self.put(n);
        }
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

impl Tiers {
    fn told(&self) -> leeward_pool::TierHealth {
        *self.pool.health().tier.unwrap()
    }
}

#[test]
fn contract() {
    contract::run(&|| {
        let env = Env::sim(1);
        let (hot, cold) = (Rig::new(&env, "replica(2)"), Rig::new(&env, "erasure(4+2)"));
        Tier::new(&env, hot.pool, cold.pool, TierOptions::default())
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

/// More is put than the cold pool takes, and nothing is done in the background: what writers do is
/// all.
#[test]
fn writers_are_slowed_smoothly_to_the_speed_of_the_cold_pool() {
    let tiers = Tiers::new();
    tiers.steps(); // what is where is known
    tiers.slow_down();
    let times: Vec<Duration> = (0..400).map(|n| tiers.put(n)).collect();
    assert!(times[..38].iter().all(|t| *t < 2 * HOT_PUT), "below 80 % nobody is slowed");
    let settled = &times[200..];
    let mean = settled.iter().sum::<Duration>() / settled.len() as u32;
    // one store of the cold pool takes its time for each object; the hot one is read and emptied
    // besides
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

#[test]
fn what_is_young_is_deleted_without_the_cold_pool() {
    let tiers = Tiers::new();
    tiers.steps();
    tiers.put(0);
    tiers.kill_cold();
    tiers.pool.delete(&Ctx::system(), id(0, 0)).unwrap();
    assert_eq!(tiers.told().unflushed_objects, 0);
    assert!(tiers.hot_inner.iter().all(|store| store.list(&Ctx::system()).unwrap().is_empty()));
}

#[test]
fn an_object_that_cannot_be_read_holds_up_no_other() {
    let tiers = Tiers::new();
    tiers.put_all(0..30);
    let (ctx, first) = (Ctx::system(), id(0, 0));
    let pieces: Vec<_> = tiers.hot_inner.iter().map(|store| piece(store, first)).collect();
    for store in &tiers.hot_inner {
        store.put(&ctx, first, &body(99, OBJECT + ALIGN)).unwrap();
    }
    tiers.steps();
    let told = tiers.told();
    assert_eq!(told.unflushed_objects, 1, "{told:?}");
    for (store, piece) in tiers.hot_inner.iter().zip(&pieces) {
        store.put(&ctx, first, piece).unwrap();
    }
    tiers.env.advance(Duration::from_secs(31));
    tiers.steps();
    assert_eq!(tiers.told().unflushed_objects, 0);
    tiers.check(0..30);
}

fn piece(store: &MemStore, id: leeward_pool::ObjectId) -> leeward_pool::AlignedBuf {
    let mut piece = leeward_pool::AlignedBuf::zeroed(OBJECT + ALIGN);
    store.get(&Ctx::system(), id, 0, &mut piece).unwrap();
    piece
}

/// What a crash left on the cold pool has the right length and name, and is not what was put.
#[test]
fn what_an_interrupted_flush_left_is_not_believed() {
    let tiers = Tiers::new();
    tiers.put_all(0..30);
    for n in 0..30 {
        tiers.cold.pool.put(&Ctx::system(), id(n, 0), &body(77, OBJECT)).unwrap();
    }
    let next = Tiers::on(&tiers.env, tiers.hot_inner.clone(), tiers.cold.reopened());
    next.check(0..30);
    next.steps();
    assert_eq!(next.told().evictable_bytes, 30 * OBJECT as u64);
    next.put_all(30..60);
    next.check(0..60);
    for n in 0..10 {
        assert!(holds(&*next.cold.pool, id(n, 0), &body(n, OBJECT)), "object {n}");
    }
}

#[test]
fn an_ending_tier_becomes_empty_and_stays_so() {
    let tiers = Tiers::new();
    tiers.put_all(0..20);
    let hot = || tiers.hot_inner.iter().map(|store| store.list(&Ctx::system()).unwrap().len()).max().unwrap();
    let options = TierOptions { ending: true, ..TierOptions::default() };
    let ending = tiers.pool.anew(tiers.pool.hot().clone(), tiers.pool.cold().clone(), options);
    assert!(ending.repair_step(&Ctx::system()).unwrap().more && !ending.is_drained());
    // who still has the tier as it was puts to the cold pool, too
    tiers.put_all(20..25);
    assert!(hot() <= 20);
    while ending.repair_step(&Ctx::system()).unwrap().more {}
    assert!(ending.is_drained());
    assert_eq!(hot(), 0);
    tiers.check(0..25);
    for n in 0..25 {
        assert!(holds(&*tiers.cold.pool, id(n, 0), &body(n, OBJECT)), "object {n}");
    }
}

/// Two hot disks and a cold one.
fn on_disks(disks: &[SimDisk]) -> Arc<Tier> {
    let env = Env::sim(1);
    let pool = |layout: &str, disks: &[SimDisk]| {
        let store = |disk: &SimDisk| Arc::new(DirStore::new(Arc::new(disk.clone()), "")) as Arc<dyn Store>;
        over(&env, layout.parse().unwrap(), &disks.iter().map(store).collect::<Vec<_>>())
    };
    Tier::new(&env, pool("replica(2)", &disks[..2]), pool("single", &disks[2..]), TierOptions::default())
}

fn disks() -> Vec<SimDisk> {
    let disks: Vec<SimDisk> = (1..=3).map(SimDisk::new).collect();
    disks[..2].iter().for_each(|disk| disk.set_capacity(8 * (OBJECT + ALIGN) as u64));
    disks
}

/// Objects that were put and whose delete was not called.
fn script(tier: &Tier) -> BTreeSet<u64> {
    let ctx = Ctx::system();
    let mut kept = BTreeSet::new();
    for n in 0..14 {
        if tier.put(&ctx, id(n, 0), &body(n, OBJECT)).is_ok() {
            kept.insert(n);
        }
        if n % 4 == 3 {
            kept.remove(&(n - 2));
            let _ = tier.delete(&ctx, id(n - 2, 0)); // the power may be off
        }
        let _ = tier.repair_step(&ctx);
        let _ = tier.repair_step(&ctx);
    }
    kept
}

#[test]
fn nothing_acknowledged_is_lost_in_a_crash() {
    let whole = disks();
    assert_eq!(script(&on_disks(&whole)).len(), 11);
    assert!(on_disks(&whole).list(&Ctx::system()).unwrap().len() >= 11);
    for (which, disk) in whole.iter().enumerate() {
        for at in 0..disk.mutations() {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                let disks = disks();
                disks[which].fail_at(at, fault);
                let kept = script(&on_disks(&disks));
                let cuts = [None, Some(at), Some(at + 1)];
                for cut in cuts {
                    let left: Vec<SimDisk> = disks
                        .iter()
                        .map(|d| cut.map_or_else(|| d.kill(), |seed| d.power_cut(seed)))
                        .collect();
                    let all_there = |disks: &[SimDisk]| {
                        let tier = on_disks(disks);
                        for n in &kept {
                            assert!(
                                holds(&*tier, id(*n, 0), &body(*n, OBJECT)),
                                "object {n}: disk {which}, {at}, {fault:?}, {cut:?}"
                            );
                        }
                        tier
                    };
                    let tier = all_there(&left);
                    while tier.repair_step(&Ctx::system()).unwrap().more {}
                    // what is evicted by then is whole and durable on the cold pool
                    let left: Vec<SimDisk> = left.iter().map(|disk| disk.power_cut(at)).collect();
                    all_there(&left);
                }
            }
        }
    }
}
