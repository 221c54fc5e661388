//! The text format of Prometheus, version 0.0.4.

use super::Scrape;
use super::table::{Kind, METRICS, Metric};
use leeward_env::histogram::Histogram;
use std::fmt::Write as _;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Those metrics of the table whose names are `wanted`.
pub fn exposition(scrape: &Scrape, wanted: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(64 << 10);
    for metric in METRICS.iter().filter(|metric| wanted(metric.name)) {
        let help = metric.help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(out, "# HELP {} {help}\n# TYPE {} {}", metric.name, metric.name, metric.kind.name());
        (metric.values)(scrape, &mut Lines { out: &mut out, metric });
    }
    out
}

/// Takes the values of one metric.
pub struct Lines<'a> {
    out: &'a mut String,
    metric: &'a Metric,
}

impl Lines<'_> {
    /// A number. One label value for each label of the metric.
    pub fn number(&mut self, labels: &[&str], value: f64) {
        assert_ne!(self.metric.kind, Kind::Histogram, "{}", self.metric.name);
        let labels = self.labels(labels);
        self.line("", &braces(&labels), value);
    }

    /// A count.
    pub fn count(&mut self, labels: &[&str], value: u64) {
        self.number(labels, value as f64);
    }

    /// Nanoseconds, in seconds.
    pub fn nanos(&mut self, labels: &[&str], value: u64) {
        self.number(labels, value as f64 / 1e9);
    }

    /// A histogram of seconds.
    pub fn histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        assert_eq!(self.metric.kind, Kind::Histogram, "{}", self.metric.name);
        let labels = self.labels(labels);
        let comma = if labels.is_empty() { "" } else { "," };
        let mut sum = 0;
        for (bound, count) in Histogram::bounds().zip(histogram.counts) {
            sum += count;
            self.line("_bucket", &format!("{{{labels}{comma}le=\"{bound}\"}}"), sum as f64);
        }
        let count = histogram.count() as f64;
        self.line("_bucket", &format!("{{{labels}{comma}le=\"+Inf\"}}"), count);
        self.line("_sum", &braces(&labels), histogram.nanos as f64 / 1e9);
        self.line("_count", &braces(&labels), count);
    }

    fn labels(&self, values: &[&str]) -> String {
        let names = self.metric.labels;
        assert_eq!(names.len(), values.len(), "labels of {}", self.metric.name);
        let pairs = names.iter().zip(values).map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        pairs.collect::<Vec<_>>().join(",")
    }

    fn line(&mut self, suffix: &str, labels: &str, value: f64) {
        let _ = writeln!(self.out, "{}{suffix}{labels} {value}", self.metric.name);
    }
}

fn braces(labels: &str) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{labels}}}") }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(kind: Kind, labels: &'static [&'static str], give: impl Fn(&mut Lines<'_>)) -> String {
        let metric = Metric { name: "m", kind, labels, help: "", values: |_, _| () };
        let mut out = String::new();
        give(&mut Lines { out: &mut out, metric: &metric });
        out
    }

    #[test]
    fn labels_are_escaped() {
        let out = lines(Kind::Gauge, &["a", "b"], |l| l.count(&["x\"y\\z\nw", "é"], 3));
        assert_eq!(out, "m{a=\"x\\\"y\\\\z\\nw\",b=\"é\"} 3\n");
        assert_eq!(lines(Kind::Counter, &[], |l| l.nanos(&[], 1_500_000)), "m 0.0015\n");
    }

    #[test]
    fn histograms_are_cumulative() {
        let mut histogram = Histogram::default();
        for nanos in [500, 1_500, 1_500, u64::MAX >> 10] {
            histogram.add(nanos);
        }
        let out = lines(Kind::Histogram, &[], |l| l.histogram(&[], &histogram));
        for line in [
            "m_bucket{le=\"0.000001\"} 1",
            "m_bucket{le=\"0.000002\"} 3",
            "m_bucket{le=\"+Inf\"} 4",
            "m_count 4",
        ] {
            assert!(out.lines().any(|l| l == line), "{line}\n{out}");
        }
        assert!(out.lines().any(|l| l.starts_with("m_sum 18014398.")), "{out}");
    }
}
