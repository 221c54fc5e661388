//! A directory as a store: one file per object.
//!
//! Object `s.g` is the file `PREFIX/xx/ssssssssssssssss.g`: the segment in 16 hex digits, the
//! generation in decimal, and two hex digits of a mix of the segment, so that each of the 256
//! directories stays small.
//!
//! * A put writes slices of `limits::STORE_SLICE_BYTES` around the page cache, one after the other.
//!   This uses the disk's full bandwidth and keeps its queue short for others. Each slice can wait
//!   for its turn. The put ends with a sync of the file and of its directory. A put that fails
//!   removes what it wrote, as far as the disk lets it.
//! * A crash may leave a torn object, or bring back a deleted one (a delete syncs nothing). Both
//!   are listed like any other object; the data log knows which objects it has.
//! * Open files are kept for reading; the least recently used is closed first. A file leaves the
//!   cache when its object is deleted. A file does not enter the cache if any object was deleted
//!   while the file was being opened. So the cache never holds the space of a deleted object.
//! * The disk may go and come back, as another mount. A file that was open before says nothing
//!   then: when a read of it fails, the file is opened anew. When the directory is gone, all files
//!   are closed, so that the disk can be unmounted.
//! * While an object is being put, a second put of it is refused: of two at once the one that fails
//!   would remove what the other has written.
//!
//! Locks: the cache's and that of the puts, never held over a call of the disk.

use crate::{AlignedBuf, Error, ObjectId, Pace, Result, Store};
use leeward_env::Ctx;
use leeward_env::disk::{Caching, Disk, DiskFile, Space};
use leeward_env::limits::STORE_SLICE_BYTES;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Open files kept; each takes up to two descriptors.
const OPEN_FILES_MAX: usize = 128;

/// A store in a directory of a disk.
pub struct DirStore {
    disk: Arc<dyn Disk>,
    prefix: String,
    open_files: Mutex<OpenFiles>,
    /// Objects that are being put.
    puts: Mutex<BTreeSet<ObjectId>>,
}

/// An object that is being put.
struct Put<'a> {
    puts: &'a Mutex<BTreeSet<ObjectId>>,
    id: ObjectId,
}

impl Drop for Put<'_> {
    fn drop(&mut self) {
        self.puts.lock().remove(&self.id);
    }
}

impl DirStore {
    /// A store below `prefix` (empty: the disk's root), which need not exist yet. This call reads
    /// and writes nothing.
    pub fn new(disk: Arc<dyn Disk>, prefix: &str) -> DirStore {
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        DirStore { disk, prefix, open_files: Mutex::default(), puts: Mutex::default() }
    }

    /// The file of an object, relative to the disk's root. For messages and for tests that damage
    /// it.
    pub fn path(&self, id: ObjectId) -> String {
        Self::path_below(&self.prefix, id)
    }

    /// The path that [`DirStore::path`] gives for a store with this prefix, which is empty or ends
    /// with a slash.
    pub fn path_below(prefix: &str, id: ObjectId) -> String {
        format!("{prefix}{}/{}", dir_name(id), file_name(id))
    }

    fn dir(&self, id: ObjectId) -> String {
        format!("{}{}", self.prefix, dir_name(id))
    }

    fn write(&self, id: ObjectId, body: &[u8], pace: Pace<'_>) -> Result<()> {
        let failed = |e| self.error(id, e);
        let file = self.disk.create(&self.path(id), Caching::Direct).map_err(failed)?;
        let mut offset = 0;
        for slice in body.chunks(STORE_SLICE_BYTES) {
            pace(slice.len(), &mut || file.write_at(offset, slice).map_err(failed))?;
            offset += slice.len() as u64;
        }
        file.sync().and_then(|()| self.disk.sync_dir(&self.dir(id))).map_err(failed)
    }

    fn remove(&self, id: ObjectId) -> io::Result<()> {
        let removed = self.disk.remove(&self.path(id));
        self.open_files.lock().forget(id);
        match removed {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Opens the file, and keeps it open in place of one that is.
    fn open(&self, id: ObjectId) -> Result<Arc<dyn DiskFile>> {
        let removals = self.open_files.lock().removals;
        let opened = self.disk.open_to_read(&self.path(id), Caching::Direct);
        let file = opened.map_err(|e| self.error(id, e))?;
        let file: Arc<dyn DiskFile> = file.into();
        let closed = self.open_files.lock().keep(id, &file, removals);
        drop(closed); // closing a file may take its time: not under the lock
        Ok(file)
    }

    /// An error of the disk in a call for this object.
    fn error(&self, id: ObjectId, e: io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::NotFound => Error::NotFound(id),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full,
            _ => self.failed(e),
        }
    }

    /// An error of the disk. When the directory is gone, the files that are open are closed.
    fn failed(&self, e: io::Error) -> Error {
        if e.kind() == io::ErrorKind::NotConnected {
            let closed = std::mem::take(&mut self.open_files.lock().files);
            drop(closed); // not under the lock
        }
        Error::Io(e)
    }
}

impl Store for DirStore {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.put_paced(ctx, id, body, &|_, write| write())
    }

    fn put_paced(&self, _: &Ctx, id: ObjectId, body: &AlignedBuf, pace: Pace<'_>) -> Result<()> {
        if !self.puts.lock().insert(id) {
            let put = self.path(id);
            return Err(Error::Away(format!("{put}: an earlier put of it has not returned")));
        }
        let _put = Put { puts: &self.puts, id };
        self.write(id, body, pace).inspect_err(|_| {
            let _ = self.remove(id); // the first error is the one to tell; a torn object is allowed
        })
    }

    fn slice_bytes(&self) -> usize {
        STORE_SLICE_BYTES
    }

    fn get(&self, _: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let open = self.open_files.lock().find(id);
        if open.is_some_and(|file| file.read_at(offset, buf).is_ok_and(|count| count == buf.len())) {
            return Ok(());
        }
        let count = self.open(id)?.read_at(offset, buf)?;
        if count < buf.len() { Err(Error::Short(id)) } else { Ok(()) }
    }

    fn len(&self, _: &Ctx, id: ObjectId) -> Result<u64> {
        Ok(self.open(id)?.len()?)
    }

    fn settle(&self, _: &Ctx, id: ObjectId) -> Result<()> {
        let failed = |e| self.error(id, e);
        let file = self.disk.open_to_read(&self.path(id), Caching::Direct).map_err(failed)?;
        file.sync().and_then(|()| self.disk.sync_dir(&self.dir(id))).map_err(failed)
    }

    fn delete(&self, _: &Ctx, id: ObjectId) -> Result<()> {
        self.remove(id).map_err(|e| self.failed(e))
    }

    fn list(&self, _: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        let mut all = Vec::new();
        for dir in self.disk.list_dirs(&self.prefix).map_err(|e| self.failed(e))? {
            let files = self.disk.list(&format!("{}{dir}", self.prefix)).map_err(|e| self.failed(e))?;
            let objects = files.into_iter().filter_map(|(name, len)| Some((parse_name(&name)?, len)));
            all.extend(objects.filter(|(id, _)| dir_name(*id) == dir));
        }
        all.sort_unstable();
        Ok(all)
    }

    fn space(&self) -> Result<Space> {
        self.disk.space().map_err(|e| self.failed(e))
    }
}

pub(crate) fn dir_name(id: ObjectId) -> String {
    let mixed = id.segment.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:02x}", mixed >> 56)
}

pub(crate) fn file_name(id: ObjectId) -> String {
    format!("{:016x}.{}", id.segment, id.generation)
}

/// The object whose file has exactly this name.
pub(crate) fn parse_name(name: &str) -> Option<ObjectId> {
    let (segment, generation) = name.split_once('.')?;
    let id =
        ObjectId { segment: u64::from_str_radix(segment, 16).ok()?, generation: generation.parse().ok()? };
    (file_name(id) == name).then_some(id)
}

/// Open files by object, with the time of last use in calls.
#[derive(Default)]
struct OpenFiles {
    files: BTreeMap<ObjectId, (u64, Arc<dyn DiskFile>)>,
    calls: u64,
    removals: u64,
}

impl OpenFiles {
    fn find(&mut self, id: ObjectId) -> Option<Arc<dyn DiskFile>> {
        self.calls += 1;
        let (used, file) = self.files.get_mut(&id)?;
        *used = self.calls;
        Some(file.clone())
    }

    /// Keeps a file in place of one before, unless something was removed since `removals` was read.
    /// Returns the file that had to leave the cache.
    fn keep(&mut self, id: ObjectId, file: &Arc<dyn DiskFile>, removals: u64) -> Option<Arc<dyn DiskFile>> {
        if self.removals != removals {
            return None;
        }
        let before = self.files.insert(id, (self.calls, file.clone()));
        if self.files.len() <= OPEN_FILES_MAX {
            return before.map(|(_, file)| file);
        }
        let oldest = self.files.iter().min_by_key(|(_, (used, _))| *used).map(|(id, _)| *id)?;
        self.files.remove(&oldest).map(|(_, file)| file)
    }

    fn forget(&mut self, id: ObjectId) {
        self.removals += 1;
        self.files.remove(&id);
    }
}
