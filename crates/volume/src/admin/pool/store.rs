//! Changes the stores of a pool: one more, one fewer, another one.

use super::PoolInfo;
use crate::admin::failure::about;
use crate::admin::{Caller, Failure, Request};
use crate::format::inode::{PoolRecord, StoreRecord};
use crate::format::keys;
use crate::pools::spec_of;
use crate::shard::Shard;
use crate::state::Effect;
use leeward_data::PoolId;
use leeward_env::{Ctx, dates};
use leeward_pool::{Condition, Health, StoreState};
use serde::{Deserialize, Serialize};

/// Changes the stores of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolStore {
    /// The pool's name.
    pub name: String,
    /// What to change.
    pub change: StoreChange,
    /// Whether stores may be on one disk.
    #[serde(default)]
    pub force: bool,
    /// Whether data that cannot be rebuilt may be lost.
    #[serde(default)]
    pub lose_data: bool,
}

/// What to change about a pool's stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum StoreChange {
    /// Puts a new store in the place of one that was given up.
    Add {
        /// URL of the new store.
        url: String,
    },
    /// Moves the content of a store to a new one, which takes its place.
    Drain {
        /// URL of the store, or number of its place.
        store: String,
        /// URL of the new store.
        to: String,
    },
    /// Puts a new store in the place of a lost one, and rebuilds its content.
    Replace {
        /// URL of the store, or number of its place.
        store: String,
        /// URL of the new store.
        by: String,
    },
    /// Gives a store up, or takes it out after it was drained.
    Remove {
        /// URL of the store, or number of its place.
        store: String,
    },
}

/// What a change makes of a pool's stores.
struct Plan {
    record: PoolRecord,
    /// A store that is new.
    taken: Option<StoreRecord>,
    /// A store that leaves the pool.
    gone: Option<StoreRecord>,
}

impl Request for PoolStore {
    type Reply = PoolInfo;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<PoolInfo, Failure> {
        let name = &self.name;
        let _alone = shard.alone();
        let id = shard.pool_named(name)?;
        let Some(record) = shard.lock().pools.get(&id).cloned() else {
            let message = format!("pool {name} is the cell's own directory: it has no other store");
            return Err(Failure::new(libc::EINVAL, message));
        };
        let plan = self.plan(shard, id, record)?;
        let failed = |why: String| Failure::new(libc::EINVAL, format!("pool {name} stays as it is: {why}"));
        spec_of(id, &plan.record).map_err(failed)?;
        if let Some(store) = &plan.taken {
            shard.pools.take(id, store).map_err(failed)?;
        }
        let parts = shard.lock().parts_with(id, &plan.record);
        let Some(parts) = parts else { return Err(failed("it is gone".into())) };
        let release = || plan.taken.iter().for_each(|store| shard.pools.remove_label(id, store));
        let opened = shard.pools.open(&parts).map_err(failed).inspect_err(|_| release())?;
        let changed = shard.transact(&Ctx::system(), |tx| {
            tx.put(keys::pool(id), plan.record.encode());
            tx.then(Effect::Pool(id, Some(plan.record.clone())));
            Ok(())
        });
        changed.map_err(about(name)).inspect_err(|_| release())?;
        shard.settle()?;
        shard.set_pool(parts.id, Ok(opened));
        plan.gone.iter().for_each(|store| shard.pools.remove_label(id, store));
        shard.search_later([parts.id]); // what the stores lack now is known soon
        shard.pool_repair.wake();
        Ok(shard.pool_info(id))
    }
}

impl PoolStore {
    fn plan(&self, shard: &Shard, id: PoolId, mut record: PoolRecord) -> Result<Plan, Failure> {
        let (taken, gone) = match &self.change {
            StoreChange::Add { url } => {
                let Some(at) = record.stores.iter().position(|s| s.state == StoreState::Missing) else {
                    let message = format!(
                        "pool {} has all the stores that {} counts: give one up first, drain or replace it",
                        record.name, record.layout
                    );
                    return Err(Failure::new(libc::EINVAL, message));
                };
                let new = self.new_store(shard, &record, at, url)?;
                (Some(new.clone()), Some(std::mem::replace(&mut record.stores[at], new)))
            }
            StoreChange::Drain { store, to } => {
                let at = place(&record, store, &[StoreState::Active])?;
                let new = self.new_store(shard, &record, at, to)?;
                record.stores[at].state = StoreState::Draining;
                record.stores.push(new.clone());
                (Some(new), None)
            }
            StoreChange::Replace { store, by } => {
                let at = place(&record, store, &[StoreState::Active, StoreState::Missing])?;
                check_others_answer(shard, id, &record, at)?;
                self.check_may_lose(shard, id, &record.stores[at])?;
                let new = self.new_store(shard, &record, at, by)?;
                (Some(new.clone()), Some(std::mem::replace(&mut record.stores[at], new)))
            }
            StoreChange::Remove { store } => {
                let at = place(&record, store, &[StoreState::Draining, StoreState::Active])?;
                if record.stores[at].state == StoreState::Draining {
                    self.check_is_drained(shard, id, &record.stores[at])?;
                    (None, Some(record.stores.remove(at)))
                } else {
                    check_others_answer(shard, id, &record, at)?;
                    self.check_may_lose(shard, id, &record.stores[at])?;
                    record.stores[at].state = StoreState::Missing;
                    (None, None)
                }
            }
        };
        Ok(Plan { record, taken, gone })
    }

    /// A new store for the place of the one at index `at`.
    fn new_store(
        &self,
        shard: &Shard,
        record: &PoolRecord,
        at: usize,
        url: &str,
    ) -> Result<StoreRecord, Failure> {
        let slot = record.stores[at].slot;
        shard.check_stores(&[url.to_string()])?;
        if !self.force {
            let others = record.stores.iter().filter(|s| s.slot != slot && s.state != StoreState::Missing);
            let all: Vec<String> = others.map(|s| s.url.clone()).chain([url.to_string()]).collect();
            shard.check_places(&all)?;
        }
        Ok(shard.new_store(slot, url))
    }

    /// Whether a pool can do without a store that it may still need.
    fn check_may_lose(&self, shard: &Shard, id: PoolId, store: &StoreRecord) -> Result<(), Failure> {
        let Some(health) = shard.health_of(id) else { return Ok(()) };
        let counts = health
            .stores
            .iter()
            .any(|s| s.slot == store.slot && s.url == store.url && s.condition != Condition::Missing);
        if !counts || health.may_lose > 0 {
            return Ok(());
        }
        if self.lose_data {
            return check_holds_no_lock(shard, id, &health, store);
        }
        let message = format!(
            "without {} data of pool {} would be lost: drain it (lee pool store drain), wait for repair, or add --lose-data",
            store.url, self.name
        );
        Err(Failure::new(libc::EBUSY, message))
    }

    fn check_is_drained(&self, shard: &Shard, id: PoolId, store: &StoreRecord) -> Result<(), Failure> {
        match shard.pools.objects_on(id, store) {
            Ok(0) => Ok(()),
            _ if self.lose_data => match shard.health_of(id) {
                Some(health) => check_holds_no_lock(shard, id, &health, store),
                None => Ok(()),
            },
            Ok(left) => {
                let message = format!(
                    "{left} objects are still on {}: they are being moved, see lee pool show",
                    store.url
                );
                Err(Failure::new(libc::EBUSY, message))
            }
            Err(why) => Err(Failure::new(libc::EIO, why)),
        }
    }
}

/// A store that is there is given up only while all others are there, too: else it may be the wrong
/// one that was named, and what it has the last that there is. What is known of the stores may be
/// some seconds old: they are asked now.
fn check_others_answer(shard: &Shard, id: PoolId, record: &PoolRecord, at: usize) -> Result<(), Failure> {
    let named = &record.stores[at];
    let found = shard.pools.look_for(id, &record.stores);
    if found[at].is_err() {
        return Ok(());
    }
    let away = record.stores.iter().zip(found).find_map(|(store, found)| {
        let is_other = store.slot != named.slot && store.state == StoreState::Active;
        found.err().filter(|_| is_other).map(|why| (store.slot, why))
    });
    let Some((other, why)) = away else { return Ok(()) };
    let message = format!(
        "store {} is there, and store {other} is not ({why}): give up that one first, or wait until it is back",
        named.slot
    );
    Err(Failure::new(libc::EBUSY, message))
}

/// The index of the store that was named by URL or place, if it is in one of these states.
fn place(record: &PoolRecord, named: &str, states: &[StoreState]) -> Result<usize, Failure> {
    let is = |s: &StoreRecord| (s.url == named || named.parse() == Ok(s.slot)) && states.contains(&s.state);
    record.stores.iter().position(is).ok_or_else(|| {
        let pool = &record.name;
        Failure::new(libc::ENOENT, format!("{named} is no store of pool {pool}: see lee pool show {pool}"))
    })
}

/// While a snapshot is locked, `--lose-data` takes away no store that can still be read: nobody in
/// a hurry may remove a locked snapshot. A store that fails holds nothing that could be kept.
fn check_holds_no_lock(
    shard: &Shard,
    id: PoolId,
    health: &Health,
    store: &StoreRecord,
) -> Result<(), Failure> {
    let of_store = health.stores.iter().find(|s| s.slot == store.slot && s.url == store.url);
    let is_there = of_store.is_some_and(|s| !matches!(s.condition, Condition::Missing | Condition::Failing));
    let until = shard.lock().snapshots.locked_until();
    let clock = shard.lock_clock();
    if !is_there || until <= clock {
        return Ok(());
    }
    let message = format!(
        "a snapshot is locked until {}, and without {} data of pool {} would be lost, perhaps its data: drain it (lee pool store drain)",
        dates::minute(until),
        store.url,
        shard.pool_name(id)
    );
    Err(Failure::new(libc::EPERM, message))
}
