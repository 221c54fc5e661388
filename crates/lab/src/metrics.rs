//! The results of a probe for Prometheus. The caller serves them over HTTP.
//!
//! Labels are paths, operations and errnos: as many as paths were given, times a few.

use crate::probe::{Op, Round};
use leeward_env::Nanos;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Upper bounds of the histogram, seconds.
const BOUNDS: [f64; 18] = [
    20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1.0, 2.0,
    5.0, 30.0,
];

/// Counts since the start. Clones share them.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    latencies: BTreeMap<(String, Op), Histogram>,
    errors: BTreeMap<(String, Op, String), u64>,
    rounds: BTreeMap<String, (u64, u64)>,
    stuck: BTreeMap<String, (Op, Nanos)>,
}

#[derive(Default)]
struct Histogram {
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum_s: f64,
}

impl Histogram {
    fn add(&mut self, seconds: f64) {
        self.count += 1;
        self.sum_s += seconds;
        if let Some(bucket) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
    }
}

impl Metrics {
    /// Counts a round.
    pub fn add(&self, round: &Round) {
        let mut counts = self.0.lock();
        if let Some(stuck) = round.stuck {
            counts.stuck.insert(round.path.clone(), (stuck.op, round.began));
            return;
        }
        counts.stuck.remove(&round.path);
        let (rounds, last) = counts.rounds.entry(round.path.clone()).or_default();
        *rounds += 1;
        *last = round.at_ms;
        for (op, us) in &round.us {
            counts.latencies.entry((round.path.clone(), *op)).or_default().add(us / 1e6);
        }
        for (op, errno) in &round.errors {
            *counts.errors.entry((round.path.clone(), *op, errno.clone())).or_default() += 1;
        }
    }

    /// The text format of Prometheus, as of `now` on the monotonic clock.
    pub fn text(&self, now: Nanos) -> String {
        let counts = self.0.lock();
        let mut out = String::new();
        head(&mut out, "latency_seconds", "histogram", "Latency of operations that succeeded.");
        for ((path, op), histogram) in &counts.latencies {
            let labels = format!("path={},op=\"{}\"", quoted(path), op.name());
            let mut below = 0;
            for (bound, count) in BOUNDS.iter().zip(histogram.buckets) {
                below += count;
                line(&mut out, "latency_seconds_bucket", &format!("{labels},le=\"{bound}\""), below as f64);
            }
            line(
                &mut out,
                "latency_seconds_bucket",
                &format!("{labels},le=\"+Inf\""),
                histogram.count as f64,
            );
            line(&mut out, "latency_seconds_sum", &labels, histogram.sum_s);
            line(&mut out, "latency_seconds_count", &labels, histogram.count as f64);
        }
        head(&mut out, "errors_total", "counter", "Operations that failed, by errno.");
        for ((path, op, errno), count) in &counts.errors {
            let labels = format!("path={},op=\"{}\",errno={}", quoted(path), op.name(), quoted(errno));
            line(&mut out, "errors_total", &labels, *count as f64);
        }
        head(&mut out, "rounds_total", "counter", "Rounds that are over.");
        for (path, (rounds, _)) in &counts.rounds {
            line(&mut out, "rounds_total", &format!("path={}", quoted(path)), *rounds as f64);
        }
        head(&mut out, "last_round_timestamp_seconds", "gauge", "When the last round began that is over.");
        for (path, (_, last_ms)) in &counts.rounds {
            let labels = format!("path={}", quoted(path));
            line(&mut out, "last_round_timestamp_seconds", &labels, *last_ms as f64 / 1e3);
        }
        head(&mut out, "stuck_seconds", "gauge", "For how long an operation over its deadline has lasted.");
        for (path, (op, since)) in &counts.stuck {
            let labels = format!("path={},op=\"{}\"", quoted(path), op.name());
            line(&mut out, "stuck_seconds", &labels, (now.saturating_sub(*since) / 1_000_000) as f64 / 1e3);
        }
        out
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP lee_probe_{name} {help}\n# TYPE lee_probe_{name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(out, "lee_probe_{name}{{{labels}}} {value}");
}

/// A label's value in quotes.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Stuck;

    fn round(path: &str) -> Round {
        Round {
            at_ms: 1_500,
            began: 1_000_000_000,
            path: path.into(),
            us: [(Op::Write, 1500.0)].into(),
            errors: [(Op::Read, "EIO".to_string())].into(),
            stuck: None,
        }
    }

    #[test]
    fn rounds_become_text() {
        let metrics = Metrics::default();
        metrics.add(&round("/a \"b\""));
        metrics.add(&round("/a \"b\""));
        let text = metrics.text(0);
        for line in [
            r#"lee_probe_latency_seconds_bucket{path="/a \"b\"",op="write",le="0.001"} 0"#,
            r#"lee_probe_latency_seconds_bucket{path="/a \"b\"",op="write",le="0.002"} 2"#,
            r#"lee_probe_latency_seconds_bucket{path="/a \"b\"",op="write",le="+Inf"} 2"#,
            r#"lee_probe_latency_seconds_sum{path="/a \"b\"",op="write"} 0.003"#,
            r#"lee_probe_errors_total{path="/a \"b\"",op="read",errno="EIO"} 2"#,
            r#"lee_probe_last_round_timestamp_seconds{path="/a \"b\""} 1.5"#,
            "# TYPE lee_probe_stuck_seconds gauge",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_is_stuck_grows_and_goes() {
        let metrics = Metrics::default();
        let mut stuck = round("/x");
        stuck.stuck = Some(Stuck { op: Op::Write, since_ms: 0, for_s: 10.0 });
        metrics.add(&stuck);
        assert!(
            metrics.text(13_500_000_000).contains(r#"lee_probe_stuck_seconds{path="/x",op="write"} 12.5"#)
        );
        metrics.add(&round("/x"));
        assert!(!metrics.text(0).contains("lee_probe_stuck_seconds{"));
    }
}
