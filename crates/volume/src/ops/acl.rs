//! POSIX ACLs as the kernel stores them in `system.posix_acl_access` and
//! `system.posix_acl_default`.
//!
//! The kernel checks access by them. The file system keeps mode and ACL consistent, and copies
//! default ACLs to new inodes.

use crate::format::inode::{Inode, encode_xattr};
use crate::format::keys;
use crate::ops::flags::may_change_inode;
use crate::tx::{Tx, TxResult};
use leeward_fs::flows::UserOrGroup;
use leeward_fs::rights::tag::{GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ};
pub use leeward_fs::rights::{ACL as ACCESS, DEFAULT_ACL as DEFAULT};
use leeward_fs::{Error, Kind, NodeId, XattrMode};

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

/// What a user or a group is to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AclChange {
    /// Whose.
    pub who: UserOrGroup,
    /// Permissions on files, on directories, and on what is made in these later; `None`: no entry.
    pub perms: Option<[u16; 3]>,
}

/// What became of an inode's ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclChanged {
    /// They are others now.
    Changed,
    /// They were so already.
    Same,
    /// The inode belongs to somebody else, or `chattr` protects it.
    Refused,
}

impl Acl {
    /// The ACL that says what the mode says.
    fn of_mode(mode: u32) -> Acl {
        let entry = |tag, shift: u32| AclEntry { tag, perm: (mode >> shift & 7) as u16, id: u32::MAX };
        Acl(vec![entry(USER_OBJ, 6), entry(GROUP_OBJ, 3), entry(OTHER, 0)])
    }

    /// Gives a user or a group these permissions; `None`: takes the entry away. The mask becomes
    /// what all entries that it bounds have together.
    fn set(&mut self, who: UserOrGroup, perm: Option<u16>) {
        let (tag, id) = match who {
            UserOrGroup::User(uid) => (USER, uid),
            UserOrGroup::Group(gid) => (GROUP, gid),
        };
        self.0.retain(|e| (e.tag, e.id) != (tag, id) && e.tag != MASK);
        self.0.extend(perm.map(|perm| AclEntry { tag, perm, id }));
        if self.0.iter().any(|e| matches!(e.tag, USER | GROUP)) {
            let bounded = self.0.iter().filter(|e| matches!(e.tag, USER | GROUP | GROUP_OBJ));
            let perm = bounded.fold(0, |all, e| all | e.perm);
            self.0.push(AclEntry { tag: MASK, perm, id: u32::MAX });
        }
        self.0.sort_by_key(|e| (e.tag, e.id));
    }
}

/// Permissions of the inode's group in an ACL as it is stored, before the mask.
pub(crate) fn group_perm(bytes: &[u8]) -> Result<Option<u16>, Error> {
    Ok(Acl::parse(bytes)?.entry(GROUP_OBJ).map(|e| e.perm))
}

/// Permissions of a named user or group in an ACL as it is stored, and what the mask leaves of
/// them.
pub(crate) fn named(bytes: &[u8]) -> Result<Vec<(UserOrGroup, u16, u16)>, Error> {
    let mut acl = Acl::parse(bytes)?;
    let mask = acl.entry(MASK).map_or(7, |e| e.perm);
    let entry = |e: &AclEntry| match e.tag {
        USER => Some((UserOrGroup::User(e.id), e.perm, e.perm & mask)),
        GROUP => Some((UserOrGroup::Group(e.id), e.perm, e.perm & mask)),
        _ => None,
    };
    Ok(acl.0.iter().filter_map(entry).collect())
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

    /// Changes the ACLs of an inode of the caller: of a directory also the default one, for what is
    /// made in it later.
    pub(crate) fn change_acl(&mut self, node: NodeId, changes: &[AclChange]) -> TxResult<AclChanged> {
        let inode = self.inode(node)?;
        if inode.kind == Kind::Symlink {
            return Ok(AclChanged::Same);
        }
        let is_owner = self.ctx.uid == 0 || self.ctx.uid == inode.uid;
        if !is_owner || may_change_inode(&inode).is_err() {
            return Ok(AclChanged::Refused);
        }
        let old = self.acl(node, &inode, ACCESS)?.unwrap_or_else(|| Acl::of_mode(inode.mode));
        let mut access = old.clone();
        for change in changes {
            access.set(
                change.who,
                change.perms.map(|perms| match inode.is_dir() {
                    true => perms[1],
                    // who may read a program may run it
                    false => perms[0] | u16::from(perms[0] & 4 != 0 && inode.mode & 0o100 != 0),
                }),
            );
        }
        let mut changed = access != old;
        if changed {
            self.set_xattr(node, ACCESS, &access.encode(), XattrMode::Set)?;
        }
        if inode.is_dir() {
            let old = self.acl(node, &self.inode(node)?, DEFAULT)?;
            let mut default = old.clone().unwrap_or_else(|| Acl::of_mode(inode.mode));
            let later = |change: &AclChange| change.perms.map(|perms| perms[2]).filter(|perm| *perm > 0);
            changes.iter().for_each(|change| default.set(change.who, later(change)));
            let default = Some(default).filter(|default| !default.is_mode() || old.is_some());
            if default != old {
                changed = true;
                let value = default.map(|default| default.encode()).unwrap_or_default();
                self.set_xattr(node, DEFAULT, &value, XattrMode::Set)?;
            }
        }
        Ok(if changed { AclChanged::Changed } else { AclChanged::Same })
    }

    /// The access ACL of an inode and its default ACL, as they are stored.
    pub(crate) fn stored_acls(&self, node: NodeId, inode: &Inode) -> TxResult<[Option<Vec<u8>>; 2]> {
        if inode.xattrs == 0 {
            return Ok([None, None]);
        }
        let of = |name| self.xattr(node, name).map(|value| value.map(|value| value.to_vec()));
        Ok([of(ACCESS)?, of(DEFAULT)?])
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
