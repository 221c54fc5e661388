//! The work that repair and scrub have before them, and which object is next.

use crate::ObjectId;
use leeward_env::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A failed repair is tried again after this time.
const TRY_AGAIN: Nanos = 30_000_000_000;
/// What the steps have before them.
#[derive(Default)]
pub(super) struct Repairs {
    pub(super) searched: bool,
    /// Pieces on stores that are being emptied, by slot.
    pub(super) moves: VecDeque<(usize, ObjectId)>,
    /// When the draining stores are listed again, to see whether anything is left on them; `None`:
    /// they are empty.
    pub(super) moves_listed_at: Option<Nanos>,
    pub(super) missing: Turn,
    pub(super) leftovers: Turn,
    /// Objects that this scrub pass has still to read, the last one first.
    pub(super) scrub: Option<Vec<ObjectId>>,
    /// The pass began after this object.
    pub(super) scrub_after: Option<ObjectId>,
    /// Everything up to this object is good.
    pub(super) scrubbed: Option<ObjectId>,
    /// Objects that the pass could not read.
    pub(super) unreadable: BTreeSet<ObjectId>,
}

/// Which object is next. One that cannot be repaired does not hold up the others.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) last: Option<ObjectId>,
    /// Objects whose repair failed, and when.
    pub(super) tried: BTreeMap<ObjectId, Nanos>,
}

impl Repairs {
    /// The next step of scrubbing begins a pass after this object.
    pub(super) fn begin_scrub(&mut self, after: Option<ObjectId>) {
        (self.scrub, self.scrub_after, self.scrubbed) = (None, after, after);
        self.unreadable.clear();
    }

    /// Allows all retries: everything was looked at anew, and what failed lately may work now.
    pub(super) fn try_all_again(&mut self) {
        self.missing.tried.clear();
        self.leftovers.tried.clear();
    }
}

impl Turn {
    /// The next object that `find` finds among those whose retry is due.
    pub(super) fn next<T>(
        &mut self,
        now: Nanos,
        find: impl Fn(Option<ObjectId>, &dyn Fn(ObjectId) -> bool) -> Option<(ObjectId, T)>,
    ) -> Option<(ObjectId, T)> {
        self.tried.retain(|_, at| now.saturating_sub(*at) < TRY_AGAIN);
        let passes = |id: ObjectId| !self.tried.contains_key(&id);
        let next = find(self.last, &passes).or_else(|| find(None, &passes));
        self.last = next.as_ref().map(|(id, _)| *id);
        next
    }
}
