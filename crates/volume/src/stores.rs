//! Stores of this machine by their URLs.

use crate::pools::Opener;
use leeward_env::disk::real::RealDisk;
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
        if !Path::new(dir).metadata()?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory).into());
        }
        Ok(Arc::new(DirStore::new(Arc::new(RealDisk::new(Path::new(dir))), "")))
    }
}
