//! The store that fails and lies, does so as told.

use leeward_env::disk::real::ALIGN;
use leeward_env::{Ctx, Env};
use leeward_pool::contract::{body, holds, id};
use leeward_pool::{AlignedBuf, Chance, CountedStore, Error, FaultyStore, MemStore, Store, StoreFault};
use std::sync::Arc;
use std::time::Duration;

fn pair() -> (Arc<MemStore>, FaultyStore) {
    let inner = Arc::new(MemStore::new());
    (inner.clone(), FaultyStore::new(inner))
}

fn flipped_bits(a: &[u8], b: &[u8]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

#[test]
fn puts() {
    let ctx = Ctx::system();
    let (inner, store) = pair();
    let whole = body(1, 4 * ALIGN);
    let put = || store.put(&ctx, id(1, 0), &whole);
    store.set(StoreFault::PutFails, Chance::Next(1));
    assert!(matches!(put(), Err(Error::Io(_))));
    store.set(StoreFault::PutFull, Chance::Next(1));
    assert!(matches!(put(), Err(Error::Full)));
    assert_eq!(inner.list(&ctx).unwrap(), []);
    store.set(StoreFault::PutTorn, Chance::Next(1));
    assert!(put().is_err());
    assert!(holds(&*inner, id(1, 0), &whole[..2 * ALIGN]));
    store.set(StoreFault::PutLies, Chance::Next(1));
    put().unwrap();
    let mut stored = AlignedBuf::zeroed(whole.len());
    inner.get(&ctx, id(1, 0), 0, &mut stored).unwrap();
    assert_eq!(flipped_bits(&stored, &whole), 1);
    put().unwrap();
    assert!(holds(&store, id(1, 0), &whole));
    assert_eq!((store.calls().puts, store.calls().faults), (5, 4));
    let other = body(2, 4 * ALIGN);
    store.set(StoreFault::PutForgets, Chance::Next(1));
    store.put(&ctx, id(1, 0), &other).unwrap();
    assert!(holds(&store, id(1, 0), &whole));
    store.set(StoreFault::PutFailsAfter, Chance::Next(1));
    assert!(store.put(&ctx, id(1, 0), &other).is_err());
    assert!(holds(&store, id(1, 0), &other));
}

#[test]
fn gets_and_the_rest() {
    let ctx = Ctx::system();
    let (_, store) = pair();
    let whole = body(1, ALIGN);
    store.put(&ctx, id(1, 0), &whole).unwrap();
    let mut buf = AlignedBuf::zeroed(ALIGN);
    for fault in [StoreFault::GetFails, StoreFault::GetShort, StoreFault::GetMissing] {
        store.set(fault, Chance::Next(2));
        assert!(store.get(&ctx, id(1, 0), 0, &mut buf).is_err());
        assert!(store.get(&ctx, id(1, 0), 0, &mut buf).is_err());
        assert!(holds(&store, id(1, 0), &whole));
    }
    store.set(StoreFault::GetLies, Chance::PerMille(1000));
    store.get(&ctx, id(1, 0), 0, &mut buf).unwrap();
    assert_eq!(flipped_bits(&buf, &whole), 1);
    store.set(StoreFault::DeleteFails, Chance::PerMille(1000));
    store.set(StoreFault::ListFails, Chance::PerMille(1000));
    assert!(store.delete(&ctx, id(1, 0)).is_err() && store.list(&ctx).is_err());
    store.heal();
    assert!(holds(&store, id(1, 0), &whole));
    store.set(StoreFault::GetForeign, Chance::PerMille(1000));
    assert!(holds(&store, id(1, 0), &whole), "there is no other");
    store.put(&ctx, id(2, 0), &body(2, ALIGN)).unwrap();
    assert!(holds(&store, id(1, 0), &body(2, ALIGN)));
    store.heal();
    store.set(StoreFault::DeleteFailsAfter, Chance::Next(1));
    assert!(store.delete(&ctx, id(1, 0)).is_err());
    assert!(matches!(store.len(&ctx, id(1, 0)), Err(Error::NotFound(_))));
    store.delete(&ctx, id(1, 0)).unwrap();
}

#[test]
fn same_seed_same_faults() {
    let run = |seed| {
        let (_, store) = pair();
        store.set_seed(seed);
        store.set(StoreFault::PutFails, Chance::PerMille(300));
        let put = |n| store.put(&Ctx::system(), id(n, 0), &body(n, ALIGN)).is_ok();
        (0..200).map(put).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    let failed = run(7).iter().filter(|ok| !**ok).count();
    assert!((30..90).contains(&failed), "{failed} of 200");
}

#[test]
fn slow_is_slow_on_the_given_clock() {
    let (_, store) = pair();
    let env = Env::sim(1);
    store.set_delay(&env, Duration::from_millis(20));
    let before = env.now();
    store.put(&Ctx::system(), id(1, 0), &body(1, ALIGN)).unwrap();
    assert_eq!(env.now() - before, 20_000_000);
}

#[test]
fn what_fails_is_counted() {
    let ctx = Ctx::system();
    let env = Env::sim(1);
    let faulty = Arc::new(FaultyStore::new(Arc::new(MemStore::new())));
    let store = CountedStore::new(&env, faulty.clone());
    let whole = body(1, 4 * ALIGN);
    faulty.set_delay(&env, Duration::from_millis(3));
    faulty.set(StoreFault::PutFull, Chance::Next(1));
    assert!(store.put(&ctx, id(1, 0), &whole).is_err());
    store.put(&ctx, id(1, 0), &whole).unwrap();
    let mut part = AlignedBuf::zeroed(ALIGN);
    store.get(&ctx, id(1, 0), 0, &mut part).unwrap();
    assert!(matches!(store.get(&ctx, id(2, 0), 0, &mut part), Err(Error::NotFound(_))));
    store.delete(&ctx, id(1, 0)).unwrap();
    let figures = store.figures();
    let told = |c: &leeward_pool::CallFigures| (c.took.count(), c.took.nanos, c.bytes, c.errors);
    let milli = 1_000_000;
    assert_eq!(told(&figures.put), (2, 6 * milli, whole.len() as u64, 1));
    assert_eq!(
        told(&figures.get),
        (2, 6 * milli, ALIGN as u64, 0),
        "a missing object is no error of the store"
    );
    assert_eq!(told(&figures.delete), (1, 3 * milli, 0, 0));
}
