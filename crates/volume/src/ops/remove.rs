//! Removes names, and inodes that lost their last one.

use crate::format::inode::{Body, Dentry, Inode, Stats, time};
use crate::format::keys;
use crate::format::plain_orphan;
use crate::state::Effect;
use crate::tx::{Tx, TxResult};
use leeward_fs::{Error, Kind, NodeId, Precondition, Reply};

impl Tx<'_> {
    /// [`Op::Unlink`](leeward_fs::Op::Unlink).
    pub(crate) fn unlink(&mut self, dir: NodeId, name: &[u8], over: Precondition) -> TxResult<Reply> {
        let entry = self.removable(dir, name)?;
        self.check_over(Some(entry), over)?;
        self.remove_entry(dir, name, Kind::File)?;
        let nlink = self.drop_link(dir, entry.node, Some(name))?;
        self.comes_to(entry.node, u64::from(nlink));
        Ok(Reply::Removed { node: entry.node, nlink })
    }

    /// [`Op::RmDir`](leeward_fs::Op::RmDir).
    pub(crate) fn remove_dir(&mut self, dir: NodeId, name: &[u8]) -> TxResult<Reply> {
        let entry = self.removable(dir, name)?;
        if entry.kind != Kind::Dir {
            return Err(Error::NotDir.into());
        }
        self.remove_entry(dir, name, Kind::Dir)?;
        self.drop_dir(dir, name, entry.node)?;
        self.comes_to(entry.node, 0);
        Ok(Reply::Removed { node: entry.node, nlink: 0 })
    }

    /// The entry, if no volume is attached there and no flag keeps it.
    pub(crate) fn removable(&mut self, dir: NodeId, name: &[u8]) -> TxResult<Dentry> {
        let parent = self.live_dir(dir)?;
        if name == b"." {
            return Err(Error::Invalid.into());
        }
        if name == b".." {
            return Err(Error::NotEmpty.into());
        }
        super::check_name(name)?;
        if self.is_snapshot_dir(dir, name) {
            return Err(Error::NotPermitted.into());
        }
        let entry = self.dentry(dir, name)?.ok_or(Error::NotFound)?;
        if entry.node.volume() != dir.volume() {
            return Err(Error::Busy.into());
        }
        self.may_remove_name(&parent, entry.node)?;
        Ok(entry)
    }

    /// Removes a name from its directory; `kind` tells directories from other entries.
    pub(crate) fn remove_entry(&mut self, dir: NodeId, name: &[u8], kind: Kind) -> TxResult<()> {
        let mut parent = self.inode(dir)?;
        parent.touch(self.now);
        parent.add_entries(-1);
        parent.nlink -= u32::from(kind == Kind::Dir);
        self.put_inode(dir, &parent)?;
        self.remove_dentry(dir, name)
    }

    /// Removes one link of a non-directory. Returns how many are left. With the last one it goes to
    /// the recycle bin, if there is one and `name` is given.
    pub(crate) fn drop_link(&mut self, dir: NodeId, node: NodeId, name: Option<&[u8]>) -> TxResult<u32> {
        let mut inode = self.inode(node)?;
        inode.times[time::C] = self.now;
        inode.nlink -= 1;
        if inode.nlink > 0 {
            self.unlink_from(dir, node, &mut inode)?;
            self.put_inode(node, &inode)?;
            return Ok(inode.nlink);
        }
        if inode.linked {
            self.remove(keys::link(node, dir));
        }
        if let Some(name) = name
            && self.is_for_bin(dir, node, &inode)?
        {
            self.put_in_bin(node, inode, name)?;
            return Ok(0);
        }
        let by = self.usage_of(node, &inode);
        self.uncount(node, &inode, by)?;
        self.put_inode(node, &inode)?;
        self.release(node, &inode)?;
        Ok(0)
    }

    /// A directory loses its name; it must be empty.
    pub(crate) fn drop_dir(&mut self, parent: NodeId, name: &[u8], node: NodeId) -> TxResult<()> {
        let mut inode = self.inode(node)?;
        self.builds_on(keys::inode(node));
        if self.is_needed(node)? {
            return Err(Error::NotEmpty.into());
        }
        if self.st.projects.at_place(node).is_some() {
            return Err(Error::Busy.into()); // as a directory with something mounted on it
        }
        if self.st.quotas.get(node).is_some() {
            self.remove(keys::quota(node));
            self.then(Effect::DropQuota(node));
        }
        self.drop_schedule(node);
        inode.nlink = 0;
        inode.times[time::C] = self.now;
        if self.is_for_bin(parent, node, &inode)? {
            return self.put_in_bin(node, inode, name);
        }
        self.uncount_dir(parent, node)?;
        self.put_inode(node, &inode)?;
        self.release(node, &inode)
    }

    /// An empty directory no longer counts where it did.
    pub(crate) fn uncount_dir(&mut self, parent: NodeId, node: NodeId) -> TxResult<()> {
        let by = Stats { dirs: 1, ..Stats::default() };
        self.charge(parent, by.negated())?;
        self.add_stats(parent, by.negated());
        self.propagate_deltas(node, parent);
        self.remove(keys::stats(node));
        Ok(())
    }

    /// Whether a directory has entries, or snapshots of its own.
    pub(crate) fn is_needed(&self, dir: NodeId) -> TxResult<bool> {
        let has_snapshots = self.st.snapshots.of_dir(dir.volume(), dir.inode()).is_some();
        Ok(has_snapshots || self.inode(dir)?.entries() > 0)
    }

    /// What a non-directory counts for in quotas (`view`) and statistics (`records`).
    pub(crate) fn usage_of(&self, node: NodeId, inode: &Inode) -> Usage {
        let bytes = |b: u64| Stats { bytes: b as i64, files: 1, dirs: 0 };
        Usage { view: bytes(self.size_of(node, inode).1), records: bytes(inode.allocated) }
    }

    /// The inode's usage no longer counts where it did.
    pub(crate) fn uncount(&mut self, node: NodeId, inode: &Inode, by: Usage) -> TxResult<()> {
        let dir = Self::counted_in(node, inode);
        self.charge(dir, by.view.negated())?;
        self.add_stats(dir, by.records.negated());
        Ok(())
    }

    /// Releases an inode without a name: it is freed now, or when the last reference goes.
    pub(crate) fn release(&mut self, node: NodeId, inode: &Inode) -> TxResult<()> {
        let is_referred_to = self.st.refs.get(node) > 0;
        if is_referred_to || self.st.sessions.keep_all() {
            self.put(keys::orphan(node), plain_orphan());
            self.then(Effect::Orphan(node));
            if !is_referred_to {
                self.then(Effect::Held(node));
            }
            Ok(())
        } else {
            self.free(node, inode)
        }
    }

    /// Frees an inode that nobody can reach any more: at once when it is small, else in steps by
    /// reclaim.
    pub(crate) fn free(&mut self, node: NodeId, inode: &Inode) -> TxResult<()> {
        self.then(Effect::Gone(node));
        self.as_of_last_change(node)?;
        let small = match &inode.body {
            Body::File { inline, spilled: false, windows: false } => {
                self.drop_extents(node, 0, inline)?;
                true
            }
            Body::File { .. } => false,
            _ => true,
        };
        if small && inode.xattrs == 0 {
            self.remove_inode(node)?;
            self.remove(keys::orphan(node));
            Ok(())
        } else {
            self.put_orphan(node, inode)
        }
    }

    /// An inode without a name is in no snapshot that was taken since it changed last: it is freed
    /// as of that epoch. An inode that lost its name in this operation has just changed; else
    /// freeing is all that the operation does.
    pub(crate) fn as_of_last_change(&mut self, node: NodeId) -> TxResult<()> {
        if let Some(record) = self.get(&keys::inode(node))? {
            self.set_as_of(node.volume(), Inode::decode(&record)?.birth);
        }
        Ok(())
    }

    /// Leaves the rest to reclaim: the orphan record makes it survive a crash.
    fn put_orphan(&mut self, node: NodeId, inode: &Inode) -> TxResult<()> {
        let mut inode = inode.clone();
        if let Body::File { inline, spilled: false, windows: false } = &mut inode.body {
            *inline = Default::default();
            inode.allocated = 0;
        }
        self.put_inode(node, &inode)?;
        self.put(keys::orphan(node), plain_orphan());
        self.then(Effect::Reclaim(node));
        Ok(())
    }
}

/// The usage of an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// With pending changes: in quotas.
    pub view: Stats,
    /// In the records: in statistics.
    pub records: Stats,
}
