//! Gives a snapshot another name.

use super::SnapInfo;
use crate::admin::{Caller, Concerns, Failure, Request};
use crate::shard::Shard;
use leeward_fs::Error;
use serde::{Deserialize, Serialize};

/// Gives a snapshot another name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapRename {
    /// The directory.
    pub path: String,
    /// The snapshot's name.
    pub name: String,
    /// The new name.
    pub to: String,
}

impl Request for SnapRename {
    type Reply = SnapInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<SnapInfo, Failure> {
        let (ctx, path, name, to) = (caller.ctx, &self.path, &self.name, &self.to);
        let (dir, gids) = (shard.node_at(path)?, ctx.groups());
        let renamed =
            shard.transact(ctx, |tx| tx.rename_snapshot(dir, name.as_bytes(), to.as_bytes(), &gids));
        renamed.map_err(|e| {
            let about = if matches!(e, Error::NotFound | Error::NotPermitted) { name } else { to };
            shard.snap_refusal(ctx, e, dir, path, about)
        })?;
        shard.invalidate_snapshot(dir, name.as_bytes());
        shard.invalidate_snapshot(dir, to.as_bytes());
        shard.settle_all()?;
        shard.snap_shown(ctx, dir, path, to)
    }
}
