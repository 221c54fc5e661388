//! `lee probe`: small operations on any mounted path, timed again and again; and what the history
//! of that says.

use super::Invocation;
use crate::fail::{Fail, text};
use crate::metrics::CONTENT_TYPE;
use crate::metrics::http::{self, Listeners};
use crate::output::{self, Format, Side, Table};
use crate::{system, when};
use leeward_lab::history::{self, History};
use leeward_lab::metrics::Metrics;
use leeward_lab::probe::{Heard, Op, Probes, Round, Settings, Stuck};
use leeward_lab::report::{self, PathHistory};
use leeward_lab::stop::Stop;
use leeward_lab::text::latency;
use serde_json::json;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the end of a run is looked for.
const TICK: Duration = Duration::from_millis(200);
/// Rounds that the summary at the end is of.
const SUMMARY_ROUNDS_MAX: usize = 100_000;

/// Time small operations on any mounted path, again and again
///
/// A round on each path: write 64 kB with fsync, stat, list, open and read 4 KiB, unlink, in a
/// directory of its own that is removed at the end. Works on any file system. Errors are results
/// and end nothing; what hangs is shown as stuck. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    /// Directories on what is to be probed
    #[arg(required = true)]
    paths: Vec<PathBuf>,

    /// From the beginning of one round to that of the next: 50ms, 1s, 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = when::parse_duration)]
    every: Duration,

    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = when::parse_duration)]
    lasts: Option<Duration>,

    /// End after so many rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// From when on an operation is called stuck
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = when::parse_duration)]
    deadline: Duration,

    /// Serve metrics for Prometheus at http://ADDR/metrics; a port alone is on loopback
    #[arg(long, value_name = "ADDR", value_parser = http::parse)]
    metrics: Option<SocketAddr>,

    /// Keep the history here [default: leeward/probe.jsonl in $XDG_STATE_HOME or ~/.local/state; at
    /// most 32 MiB]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    /// Keep no history
    #[arg(long, conflicts_with = "history")]
    no_history: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Report(ReportArgs),
}

/// Show what the history says
///
/// A table for each path, errors, and what was stuck; with --html a page with latencies over time
/// and their distribution.
#[derive(Debug, clap::Args)]
struct ReportArgs {
    /// Only of these paths, as they were given to the probe
    paths: Vec<String>,

    /// The history [default: as above]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    /// Only what is not older
    #[arg(long, value_name = "TIME", value_parser = when::parse_duration)]
    since: Option<Duration>,

    /// Write a page with plots here; it needs nothing but itself
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// A path that cannot be probed, a history or an address that cannot be had; no result of a probe.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match &args.action {
        Some(Action::Report(wanted)) => show_report(invocation, wanted),
        None => probe(invocation, &args),
    }
}

fn probe(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let stop = system::stop_on_signals()?;
    let settings =
        Settings { every: args.every, deadline: args.deadline, rounds: args.count, identity: None };
    let mut probes = Probes::start(&invocation.env, &args.paths, settings, &stop)?;
    let metrics = Metrics::default();
    let history = match serve(invocation, args, &metrics).and_then(|()| open_history(invocation, args)) {
        Ok(history) => history,
        Err(fail) => {
            probes.finish();
            return Err(fail);
        }
    };
    let mut shown = Shown::new(invocation.format, &args.paths);
    let told = listen(invocation, args, &stop, &mut probes, |round| {
        metrics.add(round);
        if let Some(history) = &history {
            history.keep(round);
        }
        shown.round(round)
    });
    for path in probes.finish() {
        let path = path.display();
        output::note(&format!(
            "lee: {path} still hangs: a directory .lee-probe-* is left in it; remove it by hand"
        ));
    }
    if let Some(Err(e)) = history.map(History::close) {
        output::note(&format!("lee: the history was not kept to the end: {}", text(&e)));
    }
    told?;
    shown.summary()
}

fn serve(invocation: &Invocation, args: &Args, metrics: &Metrics) -> Result<(), Fail> {
    let Some(address) = args.metrics else { return Ok(()) };
    let listeners = Listeners::bind(&[address])?;
    for url in listeners.urls() {
        output::note(&format!("metrics are at {url}"));
    }
    let (metrics, clock) = (metrics.clone(), invocation.env.clone());
    listeners.serve(&invocation.env, CONTENT_TYPE, None, move || metrics.text(clock.now()));
    Ok(())
}

fn open_history(invocation: &Invocation, args: &Args) -> Result<Option<History>, Fail> {
    match (&args.history, args.no_history) {
        (_, true) => Ok(None),
        (Some(path), _) => Ok(Some(History::open(&invocation.env, path)?)),
        (None, _) => {
            // Nobody asked for it: what is not possible is said, and is no reason not to probe.
            let opened =
                history::default_path().map(|path| History::open(&invocation.env, &path)).transpose();
            Ok(opened.unwrap_or_else(|refused| {
                output::note(&format!("lee: {refused}, or --no-history"));
                None
            }))
        }
    }
}

/// Hands on each round until it is over.
fn listen(
    invocation: &Invocation,
    args: &Args,
    stop: &Stop,
    probes: &mut Probes,
    mut tell: impl FnMut(&Round) -> Result<(), Fail>,
) -> Result<(), Fail> {
    let began = invocation.env.now();
    loop {
        if args.lasts.is_some_and(|lasts| invocation.env.now() - began >= lasts.as_nanos() as u64) {
            stop.ask();
        }
        // `lee probe PATH | head` has no other end.
        if !system::output_has_reader() {
            stop.ask();
        }
        match probes.next(TICK) {
            Heard::Round(_, round) => tell(&round)?,
            Heard::Silence => {}
            Heard::Over => return Ok(()),
        }
    }
}

/// What is shown while it runs, and at the end.
struct Shown {
    format: Format,
    path_width: usize,
    rounds: VecDeque<Round>,
}

impl Shown {
    fn new(format: Format, paths: &[PathBuf]) -> Shown {
        let widths = paths.iter().map(|path| path.display().to_string().chars().count());
        Shown { format, path_width: widths.max().unwrap_or(0), rounds: VecDeque::new() }
    }

    fn round(&mut self, round: &Round) -> Result<(), Fail> {
        self.rounds.push_back(round.clone());
        if self.rounds.len() > SUMMARY_ROUNDS_MAX {
            self.rounds.pop_front();
        }
        output::show(self.format, round, || self.line(round))
    }

    /// One line a round: `10:43:58  /home  write 1.90 ms  stat 12.0 us ...`.
    fn line(&self, round: &Round) -> String {
        let path = output::printable(&round.path);
        let mut line = format!("{}  {path:<width$}", clock(round.at_ms), width = self.path_width);
        if let Some(Stuck { op, since_ms, for_s }) = round.stuck {
            let at = clock(since_ms + (for_s * 1000.0) as u64);
            return format!(
                "{at}  {path:<width$}  {} STUCK since {} ({for_s:.0} s)",
                op.name(),
                clock(since_ms),
                width = self.path_width
            );
        }
        for op in [Op::Prepare].into_iter().chain(Op::ROUND) {
            let result = round.us.get(&op).map(|us| latency(*us)).or_else(|| round.errors.get(&op).cloned());
            if let Some(result) = result {
                line.push_str(&format!("  {} {result:<7}", op.name()));
            }
        }
        line.trim_end().to_string()
    }

    fn summary(self) -> Result<(), Fail> {
        let rounds: Vec<Round> = self.rounds.into();
        match self.format {
            // The lines are all there is; a program makes its own summary.
            Format::Json => Ok(()),
            Format::Text if rounds.is_empty() => Ok(()),
            Format::Text => output::print(&format!("\n{}", summary(&report::history(&rounds)))),
        }
    }
}

/// `10:43:58`, UTC.
fn clock(at_ms: u64) -> String {
    let utc = when::utc((at_ms / 1000) as i64);
    utc.get(11..19).unwrap_or(&utc).to_string()
}

fn summary(paths: &[PathHistory]) -> String {
    let right = Side::Right;
    let columns = [
        ("PATH", Side::Left),
        ("OPERATION", Side::Left),
        ("COUNT", right),
        ("P50", right),
        ("P90", right),
        ("P99", right),
        ("MAX", right),
    ];
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut beside = String::new();
    for path in paths {
        for (op, of) in &path.ops {
            let cells = report::summary_cells(of);
            rows.push([vec![path.path.clone(), op.meaning().to_string()], cells].concat());
        }
        let name = output::printable(&path.path);
        for (what, times) in &path.errors {
            beside.push_str(&format!("{name}: {what}, {times} times\n"));
        }
        for (op, since_ms, for_s) in &path.stuck {
            let since = when::utc((since_ms / 1000) as i64);
            beside
                .push_str(&format!("{name}: {} stuck since {since}, for {for_s:.0} s at least\n", op.name()));
        }
    }
    format!("{}{beside}", Table::new(&columns).rows(&rows, Vec::clone))
}

fn show_report(invocation: &Invocation, args: &ReportArgs) -> Result<(), Fail> {
    let path = args.history.clone().or_else(history::default_path).ok_or_else(|| {
        Fail::new("no place for a history: neither XDG_STATE_HOME nor HOME is set: name one with --history")
    })?;
    let rounds = read(invocation, args, &path)?;
    if let Some(file) = &args.html {
        let page = report::history_page(&rounds, when::utc);
        write_page(file, &page)?;
    }
    let found = report::history(&rounds);
    output::show(invocation.format, &json!({"reply": "history", "paths": found}), || {
        let page = args.html.as_ref().map(|file| format!("wrote {}\n", file.display()));
        let span = |ms: u64| when::utc((ms / 1000) as i64);
        let (from, to) = (found.iter().map(|p| p.from_ms).min(), found.iter().map(|p| p.to_ms).max());
        let (from, to) = (span(from.unwrap_or_default()), span(to.unwrap_or_default()));
        format!("{from} to {to}\n{}{}", summary(&found), page.unwrap_or_default())
    })
}

/// The rounds that are asked for: some at least.
fn read(invocation: &Invocation, args: &ReportArgs, path: &Path) -> Result<Vec<Round>, Fail> {
    let (mut rounds, bad) = history::read(path).map_err(|e| {
        let next = "`lee probe PATH` writes one";
        Fail::new(format!("{}: cannot read the history: {}; {next}", path.display(), text(&e)))
    })?;
    if bad > 0 {
        output::note(&format!(
            "lee: {}: {bad} lines are no rounds of a probe and are left out",
            path.display()
        ));
    }
    let now_ms = invocation.env.wall() / 1_000_000;
    let from_ms = args.since.map_or(0, |since| now_ms.saturating_sub(since.as_millis() as u64));
    rounds.retain(|r| r.at_ms >= from_ms && (args.paths.is_empty() || args.paths.contains(&r.path)));
    if rounds.is_empty() {
        return Err(Fail::new(format!("{}: no rounds that are asked for: ask for others", path.display())));
    }
    Ok(rounds)
}

/// Writes a page.
///
/// # Errors
/// When it cannot be written.
pub fn write_page(file: &Path, page: &str) -> Result<(), Fail> {
    std::fs::write(file, page)
        .map_err(|e| Fail::new(format!("{}: cannot write the page: {}", file.display(), text(&e))))
}
