//! `lee up --background`: starts this program again in a session of its own: a keeper, which starts
//! the server ([`crate::keeper`]), or with `--no-keeper` the server itself. The child reports
//! through a pipe when the cell is mounted, or why it is not.
//!
//! The child gets the same command line with absolute paths, so each option means what it means in
//! the foreground. A variable of the environment tells it that it is the child. It inherits only
//! the pipe: its standard input and output are /dev/null until the cell is locked, and `DIR/log`
//! from then on. When the parent is gone and nobody reads the pipe, the child ends.

use crate::fail::{Fail, text};
use crate::locate::{self, CellDir};
use crate::serve::{KeptBy, Started, Startup};
use crate::{logging, notify, output, system};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The variable that names the descriptor of the pipe to a server.
const SERVER: &str = "LEE_READY_FD";
/// The variable that names the descriptor of the pipe to a keeper.
pub const KEEPER: &str = "LEE_KEEPER_FD";
/// The variable that tells a server the process id of its keeper, and whether it is started again.
const KEPT_BY: &str = "LEE_KEPT_BY";
/// A larger log is renamed at the next start.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// What the child tells its parent, once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It serves.
    Up(Box<Started>),
    /// It ends.
    Failed {
        /// Why.
        message: String,
        /// Its exit code.
        code: u8,
    },
}

/// What is started in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A server that nobody starts again.
    Server,
    /// A keeper with a server.
    Keeper,
}

/// How a keeper starts a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// For the first time.
    First,
    /// After one that ended in order.
    Again,
    /// After one that crashed.
    AfterCrash,
}

/// Starts a process in the background, with this command line, that serves the cell; returns when
/// the cell is mounted.
///
/// # Errors
/// The child's.
pub fn start(dir: &Path, arguments: &[OsString], role: Role) -> Result<Started, Fail> {
    start_with_log(&log_of(dir), arguments, role)
}

/// The same for a process with this log.
///
/// # Errors
/// The child's.
pub fn start_with_log(log: &Path, arguments: &[OsString], role: Role) -> Result<Started, Fail> {
    let failed = |e: io::Error| Fail::new(format!("cannot start a process in the background: {}", text(&e)));
    let (mut reader, writer) = io::pipe().map_err(failed)?;
    let mut command = command(&myself(), arguments, role, writer.as_raw_fd());
    let mut child = command.spawn().map_err(failed)?;
    drop(writer);
    let mut told = String::new();
    reader.read_to_string(&mut told).map_err(failed)?;
    match serde_json::from_str(&told) {
        Ok(Outcome::Up(started)) => Ok(*started),
        Ok(Outcome::Failed { message, code }) => {
            reap(&mut child);
            Err(Fail::new(message).with_code(code))
        }
        Err(_) => {
            let how = child.wait().map_or_else(|e| text(&e), |status| status.to_string());
            Err(Fail::new(ended_early(log, &how)))
        }
    }
}

/// The message for a child that said nothing.
pub fn ended_early(log: &Path, how: &str) -> String {
    format!(
        "the process in the background ended before it was mounted ({how}): see {}, or try without --background",
        log.display()
    )
}

/// The log of the child, once it has the lock.
pub fn log_of(dir: &Path) -> PathBuf {
    match dir.to_str().filter(|_| locate::is_bucket(dir.as_os_str())).map(CellDir::in_bucket) {
        Some(Ok(cell)) => cell.log(),
        _ => dir.join("log"),
    }
}

/// Waits until a failed child is gone, so that the lock is free.
fn reap(child: &mut Child) {
    let _ = child.wait();
}

/// The command line of a server whose keeper is this process.
pub fn server(program: &Path, arguments: &[OsString], pipe: RawFd, start: Start) -> Command {
    let mut command = command(program, arguments, Role::Server, pipe);
    let how = match start {
        Start::First => "first",
        Start::Again => "again",
        Start::AfterCrash => "after-crash",
    };
    command.env(KEPT_BY, format!("{} {how}", std::process::id()));
    command
}

/// Whether this process was started in the background.
pub fn is_child() -> bool {
    [SERVER, KEEPER].iter().any(|variable| std::env::var_os(variable).is_some())
}

/// The keeper of this process, if it has one.
pub fn kept_by() -> Option<KeptBy> {
    let text = std::env::var(KEPT_BY).ok()?;
    let (pid, how) = text.split_once(' ')?;
    let start = match how {
        "again" => Start::Again,
        "after-crash" => Start::AfterCrash,
        _ => Start::First,
    };
    Some(KeptBy { pid: pid.parse().ok()?, start })
}

fn command(program: &Path, arguments: &[OsString], role: Role, pipe: RawFd) -> Command {
    let mut command = Command::new(program);
    let (variable, others) = match role {
        Role::Server => (SERVER, [KEEPER, KEPT_BY]),
        Role::Keeper => (KEEPER, [SERVER, KEPT_BY]),
    };
    command.args(arguments).env_remove(others[0]).env_remove(others[1]);
    // The caller may be a service: the child must not report to the caller's service manager.
    command.env_remove(notify::VARIABLE);
    command.env(variable, pipe.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec only system calls are made, which is allowed there.
    unsafe { command.pre_exec(move || alone_with(pipe)) };
    command
}

/// Path of this program; of the running one, where the file was replaced meanwhile.
pub fn myself() -> PathBuf {
    std::env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// Begins a session, lets signals through, and closes all descriptors across the exec but the first
/// three and the pipe.
fn alone_with(pipe: RawFd) -> io::Result<()> {
    system::unblock_signals();
    close_on_exec(3, pipe - 1)?;
    close_on_exec(pipe + 1, RawFd::MAX)?;
    // SAFETY: plain system calls on a descriptor that is open here.
    let failed = unsafe { libc::fcntl(pipe, libc::F_SETFD, 0) != 0 || libc::setsid() < 0 };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Marks a range of descriptors as closed on exec; one by one on kernels older than 5.11.
fn close_on_exec(first: RawFd, last: RawFd) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: plain system calls; descriptors that are not open are refused, which is right.
    unsafe {
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        if libc::syscall(libc::SYS_close_range, first as u32, last as u32, flags) == 0 {
            return Ok(());
        }
        let highest = last.min(libc::sysconf(libc::_SC_OPEN_MAX).min(1 << 20) as RawFd);
        for fd in first..=highest {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
    Ok(())
}

/// The pipe whose descriptor the parent named in a variable of the environment.
///
/// # Errors
/// When that is no open descriptor.
pub fn inherited(variable: &str, named: &OsStr) -> Result<File, Fail> {
    let fd: RawFd = named.to_str().and_then(|fd| fd.parse().ok()).unwrap_or(-1);
    // SAFETY: fcntl only asks.
    if fd < 3 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(Fail::usage(format!("{variable} is for `lee up --background` itself")));
    }
    // SAFETY: passed to us by the parent, open, and used by nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The child's side of the pipe.
pub struct ParentPipe {
    pipe: Option<File>,
}

impl ParentPipe {
    /// Takes the descriptor that the parent named; `None`: this process is no child.
    ///
    /// # Errors
    /// When the variable names no open descriptor.
    pub fn if_child() -> Result<Option<ParentPipe>, Fail> {
        let Some(named) = std::env::var_os(SERVER) else { return Ok(None) };
        Ok(Some(ParentPipe { pipe: Some(inherited(SERVER, &named)?) }))
    }

    /// Writes to this log from now on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn log_to(&mut self, log: &Path) -> Result<(), Fail> {
        write_to(log).map_err(|e| Fail::new(format!("{}: {}", log.display(), text(&e))))?;
        logging::start();
        Ok(())
    }

    /// Reports why the cell was not mounted. Later failures go to the log.
    pub fn failed(&mut self, fail: &Fail) {
        match self.pipe.take() {
            Some(pipe) => {
                let _ = tell(pipe, &Outcome::Failed { message: fail.to_string(), code: fail.code() });
            }
            None => output::note(&format!("lee: {fail}")),
        }
    }
}

impl Startup for ParentPipe {
    fn locked(&mut self, cell: &CellDir) -> Result<(), Fail> {
        write_to_log(cell).map_err(|e| Fail::new(format!("{}: {}", cell.log().display(), text(&e))))?;
        logging::start();
        Ok(())
    }

    fn started(&mut self, started: &Started) -> Result<(), Fail> {
        // Keep no directory busy. All paths in use are absolute here.
        let _ = std::env::set_current_dir("/");
        match self.pipe.take().map(|pipe| tell(pipe, &Outcome::Up(Box::new(started.clone())))) {
            Some(Err(_)) => Err(Fail::new("who started this process is gone: ending")),
            _ => Ok(()),
        }
    }
}

/// Tells the parent, once.
///
/// # Errors
/// When the parent is gone.
pub fn tell(mut pipe: File, outcome: &Outcome) -> io::Result<()> {
    pipe.write_all(serde_json::to_string(outcome)?.as_bytes())
}

/// Sends standard output and error to the log from here on.
///
/// # Errors
/// When the log cannot be written.
pub fn write_to_log(cell: &CellDir) -> io::Result<()> {
    write_to(&cell.within().join("log"))
}

fn write_to(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|m| m.len() > LOG_BYTES_MAX) {
        std::fs::rename(path, path.with_extension("1"))?;
    }
    let log =
        OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?;
    for fd in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: both descriptors are open.
        if unsafe { libc::dup2(log.as_raw_fd(), fd) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_cannot_reach_the_service_manager_of_its_caller() {
        for role in [Role::Server, Role::Keeper] {
            let command = command(Path::new("lee"), &[], role, 3);
            let socket = command.get_envs().find(|(name, _)| *name == notify::VARIABLE);
            assert_eq!(socket, Some((OsStr::new(notify::VARIABLE), None)), "{role:?}");
        }
    }
}
