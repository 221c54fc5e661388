//! What is in the table: who has what, and who waits.

use super::{LOCKS_MAX, LockAnswer, LockedRanges, WAITING_MAX, no_session};
use leeward_env::Nanos;
use leeward_fs::locks::{FileLock, LockKind, LockMode, LockOwner, LockRange, LockRequest, OwnedLock};
use leeward_fs::{Error, NodeId, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// Answers to give when the table is free again.
pub(super) type Answers = Vec<Decided>;
/// What became of a request, and who is to be told.
pub(super) type Decided = (LockAnswer, Result<()>);

/// Files that were locked since the grace, as far as they are remembered.
const TAKEN_MAX: usize = 65_536;
/// Owners that are looked at for one deadlock.
const DEADLOCK_OWNERS_MAX: usize = 1024;

/// An owner, of whichever session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Owner {
    session: u64,
    number: u64,
}

/// The locks of one kind on one file: kinds do not exclude each other.
type Place = (NodeId, LockKind);

#[derive(Default)]
struct File {
    owners: BTreeMap<Owner, Holding>,
    /// Requests, in the order in which they came.
    waiting: BTreeSet<u64>,
}

#[derive(Default)]
struct Holding {
    ranges: LockedRanges,
    pid: u32,
}

struct Waiter {
    place: Place,
    owner: Owner,
    lock: FileLock,
    ticket: u64,
    /// Whether it waits for others. If not, it waits for the end of the grace.
    waits: bool,
    answer: LockAnswer,
}

#[derive(Default)]
struct Session {
    ranges: usize,
    places: BTreeSet<(Place, u64)>,
    /// Requests that wait, by ticket.
    waiting: FxHashMap<u64, u64>,
    /// Requests that will come, and whether they are cancelled.
    announced: FxHashMap<u64, bool>,
}

/// See the module's head.
pub(super) struct State {
    files: FxHashMap<Place, File>,
    waiters: FxHashMap<u64, Waiter>,
    /// What each owner waits for.
    waits_of: FxHashMap<Owner, BTreeSet<u64>>,
    sessions: FxHashMap<u64, Session>,
    next: u64,
    grace_until: Option<Nanos>,
    /// Files on which locks were given since the grace.
    taken: FxHashSet<NodeId>,
    taken_overflowed: bool,
}

impl State {
    pub(super) fn new(grace_until: Option<Nanos>) -> State {
        State {
            files: FxHashMap::default(),
            waiters: FxHashMap::default(),
            waits_of: FxHashMap::default(),
            sessions: FxHashMap::default(),
            next: 0,
            grace_until,
            taken: FxHashSet::default(),
            taken_overflowed: false,
        }
    }

    pub(super) fn begin_grace(&mut self, until: Nanos) {
        self.grace_until = Some(until);
    }

    pub(super) fn begin_session(&mut self, session: u64) {
        self.sessions.entry(session).or_default();
    }

    pub(super) fn end_session(&mut self, number: u64, answers: &mut Answers) {
        let Some(session) = self.sessions.remove(&number) else { return };
        for id in session.waiting.into_values() {
            self.drop_waiter(id);
        }
        for (place, owner) in session.places {
            self.take_from(place, Owner { session: number, number: owner }, LockRange::ALL);
            self.wake(place, answers);
        }
    }

    pub(super) fn announce(&mut self, session: u64, ticket: u64) -> Result<()> {
        let session = self.sessions.get_mut(&session).ok_or_else(no_session)?;
        if session.announced.len() >= WAITING_MAX {
            return Err(Error::TooManyLocks);
        }
        session.announced.entry(ticket).or_default();
        Ok(())
    }

    pub(super) fn forget_announced(&mut self, session: u64, ticket: u64) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.announced.remove(&ticket);
        }
    }

    pub(super) fn set(
        &mut self,
        session: u64,
        request: &LockRequest,
        (ticket, later): (u64, LockAnswer),
        answers: &mut Answers,
    ) -> Option<Decided> {
        let range = match request.lock.range.of_kind(request.owner.kind) {
            Ok(range) => range,
            Err(e) => return Some((later, Err(e))),
        };
        let Some(of) = self.sessions.get_mut(&session) else { return Some((later, Err(no_session()))) };
        if of.announced.remove(&ticket) == Some(true) {
            return Some((later, Err(Error::Interrupted)));
        }
        if let Some(id) = of.waiting.get(&ticket) {
            // asked for again: whoever waited for the answer before is gone
            if let Some(waiter) = self.waiters.get_mut(id) {
                waiter.answer = later;
            }
            return None;
        }
        let owner = Owner { session, number: request.owner.number };
        let place = (request.node, request.owner.kind);
        let lock = FileLock { range, ..request.lock };
        let waiter = Waiter { place, owner, lock, ticket, waits: request.wait, answer: later };
        if self.grace_until.is_some() {
            return self.wait(waiter);
        }
        let was_converted = self.begin_conversion(place, owner, lock.mode);
        let decided = self.decide(waiter);
        if was_converted || matches!(decided, Some((_, Ok(())))) {
            self.wake(place, answers);
        }
        decided
    }

    /// Gives the lock, or refuses it; `None`: it waits.
    fn decide(&mut self, waiter: Waiter) -> Option<Decided> {
        let result = match self.in_the_way(waiter.place, waiter.owner, &waiter.lock) {
            None => self.give(waiter.place, waiter.owner, &waiter.lock),
            Some(_) if !waiter.waits => Err(Error::Locked),
            Some(_) if waiter.place.1 == LockKind::Posix && self.is_deadlock(&waiter) => Err(Error::Deadlock),
            Some(_) => return self.wait(waiter),
        };
        Some((waiter.answer, result))
    }

    /// A lock of `flock` that is to have another mode is given up first, as Linux does: so two who
    /// have a shared lock and want an exclusive one do not wait for each other for ever.
    fn begin_conversion(&mut self, place: Place, owner: Owner, mode: LockMode) -> bool {
        let held = self.files.get(&place).and_then(|file| file.owners.get(&owner));
        let held = held.and_then(|holding| holding.ranges.iter().next());
        let is_other = place.1 == LockKind::Flock && held.is_some_and(|(_, held)| held != mode);
        if is_other {
            self.take_from(place, owner, LockRange::ALL);
        }
        is_other
    }

    /// The lock of another owner that is in the way, and whose.
    fn in_the_way(&self, place: Place, owner: Owner, lock: &FileLock) -> Option<(Owner, FileLock)> {
        let file = self.files.get(&place)?;
        let others = file.owners.iter().filter(|(other, _)| **other != owner);
        others
            .filter_map(|(other, holding)| {
                let (range, mode) = holding.ranges.in_the_way(lock.range, lock.mode)?;
                let pid = if other.session == owner.session { holding.pid } else { 0 };
                Some((*other, FileLock { range, mode, pid }))
            })
            .min_by_key(|(_, lock)| lock.range.first)
    }

    fn give(&mut self, place: Place, owner: Owner, lock: &FileLock) -> Result<()> {
        let ranges =
            self.sessions.get(&owner.session).map(|session| session.ranges).ok_or_else(no_session)?;
        // one more, and one that is cut in two
        if ranges + 2 > LOCKS_MAX {
            return Err(Error::TooManyLocks);
        }
        self.put(place, owner, lock);
        if self.taken.len() < TAKEN_MAX {
            self.taken.insert(place.0);
        } else {
            self.taken_overflowed |= !self.taken.contains(&place.0);
        }
        Ok(())
    }

    fn put(&mut self, place: Place, owner: Owner, lock: &FileLock) {
        let Some(session) = self.sessions.get_mut(&owner.session) else { return };
        let holding = self.files.entry(place).or_default().owners.entry(owner).or_default();
        let before = holding.ranges.len();
        holding.ranges.put(lock.range, Some(lock.mode));
        holding.pid = lock.pid;
        session.ranges = session.ranges + holding.ranges.len() - before;
        session.places.insert((place, owner.number));
    }

    /// The owner has nothing in this range any more; whether it had something.
    fn take_from(&mut self, place: Place, owner: Owner, range: LockRange) -> bool {
        let Some(file) = self.files.get_mut(&place) else { return false };
        let Some(holding) = file.owners.get_mut(&owner) else { return false };
        if holding.ranges.overlapping(range).next().is_none() {
            return false;
        }
        let before = holding.ranges.len();
        holding.ranges.put(range, None);
        let after = holding.ranges.len();
        if after == 0 {
            file.owners.remove(&owner);
        }
        self.drop_empty(place);
        if let Some(session) = self.sessions.get_mut(&owner.session) {
            session.ranges = session.ranges + after - before;
            if after == 0 {
                session.places.remove(&(place, owner.number));
            }
        }
        true
    }

    fn drop_empty(&mut self, place: Place) {
        if self.files.get(&place).is_some_and(|file| file.owners.is_empty() && file.waiting.is_empty()) {
            self.files.remove(&place);
        }
    }

    fn wait(&mut self, waiter: Waiter) -> Option<Decided> {
        let Some(session) = self.sessions.get_mut(&waiter.owner.session) else {
            return Some((waiter.answer, Err(no_session())));
        };
        if session.waiting.len() >= WAITING_MAX {
            return Some((waiter.answer, Err(Error::TooManyLocks)));
        }
        let id = self.next;
        self.next += 1;
        session.waiting.insert(waiter.ticket, id);
        self.files.entry(waiter.place).or_default().waiting.insert(id);
        self.waits_of.entry(waiter.owner).or_default().insert(id);
        self.waiters.insert(id, waiter);
        None
    }

    fn drop_waiter(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        if let Some(session) = self.sessions.get_mut(&waiter.owner.session) {
            session.waiting.remove(&waiter.ticket);
        }
        if let Some(waits) = self.waits_of.get_mut(&waiter.owner) {
            waits.remove(&id);
            if waits.is_empty() {
                self.waits_of.remove(&waiter.owner);
            }
        }
        if let Some(file) = self.files.get_mut(&waiter.place) {
            file.waiting.remove(&id);
        }
        self.drop_empty(waiter.place);
        Some(waiter)
    }

    /// Gives locks to those who wait and need not any more.
    fn wake(&mut self, place: Place, answers: &mut Answers) {
        if self.grace_until.is_some() {
            return;
        }
        let mut from = 0;
        while let Some(id) =
            self.files.get(&place).and_then(|file| file.waiting.range(from..).next().copied())
        {
            from = id + 1;
            let Some(waiter) = self.waiters.get(&id) else { continue };
            if self.in_the_way(place, waiter.owner, &waiter.lock).is_some() {
                continue;
            }
            let Some(waiter) = self.drop_waiter(id) else { continue };
            if self.is_weaker(place, waiter.owner, &waiter.lock) {
                from = 0; // what it gives up may be what an earlier one waits for
            }
            let result = self.give(place, waiter.owner, &waiter.lock);
            answers.push((waiter.answer, result));
        }
    }

    /// Whether the owner has an exclusive lock where it wants a shared one.
    fn is_weaker(&self, place: Place, owner: Owner, lock: &FileLock) -> bool {
        let held = self.files.get(&place).and_then(|file| file.owners.get(&owner));
        let is_exclusive = |(_, mode)| mode == LockMode::Exclusive;
        lock.mode == LockMode::Shared
            && held.is_some_and(|held| held.ranges.overlapping(lock.range).any(is_exclusive))
    }

    /// Whether one whom the request would wait for waits for its owner, directly or not. With more
    /// owners than are looked at it is not known, and waits.
    fn is_deadlock(&self, waiter: &Waiter) -> bool {
        let mut seen: BTreeSet<Owner> = BTreeSet::new();
        let mut next = self.blockers(waiter.place, waiter.owner, &waiter.lock);
        while let Some(owner) = next.pop() {
            if owner == waiter.owner {
                return true;
            }
            if seen.len() >= DEADLOCK_OWNERS_MAX {
                return false;
            }
            if seen.insert(owner) {
                let waits = self.waits_of.get(&owner).into_iter().flatten();
                let waits =
                    waits.filter_map(|id| self.waiters.get(id)).filter(|w| w.place.1 == LockKind::Posix);
                next.extend(waits.flat_map(|waits| self.blockers(waits.place, owner, &waits.lock)));
            }
        }
        false
    }

    /// All owners that are in the way.
    fn blockers(&self, place: Place, owner: Owner, lock: &FileLock) -> Vec<Owner> {
        let owners = self.files.get(&place).into_iter().flat_map(|file| &file.owners);
        let others = owners.filter(|(other, holding)| {
            **other != owner && holding.ranges.in_the_way(lock.range, lock.mode).is_some()
        });
        others.map(|(other, _)| *other).collect()
    }

    pub(super) fn unlock(
        &mut self,
        session: u64,
        node: NodeId,
        owner: LockOwner,
        range: LockRange,
        answers: &mut Answers,
    ) -> Result<()> {
        let range = range.of_kind(owner.kind)?;
        let (place, owner) = ((node, owner.kind), Owner { session, number: owner.number });
        let is_full = self.sessions.get(&session).is_some_and(|session| session.ranges >= LOCKS_MAX);
        if is_full && self.cuts(place, owner, range) {
            return Err(Error::TooManyLocks);
        }
        if self.take_from(place, owner, range) {
            self.wake(place, answers);
        }
        Ok(())
    }

    /// Whether a range of the owner is longer at both ends.
    fn cuts(&self, place: Place, owner: Owner, range: LockRange) -> bool {
        let held = self.files.get(&place).and_then(|file| file.owners.get(&owner));
        let is_longer = |(held, _): (LockRange, _)| held.first < range.first && held.last > range.last;
        held.is_some_and(|held| held.ranges.overlapping(range).any(is_longer))
    }

    pub(super) fn release(&mut self, session: u64, node: NodeId, owner: LockOwner, answers: &mut Answers) {
        let place = (node, owner.kind);
        if self.take_from(place, Owner { session, number: owner.number }, LockRange::ALL) {
            self.wake(place, answers);
        }
    }

    pub(super) fn test(&self, session: u64, request: &LockRequest) -> Result<Option<FileLock>> {
        let range = request.lock.range.of_kind(request.owner.kind)?;
        let owner = Owner { session, number: request.owner.number };
        let lock = FileLock { range, ..request.lock };
        let found = self.in_the_way((request.node, request.owner.kind), owner, &lock);
        Ok(found.map(|(_, lock)| lock))
    }

    pub(super) fn cancel(&mut self, session: u64, ticket: u64, answers: &mut Answers) -> bool {
        let Some(of) = self.sessions.get_mut(&session) else { return false };
        // it may be both: in line, and asked for again
        let is_announced = of.announced.get_mut(&ticket).map(|cancelled| *cancelled = true).is_some();
        let id = of.waiting.get(&ticket).copied();
        let waiter = id.and_then(|id| self.drop_waiter(id));
        let was_there = waiter.is_some() || is_announced;
        answers.extend(waiter.map(|waiter| (waiter.answer, Err(Error::Interrupted))));
        was_there
    }

    pub(super) fn tell(&mut self, session: u64, told: &OwnedLock, answers: &mut Answers) -> bool {
        let (place, owner) = ((told.node, told.owner.kind), Owner { session, number: told.owner.number });
        let Ok(range) = told.lock.range.of_kind(told.owner.kind) else { return false };
        let lock = FileLock { range, ..told.lock };
        let may_be_taken = self.taken_overflowed || self.taken.contains(&told.node);
        let is_full = self.sessions.get(&session).is_none_or(|session| session.ranges + 2 > LOCKS_MAX);
        if self.grace_until.is_none() && may_be_taken
            || is_full
            || self.in_the_way(place, owner, &lock).is_some()
        {
            return false;
        }
        self.put(place, owner, &lock);
        self.wake(place, answers);
        true
    }

    pub(super) fn tick(&mut self, now: Nanos, answers: &mut Answers) {
        if self.grace_until.is_none_or(|until| now < until) {
            return;
        }
        self.grace_until = None;
        let mut all: Vec<u64> = self.waiters.keys().copied().collect();
        all.sort_unstable();
        for id in all {
            let Some(waiter) = self.drop_waiter(id) else { continue };
            let place = waiter.place;
            let is_converted = self.begin_conversion(place, waiter.owner, waiter.lock.mode);
            let decided = self.decide(waiter);
            // who has made an exclusive lock a shared one lets others in
            let lets_in = is_converted || matches!(decided, Some((_, Ok(()))));
            answers.extend(decided);
            if lets_in {
                self.wake(place, answers);
            }
        }
    }

    /// Files and requests that the table still knows.
    #[cfg(test)]
    pub(super) fn left(&self) -> (usize, usize) {
        (self.files.len(), self.waiters.len() + self.waits_of.len())
    }

    pub(super) fn count(&self, session: u64) -> u64 {
        self.sessions.get(&session).map_or(0, |session| session.ranges as u64)
    }
}
