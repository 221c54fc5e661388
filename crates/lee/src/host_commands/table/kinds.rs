//! What only operators may ask, and machines of a kind: gateways, and other cells that send
//! snapshots to copies. Tried with every request that is in no row of the first table, and with
//! every call besides requests.

use super::{ALICE, ALLOWED, Asking, EVE, Fresh, Rig, WRITE, ask, asking, letters, rights_document, words};
use crate::control::Call;
use crate::control::server::Service;
use crate::host_commands::OF_GATEWAYS;
use leeward_volume::admin::{self, AnyRequest};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What requests are tried on: two copies, and a volume of root.
const VOLUMES: [(char, &str); 3] = [('C', "copy"), ('D', "second"), ('O', "other")];
/// Stands for one of these in what follows.
const VOLUME: &str = "VOLUME";

const ALL: [Asking; 6] = [
    asking("eve", EVE, ""),
    asking("alice", ALICE, "node"),
    asking("root", 0, "node"),
    Asking { gateway: true, ..asking("root", 0, "gateway") },
    Asking { mirror: true, ..asking("root", 0, "mirror") },
    Asking { mirror: true, only: "copy", ..asking("root", 0, "mirror-of-one") },
];
const HEADS: [&str; 6] = [
    "user of the serving machine",
    "user of another machine",
    "its root",
    "root of a gateway",
    "another cell that sends snapshots",
    "the same, for C only",
];

/// Requests for operators, one of each; and those that machines of a kind may ask besides.
const REQUESTS: &str = r#"
{"request":"backup-list"}
{"request":"backup-note","volume":"VOLUME","to":"/b","last":null,"pruned_secs":null,"tested":null}
{"request":"backup-set","backup":{"volume":"VOLUME","to":"/b","password_file":"","every_secs":9,"keep":"1d","since_secs":0,"pruned_secs":0,"last":null,"test_every_secs":0,"tested":null,"volume_number":0,"is_copy":false}}
{"request":"backup-unset","volume":"VOLUME","to":"/b"}
{"request":"bucket-create","name":"new","path":"/VOLUME","public":false}
{"request":"bucket-remove","name":"VOLUME"}
{"request":"bucket-set","name":"VOLUME","public":true,"cors":null}
{"request":"copy-create","name":"new","at":"/new","uid":0,"gid":0,"pool":null}
{"request":"copy-detach","name":"VOLUME","from":null}
{"request":"copy-limits","name":"VOLUME","from":{"dir":0},"to":null,"limits":[]}
{"request":"copy-list"}
{"request":"event-verify","against":[]}
{"request":"flow-list"}
{"request":"flow-reset","who":{"user":70001}}
{"request":"flow-set","who":{"user":70001},"weight":1,"ops_per_sec":null,"bytes_per_sec":null}
{"request":"format-raise"}
{"request":"fsck"}
{"request":"group-range","numbers":null}
{"request":"host-add","name":"new","volumes":[],"read_only":false,"uids":[],"root_squash":false,"gateway":false,"mirror":false,"trust":"host","valid_secs":9}
{"request":"host-invite","name":"node","valid_secs":9}
{"request":"host-list"}
{"request":"host-remove","name":"node","revoke_keys":null}
{"request":"host-set","name":"node","volumes":null,"read_only":false,"uids":null,"root_squash":null,"gateway":null,"trust":null}
{"request":"host-show","name":"node"}
{"request":"limit-list","volume":"VOLUME"}
{"request":"mirror-list"}
{"request":"mirror-note","volume":"VOLUME","to":"h:1","copy":"c","compared":null}
{"request":"mirror-proven","volume":"VOLUME","to":"h:1","copy":"c","proven":null}
{"request":"mirror-set","mirror":{"volume":"VOLUME","to":"h:1","key":null,"copy":"c","every_secs":9,"bytes_per_sec":0,"keep":"1d","since_secs":0,"is_copy":false}}
{"request":"mirror-unset","volume":"VOLUME","to":"h:1","copy":"c"}
{"request":"pool-create","name":"new","layout":"1","stores":["/nowhere"],"force":false}
{"request":"pool-list"}
{"request":"pool-remove","name":"default"}
{"request":"pool-show","name":"default"}
{"request":"pool-store","name":"default","change":{"change":"add","url":"/nowhere"},"force":false,"lose_data":false}
{"request":"pool-tier","name":"default","hot":"hot","flush_percent":50,"evict_percent":80}
{"request":"pool-untier","name":"default","wait":false}
{"request":"scrub","pool":null}
{"request":"scrub-every","pool":null,"every_secs":9}
{"request":"snap-digest","volume":"VOLUME","name":"s","from":null}
{"request":"snap-list","path":null,"volume":"VOLUME"}
{"request":"snap-lock","path":"/VOLUME","name":"s","until_secs":9}
{"request":"snap-receive","volume":"VOLUME","pipe":{"pid":0,"descriptor":0,"inode":0},"instead":true}
{"request":"snap-remove","path":"/VOLUME","name":"mirror-1"}
{"request":"snap-send","volume":"VOLUME","name":"s","from":null,"part":null,"pipe":{"pid":0,"descriptor":0,"inode":0}}
{"request":"snap-unlock","path":"/VOLUME","name":"s"}
{"request":"stats-show"}
{"request":"sync-all"}
{"request":"transfer-note","transfers":[]}
{"request":"transfer-report","from":"1970-01-01","to":null}
{"request":"user-set","name":"eve","disabled":true,"gids":null}
{"request":"volume-demote","name":"VOLUME","snapshot":"s"}
{"request":"shard-add","count":1}
{"request":"shard-list"}
{"request":"volume-create-in","name":"NEW","at":"/new","uid":0,"gid":0,"shard":0}
{"request":"volume-move-data","name":"VOLUME","to":"default","wait":false}
{"request":"volume-promote","name":"VOLUME","handed_over":null}
{"request":"volume-promote","name":"VOLUME","handed_over":"s"}
{"request":"volume-show","name":"VOLUME"}
"#;

/// Calls besides requests, one of each.
const CALLS: &str = r#"
{"call":"backup","about":{"ask":"list","which":{"volume":null,"to":null}}}
{"call":"console-link"}
{"call":"door-report","paths":null}
{"call":"down"}
{"call":"end-session","number":1}
{"call":"find-groups","name":"alice"}
{"call":"find-user","name":"root"}
{"call":"flows"}
{"call":"login","token":"x"}
{"call":"logout"}
{"call":"make-token","wanted":{"user":"USER","path":"/","activities":["DOWNLOAD"],"until_secs":1,"host":null}}
{"call":"mirror","about":{"ask":"status","which":{"volume":null,"to":null}}}
{"call":"mount"}
{"call":"sessions"}
{"call":"status"}
"#;

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty())
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Two copies to which nothing has come yet.
fn furnish(rig: &Rig) {
    for name in ["copy", "second"] {
        let (name, at) = (name.to_string(), format!("/{name}"));
        ask(
            &rig.cell,
            admin::CopyCreate { volume: admin::VolumeCreate { name, at, uid: 0, gid: 0, pool: None } },
        );
    }
}

/// What is told if it is not refused; `Null`: that the cell cannot do it, which is not asked here.
fn told(rig: &Rig, by: &Asking, call: &Value) -> Option<Value> {
    if rig.cell.volume_named("copy").is_none() {
        furnish(rig);
    }
    match rig.tell(by, call) {
        Ok(answer) => Some(answer),
        // the last: of a volume that is no copy
        Err(failure) if [libc::EPERM, libc::EACCES, libc::EEXIST].contains(&failure.errno) => None,
        Err(_) => Some(Value::Null),
    }
}

fn of_request(fresh: &mut Fresh, by: &Asking, (name, text): (&str, &str)) -> String {
    let is_of_its_kind = by.mirror || by.gateway && OF_GATEWAYS.contains(&name);
    if !is_of_its_kind && ALLOWED.contains(&name) {
        return "above".into();
    }
    let mut is_let = |text: &str| {
        fresh.try_on(|rig| told(rig, by, &json!({"call": "admin", "request": parsed(text)})).is_some())
    };
    if !text.contains(VOLUME) {
        return if is_let(text) { "yes" } else { "-" }.into();
    }
    letters(VOLUMES.iter().map(|(letter, name)| (*letter, is_let(&text.replace(VOLUME, name)))))
}

fn of_call(fresh: &mut Fresh, by: &Asking, text: &str) -> String {
    let (call, mut got) = (parsed(&text.replace("USER", by.name)), "-");
    fresh.try_on(|rig| {
        let Some(told) = told(rig, by, &call) else { return false };
        let all = match call["call"].as_str() {
            Some("status") => Some(json!(rig.service.running().expect("runs"))),
            Some("flows") => Some(json!(rig.service.flows())),
            _ => None,
        };
        got = if all.is_none_or(|all| all == told) { "yes" } else { "own" };
        true
    });
    got.into()
}

/// A new call is put into [`CALLS`], and here.
fn name_of(call: &Call) -> &'static str {
    match call {
        Call::Admin { .. } => "a request",
        Call::Backup { .. } => "(backups)",
        Call::ConsoleLink => "(link to the console)",
        Call::DoorReport { .. } => "(storage resource report)",
        Call::Down => "(end the server)",
        Call::EndSession { .. } => "(end a session)",
        Call::FindGroups { .. } => "(groups of a user)",
        Call::FindUser { .. } => "(numbers of a user)",
        Call::Flows => "(who does what)",
        Call::Login { .. } => "(log in to a mount)",
        Call::Logout => "(log out of it)",
        Call::MakeToken { .. } => "(make a token)",
        Call::Mirror { .. } => "(mirrors)",
        Call::Mount => "(how a mount does)",
        Call::Sessions => "(sessions of machines)",
        Call::Status => "(status)",
    }
}

fn document() -> String {
    let mut out = format!(
        "## What only operators and some machines ask\n\n\
<!-- Made by `{WRITE}=1 cargo test -p lee --bin lee host_commands::table`, which tries each of\n\
them: change crates/lee/src/host_commands. -->\n\n\
Of two copies **C** and **D**, and of **O**, a volume of root. A gateway's doors have checked what\n\
their user may do. Another cell (`lee host add NAME --mirror`) fills copies. What is in brackets is\n\
no request to the cell, but a question to the process that serves it; logging in, and how a mount\n\
does, is asked of the mount. *own*: it tells only what is the asker's; *above*: as the table above\n\
says.\n\
Operators (root, and the user who serves the cell) get all answers.\n\n"
    );
    let _ = writeln!(out, "| request | {} |", HEADS.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(HEADS.len()));
    let mut fresh = Fresh::new();
    for text in lines(REQUESTS) {
        let request: AnyRequest = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let what = if text.contains(r#""handed_over":"s""#) { ", handed over" } else { "" };
        let got: Vec<String> =
            ALL.iter().map(|by| of_request(&mut fresh, by, (request.name(), text))).collect();
        let _ = writeln!(out, "| {}{what} | {} |", words(request.name()), got.join(" | "));
    }
    for text in lines(CALLS) {
        let call: Call = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let got: Vec<String> = ALL.iter().map(|by| of_call(&mut fresh, by, text)).collect();
        let _ = writeln!(out, "| {} | {} |", name_of(&call), got.join(" | "));
    }
    out
}

#[test]
fn what_only_operators_ask_is_as_the_table_says() {
    let tried: BTreeSet<&str> = lines(REQUESTS)
        .map(|text| serde_json::from_str::<AnyRequest>(text).unwrap_or_else(|e| panic!("{text}: {e}")).name())
        .collect();
    let left_out: Vec<_> =
        AnyRequest::NAMES.iter().filter(|name| !ALLOWED.contains(name) && !tried.contains(**name)).collect();
    assert_eq!(left_out, Vec::<&&str>::new(), "every request that is for operators has a row");
    let calls: BTreeSet<&str> = lines(CALLS)
        .map(|text| name_of(&serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))))
        .collect();
    assert_eq!(calls.len(), lines(CALLS).count(), "every call has one row");
    rights_document::compare(&document());
}

/// Who looks after a project sees who is at work in it, with `lee top`.
#[test]
fn members_of_a_projects_group_see_who_is_at_work_in_it() {
    let rig = super::rig();
    let seen = |by: &Asking| {
        let flows = rig.tell(by, &json!({"call": "flows"})).expect("an answer");
        let mut volumes: Vec<String> =
            flows["volumes"].as_object().expect("names").values().map(Value::to_string).collect();
        volumes.sort();
        volumes
    };
    assert_eq!(seen(&asking("alice", ALICE, "node")), ["\"lab.raw\""], "bob is, and she is in the group");
    assert_eq!(seen(&asking("bob", super::BOB, "")), ["\"bob\"", "\"lab.raw\""], "his own");
    assert_eq!(seen(&asking("eve", EVE, "")), [""; 0]);
    let of_one = Asking { only: "bob", ..asking("alice", ALICE, "bobs") };
    assert_eq!(seen(&of_one), [""; 0], "the machine may not use it");
}
