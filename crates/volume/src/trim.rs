//! Trim: what no snapshot sees any more leaves the history and the deadlist, and its data is given up, in bounded steps.
//!
//! What is to be done follows from the tallies and the snapshots alone (`snapshots.rs`), so a step that a crash undoes is done
//! again, and nothing is forgotten.

use crate::error::{Error, Result};
use crate::keys::{self, Dead, EpochPair};
use crate::records::{Effect, Tx, TxResult};
use crate::shard::Shard;
use crate::snapshots::Tally;
use leeward_env::Ctx;

/// Entries of a deadlist that one step frees.
const STEP_ENTRIES: usize = 256;

impl Tx<'_> {
    fn trim(&mut self, volume: u32, pair: EpochPair) -> TxResult<()> {
        if !self.st.snapshots.is_doomed(volume, pair) {
            // the volume was removed meanwhile
            return Ok(());
        }
        let (from, to) = keys::dead_range(volume, pair);
        let entries = self.scan(&from, &to, STEP_ENTRIES + 1, false)?;
        let finished = entries.len() <= STEP_ENTRIES;
        let mut freed = Tally::default();
        for (key, value) in entries.into_iter().take(STEP_ENTRIES) {
            freed.records -= 1;
            match keys::parse_dead(&key) {
                Some((_, Dead::Record(record))) if pair.birth > 0 => {
                    self.remove(keys::version(&record, pair.death));
                }
                Some((_, Dead::Record(_))) => {}
                Some((_, Dead::Data(..))) => {
                    let (addr, len) = keys::parse_dead_data(&value).ok_or_else(|| damaged(volume, pair))?;
                    self.add_reference(addr.segment, -i64::from(len));
                    freed.bytes -= i64::from(len);
                }
                None => return Err(damaged(volume, pair).into()),
            }
            self.remove(key);
        }
        self.tally(volume, pair, freed);
        if finished {
            self.then(Effect::FinishPair { volume, pair });
        }
        Ok(())
    }
}

fn damaged(volume: u32, pair: EpochPair) -> Error {
    Error::Corrupt(format!("deadlist of volume {volume} at {pair:?}"))
}

impl Shard {
    /// One step of trim; `true` when there was something to do.
    pub(crate) fn trim_step(&self) -> Result<bool> {
        let Some((volume, pair)) = self.lock().snapshots.doomed() else { return Ok(false) };
        self.transact(&Ctx::system(), |tx| tx.trim(volume, pair))?;
        Ok(true)
    }
}
