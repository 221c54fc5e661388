//! Between the kernel's terms and ours: attributes, times, flags, errors. Pure.

use crate::door::Keep;
use crate::kernel::abi;
use leeward_env::limits;
use leeward_fs::{
    Allocate, Attr, Error, InodeFlags, Kind, Make, RenameMode, Seek, SetTime, StatFs, Time, XattrMode,
};
use std::time::Duration;

/// What `stat` shows as the best size for I/O, and the unit of `statfs`.
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// The errno of an error. Waiting is never the caller's business, so a refusal to wait that got
/// here is an I/O error.
pub(crate) fn errno(e: &Error) -> i32 {
    match e {
        Error::WouldBlock => libc::EIO,
        e => e.errno(),
    }
}

/// The bits of a mode that say what kind of file it is.
pub(crate) fn file_type(kind: Kind) -> u32 {
    match kind {
        Kind::File => libc::S_IFREG,
        Kind::Dir => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::CharDev => libc::S_IFCHR,
        Kind::BlockDev => libc::S_IFBLK,
        Kind::Socket => libc::S_IFSOCK,
    }
}

pub(crate) fn attr(a: &Attr) -> abi::Attr {
    abi::Attr {
        ino: a.node.0,
        size: a.size,
        blocks: a.blocks,
        atime: a.atime.secs,
        mtime: a.mtime.secs,
        ctime: a.ctime.secs,
        atime_nanos: a.atime.nanos,
        mtime_nanos: a.mtime.nanos,
        ctime_nanos: a.ctime.nanos,
        mode: file_type(a.kind) | a.mode & 0o7777,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// A name's entry. Inode numbers are never used twice, so their generation is always 0.
pub(crate) fn entry(a: &Attr, keep: Keep) -> abi::EntryOut {
    abi::EntryOut {
        node: a.node.0,
        entry_valid_secs: keep.name.as_secs(),
        entry_valid_nanos: keep.name.subsec_nanos(),
        attr_valid_secs: keep.attr.as_secs(),
        attr_valid_nanos: keep.attr.subsec_nanos(),
        attr: attr(a),
        ..abi::EntryOut::default()
    }
}

/// The entry of a name that does not exist.
pub(crate) fn absent(keep: Duration) -> abi::EntryOut {
    abi::EntryOut { entry_valid_secs: keep.as_secs(), ..abi::EntryOut::default() }
}

pub(crate) fn statx(a: &Attr) -> abi::Statx {
    const BASIC_STATS: u32 = 0x7ff;
    const BTIME: u32 = 0x800;
    // STATX_ATTR_IMMUTABLE, _APPEND and _NODUMP are the same bits as the flags
    let time = |t: Time| abi::StatxTime { secs: t.secs, nanos: t.nanos, reserved: 0 };
    let rdev = u64::from(a.rdev);
    abi::Statx {
        mask: BASIC_STATS | BTIME,
        blksize: BLOCK_BYTES,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        mode: (file_type(a.kind) | a.mode & 0o7777) as u16,
        ino: a.node.0,
        size: a.size,
        blocks: a.blocks,
        atime: time(a.atime),
        btime: time(a.btime),
        ctime: time(a.ctime),
        mtime: time(a.mtime),
        rdev_major: libc::major(rdev),
        rdev_minor: libc::minor(rdev),
        attributes: u64::from(a.flags.bits()),
        attributes_mask: u64::from(InodeFlags::KNOWN.bits()),
        ..abi::Statx::default()
    }
}

pub(crate) fn stat_fs(s: &StatFs) -> abi::StatFsOut {
    let unit = u64::from(BLOCK_BYTES);
    let free = s.free_bytes / unit;
    abi::StatFsOut {
        blocks: s.total_bytes / unit,
        blocks_free: free,
        blocks_available: free,
        files: s.total_files,
        files_free: s.free_files,
        block_bytes: BLOCK_BYTES,
        name_len: limits::NAME_BYTES_MAX as u32,
        fragment_bytes: BLOCK_BYTES,
        ..abi::StatFsOut::default()
    }
}

pub(crate) fn set_time(secs: i64, nanos: u32) -> SetTime {
    SetTime::To(Time { secs, nanos })
}

/// What mknod asks for; `None` for types that cannot be made so.
pub(crate) fn make(mode: u32, rdev: u32) -> Option<Make<'static>> {
    match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => Some(Make::File),
        libc::S_IFIFO => Some(Make::Fifo),
        libc::S_IFSOCK => Some(Make::Socket),
        libc::S_IFCHR => Some(Make::CharDev(rdev)),
        libc::S_IFBLK => Some(Make::BlockDev(rdev)),
        _ => None,
    }
}

/// `None` for modes we do not know (whiteouts, contradictions).
pub(crate) fn rename_mode(flags: u32) -> Option<RenameMode> {
    match flags {
        0 => Some(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Some(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Some(RenameMode::Exchange),
        _ => None,
    }
}

pub(crate) fn xattr_mode(flags: i32) -> Option<XattrMode> {
    match flags {
        0 => Some(XattrMode::Set),
        libc::XATTR_CREATE => Some(XattrMode::Create),
        libc::XATTR_REPLACE => Some(XattrMode::Replace),
        _ => None,
    }
}

pub(crate) fn allocate(mode: i32) -> Option<Allocate> {
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    match mode {
        0 => Some(Allocate::Reserve { keep_size: false }),
        libc::FALLOC_FL_KEEP_SIZE => Some(Allocate::Reserve { keep_size: true }),
        PUNCH => Some(Allocate::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Some(Allocate::ZeroRange { keep_size: false }),
        ZERO_KEEP => Some(Allocate::ZeroRange { keep_size: true }),
        _ => None,
    }
}

pub(crate) fn seek(whence: i32) -> Option<Seek> {
    match whence {
        libc::SEEK_DATA => Some(Seek::Data),
        libc::SEEK_HOLE => Some(Seek::Hole),
        _ => None,
    }
}
