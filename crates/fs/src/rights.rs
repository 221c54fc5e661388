//! What a user may do with an inode: the rules of Linux, for all who check them in place of a
//! kernel.
//!
//! Pure. Root may do all. For others the owner's bits, the access ACL, the group's or the others'
//! bits count, the first of these that applies to the user. In a sticky directory a name is removed
//! only by the owner of what it names, or of the directory.

use crate::{Attr, Error, Kind, Result};
use leeward_env::Ctx;
use tag::{GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ};

/// A wanted right, as of `access`: read.
pub const R: u32 = 4;
/// Write.
pub const W: u32 = 2;
/// Execute a file, search a directory.
pub const X: u32 = 1;

/// Name of the attribute with the default ACL.
pub const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// Name of the attribute with the access ACL.
pub const ACL: &[u8] = b"system.posix_acl_access";
/// Name of the attribute with the capabilities that a program gets, whoever runs it.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Whom an entry of an ACL is about, as the kernel numbers them.
pub mod tag {
    /// The owner.
    pub const USER_OBJ: u16 = 0x01;
    /// A user, by number.
    pub const USER: u16 = 0x02;
    /// The inode's group.
    pub const GROUP_OBJ: u16 = 0x04;
    /// A group, by number.
    pub const GROUP: u16 = 0x08;
    /// The most that all but the owner and the others get.
    pub const MASK: u16 = 0x10;
    /// The others.
    pub const OTHER: u16 = 0x20;
}

/// Whether the access ACL can matter to this user: root and the owner go by the mode.
pub fn asks_acl(ctx: &Ctx, attr: &Attr) -> bool {
    ctx.uid != 0 && ctx.uid != attr.uid
}

/// Checks that the user may do `want` with an inode. `acl`: its access ACL as stored, where it has
/// one.
///
/// # Errors
/// [`Error::Access`]; [`Error::Corrupt`] when the ACL cannot be read.
pub fn permit(ctx: &Ctx, attr: &Attr, acl: Option<&[u8]>, want: u32) -> Result<()> {
    let granted = if ctx.uid == 0 {
        true
    } else if ctx.uid == attr.uid {
        grants(attr.mode >> 6, want)
    } else if let Some(acl) = acl {
        by_acl(ctx, attr, acl, want)?
    } else if is_in(ctx, attr.gid) {
        grants(attr.mode >> 3, want)
    } else {
        grants(attr.mode, want)
    };
    if granted { Ok(()) } else { Err(Error::Access) }
}

/// Checks that the user may remove the name of `entry` from `dir`, in which the user may write.
///
/// # Errors
/// [`Error::NotPermitted`].
pub fn permit_removal(ctx: &Ctx, dir: &Attr, entry: &Attr) -> Result<()> {
    let sticky = dir.mode & 0o1000 != 0;
    if !sticky || [0, entry.uid, dir.uid].contains(&ctx.uid) {
        return Ok(());
    }
    Err(Error::NotPermitted)
}

/// Checks that the user may set attributes with free names (`user.*`) on an inode that the user may
/// write.
///
/// # Errors
/// [`Error::NotPermitted`].
pub fn permit_user_xattr(ctx: &Ctx, attr: &Attr) -> Result<()> {
    let sticky_dir = attr.kind == Kind::Dir && attr.mode & 0o1000 != 0;
    if sticky_dir && ctx.uid != 0 && ctx.uid != attr.uid {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// The mode of a file after a user has changed its content or its owner: setuid goes, and setgid
/// where it gives a group rights. Where it does not it stays for those who may set it: root, and
/// who is in the group.
pub fn without_set_ids(mode: u32, may_set_gid: impl FnOnce() -> bool) -> u32 {
    let takes_gid = mode & 0o2010 == 0o2010 || mode & 0o2000 != 0 && !may_set_gid();
    mode & !if takes_gid { 0o6000 } else { 0o4000 }
}

/// Whether the user is in the group.
pub fn is_in(ctx: &Ctx, gid: u32) -> bool {
    ctx.gid == gid || ctx.gids.contains(gid)
}

fn grants(bits: u32, want: u32) -> bool {
    bits & want == want
}

fn by_acl(ctx: &Ctx, attr: &Attr, acl: &[u8], want: u32) -> Result<bool> {
    let damaged = || Error::Corrupt(format!("ACL of {:?}", attr.node));
    let entries = acl.get(4..).ok_or_else(damaged)?;
    let entries = entries.chunks_exact(8).map(|e| {
        let (tag, perm) = (u16::from_le_bytes([e[0], e[1]]), u16::from_le_bytes([e[2], e[3]]));
        (tag, u32::from(perm), u32::from_le_bytes([e[4], e[5], e[6], e[7]]))
    });
    let mask = entries.clone().find(|e| e.0 == MASK).map_or(7, |e| e.1);
    let mut in_a_group = false;
    for (tag, perm, id) in entries {
        match tag {
            USER_OBJ | MASK => {}
            USER if id == ctx.uid => return Ok(grants(perm & mask, want)),
            GROUP_OBJ if is_in(ctx, attr.gid) => {
                in_a_group = true;
                if grants(perm, want) {
                    return Ok(grants(perm & mask, want));
                }
            }
            GROUP if is_in(ctx, id) => {
                in_a_group = true;
                if grants(perm, want) {
                    return Ok(grants(perm & mask, want));
                }
            }
            OTHER => return Ok(!in_a_group && grants(perm, want)),
            _ => {}
        }
    }
    Err(damaged())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InodeFlags, NodeId, Time};
    use leeward_env::Groups;

    fn attr(mode: u32, uid: u32, gid: u32) -> Attr {
        let time = Time::default();
        let node = NodeId(9);
        Attr {
            node,
            kind: Kind::File,
            mode,
            uid,
            gid,
            nlink: 1,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            flags: InodeFlags::default(),
        }
    }

    fn ctx(uid: u32, gids: &[u32]) -> Ctx {
        Ctx { gids: Groups::of(&gids[1..]), ..Ctx::user(uid, gids[0]) }
    }

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&perm.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    #[test]
    fn the_first_class_that_is_about_the_user_decides() {
        let file = attr(0o460, 10, 20);
        let may = |uid, gids: &[u32], want| permit(&ctx(uid, gids), &file, None, want).is_ok();
        assert!(
            may(10, &[1], R) && !may(10, &[20], W),
            "the owner has the owner's bits, in whatever group he is"
        );
        assert!(may(11, &[20], R | W) && may(11, &[1, 5, 20], W) && !may(11, &[20], X));
        assert!(!may(11, &[1], R) && may(0, &[0], R | W | X));
    }

    #[test]
    fn acls_are_read_as_the_kernel_does() {
        let file = attr(0o660, 10, 20);
        let all: &[_] = &[
            (USER_OBJ, 6, u32::MAX),
            (USER, 7, 11),
            (USER, 0, 12),
            (GROUP_OBJ, 4, u32::MAX),
            (GROUP, 2, 30),
            (MASK, 6, u32::MAX),
            (OTHER, 1, u32::MAX),
        ];
        let acl = acl(all);
        let may = |uid, gids: &[u32], want| permit(&ctx(uid, gids), &file, Some(&acl), want).is_ok();
        assert!(may(11, &[1], R | W) && !may(11, &[1], X), "the mask holds for named users");
        assert!(!may(12, &[20, 30], R), "a named user has nothing from his groups");
        assert!(may(13, &[20], R) && may(13, &[30], W));
        assert!(!may(13, &[20, 30], R | W), "no group alone grants both");
        assert!(!may(13, &[20], X), "who is in a group is not among the others");
        assert!(may(13, &[1], X) && !may(13, &[1], R));
        assert!(permit(&ctx(13, &[1]), &file, Some(b"x"), R).is_err());
    }

    #[test]
    fn sticky_directories() {
        let dir = attr(0o1777, 1, 1);
        let entry = attr(0o644, 10, 1);
        let may = |uid| permit_removal(&ctx(uid, &[1]), &dir, &entry).is_ok();
        assert!(may(0) && may(1) && may(10) && !may(11));
        assert!(permit_removal(&ctx(11, &[1]), &attr(0o777, 1, 1), &entry).is_ok());
    }
}
