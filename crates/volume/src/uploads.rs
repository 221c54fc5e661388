//! Uploads in parts: what doors have begun to put together and not ended. They survive the end of the process.
//!
//! An upload is a record of the cell under a number of its volume, as inodes have them. A part is a file without a name whose orphan record
//! says which part of which upload it is: that keeps it, as long as the upload is there and not complete. So an upload ends in one small
//! transaction, however many parts it has; they are then orphans like others, freed in steps, and found at opening as such after a crash.
//!
//! [`Uploads`] knows all of them in memory, by a lock of its own: taken under the shard's or alone, never held over a call.

mod index;

pub use index::{Part, Uploads};

use crate::error::{self, Error};
use crate::inode::{Reader, damaged};
use crate::keys::{self, Table};
use crate::op::{NodeId, Reply, Time};
use crate::ops::Placing;
use crate::records::{Effect, Tx, TxResult, each};
use crate::shard::{Shard, State};
use leeward_env::{Ctx, Work};
use leeward_meta::{Moment, Value};
use std::sync::Arc;

/// Uploads that a user may have at a time, and parts in them.
pub const UPLOADS_PER_USER_MAX: usize = 10_000;
/// See [`UPLOADS_PER_USER_MAX`].
pub const PARTS_PER_USER_MAX: usize = 100_000;
/// Bytes that keys and notes of a user's uploads may have together.
pub const NOTE_BYTES_PER_USER_MAX: usize = 32 << 20;
/// Parts that there may be in all.
pub const PARTS_MAX: usize = 1_000_000;
/// Longest key with its bucket, bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// So long it is known what became of an upload, seconds; and of how many.
const RESULT_SECS: i64 = 3600;
const RESULTS_MAX: usize = 10_000;
const DAY_SECS: i64 = 86_400;

const VERSION: u8 = 1;
/// Of an orphan record: a file without a name, and no part.
const VERSION_ORPHAN: u8 = 1;
/// Of one that is a part.
const VERSION_PART: u8 = 2;
const FLAG_COMPLETE: u8 = 1;

/// An upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadRecord {
    /// Whose it is.
    pub uid: u32,
    /// When it was begun; when it was completed, once it is.
    pub at: Time,
    /// Whether it is complete: then nothing is left of it but what became of it, in the note.
    pub complete: bool,
    /// Bucket, slash, key of the object.
    pub key: Arc<str>,
    /// What the door has to know.
    pub note: Arc<[u8]>,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRecord {
    /// Of which upload.
    pub upload: NodeId,
    /// Which part.
    pub number: u32,
    /// When it came.
    pub at: Time,
    /// Bytes in it.
    pub size: u64,
    /// What the door has to know.
    pub note: Arc<[u8]>,
}

impl UploadRecord {
    /// The bucket.
    pub fn bucket(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(bucket, _)| bucket)
    }

    /// What it takes in memory, but for what is the same for all.
    pub(crate) fn note_bytes(&self) -> usize {
        self.key.len() + self.note.len()
    }

    /// The key in it.
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or("", |(_, name)| name)
    }

    /// The encoding: version, flags, uid u32, time (seconds i64, nanoseconds u32), length of the key u16, key, note.
    pub fn encode(&self) -> Value {
        let mut out = vec![VERSION, u8::from(self.complete) * FLAG_COMPLETE];
        out.extend_from_slice(&self.uid.to_be_bytes());
        put_time(&mut out, self.at);
        out.extend_from_slice(&(self.key.len() as u16).to_be_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(&self.note);
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> error::Result<UploadRecord> {
        let mut from = Reader(bytes);
        let mut parsed = || {
            let [VERSION, flags] = from.take()? else { return None };
            let (uid, at) = (from.u32()?, take_time(&mut from)?);
            let len = u16::from_be_bytes(from.take()?);
            let key = from.text(len.into())?.into();
            Some(UploadRecord { uid, at, complete: flags & FLAG_COMPLETE != 0, key, note: from.0.into() })
        };
        parsed().ok_or_else(|| damaged("upload", bytes))
    }
}

impl PartRecord {
    /// The encoding: version, part u32, upload u64, time (seconds i64, nanoseconds u32), bytes u64, note.
    pub fn encode(&self) -> Value {
        let mut out = vec![VERSION_PART];
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.upload.0.to_be_bytes());
        put_time(&mut out, self.at);
        out.extend_from_slice(&self.size.to_be_bytes());
        out.extend_from_slice(&self.note);
        out.into()
    }

    /// Reads the record of an orphan: `None` for one that is no part.
    pub fn decode(bytes: &[u8]) -> error::Result<Option<PartRecord>> {
        let mut from = Reader(bytes);
        let mut parsed = || match from.take()? {
            [VERSION_ORPHAN] => Some(None),
            [VERSION_PART] => Some(Some(PartRecord {
                number: from.u32()?,
                upload: NodeId(from.u64()?),
                at: take_time(&mut from)?,
                size: from.u64()?,
                note: from.0.into(),
            })),
            _ => None,
        };
        parsed().ok_or_else(|| damaged("orphan", bytes))
    }
}

fn put_time(out: &mut Vec<u8>, at: Time) {
    out.extend_from_slice(&at.secs.to_be_bytes());
    out.extend_from_slice(&at.nanos.to_be_bytes());
}

fn take_time(from: &mut Reader<'_>) -> Option<Time> {
    Some(Time { secs: from.u64()? as i64, nanos: from.u32()? })
}

/// The record of an orphan that is no part.
pub(crate) fn plain_orphan() -> Value {
    [VERSION_ORPHAN][..].into()
}

impl Tx<'_> {
    /// [`Op::BeginUpload`](crate::Op::BeginUpload).
    pub(crate) fn begin_upload(&mut self, dir: NodeId, key: &[u8], note: &[u8]) -> TxResult<Reply> {
        self.live_dir(dir)?;
        self.check_room(dir, 0)?;
        let text = std::str::from_utf8(key).ok().filter(|key| key.len() <= KEY_BYTES_MAX);
        let key: Arc<str> = text.ok_or(Error::Invalid)?.into();
        let record =
            UploadRecord { uid: self.ctx.uid, at: self.now, complete: false, key, note: note.into() };
        self.st.uploads.check_begin(&record)?;
        let (upload, _) = self.allocate_inode(dir.volume())?;
        self.put_new(keys::upload(upload), record.encode());
        self.then(Effect::Upload(upload, record));
        Ok(Reply::Begun(upload))
    }

    /// [`Op::KeepPart`](crate::Op::KeepPart); `Err`: the content of this file must be in the records first.
    fn keep_part(
        &mut self,
        upload: NodeId,
        node: NodeId,
        part: (u32, &[u8]),
    ) -> TxResult<Result<Reply, NodeId>> {
        let inode = self.file(node)?;
        if !self.st.orphans.contains(&node) {
            return Err(Error::Invalid.into());
        }
        let old = self.st.uploads.check_part(upload, part.0)?;
        if self.st.files.contains_key(&node) {
            return Ok(Err(node));
        }
        let (number, note) = part;
        let record = PartRecord { upload, number, at: self.now, size: inode.size, note: note.into() };
        self.put(keys::orphan(node), record.encode());
        if let Some(old) = old {
            self.put(keys::orphan(old), plain_orphan());
        }
        self.then(Effect::Part(node, record));
        Ok(Ok(Reply::Done))
    }

    /// The upload is what became of it from now on: its parts are let go.
    pub(crate) fn complete_upload(&mut self, upload: NodeId, result: &[u8]) -> TxResult<()> {
        let was = self.st.uploads.find(upload).filter(|was| !was.complete).ok_or(Error::Stale)?;
        let record = UploadRecord { complete: true, at: self.now, note: result.into(), ..(*was).clone() };
        self.put(keys::upload(upload), record.encode());
        self.then(Effect::Upload(upload, record));
        Ok(())
    }

    /// [`Op::EndUpload`](crate::Op::EndUpload). What became of one that is complete stays known.
    pub(crate) fn end_upload(&mut self, upload: NodeId) -> TxResult<Reply> {
        self.st.uploads.find(upload).filter(|was| !was.complete).ok_or(Error::Stale)?;
        self.forget_upload(upload);
        Ok(Reply::Done)
    }

    fn forget_upload(&mut self, upload: NodeId) {
        self.remove(keys::upload(upload));
        self.then(Effect::UploadGone(upload));
    }
}

impl State {
    /// Files that are parts of nothing any more: freed now, or when the last reference goes.
    pub(crate) fn let_parts_go(&mut self, parts: Vec<NodeId>) {
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

    /// At opening, without their parts. Those of volumes that are being removed go with them.
    pub(crate) fn load_uploads(&self, moment: &dyn Moment) -> error::Result<()> {
        each(moment, keys::table_range(Table::Upload), |key, value| {
            let (upload, record) = (NodeId(keys::table_id(key)), UploadRecord::decode(value)?);
            if self.volumes.get(&upload.volume()).is_some_and(|volume| !volume.removing) {
                let published = self.buckets.contains_key(record.bucket());
                self.uploads.set(upload, record);
                if !published {
                    self.uploads.forsake(upload);
                }
            }
            Ok(())
        })
    }
}

impl Shard {
    /// [`Op::KeepPart`](crate::Op::KeepPart). Content is in the records before the part is known.
    pub(crate) fn keep_part(
        &self,
        ctx: &Ctx,
        upload: NodeId,
        node: NodeId,
        part: (u32, &[u8]),
    ) -> error::Result<Reply> {
        loop {
            match self.transact(ctx, |tx| tx.keep_part(upload, node, part))? {
                Ok(reply) => return Ok(reply),
                Err(node) => self.stage(ctx, node)?,
            }
        }
    }

    /// [`Op::CompleteUpload`](crate::Op::CompleteUpload).
    pub(crate) fn complete_upload(
        &self,
        ctx: &Ctx,
        upload: NodeId,
        placing: &Placing<'_>,
        result: &[u8],
    ) -> error::Result<Reply> {
        self.place_and(ctx, placing, |tx| tx.complete_upload(upload, result))
    }

    /// What rests for too long is dropped, and what has long been complete is forgotten: one step; `true` when there was something to do.
    pub(crate) fn upload_step(&self) -> error::Result<bool> {
        let now = self.now().secs;
        let rested = now.saturating_sub(i64::from(self.config.upload_rest_days) * DAY_SECS);
        let due = |st: &State| st.uploads.due(rested, now.saturating_sub(RESULT_SECS), RESULTS_MAX);
        let Some(upload) = due(&self.lock()) else { return Ok(false) };
        let ctx = self.work_ctx(Work::Removal, Some(upload.volume()));
        let forget = |tx: &mut Tx<'_>| {
            // it may have been gone on with, or ended, before it was our turn
            if due(tx.st) == Some(upload) {
                tx.forget_upload(upload);
            }
            Ok(())
        };
        self.in_turn(&ctx, upload.volume(), || self.transact(&ctx, forget))?;
        Ok(true)
    }
}
