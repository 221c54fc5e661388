//! Users, keys, tokens and the storage report by the real binary, with the cell up and down. Needs root and /dev/fuse; says
//! so and skips elsewhere.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Place, as_user, can_mount, lee, run};
use leeward_auth::Macaroon;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A user that every machine has.
const OF_MACHINE: &str = "daemon";

fn caveats(token: &str) -> Vec<String> {
    let macaroon = Macaroon::from_text(token).expect("a macaroon");
    assert!(macaroon.identifier.starts_with(b"leeward:1:"));
    macaroon.caveats.into_iter().map(|caveat| String::from_utf8(caveat).expect("UTF-8")).collect()
}

#[test]
fn users_keys_and_tokens() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    let made = place.ask(&["key", "create", OF_MACHINE, "--label", "laptop", "--json"]).json();
    assert_eq!((&made["user"], &made["label"]), (&OF_MACHINE.into(), &"laptop".into()));
    let secret = made["secret_access_key"].as_str().expect("a secret").to_string();
    let id = made["access_key_id"].as_str().expect("an id").to_string();
    assert!(id.len() == 20 && secret.len() == 40);

    place.ask(&["user", "create", "robot", "--uid", "4000001", "--gid", "4000001,50"]).good();
    let shown = place.ask(&["user", "show", "robot"]).good();
    assert!(shown.contains("4000001") && shown.contains("enabled"), "{shown}");
    let listed = place.ask(&["user", "list"]).good();
    assert!(listed.contains("of this machine") && listed.contains("robot"), "{listed}");

    let token = place.ask(&["token", "create", "robot", "--path", "/a/b", "--read", "--for", "1h"]).good();
    let said = caveats(token.trim());
    assert_eq!(said[..2], ["activity:READ_METADATA,LIST,DOWNLOAD", "path:/a/b"]);
    assert!(said[2].starts_with("before:20"), "{said:?}");
    let shown = place.ask(&["token", "create", OF_MACHINE, "--write", "--json"]).json();
    assert_eq!((&shown["user"], &shown["path"]), (&OF_MACHINE.into(), &"/".into()));
    assert!(caveats(shown["token"].as_str().expect("a token"))[0].contains("UPLOAD,MANAGE,DELETE"));

    // the same with nobody serving
    run(&mut lee(&["down", place.arg()])).good();
    for args in [&["key", "list"][..], &["key", "list", "--json"], &["user", "list", "--json"]] {
        let listed = place.ask(args).good();
        assert!(!listed.contains(&secret), "{listed}");
    }
    assert!(place.ask(&["key", "list", OF_MACHINE]).good().contains(&id));
    place.ask(&["key", "revoke", OF_MACHINE, &id]).good();
    assert!(place.ask(&["key", "list"]).good().contains("no keys"));
    place.ask(&["token", "revoke", "robot"]).good();
    place.ask(&["token", "revoke", "--all"]).good();
    place.ask(&["user", "disable", "robot"]).good();
    place.ask(&["token", "create", "robot", "--read"]).bad(1, &["robot", "disabled", "lee user enable"]);
    place.ask(&["user", "enable", "robot"]).good();
    place.ask(&["token", "create", "robot", "--read"]).good();

    for (args, words) in [
        (&["key", "create", "root"][..], &["root", "door"][..]),
        (&["key", "create", "no-such-user"], &["no-such-user", "lee user create"]),
        (&["token", "create", "no-such-user", "--read"], &["no-such-user", "lee user create"]),
        (&["user", "create", "no-such-user"], &["no-such-user", "--uid"]),
        (&["user", "create", OF_MACHINE, "--uid", "70000"], &[OF_MACHINE, "leave --uid out"]),
        (&["user", "create", "a:b", "--uid", "70000"], &["a:b", "another name"]),
        (&["user", "show", "nobody-here"], &["nobody-here", "lee user list"]),
        (&["key", "revoke", "robot", "LEEWNOTTHERE"], &["LEEWNOTTHERE", "lee key list"]),
    ] {
        place.ask(args).bad(1, words);
    }
    for args in [
        &["token", "create", "robot"][..],
        &["token", "revoke"],
        &["key", "revoke", "robot"],
        &["user", "create", "x", "--uid", "0"],
        &["user", "create", "x", "--gid", "5"],
    ] {
        place.ask(args).bad(2, &[]);
    }
}

#[test]
fn only_root_and_who_serves_may_ask() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    for args in [["key", "list", "--cell", place.arg()], ["user", "list", "--cell", place.arg()]] {
        let mut command = lee(&args);
        run(as_user(&mut command, 65534)).bad(1, &["permission"]);
    }
}

#[test]
fn the_storage_report_is_put_in_place_whole() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    place.ask(&["volume", "create", "atlas"]).good();
    place.ask(&["quota", "set", "/atlas", "--bytes", "1G"]).good();
    fs::write(place.mnt().join("atlas/x"), [7; 4096]).expect("write");
    let report = place.ask(&["report", "srr", "--json"]).json();
    let service = &report["storageservice"];
    assert_eq!(service["implementation"], "Leeward");
    let share = service["storageshares"].as_array().expect("shares").iter().find(|s| s["name"] == "atlas");
    let share = share.expect("the volume");
    assert_eq!((&share["totalsize"], &share["usedsize"]), (&(1u64 << 30).into(), &4096.into()));
    assert_eq!((&share["numberoffiles"], &share["vos"][0]), (&1.into(), &"atlas".into()));
    let file = place.beside("srr.json");
    for _ in 0..2 {
        place.ask(&["report", "srr", "--out", file.to_str().expect("UTF-8")]).good();
    }
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&file).expect("read")).expect("JSON");
    assert_eq!(shares(&written), shares(&report));
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o644);
    assert!(!place.beside("srr.json.new").exists());
    place
        .ask(&["report", "srr", "--out", "/no/such/directory/x"])
        .bad(1, &["/no/such/directory/x", "another file"]);
}

/// Shares without what changes from one moment to the next.
fn shares(report: &serde_json::Value) -> Vec<serde_json::Value> {
    let mut shares = report["storageservice"]["storageshares"].as_array().expect("shares").clone();
    for share in shares.iter_mut().filter_map(|share| share.as_object_mut()) {
        share.remove("timestamp");
        share.remove("totalsize");
    }
    shares
}
