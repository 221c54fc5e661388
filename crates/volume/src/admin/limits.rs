//! The quotas of a volume, as a mirror carries them: of directories by their numbers, of users and
//! groups. They are in no snapshot, so they come beside the stream. A copy has them, and they bind
//! from its promotion on: before that its content is what it is in the other cell.

use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Done, Failure, Reply, Request};
use crate::format::inode::{Inode, Pair};
use crate::format::keys;
use crate::format::versions::FORMAT_COMPARED;
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

/// Limits that are read under the lock at once.
const READ_AT_ONCE: usize = 1000;

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
        let all = shard.limits_between(volume, (LimitOf::Dir(0), None));
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
        if shard.lock().format < FORMAT_COMPARED {
            // an older version would have them bind what the copy receives
            let message = "the cell may go back to an older version: lee upgrade ends that";
            return Err(Failure::new(libc::EINVAL, message));
        }
        let no_copy = || {
            let message = format!("volume {} is a volume of its own, and no copy", self.name);
            Failure::new(libc::EEXIST, message)
        };
        if !shard.is_copy(volume) {
            return Err(no_copy());
        }
        let mut is_changed = false;
        // one at a time: whatever lacks a record begins anew, under the lock that all wait for
        for (of, limit) in self.changes(shard, volume) {
            let set = shard.transact(&Ctx::system(), |tx| tx.limit_in_copy(volume, of, limit));
            is_changed |= set.map_err(about("the quotas of the copy"))?.ok_or_else(no_copy)?;
        }
        if is_changed {
            shard.settle()?;
        }
        Ok(Done {})
    }
}

impl CopyLimits {
    /// What is to be limited, and how; 0 and 0: not any more.
    fn changes(&self, shard: &Shard, volume: u32) -> BTreeMap<LimitOf, Pair> {
        let is_meant = |of: LimitOf| of >= self.from && self.to.is_none_or(|to| of < to);
        let wanted = self.limits.iter().filter(|limit| is_meant(limit.of));
        let before = shard.limits_between(volume, (self.from, self.to));
        let mut changes: BTreeMap<_, _> = before.keys().map(|of| (*of, Pair::default())).collect();
        changes.extend(wanted.map(|limit| (limit.of, Pair(limit.bytes, limit.files))));
        changes.retain(|of, limit| before.get(of).copied().unwrap_or_default() != *limit);
        changes
    }
}

impl Shard {
    /// The limits in a volume from one on and before another, read some at a time.
    fn limits_between(&self, volume: u32, (from, to): (LimitOf, Option<LimitOf>)) -> BTreeMap<LimitOf, Pair> {
        let (mut all, mut next) = (BTreeMap::new(), Some(from));
        while let Some(from) = next {
            let st = self.lock();
            let meant = st.limits_from(volume, from).take_while(|(of, _)| to.is_none_or(|to| *of < to));
            let mut some: Vec<_> = meant.take(READ_AT_ONCE + 1).collect();
            drop(st);
            next = if some.len() > READ_AT_ONCE { some.pop().map(|(of, _)| of) } else { None };
            all.extend(some);
        }
        all
    }
}

impl State {
    /// The limits in a volume from this one on, in their order.
    fn limits_from(&self, volume: u32, from: LimitOf) -> impl Iterator<Item = (LimitOf, Pair)> + '_ {
        let (dir, owner) = match from {
            LimitOf::Dir(inode) => (Some(inode), UserOrGroup::User(0)),
            LimitOf::User(id) => (None, UserOrGroup::User(id)),
            LimitOf::Group(id) => (None, UserOrGroup::Group(id)),
        };
        // a number may come from anywhere
        let dir = dir.filter(|inode| *inode == 0 || is_number(*inode));
        let dirs = dir.map(|inode| self.quotas.of_dirs_from(NodeId::new(volume, inode)));
        let of_dir = |dir: NodeId| Some((LimitOf::Dir(dir.inode()), self.quotas.get(dir)?.limit));
        let of_volume = self.owners.limits_from(owner).filter(move |(of, ..)| *of == Some(volume));
        let owners = of_volume.map(|(_, who, limit)| match who {
            UserOrGroup::User(id) => (LimitOf::User(id), limit),
            UserOrGroup::Group(id) => (LimitOf::Group(id), limit),
        });
        dirs.into_iter().flatten().filter_map(of_dir).chain(owners)
    }
}

impl Tx<'_> {
    /// Limits what a copy has, or what had a limit until now not any more; false: it is not there.
    /// `None`: it is no copy any more.
    fn limit_in_copy(&mut self, volume: u32, of: LimitOf, limit: Pair) -> TxResult<Option<bool>> {
        if !self.st.is_copy(volume) {
            return Ok(None);
        }
        if limit != Pair::default() && !self.may_have_limit(volume, of)? {
            return Ok(Some(false));
        }
        match of {
            LimitOf::Dir(inode) => self.set_quota(NodeId::new(volume, inode), limit)?,
            LimitOf::User(id) => self.limit_owner(Some(volume), UserOrGroup::User(id), limit),
            LimitOf::Group(id) => self.limit_owner(Some(volume), UserOrGroup::Group(id), limit),
        }
        Ok(Some(true))
    }

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
