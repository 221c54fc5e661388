//! Requests about recycle bins.

use crate::admin::failure::about;
use crate::admin::{ANSWER_BYTES_MAX, Caller, Concerns, Failure, Progress, ROW_BYTES, Reply, Request};
use crate::paths::{DirPaths, SHOWN_BYTES_MAX};
use crate::shard::Shard;
use crate::space::recycle::{Binned, RestoreBin};
use leeward_fs::{Error, Kind, Usage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Lists recycle bins. A user who is not root sees what that user removed or owns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BinList {
    /// Only what was at this path or below; `None`: all.
    pub path: Option<String>,
    /// Only so many of them, those that were removed last; `None`: all.
    #[serde(default)]
    pub newest: Option<usize>,
}

/// What is in recycle bins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// By path, then by time.
    pub entries: Vec<BinEntry>,
    /// How many there are, with those that were not asked for.
    #[serde(default)]
    pub all: u64,
    /// Whether entries that were asked for are left out, those that were removed first: more would
    /// be too large an answer.
    #[serde(default)]
    pub truncated: bool,
}

impl Reply for Bin {
    const KIND: &'static str = "bin";
}

/// A file or a directory in a recycle bin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinEntry {
    /// The path that it had. Directories above it that were renamed since have their new names. If
    /// its directory's path has more than 4096 bytes, `…` stands for the names behind those.
    pub path: String,
    /// Name of the volume.
    pub volume: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Allocated bytes of a file.
    pub bytes: u64,
    /// Seconds since 1970.
    pub removed_secs: i64,
    /// The user who removed it.
    pub removed_by: u32,
    /// Its owner.
    pub uid: u32,
}

impl Request for BinList {
    type Reply = Bin;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut Bin, mut other: Bin) {
        all.entries.append(&mut other.entries);
        all.entries.sort_by(|a, b| (&a.path, a.removed_secs).cmp(&(&b.path, b.removed_secs)));
        all.all += other.all;
        all.truncated |= other.truncated;
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Bin, Failure> {
        let top = self.path.as_deref().unwrap_or_default().trim_end_matches('/');
        if top.len() > SHOWN_BYTES_MAX {
            let text = format!(
                "paths of more than {SHOWN_BYTES_MAX} bytes are not searched: name a directory above"
            );
            return Err(Failure::new(libc::ENAMETOOLONG, text));
        }
        let is_below =
            |path: &str| path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let volumes: Vec<u32> = shard.lock().bins.volumes().collect();
        let mut newest = Newest { most: self.newest.unwrap_or(usize::MAX), ..Newest::default() };
        let mut dirs = DirPaths::new(shard);
        for id in volumes {
            let tree = shard.bin_tree(caller.ctx, id, false).map_err(about("the recycle bin"))?;
            let volume = shard.volume_name(id);
            let each = |e: Binned| {
                let path = Some(&e).filter(|e| tree.shows(e)).map(|e| tree.path(e, &mut dirs).text());
                let Some(path) = path.filter(|path| is_below(path)) else { return };
                let (volume, is_dir, removed_secs) = (volume.clone(), e.kind == Kind::Dir, e.removed_secs());
                let (removed_by, uid) = (e.record.uid, e.owner);
                let entry = BinEntry { path, volume, is_dir, bytes: e.bytes, removed_secs, removed_by, uid };
                newest.add((e.stamp, id), entry);
            };
            shard.each_binned(id, each).map_err(about("the recycle bin"))?;
        }
        Ok(newest.list())
    }
}

/// The entries that were removed last: as many as are asked for, and as an answer has room for.
#[derive(Default)]
struct Newest {
    most: usize,
    /// By time of removal and volume.
    entries: BTreeMap<(u64, u32), BinEntry>,
    bytes: usize,
    all: u64,
    truncated: bool,
}

impl Newest {
    fn add(&mut self, removed: (u64, u32), entry: BinEntry) {
        self.all += 1;
        self.bytes += size(&entry);
        self.entries.insert(removed, entry);
        while self.entries.len() > self.most || self.bytes > ANSWER_BYTES_MAX {
            self.truncated |= self.entries.len() <= self.most;
            let Some((_, oldest)) = self.entries.pop_first() else { return };
            self.bytes -= size(&oldest);
        }
    }

    fn list(self) -> Bin {
        let mut entries: Vec<BinEntry> = self.entries.into_values().collect();
        entries.sort_by(|a, b| (&a.path, a.removed_secs).cmp(&(&b.path, b.removed_secs)));
        Bin { entries, all: self.all, truncated: self.truncated }
    }
}

/// About how many bytes an entry takes in an answer.
fn size(entry: &BinEntry) -> usize {
    entry.path.len() + entry.volume.len() + ROW_BYTES
}

/// Restores what had a path, with all that was removed below it: of each name, the version removed
/// last. Directories that exist again are filled. A file whose name is taken stays in the bin. A
/// user who is not root restores what that user removed or owns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BinRestore {
    /// The path that it had, or an existing directory.
    pub path: String,
    /// Only what was removed up to this second since 1970.
    pub at_secs: Option<i64>,
    /// A new path for it, in the same volume.
    pub to: Option<String>,
}

/// What came back from a recycle bin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinRestored {
    /// How much.
    pub restored: Usage,
    /// How much stays in the bin because its name is taken, or its directory immutable.
    pub left: u64,
}

impl Reply for BinRestored {
    const KIND: &'static str = "bin-restored";
}

impl Request for BinRestore {
    type Reply = BinRestored;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<BinRestored, Failure> {
        let path = &self.path;
        let target = self.to.as_ref().unwrap_or(path).trim_end_matches('/');
        let (above, leaf) = target.rsplit_once('/').unwrap_or(("", target));
        let dir = self.to.is_some().then(|| shard.node_at(above)).transpose()?;
        let to = dir.map(|dir| (dir, leaf.as_bytes()));
        let restore = RestoreBin { path, at: self.at_secs, to };
        let done = shard.restore_bin(caller.ctx, &restore).map_err(|e| match e {
            Error::NotFound => {
                Failure::new(libc::ENOENT, format!("{path} is not in the recycle bin: see lee bin list"))
            }
            Error::Exists => Failure::new(
                libc::EEXIST,
                format!("the name of {target} is taken: move what has it away, or restore with --to PATH"),
            ),
            e => about(target)(e),
        });
        // also what was restored before a failure
        shard.settle()?;
        let (restored, left) = done?;
        Ok(BinRestored { restored, left })
    }
}

/// Removes the content of recycle bins for good. For root and the owners of volumes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BinEmpty {
    /// Of this volume; `None`: of all.
    pub volume: Option<String>,
}

/// How much was removed from recycle bins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinEmptied {
    /// Entries.
    pub purged: u64,
}

impl Reply for BinEmptied {
    const KIND: &'static str = "bin-emptied";
}

impl Request for BinEmpty {
    type Reply = BinEmptied;

    fn concerns(&self) -> Concerns<'_> {
        self.volume.as_deref().map_or(Concerns::All, Concerns::Volume)
    }

    fn add(all: &mut BinEmptied, other: BinEmptied) {
        all.purged += other.purged;
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<BinEmptied, Failure> {
        let volumes = match &self.volume {
            Some(name) => vec![shard.volume_named(name)?],
            None => shard.lock().bins.volumes().collect(),
        };
        let (uid, mut purged) = (caller.ctx.uid, 0);
        for volume in volumes {
            let owner = shard.lock().volumes.get(&volume).map(|v| v.uid);
            if uid != 0 && Some(uid) != owner && !shard.looks_after(caller.ctx, volume) {
                let message = format!(
                    "only root and its owner may empty the recycle bin of volume {}",
                    shard.volume_name(volume)
                );
                return Err(Failure::new(libc::EPERM, message));
            }
            let each = |done| {
                let done = purged + done;
                (caller.progress)(Progress { phase: "recycle bin".into(), done, total: 0 });
            };
            purged += shard.empty_bin(volume, each).map_err(about("the recycle bin"))?;
        }
        shard.settle()?;
        shard.maintenance.wake();
        Ok(BinEmptied { purged })
    }
}
