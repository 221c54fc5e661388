//! What every flow has used and waited, behind whom: the numbers behind `lee top`, `lee why` and
//! the metrics.
//!
//! Bounded: [`ROWS_MAX`] flows and volumes (the one unused for longest is dropped),
//! [`SLOW_PER_FLOW_MAX`] slow operations a flow, some thousand users with their waits, a sum for
//! each volume. Counts for metrics never decrease: of a row that is dropped the volume's part is
//! kept. No lock, no clock: the gate wraps it in one and passes the time.

use leeward_env::histogram::Histogram;
use leeward_env::waits::{Cause, Waits};
use leeward_env::{Class, Ctx, Door, Flow, Machine, Nanos};
use leeward_fs::{NodeId, Op, Reply, Result, VIEW_FIRST};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Pairs of a flow and a volume that are remembered.
pub const ROWS_MAX: usize = 1024;
/// Slow operations that are remembered of a flow.
pub const SLOW_PER_FLOW_MAX: usize = 32;
/// How long a slow operation is shown, nanoseconds.
const SLOW_KEPT: Nanos = 600_000_000_000;
/// An operation that took less is not slow, nanoseconds.
const SLOW_MIN: Nanos = 1_000_000;
/// Users whose waits are counted separately; later ones count together, as [`OTHER_USERS`].
const USERS_MAX: usize = 4096;
/// The value of [`UserWaits::uid`] for all other users.
pub const OTHER_USERS: u32 = u32::MAX;

/// The result of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The inode that it was about, where the operation that it is accounted as does not say.
    pub node: Option<NodeId>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Whether it ended with an error.
    pub failed: bool,
}

impl Outcome {
    /// The outcome of one operation.
    pub fn of(op: &Op<'_>, result: &Result<Reply>) -> Outcome {
        let (read_bytes, written_bytes) = match (op, result) {
            (Op::Read { .. }, Ok(Reply::Data(data))) => (data.len() as u64, 0),
            (_, Ok(Reply::Written(count))) => (0, *count),
            _ => (0, 0),
        };
        Outcome { node: None, read_bytes, written_bytes, failed: result.is_err() }
    }
}

/// One operation that has ended.
pub(crate) struct Account {
    flow: Flow,
    class: Class,
    door: Door,
    machine: Option<Machine>,
    op: usize,
    at: Nanos,
    outcome: Outcome,
    waits: Waits,
}

impl Account {
    /// The entry for an operation of a flow with this job.
    pub(crate) fn new(
        (flow, class, ctx): (Flow, Class, &Ctx),
        op: &Op<'_>,
        outcome: Outcome,
        at: Nanos,
        waits: Waits,
    ) -> Account {
        let outcome = Outcome { node: outcome.node.or(op.node()), ..outcome };
        let Ctx { door, machine, .. } = *ctx;
        Account { flow, class, door, machine, op: op.number(), at, outcome, waits }
    }
}

/// What a flow did in a volume, since it was first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Number of operations.
    pub operations: u64,
    /// Operations that ended with an error, also such as "no such file".
    pub errors: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time that operations held a slot or a thread, nanoseconds.
    pub service_nanos: u64,
    /// Time from the arrival of operations to their answers, nanoseconds.
    pub total_nanos: u64,
    /// The part of it that was waiting, by cause, nanoseconds.
    pub waited_nanos: FxHashMap<String, u64>,
    /// The part of it that was waiting behind a known user, by user, nanoseconds.
    pub behind_nanos: FxHashMap<u32, u64>,
    /// The part of it that was waiting for a machine to give leases back, by machine, nanoseconds.
    #[serde(default)]
    pub for_machine_nanos: FxHashMap<String, u64>,
    /// Time from the arrival of operations to their answers by the machine that they came from,
    /// where it is another one, nanoseconds.
    #[serde(default)]
    pub from_machine_nanos: FxHashMap<String, u64>,
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
    for_machines: Vec<(Machine, Nanos)>,
    from_machines: Vec<(Machine, Nanos)>,
    used_at: Nanos,
    latency: Histogram,
}

/// Flows that a row keeps as waited behind, and machines; beyond that the one that matters least is
/// replaced.
const KEPT_MAX: usize = 8;

/// Adds to the sum of `of`.
fn add_to<T: PartialEq>(sums: &mut Vec<(T, Nanos)>, of: T, nanos: Nanos) {
    if let Some((_, sum)) = sums.iter_mut().find(|(known, _)| *known == of) {
        *sum += nanos;
    } else if sums.len() < KEPT_MAX {
        sums.push((of, nanos));
    } else if let Some(least) = sums.iter_mut().min_by_key(|(_, sum)| *sum) {
        *least = (of, least.1 + nanos);
    }
}

fn by_name(sums: &[(Machine, Nanos)]) -> FxHashMap<String, u64> {
    sums.iter().map(|(machine, nanos)| (machine.name().to_owned(), *nanos)).collect()
}

impl Row {
    fn enter(&mut self, account: &Account, service: Nanos, now: Nanos) {
        let total = now.saturating_sub(account.at);
        self.operations += 1;
        self.errors += u64::from(account.outcome.failed);
        self.read_bytes += account.outcome.read_bytes;
        self.written_bytes += account.outcome.written_bytes;
        self.service += service;
        self.total += total;
        self.used_at = now;
        self.latency.add(total);
        if let Some(machine) = account.machine {
            add_to(&mut self.from_machines, machine, total);
        }
        self.waited(&account.waits);
    }

    fn waited(&mut self, waits: &Waits) {
        if *waits == Waits::NONE {
            return;
        }
        self.waits.add_all(waits);
        for (_, behind, nanos) in waits.longest_first() {
            behind.into_iter().for_each(|flow| add_to(&mut self.behind, flow, nanos));
        }
        if let Some(holder) = waits.holder() {
            add_to(&mut self.for_machines, holder.machine, waits.of(Cause::Leases));
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
            for_machine_nanos: by_name(&self.for_machines),
            from_machine_nanos: by_name(&self.from_machines),
        }
    }
}

/// Requests that wait now.
#[derive(Clone, Copy, Default)]
pub(crate) struct Queues {
    /// Requests that wait for their turn.
    pub(crate) turn: usize,
    /// Requests that wait for their user's ceiling.
    pub(crate) ceiling: usize,
    /// Requests that wait for a thread that may wait.
    pub(crate) thread: usize,
}

/// A flow in a volume, by a door.
type RowKey = (Flow, u32, Door);

/// The counts of all flows.
#[derive(Default)]
pub(crate) struct Ledger {
    rows: FxHashMap<RowKey, Row>,
    slow: FxHashMap<Flow, Vec<Slow>>,
    latency: FxHashMap<(usize, Class, Door), Histogram>,
    /// Sums of dropped rows, by volume and door.
    forgotten: FxHashMap<(u32, Door), VolumeReport>,
    waits: FxHashMap<u32, UserWaits>,
    /// How long operations waited for machines to give leases back.
    for_machines: FxHashMap<Machine, Nanos>,
}

struct Slow {
    op: usize,
    door: Door,
    machine: Option<Machine>,
    node: Option<NodeId>,
    at: Nanos,
    took: Nanos,
    waits: Waits,
}

impl Ledger {
    /// Enters an operation that ended `now` and held a slot or a thread for `service` nanoseconds.
    pub(crate) fn enter(&mut self, account: Account, service: Nanos, now: Nanos) {
        let volume = account.outcome.node.map_or(0, |node| node.volume().min(VIEW_FIRST));
        let took = now.saturating_sub(account.at);
        self.latency.entry((account.op, account.class, account.door)).or_default().add(took);
        if account.waits != Waits::NONE {
            self.enter_waits(&account);
        }
        let row = (account.flow, volume, account.door);
        if !self.rows.contains_key(&row) {
            self.make_room();
        }
        self.rows.entry(row).or_default().enter(&account, service, now);
        if took >= SLOW_MIN {
            self.remember(&account, took, now);
        }
    }

    /// Enters a step of background work of a flow in a volume: when it arrived, began and ended.
    pub(crate) fn enter_work(
        &mut self,
        (flow, volume): (Flow, u32),
        (at, begun, now): (Nanos, Nanos, Nanos),
        waits: &Waits,
    ) {
        let row = (flow, volume, Door::Mount);
        if !self.rows.contains_key(&row) {
            self.make_room();
        }
        let row = self.rows.entry(row).or_default();
        row.operations += 1;
        row.service += now.saturating_sub(begun);
        row.total += now.saturating_sub(at);
        row.used_at = now;
        row.waited(waits);
    }

    fn enter_waits(&mut self, account: &Account) {
        for cause in Cause::ALL {
            let nanos = account.waits.of(cause);
            if nanos > 0 {
                self.waits_of(account.flow.uid).waited_nanos[cause as usize] += nanos;
            }
            if let Some(behind) = account.waits.behind(cause) {
                self.waits_of(behind.uid).behind_nanos += nanos;
            }
        }
        if let Some(holder) = account.waits.holder() {
            *self.for_machines.entry(holder.machine).or_default() += account.waits.of(Cause::Leases);
        }
    }

    fn waits_of(&mut self, uid: u32) -> &mut UserWaits {
        let known = self.waits.len() < USERS_MAX || self.waits.contains_key(&uid);
        let uid = if known { uid } else { OTHER_USERS };
        self.waits.entry(uid).or_insert_with(|| UserWaits { uid, ..UserWaits::default() })
    }

    fn make_room(&mut self) {
        if self.rows.len() < ROWS_MAX {
            return;
        }
        let oldest = self.rows.iter().min_by_key(|(_, row)| row.used_at).map(|(key, _)| *key);
        let Some((flow, volume, door)) = oldest else { return };
        if let Some(row) = self.rows.remove(&(flow, volume, door)) {
            self.forgotten.entry((volume, door)).or_default().add(&row);
        }
        if !self.rows.keys().any(|(f, ..)| *f == flow) {
            self.slow.remove(&flow);
        }
    }

    /// Keeps the slowest of the last minutes.
    fn remember(&mut self, account: &Account, took: Nanos, now: Nanos) {
        let Account { op, door, machine, at, waits, .. } = *account;
        let slow = Slow { op, door, machine, node: account.outcome.node, at, took, waits };
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

    /// The report of flows. The arguments: requests that wait; names of jobs; the time.
    pub(crate) fn report(&self, waiting: Queues, job: impl Fn(u32) -> Option<String>, now: Nanos) -> Report {
        let mut flows: Vec<FlowReport> =
            self.rows.iter().map(|(key, row)| flow_report(key, row, &job)).collect();
        flows.sort_by(|a, b| (a.uid, &a.job, a.volume, &a.door).cmp(&(b.uid, &b.job, b.volume, &b.door)));
        let mut slow: Vec<SlowReport> = self
            .slow
            .iter()
            .flat_map(|(flow, all)| all.iter().map(|s| slow_report(*flow, s, &job, now)))
            .filter(|s| s.ago_nanos <= SLOW_KEPT)
            .collect();
        slow.sort_by_key(|s| (s.uid, s.ago_nanos));
        Report {
            at_nanos: now,
            flows,
            slow,
            waiting_for_turn: waiting.turn as u64,
            waiting_for_ceiling: waiting.ceiling as u64,
            waiting_for_thread: waiting.thread as u64,
            for_machine_nanos: self.for_machines(),
        }
    }

    fn for_machines(&self) -> BTreeMap<String, u64> {
        self.for_machines.iter().map(|(machine, nanos)| (machine.name().to_owned(), *nanos)).collect()
    }

    /// Sums over flows.
    pub(crate) fn totals(&self, waiting: Queues) -> Totals {
        let mut latency: Vec<OpReport> = self.latency.iter().map(op_report).collect();
        latency.sort_by_key(|l| (l.door, l.operation, l.class));
        let mut volumes = self.forgotten.clone();
        for ((_, volume, door), row) in &self.rows {
            volumes.entry((*volume, *door)).or_default().add(row);
        }
        let volumes = volumes.into_iter().map(|((volume, door), sum)| VolumeReport { volume, door, ..sum });
        let mut volumes: Vec<VolumeReport> = volumes.collect();
        volumes.sort_by_key(|v| (v.volume, v.door));
        let mut waits: Vec<UserWaits> = self.waits.values().cloned().collect();
        waits.sort_by_key(|w| w.uid);
        Totals {
            latency,
            volumes,
            waits,
            for_machine_nanos: self.for_machines(),
            waiting_for_turn: waiting.turn as u64,
            waiting_for_ceiling: waiting.ceiling as u64,
            waiting_for_thread: waiting.thread as u64,
        }
    }
}

/// The name of a flow's job, or of the system's work that it is.
fn job_name(flow: Flow, job: impl Fn(u32) -> Option<String>) -> Option<String> {
    flow.work().map(|work| work.name().to_owned()).or_else(|| job(flow.job))
}

fn flow_report((flow, volume, door): &RowKey, row: &Row, job: impl Fn(u32) -> Option<String>) -> FlowReport {
    let (volume, door) = (*volume, door.name().to_owned());
    FlowReport { uid: flow.uid, job: job_name(*flow, job), door, volume, usage: row.usage() }
}

fn slow_report(flow: Flow, s: &Slow, job: impl Fn(u32) -> Option<String>, now: Nanos) -> SlowReport {
    let holder_of = |cause: Cause| s.waits.holder().filter(|_| cause == Cause::Leases);
    let waited = |(cause, behind, nanos): (Cause, Option<Flow>, Nanos)| Waited {
        cause: cause.name().to_owned(),
        behind_uid: behind.map(|f| f.uid),
        behind_work: behind.and_then(Flow::work).map(|work| work.name().to_owned()),
        machine: holder_of(cause).map(|holder| holder.machine.name().to_owned()),
        were_taken: holder_of(cause).is_some_and(|holder| holder.were_taken),
        nanos,
    };
    SlowReport {
        uid: flow.uid,
        job: job_name(flow, job),
        door: s.door.name().to_owned(),
        machine: s.machine.map(|machine| machine.name().to_owned()),
        operation: Op::NAMES[s.op].to_owned(),
        node: s.node.map(|n| n.0),
        ago_nanos: now.saturating_sub(s.at),
        took_nanos: s.took,
        waited: s.waits.longest_first().into_iter().map(waited).collect(),
    }
}

fn op_report(((op, class, door), latency): (&(usize, Class, Door), &Histogram)) -> OpReport {
    let class = match class {
        Class::Interactive => "interactive",
        Class::Batch => "batch",
        Class::Background => "background",
    };
    OpReport { door: *door, operation: Op::NAMES[*op], class, latency: latency.clone() }
}

/// What a gate has seen of flows since it was made. Counts grow, but a flow that was long unused is
/// missing and may come back at zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Time of the report, on a clock of which only differences mean something.
    pub at_nanos: u64,
    /// Flows by volume.
    pub flows: Vec<FlowReport>,
    /// The slowest operations of each flow in the last minutes.
    pub slow: Vec<SlowReport>,
    /// Requests that wait for their turn now.
    pub waiting_for_turn: u64,
    /// Requests that wait for their user's ceiling.
    pub waiting_for_ceiling: u64,
    /// Requests that wait for a thread that may wait.
    pub waiting_for_thread: u64,
    /// How long operations of all flows waited for a machine to give leases back, by machine,
    /// nanoseconds.
    #[serde(default)]
    pub for_machine_nanos: BTreeMap<String, u64>,
}

/// What a gate has seen since it was made, for metrics: counts never decrease, except of what waits
/// now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How long operations took, by kind and class.
    pub latency: Vec<OpReport>,
    /// What was done in volumes, by number.
    pub volumes: Vec<VolumeReport>,
    /// What users waited, by number.
    pub waits: Vec<UserWaits>,
    /// How long operations waited for a machine to give leases back, by machine, nanoseconds.
    pub for_machine_nanos: BTreeMap<String, u64>,
    /// Requests that wait for their turn now.
    pub waiting_for_turn: u64,
    /// Requests that wait for their user's ceiling.
    pub waiting_for_ceiling: u64,
    /// Requests that wait for a thread that may wait.
    pub waiting_for_thread: u64,
}

/// A flow in a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowReport {
    /// User id.
    pub uid: u32,
    /// Job, where one is known.
    pub job: Option<String>,
    /// Name of the door: `mount`, `s3`, `http`.
    pub door: String,
    /// Volume number; that of the first view for everything read in snapshots.
    pub volume: u32,
    /// Counts of its operations.
    pub usage: Usage,
}

/// What all flows together did in a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeReport {
    /// Volume number, as in [`FlowReport::volume`].
    pub volume: u32,
    /// The door.
    pub door: Door,
    /// How long operations took.
    pub latency: Histogram,
    /// Operations that ended with an error, also such as "no such file".
    pub errors: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl VolumeReport {
    fn add(&mut self, row: &Row) {
        self.latency.add_all(&row.latency);
        self.errors += row.errors;
        self.read_bytes += row.read_bytes;
        self.written_bytes += row.written_bytes;
    }
}

/// What a user waited for, and others waited behind that user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserWaits {
    /// User id; [`OTHER_USERS`]: all users beyond the first few thousand.
    pub uid: u32,
    /// Time waited by cause, in the order of [`Cause::ALL`], nanoseconds.
    pub waited_nanos: [u64; Cause::ALL.len()],
    /// Time that operations of all users, this one included, waited behind this user, nanoseconds.
    pub behind_nanos: u64,
}

/// A slow operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowReport {
    /// User id.
    pub uid: u32,
    /// Job, where one is known.
    pub job: Option<String>,
    /// Name of the door.
    pub door: String,
    /// The machine that it came from, where it is another one.
    #[serde(default)]
    pub machine: Option<String>,
    /// Name of the operation.
    pub operation: String,
    /// The inode, or the directory of the name, that it was about.
    pub node: Option<u64>,
    /// How long ago it arrived, nanoseconds.
    pub ago_nanos: u64,
    /// Time from then to its answer, nanoseconds.
    pub took_nanos: u64,
    /// What it waited for, the longest first; the rest of its time is work.
    pub waited: Vec<Waited>,
}

/// A wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// The cause, see [`Cause`].
    pub cause: String,
    /// The user waited behind, where that is known.
    pub behind_uid: Option<u32>,
    /// The system's work on that user's behalf, if it was any.
    pub behind_work: Option<String>,
    /// The machine that gave back last what was waited for, where that is known.
    #[serde(default)]
    pub machine: Option<String>,
    /// That machine was silent or did not give it back: it was taken.
    #[serde(default)]
    pub were_taken: bool,
    /// Time waited, nanoseconds.
    pub nanos: u64,
}

/// How long operations of a kind took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpReport {
    /// The door.
    pub door: Door,
    /// Name of the operation.
    pub operation: &'static str,
    /// Name of the class.
    pub class: &'static str,
    /// Histogram of their times.
    pub latency: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_env::waits::Holder;

    fn account(uid: u32, volume: u32, at: Nanos) -> Account {
        let op = Op::GetAttr { node: NodeId::new(volume, 5) };
        let who = (Flow { uid, job: 0 }, Class::Interactive, &Ctx::user(uid, 0));
        Account::new(who, &op, Outcome::default(), at, Waits::NONE)
    }

    /// An operation from a machine that waited for another one's leases.
    fn account_of_machine((from, to): (&str, &str), at: Nanos, waited: Nanos) -> Account {
        let mut waits = Waits::NONE;
        waits.add_leases(Some(Holder { machine: Machine::named(to), were_taken: true }), waited);
        Account { machine: Some(Machine::named(from)), waits, ..account(1, 0, at) }
    }

    fn told(ledger: &Ledger, now: Nanos) -> Report {
        ledger.report(Queues::default(), |_| None, now)
    }

    #[test]
    fn the_flow_unused_for_longest_is_forgotten() {
        let mut ledger = Ledger::default();
        for uid in 0..ROWS_MAX as u32 {
            ledger.enter(account(uid, 0, 0), 1, u64::from(uid) + 1);
        }
        ledger.enter(account(0, 0, 5000), 1, 5001); // used again
        ledger.enter(account(7_000_000, 0, 6000), 1, 6001);
        let report = told(&ledger, 7000);
        assert_eq!(report.flows.len(), ROWS_MAX);
        let uids: Vec<u32> = report.flows.iter().map(|f| f.uid).collect();
        assert!(uids.contains(&0) && uids.contains(&7_000_000) && !uids.contains(&1));
    }

    #[test]
    fn the_slowest_of_the_last_minutes_are_kept() {
        let ms = 1_000_000;
        let mut ledger = Ledger::default();
        ledger.enter(account(1, 0, 0), 1, ms - 1); // not slow
        assert!(told(&ledger, ms).slow.is_empty());
        for n in 1..=100 {
            ledger.enter(account(1, 0, 0), 1, n * ms);
        }
        let took = |report: Report| report.slow.iter().map(|s| s.took_nanos / ms).collect::<Vec<_>>();
        let mut kept = took(told(&ledger, 100 * ms));
        kept.sort_unstable();
        assert_eq!(kept, (69..=100).collect::<Vec<_>>());
        // later they are not shown, and any operation takes their place
        let later = SLOW_KEPT + 200 * ms;
        assert!(told(&ledger, later).slow.is_empty());
        ledger.enter(account(1, 0, later), 1, later + 2 * ms);
        assert_eq!(took(told(&ledger, later + 2 * ms)), [2]);
    }

    #[test]
    fn machines_are_named_that_operations_come_from_and_wait_for() {
        let ms = 1_000_000;
        let mut ledger = Ledger::default();
        ledger.enter(account_of_machine(("a", "b"), 0, 7 * ms), 1, 10 * ms);
        ledger.enter(account_of_machine(("c", "b"), 0, ms), 1, 30 * ms);
        ledger.enter(account_of_machine(("a", "d"), 0, 2 * ms), 1, 5 * ms);
        let report = told(&ledger, 40 * ms);
        let usage = &report.flows[0].usage;
        assert_eq!((usage.from_machine_nanos["a"], usage.from_machine_nanos["c"]), (15 * ms, 30 * ms));
        assert_eq!((usage.for_machine_nanos["b"], usage.for_machine_nanos["d"]), (8 * ms, 2 * ms));
        assert_eq!(report.for_machine_nanos, BTreeMap::from([("b".into(), 8 * ms), ("d".into(), 2 * ms)]));
        let slowest = report.slow.iter().max_by_key(|slow| slow.took_nanos).expect("some");
        assert_eq!(
            (slowest.machine.as_deref(), slowest.waited[0].machine.as_deref()),
            (Some("c"), Some("b"))
        );
        assert!(slowest.waited[0].were_taken);
    }

    #[test]
    fn of_many_machines_those_that_matter_most_are_kept() {
        let mut sums = Vec::new();
        for n in 0..100u64 {
            add_to(&mut sums, n, 1);
            add_to(&mut sums, 1000, 5);
        }
        assert_eq!(sums.len(), KEPT_MAX);
        assert_eq!(sums.iter().max_by_key(|(_, sum)| *sum), Some(&(1000, 500)));
    }

    #[test]
    fn views_of_snapshots_are_one_volume() {
        let mut ledger = Ledger::default();
        for view in [VIEW_FIRST, VIEW_FIRST + 1, VIEW_FIRST + 9] {
            ledger.enter(account(1, view, 0), 1, 1);
        }
        let report = told(&ledger, 1);
        assert_eq!(
            report.flows.iter().map(|f| (f.volume, f.usage.operations)).collect::<Vec<_>>(),
            [(VIEW_FIRST, 3)]
        );
    }
}
