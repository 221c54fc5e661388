//! One connection at the server: who it is, and what it asks.

use super::admit;
use super::in_order::Coming;
use super::lasting::Job;
use super::line::Line;
use super::session::{Begun, Host, Session};
use super::{ENROLMENTS_MAX, Shared};
use crate::keys::PublicKey;
use crate::message::{
    Call, Caller, FRAME_BYTES_MAX, HELLO_BYTES_MAX, Hello, OLDEST, Refusal, SessionId, Standing, ToClient,
    ToServer, VERSION, frame, message,
};
use crate::pipe::{Inbox, Pipe, Received};
use leeward_env::{CallNumber, Ctx, Nanos, Told, Wait};
use leeward_fs::leases::{self, Keepalive};
use leeward_fs::{Error, Op, Reply, Result, sessions};
use leeward_vfs::{Attempt, Outcome, OwnedOp};
use mio::net::TcpStream;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a connection is read before it is the others' turn.
const RECEIVES_AT_ONCE: usize = 64;
/// Bytes that the answers to calls at work may have, above which no more calls are taken.
const PROMISED_BYTES_MAX: usize = 128 << 20;

/// A connection, for all threads.
pub(super) struct Connection {
    pub(super) token: usize,
    pub(super) line: Arc<Line>,
    phase: Mutex<Phase>,
}

/// How far a client is.
#[derive(Clone)]
enum Phase {
    /// It has not said who it is.
    Stranger,
    /// It enrols, or its session is being stored.
    Waiting,
    /// It is let in.
    In(Arc<Session>),
    /// It is told to go.
    Out,
}

impl Phase {
    /// Whether the answers to calls at work may fill the memory.
    fn promises_too_much(&self) -> bool {
        matches!(self, Phase::In(session) if session.promised() > PROMISED_BYTES_MAX)
    }
}

impl Connection {
    pub(super) fn new(
        token: usize,
        socket: TcpStream,
        peer: SocketAddr,
        tls: rustls::Connection,
        now: Nanos,
    ) -> Connection {
        let phase = Mutex::new(Phase::Stranger);
        Connection { token, line: Arc::new(Line::new(Pipe::new(socket, peer, tls), now)), phase }
    }

    pub(super) fn is_stranger(&self) -> bool {
        !matches!(*self.phase.lock(), Phase::In(_))
    }

    /// The socket, as long as no other thread has the connection.
    pub(super) fn socket_mut(&mut self) -> Option<&mut TcpStream> {
        Arc::get_mut(&mut self.line).map(|line| line.pipe.socket_mut())
    }

    /// Something came, or was taken. A stranger gets no more time for a byte now and then.
    pub(super) fn heard_at(&self, now: Nanos) {
        if !self.is_stranger() {
            self.line.heard_at(now);
        }
    }

    /// It is over. The session that has none now.
    pub(super) fn gone(self: &Arc<Self>, now: Nanos) -> Option<Arc<Session>> {
        self.line.pipe.close();
        match std::mem::replace(&mut *self.phase.lock(), Phase::Out) {
            Phase::In(session) if session.lost(&self.line, now) => Some(session),
            _ => None,
        }
    }

    /// Lets its client in. False: the client has hung up, or the session has ended.
    pub(super) fn let_in(self: &Arc<Self>, session: &Arc<Session>, welcome: &[u8], now: Nanos) -> bool {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Out) {
            return false;
        }
        self.line.heard_at(now);
        // before any answer: those go to this connection as soon as the session has it
        self.line.pipe.send(welcome);
        let is_in = session.connected(&self.line);
        if is_in {
            *phase = Phase::In(session.clone());
        }
        is_in
    }

    /// What came makes no sense.
    fn is_wrong(&self, text: &str) -> Then {
        self.refuse(Refusal::Malformed, text);
        Then::End
    }

    /// Goes on, unless what came makes no sense.
    fn goes_on(&self, heard: std::result::Result<(), &str>) -> Then {
        match heard {
            Ok(()) => Then::GoOn,
            Err(why) => self.is_wrong(why),
        }
    }

    pub(super) fn refuse(&self, why: Refusal, text: &str) {
        tracing::info!("{} is not let in: {text}", self.line.pipe.peer());
        self.line.pipe.send(&frame(&ToClient::Refused(why, text.into())));
        self.line.pipe.close();
    }
}

/// A connection, for the thread that reads it.
pub(super) struct Conversation {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    inbox: Inbox,
    /// There are frames in the inbox that wait for the client to read its answers.
    held_back: bool,
}

/// Whether more may come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    /// Not before the client has read what it was answered.
    HoldBack,
    /// Not before this server may answer again.
    AwaitTerm,
    End,
}

/// When to go on with a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// When something comes.
    Event,
    /// After the others: there is more.
    Soon,
    /// In a moment: the client does not read its answers.
    Later,
    /// When this server may answer again.
    InTerm,
    /// It is over.
    End,
}

impl Conversation {
    pub(super) fn new(shared: &Arc<Shared>, connection: &Arc<Connection>) -> Conversation {
        Conversation {
            shared: shared.clone(),
            connection: connection.clone(),
            inbox: Inbox::default(),
            held_back: false,
        }
    }

    /// Reads and runs what has come, so long as others need not wait for it.
    pub(super) fn go_on(&mut self) -> Next {
        for _ in 0..RECEIVES_AT_ONCE {
            if !self.held_back {
                match self.connection.line.pipe.receive(&mut self.inbox) {
                    Ok(Received::Some) => self.connection.heard_at(self.shared.env.awake()),
                    Ok(Received::Nothing) => return Next::Event,
                    Err(_) => return Next::End,
                }
            }
            self.connection.line.pipe.cork();
            let then = self.run_frames();
            self.connection.line.pipe.uncork();
            self.held_back = matches!(then, Then::HoldBack | Then::AwaitTerm);
            match then {
                Then::GoOn => (),
                Then::HoldBack => return Next::Later,
                Then::AwaitTerm => return Next::InTerm,
                Then::End => return Next::End,
            }
        }
        Next::Soon
    }

    fn run_frames(&mut self) -> Then {
        loop {
            // each time anew, after what is to be answered was received
            if !self.shared.term.holds(self.shared.env.now()) {
                return if self.shared.term.is_over() { Then::End } else { Then::AwaitTerm };
            }
            let phase = self.connection.phase.lock().clone();
            let is_full =
                matches!(&phase, Phase::In(session) if self.shared.recovery.is_full(session.id.number));
            if self.connection.line.pipe.is_clogged() || phase.promises_too_much() || is_full {
                return Then::HoldBack;
            }
            let longest = if matches!(phase, Phase::In(_)) { FRAME_BYTES_MAX } else { HELLO_BYTES_MAX };
            let frame = match self.inbox.next(longest) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Then::GoOn,
                Err(_) => {
                    self.connection.refuse(Refusal::Malformed, "a message is too long");
                    return Then::End;
                }
            };
            let then = match (phase, message::<ToServer<'_>>(frame)) {
                (Phase::Stranger, Ok(ToServer::Hello(hello))) => hear(&self.shared, &self.connection, &hello),
                (Phase::In(session), Ok(said)) => hear_in((&self.shared, &self.connection), &session, said),
                (_, Ok(_)) => self.connection.is_wrong("a message came out of order"),
                (_, Err(e)) => self.connection.is_wrong(&e.to_string()),
            };
            if then != Then::GoOn {
                return then;
            }
        }
    }
}

/// A client that is let in says something.
fn hear_in(of: (&Arc<Shared>, &Arc<Connection>), session: &Arc<Session>, said: ToServer<'_>) -> Then {
    let (shared, connection) = of;
    match said {
        // nothing comes after it, by whichever connection
        ToServer::Bye => {
            shared.forget_session(session);
            shared.leases.leave(session.id.number);
            Then::End
        }
        said => session.hear(&connection.line, || act_upon(of, session, said)).unwrap_or(Then::End),
    }
}

/// Does what the client of a session says.
fn act_upon(
    (shared, connection): (&Arc<Shared>, &Arc<Connection>),
    session: &Arc<Session>,
    said: ToServer<'_>,
) -> Then {
    let recovery = &shared.recovery;
    match said {
        ToServer::Call(slot, Call::InOrder(caller, Some(behind), op)) if recovery.is_parking(session) => {
            let coming = Coming { slot, caller, behind: Some(behind), op };
            connection.goes_on(recovery.park(session, &coming))
        }
        // of a session that is not waited for: it is sent again when calls are taken
        ToServer::Call(_, Call::InOrder(_, Some(_), _)) if !recovery.is_over() => Then::GoOn,
        ToServer::Call(..) if !recovery.is_over() => {
            connection.is_wrong("a call came before the server was ready")
        }
        ToServer::Call(slot, call) => call_in(shared, connection, session, (slot, call)),
        ToServer::Ping { number, term } => {
            let (is_busy, times) = (session.lines.are_busy(), session.times_expelled());
            let taken = match shared.leases.keepalive(session.id.number, term, is_busy) {
                Keepalive::Renewed => {
                    if session.is_expelled() && session.heeds_all() {
                        let _ = shared.lasting.send(Job::Knows(session.clone(), times));
                    }
                    Some(None)
                }
                Keepalive::Taken(term) => Some(Some(term)),
                Keepalive::Silence => None,
            };
            if let Some(taken) = taken {
                let wall = shared.env.wall();
                connection.line.pipe.send(&frame(&ToClient::Pong { number, taken, wall }));
            }
            Then::GoOn
        }
        ToServer::Recalled(number) => {
            shared.leases.recalled(session.id.number, number);
            Then::GoOn
        }
        ToServer::Share(nodes) => {
            shared.leases.share(session.id.number, &nodes);
            Then::GoOn
        }
        ToServer::Again(caller, told, op) => connection.goes_on(recovery.hear(session, (caller, told, &op))),
        ToServer::Unanswered(slot, caller, op) => match session.done_before(slot) {
            Some(told) => connection.goes_on(recovery.hear_unanswered(session, (caller, told, &op))),
            None => Then::GoOn,
        },
        ToServer::CaughtUp => {
            recovery.caught_up(session.id.number);
            Then::GoOn
        }
        ToServer::HeedsLocks => {
            session.heeds_lost_locks();
            Then::GoOn
        }
        ToServer::Bye | ToServer::Hello(_) => connection.is_wrong("a message came out of order"),
    }
}

/// A client says who it is.
fn hear(shared: &Arc<Shared>, connection: &Arc<Connection>, hello: &Hello) -> Then {
    let Some(version) = hello.common_version() else {
        let text = format!(
            "this server speaks versions {OLDEST} to {VERSION} of the protocol, the client {} to {}: install \
             the same version of lee on both machines",
            hello.oldest, hello.newest
        );
        connection.refuse(Refusal::Version, &text);
        return Then::End;
    };
    connection.line.speaks(version);
    let Some(key) = connection.line.pipe.peer_key() else {
        connection.refuse(Refusal::UnknownHost, "the client has shown no key");
        return Then::End;
    };
    match (shared.hosts.host_of(&key), hello.invitation) {
        (_, Some(secret)) => enrol(shared, connection, (key, secret), hello),
        (Some((name, grant)), None) => {
            let host = Host { name, grant };
            welcome(shared, connection, Letting { key, host, wanted: hello.session })
        }
        (None, None) => {
            connection.refuse(Refusal::UnknownHost, UNKNOWN);
            Then::End
        }
    }
}

const UNKNOWN: &str = "the server does not know this host's key: ask its operator for a token (lee host add, or \
    lee host invite), and mount with --token";

/// Enrols a host on a thread of its own, as that waits for the disk.
fn enrol(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    (key, secret): (PublicKey, [u8; 16]),
    hello: &Hello,
) -> Then {
    if shared.enrolling.fetch_add(1, Ordering::AcqRel) >= ENROLMENTS_MAX {
        shared.enrolling.fetch_sub(1, Ordering::AcqRel);
        connection.refuse(Refusal::Busy, "too many hosts enrol at the same time: try again");
        return Then::End;
    }
    *connection.phase.lock() = Phase::Waiting;
    let (of, to, wanted) = (shared.clone(), connection.clone(), hello.session);
    let spawned = shared.env.try_spawn("serve-enrol", move || {
        let enrolled = of.hosts.enrol(&secret, key);
        of.enrolling.fetch_sub(1, Ordering::AcqRel);
        match (of.hosts.host_of(&key), enrolled) {
            (Some((name, grant)), _) => {
                _ = welcome(&of, &to, Letting { key, host: Host { name, grant }, wanted });
            }
            (None, Err(why)) => to.refuse(Refusal::UnknownHost, &why),
            (None, Ok(())) => to.refuse(Refusal::UnknownHost, UNKNOWN),
        }
    });
    if spawned.is_err() {
        shared.enrolling.fetch_sub(1, Ordering::AcqRel);
        connection.refuse(Refusal::Busy, "the server has no thread to spare: try again");
        return Then::End;
    }
    Then::GoOn
}

/// A client that is to be let in.
pub(super) struct Letting {
    pub(super) key: PublicKey,
    pub(super) host: Host,
    /// The session that it names.
    pub(super) wanted: Option<SessionId>,
}

/// Lets a client in: at once if its session goes on, else when that is durable.
fn welcome(shared: &Arc<Shared>, connection: &Arc<Connection>, of: Letting) -> Then {
    match shared.going_on(&of) {
        Some(session) => connection.welcome(shared, &session, Standing::Resumed),
        None => {
            *connection.phase.lock() = Phase::Waiting;
            let _ = shared.lasting.send(Job::LetIn(connection.clone(), of));
        }
    }
    Then::GoOn
}

/// Runs a call, unless it was run before.
fn call_in(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    session: &Arc<Session>,
    (slot, call): (crate::message::Slot, Call<'_>),
) -> Then {
    match session.begin(slot) {
        Begun::Run => (),
        Begun::RunAgain(nodes) => {
            let given: Vec<_> = nodes.iter().map(|node| (*node, 1)).collect();
            // it may have copies of these, and gets the references again
            let (held, _) = session.give_back(&given);
            shared.gate.forget_all(super::session::system(), &held);
        }
        Begun::Running => return Then::GoOn,
        Begun::Done(told) => {
            answer_again(shared, session, (slot, &call), told);
            return Then::GoOn;
        }
        Begun::Answered(frame) => {
            connection.line.pipe.send(&frame);
            return Then::GoOn;
        }
        Begun::Over => return Then::End,
        Begun::Wrong(text) => {
            end_wrong((shared, connection), session, &text);
            return Then::End;
        }
    }
    if shared.has_ended() {
        // the client is told how the cell was closed, and sends it again to the next server
        session.undo(slot);
        return Then::GoOn;
    }
    let answer = Session::answer(session, shared, slot, super::admit::answer_bytes(&call));
    if is_about_files(&call) && session.host().grant.mirror {
        answer.give(None, Err(Error::NotPermitted));
        return Then::GoOn;
    }
    match call {
        Call::Forget(all) => {
            give_back(shared, session, &all);
            answer.give(None, Ok(Reply::Done));
        }
        Call::Lock(caller, call) => super::locks::run(shared, session, (&caller, call), answer),
        Call::Command(caller, command) => {
            super::commands::hear(shared, session, (&caller, command), answer);
        }
        Call::Refer { nodes, last } => {
            let referred = shared.refer(session, (&nodes, last));
            answer.give(None, referred.map(|()| Reply::Done));
        }
        Call::InOrder(caller, behind, op) => {
            super::in_order::hear(shared, session, Coming { slot, caller, behind, op }, answer);
        }
        Call::Died(id) => {
            shared.has_died(session, id);
            answer.give(None, Ok(Reply::Done));
        }
        Call::Numbers { volume } => answer.give(None, shared.reserve_numbers(session, volume)),
        Call::Access(call) => answer.give(None, super::access::tell(shared, session, call)),
        Call::Login { uid, token } => super::logins::hear(shared, session, (uid, token), answer),
        Call::Op(caller, op) if session.logins.is_judged(caller.uid) => {
            park_op(shared, session, (slot, caller, op), answer);
        }
        Call::Op(caller, op) => run_op(shared, session, (slot, caller, op), answer),
    }
    Then::GoOn
}

/// Whether a call is about files, with which a host has nothing to do that only sends to copies.
fn is_about_files(call: &Call<'_>) -> bool {
    !matches!(call, Call::Command(..) | Call::Forget(_) | Call::Refer { .. } | Call::Died(_))
}

/// A call does not follow the last one in its slot. The session ends: else its client would send
/// the same again for ever.
fn end_wrong((shared, connection): (&Arc<Shared>, &Arc<Connection>), session: &Arc<Session>, text: &str) {
    tracing::error!("{}: {text}: its session ends", session.host().name);
    shared.strike_session(session);
    connection.refuse(Refusal::Malformed, text);
    shared.may_have_lost(session, "its session could not go on");
    shared.forget_session(session);
}

/// Runs an operation when the token is judged that its user has shown.
fn park_op(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    (slot, caller, op): (crate::message::Slot, Caller, Op<'_>),
    answer: super::session::Answer,
) {
    let (of, to, uid, op) = (shared.clone(), session.clone(), caller.uid, OwnedOp::from(op));
    let parked = Box::new(move |has_ended: bool| match has_ended {
        // it is sent again to the next server
        true => answer.give(None, Err(Error::Io("the server ends".into()))),
        false => run_op(&of, &to, (slot, caller, op.as_op()), answer),
    });
    if let Some(judged_by_now) = session.logins.park(uid, parked) {
        judged_by_now(shared.has_ended());
    }
}

/// Runs an operation.
fn run_op(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    (slot, caller, op): (crate::message::Slot, Caller, Op<'_>),
    answer: super::session::Answer,
) {
    let Some(at_work) = session.begins(&op) else { return answer.undo() };
    let (ctx, is_restricted) = match session.admit(&caller, &op) {
        Ok(admitted) => admitted,
        Err(e) => return answer.give(None, Err(e)),
    };
    let call = CallNumber { slot: slot.place, number: slot.number };
    let ctx = Ctx { call: Some(call), ..ctx };
    let like = super::session::Like::of(&ctx, &op);
    let counted = session.counted(&op);
    let hides_copies = session.host().grant.hides_copies(&op);
    let done = move |result: Result<Reply>| {
        let _at_work = at_work;
        let result = if hides_copies { admit::without_copies(result) } else { result };
        counted.end(&result);
        answer.give(Some(like), result);
    };
    if is_restricted {
        super::rights::run(&shared.gate, session, ctx, op, done);
    } else {
        shared.gate.run(ctx, op, done);
    }
}

/// Answers a call that a process before has done. Where that waits, for another client to give up a
/// lease, it does not do so here.
fn answer_again(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    (slot, call): (crate::message::Slot, &Call<'_>),
    told: Told,
) {
    let answer = Session::answer(session, shared, slot, 0);
    let (Call::Op(caller, op) | Call::InOrder(caller, _, op)) = call else {
        return answer.give(None, Err(Error::Invalid));
    };
    match session.admit(caller, op) {
        Err(e) => answer.give(None, Err(e)),
        Ok((ctx, _)) => {
            // at once where it can be: what it refers to is held only until all clients are back
            forget_notes();
            let never = Ctx { wait: Wait::Never, ..ctx };
            let result = shared.store.answer_again(&never, op, told);
            if result != Err(Error::WouldBlock) {
                return answer.give(Some(super::session::Like::of(&never, op)), result);
            }
            let (of, op) = (shared.clone(), OwnedOp::from(*op));
            shared.gate.run_all(ctx, (op.shape(), 0), (op, answer), move |ctx, (op, answer)| {
                forget_notes();
                let result = of.store.answer_again(ctx, &op.as_op(), told);
                if ctx.wait == Wait::Never && result == Err(Error::WouldBlock) {
                    forget_notes();
                    return Attempt::Wait((op, answer));
                }
                let outcome = Outcome::of(&op.shape(), &result);
                answer.give(Some(super::session::Like::of(ctx, &op.as_op())), result);
                Attempt::Done(outcome)
            });
        }
    }
}

/// Forgets what an operation has noted for its answer, which is of the thread that runs it.
fn forget_notes() {
    leases::take_granted();
    sessions::take_told();
    sessions::take_announced();
}

/// Returns references that a session holds.
fn give_back(shared: &Shared, session: &Session, all: &[(leeward_fs::NodeId, u64)]) {
    let (held, left) = session.give_back(all);
    if !left.is_empty() {
        shared.leases.release(session.id.number, left.into_iter());
    }
    if !held.is_empty() {
        shared.gate.forget_all(super::session::system(), &held);
    }
}
