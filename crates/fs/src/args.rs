//! Arguments of operations besides names, numbers and attributes.

use crate::{NodeId, Time};

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

/// What the inode that an operation replaces or removes must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Anything but a directory, or nothing.
    Any,
    /// No inode: else EEXIST.
    Nothing,
    /// This inode, unchanged since this change time: else
    /// [`Error::Changed`](crate::Error::Changed).
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
