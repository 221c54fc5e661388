//! A directory of the machine as a [`Disk`].

use super::{Caching, Disk, DiskFile, Space};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Alignment that O_DIRECT needs, of memory, offset and length.
pub const ALIGN: usize = 4096;

/// Buffers from this size on are mapped: zeroed by the kernel page by page as they are touched, and given back to it
/// when dropped.
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

    /// Bytes that [`AlignedBuf::set_len`] may go up to.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Shows another part of the capacity: `len` rounded up. Bytes that come into view hold what was there before.
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
    root: PathBuf,
}

impl RealDisk {
    /// The directory must exist.
    pub fn new(root: impl Into<PathBuf>) -> RealDisk {
        RealDisk { root: root.into() }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn open_with(&self, path: &str, caching: Caching, create: bool) -> io::Result<Box<dyn DiskFile>> {
        let path = self.root.join(path);
        let open = |flags: i32| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(create)
                .truncate(create)
                .mode(0o600)
                .custom_flags(flags | libc::O_CLOEXEC)
                .open(&path)
        };
        let buffered = open(0)?;
        let direct = match caching {
            Caching::Buffered => None,
            // tmpfs and some network file systems have no O_DIRECT: the page cache serves there
            Caching::Direct => OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC)
                .open(&path)
                .ok(),
        };
        Ok(Box::new(RealFile { buffered, direct }))
    }
}

struct RealFile {
    buffered: File,
    direct: Option<File>,
}

impl RealFile {
    fn for_transfer(&self, offset: u64, buf: &[u8]) -> &File {
        let aligned =
            offset % ALIGN as u64 == 0 && buf.len() % ALIGN == 0 && buf.as_ptr().addr() % ALIGN == 0;
        match &self.direct {
            Some(f) if aligned => f,
            _ => &self.buffered,
        }
    }
}

fn check(r: i32) -> io::Result<()> {
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl DiskFile for RealFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let file = self.for_transfer(at, &buf[done..]);
            match file.read_at(&mut buf[done..], at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.for_transfer(offset, buf).write_all_at(buf, offset)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        // SAFETY: a valid descriptor.
        check(unsafe { libc::fallocate(self.buffered.as_raw_fd(), 0, 0, len as i64) })
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
        self.open_with(path, caching, false)
    }

    fn create(&self, path: &str, caching: Caching) -> io::Result<Box<dyn DiskFile>> {
        match self.open_with(path, caching, true) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if let Some(parent) = self.root.join(path).parent() {
                    fs::create_dir_all(parent)?;
                }
                self.open_with(path, caching, true)
            }
            other => other,
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.root.join(path))
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
        let mut path = self.root.join(dir);
        File::open(&path)?.sync_all()?;
        while path != self.root && path.pop() {
            File::open(&path)?.sync_all()?;
        }
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        let path = std::ffi::CString::new(self.root.as_os_str().as_encoded_bytes())?;
        // SAFETY: plain old data, written by the call below.
        let mut s: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: a NUL-terminated path and a valid buffer.
        check(unsafe { libc::statvfs(path.as_ptr(), &mut s) })?;
        Ok(Space {
            total_bytes: s.f_blocks * s.f_frsize,
            available_bytes: s.f_bavail * s.f_frsize,
            total_files: s.f_files,
            available_files: s.f_favail,
        })
    }
}

impl RealDisk {
    fn each(&self, dir: &str, mut f: impl FnMut(String, fs::Metadata)) -> io::Result<()> {
        let entries = match fs::read_dir(self.root.join(dir)) {
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
