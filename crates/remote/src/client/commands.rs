//! Commands of programs of this machine, which the server runs.

use super::{Client, slots};
use crate::message::{Call, Caller, Command, GROUPS_MAX};
use leeward_env::Class;
use leeward_fs::{Error, Reply, Result};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, sync_channel};

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All other groups.
    pub gids: Vec<u32>,
}

/// Why a command has no whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandLost {
    /// The host does not speak for this user.
    NotPermitted,
    /// The user has not logged in.
    NotLoggedIn,
    /// The server runs too many commands.
    Busy,
    /// The server was started anew meanwhile. The command may have been done.
    Restarted,
    /// There is no answer from the server; why.
    Silent(String),
}

impl From<Error> for CommandLost {
    fn from(e: Error) -> CommandLost {
        match e {
            Error::NotPermitted => CommandLost::NotPermitted,
            Error::Access => CommandLost::NotLoggedIn,
            Error::Busy => CommandLost::Busy,
            Error::Stale => CommandLost::Restarted,
            e => CommandLost::Silent(e.to_string()),
        }
    }
}

impl Client {
    /// Has the server run a command in the name of a user, and tells its answer in pieces until
    /// `tell` is false.
    ///
    /// # Errors
    /// [`CommandLost`]; the command may have been done.
    pub fn command(
        &self,
        user: &User,
        text: &[u8],
        tell: &mut dyn FnMut(&[u8]) -> bool,
    ) -> std::result::Result<(), CommandLost> {
        self.begin_command(user, text)?.hear(tell)
    }

    /// Has the server begin a command that may be given something to read.
    ///
    /// # Errors
    /// [`CommandLost`]; the command may have been begun.
    pub fn begin_command(&self, user: &User, text: &[u8]) -> std::result::Result<Begun, CommandLost> {
        let number = self.ask_of_command(user, Command::Begin(text))?;
        let number = u64::from_le_bytes(number.try_into().map_err(|_| Error::Corrupt("a number".into()))?);
        Ok(Begun { client: self.clone(), user: user.clone(), number })
    }

    fn ask_of_command(&self, user: &User, command: Command<'_>) -> Result<Vec<u8>> {
        let result = self.send_of_command(user, command).recv();
        match result.unwrap_or_else(|_| Err(Error::Io("the request was lost".into())))? {
            Reply::Data(data) => Ok(data),
            _ => Ok(Vec::new()),
        }
    }

    fn send_of_command(&self, user: &User, command: Command<'_>) -> Receiver<Result<Reply>> {
        let mut gids = user.gids.clone();
        gids.truncate(GROUPS_MAX);
        let caller = Caller { uid: user.uid, gid: user.gid, gids, class: Class::Interactive, refs: false };
        let (send, receive) = sync_channel(1);
        let answer: slots::Answer = Box::new(move |result| drop(send.send(result)));
        self.ask(Call::Command(caller, command), None, answer);
        receive
    }
}

/// A command that the server runs.
#[derive(Clone)]
pub struct Begun {
    client: Client,
    user: User,
    number: u64,
}

/// Longest piece that a command is given, bytes.
pub const PIECE_BYTES_MAX: usize = 512 << 10;
/// Pieces on their way.
const PIECES: usize = 4;

impl Begun {
    /// Tells the command's answer in pieces until `tell` is false.
    ///
    /// # Errors
    /// [`CommandLost`]; the command may have been done.
    pub fn hear(&self, tell: &mut dyn FnMut(&[u8]) -> bool) -> std::result::Result<(), CommandLost> {
        loop {
            let piece = self.client.ask_of_command(&self.user, Command::More(self.number))?;
            if piece.is_empty() {
                return Ok(());
            }
            if !tell(&piece) {
                return self.end();
            }
        }
    }

    /// Nobody waits for the command any more.
    ///
    /// # Errors
    /// [`CommandLost`].
    pub fn end(&self) -> std::result::Result<(), CommandLost> {
        self.client.ask_of_command(&self.user, Command::End(self.number))?;
        Ok(())
    }

    /// Gives the command what it reads: pieces of at most [`PIECE_BYTES_MAX`], until `next` has
    /// none, which the command takes for the end. Waits while it does not read.
    ///
    /// # Errors
    /// The command has ended: [`Begun::hear`] says how; or there is no answer.
    pub fn give(&self, next: &mut dyn FnMut() -> Option<Vec<u8>>) -> std::result::Result<(), CommandLost> {
        let (mut at, mut sent) = (0, VecDeque::new());
        let heard = |answer: Receiver<Result<Reply>>| {
            answer.recv().unwrap_or_else(|_| Err(Error::Io("the request was lost".into())))
        };
        loop {
            let piece = next().unwrap_or_default();
            let give = Command::Give { number: self.number, at, bytes: &piece };
            sent.push_back(self.client.send_of_command(&self.user, give));
            at += piece.len() as u64;
            let is_last = piece.is_empty();
            while sent.len() >= PIECES || (is_last && !sent.is_empty()) {
                sent.pop_front().map_or(Ok(Reply::Done), heard)?;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}
