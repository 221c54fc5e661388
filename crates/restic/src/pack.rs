//! Packs: files of blobs, each sealed, with a sealed header at the end that says what they are.

use crate::crypto::{Key, OVERHEAD_BYTES};
use crate::{Error, Id, Result};
use leeward_env::Env;
use serde::{Deserialize, Serialize};

/// Bytes that a pack is to have.
pub const PACK_BYTES: usize = 16 << 20;
/// A pack has no more blobs: its header stays small, and so does what prune holds of one.
pub const BLOBS_MAX: usize = 20_000;
const PLAIN_ENTRY_BYTES: usize = 37;
const COMPRESSED_ENTRY_BYTES: usize = 41;
/// How much compression is asked for.
const LEVEL: i32 = 3;

/// What a blob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BlobKind {
    /// A chunk of a file.
    Data,
    /// A directory.
    Tree,
}

/// A blob in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Its id: of what it is before compression.
    pub id: Id,
    /// What it is.
    pub kind: BlobKind,
    /// Where it begins.
    pub offset: u32,
    /// Bytes that it has there.
    pub len: u32,
    /// Bytes before compression; 0: it is not compressed.
    pub plain_len: u32,
}

impl Blob {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.len)
    }

    /// Bytes of what it is.
    pub fn size(&self) -> u64 {
        match self.plain_len {
            0 => u64::from(self.len).saturating_sub(OVERHEAD_BYTES as u64),
            len => u64::from(len),
        }
    }
}

/// What is stored of a blob, before it is sealed.
pub struct Compressed {
    pub(crate) bytes: Vec<u8>,
    /// 0: it is not compressed.
    pub(crate) plain_len: u32,
}

impl Compressed {
    /// Compresses where that pays.
    pub fn new(plain: Vec<u8>) -> Compressed {
        match zstd::bulk::compress(&plain, LEVEL) {
            Ok(bytes) if bytes.len() < plain.len() => Compressed { bytes, plain_len: plain.len() as u32 },
            _ => Compressed { bytes: plain, plain_len: 0 },
        }
    }
}

/// The encoder for what is too large to hold.
pub(crate) fn encoder() -> std::io::Result<zstd::stream::write::Encoder<'static, Vec<u8>>> {
    zstd::stream::write::Encoder::new(Vec::new(), LEVEL)
}

/// A pack that is being filled.
#[derive(Default)]
pub struct Pack {
    bytes: Vec<u8>,
    blobs: Vec<Blob>,
}

/// A pack that is whole.
pub struct FullPack {
    /// Its id.
    pub id: Id,
    /// The file.
    pub bytes: Vec<u8>,
    /// What is in it.
    pub blobs: Vec<Blob>,
}

impl Pack {
    /// Whether it is as large as it is to be.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= PACK_BYTES || self.blobs.len() >= BLOBS_MAX
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }

    /// Adds what is sealed already.
    pub fn add(&mut self, kind: BlobKind, id: Id, sealed: &[u8], plain_len: u32) {
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(PACK_BYTES + (1 << 20));
        }
        let (offset, len) = (self.bytes.len() as u32, sealed.len() as u32);
        self.bytes.extend_from_slice(sealed);
        self.blobs.push(Blob { id, kind, offset, len, plain_len });
    }

    /// Ends it.
    pub fn finish(mut self, env: &Env, key: &Key) -> FullPack {
        let mut header = Vec::with_capacity(self.blobs.len() * COMPRESSED_ENTRY_BYTES);
        for blob in &self.blobs {
            let kind = u8::from(blob.kind == BlobKind::Tree) + 2 * u8::from(blob.plain_len > 0);
            header.push(kind);
            header.extend_from_slice(&blob.len.to_le_bytes());
            if blob.plain_len > 0 {
                header.extend_from_slice(&blob.plain_len.to_le_bytes());
            }
            header.extend_from_slice(&blob.id.0);
        }
        let sealed = key.seal(env, &header);
        self.bytes.extend_from_slice(&sealed);
        self.bytes.extend_from_slice(&(sealed.len() as u32).to_le_bytes());
        FullPack { id: Id::of(&self.bytes), bytes: self.bytes, blobs: self.blobs }
    }
}

/// Reads the sealed header of a pack.
///
/// # Errors
/// Damaged.
pub fn parse_header(key: &Key, sealed: Vec<u8>, pack: &Id) -> Result<Vec<Blob>> {
    let damaged = || Error::damaged(format!("the header of pack {pack} cannot be read"));
    let header = key.open(sealed).ok_or_else(damaged)?;
    let (mut rest, mut blobs, mut offset) = (&header[..], Vec::new(), 0u32);
    while let Some(kind) = rest.first() {
        let entry = if *kind < 2 { PLAIN_ENTRY_BYTES } else { COMPRESSED_ENTRY_BYTES };
        if *kind > 3 || rest.len() < entry {
            return Err(damaged());
        }
        let number = |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let len = number(1);
        let plain_len = if *kind < 2 { 0 } else { number(5) };
        let id = Id(rest[entry - 32..entry].try_into().map_err(|_| damaged())?);
        let kind = if kind & 1 == 0 { BlobKind::Data } else { BlobKind::Tree };
        blobs.push(Blob { id, kind, offset, len, plain_len });
        offset = offset.checked_add(len).ok_or_else(damaged)?;
        rest = &rest[entry..];
    }
    Ok(blobs)
}

/// What a blob is, from what is stored of it.
///
/// # Errors
/// Damaged.
pub fn open_blob(key: &Key, blob: &Blob, sealed: Vec<u8>) -> Result<Vec<u8>> {
    let damaged = || Error::damaged(format!("blob {} is damaged: run lee backup check", blob.id));
    plain(blob, key.open(sealed).ok_or_else(damaged)?)
}

/// What a blob is, from what was sealed.
pub(crate) fn plain(blob: &Blob, stored: Vec<u8>) -> Result<Vec<u8>> {
    let damaged = || Error::damaged(format!("blob {} is damaged: run lee backup check", blob.id));
    let plain = match blob.plain_len {
        0 => stored,
        len => zstd::bulk::decompress(&stored, len as usize).map_err(|_| damaged())?,
    };
    if Id::of(&plain) == blob.id { Ok(plain) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_say_what_is_in_them() {
        let env = Env::real();
        let key = Key::random(&env);
        let mut pack = Pack::default();
        let texts: [Vec<u8>; 3] = [vec![b'a'; 5000], b"short".to_vec(), Vec::new()];
        for (n, text) in texts.iter().enumerate() {
            let kind = if n == 1 { BlobKind::Tree } else { BlobKind::Data };
            let stored = Compressed::new(text.clone());
            assert_eq!(stored.plain_len > 0, n == 0);
            pack.add(kind, Id::of(text), &key.seal(&env, &stored.bytes), stored.plain_len);
        }
        let FullPack { id, bytes, blobs } = pack.finish(&env, &key);
        assert_eq!(id, Id::of(&bytes));
        let len = u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().expect("4 bytes")) as usize;
        let header = bytes[bytes.len() - 4 - len..bytes.len() - 4].to_vec();
        assert_eq!(parse_header(&key, header.clone(), &id).as_ref(), Ok(&blobs));
        assert!(parse_header(&Key::random(&env), header, &id).is_err());
        for (blob, text) in blobs.iter().zip(&texts) {
            let sealed = bytes[blob.offset as usize..][..blob.len as usize].to_vec();
            assert_eq!(open_blob(&key, blob, sealed).as_ref(), Ok(text));
            assert_eq!(blob.size(), text.len() as u64);
        }
    }
}
