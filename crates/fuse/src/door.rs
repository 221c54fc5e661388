//! One method per request of the kernel: builds the context and the operation and hands over the reply.
//!
//! Called by fuser's threads. Holds no lock over a call. What a reply of the wrong kind would mean (a bug below) is
//! answered EIO.

use crate::convert::{self, BLOCK_BYTES, errno, file_attr, node};
use crate::listing::{Filler, Handles, Listing};
use crate::mount::EndOnDrop;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use leeward_env::{Class, Ctx, Flow, Groups, Wait, limits};
use leeward_fs::{Attr, Error, Make, NodeId, Op, Precondition, Reply, Result, SetAttr};
use leeward_vfs::Gate;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long the kernel may keep names (also absent ones) and attributes. Whatever changes does so through this kernel or
/// is announced to it; the bound only limits what a lost announcement could do.
pub(crate) const TTL: Duration = Duration::from_secs(3600);

/// How long the kernel may keep a name (also an absent one) in this directory.
pub(crate) fn name_ttl(dir: NodeId, name: &[u8]) -> Duration {
    if dir.announces(name) { TTL } else { Duration::ZERO }
}
/// Inode numbers are never used twice.
pub(crate) const GENERATION: Generation = Generation(0);

/// Requests that nobody waits for (read-ahead) in the kernel's queue.
const BACKGROUND_MAX: u16 = 64;
/// Reservations above this size may take a while.
const ALLOCATE_QUICK_BYTES: u64 = 1 << 20;

/// What we ask of the kernel, where it knows it.
///
/// Deliberately absent: ATOMIC_O_TRUNC (there is no OPEN), AUTO_INVAL_DATA (would drop pages at every foreign change of
/// mtime; ours are the only ones), WRITEBACK_CACHE (adds a SETATTR to each create), POSIX_LOCKS and FLOCK_LOCKS (the
/// kernel's own are right while one mount is the only way in), EXPORT_SUPPORT, ASYNC_DIO (after a
/// direct write that nobody waits for, the kernel keeps the pages that buffered readers brought in
/// while it was under way: they stay stale).
const WANTED: [InitFlags; 8] = [
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
];

/// The file system as fuser sees it.
pub(crate) struct Door {
    gate: Gate,
    handles: Handles,
    /// Dropped when the kernel has let go: tells whoever waits for the end of the mount.
    _end: EndOnDrop,
}

impl Door {
    pub(crate) fn new(gate: Gate, end: EndOnDrop) -> Door {
        Door { gate, handles: Handles::default(), _end: end }
    }

    fn list<F: Filler>(&self, req: &Request, ino: INodeNo, fh: FileHandle, cookie: u64, reply: F) {
        let Some(stream) = self.handles.get(fh.0) else { return reply.error(&Error::Invalid) };
        let gate = self.gate.clone();
        Listing { gate, ctx: ctx(req), dir: node(ino), cookie, stream }.answer(reply);
    }

    /// A SETATTR of nothing is what the kernel sends before a write that ends setuid or setgid. The write itself would clear
    /// the bits, too, but its answer carries no mode: without this one the kernel would go on honouring the bits of
    /// its cached mode in exec. The writer need not be the owner, so this is done in root's name.
    fn take_set_ids(&self, ctx: Ctx, node: NodeId, reply: ReplyAttr) {
        let gate = self.gate.clone();
        self.gate.run(ctx, Op::GetAttr { node }, move |result| match result {
            Ok(Reply::Attr(a)) if convert::without_set_ids(a.mode) != a.mode => {
                let set = SetAttr { mode: Some(convert::without_set_ids(a.mode)), ..SetAttr::default() };
                gate.run(Ctx { uid: 0, gid: 0, ..ctx }, Op::SetAttr { node, set }, answer_attr(reply));
            }
            result => answer_attr(reply)(result),
        });
    }
}

fn ctx(req: &Request) -> Ctx {
    Ctx {
        uid: req.uid(),
        gid: req.gid(),
        gids: Groups::default(),
        door: leeward_env::Door::Mount,
        pid: req.pid(),
        flow: Flow { uid: req.uid(), job: 0 },
        class: Class::Interactive,
        wait: Wait::Never,
        refs: true,
    }
}

/// The errno of anything that is not the expected reply.
fn failure(result: Result<Reply>) -> Errno {
    match result {
        Err(e) => errno(&e),
        Ok(other) => {
            tracing::error!("a reply of the wrong kind: {other:?}");
            Errno::EIO
        }
    }
}

/// `name_ttl`: how long the kernel may keep the name.
fn answer_entry(reply: ReplyEntry, name_ttl: Duration) -> impl FnOnce(Result<Reply>) + Send + 'static {
    move |result| match result {
        Ok(Reply::Attr(a)) => reply.entry_with_ttls(&TTL, &name_ttl, &file_attr(&a), GENERATION),
        other => reply.error(failure(other)),
    }
}

fn answer_attr(reply: ReplyAttr) -> impl FnOnce(Result<Reply>) + Send + 'static {
    |result| match result {
        Ok(Reply::Attr(a)) => reply.attr(&TTL, &file_attr(&a)),
        other => reply.error(failure(other)),
    }
}

fn answer_empty(reply: ReplyEmpty) -> impl FnOnce(Result<Reply>) + Send + 'static {
    |result| match result {
        Ok(Reply::Done | Reply::Removed { .. }) => reply.ok(),
        other => reply.error(failure(other)),
    }
}

fn answer_data(reply: ReplyData) -> impl FnOnce(Result<Reply>) + Send + 'static {
    |result| match result {
        Ok(Reply::Data(data)) => reply.data(&data),
        other => reply.error(failure(other)),
    }
}

fn answer_written(reply: ReplyWrite) -> impl FnOnce(Result<Reply>) + Send + 'static {
    |result| match result {
        Ok(Reply::Written(n)) => reply.written(n.min(u32::MAX.into()) as u32),
        other => reply.error(failure(other)),
    }
}

/// A value of an extended attribute, or its size where the caller's buffer is empty.
fn answer_xattr(reply: ReplyXattr, buffer: u32, value: &[u8]) {
    match (buffer as usize, value.len()) {
        (0, len) => reply.size(len as u32),
        (room, len) if len > room => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

/// An absent name is told as an entry without an inode, so that the kernel remembers it.
fn answer_lookup(reply: ReplyEntry, name_ttl: Duration) -> impl FnOnce(Result<Reply>) + Send + 'static {
    move |result| match result {
        Err(Error::NotFound) => reply.entry(&name_ttl, &absent(), GENERATION),
        result => answer_entry(reply, name_ttl)(result),
    }
}

fn absent() -> fuser::FileAttr {
    const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;
    fuser::FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: EPOCH,
        mtime: EPOCH,
        ctime: EPOCH,
        crtime: EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// The kernel asked to create because it knew the name as absent; where it exists after all, ESTALE makes the kernel look
/// again and open what is there with the checks that it skips for a file it believes to have created.
fn answer_create(reply: ReplyCreate, flags: i32) -> impl FnOnce(Result<Reply>) + Send + 'static {
    move |result| match result {
        Ok(Reply::Attr(a)) => created(reply, &a),
        Err(Error::Exists) if flags & libc::O_EXCL == 0 => reply.error(Errno::ESTALE),
        other => reply.error(failure(other)),
    }
}

fn created(reply: ReplyCreate, attr: &Attr) {
    let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
    reply.created(&TTL, &file_attr(attr), GENERATION, FileHandle(0), flags);
}

impl Filesystem for Door {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            if config.add_capabilities(flag).is_err() {
                tracing::info!("this kernel's FUSE lacks {flag:?}");
            }
        }
        // Refusals name the nearest value that works, and the defaults work too.
        let _ = config.set_max_write(limits::WRITE_BYTES_MAX as u32);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let op = Op::Lookup { dir: node(parent), name: name.as_bytes() };
        self.gate.run(ctx(req), op, answer_lookup(reply, name_ttl(node(parent), name.as_bytes())));
    }

    /// fuser calls this for each of a batch, too.
    fn forget(&self, req: &Request, ino: INodeNo, nlookup: u64) {
        self.gate.forget(ctx(req), node(ino), nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.gate.run(ctx(req), Op::GetAttr { node: node(ino) }, answer_attr(reply));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode: mode.map(|m| m & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
        };
        if set == SetAttr::default() {
            return self.take_set_ids(ctx(req), node(ino), reply);
        }
        self.gate.run(ctx(req), Op::SetAttr { node: node(ino), set }, answer_attr(reply));
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.gate.run(ctx(req), Op::ReadLink { node: node(ino) }, answer_data(reply));
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(make) = convert::make(mode, rdev) else { return reply.error(Errno::EINVAL) };
        let op = Op::Make { dir: node(parent), name: name.as_bytes(), make, mode: mode & 0o7777, umask };
        self.gate.run(ctx(req), op, answer_entry(reply, name_ttl(node(parent), name.as_bytes())));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (dir, name) = (node(parent), name.as_bytes());
        let op = Op::Make { dir, name, make: Make::Dir, mode: mode & 0o7777, umask };
        self.gate.run(ctx(req), op, answer_entry(reply, name_ttl(dir, name)));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let op = Op::Unlink { dir: node(parent), name: name.as_bytes(), over: Precondition::Any };
        self.gate.run(ctx(req), op, answer_empty(reply));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let op = Op::RmDir { dir: node(parent), name: name.as_bytes() };
        self.gate.run(ctx(req), op, answer_empty(reply));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (dir, name) = (node(parent), name.as_bytes());
        let make = Make::Symlink(target.as_os_str().as_bytes());
        self.gate.run(
            ctx(req),
            Op::Make { dir, name, make, mode: 0o777, umask: 0 },
            answer_entry(reply, name_ttl(dir, name)),
        );
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = convert::rename_mode(flags) else { return reply.error(Errno::EINVAL) };
        let op = Op::Rename {
            from_dir: node(parent),
            from_name: name.as_bytes(),
            to_dir: node(newparent),
            to_name: newname.as_bytes(),
            mode,
        };
        self.gate.run(ctx(req), op, answer_empty(reply));
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let op = Op::Link { node: node(ino), dir: node(newparent), name: newname.as_bytes() };
        self.gate.run(ctx(req), op, answer_entry(reply, name_ttl(node(newparent), newname.as_bytes())));
    }

    /// Answered once; the kernel then opens, keeps its pages and closes without asking.
    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (dir, name) = (node(parent), name.as_bytes());
        let op = Op::Make { dir, name, make: Make::File, mode: mode & 0o7777, umask };
        self.gate.run(ctx(req), op, answer_create(reply, flags));
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let op = Op::Read { node: node(ino), offset, len: size };
        self.gate.run(ctx(req), op, answer_data(reply));
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let op = Op::Write { node: node(ino), offset, data };
        if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            // the kernel takes pages for clean then, however few were written
            self.gate.run(ctx(req), op, answer_written(reply));
        } else {
            self.gate.run_in_part(ctx(req), op, answer_written(reply));
        }
    }

    /// Answered once; close then costs nothing.
    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.gate.run_waiting(ctx(req), Op::Fsync { node: node(ino) }, answer_empty(reply));
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(self.handles.open()), FopenFlags::empty());
    }

    fn readdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.list(req, ino, fh, offset, reply);
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.list(req, ino, fh, offset, reply);
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.handles.close(fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.fsync(req, ino, fh, datasync, reply);
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.gate.run(ctx(req), Op::StatFs { node: node(ino) }, |result| match result {
            Ok(Reply::StatFs(s)) => {
                let unit = u64::from(BLOCK_BYTES);
                let (total, free) = (s.total_bytes / unit, s.free_bytes / unit);
                let name_max = limits::NAME_BYTES_MAX as u32;
                reply.statfs(
                    total,
                    free,
                    free,
                    s.total_files,
                    s.free_files,
                    BLOCK_BYTES,
                    name_max,
                    BLOCK_BYTES,
                );
            }
            other => reply.error(failure(other)),
        });
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = convert::xattr_mode(flags) else { return reply.error(Errno::EINVAL) };
        let op = Op::SetXattr { node: node(ino), name: name.as_bytes(), value, mode };
        self.gate.run(ctx(req), op, answer_empty(reply));
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let op = Op::GetXattr { node: node(ino), name: name.as_bytes() };
        self.gate.run(ctx(req), op, move |result| match result {
            Ok(Reply::Data(value)) => answer_xattr(reply, size, &value),
            other => reply.error(failure(other)),
        });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.gate.run(ctx(req), Op::ListXattr { node: node(ino) }, move |result| match result {
            Ok(Reply::Names(names)) => {
                let list = names.iter().flat_map(|n| n.iter().copied().chain([0])).collect::<Vec<u8>>();
                answer_xattr(reply, size, &list);
            }
            other => reply.error(failure(other)),
        });
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let op = Op::RemoveXattr { node: node(ino), name: name.as_bytes() };
        self.gate.run(ctx(req), op, answer_empty(reply));
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = convert::allocate(mode) else { return reply.error(Errno::EOPNOTSUPP) };
        let op = Op::Allocate { node: node(ino), offset, len: length, mode };
        if length > ALLOCATE_QUICK_BYTES {
            self.gate.run_waiting(ctx(req), op, answer_empty(reply));
        } else {
            self.gate.run(ctx(req), op, answer_empty(reply));
        }
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Some(what) = convert::seek(whence) else { return reply.error(Errno::EINVAL) };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let op = Op::SeekTo { node: node(ino), offset, what };
        self.gate.run(ctx(req), op, |result| match result {
            Ok(Reply::Offset(at)) => reply.offset(at as i64),
            other => reply.error(failure(other)),
        });
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let op = Op::CopyRange {
            from: node(ino_in),
            from_offset: offset_in,
            to: node(ino_out),
            to_offset: offset_out,
            // The answer is 32 bits wide; a short copy is repeated by the caller.
            len: len.min(1 << 30),
        };
        self.gate.run_waiting(ctx(req), op, answer_written(reply));
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    /// Files are always ready; the kernel stops asking.
    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _req: &Request, _ino: INodeNo, _blocksize: u32, _idx: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }
}
