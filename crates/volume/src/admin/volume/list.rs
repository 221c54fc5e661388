//! Tells about one volume, or about all.

use super::VolumeInfo;
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
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

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut VolumeInfos, mut other: VolumeInfos) {
        all.volumes.append(&mut other.volumes);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<VolumeInfos, Failure> {
        let ids: Vec<u32> = shard.lock().volumes.keys().copied().collect();
        let volumes = ids.iter().filter_map(|id| shard.info_unless_gone(*id).transpose());
        Ok(VolumeInfos { volumes: volumes.collect::<Result<_, _>>()? })
    }
}

impl Shard {
    /// [`Shard::volume_info`] of one that may be removed meanwhile.
    fn info_unless_gone(&self, id: u32) -> Result<Option<VolumeInfo>, Failure> {
        match self.volume_info(id) {
            Ok(info) => Ok(Some(info)),
            // being removed it has no root; removed, no record
            Err(_) if self.lock().volumes.contains_key(&id) => self.volume_info(id).map(Some),
            Err(_) => Ok(None),
        }
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

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.name)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        shard.volume_info(shard.volume_named(&self.name)?)
    }
}
