//! A directory that is looked at before every call: one that was moved away, or on which nothing is mounted any more, must not
//! be taken for an empty one, nor be written to.

use super::real::RealDisk;
use super::{Caching, Disk, DiskFile, Space};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory as it was when this was made. When another one, or none, has its path, all calls but those of files that are
/// open already fail with `NotConnected`.
pub struct PinnedDisk {
    disk: RealDisk,
    root: PathBuf,
    identity: (u64, u64),
}

impl PinnedDisk {
    /// The directory that has this path now.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(root: &Path) -> io::Result<PinnedDisk> {
        let meta = std::fs::metadata(root)?;
        if !meta.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let identity = (meta.dev(), meta.ino());
        Ok(PinnedDisk { disk: RealDisk::new(root), root: root.into(), identity })
    }

    fn there(&self) -> io::Result<&RealDisk> {
        match std::fs::metadata(&self.root) {
            Ok(meta) if (meta.dev(), meta.ino()) == self.identity => Ok(&self.disk),
            _ => {
                let what =
                    format!("{} is not the directory that it was: is its disk gone?", self.root.display());
                Err(io::Error::new(io::ErrorKind::NotConnected, what))
            }
        }
    }
}

impl Disk for PinnedDisk {
    fn open(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        self.there()?.open(path, caching)
    }

    fn create(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        self.there()?.create(path, caching)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.there()?.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.there()?.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        self.there()?.list(dir)
    }

    fn list_dirs(&self, dir: &str) -> io::Result<Vec<String>> {
        self.there()?.list_dirs(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.there()?.sync_dir(dir)
    }

    fn space(&self) -> io::Result<Space> {
        self.there()?.space()
    }
}
