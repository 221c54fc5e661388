//! Probes: everyday operations of a person, done and timed at intervals on a path.
//!
//! A round is a 64 kB write with fsync, a stat, a listing, an open with a read of 4 KiB, and the
//! removal of the file. Stat and read ask the file system, not the kernel's cache. Each path has a
//! thread of its own, so a path that hangs holds up no other. An operation over its deadline is
//! reported with its start time, and again each time as much time has passed. Errors are results: a
//! probe goes on whatever the file system answers.
//!
//! The thread makes its directory itself and removes it, because even that may hang.

use crate::scratch::{self, ScratchDir};
use crate::stop::Stop;
use crate::sys::{self, Identity};
use crate::{Refused, stats, text};
use leeward_env::{Env, Nanos};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of the small write.
pub const WRITE_BYTES: usize = 64_000;
/// Bytes that are read.
pub const READ_BYTES: usize = 4096;
/// Files of the directory that is listed. Their number is fixed, so that the cost of listing does
/// not depend on how long a probe runs.
const KEPT_FILES: usize = 16;
/// How often operations that hang are looked for.
const LOOK: Duration = Duration::from_millis(50);
/// How long the end of a run waits for what is over its deadline already.
const GRACE: Duration = Duration::from_millis(500);

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Making the probe's directory; only seen when that fails or hangs.
    Prepare,
    /// Create a file, write 64 kB, fsync, close.
    Write,
    /// Attributes of a file.
    Stat,
    /// List a directory of 16 files.
    List,
    /// Open a file, read 4 KiB, close.
    Read,
    /// Remove the file that was written.
    Unlink,
}

impl Op {
    /// Those of a round, in order.
    pub const ROUND: [Op; 5] = [Op::Write, Op::Stat, Op::List, Op::Read, Op::Unlink];

    /// Its name in output and files.
    pub fn name(self) -> &'static str {
        match self {
            Op::Prepare => "prepare",
            Op::Write => "write",
            Op::Stat => "stat",
            Op::List => "list",
            Op::Read => "read",
            Op::Unlink => "unlink",
        }
    }

    /// What exactly it does, for a reader of a report.
    pub fn meaning(self) -> &'static str {
        match self {
            Op::Prepare => "make the probe's directory",
            Op::Write => "64 kB write + fsync",
            Op::Stat => "stat",
            Op::List => "list 16 files",
            Op::Read => "open + read 4 KiB",
            Op::Unlink => "unlink",
        }
    }
}

/// One round on one path, or what is known of one that hangs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// When it began, milliseconds since 1970.
    pub at_ms: u64,
    /// When it began on the monotonic clock of this process.
    #[serde(skip)]
    pub began: Nanos,
    /// The path as it was given.
    pub path: String,
    /// Latencies of what succeeded, in microseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub us: BTreeMap<Op, f64>,
    /// Errnos of what failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<Op, String>,
    /// What it hangs in. The round itself follows when it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<Stuck>,
}

/// An operation over its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stuck {
    /// Which.
    pub op: Op,
    /// When it began, milliseconds since 1970.
    pub since_ms: u64,
    /// For how long so far, seconds.
    pub for_s: f64,
}

/// How to probe.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// From the beginning of a round to that of the next, at least.
    pub every: Duration,
    /// From when on an operation is called stuck.
    pub deadline: Duration,
    /// After how many rounds a path is done.
    pub rounds: Option<u64>,
    /// The user of the probe, if not the one who runs this.
    pub identity: Option<Identity>,
}

/// An event of a probe.
#[derive(Debug)]
pub enum Heard {
    /// A round is over, or stuck. The number is the path's.
    Round(usize, Round),
    /// Nothing within the time given.
    Silence,
    /// All paths are done, or the run was stopped and hanging operations were given up.
    Over,
}

/// The operation that a thread is in.
#[derive(Clone, Copy)]
struct Current {
    op: Op,
    since: Nanos,
    since_ms: u64,
    /// How often it was reported.
    told: u32,
}

type Shared = Arc<Mutex<Option<Current>>>;

enum Message {
    Ready(Result<(), Refused>),
    Round(Round),
}

struct Worker {
    path: PathBuf,
    current: Shared,
    thread: JoinHandle<()>,
}

/// Threads that probe, one a path.
pub struct Probes {
    env: Env,
    stop: Stop,
    settings: Settings,
    workers: Vec<Worker>,
    heard: Receiver<(usize, Message)>,
    /// Rounds of quick paths that came while others were still waited for.
    early: VecDeque<(usize, Round)>,
    stop_seen: Option<Nanos>,
    /// All threads have ended.
    all_ended: bool,
}

impl Probes {
    /// Starts to probe. Waits until each path has begun, or its deadline has passed.
    ///
    /// # Errors
    /// A path that does not exist, is no directory, or in which we may not make files: a mistake of
    /// the caller. Any other error is a result, and is tried again in each round.
    pub fn start(env: &Env, paths: &[PathBuf], settings: Settings, stop: &Stop) -> Result<Probes, Refused> {
        let (tell, heard) = channel();
        let worker = |(index, path): (usize, &PathBuf)| {
            let current = Shared::default();
            let task = Task {
                env: env.clone(),
                path: path.clone(),
                settings,
                stop: stop.clone(),
                current: current.clone(),
                tell: tell.clone(),
                index,
                place: None,
            };
            Worker { path: path.clone(), current, thread: env.spawn("lab-probe", move || task.run()) }
        };
        let workers = paths.iter().enumerate().map(worker).collect();
        let (early, stop_seen) = (VecDeque::new(), None);
        let (env, stop) = (env.clone(), stop.clone());
        let mut probes = Probes { env, stop, settings, workers, heard, early, stop_seen, all_ended: false };
        match probes.wait_ready() {
            Ok(()) => Ok(probes),
            Err(refused) => {
                probes.stop.ask();
                Err(refused)
            }
        }
    }

    /// Each thread reports once whether it can begin, and waits for nobody. A thread without a
    /// report hangs, which is a result.
    fn wait_ready(&mut self) -> Result<(), Refused> {
        let end = self.env.now() + self.settings.deadline.as_nanos() as u64;
        let mut waited_for = self.workers.len();
        while waited_for > 0 {
            let left = Duration::from_nanos(end.saturating_sub(self.env.now()));
            match self.heard.recv_timeout(left) {
                Ok((_, Message::Ready(ready))) => ready?,
                Ok((index, Message::Round(round))) => {
                    self.early.push_back((index, round));
                    continue;
                }
                Err(_) => return Ok(()),
            }
            waited_for -= 1;
        }
        Ok(())
    }

    /// The next event, within `patience`.
    pub fn next(&mut self, patience: Duration) -> Heard {
        if let Some((index, round)) = self.early.pop_front() {
            return Heard::Round(index, round);
        }
        let end = self.env.now() + patience.as_nanos() as u64;
        loop {
            let left = Duration::from_nanos(end.saturating_sub(self.env.now()));
            match self.heard.recv_timeout(left.min(LOOK)) {
                Ok((index, Message::Round(round))) => return Heard::Round(index, round),
                Ok((_, Message::Ready(_))) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    self.all_ended = true;
                    return Heard::Over;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some((index, round)) = self.find_stuck() {
                return Heard::Round(index, round);
            }
            if self.has_given_up() {
                return Heard::Over;
            }
            if left.is_zero() {
                return Heard::Silence;
            }
        }
    }

    /// Operations over their deadline that were not reported for as long.
    fn find_stuck(&self) -> Option<(usize, Round)> {
        let now = self.env.now();
        self.workers.iter().enumerate().find_map(|(index, worker)| {
            let mut slot = worker.current.lock();
            let current = slot.as_mut()?;
            let lasted = now.saturating_sub(current.since);
            if lasted < self.settings.deadline.as_nanos() as u64 * u64::from(current.told + 1) {
                return None;
            }
            current.told += 1;
            let for_s = (lasted / 1_000_000) as f64 / 1000.0;
            let stuck = Some(Stuck { op: current.op, since_ms: current.since_ms, for_s });
            let path = worker.path.display().to_string();
            let (us, errors) = <_>::default();
            let round = Round { at_ms: current.since_ms, began: current.since, path, us, errors, stuck };
            Some((index, round))
        })
    }

    /// Whether the run was stopped and all that has not ended is over its deadline.
    fn has_given_up(&mut self) -> bool {
        if !self.stop.asked() {
            return false;
        }
        let now = self.env.now();
        let since = *self.stop_seen.get_or_insert(now);
        let deadline = self.settings.deadline.as_nanos() as u64;
        let hangs = |worker: &Worker| {
            worker.current.lock().is_some_and(|current| now.saturating_sub(current.since) >= deadline)
        };
        now - since > GRACE.as_nanos() as u64
            && self.workers.iter().all(|w| w.thread.is_finished() || hangs(w))
    }

    /// Ends the probe; returns the paths whose threads hang, where a directory of ours is left.
    pub fn finish(mut self) -> Vec<PathBuf> {
        self.stop.ask();
        while !matches!(self.next(LOOK), Heard::Over) {}
        let ended = |worker: &Worker| self.all_ended || worker.thread.is_finished();
        let (ended, hang): (Vec<_>, Vec<_>) = self.workers.into_iter().partition(ended);
        for worker in ended {
            // A thread that panicked has said so on standard error.
            let _ = worker.thread.join();
        }
        hang.into_iter().map(|w| w.path).collect()
    }
}

/// The state of a path's thread.
struct Task {
    env: Env,
    path: PathBuf,
    settings: Settings,
    stop: Stop,
    current: Shared,
    tell: Sender<(usize, Message)>,
    index: usize,
    place: Option<ScratchDir>,
}

impl Task {
    fn run(mut self) {
        let ready = self.switch_user().and_then(|()| self.check());
        let good = ready.is_ok();
        self.say(Message::Ready(ready));
        if !good {
            return;
        }
        let mut number = 0;
        while !self.stop.asked() && self.settings.rounds.is_none_or(|rounds| number < rounds) {
            let began = self.env.now();
            let round = self.round(number);
            self.say(Message::Round(round));
            number += 1;
            if self.settings.rounds == Some(number) {
                break;
            }
            let took = Duration::from_nanos(self.env.now() - began);
            self.stop.sleep(&self.env, self.settings.every.saturating_sub(took));
        }
        if let Some(place) = self.place.take() {
            self.begin(Op::Unlink);
            // The result is ignored: nobody is left to do anything about it, and the round before
            // had the same error.
            let _ = place.remove();
            *self.current.lock() = None;
        }
    }

    fn switch_user(&self) -> Result<(), Refused> {
        let Some(identity) = self.settings.identity else { return Ok(()) };
        identity.take_on_this_thread().map_err(|e| {
            let cause = text::cause(&e);
            Refused(format!("cannot act as user {}: {cause}; only root can: run this as root", identity.uid))
        })
    }

    fn check(&mut self) -> Result<(), Refused> {
        self.begin(Op::Prepare);
        let made = self.prepare();
        *self.current.lock() = None;
        match made {
            Err(e) => match e.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::EPERM) => {
                    scratch::check(&self.path)?;
                    Err(scratch::refusal(&self.path, &e))
                }
                _ => Ok(()),
            },
            Ok(()) => Ok(()),
        }
    }

    /// Makes our directory, with files to read.
    fn prepare(&mut self) -> io::Result<()> {
        let place = ScratchDir::make(&self.env, &self.path, "lee-probe")?;
        let kept = place.subdirectory("kept", None)?;
        for i in 0..KEPT_FILES {
            let mut file = File::create(kept.join(format!("f{i}")))?;
            file.write_all(&[b'k'; READ_BYTES])?;
            if i == 0 {
                // It is read, and what is not stored the kernel does not forget.
                file.sync_all()?;
            }
        }
        self.place = Some(place);
        Ok(())
    }

    fn round(&mut self, number: u64) -> Round {
        let mut round = Round {
            at_ms: self.env.wall() / 1_000_000,
            began: self.env.now(),
            path: self.path.display().to_string(),
            us: BTreeMap::new(),
            errors: BTreeMap::new(),
            stuck: None,
        };
        if self.place.is_none() {
            self.begin(Op::Prepare);
            let made = self.prepare();
            *self.current.lock() = None;
            if let Err(e) = made {
                round.errors.insert(Op::Prepare, text::errno(&e));
                return round;
            }
        }
        let Some(dir) = self.place.as_ref().map(|p| p.dir().to_path_buf()) else { return round };
        let (file, listed, kept) = (dir.join(format!("f{number}")), dir.join("kept"), dir.join("kept/f0"));
        self.time(&mut round, Op::Write, || write_durably(&file, number));
        self.time(&mut round, Op::Stat, || sys::stat_fresh(&kept).map(|_| ()));
        self.time(&mut round, Op::List, || list(&listed));
        // Untimed operations may hang, too.
        self.begin(Op::Read);
        if let Ok(file) = File::open(&kept) {
            sys::forget_data(&file);
        }
        self.time(&mut round, Op::Read, || read_some(&kept));
        // A write that failed may have left a file, or not.
        self.begin(Op::Unlink);
        if !round.errors.contains_key(&Op::Write) || fs::symlink_metadata(&file).is_ok() {
            self.time(&mut round, Op::Unlink, || fs::remove_file(&file));
        }
        // Somebody removed our directory: make it anew.
        if round.errors.values().any(|name| name == "ENOENT") {
            self.begin(Op::Prepare);
            self.place = None;
        }
        *self.current.lock() = None;
        round
    }

    fn begin(&self, op: Op) {
        let (since, since_ms) = (self.env.now(), self.env.wall() / 1_000_000);
        *self.current.lock() = Some(Current { op, since, since_ms, told: 0 });
    }

    fn time(&self, round: &mut Round, op: Op, run: impl FnOnce() -> io::Result<()>) {
        self.begin(op);
        let began = self.env.now();
        let done = run();
        let took = self.env.now() - began;
        *self.current.lock() = None;
        match done {
            Ok(()) => round.us.insert(op, stats::micros(took)).map(|_| ()),
            Err(e) => round.errors.insert(op, text::errno(&e)).map(|_| ()),
        };
    }

    fn say(&self, message: Message) {
        // Nobody listens any more when the run was given up.
        let _ = self.tell.send((self.index, message));
    }
}

fn write_durably(path: &Path, number: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&noise(WRITE_BYTES, number))?;
    file.sync_all()
}

fn list(dir: &Path) -> io::Result<()> {
    fs::read_dir(dir)?.try_for_each(|entry| entry.map(|_| ()))
}

fn read_some(path: &Path) -> io::Result<()> {
    let mut bytes = [0u8; READ_BYTES];
    File::open(path)?.read_exact(&mut bytes)
}

/// Bytes that no file system can compress or has seen before.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn settings(rounds: u64) -> Settings {
        Settings {
            every: Duration::from_millis(1),
            deadline: Duration::from_secs(5),
            rounds: Some(rounds),
            identity: None,
        }
    }

    fn all(probes: &mut Probes) -> Vec<Round> {
        let mut rounds = Vec::new();
        loop {
            match probes.next(PATIENCE) {
                Heard::Round(_, round) => rounds.push(round),
                Heard::Over => return rounds,
                Heard::Silence => panic!("nothing heard"),
            }
        }
    }

    #[test]
    fn rounds_are_timed_and_nothing_is_left() {
        let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
        let paths = [dir.path().to_path_buf()];
        let mut probes = Probes::start(&env, &paths, settings(3), &Stop::default()).expect("starts");
        let rounds = all(&mut probes);
        assert_eq!(rounds.len(), 3);
        for round in &rounds {
            assert!(round.errors.is_empty(), "{round:?}");
            assert_eq!(round.us.keys().copied().collect::<Vec<_>>(), Op::ROUND);
        }
        assert!(probes.finish().is_empty());
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 0);
    }

    #[test]
    fn errors_are_results() {
        let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
        let paths = [dir.path().to_path_buf()];
        let stop = Stop::default();
        let endless = Settings { rounds: None, ..settings(0) };
        let mut probes = Probes::start(&env, &paths, endless, &stop).expect("starts");
        let mut next = || match probes.next(PATIENCE) {
            Heard::Round(_, round) => round,
            _ => panic!("no round"),
        };
        next();
        let ours = fs::read_dir(dir.path()).expect("list").next().expect("one").expect("entry").path();
        // moved away and not removed: a round that is under way must not be in the way
        fs::rename(&ours, dir.path().join("away")).expect("moved");
        let failed = std::iter::repeat_with(&mut next).find(|round| !round.errors.is_empty());
        let failed = failed.expect("endless");
        assert!(failed.errors.values().all(|errno| errno == "ENOENT"), "{failed:?}");
        while !next().errors.is_empty() {}
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 2, "made anew");
        stop.ask();
        all(&mut probes);
    }

    #[test]
    fn what_hangs_is_said_and_said_again() {
        let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
        // Opening a fifo that nobody reads waits, as a dead server would.
        let paths = [dir.path().to_path_buf()];
        let mut hasty = settings(2);
        // long enough to get ready for the second round even on a busy machine
        hasty.every = Duration::from_secs(3);
        hasty.deadline = Duration::from_millis(100);
        let mut probes = Probes::start(&env, &paths, hasty, &Stop::default()).expect("starts");
        let Heard::Round(..) = probes.next(PATIENCE) else { panic!("no round") };
        let ours = fs::read_dir(dir.path()).expect("list").next().expect("one").expect("entry").path();
        let fifo = ours.join("f1");
        let name = std::ffi::CString::new(fifo.as_os_str().as_encoded_bytes()).expect("no zero");
        // SAFETY: a terminated string and a number.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut seen = Vec::<Stuck>::new();
        while seen.len() < 2 {
            let Heard::Round(0, round) = probes.next(PATIENCE) else { panic!("no round") };
            let stuck = round.stuck.expect("stuck");
            // an operation that was merely slow is reported, too
            seen.retain(|earlier| earlier.since_ms == stuck.since_ms);
            seen.push(stuck);
        }
        assert_eq!(seen[0].op, Op::Write);
        assert!(seen[0].since_ms == seen[1].since_ms && seen[1].for_s >= 0.2, "{seen:?}");
        let reader = File::open(&fifo).expect("open");
        let rounds = all(&mut probes);
        let last = rounds.last().expect("a round");
        assert!(last.stuck.is_none() && last.began > 0, "{rounds:?}");
        drop(reader);
    }

    #[test]
    fn mistakes_are_refused() {
        let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
        let refused = |path: PathBuf| match Probes::start(&env, &[path], settings(1), &Stop::default()) {
            Err(Refused(text)) => text,
            Ok(_) => panic!("was not refused"),
        };
        assert!(refused(dir.path().join("none")).contains("no such directory"));
        fs::write(dir.path().join("file"), "x").expect("write");
        assert!(refused(dir.path().join("file")).contains("not a directory"));
    }

    #[test]
    fn noise_differs() {
        assert_eq!(noise(10, 1).len(), 10);
        assert_ne!(noise(64, 1), noise(64, 2));
    }
}
