//! Objects that were read whole because parts of them have to be computed again and again.
//!
//! A part on a dead store costs as many reads as there are data pieces. Who reads on and on through an object would
//! pay that for every part on every dead store, for blocks that he reads anyway a little earlier or later. So when
//! enough of an object was computed it is read as a whole, once, and the last few such objects are kept for a while.

use super::known::Info;
use crate::{AlignedBuf, ObjectId};
use leeward_env::Nanos;
use parking_lot::Mutex;
use std::sync::Arc;

/// Objects that are watched or kept.
const OBJECTS_MAX: usize = 4;
/// When such a part of an object was computed, it is read whole.
const PART: u64 = 16;
/// Unused for so long, they are dropped.
const IDLE: Nanos = 10_000_000_000;

#[derive(Default)]
pub(crate) struct Rebuilt(Mutex<Vec<Entry>>);

/// The one used last is the last.
struct Entry {
    id: ObjectId,
    stamp: u64,
    /// Bytes that were computed.
    computed: u64,
    whole: Option<Arc<AlignedBuf>>,
    used: Nanos,
}

impl Rebuilt {
    /// The whole object, if it is kept.
    pub(crate) fn whole(&self, now: Nanos, id: ObjectId, info: &Info) -> Option<Arc<AlignedBuf>> {
        let mut entries = self.0.lock();
        let n = entries.iter().position(|e| e.id == id && e.stamp == info.stamp)?;
        let whole = entries[n].whole.clone()?;
        let mut entry = entries.remove(n);
        entry.used = now;
        entries.push(entry);
        Some(whole)
    }

    /// So much of it was computed. True when it is to be read whole now.
    pub(crate) fn computed(&self, now: Nanos, id: ObjectId, info: &Info, bytes: u64) -> bool {
        let mut entries = self.0.lock();
        let at = entries.iter().position(|e| e.id == id && e.stamp == info.stamp);
        let mut entry = match at {
            Some(n) => entries.remove(n),
            None => Entry { id, stamp: info.stamp, computed: 0, whole: None, used: now },
        };
        (entry.computed, entry.used) = (entry.computed + bytes, now);
        let due = entry.whole.is_none() && entry.computed * PART >= info.object_bytes;
        if entries.len() >= OBJECTS_MAX {
            entries.remove(0);
        }
        entries.push(entry);
        due
    }

    /// It was read whole.
    pub(crate) fn keep(&self, id: ObjectId, info: &Info, whole: AlignedBuf) {
        let mut entries = self.0.lock();
        if let Some(entry) = entries.iter_mut().find(|e| e.id == id && e.stamp == info.stamp) {
            entry.whole = Some(whole.into());
        }
    }

    /// Gives memory back that nobody uses any more.
    pub(crate) fn give_back(&self, now: Nanos) {
        self.0.lock().retain(|entry| now.saturating_sub(entry.used) <= IDLE);
    }
}
