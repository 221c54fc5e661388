//! The tree of a volume as it is now, or as a snapshot shows it.

use crate::format::inode::{Dentry, Inode};
use crate::format::keys::{self, Key, tag};
use crate::ops::PAGE;
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_fs::{Error, NodeId, Result};

/// A name in a directory, by the directory's inode number.
pub(crate) type Name = (u64, Box<[u8]>);

/// The tree of one volume at one time. Attached volumes are not in it.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'a> {
    pub(crate) shard: &'a Shard,
    /// Number of a view, or of the live volume.
    pub(crate) volume: u32,
}

impl Tree<'_> {
    pub(crate) fn node(&self, inode: u64) -> NodeId {
        NodeId::new(self.volume, inode)
    }

    /// The inode of this number, if it is there; it may have no name.
    pub(crate) fn inode(&self, inode: u64) -> Result<Option<Inode>> {
        match self.shard.transact(&Ctx::system(), |tx| tx.inode(self.node(inode))) {
            Err(Error::Stale) if self.shard.lock().is_there(self.volume) => Ok(None),
            other => other.map(Some),
        }
    }

    pub(crate) fn dentry(&self, name: &Name) -> Result<Option<Dentry>> {
        let found = self.shard.transact(&Ctx::system(), |tx| tx.dentry(self.node(name.0), &name.1))?;
        Ok(found.filter(|d| d.node.volume() == self.volume))
    }

    /// Some names in a directory, from a key on (`None`: the first), and where to continue.
    pub(crate) fn page(
        &self,
        dir: u64,
        from: Option<Key>,
        mut each: impl FnMut(Box<[u8]>, Dentry),
    ) -> Result<Option<Key>> {
        let view = self.shard.lock().snapshots.view(self.volume);
        let (first, to) = keys::tag_range(self.node(dir), tag::DENTRY);
        let (page, next) = self.shard.scan(&from.unwrap_or(first), &to, PAGE)?;
        for (key, value) in page {
            let entry = crate::snapshots::versions::seen_in(view, self.node(dir), Dentry::decode(&value)?);
            let name = keys::parse(&key).map(|p| p.rest.into());
            if let (Some(entry), Some(name)) = (entry.filter(|e| e.node.volume() == self.volume), name) {
                each(name, entry);
            }
        }
        Ok(next)
    }

    /// All names in a directory.
    pub(crate) fn list(&self, dir: u64, mut each: impl FnMut(Box<[u8]>, Dentry)) -> Result<()> {
        let mut next = self.page(dir, None, &mut each)?;
        while next.is_some() {
            next = self.page(dir, next, &mut each)?;
        }
        Ok(())
    }
}

impl crate::state::State {
    /// Whether the volume, or the snapshot that the view shows, exists.
    fn is_there(&self, volume: u32) -> bool {
        self.volumes.contains_key(&volume) || self.snapshots.view(volume).is_some()
    }
}
