//! What operators ask about snapshots: taking, listing, locking, rights, properties of volumes, schedules.

use super::{Answer, no, refuse};
use crate::admin::{
    Failure, PropertyChanges, Reply as AdminReply, ScheduleInfo, ScheduledVolume, SnapInfo, SnapUsage,
};
use crate::format::inode::SnapshotRecord;
use crate::format::keys;
use crate::format::schedule;
use crate::format::schedule::{Keep, ScheduleRecord};
use crate::ops::check_name;
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::schedules;
use crate::state::snapshots::View;
use leeward_env::Ctx;
use leeward_env::dates;
use leeward_env::limits::SNAPSHOT_NAME_BYTES_MAX;
use leeward_fs::flows::Principal;
use leeward_fs::{Error, NodeId};
use rustc_hash::FxHashMap;

/// Shortest interval of a schedule: names have minutes.
const INTERVAL_SECS_MIN: u32 = 60;
/// Most rights of a volume.
const RIGHTS_MAX: usize = 1000;

type Done<T> = std::result::Result<T, Failure>;

impl Shard {
    fn node_at(&self, path: &str) -> Done<NodeId> {
        self.resolve(path).map_err(|e| refuse(&e, path))
    }

    fn durable(&self) -> Done<()> {
        self.sync_all(&Ctx::system()).map(|_| ()).map_err(|e| refuse(&e, "cannot be made durable"))
    }

    pub(super) fn volume_name(&self, volume: u32) -> String {
        self.lock().volumes.get(&volume).map_or_else(|| volume.to_string(), |v| v.name.clone())
    }

    /// Why something about a snapshot is refused, for a person.
    fn snap_refusal(&self, ctx: &Ctx, e: &Error, dir: NodeId, path: &str, name: &str) -> Failure {
        let volume = dir.volume();
        let text = match e {
            Error::Exists => format!("{path} has a snapshot {name} already: choose another name"),
            Error::NotFound => {
                format!("{path} has no snapshot {name}: see lee snap list {path}")
            }
            Error::Invalid | Error::NameTooLong => format!(
                "{name:?} cannot be the name of a snapshot: up to {SNAPSHOT_NAME_BYTES_MAX} bytes without a slash, not beginning with _"
            ),
            Error::NotDir => format!("{path} is not a directory: snapshots are taken of directories"),
            Error::TooManyLinks => format!(
                "volume {0} has as many snapshots as it may have: remove some, or raise snapshots-max with lee volume set {0}",
                self.volume_name(volume)
            ),
            Error::NotPermitted => self.not_permitted(ctx, dir, path, name),
            e => return refuse(e, &format!("snapshot {name} of {path}")),
        };
        no(e.errno(), text)
    }

    fn not_permitted(&self, ctx: &Ctx, dir: NodeId, path: &str, name: &str) -> String {
        let (gids, clock) = (ctx.groups(), self.lock_clock());
        if self.transact(ctx, |tx| tx.may_snapshot(dir.volume(), &gids)).is_err() {
            return format!(
                "only root, the owner of volume {0} and those whom it allows may do this: see lee volume allow {0} snapshot",
                self.volume_name(dir.volume())
            );
        }
        let locked = self.record_of(dir, name).map(|(_, s)| s.locked_until_secs).filter(|t| *t > clock);
        match locked {
            Some(until) => format!(
                "snapshot {name} of {path} is locked until {}: before that nobody can remove it or shorten the lock",
                dates::minute(until)
            ),
            None => format!("{name} is a snapshot of a directory above {path}: name that directory"),
        }
    }

    fn record_of(&self, dir: NodeId, name: &str) -> Option<(u32, SnapshotRecord)> {
        let st = self.lock();
        let epoch = *st.snapshots.of_dir(dir.volume(), dir.inode())?.get(name.as_bytes())?;
        Some((epoch, st.snapshots.get(dir.volume(), epoch)?.clone()))
    }

    pub(super) fn snap_create(&self, ctx: &Ctx, path: &str, name: &str) -> Answer {
        let dir = self.node_at(path)?;
        self.take(ctx, dir, name.as_bytes()).map_err(|e| self.snap_refusal(ctx, &e, dir, path, name))?;
        self.durable()?;
        self.snap_answer(ctx, dir, path, name)
    }

    pub(super) fn snap_remove(&self, ctx: &Ctx, path: &str, name: &str) -> Answer {
        let dir = self.node_at(path)?;
        self.remove(ctx, dir, name.as_bytes()).map_err(|e| self.snap_refusal(ctx, &e, dir, path, name))?;
        self.settle()?;
        Ok(AdminReply::Done)
    }

    pub(super) fn snap_rename(&self, ctx: &Ctx, path: &str, name: &str, to: &str) -> Answer {
        let (dir, gids) = (self.node_at(path)?, ctx.groups());
        self.transact(ctx, |tx| tx.rename_snapshot(dir, name.as_bytes(), to.as_bytes(), &gids)).map_err(
            |e| {
                let about = if matches!(e, Error::NotFound | Error::NotPermitted) { name } else { to };
                self.snap_refusal(ctx, &e, dir, path, about)
            },
        )?;
        self.tell_snapshot(dir, name.as_bytes());
        self.tell_snapshot(dir, to.as_bytes());
        self.durable()?;
        self.snap_answer(ctx, dir, path, to)
    }

    pub(super) fn snap_lock(&self, ctx: &Ctx, path: &str, name: &str, until_secs: i64) -> Answer {
        let clock = self.lock_clock();
        if until_secs <= clock {
            let (until, now) = (dates::minute(until_secs), dates::minute(clock));
            return Err(no(
                libc::EINVAL,
                format!("{until} has passed (it is {now}): lock until a later date"),
            ));
        }
        self.set_lock(ctx, path, name, until_secs, clock)
    }

    pub(super) fn snap_unlock(&self, ctx: &Ctx, path: &str, name: &str) -> Answer {
        self.set_lock(ctx, path, name, 0, self.lock_clock())
    }

    fn set_lock(&self, ctx: &Ctx, path: &str, name: &str, until_secs: i64, clock: i64) -> Answer {
        let (dir, gids) = (self.node_at(path)?, ctx.groups());
        self.transact(ctx, |tx| tx.lock_snapshot(dir, name.as_bytes(), &gids, until_secs, clock))
            .map_err(|e| self.snap_refusal(ctx, &e, dir, path, name))?;
        self.durable()?;
        self.snap_answer(ctx, dir, path, name)
    }

    fn snap_answer(&self, ctx: &Ctx, dir: NodeId, path: &str, name: &str) -> Answer {
        let found = self.record_of(dir, name);
        let (epoch, record) =
            found.ok_or_else(|| self.snap_refusal(ctx, &Error::NotFound, dir, path, name))?;
        Ok(AdminReply::Snap(self.snap_info(dir, path.into(), epoch, &record)))
    }

    fn snap_info(&self, dir: NodeId, path: String, epoch: u32, record: &SnapshotRecord) -> SnapInfo {
        let volume = self.volume_name(dir.volume());
        let alone = self.lock().snapshots.held_alone(dir.volume(), epoch);
        SnapInfo {
            volume,
            path,
            name: String::from_utf8_lossy(&record.name).into_owned(),
            epoch,
            time_secs: record.time.secs,
            uid: record.uid,
            locked_until_secs: record.locked_until_secs,
            alone_bytes: alone.bytes.max(0) as u64,
            alone_records: alone.records.max(0) as u64,
        }
    }

    pub(super) fn snap_list(&self, ctx: &Ctx, path: Option<&str>, volume: Option<&str>) -> Answer {
        let of_dir = path.map(|p| self.node_at(p)).transpose()?;
        let volumes = match (of_dir, volume) {
            (Some(dir), _) => vec![dir.volume()],
            (None, volume) => self.volumes_meant(volume)?,
        };
        let shown = of_dir.map(|dir| self.epochs_in(ctx, dir)).transpose();
        let shown = shown.map_err(|e| refuse(&e, path.unwrap_or_default()))?;
        let (mut snapshots, mut paths) = (Vec::new(), FxHashMap::default());
        for id in &volumes {
            let all: Vec<(u32, SnapshotRecord)> =
                self.lock().snapshots.of_volume(*id).map(|(e, s)| (e, s.clone())).collect();
            for (epoch, record) in all {
                if shown.as_ref().is_some_and(|epochs| !epochs.contains(&epoch)) {
                    continue;
                }
                let dir = NodeId::new(*id, record.dir);
                let path: &String = paths.entry(dir).or_insert_with(|| self.describe(dir));
                snapshots.push(self.snap_info(dir, path.clone(), epoch, &record));
            }
        }
        snapshots.sort_by(|a, b| (&a.path, a.epoch).cmp(&(&b.path, b.epoch)));
        let usage = volumes.into_iter().map(|id| self.snap_usage(id)).collect();
        Ok(AdminReply::Snaps { snapshots, usage })
    }

    /// Epochs of the snapshots that the directory of snapshots of `dir` shows.
    fn epochs_in(&self, ctx: &Ctx, dir: NodeId) -> leeward_fs::Result<Vec<u32>> {
        let entries = self.snapshots_in(ctx, dir, b"", usize::MAX)?;
        let st = self.lock();
        let epoch = |node: NodeId| match st.snapshots.view(node.volume()) {
            Some(View::Snapshot { epoch, .. }) => Some(epoch),
            _ => None,
        };
        Ok(entries.iter().filter_map(|e| epoch(e.node)).collect())
    }

    /// The volume of this name, or all.
    fn volumes_meant(&self, name: Option<&str>) -> Done<Vec<u32>> {
        match name {
            Some(name) => Ok(vec![self.volume_named(name)?]),
            None => Ok(self.lock().volumes.iter().filter(|(_, v)| !v.removing).map(|(id, _)| *id).collect()),
        }
    }

    fn snap_usage(&self, id: u32) -> SnapUsage {
        let volume = self.volume_name(id);
        let st = self.lock();
        let all = st.snapshots.held(id);
        let whole = |v: i64| v.max(0) as u64;
        SnapUsage {
            volume,
            snapshots: st.snapshots.count(id) as u64,
            held_bytes: whole(all.held.bytes),
            held_records: whole(all.held.records),
            waiting_bytes: whole(all.doomed.bytes),
            waiting_records: whole(all.doomed.records),
        }
    }

    pub(super) fn snap_usages(&self, volume: Option<&str>) -> Answer {
        let volumes = self.volumes_meant(volume)?;
        Ok(AdminReply::SnapUsages { usage: volumes.into_iter().map(|id| self.snap_usage(id)).collect() })
    }

    pub(super) fn volume_allow(&self, name: &str, users: &[u32], groups: &[u32], allow: bool) -> Answer {
        let id = self.volume_named(name)?;
        let users = users.iter().map(|uid| Principal::User(*uid));
        let who: Vec<Principal> = users.chain(groups.iter().map(|gid| Principal::Group(*gid))).collect();
        self.change_properties(id, |p| {
            p.snapshot_rights.retain(|w| !who.contains(w));
            if allow {
                p.snapshot_rights.extend(who.iter().copied());
                p.snapshot_rights.sort_unstable();
                p.snapshot_rights.dedup();
            }
            match p.snapshot_rights.len() > RIGHTS_MAX {
                true => Err(format!("more than {RIGHTS_MAX} users and groups: allow a group instead")),
                false => Ok(()),
            }
        })?;
        self.settle()?;
        self.volume_info(id).map(AdminReply::Volume)
    }

    pub(super) fn volume_set(&self, name: &str, set: &PropertyChanges) -> Answer {
        let id = self.volume_named(name)?;
        if let Some(dir) = &set.snapshot_dir {
            self.check_snapshot_dir(id, dir)?;
        }
        let before = self.lock().volumes.get(&id).map(|v| v.properties.snapshot_dir.clone());
        self.change_properties(id, |p| {
            if let Some(dir) = &set.snapshot_dir {
                p.snapshot_dir = dir.as_bytes().into();
            }
            p.snapshot_dir_visible = set.snapshot_dir_visible.unwrap_or(p.snapshot_dir_visible);
            p.snapshots_max = set.snapshots_max.unwrap_or(p.snapshots_max);
            p.quota_counts_snapshots = set.quota_counts_snapshots.unwrap_or(p.quota_counts_snapshots);
            p.bin_days = set.bin_days.unwrap_or(p.bin_days);
            p.public = set.public.unwrap_or(p.public);
            Ok(())
        })?;
        self.settle()?;
        // a bin that is off or shorter gives back
        self.maintenance.wake();
        if let (Some(old), Some(new)) = (before, &set.snapshot_dir)
            && *old != *new.as_bytes()
        {
            self.tell_snapshot_dir(id, &[&old, new.as_bytes()]);
        }
        self.volume_info(id).map(AdminReply::Volume)
    }

    fn change_properties(
        &self,
        id: u32,
        change: impl FnOnce(&mut crate::format::inode::Properties) -> std::result::Result<(), String>,
    ) -> Done<()> {
        let st = &mut *self.lock();
        let v = st.volumes.get_mut(&id).ok_or_else(|| refuse(&Error::Stale, "the volume"))?;
        let mut properties = v.properties.clone();
        change(&mut properties).map_err(|why| no(libc::EINVAL, why))?;
        v.properties = properties;
        st.volumes_dirty.insert(id);
        Ok(())
    }

    fn check_snapshot_dir(&self, id: u32, name: &str) -> Done<()> {
        check_name(name.as_bytes()).map_err(|_| {
            no(libc::EINVAL, format!("{name:?} cannot be the name of a directory of snapshots"))
        })?;
        let taken = self.transact(&Ctx::system(), |tx| tx.dentry(NodeId::new(id, 1), name.as_bytes()));
        match taken.map_err(|e| refuse(&e, name))? {
            Some(_) => Err(no(
                libc::EEXIST,
                format!(
                    "the root of the volume has a file {name:?}, which would be hidden: choose another name"
                ),
            )),
            None => Ok(()),
        }
    }

    /// Front ends forget what they know of these names in all directories of a volume.
    fn tell_snapshot_dir(&self, volume: u32, names: &[&[u8]]) {
        let known = self.lock().refs.of_volume(volume);
        for node in known.into_iter().chain([NodeId::new(volume, 1)]) {
            names.iter().for_each(|name| self.tell_entry(node, name));
        }
    }

    pub(super) fn schedule_set(&self, ctx: &Ctx, path: &str, interval_secs: u32, keep: &str) -> Answer {
        if interval_secs < INTERVAL_SECS_MIN || !interval_secs.is_multiple_of(INTERVAL_SECS_MIN) {
            return Err(no(libc::EINVAL, format!("an interval of {interval_secs} s: it must be in minutes")));
        }
        let keep: Keep = keep.parse().map_err(|why| no(libc::EINVAL, why))?;
        let (dir, gids) = (self.node_at(path)?, ctx.groups());
        self.transact(ctx, |tx| {
            tx.live_dir(dir)?;
            tx.may_snapshot(dir.volume(), &gids)?;
            let record = ScheduleRecord { interval_secs, since_secs: tx.now.secs, keep };
            tx.put(keys::schedule(dir), record.encode());
            tx.then(Effect::Schedule(dir, Some(record)));
            Ok(())
        })
        .map_err(|e| self.snap_refusal(ctx, &e, dir, path, "schedule"))?;
        self.settle()?;
        let found = self.schedules()?.into_iter().find(|s| s.path == path);
        found.map(AdminReply::Schedule).ok_or_else(|| no(libc::ENOENT, format!("{path} has no schedule")))
    }

    pub(super) fn schedule_remove(&self, ctx: &Ctx, path: &str) -> Answer {
        let (dir, gids) = (self.node_at(path)?, ctx.groups());
        if self.lock().schedules.get(dir).is_none() {
            return Err(no(libc::ENOENT, format!("{path} has no schedule: see lee snap schedule list")));
        }
        self.transact(ctx, |tx| {
            tx.may_snapshot(dir.volume(), &gids)?;
            tx.drop_schedule(dir);
            Ok(())
        })
        .map_err(|e| self.snap_refusal(ctx, &e, dir, path, "schedule"))?;
        self.settle()?;
        Ok(AdminReply::Done)
    }

    /// All schedules by path, and how they do.
    pub(super) fn schedules(&self) -> Done<Vec<ScheduleInfo>> {
        let now = self.now().secs;
        let all: Vec<(NodeId, ScheduleRecord, Option<String>)> = {
            let st = self.lock();
            st.schedules.iter().map(|(dir, r, e)| (dir, r, e.map(str::to_string))).collect()
        };
        let mut out = Vec::new();
        for (dir, record, error) in all {
            let below = self.inheriting(dir).map_err(|e| refuse(&e, "schedules"))?;
            let path = self.describe(dir);
            let st = self.lock();
            let (interval, since) = (record.interval_secs, record.since_secs);
            let volumes: Vec<ScheduledVolume> = below
                .into_iter()
                .filter_map(|root| st.volumes.get(&root.volume()).map(|v| (root, v)))
                .map(|(root, v)| {
                    let newest_secs = schedules::newest(&st.snapshots, root, now);
                    let late = schedule::is_late(newest_secs, since.max(v.created_secs), interval, now);
                    ScheduledVolume { volume: v.name.clone(), newest_secs, late }
                })
                .collect();
            let newest_secs = schedules::newest(&st.snapshots, dir, now);
            let late = schedule::is_late(newest_secs, since, interval, now) || volumes.iter().any(|v| v.late);
            out.push(ScheduleInfo {
                path,
                interval_secs: interval,
                keep: record.keep.to_string(),
                next_secs: schedule::slot(now, interval) + i64::from(interval),
                newest_secs,
                late,
                error,
                volumes,
            });
        }
        out.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(out)
    }
}
