//! Which uploads in parts there are: in memory only, so that they are gone with their parts when the process ends.
//!
//! Bounded: uploads and parts of a user, parts in all, and how long an upload may rest.

use crate::call::{Call, Parts};
use crate::meta::Kept;
use crate::sums::Claims;
use leeward_door::Part;
use leeward_door::listen::Unfinished;
use leeward_door::notes::{Sums, etag_of};
use leeward_env::limits::FILE_BYTES_MAX;
use leeward_env::{Env, Nanos};
use leeward_volume::op::Time;
use parking_lot::Mutex;
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Uploads that a user may have at a time, and parts in them.
const UPLOADS_PER_USER_MAX: usize = 10_000;
const PARTS_PER_USER_MAX: usize = 100_000;
/// Parts that there may be in all.
const PARTS_MAX: usize = 1_000_000;
/// An upload that rests so long is dropped, nanoseconds.
const REST_MAX: Nanos = 7 * 86_400 * 1_000_000_000;
/// How often that is looked at.
const REST_LOOK: Duration = Duration::from_secs(3600);

type Map<K, V> = HashMap<K, V, BuildHasherDefault<std::hash::DefaultHasher>>;

/// Uploads in parts that there are.
pub(crate) struct Uploads {
    env: Env,
    open: Mutex<Open>,
    /// Whether somebody drops those that rest.
    tended: AtomicBool,
}

#[derive(Default)]
struct Open {
    uploads: Map<String, Arc<Uploading>>,
    /// What there is of a user in a bucket.
    tallies: BTreeMap<(u32, Arc<str>), Tally>,
    parts: usize,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    uploads: usize,
    parts: usize,
    bytes: u64,
    /// Bytes of parts on their way.
    coming: u64,
}

/// One upload.
pub(crate) struct Uploading {
    pub(crate) id: String,
    pub(crate) bucket: Arc<str>,
    pub(crate) key: String,
    pub(crate) uid: u32,
    pub(crate) kept: Kept,
    pub(crate) tags: Option<String>,
    pub(crate) begun: Time,
    pub(crate) algorithm: Option<&'static str>,
    /// Whether the checksum of the whole is one over the parts'.
    pub(crate) composite: bool,
    pub(crate) state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) parts: BTreeMap<i32, Piece>,
    pub(crate) used_at: Nanos,
}

/// A part on its way, until it is dropped.
pub(crate) struct Coming<'a> {
    uploads: &'a Uploads,
    place: (u32, Arc<str>),
    bytes: u64,
    /// Bytes in parts of its user in its bucket that have come or began to before, but for the one whose number it has: there must be room for
    /// them, too.
    pub(crate) before: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut tally) = self.uploads.open.lock().tallies.entry(self.place.clone()) {
            tally.get_mut().coming -= self.bytes;
            if tally.get().is_empty() {
                tally.remove();
            }
        }
    }
}

/// A part that has arrived.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) part: Part,
    pub(crate) sums: Sums,
    pub(crate) at: Time,
}

impl Piece {
    pub(crate) fn etag(&self) -> String {
        self.sums.get("md5").map_or_else(|| etag_of(&self.sums, &self.part.file().attr), str::to_owned)
    }
}

impl Tally {
    fn is_empty(&self) -> bool {
        self.uploads == 0 && self.coming == 0
    }
}

impl Open {
    /// Uploads and parts of a user in all.
    fn of_user(&self, uid: u32) -> Tally {
        let own = self.tallies.range((uid, "".into())..).take_while(|((of, _), _)| *of == uid);
        own.fold(Tally::default(), |sum, (_, one)| Tally {
            uploads: sum.uploads + one.uploads,
            parts: sum.parts + one.parts,
            ..sum
        })
    }

    fn take(&mut self, id: &str) -> Option<Arc<Uploading>> {
        let gone = self.uploads.remove(id)?;
        let (parts, bytes) = gone.state.lock().size();
        self.parts -= parts;
        if let Entry::Occupied(mut tally) = self.tallies.entry(gone.place()) {
            let left = tally.get_mut();
            left.uploads -= 1;
            left.parts -= parts;
            left.bytes -= bytes;
            if left.is_empty() {
                tally.remove();
            }
        }
        Some(gone)
    }
}

impl Uploads {
    pub(crate) fn new(env: &Env) -> Uploads {
        Uploads { env: env.clone(), open: Mutex::default(), tended: AtomicBool::new(false) }
    }

    pub(crate) fn begin(&self, uploading: impl FnOnce(String) -> Uploading) -> S3Result<Arc<Uploading>> {
        let id = format!("{:016x}{:016x}", self.env.random(), self.env.random());
        let uploading = Arc::new(uploading(id.clone()));
        uploading.state.lock().used_at = self.env.now();
        let mut open = self.open.lock();
        if open.of_user(uploading.uid).uploads >= UPLOADS_PER_USER_MAX {
            return Err(S3Error::with_message(
                S3ErrorCode::InvalidRequest,
                "This user has 10,000 uploads that are not complete: complete or abort some.",
            ));
        }
        open.tallies.entry(uploading.place()).or_default().uploads += 1;
        open.uploads.insert(id, uploading.clone());
        Ok(uploading)
    }

    /// An upload of this user's; others cannot know the id.
    pub(crate) fn get(&self, call: &Call, key: &str, id: &str) -> S3Result<Arc<Uploading>> {
        let found = self.open.lock().uploads.get(id).cloned();
        let found = found.filter(|u| u.uid == call.who.uid && u.bucket == call.bucket.name && u.key == key);
        found.ok_or_else(no_such_upload)
    }

    /// A part of so many bytes is on its way, which counts until this is dropped.
    pub(crate) fn expect(&self, uploading: &Uploading, number: i32, bytes: u64) -> Coming<'_> {
        let replaced = uploading.state.lock().parts.get(&number).map_or(0, |piece| piece.part.size());
        let place = uploading.place();
        let mut open = self.open.lock();
        let tally = open.tallies.entry(place.clone()).or_default();
        let before = (tally.bytes + tally.coming).saturating_sub(replaced);
        let bytes = bytes.min(FILE_BYTES_MAX);
        tally.coming += bytes;
        Coming { uploads: self, place, bytes, before }
    }

    /// Keeps a part, in place of an earlier one with its number.
    pub(crate) fn keep(&self, uploading: &Uploading, number: i32, piece: Piece) -> S3Result<()> {
        let mut open = self.open.lock();
        if !open.uploads.contains_key(&uploading.id) {
            return Err(no_such_upload());
        }
        let mut state = uploading.state.lock();
        let is_new = !state.parts.contains_key(&number);
        if is_new && (open.parts >= PARTS_MAX || open.of_user(uploading.uid).parts >= PARTS_PER_USER_MAX) {
            return Err(S3Error::with_message(
                S3ErrorCode::InvalidRequest,
                "Too many parts of uploads that are not complete: complete or abort some.",
            ));
        }
        state.used_at = self.env.now();
        let bytes = piece.part.size();
        let old = state.parts.insert(number, piece);
        drop(state);
        open.parts += usize::from(is_new);
        let tally = open.tallies.entry(uploading.place()).or_default();
        tally.parts += usize::from(is_new);
        tally.bytes = tally.bytes + bytes - old.as_ref().map_or(0, |old| old.part.size());
        drop(open);
        // it is given back without the lock
        drop(old);
        Ok(())
    }

    /// All there are, and bytes in their parts.
    pub(crate) fn in_all(&self) -> Unfinished {
        let open = self.open.lock();
        let bytes = open.tallies.values().map(|tally| tally.bytes).sum();
        Unfinished { uploads: open.uploads.len() as u64, bytes }
    }

    pub(crate) fn end(&self, id: &str) -> Option<Arc<Uploading>> {
        self.open.lock().take(id)
    }

    /// From now on somebody looks for those that rest.
    pub(crate) fn tend(all: &Arc<Parts>) {
        if all.uploads.tended.swap(true, Ordering::Relaxed) {
            return;
        }
        let all = Arc::downgrade(all);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(REST_LOOK).await;
                let Some(all) = all.upgrade() else { return };
                all.uploads.drop_rested();
            }
        });
    }

    /// Drops those that have rested for too long.
    fn drop_rested(&self) {
        let now = self.env.now();
        let mut open = self.open.lock();
        let rested = open.uploads.values().filter(|u| now.saturating_sub(u.state.lock().used_at) > REST_MAX);
        let rested: Vec<String> = rested.map(|u| u.id.clone()).collect();
        let gone: Vec<_> = rested.iter().filter_map(|id| open.take(id)).collect();
        drop(open);
        // parts are given back without the lock
        drop(gone);
    }

    pub(crate) fn of_bucket(&self, call: &Call) -> Vec<Arc<Uploading>> {
        let open = self.open.lock();
        let mine = open.uploads.values().filter(|u| u.uid == call.who.uid && u.bucket == call.bucket.name);
        let mut mine: Vec<_> = mine.cloned().collect();
        mine.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
        mine
    }
}

fn no_such_upload() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::NoSuchUpload,
        "There is no such upload: it was completed or aborted, or the server has begun anew since. Begin again.",
    )
}

impl State {
    /// Parts, and bytes in them.
    fn size(&self) -> (usize, u64) {
        (self.parts.len(), self.parts.values().map(|piece| piece.part.size()).sum())
    }
}

impl Uploading {
    /// Whose it is, and where.
    fn place(&self) -> (u32, Arc<str>) {
        (self.uid, self.bucket.clone())
    }

    pub(crate) fn hashed_by(&self, asked: Claims) -> Claims {
        Claims { algorithm: asked.algorithm.or(self.algorithm), ..asked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_on_their_way_count_for_those_that_come_later() {
        let uploads = Uploads::new(&Env::sim(1));
        let uploading = uploads.begin(|id| Uploading {
            id,
            bucket: "b".into(),
            key: "k".into(),
            uid: 7,
            kept: Kept::default(),
            tags: None,
            begun: Time::default(),
            algorithm: None,
            composite: false,
            state: Mutex::default(),
        });
        let uploading = uploading.expect("the first");
        let first = uploads.expect(&uploading, 1, 10);
        let second = uploads.expect(&uploading, 2, u64::MAX);
        let third = uploads.expect(&uploading, 3, u64::MAX);
        assert_eq!((first.before, second.before, third.before), (0, 10, 10 + FILE_BYTES_MAX));
        drop((second, third));
        assert_eq!(uploads.expect(&uploading, 4, 1).before, 10);
        uploads.end(&uploading.id).expect("there");
        drop(first);
        assert!(uploads.open.lock().tallies.is_empty());
    }
}
