//! After a crash of the server before: its clients ask again for what they were told of, and
//! nothing else runs until all have done so, or were waited for long enough.
//!
//! The changes of all clients are done again in one order, that of their numbers: the lowest of
//! those at hand runs when each client that is waited for has sent its next, or has said that there
//! is none. So a client's changes are kept in memory a few at a time. A client that does not come
//! back within [`WAIT_TIME`] is closed: durably, before anything else runs, so that it does not
//! come after others have gone on without it.

use super::admit;
use super::in_order::Coming;
use super::session::Session;
use crate::message::{Behind, Caller, FRAME_BYTES_MAX, SLOTS_MAX, Slot, ToClient, frame};
use leeward_env::limits::BEHIND_BYTES_MAX;
use leeward_env::{Ctx, Env, Nanos, Told};
use leeward_fs::codec::{Input, Wire};
use leeward_fs::leases::TAKEN_AFTER;
use leeward_fs::sessions::{SessionRecord, Sessions};
use leeward_fs::{Error, NodeId, Op, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long a client is waited for, at first and after each thing that it has sent. Its leases have
/// run out then, too.
const WAIT_TIME: Nanos = TAKEN_AFTER;
/// How long all clients together may take, and then those that go on asking: one that never ends
/// must not keep the cell from all others.
const TIME_MAX: Nanos = 120_000_000_000;
const TIME_OF_BUSY_MAX: Nanos = 600_000_000_000;
/// Bytes of changes of one client at hand, above which no more are read from it.
const WAITING_BYTES_MAX: usize = 2 << 20;
/// Bytes of changes of one client that were not answered, at most.
const PARKED_BYTES_MAX: usize = 2 * BEHIND_BYTES_MAX as usize + FRAME_BYTES_MAX;
/// Bytes of calls of one client that were not answered: more than its kernel has under way.
const UNANSWERED_BYTES_MAX: usize = 256 << 20;
/// How often clients hear that the server is there.
const SAY_STEP: Nanos = 1_000_000_000;
/// How long clients may take to name the inodes that they have references to, and sessions that
/// were away to come back.
const REFER_TIME: Nanos = 120_000_000_000;
/// How often the clock is looked at.
const STEP: Duration = Duration::from_millis(50);

/// See the module's head.
pub(super) struct Recovery {
    env: Env,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Sessions of processes before that may still come back.
    known: BTreeMap<u64, SessionRecord>,
    /// Those that are waited for.
    awaited: BTreeMap<u64, Awaited>,
    /// Those that have not named all inodes that they have references to.
    referring: BTreeSet<u64>,
    over: bool,
    /// When nothing is kept any more for sessions that have not come back.
    kept_until: Nanos,
}

/// A session that is waited for.
struct Awaited {
    /// Until when.
    until: Nanos,
    /// Its client is there.
    session: Option<Arc<Session>>,
    waiting: VecDeque<Change>,
    /// Calls that were done and not answered, by number.
    unanswered: BTreeMap<u64, Change>,
    bytes: usize,
    /// Changes that its client has told its programs and that were not answered, in order.
    parked: Vec<Parked>,
    /// Bytes of these.
    parked_bytes: usize,
    /// The number of its last change.
    last: u64,
    caught_up: bool,
}

/// A change that was not answered: its session, its slot, who asked, what was told, the operation
/// as in messages.
pub(super) type Parked = (u64, Slot, Caller, Behind, Vec<u8>);

/// A change that is to be done again.
struct Change {
    caller: Caller,
    told: Told,
    /// The operation, as in messages.
    op: Vec<u8>,
}

impl Change {
    /// The inodes that it is about.
    fn nodes(&self) -> Vec<NodeId> {
        Op::take(&mut Input::new(&self.op)).map_or_else(|_| Vec::new(), |op| admit::nodes_of(&op))
    }

    /// Bytes that it brings.
    fn bytes(&self) -> u64 {
        Op::take(&mut Input::new(&self.op)).map_or(0, |op| op.moved_bytes())
    }
}

impl Awaited {
    fn new(until: Nanos) -> Awaited {
        let (waiting, unanswered) = Default::default();
        Awaited {
            until,
            session: None,
            waiting,
            unanswered,
            bytes: 0,
            parked: Vec::new(),
            parked_bytes: 0,
            last: 0,
            caught_up: false,
        }
    }

    /// The number of its next change.
    fn next(&self) -> Option<u64> {
        let asked = self.waiting.front().map(|change| change.told.lsn);
        let unanswered = self.unanswered.first_key_value().map(|(lsn, _)| *lsn);
        asked.into_iter().chain(unanswered).min()
    }

    /// Takes that change.
    fn take(&mut self) -> Option<Change> {
        let lsn = self.next()?;
        let change = match self.unanswered.remove(&lsn) {
            Some(change) => change,
            None => self.waiting.pop_front()?,
        };
        self.bytes -= change.op.len();
        Some(change)
    }

    /// Whether it is known what it asks for next, or that it asks for nothing.
    fn is_ready(&self) -> bool {
        self.caught_up || !self.waiting.is_empty()
    }
}

impl Recovery {
    pub(super) fn new(env: &Env, store: &dyn Sessions) -> Recovery {
        let known: BTreeMap<_, _> =
            store.sessions().into_iter().map(|record| (record.number, record)).collect();
        let until = env.awake() + WAIT_TIME;
        let awaited: BTreeMap<_, _> = known
            .values()
            .filter(|record| !record.away)
            .map(|record| (record.number, Awaited::new(until)))
            .collect();
        // also those that are not waited for: they come for the inodes that their programs have
        // open
        let referring = known.keys().copied().collect();
        let state = Mutex::new(State { known, awaited, referring, over: false, kept_until: Nanos::MAX });
        Recovery { env: env.clone(), state, changed: Condvar::new() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.lock().over
    }

    /// Takes the record of a session of a process before, whose client has come back.
    pub(super) fn claim(&self, is_it: impl Fn(&SessionRecord) -> bool) -> Option<SessionRecord> {
        let mut state = self.state.lock();
        let number = state.known.values().find(|record| is_it(record))?.number;
        state.known.remove(&number)
    }

    /// Puts the record back: its client may come again.
    pub(super) fn unclaim(&self, record: SessionRecord) {
        self.state.lock().known.insert(record.number, record);
    }

    /// The client of a session that is waited for is there, and begins. False: it is not waited
    /// for, or has caught up.
    pub(super) fn begins(&self, session: &Arc<Session>) -> bool {
        let mut state = self.state.lock();
        let until = self.env.awake() + WAIT_TIME;
        let awaited = state.awaited.get_mut(&session.id.number).filter(|awaited| !awaited.caught_up);
        match awaited {
            Some(awaited) => {
                *awaited = Awaited { session: Some(session.clone()), ..Awaited::new(until) };
                true
            }
            None => false,
        }
    }

    /// Whether a session has not caught up, and is waited for.
    pub(super) fn is_awaited(&self, number: u64) -> bool {
        self.state.lock().awaited.get(&number).is_some_and(|awaited| !awaited.caught_up)
    }

    /// Whether no more is to be read from a client now.
    pub(super) fn is_full(&self, number: u64) -> bool {
        let state = self.state.lock();
        let is_full = |awaited: &Awaited| awaited.is_ready() && awaited.bytes > WAITING_BYTES_MAX;
        state.awaited.get(&number).is_some_and(is_full)
    }

    /// A client asks for a change again.
    ///
    /// # Errors
    /// In words: it does not keep to the order.
    pub(super) fn hear(
        &self,
        session: &Session,
        (caller, told, op): (Caller, Told, &Op<'_>),
    ) -> std::result::Result<(), &'static str> {
        let mut state = self.state.lock();
        let now = self.env.awake();
        let Some(awaited) = state.awaited.get_mut(&session.id.number) else {
            drop(state);
            if !session.was_away() {
                return Err("nothing is to be asked for again");
            }
            // all that it was told is durable
            session.say_durable(told.lsn);
            return Ok(());
        };
        if awaited.caught_up || told.lsn <= awaited.last {
            return Err("changes are not asked for again in the order of their numbers");
        }
        let mut bytes = Vec::new();
        op.put(&mut bytes);
        awaited.last = told.lsn;
        awaited.until = now + WAIT_TIME;
        awaited.bytes += bytes.len();
        awaited.waiting.push_back(Change { caller, told, op: bytes });
        self.changed.notify_all();
        Ok(())
    }

    /// A client names a call that was done and not answered.
    ///
    /// # Errors
    /// In words: it comes out of order.
    pub(super) fn hear_unanswered(
        &self,
        session: &Session,
        (caller, told, op): (Caller, Told, &Op<'_>),
    ) -> std::result::Result<(), &'static str> {
        let mut state = self.state.lock();
        let now = self.env.awake();
        let Some(awaited) = state.awaited.get_mut(&session.id.number) else { return Ok(()) };
        awaited.until = now + WAIT_TIME;
        if awaited.last > 0 || awaited.caught_up {
            return Err("a call that was not answered comes after changes that are asked for again");
        }
        let mut bytes = Vec::new();
        op.put(&mut bytes);
        awaited.bytes += bytes.len();
        let before = awaited.unanswered.insert(told.lsn, Change { caller, told, op: bytes });
        awaited.bytes -= before.map_or(0, |change| change.op.len());
        if awaited.bytes > UNANSWERED_BYTES_MAX {
            return Err("more was not answered than a client may ask for");
        }
        Ok(())
    }

    /// Whether changes of a session that were not answered are kept until all told ones are done
    /// again.
    pub(super) fn is_parking(&self, session: &Session) -> bool {
        let state = self.state.lock();
        !state.over && state.awaited.get(&session.id.number).is_some_and(|awaited| !awaited.caught_up)
    }

    /// A client sends a change that was not answered, in order.
    ///
    /// # Errors
    /// In words: there are too many.
    pub(super) fn park(
        &self,
        session: &Session,
        coming: &Coming<'_>,
    ) -> std::result::Result<(), &'static str> {
        let mut state = self.state.lock();
        let now = self.env.awake();
        let Some(awaited) = state.awaited.get_mut(&session.id.number) else { return Ok(()) };
        let mut op = Vec::new();
        coming.op.put(&mut op);
        awaited.until = now + WAIT_TIME;
        awaited.parked_bytes += op.len() + size_of_val(&coming.caller.gids[..]);
        let is_much = awaited.parked_bytes > PARKED_BYTES_MAX || awaited.parked.len() > SLOTS_MAX.into();
        let Some(behind) = coming.behind.filter(|_| !is_much) else {
            return Err("too much was not answered");
        };
        awaited.parked.push((session.id.number, coming.slot, coming.caller.clone(), behind, op));
        Ok(())
    }

    /// Takes these changes of all clients.
    pub(super) fn take_parked(&self) -> Vec<Parked> {
        let mut state = self.state.lock();
        state.awaited.values_mut().flat_map(|awaited| std::mem::take(&mut awaited.parked)).collect()
    }

    /// A client has asked for all.
    pub(super) fn caught_up(&self, number: u64) {
        if let Some(awaited) = self.state.lock().awaited.get_mut(&number) {
            awaited.caught_up = true;
        }
        self.changed.notify_all();
    }

    /// A session has named all inodes that it has references to, or is over. Whether no other is
    /// left that has not.
    pub(super) fn has_referred(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        state.referring.remove(&number) && state.referring.is_empty()
    }

    /// A session is over.
    pub(super) fn ended(&self, number: u64) {
        let mut state = self.state.lock();
        state.awaited.remove(&number);
        state.known.remove(&number);
        drop(state);
        self.changed.notify_all();
    }

    /// Does all changes again, and returns when nothing more is waited for: then
    /// [`Recovery::finish`] is to be called. `close` is told of each session that is closed, before
    /// anything goes on without it; returns all of these. `lost` is told of each change that cannot
    /// be done again: of whom, about what, and why.
    ///
    /// # Errors
    /// When what was done cannot be made durable.
    pub(super) fn run(
        &self,
        store: &dyn Sessions,
        has_ended: impl Fn() -> bool,
        close: impl Fn(u64),
        lost: impl Fn(&Session, (u32, &[NodeId]), &Error),
    ) -> Result<Vec<u64>> {
        let mut closed = Vec::new();
        let mut state = self.state.lock();
        let (begun, expected) = (self.env.awake(), state.awaited.len());
        let (mut done, mut said_at) = (0u64, begun);
        loop {
            if has_ended() {
                return Err(Error::Io("the server was ended before its clients had caught up".into()));
            }
            if self.env.awake().saturating_sub(said_at) > SAY_STEP {
                said_at = self.env.awake();
                state.say_something(said_at);
            }
            let over = state.give_up(begun, self.env.awake());
            if !over.is_empty() {
                drop(state);
                // before anything builds on that they do not come
                over.iter().try_for_each(|number| store.end_session(*number))?;
                store.commit()?;
                over.iter().for_each(|number| close(*number));
                closed.extend(over);
                state = self.state.lock();
                continue;
            }
            let are_ready = state.awaited.values().all(Awaited::is_ready);
            match state.next(self.env.awake()) {
                Some((session, change)) => {
                    drop(state);
                    let result = run(store, &session, &change);
                    if let Err(e) = &result {
                        session.not_done(change.told.lsn);
                        lost(&session, (change.caller.uid, &change.nodes()), e);
                    }
                    session.tell_again((&change.told, change.bytes()), result);
                    done += 1;
                    state = self.state.lock();
                }
                None if are_ready => break,
                None => drop(self.changed.wait_for(&mut state, STEP)),
            }
        }
        drop(state);
        store.go_on()?;
        if expected > 0 {
            let took = (self.env.awake() - begun) / 1_000_000;
            let back = expected - closed.len();
            tracing::info!(
                "{back} of {expected} machines are back after a crash, {done} changes of theirs looked at, in {took} ms"
            );
        }
        Ok(closed)
    }

    /// From now on clients may call.
    pub(super) fn finish(&self, closed: &[u64]) {
        let mut state = self.state.lock();
        for number in closed {
            state.known.remove(number);
            state.referring.remove(number);
        }
        state.awaited.clear();
        state.kept_until = self.env.awake() + REFER_TIME;
        state.over = true;
    }

    /// Whether a session has not named all inodes yet that it has references to.
    pub(super) fn is_referring(&self, number: u64) -> bool {
        self.state.lock().referring.contains(&number)
    }

    /// When time is over: sessions that have not come back, and whether some had not named their
    /// inodes.
    pub(super) fn take_late(&self) -> Option<(Vec<u64>, bool)> {
        let mut state = self.state.lock();
        if self.env.awake() < state.kept_until {
            return None;
        }
        state.kept_until = Nanos::MAX;
        let late = std::mem::take(&mut state.known).into_keys().collect();
        Some((late, !std::mem::take(&mut state.referring).is_empty()))
    }

    /// Whether no client is left that may have references which it has not named.
    pub(super) fn are_all_named(&self) -> bool {
        self.state.lock().referring.is_empty()
    }
}

impl State {
    /// Clients that are not read from now, or not answered, are to know that the server is there,
    /// and it that they are.
    fn say_something(&self, now: Nanos) {
        for session in self.awaited.values().filter_map(|awaited| awaited.session.as_ref()) {
            if let Some(connection) = session.connection() {
                connection.pipe.send(&frame(&ToClient::Again { lsn: 0, result: Ok(()) }));
                connection.heard_at(now);
            }
        }
    }

    /// Stops waiting for those whose time is over. `begun`: when the waiting began.
    fn give_up(&mut self, begun: Nanos, now: Nanos) -> Vec<u64> {
        let took = now.saturating_sub(begun);
        let is_over = |awaited: &Awaited| {
            let is_silent = awaited.waiting.is_empty() && (now > awaited.until || took > TIME_MAX);
            !awaited.caught_up && (is_silent || took > TIME_OF_BUSY_MAX)
        };
        let over = self.awaited.iter().filter(|(_, awaited)| is_over(awaited));
        let over: Vec<u64> = over.map(|(number, _)| *number).collect();
        for number in &over {
            self.awaited.remove(number);
            self.known.remove(number);
        }
        over
    }

    /// Takes the change with the lowest number.
    fn next(&mut self, now: Nanos) -> Option<(Arc<Session>, Change)> {
        if !self.awaited.values().all(Awaited::is_ready) {
            return None;
        }
        let heads = self.awaited.values_mut().filter(|awaited| awaited.next().is_some());
        let awaited = heads.min_by_key(|awaited| awaited.next())?;
        awaited.until = now + WAIT_TIME;
        Some((awaited.session.clone()?, awaited.take()?))
    }
}

fn run(store: &dyn Sessions, session: &Session, change: &Change) -> Result<()> {
    let op = Op::take(&mut Input::new(&change.op)).map_err(|_| Error::Invalid)?;
    let caller = Caller { refs: false, ..change.caller.clone() };
    let (ctx, is_restricted) = session.admit_again(&caller, &op)?;
    if is_restricted {
        return Err(Error::NotPermitted);
    }
    let ctx = Ctx { wait: leeward_env::Wait::Allowed, ..ctx };
    store.do_again(&ctx, &op, change.told).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::SessionId;
    use crate::server::Grant;
    use crate::server::figures::Counts;
    use crate::server::session::Host;
    use leeward_env::Class;
    use leeward_fs::sessions::Outcome;

    const SECOND: Duration = Duration::from_secs(1);
    const OP: Op<'static> = Op::Write { node: NodeId::ROOT, offset: 0, data: b"" };

    /// One session; whether it is away.
    struct One(bool);

    impl Sessions for One {
        fn sessions(&self) -> Vec<SessionRecord> {
            vec![SessionRecord { number: 1, secret: [0; 16], key: [0; 32], away: self.0, expelled: false }]
        }
        fn store_session(&self, _: &SessionRecord) -> Result<()> {
            Ok(())
        }
        fn end_session(&self, _: u64) -> Result<()> {
            Ok(())
        }
        fn outcomes(&self, _: u64) -> Result<Vec<(u16, Outcome)>> {
            Ok(Vec::new())
        }
        fn do_again(&self, _: &Ctx, _: &Op<'_>, _: Told) -> Result<Option<leeward_fs::Reply>> {
            Ok(None)
        }
        fn answer_again(&self, _: &Ctx, _: &Op<'_>, _: Told) -> Result<leeward_fs::Reply> {
            Ok(leeward_fs::Reply::Done)
        }
        fn durable_up_to(&self) -> u64 {
            0
        }
        fn keep_all_inodes(&self, _: bool) {}
        fn refer(&self, _: &[NodeId]) {}
        fn go_on(&self) -> Result<()> {
            Ok(())
        }
        fn reserve_numbers(&self, _: u64, _: u32, _: u64) -> Result<NodeId> {
            Err(Error::NotPermitted)
        }
        fn sync(&self) -> Result<()> {
            Ok(())
        }
        fn commit(&self) -> Result<()> {
            Ok(())
        }
    }

    fn awaited() -> (Env, Recovery, Arc<Session>) {
        let env = Env::sim(1);
        let recovery = Recovery::new(&env, &One(false));
        let counts = Arc::new(Counts::new(&env, 0, "host"));
        let host = Host { name: "host".into(), grant: Grant::default() };
        let id = SessionId { number: 1, secret: [0; 16] };
        let session = Arc::new(Session::new(id, [0; 32], (host, counts), env.now()));
        assert!(recovery.begins(&session));
        (env, recovery, session)
    }

    fn caller() -> Caller {
        Caller { uid: 0, gid: 0, gids: Vec::new(), class: Class::Batch, refs: false }
    }

    fn told(lsn: u64) -> Told {
        Told { lsn, ..Told::default() }
    }

    #[test]
    fn a_client_that_is_still_sending_is_waited_for() {
        let (env, recovery, session) = awaited();
        let begun = env.now();
        for lsn in 1..10 {
            env.advance(4 * SECOND);
            assert!(recovery.state.lock().give_up(begun, env.now()).is_empty(), "after {lsn} calls");
            recovery.hear_unanswered(&session, (caller(), told(lsn), &OP)).expect("taken");
        }
        env.advance(7 * SECOND);
        assert_eq!(recovery.state.lock().give_up(begun, env.now()), [1]);
    }

    #[test]
    fn a_client_that_was_away_may_name_its_inodes_too() {
        let env = Env::sim(1);
        let recovery = Recovery::new(&env, &One(true));
        assert!(!recovery.is_awaited(1) && recovery.is_referring(1));
        let closed = recovery.run(&One(true), || false, drop, |_, _, _| ()).expect("nobody is waited for");
        recovery.finish(&closed);
        assert!(recovery.is_over() && !recovery.are_all_named());
        assert!(recovery.claim(|record| record.number == 1).is_some());
        assert!(recovery.has_referred(1) && recovery.are_all_named());
    }

    #[test]
    fn a_client_that_never_ends_asking_is_given_up() {
        let (env, recovery, session) = awaited();
        let begun = env.now();
        recovery.hear(&session, (caller(), told(1), &OP)).expect("taken");
        for lsn in 2..1000 {
            recovery.hear(&session, (caller(), told(lsn), &OP)).expect("taken");
            recovery.state.lock().next(env.now()).expect("it is next");
            env.advance(SECOND);
            if recovery.state.lock().give_up(begun, env.now()) == [1] {
                assert!(env.now() - begun > TIME_MAX, "after {lsn} seconds");
                return;
            }
        }
        panic!("it keeps the cell from all others");
    }
}
