//! The data under the shard's lock: tables in memory, each in a module of its own. Nothing here
//! waits, does I/O, or knows the shard.

pub(crate) mod events;
pub(crate) mod overlay;
pub(crate) mod owners;
pub(crate) mod pending;
pub(crate) mod projects;
pub(crate) mod quota;
pub(crate) mod receiving;
pub(crate) mod refs;
pub(crate) mod segments;
pub(crate) mod sessions;
pub(crate) mod snapshots;
pub(crate) mod unreadable;

mod accounts;
pub(crate) mod bins;
pub(crate) mod effect;
pub(crate) mod moves;
pub(crate) mod running;
pub(crate) mod schedules;
pub(crate) mod scrubs;
pub(crate) mod sweep;
pub(crate) mod unfolded;
pub mod uploads;
pub(crate) mod volumes;
pub mod which;

pub(crate) use effect::{ContentChange, Effect};
pub use running::{Frozen, RecordCache, Running};

use crate::format::attached::AttachedRecord;
use crate::format::backups::BackupsRecord;
use crate::format::buckets::Buckets;
use crate::format::inode::PoolRecord;
use crate::format::keys::{self, EpochPair, Key};
use crate::format::mirrors::MirrorsRecord;
use crate::format::samples::Sampling;
use crate::state::events::EventLogs;
use crate::state::overlay::Overlay;
use crate::state::owners::Owners;
use crate::state::pending::Pending;
use crate::state::projects::Projects;
use crate::state::quota::Quotas;
use crate::state::receiving::{Ending, Task};
use crate::state::refs::Refs;
use crate::state::segments::Segments;
use crate::state::sessions::SessionTable;
use crate::state::snapshots::Snapshots;
use crate::state::unreadable::Unreadable;
use bins::Bins;
use leeward_data::{Object, PoolId, SegmentInfo};
use leeward_env::{Ctx, Door};
use leeward_fs::NodeId;
use leeward_fs::accounts::Accounts;
use leeward_fs::flows::FlowSettings;
use leeward_meta::Value;
use moves::Moves;
use rustc_hash::FxHashMap;
use schedules::Schedules;
use scrubs::Scrubs;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sweep::Sweep;
use unfolded::Unfolded;
use uploads::Uploads;
use volumes::Volumes;
use which::WhichShard;

/// Most records that one entry of a deadlist names.
const DEAD_PER_ENTRY: usize = 32;

/// The data that the lock protects.
#[derive(Default)]
pub struct State {
    /// Which shard of the cell it is.
    pub which: WhichShard,
    /// The format in which records are written.
    pub format: u32,
    /// Records changed since the last freeze.
    pub running: Running,
    /// Number of the running transaction; a commit of it makes everything so far durable.
    pub running_id: u64,
    /// Changes of recursive statistics that are not in their records yet.
    pub unfolded: Unfolded,
    /// Records being committed, the oldest transaction first: those that are durable and not
    /// published yet, and one that is being written.
    pub committing: VecDeque<Frozen>,
    /// Moves when committed records become clean.
    pub publish_seq: u64,
    /// Moves when records of snapshots change: content from before them enters records.
    pub views_changed: u64,
    /// How often directories of volumes have moved, see [`State::dir_moves`].
    pub dir_moves: FxHashMap<u32, u64>,
    /// Copies that something has for itself, and whether that is to end.
    pub receiving: BTreeMap<u32, (Task, Ending)>,
    /// Volumes that become copies: users change nothing in them.
    pub becoming_copies: BTreeSet<u32>,
    /// Content that is not in records yet, by inode.
    pub files: FxHashMap<NodeId, Pending>,
    /// Inodes with pending data in a segment, stored or not: exactly those whose queues mention it.
    /// Such a segment is in use.
    pub by_segment: FxHashMap<u64, BTreeSet<NodeId>>,
    /// Those of these segments of which nothing was left to store.
    pub vanished: BTreeSet<u64>,
    /// The segment table.
    pub segments: Segments,
    /// Pools by number, without the cell's own.
    pub pools: BTreeMap<PoolId, PoolRecord>,
    /// Segments to be moved between pools.
    pub moves: Moves,
    /// Volumes.
    pub volumes: Volumes,
    /// Volumes of other shards that are attached here.
    pub attached: BTreeMap<u32, AttachedRecord>,
    /// Volumes whose record must be written.
    pub volumes_dirty: BTreeSet<u32>,
    /// Objects that cleaning replaced: garbage once the next commit is durable.
    pub replaced: Vec<Object>,
    /// Segments whose inline data is no longer needed once the next commit is durable: it records
    /// that they are stored.
    pub released: Vec<u64>,
    /// Whether the cell's counters must be written.
    pub counters_dirty: bool,
    /// Number of the next volume.
    pub next_volume: u32,
    /// When the time was last stored for the locks of snapshots, seconds.
    pub clock_stored: Option<i64>,
    /// Whether the time must be stored.
    pub clock_due: bool,
    /// Schedules of snapshots.
    pub schedules: Schedules,
    /// Backups of volumes.
    pub backups: BTreeMap<u32, BackupsRecord>,
    /// What is kept of volumes' mirrors.
    pub mirrors: BTreeMap<u32, MirrorsRecord>,
    /// Scrubbing of pools: when, and with which result.
    pub scrubs: Scrubs,
    /// Snapshots, the data that they hold, and views of them.
    pub snapshots: Snapshots,
    /// Recycle bins.
    pub bins: Bins,
    /// Settings of users and groups at the gate.
    pub flows: FlowSettings,
    /// The buckets of the S3 door.
    pub buckets: Arc<Buckets>,
    /// Users and keys for doors.
    pub accounts: Arc<Accounts>,
    /// Uploads in parts.
    pub uploads: Arc<Uploads>,
    /// Quotas and their usage.
    pub quotas: Quotas,
    /// Parts of the cell that groups look after.
    pub projects: Projects,
    /// What users and groups own, and their limits.
    pub owners: Owners,
    /// What changed in volumes.
    pub events: EventLogs,
    /// Where the sampling of usage is.
    pub sampling: Sampling,
    /// References of front ends.
    pub refs: Refs,
    /// Those of the kernel of this machine, which keeps what it knows until it is told.
    pub known_here: Refs,
    /// The number of the last change in all shards of the cell.
    pub lsn: Arc<AtomicU64>,
    /// Sessions of clients.
    pub sessions: SessionTable,
    /// Inodes without a name that are still referenced.
    pub orphans: BTreeSet<NodeId>,
    /// Inodes without a name or reference whose records are to be freed in steps.
    pub reclaim: VecDeque<NodeId>,
    /// Position of freeing a removed volume.
    pub sweep: Option<Sweep>,
    /// Position of trim: behind this key nothing is left of that pair of that volume.
    pub trimmed: Option<(u32, EpochPair, Key)>,
    /// Damaged records that background work leaves out.
    pub unreadable: Unreadable,
    /// Why nothing more can be changed, once the engine is broken.
    pub broken: Option<String>,
}

impl State {
    /// The volume of this name that is not being removed.
    pub(crate) fn volume_named(&self, name: &str) -> Option<u32> {
        self.volumes.named(name)
    }

    /// How often directories of a volume have got another parent.
    pub(crate) fn dir_moves(&self, volume: u32) -> u64 {
        self.dir_moves.get(&volume).copied().unwrap_or(0)
    }

    /// A front end has one more reference to an inode.
    pub(crate) fn refer(&mut self, ctx: &Ctx, node: NodeId) {
        self.refs.add(node);
        if ctx.door == Door::Mount {
            self.known_here.add(node);
        }
    }

    /// A front end returns references to an inode.
    pub(crate) fn unrefer(&mut self, ctx: &Ctx, node: NodeId, count: u64) {
        self.refs.sub(node, count);
        if ctx.door == Door::Mount {
            self.known_here.sub(node, count);
        }
    }

    /// Whether the kernel of this machine knows an inode.
    pub(crate) fn is_known_here(&self, node: NodeId) -> bool {
        self.known_here.get(node) > 0
    }

    /// A number for a change, higher than those of all before in this shard. One that is not used
    /// is left out where others may have taken a later one.
    pub(crate) fn next_lsn(&self) -> u64 {
        match self.which.count {
            1 => self.lsn.load(Ordering::Relaxed) + 1,
            _ => self.lsn.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }

    /// Numbers of later changes are higher than this one.
    pub(crate) fn has_used_lsn(&self, lsn: u64) {
        self.lsn.fetch_max(lsn, Ordering::Relaxed);
    }

    /// Whether changes with data in this segment may enter the records.
    pub fn is_stored(&self, segment: u64) -> bool {
        self.segments.get(segment).is_some_and(|r| r.sealed) || self.vanished.contains(&segment)
    }

    /// A segment's object is durable. Its inline data may go with the commit that records this.
    pub(crate) fn is_stored_now(&mut self, info: SegmentInfo) {
        self.released.push(info.object.segment);
        self.segments.sealed(info);
    }

    /// The queue of `node` no longer mentions these segments.
    pub(crate) fn release_segments(&mut self, node: NodeId, segments: Vec<u64>) {
        for segment in segments {
            let Some(nodes) = self.by_segment.get_mut(&segment) else { continue };
            nodes.remove(&node);
            if nodes.is_empty() {
                self.by_segment.remove(&segment);
                self.vanished.remove(&segment);
                self.segments.touch(segment);
            }
        }
    }
}

impl State {
    /// The record in the overlays: `None` when they do not hold the key, `Some(None)` when it was
    /// removed.
    pub fn overlay(&self, key: &Key) -> Option<Option<Value>> {
        self.overlays().rev().find_map(|o| o.get(key)).map(|s| s.value.clone())
    }

    /// The overlays from old to new.
    pub fn overlays(&self) -> impl DoubleEndedIterator<Item = &Overlay> {
        self.committing.iter().map(|frozen| &**frozen).chain([&self.running.records])
    }

    /// Puts records that died in the running transaction on the deadlists, many records an entry.
    /// Must run before deadlists are read.
    pub(crate) fn list_the_dead(&mut self, cache: &RecordCache) {
        let mut died = std::mem::take(&mut self.running.died);
        let list = |(pair, key): &(EpochPair, Key)| (keys::volume_of(key), *pair);
        died.sort_by_key(list);
        for of_one_list in died.chunk_by(|a, b| list(a) == list(b)) {
            for some in of_one_list.chunks(DEAD_PER_ENTRY) {
                let (pair, first) = &some[0];
                let others = keys::dead_with(some[1..].iter().map(|(_, key)| key));
                self.enter(keys::dead_record(first, *pair), Some(others), true, cache);
            }
        }
    }

    pub(crate) fn enter(&mut self, key: Key, value: Option<Value>, new: bool, cache: &RecordCache) {
        self.enter_by(key, value, new, (0, cache));
    }

    /// [`State::enter`] for a client.
    pub(crate) fn enter_by(
        &mut self,
        key: Key,
        value: Option<Value>,
        new: bool,
        (client, cache): (u64, &RecordCache),
    ) {
        let committing = &self.committing;
        self.running.records.enter(key, value, client, |key| {
            let below = committing.iter().rev().find_map(|c| c.get(key)).map(|s| s.value.is_none());
            new || below.unwrap_or_else(|| matches!(cache.get(key), Some(None)))
        });
    }
}
