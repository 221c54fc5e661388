//! Phases with the names and sizes of IO500: the cost of metadata (mdtest) and data (ior), each in
//! the easy and the hard way.
//!
//! Easy is what a careful program does: files of its own in a directory of its own, 2 MiB at a
//! time. Hard is all in one directory (files of 3,901 bytes) and all in one file (47,008 bytes at a
//! time, by turns). Every phase is limited: a write phase ends when its time is over or its share
//! of the space is used; later phases work on what was written. Data is read, and files are looked
//! up, by another thread than wrote them, after the kernel was asked to drop its caches.
//!
//! This is no IO500 submission: one machine, seconds instead of minutes. The figures compare file
//! systems on one machine.

use crate::probe::noise;
use crate::scratch;
use crate::stats::geometric_mean;
use crate::stop::Stop;
use crate::{Refused, sys, text};
use leeward_env::{Env, Nanos};
use parking_lot::Mutex;
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of a transfer of ior-easy.
const EASY_BYTES: usize = 2 << 20;
/// Bytes of a transfer of ior-hard.
const HARD_BYTES: usize = 47_008;
/// Bytes of a file of mdtest-hard.
const HARD_FILE_BYTES: usize = 3901;
/// What a file counts for where space is shared out.
const FILE_SPACE: u64 = 4096;
/// How often `watch` gets the progress.
const TICK: Duration = Duration::from_millis(100);

/// A set of phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// mdtest and find.
    Metadata,
    /// ior.
    Data,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A directory on the file system.
    pub path: PathBuf,
    /// The phases to run.
    pub suite: Suite,
    /// Number of threads.
    pub threads: u64,
    /// Longest duration of a write phase.
    pub lasts: Duration,
    /// Most bytes that may be stored.
    pub space_bytes: u64,
    /// Whether a snapshot is taken before each phase but the first.
    pub snapshots: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Which kind of answer this is.
    pub reply: &'static str,
    /// The path that was measured.
    pub path: String,
    /// Its file system.
    pub file_system: String,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Number of threads.
    pub threads: u64,
    /// Bytes that might be stored.
    pub space_bytes: u64,
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// The geometric mean of all rates, when no phase is without one. Thousands of operations a
    /// second, or GiB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
    /// What could not be removed, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// One phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Its name in IO500.
    pub name: &'static str,
    /// Operations that succeeded: files, or transfers.
    pub ops: u64,
    /// Bytes of these, of a phase that moves data.
    pub bytes: u64,
    /// How long it took, with the fsync that ends a write.
    pub seconds: f64,
    /// The rate.
    pub rate: f64,
    /// Of what: `kIOPS` or `GiB/s`.
    pub unit: &'static str,
    /// Operations that failed.
    pub errors: u64,
    /// The errno of the first one that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// What ended it.
    pub ended_by: Ended,
    /// How long the snapshot before it took, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_us: Option<f64>,
}

/// What ended a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// All was done.
    Done,
    /// All of the space was used.
    Space,
    /// The time was over.
    Time,
    /// An error of a write.
    Error,
    /// Somebody asked.
    Stopped,
}

/// The phases of a suite, as IO500 orders them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    IorEasyWrite,
    IorHardWrite,
    IorEasyRead,
    IorHardRead,
    MdEasyWrite,
    MdHardWrite,
    Find,
    MdEasyStat,
    MdHardStat,
    MdEasyDelete,
    MdHardRead,
    MdHardDelete,
}

impl Step {
    fn of(suite: Suite) -> &'static [Step] {
        match suite {
            Suite::Data => &[Step::IorEasyWrite, Step::IorHardWrite, Step::IorEasyRead, Step::IorHardRead],
            Suite::Metadata => &[
                Step::MdEasyWrite,
                Step::MdHardWrite,
                Step::Find,
                Step::MdEasyStat,
                Step::MdHardStat,
                Step::MdEasyDelete,
                Step::MdHardRead,
                Step::MdHardDelete,
            ],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Step::IorEasyWrite => "ior-easy-write",
            Step::IorHardWrite => "ior-hard-write",
            Step::IorEasyRead => "ior-easy-read",
            Step::IorHardRead => "ior-hard-read",
            Step::MdEasyWrite => "mdtest-easy-write",
            Step::MdHardWrite => "mdtest-hard-write",
            Step::Find => "find",
            Step::MdEasyStat => "mdtest-easy-stat",
            Step::MdHardStat => "mdtest-hard-stat",
            Step::MdEasyDelete => "mdtest-easy-delete",
            Step::MdHardRead => "mdtest-hard-read",
            Step::MdHardDelete => "mdtest-hard-delete",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Step::IorEasyWrite | Step::IorHardWrite | Step::MdEasyWrite | Step::MdHardWrite)
    }
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The phase.
    pub phase: &'static str,
    /// Operations done in it.
    pub done: u64,
    /// Of how many, 0: as many as there is time for.
    pub total: u64,
}

/// Runs the plan; `watch` gets the progress.
///
/// # Errors
/// A path that cannot be measured. What fails later is a result.
pub fn run(env: &Env, plan: &Plan, stop: &Stop, watch: &mut dyn FnMut(&Progress)) -> Result<Report, Refused> {
    let place = scratch::checked(env, &plan.path, "lee-lab")?;
    check_space(plan)?;
    if plan.snapshots && fs::metadata(place.dir().join(".snap")).is_err() {
        let path = plan.path.display();
        return Err(Refused(format!(
            "{path}: there is no .snap here, so no snapshots: leave --snapshots out"
        )));
    }
    let bench = Bench::new(env, plan, stop, place.dir());
    let mut phases = Vec::new();
    for (number, step) in Step::of(plan.suite).iter().enumerate() {
        let before = if plan.snapshots && number > 0 { snapshot(env, place.dir(), number)? } else { None };
        if stop.asked() {
            break;
        }
        let phase = bench.phase(*step, watch).map_err(|e| Refused::at(&plan.path, step.name(), &e))?;
        phases.push(Phase { snapshot_us: before, ..phase });
    }
    watch(&Progress { phase: "cleaning up", done: 0, total: 0 });
    bench.clean();
    let dir = place.dir().display().to_string();
    let left = place.remove().err().map(|e| format!("{dir}: cannot be removed: {}", text::cause(&e)));
    let whole = phases.len() == Step::of(plan.suite).len();
    let rates: Vec<f64> = phases.iter().map(|phase| phase.rate).collect();
    Ok(Report {
        reply: match plan.suite {
            Suite::Metadata => "md",
            Suite::Data => "io",
        },
        path: plan.path.display().to_string(),
        file_system: sys::file_system(&plan.path),
        at_ms: env.wall() / 1_000_000,
        threads: plan.threads,
        space_bytes: plan.space_bytes,
        mean: if whole { geometric_mean(&rates) } else { None },
        phases,
        stopped: stop.asked(),
        left,
    })
}

fn check_space(plan: &Plan) -> Result<(), Refused> {
    let path = plan.path.display();
    let space = sys::space(&plan.path).map_err(|e| Refused::at(&plan.path, "cannot say what is free", &e))?;
    let (free, wanted) = (space.free_bytes >> 20, plan.space_bytes >> 20);
    if space.free_bytes / 20 * 19 < plan.space_bytes {
        return Err(Refused(format!(
            "{path}: {free} MiB are free, {wanted} MiB are wanted: give less with --space, or make room"
        )));
    }
    if plan.suite == Suite::Metadata && space.free_files < plan.space_bytes / FILE_SPACE {
        let (free, wanted) = (space.free_files, plan.space_bytes / FILE_SPACE);
        return Err(Refused(format!(
            "{path}: {free} files may still be made, {wanted} are wanted: give less with --space, or remove some"
        )));
    }
    let least = plan.threads * 4 * EASY_BYTES as u64;
    if plan.space_bytes < least {
        return Err(Refused(format!(
            "--space: {wanted} MiB are too little for {} threads: give {} MiB at least, or fewer threads",
            plan.threads,
            least >> 20
        )));
    }
    Ok(())
}

/// Takes a snapshot; how long that took.
fn snapshot(env: &Env, dir: &Path, number: usize) -> Result<Option<f64>, Refused> {
    let began = env.now();
    let taken = fs::create_dir(dir.join(format!(".snap/phase{number}")));
    taken.map_err(|e| Refused::at(dir, "cannot take a snapshot", &e))?;
    Ok(Some(crate::stats::micros(env.now() - began)))
}

/// What threads did in a phase.
#[derive(Clone, Debug, Default)]
struct Tally {
    ops: u64,
    errors: u64,
    first_error: Option<String>,
    ended: Option<Ended>,
}

impl Tally {
    /// Counts a result; says whether it was good.
    fn count(&mut self, done: io::Result<()>) -> bool {
        match done {
            Ok(()) => self.ops += 1,
            Err(e) => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| text::errno(&e));
                return false;
            }
        }
        true
    }

    fn merge(mut self, other: Tally) -> Tally {
        self.ops += other.ops;
        self.errors += other.errors;
        self.first_error = self.first_error.or(other.first_error);
        self.ended = self.ended.max(other.ended);
        self
    }
}

/// What all phases and threads share.
#[derive(Clone)]
struct Bench {
    env: Env,
    stop: Stop,
    dir: PathBuf,
    threads: u64,
    lasts: Duration,
    /// Transfers and files that one thread may write, easy and hard.
    most: Counts,
    /// What each thread wrote.
    written: Arc<Mutex<Vec<Counts>>>,
    done: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    easy: u64,
    hard: u64,
}

impl Counts {
    fn of(&mut self, easy: bool) -> &mut u64 {
        if easy { &mut self.easy } else { &mut self.hard }
    }
}

impl Bench {
    fn new(env: &Env, plan: &Plan, stop: &Stop, dir: &Path) -> Bench {
        let each = plan.space_bytes / plan.threads;
        let most = match plan.suite {
            Suite::Metadata => Counts { easy: each / 2 / FILE_SPACE, hard: each / 2 / FILE_SPACE },
            Suite::Data => Counts { easy: each / 2 / EASY_BYTES as u64, hard: each / 2 / HARD_BYTES as u64 },
        };
        Bench {
            env: env.clone(),
            stop: stop.clone(),
            dir: dir.to_path_buf(),
            threads: plan.threads,
            lasts: plan.lasts,
            most,
            written: Arc::new(Mutex::new(vec![Counts::default(); plan.threads as usize])),
            done: Arc::default(),
        }
    }

    fn phase(&self, step: Step, watch: &mut dyn FnMut(&Progress)) -> io::Result<Phase> {
        self.before(step)?;
        self.done.store(0, Ordering::Relaxed);
        let total = if step.writes() { 0 } else { self.expected(step) };
        let mut directories: Vec<_> = (0..self.threads).map(|thread| self.own_dir(thread)).collect();
        directories.push(self.shared_dir());
        let queue = Arc::new(Mutex::new(directories));
        let began = self.env.now();
        let one = |thread| {
            let (bench, queue) = (self.clone(), queue.clone());
            self.env.spawn("lab-phase", move || bench.work(step, thread, began, &queue))
        };
        let threads: Vec<_> = (0..self.threads).map(one).collect();
        while !threads.iter().all(|t| t.is_finished()) {
            watch(&Progress { phase: step.name(), done: self.done.load(Ordering::Relaxed), total });
            // Short phases are to be measured, too.
            self.env.sleep(if self.env.now() - began > 1_000_000_000 { TICK } else { TICK / 50 });
        }
        let seconds = (self.env.now() - began) as f64 / 1e9;
        let panicked = || Tally { errors: 1, ..Tally::default() };
        let all = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked()));
        Ok(phase_of(step, all.fold(Tally::default(), Tally::merge), seconds))
    }

    /// Makes directories and files that belong to no thread's measured work.
    fn before(&self, step: Step) -> io::Result<()> {
        match step {
            Step::MdEasyWrite => {
                (0..self.threads).try_for_each(|thread| fs::create_dir(self.own_dir(thread)))
            }
            Step::MdHardWrite => fs::create_dir(self.shared_dir()),
            Step::IorHardWrite => File::create(self.shared_file()).map(|_| ()),
            Step::IorEasyRead => (0..self.threads).try_for_each(|thread| forget(&self.own_file(thread))),
            Step::IorHardRead => forget(&self.shared_file()),
            _ => Ok(()),
        }
    }

    fn expected(&self, step: Step) -> u64 {
        let written = self.written.lock();
        let sum = |of: fn(&Counts) -> u64| written.iter().map(of).sum();
        match step {
            Step::Find => sum(|c| c.easy + c.hard),
            Step::IorEasyRead | Step::MdEasyStat | Step::MdEasyDelete => sum(|c| c.easy),
            _ => sum(|c| c.hard),
        }
    }

    fn work(&self, step: Step, thread: u64, began: Nanos, queue: &Mutex<Vec<PathBuf>>) -> Tally {
        // Another thread's work is read and looked at; each removes its own.
        let other = (thread + 1) % self.threads;
        let written = |thread: u64| self.written.lock()[thread as usize];
        match step {
            Step::IorEasyWrite | Step::IorHardWrite => self.write_data(step, thread, began),
            Step::IorEasyRead | Step::IorHardRead => self.read_data(step, other),
            Step::MdEasyWrite => self.write(true, thread, began, |i| {
                File::create(self.own_dir(thread).join(format!("f{i}"))).map(|_| ())
            }),
            Step::MdHardWrite => {
                let content = noise(HARD_FILE_BYTES, thread);
                self.write(false, thread, began, |i| {
                    File::create(self.shared_name(thread, i))?.write_all(&content)
                })
            }
            Step::Find => self.find(queue),
            Step::MdEasyStat => self.each(written(other).easy, |i| {
                sys::stat_fresh(&self.own_dir(other).join(format!("f{i}"))).map(|_| ())
            }),
            Step::MdHardStat => {
                self.each(written(other).hard, |i| sys::stat_fresh(&self.shared_name(other, i)).map(|_| ()))
            }
            Step::MdEasyDelete => self
                .each(written(thread).easy, |i| fs::remove_file(self.own_dir(thread).join(format!("f{i}")))),
            Step::MdHardRead => {
                let expected = noise(HARD_FILE_BYTES, other);
                let mut bytes = vec![0; HARD_FILE_BYTES];
                self.each(written(other).hard, |i| {
                    let mut file = File::open(self.shared_name(other, i))?;
                    sys::forget_data(&file);
                    file.read_exact(&mut bytes)?;
                    same(&bytes, &expected)
                })
            }
            Step::MdHardDelete => {
                self.each(written(thread).hard, |i| fs::remove_file(self.shared_name(thread, i)))
            }
        }
    }

    /// Writes until the time is over, the space is used, or something fails; notes how much.
    fn write(
        &self,
        easy: bool,
        thread: u64,
        began: Nanos,
        mut one: impl FnMut(u64) -> io::Result<()>,
    ) -> Tally {
        let (mut tally, mut most) = (Tally::default(), self.most);
        let end = began + self.lasts.as_nanos() as u64;
        let ended = loop {
            if tally.ops == *most.of(easy) {
                break Ended::Space;
            }
            if self.stop.asked() {
                break Ended::Stopped;
            }
            if self.env.now() >= end {
                break Ended::Time;
            }
            if !tally.count(one(tally.ops)) {
                break Ended::Error;
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        };
        tally.ended = Some(ended);
        *self.written.lock()[thread as usize].of(easy) = tally.ops;
        tally
    }

    fn write_data(&self, step: Step, thread: u64, began: Nanos) -> Tally {
        let easy = step == Step::IorEasyWrite;
        let opened = match easy {
            true => File::create(self.own_file(thread)),
            false => OpenOptions::new().write(true).open(self.shared_file()),
        };
        let file = match opened {
            Ok(file) => file,
            Err(e) => {
                let mut tally = Tally { ended: Some(Ended::Error), ..Tally::default() };
                tally.count(Err(e));
                return tally;
            }
        };
        let mut bytes = noise(if easy { EASY_BYTES } else { HARD_BYTES }, thread);
        let mut tally = self.write(easy, thread, began, |i| {
            stamp(&mut bytes, thread, i);
            file.write_all_at(&bytes, self.offset(easy, thread, i))
        });
        if let Err(e) = file.sync_all() {
            tally.errors += 1;
            tally.first_error.get_or_insert_with(|| text::errno(&e));
        }
        tally
    }

    fn read_data(&self, step: Step, other: u64) -> Tally {
        let easy = step == Step::IorEasyRead;
        let path = if easy { self.own_file(other) } else { self.shared_file() };
        let written = *self.written.lock()[other as usize].of(easy);
        let mut expected = noise(if easy { EASY_BYTES } else { HARD_BYTES }, other);
        let mut bytes = vec![0; expected.len()];
        let file = File::open(path);
        self.each(written, |i| {
            let file = file
                .as_ref()
                .map_err(|e| io::Error::from_raw_os_error(e.raw_os_error().unwrap_or(libc::EIO)))?;
            file.read_exact_at(&mut bytes, self.offset(easy, other, i))?;
            stamp(&mut expected, other, i);
            same(&bytes, &expected)
        })
    }

    /// Easy files belong to a thread; in the hard one threads take turns.
    fn offset(&self, easy: bool, thread: u64, i: u64) -> u64 {
        if easy { i * EASY_BYTES as u64 } else { (i * self.threads + thread) * HARD_BYTES as u64 }
    }

    fn each(&self, count: u64, mut one: impl FnMut(u64) -> io::Result<()>) -> Tally {
        let mut tally = Tally { ended: Some(Ended::Done), ..Tally::default() };
        for i in 0..count {
            if self.stop.asked() {
                tally.ended = Some(Ended::Stopped);
                break;
            }
            tally.count(one(i));
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        tally
    }

    /// Looks at every file: its name and size. A directory is one thread's work.
    fn find(&self, queue: &Mutex<Vec<PathBuf>>) -> Tally {
        let mut tally = Tally { ended: Some(Ended::Done), ..Tally::default() };
        loop {
            // The guard must not live through the work: others find there what this one leaves.
            let next = queue.lock().pop();
            let Some(dir) = next else { return tally };
            match fs::read_dir(&dir) {
                Err(e) => drop(tally.count(Err(e))),
                Ok(entries) => {
                    for entry in entries.take_while(|_| !self.stop.asked()) {
                        tally.count(entry.and_then(|entry| sys::stat_fresh(&entry.path()).map(|_| ())));
                        self.done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            if self.stop.asked() {
                tally.ended = Some(Ended::Stopped);
            }
        }
    }

    /// Removes what is left, by as many threads as made it.
    fn clean(&self) {
        let remove = |thread| {
            let bench = self.clone();
            self.env.spawn("lab-clean", move || {
                // What is left here is removed with the whole directory.
                let _ = fs::remove_dir_all(bench.own_dir(thread));
                let hard = bench.written.lock()[thread as usize].hard;
                (0..hard).for_each(|i| drop(fs::remove_file(bench.shared_name(thread, i))));
            })
        };
        let all: Vec<_> = (0..self.threads).map(remove).collect();
        for thread in all {
            let _ = thread.join();
        }
    }

    fn own_dir(&self, thread: u64) -> PathBuf {
        self.dir.join(format!("easy{thread}"))
    }

    fn own_file(&self, thread: u64) -> PathBuf {
        self.dir.join(format!("ior-easy{thread}"))
    }

    fn shared_dir(&self) -> PathBuf {
        self.dir.join("hard")
    }

    fn shared_file(&self) -> PathBuf {
        self.dir.join("ior-hard")
    }

    fn shared_name(&self, thread: u64, i: u64) -> PathBuf {
        self.shared_dir().join(format!("t{thread}.{i}"))
    }
}

fn phase_of(step: Step, tally: Tally, seconds: f64) -> Phase {
    let (transfer, unit) = match step {
        Step::IorEasyWrite | Step::IorEasyRead => (EASY_BYTES, "GiB/s"),
        Step::IorHardWrite | Step::IorHardRead => (HARD_BYTES, "GiB/s"),
        Step::MdHardWrite | Step::MdHardRead => (HARD_FILE_BYTES, "kIOPS"),
        _ => (0, "kIOPS"),
    };
    let bytes = tally.ops * transfer as u64;
    let amount = if unit == "GiB/s" { bytes as f64 / f64::from(1 << 30) } else { tally.ops as f64 / 1e3 };
    Phase {
        name: step.name(),
        ops: tally.ops,
        bytes,
        seconds,
        rate: amount / seconds.max(1e-9),
        unit,
        errors: tally.errors,
        first_error: tally.first_error,
        ended_by: tally.ended.unwrap_or(Ended::Error),
        snapshot_us: None,
    }
}

/// Makes a transfer differ from all others.
fn stamp(bytes: &mut [u8], thread: u64, i: u64) {
    bytes[..8].copy_from_slice(&i.to_le_bytes());
    bytes[8..16].copy_from_slice(&thread.to_le_bytes());
}

/// What was read must be what was written.
fn same(read: &[u8], written: &[u8]) -> io::Result<()> {
    if read == written { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADMSG)) }
}

fn forget(path: &Path) -> io::Result<()> {
    File::open(path).map(|file| sys::forget_data(&file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(path: &Path, suite: Suite) -> Plan {
        let lasts = Duration::from_secs(1);
        Plan { path: path.into(), suite, threads: 2, lasts, space_bytes: 32 << 20, snapshots: false }
    }

    #[test]
    fn all_phases_run_and_nothing_is_left() {
        for (suite, count) in [(Suite::Metadata, 8), (Suite::Data, 4)] {
            let dir = tempfile::tempdir().expect("a directory");
            let found =
                run(&Env::real(), &plan(dir.path(), suite), &Stop::default(), &mut |_| {}).expect("runs");
            assert_eq!(found.phases.len(), count);
            for phase in &found.phases {
                assert!(phase.ops > 0 && phase.errors == 0 && phase.rate > 0.0, "{phase:?}");
            }
            assert!(found.mean.is_some_and(|mean| mean > 0.0) && found.left.is_none());
            let (first, last) = (&found.phases[0], &found.phases[count - 1]);
            assert!(matches!(first.ended_by, Ended::Time | Ended::Space), "{first:?}");
            assert_eq!(last.ops, found.phases[1].ops, "what was written is what is read and removed");
            assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 0);
        }
    }

    #[test]
    fn space_bounds_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut small = plan(dir.path(), Suite::Data);
        (small.lasts, small.space_bytes) = (Duration::from_secs(60), 16 << 20);
        let found = run(&Env::real(), &small, &Stop::default(), &mut |_| {}).expect("runs");
        let written: u64 = found.phases[..2].iter().map(|phase| phase.bytes).sum();
        assert!(written <= 16 << 20 && written > 15 << 20, "{written}");
        assert_eq!(found.phases[0].ended_by, Ended::Space);
        small.space_bytes = 1 << 20;
        let refused = run(&Env::real(), &small, &Stop::default(), &mut |_| {}).unwrap_err();
        assert!(refused.0.contains("too little for 2 threads"), "{refused}");
        small.space_bytes = u64::MAX;
        let refused = run(&Env::real(), &small, &Stop::default(), &mut |_| {}).unwrap_err();
        assert!(refused.0.contains("give less with --space"), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 0);
    }

    #[test]
    fn a_stop_ends_it_and_cleans_up() {
        let dir = tempfile::tempdir().expect("a directory");
        let (stop, mut long) = (Stop::default(), plan(dir.path(), Suite::Metadata));
        long.lasts = Duration::from_secs(60);
        let found = run(&Env::real(), &long, &stop, &mut |progress| {
            if progress.done > 10 {
                stop.ask();
            }
        });
        let found = found.expect("runs");
        assert!(found.stopped && found.mean.is_none());
        assert_eq!(found.phases[0].ended_by, Ended::Stopped);
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 0);
    }

    #[test]
    fn wrong_data_is_an_error() {
        assert_eq!(text::errno(&same(b"a", b"b").unwrap_err()), "EBADMSG");
        let (mut a, mut b) = (noise(32, 1), noise(32, 1));
        stamp(&mut a, 0, 1);
        stamp(&mut b, 1, 0);
        assert!(same(&a, &b).is_err());
    }

    #[test]
    fn no_snapshots_where_there_are_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut wanted = plan(dir.path(), Suite::Data);
        wanted.snapshots = true;
        let refused = run(&Env::real(), &wanted, &Stop::default(), &mut |_| {}).unwrap_err();
        assert!(refused.0.contains("leave --snapshots out"), "{refused}");
    }
}
