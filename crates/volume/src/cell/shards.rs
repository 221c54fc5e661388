//! Where the shards of a cell have their records, and how a cell gets more of them.
//!
//! The first shard is in `meta`, others are in `shards/N/meta`; the data of all is in `data`. How
//! many there are is in the file (or object) `cell`, which is written last: a shard that it does
//! not count is not there. A process that has the cell open goes on with those that it has opened;
//! the next one opens all.

use super::{META, first_batch_of_shard, open_engine};
use crate::admin::failure::Failure;
use crate::cell::identity::failure;
use crate::config::Config;
use crate::format::keys;
use crate::format::versions::FORMAT;
use leeward_env::Env;
use leeward_env::disk::held::{HeldDir, sync_names};
use leeward_meta::Kv;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The directory of the shards but the first.
const SHARDS: &str = "shards";

/// Where the engine of a shard is.
pub(crate) fn place_of(shard: usize) -> String {
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

/// Makes a shard in the directory of a cell, with nothing in it. It may be there already.
pub(super) fn make_in_dir(env: &Env, dir: &HeldDir, config: &Config, shard: usize) -> Result<(), Failure> {
    let at = |e: std::io::Error| Failure {
        message: format!("cannot make shard {shard} in {}: {e}", dir.name().display()),
        errno: e.raw_os_error().unwrap_or(0),
    };
    let place = place_of(shard);
    let path = dir.path().join(&place);
    DirBuilder::new().mode(0o700).recursive(true).create(&path).map_err(at)?;
    let named = |e: leeward_meta::Error| failure(format!("{}: {e}", path.display()));
    let kv = open_engine(env, dir, &place, config, FORMAT).map_err(named)?;
    begin(&kv, shard).and_then(|()| kv.close()).map_err(named)?;
    sync_up(dir, &path).map_err(at)
}

/// Writes the first records of a shard, if it has none: one that was begun and not finished may
/// have come this far.
pub(crate) fn begin(kv: &dyn Kv, shard: usize) -> leeward_meta::Result<()> {
    match kv.get(&keys::cell())? {
        None => kv.commit(&first_batch_of_shard(shard)),
        Some(_) => Ok(()),
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
