//! Makes a pool.

use super::PoolInfo;
use crate::admin::failure::about;
use crate::admin::{Caller, Failure, Request};
use crate::format::inode::{Pair, PoolRecord, StoreRecord};
use crate::format::keys;
use crate::pools::{Parts, spec_of};
use crate::shard::Shard;
use crate::state::Effect;
use leeward_data::PoolId;
use leeward_env::Ctx;
use leeward_fs::Error;
use serde::{Deserialize, Serialize};

/// A pool's number is one byte where directories name it.
const POOLS_MAX: u64 = 255;
/// Longest name of a pool.
const POOL_NAME_BYTES_MAX: usize = 64;

/// Makes a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolCreate {
    /// Unique name.
    pub name: String,
    /// How objects are kept in its stores: `single`, `replica(2)`, `erasure(4+2)`.
    pub layout: String,
    /// URLs of its stores, which must be empty.
    pub stores: Vec<String>,
    /// Whether stores may be on one disk.
    #[serde(default)]
    pub force: bool,
}

impl Request for PoolCreate {
    type Reply = PoolInfo;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<PoolInfo, Failure> {
        let name = &self.name;
        self.check_name()?;
        if shard.has_neighbours() {
            let why =
                "a cell of several shards has no pool but its own: its shards would not agree about another";
            return Err(Failure::new(libc::EOPNOTSUPP, why));
        }
        if shard.pool_named(name).is_ok() {
            return Err(self.is_taken());
        }
        shard.check_stores(&self.stores)?;
        if !self.force {
            shard.check_places(&self.stores)?;
        }
        let record = PoolRecord {
            name: name.clone(),
            layout: self.layout.clone(),
            stores: (0..).zip(&self.stores).map(|(slot, url)| shard.new_store(slot, url)).collect(),
            tier: None,
        };
        let failed = |why: String| Failure::new(libc::EINVAL, format!("pool {name} cannot be made: {why}"));
        spec_of(0, &record).map_err(failed)?;
        let id = next_pool(shard).map_err(about(name))?;
        let release =
            |taken: &[StoreRecord]| taken.iter().for_each(|store| shard.pools.remove_label(id, store));
        for (n, store) in record.stores.iter().enumerate() {
            if let Err(why) = shard.pools.take(id, store) {
                release(&record.stores[..n]);
                return Err(failed(why));
            }
        }
        let parts = Parts { id, record: record.clone(), hot: None };
        let opened = shard.pools.open(&parts).map_err(failed).inspect_err(|_| release(&record.stores))?;
        self.put(shard, id, &record).inspect_err(|_| release(&record.stores))?;
        shard.set_pool(id, Ok(opened));
        shard.settle()?;
        Ok(shard.pool_info(id))
    }
}

impl PoolCreate {
    fn check_name(&self) -> Result<(), Failure> {
        let name = &self.name;
        if name.is_empty() || name.len() > POOL_NAME_BYTES_MAX || name.contains(['/', '\0', '\n']) {
            let message =
                format!("{name:?} is no name for a pool: 1 to {POOL_NAME_BYTES_MAX} bytes, no slash");
            return Err(Failure::new(libc::EINVAL, message));
        }
        Ok(())
    }

    fn is_taken(&self) -> Failure {
        let message = format!("there is a pool {} already: choose another name", self.name);
        Failure::new(libc::EEXIST, message)
    }

    fn put(&self, shard: &Shard, id: PoolId, record: &PoolRecord) -> Result<(), Failure> {
        let put = shard.transact(&Ctx::system(), |tx| {
            if tx.st.pools.values().any(|r| r.name == self.name) {
                return Ok(Err(self.is_taken()));
            }
            tx.put(keys::pool(id), record.encode());
            tx.then(Effect::Pool(id, Some(record.clone())));
            if let Some(scrub) = tx.st.scrubs.of_new(tx.now.secs) {
                tx.put(keys::scrub(id), scrub.encode());
                tx.then(Effect::Scrub(id, Some(scrub)));
            }
            Ok(Ok(()))
        });
        put.map_err(about(&self.name))?
    }
}

/// A number for a pool. No number is used twice.
fn next_pool(shard: &Shard) -> leeward_fs::Result<PoolId> {
    shard.transact(&Ctx::system(), |tx| {
        let next = tx.get(&keys::pools())?.map(|value| Pair::decode(&value)).transpose()?;
        let id = next.map_or(1, |pair| pair.0);
        if id > POOLS_MAX {
            return Err(Error::NoSpace.into());
        }
        tx.put(keys::pools(), Pair(id + 1, 0).encode());
        Ok(id as PoolId)
    })
}
