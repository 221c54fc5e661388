//! Which blobs there are, and in which packs.

use crate::pack::{Blob, BlobKind};
use crate::{Error, Id, Result};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// A file below `index`.
#[derive(Default, Serialize, Deserialize)]
pub struct IndexFile {
    packs: Vec<IndexedPack>,
}

#[derive(Serialize, Deserialize)]
struct IndexedPack {
    id: Id,
    blobs: Vec<IndexedBlob>,
}

#[derive(Serialize, Deserialize)]
struct IndexedBlob {
    id: Id,
    #[serde(rename = "type")]
    kind: BlobKind,
    offset: u32,
    length: u32,
    #[serde(default, skip_serializing_if = "is_none")]
    uncompressed_length: u32,
}

fn is_none(len: &u32) -> bool {
    *len == 0
}

impl IndexFile {
    /// Adds a pack.
    pub fn add(&mut self, pack: Id, blobs: &[Blob]) {
        let blobs = blobs.iter().map(|b| IndexedBlob {
            id: b.id,
            kind: b.kind,
            offset: b.offset,
            length: b.len,
            uncompressed_length: b.plain_len,
        });
        self.packs.push(IndexedPack { id: pack, blobs: blobs.collect() });
    }

    /// Reads one.
    pub(crate) fn parse(text: &[u8]) -> Result<IndexFile> {
        serde_json::from_slice(text)
            .map_err(|e| Error::damaged(format!("an index cannot be read ({e}): run restic rebuild-index")))
    }

    pub(crate) fn each(self, mut each: impl FnMut(Id, Vec<Blob>)) {
        for pack in self.packs {
            let blobs = pack.blobs.into_iter().map(|b| Blob {
                id: b.id,
                kind: b.kind,
                offset: b.offset,
                len: b.length,
                plain_len: b.uncompressed_length,
            });
            each(pack.id, blobs.collect());
        }
    }
}

/// Where a blob is.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Number of the pack; [`PENDING`]: it is not stored yet.
    pub pack: u32,
    offset: u32,
    len: u32,
    plain_len: u32,
    /// Whether a snapshot refers to it, as far as that was looked at.
    marked: bool,
}

/// No pack yet.
pub const PENDING: u32 = u32::MAX;

/// All blobs of a repository.
#[derive(Default)]
pub struct Index {
    packs: Vec<Id>,
    numbers: FxHashMap<Id, u32>,
    /// Where the blobs of each pack end.
    ends: Vec<u64>,
    blobs: [FxHashMap<Id, Found>; 2],
}

impl Index {
    /// Adds a pack. A blob that is in several is looked for in the first.
    pub fn add(&mut self, pack: Id, blobs: &[Blob]) {
        let next = self.packs.len() as u32;
        let number = *self.numbers.entry(pack).or_insert(next);
        if number == next {
            self.packs.push(pack);
            self.ends.push(0);
        }
        let end = blobs.iter().map(Blob::end).max().unwrap_or(0);
        let known = &mut self.ends[number as usize];
        *known = end.max(*known);
        for b in blobs {
            let found =
                Found { pack: number, offset: b.offset, len: b.len, plain_len: b.plain_len, marked: false };
            let known = self.blobs[b.kind as usize].entry(b.id).or_insert(found);
            if known.pack == PENDING {
                *known = found;
            }
        }
    }

    /// A blob is about to be stored; false: it is there, or was about to be.
    pub fn begin(&mut self, kind: BlobKind, id: Id) -> bool {
        let blobs = &mut self.blobs[kind as usize];
        let is_new = !blobs.contains_key(&id);
        if is_new {
            blobs.insert(id, Found { pack: PENDING, offset: 0, len: 0, plain_len: 0, marked: false });
        }
        is_new
    }

    /// Whether a blob is there, or is about to be.
    pub fn has(&self, kind: BlobKind, id: &Id) -> bool {
        self.blobs[kind as usize].contains_key(id)
    }

    /// A blob and its pack.
    pub fn find(&self, kind: BlobKind, id: &Id) -> Option<(Id, Blob)> {
        let found = self.blobs[kind as usize].get(id).filter(|found| found.pack != PENDING)?;
        Some((self.packs[found.pack as usize], found.blob(kind, *id)))
    }

    /// Bytes of what a blob is.
    pub fn size(&self, kind: BlobKind, id: &Id) -> Option<u64> {
        self.find(kind, id).map(|(_, blob)| blob.size())
    }

    /// Where the blobs of a pack end.
    pub fn end_of(&self, pack: &Id) -> u64 {
        self.numbers.get(pack).map_or(0, |number| self.ends[*number as usize])
    }

    /// All packs.
    pub fn packs(&self) -> &[Id] {
        &self.packs
    }

    /// Marks a blob. False: it was marked already. `None`: it is not there.
    pub fn mark(&mut self, kind: BlobKind, id: &Id) -> Option<bool> {
        let found = self.blobs[kind as usize].get_mut(id).filter(|found| found.pack != PENDING)?;
        Some(!std::mem::replace(&mut found.marked, true))
    }

    /// Whether a marked blob is looked for in this pack.
    pub fn is_needed_in(&self, pack: &Id, blob: &Blob) -> bool {
        let found = self.blobs[blob.kind as usize].get(&blob.id).filter(|found| found.marked);
        found.is_some_and(|found| {
            self.packs.get(found.pack as usize) == Some(pack) && found.offset == blob.offset
        })
    }
}

impl Found {
    fn blob(&self, kind: BlobKind, id: Id) -> Blob {
        Blob { id, kind, offset: self.offset, len: self.len, plain_len: self.plain_len }
    }
}
