//! Tells about the space of the cell.

use crate::admin::{Caller, Failure, PoolInfo, Reply, Request};
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

impl Reply for Df {
    const KIND: &'static str = "df";
}

impl Request for DfShow {
    type Reply = Df;

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
