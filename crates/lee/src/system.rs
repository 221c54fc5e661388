//! The few calls of the operating system: host name, users, limits, and whether a process still
//! runs.

use crate::fail::Fail;
use leeward_env::Env;
use leeward_lab::stop::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Raises the soft limit of open files to the hard one: a cell keeps one open per segment and table
/// in use.
pub fn raise_open_files_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is valid for both calls. Without success the old limit stays, which is no
    // error.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// From now on makes files that only their owner can read: a cell contains other people's data,
/// whoever may read it through the mount.
pub fn make_private_files() {
    // SAFETY: takes and returns a number.
    unsafe { libc::umask(0o077) };
}

/// A flag that Ctrl-C, SIGTERM and SIGHUP set. The second signal ends the process at once, without
/// cleaning up.
///
/// # Errors
/// When the system refuses.
pub fn stop_on_signals() -> Result<Stop, Fail> {
    const ENDED_BY_SIGNAL: i32 = 130;
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_conditional_shutdown(signal, ENDED_BY_SIGNAL, flag.clone())
            .and_then(|_| flag::register(signal, flag.clone()))
            .map_err(|e| Fail::new(format!("cannot listen to signals: {}", crate::fail::text(&e))))?;
    }
    Ok(Stop::from_flag(flag))
}

/// Calls `heard` on each Ctrl-C, SIGTERM and SIGHUP, from now on: to be called before anybody is
/// told that the process is there, or a signal could end it with its work half done.
///
/// # Errors
/// When the system refuses.
pub fn on_signals(env: &Env, mut heard: impl FnMut(i32) + Send + 'static) -> Result<(), Fail> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Fail::new(format!("cannot listen to signals: {}", crate::fail::text(&e))))?;
    env.spawn("signals", move || signals.forever().for_each(&mut heard));
    Ok(())
}

/// Whether standard output may still have a reader: false when it is a pipe or terminal whose other
/// end is gone.
pub fn output_has_reader() -> bool {
    let mut poll = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, 0) <= 0 || poll.revents & (libc::POLLERR | libc::POLLHUP) == 0 }
}

/// Lets all signals through, in a child before its exec: its parent may have blocked some, or
/// ignored the ends of its children.
pub fn unblock_signals() {
    // SAFETY: the set is valid for both calls, and all three are allowed between fork and exec.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}

/// This thread gets a processor behind others of this machine. For threads that hold no lock that
/// others wait for.
pub fn work_behind_others() {
    const NICE: i32 = 10;
    // SAFETY: takes numbers; 0 is the thread that calls. Where it is refused, the thread stays as
    // it is.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Makes a pipe hold as much as any user's may: fewer turns between who writes and who reads.
pub fn widen_pipe(pipe: &impl AsRawFd) {
    const BYTES: libc::c_int = 1 << 20;
    // SAFETY: a descriptor that is open, and a number. Where it is refused, the pipe stays as it
    // is.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, BYTES) };
}

/// This machine's name.
pub fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for its length; one byte is kept for the terminator.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    CStr::from_bytes_until_nul(&name).map_or_else(|_| "?".into(), |n| n.to_string_lossy().into_owned())
}

/// The effective user id.
pub fn uid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// The effective group id.
pub fn gid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::getegid() }
}

/// Switches to another user for good. Only root can.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: plain system calls; groups go first, while we still may change them.
    let failed = unsafe {
        libc::setgroups(0, std::ptr::null()) != 0 || libc::setgid(gid) != 0 || libc::setuid(uid) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A user and the group of the user's new files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Finds a user by name or by number. An unknown number stands for itself, as user and as group.
pub fn owner(text: &str) -> Result<Owner, Fail> {
    if let Ok(uid) = text.parse::<u32>() {
        if uid == u32::MAX {
            return Err(Fail::new(format!("user id {uid} is reserved by the system: name another owner")));
        }
        return Ok(passwd(Query::Uid(uid))?.unwrap_or(Owner { uid, gid: uid }));
    }
    let unknown = || {
        Fail::new(format!(
            "no user named `{text}` on this machine: check with `getent passwd`, or give the number"
        ))
    };
    let name = CString::new(text).map_err(|_| unknown())?;
    passwd(Query::Name(&name))?.ok_or_else(unknown)
}

/// The user of this name in the user database.
///
/// # Errors
/// When that does not answer.
pub fn user(name: &str) -> Result<Option<Owner>, Fail> {
    CString::new(name).map_or(Ok(None), |name| passwd(Query::Name(&name)))
}

/// User id and groups of the user of this name, the primary group first.
///
/// # Errors
/// When the user database does not answer.
pub fn user_with_groups(name: &str) -> Result<Option<(u32, Vec<u32>)>, Fail> {
    let Some(owner) = user(name)? else { return Ok(None) };
    let others = groups_named(name, owner.gid).into_iter().filter(|gid| *gid != owner.gid);
    Ok(Some((owner.uid, [owner.gid].into_iter().chain(others).collect())))
}

enum Query<'a> {
    Name(&'a CStr),
    Uid(u32),
}

/// Asks the user database.
fn passwd(query: Query<'_>) -> Result<Option<Owner>, Fail> {
    // SAFETY: an all-zero passwd is a valid value (null pointers and zeros).
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    let mut buffer = vec![0 as libc::c_char; 16 << 10];
    let (space, len) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: entry, buffer and found outlive the call, and the length is the buffer's.
    let errno = unsafe {
        match query {
            Query::Name(name) => libc::getpwnam_r(name.as_ptr(), &mut entry, space, len, &mut found),
            Query::Uid(uid) => libc::getpwuid_r(uid, &mut entry, space, len, &mut found),
        }
    };
    match errno {
        0 if !found.is_null() => Ok(Some(Owner { uid: entry.pw_uid, gid: entry.pw_gid })),
        0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => Ok(None),
        errno => {
            let cause = crate::fail::text(&io::Error::from_raw_os_error(errno));
            Err(Fail::new(format!("the user database does not answer: {cause}")))
        }
    }
}

/// The name of a user whom the user database knows.
pub fn known_user_name(uid: u32) -> Option<String> {
    // SAFETY: as in `passwd`.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    let mut buffer = vec![0 as libc::c_char; 16 << 10];
    // SAFETY: as in `passwd`; pw_name points into the buffer, which is still alive when it is read.
    unsafe {
        let errno = libc::getpwuid_r(uid, &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found);
        if errno != 0 || found.is_null() {
            return None;
        }
        Some(CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned())
    }
}

/// The number of a user; `None` if the name is unknown.
pub fn uid_named(name: &str) -> Result<Option<u32>, Fail> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    Ok(passwd(Query::Name(&name))?.map(|owner| owner.uid))
}

/// The groups of a user, from the user database; none for an unknown user.
pub fn groups_of(uid: u32) -> Vec<u32> {
    let known = passwd(Query::Uid(uid)).ok().flatten();
    let named = known.and_then(|owner| Some((known_user_name(uid)?, owner.gid)));
    named.map_or(Vec::new(), |(name, gid)| groups_named(&name, gid))
}

/// The groups of the user of this name, whose primary group is `gid`.
fn groups_named(name: &str, gid: u32) -> Vec<u32> {
    let Ok(name) = CString::new(name) else { return Vec::new() };
    let mut gids = vec![0; 64];
    loop {
        let mut count = gids.len() as libc::c_int;
        // SAFETY: the buffer has room for `count` groups, and the name ends in NUL.
        let fits = unsafe { libc::getgrouplist(name.as_ptr(), gid, gids.as_mut_ptr(), &mut count) } >= 0;
        let count = count.max(0) as usize;
        if fits || count <= gids.len() {
            gids.truncate(count);
            return gids;
        }
        gids.resize(count, 0);
    }
}

/// Finds a group by name or by number; an unknown number stands for itself.
pub fn group(text: &str) -> Result<u32, Fail> {
    if let Ok(gid) = text.parse::<u32>() {
        return Ok(gid);
    }
    let unknown = || {
        Fail::new(format!(
            "no group named `{text}` on this machine: check with `getent group`, or give the number"
        ))
    };
    let name = CString::new(text).map_err(|_| unknown())?;
    group_entry(|entry, space, len, found| {
        // SAFETY: as in `passwd`.
        unsafe { libc::getgrnam_r(name.as_ptr(), entry, space, len, found) }
    })
    .map(|(gid, _)| gid)
    .ok_or_else(unknown)
}

/// The name of a group that the user database knows.
pub fn known_group_name(gid: u32) -> Option<String> {
    group_entry(|entry, space, len, found| {
        // SAFETY: as in `passwd`.
        unsafe { libc::getgrgid_r(gid, entry, space, len, found) }
    })
    .map(|(_, name)| name)
}

/// Number and name of a group that `ask` finds.
fn group_entry(
    ask: impl FnOnce(*mut libc::group, *mut libc::c_char, usize, *mut *mut libc::group) -> i32,
) -> Option<(u32, String)> {
    // SAFETY: an all-zero group is a valid value (null pointers and zeros).
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // the entry has the members, too
    let mut buffer = vec![0 as libc::c_char; 1 << 20];
    let errno = ask(&mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found);
    if errno != 0 || found.is_null() {
        return None;
    }
    // SAFETY: gr_name points into the buffer, which is still alive.
    let name = unsafe { CStr::from_ptr(entry.gr_name) };
    Some((entry.gr_gid, name.to_string_lossy().into_owned()))
}

/// The groups of the user at the other end of a socket, at most 1,024; none where the system does
/// not say.
pub fn groups_of_peer(stream: &UnixStream) -> Vec<u32> {
    let mut gids = vec![0; 1024];
    let mut len = size_of_val(&gids[..]) as libc::socklen_t;
    // SAFETY: the buffer and its length belong together and outlive the call.
    let failed = unsafe {
        let to = gids.as_mut_ptr().cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, to, &raw mut len)
    };
    gids.truncate(if failed == 0 { len as usize / size_of::<u32>() } else { 0 });
    gids
}

/// A process, held so that its number cannot be reused for another one.
pub struct Process(File);

impl Process {
    /// The process with this number; `None` when there is none.
    pub fn open(pid: u32) -> Option<Process> {
        // SAFETY: pidfd_open takes two integers; a new descriptor is ours alone.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0);
            (fd >= 0).then(|| Process(File::from_raw_fd(fd as i32)))
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The system's; none when it has ended.
    pub fn signal(&self, number: libc::c_int) -> io::Result<()> {
        let none: *const libc::siginfo_t = std::ptr::null();
        // SAFETY: a valid descriptor, and no information to read.
        let failed =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), number, none, 0) } != 0;
        match io::Error::last_os_error() {
            e if failed && e.raw_os_error() != Some(libc::ESRCH) => Err(e),
            _ => Ok(()),
        }
    }

    /// Waits for its end; returns whether it has ended.
    pub fn ended_within(&self, time: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&mut poll, 1, time.as_millis() as libc::c_int) > 0 }
    }
}

/// Whether this process may make files in a directory.
pub fn may_write(dir: &Path) -> bool {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else { return false };
    // SAFETY: a string that ends in NUL.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}
