//! The few file operations that the metadata journal and the directory store are built on.
//!
//! Paths are relative to the root that the disk was opened on, `/`-separated, without `..`. A disk
//! promises what ext4 promises and no more:
//!
//! * written bytes are durable after [`DiskFile::sync`] of the file;
//! * a created, renamed or removed name is durable after [`Disk::sync_dir`] of its directory;
//! * without them a power cut may keep or lose each single write, in any order, at a granularity of
//!   512 bytes, and may keep or lose each change of a name.
//!
//! [`RealDisk`](real::RealDisk) is a directory. [`SimDisk`](sim::SimDisk) keeps both the volatile
//! and the durable state, counts mutations, fails or "cuts the power" at any of them, and flips
//! bits.

pub mod held;
pub mod pinned;
pub mod real;
pub mod sim;

use std::io;

/// How a file's content is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Through the page cache.
    Buffered,
    /// Around it where the file system can (offset, length and memory aligned to 4096), else
    /// through it.
    Direct,
}

/// An open file. Methods take `&self`: positions are explicit, concurrent calls are fine.
pub trait DiskFile: Send + Sync {
    /// Fills `buf` from `offset`; returns how many bytes were there (short only at the end of the
    /// file).
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `buf` at `offset`, extending the file.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;
    /// Reserves space so that later writes within `len` cannot fail for lack of it; the size
    /// becomes at least `len`. Where that fails the file is as long as before: nobody else may
    /// write to it meanwhile.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Cuts or extends (with a hole) to `len`.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Makes content and size durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Total and available bytes of the file system below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Bytes an unprivileged writer may still use.
    pub available_bytes: u64,
    /// Inodes in total (0: unknown).
    pub total_files: u64,
    /// Inodes available.
    pub available_files: u64,
}

/// A file system with fewer free inodes is full, whatever space it has. A small one, which has few:
/// with less than this part of them.
const FILES_MIN: u64 = 4096;
const FILES_PART: u64 = 16;

impl Space {
    /// Whether so few inodes are left that it counts as full. Btrfs and file systems of a network
    /// have no number of inodes.
    pub fn lacks_files(&self) -> bool {
        self.available_files < FILES_MIN.min(self.total_files / FILES_PART)
    }

    /// Bytes that may still be written: none where the files for them cannot be made.
    pub fn usable_bytes(&self) -> u64 {
        if self.lacks_files() { 0 } else { self.available_bytes }
    }
}

/// A directory tree to keep files in.
pub trait Disk: Send + Sync {
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file for reading only: this also works on a disk that has become
    /// read-only. Writing to it fails.
    fn open_to_read(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        self.open(path, caching)
    }
    /// Creates a file, or empties an existing one. Missing parent directories are created.
    fn create(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>>;
    /// Renames, replacing.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Names of the files directly in `dir` with their lengths, sorted; a missing directory counts
    /// as empty.
    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>>;
    /// Names of the directories directly in `dir`, sorted; a missing directory counts as empty.
    fn list_dirs(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Makes the names in `dir` (and `dir`'s own chain of names up to the root) durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Free space.
    fn space(&self) -> io::Result<Space>;
}
