//! What operators ask of a cell: volumes, quotas, usage, space; in `snap.rs` what they ask about snapshots, in `bin.rs` about
//! recycle bins, in `pool.rs` about pools, in `flow.rs` about the gate, in `accounts.rs` about users and keys, in `bucket.rs` about
//! buckets.

mod accounts;
mod bin;
mod bucket;
mod flow;
mod pool;
mod snap;
mod store;
mod tier;

use crate::admin::{CellStats, Df, Failure, Progress, QuotaInfo, Reply as AdminReply, Request, VolumeInfo};
use crate::cell::root_dir;
use crate::format::inode::{Pair, Properties, VolumeRecord};
use crate::format::keys;
use crate::ops::check_name;
use crate::shard::Shard;
use crate::snapshots::restore::Restore;
use crate::state::quota::Quota;
use crate::tx::TxResult;
use leeward_env::Ctx;
use leeward_env::dates;
use leeward_fs::flows::{FlowRecord, Principal};
use leeward_fs::{Error, Kind, NodeId, Result, Usage};
use std::sync::atomic::Ordering;

/// Volume numbers are 24 bits of an inode's number; the upper half of them are views.
const VOLUMES_MAX: u32 = leeward_fs::VIEW_FIRST;
/// Longest name of a volume.
const VOLUME_NAME_BYTES_MAX: usize = 128;

type Answer = std::result::Result<AdminReply, Failure>;

fn refuse(e: &Error, what: &str) -> Failure {
    Failure { message: format!("{what}: {e}"), errno: e.errno() }
}

fn no(errno: i32, message: String) -> Failure {
    Failure { message, errno }
}

impl Shard {
    /// Runs one request.
    pub(crate) fn admin(&self, ctx: &Ctx, request: &Request, progress: &mut dyn FnMut(Progress)) -> Answer {
        match request {
            Request::VolumeAllow { name, users, groups, allow } => {
                self.volume_allow(name, users, groups, *allow)
            }
            Request::VolumeSet { name, set } => self.volume_set(name, set),
            Request::SnapCreate { path, name } => self.snap_create(ctx, path, name),
            Request::SnapList { path, volume } => self.snap_list(ctx, path.as_deref(), volume.as_deref()),
            Request::SnapRemove { path, name } => self.snap_remove(ctx, path, name),
            Request::SnapRename { path, name, to } => self.snap_rename(ctx, path, name, to),
            Request::SnapLock { path, name, until_secs } => self.snap_lock(ctx, path, name, *until_secs),
            Request::SnapUnlock { path, name } => self.snap_unlock(ctx, path, name),
            Request::SnapUsage { volume } => self.snap_usages(volume.as_deref()),
            Request::ScheduleSet { path, interval_secs, keep } => {
                self.schedule_set(ctx, path, *interval_secs, keep)
            }
            Request::ScheduleList => self.schedules().map(|schedules| AdminReply::Schedules { schedules }),
            Request::ScheduleRemove { path } => self.schedule_remove(ctx, path),
            Request::VolumeCreate { name, at, uid, gid, pool } => {
                self.volume_create(name, at, *uid, *gid, pool.as_deref())
            }
            Request::VolumeMoveData { name, to, wait } => self.volume_move_data(name, to, *wait, progress),
            Request::PoolCreate { name, layout, stores, force } => {
                self.pool_create(name, layout, stores, *force)
            }
            Request::PoolTier { name, hot, flush_percent, evict_percent } => {
                self.pool_tier(name, hot, *flush_percent, *evict_percent)
            }
            Request::PoolUntier { name, wait } => self.pool_untier(name, *wait, progress),
            Request::PoolStore { name, change, force } => self.pool_store(name, change, *force),
            Request::Scrub { pool } => self.scrub_pools(pool.as_deref(), progress),
            Request::ScrubEvery { pool, every_secs } => self.scrub_every(pool.as_deref(), *every_secs),
            Request::PoolList => Ok(AdminReply::Pools { pools: self.pool_infos() }),
            Request::PoolShow { name } => {
                Ok(AdminReply::Pool(Box::new(self.pool_info(self.pool_named(name)?))))
            }
            Request::PoolRemove { name } => self.pool_remove(name),
            Request::VolumeList => Ok(AdminReply::Volumes { volumes: self.volumes()? }),
            Request::VolumeShow { name } => {
                self.volume_info(self.volume_named(name)?).map(AdminReply::Volume)
            }
            Request::VolumeRename { name, to } => self.volume_rename(name, to),
            Request::VolumeRemove { name } => self.volume_remove(name),
            Request::QuotaSet { path, bytes, files } => self.quota_set(path, *bytes, *files),
            Request::QuotaShow { path } => self.quota_show(path),
            Request::QuotaList => self.quota_list(),
            Request::FlowSet { who, weight, ops_per_sec, bytes_per_sec } => {
                let (weight, ops_per_sec, bytes_per_sec) = (*weight, *ops_per_sec, *bytes_per_sec);
                self.flow_set(*who, FlowRecord { weight, ops_per_sec, bytes_per_sec })
            }
            Request::FlowReset { who } => self.flow_reset(*who),
            Request::FlowList => self.flow_list(),
            Request::BucketCreate { name, path, public } => self.bucket_create(name, path, *public),
            Request::BucketSet { name, public, cors } => self.bucket_set(name, *public, cors.as_deref()),
            Request::BucketRemove { name } => self.bucket_remove(name),
            Request::BucketList => self.bucket_list(),
            Request::UserCreate { name, uid, gids } => self.user_create(name, *uid, gids),
            Request::UserSet { name, disabled, gids } => self.user_set(name, *disabled, gids.as_deref()),
            Request::UserList => Ok(self.user_list()),
            Request::UserShow { name } => self.user_show(name),
            Request::KeyCreate { user, label } => self.key_create(user, label),
            Request::KeyList { user } => self.key_list(user.as_deref()),
            Request::KeyRevoke { user, access_key_id } => self.key_revoke(user, access_key_id.as_deref()),
            Request::TokenKey { user } => self.token_key(user),
            Request::TokenRevoke { user } => self.token_revoke(user.as_deref()),
            Request::Usage { path } => {
                let usage = self.resolve(path).and_then(|node| self.usage(node));
                usage.map(AdminReply::Usage).map_err(|e| refuse(&e, path))
            }
            Request::Df => Ok(AdminReply::Df(self.df())),
            Request::Fsck => self.fsck(progress).map(AdminReply::Fsck).map_err(|e| refuse(&e, "fsck")),
            Request::Sync => {
                let done = self.sync_all(&Ctx::system());
                done.map(|_| AdminReply::Done).map_err(|e| refuse(&e, "sync"))
            }
            Request::BinList { path } => self.bin_list(ctx, path.as_deref()),
            Request::BinRestore { path, at_secs, to } => self.bin_restore(ctx, path, *at_secs, to.as_deref()),
            Request::BinEmpty { volume } => self.bin_empty(ctx, volume.as_deref(), progress),
            Request::SnapDiff { path, from, to } => self.snap_diff(path, from, to.as_deref(), progress),
            Request::SnapRestore { path, name, what, to, in_place } => {
                self.snap_restore(path, name, what, to.as_deref(), *in_place, progress)
            }
            Request::Stats => Ok(AdminReply::Stats(self.stats())),
        }
    }

    fn volume_create(&self, name: &str, at: &str, uid: u32, gid: u32, pool: Option<&str>) -> Answer {
        let pool = pool.map_or(Ok(0), |pool| self.data_pool_named(pool))?;
        if name.is_empty() || name.len() > VOLUME_NAME_BYTES_MAX || name.contains(['/', '\0', '\n']) {
            return Err(no(
                libc::EINVAL,
                format!("{name:?} is no name for a volume: 1 to {VOLUME_NAME_BYTES_MAX} bytes, no slash"),
            ));
        }
        let (parent, leaf) = at.trim_end_matches('/').rsplit_once('/').unwrap_or(("", at));
        let parent = if parent.is_empty() { "/" } else { parent };
        let dir =
            self.resolve(parent).map_err(|e| refuse(&e, &format!("cannot attach at {at}: {parent}")))?;
        let made = self.transact(&Ctx::system(), |tx| {
            if tx.st.volumes.values().any(|v| v.name == name && !v.removing) {
                return Ok(Err(no(
                    libc::EEXIST,
                    format!("there is a volume {name} already: choose another name"),
                )));
            }
            let id = tx.st.next_volume;
            if id >= VOLUMES_MAX {
                return Ok(Err(no(libc::ENOSPC, "no more volume numbers".into())));
            }
            attach(tx, id, dir, leaf, uid, gid)?;
            let record = VolumeRecord {
                name: name.into(),
                uid,
                next_inode: 2,
                epoch: 1,
                created_secs: tx.now.secs,
                attached_dir: dir,
                attached_name: leaf.as_bytes().into(),
                removing: false,
                properties: Properties { pool, ..Properties::default() },
            };
            // nothing can fail any more
            tx.st.next_volume += 1;
            tx.st.counters_dirty = true;
            tx.st.volumes.insert(id, record);
            tx.st.volumes_dirty.insert(id);
            bucket::publish_volume(tx, name, &format!("{}/{leaf}", parent.trim_end_matches('/')));
            Ok(Ok(id))
        });
        let id = made.map_err(|e| refuse(&e, &format!("cannot attach at {at}")))??;
        self.settle()?;
        self.tell_entry(dir, leaf.as_bytes());
        self.tell_inode(dir);
        self.volume_info(id).map(AdminReply::Volume)
    }

    /// What an operator changed is durable when it is said to be done.
    fn settle(&self) -> std::result::Result<(), Failure> {
        self.commit_now(&Ctx::system()).map_err(|e| refuse(&e, "cannot be made durable"))
    }

    fn volume_named(&self, name: &str) -> std::result::Result<u32, Failure> {
        let st = self.lock();
        let found = st.volumes.iter().find(|(_, v)| v.name == name && !v.removing).map(|(id, _)| *id);
        found.ok_or_else(|| no(libc::ENOENT, format!("there is no volume {name}: see lee volume list")))
    }

    fn volumes(&self) -> std::result::Result<Vec<VolumeInfo>, Failure> {
        let ids: Vec<u32> = self.lock().volumes.keys().copied().collect();
        ids.into_iter().map(|id| self.volume_info(id)).collect()
    }

    fn volume_info(&self, id: u32) -> std::result::Result<VolumeInfo, Failure> {
        let root = NodeId::new(id, 1);
        let v = self.lock().volumes.get(&id).cloned();
        let v = v.ok_or_else(|| no(libc::ENOENT, format!("volume {id} is gone")))?;
        let usage =
            if v.removing { Usage::default() } else { self.usage(root).map_err(|e| refuse(&e, &v.name))? };
        let (quota, snapshots, misplaced) = {
            let st = self.lock();
            let quota = st.quotas.get(root).map_or(Pair::default(), |q| q.limit);
            (quota, st.snapshots.count(id) as u64, st.misplaced(id))
        };
        let p = v.properties;
        let (mut snapshot_users, mut snapshot_groups) = (Vec::new(), Vec::new());
        for who in p.snapshot_rights {
            match who {
                Principal::User(uid) => snapshot_users.push(uid),
                Principal::Group(gid) => snapshot_groups.push(gid),
            }
        }
        Ok(VolumeInfo {
            pool: self.pool_name(p.pool),
            misplaced_bytes: misplaced.bytes,
            stuck_segments: misplaced.stuck,
            snapshots,
            snapshots_max: p.snapshots_max,
            snapshot_dir: String::from_utf8_lossy(&p.snapshot_dir).into_owned(),
            snapshot_dir_visible: p.snapshot_dir_visible,
            quota_counts_snapshots: p.quota_counts_snapshots,
            bin_days: p.bin_days,
            public: p.public,
            snapshot_users,
            snapshot_groups,
            id,
            at: self.path_of(root).unwrap_or_default(),
            name: v.name,
            uid: v.uid,
            quota_bytes: quota.0,
            quota_files: quota.1,
            usage,
            created_secs: v.created_secs,
            removing: v.removing,
        })
    }

    fn volume_rename(&self, name: &str, to: &str) -> Answer {
        let id = self.volume_named(name)?;
        if to.is_empty() || to.len() > VOLUME_NAME_BYTES_MAX || to.contains(['/', '\0', '\n']) {
            return Err(no(
                libc::EINVAL,
                format!("{to:?} is no name for a volume: 1 to {VOLUME_NAME_BYTES_MAX} bytes, no slash"),
            ));
        }
        if self.volume_named(to).is_ok() {
            return Err(no(libc::EEXIST, format!("there is a volume {to} already: choose another name")));
        }
        let path = self.path_of(NodeId::new(id, 1));
        let renamed = self.transact(&Ctx::system(), |tx| {
            if let Some(path) = &path
                && bucket::unpublish_volume(tx, name, path)
            {
                bucket::publish_volume(tx, to, path);
            }
            if let Some(v) = tx.st.volumes.get_mut(&id) {
                v.name = to.into();
            }
            tx.st.volumes_dirty.insert(id);
            Ok(())
        });
        renamed.map_err(|e| refuse(&e, name))?;
        self.settle()?;
        self.volume_info(id).map(AdminReply::Volume)
    }

    fn volume_remove(&self, name: &str) -> Answer {
        let id = self.volume_named(name)?;
        if id == 0 {
            return Err(no(libc::EBUSY, "the root volume cannot be removed: it holds the others".into()));
        }
        let inside =
            self.lock().volumes.values().find(|v| v.attached_dir.volume() == id && !v.removing).cloned();
        if let Some(inside) = inside {
            return Err(no(
                libc::EBUSY,
                format!("volume {} is attached inside {name}: remove it first", inside.name),
            ));
        }
        let v = self.lock().volumes[&id].clone();
        let path = self.path_of(NodeId::new(id, 1));
        let clock = self.lock_clock();
        self.be_cautious();
        let done = self.transact(&Ctx::system(), |tx| {
            if let Some(locked) =
                tx.st.snapshots.of_volume(id).map(|(_, s)| s).find(|s| s.locked_until_secs > clock)
            {
                return Ok(Some(locked.clone()));
            }
            let mut dir = tx.inode(v.attached_dir)?;
            dir.touch(tx.now);
            dir.add_entries(-1);
            dir.nlink -= 1;
            tx.put_inode(v.attached_dir, &dir)?;
            tx.remove_dentry(v.attached_dir, &v.attached_name)?;
            let quotas: Vec<NodeId> =
                tx.st.quotas.iter().map(|(d, _)| d).filter(|d| d.volume() == id).collect();
            for dir in quotas {
                tx.remove(keys::quota(dir));
                tx.then(crate::state::Effect::DropQuota(dir));
            }
            let schedules: Vec<NodeId> =
                tx.st.schedules.iter().map(|(d, ..)| d).filter(|d| d.volume() == id).collect();
            schedules.into_iter().for_each(|dir| tx.drop_schedule(dir));
            if let Some(path) = &path {
                bucket::unpublish_volume(tx, name, path);
            }
            tx.then(crate::state::Effect::Detach(id));
            Ok(None)
        });
        if let Some(locked) = done.map_err(|e| refuse(&e, name))? {
            return Err(no(
                libc::EPERM,
                format!(
                    "volume {name} cannot be removed: its snapshot {} of {} is locked until {}",
                    String::from_utf8_lossy(&locked.name),
                    self.describe(NodeId::new(id, locked.dir)),
                    dates::minute(locked.locked_until_secs)
                ),
            ));
        }
        self.settle()?;
        self.tell_entry(v.attached_dir, &v.attached_name);
        self.tell_inode(v.attached_dir);
        self.maintenance.wake();
        Ok(AdminReply::Done)
    }

    /// What is below a directory; of anything else, itself.
    pub(crate) fn usage(&self, node: NodeId) -> Result<Usage> {
        self.transact(&Ctx::system(), |tx| {
            let inode = tx.inode(node)?;
            if !inode.is_dir() {
                return Ok(Usage { bytes: tx.size_of(node, &inode).1, files: 1, dirs: 0 });
            }
            let s = tx.exact_stats(node)?;
            let whole = |v: i64| v.max(0) as u64;
            Ok(Usage { bytes: whole(s.bytes), files: whole(s.files), dirs: whole(s.dirs) })
        })
    }

    fn quota_set(&self, path: &str, bytes: Option<u64>, files: Option<u64>) -> Answer {
        let set = |e: Error| refuse(&e, path);
        let node = self.resolve(path).map_err(set)?;
        self.transact(&Ctx::system(), |tx| {
            if !tx.inode(node)?.is_dir() {
                return Err(Error::NotDir.into());
            }
            let used = tx.exact_stats(node)?;
            let old = tx.st.quotas.get(node).map_or(Pair::default(), |q| q.limit);
            let limit = Pair(bytes.unwrap_or(old.0), files.unwrap_or(old.1));
            if limit == Pair::default() {
                tx.remove(keys::quota(node));
                tx.then(crate::state::Effect::DropQuota(node));
            } else {
                tx.put(keys::quota(node), limit.encode());
                tx.then(crate::state::Effect::SetQuota(node, Quota { limit, used }));
            }
            Ok(())
        })
        .map_err(set)?;
        self.settle()?;
        self.quota_show(path)
    }

    fn quota_show(&self, path: &str) -> Answer {
        let node = self.resolve(path).map_err(|e| refuse(&e, path))?;
        let (known, held) = {
            let st = self.lock();
            (st.quotas.get(node).copied(), st.held_in_quota(node))
        };
        let info = match known {
            Some(q) => quota_info(path.into(), &q, held),
            None => {
                let u = self.usage(node).map_err(|e| refuse(&e, path))?;
                QuotaInfo {
                    path: path.into(),
                    bytes: 0,
                    files: 0,
                    used_bytes: u.bytes + held.max(0) as u64,
                    used_files: u.files + u.dirs,
                }
            }
        };
        Ok(AdminReply::Quota(info))
    }

    fn quota_list(&self) -> Answer {
        let all: Vec<(NodeId, Quota, i64)> = {
            let st = self.lock();
            st.quotas.iter().map(|(d, q)| (d, *q, st.held_in_quota(d))).collect()
        };
        let info = |(dir, q, held): (NodeId, Quota, i64)| quota_info(self.describe(dir), &q, held);
        let mut quotas: Vec<QuotaInfo> = all.into_iter().map(info).collect();
        quotas.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(AdminReply::Quotas { quotas })
    }

    /// The live directory at a path, and the epoch of its snapshot of this name.
    fn snapshot_named(&self, path: &str, name: &str) -> std::result::Result<(NodeId, u32), Failure> {
        let dir = self.resolve(path).map_err(|e| refuse(&e, path))?;
        let epoch = self.transact(&Ctx::system(), |tx| tx.epoch_of(dir, name.as_bytes()));
        let none = || format!("{path} has no snapshot {name}: see lee snap list {path}");
        epoch.map(|epoch| (dir, epoch)).map_err(|e| no(e.errno(), none()))
    }

    fn snap_diff(
        &self,
        path: &str,
        from: &str,
        to: Option<&str>,
        progress: &mut dyn FnMut(Progress),
    ) -> Answer {
        let (dir, older) = self.snapshot_named(path, from)?;
        let newer = to.map(|to| self.snapshot_named(path, to)).transpose()?.map(|(_, epoch)| epoch);
        if newer.is_some_and(|newer| newer < older) {
            let message =
                format!("{from} is newer than {}: name the older snapshot first", to.unwrap_or_default());
            return Err(no(libc::EINVAL, message));
        }
        let changes = self.diff(dir, older, newer, progress).map_err(|e| refuse(&e, path))?;
        Ok(AdminReply::Diff { changes })
    }

    fn snap_restore(
        &self,
        path: &str,
        name: &str,
        what: &str,
        to: Option<&str>,
        in_place: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Answer {
        let (dir, epoch) = self.snapshot_named(path, name)?;
        let what = what.trim_matches('/');
        let source = self.transact(&Ctx::system(), |tx| tx.in_snapshot(dir, epoch, what.as_bytes()));
        let source = source.map_err(|e| refuse(&e, &format!("{what} in snapshot {name} of {path}")))?;
        let there = format!("{}/{what}", path.trim_end_matches('/'));
        let target = to.unwrap_or(&there).trim_end_matches('/');
        let all_of_dir = what.is_empty() && to.is_none();
        if all_of_dir && !in_place {
            let message = format!("{path} is there: add --in-place to replace what is in it, or --to PATH");
            return Err(no(libc::EEXIST, message));
        }
        let (above, leaf) = target.rsplit_once('/').unwrap_or(("", target));
        let parent = if all_of_dir { dir } else { self.resolve(above).map_err(|e| refuse(&e, above))? };
        let restore = Restore { source, dir: parent, name: leaf.as_bytes(), in_place, keeps: true };
        let done = self.restore(&restore, all_of_dir, progress).map_err(|e| match e {
            Error::Exists => {
                no(libc::EEXIST, format!("{target} is there: add --in-place to replace it, or name another --to PATH"))
            }
            Error::Busy => no(
                libc::EBUSY,
                format!("{target} cannot be replaced: snapshots were taken, scheduled, or volumes attached below it; restore with --to PATH"),
            ),
            e => refuse(&e, target),
        })?;
        self.settle()?;
        self.tell_entry(parent, leaf.as_bytes());
        self.tell_inode(parent);
        Ok(AdminReply::Restored(done))
    }

    pub(crate) fn df(&self) -> Df {
        let pools = self.pool_infos();
        let (total_bytes, available_bytes) = self.space(0);
        let kv = self.kv.stats();
        let st = self.lock();
        let mut df = Df {
            total_bytes,
            available_bytes,
            metadata_bytes: kv.table_bytes + kv.journal_bytes,
            dirty_bytes: self.log.dirty_bytes(),
            pools,
            ..Df::default()
        };
        for (_, r) in st.segments.iter().filter(|(_, r)| r.sealed) {
            df.segments += 1;
            df.segment_bytes += r.object_bytes;
            df.live_bytes += r.live_bytes;
            df.reclaim_bytes += r.object_bytes * r.dead_bytes() / r.data_bytes.max(1);
        }
        df
    }

    pub(crate) fn stats(&self) -> CellStats {
        let cleaning_segments = self.segments_to_clean();
        let clock_ahead_secs = self.clock_moment().ahead;
        // what cannot be told is late
        let late_schedules = self.schedules().map_or(1, |all| all.iter().filter(|s| s.late).count() as u64);
        let now = self.now().secs;
        let pools = self.pools.all();
        let st = self.lock();
        let late_scrubs = pools.iter().filter(|(id, _)| st.scrub_status(*id, now).late).count() as u64;
        CellStats {
            late_scrubs,
            operations: self.counters.operations.load(Ordering::Relaxed),
            commits: self.counters.commits.load(Ordering::Relaxed),
            running_records: st.running.records.len() as u64,
            dirty_bytes: self.log.dirty_bytes(),
            written_bytes: self.log.written_bytes() + self.kv.stats().written_bytes,
            orphans: st.orphans.len() as u64,
            cleaning_segments,
            snapshots: st.volumes.keys().map(|id| st.snapshots.count(*id) as u64).sum(),
            late_schedules,
            clock_ahead_secs,
            trim_records: st.snapshots.all_doomed().records as u64,
        }
    }
}

/// Makes the root directory of a volume and its name in `dir`.
fn attach(tx: &mut crate::tx::Tx<'_>, id: u32, dir: NodeId, leaf: &str, uid: u32, gid: u32) -> TxResult<()> {
    let mut parent = tx.live_dir(dir)?;
    check_name(leaf.as_bytes())?;
    if tx.is_snapshot_dir(dir, leaf.as_bytes()) || tx.dentry(dir, leaf.as_bytes())?.is_some() {
        return Err(Error::Exists.into());
    }
    let root = NodeId::new(id, 1);
    parent.touch(tx.now);
    parent.add_entries(1);
    parent.nlink += 1;
    tx.put_inode(dir, &parent)?;
    tx.put_dentry(dir, leaf.as_bytes(), root, Kind::Dir)?;
    let inode = root_dir(tx.now, uid, gid);
    tx.put_new(keys::inode(root), inode.encode());
    Ok(())
}

/// `held`: bytes that only snapshots hold, where the quota counts them.
fn quota_info(path: String, q: &Quota, held: i64) -> QuotaInfo {
    QuotaInfo {
        path,
        bytes: q.limit.0,
        files: q.limit.1,
        used_bytes: (q.used.bytes + held).max(0) as u64,
        used_files: q.used.inodes().max(0) as u64,
    }
}
