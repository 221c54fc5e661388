//! `lee lab`: experiments on any mounted file system; a path is all they need. `lab_s3.rs` has the
//! one for S3 endpoints.

use super::probe::write_page;
use super::{Invocation, lab_s3};
use crate::fail::{Fail, text};
use crate::output::{self, Side, Table};
use crate::progress::Bar;
use crate::{size, system, when};
use leeward_lab::neighbours::{self, Phase, Plan, Weather, times};
use leeward_lab::phases::{self, Ended, Suite};
use leeward_lab::probe::Op;
use leeward_lab::report;
use leeward_lab::storm::{self, Kind, Order};
use leeward_lab::sys::{self, Identity};
use leeward_lab::text::latency;
use leeward_volume::admin::Progress;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Measure any mounted file system (neighbours, metadata, data) or S3 endpoint
///
/// Each works in a directory of its own below PATH, or below a prefix of its own, bounded in time
/// and space, and removes it at the end, also after Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Neighbours(NeighboursArgs),
    /// Show what metadata costs: the phases of mdtest in IO500, and find
    ///
    /// Files in a directory for each thread (easy), files of 3,901 bytes all in one (hard). A write
    /// phase lasts --seconds at most and uses its share of --space at most; what comes later is
    /// about what was written. Compare file systems on the same machine with it.
    Md(PhasesArgs),
    /// Show what data costs: the phases of ior in IO500
    ///
    /// A file for each thread, 2 MiB at a time (easy), one file for all, 47,008 bytes at a time by
    /// turns (hard). A write phase lasts --seconds at most and uses its share of --space at most;
    /// all of it is read again and compared.
    Io(PhasesArgs),
    S3(lab_s3::Args),
    /// A part of the load, ordered by `s3` from another process.
    #[command(hide = true)]
    S3Load,
    /// A storm, ordered by `neighbours` from another process.
    #[command(hide = true)]
    Storm {
        /// What to do, as JSON.
        order: String,
    },
}

/// Show what one user notices of another one's storm
///
/// Probes while it is quiet, then while each storm is there: it creates files, writes small files,
/// writes and reads big ones, asks for attributes, removes trees, makes deep ones, takes snapshots
/// where there is `.snap`. A storm is calm when no operation's p99 is more than twice that of the
/// quiet.
#[derive(Debug, clap::Args)]
struct NeighboursArgs {
    /// A directory on the file system
    path: PathBuf,

    /// Only these storms, with commas: create,small,write,read,stat,rm,deep,snap
    #[arg(long, value_name = "STORMS", value_delimiter = ',', value_parser = parse_kind)]
    storms: Vec<Kind>,

    /// Threads of a storm
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,

    /// How long the quiet and each storm last
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = when::parse_duration)]
    each: Duration,

    /// From one round of the probe to the next
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = when::parse_duration)]
    every: Duration,

    /// Up to which ratio of p99, storm to quiet, a storm is calm
    #[arg(long, value_name = "RATIO", default_value_t = 2.0, value_parser = parse_ratio)]
    limit: f64,

    /// How much a storm may have stored
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse_space)]
    space: u64,

    /// Who storms: a name or a number; root only
    #[arg(long, value_name = "USER")]
    storm_user: Option<String>,

    /// Who probes: a name or a number; root only
    #[arg(long, value_name = "USER")]
    probe_user: Option<String>,

    /// Run each storm once more on this path, say a tmpfs, and probe PATH: what is slow then, too,
    /// the processors are to blame for
    #[arg(long, value_name = "PATH")]
    idle_baseline: Option<PathBuf>,

    /// Write a page with plots here; it needs nothing but itself
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What bounds the phases.
#[derive(Debug, clap::Args)]
struct PhasesArgs {
    /// A directory on the file system
    path: PathBuf,

    /// How long a write phase lasts at most, seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// How much may be stored
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = size::parse_space)]
    space: u64,

    /// Threads [default: two for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: Option<u64>,

    /// Take a snapshot (mkdir .snap/NAME) before each phase but the first
    #[arg(long)]
    snapshots: bool,
}

fn parse_kind(name: &str) -> Result<Kind, String> {
    let names = Kind::ALL.map(Kind::name).join(", ");
    Kind::named(name).ok_or_else(|| format!("`{name}` is no storm: there are {names}"))
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| ratio.is_finite() && *ratio >= 1.0);
    ratio.ok_or_else(|| format!("`{text}` is no ratio: write 1 or more, such as 2 or 1.5"))
}

/// Runs it.
///
/// # Errors
/// A path that cannot be measured.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Neighbours(args) => run_neighbours(invocation, args),
        Action::Md(args) => run_phases(invocation, args, Suite::Metadata),
        Action::Io(args) => run_phases(invocation, args, Suite::Data),
        Action::S3(args) => lab_s3::run(invocation, args),
        Action::S3Load => lab_s3::serve(invocation),
        Action::Storm { order } => serve_storm(invocation, &order),
    }
}

fn run_neighbours(invocation: &Invocation, args: NeighboursArgs) -> Result<(), Fail> {
    let (storm_user, probe_user) =
        (identity(args.storm_user.as_deref())?, identity(args.probe_user.as_deref())?);
    if (storm_user.is_some() || probe_user.is_some()) && system::uid() != 0 {
        return Err(Fail::new("only root can act as another user: run this as root, or leave the users out"));
    }
    let plan = Plan {
        path: args.path,
        elsewhere: args.idle_baseline,
        storms: if args.storms.is_empty() { Kind::ALL.to_vec() } else { args.storms },
        threads: args.threads,
        lasts: args.each,
        every: args.every,
        limit: args.limit,
        space_bytes: args.space,
        files: 200_000,
        storm_user,
        probe_user,
        deadline: Duration::from_secs(10),
    };
    let stop = system::stop_on_signals()?;
    let bar = Bar::new(invocation.format);
    let found = neighbours::run(&invocation.env, &plan, &stop, &launch, &mut |progress| {
        let phase = format!("{:<24}", progress.phase);
        bar.show(&Progress { phase, done: progress.done_ms / 1000, total: progress.total_ms / 1000 });
    });
    bar.clear();
    let found = found?;
    if let Some(file) = &args.report {
        write_page(file, &report::neighbours_page(&found, when::utc))?;
    }
    output::show(invocation.format, &found, || {
        let page = args.report.as_ref().map(|file| format!("wrote {}\n", file.display()));
        format!("{}{}", neighbours_text(&found), page.unwrap_or_default())
    })?;
    left_behind(found.left.first())
}

pub(super) fn left_behind(left: Option<&String>) -> Result<(), Fail> {
    left.map_or(Ok(()), |left| Err(Fail::new(format!("{left}; remove it by hand"))))
}

fn run_phases(invocation: &Invocation, args: PhasesArgs, suite: Suite) -> Result<(), Fail> {
    let plan = phases::Plan {
        path: args.path,
        suite,
        threads: args.threads.unwrap_or(2 * sys::processors() as u64),
        lasts: Duration::from_secs(args.seconds),
        space_bytes: args.space,
        snapshots: args.snapshots,
    };
    let stop = system::stop_on_signals()?;
    let bar = Bar::new(invocation.format);
    let found = phases::run(&invocation.env, &plan, &stop, &mut |progress| {
        let phase = format!("{:<18}", progress.phase);
        bar.show(&Progress { phase, done: progress.done, total: progress.total });
    });
    bar.clear();
    let found = found?;
    output::show(invocation.format, &found, || phases_text(&found))?;
    left_behind(found.left.as_ref())
}

fn phases_text(found: &phases::Report) -> String {
    let right = Side::Right;
    let snapshots = found.phases.iter().any(|phase| phase.snapshot_us.is_some());
    let mut columns = vec![
        ("PHASE", Side::Left),
        ("RATE", right),
        ("UNIT", Side::Left),
        ("OPERATIONS", right),
        ("SECONDS", right),
        ("ERRORS", right),
        ("ENDED BY", Side::Left),
    ];
    if snapshots {
        columns.push(("SNAPSHOT BEFORE", right));
    }
    let table = Table::new(&columns).rows(&found.phases, |phase| {
        let errors =
            phase.first_error.as_ref().map(|first| format!("{} ({first})", size::count(phase.errors)));
        [
            phase.name.to_string(),
            format!("{:.3}", phase.rate),
            phase.unit.to_string(),
            size::count(phase.ops),
            format!("{:.2}", phase.seconds),
            errors.unwrap_or_else(|| "-".into()),
            ended(phase.ended_by).to_string(),
            phase.snapshot_us.map(latency).unwrap_or_default(),
        ]
    });
    let unit = found.phases.first().map_or("", |phase| phase.unit);
    let mean = found.mean.map(|mean| format!("geometric mean {mean:.3} {unit}\n"));
    let stopped = if found.stopped { "stopped before its end\n" } else { "" };
    let (threads, at) = (size::counted(found.threads, "thread", "threads"), output::printable(&found.path));
    format!("{table}{}{stopped}{threads} on {at} ({})\n", mean.unwrap_or_default(), found.file_system)
}

fn ended(by: Ended) -> &'static str {
    match by {
        Ended::Done => "all done",
        Ended::Space => "space",
        Ended::Time => "time",
        Ended::Error => "an error",
        Ended::Stopped => "a stop",
    }
}

fn identity(user: Option<&str>) -> Result<Option<Identity>, Fail> {
    let owner = user.map(system::owner).transpose()?;
    Ok(owner.map(|owner| Identity { uid: owner.uid, gid: owner.gid }))
}

fn launch(order: &Order) -> io::Result<Child> {
    another(&["lab", "storm", &serde_json::to_string(order)?])
}

/// Another process of this binary. Ctrl-C is ours to hear: it ends when we close its standard
/// input.
pub(super) fn another(args: &[&str]) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .args(args)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

fn serve_storm(invocation: &Invocation, order: &str) -> Result<(), Fail> {
    let order: Order = serde_json::from_str(order).map_err(|e| {
        Fail::usage(format!("not an order of `lee lab neighbours`, which is what this is for: {e}"))
    })?;
    storm::serve(&invocation.env, &order, io::stdin(), io::stdout())
        .map_err(|e| Fail::new(format!("nobody waits for this storm any more: {}", text(&e))))
}

fn neighbours_text(found: &neighbours::Report) -> String {
    let right = Side::Right;
    let mut columns = vec![
        ("STORM", Side::Left),
        ("OPERATION", Side::Left),
        ("P50", right),
        ("P90", right),
        ("P99", right),
        ("MAX", right),
        ("P99 TO QUIET", right),
    ];
    if found.elsewhere.is_some() {
        columns.push(("STORM ELSEWHERE", right));
    }
    let row = |storm: &str, op: Op, phase: &Phase| {
        [vec![storm.to_string(), op.meaning().to_string()], latencies(phase, op)].concat()
    };
    let mut rows: Vec<Vec<String>> = Op::ROUND.map(|op| row("none", op, &found.quiet)).into();
    for weather in &found.storms {
        for (op, here) in Op::ROUND.into_iter().filter_map(|op| Some((op, weather.here.as_ref()?))) {
            let ratio = |phase: &Phase| {
                neighbours::ratio(&found.quiet, phase, op).map(times).unwrap_or_else(|| "-".into())
            };
            let ratios = [Some(ratio(here)), weather.elsewhere.as_ref().map(ratio)];
            let mut cells = row(weather.storm.name(), op, here);
            cells.extend(ratios.into_iter().flatten());
            rows.push(cells);
        }
    }
    let mut text = format!("{}\n", Table::new(&columns).rows(&rows, Vec::clone));
    for weather in &found.storms {
        text.push_str(&format!("{}{}\n", report::verdict_line(weather), work(weather)));
    }
    text.push_str(&format!(
        "\ncalm: p99 at most {} that of the quiet; CPU in use while quiet: {:.0} %\n",
        times(found.limit),
        found.quiet.cpu_busy * 100.0
    ));
    if found.stopped {
        text.push_str("stopped before its end\n");
    }
    text
}

fn latencies(phase: &Phase, op: Op) -> Vec<String> {
    let cells = phase.ops.get(&op).map(|summary| report::summary_cells(summary).split_off(1));
    cells.unwrap_or_else(|| vec!["-".into(); 4])
}

/// What the storm did: `; 12,345/s, CPU 87 %`.
fn work(weather: &Weather) -> String {
    let (Some(did), Some(here)) = (&weather.did, &weather.here) else { return String::new() };
    let rate = size::count((did.ops as f64 / did.seconds.max(1e-9)) as u64);
    let errors = match &did.first_error {
        Some(first) => format!(", {} of the storm ({first})", size::counted(did.errors, "error", "errors")),
        None => String::new(),
    };
    format!("  [{rate}/s, CPU {:.0} %{errors}]", here.cpu_busy * 100.0)
}
