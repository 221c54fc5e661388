//! What has to be repaired, as far as it is known: pieces that are missing or bad, and pieces of
//! deleted objects that could not be deleted. In memory: after a restart a listing finds it again.
//!
//! A set of pieces is a bit mask: piece `n` is bit `n`.

use crate::ObjectId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

#[derive(Default)]
pub(crate) struct Notes {
    missing: BTreeMap<ObjectId, u64>,
    /// Number of objects by the number of pieces that they lack.
    lacking: BTreeMap<u32, u64>,
    leftovers: BTreeMap<ObjectId, u64>,
    /// Pieces whose put is still running though nobody waits for it, by object and stamp of the
    /// put.
    late: BTreeMap<(ObjectId, u64), u64>,
    /// Objects that cannot be read.
    lost: BTreeSet<ObjectId>,
    /// Objects that the pool's owner misses. Of an object with too few pieces only the owner knows
    /// that it is no leftover.
    missed: BTreeSet<ObjectId>,
    /// The object under repair, and whether it was put or deleted meanwhile.
    repairing: Option<(ObjectId, bool)>,
}

/// What a piece is worth whose put ended late.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LatePut {
    /// It belongs to the object as it is now.
    Welcome,
    /// The object was deleted or put again.
    Unwanted,
}

fn set(map: &mut BTreeMap<ObjectId, u64>, id: ObjectId, pieces: u64) {
    if pieces == 0 {
        map.remove(&id);
    } else {
        map.insert(id, pieces);
    }
}

impl Notes {
    /// The object was put. Pieces in `missing` are not there; of pieces in `late` it is not known
    /// yet.
    pub(crate) fn put(&mut self, id: ObjectId, stamp: u64, missing: u64, late: u64) {
        self.disturb(id);
        self.lost.remove(&id);
        self.missed.remove(&id);
        self.leftovers.remove(&id);
        self.late.retain(|(of, _), _| *of != id);
        self.set_missing(id, missing | late);
        if late != 0 {
            self.late.insert((id, stamp), late);
        }
    }

    /// The object was deleted, except for the pieces in `failed`.
    pub(crate) fn deleted(&mut self, id: ObjectId, failed: u64) {
        self.disturb(id);
        self.lost.remove(&id);
        self.missed.remove(&id);
        self.set_missing(id, 0);
        let late = self.late.extract_if((id, 0)..=(id, u64::MAX), |_, _| true).fold(0, |all, (_, l)| all | l);
        set(&mut self.leftovers, id, failed | late);
    }

    /// A put of a piece ended for which nobody waited.
    pub(crate) fn arrived(&mut self, id: ObjectId, stamp: u64, piece: usize, stored: bool) -> LatePut {
        let Some(late) = self.late.get_mut(&(id, stamp)) else { return LatePut::Unwanted };
        *late &= !(1 << piece);
        if *late == 0 {
            self.late.remove(&(id, stamp));
        }
        if stored {
            self.repaired(id, 1 << piece);
        }
        LatePut::Welcome
    }

    /// These pieces are missing or bad.
    pub(crate) fn missing(&mut self, id: ObjectId, pieces: u64) {
        if pieces & !self.missing_of(id) != 0 && !self.is_deleted(id) {
            self.set_missing(id, self.missing_of(id) | pieces);
        }
    }

    /// These pieces are good.
    pub(crate) fn repaired(&mut self, id: ObjectId, pieces: u64) {
        let left = self.missing_of(id) & !pieces;
        self.set_missing(id, left);
    }

    /// The object cannot be read now.
    pub(crate) fn lose(&mut self, id: ObjectId) {
        if !self.is_deleted(id) {
            self.lost.insert(id);
        }
    }

    /// The object can be read.
    pub(crate) fn found(&mut self, id: ObjectId) {
        self.lost.remove(&id);
        self.missed.remove(&id);
    }

    /// The owner misses these objects, and no others.
    pub(crate) fn misses(&mut self, ids: Vec<ObjectId>) {
        self.missed = ids.into_iter().collect();
    }

    /// All objects after `after` were checked: of those, only `ids` cannot be read.
    pub(crate) fn only_lost(&mut self, after: Option<ObjectId>, ids: &BTreeSet<ObjectId>) {
        self.lost.retain(|id| Some(*id) <= after || ids.contains(id));
    }

    /// The first object that lacks a piece, or cannot be read.
    pub(crate) fn first_wrong(&self) -> Option<ObjectId> {
        let missing = self.missing.keys().next();
        missing.into_iter().chain(self.lost.first()).min().copied()
    }

    /// How many objects cannot be read.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.union(&self.missed).count() as u64
    }

    /// The object does not exist.
    pub(crate) fn drop_object(&mut self, id: ObjectId) {
        self.set_missing(id, 0);
        self.lost.remove(&id);
    }

    fn set_missing(&mut self, id: ObjectId, pieces: u64) {
        let before = self.missing_of(id).count_ones();
        if let Some(count) = self.lacking.get_mut(&before) {
            *count -= 1;
            if *count == 0 {
                self.lacking.remove(&before);
            }
        }
        if pieces != 0 {
            *self.lacking.entry(pieces.count_ones()).or_default() += 1;
        }
        set(&mut self.missing, id, pieces);
    }

    pub(crate) fn missing_of(&self, id: ObjectId) -> u64 {
        self.missing.get(&id).copied().unwrap_or_default()
    }

    /// Whether the object was deleted, though stores that did not answer then may still have it.
    pub(crate) fn is_deleted(&self, id: ObjectId) -> bool {
        self.leftovers.contains_key(&id)
    }

    /// These leftovers are gone.
    pub(crate) fn swept(&mut self, id: ObjectId, pieces: u64) {
        if let Some(left) = self.leftovers.get(&id).map(|all| all & !pieces) {
            set(&mut self.leftovers, id, left);
        }
    }

    /// The next object after `after` for which `useful` holds, of its missing pieces.
    pub(crate) fn next_missing(
        &self,
        after: Option<ObjectId>,
        useful: impl Fn(ObjectId, u64) -> bool,
    ) -> Option<(ObjectId, u64)> {
        next(&self.missing, after, useful)
    }

    /// The next leftover after `after` for which `useful` holds.
    pub(crate) fn next_leftover(
        &self,
        after: Option<ObjectId>,
        useful: impl Fn(ObjectId, u64) -> bool,
    ) -> Option<(ObjectId, u64)> {
        next(&self.leftovers, after, useful)
    }

    pub(crate) fn degraded(&self) -> u64 {
        self.missing.len() as u64
    }

    /// The most pieces that one object lacks.
    pub(crate) fn worst(&self) -> u32 {
        self.lacking.last_key_value().map_or(0, |(pieces, _)| *pieces)
    }

    pub(crate) fn begin_repair(&mut self, id: ObjectId) {
        self.repairing = Some((id, false));
    }

    /// Ends a repair. Returns whether the object was neither put nor deleted meanwhile.
    pub(crate) fn end_repair(&mut self) -> bool {
        self.repairing.take().is_some_and(|(_, disturbed)| !disturbed)
    }

    fn disturb(&mut self, id: ObjectId) {
        if let Some((repairing, disturbed)) = &mut self.repairing {
            *disturbed |= *repairing == id;
        }
    }
}

/// The first entry after `after` that is useful.
fn next(
    map: &BTreeMap<ObjectId, u64>,
    after: Option<ObjectId>,
    useful: impl Fn(ObjectId, u64) -> bool,
) -> Option<(ObjectId, u64)> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    map.range((from, Bound::Unbounded))
        .map(|(id, pieces)| (*id, *pieces))
        .find(|(id, pieces)| useful(*id, *pieces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_worst_is_that_of_all(steps in proptest::collection::vec((0u64..6, 0u64..16, 0..4), 0..60)) {
            let mut notes = Notes::default();
            for (segment, pieces, what) in steps {
                let id = ObjectId { segment, generation: 0 };
                match what {
                    0 => notes.missing(id, pieces),
                    1 => notes.repaired(id, pieces),
                    2 => notes.put(id, 1, pieces, 0),
                    _ => notes.deleted(id, 0),
                }
                let worst = notes.missing.values().map(|pieces| pieces.count_ones()).max();
                prop_assert_eq!(notes.worst(), worst.unwrap_or_default());
            }
        }
    }
}
