//! Where directories were when something happened: the paths of events.

use crate::format::events::Named;
use crate::format::inode::Inode;
use crate::format::keys;
use crate::shard::Shard;
use leeward_fs::{NodeId, Result};
use rustc_hash::FxHashMap;

/// Directories above one are no more than this.
const DEPTH_MAX: usize = 4096;
/// As many directories are remembered.
const KNOWN_MAX: usize = 16_384;

/// Where a directory was from one event to another, or is.
struct Place {
    from: u64,
    /// The event that moved it, or removed it.
    upto: u64,
    /// `None`: that is not known.
    at: Option<Named>,
}

/// Finds paths in a volume as they were when something happened.
pub(super) struct Paths<'a> {
    shard: &'a Shard,
    volume: u32,
    /// The path of the volume's root, without a slash at the end.
    root: Vec<u8>,
    known: FxHashMap<u64, Place>,
}

/// A path, and the directories above it.
pub(super) struct Found {
    /// The path in the cell; `None`: a directory above is not known any more.
    pub(super) path: Option<Vec<u8>>,
    /// Inodes of the directories above that are known, the nearest first.
    pub(super) above: Vec<u64>,
}

impl<'a> Paths<'a> {
    /// For events of this volume.
    pub(super) fn new(shard: &'a Shard, volume: u32) -> Paths<'a> {
        // the log of the cell has no paths
        let is_volume = volume != keys::CELL_LOG;
        let root = is_volume.then(|| shard.path_of(NodeId::new(volume, 1))).flatten().unwrap_or_default();
        let root = root.trim_end_matches('/').as_bytes().to_vec();
        Paths { shard, volume, root, known: FxHashMap::default() }
    }

    /// The path of a name as it was when event `number` happened.
    ///
    /// # Errors
    /// Those of reading records.
    pub(super) fn find(&mut self, at: &Named, number: u64) -> Result<Found> {
        // the root itself has no name
        let names = if at.dir == 0 { Vec::new() } else { vec![at.name.clone()] };
        self.climb(at.dir, names, number)
    }

    /// The path of a directory as it was when event `number` happened.
    ///
    /// # Errors
    /// Those of reading records.
    pub(super) fn find_dir(&mut self, dir: u64, number: u64) -> Result<Found> {
        self.climb(dir, Vec::new(), number)
    }

    fn climb(&mut self, mut dir: u64, mut names: Vec<Box<[u8]>>, number: u64) -> Result<Found> {
        let mut above = Vec::new();
        while dir > 1 {
            above.push(dir);
            let Some(place) = self.place_of(dir, number)?.filter(|_| above.len() < DEPTH_MAX) else {
                return Ok(Found { path: None, above });
            };
            names.push(place.name);
            dir = place.dir;
        }
        above.push(1);
        let mut path = self.root.clone();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(Found { path: Some(path), above })
    }

    fn place_of(&mut self, dir: u64, number: u64) -> Result<Option<Named>> {
        if let Some(known) = self.known.get(&dir).filter(|known| (known.from..=known.upto).contains(&number))
        {
            return Ok(known.at.clone());
        }
        let place = self.look_up(NodeId::new(self.volume, dir), number)?;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let at = place.at.clone();
        self.known.insert(dir, place);
        Ok(at)
    }

    fn look_up(&self, dir: NodeId, number: u64) -> Result<Place> {
        // the record first: if it says already where a move has led, that move is found after it
        let inode = self.shard.kv.get(&keys::inode(dir))?;
        let (from, to) = keys::was_at_range(dir, number);
        if let Some((key, value)) = self.shard.kv.scan(&from, &to, 1, false)?.first() {
            let upto = keys::parse_event(key).unwrap_or(number);
            return Ok(Place { from: number, upto, at: Some(Named::decode(value)?) });
        }
        let is = inode.map(|record| Inode::decode(&record)).transpose()?.filter(|inode| inode.nlink > 0);
        let at = is.map(|inode| Named { dir: inode.parent, name: inode.name.unwrap_or_default() });
        Ok(Place { from: number, upto: u64::MAX, at })
    }
}
