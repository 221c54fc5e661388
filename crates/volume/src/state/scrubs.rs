//! How often each pool is scrubbed, when it last was, and the running scrub.

use crate::admin::{ScrubPass, ScrubRun, ScrubStatus};
use crate::format::schedule;
use crate::format::scrub::{ALL, Every, Reached, ScrubRecord};
use crate::state::State;
use crate::state::schedules::RETRY_SECS;
use crate::wake::Wake;
use leeward_data::PoolId;
use leeward_fs::{Error, Result};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stored records, and failures.
#[derive(Default)]
pub struct Scrubs {
    pub(crate) records: BTreeMap<PoolId, ScrubRecord>,
    /// Positions of unfinished scrubs.
    pub(crate) reached: BTreeMap<PoolId, Reached>,
    /// Time of the next try, and the error.
    pub(crate) failed: BTreeMap<PoolId, (i64, String)>,
}

impl Scrubs {
    /// Sets a record, or removes it.
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

    /// Sets the position of a scrub, see [`Effect::ScrubPlace`](crate::state::Effect::ScrubPlace).
    pub(crate) fn set_reached(&mut self, pool: PoolId, reached: Option<Reached>) {
        match reached {
            Some(reached) => drop(self.reached.insert(pool, reached)),
            None => drop(self.reached.remove(&pool)),
        }
    }

    /// The position where an unfinished scrub continues, unless there was a whole one since.
    pub(crate) fn reached(&self, pool: PoolId) -> Option<Reached> {
        let whole = self.last(pool).map(|last| last.begun_secs);
        self.reached.get(&pool).copied().filter(|reached| Some(reached.begun_secs) > whole)
    }

    pub(crate) fn get(&self, pool: PoolId) -> ScrubRecord {
        self.records.get(&pool).cloned().unwrap_or_default()
    }

    /// The interval of a pool; `None`: only on request.
    pub(crate) fn every(&self, pool: PoolId) -> Option<Every> {
        let said = |pool| self.records.get(&pool).and_then(|r: &ScrubRecord| r.every);
        said(pool).or_else(|| said(ALL)).filter(|every| every.secs > 0)
    }

    /// The record for a pool that is being made: the setting for all pools applies to it from now
    /// on.
    pub(crate) fn of_new(&self, now: i64) -> Option<ScrubRecord> {
        let every = self.every(ALL).map(|all| Every { since_secs: now, ..all });
        every.map(|every| ScrubRecord { every: Some(every), last: None })
    }

    pub(crate) fn last(&self, pool: PoolId) -> Option<&ScrubPass> {
        self.records.get(&pool)?.last.as_ref()
    }

    /// A pool that is due: the one that was scrubbed longest ago.
    pub(crate) fn due(&self, pools: &[PoolId], now: i64) -> Option<PoolId> {
        let is_due = |pool: &PoolId| {
            let Some(every) = self.every(*pool) else { return false };
            let ran = self.last(*pool).map_or(every.since_secs, |last| last.begun_secs);
            let rests = self.failed.get(pool).is_some_and(|(retry_at, _)| now < *retry_at);
            schedule::due(ran, now, every.secs).is_some() && !rests
        };
        let begun = |pool: &PoolId| self.last(*pool).map_or(i64::MIN, |last| last.begun_secs);
        pools.iter().copied().filter(is_due).min_by_key(begun)
    }

    pub(crate) fn failed(&mut self, pool: PoolId, now: i64, why: String) {
        self.failed.insert(pool, (now + RETRY_SECS, why));
    }

    pub(crate) fn status(&self, pool: PoolId, name: &str, now: i64) -> ScrubStatus {
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

/// The running scrub, and its position.
#[derive(Default)]
pub struct Scrubbing {
    /// Held by the thread that scrubs. Before all other locks.
    pub(crate) alone: Mutex<()>,
    /// Always taken alone.
    pub(crate) running: Mutex<Option<(PoolId, ScrubRun)>>,
    pub(crate) ends: AtomicBool,
    /// Wakes the thread.
    pub wake: Wake,
}

impl Scrubbing {
    /// The cell is being closed: a running scrub ends after its step.
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

    /// Sets the running scrub, and its position.
    pub(crate) fn runs(&self, pool: PoolId, run: ScrubRun) {
        *self.running.lock() = Some((pool, run));
    }

    /// Begins a scrub; `None` when another one runs.
    pub fn begin(&self) -> Option<MutexGuard<'_, ()>> {
        self.alone.try_lock()
    }

    /// The running scrub.
    pub fn running(&self) -> Option<(PoolId, ScrubRun)> {
        self.running.lock().clone()
    }
}

impl State {
    /// The interval of a pool, and the result of the last scrub.
    pub(crate) fn scrub_status(&self, pool: PoolId, now: i64) -> ScrubStatus {
        self.scrubs.status(pool, &self.pool_name(pool), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::ScrubInfo;

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
