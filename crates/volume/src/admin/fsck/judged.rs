//! What is judged: what is committed at one moment, and what memory has to say of it.

use crate::format::inode::Stats;
use crate::shard::Shard;
use leeward_fs::{NodeId, Result};
use leeward_meta::Moment;
use rustc_hash::FxHashSet;

/// What is committed, and what memory has to say of it.
pub(super) struct Judged<'a> {
    pub(super) moment: Box<dyn Moment + 'a>,
    /// What quotas count, if all of it is in what is committed.
    pub(super) quotas: Vec<(NodeId, Stats)>,
    /// Files that are known to be parts, or to be freed.
    pub(super) known: FxHashSet<NodeId>,
}

impl Shard {
    /// What is to be judged, as of now.
    pub(super) fn judged(&self) -> Result<Judged<'_>> {
        // nothing is freed in steps meanwhile; what is freed with its last reference was known before
        let _alone = self.housekeeping.lock();
        let mut known = self.parts_and_leftovers();
        self.commit_if_dirty()?;
        Ok(self.standing_still(|| {
            known.extend(self.parts_and_leftovers());
            Judged { moment: self.kv.moment(), quotas: self.quotas_if_settled(), known }
        }))
    }

    fn parts_and_leftovers(&self) -> FxHashSet<NodeId> {
        let st = self.lock();
        let leftovers = st.orphans.iter().chain(&st.reclaim).copied();
        leftovers.chain(st.uploads.files()).collect()
    }

    /// What quotas count, if all of it is in what is committed.
    fn quotas_if_settled(&self) -> Vec<(NodeId, Stats)> {
        let st = self.lock();
        match st.files.is_empty() && st.is_clean() && st.committing.is_empty() {
            true => st.quotas.iter().map(|(dir, q)| (dir, q.used)).collect(),
            false => Vec::new(),
        }
    }
}
