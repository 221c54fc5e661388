//! Load on servers that behave and that do not: what is counted, what is found, what is left.
#![allow(clippy::disallowed_methods)]

#[path = "s3/server.rs"]
mod server;

use leeward_env::Env;
use leeward_lab::Refused;
use leeward_lab::s3::crew::Hand;
use leeward_lab::s3::run::{self, Loads, Measured, Plan, Report};
use leeward_lab::s3::sign::Keys;
use leeward_lab::s3::target::Target;
use leeward_lab::s3::{Op, page, worker};
use leeward_lab::stop::Stop;
use server::{Request, Server, Way};
use std::io;
use std::time::Duration;

/// A thread stands for a process.
fn launch() -> io::Result<Hand> {
    let (worker_input, input) = io::pipe()?;
    let (output, worker_output) = io::pipe()?;
    std::thread::spawn(move || worker::serve(&Env::real(), worker_input, worker_output));
    Ok(Hand { input: Box::new(input), output: Box::new(output), child: None })
}

fn plan(port: u16, loads: Loads, mix: &[(Op, u32)], requests: u64) -> Plan {
    let target = Target {
        tls: false,
        host: "127.0.0.1".into(),
        port,
        bucket: "bucket".into(),
        prefix: "some/where".into(),
        region: "us-east-1".into(),
        keys: Keys { id: "id".into(), secret: "secret".into(), token: None },
        authorities: None,
    };
    Plan {
        target,
        loads,
        mix: mix.to_vec(),
        sizes: vec![(4096, 3), (100_000, 1)],
        // Steps end by requests: how busy the machine is does not matter.
        each: Duration::from_secs(600),
        requests: Some(requests),
        pause: Duration::ZERO,
        patience: Duration::from_secs(60),
        errors_max: 0.0001,
        p99_max: None,
        idle: 0,
        fill: Some(50),
        objects: 200,
        space_bytes: 64 << 20,
        processes: 2,
        sources: Vec::new(),
        server: vec![std::process::id()],
        make_bucket: false,
    }
}

fn run(plan: &Plan, stop: &Stop) -> Result<Report, Refused> {
    run::run(&Env::real(), plan, stop, &launch, &mut |_| {})
}

#[track_caller]
fn measured(plan: &Plan) -> Report {
    run(plan, &Stop::default()).expect("measured")
}

const ALL: [(Op, u32); 4] = [(Op::Put, 2), (Op::Get, 2), (Op::Head, 1), (Op::List, 1)];

#[test]
fn a_server_that_behaves_has_no_failures_and_nothing_left() {
    let server = Server::start(|_| Way::Right);
    let plan = Plan { idle: 10, ..plan(server.port, Loads::Steps(vec![1, 9]), &ALL, 400) };
    let report = measured(&plan);
    for step in &report.steps {
        assert_eq!(
            (step.succeeded, step.failed, step.never_served, step.holds),
            (400, 0, 0, true),
            "{step:?}"
        );
        assert_eq!(step.ops.keys().copied().collect::<Vec<_>>(), Op::MIX, "all of the mix");
        assert_eq!(step.ops.values().map(|op| op.latency.count).sum::<u64>(), 400);
        assert!(step.ops[&Op::Get].mib_s > 0.0 && step.ops[&Op::Put].rate > 0.0);
        assert!(step.server_rss_bytes.is_some_and(|bytes| bytes > 0));
    }
    assert_eq!((report.holds, report.fails, report.processes), (Some(9), None, 2));
    assert_eq!(report.fill.map(|fill| fill.succeeded), Some(50));
    let idle = report.idle.expect("idle connections");
    assert_eq!((idle.open, idle.open_in_the_end), (10, 10));
    assert_eq!((report.left, server.names()), (None, Vec::new()));
}

#[test]
fn what_is_stored_is_what_was_to_be() {
    let server = Server::start(|request| match request.method {
        // Nothing is removed, so that one can look at it.
        "DELETE" => Way::Says(403),
        _ => Way::Right,
    });
    let one = Plan {
        fill: Some(0),
        processes: 1,
        ..plan(server.port, Loads::Steps(vec![3]), &[(Op::Put, 1)], 500)
    };
    let report = measured(&one);
    let left = report.left.expect("it says what is left");
    assert!(left.contains("some/where/lee-lab-") && left.contains("cannot be removed"), "{left}");
    let names = server.names();
    assert_eq!(names.len(), 200, "no more than --objects");
    assert!(names.iter().all(|name| name.starts_with("some/where/lee-lab-") && name.contains("/w0/")));
}

/// Every third request for an object meets this, after the first ones that try the endpoint.
fn sometimes(way: Way, method: &'static str) -> Server {
    Server::start(move |request: &Request<'_>| match request {
        Request { n: 0..30, .. } | Request { object: false, .. } => Way::Right,
        request if request.method == method && request.n.is_multiple_of(3) => way,
        _ => Way::Right,
    })
}

/// One step of puts or gets, of which some meet this.
fn meeting(way: Way, op: Op) -> Measured {
    let server = sometimes(way, if op == Op::Put { "PUT" } else { "GET" });
    // Long enough for all that does not hang.
    let (patience, requests) = if way == Way::Hangs { (3, 20) } else { (60, 60) };
    let patience = Duration::from_secs(patience);
    let plan =
        Plan { fill: Some(20), patience, ..plan(server.port, Loads::Steps(vec![4]), &[(op, 1)], requests) };
    let mut report = measured(&plan);
    assert_eq!(report.left, None);
    assert_eq!(server.names(), Vec::<String>::new());
    report.steps.pop().expect("a step")
}

#[test]
fn failures_have_classes() {
    for (way, op, class, text) in [
        (Way::Resets, Op::Put, "reset", ""),
        (Way::Closes, Op::Put, "closed", "before an answer"),
        (Way::ClosesWithin, Op::Get, "closed", "within an answer"),
        (Way::Says(503), Op::Put, "503", "SlowDown"),
        (Way::Says(500), Op::Get, "500", "SlowDown"),
        (Way::Says(403), Op::Get, "403", "SlowDown"),
        (Way::SaysEarly(503), Op::Put, "503", "SlowDown"),
        (Way::WrongByte, Op::Get, "wrong bytes", "not what was put"),
        (Way::Half, Op::Get, "wrong bytes", "bytes of"),
        (Way::Garbage, Op::Put, "bad answer", "not HTTP"),
        (Way::Hangs, Op::Get, "time-out", "no answer within 3000 ms"),
    ] {
        let step = meeting(way, op);
        let (count, said) = step.errors.get(class).cloned().unwrap_or_default();
        assert!(count > 0 && said.contains(text), "{way:?}: {:?}", step.errors);
        assert!(!step.holds && step.succeeded > 0, "{way:?}");
        if way != Way::Hangs {
            // A busy machine may add time-outs to those that hang, and only there.
            assert_eq!((step.failed, step.errors.len()), (count, 1), "{way:?}: {:?}", step.errors);
            assert_eq!(step.succeeded + step.failed, 60, "{way:?}");
        }
    }
}

#[test]
fn a_server_that_dies_is_said_to_refuse() {
    let server = Server::start(|request| if request.n == 60 { Way::Dies } else { Way::Right });
    let report = measured(&plan(server.port, Loads::Steps(vec![4]), &[(Op::Get, 1)], 100));
    let step = &report.steps[0];
    assert!(step.errors.contains_key("refused"), "{:?}", step.errors);
    assert!(step.succeeded > 0 && !step.holds && report.holds.is_none());
    let left = report.left.expect("it says what is left");
    assert!(left.contains("some/where/lee-lab-") && left.contains("refused"), "{left}");
}

#[test]
fn who_is_never_served_is_counted() {
    let server = Server::start(|request| match request {
        Request { n: 0..=2, .. } | Request { object: false, .. } | Request { method: "DELETE", .. } => {
            Way::Right
        }
        _ => Way::Says(503),
    });
    let plan = Plan { fill: Some(0), ..plan(server.port, Loads::Steps(vec![8]), &[(Op::Put, 1)], 64) };
    let step = measured(&plan).steps.remove(0);
    assert_eq!((step.succeeded, step.failed, step.error_rate, step.holds), (0, 64, 1.0, false));
    assert!((1..=8).contains(&step.never_served), "{step:?}");
}

#[test]
fn the_highest_load_that_holds_is_found() {
    let server = Server::start(
        |request| if request.object && request.open > 24 { Way::Says(503) } else { Way::Right },
    );
    let plan = Plan { fill: Some(2), ..plan(server.port, Loads::Search(4, 64), &[(Op::Put, 1)], 200) };
    let report = measured(&plan);
    let tried: Vec<u64> = report.steps.iter().map(|step| step.connections).collect();
    assert_eq!((report.holds, report.fails), (Some(24), Some(25)), "{tried:?}");
    assert_eq!(tried, [4, 8, 16, 32, 24, 28, 26, 25]);
    let html = page::page(&report, |_| "then".into());
    assert!(html.contains("holds 24 connections, not 25") && html.matches("<svg").count() == 5, "{html}");
    assert!(!html.contains("<script") && !html.contains("src="), "needs nothing but itself");
}

#[test]
fn too_slow_does_not_hold_either() {
    let server = Server::start(|request| match request.method {
        "PUT" => Way::Slow(Duration::from_millis(30)),
        _ => Way::Right,
    });
    let steps = plan(server.port, Loads::Steps(vec![2]), &[(Op::Put, 1)], 20);
    let plan = Plan { fill: Some(0), p99_max: Some(Duration::from_millis(20)), ..steps };
    let step = measured(&plan).steps.remove(0);
    assert!(step.failed == 0 && !step.holds && step.ops[&Op::Put].latency.p50_us >= 30_000.0, "{step:?}");
}

#[test]
fn a_stop_cleans_up() {
    let server = Server::start(|_| Way::Right);
    let endless = plan(server.port, Loads::Steps(vec![4]), &ALL, u64::MAX);
    let stop = Stop::default();
    let asked = stop.clone();
    let report = run::run(&Env::real(), &endless, &stop, &launch, &mut |progress| {
        if progress.phase.starts_with("4 connections") && progress.phase.contains("answers") {
            asked.ask();
        }
    });
    let report = report.expect("a report");
    assert!(report.stopped && report.steps.is_empty() && report.left.is_none(), "{report:?}");
    assert_eq!(server.names(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_measured_is_said_at_once() {
    let why = |server: &Server, change: &dyn Fn(&mut Plan)| {
        let mut plan = plan(server.port, Loads::Steps(vec![1]), &ALL, 10);
        change(&mut plan);
        run(&plan, &Stop::default()).expect_err("not measured").0
    };
    let server = Server::start(|request| if request.method == "GET" { Way::Says(403) } else { Way::Right });
    let said = why(&server, &|_| {});
    assert!(said.contains("the first get failed: 403 (SlowDown): check the keys"), "{said}");
    assert_eq!(server.names(), Vec::<String>::new(), "not even then is anything left");
    let said = why(&server, &|plan| plan.target.tls = true);
    assert!(said.contains("TLS") && said.contains("is it https there"), "{said}");
    let said = why(&server, &|plan| plan.sizes = vec![(1 << 40, 1)]);
    assert!(said.contains("do not fit"), "{said}");
    let said = why(&server, &|plan| plan.target.port = 1);
    assert!(said.contains("refused") && said.contains("is the endpoint there?"), "{said}");
}

#[test]
fn a_process_that_ends_is_no_hang() {
    let server = Server::start(|_| Way::Right);
    let plan = plan(server.port, Loads::Steps(vec![1]), &ALL, 10);
    let gone = || Ok(Hand { input: Box::new(io::sink()), output: Box::new(io::empty()), child: None });
    let why = run::run(&Env::real(), &plan, &Stop::default(), &gone, &mut |_| {}).expect_err("no load").0;
    assert!(why.contains("ended before its time"), "{why}");
}
