//! One file per group of operations. Each is a method of [`Shard`](crate::shard::Shard) or of
//! [`Tx`].

mod above;
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
mod project;
mod remove;
mod rename;
mod snap;
mod space;
mod sync;
mod versions;
mod xattr;

pub(crate) use acl::{AclChange, group_perm, named};
pub use acl_tree::AclChangedInfo;
pub(crate) use copy::Copy;
pub(crate) use list::{PAGE, Page};
pub(crate) use make::NewNode;
pub(crate) use place::Placing;
pub(crate) use rename::Rename;

use crate::format::inode::{Inode, Stats};
use crate::state::quota::QuotaOf;
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

    /// Whether what is in a volume counts for quotas.
    pub(crate) fn counts_exactly(&self, volume: u32) -> bool {
        self.st.quotas.in_volume(volume) || self.st.projects.of_volume(volume).is_some()
    }

    /// Checks that `by` fits the quotas above `dir` and counts it when the operation succeeds.
    pub(crate) fn charge(&mut self, dir: NodeId, by: Stats) -> TxResult<()> {
        for of in self.quotas_above(dir)? {
            let sum = self.charged(of).plus(by);
            let grows = by.bytes > 0 || by.inodes() > 0;
            if grows && self.ctx.foretold.is_some() {
                self.charge_foretold(of, sum);
            } else if grows && self.ctx.again.is_none() {
                self.check_quota(of, sum)?;
                self.leave_room_for_clients(of, sum)?;
            }
            self.charges.push((of, by));
        }
        Ok(())
    }

    /// Whether a quota refuses anything: those in a copy do when it is promoted.
    pub(crate) fn binds(&self, of: QuotaOf) -> bool {
        !matches!(of, QuotaOf::Dir(dir) if self.st.is_copy(dir.volume()))
    }

    /// Whether `by` more fits exactly this quota.
    pub(crate) fn check_quota(&self, of: QuotaOf, by: Stats) -> TxResult<()> {
        if !self.binds(of) {
            return Ok(());
        }
        let fits = self.st.quotas.check(of, by, self.st.held_in_quota(of));
        fits.map_err(|_| Fail::Quota { of, by })
    }

    /// Counts `by` in the quotas above `dir` whether it fits or not: existing usage must go
    /// somewhere.
    pub(crate) fn charge_moved(&mut self, dir: NodeId, by: Stats) -> TxResult<()> {
        self.charges.extend(self.quotas_above(dir)?.into_iter().map(|of| (of, by)));
        Ok(())
    }

    /// The directory in which the inode's usage counts.
    pub(crate) fn counted_in(node: NodeId, inode: &Inode) -> NodeId {
        NodeId::new(node.volume(), inode.parent)
    }
}
