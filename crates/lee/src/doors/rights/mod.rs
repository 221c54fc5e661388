//! Who may do what at the doors, tried with every request that they answer; and the parts of
//! `docs/RIGHTS.md` that say so.

mod http;
mod s3;

use super::{CellHere, Inside};
use crate::host_commands::stand_in::ask;
use crate::people;
use crate::settings::{CellSettings, SrrConfig};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use leeward_door::Files;
use leeward_door::listen::{Body, Client, Site};
use leeward_env::{Ctx, Env};
use leeward_fs::{Fs, Make, NodeId, Op, SetAttr};
use leeward_vfs::{Gate, GateOptions};
use leeward_volume::admin::{self, NewKey};
use leeward_volume::{Cell, Config};
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::runtime::Runtime;

const BOB: u32 = 70_002;
const CONTENT: &[u8] = b"secret of the owner";
/// Where users make buckets.
const PLACE: &str = "/files";

/// A directory of bob, which is a bucket, too.
struct Target {
    letter: char,
    name: &'static str,
    /// Of the directory; files have it without the right to enter.
    mode: u32,
    public: bool,
}

const TARGETS: [Target; 4] = [
    Target { letter: 'O', name: "own", mode: 0o700, public: false },
    Target { letter: 'R', name: "read", mode: 0o750, public: false },
    Target { letter: 'W', name: "write", mode: 0o770, public: false },
    Target { letter: 'P', name: "public", mode: 0o755, public: true },
];

/// Says what the letters of the tables are.
const LETTERS: &str = "\
Directories of a user, which are buckets, too: **O**, which only the owner may enter, **R**, which a\n\
group may read, **W**, which the group may write, and **P**, a volume, which is public.";

/// Both doors of a cell with these directories.
struct Rig {
    cell: Arc<Cell>,
    s3: Arc<dyn Site>,
    http: Arc<dyn Site>,
    runtime: Runtime,
    /// Keys of a stranger, a member of the group, and the owner.
    keys: [NewKey; 3],
    /// The group.
    gid: u32,
    _dir: tempfile::TempDir,
}

/// An answer.
struct Got {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

/// A request: method, path with its query, headers, content.
struct Sent {
    method: &'static str,
    at: String,
    headers: Vec<(String, String)>,
    body: String,
}

fn sent(method: &'static str, at: String) -> Sent {
    Sent { method, at, headers: Vec::new(), body: String::new() }
}

impl Sent {
    fn header(mut self, name: &str, value: impl Into<String>) -> Sent {
        self.headers.push((name.into(), value.into()));
        self
    }

    fn body(self, body: impl Into<String>) -> Sent {
        Sent { body: body.into(), ..self }
    }
}

fn make(
    cell: &Cell,
    dir: NodeId,
    name: &str,
    (make, mode): (Make<'_>, u32),
    (uid, gid): (u32, u32),
) -> NodeId {
    let op = Op::Make { dir, name: name.as_bytes(), make, mode, umask: 0 };
    let made = cell.call(&Ctx::user(0, 0), op).and_then(|reply| reply.attr()).expect("made").node;
    let set = SetAttr { uid: Some(uid), gid: Some(gid), mode: Some(mode), ..SetAttr::default() };
    cell.call(&Ctx::system(), Op::SetAttr { node: made, set }).expect("given away");
    made
}

/// The directories, with a file each that the group has rights to as to the directory.
fn furnish(cell: &Cell) -> ([NewKey; 3], u32) {
    let keys = [("eve", 70_001), ("carol", 70_003), ("bob", BOB)].map(|(name, uid)| {
        ask(cell, admin::UserCreate { name: name.into(), uid: Some(uid), gids: Vec::new() });
        ask(cell, admin::KeyCreate { user: name.into(), label: String::new(), host: None })
    });
    let lab = ask(
        cell,
        admin::GroupCreate { name: "bob:lab".into(), owner: Some("bob".into()), gid: None, by: None },
    );
    cell.prepare_tokens().expect("a key that signs");
    ask(cell, admin::GroupAdd { name: lab.name, members: vec!["carol".into()], by: None });
    let place = make(cell, NodeId::ROOT, &PLACE[1..], (Make::Dir, 0o1777), (0, 0));
    for target in &TARGETS {
        let owner = (BOB, lab.gid);
        let dir = match target.public {
            true => public_volume(cell, place, target, owner),
            false => make(cell, place, target.name, (Make::Dir, target.mode), owner),
        };
        let file = make(cell, dir, "file", (Make::File, target.mode & 0o666), owner);
        cell.call(&Ctx::system(), Op::Write { node: file, offset: 0, data: CONTENT }).expect("written");
    }
    (keys, lab.gid)
}

fn public_volume(cell: &Cell, place: NodeId, target: &Target, (uid, gid): (u32, u32)) -> NodeId {
    let (name, at) = (target.name.to_string(), format!("{PLACE}/{}", target.name));
    ask(cell, admin::VolumeCreate { name: name.clone(), at, uid, gid, pool: None });
    let set = admin::PropertyChanges { public: Some(true), ..admin::PropertyChanges::default() };
    ask(cell, admin::VolumeSet { name, set });
    let dir = lookup(cell, place, target.name);
    let set = SetAttr { mode: Some(target.mode), ..SetAttr::default() };
    cell.call(&Ctx::system(), Op::SetAttr { node: dir, set }).expect("opened");
    dir
}

fn lookup(cell: &Cell, dir: NodeId, name: &str) -> NodeId {
    let op = Op::Lookup { dir, name: name.as_bytes() };
    cell.call(&Ctx::system(), op).and_then(|reply| reply.attr()).expect("there").node
}

/// A directory of [`TARGETS`].
fn dir_of(cell: &Cell, target: &str) -> NodeId {
    lookup(cell, lookup(cell, NodeId::ROOT, &PLACE[1..]), target)
}

impl Rig {
    fn new() -> Rig {
        let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
        Cell::create(&env, dir.path(), &Config::default()).expect("made");
        let cell = Cell::open(&env, dir.path(), &Config::default()).expect("opened");
        let (keys, gid) = furnish(&cell);
        let files = Files::new(&Gate::new(cell.clone(), &env, GateOptions::usual()), &env);
        let authority = people::of_cell_alone(&env, &cell);
        let config = CellSettings { s3_new_buckets: PLACE.into(), ..CellSettings::default() };
        let inside = Inside {
            env: &env,
            cell: Arc::new(CellHere::new(&env, &cell, &SrrConfig::default())),
            files,
            authority: &authority,
            config: &config,
            log: dir.path().join("log"),
            guard: None,
            host: String::new(),
            console: None,
        };
        let runtime = super::runtime(0).expect("threads");
        let s3 = super::s3(&inside, &runtime).expect("a door");
        let http = super::http(&inside, &runtime, "http://here".into()).expect("a door");
        Rig { s3, http, runtime, keys, gid, _dir: dir, cell }
    }

    /// The key of who asks: none, or that of a stranger, a member of the group, the owner.
    fn key(&self, asker: usize) -> Option<&NewKey> {
        asker.checked_sub(1).map(|n| &self.keys[n])
    }

    fn send(&self, site: &Arc<dyn Site>, sent: Sent) -> Got {
        let mut request = Request::builder().method(sent.method).uri(sent.at);
        for (name, value) in sent.headers {
            request = request.header(name, value);
        }
        let body: Body = Full::new(Bytes::from(sent.body)).map_err(|never| match never {}).boxed_unsync();
        let client =
            Client { address: "[::1]:9".parse().expect("an address"), tls: false, certificate: None };
        self.runtime.block_on(async {
            let (head, body) =
                site.clone().answer(request.body(body).expect("a request"), client).await.into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            let text = String::from_utf8_lossy(&body).into_owned();
            Got { status: head.status, headers: head.headers, text }
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.cell.close();
    }
}

/// A rig for requests, and what else is made for them.
struct Rigs<T>(Option<(Rig, T)>);

impl<T> Default for Rigs<T> {
    fn default() -> Rigs<T> {
        Rigs(None)
    }
}

impl<T> Rigs<T> {
    /// Sends something to a rig that is as it was made: a new one, after what may have changed the
    /// last one.
    fn send(&mut self, furnish: fn(&Rig) -> T, reads: bool, send: impl FnOnce(&Rig, &T) -> bool) -> bool {
        let (rig, more) = self.0.take().unwrap_or_else(|| {
            let rig = Rig::new();
            let more = furnish(&rig);
            (rig, more)
        });
        let is_answered = send(&rig, &more);
        if reads {
            self.0 = Some((rig, more));
        }
        is_answered
    }
}

/// The head of a table: of its first column, and of the others.
fn heads(out: &mut String, first: &str, others: &[&str]) {
    row(out, first, &others.iter().map(ToString::to_string).collect::<Vec<_>>());
    let _ = writeln!(out, "|---|{}", "---|".repeat(others.len()));
}

fn row(out: &mut String, what: &str, cells: &[String]) {
    let cells: Vec<&str> = cells.iter().map(|got| if got.is_empty() { "-" } else { got }).collect();
    let _ = writeln!(out, "| {what} | {} |", cells.join(" | "));
}
