//! Uploads in parts: what a door tells the cell of them, and reads of them later.

use crate::{NodeId, Time};
use std::sync::Arc;

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

    /// Bytes of key and note, which a user's limit counts.
    pub fn note_bytes(&self) -> usize {
        self.key.len() + self.note.len()
    }

    /// The key in it.
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or("", |(_, name)| name)
    }
}

/// A part that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The file.
    pub node: NodeId,
    /// What is known of it.
    pub record: PartRecord,
}

/// How much there is of uploads that are not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadTotals {
    /// Uploads.
    pub uploads: u64,
    /// Bytes in their parts.
    pub bytes: u64,
}
