//! Quotas: limits on directories (a volume's is on its root) and on projects, and their usage,
//! exact at every moment.
//!
//! `used` includes content that is still pending: it is what an OK has promised. It starts from
//! recursive statistics and is then kept by each operation itself.

use crate::format::inode::{Pair, Stats};
use leeward_fs::{Error, NodeId, Result};
use std::collections::BTreeMap;

/// What a quota is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaOf {
    /// A directory, with all below it in its volume.
    Dir(NodeId),
    /// A volume of a project. It has no limit: what it uses leaves the project with it.
    Volume(u32),
    /// A project, with those in it.
    Project(u32),
}

/// One quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes and inodes; 0: no limit.
    pub limit: Pair,
    /// Usage of everything below the directory, or in the project.
    pub used: Stats,
}

/// All quotas of the shard.
#[derive(Default)]
pub struct Quotas {
    all: BTreeMap<QuotaOf, Quota>,
}

impl Quotas {
    /// Whether any directory of the volume has one.
    pub fn in_volume(&self, volume: u32) -> bool {
        self.of_dirs_in(volume).next().is_some()
    }

    /// Those of directories of a volume.
    pub fn of_dirs_in(&self, volume: u32) -> impl Iterator<Item = NodeId> {
        self.of_dirs_from(NodeId::new(volume, 0))
    }

    /// Those of directories of a volume from this one on.
    pub fn of_dirs_from(&self, dir: NodeId) -> impl Iterator<Item = NodeId> {
        let end = NodeId::new(dir.volume() + 1, 0);
        self.all.range(QuotaOf::Dir(dir)..QuotaOf::Dir(end)).filter_map(|(of, _)| match of {
            QuotaOf::Dir(dir) => Some(*dir),
            _ => None,
        })
    }

    /// The quota of exactly this directory.
    pub fn get(&self, dir: NodeId) -> Option<&Quota> {
        self.of(QuotaOf::Dir(dir))
    }

    /// The quota of exactly this.
    pub fn of(&self, of: QuotaOf) -> Option<&Quota> {
        self.all.get(&of)
    }

    /// What is used of it; of one that is not there nothing.
    pub fn used(&self, of: QuotaOf) -> Stats {
        self.of(of).map_or(Stats::default(), |quota| quota.used)
    }

    /// Sets or replaces a quota.
    pub fn set(&mut self, of: QuotaOf, quota: Quota) {
        self.all.insert(of, quota);
    }

    /// Removes a quota; returns what was used of it.
    pub fn remove(&mut self, of: QuotaOf) -> Stats {
        self.all.remove(&of).map_or(Stats::default(), |quota| quota.used)
    }

    /// Those of directories.
    pub fn of_dirs(&self) -> impl Iterator<Item = (NodeId, &Quota)> {
        self.all.iter().filter_map(|(of, quota)| match of {
            QuotaOf::Dir(dir) => Some((*dir, quota)),
            _ => None,
        })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (QuotaOf, &Quota)> {
        self.all.iter().map(|(of, quota)| (*of, quota))
    }

    /// [`Error::Quota`] when adding `by` would cross a limit of this, which counts `held` bytes
    /// besides those used. A change that does not grow always fits.
    pub fn check(&self, of: QuotaOf, by: Stats, held: i64) -> Result<()> {
        let Some(quota) = self.all.get(&of) else { return Ok(()) };
        let over = |limit: u64, used: i64, add: i64| add > 0 && limit > 0 && used + add > limit as i64;
        if over(quota.limit.0, quota.used.bytes + held, by.bytes)
            || over(quota.limit.1, quota.used.inodes(), by.inodes())
        {
            return Err(Error::Quota);
        }
        Ok(())
    }

    /// Counts `by` as used.
    pub fn add(&mut self, of: QuotaOf, by: Stats) {
        if let Some(quota) = self.all.get_mut(&of) {
            quota.used = quota.used.plus(by);
        }
    }
}
