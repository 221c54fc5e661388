//! What the steps of repair have before them, and whose turn is next.

use crate::ObjectId;
use leeward_env::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What could not be put in order is tried again after so long.
const TRY_AGAIN: Nanos = 30_000_000_000;
/// What the steps have before them.
#[derive(Default)]
pub(super) struct Repairs {
    pub(super) searched: bool,
    /// Pieces on stores that are being emptied, by slot.
    pub(super) moves: VecDeque<(usize, ObjectId)>,
    /// When those stores are listed again, to see whether anything is left on them; nothing: they are empty.
    pub(super) moves_listed_at: Option<Nanos>,
    pub(super) missing: Turn,
    pub(super) leftovers: Turn,
    /// Objects that this pass of scrubbing has before it, the last one first.
    pub(super) scrub: Option<Vec<ObjectId>>,
    /// It began after this one.
    pub(super) scrub_after: Option<ObjectId>,
    /// Up to here all is in order.
    pub(super) scrubbed: Option<ObjectId>,
    /// Those that it could not read.
    pub(super) unreadable: BTreeSet<ObjectId>,
}

/// Who is next, so that one that cannot be put in order does not hold up the others.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) last: Option<ObjectId>,
    /// When those were tried for which it did not work.
    pub(super) tried: BTreeMap<ObjectId, Nanos>,
}

impl Repairs {
    /// The next step of scrubbing begins a pass after this object.
    pub(super) fn begin_scrub(&mut self, after: Option<ObjectId>) {
        (self.scrub, self.scrub_after, self.scrubbed) = (None, after, after);
        self.unreadable.clear();
    }

    /// Everything was looked at anew: what did not work lately may work now.
    pub(super) fn try_all_again(&mut self) {
        self.missing.tried.clear();
        self.leftovers.tried.clear();
    }
}

impl Turn {
    /// The next that `find` finds among those after some object which this lets pass.
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
