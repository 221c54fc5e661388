//! The same things and the same actions of users in two worlds: a directory of this machine, where
//! the kernel checks rights, and a cell, where the server does.
#![allow(unreachable_pub)]

mod kernel;
pub mod served;

pub use kernel::Kernel;
pub use served::Served;

pub const OWNER: u32 = 1001;
pub const MEMBER: u32 = 1002;
pub const OTHER: u32 = 1003;
pub const NAMED: u32 = 1004;
pub const NOBODY: u32 = 65_534;
/// Of the files; the member is in it, their owner is not.
pub const GROUP: u32 = 500;
/// The owner is in it, too.
pub const SECOND: u32 = 501;

pub const READ_ACL: &str = "system.posix_acl_access";

/// Who acts.
#[derive(Clone, Copy, Debug)]
pub struct User {
    pub uid: u32,
    pub groups: &'static [u32],
}

/// In the order of the columns of tables.
pub const USERS: [User; 6] = [
    User { uid: OWNER, groups: &[SECOND] },
    User { uid: MEMBER, groups: &[GROUP, SECOND] },
    User { uid: OTHER, groups: &[] },
    User { uid: NAMED, groups: &[] },
    User { uid: NOBODY, groups: &[] },
    User { uid: 0, groups: &[] },
];

/// What they do. Paths are below the row's directory.
#[derive(Clone, Copy, Debug)]
pub enum Do {
    Stat(&'static str),
    Read(&'static str),
    Write(&'static str),
    Truncate(&'static str),
    List(&'static str),
    ReadLink(&'static str),
    Make(&'static str, u32),
    MakeDir(&'static str),
    Symlink(&'static str),
    Device(&'static str, u64),
    Unlink(&'static str),
    RemoveDir(&'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    Link(&'static str, &'static str),
    Chmod(&'static str, u32),
    Chown(&'static str, u32),
    Chgrp(&'static str, u32),
    TouchNow(&'static str),
    SetTimes(&'static str),
    GetXattr(&'static str, &'static str),
    SetXattr(&'static str, &'static str),
    RemoveXattr(&'static str, &'static str),
    ListXattr(&'static str),
}

pub enum Kind {
    Dir,
    File,
    Link,
}

/// What is there before each action.
pub struct Thing {
    pub path: &'static str,
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub has_acl: bool,
}

const fn thing(path: &'static str, kind: Kind, mode: u32, uid: u32, gid: u32) -> Thing {
    Thing { path, kind, mode, uid, gid, has_acl: false }
}

pub const THINGS: [Thing; 20] = [
    thing("open", Kind::Dir, 0o777, 0, 0),
    thing("open/dir", Kind::Dir, 0o755, OWNER, OWNER),
    thing("sticky", Kind::Dir, 0o1777, 0, 0),
    thing("sticky/file", Kind::File, 0o644, OWNER, OWNER),
    thing("sticky/dir", Kind::Dir, 0o755, OWNER, OWNER),
    thing("group", Kind::Dir, 0o2775, OWNER, GROUP),
    thing("group/in", Kind::File, 0o644, OWNER, GROUP),
    thing("private", Kind::Dir, 0o700, OWNER, GROUP),
    thing("private/in", Kind::File, 0o666, OWNER, GROUP),
    thing("private/link", Kind::Link, 0o777, OWNER, GROUP),
    thing("nosearch", Kind::Dir, 0o744, OWNER, GROUP),
    thing("nosearch/in", Kind::File, 0o666, OWNER, GROUP),
    thing("search", Kind::Dir, 0o711, OWNER, GROUP),
    thing("search/in", Kind::File, 0o666, OWNER, GROUP),
    thing("link", Kind::Link, 0o777, OWNER, GROUP),
    thing("file", Kind::File, 0o640, OWNER, GROUP),
    thing("rw", Kind::File, 0o666, OWNER, GROUP),
    thing("suid", Kind::File, 0o6777, OWNER, GROUP),
    Thing { has_acl: true, ..thing("acl", Kind::File, 0o640, OWNER, GROUP) },
    thing("open/mine", Kind::File, 0o644, OWNER, OWNER),
];

/// Attributes that the things `file` and `rw` have.
pub const XATTRS: [&str; 2] = ["user.x", "trusted.x"];

/// An ACL that lets [`NAMED`] read and write, and the group read.
pub fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 6, NAMED), (4, 4, u32::MAX), (0x10, 6, u32::MAX), (0x20, 0, u32::MAX)];
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend(tag.to_le_bytes().into_iter().chain(perm.to_le_bytes()).chain(id.to_le_bytes()));
    }
    out
}

/// The value that an action sets an attribute to.
pub fn value(name: &str) -> Vec<u8> {
    if name == READ_ACL { acl() } else { b"value".to_vec() }
}

pub trait World {
    /// Makes the things in a directory of this name.
    fn prepare(&self, row: &str);
    /// Does it there; 0 or the errno.
    fn act(&self, row: &str, user: User, what: Do) -> i32;
    /// The mode that something has.
    fn mode(&self, row: &str, path: &str) -> u32;
}
