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
use leeward_env::{Ctx, Nanos};
use leeward_fs::{NodeId, Result};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::time::Duration;

/// Directories whose records one step changes, in one hold of the lock.
const FOLD_STEP: usize = 64;
/// Most steps in a row.
const FOLD_STEPS_MAX: usize = 256;
/// While users make requests, folding for nobody takes this time, with its rests, and then lets the
/// commit go first.
const FOLD_TIME: Nanos = 60_000_000;
/// The longest rest after a step: others get the lock, and the commit does not wait for long.
const FOLD_REST: Nanos = 1_000_000;
/// With this many directories left to be folded, it does not wait for users any more: they change
/// more than it folds in its small share.
const FOLD_BACKLOG: usize = 16_384;
/// Directories' records that an operation which needs the exact figures changes itself.
const FOLD_AT_ONCE: usize = 16 * FOLD_STEP;
/// Most steps that fold a volume for such an operation, before it looks again.
const FOLD_ALL_STEPS_MAX: usize = 4096;

impl Shard {
    /// Folds all changes, in steps that rest while users make requests; leaves the rest for the
    /// next time where changes come in as fast.
    pub(crate) fn fold(&self) -> Result<()> {
        let ctx = Ctx::system();
        let begun = self.env.now();
        for _ in 0..FOLD_STEPS_MAX {
            let left = self.lock().unfolded.len();
            if left == 0 {
                break;
            }
            let is_paced = left < FOLD_BACKLOG && self.gate.activity().is_busy(self.env.now());
            let step = if is_paced { self.step_size(FOLD_STEP) } else { FOLD_STEP };
            let (folded, took) = self.timed(|| self.transact(&ctx, |tx| tx.fold_step(step, None)));
            folded?;
            if is_paced && !self.env.is_sim() {
                self.env.sleep(Duration::from_nanos(took.min(FOLD_REST)));
            }
            let is_long = self.env.now().saturating_sub(begun) >= FOLD_TIME;
            if is_long && self.gate.activity().is_busy(self.env.now()) {
                break;
            }
        }
        Ok(())
    }

    /// Folds the changes in a volume until those that are left take one step, for an operation that
    /// folds these itself ([`Fail::Fold`]).
    pub(crate) fn fold_all(&self, volume: u32) -> Result<()> {
        for _ in 0..FOLD_ALL_STEPS_MAX {
            if self.transact(&Ctx::system(), |tx| tx.fold_step(FOLD_STEP, Some(volume)))? < FOLD_STEP {
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

    /// Folds changes, with `volume` those in it, for at most `limit` directories' records, from
    /// below upwards where it can; the rest continues from where it is. Returns how many records
    /// changed: if fewer, nothing is left.
    pub(crate) fn fold_step(&mut self, limit: usize, volume: Option<u32>) -> TxResult<usize> {
        let unfolded = &self.st.unfolded;
        let mut climbing: BTreeMap<NodeId, Stats> = match volume {
            Some(volume) => unfolded.of_volume(volume).rev().take(limit).collect(),
            None => unfolded.iter().rev().take(limit).collect(),
        };
        climbing.iter().for_each(|(dir, by)| self.deltas.push((*dir, by.negated())));
        let mut changed = 0;
        while changed < limit {
            // directories are mostly made after those that they are in: sums meet before they go on
            let Some((dir, by)) = climbing.pop_last() else { break };
            changed += 1;
            let stats = self.stats(dir)?.plus(by);
            self.put(keys::stats(dir), stats.encode());
            let parent = self.parent_for_stats(dir)?;
            if parent.inode() != 0 {
                let sum = climbing.entry(parent).or_default();
                *sum = sum.plus(by);
            }
        }
        climbing.into_iter().for_each(|(dir, by)| self.add_stats(dir, by));
        Ok(changed)
    }

    /// Folds all changes of recursive statistics in a volume up the tree: afterwards its records
    /// are exact. Where that takes many records, most of them change before, in steps without the
    /// lock between.
    pub(crate) fn fold(&mut self, volume: u32) -> TxResult<()> {
        debug_assert!(self.folded.is_none_or(|folded| folded == volume), "an operation is in one volume");
        let mut total: FxHashMap<NodeId, Stats> = FxHashMap::default();
        // earlier changes were folded in by this operation's first fold
        let earlier = self.folded.is_none().then(|| self.st.unfolded.of_volume(volume)).into_iter().flatten();
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
                // what only this operation changes cannot be folded before
                if parents.len() >= FOLD_AT_ONCE && self.st.unfolded.of_volume(volume).next().is_some() {
                    return Err(Fail::Fold(volume));
                }
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
        self.folded = Some(volume);
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
        let is_folded = self.folded == Some(dir.volume());
        let running = if is_folded { None } else { self.st.unfolded.get(dir) };
        let mine: Vec<Stats> = self.deltas.iter().filter(|(d, _)| *d == dir).map(|(_, s)| *s).collect();
        let sum = mine.into_iter().fold(running.unwrap_or_default(), Stats::plus);
        self.add_stats(dir, sum.negated());
        sum
    }
}
