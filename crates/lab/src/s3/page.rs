//! A run as an HTML page with plots.

use super::Op;
use super::run::{Measured, OpMeasured, Report};
use crate::page::Page;
use crate::plot::{Chart, Draw, Scale, Series};
use crate::report::{Utc, summary_cells};
use crate::text;

/// Width of a chart over the whole page, and of one of several side by side.
const WIDE: f64 = 1080.0;
const NARROW: f64 = 534.0;

/// The page of `lee lab s3`.
pub fn page(report: &Report, utc: Utc) -> String {
    let mut page = Page::new(&format!("Load on {}", report.url));
    page.paragraph(&setting(report, utc));
    page.paragraph(&verdict(report));
    if report.stopped {
        page.paragraph("The run was stopped before its end.");
    }
    if let Some(idle) = idle(report) {
        page.paragraph(&idle);
    }
    page.heading("Steps");
    page.note(
        "Rates are of answers that came while the step lasted; latencies, successes and failures are of all requests that began in it. \
         A client asks again when it has its answer, so a slow endpoint is asked less. Never served: clients whose every request failed.",
    );
    page.table(2, &HEAD, &rows(report));
    page.charts(
        &[rates(report), latencies(report), failures(report), processors(report)].map(|chart| chart.svg()),
    );
    page.heading("Failures");
    page.table(2, &["connections", "class", "times", "the first one said"], &failure_rows(report));
    page.heading("Distribution of latencies");
    for op in of_ops(report) {
        page.chart(&distribution(report, op).svg());
    }
    page.html()
}

/// Headings of [`rows`].
pub const HEAD: [&str; 14] = [
    "connections",
    "operation",
    "count",
    "rate/s",
    "MiB/s",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "failed",
    "of all",
    "never served",
    "holds",
];

/// A row for each operation of each step. The values of the whole step are in its first row.
pub fn rows(report: &Report) -> Vec<Vec<String>> {
    let mut steps: Vec<&Measured> = report.steps.iter().collect();
    steps.sort_by_key(|step| step.connections);
    let mut rows = Vec::new();
    for step in steps {
        let mut of_step = [
            step.failed.to_string(),
            percent(step.error_rate),
            step.never_served.to_string(),
            if step.holds { "yes".into() } else { "NO".into() },
        ];
        if step.ops.is_empty() {
            let none = vec!["-".to_string(); HEAD.len() - 5];
            rows.push([vec![step.connections.to_string()], none, of_step.to_vec()].concat());
            continue;
        }
        for (op, measured) in &step.ops {
            let cells = vec![step.connections.to_string(), op.name().into()];
            rows.push([cells, op_cells(measured), std::mem::take(&mut of_step).to_vec()].concat());
        }
    }
    rows
}

fn op_cells(op: &OpMeasured) -> Vec<String> {
    let [count, p50, p90, p99, max]: [String; 5] = summary_cells(&op.latency).try_into().unwrap_or_default();
    vec![
        count,
        format!("{:.0}", op.rate),
        text::digits(op.mib_s),
        p50,
        p90,
        p99,
        text::latency(op.p999_us),
        max,
    ]
}

/// A part in percent, with as many digits as a small one needs.
pub fn percent(part: f64) -> String {
    match part * 100.0 {
        0.0 => "0 %".into(),
        p if p < 0.001 => "<0.001 %".into(),
        p if p < 1.0 => format!("{p:.3} %"),
        p => format!("{p:.1} %"),
    }
}

fn setting(report: &Report, utc: Utc) -> String {
    let mix: Vec<String> = report.mix.iter().map(|(op, weight)| format!("{} {weight}", op.name())).collect();
    let sizes: Vec<String> =
        report.sizes.iter().map(|(size, weight)| format!("{size} bytes ({weight})")).collect();
    let pause = if report.pause_ms > 0 {
        format!(" Each client rests {} ms after an answer.", report.pause_ms)
    } else {
        String::new()
    };
    format!(
        "{}. Mix: {}; sizes: {}; time-out {} ms.{pause} Made by {} processes on a machine with {} processors.",
        utc((report.at_ms / 1000) as i64),
        mix.join(", "),
        sizes.join(", "),
        report.patience_ms,
        report.processes,
        report.processors
    )
}

/// A sentence that says which load holds.
pub fn verdict(report: &Report) -> String {
    let mut bound = format!("at most {} failed", percent(report.errors_max));
    if let Some(us) = report.p99_max_us {
        bound.push_str(&format!(" and a p99 of at most {}", text::latency(us)));
    }
    match (report.holds, report.fails) {
        (Some(holds), Some(fails)) if fails > holds => {
            format!("holds {holds} connections, not {fails} ({bound})")
        }
        (Some(holds), Some(fails)) => {
            format!("uneven: {fails} connections did not hold, {holds} did ({bound})")
        }
        (Some(holds), None) => format!("holds {holds} connections; no more were tried ({bound})"),
        (None, Some(fails)) => {
            format!("does not hold {fails} connections, which are the fewest that were tried ({bound})")
        }
        (None, None) => "nothing was measured".into(),
    }
}

/// A sentence about the idle connections.
pub fn idle(report: &Report) -> Option<String> {
    let idle = report.idle.as_ref()?;
    let each = idle
        .server_bytes_each
        .map(|bytes| format!("; the server's memory grew by {bytes:.0} bytes for each"));
    let (open, asked, end) = (idle.open, idle.connections, idle.open_in_the_end);
    Some(format!(
        "{open} of {asked} idle connections were opened, {end} were open in the end{}",
        each.unwrap_or_default()
    ))
}

fn by_connections(report: &Report, y: impl Fn(&Measured) -> Option<f64>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> =
        report.steps.iter().filter_map(|step| Some((step.connections as f64, y(step)?))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn chart(title: &str, y_label: &str, y: Scale, series: Vec<Series>) -> Chart {
    Chart {
        title: title.into(),
        x_label: "connections".into(),
        y_label: y_label.into(),
        x: Scale::Count,
        y,
        x_range: None,
        series,
        bands: Vec::new(),
        width: NARROW,
        plot_height: 200.0,
    }
}

fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.into(), points, draw: Draw::Line }
}

fn of_ops(report: &Report) -> impl Iterator<Item = Op> {
    Op::MIX.into_iter().filter(move |op| report.steps.iter().any(|step| step.ops.contains_key(op)))
}

fn rates(report: &Report) -> Chart {
    let of = |op: Op| line(op.name(), by_connections(report, |step| step.ops.get(&op).map(|of| of.rate)));
    chart("Answers a second", "answers/s", Scale::Count, of_ops(report).map(of).collect())
}

fn latencies(report: &Report) -> Chart {
    let of = |op: Op| {
        let at = |of: fn(&OpMeasured) -> f64| by_connections(report, |step| step.ops.get(&op).map(of));
        [
            line(format!("{} p50", op.name()), at(|of| of.latency.p50_us)),
            line(format!("{} p99", op.name()), at(|of| of.latency.p99_us)),
        ]
    };
    chart("Latency", "latency", Scale::Latency, of_ops(report).flat_map(of).collect())
}

fn failures(report: &Report) -> Chart {
    let series = line("", by_connections(report, |step| Some(step.error_rate)));
    chart("Requests that failed", "of all", Scale::Part, vec![series])
}

fn processors(report: &Report) -> Chart {
    let mut series = vec![line("this load", by_connections(report, |step| Some(step.load_processors)))];
    let server = by_connections(report, |step| step.server_processors);
    series.extend((!server.is_empty()).then(|| line("the server", server)));
    chart("Processors in use", "processors", Scale::Seconds, series)
}

fn distribution(report: &Report, op: Op) -> Chart {
    let mut steps: Vec<&Measured> = report.steps.iter().collect();
    steps.sort_by_key(|step| step.connections);
    let of = |step: &&Measured| {
        let points = step.ops.get(&op)?.distribution.clone();
        Some(line(format!("{} connections", step.connections), points))
    };
    Chart {
        x_label: "latency".into(),
        x: Scale::Latency,
        width: WIDE,
        ..chart(op.name(), "took at most this", Scale::Part, steps.iter().filter_map(of).collect())
    }
}

/// Each failure class of each step.
pub fn failure_rows(report: &Report) -> Vec<Vec<String>> {
    let row = |step: &Measured| {
        let connections = step.connections.to_string();
        let row = move |(class, (count, text)): (&String, &(u64, String))| {
            vec![connections.clone(), class.clone(), count.to_string(), text.clone()]
        };
        step.errors.iter().map(row).collect::<Vec<_>>()
    };
    report.steps.iter().flat_map(row).collect()
}
