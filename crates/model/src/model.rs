//! The reference file system: maps in memory, one method per operation, no cleverness.
//!
//! Every method checks first and changes afterwards, so an error has no effect. Errors are those
//! that Linux gives for the same call, in the order in which Linux finds them. Permission checks
//! are left out, as the kernel makes them. A clone is cheap (inodes and pages are shared): the
//! crash checker keeps one for each step.
//!
//! Where `op.rs` leaves room, the model takes the Linux VFS as reference:
//! * chown of anything but a directory clears setuid, and setgid where the group may execute,
//!   whoever asks;
//! * a write or a change of size that would end past 16 TiB fails whole;
//! * rename of an inode onto itself does nothing, also with `Exchange`, but not with `NoReplace`.

use crate::content::{Allocation, Content};
use crate::node::{Body, Ino, Name, Node, clock_time};
use crate::snapshots::{Namespace, Snapshots, place, same_tree};
use crate::step::Path;
use crate::usage::{UsageBounds, usage_bounds};
use leeward_env::{Ctx, limits};
use leeward_fs::{
    Allocate, Entry, Error, InodeFlags, Make, NodeId, Op, Precondition, RenameMode, Reply, Result, Seek,
    SetAttr, SetTime, StatFs, Time, XattrMode,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of the root directory.
pub const ROOT: Ino = 1;

/// Inodes by number.
pub(crate) type Nodes = BTreeMap<Ino, Arc<Node>>;

/// A file system in memory.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) nodes: Nodes,
    pub(crate) snapshots: Snapshots,
    /// Owner of the volume, who may take and remove snapshots, besides root.
    pub(crate) owner: u32,
    next: Ino,
    clock: u64,
}

impl Model {
    /// Empty, except for a root directory with this owner and mode; the owner may take and remove
    /// snapshots.
    pub fn new(uid: u32, gid: u32, mode: u32) -> Model {
        let root = Node {
            mode,
            uid,
            gid,
            names: 1,
            subdirs: 0,
            refs: 0,
            atime: clock_time(0),
            mtime: clock_time(0),
            ctime: clock_time(0),
            btime: clock_time(0),
            flags: InodeFlags::default(),
            xattrs: BTreeMap::new(),
            body: Body::of(Make::Dir, ROOT),
        };
        let nodes = BTreeMap::from([(ROOT, Arc::new(root))]);
        Model { nodes, snapshots: Snapshots::default(), owner: uid, next: ROOT + 1, clock: 0 }
    }

    /// Runs one operation.
    pub fn apply(&mut self, ctx: &Ctx, op: &Op<'_>) -> Result<Reply> {
        self.clock += 1;
        if let Some(answer) = self.snapshot_op(ctx, op) {
            return answer;
        }
        match *op {
            Op::Lookup { dir, name } => self.lookup(ctx, dir.0, name),
            Op::GetAttr { node } => self.attr_reply(node.0),
            Op::SetAttr { node, set } => self.set_attr(ctx, node.0, set),
            Op::ReadLink { node } => match &self.node(node.0)?.body {
                Body::Symlink(target) => Ok(Reply::Data(target.to_vec())),
                _ => Err(Error::Invalid),
            },
            Op::Make { dir, name, make, mode, umask } => self.make(ctx, dir.0, name, make, mode & !umask),
            Op::MakeUnnamed { dir, mode, umask, .. } => self.make_unnamed(ctx, dir.0, mode & !umask),
            Op::Place { node, dir, name, over } => self.place_file(node.0, dir.0, name, over),
            // these have a reference of their own: tests/uploads.rs
            Op::BeginUpload { .. }
            | Op::KeepPart { .. }
            | Op::CompleteUpload { .. }
            | Op::EndUpload { .. }
            | Op::GetUpload { .. }
            | Op::ListParts { .. }
            | Op::ListUploads { .. }
            | Op::StatUploads { .. }
            | Op::ContentVersions { .. } => Err(Error::NotSupported),
            Op::Link { node, dir, name } => self.link(ctx, node.0, dir.0, name),
            Op::Unlink { dir, name, over } => self.unlink(dir.0, name, over),
            Op::RmDir { dir, name } => self.rmdir(dir.0, name),
            Op::Rename { from_dir, from_name, to_dir, to_name, mode } => {
                self.rename((from_dir.0, from_name), (to_dir.0, to_name), mode)
            }
            Op::Read { node, offset, len } => self.read(node.0, offset, len),
            Op::Write { node, offset, data } => self.write(ctx, node.0, offset, data),
            Op::Append { node, data } => {
                let end = self.node(node.0)?.file()?.size();
                self.write(ctx, node.0, end, data)
            }
            Op::Fsync { node } => self.node(node.0).map(|_| Reply::Done),
            Op::SyncAll => Ok(Reply::Done),
            Op::Allocate { node, offset, len, mode } => self.allocate(node.0, offset, len, mode),
            Op::SeekTo { node, offset, what } => self.seek(node.0, offset, what),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy_range((from.0, from_offset), (to.0, to_offset), len)
            }
            Op::List { dir, after, limit, attrs } => self.list(ctx, dir.0, after, limit, attrs),
            Op::GetXattr { node, name } => {
                let value = self.node(node.0)?.xattrs.get(name).ok_or(Error::NoData)?;
                Ok(Reply::Data(value.to_vec()))
            }
            Op::ListXattr { node } => Ok(Reply::Names(self.node(node.0)?.xattrs.keys().cloned().collect())),
            Op::SetXattr { node, name, value, mode } => self.set_xattr(node.0, name, value, mode),
            Op::RemoveXattr { node, name } => self.remove_xattr(node.0, name),
            Op::StatFs { .. } => Ok(Reply::StatFs(StatFs::default())),
            Op::Forget { node, count } => self.forget(node.0, count),
        }
    }

    /// An inode, live or in a snapshot.
    pub fn node(&self, ino: Ino) -> Result<&Node> {
        match place(ino) {
            Namespace::In(view) => self.snapshots.node(view, ino),
            _ => self.nodes.get(&ino).map(|n| &**n).ok_or(Error::Stale),
        }
    }

    /// The entries of a directory, with numbers of the tree that it is in.
    pub fn children(&self, dir: Ino) -> Result<BTreeMap<Name, Ino>> {
        let node = self.inode(dir)?;
        Ok(node.entries()?.iter().map(|(name, &ino)| (name.clone(), same_tree(dir, ino))).collect())
    }

    /// Where a live directory is.
    pub fn path_of(&self, mut dir: Ino) -> Option<Path> {
        let mut names = Vec::new();
        while dir != ROOT {
            let Body::Dir { parent, .. } = self.node(dir).ok()?.body else { return None };
            let (name, _) = self.node(parent).ok()?.entries().ok()?.iter().find(|(_, ino)| **ino == dir)?;
            names.push(name.clone());
            dir = parent;
        }
        names.reverse();
        Some(Path(names))
    }

    /// All live inodes in order of their numbers, unlinked ones that are still referenced among
    /// them.
    pub fn nodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.nodes.iter().map(|(&ino, node)| (ino, &**node))
    }

    /// Ends all references, as the end of the process does: unlinked inodes are gone.
    pub fn drop_refs(&mut self) {
        self.nodes.retain(|_, n| n.names > 0);
        for node in self.nodes.values_mut().filter(|n| n.refs > 0) {
            Arc::make_mut(node).refs = 0;
        }
    }

    /// Gives a file another content, as a crash does. No effect on anything but a file.
    pub fn replace_content(&mut self, ino: Ino, content: Content) {
        if let Ok(file) = self.node_mut(ino).and_then(Node::file_mut) {
            *file = content;
        }
    }

    /// Forgets all times and what is allocated: after a crash both are unknown.
    pub fn forget_after_crash(&mut self) {
        self.clock += 1;
        let now = self.now();
        for node in self.nodes.values_mut() {
            let node = Arc::make_mut(node);
            (node.atime, node.mtime, node.ctime) = (now, now, now);
            if let Ok(content) = node.file_mut() {
                content.forget_allocation();
            }
        }
    }

    /// What recursive statistics of `path`'s inode may say.
    pub fn usage(&self, ino: Ino, by: Allocation) -> Result<UsageBounds> {
        self.node(ino)?;
        Ok(usage_bounds(self, ino, by))
    }

    fn now(&self) -> Time {
        clock_time(self.clock)
    }

    fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).map(Arc::make_mut).ok_or(Error::Stale)
    }

    /// The attributes of an inode.
    pub(crate) fn attr_reply(&self, ino: Ino) -> Result<Reply> {
        Ok(Reply::Attr(self.inode(ino)?.attr(ino)))
    }

    /// The attributes, with one more reference on the inode where the front end counts them.
    fn referenced(&mut self, ctx: &Ctx, ino: Ino) -> Result<Reply> {
        if ctx.refs {
            self.refer(ino);
        }
        self.attr_reply(ino)
    }

    /// One more reference, which only live inodes count.
    fn refer(&mut self, ino: Ino) {
        if let Ok(node) = self.node_mut(ino) {
            node.refs += 1;
        }
    }

    /// The inode under a name.
    fn child(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let entries = self.node(dir)?.entries()?;
        if name.len() > limits::NAME_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        entries.get(name).map(|&ino| same_tree(dir, ino)).ok_or(Error::NotFound)
    }

    /// Checks that a name may be added to a directory.
    pub(crate) fn vacant(&self, dir: Ino, name: &[u8]) -> Result<()> {
        match self.child(dir, name) {
            Ok(_) => Err(Error::Exists),
            Err(Error::NotFound) if self.node(dir)?.names > 0 => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Adds a name to a directory, or removes it. The caller updates the inode's own counts.
    fn set_entry(&mut self, dir: Ino, name: &[u8], target: Option<Ino>) -> Result<()> {
        let now = self.now();
        let node = self.node_mut(dir)?;
        (node.mtime, node.ctime) = (now, now);
        if let Body::Dir { entries, .. } = &mut node.body {
            match target {
                Some(ino) => entries.insert(name.into(), ino),
                None => entries.remove(name),
            };
        }
        Ok(())
    }

    /// After an entry for `child` moved: updates its parent, and the counts of subdirectories.
    fn reparent(&mut self, child: Ino, from: Ino, to: Ino) -> Result<()> {
        if let Body::Dir { parent, .. } = &mut self.node_mut(child)?.body {
            *parent = to;
            self.node_mut(from)?.subdirs -= 1;
            self.node_mut(to)?.subdirs += 1;
        }
        Ok(())
    }

    /// Takes one name from an inode; returns the links left.
    fn drop_name(&mut self, ino: Ino) -> Result<u32> {
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.names -= 1;
        node.ctime = now;
        let left = node.nlink();
        if node.names == 0 && node.refs == 0 {
            self.nodes.remove(&ino);
        }
        Ok(left)
    }

    pub(crate) fn is_inside(&self, mut dir: Ino, ancestor: Ino) -> Result<bool> {
        loop {
            if dir == ancestor {
                return Ok(true);
            }
            match &self.node(dir)?.body {
                Body::Dir { parent, .. } if same_tree(dir, *parent) != dir => dir = same_tree(dir, *parent),
                _ => return Ok(false),
            }
        }
    }
}

/// Names.
impl Model {
    fn lookup(&mut self, ctx: &Ctx, dir: Ino, name: &[u8]) -> Result<Reply> {
        if name == b".." {
            let parent = self.parent(dir)?;
            return self.referenced(ctx, parent);
        }
        let ino = self.child(dir, name)?;
        self.referenced(ctx, ino)
    }

    fn make(&mut self, ctx: &Ctx, dir: Ino, name: &[u8], make: Make<'_>, mode: u32) -> Result<Reply> {
        self.vacant(dir, name)?;
        self.not_immutable(dir)?;
        if matches!(make, Make::Symlink(target) if target.len() > limits::SYMLINK_BYTES_MAX) {
            return Err(Error::NameTooLong);
        }
        let ino = self.new_node(ctx, dir, make, mode)?;
        self.node_mut(ino)?.names = 1;
        self.set_entry(dir, name, Some(ino))?;
        if make == Make::Dir {
            self.node_mut(dir)?.subdirs += 1;
        }
        self.referenced(ctx, ino)
    }

    /// A node without a name that inherits from `dir`.
    fn new_node(&mut self, ctx: &Ctx, dir: Ino, make: Make<'_>, mode: u32) -> Result<Ino> {
        let now = self.now();
        let parent = self.node(dir)?;
        let inherits = parent.mode & 0o2000 != 0;
        let node = Node {
            mode: mode & 0o7777 | if inherits && make == Make::Dir { 0o2000 } else { 0 },
            uid: ctx.uid,
            gid: if inherits { parent.gid } else { ctx.gid },
            names: 0,
            subdirs: 0,
            refs: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            flags: parent.flags.and(InodeFlags::NO_DUMP),
            xattrs: BTreeMap::new(),
            body: Body::of(make, dir),
        };
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, Arc::new(node));
        Ok(ino)
    }

    fn make_unnamed(&mut self, ctx: &Ctx, dir: Ino, mode: u32) -> Result<Reply> {
        self.node(dir)?.entries()?;
        if self.node(dir)?.names == 0 {
            return Err(Error::NotFound);
        }
        self.not_immutable(dir)?;
        let ino = self.new_node(ctx, dir, Make::File, mode)?;
        self.referenced(ctx, ino)
    }

    fn place_file(&mut self, ino: Ino, dir: Ino, name: &[u8], over: Precondition) -> Result<Reply> {
        let old = match self.vacant(dir, name) {
            Ok(()) => None,
            Err(Error::Exists) => Some(self.child(dir, name)?),
            Err(e) => return Err(e),
        };
        if place(ino) != Namespace::Live {
            return Err(Error::CrossVolume);
        }
        let node = self.node(ino)?;
        match node.is_dir() {
            true => return Err(Error::IsDir),
            false if node.names > 0 || !matches!(node.body, Body::File(_)) => return Err(Error::Invalid),
            false => {}
        }
        self.check_over(old, over)?;
        self.not_kept(ino)?;
        self.not_immutable(dir)?;
        if let Some(old) = old {
            self.may_lose(dir, old)?;
            self.drop_name(old)?;
        }
        self.set_entry(dir, name, Some(ino))?;
        let now = self.now();
        let node = self.node_mut(ino)?;
        (node.names, node.ctime) = (1, now);
        self.attr_reply(ino)
    }

    fn link(&mut self, ctx: &Ctx, ino: Ino, dir: Ino, name: &[u8]) -> Result<Reply> {
        self.vacant(dir, name)?;
        self.not_immutable(dir)?;
        self.not_kept(ino)?;
        let node = self.node(ino)?;
        match (node.is_dir(), node.names) {
            (true, _) => return Err(Error::NotPermitted),
            (_, 0) => return Err(Error::NotFound),
            (_, limits::LINKS_MAX..) => return Err(Error::TooManyLinks),
            _ => {}
        }
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.names += 1;
        node.ctime = now;
        self.set_entry(dir, name, Some(ino))?;
        self.referenced(ctx, ino)
    }

    fn check_over(&self, old: Option<Ino>, over: Precondition) -> Result<()> {
        match (old, over) {
            (Some(old), _) if self.node(old)?.is_dir() => Err(Error::IsDir),
            (Some(_), Precondition::Nothing) => Err(Error::Exists),
            (Some(old), Precondition::This(node, changed)) if NodeId(old) == node => {
                if self.node(old)?.ctime == changed { Ok(()) } else { Err(Error::Changed) }
            }
            (_, Precondition::This(..)) => Err(Error::Changed),
            (_, Precondition::Any) | (None, Precondition::Nothing) => Ok(()),
        }
    }

    fn unlink(&mut self, dir: Ino, name: &[u8], over: Precondition) -> Result<Reply> {
        let ino = self.child(dir, name)?;
        self.may_lose(dir, ino)?;
        self.check_over(Some(ino), over)?;
        self.set_entry(dir, name, None)?;
        let nlink = self.drop_name(ino)?;
        Ok(Reply::Removed { node: NodeId(ino), nlink })
    }

    fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<Reply> {
        let ino = self.child(dir, name)?;
        self.may_lose(dir, ino)?;
        if !self.node(ino)?.entries()?.is_empty() || self.has_snapshots(ino) {
            return Err(Error::NotEmpty);
        }
        self.set_entry(dir, name, None)?;
        self.node_mut(dir)?.subdirs -= 1;
        let nlink = self.drop_name(ino)?;
        Ok(Reply::Removed { node: NodeId(ino), nlink })
    }

    fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<Reply> {
        self.node(to.0)?.entries()?;
        let source = self.child(from.0, from.1)?;
        let target = match self.vacant(to.0, to.1) {
            Ok(()) => None,
            Err(Error::Exists) => Some(self.child(to.0, to.1)?),
            Err(e) => return Err(e),
        };
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        if self.is_inside(to.0, source)? {
            return Err(Error::Invalid);
        }
        if target == Some(source) {
            return Ok(Reply::Done);
        }
        self.may_lose(from.0, source)?;
        match target {
            Some(target) => self.may_lose(to.0, target)?,
            None => self.not_immutable(to.0)?,
        }
        match target {
            Some(target) if mode == RenameMode::Exchange => self.exchange((from, source), (to, target))?,
            target => self.replace((from, source), to, target)?,
        }
        Ok(Reply::Done)
    }

    fn exchange(&mut self, a: ((Ino, &[u8]), Ino), b: ((Ino, &[u8]), Ino)) -> Result<()> {
        let ((a_dir, a_name), a_ino) = a;
        let ((b_dir, b_name), b_ino) = b;
        if self.is_inside(a_dir, b_ino)? {
            return Err(Error::Invalid);
        }
        self.set_entry(a_dir, a_name, Some(b_ino))?;
        self.set_entry(b_dir, b_name, Some(a_ino))?;
        self.reparent(a_ino, a_dir, b_dir)?;
        self.reparent(b_ino, b_dir, a_dir)?;
        let now = self.now();
        self.node_mut(a_ino)?.ctime = now;
        self.node_mut(b_ino)?.ctime = now;
        Ok(())
    }

    fn replace(&mut self, from: ((Ino, &[u8]), Ino), to: (Ino, &[u8]), target: Option<Ino>) -> Result<()> {
        let ((from_dir, from_name), source) = from;
        if let Some(target) = target {
            self.replaceable(source, target)?;
            if self.node(target)?.is_dir() {
                self.node_mut(to.0)?.subdirs -= 1;
            }
            self.drop_name(target)?;
        }
        self.set_entry(from_dir, from_name, None)?;
        self.set_entry(to.0, to.1, Some(source))?;
        self.reparent(source, from_dir, to.0)?;
        self.node_mut(source)?.ctime = self.now();
        Ok(())
    }

    fn replaceable(&self, source: Ino, target: Ino) -> Result<()> {
        let needed = self.has_snapshots(target);
        let (source, target) = (self.node(source)?, self.node(target)?);
        match (source.is_dir(), target.is_dir()) {
            (true, false) => Err(Error::NotDir),
            (false, true) => Err(Error::IsDir),
            (true, true) if needed || !target.entries()?.is_empty() => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    pub(crate) fn list(
        &mut self,
        ctx: &Ctx,
        dir: Ino,
        after: &[u8],
        limit: usize,
        attrs: bool,
    ) -> Result<Reply> {
        let chosen = self.children(dir)?.into_iter().filter(|(name, _)| &**name > after).take(limit);
        let mut entries = Vec::new();
        for (name, ino) in chosen {
            if ctx.refs && attrs {
                self.refer(ino);
            }
            let node = self.node(ino)?;
            let attr = attrs.then(|| node.attr(ino));
            entries.push(Entry { name, node: NodeId(ino), kind: node.kind(), attr });
        }
        Ok(Reply::Entries(entries))
    }

    fn forget(&mut self, ino: Ino, count: u64) -> Result<Reply> {
        let node = self.node_mut(ino)?;
        node.refs = node.refs.saturating_sub(count);
        if node.refs == 0 && node.names == 0 {
            self.nodes.remove(&ino);
        }
        Ok(Reply::Done)
    }
}

/// The end of a range, where a file may reach that far.
fn range_end(offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).filter(|&end| end <= limits::FILE_BYTES_MAX).ok_or(Error::TooBig)
}

/// Content and attributes.
impl Model {
    fn set_attr(&mut self, ctx: &Ctx, ino: Ino, set: SetAttr) -> Result<Reply> {
        let now = self.now();
        self.may_set_attr(ctx, ino, set)?;
        if set.size.is_some() {
            self.node(ino)?.file()?;
        }
        let node = self.node_mut(ino)?;
        if let Some(size) = set.size {
            range_end(0, size)?;
            node.file_mut()?.truncate(size);
            node.mtime = now;
        }
        let chown = (set.uid.is_some() || set.gid.is_some()) && !node.is_dir();
        if chown || set.size.is_some() && ctx.uid != 0 {
            node.drop_setid(ctx);
        }
        node.mode = set.mode.map_or(node.mode, |m| m & 0o7777);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.flags = set.flags.unwrap_or(node.flags);
        let time = |set, old| match set {
            None => old,
            Some(SetTime::Now) => now,
            Some(SetTime::To(time)) => time,
        };
        node.atime = time(set.atime, node.atime);
        node.mtime = time(set.mtime, node.mtime);
        if set != SetAttr::default() {
            node.ctime = now;
        }
        self.attr_reply(ino)
    }

    fn read(&mut self, ino: Ino, offset: u64, len: u32) -> Result<Reply> {
        let data = self.node(ino)?.file()?.read(offset, u64::from(len));
        let now = self.now();
        if let Ok(node) = self.node_mut(ino) {
            node.atime = now;
        }
        Ok(Reply::Data(data))
    }

    fn write(&mut self, ctx: &Ctx, ino: Ino, offset: u64, data: &[u8]) -> Result<Reply> {
        self.node(ino)?.file()?;
        range_end(offset, data.len() as u64)?;
        self.may_write(ino, offset)?;
        if !data.is_empty() {
            self.touch(ino)?.file_mut()?.write(offset, data);
            if ctx.uid != 0 {
                self.node_mut(ino)?.drop_setid(ctx);
            }
        }
        Ok(Reply::Written(data.len() as u64))
    }

    fn allocate(&mut self, ino: Ino, offset: u64, len: u64, mode: Allocate) -> Result<Reply> {
        self.node(ino)?.file()?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        self.may_allocate(ino, mode)?;
        let end = range_end(offset, len)?;
        let content = self.touch(ino)?.file_mut()?;
        match mode {
            Allocate::Reserve { keep_size } => content.reserve(offset, end, keep_size),
            Allocate::PunchHole => content.punch(offset, end),
            Allocate::ZeroRange { keep_size } => content.zero_range(offset, end, keep_size),
        }
        Ok(Reply::Done)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<Reply> {
        let content = self.node(ino)?.file()?;
        if offset >= content.size() {
            return Err(Error::NoSuchPosition);
        }
        match what {
            Seek::Data => content.data_from(offset).map(Reply::Offset).ok_or(Error::NoSuchPosition),
            Seek::Hole => Ok(Reply::Offset(content.hole_from(offset))),
        }
    }

    fn copy_range(&mut self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<Reply> {
        let source = self.node(from.0)?.file()?.clone();
        self.node(to.0)?.file()?;
        self.may_write(to.0, to.1)?;
        let len = len.min(source.size().saturating_sub(from.1));
        range_end(to.1, len)?;
        if from.0 == to.0 && from.1 < to.1 + len && to.1 < from.1 + len {
            return Err(Error::Invalid);
        }
        if len > 0 {
            self.touch(to.0)?.file_mut()?.copy(&source, from.1, to.1, len);
        }
        Ok(Reply::Written(len))
    }

    /// The inode, whose content is about to change.
    fn touch(&mut self, ino: Ino) -> Result<&mut Node> {
        let now = self.now();
        let node = self.node_mut(ino)?;
        (node.mtime, node.ctime) = (now, now);
        Ok(node)
    }
}

/// Extended attributes.
impl Model {
    fn set_xattr(&mut self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<Reply> {
        self.not_kept(ino)?;
        if name.is_empty() || name.len() > limits::XATTR_NAME_BYTES_MAX {
            return Err(Error::Range);
        }
        self.takes_xattr(ino, name)?;
        let xattrs = &self.node(ino)?.xattrs;
        if value.len() > limits::XATTR_VALUE_BYTES_MAX {
            return Err(Error::AttrTooBig);
        }
        match (mode, xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoData),
            _ => {}
        }
        let others = xattrs.iter().filter(|(n, _)| &***n != name);
        let total: usize = others.map(|(n, v)| n.len() + v.len()).sum();
        if total + name.len() + value.len() > limits::XATTR_TOTAL_BYTES_MAX {
            return Err(Error::NoSpace);
        }
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.ctime = now;
        node.xattrs.insert(name.into(), value.into());
        Ok(Reply::Done)
    }

    /// Attributes with free names are for files and directories.
    fn takes_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let node = self.node(ino)?;
        match name.starts_with(b"user.") && !node.is_dir() && node.file().is_err() {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
    }

    fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> Result<Reply> {
        self.not_kept(ino)?;
        self.takes_xattr(ino, name)?;
        if !self.node(ino)?.xattrs.contains_key(name) {
            return Err(Error::NoData);
        }
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.ctime = now;
        node.xattrs.remove(name);
        Ok(Reply::Done)
    }
}
