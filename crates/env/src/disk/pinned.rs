//! A directory whose disk may go and come back, as for the stores of pools. Before every call it is
//! checked that the path still leads to the directory, and the call is made in the very directory
//! that was checked. A directory that was moved away, or on which nothing is mounted any more, must
//! not be taken for an empty one, nor be written to. It is not held open between calls, so that its
//! disk can be unmounted.

use super::held::HeldDir;
use super::real::RealDisk;
use super::{Caching, Disk, DiskFile, Space};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory as it was when this was made. When another directory, or none, has its path, all
/// calls fail with `NotConnected`, except those of files that are open already. When the directory
/// is back, calls work again.
pub struct PinnedDisk {
    root: PathBuf,
    pin: Pin,
    /// Directories in it whose own names are known to be durable.
    durable_dirs: Mutex<BTreeSet<String>>,
}

/// How the directory is recognized.
enum Pin {
    /// By a file in it that is never removed: also works when its disk was mounted anew.
    File(String),
    /// By device and inode of the directory.
    Directory(u64, u64),
}

impl PinnedDisk {
    /// The directory that has this path now. It is recognized by the file `mark` in it, if there is
    /// one.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(root: &Path, mark: &str) -> io::Result<PinnedDisk> {
        let held = HeldDir::open(root)?;
        let meta = std::fs::metadata(held.path())?;
        let pin = match held.path().join(mark).is_file() {
            true => Pin::File(mark.into()),
            false => Pin::Directory(meta.dev(), meta.ino()),
        };
        Ok(PinnedDisk { root: root.into(), pin, durable_dirs: Mutex::default() })
    }

    /// The directory, if it has its path now, held for one call.
    fn there(&self) -> io::Result<RealDisk> {
        let is_it = |held: &HeldDir| match &self.pin {
            Pin::File(mark) => held.path().join(mark).is_file(),
            Pin::Directory(dev, ino) => {
                std::fs::metadata(held.path()).is_ok_and(|meta| (meta.dev(), meta.ino()) == (*dev, *ino))
            }
        };
        if let Some(held) = HeldDir::open(&self.root).ok().filter(is_it) {
            return Ok(RealDisk::of(held));
        }
        let what = format!("{} is not the directory that it was: is its disk gone?", self.root.display());
        Err(io::Error::new(io::ErrorKind::NotConnected, what))
    }
}

impl Disk for PinnedDisk {
    fn open(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        self.there()?.open(path, caching)
    }

    fn open_to_read(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        self.there()?.open_to_read(path, caching)
    }

    fn create(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        let disk = self.there()?;
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !parent.is_empty() && !disk.root().path().join(parent).is_dir() {
            self.durable_dirs.lock().clear(); // it is about to be made
        }
        disk.create(path, caching)
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
        let disk = self.there()?;
        if self.durable_dirs.lock().contains(dir) {
            return disk.sync_one_dir(dir);
        }
        disk.sync_dir(dir)?;
        self.durable_dirs.lock().insert(dir.into());
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        self.there()?.space()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(disk: &PinnedDisk) -> bool {
        let created = disk.create("xx/new", Caching::Buffered).map(drop);
        created.is_err_and(|e| e.kind() == io::ErrorKind::NotConnected)
    }

    #[test]
    fn another_directory_of_the_same_path_is_not_touched() {
        let above = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (above.path().join("root"), above.path().join("elsewhere"));
        std::fs::create_dir(&root).unwrap();
        assert!(PinnedDisk::open(&above.path().join("none"), "mark").is_err());
        for marked in [false, true] {
            if marked {
                std::fs::write(root.join("mark"), "").unwrap();
            }
            let disk = PinnedDisk::open(&root, "mark").unwrap();
            disk.create("xx/file", Caching::Buffered).unwrap();
            std::fs::rename(&root, &elsewhere).unwrap();
            assert!(gone(&disk) && !root.exists(), "moved away");
            std::fs::create_dir(&root).unwrap();
            assert!(gone(&disk) && disk.open("xx/file", Caching::Buffered).is_err(), "an empty one");
            assert!(disk.space().is_err() && disk.list("xx").is_err() && disk.remove("xx/file").is_err());
            std::fs::remove_dir(&root).unwrap();
            std::fs::rename(&elsewhere, &root).unwrap();
            assert_eq!(disk.list("xx").unwrap().len(), 1, "back");
        }
    }
}
