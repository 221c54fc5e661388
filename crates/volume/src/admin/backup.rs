//! Requests about backups: where volumes are backed up to. The process that serves the cell does
//! that.

use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Done, Failure, Reply, Request};
use crate::cell::Cell;
use crate::format::backups::{BACKUPS_MAX, BackupRecord, BackupsRecord, KeptBackups, LastBackup, LastTest};
use crate::format::keys;
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::snapshots::reader::SnapshotReader;
use crate::state::Effect;
use crate::tx::Tx;
use leeward_env::{Ctx, hex};
use serde::{Deserialize, Serialize};

/// Shortest interval.
const EVERY_SECS_MIN: u32 = 60;
const TEXT_BYTES_MAX: usize = 1024;
/// How much of what differs is kept in words, and how long a word.
const DIFFERENCES_MAX: usize = 8;
const DIFFERENCE_BYTES_MAX: usize = 512;

/// A place that a volume is backed up to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupInfo {
    /// The volume.
    pub volume: String,
    /// The repository: a URL of a bucket, or a path.
    pub to: String,
    /// The file that has its password. It is read at each run, and stored nowhere.
    pub password_file: String,
    /// Seconds from one backup to the next.
    pub every_secs: u32,
    /// Which backups are kept, such as `7d5w6m`, or `all`.
    pub keep: String,
    /// When it was made, seconds since 1970.
    #[serde(default)]
    pub since_secs: i64,
    /// When what nothing refers to was removed from the repository, seconds since 1970; 0: never.
    #[serde(default)]
    pub pruned_secs: i64,
    /// The last backup that came to its end.
    #[serde(default)]
    pub last: Option<BackupMade>,
    /// Seconds from one test to the next; 0: only when asked.
    #[serde(default)]
    pub test_every_secs: u32,
    /// What came of the last test.
    #[serde(default)]
    pub tested: Option<BackupTested>,
    /// Number of the volume.
    #[serde(default)]
    pub volume_number: u32,
    /// Whether the volume is a copy: nothing is backed up then.
    #[serde(default)]
    pub is_copy: bool,
}

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupMade {
    /// Name of the snapshot that it shows, here.
    pub snapshot: String,
    /// The id of its snapshot in the repository.
    pub id: String,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupTested {
    /// The id of the backup's snapshot in the repository.
    pub id: String,
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
    /// The first of that, in words.
    pub differences: Vec<String>,
}

impl Reply for BackupInfo {
    const KIND: &'static str = "backup";
}

/// Makes a backup, or changes the one of the same volume to the same place. What is known of the
/// last one stays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackupSet {
    /// What it is to be.
    pub backup: BackupInfo,
}

impl Request for BackupSet {
    type Reply = BackupInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.backup.volume)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<BackupInfo, Failure> {
        let record = record_of(&self.backup)?;
        shard.change_backups(&self.backup.volume, |all, now| {
            match all.iter_mut().find(|known| known.to == record.to) {
                Some(known) => {
                    let BackupRecord { since_secs, pruned_secs, .. } = *known;
                    let (last, tested) = (known.last.take(), known.tested.take());
                    *known = BackupRecord { since_secs, pruned_secs, last, tested, ..record.clone() };
                }
                None => all.push(BackupRecord { since_secs: now, ..record.clone() }),
            }
            if all.len() > BACKUPS_MAX {
                let message = format!("a volume is backed up to {BACKUPS_MAX} places at most: remove one");
                return Err(Failure::new(libc::EINVAL, message));
            }
            Ok(())
        })?;
        shard.backup(&self.backup.volume, &self.backup.to)
    }
}

fn record_of(backup: &BackupInfo) -> Result<BackupRecord, Failure> {
    let wrong = |why: String| Failure::new(libc::EINVAL, why);
    let keep: KeptBackups = backup.keep.parse().map_err(wrong)?;
    if backup.every_secs < EVERY_SECS_MIN {
        return Err(wrong(format!("an interval is {EVERY_SECS_MIN} s at least")));
    }
    if (1..EVERY_SECS_MIN).contains(&backup.test_every_secs) {
        return Err(wrong(format!("between tests are {EVERY_SECS_MIN} s at least")));
    }
    for (text, what) in [(&backup.to, "a place"), (&backup.password_file, "a file of a password")] {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(wrong(format!("name {what}, in 1 to {TEXT_BYTES_MAX} bytes")));
        }
    }
    Ok(BackupRecord {
        to: backup.to.clone(),
        password_file: backup.password_file.clone(),
        every_secs: backup.every_secs,
        keep,
        since_secs: 0,
        pruned_secs: 0,
        last: None,
        test_every_secs: backup.test_every_secs,
        tested: None,
    })
}

/// Notes what was done for a backup.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BackupNote {
    /// The volume.
    pub volume: String,
    /// The place.
    pub to: String,
    /// A backup that came to its end.
    pub last: Option<BackupMade>,
    /// When the repository was pruned, seconds since 1970.
    pub pruned_secs: Option<i64>,
    /// What came of a test.
    #[serde(default)]
    pub tested: Option<BackupTested>,
}

impl Request for BackupNote {
    type Reply = BackupInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.volume)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<BackupInfo, Failure> {
        let last = self.last.as_ref().map(last_of).transpose()?;
        let tested = self.tested.as_ref().map(tested_of).transpose()?;
        shard.change_backups(&self.volume, |all, _| {
            let known = all.iter_mut().find(|known| known.to == self.to);
            let known = known.ok_or_else(|| missing(&self.volume))?;
            known.last = last.clone().or(known.last.take());
            known.tested = tested.clone().or(known.tested.take());
            known.pruned_secs = self.pruned_secs.unwrap_or(known.pruned_secs);
            Ok(())
        })?;
        shard.backup(&self.volume, &self.to)
    }
}

fn last_of(made: &BackupMade) -> Result<LastBackup, Failure> {
    Ok(LastBackup {
        snapshot: made.snapshot.clone(),
        id: id_of(&made.id)?,
        begun_secs: made.begun_secs,
        took_ms: made.took_ms,
        sent_bytes: made.sent_bytes,
        files_read: made.files_read,
        bytes_read: made.bytes_read,
    })
}

fn tested_of(tested: &BackupTested) -> Result<LastTest, Failure> {
    let cut = |how: &String| how[..how.floor_char_boundary(DIFFERENCE_BYTES_MAX)].to_owned();
    Ok(LastTest {
        id: id_of(&tested.id)?,
        at_secs: tested.at_secs,
        names: tested.names,
        files: tested.files,
        bytes: tested.bytes,
        is_whole: tested.is_whole,
        difference_count: tested.difference_count,
        differences: tested.differences.iter().take(DIFFERENCES_MAX).map(cut).collect(),
    })
}

fn id_of(text: &str) -> Result<[u8; 32], Failure> {
    let id = hex::decode(text).and_then(|id| id.try_into().ok());
    id.ok_or_else(|| Failure::new(libc::EINVAL, format!("{text:?} is no id")))
}

fn missing(volume: &str) -> Failure {
    Failure::new(libc::ENOENT, format!("volume {volume} has no such backup: see lee backup list"))
}

/// Backs a volume up to a place no more. The repository stays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackupUnset {
    /// The volume.
    pub volume: String,
    /// The place.
    pub to: String,
}

impl Request for BackupUnset {
    type Reply = Done;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.volume)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        shard.change_backups(&self.volume, |all, _| {
            let before = all.len();
            all.retain(|known| known.to != self.to);
            if all.len() < before { Ok(()) } else { Err(missing(&self.volume)) }
        })?;
        Ok(Done {})
    }
}

/// Lists all backups.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackupList;

/// All backups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupInfos {
    /// By volume.
    pub backups: Vec<BackupInfo>,
}

impl Reply for BackupInfos {
    const KIND: &'static str = "backups";
}

impl Request for BackupList {
    type Reply = BackupInfos;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut BackupInfos, mut other: BackupInfos) {
        all.backups.append(&mut other.backups);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<BackupInfos, Failure> {
        Ok(BackupInfos { backups: shard.backups() })
    }
}

impl Tx<'_> {
    /// Removes the backups of a volume that is going away.
    pub(super) fn drop_backups(&mut self, volume: u32) {
        if self.st.backups.contains_key(&volume) {
            self.remove(keys::backups(volume));
            self.then(Effect::Backups(volume, BackupsRecord::default()));
        }
    }
}

impl Shard {
    /// Changes the backups of a volume; durable when this returns.
    fn change_backups(
        &self,
        volume: &str,
        change: impl Fn(&mut Vec<BackupRecord>, i64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let id = self.volume_named(volume)?;
        let changed = self.transact(&Ctx::system(), |tx| {
            let mut record = tx.st.backups.get(&id).cloned().unwrap_or_default();
            if let Err(failure) = change(&mut record.0, tx.now.secs) {
                return Ok(Err(failure));
            }
            if record.0.is_empty() {
                tx.remove(keys::backups(id));
            } else {
                tx.put(keys::backups(id), record.encode());
            }
            tx.then(Effect::Backups(id, record));
            Ok(Ok(()))
        });
        changed.map_err(about("the backups"))??;
        self.settle()
    }

    fn backup(&self, volume: &str, to: &str) -> Result<BackupInfo, Failure> {
        let found = self.backups().into_iter().find(|b| b.volume == volume && b.to == to);
        found.ok_or_else(|| missing(volume))
    }

    fn backups(&self) -> Vec<BackupInfo> {
        let st = self.lock();
        let volumes = st.volumes.iter().filter(|(_, v)| !v.removing);
        let of = volumes.flat_map(|(id, v)| {
            let records = st.backups.get(id).into_iter().flat_map(|all| &all.0);
            records.map(move |record| (*id, v, record))
        });
        let info = of.map(|(id, v, record)| BackupInfo {
            volume: v.name.clone(),
            to: record.to.clone(),
            password_file: record.password_file.clone(),
            every_secs: record.every_secs,
            keep: record.keep.to_string(),
            since_secs: record.since_secs,
            pruned_secs: record.pruned_secs,
            last: record.last.as_ref().map(|last| BackupMade {
                snapshot: last.snapshot.clone(),
                id: hex::encode(&last.id),
                begun_secs: last.begun_secs,
                took_ms: last.took_ms,
                sent_bytes: last.sent_bytes,
                files_read: last.files_read,
                bytes_read: last.bytes_read,
            }),
            test_every_secs: record.test_every_secs,
            tested: record.tested.as_ref().map(|tested| BackupTested {
                id: hex::encode(&tested.id),
                at_secs: tested.at_secs,
                names: tested.names,
                files: tested.files,
                bytes: tested.bytes,
                is_whole: tested.is_whole,
                difference_count: tested.difference_count,
                differences: tested.differences.clone(),
            }),
            volume_number: id,
            is_copy: v.properties.copy.is_some(),
        });
        info.collect()
    }
}

impl Cell {
    /// A snapshot of a volume's root directory, to read all of it.
    ///
    /// # Errors
    /// `ENOENT` when there is none of this name.
    pub fn read_snapshot(&self, volume: &str, name: &str) -> Result<SnapshotReader, Failure> {
        let shard = self.shard_of_named(volume);
        let number = shard.volume_named(volume)?;
        let (epoch, _) = shard.root_snapshot(number, name.as_bytes()).ok_or_else(|| {
            Failure::new(libc::ENOENT, format!("volume {volume} has no snapshot {name} of its root"))
        })?;
        let what = format!("snapshot {name} of volume {volume}");
        SnapshotReader::open(shard, number, epoch).map_err(about(what))
    }
}
