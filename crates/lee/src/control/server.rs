//! The serving process's end of the control socket. Each connection has a thread; there are at most
//! 32 at once.
//!
//! No lock is held while a request runs or a line is written. Connections do not keep the process
//! alive: it ends when the cell is closed, whatever they wait for.

use super::{
    Answer, CALL_BYTES_MAX, Call, Flows, Line, MachineSession, Running, SocketPath, read_line, write_line,
};
use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::system;
use leeward_env::{Ctx, Env};
use leeward_volume::admin::{AnyReply, AnyRequest, Failure, Progress};
use serde::Serialize;
use std::fs::Permissions;
use std::io::{self, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const CONNECTIONS_MAX: usize = 32;
const READ_WAIT: Duration = Duration::from_secs(10);
const WRITE_WAIT: Duration = Duration::from_secs(30);
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
    /// Asks the process to end.
    fn down(&self);
    /// Waits until the process does something else than `last`, and returns what it does then;
    /// `None` when everything is done and durable. The failure says why the process does not end, or
    /// what is lost.
    fn next_stage(&self, last: &str) -> Result<Option<String>, Failure>;
    /// A caller begins to wait for the end, or has heard of it.
    fn hears_of_end(&self, hears: bool);
}

/// The listening socket. Stops and is removed when this is dropped.
pub struct Server {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    path: SocketPath,
}

impl Server {
    /// Starts to listen, in place of a socket that a killed process left. The caller holds the lock
    /// of the cell.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(env: &Env, cell: &CellDir, service: Arc<dyn Service>) -> Result<Server, Fail> {
        let failed =
            |e: io::Error| Fail::new(format!("{cell}: cannot make the control socket: {}", text(&e)));
        let path = SocketPath::of(cell).map_err(failed)?;
        match std::fs::remove_file(path.as_path()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => (),
        }
        let listener = bind_private(&path).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let (stop, stopped) = pipe().map_err(failed)?;
        let acceptor = Acceptor { env: env.clone(), service, connections: Arc::default() };
        let thread = env.spawn("control", move || acceptor.run(&listener, &stopped));
        Ok(Server { stop: Some(stop), thread: Some(thread), path })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path.as_path());
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Binds with mode 0600. The umask of the process (`system::make_private_files`) allows no more even
/// before the mode is set.
fn bind_private(path: &SocketPath) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path.as_path())?;
    std::fs::set_permissions(path.as_path(), Permissions::from_mode(0o600))?;
    Ok(listener)
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
    service: Arc<dyn Service>,
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
        let (env, service) = (self.env.clone(), self.service.clone());
        let serve = move || {
            let connection = Connection { env, service, stream: &stream };
            // The client went away or stopped reading.
            if let Err(e) = connection.serve(&slot) {
                tracing::debug!("control connection: {e}");
            }
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
    fn serve(&self, slot: &Slot) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(READ_WAIT))?;
        self.stream.set_write_timeout(Some(WRITE_WAIT))?;
        let caller = peer(self.stream)?;
        match refusal(&caller, slot) {
            Some(failure) => self.fail(failure),
            None => self.answer(&caller),
        }
    }

    /// Reads the call, runs it and sends the last line.
    fn answer(&self, caller: &Ctx) -> io::Result<()> {
        let call = match read_line(&mut BufReader::new(self.stream), CALL_BYTES_MAX) {
            Ok(Some(call)) => call,
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
            Err(e) => return self.fail(not_understood(&e)),
        };
        match call {
            Call::Admin { request } => self.finish("admin", self.admin(caller, &request)),
            Call::Status => self.finish("running", self.service.running()),
            Call::Flows => self.finish("flows", Ok(self.service.flows())),
            Call::Sessions => self.finish("sessions", Ok(self.service.sessions())),
            Call::EndSession { number } => self.finish("ended", Ok(self.service.end_session(number))),
            Call::Down => self.down(),
        }
    }

    fn admin(&self, caller: &Ctx, request: &AnyRequest) -> Result<AnyReply, Failure> {
        let mut last: Option<(u64, String)> = None;
        let mut watched = true;
        self.service.admin(caller, request, &mut |progress| {
            let now = self.env.now();
            let due = last.as_ref().is_none_or(|(at, phase)| {
                now.saturating_sub(*at) >= PROGRESS_STEP_NANOS || *phase != progress.phase
            });
            if due && watched {
                last = Some((now, progress.phase.clone()));
                // The request goes on when the client went away or stopped reading.
                watched = self.send(&Line::<()>::Progress(progress)).is_ok();
            }
        })
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
        self.send(&Line::<()>::Failed(failure))
    }

    fn send<T: Serialize>(&self, line: &Line<T>) -> io::Result<()> {
        let mut stream = self.stream;
        write_line(&mut stream, line)
    }
}

fn refusal(caller: &Ctx, slot: &Slot) -> Option<Failure> {
    if caller.uid != 0 && caller.uid != system::uid() {
        return Some(failure(libc::EPERM, "only the user who serves the cell and root may ask this"));
    }
    if slot.number >= CONNECTIONS_MAX {
        let message = format!("the cell answers {CONNECTIONS_MAX} commands already: try again in a moment");
        return Some(failure(libc::EBUSY, &message));
    }
    None
}

fn failure(errno: i32, message: &str) -> Failure {
    Failure { message: message.into(), errno }
}

fn not_understood(e: &io::Error) -> Failure {
    let version = env!("CARGO_PKG_VERSION");
    failure(
        libc::EINVAL,
        &format!(
            "the running process (lee {version}) does not understand the request: {e}: use the same version"
        ),
    )
}

/// The user at the other end.
fn peer(stream: &UnixStream) -> io::Result<Ctx> {
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
