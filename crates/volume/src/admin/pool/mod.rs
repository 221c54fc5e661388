//! Requests about pools, a file for each, and what they share.

mod create;
mod list;
mod remove;
mod store;
mod tier;
mod untier;

pub use create::PoolCreate;
pub use list::{PoolInfos, PoolList, PoolShow};
pub use remove::PoolRemove;
pub use store::{PoolStore, StoreChange};
pub use tier::PoolTier;
pub use untier::PoolUntier;

use crate::admin::scrub_status::ScrubStatus;
use crate::admin::{Failure, Reply};
use crate::format::inode::{PoolRecord, StoreRecord, TierRecord, VolumeRecord};
use crate::pools::DEFAULT;
use crate::shard::Shard;
use crate::state::State;
use leeward_data::PoolId;
use leeward_pool::location::{StoreLocation, shared};
use leeward_pool::{Health, StoreState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// So many volumes of a pool are named: there may be 100,000.
pub const NAMED_MAX: usize = 100;

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInfo {
    /// Number, never reused.
    pub id: u32,
    /// Name.
    pub name: String,
    /// How it keeps objects in its stores.
    pub layout: String,
    /// Its stores.
    pub stores: Vec<StoreInfo>,
    /// Why it cannot be reached; `None`: it can.
    pub away: Option<String>,
    /// Bytes that data can take, in all.
    pub total_bytes: u64,
    /// Bytes that users may still write.
    pub available_bytes: u64,
    /// Objects in it.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Live bytes in them, uncompressed.
    pub live_bytes: u64,
    /// Bytes in memory on their way to it.
    pub dirty_bytes: u64,
    /// How many volumes have their data there.
    #[serde(default)]
    pub volume_count: u64,
    /// The first [`NAMED_MAX`] of them.
    pub volumes: Vec<String>,
    /// State of its stores; `None`: it is away, or it is the cell's own pool.
    pub health: Option<Health>,
    /// The hot pool in front of it. `health` has the state of that pool.
    #[serde(default)]
    pub tier: Option<TierInfo>,
    /// The pool that it is in front of.
    #[serde(default)]
    pub hot_of: Option<String>,
    /// When its data is read and verified. A hot pool is scrubbed with the pool behind it.
    #[serde(default)]
    pub scrub: ScrubStatus,
}

impl PoolInfo {
    /// Adds what another shard has in the same pool.
    fn add(&mut self, mut other: PoolInfo) {
        self.objects += other.objects;
        self.object_bytes += other.object_bytes;
        self.live_bytes += other.live_bytes;
        self.dirty_bytes += other.dirty_bytes;
        self.volume_count += other.volume_count;
        self.volumes.append(&mut other.volumes);
        self.volumes.truncate(NAMED_MAX);
        self.scrub.late |= other.scrub.late;
        self.scrub.error = self.scrub.error.take().or(other.scrub.error);
    }
}

/// Adds what another shard has in pools.
pub(in crate::admin) fn add_pools(all: &mut [PoolInfo], others: Vec<PoolInfo>) {
    for other in others {
        if let Some(pool) = all.iter_mut().find(|pool| pool.id == other.id) {
            pool.add(other);
        }
    }
}

impl Reply for PoolInfo {
    const KIND: &'static str = "pool";
}

/// A store of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// Its place in the layout.
    pub slot: u16,
    /// Where it is.
    pub url: String,
    /// What the pool does with it.
    pub state: StoreState,
}

/// A hot pool in front of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierInfo {
    /// Name of the hot pool.
    pub hot: String,
    /// Above this share of the hot pool, data is copied to the cold one.
    pub flush_percent: u8,
    /// Above this share, copied data is deleted from the hot pool.
    pub evict_percent: u8,
    /// Whether the hot pool is being emptied, to become a pool by itself.
    pub ending: bool,
}

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
    fn why_not_empty(&self, id: PoolId, name: &str) -> Option<String> {
        let volume = self.volumes.values().find(|v| v.properties.pool == id && !v.removing);
        if let Some(VolumeRecord { name: volume, .. }) = volume {
            return Some(format!(
                "data of volume {volume} belongs in pool {name}: lee volume move-data {volume} --to POOL"
            ));
        }
        if let Some((_, project)) = self.projects.iter().find(|(_, record)| record.pool == id) {
            let project = &project.name;
            return Some(format!(
                "new volumes of project {project} go into pool {name}: lee project set {project} --pool POOL"
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

    fn tier_info(&self, record: Option<&PoolRecord>) -> Option<TierInfo> {
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
    /// The name of a pool.
    pub(crate) fn pool_name(&self, id: PoolId) -> String {
        self.lock().pool_name(id)
    }

    /// The number of a pool.
    pub(super) fn pool_named(&self, name: &str) -> Result<PoolId, Failure> {
        if name == DEFAULT {
            return Ok(0);
        }
        let found = self.lock().pools.iter().find(|(_, r)| r.name == name).map(|(id, _)| *id);
        found.ok_or_else(|| Failure::new(libc::ENOENT, format!("there is no pool {name}: see lee pool list")))
    }

    /// The number of a pool that volumes may name: of any but a hot one.
    pub(super) fn data_pool_named(&self, name: &str) -> Result<PoolId, Failure> {
        let id = self.pool_named(name)?;
        match self.cold_name(id) {
            None => Ok(id),
            Some(cold) => {
                let message = format!("pool {name} is the hot one in front of pool {cold}: name {cold}");
                Err(Failure::new(libc::EBUSY, message))
            }
        }
    }

    /// The name of the pool behind a hot one.
    fn cold_name(&self, hot: PoolId) -> Option<String> {
        let st = self.lock();
        st.cold_of(hot).map(|cold| st.pool_name(cold))
    }

    /// All pools, the cell's own first.
    pub(super) fn pool_infos(&self) -> Vec<PoolInfo> {
        let made: Vec<PoolId> = self.lock().pools.keys().copied().collect();
        std::iter::once(0).chain(made).map(|id| self.pool_info(id)).collect()
    }

    fn pool_info(&self, id: PoolId) -> PoolInfo {
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
        let mut volumes = st.volumes.values().filter(|v| v.properties.pool == id);
        let named: Vec<String> = volumes.by_ref().take(NAMED_MAX).map(|v| v.name.clone()).collect();
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
            volume_count: (named.len() + volumes.count()) as u64,
            volumes: named,
        }
    }

    /// Total and available bytes of the hot pool in front of this one, or why it cannot be asked.
    fn hot_space(&self, cold: &str) -> ((u64, u64), Option<String>) {
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

    fn check_is_in_no_tier(&self, id: PoolId, name: &str) -> Result<(), Failure> {
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
        Err(Failure::new(libc::EBUSY, message))
    }

    /// Opens a pool again as its record says now.
    fn reopen(&self, id: PoolId, name: &str) -> Result<(), Failure> {
        let opened = self.open_pool(id);
        let (id, opened) = opened.map_err(|why| Failure::new(libc::EIO, format!("pool {name}: {why}")))?;
        self.set_pool(id, Ok(opened));
        self.search_later([id]);
        self.pool_repair.wake();
        Ok(())
    }

    fn new_store(&self, slot: u16, url: &str) -> StoreRecord {
        let id = u128::from(self.env.random()) << 64 | u128::from(self.env.random());
        StoreRecord { slot, id, url: url.into(), state: StoreState::Active }
    }

    /// A store is in one pool, once.
    fn check_stores(&self, stores: &[String]) -> Result<(), Failure> {
        let mut seen = BTreeSet::new();
        if let Some(twice) = stores.iter().find(|url| !seen.insert(*url)) {
            let message = format!("{twice} is named twice: name different stores");
            return Err(Failure::new(libc::EINVAL, message));
        }
        let st = self.lock();
        for record in st.pools.values() {
            if let Some(used) = record.stores.iter().find(|s| seen.contains(&s.url)) {
                let message =
                    format!("{} is a store of pool {} already: name another", used.url, record.name);
                return Err(Failure::new(libc::EBUSY, message));
            }
        }
        Ok(())
    }

    /// Two stores that fail together are no redundancy.
    fn check_places(&self, stores: &[String]) -> Result<(), Failure> {
        let (named, places): (Vec<&String>, Vec<StoreLocation>) =
            stores.iter().filter_map(|url| Some((url, self.pools.place(url)?))).unzip();
        if let Some((a, b)) = shared(&places).first() {
            let message = format!(
                "{} and {} are both on {}, and would be lost together: name stores on different disks, or add --force",
                named[*a], named[*b], places[*a]
            );
            return Err(Failure::new(libc::EINVAL, message));
        }
        Ok(())
    }
}
