//! One store of a pool, with its record of behaviour: its calls, its speed, and whether it should
//! be called at all.
//!
//! A store whose last calls failed *rests* (its circuit breaker is open). It is not called while
//! others can serve, except for one call now and then that finds out whether it is back. An answer
//! of any kind, also "no such object", ends the rest.

use super::Member;
use super::health::{Condition, StoreHealth};
use super::lane::{Busy, CallGuard, HANG, Lane, Takes};
use super::space::KnownSpace;
use super::spec::{StoreSpec, StoreState};
use crate::{AlignedBuf, CountedStore, Error, ObjectId, Result, Store, StoreFigures};
use leeward_env::disk::Space;
use leeward_env::histogram::Histogram;
use leeward_env::{Ctx, Env, Nanos};
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls that fail one after another before a store rests.
const FAILURES_MAX: u32 = 3;
/// The first rest; each further failure doubles it.
const REST: Nanos = 1_000_000_000;
/// The longest rest.
const REST_MAX: Nanos = 60_000_000_000;
/// How much longer a call runs that nobody waits for any more.
const LONG: Nanos = 40_000_000_000;
/// Why a store fails one of whose calls has run for too long.
const HANGS: &str = "a call does not return";
/// A store's speed is judged by its recent reads. Each time this many were added, older ones count
/// half as much.
const RECENT_READS: u64 = 512;
/// Fewer reads say nothing about a store.
const READS_MIN: u64 = 20;
/// Bounds of the time that a store gets for a short read before others are asked, too.
pub(super) const HEDGE_MIN: Nanos = 2_000_000;
pub(super) const HEDGE_MAX: Nanos = 1_000_000_000;
/// If the 95th percentile of reads is below this, handing a read to another thread is a large part
/// of its cost.
const QUICK: Nanos = 512_000;
/// After a read that took longer than `HEDGE_MIN` the store is not read on the caller's thread for
/// this time.
const WARY: Nanos = 2_000_000_000;

/// The content that a store has under a name: `len` bytes of the buffer.
pub(crate) struct Stored {
    buffer: AlignedBuf,
    len: usize,
}

impl Stored {
    /// All that a store has under a name, by its answers for the length and the content. `None`
    /// only where both say that it has nothing.
    pub(crate) fn read(
        url: &str,
        id: ObjectId,
        len: Result<u64>,
        get: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Option<Stored>> {
        let len = match len {
            Ok(len) => Some(len as usize),
            Err(Error::NotFound(_)) => None,
            Err(e) => return Err(e),
        };
        let mut buffer = AlignedBuf::zeroed(len.unwrap_or_default());
        let wanted = len.unwrap_or(1);
        match (get(&mut buffer[..wanted]), len) {
            (Ok(()), Some(len)) => Ok(Some(Stored { buffer, len })),
            (Err(Error::NotFound(_)), None) => Ok(None),
            (Ok(()), None) | (Err(Error::NotFound(_)), Some(_)) => {
                let what = format!("{url}: {id:?} is there and is not there");
                Err(Error::Io(std::io::Error::other(what)))
            }
            (Err(e), _) => Err(e),
        }
    }

    /// The content to be stored elsewhere: zeros follow up to a multiple of 4096.
    pub(crate) fn buffer(&self) -> &AlignedBuf {
        &self.buffer
    }
}

impl Deref for Stored {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

pub(crate) struct PoolStore {
    spec: StoreSpec,
    env: Env,
    store: Option<Arc<CountedStore>>,
    /// Why the store is not open.
    missing: String,
    pub(crate) bad_pieces: AtomicU64,
    hedged: AtomicU64,
    lane: Lane,
    space: KnownSpace,
    seen: Mutex<StoreStatus>,
}

#[derive(Default)]
struct StoreStatus {
    /// Calls that failed since the last answer.
    failures: u32,
    /// While the store rests: when it may be called again.
    ask_at: Nanos,
    last_error: String,
    full: bool,
    reads: Histogram,
    /// Until then the store is not read on the caller's thread.
    wary_until: Nanos,
}

impl PoolStore {
    pub(crate) fn new(env: &Env, spec: &StoreSpec, member: Member) -> PoolStore {
        let (store, missing) = match (spec.state, member) {
            (StoreState::Missing, _) => (None, "given up by an operator".to_string()),
            (_, Member::Missing(why)) => (None, why),
            (_, Member::Open(store)) => (Some(Arc::new(CountedStore::new(env, store))), String::new()),
        };
        PoolStore {
            spec: spec.clone(),
            env: env.clone(),
            store,
            missing,
            bad_pieces: AtomicU64::new(0),
            hedged: AtomicU64::new(0),
            lane: Lane::new(env),
            space: KnownSpace::default(),
            seen: Mutex::default(),
        }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// URL of the store, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.spec.url
    }

    pub(crate) fn is_open(&self) -> bool {
        self.store.is_some()
    }

    /// Whether the store should be called now. For a resting store this is true once in a while;
    /// the caller that gets `true` must call it.
    pub(crate) fn may_ask(&self) -> bool {
        if self.store.is_none() || self.hangs() {
            return false;
        }
        let mut seen = self.seen.lock();
        if seen.failures < FAILURES_MAX {
            return true;
        }
        let now = self.env.now();
        let may = now >= seen.ask_at;
        if may {
            seen.ask_at = now + rest(seen.failures);
        }
        may
    }

    /// Whether the store may be called, without a promise to do so. Stays true for others until one
    /// calls.
    pub(crate) fn can_ask(&self) -> bool {
        if self.store.is_none() || self.hangs() {
            return false;
        }
        let seen = self.seen.lock();
        seen.failures < FAILURES_MAX || self.env.now() >= seen.ask_at
    }

    /// Whether the store rests, or is not open.
    pub(crate) fn is_failing(&self) -> bool {
        self.store.is_none() || self.hangs() || self.seen.lock().failures >= FAILURES_MAX
    }

    /// Whether a call has been running for too long.
    pub(crate) fn hangs(&self) -> bool {
        let now = self.env.now();
        self.lane.hangs(now) || self.space.asked().is_some_and(|asked| now.saturating_sub(asked) > HANG)
    }

    /// Whether one has been running for so long that its caller has given it up.
    pub(crate) fn is_given_up_on(&self) -> bool {
        self.lane.hangs(self.env.now().saturating_sub(LONG))
    }

    /// The answer of a store that hangs.
    pub(crate) fn no_answer(&self) -> Error {
        Error::Away(format!("{}: {HANGS}", self.url()))
    }

    /// Asks the store for its free space, on a thread of its own, unless it is being asked.
    pub(crate) fn ask_for_space(self: &Arc<Self>) {
        let Some(store) = self.store.clone().filter(|_| !self.env.is_sim()) else { return };
        if !self.space.begin(self.env.now()) {
            return;
        }
        let of = Arc::downgrade(self); // the thread of a store that hangs keeps nothing else
        let ask = move || {
            let answer = store.space();
            if let Some(of) = of.upgrade() {
                of.note(answer.as_ref().err());
                of.space.end(Some(&answer));
            }
        };
        if self.env.try_spawn("lee-space", ask).is_err() {
            self.space.end(None); // the next one asks again
        }
    }

    /// The free space by the last answer; waits a moment for the one that was asked for.
    pub(crate) fn known_space(&self) -> Result<Space> {
        if self.store.is_none() || self.env.is_sim() {
            return self.call(|store| store.space());
        }
        if self.hangs() { Err(self.no_answer()) } else { self.space.get(&self.env) }
    }

    /// Runs the job on one of the store's threads.
    pub(crate) fn hand_over(
        &self,
        ctx: &Ctx,
        takes: Takes,
        job: impl FnOnce() + Send + 'static,
    ) -> std::result::Result<(), Busy> {
        self.lane.hand_over(ctx, takes, job)
    }

    /// Notes a call that is made on this thread.
    pub(crate) fn note_call(&self, takes: Takes) -> CallGuard<'_> {
        self.lane.note_call(takes)
    }

    /// Permission to call the store on this thread: when its own threads are idle, and it has
    /// answered at once for a while.
    pub(crate) fn call_here(&self) -> Option<CallGuard<'_>> {
        let quick = self.read_p95().is_some_and(|p95| p95 <= QUICK);
        let trusted = || {
            let seen = self.seen.lock();
            seen.failures == 0 && self.env.now() >= seen.wary_until
        };
        if self.is_open() && quick && trusted() { self.lane.call_here() } else { None }
    }

    /// A read of it takes so long that others are asked, too.
    pub(crate) fn is_late(&self) {
        self.hedged.fetch_add(1, Ordering::Relaxed);
        self.seen.lock().wary_until = self.env.now() + WARY;
    }

    /// Whether an operator has given it up: the data on it is gone.
    pub(crate) fn is_given_up(&self) -> bool {
        self.spec.state == StoreState::Missing
    }

    /// All that the store has under a name. `None` only where the store says twice, asked in two
    /// ways, that it has nothing.
    pub(crate) fn read_all(&self, ctx: &Ctx, id: ObjectId) -> Result<Option<Stored>> {
        let len = self.call(|store| store.len(ctx, id));
        Stored::read(self.url(), id, len, |buf| self.call(|store| store.get(ctx, id, 0, buf)))
    }

    /// Calls the store, and notes the result.
    pub(crate) fn call<T>(&self, call: impl FnOnce(&dyn Store) -> Result<T>) -> Result<T> {
        let Some(store) = &self.store else {
            return Err(Error::Io(std::io::Error::other(self.missing.clone())));
        };
        let result = call(&**store);
        self.note(result.as_ref().err());
        result
    }

    /// Calls the store for a read, and notes the result and the time.
    pub(crate) fn read<T>(&self, call: impl FnOnce(&dyn Store) -> Result<T>) -> Result<T> {
        let begun = self.env.now();
        let result = self.call(call);
        if result.is_ok() {
            let now = self.env.now();
            let took = now.saturating_sub(begun);
            let mut seen = self.seen.lock();
            seen.reads.add(took);
            if took > HEDGE_MIN {
                seen.wary_until = now + WARY;
            }
            if seen.reads.count() >= 2 * RECENT_READS {
                seen.reads.halve();
            }
        }
        result
    }

    fn note(&self, error: Option<&Error>) {
        let mut seen = self.seen.lock();
        match error {
            Some(e) if e.is_failure() => {
                seen.failures = seen.failures.saturating_add(1);
                seen.ask_at = self.env.now() + rest(seen.failures);
                seen.last_error = e.to_string();
            }
            Some(Error::Full) => (seen.full, seen.failures) = (true, 0),
            _ => seen.failures = 0,
        }
    }

    /// The store took data, so it has room.
    pub(crate) fn has_room(&self) {
        self.seen.lock().full = false;
    }

    /// 95th percentile of its read times; `None`: not known yet.
    pub(crate) fn read_p95(&self) -> Option<Nanos> {
        let seen = self.seen.lock();
        (seen.reads.count() >= READS_MIN).then(|| seen.reads.quantile(0.95))
    }

    pub(crate) fn health(&self) -> StoreHealth {
        let (p95, hangs) = (self.read_p95().unwrap_or_default(), self.hangs());
        let seen = self.seen.lock();
        let (condition, why) = if self.store.is_none() {
            (Condition::Missing, self.missing.clone())
        } else if hangs {
            (Condition::Failing, HANGS.to_string())
        } else if seen.failures >= FAILURES_MAX {
            (Condition::Failing, seen.last_error.clone())
        } else if seen.full {
            (Condition::Full, Error::Full.to_string())
        } else {
            (Condition::Ok, String::new())
        };
        StoreHealth {
            slot: self.spec.slot,
            id: self.spec.id.clone(),
            url: self.spec.url.clone(),
            state: self.spec.state,
            condition,
            why,
            figures: self.store.as_ref().map_or_else(StoreFigures::default, |s| s.figures()),
            bad_pieces: self.bad_pieces.load(Ordering::Relaxed),
            hedged: self.hedged.load(Ordering::Relaxed),
            get_p95_nanos: p95,
        }
    }
}

fn rest(failures: u32) -> Nanos {
    REST.saturating_mul(1 << failures.saturating_sub(FAILURES_MAX).min(16)).min(REST_MAX)
}
