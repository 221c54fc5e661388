//! Descriptors of other processes of this machine.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// Opens what a process has open under this number, for reading or for writing: of a pipe an end of
/// our own.
///
/// # Errors
/// The system's: there is no such process or descriptor, or this user may not.
#[allow(clippy::disallowed_methods)]
pub fn open_descriptor(pid: u32, descriptor: i32, write: bool) -> io::Result<File> {
    // a pipe whose other end is not open yet, or no more, is not waited for
    let mut options = File::options();
    options.read(!write).write(write).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = options.open(format!("/proc/{pid}/fd/{descriptor}"))?;
    // SAFETY: our own descriptor, and no memory.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Waits until something can be read, or the end; false: not within that time.
///
/// # Errors
/// The system's.
pub fn wait_readable(file: &File, most: Duration) -> io::Result<bool> {
    let mut look = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor of our own, and memory for one.
    match unsafe { libc::poll(&raw mut look, 1, most.as_millis() as i32) } {
        n if n >= 0 => Ok(n > 0),
        _ => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            e => Err(e),
        },
    }
}
