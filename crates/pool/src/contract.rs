//! What every store must do, as functions: each implementation and each decorator runs them in a
//! test.
//!
//! They panic, as tests do, and need a store that is empty and holds some tens of megabytes.
//! Durability cannot be seen from here: a store's own tests cut the power.

use crate::{AlignedBuf, Error, ObjectId, Store};
use leeward_env::Ctx;
use leeward_env::disk::real::ALIGN;
use leeward_env::limits::STORE_SLICE_BYTES;
use std::sync::Arc;

/// Runs the whole suite. `make` gives a new and empty store at each call.
///
/// # Panics
/// When the store does not keep the contract.
pub fn run(make: &dyn Fn() -> Arc<dyn Store>) {
    for test in [
        an_empty_store,
        ranges_are_filled_or_refused,
        objects_are_apart,
        put_replaces_or_refuses,
        delete_removes_one,
        many_objects_are_listed_in_order,
        long_objects,
        threads_do_not_disturb_each_other,
        deleting_under_readers,
        space_is_reported,
    ] {
        test(&*make());
    }
}

/// Name of an object.
pub fn id(segment: u64, generation: u32) -> ObjectId {
    ObjectId { segment, generation }
}

/// A body that differs from the body of every other `seed`, and at every position within itself.
pub fn body(seed: u64, len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    for (i, word) in buf.chunks_exact_mut(8).enumerate() {
        let mixed = (seed ^ (i as u64) << 32).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&(mixed ^ mixed >> 29).to_le_bytes());
    }
    buf
}

/// Whether the store holds exactly this.
pub fn holds(store: &dyn Store, id: ObjectId, body: &[u8]) -> bool {
    let mut read = AlignedBuf::zeroed(body.len());
    store.len(&Ctx::system(), id).is_ok_and(|len| len == body.len() as u64)
        && store.get(&Ctx::system(), id, 0, &mut read).is_ok()
        && read[..] == *body
}

fn put(store: &dyn Store, id: ObjectId, body: &AlignedBuf) {
    store.put(&Ctx::system(), id, body).expect("a put");
}

fn is_missing(store: &dyn Store, id: ObjectId) -> bool {
    let got = store.get(&Ctx::system(), id, 0, &mut [0; 16]);
    let len = store.len(&Ctx::system(), id);
    matches!(got, Err(Error::NotFound(of)) if of == id) && matches!(len, Err(Error::NotFound(of)) if of == id)
}

fn an_empty_store(store: &dyn Store) {
    assert!(is_missing(store, id(0, 0)));
    assert_eq!(store.list(&Ctx::system()).expect("a list"), []);
    store.delete(&Ctx::system(), id(0, 0)).expect("deleting what is not there");
}

fn ranges_are_filled_or_refused(store: &dyn Store) {
    let len = 3 * ALIGN;
    let whole = body(1, len);
    put(store, id(1, 0), &whole);
    for (offset, count) in [
        (0, len),
        (0, 0),
        (0, 1),
        (len - 1, 1),
        (len, 0),
        (ALIGN, ALIGN),
        (ALIGN, 2 * ALIGN),
        (17, 5000),
        (ALIGN - 1, 2),
        (ALIGN, 100),
    ] {
        let mut aligned = AlignedBuf::zeroed(count);
        store.get(&Ctx::system(), id(1, 0), offset as u64, &mut aligned[..count]).expect("a range");
        assert_eq!(aligned[..count], whole[offset..offset + count], "{count}@{offset}");
        let mut anywhere = vec![0; count + 1];
        store.get(&Ctx::system(), id(1, 0), offset as u64, &mut anywhere[1..]).expect("a range");
        assert_eq!(anywhere[1..], whole[offset..offset + count], "{count}@{offset}, unaligned memory");
    }
    for (offset, count) in [(0, len + 1), (len, 1), (2 * ALIGN, 2 * ALIGN), (100 * ALIGN, ALIGN)] {
        let mut buf = AlignedBuf::zeroed(count);
        let got = store.get(&Ctx::system(), id(1, 0), offset as u64, &mut buf[..count]);
        assert!(matches!(got, Err(Error::Short(of)) if of == id(1, 0)), "{count}@{offset}: {got:?}");
    }
}

fn objects_are_apart(store: &dyn Store) {
    let ids = [id(0, 0), id(0, 1), id(1, 0), id(u64::MAX, 0), id(u64::MAX, u32::MAX)];
    for (i, id) in ids.into_iter().enumerate() {
        put(store, id, &body(i as u64, ALIGN * (i + 1)));
    }
    for (i, id) in ids.into_iter().enumerate() {
        assert!(holds(store, id, &body(i as u64, ALIGN * (i + 1))), "{id:?}");
    }
    assert!(is_missing(store, id(1, 1)) && is_missing(store, id(2, 0)));
}

/// A second body under the same name replaces the first or is refused as a whole. The same body
/// again changes nothing.
fn put_replaces_or_refuses(store: &dyn Store) {
    let mut there = body(1, 4 * ALIGN);
    put(store, id(7, 0), &there);
    let again = store.put(&Ctx::system(), id(7, 0), &there);
    assert!(matches!(again, Ok(()) | Err(Error::Exists(_))), "{again:?}");
    assert!(holds(store, id(7, 0), &there));
    for (seed, pages) in [(2, 2), (3, 8)] {
        let other = body(seed, pages * ALIGN);
        match store.put(&Ctx::system(), id(7, 0), &other) {
            Ok(()) => there = other,
            Err(Error::Exists(of)) => assert_eq!(of, id(7, 0)),
            Err(e) => panic!("{e}"),
        }
        assert!(holds(store, id(7, 0), &there));
    }
    assert_eq!(store.list(&Ctx::system()).expect("a list"), [(id(7, 0), there.len() as u64)]);
}

fn delete_removes_one(store: &dyn Store) {
    put(store, id(1, 0), &body(1, ALIGN));
    put(store, id(1, 1), &body(2, ALIGN));
    assert!(holds(store, id(1, 0), &body(1, ALIGN)));
    store.delete(&Ctx::system(), id(1, 0)).expect("a delete");
    store.delete(&Ctx::system(), id(1, 0)).expect("a second delete");
    assert!(is_missing(store, id(1, 0)));
    assert!(holds(store, id(1, 1), &body(2, ALIGN)));
    put(store, id(1, 0), &body(3, 2 * ALIGN));
    assert!(holds(store, id(1, 0), &body(3, 2 * ALIGN)), "a new object of an old name");
}

/// More than a store keeps open at a time.
fn many_objects_are_listed_in_order(store: &dyn Store) {
    let ids: Vec<ObjectId> = (0..150).flat_map(|n| [id(n * 1000, 0), id(n * 1000, 10)]).collect();
    for id in ids.iter().rev() {
        put(store, *id, &body(id.segment, ALIGN));
    }
    let expected: Vec<_> = ids.iter().map(|id| (*id, ALIGN as u64)).collect();
    assert_eq!(store.list(&Ctx::system()).expect("a list"), expected);
    for id in ids.iter().chain(&ids) {
        assert!(holds(store, *id, &body(id.segment, ALIGN)), "{id:?}");
    }
}

fn long_objects(store: &dyn Store) {
    for (n, len) in [STORE_SLICE_BYTES, STORE_SLICE_BYTES + ALIGN, 16 << 20].into_iter().enumerate() {
        let whole = body(n as u64, len);
        put(store, id(n as u64, 0), &whole);
        assert!(holds(store, id(n as u64, 0), &whole));
    }
}

fn threads_do_not_disturb_each_other(store: &dyn Store) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..25 {
                    let mine = id(thread, round);
                    let whole = body(thread << 32 | u64::from(round), ALIGN);
                    put(store, mine, &whole);
                    assert!(holds(store, mine, &whole), "{mine:?}");
                    if round % 2 == 0 {
                        store.delete(&Ctx::system(), mine).expect("a delete");
                        assert!(is_missing(store, mine), "{mine:?}");
                    }
                }
            });
        }
    });
    assert_eq!(store.list(&Ctx::system()).expect("a list").len(), 4 * 12);
}

/// A reader of an object that is being deleted gets all of it, or the answer that it is missing.
fn deleting_under_readers(store: &dyn Store) {
    let whole = body(1, 4 * ALIGN);
    for round in 0..20 {
        let object = id(1, round);
        put(store, object, &whole);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut buf = AlignedBuf::zeroed(4 * ALIGN);
                    match store.get(&Ctx::system(), object, 0, &mut buf) {
                        Ok(()) => assert_eq!(buf[..], whole[..]),
                        Err(Error::NotFound(_)) => {}
                        Err(e) => panic!("{e}"),
                    }
                });
            }
            store.delete(&Ctx::system(), object).expect("a delete");
        });
        assert!(is_missing(store, object));
    }
}

fn space_is_reported(store: &dyn Store) {
    let space = store.space().expect("space");
    assert!(space.total_bytes > 0 && space.available_bytes <= space.total_bytes);
}
