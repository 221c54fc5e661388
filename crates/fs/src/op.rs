//! Operations and replies: the alphabet of the file system. The same enum is what front ends call, what the model
//! test draws from, and (later) the wire message and the audit record.

use crate::{NodeId, SetAttr, Time};

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
    /// → [`Reply::Upload`], also of one that is complete, as long as it is known. ESTALE when there is none.
    GetUpload {
        /// From [`Op::BeginUpload`].
        upload: NodeId,
    },
    /// → [`Reply::Parts`] of an upload, in the order of their numbers; none where there is no such upload.
    ListParts {
        /// From [`Op::BeginUpload`].
        upload: NodeId,
        /// Those with higher numbers than this. The lowest number of a part is 1.
        after: u32,
        /// How many at most.
        limit: usize,
    },
    /// → [`Reply::Uploads`] of the user who asks that are not complete, in the order of keys.
    ListUploads {
        /// How bucket, slash, key begin: text.
        prefix: &'a [u8],
        /// Those after this one: bucket, slash, key.
        after: &'a [u8],
        /// And after this upload of it.
        after_upload: NodeId,
        /// How many at most.
        limit: usize,
    },
    /// → [`Reply::UploadTotals`] of uploads that are not complete.
    StatUploads {
        /// Of the user who asks in this bucket; `None`: of everybody in all.
        bucket: Option<&'a [u8]>,
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

impl Op<'_> {
    /// Names of the kinds of operations, for reports; [`Op::number`] is the index.
    pub const NAMES: [&'static str; 33] = [
        "lookup",
        "getattr",
        "setattr",
        "readlink",
        "make",
        "link",
        "unlink",
        "rmdir",
        "rename",
        "read",
        "write",
        "fsync",
        "syncfs",
        "allocate",
        "seek",
        "copy",
        "list",
        "getxattr",
        "listxattr",
        "setxattr",
        "removexattr",
        "statfs",
        "forget",
        "makeunnamed",
        "place",
        "beginupload",
        "keeppart",
        "completeupload",
        "endupload",
        "getupload",
        "listparts",
        "listuploads",
        "statuploads",
    ];

    /// Number of its kind.
    pub fn number(&self) -> usize {
        match self {
            Op::Lookup { .. } => 0,
            Op::GetAttr { .. } => 1,
            Op::SetAttr { .. } => 2,
            Op::ReadLink { .. } => 3,
            Op::Make { .. } => 4,
            Op::Link { .. } => 5,
            Op::Unlink { .. } => 6,
            Op::RmDir { .. } => 7,
            Op::Rename { .. } => 8,
            Op::Read { .. } => 9,
            Op::Write { .. } => 10,
            Op::Fsync { .. } => 11,
            Op::SyncAll => 12,
            Op::Allocate { .. } => 13,
            Op::SeekTo { .. } => 14,
            Op::CopyRange { .. } => 15,
            Op::List { .. } => 16,
            Op::GetXattr { .. } => 17,
            Op::ListXattr { .. } => 18,
            Op::SetXattr { .. } => 19,
            Op::RemoveXattr { .. } => 20,
            Op::StatFs { .. } => 21,
            Op::Forget { .. } => 22,
            Op::MakeUnnamed { .. } => 23,
            Op::Place { .. } => 24,
            Op::BeginUpload { .. } => 25,
            Op::KeepPart { .. } => 26,
            Op::CompleteUpload { .. } => 27,
            Op::EndUpload { .. } => 28,
            Op::GetUpload { .. } => 29,
            Op::ListParts { .. } => 30,
            Op::ListUploads { .. } => 31,
            Op::StatUploads { .. } => 32,
        }
    }

    /// The inode that an operation is about; of two, the directory that gets the name or the file that gets the data. `None`: it is
    /// about all, or about what the kernel forgets.
    pub fn node(&self) -> Option<NodeId> {
        Some(match *self {
            Op::Lookup { dir, .. }
            | Op::Make { dir, .. }
            | Op::MakeUnnamed { dir, .. }
            | Op::Place { dir, .. }
            | Op::BeginUpload { dir, .. }
            | Op::CompleteUpload { dir, .. }
            | Op::Link { dir, .. }
            | Op::Unlink { dir, .. }
            | Op::RmDir { dir, .. }
            | Op::List { dir, .. } => dir,
            Op::Rename { to_dir, .. } => to_dir,
            Op::GetAttr { node }
            | Op::SetAttr { node, .. }
            | Op::ReadLink { node }
            | Op::Read { node, .. }
            | Op::Write { node, .. }
            | Op::Fsync { node }
            | Op::KeepPart { node, .. }
            | Op::Allocate { node, .. }
            | Op::SeekTo { node, .. }
            | Op::GetXattr { node, .. }
            | Op::ListXattr { node }
            | Op::SetXattr { node, .. }
            | Op::RemoveXattr { node, .. }
            | Op::StatFs { node } => node,
            Op::CopyRange { to, .. } => to,
            Op::EndUpload { upload } | Op::GetUpload { upload } | Op::ListParts { upload, .. } => upload,
            Op::SyncAll | Op::Forget { .. } | Op::ListUploads { .. } | Op::StatUploads { .. } => return None,
        })
    }

    /// Whether it adds records.
    pub fn grows(&self) -> bool {
        matches!(
            self,
            Op::Make { .. }
                | Op::MakeUnnamed { .. }
                | Op::BeginUpload { .. }
                | Op::Link { .. }
                | Op::SetXattr { .. }
        )
    }

    /// Whether it is about a snapshot or a directory of snapshots.
    pub fn is_on_view(&self) -> bool {
        let is_view = |node: NodeId| node.is_view();
        match self {
            Op::Rename { from_dir, to_dir, .. } => is_view(*from_dir) || is_view(*to_dir),
            op => op.node().is_some_and(is_view),
        }
    }

    /// Whether it changes anything.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Op::Lookup { .. }
                | Op::GetAttr { .. }
                | Op::ReadLink { .. }
                | Op::Read { .. }
                | Op::SeekTo { .. }
                | Op::List { .. }
                | Op::GetXattr { .. }
                | Op::ListXattr { .. }
                | Op::StatFs { .. }
                | Op::GetUpload { .. }
                | Op::ListParts { .. }
                | Op::ListUploads { .. }
                | Op::StatUploads { .. }
                | Op::Forget { .. }
        )
    }
}
