//! What operators ask about the stores of a pool: one more, one fewer, another one. And reading everything.

use super::{Answer, no, refuse};
use crate::admin::{Failure, Progress, Reply, ScrubInfo, StoreChange};
use crate::format::inode::{PoolRecord, StoreRecord};
use crate::format::keys;
use crate::pools::spec_of;
use crate::shard::Shard;
use crate::state::Effect;
use leeward_data::PoolId;
use leeward_env::{Ctx, dates};
use leeward_pool::{Condition, Health, StoreState};

/// Scrubbing that began anew all the time would be of no use.
const SCRUB_EVERY_SECS_MIN: u32 = 3600;

/// What becomes of a pool's stores.
struct Plan {
    record: PoolRecord,
    /// A store that is new.
    taken: Option<StoreRecord>,
    /// One that is none of the pool any more.
    gone: Option<StoreRecord>,
}

impl Shard {
    pub(super) fn pool_store(&self, name: &str, change: &StoreChange, force: bool) -> Answer {
        let _alone = self.alone();
        let id = self.pool_named(name)?;
        let Some(record) = self.lock().pools.get(&id).cloned() else {
            return Err(no(
                libc::EINVAL,
                format!("pool {name} is the cell's own directory: it has no other store"),
            ));
        };
        let plan = self.plan(id, record, change, force)?;
        let failed = |what: String| no(libc::EINVAL, format!("pool {name} stays as it is: {what}"));
        spec_of(id, &plan.record).map_err(failed)?;
        if let Some(store) = &plan.taken {
            self.pools.take(id, store).map_err(failed)?;
        }
        let parts = self.lock().parts_with(id, &plan.record);
        let Some(parts) = parts else { return Err(failed("it is gone".into())) };
        let let_go = || plan.taken.iter().for_each(|store| self.pools.let_go(id, store));
        let opened = self.pools.open(&parts).map_err(failed).inspect_err(|_| let_go())?;
        let changed = self.transact(&Ctx::system(), |tx| {
            tx.put(keys::pool(id), plan.record.encode());
            tx.then(Effect::Pool(id, Some(plan.record.clone())));
            Ok(())
        });
        changed.map_err(|e| refuse(&e, name)).inspect_err(|_| let_go())?;
        self.settle()?;
        self.set_pool(parts.id, Ok(opened));
        plan.gone.iter().for_each(|store| self.pools.let_go(id, store));
        self.search_later([parts.id]); // what the stores lack now is known soon
        self.care.wake();
        Ok(Reply::Pool(Box::new(self.pool_info(id))))
    }

    fn plan(
        &self,
        id: PoolId,
        mut record: PoolRecord,
        change: &StoreChange,
        force: bool,
    ) -> Result<Plan, Failure> {
        let place = |wanted: &str, states: &[StoreState]| {
            let is = |s: &StoreRecord| {
                (s.url == wanted || wanted.parse() == Ok(s.slot)) && states.contains(&s.state)
            };
            record.stores.iter().position(is).ok_or_else(|| {
                no(
                    libc::ENOENT,
                    format!(
                        "{wanted} is no store of pool {}: see lee pool show {}",
                        record.name, record.name
                    ),
                )
            })
        };
        let (taken, gone) = match change {
            StoreChange::Add { url } => {
                let Some(at) = record.stores.iter().position(|s| s.state == StoreState::Missing) else {
                    let message = format!(
                        "pool {} has all the stores that {} counts: give one up first, drain or replace it",
                        record.name, record.layout
                    );
                    return Err(no(libc::EINVAL, message));
                };
                let new = self.checked_store(&record, record.stores[at].slot, url, force)?;
                (Some(new.clone()), Some(std::mem::replace(&mut record.stores[at], new)))
            }
            StoreChange::Drain { store, to } => {
                let at = place(store, &[StoreState::Active])?;
                let new = self.checked_store(&record, record.stores[at].slot, to, force)?;
                record.stores[at].state = StoreState::Draining;
                record.stores.push(new.clone());
                (Some(new), None)
            }
            StoreChange::Replace { store, by } => {
                let at = place(store, &[StoreState::Active, StoreState::Missing])?;
                self.may_lose(id, &record.stores[at], force)?;
                let new = self.checked_store(&record, record.stores[at].slot, by, force)?;
                (Some(new.clone()), Some(std::mem::replace(&mut record.stores[at], new)))
            }
            StoreChange::Remove { store } => {
                let at = place(store, &[StoreState::Draining, StoreState::Active])?;
                if record.stores[at].state == StoreState::Draining {
                    self.is_drained(id, &record.stores[at], force)?;
                    (None, Some(record.stores.remove(at)))
                } else {
                    self.may_lose(id, &record.stores[at], force)?;
                    record.stores[at].state = StoreState::Missing;
                    (None, None)
                }
            }
        };
        Ok(Plan { record, taken, gone })
    }

    /// A new store for a place in a pool.
    fn checked_store(
        &self,
        record: &PoolRecord,
        slot: u16,
        url: &str,
        force: bool,
    ) -> Result<StoreRecord, Failure> {
        self.check_stores(&[url.to_string()])?;
        if !force {
            let others = record.stores.iter().filter(|s| s.slot != slot && s.state != StoreState::Missing);
            let all: Vec<String> = others.map(|s| s.url.clone()).chain([url.to_string()]).collect();
            self.check_places(&all)?;
        }
        Ok(self.new_store(slot, url))
    }

    /// Whether a pool can do without a store that it may still need.
    fn may_lose(&self, id: PoolId, store: &StoreRecord, force: bool) -> Result<(), Failure> {
        let Some(health) = self.health_of(id) else { return Ok(()) };
        let counts = health
            .stores
            .iter()
            .any(|s| s.slot == store.slot && s.url == store.url && s.condition != Condition::Missing);
        if !counts || health.may_lose > 0 {
            return Ok(());
        }
        if force {
            return self.holds_no_lock(id, &health, store);
        }
        let message = format!(
            "without {} data of pool {} would be lost: drain it (lee pool store drain), wait for repair, or add --force",
            store.url,
            self.pool_name(id)
        );
        Err(no(libc::EBUSY, message))
    }

    /// A locked snapshot is not to be removed by whoever is in a hurry: while one is locked `--force` takes away no store that
    /// could still be read. One that fails holds nothing that anybody could keep.
    fn holds_no_lock(&self, id: PoolId, health: &Health, store: &StoreRecord) -> Result<(), Failure> {
        let of_store = health.stores.iter().find(|s| s.slot == store.slot && s.url == store.url);
        let is_there =
            of_store.is_some_and(|s| !matches!(s.condition, Condition::Missing | Condition::Failing));
        let until = self.lock().snapshots.locked_until();
        let clock = self.lock_clock();
        if !is_there || until <= clock {
            return Ok(());
        }
        let message = format!(
            "a snapshot is locked until {}, and without {} data of pool {} would be lost, perhaps its data: drain it (lee pool store drain)",
            dates::minute(until),
            store.url,
            self.pool_name(id)
        );
        Err(no(libc::EPERM, message))
    }

    fn is_drained(&self, id: PoolId, store: &StoreRecord, force: bool) -> Result<(), Failure> {
        let left = self.pools.objects_on(id, store).map_err(|why| no(libc::EIO, why));
        match left {
            Ok(0) => Ok(()),
            _ if force => match self.health_of(id) {
                Some(health) => self.holds_no_lock(id, &health, store),
                None => Ok(()),
            },
            Ok(left) => {
                let message = format!(
                    "{left} objects are still on {}: they are being moved, see lee pool show",
                    store.url
                );
                Err(no(libc::EBUSY, message))
            }
            Err(failure) => Err(failure),
        }
    }

    pub(super) fn scrub_pools(&self, pool: Option<&str>, progress: &mut dyn FnMut(Progress)) -> Answer {
        let ids: Vec<PoolId> = match pool {
            Some(name) => vec![self.pool_named(name)?],
            None => self.pools.all().into_iter().map(|(id, _)| id).collect(),
        };
        let Some(_alone) = self.scrubbing.begin() else {
            let (pool, run) = self.scrubbing.running().unwrap_or_default();
            let (name, done, total) = (self.pool_name(pool), run.done, run.total);
            let message = format!(
                "pool {name} is being scrubbed, {done} of {total}: one scrub runs at a time, see lee scrub --status"
            );
            return Err(no(libc::EBUSY, message));
        };
        let scrub = |id: PoolId| {
            let scrubbed = self.scrub_and_note(id, None, progress);
            scrubbed.map_err(|e| refuse(&e, &format!("pool {}", self.pool_name(id))))
        };
        let pools = ids.into_iter().map(scrub).collect::<Result<Vec<ScrubInfo>, Failure>>()?;
        Ok(Reply::Scrubbed { pools })
    }

    /// From now on a pool, or all, are scrubbed so often; 0: never.
    pub(super) fn scrub_every(&self, pool: Option<&str>, every_secs: u32) -> Answer {
        let id = pool.map(|name| self.data_pool_named(name)).transpose()?;
        if every_secs != 0 && every_secs < SCRUB_EVERY_SECS_MIN {
            let message = format!(
                "every {every_secs} s is too often: an hour is the least, and a month is good practice"
            );
            return Err(no(libc::EINVAL, message));
        }
        self.set_scrub_every(id, every_secs).map_err(|e| refuse(&e, pool.unwrap_or("scrubbing")))?;
        Ok(Reply::Pools { pools: self.pool_infos() })
    }
}
