//! A server in the background that crashes comes back by itself, and one that was ended does not.
//! Through the real binary and a real mount: needs root and /dev/fuse, says so and skips elsewhere.
#![allow(clippy::disallowed_methods)]

use crate::common;
use crate::common::{Place, as_user, can_mount, is_mounted, lee, run, say, signal, until};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Much longer than it takes, for a busy machine.
const BACK_WITHIN: Duration = Duration::from_secs(10);

fn status(place: &Place) -> Value {
    let said = say(&["status", place.arg(), "--json"]);
    serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"))
}

/// The server, if it answers.
fn serving_pid(place: &Place) -> Option<i32> {
    let said: Value = serde_json::from_str(&say(&["status", place.arg(), "--json"]).out).ok()?;
    (said["state"] == "serving").then(|| said["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()))?
}

fn write_durably(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("write");
    fs::File::open(path).and_then(|file| file.sync_all()).expect("fsync");
}

/// Kills the server, and waits until a file can be read again; returns how long that took.
fn kill_and_read(place: &Place, file: &Path) -> Duration {
    kill_until(place, || fs::read(file).is_ok())
}

fn kill_and_list(place: &Place) {
    kill_until(place, || is_mounted(&place.mnt()) && fs::read_dir(place.mnt()).is_ok());
}

fn kill_until(place: &Place, mut is_back: impl FnMut() -> bool) -> Duration {
    let pid = place.pid().expect("a server");
    let begun = Instant::now();
    signal(pid, libc::SIGKILL);
    until("the killed server to end", || !Place::is_lee(pid));
    // What the kernel has cached can be read from a dead mount, too.
    until("the path to be back", || serving_pid(place).is_some_and(|now| now != pid) && is_back());
    let took = begun.elapsed();
    assert!(took < BACK_WITHIN, "{took:?}");
    took
}

/// Settings that no server starts with.
fn break_settings(place: &Place) {
    fs::write(place.dir.join("leeward.toml"), "dirty-mib = 3\n").expect("write");
}

fn mend_settings(place: &Place) {
    fs::remove_file(place.dir.join("leeward.toml")).expect("rm");
}

/// A keeper whose server was killed and cannot be started.
fn waiting_keeper(place: &Place) -> i32 {
    place.up();
    let keeper = place.keeper().expect("a keeper");
    break_settings(place);
    place.kill();
    until("a failed try", || status(place)["waiting"]["failed"].as_u64() > Some(0));
    keeper
}

#[test]
fn a_killed_server_comes_back_again_and_again() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    let keeper = place.keeper().expect("a keeper");
    let (file, mut took) = (place.mnt().join("file"), Vec::new());
    assert_eq!((&status(&place)["kept_by"], &status(&place)["restarts"]), (&keeper.into(), &0.into()));
    for n in 1..=20u64 {
        write_durably(&file, format!("{n}").as_bytes());
        took.push(kill_and_read(&place, &file));
        assert_eq!(fs::read(&file).expect("read"), format!("{n}").as_bytes(), "what was fsynced");
        until("the keeper to note it", || status(&place)["restarts"] == n);
    }
    took.sort_unstable();
    eprintln!("back after {:?} in the middle, {:?} at most", took[10], took[19]);
    let last = &status(&place)["last_restart"];
    assert_eq!(last["cause"], "killed by signal 9 (SIGKILL)");
    assert!(last["at"].as_i64() > Some(1_700_000_000) && last["pause_ms"].as_u64() < Some(10_000), "{last}");
    let text = say(&["status", place.arg()]).good();
    assert!(text.contains(&format!("process {keeper}, which started it again 20 times, last 2")), "{text}");
    let log = fs::read_to_string(place.dir.join("log")).expect("a log");
    assert_eq!(log.matches("killed by signal 9 (SIGKILL); starting it again").count(), 20, "{log}");
    assert_eq!(log.matches("the server is back as process").count(), 20, "{log}");
    say(&["down", place.arg()]).good();
    assert!(!Place::is_keeper(keeper) && !is_mounted(&place.mnt()));
    assert!(place.ask(&["fsck"]).good().contains("clean"));
    let down = status(&place);
    assert_eq!((&down["state"], &down["kept_by"]), (&"down".into(), &Value::Null));
}

#[test]
fn ends_in_order_are_final() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    type End = fn(&Place);
    let ends: [(&str, End); 4] = [
        ("lee down", |place| drop(say(&["down", place.arg()]).good())),
        ("umount", |place| until("umount", || run(Command::new("umount").arg(place.mnt())).code == 0)),
        ("SIGTERM to the server", |place| signal(place.pid().expect("a server"), libc::SIGTERM)),
        ("SIGTERM to the keeper", |place| signal(place.keeper().expect("a keeper"), libc::SIGTERM)),
    ];
    for (how, end) in ends {
        place.up();
        let (server, keeper) = (place.pid().expect("a server"), place.keeper().expect("a keeper"));
        write_durably(&place.mnt().join("file"), how.as_bytes());
        end(&place);
        until(how, || !Place::is_lee(server) && !Place::is_keeper(keeper));
        assert!(!is_mounted(&place.mnt()), "{how}");
        assert_eq!(say(&["status", place.arg()]).code, 3, "{how}");
    }
}

#[test]
fn a_server_that_does_not_start_is_tried_again_until_it_does() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let keeper = waiting_keeper(&place);
    let waiting = status(&place);
    assert_eq!((&waiting["state"], &waiting["running"]), (&"restarting".into(), &false.into()));
    assert_eq!(waiting["kept_by"], keeper);
    assert!(waiting["waiting"]["cause"].as_str().is_some_and(|why| why.contains("dirty-mib")), "{waiting}");
    let text = say(&["status", place.arg()]);
    assert!(text.code == 3 && text.out.contains("starts it again, next try 2"), "{text:?}");
    until("pauses that grow", || {
        fs::read_to_string(place.dir.join("log")).is_ok_and(|log| log.contains("next try in 0.8 s"))
    });
    mend_settings(&place);
    until("the server", || is_mounted(&place.mnt()) && status(&place)["running"] == true);
    assert_eq!((&status(&place)["restarts"], &status(&place)["waiting"]), (&1.into(), &Value::Null));
    say(&["down", place.arg()]).good();
    assert!(!Place::is_keeper(keeper));
}

#[test]
fn down_ends_a_keeper_that_waits() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let keeper = waiting_keeper(&place);
    let said = say(&["down", place.arg()]).good();
    assert!(said.contains(&format!("its keeper (process {keeper}) does not start it again")), "{said}");
    assert!(!Place::is_keeper(keeper));
    say(&["down", place.arg()]).bad(1, &["nothing to end"]);
    mend_settings(&place);
    place.ask(&["fsck"]).good();
    // A server that is just being started is ended, too.
    for _ in 0..5 {
        place.up();
        let keeper = place.keeper().expect("a keeper");
        place.kill();
        say(&["down", place.arg()]).good();
        assert!(!Place::is_keeper(keeper));
        assert_eq!(say(&["status", place.arg()]).code, 3);
    }
}

#[test]
fn a_killed_keeper_leaves_its_server() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    let (keeper, file) = (place.keeper().expect("a keeper"), place.mnt().join("file"));
    signal(keeper, libc::SIGKILL);
    until("the keeper's end", || !Place::is_keeper(keeper));
    write_durably(&file, b"without a keeper");
    assert_eq!((&status(&place)["running"], &status(&place)["kept_by"]), (&true.into(), &Value::Null));
    assert!(say(&["status", place.arg()]).good().contains("kept by     nothing"));
    place.kill();
    assert!(is_mounted(&place.mnt()) && fs::read(&file).is_err(), "nobody brings it back");
    place.up();
    assert_eq!(fs::read(&file).expect("read"), b"without a keeper");
    assert!(place.keeper().is_some_and(|now| now != keeper));
}

#[test]
fn without_a_keeper_it_stays_down() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up_without_keeper();
    assert_eq!(place.keeper(), None);
    assert!(say(&["status", place.arg()]).good().contains("kept by     nothing"));
    say(&["down", place.arg()]).good();
    assert_eq!(say(&["up", place.arg(), "--no-keeper"]).code, 2, "only with --background");
}

#[test]
fn up_after_a_crash_works_whoever_is_faster() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    let file = place.mnt().join("file");
    write_durably(&file, b"kept");
    for _ in 0..8 {
        signal(place.pid().expect("a server"), libc::SIGKILL);
        let up = say(&["up", place.arg(), "--background", "--json"]).json();
        assert_eq!(up["mount"], place.mnt().to_str().expect("UTF-8"), "{up}");
        assert_eq!(fs::read(&file).expect("it serves"), b"kept");
        assert!(place.keeper().is_some());
    }
    // It was brought back before: the same command is content, another one is told.
    kill_and_read(&place, &file);
    until("the keeper to note it", || status(&place)["restarts"].as_u64() > Some(0));
    let (pid, keeper) = (place.pid(), place.keeper());
    let said = say(&["up", place.arg(), "--background"]).good();
    assert!(said.contains("is served already (brought back 2") && said.contains("SIGKILL"), "{said}");
    assert_eq!(say(&["up", place.arg(), "--background", "--json"]).json()["pid"], pid.expect("a server"));
    say(&["up", place.arg()]).bad(1, &["is in use by `lee up`"]);
    let elsewhere = place.beside("elsewhere");
    fs::create_dir(&elsewhere).expect("mkdir");
    let at = elsewhere.to_str().expect("UTF-8");
    say(&["up", place.arg(), "--background", "--mount", at]).bad(1, &["is in use by `lee up`"]);
    assert_eq!((place.pid(), place.keeper()), (pid, keeper));
}

#[test]
fn up_takes_the_place_of_a_keeper_that_waits() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let keeper = waiting_keeper(&place);
    mend_settings(&place);
    let elsewhere = place.beside("elsewhere");
    fs::create_dir(&elsewhere).expect("mkdir");
    say(&["up", place.arg(), "--background", "--mount", elsewhere.to_str().expect("UTF-8")]).good();
    assert!(is_mounted(&elsewhere) && !is_mounted(&place.mnt()));
    assert!(!Place::is_keeper(keeper) && place.keeper().is_some());
}

/// KiB of memory that a process has made, of its `smaps`: without the tables of the program itself,
/// into which the loader puts addresses, and which are as large as the build.
fn own_kib(smaps: &str) -> u64 {
    let (mut own, mut is_own) = (0, true);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Anonymous:") if is_own => {
                own += words.next().and_then(|n| n.parse::<u64>().ok()).expect("a number");
            }
            Some(range) if !range.ends_with(':') => is_own = !line.ends_with("/lee"),
            _ => (),
        }
    }
    own
}

#[test]
fn the_keeper_is_small_and_keeps_nothing_busy() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let script = format!("exec 7</etc/passwd; {} up cell --background", common::LEE);
    run(Command::new("sh").args(["-c", &script]).current_dir(place.beside(""))).good();
    let keeper = place.keeper().expect("a keeper");
    kill_and_list(&place);
    until("the keeper to note it", || status(&place)["restarts"] == 1);
    let of = |what: &str| format!("/proc/{keeper}/{what}");
    assert_eq!(fs::read_link(of("cwd")).expect("its directory"), Path::new("/"));
    let open: Vec<String> = fs::read_dir(of("fd"))
        .expect("its descriptors")
        .filter_map(|e| fs::read_link(e.expect("an entry").path()).ok())
        .map(|p| p.to_string_lossy().into_owned())
        .collect();
    let place_of = |path: &str| path.strip_prefix(place.arg()).map(str::to_string);
    let mut of_cell: Vec<String> = open.iter().filter_map(|path| place_of(path)).collect();
    of_cell.sort_unstable();
    assert_eq!(of_cell, ["", "/keeper", "/log", "/log"], "{open:?}");
    assert!(!open.iter().any(|path| path.contains("passwd") || path.contains("pipe")), "{open:?}");
    let about = fs::read_to_string(of("status")).expect("its status");
    let field = |name: &str| {
        let line = about.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
        line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).expect("a number")
    };
    let own = own_kib(&fs::read_to_string(of("smaps")).expect("its memory"));
    eprintln!(
        "{own} KiB of its own, {} KiB anonymous, {} KiB of files",
        field("RssAnon:"),
        field("RssFile:")
    );
    assert_eq!(field("Threads:"), 1);
    assert!(own < 512, "{about}");
    until("umount", || run(Command::new("umount").arg(place.mnt())).code == 0);
    until("the keeper's end", || !Place::is_keeper(keeper));
}

#[test]
fn a_renamed_cell_comes_back_where_it_is() {
    if !can_mount() {
        return;
    }
    let mut place = Place::new();
    place.up();
    write_durably(&place.mnt().join("file"), b"moved");
    let (old, new) = (place.dir.clone(), place.beside("new"));
    fs::rename(&old, &new).expect("rename");
    place.dir.clone_from(&new);
    let keeper = place.keeper().expect("a keeper");
    // Another cell has the old path by now: it is not the keeper's.
    let mut other = Place::new();
    other.dir.clone_from(&old);
    say(&["up", old.to_str().expect("UTF-8"), "--background", "--no-keeper"]).good();
    kill_and_read(&place, &place.mnt().join("file"));
    assert_eq!(fs::read_dir(old.join("mnt")).expect("the other cell").count(), 0);
    assert_eq!(place.keeper(), Some(keeper));
    say(&["down", old.to_str().expect("UTF-8")]).good();
    say(&["down", place.arg()]).good();
    // A cell that is gone is waited for, and never made anew.
    place.up();
    let away = place.beside("away");
    break_settings(&place);
    place.kill();
    until("a failed try", || status(&place)["waiting"]["failed"].as_u64() > Some(0));
    let keeper = place.keeper().expect("a keeper");
    fs::rename(place.dir.join("cell"), &away).expect("rename");
    mend_settings(&place);
    until("it is missed", || {
        fs::read_to_string(place.dir.join("log"))
            .is_ok_and(|log| log.contains("the cell is not there any more"))
    });
    fs::rename(&away, place.dir.join("cell")).expect("rename");
    until("it is back", || fs::read(place.mnt().join("file")).is_ok());
    assert_eq!(place.keeper(), Some(keeper));
}

#[test]
fn cells_of_ordinary_users_come_back_too() {
    if !can_mount() {
        return;
    }
    const USER: u32 = 65534;
    let helper = ["/bin", "/usr/bin", "/sbin"].iter().any(|d| Path::new(d).join("fusermount3").exists());
    let open = fs::metadata("/dev/fuse").is_ok_and(|m| m.permissions().mode() & 0o006 == 0o006);
    if !helper || !open {
        eprintln!("skipped: needs fusermount3 and a /dev/fuse that is open to all");
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.beside(""), fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::create_dir(&place.dir).expect("mkdir");
    std::os::unix::fs::chown(&place.dir, Some(USER), Some(USER)).expect("chown");
    let copy = place.beside("lee");
    run(Command::new("cp").arg(common::LEE).arg(&copy)).good();
    let user = |args: &[&str]| run(as_user(Command::new(&copy).args(args), USER));
    user(&["up", place.arg(), "--background"]).good();
    for n in 1..4u64 {
        place.kill();
        // Root may not look into a user's mount.
        let file = place.mnt().join(format!("{n}"));
        let touch = || run(as_user(Command::new("touch").arg(&file), USER)).code;
        until("the path to be back", || touch() == 0);
        until("the keeper to note it", || status(&place)["restarts"] == n);
    }
    user(&["down", place.arg()]).good();
    assert_eq!(place.keeper(), None);
}

#[test]
fn systemd_hears_of_the_start_and_the_end() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let path = place.beside("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(common::PATIENCE)).expect("a timeout");
    let mut command = lee(&["up", place.arg()]);
    let quiet = || std::process::Stdio::null();
    let mut server =
        command.env("NOTIFY_SOCKET", &path).stdout(quiet()).stderr(quiet()).spawn().expect("lee starts");
    let hear = || {
        let mut text = [0; 64];
        let length = socket.recv(&mut text).expect("told");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    assert_eq!(hear(), "READY=1");
    assert!(is_mounted(&place.mnt()));
    assert!(say(&["status", place.arg()]).good().contains("the service manager"));
    say(&["down", place.arg()]).good();
    assert_eq!(hear(), "STOPPING=1");
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn restart_serves_with_the_program_that_asks() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    say(&["restart", place.arg()]).bad(1, &["no such directory"]);
    let elsewhere = place.beside("elsewhere");
    fs::create_dir(&elsewhere).expect("mkdir");
    let at = elsewhere.to_str().expect("UTF-8");
    say(&["up", place.arg(), "--background", "--mount", at, "-o", "noexec"]).good();
    let (keeper, before) = (place.keeper().expect("a keeper"), place.pid().expect("a server"));
    fs::write(elsewhere.join("file"), b"not fsynced").expect("write");
    fs::create_dir(place.beside("newer")).expect("mkdir");
    let newer = place.beside("newer").join("lee");
    run(Command::new("cp").arg(common::LEE).arg(&newer)).good();
    let said = run(Command::new(&newer).args(["restart", place.arg(), "--json"])).json();
    assert!(said["pause_ms"].as_u64() < Some(10_000), "{said}");
    assert_eq!((said["mount"].as_str(), said["pid"].as_i64()), (Some(at), place.pid().map(i64::from)));
    assert_eq!(fs::read(elsewhere.join("file")).expect("read"), b"not fsynced");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(mounts.lines().any(|line| line.contains(at) && line.contains("noexec")), "the same options");
    let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).expect("a program");
    let server = place.pid().expect("a server");
    assert_ne!(server, before);
    assert_eq!((program(server), program(keeper)), (newer.clone(), newer.clone()));
    assert_eq!(place.keeper(), Some(keeper), "the same process");
    // It is kept as before.
    kill_and_read(&place, &elsewhere.join("file"));
    assert_eq!(program(place.pid().expect("a server")), newer);
    // An open file does not hinder it, and is lost.
    let open = fs::File::open(elsewhere.join("file")).expect("open");
    assert!(say(&["restart", place.arg()]).good().contains("is served by lee"));
    assert!(open.metadata().is_err() && elsewhere.join("file").exists());
    drop(open);
    until("the keeper to note it", || status(&place)["last_restart"]["cause"] == "lee restart");
    say(&["down", place.arg()]).good();
    say(&["restart", place.arg()]).bad(1, &["has no keeper"]);
}

#[test]
fn restart_follows_a_renamed_cell_and_serves_a_crashed_one() {
    if !can_mount() {
        return;
    }
    let mut place = Place::new();
    place.up();
    write_durably(&place.mnt().join("file"), b"kept");
    let (old, new) = (place.dir.clone(), place.beside("new"));
    fs::rename(&old, &new).expect("rename");
    place.dir.clone_from(&new);
    let keeper = place.keeper().expect("a keeper");
    say(&["restart", place.arg()]).good();
    assert_eq!(fs::read(place.mnt().join("file")).expect("read"), b"kept");
    assert_eq!(place.keeper(), Some(keeper));
    // Its server has crashed and does not start: the next program may.
    break_settings(&place);
    place.kill();
    until("a failed try", || status(&place)["waiting"]["failed"].as_u64() > Some(0));
    say(&["restart", place.arg()]).bad(1, &["does not start", "dirty-mib"]);
    assert_eq!(place.keeper(), Some(keeper), "it goes on trying");
    mend_settings(&place);
    say(&["restart", place.arg()]).good();
    assert_eq!(fs::read(place.mnt().join("file")).expect("read"), b"kept");
    place.ask(&["sync"]).bad(1, &["may be lost"]);
    // A wish whose sender is gone does not bring back what ends in order.
    run(Command::new("sh").args(["-c", "kill -USR1 $0", &keeper.to_string()])).good();
    until("umount", || run(Command::new("umount").arg(place.mnt())).code == 0);
    until("the keeper's end", || !Place::is_keeper(keeper));
    assert_eq!(say(&["status", place.arg()]).code, 3);
}

#[test]
fn who_is_asked_to_end_does_not_go_on_as_another_program() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let keeper = waiting_keeper(&place);
    for number in [libc::SIGSTOP, libc::SIGUSR1, libc::SIGTERM, libc::SIGCONT] {
        signal(keeper, number);
    }
    until("the keeper's end", || !Place::is_keeper(keeper));
    let log = fs::read_to_string(place.dir.join("log")).expect("the log");
    assert!(log.contains("asked it to end") && !log.contains("lee restart"), "{log}");
}

#[test]
fn what_leads_elsewhere_by_now_is_not_mounted_over() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (above, target) = (place.beside("above"), place.beside("target"));
    fs::create_dir_all(above.join("at")).expect("mkdir");
    fs::create_dir_all(target.join("at")).expect("mkdir");
    fs::write(target.join("at/precious"), b"seen").expect("write");
    let at = above.join("at");
    say(&["up", place.arg(), "--background", "--mount", at.to_str().expect("UTF-8")]).good();
    fs::rename(&above, place.beside("renamed")).expect("rename");
    std::os::unix::fs::symlink(&target, &above).expect("a link");
    place.kill();
    until("a failed try", || status(&place)["waiting"]["failed"].as_u64() > Some(0));
    assert_eq!(fs::read(target.join("at/precious")).expect("read"), b"seen");
    say(&["down", place.arg()]).good();
}

#[test]
fn ends_of_children_are_heard_whatever_the_caller_ignored() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    // a shell cannot ignore them
    let up = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])";
    run(Command::new("python3").args(["-c", up, common::LEE, "up", place.arg(), "--background"])).good();
    kill_and_list(&place);
}

#[test]
fn sync_tells_once_that_a_crash_came_between() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    kill_and_list(&place);
    until("the server", || say(&["status", place.arg()]).code == 0);
    place.ask(&["sync"]).bad(1, &["may be lost"]);
    place.ask(&["sync"]).good();
    say(&["restart", place.arg()]).good();
    place.ask(&["sync"]).good();
}
