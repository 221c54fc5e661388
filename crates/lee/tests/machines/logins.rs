//! A machine that is not believed who its users are: `lee host add --trust user`, `lee login`,
//! `lee logout`.

use crate::common::machines::{Machine, Served};
use crate::common::{Said, as_user, can_mount, lee, run, until};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Numbers of two users on the machine, and in the cell.
const HERE: [u32; 2] = [41_001, 41_002];
const THERE: [u32; 2] = [70_001, 70_002];
const NAMES: [&str; 2] = ["alice", "bob"];

/// A cell with alice and bob, and their tokens.
fn served() -> (Served, [String; 2]) {
    let served = Served::new();
    let tokens = [0, 1].map(|n| {
        let uid = THERE[n].to_string();
        served.ask(&["user", "create", NAMES[n], "--uid", &uid]).good();
        token(&served, NAMES[n], &[])
    });
    // users of the machine go through it
    let above = served.place.dir.parent().expect("a directory above");
    fs::set_permissions(above, fs::Permissions::from_mode(0o711)).expect("set");
    (served, tokens)
}

fn token(served: &Served, user: &str, more: &[&str]) -> String {
    let line = [&["token", "create", user, "--read", "--write", "--json"], more].concat();
    served.ask(&line).json()["token"].as_str().expect("a token").to_owned()
}

fn log_in(machine: &Machine, uid: u32, token: &str) -> Said {
    let at = machine.at.to_str().expect("UTF-8");
    run(as_user(machine.here(lee(&["login", at, "--json"]).env("LEE_TOKEN", token).current_dir("/")), uid))
}

fn log_out(machine: &Machine, uid: u32) -> Said {
    let at = machine.at.to_str().expect("UTF-8");
    run(as_user(machine.here(lee(&["logout", at, "--json"]).current_dir("/")), uid))
}

/// What a shell says, run by a user of the machine in the mount.
fn shell(machine: &Machine, uid: u32, script: &str) -> Said {
    let script = format!("cd {} && {script}", machine.at.display());
    run(as_user(Command::new("sh").arg("-c").arg(script).current_dir("/"), uid))
}

fn denied(said: &Said) {
    let is_denied = ["Permission denied", "can't cd"].iter().any(|text| said.err.contains(text));
    assert!(said.code != 0 && is_denied, "{said:?}");
}

#[test]
fn users_of_a_machine_that_is_not_believed_log_in() {
    if !can_mount() {
        return;
    }
    let (served, [alice, bob]) = served();
    let home = served.machine("server", &[], &[]);
    for (name, uid) in NAMES.iter().zip(THERE) {
        fs::create_dir(home.path(name)).expect("made");
        std::os::unix::fs::chown(home.path(name), Some(uid), Some(uid)).expect("given away");
        fs::set_permissions(home.path(name), fs::Permissions::from_mode(0o700)).expect("set");
    }
    let laptop = served.machine("laptop", &["--trust", "user"], &[]);
    assert!(served.ask(&["host", "show", "laptop"]).good().contains("lee login"));
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
    let at = laptop.at.display().to_string();
    let options = mounts.lines().find(|line| line.contains(&at)).expect("mounted");
    assert!(options.contains("nosuid,nodev") && !options.contains("default_permissions"), "{options}");
    // nobody has logged in: not root of the machine, nor who has the number of alice in the cell
    for uid in [0, HERE[0], THERE[0]] {
        denied(&shell(&laptop, uid, "ls"));
        denied(&shell(&laptop, uid, "cat alice/x"));
    }
    let said = log_in(&laptop, HERE[0], &alice).json();
    assert_eq!((&said["user"]["name"], &said["user"]["uid"]), (&"alice".into(), &THERE[0].into()));
    log_in(&laptop, HERE[1], &bob).good();
    shell(&laptop, HERE[0], "echo secret >alice/diary && mkdir alice/dir && echo '#!/bin/sh\necho ran' >alice/run && chmod 600 alice/diary && chmod 755 alice/run && alice/run | grep -q ran && cp alice/diary alice/dir/copy").good();
    let meta = fs::metadata(home.path("alice/diary")).expect("there");
    assert_eq!((meta.uid(), meta.mode() & 0o777), (THERE[0], 0o600));
    assert_eq!(shell(&laptop, HERE[0], "cat alice/diary").good(), "secret\n");
    denied(&shell(&laptop, HERE[1], "ls alice"));
    denied(&shell(&laptop, HERE[1], "cat alice/diary"));
    denied(&shell(&laptop, 0, "cat alice/diary"));
    // what is checked when a file is opened: the kernel of the machine has its pages
    fs::set_permissions(home.path("alice"), fs::Permissions::from_mode(0o711)).expect("set");
    denied(&shell(&laptop, HERE[1], "cat alice/diary"));
    denied(&shell(&laptop, HERE[1], "echo x >>alice/diary"));
    assert_eq!(shell(&laptop, HERE[1], "test -r alice/diary || test -w alice/diary").code, 1);
    shell(&laptop, HERE[0], "chmod 644 alice/diary").good();
    assert_eq!(shell(&laptop, HERE[1], "cat alice/diary").good(), "secret\n");
    denied(&shell(&laptop, HERE[1], "rm -f alice/diary"));
    shell(&laptop, HERE[1], "cd bob && ls -l . && echo hers >x && mv x y && rm y").good();
    // commands are the user's
    let dir = laptop.path("alice/dir").display().to_string();
    let at = laptop.at.display().to_string();
    let line = ["du", &dir, "--cell", &at];
    let usage = |uid: u32| run(as_user(laptop.here(lee(&line).current_dir("/")), uid));
    usage(HERE[0]).good();
    assert_ne!(usage(0).code, 0);
    assert!(log_out(&laptop, HERE[0]).json()["user"]["name"] == "alice");
    denied(&shell(&laptop, HERE[0], "ls"));
    assert!(log_out(&laptop, HERE[0]).json()["user"].is_null());
    assert_eq!(shell(&laptop, HERE[1], "cat alice/diary").good(), "secret\n", "bob stays");
}

#[test]
fn tokens_are_good_where_they_are_meant_for() {
    if !can_mount() {
        return;
    }
    let (served, [alice, bob]) = served();
    let laptop = served.machine("laptop", &["--trust", "user"], &[]);
    let refused = |token: &str, why: &str| {
        let said = log_in(&laptop, HERE[0], token);
        assert!(said.code != 0 && said.err.contains(why), "{said:?}");
        assert!(!said.err.contains(token), "a token is not printed");
    };
    refused("nonsense", "not");
    refused(&token(&served, "alice", &["--path", "/a"]), "lee token create USER --read --write");
    refused(&leeward_auth::bound_to_host(&alice, "other"), "for logins of the machine other only");
    let said = run(lee(&["login", "/"]).env("LEE_TOKEN", &alice));
    assert!(said.code != 0, "{said:?}");
    log_in(&laptop, HERE[0], &leeward_auth::bound_to_host(&alice, "laptop")).good();
    log_in(&laptop, HERE[1], &bob).good();
    // the server ends, and is killed: programs wait, and who has logged in stays so
    for ends in [true, false] {
        if ends {
            served.ask(&["down", served.place.arg()]).good();
            // who waits for an answer to an open can be killed
            let mut waiting = as_user(Command::new("ls").arg(&laptop.at), HERE[0]).spawn().expect("begun");
            std::thread::sleep(Duration::from_millis(300));
            waiting.kill().expect("killed");
            until("it is gone", || waiting.try_wait().expect("asked").is_some());
            served.serve_again();
        } else {
            served.place.kill();
            served.serve_again();
        }
        shell(&laptop, HERE[0], "ls").good();
    }
    let is_out = |uid: u32| shell(&laptop, uid, "ls").code != 0;
    served.ask(&["token", "revoke", "alice"]).good();
    until("alice is out", || is_out(HERE[0]));
    assert!(!is_out(HERE[1]));
    served.ask(&["user", "disable", "bob"]).good();
    until("bob is out", || is_out(HERE[1]));
    assert!(Path::new(&laptop.at).is_dir(), "the mount itself is there");
}

#[test]
fn a_machine_that_is_believed_from_now_on_is_mounted_anew() {
    if !can_mount() {
        return;
    }
    let (served, [alice, _]) = served();
    let laptop = served.machine("laptop", &["--trust", "user"], &["--timeout", "1s"]);
    log_in(&laptop, HERE[0], &alice).good();
    served.ask(&["host", "set", "laptop", "--trust", "host"]).good();
    until("nobody does anything", || shell(&laptop, HERE[1], "ls").code != 0);
    drop(laptop);
    let token = served.ask(&["host", "invite", "laptop", "--json"]).json();
    let laptop = Machine::again(&served, "laptop");
    laptop.mount(&["--token", token["token"].as_str().expect("a token")]).good();
    shell(&laptop, HERE[1], "ls").good();
    let said = log_in(&laptop, HERE[1], &alice);
    assert!(said.code != 0 && said.err.contains("nobody needs to log in"), "{said:?}");
}
