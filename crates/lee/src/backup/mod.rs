//! Backups of volumes in repositories of restic's format, made by the process that serves the cell:
//! `lee backup`.
//!
//! Which there are the cell stores ([`admin::BackupInfo`]), and what came of the last run and the
//! last test. A thread looks which are due; each run and each test has a thread ([`run`]). Errors
//! and the progress of runs are in memory.
//!
//! Locks: the state of all backups; it is not held while anybody is asked.

pub mod repositories;
mod run;
mod source;
#[cfg(test)]
mod tests;

use crate::control::server::failure;
use leeward_env::{Env, Nanos};
use leeward_restic::Watch;
use leeward_volume::Cell;
use leeward_volume::admin::{self, BackupInfo, Failure, Progress};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The word of the tag that says which volume a backup in a repository is of.
pub const VOLUME_TAG: &str = run::VOLUME;
/// How often it is looked which are due.
const LOOK: Duration = Duration::from_secs(1);
/// Runs at the same time: each holds the index of its repository in memory.
const RUNS_MAX: usize = 1;
/// After a failure it is tried again after this time, doubled with each up to the longest.
const RETRY: Duration = Duration::from_secs(30);
const RETRY_MAX: Duration = Duration::from_secs(3600);
/// A test that is due for so long, or for its interval where that is shorter, has not run.
const TEST_WAIT_SECS: u32 = 86_400;
/// How long the end of the process waits for runs to end.
const END_WAIT: Duration = Duration::from_secs(10);
const SECOND: u64 = 1_000_000_000;

/// What is asked about backups. The answer is a list of [`BackupStatus`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum BackupCall {
    /// Make one, with its repository where there is none; or change it.
    Add {
        /// What it is to be.
        backup: Box<BackupInfo>,
    },
    /// How they are.
    List {
        /// Which.
        which: Which,
    },
    /// Back up now.
    Run {
        /// Which.
        which: Which,
        /// Whether what nothing refers to is removed from the repository, too.
        prune: bool,
        /// Whether all is read, also what has not changed.
        all: bool,
    },
    /// Compare what the last backup gives back with the snapshot that it was made of.
    Test {
        /// Which.
        which: Which,
    },
    /// Back up no more.
    Remove {
        /// Which.
        which: Which,
    },
}

/// Which backups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Which {
    /// Of this volume; `None`: of all.
    pub volume: Option<String>,
    /// To this place; `None`: to any.
    pub to: Option<String>,
}

impl Which {
    fn has(&self, backup: &BackupInfo) -> bool {
        self.volume.as_ref().is_none_or(|volume| *volume == backup.volume)
            && self.to.as_ref().is_none_or(|to| *to == backup.to)
    }
}

/// How a backup is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupStatus {
    /// What it is.
    #[serde(flatten)]
    pub backup: BackupInfo,
    /// In a word.
    pub state: BackupState,
    /// How old the last backup is, seconds: what was changed since is lost with this cell.
    pub age_secs: Option<i64>,
    /// Whether that is more than twice the interval.
    pub late: bool,
    /// What a run at work does.
    pub progress: Option<Progress>,
    /// Why the last run failed.
    pub error: Option<String>,
    /// What the last run could not do, though the backup was made.
    pub note: Option<String>,
    /// How old the last test is, seconds.
    pub test_age_secs: Option<i64>,
    /// Whether a test should have been, and was not.
    pub test_late: bool,
    /// Why the last test did not come to its end.
    pub test_error: Option<String>,
}

impl BackupStatus {
    /// Why an operator must look at it.
    pub fn why_bad(&self) -> String {
        match (&self.backup.tested, &self.error) {
            (Some(tested), _) if differs(&self.backup) => {
                format!(
                    "backup {} does not give back what it was made of: see lee backup test",
                    &tested.id[..8]
                )
            }
            (_, Some(error)) => error.clone(),
            _ if self.late => "it is older than it should be".into(),
            _ => {
                let why = self.test_error.as_ref().map_or_else(String::new, |why| format!(": {why}"));
                format!("whether it can be restored was not tested{why}: see lee backup test")
            }
        }
    }

    /// Whether an operator must look at it.
    pub fn is_bad(&self) -> bool {
        self.late || self.test_late || self.state == BackupState::Failing || differs(&self.backup)
    }
}

/// Whether the last test has found that a backup does not give back what it was made of.
fn differs(backup: &BackupInfo) -> bool {
    backup.tested.as_ref().is_some_and(|tested| tested.difference_count > 0)
}

/// How a backup is, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackupState {
    /// None was made yet.
    #[default]
    New,
    /// The last one was made.
    Good,
    /// A run is at work.
    Running,
    /// The last run has failed.
    Failing,
    /// The volume is a copy of one of another cell: that one is backed up there.
    Copy,
}

/// Names a backup: volume, place.
type Id = (String, String);

fn id_of(backup: &BackupInfo) -> Id {
    (backup.volume.clone(), backup.to.clone())
}

/// What is known of a backup.
#[derive(Clone, Default)]
struct State {
    running: bool,
    progress: Option<Progress>,
    runs: Attempts,
    tests: Attempts,
    note: Option<String>,
}

/// What came of the last attempts to do something.
#[derive(Clone, Default)]
struct Attempts {
    /// The next is not before this.
    next: Nanos,
    failures: u32,
    error: Option<String>,
}

impl Attempts {
    fn failed(&mut self, why: String, now: Nanos) {
        let wait = RETRY.saturating_mul(1 << self.failures.min(10)).min(RETRY_MAX);
        self.next = now + wait.as_nanos() as u64;
        self.failures += 1;
        self.error = Some(why);
    }
}

/// What a thread does for a backup.
#[derive(Clone, Copy)]
enum Task {
    Backup { prune: bool, all: bool },
    Test,
}

/// All backups of a cell.
pub struct Backups(Arc<Shared>);

struct Shared {
    env: Env,
    cell: Arc<Cell>,
    states: Mutex<BTreeMap<Id, State>>,
    /// A run has ended.
    changed: Condvar,
    ended: AtomicBool,
}

impl Backups {
    /// Begins to back up what is due.
    pub fn start(env: &Env, cell: &Arc<Cell>) -> Backups {
        let shared = Arc::new(Shared {
            env: env.clone(),
            cell: cell.clone(),
            states: Mutex::default(),
            changed: Condvar::new(),
            ended: AtomicBool::new(false),
        });
        let of = shared.clone();
        env.spawn("backups", move || {
            while !of.has_ended() {
                of.look();
                of.env.sleep(LOOK);
            }
        });
        Backups(shared)
    }

    /// Has all runs end. Returns until when that is waited for.
    pub fn end(&self) -> Nanos {
        self.0.ended.store(true, Ordering::Release);
        self.0.env.now() + END_WAIT.as_nanos() as u64
    }

    /// Waits until all runs have ended, not longer than until then.
    pub fn await_end(&self, until: Nanos) {
        let shared = &self.0;
        let mut states = shared.states.lock();
        while states.values().any(|state| state.running) && shared.env.now() < until {
            shared.changed.wait_for(&mut states, LOOK);
        }
    }

    /// How all are.
    ///
    /// # Errors
    /// The cell's.
    pub fn status(&self) -> Result<Vec<BackupStatus>, Failure> {
        self.0.status(&Which::default())
    }

    /// Those that an operator must look at, in words.
    pub fn troubles(&self) -> Vec<String> {
        let bad = self.status().unwrap_or_default().into_iter().filter(BackupStatus::is_bad);
        bad.map(|status| {
            let BackupInfo { volume, to, .. } = &status.backup;
            let why = status.why_bad();
            format!("the backup of volume {volume} to {to}: {why}")
        })
        .collect()
    }

    /// Answers a call.
    ///
    /// # Errors
    /// Why it is not done.
    pub fn answer(
        &self,
        call: &BackupCall,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<BackupStatus>, Failure> {
        match call {
            BackupCall::Add { backup } => self.0.add(backup),
            BackupCall::List { which } => self.0.some(which).and_then(|_| self.0.status(which)),
            BackupCall::Run { which, prune, all } => {
                let task = Task::Backup { prune: *prune, all: *all };
                for backup in self.0.some(which)? {
                    self.0.run_now(&backup, task, progress)?;
                }
                self.0.status(which)
            }
            BackupCall::Test { which } => {
                for backup in self.0.some(which)? {
                    self.0.run_now(&backup, Task::Test, progress)?;
                }
                self.0.status(which)
            }
            BackupCall::Remove { which } => self.0.remove(which),
        }
    }
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn wall_secs(&self) -> i64 {
        (self.env.wall() / SECOND) as i64
    }

    fn all(&self) -> Result<Vec<BackupInfo>, Failure> {
        Ok(self.cell.admin(&admin::BackupList, &mut |_| ())?.backups)
    }

    /// Those that are meant; of a volume that is named at least one.
    fn some(&self, which: &Which) -> Result<Vec<BackupInfo>, Failure> {
        let found: Vec<BackupInfo> = self.all()?.into_iter().filter(|backup| which.has(backup)).collect();
        match &which.volume {
            Some(volume) if found.is_empty() => {
                let message = format!("volume {volume} has no such backup: see lee backup list");
                Err(failure(libc::ENOENT, &message))
            }
            _ => Ok(found),
        }
    }

    /// Begins the runs that are due.
    fn look(self: &Arc<Shared>) {
        let Ok(all) = self.all() else { return };
        let (now, wall) = (self.env.now(), self.wall_secs());
        let mut due = Vec::new();
        {
            let mut states = self.states.lock();
            states.retain(|id, state| state.running || all.iter().any(|backup| id_of(backup) == *id));
            let running = states.values().filter(|state| state.running).count();
            for next in next_due(all, &states, now, wall).into_iter().take(RUNS_MAX.saturating_sub(running)) {
                let state = states.entry(id_of(&next.0)).or_default();
                (state.running, state.progress) = (true, None);
                due.push(next);
            }
        }
        for (backup, task) in due {
            let (of, begun) = (self.clone(), backup.clone());
            let spawned = self.env.try_spawn("backup", move || {
                let _ = of.perform(&begun, task); // it is in the state
            });
            if spawned.is_err() {
                self.ends(&backup, task, Err(failure(libc::EAGAIN, "there is no thread to spare")));
            }
        }
    }

    fn perform(self: &Arc<Shared>, backup: &BackupInfo, task: Task) -> Result<(), Failure> {
        let work = || {
            let backup = self.still(backup)?;
            match task {
                Task::Backup { prune, all } => self.run(&backup, (prune, all || differs(&backup))),
                Task::Test => self.test(&backup).map(|()| None),
            }
        };
        // one that panics must not keep its place: no other could run
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let text = leeward_env::panic_text(&*panic);
            Err(failure(libc::EIO, &format!("it ended by a panic, a defect of lee: {text}")))
        });
        self.ends(backup, task, result.clone());
        result.map(drop)
    }

    /// A backup as it is now: it may have been changed since.
    fn still(&self, backup: &BackupInfo) -> Result<BackupInfo, Failure> {
        let (volume, to) = id_of(backup);
        let found = self.some(&Which { volume: Some(volume), to: Some(to) })?;
        found.into_iter().next().ok_or_else(|| failure(libc::ENOENT, "there is no such backup any more"))
    }

    /// The task of a backup has ended; this is what came of it. `Ok`: what could not be done,
    /// though the backup was made.
    fn ends(&self, backup: &BackupInfo, task: Task, result: Result<Option<String>, Failure>) {
        leeward_env::give_memory_back();
        let now = self.env.now();
        let mut states = self.states.lock();
        let state = states.entry(id_of(backup)).or_default();
        (state.running, state.progress) = (false, None);
        let (attempts, what) = match task {
            Task::Backup { .. } => (&mut state.runs, "backup"),
            Task::Test => (&mut state.tests, "test of the backup"),
        };
        match result {
            Ok(note) => {
                *attempts = Attempts::default();
                if matches!(task, Task::Backup { .. }) {
                    state.note = note;
                }
            }
            Err(failure) if !self.has_ended() => {
                tracing::warn!("the {what} of {} to {}: {}", backup.volume, backup.to, failure.message);
                attempts.failed(failure.message, now);
            }
            Err(_) => (),
        }
        drop(states);
        self.changed.notify_all();
    }

    /// Backs up, or tests, now, after a run that is at work.
    fn run_now(
        self: &Arc<Shared>,
        backup: &BackupInfo,
        task: Task,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        if backup.is_copy {
            let message = format!(
                "volume {} is a copy: back it up in the cell that it is a copy of, or promote it first",
                backup.volume
            );
            return Err(failure(libc::EROFS, &message));
        }
        self.take_place(backup, progress)?;
        let (of, begun) = (self.clone(), backup.clone());
        let spawned = self.env.try_spawn("backup", move || of.perform(&begun, task));
        let Ok(running) = spawned else {
            let failure = failure(libc::EAGAIN, "there is no thread to spare");
            self.ends(backup, task, Err(failure.clone()));
            return Err(failure);
        };
        while !running.is_finished() {
            let mut states = self.states.lock();
            if let Some(at) = states.get(&id_of(backup)).and_then(|state| state.progress.clone()) {
                progress(at);
            }
            self.changed.wait_for(&mut states, Duration::from_millis(100));
        }
        running.join().unwrap_or_else(|_| Err(failure(libc::EIO, "the backup has ended")))
    }

    /// Waits until no run is at work, and takes its place.
    fn take_place(&self, backup: &BackupInfo, progress: &mut dyn FnMut(Progress)) -> Result<(), Failure> {
        let mut states = self.states.lock();
        loop {
            let at_work = states.values().filter(|state| state.running).count();
            let state = states.entry(id_of(backup)).or_default();
            if !state.running && at_work < RUNS_MAX {
                (state.running, state.progress) = (true, None);
                return Ok(());
            }
            if self.has_ended() {
                return Err(failure(libc::EAGAIN, "the process ends: try again"));
            }
            progress(state.progress.clone().unwrap_or_else(|| waiting("another backup")));
            self.changed.wait_for(&mut states, LOOK);
        }
    }

    fn status(&self, which: &Which) -> Result<Vec<BackupStatus>, Failure> {
        let (all, wall) = (self.all()?, self.wall_secs());
        let states = self.states.lock();
        let shown = all.into_iter().filter(|backup| which.has(backup)).map(|backup| {
            let state = states.get(&id_of(&backup)).cloned().unwrap_or_default();
            shown(backup, state, wall)
        });
        Ok(shown.collect())
    }

    fn add(&self, backup: &BackupInfo) -> Result<Vec<BackupStatus>, Failure> {
        let show = admin::VolumeShow { name: backup.volume.clone() };
        if self.cell.admin(&show, &mut |_| ())?.copy.is_some() {
            let message =
                format!("volume {} is a copy: back it up in the cell that it is a copy of", backup.volume);
            return Err(failure(libc::EROFS, &message));
        }
        // what is wrong with it is said now
        repositories::make(&self.env, &backup.to, &backup.password_file)?;
        let backup = self.cell.admin(&admin::BackupSet { backup: backup.clone() }, &mut |_| ())?;
        let mut states = self.states.lock();
        let state = states.entry(id_of(&backup)).or_default();
        (state.runs.next, state.tests.next) = (0, 0);
        drop(states);
        self.status(&Which { volume: Some(backup.volume), to: Some(backup.to) })
    }

    fn remove(&self, which: &Which) -> Result<Vec<BackupStatus>, Failure> {
        let all = self.some(which)?;
        let [backup] = &all[..] else {
            let message = "that is not one backup: name its volume, and the place with --to";
            return Err(failure(libc::EINVAL, message));
        };
        let status = self.status(which)?;
        let (volume, to) = id_of(backup);
        self.cell.admin(&admin::BackupUnset { volume, to }, &mut |_| ())?;
        self.remove_snapshots(backup, None)?;
        Ok(status)
    }
}

/// What is to be done by now, a task of each backup, first what is due for longest: one that takes
/// longer than its interval keeps no other from its turn.
fn next_due(
    all: Vec<BackupInfo>,
    states: &BTreeMap<Id, State>,
    now: Nanos,
    wall: i64,
) -> Vec<(BackupInfo, Task)> {
    let due = |backup: BackupInfo| {
        let state = states.get(&id_of(&backup)).cloned().unwrap_or_default();
        let (wait, task) = task_due(&backup, &state, now, wall).filter(|_| !state.running)?;
        Some((wait, backup, task))
    };
    let mut all: Vec<(i64, BackupInfo, Task)> = all.into_iter().filter_map(due).collect();
    all.sort_by_key(|(wait, _, _)| std::cmp::Reverse(*wait));
    all.into_iter().map(|(_, backup, task)| (backup, task)).collect()
}

/// What is to be done for a backup by now, and how long that is due, seconds.
fn task_due(backup: &BackupInfo, state: &State, now: Nanos, wall: i64) -> Option<(i64, Task)> {
    let run = (state.runs.next <= now).then(|| run_wait(backup, wall));
    let test = test_wait(backup, wall).filter(|_| state.tests.next <= now);
    let run = run.map(|wait| (wait, Task::Backup { prune: false, all: false }));
    let due = [run, test.map(|wait| (wait, Task::Test))].into_iter().flatten();
    due.filter(|(wait, _)| *wait >= 0 && !backup.is_copy).max_by_key(|(wait, _)| *wait)
}

/// How long a backup is due, seconds; less than 0: until it is.
fn run_wait(backup: &BackupInfo, wall: i64) -> i64 {
    match &backup.last {
        Some(last) => wait_since(last.begun_secs, backup.every_secs, wall),
        None => wait_since(backup.since_secs, 0, wall),
    }
}

/// How long a test is due, seconds; less than 0: until it is. `None`: there is to be none.
fn test_wait(backup: &BackupInfo, wall: i64) -> Option<i64> {
    let last = backup.last.as_ref().filter(|_| backup.test_every_secs > 0)?;
    match &backup.tested {
        // there is another backup since a test has found differences
        Some(tested) if tested.difference_count > 0 && tested.id != last.id => {
            Some(wait_since(last.begun_secs, 0, wall))
        }
        Some(tested) => Some(wait_since(tested.at_secs, backup.test_every_secs, wall)),
        None => Some(wait_since(backup.since_secs, backup.test_every_secs, wall)),
    }
}

/// How long something is due that was done at `since` and is to be done at this interval. What was
/// done in the future, by a clock that was ahead, is due for longest: nobody knows how old it is.
fn wait_since(since: i64, every_secs: u32, wall: i64) -> i64 {
    if since > wall { i64::MAX } else { wall - since - i64::from(every_secs) }
}

fn waiting(phase: &str) -> Progress {
    Progress { phase: phase.into(), done: 0, total: 0 }
}

fn shown(backup: BackupInfo, state: State, wall: i64) -> BackupStatus {
    let age_secs = backup.last.as_ref().map(|last| (wall - last.begun_secs).max(0));
    // before there was any: since it was made
    let begun_secs = backup.last.as_ref().map_or(backup.since_secs, |last| last.begun_secs);
    let age = wait_since(begun_secs, 0, wall);
    let test_wait = test_wait(&backup, wall).filter(|_| !backup.is_copy);
    let test_wait_max = i64::from(backup.test_every_secs.min(TEST_WAIT_SECS));
    BackupStatus {
        state: match &state {
            _ if backup.is_copy => BackupState::Copy,
            State { running: true, .. } => BackupState::Running,
            State { runs: Attempts { error: Some(_), .. }, .. } => BackupState::Failing,
            _ if backup.last.is_some() => BackupState::Good,
            _ => BackupState::New,
        },
        late: !backup.is_copy && age > 2 * i64::from(backup.every_secs),
        age_secs,
        progress: state.progress.filter(|_| state.running),
        error: state.runs.error,
        note: state.note,
        test_age_secs: backup.tested.as_ref().map(|tested| (wall - tested.at_secs).max(0)),
        test_late: test_wait.is_some_and(|wait| wait > test_wait_max),
        test_error: state.tests.error,
        backup,
    }
}

/// Watches a run, and ends it with the process.
struct Watched<'a> {
    of: &'a Shared,
    id: Id,
}

impl Watch for Watched<'_> {
    fn is_stopped(&self) -> bool {
        self.of.has_ended()
    }

    fn report(&self, phase: &str, done: u64, total: u64) {
        if let Some(state) = self.of.states.lock().get_mut(&self.id) {
            state.progress = Some(Progress { phase: phase.into(), done, total });
        }
    }
}
