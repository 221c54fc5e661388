//! A cell in a bucket of an object store: `PREFIX/cell` identifies it, `PREFIX/meta` has the
//! metadata, `PREFIX/data` the segments, `PREFIX/leeward.toml` the settings if there are any.
//!
//! Opening a cell takes it over: the engine of a process that had it open is fenced.
//! docs/decisions/0016 says why nothing that such a process still writes or deletes can do harm.

use crate::admin::failure::{Failure, refused};
use crate::cell::engines::{open_in_bucket, place_of};
use crate::cell::identity::{self, Identity};
use crate::cell::kept_identity::KeptIdentity;
use crate::cell::{Start, failure, first_batch_of_caller, parts_without_identity};
use crate::format::inode::Pair;
use crate::format::keys;
use crate::format::versions::FORMAT_KEPT;
use crate::pools::stores::{self, Stores};
use crate::{Cell, Config, store_check};
use bytes::Bytes;
use leeward_bucket::{Bucket, Error};
use leeward_env::Env;
use leeward_meta::slate::SlateKv;
use leeward_meta::{Batch, Kv};
use leeward_pool::S3Store;
use std::sync::Arc;

/// Longest time between a write and its commit without fsync, if the settings have none: each
/// commit is an object, and each seal.
pub const COMMIT_INTERVAL_MS: u32 = 1000;
/// The settings, which an administrator may have put there.
pub const SETTINGS: &str = "leeward.toml";
/// Who serves the cell: a note for people, which nothing relies on.
pub const SERVED: &str = "served";
/// What several servers of the cell know of each other, which is theirs.
pub const SERVERS: &str = "servers/";
/// Names that may be below a prefix before it becomes a cell.
const OTHERS: [&str; 6] = [SETTINGS, SERVED, SERVERS, META, DATA, identity::NEW];
const META: &str = "meta/";
const DATA: &str = "data/";

impl Cell {
    /// Whether there is a cell. Answers within seconds.
    pub fn exists_in(bucket: &Bucket) -> Result<bool, Failure> {
        Ok(bucket.look(identity::NAME).map_err(refused)?.is_some())
    }

    /// Makes a new cell below a prefix where nothing else is. Its root belongs to the calling user.
    /// If several processes do so at the same time, all succeed or fail with the same cell. Nothing
    /// that exists is removed.
    pub fn create_in(env: &Env, bucket: &Bucket, config: &Config) -> Result<(), Failure> {
        let place = bucket.place();
        let names = bucket.names().map_err(refused)?;
        if let Some(other) = names.iter().find(|name| !OTHERS.contains(&name.as_str())) {
            let what =
                if other == identity::NAME { "already holds a cell" } else { "is not a cell and not empty" };
            return Err(failure(format!("{place} {what} ({other} is in it): name another prefix")));
        }
        let is_begun = names.iter().any(|name| name == identity::NEW);
        // nothing was ever stored in a cell whose creation was interrupted
        let strange = |name: &&String| *name == DATA || *name == META && !is_begun;
        if let Some(part) = names.iter().find(strange) {
            return Err(failure(parts_without_identity(&place.to_string(), part)));
        }
        store_check::check(env, bucket)?;
        let mut text = Identity::new(env).to_text()?.into();
        match bucket.create(identity::NEW, Bytes::clone(&text)) {
            Err(Error::Exists(_)) => {
                text = bucket.get(identity::NEW).map_err(refused)?.unwrap_or(text);
            }
            other => other.map_err(refused)?,
        }
        let kv = open_in_bucket(env, bucket, &place_of(0), config)?;
        let at = |e: leeward_meta::Error| failure(format!("cannot make a cell in {place}: {e}"));
        // an interrupted creation, or a concurrent one, may have come this far
        if kv.get(&keys::cell()).map_err(at)?.is_none() {
            kv.commit(&first_batch_of_caller(env)).map_err(at)?;
        }
        drop(kv);
        match bucket.create(identity::NAME, text) {
            Err(Error::Exists(_)) => {}
            other => other.map_err(refused)?,
        }
        bucket.delete(identity::NEW).map_err(refused)
    }

    /// Refuses a store in which two may win that replace an object at the same time: there several
    /// servers would believe that the cell is theirs.
    ///
    /// # Errors
    /// Which store it is, what it does, and what to use instead; or what the store says.
    pub fn check_for_servers(env: &Env, bucket: &Bucket) -> Result<(), Failure> {
        store_check::check_for_servers(env, bucket).map_err(|broken| broken.failure)
    }

    /// The format of a cell; 0: there is no cell yet. Answers within seconds.
    ///
    /// # Errors
    /// The store's; the cell is of a newer program.
    pub fn format_in(bucket: &Bucket) -> Result<u32, Failure> {
        match bucket.look(identity::NAME).map_err(refused)? {
            Some(text) => parsed(bucket, &text).map(|identity| identity.format),
            None => Ok(0),
        }
    }

    /// Opens a cell, taking it over from a process that has it open, and starts its threads.
    ///
    /// `ownership`: of several servers of the cell, the number of this one's turn; none: it is the
    /// only one. A cell that has a later one, or has had this, is another's (docs/decisions/0038,
    /// O16 to O18).
    ///
    /// # Errors
    /// The store's; `ESTALE`: the cell is another's.
    pub fn open_in(
        env: &Env,
        bucket: &Bucket,
        config: &Config,
        ownership: Option<u64>,
    ) -> Result<Arc<Cell>, Failure> {
        let place = bucket.place();
        let open = |shard: usize, count: usize| {
            let kv = open_in_bucket(env, bucket, &place_of(shard), &config.of_shards(count))?;
            if let Some(number) = ownership {
                own(&kv, number, place)?;
            }
            Ok::<_, Failure>(Box::new(kv) as Box<dyn Kv>)
        };
        // refused before anybody is fenced
        let mut kvs = vec![open(0, identity_in(bucket)?.shards)?];
        // again: whoever had the cell until it was fenced may have raised its format, or added
        // shards
        let identity = identity_in(bucket)?;
        for shard in 1..identity.shards {
            kvs.push(open(shard, identity.shards)?);
        }
        let (id, identity_shards) = (identity.id.clone(), identity.shards);
        let mut identity = KeptIdentity::Bucket(bucket.clone(), identity);
        let format = identity.raise(FORMAT_KEPT)?;
        let store = Arc::new(S3Store::new(bucket.clone(), "data"));
        let put_threads = stores::put_threads(true);
        let config = &config.of_shards(identity_shards);
        let start = Start { id: &id, format, opener: Arc::new(Stores), put_threads };
        let cell = Cell::start_threads(env, kvs, store, config, start).map_err(|e| Failure {
            message: format!("cannot open the cell in {place}: {e}"),
            errno: e.errno(),
        })?;
        *cell.shard.identity.lock() = identity;
        cell.use_disk_cache(&id, true);
        Ok(cell)
    }
}

/// The identity of the cell below a prefix. Refuses that of a newer program.
fn identity_in(bucket: &Bucket) -> Result<Identity, Failure> {
    let place = bucket.place();
    let Some(text) = bucket.look(identity::NAME).map_err(refused)? else {
        let message =
            format!("{place}: no cell there: name the URL of one, or make one with `lee up {place}`");
        return Err(Failure { message, errno: libc::ENOENT });
    };
    parsed(bucket, &text)
}

fn parsed(bucket: &Bucket, text: &[u8]) -> Result<Identity, Failure> {
    let place = bucket.place().to_string();
    Identity::parse(text, &format!("{place}/{}", identity::NAME), &place)
}

/// Notes whose the cell is from now on, durably, before anybody is answered.
fn own(kv: &SlateKv, number: u64, place: &leeward_bucket::Location) -> Result<(), Failure> {
    let at = |e: leeward_fs::Error| Failure {
        message: format!("cannot open the cell in {place}: {e}"),
        errno: e.errno(),
    };
    let before = kv.get(&keys::ownership()).map_err(|e| at(e.into()))?;
    let before = before.map(|value| Pair::decode(&value)).transpose().map_err(at)?.unwrap_or_default();
    if before.0 >= number {
        let message =
            format!("{place} is another server's: its turn {} is after this one's, {number}", before.0);
        return Err(Failure { message, errno: libc::ESTALE });
    }
    let writes = vec![(keys::ownership(), Some(Pair(number, 0).encode()))];
    kv.commit(&Batch { writes, inline_data: Vec::new() }).map_err(|e| at(e.into()))
}
