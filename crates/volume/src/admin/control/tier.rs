//! What operators ask about hot pools in front of others.

use super::{Answer, no, refuse};
use crate::admin::{Failure, Progress, Reply, TierInfo};
use crate::format::inode::{PoolRecord, TierRecord};
use crate::shard::Shard;
use crate::state::State;
use leeward_data::PoolId;
use leeward_env::Ctx;
use leeward_env::limits::SEGMENT_BYTES_MAX;
use leeward_pool::{BRIM_PERCENT, Pool, Tier, TierOptions};
use std::sync::Arc;
use std::time::Duration;

/// A hot pool has room for so many segments at least: its shares are to mean something.
const SEGMENTS_MIN: u64 = 16;

/// Between two looks at a hot pool that others are emptying.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl State {
    /// What is in front of a pool, for people.
    pub(super) fn tier_info(&self, record: Option<&PoolRecord>) -> Option<TierInfo> {
        let TierRecord { hot, options } = record?.tier?;
        Some(TierInfo {
            hot: self.pool_name(hot),
            flush_percent: options.flush_percent,
            evict_percent: options.evict_percent,
            ending: options.ending,
        })
    }
}

impl Shard {
    /// The name of the pool that this one is in front of.
    pub(super) fn cold_name(&self, hot: PoolId) -> Option<String> {
        let st = self.lock();
        st.cold_of(hot).map(|cold| st.pool_name(cold))
    }

    /// Total and available bytes of the hot pool in front of this one, or why they cannot be had.
    pub(super) fn hot_space(&self, cold: &str) -> ((u64, u64), Option<String>) {
        let space = || -> Result<_, String> {
            let id = self.pool_named(cold).map_err(|e| e.message)?;
            let pool = self.pools.get(id).ok_or_else(|| format!("pool {cold} is gone"))?;
            pool.store()?;
            let tier = pool.tier().ok_or_else(|| format!("pool {cold} has no hot pool"))?;
            tier.hot().space().map_err(|e| e.to_string())
        };
        match space() {
            Ok(space) => ((space.total_bytes, space.available_bytes), None),
            Err(why) => ((0, 0), Some(why)),
        }
    }

    /// An error when a pool is a part of a tier.
    pub(super) fn is_in_no_tier(&self, id: PoolId, name: &str) -> Result<(), Failure> {
        let st = self.lock();
        let cold = match st.pools.get(&id) {
            Some(record) if record.tier.is_some() => name.to_string(),
            _ => match st.cold_of(id) {
                Some(cold) => st.pool_name(cold),
                None => return Ok(()),
            },
        };
        let message =
            format!("pool {name} is part of a tier: end that first, by lee pool tier {cold} --none");
        Err(no(libc::EBUSY, message))
    }

    pub(super) fn pool_tier(&self, name: &str, hot: &str, flush: u8, evict: u8) -> Answer {
        let options = TierOptions { flush_percent: flush, evict_percent: evict, ending: false };
        if !options.is_sound() {
            let message = format!(
                "--flush {flush} --evict {evict} cannot be: flush is at most evict, and that below {BRIM_PERCENT} percent"
            );
            return Err(no(libc::EINVAL, message));
        }
        let (id, hot_id) = (self.pool_named(name)?, self.pool_named(hot)?);
        let _alone = self.alone(); // nothing is moved, and nobody changes stores
        let before = self.lock().pools.get(&id).and_then(|record| record.tier);
        let is_new = before.is_none_or(|tier| tier.hot != hot_id);
        if is_new {
            self.may_be_tier((id, name), (hot_id, hot))?;
            self.is_empty(hot_id, hot)?;
        }
        let tier = TierRecord { hot: hot_id, options };
        self.set_tier(id, Some(tier)).map_err(|e| refuse(&e, name))?;
        if is_new {
            self.log.remove_pool(hot_id);
            self.pools.remove(hot_id);
        }
        self.reopen(id, name)
    }

    /// Opens a pool again as its record says now.
    fn reopen(&self, id: PoolId, name: &str) -> Answer {
        let (id, opened) = self.open_pool(id).map_err(|why| no(libc::EIO, format!("pool {name}: {why}")))?;
        self.set_pool(id, Ok(opened));
        self.search_later([id]);
        self.care.wake();
        Ok(Reply::Pool(Box::new(self.pool_info(id))))
    }

    /// Whether two pools can be put one in front of the other.
    fn may_be_tier(&self, (id, name): (PoolId, &str), (hot_id, hot): (PoolId, &str)) -> Result<(), Failure> {
        let own =
            "is the cell's own directory and takes part in no tier: make another one, by lee pool create";
        for (id, name) in [(id, name), (hot_id, hot)] {
            if id == 0 {
                return Err(no(libc::EINVAL, format!("pool {name} {own}")));
            }
        }
        if id == hot_id {
            return Err(no(
                libc::EINVAL,
                format!("pool {name} cannot be in front of itself: name another one"),
            ));
        }
        self.is_in_no_tier(id, name)?;
        self.is_in_no_tier(hot_id, hot)?;
        for (id, name) in [(id, name), (hot_id, hot)] {
            if let Some(why) = self.pools.get(id).and_then(|pool| pool.why_away()) {
                return Err(no(libc::EIO, format!("pool {name} is away: {why}")));
            }
            self.look_at_space(id);
        }
        let ((cold_bytes, _), (hot_bytes, _)) = (self.space(id), self.space(hot_id));
        let least = SEGMENTS_MIN * SEGMENT_BYTES_MAX as u64;
        if hot_bytes < least {
            let (have, least) = (mib(hot_bytes), mib(least));
            let message =
                format!("pool {hot} has {have} and would be full at once: a hot pool needs {least}");
            return Err(no(libc::EINVAL, message));
        }
        if hot_bytes > cold_bytes {
            let (have, there) = (mib(hot_bytes), mib(cold_bytes));
            let message = format!(
                "pool {hot} has {have}, and pool {name}, where all of that is to go, {there}: swap them?"
            );
            return Err(no(libc::EINVAL, message));
        }
        Ok(())
    }

    /// Whether nothing is in a pool, nothing on its way there, and nothing of it waits to be deleted.
    fn is_empty(&self, id: PoolId, name: &str) -> Result<(), Failure> {
        self.settle()?;
        let _ = self.delete_garbage(); // what could not be deleted is found below
        if let Some(why) = self.lock().why_not_empty(id, name) {
            return Err(no(libc::EBUSY, why));
        }
        let objects = match self.pools.get(id).and_then(|pool| pool.layout()) {
            Some(layout) => {
                layout.list(&Ctx::system()).map_err(|e| no(libc::EIO, format!("pool {name}: {e}")))?
            }
            None => Vec::new(),
        };
        if !objects.is_empty() || !self.log.has_none_of(id) {
            let message =
                format!("pool {name} is not empty yet: {} objects in it are being freed", objects.len());
            return Err(no(libc::EBUSY, message));
        }
        Ok(())
    }

    pub(super) fn pool_untier(&self, name: &str, wait: bool, progress: &mut dyn FnMut(Progress)) -> Answer {
        let id = self.pool_named(name)?;
        {
            let _alone = self.alone();
            let Some(mut tier) = self.lock().pools.get(&id).and_then(|record| record.tier) else {
                return Err(no(
                    libc::EINVAL,
                    format!("pool {name} has no hot pool in front of it: see lee pool list"),
                ));
            };
            tier.options.ending = true;
            self.set_tier(id, Some(tier)).map_err(|e| refuse(&e, name))?;
            self.reopen(id, name)?;
        }
        if wait {
            self.drain_hot(id, name, progress)?;
        }
        Ok(Reply::Pool(Box::new(self.pool_info(id))))
    }

    /// Empties the hot pool in front of this one, beside the background.
    fn drain_hot(&self, id: PoolId, name: &str, progress: &mut dyn FnMut(Progress)) -> Result<(), Failure> {
        let mut total = 0;
        loop {
            self.end_if_drained(id).map_err(|e| refuse(&e, name))?;
            let Some(tier) = self.pools.get(id).and_then(|pool| pool.tier()) else { return Ok(()) };
            let more = self.repair(&*tier).map_err(|e| no(libc::EIO, format!("pool {name}: {e}")))?.more;
            let left = left_in(&tier);
            total = total.max(left.0);
            progress(Progress { phase: "flushing bytes".into(), done: total - left.0, total });
            if !more && !tier.is_drained() {
                if !left.1.is_empty() {
                    let message = format!(
                        "pool {name} still has its hot pool, which goes on to be emptied: {}",
                        left.1
                    );
                    return Err(no(libc::EIO, message));
                }
                self.env.sleep(LOOK_AGAIN); // the background has the rest in hand
            }
        }
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Bytes that are to leave the hot pool, and why that failed last.
fn left_in(tier: &Arc<Tier>) -> (u64, String) {
    match tier.health().tier {
        Some(tier) => (tier.unflushed_bytes + tier.evictable_bytes, tier.last_error),
        None => (0, String::new()),
    }
}
