//! Crashes a [`CrashTarget`] at every mutation of its disk and judges the recovered state.
//!
//! The contract, as [`Expected`] encodes it (a state is what the model held after some step):
//! * names and attributes are those of one state, no older than the last acknowledged Fsync or
//!   SyncAll: one commit holds all earlier changes of metadata, so a prefix of the run survives.
//!   The step in progress may be in it or not;
//! * each file's size and content are those of one state of that file between its last acknowledged
//!   Fsync or SyncAll and the crash: they may be older or newer than the names, never mixed;
//! * a file that was renamed over another has, if the rename survived, the content it had then or
//!   later: old whole or new whole;
//! * inodes without a name are gone;
//! * a snapshot of that state exists with exactly its content, to the last attribute, or not at
//!   all. It exists when SyncAll was acknowledged after it was taken, or Fsync of anything in it or
//!   of a `.snap` that showed it. If it exists, all files have the content of the moment at which
//!   it was taken, or a later one.
//!
//! After the verdict the target's own check must be clean, work goes on for a while compared step
//! by step, and the power fails once more.

use crate::compare::Verdict;
use crate::generate::{Generator, Profile, Rng};
use crate::harness::{Failure, Harness, Options, Target, guarded, removals, report, shrink_with, try_run};
use crate::model::{Model, ROOT};
use crate::node::Ino;
use crate::snapshots::{Namespace, View, place};
use crate::step::{Act, Step};
use crate::text;
use crate::tree::Tree;
use leeward_fs::RenameMode;
use std::collections::{BTreeMap, BTreeSet};

/// On which side of a mutation of the disk the crash is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It has no effect.
    Before,
    /// It has taken effect, but the caller is not told.
    After,
}

/// What a crash destroys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process and all that was not synced: some of it, by the point's seed.
    PowerCut,
    /// The process only (kill -9).
    Kill,
}

/// Where and how to crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPoint {
    /// Number of the mutation, as [`CrashTarget::mutations`] counts.
    pub mutation: u64,
    /// The side of it on which the crash happens.
    pub moment: Moment,
    /// What the crash loses.
    pub death: Death,
    /// Decides which unsynced data survives a power cut.
    pub seed: u64,
}

/// A file system on a disk that can be stopped.
pub trait CrashTarget: Target + Sized {
    /// Mutations of the disk so far: the number that the next one gets.
    fn mutations(&self) -> u64;

    /// Makes the disk die at this point; every later use of it fails.
    fn arm(&self, point: &CrashPoint);

    /// Whether it has died.
    fn crashed(&self) -> bool;

    /// Whether a crash loses nothing that was acknowledged, as its callers live on and ask again.
    fn keeps_what_was_told(&self) -> bool {
        false
    }

    /// Drops the process and opens the file system again on what the disk holds after this death.
    fn recover(self, point: &CrashPoint) -> Result<Self, String>;
}

/// Number of a state: how many steps led to it.
type StateNo = usize;

/// The states of a run, and what of them is known to be durable.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The state after each step.
    states: Vec<Model>,
    /// Names and attributes survive from here on.
    names_durable: StateNo,
    /// All contents survive from here on.
    all_durable: StateNo,
    /// Inodes whose contents survive from a state on.
    durable: BTreeMap<Ino, StateNo>,
    durable_snapshots: BTreeSet<View>,
    /// When snapshots were taken.
    taken: BTreeMap<View, StateNo>,
    /// Files that replaced others by rename, and in which state first.
    replacing: Vec<(StateNo, Ino)>,
}

impl Expected {
    /// Nothing has happened yet, and everything in `model` is durable.
    pub fn new(model: Model) -> Expected {
        let taken: BTreeMap<View, StateNo> = model.snapshots().map(|(view, _)| (view, 0)).collect();
        Expected {
            states: vec![model],
            names_durable: 0,
            all_durable: 0,
            durable: BTreeMap::new(),
            durable_snapshots: taken.keys().copied().collect(),
            taken,
            replacing: Vec::new(),
        }
    }

    /// A step has led to `after`; `acknowledged`: the caller got its success. `fsynced` is the
    /// inode of an Fsync.
    pub fn push(&mut self, step: &Step, after: &Model, acknowledged: bool, fsynced: Option<Ino>) {
        let before = self.last();
        self.states.push(after.clone());
        let now = self.last();
        for (view, _) in after.snapshots() {
            self.taken.entry(view).or_insert(now);
        }
        match &step.act {
            Act::SyncAll | Act::Reopen if acknowledged => {
                (self.names_durable, self.all_durable) = (now, now);
                self.durable.clear();
                self.durable_snapshots = after.snapshots().map(|(view, _)| view).collect();
            }
            Act::Fsync(_) if acknowledged => {
                self.names_durable = now;
                self.durable.extend(fsynced.map(|ino| (ino, now)));
                self.durable_snapshots.extend(fsynced.into_iter().flat_map(|ino| shown_in(after, ino)));
            }
            Act::Rename { from, to, mode: RenameMode::Replace } => {
                let moved = |state: usize, path| find(&self.states[state], path);
                let (source, target) = (moved(before, from), moved(before, to));
                // a rename onto itself replaces nothing, and promises nothing
                if let (Some(source), Some(replaced)) = (source, target)
                    && source != replaced
                    && moved(now, to) == Some(source)
                {
                    self.replacing.push((now, source));
                }
            }
            _ => {}
        }
    }

    /// Everything is durable; the changes of the last step only if it certainly happened.
    pub(crate) fn all_durable_but_last(&mut self, in_doubt: bool) {
        let sure = self.last() - usize::from(in_doubt);
        (self.names_durable, self.all_durable) = (sure, sure);
        self.durable.clear();
        let views =
            |state: usize| self.states[state].snapshots().map(|(view, _)| view).collect::<BTreeSet<_>>();
        self.durable_snapshots = &views(sure) & &views(self.last());
    }

    /// Judges a recovered tree. Returns the model of it, with times and allocation unknown, or why
    /// no state fits.
    pub fn judge(&self, tree: &Tree) -> Result<Model, String> {
        let mut reasons = Reasons::default();
        for state in (self.names_durable..=self.last()).rev() {
            let fits = self.fits(state, tree);
            match fits {
                Ok(model) => return Ok(model),
                Err(reason) => reasons.add(state, reason),
            }
        }
        Err(format!(
            "no state from {} (last Fsync or SyncAll) to {} (crash) fits:\n{}",
            self.names_durable,
            self.last(),
            reasons.text()
        ))
    }

    fn last(&self) -> StateNo {
        self.states.len() - 1
    }

    fn fits(&self, state: StateNo, tree: &Tree) -> Result<Model, String> {
        let mut model = self.states[state].clone();
        model.drop_refs();
        let identities = tree.same_names(&mut model, |view| self.durable_snapshots.contains(&view))?;
        let snapshot = model.snapshots().filter_map(|(view, _)| self.taken.get(&view)).max().copied();
        for (path, ino, node) in identities.into_iter().filter(|(_, ino, _)| place(*ino) == Namespace::Live) {
            let Some(found) = tree.content(node) else { continue };
            let oldest = self.oldest_content(ino, state).max(snapshot.unwrap_or(0));
            let was = (oldest..=self.last()).rev().find_map(|k| {
                let content = self.states[k].node(ino).ok()?.file().ok()?;
                content.first_difference(found).is_none().then(|| content.clone())
            });
            let Some(was) = was else {
                let why = self.content_differs(ino, oldest, found);
                return Err(format!("{path}: names fit, content does not: {why}"));
            };
            model.replace_content(ino, was);
        }
        model.forget_after_crash();
        Ok(model)
    }

    /// The oldest state that a file's content may have, when names are those of `state`.
    fn oldest_content(&self, ino: Ino, state: StateNo) -> StateNo {
        let synced = self.durable.get(&ino).copied().unwrap_or(0);
        let replaced = self.replacing.iter().filter(|&&(at, file)| file == ino && at <= state);
        let replaced = replaced.map(|&(at, _)| at).max().unwrap_or(0);
        synced.max(replaced).max(self.all_durable)
    }

    fn content_differs(&self, ino: Ino, oldest: StateNo, found: &crate::content::Content) -> String {
        let mut reasons = Reasons::default();
        for k in oldest..=self.last() {
            let content = self.states[k].node(ino).and_then(|n| n.file());
            reasons.add(
                k,
                match content {
                    Err(_) => "no such file".to_string(),
                    Ok(content) => match content.first_difference(found) {
                        None => "same".to_string(),
                        Some(at) => format!(
                            "size {} differs at {at}: {:02x?}, found size {}: {:02x?}",
                            content.size(),
                            content.read(at, 8),
                            found.size(),
                            found.read(at, 8)
                        ),
                    },
                },
            );
        }
        format!("allowed since state {oldest}:\n{}", reasons.text())
    }
}

/// The snapshots that an inode shows: a `.snap` those in it, an inode in a snapshot that one.
fn shown_in(model: &Model, ino: Ino) -> Vec<View> {
    let view = |ino: &Ino| match place(*ino) {
        Namespace::In(view) => Some(view),
        _ => None,
    };
    match place(ino) {
        Namespace::SnapDirOf(dir) => model.snap_entries(dir).values().filter_map(view).collect(),
        _ => view(&ino).into_iter().collect(),
    }
}

fn find(model: &Model, path: &crate::step::Path) -> Option<Ino> {
    path.0.iter().try_fold(ROOT, |dir, name| model.node(dir).ok()?.entries().ok()?.get(name).copied())
}

/// Why states do not fit: neighbours with the same reason in one line.
#[derive(Default)]
struct Reasons(Vec<(StateNo, StateNo, String)>);

impl Reasons {
    fn add(&mut self, state: StateNo, reason: String) {
        match self.0.last_mut() {
            Some((first, last, same)) if *same == reason => {
                (*first, *last) = ((*first).min(state), (*last).max(state));
            }
            _ => self.0.push((state, state, reason)),
        }
    }

    fn text(&self) -> String {
        let lines = self.0.iter().map(|(first, last, why)| format!("  states {first}..={last}: {why}\n"));
        lines.collect()
    }
}

/// Settings of a crash run.
#[derive(Clone, Copy, Debug)]
pub struct CrashOptions {
    /// Same seed, same run.
    pub seed: u64,
    /// How many steps before the crash at most.
    pub steps: usize,
    /// Crashes at every so many mutations, starting at one that the seed chooses.
    pub stride: u64,
    /// How many steps after the recovery.
    pub steps_after: usize,
    /// What the target can take.
    pub profile: Profile,
}

impl CrashOptions {
    /// The usual run.
    pub fn new(seed: u64, steps: usize, stride: u64) -> CrashOptions {
        CrashOptions { seed, steps, stride, steps_after: 15, profile: Profile::crash() }
    }
}

/// Runs once to count mutations, then crashes at each of them (by `stride`), before and after it,
/// by power cut and by kill. Returns how many crashes were survived.
///
/// # Panics
/// At the first crash whose outcome is not allowed, with seed, point, reason and the steps, shrunk.
pub fn crash_everywhere<T: CrashTarget>(make: impl Fn() -> T, options: &CrashOptions) -> u64 {
    let whole =
        Options { compare_every: 20, profile: options.profile, ..Options::new(options.seed, options.steps) };
    if let Err(failure) = try_run(&make, &whole) {
        panic!("seed {}, without any crash: {}", options.seed, report(&failure, &failure));
    }
    let steps = steps_of(&make, (options.seed, options.steps), options.profile);
    let (first, last) = mutations_of(&make, &steps);
    let stride = options.stride.max(1);
    let mut survived = 0;
    for mutation in (first + options.seed % stride..last).step_by(stride as usize) {
        for point in points(mutation, options.seed ^ mutation) {
            if let Err(failure) = crash_at(&make, &steps, &point, options) {
                let small =
                    shrink_with(failure.clone(), |steps| crash_in_last(&make, steps, &point, options));
                panic!("seed {}, {point:?}: {}", options.seed, report(&failure, &small));
            }
            survived += 1;
        }
    }
    survived
}

fn points(mutation: u64, seed: u64) -> impl Iterator<Item = CrashPoint> {
    let kinds = [
        (Moment::Before, Death::PowerCut),
        (Moment::After, Death::PowerCut),
        (Moment::Before, Death::Kill),
        (Moment::After, Death::Kill),
    ];
    kinds.into_iter().map(move |(moment, death)| CrashPoint { mutation, moment, death, seed })
}

/// The steps of an undisturbed run.
pub(crate) fn steps_of<T: Target>(
    make: impl Fn() -> T,
    (seed, count): (u64, usize),
    profile: Profile,
) -> Vec<Step> {
    let Ok(mut harness) = Harness::new(make()) else { return Vec::new() };
    let mut generator = Generator::new(seed, profile);
    let mut steps = Vec::new();
    for _ in 0..count {
        let step = generator.step(&harness.model);
        let _ = harness.step(&step);
        steps.push(step);
    }
    steps
}

/// Mutations before the first and after the last step.
fn mutations_of<T: CrashTarget>(make: impl Fn() -> T, steps: &[Step]) -> (u64, u64) {
    let Ok(mut harness) = Harness::new(make()) else { return (0, 0) };
    let first = harness.target.mutations();
    for step in steps {
        let _ = harness.step(step);
    }
    (first, harness.target.mutations())
}

/// The same steps, crashed somewhere in the last one.
fn crash_in_last<T: CrashTarget>(
    make: impl Fn() -> T,
    steps: &[Step],
    point: &CrashPoint,
    options: &CrashOptions,
) -> Result<(), Failure> {
    let Some((_, before)) = steps.split_last() else { return Ok(()) };
    let (from, to) = (mutations_of(&make, before).1, mutations_of(&make, steps).1);
    for mutation in (from..to).take(16) {
        crash_at(&make, steps, &CrashPoint { mutation, ..*point }, options)?;
    }
    Ok(())
}

/// Runs these steps with a crash at this point, and judges. `Ok` also when the point is not
/// reached.
pub fn crash_at<T: CrashTarget>(
    make: impl Fn() -> T,
    steps: &[Step],
    point: &CrashPoint,
    options: &CrashOptions,
) -> Result<(), Failure> {
    let mut done = 0;
    let verdict = guarded(|| {
        let mut harness = Harness::new(make())?;
        harness.target.arm(point);
        let mut expected = Expected::new(harness.model.clone());
        for step in steps {
            done += 1;
            if step_until_crash(&mut harness, &mut expected, step)? {
                let recovered = recover(harness.target, &expected, point)?;
                return go_on(recovered, point, options);
            }
        }
        Ok(())
    });
    verdict.map_err(|difference| Failure { steps: steps[..done].to_vec(), difference })
}

/// Runs one step and records the result. `excuses`: whether a differing answer is no difference.
/// Returns that.
pub(crate) fn step_noted<T: Target>(
    harness: &mut Harness<T>,
    expected: &mut Expected,
    step: &Step,
    excuses: impl Fn(&Harness<T>) -> bool,
) -> Result<bool, String> {
    let fsynced = match &step.act {
        Act::Fsync(place) => harness.model_inode(place),
        _ => None,
    };
    let verdict = harness.step(step);
    let excused = excuses(harness);
    if !excused {
        verdict?;
    }
    expected.push(step, &harness.model, harness.acknowledged, fsynced);
    Ok(excused)
}

/// [`step_noted`]; whether the disk died in it.
fn step_until_crash<T: CrashTarget>(
    harness: &mut Harness<T>,
    expected: &mut Expected,
    step: &Step,
) -> Result<bool, String> {
    step_noted(harness, expected, step, |harness| harness.target.crashed())
}

/// A target that was opened again, with the model of its content, if that is allowed.
pub(crate) fn judged<T: Target>(target: T, expected: &Expected) -> Result<Harness<T>, String> {
    let model = expected.judge(&Tree::read(&target)?)?;
    let mut harness = Harness::with_model(target, model);
    harness.compare()?;
    Ok(harness)
}

/// Opens what the crash left, and judges it.
fn recover<T: CrashTarget>(target: T, expected: &Expected, point: &CrashPoint) -> Result<Harness<T>, String> {
    let mut expected = expected.clone();
    if target.keeps_what_was_told() {
        expected.all_durable_but_last(true);
    }
    let expected = &expected;
    let target = target.recover(point).map_err(|e| format!("recovery: {e}"))?;
    let mut harness = judged(target, expected).map_err(|e| format!("after recovery: {e}"))?;
    harness.target.check().map_err(|e| format!("check after recovery: {e}"))?;
    harness.settle().map_err(|e| format!("when idle after recovery: {e}"))?;
    Ok(harness)
}

/// Works on after a recovery, until the power fails.
fn go_on<T: CrashTarget>(mut harness: Harness<T>, point: &CrashPoint, options: &CrashOptions) -> Verdict {
    let again = CrashPoint {
        mutation: harness.target.mutations()
            + Rng::new(point.mutation ^ options.seed).below(2 * options.steps_after as u64 + 2),
        moment: Moment::Before,
        // also after a kill: what the first life wrote and did not sync is still in memory
        death: Death::PowerCut,
        ..*point
    };
    harness.target.arm(&again);
    let mut expected = Expected::new(harness.model.clone());
    let mut generator = Generator::new(options.seed + point.mutation, options.profile);
    let mut steps = Vec::new();
    let mut last = Vec::new();
    for n in 0.. {
        let step = match n < options.steps_after {
            true => generator.step(&harness.model),
            // at the end all snapshots are removed
            false if n == options.steps_after => {
                last = removals(&harness.model);
                continue;
            }
            false => match last.pop() {
                Some(step) => step,
                None => break,
            },
        };
        steps.push(step.clone());
        let crashed = step_until_crash(&mut harness, &mut expected, &step)
            .map_err(|e| format!("going on after recovery: {e}\n{}", text::print(&steps)))?;
        if crashed {
            return crash_again(harness, &expected, &again, &steps);
        }
    }
    let verdict = harness.compare().and_then(|()| harness.settle());
    if harness.target.crashed() {
        // looking commits, too
        return crash_again(harness, &expected, &again, &steps);
    }
    verdict.map_err(|e| format!("after going on: {e}\n{}", text::print(&steps)))
}

fn crash_again<T: CrashTarget>(
    harness: Harness<T>,
    expected: &Expected,
    point: &CrashPoint,
    steps: &[Step],
) -> Verdict {
    let recovered = recover(harness.target, expected, point);
    recovered.map(drop).map_err(|e| format!("second crash, {point:?}: {e} after\n{}", text::print(steps)))
}
