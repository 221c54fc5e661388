//! What a cell keeps of a volume's mirrors beside the volume's own record: programs that do not
//! know it leave it as it is.

use crate::format::inode::{Reader, put_short_text};
use crate::format::stored::Stored;
use leeward_fs::{Error, Result};
use leeward_meta::Value;

const VERSION: u8 = 1;

/// What is kept of a volume's mirrors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorsRecord {
    /// The newest snapshot that each copy has shown and proven, of copies that have.
    pub proven: Vec<ProvenRecord>,
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
    /// copy, of the snapshot; when that was taken i64.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, self.proven.len() as u8];
        for proven in &self.proven {
            for text in [&proven.to, &proven.copy, &proven.snapshot] {
                put_short_text(&mut out, text);
            }
            out.extend_from_slice(&proven.time_secs.to_be_bytes());
        }
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<MirrorsRecord> {
        let damaged = || Error::Corrupt(format!("mirrors record of {} bytes cannot be read", bytes.len()));
        let mut from = Reader(bytes);
        let read = |from: &mut Reader<'_>| match from.take()? {
            [VERSION, count] => (0..count).map(|_| ProvenRecord::decode(from)).collect(),
            _ => None,
        };
        let proven: Vec<ProvenRecord> = read(&mut from).ok_or_else(damaged)?;
        if from.0.is_empty() { Ok(MirrorsRecord { proven }) } else { Err(damaged()) }
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
        let record = MirrorsRecord { proven: vec![proven("one:7433"), proven("/srv/cell")] };
        let bytes = record.encode();
        assert_eq!(MirrorsRecord::decode(&bytes), Ok(record));
        (0..bytes.len()).for_each(|len| assert!(MirrorsRecord::decode(&bytes[..len]).is_err(), "{len}"));
    }
}
