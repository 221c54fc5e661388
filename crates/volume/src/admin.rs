//! What an operator asks of a cell: one request enum, one reply enum, both plain data with serde, so that the control
//! socket carries them as JSON lines and `--json` prints them as they are.
//!
//! Paths are absolute within the cell (`/` is the root volume's root), as bytes made UTF-8 lossily only for display.

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
    /// → [`Reply::Done`] when everything that had returned is durable.
    Sync,
    /// → [`Reply::Stats`].
    Stats,
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
    /// One quota.
    Quota(QuotaInfo),
    /// All quotas.
    Quotas {
        /// By path.
        quotas: Vec<QuotaInfo>,
    },
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
    /// Figures of the running process.
    Stats(CellStats),
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
    /// Bytes used, exact.
    pub used_bytes: u64,
    /// Inodes used, exact.
    pub used_files: u64,
}

/// What is below a directory (or a file itself).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Allocated bytes of files, before compression, holes not counted.
    pub bytes: u64,
    /// Inodes other than directories.
    pub files: u64,
    /// Directories, without the one asked about.
    pub dirs: u64,
}

/// The cell's space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
