//! Operations and replies: the alphabet of the file system. The same enum is what front ends call, what the model
//! test draws from, and (later) the wire message and the audit record.

use crate::keys;
use crate::ops::INHERITED;
use std::fmt;

/// Names an inode in the whole cell: volume in the upper 24 bits, inode in the lower 40. The root of the cell is 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root directory of the root volume.
    pub const ROOT: NodeId = NodeId(1);

    /// Packs a volume and an inode number.
    pub fn new(volume: u32, inode: u64) -> NodeId {
        debug_assert!(volume < 1 << 24 && inode < 1 << 40);
        NodeId(u64::from(volume) << 40 | inode)
    }

    /// Volume number.
    pub fn volume(self) -> u32 {
        (self.0 >> 40) as u32
    }

    /// Whether front ends are told when this name in this directory changes. Of snapshots taken of directories above they
    /// are not: those show in every directory below.
    pub fn announces(self, name: &[u8]) -> bool {
        let is_snapshot_dir = (keys::DIRECTORIES_FIRST..keys::VIEW_END).contains(&self.volume());
        !is_snapshot_dir || name.first() != Some(&INHERITED)
    }

    /// Inode number within the volume.
    pub fn inode(self) -> u64 {
        self.0 & ((1 << 40) - 1)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.volume(), self.inode())
    }
}

/// Type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Regular file.
    File = 1,
    /// Directory.
    Dir = 2,
    /// Symbolic link.
    Symlink = 3,
    /// Named pipe.
    Fifo = 4,
    /// Character device.
    CharDev = 5,
    /// Block device.
    BlockDev = 6,
    /// Socket.
    Socket = 7,
}

/// A point in time: seconds since 1970 (may be negative) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC.
    pub secs: i64,
    /// 0..10^9.
    pub nanos: u32,
}

/// Attributes as `stat` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Which inode.
    pub node: NodeId,
    /// Type.
    pub kind: Kind,
    /// Permission bits, setuid, setgid, sticky (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links; for a directory 2 + its subdirectories.
    pub nlink: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte units allocated (uncompressed; holes not counted).
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This one.
    To(Time),
}

/// Attributes to change; `None` leaves as is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends with a hole.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

/// What to make in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make<'a> {
    /// Regular file, empty.
    File,
    /// Directory.
    Dir,
    /// Symbolic link to this target.
    Symlink(&'a [u8]),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDev(u32),
    /// Block device.
    BlockDev(u32),
}

/// What rename does when the target exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it where POSIX allows.
    Replace,
    /// EEXIST (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two (`RENAME_EXCHANGE`).
    Exchange,
}

/// What a file may take the place of, or what may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Anything but a directory, or nothing.
    Any,
    /// Nothing: else EEXIST.
    Nothing,
    /// This inode, unchanged since this change time: else EAGAIN's sibling, [`Error::Changed`](crate::Error::Changed).
    This(NodeId, Time),
}

/// What setxattr does about an existing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces.
    Set,
    /// EEXIST when there (`XATTR_CREATE`).
    Create,
    /// ENODATA when absent (`XATTR_REPLACE`).
    Replace,
}

/// fallocate's modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Reserve; `keep_size` leaves the size.
    Reserve {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
    /// Make a hole (always keeps the size).
    PunchHole,
    /// Make zeros, allocated.
    ZeroRange {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
}

/// lseek's searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE.
    Hole,
}

/// One operation. Names are single path components (no `/`, not `.` or `..`, at most 255 bytes) as bytes.
///
/// Permission checks on path walks are the front end's (the kernel's, with `default_permissions`); what the file system
/// itself checks is said in `docs/SEMANTICS.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// → [`Reply::Attr`]. Name `..` gives the parent (of a volume's root: the directory it is attached in).
    Lookup {
        /// In which directory.
        dir: NodeId,
        /// Which name.
        name: &'a [u8],
    },
    /// → [`Reply::Attr`].
    GetAttr {
        /// Of which inode.
        node: NodeId,
    },
    /// → [`Reply::Attr`].
    SetAttr {
        /// Of which inode.
        node: NodeId,
        /// What to set.
        set: SetAttr,
    },
    /// → [`Reply::Data`].
    ReadLink {
        /// Of which symbolic link.
        node: NodeId,
    },
    /// → [`Reply::Attr`]. EEXIST when the name is there. Default ACLs and setgid of `dir` are inherited;
    /// `mode` is masked by `umask` unless a default ACL applies.
    Make {
        /// In which directory.
        dir: NodeId,
        /// Under which name.
        name: &'a [u8],
        /// What.
        make: Make<'a>,
        /// 07777 bits.
        mode: u32,
        /// Bits to clear.
        umask: u32,
    },
    /// → [`Reply::Attr`]. A regular file without a name, in the volume of `dir` and as if it were made there. It is kept while
    /// references are out and freed with the last one, or after a crash: [`Op::Place`] gives it a name. It counts in no quota
    /// until then; one that has no room for `bytes` more now refuses it.
    MakeUnnamed {
        /// In which directory it will be.
        dir: NodeId,
        /// 07777 bits.
        mode: u32,
        /// Bits to clear.
        umask: u32,
        /// How large it will be, as far as that is known.
        bytes: u64,
    },
    /// → [`Reply::Attr`] of `node`. Gives a file without a name its first one, in place of what has it: who looks finds the old file
    /// whole or the new one whole, also after a crash (and waits for the store, where that takes it).
    Place {
        /// From [`Op::MakeUnnamed`].
        node: NodeId,
        /// In which directory, of the same volume.
        dir: NodeId,
        /// Under which name. A directory is not replaced (EISDIR).
        name: &'a [u8],
        /// What it may replace.
        over: Over,
    },
    /// → [`Reply::Begun`]. An upload in parts, in the volume of `dir`: it is there until it is ended, or rests for too long, also
    /// after a crash.
    BeginUpload {
        /// In which directory the file will be, as far as there is one.
        dir: NodeId,
        /// For which bucket, slash, key: text.
        key: &'a [u8],
        /// What the door wants to know of it.
        note: &'a [u8],
    },
    /// → [`Reply::Done`]. A file without a name is a part of an upload from now on, in place of the one that had this number, and kept as long
    /// as the upload is there. ESTALE when it is not.
    KeepPart {
        /// From [`Op::MakeUnnamed`].
        node: NodeId,
        /// From [`Op::BeginUpload`].
        upload: NodeId,
        /// Which part.
        number: u32,
        /// What the door wants to know of it.
        note: &'a [u8],
    },
    /// [`Op::Place`] of the file that was made of the parts. The upload is complete with it, and its parts are let go; what the note says is
    /// known for a while. ESTALE when it was ended or completed before.
    CompleteUpload {
        /// From [`Op::BeginUpload`].
        upload: NodeId,
        /// From [`Op::MakeUnnamed`].
        node: NodeId,
        /// In which directory, of the same volume.
        dir: NodeId,
        /// Under which name. A directory is not replaced (EISDIR).
        name: &'a [u8],
        /// What it may replace.
        over: Over,
        /// What became of the upload.
        note: &'a [u8],
    },
    /// → [`Reply::Done`]. The upload is gone, its parts are let go.
    EndUpload {
        /// From [`Op::BeginUpload`].
        upload: NodeId,
    },
    /// → [`Reply::Attr`] of `node`.
    Link {
        /// An existing inode, no directory.
        node: NodeId,
        /// In which directory.
        dir: NodeId,
        /// Under which name.
        name: &'a [u8],
    },
    /// → [`Reply::Removed`]. Not for directories (EISDIR).
    Unlink {
        /// In which directory.
        dir: NodeId,
        /// Which name.
        name: &'a [u8],
        /// What it may remove.
        over: Over,
    },
    /// → [`Reply::Removed`]. ENOTEMPTY when not empty; EBUSY where a volume is attached.
    RmDir {
        /// In which directory.
        dir: NodeId,
        /// Which name.
        name: &'a [u8],
    },
    /// → [`Reply::Done`].
    Rename {
        /// From directory.
        from_dir: NodeId,
        /// From name.
        from_name: &'a [u8],
        /// To directory.
        to_dir: NodeId,
        /// To name.
        to_name: &'a [u8],
        /// About an existing target.
        mode: RenameMode,
    },
    /// → [`Reply::Data`], short at the end of the file.
    Read {
        /// From which file.
        node: NodeId,
        /// At which byte.
        offset: u64,
        /// How many bytes, at most 1 MiB.
        len: u32,
    },
    /// → [`Reply::Written`]. Clears setuid and setgid unless root writes.
    Write {
        /// To which file.
        node: NodeId,
        /// At which byte.
        offset: u64,
        /// What, at most 1 MiB.
        data: &'a [u8],
    },
    /// → [`Reply::Done`], when data, inode and name are durable. For directories too.
    Fsync {
        /// What.
        node: NodeId,
    },
    /// → [`Reply::Done`], when everything that had returned is durable (syncfs).
    SyncAll,
    /// → [`Reply::Done`].
    Allocate {
        /// In which file.
        node: NodeId,
        /// From which byte.
        offset: u64,
        /// How many.
        len: u64,
        /// How.
        mode: Allocate,
    },
    /// → [`Reply::Offset`]; ENXIO past the end.
    SeekTo {
        /// In which file.
        node: NodeId,
        /// From which byte.
        offset: u64,
        /// For what.
        what: Seek,
    },
    /// → [`Reply::Written`]. Shares extents within a volume where ranges are whole; copies elsewhere.
    CopyRange {
        /// From file.
        from: NodeId,
        /// From byte.
        from_offset: u64,
        /// To file.
        to: NodeId,
        /// To byte.
        to_offset: u64,
        /// How many.
        len: u64,
    },
    /// → [`Reply::Entries`]: entries after `after` in name order (empty: from the start), at most `limit`. `.` and `..` are
    /// not included. Fewer than `limit` only at the end.
    List {
        /// Which directory.
        dir: NodeId,
        /// Name to start after.
        after: &'a [u8],
        /// How many at most.
        limit: usize,
        /// Whether each entry carries its attributes.
        attrs: bool,
    },
    /// → [`Reply::Data`]; ENODATA.
    GetXattr {
        /// Of which inode.
        node: NodeId,
        /// Full name, such as `user.x`.
        name: &'a [u8],
    },
    /// → [`Reply::Names`].
    ListXattr {
        /// Of which inode.
        node: NodeId,
    },
    /// → [`Reply::Done`].
    SetXattr {
        /// Of which inode.
        node: NodeId,
        /// Full name.
        name: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// About an existing one.
        mode: XattrMode,
    },
    /// → [`Reply::Done`]; ENODATA.
    RemoveXattr {
        /// Of which inode.
        node: NodeId,
        /// Full name.
        name: &'a [u8],
    },
    /// → [`Reply::StatFs`].
    StatFs {
        /// In which volume.
        node: NodeId,
    },
    /// → [`Reply::Done`]. The front end holds `count` references fewer on `node`; an unlinked inode is freed when none is left.
    /// References are taken by every [`Reply::Attr`] of Lookup, Make and Link and each entry of a List with `attrs`,
    /// when [`Ctx::refs`](leeward_env::Ctx) is set.
    Forget {
        /// Which inode.
        node: NodeId,
        /// How many references.
        count: u64,
    },
}

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: Box<[u8]>,
    /// Which inode.
    pub node: NodeId,
    /// Type.
    pub kind: Kind,
    /// Attributes, where asked for.
    pub attr: Option<Attr>,
}

/// Figures of a file system, for statfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in total (the quota, where a volume has one).
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Inodes in total.
    pub total_files: u64,
    /// Inodes free.
    pub free_files: u64,
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done, nothing to say.
    Done,
    /// Attributes.
    Attr(Attr),
    /// Bytes.
    Data(Vec<u8>),
    /// How many bytes were taken.
    Written(u64),
    /// A file position.
    Offset(u64),
    /// Directory entries.
    Entries(Vec<Entry>),
    /// Names.
    Names(Vec<Box<[u8]>>),
    /// The number of an upload, which is that of no inode.
    Begun(NodeId),
    /// File system figures.
    StatFs(StatFs),
    /// What was removed: the inode and its remaining links.
    Removed {
        /// Which inode lost its name.
        node: NodeId,
        /// Links left.
        nlink: u32,
    },
}
