//! What operators ask about pools, and where volumes keep their data.

use super::{Answer, no, refuse};
use crate::admin::{Failure, PoolInfo, Progress, Reply, ScrubStatus, StoreInfo};
use crate::format::inode::{Pair, PoolRecord, StoreRecord, VolumeRecord};
use crate::format::keys;
use crate::pools::{DEFAULT, Parts, spec_of};
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::State;
use leeward_data::PoolId;
use leeward_env::Ctx;
use leeward_fs::Error;
use leeward_pool::StoreState;
use leeward_pool::place::{Place, shared};
use std::collections::BTreeSet;

/// Numbers of pools are one byte where directories name them.
const POOLS_MAX: u64 = 255;
/// Longest name of a pool.
const POOL_NAME_BYTES_MAX: usize = 64;

/// What a pool holds.
#[derive(Default)]
struct Held {
    objects: u64,
    object_bytes: u64,
    live_bytes: u64,
}

impl State {
    fn held_in(&self, id: PoolId) -> Held {
        let mut held = Held::default();
        for (_, r) in self.segments.iter().filter(|(_, r)| r.pool == id) {
            held.objects += u64::from(r.object_bytes > 0);
            held.object_bytes += r.object_bytes;
            held.live_bytes += r.live_bytes;
        }
        held
    }

    /// What still needs a pool.
    pub(super) fn why_not_empty(&self, id: PoolId, name: &str) -> Option<String> {
        let volume = self.volumes.values().find(|v| v.properties.pool == id && !v.removing);
        if let Some(VolumeRecord { name: volume, .. }) = volume {
            return Some(format!(
                "data of volume {volume} belongs in pool {name}: lee volume move-data {volume} --to POOL"
            ));
        }
        let held = self.held_in(id);
        let next = "what is in it is being moved or freed: see lee pool show";
        (held.objects > 0 || held.live_bytes > 0).then(|| {
            format!(
                "pool {name} holds {} objects, {} bytes of live data; {next} {name}",
                held.objects, held.live_bytes
            )
        })
    }

    /// Directories that name this pool name none.
    pub(crate) fn forget_dir_pool(&mut self, id: PoolId) {
        for (volume, v) in &mut self.volumes {
            let before = v.properties.dir_pools.len();
            v.properties.dir_pools.retain(|pool| PoolId::from(*pool) != id);
            if v.properties.dir_pools.len() < before {
                self.volumes_dirty.insert(*volume);
            }
        }
    }
}

impl Shard {
    /// The number of a pool.
    pub(super) fn pool_named(&self, name: &str) -> Result<PoolId, Failure> {
        if name == DEFAULT {
            return Ok(0);
        }
        let found = self.lock().pools.iter().find(|(_, r)| r.name == name).map(|(id, _)| *id);
        found.ok_or_else(|| no(libc::ENOENT, format!("there is no pool {name}: see lee pool list")))
    }

    /// The same of one that data can be in.
    pub(super) fn data_pool_named(&self, name: &str) -> Result<PoolId, Failure> {
        let id = self.pool_named(name)?;
        match self.cold_name(id) {
            None => Ok(id),
            Some(cold) => {
                let message = format!("pool {name} is the hot one in front of pool {cold}: name {cold}");
                Err(no(libc::EBUSY, message))
            }
        }
    }

    /// Its name.
    pub(crate) fn pool_name(&self, id: PoolId) -> String {
        self.lock().pool_name(id)
    }

    /// All pools, the cell's own first.
    pub(super) fn pool_infos(&self) -> Vec<PoolInfo> {
        let made: Vec<PoolId> = self.lock().pools.keys().copied().collect();
        std::iter::once(0).chain(made).map(|id| self.pool_info(id)).collect()
    }

    /// One of them.
    pub(super) fn pool_info(&self, id: PoolId) -> PoolInfo {
        let hot_of = self.cold_name(id);
        let health = self.health_of(id);
        self.look_at_space(id);
        let ((total_bytes, available_bytes), away) = match &hot_of {
            Some(cold) => self.hot_space(cold),
            None => (self.space(id), self.pools.get(id).and_then(|pool| pool.why_away())),
        };
        let scrub = if hot_of.is_some() { ScrubStatus::default() } else { self.scrub_status(id) };
        let st = self.lock();
        let held = st.held_in(id);
        let record = st.pools.get(&id);
        let store = |s: &StoreRecord| StoreInfo { slot: s.slot, url: s.url.clone(), state: s.state };
        PoolInfo {
            id,
            name: st.pool_name(id),
            layout: record.map_or_else(|| "single".into(), |r| r.layout.clone()),
            stores: record.map_or_else(Vec::new, |r| r.stores.iter().map(store).collect()),
            available_bytes: if away.is_some() { 0 } else { available_bytes },
            away,
            total_bytes,
            objects: held.objects,
            object_bytes: held.object_bytes,
            live_bytes: held.live_bytes,
            dirty_bytes: self.log.dirty_bytes_to(id),
            tier: st.tier_info(record),
            hot_of,
            scrub,
            health,
            volumes: st
                .volumes
                .values()
                .filter(|v| v.properties.pool == id)
                .map(|v| v.name.clone())
                .collect(),
        }
    }

    pub(super) fn pool_create(&self, name: &str, layout: &str, stores: &[String], force: bool) -> Answer {
        if name.is_empty() || name.len() > POOL_NAME_BYTES_MAX || name.contains(['/', '\0', '\n']) {
            let message =
                format!("{name:?} is no name for a pool: 1 to {POOL_NAME_BYTES_MAX} bytes, no slash");
            return Err(no(libc::EINVAL, message));
        }
        let taken = || no(libc::EEXIST, format!("there is a pool {name} already: choose another name"));
        if self.pool_named(name).is_ok() {
            return Err(taken());
        }
        self.check_stores(stores)?;
        if !force {
            self.check_places(stores)?;
        }
        let record = PoolRecord {
            name: name.into(),
            layout: layout.into(),
            stores: (0..).zip(stores).map(|(slot, url)| self.new_store(slot, url)).collect(),
            tier: None,
        };
        let failed = |what: String| no(libc::EINVAL, format!("pool {name} cannot be made: {what}"));
        spec_of(0, &record).map_err(failed)?;
        let id = self.next_pool().map_err(|e| refuse(&e, name))?;
        let let_go = |taken: &[StoreRecord]| taken.iter().for_each(|store| self.pools.let_go(id, store));
        for (n, store) in record.stores.iter().enumerate() {
            if let Err(why) = self.pools.take(id, store) {
                let_go(&record.stores[..n]);
                return Err(failed(why));
            }
        }
        let parts = Parts { id, record: record.clone(), hot: None };
        let opened = self.pools.open(&parts).map_err(failed).inspect_err(|_| let_go(&record.stores))?;
        let made = self.transact(&Ctx::system(), |tx| {
            if tx.st.pools.values().any(|r| r.name == name) {
                return Ok(Err(taken()));
            }
            tx.put(keys::pool(id), record.encode());
            tx.then(Effect::Pool(id, Some(record.clone())));
            if let Some(scrub) = tx.st.scrubs.of_new(tx.now.secs) {
                tx.put(keys::scrub(id), scrub.encode());
                tx.then(Effect::Scrub(id, Some(scrub)));
            }
            Ok(Ok(()))
        });
        let made = made.map_err(|e| refuse(&e, name)).flatten();
        made.inspect_err(|_| let_go(&record.stores))?;
        self.set_pool(id, Ok(opened));
        self.settle()?;
        Ok(Reply::Pool(Box::new(self.pool_info(id))))
    }

    /// Two stores of a pool that fail together are no redundancy.
    pub(super) fn check_places(&self, stores: &[String]) -> Result<(), Failure> {
        let (named, places): (Vec<&String>, Vec<Place>) =
            stores.iter().filter_map(|url| Some((url, self.pools.place(url)?))).unzip();
        if let Some((a, b)) = shared(&places).first() {
            let message = format!(
                "{} and {} are both on {}, and would be lost together: name stores on different disks, or add --force",
                named[*a], named[*b], places[*a]
            );
            return Err(no(libc::EINVAL, message));
        }
        Ok(())
    }

    /// A number for a pool, never given out again.
    fn next_pool(&self) -> leeward_fs::Result<PoolId> {
        self.transact(&Ctx::system(), |tx| {
            let id = tx
                .get(&keys::pools())?
                .map(|value| Pair::decode(&value))
                .transpose()?
                .map_or(1, |pair| pair.0);
            if id > POOLS_MAX {
                return Err(Error::NoSpace.into());
            }
            tx.put(keys::pools(), Pair(id + 1, 0).encode());
            Ok(id as PoolId)
        })
    }

    pub(super) fn new_store(&self, slot: u16, url: &str) -> StoreRecord {
        let id = u128::from(self.env.random()) << 64 | u128::from(self.env.random());
        StoreRecord { slot, id, url: url.into(), state: StoreState::Active }
    }

    /// A store is in one pool, once.
    pub(super) fn check_stores(&self, stores: &[String]) -> Result<(), Failure> {
        let mut seen = BTreeSet::new();
        if let Some(twice) = stores.iter().find(|url| !seen.insert(*url)) {
            return Err(no(libc::EINVAL, format!("{twice} is named twice: name different stores")));
        }
        let st = self.lock();
        for record in st.pools.values() {
            if let Some(used) = record.stores.iter().find(|s| seen.contains(&s.url)) {
                let message =
                    format!("{} is a store of pool {} already: name another", used.url, record.name);
                return Err(no(libc::EBUSY, message));
            }
        }
        Ok(())
    }

    pub(super) fn pool_remove(&self, name: &str) -> Answer {
        let id = self.pool_named(name)?;
        if id == 0 {
            return Err(no(
                libc::EBUSY,
                "the cell's own pool cannot be removed: it is the cell's directory".into(),
            ));
        }
        self.is_in_no_tier(id, name)?;
        let _alone = self.alone(); // nothing is moved there meanwhile
        self.settle()?;
        // what was moved out of it may be waiting to be deleted
        let _ = self.delete_garbage();
        if !self.log.has_none_of(id) {
            let message = format!("data is on its way to pool {name}: try again after lee sync");
            return Err(no(libc::EBUSY, message));
        }
        let stores = self.lock().pools.get(&id).map_or_else(Vec::new, |r| r.stores.clone());
        let removed = self.transact(&Ctx::system(), |tx| {
            if let Some(why) = tx.st.why_not_empty(id, name) {
                return Ok(Err(no(libc::EBUSY, why)));
            }
            tx.st.forget_dir_pool(id);
            tx.remove(keys::pool(id));
            tx.remove(keys::scrub(id));
            tx.remove(keys::scrub_place(id));
            tx.then(Effect::Scrub(id, None));
            tx.then(Effect::Pool(id, None));
            Ok(Ok(()))
        });
        removed.map_err(|e| refuse(&e, name))??;
        self.log.remove_pool(id);
        self.pools.remove(id);
        self.settle()?;
        stores.iter().for_each(|store| self.pools.let_go(id, store));
        Ok(Reply::Done)
    }

    pub(super) fn volume_move_data(
        &self,
        name: &str,
        to: &str,
        wait: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Answer {
        let (volume, pool) = (self.volume_named(name)?, self.data_pool_named(to)?);
        {
            let mut st = self.lock();
            let Some(v) = st.volumes.get_mut(&volume) else { return Err(refuse(&Error::Stale, name)) };
            v.properties.pool = pool;
            v.properties.dir_pools.clear();
            st.volumes_dirty.insert(volume);
            st.moves.look_again();
        }
        self.settle()?;
        self.maintenance.wake();
        if wait {
            self.move_all(volume, progress).map_err(|e| {
                let what =
                    format!("data of volume {name} is still in other pools, and goes on to be moved to {to}");
                refuse(&e, &what)
            })?;
        }
        self.volume_info(volume).map(Reply::Volume)
    }

    /// Moves until nothing of a volume is where it does not belong, but what is damaged.
    fn move_all(&self, volume: u32, progress: &mut dyn FnMut(Progress)) -> leeward_fs::Result<()> {
        let ctx = Ctx::system();
        // what is still in memory may be on its way to where the volume was
        self.sync_all(&ctx)?;
        let mut total = 0;
        loop {
            let busy = {
                let _alone = self.alone();
                self.move_step()?
            };
            let left = self.lock().misplaced(volume);
            total = total.max(left.bytes);
            progress(Progress { phase: "moving bytes".into(), done: total - left.bytes, total });
            if !busy && left.segments <= left.stuck {
                break;
            }
        }
        self.commit_now(&ctx)
    }
}
