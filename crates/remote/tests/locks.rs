//! Locks of programs on several machines: who has them, who waits, and what becomes of them when
//! connections break and servers end.

use crate::rig;
use crate::rig::fake::{Fake, Peer};
use crate::rig::held::Held;
use crate::rig::latch::Over;
use crate::rig::proxy::{Fate, Proxy, WHOLE};
use crate::rig::raw::{HELLO, Raw, root, slot, tls};
use crate::rig::{Rig, make, user, write};
use leeward_env::Env;
use leeward_fs::locks::{
    FileLock, LAST_BYTE, LockCall, LockKind, LockMode, LockOwner, LockRange, LockReply, LockRequest,
    OwnedLock,
};
use leeward_fs::sessions::Sessions;
use leeward_fs::{Error, NodeId, Op, Reply, Result};
use leeward_remote::message::{
    Call, Hello, Refusal, SessionId, Slot, Standing, ToClient, ToServer, VERSION, frame,
};
use leeward_remote::{Client, Grant};
use leeward_vfs::Backend;
use leeward_vfs::locks::{LockService, OwnMount};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use LockKind::{Flock, Posix};
use LockMode::{Exclusive, Shared};

const ROOT: NodeId = NodeId::ROOT;
const SOON: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);
const READ_BYTES: u32 = 1 << 20;

static TICKET: AtomicU64 = AtomicU64::new(1);

/// A machine whose kernel asks for locks.
struct Machine {
    locks: Arc<dyn LockService>,
    lost: Receiver<(NodeId, LockOwner)>,
}

/// A request that was not answered at once.
struct Waits {
    ticket: u64,
    answer: Receiver<Result<()>>,
}

impl Waits {
    fn is_answered(&self) -> Result<()> {
        self.answer.recv_timeout(LONG).expect("an answer")
    }

    fn still_waits(&self) {
        assert!(self.answer.recv_timeout(SOON).is_err(), "it does not wait");
    }
}

impl Machine {
    fn new(locks: Arc<dyn LockService>) -> Machine {
        let (send, lost) = channel();
        locks.on_lost(Arc::new(move |node, owner| _ = send.send((node, owner))));
        Machine { locks, lost }
    }

    fn of(client: &Client) -> Machine {
        Machine::new(client.locks().expect("locks"))
    }

    fn ask(&self, uid: u32, request: LockRequest) -> Waits {
        let ticket = TICKET.fetch_add(1, Ordering::Relaxed);
        let (send, answer) = channel();
        let answered = Box::new(move |result| drop(send.send(result)));
        self.locks.set(&user(uid), request, ticket, answered);
        Waits { ticket, answer }
    }

    /// Waits until the server has come to all that was asked for: it hears in order what a machine
    /// says about locks.
    fn is_heard(&self, node: NodeId) {
        self.test(owner(Posix, u64::MAX), node, (0, LAST_BYTE)).expect("tested");
    }

    fn wait(&self, owner: LockOwner, node: NodeId, mode: LockMode) -> Waits {
        self.ask(0, request(node, owner, LockRange::ALL, mode, true))
    }

    fn lock(&self, owner: LockOwner, node: NodeId, mode: LockMode) -> Result<()> {
        self.ask(0, request(node, owner, LockRange::ALL, mode, false)).is_answered()
    }

    fn unlock(&self, owner: LockOwner, node: NodeId, (first, last): (u64, u64)) -> Result<()> {
        let (send, answer) = channel();
        let range = LockRange { first, last };
        self.locks.unlock(&user(0), node, owner, range, Box::new(move |result| drop(send.send(result))));
        answer.recv_timeout(LONG).expect("an answer")
    }

    fn release(&self, owner: LockOwner, node: NodeId) {
        let (send, answer) = channel();
        self.locks.release(node, owner, Box::new(move |result| drop(send.send(result))));
        answer.recv_timeout(LONG).expect("an answer").expect("released");
    }

    fn test(&self, owner: LockOwner, node: NodeId, (first, last): (u64, u64)) -> Result<Option<FileLock>> {
        let (send, answer) = channel();
        let request = request(node, owner, LockRange { first, last }, Shared, false);
        self.locks.test(&user(0), request, Box::new(move |found| drop(send.send(found))));
        answer.recv_timeout(LONG).expect("an answer")
    }
}

fn owner(kind: LockKind, number: u64) -> LockOwner {
    LockOwner { kind, number }
}

fn request(node: NodeId, owner: LockOwner, range: LockRange, mode: LockMode, wait: bool) -> LockRequest {
    LockRequest { node, owner, lock: FileLock { range, mode, pid: 77 }, wait }
}

const P: LockOwner = LockOwner { kind: Posix, number: 1 };
const F: LockOwner = LockOwner { kind: Flock, number: 1 };

fn two(rig: &Rig) -> (Client, Client, NodeId) {
    let (a, b) = (rig.host("a", Grant::default()), rig.host("b", Grant::default()));
    let node = make(&a, ROOT, b"file").expect("made").node;
    (a, b, node)
}

fn counts(rig: &Rig) -> Vec<u64> {
    let mut counts: Vec<u64> = rig.server().sessions().iter().map(|session| session.locks).collect();
    counts.sort_unstable();
    counts
}

#[test]
fn locks_exclude_between_machines_and_the_servers_own_mount() {
    let rig = Rig::new();
    let (a, b, node) = two(&rig);
    let own = Machine::new(Arc::new(OwnMount::new(rig.gate.locks().expect("a table"))));
    let (a, b) = (Machine::of(&a), Machine::of(&b));
    for owner in [P, F] {
        a.lock(owner, node, Exclusive).expect("locked");
        assert_eq!(b.lock(owner, node, Shared), Err(Error::Locked));
        assert_eq!(own.lock(owner, node, Shared), Err(Error::Locked));
        let of_b = b.wait(owner, node, Exclusive);
        b.is_heard(node);
        of_b.still_waits();
        let of_own = own.wait(owner, node, Exclusive);
        of_own.still_waits();
        a.release(owner, node);
        of_b.is_answered().expect("in order");
        of_own.still_waits();
        b.unlock(owner, node, (0, LAST_BYTE)).expect("unlocked");
        of_own.is_answered().expect("the next");
        own.release(owner, node);
    }
    assert_eq!(counts(&rig), [0, 0]);
    a.lock(P, node, Exclusive).expect("locked");
    a.unlock(P, node, (10, 19)).expect("cut in two");
    assert_eq!(counts(&rig), [0, 2]);
    assert_eq!(b.test(P, node, (10, 19)), Ok(None));
    let found = b.test(P, node, (5, 30)).expect("tested").expect("a lock");
    assert_eq!((found.range, found.mode, found.pid), (LockRange { first: 0, last: 9 }, Exclusive, 0));
    let found = a.test(owner(Posix, 2), node, (25, 30)).expect("tested").expect("a lock");
    assert_eq!((found.range, found.pid), (LockRange { first: 20, last: LAST_BYTE }, 77));
}

#[test]
fn one_who_is_interrupted_never_gets_it() {
    let rig = Rig::new();
    let (a, b, node) = two(&rig);
    let (a, b) = (Machine::of(&a), Machine::of(&b));
    a.lock(P, node, Exclusive).expect("locked");
    let waits = b.wait(P, node, Exclusive);
    waits.still_waits();
    b.locks.cancel(waits.ticket);
    assert_eq!(waits.is_answered(), Err(Error::Interrupted));
    a.release(P, node);
    assert_eq!(counts(&rig), [0, 0]);
    a.lock(P, node, Exclusive).expect("nobody has it");
    // at the same moment as it is given: one or the other
    for _ in 0..200 {
        let waits = b.wait(P, node, Exclusive);
        let (send, released) = channel();
        a.locks.release(node, P, Box::new(move |result| drop(send.send(result))));
        b.locks.cancel(waits.ticket);
        released.recv_timeout(LONG).expect("an answer").expect("released");
        match waits.is_answered() {
            Ok(()) => b.release(P, node),
            Err(e) => assert_eq!(e, Error::Interrupted),
        }
        a.lock(P, node, Exclusive).expect("nobody has it");
    }
}

#[test]
fn more_may_wait_than_there_are_slots() {
    let rig = Rig::new();
    let (a, b, node) = two(&rig);
    let (holder, waiter) = (Machine::of(&a), Machine::of(&b));
    holder.lock(P, node, Exclusive).expect("locked");
    let all: Vec<Waits> = (0..3000).map(|number| waiter.wait(owner(Posix, number), node, Shared)).collect();
    all[2999].still_waits();
    make(&b, ROOT, b"other").expect("others do not notice");
    holder.release(P, node);
    all.iter().for_each(|waits| waits.is_answered().expect("locked"));
    assert_eq!(counts(&rig), [0, 3000]);
    b.close();
    rig.settles(1, 1);
    holder.lock(P, node, Exclusive).expect("the session gave them back");
}

#[test]
fn an_owner_without_locks_is_no_message() {
    let rig = Rig::new();
    let (a, _b, node) = two(&rig);
    let machine = Machine::of(&a);
    machine.lock(P, node, Exclusive).expect("locked");
    machine.unlock(P, node, (0, LAST_BYTE)).expect("unlocked");
    drop(rig); // nobody answers
    machine.release(P, node);
    machine.release(owner(Posix, 9), node);
}

#[test]
fn a_session_that_ends_gives_its_locks_back() {
    let rig = Rig::new();
    let (a, b, node) = two(&rig);
    let (of_a, of_b) = (Machine::of(&a), Machine::of(&b));
    of_a.lock(F, node, Exclusive).expect("locked");
    let waits = of_b.wait(F, node, Exclusive);
    waits.still_waits();
    let session = rig.server().sessions().into_iter().find(|session| session.locks == 1).expect("that of a");
    assert!(rig.server().end_session(session.number));
    waits.is_answered().expect("it has it now");
    // the client comes back, and its lock is lost
    assert_eq!(of_a.lost.recv_timeout(LONG), Ok((node, F)));
    let again = of_a.wait(F, node, Shared);
    again.still_waits();
    b.close();
    again.is_answered().expect("that of b has ended");
}

#[test]
fn waiting_goes_on_when_the_connection_was_lost() {
    let rig = Rig::new();
    let (a, _b, node) = two(&rig);
    let closed = Arc::new(AtomicBool::new(false));
    let is_closed = closed.clone();
    let nothing = Fate { bytes: 0, ..WHOLE };
    let proxy = Proxy::start(&rig.env, rig.at, move |_| {
        if is_closed.load(Ordering::SeqCst) { (nothing, nothing) } else { (WHOLE, WHOLE) }
    });
    let away = |is_away: bool| {
        closed.store(is_away, Ordering::SeqCst);
        proxy.cut();
    };
    rig.know(3, "through", Grant::default());
    let client = rig.connect(proxy.at, [3; 32], None).expect("connected");
    let (a, c) = (Machine::of(&a), Machine::of(&client));
    c.lock(F, node, Shared).expect("locked");
    a.lock(P, node, Exclusive).expect("locked");
    let (first, second) = (c.wait(P, node, Exclusive), c.wait(owner(Posix, 2), node, Shared));
    first.still_waits();
    away(false);
    first.still_waits();
    // given while nobody is there to hear of it
    away(true);
    a.release(P, node);
    first.still_waits();
    c.locks.cancel(second.ticket);
    away(false);
    first.is_answered().expect("locked");
    assert_eq!(second.is_answered(), Err(Error::Interrupted));
    // who closes a file does not wait for the server, and the lock is given back later
    away(true);
    while client.away().is_none() {
        rig.env.sleep(Duration::from_millis(5));
    }
    c.release(P, node);
    assert_eq!(a.lock(P, node, Shared), Err(Error::Locked));
    away(false);
    a.wait(P, node, Exclusive).is_answered().expect("it was given back");
    assert_eq!((c.lost.try_recv().is_err(), counts(&rig)), (true, vec![0, 1, 1]));
}

#[test]
fn a_new_server_is_told_what_there_is_before_others_get_it() {
    let mut rig = Rig::new();
    let (a, b, node) = two(&rig);
    let (of_a, of_b) = (Machine::of(&a), Machine::of(&b));
    for in_order in [true, false] {
        of_a.lock(P, node, Exclusive).expect("locked");
        of_a.unlock(P, node, (10, 19)).expect("cut in two");
        of_a.lock(F, node, Shared).expect("locked");
        let in_line = of_b.wait(P, node, Shared);
        in_line.still_waits();
        rig.restart(in_order);
        let want = of_b.ask(0, request(node, F, LockRange::ALL, Exclusive, false));
        assert_eq!(want.is_answered(), Err(Error::Locked), "it was told of in time");
        in_line.still_waits();
        assert_eq!(counts(&rig), [0, 3]);
        of_a.release(P, node);
        in_line.is_answered().expect("locked");
        of_a.release(F, node);
        of_b.release(P, node);
        assert_eq!(counts(&rig), [0, 0]);
    }
    assert!(of_a.lost.try_recv().is_err() && of_b.lost.try_recv().is_err());
}

/// A machine has died with the server, and is waited for. Those that come meanwhile tell of their
/// locks when that is over, one later than the other.
#[test]
fn a_server_that_waits_for_a_machine_gives_no_locks_before_all_have_told() {
    let mut rig = Rig::new();
    let gone = Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    let slow = Arc::new(Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE)));
    rig.know(71, "gone", Grant::default());
    rig.know(72, "slow", Grant::default());
    let dead = rig.connect(gone.at, [71; 32], None).expect("connected");
    let client = rig.connect(slow.at, [72; 32], None).expect("connected");
    let other = rig.host("other", Grant::default());
    let node = make(&other, ROOT, b"file").expect("made").node;
    Sessions::commit(&*rig.cell).expect("committed");
    let (has, wants) = (Machine::of(&client), Machine::of(&other));
    has.lock(owner(Flock, 1), node, Exclusive).expect("locked");
    let waits = wants.wait(owner(Flock, 1), node, Exclusive);
    waits.still_waits();
    drop(gone);
    let (held, env) = (slow.clone(), rig.env.clone());
    let hold = move || {
        env.sleep(Duration::from_secs(4));
        held.hold(true);
    };
    let holding = std::thread::Builder::new().spawn(hold).expect("a thread");
    rig.crash(|| ());
    holding.join().expect("held");
    waits.still_waits();
    rig.env.sleep(Duration::from_secs(1));
    slow.hold(false);
    assert!(has.lost.recv_timeout(Duration::from_secs(8)).is_err(), "it came in time");
    waits.still_waits();
    has.unlock(owner(Flock, 1), node, (0, LAST_BYTE)).expect("unlocked");
    waits.is_answered().expect("locked");
    [dead, client, other].iter().for_each(Client::close);
}

#[test]
fn restricted_hosts_lock_only_what_they_may_open() {
    let rig = Rig::new();
    let all = rig.host("all", Grant::default());
    let node = make(&all, ROOT, b"file").expect("made").node;
    let few = rig.host("x few", Grant { uids: vec![(1000, 1999)], ..Grant::default() });
    let of_few = Machine::of(&few);
    let ask = |uid, node| of_few.ask(uid, request(node, P, LockRange::ALL, Shared, false)).is_answered();
    assert_eq!(ask(1000, node), Err(Error::Stale), "it does not know it");
    let lookup = |uid| few.call(&user(uid), leeward_fs::Op::Lookup { dir: ROOT, name: b"file" });
    lookup(1000).expect("found");
    assert_eq!(ask(1000, node), Ok(()), "others may read it");
    assert_eq!(ask(0, node), Err(Error::NotPermitted));
    let set = leeward_fs::SetAttr { mode: Some(0o600), ..Default::default() };
    all.call(&user(0), leeward_fs::Op::SetAttr { node, set }).expect("set");
    assert_eq!(ask(1000, node), Err(Error::Access));
    let volumes = Machine::of(&rig.host("volumes", Grant { volumes: vec![77], ..Grant::default() }));
    assert_eq!(volumes.lock(P, node, Shared), Err(Error::Access));
    // while its rights are checked it can be cancelled
    let set = leeward_fs::SetAttr { mode: Some(0o644), ..Default::default() };
    all.call(&user(0), leeward_fs::Op::SetAttr { node, set }).expect("set");
    of_few.release(P, node);
    Machine::of(&all).lock(P, node, Exclusive).expect("locked");
    for _ in 0..100 {
        let waits = of_few.ask(1000, request(node, P, LockRange::ALL, Shared, true));
        of_few.locks.cancel(waits.ticket);
        assert_eq!(waits.is_answered(), Err(Error::Interrupted));
    }
}

/// Says something about locks, and hears the answer.
fn say(raw: &mut Raw, place: u16, number: u32, call: LockCall) -> Result<Reply> {
    raw.say(&ToServer::Call(slot(place, number), Call::Lock(root(), call)));
    match raw.hear() {
        Ok(ToClient::Answer(_, result, ..)) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_says_anything_harms_nobody() {
    let rig = Rig::new();
    let (a, _, node) = two(&rig);
    let of_a = Machine::of(&a);
    of_a.lock(P, node, Exclusive).expect("locked");
    rig.know(50, "raw", Grant::default());
    let (mut raw, _) = Raw::welcomed(&rig, 50, None);
    let mut number = 0;
    let mut ask = |call| {
        number += 1;
        say(&mut raw, 0, number, call)
    };
    let set = |first, last, ticket| {
        let request = request(node, P, LockRange { first, last }, Shared, true);
        LockCall::Set { request, ticket }
    };
    assert_eq!(ask(set(5, 4, 1)), Err(Error::Invalid));
    assert_eq!(ask(set(0, u64::MAX, 1)), Err(Error::Invalid));
    assert_eq!(ask(set(0, 9, 1)), Ok(Reply::Lock(LockReply::Waits)));
    assert_eq!(ask(set(0, 9, 1)), Ok(Reply::Lock(LockReply::Waits)), "once more");
    assert_eq!(ask(LockCall::Cancel { ticket: 5 }), Ok(Reply::Lock(LockReply::NotWaiting)));
    let all = LockRange::ALL;
    assert_eq!(
        ask(LockCall::Unlock { node, owner: P, range: all }),
        Ok(Reply::Done),
        "its own, which has none"
    );
    assert_eq!(ask(LockCall::Release { node, owner: P }), Ok(Reply::Done));
    let view = NodeId(u64::MAX);
    let told = |node| OwnedLock { node, owner: P, lock: FileLock { range: all, mode: Exclusive, pid: 0 } };
    let lost = Ok(Reply::Lock(LockReply::Lost(vec![0, 1])));
    assert_eq!(ask(LockCall::Tell(vec![told(node), told(view)])), lost);
    assert_eq!(counts(&rig), [0, 0, 1]);
    // as many as there may be, of files that there are not
    let far = |byte: u64| OwnedLock {
        node: NodeId(123_456_789),
        owner: P,
        lock: FileLock { range: LockRange { first: 2 * byte, last: 2 * byte }, mode: Shared, pid: 0 },
    };
    for chunk in 0..20 {
        let some = (0..4000).map(|n| far(chunk * 4000 + n)).collect();
        ask(LockCall::Tell(some)).expect("answered");
    }
    let most = counts(&rig)[2];
    assert!(most <= 65_536, "{most}");
    of_a.lock(owner(Posix, 2), NodeId(123_456_789), Exclusive).expect_err("they are there");
    raw.cut();
    // it holds, and waits, and is gone: when its session ends, nothing is left
    let session = rig.server().sessions().into_iter().find(|session| session.locks > 1).expect("there");
    assert!(rig.server().end_session(session.number));
    of_a.lock(owner(Posix, 2), NodeId(123_456_789), Exclusive).expect("they are gone");
    of_a.release(P, node);
    assert_eq!(of_a.lock(owner(Posix, 3), node, Exclusive), Ok(()));
}

fn set_whole(node: NodeId, owner: LockOwner, ticket: u64) -> LockCall {
    LockCall::Set { request: request(node, owner, LockRange::ALL, Exclusive, true), ticket }
}

/// The answer that a request waits is lost with its connection, and so is the message that it has
/// the lock. What was true then must not be said again.
#[test]
fn one_who_asks_again_by_the_next_connection_is_told_what_is_true_by_now() {
    let rig = Rig::new();
    let (a, _, node) = two(&rig);
    let of_a = Machine::of(&a);
    of_a.lock(F, node, Exclusive).expect("locked");
    rig.know(50, "raw", Grant::default());
    let (mut before, session) = Raw::welcomed(&rig, 50, None);
    assert_eq!(say(&mut before, 0, 1, set_whole(node, F, 1)), WAITS);
    of_a.unlock(F, node, (0, LAST_BYTE)).expect("unlocked");
    assert_eq!(counts(&rig), [0, 0, 1]);
    let (mut raw, again) = Raw::welcomed(&rig, 50, Some(session));
    assert_eq!((again.number, say(&mut raw, 0, 1, set_whole(node, F, 1))), (session.number, Ok(Reply::Done)));
    let unlock = LockCall::Unlock { node, owner: F, range: LockRange::ALL };
    assert_eq!(say(&mut raw, 1, 1, unlock), Ok(Reply::Done));
    assert_eq!(counts(&rig), [0, 0, 0]);
}

/// The server has read a request, and not come to it, when its client has another connection.
#[test]
fn what_came_by_a_connection_before_is_not_done_after_the_next_has_begun() {
    let rig = Rig::new();
    let (a, _, node) = two(&rig);
    write(&a, node, &[7; READ_BYTES as usize]).expect("written");
    rig.know(50, "raw", Grant::default());
    let (mut before, session) = Raw::welcomed(&rig, 50, None);
    // more than is answered to one who does not read
    let read = |place| {
        let op = Op::Read { node, offset: 0, len: READ_BYTES };
        frame(&ToServer::Call(slot(place, 1), Call::Op(root(), op)))
    };
    let mut all: Vec<u8> = (0..200).flat_map(read).collect();
    let lock = set_whole(node, F, 1);
    all.extend(frame(&ToServer::Call(slot(200, 1), Call::Lock(root(), lock))));
    before.send(&all);
    rig.env.sleep(SOON);
    assert_eq!(counts(&rig), [0, 0, 0], "the server waits until answers are read");
    let (mut raw, _) = Raw::welcomed(&rig, 50, Some(session));
    rig.settles(3, 3);
    assert_eq!(counts(&rig), [0, 0, 0]);
    raw.say(&ToServer::Call(slot(200, 1), Call::Lock(root(), set_whole(node, F, 1))));
    // answers to reads that were under way come here, too
    while !matches!(raw.hear(), Ok(ToClient::Answer(at, Ok(Reply::Done), ..)) if at == slot(200, 1)) {}
    assert_eq!(counts(&rig), [0, 0, 1]);
}

const WAITS: Result<Reply> = Ok(Reply::Lock(LockReply::Waits));

/// A client that waits for a lock and has lost its connection. Its next one, and the slot in which
/// it asks again.
fn asked_again(fake: &Fake) -> (Client, Waits, (Peer, Slot, u64)) {
    let begin = || {
        let mut peer = fake.welcome(Standing::New, 1);
        peer.begin();
        peer
    };
    let (client, mut peer) = std::thread::scope(|scope| {
        let begun = scope.spawn(begin);
        let client = rig::client(&Env::real(), fake.at(), [3; 32], None).expect("connected");
        (client, begun.join().expect("begun"))
    });
    let waits = Machine::of(&client).wait(F, ROOT, Exclusive);
    let (slot, _) = peer.about_locks();
    peer.answer(slot, WAITS, None);
    waits.still_waits();
    drop(peer);
    let mut peer = fake.welcome(Standing::Resumed, 1);
    peer.say(&ToClient::Ready);
    match peer.about_locks() {
        (slot, LockCall::Set { ticket, .. }) => (client, waits, (peer, slot, ticket)),
        other => panic!("{other:?}"),
    }
}

/// The server says that the lock was given, and has not come to what asks for it again: it gives it
/// once more. A program that has given it up by then would have it without knowing.
#[test]
fn a_program_has_a_lock_when_nothing_is_under_way_that_asks_for_it() {
    let fake = Fake::new();
    let (client, waits, (mut peer, slot, ticket)) = asked_again(&fake);
    peer.say(&ToClient::Granted { ticket, result: Ok(()) });
    waits.still_waits();
    // as it was when it was asked for again
    peer.answer(slot, WAITS, None);
    waits.is_answered().expect("it was given");
    drop(peer);
    client.close();
}

/// A signal while it is asked for again; and the message that it was given is lost.
#[test]
fn one_who_is_interrupted_asks_again_when_the_server_does_not_have_it_in_line() {
    let fake = Fake::new();
    let (client, waits, (mut peer, slot, ticket)) = asked_again(&fake);
    client.locks().expect("locks").cancel(ticket);
    waits.still_waits();
    peer.answer(slot, WAITS, None);
    let (slot, call) = peer.about_locks();
    assert_eq!(call, LockCall::Cancel { ticket });
    peer.answer(slot, Ok(Reply::Lock(LockReply::NotWaiting)), None);
    let (slot, call) = peer.about_locks();
    assert!(matches!(call, LockCall::Set { ticket: same, .. } if same == ticket));
    peer.answer(slot, Ok(Reply::Done), None);
    waits.is_answered().expect("it had been given");
    drop(peer);
    client.close();
}

/// Takes one lock again and again, until the end, and counts how often. Some of its requests are
/// interrupted, and some locks are given up by a `close`, which does not wait for a server that is
/// away.
fn contend(
    (env, machine, node): (&Env, &Machine, NodeId),
    (inside, taken): (&AtomicU64, &AtomicU64),
    end: &AtomicBool,
) {
    for turn in 0u64.. {
        if end.load(Ordering::SeqCst) {
            break;
        }
        let waits = machine.wait(F, node, Exclusive);
        if turn % 5 == 4 {
            env.sleep(Duration::from_millis(turn % 3));
            machine.locks.cancel(waits.ticket);
        }
        match waits.is_answered() {
            Ok(()) => {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have it");
                env.sleep(Duration::from_micros(300));
                inside.fetch_sub(1, Ordering::SeqCst);
                taken.fetch_add(1, Ordering::SeqCst);
                match turn % 2 {
                    0 => machine.unlock(F, node, (0, LAST_BYTE)).expect("unlocked"),
                    _ => machine.release(F, node),
                }
            }
            Err(e) => assert_eq!(e, Error::Interrupted),
        }
    }
}

/// A host that knows the file, behind a network that cuts its connections.
fn through(rig: &Rig, seed: u8, grant: Grant) -> (Proxy, Client) {
    rig.know(seed, &format!("host {seed}"), grant);
    let proxy = Proxy::start(&rig.env, rig.at, |_| (WHOLE, WHOLE));
    let client = rig.connect(proxy.at, [seed; 32], None).expect("connected");
    client.call(&user(0), Op::Lookup { dir: ROOT, name: b"file" }).expect("found");
    (proxy, client)
}

#[test]
fn locks_go_on_and_exclude_however_often_connections_break() {
    let rig = Rig::new();
    let (_a, _b, node) = two(&rig);
    // the server checks the rights of one of them, which takes time: the file is its user's
    let grants = [vec![], vec![], vec![(0, 99)]].map(|uids| Grant { uids, ..Grant::default() });
    let clients: Vec<(Proxy, Client)> =
        (80..).zip(grants).map(|(seed, grant)| through(&rig, seed, grant)).collect();
    let (inside, end) = (AtomicU64::new(0), AtomicBool::new(false));
    let taken = [const { AtomicU64::new(0) }; 3];
    let has_enough = |taken: &AtomicU64| taken.load(Ordering::SeqCst) > 20;
    std::thread::scope(|scope| {
        let _over = Over(&end);
        for ((_, client), taken) in clients.iter().zip(&taken) {
            let (env, inside, end) = (&rig.env, &inside, &end);
            scope.spawn(move || contend((env, &Machine::of(client), node), (inside, taken), end));
        }
        // a busy machine takes its time, and it ends when all had their turns
        let until = rig.env.now() + 60_000_000_000;
        for turn in 0.. {
            if turn >= 120 && (taken.iter().all(has_enough) || rig.env.now() > until) {
                break;
            }
            rig.env.sleep(Duration::from_millis(10 + turn * 7 % 50));
            clients[turn as usize % 3].0.cut();
        }
    });
    assert!(taken.iter().all(has_enough), "{taken:?}");
    // who closes a file does not wait
    Machine::of(&clients[0].1).wait(F, node, Exclusive).is_answered().expect("nobody has it");
}

/// How long one has to be silent, or there.
const SILENT: Duration = Duration::from_secs(6);

/// Two machines that are there for so long that they count, one of them behind a network.
fn steady(rig: &Rig) -> (Proxy, Client, Client, NodeId) {
    let b = rig.host("b", Grant::default());
    let node = make(&b, ROOT, b"file").expect("made").node;
    make(&b, ROOT, b"other").expect("made");
    let (proxy, a) = through(rig, 80, Grant::default());
    rig.env.sleep(SILENT);
    (proxy, a, b, node)
}

/// Waits until a client does something again.
fn comes_to(client: &Client, node: NodeId) {
    let is_done = |_: &i32| write(client, node, b"x").is_ok();
    assert!((0..1000).find(is_done).is_some(), "what is asked for is refused");
}

/// Those who wait for a lock of a machine that is silent get it, others keep theirs, and it is told
/// when it comes back.
#[test]
fn a_lock_of_a_silent_machine_goes_to_whoever_wants_it() {
    let rig = Rig::new();
    let (proxy, a, b, node) = steady(&rig);
    let other = rig::lookup(&b, ROOT, b"other").expect("found").node;
    let (of_a, of_b) = (Machine::of(&a), Machine::of(&b));
    for (owner, node) in [(P, node), (F, node), (P, other)] {
        of_a.lock(owner, node, Exclusive).expect("locked");
    }
    // one of its own programs waits, too
    let of_its_own = of_a.wait(owner(Posix, 2), other, Exclusive);
    of_its_own.still_waits();
    proxy.hold(true);
    let begun = rig.env.now();
    of_b.wait(P, node, Exclusive).is_answered().expect("it has it");
    let waited = Duration::from_nanos(rig.env.now() - begun);
    assert!(waited >= SILENT - SOON && waited < 2 * SILENT, "{waited:?}");
    // this one asks again and again
    let tries = |_: &i32| {
        rig.env.sleep(Duration::from_millis(50));
        of_b.lock(F, node, Exclusive).is_ok()
    };
    assert!((0..100).find(tries).is_some(), "who does not wait never gets it");
    assert!(of_a.lost.try_recv().is_err(), "it has not heard of that yet");
    let losses = rig.server().losses();
    // one entry for each number of seconds
    assert_eq!(losses.iter().map(|loss| loss.locks).sum::<u64>(), 2);
    for loss in &losses {
        assert_eq!((&*loss.host, loss.uid, &loss.nodes[..]), ("host 80", Some(0), &[node.0][..]));
        assert!(loss.why.ends_with("others wanted the same locks"), "{}", loss.why);
    }
    proxy.hold(false);
    let mut lost: Vec<_> = (0..2).map(|_| of_a.lost.recv_timeout(LONG).expect("it is told")).collect();
    lost.sort_unstable();
    assert_eq!(lost, [(node, F), (node, P)]);
    // nobody wanted the third
    of_its_own.still_waits();
    of_a.unlock(P, other, (0, LAST_BYTE)).expect("unlocked");
    of_its_own.is_answered().expect("it was in line all the time");
    assert!(of_a.lost.try_recv().is_err());
    assert_eq!(of_a.lock(P, node, Shared), Err(Error::Locked), "b has it");
    comes_to(&a, node);
}

/// Whoever has just come may find all others silent because the network was away.
#[test]
fn a_lock_is_not_taken_for_a_machine_that_has_just_come() {
    let rig = Rig::new();
    let (proxy, a, b, node) = steady(&rig);
    b.close();
    let of_a = Machine::of(&a);
    of_a.lock(P, node, Exclusive).expect("locked");
    proxy.hold(true);
    rig.env.sleep(SILENT + Duration::from_secs(1));
    let new = rig.host("new", Grant::default());
    let of_new = Machine::of(&new);
    let waits = of_new.wait(P, node, Exclusive);
    for _ in 0..20 {
        assert_eq!(of_new.lock(owner(Posix, 2), node, Shared), Err(Error::Locked));
        rig.env.sleep(Duration::from_millis(100));
    }
    proxy.hold(false);
    comes_to(&a, node);
    waits.still_waits();
    of_a.unlock(P, node, (0, LAST_BYTE)).expect("unlocked");
    waits.is_answered().expect("it was given up");
    assert!(of_a.lost.try_recv().is_err());
}

/// A client that says nothing, and has a lock. Its session.
fn silent(rig: &Rig, version: u16, node: NodeId) -> (Raw, SessionId) {
    rig.know(50, "raw", Grant::default());
    let mut raw = Raw::connect(rig, tls(50));
    raw.say(&ToServer::Hello(Hello { oldest: 7, newest: version, ..HELLO }));
    let Ok(ToClient::Welcome { session, .. }) = raw.hear() else { panic!("not let in") };
    assert!(matches!(raw.hear(), Ok(ToClient::Ready)));
    assert_eq!(say(&mut raw, 0, 1, set_whole(node, F, 1)), Ok(Reply::Done));
    (raw, session)
}

/// Its client comes back. Whoever was given its lock may hear of that before it may.
fn come_back(rig: &Rig, session: SessionId) -> Raw {
    loop {
        let mut raw = Raw::connect(rig, tls(50));
        raw.say(&ToServer::Hello(Hello { session: Some(session), ..HELLO }));
        match raw.hear() {
            Ok(ToClient::Welcome { standing: Standing::Resumed, .. }) => return raw,
            Ok(ToClient::Refused(Refusal::Busy, _)) => rig.env.sleep(Duration::from_millis(10)),
            said => panic!("{said:?}"),
        }
    }
}

/// What it had sent, or sends before it has heard of it, changes nothing under a lock that others
/// have.
#[test]
fn a_machine_that_has_lost_a_lock_changes_nothing_until_it_knows() {
    let rig = Rig::new();
    let (_proxy, _a, b, node) = steady(&rig);
    let other = rig::lookup(&b, ROOT, b"other").expect("found").node;
    let (_raw, session) = silent(&rig, VERSION, node);
    Machine::of(&b).wait(F, node, Exclusive).is_answered().expect("it has it");
    for _ in 0..2 {
        let mut raw = come_back(&rig, session);
        match raw.hear() {
            Ok(ToClient::LocksTaken(all)) => assert_eq!((all.len(), all[0].node, all[0].owner), (1, node, F)),
            said => panic!("{said:?}"),
        }
        assert!(matches!(raw.hear(), Ok(ToClient::Ready)));
    }
    let mut raw = come_back(&rig, session);
    (0..2).for_each(|_| assert!(raw.hear().is_ok()));
    // the answer that it had the lock is not given again
    assert_ne!(say(&mut raw, 0, 1, set_whole(node, F, 1)), Ok(Reply::Done));
    let write = |node| Op::Write { node, offset: 0, data: b"x" };
    assert!(matches!(raw.call(slot(1, 1), root(), write(node)), Err(Error::Io(_))));
    assert!(matches!(raw.call(slot(1, 2), root(), Op::Fsync { node }), Err(Error::Io(_))));
    assert_eq!(raw.call(slot(1, 3), root(), write(other)), Ok(Reply::Written(1)));
    assert!(raw.call(slot(1, 4), root(), Op::GetAttr { node }).is_ok());
    raw.say(&ToServer::HeedsLocks);
    assert_eq!(raw.call(slot(1, 5), root(), write(node)), Ok(Reply::Written(1)));
}

/// One that comes back before it is durable that it may have lost a lock keeps it, and does not
/// wait for that.
#[test]
fn a_machine_that_comes_back_while_a_lock_is_being_taken_keeps_it() {
    let mut held = None;
    let rig = Rig::with_sessions(|cell| held.insert(Held::of(cell)).clone());
    let held = held.expect("a rig");
    let (_proxy, _a, b, node) = steady(&rig);
    let (_raw, session) = silent(&rig, VERSION, node);
    held.syncs.shut();
    let waits = Machine::of(&b).wait(F, node, Exclusive);
    held.syncs.is_reached();
    let mut raw = come_back(&rig, session);
    assert!(held.syncs.holds(), "it has waited for that");
    assert!(matches!(raw.hear(), Ok(ToClient::Ready)), "it has lost nothing");
    held.syncs.open();
    waits.still_waits();
    let write = Op::Write { node, offset: 0, data: b"x" };
    assert_eq!(raw.call(slot(1, 1), root(), write), Ok(Reply::Written(1)));
    let unlock = LockCall::Unlock { node, owner: F, range: LockRange::ALL };
    assert_eq!(say(&mut raw, 0, 2, unlock), Ok(Reply::Done));
    waits.is_answered().expect("it was given up");
}

/// What its programs had asked for under the lock is not done after others have had it.
#[test]
fn what_was_asked_for_under_a_lost_lock_is_not_done() {
    let rig = Rig::new();
    let (proxy, a, b, node) = steady(&rig);
    let of_a = Machine::of(&a);
    of_a.lock(P, node, Exclusive).expect("locked");
    proxy.hold(true);
    let late: Vec<_> = (0..8)
        .map(|_| {
            let a = a.clone();
            rig.env.spawn("late", move || assert!(write(&a, node, b"a").is_err()))
        })
        .collect();
    Machine::of(&b).wait(P, node, Exclusive).is_answered().expect("it has it");
    write(&b, node, b"b").expect("written under the lock");
    proxy.hold(false);
    late.into_iter().for_each(|late| late.join().expect("it was refused"));
    assert_eq!(of_a.lost.recv_timeout(LONG), Ok((node, P)));
    assert_eq!(rig::read(&b, node), Ok(b"b".to_vec()));
    comes_to(&a, node);
}

/// One that could not be told keeps its lock as long as its session.
#[test]
fn a_machine_of_the_version_before_keeps_its_lock() {
    let rig = Rig::new();
    let (_proxy, _a, b, node) = steady(&rig);
    let (_raw, _) = silent(&rig, 7, node);
    let waits = Machine::of(&b).wait(F, node, Exclusive);
    rig.env.sleep(SILENT + Duration::from_secs(2));
    waits.still_waits();
}

/// The server has given a lock to another machine, and crashes before the one that had it is back.
/// That one is the first that tells the next process of its locks.
#[test]
fn a_lock_that_was_given_to_another_is_not_taken_back_after_a_crash() {
    let mut rig = Rig::new();
    let (proxy, a, b, node) = steady(&rig);
    let of_a = Machine::of(&a);
    of_a.lock(P, node, Exclusive).expect("locked");
    proxy.hold(true);
    Machine::of(&b).wait(P, node, Exclusive).is_answered().expect("it has it");
    b.close();
    rig.crash(|| proxy.hold(false));
    assert_eq!(of_a.lost.recv_timeout(LONG), Ok((node, P)));
    assert_eq!(counts(&rig).into_iter().sum::<u64>(), 0);
}
