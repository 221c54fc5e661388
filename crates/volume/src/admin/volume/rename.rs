//! Gives a volume another name.

use super::{VolumeInfo, check_volume_name, is_taken};
use crate::admin::bucket::{publish_volume, unpublish_volume};
use crate::admin::failure::about;
use crate::admin::project::begins_with_project;
use crate::admin::{Caller, Concerns, Failure, Request};
use crate::shard::Shard;
use crate::tx::Tx;
use leeward_env::Ctx;
use leeward_fs::NodeId;
use serde::{Deserialize, Serialize};

/// Gives a volume another name. It stays attached where it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeRename {
    /// Its name.
    pub name: String,
    /// The new name.
    pub to: String,
}

impl Request for VolumeRename {
    type Reply = VolumeInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.name)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let (name, to) = (&self.name, &self.to);
        let id = shard.volume_named(name)?;
        check_volume_name(to)?;
        let _alone = shard.naming().lock();
        if shard.named_in_cell(to).is_some_and(|other| other != id) {
            return Err(is_taken(to));
        }
        let path = shard.path_of(NodeId::new(id, 1));
        let renamed = shard.transact(&Ctx::system(), |tx| {
            if caller.ctx.delegate.is_some() {
                let project = tx.st.projects.of_volume(id);
                if let Err(refused) = begins_with_project(tx.st, project, to) {
                    return Ok(Err(refused));
                }
            }
            if tx.st.volume_named(to).is_some_and(|other| other != id) {
                return Ok(Err(is_taken(to)));
            }
            if let (0, Some(path)) = (tx.st.which.index, &path) {
                republish(tx, (name, to), path);
            }
            tx.st.volumes.rename(id, to);
            tx.st.volumes_dirty.insert(id);
            Ok(Ok(()))
        });
        renamed.map_err(about(name))??;
        shard.settle()?;
        if let Some(path) = &path {
            shard.change_buckets_beside(|tx| republish(tx, (name, to), path)).map_err(about(name))?;
        }
        shard.volume_info(id)
    }
}

/// A volume that is a bucket has another name.
fn republish(tx: &mut Tx<'_>, (name, to): (&str, &str), path: &str) {
    if unpublish_volume(tx, name, path) {
        publish_volume(tx, to, path);
    }
}
