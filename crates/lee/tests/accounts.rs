//! Users, keys, tokens, hosts and the storage report by the real binary, with the cell up and down.
//! Needs root and /dev/fuse; says so and skips elsewhere.
#![allow(clippy::disallowed_methods)]

use crate::common::{Place, as_user, can_mount, lee, run, until};
use leeward_auth::Macaroon;
use leeward_fs::invitation::InvitationToken;
use serde_json::json;
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
fn hosts() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    place.ask(&["volume", "create", "atlas"]).good();
    assert!(place.ask(&["host", "list"]).good().contains("lee host add NAME"));
    let added = place.ask(&["host", "add", "node01.example.org"]).good();
    let next = added.lines().last().expect("a line");
    let token = next.strip_prefix("on node01.example.org: lee mount HOST[:PORT] PATH --token ").expect(next);
    let first = InvitationToken::parse(token).expect("a token");
    let wish =
        ["--volumes", "atlas", "--uids", "1000-1999,2500", "--read-only", "--root-squash", "--valid", "2h"];
    let made = place.ask(&[&["host", "add", "b", "--json"], &wish[..]].concat()).json();
    assert_eq!((&made["reply"], &made["name"]), (&"host-invited".into(), &"b".into()));
    let valid = made["invited_until_secs"].as_i64().zip(made["created_secs"].as_i64());
    assert_eq!(valid.map(|(until, created)| until - created), Some(7200));
    let second = InvitationToken::parse(made["token"].as_str().expect("a token")).expect("a token");
    assert!(first.cell_key == second.cell_key && first.secret != second.secret);
    let listed = place.ask(&["host", "list"]).good();
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split("  ").filter(|c| !c.is_empty()).map(str::trim).collect())
        .collect();
    assert_eq!(rows[1], ["b", "not yet", "atlas", "read", "1000-1999,2500", "acts as nobody", "none"]);
    let of_first = ["node01.example.org", "not yet", "all", "read and write", "all", "acts as root", "none"];
    assert_eq!(rows[2], of_first);

    // the same with nobody serving
    run(&mut lee(&["down", place.arg()])).good();
    assert_eq!(place.ask(&["host", "list"]).good(), listed);
    let set = ["host", "set", "b", "--all-volumes", "--read-write", "--uids", "5", "--no-root-squash"];
    let shown = place.ask(&set).good();
    for line in
        ["volumes  all", "access   read and write", "users    5", "root     is refused", "enrolled not yet"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(place.ask(&["host", "show", "b"]).good(), shown);
    let shown = place.ask(&["host", "set", "b", "--all-uids", "--json"]).json();
    assert_eq!(
        (&shown["uids"], &shown["read_only"], &shown["key"]),
        (&json!([]), &false.into(), &json!(null))
    );
    let again = place.ask(&["host", "invite", "b", "--valid", "1s"]).good();
    assert!(again.starts_with("invited host b; the token is valid once, until 20"), "{again}");
    until("the token has expired", || {
        place.ask(&["host", "show", "b"]).good().contains("token    expired 20")
    });
    place.ask(&["host", "remove", "b"]).good();
    place.ask(&["host", "show", "b"]).bad(1, &["no host b", "lee host list"]);

    for (args, words) in [
        (&["host", "add", "node01.example.org"][..], &["already", "lee host invite node01.example.org"][..]),
        (&["host", "add", "a:b"], &["a:b", "another name"]),
        (&["host", "add", "c", "--volumes", "nowhere"], &["nowhere", "lee volume list"]),
        (&["host", "invite", "nobody"], &["no host nobody", "lee host list"]),
        (&["host", "remove", "nobody"], &["no host nobody"]),
    ] {
        place.ask(args).bad(1, words);
    }
    for (args, words) in [
        (&["host", "add", "c", "--uids", "7-6"][..], &["7-6", "1000-1999"][..]),
        (&["host", "add", "c", "--valid", "1w"], &["1w"]),
        (&["host", "set", "node01.example.org"], &["--read-only"]),
        (&["host", "set", "node01.example.org", "--read-only", "--read-write"], &["--read-write"]),
        (&["host", "add"], &["<NAME>"]),
    ] {
        place.ask(args).bad(2, words);
    }
}

#[test]
fn only_root_and_who_serves_may_ask() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.up();
    for list in ["pool", "flow", "host"] {
        let mut command = lee(&[list, "list", "--cell", place.arg()]);
        run(as_user(&mut command, 65534)).bad(1, &["operators"]);
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
