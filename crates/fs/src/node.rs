//! Numbers of inodes, by which doors, gate and cell name them.

use std::fmt;

/// First volume number that stands for a snapshot, or for the directories of snapshots. Volumes
/// have lower numbers.
pub const VIEW_FIRST: u32 = 1 << 23;
/// First of those numbers that stands for the directories of snapshots of a volume.
pub const DIRECTORIES_FIRST: u32 = 3 << 22;
/// First number after all of those.
pub const VIEW_END: u32 = 1 << 24;

/// Most shards of a cell.
pub const SHARDS_MAX: usize = 32;
/// Numbers of volumes that each of several shards gives out.
pub const VOLUMES_OF_SHARD: u32 = VIEW_FIRST / SHARDS_MAX as u32;
/// Numbers of each of the two kinds of views that each of several shards gives out.
pub const VIEWS_OF_SHARD: u32 = (DIRECTORIES_FIRST - VIEW_FIRST) / SHARDS_MAX as u32;

/// Names of snapshots that were taken of a directory above begin with this byte.
pub const INHERITED: u8 = b'_';

/// The number of an inode in the whole cell: its volume in the upper 24 bits, its number there in
/// the lower 40. The root of the cell is 1.
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

    /// Whether it is in a snapshot, or is a directory of snapshots.
    pub fn is_view(self) -> bool {
        self.volume() >= VIEW_FIRST
    }

    /// The shard that has given out the number of its volume or view, in a cell of several.
    pub fn shard(self) -> usize {
        let volume = self.volume();
        let shard = match volume < VIEW_FIRST {
            true => volume / VOLUMES_OF_SHARD,
            false => (volume - VIEW_FIRST) % (DIRECTORIES_FIRST - VIEW_FIRST) / VIEWS_OF_SHARD,
        };
        shard as usize
    }

    /// Whether the file system tells front ends when this name in this directory changes. It does
    /// not for snapshots of directories above, which show in every directory below.
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
