//! What was counted before, so that pages can show rates and the day: in memory, bounded, and gone
//! with the process.
//!
//! The thread `console` looks once a minute. Of each five minutes it keeps how long operations in
//! the busiest volumes and calls of the stores took.

use super::ConsoleCell;
use leeward_env::histogram::Histogram;
use leeward_env::{Env, Nanos};
use leeward_vfs::ledger::{OpReport, Report};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time between two looks of the thread.
const STEP: Duration = Duration::from_secs(60);
/// Rates are over at least so long, nanoseconds.
const RATE_OVER_MIN: Nanos = 2_000_000_000;
/// A look that is no older is used again, nanoseconds.
const REUSED: Nanos = 2_000_000_000;
/// Looks that are kept for rates.
const LOOKS: usize = 4;
/// Length of a slice of the day, nanoseconds.
const SLICE: Nanos = 300_000_000_000;
/// Slices that are kept: a day.
const SLICES: usize = 288;
/// Volumes, and stores, of a slice: those with most operations.
const OF_SLICE_MAX: usize = 100;

/// What has its own times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timed {
    /// A volume, with its number.
    Volume(u32),
    /// Calls of a store.
    Store(String),
}

/// What was counted until a moment.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Flows, and the moment.
    pub report: Report,
    /// How long operations took, by door and kind.
    pub operations: Vec<OpReport>,
    /// How long operations in volumes and calls of stores took.
    pub times: BTreeMap<Timed, Histogram>,
    /// Names of those volumes.
    pub names: BTreeMap<u32, String>,
}

/// A slice of the day.
#[derive(Clone, Debug)]
pub struct Slice {
    /// When it ended, seconds since 1970.
    pub until_secs: i64,
    /// How long it was, seconds.
    pub secs: f64,
    /// What was done.
    pub points: Vec<Point>,
}

/// What was done in a slice.
#[derive(Clone, Debug)]
pub struct Point {
    /// In which volume, or with which store.
    pub of: Timed,
    /// Its name then.
    pub name: String,
    /// Operations.
    pub count: u64,
    /// Half of them took no longer, nanoseconds.
    pub p50: Nanos,
    /// All but a hundredth took no longer, nanoseconds.
    pub p99: Nanos,
}

/// See the module's head.
pub struct History {
    env: Env,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    looks: VecDeque<Arc<Look>>,
    slices: VecDeque<Slice>,
    /// Where the running slice began.
    begin: Option<Arc<Look>>,
}

impl History {
    /// Begins to look, until this is dropped.
    pub fn begin(env: &Env, cell: &Arc<dyn ConsoleCell>) -> Arc<History> {
        let history = Arc::new(History { env: env.clone(), inner: Mutex::default() });
        cell.look().into_iter().for_each(|look| drop(history.add(look)));
        let (weak, cell, env) = (Arc::downgrade(&history), Arc::downgrade(cell), env.clone());
        env.clone().spawn("console", move || {
            loop {
                env.sleep(STEP);
                let (Some(history), Some(cell)) = (Weak::upgrade(&weak), Weak::upgrade(&cell)) else {
                    return;
                };
                let Some(look) = cell.look() else { return };
                history.add(look);
            }
        });
        history
    }

    /// The look before, and one that is no older than a moment: looking at a large cell is work.
    pub fn now_and_before(&self, cell: &dyn ConsoleCell) -> Option<(Arc<Look>, Arc<Look>)> {
        let now = self.env.now();
        let is_new = |look: &&Arc<Look>| now.saturating_sub(look.report.at_nanos) < REUSED;
        let found = {
            let inner = self.inner.lock();
            let before = inner.looks.iter().rev().nth(1).cloned();
            inner.looks.back().filter(is_new).cloned().zip(before)
        };
        match found {
            Some((now, before)) => Some((before, now)),
            None => Some(self.add(cell.look()?)),
        }
    }

    /// Adds a look; returns the one before to compare it with, and itself.
    pub fn add(&self, look: Look) -> (Arc<Look>, Arc<Look>) {
        let now_secs = (self.env.wall() / 1_000_000_000) as i64;
        let mut inner = self.inner.lock();
        let now = Arc::new(look);
        inner.slice(&now, now_secs);
        let at = now.report.at_nanos;
        let is_before = |look: &&Arc<Look>| at.saturating_sub(look.report.at_nanos) >= RATE_OVER_MIN;
        let before = inner.looks.iter().rev().find(is_before).or(inner.looks.front()).cloned();
        let is_due =
            inner.looks.back().is_none_or(|last| at.saturating_sub(last.report.at_nanos) >= RATE_OVER_MIN);
        if is_due {
            inner.looks.push_back(now.clone());
            if inner.looks.len() > LOOKS {
                inner.looks.pop_front();
            }
        }
        (before.unwrap_or_else(|| now.clone()), now)
    }

    /// The slices of the last day, the oldest first.
    pub fn day(&self) -> Vec<Slice> {
        self.inner.lock().slices.iter().cloned().collect()
    }
}

impl Inner {
    fn slice(&mut self, now: &Arc<Look>, now_secs: i64) {
        let Some(begin) = &self.begin else {
            self.begin = Some(now.clone());
            return;
        };
        let took = now.report.at_nanos.saturating_sub(begin.report.at_nanos);
        if took < SLICE {
            return;
        }
        let point = |(of, all): (&Timed, &Histogram)| {
            let took = since(all, begin.times.get(of));
            let name = match of {
                Timed::Volume(id) => now.names.get(id).cloned().unwrap_or_else(|| "(snapshots)".into()),
                Timed::Store(name) => name.clone(),
            };
            let (count, p50, p99) = (took.count(), took.quantile(0.5), took.quantile(0.99));
            (count > 0).then(|| Point { of: of.clone(), name, count, p50, p99 })
        };
        let mut points: Vec<Point> = now.times.iter().filter_map(point).collect();
        points.sort_by_key(|point| std::cmp::Reverse(point.count));
        let (mut volumes, mut stores) = (0, 0);
        points.retain(|point| {
            let of = if matches!(point.of, Timed::Volume(_)) { &mut volumes } else { &mut stores };
            *of += 1;
            *of <= OF_SLICE_MAX
        });
        self.slices.push_back(Slice { until_secs: now_secs, secs: took as f64 / 1e9, points });
        if self.slices.len() > SLICES {
            self.slices.pop_front();
        }
        self.begin = Some(now.clone());
    }
}

/// What came in between. What was counted anew meanwhile began at zero.
pub fn since(now: &Histogram, before: Option<&Histogram>) -> Histogram {
    let Some(before) = before.filter(|before| before.count() <= now.count()) else { return now.clone() };
    Histogram {
        counts: std::array::from_fn(|n| now.counts[n].saturating_sub(before.counts[n])),
        nanos: now.nanos.saturating_sub(before.nanos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_secs: u64, counts: u64) -> Look {
        let mut took = Histogram::default();
        (0..counts).for_each(|n| took.add(if n % 100 == 99 { 9_000_000 } else { 900_000 }));
        let report = Report { at_nanos: at_secs * 1_000_000_000, ..Report::default() };
        let times = [(Timed::Volume(7), took.clone()), (Timed::Store("default: get".into()), took)].into();
        Look { report, times, names: [(7, "home".to_owned())].into(), ..Look::default() }
    }

    fn history() -> History {
        History { env: Env::sim(1), inner: Mutex::default() }
    }

    #[test]
    fn rates_are_over_two_seconds_at_least() {
        let history = history();
        let at = |(before, now): (Arc<Look>, Arc<Look>)| {
            (before.report.at_nanos / 1_000_000_000, now.report.at_nanos / 1_000_000_000)
        };
        assert_eq!(at(history.add(look(10, 0))), (10, 10), "nothing is known before");
        assert_eq!(at(history.add(look(11, 0))), (10, 11));
        assert_eq!(at(history.add(look(13, 0))), (10, 13));
        assert_eq!(at(history.add(look(14, 0))), (10, 14));
        assert_eq!(at(history.add(look(70, 0))), (13, 70));
        assert!(history.inner.lock().looks.len() <= LOOKS);
    }

    #[test]
    fn a_day_is_kept_in_slices() {
        let history = history();
        (0..2 * SLICES as u64 + 10).for_each(|n| drop(history.add(look(n * 300, n * 1000))));
        let day = history.day();
        assert_eq!(day.len(), SLICES);
        let point = &day[0].points[0];
        assert_eq!((day[0].secs, point.count), (300.0, 1000));
        assert!(point.p50 < 2_000_000 && point.p99 > 1_000_000, "{point:?}");
        assert!(day[0].points.iter().any(|point| point.name == "home"));
    }

    #[test]
    fn what_began_again_counts_from_zero() {
        let (few, many) = (look(0, 3), look(0, 10));
        let of = |look: &Look| look.times[&Timed::Volume(7)].clone();
        assert_eq!(since(&of(&few), Some(&of(&many))).count(), 3);
        assert_eq!(since(&of(&many), Some(&of(&few))).count(), 7);
    }
}
