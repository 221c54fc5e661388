//! A whole run: try the endpoint, fill it, hold idle connections, step by step more connections, find what it bears, clean up.

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
/// Objects that are put before, where something is to be read and nobody says how many.
const FILL: u64 = 1000;
/// Halvings of the gap between what holds and what does not.
const HALVES: u32 = 6;
/// From one step to the next.
const REST: Duration = Duration::from_secs(1);
/// After the last idle connection was opened: what they take is asked then. A server may give up buffers of who is quiet for a while.
const IDLE_REST: Duration = Duration::from_secs(10);
/// The part of a processor that says that the load itself was the limit.
const BUSY: f64 = 0.9;

/// Which numbers of connections there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loads {
    /// These, one after the other.
    Steps(Vec<u64>),
    /// From the first, doubled up to the second until one does not hold; then halves.
    Search(u64, u64),
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where.
    pub target: Target,
    /// Numbers of connections.
    pub loads: Loads,
    /// Operations by weight.
    pub mix: Vec<(Op, u32)>,
    /// Sizes in bytes by weight.
    pub sizes: Vec<(u64, u32)>,
    /// How long requests of a step begin.
    pub each: Duration,
    /// How many begin in a step at most.
    pub requests: Option<u64>,
    /// How long each client rests after an answer.
    pub pause: Duration,
    /// How long a request may take.
    pub patience: Duration,
    /// Up to which part of requests that fail a load holds.
    pub errors_max: f64,
    /// Up to which p99 one holds.
    pub p99_max: Option<Duration>,
    /// Connections that do nothing, held all the time.
    pub idle: u64,
    /// Objects put before the first step.
    pub fill: Option<u64>,
    /// Objects there may be at a time.
    pub objects: u64,
    /// Bytes that they may have.
    pub space_bytes: u64,
    /// Processes at least; there are more where file descriptors run out.
    pub processes: u64,
    /// Addresses that connections come from.
    pub sources: Vec<IpAddr>,
    /// Processes of the server, on this machine.
    pub server: Vec<u32>,
    /// Whether to make the bucket, and to remove it in the end.
    pub make_bucket: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Which kind of answer this is.
    pub reply: &'static str,
    /// What was measured.
    pub url: String,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Operations by weight.
    pub mix: Vec<(Op, u32)>,
    /// Sizes in bytes by weight.
    pub sizes: Vec<(u64, u32)>,
    /// How long a client rests after an answer, milliseconds.
    pub pause_ms: u64,
    /// How long a request may take, milliseconds.
    pub patience_ms: u64,
    /// Up to which part of requests that fail a load holds.
    pub errors_max: f64,
    /// Up to which p99 one holds, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_max_us: Option<f64>,
    /// Processors of this machine, and processes that made the load.
    pub processors: usize,
    /// As above.
    pub processes: u64,
    /// Putting objects before the first step, when there was something to put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Measured>,
    /// Connections that did nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// The steps, in the order in which they were made.
    pub steps: Vec<Measured>,
    /// The most connections that held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<u64>,
    /// The fewest that did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails: Option<u64>,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
    /// What could not be removed, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// Connections that did nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Idle {
    /// How many there were to be.
    pub connections: u64,
    /// How many were opened and answered once.
    pub open: u64,
    /// How many were still open after the last step.
    pub open_in_the_end: u64,
    /// What could not be opened or was not answered, by class.
    pub errors: BTreeMap<String, (u64, String)>,
    /// What the server's memory grew by, for each that was open, once they had done nothing for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_bytes_each: Option<f64>,
}

/// What came of one number of connections.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// How many there were to be.
    pub connections: u64,
    /// How long rates are of, seconds.
    pub seconds: f64,
    /// Requests that succeeded, those included that ended later.
    pub succeeded: u64,
    /// Requests and connections that failed.
    pub failed: u64,
    /// The part of all that failed.
    pub error_rate: f64,
    /// Failures by class, with what the first one said.
    pub errors: BTreeMap<String, (u64, String)>,
    /// Clients that asked, and whose every request failed.
    pub never_served: u64,
    /// By operation.
    pub ops: BTreeMap<Op, OpMeasured>,
    /// Processors that the load itself took, of all processes.
    pub load_processors: f64,
    /// Whether that was the limit: then the endpoint can do more.
    pub load_was_the_limit: bool,
    /// The part of this machine's processors that was in use.
    pub machine_busy: f64,
    /// Processors that the server took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_processors: Option<f64>,
    /// Memory of the server after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_rss_bytes: Option<u64>,
    /// Whether it holds.
    pub holds: bool,
}

/// What came of one operation.
#[derive(Clone, Debug, Serialize)]
pub struct OpMeasured {
    /// Successes a second.
    pub rate: f64,
    /// MiB a second.
    pub mib_s: f64,
    /// Latencies.
    #[serde(flatten)]
    pub latency: Summary,
    /// 99.9 % of them were at most this.
    pub p999_us: f64,
    /// Latency in microseconds, and which part was at most that: for a drawing.
    #[serde(skip)]
    pub distribution: Vec<(f64, f64)>,
}

/// How far a run is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// In what, for a person.
    pub phase: String,
    /// Of `total`, in whatever the phase counts.
    pub done: u64,
    /// 0: not known.
    pub total: u64,
}

impl Plan {
    /// Connections at most.
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

    /// Objects that each process puts before.
    fn fill_each(&self, processes: u64, objects: u64) -> u64 {
        let reads = self.mix.iter().any(|(op, weight)| *op != Op::Put && *weight > 0);
        let asked = self.fill.unwrap_or(if reads { FILL } else { 0 });
        // What idle connections and readers ask for must be there, of each process.
        let least = u64::from(reads || self.idle > 0);
        asked.div_ceil(processes).max(least).min(objects)
    }
}

/// The hard limit of open files of a process.
fn open_files_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is valid for the call; without success it says 0.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_max
}

/// Part of `all` that number `n` of `parts` has.
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
    tell: &mut dyn FnMut(&Progress),
) -> Result<Report, Refused> {
    let orders = plan.orders(env)?;
    let crew = Crew::start(env, &orders, launch).map_err(|e| broken(&e))?;
    let (processes, objects) = (orders.len() as u64, orders[0].objects);
    let mut run = Run { env, plan, stop, crew, processes, tell };
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
    tell: &'a mut dyn FnMut(&Progress),
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
            // What was cut short says nothing.
            if self.stop.asked() {
                break;
            }
            if let Some(search) = &mut search {
                search.tell(connections, measured.holds);
            }
            report.steps.push(measured);
        }
        let held = |holds: bool| {
            report.steps.iter().filter(move |step| step.holds == holds).map(|step| step.connections)
        };
        (report.holds, report.fails) = (held(true).max(), held(false).min());
        Ok(())
    }

    /// One command for each process, with what all of them made of it.
    fn all(&mut self, phase: &str, commands: &[Command]) -> Result<Vec<Outcome>, Refused> {
        let mut watch =
            |sofar: SoFar| (self.tell)(&Progress { phase: phase.into(), done: sofar.done, total: 0 });
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
            (self.tell)(&Progress { phase: "putting objects".into(), done: sofar.done, total })
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
        // The first so many have a connection at all.
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
            (self.tell)(&Progress { phase, done: done.min(total), total });
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

    /// Removes everything; says what is left.
    fn sweep(&mut self, order: &Order) -> Option<String> {
        let commands = [Command::Sweep { remove_bucket: self.plan.make_bucket }];
        let mut watch = |sofar: SoFar| {
            (self.tell)(&Progress { phase: "removing objects".into(), done: sofar.done, total: 0 });
        };
        // Not stopped by a stop: a second one ends the process.
        let why = match self.crew.ask(&commands, None, &mut watch) {
            Ok(outcomes) => outcomes.into_iter().find_map(|outcome| outcome.cannot)?,
            Err(e) => e.to_string(),
        };
        Some(format!("objects are left below {}/ in the bucket {}: {why}", order.run, order.target.bucket))
    }
}

/// What things were like before a step.
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

/// Whether a load holds: something succeeded, few enough failed, and soon enough.
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
