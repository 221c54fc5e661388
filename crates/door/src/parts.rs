//! Uploads in parts: how a door begins them, adds to them and ends them. Which there are, and what is in them, `leeward_volume::uploads` knows.

use crate::files::Tree;
use crate::path::Path;
use crate::steps::{Base, Steps};
use crate::upload::{PLACE, Upload, dir_for};
use leeward_volume::uploads::Part;
use leeward_volume::{Error, NodeId, Op, Reply, Result};

impl Tree {
    /// Begins an upload of what will be at `path`; durable when this returns. `key`: bucket, slash, key. `note`: what the door wants to know of it.
    ///
    /// # Errors
    /// As [`Tree::create`] gives them; [`Error::TooManyUploads`].
    pub async fn begin_upload(&self, path: &Path, key: String, note: Vec<u8>) -> Result<NodeId> {
        let path = path.clone();
        let mut begun = None;
        self.run((PLACE, 0), move |steps, base| {
            let upload = match begun {
                Some(upload) => upload,
                None => {
                    let dir = dir_for(steps, base, &path)?;
                    match steps.call(Op::BeginUpload { dir, key: key.as_bytes(), note: &note })? {
                        Reply::Begun(upload) => upload,
                        other => return Err(Error::Io(format!("BeginUpload answered {other:?}"))),
                    }
                }
            };
            begun = Some(upload);
            steps.fsync(upload)?;
            Ok(upload)
        })
        .await
    }

    /// Ends an upload that is not to be completed; durable when this returns.
    ///
    /// # Errors
    /// [`Error::Stale`] when it is not there any more.
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

    /// What is known of an upload is durable when this returns.
    ///
    /// # Errors
    /// As `fsync` gives them.
    pub async fn settle_upload(&self, upload: NodeId) -> Result<()> {
        self.run((Op::Fsync { node: NodeId::ROOT }, 0), move |steps, _| steps.fsync(upload)).await
    }
}

impl Upload {
    /// Keeps it as a part of an upload, in place of the one that had this number; durable when this returns. `note`: what the door wants to know of
    /// it.
    ///
    /// # Errors
    /// [`Error::Stale`] when the upload is not there any more; [`Error::TooManyUploads`]; as `fsync` gives them.
    pub async fn keep_as_part(mut self, upload: NodeId, number: u32, note: Vec<u8>) -> Result<()> {
        self.flush().await?;
        let Upload { tree, held, .. } = self;
        let mut kept = false;
        let keep = move |steps: &Steps<'_>, _: &Base| {
            // whoever waits for this may go away, the file may not
            let node = held.node;
            steps.about(node);
            if !kept {
                steps.call(Op::KeepPart { node, upload, number, note: &note })?;
                kept = true;
            }
            steps.fsync(node)
        };
        tree.run((PLACE, 0), keep).await
    }

    /// Adds a part at the end, by sharing its data.
    ///
    /// # Errors
    /// As [`Upload::copy`]; [`Error::Stale`] when it is no part any more.
    pub async fn copy_part(&mut self, part: &Part) -> Result<()> {
        self.copy_from(part.node, 0..part.record.size).await?;
        let now = self.tree.files().uploads().part(part.record.upload, part.record.number);
        // what is no part any more may have been freed while it was copied, from its end
        if now.is_some_and(|now| now.node == part.node) { Ok(()) } else { Err(Error::Stale) }
    }
}
