//! What every flow has used and waited, behind whom: the numbers behind `lee top`, `lee why` and the metrics.
//!
//! Bounded: [`ROWS_MAX`] flows and volumes (the one unused for longest is forgotten), [`SLOW_PER_FLOW_MAX`] slow operations a flow. No lock,
//! no clock: the gate wraps it in one and says what time it is.

use leeward_env::waits::{Cause, Waits};
use leeward_env::{Class, Ctx, Flow, Nanos};
use leeward_gate::Line;
use leeward_volume::keys::VIEW_FIRST;
use leeward_volume::{NodeId, Op, Reply, Result};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Pairs of a flow and a volume that are remembered.
pub const ROWS_MAX: usize = 1024;
/// Slow operations that are remembered of a flow.
pub const SLOW_PER_FLOW_MAX: usize = 32;
/// How long a slow operation is worth telling, nanoseconds.
const SLOW_KEPT: Nanos = 600_000_000_000;
/// An operation that took less is not slow, nanoseconds.
const SLOW_MIN: Nanos = 1_000_000;
/// Buckets of a [`Histogram`].
const BUCKETS: usize = 26;

/// One operation that has ended.
pub(crate) struct Account {
    flow: Flow,
    class: Class,
    op: usize,
    node: Option<NodeId>,
    at: Nanos,
    read_bytes: u64,
    written_bytes: u64,
    failed: bool,
    waits: Waits,
}

impl Account {
    pub(crate) fn new(ctx: &Ctx, op: &Op<'_>, result: &Result<Reply>, at: Nanos, waits: Waits) -> Account {
        let (read_bytes, written_bytes) = match (op, result) {
            (Op::Read { .. }, Ok(Reply::Data(data))) => (data.len() as u64, 0),
            (_, Ok(Reply::Written(count))) => (0, *count),
            _ => (0, 0),
        };
        Account {
            flow: ctx.flow,
            class: ctx.class,
            op: op.number(),
            node: op.node(),
            at,
            read_bytes,
            written_bytes,
            failed: result.is_err(),
            waits,
        }
    }
}

/// How often something took how long: bucket `n` counts what took less than 2^n microseconds (and at least half of that), the last one
/// all that is longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// By bucket.
    pub counts: [u64; BUCKETS],
    /// Sum of all, nanoseconds.
    pub nanos: u64,
}

impl Histogram {
    fn add(&mut self, nanos: Nanos) {
        let micros = nanos / 1000;
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.nanos += nanos;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Upper bounds of the buckets but the last, seconds.
    pub fn bounds() -> impl Iterator<Item = f64> {
        (0..BUCKETS - 1).map(|n| (1u64 << n) as f64 / 1e6)
    }
}

/// What a flow did in a volume, since it was first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Operations.
    pub operations: u64,
    /// Those that ended with an error, also such as "no such file".
    pub errors: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time that operations held a slot or a thread, nanoseconds.
    pub service_nanos: u64,
    /// Time from the arrival of operations to their answers, nanoseconds.
    pub total_nanos: u64,
    /// What of it was waiting, by cause, nanoseconds.
    pub waited_nanos: FxHashMap<String, u64>,
    /// The same by the user whom it waited behind, where that is known.
    pub behind_nanos: FxHashMap<u32, u64>,
}

#[derive(Default)]
struct Row {
    operations: u64,
    errors: u64,
    read_bytes: u64,
    written_bytes: u64,
    service: Nanos,
    total: Nanos,
    waits: Waits,
    behind: Vec<(Flow, Nanos)>,
    used_at: Nanos,
    latency: Histogram,
}

/// Flows that a row remembers having waited behind; more count as the one that matters least.
const BEHIND_MAX: usize = 8;

impl Row {
    fn enter(&mut self, account: &Account, service: Nanos, now: Nanos) {
        let total = now.saturating_sub(account.at);
        self.operations += 1;
        self.errors += u64::from(account.failed);
        self.read_bytes += account.read_bytes;
        self.written_bytes += account.written_bytes;
        self.service += service;
        self.total += total;
        self.used_at = now;
        self.latency.add(total);
        if account.waits == Waits::NONE {
            return;
        }
        self.waits.add_all(&account.waits);
        for (_, behind, nanos) in account.waits.longest_first() {
            behind.into_iter().for_each(|flow| self.waited_behind(flow, nanos));
        }
    }

    fn waited_behind(&mut self, flow: Flow, nanos: Nanos) {
        if let Some((_, sum)) = self.behind.iter_mut().find(|(f, _)| *f == flow) {
            *sum += nanos;
        } else if self.behind.len() < BEHIND_MAX {
            self.behind.push((flow, nanos));
        } else if let Some(least) = self.behind.iter_mut().min_by_key(|(_, sum)| *sum) {
            *least = (flow, least.1 + nanos);
        }
    }

    fn usage(&self) -> Usage {
        let by_cause = Cause::ALL.iter().map(|c| (c.name().to_owned(), self.waits.of(*c)));
        let mut behind_nanos = FxHashMap::default();
        self.behind.iter().for_each(|(flow, nanos)| *behind_nanos.entry(flow.uid).or_default() += nanos);
        Usage {
            operations: self.operations,
            errors: self.errors,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            service_nanos: self.service,
            total_nanos: self.total,
            waited_nanos: by_cause.filter(|(_, nanos)| *nanos > 0).collect(),
            behind_nanos,
        }
    }
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Ledger {
    rows: FxHashMap<(Flow, u32), Row>,
    slow: FxHashMap<Flow, Vec<Slow>>,
    latency: FxHashMap<(usize, Class), Histogram>,
    weights: FxHashMap<u32, u32>,
}

struct Slow {
    op: usize,
    node: Option<NodeId>,
    at: Nanos,
    took: Nanos,
    waits: Waits,
}

impl Ledger {
    /// Enters an operation that ended `now` and held a slot or a thread for `service` nanoseconds.
    pub(crate) fn enter(&mut self, account: Account, service: Nanos, now: Nanos) {
        let volume = account.node.map_or(0, |node| node.volume().min(VIEW_FIRST));
        let took = now.saturating_sub(account.at);
        self.latency.entry((account.op, account.class)).or_default().add(took);
        if !self.rows.contains_key(&(account.flow, volume)) {
            self.make_room();
        }
        self.rows.entry((account.flow, volume)).or_default().enter(&account, service, now);
        if took >= SLOW_MIN {
            self.remember(&account, took, now);
        }
    }

    fn make_room(&mut self) {
        if self.rows.len() < ROWS_MAX {
            return;
        }
        let oldest = self.rows.iter().min_by_key(|(_, row)| row.used_at).map(|(key, _)| *key);
        let Some((flow, volume)) = oldest else { return };
        self.rows.remove(&(flow, volume));
        if !self.rows.keys().any(|(f, _)| *f == flow) {
            self.slow.remove(&flow);
        }
    }

    /// Keeps the slowest of the last minutes.
    fn remember(&mut self, account: &Account, took: Nanos, now: Nanos) {
        let slow = Slow { op: account.op, node: account.node, at: account.at, took, waits: account.waits };
        let kept = self.slow.entry(account.flow).or_default();
        if kept.len() < SLOW_PER_FLOW_MAX {
            return kept.push(slow);
        }
        let worth = |s: &Slow| if now.saturating_sub(s.at) > SLOW_KEPT { 0 } else { s.took };
        let least = kept.iter_mut().min_by_key(|s| worth(s)).expect("there are some");
        if worth(least) < took {
            *least = slow;
        }
    }

    /// The weight of a flow.
    pub(crate) fn weight(&self, flow: Flow) -> u32 {
        self.weights.get(&flow.uid).copied().unwrap_or(Line::USUAL)
    }

    /// All that is known. The last arguments: requests that wait for a turn and for a thread; the time.
    pub(crate) fn report(&self, waiting: (usize, usize), now: Nanos) -> Report {
        let mut flows: Vec<FlowReport> = self.rows.iter().map(|(key, row)| flow_report(key, row)).collect();
        flows.sort_by_key(|f| (f.uid, f.job, f.volume));
        let mut slow: Vec<SlowReport> = self
            .slow
            .iter()
            .flat_map(|(flow, all)| all.iter().map(move |s| slow_report(*flow, s, now)))
            .filter(|s| s.ago_nanos <= SLOW_KEPT)
            .collect();
        slow.sort_by_key(|s| (s.uid, s.ago_nanos));
        let mut latency: Vec<OpReport> = self.latency.iter().map(op_report).collect();
        latency.sort_by_key(|l| (l.operation.clone(), l.class.clone()));
        let mut volumes: FxHashMap<u32, Histogram> = FxHashMap::default();
        for ((_, volume), row) in &self.rows {
            let sum = volumes.entry(*volume).or_default();
            sum.nanos += row.latency.nanos;
            sum.counts.iter_mut().zip(row.latency.counts).for_each(|(s, c)| *s += c);
        }
        let mut volumes: Vec<(u32, Histogram)> = volumes.into_iter().collect();
        volumes.sort_by_key(|(volume, _)| *volume);
        Report {
            at_nanos: now,
            flows,
            slow,
            latency,
            volumes,
            waiting_for_turn: waiting.0 as u64,
            waiting_for_thread: waiting.1 as u64,
        }
    }
}

fn flow_report((flow, volume): &(Flow, u32), row: &Row) -> FlowReport {
    FlowReport { uid: flow.uid, job: flow.job, volume: *volume, usage: row.usage() }
}

fn slow_report(flow: Flow, s: &Slow, now: Nanos) -> SlowReport {
    let waited = |(cause, behind, nanos): (Cause, Option<Flow>, Nanos)| Waited {
        cause: cause.name().to_owned(),
        behind_uid: behind.map(|f| f.uid),
        nanos,
    };
    SlowReport {
        uid: flow.uid,
        job: flow.job,
        operation: Op::NAMES[s.op].to_owned(),
        node: s.node.map(|n| n.0),
        ago_nanos: now.saturating_sub(s.at),
        took_nanos: s.took,
        waited: s.waits.longest_first().into_iter().map(waited).collect(),
    }
}

fn op_report(((op, class), latency): (&(usize, Class), &Histogram)) -> OpReport {
    let class = match class {
        Class::Interactive => "interactive",
        Class::Batch => "batch",
        Class::Background => "background",
    };
    OpReport { operation: Op::NAMES[*op].to_owned(), class: class.to_owned(), latency: latency.clone() }
}

/// What a gate has seen since it was made. Counts only grow; a flow that was long unused is missing and may come back at zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// When, on the clock that only differences of mean something on.
    pub at_nanos: u64,
    /// Flows by volume.
    pub flows: Vec<FlowReport>,
    /// The slowest operations of each flow in the last minutes.
    pub slow: Vec<SlowReport>,
    /// How long operations took, by kind and class.
    pub latency: Vec<OpReport>,
    /// The same by volume.
    pub volumes: Vec<(u32, Histogram)>,
    /// Requests that wait for their turn now.
    pub waiting_for_turn: u64,
    /// Requests that wait for a thread that may wait.
    pub waiting_for_thread: u64,
}

/// A flow in a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowReport {
    /// User id.
    pub uid: u32,
    /// Job tag, 0 when unknown.
    pub job: u32,
    /// Volume number; that of the first view for all that is read in snapshots.
    pub volume: u32,
    /// What it did.
    pub usage: Usage,
}

/// A slow operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowReport {
    /// User id.
    pub uid: u32,
    /// Job tag, 0 when unknown.
    pub job: u32,
    /// What it was.
    pub operation: String,
    /// The inode, or the directory of the name, that it was about.
    pub node: Option<u64>,
    /// How long ago it came.
    pub ago_nanos: u64,
    /// From then to its answer.
    pub took_nanos: u64,
    /// What it waited for, the longest first; the rest is work.
    pub waited: Vec<Waited>,
}

/// A wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// For what, see [`Cause`].
    pub cause: String,
    /// Behind whom, where that is known.
    pub behind_uid: Option<u32>,
    /// How long.
    pub nanos: u64,
}

/// How long operations of a kind took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpReport {
    /// Which kind.
    pub operation: String,
    /// Which class.
    pub class: String,
    /// How long.
    pub latency: Histogram,
}
