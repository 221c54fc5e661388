//! Stores of this machine by their URLs.

use crate::pools::Opener;
use leeward_env::disk::pinned::PinnedDisk;
use leeward_env::disk::real::RealDisk;
use leeward_pool::label::LABEL;
use leeward_pool::place::Place;
use leeward_pool::{DirStore, Result, Store};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Opens `file:///DIR`.
pub struct Stores;

impl Opener for Stores {
    fn open(&self, url: &str) -> Result<Arc<dyn Store>> {
        let Some(dir) = url.strip_prefix("file://") else {
            let what = "not a store: name a directory, as file:///DIR";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what).into());
        };
        let dir = Path::new(dir);
        let label = DirStore::new(Arc::new(RealDisk::new(dir)), "").path(LABEL);
        Ok(Arc::new(DirStore::new(Arc::new(PinnedDisk::open(dir, &label)?), "")))
    }

    fn place(&self, url: &str) -> Option<Place> {
        Place::of_dir(Path::new(url.strip_prefix("file://")?)).ok()
    }
}
