//! POSIX ACLs as the kernel stores them in `system.posix_acl_access` and
//! `system.posix_acl_default`.
//!
//! The kernel checks access by them. The file system keeps mode and ACL consistent, and copies
//! default ACLs to new inodes.

use crate::format::inode::{Inode, encode_xattr};
use crate::format::keys;
use crate::tx::{Tx, TxResult};
use leeward_fs::rights::tag::{GROUP_OBJ, MASK, OTHER, USER_OBJ};
pub use leeward_fs::rights::{ACL as ACCESS, DEFAULT_ACL as DEFAULT};
use leeward_fs::{Error, Kind, NodeId};

const VERSION: u32 = 2;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// An ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<AclEntry>);

impl Acl {
    fn parse(bytes: &[u8]) -> Result<Acl, Error> {
        let (version, entries) = bytes.split_first_chunk::<4>().ok_or(Error::Invalid)?;
        if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
            return Err(Error::Invalid);
        }
        let entry = |e: &[u8]| AclEntry {
            tag: u16::from_le_bytes([e[0], e[1]]),
            perm: u16::from_le_bytes([e[2], e[3]]),
            id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
        };
        let acl = Acl(entries.chunks_exact(8).map(entry).collect());
        let count = |tag| acl.0.iter().filter(|e| e.tag == tag).count();
        let named = acl.0.iter().any(|e| !matches!(e.tag, USER_OBJ | GROUP_OBJ | MASK | OTHER));
        let whole = count(USER_OBJ) == 1 && count(GROUP_OBJ) == 1 && count(OTHER) == 1;
        if !acl.0.is_empty() && (!whole || count(MASK) > 1 || named && count(MASK) == 0) {
            return Err(Error::Invalid);
        }
        Ok(acl)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            out.extend_from_slice(&e.tag.to_le_bytes());
            out.extend_from_slice(&e.perm.to_le_bytes());
            out.extend_from_slice(&e.id.to_le_bytes());
        }
        out
    }

    fn entry(&mut self, tag: u16) -> Option<&mut AclEntry> {
        self.0.iter_mut().find(|e| e.tag == tag)
    }

    /// The entry that the group bits of the mode show: the mask, if there is one.
    fn group(&mut self) -> Option<&mut AclEntry> {
        let tag = if self.0.iter().any(|e| e.tag == MASK) { MASK } else { GROUP_OBJ };
        self.entry(tag)
    }

    /// Makes the ACL agree with the mode, as chmod does.
    fn set_mode(&mut self, mode: u32) {
        if let Some(e) = self.entry(USER_OBJ) {
            e.perm = (mode >> 6 & 7) as u16;
        }
        if let Some(e) = self.group() {
            e.perm = (mode >> 3 & 7) as u16;
        }
        if let Some(e) = self.entry(OTHER) {
            e.perm = (mode & 7) as u16;
        }
    }

    /// The mode bits that agree with the ACL.
    fn mode(&mut self) -> u32 {
        let user = self.entry(USER_OBJ).map_or(0, |e| u32::from(e.perm));
        let group = self.group().map_or(0, |e| u32::from(e.perm));
        let other = self.entry(OTHER).map_or(0, |e| u32::from(e.perm));
        user << 6 | group << 3 | other
    }

    /// Whether the mode bits express all of it.
    fn is_mode(&self) -> bool {
        self.0.iter().all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }
}

/// The ACLs that a new inode gets from the default ACL of its directory.
pub(crate) struct Inherited {
    /// Mode after ACL or umask.
    pub mode: u32,
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
}

impl Tx<'_> {
    fn acl(&self, node: NodeId, inode: &Inode, name: &[u8]) -> TxResult<Option<Acl>> {
        if inode.xattrs == 0 {
            return Ok(None);
        }
        Ok(self.xattr(node, name)?.map(|v| Acl::parse(&v)).transpose()?)
    }

    /// Mode and ACLs of a new inode in `dir`.
    pub(crate) fn inherited_acl(
        &self,
        dir: NodeId,
        parent: &Inode,
        kind: Kind,
        mode: u32,
        umask: u32,
    ) -> TxResult<Inherited> {
        let mode = mode & 0o7777;
        if kind == Kind::Symlink {
            return Ok(Inherited { mode: 0o777, access: None, default: None });
        }
        let Some(default) = self.acl(dir, parent, DEFAULT)? else {
            return Ok(Inherited { mode: mode & !(umask & 0o777), access: None, default: None });
        };
        let mut access = default.clone();
        // the new mode may only take away from what the default ACL grants
        let granted = access.mode();
        let bits = mode & 0o777 & granted;
        access.set_mode(bits);
        Ok(Inherited {
            mode: mode & 0o7000 | bits,
            access: (!access.is_mode()).then(|| access.encode()),
            default: (kind == Kind::Dir).then(|| default.encode()),
        })
    }

    /// Writes the inherited ACLs of a new inode.
    pub(crate) fn put_inherited_acl(&mut self, node: NodeId, inode: &mut Inode, acl: &Inherited) {
        for (name, value) in [(ACCESS, &acl.access), (DEFAULT, &acl.default)] {
            if let Some(value) = value {
                inode.xattrs += 1;
                self.put_new(keys::xattr(node, name), encode_xattr(inode.birth, value));
            }
        }
    }

    /// After chmod: the access ACL follows the mode.
    pub(crate) fn chmod_acl(&mut self, node: NodeId, inode: &Inode) -> TxResult<()> {
        if let Some(mut acl) = self.acl(node, inode, ACCESS)? {
            acl.set_mode(inode.mode);
            self.put_xattr(node, ACCESS, &acl.encode())?;
        }
        Ok(())
    }

    /// Before an ACL is stored: the mode follows it. Returns the value to store, `None` when the
    /// mode expresses all of it. setgid is cleared when a user sets the ACL who is not in the
    /// group: the new mode could give the group's rights to others.
    pub(crate) fn stored_acl(
        &self,
        inode: &mut Inode,
        name: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut acl = Acl::parse(value)?;
        if name == DEFAULT {
            if !inode.is_dir() {
                return Err(Error::Access);
            }
            return Ok((!acl.0.is_empty()).then(|| value.to_vec()));
        }
        if acl.0.is_empty() {
            return Ok(None);
        }
        inode.mode = inode.mode & 0o7000 | acl.mode();
        if inode.mode & 0o2000 != 0 && !self.may_set_gid(inode) {
            inode.mode &= !0o2000;
        }
        Ok((!acl.is_mode()).then(|| value.to_vec()))
    }
}
