//! Compares two snapshots of a directory.

use super::Change;
use crate::admin::failure::about;
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_fs::Error;
use serde::{Deserialize, Serialize};

/// Lists how the tree below a directory differs between two of its snapshots, with progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapDiff {
    /// The directory.
    pub path: String,
    /// Name of the older snapshot in its directory of snapshots.
    pub from: String,
    /// Name of the newer one; `None`: the directory as it is now.
    pub to: Option<String>,
}

/// Differences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    /// In the order of paths.
    pub changes: Vec<Change>,
}

impl Reply for Diff {
    const KIND: &'static str = "diff";
}

impl Request for SnapDiff {
    type Reply = Diff;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Diff, Failure> {
        let SnapDiff { path, from, to } = self;
        let (dir, older) = shard.snapshot_at(path, from)?;
        let newer = to.as_ref().map(|to| shard.snapshot_at(path, to)).transpose()?.map(|(_, epoch)| epoch);
        if newer.is_some_and(|newer| newer < older) {
            let to = to.as_deref().unwrap_or_default();
            let message = format!("{from} is newer than {to}: name the older snapshot first");
            return Err(Failure::new(libc::EINVAL, message));
        }
        if newer.is_none() {
            // what clients on other machines have told their programs is part of the present
            drop(shard.recall_exclusive(&Ctx::system(), Some(dir.volume())).map_err(about(path))?);
        }
        let changes = shard.diff(dir, older, newer, caller.progress).map_err(|e| match e {
            Error::Range => Failure::new(
                libc::E2BIG,
                format!("{path}: more differs than one answer has room for; compare directories below it"),
            ),
            e => about(path)(e),
        })?;
        Ok(Diff { changes })
    }
}
