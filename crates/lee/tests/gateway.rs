//! Doors of a cell on other machines: `lee gateway`, `lee host add --gateway`. Each machine is a
//! directory with keys of its own; the client is curl.
#![allow(clippy::disallowed_methods)]

use crate::common;
use crate::common::machines::{Served, free_port};
use crate::common::{PATIENCE, Place, Said, lee, run, signal, until, yesterday};
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const UID: u32 = 70_001;

/// Whether these tests can run here; says so when not.
fn can_run() -> bool {
    let curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status();
    let able = common::can_mount() && curl.is_ok_and(|status| status.success());
    if !able {
        eprintln!("skipped: this needs root, /dev/fuse and curl");
    }
    able
}

/// A served cell with a user, a key and a bucket.
struct Cell {
    served: Served,
    id: String,
    secret: String,
}

impl Cell {
    fn new() -> Cell {
        let served = Served::new();
        served.ask(&["user", "create", "robot", "--uid", &UID.to_string()]).good();
        served.ask(&["volume", "create", "proj", "--at", "/proj", "--owner", &UID.to_string()]).good();
        let key = served.ask(&["key", "create", "robot", "--json"]).json();
        let text = |name: &str| key[name].as_str().expect("a text").to_owned();
        Cell { id: text("access_key_id"), secret: text("secret_access_key"), served }
    }

    fn gateway(&self, name: &str) -> Gateway {
        self.gateway_with(name, &[])
    }

    fn gateway_with(&self, name: &str, options: &[&str]) -> Gateway {
        let token = self.served.token(name, &["--gateway"]);
        let gateway = Gateway::new(self, name);
        gateway.start(&[&["--token", &token], options].concat()).good();
        gateway
    }

    /// A file beside the cell with this content.
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.served.place.beside(name);
        fs::write(&path, content).expect("written");
        path
    }
}

/// A machine that runs doors of the cell.
struct Gateway {
    keys: PathBuf,
    server: String,
    doors: Doors,
}

/// Its doors, for the holder of a key.
struct Doors {
    s3: u16,
    http: u16,
    id: String,
    secret: String,
}

impl Deref for Gateway {
    type Target = Doors;

    fn deref(&self) -> &Doors {
        &self.doors
    }
}

/// What a door said.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next_back()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The text of an element of XML.
    fn element(&self, name: &str) -> String {
        let text = self.text();
        let found = text.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once('<'));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).0.to_owned()
    }
}

impl Gateway {
    fn new(cell: &Cell, name: &str) -> Gateway {
        Gateway {
            keys: cell.served.place.beside(&format!("keys-{name}")),
            server: cell.served.server(),
            doors: Doors {
                s3: free_port(),
                http: free_port(),
                id: cell.id.clone(),
                secret: cell.secret.clone(),
            },
        }
    }

    fn start(&self, options: &[&str]) -> Said {
        let (s3, http) = (self.s3.to_string(), self.http.to_string());
        self.say(&[&["--s3", &s3, "--http", &http, "--background", "--json"], options].concat())
    }

    fn say(&self, options: &[&str]) -> Said {
        let mut command = lee(&[&["gateway", &self.server], options].concat());
        run(command.env("LEE_HOST_DIR", &self.keys).env("LEE_STATE_DIR", self.keys.with_extension("state")))
    }

    /// The process of the gateway, if it answers.
    fn pid(&self) -> Option<i32> {
        let said: serde_json::Value = serde_json::from_str(&self.say(&["--status", "--json"]).out).ok()?;
        i32::try_from(said["pid"].as_i64()?).ok()
    }
}

impl Doors {
    fn curl(&self) -> Command {
        let mut command = Command::new("curl");
        command.args(["-sS", "-g", "--max-time", "60", "-D", "/dev/stderr"]);
        command.args(["-u", &format!("{}:{}", self.id, self.secret)]);
        command
    }

    /// A request at the S3 door, signed.
    fn s3_command(&self, at: &str, more: &[&str]) -> Command {
        let mut command = self.curl();
        command.args(["--aws-sigv4", "aws:amz:us-east-1:s3", "-H", "x-amz-content-sha256:UNSIGNED-PAYLOAD"]);
        command.args(more).arg(format!("http://127.0.0.1:{}/proj/{at}", self.s3));
        command
    }

    fn s3(&self, at: &str, more: &[&str]) -> Answer {
        answer(&mut self.s3_command(at, more))
    }

    fn put(&self, at: &str, file: &Path) -> Answer {
        self.s3(at, &["-T", file.to_str().expect("UTF-8")])
    }

    fn http(&self, at: &str, more: &[&str]) -> Answer {
        answer(self.curl().args(more).arg(format!("http://127.0.0.1:{}/{at}", self.http)))
    }
}

/// Runs curl. Status 0: it had no answer.
fn answer(command: &mut Command) -> Answer {
    let out = command.stdin(Stdio::null()).output().expect("curl runs");
    let head = String::from_utf8_lossy(&out.stderr).into_owned();
    let status = head.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 ")).next_back();
    let status = status.and_then(|line| line.get(..3)?.parse().ok()).unwrap_or(0);
    Answer { status, head, body: out.stdout }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.say(&["--stop"]);
    }
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(next).collect()
}

#[test]
fn gateways_mounts_and_the_server_show_one_file_system() {
    if !can_run() {
        return;
    }
    let cell = Cell::new();
    let (a, b) = (cell.gateway("a"), cell.gateway("b"));
    let machine = cell.served.machine("m", &[], &[]);
    // machines that keep copies of the root are no hindrance
    assert!(fs::read_dir(&machine.at).expect("read").count() == 1 && !machine.path("late").exists());
    cell.served.ask(&["volume", "create", "late", "--at", "/late"]).good();
    assert!(machine.path("late").exists() && cell.served.ask(&["volume", "list"]).good().contains("late"));
    for (turn, len) in [0, 5, 100_000, 3_000_000].into_iter().enumerate() {
        let content = noise(len, turn as u64);
        let file = cell.file("content", &content);
        let put = a.put("dir/object", &file);
        assert_eq!(put.status, 200, "{put:?}");
        let got = b.s3("dir/object", &[]);
        assert_eq!((got.status, got.header("etag")), (200, put.header("etag")), "{}", got.head);
        assert!(got.body == content && b.http("proj/dir/object", &[]).body == content, "{len} bytes");
        assert!(fs::read(machine.path("proj/dir/object")).expect("read") == content);
    }
    let meta = fs::metadata(machine.path("proj/dir/object")).expect("there");
    assert_eq!((meta.uid(), meta.gid()), (UID, UID));
    for (turn, text) in ["by the mount", "again", "and once more"].into_iter().enumerate() {
        fs::write(machine.path("proj/dir/object"), text).expect("written");
        let gateway = if turn % 2 == 0 { &a } else { &b };
        assert_eq!(gateway.s3("dir/object", &[]).text(), text, "no copies are kept");
    }
    let listed = b.s3("?list-type=2", &[]);
    assert_eq!(listed.element("Key"), "dir/object");
    fs::create_dir(machine.path("proj/.snap/before")).expect("a snapshot");
    assert_eq!(b.s3("dir/object", &["-X", "DELETE"]).status, 204);
    assert_eq!((a.s3("dir/object", &[]).status, machine.path("proj/dir").exists()), (404, false));
    let kept = a.http("proj/.snap/before/dir/object", &[]);
    assert_eq!((kept.status, kept.text().as_str()), (200, "and once more"));
    let listed = a.http("proj/.snap/before/dir/", &["-X", "PROPFIND", "-H", "Depth: 1"]);
    assert!(listed.status == 207 && listed.text().contains("before/dir/object"), "{listed:?}");
    let moved = [
        a.http("proj/one/", &["-X", "MKCOL"]).status,
        b.http("proj/two/", &["-X", "MKCOL"]).status,
        a.http("proj/one/f", &["-T", cell.file("f", b"f").to_str().expect("UTF-8")]).status,
        b.http(
            "proj/one",
            &["-X", "MOVE", "-H", &format!("Destination: http://127.0.0.1:{}/proj/two", b.http)],
        )
        .status,
    ];
    assert_eq!(moved, [201, 201, 201, 204]);
    assert_eq!(a.http("proj/two/f", &[]).text(), "f");
    assert_eq!(a.http(".well-known/srr", &[]).status, 200, "the server makes the report");
    let bad =
        a.s3_command("two/f", &[]).arg("-u").arg(format!("{}:wrong", a.id)).output().expect("curl runs");
    assert!(String::from_utf8_lossy(&bad.stdout).contains("SignatureDoesNotMatch"), "{bad:?}");
    let used = cell.served.ask(&["top", "--once", "--json"]).good();
    assert!(used.contains("\"a\"") && used.contains("\"b\""), "machines: {used}");
}

#[test]
fn of_conditional_puts_at_two_gateways_one_wins() {
    if !can_run() {
        return;
    }
    let cell = Cell::new();
    let gateways = [cell.gateway("a"), cell.gateway("b")];
    for turn in 0..8 {
        let at = format!("lock/{turn}");
        let files: Vec<PathBuf> =
            (0..8).map(|n| cell.file(&format!("by-{n}"), format!("{turn} {n}").as_bytes())).collect();
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let put = |n: usize| {
                let (gateway, file, at) = (&gateways[n % 2], files[n].to_str().expect("UTF-8"), &at);
                scope.spawn(move || gateway.s3(at, &["-T", file, "-H", "If-None-Match:*"]).status)
            };
            let all: Vec<_> = (0..files.len()).map(put).collect();
            all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let winners: Vec<usize> = (0..files.len()).filter(|n| statuses[*n] == 200).collect();
        assert_eq!(winners.len(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 409, 412].contains(status)), "{statuses:?}");
        assert_eq!(gateways[turn % 2].s3(&at, &[]).text(), format!("{turn} {}", winners[0]));
        // the next is by the tag: who read the old one loses
        let tag = gateways[0].s3(&at, &["-I"]).header("etag").expect("a tag").to_owned();
        let swap = |n: usize| {
            let file = files[n].to_str().expect("UTF-8");
            gateways[n].s3(&at, &["-T", file, "-H", &format!("If-Match:{tag}")]).status
        };
        let loser = 1 - winners[0] % 2;
        if loser != winners[0] {
            assert_eq!((swap(loser), swap(1 - loser)), (200, 412));
        }
    }
}

#[test]
fn an_upload_in_parts_goes_on_at_another_gateway() {
    if !can_run() {
        return;
    }
    let cell = Cell::new();
    let (a, b) = (cell.gateway("a"), cell.gateway("b"));
    let parts = [noise(6 << 20, 1), noise(5 << 20, 2), noise(1000, 3)];
    let begun = a.s3("whole?uploads=", &["-X", "POST"]);
    let upload = begun.element("UploadId");
    let mut list = String::new();
    for (n, part) in parts.iter().enumerate() {
        let file = cell.file("part", part);
        let number = n + 1;
        let gateway = if n % 2 == 0 { &a } else { &b };
        let put = gateway.put(&format!("whole?partNumber={number}&uploadId={upload}"), &file);
        assert_eq!(put.status, 200, "{put:?}");
        let tag = put.header("etag").expect("a tag").to_owned();
        list += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
    }
    let listed = b.s3(&format!("whole?uploadId={upload}"), &[]).text();
    assert_eq!(listed.matches("<PartNumber>").count(), 3, "{listed}");
    let list =
        cell.file("list", format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>").as_bytes());
    let data = format!("@{}", list.display());
    let whole = b.s3(&format!("whole?uploadId={upload}"), &["-X", "POST", "--data-binary", &data]);
    assert!(whole.status == 200 && whole.text().contains("-3"), "{whole:?}");
    assert!(a.s3("whole", &[]).body == parts.concat());
    assert_eq!(a.s3(&format!("whole?uploadId={upload}"), &["-X", "DELETE"]).status, 404);
}

/// Waits until something that was done takes effect, which takes less than a second where nothing
/// else runs, and prints how long it took.
#[track_caller]
fn soon(what: &str, holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    until(what, holds);
    println!("{what}: {:?}", begun.elapsed());
    // two requests that wait for the server do so for 40 s
    assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", begun.elapsed());
}

#[test]
fn a_key_that_is_revoked_is_refused_within_a_second() {
    if !can_run() {
        return;
    }
    let cell = Cell::new();
    let a = cell.gateway("a");
    let file = cell.file("f", b"f");
    assert_eq!(a.put("f", &file).status, 200);
    let new = cell.served.ask(&["key", "create", "robot", "--json"]).json();
    let text = |name: &str| new[name].as_str().expect("a text").to_owned();
    let (id, secret) = (text("access_key_id"), text("secret_access_key"));
    let other = Doors { s3: a.s3, http: a.http, id, secret };
    let both = |doors: &Doors| (doors.s3("f", &[]).status, doors.http("proj/f", &[]).status);
    until("a new key to count", || both(&other) == (200, 200));
    cell.served.ask(&["key", "revoke", "robot", &cell.id]).good();
    soon("a key to be refused", || both(&a) == (403, 401));
    assert_eq!(other.s3("f", &[]).status, 200);
    // a bucket that is made and removed
    cell.served.ask(&["bucket", "remove", "proj"]).good();
    soon("a bucket to be gone", || other.s3("f", &[]).text().contains("<Code>NoSuchBucket</Code>"));
    cell.served.ask(&["user", "disable", "robot"]).good();
    soon("a user to be refused", || other.http("proj/f", &[]).status == 403);
}

#[test]
fn an_object_is_whole_or_not_there_when_the_server_is_killed() {
    if !can_run() {
        return;
    }
    let cell = Cell::new();
    let gateways = [cell.gateway("a"), cell.gateway("b")];
    let machine = cell.served.machine("m", &[], &[]);
    let content = noise(4_000_000, 9);
    let file = cell.file("content", &content);
    for turn in 0..3 {
        let (gateways, file) = (&gateways, &file);
        let statuses: Vec<(String, u16)> = std::thread::scope(|scope| {
            let put = |n: usize| {
                scope.spawn(move || {
                    let at = format!("{turn}/{n}");
                    let rate = ["2M", "3M", "100M", "8M"][n % 4];
                    let file = file.to_str().expect("UTF-8");
                    let put = gateways[n % 2].s3(&at, &["-T", file, "--limit-rate", rate]);
                    (at, put.status)
                })
            };
            let all: Vec<_> = (0..8).map(put).collect();
            std::thread::sleep(Duration::from_millis(700));
            cell.served.place.kill(); // its keeper brings it back
            all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for (at, status) in statuses {
            assert!([200, 503].contains(&status), "{at}: {status}");
            let there = fs::read(machine.path("proj").join(&at)).ok();
            assert!(there.as_ref().is_none_or(|there| *there == content), "{at}: half an object");
            assert!(status != 200 || there.is_some(), "{at}: what was acknowledged is there");
        }
        until("a PUT after the crash", || {
            gateways.iter().all(|gateway| gateway.put("after", file).status == 200)
        });
    }
}

#[test]
fn requests_wait_for_the_server_and_are_then_told_to_come_back() {
    if !can_run() {
        return;
    }
    let cell = Cell::new();
    let (patient, hasty) = (cell.gateway("a"), cell.gateway_with("b", &["--timeout", "2s"]));
    let file = cell.file("f", b"f");
    assert_eq!(patient.put("f", &file).status, 200);
    cell.served.ask(&["down", cell.served.place.arg()]).good();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| patient.s3("f", &[]));
        let begun = Instant::now();
        let (s3, http) = (hasty.s3("f", &[]), hasty.http("proj/f", &[]));
        assert_eq!((s3.status, http.status, s3.element("Code").as_str()), (503, 503, "ServiceUnavailable"));
        println!("told to come back after {:?}", begun.elapsed());
        assert!(begun.elapsed() > Duration::from_secs(2) && begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_secs(6)); // what is known of users counts no more
        assert_eq!(hasty.put("g", &file).status, 503);
        assert!(!waits.is_finished());
        cell.served.serve_again();
        assert_eq!(waits.join().expect("no panic").text(), "f");
    });
    until("the other gateway", || hasty.s3("f", &[]).status == 200);
    assert_eq!(hasty.s3("g", &[]).status, 404);
}

#[test]
fn only_a_host_that_may_is_a_gateway_and_only_as_long() {
    if !can_run() {
        return;
    }
    let cell = Cell::new();
    let ask = |line: &[&str]| cell.served.ask(line);
    let plain = Gateway::new(&cell, "plain");
    plain.start(&[]).bad(1, &["has not mounted from there yet", "--token"]);
    let token = cell.served.token("plain", &[]);
    plain
        .start(&["--token", &token])
        .bad(1, &["does not let this machine be a gateway", "lee host set plain --gateway"]);
    ask(&["host", "set", "plain", "--root-squash", "--gateway"]).bad(1, &["a gateway acts for all users"]);
    ask(&["host", "add", "x", "--gateway", "--uids", "1-5"]).bad(2, &["--gateway", "--uids"]);
    ask(&["host", "set", "plain", "--gateway"]).good();
    assert!(ask(&["host", "list"]).good().contains("gateway"));
    plain.start(&[]).good();
    plain.start(&[]).bad(1, &["is a gateway", "already", "--stop"]);
    let file = cell.file("f", b"f");
    assert_eq!(plain.put("f", &file).status, 200);
    // within a second it answers nothing any more, without waiting for anything, and answers again
    let both = || (plain.s3("f", &[]).status, plain.http("proj/f", &[]).status);
    ask(&["host", "set", "plain", "--no-gateway"]).good();
    soon("a host to be no gateway", || both() == (503, 503));
    ask(&["host", "set", "plain", "--gateway"]).good();
    until("it is one again", || plain.s3("f", &[]).status == 200);
    let killed = plain.pid().expect("a process");
    // SAFETY: a plain system call on a process that this test started.
    assert_eq!(unsafe { libc::kill(killed, libc::SIGKILL) }, 0);
    until("its keeper", || plain.pid().is_some_and(|pid| pid != killed) && plain.s3("f", &[]).status == 200);
    ask(&["host", "remove", "plain"]).good();
    soon("a host to be out", || both() == (503, 503));
    plain.say(&["--stop"]).good();
    assert_eq!(plain.s3("f", &[]).status, 0, "nobody listens");
    plain.start(&[]).bad(1, &["does not let this machine in"]);
}

#[test]
fn what_goes_through_a_gateway_is_kept_by_day() {
    if !can_run() {
        return;
    }
    let cell = Cell::new();
    let gateway = cell.gateway("counted");
    let content = noise(100_000, 1);
    assert_eq!(gateway.put("object", &cell.file("content", &content)).status, 200);
    assert_eq!(gateway.http("proj/object", &[]).body, content);
    gateway.say(&["--stop"]).good();
    let day = yesterday();
    let report = |form: &str| cell.served.ask(&["report", "transfers", "--from", &day, form]);
    let told = report("--json").json();
    let row = |door: &str| {
        let rows = told["rows"].as_array().expect("rows");
        rows.iter().find(|row| row["door"] == door).unwrap_or_else(|| panic!("no {door} in {told}")).clone()
    };
    let (s3, http) = (row("s3"), row("http"));
    assert_eq!(
        (&s3["ipv6"], &s3["requests"], &s3["received_bytes"]),
        (&false.into(), &1.into(), &100_000.into())
    );
    assert_eq!((&http["requests"], &http["sent_bytes"]), (&1.into(), &100_000.into()));
    assert!(!told.to_string().contains("\"mount\""), "a gateway is no mount: {told}");
    let said = report("--daily").good();
    assert!(said.contains("DAY") && said.contains("KiB"), "{said}");
    let csv = report("--csv").good();
    assert!(csv.contains(",s3,ipv4,1,100000,"), "{csv}");
    // a server that does not answer holds up no end
    let other = cell.gateway("other");
    assert_eq!(other.http("proj/object", &[]).status, 200);
    let (server, pid) = (cell.served.place.pid().expect("served"), other.pid().expect("it runs"));
    signal(server, libc::SIGSTOP);
    signal(pid, libc::SIGTERM);
    let begun = Instant::now();
    let ended = (0..300).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        !Place::is_lee(pid)
    });
    signal(server, libc::SIGCONT);
    assert!(ended, "it still runs after {:?}", begun.elapsed());
}
