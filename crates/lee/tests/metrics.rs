//! Metrics of a cell that is really served: every line is parsed, counters are compared between
//! scrapes, and mistakes are explained. Needs root and /dev/fuse where it mounts; says so and skips
//! elsewhere.
#![allow(clippy::disallowed_methods)]

use crate::common::machines::{Served, free_port};
use crate::common::{Place, can_mount, lee, run, say, until};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Of what costs nothing while nothing goes on.
const SCRAPE_MAX: Duration = Duration::from_millis(5);

/// One scrape: samples by name and labels, types by name.
struct Scraped {
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
    types: BTreeMap<String, String>,
}

impl Scraped {
    fn of(place: &Place) -> Scraped {
        let said = get(&address(place), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = said.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert!(body.ends_with('\n'));
        let mut scraped = Scraped { samples: BTreeMap::new(), types: BTreeMap::new() };
        let mut helped = String::new();
        body.lines().for_each(|line| scraped.line(line, &mut helped));
        scraped
    }

    fn line(&mut self, line: &str, helped: &mut String) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            *helped = help.split_once(' ').expect("a text").0.into();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert_eq!(name, helped, "TYPE follows HELP");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(self.types.insert(name.into(), kind.into()).is_none(), "{line}: twice");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = parse_series(series);
            assert!(self.base(&name) == *helped, "{line}: below {helped}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}: no number"));
            assert!(value.is_finite(), "{line}");
            assert!(self.samples.insert((name, labels), value).is_none(), "{line}: twice");
        }
    }

    /// The metric that a sample belongs to.
    fn base(&self, name: &str) -> String {
        let stems = ["_bucket", "_sum", "_count"].iter().filter_map(|s| name.strip_suffix(s));
        let of_histogram = stems.into_iter().find(|s| self.types.get(*s).is_some_and(|t| t == "histogram"));
        of_histogram.unwrap_or(name).into()
    }

    /// The sum of what has these labels.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has =
            |of: &BTreeMap<String, String>| labels.iter().all(|(k, v)| of.get(*k).is_some_and(|x| x == v));
        self.samples.iter().filter(|((n, of), _)| n == name && has(of)).map(|(_, value)| value).sum()
    }

    /// Buckets grow with their bounds, and the last has all.
    fn check_histograms(&self) {
        let mut seen = 0;
        for ((name, labels), count) in self.samples.iter().filter(|((n, _), _)| n.ends_with("_count")) {
            let stem = name.trim_end_matches("_count");
            let mut buckets: Vec<(f64, f64)> = Vec::new();
            for ((n, of), value) in &self.samples {
                let mut rest = of.clone();
                if *n == format!("{stem}_bucket") && rest.remove("le").is_some() && rest == *labels {
                    buckets.push((of["le"].parse().expect("a bound"), *value));
                }
            }
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.len() > 20, "{name} {labels:?}");
            assert!(
                buckets.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1),
                "{name} {labels:?} {buckets:?}"
            );
            assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{name} {labels:?}");
            assert!(self.samples.contains_key(&(format!("{stem}_sum"), labels.clone())), "{name} {labels:?}");
            seen += 1;
        }
        assert!(seen > 10, "{seen} histograms");
    }
}

fn parse_series(series: &str) -> (String, BTreeMap<String, String>) {
    let Some((name, rest)) = series.split_once('{') else { return (series.into(), BTreeMap::new()) };
    let mut rest = rest.strip_suffix('}').unwrap_or_else(|| panic!("{series}: no end"));
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (label, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{series}: no value"));
        let mut chars = value.char_indices();
        let mut text = String::new();
        let end = loop {
            match chars.next().unwrap_or_else(|| panic!("{series}: no quote")) {
                (at, '"') => break at,
                (_, '\\') => text.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, c @ ('"' | '\\'))) => c,
                    other => panic!("{series}: {other:?}"),
                }),
                (_, c) => text.push(c),
            }
        };
        assert!(labels.insert(label.into(), text).is_none(), "{series}: {label} twice");
        rest = value[end + 1..].trim_start_matches(',');
    }
    (name.into(), labels)
}

/// Where `lee status` says that metrics are.
fn address(place: &Place) -> String {
    let status = say(&["status", place.arg(), "--json"]).json();
    let url = status["metrics"][0].as_str().expect("an address").to_string();
    assert!(say(&["status", place.arg()]).good().contains(&url));
    url.trim_start_matches("http://").trim_end_matches("/metrics").into()
}

fn get(address: &str, request: &str) -> String {
    let mut client = TcpStream::connect(address).expect("connected");
    client.write_all(request.as_bytes()).expect("asked");
    let mut said = String::new();
    client.read_to_string(&mut said).expect("answered");
    said
}

/// What a user does in a minute: names, data (too much for the journal), fsync, a snapshot, an
/// error.
fn work(place: &Place, round: u32) {
    let dir = place.mnt().join("x \"y\"");
    for n in 0..20 {
        let path = dir.join(format!("{round}-{n}"));
        let mut file = File::create(&path).expect("made");
        file.write_all(&[7; 400_000]).expect("written");
        file.sync_all().expect("synced");
        assert_eq!(fs::read(&path).expect("read").len(), 400_000);
    }
    fs::create_dir(dir.join(".snap").join(format!("s{round}"))).expect("a snapshot");
    fs::remove_file(dir.join(format!("{round}-0"))).expect("removed");
    assert!(fs::read(dir.join("missing")).is_err());
}

#[test]
fn a_served_cell_is_scraped() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    // one that nobody else gets when it ends
    let port = free_port().to_string();
    let said = say(&["up", place.arg(), "--background", "--metrics", &port]).good();
    assert!(said.contains("metrics are at http://127.0.0.1:"), "{said}");
    place.ask(&["volume", "create", "x \"y\"", "--at", "/x \"y\""]).good();
    work(&place, 1);
    let first = Scraped::of(&place);
    first.check_histograms();
    work(&place, 2);
    let second = Scraped::of(&place);
    second.check_histograms();

    for ((name, labels), before) in &first.samples {
        if first.types[&first.base(name)] != "gauge" {
            let now = second.samples.get(&(name.clone(), labels.clone()));
            assert!(now.is_some_and(|now| now >= before), "{name} {labels:?}: {before}, then {now:?}");
        }
    }
    let of_volume = [("volume", "x \"y\""), ("door", "mount")];
    for scraped in [&first, &second] {
        let fsyncs = scraped
            .sum("leeward_operation_seconds_count", &[("operation", "fsync"), ("class", "interactive")]);
        assert!(fsyncs >= 20.0, "{fsyncs}");
        assert!(scraped.sum("leeward_wait_seconds_total", &[("cause", "commit"), ("user", "0")]) > 0.0);
        assert!(scraped.sum("leeward_written_bytes_total", &of_volume) >= 8e6);
        let by_volume = scraped.sum("leeward_volume_operation_seconds_count", &[]);
        assert!(by_volume >= scraped.sum("leeward_volume_operation_seconds_count", &of_volume));
        assert!(scraped.sum("leeward_commit_seconds_count", &[]) >= 20.0);
        assert!(scraped.sum("leeward_committed_records_total", &[]) > 20.0);
        assert!(scraped.sum("leeward_store_seconds_count", &[("call", "put")]) > 0.0);
        assert_eq!(scraped.sum("leeward_volumes", &[]), 2.0);
        assert!(scraped.sum("leeward_space_bytes", &[]) > scraped.sum("leeward_space_available_bytes", &[]));
        for zero in [
            "leeward_broken",
            "leeward_store_errors_total",
            "leeward_damaged_reads_total",
            "leeward_commit_errors_total",
        ] {
            assert_eq!(scraped.sum(zero, &[]), 0.0, "{zero}");
        }
    }
    assert_eq!((first.sum("leeward_snapshots", &[]), second.sum("leeward_snapshots", &[])), (1.0, 2.0));
    assert!(
        second.sum("leeward_operation_errors_total", &of_volume)
            > first.sum("leeward_operation_errors_total", &of_volume)
    );

    // two files were removed that snapshots hold; of 38 that are left there may be 40
    assert_eq!(second.sum("leeward_quotas", &[]), 0.0);
    place.ask(&["quota", "set", "x \"y\"", "--files", "40"]).good();
    until("what is removed is counted for its snapshots", || {
        Scraped::of(&place).sum("leeward_snapshot_held_bytes", &[]) >= 800_000.0
    });
    let third = Scraped::of(&place);
    let quotas = ["leeward_quotas", "leeward_quotas_nearly_full"].map(|name| third.sum(name, &[]));
    assert_eq!(quotas, [1.0, 1.0]);

    let address = address(&place);
    let scrape = || {
        let begun = Instant::now();
        get(&address, "GET /metrics HTTP/1.1\r\n\r\n");
        begun.elapsed()
    };
    // the machine may be busy: what it can take is what it takes once
    let mut fastest = Duration::MAX;
    for _ in 0..500 {
        fastest = fastest.min(scrape());
        if fastest < SCRAPE_MAX {
            break;
        }
    }
    eprintln!("an idle scrape takes {fastest:?}");
    assert!(fastest < SCRAPE_MAX, "an idle scrape takes {fastest:?}");

    say(&["down", place.arg()]).good();
    assert!(TcpStream::connect(&address).is_err(), "it ends with the process");
}

#[test]
fn machines_have_figures_of_their_own() {
    if !can_mount() {
        return;
    }
    let served = Served::with(&["--metrics", "0"]);
    let (a, b) = (served.machine("a", &[], &[]), served.machine("b", &[], &[]));
    fs::write(a.path("file"), [1; 300_000]).expect("write");
    assert_eq!(fs::read(b.path("file")).expect("read").len(), 300_000);
    let scraped = Scraped::of(&served.place);
    let of = |name: &str, host: &str| scraped.sum(&format!("leeward_host_{name}"), &[("host", host)]);
    assert_eq!(of("written_bytes_total", "a"), 300_000.0);
    // some of it may be asked for twice: ahead, and by the kernel
    let read = of("read_bytes_total", "b");
    assert!((300_000.0..600_000.0).contains(&read), "{read}");
    for host in ["a", "b"] {
        assert!(of("requests_total", host) > 2.0 && of("operation_seconds_total", host) > 0.0);
        assert_eq!(of("sessions", host), 1.0);
    }
    assert_eq!([of("requests_total", "other"), of("sessions", "other")], [0.0, 0.0]);
}

#[test]
fn the_settings_name_addresses_and_the_command_line_wins() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::create_dir(&place.dir).expect("a directory");
    fs::write(place.dir.join("leeward.toml"), "metrics = [\"0\", \"127.0.0.1:0\"]\n").expect("settings");
    place.up();
    let count = || say(&["status", place.arg(), "--json"]).json()["metrics"].as_array().map(Vec::len);
    assert_eq!(count(), Some(2));
    assert!(get(&address(&place), "GET / HTTP/1.1\r\n\r\n").contains("href=\"/metrics\""));
    say(&["down", place.arg()]).good();
    say(&["up", place.arg(), "--background", "--metrics", ":0"]).good();
    assert_eq!(count(), Some(1));
    say(&["down", place.arg()]).good();
    fs::write(place.dir.join("leeward.toml"), "metrics = [\"here\"]\n").expect("settings");
    say(&["up", place.arg(), "--background"])
        .bad(1, &["leeward.toml: line 1: metrics: `here` is no address"]);
}

#[test]
fn addresses_that_cannot_be_had_are_explained() {
    let place = Place::new();
    for wrong in ["here", "127.0.0.1", "1.2.3.4:99999", ""] {
        say(&["up", place.arg(), "--metrics", wrong]).bad(2, &["--metrics", "is no address", "9547"]);
    }
    assert!(!place.dir.exists(), "a mistake makes no directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for background in [&[][..], &["--background"]] {
        let args = [&["up", place.arg(), "--metrics", &address], background].concat();
        run(&mut lee(&args)).bad(1, &[&address, "is in use by another program", "choose another port"]);
    }
    until("nothing serves", || say(&["status", place.arg()]).code == 3 || !place.dir.join("cell").exists());
    run(&mut lee(&["up", place.arg(), "--metrics", "203.0.113.7:9547"]))
        .bad(1, &["is no address of this machine"]);
}
