//! The kernel's requests on a [`Tree`]. Nothing is cached in the kernel, so that a cut is seen at
//! once.

use crate::tree::{BLOCK, Body, Dir, File, Node, ROOT, Tree};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, SystemTime};

const DISK_BYTES: u64 = 512 << 20;
const FILES: u64 = 1 << 20;
/// `setfattr -n user.cut -v SEED` on the root cuts the power.
const CUT: &str = "user.cut";
/// How long a sync takes, so that a kill finds some under way; what was written meanwhile is
/// synced, too.
const SYNC: Duration = Duration::from_millis(2);
const NOT_CACHED: Duration = Duration::ZERO;

type Listing = Vec<(OsString, u64, FileType)>;

pub struct CutDisk {
    tree: Mutex<Tree>,
    listings: Mutex<(u64, BTreeMap<u64, Listing>)>,
}

fn node(mode: u32, uid: u32, gid: u32, body: Body) -> Node {
    Node { mode: mode & 0o7777, uid, gid, links: 1, changed: SystemTime::now(), body }
}

fn kind(node: &Node) -> FileType {
    match &node.body {
        Body::File(_) => FileType::RegularFile,
        Body::Dir(_) => FileType::Directory,
        Body::Link(_) => FileType::Symlink,
        Body::Special(libc::S_IFSOCK) => FileType::Socket,
        Body::Special(_) => FileType::NamedPipe,
    }
}

fn attr(ino: u64, node: &Node) -> FileAttr {
    let (size, allocated) = match &node.body {
        Body::File(file) => (file.size(), file.allocated()),
        Body::Link(target) => (target.as_os_str().len() as u64, 0),
        _ => (0, 0),
    };
    FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: allocated / 512,
        atime: node.changed,
        mtime: node.changed,
        ctime: node.changed,
        crtime: node.changed,
        kind: kind(node),
        perm: node.mode as u16,
        nlink: node.links,
        uid: node.uid,
        gid: node.gid,
        rdev: 0,
        blksize: BLOCK as u32,
        flags: 0,
    }
}

impl CutDisk {
    pub fn new(half_renames: bool, lies: bool) -> CutDisk {
        let mut tree = Tree::new(node(0o755, 0, 0, Body::Dir(Dir::default())));
        (tree.half_renames, tree.lies) = (half_renames, lies);
        CutDisk { tree: Mutex::new(tree), listings: Mutex::default() }
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<(u64, FileAttr), Errno> {
        let mut tree = self.tree.lock();
        let dir = tree.dir(parent.0).ok_or(Errno::ENOENT)?;
        let ino = *dir.names.get(name).ok_or(Errno::ENOENT)?;
        Ok((ino, attr(ino, &tree.nodes[&ino])))
    }

    fn make(&self, parent: INodeNo, name: &OsStr, node: Node) -> Result<FileAttr, Errno> {
        let mut tree = self.tree.lock();
        let dir = tree.dir(parent.0).ok_or(Errno::ENOENT)?;
        if dir.names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let ino = tree.add(parent.0, name, node);
        Ok(attr(ino, &tree.nodes[&ino]))
    }

    fn remove(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let mut tree = self.tree.lock();
        let dir = tree.dir(parent.0).ok_or(Errno::ENOENT)?;
        let ino = *dir.names.get(name).ok_or(Errno::ENOENT)?;
        if tree.dir(ino).is_some_and(|dir| !dir.names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        tree.set_name(parent.0, name, None);
        Ok(())
    }

    fn with_file<T>(&self, ino: INodeNo, f: impl FnOnce(&mut File) -> T) -> Result<T, Errno> {
        let mut tree = self.tree.lock();
        tree.file(ino.0).map(f).ok_or(Errno::EIO)
    }

    fn sync(&self, ino: INodeNo) {
        std::thread::sleep(SYNC);
        self.tree.lock().sync(ino.0);
    }

    fn list(&self, ino: INodeNo) -> Result<u64, Errno> {
        let mut tree = self.tree.lock();
        let names = tree.dir(ino.0).ok_or(Errno::ENOTDIR)?.names.clone();
        let mut all = vec![
            (OsString::from("."), ino.0, FileType::Directory),
            (OsString::from(".."), ino.0, FileType::Directory),
        ];
        all.extend(names.into_iter().map(|(name, ino)| (name, ino, kind(&tree.nodes[&ino]))));
        let (last, listings) = &mut *self.listings.lock();
        *last += 1;
        listings.insert(*last, all);
        Ok(*last)
    }
}

fn answer_entry(reply: ReplyEntry, made: Result<FileAttr, Errno>) {
    match made {
        Ok(attr) => reply.entry(&NOT_CACHED, &attr, Generation(0)),
        Err(e) => reply.error(e),
    }
}

fn answer(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for CutDisk {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(reply, self.find(parent, name).map(|(_, attr)| attr));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree.lock().nodes.get(&ino.0) {
            Some(node) => reply.attr(&NOT_CACHED, &attr(ino.0, node)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.tree.lock();
        if let (Some(size), Some(file)) = (size, tree.file(ino.0)) {
            file.resize(size);
        }
        let Some(node) = tree.nodes.get_mut(&ino.0) else { return reply.error(Errno::ENOENT) };
        node.mode = mode.map_or(node.mode, |mode| mode & 0o7777);
        node.uid = uid.unwrap_or(node.uid);
        node.gid = gid.unwrap_or(node.gid);
        reply.attr(&NOT_CACHED, &attr(ino.0, node));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.tree.lock().nodes.get(&ino.0).map(|node| &node.body) {
            Some(Body::Link(target)) => reply.data(target.as_os_str().as_encoded_bytes()),
            _ => reply.error(Errno::EINVAL),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let body = match mode & libc::S_IFMT {
            libc::S_IFREG | 0 => Body::File(File::default()),
            other => Body::Special(other),
        };
        answer_entry(reply, self.make(parent, name, node(mode, req.uid(), req.gid(), body)));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let made = node(mode, req.uid(), req.gid(), Body::Dir(Dir::default()));
        answer_entry(reply, self.make(parent, name, made));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.remove(parent, name));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.remove(parent, name));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        answer_entry(
            reply,
            self.make(parent, name, node(0o777, req.uid(), req.gid(), Body::Link(target.into()))),
        );
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut tree = self.tree.lock();
        let from = tree.dir(parent.0).and_then(|dir| dir.names.get(name).copied());
        let Some(ino) = from else { return reply.error(Errno::ENOENT) };
        let Some(target) = tree.dir(newparent.0) else { return reply.error(Errno::ENOENT) };
        let there = target.names.contains_key(newname);
        if there && flags.contains(RenameFlags::RENAME_NOREPLACE) {
            return reply.error(Errno::EEXIST);
        }
        if flags.bits() & !RenameFlags::RENAME_NOREPLACE.bits() != 0 {
            return reply.error(Errno::EINVAL);
        }
        tree.rename((parent.0, name), (newparent.0, newname), ino);
        reply.ok();
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let mut tree = self.tree.lock();
        if tree.dir(newparent.0).is_none_or(|dir| dir.names.contains_key(newname)) {
            return reply.error(Errno::EEXIST);
        }
        tree.set_name(newparent.0, newname, Some(ino.0));
        answer_entry(reply, tree.nodes.get(&ino.0).map(|node| attr(ino.0, node)).ok_or(Errno::ENOENT));
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = node(mode, req.uid(), req.gid(), Body::File(File::default()));
        match self.make(parent, name, made) {
            Ok(attr) => {
                reply.created(&NOT_CACHED, &attr, Generation(0), FileHandle(0), FopenFlags::FOPEN_DIRECT_IO)
            }
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.with_file(ino, |file| file.read(offset, u64::from(size))) {
            Ok(data) => reply.data(&data),
            Err(e) => reply.error(e),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.with_file(ino, |file| file.write(offset, data)) {
            Ok(()) => {
                if flags.0 & libc::O_DSYNC != 0 {
                    self.sync(ino);
                }
                reply.written(data.len() as u32);
            }
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.sync(ino);
        reply.ok();
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.list(ino) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(e) => reply.error(e),
        }
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listings = self.listings.lock();
        let all = listings.1.get(&fh.0).map(Vec::as_slice).unwrap_or_default();
        for (at, (name, ino, kind)) in all.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*ino), at as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.lock().1.remove(&fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.sync(ino);
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let tree = self.tree.lock();
        let (block, all, files) = (BLOCK as u64, DISK_BYTES / BLOCK as u64, tree.nodes.len() as u64);
        let free = all.saturating_sub(tree.used() / block);
        reply.statfs(all, free, free, FILES, FILES.saturating_sub(files), BLOCK as u32, 255, BLOCK as u32);
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let seed = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        let (true, Some(seed)) = (ino.0 == ROOT && name == CUT, seed) else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        let lost = self.tree.lock().cut(seed);
        println!(
            "cut {seed}: {} of {} unsynced blocks and {} of {} changes of names lost, {} files shorter",
            lost.blocks.1, lost.blocks.0, lost.names.1, lost.names.0, lost.sizes
        );
        reply.ok();
    }

    fn getxattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let done = match mode {
            0 => self.with_file(ino, |file| file.resize_at_least(offset + length)),
            libc::FALLOC_FL_KEEP_SIZE => Ok(()),
            PUNCH => self.with_file(ino, |file| file.zero(offset, length)),
            _ => Err(Errno::EOPNOTSUPP),
        };
        answer(reply, done);
    }
}
