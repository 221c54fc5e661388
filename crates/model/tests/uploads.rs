//! Uploads in parts, at random, with a crash at every mutation of the disk: what was acknowledged
//! is there, what was begun is there whole or not at all, and nothing is left over.
//!
//! `MODEL_SEEDS=FROM..TO` chooses the seeds, `MODEL_STRIDE` at every how many mutations a crash.

use leeward_env::disk::Disk;
use leeward_env::disk::sim::{Fault, SimDisk};
use leeward_env::{Ctx, Env};
use leeward_fs::{Error, Fs, Make, NodeId, Op, Precondition, Reply, Result};
use leeward_meta::Kv;
use leeward_meta::mem::MemKv;
use leeward_model::generate::Rng;
use leeward_pool::DirStore;
use leeward_volume::admin::{self, FsckReport};
use leeward_volume::{Cell, Config, first_batch};
use std::collections::BTreeMap;
use std::sync::Arc;

const ROOT: NodeId = NodeId::ROOT;
const STEPS: usize = 40;
/// The largest waits for its segment, the others are inline data in the journal.
const SIZES: [usize; 4] = [5, 20_000, 70_000, 300_000];

/// Content, as what it is made of.
type Content = Vec<(usize, u64)>;

/// What there is: uploads by their notes, files by name.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    uploads: BTreeMap<String, Upload>,
    files: BTreeMap<String, Content>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Upload {
    parts: BTreeMap<u32, (usize, u64)>,
    /// The file that it became.
    complete: Option<String>,
}

#[derive(Clone, Debug)]
enum Step {
    Begin(String),
    Part {
        of: String,
        number: u32,
        size: usize,
        seed: u64,
    },
    /// A part that is cut off.
    Cut {
        size: usize,
    },
    Complete {
        of: String,
        name: String,
    },
    End(String),
    Snapshot(String),
    /// Background work.
    Rest,
}

impl State {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Begin(of) => drop(self.uploads.insert(of.clone(), Upload::default())),
            Step::Part { of, number, size, seed } => {
                self.uploads.get_mut(of).expect("open").parts.insert(*number, (*size, *seed));
            }
            Step::Complete { of, name } => {
                let upload = self.uploads.get_mut(of).expect("open");
                let content = std::mem::take(&mut upload.parts).into_values().collect();
                upload.complete = Some(name.clone());
                self.files.insert(name.clone(), content);
            }
            Step::End(of) => drop(self.uploads.remove(of)),
            Step::Cut { .. } | Step::Snapshot(_) | Step::Rest => {}
        }
    }

    fn open(&self) -> Vec<&String> {
        self.uploads.iter().filter(|(_, upload)| upload.complete.is_none()).map(|(note, _)| note).collect()
    }

    /// The root, files and parts.
    fn inodes(&self) -> u64 {
        let parts: usize = self.uploads.values().map(|upload| upload.parts.len()).sum();
        (1 + self.files.len() + parts) as u64
    }
}

fn generate(rng: &mut Rng, state: &State, n: usize) -> Step {
    let open = state.open();
    let of = |rng: &mut Rng| open[rng.below(open.len() as u64) as usize].clone();
    match rng.below(20) {
        0..=2 => Step::Begin(format!("u{n}")),
        _ if open.is_empty() => Step::Begin(format!("u{n}")),
        3..=11 => Step::Part {
            of: of(rng),
            number: 1 + rng.below(3) as u32,
            size: SIZES[rng.below(4) as usize],
            seed: n as u64,
        },
        12..=14 => Step::Complete { of: of(rng), name: format!("f{}", rng.below(3)) },
        15 => Step::End(of(rng)),
        16 => Step::Cut { size: SIZES[rng.below(4) as usize] },
        17 => Step::Snapshot(format!("s{n}")),
        _ => Step::Rest,
    }
}

fn noise((len, seed): (usize, u64)) -> Vec<u8> {
    let mut x = seed | 1;
    let next = |_| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 56) as u8
    };
    (0..len).map(next).collect()
}

fn bytes(content: &Content) -> Vec<u8> {
    content.iter().flat_map(|piece| noise(*piece)).collect()
}

struct Sim {
    env: Env,
    disk: SimDisk,
    cell: Arc<Cell>,
}

fn start(env: &Env, disk: &SimDisk) -> std::result::Result<Arc<Cell>, String> {
    let kv = MemKv::open(env.clone(), Arc::new(disk.clone())).map_err(|e| e.to_string())?;
    let store = Arc::new(DirStore::new(Arc::new(disk.clone()), "data"));
    Cell::start(env, Box::new(kv), store, &Config::default()).map_err(|e| e.to_string())
}

fn door() -> Ctx {
    Ctx { refs: true, ..Ctx::user(1000, 1000) }
}

impl Sim {
    fn new(seed: u64) -> Sim {
        let (env, disk) = (Env::sim(seed), SimDisk::new(seed));
        let kv = MemKv::open(env.clone(), Arc::new(disk.clone())).expect("the engine opens");
        kv.commit(&first_batch(&env, 1000, 1000)).expect("the first commit");
        drop(kv);
        let cell = start(&env, &disk).expect("a new cell opens");
        let bucket = admin::BucketCreate { name: "buc".into(), path: "/".into(), public: false };
        cell.admin(&bucket, &mut |_| {}).expect("published");
        Sim { env, disk, cell }
    }

    fn call(&self, op: Op<'_>) -> Result<Reply> {
        self.cell.call(&door(), op)
    }

    fn id(&self, note: &str) -> NodeId {
        let all = self.cell.uploads().of_user(1000, "buc/", ("", NodeId(0)), usize::MAX);
        all.into_iter().find(|(_, record)| *record.note == *note.as_bytes()).expect("it is open").0
    }

    fn unnamed(&self, content: &[u8]) -> Result<NodeId> {
        let Reply::Attr(attr) = self.call(Op::MakeUnnamed { dir: ROOT, mode: 0o644, umask: 0, bytes: 0 })?
        else {
            panic!("no attributes");
        };
        let forgets = |e| {
            let _ = self.call(Op::Forget { node: attr.node, count: 1 });
            e
        };
        self.call(Op::Write { node: attr.node, offset: 0, data: content }).map_err(forgets)?;
        Ok(attr.node)
    }

    fn perform(&self, step: &Step) -> Result<()> {
        let with = |content: &[u8], then: &dyn Fn(NodeId) -> Result<()>| {
            let node = self.unnamed(content)?;
            let done = then(node);
            let _ = self.call(Op::Forget { node, count: 1 });
            done
        };
        match step {
            Step::Begin(note) => {
                let op = Op::BeginUpload { dir: ROOT, key: b"buc/k", note: note.as_bytes() };
                self.call(op).map(drop)
            }
            Step::Part { of, number, size, seed } => with(&noise((*size, *seed)), &|node| {
                let op = Op::KeepPart { node, upload: self.id(of), number: *number, note: b"p" };
                self.call(op).map(drop)
            }),
            Step::Cut { size } => with(&noise((*size, 7)), &|node| self.call(Op::Fsync { node }).map(drop)),
            Step::Complete { of, name } => with(b"", &|node| {
                let (upload, mut at) = (self.id(of), 0);
                for part in self.cell.uploads().parts(upload, 0, usize::MAX) {
                    let (from, len) = (part.node, part.record.size);
                    self.call(Op::CopyRange { from, from_offset: 0, to: node, to_offset: at, len })?;
                    at += len;
                }
                let (name, note) = (name.as_bytes(), format!("{of}={name}"));
                let note = note.as_bytes();
                self.call(Op::CompleteUpload { upload, node, dir: ROOT, name, over: Precondition::Any, note })
                    .map(drop)
            }),
            Step::End(of) => self.call(Op::EndUpload { upload: self.id(of) }).map(drop),
            Step::Snapshot(name) => {
                let Reply::Attr(snap) = self.call(Op::Lookup { dir: ROOT, name: b".snap" })? else {
                    panic!("no attributes");
                };
                let (dir, name, make) = (snap.node, name.as_bytes(), Make::Dir);
                self.call(Op::Make { dir, name, make, mode: 0, umask: 0 }).map(drop)
            }
            Step::Rest => self.cell.step().map(drop),
        }
    }

    fn sync(&self) -> Result<()> {
        self.call(Op::Fsync { node: ROOT }).map(drop)
    }

    fn read(&self, node: NodeId) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match self.call(Op::Read { node, offset: all.len() as u64, len: 1 << 20 }) {
                Ok(Reply::Data(data)) if data.is_empty() => return all,
                Ok(Reply::Data(data)) => all.extend(data),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Why this is not what is there.
    fn differs(&self, state: &State) -> Option<String> {
        let mut left = self.cell.uploads().all();
        for (note, upload) in &state.uploads {
            let noted = upload.complete.as_ref().map_or(note.clone(), |name| format!("{note}={name}"));
            let Some(at) = left.iter().position(|(_, record)| *record.note == *noted.as_bytes()) else {
                return Some(format!("no upload {noted}"));
            };
            let (id, record) = left.remove(at);
            let parts = self.cell.uploads().parts(id, 0, usize::MAX);
            let numbers: Vec<u32> = parts.iter().map(|part| part.record.number).collect();
            if record.complete != upload.complete.is_some()
                || !numbers.iter().eq(upload.parts.keys())
                || parts.iter().zip(upload.parts.values()).any(|(p, was)| self.read(p.node) != noise(*was))
            {
                return Some(format!("upload {noted}: {record:?} with {parts:?}"));
            }
        }
        if !left.is_empty() {
            return Some(format!("there are {left:?}"));
        }
        let Ok(Reply::Entries(files)) =
            self.call(Op::List { dir: ROOT, after: b"", limit: 100, attrs: false })
        else {
            panic!("not listed");
        };
        let names: Vec<&[u8]> = files.iter().map(|file| &*file.name).collect();
        if !names.iter().copied().eq(state.files.keys().map(|name| name.as_bytes())) {
            return Some(format!("files {names:?}"));
        }
        let differs = |(file, was): (&leeward_fs::Entry, &Content)| self.read(file.node) != bytes(was);
        files.iter().zip(state.files.values()).position(differs).map(|n| format!("content of {:?}", names[n]))
    }

    fn fsck(&self) -> FsckReport {
        self.cell.admin(&admin::Fsck, &mut |_| {}).expect("answered")
    }

    fn clean(&self, state: &State) {
        let idle = (0..10_000).any(|_| !self.cell.step().expect("a step"));
        assert!(idle, "there is always something left to do");
        let report = self.fsck();
        assert_eq!(report.findings, []);
        assert_eq!(report.inodes, state.inodes(), "nothing is left over: {state:?}");
    }
}

/// Steps with what they lead to, and whether each is waited for.
fn plan(seed: u64) -> Vec<(Step, bool)> {
    let (mut rng, mut state) = (Rng::new(seed), State::default());
    let mut one = |n| {
        let step = generate(&mut rng, &state, n);
        state.apply(&step);
        (step, rng.below(3) == 0)
    };
    (0..STEPS).map(&mut one).collect()
}

/// All states since the last one that was acknowledged, oldest first; the last may be that of a
/// step that died.
fn run(sim: &Sim, plan: &[(Step, bool)]) -> Vec<State> {
    let mut states = vec![State::default()];
    for (step, sync) in plan {
        let mut next = states.last().expect("one").clone();
        next.apply(step);
        let done = sim.perform(step);
        if done.is_err() && sim.disk.list("").is_ok() {
            panic!("{step:?}: {done:?}");
        }
        states.push(next);
        if done.is_err() {
            break;
        }
        if *sync {
            match sim.sync() {
                Ok(()) => drop(states.drain(..states.len() - 1)),
                Err(e) => {
                    assert!(sim.disk.list("").is_err(), "{e}");
                    break;
                }
            }
        }
    }
    states
}

/// Completes what is open, and ends the rest.
fn finish(sim: &Sim, mut state: State) {
    for (n, note) in state.open().into_iter().cloned().collect::<Vec<_>>().into_iter().enumerate() {
        let part = Step::Part { of: note.clone(), number: 2, size: SIZES[n % 4], seed: 99 };
        let last = match n % 3 {
            2 => Step::End(note),
            _ => Step::Complete { of: note, name: format!("last{n}") },
        };
        for step in [part, last] {
            sim.perform(&step).unwrap_or_else(|e: Error| panic!("{step:?}: {e}"));
            state.apply(&step);
        }
    }
    assert_eq!(sim.differs(&state), None);
    sim.clean(&state);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("MODEL_SEEDS").unwrap_or_default();
    match text.split_once("..").map(|(a, b)| (a.parse(), b.parse())) {
        Some((Ok(a), Ok(b))) => a..b,
        _ => 0..3,
    }
}

#[test]
fn a_crash_anywhere_loses_no_part_that_was_acknowledged() {
    for seed in seeds() {
        let plan = plan(seed);
        let whole = Sim::new(seed);
        let first = whole.disk.mutations();
        let states = run(&whole, &plan);
        finish(&whole, states.last().expect("one").clone());
        let last = whole.disk.mutations();
        let mut survived = 0;
        for mutation in (first + seed % 5..last).step_by(number("MODEL_STRIDE").unwrap_or(5) as usize) {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                for power in [false, true] {
                    let sim = Sim::new(seed);
                    sim.disk.fail_at(mutation, fault);
                    let states = run(&sim, &plan);
                    if sim.disk.list("").is_ok() {
                        continue;
                    }
                    let disk = if power { sim.disk.power_cut(mutation) } else { sim.disk.kill() };
                    let cell = start(&sim.env, &disk).expect("opens");
                    let sim = Sim { cell, disk, ..sim };
                    let reasons: Vec<_> = states.iter().rev().map(|state| sim.differs(state)).collect();
                    let Some(at) = reasons.iter().position(Option::is_none) else {
                        let newest_first = states.iter().rev().zip(&reasons);
                        panic!(
                            "seed {seed}, mutation {mutation}, power {power}: {:#?}",
                            newest_first.collect::<Vec<_>>()
                        );
                    };
                    let state = states[states.len() - 1 - at].clone();
                    sim.clean(&state);
                    finish(&sim, state);
                    survived += 1;
                }
            }
        }
        assert!(survived > 50, "{survived}");
        println!("seed {seed}: {survived} crashes survived");
    }
}
