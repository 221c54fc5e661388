//! The cache of file data on a disk of this machine, from the settings. Disposable: without it
//! everything works.

use crate::Config;
use crate::cell::Cell;
use leeward_data::{DiskCache, open_cache_apart};
use leeward_env::disk::real::RealDisk;
use leeward_env::{Env, FileLock};
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

/// The file that the process which uses the cache locks.
const LOCK: &str = "leeward.lock";

impl Cell {
    /// Begins to use the cache in the settings, in a cell with this id. If it cannot be opened the
    /// cell runs without; if its disk hangs, until it does not.
    pub(crate) fn use_disk_cache(&self, id: &str, own_is_remote: bool) {
        let (shard, config) = (&self.shard, &self.shard.config);
        if config.disk_cache.is_empty() {
            return;
        }
        let of: Vec<_> = self.shards().map(Arc::downgrade).collect();
        let cache_lock = self.cache_lock.clone();
        let (env, id, config) = (shard.env.clone(), id.to_string(), config.clone());
        let dir = config.disk_cache.clone();
        open_cache_apart(&shard.env, (&dir, "the stores"), move || {
            let (cache, lock) = open(&env, &id, &config)?;
            let cache = Arc::new(cache);
            for shard in of {
                let Some(shard) = shard.upgrade() else { return Ok(()) }; // closed meanwhile
                shard.log.use_disk_cache(cache.clone());
                // data on disks of this machine is not cached on another disk
                let is_far = |pool| if pool == 0 { own_is_remote } else { shard.is_remote(pool) };
                shard.pools.all().into_iter().for_each(|(pool, _)| cache.serve(pool, is_far(pool)));
            }
            *cache_lock.lock() = Some(lock);
            Ok(())
        });
    }
}

fn open(env: &Env, id: &str, config: &Config) -> io::Result<(DiskCache, FileLock)> {
    std::fs::create_dir_all(&config.disk_cache)?;
    let disk = RealDisk::open(&config.disk_cache)?;
    let path = disk.root().path().join(LOCK);
    let lock = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    let lock = FileLock::try_take(lock).map_err(|e| match e {
        TryLockError::WouldBlock => io::Error::other("another process uses it"),
        TryLockError::Error(e) => e,
    })?;
    let bytes = u64::from(config.disk_cache_mib) << 20;
    let cache = DiskCache::open(env, &disk, &config.disk_cache, id, bytes)?;
    Ok((cache, lock))
}
