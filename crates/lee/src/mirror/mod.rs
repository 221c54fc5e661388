//! Copies of volumes in other cells, kept up to date by the process that serves the cell:
//! `lee mirror`.
//!
//! Which there are the cell stores ([`admin::MirrorInfo`]). A thread looks which are due; each pass
//! has a thread ([`pass`]): it takes a snapshot, sends what differs from the one that the copy
//! shows to the other cell ([`other`]), and removes older ones. The cell keeps what a copy has
//! proven, so that its age is known while the other cell is away. What else is known of the passes
//! is in memory: another process begins with a pass of each.
//!
//! Locks: the state of all mirrors, the connections; none is held while anybody is asked.

mod names;
mod other;
mod pass;
mod prune;
pub mod receiver;
mod remove;
mod switch;

use crate::control::ShownToken;
use crate::control::server::failure;
use crate::{size, when};
use leeward_env::{Env, Nanos};
use leeward_remote::Client;
use leeward_volume::Cell;
use leeward_volume::admin::{self, Backlog, CopyStatus, Failure, MirrorInfo, Progress};
use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often it is looked which are due.
const LOOK: Duration = Duration::from_millis(500);
/// Passes at the same time.
const PASSES_MAX: usize = 4;
/// After a failure it is tried again after this time, doubled with each up to the longest.
const RETRY: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// How long the end of the process waits for passes to end.
const END_WAIT: Duration = Duration::from_secs(10);
const SECOND: u64 = 1_000_000_000;

/// What is asked about mirrors. The answer is a list of [`MirrorStatus`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum MirrorCall {
    /// Make one, or change it.
    Add {
        /// What it is to be; the key is found out.
        mirror: MirrorInfo,
        /// The token that the other cell has printed.
        token: Option<ShownToken>,
    },
    /// How they are.
    Status {
        /// Which.
        which: Which,
    },
    /// Bring the copy up to date now.
    Run {
        /// Which.
        which: Which,
    },
    /// Make the copy the volume, and the volume here its copy.
    Switch {
        /// Which one.
        which: Which,
    },
    /// Compare the copy with the volume in full.
    Verify {
        /// Which.
        which: Which,
    },
    /// Keep the copy up to date no more.
    Remove {
        /// Which.
        which: Which,
    },
}

/// Which mirrors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Which {
    /// Of this volume; `None`: of all.
    pub volume: Option<String>,
    /// To this cell; `None`: to any.
    pub to: Option<String>,
}

impl Which {
    fn has(&self, mirror: &MirrorInfo) -> bool {
        self.volume.as_ref().is_none_or(|volume| *volume == mirror.volume)
            && self.to.as_ref().is_none_or(|to| *to == mirror.to)
    }
}

/// How a mirror is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorStatus {
    /// What it is.
    #[serde(flatten)]
    pub mirror: MirrorInfo,
    /// In a word.
    pub state: MirrorState,
    /// The newest snapshot that the copy has shown and proven.
    pub proven: Option<String>,
    /// When it was taken, seconds since 1970.
    pub proven_secs: Option<i64>,
    /// How old it is, seconds: what was changed since is lost with this cell.
    pub age_secs: Option<i64>,
    /// Whether that is more than twice the interval and a minute.
    pub late: bool,
    /// What the copy lacks of what is here.
    #[serde(default)]
    pub backlog: Backlog,
    /// What a pass at work does.
    pub progress: Option<Progress>,
    /// Seconds until it has done that, by how it went so far.
    pub left_secs: Option<u64>,
    /// Bytes that the pass at work has sent, or else the last one.
    pub sent_bytes: u64,
    /// Bytes in a second, of the same.
    pub rate: u64,
    /// Passes that have come to their end.
    pub passes: u64,
    /// Those that have failed.
    #[serde(default)]
    pub failed_passes: u64,
    /// Bytes that all passes have sent.
    pub total_bytes: u64,
    /// Milliseconds that the last one took.
    pub took_ms: u64,
    /// When the copy was found to be the same in full, seconds since 1970.
    pub verified_secs: Option<i64>,
    /// Milliseconds in which nobody could write when the roles were changed last.
    pub pause_ms: Option<u64>,
    /// The newest snapshot in the copy that keeps what was written there and never came here.
    #[serde(default)]
    pub set_aside: Option<String>,
    /// Why the last pass failed.
    pub error: Option<String>,
    /// Of a mirror that was removed: why the other cell does not know that nothing more comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_detached: Option<String>,
}

impl MirrorStatus {
    /// Whether an operator must look at it.
    pub fn is_bad(&self) -> bool {
        self.late || matches!(self.state, MirrorState::Failing | MirrorState::Promoted)
    }

    /// What the copy lacks, such as `1,204 changes, 1 snapshot`: changes in the snapshots that are
    /// to be sent, and since.
    pub fn backlog_in_words(&self) -> String {
        let Backlog { snapshots, changes } = self.backlog;
        let changes_in_words = size::counted(changes, "change", "changes");
        match (snapshots, changes) {
            (0, 0) => "none".into(),
            (0, _) => changes_in_words,
            _ => format!("{changes_in_words}, {}", size::counted(snapshots, "snapshot", "snapshots")),
        }
    }
}

/// How a mirror is, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MirrorState {
    /// Nothing was tried yet.
    #[default]
    New,
    /// The copy was brought up to date.
    Good,
    /// A pass is at work.
    Running,
    /// The last pass has failed, or the last full comparison has found that the copy differs.
    Failing,
    /// The copy is a volume of its own: there may be two that are written to.
    Promoted,
    /// The volume is a copy itself.
    Copy,
}

/// Names a mirror: volume, cell, copy.
type Id = (String, String, String);

fn id_of(mirror: &MirrorInfo) -> Id {
    (mirror.volume.clone(), mirror.to.clone(), mirror.copy.clone())
}

/// What is known of a mirror.
#[derive(Clone, Default)]
struct State {
    state: MirrorState,
    running: bool,
    /// When the next pass is due.
    next: Nanos,
    failures: u32,
    begun: Nanos,
    progress: Option<Progress>,
    /// When what `progress` tells has begun.
    phase_begun: Nanos,
    sent_bytes: u64,
    total_bytes: u64,
    took: Nanos,
    passes: u64,
    failed_passes: u64,
    pause_ms: Option<u64>,
    set_aside: Option<String>,
    /// Whether the log says that quotas do not travel.
    has_told_of_older: bool,
    /// Whether the mirror is being removed: what is at work ends.
    is_removed: bool,
    error: Option<String>,
}

/// All mirrors of a cell.
pub struct Mirrors(Arc<Shared>);

struct Shared {
    env: Env,
    cell: Arc<Cell>,
    /// The place of this cell.
    name: String,
    states: Mutex<BTreeMap<Id, State>>,
    /// A pass has ended.
    changed: Condvar,
    clients: Mutex<BTreeMap<String, Client>>,
    ended: AtomicBool,
}

impl Mirrors {
    /// Begins to keep copies up to date. `name`: the place of the cell.
    pub fn start(env: &Env, cell: &Arc<Cell>, name: String) -> Mirrors {
        let shared = Arc::new(Shared {
            env: env.clone(),
            cell: cell.clone(),
            name,
            states: Mutex::default(),
            changed: Condvar::new(),
            clients: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let of = shared.clone();
        env.spawn("mirrors", move || {
            while !of.has_ended() {
                of.look();
                of.env.sleep(LOOK);
            }
        });
        Mirrors(shared)
    }

    /// Has all passes end. Returns until when that is waited for.
    pub fn end(&self) -> Nanos {
        let shared = &self.0;
        shared.ended.store(true, Ordering::Release);
        let clients = std::mem::take(&mut *shared.clients.lock());
        clients.into_values().for_each(|client| client.close());
        shared.env.now() + END_WAIT.as_nanos() as u64
    }

    /// Waits until all passes have ended, not longer than until then.
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
    pub fn status(&self) -> Result<Vec<MirrorStatus>, Failure> {
        self.0.status(&Which::default())
    }

    /// Those that an operator must look at, in words.
    pub fn troubles(&self) -> Vec<String> {
        let bad = self.status().unwrap_or_default().into_iter().filter(MirrorStatus::is_bad);
        bad.map(|status| {
            let MirrorInfo { volume, to, .. } = &status.mirror;
            let why = status.error.unwrap_or_else(|| "it is late".into());
            format!("the mirror of volume {volume} to {to}: {why}")
        })
        .collect()
    }

    /// The copies that are here, and volumes that were some.
    pub fn copies(&self) -> Vec<CopyStatus> {
        self.0.cell.admin(&admin::CopyList, &mut |_| ()).map(|all| all.copies).unwrap_or_default()
    }

    /// Copies that are here and older than they should be, in words.
    pub fn late_copies(&self) -> Vec<String> {
        self.copies().iter().filter(|copy| copy.late).map(late_copy).collect()
    }

    /// Answers a call.
    ///
    /// # Errors
    /// Why it is not done.
    pub fn answer(
        &self,
        call: &MirrorCall,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<MirrorStatus>, Failure> {
        match call {
            MirrorCall::Add { mirror, token } => self.0.add(mirror, token.as_ref()),
            MirrorCall::Status { which } => self.0.some(which).and_then(|_| self.0.status(which)),
            MirrorCall::Run { which } => {
                for mirror in self.0.some(which)? {
                    self.0.run(&mirror, progress)?;
                }
                self.0.status(which)
            }
            MirrorCall::Switch { which } => {
                self.0.switch(&self.0.one(which)?, progress)?;
                self.0.status(which)
            }
            MirrorCall::Verify { which } => {
                for mirror in self.0.some(which)? {
                    self.0.verify(&mirror, progress)?;
                }
                self.0.status(which)
            }
            MirrorCall::Remove { which } => self.0.remove(which),
        }
    }
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn all(&self) -> Result<Vec<MirrorInfo>, Failure> {
        Ok(self.cell.admin(&admin::MirrorList, &mut |_| ())?.mirrors)
    }

    /// Those that are meant; of a volume that is named at least one.
    fn some(&self, which: &Which) -> Result<Vec<MirrorInfo>, Failure> {
        let found: Vec<MirrorInfo> = self.all()?.into_iter().filter(|mirror| which.has(mirror)).collect();
        match &which.volume {
            Some(volume) if found.is_empty() => Err(missing(volume)),
            _ => Ok(found),
        }
    }

    fn one(&self, which: &Which) -> Result<MirrorInfo, Failure> {
        match &self.some(which)?[..] {
            [mirror] => Ok(mirror.clone()),
            _ => {
                let message = "that is not one mirror: name its volume, and the other cell with --to";
                Err(failure(libc::EINVAL, message))
            }
        }
    }

    /// Begins the passes that are due.
    fn look(self: &Arc<Shared>) {
        let Ok(all) = self.all() else { return };
        let now = self.env.now();
        let mut due = Vec::new();
        {
            let mut states = self.states.lock();
            states.retain(|id, state| state.running || all.iter().any(|mirror| id_of(mirror) == *id));
            let mut running = states.values().filter(|state| state.running).count();
            for mirror in all {
                let state = states.entry(id_of(&mirror)).or_default();
                if mirror.is_copy || state.running || state.next > now || running >= PASSES_MAX {
                    continue;
                }
                self.begins(state);
                running += 1;
                due.push(mirror);
            }
        }
        for mirror in due {
            let (of, begun) = (self.clone(), mirror.clone());
            let spawned = self.env.try_spawn("mirror", move || {
                let result = of.pass(&begun);
                of.ends(&begun, result);
            });
            if spawned.is_err() {
                self.ends(&mirror, Err(failure(libc::EAGAIN, "there is no thread to spare")));
            }
        }
    }

    fn begins(&self, state: &mut State) {
        let now = self.env.now();
        (state.running, state.begun, state.phase_begun) = (true, now, now);
        (state.progress, state.sent_bytes) = (None, 0);
    }

    fn ends(&self, mirror: &MirrorInfo, result: Result<(), Failure>) {
        let now = self.env.now();
        let mut states = self.states.lock();
        let state = states.entry(id_of(mirror)).or_default();
        state.running = false;
        state.took = now.saturating_sub(state.begun);
        state.progress = None;
        let every = u64::from(mirror.every_secs) * SECOND;
        match result {
            Ok(()) => {
                state.passes += 1;
                (state.failures, state.error, state.state) = (0, None, MirrorState::Good);
                state.next = state.begun + every;
            }
            Err(failure) => {
                let is_promoted = failure.errno == other::IS_PROMOTED;
                let wait = RETRY.saturating_mul(1 << state.failures.min(10)).min(RETRY_MAX);
                state.next = now + (wait.as_nanos() as u64).min(every.max(RETRY.as_nanos() as u64));
                state.failures += 1;
                state.failed_passes += 1;
                let is_wanted = !self.has_ended() && !state.is_removed;
                if is_wanted && state.error.as_ref() != Some(&failure.message) {
                    tracing::warn!("the mirror of {} to {}: {}", mirror.volume, mirror.to, failure.message);
                }
                state.error = Some(failure.message);
                state.state = if is_promoted { MirrorState::Promoted } else { MirrorState::Failing };
            }
        }
        drop(states);
        self.changed.notify_all();
    }

    /// Runs a pass now, after one that is at work.
    fn run(
        self: &Arc<Shared>,
        mirror: &MirrorInfo,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        if mirror.is_copy {
            let message = format!(
                "volume {0} is a copy itself: there is nothing of its own to send. If lee mirror switch was cut short: lee mirror \
                 switch {0} again",
                mirror.volume
            );
            return Err(failure(libc::EROFS, &message));
        }
        self.wait_until_idle(mirror, progress)?;
        let result = self.pass(mirror);
        self.ends(mirror, result.clone());
        result
    }

    /// Waits until no pass is at work, and takes its place.
    fn wait_until_idle(
        &self,
        mirror: &MirrorInfo,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        let mut states = self.states.lock();
        loop {
            let state = states.entry(id_of(mirror)).or_default();
            if !state.running {
                self.begins(state);
                return Ok(());
            }
            if self.has_ended() {
                return Err(failure(libc::EAGAIN, "the process ends: try again"));
            }
            let at = state.progress.clone();
            self.changed.wait_for(&mut states, LOOK);
            // whoever hears it may be slow
            MutexGuard::unlocked(&mut states, || at.into_iter().for_each(&mut *progress));
        }
    }

    fn status(&self, which: &Which) -> Result<Vec<MirrorStatus>, Failure> {
        let (all, now) = (self.all()?, self.env.now());
        let wall = (self.env.wall() / SECOND) as i64;
        let states = self.states.lock();
        let shown = all.into_iter().filter(|mirror| which.has(mirror)).map(|mirror| {
            let state = states.get(&id_of(&mirror)).cloned().unwrap_or_default();
            shown(mirror, state, now, wall)
        });
        Ok(shown.collect())
    }

    fn add(&self, mirror: &MirrorInfo, token: Option<&ShownToken>) -> Result<Vec<MirrorStatus>, Failure> {
        let is_new = !self.all()?.iter().any(|known| id_of(known) == id_of(mirror));
        let mirror = self.meet(mirror, token)?;
        if is_new {
            // what is wrong with it is said now
            self.find_copy(&self.other(&mirror)?, &mirror)?;
        }
        let mirror = self.cell.admin(&admin::MirrorSet { mirror }, &mut |_| ())?;
        self.note(&mirror, |state| (state.next, state.is_removed) = (0, false));
        self.status(&Which { volume: Some(mirror.volume), to: Some(mirror.to) })
    }
}

fn missing(volume: &str) -> Failure {
    failure(libc::ENOENT, &format!("volume {volume} has no such mirror: see lee mirror status"))
}

/// What is said of a copy that is late.
pub fn late_copy(copy: &CopyStatus) -> String {
    let old = copy.age_secs.map_or_else(String::new, when::ago);
    let CopyStatus { volume, origin, .. } = copy;
    match copy.snapshot {
        Some(_) => format!("the copy {volume} of volume {} of {} is of {old}", origin.volume, origin.cell),
        None => format!(
            "the copy {volume} of volume {} of {} was made {old}, and has received nothing whole",
            origin.volume, origin.cell
        ),
    }
}

fn shown(mut mirror: MirrorInfo, state: State, now: Nanos, wall: i64) -> MirrorStatus {
    let proven = mirror.last_proven.take();
    let age_secs = proven.as_ref().map(|proven| (wall - proven.time_secs).max(0));
    // before anything was proven: since it was made
    let age = age_secs.unwrap_or((wall - mirror.since_secs).max(0));
    let at_work = if state.running { now.saturating_sub(state.begun) } else { state.took };
    let in_phase = now.saturating_sub(state.phase_begun) / SECOND;
    let progress = state.progress.filter(|_| state.running);
    let left_secs = progress.as_ref().filter(|p| p.done > 0 && p.total >= p.done);
    let left_secs = left_secs.map(|p| in_phase * (p.total - p.done) / p.done);
    let (verified_secs, differs) = match &mirror.compared {
        None => (None, None),
        Some(compared) if compared.differs.is_empty() => (Some(compared.at_secs), None),
        Some(compared) => (None, Some(compared.differs.clone())),
    };
    MirrorStatus {
        state: match state.state {
            _ if mirror.is_copy => MirrorState::Copy,
            MirrorState::Promoted => MirrorState::Promoted,
            _ if state.running => MirrorState::Running,
            _ if differs.is_some() => MirrorState::Failing,
            other => other,
        },
        late: !mirror.is_copy && admin::is_late(mirror.every_secs, age),
        proven_secs: proven.as_ref().map(|proven| proven.time_secs),
        proven: proven.map(|proven| proven.snapshot),
        age_secs,
        backlog: std::mem::take(&mut mirror.lacks),
        progress,
        left_secs,
        sent_bytes: state.sent_bytes,
        rate: (u128::from(state.sent_bytes) * u128::from(SECOND) / u128::from(at_work.max(1))) as u64,
        passes: state.passes,
        failed_passes: state.failed_passes,
        total_bytes: state.total_bytes,
        took_ms: state.took / 1_000_000,
        verified_secs,
        pause_ms: state.pause_ms,
        set_aside: state.set_aside,
        error: state.error.or(differs),
        not_detached: None,
        mirror,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_volume::admin::Proven;

    const NOW: i64 = 1_795_770_564;

    fn mirror() -> MirrorInfo {
        MirrorInfo {
            every_secs: 60,
            since_secs: NOW - 1000,
            last_proven: Some(Proven { snapshot: "mirror-1".into(), time_secs: NOW - 100 }),
            lacks: Backlog { snapshots: 1, changes: 1204 },
            ..MirrorInfo::default()
        }
    }

    #[test]
    fn the_age_is_that_of_what_is_proven_whoever_has_sent_it() {
        let of = |mirror| shown(mirror, State::default(), 5 * SECOND, NOW);
        let status = of(mirror());
        assert_eq!((status.proven.as_deref(), status.age_secs), (Some("mirror-1"), Some(100)));
        assert!(!status.late);
        let old = Some(Proven { snapshot: "mirror-1".into(), time_secs: NOW - 181 });
        assert!(of(MirrorInfo { last_proven: old, ..mirror() }).late);
        let never = of(MirrorInfo { last_proven: None, ..mirror() });
        assert_eq!((never.age_secs, never.late), (None, true), "it is old since it was made");
        let text = serde_json::to_string(&status).expect("JSON");
        assert_eq!(text.matches("\"proven\"").count(), 1, "{text}");
        assert_eq!(serde_json::from_str::<MirrorStatus>(&text).expect("the same"), status);
    }

    #[test]
    fn a_pass_needs_as_long_for_the_rest_as_for_what_it_has_done() {
        let progress = |done, total| Some(Progress { phase: "inodes".into(), done, total });
        let left = |progress, running| {
            let state = State { running, progress, phase_begun: 2 * SECOND, ..State::default() };
            shown(mirror(), state, 12 * SECOND, NOW).left_secs
        };
        assert_eq!(left(progress(200, 1000), true), Some(40));
        assert_eq!(left(progress(0, 1000), true), None, "nothing is done yet");
        assert_eq!(left(progress(200, 0), true), None, "nobody knows how much there is");
        assert_eq!(left(progress(200, 1000), false), None);
    }

    #[test]
    fn a_backlog_is_said_in_words() {
        let words = |snapshots, changes| {
            let lacks = Backlog { snapshots, changes };
            shown(MirrorInfo { lacks, ..mirror() }, State::default(), 0, NOW).backlog_in_words()
        };
        assert_eq!(words(0, 0), "none");
        assert_eq!(words(0, 1), "1 change");
        assert_eq!(words(2, 1204), "1,204 changes, 2 snapshots");
    }
}
