//! What a cell keeps of a volume's mirrors beside the volume's own record: what its copies have
//! proven, and of what it is a copy itself, or was. Programs that do not know it leave it as it is.

use crate::format::inode::{Reader, put_short_text};
use crate::format::stored::Stored;
use leeward_fs::{Error, Result};
use leeward_meta::Value;

const VERSION: u8 = 1;
const HAS_ORIGIN: u8 = 1;
const WAS_PROMOTED: u8 = 2;
const HANDED_OVER: u8 = 4;
const DETACHED: u8 = 8;

/// What is kept of a volume's mirrors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorsRecord {
    /// The newest snapshot that each copy has shown and proven, of copies that have.
    pub proven: Vec<ProvenRecord>,
    /// Where it came from, if it is a copy, or was.
    pub origin: Option<OriginRecord>,
}

/// Where a copy came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginRecord {
    /// The other cell, as this one knows it; empty: not known, as where a pipe brought it.
    pub cell: String,
    /// Name of the volume there; empty: not known.
    pub volume: String,
    /// Seconds from one snapshot to the next; 0: not known.
    pub every_secs: u32,
    /// How it became a volume like others; it may be a copy again.
    pub promoted: Option<PromotionRecord>,
    /// When the mirror that kept it up to date was removed, seconds since 1970; `None`: it was not.
    pub detached_secs: Option<i64>,
}

/// How a copy became a volume like others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromotionRecord {
    /// The snapshot that it showed.
    pub snapshot: String,
    /// When that was taken, seconds since 1970.
    pub time_secs: i64,
    /// When it was promoted, seconds since 1970.
    pub at_secs: i64,
    /// Whether the other volume has become a copy: roles were changed in order.
    pub handed_over: bool,
}

/// The newest snapshot that a copy in another cell has shown and proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenRecord {
    /// The other cell, as the mirror names it.
    pub to: String,
    /// Name of the copy there.
    pub copy: String,
    /// Name of the snapshot.
    pub snapshot: String,
    /// When it was taken, seconds since 1970.
    pub time_secs: i64,
}

impl MirrorsRecord {
    /// What a copy has proven.
    pub fn proven_by(&self, to: &str, copy: &str) -> Option<&ProvenRecord> {
        self.proven.iter().find(|proven| proven.is_of(to, copy))
    }
}

impl ProvenRecord {
    /// Whether it is what this copy has proven.
    pub fn is_of(&self, to: &str, copy: &str) -> bool {
        self.to == to && self.copy == copy
    }
}

impl Stored for MirrorsRecord {
    /// The encoding: version, number u8, and of each: length u16 and text of the other cell, of the
    /// copy, of the snapshot; when that was taken i64. Flags u8: 1 it is or was a copy, 2 it was
    /// promoted, 4 in order, 8 its mirror was removed. With flag 1: length u16 and text of the
    /// other cell, of the volume there; interval u32. With flag 2: length u16 and text of the
    /// snapshot, when that was taken i64, when it was promoted i64. With flag 8: when that was i64.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, self.proven.len() as u8];
        for proven in &self.proven {
            for text in [&proven.to, &proven.copy, &proven.snapshot] {
                put_short_text(&mut out, text);
            }
            out.extend_from_slice(&proven.time_secs.to_be_bytes());
        }
        let promoted = self.origin.as_ref().and_then(|origin| origin.promoted.as_ref());
        let detached_secs = self.origin.as_ref().and_then(|origin| origin.detached_secs);
        out.push(
            u8::from(self.origin.is_some()) * HAS_ORIGIN
                + u8::from(promoted.is_some()) * WAS_PROMOTED
                + u8::from(promoted.is_some_and(|promoted| promoted.handed_over)) * HANDED_OVER
                + u8::from(detached_secs.is_some()) * DETACHED,
        );
        if let Some(origin) = &self.origin {
            put_short_text(&mut out, &origin.cell);
            put_short_text(&mut out, &origin.volume);
            out.extend_from_slice(&origin.every_secs.to_be_bytes());
        }
        if let Some(promoted) = promoted {
            put_short_text(&mut out, &promoted.snapshot);
            out.extend_from_slice(&promoted.time_secs.to_be_bytes());
            out.extend_from_slice(&promoted.at_secs.to_be_bytes());
        }
        if let Some(detached_secs) = detached_secs {
            out.extend_from_slice(&detached_secs.to_be_bytes());
        }
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<MirrorsRecord> {
        let damaged = || Error::Corrupt(format!("mirrors record of {} bytes cannot be read", bytes.len()));
        let mut from = Reader(bytes);
        let read = |from: &mut Reader<'_>| {
            let [VERSION, count] = from.take()? else { return None };
            let proven = (0..count).map(|_| ProvenRecord::decode(from)).collect::<Option<_>>()?;
            Some(MirrorsRecord { proven, origin: OriginRecord::decode(from)? })
        };
        let record = read(&mut from).ok_or_else(damaged)?;
        if from.0.is_empty() { Ok(record) } else { Err(damaged()) }
    }
}

impl ProvenRecord {
    fn decode(from: &mut Reader<'_>) -> Option<ProvenRecord> {
        Some(ProvenRecord {
            to: from.short_text()?,
            copy: from.short_text()?,
            snapshot: from.short_text()?,
            time_secs: from.u64()? as i64,
        })
    }
}

impl OriginRecord {
    fn decode(from: &mut Reader<'_>) -> Option<Option<OriginRecord>> {
        let [flags] = from.take()?;
        if flags & HAS_ORIGIN == 0 {
            return (flags == 0).then_some(None);
        }
        let (cell, volume, every_secs) = (from.short_text()?, from.short_text()?, from.u32()?);
        let promoted = match flags & WAS_PROMOTED != 0 {
            true => Some(PromotionRecord {
                snapshot: from.short_text()?,
                time_secs: from.u64()? as i64,
                at_secs: from.u64()? as i64,
                handed_over: flags & HANDED_OVER != 0,
            }),
            false => None,
        };
        let detached_secs = match flags & DETACHED != 0 {
            true => Some(from.u64()? as i64),
            false => None,
        };
        Some(Some(OriginRecord { cell, volume, every_secs, promoted, detached_secs }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_part_of_one() {
        let proven = |to: &str| ProvenRecord {
            to: to.into(),
            copy: "home".into(),
            snapshot: "mirror-01234567-2026-11-27T09:09:24.362Z".into(),
            time_secs: 1_795_770_564,
        };
        let promoted = |handed_over| {
            let snapshot = "mirror-1".into();
            Some(PromotionRecord { snapshot, time_secs: 1_795_770_564, at_secs: 1_795_770_565, handed_over })
        };
        let origin = |promoted, detached_secs| {
            let (cell, volume) = ("site-a".into(), "home".into());
            Some(OriginRecord { cell, volume, every_secs: 300, promoted, detached_secs })
        };
        for origin in [
            None,
            origin(None, None),
            origin(promoted(false), None),
            origin(promoted(true), None),
            origin(None, Some(1_795_770_566)),
            origin(promoted(true), Some(1_795_770_566)),
        ] {
            let record = MirrorsRecord { proven: vec![proven("one:7433"), proven("/srv/cell")], origin };
            let bytes = record.encode();
            assert_eq!(MirrorsRecord::decode(&bytes), Ok(record));
            (0..bytes.len()).for_each(|len| assert!(MirrorsRecord::decode(&bytes[..len]).is_err(), "{len}"));
        }
    }
}
