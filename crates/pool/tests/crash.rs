//! Power cuts, kills and failing calls at every mutation below a DirStore.

use leeward_env::Ctx;
use leeward_env::disk::real::ALIGN;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_env::limits::STORE_SLICE_BYTES;
use leeward_pool::contract::{body, holds, id};
use leeward_pool::{DirStore, Error, ObjectId, Store};
use std::collections::BTreeSet;
use std::sync::Arc;

const OBJECTS: [(u64, u32); 4] = [(1, 0), (2, 0), (1, 1), (3, 0)];

fn store_on(disk: &SimDisk) -> DirStore {
    DirStore::new(Arc::new(disk.clone()), "cell/pool")
}

fn length(object: ObjectId) -> usize {
    STORE_SLICE_BYTES + ALIGN * (object.segment as usize + object.generation as usize)
}

fn whole(store: &dyn Store, object: ObjectId) -> bool {
    holds(store, object, &body(object.segment, length(object)))
}

/// Puts, rewrites and deletes; returns the objects whose put returned and whose delete was not
/// called.
fn script(store: &dyn Store) -> BTreeSet<ObjectId> {
    let ctx = Ctx::system();
    let mut acknowledged = BTreeSet::new();
    for (segment, generation) in OBJECTS {
        let object = id(segment, generation);
        match store.put(&ctx, object, &body(segment, length(object))) {
            Ok(()) => acknowledged.insert(object),
            Err(_) => continue,
        };
        if generation > 0 {
            acknowledged.remove(&id(segment, generation - 1));
            let _ = store.delete(&ctx, id(segment, generation - 1)); // the power may be off
        }
    }
    acknowledged
}

/// What must hold on any disk that a crash left behind.
fn check(left: &SimDisk, acknowledged: &BTreeSet<ObjectId>) {
    let store = store_on(left);
    let listed = store.list(&Ctx::system()).unwrap();
    for object in acknowledged {
        assert!(whole(&store, *object), "{object:?} was acknowledged");
        assert!(listed.contains(&(*object, length(*object) as u64)), "{object:?} is listed");
    }
    for (object, _) in listed {
        assert!(OBJECTS.contains(&(object.segment, object.generation)), "{object:?} came from nowhere");
    }
    // what is left may be torn, and is replaced or removed
    for (segment, generation) in OBJECTS {
        let object = id(segment, generation);
        store.put(&Ctx::system(), object, &body(segment, length(object))).unwrap();
        assert!(whole(&store, object));
        store.delete(&Ctx::system(), object).unwrap();
    }
    assert_eq!(store.list(&Ctx::system()).unwrap(), []);
}

fn mutations() -> u64 {
    let disk = SimDisk::new(1);
    assert_eq!(script(&store_on(&disk)).len(), OBJECTS.len() - 1);
    disk.mutations()
}

#[test]
fn acknowledged_objects_survive_a_crash_at_every_mutation() {
    for n in 0..=mutations() {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let disk = SimDisk::new(1);
            disk.fail_at(n, fault);
            let acknowledged = script(&store_on(&disk));
            for seed in 0..8 {
                check(&disk.power_cut(seed), &acknowledged);
            }
            check(&disk.kill(), &acknowledged);
        }
    }
}

#[test]
fn a_cut_after_a_kill_loses_nothing_either() {
    for n in 0..=mutations() {
        let disk = SimDisk::new(2);
        disk.fail_at(n, Fault::CrashBefore);
        let acknowledged = script(&store_on(&disk));
        for seed in 0..4 {
            check(&disk.kill().power_cut(seed), &acknowledged);
        }
    }
}

#[test]
fn one_failed_call_fails_one_put_and_leaves_nothing() {
    for n in 0..mutations() {
        for fault in [Fault::Eio, Fault::Enospc] {
            let disk = SimDisk::new(1);
            disk.fail_at(n, fault);
            let store = store_on(&disk);
            let acknowledged = script(&store);
            for (object, _) in store.list(&Ctx::system()).unwrap() {
                let deleted = object == id(1, 0); // its delete may be what failed
                assert!(acknowledged.contains(&object) || deleted, "{object:?} at {n}: {:?}", disk.recent());
                assert!(whole(&store, object));
            }
            for seed in 0..4 {
                check(&disk.power_cut(seed), &acknowledged);
            }
        }
    }
}

#[test]
fn a_full_disk_is_full_until_something_is_deleted() {
    let ctx = Ctx::system();
    let disk = SimDisk::new(1);
    disk.set_capacity(3 << 20);
    let store = store_on(&disk);
    let megabyte = body(9, 1 << 20);
    for segment in 0..3 {
        store.put(&ctx, id(segment, 0), &megabyte).unwrap();
    }
    assert!(matches!(store.put(&ctx, id(3, 0), &megabyte), Err(Error::Full)));
    assert_eq!(store.list(&ctx).unwrap().len(), 3, "the torn object is gone");
    store.delete(&ctx, id(1, 0)).unwrap();
    store.put(&ctx, id(3, 0), &megabyte).unwrap();
    assert!(holds(&store, id(3, 0), &megabyte));
    assert_eq!(store.space().unwrap().available_bytes, 0);
}
