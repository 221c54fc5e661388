//! The serving process's end of the control socket. Each connection has a thread; there are at most
//! 32 at once. Users who are no operators have turns of their own ([`users`](super::users)). The
//! process of a mount from another machine listens in the same way ([`relay`](super::relay)).
//!
//! No lock is held while a request runs or a line is written. Connections do not keep the process
//! alive: it ends when the cell is closed, whatever they wait for.

use super::users::Turns;
use super::{
    Answer, CALL_BYTES_MAX, Call, ConsoleLink, Flows, Line, MachineSession, NewToken, Running, SocketPath,
    not_understood, read_line, write_line,
};
use crate::backup::{BackupCall, BackupStatus};
use crate::console::sessions::Who;
use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::mirror::{MirrorCall, MirrorStatus};
use crate::system;
use leeward_env::{Ctx, Env, Groups};
use leeward_volume::admin::{AnyReply, AnyRequest, Failure, Progress, TokenMake};
use serde::Serialize;
use std::fs::Permissions;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const CONNECTIONS_MAX: usize = 32;
/// Commands of a user who is no operator at the same time, and of all these. Operators have the
/// rest.
const COMMANDS_OF_USER_MAX: usize = 4;
const COMMANDS_OF_USERS_MAX: usize = 16;
const READ_WAIT: Duration = Duration::from_secs(10);
const WRITE_WAIT: Duration = Duration::from_secs(30);
/// The mode of a socket for the user who serves the cell, and root.
const PRIVATE: u32 = 0o600;
/// The mode of a socket for all who can reach it.
pub const FOR_ALL: u32 = 0o666;
/// Progress goes out at most this often.
const PROGRESS_STEP_NANOS: u64 = 100_000_000;
/// Pause when the system has no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers the calls.
pub trait Service: Send + Sync + 'static {
    /// Runs a request to the cell.
    fn admin(
        &self,
        caller: &Ctx,
        request: &AnyRequest,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<AnyReply, Failure>;
    /// How the process does.
    fn running(&self) -> Result<Running, Failure>;
    /// What users did and waited for.
    fn flows(&self) -> Flows;
    /// Machines that are connected.
    fn sessions(&self) -> Vec<MachineSession>;
    /// Ends the session of a machine; false: there is none of this number.
    fn end_session(&self, number: u64) -> bool;
    /// A link that logs in to the console. `host`: the machine on which it was asked for, if that
    /// is another one.
    fn console_link(&self, who: Who, host: Option<&str>) -> Result<ConsoleLink, Failure>;
    /// Makes a token, which the caller may have.
    fn make_token(&self, caller: &Ctx, wanted: &TokenMake) -> Result<NewToken, Failure>;
    /// Does what is asked about mirrors.
    fn mirrors(
        &self,
        call: &MirrorCall,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<MirrorStatus>, Failure>;
    /// Does what is asked about backups.
    fn backups(
        &self,
        call: &BackupCall,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<BackupStatus>, Failure>;
    /// Asks the process to end.
    fn down(&self);
    /// Waits until the process does something else than `last`, and returns what it does then;
    /// `None` when everything is done and durable. The failure says why the process does not end,
    /// or what is lost.
    fn next_stage(&self, last: &str) -> Result<Option<String>, Failure>;
    /// A caller begins to wait for the end, or has heard of it.
    fn hears_of_end(&self, hears: bool);
}

/// What users of this machine may ask who are no operators: what users of other machines may.
pub trait UserCommands: Send + Sync + 'static {
    /// Runs a command of one; `tell` takes the lines of the answer, and says whether there is still
    /// somebody to hear them.
    fn run_here(&self, caller: &Ctx, call: &Call, tell: &mut dyn FnMut(&[u8]) -> bool);
}

/// The listening socket. Stops and is removed when this is dropped.
pub struct Server {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    path: SocketPath,
    /// Tells our socket from another one that got its path.
    made: (u64, i64, i64),
}

impl Server {
    /// Starts to listen, in place of a socket that a killed process left. The caller holds the lock
    /// of the cell. `users`: answers the other users of this machine, where the mount is theirs,
    /// too.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(
        env: &Env,
        cell: &CellDir,
        service: Arc<dyn Service>,
        users: Option<Arc<dyn UserCommands>>,
    ) -> Result<Server, Fail> {
        let mode = if users.is_some() { FOR_ALL } else { PRIVATE };
        let handler = Arc::new(Calls {
            env: env.clone(),
            service,
            users,
            turns: Turns::new(COMMANDS_OF_USER_MAX, COMMANDS_OF_USERS_MAX),
        });
        let path = SocketPath::of(cell).map_err(|e| not_made(cell, &e))?;
        Server::listen(env, path, mode, handler).map_err(|e| not_made(cell, &e))
    }

    /// Listens at a path, with this mode.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(env: &Env, path: SocketPath, mode: u32, handler: Arc<dyn Handler>) -> io::Result<Server> {
        match std::fs::remove_file(path.as_path()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => (),
        }
        let listener = bind(&path, mode)?;
        let made = made(&path)?;
        listener.set_nonblocking(true)?;
        let (stop, stopped) = pipe()?;
        let acceptor = Acceptor { env: env.clone(), handler, connections: Arc::default() };
        let thread = env.spawn("control", move || acceptor.run(&listener, &stopped));
        Ok(Server { stop: Some(stop), thread: Some(thread), path, made })
    }
}

fn not_made(cell: &CellDir, e: &io::Error) -> Fail {
    Fail::new(format!("{cell}: cannot make the control socket: {}", text(e)))
}

/// Serves connections.
pub trait Handler: Send + Sync + 'static {
    /// Serves one. `is_busy`: there are too many, which it is told.
    ///
    /// # Errors
    /// The client went away or stopped reading.
    fn serve(&self, stream: &UnixStream, is_busy: bool) -> io::Result<()>;
}

/// What somebody sends within [`READ_WAIT`] in all, however slowly.
pub struct InTime<'a> {
    env: &'a Env,
    stream: &'a UnixStream,
    until: u64,
}

impl<'a> InTime<'a> {
    /// From now on.
    pub fn new(env: &'a Env, stream: &'a UnixStream) -> InTime<'a> {
        InTime { env, stream, until: env.now() + READ_WAIT.as_nanos() as u64 }
    }
}

impl Read for InTime<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_sub(self.env.now());
        if left == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.stream.set_read_timeout(Some(Duration::from_nanos(left.max(1_000_000))))?;
        let mut stream = self.stream;
        stream.read(to)
    }
}

/// Time limits of a connection that was just accepted.
///
/// # Errors
/// The system's.
pub fn prepare(stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(READ_WAIT))?;
    stream.set_write_timeout(Some(WRITE_WAIT))
}

/// What is said where there are too many connections.
pub(super) fn too_many() -> Failure {
    let message = format!("there are {CONNECTIONS_MAX} commands at work already: try again in a moment");
    failure(libc::EBUSY, &message)
}

/// Serves a cell.
struct Calls {
    env: Env,
    service: Arc<dyn Service>,
    users: Option<Arc<dyn UserCommands>>,
    turns: Turns,
}

impl Handler for Calls {
    fn serve(&self, stream: &UnixStream, is_busy: bool) -> io::Result<()> {
        prepare(stream)?;
        let caller = peer(stream)?;
        let is_operator = [0, system::uid()].contains(&caller.uid);
        match &self.users {
            _ if is_operator && is_busy => refuse(stream, too_many()),
            _ if is_operator => {
                let (env, service) = (self.env.clone(), self.service.clone());
                Connection { env, service, stream }.answer(&caller)
            }
            Some(_) if is_busy => refuse(stream, too_many()),
            Some(users) => self.answer_user(&**users, stream, &caller),
            None => {
                let text = "only the user who serves the cell and root may ask this";
                refuse(stream, failure(libc::EPERM, text))
            }
        }
    }
}

impl Calls {
    fn answer_user(&self, users: &dyn UserCommands, stream: &UnixStream, caller: &Ctx) -> io::Result<()> {
        let Some(_turn) = self.turns.take(caller.uid) else {
            let text = "there are too many commands of users at work already: try again in a moment";
            return refuse(stream, failure(libc::EBUSY, text));
        };
        let call = match read_line(&mut BufReader::new(InTime::new(&self.env, stream)), CALL_BYTES_MAX) {
            Ok(Some(call)) => call,
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
            Err(e) => return refuse(stream, not_understood(&e)),
        };
        let Some(gids) = Groups::of_stranger(None, caller.uid, &system::groups_of_peer(stream)) else {
            let text = "too many different lists of groups were seen: ask an operator";
            return refuse(stream, failure(libc::EBUSY, text));
        };
        let (mut to, mut broken) = (stream, None);
        // of the process only its user and groups count: it may have ended
        users.run_here(&Ctx { gids, pid: 0, ..*caller }, &call, &mut |piece| {
            broken = to.write_all(piece).err();
            broken.is_none()
        });
        broken.map_or(Ok(()), Err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if made(&self.path).is_ok_and(|made| made == self.made) {
            let _ = std::fs::remove_file(self.path.as_path());
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Binds with this mode. The umask of a process that serves a cell (`system::make_private_files`)
/// allows no more than 0600 even before the mode is set.
fn bind(path: &SocketPath, mode: u32) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path.as_path())?;
    std::fs::set_permissions(path.as_path(), Permissions::from_mode(mode))?;
    Ok(listener)
}

/// Which file has the path, and when it was changed last.
fn made(path: &SocketPath) -> io::Result<(u64, i64, i64)> {
    let file = std::fs::symlink_metadata(path.as_path())?;
    Ok((file.ino(), file.ctime(), file.ctime_nsec()))
}

/// A pipe that no child inherits: its read end becomes readable when the write end is dropped.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors, which are ours alone on success.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(fds[1]), OwnedFd::from_raw_fd(fds[0])))
    }
}

struct Acceptor {
    env: Env,
    handler: Arc<dyn Handler>,
    connections: Arc<AtomicUsize>,
}

impl Acceptor {
    fn run(&self, listener: &UnixListener, stopped: &OwnedFd) {
        while wait_for_connection(listener, stopped) {
            match listener.accept() {
                Ok((stream, _)) => self.take(stream),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => (),
                Err(e) => {
                    tracing::warn!("the control socket cannot accept: {e}");
                    self.env.sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    fn take(&self, stream: UnixStream) {
        let slot = Slot::take(&self.connections);
        let handler = self.handler.clone();
        let serve = move || {
            if let Err(e) = handler.serve(&stream, slot.number >= CONNECTIONS_MAX) {
                tracing::debug!("control connection: {e}");
            }
            drop(slot);
        };
        // dropping the connection tells the client
        if let Err(e) = self.env.try_spawn("control-call", serve) {
            tracing::warn!("no thread for a request on the control socket: {e}");
        }
    }
}

/// Waits for a connection; false when the server is to stop.
fn wait_for_connection(listener: &UnixListener, stopped: &OwnedFd) -> bool {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polls = [entry(listener.as_raw_fd()), entry(stopped.as_raw_fd())];
    // SAFETY: two valid entries.
    unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
    polls[1].revents == 0
}

/// Counts one connection until it is dropped.
struct Slot {
    connections: Arc<AtomicUsize>,
    number: usize,
}

impl Slot {
    fn take(connections: &Arc<AtomicUsize>) -> Slot {
        let number = connections.fetch_add(1, Ordering::Relaxed);
        Slot { connections: connections.clone(), number }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Connection<'a> {
    env: Env,
    service: Arc<dyn Service>,
    stream: &'a UnixStream,
}

impl Connection<'_> {
    /// Reads the call, runs it and sends the last line.
    fn answer(&self, caller: &Ctx) -> io::Result<()> {
        let call = match read_line(&mut BufReader::new(self.stream), CALL_BYTES_MAX) {
            Ok(Some(call)) => call,
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
            Err(e) => return self.fail(not_understood(&e)),
        };
        if matches!(call, Call::Down) {
            return self.down();
        }
        let mut watched = true;
        // The request goes on when the client went away or stopped reading.
        let tell = |progress| watched = watched && self.send(&Line::<()>::Progress(progress)).is_ok();
        let mut progress = now_and_then(&self.env, tell);
        match answer_operator(&*self.service, caller, &call, &mut progress) {
            Ok(line) => {
                let mut stream = self.stream;
                stream.write_all(&line)
            }
            Err(failure) => self.fail(failure),
        }
    }

    /// Asks the process to end, and sends its stages until it is gone.
    fn down(&self) -> io::Result<()> {
        self.service.hears_of_end(true);
        self.service.down();
        let told = self.stages().and_then(|durable| self.finish("durable", durable));
        self.service.hears_of_end(false);
        told
    }

    /// Sends each stage; returns how the process ended.
    fn stages(&self) -> io::Result<Result<(), Failure>> {
        let mut stage = String::new();
        loop {
            match self.service.next_stage(&stage) {
                Ok(Some(next)) => stage = next,
                Ok(None) => return Ok(Ok(())),
                Err(failure) => return Ok(Err(failure)),
            }
            self.send(&Line::<()>::Stage(stage.clone()))?;
        }
    }

    /// Sends the last line.
    fn finish<T: Serialize>(&self, answer: &'static str, result: Result<T, Failure>) -> io::Result<()> {
        match result {
            Ok(value) => self.send(&Line::Done(Answer { answer, value })),
            Err(failure) => self.fail(failure),
        }
    }

    fn fail(&self, failure: Failure) -> io::Result<()> {
        refuse(self.stream, failure)
    }

    fn send<T: Serialize>(&self, line: &Line<T>) -> io::Result<()> {
        let mut stream = self.stream;
        write_line(&mut stream, line)
    }
}

/// The last line of the answer to an operator; of any call but [`Call::Down`].
///
/// # Errors
/// Why there is no answer.
pub fn answer_operator(
    service: &dyn Service,
    caller: &Ctx,
    call: &Call,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<u8>, Failure> {
    Ok(match call {
        Call::Admin { request } => last_line("admin", service.admin(caller, request, progress)?),
        Call::Status => last_line("running", service.running()?),
        Call::Flows => last_line("flows", service.flows()),
        Call::Sessions => last_line("sessions", service.sessions()),
        Call::EndSession { number } => last_line("ended", service.end_session(*number)),
        Call::Backup { about } => last_line("backups", service.backups(about, progress)?),
        Call::Mirror { about } => last_line("mirrors", service.mirrors(about, progress)?),
        Call::ConsoleLink => last_line("console-link", service.console_link(operator(caller.uid), None)?),
        Call::MakeToken { wanted } => last_line("token", service.make_token(caller, wanted)?),
        Call::Down
        | Call::Mount
        | Call::Login { .. }
        | Call::Logout
        | Call::DoorReport { .. }
        | Call::FindUser { .. }
        | Call::FindGroups { .. } => {
            return Err(failure(libc::EINVAL, "this is asked of, or by, another machine"));
        }
    })
}

/// The operator with this user id, by name.
fn operator(uid: u32) -> Who {
    Who::Operator(system::known_user_name(uid).unwrap_or_else(|| uid.to_string()).into())
}

/// The last line of an answer.
pub fn last_line<T: Serialize>(answer: &'static str, value: T) -> Vec<u8> {
    line_of(&Line::Done(Answer { answer, value }))
}

/// A line of an answer.
pub fn line_of<T: Serialize>(line: &Line<T>) -> Vec<u8> {
    let mut line = serde_json::to_vec(line).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Tells how far a request is, and not too often.
pub fn now_and_then(env: &Env, mut tell: impl FnMut(Progress)) -> impl FnMut(Progress) {
    let mut last: Option<(u64, String)> = None;
    move |progress| {
        let now = env.now();
        let due = last.as_ref().is_none_or(|(at, phase)| {
            now.saturating_sub(*at) >= PROGRESS_STEP_NANOS || *phase != progress.phase
        });
        if due {
            last = Some((now, progress.phase.clone()));
            tell(progress);
        }
    }
}

/// Answers that there is no answer.
pub(super) fn refuse(stream: &UnixStream, failure: Failure) -> io::Result<()> {
    let mut stream = stream;
    write_line(&mut stream, &Line::<()>::Failed(failure))
}

/// A failure with this text.
pub fn failure(errno: i32, message: &str) -> Failure {
    Failure { message: message.into(), errno }
}

/// The user at the other end.
pub fn peer(stream: &UnixStream) -> io::Result<Ctx> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer and its length belong together and outlive the call.
    let failed = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Ctx { pid: peer.pid as u32, ..Ctx::user(peer.uid, peer.gid) })
}
