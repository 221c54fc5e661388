//! A cache of facts about objects, so that a read asks one store once: an object's length, the
//! stamp of its pieces, and the heads of pieces. One limit in bytes for both.
//!
//! A fact that a reader found is not kept if anything was put or deleted meanwhile: it may be about
//! an object that was replaced.

use super::piece::Head;
use crate::ObjectId;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use rustc_hash::FxHasher;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

/// Most bytes in the cache.
const BYTES_MAX: u64 = 16 << 20;
/// First guess of the number of entries.
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

pub(crate) struct PieceCache {
    entries: Cache<Key, Value, Bytes, BuildHasherDefault<FxHasher>>,
    /// Number of changes so far.
    changes: Mutex<u64>,
}

/// The number of changes when a reader began.
#[derive(Clone, Copy)]
pub(crate) struct Moment(u64);

impl PieceCache {
    pub(crate) fn new() -> PieceCache {
        let (hasher, lifecycle) = (BuildHasherDefault::default(), DefaultLifecycle::default());
        PieceCache {
            entries: Cache::with(ENTRIES, BYTES_MAX, Bytes, hasher, lifecycle),
            changes: Mutex::new(0),
        }
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

    /// Keeps what a reader found that began at `since`.
    pub(crate) fn learn(&self, since: Moment, id: ObjectId, info: Info) {
        let changes = self.changes.lock();
        if *changes == since.0 {
            self.entries.insert(Key::Object(id), Value::Object(info));
        }
    }

    /// Keeps a head in any case: it counts only for objects of its own stamp.
    pub(crate) fn learn_piece(&self, id: ObjectId, piece: usize, head: &Arc<Head>) {
        self.entries.insert(Key::Piece(id, piece), Value::Piece(head.clone()));
    }

    /// The object was put (`info`) or deleted.
    pub(crate) fn changed(&self, id: ObjectId, info: Option<Info>) {
        let mut changes = self.changes.lock();
        *changes += 1;
        match info {
            Some(info) => self.entries.insert(Key::Object(id), Value::Object(info)),
            None => drop(self.entries.remove(&Key::Object(id))),
        }
    }

    /// Drops what is kept of an object, because it was wrong.
    pub(crate) fn forget(&self, id: ObjectId) {
        self.entries.remove(&Key::Object(id));
    }
}
