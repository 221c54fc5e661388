//! Requests about quotas of directories.

use crate::admin::failure::about;
use crate::admin::project::few;
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::format::inode::Pair;
use crate::shard::Shard;
use crate::state::quota::{Quota, QuotaOf};
use leeward_env::Ctx;
use leeward_fs::{Error, NodeId};
use serde::{Deserialize, Serialize};

/// Most quotas in a volume that those set who look after its project.
const DELEGATED_QUOTAS_MAX: usize = 1000;

/// One quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaInfo {
    /// The directory.
    pub path: String,
    /// Most bytes; 0: no limit.
    pub bytes: u64,
    /// Most inodes; 0: no limit.
    pub files: u64,
    /// Bytes used, exact. Data that only snapshots hold counts where the volume says so.
    pub used_bytes: u64,
    /// Inodes used, exact.
    pub used_files: u64,
}

impl Reply for QuotaInfo {
    const KIND: &'static str = "quota";
}

/// Limits what is below a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuotaSet {
    /// Any directory; the root of a volume for a volume.
    pub path: String,
    /// Most bytes below it; 0: no limit; `None`: as it was.
    pub bytes: Option<u64>,
    /// Most inodes below it; 0: no limit; `None`: as it was.
    pub files: Option<u64>,
}

impl Request for QuotaSet {
    type Reply = QuotaInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<QuotaInfo, Failure> {
        let node = shard.node_at(&self.path)?;
        if caller.ctx.delegate.is_some() {
            let st = shard.lock();
            let others = st.quotas.of_dirs_in(node.volume()).filter(|dir| *dir != node).count();
            few("quotas", others, DELEGATED_QUOTAS_MAX)?;
        }
        // what clients change by themselves then they change with this quota far from its limit
        let _recalling =
            shard.recall_exclusive(&Ctx::system(), Some(node.volume())).map_err(about(&self.path))?;
        let set = shard.transact(&Ctx::system(), |tx| {
            if !tx.inode(node)?.is_dir() {
                return Err(Error::NotDir.into());
            }
            let old = tx.st.quotas.get(node).map_or(Pair::default(), |q| q.limit);
            tx.set_quota(node, Pair(self.bytes.unwrap_or(old.0), self.files.unwrap_or(old.1)))
        });
        set.map_err(about(&self.path))?;
        shard.settle()?;
        shard.quota_at(&self.path)
    }
}

/// Shows the quota of a directory, or what is below it where there is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuotaShow {
    /// Any directory.
    pub path: String,
}

impl Request for QuotaShow {
    type Reply = QuotaInfo;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<QuotaInfo, Failure> {
        shard.quota_at(&self.path)
    }
}

/// Lists all quotas of the cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuotaList;

/// All quotas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaInfos {
    /// By path.
    pub quotas: Vec<QuotaInfo>,
}

impl Reply for QuotaInfos {
    const KIND: &'static str = "quotas";
}

impl Request for QuotaList {
    type Reply = QuotaInfos;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::All
    }

    fn add(all: &mut QuotaInfos, mut other: QuotaInfos) {
        all.quotas.append(&mut other.quotas);
    }

    fn run(&self, shard: &Shard, _: &mut Caller<'_>) -> Result<QuotaInfos, Failure> {
        let all: Vec<(NodeId, Quota, i64)> = {
            let st = shard.lock();
            st.quotas.of_dirs().map(|(d, q)| (d, *q, st.held_in_quota(QuotaOf::Dir(d)))).collect()
        };
        let info = |(dir, q, held): (NodeId, Quota, i64)| info(shard.describe(dir), &q, held);
        let mut quotas: Vec<QuotaInfo> = all.into_iter().map(info).collect();
        quotas.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(QuotaInfos { quotas })
    }
}

impl Shard {
    fn quota_at(&self, path: &str) -> Result<QuotaInfo, Failure> {
        let node = self.node_at(path)?;
        let (known, held) = {
            let st = self.lock();
            (st.quotas.get(node).copied(), st.held_in_quota(QuotaOf::Dir(node)))
        };
        if let Some(quota) = known {
            return Ok(info(path.into(), &quota, held));
        }
        let u = self.usage(node).map_err(about(path))?;
        Ok(QuotaInfo {
            path: path.into(),
            bytes: 0,
            files: 0,
            used_bytes: u.bytes + held.max(0) as u64,
            used_files: u.files + u.dirs,
        })
    }
}

/// `held`: bytes that only snapshots hold, where the quota counts them.
fn info(path: String, q: &Quota, held: i64) -> QuotaInfo {
    QuotaInfo {
        path,
        bytes: q.limit.0,
        files: q.limit.1,
        used_bytes: (q.used.bytes + held).max(0) as u64,
        used_files: q.used.inodes().max(0) as u64,
    }
}
