//! Where a repository is: files of a directory, here or behind sftp, or objects below a prefix of a
//! bucket, under the same names.

use crate::sftp::{Sftp, SftpPlace};
use crate::{Error, ErrorKind, Result};
use leeward_bucket::{Bucket, BucketUrl, Location};
use leeward_env::disk::real::RealDisk;
use leeward_env::disk::{Caching, Disk};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How names of files end while they are being written.
pub(crate) const UNFINISHED: &str = "-tmp-lee";
/// A file of a repository but packs is not longer. Whoever can write at the place may claim more.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 30;
/// Bytes that one request brings of a large object.
const RANGE_BYTES: u64 = 16 << 20;

/// The files of a repository. A file is there whole or not at all, never changes, and is durable
/// when `put` returns.
pub trait Files: Send + Sync {
    /// The place, for messages.
    fn place(&self) -> String;
    /// A file; `None`: there is none.
    ///
    /// # Errors
    /// The place's.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>>;
    /// A part of a file.
    ///
    /// # Errors
    /// Damaged where there is none, or it ends before; the place's.
    fn get_range(&self, name: &str, offset: u64, len: u64) -> Result<Vec<u8>>;
    /// Stores a file. The name is that of the content, or nobody else's.
    ///
    /// # Errors
    /// The place's.
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()>;
    /// Removes a file; one that is not there is no error. A power cut may bring it back, see
    /// [`settle_removals`](Files::settle_removals).
    ///
    /// # Errors
    /// The place's.
    fn remove(&self, name: &str) -> Result<()>;
    /// Names, without those of the directories above, and lengths of all files below a directory.
    ///
    /// # Errors
    /// The place's.
    fn list(&self, dir: &str) -> Result<Vec<(String, u64)>>;
    /// Makes durable what was removed from a directory so far.
    ///
    /// # Errors
    /// The place's.
    fn settle_removals(&self, dir: &str) -> Result<()>;
    /// Makes the directories of a new repository.
    ///
    /// # Errors
    /// The place's.
    fn prepare(&self) -> Result<()> {
        Ok(())
    }
}

/// The files at a place: `s3://BUCKET/PREFIX`, `sftp:USER@HOST:/PATH`, or the path of a directory.
///
/// # Errors
/// Where that makes no sense, or there is no such place.
pub fn open(place: &str, may_make: bool) -> Result<Arc<dyn Files>> {
    if BucketUrl::is_meant(place) {
        let bucket =
            Location::find(place).and_then(|at| Bucket::with_checksums(&at)).map_err(|e| of_bucket(&e))?;
        return Ok(Arc::new(Objects { bucket, place: place.into() }));
    }
    if SftpPlace::is_meant(place) {
        return Ok(Arc::new(Sftp::open(place, may_make)?));
    }
    let path = Path::new(place);
    if !path.is_absolute() {
        let text =
            format!("{place}: a place is an absolute path, s3://BUCKET/PREFIX, or sftp:USER@HOST:/PATH");
        return Err(Error::new(ErrorKind::Failed, text));
    }
    if may_make && !path.exists() {
        // not what is above it: that may be a mount that is away
        std::fs::create_dir(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::new(
                ErrorKind::Place,
                format!("{place}: the directory above it does not exist: is it mounted? Else make it"),
            ),
            _ => Error::at(place, &e),
        })?;
    }
    let disk = RealDisk::open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            Error::new(ErrorKind::Place, format!("{place} is missing: is it mounted?"))
        }
        _ => Error::at(place, &e),
    })?;
    Ok(Arc::new(Directory { disk: Arc::new(disk), place: place.into() }))
}

/// A repository in a directory.
pub struct Directory {
    disk: Arc<dyn Disk>,
    place: String,
}

impl Directory {
    /// In the root directory of a disk.
    pub fn new(disk: Arc<dyn Disk>, place: &str) -> Directory {
        Directory { disk, place: place.into() }
    }

    fn failed(&self, name: &str, e: &io::Error) -> Error {
        Error::at(&format!("{}/{name}", self.place), e)
    }

    fn read(&self, name: &str, offset: u64, len: Option<u64>) -> io::Result<Vec<u8>> {
        let file = self.disk.open_to_read(name, Caching::Buffered)?;
        let len = len.map_or_else(|| file.len().and_then(whole), Ok)?;
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        let read = file.read_at(offset, &mut bytes)?;
        if read < bytes.len() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let staged = format!("{name}{UNFINISHED}");
        let file = self.disk.create(&staged, Caching::Buffered)?;
        file.write_at(0, bytes)?;
        file.sync()?;
        self.disk.rename(&staged, name)?;
        self.disk.sync_dir(dir_of(name))
    }
}

/// The length of a file that is read whole.
pub(crate) fn whole(len: u64) -> io::Result<u64> {
    if len > FILE_BYTES_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(len) }
}

/// A file that an index names is not as it was.
pub(crate) fn lost(place: &str, name: &str, how: &str) -> Error {
    Error::damaged(format!("{place}/{name} {how}: run lee backup check"))
}

pub(crate) fn dir_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl Files for Directory {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match self.read(name, 0, None) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some).map_err(|e| self.failed(name, &e)),
        }
    }

    fn get_range(&self, name: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.read(name, offset, Some(len)).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => lost(&self.place, name, "is missing"),
            io::ErrorKind::UnexpectedEof => lost(&self.place, name, "ends early"),
            _ => self.failed(name, &e),
        })
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        self.write(name, &bytes).map_err(|e| {
            let _ = self.disk.remove(&format!("{name}{UNFINISHED}")); // the first error is the one to tell
            self.failed(name, &e)
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self.disk.remove(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.failed(name, &e)),
            _ => Ok(()),
        }
    }

    fn settle_removals(&self, dir: &str) -> Result<()> {
        self.disk.sync_dir(dir).map_err(|e| self.failed(dir, &e))
    }

    fn list(&self, dir: &str) -> Result<Vec<(String, u64)>> {
        let failed = |e| self.failed(dir, &e);
        let mut all = self.disk.list(dir).map_err(failed)?;
        for below in self.disk.list_dirs(dir).map_err(failed)? {
            all.extend(self.disk.list(&format!("{dir}/{below}")).map_err(failed)?);
        }
        Ok(all)
    }

    fn prepare(&self) -> Result<()> {
        // others ask for the directories, which come with the first file: so each gets one, for a
        // moment
        let of_data = (0..=255).map(|n| format!("data/{n:02x}"));
        for dir in of_data.chain(["index", "keys", "locks", "snapshots"].map(String::from)) {
            let name = format!("{dir}/new{UNFINISHED}");
            let made = self.disk.create(&name, Caching::Buffered).map(drop);
            made.and_then(|()| self.disk.remove(&name)).map_err(|e| self.failed(&dir, &e))?;
        }
        Ok(())
    }
}

/// A repository in a bucket.
struct Objects {
    bucket: Bucket,
    place: String,
}

fn of_bucket(e: &leeward_bucket::Error) -> Error {
    let kind = match e {
        leeward_bucket::Error::Full(_) => ErrorKind::Full,
        leeward_bucket::Error::Wrong(_) => ErrorKind::Failed,
        _ => ErrorKind::Place,
    };
    Error::new(kind, e.to_string())
}

impl Files for Objects {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.bucket.get(name).map(|found| found.map(|bytes| bytes.to_vec())).map_err(|e| of_bucket(&e))
    }

    fn get_range(&self, name: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(len as usize);
        while (all.len() as u64) < len {
            let at = all.len() as u64;
            let part = self.bucket.get_range(name, offset + at, (len - at).min(RANGE_BYTES));
            let part = part.map_err(|e| match e {
                leeward_bucket::Error::Missing(_) => lost(&self.place, name, "is missing"),
                e => of_bucket(&e),
            })?;
            if part.is_empty() {
                return Err(lost(&self.place, name, "ends early"));
            }
            all.extend_from_slice(&part);
        }
        Ok(all)
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        self.bucket.replace(name, bytes.into()).map_err(|e| of_bucket(&e))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.bucket.delete(name).map_err(|e| of_bucket(&e))
    }

    fn settle_removals(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn list(&self, dir: &str) -> Result<Vec<(String, u64)>> {
        let all = self.bucket.list(dir).map_err(|e| of_bucket(&e))?;
        let last = |name: String| name.rsplit_once('/').map_or(name.clone(), |(_, last)| last.into());
        Ok(all.into_iter().map(|(name, len)| (last(name), len)).collect())
    }
}
