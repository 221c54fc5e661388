//! Directories, inodes, extended attributes and holes by system calls.
//!
//! A [`Dir`] is an open directory. An [`Inode`] is what one of its names stood for at one moment,
//! held by a descriptor that gives no access (`O_PATH`): what is asked or changed through it
//! concerns this inode, whatever happens to the name. `/proc/self/fd/N` opens such a descriptor
//! for reading or writing, and takes calls that have no form for it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A device that is read by characters.
    CharDevice,
    /// A device that is read by blocks.
    BlockDevice,
}

impl Kind {
    fn of(mode: u32) -> Kind {
        match mode & libc::S_IFMT {
            libc::S_IFDIR => Kind::Directory,
            libc::S_IFLNK => Kind::Symlink,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            libc::S_IFCHR => Kind::CharDevice,
            libc::S_IFBLK => Kind::BlockDevice,
            _ => Kind::File,
        }
    }

    /// The bits of this kind in a mode, for `mknod`.
    pub fn bits(self) -> u32 {
        match self {
            Kind::File => libc::S_IFREG,
            Kind::Directory => libc::S_IFDIR,
            Kind::Symlink => libc::S_IFLNK,
            Kind::Fifo => libc::S_IFIFO,
            Kind::Socket => libc::S_IFSOCK,
            Kind::CharDevice => libc::S_IFCHR,
            Kind::BlockDevice => libc::S_IFBLK,
        }
    }
}

/// A moment, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub secs: i64,
    /// Nanoseconds from there on.
    pub nanos: u32,
}

impl Time {
    /// As one number.
    pub fn as_nanos(self) -> i128 {
        i128::from(self.secs) * 1_000_000_000 + i128::from(self.nanos)
    }

    fn spec(self) -> libc::timespec {
        libc::timespec { tv_sec: self.secs, tv_nsec: self.nanos.into() }
    }
}

/// An inode among all file systems of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// The file system.
    pub dev: u64,
    /// The inode there.
    pub ino: u64,
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Which inode.
    pub id: FileId,
    /// What it is.
    pub kind: Kind,
    /// Its permissions, with setuid, setgid and sticky.
    pub mode: u32,
    /// Its names.
    pub nlink: u64,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The device that it stands for.
    pub rdev: u64,
    /// Its length in bytes.
    pub size: u64,
    /// What is allocated, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
}

impl Stat {
    fn new(s: &libc::stat) -> Stat {
        let time = |secs, nanos: i64| Time { secs, nanos: nanos as u32 };
        Stat {
            id: FileId { dev: s.st_dev, ino: s.st_ino },
            kind: Kind::of(s.st_mode),
            mode: s.st_mode & 0o7777,
            #[allow(clippy::unnecessary_cast)] // narrower on aarch64
            nlink: s.st_nlink as u64,
            uid: s.st_uid,
            gid: s.st_gid,
            rdev: s.st_rdev,
            size: s.st_size as u64,
            blocks: s.st_blocks as u64,
            atime: time(s.st_atime, s.st_atime_nsec),
            mtime: time(s.st_mtime, s.st_mtime_nsec),
            ctime: time(s.st_ctime, s.st_ctime_nsec),
        }
    }

    /// Whether less is allocated than its length asks for.
    pub fn is_sparse(&self) -> bool {
        self.blocks.saturating_mul(512) < self.size
    }

    /// Whether nobody has changed content, attributes or length between two looks.
    pub fn is_unchanged_since(&self, before: &Stat) -> bool {
        (self.size, self.mtime, self.ctime) == (before.size, before.mtime, before.ctime)
    }
}

/// The error that a call left behind, where it returned -1.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor of a successful call belongs to nobody else.
    checked(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn stat_by(call: impl FnOnce(*mut libc::stat) -> libc::c_int) -> io::Result<Stat> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    checked(call(stat.as_mut_ptr()))?;
    // SAFETY: the call has succeeded and filled it.
    Ok(Stat::new(unsafe { stat.assume_init_ref() }))
}

/// Attributes of an open file.
pub fn stat_file(file: &impl AsRawFd) -> io::Result<Stat> {
    // SAFETY: a valid descriptor and room for the result.
    stat_by(|stat| unsafe { libc::fstat(file.as_raw_fd(), stat) })
}

/// Whether this is root.
pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The path of this process by which a descriptor is reached.
fn proc_path(fd: RawFd) -> CString {
    // Digits contain no zero byte.
    CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default()
}

/// A name of a directory, as system calls take it.
///
/// # Errors
/// `EINVAL` when it contains a zero byte.
pub fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

const OPEN_DIR: libc::c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;

impl AsRawFd for Dir {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Dir {
    /// Opens the root of a tree. Only here symbolic links are followed.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let path = c_string(path.as_os_str().as_bytes())?;
        // SAFETY: a string that ends in NUL.
        owned(unsafe { libc::open(path.as_ptr(), OPEN_DIR & !libc::O_NOFOLLOW) }).map(Dir)
    }

    /// The directory that was opened as a file.
    ///
    /// # Errors
    /// `ENOTDIR` when it is none.
    pub fn from_file(file: File) -> io::Result<Dir> {
        match stat_file(&file)?.kind {
            Kind::Directory => Ok(Dir(file.into())),
            _ => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        }
    }

    /// Opens a directory in it.
    ///
    /// # Errors
    /// Those of the system call; `ENOTDIR` or `ELOOP` for anything else.
    pub fn dir(&self, name: &CStr) -> io::Result<Dir> {
        // SAFETY: a string that ends in NUL; as in all calls below.
        owned(unsafe { libc::openat(self.as_raw_fd(), name.as_ptr(), OPEN_DIR) }).map(Dir)
    }

    /// What a name stands for now.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn inode(&self, name: &CStr) -> io::Result<Inode> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        owned(unsafe { libc::openat(self.as_raw_fd(), name.as_ptr(), flags) }).map(Inode)
    }

    /// The directory itself as an inode.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn as_inode(&self) -> io::Result<Inode> {
        self.inode(c".")
    }

    /// Attributes of the directory.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn stat(&self) -> io::Result<Stat> {
        stat_file(self)
    }

    /// When the directory was made, in nanoseconds since 1970, where its file system tells that.
    pub fn birth(&self) -> Option<i64> {
        let file = File::from(self.0.try_clone().ok()?);
        let born = file.metadata().ok()?.created().ok()?;
        born.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos().try_into().ok()
    }

    /// Attributes of what a name stands for; `None` when there is no such name.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn look(&self, name: &CStr) -> io::Result<Option<Stat>> {
        let fd = self.as_raw_fd();
        match stat_by(|stat| unsafe { libc::fstatat(fd, name.as_ptr(), stat, libc::AT_SYMLINK_NOFOLLOW) }) {
            Ok(stat) => Ok(Some(stat)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All names in it, in the order of their bytes.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn names(&self) -> io::Result<Vec<CString>> {
        let mut listing = Listing::open(self)?;
        let mut names = Vec::new();
        while let Some(name) = listing.next_name()? {
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Makes a file for writing, which nobody else may open yet.
    ///
    /// # Errors
    /// Those of the system call; `EEXIST` when the name is taken.
    pub fn make_file(&self, name: &CStr) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        owned(unsafe { libc::openat(self.as_raw_fd(), name.as_ptr(), flags, 0o600) }).map(File::from)
    }

    /// Makes a directory, which nobody else may enter yet.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn make_dir(&self, name: &CStr) -> io::Result<()> {
        checked(unsafe { libc::mkdirat(self.as_raw_fd(), name.as_ptr(), 0o700) }).map(drop)
    }

    /// Makes a FIFO, a socket or a device.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn make_node(&self, name: &CStr, kind: Kind, rdev: u64) -> io::Result<()> {
        checked(unsafe { libc::mknodat(self.as_raw_fd(), name.as_ptr(), kind.bits() | 0o600, rdev) })
            .map(drop)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn make_symlink(&self, name: &CStr, target: &CStr) -> io::Result<()> {
        checked(unsafe { libc::symlinkat(target.as_ptr(), self.as_raw_fd(), name.as_ptr()) }).map(drop)
    }

    /// Gives an inode that has a name in `from` another one here.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn link(&self, name: &CStr, from: &Dir, old: &CStr) -> io::Result<()> {
        checked(unsafe { libc::linkat(from.as_raw_fd(), old.as_ptr(), self.as_raw_fd(), name.as_ptr(), 0) })
            .map(drop)
    }

    /// Gives what a name stands for another name here, which must be free or an empty directory's.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn rename(&self, old: &CStr, new: &CStr) -> io::Result<()> {
        let fd = self.as_raw_fd();
        checked(unsafe { libc::renameat(fd, old.as_ptr(), fd, new.as_ptr()) }).map(drop)
    }

    /// Removes a name that is no directory's.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn remove_file(&self, name: &CStr) -> io::Result<()> {
        checked(unsafe { libc::unlinkat(self.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn remove_dir(&self, name: &CStr) -> io::Result<()> {
        checked(unsafe { libc::unlinkat(self.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) }).map(drop)
    }

    /// Locks the directory among programs that do so, until it is closed. Returns whether nobody
    /// else has the lock; yes where the file system has no locks.
    pub fn lock(&self) -> bool {
        // SAFETY: a valid descriptor and numbers.
        let failed = unsafe { libc::flock(self.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0;
        !failed || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
    }

    /// Gives the lock up, also where a process that was just begun still has the descriptor.
    pub fn unlock(&self) {
        // SAFETY: a valid descriptor and numbers.
        unsafe { libc::flock(self.as_raw_fd(), libc::LOCK_UN) };
    }

    /// Makes the directory durable.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn sync(&self) -> io::Result<()> {
        checked(unsafe { libc::fsync(self.as_raw_fd()) }).map(drop)
    }

    /// Makes the whole file system durable.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn sync_file_system(&self) -> io::Result<()> {
        checked(unsafe { libc::syncfs(self.as_raw_fd()) }).map(drop)
    }
}

/// Reads the names of a directory, by a descriptor of its own.
struct Listing(*mut libc::DIR);

impl Listing {
    fn open(dir: &Dir) -> io::Result<Listing> {
        let again = dir.dir(c".")?;
        // SAFETY: a valid descriptor of a directory.
        let stream = unsafe { libc::fdopendir(again.as_raw_fd()) };
        if stream.is_null() {
            return Err(io::Error::last_os_error());
        }
        // The stream owns the descriptor from now on.
        std::mem::forget(again);
        Ok(Listing(stream))
    }

    fn next_name(&mut self) -> io::Result<Option<CString>> {
        // SAFETY: the stream is open; the entry is valid until the next call.
        unsafe {
            *libc::__errno_location() = 0;
            let entry = libc::readdir(self.0);
            if !entry.is_null() {
                return Ok(Some(CStr::from_ptr((*entry).d_name.as_ptr()).to_owned()));
            }
        }
        match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(0) => Ok(None),
            e => Err(e),
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        // SAFETY: open, and closed once.
        unsafe { libc::closedir(self.0) };
    }
}

/// An inode, held without access to it.
#[derive(Debug)]
pub struct Inode(OwnedFd);

impl AsRawFd for Inode {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Inode {
    /// The inode of an open file.
    ///
    /// # Errors
    /// When there are too many descriptors.
    pub fn of_file(file: &File) -> io::Result<Inode> {
        file.try_clone().map(|file| Inode(file.into()))
    }

    /// Its attributes.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn stat(&self) -> io::Result<Stat> {
        stat_file(self)
    }

    /// Opens it for reading, where possible without a change of its access time. For regular files
    /// and directories: opening a device may do something to it.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn open(&self) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // Only the owner and root may leave access times alone.
        self.open_as(flags | libc::O_NOATIME).or_else(|_| self.open_as(flags))
    }

    /// Opens it for reading and writing.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn open_to_write(&self) -> io::Result<File> {
        self.open_as(libc::O_RDWR | libc::O_CLOEXEC)
    }

    fn open_as(&self, flags: libc::c_int) -> io::Result<File> {
        let path = proc_path(self.as_raw_fd());
        // SAFETY: a string that ends in NUL; as in all calls below.
        owned(unsafe { libc::open(path.as_ptr(), flags) }).map(File::from)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn link_target(&self) -> io::Result<CString> {
        let mut room = vec![0u8; libc::PATH_MAX as usize];
        let fd = self.as_raw_fd();
        // SAFETY: the buffer is valid for its length.
        let length = unsafe { libc::readlinkat(fd, c"".as_ptr(), room.as_mut_ptr().cast(), room.len()) };
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        room.truncate(length as usize);
        c_string(&room)
    }

    /// Gives it to another owner. This takes setuid, setgid and capabilities away.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn give(&self, uid: u32, gid: u32) -> io::Result<()> {
        let fd = self.as_raw_fd();
        checked(unsafe { libc::fchownat(fd, c"".as_ptr(), uid, gid, libc::AT_EMPTY_PATH) }).map(drop)
    }

    /// Sets its permissions. Not for symbolic links, which have none.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        let path = proc_path(self.as_raw_fd());
        checked(unsafe { libc::chmod(path.as_ptr(), mode) }).map(drop)
    }

    /// Sets its times.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn set_times(&self, atime: Time, mtime: Time) -> io::Result<()> {
        let (path, times) = (proc_path(self.as_raw_fd()), [atime.spec(), mtime.spec()]);
        checked(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0) }).map(drop)
    }

    /// The names of its extended attributes, sorted; none where the file system has no such thing.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn attribute_names(&self) -> io::Result<Vec<CString>> {
        let path = proc_path(self.as_raw_fd());
        let listed = grown(|room, size| unsafe { libc::listxattr(path.as_ptr(), room.cast(), size) });
        let list = match listed {
            Err(e) if e.raw_os_error() == Some(libc::ENOTSUP) => Vec::new(),
            listed => listed?,
        };
        let mut names: Vec<CString> =
            list.split(|b| *b == 0).filter(|n| !n.is_empty()).filter_map(|n| CString::new(n).ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The value of an extended attribute; `None` when it has none of this name.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn attribute(&self, name: &CStr) -> io::Result<Option<Vec<u8>>> {
        let path = proc_path(self.as_raw_fd());
        let get =
            |room: *mut u8, size| unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), room.cast(), size) };
        match grown(get) {
            Ok(value) => Ok(Some(value)),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENODATA | libc::ENOTSUP)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn set_attribute(&self, name: &CStr, value: &[u8]) -> io::Result<()> {
        let path = proc_path(self.as_raw_fd());
        // SAFETY: strings that end in NUL, and a value of its length.
        let set =
            unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
        checked(set).map(drop)
    }

    /// Removes an extended attribute, if it is there.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn remove_attribute(&self, name: &CStr) -> io::Result<()> {
        let path = proc_path(self.as_raw_fd());
        match checked(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }) {
            Err(e) if e.raw_os_error() != Some(libc::ENODATA) => Err(e),
            _ => Ok(()),
        }
    }
}

/// The result of a call that fills a buffer of unknown size: asks for the size, then for the bytes,
/// and again if they have become more in between.
fn grown(call: impl Fn(*mut u8, usize) -> isize) -> io::Result<Vec<u8>> {
    let mut room = vec![0u8; 256];
    loop {
        match call(room.as_mut_ptr(), room.len()) {
            length if length >= 0 => {
                room.truncate(length as usize);
                return Ok(room);
            }
            _ => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::ERANGE) => {
                    let needed = call(std::ptr::null_mut(), 0).max(0) as usize;
                    room = vec![0u8; needed.max(room.len() * 2)];
                }
                e => return Err(e),
            },
        }
    }
}

/// The flags of an open file that `lsattr` shows; none where the file system has no such thing.
pub fn inode_flags(file: &impl AsRawFd) -> u32 {
    const GET_FLAGS: libc::c_ulong = 0x8008_6601;
    let mut flags: libc::c_long = 0;
    // SAFETY: a valid descriptor and room for the result.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), GET_FLAGS as _, &raw mut flags) };
    if result == 0 { flags as u32 } else { 0 }
}

/// Where a file has data: pairs of offset and length in order, up to `size`. A file system that
/// knows no holes has one range.
///
/// # Errors
/// Those of the system calls.
pub fn data_ranges(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let seek = |from: u64, whence| {
        // SAFETY: a valid descriptor and numbers.
        let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, whence) };
        if at < 0 { Err(io::Error::last_os_error()) } else { Ok(at as u64) }
    };
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(at, libc::SEEK_DATA) {
            Ok(start) => start,
            // nothing but a hole from there on
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => break,
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(vec![(0, size)]),
            Err(e) => return Err(e),
        };
        if start >= size {
            break;
        }
        let end = seek(start, libc::SEEK_HOLE)?.min(size);
        ranges.push((start, end - start));
        at = end;
    }
    Ok(ranges)
}

/// Major and minor number of a device.
pub fn device_numbers(rdev: u64) -> (u32, u32) {
    (libc::major(rdev), libc::minor(rdev))
}
