//! One inode of the model.

use crate::content::{Allocation, Content};
use leeward_env::Ctx;
use leeward_fs::{Attr, Error, InodeFlags, Kind, Make, NodeId, Result, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One path component.
pub type Name = Box<[u8]>;

/// Inode number in the model; means nothing to the system under test.
pub type Ino = u64;

/// Times before this came from the model's own clock: their value is not comparable, only whether
/// it changed.
const CLOCK_BASE_SECS: i64 = -(1 << 60);

/// A tick of the model's own clock, as a time.
pub fn clock_time(tick: u64) -> Time {
    Time { secs: CLOCK_BASE_SECS + tick as i64, nanos: 0 }
}

/// Whether somebody set this time, so that the system under test must show the same value.
pub fn was_set(time: Time) -> bool {
    time.secs > CLOCK_BASE_SECS / 2
}

/// What an inode holds.
#[derive(Clone, Debug)]
pub enum Body {
    /// A regular file's content.
    File(Content),
    /// A directory's names, and its parent.
    Dir {
        /// Names, without `.` and `..`.
        entries: BTreeMap<Name, Ino>,
        /// The directory it is in (the root: itself).
        parent: Ino,
    },
    /// A symbolic link's target.
    Symlink(Box<[u8]>),
    /// A pipe, a socket or a device.
    Special(Kind, u32),
}

impl Body {
    /// The body of what is made in directory `parent`.
    pub fn of(make: Make<'_>, parent: Ino) -> Body {
        match make {
            Make::File => Body::File(Content::default()),
            Make::Dir => Body::Dir { entries: BTreeMap::new(), parent },
            Make::Symlink(target) => Body::Symlink(target.into()),
            Make::Fifo => Body::Special(Kind::Fifo, 0),
            Make::Socket => Body::Special(Kind::Socket, 0),
            Make::CharDev(rdev) => Body::Special(Kind::CharDev, rdev),
            Make::BlockDev(rdev) => Body::Special(Kind::BlockDev, rdev),
        }
    }
}

/// An inode.
#[derive(Clone, Debug)]
pub struct Node {
    /// 07777 bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead here (a directory: 1, or 0 when removed).
    pub names: u32,
    /// Subdirectories of a directory.
    pub subdirs: u32,
    /// References that a front end holds.
    pub refs: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
    /// Flags.
    pub flags: InodeFlags,
    /// Extended attributes.
    pub xattrs: BTreeMap<Name, Arc<[u8]>>,
    /// Contents of the inode.
    pub body: Body,
}

impl Node {
    /// Its type.
    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Dir { .. } => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir { .. })
    }

    /// As `stat` shows it.
    pub fn nlink(&self) -> u32 {
        match (&self.body, self.names) {
            (Body::Dir { .. }, 1..) => 2 + self.subdirs,
            (_, names) => names,
        }
    }

    /// The content of a regular file; the error says what it is instead.
    pub fn file(&self) -> Result<&Content> {
        match &self.body {
            Body::File(content) => Ok(content),
            Body::Dir { .. } => Err(Error::IsDir),
            _ => Err(Error::Invalid),
        }
    }

    /// The content of a regular file, to change.
    pub fn file_mut(&mut self) -> Result<&mut Content> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Dir { .. } => Err(Error::IsDir),
            _ => Err(Error::Invalid),
        }
    }

    /// The names in a directory.
    pub fn entries(&self) -> Result<&BTreeMap<Name, Ino>> {
        match &self.body {
            Body::Dir { entries, .. } => Ok(entries),
            _ => Err(Error::NotDir),
        }
    }

    /// As `stat` shows it.
    pub fn attr(&self, ino: Ino) -> Attr {
        let (size, rdev) = match &self.body {
            Body::File(content) => (content.size(), 0),
            Body::Dir { .. } => (0, 0),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Special(_, rdev) => (0, *rdev),
        };
        let blocks = self.file().map_or(0, |c| c.allocated(Allocation::Units(1)).1.div_ceil(512));
        Attr {
            node: NodeId(ino),
            kind: self.kind(),
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink(),
            rdev,
            size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            flags: self.flags,
        }
    }

    /// What a write by a user other than root clears: setuid, and setgid where the group may
    /// execute or the caller is not in it.
    pub fn drop_setid(&mut self, ctx: &Ctx) {
        self.mode &= !0o4000;
        if self.mode & 0o010 != 0 || ctx.uid != 0 && ctx.gid != self.gid {
            self.mode &= !0o2000;
        }
    }
}
