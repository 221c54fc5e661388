//! One run of a backup: a snapshot is taken and stored, and older ones are removed.
//!
//! The snapshot that the last backup shows stays in the cell until the next backup is made: what
//! differs from it is known without a walk. If it is gone every directory is listed, and files are
//! taken over that look as before.

use super::repositories::{self, refusal};
use super::source::SnapshotSource;
use super::{SECOND, Shared, Watched, id_of, wait_since};
use crate::control::server::failure;
use crate::{size, system};
use leeward_env::{dates, hex};
use leeward_restic::archive;
use leeward_restic::compare::{Limit, compare};
use leeward_restic::lock::Lock;
use leeward_restic::prune;
use leeward_restic::repository::{Lost, Repository};
use leeward_restic::saver::Saver;
use leeward_restic::snapshot::Snapshot;
use leeward_restic::tree::Moment;
use leeward_restic::{Error, ErrorKind, Id};
use leeward_volume::admin::{
    BackupInfo, BackupMade, BackupNote, BackupTested, Failure, SnapCreate, SnapInfo, SnapList, SnapRemove,
    VolumeShow,
};
use leeward_volume::format::backups::KeptBackups;
use leeward_volume::format::schedule::expired;
use std::sync::Arc;

/// Names of snapshots that backups take begin with this.
const PREFIX: &str = "backup-";
/// Words of tags: which volume of which cell, and which of its snapshots.
pub(super) const VOLUME: &str = "lee-volume";
const SNAPSHOT: &str = "lee-snapshot";
/// What nothing refers to is removed after this time.
const PRUNE_SECS: u32 = 7 * dates::DAY_SECS as u32;

/// A test compares about so much: all of a small volume, a random sample of a large one.
const TESTED: Limit = Limit { names: 50_000, bytes: 1 << 30 };

/// The beginning of the names of a backup's snapshots: each has its own.
fn prefix(backup: &BackupInfo) -> String {
    let hash =
        backup.to.bytes().fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
    format!("{PREFIX}{hash:08x}-")
}

/// Why nothing was stored.
enum Unstored {
    Repository(Error),
    Cell(Failure),
}

impl From<Error> for Unstored {
    fn from(e: Error) -> Unstored {
        Unstored::Repository(e)
    }
}

impl From<Failure> for Unstored {
    fn from(failure: Failure) -> Unstored {
        Unstored::Cell(failure)
    }
}

impl From<Unstored> for Failure {
    fn from(why: Unstored) -> Failure {
        match why {
            Unstored::Repository(e) => refusal(&e),
            Unstored::Cell(failure) => failure,
        }
    }
}

impl Shared {
    /// Makes a backup. Returns what could not be done besides.
    pub(super) fn run(
        self: &Arc<Shared>,
        backup: &BackupInfo,
        (prune, all): (bool, bool),
    ) -> Result<Option<String>, Failure> {
        let repository = repositories::open(&self.env, &backup.to, &backup.password_file)?;
        let mut stored = self.take_and_store(backup, &repository, all);
        if let (true, Err(e), Some(last)) = (prune, &stored, &backup.last)
            && e.errno == libc::ENOSPC
        {
            self.forget(backup, &repository, &last.snapshot, true)?;
            stored = self.take_and_store(backup, &repository, all);
        }
        let (kept, mut notes) = stored?;
        self.remove_snapshots(backup, Some(&kept))?;
        notes.extend(self.forget(backup, &repository, &kept.name, prune)?);
        Ok(Some(notes.join("; ")).filter(|text| !text.is_empty()))
    }

    /// Takes a snapshot and stores it. Returns it, and what somebody is to know.
    fn take_and_store(
        self: &Arc<Shared>,
        backup: &BackupInfo,
        repository: &Arc<Repository>,
        all: bool,
    ) -> Result<(SnapInfo, Vec<String>), Failure> {
        let begun = self.env.now();
        let at = self.cell.admin(&VolumeShow { name: backup.volume.clone() }, &mut |_| ())?.at;
        let holder = repositories::holder(format!("lee-{}", backup.volume));
        let lock = Lock::take(repository, &holder, false).map_err(|e| refusal(&e))?;
        let taken = self.take(backup, &at)?;
        let stored = self.store_all_if_damaged(backup, (repository, &lock), &taken, begun, all);
        if stored.is_err() {
            // the next run takes another one
            let name = taken.name.clone();
            ignore_missing(self.cell.admin(&SnapRemove { path: at, name }, &mut |_| ()))?;
        }
        Ok((taken, stored?))
    }

    fn snapshots(&self, at: &str) -> Result<Vec<SnapInfo>, Failure> {
        let list = self.cell.admin(&SnapList { path: Some(at.into()), volume: None }, &mut |_| ())?;
        Ok(list.snapshots.into_iter().filter(|snap| snap.path == at).collect())
    }

    /// Removes the backup's snapshots in the cell but one.
    pub(super) fn remove_snapshots(
        &self,
        backup: &BackupInfo,
        kept: Option<&SnapInfo>,
    ) -> Result<(), Failure> {
        let at = self.cell.admin(&VolumeShow { name: backup.volume.clone() }, &mut |_| ())?.at;
        let prefix = prefix(backup);
        for snap in self.snapshots(&at)? {
            if snap.name.starts_with(&prefix) && kept.is_none_or(|kept| kept.name != snap.name) {
                ignore_missing(
                    self.cell.admin(&SnapRemove { path: at.clone(), name: snap.name }, &mut |_| ()),
                )?;
            }
        }
        Ok(())
    }

    fn take(&self, backup: &BackupInfo, at: &str) -> Result<SnapInfo, Failure> {
        let wall = self.env.wall();
        let second = dates::second((wall / SECOND) as i64);
        let name =
            format!("{}{}.{:03}Z", prefix(backup), second.trim_end_matches('Z'), wall / 1_000_000 % 1000);
        self.cell.admin(&SnapCreate { path: at.into(), name }, &mut |_| ())
    }

    /// What tells the volume's backups from others in the repository.
    fn lineage(&self, backup: &BackupInfo, snapshot: &str) -> Result<String, Failure> {
        let reader = self.cell.read_snapshot(&backup.volume, snapshot)?;
        let born = reader.inode(archive::ROOT).ok().flatten().map(|inode| inode.attr.btime);
        let born =
            born.ok_or_else(|| failure(libc::EIO, "the root of the volume cannot be read: run lee fsck"))?;
        let text = format!("{} {} {}", backup.volume_number, born.secs, born.nanos);
        Ok(hex::encode(&Id::of(text.as_bytes()).0[..8]))
    }

    /// What is damaged in older backups is stored again.
    fn store_all_if_damaged(
        &self,
        backup: &BackupInfo,
        to: (&Arc<Repository>, &Lock),
        taken: &SnapInfo,
        begun: u64,
        all: bool,
    ) -> Result<Vec<String>, Failure> {
        match self.store(backup, to, taken, begun, all) {
            Err(Unstored::Repository(e)) if e.kind == ErrorKind::Damaged && !all => {
                tracing::warn!("{e}; now all of volume {} is read and stored", backup.volume);
                self.store(backup, to, taken, begun, true)
            }
            stored => stored,
        }
        .map_err(Failure::from)
    }

    /// `all`: nothing of older backups is believed but that packs which are there have what an
    /// index says. Returns what somebody is to know.
    fn store(
        &self,
        backup: &BackupInfo,
        (repository, lock): (&Arc<Repository>, &Lock),
        taken: &SnapInfo,
        begun: u64,
        all: bool,
    ) -> Result<Vec<String>, Unstored> {
        let lost = repository.load_index_of_what_is_there()?;
        let all = all || !lost.is_empty();
        let lineage = self.lineage(backup, &taken.name)?;
        let begun_secs = self.wall_secs();
        let last = newest(repository, &lineage, taken.time_secs)?;
        // one that another program has changed need not show what the snapshot in the cell does
        let known = last.as_ref().filter(|(_, snapshot)| snapshot.original.is_none() && !all);
        let before = known.and_then(|(_, snapshot)| snapshot.tag(SNAPSHOT));
        let before = before.and_then(|name| self.cell.read_snapshot(&backup.volume, name).ok());
        let now = self.cell.read_snapshot(&backup.volume, &taken.name)?;
        let source = SnapshotSource::new(now, before)?;
        let watch = Watched { of: self, id: id_of(backup) };
        let mut saver = Saver::new(repository)?.under(lock);
        let what = (&source as &dyn archive::Source, backup.volume.as_bytes(), device(backup));
        let older = last.as_ref().filter(|_| !all).map(|(_, snapshot)| &snapshot.tree);
        let (tree, done) = archive::store(what, older, &mut saver, repository, &watch)?;
        let sent_bytes = saver.finish()?;
        lock.need()?;
        let snapshot = Snapshot {
            time: Moment { secs: taken.time_secs, nanos: 0 },
            parent: last.as_ref().map(|(id, _)| *id),
            tree,
            paths: vec![format!("/{}", backup.volume)],
            hostname: system::host(),
            username: "leeward".into(),
            tags: vec![format!("{VOLUME}={lineage}"), format!("{SNAPSHOT}={}", taken.name)],
            original: None,
            program_version: concat!("leeward ", env!("CARGO_PKG_VERSION")).into(),
        };
        let id = repository.add_snapshot(&snapshot)?;
        tracing::info!(
            "backed up volume {} to {}: snapshot {}, {} directories written and {} kept, {} files read, {sent_bytes} bytes stored",
            backup.volume,
            backup.to,
            id.short(),
            done.dirs,
            done.dirs_kept,
            done.files_read
        );
        let last = BackupMade {
            snapshot: taken.name.clone(),
            id: id.to_string(),
            begun_secs,
            took_ms: (self.env.now() - begun) / 1_000_000,
            sent_bytes,
            files_read: done.files_read,
            bytes_read: done.bytes_read,
        };
        let (volume, to) = id_of(backup);
        self.cell
            .admin(&BackupNote { volume, to, last: Some(last), ..BackupNote::default() }, &mut |_| ())?;
        Ok(notes(backup, &done, &lost))
    }

    /// Compares what the last backup gives back with its snapshot in the cell.
    pub(super) fn test(&self, backup: &BackupInfo) -> Result<(), Failure> {
        let none = |why: &str| {
            let message = format!("the backup of volume {} to {}: {why}", backup.volume, backup.to);
            failure(libc::ENOENT, &message)
        };
        let last = backup.last.as_ref().ok_or_else(|| none("there is none yet: lee backup run"))?;
        let repository = repositories::open(&self.env, &backup.to, &backup.password_file)?;
        let holder = repositories::holder(format!("lee-{}", backup.volume));
        let _lock = Lock::take(&repository, &holder, false).map_err(|e| refusal(&e))?;
        repository.load_index_of_what_is_there().map_err(|e| refusal(&e))?;
        let (all, _) = repository.readable_snapshots().map_err(|e| refusal(&e))?;
        let found = all.into_iter().find(|(id, _)| id.to_string() == last.id);
        let (_, shown) =
            found.ok_or_else(|| none("the last one is not in the repository any more: lee backup run"))?;
        let reader = self.cell.read_snapshot(&backup.volume, &last.snapshot)?;
        let source = SnapshotSource::new(reader, None).map_err(|e| refusal(&e))?;
        let watch = Watched { of: self, id: id_of(backup) };
        let found = compare(&repository, &shown.tree, &source, TESTED, &watch).map_err(|e| refusal(&e))?;
        let tested = Some(BackupTested {
            id: last.id.clone(),
            at_secs: self.wall_secs(),
            names: found.names,
            files: found.files,
            bytes: found.bytes,
            is_whole: found.is_whole,
            difference_count: found.difference_count,
            differences: found.differences,
        });
        let (volume, to) = id_of(backup);
        self.cell.admin(&BackupNote { volume, to, tested, ..BackupNote::default() }, &mut |_| ())?;
        Ok(())
    }

    /// Removes backups from the repository that are not kept, and now and then what nothing refers
    /// to. Others who work there are not waited for.
    fn forget(
        &self,
        backup: &BackupInfo,
        repository: &Arc<Repository>,
        snapshot: &str,
        prune: bool,
    ) -> Result<Option<String>, Failure> {
        let now = self.wall_secs();
        let lineage = self.lineage(backup, snapshot)?;
        // what it is to keep may have been changed meanwhile
        let backup = &self.still(backup)?;
        let keep: KeptBackups = backup.keep.parse().map_err(|why: String| failure(libc::EINVAL, &why))?;
        if keep == KeptBackups::All && !prune {
            return Ok(None); // it may be a place where nothing can be removed
        }
        let own = own(repository, &lineage).map_err(|e| refusal(&e))?;
        let times: Vec<i64> = own.iter().map(|(_, snapshot)| snapshot.time.secs).collect();
        let old = match keep {
            KeptBackups::All => Vec::new(),
            KeptBackups::Newest(keep) => expired(&times, now, keep),
        };
        let gone: Vec<Id> =
            own.iter().filter(|(_, s)| old.contains(&s.time.secs)).map(|(id, _)| *id).collect();
        let pruned_secs = if backup.pruned_secs > 0 { backup.pruned_secs } else { backup.since_secs };
        let due = prune || wait_since(pruned_secs, PRUNE_SECS, now) > 0;
        if gone.is_empty() && !due {
            return Ok(None);
        }
        let holder = repositories::holder(format!("lee-{}", backup.volume));
        let lock = match Lock::take(repository, &holder, true) {
            Ok(lock) => lock,
            Err(e) if e.kind == ErrorKind::Locked && !prune => {
                return Ok(Some(format!("old backups stay until the next run: {e}")));
            }
            Err(e) => return Err(refusal(&e)),
        };
        gone.iter().try_for_each(|id| repository.remove_snapshot(id)).map_err(|e| {
            let mut refused = refusal(&e);
            refused.message +=
                ": the backup was made; if nothing can be removed there, add it again with --keep all";
            refused
        })?;
        if due {
            let watch = Watched { of: self, id: id_of(backup) };
            prune::prune(repository, &lock, &watch).map_err(|e| refusal(&e))?;
            let (volume, to) = id_of(backup);
            self.cell.admin(
                &BackupNote { volume, to, pruned_secs: Some(now), ..BackupNote::default() },
                &mut |_| (),
            )?;
        }
        Ok(None)
    }
}

/// What somebody is to know of a backup that was made.
fn notes(backup: &BackupInfo, done: &archive::Summary, lost: &Lost) -> Vec<String> {
    let mut notes = Vec::new();
    if done.files_left_out > 0 {
        let files = size::counted(done.files_left_out, "file", "files");
        notes.push(format!("{files} too long to be stored: see the log of the process that serves the cell"));
    }
    if !lost.is_empty() {
        notes.push(format!(
            "{} has lost {} and {} of its index: what this backup needs was stored again, what older ones lack lee \
             backup check says",
            backup.to,
            size::counted(lost.packs as u64, "pack", "packs"),
            size::counted(lost.damaged.len() as u64, "file", "files"),
        ));
    }
    notes
}

/// The file system that inode numbers are of.
fn device(backup: &BackupInfo) -> u64 {
    u64::from(backup.volume_number) + 1
}

/// The volume's snapshots in a repository, oldest first.
fn own(repository: &Repository, lineage: &str) -> leeward_restic::Result<Vec<(Id, Snapshot)>> {
    let (all, _) = repository.readable_snapshots()?;
    Ok(all.into_iter().filter(|(_, snapshot)| snapshot.tag(VOLUME) == Some(lineage)).collect())
}

/// The newest one by now, or else the first one that a clock which was ahead has dated: another one
/// that comes after it is not in its shadow.
fn newest(
    repository: &Repository,
    lineage: &str,
    now: i64,
) -> leeward_restic::Result<Option<(Id, Snapshot)>> {
    let mut own = own(repository, lineage)?;
    let past = own.partition_point(|(_, snapshot)| snapshot.time.secs <= now);
    own.truncate(past.max(1));
    Ok(own.pop())
}

fn ignore_missing<T>(done: Result<T, Failure>) -> Result<(), Failure> {
    match done {
        Err(e) if e.errno != libc::ENOENT => Err(e),
        _ => Ok(()),
    }
}
