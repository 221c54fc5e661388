//! Misplaced segments, and the pool that each belongs in.

use crate::format::inode::SegmentRecord;
use crate::pools::DEFAULT;
use crate::state::State;
use leeward_data::PoolId;
use leeward_env::Nanos;
use rustc_hash::FxHashSet;

/// Segments that still have to be moved.
#[derive(Default)]
pub struct Moves {
    /// Whether volumes, pools or segments changed so that more may be misplaced than is listed.
    pub(crate) look: bool,
    /// Segments that were found misplaced.
    pub(crate) list: Vec<u64>,
    /// Segments whose volume has to be found out.
    pub(crate) unknown: Vec<u64>,
    /// Whether `unknown` is complete.
    pub(crate) listed_unknown: bool,
    /// Segments that cannot be read whole: they stay where they are.
    pub(crate) stuck: FxHashSet<u64>,
    /// Whether some were left out because their pools hang.
    pub(crate) left_out: bool,
    /// After a failure nothing is moved before this time.
    pub(crate) retry_at: Nanos,
}

impl Moves {
    /// All segments are checked again: volumes or pools changed.
    pub fn recheck(&mut self) {
        self.look = true;
        self.stuck.clear();
    }

    /// All others are done: those that were left out are listed again, at this time.
    pub(crate) fn come_back_to_left_out(&mut self, then: Nanos) {
        if std::mem::take(&mut self.left_out) {
            (self.look, self.listed_unknown, self.retry_at) = (true, false, then);
        }
    }

    /// Adds a misplaced segment.
    pub fn add(&mut self, segment: u64) {
        self.list.push(segment);
    }
}

/// The misplaced data of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misplaced {
    /// Segments.
    pub segments: u64,
    /// Bytes of their objects.
    pub bytes: u64,
    /// Those segments that are damaged, and stay.
    pub stuck: u64,
}

impl State {
    /// The pool that a segment belongs in, if it is in another one.
    pub(crate) fn home_of(&self, r: &SegmentRecord) -> Option<PoolId> {
        self.home(r.volume?, r.pool)
    }

    /// The pool that data of a volume in this pool belongs in, if it is another one.
    fn home(&self, volume: u32, pool: PoolId) -> Option<PoolId> {
        let p = &self.volumes.get(&volume).filter(|v| !v.removing)?.properties;
        let named = u8::try_from(pool).is_ok_and(|pool| p.dir_pools.contains(&pool));
        (pool != p.pool && !named && self.has_pool(p.pool)).then_some(p.pool)
    }

    /// The pool for the number `named` of an inode.
    pub(crate) fn pool_for(&self, volume: u32, named: u8) -> PoolId {
        let Some(v) = self.volumes.get(&volume) else { return 0 };
        match v.properties.dir_pools.contains(&named) {
            true => named.into(),
            false => v.properties.pool,
        }
    }

    /// The number by which a directory names a pool. Pool 0 has none: 0 is that of the volume.
    pub(crate) fn dir_pool_named(&self, name: &[u8]) -> Option<u8> {
        let (id, _) = self.pools.iter().find(|(_, r)| r.name.as_bytes() == name)?;
        u8::try_from(*id).ok().filter(|_| self.cold_of(*id).is_none())
    }

    /// The name of a pool.
    pub(crate) fn pool_name(&self, id: PoolId) -> String {
        match self.pools.get(&id) {
            None if id == 0 => DEFAULT.into(),
            None => id.to_string(),
            Some(record) => record.name.clone(),
        }
    }

    /// Whether there is such a pool.
    pub(crate) fn has_pool(&self, pool: PoolId) -> bool {
        pool == 0 || self.pools.contains_key(&pool)
    }

    /// The misplaced data of a volume. Anybody may ask, so it looks at no segments but damaged
    /// ones.
    pub(crate) fn misplaced(&self, volume: u32) -> Misplaced {
        let mut sum = Misplaced::default();
        for (_, placed) in self.segments.placed(volume).filter(|(pool, _)| self.home(volume, *pool).is_some())
        {
            sum.segments += placed.segments;
            sum.bytes += placed.bytes;
        }
        if sum.segments > 0 {
            let stuck = self.moves.stuck.iter().filter_map(|segment| self.segments.get(*segment));
            let is_its_own = |r: &&SegmentRecord| r.sealed && r.volume == Some(volume);
            sum.stuck = stuck.filter(is_its_own).filter(|r| self.home_of(r).is_some()).count() as u64;
        }
        sum
    }

    /// Whether the volumes of some segments are unknown, and matter.
    fn wants_owners(&self) -> bool {
        self.volumes.values().any(|v| v.properties.pool != 0 && !v.removing)
    }

    /// Lists the segments to be checked, or moved.
    pub(crate) fn list_moves(&mut self) {
        if !std::mem::take(&mut self.moves.look) {
            return;
        }
        if self.wants_owners() && !self.moves.listed_unknown {
            let unknown = self.segments.iter().filter(|(_, r)| r.sealed && r.volume.is_none());
            self.moves.unknown = unknown.map(|(segment, _)| segment).collect();
            self.moves.listed_unknown = true;
        }
        let misplaced = self.segments.iter().filter(|(_, r)| r.sealed && self.home_of(r).is_some());
        let mut list: Vec<u64> = misplaced.map(|(segment, _)| segment).collect();
        list.sort_unstable_by_key(|segment| std::cmp::Reverse(*segment));
        self.moves.list = list;
    }
}
