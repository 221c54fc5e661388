//! The results as pages; and the figures of a history.

use crate::neighbours::{self, Phase, Report, Verdict, Weather, times};
use crate::page::Page;
use crate::plot::{Band, Chart, Draw, Scale, Series, distribution, thin};
use crate::probe::{Op, Round};
use crate::stats::Summary;
use crate::text;
use serde::Serialize;
use std::collections::BTreeMap;

/// Width of a chart over the whole page, and of one of several side by side.
const WIDE: f64 = 1080.0;
const NARROW: f64 = 354.0;
/// Stretches of time that a chart tells apart.
const BINS: usize = 500;

/// Writes seconds since 1970 as `2026-11-21 10:43:58 UTC`.
pub type Utc = fn(i64) -> String;

/// The page of `lee lab neighbours`.
pub fn neighbours_page(report: &Report, utc: Utc) -> String {
    let mut page = Page::new(&format!("Neighbours on {}", report.path));
    page.paragraph(&setting(report, utc));
    page.heading("Verdicts");
    let limit = times(report.limit);
    page.note(&format!(
        "Calm: no operation's p99 is more than {limit} that of the quiet phase. Named is the slowest operation. CPU is the part \
         of all processors' time that was used, by storm, probe and file system together."
    ));
    page.table(2, &["storm", "verdict", "storm's work", "errors", "CPU"], &verdict_rows(report));
    if report.stopped {
        page.paragraph("The run was stopped before its end.");
    }
    page.heading("Latency over time");
    let bands = bands(report);
    for op in Op::ROUND {
        page.chart(&over_time(report, op, &bands).svg());
    }
    for weather in &report.storms {
        storm_section(&mut page, report, weather);
    }
    page.html()
}

fn setting(report: &Report, utc: Utc) -> String {
    let users = match report.users {
        Some((storm, probe)) => format!("user {storm} storms, user {probe} probes"),
        None => "one user storms and probes".into(),
    };
    let elsewhere = report.elsewhere.as_ref().map(|(path, kind)| format!(" Elsewhere is {path} ({kind})."));
    format!(
        "{} is on {}. {}; {} processors; storms of {} threads; {} s each; a round of probes every {} ms; {users}.{}",
        report.path,
        report.file_system,
        utc((report.at_ms / 1000) as i64),
        report.processors,
        report.threads,
        report.seconds,
        report.every_ms,
        elsewhere.unwrap_or_default()
    )
}

fn verdict_rows(report: &Report) -> Vec<Vec<String>> {
    let busy = |phase: &Phase| format!("{:.0} %", phase.cpu_busy * 100.0);
    let mut rows =
        vec![vec!["quiet".into(), String::new(), String::new(), String::new(), busy(&report.quiet)]];
    for weather in &report.storms {
        let work = weather.did.as_ref().map(|did| format!("{:.0}/s", did.ops as f64 / did.seconds.max(1e-9)));
        let errors = weather
            .did
            .as_ref()
            .filter(|did| did.errors > 0)
            .map(|did| format!("{} ({})", did.errors, did.first_error.as_deref().unwrap_or("?")));
        rows.push(vec![
            format!("{}: {}", weather.storm.name(), weather.storm.meaning()),
            weather.verdict.text(),
            work.unwrap_or_default(),
            errors.unwrap_or_default(),
            weather.here.as_ref().map(busy).unwrap_or_default(),
        ]);
    }
    rows
}

fn bands(report: &Report) -> Vec<Band> {
    let band = |phase: &Phase, name: String| Band { from: phase.from_s, to: phase.to_s, name };
    let mut bands = vec![band(&report.quiet, "quiet".into())];
    for weather in &report.storms {
        bands.extend(weather.here.as_ref().map(|phase| band(phase, weather.storm.name().into())));
        let elsewhere = format!("({})", weather.storm.name());
        bands.extend(weather.elsewhere.as_ref().map(|phase| band(phase, elsewhere)));
    }
    bands
}

fn over_time(report: &Report, op: Op, bands: &[Band]) -> Chart {
    let phases = report.storms.iter().flat_map(|w| w.here.iter().chain(&w.elsewhere));
    let of = |phase: &Phase| -> Vec<(f64, f64)> {
        let points: Vec<_> =
            phase.points.iter().filter(|p| p.0 == op).map(|(_, at, us)| (*at, *us)).collect();
        thin(&points, BINS)
    };
    let points = std::iter::once(&report.quiet).chain(phases).flat_map(of).collect();
    let x_label = match report.elsewhere {
        Some(_) => "seconds; (name): that storm elsewhere; white: preparing, cleaning up",
        None => "seconds; white: preparing, cleaning up",
    };
    Chart {
        title: op.meaning().into(),
        x_label: x_label.into(),
        y_label: "latency".into(),
        x: Scale::Seconds,
        y: Scale::Latency,
        x_range: None,
        series: vec![Series { name: String::new(), points, draw: Draw::Dots }],
        bands: bands.to_vec(),
        width: WIDE,
        plot_height: 170.0,
    }
}

fn storm_section(page: &mut Page, report: &Report, weather: &Weather) {
    let Some(here) = &weather.here else { return };
    page.heading(&format!("{}: {}", weather.storm.name(), weather.verdict.text()));
    let mut rows = Vec::new();
    for op in Op::ROUND {
        let phases = [
            ("quiet", Some(&report.quiet)),
            ("storm", Some(here)),
            ("elsewhere", weather.elsewhere.as_ref()),
        ];
        for (name, phase) in phases {
            let Some(phase) = phase else { continue };
            let ratio = neighbours::ratio(&report.quiet, phase, op).filter(|_| name != "quiet");
            let mut row = vec![op.meaning().to_string(), name.to_string()];
            row.extend(phase.ops.get(&op).map(summary_cells).unwrap_or_else(|| vec!["-".into(); 5]));
            row.push(ratio.map(times).unwrap_or_default());
            rows.push(row);
        }
    }
    page.table(2, &["operation", "", "count", "p50", "p90", "p99", "max", "p99 ratio"], &rows);
    let charts: Vec<String> =
        Op::ROUND.into_iter().map(|op| compared_with_quiet(report, weather, op).svg()).collect();
    page.charts(&charts);
}

/// Count, p50, p90, p99 and max for a person.
pub fn summary_cells(summary: &Summary) -> Vec<String> {
    let latencies = [summary.p50_us, summary.p90_us, summary.p99_us, summary.max_us];
    std::iter::once(summary.count.to_string()).chain(latencies.into_iter().map(text::latency)).collect()
}

fn compared_with_quiet(report: &Report, weather: &Weather, op: Op) -> Chart {
    let line = |name: &str, phase: &Phase| Series {
        name: name.into(),
        points: distribution(&phase.latencies(op)),
        draw: Draw::Line,
    };
    let mut series = vec![line("quiet", &report.quiet)];
    series.extend(weather.here.as_ref().map(|phase| line("storm", phase)));
    series.extend(weather.elsewhere.as_ref().map(|phase| line("elsewhere", phase)));
    distributions(op, series)
}

/// Which part of an operation took at most how long, in several series.
fn distributions(op: Op, series: Vec<Series>) -> Chart {
    Chart {
        title: op.meaning().into(),
        x_label: "latency".into(),
        y_label: "took at most this".into(),
        x: Scale::Latency,
        y: Scale::Part,
        x_range: None,
        series,
        bands: Vec::new(),
        width: NARROW,
        plot_height: 150.0,
    }
}

/// The words for a terminal: a table, a verdict for each storm.
pub fn verdict_line(weather: &Weather) -> String {
    let mark = match weather.verdict {
        Verdict::Calm { .. } => "calm",
        Verdict::Disturbed { .. } => "DISTURBED",
        Verdict::Broken { .. } => "BROKEN",
        Verdict::Skipped { .. } => "skipped",
    };
    let text = weather.verdict.text();
    let rest = text.split_once(' ').map_or("", |(_, rest)| rest);
    format!("{:<8} {mark} {rest}", weather.storm.name())
}

/// The figures of a history for one path.
#[derive(Clone, Debug, Serialize)]
pub struct PathHistory {
    /// The path.
    pub path: String,
    /// Start of the first round, in milliseconds since 1970.
    pub from_ms: u64,
    /// Start of the last round, in milliseconds since 1970.
    pub to_ms: u64,
    /// Rounds that were over.
    pub rounds: u64,
    /// Latencies by operation.
    pub ops: BTreeMap<Op, Summary>,
    /// How often which error came, by operation and errno.
    pub errors: BTreeMap<String, u64>,
    /// Operations that were over their deadline: which, since when (milliseconds since 1970), for
    /// how many seconds at least.
    pub stuck: Vec<(Op, u64, f64)>,
}

/// The figures of a history, by path.
pub fn history(rounds: &[Round]) -> Vec<PathHistory> {
    let mut by_path: BTreeMap<&str, Vec<&Round>> = BTreeMap::new();
    for round in rounds {
        by_path.entry(&round.path).or_default().push(round);
    }
    by_path.into_iter().map(|(path, rounds)| path_history(path, &rounds)).collect()
}

fn path_history(path: &str, rounds: &[&Round]) -> PathHistory {
    let at = || rounds.iter().map(|round| round.at_ms);
    let mut found = PathHistory {
        path: path.into(),
        from_ms: at().min().unwrap_or_default(),
        to_ms: at().max().unwrap_or_default(),
        rounds: rounds.iter().filter(|round| round.stuck.is_none()).count() as u64,
        ops: BTreeMap::new(),
        errors: BTreeMap::new(),
        stuck: Vec::new(),
    };
    for round in rounds {
        for (op, errno) in &round.errors {
            *found.errors.entry(format!("{} {errno}", op.name())).or_default() += 1;
        }
        if let Some(stuck) = round.stuck {
            // Reported again and again: the last report counts.
            found.stuck.retain(|(op, since_ms, _)| (*op, *since_ms) != (stuck.op, stuck.since_ms));
            found.stuck.push((stuck.op, stuck.since_ms, stuck.for_s));
        }
    }
    for op in Op::ROUND {
        let us: Vec<f64> = rounds.iter().filter_map(|round| round.us.get(&op).copied()).collect();
        if !us.is_empty() {
            found.ops.insert(op, Summary::of(&us));
        }
    }
    found
}

/// The page of `lee probe report`.
pub fn history_page(rounds: &[Round], utc: Utc) -> String {
    let found = history(rounds);
    let mut page = Page::new("Probes");
    for path in &found {
        page.heading(&path.path);
        let (from, to) = (utc((path.from_ms / 1000) as i64), utc((path.to_ms / 1000) as i64));
        page.paragraph(&format!("{} rounds from {from} to {to}.", path.rounds));
        let row = |(op, summary): (&Op, &Summary)| {
            [vec![op.meaning().to_string()], summary_cells(summary)].concat()
        };
        let rows: Vec<Vec<String>> = path.ops.iter().map(row).collect();
        page.table(1, &["operation", "count", "p50", "p90", "p99", "max"], &rows);
        if !path.errors.is_empty() {
            let rows: Vec<_> =
                path.errors.iter().map(|(what, n)| vec![what.clone(), n.to_string()]).collect();
            page.table(1, &["error", "times"], &rows);
        }
        if !path.stuck.is_empty() {
            let row = |(op, since_ms, for_s): &(Op, u64, f64)| {
                vec![op.meaning().into(), utc((since_ms / 1000) as i64), format!("{for_s:.0} s or more")]
            };
            let rows: Vec<Vec<String>> = path.stuck.iter().map(row).collect();
            page.table(2, &["stuck in", "since", "for"], &rows);
        }
    }
    page.heading("Latency over time");
    page.note("Of each stretch of time the shortest, the median and the longest latency are drawn. Errors are at the longest of all latencies.");
    for op in Op::ROUND {
        page.chart(&history_chart(rounds, &found, op, utc).svg());
    }
    page.heading("Distribution");
    let charts: Vec<String> =
        Op::ROUND.into_iter().map(|op| history_distribution(rounds, &found, op).svg()).collect();
    page.charts(&charts);
    page.html()
}

fn history_chart(rounds: &[Round], found: &[PathHistory], op: Op, utc: Utc) -> Chart {
    let mut series: Vec<Series> = found.iter().map(|path| path_series(rounds, path, op)).collect();
    let top = series.iter().flat_map(|s| &s.points).map(|p| p.1).fold(1000.0, f64::max);
    let failed = rounds
        .iter()
        .filter(|round| round.errors.contains_key(&op) || round.stuck.is_some_and(|s| s.op == op));
    let failed: Vec<(f64, f64)> = failed.map(|round| (round.at_ms as f64, top)).collect();
    if !failed.is_empty() {
        series.push(Series { name: "failed or stuck".into(), points: thin(&failed, BINS), draw: Draw::Dots });
    }
    let from = rounds.iter().map(|round| round.at_ms).min().unwrap_or_default();
    Chart {
        title: op.meaning().into(),
        x_label: format!("time (UTC), from {}", utc((from / 1000) as i64)),
        y_label: "latency".into(),
        x: Scale::Clock(utc),
        y: Scale::Latency,
        x_range: None,
        series,
        bands: Vec::new(),
        width: WIDE,
        plot_height: 190.0,
    }
}

fn path_series(rounds: &[Round], path: &PathHistory, op: Op) -> Series {
    let of = rounds.iter().filter(|round| round.path == path.path);
    let mut points: Vec<_> = of.filter_map(|round| Some((round.at_ms as f64, *round.us.get(&op)?))).collect();
    points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    Series { name: path.path.clone(), points: thin(&points, BINS), draw: Draw::Dots }
}

fn history_distribution(rounds: &[Round], found: &[PathHistory], op: Op) -> Chart {
    let line = |path: &PathHistory| {
        let of = rounds.iter().filter(|round| round.path == path.path);
        let us: Vec<f64> = of.filter_map(|round| round.us.get(&op).copied()).collect();
        Series { name: path.path.clone(), points: distribution(&us), draw: Draw::Line }
    };
    distributions(op, found.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Stuck;

    fn round(path: &str, at_ms: u64) -> Round {
        let us = Op::ROUND.into_iter().map(|op| (op, 100.0 + at_ms as f64)).collect();
        Round { at_ms, began: 0, path: path.into(), us, errors: BTreeMap::new(), stuck: None }
    }

    #[test]
    fn a_history_is_told_by_path() {
        let mut rounds: Vec<Round> = (0..10).map(|i| round("/a", i * 1000)).collect();
        rounds.push(round("/b", 5));
        for for_s in [10.0, 20.0] {
            let mut hung = round("/b", 7);
            hung.us.clear();
            hung.stuck = Some(Stuck { op: Op::Write, since_ms: 7, for_s });
            rounds.push(hung);
        }
        rounds[0].errors.insert(Op::Read, "EIO".into());
        let found = history(&rounds);
        assert_eq!(found.iter().map(|p| p.rounds).collect::<Vec<_>>(), [10, 1]);
        assert_eq!(found[0].errors["read EIO"], 1);
        assert_eq!(found[1].stuck, [(Op::Write, 7, 20.0)]);
        let page = history_page(&rounds, |secs| format!("2026-11-21 00:00:{secs:02} UTC"));
        assert_eq!(page.matches("<svg").count(), 10);
        assert!(page.contains("failed or stuck") && page.contains("20 s or more"), "{page}");
    }
}
