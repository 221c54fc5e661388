//! `lee up --background`: starts this program again in a session of its own. The child reports
//! through a pipe when the cell is mounted, or why it is not.
//!
//! The child gets the same arguments, so each option means what it means in the foreground. The
//! variable [`VARIABLE`] tells it that it is the child. It inherits only the pipe: its standard input
//! and output are /dev/null until the cell is locked, and `DIR/log` from then on. When the parent is
//! gone and nobody reads the pipe, the child ends.

use crate::fail::{Fail, text};
use crate::locate::{self, CellDir};
use crate::serve::{Started, Startup};
use crate::{logging, output};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The variable that names the descriptor of the pipe to the child.
pub const VARIABLE: &str = "LEE_READY_FD";
/// A larger log is renamed at the next start.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// What the child tells its parent, once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Up(Started),
    Failed { message: String, code: u8 },
}

/// Starts a process in the background that serves the cell; returns when the cell is mounted.
///
/// # Errors
/// The child's.
pub fn start(dir: &Path) -> Result<Started, Fail> {
    let failed = |e: io::Error| Fail::new(format!("cannot start a process in the background: {}", text(&e)));
    let (mut reader, writer) = io::pipe().map_err(failed)?;
    let mut child = spawn(writer.as_raw_fd()).map_err(failed)?;
    drop(writer);
    let mut told = String::new();
    reader.read_to_string(&mut told).map_err(failed)?;
    match serde_json::from_str(&told) {
        Ok(Outcome::Up(started)) => Ok(started),
        Ok(Outcome::Failed { message, code }) => {
            reap(&mut child);
            Err(Fail::new(message).with_code(code))
        }
        Err(_) => {
            let how = child.wait().map_or_else(|e| text(&e), |status| status.to_string());
            let log = log_of(dir);
            Err(Fail::new(format!(
                "the process in the background ended before it was mounted ({how}): see {}, or try without --background",
                log.display()
            )))
        }
    }
}

/// The log of the child, once it has the lock.
fn log_of(dir: &Path) -> PathBuf {
    match dir.to_str().filter(|_| locate::is_bucket(dir.as_os_str())).map(CellDir::in_bucket) {
        Some(Ok(cell)) => cell.log(),
        _ => dir.join("log"),
    }
}

/// Waits until a failed child is gone, so that the lock is free.
fn reap(child: &mut Child) {
    let _ = child.wait();
}

fn spawn(pipe: RawFd) -> io::Result<Child> {
    let mut command = Command::new(myself());
    command.args(std::env::args_os().skip(1)).env(VARIABLE, pipe.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec only system calls are made, which is allowed there.
    unsafe { command.pre_exec(move || alone_with(pipe)) };
    command.spawn()
}

/// Path of this program; of the running one, where the file was replaced meanwhile.
fn myself() -> PathBuf {
    std::env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// Begins a session, and closes all descriptors across the exec but the first three and the pipe.
fn alone_with(pipe: RawFd) -> io::Result<()> {
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
        let Some(named) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let fd: RawFd = named.to_str().and_then(|fd| fd.parse().ok()).unwrap_or(-1);
        // SAFETY: fcntl only asks.
        if fd < 3 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
            return Err(Fail::usage(format!("{VARIABLE} is for `lee up --background` itself")));
        }
        // SAFETY: passed to us by the parent, open, and used by nobody else.
        Ok(Some(ParentPipe { pipe: Some(unsafe { File::from_raw_fd(fd) }) }))
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
        match self.pipe.take().map(|pipe| tell(pipe, &Outcome::Up(started.clone()))) {
            Some(Err(_)) => Err(Fail::new("who started this process is gone: ending")),
            _ => Ok(()),
        }
    }
}

fn tell(mut pipe: File, outcome: &Outcome) -> io::Result<()> {
    pipe.write_all(serde_json::to_string(outcome)?.as_bytes())
}

/// Sends standard output and error to the log from here on.
fn write_to_log(cell: &CellDir) -> io::Result<()> {
    let path = cell.within().join("log");
    if std::fs::metadata(&path).is_ok_and(|m| m.len() > LOG_BYTES_MAX) {
        std::fs::rename(&path, path.with_extension("1"))?;
    }
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    for fd in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: both descriptors are open.
        if unsafe { libc::dup2(log.as_raw_fd(), fd) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
