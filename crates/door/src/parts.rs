//! Uploads in parts: begins, extends and ends them, and lists them and their parts.

use crate::files::{Files, Tree};
use crate::path::Path;
use crate::steps::{Base, Steps};
use crate::upload::{PLACE, Upload, dir_for};
use leeward_env::Ctx;
use leeward_fs::uploads::{Part, UploadRecord, UploadTotals};
use leeward_fs::{Error, NodeId, Op, Reply, Result};

impl Tree {
    /// Begins an upload of a file that will be at `path`; durable when this returns. `key`: bucket,
    /// slash, key. `note`: data that the door wants to keep with it.
    ///
    /// # Errors
    /// As for [`Tree::create`]; [`Error::TooManyUploads`].
    pub async fn begin_upload(&self, path: &Path, key: String, note: Vec<u8>) -> Result<NodeId> {
        let path = path.clone();
        let mut begun = None;
        self.run((PLACE, 0), move |steps, base| {
            let upload = match begun {
                Some(upload) => upload,
                None => {
                    let dir = dir_for(steps, base, &path)?;
                    steps.call(Op::BeginUpload { dir, key: key.as_bytes(), note: &note })?.begun()?
                }
            };
            begun = Some(upload);
            steps.fsync(upload)?;
            Ok(upload)
        })
        .await
    }

    /// Ends an upload without completing it; durable when this returns.
    ///
    /// # Errors
    /// [`Error::Stale`] when it does not exist any more.
    pub async fn end_upload(&self, upload: NodeId) -> Result<()> {
        let mut ended = false;
        self.run((PLACE, 0), move |steps, _| {
            if !ended {
                steps.call(Op::EndUpload { upload })?;
                ended = true;
            }
            steps.fsync(upload)
        })
        .await
    }

    /// Makes the record of an upload durable.
    ///
    /// # Errors
    /// As for `fsync`.
    pub async fn settle_upload(&self, upload: NodeId) -> Result<()> {
        self.run((Op::Fsync { node: NodeId::ROOT }, 0), move |steps, _| steps.fsync(upload)).await
    }
}

/// Queries about uploads: answered out of turn, from the cell's memory.
impl Tree {
    /// An upload, also a complete one.
    ///
    /// # Errors
    /// [`Error::Stale`] when there is no such upload, or not any more.
    pub async fn upload(&self, upload: NodeId) -> Result<UploadRecord> {
        self.ask(Op::GetUpload { upload }).await?.upload()
    }

    /// A part of an upload; `None` when there is none.
    ///
    /// # Errors
    /// The cell's.
    pub async fn upload_part(&self, upload: NodeId, number: u32) -> Result<Option<Part>> {
        let found = self.upload_parts(upload, number.saturating_sub(1), 1).await?;
        Ok(found.into_iter().find(|part| part.record.number == number))
    }

    /// Parts of an upload after a number, at most `limit`. The lowest number is 1.
    ///
    /// # Errors
    /// The cell's.
    pub async fn upload_parts(&self, upload: NodeId, after: u32, limit: usize) -> Result<Vec<Part>> {
        self.ask(Op::ListParts { upload, after, limit }).await?.parts()
    }

    /// This user's uploads that are not complete, whose bucket, slash, key begin with `prefix`, in
    /// the order of keys; those after a key and an upload of it.
    ///
    /// # Errors
    /// The cell's.
    pub async fn uploads(
        &self,
        prefix: &str,
        after: (&str, NodeId),
        limit: usize,
    ) -> Result<Vec<(NodeId, UploadRecord)>> {
        let (prefix, (after, after_upload)) = (prefix.as_bytes(), (after.0.as_bytes(), after.1));
        self.ask(Op::ListUploads { prefix, after, after_upload, limit }).await?.uploads()
    }

    /// Figures of this user's uploads in a bucket that are not complete.
    ///
    /// # Errors
    /// The cell's.
    pub async fn upload_totals(&self, bucket: &str) -> Result<UploadTotals> {
        self.ask(Op::StatUploads { bucket: Some(bucket.as_bytes()) }).await?.upload_totals()
    }

    async fn ask(&self, op: Op<'_>) -> Result<Reply> {
        self.files().ask(*self.ctx(), op).await
    }
}

impl Files {
    /// Figures of everybody's uploads that are not complete.
    ///
    /// # Errors
    /// The cell's.
    pub fn upload_totals(&self) -> Result<UploadTotals> {
        self.backend().call(&Ctx::system(), Op::StatUploads { bucket: None })?.upload_totals()
    }
}

impl Upload {
    /// Keeps the file as a part of an upload, replacing the one that had this number; durable when
    /// this returns. `note`: data that the door wants to keep with it.
    ///
    /// # Errors
    /// [`Error::Stale`] when the upload does not exist any more; [`Error::TooManyUploads`]; as for
    /// `fsync`.
    pub async fn keep_as_part(mut self, upload: NodeId, number: u32, note: Vec<u8>) -> Result<()> {
        self.flush().await?;
        let Upload { tree, held, .. } = self;
        let mut kept = false;
        let keep = move |steps: &Steps<'_>, _: &Base| {
            // the caller may go away, the file may not
            let node = held.node;
            steps.about(node);
            if !kept {
                held.check()?;
                held.judge(steps.call(Op::KeepPart { node, upload, number, note: &note }))?;
                kept = true;
            }
            held.judge(steps.fsync(node))
        };
        tree.run((PLACE, 0), keep).await
    }

    /// Adds a part at the end, by sharing its data.
    ///
    /// # Errors
    /// As [`Upload::copy`]; [`Error::Stale`] when it is no part any more.
    pub async fn copy_part(&mut self, part: &Part) -> Result<()> {
        self.copy_from(part.node, 0..part.record.size).await?;
        let now = self.tree.upload_part(part.record.upload, part.record.number).await?;
        // a file that is no part any more may have been freed while it was copied, from its end
        if now.is_some_and(|now| now.node == part.node) { Ok(()) } else { Err(Error::Stale) }
    }
}
