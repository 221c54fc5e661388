//! What flows do now, what they wait for, and behind whom: differences of two looks at the gate's
//! counts.

use crate::control::Flows;
use crate::{names, output};
use clap::ValueEnum;
use leeward_env::waits::Cause;
use leeward_remote::HostFigures;
use leeward_vfs::ledger::{FlowReport, Usage};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeMap;

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Share of the time that the cell worked
    Share,
    /// Operations
    Ops,
    /// Bytes read
    Read,
    /// Bytes written
    Write,
    /// Time waited
    Wait,
    /// Memory for data that is not stored yet
    Dirty,
    /// User
    User,
}

/// What is shown.
#[derive(Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Length of the interval.
    pub seconds: f64,
    pub operations_per_second: f64,
    pub waiting_for_turn: u64,
    pub waiting_for_ceiling: u64,
    pub waiting_for_thread: u64,
    pub dirty_bytes: u64,
    pub flows: Vec<Row>,
    /// Other machines.
    pub machines: Vec<MachineRow>,
}

/// What another machine does.
#[derive(Debug, PartialEq, Serialize)]
pub struct MachineRow {
    pub host: String,
    /// Connected now.
    pub sessions: u64,
    pub operations_per_second: f64,
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    /// Mean time from arrival at the server to the answer.
    pub milliseconds_per_operation: f64,
    /// How long operations, of whomever, waited in the interval for it to give leases back.
    pub waited_for_milliseconds: f64,
}

/// A flow in a volume.
#[derive(Debug, PartialEq, Serialize)]
pub struct Row {
    pub user: String,
    pub uid: u32,
    pub job: Option<String>,
    /// By which door: `mount`, `s3`, `http`, `remote`.
    pub door: String,
    /// The machines that it came from, where they are others, the busiest first.
    pub from_machines: Vec<FromMachine>,
    pub volume: String,
    pub operations_per_second: f64,
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    /// Of the time that operations of all flows held slots and threads.
    pub share: f64,
    /// Mean time from arrival to answer.
    pub milliseconds_per_operation: f64,
    /// What of it was waiting.
    pub waited_milliseconds_per_operation: f64,
    /// Most of it for this.
    pub waited_for: Option<String>,
    /// Most of it behind this user.
    pub waited_behind: Option<String>,
    /// Most of what was waited for leases for this machine to give them back.
    pub waited_for_machine: Option<String>,
    /// Of the flow, in all volumes.
    pub dirty_bytes: u64,
}

/// A part of a flow.
#[derive(Debug, PartialEq, Serialize)]
pub struct FromMachine {
    pub host: String,
    /// Of the time of all operations of the flow.
    pub share: f64,
}

/// Rates between two looks.
pub fn rates(before: &Flows, now: &Flows, order: Order) -> Shown {
    let seconds = now.report.at_nanos.saturating_sub(before.report.at_nanos) as f64 / 1e9;
    let earlier: BTreeMap<_, _> = before.report.flows.iter().map(|f| (key(f), &f.usage)).collect();
    let none = Usage::default();
    let mut used: Vec<(&FlowReport, Usage)> = Vec::new();
    for flow in &now.report.flows {
        let usage = since(&flow.usage, earlier.get(&key(flow)).copied().unwrap_or(&none));
        if usage.operations > 0 {
            used.push((flow, usage));
        }
    }
    let service: u64 = used.iter().map(|(_, u)| u.service_nanos).sum();
    let mut flows: Vec<Row> =
        used.iter().map(|(flow, usage)| row(flow, usage, now, seconds, service)).collect();
    flows.sort_by(|a, b| rank(b, order).total_cmp(&rank(a, order)).then(a.uid.cmp(&b.uid)));
    Shown {
        seconds,
        operations_per_second: flows.iter().fold(0.0, |sum, f| sum + f.operations_per_second),
        waiting_for_turn: now.report.waiting_for_turn,
        waiting_for_ceiling: now.report.waiting_for_ceiling,
        waiting_for_thread: now.report.waiting_for_thread,
        dirty_bytes: now.dirty_bytes.iter().map(|(_, bytes)| bytes).sum(),
        flows,
        machines: machines(before, now, seconds),
    }
}

/// Machines that are connected, or did something.
fn machines(before: &Flows, now: &Flows, seconds: f64) -> Vec<MachineRow> {
    let none = HostFigures::default();
    let (before_waits, now_waits) = (&before.report.for_machine_nanos, &now.report.for_machine_nanos);
    let earlier: BTreeMap<&str, &HostFigures> =
        before.machines.iter().map(|machine| (&*machine.host, machine)).collect();
    let row = |now: &HostFigures| {
        let before = earlier.get(&*now.host).copied().unwrap_or(&none);
        let requests = now.requests.saturating_sub(before.requests);
        let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds.max(1e-9);
        let waited_for = waited_for(now_waits, &now.host) - waited_for(before_waits, &now.host);
        let is_shown = now.sessions > 0 || requests > 0 || waited_for > 0.0;
        is_shown.then(|| MachineRow {
            host: now.host.clone(),
            sessions: now.sessions,
            operations_per_second: per_second(now.requests, before.requests),
            read_bytes_per_second: per_second(now.read_bytes, before.read_bytes),
            written_bytes_per_second: per_second(now.written_bytes, before.written_bytes),
            milliseconds_per_operation: now.nanos.saturating_sub(before.nanos) as f64
                / 1e6
                / requests.max(1) as f64,
            waited_for_milliseconds: waited_for.max(0.0),
        })
    };
    let mut rows: Vec<MachineRow> = now.machines.iter().filter_map(row).collect();
    rows.sort_by(|a, b| b.operations_per_second.total_cmp(&a.operations_per_second));
    rows
}

/// How long was waited for a machine, milliseconds.
fn waited_for(all: &BTreeMap<String, u64>, host: &str) -> f64 {
    all.get(host).map_or(0.0, |nanos| *nanos as f64 / 1e6)
}

fn key(flow: &FlowReport) -> (u32, Option<&str>, &str, u32) {
    (flow.uid, flow.job.as_deref(), &flow.door, flow.volume)
}

fn rank(row: &Row, order: Order) -> f64 {
    match order {
        Order::Share => row.share,
        Order::Ops => row.operations_per_second,
        Order::Read => row.read_bytes_per_second,
        Order::Write => row.written_bytes_per_second,
        Order::Wait => row.waited_milliseconds_per_operation,
        Order::Dirty => row.dirty_bytes as f64,
        Order::User => -f64::from(row.uid),
    }
}

/// What came in between. A flow that was forgotten meanwhile began again at zero.
fn since(now: &Usage, before: &Usage) -> Usage {
    if now.operations < before.operations {
        return now.clone();
    }
    let by_name = |now: &FxHashMap<String, u64>, before: &FxHashMap<String, u64>| {
        let since = |(name, nanos): (&String, &u64)| {
            (name.clone(), nanos - before.get(name).copied().unwrap_or(0).min(*nanos))
        };
        now.iter().map(since).collect::<FxHashMap<String, u64>>()
    };
    let behind = |(uid, nanos): (&u32, &u64)| {
        (*uid, nanos - before.behind_nanos.get(uid).copied().unwrap_or(0).min(*nanos))
    };
    Usage {
        operations: now.operations - before.operations,
        errors: now.errors - before.errors,
        read_bytes: now.read_bytes - before.read_bytes,
        written_bytes: now.written_bytes - before.written_bytes,
        service_nanos: now.service_nanos - before.service_nanos,
        total_nanos: now.total_nanos - before.total_nanos,
        waited_nanos: by_name(&now.waited_nanos, &before.waited_nanos),
        behind_nanos: now.behind_nanos.iter().map(behind).collect(),
        for_machine_nanos: by_name(&now.for_machine_nanos, &before.for_machine_nanos),
        from_machine_nanos: by_name(&now.from_machine_nanos, &before.from_machine_nanos),
    }
}

fn row(flow: &FlowReport, usage: &Usage, now: &Flows, seconds: f64, service: u64) -> Row {
    let per_second = |count: u64| count as f64 / seconds.max(1e-9);
    let per_operation = |nanos: u64| nanos as f64 / 1e6 / usage.operations as f64;
    let longest = longest(&usage.waited_nanos);
    let most = usage.behind_nanos.iter().filter(|(_, n)| **n > 0).max_by_key(|(uid, n)| (**n, **uid));
    let volume = now.volumes.get(&flow.volume).cloned();
    Row {
        user: names::user_name(flow.uid),
        uid: flow.uid,
        job: flow.job.clone(),
        door: flow.door.clone(),
        from_machines: from_machines(usage),
        volume: volume.unwrap_or_else(|| "(snapshots)".into()),
        operations_per_second: per_second(usage.operations),
        read_bytes_per_second: per_second(usage.read_bytes),
        written_bytes_per_second: per_second(usage.written_bytes),
        share: usage.service_nanos as f64 / service.max(1) as f64,
        milliseconds_per_operation: per_operation(usage.total_nanos),
        waited_milliseconds_per_operation: per_operation(usage.waited_nanos.values().sum()),
        waited_for: longest.cloned(),
        waited_behind: most.map(|(uid, _)| names::user_name(*uid)),
        waited_for_machine: self::longest(&usage.for_machine_nanos).cloned(),
        dirty_bytes: now.dirty_bytes.iter().filter(|(uid, _)| *uid == flow.uid).map(|(_, bytes)| bytes).sum(),
    }
}

/// The name with most of the time.
fn longest(times: &FxHashMap<String, u64>) -> Option<&String> {
    let longest = times.iter().filter(|(_, n)| **n > 0).max_by_key(|(name, n)| (**n, *name));
    longest.map(|(name, _)| name)
}

/// The machines that operations came from.
fn from_machines(usage: &Usage) -> Vec<FromMachine> {
    let share = |nanos: u64| nanos as f64 / usage.total_nanos.max(1) as f64;
    let times = usage.from_machine_nanos.iter().filter(|(_, nanos)| **nanos > 0);
    let mut all: Vec<FromMachine> = times
        .map(|(host, nanos)| FromMachine { host: host.clone(), share: share(*nanos).min(1.0) })
        .collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.host.cmp(&b.host)));
    all
}

/// The door of a row, with the machine that most came from, and how many others there are.
pub fn door(row: &Row) -> String {
    match &row.from_machines[..] {
        [] => row.door.clone(),
        [one] => format!("{} {}", row.door, output::printable(&one.host)),
        [first, others @ ..] => {
            format!("{} {} +{}", row.door, output::printable(&first.host), others.len())
        }
    }
}

/// Whom a flow waited for most: a machine, where that was for leases.
pub fn behind(row: &Row) -> String {
    let is_for_leases = row.waited_for.as_deref() == Some(Cause::Leases.name());
    let machine = row.waited_for_machine.as_ref().filter(|_| is_for_leases);
    machine.or(row.waited_behind.as_ref()).map_or_else(|| "-".into(), |name| output::printable(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_vfs::ledger::Report;

    fn flows(at_secs: u64, operations: &[(u32, u64)]) -> Flows {
        let flow = |(uid, operations): &(u32, u64)| FlowReport {
            uid: *uid,
            job: None,
            door: "mount".into(),
            volume: 0,
            usage: Usage {
                operations: *operations,
                service_nanos: operations * 1000,
                total_nanos: operations * 4_000_000,
                waited_nanos: [("commit".to_owned(), operations * 3_000_000)].into_iter().collect(),
                behind_nanos: [(7_000_000, operations * 3_000_000)].into_iter().collect(),
                ..Usage::default()
            },
        };
        let report = Report {
            at_nanos: at_secs * 1_000_000_000,
            flows: operations.iter().map(flow).collect(),
            ..Report::default()
        };
        Flows { report, ..Flows::default() }
    }

    #[test]
    fn rates_are_differences() {
        let (before, now) = (flows(10, &[(1, 100), (2, 50)]), flows(12, &[(1, 100), (2, 150), (3, 300)]));
        let shown = rates(&before, &now, Order::Share);
        let rates: Vec<_> = shown.flows.iter().map(|f| (f.uid, f.operations_per_second)).collect();
        assert_eq!(rates, [(3, 150.0), (2, 50.0)], "who did nothing is not shown");
        assert!((shown.flows[0].share - 0.75).abs() < 1e-9);
        assert!((shown.flows[1].milliseconds_per_operation - 4.0).abs() < 1e-9);
        assert!((shown.flows[1].waited_milliseconds_per_operation - 3.0).abs() < 1e-9);
        assert_eq!(shown.flows[1].waited_for.as_deref(), Some("commit"));
        assert_eq!(shown.flows[1].waited_behind.as_deref(), Some("7000000"));
        assert_eq!(shown.operations_per_second, 200.0);
    }

    #[test]
    fn machines_that_are_connected_or_did_something_are_shown() {
        let machine = |host: &str, sessions, requests| HostFigures {
            host: host.into(),
            sessions,
            requests,
            read_bytes: requests * 10,
            nanos: requests * 2_000_000,
            ..HostFigures::default()
        };
        let at = |secs, machines: Vec<HostFigures>| Flows { machines, ..flows(secs, &[]) };
        let before = at(1, vec![machine("a", 1, 10), machine("gone", 0, 5)]);
        let now = at(3, vec![machine("a", 1, 30), machine("gone", 0, 5), machine("new", 1, 0)]);
        let shown = rates(&before, &now, Order::Share).machines;
        let hosts: Vec<_> = shown.iter().map(|row| (&*row.host, row.operations_per_second)).collect();
        assert_eq!(hosts, [("a", 10.0), ("new", 0.0)]);
        assert!((shown[0].milliseconds_per_operation - 2.0).abs() < 1e-9);
        assert!((shown[0].read_bytes_per_second - 100.0).abs() < 1e-9);
    }

    #[test]
    fn machines_are_named_that_a_flow_comes_from_and_waits_for() {
        let at = |secs, a, b, waited| {
            let mut flows = flows(secs, &[(1, secs * 100)]);
            let usage = &mut flows.report.flows[0].usage;
            usage.total_nanos = a + b;
            usage.from_machine_nanos = [("a".to_owned(), a), ("b".to_owned(), b)].into_iter().collect();
            usage.waited_nanos = [("leases".to_owned(), waited)].into_iter().collect();
            usage.for_machine_nanos = [("node17".to_owned(), waited)].into_iter().collect();
            flows.report.for_machine_nanos = [("node17".to_owned(), waited)].into_iter().collect();
            flows.machines = vec![HostFigures { host: "node17".into(), ..HostFigures::default() }];
            flows
        };
        let shown = rates(&at(1, 900, 0, 0), &at(2, 1000, 300, 2_100_000_000), Order::Share);
        let row = &shown.flows[0];
        let from: Vec<_> = row.from_machines.iter().map(|from| (&*from.host, from.share)).collect();
        assert_eq!(from, [("b", 0.75), ("a", 0.25)]);
        assert_eq!((&*door(row), &*behind(row)), ("mount b +1", "node17"));
        assert_eq!(shown.machines[0].waited_for_milliseconds, 2100.0, "though it is not connected");
    }

    #[test]
    fn a_flow_that_began_again_counts_from_zero() {
        let shown = rates(&flows(10, &[(1, 100)]), &flows(11, &[(1, 30)]), Order::Ops);
        assert_eq!(shown.flows[0].operations_per_second, 30.0);
    }
}
