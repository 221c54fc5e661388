//! What the gate costs an operation: a file system that does nothing behind it. `bench/gate` runs
//! this.
//!
//! Prints, as lines of JSON, nanoseconds per operation on one thread: without a gate, and with the
//! gate open, shut, with settings, with jobs, while users share; then how many operations a second
//! two threads get through each of these. Medians of some rounds, each case in turn.

use leeward_env::{Activity, Ctx, Env, Nanos};
use leeward_fs::flows::{FlowRecord, FlowSettings, UserOrGroup};
use leeward_fs::{Engine, Fs, NodeId, Op, Reply, Result, Turns, Watcher};
use leeward_vfs::{Gate, GateOptions, People};
use std::hint::black_box;
use std::sync::Arc;

const ROUNDS: usize = 11;

/// Answers everything at once.
#[derive(Default)]
struct Nothing(Activity);

impl Fs for Nothing {
    fn call(&self, _: &Ctx, _: Op<'_>) -> Result<Reply> {
        Ok(Reply::Done)
    }

    fn watch(&self, _: Arc<dyn Watcher>) {}

    fn is_invalidating(&self) -> bool {
        false
    }

    fn wait_invalidated(&self) {}
}

impl Engine for Nothing {
    fn users_ask(&self, now: Nanos) {
        self.0.asked(now);
    }

    fn users_share(&self, until: Nanos) {
        self.0.share(until);
    }

    fn give_turns(&self, _: Arc<dyn Turns>) {}
}

/// All processes are in a job, all users in a group.
struct Known;

impl People for Known {
    fn groups_of(&self, uid: u32) -> Vec<u32> {
        vec![uid]
    }

    fn job_of(&self, pid: u32) -> Option<String> {
        Some(format!("job {}", pid / 10))
    }
}

/// One way through the gate.
struct Case {
    name: &'static str,
    gate: Option<Gate>,
    /// Users who come in turn.
    users: u32,
}

impl Case {
    fn op(&self, n: u32) {
        let op = Op::GetAttr { node: NodeId(black_box(5)) };
        let ctx = Ctx { pid: 1000 + n % 8, ..Ctx::user(n % self.users, 0) };
        match &self.gate {
            None => drop(black_box(Nothing::default().call(&ctx, op))),
            Some(gate) => gate.run(ctx, op, |result| drop(black_box(result))),
        }
    }

    fn nanos_per_op(&self, env: &Env, operations: u32) -> f64 {
        let begun = env.now();
        (0..operations).for_each(|n| self.op(n));
        (env.now() - begun) as f64 / f64::from(operations)
    }

    fn of_two_threads(&self, env: &Env, operations: u32) -> f64 {
        let begun = env.now();
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| (0..operations).for_each(|n| self.op(n)));
            }
        });
        2.0 * f64::from(operations) / ((env.now() - begun) as f64 / 1e9)
    }
}

fn cases(env: &Env) -> Vec<Case> {
    let gate = |options, settings| {
        let gate = Gate::with_people(Arc::<Nothing>::default(), env, options, Arc::new(Known));
        gate.set_flows(settings);
        Some(gate)
    };
    let shut = GateOptions::usual();
    let none = FlowSettings::default;
    let settings = |record| {
        let mut all = none();
        (0..100)
            .for_each(|n| all.set(if n < 50 { UserOrGroup::User(n) } else { UserOrGroup::Group(n) }, record));
        all
    };
    let weight = FlowRecord { weight: Some(200), ..FlowRecord::default() };
    let ceiling = FlowRecord { ops_per_sec: Some(1 << 40), bytes_per_sec: Some(1 << 50), ..weight };
    vec![
        Case { name: "no gate", gate: None, users: 1 },
        Case { name: "open", gate: gate(GateOptions { fair: false, ..shut }, none()), users: 1 },
        Case { name: "shut", gate: gate(shut, none()), users: 1 },
        Case { name: "shut, two users", gate: gate(shut, none()), users: 2 },
        Case { name: "shut, weights", gate: gate(shut, settings(weight)), users: 2 },
        Case { name: "shut, ceilings", gate: gate(shut, settings(ceiling)), users: 2 },
        Case { name: "shut, jobs", gate: gate(GateOptions { jobs: true, ..shut }, none()), users: 2 },
    ]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let operations = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200_000);
    let env = Env::real();
    let cases = cases(&env);
    let mut found = vec![(Vec::new(), Vec::new()); cases.len()];
    for _ in 0..ROUNDS {
        for (case, (nanos, rates)) in cases.iter().zip(&mut found) {
            nanos.push(case.nanos_per_op(&env, operations));
            rates.push(case.of_two_threads(&env, operations));
        }
    }
    for (case, (nanos, rates)) in cases.iter().zip(found) {
        let (nanos, rate) = (median(nanos), median(rates));
        println!(
            "{{\"case\": \"{}\", \"nanos_per_operation\": {nanos:.0}, \"two_threads_per_second\": {rate:.0}}}",
            case.name
        );
    }
}
