//! A fair semaphore: users share a resource, and none of them may have all of it: turns, bytes of
//! memory, transfers.
//!
//! The number of units is fixed. The user with the fewest units is served first, each user in the
//! order of the user's own requests. A user may have at most four times what that leaves free: one
//! user alone has four fifths, each of two has four ninths. So a new user always finds something. A
//! user who holds units for long, or asks for more and more, waits only for that user's own units.
//!
//! A waiting request that goes away leaves no gap. No lock is held while a request gets its permit.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// A user has at most this many times what is left free.
const TIMES_FREE: usize = 4;

/// Units that users share. Cheap to clone.
#[derive(Clone)]
pub struct FairSemaphore(Arc<Mutex<SemaphoreState>>);

struct SemaphoreState {
    units: usize,
    free: usize,
    users: FxHashMap<u32, User>,
    /// Users with waiting requests: by their units, then by arrival.
    order: BTreeSet<(usize, u64, u32)>,
    arrivals: u64,
    waiting: usize,
}

#[derive(Default)]
struct User {
    has: usize,
    /// Waiting requests, by arrival.
    waiting: BTreeMap<u64, Waiter>,
}

struct Waiter {
    units: usize,
    give: oneshot::Sender<FairPermit>,
}

/// Units that a request has, until it is dropped.
pub struct FairPermit {
    of: FairSemaphore,
    uid: u32,
    units: usize,
}

/// A request that waits for its permit.
pub struct Waiting {
    of: FairSemaphore,
    uid: u32,
    arrival: u64,
    given: oneshot::Receiver<FairPermit>,
}

impl FairSemaphore {
    /// A semaphore of this many units, all of them free.
    pub fn new(units: usize) -> FairSemaphore {
        FairSemaphore(Arc::new(Mutex::new(SemaphoreState {
            units,
            free: units,
            users: FxHashMap::default(),
            order: BTreeSet::new(),
            arrivals: 0,
            waiting: 0,
        })))
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting
    }

    /// Requests of this user that wait, and number of users with waiting requests.
    pub fn waiting_of(&self, uid: u32) -> (usize, usize) {
        let state = self.0.lock();
        (state.users.get(&uid).map_or(0, |user| user.waiting.len()), state.order.len())
    }

    /// Units that are taken.
    pub fn taken(&self) -> usize {
        let state = self.0.lock();
        state.units - state.free
    }

    /// Whether this user has as much as is left free: then the user should ask for less at a time.
    pub fn is_tight(&self, uid: u32) -> bool {
        let state = self.0.lock();
        state.users.get(&uid).map_or(0, |user| user.has) >= state.free
    }

    /// Takes units (at most as many as there are) for a user, as soon as it is the user's turn.
    pub fn take(&self, uid: u32, units: usize) -> Waiting {
        let (give, given) = oneshot::channel();
        let arrival = {
            let state = &mut *self.0.lock();
            state.arrivals += 1;
            state.waiting += 1;
            let arrival = state.arrivals;
            let waiter = Waiter { units: units.min(state.units), give };
            state.change(uid, |user| user.waiting.insert(arrival, waiter));
            arrival
        };
        self.give_out();
        Waiting { of: self.clone(), uid, arrival, given }
    }

    /// Takes units; `None` when it is not the user's turn within `time`.
    pub async fn take_within(&self, uid: u32, units: usize, time: Duration) -> Option<FairPermit> {
        match self.at_once(uid, units) {
            None => tokio::time::timeout(time, self.take(uid, units)).await.ok(),
            share => share,
        }
    }

    /// Takes units if they are free now, and nobody waits before.
    pub fn try_take(&self, uid: u32, units: usize) -> Option<FairPermit> {
        self.at_once(uid, units).or_else(|| self.take(uid, units).given.try_recv().ok())
    }

    /// The usual case: nobody waits, and there is enough.
    fn at_once(&self, uid: u32, units: usize) -> Option<FairPermit> {
        let state = &mut *self.0.lock();
        let units = units.min(state.units);
        let has = state.users.get(&uid).map_or(0, |user| user.has);
        state.free = state.left(has, units).filter(|_| state.waiting == 0)?;
        state.users.entry(uid).or_default().has += units;
        Some(FairPermit { of: self.clone(), uid, units })
    }

    fn give_out(&self) {
        loop {
            // a statement of its own: the lock is not held while a request gets its permit
            let next = self.0.lock().next();
            let Some((uid, Waiter { units, give })) = next else { return };
            // a request that has gone away leaves it to the next
            drop(give.send(FairPermit { of: self.clone(), uid, units }));
        }
    }

    fn give_back(&self, uid: u32, units: usize) {
        let somebody_waits = {
            let state = &mut *self.0.lock();
            state.free += units;
            state.change(uid, |user| user.has -= units);
            state.waiting > 0
        };
        if somebody_waits {
            self.give_out();
        }
    }
}

impl SemaphoreState {
    /// Changes a user's entry, and the user's position in the order.
    fn change<T>(&mut self, uid: u32, change: impl FnOnce(&mut User) -> T) -> T {
        let user = self.users.entry(uid).or_default();
        let key = |user: &User| user.waiting.keys().next().map(|first| (user.has, *first, uid));
        if let Some(key) = key(user) {
            self.order.remove(&key);
        }
        let changed = change(user);
        self.order.extend(key(user));
        if user.has == 0 && user.waiting.is_empty() {
            self.users.remove(&uid);
        }
        changed
    }

    /// What is left free when a user who has `has` units gets `units` more; `None` if the user may
    /// not.
    fn left(&self, has: usize, units: usize) -> Option<usize> {
        let left = self.free.checked_sub(units)?;
        (has == 0 || has + units <= TIMES_FREE * left).then_some(left)
    }

    /// The next request, if there is enough for it.
    fn next(&mut self) -> Option<(u32, Waiter)> {
        let (has, first, uid) = *self.order.first()?;
        let units = self.users.get(&uid)?.waiting.get(&first)?.units;
        self.free = self.left(has, units)?;
        self.waiting -= 1;
        let waiter = self.change(uid, |user| {
            user.has += units;
            user.waiting.remove(&first)
        })?;
        Some((uid, waiter))
    }
}

impl FairPermit {
    /// Number of units.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Returns all units except this many.
    pub fn shrink(&mut self, units: usize) {
        let back = self.units.saturating_sub(units);
        self.units -= back;
        self.of.give_back(self.uid, back);
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        self.of.give_back(self.uid, self.units);
    }
}

impl Future for Waiting {
    type Output = FairPermit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FairPermit> {
        // the sender keeps the semaphore alive until it has sent
        Pin::new(&mut self.given).poll(cx).map(|given| given.expect("who waits is given his share"))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let gone = {
            let state = &mut *self.of.0.lock();
            let gone = state.change(self.uid, |user| user.waiting.remove(&self.arrival));
            state.waiting -= usize::from(gone.is_some());
            gone
        };
        if gone.is_some() {
            // a request behind this one may need less
            self.of.give_out();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn now(waiting: &mut Waiting) -> Option<FairPermit> {
        waiting.now_or_never()
    }

    #[test]
    fn one_alone_has_four_fifths_and_who_comes_finds_something() {
        let semaphore = FairSemaphore::new(100);
        let mine: Vec<FairPermit> = std::iter::from_fn(|| semaphore.try_take(1, 1)).collect();
        assert_eq!(mine.len(), 80);
        let yours: Vec<FairPermit> = std::iter::from_fn(|| semaphore.try_take(2, 1)).collect();
        assert_eq!(yours.len(), 16);
        assert!(semaphore.try_take(3, 1).is_some() && semaphore.try_take(3, 20).is_none());
        assert!(semaphore.is_tight(1) && !semaphore.is_tight(3));
        drop((mine, yours));
        assert_eq!((semaphore.taken(), semaphore.0.lock().users.len()), (0, 0));
        assert!(FairSemaphore::new(1).try_take(1, 1).is_some(), "of a single one, too");
    }

    #[test]
    fn who_has_least_is_next_and_each_is_served_in_his_order() {
        let semaphore = FairSemaphore::new(10);
        let mut mine: Vec<FairPermit> = std::iter::from_fn(|| semaphore.try_take(1, 1)).collect();
        let mut more: Vec<Waiting> = (0..2).map(|_| semaphore.take(1, 1)).collect();
        let (mut big, mut small) = (semaphore.take(2, 4), semaphore.take(2, 1));
        assert_eq!(
            (semaphore.waiting(), semaphore.waiting_of(1), semaphore.waiting_of(3)),
            (4, (2, 2), (0, 2))
        );
        assert!(now(&mut big).is_none() && now(&mut small).is_none());
        mine.truncate(6);
        let big = now(&mut big).expect("he had nothing");
        assert!(now(&mut small).is_none() && more.iter_mut().all(|one| now(one).is_none()));
        drop(big);
        let small = now(&mut small).expect("his next");
        let got: Vec<bool> = more.iter_mut().map(|one| now(one).is_some()).collect();
        assert_eq!(got, [true, true]);
        drop((small, more, mine));
        assert_eq!((semaphore.taken(), semaphore.waiting(), semaphore.0.lock().users.len()), (0, 0, 0));
    }

    #[test]
    fn who_goes_away_leaves_no_gap() {
        let semaphore = FairSemaphore::new(4);
        let mut all = semaphore.try_take(1, 4).expect("all of it");
        let waiting: Vec<Waiting> = (0..1000).map(|n| semaphore.take(n % 7, 1)).collect();
        let mut last = semaphore.take(9, 3);
        drop(waiting);
        assert_eq!((semaphore.waiting(), now(&mut last).is_some()), (1, false));
        all.shrink(1);
        let given = semaphore.take(2, 1);
        drop(given);
        assert!(now(&mut last).is_some());
        drop((all, last));
        assert_eq!((semaphore.taken(), semaphore.waiting(), semaphore.0.lock().users.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn waiting_has_an_end() {
        let semaphore = FairSemaphore::new(2);
        let all = semaphore.take_within(1, 2, Duration::ZERO).await.expect("free");
        assert!(semaphore.take_within(1, 1, Duration::ZERO).await.is_none());
        assert_eq!(semaphore.waiting(), 0);
        let other = semaphore.take_within(2, 1, Duration::MAX);
        let later = async { drop(all) };
        assert!(tokio::join!(other, later).0.is_some());
    }
}
