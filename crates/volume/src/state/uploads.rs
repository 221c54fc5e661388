//! All uploads in memory: by number, in the order of listings, by the time of their last addition;
//! and their totals by user.

use crate::format::each;
use crate::format::keys;
use crate::format::stored::Stored;
use crate::state::State;
use leeward_fs::uploads::{Part, PartRecord, UploadRecord, UploadTotals};
use leeward_fs::{Error, NodeId, Result};
use leeward_meta::Moment;
use parking_lot::Mutex;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Most uploads that a user may have at a time.
pub const UPLOADS_PER_USER_MAX: usize = 10_000;

/// Most parts that a user may have in uploads.
pub const PARTS_PER_USER_MAX: usize = 100_000;

/// Most bytes of keys and notes of a user's uploads together.
pub const NOTE_BYTES_PER_USER_MAX: usize = 32 << 20;

/// Most parts in all.
pub const PARTS_MAX: usize = 1_000_000;

/// All uploads. Changed under the shard's lock only.
#[derive(Default)]
pub struct Uploads(Mutex<Table>);

#[derive(Default)]
struct Table {
    all: BTreeMap<NodeId, Upload>,
    /// Uploads that are not complete: user, bucket with key, number.
    open: BTreeSet<(u32, Arc<str>, NodeId)>,
    /// The same by the time of their last addition, seconds since 1970.
    rest: BTreeSet<(i64, NodeId)>,
    /// Complete uploads, by time of completion.
    complete: BTreeSet<(i64, NodeId)>,
    /// Totals of a user in a bucket.
    tallies: BTreeMap<(u32, Arc<str>), Tally>,
    /// Totals of a user.
    of_users: BTreeMap<u32, Tally>,
    parts: usize,
}

struct Upload {
    record: Arc<UploadRecord>,
    parts: BTreeMap<u32, Part>,
    used: i64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    uploads: usize,
    parts: usize,
    bytes: u64,
    /// Bytes of keys and notes.
    note_bytes: usize,
}

impl Uploads {
    /// An upload by its number, also one that is complete.
    pub fn find(&self, upload: NodeId) -> Option<Arc<UploadRecord>> {
        self.0.lock().all.get(&upload).map(|found| found.record.clone())
    }

    /// All of them, by number.
    pub fn all(&self) -> Vec<(NodeId, Arc<UploadRecord>)> {
        self.0.lock().all.iter().map(|(id, upload)| (*id, upload.record.clone())).collect()
    }

    /// Parts of an upload after a number, at most `most`.
    pub fn parts(&self, upload: NodeId, after: u32, most: usize) -> Vec<Part> {
        let table = self.0.lock();
        let parts = table.all.get(&upload).map(|found| &found.parts);
        let later = parts.into_iter().flat_map(|p| p.range((Bound::Excluded(after), Bound::Unbounded)));
        later.take(most).map(|(_, part)| part.clone()).collect()
    }

    /// Uploads of a user that are not complete, whose bucket and key begin with `prefix`, in the
    /// order of keys; those after a key and an upload of it.
    pub fn of_user(
        &self,
        uid: u32,
        prefix: &str,
        after: (&str, NodeId),
        most: usize,
    ) -> Vec<(NodeId, Arc<UploadRecord>)> {
        let table = self.0.lock();
        let from = match after.0 < prefix {
            true => Bound::Included((uid, prefix.into(), NodeId(0))),
            false => Bound::Excluded((uid, after.0.into(), after.1)),
        };
        let found = table.open.range((from, Bound::Unbounded));
        let found = found.take_while(|(of, key, _)| *of == uid && key.starts_with(prefix)).take(most);
        found.filter_map(|(_, _, id)| Some((*id, table.all.get(id)?.record.clone()))).collect()
    }

    /// A user's uploads in a bucket that are not complete.
    pub fn in_bucket(&self, uid: u32, bucket: &str) -> UploadTotals {
        let tally = self.0.lock().tallies.get(&(uid, bucket.into())).copied().unwrap_or_default();
        UploadTotals { uploads: tally.uploads as u64, bytes: tally.bytes }
    }

    /// All uploads that are not complete.
    pub fn totals(&self) -> UploadTotals {
        let table = self.0.lock();
        let bytes = table.tallies.values().map(|tally| tally.bytes).sum();
        UploadTotals { uploads: table.open.len() as u64, bytes }
    }

    /// Whether a user may begin another one.
    pub(crate) fn check_begin(&self, record: &UploadRecord) -> Result<()> {
        let has = self.0.lock().of(record.uid);
        let notes = has.note_bytes + record.note_bytes() <= NOTE_BYTES_PER_USER_MAX;
        match has.uploads < UPLOADS_PER_USER_MAX && notes {
            true => Ok(()),
            false => Err(Error::TooManyUploads),
        }
    }

    /// Whether an upload may have this part; the file that is this part now.
    pub(crate) fn check_part(&self, upload: NodeId, number: u32) -> Result<Option<NodeId>> {
        let table = self.0.lock();
        let found = table.all.get(&upload).filter(|found| !found.record.complete).ok_or(Error::Stale)?;
        let old = found.parts.get(&number).map(|part| part.node);
        let full = table.parts >= PARTS_MAX || table.of(found.record.uid).parts >= PARTS_PER_USER_MAX;
        if old.is_none() && full { Err(Error::TooManyUploads) } else { Ok(old) }
    }

    /// Adds an upload, or changes its record. Returns the files that are no longer parts of it.
    pub(crate) fn set(&self, upload: NodeId, record: UploadRecord) -> Vec<NodeId> {
        let mut table = self.0.lock();
        let gone = table.remove(upload);
        table.insert(upload, record);
        gone
    }

    /// Makes a file a part of an upload. Returns the file that was that part; the file itself where
    /// there is no such upload.
    pub(crate) fn add(&self, node: NodeId, record: PartRecord) -> Option<NodeId> {
        self.0.lock().add(node, record)
    }

    /// Removes an upload. Returns its parts.
    pub(crate) fn remove(&self, upload: NodeId) -> Vec<NodeId> {
        self.0.lock().remove(upload)
    }

    /// Marks an upload as unused for ever, so that it is dropped next.
    pub(crate) fn expire(&self, upload: NodeId) {
        self.0.lock().used(upload, i64::MIN);
    }

    /// The same for all uploads in a bucket that are not complete.
    pub(crate) fn expire_bucket(&self, bucket: &str) {
        let mut table = self.0.lock();
        let prefix = format!("{bucket}/");
        let users = table.tallies.keys().filter(|(_, of)| **of == *bucket).map(|(uid, _)| *uid);
        let mut of_bucket = Vec::new();
        for uid in users {
            let from = table.open.range((uid, Arc::from(&*prefix), NodeId(0))..);
            let own = from.take_while(|(of, key, _)| *of == uid && key.starts_with(&prefix));
            of_bucket.extend(own.map(|(.., id)| *id));
        }
        of_bucket.into_iter().for_each(|upload| table.used(upload, i64::MIN));
    }

    /// Removes a volume, with its uploads and the parts in it. Returns parts of these uploads in
    /// other volumes.
    pub(crate) fn drop_volume(&self, volume: u32) -> Vec<NodeId> {
        let mut table = self.0.lock();
        let of_volume = NodeId::new(volume, 0)..NodeId::new(volume + 1, 0);
        let gone: Vec<NodeId> = table.all.range(of_volume).map(|(id, _)| *id).collect();
        let freed = gone.into_iter().flat_map(|upload| table.remove(upload)).collect();
        let parts = table.all.iter().flat_map(|(id, upload)| upload.parts.iter().map(|p| (*id, p)));
        let lost = parts.filter(|(_, (_, part))| part.node.volume() == volume);
        let lost: Vec<(NodeId, u32)> = lost.map(|(id, (number, _))| (id, *number)).collect();
        lost.into_iter().for_each(|(id, number)| table.lose(id, number));
        freed
    }

    /// The upload to drop next: without additions since `rested`, or complete since before `known`,
    /// or one of more than `most`.
    pub(crate) fn due(&self, rested: i64, known: i64, most: usize) -> Option<NodeId> {
        let table = self.0.lock();
        let rests = table.rest.first().filter(|(used, _)| *used < rested);
        let crowded = table.complete.len() > most;
        let old = || table.complete.first().filter(|(since, _)| *since < known || crowded);
        rests.or_else(old).map(|(_, upload)| *upload)
    }

    /// All files that are parts.
    pub(crate) fn files(&self) -> Vec<NodeId> {
        let table = self.0.lock();
        table.all.values().flat_map(|upload| upload.parts.values()).map(|part| part.node).collect()
    }
}

impl Table {
    fn of(&self, uid: u32) -> Tally {
        self.of_users.get(&uid).copied().unwrap_or_default()
    }

    fn insert(&mut self, id: NodeId, record: UploadRecord) {
        let (used, record) = (record.at.secs, Arc::new(record));
        if record.complete {
            self.complete.insert((used, id));
        } else {
            self.open.insert((record.uid, record.key.clone(), id));
            self.rest.insert((used, id));
            let notes = record.note_bytes();
            self.tally(&record, |tally| {
                tally.uploads += 1;
                tally.note_bytes += notes;
            });
        }
        self.all.insert(id, Upload { record, parts: BTreeMap::new(), used });
    }

    fn remove(&mut self, id: NodeId) -> Vec<NodeId> {
        let Some(Upload { record, parts, used }) = self.all.remove(&id) else { return Vec::new() };
        self.complete.remove(&(used, id));
        self.rest.remove(&(used, id));
        if self.open.remove(&(record.uid, record.key.clone(), id)) {
            let bytes: u64 = parts.values().map(|part| part.record.size).sum();
            let notes = record.note_bytes();
            self.parts -= parts.len();
            self.tally(&record, |tally| {
                tally.uploads -= 1;
                tally.note_bytes -= notes;
                tally.parts -= parts.len();
                tally.bytes -= bytes;
            });
        }
        parts.into_values().map(|part| part.node).collect()
    }

    fn add(&mut self, node: NodeId, record: PartRecord) -> Option<NodeId> {
        let (id, number, at, size) = (record.upload, record.number, record.at.secs, record.size);
        let Some(upload) = self.all.get_mut(&id).filter(|upload| !upload.record.complete) else {
            return Some(node);
        };
        let old = upload.parts.insert(number, Part { node, record });
        // an expired upload stays so
        let used = if upload.used == i64::MIN { i64::MIN } else { upload.used.max(at) };
        let of = upload.record.clone();
        self.parts += usize::from(old.is_none());
        self.tally(&of, |tally| {
            tally.parts += usize::from(old.is_none());
            tally.bytes = tally.bytes + size - old.as_ref().map_or(0, |old| old.record.size);
        });
        self.used(id, used);
        old.map(|old| old.node)
    }

    /// Removes a part that is gone with its volume.
    fn lose(&mut self, id: NodeId, number: u32) {
        let Some(upload) = self.all.get_mut(&id) else { return };
        let (of, Some(lost)) = (upload.record.clone(), upload.parts.remove(&number)) else { return };
        self.parts -= 1;
        self.tally(&of, |tally| {
            tally.parts -= 1;
            tally.bytes -= lost.record.size;
        });
    }

    fn used(&mut self, id: NodeId, at: i64) {
        let Some(upload) = self.all.get_mut(&id).filter(|upload| !upload.record.complete) else { return };
        self.rest.remove(&(upload.used, id));
        upload.used = at;
        self.rest.insert((at, id));
    }

    fn tally(&mut self, of: &UploadRecord, change: impl Fn(&mut Tally)) {
        change_tally(&mut self.tallies, (of.uid, of.bucket().into()), &change);
        change_tally(&mut self.of_users, of.uid, &change);
    }
}

fn change_tally<K: Ord>(tallies: &mut BTreeMap<K, Tally>, of: K, change: impl Fn(&mut Tally)) {
    match tallies.entry(of) {
        Entry::Vacant(new) => change(new.insert(Tally::default())),
        Entry::Occupied(mut there) => {
            change(there.get_mut());
            if *there.get() == Tally::default() {
                there.remove();
            }
        }
    }
}

impl State {
    /// Releases files that are no longer parts of anything: freed now, or when the last reference
    /// goes.
    pub(crate) fn release_parts(&mut self, parts: Vec<NodeId>) {
        for node in parts {
            if self.volumes.get(&node.volume()).is_none_or(|volume| volume.removing) {
                // freed with it
            } else if self.refs.get(node) > 0 {
                self.orphans.insert(node);
            } else {
                self.reclaim.push_back(node);
            }
        }
    }

    /// At opening, without their parts. Uploads of volumes that are being removed go with them.
    pub(crate) fn load_uploads(&self, moment: &dyn Moment) -> leeward_fs::Result<()> {
        each(moment, keys::table_range(keys::Table::Upload), |key, value| {
            let (upload, record) = (NodeId(keys::table_id(key)), UploadRecord::decode(value)?);
            if self.volumes.get(&upload.volume()).is_some_and(|volume| !volume.removing) {
                let published = self.buckets.contains_key(record.bucket());
                self.uploads.set(upload, record);
                if !published {
                    self.uploads.expire(upload);
                }
            }
            Ok(())
        })
    }
}
