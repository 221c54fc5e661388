//! Requests about what users and groups own, and limits on it.

use crate::admin::failure::about;
use crate::admin::project::few;
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::format::inode::{Pair, Stats};
use crate::shard::Shard;
use crate::state::State;
use leeward_env::Ctx;
use leeward_fs::flows::UserOrGroup;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most limits in a volume that those set who look after its project.
const DELEGATED_LIMITS_MAX: usize = 1000;
/// Owners that are looked at before others get the lock.
const AT_ONCE: usize = 1000;

/// What a user or a group owns in a volume, or in all, and how much it may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerInfo {
    /// Name of the volume; `None`: all volumes of the cell.
    pub volume: Option<String>,
    /// Whose.
    pub who: UserOrGroup,
    /// Most bytes; 0: no limit.
    pub bytes: u64,
    /// Most inodes; 0: no limit.
    pub files: u64,
    /// Allocated bytes, exact, pending ones included.
    pub used_bytes: u64,
    /// Inodes, exact.
    pub used_files: u64,
}

/// Limits what a user or a group may own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OwnerLimit {
    /// Name of the volume; `None`: all volumes of the cell together.
    pub volume: Option<String>,
    /// Whom.
    pub who: UserOrGroup,
    /// Most bytes; 0: no limit; `None`: as it was.
    pub bytes: Option<u64>,
    /// Most inodes; 0: no limit; `None`: as it was.
    pub files: Option<u64>,
}

impl Reply for OwnerInfo {
    const KIND: &'static str = "owner";
}

impl Request for OwnerLimit {
    type Reply = OwnerInfo;

    fn concerns(&self) -> Concerns<'_> {
        self.volume.as_deref().map_or(Concerns::Cell, Concerns::Volume)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<OwnerInfo, Failure> {
        let who = self.who;
        let volume = shard.volume_or_cell(self.volume.as_deref())?;
        if volume.is_none() && shard.has_neighbours() {
            let why = "a cell of several shards has no limits for all volumes together: name a volume";
            return Err(Failure::new(libc::EOPNOTSUPP, why));
        }
        if caller.ctx.delegate.is_some() {
            let st = shard.lock();
            let others = st.owners.limits().filter(|(of, whose, _)| *of == volume && *whose != who).count();
            few("limits of users and groups", others, DELEGATED_LIMITS_MAX)?;
        }
        // what clients change by themselves then they change with this limit far away
        let _recalling = shard.recall_exclusive(&Ctx::system(), volume).map_err(about("limit"))?;
        let set = shard.transact(&Ctx::system(), |tx| {
            let old = tx.st.owners.limit(volume, who);
            let limit = Pair(self.bytes.unwrap_or(old.0), self.files.unwrap_or(old.1));
            tx.limit_owner(volume, who, limit);
            Ok(())
        });
        set.map_err(about("the limit cannot be set"))?;
        shard.settle()?;
        Ok(shard.lock().owner_info(volume, who))
    }
}

/// Shows what users and groups own, and their limits. Without a user or a group: of all who own
/// something or have a limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OwnerUsage {
    /// Only in this volume, by name; without, in each, and in the whole cell.
    pub volume: Option<String>,
    /// Only of these; empty: of all.
    pub who: Vec<UserOrGroup>,
    /// Only those who have a limit.
    pub limited: bool,
}

/// What users and groups own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerInfos {
    /// The cell first, then by volume; users first, by number.
    pub owners: Vec<OwnerInfo>,
    /// Volumes, by name, in which older files are still being counted: there it is more.
    pub counting: Vec<String>,
}

impl Reply for OwnerInfos {
    const KIND: &'static str = "owners";
}

impl Request for OwnerUsage {
    type Reply = OwnerInfos;

    fn concerns(&self) -> Concerns<'_> {
        self.volume.as_deref().map_or(Concerns::All, Concerns::Volume)
    }

    fn add(all: &mut OwnerInfos, mut other: OwnerInfos) {
        for of_cell in other.owners.extract_if(.., |owner| owner.volume.is_none()) {
            match all.owners.iter_mut().find(|owner| owner.volume.is_none() && owner.who == of_cell.who) {
                Some(sum) => {
                    sum.used_bytes += of_cell.used_bytes;
                    sum.used_files += of_cell.used_files;
                }
                None => all.owners.insert(0, of_cell),
            }
        }
        all.owners.append(&mut other.owners);
        all.counting.append(&mut other.counting);
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<OwnerInfos, Failure> {
        let only = match &self.volume {
            Some(name) => shard.volume_or_cell(Some(name))?,
            None => None,
        };
        let asked = self.asked(shard, only, &Sight::of(shard, caller.ctx));
        let mut owners = Vec::with_capacity(asked.len());
        for some in asked.chunks(AT_ONCE) {
            let st = shard.lock();
            owners.extend(some.iter().map(|(volume, who)| st.owner_info(*volume, *who)));
        }
        let st = shard.lock();
        let uncounted = st.volumes.iter().filter(|(id, v)| !v.removing && !st.owners.is_counted(Some(**id)));
        Ok(OwnerInfos { owners, counting: uncounted.map(|(_, v)| v.name.clone()).collect() })
    }
}

impl OwnerUsage {
    /// About whom there is something to say. Of those who own something in volumes there may be a
    /// million, so others get the lock in between.
    fn asked(&self, shard: &Shard, only: Option<u32>, sight: &Sight<'_>) -> Vec<(Option<u32>, UserOrGroup)> {
        let is_asked = |st: &State, volume: Option<u32>, who: UserOrGroup| {
            (only.is_none() || volume == only)
                && (self.who.is_empty() || self.who.contains(&who))
                && sight.has(volume, who)
                && (!self.limited || st.owners.limit(volume, who) != Pair::default())
        };
        let mut asked: BTreeSet<(Option<u32>, UserOrGroup)> = BTreeSet::new();
        {
            let st = shard.lock();
            let in_cell = st.owners.in_cell().map(|(who, _)| (None, who));
            let limited = st.owners.limits().map(|(volume, who, _)| (volume, who));
            asked.extend(in_cell.chain(limited).filter(|(volume, who)| is_asked(&st, *volume, *who)));
        }
        let mut first = (only.unwrap_or(0), UserOrGroup::User(0));
        loop {
            let st = shard.lock();
            let mut from = st.owners.beginning_at(first);
            let some = from.by_ref().take(AT_ONCE).map(|(volume, who)| (Some(volume), who));
            asked.extend(some.filter(|(volume, who)| is_asked(&st, *volume, *who)));
            match from.next().filter(|(volume, _)| only.is_none_or(|only| *volume == only)) {
                Some(next) => first = next,
                None => return asked.into_iter().collect(),
            }
        }
    }
}

/// Of whom the asker sees what they own: users who are no operators see what is theirs, and what
/// there is in volumes that they look after.
struct Sight<'a> {
    ctx: &'a Ctx,
    /// `None`: of all.
    volumes: Option<BTreeSet<u32>>,
}

impl Sight<'_> {
    fn of<'a>(shard: &Shard, ctx: &'a Ctx) -> Sight<'a> {
        let is_bounded = ctx.delegate.is_some() && ctx.uid != 0;
        Sight { ctx, volumes: is_bounded.then(|| shard.lock().projects.volumes_of(ctx).collect()) }
    }

    fn has(&self, volume: Option<u32>, who: UserOrGroup) -> bool {
        let Some(volumes) = &self.volumes else { return true };
        let is_own = match who {
            UserOrGroup::User(uid) => uid == self.ctx.uid,
            UserOrGroup::Group(gid) => gid == self.ctx.gid || self.ctx.gids.contains(gid),
        };
        is_own || volume.is_some_and(|volume| volumes.contains(&volume))
    }
}

impl Shard {
    /// The volume of a name; without a name the whole cell.
    fn volume_or_cell(&self, name: Option<&str>) -> Result<Option<u32>, Failure> {
        name.map(|name| self.volume_named(name)).transpose()
    }
}

impl State {
    fn owner_info(&self, volume: Option<u32>, who: UserOrGroup) -> OwnerInfo {
        let Pair(bytes, files) = self.owners.limit(volume, who);
        let used: Stats = self.owners.used(volume, who);
        let name = |id| self.volumes.get(&id).map_or_else(|| id.to_string(), |v| v.name.clone());
        OwnerInfo {
            volume: volume.map(name),
            who,
            bytes,
            files,
            used_bytes: used.bytes.max(0) as u64,
            used_files: used.inodes().max(0) as u64,
        }
    }
}
