//! A directory that is looked at before every call: one that was moved away, or on which nothing is mounted any more, must not
//! be taken for an empty one, nor be written to.

use super::real::RealDisk;
use super::{Caching, Disk, DiskFile, Space};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory as it was when this was made. When another one, or none, has its path, all calls but those of files that are
/// open already fail with `NotConnected`; when it is back, they work again.
pub struct PinnedDisk {
    disk: RealDisk,
    root: PathBuf,
    pin: Pin,
}

/// What it is known by.
enum Pin {
    /// A file that is never removed: also when its disk was mounted anew.
    File(PathBuf),
    /// Device and inode of the directory.
    Directory(u64, u64),
}

impl PinnedDisk {
    /// The directory that has this path now. It is known by the file `mark` in it, where there is one.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(root: &Path, mark: &str) -> io::Result<PinnedDisk> {
        let meta = std::fs::metadata(root)?;
        if !meta.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let mark = root.join(mark);
        let pin = if mark.is_file() { Pin::File(mark) } else { Pin::Directory(meta.dev(), meta.ino()) };
        Ok(PinnedDisk { disk: RealDisk::new(root), root: root.into(), pin })
    }

    fn there(&self) -> io::Result<&RealDisk> {
        let is_it = match &self.pin {
            Pin::File(mark) => mark.is_file(),
            Pin::Directory(dev, ino) => {
                std::fs::metadata(&self.root).is_ok_and(|meta| (meta.dev(), meta.ino()) == (*dev, *ino))
            }
        };
        if is_it {
            return Ok(&self.disk);
        }
        let what = format!("{} is not the directory that it was: is its disk gone?", self.root.display());
        Err(io::Error::new(io::ErrorKind::NotConnected, what))
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
