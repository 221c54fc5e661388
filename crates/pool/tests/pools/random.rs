//! Random work over random faults, and crashes at every mutation across the stores. All from seeds.

use super::rig::{LAYOUTS, Rig, over};
use leeward_env::disk::real::ALIGN;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_env::{Ctx, Env};
use leeward_pool::contract::{body, holds, id};
use leeward_pool::{AlignedBuf, Chance, DirStore, Error, Layout, ObjectId, Pool, Store, StoreFault};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What is known of an object: acknowledged content, by seed and length.
type Objects = BTreeMap<ObjectId, (u64, usize)>;

struct Run {
    rig: Rig,
    random: Env,
    /// Stores that misbehave.
    bad: Vec<usize>,
    objects: Objects,
    next: u64,
}

impl Run {
    fn new(layout: &str, seed: u64, bad: usize) -> Run {
        let random = Env::sim(seed);
        let rig = Rig::new(&Env::sim(seed), layout);
        let first = random.random() as usize;
        let bad = (0..bad).map(|n| (first + n * 5) % rig.layout.pieces()).collect();
        let mut run = Run { rig, random, bad, objects: Objects::new(), next: 1 };
        run.misbehave();
        run
    }

    fn below(&self, n: u64) -> u64 {
        self.random.random() % n
    }

    /// Other faults from now on, on the same stores.
    fn misbehave(&mut self) {
        for slot in &self.bad {
            let store = &self.rig.faulty[*slot];
            if self.below(3) == 0 {
                store.land(&Ctx::system());
            }
            store.heal();
            store.set_seed(self.random.random());
            for _ in 0..self.below(4) {
                let fault = StoreFault::ALL[self.below(StoreFault::ALL.len() as u64) as usize];
                let chance = [50, 300, 1000][self.below(3) as usize];
                store.set(fault, Chance::PerMille(chance));
            }
            if self.below(4) == 0 {
                store.set_delay(&self.rig.env, Duration::from_millis(self.below(3000)));
            }
        }
    }

    fn put(&mut self) {
        let object = id(self.next, self.below(2) as u32);
        let (seed, len) = (self.next, ALIGN * (1 + self.below(60) as usize));
        self.next += 1;
        if self.rig.pool.put(&Ctx::system(), object, &body(seed, len)).is_ok() {
            self.objects.insert(object, (seed, len));
        }
    }

    fn any(&self) -> Option<ObjectId> {
        let n = self.objects.len() as u64;
        if n == 0 { None } else { self.objects.keys().nth(self.below(n) as usize).copied() }
    }

    /// True if it could be read; what is read is right.
    fn get(&self, object: ObjectId) -> bool {
        let (seed, len) = self.objects[&object];
        let whole = body(seed, len);
        let from = self.below(len as u64) as usize;
        let count = 1 + self.below((len - from) as u64) as usize;
        let mut buf = vec![0; count];
        let got = self.rig.pool.get(&Ctx::system(), object, from as u64, &mut buf);
        assert!(got.is_err() || buf[..] == whole[from..from + count], "{object:?} {count}@{from}");
        got.is_ok()
    }

    fn delete(&mut self, object: ObjectId) {
        // one that fails may have deleted enough
        let _ = self.rig.pool.delete(&Ctx::system(), object);
        self.objects.remove(&object);
    }

    fn step(&mut self, all_readable: bool) {
        match self.below(12) {
            0..4 => self.put(),
            4..8 => {
                if let Some(object) = self.any() {
                    assert!(self.get(object) || !all_readable, "{object:?}");
                }
            }
            8 => {
                if let Some(object) = self.any() {
                    self.delete(object);
                }
            }
            9 => drop(self.rig.pool.repair_step(&Ctx::system())),
            10 => drop(self.rig.pool.scrub().unwrap().step(&Ctx::system())),
            _ => self.misbehave(),
        }
        self.rig.env.advance(Duration::from_millis(self.below(500)));
    }

    fn heal(&self) {
        for store in &self.rig.faulty {
            store.land(&Ctx::system());
            store.heal();
        }
        self.rig.env.advance(Duration::from_secs(300));
    }
}

pub fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("POOL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(30)
}

#[test]
fn with_m_bad_stores_nothing_is_lost_and_nothing_is_wrong() {
    for layout in LAYOUTS {
        for seed in seeds() {
            let parity = Layout::parity(layout.parse().unwrap());
            let mut run = Run::new(layout, seed * 2 + 1, parity);
            for _ in 0..120 {
                run.step(true);
            }
            run.heal();
            run.rig.scrub(); // ends a pass that is under way
            run.rig.scrub();
            run.rig.repair();
            run.rig.env.advance(Duration::from_secs(300));
            let health = run.rig.pool.health();
            assert_eq!((health.degraded_objects, health.lost_objects), (0, 0), "{layout} {seed} {health:?}");
            // any other stores may be lost now
            let next = run.rig.reopened();
            assert_eq!(next.scrub(), 0, "{layout} {seed}");
            for slot in 0..parity {
                next.faulty[slot].set(StoreFault::GetFails, Chance::PerMille(1000));
            }
            for (object, (seed, len)) in &run.objects {
                assert!(holds(&*next.pool, *object, &body(*seed, *len)), "{layout} {object:?}");
            }
        }
    }
}

#[test]
fn with_more_bad_stores_reads_are_right_or_fail() {
    for layout in LAYOUTS {
        for seed in seeds() {
            let parity = Layout::parity(layout.parse().unwrap());
            let mut run = Run::new(layout, seed * 2 + 1, parity + 1);
            for _ in 0..120 {
                run.step(false);
            }
            run.heal();
            for object in run.objects.keys() {
                run.get(*object);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let told = |seed| {
        let mut run = Run::new("erasure(4+2)", seed, 2);
        (0..100).for_each(|_| run.step(true));
        let calls: Vec<_> = run.rig.faulty.iter().map(|store| store.calls()).collect();
        (run.objects.clone(), calls, run.rig.pool.health())
    };
    assert_eq!(told(5), told(5));
    assert_ne!(told(5).0, told(7).0);
}

/// The pool of the first process, or of a later one.
fn pool_on(disk: &SimDisk, layout: Layout, process: u64) -> Arc<dyn Pool> {
    let env = Env::sim(process);
    env.advance(Duration::from_secs(process));
    let store = |n| Arc::new(DirStore::new(Arc::new(disk.clone()), &format!("store{n}"))) as Arc<dyn Store>;
    over(&env, layout, &(0..layout.pieces()).map(store).collect::<Vec<_>>())
}

const BYTES: usize = 7 * ALIGN;

/// Puts two objects, replaces one by its next generation; what was acknowledged.
fn script(pool: &dyn Pool) -> Vec<ObjectId> {
    let ctx = Ctx::system();
    let mut there = Vec::new();
    for (segment, generation) in [(1, 0), (2, 0), (1, 1)] {
        let object = id(segment, generation);
        if pool.put(&ctx, object, &body(segment, BYTES)).is_err() {
            continue;
        }
        there.push(object);
        if generation > 0 {
            there.retain(|object| *object != id(segment, generation - 1));
            let _ = pool.delete(&ctx, id(segment, generation - 1)); // the power may be off
        }
    }
    there
}

/// The power goes off for all stores at once, at every mutation of any of them.
#[test]
fn a_crash_leaves_objects_whole_or_absent() {
    for layout in ["replica(2)", "erasure(3+2)"] {
        let layout: Layout = layout.parse().unwrap();
        let mutations = {
            let disk = SimDisk::new(1);
            assert_eq!(script(&*pool_on(&disk, layout, 1)).len(), 2);
            disk.mutations()
        };
        for n in 0..=mutations {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                let disk = SimDisk::new(1);
                disk.fail_at(n, fault);
                let there = script(&*pool_on(&disk, layout, 1));
                let cuts = (0..3).map(|seed| disk.power_cut(seed)).chain([disk.kill()]);
                cuts.for_each(|left| check_after(&left, layout, &there, n));
            }
        }
    }
}

fn check_after(left: &SimDisk, layout: Layout, there: &[ObjectId], n: u64) {
    let ctx = Ctx::system();
    let pool = pool_on(left, layout, 2);
    let listed = pool.list(&ctx).unwrap();
    for object in [id(1, 0), id(2, 0), id(1, 1)] {
        let whole = body(object.segment, BYTES);
        let mut read = AlignedBuf::zeroed(BYTES);
        match pool.get(&ctx, object, 0, &mut read) {
            Ok(()) => assert!(read[..] == whole[..], "{layout} {n}: {object:?} is wrong"),
            Err(e) => {
                assert!(!there.contains(&object), "{layout} {n}: {object:?}: {e}");
                let absent = matches!(e, Error::NotFound(_) | Error::Unavailable { .. } | Error::Short(_));
                assert!(absent, "{layout} {n}: {e}");
            }
        }
        let is_listed = listed.contains(&(object, BYTES as u64));
        assert!(is_listed || !there.contains(&object), "{layout} {n}: {object:?}");
    }
    // leftovers are listed, and can be removed
    for (object, _) in listed {
        pool.delete(&ctx, object).unwrap();
    }
    assert_eq!(pool.list(&ctx).unwrap(), []);
    pool.put(&ctx, id(1, 0), &body(9, BYTES)).unwrap();
    assert!(holds(&*pool, id(1, 0), &body(9, BYTES)));
}
