//! What is in the table: who has what, and who waits.
//!
//! Each request that waits for others is **behind** one owner that is in its way, and is looked at
//! again only when that owner gives something up. Owners of a file are in an order that nobody can
//! choose, and the first one in the way is taken. So when thousands give up their locks one after
//! the other, in whichever order, a request goes from one to the next a few times only.

use super::{
    LOCKS_MAX, LOCKS_OF_USER_MAX, LockAnswer, LockedRanges, WAITING_MAX, WAITING_OF_USER_MAX, no_session,
};
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
/// Requests that did not wait and found a lock in their way, as far as they are remembered.
const TRIED_MAX: usize = 4096;
/// Owners that are looked at for one deadlock.
const DEADLOCK_OWNERS_MAX: usize = 16_384;

/// An owner, of whichever session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Owner {
    /// Its rank among others, which follows from session and number, and which nobody foresees.
    rank: u64,
    session: u64,
    number: u64,
}

/// The locks of one kind on one file: kinds do not exclude each other.
type Place = (NodeId, LockKind);

#[derive(Default)]
struct File {
    owners: BTreeMap<Owner, Holding>,
    /// Those of them that have had an exclusive lock: shared ones exclude nobody else's.
    exclusive: BTreeSet<Owner>,
    /// Requests that wait, by the owner that they are behind, in the order in which they came.
    behind: BTreeMap<Owner, BTreeSet<u64>>,
    /// How many requests wait, those that wait for the end of the grace among them.
    waiting: usize,
}

impl File {
    /// Other owners whose locks may exclude one of this mode.
    fn others(&self, owner: Owner, mode: LockMode) -> impl Iterator<Item = (Owner, &Holding)> {
        let (all, exclusive) = match mode {
            LockMode::Exclusive => (Some(&self.owners), None),
            LockMode::Shared => (None, Some(&self.exclusive)),
        };
        let exclusive = exclusive.into_iter().flatten();
        let exclusive = exclusive.filter_map(|other| self.owners.get_key_value(other));
        let others = all.into_iter().flatten().chain(exclusive);
        others.map(|(other, holding)| (*other, holding)).filter(move |(other, _)| *other != owner)
    }
}

#[derive(Default)]
struct Holding {
    ranges: LockedRanges,
    pid: u32,
    /// The user of whose share they are; `None`: a server before has given them.
    user: Option<u32>,
}

struct Waiter {
    place: Place,
    owner: Owner,
    user: u32,
    lock: FileLock,
    ticket: u64,
    /// Whether it waits for others. If not, it waits for the end of the grace.
    waits: bool,
    behind: Option<Owner>,
    answer: LockAnswer,
}

/// What is of a user's share.
#[derive(Default)]
struct Share {
    ranges: usize,
    waiting: usize,
}

#[derive(Default)]
struct Session {
    ranges: usize,
    users: FxHashMap<u32, Share>,
    places: BTreeSet<(Place, u64)>,
    /// Requests that wait, by ticket.
    waiting: FxHashMap<u64, u64>,
    /// Requests that will come, and whether they are cancelled.
    announced: FxHashMap<u64, bool>,
}

impl Session {
    fn share(&self, user: u32) -> (usize, usize) {
        self.users.get(&user).map_or((0, 0), |share| (share.ranges, share.waiting))
    }

    fn change_share(&mut self, user: u32, change: impl FnOnce(&mut Share)) {
        let share = self.users.entry(user).or_default();
        change(share);
        if (share.ranges, share.waiting) == (0, 0) {
            self.users.remove(&user);
        }
    }

    /// Whether a user cannot have so many ranges more. Root is not bounded: what it has may be of
    /// all users of its machine, as it is where that serves files to others.
    fn is_full(&self, user: Option<u32>, more: usize) -> bool {
        let of_user = user.filter(|uid| *uid != 0).map_or(0, |uid| self.share(uid).0);
        self.ranges + more > LOCKS_MAX || of_user + more > LOCKS_OF_USER_MAX
    }

    fn is_full_of_waiting(&self, user: u32) -> bool {
        let is_over = user != 0 && self.share(user).1 >= WAITING_OF_USER_MAX;
        is_over || self.waiting.len() >= WAITING_MAX
    }

    /// An owner has so many ranges of a file now, and had so many before.
    fn count(&mut self, (before, after): (usize, usize), users: (Option<u32>, Option<u32>)) {
        self.ranges = self.ranges + after - before;
        if let Some(user) = users.0 {
            self.change_share(user, |share| share.ranges -= before);
        }
        if let Some(user) = users.1 {
            self.change_share(user, |share| share.ranges += after);
        }
    }
}

/// See the module's head.
pub(super) struct State {
    /// From which the order of owners follows.
    seed: u64,
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
    /// Whose locks were in the way of requests that did not wait, and the sessions of those.
    tried: FxHashSet<(Place, Owner, u64)>,
    /// Owners that were looked at.
    #[cfg(test)]
    pub(super) looked: std::cell::Cell<usize>,
}

impl State {
    pub(super) fn new(seed: u64, grace_until: Option<Nanos>) -> State {
        State {
            seed,
            files: FxHashMap::default(),
            waiters: FxHashMap::default(),
            waits_of: FxHashMap::default(),
            sessions: FxHashMap::default(),
            next: 0,
            grace_until,
            taken: FxHashSet::default(),
            taken_overflowed: false,
            tried: FxHashSet::default(),
            #[cfg(test)]
            looked: std::cell::Cell::default(),
        }
    }

    fn owner(&self, session: u64, number: u64) -> Owner {
        Owner { rank: mixed(self.seed ^ mixed(session) ^ number), session, number }
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
        let all = session.places.into_iter().map(|(place, owner)| (place, self.owner(number, owner)));
        let all: Vec<(Place, Owner)> = all.collect();
        // first all of them: nobody is to be found behind one that goes next
        for (place, owner) in &all {
            self.take_from(*place, *owner, LockRange::ALL);
        }
        for (place, owner) in all {
            self.wake(place, owner, answers);
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
        (session, user): (u64, u32),
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
        let owner = self.owner(session, request.owner.number);
        let place = (request.node, request.owner.kind);
        let lock = FileLock { range, ..request.lock };
        let (waits, behind) = (request.wait, None);
        let waiter = Waiter { place, owner, user, lock, ticket, waits, behind, answer: later };
        if self.grace_until.is_some() {
            return self.wait(waiter);
        }
        let was_converted = self.begin_conversion(place, owner, lock.mode);
        let decided = self.decide(waiter);
        if was_converted || matches!(decided, Some((_, Ok(())))) {
            self.wake(place, owner, answers);
        }
        decided
    }

    /// Gives the lock, or refuses it; `None`: it waits.
    fn decide(&mut self, waiter: Waiter) -> Option<Decided> {
        let in_the_way = self.in_the_way(waiter.place, waiter.owner, &waiter.lock).next();
        let result = match in_the_way {
            None => self.give(&waiter),
            Some((other, _)) if !waiter.waits => {
                if self.tried.len() < TRIED_MAX {
                    self.tried.insert((waiter.place, other, waiter.owner.session));
                }
                Err(Error::Locked)
            }
            Some(_) if waiter.place.1 == LockKind::Posix && self.is_deadlock(&waiter) => Err(Error::Deadlock),
            Some((other, _)) => return self.wait(Waiter { behind: Some(other), ..waiter }),
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

    /// The first lock of each other owner that is in the way, and whose. They are found one after
    /// the other, as there may be thousands.
    fn in_the_way(
        &self,
        place: Place,
        owner: Owner,
        lock: &FileLock,
    ) -> impl Iterator<Item = (Owner, FileLock)> {
        let others = self.files.get(&place).into_iter().flat_map(move |file| file.others(owner, lock.mode));
        others.filter_map(move |(other, holding)| {
            self.look();
            let (range, mode) = holding.ranges.in_the_way(lock.range, lock.mode)?;
            let pid = if other.session == owner.session { holding.pid } else { 0 };
            Some((other, FileLock { range, mode, pid }))
        })
    }

    /// Whether a lock of this owner is in the way of a request.
    fn is_behind(&self, waiter: &Waiter, other: Owner) -> bool {
        self.look();
        let file = self.files.get(&waiter.place);
        let held = file.and_then(|file| file.owners.get(&other)).filter(|_| other != waiter.owner);
        held.is_some_and(|held| held.ranges.in_the_way(waiter.lock.range, waiter.lock.mode).is_some())
    }

    /// An owner is looked at: tests count that.
    fn look(&self) {
        #[cfg(test)]
        self.looked.set(self.looked.get() + 1);
    }

    fn give(&mut self, waiter: &Waiter) -> Result<()> {
        let (place, owner, user) = (waiter.place, waiter.owner, Some(waiter.user));
        let session = self.sessions.get(&owner.session).ok_or_else(no_session)?;
        // one more, and one that is cut in two
        if session.is_full(user, 2) {
            return Err(Error::TooManyLocks);
        }
        self.put((place, owner), &waiter.lock, user);
        if self.taken.len() < TAKEN_MAX {
            self.taken.insert(place.0);
        } else {
            self.taken_overflowed |= !self.taken.contains(&place.0);
        }
        Ok(())
    }

    fn put(&mut self, (place, owner): (Place, Owner), lock: &FileLock, user: Option<u32>) {
        let Some(session) = self.sessions.get_mut(&owner.session) else { return };
        let file = self.files.entry(place).or_default();
        let holding = file.owners.entry(owner).or_default();
        let before = holding.ranges.len();
        holding.ranges.put(lock.range, Some(lock.mode));
        holding.pid = lock.pid;
        if lock.mode == LockMode::Exclusive {
            file.exclusive.insert(owner);
        }
        // all that the owner has of the file is of the share of the user who asked last
        let user_before = std::mem::replace(&mut holding.user, user);
        session.count((before, holding.ranges.len()), (user_before, user));
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
        let (after, user) = (holding.ranges.len(), holding.user);
        if after == 0 {
            file.owners.remove(&owner);
            file.exclusive.remove(&owner);
        }
        self.drop_empty(place);
        if let Some(session) = self.sessions.get_mut(&owner.session) {
            session.count((before, after), (user, user));
            if after == 0 {
                session.places.remove(&(place, owner.number));
            }
        }
        true
    }

    fn drop_empty(&mut self, place: Place) {
        if self.files.get(&place).is_some_and(|file| file.owners.is_empty() && file.waiting == 0) {
            self.files.remove(&place);
        }
    }

    fn wait(&mut self, waiter: Waiter) -> Option<Decided> {
        let Some(session) = self.sessions.get_mut(&waiter.owner.session) else {
            return Some((waiter.answer, Err(no_session())));
        };
        if session.is_full_of_waiting(waiter.user) {
            return Some((waiter.answer, Err(Error::TooManyLocks)));
        }
        let id = self.next;
        self.next += 1;
        session.waiting.insert(waiter.ticket, id);
        session.change_share(waiter.user, |share| share.waiting += 1);
        let file = self.files.entry(waiter.place).or_default();
        file.waiting += 1;
        if let Some(other) = waiter.behind {
            file.behind.entry(other).or_default().insert(id);
        }
        self.waits_of.entry(waiter.owner).or_default().insert(id);
        self.waiters.insert(id, waiter);
        None
    }

    fn drop_waiter(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        if let Some(session) = self.sessions.get_mut(&waiter.owner.session) {
            session.waiting.remove(&waiter.ticket);
            session.change_share(waiter.user, |share| share.waiting -= 1);
        }
        if let Some(waits) = self.waits_of.get_mut(&waiter.owner) {
            waits.remove(&id);
            if waits.is_empty() {
                self.waits_of.remove(&waiter.owner);
            }
        }
        self.is_not_behind(id, waiter.place, waiter.behind);
        if let Some(file) = self.files.get_mut(&waiter.place) {
            file.waiting -= 1;
        }
        self.drop_empty(waiter.place);
        Some(waiter)
    }

    fn is_not_behind(&mut self, id: u64, place: Place, other: Option<Owner>) {
        let Some((file, other)) = self.files.get_mut(&place).zip(other) else { return };
        if let Some(behind) = file.behind.get_mut(&other) {
            behind.remove(&id);
            if behind.is_empty() {
                file.behind.remove(&other);
            }
        }
    }

    /// An owner has less of a file, or excludes less: gives locks to those behind it who need not
    /// wait any more.
    fn wake(&mut self, place: Place, owner: Owner, answers: &mut Answers) {
        if self.grace_until.is_some() {
            return;
        }
        // those who wait for the same are probably behind the one that was given it last
        let mut likely = vec![owner];
        let mut asked = self.take_behind(place, owner);
        while let Some(id) = asked.pop_first() {
            let Some(waiter) = self.waiters.get(&id) else { continue };
            let other = likely.iter().rev().copied().find(|other| self.is_behind(waiter, *other));
            let first = || self.in_the_way(place, waiter.owner, &waiter.lock).next().map(|(other, _)| other);
            if let Some(other) = other.or_else(first) {
                self.put_behind(id, place, other);
                continue;
            }
            let Some(waiter) = self.drop_waiter(id) else { continue };
            likely.truncate(1);
            likely.push(waiter.owner);
            let is_weaker = self.is_weaker(place, waiter.owner, &waiter.lock);
            let result = self.give(&waiter);
            if is_weaker && result.is_ok() {
                // what it gives up may be what an earlier one waits for
                asked.append(&mut self.take_behind(place, waiter.owner));
            }
            answers.push((waiter.answer, result));
        }
    }

    /// Those behind an owner, of which each is to be dropped, or put behind one.
    fn take_behind(&mut self, place: Place, owner: Owner) -> BTreeSet<u64> {
        self.files.get_mut(&place).and_then(|file| file.behind.remove(&owner)).unwrap_or_default()
    }

    fn put_behind(&mut self, id: u64, place: Place, other: Owner) {
        let (Some(waiter), Some(file)) = (self.waiters.get_mut(&id), self.files.get_mut(&place)) else {
            return;
        };
        waiter.behind = Some(other);
        file.behind.entry(other).or_default().insert(id);
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
        let (mut seen, mut looked): (FxHashSet<Owner>, usize) = (FxHashSet::default(), 0);
        let mut next = vec![(waiter.place, waiter.owner, waiter.lock)];
        while let Some((place, owner, lock)) = next.pop() {
            let file = self.files.get(&place);
            for (other, holding) in file.into_iter().flat_map(|file| file.others(owner, lock.mode)) {
                looked += 1;
                if looked > DEADLOCK_OWNERS_MAX {
                    return false;
                }
                self.look();
                if holding.ranges.in_the_way(lock.range, lock.mode).is_none() {
                    continue;
                }
                if other == waiter.owner {
                    return true;
                }
                if let Some(waits) = self.waits_of.get(&other).filter(|_| seen.insert(other)) {
                    let waits = waits.iter().filter_map(|id| self.waiters.get(id));
                    let waits = waits.filter(|waits| waits.place.1 == LockKind::Posix);
                    next.extend(waits.map(|waits| (waits.place, other, waits.lock)));
                }
            }
        }
        false
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
        let (place, owner) = ((node, owner.kind), self.owner(session, owner.number));
        let held = self.files.get(&place).and_then(|file| file.owners.get(&owner));
        let user = held.and_then(|held| held.user);
        let is_full = self.sessions.get(&session).is_some_and(|session| session.is_full(user, 1));
        if is_full && self.cuts(place, owner, range) {
            return Err(Error::TooManyLocks);
        }
        if self.take_from(place, owner, range) {
            self.wake(place, owner, answers);
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
        let (place, owner) = ((node, owner.kind), self.owner(session, owner.number));
        if self.take_from(place, owner, LockRange::ALL) {
            self.wake(place, owner, answers);
        }
    }

    pub(super) fn test(&self, session: u64, request: &LockRequest) -> Result<Option<FileLock>> {
        let range = request.lock.range.of_kind(request.owner.kind)?;
        let owner = self.owner(session, request.owner.number);
        let lock = FileLock { range, ..request.lock };
        let found = self.in_the_way((request.node, request.owner.kind), owner, &lock);
        Ok(found.map(|(_, lock)| lock).min_by_key(|lock| lock.range.first))
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
        let (place, owner) = ((told.node, told.owner.kind), self.owner(session, told.owner.number));
        let Ok(range) = told.lock.range.of_kind(told.owner.kind) else { return false };
        let lock = FileLock { range, ..told.lock };
        let may_be_taken = self.taken_overflowed || self.taken.contains(&told.node);
        let is_full = self.sessions.get(&session).is_none_or(|session| session.is_full(None, 2));
        if self.grace_until.is_none() && may_be_taken
            || is_full
            || self.in_the_way(place, owner, &lock).next().is_some()
        {
            return false;
        }
        self.put((place, owner), &lock, None);
        self.wake(place, owner, answers);
        true
    }

    /// The owners of a session that have what others want, see
    /// [`LockTable::are_wanted`](super::LockTable::are_wanted).
    fn wanted(&self, session: u64, is_there: &dyn Fn(u64) -> bool) -> Vec<(Place, Owner)> {
        let of = self.sessions.get(&session).filter(|_| self.grace_until.is_none());
        let places = of.into_iter().flat_map(|of| &of.places);
        let all = places.map(|(place, number)| (*place, self.owner(session, *number)));
        let tried: FxHashSet<(Place, Owner)> =
            self.tried.iter().filter(|(.., by)| is_there(*by)).map(|(place, of, _)| (*place, *of)).collect();
        let wants = |waiter: &Waiter| waiter.owner.session != session && is_there(waiter.owner.session);
        all.filter(|(place, owner)| {
            let behind = self.files.get(place).and_then(|file| file.behind.get(owner));
            let mut waiters = behind.into_iter().flatten().filter_map(|id| self.waiters.get(id));
            tried.contains(&(*place, *owner)) || waiters.any(wants)
        })
        .collect()
    }

    pub(super) fn are_wanted(&self, session: u64, is_there: &dyn Fn(u64) -> bool) -> bool {
        !self.wanted(session, is_there).is_empty()
    }

    pub(super) fn take_wanted(
        &mut self,
        session: u64,
        is_there: &dyn Fn(u64) -> bool,
        answers: &mut Answers,
    ) -> Vec<(OwnedLock, Option<u32>)> {
        let mut taken = Vec::new();
        // who is next may be of the same session
        loop {
            let wanted = self.wanted(session, is_there);
            if wanted.is_empty() {
                return taken;
            }
            self.take_all(&wanted, &mut taken);
            for (place, owner) in wanted {
                self.wake(place, owner, answers);
            }
        }
    }

    fn take_all(&mut self, wanted: &[(Place, Owner)], taken: &mut Vec<(OwnedLock, Option<u32>)>) {
        for (place, owner) in wanted {
            let held = self.files.get(place).and_then(|file| file.owners.get(owner));
            let of = LockOwner { kind: place.1, number: owner.number };
            taken.extend(held.into_iter().flat_map(|held| {
                let lock = |(range, mode)| FileLock { range, mode, pid: held.pid };
                let all = held.ranges.iter().map(lock);
                all.map(|lock| (OwnedLock { node: place.0, owner: of, lock }, held.user))
            }));
            self.take_from(*place, *owner, LockRange::ALL);
        }
    }

    pub(super) fn forget_tried(&mut self) {
        self.tried.clear();
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
            let (place, owner) = (waiter.place, waiter.owner);
            let is_converted = self.begin_conversion(place, owner, waiter.lock.mode);
            let decided = self.decide(waiter);
            // who has made an exclusive lock a shared one lets others in
            let lets_in = is_converted || matches!(decided, Some((_, Ok(()))));
            answers.extend(decided);
            if lets_in {
                self.wake(place, owner, answers);
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

/// A number that looks like a random one, and is another one for each.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
