//! Steps: operations in symbolic form, with paths instead of inode numbers, so that a run can be
//! printed, shrunk and kept. One step is one line of text (see [`text`](crate::text)).

use crate::node::Name;
use leeward_fs::{Allocate, InodeFlags, Precondition, RenameMode, Seek, Time, XattrMode};
use std::fmt;

/// Name of the directory of snapshots in each directory.
pub const SNAP_DIR: &[u8] = b".snap";

/// A path from the root: its components.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Name>);

impl Path {
    /// The path one name further down.
    pub fn join(&self, name: &[u8]) -> Path {
        let mut names = self.0.clone();
        names.push(name.into());
        Path(names)
    }

    /// Directory and last name; `None` for the root.
    pub fn split(&self) -> Option<(Path, &[u8])> {
        let (last, dir) = self.0.split_last()?;
        Some((Path(dir.to_vec()), last))
    }

    /// Whether it leads through a directory of snapshots.
    pub fn in_snapshots(&self) -> bool {
        self.0.iter().any(|name| **name == *SNAP_DIR)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        self.0.iter().try_for_each(|name| write!(f, "/{}", crate::text::escape(name)))
    }
}

/// The inode that a step works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// The inode at this path.
    Path(Path),
    /// The inode that [`Act::Hold`] took, though it may have lost its names since.
    Slot(u8),
}

/// What to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum New {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link to this target.
    Symlink(Name),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDev(u32),
}

/// Bytes to write: a pattern, every part of which shows where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Number of the pattern. Multiples of 8 are all zeros; of 4, compressible; others look random.
    pub pattern: u32,
    /// Number of bytes.
    pub len: u32,
}

impl Fill {
    /// The bytes.
    pub fn bytes(self) -> Vec<u8> {
        let word = |i: u32| match self.pattern {
            p if p % 8 == 0 => 0,
            p if p % 4 == 0 => u64::from(p / 4 % 255 + 1) * 0x0101_0101_0101_0101,
            p => mix(u64::from(p) << 32 | u64::from(i)),
        };
        let mut out: Vec<u8> = (0..self.len.div_ceil(8)).flat_map(|i| word(i).to_le_bytes()).collect();
        out.truncate(self.len as usize);
        out
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 32
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Makes something.
    Make {
        /// Path of the new name.
        path: Path,
        /// What to make.
        new: New,
        /// 07777 bits.
        mode: u32,
        /// Bits to clear.
        umask: u32,
    },
    /// Gives an inode another name.
    Link {
        /// The inode.
        from: Where,
        /// Path of the new name.
        to: Path,
    },
    /// Removes a name of anything but a directory.
    Unlink(Path),
    /// Removes an empty directory.
    RmDir(Path),
    /// Renames a file or directory.
    Rename {
        /// Old path.
        from: Path,
        /// New path.
        to: Path,
        /// What happens to an existing target.
        mode: RenameMode,
    },
    /// Writes to a file.
    Write {
        /// The file.
        file: Where,
        /// First byte.
        offset: u64,
        /// The bytes to write.
        fill: Fill,
    },
    /// Writes at the end of a file.
    Append {
        /// The file.
        file: Where,
        /// The bytes to write.
        fill: Fill,
    },
    /// Reads from a file.
    Read {
        /// The file.
        file: Where,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u32,
    },
    /// Sets the size of a file.
    Truncate {
        /// The file.
        file: Where,
        /// The new size, in bytes.
        size: u64,
    },
    /// Sets permission bits.
    Chmod {
        /// The inode.
        file: Where,
        /// 07777 bits.
        mode: u32,
    },
    /// Sets owner and group.
    Chown {
        /// The inode.
        file: Where,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Sets flags, as `chattr` does.
    Flags {
        /// The inode.
        file: Where,
        /// The new flags.
        flags: InodeFlags,
    },
    /// Sets both times; `None` is now.
    Utimes {
        /// The inode.
        file: Where,
        /// Value of both times.
        to: Option<Time>,
    },
    /// fallocate.
    Allocate {
        /// The file.
        file: Where,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Kind of the allocation.
        mode: Allocate,
    },
    /// lseek's searches.
    Seek {
        /// The file.
        file: Where,
        /// Byte from which the search begins.
        offset: u64,
        /// What to search for.
        what: Seek,
    },
    /// copy_file_range.
    Copy {
        /// The source.
        from: Where,
        /// First byte in the source.
        from_offset: u64,
        /// The target.
        to: Where,
        /// First byte in the target.
        to_offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Reads a symbolic link.
    ReadLink(Where),
    /// Lists a directory, or a part.
    List {
        /// The directory.
        dir: Where,
        /// Name to start after.
        after: Name,
        /// Most entries.
        limit: u32,
    },
    /// Reads an attribute.
    GetXattr {
        /// The inode.
        file: Where,
        /// Name of the attribute.
        name: Name,
    },
    /// Lists the names of the attributes.
    ListXattr(Where),
    /// Sets an attribute.
    SetXattr {
        /// The inode.
        file: Where,
        /// Name of the attribute.
        name: Name,
        /// The value.
        fill: Fill,
        /// What happens to an existing attribute.
        mode: XattrMode,
    },
    /// Removes an attribute.
    RemoveXattr {
        /// The inode.
        file: Where,
        /// Name of the attribute.
        name: Name,
    },
    /// Reads attributes.
    Stat(Where),
    /// Reads the figures of the file system.
    StatFs,
    /// Makes one inode durable.
    Fsync(Where),
    /// Makes everything durable.
    SyncAll,
    /// Takes a reference on an inode; what the slot held before is released.
    Hold {
        /// The slot that keeps the reference.
        slot: u8,
        /// Path of the inode.
        path: Path,
    },
    /// Releases the reference.
    Release(u8),
    /// Makes a file without a name, and takes a reference on it as [`Act::Hold`] does.
    MakeUnnamed {
        /// The slot that keeps the reference.
        slot: u8,
        /// The directory where it is to be.
        dir: Path,
        /// 07777 bits.
        mode: u32,
        /// Bits to clear.
        umask: u32,
    },
    /// Gives a file without a name its first one.
    Place {
        /// The file.
        file: Where,
        /// Path of the name.
        to: Path,
        /// The inode that it may replace: any, or none.
        over: Precondition,
    },
    /// Sets a limit below a directory that is so high that nothing is ever refused, or removes it.
    Quota {
        /// The directory.
        dir: Path,
        /// Whether it has a limit.
        on: bool,
    },
    /// Lets time pass, and the background work that comes with it.
    Advance {
        /// Milliseconds.
        ms: u32,
    },
    /// Keeps data in another pool.
    MoveData {
        /// The pool.
        pool: u8,
    },
    /// Closes the file system cleanly and opens it again.
    Reopen,
}

/// One step: a user and an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// User and group of the caller. 0 is root.
    pub uid: u32,
    /// The action.
    pub act: Act,
}

impl Step {
    /// A step by root.
    pub fn root(act: Act) -> Step {
        Step { uid: 0, act }
    }
}
