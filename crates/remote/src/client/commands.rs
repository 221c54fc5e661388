//! Commands of programs of this machine, which the server runs.

use super::{Client, slots};
use crate::message::{Call, Caller, Command, GROUPS_MAX};
use leeward_env::Class;
use leeward_fs::{Error, Reply, Result};
use std::sync::mpsc::sync_channel;

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
    /// Has the server run a command in the name of a user, and tells its answer in pieces until `tell` is
    /// false.
    ///
    /// # Errors
    /// [`CommandLost`]; the command may have been done.
    pub fn command(
        &self,
        user: &User,
        text: &[u8],
        tell: &mut dyn FnMut(&[u8]) -> bool,
    ) -> std::result::Result<(), CommandLost> {
        let number = self.ask_of_command(user, Command::Begin(text))?;
        let number = u64::from_le_bytes(number.try_into().map_err(|_| Error::Corrupt("a number".into()))?);
        loop {
            let piece = self.ask_of_command(user, Command::More(number))?;
            if piece.is_empty() {
                return Ok(());
            }
            if !tell(&piece) {
                self.ask_of_command(user, Command::End(number))?;
                return Ok(());
            }
        }
    }

    fn ask_of_command(&self, user: &User, command: Command<'_>) -> Result<Vec<u8>> {
        let mut gids = user.gids.clone();
        gids.truncate(GROUPS_MAX);
        let caller = Caller { uid: user.uid, gid: user.gid, gids, class: Class::Interactive, refs: false };
        let (send, receive) = sync_channel(1);
        let answer: slots::Answer = Box::new(move |result| drop(send.send(result)));
        self.ask(Call::Command(caller, command), None, answer);
        let result = receive.recv().unwrap_or_else(|_| Err(Error::Io("the request was lost".into())));
        match result? {
            Reply::Data(data) => Ok(data),
            _ => Ok(Vec::new()),
        }
    }
}
