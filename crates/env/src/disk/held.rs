//! A directory that is held open, so that it stays the same one whatever happens to its path.
//!
//! A cell is in a directory that others can rename, or whose disk they can unmount lazily, while
//! the cell is served. A write by path would then go to another directory. So a path is resolved
//! once, and everything is done below [`HeldDir::path`], which the kernel resolves to the directory
//! itself: `/proc/self/fd/N`. It works for every call that takes a path, those of libraries
//! included.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory, held open. Its file system cannot be unmounted meanwhile, except lazily.
#[derive(Debug)]
pub struct HeldDir {
    dir: File,
    path: PathBuf,
    name: PathBuf,
}

impl HeldDir {
    /// Holds the directory that has this path now.
    ///
    /// # Errors
    /// When there is none, or it may not be entered; `Unsupported` where /proc is not mounted.
    pub fn open(name: &Path) -> io::Result<HeldDir> {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let dir = OpenOptions::new().read(true).custom_flags(flags).open(name)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        let (held, by_fd) = (dir.metadata()?, std::fs::metadata(&path));
        if !by_fd.is_ok_and(|m| (m.dev(), m.ino()) == (held.dev(), held.ino())) {
            let what = "/proc is not mounted: mount it (mount -t proc proc /proc)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        Ok(HeldDir { dir, path, name: name.into() })
    }

    /// Another hold of the same directory.
    ///
    /// # Errors
    /// When the process has too many files open.
    pub fn again(&self) -> io::Result<HeldDir> {
        let dir = self.dir.try_clone()?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        Ok(HeldDir { dir, path, name: self.name.clone() })
    }

    /// A path that stands for the directory in every call of this process, as long as this lives.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path that it had at first, for messages.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Whether the path leads to this directory now.
    pub fn is_at(&self, path: &Path) -> bool {
        let key = |m: std::fs::Metadata| (m.dev(), m.ino());
        match (self.dir.metadata(), std::fs::metadata(path)) {
            (Ok(held), Ok(there)) => key(held) == key(there),
            _ => false,
        }
    }
}

impl AsRawFd for HeldDir {
    fn as_raw_fd(&self) -> RawFd {
        self.dir.as_raw_fd()
    }
}

/// Makes the name of a directory durable, and those of the directories above it on the same file
/// system: otherwise a power cut may remove a directory that was just made. Directories that may
/// not be opened are left out; their owner has made them.
///
/// # Errors
/// The file system's.
pub fn sync_names(dir: &Path) -> io::Result<()> {
    let dir = dir.canonicalize()?;
    let device = std::fs::metadata(&dir)?.dev();
    for above in dir.ancestors().skip(1) {
        match File::open(above) {
            Ok(file) if file.metadata()?.dev() == device => file.sync_all()?,
            Ok(_) => break,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Makes a directory and its missing parents, with this mode, and makes their names durable.
///
/// # Errors
/// The file system's.
pub fn make_durable_dirs(dir: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let is_new = !dir.is_dir();
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    if is_new { sync_names(dir) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_directory_stays_the_same_under_another_name() {
        let above = tempfile::tempdir().unwrap();
        let (old, new) = (above.path().join("old"), above.path().join("new"));
        std::fs::create_dir(&old).unwrap();
        let held = HeldDir::open(&old).unwrap();
        std::fs::write(held.path().join("a"), "1").unwrap();
        assert!(held.is_at(&old));
        std::fs::rename(&old, &new).unwrap();
        std::fs::create_dir(&old).unwrap();
        std::fs::write(held.path().join("b"), "2").unwrap();
        assert!(held.is_at(&new) && !held.is_at(&old));
        assert_eq!(std::fs::read(new.join("b")).unwrap(), b"2");
        assert_eq!(std::fs::read_dir(&old).unwrap().count(), 0);
        std::fs::write(above.path().join("file"), "").unwrap();
        assert!(HeldDir::open(&above.path().join("file")).is_err());
    }

    #[test]
    fn names_of_new_directories_are_synced() {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("a/b/c");
        make_durable_dirs(&dir, 0o700).unwrap();
        make_durable_dirs(&dir, 0o700).unwrap();
        assert!(dir.is_dir() && sync_names(&dir).is_ok());
        assert!(sync_names(&above.path().join("none")).is_err());
    }
}
