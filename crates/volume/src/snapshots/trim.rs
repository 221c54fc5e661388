//! Trim: entries that no snapshot sees any more leave the history and the deadlist, and their data
//! is freed, in bounded steps.
//!
//! The work follows from the tallies and the snapshots alone (`snapshots.rs`), so a step that a
//! crash undoes is done again, and nothing is forgotten. Nothing is added to a deadlist under a
//! pair that no snapshot sees. So what is read of it without the lock stays true, and the part that
//! is done stays empty: trim continues where it was, not through what it has removed.

use crate::format::keys::{self, Dead, EpochPair, Key};
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::snapshots::Tally;
use crate::tx::{Tx, TxResult};
use leeward_env::{Class, Work};
use leeward_fs::{Error, Result};
use leeward_meta::Value;

/// Entries of a deadlist that one step reads.
const STEP_ENTRIES: usize = 256;
/// Entries that are freed in one hold of the lock, as tallies count.
const HOLD_COUNT: usize = 64;
/// Trim is behind when this many entries wait under one pair, or this many pairs: it then gets more
/// of the time beside users.
const BEHIND_ENTRIES: i64 = 1 << 20;
const BEHIND_PAIRS: usize = 1 << 10;

impl Tx<'_> {
    /// Frees these entries; `false` when the volume went away meanwhile.
    fn trim(&mut self, volume: u32, pair: EpochPair, entries: &[(Key, Dead)]) -> TxResult<bool> {
        if !self.st.snapshots.is_doomed(volume, pair) {
            return Ok(false);
        }
        let mut freed = Tally::default();
        for (key, dead) in entries {
            freed.records -= dead.count() as i64;
            match dead {
                Dead::Records(records) if pair.birth > 0 => {
                    records.iter().for_each(|record| self.remove(keys::version(record, pair.death)));
                }
                Dead::Records(_) => {}
                Dead::Data(_, _, addr, len) => {
                    self.add_reference(addr.segment, -i64::from(*len));
                    freed.bytes -= i64::from(*len);
                }
            }
            self.remove(key.clone());
        }
        self.tally(volume, pair, freed);
        Ok(true)
    }
}

/// Parses a stored entry.
fn parsed(volume: u32, pair: EpochPair, (key, value): (Key, Value)) -> Result<(Key, Dead)> {
    let damaged = || Error::Corrupt(format!("deadlist of volume {volume} at {pair:?}"));
    let (_, dead) = keys::parse_dead(&key, &value).ok_or_else(damaged)?;
    Ok((key, dead))
}

/// How many of the first entries count for no more than `most`: at least one.
fn hold(entries: &[(Key, Dead)], most: usize) -> usize {
    let mut sum = 0;
    let fitting = entries.iter().take_while(|(_, dead)| {
        sum += dead.count();
        sum <= most
    });
    fitting.count().max(1)
}

impl Shard {
    /// One step of trim; `true` when there was something to do.
    pub(crate) fn trim_step(&self) -> Result<bool> {
        let (volume, pair, from) = {
            let mut st = self.lock();
            // entries that died before the last snapshot that saw them went
            st.list_the_dead(&self.cache);
            let Some((volume, pair)) = st.snapshots.doomed(st.unreadable.pairs()) else { return Ok(false) };
            let at = st.trimmed.as_ref().filter(|(v, p, _)| (*v, *p) == (volume, pair));
            (volume, pair, at.map_or_else(|| keys::dead_range(volume, pair).0, |(.., key)| key.clone()))
        };
        let mut ctx = self.work_ctx(Work::Trim, Some(volume));
        if self.lock().snapshots.doomed_exceeds(BEHIND_ENTRIES, BEHIND_PAIRS) {
            ctx.class = Class::Batch;
        }
        if self.committer.is_behind() {
            self.commit_now(&ctx)?;
        }
        let range = (keys::dead_range(volume, pair).0, keys::dead_range(volume, pair).1);
        let (page, next) = match self.scan(&from, &range.1, STEP_ENTRIES) {
            Err(Error::Corrupt(why)) => {
                let mut st = self.lock();
                st.unreadable.note("trim", &range.0, &why);
                st.unreadable.leave_pair(volume, pair);
                return Ok(true);
            }
            other => other?,
        };
        let mut entries = Vec::with_capacity(page.len());
        for entry in page {
            let key = entry.0.clone();
            match parsed(volume, pair, entry) {
                Ok(entry) => entries.push(entry),
                Err(why) => {
                    // the whole pair: the data of a version that stays must not count as free
                    let mut st = self.lock();
                    st.unreadable.note("trim", &key, &why);
                    st.unreadable.leave_pair(volume, pair);
                    return Ok(true);
                }
            }
        }
        let (mut left, most) = (&entries[..], self.step_size(HOLD_COUNT));
        while !left.is_empty() {
            let (some, others) = left.split_at(hold(left, most));
            let free = || self.transact(&ctx, |tx| tx.trim(volume, pair, some));
            if !self.in_turn(&ctx, volume, free)? {
                return Ok(true);
            }
            left = others;
        }
        if next.is_none() {
            self.transact(&ctx, |tx| {
                tx.then(Effect::FinishPair { volume, pair });
                Ok(())
            })?;
        }
        self.lock().trimmed = next.map(|key| (volume, pair, key));
        Ok(true)
    }
}
