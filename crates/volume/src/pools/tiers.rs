//! Tiers: a hot pool in front of a cold one, which keeps its number, its volumes and its segments.
//! The record of the cold pool names the hot one.
//!
//! While a pool is the hot one of a tier it is no pool itself: no segment is in it, it is not
//! opened, searched or repaired separately ([`crate::pools`]), and it cannot be named for data. Its
//! content belongs to the cold pool.
//!
//! A tier that has to end first becomes empty (`ending` in its record), across restarts. Then the
//! record is that of a plain pool again, and the hot one is a pool itself, searched for leftovers.

use crate::format::inode::{PoolRecord, TierRecord};
use crate::format::keys;
use crate::pools::{OpenPool, Parts};
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::State;
use leeward_data::PoolId;
use leeward_env::Ctx;
use leeward_fs::Result;
use leeward_pool::Health;

impl State {
    /// The pool that this one is in front of.
    pub(crate) fn cold_of(&self, hot: PoolId) -> Option<PoolId> {
        let is_it = |r: &PoolRecord| r.tier.is_some_and(|tier| tier.hot == hot);
        self.pools.iter().find(|(_, r)| is_it(r)).map(|(id, _)| *id)
    }

    /// The records of a pool; for a hot one, of the tier that it is in.
    pub(crate) fn parts_of(&self, id: PoolId) -> Option<Parts> {
        let id = self.cold_of(id).unwrap_or(id);
        let record = self.pools.get(&id)?.clone();
        let hot = record.tier.and_then(|tier| self.pools.get(&tier.hot).cloned());
        Some(Parts { id, record, hot })
    }

    /// The same with another record of this pool.
    pub(crate) fn parts_with(&self, id: PoolId, record: &PoolRecord) -> Option<Parts> {
        let mut parts = self.parts_of(id)?;
        if parts.id == id {
            parts.hot = record.tier.and_then(|tier| self.pools.get(&tier.hot).cloned());
            parts.record = record.clone();
        } else {
            parts.hot = Some(record.clone());
        }
        Some(parts)
    }
}

impl Shard {
    /// Opens a pool by its record, or the tier that it is in.
    pub(crate) fn open_pool(&self, id: PoolId) -> std::result::Result<(PoolId, OpenPool), String> {
        let parts = self.lock().parts_of(id).ok_or_else(|| format!("pool {id} is gone"))?;
        Ok((parts.id, self.pools.open(&parts)?))
    }

    /// Health of a pool; also of one that is the hot one of a tier.
    pub(crate) fn health_of(&self, id: PoolId) -> Option<Health> {
        let cold = self.lock().cold_of(id);
        let health = self.pools.get(cold.unwrap_or(id))?.layout()?.health();
        match cold {
            Some(_) => health.tier.map(|tier| tier.hot),
            None => Some(health),
        }
    }

    /// Records the hot pool in front of a pool.
    pub(crate) fn set_tier(&self, id: PoolId, tier: Option<TierRecord>) -> Result<()> {
        let ctx = Ctx::system();
        self.transact(&ctx, |tx| {
            let Some(mut record) = tx.st.pools.get(&id).cloned() else { return Ok(()) };
            record.tier = tier;
            if let Some(tier) = tier {
                tx.st.forget_dir_pool(tier.hot);
            }
            tx.put(keys::pool(id), record.encode());
            tx.then(Effect::Pool(id, Some(record)));
            Ok(())
        })?;
        self.commit_now(&ctx)
    }

    /// Ends a tier whose hot pool has become empty.
    pub(crate) fn end_if_drained(&self, id: PoolId) -> Result<()> {
        let open = || self.pools.get(id).and_then(|pool| pool.tier());
        if !open().is_some_and(|tier| tier.is_drained()) {
            return Ok(());
        }
        let _alone = self.alone(); // and nobody changes the pool's stores
        let Some(tier) = self.lock().pools.get(&id).and_then(|r| r.tier) else { return Ok(()) };
        // from here on nothing gets to the hot pool, even if the record cannot be written now
        if !tier.options.ending || !open().is_some_and(|tier| tier.end()) {
            return Ok(());
        }
        self.set_tier(id, None)?;
        for pool in [id, tier.hot] {
            let opened = self.open_pool(pool).map(|(_, opened)| opened);
            self.set_pool(pool, opened);
        }
        tracing::info!("pool {} has no hot pool any more", self.pool_name(id));
        self.search_later([tier.hot]);
        Ok(())
    }
}
