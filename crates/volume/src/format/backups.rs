//! Where volumes are backed up to: the stored form.

use crate::format::inode::Reader;
use crate::format::schedule::Keep;
use crate::format::stored::Stored;
use leeward_fs::{Error, Result};
use leeward_meta::Value;

const VERSION: u8 = 1;
/// Most places of a volume.
pub const BACKUPS_MAX: usize = 8;

/// The places that a volume is backed up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupsRecord(pub Vec<BackupRecord>);

/// A place that a volume is backed up to, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupRecord {
    /// The repository: a URL of a bucket, or a path.
    pub to: String,
    /// The file that has its password.
    pub password_file: String,
    /// Seconds from one backup to the next.
    pub every_secs: u32,
    /// Which backups are kept.
    pub keep: Keep,
    /// When it was made, seconds since 1970.
    pub since_secs: i64,
    /// When what nothing refers to was removed from the repository, seconds since 1970; 0: never.
    pub pruned_secs: i64,
    /// The last backup that came to its end.
    pub last: Option<LastBackup>,
}

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastBackup {
    /// Name of the snapshot that it shows, here.
    pub snapshot: String,
    /// The id of its snapshot in the repository.
    pub id: [u8; 32],
    /// When it was begun, seconds since 1970.
    pub begun_secs: i64,
    /// Milliseconds that it took.
    pub took_ms: u64,
    /// Bytes that were stored.
    pub sent_bytes: u64,
    /// Files whose content was read.
    pub files_read: u64,
    /// Bytes of them.
    pub bytes_read: u64,
}

impl Stored for BackupsRecord {
    /// The encoding: version, number u8, and of each: length u16 and text of the place, of the path of the password
    /// file, of what is kept; interval u32, since i64, pruned i64, whether there is a last one u8, and with that its
    /// snapshot (length u16, text), id (32 bytes), begun i64, duration u64, bytes stored, files read, bytes read u64.
    fn encode(&self) -> Value {
        let mut out = vec![VERSION, self.0.len() as u8];
        for backup in &self.0 {
            backup.encode(&mut out);
        }
        out.into()
    }

    fn decode(bytes: &[u8]) -> Result<BackupsRecord> {
        let damaged = || Error::Corrupt(format!("backups record of {} bytes cannot be read", bytes.len()));
        let mut from = Reader(bytes);
        let read = |from: &mut Reader<'_>| match from.take()? {
            [VERSION, count] => (0..count).map(|_| BackupRecord::decode(from)).collect(),
            _ => None,
        };
        let all: Vec<BackupRecord> = read(&mut from).ok_or_else(damaged)?;
        if from.0.is_empty() { Ok(BackupsRecord(all)) } else { Err(damaged()) }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn text(from: &mut Reader<'_>) -> Option<String> {
    let len = u16::from_be_bytes(from.take()?);
    from.text(len.into())
}

impl BackupRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.to);
        put_text(out, &self.password_file);
        put_text(out, &self.keep.to_string());
        out.extend_from_slice(&self.every_secs.to_be_bytes());
        out.extend_from_slice(&self.since_secs.to_be_bytes());
        out.extend_from_slice(&self.pruned_secs.to_be_bytes());
        out.push(u8::from(self.last.is_some()));
        if let Some(last) = &self.last {
            put_text(out, &last.snapshot);
            out.extend_from_slice(&last.id);
            out.extend_from_slice(&last.begun_secs.to_be_bytes());
            for number in [last.took_ms, last.sent_bytes, last.files_read, last.bytes_read] {
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Option<BackupRecord> {
        let (to, password_file, keep) = (text(from)?, text(from)?, text(from)?.parse().ok()?);
        let (every_secs, since_secs, pruned_secs) = (from.u32()?, from.u64()? as i64, from.u64()? as i64);
        let last = match from.take()? {
            [0] => None,
            [1] => Some(LastBackup {
                snapshot: text(from)?,
                id: from.take()?,
                begun_secs: from.u64()? as i64,
                took_ms: from.u64()?,
                sent_bytes: from.u64()?,
                files_read: from.u64()?,
                bytes_read: from.u64()?,
            }),
            _ => return None,
        };
        Some(BackupRecord { to, password_file, every_secs, keep, since_secs, pruned_secs, last })
    }
}
