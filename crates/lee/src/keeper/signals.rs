//! Signals as events that are waited for beside a pipe: the keeper has no threads and no handlers.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::Duration;

/// The signals that a keeper handles. They stay blocked over an exec.
const HANDLED: [libc::c_int; 6] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD, libc::SIGUSR1, libc::SIGUSR2];

/// A signal and the process that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: libc::c_int,
    /// Process id of the sender.
    pub sender: u32,
}

/// The blocked signals, as a descriptor.
#[derive(Debug)]
pub struct Signals(File);

impl Signals {
    /// Blocks the signals; from now on [`Signals::next`] has them.
    ///
    /// # Errors
    /// The system's.
    pub fn block() -> io::Result<Signals> {
        // SAFETY: the set is valid for all calls; a new descriptor is ours alone.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in HANDLED {
                libc::sigaddset(&mut set, signal);
            }
            let fd = match libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) {
                0 => libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK),
                failed => failed,
            };
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Signals(File::from_raw_fd(fd))) }
        }
    }

    /// The next signal that has come.
    pub fn next(&mut self) -> Option<Signal> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        self.0.read_exact(&mut info).ok()?;
        // SAFETY: the kernel fills the whole struct, which is plain data.
        let info: libc::signalfd_siginfo = unsafe { std::ptr::read_unaligned(info.as_ptr().cast()) };
        Some(Signal { number: info.ssi_signo as libc::c_int, sender: info.ssi_pid })
    }

    /// Waits for a signal, for `pipe` to be readable or closed, or for the time to be over.
    pub fn wait(&self, pipe: Option<RawFd>, time: Option<Duration>) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // poll leaves out a negative descriptor
        let mut polls = [entry(self.0.as_raw_fd()), entry(pipe.unwrap_or(-1))];
        let millis = time.map_or(-1, |time| time.as_millis().min(60_000) as libc::c_int + 1);
        // SAFETY: two valid entries.
        unsafe { libc::poll(polls.as_mut_ptr(), 2, millis) };
    }
}

/// The name of a signal that ends processes.
pub fn name(signal: libc::c_int) -> &'static str {
    match signal {
        libc::SIGKILL => "SIGKILL",
        libc::SIGABRT => "SIGABRT",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGILL => "SIGILL",
        libc::SIGFPE => "SIGFPE",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGSYS => "SIGSYS",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGTERM => "SIGTERM",
        libc::SIGINT => "SIGINT",
        libc::SIGHUP => "SIGHUP",
        _ => "another signal",
    }
}
