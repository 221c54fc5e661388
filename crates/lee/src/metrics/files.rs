//! Tests of the files that belong to the table of metrics: `docs/METRICS.md` is made from it; the
//! dashboard and the alerts in `contrib/` use its metrics; each alert has its page, and the pages
//! name existing commands.

use super::busiest::SHOWN_MAX;
use super::table::{Kind, METRICS, Metric};
use leeward_env::histogram::Histogram;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// Set to anything, makes the test write `docs/METRICS.md` instead of comparing it.
const WRITE: &str = "LEE_WRITE_DOCS";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn unit(metric: &Metric) -> &'static str {
    let stem = metric.name.trim_end_matches("_total");
    ["seconds", "bytes"].into_iter().find(|unit| stem.ends_with(unit)).unwrap_or("")
}

fn document() -> String {
    let (first, last) = (Histogram::bounds().next(), Histogram::bounds().last());
    let mut out = format!(
        "# Metrics\n\n\
<!-- Made by `{WRITE}=1 cargo test -p lee metrics::files` from crates/lee/src/metrics/table.rs:\n\
change that. -->\n\n\
`lee up CELL --metrics 9547` serves Prometheus at `http://127.0.0.1:9547/metrics`. Other addresses,\n\
such as `--metrics [::1]:9547`, and several of them, are possible, as is\n\
`metrics = [\"127.0.0.1:9547\"]` in `CELL/leeward.toml` (the command line wins). `lee status` shows\n\
the addresses. The page is plain HTTP and open to everybody who reaches the address. It has names of\n\
volumes and machines, and numbers of users, no names of files. Keep it on loopback, or in a network of the\n\
administrators.\n\n\
\x20   # prometheus.yml\n\
\x20   rule_files: [/etc/prometheus/leeward/alerts.yml]      # contrib/prometheus/alerts.yml\n\
\x20   scrape_configs:\n\
\x20     - job_name: leeward                                 # the name that alerts and dashboard expect\n\
\x20       static_configs: [{{targets: [\"127.0.0.1:9547\"]}}]\n\n\
The dashboard for Grafana is `contrib/grafana/leeward.json` (import it and choose the data source).\n\n\
## How many series\n\n\
The {SHOWN_MAX} busiest volumes, users and other machines (`host`) have series of their own; the rest of each\n\
counts together as `other`. A series begins at 0 when its volume, user or machine gets it. It ends when\n\
another one that was twice as busy recently takes its place. The counts of `other` never jump. A volume\n\
or machine with the name `other`, or a volume `snapshots`, is shown with a slash before its name. `user`\n\
is a number. Pools have 20 series each, and a cell has at most 256 pools. All other labels have a fixed,\n\
small set of values. A cell has some 400 series at first, and never more than some 7,000 besides those\n\
of its pools.\n\n\
Counters and histograms count since the process began to serve. Buckets of histograms are powers of\n\
two, from {} µs to {} s.\n\n\
## What there is\n\n| name | type | unit | labels | what |\n|---|---|---|---|---|\n",
        first.unwrap_or_default() * 1e6,
        last.unwrap_or_default().round(),
    );
    for m in METRICS {
        let labels: Vec<String> = m.labels.iter().map(|l| format!("`{l}`")).collect();
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            m.name,
            m.kind.name(),
            unit(m),
            labels.join(", "),
            m.help
        );
    }
    out.push_str(
        "\n## Alerts\n\nEach has a page: what it means, what users notice, what to look at, what to do.\n\n",
    );
    for name in alerts().keys() {
        let _ = writeln!(out, "* [{name}](runbooks/{name}.md)");
    }
    out
}

#[test]
fn the_document_is_what_the_table_says() {
    let wanted = document();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path("docs/METRICS.md"), &wanted).expect("written");
    }
    let stored = std::fs::read_to_string(path("docs/METRICS.md")).unwrap_or_default();
    let differs = stored.lines().zip(wanted.lines()).find(|(a, b)| a != b);
    assert!(
        stored == wanted,
        "docs/METRICS.md is not what the table says ({differs:?}): {WRITE}=1 cargo test -p lee metrics::files"
    );
}

#[test]
fn names_keep_the_rules() {
    let mut names = BTreeSet::new();
    for m in METRICS {
        assert!(names.insert(m.name), "{} is there twice", m.name);
        assert!(m.name.starts_with("leeward_"), "{}", m.name);
        assert!(m.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", m.name);
        assert_eq!(m.name.ends_with("_total"), m.kind == Kind::Counter, "{}", m.name);
        assert!(m.kind != Kind::Histogram || m.name.ends_with("_seconds"), "{}", m.name);
        assert!(m.help.ends_with('.') && !m.help.contains('|'), "{}", m.name);
        assert!(!m.labels.contains(&"le"), "{}", m.name);
    }
}

/// Names of metrics in an expression, without what a histogram adds to them; panics when there is
/// no such metric.
fn check_expression(place: &str, expr: &str) {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut used = 0;
    for name in expr.split(|c| !word(c)).filter(|w| w.starts_with("leeward_")) {
        let is = |m: &Metric| match m.kind {
            Kind::Histogram => {
                name.strip_prefix(m.name).is_some_and(|s| ["_bucket", "_sum", "_count"].contains(&s))
            }
            _ => m.name == name,
        };
        assert!(METRICS.iter().any(is), "{place}: there is no metric {name}: {expr}");
        used += 1;
    }
    assert!(used > 0 || expr.starts_with("up{"), "{place}: no metric of ours: {expr}");
    for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
        assert_eq!(expr.matches(open).count(), expr.matches(close).count(), "{place}: {expr}");
    }
}

/// All values of this key in the dashboard.
fn all_of<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            for (k, v) in map {
                if k == key {
                    found.push(v);
                }
                all_of(v, key, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|v| all_of(v, key, found)),
        _ => (),
    }
}

#[test]
fn the_dashboard_uses_metrics_that_there_are() {
    let dashboard: Value = serde_json::from_str(&read("contrib/grafana/leeward.json")).expect("JSON");
    let mut expressions = Vec::new();
    all_of(&dashboard, "expr", &mut expressions);
    assert!(expressions.len() > 20, "{} expressions", expressions.len());
    for expr in expressions {
        check_expression("dashboard", expr.as_str().expect("text"));
    }
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|p| p["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "every panel has a number of its own");
    let rows: Vec<&str> =
        panels.iter().filter(|p| p["type"] == "row").filter_map(|p| p["title"].as_str()).collect();
    let wanted = [
        "Calm",
        "Throughput",
        "Gates",
        "Commit",
        "Store",
        "Cache",
        "Backlog",
        "Space",
        "Snapshots",
        "Pools",
        "Doors",
    ];
    assert!(wanted.iter().all(|w| rows.contains(w)), "{rows:?}");
}

/// The rules by name, each with its keys, from the part of YAML that the file uses: a key a line,
/// values on the same line.
fn alerts() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut alerts: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut current = String::new();
    let text = read("contrib/prometheus/alerts.yml");
    for line in text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')).skip(3) {
        let (indent, rest) = (line.len() - line.trim_start().len(), line.trim_start());
        let (key, value) = rest.split_once(':').unwrap_or_else(|| panic!("no key: {line}"));
        let value = value.trim().trim_matches('"').to_string();
        match (indent, key) {
            (6, "- alert") => {
                current = value;
                assert!(
                    alerts.insert(current.clone(), BTreeMap::new()).is_none(),
                    "{current} is there twice"
                );
            }
            (8, "expr" | "for" | "labels" | "annotations") | (10, "severity" | "summary" | "runbook") => {
                let rule = alerts.get_mut(&current).expect("a rule has begun");
                assert!(rule.insert(key.into(), value).is_none(), "{current}: {key} is there twice");
            }
            _ => panic!("unexpected: {line}"),
        }
    }
    alerts
}

#[test]
fn every_alert_has_what_it_needs() {
    let alerts = alerts();
    assert!(read("contrib/prometheus/alerts.yml").contains("groups:\n  - name: leeward\n    rules:\n"));
    assert!(alerts.len() > 10);
    for (name, rule) in &alerts {
        check_expression(name, &rule["expr"]);
        assert!(["page", "ticket"].contains(&rule["severity"].as_str()), "{name}");
        assert!(!rule["summary"].is_empty(), "{name}");
        assert_eq!(rule["runbook"], format!("docs/runbooks/{name}.md"));
        let page = read(&rule["runbook"]);
        assert!(page.starts_with(&format!("# {name}\n")), "{name}");
        for part in ["**What it means.**", "**What users notice.**", "**What to look at**", "**What to do**"]
        {
            assert!(page.contains(part), "{name}: {part}");
        }
        check_commands(name, &page);
    }
    let pages = std::fs::read_dir(path("docs/runbooks")).expect("pages");
    let pages: BTreeSet<String> =
        pages.map(|p| p.expect("a page").file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(
        pages,
        alerts.keys().map(|name| format!("{name}.md")).collect(),
        "a page for each alert, and no other"
    );
}

/// Commands, links and metrics on a page must exist.
fn check_commands(name: &str, page: &str) {
    for code in page.split('`').skip(1).step_by(2) {
        if code.contains("leeward_") {
            check_expression_or_name(name, code);
        }
        let mut words = code.split(' ');
        if words.next() != Some("lee") {
            continue;
        }
        let mut command = crate::args::command();
        command.build();
        for word in words {
            if let Some(flag) = word.strip_prefix("--") {
                assert!(command.get_arguments().any(|a| a.get_long() == Some(flag)), "{name}: {code}");
            } else if command.has_subcommands() {
                command = command.find_subcommand(word).unwrap_or_else(|| panic!("{name}: {code}")).clone();
            }
        }
        assert!(!command.is_subcommand_required_set(), "{name}: {code}");
    }
    for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(path("docs/runbooks").join(link).exists(), "{name}: {link}");
    }
}

/// In prose a histogram may be named without a suffix.
fn check_expression_or_name(place: &str, code: &str) {
    if !METRICS.iter().any(|m| m.name == code) {
        check_expression(place, code);
    }
}

#[test]
fn promtool_takes_the_alerts() {
    let file = path("contrib/prometheus/alerts.yml");
    match Command::new("promtool").args(["check", "rules"]).arg(file).output() {
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
        Err(_) => eprintln!("skipped: no promtool (package prometheus)"),
    }
}
