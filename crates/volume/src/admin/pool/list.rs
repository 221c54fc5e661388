//! Tells about one pool, or about all.

use super::{PoolInfo, add_pools};
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::shard::Shard;
use serde::{Deserialize, Serialize};

/// Lists all pools.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolList;

/// All pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInfos {
    /// By number.
    pub pools: Vec<PoolInfo>,
}

impl Reply for PoolInfos {
    const KIND: &'static str = "pools";
}

impl Request for PoolList {
    type Reply = PoolInfos;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut PoolInfos, other: PoolInfos) {
        add_pools(&mut all.pools, other.pools);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<PoolInfos, Failure> {
        Ok(PoolInfos { pools: shard.pool_infos() })
    }
}

/// Shows one pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolShow {
    /// Its name.
    pub name: String,
}

impl Request for PoolShow {
    type Reply = PoolInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut PoolInfo, other: PoolInfo) {
        all.add(other);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<PoolInfo, Failure> {
        Ok(shard.pool_info(shard.pool_named(&self.name)?))
    }
}
