//! Says who may take snapshots in a volume.

use super::VolumeInfo;
use crate::admin::{Caller, Concerns, Failure, Request};
use crate::shard::Shard;
use leeward_fs::flows::UserOrGroup;
use serde::{Deserialize, Serialize};

/// Most users and groups that a volume names.
const RIGHTS_MAX: usize = 1000;

/// Lets users and groups take, rename, lock and remove snapshots besides root and the owner, or
/// takes that back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeAllow {
    /// The volume's name.
    pub name: String,
    /// Users.
    pub users: Vec<u32>,
    /// Groups.
    pub groups: Vec<u32>,
    /// Whether they may from now on.
    pub allow: bool,
}

impl Request for VolumeAllow {
    type Reply = VolumeInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.name)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<VolumeInfo, Failure> {
        let id = shard.volume_named(&self.name)?;
        let users = self.users.iter().map(|uid| UserOrGroup::User(*uid));
        let groups = self.groups.iter().map(|gid| UserOrGroup::Group(*gid));
        let who: Vec<UserOrGroup> = users.chain(groups).collect();
        shard.change_properties(id, |p| {
            p.snapshot_rights.retain(|w| !who.contains(w));
            if self.allow {
                p.snapshot_rights.extend(who.iter().copied());
                p.snapshot_rights.sort_unstable();
                p.snapshot_rights.dedup();
            }
            match p.snapshot_rights.len() > RIGHTS_MAX {
                true => Err(format!("more than {RIGHTS_MAX} users and groups: allow a group instead")),
                false => Ok(()),
            }
        })?;
        shard.settle()?;
        shard.volume_info(id)
    }
}
