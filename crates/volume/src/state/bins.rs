//! Recycle bins in memory: which volumes have entries in theirs, and how old these are.

use leeward_fs::NodeId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// One volume's bin.
pub(crate) struct Bin {
    /// No entry is older.
    pub(crate) oldest: u64,
    /// Stamp of the oldest readable entry; `None`: there is none.
    pub(crate) due: Option<u64>,
    /// No entry is newer.
    pub(crate) newest: u64,
    /// Moves of directories in the volume so far.
    pub(crate) moves: u64,
    /// Directories with nothing below them in the bin up to this stamp, if `moves` is unchanged
    /// since then.
    pub(crate) searched: FxHashMap<NodeId, (u64, u64)>,
}

/// Bins in memory: of volumes that have entries in theirs.
#[derive(Default)]
pub struct Bins {
    pub(crate) volumes: BTreeMap<u32, Bin>,
}

impl Bins {
    /// Adds a stored bin.
    pub fn load(&mut self, volume: u32, oldest: u64, newest: u64) {
        self.volumes.insert(
            volume,
            Bin { oldest, due: Some(oldest), newest, moves: 0, searched: FxHashMap::default() },
        );
    }

    /// Whether the bin may have entries.
    pub fn holds(&self, volume: u32) -> bool {
        self.volumes.contains_key(&volume)
    }

    /// Volumes whose bins may have entries.
    pub fn volumes(&self) -> impl Iterator<Item = u32> + '_ {
        self.volumes.keys().copied()
    }

    /// An entry with this stamp was added to the bin.
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

    /// The stamp from which on entries may be below this directory.
    pub(crate) fn search_from(&self, dir: NodeId) -> u64 {
        let Some(bin) = self.volumes.get(&dir.volume()) else { return u64::MAX };
        match bin.searched.get(&dir) {
            Some((moves, upto)) if *moves == bin.moves => upto + 1,
            _ => bin.oldest,
        }
    }

    /// Notes that no entry up to this stamp is below this directory; `moves`: its value before the
    /// search.
    pub(crate) fn note_searched(&mut self, dir: NodeId, moves: u64, upto: u64) {
        if let Some(bin) = self.volumes.get_mut(&dir.volume()) {
            bin.searched.insert(dir, (moves, upto));
        }
    }

    /// Whether no entry is below this directory, as far as is known.
    pub fn is_searched(&self, dir: NodeId) -> bool {
        self.volumes.get(&dir.volume()).is_none_or(|bin| self.search_from(dir) > bin.newest)
    }

    /// Removes a volume.
    pub fn drop_volume(&mut self, volume: u32) {
        self.volumes.remove(&volume);
    }
}
