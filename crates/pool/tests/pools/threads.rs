//! With the machine's clock and threads: stores that do not answer. Nothing here depends on how
//! fast anything is.

use super::rig::{beside, over};
use leeward_env::disk::Space;
use leeward_env::{Activity, Ctx, Env, Flow, Work};
use leeward_pool::contract::{body, holds, id};
use leeward_pool::{
    AlignedBuf, Condition, Layout, MemStore, ObjectId, Pool, Result, Store, Tier, TierOptions,
};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// A store whose puts and gets do not return while it is stuck, and whose reads may be counted.
#[derive(Default)]
struct Stuck {
    inner: MemStore,
    /// No call returns.
    wholly: bool,
    stuck: Mutex<bool>,
    freed: Condvar,
    /// Calls that do not return.
    held: AtomicUsize,
    reads: Option<Arc<Reads>>,
}

impl Stuck {
    fn set(&self, stuck: bool) {
        *self.stuck.lock() = stuck;
        self.freed.notify_all();
    }

    fn wait(&self) {
        let mut stuck = self.stuck.lock();
        self.held.fetch_add(1, Ordering::SeqCst);
        while *stuck {
            self.freed.wait(&mut stuck);
        }
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait_if_wholly(&self) {
        if self.wholly {
            self.wait();
        }
    }
}

impl Store for Stuck {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.wait();
        self.inner.put(ctx, id, body)
    }
    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.wait();
        self.reads.iter().for_each(|reads| reads.note());
        self.inner.get(ctx, id, offset, buf)
    }
    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        self.wait_if_wholly();
        self.inner.len(ctx, id)
    }
    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.wait_if_wholly();
        self.inner.settle(ctx, id)
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.wait_if_wholly();
        self.inner.delete(ctx, id)
    }
    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        self.wait_if_wholly();
        self.inner.list(ctx)
    }
    fn space(&self) -> Result<Space> {
        self.wait_if_wholly();
        self.inner.space()
    }
}

fn pool(layout: &str) -> (Arc<dyn Pool>, Vec<Arc<Stuck>>) {
    pool_of(layout, false)
}

fn pool_of(layout: &str, wholly: bool) -> (Arc<dyn Pool>, Vec<Arc<Stuck>>) {
    let layout: Layout = layout.parse().unwrap();
    let made = |_| Arc::new(Stuck { wholly, ..Stuck::default() });
    let stuck: Vec<Arc<Stuck>> = (0..layout.pieces()).map(made).collect();
    let stores: Vec<Arc<dyn Store>> = stuck.iter().map(|store| store.clone() as _).collect();
    (over(&Env::real(), layout, &stores), stuck)
}

/// Makes a call that must not wait for a store, on a thread of its own.
fn in_time<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, answer) = channel();
    drop(Env::real().spawn("caller", move || sender.send(call())));
    answer.recv_timeout(Duration::from_secs(50)).unwrap_or_else(|_| panic!("{what} waits"))
}

/// Waits until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let env = Env::real();
    let so = (0..12_000).any(|_| {
        env.sleep(Duration::from_millis(10));
        is_so()
    });
    assert!(so, "not in two minutes: {what}");
}

#[test]
fn nobody_waits_for_a_store_that_does_not_answer() {
    let ctx = Ctx::system();
    // with copies the one store that is left behind leaves one copy: nothing is to be left behind
    // there
    for (layout, silent) in [("replica(3)", 1), ("erasure(4+2)", 1), ("erasure(4+3)", 2)] {
        let (pool, stores) = pool(layout);
        let whole = body(1, 1 << 20);
        pool.put(&ctx, id(0, 0), &whole).unwrap();
        stores[..silent].iter().for_each(|store| store.set(true));
        assert!(holds(&*pool, id(0, 0), &whole), "{layout}");
        let health = pool.health();
        assert!(health.stores[0].hedged > 0, "{layout}");
        pool.put(&ctx, id(1, 0), &whole).unwrap();
        assert!(holds(&*pool, id(1, 0), &whole), "{layout}");
        assert!(pool.health().degraded_objects >= 1, "{layout}");
        stores.iter().for_each(|store| store.set(false));
        while pool.health().degraded_objects > 0 {
            pool.repair_step(&ctx).unwrap();
        }
        while pool.scrub().unwrap().step(&ctx).unwrap().more {}
        assert_eq!(pool.health().degraded_objects, 0, "{layout}");
        assert!(pool.health().stores.iter().all(|store| store.condition != Condition::Missing));
    }
}

/// Stores that have answered at once for a while are read on the thread that wants it, one at a
/// time.
#[test]
fn stores_that_hang_after_they_were_quick_hold_up_one_read_at_most() {
    const READERS: usize = 8;
    let (env, ctx) = (Env::real(), Ctx::system());
    let (pool, stores) = pool("erasure(4+2)");
    let whole = Arc::new(body(1, 1 << 20));
    pool.put(&ctx, id(0, 0), &whole).unwrap();
    (0..50).for_each(|_| assert!(holds(&*pool, id(0, 0), &whole)));
    stores[..2].iter().for_each(|store| store.set(true));
    let (sender, done) = channel();
    for _ in 0..READERS {
        let (pool, whole, sender) = (pool.clone(), whole.clone(), sender.clone());
        drop(env.spawn("reader", move || {
            let mut buf = AlignedBuf::zeroed(4096);
            let same = |at: usize, buf: &[u8]| buf == &whole[at..at + 4096];
            let read =
                |at: usize| pool.get(&Ctx::system(), id(0, 0), at as u64, &mut buf).is_ok() && same(at, &buf);
            sender.send((0..1 << 20).step_by(1 << 16).all(read)).unwrap();
        }));
    }
    let next = || done.recv_timeout(Duration::from_secs(120));
    (1..READERS).for_each(|n| assert_eq!(next(), Ok(true), "reader {n}"));
    stores.iter().for_each(|store| store.set(false));
    assert_eq!(next(), Ok(true), "the last one");
}

#[test]
fn a_put_that_comes_late_to_a_deleted_object_goes_away() {
    let ctx = Ctx::system();
    let (pool, stores) = pool("erasure(4+2)");
    stores[2].set(true);
    pool.put(&ctx, id(0, 0), &body(1, 1 << 20)).unwrap();
    pool.delete(&ctx, id(0, 0)).unwrap();
    assert_eq!(pool.list(&ctx).unwrap(), []);
    stores[2].set(false);
    while pool.repair_step(&ctx).unwrap().more {}
    // either the late put undid itself or the step did; wait for the store's own thread
    while !stores[2].list(&ctx).unwrap().is_empty() {
        pool.repair_step(&ctx).unwrap();
    }
}

/// How many stores are read now, and were at most.
#[derive(Default)]
struct Reads {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Reads {
    /// One more for a while, in which others would come.
    fn note(&self) {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Env::real().sleep(Duration::from_millis(2));
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Somebody is repairing.
fn work() -> Ctx {
    Ctx { flow: Flow::SYSTEM.of_work(Work::Repair), ..Ctx::system() }
}

#[test]
fn beside_users_repair_and_scrubs_read_one_store_after_the_other() {
    let (env, users) = (Env::real(), Arc::<Activity>::default());
    let (layout, reads) = ("erasure(4+2)".parse::<Layout>().unwrap(), Arc::<Reads>::default());
    let made = || Arc::new(Stuck { reads: Some(reads.clone()), ..Stuck::default() });
    let stores: Vec<Arc<Stuck>> = (0..layout.pieces()).map(|_| made()).collect();
    let all: Vec<Arc<dyn Store>> = stores.iter().map(|store| store.clone() as _).collect();
    let (work, whole) = (work(), body(1, 1 << 20));
    let mut at_once = Vec::new();
    for (n, users_ask) in [false, true].into_iter().enumerate() {
        if users_ask {
            users.asked(u64::MAX); // and from now on
        }
        let pool = beside(&env, &users, layout, &all);
        pool.put(&work, id(n as u64, 0), &whole).unwrap();
        stores[2].inner.delete(&work, id(n as u64, 0)).unwrap();
        reads.most.store(0, Ordering::SeqCst);
        while pool.repair_step(&work).unwrap().more {}
        while pool.scrub().unwrap().step(&work).unwrap().more {}
        at_once.push(reads.most.load(Ordering::SeqCst));
        assert!(stores[2].inner.len(&work, id(n as u64, 0)).is_ok(), "it was not repaired");
    }
    assert!(at_once[0] > 1 && at_once[1] == 1, "{at_once:?} at once");
}

/// It has all it needs without that one, and does not wait as long for it as for an answer that it
/// needs.
#[test]
fn beside_users_repair_does_not_wait_for_a_store_that_does_not_answer() {
    let (env, users) = (Env::real(), Arc::<Activity>::default());
    users.asked(u64::MAX); // and from now on
    let layout = "erasure(4+2)".parse::<Layout>().unwrap();
    let stores: Vec<Arc<Stuck>> = (0..layout.pieces()).map(|_| Arc::default()).collect();
    let all: Vec<Arc<dyn Store>> = stores.iter().map(|store| store.clone() as _).collect();
    let (pool, work) = (beside(&env, &users, layout, &all), work());
    pool.put(&work, id(0, 0), &body(1, 1 << 20)).unwrap();
    stores[2].inner.delete(&work, id(0, 0)).unwrap();
    stores[5].set(true);
    let begun = env.now();
    while pool.repair_step(&work).unwrap().more {}
    let took = Duration::from_nanos(env.now() - begun);
    stores[5].set(false);
    assert!(stores[2].inner.len(&work, id(0, 0)).is_ok(), "it was not repaired");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn nobody_waits_for_the_space_of_a_store_that_hangs() {
    for layout in ["single", "erasure(4+2)"] {
        let (pool, stores) = pool_of(layout, true);
        let (cold, _) = pool_of("single", true);
        let tier = Tier::new(&Env::real(), pool.clone(), cold, TierOptions::default());
        let known = || tier.health().tier.is_some_and(|tier| tier.hot_total_bytes > 0);
        until("the space is known", || pool.space().is_ok() && known());
        let before = pool.space().unwrap();
        stores.iter().for_each(|store| store.set(true));
        for _ in 0..50 {
            let (pool, tier) = (pool.clone(), tier.clone());
            let asked = in_time("who asks for the space", move || {
                let _ = (tier.is_pressed(), tier.health(), tier.space());
                pool.space()
            });
            // or, on a machine that takes so long for all this, that it hangs
            assert!(asked.is_err() || asked.is_ok_and(|space| space == before), "{layout}");
        }
        let most = stores.iter().map(|store| store.held.load(Ordering::SeqCst)).max();
        assert_eq!(most, Some(1), "{layout}: it is asked once");
        stores.iter().for_each(|store| store.set(false));
        until("it is asked again", || pool.space().is_ok() && pool.health().stores[0].why.is_empty());
    }
}

/// Maintenance and operators do not wait for ever, and it is said why.
#[test]
fn background_work_leaves_a_single_store_alone_that_hangs() {
    let ctx = Ctx { flow: Flow::SYSTEM.of_work(Work::Cleaning), ..Ctx::system() };
    let (pool, stores) = pool_of("single", true);
    let whole = body(1, 1 << 20);
    (0..3).for_each(|n| pool.put(&ctx, id(n, 0), &whole).unwrap());
    assert!(holds(&*pool, id(0, 0), &whole) && !pool.is_stuck());
    stores[0].set(true);
    let first = pool.clone();
    let deleting = Env::real().spawn("first", move || first.delete(&ctx, id(0, 0)));
    until("it is seen that it hangs", || pool.is_stuck());
    let health = pool.health().stores.remove(0);
    assert_eq!((health.condition, &*health.why), (Condition::Failing, "a call does not return"));
    let (again, put) = (pool.clone(), whole);
    let failed = in_time("background work", move || {
        let mut buf = AlignedBuf::zeroed(4096);
        let calls = [
            again.delete(&ctx, id(1, 0)),
            again.put(&ctx, id(4, 0), &put),
            again.get(&ctx, id(1, 0), 0, &mut buf),
            again.len(&ctx, id(1, 0)).map(drop),
            again.list(&ctx).map(drop),
        ];
        calls.iter().all(|call| call.as_ref().is_err_and(|e| e.is_passing()))
    });
    assert!(failed, "they are told that it does not answer");
    assert_eq!(stores[0].held.load(Ordering::SeqCst), 1, "it is called no more");
    stores[0].set(false);
    let _ = deleting.join().unwrap(); // done, or given up before it was
    until("it answers again", || !pool.is_stuck());
    pool.delete(&ctx, id(1, 0)).unwrap();
    assert_eq!(pool.list(&ctx).unwrap(), [(id(2, 0), 1 << 20)]);
}

/// Each piece that is handed to a store that hangs would stay in memory.
#[test]
fn stores_that_hang_are_given_no_more_pieces() {
    let (pool, stores) = pool("erasure(2+1)");
    stores[..2].iter().for_each(|store| store.set(true));
    let first = pool.clone();
    let putting = Env::real().spawn("first", move || first.put(&Ctx::system(), id(0, 0), &body(1, 1 << 20)));
    assert!(putting.join().unwrap().is_err(), "there are too few");
    let second = pool.clone();
    let put =
        in_time("a put that cannot be", move || second.put(&Ctx::system(), id(3, 0), &body(2, 1 << 20)));
    let told = put.expect_err("there are too few").to_string();
    assert!(told.contains("a call does not return"), "{told}");
    stores.iter().for_each(|store| store.set(false));
    until("they answer again", || !pool.is_stuck());
    let there: Vec<bool> =
        stores.iter().map(|store| store.inner.len(&Ctx::system(), id(3, 0)).is_ok()).collect();
    assert_eq!(there, [false, false, true]);
}
