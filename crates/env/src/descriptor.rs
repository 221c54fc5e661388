//! Descriptors of other processes of this machine.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Opens what a process has open under this number, for reading or for writing: of a pipe an end of our own.
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
