//! Quotas: limits on directories (a volume's is on its root), and their usage, exact at every
//! moment.
//!
//! `used` includes content that is still pending: it is what an OK has promised. It starts from
//! recursive statistics and is then kept by each operation itself.

use crate::format::inode::{Pair, Stats};
use leeward_fs::{Error, NodeId, Result};
use std::collections::BTreeMap;

/// One quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes and inodes; 0: no limit.
    pub limit: Pair,
    /// Usage of everything below the directory.
    pub used: Stats,
}

/// All quotas of the shard.
#[derive(Default)]
pub struct Quotas {
    by_dir: BTreeMap<NodeId, Quota>,
}

impl Quotas {
    /// Whether any directory of the volume has one.
    pub fn in_volume(&self, volume: u32) -> bool {
        self.by_dir.range(NodeId::new(volume, 0)..NodeId::new(volume + 1, 0)).next().is_some()
    }

    /// The quota of exactly this directory.
    pub fn get(&self, dir: NodeId) -> Option<&Quota> {
        self.by_dir.get(&dir)
    }

    /// Sets or replaces a quota.
    pub fn set(&mut self, dir: NodeId, quota: Quota) {
        self.by_dir.insert(dir, quota);
    }

    /// Removes a quota.
    pub fn remove(&mut self, dir: NodeId) {
        self.by_dir.remove(&dir);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Quota)> {
        self.by_dir.iter().map(|(d, q)| (*d, q))
    }

    /// [`Error::Quota`] when adding `by` would cross a limit of `dir`, which counts `held` bytes
    /// besides those used. A change that does not grow always fits.
    pub fn check(&self, dir: NodeId, by: Stats, held: i64) -> Result<()> {
        let Some(quota) = self.by_dir.get(&dir) else { return Ok(()) };
        let over = |limit: u64, used: i64, add: i64| add > 0 && limit > 0 && used + add > limit as i64;
        if over(quota.limit.0, quota.used.bytes + held, by.bytes)
            || over(quota.limit.1, quota.used.inodes(), by.inodes())
        {
            return Err(Error::Quota);
        }
        Ok(())
    }

    /// Counts `by` as used.
    pub fn add(&mut self, dir: NodeId, by: Stats) {
        if let Some(quota) = self.by_dir.get_mut(&dir) {
            quota.used = quota.used.plus(by);
        }
    }
}
