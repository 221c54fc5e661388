//! Where volumes are backed up to: the stored form.

use crate::format::inode::{Reader, put_short_text};
use crate::format::schedule::Keep;
use crate::format::stored::Stored;
use leeward_fs::{Error, Result};
use leeward_meta::Value;
use std::fmt;
use std::str::FromStr;

const VERSION: u8 = 2;
/// Had nothing of tests.
const VERSION_WITHOUT_TESTS: u8 = 1;
/// How often backups of that version are tested.
const TEST_EVERY_SECS: u32 = 30 * 86_400;
/// Most places of a volume.
pub const BACKUPS_MAX: usize = 8;

/// The places that a volume is backed up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupsRecord(pub Vec<BackupRecord>);

/// Which backups are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptBackups {
    /// All: for a place where nothing can be removed.
    All,
    /// The newest of some hours, days, weeks, months and years.
    Newest(Keep),
}

impl FromStr for KeptBackups {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<KeptBackups, String> {
        match text {
            "all" => Ok(KeptBackups::All),
            _ => text.parse().map(KeptBackups::Newest).map_err(|why: String| format!("{why}, or all")),
        }
    }
}

impl fmt::Display for KeptBackups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeptBackups::All => f.write_str("all"),
            KeptBackups::Newest(keep) => keep.fmt(f),
        }
    }
}

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
    pub keep: KeptBackups,
    /// When it was made, seconds since 1970.
    pub since_secs: i64,
    /// When what nothing refers to was removed from the repository, seconds since 1970; 0: never.
    pub pruned_secs: i64,
    /// The last backup that came to its end.
    pub last: Option<LastBackup>,
    /// Seconds from one test to the next; 0: only when asked.
    pub test_every_secs: u32,
    /// The last test that came to its end.
    pub tested: Option<LastTest>,
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

/// What came of a test: a backup was read back, and compared with the snapshot that it was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastTest {
    /// The id of the backup's snapshot in the repository.
    pub id: [u8; 32],
    /// When it ended, seconds since 1970.
    pub at_secs: i64,
    /// Names whose attributes were compared.
    pub names: u64,
    /// Files whose content was.
    pub files: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Whether that was all, and no sample.
    pub is_whole: bool,
    /// How much differs.
    pub difference_count: u64,
    /// Some of that, in words.
    pub differences: Vec<String>,
}

impl Stored for BackupsRecord {
    /// The encoding: version, number u8, and of each: length u16 and text of the place, of the path
    /// of the password file, of what is kept; interval u32, since i64, pruned i64, whether there is
    /// a last one u8, and with that its snapshot (length u16, text), id (32 bytes), begun i64,
    /// duration u64, bytes stored, files read, bytes read u64. Since version 2 then: interval of
    /// tests u32, whether there was one u8, and with that its id (32 bytes), end i64, names, files,
    /// bytes u64, whether that was all u8, differences u64, number of those in words u8, and each
    /// (length u16, text).
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
            [version @ (VERSION | VERSION_WITHOUT_TESTS), count] => {
                (0..count).map(|_| BackupRecord::decode(from, version)).collect()
            }
            _ => None,
        };
        let all: Vec<BackupRecord> = read(&mut from).ok_or_else(damaged)?;
        if from.0.is_empty() { Ok(BackupsRecord(all)) } else { Err(damaged()) }
    }
}

impl BackupRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        put_short_text(out, &self.to);
        put_short_text(out, &self.password_file);
        put_short_text(out, &self.keep.to_string());
        out.extend_from_slice(&self.every_secs.to_be_bytes());
        out.extend_from_slice(&self.since_secs.to_be_bytes());
        out.extend_from_slice(&self.pruned_secs.to_be_bytes());
        out.push(u8::from(self.last.is_some()));
        if let Some(last) = &self.last {
            put_short_text(out, &last.snapshot);
            out.extend_from_slice(&last.id);
            out.extend_from_slice(&last.begun_secs.to_be_bytes());
            for number in [last.took_ms, last.sent_bytes, last.files_read, last.bytes_read] {
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
        out.extend_from_slice(&self.test_every_secs.to_be_bytes());
        out.push(u8::from(self.tested.is_some()));
        if let Some(tested) = &self.tested {
            tested.encode(out);
        }
    }

    fn decode(from: &mut Reader<'_>, version: u8) -> Option<BackupRecord> {
        let (to, password_file, keep) =
            (from.short_text()?, from.short_text()?, from.short_text()?.parse().ok()?);
        let (every_secs, since_secs, pruned_secs) = (from.u32()?, from.u64()? as i64, from.u64()? as i64);
        let last = if from.flag()? { Some(LastBackup::decode(from)?) } else { None };
        let mut record = BackupRecord {
            to,
            password_file,
            every_secs,
            keep,
            since_secs,
            pruned_secs,
            last,
            test_every_secs: TEST_EVERY_SECS,
            tested: None,
        };
        if version != VERSION_WITHOUT_TESTS {
            record.test_every_secs = from.u32()?;
            record.tested = if from.flag()? { Some(LastTest::decode(from)?) } else { None };
        }
        Some(record)
    }
}

impl LastBackup {
    fn decode(from: &mut Reader<'_>) -> Option<LastBackup> {
        Some(LastBackup {
            snapshot: from.short_text()?,
            id: from.take()?,
            begun_secs: from.u64()? as i64,
            took_ms: from.u64()?,
            sent_bytes: from.u64()?,
            files_read: from.u64()?,
            bytes_read: from.u64()?,
        })
    }
}

impl LastTest {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.at_secs.to_be_bytes());
        for number in [self.names, self.files, self.bytes] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.push(u8::from(self.is_whole));
        out.extend_from_slice(&self.difference_count.to_be_bytes());
        out.push(self.differences.len() as u8);
        self.differences.iter().for_each(|how| put_short_text(out, how));
    }

    fn decode(from: &mut Reader<'_>) -> Option<LastTest> {
        Some(LastTest {
            id: from.take()?,
            at_secs: from.u64()? as i64,
            names: from.u64()?,
            files: from.u64()?,
            bytes: from.u64()?,
            is_whole: from.flag()?,
            difference_count: from.u64()?,
            differences: {
                let [count] = from.take()?;
                (0..count).map(|_| from.short_text()).collect::<Option<_>>()?
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> BackupsRecord {
        let last = LastBackup {
            snapshot: "backup-1".into(),
            id: [7; 32],
            begun_secs: 1,
            took_ms: 2,
            sent_bytes: 3,
            files_read: 4,
            bytes_read: 5,
        };
        let tested = LastTest {
            id: [8; 32],
            at_secs: 6,
            names: 7,
            files: 8,
            bytes: 9,
            is_whole: true,
            difference_count: 2,
            differences: vec!["/a: is missing".into(), "/b: is another".into()],
        };
        let untested = BackupRecord {
            to: "/vault".into(),
            password_file: "/password".into(),
            every_secs: 86_400,
            keep: "7d".parse().expect("what is kept"),
            since_secs: 10,
            pruned_secs: 11,
            last: None,
            test_every_secs: TEST_EVERY_SECS,
            tested: None,
        };
        let other = BackupRecord { last: Some(last), tested: Some(tested), ..untested.clone() };
        BackupsRecord(vec![untested, other])
    }

    #[test]
    fn what_is_kept_is_all_or_the_newest() {
        for text in ["all", "7d5w6m"] {
            assert_eq!(text.parse::<KeptBackups>().map(|keep| keep.to_string()), Ok(text.to_string()));
        }
        for text in ["", "All", "all7d", "0d"] {
            let why = text.parse::<KeptBackups>().expect_err(text);
            assert!(why.ends_with(", or all"), "{why}");
        }
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let bytes = record().encode();
        assert_eq!(BackupsRecord::decode(&bytes), Ok(record()));
        (0..bytes.len()).for_each(|len| assert!(BackupsRecord::decode(&bytes[..len]).is_err(), "{len}"));
    }

    #[test]
    fn backups_from_before_there_were_tests_are_tested() {
        let new = BackupsRecord(vec![record().0.remove(0)]);
        let mut old = new.encode().to_vec();
        old[0] = VERSION_WITHOUT_TESTS;
        old.truncate(old.len() - 5);
        assert_eq!(BackupsRecord::decode(&old), Ok(new));
    }
}
