//! The quotas of a volume, as a mirror carries them: of directories by their numbers, of users and
//! groups. They are in no snapshot, so they come beside the stream. A copy has them, and they bind
//! from its promotion on: before that its content is what it is in the other cell.

use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Done, Failure, Reply, Request};
use crate::format::inode::{Inode, Pair};
use crate::format::keys;
use crate::format::versions::FORMAT;
use crate::shard::Shard;
use crate::state::quota::Quota;
use crate::state::{Effect, State};
use crate::stream::is_number;
use crate::tx::{Tx, TxResult};
use leeward_env::Ctx;
use leeward_fs::NodeId;
use leeward_fs::flows::UserOrGroup;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a limit of a volume is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitOf {
    /// What is below a directory, by its inode number.
    Dir(u64),
    /// What a user owns.
    User(u32),
    /// What a group owns.
    Group(u32),
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// On what.
    pub of: LimitOf,
    /// Most bytes; 0: no limit.
    pub bytes: u64,
    /// Most inodes; 0: no limit.
    pub files: u64,
}

/// Lists the limits of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitList {
    /// The volume.
    pub volume: String,
}

/// The limits of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// In the order of what they are on.
    pub limits: Vec<Limit>,
}

impl Reply for Limits {
    const KIND: &'static str = "limits";
}

impl Request for LimitList {
    type Reply = Limits;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.volume)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Limits, Failure> {
        let volume = shard.volume_named(&self.volume)?;
        let all = shard.lock().limits_in(volume);
        let limit = |(of, Pair(bytes, files))| Limit { of, bytes, files };
        Ok(Limits { limits: all.into_iter().map(limit).collect() })
    }
}

/// Gives a copy the limits of the volume that it is a copy of: of a part of what there may be
/// limits on all that there are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyLimits {
    /// The copy.
    pub name: String,
    /// The part begins here.
    pub from: LimitOf,
    /// And ends before this; `None`: nothing is behind.
    pub to: Option<LimitOf>,
    /// Its limits. Those of directories that the copy does not have are left out.
    pub limits: Vec<Limit>,
}

impl Request for CopyLimits {
    type Reply = Done;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Volume(&self.name)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<Done, Failure> {
        let volume = shard.volume_named(&self.name)?;
        if shard.lock().format < FORMAT {
            // an older version would have them bind what the copy receives
            let message = "the cell may go back to an older version: lee upgrade ends that";
            return Err(Failure::new(libc::EINVAL, message));
        }
        let set = shard.transact(&Ctx::system(), |tx| {
            if tx.st.is_copy(volume) { self.set(tx, volume).map(Some) } else { Ok(None) }
        });
        match set.map_err(about("the quotas of the copy"))? {
            Some(true) => shard.settle()?,
            Some(false) => (),
            None => {
                let message = format!("volume {} is a volume of its own, and no copy", self.name);
                return Err(Failure::new(libc::EEXIST, message));
            }
        }
        Ok(Done {})
    }
}

impl CopyLimits {
    /// Whether there is anything to set.
    fn set(&self, tx: &mut Tx<'_>, volume: u32) -> TxResult<bool> {
        let is_meant = |of: LimitOf| of >= self.from && self.to.is_none_or(|to| of < to);
        let mut limits = BTreeMap::new();
        for Limit { of, bytes, files } in self.limits.iter().filter(|limit| is_meant(limit.of)) {
            if tx.may_have_limit(volume, *of)? {
                limits.insert(*of, Pair(*bytes, *files));
            }
        }
        let before = tx.st.limits_in(volume);
        // 0 and 0: none
        for of in before.keys().filter(|of| is_meant(**of)) {
            limits.entry(*of).or_default();
        }
        limits.retain(|of, limit| before.get(of).copied().unwrap_or_default() != *limit);
        for (of, limit) in &limits {
            match of {
                LimitOf::Dir(inode) => tx.set_quota(NodeId::new(volume, *inode), *limit)?,
                LimitOf::User(id) => tx.limit_owner(Some(volume), UserOrGroup::User(*id), *limit),
                LimitOf::Group(id) => tx.limit_owner(Some(volume), UserOrGroup::Group(*id), *limit),
            }
        }
        Ok(!limits.is_empty())
    }
}

impl State {
    fn limits_in(&self, volume: u32) -> BTreeMap<LimitOf, Pair> {
        let of_dir = |dir: NodeId| Some((LimitOf::Dir(dir.inode()), self.quotas.get(dir)?.limit));
        let dirs = self.quotas.of_dirs_in(volume).filter_map(of_dir);
        let of_volume = self.owners.limits().filter(|(of, ..)| *of == Some(volume));
        let owners = of_volume.map(|(_, who, limit)| match who {
            UserOrGroup::User(id) => (LimitOf::User(id), limit),
            UserOrGroup::Group(id) => (LimitOf::Group(id), limit),
        });
        dirs.chain(owners).collect()
    }
}

impl Tx<'_> {
    fn may_have_limit(&self, volume: u32, of: LimitOf) -> TxResult<bool> {
        let LimitOf::Dir(inode) = of else { return Ok(true) };
        if !is_number(inode) {
            return Ok(false);
        }
        let record = self.get(&keys::inode(NodeId::new(volume, inode)))?;
        let record = record.map(|record| Inode::decode(&record)).transpose()?;
        Ok(record.is_some_and(|record| record.is_dir() && record.nlink > 0))
    }

    /// Gives a directory this quota; 0 and 0: none.
    pub(super) fn set_quota(&mut self, dir: NodeId, limit: Pair) -> TxResult<()> {
        if limit == Pair::default() {
            self.remove(keys::quota(dir));
            self.then(Effect::DropQuota(dir));
        } else {
            let used = self.exact_stats(dir)?;
            self.put(keys::quota(dir), limit.encode());
            self.then(Effect::SetQuota(dir, Quota { limit, used }));
        }
        Ok(())
    }

    /// Gives a user or a group this limit in a volume, or in the cell; 0 and 0: none.
    pub(super) fn limit_owner(&mut self, volume: Option<u32>, who: UserOrGroup, limit: Pair) {
        match limit == Pair::default() {
            true => self.remove(keys::owner_limit(volume, who)),
            false => self.put(keys::owner_limit(volume, who), limit.encode()),
        }
        self.then(Effect::LimitOwner(volume, who, limit));
    }
}
