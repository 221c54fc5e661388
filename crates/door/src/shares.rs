//! What users share and none of them may have all of: turns, bytes of memory, transfers.
//!
//! There are so many units. Who has least is served first, each user in the order of his own requests, and a user may have at most four times
//! what he leaves free: one alone has four fifths, each of two has four ninths; whoever comes next finds something. So one who holds what he has
//! for long, or asks for more and more, waits for himself.
//!
//! Who waits and goes away leaves no gap. No lock is held while somebody is given his share.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// A user has at most so many times what he leaves free.
const TIMES_FREE: usize = 4;

/// See the module's head. Cheap to clone.
#[derive(Clone)]
pub struct Shares(Arc<Mutex<State>>);

struct State {
    units: usize,
    free: usize,
    users: FxHashMap<u32, User>,
    /// Users who wait: by what they have, then by who came first.
    order: BTreeSet<(usize, u64, u32)>,
    arrivals: u64,
    waiting: usize,
}

#[derive(Default)]
struct User {
    has: usize,
    /// By arrival.
    waiting: BTreeMap<u64, Waiter>,
}

struct Waiter {
    units: usize,
    give: oneshot::Sender<Share>,
}

/// Units that a request has, until it is dropped.
pub struct Share {
    of: Shares,
    uid: u32,
    units: usize,
}

/// A request that waits for its share.
pub struct Waiting {
    of: Shares,
    uid: u32,
    arrival: u64,
    given: oneshot::Receiver<Share>,
}

impl Shares {
    /// So many units, all of them free.
    pub fn new(units: usize) -> Shares {
        Shares(Arc::new(Mutex::new(State {
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

    /// Requests of this user that wait, and users of whom some do.
    pub fn waiting_of(&self, uid: u32) -> (usize, usize) {
        let state = self.0.lock();
        (state.users.get(&uid).map_or(0, |user| user.waiting.len()), state.order.len())
    }

    /// Units that are taken.
    pub fn taken(&self) -> usize {
        let state = self.0.lock();
        state.units - state.free
    }

    /// Whether this user has as much as he leaves free: then he should ask for less at a time.
    pub fn is_tight(&self, uid: u32) -> bool {
        let state = self.0.lock();
        state.users.get(&uid).map_or(0, |user| user.has) >= state.free
    }

    /// Takes units (at most as many as there are) for a user, as soon as it is his turn.
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

    /// The same; `None` when it is not his turn in that time.
    pub async fn take_within(&self, uid: u32, units: usize, time: Duration) -> Option<Share> {
        match self.at_once(uid, units) {
            None => tokio::time::timeout(time, self.take(uid, units)).await.ok(),
            share => share,
        }
    }

    /// Takes units where that can be done at once, and before nobody who waits.
    pub fn try_take(&self, uid: u32, units: usize) -> Option<Share> {
        self.at_once(uid, units).or_else(|| self.take(uid, units).given.try_recv().ok())
    }

    /// The usual case: nobody waits, and there is enough.
    fn at_once(&self, uid: u32, units: usize) -> Option<Share> {
        let state = &mut *self.0.lock();
        let units = units.min(state.units);
        let has = state.users.get(&uid).map_or(0, |user| user.has);
        state.free = state.left(has, units).filter(|_| state.waiting == 0)?;
        state.users.entry(uid).or_default().has += units;
        Some(Share { of: self.clone(), uid, units })
    }

    fn give_out(&self) {
        loop {
            // a statement of its own: the lock is not held while somebody is given his share
            let next = self.0.lock().next();
            let Some((uid, Waiter { units, give })) = next else { return };
            // who has gone away leaves it to the next
            drop(give.send(Share { of: self.clone(), uid, units }));
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

impl State {
    /// Changes what is known of a user, and where he is in the order.
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

    /// What is free when a user who has so much has been given so many units more, if he may be.
    fn left(&self, has: usize, units: usize) -> Option<usize> {
        let left = self.free.checked_sub(units)?;
        (has == 0 || has + units <= TIMES_FREE * left).then_some(left)
    }

    /// Who is next, if there is enough for him.
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

impl Share {
    /// How many units it is.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Gives back all but so many units.
    pub fn shrink(&mut self, units: usize) {
        let back = self.units.saturating_sub(units);
        self.units -= back;
        self.of.give_back(self.uid, back);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.give_back(self.uid, self.units);
    }
}

impl Future for Waiting {
    type Output = Share;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Share> {
        // who gives holds what it comes from until he has given
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
            // behind him may be somebody who needs less
            self.of.give_out();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn now(waiting: &mut Waiting) -> Option<Share> {
        waiting.now_or_never()
    }

    #[test]
    fn one_alone_has_four_fifths_and_who_comes_finds_something() {
        let shares = Shares::new(100);
        let mine: Vec<Share> = std::iter::from_fn(|| shares.try_take(1, 1)).collect();
        assert_eq!(mine.len(), 80);
        let yours: Vec<Share> = std::iter::from_fn(|| shares.try_take(2, 1)).collect();
        assert_eq!(yours.len(), 16);
        assert!(shares.try_take(3, 1).is_some() && shares.try_take(3, 20).is_none());
        assert!(shares.is_tight(1) && !shares.is_tight(3));
        drop((mine, yours));
        assert_eq!((shares.taken(), shares.0.lock().users.len()), (0, 0));
        assert!(Shares::new(1).try_take(1, 1).is_some(), "of a single one, too");
    }

    #[test]
    fn who_has_least_is_next_and_each_is_served_in_his_order() {
        let shares = Shares::new(10);
        let mut mine: Vec<Share> = std::iter::from_fn(|| shares.try_take(1, 1)).collect();
        let mut more: Vec<Waiting> = (0..2).map(|_| shares.take(1, 1)).collect();
        let (mut big, mut small) = (shares.take(2, 4), shares.take(2, 1));
        assert_eq!((shares.waiting(), shares.waiting_of(1), shares.waiting_of(3)), (4, (2, 2), (0, 2)));
        assert!(now(&mut big).is_none() && now(&mut small).is_none());
        mine.truncate(6);
        let big = now(&mut big).expect("he had nothing");
        assert!(now(&mut small).is_none() && more.iter_mut().all(|one| now(one).is_none()));
        drop(big);
        let small = now(&mut small).expect("his next");
        let got: Vec<bool> = more.iter_mut().map(|one| now(one).is_some()).collect();
        assert_eq!(got, [true, true]);
        drop((small, more, mine));
        assert_eq!((shares.taken(), shares.waiting(), shares.0.lock().users.len()), (0, 0, 0));
    }

    #[test]
    fn who_goes_away_leaves_no_gap() {
        let shares = Shares::new(4);
        let mut all = shares.try_take(1, 4).expect("all of it");
        let waiting: Vec<Waiting> = (0..1000).map(|n| shares.take(n % 7, 1)).collect();
        let mut last = shares.take(9, 3);
        drop(waiting);
        assert_eq!((shares.waiting(), now(&mut last).is_some()), (1, false));
        all.shrink(1);
        let given = shares.take(2, 1);
        drop(given);
        assert!(now(&mut last).is_some());
        drop((all, last));
        assert_eq!((shares.taken(), shares.waiting(), shares.0.lock().users.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn waiting_has_an_end() {
        let shares = Shares::new(2);
        let all = shares.take_within(1, 2, Duration::ZERO).await.expect("free");
        assert!(shares.take_within(1, 1, Duration::ZERO).await.is_none());
        assert_eq!(shares.waiting(), 0);
        let other = shares.take_within(2, 1, Duration::MAX);
        let later = async { drop(all) };
        assert!(tokio::join!(other, later).0.is_some());
    }
}
