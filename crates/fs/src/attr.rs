//! Attributes of inodes, as `stat` shows them and `setattr` changes them.

use crate::NodeId;

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
    /// Nanoseconds, 0 to 10^9 - 1.
    pub nanos: u32,
}

/// Flags of an inode, as `chattr` sets them. The bits are those of the kernel's `FS_IOC_SETFLAGS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InodeFlags(u32);

impl InodeFlags {
    /// `chattr +i`: nothing about the inode changes; a directory gets and loses no names.
    pub const IMMUTABLE: InodeFlags = InodeFlags(0x10);
    /// `chattr +a`: a file only grows at its end; a directory gets names and loses none.
    pub const APPEND_ONLY: InodeFlags = InodeFlags(0x20);
    /// `chattr +d`: backup programs may leave it out. New inodes inherit it from their directory.
    pub const NO_DUMP: InodeFlags = InodeFlags(0x40);
    /// All flags that have a meaning.
    pub const KNOWN: InodeFlags = InodeFlags(0x70);

    /// The flags with these bits, known or not.
    pub const fn from_bits(bits: u32) -> InodeFlags {
        InodeFlags(bits)
    }

    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether any of `others` is among them.
    pub const fn has(self, others: InodeFlags) -> bool {
        self.0 & others.0 != 0
    }

    /// Those that are also among `others`.
    pub const fn and(self, others: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & others.0)
    }

    /// These and `others`.
    pub const fn or(self, others: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 | others.0)
    }

    /// Those without `others`.
    pub const fn without(self, others: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & !others.0)
    }

    /// Those that are set in exactly one of the two.
    pub const fn changed(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 ^ other.0)
    }
}

/// Attributes as `stat` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode.
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
    /// Length in bytes.
    pub size: u64,
    /// 512-byte units allocated (uncompressed; holes not counted).
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Time of creation.
    pub btime: Time,
    /// Flags.
    pub flags: InodeFlags,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This time.
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
    /// Flags, of a file or directory only (EOPNOTSUPP). Root may change all known ones, the owner
    /// only [`InodeFlags::NO_DUMP`] (EPERM).
    pub flags: Option<InodeFlags>,
}
