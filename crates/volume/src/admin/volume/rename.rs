//! Gives a volume another name.

use super::{VolumeInfo, check_volume_name, is_taken};
use crate::admin::bucket::{publish_volume, unpublish_volume};
use crate::admin::failure::about;
use crate::admin::project::begins_with_project;
use crate::admin::{Caller, Failure, Request};
use crate::shard::Shard;
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

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let (name, to) = (&self.name, &self.to);
        let id = shard.volume_named(name)?;
        check_volume_name(to)?;
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
            if let Some(path) = &path
                && unpublish_volume(tx, name, path)
            {
                publish_volume(tx, to, path);
            }
            tx.st.volumes.rename(id, to);
            tx.st.volumes_dirty.insert(id);
            Ok(Ok(()))
        });
        renamed.map_err(about(name))??;
        shard.settle()?;
        shard.volume_info(id)
    }
}
