//! The directories above one.
//!
//! A user may make a tree of any depth. So a walk up of more than [`STEPS`] directories does not
//! happen under the lock: the attempt ends with [`Fail::Climb`], [`Shard::climb`] walks in
//! portions, and the next attempt takes what that found, if no directory of the volume has moved
//! since.

use crate::before::Chain;
use crate::shard::Shard;
use crate::state::quota::QuotaOf;
use crate::tx::{Fail, Tx, TxResult};
use leeward_env::Ctx;
use leeward_fs::{Error, NodeId, Result};
use rustc_hash::FxHashMap;

/// Directories that are looked at in one hold of the lock.
pub(crate) const STEPS: usize = 256;
/// How often a walk begins anew because directories of the volume have moved.
const TRIES: usize = 16;

impl Tx<'_> {
    /// Calls `f` with `dir` and the directories above it in its volume, in order, until it finds
    /// something.
    pub(crate) fn find_above<T>(
        &self,
        dir: NodeId,
        mut f: impl FnMut(NodeId) -> Option<T>,
    ) -> TxResult<Option<T>> {
        let mut at = dir;
        for _ in 0..STEPS {
            if at.inode() == 0 {
                return Ok(None);
            }
            if let Some(found) = f(at) {
                return Ok(Some(found));
            }
            at = self.above(at)?;
        }
        let moves = self.st.dir_moves(dir.volume());
        let all = self.before.above(dir, moves).ok_or(Fail::Climb(dir))?;
        Ok(all[STEPS..].iter().find_map(|at| f(*at)))
    }

    /// The quotas that what is in `dir` counts for: of directories above it, of its projects.
    pub(crate) fn quotas_above(&self, dir: NodeId) -> TxResult<Vec<QuotaOf>> {
        let mut quotas = Vec::new();
        let volume = dir.volume();
        if !self.counts_exactly(volume) {
            return Ok(quotas);
        }
        let mut top = dir;
        self.find_above(dir, |at| {
            if self.st.quotas.get(at).is_some() {
                quotas.push(QuotaOf::Dir(at));
            }
            top = at;
            None::<()>
        })?;
        // what is being restored, or freed, is below no root
        if top.inode() == 1 {
            quotas.extend(self.st.project_quotas(volume));
        }
        Ok(quotas)
    }

    /// Whether `dir` is `top` or below it.
    pub(crate) fn is_below(&self, dir: NodeId, top: NodeId) -> TxResult<bool> {
        Ok(self.find_above(dir, |at| (at == top).then_some(()))?.is_some())
    }

    /// Whether the first directory at or above `dir` of which that is known is below; that is then
    /// known of all on the way.
    pub(crate) fn is_among(&self, dir: NodeId, below: &mut FxHashMap<NodeId, bool>) -> TxResult<bool> {
        let mut unknown = Vec::new();
        let found = self.find_above(dir, |at| {
            let known = below.get(&at).copied();
            unknown.extend(known.is_none().then_some(at));
            known
        })?;
        let is_below = found.unwrap_or(false);
        below.extend(unknown.into_iter().map(|at| (at, is_below)));
        Ok(is_below)
    }

    /// The directory above one, in its volume; of the volume's root number 0. Clients that change
    /// directories by themselves move none.
    pub(crate) fn above(&self, dir: NodeId) -> TxResult<NodeId> {
        Ok(NodeId::new(dir.volume(), self.unseen(|tx| tx.inode(dir))?.parent))
    }
}

impl Shard {
    /// The directories above one, found in portions.
    ///
    /// # Errors
    /// `Busy`: directories of the volume move all the time. `Stale`: it is gone.
    pub(crate) fn climb(&self, dir: NodeId) -> Result<Chain> {
        let moves = || self.lock().dir_moves(dir.volume());
        for _ in 0..TRIES {
            let (mut all, mut at, before) = (Vec::new(), dir, moves());
            while at.inode() != 0 && moves() == before {
                let mut steps = 0;
                // an attempt that lacks a record goes on where the one before has ended
                self.transact(&Ctx::system(), |tx| {
                    while at.inode() != 0 && steps < STEPS {
                        let above = tx.above(at)?;
                        all.push(at);
                        (at, steps) = (above, steps + 1);
                    }
                    Ok(())
                })?;
            }
            if moves() == before {
                return Ok(Chain { all, moves: before });
            }
        }
        Err(Error::Busy)
    }
}
