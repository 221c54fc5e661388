//! Recursive statistics: figures of everything below each directory.
//!
//! An operation changes them for one directory only
//! ([`Unfolded`](crate::state::unfolded::Unfolded), stored beside the records with the next
//! commit). In steps, in the background, each change is folded into the record of its directory and
//! goes on to the one above. So the cost of an operation, and of another user's fsync, does not
//! depend on the depth of the tree. A record and the unfolded changes at and below its directory
//! give the exact figure at any time; code that needs it folds first.

use crate::format::inode::Stats;
use crate::format::keys;
use crate::shard::Shard;
use crate::tx::{Fail, Tx, TxResult};
use leeward_env::Ctx;
use leeward_fs::{NodeId, Result};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Directories whose records one step changes, in one hold of the lock.
const FOLD_STEP: usize = 64;
/// Most steps in a row.
const FOLD_STEPS_MAX: usize = 256;

impl Shard {
    /// Folds all changes, in steps; leaves the rest for the next time where changes come in as
    /// fast.
    pub(crate) fn fold(&self) -> Result<()> {
        let ctx = Ctx::system();
        for _ in 0..FOLD_STEPS_MAX {
            if self.lock().unfolded.is_empty() || !self.transact(&ctx, |tx| tx.fold_step(FOLD_STEP))? {
                break;
            }
        }
        Ok(())
    }
}

impl Tx<'_> {
    /// Recursive statistics of a directory as last folded.
    pub fn stats(&self, dir: NodeId) -> TxResult<Stats> {
        Ok(self.get(&keys::stats(dir))?.map(|v| Stats::decode(&v)).transpose()?.unwrap_or_default())
    }

    /// Folds changes for at most `limit` directories' records, from below upwards where it can; the
    /// rest continues from where it is. `true` when something is left.
    pub fn fold_step(&mut self, limit: usize) -> TxResult<bool> {
        let mut climbing: BTreeMap<NodeId, Stats> = self.st.unfolded.iter().rev().take(limit).collect();
        climbing.iter().for_each(|(dir, by)| self.deltas.push((*dir, by.negated())));
        for _ in 0..limit {
            // directories are mostly made after those that they are in: sums meet before they go on
            let Some((dir, by)) = climbing.pop_last() else { break };
            let stats = self.stats(dir)?.plus(by);
            self.put(keys::stats(dir), stats.encode());
            let parent = self.parent_for_stats(dir)?;
            if parent.inode() != 0 {
                let sum = climbing.entry(parent).or_default();
                *sum = sum.plus(by);
            }
        }
        let left = !climbing.is_empty() || self.st.unfolded.len() > limit;
        climbing.into_iter().for_each(|(dir, by)| self.add_stats(dir, by));
        Ok(left)
    }

    /// Folds all changes of recursive statistics up the tree: afterwards the records are exact.
    pub fn fold(&mut self) -> TxResult<()> {
        let mut total: FxHashMap<NodeId, Stats> = FxHashMap::default();
        // earlier changes were folded in by this operation's first fold
        let earlier = (!self.folded).then(|| self.st.unfolded.iter()).into_iter().flatten();
        for (dir, s) in earlier.chain(self.deltas.iter().copied()) {
            let t = total.entry(dir).or_default();
            *t = t.plus(s);
        }
        total.retain(|_, s| !s.is_zero());
        let mut parents: FxHashMap<NodeId, NodeId> = FxHashMap::default();
        let mut waiting: FxHashMap<NodeId, usize> = FxHashMap::default();
        for start in total.keys() {
            let mut dir = *start;
            while !parents.contains_key(&dir) {
                let parent = self.parent_for_stats(dir)?;
                parents.insert(dir, parent);
                if parent.inode() == 0 {
                    break;
                }
                *waiting.entry(parent).or_default() += 1;
                dir = parent;
            }
        }
        let mut ready: Vec<NodeId> = parents.keys().copied().filter(|d| !waiting.contains_key(d)).collect();
        while let Some(dir) = ready.pop() {
            let sum = total.remove(&dir).unwrap_or_default();
            if !sum.is_zero() {
                let stats = self.stats(dir)?.plus(sum);
                self.put(keys::stats(dir), stats.encode());
            }
            let parent = parents[&dir];
            if parent.inode() == 0 {
                continue;
            }
            let t = total.entry(parent).or_default();
            *t = t.plus(sum);
            let left = waiting.get_mut(&parent).expect("counted above");
            *left -= 1;
            if *left == 0 {
                ready.push(parent);
            }
        }
        self.deltas.clear();
        self.folded = true;
        Ok(())
    }

    /// The directory above. 0 ends the walk: at a volume's root, and (a broken invariant that must
    /// not stop commits) where a directory is gone.
    fn parent_for_stats(&self, dir: NodeId) -> TxResult<NodeId> {
        match self.inode(dir) {
            Ok(inode) => Ok(NodeId::new(dir.volume(), inode.parent)),
            Err(Fail::Error(e)) => {
                tracing::error!("statistics of directory {dir:?} have nowhere to go: {e}; run lee fsck");
                Ok(NodeId::new(dir.volume(), 0))
            }
            Err(miss) => Err(miss),
        }
    }

    /// Moves unfolded changes of `dir` to its parent: `dir` is going away.
    pub fn propagate_deltas(&mut self, dir: NodeId, parent: NodeId) {
        let sum = self.discard_deltas(dir);
        self.add_stats(parent, sum);
    }

    /// Drops unfolded changes of `dir`: `dir` is going away.
    pub(crate) fn discard_deltas(&mut self, dir: NodeId) -> Stats {
        let running = if self.folded { None } else { self.st.unfolded.get(dir) };
        let mine: Vec<Stats> = self.deltas.iter().filter(|(d, _)| *d == dir).map(|(_, s)| *s).collect();
        let sum = mine.into_iter().fold(running.unwrap_or_default(), Stats::plus);
        self.add_stats(dir, sum.negated());
        sum
    }
}
