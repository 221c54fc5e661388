//! Scrubbing by the clock: at multiples of an interval in UTC everything in a pool is read and
//! verified, one pool at a time, on the thread `scrub`. [`crate::pools::scrub_round`] does the
//! reading. When a scrub is due follows the rules of snapshot schedules
//! ([`crate::snapshots::schedule`]).
//!
//! The settings, and the result of the last whole scrub of each pool, are stored, whoever started
//! it. A scrub that the end of the process or a failure interrupts is still due, and continues
//! where it was. When an operator starts one, everything is read. Of missed runs one is made up.

use crate::admin::{Progress, ScrubInfo, ScrubPass, ScrubRun, ScrubStatus};
use crate::format::keys;
use crate::format::scrub::Reached;
use crate::format::scrub::{ALL, Every, ScrubRecord};
use crate::pools::scrub_round::Round;
use crate::shard::Shard;
use crate::state::Effect;
use leeward_data::PoolId;
use leeward_env::Ctx;
use leeward_fs::Result;
use std::time::Duration;

/// A scrub that is due begins within this time.
const LOOK_EVERY: Duration = Duration::from_secs(60);

impl Shard {
    /// One turn of the thread.
    pub(crate) fn scrub_turn(&self) {
        if !self.scrub_if_due() {
            self.scrubbing.wake.wait(LOOK_EVERY);
        }
    }

    /// Scrubs the pool that is due; `true` when there is one, and no other scrub runs.
    pub(crate) fn scrub_if_due(&self) -> bool {
        let pools: Vec<PoolId> = self.pools.all().into_iter().map(|(id, _)| id).collect();
        let Some(pool) = self.lock().scrubs.due(&pools, self.now().secs) else { return false };
        let Some(_alone) = self.scrubbing.begin() else { return false };
        let name = self.pool_name(pool);
        let from = self.lock().scrubs.reached(pool);
        let how = if from.is_some() { ", going on where it was" } else { "" };
        tracing::info!("scrubbing pool {name}, as scheduled{how}");
        match self.scrub_and_note(pool, from, &mut |_| {}) {
            Ok(found) if found.lost_objects > 0 => {
                tracing::error!(
                    "pool {name}: {} objects are damaged: lee fsck names the files",
                    found.lost_objects
                );
                true
            }
            Ok(found) => {
                tracing::info!(
                    "pool {name} is scrubbed: {} bytes read, {} bad pieces",
                    found.bytes,
                    found.bad_pieces
                );
                true
            }
            Err(e) => {
                if self.scrubbing.go_on().is_ok() {
                    tracing::warn!("the scheduled scrub of pool {name} failed: {e}; it is tried again");
                }
                self.lock().scrubs.failed(pool, self.now().secs, e.to_string());
                true
            }
        }
    }

    /// Scrubs a pool, or the rest of it, and records that it was whole, or the position. The caller
    /// has [`Scrubbing::begin`](crate::state::scrubs::Scrubbing::begin).
    pub(crate) fn scrub_and_note(
        &self,
        pool: PoolId,
        from: Option<Reached>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<ScrubInfo> {
        let mut round = Round::new(self, pool, from, progress);
        let begun_secs = round.begun_secs;
        let (phase, done, total) = ("beginning".into(), 0, 0);
        self.scrubbing.runs(pool, ScrubRun { begun_secs, phase, done, total });
        let scrubbed = round.run().inspect_err(|_| round.keep());
        *self.scrubbing.running.lock() = None;
        let found = scrubbed?;
        let last = ScrubPass { begun_secs, ended_secs: self.now().secs, found: found.clone() };
        self.set_scrub(pool, |record| record.last = Some(last.clone()))?;
        Ok(found)
    }

    /// Sets how often a pool is scrubbed (0: never); `None`: all pools, which replaces settings of
    /// single ones.
    pub(crate) fn set_scrub_every(&self, pool: Option<PoolId>, secs: u32) -> Result<()> {
        let every = Some(Every { secs, since_secs: self.now().secs });
        if let Some(pool) = pool {
            self.set_scrub(pool, |record| record.every = every)?;
        } else {
            let said: Vec<PoolId> = self.lock().scrubs.records.keys().copied().collect();
            said.into_iter().try_for_each(|pool| self.set_scrub(pool, |record| record.every = None))?;
            self.set_scrub(ALL, |record| record.every = every)?;
        }
        self.scrubbing.wake.wake();
        self.commit_now(&Ctx::system())
    }

    fn set_scrub(&self, pool: PoolId, change: impl Fn(&mut ScrubRecord)) -> Result<()> {
        self.transact(&Ctx::system(), |tx| {
            if pool != 0 && pool != ALL && !tx.st.pools.contains_key(&pool) {
                return Ok(()); // removed meanwhile
            }
            let mut record = tx.st.scrubs.get(pool);
            let whole = record.last.clone();
            change(&mut record);
            if record.last != whole {
                tx.remove(keys::scrub_place(pool));
                tx.then(Effect::ScrubPlace(pool, None));
            }
            tx.put(keys::scrub(pool), record.encode());
            tx.then(Effect::Scrub(pool, Some(record)));
            Ok(())
        })
    }

    /// [`State::scrub_status`](crate::state::State::scrub_status), and the running scrub.
    pub(crate) fn scrub_status(&self, pool: PoolId) -> ScrubStatus {
        let running = self.scrubbing.running().filter(|(of, _)| *of == pool).map(|(_, run)| run);
        let status = self.lock().scrub_status(pool, self.now().secs);
        ScrubStatus { running, ..status }
    }
}
