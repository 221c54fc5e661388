//! mount(2) by root, `fusermount3` for others.

use super::device::Device;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The device that requests come from.
pub(crate) const DEVICE: &str = "/dev/fuse";
/// The setuid program that mounts for ordinary users.
pub(crate) const HELPER: &str = "fusermount3";
/// Names another program in place of the helper.
const HELPER_VARIABLE: &str = "FUSERMOUNT_PATH";
/// Tells the helper where to send the open device.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// What is asked of mount(2).
pub(crate) struct MountSpec<'a> {
    /// What mount tables show after `fuse.`.
    pub(crate) subtype: &'a str,
    /// What mount tables show as the source.
    pub(crate) source: &'a OsStr,
    /// Whether others than the mounting user may use it.
    pub(crate) others: bool,
    /// Whether the kernel checks rights by modes and owners.
    pub(crate) checked: bool,
    /// `MS_RDONLY` and the like.
    pub(crate) flags: libc::c_ulong,
}

/// Mounts with the rights of this process.
///
/// # Errors
/// What the kernel says.
pub(crate) fn mount(at: &Path, spec: &MountSpec<'_>) -> io::Result<Device> {
    let device = File::options().read(true).write(true).open(DEVICE)?;
    let mode = std::fs::metadata(at)?.mode() & libc::S_IFMT;
    // SAFETY: no arguments, cannot fail.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let others = if spec.others { ",allow_other" } else { "" };
    let checked = if spec.checked { ",default_permissions" } else { "" };
    let data = format!(
        "fd={},rootmode={mode:o},user_id={uid},group_id={gid}{checked}{others},subtype={}",
        device.as_raw_fd(),
        spec.subtype,
    );
    let (source, data) = (CString::new(spec.source.as_bytes())?, CString::new(data)?);
    let at = CString::new(at.as_os_str().as_bytes())?;
    // SAFETY: strings that end in NUL.
    let done = unsafe {
        libc::mount(source.as_ptr(), at.as_ptr(), c"fuse".as_ptr(), spec.flags, data.as_ptr().cast())
    };
    if done == 0 { Ok(Device::new(device)) } else { Err(io::Error::last_os_error()) }
}

/// Gives a mount other flags of mount(2).
///
/// # Errors
/// What the kernel says.
pub(crate) fn remount(at: &Path, flags: libc::c_ulong) -> io::Result<()> {
    let at = CString::new(at.as_os_str().as_bytes())?;
    let nothing = std::ptr::null();
    // SAFETY: a string that ends in NUL; the others may be null here.
    let done =
        unsafe { libc::mount(nothing, at.as_ptr(), nothing, flags | libc::MS_REMOUNT, nothing.cast()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the helper mount, and takes the open device from it.
///
/// # Errors
/// `PermissionDenied` when others may not be let in; else with what the helper wrote.
pub(crate) fn mount_by_helper(at: &Path, spec: &MountSpec<'_>) -> io::Result<Device> {
    let (ours, theirs) = UnixStream::pair()?;
    let fd = theirs.as_raw_fd();
    let helper = helper().ok_or_else(|| io::Error::other(format!("{HELPER} is missing")))?;
    let mut command = Command::new(helper);
    command.arg("-o").arg(helper_options(spec)).arg("--").arg(at);
    command.env(SOCKET_VARIABLE, fd.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: fcntl is safe between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let child = command.spawn()?;
    drop(theirs);
    let device = receive(&ours);
    drop(ours);
    let text = String::from_utf8_lossy(&child.wait_with_output()?.stderr).trim().to_string();
    match device? {
        Some(file) => Ok(Device::new(file)),
        None if text.contains("user_allow_other") => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
        }
        None => Err(io::Error::other(text)),
    }
}

/// Where the helper is: what a variable says, or in `PATH`, or in the usual places.
pub(crate) fn helper() -> Option<PathBuf> {
    if let Some(said) = std::env::var_os(HELPER_VARIABLE) {
        return Some(said.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/bin", "/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|dir| dir.join(HELPER)).find(|file| file.exists())
}

fn helper_options(spec: &MountSpec<'_>) -> OsString {
    let checked = if spec.checked { "default_permissions," } else { "" };
    let mut options = OsString::from(format!("{checked}subtype={},fsname=", spec.subtype));
    for byte in spec.source.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            options.push("\\");
        }
        options.push(OsStr::from_bytes(&[*byte]));
    }
    let flags = [(libc::MS_RDONLY, ",ro"), (libc::MS_NOEXEC, ",noexec")];
    for (_, word) in flags.iter().filter(|(flag, _)| spec.flags & flag != 0) {
        options.push(word);
    }
    if spec.others {
        options.push(",allow_other");
    }
    options
}

/// The file that comes over a socket; `None` when the other end was closed without one.
fn receive(socket: &UnixStream) -> io::Result<Option<File>> {
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // of u64: the kernel wants it aligned
    let mut control = [0u64; 8];
    // SAFETY: a structure for which all zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    loop {
        // SAFETY: every pointer in the message is to something that lives until the end of this
        // function.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if got >= 0 {
            break;
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
    // SAFETY: the message was filled by recvmsg; the header that is found lies in `control`.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        if head.is_null() || (*head).cmsg_level != libc::SOL_SOCKET || (*head).cmsg_type != libc::SCM_RIGHTS {
            return Ok(None);
        }
        let fd = libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned();
        Ok(Some(File::from_raw_fd(fd)))
    }
}
