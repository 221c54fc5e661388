//! Where the shards of a cell have their records, how their engines are opened, and how a cell gets
//! more of them.
//!
//! The first shard is in `meta`, others are in `shards/N/meta`; the data of all is in `data`. How
//! many there are is in the file (or object) `cell`, which is written last: a shard that it does
//! not count is not there. A process that has the cell open goes on with those that it has opened;
//! the next one opens all.

use crate::admin::failure::Failure;
use crate::cell::identity::failure;
use crate::config::Config;
use crate::format::inode::Pair;
use crate::format::keys;
use crate::format::versions::{FORMAT, FORMAT_JOURNAL_2};
use leeward_bucket::Bucket;
use leeward_env::Env;
use leeward_env::disk::Disk;
use leeward_env::disk::held::{HeldDir, sync_names};
use leeward_env::disk::real::RealDisk;
use leeward_fs::VOLUMES_OF_SHARD;
use leeward_meta::slate::{SlateKv, SlateOptions};
use leeward_meta::{Batch, Kv};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

/// The engine of the first shard.
pub(crate) const META: &str = "meta";
/// The file that holds the space reserve for removal on a full disk, see [`Kv::reserve`].
const RESERVE: &str = "meta/reserve";
/// The directory of the shards but the first.
const SHARDS: &str = "shards";

/// Where the engine of a shard is.
pub(crate) fn place_of(shard: usize) -> String {
    if shard == 0 { META.into() } else { format!("{SHARDS}/{shard}/{META}") }
}

impl Config {
    /// The settings of each of so many shards, which share the memory: a segment, and as much of
    /// the others as settings may say, each has in any case.
    pub(crate) fn of_shards(&self, count: usize) -> Config {
        let share = |mib: u32, least: u32| (mib / count as u32).max(least.min(mib));
        Config {
            dirty_mib: share(self.dirty_mib, 16),
            cache_mib: share(self.cache_mib, 8),
            metadata_cache_mib: share(self.metadata_cache_mib, 8),
            ..self.clone()
        }
    }
}

/// Makes a shard in the directory of a cell, with nothing in it. It may be there already.
pub(crate) fn make_in_dir(env: &Env, dir: &HeldDir, config: &Config, shard: usize) -> Result<(), Failure> {
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

/// Makes a shard in the bucket of a cell, with nothing in it. It may be there already.
pub(crate) fn make_in_bucket(
    env: &Env,
    bucket: &Bucket,
    config: &Config,
    shard: usize,
) -> Result<(), Failure> {
    let kv = open_in_bucket(env, bucket, &place_of(shard), config)?;
    let made = begin(&kv, shard).and_then(|()| kv.close());
    made.map_err(|e| failure(format!("cannot make shard {shard} in {}: {e}", bucket.place())))
}

/// Opens the engine at a place in the bucket.
pub(crate) fn open_in_bucket(
    env: &Env,
    bucket: &Bucket,
    place: &str,
    config: &Config,
) -> Result<SlateKv, Failure> {
    let options =
        SlateOptions { cache_bytes: u64::from(config.metadata_cache_mib) << 19, ..SlateOptions::default() };
    SlateKv::open(env, bucket.objects(), place, &bucket.place().to_string(), &options)
        .map_err(|e| failure(format!("cannot open the metadata in {}: {e}", bucket.place())))
}

/// Opens the engine at a place in a directory.
pub(crate) fn open_engine(
    env: &Env,
    dir: &HeldDir,
    place: &str,
    config: &Config,
    format: u32,
) -> leeward_meta::Result<leeward_meta::lsm::LsmKv> {
    let disk = Arc::new(RealDisk::open(dir.path().join(place))?);
    let tables = disk.root().path().join("tables");
    let mut options = leeward_meta::lsm::Options {
        cache_bytes: u64::from(config.metadata_cache_mib) << 19,
        ..leeward_meta::lsm::Options::default()
    };
    // a small disk gets a small journal
    let space = disk.space()?;
    let file_bytes = (space.total_bytes / 128).clamp(1 << 20, 4 << 20) & !0xfff;
    if space.available_bytes < 4 * file_bytes {
        // opening a cell on a full disk takes some space: the reserve is there for that
        let reserve = disk.open(RESERVE, leeward_env::disk::Caching::Buffered);
        reserve.and_then(|file| file.truncate(0)).or_else(absent_is_fine)?;
    }
    options.engine.journal.file_bytes = file_bytes;
    options.engine.journal.may_be_old = format < FORMAT_JOURNAL_2;
    options.engine.journal_bytes = 16 * file_bytes;
    leeward_meta::lsm::LsmKv::open(env.clone(), disk, &tables, options)
}

fn absent_is_fine(e: std::io::Error) -> std::io::Result<()> {
    if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) }
}

/// The first records of another shard than the first: its counters.
pub fn first_batch_of_shard(shard: usize) -> Batch {
    let first = u64::from(VOLUMES_OF_SHARD) * shard as u64;
    Batch {
        writes: vec![
            (keys::cell(), Some(Pair(first, 1).encode())),
            (keys::owners_counted(), Some(Pair(1, 0).encode())),
        ],
        inline_data: Vec::new(),
    }
}
