//! Runs steps on the model and on the system under test, and finds where they differ.
//!
//! Each step is compared by its answer (or errno) and by which times it changed. Every few steps
//! and at the end the whole tree is compared, with all snapshots: a snapshot must show exactly what
//! the target itself showed when it was taken. At the end all snapshots are removed, and nothing
//! may be left of them. A difference, or a panic in the system under test, is shrunk to few steps
//! (each attempt on a fresh target) and reported as text that [`replay`] takes.

use crate::compare::{
    Comparison, Identities, Verdict, Witness, legal_seek, same_changes, same_error, same_reply,
};
use crate::content::Allocation;
use crate::generate::{Generator, Profile};
use crate::model::Model;
use crate::node::Ino;
use crate::side::{Caller, Side, Slots, ctx_of, places};
use crate::snapshots::{Namespace, Shown, View, place};
use crate::step::SNAP_DIR;
use crate::step::{Act, Path, Step, Where};
use crate::text;
use leeward_env::Ctx;
use leeward_fs::{Attr, Error, NodeId, Op, Reply, Result, Usage};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A file system under test, empty at first.
pub trait Target {
    /// Runs one operation.
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply>;

    /// The root directory.
    fn root(&self) -> NodeId {
        NodeId::ROOT
    }

    /// Recursive statistics at `path`, exact (commit first if need be); `None` where there are
    /// none, or where the path cannot be asked for.
    fn usage(&self, _path: &Path, _node: NodeId) -> Option<Usage> {
        None
    }

    /// Sets a limit below `path` that is so high that nothing is refused, or removes it. Usage
    /// shows whether both agree.
    fn quota(&self, _path: &Path, _on: bool) {}

    /// Keeps all data in another of its pools from now on, and moves existing data in the
    /// background.
    fn move_data(&self, _pool: u8) {}

    /// Whether directories have a `.snap`.
    fn has_snapshots(&self) -> bool {
        true
    }

    /// Does background work until none is left.
    fn settle(&self) -> std::result::Result<(), String> {
        Ok(())
    }

    /// The file system's own check; the error lists what it found.
    fn check(&self) -> std::result::Result<(), String> {
        Ok(())
    }

    /// Whether no data of snapshots is stored any more; called when all were removed and everything
    /// is done.
    fn nothing_of_snapshots(&self) -> std::result::Result<(), String> {
        Ok(())
    }

    /// Lets time pass, and does the background work that is due then.
    fn advance(&self, _ms: u32) {}

    /// Closes cleanly and opens again. References are gone with it.
    fn reopen(&mut self) -> std::result::Result<(), String> {
        Ok(())
    }

    /// How `blocks` and usage count.
    fn allocation(&self) -> Allocation {
        Allocation::Units(4096)
    }

    /// Whether every change gets a time of its own, so that the changed times can be recognized.
    fn exact_times(&self) -> bool {
        true
    }
}

/// A target as something operations are called on.
pub struct Door<'a>(pub &'a dyn Target);

impl Caller for Door<'_> {
    fn call(&mut self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        self.0.call(ctx, op)
    }
}

/// The model and the target, side by side.
pub struct Harness<T> {
    /// The expected state.
    pub model: Model,
    /// The file system under test.
    pub target: T,
    /// Whether the last step was answered with success.
    pub acknowledged: bool,
    /// The error that it was answered with.
    pub failed_with: Option<Error>,
    model_slots: Slots,
    target_slots: Slots,
    identities: Identities,
}

impl<T: Target> Harness<T> {
    /// Starts with an empty target; the root directory's owner and mode are taken as they are.
    pub fn new(target: T) -> std::result::Result<Harness<T>, String> {
        let root = target.root();
        match target.call(&ctx_of(0), Op::GetAttr { node: root }) {
            Ok(Reply::Attr(a)) => Ok(Harness::with_model(target, Model::new(a.uid, a.gid, a.mode))),
            other => Err(format!("the root's attributes: {other:?}")),
        }
    }

    /// Starts with a target that holds what the model holds.
    pub fn with_model(target: T, model: Model) -> Harness<T> {
        Harness {
            model,
            target,
            acknowledged: false,
            failed_with: None,
            model_slots: Slots::default(),
            target_slots: Slots::default(),
            identities: Identities::default(),
        }
    }

    /// Runs one step on both sides and compares.
    pub fn step(&mut self, step: &Step) -> Verdict {
        self.failed_with = None;
        match step.act {
            Act::Advance { ms } => {
                self.target.advance(ms);
                self.acknowledged = true;
                return Ok(());
            }
            Act::Quota { ref dir, on } => {
                self.set_quota(dir, on);
                return Ok(());
            }
            Act::MoveData { pool } => {
                self.target.move_data(pool);
                self.acknowledged = true;
                return Ok(());
            }
            Act::Reopen => return self.reopen(),
            _ => {}
        }
        let before = self.model.clone();
        let watched = self.watched(step);
        let stats = self.stats(&watched);
        let got = self.on_target(step);
        self.acknowledged = got.is_ok();
        self.failed_with = got.as_ref().err().cloned();
        let want = self.on_model(&as_done(step, &got));
        // first: a target that has died may have taken it, and not answered
        self.note_snapshot(step, &want);
        self.same_answer(step, &want, &got)?;
        self.meet_made(step, &want, &got)?;
        if self.target.exact_times() {
            let after = self.stats(&watched);
            self.same_times(step, &before, &watched, stats.into_iter().zip(after))?;
        }
        Ok(())
    }

    /// Compares the whole tree, and what is held though it has lost its names.
    pub fn compare(&mut self) -> Verdict {
        let mut comparison =
            Comparison { model: &self.model, target: &self.target, identities: &mut self.identities };
        comparison.tree()?;
        for (slot, held) in &self.model_slots.0 {
            let node = self.target_slots.0.get(slot).ok_or(format!("@{slot}: not held"))?;
            if self.model.inode(held.0).is_err() {
                gone(&self.target, *node).map_err(|e| format!("@{slot}: {e}"))?;
                continue;
            }
            comparison.inode(held.0, *node).map_err(|e| format!("@{slot}: {e}"))?;
        }
        Ok(())
    }

    /// Lets the target finish its background work, checks it, and compares once more.
    pub fn settle(&mut self) -> Verdict {
        self.target.settle()?;
        self.target.check()?;
        if self.model.snapshots().next().is_none() {
            self.target.nothing_of_snapshots()?;
        }
        self.compare()
    }

    /// The target's inodes that steps hold.
    pub fn held(&self) -> impl Iterator<Item = NodeId> {
        self.target_slots.0.values().copied()
    }

    fn reopen(&mut self) -> Verdict {
        let reopened = self.target.reopen();
        self.acknowledged = reopened.is_ok();
        self.failed_with = reopened.as_ref().err().map(|e| Error::Io(e.clone()));
        self.model.drop_refs();
        self.model_slots = Slots::default();
        self.target_slots = Slots::default();
        self.identities.forget_snapshots();
        reopened.map_err(|e| format!("reopening: {e}"))?;
        self.compare()
    }

    /// The model's inode in question, if there is one.
    pub fn model_inode(&mut self, place: &Where) -> Option<Ino> {
        let root = NodeId(crate::model::ROOT);
        let found = Side { fs: &mut self.model, root, slots: &mut self.model_slots }.find(place);
        found.ok().map(|node| node.0)
    }

    fn set_quota(&mut self, dir: &Path, on: bool) {
        let found = self.model_inode(&Where::Path(dir.clone()));
        self.acknowledged = found.is_some_and(|ino| {
            place(ino) == Namespace::Live && self.model.node(ino).is_ok_and(|node| node.is_dir())
        });
        if self.acknowledged {
            self.target.quota(dir, on);
        }
    }

    /// What was made is known by its number from now on: the target may die before the next
    /// comparison.
    fn meet_made(&mut self, step: &Step, made: &Result<Reply>, got: &Result<Reply>) -> Verdict {
        match (&step.act, made, got) {
            (Act::Make { .. }, Ok(Reply::Attr(made)), Ok(Reply::Attr(got))) => {
                self.identities.retain(&self.model);
                self.identities.meet(made.node.0, got.node)
            }
            _ => Ok(()),
        }
    }

    /// After a snapshot was taken: the snapshot must show for ever what the target shows of the
    /// directory now.
    fn note_snapshot(&mut self, step: &Step, taken: &Result<Reply>) {
        if let Act::Make { path, .. } = &step.act
            && let Ok(Reply::Attr(root)) = taken
            && let Namespace::In(view) = place(root.node.0)
            && let Some((snap_dir, _)) = path.split()
            && let Some((dir, _)) = snap_dir.split()
        {
            let live = self.model_inode(&Where::Path(dir.clone()));
            // a target that died while it took the snapshot says nothing any more
            let met = live.and_then(|live| self.identities.target_of(live));
            let node = self.target_inode(&Where::Path(dir)).or(met);
            if let (Some(live), Some(node)) = (live, node) {
                self.note_tree(view, live, node);
            }
        }
    }

    fn note_tree(&mut self, view: View, live: Ino, node: NodeId) {
        let mut shown = Shown { number: node.0, attrs: BTreeMap::new() };
        let mut pending = vec![(live, node)];
        while let Some((ino, node)) = pending.pop() {
            if let Ok(Reply::Attr(attr)) = self.target.call(&ctx_of(0), Op::GetAttr { node }) {
                shown.attrs.insert(ino, attr);
            }
            for (name, child) in self.model.children(ino).into_iter().flatten() {
                let found = self.target.call(&ctx_of(0), Op::Lookup { dir: node, name: &name });
                if let Ok(Reply::Attr(attr)) = found {
                    pending.push((child, attr.node));
                }
            }
        }
        self.model.note_shown(view, shown);
    }

    fn target_inode(&mut self, place: &Where) -> Option<NodeId> {
        let root = self.target.root();
        Side { fs: &mut Door(&self.target), root, slots: &mut self.target_slots }.find(place).ok()
    }

    fn on_model(&mut self, step: &Step) -> Result<Reply> {
        let root = NodeId(crate::model::ROOT);
        Side { fs: &mut self.model, root, slots: &mut self.model_slots }.perform(step)
    }

    fn on_target(&mut self, step: &Step) -> Result<Reply> {
        let root = self.target.root();
        Side { fs: &mut Door(&self.target), root, slots: &mut self.target_slots }.perform(step)
    }

    fn same_answer(&mut self, step: &Step, want: &Result<Reply>, got: &Result<Reply>) -> Verdict {
        if let Act::Seek { file, offset, what } = &step.act
            && let Some(ino) = self.model_inode(file)
            && let Ok(content) = self.model.node(ino).and_then(|n| n.file())
        {
            return legal_seek(content, *offset, *what, got);
        }
        match (want, got) {
            (Ok(w), Ok(g)) => same_reply(&self.model, &step.act, w, g, self.target.allocation()),
            (Err(w), Err(g)) if same_error(&step.act, w, g) => Ok(()),
            (w, g) => Err(format!("expected {}, got {}", brief(w), brief(g))),
        }
    }

    /// The inodes that a step concerns, on both sides.
    fn watched(&mut self, step: &Step) -> Vec<(NodeId, NodeId)> {
        let (model_root, root) = (NodeId(crate::model::ROOT), self.target.root());
        let mut model = Side { fs: &mut self.model, root: model_root, slots: &mut self.model_slots };
        let mut door = Door(&self.target);
        let mut target = Side { fs: &mut door, root, slots: &mut self.target_slots };
        let found =
            places(&step.act).into_iter().map(|p| Some((model.find(&p).ok()?, target.find(&p).ok()?)));
        found.flatten().collect()
    }

    fn stats(&mut self, watched: &[(NodeId, NodeId)]) -> Vec<(Option<Attr>, Option<Attr>)> {
        let root = self.target.root();
        let mut door = Door(&self.target);
        let mut target = Side { fs: &mut door, root, slots: &mut self.target_slots };
        let model = |node: NodeId| self.model.inode(node.0).ok().map(|n| n.attr(node.0));
        watched.iter().map(|(m, t)| (model(*m), target.stat(*t))).collect()
    }

    #[allow(clippy::type_complexity)] // pairs of pairs: before and after, model and target
    fn same_times(
        &self,
        step: &Step,
        before: &Model,
        watched: &[(NodeId, NodeId)],
        stats: impl Iterator<Item = ((Option<Attr>, Option<Attr>), (Option<Attr>, Option<Attr>))>,
    ) -> Verdict {
        for ((model, _), ((m0, t0), (m1, t1))) in watched.iter().zip(stats) {
            let content = |m: &Model| m.node(model.0).and_then(|n| n.file().cloned()).ok();
            let content_changed = match (content(before), content(&self.model)) {
                (Some(a), Some(b)) => a.first_difference(&b).is_some(),
                _ => false,
            };
            let (want, got): (Witness, Witness) = ((m0, m1), (t0, t1));
            same_changes(&step.act, &want, &got, content_changed)?;
        }
        Ok(())
    }
}

/// Inodes of a removed snapshot must be stale.
fn gone(target: &dyn Target, node: NodeId) -> Verdict {
    match target.call(&ctx_of(0), Op::GetAttr { node }) {
        Err(Error::Stale) => Ok(()),
        other => Err(format!("its snapshot was removed, but GetAttr answers {other:?}")),
    }
}

/// The step as the target did it: copying may legally do less than asked.
pub fn as_done(step: &Step, got: &Result<Reply>) -> Step {
    let mut step = step.clone();
    if let (Act::Copy { len, .. }, Ok(Reply::Written(n))) = (&mut step.act, got)
        && *n > 0
    {
        *len = (*len).min(*n);
    }
    step
}

/// An answer, without kilobytes of data.
fn brief(reply: &Result<Reply>) -> String {
    match reply {
        Ok(Reply::Data(data)) => format!("{} bytes", data.len()),
        Ok(other) => format!("{other:?}"),
        Err(e) => format!("{e:?} ({e})"),
    }
}

/// Settings of a random run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seed of the run. The same seed makes the same run.
    pub seed: u64,
    /// Number of steps.
    pub steps: usize,
    /// The whole tree is compared after as many steps, and at the end.
    pub compare_every: usize,
    /// What the target can take.
    pub profile: Profile,
    /// Prints each step to standard error before it is done: for runs that hang or abort.
    pub trace: bool,
}

impl Options {
    /// The usual run.
    pub fn new(seed: u64, steps: usize) -> Options {
        Options { seed, steps, compare_every: 50, profile: Profile::default(), trace: false }
    }
}

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The steps so far; the last one showed the difference.
    pub steps: Vec<Step>,
    /// The difference.
    pub difference: String,
}

/// Random steps on a target of `make`.
///
/// # Panics
/// At the first difference, with a shrunk list of steps.
pub fn run<T: Target>(make: impl Fn() -> T, options: &Options) {
    if let Err(failure) = try_run(&make, options) {
        let small = shrink(&make, failure.clone());
        panic!("seed {}: {}", options.seed, report(&failure, &small));
    }
}

/// Random steps on a target of `make`, up to the first difference.
pub fn try_run<T: Target>(make: impl Fn() -> T, options: &Options) -> std::result::Result<(), Failure> {
    let mut steps = Vec::new();
    let verdict = guarded(|| {
        let mut harness = Harness::new(make())?;
        let mut generator = Generator::new(options.seed, options.profile);
        for n in 1..=options.steps {
            let step = generator.step(&harness.model);
            if options.trace {
                eprintln!("{step}");
            }
            steps.push(step.clone());
            harness.step(&step)?;
            if n % options.compare_every == 0 {
                harness.compare()?;
            }
        }
        harness.compare()?;
        for step in removals(&harness.model) {
            steps.push(step.clone());
            harness.step(&step)?;
        }
        harness.settle()
    });
    verdict.map_err(|difference| Failure { steps, difference })
}

/// Steps that remove all snapshots.
pub fn removals(model: &Model) -> Vec<Step> {
    let snap_dir = |dir| Some(model.path_of(dir)?.join(SNAP_DIR));
    let steps = model.snapshots().filter_map(|(_, s)| Some(Act::RmDir(snap_dir(s.dir)?.join(&s.name))));
    steps.map(Step::root).collect()
}

/// Given steps on a target of `make`, with the whole tree compared after each.
pub fn try_steps<T: Target>(make: impl Fn() -> T, steps: &[Step]) -> std::result::Result<(), Failure> {
    let mut done = 0;
    let verdict = guarded(|| {
        let mut harness = Harness::new(make())?;
        for step in steps {
            done += 1;
            harness.step(step)?;
            harness.compare()?;
        }
        harness.settle()
    });
    verdict.map_err(|difference| Failure { steps: steps[..done].to_vec(), difference })
}

/// A kept failure, as text.
///
/// # Panics
/// When the text is not understood, and at the first difference.
pub fn replay<T: Target>(make: impl Fn() -> T, steps: &str) {
    let steps = text::parse(steps).unwrap_or_else(|e| panic!("{e}"));
    if let Err(failure) = try_steps(make, &steps) {
        panic!("{}", report(&failure, &failure));
    }
}

/// A panic of the system under test is a difference, too.
pub(crate) fn guarded(f: impl FnOnce() -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        let text = text.or_else(|| cause.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Most steps that shrinking may take, over all its attempts.
const SHRINK_STEPS_MAX: usize = 50_000;

/// Leaves out steps as long as there still is a difference; steps are compared one by one, so the
/// last one caused it.
pub fn shrink<T: Target>(make: impl Fn() -> T, failure: Failure) -> Failure {
    match try_steps(&make, &failure.steps) {
        Ok(()) => failure,
        Err(earlier) => shrink_with(earlier, |steps| try_steps(&make, steps)),
    }
}

/// Leaves out steps, in chunks that get smaller, as long as `attempt` still fails.
pub fn shrink_with(
    failure: Failure,
    attempt: impl Fn(&[Step]) -> std::result::Result<(), Failure>,
) -> Failure {
    let mut best = failure;
    let mut chunk = best.steps.len() / 2;
    let mut run = 0;
    while chunk > 0 {
        let mut at = 0;
        while at < best.steps.len() && run < SHRINK_STEPS_MAX {
            let mut steps = best.steps.clone();
            steps.drain(at..steps.len().min(at + chunk));
            run += steps.len();
            match attempt(&steps) {
                Err(smaller) => best = smaller,
                Ok(()) => at += chunk,
            }
        }
        chunk /= 2;
    }
    best
}

/// The report for a person.
pub fn report(first: &Failure, small: &Failure) -> String {
    let last = first.steps.last().map_or(String::new(), Step::to_string);
    format!(
        "step {} ({last}): {}\nshrunk to {} steps: {}\n{}",
        first.steps.len(),
        first.difference,
        small.steps.len(),
        small.difference,
        text::print(&small.steps)
    )
}
