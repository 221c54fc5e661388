//! A cache of objects that were read whole because parts of them have to be computed again and
//! again.
//!
//! A part on a dead store costs as many reads as there are data pieces. A sequential reader would
//! pay that for every part on every dead store, for blocks that it reads anyway a little earlier or
//! later. So when enough of an object was computed, or two ranges one after the other, the object
//! is read as a whole, once, and the last few such objects are kept for a while.

use super::known::Info;
use crate::{AlignedBuf, ObjectId};
use leeward_env::Nanos;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Objects that are watched or kept.
const OBJECTS_MAX: usize = 4;
/// An object is read whole when this part (one in `PART`) of it was computed.
const PART: u64 = 16;
/// Objects unused for this time are dropped.
const IDLE: Nanos = 10_000_000_000;

#[derive(Default)]
pub(crate) struct Rebuilt(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// In the order of use, the last used at the end.
    entries: Vec<Entry>,
    /// Memory of an object that was dropped.
    spare: Option<AlignedBuf>,
}

struct Entry {
    id: ObjectId,
    stamp: u64,
    /// Bytes that were computed.
    computed: u64,
    /// Where the last range that was computed ended.
    end: u64,
    whole: Option<Arc<AlignedBuf>>,
    used: Nanos,
}

impl Rebuilt {
    /// The whole object, if it is kept.
    pub(crate) fn whole(&self, now: Nanos, id: ObjectId, info: &Info) -> Option<Arc<AlignedBuf>> {
        let entries = &mut self.0.lock().entries;
        let n = entries.iter().position(|e| e.id == id && e.stamp == info.stamp)?;
        let whole = entries[n].whole.clone()?;
        let mut entry = entries.remove(n);
        entry.used = now;
        entries.push(entry);
        Some(whole)
    }

    /// Counts that `range` was computed from other pieces. True when the object should be read
    /// whole now.
    pub(crate) fn computed(
        &self,
        now: Nanos,
        id: ObjectId,
        info: &Info,
        range: Range<u64>,
        bytes: u64,
    ) -> bool {
        let mut kept = self.0.lock();
        let at = kept.entries.iter().position(|e| e.id == id && e.stamp == info.stamp);
        let mut entry = match at {
            Some(n) => kept.entries.remove(n),
            None => Entry { id, stamp: info.stamp, computed: 0, end: u64::MAX, whole: None, used: now },
        };
        let enough = entry.end == range.start || (entry.computed + bytes) * PART >= info.object_bytes;
        let due = entry.whole.is_none() && enough;
        (entry.computed, entry.end, entry.used) = (entry.computed + bytes, range.end, now);
        if kept.entries.len() >= OBJECTS_MAX {
            let gone = kept.entries.remove(0);
            kept.spare = gone.whole.and_then(Arc::into_inner).or(kept.spare.take());
        }
        kept.entries.push(entry);
        due
    }

    /// Memory for a whole object, if there is any of that size.
    pub(crate) fn spare(&self, bytes: u64) -> Option<AlignedBuf> {
        let spare = &mut self.0.lock().spare;
        spare.take_if(|buf| buf.len() as u64 == bytes)
    }

    /// Keeps an object that was read whole.
    pub(crate) fn keep(&self, id: ObjectId, info: &Info, whole: AlignedBuf) {
        let entries = &mut self.0.lock().entries;
        if let Some(entry) = entries.iter_mut().find(|e| e.id == id && e.stamp == info.stamp) {
            entry.whole = Some(whole.into());
        }
    }

    /// Frees the memory of objects that nobody uses any more.
    pub(crate) fn give_back(&self, now: Nanos) {
        let mut kept = self.0.lock();
        kept.entries.retain(|entry| now.saturating_sub(entry.used) <= IDLE);
        kept.spare = None;
    }
}
