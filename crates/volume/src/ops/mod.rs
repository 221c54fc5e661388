//! One file per group of operations. Each is a method of [`Shard`](crate::shard::Shard) or of
//! [`Tx`].

mod acl;
mod acl_tree;
mod alone;
mod attr;
mod content;
mod copy;
pub(crate) mod events;
pub(crate) mod flags;
mod link;
mod list;
mod make;
mod merge;
mod owners;
mod place;
mod remove;
mod rename;
mod snap;
mod space;
mod sync;
mod versions;
mod xattr;

pub(crate) use acl::{AclChange, group_perm, named};
pub(crate) use acl_tree::TreeChanged;
pub(crate) use copy::Copy;
pub(crate) use list::{PAGE, Page};
pub(crate) use make::NewNode;
pub(crate) use place::Placing;
pub(crate) use rename::Rename;

use crate::format::inode::{Inode, Stats};
use crate::tx::{Fail, Tx, TxResult};
use leeward_env::limits::NAME_BYTES_MAX;
use leeward_fs::{Error, NodeId};

/// Checks that an entry may have this name.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Error> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid);
    }
    if name == b"." || name == b".." {
        return Err(Error::Exists);
    }
    Ok(())
}

impl Tx<'_> {
    /// The inode of a directory that still has a name.
    pub(crate) fn live_dir(&self, dir: NodeId) -> TxResult<Inode> {
        let inode = self.inode(dir)?;
        if !inode.is_dir() {
            return Err(Error::NotDir.into());
        }
        if inode.nlink == 0 {
            return Err(Error::NotFound.into());
        }
        Ok(inode)
    }

    /// The directories with quotas that `dir` and all above it are in.
    pub(crate) fn quota_dirs(&self, dir: NodeId) -> TxResult<Vec<NodeId>> {
        let mut dirs = Vec::new();
        if !self.st.quotas.in_volume(dir.volume()) {
            return Ok(dirs);
        }
        let mut at = dir;
        while at.inode() != 0 {
            if self.st.quotas.get(at).is_some() {
                dirs.push(at);
            }
            at = self.above(at)?;
        }
        Ok(dirs)
    }

    /// Checks that `by` fits the quotas above `dir` and counts it when the operation succeeds.
    pub(crate) fn charge(&mut self, dir: NodeId, by: Stats) -> TxResult<()> {
        for quota_dir in self.quota_dirs(dir)? {
            let sum = self.charged(quota_dir).plus(by);
            let grows = by.bytes > 0 || by.inodes() > 0;
            if grows && self.ctx.foretold.is_some() {
                self.charge_foretold(quota_dir, sum);
            } else if grows && self.ctx.again.is_none() {
                self.check_quota(quota_dir, sum)?;
                self.leave_room_for_clients(quota_dir, sum)?;
            }
            self.charges.push((quota_dir, by));
        }
        Ok(())
    }

    /// Whether `by` more fits the quota of exactly this directory.
    pub(crate) fn check_quota(&self, dir: NodeId, by: Stats) -> TxResult<()> {
        let fits = self.st.quotas.check(dir, by, self.st.held_in_quota(dir));
        fits.map_err(|_| Fail::Quota { dir, by })
    }

    /// Counts `by` in the quotas above `dir` whether it fits or not: existing usage must go
    /// somewhere.
    pub(crate) fn charge_moved(&mut self, dir: NodeId, by: Stats) -> TxResult<()> {
        for quota_dir in self.quota_dirs(dir)? {
            self.charges.push((quota_dir, by));
        }
        Ok(())
    }

    /// The directory in which the inode's usage counts.
    pub(crate) fn counted_in(node: NodeId, inode: &Inode) -> NodeId {
        NodeId::new(node.volume(), inode.parent)
    }

    /// Whether `dir` is `top` or below it.
    pub(crate) fn is_below(&self, dir: NodeId, top: NodeId) -> TxResult<bool> {
        let mut at = dir;
        while at.inode() != 0 {
            if at == top {
                return Ok(true);
            }
            at = self.above(at)?;
        }
        Ok(false)
    }

    /// The directory above one, in its volume; of the volume's root number 0. Clients that change
    /// directories by themselves move none.
    fn above(&self, dir: NodeId) -> TxResult<NodeId> {
        Ok(NodeId::new(dir.volume(), self.unseen(|tx| tx.inode(dir))?.parent))
    }
}
