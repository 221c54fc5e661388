//! Which shard of a cell this is, and which numbers are its own.

use leeward_fs::{DIRECTORIES_FIRST, NodeId, VIEW_FIRST, VIEWS_OF_SHARD, VOLUMES_OF_SHARD};
use std::ops::Range;

/// A shard of a cell of so many. A cell of one gives out all numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhichShard {
    /// Its number, from 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

impl Default for WhichShard {
    fn default() -> WhichShard {
        WhichShard { index: 0, count: 1 }
    }
}

impl WhichShard {
    /// Whether an inode, a view or a volume's root is here.
    pub fn has(self, node: NodeId) -> bool {
        self.count == 1 || node.shard() == self.index
    }

    /// Whether a volume is here.
    pub fn has_volume(self, volume: u32) -> bool {
        self.has(NodeId::new(volume, 1))
    }

    /// Numbers of volumes that it gives out.
    pub fn volumes(self) -> Range<u32> {
        self.own(VOLUMES_OF_SHARD, VIEW_FIRST)
    }

    /// Numbers of views that it gives out, from the first of each kind on.
    pub fn views(self) -> Range<u32> {
        self.own(VIEWS_OF_SHARD, DIRECTORIES_FIRST - VIEW_FIRST)
    }

    fn own(self, each: u32, all: u32) -> Range<u32> {
        match self.count {
            1 => 0..all,
            _ => each * self.index as u32..each * (self.index as u32 + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_has_what_has_its_numbers() {
        for index in [0, 1, 31] {
            let which = WhichShard { index, count: 32 };
            for volume in [which.volumes().start, which.volumes().end - 1] {
                assert!(which.has_volume(volume));
            }
            for view in [which.views().start, which.views().end - 1] {
                assert!(which.has(NodeId::new(VIEW_FIRST + view, 9)), "{index}");
                assert!(which.has(NodeId::new(DIRECTORIES_FIRST + view, 9)), "{index}");
            }
            assert!(!which.has_volume(which.volumes().end.min(VIEW_FIRST - 1)) || index == 31);
        }
        assert_eq!(WhichShard::default().volumes(), 0..VIEW_FIRST);
        assert!(WhichShard::default().has_volume(VIEW_FIRST - 1));
    }
}
