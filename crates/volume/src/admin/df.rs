//! Tells about the space of the cell.

use crate::admin::pool::add_pools;
use crate::admin::{Caller, Concerns, Failure, PoolInfo, Reply, Request};
use crate::shard::Shard;
use serde::{Deserialize, Serialize};

/// Tells about the space of the cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DfShow;

/// The cell's space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Df {
    /// Size of the file system below, in bytes.
    pub total_bytes: u64,
    /// Bytes that users may still write.
    pub available_bytes: u64,
    /// Bytes of segment objects.
    pub segment_bytes: u64,
    /// Number of segment objects.
    pub segments: u64,
    /// Live bytes in them, uncompressed.
    pub live_bytes: u64,
    /// Bytes of metadata: tables and journal.
    pub metadata_bytes: u64,
    /// Bytes in memory, not yet in a store.
    pub dirty_bytes: u64,
    /// Space that waits for reclaim or cleaning.
    pub reclaim_bytes: u64,
    /// All pools. `total_bytes` and `available_bytes` above are those of the first, the cell's own.
    #[serde(default)]
    pub pools: Vec<PoolInfo>,
}

impl Df {
    /// Adds what another shard says.
    pub(super) fn add(&mut self, other: Df) {
        self.segment_bytes += other.segment_bytes;
        self.segments += other.segments;
        self.live_bytes += other.live_bytes;
        self.metadata_bytes += other.metadata_bytes;
        self.dirty_bytes += other.dirty_bytes;
        self.reclaim_bytes += other.reclaim_bytes;
        add_pools(&mut self.pools, other.pools);
    }
}

impl Reply for Df {
    const KIND: &'static str = "df";
}

impl Request for DfShow {
    type Reply = Df;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut Df, other: Df) {
        all.add(other);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Df, Failure> {
        Ok(shard.df())
    }
}

impl Shard {
    pub(super) fn df(&self) -> Df {
        let pools = self.pool_infos();
        let (total_bytes, available_bytes) = self.space(0);
        let kv = self.kv.stats();
        let st = self.lock();
        let mut df = Df {
            total_bytes,
            available_bytes,
            metadata_bytes: kv.table_bytes + kv.journal_bytes,
            dirty_bytes: self.log.dirty_bytes(),
            pools,
            ..Df::default()
        };
        for (_, r) in st.segments.iter().filter(|(_, r)| r.sealed) {
            df.segments += 1;
            df.segment_bytes += r.object_bytes;
            df.live_bytes += r.live_bytes;
            df.reclaim_bytes += r.object_bytes * r.dead_bytes() / r.data_bytes.max(1);
        }
        df
    }
}
