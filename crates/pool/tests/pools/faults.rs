//! Stores that are dead, fail, or lie: one thing at a time.

use super::rig::{LAYOUTS, Rig, over};
use leeward_env::disk::real::ALIGN;
use leeward_env::{Ctx, Env};
use leeward_pool::contract::{body, holds, id};
use leeward_pool::{AlignedBuf, Chance, Condition, Error, MemStore, Store, StoreFault};
use std::sync::Arc;
use std::time::Duration;

const ALWAYS: Chance = Chance::PerMille(1000);

fn kill(rig: &Rig, slot: usize) {
    for fault in [StoreFault::PutFails, StoreFault::GetFails, StoreFault::DeleteFails, StoreFault::ListFails]
    {
        rig.faulty[slot].set(fault, ALWAYS);
    }
}

#[test]
fn any_m_stores_may_die_and_no_more() {
    let ctx = Ctx::system();
    for layout in LAYOUTS {
        for first in 0..4 {
            let rig = Rig::new(&Env::sim(1), layout);
            let (n, m) = (rig.layout.pieces(), rig.layout.parity());
            let before = body(1, 1 << 20);
            rig.pool.put(&ctx, id(1, 0), &before).unwrap();
            (0..m).for_each(|dead| kill(&rig, (first + dead) % n));
            let during = body(2, 1 << 20);
            rig.pool.put(&ctx, id(2, 0), &during).unwrap();
            let again =
                |rig: &Rig| holds(&*rig.pool, id(1, 0), &before) && holds(&*rig.pool, id(2, 0), &during);
            assert!(again(&rig), "{layout}");
            assert_eq!(rig.pool.health().may_lose, 0, "{layout}");
            // and with another process, that knows nothing
            let next = Rig::on(&rig.env, rig.layout, rig.inner.clone());
            (0..m).for_each(|dead| kill(&next, (first + dead) % n));
            assert!(again(&next), "{layout}");

            let last = (0..n).find(|slot| (0..m).all(|dead| (first + dead) % n != *slot)).unwrap();
            if n == m + 1 {
                continue; // copies: the last one has all
            }
            kill(&rig, last);
            let lost = rig.pool.get(&ctx, id(1, 0), 0, &mut AlignedBuf::zeroed(1 << 20));
            assert!(matches!(&lost, Err(Error::Unavailable { .. })), "{layout}: {lost:?}");
            assert!(rig.pool.put(&ctx, id(3, 0), &during).is_err(), "{layout}");
            rig.faulty.iter().for_each(|store| store.heal());
            assert!(again(&rig), "{layout}: it comes back when the stores do");
        }
    }
}

#[test]
fn a_pass_of_scrubbing_goes_on_where_all_before_is_in_order() {
    let ctx = Ctx::system();
    let rig = Rig::new(&Env::sim(1), "erasure(4+2)");
    (0..6).for_each(|segment| rig.pool.put(&ctx, id(segment, 0), &body(segment, 1 << 20)).unwrap());
    rig.repair();
    let scrub = rig.pool.scrub().unwrap();
    (0..3).for_each(|_| assert!(scrub.step(&ctx).unwrap().more));
    assert_eq!(scrub.reached(), Some(id(2, 0)));
    // in another process, that knows nothing
    let next = rig.reopened();
    next.repair();
    let scrub = next.pool.scrub().unwrap();
    scrub.begin(Some(id(2, 0)));
    assert_eq!(scrub.reached(), Some(id(2, 0)));
    // the fourth is bad: until it is repaired a later pass is to begin before the sixth
    let (slot, gets) = (next.slot(id(4, 0), 0), next.faulty[0].calls().gets);
    assert!(scrub.step(&ctx).unwrap().more);
    next.faulty[slot].set(StoreFault::GetLies, ALWAYS);
    assert!(scrub.step(&ctx).unwrap().pieces > 0);
    next.faulty[slot].heal();
    assert!(scrub.step(&ctx).unwrap().more);
    assert_eq!(scrub.reached(), Some(id(3, 0)));
    assert!(!scrub.step(&ctx).unwrap().more, "three were left");
    assert!(next.faulty[0].calls().gets - gets <= 3 * 2, "and only those are read");
    // the next pass is of all
    next.repair();
    next.scrub();
    assert_eq!(next.pool.health().scrub.objects_done, 6);
}

#[test]
fn what_failed_is_repaired_reading_each_byte_once() {
    let ctx = Ctx::system();
    for layout in LAYOUTS {
        let rig = Rig::new(&Env::sim(1), layout);
        let m = rig.layout.parity();
        for segment in 0..5 {
            rig.pool.put(&ctx, id(segment, 0), &body(segment, 1 << 20)).unwrap();
        }
        (0..m).for_each(|slot| kill(&rig, slot));
        for segment in 5..10 {
            rig.pool.put(&ctx, id(segment, 0), &body(segment, 1 << 20)).unwrap();
        }
        assert_eq!(rig.pool.health().degraded_objects, 5, "{layout}");
        rig.repair();
        assert_eq!(rig.pool.health().degraded_objects, 5, "{layout}: their stores are dead");
        rig.faulty.iter().for_each(|store| store.heal());
        rig.env.advance(Duration::from_secs(120));
        let before: u64 = rig.faulty.iter().map(|s| s.calls().get_bytes).sum();
        assert_eq!(rig.repair(), 5 * m as u64, "{layout}");
        let read: u64 = rig.faulty.iter().map(|s| s.calls().get_bytes).sum::<u64>() - before;
        // what is needed of five objects, and their heads
        let heads = 5 * rig.layout.pieces() as u64 * 2 * ALIGN as u64;
        let needed = 5 * ((1 << 20) + rig.layout.data() * ALIGN) as u64;
        assert!(read <= needed + heads, "{layout}: {read}");
        let health = rig.pool.health();
        assert_eq!((health.degraded_objects, health.may_lose as usize), (0, m), "{layout}");
        // now others may die
        let n = rig.layout.pieces();
        (0..m).for_each(|dead| kill(&rig, n - 1 - dead));
        for segment in 0..10 {
            assert!(holds(&*rig.pool, id(segment, 0), &body(segment, 1 << 20)), "{layout}");
        }
    }
}

#[test]
fn another_process_finds_what_is_missing() {
    let ctx = Ctx::system();
    for layout in LAYOUTS {
        let rig = Rig::new(&Env::sim(1), layout);
        kill(&rig, 1);
        // also objects that are smaller than a block for each store
        for segment in 0..20 {
            let len = ALIGN * (1 + segment as usize * 3);
            rig.pool.put(&ctx, id(segment, 0), &body(segment, len)).unwrap();
        }
        let degraded = rig.pool.health().degraded_objects;
        assert!(degraded > 0);
        let next = rig.reopened();
        let repaired = next.repair();
        assert_eq!(repaired, degraded, "{layout}");
        assert_eq!(next.scrub(), 0, "{layout}");
        assert_eq!(next.reopened().repair(), 0, "{layout}");
    }
}

#[test]
fn lies_are_found_out_and_put_right() {
    let ctx = Ctx::system();
    for layout in LAYOUTS {
        let rig = Rig::new(&Env::sim(1), layout);
        let whole = body(1, 1 << 20);
        rig.pool.put(&ctx, id(1, 0), &whole).unwrap();
        let (slot, _) = (rig.slot(id(1, 0), 0), ());
        for fault in [StoreFault::GetLies, StoreFault::GetShort, StoreFault::GetMissing] {
            rig.faulty[slot].set(fault, ALWAYS);
            assert!(holds(&*rig.pool, id(1, 0), &whole), "{layout} {fault:?}");
            assert!(holds(&*rig.reopened().pool, id(1, 0), &whole), "{layout} {fault:?}");
            rig.faulty[slot].heal();
            rig.repair();
            assert_eq!(rig.pool.health().degraded_objects, 0, "{layout} {fault:?}");
        }
        assert!(rig.pool.health().stores[slot].bad_pieces >= 2, "{layout}");

        // a flipped bit on the store itself
        rig.faulty[slot].set(StoreFault::PutLies, ALWAYS);
        rig.pool.put(&ctx, id(1, 0), &whole).unwrap();
        rig.faulty[slot].heal();
        assert_eq!(rig.scrub(), 1, "{layout}");
        assert!(holds(&*rig.pool, id(1, 0), &whole), "{layout}");
        assert_eq!(rig.repair(), 1, "{layout}");
        assert_eq!(rig.scrub(), 0, "{layout}");
        assert!(holds(&*rig.pool, id(1, 0), &whole), "{layout}");
    }
}

/// Puts what a store has under the name of one object under that of another.
fn swap_in(store: &MemStore, from: leeward_pool::ObjectId, to: leeward_pool::ObjectId) {
    let ctx = Ctx::system();
    let mut stored = AlignedBuf::zeroed(store.len(&ctx, from).unwrap() as usize);
    store.get(&ctx, from, 0, &mut stored).unwrap();
    store.put(&ctx, to, &stored).unwrap();
}

#[test]
fn foreign_pieces_are_not_believed() {
    let ctx = Ctx::system();
    for layout in LAYOUTS {
        let n = Rig::new(&Env::sim(1), layout).layout.pieces() as u64;
        for (from, to) in [(id(1, 0), id(1, 1)), (id(1, 0), id(1 + n, 0)), (id(1, 0), id(2, 0))] {
            let rig = Rig::new(&Env::sim(1), layout);
            rig.pool.put(&ctx, from, &body(1, 1 << 20)).unwrap();
            rig.pool.put(&ctx, to, &body(2, 1 << 20)).unwrap();
            (0..rig.layout.parity()).for_each(|slot| swap_in(&rig.inner[slot], from, to));
            let next = rig.reopened();
            assert!(holds(&*next.pool, to, &body(2, 1 << 20)), "{layout}");
            assert!(next.scrub() > 0, "{layout}");
            next.repair();
            assert_eq!(next.scrub(), 0, "{layout}");
        }
    }
}

#[test]
fn old_pieces_are_not_mixed_in() {
    let ctx = Ctx::system();
    for layout in LAYOUTS {
        let rig = Rig::new(&Env::sim(1), layout);
        let (old, new) = (body(1, 1 << 20), body(2, 1 << 20));
        let parity = rig.layout.parity();
        rig.pool.put(&ctx, id(0, 0), &old).unwrap();
        // the last stores keep what they have
        let stale: Vec<usize> = (0..parity).map(|n| rig.layout.pieces() - 1 - n).collect();
        stale.iter().for_each(|slot| rig.faulty[*slot].set(StoreFault::PutForgets, ALWAYS));
        rig.pool.put(&ctx, id(0, 0), &new).unwrap();
        let next = rig.reopened();
        // the first store is dead, so an old piece is asked
        kill(&next, 0);
        let mut read = AlignedBuf::zeroed(1 << 20);
        match next.pool.get(&ctx, id(0, 0), 0, &mut read) {
            Ok(()) => assert!(read[..] == new[..] || rig.layout.data() == 1, "{layout}"),
            Err(e) => assert!(rig.layout.data() > 1, "{layout}: {e}"),
        }
        let next = rig.reopened();
        assert!(holds(&*next.pool, id(0, 0), &new), "{layout}");
        assert_eq!(next.scrub(), parity as u64, "{layout}");
        assert_eq!(next.repair(), parity as u64, "{layout}");
        kill(&next, 0);
        assert!(holds(&*next.pool, id(0, 0), &new), "{layout}");
    }
}

#[test]
fn deleted_objects_stay_deleted() {
    let ctx = Ctx::system();
    for layout in LAYOUTS {
        let rig = Rig::new(&Env::sim(1), layout);
        rig.pool.put(&ctx, id(1, 0), &body(1, 1 << 20)).unwrap();
        (0..rig.layout.parity()).for_each(|slot| kill(&rig, slot));
        rig.pool.delete(&ctx, id(1, 0)).unwrap();
        rig.faulty.iter().for_each(|store| store.heal());
        let read = rig.pool.get(&ctx, id(1, 0), 0, &mut [0; 10]);
        assert!(matches!(read, Err(Error::NotFound(_))), "{layout}: {read:?}");
        assert_eq!(rig.pool.list(&ctx).unwrap(), [], "{layout}");
        // for another process what is left is a leftover, which it can delete
        let next = rig.reopened();
        assert_eq!(next.pool.list(&ctx).unwrap().len(), 1, "{layout}");
        rig.env.advance(Duration::from_secs(120));
        rig.repair();
        assert!(rig.inner.iter().all(|store| store.list(&ctx).unwrap().is_empty()), "{layout}");
        // with more stores dead it is said that it may come back
        rig.pool.put(&ctx, id(1, 0), &body(1, 1 << 20)).unwrap();
        (0..=rig.layout.parity()).for_each(|slot| kill(&rig, slot));
        assert!(rig.pool.delete(&ctx, id(1, 0)).is_err(), "{layout}");
    }
}

#[test]
fn a_store_that_fails_again_and_again_is_left_alone() {
    let ctx = Ctx::system();
    let rig = Rig::new(&Env::sim(1), "erasure(4+2)");
    kill(&rig, 3);
    for segment in 0..50 {
        rig.pool.put(&ctx, id(segment, 0), &body(segment, ALIGN * 8)).unwrap();
    }
    assert_eq!(rig.faulty[3].calls().puts, 3);
    (0..5).for_each(|segment| rig.pool.delete(&ctx, id(segment, 0)).unwrap());
    assert_eq!(rig.faulty[3].calls().deletes, 0, "nor is a delete of it waited for");
    rig.env.advance(Duration::from_secs(2));
    rig.pool.put(&ctx, id(50, 0), &body(50, ALIGN * 8)).unwrap();
    assert_eq!(rig.faulty[3].calls().puts, 4, "one call to see whether it is back");
    rig.faulty[3].heal();
    rig.env.advance(Duration::from_secs(120));
    rig.pool.put(&ctx, id(51, 0), &body(51, ALIGN * 8)).unwrap();
    rig.pool.put(&ctx, id(52, 0), &body(52, ALIGN * 8)).unwrap();
    assert_eq!(rig.faulty[3].calls().puts, 6);
    assert_eq!(rig.pool.health().stores[3].condition, Condition::Ok);
    assert_eq!(rig.pool.health().degraded_objects, 51 - 5);
    rig.repair();
    assert_eq!(rig.pool.health().degraded_objects, 0);
    assert_eq!(rig.inner[3].list(&ctx).unwrap().len(), rig.inner[0].list(&ctx).unwrap().len());
}

#[test]
fn a_full_store_is_said_to_be() {
    let ctx = Ctx::system();
    let rig = Rig::new(&Env::sim(1), "erasure(4+2)");
    rig.faulty[0].set(StoreFault::PutFull, ALWAYS);
    rig.pool.put(&ctx, id(1, 0), &body(1, 1 << 20)).unwrap();
    assert_eq!(rig.pool.health().stores[0].condition, Condition::Full);
    rig.faulty[1].set(StoreFault::PutFull, ALWAYS);
    rig.faulty[2].set(StoreFault::PutFails, ALWAYS);
    assert!(matches!(rig.pool.put(&ctx, id(2, 0), &body(1, 1 << 20)), Err(Error::Full)));
}

#[test]
fn space_is_that_of_the_smallest() {
    let stores: Vec<Arc<dyn Store>> =
        [900, 800, 700].map(|mib| Arc::new(MemStore::with_capacity(mib << 20)) as _).into();
    let pool = over(&Env::sim(1), "erasure(2+1)".parse().unwrap(), &stores);
    assert_eq!(pool.space().unwrap().total_bytes, 1400 << 20);
}

/// Who reads on and on through objects with dead stores costs little more than without.
#[test]
fn reading_on_and_on_with_dead_stores_reads_no_multiple() {
    let ctx = Ctx::system();
    for layout in ["erasure(5+3)", "erasure(11+3)"] {
        let rig = Rig::new(&Env::sim(1), layout);
        let (len, range) = (4 << 20, 64 << 10);
        let whole = body(1, len);
        rig.pool.put(&ctx, id(0, 0), &whole).unwrap();
        (0..rig.layout.parity()).for_each(|slot| kill(&rig, slot));
        let before: u64 = rig.faulty.iter().map(|s| s.calls().get_bytes).sum();
        let mut buf = AlignedBuf::zeroed(range);
        for offset in (0..len).step_by(range) {
            rig.pool.get(&ctx, id(0, 0), offset as u64, &mut buf).unwrap();
            assert!(buf[..] == whole[offset..offset + range]);
        }
        let read: u64 = rig.faulty.iter().map(|s| s.calls().get_bytes).sum::<u64>() - before;
        assert!(read < 2 * len as u64 + (1 << 20), "{layout}: {read}");
        // it is not given back after the object is gone
        rig.pool.delete(&ctx, id(0, 0)).unwrap();
        assert!(rig.pool.get(&ctx, id(0, 0), 0, &mut buf).is_err());
    }
}

#[test]
fn a_piece_of_an_earlier_put_is_not_read_with_those_of_a_later_one() {
    let ctx = Ctx::system();
    for layout in ["erasure(2+1)", "erasure(4+2)", "erasure(11+3)"] {
        for slot in 0..3 {
            let rig = Rig::new(&Env::sim(1), layout);
            rig.pool.put(&ctx, id(0, 0), &body(1, 1 << 20)).unwrap();
            rig.faulty[slot].set(StoreFault::PutForgets, ALWAYS);
            rig.pool.put(&ctx, id(0, 0), &body(2, 1 << 20)).unwrap();
            assert!(holds(&*rig.pool, id(0, 0), &body(2, 1 << 20)), "{layout} {slot}");
            assert!(holds(&*rig.reopened().pool, id(0, 0), &body(2, 1 << 20)), "{layout} {slot}");
        }
    }
}

#[test]
fn a_put_that_failed_over_an_object_leaves_the_object() {
    let ctx = Ctx::system();
    let rig = Rig::new(&Env::sim(1), "erasure(4+2)");
    rig.pool.put(&ctx, id(0, 0), &body(1, 1 << 20)).unwrap();
    (2..6).for_each(|slot| rig.faulty[slot].set(StoreFault::PutFails, Chance::Next(1)));
    assert!(rig.pool.put(&ctx, id(0, 0), &body(2, 1 << 20)).is_err());
    assert!(holds(&*rig.pool, id(0, 0), &body(1, 1 << 20)));
    let next = rig.reopened();
    assert!(holds(&*next.pool, id(0, 0), &body(1, 1 << 20)));
    assert_eq!((next.scrub(), next.repair()), (2, 2));
    assert!(holds(&*next.pool, id(0, 0), &body(1, 1 << 20)));
}
