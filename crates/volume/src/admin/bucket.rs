//! Requests about buckets: which directories the S3 door publishes.

use crate::admin::failure::about;
use crate::admin::{Caller, Done, Failure, Reply, Request};
use crate::format::buckets::{BUCKETS_MAX, BucketRecord, Buckets, CORS_BYTES_MAX, PATH_BYTES_MAX};
use crate::format::keys;
use crate::shard::Shard;
use crate::state::Effect;
use crate::tx::Tx;
use leeward_env::Ctx;
use leeward_fs::Kind;
use leeward_fs::buckets::is_name;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A directory that the S3 door publishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketInfo {
    /// Name of the bucket.
    pub name: String,
    /// The directory.
    pub path: String,
    /// Since when, seconds since 1970.
    pub created_secs: i64,
    /// Whether anybody may read, as user `nobody`.
    pub public: bool,
    /// Whether there are rules for browsers.
    pub has_cors: bool,
}

/// Buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketInfos {
    /// By name.
    pub buckets: Vec<BucketInfo>,
}

impl Reply for BucketInfos {
    const KIND: &'static str = "buckets";
}

/// Publishes a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BucketCreate {
    /// Name of the bucket.
    pub name: String,
    /// The directory.
    pub path: String,
    /// Whether anybody may read, as user `nobody`.
    pub public: bool,
}

impl Request for BucketCreate {
    type Reply = BucketInfos;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<BucketInfos, Failure> {
        let BucketCreate { name, path, public } = self;
        if !is_name(name) {
            let rule = "3 to 63 of a-z, 0-9, - and ., with a letter or digit at both ends";
            let message = format!("{name} cannot be the name of a bucket: {rule}");
            return Err(Failure::new(libc::EINVAL, message));
        }
        if path.len() > PATH_BYTES_MAX {
            let message = "the path is longer than 4095 bytes: name another";
            return Err(Failure::new(libc::ENAMETOOLONG, message));
        }
        let dir = shard.node_at(path)?;
        let look = |shard: &Shard| shard.transact(&Ctx::system(), |tx| tx.inode(dir));
        let attr = shard.beside(dir, look).map_err(about(path))?;
        if attr.kind != Kind::Dir {
            return Err(Failure::new(libc::ENOTDIR, format!("{path} is no directory: name one")));
        }
        let all = shard.buckets();
        if all.contains_key(name) {
            let message = format!("there is a bucket {name} already: lee bucket list");
            return Err(Failure::new(libc::EEXIST, message));
        }
        if all.len() >= BUCKETS_MAX {
            let message = format!("a cell has at most {BUCKETS_MAX} buckets: remove some");
            return Err(Failure::new(libc::ENOSPC, message));
        }
        let (path, created_secs) = (path.clone(), shard.now().secs);
        let record = BucketRecord { path, created_secs, public: *public, cors: String::new() };
        put_one(shard, name, record)
    }
}

/// Changes a bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BucketSet {
    /// Its name.
    pub name: String,
    /// Whether anybody may read; `None`: as it was.
    pub public: Option<bool>,
    /// Rules for browsers as JSON; empty: none; `None`: as they were.
    pub cors: Option<String>,
}

impl Request for BucketSet {
    type Reply = BucketInfos;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<BucketInfos, Failure> {
        let old = bucket_named(shard, &self.name)?;
        if self.cors.as_ref().is_some_and(|cors| cors.len() > CORS_BYTES_MAX) {
            let message = "the rules for browsers have more than 64 KiB: say less";
            return Err(Failure::new(libc::E2BIG, message));
        }
        let record = BucketRecord {
            public: self.public.unwrap_or(old.public),
            cors: self.cors.clone().unwrap_or_else(|| old.cors.clone()),
            ..(*old).clone()
        };
        put_one(shard, &self.name, record)
    }
}

/// Removes a bucket. The directory stays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BucketRemove {
    /// Its name.
    pub name: String,
}

impl Request for BucketRemove {
    type Reply = Done;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        bucket_named(shard, &self.name)?;
        put_durably(shard, &self.name, None)?;
        Ok(Done {})
    }
}

/// Lists all buckets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BucketList;

impl Request for BucketList {
    type Reply = BucketInfos;

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<BucketInfos, Failure> {
        let buckets = shard.buckets().iter().map(|(name, b)| info(name, b)).collect();
        Ok(BucketInfos { buckets })
    }
}

impl Shard {
    /// Buckets, as of now.
    pub(crate) fn buckets(&self) -> Arc<Buckets> {
        self.lock().buckets.clone()
    }
}

/// Makes a volume a bucket of its name, where S3 allows the name and no other bucket has it.
pub(super) fn publish_volume(tx: &mut Tx<'_>, name: &str, path: &str) {
    let all = &tx.st.buckets;
    if !is_name(name) || all.contains_key(name) || all.len() >= BUCKETS_MAX {
        return;
    }
    let created_secs = tx.now.secs;
    let record = BucketRecord { path: path.into(), created_secs, public: false, cors: String::new() };
    put(tx, name, Some(record));
}

/// Takes [`publish_volume`] back; returns whether the volume was a bucket.
pub(super) fn unpublish_volume(tx: &mut Tx<'_>, name: &str, path: &str) -> bool {
    let is_its = tx.st.buckets.get(name).is_some_and(|bucket| bucket.path == path);
    if is_its {
        put(tx, name, None);
    }
    is_its
}

fn bucket_named(shard: &Shard, name: &str) -> Result<Arc<BucketRecord>, Failure> {
    let found = shard.buckets().get(name).cloned();
    found.ok_or_else(|| Failure::new(libc::ENOENT, format!("there is no bucket {name}: see lee bucket list")))
}

fn put_one(shard: &Shard, name: &str, record: BucketRecord) -> Result<BucketInfos, Failure> {
    let buckets = vec![info(name, &record)];
    put_durably(shard, name, Some(record))?;
    Ok(BucketInfos { buckets })
}

fn put_durably(shard: &Shard, name: &str, record: Option<BucketRecord>) -> Result<(), Failure> {
    let changed = shard.transact(&Ctx::system(), |tx| {
        put(tx, name, record.clone());
        Ok(())
    });
    changed.map_err(about("cannot be changed"))?;
    shard.settle()
}

fn put(tx: &mut Tx<'_>, name: &str, record: Option<BucketRecord>) {
    match &record {
        Some(record) => tx.put(keys::bucket(name), record.encode()),
        None => tx.remove(keys::bucket(name)),
    }
    tx.then(Effect::Bucket(name.into(), record));
}

fn info(name: &str, record: &BucketRecord) -> BucketInfo {
    let BucketRecord { path, created_secs, public, cors } = record.clone();
    BucketInfo { name: name.into(), path, created_secs, public, has_cors: !cors.is_empty() }
}
