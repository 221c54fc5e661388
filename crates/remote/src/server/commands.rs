//! Commands that users of hosts give. Each runs on a thread of its own, `serve-command`, and its
//! answer waits here until the client has fetched it, piece by piece. What a user may ask,
//! [`Hosts::command`] decides.
//!
//! The answers of all commands together are bounded: by the length of one, and by how many there
//! are. One that nobody fetches is dropped.
//!
//! [`Hosts::command`]: super::Hosts::command

use super::Shared;
use super::admit::Grant;
use super::session::{Answer, Session};
use crate::message::{Caller, Command};
use crate::on_drop::OnDrop;
use leeward_env::{Ctx, Env, Nanos, Wait};
use leeward_fs::{Error, Reply, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Commands at the same time: of all hosts, and of one.
const COMMANDS_MAX: usize = 64;
const COMMANDS_OF_HOST_MAX: usize = 8;
/// Longest command. The longest request has two paths.
const COMMAND_BYTES_MAX: usize = 64 << 10;
/// Longest answer, and the part of it that is sent at a time.
const ANSWER_BYTES_MAX: usize = 8 << 20;
const PIECE_BYTES: usize = 64 << 10;
/// Bytes given to a command that it has not read: above the first more are answered late, above the
/// second refused.
const GIVEN_BYTES: usize = 4 << 20;
const GIVEN_BYTES_MAX: usize = 2 * GIVEN_BYTES;
/// How long an answer is kept for a client that does not fetch it.
const UNHEARD_TIME: Nanos = 60_000_000_000;

/// The user who gives a command.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The host.
    pub host: String,
    /// What it may do.
    pub grant: Grant,
    /// The user of the cell that the host's user is.
    pub ctx: Ctx,
}

/// The commands of all sessions.
pub(super) struct Commands(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u64,
    ended: bool,
    all: BTreeMap<u64, Running>,
}

struct Running {
    session: u64,
    host: String,
    /// What was not fetched yet.
    text: Vec<u8>,
    is_done: bool,
    /// The client waits for more.
    waiting: Option<Answer>,
    /// When the client asked last.
    heard: Nanos,
    given: Arc<Given>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.given.end();
    }
}

/// What a client gives a command to read, piece by piece.
#[derive(Default)]
pub struct Given {
    state: Mutex<GivenState>,
    changed: Condvar,
}

#[derive(Default)]
struct GivenState {
    /// By how many bytes come before them: those of several calls may come in any order.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Of those.
    bytes: usize,
    /// Bytes that were read.
    read: u64,
    /// The client gives no more, or nobody reads.
    ended: bool,
    /// Are answered when there is room.
    waiting: Vec<Answer>,
}

impl Given {
    /// The next piece; `None`: that was all.
    ///
    /// # Errors
    /// The client has gone away, or does not want the command to go on.
    pub fn next(&self) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.state.lock();
        loop {
            let at = state.read;
            if let Some(piece) = state.pieces.remove(&at) {
                state.read += piece.len() as u64;
                state.bytes -= piece.len();
                let has_room = state.bytes < GIVEN_BYTES;
                let waiting = if has_room { std::mem::take(&mut state.waiting) } else { Vec::new() };
                drop(state);
                waiting.into_iter().for_each(|answer| answer.give(None, Ok(Reply::Done)));
                return Ok(Some(piece).filter(|piece| !piece.is_empty()));
            }
            if state.ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.changed.wait(&mut state);
        }
    }

    /// Nothing more is given, or read.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_all();
        waiting.into_iter().for_each(|answer| answer.give(None, Err(Error::Stale)));
    }

    fn put(&self, at: u64, bytes: &[u8], answer: Answer) {
        let mut state = self.state.lock();
        let is_next = at == state.read;
        if state.ended {
            drop(state);
            return answer.give(None, Err(Error::Stale));
        }
        if at < state.read || (!is_next && state.bytes + bytes.len() > GIVEN_BYTES_MAX) {
            drop(state);
            return answer.give(None, Err(Error::Invalid));
        }
        if let Some(before) = state.pieces.insert(at, bytes.into()) {
            state.bytes -= before.len();
        }
        state.bytes += bytes.len();
        if state.bytes < GIVEN_BYTES {
            drop(state);
            answer.give(None, Ok(Reply::Done));
        } else {
            state.waiting.push(answer);
            drop(state);
        }
        self.changed.notify_all();
    }
}

impl Running {
    /// What is sent to a client that asks for more; `None`: it has to wait.
    fn piece(&mut self) -> Option<Vec<u8>> {
        if self.text.is_empty() && !self.is_done {
            return None;
        }
        let rest = self.text.split_off(self.text.len().min(PIECE_BYTES));
        Some(std::mem::replace(&mut self.text, rest))
    }
}

/// An answer, and what it says. Given without the lock.
type Telling = Option<(Answer, Vec<u8>)>;

fn give(given: Telling) {
    if let Some((answer, piece)) = given {
        answer.give(None, Ok(Reply::Data(piece)));
    }
}

/// Hears what a client asks about commands.
pub(super) fn hear(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    (caller, command): (&Caller, Command<'_>),
    answer: Answer,
) {
    match command {
        Command::Begin(text) => answer.give(None, begin(shared, session, caller, text)),
        Command::Give { number, at, bytes } => {
            match shared.commands.given(session, number, shared.env.awake()) {
                Some(given) => given.put(at, bytes, answer),
                None => answer.give(None, Err(Error::Stale)),
            }
        }
        Command::More(number) => shared.commands.more(session, number, answer, shared.env.awake()),
        Command::End(number) => {
            shared.commands.end(session, number);
            answer.give(None, Ok(Reply::Done));
        }
    }
}

fn begin(shared: &Arc<Shared>, session: &Session, caller: &Caller, text: &[u8]) -> Result<Reply> {
    if text.len() > COMMAND_BYTES_MAX {
        return Err(Error::Invalid);
    }
    let host = session.host();
    if session.logins.is_judged(caller.uid) {
        return Err(Error::Busy);
    }
    let ctx = session.user(&host.grant, caller)?.with_wait(Wait::Allowed);
    let asker = Asker { host: host.name.clone(), grant: host.grant.clone(), ctx: Ctx { refs: false, ..ctx } };
    let (number, given) = shared.commands.add(session, &asker.host, shared.env.awake())?;
    let (of, text) = (shared.clone(), text.to_vec());
    let spawned = shared.env.try_spawn("serve-command", move || {
        let _done = OnDrop::new(|| {
            given.end();
            of.commands.done(number);
        });
        of.hosts.command(&asker, &text, &given, &mut |piece| of.commands.tell(number, piece));
    });
    if spawned.is_err() {
        shared.commands.end(session, number);
        return Err(Error::Busy);
    }
    Ok(Reply::Data(number.to_le_bytes().to_vec()))
}

impl Commands {
    /// Those of this process. Numbers begin anywhere: a session may outlive the process, and the
    /// numbers that one before has given it must not be those of other users' commands.
    pub(super) fn new(env: &Env) -> Commands {
        let last = u64::from_le_bytes(env.secret()) >> 1;
        Commands(Mutex::new(Table { last, ..Table::default() }))
    }

    fn add(&self, session: &Session, host: &str, now: Nanos) -> Result<(u64, Arc<Given>)> {
        let mut table = self.0.lock();
        let of_host = table.all.values().filter(|running| running.host == host).count();
        if table.ended || table.all.len() >= COMMANDS_MAX || of_host >= COMMANDS_OF_HOST_MAX {
            return Err(Error::Busy);
        }
        table.last += 1;
        let number = table.last;
        let running = Running {
            session: session.id.number,
            host: host.to_owned(),
            text: Vec::new(),
            is_done: false,
            waiting: None,
            heard: now,
            given: Arc::default(),
        };
        let given = running.given.clone();
        table.all.insert(number, running);
        Ok((number, given))
    }

    /// Where a client puts what it gives a command.
    fn given(&self, session: &Session, number: u64, now: Nanos) -> Option<Arc<Given>> {
        let mut table = self.0.lock();
        let running = table.all.get_mut(&number).filter(|running| running.session == session.id.number)?;
        running.heard = now;
        Some(running.given.clone())
    }

    /// Ends what a client that is gone has given.
    pub(super) fn end_of_session(&self, session: u64) {
        let mut table = self.0.lock();
        let (gone, rest) =
            std::mem::take(&mut table.all).into_iter().partition(|(_, r)| r.session == session);
        table.all = rest;
        drop(table);
        let gone: BTreeMap<u64, Running> = gone;
        drop(gone);
    }

    /// The client asks for more.
    fn more(&self, session: &Session, number: u64, answer: Answer, now: Nanos) {
        let mut table = self.0.lock();
        let found = table.all.get_mut(&number).filter(|running| running.session == session.id.number);
        let Some(running) = found else {
            drop(table);
            return answer.give(None, Err(Error::Stale));
        };
        running.heard = now;
        let Some(piece) = running.piece() else {
            let before = running.waiting.replace(answer);
            drop(table);
            return give(before.map(|before| (before, Vec::new())));
        };
        if piece.is_empty() {
            table.all.remove(&number);
        }
        drop(table);
        answer.give(None, Ok(Reply::Data(piece)));
    }

    /// A command has more to say; false: nobody listens, or it has said too much.
    fn tell(&self, number: u64, piece: &[u8]) -> bool {
        let mut table = self.0.lock();
        let Some(running) = table.all.get_mut(&number) else { return false };
        if running.text.len() + piece.len() > ANSWER_BYTES_MAX {
            return false;
        }
        running.text.extend_from_slice(piece);
        let given = running.take_waiting();
        drop(table);
        give(given);
        true
    }

    /// A command has said all.
    fn done(&self, number: u64) {
        let mut table = self.0.lock();
        let Some(running) = table.all.get_mut(&number) else { return };
        running.is_done = true;
        let given = running.take_waiting();
        if given.as_ref().is_some_and(|(_, piece)| piece.is_empty()) {
            table.all.remove(&number);
        }
        drop(table);
        give(given);
    }

    fn end(&self, session: &Session, number: u64) {
        let mut table = self.0.lock();
        let is_its_own = table.all.get(&number).is_some_and(|r| r.session == session.id.number);
        let mut removed = if is_its_own { table.all.remove(&number) } else { None };
        drop(table);
        give(removed.as_mut().and_then(|r| r.waiting.take()).map(|answer| (answer, Vec::new())));
    }

    /// Drops answers that nobody has fetched for long. Commands that a client waits for stay.
    pub(super) fn drop_unheard(&self, now: Nanos) {
        let is_wanted = |running: &Running| {
            running.waiting.is_some() || now.saturating_sub(running.heard) <= UNHEARD_TIME
        };
        let mut table = self.0.lock();
        let (wanted, unheard) = std::mem::take(&mut table.all).into_iter().partition(|(_, r)| is_wanted(r));
        table.all = wanted;
        drop(table);
        // what they were given ends without the lock
        let unheard: BTreeMap<u64, Running> = unheard;
        drop(unheard);
    }

    /// The server ends: so do all waits. Clients ask the next server, which knows none of these.
    pub(super) fn end_all(&self) {
        let mut table = self.0.lock();
        table.ended = true;
        let all = std::mem::take(&mut table.all);
        drop(table);
        for answer in all.into_values().filter_map(|mut running| running.waiting.take()) {
            answer.give(None, Err(Error::Io("the server ends".into())));
        }
    }
}

impl Running {
    fn take_waiting(&mut self) -> Telling {
        self.waiting.as_ref()?;
        let piece = self.piece()?;
        self.waiting.take().map(|answer| (answer, piece))
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Counts;
    use super::super::session::Host;
    use super::*;
    use crate::message::SessionId;

    #[test]
    fn numbers_of_a_process_before_are_of_no_command() {
        let env = Env::real();
        let (host, counts) =
            (Host { name: "host".into(), grant: Grant::default() }, Arc::new(Counts::new(&env, 0, "host")));
        let session = Session::new(SessionId { number: 1, secret: [0; 16] }, [0; 32], (host, counts), 0);
        let [before, now] = [(); 2].map(|()| Commands::new(&env));
        let (known, _) = before.add(&session, "host", 0).expect("one");
        let (other, _) = now.add(&session, "host", 0).expect("one");
        assert_ne!(known, other);
        now.end(&session, known);
        assert!(now.0.lock().all.contains_key(&other));
    }
}
