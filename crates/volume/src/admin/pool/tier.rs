//! Puts a hot pool in front of another one.

use super::PoolInfo;
use crate::admin::failure::about;
use crate::admin::{Caller, Failure, Request};
use crate::format::inode::TierRecord;
use crate::shard::Shard;
use leeward_data::PoolId;
use leeward_env::Ctx;
use leeward_env::limits::SEGMENT_BYTES_MAX;
use leeward_pool::{PUT_PERCENT_MAX, TierOptions};
use serde::{Deserialize, Serialize};

/// A hot pool has room for this many segments at least, or its percentages mean nothing.
const SEGMENTS_MIN: u64 = 16;

/// Puts a hot pool in front of another one. For a tier that there is: changes its percentages, and
/// keeps it when it was ending.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolTier {
    /// Name of the pool that keeps the data, the cold one.
    pub name: String,
    /// The pool in front, which nothing else may use.
    pub hot: String,
    /// Above this share of the hot pool, data is copied to the cold one.
    pub flush_percent: u8,
    /// Above this share, copied data is deleted from the hot pool.
    pub evict_percent: u8,
}

/// A pool's number and name.
type Named<'a> = (PoolId, &'a str);

impl Request for PoolTier {
    type Reply = PoolInfo;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<PoolInfo, Failure> {
        let (flush_percent, evict_percent) = (self.flush_percent, self.evict_percent);
        let options = TierOptions { flush_percent, evict_percent, ending: false };
        if !options.is_sound() {
            let message = format!(
                "--flush {flush_percent} --evict {evict_percent} cannot be: flush is at most evict, and that below {PUT_PERCENT_MAX} percent"
            );
            return Err(Failure::new(libc::EINVAL, message));
        }
        let (name, hot) = (&self.name, &self.hot);
        let (id, hot_id) = (shard.pool_named(name)?, shard.pool_named(hot)?);
        let _alone = shard.alone(); // nothing is moved, and no store changes
        let before = shard.lock().pools.get(&id).and_then(|record| record.tier);
        let is_new = before.is_none_or(|tier| tier.hot != hot_id);
        if is_new {
            check_may_be_tier(shard, (id, name), (hot_id, hot))?;
            check_is_empty(shard, (hot_id, hot))?;
        }
        let tier = TierRecord { hot: hot_id, options };
        shard.set_tier(id, Some(tier)).map_err(about(name))?;
        if is_new {
            shard.log.remove_pool(hot_id);
            shard.pools.remove(hot_id);
        }
        shard.reopen(id, name)?;
        Ok(shard.pool_info(id))
    }
}

/// Whether one pool can be put in front of another.
fn check_may_be_tier(shard: &Shard, cold: Named<'_>, hot: Named<'_>) -> Result<(), Failure> {
    let ((id, name), (hot_id, hot_name)) = (cold, hot);
    let invalid = |message: String| Err(Failure::new(libc::EINVAL, message));
    if let Some((_, own)) = [cold, hot].into_iter().find(|(id, _)| *id == 0) {
        return invalid(format!(
            "pool {own} is the cell's own directory and takes part in no tier: make another one, by lee pool create"
        ));
    }
    if id == hot_id {
        return invalid(format!("pool {name} cannot be in front of itself: name another one"));
    }
    shard.check_is_in_no_tier(id, name)?;
    shard.check_is_in_no_tier(hot_id, hot_name)?;
    for (id, name) in [cold, hot] {
        if let Some(why) = shard.pools.get(id).and_then(|pool| pool.why_away()) {
            return Err(Failure::new(libc::EIO, format!("pool {name} is away: {why}")));
        }
        shard.look_at_space(id);
    }
    let ((cold_bytes, _), (hot_bytes, _)) = (shard.space(id), shard.space(hot_id));
    let least = SEGMENTS_MIN * SEGMENT_BYTES_MAX as u64;
    if hot_bytes < least {
        let (have, least) = (mib(hot_bytes), mib(least));
        return invalid(format!(
            "pool {hot_name} has {have} and would be full at once: a hot pool needs {least}"
        ));
    }
    if hot_bytes > cold_bytes {
        let (have, there) = (mib(hot_bytes), mib(cold_bytes));
        return invalid(format!(
            "pool {hot_name} has {have}, and pool {name}, where all of that is to go, {there}: swap them?"
        ));
    }
    Ok(())
}

/// Whether nothing is in a pool, nothing on its way there, and nothing of it waits to be deleted.
fn check_is_empty(shard: &Shard, (id, name): Named<'_>) -> Result<(), Failure> {
    shard.settle()?;
    let _ = shard.delete_garbage(); // what could not be deleted is found below
    if let Some(why) = shard.lock().why_not_empty(id, name) {
        return Err(Failure::new(libc::EBUSY, why));
    }
    let failed = |e| Failure::new(libc::EIO, format!("pool {name}: {e}"));
    let objects = match shard.pools.get(id).and_then(|pool| pool.layout()) {
        Some(layout) => layout.list(&Ctx::system()).map_err(failed)?,
        None => Vec::new(),
    };
    if !objects.is_empty() || !shard.log.has_none_of(id) {
        let message =
            format!("pool {name} is not empty yet: {} objects in it are being freed", objects.len());
        return Err(Failure::new(libc::EBUSY, message));
    }
    Ok(())
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
