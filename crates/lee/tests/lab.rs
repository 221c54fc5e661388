//! `lee probe` and `lee lab` on a plain directory: what they say, what they leave (nothing), and
//! bad input.
#![allow(clippy::disallowed_methods)]

use crate::common::{LEE, PATIENCE, Place, as_user, is_root, lee, run, say, until};
use leeward_bucket::server::{Fault, KEY, Server};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A user who owns nothing.
const NOBODY: u32 = 65534;

/// A directory to measure, and the place it is in.
fn target() -> (Place, String) {
    let place = Place::new();
    fs::create_dir(&place.dir).expect("mkdir");
    let path = place.arg().to_string();
    (place, path)
}

#[track_caller]
fn assert_empty(dir: &Path) {
    let left: Vec<_> = fs::read_dir(dir).expect("list").map(|e| e.expect("entry").file_name()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_probe_says_what_it_found_and_its_history_is_drawn() {
    let (place, path) = target();
    let history = place.beside("state/h.jsonl");
    let file = history.to_str().expect("UTF-8");
    let args = ["probe", &path, "--count", "3", "--every", "10ms", "--history", file, "--json"];
    let rounds = lines(&say(&args).good());
    assert_eq!(rounds.len(), 3);
    for round in &rounds {
        assert_eq!(round["path"], *path);
        for op in ["write", "stat", "list", "read", "unlink"] {
            assert!(round["us"][op].as_f64().is_some_and(|us| us > 0.0), "{op}: {round}");
        }
    }
    assert_empty(&place.dir);

    let page = place.beside("p.html");
    let html = page.to_str().expect("UTF-8");
    let found = say(&["probe", "report", "--history", file, "--html", html, "--json"]).json();
    assert_eq!(found["paths"][0]["rounds"], 3);
    assert_eq!(found["paths"][0]["ops"]["write"]["count"], 3);
    let page = fs::read_to_string(page).expect("the page");
    assert_eq!(page.matches("<svg").count(), 10);
    assert!(!page.contains("<script") && !page.contains("src="), "needs nothing but itself");

    let text = say(&["probe", "report", "--history", file, &path]).good();
    assert!(text.contains("64 kB write + fsync") && text.contains("P99"), "{text}");
    say(&["probe", "report", "--history", file, "/other"]).bad(1, &["no rounds", file]);
}

#[test]
fn a_history_has_a_place_by_default() {
    let (place, path) = target();
    let state = place.beside("state");
    let text = run(lee(&["probe", &path, "--count", "1"]).env("XDG_STATE_HOME", &state)).good();
    assert!(text.contains("write") && text.contains("P99"), "{text}");
    assert!(state.join("leeward/probe.jsonl").is_file());
    run(lee(&["probe", "report"]).env("XDG_STATE_HOME", &state)).good();
    run(lee(&["probe", &path, "--count", "1", "--no-history"]).env("XDG_STATE_HOME", place.beside("no")))
        .good();
    assert!(!place.beside("no").exists());
}

/// Starts `lee` with its output in a file.
fn start(place: &Place, args: &[&str]) -> Child {
    let out = fs::File::create(place.beside("out")).expect("create");
    lee(args).stdout(out).stderr(Stdio::null()).spawn().expect("lee starts")
}

#[track_caller]
fn interrupt(child: &mut Child) -> i32 {
    // SAFETY: a plain system call on our own child.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("our child") {
            return status.code().unwrap_or(-1);
        }
        if Instant::now() > end {
            let _ = child.kill();
            panic!("does not end");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn ctrl_c_cleans_up() {
    let (place, path) = target();
    let mut probe = start(&place, &["probe", &path, "--every", "10ms", "--no-history", "--json"]);
    until("two rounds", || fs::read_to_string(place.beside("out")).is_ok_and(|out| out.lines().count() > 1));
    assert_eq!(interrupt(&mut probe), 0);
    assert_empty(&place.dir);

    let args = [
        "lab",
        "neighbours",
        &path,
        "--storms",
        "create",
        "--each",
        "1s",
        "--space",
        "16M",
        "--threads",
        "2",
    ];
    let mut storm = start(&place, &args);
    let storms =
        || fs::read_dir(&place.dir).expect("list").flatten().any(|e| e.path().join("create/t0").exists());
    until("the storm", storms);
    assert_eq!(interrupt(&mut storm), 0);
    assert!(fs::read_to_string(place.beside("out")).expect("out").contains("stopped before its end"));
    assert_empty(&place.dir);

    let mut md = start(&place, &["lab", "md", &path, "--seconds", "60", "--space", "64M", "--json"]);
    let began =
        || fs::read_dir(&place.dir).expect("list").flatten().any(|e| e.path().join("easy0/f9").exists());
    until("a file", began);
    assert_eq!(interrupt(&mut md), 0);
    assert_empty(&place.dir);
}

#[test]
fn a_reader_that_goes_away_ends_the_probe() {
    let (place, path) = target();
    let shell = format!("{LEE} probe {path} --every 10ms --no-history | head -1");
    let said = run(Command::new("timeout").args(["20", "sh", "-c", &shell]));
    assert_eq!((said.code, said.err.as_str(), said.out.lines().count()), (0, "", 1), "{said:?}");
    until("the probe's end", || fs::read_dir(&place.dir).expect("list").count() == 0);
}

#[test]
fn metrics_are_served_on_loopback() {
    let (place, path) = target();
    let mut command = lee(&["probe", &path, "--every", "10ms", "--no-history", "--json", "--metrics", "0"]);
    let mut probe = command
        .stdout(Stdio::null())
        .stderr(fs::File::create(place.beside("err")).expect("create"))
        .spawn()
        .expect("lee");
    let mut address = String::new();
    until("the address", || {
        let said = fs::read_to_string(place.beside("err")).unwrap_or_default();
        let url = said.lines().find_map(|line| line.split("http://").nth(1)).map(str::to_string);
        address = url.unwrap_or_default().trim_end_matches("/metrics").to_string();
        !address.is_empty()
    });
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let ask = |what: &str| {
        use std::io::{Read, Write};
        let mut client = std::net::TcpStream::connect(&address).expect("connected");
        write!(client, "{what} HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked");
        let mut said = String::new();
        client.read_to_string(&mut said).expect("answered");
        said
    };
    let count = format!("lee_probe_latency_seconds_count{{path=\"{path}\",op=\"write\"}}");
    until("a round", || ask("GET /metrics").contains(&count));
    assert!(ask("GET /metrics").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(ask("GET /metrics").contains(&format!("lee_probe_rounds_total{{path=\"{path}\"}} ")));
    assert!(ask("GET /").contains("404"));
    assert!(ask("POST /metrics").contains("405"));
    say(&["probe", &path, "--metrics", &address]).bad(1, &["in use", &address]);
    interrupt(&mut probe);
    assert_empty(&place.dir);
}

#[test]
fn neighbours_have_a_verdict_for_each_storm() {
    let place = Place::new();
    // In memory where there is such a place: how long a flush of a busy disk takes is not what is
    // tested.
    let memory = Path::new("/dev/shm");
    let near = if memory.is_dir() { memory } else { Path::new("/tmp") };
    let dir = tempfile::Builder::new().prefix("lee-test-").tempdir_in(near).expect("a directory");
    let path = dir.path().to_str().expect("UTF-8").to_string();
    let page = place.beside("n.html");
    let mut args = vec!["lab", "neighbours", &path, "--storms", "create,write,rm,snap", "--each", "1s"];
    args.extend(["--threads", "2", "--space", "32M", "--limit", "1e9", "--json", "--report"]);
    args.extend([page.to_str().expect("UTF-8"), "--idle-baseline", &path]);
    let users = ["--storm-user", "61001", "--probe-user", "61002"];
    if is_root() {
        args.extend(users);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
    }
    let found = say(&args).json();
    assert!(found["quiet"]["ops"]["write"]["count"].as_u64().is_some_and(|n| n > 0), "{found}");
    let storms = found["storms"].as_array().expect("a list");
    let verdicts: Vec<_> = storms.iter().map(|s| s["verdict"]["is"].as_str().unwrap_or_default()).collect();
    assert_eq!(verdicts, ["calm", "calm", "calm", "skipped"], "{found}");
    for storm in &storms[..3] {
        assert!(
            storm["did"]["ops"].as_u64().is_some_and(|n| n > 0) && storm["did"]["errors"] == 0,
            "{storm}"
        );
        assert!(storm["elsewhere"]["ops"]["write"]["p99_us"].as_f64().is_some(), "{storm}");
    }
    assert_eq!(storms[3]["verdict"]["why"], "there is no .snap here");
    let page = fs::read_to_string(page).expect("the page");
    assert_eq!(page.matches("<svg").count(), 5 + 3 * 5, "over time, and a distribution for each storm");
    assert_empty(dir.path());
}

#[test]
fn phases_have_rates() {
    let (place, path) = target();
    for (suite, first, count) in [("md", "mdtest-easy-write", 8), ("io", "ior-easy-write", 4)] {
        let args = ["lab", suite, &path, "--seconds", "1", "--space", "32M", "--threads", "2", "--json"];
        let found = say(&args).json();
        let phases = found["phases"].as_array().expect("a list");
        assert_eq!((phases.len(), phases[0]["name"].as_str()), (count, Some(first)));
        assert!(
            phases.iter().all(|p| p["errors"] == 0 && p["rate"].as_f64().is_some_and(|r| r > 0.0)),
            "{found}"
        );
        assert!(found["mean"].as_f64().is_some_and(|mean| mean > 0.0), "{found}");
        assert_empty(&place.dir);
    }
    let text = say(&["lab", "io", &path, "--seconds", "1", "--space", "16M", "--threads", "1"]).good();
    assert!(text.contains("GiB/s") && text.contains("geometric mean"), "{text}");
}

#[test]
fn help_says_what_is_measured() {
    for (command, words) in [
        (&["probe"][..], "Errors are results"),
        (&["probe", "report"], "distribution"),
        (&["lab"], "also after Ctrl-C"),
        (&["lab", "neighbours"], "A storm is calm when"),
        (&["lab", "md"], "3,901 bytes"),
        (&["lab", "io"], "47,008 bytes"),
    ] {
        let help = say(&[command, &["--help"]].concat()).good();
        assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{help}");
    }
    let storm = say(&["lab", "--help"]).good().lines().any(|line| line.trim_start().starts_with("storm"));
    assert!(!storm, "it is between processes");
}

#[test]
fn bad_input_is_explained() {
    let (place, path) = target();
    let file = place.beside("file");
    fs::write(&file, "").expect("write");
    let (file, none) = (file.to_str().expect("UTF-8"), "/no/such/directory");
    for command in [&["probe"][..], &["lab", "neighbours"], &["lab", "md"], &["lab", "io"]] {
        let with = |path| [command, &[path]].concat();
        say(&with(none)).bad(1, &[none, "no such directory", "name a directory"]);
        say(&with(file)).bad(1, &[file, "not a directory"]);
        run(&mut lee(command)).bad(2, &["<PATH"]);
    }
    for command in ["neighbours", "md", "io"] {
        say(&["lab", command, &path, "--space", "999T"]).bad(1, &[&path, "give less with --space"]);
        say(&["lab", command, &path, "--space", "none"]).bad(2, &["no size here"]);
        say(&["lab", command, &path, "--threads", "0"]).bad(2, &["--threads"]);
    }
    say(&["lab", "md", &path, "--snapshots"]).bad(1, &["no .snap here"]);
    say(&["lab", "neighbours", &path, "--storms", "hail"]).bad(2, &["`hail` is no storm", "create"]);
    say(&["lab", "neighbours", &path, "--limit", "0.5"]).bad(2, &["is no ratio"]);
    say(&["lab", "neighbours", &path, "--storm-user", "no-such-user"]).bad(1, &["no user named"]);
    say(&["lab", "storm", "{}"]).bad(2, &["lab neighbours"]);
    say(&["probe", &path, "--every", "5"]).bad(2, &["is no duration", "50ms"]);
    say(&["probe", &path, "--metrics", "x"]).bad(2, &["is no address"]);
    say(&["probe", &path, "--history", &path]).bad(1, &["cannot keep the history", "--history"]);
    say(&["probe", "report", "--history", none]).bad(1, &[none, "cannot read the history", "lee probe"]);
    assert_empty(&place.dir);
}

#[test]
fn rights_are_explained() {
    if !is_root() {
        return;
    }
    let (place, path) = target();
    fs::set_permissions(place.beside(""), fs::Permissions::from_mode(0o755)).expect("chmod");
    let copy = place.beside("lee");
    // By another process, as a descriptor that is open for writing would be inherited (ETXTBSY).
    assert!(Command::new("cp").arg(LEE).arg(&copy).status().expect("cp").success());
    let say = |args: &[&str]| run(as_user(Command::new(&copy).args(args), NOBODY));
    for command in [&["probe"][..], &["lab", "neighbours"], &["lab", "md"], &["lab", "io"]] {
        let args = if command[0] == "probe" { vec!["--no-history"] } else { vec![] };
        say(&[command, &[path.as_str()], &args].concat()).bad(1, &[&path, "permission denied", "may write"]);
    }
    say(&["lab", "neighbours", &path, "--storm-user", "1"]).bad(1, &["only root", "as root"]);
    assert_empty(&place.dir);
}

/// `lee lab s3` with the keys that the server in memory lets in.
fn s3_lab(server: &Server, args: &[&str]) -> Command {
    let url = format!("{}/bucket/some/where", server.endpoint());
    let mut command = lee(&["lab", "s3", &url]);
    command
        .args(args)
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env_remove("AWS_PROFILE");
    command
}

#[test]
fn load_on_a_bucket_is_made_by_several_processes_and_leaves_nothing() {
    let (server, place) = (Server::start("bucket"), Place::new());
    let page = place.beside("s3.html");
    let html = page.to_str().expect("UTF-8");
    let steps =
        ["--connections", "1,6", "--requests", "200", "--each", "10m", "--processes", "3", "--report", html];
    let found =
        run(&mut s3_lab(&server, &[&steps[..], &["--mix", "put=1,get=1,list=1", "--json"]].concat())).json();
    assert_eq!((&found["processes"], &found["holds"]), (&3.into(), &6.into()));
    for step in found["steps"].as_array().expect("steps") {
        assert_eq!((&step["succeeded"], &step["failed"]), (&200.into(), &0.into()), "{step}");
        assert!(step["ops"]["put"]["p999_us"].as_f64().is_some_and(|us| us > 0.0), "{step}");
    }
    assert_eq!(server.names(), Vec::<String>::new());
    assert!(fs::read_to_string(page).expect("the page").contains("holds 6 connections"));

    server.fail("PUT", "/00000011", Fault::Busy, 1);
    let puts = ["--connections", "2", "--requests", "50", "--each", "10m", "--mix", "put"];
    let text = run(&mut s3_lab(&server, &puts)).good();
    assert!(text.contains("2 connections: 1 x 503 (SlowDown)") && text.contains("does not hold 2"), "{text}");
    assert_eq!(server.names(), Vec::<String>::new());
}

#[test]
fn load_on_a_bucket_ends_with_ctrl_c() {
    let (server, place) = (Server::start("bucket"), Place::new());
    let out = fs::File::create(place.beside("out")).expect("create");
    let mut lab = s3_lab(&server, &["--connections", "4", "--each", "10m", "--mix", "put"])
        .stdout(out)
        .spawn()
        .expect("lee");
    until("some objects", || server.names().len() > 20);
    assert_eq!(interrupt(&mut lab), 0);
    assert!(fs::read_to_string(place.beside("out")).expect("out").contains("stopped before its end"));
    assert_eq!(server.names(), Vec::<String>::new());
}

#[test]
fn load_that_cannot_be_made_is_explained() {
    let server = Server::start("bucket");
    run(s3_lab(&server, &[]).env("AWS_ACCESS_KEY_ID", "other"))
        .bad(1, &["403 (InvalidAccessKeyId)", "check the keys"]);
    run(s3_lab(&server, &[]).env_remove("AWS_ACCESS_KEY_ID").env("HOME", "/nowhere"))
        .bad(1, &["no credentials", "AWS_PROFILE"]);
    run(&mut s3_lab(&server, &["--from", "9", "--to", "3"])).bad(2, &["--from is above --to"]);
    run(&mut s3_lab(&server, &["--mix", "post"])).bad(2, &["is no mix", "put=1,get=4"]);
    let none = format!("{}/other", server.endpoint());
    let mut command = lee(&["lab", "s3", &none]);
    run(command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", "s"))
        .bad(1, &["404", "--make-bucket"]);
}
