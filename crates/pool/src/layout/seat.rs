//! One store of a pool, with what is known of how it behaves: what it was asked, how fast it is, and whether it is
//! worth asking at all.
//!
//! A store whose last calls failed *rests*: it is not asked while others can serve, except for one call every now and
//! then that finds out whether it is back. An answer of any kind, be it "no such object", ends that.

use super::Member;
use super::health::{Condition, StoreHealth};
use super::lane::{Busy, Here, Lane, Takes};
use super::spec::{StoreSpec, StoreState};
use crate::{AlignedBuf, CountedStore, Error, ObjectId, Result, Store, StoreFigures};
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
/// A call that runs for so long hangs: until it returns, the store counts as one that fails.
const HANG: Nanos = 15_000_000_000;
/// Reads that the speed of a store is judged by: older ones count half as much, each time that so many were added.
const RECENT_READS: u64 = 512;
/// Fewer reads say nothing about a store.
const READS_MIN: u64 = 20;
/// No store is given less time than this for a short read, nor more than that, before others are asked, too.
pub(super) const HEDGE_MIN: Nanos = 2_000_000;
pub(super) const HEDGE_MAX: Nanos = 1_000_000_000;
/// Where 95 of 100 reads take no longer a hand-over is a good part of a short one.
const QUICK: Nanos = 512_000;
/// After a read that took longer than `HEDGE_MIN` a store is not trusted for so long to answer at once.
const WARY: Nanos = 2_000_000_000;

/// What a store has under a name: as many bytes as it says.
pub(crate) struct Stored {
    buffer: AlignedBuf,
    len: usize,
}

impl Stored {
    /// To be stored elsewhere: zeros follow up to a multiple of 4096.
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

pub(crate) struct Seat {
    spec: StoreSpec,
    env: Env,
    store: Option<Arc<CountedStore>>,
    /// Why there is no store.
    missing: String,
    pub(crate) bad_pieces: AtomicU64,
    hedged: AtomicU64,
    lane: Lane,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Calls that failed since the last answer.
    failures: u32,
    /// While it rests: when it may be asked again.
    ask_at: Nanos,
    last_error: String,
    full: bool,
    reads: Histogram,
    /// Until then it is not trusted to answer at once.
    wary_until: Nanos,
}

impl Seat {
    pub(crate) fn new(env: &Env, spec: &StoreSpec, member: Member) -> Seat {
        let (store, missing) = match (spec.state, member) {
            (StoreState::Missing, _) => (None, "given up by an operator".to_string()),
            (_, Member::Missing(why)) => (None, why),
            (_, Member::Open(store)) => (Some(Arc::new(CountedStore::new(env, store))), String::new()),
        };
        Seat {
            spec: spec.clone(),
            env: env.clone(),
            store,
            missing,
            bad_pieces: AtomicU64::new(0),
            hedged: AtomicU64::new(0),
            lane: Lane::new(env),
            seen: Mutex::default(),
        }
    }

    /// Where it is, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.spec.url
    }

    pub(crate) fn is_open(&self) -> bool {
        self.store.is_some()
    }

    /// Whether it is worth asking now. True once in a while for a store that rests: who is told so asks it.
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

    /// The same without a promise to ask: also true for others until somebody does.
    pub(crate) fn can_ask(&self) -> bool {
        if self.store.is_none() || self.hangs() {
            return false;
        }
        let seen = self.seen.lock();
        seen.failures < FAILURES_MAX || self.env.now() >= seen.ask_at
    }

    /// Whether it rests, or is not there.
    pub(crate) fn is_failing(&self) -> bool {
        self.store.is_none() || self.hangs() || self.seen.lock().failures >= FAILURES_MAX
    }

    /// Whether a call has been running for far too long.
    fn hangs(&self) -> bool {
        self.lane.oldest().is_some_and(|begun| self.env.now().saturating_sub(begun) > HANG)
    }

    /// Does it on one of the store's threads.
    pub(crate) fn hand_over(
        &self,
        ctx: &Ctx,
        takes: Takes,
        job: impl FnOnce() + Send + 'static,
    ) -> std::result::Result<(), Busy> {
        self.lane.hand_over(ctx, takes, job)
    }

    /// Leave to call it on this thread: when nothing runs on its own ones, and it has answered at once for a while.
    pub(crate) fn call_here(&self) -> Option<Here<'_>> {
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

    /// Whether an operator said that what is on it is gone.
    pub(crate) fn is_given_up(&self) -> bool {
        self.spec.state == StoreState::Missing
    }

    /// All that the store has under a name; nothing where it says twice, asked in two ways, that there is nothing.
    pub(crate) fn read_all(&self, ctx: &Ctx, id: ObjectId) -> Result<Option<Stored>> {
        let len = match self.call(|store| store.len(ctx, id)) {
            Ok(len) => Some(len as usize),
            Err(Error::NotFound(_)) => None,
            Err(e) => return Err(e),
        };
        let mut buffer = AlignedBuf::zeroed(len.unwrap_or_default());
        let wanted = len.unwrap_or(1);
        match (self.call(|store| store.get(ctx, id, 0, &mut buffer[..wanted])), len) {
            (Ok(()), Some(len)) => Ok(Some(Stored { buffer, len })),
            (Err(Error::NotFound(_)), None) => Ok(None),
            (Ok(()), None) | (Err(Error::NotFound(_)), Some(_)) => {
                let what = format!("{}: {id:?} is there and is not there", self.url());
                Err(Error::Io(std::io::Error::other(what)))
            }
            (Err(e), _) => Err(e),
        }
    }

    /// Calls the store, and notes how that went.
    pub(crate) fn call<T>(&self, call: impl FnOnce(&dyn Store) -> Result<T>) -> Result<T> {
        let Some(store) = &self.store else {
            return Err(Error::Io(std::io::Error::other(self.missing.clone())));
        };
        let result = call(&**store);
        self.note(result.as_ref().err());
        result
    }

    /// The same for a read, whose time is noted, too.
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

    /// It took something.
    pub(crate) fn has_room(&self) {
        self.seen.lock().full = false;
    }

    /// 95 of 100 reads take less; not known yet at first.
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
            (Condition::Failing, format!("a call has not returned for {} s", HANG / 1_000_000_000))
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
