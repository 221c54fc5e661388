//! Locks a snapshot until a date, and unlocks it after that.

use super::SnapInfo;
use crate::admin::{Caller, Concerns, Failure, Request};
use crate::shard::Shard;
use leeward_env::{Ctx, dates};
use serde::{Deserialize, Serialize};

/// Locks a snapshot: nobody can remove it before a date. No lock can be shortened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapLock {
    /// The directory.
    pub path: String,
    /// The snapshot's name.
    pub name: String,
    /// Seconds since 1970.
    pub until_secs: i64,
}

impl Request for SnapLock {
    type Reply = SnapInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<SnapInfo, Failure> {
        let clock = shard.lock_clock();
        if self.until_secs <= clock {
            let (until, now) = (dates::minute(self.until_secs), dates::minute(clock));
            let message = format!("{until} has passed (it is {now}): lock until a later date");
            return Err(Failure::new(libc::EINVAL, message));
        }
        set_lock(shard, caller.ctx, (&self.path, &self.name), self.until_secs, clock)
    }
}

/// Takes an expired lock away.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapUnlock {
    /// The directory.
    pub path: String,
    /// The snapshot's name.
    pub name: String,
}

impl Request for SnapUnlock {
    type Reply = SnapInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<SnapInfo, Failure> {
        set_lock(shard, caller.ctx, (&self.path, &self.name), 0, shard.lock_clock())
    }
}

fn set_lock(
    shard: &Shard,
    ctx: &Ctx,
    (path, name): (&str, &str),
    until_secs: i64,
    clock: i64,
) -> Result<SnapInfo, Failure> {
    let (dir, gids) = (shard.node_at(path)?, ctx.groups());
    let locked = shard.transact(ctx, |tx| tx.lock_snapshot(dir, name.as_bytes(), &gids, until_secs, clock));
    locked.map_err(|e| shard.snap_refusal(ctx, e, dir, path, name))?;
    shard.settle_all()?;
    shard.snap_shown(ctx, dir, path, name)
}
