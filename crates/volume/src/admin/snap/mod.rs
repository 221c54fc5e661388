//! Requests about snapshots, a file for each, and what they share. A request needs the same rights
//! as the operation on the directory of snapshots that does the same.

mod changes;
mod create;
mod diff;
mod list;
mod lock;
mod receive;
mod remove;
mod rename;
mod restore;
mod send;

pub use changes::{Change, ChangeKind, PathText};
pub use create::SnapCreate;
pub use diff::{Diff, SnapDiff};
pub use list::{SnapInfos, SnapList, SnapUsage, SnapUsageList, SnapUsages};
pub use lock::{SnapLock, SnapUnlock};
pub use receive::{SnapReceive, VolumeDemote, VolumePromote};
pub use remove::SnapRemove;
pub use rename::SnapRename;
pub use restore::{Restored, SnapRestore};
pub use send::{DIFFERS, Pipe, SnapDigest, SnapDigested, SnapSend};

pub use crate::stream::{Header, OF_MIRRORS, SET_ASIDE, Sender, Sent, StreamPart, Streamed};

use crate::admin::failure::about;
use crate::admin::{Failure, Reply};
use crate::format::inode::SnapshotRecord;
use crate::shard::Shard;
use crate::state::snapshots::View;
use leeward_env::limits::SNAPSHOT_NAME_BYTES_MAX;
use leeward_env::{Ctx, dates};
use leeward_fs::{Error, NodeId};
use serde::{Deserialize, Serialize};

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapInfo {
    /// Name of the volume.
    pub volume: String,
    /// The directory that it shows, by its path of now.
    pub path: String,
    /// Name of the directory of snapshots there.
    #[serde(default)]
    pub snapshot_dir: String,
    /// Name.
    pub name: String,
    /// The epoch of the volume that it ended. Unique in the volume; later snapshots have higher
    /// ones.
    pub epoch: u32,
    /// When it was taken, seconds since 1970.
    pub time_secs: i64,
    /// And nanoseconds.
    #[serde(default)]
    pub time_nanos: u32,
    /// The user who took it.
    pub uid: u32,
    /// Nobody can remove it before this second since 1970; 0: it is not locked.
    pub locked_until_secs: i64,
    /// Bytes of data that only this snapshot holds.
    pub alone_bytes: u64,
    /// Records that only this snapshot holds.
    pub alone_records: u64,
    /// Whether somebody has files of it open, or works in it, where a copy shows it or has shown
    /// it.
    #[serde(default)]
    pub in_use: bool,
}

impl Reply for SnapInfo {
    const KIND: &'static str = "snap";
}

impl Shard {
    /// Makes a change of a snapshot durable with all that the snapshot contains.
    pub(super) fn settle_all(&self) -> Result<(), Failure> {
        self.sync_all(&Ctx::system()).map(drop).map_err(about("cannot be made durable"))
    }

    /// Why a request about a snapshot is refused, for a person.
    pub(super) fn snap_refusal(&self, ctx: &Ctx, e: Error, dir: NodeId, path: &str, name: &str) -> Failure {
        let volume = dir.volume();
        let text = match e {
            Error::Exists => format!("{path} has a snapshot {name} already: choose another name"),
            Error::NotFound => no_snapshot(path, name),
            Error::Invalid | Error::NameTooLong => format!(
                "{name:?} cannot be the name of a snapshot: up to {SNAPSHOT_NAME_BYTES_MAX} bytes without a slash, not beginning with _"
            ),
            Error::ReadOnly => {
                format!(
                    "volume {} is a copy: its snapshots come by lee snap receive",
                    self.volume_name(volume)
                )
            }
            Error::Busy => format!("{path} shows snapshot {name}: it goes when a newer one has come"),
            Error::NotDir => format!("{path} is not a directory: snapshots are taken of directories"),
            Error::TooManyLinks => format!(
                "volume {0} has as many snapshots as it may have: remove some, or raise snapshots-max with lee volume set {0}",
                self.volume_name(volume)
            ),
            Error::NotPermitted => self.why_not_permitted(ctx, dir, path, name),
            Error::Quota => format!(
                "snapshot {name} of {path}: its project is full, and counts what snapshots hold: remove some, or files"
            ),
            e => return about(format_args!("snapshot {name} of {path}"))(e),
        };
        Failure::new(e.errno(), text)
    }

    fn why_not_permitted(&self, ctx: &Ctx, dir: NodeId, path: &str, name: &str) -> String {
        let (gids, clock) = (ctx.groups(), self.lock_clock());
        if self.transact(ctx, |tx| tx.may_snapshot(dir.volume(), &gids)).is_err() {
            return format!(
                "only root, the owner of volume {0} and those whom it allows may do this: see lee volume allow {0} snapshot",
                self.volume_name(dir.volume())
            );
        }
        let locked = self
            .snapshot_record(dir, name.as_bytes())
            .map(|(_, s)| s.locked_until_secs)
            .filter(|t| *t > clock);
        match locked {
            Some(until) => format!(
                "snapshot {name} of {path} is locked until {}: before that nobody can remove it or shorten the lock",
                dates::minute(until)
            ),
            None => format!("{name} is a snapshot of a directory above {path}: name that directory"),
        }
    }

    /// The epoch and the record of a snapshot of this directory.
    pub(crate) fn snapshot_record(&self, dir: NodeId, name: &[u8]) -> Option<(u32, SnapshotRecord)> {
        let st = self.lock();
        let epoch = *st.snapshots.of_dir(dir.volume(), dir.inode())?.get(name)?;
        Some((epoch, st.snapshots.get(dir.volume(), epoch)?.clone()))
    }

    /// The directory at a path, and the epoch of the snapshot that its directory of snapshots shows
    /// under this name.
    fn snapshot_at(&self, path: &str, name: &str) -> Result<(NodeId, u32), Failure> {
        let dir = self.node_at(path)?;
        let epoch = self.transact(&Ctx::system(), |tx| tx.epoch_of(dir, name.as_bytes()));
        epoch.map(|epoch| (dir, epoch)).map_err(|e| Failure::new(e.errno(), no_snapshot(path, name)))
    }

    /// The reply about a snapshot of the directory at a path.
    fn snap_shown(&self, ctx: &Ctx, dir: NodeId, path: &str, name: &str) -> Result<SnapInfo, Failure> {
        let found = self.snapshot_record(dir, name.as_bytes());
        let (epoch, record) =
            found.ok_or_else(|| self.snap_refusal(ctx, Error::NotFound, dir, path, name))?;
        Ok(self.snap_info(dir, path.into(), epoch, &record))
    }

    fn snap_info(&self, dir: NodeId, path: String, epoch: u32, record: &SnapshotRecord) -> SnapInfo {
        let volume = self.volume_name(dir.volume());
        let (alone, snapshot_dir, in_use) = {
            let st = self.lock();
            let shown = st.snapshots.known(View::Shown { volume: dir.volume(), epoch });
            let in_use = shown.is_some_and(|view| st.refs.has_of_volume(view));
            let properties = st.volumes.get(&dir.volume()).map(|volume| &volume.properties);
            let snapshot_dir = properties.map(|p| String::from_utf8_lossy(&p.snapshot_dir).into_owned());
            (st.snapshots.held_alone(dir.volume(), epoch), snapshot_dir.unwrap_or_default(), in_use)
        };
        SnapInfo {
            volume,
            path,
            snapshot_dir,
            name: String::from_utf8_lossy(&record.name).into_owned(),
            epoch,
            time_secs: record.time.secs,
            time_nanos: record.time.nanos,
            uid: record.uid,
            locked_until_secs: record.locked_until_secs,
            alone_bytes: alone.bytes.max(0) as u64,
            alone_records: alone.records.max(0) as u64,
            in_use,
        }
    }
}

fn no_snapshot(path: &str, name: &str) -> String {
    format!("{path} has no snapshot {name}: see lee snap list {path}")
}
