//! Random steps by system calls on a mounted file system, compared with the model.
//!
//!     cargo run -p leeward-model --example mounted -- DIR [--seed N] [--steps N] [--times] [--strict]
//!         [--unit BYTES] [--file-max BYTES] [--replay FILE]
//!
//! With `--times` it is checked which times each step changes (their grain must be fine). With
//! `--unit` the allocated blocks are compared, too: data rounded out to so many bytes, and nothing
//! else. Works in a new directory `DIR/model-SEED`, and removes it after a success. Needs root
//! (chown, device nodes). `--strict` adds what Leeward promises and others do not: large
//! attributes, files of 16 TiB to the byte. `Mounted` turns the operations back into system calls:
//! an inode number stands for an O_PATH descriptor, which is kept while the inode has a name or is
//! held.
#![allow(clippy::disallowed_methods)]

use leeward_env::{Ctx, limits};
use leeward_fs::{
    Allocate, Attr, Entry, Error, InodeFlags, Kind, Make, NodeId, Op, RenameMode, Reply, Result, Seek,
    SetAttr, SetTime, Time, XattrMode,
};
use leeward_model::Profile;
use leeward_model::content::Allocation;
use leeward_model::generate::Generator;
use leeward_model::harness::{Harness, Target};
use leeward_model::step::Step;
use leeward_model::text;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirEntryExt, FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory of a mounted file system.
struct Mounted {
    root: NodeId,
    allocation: Allocation,
    times: bool,
    nodes: RefCell<BTreeMap<u64, OwnedFd>>,
}

fn error_of(e: io::Error) -> Error {
    let code = e.raw_os_error().unwrap_or(libc::EIO);
    match code {
        // what a system call answers for what the model calls otherwise
        libc::ENODEV | libc::ESPIPE | libc::EBADF => Error::Invalid,
        libc::EXDEV => Error::CrossVolume,
        libc::ENOENT => Error::NotFound,
        libc::EEXIST => Error::Exists,
        libc::ENOTDIR => Error::NotDir,
        libc::EISDIR => Error::IsDir,
        libc::ENOTEMPTY => Error::NotEmpty,
        libc::EPERM => Error::NotPermitted,
        libc::EINVAL => Error::Invalid,
        libc::ENAMETOOLONG => Error::NameTooLong,
        libc::EFBIG => Error::TooBig,
        libc::ENOSPC => Error::NoSpace,
        libc::ENODATA => Error::NoData,
        libc::ERANGE => Error::Range,
        libc::E2BIG => Error::AttrTooBig,
        libc::ENXIO => Error::NoSuchPosition,
        libc::EOPNOTSUPP => Error::NotSupported,
        libc::EAGAIN => Error::WouldBlock,
        libc::ESTALE => Error::Stale,
        libc::EMLINK => Error::TooManyLinks,
        _ => Error::Io(e.to_string()),
    }
}

fn check(r: i64) -> Result<u64> {
    u64::try_from(r).map_err(|_| error_of(io::Error::last_os_error()))
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Error::Invalid)
}

fn offset_of(offset: u64) -> Result<i64> {
    i64::try_from(offset).map_err(|_| Error::TooBig)
}

impl Mounted {
    fn new(dir: &Path, allocation: Allocation, times: bool) -> io::Result<Mounted> {
        let file = File::open(dir)?;
        let ino = file.metadata()?.ino();
        let nodes = RefCell::new(BTreeMap::from([(ino, OwnedFd::from(file))]));
        Ok(Mounted { root: NodeId(ino), allocation, times, nodes })
    }

    fn fd(&self, node: NodeId) -> Result<i32> {
        self.nodes.borrow().get(&node.0).map(AsRawFd::as_raw_fd).ok_or(Error::Stale)
    }

    /// A path by which the inode itself is reached.
    fn proc_path(&self, node: NodeId) -> Result<PathBuf> {
        Ok(PathBuf::from(format!("/proc/self/fd/{}", self.fd(node)?)))
    }

    fn proc_c(&self, node: NodeId) -> Result<CString> {
        c_string(self.proc_path(node)?.as_os_str().as_encoded_bytes())
    }

    /// The inode, open for reading or for both. Only regular files are opened: a pipe would block.
    fn open(&self, node: NodeId, write: bool) -> Result<File> {
        match self.stat(node)?.kind {
            Kind::File => {}
            Kind::Dir => return Err(Error::IsDir),
            _ => return Err(Error::Invalid),
        }
        let path = self.proc_path(node)?;
        fs::OpenOptions::new().read(true).write(write).open(path).map_err(error_of)
    }

    fn stat(&self, node: NodeId) -> Result<Attr> {
        // SAFETY: plain old data, filled by the call below.
        let mut s: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a valid descriptor, an empty path, a valid buffer.
        check(unsafe { libc::fstatat(self.fd(node)?, c"".as_ptr(), &mut s, libc::AT_EMPTY_PATH) }.into())?;
        Ok(attr_of(&s))
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Reply> {
        if self.stat(dir)?.kind != Kind::Dir {
            return Err(Error::NotDir);
        }
        let name = c_string(name)?;
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: a valid descriptor and path.
        let fd = check(unsafe { libc::openat(self.fd(dir)?, name.as_ptr(), flags) }.into())?;
        // SAFETY: just opened, owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        // SAFETY: as in `stat`.
        let mut s: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: as in `stat`.
        check(unsafe { libc::fstatat(fd.as_raw_fd(), c"".as_ptr(), &mut s, libc::AT_EMPTY_PATH) }.into())?;
        self.nodes.borrow_mut().entry(s.st_ino).or_insert(fd);
        Ok(Reply::Attr(attr_of(&s)))
    }

    fn make(&self, dir: NodeId, name: &[u8], make: Make<'_>, mode: u32) -> Result<Reply> {
        let (fd, c_name) = (self.fd(dir)?, c_string(name)?);
        let path = c_name.as_ptr();
        if self.stat(dir)?.kind != Kind::Dir {
            return Err(Error::NotDir);
        }
        let node = |kind: u32, rdev: u32| {
            // SAFETY: a valid descriptor and path.
            unsafe { libc::mknodat(fd, path, kind | mode, rdev.into()) }
        };
        let r = match make {
            Make::File => node(libc::S_IFREG, 0),
            Make::Fifo => node(libc::S_IFIFO, 0),
            Make::Socket => node(libc::S_IFSOCK, 0),
            Make::CharDev(rdev) => node(libc::S_IFCHR, rdev),
            Make::BlockDev(rdev) => node(libc::S_IFBLK, rdev),
            // SAFETY: a valid descriptor and path.
            Make::Dir => unsafe { libc::mkdirat(fd, path, mode) },
            // SAFETY: a valid descriptor and paths.
            Make::Symlink(to) => unsafe { libc::symlinkat(c_string(to)?.as_ptr(), fd, path) },
        };
        check(r.into())?;
        self.lookup(dir, name)
    }

    fn link(&self, node: NodeId, dir: NodeId, name: &[u8]) -> Result<Reply> {
        let (from, fd, to) = (self.proc_c(node)?, self.fd(dir)?, c_string(name)?);
        let flags = libc::AT_SYMLINK_FOLLOW;
        // SAFETY: valid descriptors and paths.
        check(unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), fd, to.as_ptr(), flags) }.into())?;
        self.stat(node).map(Reply::Attr)
    }

    fn remove(&self, dir: NodeId, name: &[u8], flags: i32) -> Result<Reply> {
        let node = match self.lookup(dir, name)? {
            Reply::Attr(attr) => attr.node,
            other => return Ok(other),
        };
        let c_name = c_string(name)?;
        // SAFETY: a valid descriptor and path.
        check(unsafe { libc::unlinkat(self.fd(dir)?, c_name.as_ptr(), flags) }.into())?;
        Ok(Reply::Removed { node, nlink: self.stat(node)?.nlink })
    }

    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), mode: RenameMode) -> Result<Reply> {
        let flags = match mode {
            RenameMode::Replace => 0,
            RenameMode::NoReplace => libc::RENAME_NOREPLACE,
            RenameMode::Exchange => libc::RENAME_EXCHANGE,
        };
        let (a, b) = (c_string(from.1)?, c_string(to.1)?);
        let (a_dir, b_dir) = (self.fd(from.0)?, self.fd(to.0)?);
        // SAFETY: valid descriptors and paths.
        check(unsafe { libc::renameat2(a_dir, a.as_ptr(), b_dir, b.as_ptr(), flags) }.into())?;
        Ok(Reply::Done)
    }

    fn set_attr(&self, node: NodeId, set: SetAttr) -> Result<Reply> {
        let path = self.proc_c(node)?;
        if let Some(size) = set.size {
            let (file, size) = (self.open(node, true)?, offset_of(size)?);
            // SAFETY: a valid descriptor.
            check(unsafe { libc::ftruncate(file.as_raw_fd(), size) }.into())?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.unwrap_or(u32::MAX), set.gid.unwrap_or(u32::MAX));
            let fd = self.fd(node)?;
            // SAFETY: a valid descriptor and an empty path.
            check(unsafe { libc::fchownat(fd, c"".as_ptr(), uid, gid, libc::AT_EMPTY_PATH) }.into())?;
        }
        if let Some(mode) = set.mode {
            // SAFETY: a valid path.
            check(unsafe { libc::chmod(path.as_ptr(), mode) }.into())?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times = [spec(set.atime), spec(set.mtime)];
            // SAFETY: a valid path and two times.
            check(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0) }.into())?;
        }
        self.stat(node).map(Reply::Attr)
    }

    fn allocate(&self, node: NodeId, offset: u64, len: u64, mode: Allocate) -> Result<Reply> {
        let keep = |keep_size| if keep_size { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
        let mode = match mode {
            Allocate::Reserve { keep_size } => keep(keep_size),
            Allocate::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            Allocate::ZeroRange { keep_size } => libc::FALLOC_FL_ZERO_RANGE | keep(keep_size),
        };
        let file = self.open(node, true)?;
        // SAFETY: a valid descriptor.
        check(
            unsafe { libc::fallocate(file.as_raw_fd(), mode, offset_of(offset)?, offset_of(len)?) }.into(),
        )?;
        Ok(Reply::Done)
    }

    fn copy(&self, from: (NodeId, u64), to: (NodeId, u64), len: u64) -> Result<Reply> {
        let (source, target) = (self.open(from.0, false)?, self.open(to.0, true)?);
        let (mut at, mut to) = (offset_of(from.1)?, offset_of(to.1)?);
        let (a, b) = (source.as_raw_fd(), target.as_raw_fd());
        // SAFETY: valid descriptors and offsets.
        let n = check(unsafe { libc::copy_file_range(a, &mut at, b, &mut to, len as usize, 0) } as i64)?;
        Ok(Reply::Written(n))
    }

    fn list(&self, dir: NodeId, after: &[u8], limit: usize, attrs: bool) -> Result<Reply> {
        if self.stat(dir)?.kind != Kind::Dir {
            return Err(Error::NotDir);
        }
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.proc_path(dir)?).map_err(error_of)? {
            let entry = entry.map_err(error_of)?;
            let name: Box<[u8]> = entry.file_name().as_encoded_bytes().into();
            let kind = kind_of(entry.file_type().map_err(error_of)?);
            entries.push(Entry { name, node: NodeId(entry.ino()), kind, attr: None });
        }
        entries.retain(|e| &*e.name > after);
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.truncate(limit);
        for entry in &mut entries {
            if let (true, Reply::Attr(attr)) = (attrs, self.lookup(dir, &entry.name)?) {
                entry.attr = Some(attr);
            }
        }
        Ok(Reply::Entries(entries))
    }

    fn get_xattr(&self, node: NodeId, name: &[u8]) -> Result<Reply> {
        let (path, name) = (self.proc_c(node)?, c_string(name)?);
        let mut value = vec![0u8; 1 << 17];
        // SAFETY: valid paths and a buffer of that length.
        let n = check(unsafe {
            libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
        } as i64)?;
        value.truncate(n as usize);
        Ok(Reply::Data(value))
    }

    fn list_xattr(&self, node: NodeId) -> Result<Reply> {
        let path = self.proc_c(node)?;
        let mut names = vec![0u8; 1 << 16];
        // SAFETY: a valid path and a buffer of that length.
        let n =
            check(unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) } as i64)?;
        names.truncate(n as usize);
        let names = names.split(|&b| b == 0).filter(|n| n.starts_with(b"user."));
        Ok(Reply::Names(names.map(Into::into).collect()))
    }

    fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<Reply> {
        let flags = match mode {
            XattrMode::Set => 0,
            XattrMode::Create => libc::XATTR_CREATE,
            XattrMode::Replace => libc::XATTR_REPLACE,
        };
        let (path, name) = (self.proc_c(node)?, c_string(name)?);
        // SAFETY: valid paths, and a value of that length.
        let r = unsafe {
            libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags)
        };
        check(r.into()).map(|_| Reply::Done)
    }

    fn fsync(&self, node: NodeId) -> Result<Reply> {
        if let Kind::File | Kind::Dir = self.stat(node)?.kind {
            File::open(self.proc_path(node)?).and_then(|f| f.sync_all()).map_err(error_of)?;
        }
        Ok(Reply::Done)
    }

    /// Gives up descriptors of what has lost its names, unless it is held.
    fn forget_unnamed(&self, held: impl Fn(NodeId) -> bool) {
        let gone = |ino| self.stat(NodeId(ino)).is_ok_and(|a| a.nlink == 0);
        let inodes: Vec<u64> = self.nodes.borrow().keys().copied().collect();
        for ino in inodes {
            if gone(ino) && !held(NodeId(ino)) {
                self.nodes.borrow_mut().remove(&ino);
            }
        }
    }
}

fn spec(time: Option<SetTime>) -> libc::timespec {
    match time {
        None => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        Some(SetTime::Now) => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
        Some(SetTime::To(t)) => libc::timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() },
    }
}

fn attr_of(s: &libc::stat) -> Attr {
    let kind = match s.st_mode & libc::S_IFMT {
        libc::S_IFREG => Kind::File,
        libc::S_IFDIR => Kind::Dir,
        libc::S_IFLNK => Kind::Symlink,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFSOCK => Kind::Socket,
        libc::S_IFCHR => Kind::CharDev,
        _ => Kind::BlockDev,
    };
    let time = |secs, nanos| Time { secs, nanos: nanos as u32 };
    Attr {
        node: NodeId(s.st_ino),
        kind,
        mode: s.st_mode & 0o7777,
        uid: s.st_uid,
        gid: s.st_gid,
        nlink: s.st_nlink as u32,
        rdev: s.st_rdev as u32,
        size: s.st_size as u64,
        blocks: s.st_blocks as u64,
        atime: time(s.st_atime, s.st_atime_nsec),
        mtime: time(s.st_mtime, s.st_mtime_nsec),
        ctime: time(s.st_ctime, s.st_ctime_nsec),
        btime: Time::default(),
        flags: InodeFlags::default(),
    }
}

fn kind_of(t: fs::FileType) -> Kind {
    match () {
        () if t.is_dir() => Kind::Dir,
        () if t.is_symlink() => Kind::Symlink,
        () if t.is_fifo() => Kind::Fifo,
        () if t.is_socket() => Kind::Socket,
        () if t.is_char_device() => Kind::CharDev,
        () if t.is_block_device() => Kind::BlockDev,
        () => Kind::File,
    }
}

impl Target for Mounted {
    fn call(&self, _ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        match op {
            Op::Lookup { dir, name } => self.lookup(dir, name),
            Op::GetAttr { node } => self.stat(node).map(Reply::Attr),
            Op::SetAttr { node, set } => self.set_attr(node, set),
            Op::ReadLink { node } => {
                if self.stat(node)?.kind != Kind::Symlink {
                    return Err(Error::Invalid);
                }
                let mut target = vec![0u8; limits::SYMLINK_BYTES_MAX + 1];
                let (fd, path) = (self.fd(node)?, c"".as_ptr());
                // SAFETY: a valid descriptor and a buffer of that length.
                let n = unsafe { libc::readlinkat(fd, path, target.as_mut_ptr().cast(), target.len()) };
                target.truncate(check(n as i64)? as usize);
                Ok(Reply::Data(target))
            }
            Op::Make { dir, name, make, mode, umask } => self.make(dir, name, make, mode & !umask),
            // a mount has no such requests
            Op::MakeUnnamed { .. }
            | Op::Place { .. }
            | Op::BeginUpload { .. }
            | Op::KeepPart { .. }
            | Op::CompleteUpload { .. }
            | Op::EndUpload { .. }
            | Op::GetUpload { .. }
            | Op::ListParts { .. }
            | Op::ListUploads { .. }
            | Op::StatUploads { .. }
            | Op::ContentVersions { .. } => Err(Error::NotSupported),
            Op::Link { node, dir, name } => self.link(node, dir, name),
            Op::Unlink { dir, name, .. } => self.remove(dir, name, 0),
            Op::RmDir { dir, name } => self.remove(dir, name, libc::AT_REMOVEDIR),
            Op::Rename { from_dir, from_name, to_dir, to_name, mode } => {
                self.rename((from_dir, from_name), (to_dir, to_name), mode)
            }
            Op::Read { node, offset, len } => {
                let mut data = vec![0; len as usize];
                let n = self.open(node, false)?.read_at(&mut data, offset).map_err(error_of)?;
                data.truncate(n);
                Ok(Reply::Data(data))
            }
            Op::Write { node, offset, data } => {
                let n = self.open(node, true)?.write_at(data, offset).map_err(error_of)?;
                Ok(Reply::Written(n as u64))
            }
            Op::Append { node, data } => {
                let file = self.open(node, true)?;
                let end = file.metadata().map_err(error_of)?.len();
                let n = file.write_at(data, end).map_err(error_of)?;
                Ok(Reply::Written(n as u64))
            }
            Op::Fsync { node } => self.fsync(node),
            Op::SyncAll => {
                // SAFETY: a valid descriptor.
                check(unsafe { libc::syncfs(self.fd(self.root)?) }.into()).map(|_| Reply::Done)
            }
            Op::Allocate { node, offset, len, mode } => self.allocate(node, offset, len, mode),
            Op::SeekTo { node, offset, what } => {
                let whence = if what == Seek::Data { libc::SEEK_DATA } else { libc::SEEK_HOLE };
                let file = self.open(node, false)?;
                // SAFETY: a valid descriptor.
                let at = unsafe { libc::lseek(file.as_raw_fd(), offset_of(offset)?, whence) };
                check(at).map(Reply::Offset)
            }
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy((from, from_offset), (to, to_offset), len)
            }
            Op::List { dir, after, limit, attrs } => self.list(dir, after, limit, attrs),
            Op::GetXattr { node, name } => self.get_xattr(node, name),
            Op::ListXattr { node } if matches!(self.stat(node)?.kind, Kind::File | Kind::Dir) => {
                self.list_xattr(node)
            }
            Op::ListXattr { .. } => Ok(Reply::Names(Vec::new())),
            Op::SetXattr { node, name, value, mode } => self.set_xattr(node, name, value, mode),
            Op::RemoveXattr { node, name } => {
                let (path, name) = (self.proc_c(node)?, c_string(name)?);
                // SAFETY: valid paths.
                check(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }.into()).map(|_| Reply::Done)
            }
            Op::StatFs { .. } => Ok(Reply::StatFs(Default::default())),
            Op::Forget { .. } => Ok(Reply::Done),
        }
    }

    fn root(&self) -> NodeId {
        self.root
    }

    fn allocation(&self) -> Allocation {
        self.allocation
    }

    fn exact_times(&self) -> bool {
        self.times
    }

    fn has_snapshots(&self) -> bool {
        false
    }
}

const USAGE: &str = "usage: mounted DIR [--seed N] [--steps N] [--times] [--strict] \
    [--unit BYTES] [--file-max BYTES] [--replay FILE]";

struct Arguments {
    dir: PathBuf,
    seed: u64,
    steps: usize,
    allocation: Allocation,
    replay: Option<PathBuf>,
    strict: bool,
    times: bool,
    file_bytes_max: u64,
}

fn arguments() -> std::result::Result<Arguments, String> {
    let mut args = std::env::args().skip(1);
    let mut out = Arguments {
        dir: args.next().ok_or(USAGE)?.into(),
        seed: 1,
        steps: 2000,
        allocation: Allocation::Unknown,
        replay: None,
        strict: false,
        times: false,
        file_bytes_max: 1 << 43,
    };
    while let Some(flag) = args.next() {
        if flag == "--strict" {
            out.strict = true;
            continue;
        }
        if flag == "--times" {
            out.times = true;
            continue;
        }
        let value = args.next().ok_or(format!("{flag} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|e| format!("{flag} {value}: {e}"));
        match flag.as_str() {
            "--seed" => out.seed = number()?,
            "--steps" => out.steps = number()? as usize,
            "--file-max" => out.file_bytes_max = number()?,
            "--unit" => out.allocation = Allocation::Units(number()?),
            "--replay" => out.replay = Some(value.into()),
            _ => return Err(format!("{flag}: unknown")),
        }
    }
    Ok(out)
}

fn main() -> std::result::Result<(), String> {
    let args = arguments()?;
    let dir = args.dir.join(format!("model-{}", args.seed));
    fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    // SAFETY: no pointers; the umask of this process only.
    unsafe { libc::umask(0) };
    let mut steps = Vec::new();
    run(&args, &dir, &mut steps)
        .map_err(|e| format!("seed {}, step {}: {e}\n{}", args.seed, steps.len(), text::print(&steps)))?;
    fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    println!("seed {}: {} steps agree", args.seed, steps.len());
    Ok(())
}

fn run(args: &Arguments, dir: &Path, done: &mut Vec<Step>) -> std::result::Result<(), String> {
    let target = Mounted::new(dir, args.allocation, args.times).map_err(|e| e.to_string())?;
    let mut harness = Harness::new(target)?;
    let mut next = source(args)?;
    while let Some(step) = next(&harness.model) {
        done.push(step.clone());
        harness.step(&step)?;
        let held: Vec<NodeId> = harness.held().collect();
        harness.target.forget_unnamed(|node| held.contains(&node));
        if done.len().is_multiple_of(100) || args.replay.is_some() {
            harness.compare()?;
        }
    }
    harness.compare()
}

/// Where the steps come from: a file or a seed.
type Source = Box<dyn FnMut(&leeward_model::Model) -> Option<Step>>;

fn source(args: &Arguments) -> std::result::Result<Source, String> {
    if let Some(file) = &args.replay {
        let lines = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let mut steps = text::parse(&lines)?.into_iter();
        return Ok(Box::new(move |_| steps.next()));
    }
    let profile = Profile { users: false, reopen: false, unnamed: false, ..Profile::default() };
    let modest = Profile { xattr_bytes_max: 500, file_bytes_max: args.file_bytes_max, ..profile };
    let mut generator = Generator::new(args.seed, if args.strict { profile } else { modest });
    let mut left = args.steps;
    Ok(Box::new(move |model| {
        left = left.checked_sub(1)?;
        Some(generator.step(model))
    }))
}
