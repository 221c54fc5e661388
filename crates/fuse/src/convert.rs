//! Between the kernel's terms and ours: attributes, times, flags, errors. Pure.

use fuser::{Errno, FileAttr, FileType, INodeNo, RenameFlags, TimeOrNow};
use leeward_fs::{Allocate, Attr, Error, Kind, Make, NodeId, RenameMode, Seek, SetTime, Time, XattrMode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What `stat` shows as the best size for I/O, and the unit of `statfs`.
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// The errno of an error. Waiting is never the caller's business, so a refusal to wait that got here is an I/O error.
pub(crate) fn errno(e: &Error) -> Errno {
    match e {
        Error::WouldBlock => Errno::EIO,
        e => Errno::from_i32(e.errno()),
    }
}

pub(crate) fn node(ino: INodeNo) -> NodeId {
    NodeId(ino.0)
}

pub(crate) fn ino(node: NodeId) -> INodeNo {
    INodeNo(node.0)
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::CharDev => FileType::CharDevice,
        Kind::BlockDev => FileType::BlockDevice,
        Kind::Socket => FileType::Socket,
    }
}

pub(crate) fn file_attr(a: &Attr) -> FileAttr {
    FileAttr {
        ino: ino(a.node),
        size: a.size,
        blocks: a.blocks,
        atime: system_time(a.atime),
        mtime: system_time(a.mtime),
        ctime: system_time(a.ctime),
        crtime: system_time(a.btime),
        kind: file_type(a.kind),
        perm: (a.mode & 0o7777) as u16,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// A time outside what the system can express becomes 1970.
fn system_time(t: Time) -> SystemTime {
    let whole = Duration::from_secs(t.secs.unsigned_abs());
    let base = if t.secs >= 0 { UNIX_EPOCH.checked_add(whole) } else { UNIX_EPOCH.checked_sub(whole) };
    base.and_then(|b| b.checked_add(Duration::from_nanos(t.nanos.into()))).unwrap_or(UNIX_EPOCH)
}

/// The kernel's seconds and nanoseconds, from what fuser made of them. fuser 0.18 takes the nanoseconds of a time before
/// 1970 off instead of adding them; taking the two apart in the same way gives back what the kernel sent.
fn time(t: SystemTime) -> Time {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => Time { secs: d.as_secs() as i64, nanos: d.subsec_nanos() },
        Err(e) => {
            Time { secs: (e.duration().as_secs() as i64).wrapping_neg(), nanos: e.duration().subsec_nanos() }
        }
    }
}

pub(crate) fn set_time(t: TimeOrNow) -> SetTime {
    match t {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(t) => SetTime::To(time(t)),
    }
}

/// A mode as it is after a write: setuid goes, setgid where it means a group's rights (and not mandatory locking).
pub(crate) fn without_set_ids(mode: u32) -> u32 {
    let set_gid = if mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
    mode & !(libc::S_ISUID | set_gid)
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
pub(crate) fn rename_mode(flags: RenameFlags) -> Option<RenameMode> {
    match flags {
        f if f.is_empty() => Some(RenameMode::Replace),
        RenameFlags::RENAME_NOREPLACE => Some(RenameMode::NoReplace),
        RenameFlags::RENAME_EXCHANGE => Some(RenameMode::Exchange),
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
