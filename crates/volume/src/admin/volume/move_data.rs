//! Moves the data of a volume to another pool.

use super::VolumeInfo;
use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Failure, Progress, Request};
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_fs::Error;
use serde::{Deserialize, Serialize};

/// Writes the new data of a volume to this pool from now on, and moves the old data there in the
/// background.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeMoveData {
    /// The volume's name.
    pub name: String,
    /// The pool.
    pub to: String,
    /// Whether to wait until all data is there, with progress.
    pub wait: bool,
}

impl Request for VolumeMoveData {
    type Reply = VolumeInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.name)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let (name, to) = (&self.name, &self.to);
        let (volume, pool) = (shard.volume_named(name)?, shard.data_pool_named(to)?);
        {
            let mut st = shard.lock();
            let v = st.volumes.get_mut(&volume).ok_or(Error::Stale).map_err(about(name))?;
            v.properties.pool = pool;
            v.properties.dir_pools.clear();
            st.volumes_dirty.insert(volume);
            st.moves.recheck();
        }
        shard.settle()?;
        shard.maintenance.wake();
        if self.wait {
            let what = format_args!(
                "data of volume {name} is still in other pools, and goes on to be moved to {to}"
            );
            move_all(shard, volume, caller.progress).map_err(about(what))?;
        }
        shard.volume_info(volume)
    }
}

/// Moves until all data of a volume is in its pool, except damaged segments.
fn move_all(shard: &Shard, volume: u32, progress: &mut dyn FnMut(Progress)) -> leeward_fs::Result<()> {
    let ctx = Ctx::system();
    // data in memory may be on its way to the old pool
    shard.sync_all(&ctx)?;
    let mut total = 0;
    loop {
        let busy = {
            let _alone = shard.alone();
            shard.move_step()?
        };
        let left = shard.lock().misplaced(volume);
        total = total.max(left.bytes);
        progress(Progress { phase: "moving bytes".into(), done: total - left.bytes, total });
        if !busy && left.segments <= left.stuck {
            break;
        }
    }
    shard.commit_now(&ctx)
}
