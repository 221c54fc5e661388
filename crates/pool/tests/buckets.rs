//! Pools whose stores are buckets: the suite, and what is different where a store never replaces
//! what is there by accident.

use leeward_bucket::Bucket;
use leeward_bucket::server::{Fault, KEY, Server};
use leeward_env::{Ctx, Env};
use leeward_pool::contract::{self, body, holds, id};
use leeward_pool::label::{self, Label, LabelError};
use leeward_pool::{
    Chance, Error, FailedPuts, FaultyStore, Layout, MemStore, Member, Pool, PoolSpec, S3Store, Store,
    StoreFault, StoreSpec, StoreState, Tier, TierOptions, assemble_anew,
};
use std::cell::Cell;
use std::sync::Arc;

const PAGE: usize = 4096;

fn bucket(server: &Server, prefix: &str) -> Bucket {
    Bucket::with_keys(&server.place(prefix), KEY, "secret").expect("a bucket")
}

fn store(server: &Server, prefix: &str) -> Arc<dyn Store> {
    Arc::new(S3Store::new(bucket(server, prefix), ""))
}

fn pool_over(layout: &str, stores: Vec<Arc<dyn Store>>) -> Arc<dyn Pool> {
    pool_after(&FailedPuts::default(), layout, stores)
}

fn pool_after(failed: &FailedPuts, layout: &str, stores: Vec<Arc<dyn Store>>) -> Arc<dyn Pool> {
    let layout: Layout = layout.parse().expect("a layout");
    let spec = |slot: usize| StoreSpec {
        slot: slot as u16,
        id: format!("{slot:032x}"),
        url: format!("s3://b/{slot}"),
        state: StoreState::Active,
    };
    let stores_of = (0..layout.pieces()).map(spec).collect();
    let spec = PoolSpec { id: 3, name: "test".into(), layout, stores: stores_of };
    let members = stores.into_iter().map(Member::Open).collect();
    assemble_anew(&Env::real(), &Arc::default(), &spec, members, |_, _| true, failed).expect("a pool")
}

fn in_buckets(server: &Server, layout: &str, prefix: &str) -> Arc<dyn Pool> {
    in_buckets_after(&FailedPuts::default(), server, layout, prefix)
}

fn in_buckets_after(failed: &FailedPuts, server: &Server, layout: &str, prefix: &str) -> Arc<dyn Pool> {
    let pieces = layout.parse::<Layout>().expect("a layout").pieces();
    let stores = (0..pieces).map(|n| store(server, &format!("{prefix}/{n}")));
    pool_after(failed, layout, stores.collect())
}

#[test]
fn pools_in_buckets() {
    let server = Server::start("b");
    let count = Cell::new(0);
    for layout in ["single", "replica(2)", "erasure(2+1)"] {
        contract::run(&|| {
            count.set(count.get() + 1);
            in_buckets(&server, layout, &count.get().to_string())
        });
    }
}

/// On a server that somebody else wrote, at LEE_TEST_BUCKET (an URL) and the AWS variables;
/// tests/suites/versitygw.sh has one.
#[test]
#[ignore = "needs a server"]
fn real_server() {
    let url = std::env::var("LEE_TEST_BUCKET").expect("LEE_TEST_BUCKET");
    let count = Cell::new(0);
    let next = || {
        count.set(count.get() + 1);
        count.get()
    };
    let at = |prefix: &str| -> Arc<dyn Store> {
        let place = leeward_bucket::Location::find(&format!("{url}/{prefix}")).expect("a place");
        Arc::new(S3Store::new(Bucket::new(&place).expect("a bucket"), ""))
    };
    contract::run(&|| at(&next().to_string()));
    contract::run(&|| {
        let n = next();
        pool_over("erasure(2+1)", (0..3).map(|slot| at(&format!("{n}/{slot}"))).collect())
    });
    // of many who create or swap at the same time one succeeds
    let store = at(&next().to_string());
    for round in 0..20 {
        let created: Vec<bool> =
            all_at_once(8, |n| store.put(&Ctx::system(), id(1, round), &body(n, PAGE)).is_ok());
        assert_eq!(created.iter().filter(|ok| **ok).count(), 1, "creating: {created:?}");
    }
    let place = leeward_bucket::Location::find(&format!("{url}/{}", next())).expect("a place");
    let of = Bucket::new(&place).expect("a bucket");
    of.create("swapped", vec![0; PAGE].into()).expect("created");
    for round in 0..20 {
        let tags: Vec<_> =
            (0..8).map(|_| of.get_tagged("swapped").expect("a get").expect("it is there").1).collect();
        let tags = std::sync::Mutex::new(tags);
        let swapped = all_at_once(8, |n| {
            let tag = tags.lock().expect("no panic").pop().expect("one each");
            // never what is there already: tags may be of the content
            of.swap("swapped", body(1 + 8 * round + n, PAGE).to_vec().into(), &tag).is_ok()
        });
        assert_eq!(swapped.iter().filter(|ok| **ok).count(), 1, "swapping: {swapped:?}");
    }
}

fn all_at_once<T: Send>(count: u64, call: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let barrier = std::sync::Barrier::new(count as usize);
    std::thread::scope(|scope| {
        let run = |n| {
            let (barrier, call) = (&barrier, &call);
            scope.spawn(move || {
                barrier.wait();
                call(n)
            })
        };
        let threads: Vec<_> = (0..count).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn labels_in_buckets() {
    let server = Server::start("b");
    let ctx = Ctx::system();
    let (one, other) = (store(&server, "one"), store(&server, "other"));
    let label = |slot: u16| Label {
        cell: "53d8c6e75f553823335350d20a7fb413".into(),
        pool: 4,
        slot,
        store: format!("{slot:032x}"),
    };
    assert!(matches!(label::check(&ctx, &*one, &label(0)), Err(LabelError::Empty)));
    label::write(&ctx, &*one, &label(0), 16 << 20).expect("a label");
    label::write(&ctx, &*one, &label(0), 16 << 20).expect("the same again");
    label::write(&ctx, &*other, &label(1), 16 << 20).expect("a label");
    label::check(&ctx, &*one, &label(0)).expect("its own");
    assert!(matches!(
        label::check(&ctx, &*other, &label(0)),
        Err(LabelError::Swapped { found: 1, wanted: 0 })
    ));
    let foreign = Label { cell: "00".repeat(16), ..label(0) };
    assert!(matches!(label::write(&ctx, &*one, &foreign, 0), Err(LabelError::OtherCell { .. })));
    label::remove(&ctx, &*one).expect("it goes");
    label::write(&ctx, &*one, &foreign, 0).expect("another one's now");
    bucket(&server, "one")
        .replace(&S3Store::new(bucket(&server, "one"), "").path(label::LABEL), vec![7; PAGE].into())
        .expect("damage");
    assert!(matches!(label::check(&ctx, &*one, &foreign), Err(LabelError::Damaged)));
    one.put(&ctx, id(5, 0), &body(5, PAGE)).expect("a put");
    label::remove(&ctx, &*one).expect("it goes");
    assert!(matches!(label::check(&ctx, &*one, &foreign), Err(LabelError::Unlabelled { objects: 1 })));
}

/// Too few stores took their piece; the same put again finds its own pieces and does the rest, also
/// when the pool was assembled anew in between.
#[test]
fn a_put_that_failed_is_repeated() {
    for anew in [false, true] {
        let (server, before) = (Server::start("b"), FailedPuts::default());
        let mut pool = in_buckets_after(&before, &server, "erasure(4+2)", "p");
        let whole = body(1, 32 * PAGE);
        // three of six stores: one more than may fail
        for slot in ["p/1/", "p/3/", "p/4/"] {
            server.fail("PUT", slot, Fault::Refused, 1);
        }
        let failed = pool.put(&Ctx::system(), id(6, 0), &whole);
        assert!(failed.is_err(), "three pieces are not enough");
        if anew {
            pool = in_buckets_after(&before, &server, "erasure(4+2)", "p");
        }
        pool.put(&Ctx::system(), id(6, 0), &whole).expect("the same again");
        assert!(holds(&*pool, id(6, 0), &whole));
        assert_eq!(pool.health().degraded_objects, 0);
    }
}

/// Two of three stores had no room; when they have it again what is put may be something else, as
/// data has died.
#[test]
fn a_put_without_room_leaves_nothing_in_the_way() {
    let server = Server::start("b");
    let faulty: Vec<_> =
        (0..3).map(|n| Arc::new(FaultyStore::new(store(&server, &format!("p/{n}"))))).collect();
    let pool = pool_over("erasure(2+1)", faulty.iter().map(|store| store.clone() as _).collect());
    faulty[..2].iter().for_each(|store| store.set(StoreFault::PutFull, Chance::Next(1)));
    let full = pool.put(&Ctx::system(), id(6, 0), &body(1, 32 * PAGE));
    assert!(matches!(full, Err(Error::Full)), "{full:?}");
    let less = body(2, 16 * PAGE);
    pool.put(&Ctx::system(), id(6, 0), &less).expect("there is room");
    assert!(holds(&*pool, id(6, 0), &less));
    assert_eq!(pool.health().degraded_objects, 0);
}

/// What another process stored under a name stays, and is not mixed with ours.
#[test]
fn another_ones_pieces_are_left_alone() {
    let server = Server::start("b");
    let (ours, theirs) = (in_buckets(&server, "replica(2)", "p"), in_buckets(&server, "replica(2)", "p"));
    let (first, second) = (body(1, 3 * PAGE), body(2, 3 * PAGE));
    // a put of theirs reached one store only
    let half = pool_over("replica(2)", vec![store(&server, "p/0"), Arc::new(MemStore::new())]);
    half.put(&Ctx::system(), id(8, 0), &first).expect("a put");
    let refused = ours.put(&Ctx::system(), id(8, 0), &second);
    assert!(matches!(refused, Err(Error::Exists(of)) if of == id(8, 0)), "{refused:?}");
    ours.put(&Ctx::system(), id(8, 1), &second).expect("another generation");
    theirs.put(&Ctx::system(), id(9, 0), &first).expect("a put");
    assert!(matches!(ours.put(&Ctx::system(), id(9, 0), &second), Err(Error::Exists(_))));
    assert!(holds(&*ours, id(9, 0), &first) && holds(&*theirs, id(8, 1), &second));
}

/// A tier copies an object to its cold pool in place of what has its name there, also when a store
/// does not delete.
#[test]
fn a_flush_replaces_what_has_its_name() {
    for layout in ["single", "erasure(2+1)"] {
        let (server, ctx) = (Server::start("b"), Ctx::system());
        let cold = in_buckets(&server, layout, "p");
        let foreign = body(7, 30 * PAGE);
        cold.put(&ctx, id(1, 0), &foreign).expect("of another put");
        cold.put(&ctx, id(2, 0), &foreign).expect("of another put");
        // and of a flush that was cut short
        bucket(&server, "p/1")
            .delete(&S3Store::new(bucket(&server, "p/1"), "").path(id(2, 0)))
            .expect("gone");
        let hot = pool_over("single", vec![Arc::new(MemStore::with_capacity(1 << 20))]);
        let at_once = TierOptions { flush_percent: 0, ..TierOptions::default() };
        let tier = Tier::new(&Env::real(), hot, cold.clone(), at_once);
        server.fail("DELETE", "p/0/", Fault::Refused, 1000);
        for n in [1, 2] {
            tier.put(&ctx, id(n, 0), &body(n, 20 * PAGE)).expect("a put");
        }
        while tier.repair_step(&ctx).expect("a step").more {}
        let told = tier.health().tier.expect("a tier");
        assert_eq!((told.unflushed_objects, told.last_error.as_str()), (0, ""), "{layout}");
        for n in [1, 2] {
            assert!(holds(&*cold, id(n, 0), &body(n, 20 * PAGE)), "{layout}: object {n}");
        }
    }
}

/// A piece that rotted in its bucket is put in order, though a put never replaces.
#[test]
fn rotten_pieces_are_replaced() {
    let server = Server::start("b");
    let pool = in_buckets(&server, "erasure(2+1)", "p");
    let whole = body(3, 64 * PAGE);
    pool.put(&Ctx::system(), id(3, 0), &whole).expect("a put");
    let (at, of) = (S3Store::new(bucket(&server, "p/0"), ""), bucket(&server, "p/0"));
    let good = of.get(&at.path(id(3, 0))).expect("a get").expect("it is there");
    let mut bad = good.to_vec();
    bad[2 * PAGE] ^= 1;
    of.replace(&at.path(id(3, 0)), bad.into()).expect("damage");
    let all = || {
        std::iter::repeat_with(|| pool.scrub().expect("redundant").step(&Ctx::system()).expect("a step"))
            .take_while(|s| s.more)
    };
    assert_eq!(all().map(|step| step.pieces).sum::<u64>(), 1);
    while pool.repair_step(&Ctx::system()).expect("a step").more {}
    assert_eq!(of.get(&at.path(id(3, 0))).expect("a get").expect("it is there"), good);
    assert_eq!(all().map(|step| step.pieces).sum::<u64>(), 0);
}

/// Who looked first and was slower changes nothing.
#[test]
fn replacing_is_compare_and_swap() {
    let server = Server::start("b");
    let (ctx, of) = (Ctx::system(), bucket(&server, "s"));
    let (old, new, newer) = (body(1, PAGE), body(2, PAGE), body(3, PAGE));
    let there = S3Store::new(of.clone(), "");
    there.replace(&ctx, id(1, 0), &old).expect("nothing was there");
    there.replace(&ctx, id(1, 0), &new).expect("in place of the old one");
    there.replace(&ctx, id(1, 0), &new).expect("the same again");
    let path = there.path(id(1, 0));
    let (_, tag) = of.get_tagged(&path).expect("a get").expect("it is there");
    there.replace(&ctx, id(1, 0), &newer).expect("somebody was faster");
    let late = of.swap(&path, old.to_vec().into(), &tag);
    assert!(matches!(late, Err(leeward_bucket::Error::Exists(_))), "{late:?}");
    assert!(holds(&there, id(1, 0), &newer));
    let (_, tag) = of.get_tagged(&path).expect("a get").expect("it is there");
    there.delete(&ctx, id(1, 0)).expect("a delete");
    let gone = of.swap(&path, old.to_vec().into(), &tag);
    assert!(matches!(gone, Err(leeward_bucket::Error::Exists(_))), "{gone:?}");
    // answers that are lost
    for fault in [Fault::FailsAfter, Fault::BreaksAfter] {
        there.put(&ctx, id(2, 0), &old).expect("a put");
        server.fail("PUT", "s/", fault, 1);
        there.replace(&ctx, id(2, 0), &new).expect("it finds what it has stored");
        assert!(holds(&there, id(2, 0), &new));
        there.delete(&ctx, id(2, 0)).expect("a delete");
    }
}

/// Directories, buckets and whatever there is, in one pool; a bucket that is away is done without
/// and catches up.
#[test]
fn mixed_stores() {
    let (server, away) = (Server::start("b"), Server::start("b"));
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(leeward_env::disk::real::RealDisk::open(dir.path()).expect("a directory"));
    let stores: Vec<Arc<dyn Store>> =
        vec![Arc::new(leeward_pool::DirStore::new(disk, "")), store(&server, "s"), store(&away, "s")];
    let pool = pool_over("erasure(2+1)", stores);
    away.set_down(true);
    for n in 0..4 {
        pool.put(&Ctx::system(), id(n, 0), &body(n, 20 * PAGE)).expect("a put");
    }
    let same = || (0..4).all(|n| holds(&*pool, id(n, 0), &body(n, 20 * PAGE)));
    assert!(same() && pool.health().may_lose == 0);
    away.set_down(false);
    let healed = || {
        let step = pool.repair_step(&Ctx::system()).expect("a step");
        !step.more && pool.health().degraded_objects == 0
    };
    // it rests for seconds after it failed
    let end = Env::real();
    let begun = end.now();
    while !healed() {
        assert!(end.now() - begun < 90_000_000_000, "not repaired: {:?}", pool.health());
        end.sleep(std::time::Duration::from_millis(100));
    }
    server.set_down(true);
    assert!(same());
}

/// Stores that are away pass; who puts is told to wait for them, not that it failed.
#[test]
fn a_pool_that_is_away_is_waited_for() {
    let server = Server::start("b");
    let pool = in_buckets(&server, "erasure(2+1)", "p");
    server.set_down(true);
    let away = pool.put(&Ctx::system(), id(1, 0), &body(1, 8 * PAGE));
    assert!(away.as_ref().is_err_and(|e| e.is_passing()), "{away:?}");
    server.set_down(false);
    pool.put(&Ctx::system(), id(1, 0), &body(1, 8 * PAGE)).expect("it is back");
    assert!(holds(&*pool, id(1, 0), &body(1, 8 * PAGE)));
}
