//! Hard links, and where the usage of an inode with several names counts: in the directory of one
//! of them.

use super::check_name;
use super::flags::{may_add_name, may_change_inode};
use crate::format::inode::{Inode, time};
use crate::format::keys::{self, tag};
use crate::tx::{Tx, TxResult};
use leeward_env::limits::LINKS_MAX;
use leeward_fs::{Error, NodeId, Reply};

impl Tx<'_> {
    /// [`Op::Link`](leeward_fs::Op::Link).
    pub(crate) fn link(&mut self, node: NodeId, dir: NodeId, name: &[u8]) -> TxResult<Reply> {
        let mut parent = self.live_dir(dir)?;
        check_name(name)?;
        if node.volume() != dir.volume() {
            return Err(Error::CrossVolume.into());
        }
        let mut inode = self.inode(node)?;
        if inode.is_dir() {
            return Err(Error::NotPermitted.into());
        }
        if self.is_snapshot_dir(dir, name) || self.dentry(dir, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        may_add_name(&parent)?;
        may_change_inode(&inode)?;
        match inode.nlink {
            0 => return Err(Error::NotFound.into()),
            LINKS_MAX.. => return Err(Error::TooManyLinks.into()),
            _ => {}
        }
        self.add_name(node, &mut inode, dir)?;
        inode.times[time::C] = self.now;
        parent.touch(self.now);
        parent.add_entries(1);
        self.put_inode(node, &inode)?;
        self.put_inode(dir, &parent)?;
        self.put_dentry(dir, name, node, inode.kind)?;
        self.comes_to(node, 0);
        self.show(node);
        Ok(Reply::Attr(self.attr(node, &inode)))
    }

    /// Counts one more name, in `dir`. Does not write the inode record.
    pub(crate) fn add_name(&mut self, node: NodeId, inode: &mut Inode, dir: NodeId) -> TxResult<()> {
        if !inode.linked {
            inode.linked = true;
            self.add_link(node, Self::counted_in(node, inode), 1)?;
        }
        self.add_link(node, dir, 1)?;
        inode.nlink += 1;
        Ok(())
    }

    /// Changes how many names of a linked inode are in `dir`; returns how many there are now.
    pub(crate) fn add_link(&mut self, node: NodeId, dir: NodeId, by: i32) -> TxResult<u32> {
        let key = keys::link(node, dir);
        let count = match self.get(&key)? {
            None => 0,
            Some(v) => u32::from_be_bytes(
                v[..].try_into().map_err(|_| Error::Corrupt(format!("link count of {node:?} in {dir:?}")))?,
            ),
        };
        let count = count.saturating_add_signed(by);
        if count == 0 {
            self.remove(key);
        } else {
            self.put(key, count.to_be_bytes()[..].into());
        }
        Ok(count)
    }

    /// A name was removed from `dir`, of an inode that keeps others. Does not write the inode
    /// record.
    pub(crate) fn unlink_from(&mut self, dir: NodeId, node: NodeId, inode: &mut Inode) -> TxResult<()> {
        let left = self.add_link(node, dir, -1)?;
        if left > 0 || inode.parent != dir.inode() {
            return Ok(());
        }
        let (from, to) = keys::tag_range(node, tag::LINK);
        let links = self.scan(&from, &to, 1, false)?;
        let other =
            links.first().and_then(|(key, _)| keys::parse(key)?.rest.try_into().ok()).map(u64::from_be_bytes);
        let other =
            other.ok_or_else(|| Error::Corrupt(format!("{node:?} has links but no record of them")))?;
        self.move_usage(node, inode, NodeId::new(node.volume(), other))
    }

    /// A name of the inode moves between directories. Does not write the inode record.
    pub(crate) fn relink(
        &mut self,
        node: NodeId,
        inode: &mut Inode,
        from: NodeId,
        to: NodeId,
    ) -> TxResult<()> {
        if from == to {
            return Ok(());
        }
        if !inode.linked {
            return self.move_usage(node, inode, to);
        }
        self.add_link(node, to, 1)?;
        if self.add_link(node, from, -1)? == 0 && inode.parent == from.inode() {
            self.move_usage(node, inode, to)?;
        }
        Ok(())
    }

    pub(crate) fn move_usage(&mut self, node: NodeId, inode: &mut Inode, to: NodeId) -> TxResult<()> {
        let by = self.usage_of(node, inode);
        self.uncount(node, inode, by)?;
        inode.parent = to.inode();
        self.charge_moved(to, by.view)?;
        self.add_stats(to, by.records);
        Ok(())
    }
}
