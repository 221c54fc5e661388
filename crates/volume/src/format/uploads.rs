//! How uploads in parts, and their parts, are stored.

use crate::format::inode::{Reader, damaged};
use crate::format::stored::Stored;
use leeward_fs::uploads::{PartRecord, UploadRecord};
use leeward_fs::{Error, NodeId, Time};
use leeward_meta::Value;

const VERSION: u8 = 1;

/// Of an orphan record: a file without a name, and no part.
const VERSION_ORPHAN: u8 = 1;

/// Of one that is a part.
const VERSION_PART: u8 = 2;

const FLAG_COMPLETE: u8 = 1;

impl Stored for UploadRecord {
    /// The encoding: version, flags, uid u32, time (seconds i64, nanoseconds u32), length of the
    /// key u16, key, note.
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
    /// The encoding: version; of a part also its number u32, upload u64, time (seconds i64,
    /// nanoseconds u32), bytes u64, note.
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

pub(crate) fn text(bytes: &[u8]) -> leeward_fs::Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Error::Invalid)
}

/// The record of an orphan that is no part.
pub(crate) fn plain_orphan() -> Value {
    None::<PartRecord>.encode()
}
