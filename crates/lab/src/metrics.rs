//! What a probe found as Prometheus reads it, over plain HTTP.
//!
//! Labels are paths, operations and errnos: as many as paths were named, times a few.

use crate::probe::{Op, Round};
use crate::{Refused, text};
use leeward_env::{Env, Nanos};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Upper bounds of the histogram, seconds.
const BOUNDS: [f64; 18] = [
    20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1.0, 2.0,
    5.0, 30.0,
];
/// How long a client may take to ask, and to read the answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that are read of a request.
const REQUEST_BYTES_MAX: u64 = 8192;

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

    /// Answers on `address` until the process ends; gives the address, with the port that a 0 became.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn serve(&self, env: &Env, address: SocketAddr) -> Result<SocketAddr, Refused> {
        let failed = |e: std::io::Error| {
            let cause = text::cause(&e);
            Refused(format!(
                "cannot serve metrics on {address}: {cause}; give another --metrics ADDRESS:PORT"
            ))
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let (metrics, clock) = (self.clone(), env.clone());
        // One client at a time, each with little time: a scraper is one.
        env.spawn("lab-metrics", move || {
            for client in listener.incoming().flatten() {
                // A client that went away has no answer to miss.
                let _ = answer(client, || metrics.text(clock.now()));
            }
        });
        Ok(local)
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

fn answer(client: TcpStream, text: impl FnOnce() -> String) -> std::io::Result<()> {
    client.set_read_timeout(Some(CLIENT_PATIENCE))?;
    client.set_write_timeout(Some(CLIENT_PATIENCE))?;
    let mut request = BufReader::new((&client).take(REQUEST_BYTES_MAX));
    let mut first = String::new();
    request.read_line(&mut first)?;
    // The rest is read, so that closing does not reset the connection before the answer has been read.
    let mut header = String::new();
    while request.read_line(&mut header)? > 2 {
        header.clear();
    }
    let (status, body) = match first.split(' ').collect::<Vec<_>>().as_slice() {
        ["GET", "/metrics", ..] => ("200 OK", text()),
        ["GET", ..] => ("404 Not Found", "metrics are at /metrics\n".to_string()),
        _ => ("405 Method Not Allowed", "only GET\n".to_string()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    (&client).write_all(head.as_bytes())?;
    (&client).write_all(body.as_bytes())
}

/// An address on the command line: `9180` and `:9180` are on loopback.
///
/// # Errors
/// A sentence.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| {
        format!("`{text}` is no address: write a port, such as 9180, or 127.0.0.1:9180 or [::1]:9180")
    })
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

    #[test]
    fn it_answers() {
        let env = Env::real();
        let metrics = Metrics::default();
        metrics.add(&round("/x"));
        let address = metrics.serve(&env, parse_address("0").expect("an address")).expect("served");
        assert!(address.ip().is_loopback());
        let ask = |what: &str| {
            let mut client = TcpStream::connect(address).expect("connected");
            write!(client, "{what} HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked");
            let mut said = String::new();
            client.read_to_string(&mut said).expect("answered");
            said
        };
        assert!(ask("GET /metrics").starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(ask("GET /metrics").contains("lee_probe_rounds_total{path=\"/x\"} 1\n"));
        assert!(ask("GET /").contains("404"));
        assert!(ask("POST /metrics").contains("405"));
        assert!(metrics.serve(&env, address).is_err(), "taken");
    }

    #[test]
    fn addresses_are_parsed() {
        assert_eq!(parse_address(":9180").map(|a| a.to_string()), Ok("127.0.0.1:9180".into()));
        assert_eq!(parse_address("0.0.0.0:1").map(|a| a.to_string()), Ok("0.0.0.0:1".into()));
        assert!(parse_address("localhost").is_err() && parse_address("99999").is_err());
    }
}
