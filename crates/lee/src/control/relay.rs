//! The control socket of a process that mounts a cell from another machine. It hands calls on to
//! the server in the name of the user who asks, and the answer back. The server decides what that
//! user may ask of it.
//!
//! Every user who can reach the mount may connect.

use super::server::{Handler, failure, peer, prepare, refuse, too_many};
use super::{
    Answer, CALL_BYTES_MAX, Call, Line, LoggedIn, MountState, not_understood, read_line, write_line,
};
use crate::system;
use leeward_env::{Ctx, Env};
use leeward_fs::Op;
use leeward_remote::{CellUser, Client, CommandLost, Loss, LostFiles, User};
use leeward_vfs::Backend;
use leeward_volume::admin::{AnyRequest, Done, Failure};
use serde::Serialize;
use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;

/// Hands calls on.
pub struct Relay {
    /// The clock.
    pub env: Env,
    /// The connection.
    pub client: Client,
    /// The server's name, for messages.
    pub server: String,
    /// Whether all users of this machine may use the mount.
    pub for_all: bool,
    /// Asks the process to end.
    pub end: Box<dyn Fn() + Send + Sync>,
}

impl Handler for Relay {
    fn serve(&self, stream: &UnixStream, is_busy: bool) -> io::Result<()> {
        prepare(stream)?;
        let caller = peer(stream)?;
        let is_own = [0, system::uid()].contains(&caller.uid);
        if !is_own && !self.for_all {
            return refuse(stream, failure(libc::EPERM, "only the user who mounted it may ask this"));
        }
        if is_busy && !is_own {
            return refuse(stream, too_many());
        }
        match read_line(&mut BufReader::new(stream), CALL_BYTES_MAX) {
            Ok(Some(call)) => self.answer(stream, &caller, &call, is_own),
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(e),
            Err(e) => refuse(stream, not_understood(&e)),
        }
    }
}

impl Relay {
    fn answer(&self, stream: &UnixStream, caller: &Ctx, call: &Call, is_own: bool) -> io::Result<()> {
        match call {
            Call::Mount => done(stream, "mount", self.state()),
            Call::Down if is_own => {
                // said first: the process ends
                let told = done(stream, "down", ());
                (self.end)();
                told
            }
            Call::Down => {
                refuse(stream, failure(libc::EPERM, "only root and the user who mounted it may unmount it"))
            }
            _ => match self.client.away() {
                Some((_, why)) => {
                    let message = format!("the server {} does not answer ({why})", self.server);
                    refuse(stream, failure(libc::EHOSTDOWN, &message))
                }
                // an fsync of everything, which knows what a crash of the server has taken
                None if matches!(call, Call::Admin { request: AnyRequest::SyncAll(_) }) => {
                    match self.client.call(caller, Op::SyncAll) {
                        Ok(_) => done(stream, "admin", Done {}),
                        Err(e) => refuse(stream, failure(e.errno(), &format!("not durable: {e}"))),
                    }
                }
                None if matches!(call, Call::Login { .. } | Call::Logout) => {
                    self.log(stream, caller.uid, call)
                }
                None => self.pass_on(stream, caller, call),
            },
        }
    }

    fn state(&self) -> MountState {
        let away = self.client.away().map(|(since, why)| {
            let seconds = self.env.now().saturating_sub(since) / 1_000_000_000;
            (seconds, why)
        });
        let (server, host) = (self.server.clone(), self.client.host());
        let losses = self.client.lost_files().into_iter().rev().map(|lost| loss(&host, &lost)).collect();
        let users = self.client.logged_in().into_iter().map(|(uid, user)| (uid, logged_in(user))).collect();
        let wants_logins = self.client.wants_logins();
        MountState { server, host, pid: std::process::id(), away, losses, wants_logins, users }
    }

    /// A user logs in or out.
    fn log(&self, stream: &UnixStream, uid: u32, call: &Call) -> io::Result<()> {
        let refused = |why: String| failure(libc::EACCES, &why);
        match call {
            Call::Login { token } => match self.client.log_in(uid, &token.0) {
                Ok(user) => done(stream, "login", logged_in(user)),
                Err(why) => refuse(stream, refused(why)),
            },
            _ => match self.client.log_out(uid) {
                Ok(user) => done(stream, "logout", user.map(logged_in)),
                Err(why) => refuse(stream, refused(why)),
            },
        }
    }

    /// Has the server answer; what it says goes to the client as it is.
    fn pass_on(&self, stream: &UnixStream, caller: &Ctx, call: &Call) -> io::Result<()> {
        let user = User { uid: caller.uid, gid: caller.gid, gids: system::groups_of_peer(stream) };
        let call = serde_json::to_vec(call)?;
        let (mut to, mut broken) = (stream, None);
        let told = self.client.command(&user, &call, &mut |piece| {
            broken = to.write_all(piece).err();
            broken.is_none()
        });
        match (told, broken) {
            (_, Some(e)) => Err(e),
            (Ok(()), None) => Ok(()),
            (Err(lost), None) => refuse(stream, self.why(lost)),
        }
    }

    fn why(&self, lost: CommandLost) -> Failure {
        let server = &self.server;
        match lost {
            CommandLost::NotPermitted => failure(
                libc::EPERM,
                &format!("{server} lets this machine not act for this user (lee host show)"),
            ),
            CommandLost::NotLoggedIn => {
                failure(libc::EACCES, &format!("{server} does not know who you are: lee login PATH"))
            }
            CommandLost::Busy => {
                failure(libc::EBUSY, &format!("{server} runs too many commands: try again in a moment"))
            }
            CommandLost::Restarted => {
                let message =
                    format!("{server} was started anew meanwhile: see what was done, and try again");
                failure(libc::EIO, &message)
            }
            CommandLost::Silent(why) => failure(libc::EIO, &format!("no answer from {server}: {why}")),
        }
    }
}

fn logged_in(user: CellUser) -> LoggedIn {
    let CellUser { name, uid, gid, gids, until_secs } = user;
    let gids = std::iter::once(gid).chain(gids).collect();
    LoggedIn { name, uid, gids, until_secs }
}

/// Whose the changes were is not known here: their files say so, to whoever makes them durable.
fn loss(host: &str, lost: &LostFiles) -> Loss {
    let files = match lost.files {
        Some(1) => "a file that had changes which were not durable says EIO at its next fsync".into(),
        Some(files) => {
            format!("{files} files that had changes which were not durable say EIO at their next fsync")
        }
        None => "files that had changes which were not durable say EIO at the next fsync".into(),
    };
    Loss {
        host: host.to_owned(),
        first_secs: lost.at_secs,
        last_secs: lost.at_secs,
        why: format!("the server did not know its session any more when it came back; {files}"),
        ..Loss::default()
    }
}

fn done<T: Serialize>(stream: &UnixStream, answer: &'static str, value: T) -> io::Result<()> {
    let mut stream = stream;
    write_line(&mut stream, &Line::Done(Answer { answer, value }))
}
