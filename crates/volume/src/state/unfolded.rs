//! Changes of recursive statistics that are not in their records yet.

use crate::format::inode::{Inode, Stats};
use crate::format::keys;
use crate::state::State;
use crate::state::quota::QuotaOf;
use leeward_fs::{NodeId, Result};
use leeward_meta::Kv;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Changes of statistics by directory that are not in its record yet.
#[derive(Default)]
pub struct Unfolded {
    by_dir: BTreeMap<NodeId, Stats>,
    /// Directories changed since the last commit began.
    dirty: FxHashSet<NodeId>,
    /// Directories that have a record here.
    stored: FxHashSet<NodeId>,
}

impl Unfolded {
    /// Adds a stored record.
    pub fn load(&mut self, dir: NodeId, by: Stats) {
        self.by_dir.insert(dir, by);
        self.stored.insert(dir);
    }

    /// Number of directories.
    pub fn len(&self) -> usize {
        self.by_dir.len()
    }

    /// Whether all is folded.
    pub fn is_empty(&self) -> bool {
        self.by_dir.is_empty()
    }

    /// All changes.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (NodeId, Stats)> + '_ {
        self.by_dir.iter().map(|(dir, by)| (*dir, *by))
    }

    /// Those of a volume.
    pub fn of_volume(&self, volume: u32) -> impl DoubleEndedIterator<Item = (NodeId, Stats)> + '_ {
        let first = |volume| NodeId::new(volume, 0);
        self.by_dir.range(first(volume)..first(volume + 1)).map(|(dir, by)| (*dir, *by))
    }

    /// The change of one directory.
    pub fn get(&self, dir: NodeId) -> Option<Stats> {
        self.by_dir.get(&dir).copied()
    }

    /// Adds a change.
    pub fn add(&mut self, dir: NodeId, by: Stats) {
        self.dirty.insert(dir);
        let sum = self.by_dir.entry(dir).or_default();
        *sum = sum.plus(by);
        if sum.is_zero() {
            self.by_dir.remove(&dir);
        }
    }

    /// All changes in a volume were folded.
    pub fn clear(&mut self, volume: u32) {
        let folded: Vec<NodeId> = self.of_volume(volume).map(|(dir, _)| dir).collect();
        for dir in folded {
            self.by_dir.remove(&dir);
            self.dirty.insert(dir);
        }
    }

    /// Removes a volume.
    pub fn drop_volume(&mut self, volume: u32) {
        self.clear(volume);
        let of_volume = |dir: &NodeId| dir.volume() == volume;
        self.dirty.retain(|dir| !of_volume(dir));
        self.dirty.extend(self.stored.iter().copied().filter(of_volume));
    }

    /// Whether there is something to commit.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The records to be written, in order; `None`: to be removed.
    pub fn freeze(&mut self) -> Vec<(NodeId, Option<Stats>)> {
        let mut dirty: Vec<NodeId> = self.dirty.drain().collect();
        dirty.sort_unstable();
        let mut writes = Vec::new();
        for dir in dirty {
            match self.get(dir) {
                Some(by) => {
                    self.stored.insert(dir);
                    writes.push((dir, Some(by)));
                }
                None if self.stored.remove(&dir) => writes.push((dir, None)),
                None => (),
            }
        }
        writes
    }
}

impl State {
    /// Counts in the quotas above the changes that directories' records do not have yet.
    pub(crate) fn count_unfolded(&mut self, kv: &dyn Kv) -> Result<()> {
        let changes: Vec<(NodeId, Stats)> = self.unfolded.iter().collect();
        for (start, by) in changes {
            let (mut dir, mut top) = (start, start);
            while dir.inode() != 0 {
                self.quotas.add(QuotaOf::Dir(dir), by);
                top = dir;
                let Some(value) = kv.get(&keys::inode(dir))? else { break };
                dir = NodeId::new(dir.volume(), Inode::decode(&value)?.parent);
            }
            if top.inode() == 1 {
                let above: Vec<QuotaOf> = self.project_quotas(start.volume()).collect();
                above.into_iter().for_each(|of| self.quotas.add(of, by));
            }
        }
        Ok(())
    }
}
