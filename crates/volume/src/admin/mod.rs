//! What an operator asks of a cell: one request enum, one reply enum, both plain data with serde, so that the control
//! socket carries them as JSON lines and `--json` prints them as they are.
//!
//! Paths are absolute within the cell (`/` is the root volume's root), as bytes made UTF-8 lossily only for display.

pub(crate) mod control;
pub(crate) mod figures;
pub(crate) mod fsck;

use leeward_fs::Usage;
use leeward_fs::flows::Principal;
use leeward_pool::{Health, StoreState};
use serde::{Deserialize, Serialize};

/// A request of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// → [`Reply::Volume`].
    VolumeCreate {
        /// Unique name.
        name: String,
        /// Where it is attached; its parent directory must exist, the path itself not.
        at: String,
        /// Owner of the volume and of its root directory.
        uid: u32,
        /// Group of its root directory.
        gid: u32,
        /// The pool of its data; `None`: `default`.
        #[serde(default)]
        pool: Option<String>,
    },
    /// → [`Reply::Volume`]. From now on its data goes to this pool; what it has is moved there in the background. With `wait`
    /// answered when all is there, with progress.
    VolumeMoveData {
        /// Its name.
        name: String,
        /// The pool.
        to: String,
        /// Whether to wait.
        wait: bool,
    },
    /// → [`Reply::Pool`].
    PoolCreate {
        /// Unique name.
        name: String,
        /// How objects are kept in its stores: `single`, `replica(2)`, `erasure(4+2)`.
        layout: String,
        /// URLs of its stores, which must be empty.
        stores: Vec<String>,
        /// Whether stores may be on one disk.
        #[serde(default)]
        force: bool,
    },
    /// → [`Reply::Pool`].
    PoolStore {
        /// Its name.
        name: String,
        /// What to change.
        change: StoreChange,
        /// Whether stores may be on one disk, and what cannot be rebuilt may be lost.
        #[serde(default)]
        force: bool,
    },
    /// → [`Reply::Pool`]: from now on another pool is in front of this one. Again: with other shares, or not to end after all.
    PoolTier {
        /// Its name.
        name: String,
        /// The pool in front, which nothing else may use.
        hot: String,
        /// From which share of the hot pool on data is copied to the cold one.
        flush_percent: u8,
        /// From which share on what was copied is deleted from the hot one.
        evict_percent: u8,
    },
    /// → [`Reply::Pool`]: nothing is to be in front of this pool any more. With `wait` answered, with progress, when the hot pool is
    /// empty and a pool by itself; else that goes on in the background.
    PoolUntier {
        /// Its name.
        name: String,
        /// Whether to wait.
        wait: bool,
    },
    /// → [`Reply::Scrubbed`], with progress: reads and verifies all data, and repairs what can be.
    Scrub {
        /// In this pool; `None`: in all.
        pool: Option<String>,
    },
    /// → [`Reply::Pools`]: from now on everything is scrubbed so often.
    ScrubEvery {
        /// In this pool; `None`: in all, also those that are made later, whatever was said of single ones.
        pool: Option<String>,
        /// Seconds, an hour at least; 0: never.
        every_secs: u32,
    },
    /// → [`Reply::Pools`].
    PoolList,
    /// → [`Reply::Pool`].
    PoolShow {
        /// Its name.
        name: String,
    },
    /// → [`Reply::Done`]; refused while anything is in it, or is to go there.
    PoolRemove {
        /// Its name.
        name: String,
    },
    /// → [`Reply::Volumes`].
    VolumeList,
    /// → [`Reply::Volume`].
    VolumeShow {
        /// Its name.
        name: String,
    },
    /// → [`Reply::Volume`]. The path it is attached at stays.
    VolumeRename {
        /// Its name.
        name: String,
        /// The new one.
        to: String,
    },
    /// → [`Reply::Done`]: detached at once, freed in the background.
    VolumeRemove {
        /// Its name.
        name: String,
    },
    /// → [`Reply::Volume`]: who may take, rename, lock and remove snapshots besides root and the owner.
    VolumeAllow {
        /// Its name.
        name: String,
        /// Users.
        users: Vec<u32>,
        /// Groups.
        groups: Vec<u32>,
        /// Whether they may from now on.
        allow: bool,
    },
    /// → [`Reply::Volume`].
    VolumeSet {
        /// Its name.
        name: String,
        /// What changes.
        set: PropertyChanges,
    },
    /// → [`Reply::Snap`], durable with all that it contains. This and all requests about snapshots are judged by who asks, as
    /// operations on the directories of snapshots are.
    SnapCreate {
        /// Of which directory.
        path: String,
        /// The snapshot's name.
        name: String,
    },
    /// → [`Reply::Snaps`].
    SnapList {
        /// Those that show this directory; `None`: all.
        path: Option<String>,
        /// Those of this volume; `None`: of all.
        volume: Option<String>,
    },
    /// → [`Reply::Done`]: gone at once, freed in the background.
    SnapRemove {
        /// The directory.
        path: String,
        /// The snapshot's name.
        name: String,
    },
    /// → [`Reply::Snap`].
    SnapRename {
        /// The directory.
        path: String,
        /// The snapshot's name.
        name: String,
        /// The new one.
        to: String,
    },
    /// → [`Reply::Snap`]: nobody can remove it before then, and no lock can be shortened.
    SnapLock {
        /// The directory.
        path: String,
        /// The snapshot's name.
        name: String,
        /// Seconds since 1970.
        until_secs: i64,
    },
    /// → [`Reply::Snap`]: takes a lock away that has run out.
    SnapUnlock {
        /// The directory.
        path: String,
        /// The snapshot's name.
        name: String,
    },
    /// → [`Reply::SnapUsages`].
    SnapUsage {
        /// Of this volume; `None`: of all.
        volume: Option<String>,
    },
    /// → [`Reply::Schedule`].
    ScheduleSet {
        /// Any directory.
        path: String,
        /// Seconds, a multiple of 60.
        interval_secs: u32,
        /// What is kept, see [`Keep`](crate::format::schedule::Keep).
        keep: String,
    },
    /// → [`Reply::Schedules`].
    ScheduleList,
    /// → [`Reply::Done`]. The snapshots stay.
    ScheduleRemove {
        /// The directory.
        path: String,
    },
    /// → [`Reply::Quota`].
    QuotaSet {
        /// Any directory; a volume's root for a volume.
        path: String,
        /// Most bytes below it; 0: no limit; `None`: as it was.
        bytes: Option<u64>,
        /// Most inodes below it; 0: no limit; `None`: as it was.
        files: Option<u64>,
    },
    /// → [`Reply::Quota`].
    QuotaShow {
        /// Any directory.
        path: String,
    },
    /// → [`Reply::Quotas`]: every quota of the cell.
    QuotaList,
    /// → [`Reply::Flows`] with what was said about this user or group from now on.
    FlowSet {
        /// About whom.
        who: Principal,
        /// Part relative to other users; `None`: as it was.
        weight: Option<u32>,
        /// Most operations in a second; 0: no ceiling; `None`: as it was.
        ops_per_sec: Option<u64>,
        /// Most bytes read and written in a second; 0: no ceiling; `None`: as it was.
        bytes_per_sec: Option<u64>,
    },
    /// → [`Reply::Done`]: nothing is said any more about this user or group.
    FlowReset {
        /// About whom.
        who: Principal,
    },
    /// → [`Reply::Flows`]: all that was said.
    FlowList,
    /// → [`Reply::Buckets`] with the one that was made: publishes a directory at the S3 door.
    BucketCreate {
        /// Its name.
        name: String,
        /// The directory.
        path: String,
        /// Whether anybody may read, as user `nobody`.
        public: bool,
    },
    /// → [`Reply::Buckets`] with the one that was changed.
    BucketSet {
        /// Its name.
        name: String,
        /// Whether anybody may read; `None`: as it was.
        public: Option<bool>,
        /// Rules for browsers as JSON, empty: none; `None`: as they were.
        cors: Option<String>,
    },
    /// → [`Reply::Done`]: the directory stays as it is, but is published no more.
    BucketRemove {
        /// Its name.
        name: String,
    },
    /// → [`Reply::Buckets`]: all of them.
    BucketList,
    /// → [`Reply::User`].
    UserCreate {
        /// Name, see [`wrong_name`](leeward_fs::accounts::wrong_name).
        name: String,
        /// User id, not 0; `None`: that and the groups are what the machine's user database says.
        uid: Option<u32>,
        /// Groups, the primary one first; none: one with the number of the user.
        gids: Vec<u32>,
    },
    /// → [`Reply::User`]. Holds from the next request on.
    UserSet {
        /// Name.
        name: String,
        /// Whether all doors are closed to the user; `None`: as it was.
        #[serde(default)]
        disabled: Option<bool>,
        /// Groups; `None`: as they were.
        #[serde(default)]
        gids: Option<Vec<u32>>,
    },
    /// → [`Reply::Users`].
    UserList,
    /// → [`Reply::User`].
    UserShow {
        /// Name.
        name: String,
    },
    /// → [`Reply::KeyCreated`]: the only answer that has the secret.
    KeyCreate {
        /// Whose; he has a record.
        user: String,
        /// What he calls it; may be empty.
        label: String,
    },
    /// → [`Reply::Keys`].
    KeyList {
        /// Of this user; `None`: of all.
        user: Option<String>,
    },
    /// → [`Reply::Keys`] that were there, and open no door any more.
    KeyRevoke {
        /// Whose.
        user: String,
        /// Which; `None`: all of the user.
        access_key_id: Option<String>,
    },
    /// → [`Reply::TokenKey`]: what tokens for a user are signed with. Makes a key where there is none.
    TokenKey {
        /// For whom; he needs no record.
        user: String,
    },
    /// → [`Reply::Done`]: tokens that the cell made are good no more.
    TokenRevoke {
        /// Those for this user, who has a record; `None`: all.
        user: Option<String>,
    },
    /// → [`Reply::Usage`], from recursive statistics.
    Usage {
        /// Any path.
        path: String,
    },
    /// → [`Reply::Df`].
    Df,
    /// → [`Reply::Fsck`], with progress. Online or offline.
    Fsck,
    /// → [`Reply::Diff`]: how what is below a directory differs between two of its snapshots.
    SnapDiff {
        /// The directory.
        path: String,
        /// Name of the older snapshot in its directory of snapshots.
        from: String,
        /// Name of the newer one; `None`: what is there now.
        to: Option<String>,
    },
    /// → [`Reply::Restored`], with progress: brings back a file or a tree from a snapshot, without copying data.
    SnapRestore {
        /// The directory whose snapshot it is.
        path: String,
        /// The snapshot's name there.
        name: String,
        /// What is restored: a path within the snapshot; empty: all of it.
        what: String,
        /// Where to, in the same volume; `None`: where it was.
        to: Option<String>,
        /// Whether it takes the place of what is there.
        in_place: bool,
    },
    /// → [`Reply::Bin`]: what is in recycle bins. Who is not root sees what he removed or owns; so it is with restoring.
    BinList {
        /// Only what was here or below; `None`: all.
        path: Option<String>,
    },
    /// → [`Reply::BinRestored`]: what had a path gets it back, with all that was removed below it: of each name what was removed
    /// last. Directories that are there again are filled; what has a name that is taken stays in the bin.
    BinRestore {
        /// The path that it had, or a directory that is there.
        path: String,
        /// Only what was removed up to this second since 1970.
        at_secs: Option<i64>,
        /// Another path for it, in the same volume, that nothing has.
        to: Option<String>,
    },
    /// → [`Reply::BinEmptied`]. For root and the owners of volumes.
    BinEmpty {
        /// Of this volume; `None`: of all.
        volume: Option<String>,
    },
    /// → [`Reply::Done`] when everything that had returned is durable.
    Sync,
    /// → [`Reply::Stats`].
    Stats,
}

impl Request {
    /// Whether it may change who gets in by a door.
    pub fn changes_accounts(&self) -> bool {
        matches!(
            self,
            Request::UserCreate { .. }
                | Request::UserSet { .. }
                | Request::KeyCreate { .. }
                | Request::KeyRevoke { .. }
                | Request::TokenKey { .. }
                | Request::TokenRevoke { .. }
        )
    }
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// Done.
    Done,
    /// One volume.
    Volume(VolumeInfo),
    /// All volumes.
    Volumes {
        /// By number.
        volumes: Vec<VolumeInfo>,
    },
    /// One pool.
    Pool(Box<PoolInfo>),
    /// All pools.
    Pools {
        /// By number.
        pools: Vec<PoolInfo>,
    },
    /// What scrubbing found.
    Scrubbed {
        /// By pool.
        pools: Vec<ScrubInfo>,
    },
    /// One snapshot.
    Snap(SnapInfo),
    /// Snapshots.
    Snaps {
        /// By path and time.
        snapshots: Vec<SnapInfo>,
        /// What those of each volume hold together.
        usage: Vec<SnapUsage>,
    },
    /// What snapshots hold.
    SnapUsages {
        /// By number of the volume.
        usage: Vec<SnapUsage>,
    },
    /// One schedule.
    Schedule(ScheduleInfo),
    /// All schedules.
    Schedules {
        /// By path.
        schedules: Vec<ScheduleInfo>,
    },
    /// One quota.
    Quota(QuotaInfo),
    /// All quotas.
    Quotas {
        /// By path.
        quotas: Vec<QuotaInfo>,
    },
    /// What was said about users and groups at the gate.
    Flows {
        /// Users first, by number.
        flows: Vec<FlowInfo>,
    },
    /// What is published at the S3 door.
    Buckets {
        /// By name.
        buckets: Vec<BucketInfo>,
    },
    /// One user.
    User(UserInfo),
    /// All users.
    Users {
        /// By name.
        users: Vec<UserInfo>,
    },
    /// A new S3 key.
    KeyCreated(NewKey),
    /// S3 keys, without secrets.
    Keys {
        /// By user and id.
        keys: Vec<KeyInfo>,
    },
    /// What tokens are signed with.
    TokenKey(TokenKey),
    /// Usage below a path.
    Usage(Usage),
    /// The cell's space.
    Df(Df),
    /// A check's result.
    Fsck(FsckReport),
    /// Differences, in the order of paths.
    Diff {
        /// All of them.
        changes: Vec<Change>,
    },
    /// What was restored.
    Restored(Usage),
    /// What is in recycle bins.
    Bin {
        /// By path, then by time.
        entries: Vec<BinEntry>,
    },
    /// What came back from a recycle bin.
    BinRestored {
        /// How much.
        restored: Usage,
        /// How much stays in the bin because its name is taken.
        left: u64,
    },
    /// How much was purged from recycle bins.
    BinEmptied {
        /// Entries.
        purged: u64,
    },
    /// Figures of the running process.
    Stats(CellStats),
}

/// Something in a recycle bin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinEntry {
    /// The path that it had; where directories above it were renamed since, with their names of now.
    pub path: String,
    /// Name of the volume.
    pub volume: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Allocated bytes of a file.
    pub bytes: u64,
    /// Seconds since 1970.
    pub removed_secs: i64,
    /// Who removed it.
    pub removed_by: u32,
    /// Whose it is.
    pub uid: u32,
}

/// One difference between two states of a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Change {
    /// The path, from the directory on; of what was removed, as it was.
    pub path: PathText,
    /// What happened to it.
    pub kind: ChangeKind,
    /// Of what was renamed: its path before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_path: Option<PathText>,
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It is there no more.
    Removed,
    /// It has another name, or is in another directory.
    Renamed,
    /// It was not there before.
    Added,
    /// Content, owner, mode, times or attributes are others. Of a directory: owner, mode or attributes.
    Changed,
}

/// A path as it is: text, or bytes where it is no UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathText {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl PathText {
    /// From the bytes of a path.
    pub fn new(bytes: Vec<u8>) -> PathText {
        String::from_utf8(bytes).map_or_else(|e| PathText::Bytes(e.into_bytes()), PathText::Text)
    }

    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            PathText::Text(text) => text.as_bytes(),
            PathText::Bytes(bytes) => bytes,
        }
    }
}

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Number, never reused.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Where it is attached in the cell.
    pub at: String,
    /// Owner.
    pub uid: u32,
    /// Limits, 0: none.
    pub quota_bytes: u64,
    /// Limits, 0: none.
    pub quota_files: u64,
    /// What it holds.
    pub usage: Usage,
    /// Seconds since 1970.
    pub created_secs: i64,
    /// Whether it is being freed in the background.
    pub removing: bool,
    /// Its snapshots.
    pub snapshots: u64,
    /// Most snapshots.
    pub snapshots_max: u32,
    /// Name of the directory of snapshots in each directory.
    pub snapshot_dir: String,
    /// Whether listings show it.
    pub snapshot_dir_visible: bool,
    /// Whether the quota of the volume counts what only snapshots hold.
    pub quota_counts_snapshots: bool,
    /// How many days its recycle bin keeps what was removed; 0: it has none.
    pub bin_days: u16,
    /// Whether doors let anybody read what its modes let others read.
    #[serde(default)]
    pub public: bool,
    /// Users who may take and remove snapshots besides root and the owner.
    pub snapshot_users: Vec<u32>,
    /// Groups that may.
    pub snapshot_groups: Vec<u32>,
    /// The pool of its data.
    #[serde(default)]
    pub pool: String,
    /// Bytes of its objects that are in other pools, and on their way.
    #[serde(default)]
    pub misplaced_bytes: u64,
    /// Segments that cannot be moved as they are damaged.
    #[serde(default)]
    pub stuck_segments: u64,
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInfo {
    /// Number, never reused.
    pub id: u32,
    /// Name.
    pub name: String,
    /// How it keeps objects in its stores.
    pub layout: String,
    /// Its stores.
    pub stores: Vec<StoreInfo>,
    /// Why it is away; `None`: it is there.
    pub away: Option<String>,
    /// Bytes that data can take, in all.
    pub total_bytes: u64,
    /// Bytes that users may still write.
    pub available_bytes: u64,
    /// Objects in it.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Live bytes in them, uncompressed.
    pub live_bytes: u64,
    /// Bytes in memory on their way to it.
    pub dirty_bytes: u64,
    /// Volumes whose data belongs there.
    pub volumes: Vec<String>,
    /// How its stores are; `None`: it is away, or the cell's own.
    pub health: Option<Health>,
    /// What is in front of it; how that is, its health says.
    #[serde(default)]
    pub tier: Option<TierInfo>,
    /// The pool that it is in front of.
    #[serde(default)]
    pub hot_of: Option<String>,
    /// When everything in it is read and verified; one that is in front of another has part in that one's.
    #[serde(default)]
    pub scrub: ScrubStatus,
}

/// A hot pool in front of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierInfo {
    /// Name of the hot pool.
    pub hot: String,
    /// From which share of the hot pool on data is copied to the cold one.
    pub flush_percent: u8,
    /// From which share on what was copied is deleted from the hot one.
    pub evict_percent: u8,
    /// The hot pool is to become empty, and a pool by itself.
    pub ending: bool,
}

/// What scrubbing a pool found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubInfo {
    /// Which pool.
    pub pool: String,
    /// Bytes read.
    pub bytes: u64,
    /// Pieces that were missing or not what was written.
    pub bad_pieces: u64,
    /// Objects of which pieces were rebuilt.
    pub repaired_objects: u64,
    /// Objects that lack pieces still.
    pub degraded_objects: u64,
    /// Objects of which something cannot be read.
    pub lost_objects: u64,
}

/// A whole scrub of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubPass {
    /// When it began, seconds since 1970.
    pub begun_secs: i64,
    /// When it ended, seconds since 1970.
    pub ended_secs: i64,
    /// What it found.
    pub found: ScrubInfo,
}

/// A scrub that is going on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRun {
    /// When it began, seconds since 1970.
    pub begun_secs: i64,
    /// What is going on, as in [`Progress`].
    pub phase: String,
    /// How much is done.
    pub done: u64,
    /// Of how much, 0: unknown.
    pub total: u64,
}

/// How often a pool is scrubbed, and how that goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// How often by the clock, seconds; `None`: only when it is asked for.
    pub every_secs: Option<u32>,
    /// The next time by the clock, seconds since 1970.
    pub next_secs: Option<i64>,
    /// Whether the last whole scrub began longer ago than twice the interval.
    pub late: bool,
    /// The last whole scrub, by the clock or not.
    pub last: Option<ScrubPass>,
    /// How long ago it began, seconds.
    pub age_secs: Option<i64>,
    /// The one that is going on.
    pub running: Option<ScrubRun>,
    /// Why the last one by the clock failed; it is tried again.
    pub error: Option<String>,
}

/// What to change about a pool's stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum StoreChange {
    /// Another store takes the place of one that was given up.
    Add {
        /// Its URL.
        url: String,
    },
    /// What is on a store is moved to another one, which takes its place.
    Drain {
        /// URL or number of the place.
        store: String,
        /// URL of the other.
        to: String,
    },
    /// Another store takes the place of one that is lost; what was on it is rebuilt.
    Replace {
        /// URL or number of the place.
        store: String,
        /// URL of the other.
        by: String,
    },
    /// A store is given up, or taken out after it was drained.
    Remove {
        /// URL or number of the place.
        store: String,
    },
}

/// A store of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// Its place in the layout.
    pub slot: u16,
    /// Where it is.
    pub url: String,
    /// What is to be done with it.
    pub state: StoreState,
}

/// What is to change of a volume's properties; `None`: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyChanges {
    /// See [`VolumeInfo::snapshot_dir`].
    pub snapshot_dir: Option<String>,
    /// See [`VolumeInfo::snapshot_dir_visible`].
    pub snapshot_dir_visible: Option<bool>,
    /// See [`VolumeInfo::snapshots_max`].
    pub snapshots_max: Option<u32>,
    /// See [`VolumeInfo::quota_counts_snapshots`].
    pub quota_counts_snapshots: Option<bool>,
    /// See [`VolumeInfo::bin_days`].
    pub bin_days: Option<u16>,
    /// See [`VolumeInfo::public`].
    #[serde(default)]
    pub public: Option<bool>,
}

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapInfo {
    /// Name of the volume.
    pub volume: String,
    /// The directory it was taken of, where that is now.
    pub path: String,
    /// Name.
    pub name: String,
    /// The volume's epoch that it ended; unique in the volume, later ones are higher.
    pub epoch: u32,
    /// When it was taken, seconds since 1970.
    pub time_secs: i64,
    /// Who took it.
    pub uid: u32,
    /// Nobody can remove it before, seconds since 1970; 0: not locked.
    pub locked_until_secs: i64,
    /// Bytes of data that nothing but this snapshot holds.
    pub alone_bytes: u64,
    /// Records that nothing but this snapshot holds.
    pub alone_records: u64,
}

/// What the snapshots of a volume hold together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapUsage {
    /// Name of the volume.
    pub volume: String,
    /// How many there are.
    pub snapshots: u64,
    /// Bytes of data that only snapshots hold.
    pub held_bytes: u64,
    /// Records that only snapshots hold.
    pub held_records: u64,
    /// Bytes of data that wait for trim: no snapshot holds them any more.
    pub waiting_bytes: u64,
    /// Records that wait for trim.
    pub waiting_records: u64,
}

/// A schedule of snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleInfo {
    /// The directory.
    pub path: String,
    /// Seconds.
    pub interval_secs: u32,
    /// What is kept, such as `24h7d4w12m`.
    pub keep: String,
    /// The next time, seconds since 1970.
    pub next_secs: i64,
    /// The newest scheduled snapshot of the directory, seconds since 1970.
    pub newest_secs: Option<i64>,
    /// Whether it, or that of one of `volumes`, is older than twice the interval.
    pub late: bool,
    /// Why the last run failed.
    pub error: Option<String>,
    /// Volumes attached below that have no schedule of their own: their roots get snapshots, too.
    pub volumes: Vec<ScheduledVolume>,
}

/// A volume that has the schedule of a directory above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledVolume {
    /// Name.
    pub volume: String,
    /// The newest scheduled snapshot of its root, seconds since 1970.
    pub newest_secs: Option<i64>,
    /// Whether that is older than twice the interval.
    pub late: bool,
}

/// One quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaInfo {
    /// The directory.
    pub path: String,
    /// Most bytes, 0: no limit.
    pub bytes: u64,
    /// Most inodes, 0: no limit.
    pub files: u64,
    /// Bytes used, exact; with what only snapshots hold where the volume counts that.
    pub used_bytes: u64,
    /// Inodes used, exact.
    pub used_files: u64,
}

/// What was said about a user or a group at the gate; `None`: nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowInfo {
    /// About whom.
    pub who: Principal,
    /// Part relative to other users.
    pub weight: Option<u32>,
    /// Most operations in a second; 0: no ceiling, whatever was said about groups.
    pub ops_per_sec: Option<u64>,
    /// Most bytes read and written in a second; 0: no ceiling, whatever was said about groups.
    pub bytes_per_sec: Option<u64>,
}

/// A directory that is published at the S3 door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketInfo {
    /// Its name there.
    pub name: String,
    /// The directory.
    pub path: String,
    /// Since when, seconds since 1970.
    pub created_secs: i64,
    /// Whether anybody may read, as user `nobody`.
    pub public: bool,
    /// Whether there are rules for browsers.
    pub has_cors: bool,
}

/// A user that the cell has a record of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    /// Name.
    pub name: String,
    /// User id; `None`: that and the groups are what the machine's user database says.
    pub uid: Option<u32>,
    /// Groups, the primary one first.
    pub gids: Vec<u32>,
    /// Whether all doors are closed to the user.
    pub disabled: bool,
    /// S3 keys.
    pub keys: u64,
    /// Seconds since 1970.
    pub created_secs: i64,
}

/// An S3 key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyInfo {
    /// Name of its user.
    pub user: String,
    /// What it is named by in requests.
    pub access_key_id: String,
    /// What the user calls it.
    pub label: String,
    /// Seconds since 1970.
    pub created_secs: i64,
}

/// A new S3 key, with its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewKey {
    /// The key.
    #[serde(flatten)]
    pub key: KeyInfo,
    /// What requests are signed with.
    pub secret_access_key: String,
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// What tokens for a user are signed with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenKey {
    /// Number of the cell's key.
    pub number: u32,
    /// The key.
    pub secret: [u8; 32],
    /// Generation of the user's tokens.
    pub generation: u32,
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenKey").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The cell's space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Df {
    /// File system below: size in bytes.
    pub total_bytes: u64,
    /// Bytes that users may still write.
    pub available_bytes: u64,
    /// Bytes of segment objects.
    pub segment_bytes: u64,
    /// Number of segment objects.
    pub segments: u64,
    /// Live bytes in them, uncompressed.
    pub live_bytes: u64,
    /// Bytes of metadata: tables and journal.
    pub metadata_bytes: u64,
    /// Bytes in memory, not yet in a store.
    pub dirty_bytes: u64,
    /// Space that waits for reclaim or cleaning.
    pub reclaim_bytes: u64,
    /// All pools: `total_bytes` and `available_bytes` above are those of the first, the cell's own.
    #[serde(default)]
    pub pools: Vec<PoolInfo>,
}

/// One finding of fsck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which invariant does not hold, such as `nlink`, `damaged-data`, `orphan`, `live-bytes`.
    pub kind: String,
    /// The path it concerns, where there is one.
    pub path: Option<String>,
    /// What was found, and what was expected.
    pub detail: String,
}

/// What fsck found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckReport {
    /// Volumes checked.
    pub volumes: u64,
    /// Inodes checked.
    pub inodes: u64,
    /// Names checked.
    pub dentries: u64,
    /// Segments checked, each read whole.
    pub segments: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What does not hold. Empty: the cell is clean.
    pub findings: Vec<Finding>,
}

/// Figures of the running process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellStats {
    /// Operations since start.
    pub operations: u64,
    /// Commits since start.
    pub commits: u64,
    /// Records in the running transaction.
    pub running_records: u64,
    /// Dirty data in memory, bytes.
    pub dirty_bytes: u64,
    /// Bytes written to stores since start, data and metadata.
    pub written_bytes: u64,
    /// Inodes unlinked but open.
    pub orphans: u64,
    /// Segments waiting for cleaning.
    pub cleaning_segments: u64,
    /// Snapshots of all volumes.
    pub snapshots: u64,
    /// Schedules that are late, see [`ScheduleInfo::late`].
    pub late_schedules: u64,
    /// Pools whose last whole scrub is late, see [`ScrubStatus::late`].
    #[serde(default)]
    pub late_scrubs: u64,
    /// While a snapshot is locked: seconds by which the wall clock was set forward (below zero: back) since start.
    pub clock_ahead_secs: i64,
    /// What no snapshot holds any more and trim has not freed yet: entries of deadlists.
    #[serde(default)]
    pub trim_records: u64,
}

/// Progress of a long request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is going on, such as `names` or `segments`.
    pub phase: String,
    /// How much is done.
    pub done: u64,
    /// Of how much, 0: unknown.
    pub total: u64,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Failure {
    /// The thing, the cause and the next step, for a person.
    pub message: String,
    /// errno of the cause, 0 where there is none.
    pub errno: i32,
}
