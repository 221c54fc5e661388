//! One pass of an import: makes a target like its source.
//!
//! A pass goes through the whole source and copies what the target does not have as it is. Nothing
//! needs to stand still: what changes under the pass, the next one brings. When the last users are
//! gone, one more pass takes as long as looking at every name.
//!
//! Several threads share the work (`queue`): directories (`directory`), and parts of their names
//! (`entry`). A file is compared by length and time, and by content where these may deceive
//! (`state`). It is written in place and gets its time last, so a pass that is killed leaves no
//! file that looks right and is not. Names of one inode are put together at the end (`links`).

mod attributes;
mod content;
mod directory;
mod entry;
mod links;
mod pass;
mod problem;
mod queue;
mod remove;
mod state;

use crate::sys::{Dir, FileId, Stat, stat_file};
use crate::{Counters, Error, Trouble, cause, printable};
use leeward_env::Env;
use parking_lot::Mutex;
use pass::{Pass, Report, Worker};
use problem::Problem;
use queue::Queue;
use serde::Serialize;
use state::State;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What is not right is listed up to here, and only counted beyond.
const LISTED_MAX: usize = 1000;
/// How often a stop is looked for and progress is told.
const TICK: Duration = Duration::from_millis(100);
/// How often what was brought is made durable, in nanoseconds.
const SYNC_EVERY: u64 = 60_000_000_000;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Removes from the target what the source does not have any more.
    pub delete: bool,
    /// Changes nothing.
    pub dry_run: bool,
    /// Also brings other file systems that are mounted in the source.
    pub cross_file_systems: bool,
    /// Compares the content of all files.
    pub compare: bool,
    /// Names that are left alone on both sides, in every directory.
    pub exclude: Vec<CString>,
    /// Threads that work.
    pub threads: usize,
}

impl Options {
    /// Which names a pass brings, as a short text that differs where that does.
    fn scope(&self) -> String {
        let mut names: Vec<&[u8]> = self.exclude.iter().map(|name| name.to_bytes_with_nul()).collect();
        names.sort_unstable();
        let crossing: &[u8] = if self.cross_file_systems { b"all" } else { b"one" };
        let all = [crossing, &names.concat()].concat();
        leeward_env::hex::encode(ring::digest::digest(&ring::digest::SHA256, &all).as_ref())
    }
}

/// What the caller does for a pass.
pub struct Control<'a> {
    /// Whether to stop.
    pub stopped: &'a dyn Fn() -> bool,
    /// Makes the target durable. Where the system's calls do that, [`sync_by_system`].
    pub sync: &'a dyn Fn(&Dir) -> Result<(), String>,
    /// Told now and then how far the pass is.
    pub progress: &'a dyn Fn(&Counters),
}

/// What a pass has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Directories that were looked at.
    pub directories: u64,
    /// Directories that the target did not have.
    pub directories_made: u64,
    /// Files whose content was copied.
    pub files_copied: u64,
    /// Their bytes, with holes.
    pub bytes_copied: u64,
    /// Files whose content was compared.
    pub files_compared: u64,
    /// Names other than directories for which nothing, or only attributes, had to be done.
    pub unchanged: u64,
    /// Further names of files that were made.
    pub hard_links: u64,
    /// Symbolic links, devices, FIFOs and sockets that were made.
    pub specials_made: u64,
    /// Names that were removed from the target, each with all that was below.
    pub removed: u64,
    /// Names of the target that the source does not have, and that were left there.
    pub only_in_target: u64,
    /// Names of the source that went away while it was read.
    pub vanished: u64,
    /// File systems that are mounted in the source and were left out.
    pub mounts_left_out: u64,
    /// Names whose owner could not be set.
    pub owners_left_out: u64,
    /// Names whose group may do less than their mode says: their ACL could not be set, and with it
    /// the bits of the group say what anybody in it may do.
    pub groups_narrowed: u64,
    /// Extended attributes that were left out, with how often: those that only the source
    /// understands (ACLs of NFSv4 are one), and those that the target does not take.
    pub attributes_left_out: BTreeMap<String, u64>,
    /// Names that changed while they were read: the next pass brings them.
    pub unsettled: u64,
    /// The first of those.
    pub unsettled_paths: Vec<String>,
    /// Names that could not be brought.
    pub failed: u64,
    /// The first of those.
    pub troubles: Vec<Trouble>,
}

/// A pass that has ended.
#[derive(Debug)]
pub struct Outcome {
    /// What it has done.
    pub summary: Summary,
    /// Why it ended before its end.
    pub error: Option<Error>,
}

/// Makes everything in a target durable by the system's calls.
///
/// # Errors
/// What the system says.
pub fn sync_by_system(target: &Dir) -> Result<(), String> {
    target.sync_file_system().and_then(|()| target.sync()).map_err(|e| cause(&e))
}

/// Runs one pass. `name` is how the target remembers the source.
///
/// # Errors
/// When it cannot begin.
pub fn run(
    env: &Env,
    (source, name): (Dir, &str),
    target: Dir,
    options: Options,
    control: &Control<'_>,
) -> Result<Outcome, Error> {
    let stat = |dir: &Dir, which: &str| {
        dir.stat().map_err(|e| Error::at(Path::new(which), "cannot be looked at", &e))
    };
    let (from, to) = (stat(&source, "the source")?, stat(&target, "the target")?);
    for (dir, id) in [(&source, from.id), (&target, to.id)] {
        check_proc(dir, id)?;
    }
    // its description lives to the end, and with it the lock
    let root = target.dir(c".").map_err(|e| Error::at(Path::new("the target"), "cannot be opened", &e))?;
    if !root.lock() {
        return Err(Error::Failed("another import into this target is at work: wait for its end".into()));
    }
    let _lock = Lock(&root);
    let (state, began) = begin(env, &source, &target, (name, &from), &options)?;
    let again = source.dir(c".");
    let source_root = again.map_err(|e| Error::at(Path::new("the source"), "cannot be opened", &e))?;
    let pass = Arc::new(Pass {
        source_root,
        options,
        counters: Arc::new(Counters::default()),
        queue: Queue::new(),
        links: Mutex::default(),
        report: Mutex::new(Report::default()),
        fatal: Mutex::new(None),
        state,
        device: from.id.dev,
        target_root: to.id,
        stopped: AtomicBool::new(false),
    });
    if let Err(problem) = pass.names(source, Some(target), Vec::new(), false) {
        pass.note(b"", problem);
    }
    let durable = work(env, &pass, &root, control);
    pass.link_later(Some(&root), control.stopped);
    Ok(finish(env, &pass, &root, control, (began, durable)))
}

/// Inodes are reached by /proc: without it each of them would seem to be away.
fn check_proc(dir: &Dir, id: FileId) -> Result<(), Error> {
    let opened = dir.as_inode().and_then(|inode| inode.open()).and_then(|file| stat_file(&file));
    if opened.is_ok_and(|stat| stat.id == id) {
        return Ok(());
    }
    Err(Error::Failed(
        "/proc does not show the open files of this process: mount it: `mount -t proc proc /proc`".into(),
    ))
}

/// The lock on a target.
struct Lock<'a>(&'a Dir);

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// What the target remembers, and when the pass began.
fn begin(
    env: &Env,
    source: &Dir,
    target: &Dir,
    (name, from): (&str, &Stat),
    options: &Options,
) -> Result<(State, i64), Error> {
    let failed = |e| Error::at(Path::new("the target"), "cannot be read", &e);
    let began = env.wall() as i64;
    let is_empty = target.names().map_err(failed)?.is_empty();
    let known = State::read(target).map_err(failed)?;
    let birth = source.birth();
    let same = known.as_ref().is_some_and(|state| state.is_of(name, from.id.ino, birth));
    if options.delete && !is_empty {
        check_delete(source, known.as_ref(), same)?;
    }
    let known = known.filter(|_| same).map(|state| state.still(options.scope(), began));
    let state = known.unwrap_or_else(|| State {
        source: name.into(),
        root: from.id.ino,
        birth,
        scope: options.scope(),
        // into an empty directory only this pass and those after it bring anything
        since: is_empty.then_some(began),
        synced: i64::MIN,
        at: began,
    });
    Ok((state, began))
}

/// Nothing is removed for a source that may be the wrong one, such as a mount that is away.
fn check_delete(source: &Dir, known: Option<&State>, same: bool) -> Result<(), Error> {
    if let Some(state) = known.filter(|_| !same) {
        return Err(Error::Failed(format!(
            "the target was imported from {}, or from another file system that was mounted there: nothing is \
             removed for another source; is the source mounted? Else import without --delete",
            printable(&state.source)
        )));
    }
    if known.is_none() {
        return Err(Error::Failed(
            "no import into this target has ended yet, so it is not known to be a copy of the source: import \
             without --delete first"
                .into(),
        ));
    }
    let names = source.names().map_err(|e| Error::at(Path::new("the source"), "cannot be read", &e))?;
    if names.is_empty() {
        return Err(Error::Failed(
            "the source is empty and the target is not: is the source mounted? Else remove what is in the target \
             by hand"
                .into(),
        ));
    }
    Ok(())
}

/// Has threads do the work. Returns up to when the target is durable.
fn work(env: &Env, pass: &Arc<Pass>, root: &Dir, control: &Control<'_>) -> i64 {
    let threads: Vec<_> = (0..pass.options.threads.max(1))
        .map(|_| {
            let pass = pass.clone();
            env.spawn("lee-import", move || {
                let mut worker = Worker::new();
                let queue = &pass.queue;
                queue.work(|work| {
                    // one that panics must not have the others wait for it
                    let done = catch_unwind(AssertUnwindSafe(|| pass.step(&mut worker, work)));
                    if let Err(panic) = done {
                        let text = leeward_env::panic_text(&*panic);
                        pass.fail(Error::Failed(format!(
                            "a thread ended by a panic, a defect of lee: {text}"
                        )));
                    }
                });
            })
        })
        .collect();
    let mut state = pass.state.clone();
    let mut synced_at = env.now();
    while !pass.queue.ended_within(TICK) {
        (control.progress)(&pass.counters);
        if (control.stopped)() {
            pass.stopped.store(true, Ordering::Relaxed);
            pass.queue.end();
        }
        if env.now() - synced_at > SYNC_EVERY {
            state = remember(env, pass, root, control, state, false).unwrap_or_else(|(state, _)| *state);
            synced_at = env.now();
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
    state.synced
}

/// Makes the target durable and has it remember that. A state that says nothing yet is written only
/// by a pass that has come to its end: then the target is known to be of this source.
fn remember(
    env: &Env,
    pass: &Pass,
    root: &Dir,
    control: &Control<'_>,
    state: State,
    ended: bool,
) -> Result<State, (Box<State>, String)> {
    if pass.options.dry_run {
        return Ok(state);
    }
    let write = |state: &State| match ended || state.since.is_some() {
        true => state.write(root).map_err(|e| format!("it cannot remember the pass: {}", cause(&e))),
        false => Ok(()),
    };
    let trying = State { at: env.wall() as i64, ..state.clone() };
    let synced = write(&trying).and_then(|()| {
        let now = root.stat().map_err(|e| cause(&e))?.ctime.as_nanos() as i64;
        (control.sync)(root)?;
        let synced = State { synced: now, at: trying.at + 1, ..trying };
        write(&synced).map(|()| synced)
    });
    synced.map_err(|e| (Box::new(state), e))
}

/// Makes all durable, and tells what was done.
fn finish(env: &Env, pass: &Pass, root: &Dir, control: &Control<'_>, (began, synced): (i64, i64)) -> Outcome {
    let mut error = pass.fatal.lock().take();
    if error.is_none() && pass.stopped.load(Ordering::Relaxed) {
        error = Some(Error::Stopped);
    }
    let whole = error.is_none();
    let times = root.stat();
    // what could not be looked at was right when it was looked at before
    let seen = whole && !pass.report.lock().overlooked;
    let since = if seen { Some(began) } else { pass.state.since };
    let state = State { since, synced, ..pass.state.clone() };
    match remember(env, pass, root, control, state, whole) {
        Err((_, e)) if whole => {
            error = Some(Error::Failed(format!(
                "the target cannot be made durable: {e}: import again, which looks at what may be lost"
            )));
        }
        _ => {}
    }
    if let (Ok(times), true) = (times, !pass.options.dry_run) {
        let restored = root.as_inode().and_then(|inode| inode.set_times(times.atime, times.mtime));
        if let Err(e) = restored {
            pass.note(b"", Problem::Target(e));
        }
    }
    (control.progress)(&pass.counters);
    Outcome { summary: pass.report.lock().summary.clone(), error }
}
