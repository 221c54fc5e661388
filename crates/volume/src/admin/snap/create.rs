//! Takes a snapshot.

use super::SnapInfo;
use crate::admin::{Caller, Concerns, Failure, Request};
use crate::shard::Shard;
use serde::{Deserialize, Serialize};

/// Takes a snapshot of a directory. It is durable with all that it contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapCreate {
    /// The directory.
    pub path: String,
    /// The snapshot's name.
    pub name: String,
}

impl Request for SnapCreate {
    type Reply = SnapInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<SnapInfo, Failure> {
        let (ctx, path, name) = (caller.ctx, &self.path, &self.name);
        let dir = shard.node_at(path)?;
        let taken = shard.take(ctx, dir, name.as_bytes());
        taken.map_err(|e| shard.snap_refusal(ctx, e, dir, path, name))?;
        shard.settle_all()?;
        shard.snap_shown(ctx, dir, path, name)
    }
}
