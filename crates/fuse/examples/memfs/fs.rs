//! A plain file system in memory: one table of inodes behind one lock, contents in vectors behind a
//! lock each.
//!
//! It is the ceiling in benchmarks and the file system under test in the door's tests, so it is
//! right where the door can tell (links, references, times, setuid, renames) and has nothing else:
//! no holes, no default ACLs, no quotas.
//!
//! Lock order: the table, then one file's contents; contents are copied without the table's lock.
//! Whatever frees much memory is dropped after both.

use leeward_env::{Ctx, Env, Nanos, limits};
use leeward_fs::rights::without_set_ids;
use leeward_fs::{
    Allocate, Attr, Engine, Entry, Error, Fs, InodeFlags, Kind, Make, NodeId, Op, RenameMode, Reply, Result,
    Seek, SetAttr, SetTime, StatFs, Time, Turns, Watcher, XattrMode,
};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Contents are whole in memory: anything larger is refused.
const FILE_BYTES_MAX: u64 = 8 << 30;

/// See the module's head.
pub struct MemFs {
    env: Env,
    table: RwLock<Table>,
    watcher: Mutex<Option<Arc<dyn Watcher>>>,
}

struct Table {
    nodes: FxHashMap<NodeId, Inode>,
    next: u64,
}

struct Inode {
    attr: Attr,
    refs: u64,
    xattrs: BTreeMap<Box<[u8]>, Vec<u8>>,
    body: Body,
}

type Content = Arc<RwLock<Vec<u8>>>;

enum Body {
    File(Content),
    Dir { entries: BTreeMap<Box<[u8]>, NodeId>, parent: NodeId },
    Symlink(Box<[u8]>),
    Special,
}

/// What is dropped when no lock is held.
type Dead = Option<Inode>;

impl MemFs {
    /// An empty file system that belongs to whoever runs it.
    pub fn new(env: &Env) -> MemFs {
        let now = time(env);
        // SAFETY: no arguments, cannot fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let root = Inode {
            attr: attr(NodeId::ROOT, Kind::Dir, 0o755, uid, gid, now),
            refs: 1,
            xattrs: BTreeMap::new(),
            body: Body::Dir { entries: BTreeMap::new(), parent: NodeId::ROOT },
        };
        let nodes = FxHashMap::from_iter([(NodeId::ROOT, root)]);
        MemFs { env: env.clone(), table: RwLock::new(Table { nodes, next: 2 }), watcher: Mutex::default() }
    }

    /// Whom the door registered, for tests that change things behind the kernel's back.
    #[allow(dead_code)] // by the example, not by the tests
    pub fn watcher(&self) -> Option<Arc<dyn Watcher>> {
        self.watcher.lock().clone()
    }

    /// Inodes in the table, for tests of references.
    #[allow(dead_code)]
    pub fn inodes(&self) -> usize {
        self.table.read().nodes.len()
    }

    fn read(&self, node: NodeId, offset: u64, len: u32) -> Result<Reply> {
        let content = self.table.read().content(node)?;
        let data = content.read();
        let from = (offset as usize).min(data.len());
        let to = (from + len as usize).min(data.len());
        Ok(Reply::Data(data[from..to].to_vec()))
    }

    fn write(&self, ctx: &Ctx, node: NodeId, offset: u64, bytes: &[u8]) -> Result<Reply> {
        let content = self.table.read().content(node)?;
        let size = put(&mut content.write(), offset, bytes)?;
        self.table.write().changed(ctx, node, size, time(&self.env))?;
        Ok(Reply::Written(bytes.len() as u64))
    }

    fn copy(&self, ctx: &Ctx, from: (NodeId, u64), to: (NodeId, u64), len: u64) -> Result<Reply> {
        let mut done = 0;
        while done < len {
            let step = (len - done).min(1 << 20) as u32;
            let Reply::Data(bytes) = self.read(from.0, from.1 + done, step)? else { break };
            if bytes.is_empty() {
                break;
            }
            self.write(ctx, to.0, to.1 + done, &bytes)?;
            done += bytes.len() as u64;
        }
        Ok(Reply::Written(done))
    }

    fn allocate(&self, ctx: &Ctx, node: NodeId, offset: u64, len: u64, mode: Allocate) -> Result<Reply> {
        let end = offset.checked_add(len).filter(|e| *e <= FILE_BYTES_MAX).ok_or(Error::TooBig)?;
        let content = self.table.read().content(node)?;
        let mut data = content.write();
        let grows =
            matches!(mode, Allocate::Reserve { keep_size: false } | Allocate::ZeroRange { keep_size: false });
        if grows && (data.len() as u64) < end {
            data.resize(end as usize, 0);
        }
        if !matches!(mode, Allocate::Reserve { .. }) {
            let (from, to) = ((offset as usize).min(data.len()), (end as usize).min(data.len()));
            data[from..to].fill(0);
        }
        let size = data.len();
        drop(data);
        self.table.write().changed(ctx, node, size, time(&self.env))?;
        Ok(Reply::Done)
    }

    fn seek(&self, node: NodeId, offset: u64, what: Seek) -> Result<Reply> {
        let size = self.table.read().get(node)?.attr.size;
        match what {
            _ if offset >= size => Err(Error::NoSuchPosition),
            Seek::Data => Ok(Reply::Offset(offset)),
            Seek::Hole => Ok(Reply::Offset(size)),
        }
    }

    fn statfs(&self) -> StatFs {
        let files = self.table.read().nodes.len() as u64;
        StatFs {
            total_bytes: 64 << 30,
            free_bytes: 32 << 30,
            total_files: files + (1 << 30),
            free_files: 1 << 30,
        }
    }

    fn mutate(&self, f: impl FnOnce(&mut Table, Time) -> Result<(Reply, Dead)>) -> Result<Reply> {
        let now = time(&self.env);
        let result = f(&mut self.table.write(), now);
        result.map(|(reply, _dead)| reply)
    }
}

impl Fs for MemFs {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        match op {
            Op::Lookup { dir, name } if ctx.refs => self.table.write().lookup(ctx, dir, name),
            Op::Lookup { dir, name } => self.table.read().find(dir, name).map(|i| Reply::Attr(i.attr)),
            Op::GetAttr { node } => self.table.read().get(node).map(|i| Reply::Attr(i.attr)),
            Op::SetAttr { node, set } => self.mutate(|t, now| t.set_attr(ctx, node, &set, now)),
            Op::ReadLink { node } => match &self.table.read().get(node)?.body {
                Body::Symlink(target) => Ok(Reply::Data(target.to_vec())),
                _ => Err(Error::Invalid),
            },
            Op::Make { dir, name, make, mode, umask } => {
                self.mutate(|t, now| t.make(ctx, dir, name, make, mode & !umask, now))
            }
            Op::MakeUnnamed { dir, mode, umask, .. } => {
                self.mutate(|t, now| t.make_unnamed(ctx, dir, mode & !umask, now))
            }
            Op::Place { node, dir, name, .. } => self.mutate(|t, now| t.place(ctx, node, dir, name, now)),
            // the kernel asks for none of these
            Op::BeginUpload { .. }
            | Op::KeepPart { .. }
            | Op::CompleteUpload { .. }
            | Op::EndUpload { .. }
            | Op::GetUpload { .. }
            | Op::ListParts { .. }
            | Op::ListUploads { .. }
            | Op::StatUploads { .. }
            | Op::ContentVersions { .. } => Err(Error::NotSupported),
            Op::Link { node, dir, name } => self.mutate(|t, now| t.link(ctx, node, dir, name, now)),
            Op::Unlink { dir, name, .. } => self.mutate(|t, now| t.unlink(dir, name, now)),
            Op::RmDir { dir, name } => self.mutate(|t, now| t.rmdir(dir, name, now)),
            Op::Rename { from_dir, from_name, to_dir, to_name, mode } => {
                self.mutate(|t, now| t.rename((from_dir, from_name), (to_dir, to_name), mode, now))
            }
            Op::Read { node, offset, len } => self.read(node, offset, len),
            Op::Write { node, offset, data } => self.write(ctx, node, offset, data),
            Op::Append { .. } => Err(Error::NotSupported),
            Op::Fsync { .. } | Op::SyncAll => Ok(Reply::Done),
            Op::Allocate { node, offset, len, mode } => self.allocate(ctx, node, offset, len, mode),
            Op::SeekTo { node, offset, what } => self.seek(node, offset, what),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy(ctx, (from, from_offset), (to, to_offset), len)
            }
            Op::List { dir, after, limit, attrs } => self.table.write().list(ctx, dir, after, limit, attrs),
            Op::GetXattr { node, name } => {
                let table = self.table.read();
                table.get(node)?.xattrs.get(name).map(|v| Reply::Data(v.clone())).ok_or(Error::NoData)
            }
            Op::ListXattr { node } => {
                Ok(Reply::Names(self.table.read().get(node)?.xattrs.keys().cloned().collect()))
            }
            Op::SetXattr { node, name, value, mode } => {
                self.mutate(|t, now| t.set_xattr(node, name, value, mode, now))
            }
            Op::RemoveXattr { node, name } => self.mutate(|t, now| t.remove_xattr(node, name, now)),
            Op::StatFs { .. } => Ok(Reply::StatFs(self.statfs())),
            Op::Forget { node, count } => self.mutate(|t, _| Ok((Reply::Done, t.forget(node, count)))),
        }
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        *self.watcher.lock() = Some(watcher);
    }

    fn is_invalidating(&self) -> bool {
        false
    }

    fn wait_invalidated(&self) {}
}

/// It does nothing in the background.
impl Engine for MemFs {
    fn users_ask(&self, _: Nanos) {}

    fn users_share(&self, _: Nanos) {}

    fn give_turns(&self, _: Arc<dyn Turns>) {}
}

impl Table {
    fn get(&self, node: NodeId) -> Result<&Inode> {
        self.nodes.get(&node).ok_or(Error::Stale)
    }

    fn get_mut(&mut self, node: NodeId) -> Result<&mut Inode> {
        self.nodes.get_mut(&node).ok_or(Error::Stale)
    }

    fn content(&self, node: NodeId) -> Result<Content> {
        match &self.get(node)?.body {
            Body::File(content) => Ok(content.clone()),
            Body::Dir { .. } => Err(Error::IsDir),
            _ => Err(Error::Invalid),
        }
    }

    fn entries(&self, dir: NodeId) -> Result<&BTreeMap<Box<[u8]>, NodeId>> {
        match &self.get(dir)?.body {
            Body::Dir { entries, .. } => Ok(entries),
            _ => Err(Error::NotDir),
        }
    }

    /// The entries of a directory that is about to change.
    fn entries_mut(&mut self, dir: NodeId, now: Time) -> Result<&mut BTreeMap<Box<[u8]>, NodeId>> {
        let inode = self.get_mut(dir)?;
        (inode.attr.mtime, inode.attr.ctime) = (now, now);
        match &mut inode.body {
            Body::Dir { entries, .. } => Ok(entries),
            _ => Err(Error::NotDir),
        }
    }

    fn id(&self, dir: NodeId, name: &[u8]) -> Result<NodeId> {
        match &self.get(dir)?.body {
            Body::Dir { parent, .. } if name == b".." => Ok(*parent),
            Body::Dir { entries, .. } => entries.get(name).copied().ok_or(Error::NotFound),
            _ => Err(Error::NotDir),
        }
    }

    fn find(&self, dir: NodeId, name: &[u8]) -> Result<&Inode> {
        self.get(self.id(dir, name)?)
    }

    fn lookup(&mut self, ctx: &Ctx, dir: NodeId, name: &[u8]) -> Result<Reply> {
        let id = self.id(dir, name)?;
        self.told(ctx, id)
    }

    /// The reply about an inode, which takes a reference.
    fn told(&mut self, ctx: &Ctx, node: NodeId) -> Result<Reply> {
        let inode = self.get_mut(node)?;
        inode.refs += u64::from(ctx.refs);
        Ok(Reply::Attr(inode.attr))
    }

    fn list(&mut self, ctx: &Ctx, dir: NodeId, after: &[u8], limit: usize, attrs: bool) -> Result<Reply> {
        let bounds = (Bound::Excluded(after), Bound::Unbounded);
        let entries = self.entries(dir)?;
        let found = entries.range::<[u8], _>(bounds).take(limit).map(|(n, i)| (n.clone(), *i));
        let found: Vec<_> = found.collect();
        let entry = |(name, node): (Box<[u8]>, NodeId)| {
            let inode = self.get_mut(node)?;
            inode.refs += u64::from(ctx.refs && attrs);
            Ok(Entry { name, node, kind: inode.attr.kind, attr: attrs.then_some(inode.attr) })
        };
        found.into_iter().map(entry).collect::<Result<Vec<_>>>().map(Reply::Entries)
    }

    fn changed(&mut self, ctx: &Ctx, node: NodeId, size: usize, now: Time) -> Result<()> {
        let attr = &mut self.get_mut(node)?.attr;
        attr.size = size as u64;
        attr.blocks = attr.size.div_ceil(512);
        (attr.mtime, attr.ctime) = (now, now);
        if ctx.uid != 0 {
            attr.mode = without_set_ids(attr.mode, || true);
        }
        Ok(())
    }

    fn set_attr(&mut self, ctx: &Ctx, node: NodeId, set: &SetAttr, now: Time) -> Result<(Reply, Dead)> {
        if let Some(size) = set.size {
            let size = (size <= FILE_BYTES_MAX).then_some(size as usize).ok_or(Error::TooBig)?;
            self.content(node)?.write().resize(size, 0);
        }
        let a = &mut self.get_mut(node)?.attr;
        if let Some(size) = set.size {
            (a.size, a.blocks, a.mtime) = (size, size.div_ceil(512), now);
        }
        if a.kind == Kind::File
            && (set.uid.is_some() || set.gid.is_some() || set.size.is_some() && ctx.uid != 0)
        {
            a.mode = without_set_ids(a.mode, || true);
        }
        a.mode = set.mode.unwrap_or(a.mode);
        a.uid = set.uid.unwrap_or(a.uid);
        a.gid = set.gid.unwrap_or(a.gid);
        a.flags = set.flags.unwrap_or(a.flags);
        let at = |t: Option<SetTime>, old| match t {
            Some(SetTime::Now) => now,
            Some(SetTime::To(t)) => t,
            None => old,
        };
        (a.atime, a.mtime, a.ctime) = (at(set.atime, a.atime), at(set.mtime, a.mtime), now);
        Ok((Reply::Attr(*a), None))
    }

    fn make(
        &mut self,
        ctx: &Ctx,
        dir: NodeId,
        name: &[u8],
        make: Make<'_>,
        mode: u32,
        now: Time,
    ) -> Result<(Reply, Dead)> {
        let parent = self.get(dir)?.attr;
        check_name(name)?;
        if self.entries(dir)?.contains_key(name) {
            return Err(Error::Exists);
        }
        if parent.nlink == 0 {
            return Err(Error::NotFound);
        }
        let id = NodeId(self.next);
        self.next += 1;
        let inode = new_inode(ctx, id, &parent, make, mode, now);
        if inode.attr.kind == Kind::Dir {
            self.get_mut(dir)?.attr.nlink += 1;
        }
        self.entries_mut(dir, now)?.insert(name.into(), id);
        self.nodes.insert(id, inode);
        Ok((self.told(ctx, id)?, None))
    }

    fn make_unnamed(&mut self, ctx: &Ctx, dir: NodeId, mode: u32, now: Time) -> Result<(Reply, Dead)> {
        let parent = self.get(dir)?.attr;
        let id = NodeId(self.next);
        self.next += 1;
        let mut inode = new_inode(ctx, id, &parent, Make::File, mode, now);
        inode.attr.nlink = 0;
        self.nodes.insert(id, inode);
        Ok((self.told(ctx, id)?, None))
    }

    fn place(
        &mut self,
        ctx: &Ctx,
        node: NodeId,
        dir: NodeId,
        name: &[u8],
        now: Time,
    ) -> Result<(Reply, Dead)> {
        check_name(name)?;
        if self.entries(dir)?.contains_key(name) {
            return Err(Error::Exists);
        }
        let inode = self.get_mut(node)?;
        if inode.attr.nlink != 0 {
            return Err(Error::Invalid);
        }
        (inode.attr.nlink, inode.attr.ctime) = (1, now);
        self.entries_mut(dir, now)?.insert(name.into(), node);
        Ok((self.told(ctx, node)?, None))
    }

    fn link(
        &mut self,
        ctx: &Ctx,
        node: NodeId,
        dir: NodeId,
        name: &[u8],
        now: Time,
    ) -> Result<(Reply, Dead)> {
        check_name(name)?;
        if self.entries(dir)?.contains_key(name) {
            return Err(Error::Exists);
        }
        let inode = self.get_mut(node)?;
        match inode.attr {
            a if a.kind == Kind::Dir => return Err(Error::NotPermitted),
            a if a.nlink == 0 => return Err(Error::NotFound),
            _ => (inode.attr.nlink, inode.attr.ctime) = (inode.attr.nlink + 1, now),
        }
        self.entries_mut(dir, now)?.insert(name.into(), node);
        Ok((self.told(ctx, node)?, None))
    }

    fn unlink(&mut self, dir: NodeId, name: &[u8], now: Time) -> Result<(Reply, Dead)> {
        let node = self.id(dir, name)?;
        if self.get(node)?.attr.kind == Kind::Dir {
            return Err(Error::IsDir);
        }
        self.entries_mut(dir, now)?.remove(name);
        self.unlinked(dir, node, now)
    }

    fn rmdir(&mut self, dir: NodeId, name: &[u8], now: Time) -> Result<(Reply, Dead)> {
        let node = self.id(dir, name)?;
        if !self.entries(node)?.is_empty() {
            return Err(Error::NotEmpty);
        }
        self.entries_mut(dir, now)?.remove(name);
        self.unlinked(dir, node, now)
    }

    /// An inode lost a name in `dir`.
    fn unlinked(&mut self, dir: NodeId, node: NodeId, now: Time) -> Result<(Reply, Dead)> {
        let inode = self.get_mut(node)?;
        inode.attr.ctime = now;
        let is_dir = inode.attr.kind == Kind::Dir;
        inode.attr.nlink = if is_dir { 0 } else { inode.attr.nlink - 1 };
        let nlink = inode.attr.nlink;
        if is_dir {
            self.get_mut(dir)?.attr.nlink -= 1;
        }
        Ok((Reply::Removed { node, nlink }, self.forget(node, 0)))
    }

    fn forget(&mut self, node: NodeId, count: u64) -> Dead {
        let inode = self.nodes.get_mut(&node)?;
        inode.refs = inode.refs.saturating_sub(count);
        let dead = inode.refs == 0 && inode.attr.nlink == 0;
        dead.then(|| self.nodes.remove(&node)).flatten()
    }

    fn rename(
        &mut self,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        mode: RenameMode,
        now: Time,
    ) -> Result<(Reply, Dead)> {
        check_name(to.1)?;
        let node = self.id(from.0, from.1)?;
        let target = self.entries(to.0)?.get(to.1).copied();
        match (target, mode) {
            (Some(_), RenameMode::NoReplace) => return Err(Error::Exists),
            (None, RenameMode::Exchange) => return Err(Error::NotFound),
            (Some(t), RenameMode::Exchange) => {
                self.put_name(from, t, now)?;
                self.put_name(to, node, now)?;
                self.moved(t, to.0, from.0, now)?;
                self.moved(node, from.0, to.0, now)?;
                return Ok((Reply::Done, None));
            }
            (Some(t), RenameMode::Replace) if t == node => return Ok((Reply::Done, None)),
            _ => (),
        }
        self.check_not_below(node, to.0)?;
        let dead = match target {
            Some(t) => self.replaced(node, to, t, now)?,
            None => None,
        };
        self.entries_mut(from.0, now)?.remove(from.1);
        self.put_name(to, node, now)?;
        self.moved(node, from.0, to.0, now)?;
        Ok((Reply::Done, dead))
    }

    fn put_name(&mut self, at: (NodeId, &[u8]), node: NodeId, now: Time) -> Result<()> {
        self.entries_mut(at.0, now)?.insert(at.1.into(), node);
        Ok(())
    }

    fn replaced(&mut self, node: NodeId, to: (NodeId, &[u8]), target: NodeId, now: Time) -> Result<Dead> {
        let (new, old) = (self.get(node)?.attr.kind, self.get(target)?.attr.kind);
        match (new == Kind::Dir, old == Kind::Dir) {
            (true, false) => return Err(Error::NotDir),
            (false, true) => return Err(Error::IsDir),
            (true, true) if !self.entries(target)?.is_empty() => return Err(Error::NotEmpty),
            _ => (),
        }
        self.entries_mut(to.0, now)?.remove(to.1);
        Ok(self.unlinked(to.0, target, now)?.1)
    }

    /// An inode's name went from one directory to another.
    fn moved(&mut self, node: NodeId, from: NodeId, to: NodeId, now: Time) -> Result<()> {
        let inode = self.get_mut(node)?;
        inode.attr.ctime = now;
        if let Body::Dir { parent, .. } = &mut inode.body {
            *parent = to;
            self.get_mut(from)?.attr.nlink -= 1;
            self.get_mut(to)?.attr.nlink += 1;
        }
        Ok(())
    }

    fn check_not_below(&self, node: NodeId, dir: NodeId) -> Result<()> {
        let mut at = dir;
        while at != NodeId::ROOT {
            if at == node {
                return Err(Error::Invalid);
            }
            at = self.id(at, b"..")?;
        }
        Ok(())
    }

    fn set_xattr(
        &mut self,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        now: Time,
    ) -> Result<(Reply, Dead)> {
        let inode = self.get_mut(node)?;
        match (mode, inode.xattrs.contains_key(name)) {
            _ if name.starts_with(b"system.") => return Err(Error::NotSupported),
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoData),
            _ => inode.xattrs.insert(name.into(), value.into()),
        };
        inode.attr.ctime = now;
        Ok((Reply::Done, None))
    }

    fn remove_xattr(&mut self, node: NodeId, name: &[u8], now: Time) -> Result<(Reply, Dead)> {
        let inode = self.get_mut(node)?;
        inode.xattrs.remove(name).ok_or(Error::NoData)?;
        inode.attr.ctime = now;
        Ok((Reply::Done, None))
    }
}

fn new_inode(ctx: &Ctx, id: NodeId, parent: &Attr, make: Make<'_>, mode: u32, now: Time) -> Inode {
    let (kind, rdev, body) = match make {
        Make::File => (Kind::File, 0, Body::File(Content::default())),
        Make::Dir => (Kind::Dir, 0, Body::Dir { entries: BTreeMap::new(), parent: parent.node }),
        Make::Symlink(target) => (Kind::Symlink, 0, Body::Symlink(target.into())),
        Make::Fifo => (Kind::Fifo, 0, Body::Special),
        Make::Socket => (Kind::Socket, 0, Body::Special),
        Make::CharDev(n) => (Kind::CharDev, n, Body::Special),
        Make::BlockDev(n) => (Kind::BlockDev, n, Body::Special),
    };
    let inherits = parent.mode & libc::S_ISGID != 0;
    let gid = if inherits { parent.gid } else { ctx.gid };
    let set_gid = if inherits && kind == Kind::Dir { libc::S_ISGID } else { 0 };
    let mut attr = attr(id, kind, mode | set_gid, ctx.uid, gid, now);
    attr.rdev = rdev;
    if let Body::Symlink(target) = &body {
        attr.size = target.len() as u64;
    }
    Inode { attr, refs: 0, xattrs: BTreeMap::new(), body }
}

fn attr(node: NodeId, kind: Kind, mode: u32, uid: u32, gid: u32, now: Time) -> Attr {
    let nlink = if kind == Kind::Dir { 2 } else { 1 };
    let (size, blocks, rdev) = (0, 0, 0);
    Attr {
        node,
        kind,
        mode,
        uid,
        gid,
        nlink,
        rdev,
        size,
        blocks,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        flags: InodeFlags::default(),
    }
}

/// Writes into a vector as into a file; returns the new size.
fn put(data: &mut Vec<u8>, offset: u64, bytes: &[u8]) -> Result<usize> {
    let end = offset.checked_add(bytes.len() as u64).filter(|e| *e <= FILE_BYTES_MAX).ok_or(Error::TooBig)?;
    let (from, end) = (offset as usize, end as usize);
    if from >= data.len() {
        data.resize(from, 0);
        data.extend_from_slice(bytes);
    } else {
        let (over, beyond) = bytes.split_at(bytes.len().min(data.len() - from));
        data[from..from + over.len()].copy_from_slice(over);
        data.extend_from_slice(beyond);
    }
    debug_assert!(data.len() >= end);
    Ok(data.len())
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > limits::NAME_BYTES_MAX { Err(Error::NameTooLong) } else { Ok(()) }
}

fn time(env: &Env) -> Time {
    let now = env.wall();
    Time { secs: (now / 1_000_000_000) as i64, nanos: (now % 1_000_000_000) as u32 }
}
