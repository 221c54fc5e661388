//! What a tier knows of its objects: which are on the hot pool only, which on both, and how much
//! flushing writers owe. Bookkeeping only: no call of a pool, no lock, no clock of its own.

use super::tier::TierOptions;
use crate::ObjectId;
use leeward_env::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// An object that could not be read is skipped for this time.
const ASIDE: Nanos = 30_000_000_000;
/// After the cold pool failed, writers flush nothing for this time; the background goes on trying.
const REST: Nanos = 5_000_000_000;

/// An object of which the hot pool has the only copy that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hot {
    /// Its length; `None`: ask the hot pool.
    pub(super) len: Option<u64>,
    /// Its approximate length.
    bytes: u64,
    /// The cold pool may have something under this name.
    pub(super) is_cold: bool,
}

#[derive(Default)]
pub(super) struct TierIndex {
    pub(super) options: TierOptions,
    /// Whether the hot pool was listed.
    known: bool,
    /// Nothing is put to the hot pool any more: a caller was told that the tier has ended and the
    /// hot pool is empty.
    ended: bool,
    /// Puts to the hot pool that failed: it may have something under these names.
    failed: BTreeSet<ObjectId>,
    /// The hot pool has to be listed again: it may have more than was listed.
    stale: bool,
    /// Puts that have not returned.
    putting: usize,
    unflushed: BTreeMap<ObjectId, Hot>,
    unflushed_bytes: u64,
    /// Objects on both pools, with their lengths.
    flushed: BTreeMap<ObjectId, u64>,
    evictable_bytes: u64,
    /// Objects being flushed, and whether each was put or deleted meanwhile.
    flushing: BTreeMap<ObjectId, bool>,
    /// Objects that could not be read, and until when they are skipped.
    aside: BTreeMap<ObjectId, Nanos>,
    /// Bytes that writers still have to flush.
    owed: u64,
    flushed_bytes: u64,
    last_error: String,
    rest_until: Nanos,
}

impl TierIndex {
    pub(super) fn unflushed(&self) -> (u64, u64) {
        (self.unflushed.len() as u64, self.unflushed_bytes)
    }

    pub(super) fn evictable_bytes(&self) -> u64 {
        self.evictable_bytes
    }

    pub(super) fn flushed_bytes(&self) -> u64 {
        self.flushed_bytes
    }

    pub(super) fn last_error(&self) -> &str {
        &self.last_error
    }

    /// Whether the hot pool was listed, and need not be again.
    pub(super) fn is_known(&self) -> bool {
        self.known && !self.stale
    }

    /// The hot pool is listed again: stores of it may be back.
    pub(super) fn retry(&mut self) {
        self.stale = true;
    }

    /// Whether the hot pool is empty, and nothing is on its way there.
    pub(super) fn is_empty(&self) -> bool {
        self.is_known() && self.putting == 0 && self.unflushed.is_empty() && self.flushed.is_empty()
    }

    /// Ends the tier if the hot pool is empty, and returns whether it is. From then on nothing is
    /// put there.
    pub(super) fn end(&mut self) -> bool {
        let ends = self.options.ending && self.is_empty();
        self.ended |= ends;
        ends
    }

    /// Sets the options. A tier that is no longer ending has not ended.
    pub(super) fn set_options(&mut self, options: TierOptions) {
        self.options = options;
        self.ended &= options.ending;
    }

    /// Whether the hot pool may have the object.
    pub(super) fn may_be_hot(&self, id: ObjectId) -> bool {
        !self.known || self.unflushed.contains_key(&id) || self.flushed.contains_key(&id)
    }

    /// Takes in a listing of the hot pool. What was put since is known better. Of all other objects
    /// it is unknown whether the cold pool has them whole: a flush may have been interrupted, or
    /// have copied an earlier put of the same name.
    pub(super) fn learn(&mut self, hot: Vec<(ObjectId, u64)>) {
        for (id, bytes) in hot {
            if !self.unflushed.contains_key(&id) && !self.flushed.contains_key(&id) {
                self.hold(id, Hot { len: None, bytes, is_cold: true });
            }
        }
        (self.known, self.stale) = (true, false);
    }

    /// The object turned out to be on the hot pool only.
    pub(super) fn found(&mut self, id: ObjectId) {
        if self.known && !self.may_be_hot(id) {
            self.hold(id, Hot { len: None, bytes: 0, is_cold: true });
        }
    }

    /// Whether a put goes to the hot pool: always, unless the hot pool is to become empty and has
    /// nothing of this name.
    pub(super) fn begin_put(&mut self, id: ObjectId) -> bool {
        let may_be_hot = self.may_be_hot(id) || self.flushing.contains_key(&id);
        self.putting += 1;
        !self.options.ending || may_be_hot && !self.ended
    }

    /// Whether a failed earlier put may have left something under this name on the hot pool, though
    /// that should have nothing.
    pub(super) fn may_be_left(&self, id: ObjectId) -> bool {
        self.failed.contains(&id)
    }

    /// A put to the hot pool has ended; `bytes` if it succeeded.
    pub(super) fn end_hot_put(&mut self, id: ObjectId, bytes: Option<u64>) {
        self.putting -= 1;
        match bytes {
            Some(bytes) => {
                self.failed.remove(&id);
                self.put(id, bytes);
            }
            None => drop(self.failed.insert(id)),
        }
    }

    /// A put to the cold pool has ended.
    pub(super) fn end_cold_put(&mut self, id: ObjectId, done: bool) {
        self.putting -= 1;
        if done {
            self.failed.remove(&id);
        }
    }

    /// The object was put to the hot pool. A name is used again only where an earlier put of this
    /// process failed, or by recovery, before the hot pool is listed.
    fn put(&mut self, id: ObjectId, bytes: u64) {
        let was_cold = self.unflushed.get(&id).is_some_and(|hot| hot.is_cold)
            || self.flushed.contains_key(&id)
            || self.flushing.contains_key(&id);
        self.forget(id);
        self.hold(id, Hot { len: Some(bytes), bytes, is_cold: was_cold || !self.known });
    }

    fn hold(&mut self, id: ObjectId, hot: Hot) {
        self.unflushed_bytes += hot.bytes;
        if let Some(old) = self.unflushed.insert(id, hot) {
            self.unflushed_bytes -= old.bytes;
        }
    }

    /// Drops what is known of an object, and voids a flush of it. Returns whether the cold pool may
    /// have it.
    pub(super) fn forget(&mut self, id: ObjectId) -> bool {
        self.aside.remove(&id);
        self.failed.remove(&id);
        self.flushing.entry(id).and_modify(|disturbed| *disturbed = true);
        if let Some(bytes) = self.flushed.remove(&id) {
            self.evictable_bytes -= bytes;
        }
        self.drop_unflushed(id).is_none_or(|hot| hot.is_cold)
    }

    fn drop_unflushed(&mut self, id: ObjectId) -> Option<Hot> {
        let hot = self.unflushed.remove(&id)?;
        self.unflushed_bytes -= hot.bytes;
        Some(hot)
    }

    /// The oldest object that has to be flushed and that nobody flushes. The caller flushes it from
    /// now on.
    pub(super) fn begin_flush(&mut self, now: Nanos) -> Option<(ObjectId, Hot)> {
        self.aside.retain(|_, until| *until > now);
        let is_idle = |id: &ObjectId| !self.flushing.contains_key(id) && !self.aside.contains_key(id);
        let (id, hot) = self.unflushed.iter().find(|(id, _)| is_idle(id)).map(|(id, hot)| (*id, *hot))?;
        self.flushing.insert(id, false);
        Some((id, hot))
    }

    /// A flush has ended. Returns whether the object was put or deleted meanwhile, and whether the
    /// copy is still wanted.
    pub(super) fn end_flush(&mut self, id: ObjectId) -> (bool, bool) {
        (self.flushing.remove(&id).unwrap_or_default(), self.unflushed.contains_key(&id))
    }

    /// The object is on both pools.
    pub(super) fn is_flushed(&mut self, id: ObjectId, bytes: u64) {
        self.drop_unflushed(id);
        self.evictable_bytes += bytes;
        self.flushed.insert(id, bytes);
        self.flushed_bytes += bytes;
        self.last_error.clear();
        self.rest_until = 0;
    }

    /// The hot pool does not have the object: it was deleted before the listing was known.
    pub(super) fn is_gone(&mut self, id: ObjectId) {
        self.drop_unflushed(id);
    }

    /// The object cannot be read now: others are flushed first.
    pub(super) fn set_aside(&mut self, id: ObjectId, now: Nanos, why: String) {
        self.aside.insert(id, now + ASIDE);
        self.last_error = why;
    }

    /// The cold pool did not take an object.
    pub(super) fn refused(&mut self, now: Nanos, why: String) {
        self.last_error = why;
        self.rest_until = now + REST;
        self.owed = 0;
    }

    /// Whether writers may do a part of the flushing.
    pub(super) fn takes_help(&self, now: Nanos) -> bool {
        now >= self.rest_until
    }

    /// A writer owes this many bytes more of flushing. The debt never exceeds what there is to
    /// flush.
    pub(super) fn add_debt(&mut self, bytes: u64) {
        self.owed = (self.owed + bytes).min(self.unflushed_bytes);
    }

    /// Claims the next flush for the calling writer, if enough is owed. Its bytes are no longer
    /// owed.
    pub(super) fn claim(&mut self) -> Option<u64> {
        let next = self.unflushed.values().next().map(|hot| hot.bytes)?;
        let owes = self.owed > 0 && self.owed >= next;
        self.owed -= if owes { next } else { 0 };
        owes.then_some(next)
    }

    /// The oldest object that is on both pools; the caller is about to delete it from the hot pool.
    pub(super) fn begin_evict(&mut self) -> Option<(ObjectId, u64)> {
        let (id, bytes) = self.flushed.pop_first()?;
        self.evictable_bytes -= bytes;
        Some((id, bytes))
    }

    /// The object could not be evicted.
    pub(super) fn not_evicted(&mut self, id: ObjectId, bytes: u64) {
        self.evictable_bytes += bytes;
        self.flushed.insert(id, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(segment: u64) -> ObjectId {
        ObjectId { segment, generation: 0 }
    }

    #[test]
    fn sums_follow_the_lists() {
        let mut tier_index = TierIndex::default();
        tier_index.learn(vec![(id(1), 100), (id(2), 200)]);
        tier_index.put(id(3), 50);
        tier_index.put(id(3), 70);
        tier_index.found(id(2));
        assert_eq!(tier_index.unflushed(), (3, 370));
        let (first, hot) = tier_index.begin_flush(0).unwrap();
        assert_eq!((first, hot.is_cold, hot.len), (id(1), true, None));
        assert_eq!(tier_index.end_flush(first), (false, true));
        tier_index.is_flushed(first, 100);
        assert_eq!((tier_index.unflushed(), tier_index.evictable_bytes()), ((2, 270), 100));
        assert_eq!(tier_index.begin_evict(), Some((id(1), 100)));
        assert_eq!(tier_index.evictable_bytes(), 0);
        tier_index.forget(id(2));
        tier_index.forget(id(3));
        assert!(tier_index.is_empty() && tier_index.unflushed() == (0, 0));
    }

    #[test]
    fn what_has_ended_stays_empty() {
        let mut tier_index = TierIndex::default();
        tier_index.learn(Vec::new());
        assert!(!tier_index.end(), "nobody asked for it");
        tier_index.set_options(TierOptions { ending: true, ..TierOptions::default() });
        assert!(!tier_index.begin_put(id(1)));
        assert!(!tier_index.end(), "a put is on its way");
        tier_index.end_cold_put(id(1), true);
        assert!(tier_index.end() && tier_index.end());
        tier_index.retry(); // its stores were opened again: they may have more than is known, but get nothing
        assert!(!tier_index.begin_put(id(2)));
        tier_index.end_cold_put(id(2), false);
        tier_index.set_options(TierOptions::default());
        assert!(tier_index.begin_put(id(3)));
        tier_index.end_hot_put(id(3), None);
        assert!(tier_index.may_be_left(id(3)) && !tier_index.may_be_left(id(2)));
    }

    #[test]
    fn only_what_was_put_here_is_known_not_to_be_cold() {
        let mut tier_index = TierIndex::default();
        tier_index.put(id(1), 10);
        assert!(
            tier_index.forget(id(1)),
            "put before the hot pool was listed: an earlier one may have been flushed"
        );
        tier_index.learn(Vec::new());
        tier_index.put(id(2), 10);
        assert!(!tier_index.forget(id(2)));
        assert!(tier_index.forget(id(9)), "nothing is known of it");
        tier_index.put(id(3), 10);
        tier_index.begin_flush(0).unwrap();
        tier_index.put(id(3), 20);
        assert_eq!(tier_index.end_flush(id(3)), (true, true));
        assert!(tier_index.forget(id(3)), "the flush may have come through");
    }
}
