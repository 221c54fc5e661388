//! Requests about the shards of the cell.

use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::format::versions::FORMAT_SHARDS;
use crate::shard::Shard;
use crate::state::State;
use leeward_fs::VOLUMES_OF_SHARD;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;

/// Lists the shards of the cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardList {}

/// Makes more shards. The cell has them when it is served anew. Refused where it has what cells of
/// several shards cannot have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardAdd {
    /// How many.
    pub count: usize,
}

/// How many shards there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardsAdded {
    /// That work now.
    pub now: usize,
    /// Once the cell is served anew.
    pub then: usize,
}

impl Reply for ShardsAdded {
    const KIND: &'static str = "shards-added";
}

impl Request for ShardAdd {
    type Reply = ShardsAdded;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<ShardsAdded, Failure> {
        let refused = |why: String| Err(Failure::new(libc::EINVAL, why));
        if self.count == 0 {
            return refused("add at least one shard".into());
        }
        let mut identity = shard.identity.lock();
        let format = shard.lock().format;
        if format < FORMAT_SHARDS {
            return refused(format!(
                "the cell has format {format}, and shards need {FORMAT_SHARDS}: lee upgrade"
            ));
        }
        if let Some(why) = shard.lock().why_one_shard() {
            return refused(format!("the cell cannot have several shards: {why}"));
        }
        let then = identity.add_shards(&shard.env, &shard.config, self.count)?;
        Ok(ShardsAdded { now: shard.which.count, then })
    }
}

impl State {
    /// What there is that a cell of several shards cannot have.
    fn why_one_shard(&self) -> Option<String> {
        if self.which.count > 1 {
            return None;
        }
        let next = self.next_volume;
        if next > VOLUMES_OF_SHARD {
            let most = VOLUMES_OF_SHARD;
            return Some(format!("it has given out {next} numbers of volumes, and one shard has {most}"));
        }
        if let Some(pool) = self.pools.values().next() {
            return Some(format!(
                "its shards would not agree about pool {}: it may have no pool but its own",
                pool.name
            ));
        }
        let of_cell = self.owners.limits().filter(|(volume, ..)| volume.is_none()).count();
        (of_cell > 0).then(|| format!("{of_cell} users or groups have limits everywhere: set them by volume"))
    }
}

impl Shard {
    /// Whether the cell has several shards, or will when it is served anew.
    pub(in crate::admin) fn has_neighbours(&self) -> bool {
        self.which.count > 1 || self.identity.lock().shards().is_some_and(|count| count > 1)
    }
}

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
        Ok(ShardInfos { shards: vec![shard.info()] })
    }
}

impl Shard {
    pub(super) fn info(&self) -> ShardInfo {
        let kv = self.kv.stats();
        let st = self.lock();
        let sealed = st.segments.iter().filter(|(_, record)| record.sealed);
        ShardInfo {
            shard: self.which.index,
            volumes: st.volumes.named_count() as u64,
            object_bytes: sealed.map(|(_, record)| record.object_bytes).sum(),
            metadata_bytes: kv.table_bytes + kv.journal_bytes,
            operations: self.counters.operations.load(Ordering::Relaxed),
            commits: self.counters.commits.load(Ordering::Relaxed),
        }
    }
}
