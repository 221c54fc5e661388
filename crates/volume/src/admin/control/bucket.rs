//! What operators say about buckets.

use super::{Answer, no, refuse};
use crate::admin::{BucketInfo, Failure, Reply as AdminReply};
use crate::format::buckets::{BUCKETS_MAX, BucketRecord, Buckets, CORS_BYTES_MAX, PATH_BYTES_MAX};
use crate::format::keys;
use crate::shard::Shard;
use crate::state::Effect;
use crate::tx::Tx;
use leeward_env::Ctx;
use leeward_fs::Kind;
use leeward_fs::buckets::is_name;
use std::sync::Arc;

impl Shard {
    /// Buckets, as of now.
    pub(crate) fn buckets(&self) -> Arc<Buckets> {
        self.lock().buckets.clone()
    }

    pub(super) fn bucket_create(&self, name: &str, path: &str, public: bool) -> Answer {
        if !is_name(name) {
            let rule = "3 to 63 of a-z, 0-9, - and ., with a letter or digit at both ends";
            return Err(no(libc::EINVAL, format!("{name} cannot be the name of a bucket: {rule}")));
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(no(libc::ENAMETOOLONG, "the path is longer than 4095 bytes: name another".into()));
        }
        let dir = self.resolve(path).map_err(|e| refuse(&e, path))?;
        let attr = self.transact(&Ctx::system(), |tx| tx.inode(dir)).map_err(|e| refuse(&e, path))?;
        if attr.kind != Kind::Dir {
            return Err(no(libc::ENOTDIR, format!("{path} is no directory: name one")));
        }
        let all = self.buckets();
        if all.contains_key(name) {
            return Err(no(libc::EEXIST, format!("there is a bucket {name} already: lee bucket list")));
        }
        if all.len() >= BUCKETS_MAX {
            return Err(no(libc::ENOSPC, format!("a cell has at most {BUCKETS_MAX} buckets: remove some")));
        }
        let created_secs = self.now().secs;
        let record = BucketRecord { path: path.into(), created_secs, public, cors: String::new() };
        self.put_bucket(name, Some(record))
    }

    pub(super) fn bucket_set(&self, name: &str, public: Option<bool>, cors: Option<&str>) -> Answer {
        let old = self.bucket_named(name)?;
        if cors.is_some_and(|cors| cors.len() > CORS_BYTES_MAX) {
            return Err(no(libc::E2BIG, "the rules for browsers have more than 64 KiB: say less".into()));
        }
        let record = BucketRecord {
            public: public.unwrap_or(old.public),
            cors: cors.map_or_else(|| old.cors.clone(), str::to_owned),
            ..(*old).clone()
        };
        self.put_bucket(name, Some(record))
    }

    pub(super) fn bucket_remove(&self, name: &str) -> Answer {
        self.bucket_named(name)?;
        self.put_bucket(name, None)
    }

    pub(super) fn bucket_list(&self) -> Answer {
        Ok(AdminReply::Buckets { buckets: self.buckets().iter().map(|(name, b)| info(name, b)).collect() })
    }

    fn bucket_named(&self, name: &str) -> Result<Arc<BucketRecord>, Failure> {
        let found = self.buckets().get(name).cloned();
        found.ok_or_else(|| no(libc::ENOENT, format!("there is no bucket {name}: see lee bucket list")))
    }

    fn put_bucket(&self, name: &str, record: Option<BucketRecord>) -> Answer {
        let shown = record.as_ref().map(|record| info(name, record));
        let put = self.transact(&Ctx::system(), |tx| {
            put(tx, name, record.clone());
            Ok(())
        });
        put.map_err(|e| refuse(&e, "cannot be changed"))?;
        self.settle()?;
        Ok(shown.map_or(AdminReply::Done, |info| AdminReply::Buckets { buckets: vec![info] }))
    }
}

/// A volume is a bucket of its name, where S3 allows that and nothing else has it.
pub(super) fn publish_volume(tx: &mut Tx<'_>, name: &str, path: &str) {
    let all = &tx.st.buckets;
    if !is_name(name) || all.contains_key(name) || all.len() >= BUCKETS_MAX {
        return;
    }
    let created_secs = tx.now.secs;
    let record = BucketRecord { path: path.into(), created_secs, public: false, cors: String::new() };
    put(tx, name, Some(record));
}

/// Takes that back; says whether it was so.
pub(super) fn unpublish_volume(tx: &mut Tx<'_>, name: &str, path: &str) -> bool {
    let is_its = tx.st.buckets.get(name).is_some_and(|bucket| bucket.path == path);
    if is_its {
        put(tx, name, None);
    }
    is_its
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
