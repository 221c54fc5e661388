//! A whole run: try the endpoint, fill it, hold idle connections, measure with more connections
//! step by step, search the most that it bears, clean up.

use super::Op;
use super::crew::{Crew, Hand, SoFar};
use super::load::{Latencies, latencies};
use super::search::Search;
use super::target::Target;
use super::watch::{self, Usage};
use super::worker::{Command, Order, Outcome};
use crate::Refused;
use crate::stats::{Summary, micros};
use crate::stop::Stop;
use crate::sys::CpuTimes;
use leeward_env::Env;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// File descriptors of a process that are not for the connections of a step.
const OTHER_FILES: u64 = 256;
/// Objects that are put before the first step if something is to be read and no number is given.
const FILL: u64 = 1000;
/// How often the search halves the gap between a number of connections that holds and one that does
/// not.
const HALVES: u32 = 6;
/// Pause between two steps.
const REST: Duration = Duration::from_secs(1);
/// Pause after the last idle connection was opened, before the server's memory is read. A server
/// may free the buffers of a quiet connection only after a while.
const IDLE_REST: Duration = Duration::from_secs(10);
/// A process that uses more than this part of a processor is itself the limit of the load.
const BUSY: f64 = 0.9;

/// The numbers of connections of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loads {
    /// These numbers, one after the other.
    Steps(Vec<u64>),
    /// Doubled from the first number up to the second until one does not hold; then the gap is
    /// halved.
    Search(u64, u64),
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the load goes.
    pub target: Target,
    /// Numbers of connections.
    pub loads: Loads,
    /// Operations with their weights.
    pub mix: Vec<(Op, u32)>,
    /// Sizes in bytes with their weights.
    pub sizes: Vec<(u64, u32)>,
    /// Time in which requests of a step may begin.
    pub each: Duration,
    /// Most requests that may begin in a step.
    pub requests: Option<u64>,
    /// Pause of a client after each answer.
    pub pause: Duration,
    /// Time that a request may take.
    pub patience: Duration,
    /// Part of the requests that may fail in a load that holds.
    pub errors_max: f64,
    /// p99 of each operation that a load which holds may have at most.
    pub p99_max: Option<Duration>,
    /// Number of idle connections, held during the whole run.
    pub idle: u64,
    /// Objects put before the first step.
    pub fill: Option<u64>,
    /// Most objects at a time.
    pub objects: u64,
    /// Most bytes that the objects may have together.
    pub space_bytes: u64,
    /// Least number of processes. There are more if file descriptors run out.
    pub processes: u64,
    /// Addresses that connections come from.
    pub sources: Vec<IpAddr>,
    /// Processes of the server, on this machine.
    pub server: Vec<u32>,
    /// Whether to make the bucket first, and to remove it at the end.
    pub make_bucket: bool,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The kind of this answer in the JSON output.
    pub reply: &'static str,
    /// URL of the endpoint that was measured.
    pub url: String,
    /// Start of the run, in milliseconds since 1970.
    pub at_ms: u64,
    /// Operations with their weights.
    pub mix: Vec<(Op, u32)>,
    /// Sizes in bytes with their weights.
    pub sizes: Vec<(u64, u32)>,
    /// Pause of a client after each answer, in milliseconds.
    pub pause_ms: u64,
    /// Time that a request may take, in milliseconds.
    pub patience_ms: u64,
    /// Part of the requests that may fail in a load that holds.
    pub errors_max: f64,
    /// p99 that a load which holds may have at most, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_max_us: Option<f64>,
    /// Number of processors of this machine.
    pub processors: usize,
    /// Number of processes that made the load.
    pub processes: u64,
    /// Results of putting objects before the first step, if there were any to put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Measured>,
    /// The idle connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// The steps, in their order.
    pub steps: Vec<Measured>,
    /// The most connections that held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<u64>,
    /// The fewest connections that did not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails: Option<u64>,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
    /// What could not be removed, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// Results of the idle connections.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Idle {
    /// Number of connections that were asked for.
    pub connections: u64,
    /// Connections that were opened and got one answer.
    pub open: u64,
    /// Connections that were still open after the last step.
    pub open_in_the_end: u64,
    /// Connections that could not be opened or got no answer, by class.
    pub errors: BTreeMap<String, (u64, String)>,
    /// Growth of the server's memory for each open connection, in bytes, after a while without
    /// requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_bytes_each: Option<f64>,
}

/// Results with one number of connections.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Number of connections that were asked for.
    pub connections: u64,
    /// Time over which the rates are computed, in seconds.
    pub seconds: f64,
    /// Requests that succeeded, including those that ended after that time.
    pub succeeded: u64,
    /// Requests and connections that failed.
    pub failed: u64,
    /// The part of all requests that failed.
    pub error_rate: f64,
    /// Failures by class, with the text of the first one.
    pub errors: BTreeMap<String, (u64, String)>,
    /// Clients that sent requests of which every one failed.
    pub never_served: u64,
    /// Results by operation.
    pub ops: BTreeMap<Op, OpMeasured>,
    /// Processors that all processes of the load used together.
    pub load_processors: f64,
    /// Whether the load was the limit: then the endpoint can do more.
    pub load_was_the_limit: bool,
    /// The part of this machine's processors that was in use.
    pub machine_busy: f64,
    /// Processors that the server used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_processors: Option<f64>,
    /// Resident memory of the server after the step, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_rss_bytes: Option<u64>,
    /// Whether this number of connections holds.
    pub holds: bool,
}

/// Results of one operation.
#[derive(Clone, Debug, Serialize)]
pub struct OpMeasured {
    /// Successes per second.
    pub rate: f64,
    /// MiB per second.
    pub mib_s: f64,
    /// Latencies of all successes.
    #[serde(flatten)]
    pub latency: Summary,
    /// Latency that 99.9 % of them did not exceed, in microseconds.
    pub p999_us: f64,
    /// Pairs of a latency in microseconds and the part that took at most that long, for a plot.
    #[serde(skip)]
    pub distribution: Vec<(f64, f64)>,
}

/// How far a run has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The current phase, for a person to read.
    pub phase: String,
    /// Part of `total` that is done, in the unit of the phase.
    pub done: u64,
    /// The whole, or 0 if it is not known.
    pub total: u64,
}

impl Plan {
    /// The most connections of any step.
    pub fn most(&self) -> u64 {
        let steps = match &self.loads {
            Loads::Steps(steps) => steps.iter().copied().max().unwrap_or(1),
            Loads::Search(_, to) => *to,
        };
        steps.max(1)
    }

    fn orders(&self, env: &Env) -> Result<Vec<Order>, Refused> {
        let room = open_files_max().saturating_sub(OTHER_FILES).max(1);
        let processes = (self.most() + self.idle).div_ceil(room).max(self.processes).max(1);
        let all: u64 = self.sizes.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let bytes: u64 =
            self.sizes.iter().map(|(size, weight)| size.saturating_mul(u64::from(*weight))).sum();
        let by_space = self.space_bytes / (bytes / all.max(1)).max(1);
        let objects = self.objects.min(by_space) / processes;
        if objects == 0 {
            let next = "allow more --space, or smaller objects";
            return Err(Refused(format!(
                "objects of that size do not fit into {} bytes: {next}",
                self.space_bytes
            )));
        }
        let name = format!("lee-lab-{:08x}", env.random() & 0xffff_ffff);
        let slash = if self.target.prefix.is_empty() { "" } else { "/" };
        let run = format!("{}{slash}{name}", self.target.prefix);
        let order = |number| Order {
            target: self.target.clone(),
            number,
            run: run.clone(),
            objects,
            sizes: self.sizes.clone(),
            pause_ms: self.pause.as_millis() as u64,
            patience_ms: self.patience.as_millis() as u64,
            sources: self.sources.clone(),
        };
        Ok((0..processes).map(order).collect())
    }

    /// Objects that each process puts before the first step.
    fn fill_each(&self, processes: u64, objects: u64) -> u64 {
        let reads = self.mix.iter().any(|(op, weight)| *op != Op::Put && *weight > 0);
        let asked = self.fill.unwrap_or(if reads { FILL } else { 0 });
        // Idle connections and readers ask for objects of their own process: each has one at least.
        let least = u64::from(reads || self.idle > 0);
        asked.div_ceil(processes).max(least).min(objects)
    }
}

/// The hard limit of open files of a process.
fn open_files_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is valid for the call. If the call fails, its values stay 0.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_max
}

/// The part of `all` that number `n` of `parts` gets.
fn share(all: u64, n: u64, parts: u64) -> u64 {
    all / parts + u64::from(n < all % parts)
}

/// Runs a plan. `launch` starts a process, or a thread, that runs [`super::worker::serve`].
///
/// # Errors
/// An endpoint that cannot be measured, with the next step.
pub fn run(
    env: &Env,
    plan: &Plan,
    stop: &Stop,
    launch: &dyn Fn() -> io::Result<Hand>,
    record: &mut dyn FnMut(&Progress),
) -> Result<Report, Refused> {
    let orders = plan.orders(env)?;
    let crew = Crew::start(env, &orders, launch).map_err(|e| broken(&e))?;
    let (processes, objects) = (orders.len() as u64, orders[0].objects);
    let mut run = Run { env, plan, stop, crew, processes, record };
    run.all("asking for the first time", &[Command::Try { make_bucket: plan.make_bucket }])?;
    let mut report = Report {
        reply: "s3",
        url: plan.target.url(),
        at_ms: env.wall() / 1_000_000,
        mix: plan.mix.clone(),
        sizes: plan.sizes.clone(),
        pause_ms: plan.pause.as_millis() as u64,
        patience_ms: plan.patience.as_millis() as u64,
        errors_max: plan.errors_max,
        p99_max_us: plan.p99_max.map(|max| micros(max.as_nanos() as u64)),
        processors: crate::sys::processors(),
        processes,
        fill: None,
        idle: None,
        steps: Vec::new(),
        holds: None,
        fails: None,
        stopped: false,
        left: None,
    };
    let measured = run.measure(&mut report, objects);
    report.stopped = stop.asked();
    report.left = run.sweep(&orders[0]);
    match (measured, &report.left) {
        (Err(Refused(why)), Some(left)) => Err(Refused(format!("{why}; {left}"))),
        (measured, _) => measured.map(|()| report),
    }
}

struct Run<'a> {
    env: &'a Env,
    plan: &'a Plan,
    stop: &'a Stop,
    crew: Crew,
    processes: u64,
    record: &'a mut dyn FnMut(&Progress),
}

impl Run<'_> {
    fn measure(&mut self, report: &mut Report, objects: u64) -> Result<(), Refused> {
        let fill = self.plan.fill_each(self.processes, objects);
        if fill > 0 {
            report.fill = self.fill(fill)?;
        }
        if self.plan.idle > 0 && !self.stop.asked() {
            report.idle = Some(self.idle()?);
        }
        let (mut search, steps) = match &self.plan.loads {
            Loads::Search(from, to) => (Some(Search::new(*from, *to, HALVES)), Vec::new()),
            Loads::Steps(steps) => (None, steps.clone()),
        };
        let mut steps = steps.into_iter();
        while !self.stop.asked() {
            let next = search.as_ref().map_or_else(|| steps.next(), Search::next);
            let Some(connections) = next else { break };
            if !report.steps.is_empty() && self.stop.sleep(self.env, REST) {
                break;
            }
            let (measured, quiet) = self.step(connections)?;
            if let Some(idle) = &mut report.idle {
                idle.open_in_the_end = quiet;
            }
            // A step that was cut short says nothing.
            if self.stop.asked() {
                break;
            }
            if let Some(search) = &mut search {
                search.record(connections, measured.holds);
            }
            report.steps.push(measured);
        }
        let held = |holds: bool| {
            report.steps.iter().filter(move |step| step.holds == holds).map(|step| step.connections)
        };
        (report.holds, report.fails) = (held(true).max(), held(false).min());
        Ok(())
    }

    /// Sends one command to each process and returns the outcomes of all.
    fn all(&mut self, phase: &str, commands: &[Command]) -> Result<Vec<Outcome>, Refused> {
        let mut watch =
            |sofar: SoFar| (self.record)(&Progress { phase: phase.into(), done: sofar.done, total: 0 });
        let outcomes = self.crew.ask(commands, Some(self.stop), &mut watch).map_err(|e| broken(&e))?;
        match outcomes.iter().find_map(|outcome| outcome.cannot.clone()) {
            Some(why) => Err(Refused(format!("{}: {why}", self.plan.target.url()))),
            None => Ok(outcomes),
        }
    }

    fn fill(&mut self, each: u64) -> Result<Option<Measured>, Refused> {
        let total = each * self.processes;
        let before = self.before();
        let mut watch = |sofar: SoFar| {
            (self.record)(&Progress { phase: "putting objects".into(), done: sofar.done, total })
        };
        let commands = vec![Command::Fill { objects: each }; self.processes as usize];
        let outcomes = self.crew.ask(&commands, Some(self.stop), &mut watch).map_err(|e| broken(&e))?;
        let there: u64 = outcomes.iter().map(|outcome| outcome.objects).sum();
        let measured = self.measured(64.min(each) * self.processes, &outcomes, &[], before);
        if there < total && !self.stop.asked() {
            let why =
                measured.errors.iter().map(|(class, (count, text))| format!("{count} x {class} {text}"));
            let why = why.collect::<Vec<_>>().join(", ");
            return Err(Refused(format!(
                "{}: only {there} of {total} objects could be put before the first step ({why}): start with less load",
                self.plan.target.url()
            )));
        }
        Ok((measured.succeeded > 0).then_some(measured))
    }

    fn idle(&mut self) -> Result<Idle, Refused> {
        let before = watch::usage(&self.plan.server);
        let share = |n| Command::Idle { connections: share(self.plan.idle, n, self.processes) };
        let commands: Vec<Command> = (0..self.processes).map(share).collect();
        let outcomes = self.all("opening idle connections", &commands)?;
        let open: u64 = outcomes.iter().map(|outcome| outcome.quiet).sum();
        if !self.plan.server.is_empty() {
            self.stop.sleep(self.env, IDLE_REST);
        }
        let after = watch::usage(&self.plan.server);
        let grown = before.zip(after).filter(|_| open > 0 && !self.plan.server.is_empty());
        Ok(Idle {
            connections: self.plan.idle,
            open,
            open_in_the_end: open,
            errors: errors(&outcomes),
            server_bytes_each: grown.map(|(a, b)| (b.rss_bytes as f64 - a.rss_bytes as f64) / open as f64),
        })
    }

    fn step(&mut self, connections: u64) -> Result<(Measured, u64), Refused> {
        let processes = self.processes;
        let open = |n| Command::Open { connections: share(connections, n, processes) };
        let commands: Vec<Command> = (0..processes).map(open).collect();
        let opened = self.all(&format!("opening {connections} connections"), &commands)?;
        // Each of the first `working` processes has a connection at least.
        let working = connections.min(processes);
        let lasts = self.plan.each;
        let step = |n| Command::Step {
            mix: self.plan.mix.clone(),
            lasts_ms: lasts.as_millis() as u64,
            requests: self.plan.requests.map(|all| if n < working { share(all, n, working) } else { 0 }),
        };
        let commands: Vec<Command> = (0..processes).map(step).collect();
        let before = self.before();
        let mut watch = |sofar: SoFar| {
            let failed = if sofar.failed > 0 { format!(", {} failed", sofar.failed) } else { String::new() };
            let phase = format!("{connections} connections: {} answers{failed}", sofar.done);
            let (done, total) = (sofar.elapsed.as_millis() as u64 / 100, lasts.as_millis() as u64 / 100);
            (self.record)(&Progress { phase, done: done.min(total), total });
        };
        let outcomes = self.crew.ask(&commands, Some(self.stop), &mut watch).map_err(|e| broken(&e))?;
        let mut measured = self.measured(connections, &outcomes, &opened, before);
        measured.holds = holds(&measured, self.plan.errors_max, self.plan.p99_max);
        Ok((measured, outcomes.iter().map(|outcome| outcome.quiet).sum()))
    }

    fn before(&self) -> Before {
        Before { cpu: CpuTimes::now(), server: watch::usage(&self.plan.server), at: self.env.now() }
    }

    fn measured(
        &self,
        connections: u64,
        outcomes: &[Outcome],
        opened: &[Outcome],
        before: Before,
    ) -> Measured {
        let wall = ((self.env.now() - before.at) as f64 / 1e9).max(1e-9);
        let seconds = outcomes.iter().map(|outcome| outcome.seconds).fold(0.0, f64::max).max(1e-9);
        let mut errors = errors(outcomes);
        for (class, (count, text)) in self::errors(opened) {
            errors.entry(class).or_insert((0, text)).0 += count;
        }
        let ops = ops(outcomes, seconds);
        let succeeded: u64 = ops.values().map(|op| op.latency.count).sum();
        let failed: u64 = errors.values().map(|(count, _)| count).sum();
        let busiest = outcomes.iter().map(|outcome| outcome.cpu_s / wall).fold(0.0, f64::max);
        let after = if self.plan.server.is_empty() { None } else { watch::usage(&self.plan.server) };
        Measured {
            connections,
            seconds,
            succeeded,
            failed,
            error_rate: failed as f64 / (succeeded + failed).max(1) as f64,
            errors,
            never_served: outcomes.iter().map(|outcome| outcome.unserved).sum(),
            ops,
            load_processors: outcomes.iter().map(|outcome| outcome.cpu_s / wall).sum(),
            load_was_the_limit: busiest > BUSY,
            machine_busy: CpuTimes::now().busy_since(before.cpu),
            server_processors: before.server.zip(after).map(|(a, b)| (b.cpu_s - a.cpu_s) / wall),
            server_rss_bytes: after.map(|usage| usage.rss_bytes),
            holds: true,
        }
    }

    /// Removes everything. Returns what could not be removed.
    fn sweep(&mut self, order: &Order) -> Option<String> {
        let commands = [Command::Sweep { remove_bucket: self.plan.make_bucket }];
        let mut watch = |sofar: SoFar| {
            (self.record)(&Progress { phase: "removing objects".into(), done: sofar.done, total: 0 });
        };
        // A stop does not end this. A second one ends the process.
        let why = match self.crew.ask(&commands, None, &mut watch) {
            Ok(outcomes) => outcomes.into_iter().find_map(|outcome| outcome.cannot)?,
            Err(e) => e.to_string(),
        };
        Some(format!("objects are left below {}/ in the bucket {}: {why}", order.run, order.target.bucket))
    }
}

/// The state of the machine and of the server before a step.
struct Before {
    cpu: CpuTimes,
    server: Option<Usage>,
    at: u64,
}

fn broken(error: &io::Error) -> Refused {
    Refused(format!(
        "the load cannot be made: {}: is there memory, and room for processes?",
        crate::text::cause(error)
    ))
}

/// Whether a load holds: some requests succeeded, few enough failed, and none of the p99 is too
/// long.
pub fn holds(measured: &Measured, errors_max: f64, p99_max: Option<Duration>) -> bool {
    let slow = |max: Duration| measured.ops.values().any(|op| op.latency.p99_us > max.as_micros() as f64);
    measured.succeeded > 0 && measured.error_rate <= errors_max && !p99_max.is_some_and(slow)
}

fn errors(outcomes: &[Outcome]) -> BTreeMap<String, (u64, String)> {
    let mut all: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for (class, (count, text)) in outcomes.iter().flat_map(|outcome| &outcome.errors) {
        all.entry(class.clone()).or_insert_with(|| (0, text.clone())).0 += count;
    }
    all
}

fn ops(outcomes: &[Outcome], seconds: f64) -> BTreeMap<Op, OpMeasured> {
    let mut all: BTreeMap<Op, (u64, u64, Latencies)> = BTreeMap::new();
    for (op, counted) in outcomes.iter().flat_map(|outcome| &outcome.ops) {
        let (in_time, bytes, merged) = all.entry(*op).or_insert_with(|| (0, 0, latencies()));
        (*in_time, *bytes) = (*in_time + counted.in_time, *bytes + counted.bytes);
        for (us, count) in &counted.latencies {
            merged.saturating_record_n(*us, *count);
        }
    }
    let measured = |(op, (in_time, bytes, all)): (Op, (u64, u64, Latencies))| {
        let at = |part: f64| all.value_at_quantile(part) as f64;
        let latency = Summary {
            count: all.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            max_us: all.max() as f64,
        };
        let parts = (0..=99).map(|n| f64::from(n) / 100.0).chain([0.995, 0.999, 0.9999, 1.0]);
        let distribution = parts.map(|part| (at(part), part)).collect();
        let (rate, mib_s) = (in_time as f64 / seconds, bytes as f64 / seconds / f64::from(1 << 20));
        (op, OpMeasured { rate, mib_s, latency, p999_us: at(0.999), distribution })
    };
    all.into_iter().map(measured).collect()
}
