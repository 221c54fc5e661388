//! Numbers of inodes, for everybody who names one: doors, the gate, the engine.

use std::fmt;

/// First volume number that stands for a snapshot (or for the directories of snapshots); volumes have lower ones.
pub const VIEW_FIRST: u32 = 1 << 23;
/// The upper half of them is for the directories of snapshots.
pub const DIRECTORIES_FIRST: u32 = 3 << 22;
/// First number after those.
pub const VIEW_END: u32 = 1 << 24;

/// Names of snapshots that were taken of a directory above begin with this byte.
pub const INHERITED: u8 = b'_';

/// Names an inode in the whole cell: volume in the upper 24 bits, inode in the lower 40. The root of the cell is 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root directory of the root volume.
    pub const ROOT: NodeId = NodeId(1);

    /// Packs a volume and an inode number.
    pub fn new(volume: u32, inode: u64) -> NodeId {
        debug_assert!(volume < 1 << 24 && inode < 1 << 40);
        NodeId(u64::from(volume) << 40 | inode)
    }

    /// Volume number.
    pub fn volume(self) -> u32 {
        (self.0 >> 40) as u32
    }

    /// Whether it is in a snapshot or a directory of snapshots: nothing in it can be changed but by taking and removing snapshots.
    pub fn is_view(self) -> bool {
        self.volume() >= VIEW_FIRST
    }

    /// Whether front ends are told when this name in this directory changes. Of snapshots taken of directories above they
    /// are not: those show in every directory below.
    pub fn announces(self, name: &[u8]) -> bool {
        let is_snapshot_dir = (DIRECTORIES_FIRST..VIEW_END).contains(&self.volume());
        !is_snapshot_dir || name.first() != Some(&INHERITED)
    }

    /// Inode number within the volume.
    pub fn inode(self) -> u64 {
        self.0 & ((1 << 40) - 1)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.volume(), self.inode())
    }
}
