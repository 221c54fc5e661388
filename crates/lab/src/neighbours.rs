//! Neighbours: what one user notices of another one's storm.
//!
//! One user probes all the time. First it is quiet; then each storm comes in turn, and is removed
//! again before the next. The results in a storm are compared with the quiet phase: a storm is
//! *calm* when no operation's p99 is more than `limit` times that of the quiet phase.
//!
//! Storm and probe share the processors as well as the file system. To tell these apart, each storm
//! can run once more *elsewhere*, on another file system such as a tmpfs, while the probe stays
//! where it is. A slowdown that occurs then, too, comes from the processors.

use crate::probe::{Heard, Op, Probes, Round, Settings};
use crate::scratch::{self, ScratchDir};
use crate::stats::Summary;
use crate::stop::Stop;
use crate::storm::{Did, Kind, Order, Storm};
use crate::sys::{self, CpuTimes, Identity};
use crate::{Refused, text};
use leeward_env::{Env, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// Before the quiet phase, and after each storm.
const SETTLE: Duration = Duration::from_secs(1);
/// How often `watch` gets the progress.
const TICK: Duration = Duration::from_millis(200);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A directory on the file system.
    pub path: PathBuf,
    /// A directory on another file system, to tell the effect of shared processors.
    pub elsewhere: Option<PathBuf>,
    /// The storms to run.
    pub storms: Vec<Kind>,
    /// Number of threads of a storm.
    pub threads: u64,
    /// Duration of the quiet phase and of each storm.
    pub lasts: Duration,
    /// Interval between two rounds of the probe.
    pub every: Duration,
    /// Ratio of p99 up to which a storm is calm.
    pub limit: f64,
    /// Most bytes that a storm may store.
    pub space_bytes: u64,
    /// Most files that a storm may have.
    pub files: u64,
    /// The user of storms, if not the one who runs this.
    pub storm_user: Option<Identity>,
    /// The user of probes, if not the one who runs this.
    pub probe_user: Option<Identity>,
    /// Time after which an operation counts as stuck.
    pub deadline: Duration,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The kind of this answer in the JSON output.
    pub reply: &'static str,
    /// The path that was measured.
    pub path: String,
    /// Its file system.
    pub file_system: String,
    /// The path elsewhere, and its file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<(String, String)>,
    /// Start of the run, in milliseconds since 1970.
    pub at_ms: u64,
    /// Number of processors of this machine.
    pub processors: usize,
    /// Number of threads of a storm.
    pub threads: u64,
    /// Duration of each phase, in seconds.
    pub seconds: f64,
    /// Interval between two rounds of the probe, in milliseconds.
    pub every_ms: u64,
    /// Ratio of p99 up to which a storm is calm.
    pub limit: f64,
    /// The users of storms and probes, if they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<(u32, u32)>,
    /// The phase without any storm.
    pub quiet: Phase,
    /// Results of each storm.
    pub storms: Vec<Weather>,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
    /// What could not be removed, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

/// Measurements of one period.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    /// Start of the period, in seconds since the quiet phase began.
    pub from_s: f64,
    /// End of the period, in the same seconds.
    pub to_s: f64,
    /// The part of all processors' time that was used, by everybody, 0 to 1.
    pub cpu_busy: f64,
    /// Latencies by operation.
    pub ops: BTreeMap<Op, Summary>,
    /// Number of errors that the probe met, by operation and errno.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// Operations that were over their deadline.
    #[serde(skip_serializing_if = "is_zero")]
    pub stuck: u64,
    /// Each latency: operation, seconds since the quiet began, microseconds.
    #[serde(skip)]
    pub points: Vec<(Op, f64, f64)>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Phase {
    /// Latencies of one operation, in microseconds.
    pub fn latencies(&self, op: Op) -> Vec<f64> {
        self.points.iter().filter(|(of, ..)| *of == op).map(|(.., us)| *us).collect()
    }
}

/// Results of a storm.
#[derive(Clone, Debug, Serialize)]
pub struct Weather {
    /// Kind of the storm.
    pub storm: Kind,
    /// The verdict on it.
    pub verdict: Verdict,
    /// The probe during the storm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<Phase>,
    /// What the storm did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub did: Option<Did>,
    /// The probe during the storm elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Phase>,
    /// What it did elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub did_elsewhere: Option<Did>,
}

/// The verdict on a storm.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum Verdict {
    /// No operation was slower than allowed.
    Calm {
        /// The slowest operation, against quiet.
        op: Op,
        /// Ratio of its p99.
        ratio: f64,
        /// The same ratio with the storm elsewhere.
        #[serde(skip_serializing_if = "Option::is_none")]
        elsewhere: Option<f64>,
    },
    /// One was.
    Disturbed {
        /// The slowest operation, against quiet.
        op: Op,
        /// Ratio of its p99.
        ratio: f64,
        /// The same ratio with the storm elsewhere.
        #[serde(skip_serializing_if = "Option::is_none")]
        elsewhere: Option<f64>,
    },
    /// Operations failed or hung that did not in the quiet.
    Broken {
        /// The first of them.
        what: String,
    },
    /// There was no such storm here.
    Skipped {
        /// Why.
        why: String,
    },
}

impl Verdict {
    /// The verdict in words.
    pub fn text(&self) -> String {
        let worst = |op: Op, ratio: f64, elsewhere: Option<f64>| {
            let beside = elsewhere.map(|r| format!("; {} with the storm elsewhere", times(r)));
            format!("{} {}{}", op.name(), times(ratio), beside.unwrap_or_default())
        };
        match self {
            Verdict::Calm { op, ratio, elsewhere } => format!("calm ({})", worst(*op, *ratio, *elsewhere)),
            Verdict::Disturbed { op, ratio, elsewhere } => {
                format!("disturbed ({})", worst(*op, *ratio, *elsewhere))
            }
            Verdict::Broken { what } => format!("broken ({what})"),
            Verdict::Skipped { why } => format!("skipped ({why})"),
        }
    }
}

/// A ratio: `1.6x`.
pub fn times(ratio: f64) -> String {
    if ratio < 9.95 { format!("{ratio:.1}x") } else { format!("{ratio:.0}x") }
}

/// The ratio of an operation's p99 to that of the quiet; none where either has no latency.
pub fn ratio(quiet: &Phase, other: &Phase, op: Op) -> Option<f64> {
    let (before, after) = (quiet.ops.get(&op)?.p99_us, other.ops.get(&op)?.p99_us);
    (before > 0.0 && after > 0.0).then(|| after / before)
}

/// The verdict on a storm.
pub fn judge(quiet: &Phase, here: &Phase, elsewhere: Option<&Phase>, limit: f64) -> Verdict {
    if let Some((what, count)) = here.errors.iter().find(|(what, _)| !quiet.errors.contains_key(*what)) {
        return Verdict::Broken { what: format!("{what}, {count} times") };
    }
    if here.stuck > quiet.stuck {
        return Verdict::Broken { what: format!("{} over the deadline", here.stuck) };
    }
    let ratios = Op::ROUND.into_iter().filter_map(|op| Some((op, ratio(quiet, here, op)?)));
    match ratios.max_by(|a, b| a.1.total_cmp(&b.1)) {
        None => Verdict::Broken { what: "no operation ended".into() },
        Some((op, of)) => {
            let elsewhere = elsewhere.and_then(|phase| ratio(quiet, phase, op));
            match of <= limit {
                true => Verdict::Calm { op, ratio: of, elsewhere },
                false => Verdict::Disturbed { op, ratio: of, elsewhere },
            }
        }
    }
}

/// How far a run is, for the one who watches.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What is going on.
    pub phase: String,
    /// Milliseconds of the run that are over.
    pub done_ms: u64,
    /// Of how many; preparing and cleaning up not counted.
    pub total_ms: u64,
}

/// Runs the plan. `launch` starts a child that runs [`crate::storm::serve`]; `watch` gets the
/// progress.
///
/// # Errors
/// A path that cannot be measured. What fails later is a result.
pub fn run(
    env: &Env,
    plan: &Plan,
    stop: &Stop,
    launch: &dyn Fn(&Order) -> io::Result<Child>,
    watch: &mut dyn FnMut(&Progress),
) -> Result<Report, Refused> {
    let here = scratch::checked(env, &plan.path, "lee-lab")?;
    let away = plan.elsewhere.as_deref().map(|path| scratch::checked(env, path, "lee-lab")).transpose()?;
    let enough = |path: &Path| check_space(path, plan);
    enough(&plan.path)?;
    plan.elsewhere.as_deref().map_or(Ok(()), enough)?;
    let own = |e| Refused::at(here.dir(), "cannot make the probe's directory", &e);
    let probe_dir = here.subdirectory("probe", plan.probe_user).map_err(own)?;
    let identity = plan.probe_user;
    let settings = Settings { every: plan.every, deadline: plan.deadline, rounds: None, identity };
    let probe_stop = Stop::default();
    let probes = Probes::start(env, &[probe_dir], settings, &probe_stop)?;
    let mut run = Run { env, plan, stop, launch, watch, probes, rounds: Vec::new(), done_ms: 0 };
    run.listen(SETTLE, "warming up");
    let quiet = run.span(plan.lasts, "quiet");
    let mut storms = Vec::new();
    for kind in plan.storms.iter().copied().take_while(|_| !stop.asked()) {
        storms.push(run.storm(kind, &here, away.as_ref()));
    }
    let rounds = run.end(&probe_stop);
    let report = report(env, plan, stop, &rounds, quiet, storms);
    Ok(clean(report, [Some(here), away]))
}

fn check_space(path: &Path, plan: &Plan) -> Result<(), Refused> {
    let space = sys::space(path).map_err(|e| Refused::at(path, "cannot say what is free", &e))?;
    if space.free_bytes / 10 * 9 >= plan.space_bytes {
        return Ok(());
    }
    let (free, wanted) = (space.free_bytes >> 20, plan.space_bytes >> 20);
    Err(Refused(format!(
        "{}: {free} MiB are free, storms may take {wanted} MiB: give less with --space, or make room",
        path.display()
    )))
}

fn clean(mut report: Report, places: [Option<ScratchDir>; 2]) -> Report {
    for place in places.into_iter().flatten() {
        let dir = place.dir().display().to_string();
        if let Err(e) = place.remove() {
            report.left.push(format!("{dir}: cannot be removed: {}", text::cause(&e)));
        }
    }
    report
}

/// A stretch of the monotonic clock, and what the processors did in it.
#[derive(Clone, Copy)]
struct Span {
    from: Nanos,
    to: Nanos,
    cpu_busy: f64,
}

/// A storm that was, or why it was not.
struct Measured {
    kind: Kind,
    here: Result<(Span, Did), String>,
    elsewhere: Option<(Span, Did)>,
}

struct Run<'a> {
    env: &'a Env,
    plan: &'a Plan,
    stop: &'a Stop,
    launch: &'a dyn Fn(&Order) -> io::Result<Child>,
    watch: &'a mut dyn FnMut(&Progress),
    probes: Probes,
    rounds: Vec<Round>,
    done_ms: u64,
}

impl Run<'_> {
    /// One storm: here, then elsewhere.
    fn storm(&mut self, kind: Kind, here: &ScratchDir, away: Option<&ScratchDir>) -> Measured {
        let measured = self.storm_at(kind, here, kind.name().to_string());
        let elsewhere = match (&measured, away) {
            (Ok(_), Some(away)) => self.storm_at(kind, away, format!("{} elsewhere", kind.name())).ok(),
            _ => None,
        };
        Measured { kind, here: measured, elsewhere }
    }

    fn storm_at(&mut self, kind: Kind, place: &ScratchDir, name: String) -> Result<(Span, Did), String> {
        self.show_phase(format!("{name}: preparing"));
        let dir = place.subdirectory(kind.name(), self.plan.storm_user);
        let order = Order {
            kind,
            dir: dir.map_err(|e| text::cause(&e))?,
            threads: self.plan.threads,
            space_bytes: self.plan.space_bytes,
            files: self.plan.files,
            identity: self.plan.storm_user,
        };
        let child = (self.launch)(&order).map_err(|e| format!("cannot be started: {}", text::cause(&e)))?;
        let mut storm = Storm::prepare(self.env, child, self.stop)?;
        storm.begin();
        let span = self.span(self.plan.lasts, &name);
        self.show_phase(format!("{name}: cleaning up"));
        let did = storm.end(self.env);
        self.listen(SETTLE, &name);
        Ok((span, did))
    }

    /// Probes for some time, and notes when that was. On a busy machine, or in a storm, a round may
    /// take longer than that: the span lasts until one has ended, or should have.
    fn span(&mut self, time: Duration, name: &str) -> Span {
        let (from, cpu) = (self.env.now(), CpuTimes::now());
        let before = self.done_ms;
        self.listen(time, name);
        let last = self.env.now() + self.plan.deadline.as_nanos() as Nanos;
        while !self.has_measured(from) && self.env.now() < last && !self.stop.asked() {
            self.done_ms = before;
            self.listen(TICK, name);
        }
        self.done_ms = before + time.as_millis() as u64;
        Span { from, to: self.env.now(), cpu_busy: CpuTimes::now().busy_since(cpu) }
    }

    /// Whether a round that began since then has ended.
    fn has_measured(&self, from: Nanos) -> bool {
        self.rounds.iter().rev().any(|round| round.began >= from && round.stuck.is_none())
    }

    fn listen(&mut self, time: Duration, name: &str) {
        let began = self.env.now();
        let before = self.done_ms;
        while !self.stop.asked() {
            let passed = Duration::from_nanos(self.env.now() - began);
            let Some(left) = time.checked_sub(passed).filter(|left| !left.is_zero()) else { break };
            if let Heard::Round(_, round) = self.probes.next(left.min(TICK)) {
                self.rounds.push(round);
            }
            self.done_ms = before + passed.as_millis() as u64;
            self.show_phase(name.to_string());
        }
        self.done_ms = before;
    }

    fn show_phase(&mut self, phase: String) {
        let each = self.plan.lasts.as_millis() as u64;
        let runs = self.plan.storms.len() * (1 + usize::from(self.plan.elsewhere.is_some()));
        (self.watch)(&Progress { phase, done_ms: self.done_ms, total_ms: each * (1 + runs as u64) });
    }

    /// Ends the probe; all rounds, also the one that went on when the last storm ended.
    fn end(mut self, stop: &Stop) -> Vec<Round> {
        stop.ask();
        loop {
            match self.probes.next(TICK) {
                Heard::Round(_, round) => self.rounds.push(round),
                Heard::Silence => {}
                Heard::Over => break,
            }
        }
        self.probes.finish();
        self.rounds
    }
}

fn report(
    env: &Env,
    plan: &Plan,
    stop: &Stop,
    rounds: &[Round],
    quiet: Span,
    storms: Vec<Measured>,
) -> Report {
    let phase = |span: &Span| phase(rounds, *span, quiet.from);
    let calm = phase(&quiet);
    let weather = |measured: Measured| {
        let (elsewhere, did_elsewhere) = measured.elsewhere.map(|(span, did)| (phase(&span), did)).unzip();
        let storm = measured.kind;
        match measured.here {
            Err(why) => {
                let verdict = Verdict::Skipped { why };
                Weather { storm, verdict, here: None, did: None, elsewhere, did_elsewhere }
            }
            Ok((span, did)) => {
                let here = phase(&span);
                let verdict = judge(&calm, &here, elsewhere.as_ref(), plan.limit);
                Weather { storm, verdict, here: Some(here), did: Some(did), elsewhere, did_elsewhere }
            }
        }
    };
    let storms = storms.into_iter().map(weather).collect();
    Report {
        reply: "neighbours",
        path: plan.path.display().to_string(),
        file_system: sys::file_system(&plan.path),
        elsewhere: plan.elsewhere.as_ref().map(|p| (p.display().to_string(), sys::file_system(p))),
        at_ms: env.wall() / 1_000_000,
        processors: sys::processors(),
        threads: plan.threads,
        seconds: plan.lasts.as_secs_f64(),
        every_ms: plan.every.as_millis() as u64,
        limit: plan.limit,
        users: plan.storm_user.zip(plan.probe_user).map(|(storm, probe)| (storm.uid, probe.uid)),
        quiet: calm,
        storms,
        stopped: stop.asked(),
        left: Vec::new(),
    }
}

/// The results of the rounds that began in a span.
fn phase(rounds: &[Round], span: Span, zero: Nanos) -> Phase {
    let second = |at: Nanos| at.saturating_sub(zero) as f64 / 1e9;
    let (from_s, to_s) = (second(span.from), second(span.to));
    let mut phase = Phase { from_s, to_s, cpu_busy: span.cpu_busy, ..Phase::default() };
    let mut stuck_since = None;
    for round in rounds.iter().filter(|round| (span.from..span.to).contains(&round.began)) {
        // One that hangs is reported again and again, with the same beginning.
        if round.stuck.is_some() && stuck_since.replace(round.began) != Some(round.began) {
            phase.stuck += 1;
        }
        phase.points.extend(round.us.iter().map(|(op, us)| (*op, second(round.began), *us)));
        for (op, errno) in &round.errors {
            *phase.errors.entry(format!("{} {errno}", op.name())).or_default() += 1;
        }
    }
    for op in Op::ROUND {
        let summary = Summary::of(&phase.latencies(op));
        if summary.count > 0 {
            phase.ops.insert(op, summary);
        }
    }
    phase
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(began: Nanos, write_us: f64) -> Round {
        Round {
            at_ms: 0,
            began,
            path: "/x".into(),
            us: [(Op::Write, write_us), (Op::Stat, 10.0)].into(),
            errors: BTreeMap::new(),
            stuck: None,
        }
    }

    fn of(rounds: &[Round]) -> Phase {
        phase(rounds, Span { from: 0, to: 1_000_000_000, cpu_busy: 0.5 }, 0)
    }

    #[test]
    fn rounds_belong_to_the_phase_in_which_they_began() {
        let rounds: Vec<Round> = (0..20).map(|i| round(i * 100_000_000, i as f64)).collect();
        let phase = of(&rounds);
        assert_eq!(phase.ops[&Op::Write].count, 10);
        assert_eq!(phase.ops[&Op::Write].max_us, 9.0);
        assert_eq!(phase.points.len(), 20);
        assert!(!phase.ops.contains_key(&Op::List));
    }

    #[test]
    fn verdicts_are_by_the_worst_operation() {
        let quiet = of(&[round(1, 100.0)]);
        assert_eq!(
            judge(&quiet, &of(&[round(1, 200.0)]), None, 2.0),
            Verdict::Calm { op: Op::Write, ratio: 2.0, elsewhere: None }
        );
        let elsewhere = of(&[round(1, 150.0)]);
        let verdict = judge(&quiet, &of(&[round(1, 500.0)]), Some(&elsewhere), 2.0);
        assert_eq!(verdict, Verdict::Disturbed { op: Op::Write, ratio: 5.0, elsewhere: Some(1.5) });
        assert_eq!(verdict.text(), "disturbed (write 5.0x; 1.5x with the storm elsewhere)");
    }

    #[test]
    fn errors_and_hangs_are_no_calm() {
        let quiet = of(&[round(1, 100.0)]);
        let mut failed = round(1, 1.0);
        failed.errors.insert(Op::Read, "EIO".into());
        assert_eq!(
            judge(&quiet, &of(&[failed]), None, 2.0),
            Verdict::Broken { what: "read EIO, 1 times".into() }
        );
        let mut stuck = round(1, 1.0);
        stuck.us.clear();
        stuck.stuck = Some(crate::probe::Stuck { op: Op::Write, since_ms: 0, for_s: 10.0 });
        let hung = of(&[stuck.clone(), stuck]);
        assert_eq!(hung.stuck, 1);
        assert!(matches!(judge(&quiet, &hung, None, 2.0), Verdict::Broken { .. }));
        assert!(matches!(judge(&quiet, &of(&[]), None, 2.0), Verdict::Broken { .. }));
    }
}
