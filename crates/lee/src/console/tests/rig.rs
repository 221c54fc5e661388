//! A cell with users, volumes and snapshots, and the console in front of it.

use crate::console::answers::full;
use crate::console::here::CellHere;
use crate::console::sessions::{By, Sessions, Told, Who};
use crate::console::{Console, Parts};
use crate::host_commands::HostCommands;
pub use crate::host_commands::stand_in::node;
use crate::host_commands::stand_in::{self, StandIn, ask};
use crate::people;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, LOCATION};
use hyper::{Request, Response, StatusCode};
use leeward_door::Files;
use leeward_door::listen::{Answer, Body, Client, Site};
use leeward_env::{Ctx, Door, Env};
use leeward_fs::{Fs, Make, NodeId, Op, SetAttr};
use leeward_vfs::{Gate, GateOptions};
use leeward_volume::admin::{self, Request as Asked};
use leeward_volume::{Cell, Config};
use std::sync::Arc;
use tokio::runtime::Runtime;

pub const ALICE: u32 = 70_001;
pub const BOB: u32 = 70_002;

/// The site behind the console.
struct Behind;

impl Site for Behind {
    fn door(&self) -> Door {
        Door::Http
    }

    fn answer(self: Arc<Self>, _: Request<Body>, _: Client) -> Answer {
        Box::pin(async { Response::new(full("behind")) })
    }
}

/// See the module's head.
pub struct Rig {
    pub cell: Arc<Cell>,
    _commands: Arc<HostCommands>,
    pub sessions: Arc<Sessions>,
    console: Arc<Console>,
    runtime: Runtime,
    _service: Arc<StandIn>,
    _dir: tempfile::TempDir,
}

/// An answer.
pub struct Got {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Got {
    /// Where to go on; empty: nowhere.
    pub fn location(&self) -> &str {
        self.header(LOCATION.as_str())
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

impl Rig {
    pub fn new() -> Rig {
        let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
        Cell::create(&env, dir.path(), &Config::default()).expect("made");
        let cell = Cell::open(&env, dir.path(), &Config::default()).expect("opened");
        furnish(&cell);
        cell.prepare_tokens().expect("a key that signs");
        let gate = Gate::new(cell.clone(), &env, GateOptions::usual());
        let authority = people::of_cell_alone(&env, &cell);
        let (commands, service) = stand_in::commands(&env, &cell, Some(&authority));
        let sessions = Sessions::new(&env);
        let parts = Parts {
            env: env.clone(),
            sessions: sessions.clone(),
            cell: Arc::new(CellHere::new(&commands, &gate, &cell)),
            files: Files::new(&gate, &env),
            authority,
            sign_on: None,
            url: String::new(),
            name: "Test".into(),
        };
        let console = Arc::new(Console::new(Arc::new(Behind), parts));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        Rig { cell, sessions, console, runtime, _service: service, _commands: commands, _dir: dir }
    }

    pub fn admin<R: Asked>(&self, request: R) -> R::Reply {
        ask(&self.cell, request)
    }

    /// A cookie of somebody who is logged in.
    pub fn log_in(&self, who: Who) -> String {
        self.log_in_by(who, By::Link(None))
    }

    pub fn log_in_by(&self, who: Who, by: By) -> String {
        format!("leeward={}", self.sessions.begin(who, by, "::1".into()))
    }

    /// The token that forms of this session carry.
    pub fn token(&self, cookie: &str) -> String {
        self.sessions.find(cookie.trim_start_matches("leeward="), true).expect("a session").token
    }

    /// What the page says that this answer leads to.
    pub fn told(&self, cookie: &str, got: &Got) -> Option<Told> {
        let session = self.sessions.find(cookie.trim_start_matches("leeward="), true)?;
        let number = got.location().rsplit_once("told=")?.1.parse().ok()?;
        self.sessions.told(session.number, number)
    }

    pub fn get(&self, path: &str, cookie: &str) -> Got {
        self.ask("GET", path, &[("cookie", cookie)], "")
    }

    /// Sends a form as a page of the console does.
    pub fn post(&self, path: &str, cookie: &str, form: &str) -> Got {
        let token = if cookie.is_empty() { String::new() } else { self.token(cookie) };
        let headers =
            [("cookie", cookie), ("origin", "http://files.example"), ("sec-fetch-site", "same-origin")];
        self.ask("POST", path, &headers, &format!("token={token}&{form}"))
    }

    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
        let mut request = Request::builder().method(method).uri(path).header("host", "files.example");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(full(Bytes::from(body.to_owned()))).expect("a request");
        let client =
            Client { address: "[::1]:9".parse().expect("an address"), tls: false, certificate: None };
        self.runtime.block_on(async {
            let (head, body) = self.console.clone().answer(request, client).await.into_parts();
            let body = http_body_util::BodyExt::collect(body).await.expect("a body").to_bytes();
            Got {
                status: head.status,
                headers: head.headers,
                text: String::from_utf8_lossy(&body).into_owned(),
            }
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.cell.close();
    }
}

/// Volumes of alice and of bob, each with a file that only the owner may read, one in the recycle
/// bin, and a snapshot; and projects of theirs.
fn furnish(cell: &Arc<Cell>) {
    for (name, uid) in [("alice", ALICE), ("bob", BOB)] {
        ask(cell, admin::UserCreate { name: name.into(), uid: Some(uid), gids: Vec::new() });
        ask(cell, admin::KeyCreate { user: name.into(), label: "of old".into(), host: None });
        let (volume, at) = (name.to_string(), format!("/{name}"));
        ask(cell, admin::VolumeCreate { name: volume.clone(), at: at.clone(), uid, gid: uid, pool: None });
        let set = admin::PropertyChanges { bin_days: Some(9), ..admin::PropertyChanges::default() };
        ask(cell, admin::VolumeSet { name: volume, set });
        let dir = node(cell, &at);
        make(cell, dir, "notes.txt", uid);
        make(cell, dir, "gone.txt", uid);
        make(cell, dir, "<script>alert(1)", uid);
        let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        cell.call(&Ctx::system(), Op::SetAttr { node: dir, set: mode }).expect("closed");
        ask(cell, admin::SnapCreate { path: at, name: "before".into() });
        remove(cell, dir, "gone.txt", uid);
        let (owner, place) = (format!("{name}:lab"), format!("p-{name}"));
        ask(cell, admin::GroupCreate { name: owner.clone(), owner: Some(name.into()), gid: None, by: None });
        ask(cell, admin::GroupAdd { name: owner.clone(), members: vec![name.into()], by: None });
        let op =
            Op::Make { dir: NodeId::ROOT, name: place.as_bytes(), make: Make::Dir, mode: 0o700, umask: 0 };
        cell.call(&Ctx::user(0, 0), op).expect("made");
        let (name, at, budget) = (format!("lab-{name}"), format!("/{place}"), admin::Budget::default());
        ask(cell, admin::ProjectCreate { name, at, owner, budget, pool: None, counts_snapshots: None });
    }
}

pub fn make(cell: &Cell, dir: NodeId, name: &str, uid: u32) {
    let op = Op::Make { dir, name: name.as_bytes(), make: Make::File, mode: 0o600, umask: 0 };
    let file = cell.call(&Ctx::user(uid, uid), op).and_then(|reply| reply.attr()).expect("made").node;
    let write = Op::Write { node: file, offset: 0, data: b"secret of the owner" };
    cell.call(&Ctx::user(uid, uid), write).expect("written");
}

pub fn remove(cell: &Cell, dir: NodeId, name: &str, uid: u32) {
    let op = Op::Unlink { dir, name: name.as_bytes(), over: leeward_fs::Precondition::Any };
    cell.call(&Ctx::user(uid, uid), op).expect("removed");
}
