//! Requests to read and verify all data: now, or by the clock.

use crate::admin::failure::about;
use crate::admin::pool::add_pools;
use crate::admin::{Caller, Concerns, Failure, PoolInfos, Reply, Request, ScrubInfo};
use crate::shard::Shard;
use leeward_data::PoolId;
use serde::{Deserialize, Serialize};

/// Shortest interval. A scrub that began again all the time would be of no use.
const SCRUB_EVERY_SECS_MIN: u32 = 3600;

/// Reads and verifies all data, with progress, and repairs what can be repaired.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scrub {
    /// The pool; `None`: all.
    pub pool: Option<String>,
}

/// What scrubbing found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrubbed {
    /// By pool.
    pub pools: Vec<ScrubInfo>,
}

impl Reply for Scrubbed {
    const KIND: &'static str = "scrubbed";
}

impl Request for Scrub {
    type Reply = Scrubbed;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut Scrubbed, other: Scrubbed) {
        for (sum, part) in all.pools.iter_mut().zip(other.pools) {
            sum.add(&part);
        }
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Scrubbed, Failure> {
        let ids: Vec<PoolId> = match &self.pool {
            Some(name) => vec![shard.pool_named(name)?],
            None => shard.pools.all().into_iter().map(|(id, _)| id).collect(),
        };
        let Some(_alone) = shard.scrubbing.begin() else {
            let (pool, run) = shard.scrubbing.running().unwrap_or_default();
            let (name, done, total) = (shard.pool_name(pool), run.done, run.total);
            let message = format!(
                "pool {name} is being scrubbed, {done} of {total}: one scrub runs at a time, see lee scrub --status"
            );
            return Err(Failure::new(libc::EBUSY, message));
        };
        let scrub = |id: PoolId| {
            let scrubbed = shard.scrub_and_note(id, None, caller.progress);
            scrubbed.map_err(|e| about(format_args!("pool {}", shard.pool_name(id)))(e))
        };
        let pools = ids.into_iter().map(scrub).collect::<Result<Vec<ScrubInfo>, Failure>>()?;
        Ok(Scrubbed { pools })
    }
}

/// Sets how often pools are scrubbed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScrubEvery {
    /// The pool; `None`: all, also those that are made later, in place of what was set for single
    /// ones.
    pub pool: Option<String>,
    /// Seconds, an hour at least; 0: never.
    pub every_secs: u32,
}

impl Request for ScrubEvery {
    type Reply = PoolInfos;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut PoolInfos, other: PoolInfos) {
        add_pools(&mut all.pools, other.pools);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<PoolInfos, Failure> {
        let ScrubEvery { pool, every_secs } = self;
        let id = pool.as_ref().map(|name| shard.data_pool_named(name)).transpose()?;
        if *every_secs != 0 && *every_secs < SCRUB_EVERY_SECS_MIN {
            let message = format!(
                "every {every_secs} s is too often: an hour is the least, and a month is good practice"
            );
            return Err(Failure::new(libc::EINVAL, message));
        }
        let what = pool.as_deref().unwrap_or("scrubbing");
        shard.set_scrub_every(id, *every_secs).map_err(about(what))?;
        Ok(PoolInfos { pools: shard.pool_infos() })
    }
}
