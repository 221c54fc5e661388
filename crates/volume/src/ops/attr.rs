//! Lookup, attributes, symbolic links, references.

use super::check_name;
use super::content::windows_touching;
use crate::error::{Error, Result};
use crate::extents::WINDOW;
use crate::inode::{Body, Inode, time};
use crate::op::{Attr, Kind, NodeId, Reply, SetAttr, SetTime, StatFs};
use crate::pending::Change;
use crate::records::{Tx, TxResult};
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_env::limits::FILE_BYTES_MAX;

/// Windows that one step of a large truncation frees.
const STEP_WINDOWS: usize = 64;

impl Tx<'_> {
    /// Attributes with pending changes.
    pub(crate) fn attr(&self, node: NodeId, inode: &Inode) -> Attr {
        let (size, allocated) = self.size_of(node, inode);
        let mut attr = inode.attr(node);
        if inode.kind == Kind::File {
            attr.size = size;
            attr.blocks = allocated.div_ceil(512);
        }
        attr
    }

    /// [`Op::Lookup`](crate::Op::Lookup).
    pub(crate) fn lookup(&mut self, dir: NodeId, name: &[u8]) -> TxResult<Reply> {
        let inode = self.inode(dir)?;
        if !inode.is_dir() {
            return Err(Error::NotDir.into());
        }
        let node = match name {
            b"." => dir,
            b".." => match self.st.snapshots.view(dir.volume()) {
                None => self.parent_of(dir, &inode),
                Some(view) => {
                    let above = self.parent_in_view(dir, &inode, view);
                    if above.inode() == dir.inode() {
                        return self.look_up_snapshot_dir(above, dir);
                    }
                    above
                }
            },
            name if self.is_snapshot_dir(dir, name) => {
                let node = self.snapshot_dir(dir);
                return self.look_up_snapshot_dir(node, dir);
            }
            name => {
                check_name(name)?;
                self.dentry(dir, name)?.ok_or(Error::NotFound)?.node
            }
        };
        let attr = self.attr(node, &self.inode(node)?);
        self.show(node);
        Ok(Reply::Attr(attr))
    }

    /// The directory above; of a volume's root the one it is attached in; of the cell's root itself.
    pub(crate) fn parent_of(&self, dir: NodeId, inode: &Inode) -> NodeId {
        if inode.parent != 0 {
            return NodeId::new(dir.volume(), inode.parent);
        }
        match self.st.volumes.get(&dir.volume()) {
            Some(v) if v.attached_dir.0 != 0 => v.attached_dir,
            _ => dir,
        }
    }

    /// One step of [`Op::SetAttr`](crate::Op::SetAttr); `None`: a large truncation is not finished.
    fn set_attr(&mut self, node: NodeId, set: &SetAttr) -> TxResult<Option<Attr>> {
        let mut inode = self.inode(node)?;
        let before = inode.clone();
        let resize = match set.size {
            None => None,
            Some(size) => {
                self.file(node)?;
                Some(self.resize_step(node, &inode, size)?)
            }
        };
        let finished = resize.is_none_or(|(size, _)| Some(size) == set.size);
        if finished {
            self.set_owner(&mut inode, set);
            self.set_mode(node, &mut inode, set)?;
            self.set_times(&mut inode, set, resize.is_some());
        }
        match resize {
            None => self.put_inode(node, &inode)?,
            Some((size, grows)) => {
                self.drop_privileges(&mut inode);
                self.change(node, &mut inode, vec![Change::Resize { size }], grows, Vec::new())?;
            }
        }
        let mut attr = self.attr(node, &inode);
        if let Some((size, grows)) = resize {
            // the change itself takes effect when the operation succeeds
            let allocated = self.size_of(node, &before).1.saturating_add_signed(grows);
            (attr.size, attr.blocks) = (size, allocated.div_ceil(512));
        }
        Ok(finished.then_some(attr))
    }

    /// The next size on the way to `size`, and how the allocated bytes change.
    fn resize_step(&self, node: NodeId, inode: &Inode, size: u64) -> TxResult<(u64, i64)> {
        if size > FILE_BYTES_MAX {
            return Err(Error::TooBig.into());
        }
        let (old, _) = self.size_of(node, inode);
        if size >= old {
            return Ok((size, 0));
        }
        let mut to = size;
        if !self.st.files.contains_key(&node) {
            let last =
                self.windows_in(node, inode, windows_touching(&(size..u64::MAX)), STEP_WINDOWS + 1, true)?;
            if last.len() > STEP_WINDOWS {
                to = to.max(u64::from(last[1]) * WINDOW).min(old);
            }
        }
        let windows = self.occupied(node, inode, windows_touching(&(to..u64::MAX)), usize::MAX / 2)?;
        Ok((to, -(self.allocated_within(node, inode, &windows, to..u64::MAX)? as i64)))
    }

    fn set_owner(&self, inode: &mut Inode, set: &SetAttr) {
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        if (set.uid.is_some() || set.gid.is_some()) && !inode.is_dir() {
            inode.mode &= !0o4000;
            if inode.mode & 0o010 != 0 {
                inode.mode &= !0o2000;
            }
        }
    }

    fn set_mode(&mut self, node: NodeId, inode: &mut Inode, set: &SetAttr) -> TxResult<()> {
        if let Some(mode) = set.mode {
            inode.mode = mode & 0o7777;
            self.chmod_acl(node, inode)?;
        }
        Ok(())
    }

    fn set_times(&self, inode: &mut Inode, set: &SetAttr, resized: bool) {
        let value = |t| match t {
            SetTime::Now => self.now,
            SetTime::To(t) => t,
        };
        if resized {
            inode.times[time::M] = self.now;
        }
        inode.times[time::A] = set.atime.map_or(inode.times[time::A], value);
        inode.times[time::M] = set.mtime.map_or(inode.times[time::M], value);
        inode.times[time::C] = self.now;
    }

    /// [`Op::ReadLink`](crate::Op::ReadLink).
    pub(crate) fn read_link(&self, node: NodeId) -> TxResult<Reply> {
        match self.inode(node)?.body {
            Body::Symlink(target) => Ok(Reply::Data(target.into())),
            _ => Err(Error::Invalid.into()),
        }
    }

    /// [`Op::Forget`](crate::Op::Forget).
    pub(crate) fn forget(&mut self, node: NodeId, count: u64) -> TxResult<Reply> {
        if self.st.refs.get(node) <= count && self.st.orphans.contains(&node) {
            let inode = self.inode(node)?;
            self.free(node, &inode)?;
        }
        self.st.refs.sub(node, count);
        Ok(Reply::Done)
    }
}

impl Shard {
    /// [`Op::SetAttr`](crate::Op::SetAttr).
    pub(crate) fn set_attr(&self, ctx: &Ctx, node: NodeId, set: &SetAttr) -> Result<Reply> {
        loop {
            if let Some(attr) = self.transact(ctx, |tx| tx.set_attr(node, set))? {
                return Ok(Reply::Attr(attr));
            }
        }
    }

    /// [`Op::StatFs`](crate::Op::StatFs).
    pub(crate) fn stat_fs(&self, node: NodeId) -> Reply {
        let pool = {
            let st = self.lock();
            st.volumes.get(&st.live_node(node).volume()).map_or(0, |v| v.properties.pool)
        };
        self.look_at_space(pool);
        let (total, free) = self.space(pool);
        let mut s =
            StatFs { total_bytes: total, free_bytes: free, total_files: 1 << 40, free_files: 1 << 40 };
        let st = self.lock();
        let node = st.live_node(node);
        let used = st.volumes.get(&node.volume()).map_or(0, |v| v.next_inode);
        s.free_files -= used.min(s.free_files);
        if let Some(q) = st.quotas.get(NodeId::new(node.volume(), 1)) {
            let left = |limit: u64, used: i64| limit.saturating_sub(used.max(0) as u64);
            if q.limit.0 > 0 {
                s.total_bytes = q.limit.0;
                s.free_bytes = s
                    .free_bytes
                    .min(left(q.limit.0, q.used.bytes + st.held_in_quota(NodeId::new(node.volume(), 1))));
            }
            if q.limit.1 > 0 {
                s.total_files = q.limit.1;
                s.free_files = left(q.limit.1, q.used.inodes());
            }
        }
        Reply::StatFs(s)
    }
}
