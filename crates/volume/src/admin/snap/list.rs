//! Lists snapshots, and what they hold.

use super::SnapInfo;
use crate::admin::failure::about;
use crate::admin::{ANSWER_BYTES_MAX, Caller, Concerns, Failure, ROW_BYTES, Reply, Request};
use crate::format::inode::SnapshotRecord;
use crate::paths::DirPaths;
use crate::shard::Shard;
use crate::state::snapshots::View;
use leeward_env::Ctx;
use leeward_fs::NodeId;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

const TOO_MANY: &str =
    "there are more snapshots than one answer has room for: name a directory, or a volume with --volume";

/// How much more operators, and the cell itself, may ask for at once.
const OPERATORS_TIMES: usize = 8;

/// Lists snapshots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapList {
    /// Those that show this directory; `None`: all.
    pub path: Option<String>,
    /// Those of this volume; `None`: of all.
    pub volume: Option<String>,
}

/// Snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapInfos {
    /// By path and time.
    pub snapshots: Vec<SnapInfo>,
    /// What those of each volume hold together.
    pub usage: Vec<SnapUsage>,
}

impl Reply for SnapInfos {
    const KIND: &'static str = "snaps";
}

impl Request for SnapList {
    type Reply = SnapInfos;

    fn concerns(&self) -> Concerns<'_> {
        match (&self.path, &self.volume) {
            (Some(path), _) => Concerns::Path(path),
            (None, Some(volume)) => Concerns::Volume(volume),
            (None, None) => Concerns::All,
        }
    }

    fn add(all: &mut SnapInfos, mut other: SnapInfos) {
        all.snapshots.append(&mut other.snapshots);
        all.snapshots.sort_by(|a, b| (&a.path, a.epoch).cmp(&(&b.path, b.epoch)));
        all.usage.append(&mut other.usage);
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<SnapInfos, Failure> {
        let of_dir = self.path.as_ref().map(|path| shard.node_at(path)).transpose()?;
        let volumes = match of_dir {
            Some(dir) => vec![dir.volume()],
            None => volumes(shard, self.volume.as_deref())?,
        };
        let shown = of_dir.map(|dir| epochs_in(shard, caller.ctx, dir)).transpose();
        let shown = shown.map_err(about(self.path.as_deref().unwrap_or_default()))?;
        let many = if caller.ctx.delegate.is_none() { OPERATORS_TIMES } else { 1 };
        let (mut snapshots, mut dirs, mut bytes) = (Vec::new(), DirPaths::new(shard), 0);
        for id in &volumes {
            let all: Vec<(u32, SnapshotRecord)> =
                shard.lock().snapshots.of_volume(*id).map(|(e, s)| (e, s.clone())).collect();
            for (epoch, record) in all {
                if shown.as_ref().is_some_and(|epochs| !epochs.contains(&epoch)) {
                    continue;
                }
                let dir = NodeId::new(*id, record.dir);
                let path = Some(dirs.of(dir, |_| None).text()).filter(|path| !path.is_empty());
                let snap = shard.snap_info(dir, path.unwrap_or_else(|| "/".into()), epoch, &record);
                bytes += ROW_BYTES + snap.path.len() + snap.name.len() + snap.volume.len();
                if bytes > many * ANSWER_BYTES_MAX {
                    return Err(Failure::new(libc::E2BIG, TOO_MANY));
                }
                snapshots.push(snap);
            }
        }
        snapshots.sort_by(|a, b| (&a.path, a.epoch).cmp(&(&b.path, b.epoch)));
        let usage = volumes.into_iter().map(|id| usage(shard, id)).collect();
        Ok(SnapInfos { snapshots, usage })
    }
}

/// Tells how much snapshots hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapUsageList {
    /// Those of this volume; `None`: of all.
    pub volume: Option<String>,
}

/// How much snapshots hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapUsages {
    /// By number of the volume.
    pub usage: Vec<SnapUsage>,
}

/// What the snapshots of a volume hold together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapUsage {
    /// Name of the volume.
    pub volume: String,
    /// Number of snapshots.
    pub snapshots: u64,
    /// Bytes of data that only snapshots hold.
    pub held_bytes: u64,
    /// Records that only snapshots hold.
    pub held_records: u64,
    /// Bytes of data that no snapshot holds any more and trim will free.
    pub waiting_bytes: u64,
    /// Records that trim will free.
    pub waiting_records: u64,
}

impl Reply for SnapUsages {
    const KIND: &'static str = "snap-usages";
}

impl Request for SnapUsageList {
    type Reply = SnapUsages;

    fn concerns(&self) -> Concerns<'_> {
        self.volume.as_deref().map_or(Concerns::All, Concerns::Volume)
    }

    fn add(all: &mut SnapUsages, mut other: SnapUsages) {
        all.usage.append(&mut other.usage);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<SnapUsages, Failure> {
        let volumes = volumes(shard, self.volume.as_deref())?;
        Ok(SnapUsages { usage: volumes.into_iter().map(|id| usage(shard, id)).collect() })
    }
}

/// The volume of this name; `None`: all.
fn volumes(shard: &Shard, name: Option<&str>) -> Result<Vec<u32>, Failure> {
    match name {
        Some(name) => Ok(vec![shard.volume_named(name)?]),
        None => Ok(shard.lock().volumes.iter().filter(|(_, v)| !v.removing).map(|(id, _)| *id).collect()),
    }
}

/// Epochs of the snapshots that the directory of snapshots of `dir` shows.
fn epochs_in(shard: &Shard, ctx: &Ctx, dir: NodeId) -> leeward_fs::Result<FxHashSet<u32>> {
    let entries = shard.snapshots_in(ctx, dir, b"", usize::MAX)?;
    let st = shard.lock();
    let epoch = |node: NodeId| match st.snapshots.view(node.volume()) {
        Some(View::Snapshot { epoch, .. } | View::Shown { epoch, .. }) => Some(epoch),
        _ => None,
    };
    Ok(entries.iter().filter_map(|e| epoch(e.node)).collect())
}

fn usage(shard: &Shard, id: u32) -> SnapUsage {
    let volume = shard.volume_name(id);
    let st = shard.lock();
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
