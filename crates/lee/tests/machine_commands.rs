//! Commands in a mount from another machine: the server runs them in the name of the user who asks,
//! so far as that user and the host may.
#![allow(clippy::disallowed_methods)]

use crate::common;
use crate::common::machines::{Machine, Served};
use crate::common::{LEE, Over, as_user, can_mount, lee, run, stop, until, yesterday};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const USER: u32 = 12_345;
const OTHER: u32 = 12_346;

/// A served cell to whose mounts all users get through.
fn served() -> Served {
    let served = Served::new();
    let above = served.place.dir.parent().expect("a directory");
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).expect("set");
    served
}

/// A directory of a user, with a file in it.
fn home(machine: &Machine, name: &str, uid: u32, mode: u32) {
    let dir = machine.path(name);
    fs::create_dir(&dir).expect("made");
    fs::write(dir.join("file"), [7; 5000]).expect("written");
    for path in [&dir.join("file"), &dir] {
        chown(path, Some(uid), Some(uid)).expect("given away");
    }
    fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("set");
}

fn names(list: &Value, of: &str) -> Vec<String> {
    let all = list[of].as_array().expect("a list");
    all.iter().map(|entry| entry["path"].as_str().expect("a path").to_owned()).collect()
}

#[test]
fn users_ask_about_what_is_theirs() {
    if !can_mount() {
        return;
    }
    let served = served();
    let a = served.machine("a", &[], &[]);
    home(&a, "mine", USER, 0o700);
    home(&a, "theirs", OTHER, 0o700);
    for dir in ["mine", "theirs"] {
        served.ask(&["quota", "set", &format!("/{dir}"), "--bytes", "1M"]).good();
    }
    let du = a.ask_as(USER, &["du", "./mine", "--json"]).json();
    assert_eq!((&du["paths"][0]["path"], &du["paths"][0]["files"]), (&"/mine".into(), &1.into()));
    a.ask_as(USER, &["du", "./theirs"]).bad(1, &["/theirs", "permission denied"]);
    assert_eq!(a.ask(&["du", "theirs", "--json"]).json()["paths"][0]["files"], 1, "root");
    // groups count, too
    chown(a.path("mine"), None, Some(777)).expect("given away");
    fs::set_permissions(a.path("mine"), fs::Permissions::from_mode(0o750)).expect("set");
    let in_group = |groups: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "12346", "--regid", "12346", "--groups", groups]);
        run(a.here(command.args([LEE, "du", "./mine"]).current_dir(&a.at))).code
    };
    assert_eq!([in_group("12,777"), in_group("12,778")], [0, 1]);
    let quota = a.ask_as(USER, &["quota", "show", "./mine", "--json"]).json();
    assert_eq!((&quota["reply"], &quota["bytes"]), (&"quota".into(), &(1 << 20).into()));
    a.ask_as(USER, &["quota", "show", "./theirs"]).bad(1, &["permission denied"]);
    assert_eq!(names(&a.ask_as(USER, &["quota", "list", "--json"]).json(), "quotas"), ["/mine"]);
    assert_eq!(names(&a.ask(&["quota", "list", "--json"]).json(), "quotas"), ["/mine", "/theirs"]);
    let df = a.ask_as(USER, &["df", "--json"]).json();
    assert!(df["total_bytes"].as_u64() > Some(0));
    assert_eq!(df["pools"], Value::Array(Vec::new()), "pools are the operators'");
    a.ask_as(USER, &["sync"]).good();
    // by the mount's name, from elsewhere
    let at = a.at.to_str().expect("UTF-8");
    run(a.here(lee(&["du", "/mine", "--cell", at]).current_dir("/"))).good();
    let status = a.ask_as(USER, &["status", "--json"]).json();
    assert_eq!((&status["host"], &status["state"]), (&"a".into(), &"mounted".into()));
    assert!(status["served_by"].is_string() && a.ask(&["status"]).good().contains("served by"));
    served.ask(&["down", served.place.arg()]).good();
    until("the machine to notice", || a.ask(&["status", "--json"]).json()["state"] == "away");
    a.ask(&["du", "."]).bad(1, &["does not answer"]);
    assert!(a.ask(&["status"]).good().contains("ALARM"));
    served.serve_again();
    until("the server", || a.ask(&["du", "."]).code == 0);
}

#[test]
fn users_handle_snapshots_and_bins_as_they_may() {
    if !can_mount() {
        return;
    }
    let served = served();
    served.ask(&["volume", "create", "own", "--owner", &USER.to_string()]).good();
    served.ask(&["volume", "set", "own", "bin-days=7"]).good();
    let a = served.machine("a", &[], &[]);
    home(&a, "own/dir", USER, 0o755);
    home(&a, "own/dir/secret", OTHER, 0o700);
    let snap = a.ask_as(USER, &["snap", "create", "./own/dir", "one", "--json"]).json();
    assert_eq!((&snap["path"], &snap["uid"]), (&"/own/dir".into(), &USER.into()));
    a.ask_as(OTHER, &["snap", "create", "./own/dir", "two"]).bad(1, &["only root, the owner of volume own"]);
    let list = |uid| a.ask_as(uid, &["snap", "list", "./own/dir", "--json"]).json();
    assert_eq!(names(&list(USER), "snapshots"), ["/own/dir"]);
    assert_eq!(list(OTHER)["usage"], Value::Array(Vec::new()));
    fs::write(a.path("own/dir/new"), "").expect("written");
    fs::write(a.path("own/dir/secret/new"), "").expect("written");
    let diff = |said: Value| said["changes"].as_array().map_or(0, Vec::len);
    let line = ["snap", "diff", "./own/dir", "one", "--json"];
    assert_eq!(names(&a.ask_as(USER, &line).json(), "changes"), ["new"], "what is in a private directory is");
    assert_eq!(diff(a.ask(&line).json()), 2, "root sees all");
    a.ask_as(OTHER, &line).bad(1, &["only root and the owner of /own/dir"]);
    let restore = ["snap", "restore", "./own/dir", "one", "file", "--to", "./own/dir/back"];
    a.ask_as(USER, &restore).bad(1, &["only root may", "cp -a", ".snap/one"]);
    a.ask(&restore).good();
    assert_eq!(fs::read(a.path("own/dir/back")).expect("restored"), [7; 5000]);
    a.ask_as(OTHER, &["snap", "remove", "./own/dir", "one"]).bad(1, &["only root"]);
    a.ask_as(USER, &["snap", "rename", "./own/dir", "one", "first"]).good();
    a.ask_as(USER, &["snap", "remove", "./own/dir", "first"]).good();
    // the bin shows and gives back what was the user's own
    for dir in ["own/dir", "own/dir/secret"] {
        fs::remove_file(a.path(dir).join("file")).expect("removed");
    }
    let bin = |uid| names(&a.ask_as(uid, &["bin", "list", "--json"]).json(), "entries");
    assert_eq!(
        (bin(USER), bin(OTHER)),
        (vec!["/own/dir/file".to_owned()], vec!["/own/dir/secret/file".to_owned()])
    );
    assert_ne!(a.ask_as(OTHER, &["bin", "restore", "./own/dir/file"]).code, 0);
    a.ask_as(USER, &["bin", "restore", "./own/dir/file"]).good();
    assert!(a.path("own/dir/file").exists());
    a.ask_as(OTHER, &["bin", "empty", "own"]).bad(1, &["only root and its owner"]);
}

#[test]
fn owners_of_volumes_see_what_happened_and_what_is_in_them() {
    if !can_mount() {
        return;
    }
    let served = served();
    for (volume, owner) in [("own", USER), ("other", OTHER)] {
        served.ask(&["volume", "create", volume, "--owner", &owner.to_string()]).good();
    }
    let a = served.machine("a", &[], &[]);
    home(&a, "own/dir", USER, 0o755);
    home(&a, "own/dir/secret", OTHER, 0o700);
    home(&a, "other/dir", OTHER, 0o755);
    fs::remove_dir_all(a.path("own/dir/secret")).expect("removed");
    let audit = |uid, path: &str| a.ask_as(uid, &["audit", path, "--what", "removed"]);
    let said = audit(USER, "./own/dir").good();
    assert!(said.contains("root@a  removed /own/dir/secret/file"), "{said}");
    assert!(audit(USER, "./own/dir/secret").good().contains("removed /own/dir/secret\n"), "it is gone");
    audit(OTHER, "./own/dir").bad(1, &["only root and the owner of the volume"]);
    audit(OTHER, "./own/none").bad(1, &["only root and the owner of the volume"]);
    audit(USER, "/").bad(1, &["only root and the owner of the volume"]);
    a.ask(&["audit", "/own"]).good();
    a.ask_as(USER, &["audit"]).bad(1, &["operators of the cell"]);
    a.ask_as(USER, &["audit", "--verify"]).bad(1, &["operators of the cell"]);
    // a cursor of another volume
    let cursor = format!("/tmp/cursor-{}", std::process::id());
    let line = ["watch", "/other", "--once", "--cursor-file", &cursor];
    a.ask_as(OTHER, &line).good();
    a.ask_as(USER, &["watch", "/own", "--once", "--cursor-file", &cursor]).bad(1, &["not of the volume"]);
    fs::remove_file(&cursor).expect("removed");
    // files and usage
    let census = |uid, path: &str| a.ask_as(uid, &["report", "census", path, "--json"]);
    assert_eq!(census(USER, "./own").json()["files"]["files"], 1);
    census(OTHER, "./own").bad(1, &["only root and the owner of the volume"]);
    let rows = |said: Value| -> Vec<String> {
        let all = said["rows"].as_array().expect("rows").clone();
        all.iter().map(|row| row["title"].as_str().expect("a name").to_owned()).collect()
    };
    let usage = |by: &str| a.ask_as(USER, &["report", "usage", "--by", by, "--json"]);
    assert_eq!(rows(usage("volume").json()), ["own"]);
    assert_eq!(rows(usage("user").json()), [USER.to_string()]);
    assert_eq!(rows(usage("group").json()), [USER.to_string()]);
    usage("pool").bad(1, &["operators of the cell"]);
    a.ask_as(777, &["report", "usage"]).bad(1, &["nothing of this is yours"]);
    let few = served.machine("few", &["--volumes", "other"], &[]);
    few.ask_as(USER, &["report", "usage"]).bad(1, &["nothing of this is yours"]);
    few.ask_as(USER, &["report", "usage", "--by", "user"]).bad(1, &["may not use all volumes"]);
    few.ask_as(USER, &["audit", "/own/dir"]).bad(1, &["/own"]);
}

#[test]
fn no_machine_is_an_operator() {
    if !can_mount() {
        return;
    }
    let served = served();
    let a = served.machine("a", &[], &[]);
    let lines: [&[&str]; 10] = [
        &["quota", "set", "/", "--bytes", "1G"],
        &["volume", "create", "x"],
        &["volume", "list"],
        &["pool", "list"],
        &["host", "list"],
        &["host", "add", "evil"],
        &["user", "list"],
        &["token", "create", "root", "--read"],
        &["flow", "limit", "0", "--ops", "1"],
        &["snap", "schedule", "/", "1h"],
    ];
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    for line in lines {
        a.ask(line).bad(1, &["operators of the cell", name.trim()]);
    }
    for line in ["fsck", "scrub"] {
        a.ask(&[line]).bad(2, &["operators of the cell"]);
    }
    for line in [&["restart"][..], &["config", "show"], &["session", "list"]] {
        a.ask(line).bad(1, &["mounted from", "run this on the machine that serves it"]);
    }
}

#[test]
fn a_host_asks_for_no_more_than_its_entry_says() {
    if !can_mount() {
        return;
    }
    let served = served();
    for volume in ["home", "other"] {
        served.ask(&["volume", "create", volume]).good();
        served.ask(&["quota", "set", &format!("/{volume}"), "--bytes", "1G"]).good();
    }
    let all = served.machine("all", &[], &[]);
    home(&all, "home/dir", USER, 0o700);
    home(&all, "other/dir", USER, 0o700);
    let reads = served.machine("reads", &["--read-only"], &[]);
    reads.ask(&["du", "home"]).good();
    for line in
        [&["snap", "create", "./home", "one"][..], &["bin", "restore", "./home/x"], &["bin", "empty", "home"]]
    {
        reads.ask(line).bad(1, &["the host reads may only read"]);
    }
    let few = served.machine("few", &["--volumes", "home"], &[]);
    few.ask(&["du", "home/dir"]).good();
    few.ask(&["du", "other"]).bad(1, &["/other"]);
    few.ask(&["du", "."]).bad(1, &["permission denied"]);
    few.ask(&["snap", "create", "/other", "one"]).bad(1, &["/other"]);
    for path in ["/", "/other", "/other/x", "/new"] {
        few.ask(&["bin", "restore", path]).bad(1, &["permission denied"]);
    }
    few.ask(&["bin", "restore", "/home/x"]).bad(1, &["not in the recycle bin"]);
    few.ask(&["bin", "empty", "other"]).bad(1, &["no volume other"]);
    assert_eq!(names(&few.ask(&["quota", "list", "--json"]).json(), "quotas"), ["/home"]);
    // a group has rights in all volumes
    few.ask_as(65_534, &["group", "create", "nobody:x"]).bad(1, &["may not use all volumes"]);
    all.ask_as(65_534, &["group", "create", "nobody:x"]).good();
    few.ask_as(65_534, &["group", "add", "nobody:x", "nobody"]).bad(1, &["may not use all volumes"]);
    few.ask_as(65_534, &["group", "show", "nobody:x"]).good();
    reads.ask_as(65_534, &["group", "remove", "nobody:x"]).bad(1, &["the host reads may only read"]);
    let squashed = served.machine("squashed", &["--root-squash"], &[]);
    squashed.ask(&["du", "home/dir"]).bad(1, &["permission denied"]);
    squashed.ask_as(USER, &["du", "home/dir"]).good();
    squashed.ask(&["snap", "create", "./home", "one"]).bad(1, &["only root"]);
    let bounded = served.machine("bounded", &["--uids", "12345-12345"], &[]);
    bounded.ask_as(USER, &["du", "/home/dir"]).good();
    let line = ["du", "/home", "--cell", bounded.at.to_str().expect("UTF-8")];
    run(as_user(bounded.here(lee(&line).current_dir("/")), OTHER)).bad(1, &["not act for this user"]);
}

#[test]
fn users_see_their_own_work_and_waits() {
    if !can_mount() {
        return;
    }
    let served = served();
    let a = served.machine("a", &[], &[]);
    home(&a, "mine", USER, 0o755);
    let storm = a.path("mine/file");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        let ends = &is_over;
        scope.spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let _ = fs::write(&storm, "x");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let users = |said: Value| -> Vec<u64> {
            said["flows"].as_array().expect("flows").iter().filter_map(|row| row["uid"].as_u64()).collect()
        };
        let line = ["top", "--once", "--every", "0.3", "--json"];
        until("root's work", || users(a.ask(&line).json()).contains(&0));
        assert!(!users(a.ask_as(USER, &line).json()).contains(&0), "of others a user sees nothing");
    });
    a.ask_as(USER, &["why", "."]).good();
    a.ask_as(USER, &["why"]).good();
}

#[test]
fn the_server_shows_what_machines_do() {
    if !can_mount() {
        return;
    }
    let served = served();
    let (a, b) = (served.machine("a", &[], &[]), served.machine("b", &[], &[]));
    fs::write(a.path("file"), [1; 300_000]).expect("written");
    fs::read(b.path("file")).expect("read");
    let top = served.ask(&["top", "--once", "--every", "0.2", "--json"]).json();
    let hosts: Vec<&Value> =
        top["machines"].as_array().expect("machines").iter().map(|m| &m["host"]).collect();
    assert!(hosts.contains(&&"a".into()) && hosts.contains(&&"b".into()), "{hosts:?}");
    let own = a.ask_as(USER, &["top", "--once", "--every", "0.2", "--json"]).json();
    assert_eq!(own["machines"].as_array().map(Vec::len), Some(1), "users of a machine see that machine");
}

/// Stops a process, and lets it go on when dropped.
struct Stopped(i32);

impl Stopped {
    fn stop(pid: i32) -> Stopped {
        stop(pid);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: a plain system call on a process of this test, which may have ended.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
    }
}

#[test]
fn why_names_the_machine_that_was_waited_for() {
    if !can_mount() {
        return;
    }
    let served = served();
    let (a, b) = (served.machine("a", &[], &[]), served.machine("b", &[], &[]));
    fs::write(a.path("file"), "one").expect("written");
    assert_eq!(fs::read(b.path("file")).expect("read"), b"one");
    let stopped = Stopped::stop(b.pid().expect("a process"));
    fs::write(a.path("file"), "other").expect("written when b has lost its leases");
    let why = served.ask(&["why", "--json"]).json();
    let rows = why["operations"].as_array().expect("operations");
    let waited = |row: &Value| {
        let waits = row["waited"].as_array().cloned().unwrap_or_default();
        waits.into_iter().find(|wait| wait["for_what"] == "leases")
    };
    let (row, wait) = rows.iter().find_map(|row| Some((row, waited(row)?))).expect("it waited for leases");
    assert_eq!((&row["door"], &row["machine"]), (&"remote".into(), &"a".into()));
    assert_eq!((&wait["machine"], &wait["taken"]), (&"b".into(), &true.into()), "{wait}");
    let text = served.ask(&["why"]).good();
    assert!(text.contains("leases of b, which did not give them back"), "{}", text);
    assert!(text.contains("remote a"), "{}", text);
    drop(stopped);
    until("b goes on", || fs::read(b.path("file")).is_ok_and(|content| content == b"other"));
}

#[test]
fn long_answers_come_whole() {
    if !can_mount() {
        return;
    }
    let served = served();
    let a = served.machine("a", &[], &[]);
    fs::create_dir(a.path("many")).expect("made");
    fs::create_dir(a.path("many/.snap/before")).expect("a snapshot");
    let name = "n".repeat(180);
    for number in 0..1500 {
        fs::write(a.path(&format!("many/{name}{number:04}")), "").expect("written");
    }
    let said = a.ask(&["snap", "diff", "many", "before", "--json"]);
    assert!(said.out.len() > 256 << 10, "{}", said.out.len());
    assert_eq!(said.json()["changes"].as_array().map(Vec::len), Some(1500));
}

#[test]
fn only_who_mounted_ends_it_by_a_command() {
    if !can_mount() {
        return;
    }
    let served = served();
    let a = served.machine("a", &[], &[]);
    let at = a.at.to_str().expect("UTF-8").to_owned();
    let pid = a.pid().expect("a process");
    run(as_user(a.here(lee(&["down", &at]).current_dir("/")), USER)).bad(1, &["only root"]);
    run(a.here(lee(&["down", &at]).current_dir("/"))).good();
    assert!(!common::is_mounted(&a.at) && !Path::new(&format!("/proc/{pid}")).exists());
    // the mount that comes next keeps its socket, also when the one before is still ending
    for _ in 0..5 {
        a.mount(&[]).good();
        assert_eq!(fs::read_dir(&a.at).expect("it is mounted").count(), 0);
        a.umount();
        a.mount(&[]).good();
        a.ask(&["du", "."]).good();
        a.umount();
    }
}

#[test]
fn what_mounts_write_and_read_is_kept_by_day() {
    if !can_mount() {
        return;
    }
    let served = served();
    let a = served.machine("a", &[], &[]);
    fs::write(a.path("file"), [7; 50_000]).expect("written");
    drop(a);
    let b = served.machine("b", &[], &[]);
    assert_eq!(fs::read(b.path("file")).expect("read").len(), 50_000);
    drop(b);
    // it is noted at the end, and once a minute before
    served.ask(&["down"]).good();
    let told = served.ask(&["report", "transfers", "--from", &yesterday(), "--json"]).json();
    let row = &told["rows"][0];
    assert_eq!((&row["door"], &row["ipv6"]), (&"mount".into(), &false.into()), "{told}");
    assert_eq!((&row["received_bytes"], &row["sent_bytes"]), (&50_000.into(), &50_000.into()), "{told}");
    assert!(row["requests"].as_u64() > Some(3), "{told}");
}
