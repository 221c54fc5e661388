//! Inode flags in the model: `chattr +i`, `+a` and `+d`.

use crate::model::Model;
use crate::node::Ino;
use leeward_env::Ctx;
use leeward_fs::{Allocate, Error, InodeFlags, Kind, Result, SetAttr, SetTime};

impl Model {
    fn has_flag(&self, ino: Ino, flag: InodeFlags) -> Result<bool> {
        Ok(self.node(ino)?.flags.has(flag))
    }

    /// Refuses an immutable inode.
    pub(crate) fn not_immutable(&self, ino: Ino) -> Result<()> {
        match self.has_flag(ino, InodeFlags::IMMUTABLE)? {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
    }

    /// Refuses an inode that is immutable or append-only.
    pub(crate) fn not_kept(&self, ino: Ino) -> Result<()> {
        self.not_immutable(ino)?;
        match self.has_flag(ino, InodeFlags::APPEND_ONLY)? {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
    }

    /// Refuses the removal of a name of `ino` from `dir`.
    pub(crate) fn may_lose(&self, dir: Ino, ino: Ino) -> Result<()> {
        self.not_kept(dir)?;
        self.not_kept(ino)
    }

    /// Refuses a write that does not append where it must.
    pub(crate) fn may_write(&self, ino: Ino, offset: u64) -> Result<()> {
        self.not_immutable(ino)?;
        match self.has_flag(ino, InodeFlags::APPEND_ONLY)? && offset < self.node(ino)?.file()?.size() {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
    }

    /// Refuses a change of a file's space.
    pub(crate) fn may_allocate(&self, ino: Ino, mode: Allocate) -> Result<()> {
        match mode {
            Allocate::Reserve { .. } => self.not_immutable(ino),
            Allocate::PunchHole | Allocate::ZeroRange { .. } => self.not_kept(ino),
        }
    }

    /// Refuses a change of attributes.
    pub(crate) fn may_set_attr(&self, ctx: &Ctx, ino: Ino, set: SetAttr) -> Result<()> {
        let node = self.node(ino)?;
        if let Some(flags) = set.flags {
            let known = InodeFlags::KNOWN.bits();
            if !matches!(node.kind(), Kind::File | Kind::Dir) || flags.bits() & !known != 0 {
                return Err(Error::NotSupported);
            }
            let immutable = InodeFlags::IMMUTABLE;
            if node.flags.has(immutable) && flags.has(immutable) && flags != node.flags {
                return Err(Error::NotPermitted);
            }
            let only_dump = flags.bits() ^ node.flags.bits() == 0
                || flags.bits() ^ node.flags.bits() == InodeFlags::NO_DUMP.bits();
            if ctx.uid != 0 && (ctx.uid != node.uid || !only_dump) {
                return Err(Error::NotPermitted);
            }
        }
        let SetAttr { mode, uid, gid, size, atime, mtime, .. } = set;
        let has = node.mode & 0o7777;
        let loses_set_ids = |mode: u32| mode == has & !0o6000 || mode == has & !0o4000;
        if ctx.uid == 0
            && mode.is_some_and(|mode| mode != has && loses_set_ids(mode))
            && (uid, gid, size, atime, mtime) == (None, None, None, None, None)
        {
            // what the kernel asks for before a write of another user
            self.not_immutable(ino)
        } else if (mode, uid, gid, size) == (None, None, None, None) {
            match (atime, mtime) {
                (None, None) => Ok(()),
                (Some(SetTime::Now), Some(SetTime::Now)) => self.not_immutable(ino),
                _ => self.not_kept(ino),
            }
        } else {
            self.not_kept(ino)
        }
    }
}
