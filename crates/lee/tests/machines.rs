//! A cell that other machines mount: `lee serve`, `lee host`, `lee mount`, `lee session`. Each
//! machine is a directory with keys of its own.
#![allow(clippy::disallowed_methods)]

mod crashes;
mod locks;
mod logins;

use crate::common;
use crate::common::machines::{Machine, Served, free_port};
use crate::common::{Place, can_mount, is_mounted, lee, run, say, signal, stop, until};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

fn append(path: &Path, line: &str) {
    let mut file = OpenOptions::new().append(true).open(path).expect("open");
    file.write_all(line.as_bytes()).expect("appended");
}

#[test]
fn machines_see_one_file_system() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let (a, b) = (served.machine("a", &[], &[]), served.machine("b", &[], &[]));
    fs::write(a.path("file"), "one").expect("written");
    let mut open = File::open(b.path("file")).expect("open");
    for text in ["one", "two", "three and more"] {
        fs::write(a.path("file"), text).expect("written");
        let mut read = String::new();
        open.seek(SeekFrom::Start(0)).expect("sought");
        open.read_to_string(&mut read).expect("read");
        assert_eq!((read.as_str(), open.metadata().expect("there").len()), (text, text.len() as u64));
    }
    fs::set_permissions(a.path("file"), fs::Permissions::from_mode(0o640)).expect("set");
    assert_eq!(fs::metadata(b.path("file")).expect("there").mode() & 0o777, 0o640);
    fs::rename(a.path("file"), a.path("moved")).expect("renamed");
    assert!(!b.path("file").exists() && b.path("moved").exists());
    fs::remove_file(a.path("moved")).expect("removed");
    let mut left = [0; 5];
    open.read_exact_at(&mut left, 0).expect("an unlinked file that is open elsewhere");
    assert_eq!((&left, b.path("moved").exists()), (b"three", false));
    let exclusive =
        |m: &Machine| OpenOptions::new().write(true).create_new(true).open(m.path("lock")).is_ok();
    assert_eq!([exclusive(&a), exclusive(&b)], [true, false]);
    fs::create_dir(a.path("dir")).expect("made");
    fs::write(b.path("dir/x"), "").expect("written");
    assert!(fs::remove_dir(a.path("dir")).is_err());
    fs::create_dir(b.path("dir/.snap/now")).expect("a snapshot");
    fs::remove_file(a.path("dir/x")).expect("removed");
    assert!(b.path("dir/.snap/now/x").exists() && a.path("dir/.snap/now/x").exists());
}

/// In turn each machine changes something, and the other looks: through what its kernel and its
/// process keep.
#[test]
fn what_machines_keep_is_never_old() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let (a, b) = (served.machine("a", &[], &[]), served.machine("b", &[], &[]));
    fs::write(a.path("file"), "00000000").expect("made");
    fs::create_dir(b.path("dir")).expect("made");
    fs::write(a.path("dir/0"), "").expect("made");
    let open = |machine: &Machine| {
        OpenOptions::new().read(true).write(true).open(machine.path("file")).expect("opened")
    };
    let files = [open(&a), open(&b)];
    let machines = [&a, &b];
    // five checks each
    let turns = std::env::var("TURNS").ok().and_then(|turns| turns.parse().ok()).unwrap_or(400);
    for turn in 1..turns {
        let (by, other) = (turn % 2, 1 - turn % 2);
        let times = files[by].metadata().expect("attributes").modified().expect("a time");
        let text = format!("{turn:08}");
        files[by].write_all_at(text.as_bytes(), 0).expect("written");
        // content alone tells that it is new
        files[by].set_modified(times).expect("set back");
        let mut seen = [0; 8];
        files[other].read_exact_at(&mut seen, 0).expect("read");
        assert_eq!(seen, text.as_bytes(), "turn {turn}");
        assert_eq!(fs::read_to_string(machines[other].path("file")).expect("read"), text);
        let name = |turn: usize| format!("dir/{turn}");
        fs::rename(machines[by].path(&name(turn - 1)), machines[by].path(&name(turn))).expect("renamed");
        assert!(machines[other].path(&name(turn)).exists(), "turn {turn}");
        assert!(!machines[other].path(&name(turn - 1)).exists(), "turn {turn}");
        let mode = fs::Permissions::from_mode(0o600 + turn as u32 % 64);
        fs::set_permissions(machines[by].path("file"), mode.clone()).expect("set");
        assert_eq!(files[other].metadata().expect("attributes").mode() & 0o777, mode.mode(), "turn {turn}");
    }
}

/// A thread for each of these names of one file appends lines to it, all at the same time.
fn appended_at_once(names: &[PathBuf]) {
    const LINES: usize = 300;
    std::thread::scope(|scope| {
        for (number, name) in names.iter().enumerate() {
            scope.spawn(move || {
                (0..LINES).for_each(|line| append(name, &format!("{number} {line:03}\n")));
            });
        }
    });
    for name in names {
        let log = fs::read_to_string(name).expect("read");
        assert_eq!(log.lines().count(), LINES * names.len(), "{}", name.display());
        for number in 0..names.len() {
            let of = format!("{number} ");
            let lines: Vec<&str> = log.lines().filter_map(|l| l.strip_prefix(&of)).collect();
            let wanted: Vec<String> = (0..LINES).map(|line| format!("{line:03}")).collect();
            assert_eq!(lines, wanted, "what {number} has appended, in {}", name.display());
        }
    }
}

#[test]
fn what_machines_append_is_there_whole() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let machines = [served.machine("a", &[], &[]), served.machine("b", &[], &[])];
    fs::write(machines[0].path("log"), "").expect("written");
    appended_at_once(&machines.each_ref().map(|machine| machine.path("log")));
}

#[test]
fn what_machines_and_the_servers_own_mount_append_is_there_whole() {
    if !can_mount() {
        return;
    }
    let served = Served::mounted();
    let machines = [served.machine("a", &[], &[]), served.machine("b", &[], &[])];
    let own = served.place.mnt().join("log");
    fs::write(&own, "").expect("written");
    appended_at_once(&[own, machines[0].path("log"), machines[1].path("log")]);
}

#[test]
fn programs_wait_for_a_server_that_ends_or_crashes() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let a = served.machine("a", &[], &[]);
    let mut file = File::create(a.path("file")).expect("made");
    file.write_all(b"kept").expect("written");
    file.sync_all().expect("durable");
    served.place.kill();
    // its keeper brings it back
    assert_eq!(fs::read(a.path("file")).expect("read"), b"kept");
    served.ask(&["down", served.place.arg()]).good();
    let path = a.path("file");
    let reader = std::thread::spawn(move || fs::read(path));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!reader.is_finished());
    served.serve_again();
    assert_eq!(reader.join().expect("no panic").expect("read"), b"kept");
    file.write_all(b" on").expect("a file that was open all the time");
    file.sync_all().expect("durable");
    assert_eq!(fs::read(a.path("file")).expect("read"), b"kept on");
    // what was not durable is done again
    file.write_all(b"!").expect("written");
    served.place.kill();
    served.serve_again();
    file.sync_all().expect("nothing is lost");
    assert_eq!(fs::read(a.path("file")).expect("read"), b"kept on!");
}

/// The server does not wait for it for ever.
#[test]
fn a_machine_that_comes_too_late_after_a_crash_is_told_what_is_lost() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let (a, b) = (served.machine("a", &[], &[]), served.machine("b", &[], &[]));
    let mut file = File::create(a.path("file")).expect("made");
    file.write_all(b"kept").expect("written");
    file.sync_all().expect("durable");
    let pid = a.pid().expect("its process");
    file.write_all(b", perhaps").expect("written");
    stop(pid);
    served.place.kill();
    let begun = Instant::now();
    // its keeper brings it back
    until("the server", || fs::metadata(b.path("file")).is_ok());
    println!("waited for {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    signal(pid, libc::SIGCONT);
    assert_eq!(file.sync_all().expect_err("lost, perhaps").raw_os_error(), Some(libc::EIO));
    file.sync_all().expect("told already");
    let content = fs::read(b.path("file")).expect("read");
    assert!(content == b"kept" || content == b"kept, perhaps");
}

#[test]
fn what_is_written_synchronously_survives_a_crash() {
    use std::os::unix::fs::OpenOptionsExt;
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let a = served.machine("a", &[], &[]);
    for (number, append) in [(0, false), (1, true)] {
        let name = format!("file{number}");
        let mut options = OpenOptions::new();
        options.write(true).create(true).append(append).custom_flags(libc::O_DSYNC);
        let mut file = options.open(a.path(&name)).expect("open");
        file.write_all(b"durable").expect("written");
        served.place.kill();
        assert_eq!(fs::read(a.path(&name)).expect("read"), b"durable");
    }
}

#[test]
fn what_has_failed_for_lack_of_a_server_is_not_done_later() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let a = served.machine("a", &[], &["--timeout", "1s"]);
    fs::write(a.path("file"), "x").expect("written");
    fs::create_dir(a.path("dir")).expect("made");
    served.ask(&["down", served.place.arg()]).good();
    let file = OpenOptions::new().write(true).open(a.path("file"));
    assert!(file.is_err() && fs::remove_file(a.path("file")).is_err());
    assert!(fs::remove_dir(a.path("dir")).is_err() && fs::write(a.path("new"), "").is_err());
    served.serve_again();
    until("the server", || fs::metadata(a.path("file")).is_ok());
    assert_eq!(fs::read(a.path("file")).expect("read"), b"x");
    assert!(a.path("dir").exists() && !a.path("new").exists());
}

#[test]
fn a_served_cell_is_not_served_twice() {
    let served = Served::new();
    let begun = Instant::now();
    let other = format!("127.0.0.1:{}", free_port());
    say(&["serve", served.place.arg(), "--listen", &other]).bad(1, &["in use"]);
    println!("refused in {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// Starts a program, and asserts that it waits.
fn waiting(program: &mut Command) -> Child {
    let mut child = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().expect("asked").is_none(), "it does not wait");
    child
}

#[test]
fn programs_that_wait_can_be_killed_and_the_mount_taken_away() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let (a, b) = (served.machine("a", &[], &[]), served.machine("b", &[], &["--timeout", "1s"]));
    fs::write(a.path("file"), "x").expect("written");
    fs::create_dir(a.path("dir")).expect("made");
    served.ask(&["down", served.place.arg()]).good();
    let at = |name: &str| a.path(name).into_os_string();
    let programs: [(&str, Vec<_>); 6] = [
        ("cat", vec![at("file")]),
        ("touch", vec![at("new")]),
        ("mkdir", vec![at("other")]),
        ("mv", vec!["-T".into(), at("file"), at("moved")]),
        ("ls", vec![at("dir")]),
        ("ln", vec![at("file"), at("link")]),
    ];
    for (program, arguments) in programs {
        let mut child = waiting(Command::new(program).args(arguments));
        child.kill().expect("killed");
        let begun = Instant::now();
        until(program, || child.try_wait().expect("asked").is_some());
        println!("{program} took {:?}", begun.elapsed());
    }
    until("a request that does not wait for ever", || fs::metadata(b.path("file")).is_err());
    for machine in [&a, &b] {
        until("umount", || run(Command::new("umount").arg(&machine.at)).code == 0);
        assert!(!is_mounted(&machine.at));
    }
}

#[test]
fn a_machine_enrols_once_and_is_out_when_its_host_is_removed() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let (a, b) = (Machine::new(&served, "a"), Machine::new(&served, "b"));
    a.mount(&[]).bad(1, &["has not mounted from there yet", "lee host add"]);
    a.mount(&["--token", "nonsense"]).bad(1, &["--token"]);
    let token = served.token("node", &[]);
    assert_eq!(a.mount(&["--token", &token]).json()["host"], "node");
    b.mount(&["--token", &token]).bad(1, &["does not let this machine in", "lee host invite"]);
    a.umount();
    until("the session to end", || sessions(&served).is_empty());
    a.mount(&[]).good();
    let session = &sessions(&served)[0];
    assert_eq!((&session["host"], session["address"].is_string()), (&"node".into(), true));
    let number = session["session"].to_string();
    assert_eq!(served.ask(&["session", "show", &number, "--json"]).json()["host"], "node");
    served.ask(&["session", "end", &number]).good();
    served.ask(&["session", "end", &number]).bad(1, &["no session"]);
    fs::write(a.path("file"), "x").expect("it begins another session");
    served.ask(&["host", "remove", "node"]).good();
    let begun = Instant::now();
    until("a removed host to be out", || fs::metadata(a.path("file")).is_err());
    println!("out after {:?}", begun.elapsed());
    assert!(sessions(&served).is_empty());
    a.ask(&["df"]).bad(1, &["does not answer", "does not know this host's key"]);
}

fn sessions(served: &Served) -> Vec<serde_json::Value> {
    served.ask(&["session", "list", "--json"]).json()["sessions"].as_array().expect("a list").clone()
}

/// The addresses of a mount: over IPv6, and by a name of which the server has one only.
#[test]
fn a_machine_mounts_over_ipv6_and_by_a_name_with_several_addresses() {
    if !can_mount() {
        return;
    }
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: there is no IPv6 loopback here");
        return;
    }
    let other = format!("[::1]:{}", free_port());
    let served = Served::with(&["--listen", &other]);
    for (name, server) in [("six", other), ("name", format!("localhost:{}", served.port))] {
        let mut machine = Machine::new(&served, name);
        machine.server = server;
        machine.mount(&["--token", &served.token(name, &[])]).good();
        fs::write(machine.path(name), name).expect("written");
        assert_eq!(fs::read_to_string(machine.path(name)).expect("read"), name);
        let session = sessions(&served).into_iter().find(|session| session["host"] == name);
        let address = session.expect("its session")["address"].as_str().expect("connected").to_owned();
        assert_eq!(address.starts_with("[::1]:"), name == "six", "{address}");
        machine.umount();
    }
}

/// What is not durable rises while a program writes, and falls to nothing.
#[test]
fn a_session_says_how_much_is_not_durable() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let machine = served.machine("a", &[], &[]);
    let _bounded = served.machine("b", &["--root-squash"], &[]);
    let of = |host: &str| {
        let session = sessions(&served).into_iter().find(|session| session["host"] == host);
        session.expect("its session")["unflushed"].clone()
    };
    let file = File::create(machine.path("file")).expect("made");
    until("something not to be durable", || {
        (0..64).for_each(|at| file.write_all_at(&[7; 4096], at * 4096).expect("written"));
        let unflushed = of("a");
        let count = |what: &str| unflushed[what].as_u64().expect("a number");
        count("changes") > 0 && count("bytes") >= 4096 && count("bytes") % 4096 == 0
    });
    let listed = served.ask(&["session", "list"]).good();
    assert!(listed.contains("UNFLUSHED"), "{listed}");
    file.sync_all().expect("durable");
    until("all to be known to be durable", || {
        of("a") == serde_json::json!({ "changes": 0, "bytes": 0, "oldest_ms": 0 })
    });
    assert!(of("b").is_null());
    let number = |host: &str| {
        let session = sessions(&served).into_iter().find(|session| session["host"] == host);
        session.expect("its session")["session"].to_string()
    };
    let shown = |host: &str| served.ask(&["session", "show", &number(host)]).good();
    assert!(shown("a").contains("unflushed nothing: all is durable"));
    assert!(shown("b").contains("unflushed not counted"));
}

#[test]
fn a_host_may_do_what_its_entry_says() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    for volume in ["home", "other"] {
        served.ask(&["volume", "create", volume]).good();
    }
    let all = served.machine("all", &[], &[]);
    fs::write(all.path("home/file"), "x").expect("written");
    let reads = served.machine("reads", &["--read-only"], &[]);
    assert_eq!(fs::read(reads.path("home/file")).expect("read"), b"x");
    let refused = fs::write(reads.path("home/file"), "y").expect_err("refused");
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    let few = served.machine("few", &["--volumes", "home"], &[]);
    fs::write(few.path("home/file"), "y").expect("written");
    let refused = fs::write(few.path("other/file"), "y").expect_err("refused");
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    assert!(fs::write(few.path("file"), "y").is_err() && fs::read_dir(few.path("other")).is_err());
    // a copy is a volume of its own, also where it is attached in one that the host may use
    served.ask(&["volume", "create", "copied", "--copy", "--at", "/home/copied"]).good();
    fs::read_dir(all.path("home/copied")).expect("shown to those who may use all");
    assert!(fs::read_dir(few.path("home/copied")).is_err());
    let names = fs::read_dir(few.path("home")).expect("read").map(|e| e.expect("an entry").file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["file"]);
    let squashed = served.machine("squashed", &["--root-squash"], &[]);
    fs::set_permissions(all.path("home/file"), fs::Permissions::from_mode(0o600)).expect("set");
    assert!(fs::read(squashed.path("home/file")).is_err());
    served.ask(&["host", "set", "reads", "--read-write"]).good();
    fs::write(reads.path("home/file"), "z").expect("it may now");
}

#[test]
fn the_mount_of_the_server_sees_what_other_machines_do() {
    if !can_mount() {
        return;
    }
    let served = Served::mounted();
    let (a, here) = (served.machine("a", &[], &[]), served.place.mnt());
    assert!(!here.join("file").exists());
    for text in ["one", "two", "longer than before"] {
        fs::write(a.path("file"), text).expect("written");
        assert_eq!(fs::read_to_string(here.join("file")).expect("read"), text);
        fs::write(here.join("file"), "here").expect("written");
        assert_eq!(fs::read_to_string(a.path("file")).expect("read"), "here");
    }
    fs::remove_file(a.path("file")).expect("removed");
    assert!(!here.join("file").exists());
}

/// Ends a process the hard way.
fn kill(pid: i32) {
    signal(pid, libc::SIGKILL);
}

/// The keeper of a process.
fn keeper_of(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
    parent.trim().parse().expect("a number")
}

#[test]
fn a_killed_mount_comes_back_until_it_is_unmounted() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let a = served.machine("a", &[], &[]);
    fs::write(a.path("file"), "x").expect("written");
    let mut pid = a.pid().expect("a process");
    let keeper = keeper_of(pid);
    assert!(Place::is_keeper(keeper));
    for _ in 0..3 {
        let begun = Instant::now();
        kill(pid);
        until("the mount", || a.pid().is_some_and(|now| now != pid) && fs::read(a.path("file")).is_ok());
        println!("back after {:?}", begun.elapsed());
        pid = a.pid().expect("a process");
        assert_eq!(keeper_of(pid), keeper);
    }
    a.umount();
    until("the process and its keeper to end", || !Place::is_lee(pid) && !Place::is_keeper(keeper));
    assert!(!is_mounted(&a.at));
    // the server is away when the process is killed: it is tried until it is back, or unmounted
    a.mount(&[]).good();
    served.ask(&["down", served.place.arg()]).good();
    let at = a.at.to_str().expect("UTF-8");
    for ends in [None, Some(lee(&["down", at])), Some(Command::new("umount"))] {
        let pid = a.pid().expect("a process");
        let keeper = keeper_of(pid);
        kill(pid);
        until("the process to end", || !Place::is_lee(pid));
        let is_unmounted = ends.is_some();
        if let Some(mut end) = ends {
            let end = if end.get_program() == "umount" { end.arg(at) } else { &mut end };
            until("it to be unmounted", || run(a.here(end)).code == 0);
            until("the keeper to end", || !Place::is_keeper(keeper));
            assert!(!is_mounted(&a.at));
        }
        served.serve_again();
        // else its keeper does
        if is_unmounted {
            a.mount(&[]).good();
        }
        until("the mount", || fs::read(a.path("file")).is_ok());
        served.ask(&["down", served.place.arg()]).good();
        until("the machine to notice", || a.pid().is_some());
    }
    a.umount();
    served.serve_again();
    a.mount(&["--no-keeper"]).good();
    let pid = a.pid().expect("a process");
    assert!(!Place::is_keeper(keeper_of(pid)));
    kill(pid);
    until("a dead mount", || fs::read(a.path("file")).is_err());
    a.mount(&[]).good();
    assert_eq!(fs::read(a.path("file")).expect("read"), b"x", "a dead mount is taken away");
}

/// Whatever a mount that is killed leaves in its cache on disk, what is read is right.
#[test]
fn a_cache_on_disk_takes_no_harm_from_killed_mounts() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let cache = served.place.beside("cache");
    let a = served.machine("a", &[], &["--cache", &format!("{}:64M", cache.display())]);
    let bytes: Vec<u8> = (0..24u32 << 20).map(|n| (n / 4096 * 7 + n % 251) as u8).collect();
    fs::write(a.path("file"), &bytes).expect("written");
    for round in 0..5 {
        let pid = a.pid().expect("a process");
        std::thread::scope(|scope| {
            scope.spawn(|| drop(fs::read(a.path("file"))));
            std::thread::sleep(Duration::from_millis(15 * round));
            kill(pid);
        });
        until("the mount", || a.pid().is_some_and(|now| now != pid) && fs::metadata(a.path("file")).is_ok());
        assert!(fs::read(a.path("file")).expect("read") == bytes, "round {round}");
    }
    let kept = fs::metadata(cache.join("leeward.blocks")).expect("a cache");
    assert!(kept.len() > 1 << 20 && kept.mode() & 0o077 == 0);
    assert_eq!(fs::metadata(&cache).expect("a directory").mode() & 0o777, 0o700);
}

#[test]
fn a_mount_as_a_service_says_when_it_is_there_and_comes_back() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let a = Machine::new(&served, "a");
    let notify = served.place.beside("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&notify).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
    let token = served.token("a", &[]);
    let begin = || {
        let mut command = lee(&["mount", &a.server, a.at.to_str().expect("UTF-8")]);
        command.env("LEE_MOUNT_TOKEN", &token).env("NOTIFY_SOCKET", &notify);
        a.here(&mut command).stdout(Stdio::null()).spawn().expect("started")
    };
    let start = || {
        let mut child = begin();
        let mut said = [0; 16];
        until("it to be ready", || match socket.recv(&mut said) {
            Ok(length) => said[..length] == *b"READY=1",
            Err(_) => {
                // systemd starts it again
                if child.try_wait().expect("asked").is_some() {
                    child = begin();
                }
                false
            }
        });
        child
    };
    // whenever a signal comes after that, it ends in order
    for _ in 0..5 {
        let mut child = start();
        // SAFETY: a plain system call on our own child.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        let status = child.wait().expect("gone");
        assert!(status.success() && !is_mounted(&a.at), "{status}");
    }
    let mut killed = start();
    fs::write(a.path("file"), "x").expect("written");
    killed.kill().expect("killed");
    killed.wait().expect("gone");
    // as systemd does, with the token that was used
    let mut child = start();
    assert_eq!(fs::read(a.path("file")).expect("read"), b"x");
    // SAFETY: a plain system call on our own child.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let status = child.wait().expect("gone");
    assert!(status.success(), "{status}");
    assert!(!is_mounted(&a.at));
}

/// The helpers of mount(8), while this lives: one test at a time has them.
struct Helpers {
    _links: [Helper; 2],
    _alone: MutexGuard<'static, ()>,
}

impl Helpers {
    /// `None`: this machine has some, which may be of another program.
    fn install() -> Option<Helpers> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let links = [Helper::install("/sbin/mount.leeward")?, Helper::install("/sbin/mount.fuse.leeward")?];
        Some(Helpers { _links: links, _alone: alone })
    }
}

struct Helper(PathBuf);

impl Helper {
    fn install(at: &str) -> Option<Helper> {
        let at = PathBuf::from(at);
        if Helper::is_left(&at) {
            let _ = fs::remove_file(&at);
        }
        std::os::unix::fs::symlink(common::LEE, &at).ok().map(|()| Helper(at))
    }

    /// Whether it is of a run that was killed: a build of this program, and older than a run may
    /// be.
    fn is_left(at: &Path) -> bool {
        let is_build = |to: PathBuf| to.ends_with("lee") && to.iter().any(|part| part == "target");
        let made = fs::symlink_metadata(at).and_then(|link| link.modified());
        let is_old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > Duration::from_secs(900)));
        is_old && fs::read_link(at).is_ok_and(is_build)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn mount_8_and_fstab_mount_it() {
    if !can_mount() {
        return;
    }
    let Some(_helpers) = Helpers::install() else {
        return eprintln!("skipped: there is /sbin/mount.leeward");
    };
    let served = Served::new();
    let a = Machine::new(&served, "a");
    let at = a.at.to_str().expect("UTF-8").to_owned();
    let mount = |options: &str| {
        let mut command = Command::new("mount");
        run(a.here(command.args(["-t", "leeward", &a.server, &at, "-o", options])))
    };
    let refused = mount("rw");
    assert_eq!((refused.code, refused.err.contains("lee host add")), (32, true), "{refused:?}");
    let wrong = mount("nonsense");
    assert_eq!((wrong.code != 0, wrong.err.contains("nonsense")), (true, true), "{wrong:?}");
    let token = served.place.beside("token");
    fs::write(&token, served.token("a", &[])).expect("written");
    let options =
        format!("_netdev,nofail,noexec,x-systemd.automount,timeout=10s,token-file={}", token.display());
    mount(&options).good();
    fs::write(a.path("file"), "x").expect("written");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("read");
    let line = mounts.lines().find(|line| line.contains(&at)).expect("mounted");
    assert!(line.contains("noexec") && line.contains(&a.server), "{line}");
    let again = mount(&options);
    assert_eq!((again.code, again.err.contains("mounted already")), (32, true), "{again:?}");
    a.umount();
    // as a line of fstab, without the token, which is not needed any more
    fs::remove_file(&token).expect("removed");
    let fstab = served.place.beside("fstab");
    fs::write(&fstab, format!("{} {at} leeward {options},ro 0 0\n", a.server)).expect("written");
    let mut all = Command::new("mount");
    run(a.here(all.arg("-T").arg(&fstab).arg(&at))).good();
    assert_eq!(fs::read(a.path("file")).expect("read"), b"x");
    assert!(fs::write(a.path("file"), "y").is_err(), "read-only");
    // mount -a sees that it is mounted
    let mut all = Command::new("mount");
    run(a.here(all.arg("-T").arg(&fstab).arg("-a"))).good();
    // changed while it is mounted: by its line of fstab, and by the table of mounts alone
    let remount = |options: &str, has_line: bool| {
        let mut command = Command::new("mount");
        command.args(["-o", &format!("remount,{options}")]);
        if has_line {
            command.arg("-T").arg(&fstab);
        }
        run(a.here(command.arg("--").arg(&at)))
    };
    remount("rw", true).good();
    let held = fs::File::create(a.path("file")).expect("writable");
    let busy = remount("ro", true);
    assert_eq!((busy.code, busy.err.contains("open there for writing")), (32, true), "{busy:?}");
    drop(held);
    remount("ro", false).good();
    assert!(fs::write(a.path("file"), "y").is_err(), "read-only");
    let nothing = run(a.here(Command::new("/sbin/mount.leeward").args(["s", "/proc", "-o", "remount,ro"])));
    assert_eq!((nothing.code, nothing.err.contains("no cell is mounted")), (32, true), "{nothing:?}");
}

#[test]
fn mount_8_serves_the_cell_of_a_directory() {
    if !can_mount() {
        return;
    }
    let Some(_helpers) = Helpers::install() else {
        return eprintln!("skipped: there is /sbin/mount.leeward");
    };
    let place = Place::new();
    let at = place.beside("data");
    fs::create_dir(&at).expect("made");
    let mount = |options: &str| {
        let mut command = Command::new("mount");
        run(command.args(["-t", "leeward", "-o", options]).arg(&place.dir).arg(&at))
    };
    fs::create_dir(&place.dir).expect("made");
    let none = mount("noexec");
    assert_eq!((none.code, none.err.contains("holds no cell")), (32, true), "{none:?}");
    assert_eq!(fs::read_dir(&place.dir).expect("read").count(), 0, "mount(8) makes no cell");
    place.up();
    place.ask(&["down"]).good();
    for content in ["x", "y"] {
        mount("noexec,nofail").good();
        fs::write(at.join("file"), content).expect("written");
        common::until("umount", || run(Command::new("umount").arg(&at)).code == 0);
    }
    mount("ro").good();
    assert_eq!(fs::read(at.join("file")).expect("read"), b"y");
    assert!(fs::write(at.join("file"), "z").is_err(), "read-only");
    place.ask(&["down"]).good();
}
