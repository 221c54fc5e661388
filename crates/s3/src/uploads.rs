//! Uploads in parts from this door's view: its notes in the cell's records, and the bytes on their
//! way to parts.

use crate::call::Call;
use crate::error;
use crate::meta::Kept;
use crate::sums::{self, Claims};
use leeward_door::Files;
use leeward_door::listen::Unfinished;
use leeward_door::notes::Sums;
use leeward_env::limits::FILE_BYTES_MAX;
use leeward_fs::uploads::{Part, UploadRecord, UploadTotals};
use leeward_fs::{Error, NodeId};
use parking_lot::Mutex;
use s3s::{S3Error, S3ErrorCode, S3Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Uploads in parts.
pub(crate) struct Uploads {
    files: Files,
    /// Bytes on their way to a user's uploads in a bucket.
    coming: Mutex<BTreeMap<UserBucket, u64>>,
}

type UserBucket = (u32, Arc<str>);

/// The note of an upload that has begun: JSON in its record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Begun {
    #[serde(skip_serializing_if = "Kept::is_empty")]
    pub(crate) headers: Kept,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) tags: String,
    /// The checksum that its parts must have, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<String>,
    /// Whether the checksum of the whole is one over the parts' checksums.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) composite: bool,
}

impl Begun {
    pub(crate) fn new(
        headers: Kept,
        tags: Option<String>,
        algorithm: Option<&str>,
        composite: bool,
    ) -> Begun {
        let algorithm = algorithm.map(str::to_owned);
        Begun { headers, tags: tags.unwrap_or_default(), algorithm, composite }
    }

    /// The stored form.
    pub(crate) fn to_note(&self) -> S3Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(S3Error::internal_error)
    }

    /// Reads the stored form.
    pub(crate) fn of(note: &[u8]) -> S3Result<Begun> {
        serde_json::from_slice(note).map_err(S3Error::internal_error)
    }

    pub(crate) fn algorithm(&self) -> Option<&'static str> {
        sums::name_of(self.algorithm.as_deref()?)
    }

    pub(crate) fn hashed_by(&self, asked: Claims) -> Claims {
        Claims { algorithm: asked.algorithm.or(self.algorithm()), ..asked }
    }
}

/// One upload.
#[derive(Clone)]
pub(crate) struct Uploading {
    pub(crate) id: NodeId,
    pub(crate) record: UploadRecord,
}

/// A part that has arrived.
pub(crate) struct Piece {
    pub(crate) part: Part,
    pub(crate) sums: Sums,
}

impl Piece {
    fn of(part: Part) -> Piece {
        let sums = Sums::of_text(&String::from_utf8_lossy(&part.record.note));
        Piece { part, sums }
    }

    pub(crate) fn etag(&self) -> String {
        etag_of_part(&self.sums)
    }

    pub(crate) fn size(&self) -> u64 {
        self.part.record.size
    }
}

/// The ETag of a part. The code that keeps a part makes sure that its sums have one.
pub(crate) fn etag_of_part(sums: &Sums) -> String {
    sums.get("md5").or(sums.get("etag")).unwrap_or_default().to_owned()
}

/// A part on its way, until it is dropped.
pub(crate) struct Coming<'a> {
    uploads: &'a Uploads,
    place: UserBucket,
    bytes: u64,
    /// Bytes in other parts of this user in this bucket that have arrived or began to arrive
    /// before, without the part whose number it has: there must be room for them, too.
    pub(crate) before: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut coming) = self.uploads.coming.lock().entry(self.place.clone()) {
            *coming.get_mut() -= self.bytes;
            if *coming.get() == 0 {
                coming.remove();
            }
        }
    }
}

impl Uploads {
    pub(crate) fn new(files: &Files) -> Uploads {
        Uploads { files: files.clone(), coming: Mutex::default() }
    }

    /// An upload of this user's, complete or not; others cannot use the id.
    pub(crate) async fn find(&self, call: &Call, key: &str, id: &str) -> S3Result<Uploading> {
        let found = self.now(call, node_of(id).ok_or_else(no_such_upload)?).await?;
        let r = &found.record;
        let is_it = r.uid == call.who.uid && r.bucket() == &*call.bucket.name && r.name() == key;
        if is_it { Ok(found) } else { Err(no_such_upload()) }
    }

    /// An upload of this user's that is not complete, and its note.
    pub(crate) async fn get(&self, call: &Call, key: &str, id: &str) -> S3Result<(Uploading, Begun)> {
        let found = self.find(call, key, id).await?;
        if found.record.complete {
            return Err(no_such_upload());
        }
        let begun = Begun::of(&found.record.note)?;
        Ok((found, begun))
    }

    /// Counts a part of this size that is on its way, until this is dropped.
    pub(crate) async fn expect(
        &self,
        call: &Call,
        uploading: &Uploading,
        number: u32,
        bytes: u64,
    ) -> S3Result<Coming<'_>> {
        let (uid, bucket) = (uploading.record.uid, uploading.record.bucket());
        let there = call.tree.upload_totals(bucket).await.map_err(error::of)?.bytes;
        let replaced = call.tree.upload_part(uploading.id, number).await.map_err(error::of)?;
        let replaced = replaced.map_or(0, |part| part.record.size);
        let place: UserBucket = (uid, bucket.into());
        let bytes = bytes.min(FILE_BYTES_MAX);
        let mut all = self.coming.lock();
        let coming = all.entry(place.clone()).or_default();
        let before = (there + *coming).saturating_sub(replaced);
        *coming += bytes;
        Ok(Coming { uploads: self, place, bytes, before })
    }

    /// A part of an upload.
    pub(crate) async fn piece(&self, call: &Call, upload: NodeId, number: u32) -> S3Result<Option<Piece>> {
        let found = call.tree.upload_part(upload, number).await.map_err(error::of)?;
        Ok(found.map(Piece::of))
    }

    /// Parts after a number, at most `limit`.
    pub(crate) async fn pieces(
        &self,
        call: &Call,
        upload: NodeId,
        after: u32,
        most: usize,
    ) -> S3Result<Vec<Piece>> {
        let found = call.tree.upload_parts(upload, after, most).await.map_err(error::of)?;
        Ok(found.into_iter().map(Piece::of).collect())
    }

    /// The current record of an upload.
    pub(crate) async fn now(&self, call: &Call, id: NodeId) -> S3Result<Uploading> {
        Ok(Uploading { id, record: call.tree.upload(id).await.map_err(of_upload)? })
    }

    /// Number of all uploads, and bytes in their parts.
    pub(crate) fn in_all(&self) -> Unfinished {
        // a closed cell answers nothing, and has no uploads to show
        let UploadTotals { uploads, bytes } = self.files.upload_totals().unwrap_or_default();
        Unfinished { uploads, bytes }
    }

    /// Uploads of this user in this bucket whose keys begin with `prefix`, in the order of keys:
    /// after a key, or after an upload of it.
    pub(crate) async fn of_bucket(
        &self,
        call: &Call,
        prefix: &str,
        after: (&str, Option<&str>),
        most: usize,
    ) -> S3Result<Vec<Uploading>> {
        let full = |key: &str| full_key(&call.bucket.name, key);
        let last = after.1.and_then(node_of).unwrap_or(NodeId(u64::MAX));
        let (prefix, after) = (full(prefix), full(after.0));
        let found = call.tree.uploads(&prefix, (&after, last), most).await.map_err(error::of)?;
        Ok(found.into_iter().map(|(id, record)| Uploading { id, record }).collect())
    }
}

/// The cell's name for the object of an upload.
pub(crate) fn full_key(bucket: &str, key: &str) -> String {
    format!("{bucket}/{key}")
}

/// The clients' name for an upload.
pub(crate) fn id_of(upload: NodeId) -> String {
    format!("{:016x}", upload.0)
}

fn node_of(id: &str) -> Option<NodeId> {
    u64::from_str_radix(id, 16).ok().map(NodeId).filter(|upload| id_of(*upload) == id)
}

/// An error of an operation on an upload.
pub(crate) fn of_upload(e: Error) -> S3Error {
    if e == Error::Stale { no_such_upload() } else { error::of(e) }
}

pub(crate) fn no_such_upload() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::NoSuchUpload,
        "There is no such upload: it was completed or aborted, or nothing was added to it for too long. Begin again.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_as_they_were() {
        let kept = Kept::default().header("content-type", Some("a/b")).header("x-amz-meta-c", Some("d"));
        for (begun, golden) in [
            (
                Begun::new(kept, Some("e=f".into()), Some("sha256"), true),
                r#"{"headers":{"content-type":"a/b","x-amz-meta-c":"d"},"tags":"e=f","algorithm":"sha256","composite":true}"#,
            ),
            (Begun::default(), "{}"),
        ] {
            let note = begun.to_note().expect("written");
            assert_eq!(String::from_utf8_lossy(&note), golden);
            assert_eq!(Begun::of(&note).expect("read"), begun);
        }
        assert!(Begun::of(b"{").is_err());
    }

    #[test]
    fn an_upload_is_named_by_its_number() {
        let upload = NodeId::new(3, 0xabc);
        assert_eq!(id_of(upload), "0000030000000abc");
        assert_eq!(node_of(&id_of(upload)), Some(upload));
        for wrong in ["", "abc", "+000030000000abc", "0000030000000abcd", "000003000000üabc"] {
            assert_eq!(node_of(wrong), None, "{wrong}");
        }
    }
}
