//! The other cell of a mirror: one that is served on this machine, by its control socket, or one on
//! other machines, over the network. There this cell is a host that was added with `--mirror`, with
//! its own key.

use super::Shared;
use crate::control::client::{Client as Control, Unreached};
use crate::control::server::failure;
use crate::control::{Answer, Call, Line, ShownToken};
use crate::fail::Fail;
use crate::{locate, system};
use leeward_env::{Env, hex, wait_readable};
use leeward_fs::invitation::InvitationToken;
use leeward_remote::{
    Client, ClientOptions, CommandLost, Keys, PIECE_BYTES_MAX, PublicKey, Unreachable, User,
};
use leeward_volume::admin::{
    self, CopyCreate, Failure, MirrorInfo, Pipe, Progress, Request, Sender, SnapReceive, Streamed,
    VolumeCreate, VolumeInfo,
};
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long requests wait for a server that does not answer.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// Pause between looks whether somebody still gives.
const DRAIN_STEP: Duration = Duration::from_millis(50);
/// The number of the error that what is to be a copy is a volume of its own.
pub const IS_PROMOTED: i32 = libc::EEXIST;
/// What a cell on other machines is asked as.
const ROOT: User = User { uid: 0, gid: 0, gids: Vec::new() };
/// A piece on the network: compressed, with its length before it.
const COMPRESSED_BYTES_MAX: usize = PIECE_BYTES_MAX - (16 << 10);

/// Bytes of a stream, piece by piece; `None`: that was all, or it ends early.
pub type Pieces = dyn FnMut() -> Option<Vec<u8>> + Send;

/// See the module's head.
pub enum Other {
    /// On this machine.
    Here(Env, String),
    /// On other machines.
    There(Env, Client),
}

/// What a command fails with, as a cell would say it.
fn failed(fail: Fail) -> Failure {
    failure(libc::EIO, &fail.to_string())
}

impl Shared {
    /// The mirror with the key of the other cell; enrols there where there is a token.
    pub fn meet(&self, mirror: &MirrorInfo, token: Option<&ShownToken>) -> Result<MirrorInfo, Failure> {
        if is_here(&mirror.to) {
            return Ok(MirrorInfo { key: None, ..mirror.clone() });
        }
        let known = self.all()?.into_iter().find(|known| known.to == mirror.to && known.key.is_some());
        let Some(token) = token else {
            let key = known.and_then(|known| known.key).ok_or_else(|| {
                let message = format!(
                    "{0} does not know this cell yet: `lee host add NAME --mirror` there prints a token, give it with --token",
                    mirror.to
                );
                failure(libc::EACCES, &message)
            })?;
            return Ok(MirrorInfo { key: Some(key), ..mirror.clone() });
        };
        let token = InvitationToken::parse(&token.0);
        let token = token.map_err(|e| failure(libc::EINVAL, &format!("--token: {e}")))?;
        let client = self.connect(&mirror.to, token.cell_key, Some(token.secret))?;
        if let Some(before) = self.clients.lock().insert(mirror.to.clone(), client) {
            before.close();
        }
        Ok(MirrorInfo { key: Some(hex::encode(&token.cell_key)), ..mirror.clone() })
    }

    fn connect(&self, to: &str, key: PublicKey, invitation: Option<[u8; 16]>) -> Result<Client, Failure> {
        self.cell.prepare_identity()?;
        let accounts = self.cell.accounts();
        let seed = accounts.identity().map(|identity| identity.seed);
        let keys = seed.and_then(|seed| Keys::from_seed(&seed).ok());
        let keys = keys
            .ok_or_else(|| failure(libc::EIO, "the cell has no key pair and cannot make one: try again"))?;
        let options = ClientOptions {
            server: to.into(),
            key,
            invitation,
            timeout: Some(ANSWER_WAIT),
            cache: None,
            died: None,
        };
        Client::connect(&self.env, &keys, &options).map_err(|e| match e {
            Unreachable::Refused(why) => {
                failure(libc::EACCES, &format!("{to} does not let this cell in: {why}"))
            }
            Unreachable::Silent(why) => failure(
                libc::EHOSTUNREACH,
                &format!("{to} cannot be reached ({why}): is the cell served there, with `lee serve` or `lee up --listen`?"),
            ),
        })
    }

    /// The other cell of a mirror.
    pub fn other(&self, mirror: &MirrorInfo) -> Result<Other, Failure> {
        if is_here(&mirror.to) {
            return Ok(Other::Here(self.env.clone(), mirror.to.clone()));
        }
        let known = self.clients.lock().get(&mirror.to).cloned();
        if let Some(client) = known {
            // one that comes back goes on with its session, which a server that was started anew
            // waits for; one that is away for longer does not try at each request
            let away = client.away().map_or(0, |(since, _)| self.env.now().saturating_sub(since));
            if away < ANSWER_WAIT.as_nanos() as u64 {
                return Ok(Other::There(self.env.clone(), client));
            }
            self.clients.lock().remove(&mirror.to);
            client.close();
        }
        let key = mirror.key.as_ref().and_then(|key| hex::decode(key)?.try_into().ok());
        let key =
            key.ok_or_else(|| failure(libc::EINVAL, "the mirror has no key: add it again, with --token"))?;
        let client = self.connect(&mirror.to, key, None)?;
        if self.has_ended() {
            client.close();
            return Err(failure(libc::EAGAIN, "the process ends"));
        }
        self.clients.lock().insert(mirror.to.clone(), client.clone());
        Ok(Other::There(self.env.clone(), client))
    }

    /// The copy; makes it where it is missing.
    pub fn find_copy(&self, other: &Other, mirror: &MirrorInfo) -> Result<VolumeInfo, Failure> {
        let copy = &mirror.copy;
        let found = other.ask(&admin::VolumeShow { name: copy.clone() }, &mut |_| ());
        let info = match found {
            Err(e) if e.errno == libc::ENOENT => {
                let at = format!("/{copy}");
                let volume = VolumeCreate { name: copy.clone(), at, uid: 0, gid: 0, pool: None };
                let made = other.ask(&CopyCreate { volume }, &mut |_| ())?;
                if mirror.compared.is_some() {
                    self.note_compared(mirror, None)?;
                }
                made
            }
            Err(e) if e.errno == IS_PROMOTED => return Err(promoted(&mirror.to, copy)),
            found => found?,
        };
        if info.copy.is_none() {
            return Err(promoted(&mirror.to, copy));
        }
        Ok(info)
    }
}

fn promoted(to: &str, copy: &str) -> Failure {
    let message = format!(
        "{copy} in {to} is no copy: it was promoted, or made by somebody. Users may write to both: nothing is sent. See \
         OPERATE, A copy in another cell"
    );
    failure(IS_PROMOTED, &message)
}

/// Whether the other cell is named by a place and not by its servers.
fn is_here(to: &str) -> bool {
    to.contains('/')
}

fn control(place: &str) -> Result<Control, Failure> {
    let cell = locate::called(OsStr::new(place), " (named by --to)").map_err(failed)?;
    Control::connect(&cell).map_err(|e| match e {
        Unreached::Failed(fail) => failed(fail),
        Unreached::Silent => {
            let message =
                format!("{place} is not served on this machine: lee up {place}, or name its servers");
            failure(libc::EHOSTUNREACH, &message)
        }
    })
}

/// Asks a cell of this machine. That may take as long as it takes, while its process answers
/// others.
fn ask_here<R: Request>(
    env: &Env,
    place: &str,
    request: &R,
    progress: &mut dyn FnMut(Progress),
) -> Result<R::Reply, Failure> {
    let asked = control(place)?;
    let line = asked.line().map_err(none_left)?;
    let (answered, waits) = channel::<()>();
    let silent = place.to_owned();
    // whether the process was silent, and the connection hung up
    let watch = env.try_spawn("mirror-watch", move || {
        while waits.recv_timeout(ANSWER_WAIT) == Err(RecvTimeoutError::Timeout) {
            if !control(&silent).is_ok_and(|other| other.status().is_ok()) {
                let _ = line.shutdown(Shutdown::Both);
                return true;
            }
        }
        false
    });
    let watch = watch.map_err(none_left)?;
    let said = asked.admin_said(request, progress);
    drop(answered);
    match (said, watch.join()) {
        (Err(_), Ok(true)) => {
            let message = format!("{place} does not answer: its process may be stopped; it is tried again");
            Err(failure(libc::EIO, &message))
        }
        (said, _) => said,
    }
}

/// Reads what comes, for nothing, so that nobody waits for room, until this is so.
fn drain(mut pipe: File, is_over: &dyn Fn() -> bool) {
    let mut room = vec![0; 64 << 10];
    while !is_over() {
        if wait_readable(&pipe, DRAIN_STEP).unwrap_or(false) {
            let _ = pipe.read(&mut room);
        }
    }
}

impl Other {
    /// Asks.
    ///
    /// # Errors
    /// What the other cell says, or that it cannot be reached.
    pub fn ask<R: Request>(
        &self,
        request: &R,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<R::Reply, Failure> {
        match self {
            Other::Here(env, place) => ask_here(env, place, request, progress),
            Other::There(_, client) => {
                let call = Call::Admin { request: request.clone().into() };
                let begun = client.begin_command(&ROOT, &text_of(&call)?).map_err(lost)?;
                let mut lines = Lines::default();
                begun.hear(&mut |piece| lines.hear(piece, progress)).map_err(lost)?;
                lines.answer()
            }
        }
    }

    /// Has a copy receive a stream from this sender.
    ///
    /// # Errors
    /// As [`Other::ask`].
    pub fn receive(
        &self,
        (copy, sender): (&str, Sender),
        mut pieces: Box<Pieces>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Streamed, Failure> {
        match self {
            Other::Here(env, place) => {
                let (reader, mut writer) = io::pipe().map_err(none_left)?;
                let pipe = Pipe::of(&reader);
                let is_over = Arc::new(AtomicBool::new(false));
                let over = is_over.clone();
                let giving = env.try_spawn("mirror-give", move || {
                    while let Some(piece) = pieces() {
                        // the other cell says why it wants no more
                        if over.load(Ordering::Relaxed) || writer.write_all(&piece).is_err() {
                            break;
                        }
                    }
                });
                let giving = giving.map_err(none_left)?;
                let request = SnapReceive { volume: copy.into(), pipe, instead: true, sender };
                let received = ask_here(env, place, &request, progress);
                is_over.store(true, Ordering::Relaxed);
                // a process that is stopped reads nothing, and has the pipe open
                drain(File::from(OwnedFd::from(reader)), &|| giving.is_finished());
                let _ = giving.join();
                received
            }
            Other::There(env, client) => {
                // the server has a pipe of its own
                let pipe = Pipe { pid: 0, descriptor: 0, inode: 0 };
                let request = SnapReceive { volume: copy.into(), pipe, instead: true, sender };
                let begun = client.begin_command(&ROOT, &text_of(&Call::Admin { request: request.into() })?);
                let begun = begun.map_err(lost)?;
                let to = begun.clone();
                let giving = env.try_spawn("mirror-give", move || {
                    system::work_behind_others();
                    to.give(&mut || pieces().map(|piece| lz4_flex::compress_prepend_size(&piece)))
                });
                let giving = giving.map_err(none_left)?;
                let mut lines = Lines::default();
                let heard = begun.hear(&mut |piece| lines.hear(piece, progress));
                if heard.is_err() {
                    // else who gives waits for room
                    let _ = begun.end();
                }
                let given = giving.join();
                heard.map_err(lost)?;
                lines.answer().map_err(|failure| match given {
                    Ok(Err(CommandLost::Silent(why))) => lost(CommandLost::Silent(why)),
                    _ => failure,
                })
            }
        }
    }
}

/// Longest piece of a stream that is given at once.
pub const STREAM_PIECE_BYTES: usize = COMPRESSED_BYTES_MAX;

/// The error where the system has no more pipes, descriptors or threads.
fn none_left(e: io::Error) -> Failure {
    failure(libc::EMFILE, &format!("the copy cannot be reached: {e}"))
}

fn text_of(call: &Call) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(call).map_err(|e| failure(libc::EINVAL, &e.to_string()))
}

fn lost(why: CommandLost) -> Failure {
    match why {
        CommandLost::Silent(why) => failure(libc::EIO, &format!("no answer from the other cell: {why}")),
        CommandLost::Busy => failure(libc::EBUSY, "the other cell runs too many commands: it is tried again"),
        CommandLost::Restarted => {
            failure(libc::EIO, "the other cell was started anew meanwhile: it is tried again")
        }
        CommandLost::NotPermitted | CommandLost::NotLoggedIn => failure(
            libc::EACCES,
            "the other cell does not take snapshots from this one: `lee host add NAME --mirror` there prints a token, add the \
             mirror again with it",
        ),
    }
}

/// The lines of an answer, in pieces.
#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    last: Vec<u8>,
}

impl Lines {
    fn hear(&mut self, piece: &[u8], progress: &mut dyn FnMut(Progress)) -> bool {
        self.text.extend_from_slice(piece);
        while let Some(end) = self.text.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            match serde_json::from_slice::<Line<serde::de::IgnoredAny>>(&line) {
                Ok(Line::Progress(at)) => progress(at),
                _ => self.last = line,
            }
        }
        true
    }

    fn answer<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        match serde_json::from_slice::<Line<Answer<T>>>(&self.last) {
            Ok(Line::Done(answer)) => Ok(answer.value),
            Ok(Line::Failed(failure)) => Err(failure),
            _ => Err(failure(
                libc::EIO,
                "the answer of the other cell is not understood: it may be another version",
            )),
        }
    }
}
