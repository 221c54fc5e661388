//! Tells about one volume, or about all.

use super::VolumeInfo;
use crate::admin::{Caller, Failure, Reply, Request};
use crate::shard::Shard;
use serde::{Deserialize, Serialize};

/// Lists all volumes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeList;

/// All volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfos {
    /// By number.
    pub volumes: Vec<VolumeInfo>,
}

impl Reply for VolumeInfos {
    const KIND: &'static str = "volumes";
}

impl Request for VolumeList {
    type Reply = VolumeInfos;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<VolumeInfos, Failure> {
        let ids: Vec<u32> = shard.lock().volumes.keys().copied().collect();
        let volumes = ids.into_iter().map(|id| shard.volume_info(id)).collect::<Result<_, _>>()?;
        Ok(VolumeInfos { volumes })
    }
}

/// Shows one volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeShow {
    /// Its name.
    pub name: String,
}

impl Request for VolumeShow {
    type Reply = VolumeInfo;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        shard.volume_info(shard.volume_named(&self.name)?)
    }
}
