//! A directory of the machine as a [`Disk`].
//!
//! A file opened for [`Caching::Direct`] has two descriptors: one with O_DIRECT, for transfers
//! whose offset, length and memory are aligned, and one without for all others. The kernel keeps
//! the two coherent (a direct write invalidates cached pages, a direct read writes them back
//! first), except for concurrent transfers to one page, which callers avoid. A sync through either
//! covers both, because fdatasync is of the inode. Where O_DIRECT is not available (tmpfs on older
//! kernels, some network file systems) the page cache serves.
//!
//! Files are made with mode 0600 and directories with 0700: they contain other people's data.
//!
//! The directory is held open ([`HeldDir`]). When its path is renamed, or its file system unmounted
//! lazily, the disk stays that directory and never becomes another one that got the path.

use super::held::HeldDir;
use super::{Caching, Disk, DiskFile, Space};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Alignment that O_DIRECT needs, of memory, offset and length.
pub const ALIGN: usize = 4096;

/// Buffers from this size on are mapped: the kernel zeroes them page by page as they are touched,
/// and gets them back when they are dropped.
const MAPPED_BYTES_MIN: usize = 256 << 10;

/// Memory aligned to [`ALIGN`], zeroed, whose length is a multiple of it.
pub struct AlignedBuf {
    ptr: *mut u8,
    len: usize,
    capacity: usize,
}

// SAFETY: the buffer owns its memory exclusively.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access is read-only.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// At least `len` zeroed bytes, rounded up.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let len = len.next_multiple_of(ALIGN).max(ALIGN);
        let ptr = if len >= MAPPED_BYTES_MIN {
            Self::map(len)
        } else {
            // SAFETY: the size is not zero and the alignment a power of two.
            unsafe { std::alloc::alloc_zeroed(Self::layout(len)) }
        };
        assert!(!ptr.is_null(), "out of memory: {len} bytes");
        AlignedBuf { ptr, len, capacity: len }
    }

    /// The largest value for [`AlignedBuf::set_len`].
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the visible part of the capacity: `len` rounded up. Bytes that become visible have
    /// their former content.
    ///
    /// # Panics
    /// When that is more than the capacity.
    pub fn set_len(&mut self, len: usize) {
        let len = len.next_multiple_of(ALIGN);
        assert!(len <= self.capacity, "{len} bytes in a buffer of {}", self.capacity);
        self.len = len;
    }

    fn map(len: usize) -> *mut u8 {
        // SAFETY: a new anonymous mapping; nothing else refers to it.
        let ptr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if ptr == libc::MAP_FAILED { std::ptr::null_mut() } else { ptr.cast() }
    }

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, ALIGN).expect("a valid layout")
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: ptr is valid for len bytes, initialised, and owned by self.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and self is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.capacity >= MAPPED_BYTES_MIN {
            // SAFETY: mapped with this length, and nobody refers to it any more.
            unsafe { libc::munmap(self.ptr.cast(), self.capacity) };
        } else {
            // SAFETY: allocated with the same layout.
            unsafe { std::alloc::dealloc(self.ptr, Self::layout(self.capacity)) }
        }
    }
}

/// A directory as a [`Disk`].
pub struct RealDisk {
    root: HeldDir,
    /// Directories whose own names are known to be durable: nothing here removes a directory.
    durable_dirs: Mutex<BTreeSet<PathBuf>>,
}

impl RealDisk {
    /// The directory that has this path now.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(root: impl AsRef<Path>) -> io::Result<RealDisk> {
        HeldDir::open(root.as_ref()).map(RealDisk::of)
    }

    /// A disk on a directory that is held already.
    pub fn of(root: HeldDir) -> RealDisk {
        RealDisk { root, durable_dirs: Mutex::default() }
    }

    /// The directory.
    pub fn root(&self) -> &HeldDir {
        &self.root
    }

    fn at(&self, path: &str) -> io::Result<PathBuf> {
        check_path(path)?;
        Ok(self.root.path().join(path))
    }

    fn open_with(&self, path: &Path, caching: Caching, making: Making) -> io::Result<Box<dyn DiskFile>> {
        let create = making == Making::Create;
        let mut options = OpenOptions::new();
        options.read(true).write(making != Making::Read).mode(0o600);
        let buffered = options.clone().create(create).truncate(create).open(path)?;
        let direct = match caching {
            Caching::Buffered => None,
            Caching::Direct => match options.custom_flags(libc::O_DIRECT).open(path) {
                Ok(file) => Some(file),
                Err(e) if no_direct(&e) => None,
                Err(e) => return Err(e),
            },
        };
        Ok(Box::new(RealFile { buffered, direct }))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Making {
    Read,
    Open,
    Create,
}

/// Refuses paths that would lead out of a disk.
pub(super) fn check_path(path: &str) -> io::Result<()> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a path in a disk: {path}")));
    }
    Ok(())
}

/// Whether the error says that O_DIRECT, or O_DIRECT with this alignment, is not available here.
fn no_direct(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

struct RealFile {
    buffered: File,
    direct: Option<File>,
}

impl RealFile {
    /// The descriptor with O_DIRECT, if there is one and it can do the transfer.
    fn direct_for(&self, offset: u64, buf: &[u8]) -> Option<&File> {
        let aligned = offset.is_multiple_of(ALIGN as u64)
            && buf.len().is_multiple_of(ALIGN)
            && buf.as_ptr().addr().is_multiple_of(ALIGN);
        self.direct.as_ref().filter(|_| aligned)
    }

    fn read_some(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(file) = self.direct_for(offset, buf) {
            match file.read_at(buf, offset) {
                Err(e) if no_direct(&e) => {}
                other => return other,
            }
        }
        self.buffered.read_at(buf, offset)
    }

    /// The length, and how many bytes up to `len` have no space yet, or fewer: it may be taken
    /// beyond.
    fn missing(&self, len: u64) -> io::Result<(u64, u64)> {
        let meta = self.buffered.metadata()?;
        Ok((meta.len(), len.saturating_sub(meta.blocks() * 512)))
    }

    /// Takes the space up to `len`, or a part of it and an error.
    fn take(&self, len: u64) -> io::Result<()> {
        let bytes = i64::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        if bytes == 0 {
            return Ok(());
        }
        loop {
            // SAFETY: a valid descriptor.
            match check(unsafe { libc::fallocate(self.buffered.as_raw_fd(), 0, 0, bytes) }) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => return self.fill_up_to(len),
                other => return other,
            }
        }
    }

    /// Does what [`DiskFile::allocate`] promises where the file system has no call for it: writes
    /// zeroes after the end.
    fn fill_up_to(&self, len: u64) -> io::Result<()> {
        let zeroes = vec![0; 1 << 20];
        let mut at = self.len()?;
        while at < len {
            let piece = (len - at).min(zeroes.len() as u64);
            self.buffered.write_all_at(&zeroes[..piece as usize], at)?;
            at += piece;
        }
        Ok(())
    }
}

fn check(r: i32) -> io::Result<()> {
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the file system of an open file says of itself.
fn statvfs(fd: RawFd) -> io::Result<libc::statvfs> {
    // SAFETY: plain old data, written by the call below.
    let mut s: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a descriptor of the caller's and a valid buffer.
    check(unsafe { libc::fstatvfs(fd, &mut s) })?;
    Ok(s)
}

impl DiskFile for RealFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_some(offset + done as u64, &mut buf[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        if let Some(file) = self.direct_for(offset, buf) {
            match file.write_all_at(buf, offset) {
                // a file system that wants coarser alignment, or a write cut short to an odd length
                Err(e) if no_direct(&e) => {}
                other => return other,
            }
        }
        self.buffered.write_all_at(buf, offset)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let (before, missing) = self.missing(len)?;
        let space = statvfs(self.buffered.as_raw_fd())?;
        if space.f_blocks > 0 && missing > space.f_bfree * space.f_frsize {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC)); // ext4 would first take all there is
        }
        let allocated = self.take(len);
        if allocated.is_err() {
            let _ = self.buffered.set_len(before); // gives back what it got before it failed
        }
        allocated
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.buffered.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.buffered.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.buffered.metadata()?.len())
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        self.open_with(&self.at(path)?, caching, Making::Open)
    }

    fn open_to_read(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        self.open_with(&self.at(path)?, caching, Making::Read)
    }

    fn create(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        let path = self.at(path)?;
        match self.open_with(&path, caching, Making::Create) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if let Some(parent) = path.parent() {
                    self.durable_dirs.lock().clear(); // also if somebody had removed it behind our back
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
                }
                self.open_with(&path, caching, Making::Create)
            }
            other => other,
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from)?, self.at(to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path)?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        let mut names = Vec::new();
        self.each(dir, |name, meta| {
            if meta.is_file() {
                names.push((name, meta.len()));
            }
        })?;
        names.sort();
        Ok(names)
    }

    fn list_dirs(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        self.each(dir, |name, meta| {
            if meta.is_dir() {
                names.push(name);
            }
        })?;
        names.sort();
        Ok(names)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let path = self.at(dir)?;
        File::open(&path)?.sync_all()?;
        if path == self.root.path() || self.durable_dirs.lock().contains(&path) {
            return Ok(());
        }
        let above = path.ancestors().skip(1).take_while(|dir| dir.starts_with(self.root.path()));
        for dir in above {
            File::open(dir)?.sync_all()?;
        }
        self.durable_dirs.lock().insert(path);
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        let s = statvfs(self.root.as_raw_fd())?;
        Ok(Space {
            total_bytes: s.f_blocks * s.f_frsize,
            available_bytes: s.f_bavail * s.f_frsize,
            total_files: s.f_files,
            available_files: s.f_favail,
        })
    }
}

impl RealDisk {
    /// Makes the names in `dir` durable, but not its own.
    pub(super) fn sync_one_dir(&self, dir: &str) -> io::Result<()> {
        File::open(self.at(dir)?)?.sync_all()
    }

    fn each(&self, dir: &str, mut f: impl FnMut(String, fs::Metadata)) -> io::Result<()> {
        let entries = match fs::read_dir(self.at(dir)?) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(meta) => f(name, meta),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
