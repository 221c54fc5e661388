//! Removes a snapshot.

use crate::admin::{Caller, Concerns, Done, Failure, Request};
use crate::shard::Shard;
use serde::{Deserialize, Serialize};

/// Removes a snapshot. It is gone at once; its space is freed in the background.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapRemove {
    /// The directory.
    pub path: String,
    /// The snapshot's name.
    pub name: String,
}

impl Request for SnapRemove {
    type Reply = Done;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Done, Failure> {
        let (ctx, path, name) = (caller.ctx, &self.path, &self.name);
        let dir = shard.node_at(path)?;
        let removed = shard.remove(ctx, dir, name.as_bytes());
        removed.map_err(|e| shard.snap_refusal(ctx, e, dir, path, name))?;
        shard.settle()?;
        Ok(Done {})
    }
}
