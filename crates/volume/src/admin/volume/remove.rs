//! Removes a volume with all that it holds.

use crate::admin::bucket::unpublish_volume;
use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Done, Failure, Request};
use crate::format::inode::{SnapshotRecord, Stats, VolumeRecord};
use crate::format::keys;
use crate::shard::Shard;
use crate::state::{Effect, State};
use crate::tx::{Tx, TxResult};
use leeward_env::{Ctx, dates};
use leeward_fs::NodeId;
use serde::{Deserialize, Serialize};

/// Removes a volume. It is detached at once and freed in the background.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeRemove {
    /// Its name.
    pub name: String,
}

impl Request for VolumeRemove {
    type Reply = Done;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.name)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        let name = &self.name;
        let _alone = shard.naming().lock();
        let id = shard.volume_named(name)?;
        let busy = |message: String| Err(Failure::new(libc::EBUSY, message));
        if id == 0 {
            return busy("the root volume cannot be removed: it holds the others".into());
        }
        if let Some(inside) = shard.attached_in(id) {
            return busy(format!("volume {inside} is attached inside {name}: remove it first"));
        }
        let place = shard.lock().projects.places_in(id).next();
        if let Some(project) = place.and_then(|place| shard.project_at(place)) {
            return busy(format!(
                "the place of project {project} is in {name}: remove that first, or move it"
            ));
        }
        let v = shard.lock().volumes[&id].clone();
        let path = shard.path_of(NodeId::new(id, 1));
        let clock = shard.lock_clock();
        shard.check_every_operation();
        let _recalling = shard.recall_volume(id);
        let is_beside = !shard.which.has(v.attached_dir);
        if is_beside && first_locked(&shard.lock(), id, clock).is_none() {
            shard.detach_beside(id, &v)?;
        }
        let removed = shard.transact(&Ctx::system(), |tx| detach(tx, id, &v, path.as_deref(), clock));
        if let Err(locked) = removed.map_err(about(name))? {
            if is_beside {
                shard.complete_names();
            }
            return Err(Failure::new(
                libc::EPERM,
                format!(
                    "volume {name} cannot be removed: its snapshot {} of {} is locked until {}",
                    String::from_utf8_lossy(&locked.name),
                    shard.describe(NodeId::new(id, locked.dir)),
                    dates::minute(locked.locked_until_secs)
                ),
            ));
        }
        shard.settle()?;
        if let Some(path) = &path {
            let unpublish = |tx: &mut Tx<'_>| _ = unpublish_volume(tx, name, path);
            shard.change_buckets_beside(unpublish).map_err(about(name))?;
        }
        shard.invalidate_entry(v.attached_dir, &v.attached_name);
        shard.invalidate_inode(v.attached_dir);
        shard.maintenance.wake();
        Ok(Done {})
    }
}

/// A snapshot of a volume that is still locked at `clock`.
fn first_locked(st: &State, id: u32, clock: i64) -> Option<SnapshotRecord> {
    st.snapshots.of_volume(id).map(|(_, s)| s).find(|s| s.locked_until_secs > clock).cloned()
}

/// Takes a volume out of the tree, with its quotas, schedules and bucket. The inner error is a
/// snapshot that is still locked at `clock`.
fn detach(
    tx: &mut Tx<'_>,
    id: u32,
    v: &VolumeRecord,
    path: Option<&str>,
    clock: i64,
) -> TxResult<Result<(), SnapshotRecord>> {
    if let Some(locked) = first_locked(tx.st, id, clock) {
        return Ok(Err(locked));
    }
    if tx.st.which.has(v.attached_dir) {
        tx.detach(id, v.attached_dir, &v.attached_name)?;
    }
    let quotas: Vec<NodeId> = tx.st.quotas.of_dirs_in(id).collect();
    for dir in quotas {
        tx.remove(keys::quota(dir));
        tx.then(Effect::DropQuota(dir));
    }
    let schedules: Vec<NodeId> =
        tx.st.schedules.iter().map(|(d, ..)| d).filter(|d| d.volume() == id).collect();
    schedules.into_iter().for_each(|dir| tx.drop_schedule(dir));
    tx.drop_backups(id);
    if tx.st.mirrors.contains_key(&id) {
        tx.remove(keys::mirrors(id));
    }
    tx.put_project_of(id, None, Stats::default());
    if let Some(path) = path {
        unpublish_volume(tx, &v.name, path);
    }
    tx.then(Effect::Detach(id));
    Ok(Ok(()))
}
