//! Scrubbing by the clock: at multiples of an interval in UTC everything in a pool is read and verified, one pool at a time, on the thread
//! `scrub`. How that is done is in [`crate::scrub_round`]; when it is due, in what schedules of snapshots go by, too ([`crate::schedule`]).
//!
//! Stored is what was said and how the last whole scrub of each pool went, whoever asked for that. One that the end of the process or
//! a failure cuts short is due still, and goes on where it was; when an operator asks for one, all is read. Of runs that were missed one is made up.

use crate::admin::{Progress, ScrubInfo, ScrubPass, ScrubRun, ScrubStatus};
use crate::keys;
use crate::records::Effect;
use crate::schedule::{self, RETRY_SECS};
use crate::scrub_round::{Reached, Round};
use crate::shard::{Shard, State};
use crate::wake::Wake;
use leeward_data::PoolId;
use leeward_env::Ctx;
use leeward_fs::{Error, Result};
use leeward_meta::Value;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// In place of a pool's number: what holds for those of which nothing else was said, also for those that are made later.
pub const ALL: PoolId = PoolId::MAX;
const VERSION: u8 = 1;
const RECORD_BYTES: usize = 70;
const HAS_EVERY: u8 = 1;
const HAS_LAST: u8 = 2;
/// How long it takes at most until a scrub begins that is due.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How often a pool is to be scrubbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    /// Seconds, a multiple of 60; 0: never.
    pub secs: u32,
    /// When that was said, seconds since 1970.
    pub since_secs: i64,
}

/// What is stored of scrubbing a pool; of [`ALL`] only how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// What was said of it.
    pub every: Option<Every>,
    /// The last whole scrub.
    pub last: Option<ScrubPass>,
}

impl ScrubRecord {
    /// The encoding: version, flags (1: it was said how often, 2: there was a whole scrub), interval u32, since i64; begun and ended i64,
    /// bytes, bad pieces, objects repaired, degraded, lost u64. What is not there is zeros.
    pub fn encode(&self) -> Value {
        let flag = |there: bool, flag: u8| if there { flag } else { 0 };
        let every = self.every.unwrap_or(Every { secs: 0, since_secs: 0 });
        let last = self.last.clone().unwrap_or_default();
        let mut out =
            vec![VERSION, flag(self.every.is_some(), HAS_EVERY) | flag(self.last.is_some(), HAS_LAST)];
        out.extend_from_slice(&every.secs.to_be_bytes());
        [every.since_secs, last.begun_secs, last.ended_secs]
            .iter()
            .for_each(|secs| out.extend_from_slice(&secs.to_be_bytes()));
        let ScrubInfo { bytes, bad_pieces, repaired_objects, degraded_objects, lost_objects, .. } =
            last.found;
        [bytes, bad_pieces, repaired_objects, degraded_objects, lost_objects]
            .iter()
            .for_each(|count| out.extend_from_slice(&count.to_be_bytes()));
        out.into()
    }

    /// Reads the encoding. The name of the pool is not in it.
    pub fn decode(bytes: &[u8]) -> Result<ScrubRecord> {
        let damaged = || Error::Corrupt(format!("scrub record of {} bytes cannot be read", bytes.len()));
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().map_err(|_| damaged())?;
        if bytes[0] != VERSION {
            return Err(damaged());
        }
        let number = |n: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[6 + 8 * n..14 + 8 * n]);
            u64::from_be_bytes(number)
        };
        let every = Every {
            secs: u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]),
            since_secs: number(0) as i64,
        };
        let found = ScrubInfo {
            pool: String::new(),
            bytes: number(3),
            bad_pieces: number(4),
            repaired_objects: number(5),
            degraded_objects: number(6),
            lost_objects: number(7),
        };
        let last = ScrubPass { begun_secs: number(1) as i64, ended_secs: number(2) as i64, found };
        let has = |flag: u8| bytes[1] & flag != 0;
        Ok(ScrubRecord { every: has(HAS_EVERY).then_some(every), last: has(HAS_LAST).then_some(last) })
    }
}

/// All that is stored, and what failed.
#[derive(Default)]
pub struct Scrubs {
    records: BTreeMap<PoolId, ScrubRecord>,
    /// How far those are that were cut short.
    reached: BTreeMap<PoolId, Reached>,
    /// When it is tried again, and why it failed.
    failed: BTreeMap<PoolId, (i64, String)>,
}

impl Scrubs {
    /// Sets, or takes away.
    pub fn set(&mut self, pool: PoolId, record: Option<ScrubRecord>) {
        self.failed.remove(&pool);
        match record {
            Some(record) => drop(self.records.insert(pool, record)),
            None => {
                self.records.remove(&pool);
                self.reached.remove(&pool);
            }
        }
    }

    /// See [`Effect::ScrubPlace`].
    pub(crate) fn set_reached(&mut self, pool: PoolId, reached: Option<Reached>) {
        match reached {
            Some(reached) => drop(self.reached.insert(pool, reached)),
            None => drop(self.reached.remove(&pool)),
        }
    }

    /// Where a scrub goes on that was cut short, unless there was a whole one since.
    fn reached(&self, pool: PoolId) -> Option<Reached> {
        let whole = self.last(pool).map(|last| last.begun_secs);
        self.reached.get(&pool).copied().filter(|reached| Some(reached.begun_secs) > whole)
    }

    fn get(&self, pool: PoolId) -> ScrubRecord {
        self.records.get(&pool).cloned().unwrap_or_default()
    }

    /// What holds for a pool; `None`: only when it is asked for.
    fn every(&self, pool: PoolId) -> Option<Every> {
        let said = |pool| self.records.get(&pool).and_then(|r: &ScrubRecord| r.every);
        said(pool).or_else(|| said(ALL)).filter(|every| every.secs > 0)
    }

    /// What is to be stored of a pool that is being made: what was said of all holds for it from now on.
    pub(crate) fn of_new(&self, now: i64) -> Option<ScrubRecord> {
        let every = self.every(ALL).map(|all| Every { since_secs: now, ..all });
        every.map(|every| ScrubRecord { every: Some(every), last: None })
    }

    fn last(&self, pool: PoolId) -> Option<&ScrubPass> {
        self.records.get(&pool)?.last.as_ref()
    }

    /// One that is due: the one that was scrubbed longest ago.
    fn due(&self, pools: &[PoolId], now: i64) -> Option<PoolId> {
        let is_due = |pool: &PoolId| {
            let Some(every) = self.every(*pool) else { return false };
            let ran = self.last(*pool).map_or(every.since_secs, |last| last.begun_secs);
            let rests = self.failed.get(pool).is_some_and(|(retry_at, _)| now < *retry_at);
            schedule::due(ran, now, every.secs).is_some() && !rests
        };
        let begun = |pool: &PoolId| self.last(*pool).map_or(i64::MIN, |last| last.begun_secs);
        pools.iter().copied().filter(is_due).min_by_key(begun)
    }

    fn failed(&mut self, pool: PoolId, now: i64, why: String) {
        self.failed.insert(pool, (now + RETRY_SECS, why));
    }

    fn status(&self, pool: PoolId, name: &str, now: i64) -> ScrubStatus {
        let every = self.every(pool);
        let last = self.last(pool).cloned().map(|mut last| {
            last.found.pool = name.into();
            last
        });
        let begun = last.as_ref().map(|last| last.begun_secs);
        ScrubStatus {
            every_secs: every.map(|every| every.secs),
            next_secs: every.map(|every| schedule::slot(now, every.secs) + i64::from(every.secs)),
            late: every.is_some_and(|every| schedule::is_late(begun, every.since_secs, every.secs, now)),
            last,
            age_secs: begun.map(|begun| (now - begun).max(0)),
            running: None,
            error: self.failed.get(&pool).map(|(_, why)| why.clone()),
        }
    }
}

/// Who scrubs, and how far that is.
#[derive(Default)]
pub struct Scrubbing {
    /// Held by who scrubs. Before all other locks.
    alone: Mutex<()>,
    /// Alone.
    running: Mutex<Option<(PoolId, ScrubRun)>>,
    ends: AtomicBool,
    /// Wakes the thread.
    pub wake: Wake,
}

impl Scrubbing {
    /// The cell is being closed: what runs ends after its step.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// An error when the cell is being closed.
    pub fn go_on(&self) -> Result<()> {
        match self.ends.load(Ordering::Acquire) {
            true => Err(Error::Io("scrubbing was cut short, as the cell is being closed".into())),
            false => Ok(()),
        }
    }

    /// What is being scrubbed, and how far that is.
    pub(crate) fn runs(&self, pool: PoolId, run: ScrubRun) {
        *self.running.lock() = Some((pool, run));
    }

    /// One scrubs at a time; nothing when somebody does.
    pub fn begin(&self) -> Option<MutexGuard<'_, ()>> {
        self.alone.try_lock()
    }

    /// What is being scrubbed.
    pub fn running(&self) -> Option<(PoolId, ScrubRun)> {
        self.running.lock().clone()
    }
}

impl State {
    /// How often a pool is scrubbed, and how that went last.
    pub(crate) fn scrub_status(&self, pool: PoolId, now: i64) -> ScrubStatus {
        self.scrubs.status(pool, &self.pool_name(pool), now)
    }
}

impl Shard {
    /// One turn of the thread.
    pub(crate) fn scrub_turn(&self) {
        if !self.scrub_if_due() {
            self.scrubbing.wake.wait(LOOK_EVERY);
        }
    }

    /// Scrubs the pool that is due; `true` when there is one, and nobody scrubs already.
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

    /// Scrubs a pool, or the rest of it, and notes for good that it was whole, or how far it is. Who calls has [`Scrubbing::begin`].
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

    /// From now on a pool is scrubbed so often (0: never); `None`: all pools, whatever was said of single ones.
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

    /// See [`State::scrub_status`]; also what is going on now.
    pub(crate) fn scrub_status(&self, pool: PoolId) -> ScrubStatus {
        let running = self.scrubbing.running().filter(|(of, _)| *of == pool).map(|(_, run)| run);
        let status = self.lock().scrub_status(pool, self.now().secs);
        ScrubStatus { running, ..status }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u32 = 86_400;

    fn pass(begun_secs: i64) -> ScrubPass {
        ScrubPass { begun_secs, ended_secs: begun_secs + 1, found: ScrubInfo::default() }
    }

    fn record(secs: u32, since_secs: i64, last: Option<ScrubPass>) -> Option<ScrubRecord> {
        Some(ScrubRecord { every: Some(Every { secs, since_secs }), last })
    }

    #[test]
    fn what_was_missed_is_made_up_once_and_one_at_a_time() {
        let day = i64::from(DAY);
        let mut scrubs = Scrubs::default();
        assert_eq!(scrubs.due(&[0, 1], 100 * day), None);
        scrubs.set(ALL, record(DAY, 10 * day, None));
        assert_eq!(scrubs.due(&[0, 1], 11 * day - 1), None, "not before the next multiple");
        scrubs.set(1, Some(ScrubRecord { every: None, last: Some(pass(9 * day)) }));
        assert_eq!(scrubs.due(&[0, 1], 11 * day), Some(0), "never scrubbed");
        scrubs.set(0, Some(ScrubRecord { every: None, last: Some(pass(15 * day + 5)) }));
        assert_eq!(scrubs.due(&[0, 1], 15 * day + 6), Some(1));
        scrubs.failed(1, 15 * day + 6, "away".into());
        assert_eq!(scrubs.due(&[0, 1], 15 * day + 7), None);
        assert_eq!(scrubs.due(&[0, 1], 15 * day + 6 + RETRY_SECS), Some(1));
        scrubs.set(1, record(0, 15 * day, None));
        assert_eq!(scrubs.due(&[0, 1], 15 * day + 7), None, "of this one: never");
        assert_eq!(scrubs.due(&[0, 1], 16 * day), Some(0));
    }

    #[test]
    fn what_is_twice_its_interval_old_is_late() {
        let day = i64::from(DAY);
        let mut scrubs = Scrubs::default();
        assert!(!scrubs.status(0, "default", 100 * day).late, "nothing was asked for");
        scrubs.set(ALL, record(DAY, 10 * day, None));
        assert!(!scrubs.status(0, "default", 12 * day).late);
        assert!(scrubs.status(0, "default", 12 * day + 1).late);
        scrubs.set(0, Some(ScrubRecord { every: None, last: Some(pass(12 * day)) }));
        let status = scrubs.status(0, "default", 12 * day + 1);
        assert_eq!((status.late, status.next_secs), (false, Some(13 * day)));
    }
}
