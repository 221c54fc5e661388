//! Lookup, attributes, symbolic links, references.

use super::check_name;
use super::content::windows_touching;
use super::flags;
use crate::format::extents::{WINDOW, window_of};
use crate::format::inode::{Body, Inode, time};
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::pending::Change;
use crate::state::quota::QuotaOf;
use crate::tx::{Tx, TxResult};
use leeward_env::limits::FILE_BYTES_MAX;
use leeward_env::{Ctx, Door};
use leeward_fs::{Attr, Error, Kind, NodeId, Reply, Result, SetAttr, SetTime, StatFs};
use std::collections::BTreeSet;
use std::ops::Range;

/// Windows that one step of a large truncation frees.
const STEP_WINDOWS: usize = 64;

/// A step of a truncation.
struct ResizeStep {
    change: Change,
    /// How the allocated bytes change.
    grows: i64,
    /// Windows that it frees.
    windows: usize,
    is_last: bool,
}

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

    /// [`Op::Lookup`](leeward_fs::Op::Lookup).
    pub(crate) fn lookup(&mut self, dir: NodeId, name: &[u8]) -> TxResult<Reply> {
        if name == b"." {
            return self.by_number(dir);
        }
        let inode = self.inode(dir)?;
        if !inode.is_dir() {
            return Err(Error::NotDir.into());
        }
        let node = match name {
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

    /// An inode of any kind for a front end that may have no reference to it, but kept its number.
    /// What has no name is there for those only who have references.
    fn by_number(&mut self, node: NodeId) -> TxResult<Reply> {
        // the root of a copy is that of the snapshot which it shows
        let is_of_several = self.st.which.count > 1;
        let node = if is_of_several && node.inode() == 1 { self.st.shown(NodeId::ROOT, node) } else { node };
        let inode = &self.inode(node)?;
        if inode.nlink == 0 && self.st.refs.get(node) == 0 {
            return Err(Error::Stale.into());
        }
        self.show(node);
        Ok(Reply::Attr(self.attr(node, inode)))
    }

    /// The directory above; for a volume's root the one it is attached in; for the cell's root
    /// itself.
    pub(crate) fn parent_of(&self, dir: NodeId, inode: &Inode) -> NodeId {
        if inode.parent != 0 {
            return NodeId::new(dir.volume(), inode.parent);
        }
        match self.st.volumes.get(&dir.volume()) {
            Some(v) if v.attached_dir.0 != 0 => v.attached_dir,
            _ => dir,
        }
    }

    /// One step of [`Op::SetAttr`](leeward_fs::Op::SetAttr); `None`: a large truncation is not
    /// finished.
    pub(crate) fn set_attr(&mut self, node: NodeId, set: &SetAttr) -> TxResult<Option<Attr>> {
        let mut inode = self.inode(node)?;
        self.may_set_attr(&inode, set)?;
        let before = inode.clone();
        let resize = match set.size {
            None => None,
            Some(size) => {
                self.file(node)?;
                Some(self.resize_step(node, &inode, size)?)
            }
        };
        let finished = resize.as_ref().is_none_or(|step| step.is_last);
        if !finished {
            self.goes_on();
        } else if !self.restores_content() {
            self.set_owner(node, &mut inode, set)?;
            self.set_mode(node, &mut inode, set)?;
            self.set_times(&mut inode, set, resize.is_some());
            inode.flags = set.flags.unwrap_or(inode.flags);
        }
        match resize {
            None => self.put_inode(node, &inode)?,
            Some(ref step) => {
                if !self.restores_content() {
                    self.drop_privileges(node, &mut inode)?;
                }
                let changes = vec![step.change.clone()];
                self.change(node, &mut inode, changes, step.grows, Vec::new(), step.windows)?;
            }
        }
        self.comes_to(node, 0);
        let mut attr = self.attr(node, &inode);
        if let Some(step) = resize {
            // the change itself takes effect when the operation succeeds
            let allocated = self.size_of(node, &before).1.saturating_add_signed(step.grows);
            attr.blocks = allocated.div_ceil(512);
            attr.size = set.size.unwrap_or(attr.size);
        }
        Ok(finished.then_some(attr))
    }

    /// The next step on the way to `size`: frees windows from the end on, at most [`STEP_WINDOWS`],
    /// whatever the queue of pending changes holds.
    fn resize_step(&self, node: NodeId, inode: &Inode, size: u64) -> TxResult<ResizeStep> {
        if size > FILE_BYTES_MAX {
            return Err(Error::TooBig.into());
        }
        let (old, _) = self.size_of(node, inode);
        let change = Change::Resize { size };
        if size >= old {
            return Ok(ResizeStep { change, grows: 0, windows: 0, is_last: true });
        }
        let end = self.st.pending_of(node).map_or(u64::MAX, |p| p.nothing_from());
        let touched = windows_touching(&(size..end.max(size)));
        let stored = self.windows_in(node, inode, touched.clone(), STEP_WINDOWS + 1, true)?;
        let mut last: BTreeSet<u32> = stored.into_iter().collect();
        if let Some(pending) = self.st.pending_of(node) {
            let of_piece = |r: Range<u64>| (window_of(r.start)..=window_of(r.end - 1)).rev();
            let pending = pending.allocated_ranges().rev().flat_map(of_piece);
            let mut distinct = BTreeSet::new();
            for window in pending.take_while(|w| touched.contains(w)) {
                distinct.insert(window);
                if distinct.len() > STEP_WINDOWS {
                    break;
                }
            }
            last.extend(distinct);
        }
        let mut step = ResizeStep { change, grows: 0, windows: last.len(), is_last: true };
        let mut cut = size;
        if let Some(n) = last.len().checked_sub(STEP_WINDOWS).filter(|n| *n > 0) {
            last = last.into_iter().skip(n).collect();
            cut = last.first().map_or(size, |first| u64::from(*first) * WINDOW).max(size);
            (step.is_last, step.windows) = (false, STEP_WINDOWS);
            step.change = match cut < old {
                true => Change::Resize { size: cut },
                // space that is reserved past the end
                false => Change::Zero { range: cut..u64::MAX, allocated: false },
            };
        }
        step.grows = -(self.allocated_within(node, inode, &last, cut..u64::MAX)? as i64);
        Ok(step)
    }

    fn set_owner(&mut self, node: NodeId, inode: &mut Inode, set: &SetAttr) -> TxResult<()> {
        if (set.uid.is_some() || set.gid.is_some()) && !inode.is_dir() {
            // by the group that it had
            self.take_set_ids(inode);
            self.take_capabilities(node, inode)?;
        }
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        Ok(())
    }

    fn set_mode(&mut self, node: NodeId, inode: &mut Inode, set: &SetAttr) -> TxResult<()> {
        if let Some(mode) = set.mode {
            inode.mode = mode & 0o7777;
            // for changes through the mount the kernel has cleared it
            if !self.ctx.door.is_kernel() && inode.mode & 0o2000 != 0 && !self.may_set_gid(inode) {
                inode.mode &= !0o2000;
            }
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

    /// [`Op::ReadLink`](leeward_fs::Op::ReadLink).
    pub(crate) fn read_link(&self, node: NodeId) -> TxResult<Reply> {
        match self.inode(node)?.body {
            Body::Symlink(target) => Ok(Reply::Data(target.into())),
            _ => Err(Error::Invalid.into()),
        }
    }

    /// [`Op::Forget`](leeward_fs::Op::Forget).
    pub(crate) fn forget(&mut self, node: NodeId, count: u64) -> TxResult<Reply> {
        self.quietly();
        self.sees_nothing();
        if self.st.refs.get(node) <= count && self.st.orphans.contains(&node) {
            if self.st.sessions.keep_all() {
                self.then(Effect::Held(node));
            } else {
                let inode = self.inode(node)?;
                self.free(node, &inode)?;
            }
        }
        self.st.unrefer(self.ctx, node, count);
        Ok(Reply::Done)
    }
}

impl Shard {
    /// [`Op::SetAttr`](leeward_fs::Op::SetAttr).
    pub(crate) fn set_attr(&self, ctx: &Ctx, node: NodeId, set: &SetAttr) -> Result<Reply> {
        if ctx.door == Door::Mount && set.flags.is_some_and(flags::refuse_writes) {
            self.get_mapped_pages(ctx, node)?;
        }
        loop {
            let set = |tx: &mut Tx<'_>| {
                tx.lease(node);
                tx.set_attr(node, set)
            };
            if let Some(attr) = self.transact(ctx, set)? {
                return Ok(Reply::Attr(attr));
            }
        }
    }

    /// Makes the kernel write what programs have changed through mappings of a file.
    fn get_mapped_pages(&self, ctx: &Ctx, node: NodeId) -> Result<()> {
        if self.transact(ctx, |tx| tx.inode(node))?.kind == Kind::File {
            Self::may_wait(ctx)?;
            self.invalidate_inode(node);
            self.wait_applied();
        }
        Ok(())
    }

    /// [`Op::StatFs`](leeward_fs::Op::StatFs).
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
        let root = QuotaOf::Dir(NodeId::new(node.volume(), 1));
        for of in std::iter::once(root).chain(st.project_quotas(node.volume())) {
            let Some(q) = st.quotas.of(of) else { continue };
            let left = |limit: u64, used: i64| limit.saturating_sub(used.max(0) as u64);
            let free = left(q.limit.0, q.used.bytes + st.held_in_quota(of));
            // what limits it most is its size
            if q.limit.0 > 0 && (free < s.free_bytes || of == root) {
                (s.total_bytes, s.free_bytes) = (q.limit.0, free.min(s.free_bytes));
            }
            let free = left(q.limit.1, q.used.inodes());
            if q.limit.1 > 0 && (free < s.free_files || of == root) {
                (s.total_files, s.free_files) = (q.limit.1, free);
            }
        }
        Reply::StatFs(s)
    }
}
