//! Requests about schedules of snapshots.

use crate::admin::failure::about;
use crate::admin::project::few;
use crate::admin::{Caller, Concerns, Done, Failure, Reply, Request};
use crate::format::keys;
use crate::format::schedule::{self, Keep, ScheduleRecord};
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::schedules;
use leeward_fs::{Error, NodeId};
use serde::{Deserialize, Serialize};

/// Shortest interval: names of snapshots have minutes.
const INTERVAL_SECS_MIN: u32 = 60;
/// Most schedules in a volume that those make who look after its project.
const DELEGATED_SCHEDULES_MAX: usize = 100;

/// A schedule of snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleInfo {
    /// The directory.
    pub path: String,
    /// Seconds.
    pub interval_secs: u32,
    /// How many snapshots are kept, such as `24h7d4w12m`.
    pub keep: String,
    /// The next time, seconds since 1970.
    pub next_secs: i64,
    /// The newest scheduled snapshot of the directory, seconds since 1970.
    pub newest_secs: Option<i64>,
    /// Whether the newest one of the directory, or of one of `volumes`, is older than twice the
    /// interval.
    pub late: bool,
    /// Why the last run failed.
    pub error: Option<String>,
    /// Volumes attached below that have no schedule of their own. Their roots get snapshots, too.
    pub volumes: Vec<ScheduledVolume>,
}

impl Reply for ScheduleInfo {
    const KIND: &'static str = "schedule";
}

/// A volume that follows the schedule of a directory above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledVolume {
    /// Name.
    pub volume: String,
    /// The newest scheduled snapshot of its root, seconds since 1970.
    pub newest_secs: Option<i64>,
    /// Whether that is older than twice the interval.
    pub late: bool,
}

/// Takes snapshots of a directory by the clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScheduleSet {
    /// Any directory.
    pub path: String,
    /// Seconds, a multiple of 60.
    pub interval_secs: u32,
    /// How many snapshots are kept, see [`Keep`].
    pub keep: String,
}

impl Request for ScheduleSet {
    type Reply = ScheduleInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<ScheduleInfo, Failure> {
        let ScheduleSet { path, interval_secs, keep } = self;
        if caller.ctx.delegate.is_some() {
            let node = shard.node_at(path)?;
            let is_other = |dir: NodeId| dir.volume() == node.volume() && dir != node;
            let others = shard.lock().schedules.iter().filter(|(dir, ..)| is_other(*dir)).count();
            few("schedules", others, DELEGATED_SCHEDULES_MAX)?;
        }
        let interval_secs = *interval_secs;
        if interval_secs < INTERVAL_SECS_MIN || !interval_secs.is_multiple_of(INTERVAL_SECS_MIN) {
            let message = format!("an interval of {interval_secs} s: it must be in minutes");
            return Err(Failure::new(libc::EINVAL, message));
        }
        let keep: Keep = keep.parse().map_err(|why: String| Failure::new(libc::EINVAL, why))?;
        let ctx = caller.ctx;
        let (dir, gids) = (shard.node_at(path)?, ctx.groups());
        if dir.inode() != 1 && shard.is_copy(dir.volume()) {
            let message =
                format!("{path} is in a copy, which may lose it: make the schedule at the root of the copy");
            return Err(Failure::new(libc::EROFS, message));
        }
        let set = shard.transact(ctx, |tx| {
            tx.live_dir(dir)?;
            tx.may_snapshot(dir.volume(), &gids)?;
            let record = ScheduleRecord { interval_secs, since_secs: tx.now.secs, keep };
            tx.put(keys::schedule(dir), record.encode());
            tx.then(Effect::Schedule(dir, Some(record)));
            Ok(())
        });
        set.map_err(|e| shard.snap_refusal(ctx, e, dir, path, "schedule"))?;
        shard.settle()?;
        let found = shard.schedules()?.into_iter().find(|s| s.path == *path);
        found.ok_or_else(|| Failure::new(libc::ENOENT, format!("{path} has no schedule")))
    }
}

/// Removes a schedule. The snapshots stay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScheduleRemove {
    /// The directory.
    pub path: String,
}

impl Request for ScheduleRemove {
    type Reply = Done;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Done, Failure> {
        let (ctx, path) = (caller.ctx, &self.path);
        let (dir, gids) = (shard.node_at(path)?, ctx.groups());
        if shard.lock().schedules.get(dir).is_none() {
            let message = format!("{path} has no schedule: see lee snap schedule list");
            return Err(Failure::new(libc::ENOENT, message));
        }
        let removed = shard.transact(ctx, |tx| {
            tx.may_snapshot(dir.volume(), &gids)?;
            tx.drop_schedule(dir);
            Ok(())
        });
        removed.map_err(|e| shard.snap_refusal(ctx, e, dir, path, "schedule"))?;
        shard.settle()?;
        Ok(Done {})
    }
}

/// Lists all schedules.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScheduleList;

/// All schedules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleInfos {
    /// By path.
    pub schedules: Vec<ScheduleInfo>,
}

impl Reply for ScheduleInfos {
    const KIND: &'static str = "schedules";
}

impl Request for ScheduleList {
    type Reply = ScheduleInfos;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut ScheduleInfos, mut other: ScheduleInfos) {
        all.schedules.append(&mut other.schedules);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<ScheduleInfos, Failure> {
        Ok(ScheduleInfos { schedules: shard.schedules()? })
    }
}

impl Shard {
    /// All schedules, by path.
    pub(super) fn schedules(&self) -> Result<Vec<ScheduleInfo>, Failure> {
        let all: Vec<(NodeId, ScheduleRecord, Option<String>)> = {
            let st = self.lock();
            st.schedules.iter().map(|(dir, r, e)| (dir, r, e.map(str::to_string))).collect()
        };
        let info = |(dir, record, error)| self.schedule_info(dir, &record, error);
        let mut infos = all.into_iter().map(info).collect::<Result<Vec<_>, _>>()?;
        infos.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(infos)
    }

    fn schedule_info(
        &self,
        dir: NodeId,
        record: &ScheduleRecord,
        error: Option<String>,
    ) -> Result<ScheduleInfo, Failure> {
        let now = self.now().secs;
        let below = self.inheriting(dir).map_err(about("schedules"))?;
        let path = self.describe(dir);
        let (interval, since) = (record.interval_secs, record.since_secs);
        let volume = |root: NodeId| {
            let look = |shard: &Shard| {
                let st = shard.lock();
                let v = st.volumes.get(&root.volume()).ok_or(Error::Stale)?;
                let newest_secs = schedules::newest(&st.snapshots, root, now);
                let late = schedule::is_late(newest_secs, since.max(v.created_secs), interval, now);
                Ok(ScheduledVolume { volume: v.name.clone(), newest_secs, late })
            };
            // it may be removed meanwhile
            self.beside(root, look).ok()
        };
        let volumes: Vec<ScheduledVolume> = below.into_iter().filter_map(volume).collect();
        let st = self.lock();
        let newest_secs = schedules::newest(&st.snapshots, dir, now);
        let late = schedule::is_late(newest_secs, since, interval, now) || volumes.iter().any(|v| v.late);
        Ok(ScheduleInfo {
            path,
            interval_secs: interval,
            keep: record.keep.to_string(),
            next_secs: schedule::slot(now, interval) + i64::from(interval),
            newest_secs,
            late,
            error,
            volumes,
        })
    }
}
