//! The gate before a store: who is let through, how many at once, and what is noted of it.

use leeward_env::disk::Space;
use leeward_env::waits::{self, Cause, Waits};
use leeward_env::{Class, Ctx, Env, Flow};
use leeward_pool::{AlignedBuf, Error, GatedStore, ObjectId, Result, Store};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

const ID: ObjectId = ObjectId { segment: 1, generation: 0 };
const SLICE: usize = 64 << 10;

/// A store whose reads end when they are told to. The offset says who reads.
#[derive(Default)]
struct Slow {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    inside: Vec<u64>,
    order: Vec<u64>,
    may_end: usize,
    fails: Option<std::io::ErrorKind>,
}

impl Slow {
    fn end_one(&self) {
        self.state.lock().may_end += 1;
        self.changed.notify_all();
    }

    fn fail(&self, kind: Option<std::io::ErrorKind>) {
        self.state.lock().fails = kind;
    }

    fn order(&self) -> Vec<u64> {
        self.state.lock().order.clone()
    }
}

impl Store for Slow {
    fn put(&self, _: &Ctx, _: ObjectId, _: &AlignedBuf) -> Result<()> {
        Ok(())
    }

    fn get(&self, _: &Ctx, _: ObjectId, offset: u64, _: &mut [u8]) -> Result<()> {
        let mut state = self.state.lock();
        state.inside.push(offset);
        state.order.push(offset);
        self.changed.notify_all();
        while state.may_end == 0 {
            self.changed.wait(&mut state);
        }
        state.may_end -= 1;
        state.inside.retain(|o| *o != offset);
        match state.fails {
            Some(kind) => Err(Error::Io(kind.into())),
            None => Ok(()),
        }
    }

    fn len(&self, _: &Ctx, _: ObjectId) -> Result<u64> {
        Ok(0)
    }

    fn settle(&self, _: &Ctx, _: ObjectId) -> Result<()> {
        Ok(())
    }

    fn delete(&self, _: &Ctx, _: ObjectId) -> Result<()> {
        panic!("as a store may")
    }

    fn list(&self, _: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        Ok(Vec::new())
    }

    fn space(&self) -> Result<Space> {
        Ok(Space::default())
    }
}

struct Rig {
    env: Env,
    slow: Arc<Slow>,
    gated: Arc<GatedStore>,
}

fn rig(fair: bool) -> Rig {
    let (env, slow) = (Env::real(), Arc::new(Slow::default()));
    let gated = Arc::new(GatedStore::new(&env, slow.clone(), SLICE, Arc::default(), fair));
    gated.activity().share(u64::MAX);
    Rig { env, slow, gated }
}

fn ctx(uid: u32, class: Class) -> Ctx {
    Ctx { flow: Flow { uid, job: 0 }, class, ..Ctx::user(uid, uid) }
}

impl Rig {
    /// A thread that reads one slice; its waits.
    fn read(&self, uid: u32, offset: u64) -> std::thread::JoinHandle<Waits> {
        let gated = self.gated.clone();
        self.env.spawn("reader", move || {
            waits::take();
            let _ = gated.get(&ctx(uid, Class::Interactive), ID, offset, &mut [0; SLICE]);
            waits::take()
        })
    }

    fn until(&self, what: impl Fn(&Rig) -> bool) {
        while !what(self) {
            self.env.sleep(Duration::from_millis(1));
        }
    }

    fn until_waiting(&self, count: u64) {
        self.until(|r| r.gated.figures().waiting == count);
    }

    fn until_begun(&self, count: usize) {
        self.until(|r| r.slow.order().len() == count);
    }
}

#[test]
fn who_was_quiet_is_next_and_knows_behind_whom_he_waited() {
    let rig = rig(true);
    let mut threads = vec![rig.read(1, 10)];
    rig.until_begun(1); // alone: nothing is known of this store yet
    for n in 1..4 {
        threads.push(rig.read(1, 10 + n));
        rig.until_waiting(n);
    }
    let other = rig.read(2, 20);
    rig.until_waiting(4);
    rig.slow.end_one();
    rig.until_begun(2);
    assert_eq!(rig.slow.order()[1], 20, "the other user's slice goes before the three that came earlier");
    rig.slow.end_one();
    let waits = other.join().unwrap();
    assert!(waits.of(Cause::Store) > 0);
    assert_eq!(waits.behind(Cause::Store), Some(Flow { uid: 1, job: 0 }));
    (0..3).for_each(|_| rig.slow.end_one());
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(rig.slow.order(), [10, 20, 11, 12, 13]);
    let figures = rig.gated.figures();
    assert_eq!((figures.on_way_bytes, figures.waiting, figures.waits), (0, 0, 4));
    assert!(figures.waited_nanos > 0);
}

#[test]
fn an_open_gate_lets_all_through() {
    let rig = rig(false);
    let threads: Vec<_> = (0..8).map(|n| rig.read(1, n)).collect();
    rig.until(|r| r.slow.state.lock().inside.len() == 8);
    (0..8).for_each(|_| rig.slow.end_one());
    threads.into_iter().for_each(|t| assert_eq!(t.join().unwrap(), Waits::NONE));
}

/// Whatever the window is, and also of a user who is alone, whose reads do not wait for that.
#[test]
fn only_so_many_transfers_are_on_their_way() {
    let rig = rig(true);
    rig.gated.activity().share(0);
    let most = leeward_env::limits::STORE_TRANSFERS_MAX;
    let more = 6;
    let threads: Vec<_> = (0..(most + more) as u64).map(|n| rig.read(1, n)).collect();
    rig.until(|r| r.slow.order().len() + r.gated.figures().waiting as usize == most + more);
    assert_eq!(rig.slow.order().len(), most);
    rig.slow.end_one();
    rig.until_begun(most + 1);
    assert_eq!(rig.slow.state.lock().inside.len(), most, "one left, one came");
    (0..most + more - 1).for_each(|_| rig.slow.end_one());
    for thread in threads {
        thread.join().unwrap();
    }
    let figures = rig.gated.figures();
    assert_eq!((figures.on_way_bytes, figures.waiting, figures.waits), (0, 0, more as u64));
}

#[test]
fn a_large_read_is_cut_in_slices_where_users_share() {
    let rig = rig(true);
    rig.gated.activity().share(0);
    rig.slow.end_one();
    let large = |uid, offset| {
        let gated = rig.gated.clone();
        rig.env.spawn("large", move || {
            gated.get(&ctx(uid, Class::Interactive), ID, offset, &mut [0; 4 * SLICE + 1])
        })
    };
    large(1, 4096).join().unwrap().unwrap();
    assert_eq!(rig.slow.order(), [4096], "alone all at once");
    rig.gated.activity().share(u64::MAX);
    let first = rig.read(1, 10);
    rig.until_begun(2);
    let waits = rig.read(2, 20);
    rig.until_waiting(1);
    let second = large(3, 1 << 20);
    rig.until_waiting(2);
    (0..7).for_each(|_| rig.slow.end_one());
    first.join().unwrap();
    waits.join().unwrap();
    second.join().unwrap().unwrap();
    assert_eq!(rig.slow.order()[3..5], [1 << 20, (1 << 20) + SLICE as u64], "a slice, as another one waited");
}

#[test]
fn failures_and_panics_leave_nothing_behind_and_overload_narrows_the_window() {
    let rig = rig(true);
    let read = || {
        rig.slow.end_one();
        rig.gated.get(&ctx(1, Class::Interactive), ID, 0, &mut [0; SLICE])
    };
    let least = rig.gated.figures().window_bytes;
    rig.slow.fail(Some(std::io::ErrorKind::Other));
    assert!(read().is_err());
    rig.slow.fail(Some(std::io::ErrorKind::TimedOut));
    assert!(read().is_err());
    assert_eq!(rig.gated.figures().window_bytes, least, "it has its least already");
    rig.slow.fail(None);
    let gated = rig.gated.clone();
    let deleting = rig.env.spawn("deleting", move || gated.delete(&ctx(1, Class::Background), ID));
    assert!(deleting.join().is_err());
    assert_eq!(rig.gated.figures().on_way_bytes, 0);
    read().unwrap();
}
