//! Stores by their URLs: directories of this machine, and buckets.

use crate::pools::Opener;
use leeward_bucket::{Bucket, BucketUrl, Location as BucketLocation};
use leeward_env::disk::held::sync_names;
use leeward_env::disk::pinned::PinnedDisk;
use leeward_pool::label::LABEL;
use leeward_pool::location::StoreLocation;
use leeward_pool::{DirStore, Error, Result, S3Store, Store};
use std::path::Path;
use std::sync::Arc;

/// Opens `file:///DIR` and `s3://BUCKET/PREFIX`; the endpoint and keys of a bucket come from the
/// environment, or from the profile that the URL names.
pub struct Stores;

impl Opener for Stores {
    fn open(&self, url: &str) -> Result<Arc<dyn Store>> {
        if BucketUrl::is_meant(url) {
            return open_bucket(url);
        }
        let Some(dir) = url.strip_prefix("file://") else {
            let what = "not a store: name a directory, as file:///DIR, or a bucket, as s3://BUCKET/PREFIX";
            return Err(Error::Refused(what.into()));
        };
        let dir = Path::new(dir);
        let label = DirStore::path_below("", LABEL);
        if !dir.join(&label).exists() {
            // it is about to get its first objects, and may itself be new
            sync_names(dir)?;
        }
        Ok(Arc::new(DirStore::new(Arc::new(PinnedDisk::open(dir, &label)?), "")))
    }

    fn place(&self, url: &str) -> Option<StoreLocation> {
        if BucketUrl::is_meant(url) {
            return Some(StoreLocation::of_endpoint(&BucketLocation::find(url).ok()?.host()));
        }
        StoreLocation::of_dir(Path::new(url.strip_prefix("file://")?)).ok()
    }
}

/// Opens a bucket; an error comes within seconds.
fn open_bucket(url: &str) -> Result<Arc<dyn Store>> {
    let bucket = BucketLocation::find(url).and_then(|place| Bucket::new(&place));
    let store = S3Store::new(bucket.map_err(|e| Error::Refused(e.to_string()))?, "");
    store.reach()?;
    Ok(Arc::new(store))
}

/// Segments that are put to a pool at a time. To buckets, as many as there is memory for, and more
/// if they are small: each takes long.
pub fn put_threads(remote: bool) -> usize {
    if remote { 16 } else { 2 }
}

/// Whether a store is not on a disk of this machine.
pub fn is_remote(url: &str) -> bool {
    BucketUrl::is_meant(url)
}
