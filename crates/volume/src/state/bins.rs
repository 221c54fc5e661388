//! Recycle bins in memory: which volumes have something in theirs, and how old that is.

use leeward_fs::NodeId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// One volume's bin.
pub(crate) struct Bin {
    /// No entry is older.
    pub(crate) oldest: u64,
    /// The oldest that can be read; `None`: there is none.
    pub(crate) due: Option<u64>,
    /// No entry is newer.
    pub(crate) newest: u64,
    /// Moves of directories in the volume so far.
    pub(crate) moves: u64,
    /// Directories that nothing is below which is in the bin and has this stamp or an earlier one, if `moves` is as it was then.
    pub(crate) searched: FxHashMap<NodeId, (u64, u64)>,
}

/// Bins in memory: of volumes that have something in theirs.
#[derive(Default)]
pub struct Bins {
    pub(crate) volumes: BTreeMap<u32, Bin>,
}

impl Bins {
    /// Puts in a stored bin.
    pub fn load(&mut self, volume: u32, oldest: u64, newest: u64) {
        self.volumes.insert(
            volume,
            Bin { oldest, due: Some(oldest), newest, moves: 0, searched: FxHashMap::default() },
        );
    }

    /// Whether something may be in the bin.
    pub fn holds(&self, volume: u32) -> bool {
        self.volumes.contains_key(&volume)
    }

    /// Volumes that may have something in theirs.
    pub fn volumes(&self) -> impl Iterator<Item = u32> + '_ {
        self.volumes.keys().copied()
    }

    /// Something went to the bin with this stamp.
    pub fn add(&mut self, volume: u32, stamp: u64) {
        let due = Some(stamp);
        let new = || Bin { oldest: stamp, due, newest: stamp, moves: 0, searched: FxHashMap::default() };
        let bin = self.volumes.entry(volume).or_insert_with(new);
        bin.newest = stamp;
        bin.due = bin.due.or(due);
    }

    /// A directory has another parent now.
    pub fn moved(&mut self, volume: u32) {
        if let Some(bin) = self.volumes.get_mut(&volume) {
            bin.moves += 1;
        }
    }

    /// From which stamp on something below this directory may be in the bin.
    pub(crate) fn search_from(&self, dir: NodeId) -> u64 {
        let Some(bin) = self.volumes.get(&dir.volume()) else { return u64::MAX };
        match bin.searched.get(&dir) {
            Some((moves, upto)) if *moves == bin.moves => upto + 1,
            _ => bin.oldest,
        }
    }

    /// Nothing below this directory is in the bin up to this stamp; `moves`: as it was before looking.
    pub(crate) fn note_searched(&mut self, dir: NodeId, moves: u64, upto: u64) {
        if let Some(bin) = self.volumes.get_mut(&dir.volume()) {
            bin.searched.insert(dir, (moves, upto));
        }
    }

    /// Whether nothing below this directory is in the bin, as far as is known.
    pub fn is_searched(&self, dir: NodeId) -> bool {
        self.volumes.get(&dir.volume()).is_none_or(|bin| self.search_from(dir) > bin.newest)
    }

    /// Forgets a volume.
    pub fn drop_volume(&mut self, volume: u32) {
        self.volumes.remove(&volume);
    }
}
