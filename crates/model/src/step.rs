//! Steps: operations in symbolic form, with paths instead of inode numbers, so that a run can be printed, shrunk and
//! kept. One step is one line of text (see [`text`](crate::text)).

use crate::node::Name;
use leeward_fs::{Allocate, RenameMode, Seek, Time, XattrMode};
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

/// What a step works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// What is found under this path.
    Path(Path),
    /// What [`Act::Hold`] took, though it may have lost its names since.
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

/// Bytes to write: a pattern, of which every part tells where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Which pattern. Multiples of 8 are all zeros; of 4, compressible; others look random.
    pub pattern: u32,
    /// Bytes.
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

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Makes something.
    Make {
        /// Where.
        path: Path,
        /// What.
        new: New,
        /// 07777 bits.
        mode: u32,
        /// Bits to clear.
        umask: u32,
    },
    /// Gives an inode another name.
    Link {
        /// Which inode.
        from: Where,
        /// The name.
        to: Path,
    },
    /// Removes a name of anything but a directory.
    Unlink(Path),
    /// Removes an empty directory.
    RmDir(Path),
    /// Renames.
    Rename {
        /// From.
        from: Path,
        /// To.
        to: Path,
        /// About an existing target.
        mode: RenameMode,
    },
    /// Writes.
    Write {
        /// To which file.
        file: Where,
        /// At which byte.
        offset: u64,
        /// What.
        fill: Fill,
    },
    /// Reads.
    Read {
        /// From which file.
        file: Where,
        /// At which byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// Sets the size.
    Truncate {
        /// Of which file.
        file: Where,
        /// Bytes.
        size: u64,
    },
    /// Sets permission bits.
    Chmod {
        /// Of which inode.
        file: Where,
        /// 07777 bits.
        mode: u32,
    },
    /// Sets owner and group.
    Chown {
        /// Of which inode.
        file: Where,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Sets both times; `None` is now.
    Utimes {
        /// Of which inode.
        file: Where,
        /// Both of them.
        to: Option<Time>,
    },
    /// fallocate.
    Allocate {
        /// In which file.
        file: Where,
        /// From which byte.
        offset: u64,
        /// How many.
        len: u64,
        /// How.
        mode: Allocate,
    },
    /// lseek's searches.
    Seek {
        /// In which file.
        file: Where,
        /// From which byte.
        offset: u64,
        /// For what.
        what: Seek,
    },
    /// copy_file_range.
    Copy {
        /// From file.
        from: Where,
        /// From byte.
        from_offset: u64,
        /// To file.
        to: Where,
        /// To byte.
        to_offset: u64,
        /// How many.
        len: u64,
    },
    /// Reads a symbolic link.
    ReadLink(Where),
    /// Lists a directory, or a part.
    List {
        /// Which directory.
        dir: Where,
        /// Name to start after.
        after: Name,
        /// How many at most.
        limit: u32,
    },
    /// Reads an attribute.
    GetXattr {
        /// Of which inode.
        file: Where,
        /// Which attribute.
        name: Name,
    },
    /// Lists the names of the attributes.
    ListXattr(Where),
    /// Sets an attribute.
    SetXattr {
        /// Of which inode.
        file: Where,
        /// Which attribute.
        name: Name,
        /// The value.
        fill: Fill,
        /// About an existing one.
        mode: XattrMode,
    },
    /// Removes an attribute.
    RemoveXattr {
        /// Of which inode.
        file: Where,
        /// Which attribute.
        name: Name,
    },
    /// Reads attributes.
    Stat(Where),
    /// Figures of the file system.
    StatFs,
    /// Makes one inode durable.
    Fsync(Where),
    /// Makes everything durable.
    SyncAll,
    /// Takes a reference on an inode; what the slot held before is released.
    Hold {
        /// Where to keep it.
        slot: u8,
        /// Which inode.
        path: Path,
    },
    /// Gives the reference back.
    Release(u8),
    /// Limits what is below a directory, so widely that nothing is ever refused, or ends that.
    Quota {
        /// Which directory.
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
        /// Which.
        pool: u8,
    },
    /// Closes the file system cleanly and opens it again.
    Reopen,
}

/// One step: who does what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// User and group of the caller. 0 is root.
    pub uid: u32,
    /// What it does.
    pub act: Act,
}

impl Step {
    /// A step of root's.
    pub fn root(act: Act) -> Step {
        Step { uid: 0, act }
    }
}
