//! Where the shards of a cell in a directory have their records, and how a cell gets more of them.
//!
//! The first shard is in `meta`, others are in `shards/N/meta`; the data of all is in `data`. How
//! many there are is in the file `cell`, which is written last: a shard that it does not count is
//! not there.

use super::{META, first_batch_of_shard, hold, lock, open_engine};
use crate::admin::failure::Failure;
use crate::cell::Cell;
use crate::cell::identity::{self, failure};
use crate::config::Config;
use crate::format::inode::{Counters, PoolRecord};
use crate::format::keys::{self, Table};
use crate::format::{each, versions};
use leeward_env::Env;
use leeward_env::disk::held::{HeldDir, sync_names};
use leeward_fs::{SHARDS_MAX, VOLUMES_OF_SHARD};
use leeward_meta::Kv;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The directory of the shards but the first.
const SHARDS: &str = "shards";

/// Where the engine of a shard is.
pub(super) fn place_of(shard: usize) -> String {
    if shard == 0 { META.into() } else { format!("{SHARDS}/{shard}/{META}") }
}

impl Config {
    /// The settings of each of so many shards, which share the memory.
    pub(crate) fn of_shards(&self, count: usize) -> Config {
        let share = |mib: u32| (mib / count as u32).max(1);
        Config {
            dirty_mib: share(self.dirty_mib),
            cache_mib: share(self.cache_mib),
            metadata_cache_mib: share(self.metadata_cache_mib),
            ..self.clone()
        }
    }
}

impl Cell {
    /// Gives a cell that nobody has open so many more shards. Returns how many it has then. Older
    /// programs refuse it from then on.
    ///
    /// # Errors
    /// It is in use; it would have more than [`SHARDS_MAX`]; it has what cells of several shards
    /// cannot have: more volumes than numbers of one shard, tiers, limits of users in all volumes.
    pub fn add_shards(env: &Env, dir: &Path, config: &Config, more: usize) -> Result<usize, Failure> {
        let dir = &hold(dir)?;
        let name = dir.name().display();
        identity::check(dir)?;
        let _lock = lock(env, dir)?;
        let identity = identity::check(dir)?;
        let count = identity.shards + more;
        if count > SHARDS_MAX {
            let why = format!("{name} has {} shards, and {SHARDS_MAX} are the most", identity.shards);
            return Err(failure(why));
        }
        let named = |e: leeward_meta::Error| failure(format!("{name}: {e}"));
        let first = open_engine(env, dir, META, config, identity.format).map_err(named)?;
        check_first(&first).map_err(|why| failure(format!("{name} cannot have several shards: {why}")))?;
        drop(first);
        for shard in identity.shards..count {
            let at = |e: std::io::Error| Failure {
                message: format!("cannot make shard {shard} in {name}: {e}"),
                errno: e.raw_os_error().unwrap_or(0),
            };
            let place = place_of(shard);
            let path = dir.path().join(&place);
            DirBuilder::new().mode(0o700).recursive(true).create(&path).map_err(at)?;
            let kv = open_engine(env, dir, &place, config, versions::FORMAT).map_err(named)?;
            // one that was begun and not finished may have come this far
            if kv.get(&keys::cell()).map_err(named)?.is_none() {
                kv.commit(&first_batch_of_shard(shard)).map_err(named)?;
            }
            kv.close().map_err(named)?;
            sync_up(dir, &path).map_err(at)?;
        }
        identity::replace(dir, &identity.of_shards(count))?;
        Ok(count)
    }
}

/// Makes the names on the way to a directory durable.
fn sync_up(dir: &HeldDir, path: &Path) -> std::io::Result<()> {
    let mut at = path.to_path_buf();
    while at.pop() && at.starts_with(dir.path()) {
        sync_names(&at)?;
    }
    Ok(())
}

/// Whether the first shard has nothing that a cell of several cannot have.
fn check_first(kv: &dyn Kv) -> Result<(), String> {
    let text = |e: leeward_fs::Error| e.to_string();
    let counters = kv.get(&keys::cell()).map_err(|e| e.to_string())?.unwrap_or_default();
    let Counters { next_volume, .. } = Counters::decode(&counters).map_err(text)?;
    if next_volume > VOLUMES_OF_SHARD {
        return Err(format!(
            "it has given out {next_volume} numbers of volumes, a shard has {VOLUMES_OF_SHARD}"
        ));
    }
    let moment = kv.moment();
    let mut tier = None;
    let pools = keys::table_range(Table::Pool);
    let seen = each(&*moment, pools, |_, value| {
        let record = PoolRecord::decode(value)?;
        tier = tier.take().or(record.tier.is_some().then_some(record.name));
        Ok(())
    });
    seen.map_err(text)?;
    if let Some(pool) = tier {
        return Err(format!("pool {pool} is a tier: lee pool untier ends that"));
    }
    let mut of_cell = 0;
    let limits = each(&*moment, keys::table_range(Table::OwnerLimit), |key, _| {
        of_cell += usize::from(keys::parse_owned(key).is_some_and(|(volume, _)| volume.is_none()));
        Ok(())
    });
    limits.map_err(text)?;
    match of_cell {
        0 => Ok(()),
        _ => {
            Err(format!("{of_cell} users or groups have limits in all volumes together: set them by volume"))
        }
    }
}
