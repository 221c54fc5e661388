//! The table against what POSIX and Linux say, and against a model that knows each byte.

use super::state::{Answers, State};
use super::{LOCKS_MAX, LOCKS_OF_USER_MAX, LockedRanges, WAITING_MAX, WAITING_OF_USER_MAX};
use leeward_fs::locks::{
    FileLock, LAST_BYTE, LockKind, LockMode, LockOwner, LockRange, LockRequest, OwnedLock,
};
use leeward_fs::{Error, NodeId, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use LockKind::{Flock, Posix};
use LockMode::{Exclusive, Shared};

const FILE: NodeId = NodeId(7);

/// Tickets, and how it went.
type Told = Vec<(u64, Result<()>)>;

/// A table, and what those who waited were told.
struct Rig {
    state: State,
    told: Arc<Mutex<Told>>,
    /// The user who asks.
    user: u32,
}

impl Rig {
    fn new() -> Rig {
        Rig::in_grace(None)
    }

    fn in_grace(until: Option<u64>) -> Rig {
        let mut state = State::new(7, until);
        (1..4).for_each(|session| state.begin_session(session));
        Rig { state, told: Arc::default(), user: 0 }
    }

    fn change<R>(&mut self, change: impl FnOnce(&mut State, &mut Answers) -> R) -> R {
        let mut answers = Answers::new();
        let result = change(&mut self.state, &mut answers);
        answers.into_iter().for_each(|(answer, result)| answer(result));
        result
    }

    /// Asks for a lock; `None`: it waits.
    fn set(&mut self, (session, ticket): (u64, u64), request: LockRequest) -> Option<Result<()>> {
        let (told, who) = (self.told.clone(), (session, self.user));
        let later = Box::new(move |result| told.lock().push((ticket, result)));
        self.change(|state, answers| state.set(who, &request, (ticket, later), answers)).map(|(_, r)| r)
    }

    fn lock(&mut self, who: (u64, u64), bytes: (u64, u64), mode: LockMode) -> Option<Result<()>> {
        self.set((who.0, 0), request(Posix, who.1, bytes, mode, false))
    }

    fn wait(
        &mut self,
        who: (u64, u64),
        ticket: u64,
        bytes: (u64, u64),
        mode: LockMode,
    ) -> Option<Result<()>> {
        self.set((who.0, ticket), request(Posix, who.1, bytes, mode, true))
    }

    fn flock(&mut self, who: (u64, u64), ticket: u64, mode: LockMode, wait: bool) -> Option<Result<()>> {
        self.set((who.0, ticket), request(Flock, who.1, (0, 0), mode, wait))
    }

    fn unlock(&mut self, who: (u64, u64), (first, last): (u64, u64)) -> Result<()> {
        let owner = LockOwner { kind: Posix, number: who.1 };
        self.change(|state, answers| state.unlock(who.0, FILE, owner, LockRange { first, last }, answers))
    }

    fn release(&mut self, who: (u64, u64), kind: LockKind) {
        let owner = LockOwner { kind, number: who.1 };
        self.change(|state, answers| state.release(who.0, FILE, owner, answers));
    }

    fn told(&self) -> Told {
        std::mem::take(&mut *self.told.lock())
    }
}

fn request(
    kind: LockKind,
    number: u64,
    (first, last): (u64, u64),
    mode: LockMode,
    wait: bool,
) -> LockRequest {
    let lock = FileLock { range: LockRange { first, last }, mode, pid: number as u32 };
    LockRequest { node: FILE, owner: LockOwner { kind, number }, lock, wait }
}

const A: (u64, u64) = (1, 10);
const B: (u64, u64) = (2, 20);
const C: (u64, u64) = (3, 30);

#[test]
fn ranges_are_cut_and_joined() {
    let range = |first, last| LockRange { first, last };
    let mut ranges = LockedRanges::default();
    ranges.put(range(10, 19), Some(Shared));
    ranges.put(range(20, LAST_BYTE), Some(Shared));
    assert_eq!(ranges.iter().collect::<Vec<_>>(), [(range(10, LAST_BYTE), Shared)]);
    ranges.put(range(15, 24), Some(Exclusive));
    let cut = [(range(10, 14), Shared), (range(15, 24), Exclusive), (range(25, LAST_BYTE), Shared)];
    assert_eq!(ranges.iter().collect::<Vec<_>>(), cut);
    ranges.put(range(0, 24), None);
    assert_eq!(ranges.iter().collect::<Vec<_>>(), [(range(25, LAST_BYTE), Shared)]);
    ranges.put(range(0, LAST_BYTE), Some(Exclusive));
    assert_eq!(ranges.len(), 1);
    ranges.put(range(LAST_BYTE, LAST_BYTE), None);
    ranges.put(range(0, 0), None);
    assert_eq!(ranges.iter().collect::<Vec<_>>(), [(range(1, LAST_BYTE - 1), Exclusive)]);
}

#[test]
fn the_two_kinds_do_not_exclude_each_other_and_owners_are_those_of_a_session() {
    let mut rig = Rig::new();
    assert_eq!(rig.lock(A, (0, 9), Exclusive), Some(Ok(())));
    assert_eq!(rig.flock(B, 1, Exclusive, false), Some(Ok(())));
    assert_eq!(rig.lock((2, A.1), (5, 5), Shared), Some(Err(Error::Locked)), "another session's number");
    assert_eq!(rig.flock((1, B.1), 1, Shared, false), Some(Err(Error::Locked)));
    let held = rig.state.test(2, &request(Posix, 99, (0, LAST_BYTE), Shared, false));
    assert_eq!(held, Ok(Some(FileLock { range: LockRange { first: 0, last: 9 }, mode: Exclusive, pid: 0 })));
    let held = rig.state.test(1, &request(Posix, 99, (9, 10), Shared, false)).expect("a valid range");
    assert_eq!(held.map(|lock| lock.pid), Some(10), "a process of the same machine has a number");
    assert_eq!(rig.state.test(1, &request(Posix, A.1, (0, 9), Exclusive, false)), Ok(None));
}

#[test]
fn those_who_wait_get_it_in_order_and_together_where_they_can() {
    let mut rig = Rig::new();
    rig.lock(A, (0, 9), Exclusive);
    assert_eq!(rig.wait(B, 1, (0, 4), Shared), None);
    assert_eq!(rig.wait(C, 2, (0, 9), Exclusive), None);
    assert_eq!(rig.wait((2, 21), 3, (3, 9), Shared), None);
    rig.unlock(A, (5, 9)).expect("unlocked");
    assert!(rig.told().is_empty());
    rig.unlock(A, (0, 4)).expect("unlocked");
    assert_eq!(rig.told(), [(1, Ok(())), (3, Ok(()))]);
    rig.release(B, Posix);
    assert!(rig.told().is_empty());
    rig.change(|state, answers| state.end_session(2, answers));
    assert_eq!(rig.told(), [(2, Ok(()))]);
    assert_eq!((rig.state.count(1), rig.state.count(2), rig.state.count(3)), (0, 0, 1));
}

#[test]
fn one_who_waits_no_longer_does_not_get_it_later() {
    let mut rig = Rig::new();
    rig.lock(A, (0, 9), Exclusive);
    rig.wait(B, 1, (0, 9), Exclusive);
    assert!(rig.change(|state, answers| state.cancel(2, 1, answers)));
    assert!(!rig.change(|state, answers| state.cancel(2, 1, answers)));
    assert!(!rig.change(|state, answers| state.cancel(1, 1, answers)), "tickets are those of a session");
    assert_eq!(rig.told(), [(1, Err(Error::Interrupted))]);
    rig.release(A, Posix);
    assert_eq!(rig.lock(C, (0, 9), Exclusive), Some(Ok(())));
    // one that is cancelled before it comes
    rig.state.announce(2, 5).expect("announced");
    assert!(rig.change(|state, answers| state.cancel(2, 5, answers)));
    assert_eq!(rig.wait(B, 5, (0, 9), Exclusive), Some(Err(Error::Interrupted)));
    assert_eq!(rig.wait(B, 5, (0, 9), Exclusive), None);
    // one that waits, and is cancelled before it comes again
    rig.state.announce(2, 5).expect("announced");
    assert!(rig.change(|state, answers| state.cancel(2, 5, answers)));
    assert_eq!(rig.wait(B, 5, (0, 9), Exclusive), Some(Err(Error::Interrupted)));
    rig.release(C, Posix);
    assert_eq!((rig.told(), rig.state.count(2)), (vec![(5, Err(Error::Interrupted))], 0));
}

#[test]
fn a_request_that_comes_again_keeps_its_place() {
    let mut rig = Rig::new();
    rig.lock(A, (0, 9), Exclusive);
    assert_eq!(rig.wait(B, 1, (0, 9), Exclusive), None);
    assert_eq!(rig.wait(C, 1, (0, 9), Exclusive), None);
    assert_eq!(rig.wait(B, 1, (0, 9), Exclusive), None);
    rig.release(A, Posix);
    assert_eq!((rig.told(), rig.state.count(2)), (vec![(1, Ok(()))], 1));
    assert_eq!(rig.wait(B, 1, (0, 9), Exclusive), Some(Ok(())), "it has it");
}

#[test]
fn who_would_wait_for_ever_is_told_so() {
    let mut rig = Rig::new();
    for (who, byte) in [(A, 0), (B, 1), (C, 2)] {
        rig.lock(who, (byte, byte), Exclusive);
    }
    assert_eq!(rig.wait(A, 1, (1, 1), Shared), None);
    assert_eq!(rig.wait(B, 2, (2, 2), Shared), None);
    assert_eq!(rig.wait(C, 3, (0, 0), Shared), Some(Err(Error::Deadlock)));
    rig.release(C, Posix);
    assert_eq!(rig.told(), [(2, Ok(()))]);
    // two that share and both want it alone
    let mut rig = Rig::new();
    rig.lock(A, (0, 9), Shared);
    rig.lock(B, (0, 9), Shared);
    assert_eq!(rig.wait(A, 1, (0, 9), Exclusive), None);
    assert_eq!(rig.wait(B, 2, (0, 9), Exclusive), Some(Err(Error::Deadlock)));
    rig.release(B, Posix);
    assert_eq!(rig.told(), [(1, Ok(()))]);
}

#[test]
fn a_flock_is_given_up_before_it_is_converted() {
    let mut rig = Rig::new();
    rig.flock(A, 1, Shared, false);
    rig.flock(B, 2, Shared, false);
    assert_eq!(rig.flock(A, 3, Exclusive, true), None);
    assert_eq!(rig.flock(B, 4, Exclusive, true), Some(Ok(())), "nobody has one any more");
    rig.release(B, Flock);
    assert_eq!(rig.told(), [(3, Ok(()))]);
    assert_eq!(rig.flock(A, 5, Exclusive, false), Some(Ok(())));
    assert_eq!(rig.flock(B, 6, Shared, true), None);
    assert_eq!(rig.flock(A, 7, Shared, false), Some(Ok(())));
    assert_eq!(rig.told(), [(6, Ok(()))]);
    assert_eq!(rig.flock(A, 8, Exclusive, false), Some(Err(Error::Locked)));
    assert_eq!(rig.flock(C, 9, Shared, false).and_then(Result::ok), Some(()));
    assert_eq!(rig.state.count(1), 0, "the lock before is gone, as on Linux");
}

#[test]
fn a_weaker_lock_lets_others_in() {
    let mut rig = Rig::new();
    rig.lock(A, (0, 9), Exclusive);
    rig.wait(B, 1, (0, 0), Shared);
    assert_eq!(rig.lock(A, (0, 9), Shared), Some(Ok(())));
    assert_eq!(rig.told(), [(1, Ok(()))]);
}

#[test]
fn in_the_grace_only_what_is_told_is_taken() {
    let told = |who: (u64, u64), node, first, last| OwnedLock {
        node,
        owner: LockOwner { kind: Posix, number: who.1 },
        lock: FileLock { range: LockRange { first, last }, mode: Exclusive, pid: 1 },
    };
    let mut rig = Rig::in_grace(Some(100));
    assert_eq!(rig.lock(B, (0, 9), Exclusive), None, "also those who do not want to wait");
    assert_eq!(rig.wait(C, 3, (20, 29), Exclusive), None);
    assert!(rig.change(|state, answers| state.tell(1, &told(A, FILE, 5, 6), answers)));
    assert!(!rig.change(|state, answers| state.tell(2, &told(B, FILE, 6, 7), answers)));
    rig.change(|state, answers| state.tick(99, answers));
    assert!(rig.told().is_empty());
    rig.change(|state, answers| state.tick(100, answers));
    assert_eq!(rig.told(), [(0, Err(Error::Locked)), (3, Ok(()))]);
    // later only for files on which nobody has had a lock since
    assert!(!rig.change(|state, answers| state.tell(2, &told(B, FILE, 50, 50), answers)));
    assert!(rig.change(|state, answers| state.tell(2, &told(B, NodeId(8), 50, 50), answers)));
}

/// Who asks for less than it has lets others in, also where both have asked before the grace ends.
#[test]
fn who_gives_up_a_part_at_the_end_of_the_grace_lets_others_in() {
    let mut rig = Rig::in_grace(Some(100));
    let lock = FileLock { range: LockRange { first: 0, last: 9 }, mode: Exclusive, pid: 1 };
    let told = OwnedLock { node: FILE, owner: LockOwner { kind: Posix, number: A.1 }, lock };
    assert!(rig.change(|state, answers| state.tell(1, &told, answers)));
    assert_eq!(rig.wait(B, 2, (0, 9), Shared), None);
    assert_eq!(rig.wait(A, 3, (0, 9), Shared), None);
    rig.change(|state, answers| state.tick(100, answers));
    let mut told = rig.told();
    told.sort_unstable_by_key(|(ticket, _)| *ticket);
    assert_eq!(told, [(2, Ok(())), (3, Ok(()))]);
}

#[test]
fn senseless_requests_and_too_many_are_refused() {
    let mut rig = Rig::new();
    for bytes in [(5, 4), (0, u64::MAX), (LAST_BYTE + 1, LAST_BYTE + 1)] {
        assert_eq!(rig.lock(A, bytes, Shared), Some(Err(Error::Invalid)));
        assert_eq!(rig.unlock(A, bytes), Err(Error::Invalid));
        assert!(rig.state.test(1, &request(Posix, 1, bytes, Shared, false)).is_err());
    }
    assert!(matches!(rig.lock((9, 1), (0, 0), Shared), Some(Err(Error::Io(_)))), "no such session");
    assert_eq!(rig.lock(A, (0, LAST_BYTE), Shared), Some(Ok(())));
    let mut byte = 0;
    let refused = loop {
        byte += 2;
        if let Err(e) = rig.unlock(A, (byte, byte)) {
            break e;
        }
    };
    assert_eq!((refused, rig.state.count(1)), (Error::TooManyLocks, LOCKS_MAX as u64));
    assert_eq!(rig.lock((1, 11), (0, 0), Shared), Some(Err(Error::TooManyLocks)));
    assert_eq!(rig.lock(B, (0, 0), Shared), Some(Ok(())), "another session");
    rig.unlock(A, (0, LAST_BYTE)).expect("unlocked");
    rig.lock(A, (0, 0), Exclusive);
    rig.release(B, Posix);
    rig.lock(A, (0, 0), Exclusive);
    let waits = (1..).find(|ticket| rig.wait(B, *ticket, (0, 0), Shared).is_some());
    assert_eq!(waits, Some(WAITING_MAX as u64 + 1));
}

#[test]
fn a_user_takes_his_share_and_not_that_of_the_machine() {
    let mut rig = Rig::new();
    let lock = |rig: &mut Rig, user: u32, byte: u64| {
        rig.user = user;
        rig.lock((1, u64::from(user)), (byte, byte), Shared).expect("nobody waits")
    };
    let mine = (0..).map(|n| n * 2).find(|byte| lock(&mut rig, 7, *byte).is_err()).map(|byte| byte / 2);
    // one may be cut in two
    assert_eq!(mine, Some(LOCKS_OF_USER_MAX as u64 - 1));
    assert_eq!(lock(&mut rig, 7, 1_000_001), Err(Error::TooManyLocks));
    for (user, whose) in [(8, "another user's"), (0, "root's")] {
        assert_eq!(lock(&mut rig, user, 1_000_001), Ok(()), "{whose}");
    }
    rig.release((1, 7), Posix);
    assert_eq!(lock(&mut rig, 7, 1_000_001), Ok(()), "his share is free again");
    // and of those that wait
    assert_eq!(rig.flock(C, 0, Exclusive, false), Some(Ok(())));
    let mut wait = |user: u32, ticket: u64| {
        rig.user = user;
        rig.flock((1, ticket), ticket, Exclusive, true)
    };
    let refused = (1..).find(|ticket| wait(7, *ticket).is_some());
    assert_eq!(refused, Some(WAITING_OF_USER_MAX as u64 + 1));
    assert_eq!(wait(7, 20_000), Some(Err(Error::TooManyLocks)));
    assert_eq!((wait(8, 20_001), wait(0, 20_002)), (None, None));
    assert!(rig.change(|state, answers| state.cancel(1, 1, answers)));
    rig.user = 7;
    assert_eq!(rig.flock((1, 20_003), 20_003, Exclusive, true), None, "one waits no longer");
}

/// Of a machine that is silent only what somebody else wants who is there.
#[test]
fn what_others_want_is_taken_and_nothing_else() {
    let mut rig = Rig::new();
    let take = |rig: &mut Rig, there: &[u64]| -> Vec<(u64, u64, Option<u32>)> {
        let is_there = |session: u64| there.contains(&session);
        let are_wanted = rig.state.are_wanted(1, &is_there);
        let taken = rig.change(|state, answers| state.take_wanted(1, &is_there, answers));
        assert_eq!(are_wanted, !taken.is_empty());
        taken.into_iter().map(|(of, uid)| (of.owner.number, of.lock.range.first, uid)).collect()
    };
    rig.user = 5;
    rig.lock(A, (0, 9), Exclusive);
    rig.lock((1, 11), (20, 29), Shared);
    rig.lock((1, 11), (40, 49), Exclusive);
    assert_eq!(rig.wait((1, 12), 1, (0, 0), Shared), None, "another program of the same machine");
    assert!(take(&mut rig, &[1, 2, 3]).is_empty());
    assert_eq!(rig.wait(B, 2, (0, 0), Exclusive), None);
    assert!(take(&mut rig, &[3]).is_empty(), "whoever waits is not there");
    // the one of the same machine that is next has it for a moment
    assert_eq!(take(&mut rig, &[2]), [(10, 0, Some(5)), (12, 0, Some(5))]);
    assert_eq!(rig.told(), [(1, Ok(())), (2, Ok(()))], "in the order of asking");
    // whoever does not wait wants it for a while
    assert_eq!(rig.lock(C, (25, 25), Exclusive), Some(Err(Error::Locked)));
    rig.state.forget_tried();
    assert!(take(&mut rig, &[3]).is_empty());
    assert_eq!(rig.lock(C, (25, 25), Exclusive), Some(Err(Error::Locked)));
    assert_eq!(take(&mut rig, &[3]), [(11, 20, Some(5)), (11, 40, Some(5))], "all of the owner");
    assert_eq!(rig.state.count(1), 0);
    // in the grace nothing is
    let mut rig = Rig::in_grace(Some(100));
    let lock = FileLock { range: LockRange { first: 0, last: 9 }, mode: Exclusive, pid: 1 };
    let told = OwnedLock { node: FILE, owner: LockOwner { kind: Posix, number: A.1 }, lock };
    assert!(rig.change(|state, answers| state.tell(1, &told, answers)));
    assert_eq!(rig.wait(B, 1, (0, 0), Exclusive), None);
    assert!(take(&mut rig, &[2]).is_empty());
    rig.change(|state, answers| state.tick(100, answers));
    assert_eq!(take(&mut rig, &[2]), [(10, 0, None)]);
}

/// Counted is at how many owners the table looks, whatever the order in which they go.
#[test]
fn thousands_give_up_their_locks_and_thousands_wait_at_the_cost_of_both() {
    const OWNERS: u64 = 10_000;
    const WAITERS: u64 = 1_000;
    let orders: [fn(u64) -> u64; 3] = [|n| n, |n| OWNERS - 1 - n, |n| n * 7_919 % OWNERS];
    for (at, order) in orders.iter().enumerate() {
        let mut rig = Rig::new();
        for n in 0..OWNERS {
            assert_eq!(rig.flock((1, n), 0, Shared, false), Some(Ok(())));
        }
        for n in 0..WAITERS {
            assert_eq!(rig.flock((2, n), n, Exclusive, true), None);
        }
        assert!(rig.state.looked.get() as u64 <= OWNERS + WAITERS, "{} looks", rig.state.looked.get());
        rig.state.looked.set(0);
        (0..OWNERS).for_each(|n| rig.release((1, order(n)), Flock));
        assert_eq!(rig.told(), [(0, Ok(()))]);
        let looked = rig.state.looked.get() as u64;
        assert!(looked <= 10 * (OWNERS + WAITERS), "order {at}: {looked} looks");
    }
}

/// A session that ends gives up all of its locks at once.
#[test]
fn who_waits_behind_a_session_that_ends_is_looked_at_once() {
    let mut rig = Rig::new();
    (0..10_000).for_each(|n| _ = rig.flock((1, n), 0, Shared, false));
    (0..1_000).for_each(|n| _ = rig.flock((2, n), n, Exclusive, true));
    rig.state.looked.set(0);
    rig.change(|state, answers| state.end_session(1, answers));
    assert_eq!(rig.told(), [(0, Ok(()))]);
    assert!(rig.state.looked.get() <= 4_000, "{} looks", rig.state.looked.get());
}

/// Whether somebody would wait for ever is found out at a bounded cost.
#[test]
fn a_request_that_waits_looks_at_a_bounded_number_of_owners() {
    let mut rig = Rig::new();
    (0..1_000).for_each(|n| _ = rig.lock((1, n), (0, 0), Shared));
    (0..1_000).for_each(|n| _ = rig.lock((2, n), (1, 1), Shared));
    // each of the first waits for all of the second
    (0..1_000).for_each(|n| _ = rig.wait((1, n), n, (1, 1), Exclusive));
    rig.state.looked.set(0);
    assert_eq!(rig.wait((3, 1), 1, (0, 0), Exclusive), None);
    assert!(rig.state.looked.get() <= 20_000, "{} looks", rig.state.looked.get());
}

/// Numbers without a pattern.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Who has each byte, and how.
type Model = BTreeMap<((u64, u64), u64), LockMode>;

fn may(model: &Model, who: (u64, u64), (first, last): (u64, u64), mode: LockMode) -> bool {
    let others = model.iter().filter(|((other, byte), _)| *other != who && (first..=last).contains(byte));
    !others.into_iter().any(|(_, held)| [*held, mode].contains(&Exclusive))
}

#[test]
fn any_sequence_does_what_a_model_of_bytes_does() {
    const BYTES: u64 = 24;
    for seed in 0..300 {
        let (mut numbers, mut rig, mut model) = (Numbers(seed), Rig::new(), Model::new());
        for step in 0..200 {
            let who = (1 + numbers.next(2), numbers.next(3));
            let first = numbers.next(BYTES);
            let bytes = (first, first + numbers.next(BYTES - first));
            let mode = [Shared, Exclusive][numbers.next(2) as usize];
            match numbers.next(8) {
                0..4 => {
                    let expected = may(&model, who, bytes, mode);
                    let result = rig.lock(who, bytes, mode).expect("nobody waits");
                    assert_eq!(result.is_ok(), expected, "seed {seed}, step {step}");
                    if expected {
                        model.extend((bytes.0..=bytes.1).map(|byte| ((who, byte), mode)));
                    }
                }
                4..7 => {
                    rig.unlock(who, bytes).expect("unlocked");
                    model.retain(|(owner, byte), _| *owner != who || !(bytes.0..=bytes.1).contains(byte));
                }
                _ => {
                    rig.release(who, Posix);
                    model.retain(|(owner, _), _| *owner != who);
                }
            }
            same(&rig, &model, BYTES);
        }
    }
}

/// The table says of each byte what the model says, and no range is in two pieces.
fn same(rig: &Rig, model: &Model, bytes: u64) {
    let mut pieces = 0;
    for who in (1..3).flat_map(|session| (0..3).map(move |number| (session, number))) {
        for byte in 0..bytes {
            let here = model.get(&(who, byte));
            pieces += usize::from(here.is_some() && (byte == 0 || model.get(&(who, byte - 1)) != here));
        }
    }
    assert_eq!(rig.state.count(1) + rig.state.count(2), pieces as u64);
    for byte in 0..bytes {
        for (mode, number) in [(Shared, 7), (Exclusive, 7), (Shared, 1), (Exclusive, 1)] {
            let found = rig.state.test(1, &request(Posix, number, (byte, byte), mode, false));
            let is_free = may(model, (1, number), (byte, byte), mode);
            assert_eq!(found.map(|lock| lock.is_none()), Ok(is_free), "byte {byte}");
        }
    }
}

#[test]
fn nobody_waits_for_what_is_free_and_each_is_answered_once() {
    for seed in 0..200 {
        let (mut numbers, mut rig, mut waiting) = (Numbers(seed), Rig::new(), BTreeMap::new());
        for ticket in 1..150 {
            let who = (1 + numbers.next(3), numbers.next(3));
            let first = numbers.next(6);
            let bytes = (first, first + numbers.next(3));
            let mode = [Shared, Exclusive][numbers.next(2) as usize];
            match numbers.next(10) {
                0..5 => {
                    if rig.wait(who, ticket, bytes, mode).is_none() {
                        waiting.insert(ticket, (who, bytes, mode));
                    }
                }
                5..8 => rig.unlock(who, bytes).expect("unlocked"),
                8 => rig.release(who, Posix),
                _ => {
                    let Some((ticket, (who, ..))) = waiting.iter().next().map(|(t, w)| (*t, *w)) else {
                        continue;
                    };
                    assert!(rig.change(|state, answers| state.cancel(who.0, ticket, answers)));
                }
            }
            for (ticket, _) in rig.told() {
                assert!(waiting.remove(&ticket).is_some(), "answered twice: {ticket}, seed {seed}");
            }
            for ((session, number), bytes, mode) in waiting.values() {
                let blocked = rig.state.test(*session, &request(Posix, *number, *bytes, *mode, true));
                assert!(matches!(blocked, Ok(Some(_))), "it waits for nothing, seed {seed}");
            }
        }
        (1..4).for_each(|session| rig.change(|state, answers| state.end_session(session, answers)));
        assert_eq!(rig.state.left(), (0, 0), "seed {seed}");
    }
}
