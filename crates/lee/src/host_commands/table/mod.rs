//! Who may ask what, tried with every request and every call; and the first parts of
//! `docs/RIGHTS.md`, which are the outcome.

mod kinds;
mod requests;

use super::stand_in::{self, StandIn, ask, node};
use super::{ALLOWED, HostCommands};
use crate::control::last_answer;
use crate::rights_document::{self, WRITE};
use leeward_env::disk::sim::SimDisk;
use leeward_env::{Ctx, Env, Wait};
use leeward_fs::accounts::Trust;
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{Fs, Make, NodeId, Op, Precondition, SetAttr};
use leeward_meta::Kv;
use leeward_meta::mem::MemKv;
use leeward_pool::DirStore;
use leeward_remote::{Asker, Given, Grant};
use leeward_volume::admin::{self, AnyRequest, Failure};
use leeward_volume::{Cell, Config, first_batch};
use requests::{about, about_none};
use serde_json::{Value, json};
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
    /// The only volume that the machine may use; empty: all.
    only: &'static str,
    /// Whether the machine is not believed who its users are.
    by_tokens: bool,
    /// Whether it may run doors.
    gateway: bool,
    /// Whether it is another cell that sends snapshots to copies.
    mirror: bool,
}

const fn asking(name: &'static str, uid: u32, host: &'static str) -> Asking {
    Asking { name, uid, host, read_only: false, only: "", by_tokens: false, gateway: false, mirror: false }
}

const ALL: [Asking; 8] = [
    asking("eve", EVE, ""),
    asking("bob", BOB, ""),
    asking("carol", CAROL, ""),
    asking("alice", ALICE, "node"),
    Asking { read_only: true, ..asking("alice", ALICE, "reader") },
    Asking { only: "bob", ..asking("alice", ALICE, "bobs") },
    Asking { by_tokens: true, ..asking("alice", ALICE, "believed-in-nothing") },
    asking("root", 0, "node"),
];
const HEADS: [&str; 8] = [
    "stranger",
    "owner of P and H",
    "owner of the group",
    "member of the group",
    "the same, machine that may only read",
    "the same, machine for H only",
    "the same, machine with `--trust user`",
    "root of another machine",
];

/// A cell, and what runs the commands of users of other machines.
struct Rig {
    cell: Arc<Cell>,
    commands: Arc<HostCommands>,
    service: Arc<StandIn>,
}

fn rig() -> Rig {
    let (env, disk) = (Env::sim(1), SimDisk::new(1));
    let on = Arc::new(disk);
    let kv = MemKv::open(env.clone(), on.clone()).expect("opens");
    kv.commit(&first_batch(&env, 0, 0)).expect("the first commit");
    let store = Arc::new(DirStore::new(on, "data"));
    let cell = Cell::start(&env, Box::new(kv), store, &Config::default()).expect("a cell");
    furnish(&cell);
    cell.prepare_tokens().expect("a key that signs");
    let (commands, service) = stand_in::commands(&env, &cell, None);
    Rig { cell, commands, service }
}

impl Rig {
    /// What somebody gets who makes this call, as JSON.
    fn tell(&self, by: &Asking, call: &Value) -> Result<Value, Failure> {
        let mut grant = Grant {
            read_only: by.read_only,
            by_tokens: by.by_tokens,
            gateway: by.gateway,
            mirror: by.mirror,
            ..Grant::default()
        };
        if !by.only.is_empty() {
            grant.volumes = vec![self.cell.volume_named(by.only).expect("a volume")];
            grant.ways.entry(NodeId::ROOT).or_default().insert(by.only.as_bytes().into());
        }
        let ctx = Ctx { wait: Wait::Allowed, ..Ctx::user(by.uid, by.uid) };
        let asker = Asker { host: by.host.into(), grant, ctx };
        let nothing = Arc::<Given>::default();
        nothing.end();
        let mut told = Vec::new();
        let mut tell = |line: &[u8]| {
            told.extend_from_slice(line);
            true
        };
        self.commands.run(&asker, call.to_string().as_bytes(), &nothing, &mut tell);
        last_answer(&told).expect("an answer")
    }
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
        let volumes = if by.only.is_empty() { Vec::new() } else { vec![by.only.to_owned()] };
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
                trust: if by.by_tokens { Trust::User } else { Trust::Host },
                valid_secs: 60,
            },
        );
    }
}

fn make_dir(cell: &Arc<Cell>, path: &str, mode: u32, uid: u32) {
    let (above, name) = path.rsplit_once('/').expect("a slash");
    let op = Op::Make { dir: node(cell, above), name: name.as_bytes(), make: Make::Dir, mode, umask: 0 };
    let made = cell.call(&Ctx::user(0, 0), op).and_then(|reply| reply.attr()).expect("made").node;
    let set = SetAttr { uid: Some(uid), gid: Some(uid), ..SetAttr::default() };
    cell.call(&Ctx::user(0, 0), Op::SetAttr { node: made, set }).expect("given away");
}

/// What a user gets: the answer, or `None` where it is refused.
fn answer(rig: &Rig, by: &Asking, request: &AnyRequest) -> Option<String> {
    let call = json!({"call": "admin", "request": request});
    match rig.tell(by, &call).map_err(|failure| failure.errno) {
        // the user is there
        Err(libc::EEXIST) if matches!(request, AnyRequest::UserCreate(_)) => Some(String::new()),
        Ok(reply) => Some(reply.to_string()),
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

/// A rig in which nothing has been done yet.
struct Fresh {
    rig: Rig,
    is_used: bool,
}

impl Fresh {
    fn new() -> Fresh {
        Fresh { rig: rig(), is_used: false }
    }

    /// `ask` says whether it was answered: that may have changed something.
    fn try_on(&mut self, ask: impl FnOnce(&Rig) -> bool) -> bool {
        if self.is_used {
            self.rig = rig();
        }
        self.is_used = ask(&self.rig);
        self.is_used
    }
}

/// Rows of the table: a request, and what each asker gets.
fn rows() -> Vec<(String, Vec<String>)> {
    let mut fresh = Fresh::new();
    let mut rows = Vec::new();
    for n in 0..about(&TARGETS[0]).len() {
        let request = |target: &Target| about(target).swap_remove(n);
        let got = ALL.iter().map(|by| {
            letters(TARGETS.iter().map(|target| {
                let is_answered = fresh.try_on(|rig| answer(rig, by, &request(target)).is_some());
                (target.letter, is_answered)
            }))
        });
        rows.push((request(&TARGETS[0]).name().to_string(), got.collect()));
        for target in &TARGETS {
            fresh.try_on(|rig| {
                let answered = rig.cell.admin_any(&Ctx::system(), &request(target), &mut |_| ());
                answered.unwrap_or_else(|e| panic!("an operator, {:?}: {e}", request(target)));
                true
            });
        }
    }
    for n in 0..about_none(&ALL[0]).len() {
        let got = ALL.iter().map(|by| how_much(by, &about_none(by)[n]));
        rows.push((about_none(&ALL[0])[n].name().to_string(), got.collect()));
    }
    rows.sort();
    rows
}

/// Those of the targets that were answered about.
fn letters(targets: impl Iterator<Item = (char, bool)>) -> String {
    let letters: String = targets.filter(|(_, is_answered)| *is_answered).map(|(letter, _)| letter).collect();
    if letters.is_empty() { "-".into() } else { letters }
}

/// Whether somebody gets all of what an operator gets.
fn how_much(by: &Asking, request: &AnyRequest) -> String {
    let all = match rig().cell.admin_any(&Ctx::system(), request, &mut |_| ()) {
        Ok(all) => json!(all).to_string(),
        Err(e) if e.errno == libc::EEXIST => String::new(),
        Err(e) => panic!("an operator, {request:?}: {e}"),
    };
    match answer(&rig(), by, request) {
        None => "-".into(),
        Some(answer) if request.is_noted() || answer == all => "yes".into(),
        Some(_) => "own".into(),
    }
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
Operators (root, and the user who serves the cell) get all answers. Machines that were not added at\n\
all get none, and no machine speaks for users that its `--uids` leave out.\n\n\
Files are another matter: modes and ACLs say who may read and change them, in mounts and at doors.\n\n"
    );
    let _ = writeln!(out, "| request | {} |", HEADS.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(HEADS.len()));
    for (name, got) in &rows {
        let _ = writeln!(out, "| {} | {} |", words(name), got.join(" | "));
    }
    out
}

/// What the log of the cell keeps of requests: who asked, and the text.
fn asked(cell: &Cell) -> Vec<(u32, Value)> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = ask(
            cell,
            admin::EventList {
                path: None,
                cursor,
                newest_first: false,
                until_now: true,
                filter: admin::EventFilter::default(),
                limit: 500,
            },
        );
        all.extend(page.events.into_iter().map(|event| (event.uid, event.request.expect("a request"))));
        if !page.more {
            return all;
        }
        cursor = Some(page.cursor);
    }
}

/// The log gives up what is oldest when it takes too much space.
#[test]
fn a_stranger_does_not_push_out_what_operators_asked() {
    let rig = rig();
    let before = asked(&rig.cell);
    let eve = asking("eve", EVE, "node");
    let grant = admin::AclGrant { who: UserOrGroup::User(EVE), rights: [admin::Right::Read].into() };
    let requests = [
        AnyRequest::from(admin::BinEmpty { volume: Some("other".into()) }),
        admin::AclSet { path: "/other".into(), grants: vec![grant; 99], recursive: false }.into(),
    ];
    let tell = |n: usize| rig.tell(&eve, &json!({"call": "admin", "request": requests[n % 2]}));
    let refused = (0..2_000).filter(|n| tell(*n).is_err_and(|e| e.errno == libc::EAGAIN)).count();
    assert!(refused >= 1_000, "{refused} of 2000 were refused");
    (0..20).for_each(|_| _ = rig.cell.step().expect("a step"));
    let after = asked(&rig.cell);
    assert!(after.starts_with(&before), "what was asked before is there");
    let hers = &after[before.len()..];
    let bytes: usize = hers.iter().map(|(_, request)| request.to_string().len()).sum();
    assert!(hers.iter().all(|(uid, _)| *uid == EVE) && !hers.is_empty());
    assert!(bytes <= 1_000 * 1_024, "{} requests of {bytes} bytes are kept", hers.len());
    // it is her count, and nobody else's
    let bob = asking("bob", BOB, "node");
    let request = AnyRequest::from(admin::BinEmpty { volume: Some("bob".into()) });
    let answer = rig.tell(&bob, &json!({"call": "admin", "request": request}));
    assert!(answer.is_ok_and(|reply| !reply.is_null()), "bob empties his bin");
}

#[test]
fn rights_are_as_the_table_says() {
    rights_document::compare(&document());
}
