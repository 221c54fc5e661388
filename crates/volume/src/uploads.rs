//! Uploads in parts, which doors have begun and not ended. They survive the end of the process.
//!
//! An upload is a record of the cell under a number of its volume, like those of inodes. A part is
//! a file without a name. Its orphan record says which part of which upload it is. That keeps the
//! file as long as the upload exists and is not complete. So an upload ends in one small
//! transaction, however many parts it has. The parts are then orphans like others, freed in steps,
//! and found as orphans at opening after a crash.
//!
//! [`Uploads`] has all of them in memory, under a lock of its own: taken under the shard's or
//! alone, never held over a call.

use crate::format::keys::{self};
use crate::format::stored::Stored;
use crate::format::{plain_orphan, text};
use crate::ops::Placing;
use crate::ops::flags::may_add_name;
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::State;
use crate::state::uploads::Uploads;
use crate::tx::{Tx, TxResult};
use leeward_env::{Ctx, Work};
use leeward_fs::uploads::{PartRecord, UploadRecord};
use leeward_fs::{Error, NodeId, Reply};
use std::sync::Arc;

/// Longest key with its bucket, bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// The result of an upload is kept this long, seconds; and for this many uploads.
const RESULT_SECS: i64 = 3600;
const RESULTS_MAX: usize = 10_000;
const DAY_SECS: i64 = 86_400;

impl Tx<'_> {
    /// [`Op::BeginUpload`](leeward_fs::Op::BeginUpload).
    pub(crate) fn begin_upload(&mut self, dir: NodeId, key: &[u8], note: &[u8]) -> TxResult<Reply> {
        may_add_name(&self.live_dir(dir)?)?;
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

    /// [`Op::KeepPart`](leeward_fs::Op::KeepPart); `Err`: the content of this file must be in the
    /// records first.
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

    /// Replaces the upload by its result: its parts are released.
    pub(crate) fn complete_upload(&mut self, upload: NodeId, result: &[u8]) -> TxResult<()> {
        let was = self.st.uploads.find(upload).filter(|was| !was.complete).ok_or(Error::Stale)?;
        let record = UploadRecord { complete: true, at: self.now, note: result.into(), ..(*was).clone() };
        self.put(keys::upload(upload), record.encode());
        self.then(Effect::Upload(upload, record));
        Ok(())
    }

    /// [`Op::EndUpload`](leeward_fs::Op::EndUpload). The result of a complete upload is kept.
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

impl Shard {
    /// [`Op::KeepPart`](leeward_fs::Op::KeepPart). Content is in the records before the part is
    /// known.
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

    /// Drops uploads that had no additions for too long, and results that are old: one step; `true`
    /// when there was something to do.
    pub(crate) fn upload_step(&self) -> leeward_fs::Result<bool> {
        let now = self.now().secs;
        let rested = now.saturating_sub(i64::from(self.config.upload_rest_days) * DAY_SECS);
        let due = |st: &State| st.uploads.due(rested, now.saturating_sub(RESULT_SECS), RESULTS_MAX);
        let Some(upload) = due(&self.lock()) else { return Ok(false) };
        let ctx = self.work_ctx(Work::Removal, Some(upload.volume()));
        let forget = |tx: &mut Tx<'_>| {
            // it may have got additions, or have ended, before this step had its turn
            if due(tx.st) == Some(upload) {
                tx.forget_upload(upload);
            }
            Ok(())
        };
        self.in_turn(&ctx, upload.volume(), || self.transact(&ctx, forget))?;
        Ok(true)
    }
}
