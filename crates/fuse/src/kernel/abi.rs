//! The kernel's structures, numbers and flags, as `linux/fuse.h` (protocol 7.45) has them. All
//! integers are in the machine's byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol that this code knows.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version that this code knows; the smaller of both sides' holds.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version that is served: Linux 4.18, which has all that is needed here.
pub(crate) const MINOR_OLDEST: u32 = 27;

/// The least that a buffer for requests must hold.
pub(crate) const READ_BUFFER_MIN: usize = 8192;

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $($(#[$of])* pub(crate) $field: $kind,)*
        }
    )*};
}

wire! {
    /// Before each request.
    InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        node: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        /// Of the extensions at the end, in units of 8 bytes.
        extensions_len: u16,
        padding: u16,
    }
    /// Before each reply and notification.
    OutHeader {
        len: u32,
        /// 0, or an errno below 0; of a notification its code.
        error: i32,
        /// Which request; 0: a notification.
        unique: u64,
    }
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    /// What follows [`InitIn`] since 7.36.
    InitInMore { flags2: u32, unused: [u32; 11], }
    InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        /// Nanoseconds.
        time_granularity: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
    Attr {
        ino: u64,
        size: u64,
        /// Of 512 bytes.
        blocks: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atime_nanos: u32,
        mtime_nanos: u32,
        ctime_nanos: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    EntryOut {
        /// 0: there is no such name.
        node: u64,
        generation: u64,
        entry_valid_secs: u64,
        attr_valid_secs: u64,
        entry_valid_nanos: u32,
        attr_valid_nanos: u32,
        attr: Attr,
    }
    AttrOut { valid_secs: u64, valid_nanos: u32, padding: u32, attr: Attr, }
    OpenOut { handle: u64, flags: u32, padding: u32, }
    CreateOut { entry: EntryOut, open: OpenOut, }
    ForgetIn { lookups: u64, }
    BatchForgetIn { count: u32, padding: u32, }
    ForgetOne { node: u64, lookups: u64, }
    GetAttrIn { flags: u32, padding: u32, handle: u64, }
    SetAttrIn {
        valid: u32,
        padding: u32,
        handle: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atime_nanos: u32,
        mtime_nanos: u32,
        ctime_nanos: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    MkNodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    MkDirIn { mode: u32, umask: u32, }
    RenameIn { new_dir: u64, }
    Rename2In { new_dir: u64, flags: u32, padding: u32, }
    LinkIn { node: u64, }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    OpenIn { flags: u32, open_flags: u32, }
    /// `R_OK`, `W_OK`, `X_OK`.
    AccessIn { mask: u32, padding: u32, }
    ReleaseIn { handle: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    FlushIn { handle: u64, unused: u32, padding: u32, lock_owner: u64, }
    FsyncIn { handle: u64, flags: u32, padding: u32, }
    /// A lock: both ends are included.
    FileLock { start: u64, end: u64, kind: u32, pid: u32, }
    LkIn { handle: u64, owner: u64, lock: FileLock, flags: u32, padding: u32, }
    LkOut { lock: FileLock, }
    ReadIn {
        handle: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    WriteIn {
        handle: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    /// Also the reply to a request for an extended attribute's size.
    WriteOut { size: u32, padding: u32, }
    StatFsOut {
        blocks: u64,
        blocks_free: u64,
        blocks_available: u64,
        files: u64,
        files_free: u64,
        block_bytes: u32,
        name_len: u32,
        fragment_bytes: u32,
        padding: u32,
        spare: [u32; 6],
    }
    SetXattrIn { size: u32, flags: u32, }
    GetXattrIn { size: u32, padding: u32, }
    InterruptIn { unique: u64, }
    IoctlIn { handle: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    /// Before the data of the reply.
    IoctlOut { result: i32, flags: u32, in_parts: u32, out_parts: u32, }
    /// `struct fsxattr` of `linux/fs.h`: flags of an inode, and what file systems for projects
    /// have.
    FsXattr {
        flags: u32,
        extent_bytes: u32,
        /// Number of extents; only read.
        extents: u32,
        project: u32,
        copied_extent_bytes: u32,
        padding: [u8; 8],
    }
    FallocateIn { handle: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// Before the name of each entry of a listing.
    Dirent { ino: u64, offset: u64, name_len: u32, kind: u32, }
    LseekIn { handle: u64, offset: u64, whence: u32, padding: u32, }
    LseekOut { offset: u64, }
    CopyFileRangeIn {
        handle_in: u64,
        offset_in: u64,
        node_out: u64,
        handle_out: u64,
        offset_out: u64,
        len: u64,
        flags: u64,
    }
    StatxTime { secs: i64, nanos: u32, reserved: i32, }
    Statx {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    StatxOut { valid_secs: u64, valid_nanos: u32, flags: u32, spare: [u64; 2], stat: Statx, }
    NotifyInvalInode { ino: u64, offset: i64, len: i64, }
    NotifyInvalEntry { parent: u64, name_len: u32, flags: u32, }
    /// Behind the headers of a request in a ring.
    RingEntry {
        flags: u64,
        /// What a reply names the request by.
        commit_id: u64,
        /// Bytes in the buffer of the payload, of the request or of the reply.
        payload_len: u32,
        padding: u32,
        reserved: u64,
    }
    /// In a command to a ring.
    RingCommand { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6], }
}

/// Bytes of each of the two areas for headers in a ring.
pub(crate) const RING_HEADER_BYTES: usize = 128;
/// Adds a buffer to a ring's queue.
pub(crate) const RING_REGISTER: u32 = 1;
/// Answers a request and waits for the next one in the same buffer.
pub(crate) const RING_COMMIT_AND_FETCH: u32 = 2;

/// The kernel's page, in which it counts what a request may carry.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096).max(4096)
}

/// Flags of INIT, both words as one number.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    /// LOOKUP of `.` finds an inode by its number.
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// The second word of flags is valid.
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Numbers of requests.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Bits of [`SetAttrIn::valid`].
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
}

/// [`OpenIn::flags`]: the file is to be executed.
pub(crate) const OPEN_EXEC: u32 = 1 << 5;
/// [`OpenOut::flags`]: the kernel keeps nothing of the content.
pub(crate) const OPEN_DIRECT_IO: u32 = 1 << 0;
/// [`OpenOut::flags`]: pages that the kernel has stay valid.
pub(crate) const OPEN_KEEP_CACHE: u32 = 1 << 1;
/// [`OpenOut::flags`]: no FLUSH at close.
pub(crate) const OPEN_NO_FLUSH: u32 = 1 << 5;
/// [`LkIn::flags`]: a lock of `flock`.
pub(crate) const LK_FLOCK: u32 = 1 << 0;
/// [`WriteIn::write_flags`]: pages that were written through a mapping.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;

/// Codes of notifications.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `linux/fuse.h` of Linux 6.18 says of these.
    #[test]
    fn sizes_are_the_kernels() {
        let sizes = [
            (size_of::<InHeader>(), 40),
            (size_of::<OutHeader>(), 16),
            (size_of::<InitIn>() + size_of::<InitInMore>(), 64),
            (size_of::<InitOut>(), 64),
            (size_of::<Attr>(), 88),
            (size_of::<EntryOut>(), 128),
            (size_of::<AttrOut>(), 104),
            (size_of::<SetAttrIn>(), 88),
            (size_of::<CreateIn>(), 16),
            (size_of::<OpenIn>(), 8),
            (size_of::<AccessIn>(), 8),
            (size_of::<ReadIn>(), 40),
            (size_of::<ReleaseIn>(), 24),
            (size_of::<FlushIn>(), 24),
            (size_of::<FsyncIn>(), 16),
            (size_of::<LkIn>(), 48),
            (size_of::<LkOut>(), 24),
            (size_of::<WriteIn>(), 40),
            (size_of::<StatFsOut>(), 80),
            (size_of::<Statx>(), 256),
            (size_of::<StatxOut>(), 288),
            (size_of::<CopyFileRangeIn>(), 56),
            (size_of::<FallocateIn>(), 32),
            (size_of::<IoctlIn>(), 32),
            (size_of::<IoctlOut>(), 16),
            (size_of::<FsXattr>(), 28),
            (size_of::<Dirent>(), 24),
            (size_of::<RingEntry>(), 32),
            (size_of::<RingCommand>(), 24),
        ];
        for (number, (is, should)) in sizes.into_iter().enumerate() {
            assert_eq!(is, should, "structure {number}");
        }
    }
}
