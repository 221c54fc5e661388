//! Effects of an operation on the state beside records, applied once it has succeeded.

use crate::format::attached::AttachedRecord;
use crate::format::backups::BackupsRecord;
use crate::format::buckets::BucketRecord;
use crate::format::inode::{Pair, PoolRecord, SnapshotRecord, Stats, VolumeRecord};
use crate::format::keys::EpochPair;
use crate::format::mirrors::MirrorsRecord;
use crate::format::projects::ProjectRecord;
use crate::format::samples::Sampling;
use crate::format::schedule::ScheduleRecord;
use crate::format::scrub::{Reached, ScrubRecord};
use crate::state::State;
use crate::state::pending::{Change, Pending};
use crate::state::quota::{Quota, QuotaOf};
use crate::state::snapshots::Tally;
use leeward_data::{Addr, PoolId};
use leeward_fs::NodeId;
use leeward_fs::accounts::AccountChange;
use leeward_fs::flows::{FlowRecord, UserOrGroup};
use leeward_fs::uploads::{PartRecord, UploadRecord};
use std::ops::Range;
use std::sync::Arc;

/// An effect of an operation on the state beside records, applied once it has succeeded.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A directory of the volume names this pool.
    DirPool(u32, u8),
    /// A directory of the volume has another parent now.
    DirMoved(u32),
    /// The volume of another shard is attached there, or nowhere.
    Attached(u32, Option<AttachedRecord>),
    /// A pool was made, changed or removed.
    Pool(PoolId, Option<PoolRecord>),
    /// The inode has no name any more, but references.
    Orphan(NodeId),
    /// The inode has a name now.
    Named(NodeId),
    /// The upload has this record now.
    Upload(NodeId, UploadRecord),
    /// The upload is gone.
    UploadGone(NodeId),
    /// The inode is this part of an upload.
    Part(NodeId, PartRecord),
    /// Nobody is known to have a reference to the inode, which has no name any more.
    Held(NodeId),
    /// Nobody can reach the inode any more.
    Gone(NodeId),
    /// Its records are to be freed in steps.
    Reclaim(NodeId),
    /// The recycle bin of the volume has an entry with this stamp.
    Binned { volume: u32, stamp: u64 },
    /// The directory's quota is removed with it.
    DropQuota(NodeId),
    /// Content changed, beyond what the records say.
    Change(NodeId, ContentChange),
    /// A user or group has these settings at the gate now.
    Flow(UserOrGroup, FlowRecord),
    /// The bucket has this record now, or is gone.
    Bucket(String, Option<BucketRecord>),
    /// Users or keys changed.
    Account(AccountChange),
    /// The directory has this quota now.
    SetQuota(NodeId, Quota),
    /// The project has this record now, or is gone.
    Project(u32, Option<Box<ProjectRecord>>),
    /// The volume, which uses so much, is in this project now, or in none.
    ProjectOf(u32, Option<u32>, Stats),
    /// The user or group has these limits in the volume now; `None`: in the cell.
    LimitOwner(Option<u32>, UserOrGroup, Pair),
    /// The volume is counted for its owners up to this inode; `None`: all of it.
    Counted(u32, Option<u64>),
    /// The sampling of usage is there.
    Sampled(Sampling),
    /// Of the volume's event log all before this event is removed: so many bytes.
    LogTrimmed(u32, u64, u64),
    /// The scrub record of a pool is this now.
    Scrub(PoolId, Option<ScrubRecord>),
    /// The position of a scrub of a pool; `None`: it is over.
    ScrubPlace(PoolId, Option<Reached>),
    /// The directory has this schedule of snapshots now; `None`: none.
    Schedule(NodeId, Option<ScheduleRecord>),
    /// The volume has these backups now.
    Backups(u32, BackupsRecord),
    /// This is kept of the volume's mirrors now.
    Mirrors(u32, MirrorsRecord),
    /// A volume was made, with the next number.
    NewVolume(u32, Box<VolumeRecord>),
    /// The volume has no name any more; its records are freed in steps.
    Detach(u32),
    /// The volume's last record is gone.
    VolumeGone(u32),
    /// A snapshot ends the volume's epoch.
    Snapshot { volume: u32, record: SnapshotRecord },
    /// The snapshot has another record now.
    ChangeSnapshot { volume: u32, epoch: u32, record: SnapshotRecord },
    /// The snapshot is gone.
    RemoveSnapshot { volume: u32, epoch: u32 },
    /// Nothing is left on the deadlist under this pair.
    FinishPair { volume: u32, pair: EpochPair },
    /// The pending changes up to `last` are in the records, which now say `size` and `allocated`.
    Applied { node: NodeId, last: u64, size: u64, allocated: u64 },
}

/// Changes of a file's content that are not in its records.
#[derive(Debug)]
pub(crate) struct ContentChange {
    /// The operation's number.
    pub(crate) lsn: u64,
    /// In order.
    pub(crate) changes: Vec<Change>,
    /// Bytes by which the allocation grows.
    pub(crate) grows: i64,
    /// Holes that are allocated now.
    pub(crate) fills: Vec<Range<u64>>,
    /// Number of windows that it may touch.
    pub(crate) windows: usize,
    /// Size in the records, bytes.
    pub(crate) size: u64,
    /// Allocated bytes in the records.
    pub(crate) allocated: u64,
}

impl State {
    /// Applies an effect. Data that nobody needs any more is added to `dead`.
    pub(crate) fn take_effect(&mut self, effect: Effect, dead: &mut Vec<(Addr, u32)>) {
        match effect {
            Effect::DirPool(volume, pool) => self.name_pool(volume, pool),
            Effect::DirMoved(volume) => self.dir_moved(volume),
            Effect::Pool(id, record) => self.set_pool(id, record),
            Effect::Orphan(node) => {
                self.orphans.insert(node);
            }
            Effect::Named(node) => {
                self.orphans.remove(&node);
            }
            Effect::Held(node) => self.sessions.hold(node),
            Effect::Upload(upload, record) => {
                let parts = self.uploads.set(upload, record);
                self.release_parts(parts);
            }
            Effect::UploadGone(upload) => {
                let parts = self.uploads.remove(upload);
                self.release_parts(parts);
            }
            Effect::Part(node, record) => {
                self.orphans.remove(&node);
                let old = self.uploads.add(node, record);
                self.release_parts(old.into_iter().collect());
            }
            Effect::Gone(node) => {
                self.orphans.remove(&node);
                if let Some(pending) = self.files.remove(&node) {
                    dead.extend(pending.data());
                    self.release_segments(node, pending.segments());
                }
            }
            Effect::Scrub(pool, record) => self.scrubs.set(pool, record),
            Effect::ScrubPlace(pool, reached) => self.scrubs.set_reached(pool, reached),
            Effect::Attached(volume, at) => self.set_attached(volume, at),
            Effect::Schedule(dir, record) => self.set_schedule(dir, record),
            Effect::Backups(volume, record) => self.set_backups(volume, record),
            Effect::Mirrors(volume, record) => drop(self.mirrors.insert(volume, record)),
            Effect::SetQuota(dir, quota) => self.quotas.set(QuotaOf::Dir(dir), quota),
            Effect::Project(id, record) => self.set_project(id, record.map(|record| *record)),
            Effect::ProjectOf(volume, project, used) => self.set_project_of(volume, project, used),
            Effect::LimitOwner(volume, who, limit) => self.owners.set_limit(volume, who, limit),
            Effect::LogTrimmed(volume, first, bytes) => self.events.trimmed(volume, first, bytes),
            Effect::Sampled(sampling) => self.sampling = sampling,
            Effect::Counted(volume, from) => self.owners.counted(volume, from),
            Effect::Flow(who, record) => self.flows.set(who, record),
            Effect::Bucket(name, record) => self.set_bucket(name, record),
            Effect::Account(change) => Arc::make_mut(&mut self.accounts).apply(change),
            Effect::NewVolume(id, record) => {
                self.next_volume = id + 1;
                self.counters_dirty = true;
                self.volumes.insert(id, *record);
                self.volumes_dirty.insert(id);
            }
            Effect::Detach(id) => self.detach(id),
            Effect::VolumeGone(id) => {
                self.volumes.remove(id);
                self.volumes_dirty.remove(&id);
            }
            Effect::Snapshot { volume, record } => self.take_snapshot(volume, record),
            Effect::ChangeSnapshot { volume, epoch, record } => self.snapshots.change(volume, epoch, record),
            Effect::RemoveSnapshot { volume, epoch } => self.remove_snapshot(volume, epoch),
            Effect::FinishPair { volume, pair } => self.finish_pair(volume, pair),
            Effect::Reclaim(node) => self.reclaim.push_back(node),
            Effect::Binned { volume, stamp } => self.bins.add(volume, stamp),
            Effect::DropQuota(dir) => _ = self.quotas.remove(QuotaOf::Dir(dir)),
            Effect::Change(node, change) => self.change_content(node, change, dead),
            Effect::Applied { node, last, size, allocated } => self.applied(node, last, (size, allocated)),
        }
    }

    fn set_attached(&mut self, volume: u32, at: Option<AttachedRecord>) {
        match at {
            Some(at) => drop(self.attached.insert(volume, at)),
            None => drop(self.attached.remove(&volume)),
        }
    }

    fn set_schedule(&mut self, dir: NodeId, record: Option<ScheduleRecord>) {
        match record {
            Some(record) => self.schedules.set(dir, record),
            None => self.schedules.remove(dir),
        }
    }

    fn set_backups(&mut self, volume: u32, record: BackupsRecord) {
        match record.0.is_empty() {
            true => drop(self.backups.remove(&volume)),
            false => drop(self.backups.insert(volume, record)),
        }
    }

    fn dir_moved(&mut self, volume: u32) {
        *self.dir_moves.entry(volume).or_default() += 1;
        self.bins.moved(volume);
    }

    fn name_pool(&mut self, volume: u32, pool: u8) {
        if let Some(v) = self.volumes.get_mut(&volume)
            && let Err(at) = v.properties.dir_pools.binary_search(&pool)
        {
            v.properties.dir_pools.insert(at, pool);
            self.volumes_dirty.insert(volume);
        }
    }

    fn set_pool(&mut self, id: PoolId, record: Option<PoolRecord>) {
        match record {
            Some(record) => drop(self.pools.insert(id, record)),
            None => drop(self.pools.remove(&id)),
        }
        self.moves.recheck();
    }

    fn set_bucket(&mut self, name: String, record: Option<BucketRecord>) {
        let buckets = Arc::make_mut(&mut self.buckets);
        match record {
            Some(record) => drop(buckets.insert(name, Arc::new(record))),
            None => {
                buckets.remove(&name);
                self.uploads.expire_bucket(&name);
            }
        }
    }

    fn detach(&mut self, id: u32) {
        if self.volumes.contains_key(&id) {
            self.volumes.begin_removal(id);
            self.volumes_dirty.insert(id);
        }
        let pending = self.files.extract_if(|node, _| node.volume() == id);
        let pending: Vec<(NodeId, Pending)> = pending.collect();
        pending.into_iter().for_each(|(node, p)| self.release_segments(node, p.segments()));
        self.orphans.retain(|node| node.volume() != id);
        self.reclaim.retain(|node| node.volume() != id);
        self.unfolded.drop_volume(id);
        self.owners.drop_volume(id);
        self.events.drop_volume(id);
        self.snapshots.drop_volume(id);
        self.bins.drop_volume(id);
        self.schedules.drop_volume(id);
        self.mirrors.remove(&id);
        let parts = self.uploads.drop_volume(id);
        self.release_parts(parts);
    }

    fn remove_snapshot(&mut self, volume: u32, epoch: u32) {
        self.snapshots.remove(volume, epoch);
        self.count_held(volume);
    }

    fn take_snapshot(&mut self, volume: u32, record: SnapshotRecord) {
        if let Some(v) = self.volumes.get_mut(&volume) {
            self.snapshots.take(volume, v.epoch, record);
            v.epoch += 1;
            self.volumes_dirty.insert(volume);
            self.count_held(volume);
        }
    }

    fn finish_pair(&mut self, volume: u32, pair: EpochPair) {
        let left = self.snapshots.finish_pair(volume, pair);
        if left != Tally::default() {
            tracing::error!("{left:?} counted of volume {volume}, {pair:?}, but not found; run lee fsck");
        }
        self.count_held(volume);
    }

    fn change_content(&mut self, node: NodeId, change: ContentChange, dead: &mut Vec<(Addr, u32)>) {
        let ContentChange { lsn, changes, grows, fills, windows, size, allocated } = change;
        let epoch = self.volumes.get(&node.volume()).map_or(1, |v| v.epoch);
        let new = || Pending::new(size, allocated, epoch);
        let pending = self.files.entry(node).or_insert_with(new);
        // an older one has no name any more, or would have been staged
        pending.epoch = epoch;
        for change in changes {
            if let Change::Write { addr, .. } = &change {
                self.by_segment.entry(addr.segment).or_default().insert(node);
            }
            pending.push(change, lsn, |addr, len| dead.push((addr, len)));
        }
        fills.into_iter().for_each(|hole| pending.fill(hole));
        pending.add_windows(windows);
        pending.allocated = pending.allocated.saturating_add_signed(grows);
    }

    /// `records`: size and allocated bytes that the records have now.
    fn applied(&mut self, node: NodeId, last: u64, records: (u64, u64)) {
        let Some(pending) = self.files.get_mut(&node) else { return };
        let done = pending.applied(last);
        if pending.is_empty() {
            debug_assert_eq!((pending.size, pending.allocated), records, "{node:?}");
            self.files.remove(&node);
        }
        self.release_segments(node, done);
    }
}
