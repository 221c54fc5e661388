//! Requests about rights in words: read, write, list. They are kept as POSIX ACLs, so `setfacl` and
//! every kernel know them.

use crate::admin::failure::about;
use crate::admin::volume::is_copy;
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
pub use crate::ops::AclChangedInfo;
use crate::ops::{AclChange, group_perm, named};
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_fs::NodeId;
use leeward_fs::flows::UserOrGroup;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most users and groups that a request names.
const GRANTS_MAX: usize = 100;
const R: u16 = 4;
const W: u16 = 2;
const X: u16 = 1;

/// A right. What a file or a directory lets its owner do is its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// See names in directories, and reach what is below them.
    List,
    /// Read files; and list.
    Read,
    /// Change files, and make, rename and remove what is in directories; and read.
    Write,
}

/// The rights of a user or a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclGrant {
    /// Whose.
    pub who: UserOrGroup,
    /// Which; none: that of nobody in particular.
    pub rights: BTreeSet<Right>,
}

impl AclGrant {
    fn change(&self) -> AclChange {
        // on files, on directories, on what is made in these later
        let perms = self.rights.iter().map(|right| match right {
            Right::List => [0, R | X, 0],
            Right::Read => [R, R | X, R | X],
            Right::Write => [R | W, R | W | X, R | W | X],
        });
        let all = perms.reduce(|a, b| [a[0] | b[0], a[1] | b[1], a[2] | b[2]]);
        AclChange { who: self.who, perms: all }
    }
}

/// Gives users and groups rights on a file or a directory, in place of those that they had there.
/// Of a directory what is made in it later gets them, too, but for [`Right::List`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AclSet {
    /// Path.
    pub path: String,
    /// Whom which.
    pub grants: Vec<AclGrant>,
    /// Whether all below it gets them, too.
    pub recursive: bool,
}

impl Reply for AclChangedInfo {
    const KIND: &'static str = "acl-changed";
}

impl Request for AclSet {
    type Reply = AclChangedInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<AclChangedInfo, Failure> {
        if !(1..=GRANTS_MAX).contains(&self.grants.len()) {
            let message = format!("name 1 to {GRANTS_MAX} users and groups");
            return Err(Failure::new(libc::EINVAL, message));
        }
        let top = shard.node_at(&self.path)?;
        if shard.is_copy(top.volume()) {
            return Err(is_copy(shard, top.volume()));
        }
        let changes: Vec<AclChange> = self.grants.iter().map(AclGrant::change).collect();
        let done = shard
            .change_acls(caller.ctx, (top, self.recursive), &changes, caller.progress)
            .map_err(about(&self.path))?;
        shard.settle()?;
        if done.changed + done.same == 0 {
            let message = format!(
                "{}: only its owner, and root, may change its rights, unless `chattr` protects it",
                self.path
            );
            return Err(Failure::new(libc::EPERM, message));
        }
        Ok(done)
    }
}

/// Shows who may do what with a file or a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AclShow {
    /// Path.
    pub path: String,
}

/// The rights of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclEntryInfo {
    /// Whose; `None`: everybody else's.
    pub who: Option<UserOrGroup>,
    /// Which, as far as the mask lets them.
    pub rights: BTreeSet<Right>,
    /// The permissions that these are, as `ls` shows them.
    pub permissions: String,
    /// What the mask takes away.
    pub masked: String,
}

/// Who may do what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclInfo {
    /// The owner, who may also change rights.
    pub owner: u32,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// The owner, the group, users and groups that are named, everybody else.
    pub entries: Vec<AclEntryInfo>,
}

impl Reply for AclInfo {
    const KIND: &'static str = "acl";
}

impl Request for AclShow {
    type Reply = AclInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<AclInfo, Failure> {
        let node = shard.node_at(&self.path)?;
        shard.acl_info(node).map_err(about(&self.path))
    }
}

impl Shard {
    fn acl_info(&self, node: NodeId) -> leeward_fs::Result<AclInfo> {
        let (inode, [access, default]) = self.transact(&Ctx::system(), |tx| {
            let inode = tx.inode(node)?;
            let acls = tx.stored_acls(node, &inode)?;
            Ok((inode, acls))
        })?;
        let is_dir = inode.is_dir();
        let later: BTreeMap<UserOrGroup, u16> = match &default {
            Some(default) => named(default)?.into_iter().map(|(who, perm, _)| (who, perm)).collect(),
            None => BTreeMap::new(),
        };
        let entry = |who, (perm, left): (u16, u16), later| AclEntryInfo {
            who,
            rights: words(left, is_dir, later),
            permissions: letters(perm),
            masked: letters(perm & !left).replace('-', ""),
        };
        let bits = |shift: u32| (inode.mode >> shift & 7) as u16;
        let of_group = access.as_deref().map_or(Ok(None), group_perm)?.unwrap_or(bits(3));
        let mut entries = vec![
            entry(Some(UserOrGroup::User(inode.uid)), (bits(6), bits(6)), R),
            entry(Some(UserOrGroup::Group(inode.gid)), (of_group, of_group & bits(3)), R),
        ];
        for (who, perm, left) in access.as_deref().map_or(Ok(Vec::new()), named)? {
            entries.push(entry(Some(who), (perm, left), later.get(&who).copied().unwrap_or(0)));
        }
        entries.push(entry(None, (bits(0), bits(0)), R));
        Ok(AclInfo { owner: inode.uid, is_dir, entries })
    }
}

/// The rights that permissions give. `later`: those on what is made in a directory later. Who may
/// look into a directory, and not read what is made in it, may list only.
fn words(perm: u16, is_dir: bool, later: u16) -> BTreeSet<Right> {
    let has = |bits: u16| perm & bits == bits;
    let rights = [
        (Right::List, is_dir && has(R | X)),
        (Right::Read, if is_dir { has(R | X) && later & R != 0 } else { has(R) }),
        (Right::Write, has(W) && (!is_dir || has(X))),
    ];
    rights.into_iter().filter(|(_, has)| *has).map(|(right, _)| right).collect()
}

fn letters(perm: u16) -> String {
    [(R, 'r'), (W, 'w'), (X, 'x')]
        .map(|(bit, letter)| if perm & bit != 0 { letter } else { '-' })
        .iter()
        .collect()
}
