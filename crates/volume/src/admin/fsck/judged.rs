//! The state that fsck checks: what is committed at one moment, and what only memory knows about
//! it.

use crate::format::inode::Stats;
use crate::shard::Shard;
use leeward_fs::{NodeId, Result};
use leeward_meta::Moment;
use rustc_hash::FxHashSet;

/// What is committed, and what only memory knows about it.
pub(super) struct Judged<'a> {
    pub(super) moment: Box<dyn Moment + 'a>,
    /// What quotas count, when all of that is committed.
    pub(super) quotas: Vec<(NodeId, Stats)>,
    /// Files that memory knows as parts of uploads, or as being freed.
    pub(super) known: FxHashSet<NodeId>,
}

impl Shard {
    /// The state to check, as of now.
    pub(super) fn judged(&self) -> Result<Judged<'_>> {
        // meanwhile nothing is freed in steps, and a file that is freed with its last reference was
        // known before
        let _alone = self.housekeeping.lock();
        let mut known = self.parts_and_leftovers();
        self.commit_if_dirty()?;
        Ok(self.with_commits_paused(|| {
            known.extend(self.parts_and_leftovers());
            Judged { moment: self.kv.moment(), quotas: self.quotas_if_settled(), known }
        }))
    }

    fn parts_and_leftovers(&self) -> FxHashSet<NodeId> {
        let st = self.lock();
        let leftovers = st.orphans.iter().chain(&st.reclaim).copied();
        leftovers.chain(st.uploads.files()).collect()
    }

    /// What quotas count, when all of that is committed.
    fn quotas_if_settled(&self) -> Vec<(NodeId, Stats)> {
        let st = self.lock();
        match st.files.is_empty() && st.is_clean() && st.committing.is_empty() {
            true => st.quotas.iter().map(|(dir, q)| (dir, q.used)).collect(),
            false => Vec::new(),
        }
    }
}
