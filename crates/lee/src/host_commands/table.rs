//! Who may ask what, tried with every request that users may ask, on three volumes; and the first
//! part of `docs/RIGHTS.md`, which is the outcome.

use super::{ALLOWED, Eyes, narrowed, projects, shown};
use crate::rights_document::{self, WRITE};
use leeward_env::disk::sim::SimDisk;
use leeward_env::{Ctx, Env, Wait};
use leeward_fs::accounts::Trust;
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{Fs, Make, NodeId, Op, Precondition, SetAttr};
use leeward_meta::Kv;
use leeward_meta::mem::MemKv;
use leeward_pool::DirStore;
use leeward_remote::{Asker, Grant};
use leeward_volume::admin::{self, AnyRequest, Day, EventFilter, GroupKey, Request};
use leeward_volume::{Cell, Config, first_batch};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

const ALICE: u32 = 70_001;
const BOB: u32 = 70_002;
const CAROL: u32 = 70_003;
const EVE: u32 = 70_004;

/// A volume that a request is about, and where it is.
struct Target {
    letter: char,
    volume: &'static str,
    at: &'static str,
    /// What names begin with that are given there.
    begin: &'static str,
}

const TARGETS: [Target; 3] = [
    Target { letter: 'P', volume: "lab.raw", at: "/p/raw", begin: "lab." },
    Target { letter: 'H', volume: "bob", at: "/bob", begin: "x." },
    Target { letter: 'O', volume: "other", at: "/other", begin: "x." },
];

/// Somebody who asks.
struct Asking {
    name: &'static str,
    uid: u32,
    /// The machine; empty: the one that serves the cell.
    host: &'static str,
    read_only: bool,
    /// Whether the machine may use the volume of bob only.
    bounded: bool,
}

const fn asking(name: &'static str, uid: u32, host: &'static str) -> Asking {
    Asking { name, uid, host, read_only: false, bounded: false }
}

const ALL: [Asking; 7] = [
    asking("eve", EVE, ""),
    asking("bob", BOB, ""),
    asking("carol", CAROL, ""),
    asking("alice", ALICE, "node"),
    Asking { read_only: true, ..asking("alice", ALICE, "reader") },
    Asking { bounded: true, ..asking("alice", ALICE, "bobs") },
    asking("root", 0, "node"),
];
const HEADS: [&str; 7] = [
    "stranger",
    "owner of P and H",
    "owner of the group",
    "member of the group",
    "the same, machine that may only read",
    "the same, machine for H only",
    "root of another machine",
];

fn cell() -> Arc<Cell> {
    let (env, disk) = (Env::sim(1), SimDisk::new(1));
    let on = Arc::new(disk);
    let kv = MemKv::open(env.clone(), on.clone()).expect("opens");
    kv.commit(&first_batch(&env, 0, 0)).expect("the first commit");
    let store = Arc::new(DirStore::new(on, "data"));
    let cell = Cell::start(&env, Box::new(kv), store, &Config::default()).expect("a cell");
    furnish(&cell);
    cell
}

fn ask<R: Request>(cell: &Cell, request: R) -> R::Reply {
    let text = format!("{request:?}");
    cell.admin(&request, &mut |_| ()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Users, a group with a project, a volume in it, one of bob's, and one of root's.
fn furnish(cell: &Arc<Cell>) {
    for (name, uid) in [("alice", ALICE), ("bob", BOB), ("carol", CAROL), ("eve", EVE)] {
        ask(cell, admin::UserCreate { name: name.into(), uid: Some(uid), gids: Vec::new() });
    }
    let group = |name: &str| {
        ask(cell, admin::GroupCreate { name: name.into(), owner: Some("carol".into()), gid: None, by: None });
        ask(cell, admin::GroupAdd { name: name.into(), members: vec!["alice".into()], by: None });
    };
    ["carol:lab", "carol:spare"].into_iter().for_each(group);
    make_dir(cell, "/p", 0o755, 0);
    let project = |name: &str, at: &str| {
        let (name, at, owner) = (name.into(), at.into(), "carol:lab".into());
        let budget = admin::Budget::default();
        ask(cell, admin::ProjectCreate { name, at, owner, budget, pool: None, counts_snapshots: None });
    };
    project("lab", "/p");
    make_dir(cell, "/p/sub", 0o755, 0);
    project("lab.sub", "/p/sub");
    for Target { volume, at, .. } in TARGETS {
        let uid = if volume == "other" { 0 } else { BOB };
        let (name, at) = (volume.to_string(), at.to_string());
        ask(cell, admin::VolumeCreate { name, at: at.clone(), uid, gid: uid, pool: None });
        let set = admin::PropertyChanges { bin_days: Some(9), ..admin::PropertyChanges::default() };
        ask(cell, admin::VolumeSet { name: volume.into(), set });
        make_dir(cell, &format!("{at}/d"), 0o700, uid);
        let dir = node(cell, &at);
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        cell.call(&Ctx::system(), Op::SetAttr { node: dir, set }).expect("closed");
        let op = Op::Make { dir, name: b"gone", make: Make::File, mode: 0o644, umask: 0 };
        let file = cell.call(&Ctx::system(), op).and_then(|reply| reply.attr()).expect("made").node;
        let write = Op::Write { node: file, offset: 0, data: b"x" };
        cell.call(&Ctx::system(), write).expect("written");
        cell.call(&Ctx::system(), Op::Unlink { dir, name: b"gone", over: Precondition::Any })
            .expect("removed");
        ask(cell, admin::QuotaSet { path: at.clone(), bytes: Some(1 << 40), files: None });
        ask(cell, admin::SnapCreate { path: at.clone(), name: "s".into() });
        ask(cell, admin::ScheduleSet { path: at, interval_secs: 3600, keep: "3h".into() });
    }
    for by in ALL.iter().filter(|by| !by.host.is_empty() && by.uid != 0) {
        let volumes = if by.bounded { vec!["bob".to_owned()] } else { Vec::new() };
        ask(
            cell,
            admin::HostAdd {
                name: by.host.into(),
                volumes,
                read_only: by.read_only,
                uids: Vec::new(),
                root_squash: false,
                gateway: false,
                mirror: false,
                trust: Trust::Host,
                valid_secs: 60,
            },
        );
    }
}

fn node(cell: &Arc<Cell>, path: &str) -> NodeId {
    path.split('/').filter(|name| !name.is_empty()).fold(NodeId::ROOT, |dir, name| {
        let op = Op::Lookup { dir, name: name.as_bytes() };
        cell.call(&Ctx::user(0, 0), op).and_then(|reply| reply.attr()).expect("there").node
    })
}

fn make_dir(cell: &Arc<Cell>, path: &str, mode: u32, uid: u32) {
    let (above, name) = path.rsplit_once('/').expect("a slash");
    let op = Op::Make { dir: node(cell, above), name: name.as_bytes(), make: Make::Dir, mode, umask: 0 };
    let made = cell.call(&Ctx::user(0, 0), op).and_then(|reply| reply.attr()).expect("made").node;
    let set = SetAttr { uid: Some(uid), gid: Some(uid), ..SetAttr::default() };
    cell.call(&Ctx::user(0, 0), Op::SetAttr { node: made, set }).expect("given away");
}

/// Requests about a volume, or what is in it. An operator gets an answer to each.
fn about(target: &Target) -> Vec<AnyRequest> {
    let (at, volume) = (target.at.to_string(), target.volume.to_string());
    let path = || at.clone();
    let name = || volume.clone();
    let below = |leaf: &str| format!("{at}/{leaf}");
    let named = |leaf: &str| format!("{}{leaf}", target.begin);
    let grant = admin::AclGrant { who: UserOrGroup::User(EVE), rights: [admin::Right::Read].into() };
    let newest = EventFilter::default();
    let bin = admin::PropertyChanges { bin_days: Some(8), ..admin::PropertyChanges::default() };
    let budget = admin::Budget::default();
    let owner = "carol:lab".to_string();
    vec![
        admin::AclSet { path: path(), grants: vec![grant], recursive: false }.into(),
        admin::AclShow { path: path() }.into(),
        admin::BinEmpty { volume: Some(name()) }.into(),
        admin::BinRestore { path: below("gone"), at_secs: None, to: None }.into(),
        admin::BucketCreate { name: named("new"), path: path(), public: false }.into(),
        admin::BucketRemove { name: name() }.into(),
        admin::EventList {
            path: Some(path()),
            cursor: None,
            newest_first: true,
            until_now: false,
            filter: newest,
            limit: 9,
        }
        .into(),
        admin::FileCensus { path: path() }.into(),
        admin::OwnerLimit { volume: Some(name()), who: UserOrGroup::User(EVE), bytes: Some(9), files: None }
            .into(),
        admin::ProjectCreate {
            name: named("new"),
            at: below("d"),
            owner,
            budget,
            pool: None,
            counts_snapshots: None,
        }
        .into(),
        admin::ProjectMove { volume: name(), to: Some("lab.sub".into()) }.into(),
        admin::QuotaSet { path: path(), bytes: Some(1 << 30), files: None }.into(),
        admin::QuotaShow { path: path() }.into(),
        admin::ScheduleRemove { path: path() }.into(),
        admin::ScheduleSet { path: below("d"), interval_secs: 3600, keep: "3h".into() }.into(),
        admin::SnapCreate { path: path(), name: "t".into() }.into(),
        admin::SnapDiff { path: path(), from: "s".into(), to: None }.into(),
        admin::SnapList { path: Some(path()), volume: None }.into(),
        admin::SnapRemove { path: path(), name: "s".into() }.into(),
        admin::SnapRename { path: path(), name: "s".into(), to: "t".into() }.into(),
        admin::SnapRestore { path: path(), name: "s".into(), what: "d".into(), to: None, in_place: true }
            .into(),
        admin::SnapUsageList { volume: Some(name()) }.into(),
        admin::UsageShow { path: path() }.into(),
        admin::VolumeAllow { name: name(), users: vec![EVE], groups: Vec::new(), allow: true }.into(),
        admin::VolumeCreate { name: named("v"), at: below("v"), uid: BOB, gid: BOB, pool: None }.into(),
        admin::VolumeRemove { name: name() }.into(),
        admin::VolumeRename { name: name(), to: named("renamed") }.into(),
        admin::VolumeSet { name: name(), set: bin }.into(),
        admin::VolumeShow { name: name() }.into(),
    ]
}

/// Requests about what the asker is, or all.
fn about_none(asker: &Asking) -> Vec<AnyRequest> {
    // of an operator it is alice's
    let own = if asker.uid == 0 { "alice" } else { asker.name };
    let lab = || "carol:lab".to_string();
    let by = || None;
    vec![
        admin::BinList { path: None, newest: None }.into(),
        admin::BucketList.into(),
        admin::DfShow.into(),
        admin::GroupAdd { name: lab(), members: vec!["eve".into()], by: by() }.into(),
        admin::GroupCreate { name: format!("{own}:new"), owner: None, gid: None, by: by() }.into(),
        admin::GroupDrop { name: lab(), members: vec!["alice".into()], by: by() }.into(),
        admin::GroupFind { key: GroupKey::User(own.into()) }.into(),
        admin::GroupLimit { user: own.into(), groups: None }.into(),
        admin::GroupList { of: None }.into(),
        admin::GroupRemove { name: "carol:spare".into(), by: by() }.into(),
        admin::GroupSet { name: lab(), owner: "alice".into(), by: by() }.into(),
        admin::GroupShow { name: lab() }.into(),
        admin::KeyCreate { user: own.into(), label: String::new(), host: None }.into(),
        admin::KeyList { user: Some(own.into()) }.into(),
        admin::KeyRevoke { user: own.into(), access_key_id: None }.into(),
        admin::OwnerUsage { volume: None, who: Vec::new(), limited: false }.into(),
        admin::ProjectList.into(),
        admin::ProjectRemove { name: "lab.sub".into() }.into(),
        admin::ProjectSet {
            name: "lab.sub".into(),
            budget: admin::Budget { bytes: Some(1 << 30), ..admin::Budget::default() },
            ..admin::ProjectSet::default()
        }
        .into(),
        admin::ProjectShow { name: "lab".into() }.into(),
        admin::QuotaList.into(),
        admin::ScheduleList.into(),
        admin::TokenMake {
            user: own.into(),
            path: "/".into(),
            activities: vec!["DOWNLOAD".into()],
            until_secs: 1,
            host: None,
        }
        .into(),
        admin::TokenRevoke { user: Some(own.into()) }.into(),
        admin::UsageReport {
            of: admin::Sampled::Volume,
            from: Day(0),
            to: None,
            only: Vec::new(),
            daily: false,
        }
        .into(),
        admin::UserCreate { name: own.into(), uid: None, gids: Vec::new() }.into(),
        admin::UserList.into(),
        admin::UserShow { name: own.into() }.into(),
        admin::VolumeList.into(),
    ]
}

/// What a user gets: the answer, or `None` where it is refused.
fn answer(cell: &Arc<Cell>, by: &Asking, request: &AnyRequest) -> Option<String> {
    let bobs = cell.volume_named("bob").expect("bob's volume");
    let mut grant = Grant { read_only: by.read_only, ..Grant::default() };
    if by.bounded {
        grant.volumes = vec![bobs];
        grant.ways.entry(NodeId::ROOT).or_default().insert(b"bob"[..].into());
    }
    let ctx = Ctx { wait: Wait::Allowed, ..Ctx::user(by.uid, by.uid) };
    let asker = Asker { host: by.host.into(), grant, ctx };
    let eyes = Eyes { cell, asker: &asker, ctx: projects::context(cell, &asker), now_secs: 0 };
    let request_as = narrowed(&eyes, request).map_err(|e| e.errno);
    let answer = request_as.and_then(|narrowed| {
        let reply = cell.admin_any(&eyes.ctx, &narrowed, &mut |_| ());
        reply.map(|reply| shown(&eyes, request, reply)).map_err(|e| e.errno)
    });
    match answer {
        // the user is there
        Err(libc::EEXIST) if matches!(request, AnyRequest::UserCreate(_)) => Some(String::new()),
        Ok(reply) => Some(serde_json::to_string(&reply).expect("JSON")),
        Err(libc::EPERM | libc::EACCES | libc::EROFS | libc::ENOENT) => None,
        Err(other) => panic!("{} of {}: error {other}", request.name(), by.name),
    }
}

/// A request in words, as `lee` has it: `VolumeCreate` is `volume create`.
fn words(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// Rows of the table: a request, and what each asker gets.
fn rows() -> Vec<(String, Vec<String>)> {
    let mut spare = cell();
    // what was answered may have changed something
    let mut fresh = |was_answered: bool| {
        if was_answered {
            spare = cell();
        }
        spare.clone()
    };
    let mut rows = Vec::new();
    let mut is_used = false;
    for n in 0..about(&TARGETS[0]).len() {
        let mut got = Vec::new();
        for by in &ALL {
            let mut letters = String::new();
            for target in &TARGETS {
                let request = &about(target)[n];
                let cell = fresh(is_used);
                is_used = answer(&cell, by, request).is_some();
                if is_used {
                    letters.push(target.letter);
                }
            }
            got.push(if letters.is_empty() { "-".into() } else { letters });
        }
        for target in &TARGETS {
            let operator = fresh(true).admin_any(&Ctx::system(), &about(target)[n], &mut |_| ());
            operator.unwrap_or_else(|e| panic!("an operator, {:?}: {e}", about(target)[n]));
            is_used = true;
        }
        rows.push((about(&TARGETS[0])[n].name().to_string(), got));
    }
    for n in 0..about_none(&ALL[0]).len() {
        let mut got = Vec::new();
        for by in &ALL {
            let request = &about_none(by)[n];
            let all = fresh(true).admin_any(&Ctx::system(), request, &mut |_| ());
            let all = match all {
                Ok(all) => serde_json::to_string(&all).expect("JSON"),
                Err(e) if e.errno == libc::EEXIST => String::new(),
                Err(e) => panic!("an operator, {request:?}: {e}"),
            };
            got.push(match answer(&fresh(true), by, request) {
                None => "-".into(),
                Some(answer) if request.is_noted() || answer == all => "yes".into(),
                Some(_) => "own".into(),
            });
        }
        rows.push((about_none(&ALL[0])[n].name().to_string(), got));
    }
    rows.sort();
    rows
}

fn document() -> String {
    let rows = rows();
    let tried: BTreeSet<&str> = rows.iter().map(|(name, _)| &**name).collect();
    let allowed: BTreeSet<&str> = ALLOWED.into_iter().collect();
    assert_eq!(tried, allowed, "every request that users may ask has a row");
    let mut out = format!(
        "# Who may ask what\n\n\
<!-- Made by `{WRITE}=1 cargo test -p lee --bin lee host_commands::table`, which tries each of\n\
them: change crates/lee/src/host_commands. -->\n\n\
Commands of `lee` are requests to the cell. Users give them on the machine that serves the cell, or\n\
on one that mounts it. The table shows who gets an answer about which volume: **P**, which is in a\n\
project that a group looks after, **H**, a home, **O**, one of root. Only their owners may look into\n\
the directories of all three. *own*: it tells, or changes, only what is the asker's.\n\
Operators (root, and the user who serves the cell) get all answers.\n\n\
Files are another matter: modes and ACLs say who may read and change them, in mounts and at doors.\n\n"
    );
    let _ = writeln!(out, "| request | {} |", HEADS.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(HEADS.len()));
    for (name, got) in &rows {
        let _ = writeln!(out, "| {} | {} |", words(name), got.join(" | "));
    }
    let others: Vec<String> =
        AnyRequest::NAMES.iter().filter(|name| !allowed.contains(**name)).map(|name| words(name)).collect();
    let mut line = String::from("For operators only:");
    out.push('\n');
    for (n, name) in others.iter().enumerate() {
        let word = format!(" {name}{}", if n + 1 == others.len() { "." } else { "," });
        if line.len() + word.len() > 100 {
            let _ = writeln!(out, "{line}");
            line = word.trim_start().into();
        } else {
            line.push_str(&word);
        }
    }
    let _ = writeln!(out, "{line}");
    out
}

#[test]
fn rights_are_as_the_table_says() {
    rights_document::compare(&document());
}
