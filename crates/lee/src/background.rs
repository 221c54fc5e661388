//! `lee up --background`: this program once more, in a session of its own, which tells through a pipe when it is
//! mounted or why it is not.
//!
//! The child gets the same arguments, and [`VARIABLE`], by which it knows that it is the child: each option means to it what it
//! means in the foreground. It inherits the pipe and nothing else: standard input and output are /dev/null until the cell is locked, and
//! `DIR/log` from then on. Where nobody reads the pipe any more, the child ends again.

use crate::fail::{Fail, text};
use crate::locate::{self, CellDir};
use crate::serve::{Front, Started};
use crate::{logging, output};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The variable that says to `lee up` which descriptor the pipe is.
pub const VARIABLE: &str = "LEE_READY_FD";
/// A log larger than this is put aside at the next start.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// What the child tells its parent, once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Told {
    Up(Started),
    Failed { message: String, code: u8 },
}

/// Starts a process in the background that serves the cell; returns when it is mounted.
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
        Ok(Told::Up(started)) => Ok(started),
        Ok(Told::Failed { message, code }) => {
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

/// Where the child writes once it has the lock.
fn log_of(dir: &Path) -> PathBuf {
    match dir.to_str().filter(|_| locate::is_bucket(dir.as_os_str())).map(CellDir::in_bucket) {
        Some(Ok(cell)) => cell.log(),
        _ => dir.join("log"),
    }
}

/// Waits for a child that has said its last word, so that the lock is free when we return.
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

/// This program: by its path, or, where that was replaced meanwhile, by what runs now.
fn myself() -> PathBuf {
    std::env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// A session of its own, and no descriptor but the first three and the pipe across the exec.
fn alone_with(pipe: RawFd) -> io::Result<()> {
    close_on_exec(3, pipe - 1)?;
    close_on_exec(pipe + 1, RawFd::MAX)?;
    // SAFETY: plain system calls on a descriptor that is open here.
    let failed = unsafe { libc::fcntl(pipe, libc::F_SETFD, 0) != 0 || libc::setsid() < 0 };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Marks a range of descriptors; one by one where the kernel is older than 5.11.
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
pub struct Waiting {
    pipe: Option<File>,
}

impl Waiting {
    /// Takes over the descriptor that the parent named; `None`: this process is no child.
    ///
    /// # Errors
    /// When it is none that somebody could have passed on.
    pub fn if_child() -> Result<Option<Waiting>, Fail> {
        let Some(named) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let fd: RawFd = named.to_str().and_then(|fd| fd.parse().ok()).unwrap_or(-1);
        // SAFETY: fcntl only asks.
        if fd < 3 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
            return Err(Fail::usage(format!("{VARIABLE} is for `lee up --background` itself")));
        }
        // SAFETY: passed to us by the parent, open, and used by nobody else.
        Ok(Some(Waiting { pipe: Some(unsafe { File::from_raw_fd(fd) }) }))
    }

    /// Says why it did not come to be mounted; later failures go to the log.
    pub fn failed(&mut self, fail: &Fail) {
        match self.pipe.take() {
            Some(pipe) => {
                let _ = tell(pipe, &Told::Failed { message: fail.to_string(), code: fail.code() });
            }
            None => output::note(&format!("lee: {fail}")),
        }
    }
}

impl Front for Waiting {
    fn locked(&mut self, cell: &CellDir) -> Result<(), Fail> {
        write_to_log(cell).map_err(|e| Fail::new(format!("{}: {}", cell.log().display(), text(&e))))?;
        logging::start();
        Ok(())
    }

    fn started(&mut self, started: &Started) -> Result<(), Fail> {
        // Keep no directory busy. The paths in use are absolute by now.
        let _ = std::env::set_current_dir("/");
        match self.pipe.take().map(|pipe| tell(pipe, &Told::Up(started.clone()))) {
            Some(Err(_)) => Err(Fail::new("who started this process is gone: ending")),
            _ => Ok(()),
        }
    }
}

fn tell(mut pipe: File, told: &Told) -> io::Result<()> {
    pipe.write_all(serde_json::to_string(told)?.as_bytes())
}

/// From here on what is said goes to the log.
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
