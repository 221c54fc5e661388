//! Inode flags: what they refuse, and who may change them. The rules are those of ext4 and of the
//! Linux VFS. They hold for root, too.
//!
//! The kernel does not know the flags of inodes in a FUSE mount, so all checks are here. They are
//! made when an operation begins to change something, and only by operations of users: work of the
//! cell itself (cleaning, freeing, trimming, restoring) is not hindered.

use crate::format::inode::Inode;
use crate::format::keys;
use crate::tx::{Tx, TxResult};
use leeward_fs::rights::CAPABILITY;
use leeward_fs::{Allocate, Error, InodeFlags, Kind, NodeId, Result, SetAttr, SetTime};

const IMMUTABLE: InodeFlags = InodeFlags::IMMUTABLE;
const APPEND_ONLY: InodeFlags = InodeFlags::APPEND_ONLY;
const EITHER: InodeFlags = IMMUTABLE.or(APPEND_ONLY);

/// The flags that a new inode takes over from its directory.
pub(crate) const INHERITED: InodeFlags = InodeFlags::NO_DUMP;

fn refuse(if_any: InodeFlags, of: InodeFlags) -> Result<()> {
    if of.has(if_any) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Whether one of these flags refuses writes to a file.
pub(crate) fn refuse_writes(flags: InodeFlags) -> bool {
    flags.has(EITHER)
}

/// Whether a directory may get one more name.
pub(crate) fn may_add_name(dir: &Inode) -> Result<()> {
    refuse(IMMUTABLE, dir.flags)
}

/// Whether an inode may get one more name, or extended attributes may change.
pub(crate) fn may_change_inode(inode: &Inode) -> Result<()> {
    refuse(EITHER, inode.flags)
}

/// Whether an extended attribute may go. A program's capabilities may where content may be
/// appended: the kernel asks for it before somebody writes.
pub(crate) fn may_remove_xattr(inode: &Inode, name: &[u8]) -> Result<()> {
    refuse(if name == CAPABILITY { IMMUTABLE } else { EITHER }, inode.flags)
}

/// Whether space of a file may be reserved, zeroed or freed.
pub(crate) fn may_allocate(inode: &Inode, mode: Allocate) -> Result<()> {
    match mode {
        Allocate::Reserve { .. } => refuse(IMMUTABLE, inode.flags),
        Allocate::PunchHole | Allocate::ZeroRange { .. } => refuse(EITHER, inode.flags),
    }
}

impl Tx<'_> {
    /// Whether a write may begin at `offset`. Only the front end knows whether a file is open for
    /// appending, so one that is append-only takes what begins at its end, or later.
    pub(crate) fn may_write(&self, node: NodeId, inode: &Inode, offset: u64) -> TxResult<()> {
        // what is done again was allowed then
        if inode.flags.is_empty() || self.ctx.again.is_some() {
            return Ok(());
        }
        refuse(IMMUTABLE, inode.flags)?;
        if inode.flags.has(APPEND_ONLY) && offset < self.size_of(node, inode).0 {
            return Err(Error::NotPermitted.into());
        }
        Ok(())
    }

    /// Whether a name of `node` may be removed from a directory, or moved away.
    pub(crate) fn may_remove_name(&self, dir: &Inode, node: NodeId) -> TxResult<()> {
        refuse(EITHER, dir.flags)?;
        Ok(refuse(EITHER, self.flags_of(node)?)?)
    }

    /// The flags of an inode.
    fn flags_of(&self, node: NodeId) -> TxResult<InodeFlags> {
        let record = self.get(&keys::inode(node))?.ok_or(Error::Stale)?;
        Ok(Inode::flags_encoded(&record)?)
    }

    /// Whether the caller may change these attributes of an inode.
    pub(crate) fn may_set_attr(&self, inode: &Inode, set: &SetAttr) -> Result<()> {
        if self.ctx.again.is_some() {
            return Ok(());
        }
        if let Some(flags) = set.flags {
            self.may_set_flags(inode, flags)?;
        }
        match others_set(set) {
            false => Ok(()),
            true if is_touch(set) || self.takes_set_ids(inode, set) => refuse(IMMUTABLE, inode.flags),
            true => refuse(EITHER, inode.flags),
        }
    }

    /// Whether nothing but setuid or setgid is to go, in root's name: the kernel asks for it before
    /// somebody else's write.
    fn takes_set_ids(&self, inode: &Inode, set: &SetAttr) -> bool {
        let mode = |mode| SetAttr { mode: Some(mode), flags: set.flags, ..SetAttr::default() };
        let kept = inode.mode & !0o6000;
        let fewer = [kept, kept | inode.mode & 0o2000];
        self.ctx.uid == 0 && fewer.iter().any(|bits| *bits != inode.mode && *set == mode(*bits & 0o7777))
    }

    fn may_set_flags(&self, inode: &Inode, flags: InodeFlags) -> Result<()> {
        let uid = self.ctx.uid;
        if !matches!(inode.kind, Kind::File | Kind::Dir) || !flags.without(InodeFlags::KNOWN).is_empty() {
            return Err(Error::NotSupported);
        }
        if inode.flags.has(IMMUTABLE) && flags.has(IMMUTABLE) && flags != inode.flags {
            return Err(Error::NotPermitted);
        }
        let is_owner = uid == 0 || uid == inode.uid;
        match is_owner && (uid == 0 || !flags.changed(inode.flags).has(EITHER)) {
            true => Ok(()),
            false => Err(Error::NotPermitted),
        }
    }
}

/// Whether anything but flags is to change.
fn others_set(set: &SetAttr) -> bool {
    SetAttr { flags: None, ..*set } != SetAttr::default()
}

/// Whether both times are to become now and nothing else is to change: what a user may ask for who
/// may write.
fn is_touch(set: &SetAttr) -> bool {
    let now = Some(SetTime::Now);
    let touch = SetAttr { atime: now, mtime: now, ..SetAttr::default() };
    SetAttr { flags: None, ..*set } == touch
}
