//! What is remembered of objects, so that a read asks one store once: how long an object is and which stamp its pieces
//! have, and the heads of pieces. One bound in bytes for both.
//!
//! What a reader learned is not remembered if anything was put or deleted meanwhile: it may be what was replaced.

use super::piece::Head;
use crate::ObjectId;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use rustc_hash::FxHasher;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

/// Most bytes that are remembered.
const BYTES_MAX: u64 = 16 << 20;
/// First guess of how many entries that will be.
const ENTRIES: usize = 1024;
/// Bookkeeping of the cache itself, per entry.
const ENTRY_BYTES: u64 = 64;

/// What all pieces of an object have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) object_bytes: u64,
    pub(crate) stamp: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Object(ObjectId),
    Piece(ObjectId, usize),
}

#[derive(Clone)]
enum Value {
    Object(Info),
    Piece(Arc<Head>),
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Value> for Bytes {
    fn weight(&self, _: &Key, value: &Value) -> u64 {
        match value {
            Value::Object(_) => ENTRY_BYTES,
            Value::Piece(head) => ENTRY_BYTES + 4 * head.crcs.len() as u64,
        }
    }
}

pub(crate) struct Known {
    entries: Cache<Key, Value, Bytes, BuildHasherDefault<FxHasher>>,
    /// Changes so far.
    changes: Mutex<u64>,
}

/// The state of things when a reader began.
#[derive(Clone, Copy)]
pub(crate) struct Moment(u64);

impl Known {
    pub(crate) fn new() -> Known {
        let (hasher, lifecycle) = (BuildHasherDefault::default(), DefaultLifecycle::default());
        Known { entries: Cache::with(ENTRIES, BYTES_MAX, Bytes, hasher, lifecycle), changes: Mutex::new(0) }
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment(*self.changes.lock())
    }

    pub(crate) fn object(&self, id: ObjectId) -> Option<Info> {
        match self.entries.get(&Key::Object(id)) {
            Some(Value::Object(info)) => Some(info),
            _ => None,
        }
    }

    /// The head of a piece of this object, if it is of this put.
    pub(crate) fn piece(&self, id: ObjectId, piece: usize, stamp: u64) -> Option<Arc<Head>> {
        match self.entries.get(&Key::Piece(id, piece)) {
            Some(Value::Piece(head)) if head.stamp == stamp => Some(head),
            _ => None,
        }
    }

    /// Learned by a reader that began then.
    pub(crate) fn learn(&self, since: Moment, id: ObjectId, info: Info) {
        let changes = self.changes.lock();
        if *changes == since.0 {
            self.entries.insert(Key::Object(id), Value::Object(info));
        }
    }

    /// A head is remembered in any case: it only counts for objects of its own stamp.
    pub(crate) fn learn_piece(&self, id: ObjectId, piece: usize, head: &Arc<Head>) {
        self.entries.insert(Key::Piece(id, piece), Value::Piece(head.clone()));
    }

    /// It was put, or is gone.
    pub(crate) fn changed(&self, id: ObjectId, info: Option<Info>) {
        let mut changes = self.changes.lock();
        *changes += 1;
        match info {
            Some(info) => self.entries.insert(Key::Object(id), Value::Object(info)),
            None => drop(self.entries.remove(&Key::Object(id))),
        }
    }

    /// What is remembered of it turned out to be wrong.
    pub(crate) fn forget(&self, id: ObjectId) {
        self.entries.remove(&Key::Object(id));
    }
}
