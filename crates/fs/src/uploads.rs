//! Uploads in parts: what a door stores in the cell about them, and reads later.

use crate::{NodeId, Time};
use std::sync::Arc;

/// An upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadRecord {
    /// User id of the owner.
    pub uid: u32,
    /// Time when it was begun; once it is complete, when it was completed.
    pub at: Time,
    /// Whether it is complete: then only its result is left, in the note.
    pub complete: bool,
    /// Bucket, slash, key of the object.
    pub key: Arc<str>,
    /// Data that the door keeps with it.
    pub note: Arc<[u8]>,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRecord {
    /// The upload.
    pub upload: NodeId,
    /// Number of the part.
    pub number: u32,
    /// Time when it arrived.
    pub at: Time,
    /// Size in bytes.
    pub size: u64,
    /// Data that the door keeps with it.
    pub note: Arc<[u8]>,
}

impl UploadRecord {
    /// The bucket.
    pub fn bucket(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(bucket, _)| bucket)
    }

    /// Bytes of key and note, which count against a user's limit.
    pub fn note_bytes(&self) -> usize {
        self.key.len() + self.note.len()
    }

    /// The key in the bucket.
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or("", |(_, name)| name)
    }
}

/// A part that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The file that holds the part's data.
    pub node: NodeId,
    /// Record of the part.
    pub record: PartRecord,
}

/// Figures of uploads that are not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadTotals {
    /// Number of uploads.
    pub uploads: u64,
    /// Bytes in their parts.
    pub bytes: u64,
}
