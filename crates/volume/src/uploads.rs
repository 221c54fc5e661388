//! Uploads in parts: what doors have begun to put together and not ended. They survive the end of the process.
//!
//! An upload is a record of the cell under a number of its volume, as inodes have them. A part is a file without a name whose orphan record
//! says which part of which upload it is: that keeps it, as long as the upload is there and not complete. So an upload ends in one small
//! transaction, however many parts it has; they are then orphans like others, freed in steps, and found at opening as such after a crash.
//!
//! [`Uploads`] knows all of them in memory, by a lock of its own: taken under the shard's or alone, never held over a call.

mod index;

pub use index::Uploads;

use crate::inode::{Reader, damaged};
use crate::keys::{self, Table};
use crate::ops::Placing;
use crate::records::{Effect, Tx, TxResult, each};
use crate::shard::{Shard, State};
use crate::stored::Stored;
use leeward_env::{Ctx, Work};
use leeward_fs::uploads::{PartRecord, UploadRecord};
use leeward_fs::{Error, NodeId, Reply, Time};
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

impl Stored for UploadRecord {
    /// The encoding: version, flags, uid u32, time (seconds i64, nanoseconds u32), length of the key u16, key, note.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, u8::from(self.complete) * FLAG_COMPLETE];
        out.extend_from_slice(&self.uid.to_be_bytes());
        put_time(&mut out, self.at);
        out.extend_from_slice(&(self.key.len() as u16).to_be_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(&self.note);
        out.into()
    }

    fn decode(bytes: &[u8]) -> leeward_fs::Result<UploadRecord> {
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

/// The record of an orphan: `None` for one that is no part.
impl Stored for Option<PartRecord> {
    /// The encoding: version; of a part also its number u32, upload u64, time (seconds i64, nanoseconds u32), bytes u64, note.
    fn encode(&self) -> Value {
        let Some(part) = self else { return [VERSION_ORPHAN][..].into() };
        let mut out = vec![VERSION_PART];
        out.extend_from_slice(&part.number.to_be_bytes());
        out.extend_from_slice(&part.upload.0.to_be_bytes());
        put_time(&mut out, part.at);
        out.extend_from_slice(&part.size.to_be_bytes());
        out.extend_from_slice(&part.note);
        out.into()
    }

    fn decode(bytes: &[u8]) -> leeward_fs::Result<Option<PartRecord>> {
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

fn text(bytes: &[u8]) -> leeward_fs::Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Error::Invalid)
}

/// The record of an orphan that is no part.
pub(crate) fn plain_orphan() -> Value {
    None::<PartRecord>.encode()
}

impl Tx<'_> {
    /// [`Op::BeginUpload`](leeward_fs::Op::BeginUpload).
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

    /// [`Op::KeepPart`](leeward_fs::Op::KeepPart); `Err`: the content of this file must be in the records first.
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
        self.put(keys::orphan(node), Some(record.clone()).encode());
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

    /// [`Op::EndUpload`](leeward_fs::Op::EndUpload). What became of one that is complete stays known.
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
    pub(crate) fn load_uploads(&self, moment: &dyn Moment) -> leeward_fs::Result<()> {
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
    /// [`Op::KeepPart`](leeward_fs::Op::KeepPart). Content is in the records before the part is known.
    pub(crate) fn keep_part(
        &self,
        ctx: &Ctx,
        upload: NodeId,
        node: NodeId,
        part: (u32, &[u8]),
    ) -> leeward_fs::Result<Reply> {
        loop {
            match self.transact(ctx, |tx| tx.keep_part(upload, node, part))? {
                Ok(reply) => return Ok(reply),
                Err(node) => self.stage(ctx, node)?,
            }
        }
    }

    /// [`Op::CompleteUpload`](leeward_fs::Op::CompleteUpload).
    pub(crate) fn complete_upload(
        &self,
        ctx: &Ctx,
        upload: NodeId,
        placing: &Placing<'_>,
        result: &[u8],
    ) -> leeward_fs::Result<Reply> {
        self.place_and(ctx, placing, |tx| tx.complete_upload(upload, result))
    }

    fn uploads(&self) -> Arc<Uploads> {
        self.lock().uploads.clone()
    }

    /// [`Op::GetUpload`](leeward_fs::Op::GetUpload).
    pub(crate) fn get_upload(&self, upload: NodeId) -> leeward_fs::Result<Reply> {
        let found = self.uploads().find(upload).ok_or(Error::Stale)?;
        Ok(Reply::Upload((*found).clone()))
    }

    /// [`Op::ListParts`](leeward_fs::Op::ListParts).
    pub(crate) fn list_parts(&self, upload: NodeId, after: u32, limit: usize) -> Reply {
        Reply::Parts(self.uploads().parts(upload, after, limit))
    }

    /// [`Op::ListUploads`](leeward_fs::Op::ListUploads).
    pub(crate) fn list_uploads(
        &self,
        ctx: &Ctx,
        prefix: &[u8],
        after: (&[u8], NodeId),
        limit: usize,
    ) -> leeward_fs::Result<Reply> {
        let (prefix, key) = (text(prefix)?, text(after.0)?);
        let found = self.uploads().of_user(ctx.uid, prefix, (key, after.1), limit);
        Ok(Reply::Uploads(found.into_iter().map(|(id, record)| (id, (*record).clone())).collect()))
    }

    /// [`Op::StatUploads`](leeward_fs::Op::StatUploads).
    pub(crate) fn stat_uploads(&self, ctx: &Ctx, bucket: Option<&[u8]>) -> leeward_fs::Result<Reply> {
        let totals = match bucket {
            Some(bucket) => self.uploads().in_bucket(ctx.uid, text(bucket)?),
            None => self.uploads().totals(),
        };
        Ok(Reply::UploadTotals(totals))
    }

    /// What rests for too long is dropped, and what has long been complete is forgotten: one step; `true` when there was something to do.
    pub(crate) fn upload_step(&self) -> leeward_fs::Result<bool> {
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
