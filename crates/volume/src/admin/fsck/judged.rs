//! The state that fsck checks: what is committed at one moment, and what only memory knows about
//! it.

use crate::admin::fsck::owners::OwnedBy;
use crate::format::inode::Stats;
use crate::shard::Shard;
use crate::state::quota::QuotaOf;
use leeward_fs::{NodeId, Result};
use leeward_meta::Moment;
use rustc_hash::FxHashSet;

/// What is committed, and what only memory knows about it.
pub(super) struct Judged<'a> {
    pub(super) moment: Box<dyn Moment + 'a>,
    /// What quotas count, when all of that is committed.
    pub(super) quotas: Vec<(QuotaOf, Stats)>,
    /// What users and groups use, in the same case.
    pub(super) used: Option<OwnedBy>,
    /// See [`State::projects_held_wrongly`](crate::state::State::projects_held_wrongly).
    pub(super) held_wrongly: Vec<(u32, i64, i64)>,
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
            let (quotas, used) = self.used_if_settled();
            let held_wrongly = self.lock().projects_held_wrongly();
            Judged { moment: self.kv.moment(), quotas, used, held_wrongly, known }
        }))
    }

    fn parts_and_leftovers(&self) -> FxHashSet<NodeId> {
        let st = self.lock();
        let leftovers = st.orphans.iter().chain(&st.reclaim).copied();
        leftovers.chain(st.uploads.files()).collect()
    }

    /// What quotas and limits of owners count, when all of that is committed.
    fn used_if_settled(&self) -> (Vec<(QuotaOf, Stats)>, Option<OwnedBy>) {
        let st = self.lock();
        match st.files.is_empty() && st.is_clean() && st.committing.is_empty() {
            true => {
                let owners = st.owners.iter().map(|(volume, who, used)| ((volume, who), used));
                (st.quotas.iter().map(|(of, q)| (of, q.used)).collect(), Some(owners.collect()))
            }
            false => (Vec::new(), None),
        }
    }
}
