//! Tells about the shards of the cell.

use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::shard::Shard;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;

/// Lists the shards of the cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardList {}

/// A part of the volumes of the cell, with its own lock and commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardInfo {
    /// Number, from 0.
    pub shard: usize,
    /// Volumes that are not being removed.
    pub volumes: u64,
    /// Bytes of objects with their data.
    pub object_bytes: u64,
    /// Bytes of metadata.
    pub metadata_bytes: u64,
    /// Operations since the cell was opened.
    pub operations: u64,
    /// Commits since then.
    pub commits: u64,
}

/// All shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardInfos {
    /// By number.
    pub shards: Vec<ShardInfo>,
}

impl Reply for ShardInfos {
    const KIND: &'static str = "shards";
}

impl Request for ShardList {
    type Reply = ShardInfos;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut ShardInfos, mut other: ShardInfos) {
        all.shards.append(&mut other.shards);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<ShardInfos, Failure> {
        let kv = shard.kv.stats();
        let st = shard.lock();
        let sealed = st.segments.iter().filter(|(_, record)| record.sealed);
        let info = ShardInfo {
            shard: shard.which.index,
            volumes: st.volumes.named_count() as u64,
            object_bytes: sealed.map(|(_, record)| record.object_bytes).sum(),
            metadata_bytes: kv.table_bytes + kv.journal_bytes,
            operations: shard.counters.operations.load(Ordering::Relaxed),
            commits: shard.counters.commits.load(Ordering::Relaxed),
        };
        Ok(ShardInfos { shards: vec![info] })
    }
}
