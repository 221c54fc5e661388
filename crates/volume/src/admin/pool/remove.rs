//! Removes an empty pool.

use crate::admin::failure::about;
use crate::admin::{Caller, Done, Failure, Request};
use crate::format::keys;
use crate::shard::Shard;
use crate::state::{Effect, State};
use leeward_data::PoolId;
use leeward_env::Ctx;
use serde::{Deserialize, Serialize};

/// Removes a pool. Refused while it holds data, or data is on its way to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolRemove {
    /// Its name.
    pub name: String,
}

impl Request for PoolRemove {
    type Reply = Done;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        let name = &self.name;
        let id = shard.pool_named(name)?;
        if id == 0 {
            let message = "the cell's own pool cannot be removed: it is the cell's directory";
            return Err(Failure::new(libc::EBUSY, message));
        }
        shard.check_is_in_no_tier(id, name)?;
        let _alone = shard.alone(); // nothing is moved there meanwhile
        shard.settle()?;
        // data that was moved out of it may be waiting to be deleted
        let _ = shard.delete_garbage();
        if !shard.log.has_none_of(id) {
            let message = format!("data is on its way to pool {name}: try again after lee sync");
            return Err(Failure::new(libc::EBUSY, message));
        }
        let stores = shard.lock().pools.get(&id).map_or_else(Vec::new, |r| r.stores.clone());
        let removed = shard.transact(&Ctx::system(), |tx| {
            if let Some(why) = tx.st.why_not_empty(id, name) {
                return Ok(Err(Failure::new(libc::EBUSY, why)));
            }
            tx.st.forget_dir_pool(id);
            tx.remove(keys::pool(id));
            tx.remove(keys::scrub(id));
            tx.remove(keys::scrub_place(id));
            tx.then(Effect::Scrub(id, None));
            tx.then(Effect::Pool(id, None));
            Ok(Ok(()))
        });
        removed.map_err(about(name))??;
        shard.log.remove_pool(id);
        shard.pools.remove(id);
        shard.settle()?;
        stores.iter().for_each(|store| shard.pools.remove_label(id, store));
        Ok(Done {})
    }
}

impl State {
    /// Directories that name this pool name none.
    pub(crate) fn forget_dir_pool(&mut self, id: PoolId) {
        for (volume, v) in self.volumes.iter_mut() {
            let before = v.properties.dir_pools.len();
            v.properties.dir_pools.retain(|pool| PoolId::from(*pool) != id);
            if v.properties.dir_pools.len() < before {
                self.volumes_dirty.insert(*volume);
            }
        }
    }
}
