//! Mounting and unmounting, and saying what is wrong when it cannot be done.
//!
//! What can be known before asking the kernel is checked first, because the kernel's answers
//! (EINVAL, EPERM) do not say which of many things was meant. A mount left behind by a process that
//! died is taken away when it is ours. Root mounts by itself; others through `fusermount3`.

use crate::door::Door;
use crate::kernel::attach::{self, DEVICE, HELPER, MountSpec};
use crate::kernel::{Channel, Device, Rings, Session};
use crate::mountinfo;
use crate::notify::Announcer;
use crate::subdir::show_only;
use leeward_env::Env;
use leeward_vfs::Backend;
use parking_lot::{Condvar, Mutex};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The type shown in mount tables, after `fuse.`.
const SUBTYPE: &str = "leeward";
/// Read-ahead of the mount; the kernel's default of 128 is also the size of each READ.
const READ_AHEAD_KB: &str = "1024";
/// How long an unmount waits for users that are just leaving, in steps.
const BUSY_STEPS: u32 = 10;
const BUSY_STEP: Duration = Duration::from_millis(50);
/// How long an unmount waits for the kernel's threads here to end.
const END_WAIT: Duration = Duration::from_secs(10);
/// Whether mounts may use io_uring, for the whole machine.
const URING_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// How to mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who may use the mount.
    pub access: Access,
    /// What mount tables show as the source: the directory of the cell.
    pub source: PathBuf,
    /// What the mount does not allow.
    pub restrictions: Restrictions,
    /// The directory of the file system that is shown, from its root on; `None`: all. For root
    /// only.
    pub subdir: Option<PathBuf>,
    /// How requests come.
    pub io_uring: IoUring,
    /// Mounts also over a directory with entries, which are hidden then, if no link leads there.
    /// For a mount that comes back: programs may have written below its mount point while it was
    /// away.
    pub may_hide: bool,
}

/// Whether requests come by io_uring or from `/dev/fuse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// By io_uring where the kernel has it. Root turns it on for the machine.
    #[default]
    Auto,
    /// By io_uring, or not at all.
    Always,
    /// From `/dev/fuse`.
    Never,
}

/// What a mount does not allow, as the options of the same names of mount(8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// No changes by way of this mount.
    pub read_only: bool,
    /// Set-user-ID, set-group-ID and file capabilities have no effect. Always so for a mount of an
    /// ordinary user.
    pub no_suid: bool,
    /// Device files cannot be opened. Always so for a mount of an ordinary user.
    pub no_dev: bool,
    /// Programs cannot be run.
    pub no_exec: bool,
}

impl Options {
    /// The usual: everybody if that is allowed.
    pub fn new(source: &Path) -> Options {
        let restrictions = Restrictions::default();
        Options {
            access: Access::Auto,
            source: source.to_path_buf(),
            restrictions,
            subdir: None,
            io_uring: IoUring::Auto,
            may_hide: false,
        }
    }
}

/// Who may use a mount (on top of the permissions of files, which always hold).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody when root mounts or `/etc/fuse.conf` allows it, else the owner.
    Auto,
    /// Only the user who mounts, not even root.
    Owner,
    /// Everybody.
    Everybody,
}

/// Why mounting or unmounting failed. Each message names the thing, the cause and the next step.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// No such directory.
    #[error("{0}: the mount point does not exist; make it with: mkdir -p {0}")]
    Missing(PathBuf),
    /// Something else than a directory.
    #[error("{0}: the mount point is not a directory; name an empty directory")]
    NotADirectory(PathBuf),
    /// A file system is mounted there.
    #[error(
        "{at}: {kind} of {source_name} is already mounted there; end it (umount {at}) or choose another directory"
    )]
    Busy {
        /// Where.
        at: PathBuf,
        /// Type of what is mounted.
        kind: String,
        /// Its source.
        source_name: PathBuf,
    },
    /// A dead mount of another FUSE file system.
    #[error("{0}: a mount whose server is gone is still there; take it away with: umount -l {0}")]
    Dead(PathBuf),
    /// The directory has entries, which would be hidden.
    #[error("{0}: the mount point is not empty and its files would be hidden; choose an empty directory")]
    NotEmpty(PathBuf),
    /// No access to the mount point.
    #[error("{0}: no permission ({1}); choose a directory that you may enter and write to")]
    NoPermission(PathBuf, io::Error),
    /// No FUSE in this kernel or container.
    #[error(
        "/dev/fuse is missing: load the module (modprobe fuse) or, in a container, start it with --device /dev/fuse \
         --cap-add SYS_ADMIN"
    )]
    NoDevice,
    /// /dev/fuse cannot be opened.
    #[error(
        "/dev/fuse cannot be opened ({0}); allow it for this user (chmod 666 /dev/fuse, or the device in the container)"
    )]
    DeviceClosed(io::Error),
    /// fusermount3 is needed and missing.
    #[error(
        "{HELPER} is missing and only root can mount without it: install the package fuse3 (Debian: apt install fuse3)"
    )]
    NoHelper,
    /// Root without the right to mount.
    #[error("{0}: this root may not mount; a container needs --cap-add SYS_ADMIN --device /dev/fuse")]
    NoRight(PathBuf),
    /// Everybody's access was asked for by a user who cannot grant it.
    #[error(
        "access for everybody needs the line user_allow_other in /etc/fuse.conf; add it as root, or mount for yourself"
    )]
    OwnerOnly,
    /// A part of the file system was asked for by a user who cannot mount it.
    #[error("subdir={0}: only root can mount a part of a cell; mount the whole")]
    PartByUser(PathBuf),
    /// A part of the file system was asked for where users log in: nobody has yet who could look
    /// for it.
    #[error("subdir={0}: users of this machine log in after it is mounted; mount the whole")]
    PartOfUsers(PathBuf),
    /// A part of the file system was asked for that cannot be had.
    #[error("subdir={0}: {1}; name a directory by its path in the cell, without symbolic links")]
    NoPart(PathBuf, io::Error),
    /// io_uring was asked for and cannot be had.
    #[error("{0}: the mount option io_uring cannot be met: {1}; mount without it")]
    NoRing(PathBuf, String),
    /// The kernel or fusermount3 refused for another reason.
    #[error("{0}: cannot mount: {1}; the kernel's log (dmesg) may say more")]
    Refused(PathBuf, String),
    /// There is no mount of ours to change.
    #[error("{0}: no cell is mounted there; `lee status` shows where one is")]
    NotOurs(PathBuf),
    /// A user who is not root asks.
    #[error(
        "{0}: only root changes the options of a mount; ask root, or unmount it and mount it with others"
    )]
    ForRoot(PathBuf),
    /// Files are open for writing.
    #[error(
        "{0}: files are open there for writing; see by whom (fuser -vm {0}), and try again when they are closed"
    )]
    InUse(PathBuf),
    /// Unmounting failed.
    #[error("{0}: cannot unmount: {1}; see who uses it (fuser -vm {0}) and try umount -l {0}")]
    Stuck(PathBuf, String),
    /// Another file system lies over ours.
    #[error("{0}: another file system is mounted over this one; unmount that first (umount {0})")]
    Covered(PathBuf),
}

/// How an unmount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody used it any more.
    Clean,
    /// It is gone from the tree; processes that still had files open keep them until this process
    /// ends.
    Detached,
}

/// A mounted file system. Dropping it unmounts.
pub struct Mount {
    env: Env,
    at: PathBuf,
    /// Number of the mount in mount tables.
    id: Option<u64>,
    channel: Channel,
    /// Whether it was unmounted from here.
    unmounted: Mutex<bool>,
    end: Arc<End>,
}

/// Told when the kernel has let go.
#[derive(Default)]
struct End {
    ended: Mutex<bool>,
    told: Condvar,
}

/// Lives as long as the kernel may still call.
pub(crate) struct EndOnDrop(Arc<End>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        *self.0.ended.lock() = true;
        self.0.told.notify_all();
    }
}

/// Mounts what is behind the backend at the directory `at` and starts serving.
///
/// # Errors
/// See [`MountError`]; nothing is left mounted then.
pub fn mount(backend: impl Backend, env: &Env, at: &Path, options: Options) -> Result<Mount, MountError> {
    let at = prepare(at, options.may_hide)?;
    if let Some(subdir) = options.subdir.as_ref().filter(|_| !is_root()) {
        return Err(MountError::PartByUser(subdir.clone()));
    }
    let checked = !backend.checks_rights();
    if let Some(subdir) = options.subdir.as_ref().filter(|_| !checked) {
        return Err(MountError::PartOfUsers(subdir.clone()));
    }
    let others = may_open_to_others(options.access)?;
    if options.io_uring != IoUring::Never {
        turn_on_io_uring();
    }
    let device = attach(&at, &options, (others, checked)).map_err(|e| refused(&at, &e))?;
    let detached = |e: MountError| {
        let _ = unmount_path(&at, Lazily::Yes);
        e
    };
    let end = Arc::new(End::default());
    let session = serve(backend, env, device, (&options, checked, &end));
    let session = session.map_err(|e| detached(MountError::Refused(at.clone(), e.to_string())))?;
    let channel = session.channel().clone();
    if let (IoUring::Always, Channel::Device(why)) = (options.io_uring, &channel) {
        return Err(detached(MountError::NoRing(at.clone(), why.clone())));
    }
    if let Some(subdir) = &options.subdir {
        show_only(&at, subdir).map_err(|e| detached(MountError::NoPart(subdir.clone(), e)))?;
    }
    let mounted = mountinfo::find(&at);
    let id = mounted.as_ref().map(|m| m.id);
    raise_read_ahead(&mounted.map(|m| m.device).unwrap_or_default());
    Ok(Mount { env: env.clone(), at, id, channel, unmounted: Mutex::default(), end })
}

/// Shakes hands with the kernel, starts the threads, and tells the kernel from now on what changes
/// without its doing.
fn serve<B: Backend>(
    backend: B,
    env: &Env,
    device: Device,
    (options, checked, end): (&Options, bool, &Arc<End>),
) -> io::Result<Session> {
    let threads = backend.reading_threads();
    let rings = if options.io_uring == IoUring::Never { Rings::No } else { Rings::Auto };
    let door = Arc::new(Door::new(env, backend.clone(), checked, EndOnDrop(end.clone())));
    let limits = door.limits();
    let for_rings = |door: &Door<B>| Arc::new(door.for_rings());
    let session = Session::start(env, device, (door.clone(), for_rings), (&limits, rings), threads)?;
    let announcer = Arc::new(Announcer::start(env, session.device().clone()));
    door.announce_by(announcer.clone());
    backend.watch(announcer);
    Ok(session)
}

impl Mount {
    /// Where it was mounted (absolute, without symbolic links). A directory above may have been
    /// renamed since.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// How requests come, in words: by io_uring, or from `/dev/fuse` and why.
    pub fn channel(&self) -> String {
        self.channel.to_string()
    }

    /// Whether requests come by io_uring.
    pub fn has_rings(&self) -> bool {
        matches!(self.channel, Channel::Rings { .. })
    }

    /// Whether the kernel still uses it: false after an unmount, from here or by somebody else.
    pub fn is_alive(&self) -> bool {
        !*self.end.ended.lock()
    }

    /// Waits until it is unmounted, from here or by somebody else.
    pub fn wait(&self) {
        let mut ended = self.end.ended.lock();
        while !*ended {
            self.end.told.wait(&mut ended);
        }
    }

    /// Waits so long at most; true when it is unmounted.
    pub fn wait_for(&self, time: Duration) -> bool {
        let mut ended = self.end.ended.lock();
        if !*ended {
            self.end.told.wait_for(&mut ended, time);
        }
        *ended
    }

    /// Unmounts; what is still in use is detached from the tree. Idempotent.
    ///
    /// # Errors
    /// [`MountError::Covered`] and [`MountError::Stuck`]; it stays mounted then.
    pub fn unmount(&self) -> Result<Unmounted, MountError> {
        let mut unmounted = self.unmounted.lock();
        if *unmounted {
            return Ok(Unmounted::Clean);
        }
        let how = self.detach()?;
        *unmounted = true;
        if how == Unmounted::Clean {
            self.wait_for(END_WAIT);
        }
        Ok(how)
    }

    fn detach(&self) -> Result<Unmounted, MountError> {
        for _ in 0..BUSY_STEPS {
            if !self.is_alive() {
                return Ok(Unmounted::Clean);
            }
            let Some(at) = self.at_now()? else {
                return Ok(if self.wait_for(BUSY_STEP) { Unmounted::Clean } else { Unmounted::Detached });
            };
            match unmount_path(&at, Lazily::No) {
                Ok(()) => return Ok(Unmounted::Clean),
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => self.env.sleep(BUSY_STEP),
                Err(e) => return Err(MountError::Stuck(at, e.to_string())),
            }
        }
        let Some(at) = self.at_now()? else { return Ok(Unmounted::Detached) };
        tracing::warn!("{}: still in use; detached from the tree", at.display());
        let stuck = |e: io::Error| MountError::Stuck(at.clone(), e.to_string());
        unmount_path(&at, Lazily::Yes).map_err(stuck)?;
        Ok(Unmounted::Detached)
    }

    /// Where it is mounted now, if anywhere: a directory above may have been renamed.
    fn at_now(&self) -> Result<Option<PathBuf>, MountError> {
        let Some(own) = self.id.and_then(mountinfo::find_id) else { return Ok(None) };
        match mountinfo::find(&own.at) {
            Some(top) if top.id == own.id => Ok(Some(own.at)),
            _ => Err(MountError::Covered(own.at)),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(e) = self.unmount() {
            tracing::error!("{e}");
        }
    }
}

fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Checks what can be known beforehand; returns the path without symbolic links. What is mounted
/// there may die meanwhile.
fn prepare(at: &Path, may_hide: bool) -> Result<PathBuf, MountError> {
    match look(at, may_hide) {
        Err(MountError::NoPermission(_, e)) if is_of_dead(&e) => look(at, may_hide),
        found => found,
    }
}

fn look(at: &Path, may_hide: bool) -> Result<PathBuf, MountError> {
    take_away_dead(at)?;
    let named = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => MountError::Missing(at.into()),
        io::ErrorKind::NotADirectory => MountError::NotADirectory(at.into()),
        _ => MountError::NoPermission(at.into(), e),
    };
    if !std::fs::metadata(at).map_err(named)?.is_dir() {
        return Err(MountError::NotADirectory(at.into()));
    }
    let given = at;
    let at = at.canonicalize().map_err(named)?;
    if let Some(m) = mountinfo::find(&at) {
        return Err(MountError::Busy { at, kind: m.kind, source_name: m.source });
    }
    let mut entries = std::fs::read_dir(&at).map_err(named)?;
    match entries.next() {
        // a link that has come since the mount before may lead anywhere
        Some(_) if may_hide && at == given => {
            tracing::warn!("{}: the mount hides files that are in this directory", at.display())
        }
        Some(_) => return Err(MountError::NotEmpty(at)),
        None => (),
    }
    check_device()?;
    check_user(&at)?;
    Ok(at)
}

/// After a kill -9 the kernel keeps the mount and answers ENOTCONN on it; ECONNABORTED to who asked
/// just before it noticed.
fn is_of_dead(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

fn take_away_dead(at: &Path) -> Result<(), MountError> {
    if !std::fs::metadata(at).is_err_and(|e| is_of_dead(&e)) {
        return Ok(());
    }
    let path = match (at.parent(), at.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            parent.canonicalize().map_or_else(|_| at.to_path_buf(), |p| p.join(name))
        }
        _ => at.to_path_buf(),
    };
    if !mountinfo::find(&path).is_some_and(|m| is_ours(&m)) || unmount_path(&path, Lazily::Yes).is_err() {
        return Err(MountError::Dead(at.into()));
    }
    tracing::info!("{}: took away a mount whose server is gone", path.display());
    Ok(())
}

fn is_ours(mount: &mountinfo::Entry) -> bool {
    mount.kind.strip_prefix("fuse.") == Some(SUBTYPE)
}

fn check_device() -> Result<(), MountError> {
    match std::fs::OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(_) => Ok(()),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ENXIO)) => {
            Err(MountError::NoDevice)
        }
        Err(e) => Err(MountError::DeviceClosed(e)),
    }
}

fn check_user(at: &Path) -> Result<(), MountError> {
    if is_root() {
        return Ok(());
    }
    if !has_helper() {
        return Err(MountError::NoHelper);
    }
    let path = CString::new(at.as_os_str().as_bytes()).unwrap_or_default();
    // SAFETY: a string that ends in NUL.
    if unsafe { libc::access(path.as_ptr(), libc::W_OK) } != 0 {
        return Err(MountError::NoPermission(at.into(), io::Error::last_os_error()));
    }
    Ok(())
}

fn has_helper() -> bool {
    attach::helper().is_some()
}

/// Changes what the mount at `at` does not allow, for the programs that use it, too. For root.
///
/// # Errors
/// [`MountError::NotOurs`] where no mount of ours is, [`MountError::InUse`] when it cannot become
/// read-only now, [`MountError::ForRoot`] for others, [`MountError::Refused`] for other reasons of
/// the kernel.
pub fn remount(at: &Path, restrictions: Restrictions) -> Result<(), MountError> {
    let refused = |e: io::Error| match e.raw_os_error() {
        Some(libc::EBUSY) => MountError::InUse(at.into()),
        Some(libc::EPERM) if !is_root() => MountError::ForRoot(at.into()),
        _ => MountError::Refused(at.into(), e.to_string()),
    };
    let found = at.canonicalize().ok().and_then(|at| mountinfo::find(&at)).filter(is_ours);
    let found = found.ok_or_else(|| MountError::NotOurs(at.into()))?;
    attach::remount(&found.at, mount_flags(restrictions, found.is_checked)).map_err(refused)
}

/// `MS_RDONLY` and the like.
fn mount_flags(restrictions: Restrictions, checked: bool) -> libc::c_ulong {
    let Restrictions { read_only, no_suid, no_dev, no_exec } = restrictions;
    // numbers of the cell mean others here, and the kernel opens devices without asking anybody
    let (no_suid, no_dev) = (no_suid || !checked, no_dev || !checked);
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    flag(read_only, libc::MS_RDONLY)
        | flag(no_suid, libc::MS_NOSUID)
        | flag(no_dev, libc::MS_NODEV)
        | flag(no_exec, libc::MS_NOEXEC)
}

/// Mounts: root by itself, others by the helper.
fn attach(at: &Path, options: &Options, (others, checked): (bool, bool)) -> io::Result<Device> {
    let flags = mount_flags(options.restrictions, checked);
    let spec = MountSpec { subtype: SUBTYPE, source: options.source.as_os_str(), others, checked, flags };
    if !is_root() {
        return attach::mount_by_helper(at, &spec);
    }
    match attach::mount(at, &spec) {
        // a root who may not mount: in a container the helper may be allowed to
        Err(e) if e.raw_os_error() == Some(libc::EPERM) && has_helper() => attach::mount_by_helper(at, &spec),
        result => result,
    }
}

/// Whether others than the mounting user are let in.
fn may_open_to_others(access: Access) -> Result<bool, MountError> {
    match (access, is_root() || users_may_open_to_others()) {
        (Access::Owner, _) | (Access::Auto, false) => Ok(false),
        (Access::Auto | Access::Everybody, true) => Ok(true),
        (Access::Everybody, false) => Err(MountError::OwnerOnly),
    }
}

/// For the whole machine; only root may. Where it is off [`Mount::channel`] says so.
fn turn_on_io_uring() {
    let is_off = std::fs::read_to_string(URING_PARAMETER).is_ok_and(|text| text.trim() == "N");
    if is_off && is_root() {
        match std::fs::write(URING_PARAMETER, "Y") {
            Ok(()) => tracing::info!("turned on FUSE over io_uring for this machine ({URING_PARAMETER})"),
            Err(e) => tracing::info!("{URING_PARAMETER}: {e}"),
        }
    }
}

fn users_may_open_to_others() -> bool {
    let conf = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    conf.lines().any(|l| l.trim() == "user_allow_other")
}

/// The causes left after [`prepare`].
fn refused(at: &Path, e: &io::Error) -> MountError {
    match e.kind() {
        io::ErrorKind::NotFound => MountError::NoRight(at.into()),
        io::ErrorKind::PermissionDenied if !is_root() => MountError::OwnerOnly,
        _ if is_root() && e.raw_os_error() == Some(libc::EPERM) => MountError::NoRight(at.into()),
        _ if is_root() && e.to_string().contains("Operation not permitted") => MountError::NoRight(at.into()),
        _ => MountError::Refused(at.into(), e.to_string().trim().to_string()),
    }
}

/// READs come no larger than this; only root may set it, and all works without.
fn raise_read_ahead(device: &str) {
    let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(e) = std::fs::write(&file, READ_AHEAD_KB) {
        tracing::debug!("{file}: {e}");
    }
}

/// Whether to leave the tree even while in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lazily {
    Yes,
    No,
}

fn unmount_path(at: &Path, lazily: Lazily) -> io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let flags = if lazily == Lazily::Yes { libc::MNT_DETACH } else { 0 };
    // SAFETY: a string that ends in NUL.
    if unsafe { libc::umount2(path.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) } == 0 {
        return Ok(());
    }
    let e = io::Error::last_os_error();
    if e.raw_os_error() == Some(libc::EPERM) { unmount_by_helper(at, lazily) } else { Err(e) }
}

fn unmount_by_helper(at: &Path, lazily: Lazily) -> io::Result<()> {
    let flags = if lazily == Lazily::Yes { "-uz" } else { "-u" };
    let helper = attach::helper().unwrap_or_else(|| HELPER.into());
    let output = Command::new(helper).arg(flags).arg("--").arg(at).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    match (output.status.success(), text.contains("busy")) {
        (true, _) => Ok(()),
        (false, true) => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        (false, false) => Err(io::Error::other(text.trim().to_string())),
    }
}
