//! Changes properties of a volume.

use super::{VolumeInfo, is_copy};
use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Failure, Request};
use crate::ops::check_name;
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_fs::NodeId;
use serde::{Deserialize, Serialize};

/// Changes properties of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeSet {
    /// Its name.
    pub name: String,
    /// What changes.
    pub set: PropertyChanges,
}

/// New values of a volume's properties; `None`: as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyChanges {
    /// See [`VolumeInfo::snapshot_dir`].
    pub snapshot_dir: Option<String>,
    /// See [`VolumeInfo::snapshot_dir_visible`].
    pub snapshot_dir_visible: Option<bool>,
    /// See [`VolumeInfo::snapshots_max`].
    pub snapshots_max: Option<u32>,
    /// See [`VolumeInfo::quota_counts_snapshots`].
    pub quota_counts_snapshots: Option<bool>,
    /// See [`VolumeInfo::bin_days`].
    pub bin_days: Option<u16>,
    /// See [`VolumeInfo::audit_days`].
    #[serde(default)]
    pub audit_days: Option<u16>,
    /// See [`VolumeInfo::public`].
    #[serde(default)]
    pub public: Option<bool>,
}

impl Request for VolumeSet {
    type Reply = VolumeInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.name)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let (id, set) = (shard.volume_named(&self.name)?, &self.set);
        if set.bin_days.is_some() && shard.is_copy(id) {
            return Err(is_copy(shard, id));
        }
        if let Some(dir) = &set.snapshot_dir {
            check_snapshot_dir(shard, id, dir)?;
        }
        // which names directories show, and what becomes of removed files, is nothing that a
        // transaction changes
        let shows = set.snapshot_dir.is_some() || set.snapshot_dir_visible.is_some();
        let recalling = shows || set.bin_days.is_some();
        let _recalling = recalling.then(|| shard.recall_volume(id));
        let before = shard.lock().volumes.get(&id).map(|v| v.properties.snapshot_dir.clone());
        shard.change_properties(id, |p| {
            if let Some(dir) = &set.snapshot_dir {
                p.snapshot_dir = dir.as_bytes().into();
            }
            p.snapshot_dir_visible = set.snapshot_dir_visible.unwrap_or(p.snapshot_dir_visible);
            p.snapshots_max = set.snapshots_max.unwrap_or(p.snapshots_max);
            p.quota_counts_snapshots = set.quota_counts_snapshots.unwrap_or(p.quota_counts_snapshots);
            p.bin_days = set.bin_days.unwrap_or(p.bin_days);
            p.audit_days = set.audit_days.unwrap_or(p.audit_days);
            p.public = set.public.unwrap_or(p.public);
            Ok(())
        })?;
        shard.settle()?;
        // a recycle bin or an event log that is off, or keeps less, gives space back
        shard.lock().events.look_again(id, 0);
        shard.maintenance.wake();
        if let (Some(old), Some(new)) = (before, &set.snapshot_dir)
            && *old != *new.as_bytes()
        {
            tell_names(shard, id, &[&old, new.as_bytes()]);
        }
        shard.volume_info(id)
    }
}

fn check_snapshot_dir(shard: &Shard, id: u32, name: &str) -> Result<(), Failure> {
    check_name(name.as_bytes()).map_err(|_| {
        Failure::new(libc::EINVAL, format!("{name:?} cannot be the name of a directory of snapshots"))
    })?;
    let root = NodeId::new(id, 1);
    let taken = shard.transact(&Ctx::system(), |tx| tx.dentry(root, name.as_bytes()));
    if taken.map_err(about(name))?.is_none() {
        return Ok(());
    }
    let message =
        format!("the root of the volume has a file {name:?}, which would be hidden: choose another name");
    Err(Failure::new(libc::EEXIST, message))
}

/// Front ends forget what they know of these names in all directories of a volume.
fn tell_names(shard: &Shard, volume: u32, names: &[&[u8]]) {
    let known = shard.lock().refs.of_volume(volume);
    for node in known.into_iter().chain([NodeId::new(volume, 1)]) {
        names.iter().for_each(|name| shard.invalidate_entry(node, name));
    }
}
