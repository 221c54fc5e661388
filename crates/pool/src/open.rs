//! Stores by URL.

use crate::{DirStore, Error, Result, S3Store, Store};
use leeward_bucket::{Bucket, BucketUrl, Place};
use leeward_env::Env;
use leeward_env::disk::real::RealDisk;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The store at `file:///DIR` or `s3://BUCKET/PREFIX`; endpoint, region and credentials of a bucket come from the environment.
/// Objects are below the directory or the prefix itself. Asks nothing of the store: whether it is there shows at the first
/// call. A directory must exist.
///
/// # Errors
/// Refused: the URL or the environment make no sense; Io: no such directory.
pub fn open_store(_env: &Env, url: &str) -> Result<Arc<dyn Store>> {
    if BucketUrl::is_meant(url) {
        let bucket = Place::find(url).and_then(|place| Bucket::new(&place));
        return Ok(Arc::new(S3Store::new(bucket.map_err(|e| Error::Refused(e.to_string()))?, "")));
    }
    let Some(dir) = url.strip_prefix("file://").filter(|dir| dir.starts_with('/')) else {
        return Err(Error::Refused(format!("{url}: write file:///DIR or s3://BUCKET/PREFIX")));
    };
    if !Path::new(dir).is_dir() {
        return Err(Error::Io(io::Error::new(io::ErrorKind::NotFound, format!("{dir}: no such directory"))));
    }
    Ok(Arc::new(DirStore::new(Arc::new(RealDisk::new(Path::new(dir))), "")))
}
