//! The checkers of crashes and of failing calls judge themselves: a toy that keeps the contract
//! survives everywhere, toys that break it do not.

use leeward_env::Ctx;
use leeward_fs::{Error, Make, NodeId, Op, Precondition, Reply, Result};
use leeward_model::content::Content;
use leeward_model::crash::{CrashOptions, CrashPoint, CrashTarget, Death, Moment, crash_everywhere};
use leeward_model::faults::{Ending, FaultOptions, FaultTarget, Outcome, fail_once};
use leeward_model::harness::Target;
use leeward_model::node::{Ino, Node};
use leeward_model::snapshots::snap_dir_of;
use leeward_model::{Model, Profile};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How the toy breaks the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    FsyncDoesNothing,
    SyncAllDoesNothing,
    NamesBeforeData,
    NamesOneByOne,
    TornContent,
    CheckFails,
    SnapshotsLost,
    SnapshotsNotFrozen,
    /// What was not written is said to be.
    FailuresSwallowed,
    /// A failure is told once; what was not written then never is.
    FailuresForgotten,
    /// It says so, and writes nothing.
    CloseDoesNothing,
}

/// A "disk" of two kinds of record: the metadata as a whole, and each file's content.
#[derive(Clone)]
struct Store {
    names: Model,
    contents: BTreeMap<Ino, Content>,
}

struct Toy {
    wrong: Wrong,
    running: RefCell<Model>,
    store: RefCell<Store>,
    mutations: Cell<u64>,
    armed: Cell<Option<CrashPoint>>,
    dead: Cell<bool>,
    /// The mutation that fails.
    failing: Cell<Option<u64>>,
    /// One has, and has not been told.
    failed: Cell<bool>,
    /// Nothing is written any more.
    broken: Cell<bool>,
}

fn contents(model: &Model) -> BTreeMap<Ino, Content> {
    let content = |(ino, node): (Ino, &Node)| Some((ino, node.file().ok()?.clone()));
    model.nodes().filter_map(content).collect()
}

impl Toy {
    fn new(wrong: Wrong) -> Toy {
        let model = Model::new(0, 0, 0o755);
        Toy::on(wrong, Store { names: model, contents: BTreeMap::new() })
    }

    fn on(wrong: Wrong, store: Store) -> Toy {
        let mut running = store.names.clone();
        running.drop_refs();
        let last = running.snapshots().last().map(|(view, s)| (view, s.dir, s.name.clone()));
        if let (Wrong::SnapshotsLost | Wrong::SnapshotsNotFrozen, Some((view, dir, name))) = (wrong, last) {
            running.drop_snapshot(view);
            if wrong == Wrong::SnapshotsNotFrozen {
                let (dir, make) = (NodeId(snap_dir_of(dir)), Make::Dir);
                let _ =
                    running.apply(&Ctx::system(), &Op::Make { dir, name: &name, make, mode: 0, umask: 0 });
            }
        }
        for ino in contents(&running).keys() {
            running.replace_content(*ino, store.contents.get(ino).cloned().unwrap_or_default());
        }
        Toy {
            wrong,
            running: RefCell::new(running),
            store: RefCell::new(store),
            mutations: Cell::new(0),
            armed: Cell::new(None),
            dead: Cell::new(false),
            failing: Cell::new(None),
            failed: Cell::new(false),
            broken: Cell::new(false),
        }
    }

    fn mutate(&self, f: impl FnOnce(&mut Store)) {
        if self.dead.get() || self.broken.get() {
            return;
        }
        if self.failing.get() == Some(self.mutations.get()) {
            self.failing.set(None);
            self.mutations.set(self.mutations.get() + 1);
            self.broken.set(self.wrong != Wrong::FailuresSwallowed);
            return self.failed.set(true);
        }
        let point = self.armed.get().filter(|p| p.mutation == self.mutations.get());
        self.dead.set(point.is_some());
        self.mutations.set(self.mutations.get() + 1);
        if point.is_none_or(|p| p.moment == Moment::After) {
            f(&mut self.store.borrow_mut());
        }
    }

    fn write_contents(&self, of: impl Fn(Ino) -> bool) {
        for (ino, content) in contents(&self.running.borrow()) {
            let same = self
                .store
                .borrow()
                .contents
                .get(&ino)
                .is_some_and(|c| c.first_difference(&content).is_none());
            if !of(ino) || same {
                continue;
            }
            if self.wrong == Wrong::TornContent && content.size() > 8000 {
                let mut half = content.clone();
                half.write(4096, b"torn");
                self.mutate(|store| drop(store.contents.insert(ino, half)));
            }
            self.mutate(|store| drop(store.contents.insert(ino, content)));
        }
    }

    /// What is said of failures.
    fn told(&self, op: &Op<'_>) -> Result<()> {
        let failed = match self.wrong {
            Wrong::FailuresSwallowed => false,
            Wrong::FailuresForgotten => self.failed.take(),
            _ => self.failed.get() && matches!(op, Op::SyncAll | Op::Fsync { .. }),
        };
        if failed { Err(Error::Io("the disk failed".into())) } else { Ok(()) }
    }

    fn commit(&self) {
        let names = self.running.borrow().clone();
        if self.wrong == Wrong::NamesBeforeData {
            self.mutate(|store| store.names = names.clone());
        }
        self.write_contents(|_| true);
        if self.wrong == Wrong::NamesOneByOne {
            let mut half = self.store.borrow().names.clone();
            let root = Ctx::user(0, 0);
            let gone = names.node(1).unwrap().entries().unwrap().keys().next().cloned();
            if let Some(name) = gone {
                let _ = half
                    .apply(&root, &Op::Unlink { dir: NodeId::ROOT, name: &name, over: Precondition::Any });
                self.mutate(|store| store.names = half);
            }
        }
        self.mutate(|store| store.names = names);
    }
}

impl Target for Toy {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        if self.dead.get() {
            return Err(Error::Io("power is off".into()));
        }
        let reply = self.running.borrow_mut().apply(ctx, &op)?;
        match op {
            Op::SyncAll if self.wrong != Wrong::SyncAllDoesNothing => self.commit(),
            Op::Fsync { .. } if self.wrong != Wrong::FsyncDoesNothing => self.commit(),
            // some data goes early, as when a segment is full
            Op::Write { node, offset, .. } if offset % 3 == 1 => self.write_contents(|ino| ino == node.0),
            _ => {}
        }
        if self.dead.get() { Err(Error::Io("power went off".into())) } else { self.told(&op).map(|()| reply) }
    }

    fn advance(&self, _ms: u32) {
        self.commit();
    }

    fn check(&self) -> std::result::Result<(), String> {
        let bad = self.wrong == Wrong::CheckFails;
        if bad { Err("a finding".to_string()) } else { Ok(()) }
    }
}

impl CrashTarget for Toy {
    fn mutations(&self) -> u64 {
        self.mutations.get()
    }

    fn arm(&self, point: &CrashPoint) {
        self.armed.set(Some(*point));
    }

    fn crashed(&self) -> bool {
        self.dead.get()
    }

    fn recover(self, point: &CrashPoint) -> std::result::Result<Toy, String> {
        assert!(matches!(point.death, Death::PowerCut | Death::Kill));
        Ok(Toy::on(self.wrong, self.store.into_inner()))
    }
}

impl FaultTarget for Toy {
    /// A mutation, as they are counted.
    type Fault = u64;

    fn fail(&self, fault: &u64) {
        self.failing.set(Some(self.mutations.get() + fault));
    }

    fn heal(&self) {
        self.failing.set(None);
    }

    fn end(self, ending: Ending, _opening: Option<&u64>) -> std::result::Result<(Toy, bool), String> {
        if ending == Ending::Close && self.wrong != Wrong::CloseDoesNothing {
            self.commit();
        }
        let said = ending == Ending::Close && (!self.failed.get() || self.wrong == Wrong::FailuresSwallowed);
        Ok((Toy::on(self.wrong, self.store.into_inner()), said))
    }
}

/// With this toy, one failing call for each seed.
fn fail_by_seeds(wrong: Wrong) -> BTreeSet<Outcome> {
    let one = |seed: u64| {
        let profile = Profile::crash().with_snapshots(15, 3);
        let ending = [Ending::Kill, Ending::PowerCut, Ending::Close][seed as usize % 3];
        let (fault, after, syncs) = (seed % 7, seed as usize % 40, seed.is_multiple_of(2));
        let options = FaultOptions {
            seed,
            steps: after + 1 + seed as usize % 11,
            profile,
            fault,
            after,
            syncs,
            ending,
            opening: None,
        };
        fail_once(|| Toy::new(wrong), &options)
    };
    (0..300).map(one).collect()
}

#[test]
fn failing_calls_that_are_told_are_survived() {
    let outcomes = fail_by_seeds(Wrong::Nothing);
    assert!(outcomes.contains(&Outcome::Unnoticed) && outcomes.contains(&Outcome::Stayed), "{outcomes:?}");
}

#[test]
fn failing_calls_that_are_not_are_caught() {
    for wrong in [Wrong::FailuresSwallowed, Wrong::FailuresForgotten, Wrong::CloseDoesNothing] {
        let caught = catch_unwind(AssertUnwindSafe(|| fail_by_seeds(wrong))).err();
        let cause = caught.unwrap_or_else(|| panic!("{wrong:?} was not noticed"));
        let text = cause.downcast_ref::<String>().map_or("", |s| s);
        assert!(text.contains("shrunk to"), "{wrong:?}: {text}");
    }
}

fn options(seed: u64) -> CrashOptions {
    let profile = Profile::crash().with_snapshots(15, 3);
    CrashOptions { profile, ..CrashOptions::new(seed, 150, 3) }
}

#[test]
fn what_keeps_the_contract_survives() {
    for seed in 0..4 {
        let survived = crash_everywhere(|| Toy::new(Wrong::Nothing), &options(seed));
        assert!(survived > 30, "only {survived} crashes");
    }
}

#[test]
fn what_breaks_it_is_caught() {
    let all = [
        Wrong::FsyncDoesNothing,
        Wrong::SyncAllDoesNothing,
        Wrong::NamesBeforeData,
        Wrong::NamesOneByOne,
        Wrong::TornContent,
        Wrong::CheckFails,
        Wrong::SnapshotsLost,
        Wrong::SnapshotsNotFrozen,
    ];
    for wrong in all {
        let run = |seed| crash_everywhere(|| Toy::new(wrong), &options(seed));
        let caught = (0..6).find_map(|seed| catch_unwind(AssertUnwindSafe(|| run(seed))).err());
        let cause = caught.unwrap_or_else(|| panic!("{wrong:?} was not noticed"));
        let text = cause.downcast_ref::<String>().map_or("", |s| s);
        assert!(text.contains("shrunk to"), "{wrong:?}: {text}");
    }
}
