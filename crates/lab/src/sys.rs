//! System calls that the standard library lacks, or does not offer as a measurement needs them.

use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The user that works on the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id. There are no supplementary groups.
    pub gid: u32,
}

impl Identity {
    /// Makes the calling thread, and the threads that it starts from now on, act as this user for
    /// good. Only root can do this.
    ///
    /// The kernel knows users by thread. The C library's functions would change all threads of the
    /// process, so that root could not clean up afterwards.
    ///
    /// # Errors
    /// Those of the system calls; `EPERM` for all users other than root.
    pub fn take_on_this_thread(self) -> io::Result<()> {
        let none: *const libc::gid_t = std::ptr::null();
        // SAFETY: plain system calls with numbers and an empty list. Groups go first, while we
        // still may change them.
        let failed = unsafe {
            libc::syscall(libc::SYS_setgroups, 0, none) != 0
                || libc::syscall(libc::SYS_setresgid, self.gid, self.gid, self.gid) != 0
                || libc::syscall(libc::SYS_setresuid, self.uid, self.uid, self.uid) != 0
        };
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that ordinary users may still use.
    pub free_bytes: u64,
    /// Inodes that may still be made; `u64::MAX` if the file system does not count them.
    pub free_files: u64,
}

/// Asks a file system for its free space.
///
/// # Errors
/// Those of the system call.
pub fn space(path: &Path) -> io::Result<Space> {
    let path = c_path(path)?;
    let mut stat = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: a terminated string and room for the result, which is whole if the call succeeds.
    let stat = unsafe {
        if libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        stat.assume_init()
    };
    let counted = stat.f_files > 0;
    Ok(Space {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        free_files: if counted { stat.f_favail } else { u64::MAX },
    })
}

/// Asks the file system itself for a file's attributes, not the kernel's cache. Returns the size.
///
/// # Errors
/// Those of the system call.
pub fn stat_fresh(path: &Path) -> io::Result<u64> {
    let path = c_path(path)?;
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_STATX_FORCE_SYNC | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: as in `space`.
    unsafe {
        if libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, libc::STATX_BASIC_STATS, found.as_mut_ptr()) != 0
        {
            return Err(io::Error::last_os_error());
        }
        Ok(found.assume_init().stx_size)
    }
}

/// Asks the kernel to drop a file's stored data from its cache, so that the next read asks the file
/// system. This is advice: if the kernel does not follow it, reads are faster than they should be.
pub fn forget_data(file: &File) {
    // SAFETY: a valid descriptor and numbers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Processor time of the whole machine since it started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    busy: u64,
    total: u64,
}

impl CpuTimes {
    /// Reads the current values. They are zero if the system does not tell.
    pub fn now() -> CpuTimes {
        CpuTimes::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> CpuTimes {
        let first = stat.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; guests are counted in user.
        let ticks: Vec<u64> =
            first.split_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
        let total: u64 = ticks.iter().sum();
        let waiting: u64 = ticks.iter().skip(3).take(2).sum();
        CpuTimes { busy: total - waiting, total }
    }

    /// The part of all processors' time since `earlier` that was not idle, 0 to 1.
    pub fn busy_since(self, earlier: CpuTimes) -> f64 {
        let total = self.total.saturating_sub(earlier.total);
        let busy = self.busy.saturating_sub(earlier.busy);
        if total == 0 { 0.0 } else { busy as f64 / total as f64 }
    }
}

/// The type and the source of the file system that holds a path, from the kernel's table of mounts:
/// `ext4 on /dev/sda1`.
pub fn file_system(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    find_mount(&mounts, &path).unwrap_or_else(|| "unknown".into())
}

/// Of several mounts on a path the last one counts.
fn find_mount(mounts: &str, path: &Path) -> Option<String> {
    let parsed = mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let at = PathBuf::from(left.split(' ').nth(4)?.replace("\\040", " "));
        let mut rest = right.split(' ');
        Some((at, rest.next()?, rest.next()?))
    });
    let around = parsed.filter(|(at, ..)| path.starts_with(at));
    around
        .max_by_key(|(at, ..)| at.components().count())
        .map(|(_, kind, source)| format!("{kind} on {source}"))
}

/// Number of processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Changes the owner of a file or directory.
///
/// # Errors
/// Those of the system call. Only root may do this.
pub fn give(path: &Path, to: Identity) -> io::Result<()> {
    std::os::unix::fs::chown(path, Some(to.uid), Some(to.gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_parsed() {
        let a = CpuTimes::parse("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 1 1 1\n");
        let b = CpuTimes::parse("cpu  160 0 80 900 60 0 0 0 0 0\n");
        assert_eq!(a, CpuTimes { busy: 150, total: 1000 });
        assert!((b.busy_since(a) - 0.45).abs() < 1e-9);
        assert_eq!(CpuTimes::parse("").busy_since(a), 0.0);
    }

    #[test]
    fn the_innermost_and_last_mount_counts() {
        let table = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /a\\040b rw - tmpfs none rw\n3 1 0:6 / /a\\040b rw shared:1 - fuse x rw\n";
        assert_eq!(find_mount(table, Path::new("/a b/c")).as_deref(), Some("fuse on x"));
        assert_eq!(find_mount(table, Path::new("/a")).as_deref(), Some("ext4 on /dev/a"));
        assert_eq!(find_mount("", Path::new("/")), None);
    }

    #[test]
    fn a_file_system_answers() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(space(dir.path()).expect("statvfs").free_bytes > 0);
        let file = dir.path().join("f");
        std::fs::write(&file, b"12345").expect("write");
        assert_eq!(stat_fresh(&file).expect("statx"), 5);
        assert_eq!(stat_fresh(&dir.path().join("none")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
