//! What the system says: limits, the clock, file systems.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most files that this process may have open.
pub fn open_files_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is valid for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_max
}

/// The least limit of memory of the control groups that this process is in, bytes.
pub fn memory_max() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |group: &Path| {
        let text = fs::read_to_string(Path::new("/sys/fs/cgroup").join(group).join("memory.max")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    Path::new(group).ancestors().filter_map(limit).min()
}

/// Whether a time service keeps the clock; `None`: the kernel does not say.
pub fn clock_is_kept() -> Option<bool> {
    // SAFETY: a struct of numbers, for which zeroes are valid: nothing is to be set.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is valid for the call.
    let state = unsafe { libc::adjtimex(&mut timex) };
    (state >= 0).then_some(timex.status & libc::STA_UNSYNC == 0)
}

/// Whether a program of this name is in the path.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// A file system.
pub struct FileSystem {
    /// Its type, as statfs(2) says.
    pub magic: u64,
    /// Bytes that are free for this user.
    pub free: u64,
    /// Bytes that it has.
    pub total: u64,
    /// Inodes that are free.
    pub free_files: u64,
    /// Inodes that it has; 0: it does not say.
    pub total_files: u64,
    /// Whether nothing can be changed.
    pub read_only: bool,
}

/// The file system that a directory is on.
///
/// # Errors
/// The system's.
pub fn file_system(dir: &Path) -> io::Result<FileSystem> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: a struct of numbers, for which zeroes are valid.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path that ends with 0, and a struct that is valid for the call.
    if unsafe { libc::statfs(path.as_ptr(), &mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let block = found.f_bsize as u64;
    // SAFETY: a path that ends with 0, and no struct.
    let is_refused = unsafe { libc::access(path.as_ptr(), libc::W_OK) } != 0;
    let read_only = is_refused && io::Error::last_os_error().raw_os_error() == Some(libc::EROFS);
    Ok(FileSystem {
        magic: found.f_type as u64,
        free: found.f_bavail.saturating_mul(block),
        total: found.f_blocks.saturating_mul(block),
        free_files: found.f_ffree,
        total_files: found.f_files,
        read_only,
    })
}

/// The options that the file system of a device is mounted with.
pub fn mount_options(device: u64) -> String {
    let wanted = format!("{}:{}", libc::major(device), libc::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&wanted));
    line.and_then(|line| line.rsplit(' ').next()).unwrap_or_default().to_owned()
}
