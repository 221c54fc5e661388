//! How one commit looks in the journal. All numbers are little endian.
//!
//! ```text
//!  0  u32  magic "LwJ2" (the 2 is the version)
//!  4  u32  crc32c of everything from byte 8 to the end of the payload
//!  8  16 bytes: the key of the file, see [`super::head`]
//! 24  u64  sequence number of the commit
//! 32  u64  sequence number of the record before it: a missing record shows
//! 40  u64  sequence number of the last record before it that wrote to the tables, which must hold it if no file
//!          of the journal does; 0: not known
//! 48  u32  length of the payload
//! 52  u32  zero
//! 56       payload: u32 number of writes, u32 number of pieces of inline data, then
//!            each write: u16 length of the key, u32 length of the value (2^32-1: the key is removed), key, value
//!            each piece: u64 segment, u32 offset, u32 volume, u64 inode, u64 offset in the file, u32 length, bytes
//! ```
//!
//! Version 1 ("LwJ1", cells of format 7 and older) is read and not written: in place of the key it
//! has the u64 number of the file, it lacks the u64 at 40, and its files have no head.

use super::head::FileKey;
use crate::{Batch, InlineData};
use std::sync::Arc;

const MAGIC: [u8; 4] = *b"LwJ2";
const MAGIC_1: [u8; 4] = *b"LwJ1";
const HEADER_BYTES: usize = 56;
const HEADER_BYTES_1: usize = 40;
const CRC_FROM: usize = 8;
const REMOVED: u32 = u32::MAX;
const WRITE_BYTES: usize = 2 + 4;
const INLINE_BYTES: usize = 8 + 4 + 4 + 8 + 8 + 4;

/// The mark that shows that a record belongs to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Version 1: the file's number.
    Number(u64),
    /// The key in the file's head.
    Key(FileKey),
}

/// The fields before the payload, without magic, mark, checksum and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Sequence number.
    pub seq: u64,
    /// Sequence number of the record before it.
    pub previous: u64,
    /// The last record before it that wrote to the tables; 0: not known.
    pub written: u64,
}

/// A record that was found whole.
pub(super) struct Found<'a> {
    pub header: Header,
    pub payload: &'a [u8],
    /// Bytes of header and payload.
    pub len: usize,
}

/// Bytes of inline data in a record.
pub(super) fn inline_bytes(inline: &InlineData) -> usize {
    INLINE_BYTES + inline.bytes.len()
}

/// Bytes that [`encode`] needs.
pub(super) fn encoded_len(batch: &Batch) -> usize {
    let writes: usize =
        batch.writes.iter().map(|(k, v)| WRITE_BYTES + k.len() + v.as_ref().map_or(0, |v| v.len())).sum();
    let inline_data: usize = batch.inline_data.iter().map(inline_bytes).sum();
    HEADER_BYTES + 8 + writes + inline_data
}

/// Writes a record to the first [`encoded_len`] bytes of `out`.
pub(super) fn encode(out: &mut [u8], key: &FileKey, header: Header, batch: &Batch) {
    let len = encoded_len(batch);
    let out = &mut out[..len];
    let mut w = Writer { out, at: 0 };
    w.bytes(&MAGIC);
    w.u32(0);
    w.bytes(key);
    w.u64(header.seq);
    w.u64(header.previous);
    w.u64(header.written);
    w.u32(u32::try_from(len - HEADER_BYTES).expect("a batch below 4 GiB"));
    w.u32(0);
    w.u32(batch.writes.len() as u32);
    w.u32(batch.inline_data.len() as u32);
    for (key, value) in &batch.writes {
        w.u16(key.len() as u16);
        w.u32(value.as_ref().map_or(REMOVED, |v| v.len() as u32));
        w.bytes(key);
        w.bytes(value.as_deref().unwrap_or_default());
    }
    batch.inline_data.iter().for_each(|inline| w.inline(inline));
    let crc = crc_fast::crc32_iscsi(&out[CRC_FROM..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// The record at the start of `bytes`, if there is a whole one with this mark.
pub(super) fn find(bytes: &[u8], mark: Mark) -> Option<Found<'_>> {
    let mut r = Reader { rest: bytes };
    let magic = r.array::<4>()?;
    let crc = r.u32()?;
    let (is_ours, header_bytes) = match mark {
        Mark::Number(file) => (magic == MAGIC_1 && r.u64()? == file, HEADER_BYTES_1),
        Mark::Key(key) => (magic == MAGIC && r.array::<16>()? == key, HEADER_BYTES),
    };
    if !is_ours {
        return None;
    }
    let (seq, previous) = (r.u64()?, r.u64()?);
    let written = if matches!(mark, Mark::Key(_)) { r.u64()? } else { 0 };
    let len = header_bytes.checked_add(r.u32()? as usize)?;
    let whole = bytes.get(..len)?;
    (crc_fast::crc32_iscsi(&whole[CRC_FROM..]) == crc).then(|| Found {
        header: Header { seq, previous, written },
        payload: &whole[header_bytes..],
        len,
    })
}

/// The batch in a payload; `None` where a payload with the right checksum does not parse.
pub(super) fn decode(payload: &[u8]) -> Option<Batch> {
    let mut r = Reader { rest: payload };
    read_batch(&mut r).filter(|_| r.rest.is_empty())
}

fn read_batch(r: &mut Reader<'_>) -> Option<Batch> {
    let (writes, inline_data) = (r.u32()?, r.u32()?);
    let mut batch = Batch::default();
    for _ in 0..writes {
        let (key, value) = (r.u16()?, r.u32()?);
        let key = Arc::from(r.take(usize::from(key))?);
        let value = if value == REMOVED { None } else { Some(Arc::from(r.take(value as usize)?)) };
        batch.writes.push((key, value));
    }
    for _ in 0..inline_data {
        batch.inline_data.push(r.inline()?);
    }
    Some(batch)
}

/// Inline data alone, encoded as in a record.
pub(crate) fn encode_inline(inline: &InlineData) -> Vec<u8> {
    let mut out = vec![0; INLINE_BYTES + inline.bytes.len()];
    Writer { out: &mut out, at: 0 }.inline(inline);
    out
}

/// Decodes what [`encode_inline`] encoded.
pub(crate) fn decode_inline(bytes: &[u8]) -> Option<InlineData> {
    let mut r = Reader { rest: bytes };
    r.inline().filter(|_| r.rest.is_empty())
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
    fn u16(&mut self, n: u16) {
        self.bytes(&n.to_le_bytes());
    }
    fn u32(&mut self, n: u32) {
        self.bytes(&n.to_le_bytes());
    }
    fn u64(&mut self, n: u64) {
        self.bytes(&n.to_le_bytes());
    }
    fn inline(&mut self, inline: &InlineData) {
        let (volume, inode, at) = inline.owner;
        self.u64(inline.segment);
        self.u32(inline.offset);
        self.u32(volume);
        self.u64(inode);
        self.u64(at);
        self.u32(inline.bytes.len() as u32);
        self.bytes(&inline.bytes);
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn inline(&mut self) -> Option<InlineData> {
        let (segment, offset) = (self.u64()?, self.u32()?);
        let owner = (self.u32()?, self.u64()?, self.u64()?);
        let len = self.u32()?;
        Some(InlineData { segment, offset, owner, bytes: Arc::from(self.take(len as usize)?) })
    }
}
