//! Tells how much is below a path.

use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_fs::{NodeId, Usage};
use serde::{Deserialize, Serialize};

/// Tells how much is below a path, from recursive statistics.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UsageShow {
    /// Any path.
    pub path: String,
}

impl Reply for Usage {
    const KIND: &'static str = "usage";
}

impl Request for UsageShow {
    type Reply = Usage;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Usage, Failure> {
        let usage = shard.resolve(&self.path).and_then(|node| {
            drop(shard.recall_exclusive(&Ctx::system(), Some(node.volume()))?);
            shard.usage(node)
        });
        usage.map_err(about(&self.path))
    }
}

impl Shard {
    /// How much is below a directory; of another inode, itself.
    pub(crate) fn usage(&self, node: NodeId) -> leeward_fs::Result<Usage> {
        self.transact(&Ctx::system(), |tx| {
            let inode = tx.inode(node)?;
            if !inode.is_dir() {
                return Ok(Usage { bytes: tx.size_of(node, &inode).1, files: 1, dirs: 0 });
            }
            let s = tx.exact_stats(node)?;
            let whole = |v: i64| v.max(0) as u64;
            Ok(Usage { bytes: whole(s.bytes), files: whole(s.files), dirs: whole(s.dirs) })
        })
    }
}
