//! Takes the hot pool in front of another one away.

use super::PoolInfo;
use crate::admin::failure::about;
use crate::admin::{Caller, Failure, Progress, Request};
use crate::shard::Shard;
use leeward_data::PoolId;
use leeward_pool::{Pool, Tier};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Pause before a hot pool that the background empties is looked at again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Empties the hot pool in front of another one in the background. It is a pool by itself when it
/// is empty.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolUntier {
    /// Name of the cold pool.
    pub name: String,
    /// Whether to wait until the hot pool is empty, with progress.
    pub wait: bool,
}

impl Request for PoolUntier {
    type Reply = PoolInfo;

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<PoolInfo, Failure> {
        let name = &self.name;
        let id = shard.pool_named(name)?;
        {
            let _alone = shard.alone();
            let tier = shard.lock().pools.get(&id).and_then(|record| record.tier);
            let Some(mut tier) = tier else {
                let message = format!("pool {name} has no hot pool in front of it: see lee pool list");
                return Err(Failure::new(libc::EINVAL, message));
            };
            tier.options.ending = true;
            shard.set_tier(id, Some(tier)).map_err(about(name))?;
            shard.reopen(id, name)?;
        }
        if self.wait {
            drain_hot(shard, id, name, caller.progress)?;
        }
        Ok(shard.pool_info(id))
    }
}

/// Empties the hot pool in front of this one, beside the background.
fn drain_hot(
    shard: &Shard,
    id: PoolId,
    name: &str,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(libc::EIO, why);
    let mut total = 0;
    loop {
        shard.end_if_drained(id).map_err(about(name))?;
        let Some(tier) = shard.pools.get(id).and_then(|pool| pool.tier()) else { return Ok(()) };
        let repaired = shard.repair(&*tier).map_err(|e| failed(format!("pool {name}: {e}")))?;
        let (bytes, last_error) = left_in(&tier);
        total = total.max(bytes);
        progress(Progress { phase: "flushing bytes".into(), done: total - bytes, total });
        if !repaired.more && !tier.is_drained() {
            if !last_error.is_empty() {
                return Err(failed(format!(
                    "pool {name} still has its hot pool, which goes on to be emptied: {last_error}"
                )));
            }
            shard.env.sleep(RETRY_PAUSE); // the background empties the rest
        }
    }
}

/// Bytes that must leave the hot pool, and why that failed last.
fn left_in(tier: &Arc<Tier>) -> (u64, String) {
    match tier.health().tier {
        Some(tier) => (tier.unflushed_bytes + tier.evictable_bytes, tier.last_error),
        None => (0, String::new()),
    }
}
