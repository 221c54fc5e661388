//! A mount that shows one directory of the file system only: the whole is mounted, then that
//! directory of it in its place.
//!
//! The kernel then treats the directory as the root of the mount (`..` leads nowhere else), as with
//! a bind mount. Users can make symbolic links in the file system, so none is followed on the way
//! to the directory.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `struct open_how` of the kernel.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

const RESOLVE_NO_XDEV: u64 = 0x01;
const RESOLVE_NO_SYMLINKS: u64 = 0x04;
const RESOLVE_BENEATH: u64 = 0x08;
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;

/// Puts the directory `subdir` of what is mounted at `at` in its place.
///
/// # Errors
/// `NotFound`, `NotADirectory` and others of the path (a symbolic link in it is one:
/// `FilesystemLoop`); what the kernel says of mounts.
pub(crate) fn show_only(at: &Path, subdir: &Path) -> io::Result<()> {
    let dir = open_beneath(&File::open(at)?, subdir)?;
    let tree = open_tree(&dir)?;
    drop(dir);
    let path = CString::new(at.as_os_str().as_bytes())?;
    // SAFETY: a string that ends in NUL.
    check(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) }.into())?;
    // SAFETY: a valid descriptor and strings that end in NUL.
    let moved = unsafe {
        let (empty, flags) = (c"".as_ptr(), MOVE_MOUNT_F_EMPTY_PATH);
        libc::syscall(libc::SYS_move_mount, tree.as_raw_fd(), empty, libc::AT_FDCWD, path.as_ptr(), flags)
    };
    check(moved).map(drop)
}

fn open_beneath(root: &File, subdir: &Path) -> io::Result<File> {
    let below = subdir.strip_prefix("/").unwrap_or(subdir);
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let path = CString::new(below.as_os_str().as_bytes())?;
    let how = OpenHow {
        flags: (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64,
        mode: 0,
        resolve: RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH,
    };
    // SAFETY: a valid descriptor, a string that ends in NUL, and a structure of the size that is
    // said.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<OpenHow>(),
        )
    };
    owned(fd)
}

fn open_tree(dir: &File) -> io::Result<File> {
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint | libc::AT_EMPTY_PATH as libc::c_uint;
    // SAFETY: a valid descriptor and a string that ends in NUL.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), c"".as_ptr(), flags) })
}

fn owned(fd: libc::c_long) -> io::Result<File> {
    let fd = check(fd)?;
    // SAFETY: a new descriptor, ours alone.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
