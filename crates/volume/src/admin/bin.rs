//! Requests about recycle bins.

use crate::admin::failure::about;
use crate::admin::{Caller, Failure, Progress, Reply, Request};
use crate::shard::Shard;
use crate::space::recycle::RestoreBin;
use leeward_fs::{Error, Kind, Usage};
use serde::{Deserialize, Serialize};

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
}

impl Reply for Bin {
    const KIND: &'static str = "bin";
}

/// A file or a directory in a recycle bin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinEntry {
    /// The path that it had. Directories above it that were renamed since have their new names.
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

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Bin, Failure> {
        let top = self.path.as_deref().unwrap_or_default().trim_end_matches('/');
        let is_below =
            |path: &str| path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let volumes: Vec<u32> = shard.lock().bins.volumes().collect();
        let mut entries = Vec::new();
        for volume in volumes {
            let tree = shard.bin_tree(caller.ctx, volume).map_err(about("the recycle bin"))?;
            let name = shard.volume_name(volume);
            let shown = shard.bin_paths(&tree).into_iter().filter(|(path, _)| is_below(path));
            entries.extend(shown.map(|(path, e)| BinEntry {
                path,
                volume: name.clone(),
                is_dir: e.kind == Kind::Dir,
                bytes: e.bytes,
                removed_secs: e.removed_secs(),
                removed_by: e.record.uid,
                uid: e.owner,
            }));
        }
        let all = entries.len() as u64;
        if let Some(newest) = self.newest {
            entries.sort_by_key(|entry: &BinEntry| std::cmp::Reverse(entry.removed_secs));
            entries.truncate(newest);
        }
        entries.sort_by(|a, b| (&a.path, a.removed_secs).cmp(&(&b.path, b.removed_secs)));
        Ok(Bin { entries, all })
    }
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
