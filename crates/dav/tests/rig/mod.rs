//! A cell with an HTTP door, asked directly: what the tests share. Users and tokens are those of
//! the rig of `leeward-auth`.
#![allow(dead_code)] // not every test needs everything

#[path = "../../../auth/tests/rig/mod.rs"]
pub mod issuer;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use issuer::{AUDIENCE, Given, ISSUER, Minter};
use leeward_auth::Authority;
use leeward_dav::{AllowedServers, Dav, Remote, Settings, Transfers};
use leeward_door::Files;
use leeward_door::listen::{Body, Bound, Client, Serving, Site, Turns};
use leeward_env::{Ctx, Env};
use leeward_fs::{Fs, Make, NodeId, Op, Reply, SetAttr};
use leeward_vfs::{Gate, GateOptions};
use leeward_volume::admin;
use leeward_volume::{Cell, Config};
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub struct Rig {
    pub env: Env,
    pub cell: Arc<Cell>,
    pub minter: Arc<Minter>,
    pub files: Files,
    pub dav: Arc<Dav>,
    pub runtime: Runtime,
    _dir: TempDir,
}

/// What came back.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Got {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Of bob, whose home is `/home`.
pub const BOB: &str = "Basic S0VZT0ZCT0I6c2VjcmV0IG9mIGJvYg==";
pub const BOB_UID: u32 = 3000;
/// As whom tokens of the issuer act, below `/atlas`.
pub const ATLAS_UID: u32 = 2000;

impl Rig {
    pub fn new() -> Rig {
        Rig::with_transfers(4)
    }

    /// So many third-party copies at a time.
    pub fn with_transfers(transfers: usize) -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let (env, config) = (Env::real(), Config::default());
        Cell::create(&env, dir.path(), &config).expect("made");
        let cell = Cell::open(&env, dir.path(), &config).expect("opened");
        let gate = Gate::new(cell.clone(), &env, GateOptions::usual());
        let minter = Arc::new(Minter::new(ISSUER));
        let given =
            Arc::new(Given { minter: minter.clone(), asked: Default::default(), silent: Default::default() });
        let accounts = Arc::new(issuer::accounts());
        let issuers = [issuer::config(ISSUER)];
        let authority =
            Authority::new(&env, &issuers, accounts, issuer::machine(), given).expect("an authority");
        let authority = authority.with_certificates(&issuer::certified());
        let remote = Remote::new(None, AllowedServers::everything()).expect("TLS");
        let report = Arc::new(|paths: Option<Vec<String>>| Ok(format!("{{\"paths\": {paths:?}}}")));
        let settings =
            Settings { location: "https://storage.example.org".into(), report, host: String::new() };
        let files = Files::new(&gate, &env);
        let transfers = Transfers::new(remote, transfers);
        let dav =
            Arc::new(Dav::new(files.clone(), Arc::new(authority), transfers, Turns::new(&env), settings));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let rig = Rig { env, cell, minter, files, dav, runtime: runtime.expect("threads"), _dir: dir };
        rig.dir("home", BOB_UID);
        rig.dir("atlas", ATLAS_UID);
        rig
    }

    /// A directory in the root, of this user.
    pub fn dir(&self, name: &str, uid: u32) -> NodeId {
        let make =
            Op::Make { dir: NodeId::ROOT, name: name.as_bytes(), make: Make::Dir, mode: 0o755, umask: 0 };
        let Ok(Reply::Attr(attr)) = self.cell.call(&Ctx::system(), make) else { panic!("{name}") };
        let set = SetAttr { uid: Some(uid), gid: Some(uid), ..SetAttr::default() };
        self.cell.call(&Ctx::system(), Op::SetAttr { node: attr.node, set }).expect("its owner");
        attr.node
    }

    /// A symbolic link in the root directory's `dir`.
    pub fn link(&self, dir: &str, name: &str, target: &str) {
        let dir = self.node(dir);
        let make = Op::Make {
            dir,
            name: name.as_bytes(),
            make: Make::Symlink(target.as_bytes()),
            mode: 0o777,
            umask: 0,
        };
        self.cell.call(&Ctx::system(), make).expect("a link");
    }

    pub fn node(&self, path: &str) -> NodeId {
        path.split('/').filter(|name| !name.is_empty()).fold(NodeId::ROOT, |dir, name| {
            match self.cell.call(&Ctx::system(), Op::Lookup { dir, name: name.as_bytes() }) {
                Ok(Reply::Attr(attr)) => attr.node,
                other => panic!("{path}: {other:?}"),
            }
        })
    }

    pub fn admin<R: admin::Request>(&self, request: &R) -> R::Reply {
        self.cell.admin(request, &mut |_| ()).expect("done")
    }

    /// A token with these scopes.
    pub fn token(&self, scope: &str) -> String {
        self.token_but(scope, json!({}))
    }

    /// The same with other claims.
    pub fn token_but(&self, scope: &str, changes: Value) -> String {
        let now = (self.env.wall() / 1_000_000_000) as i64;
        let mut claims = json!({
            "iss": ISSUER, "sub": "somebody", "aud": AUDIENCE, "iat": now, "nbf": now, "exp": now + 3600,
            "jti": "number 1", "wlcg.ver": "1.0", "scope": scope,
        });
        let (Some(all), Value::Object(changes)) = (claims.as_object_mut(), changes) else {
            panic!("objects")
        };
        all.extend(changes);
        all.retain(|_, value| !value.is_null());
        format!("Bearer {}", self.minter.sign(&claims))
    }

    /// Asks as somebody with this `Authorization`; nobody, where it is empty.
    pub fn ask_as(&self, who: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Got {
        let mut request = Request::builder().method(method).uri(path).header("host", "here");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !who.is_empty() {
            request = request.header("authorization", who);
        }
        let body = Full::new(Bytes::copy_from_slice(body)).map_err(|never| match never {}).boxed_unsync();
        self.send(request.body(body).expect("a request"))
    }

    pub fn send(&self, request: Request<Body>) -> Got {
        let address = "127.0.0.1:1".parse().expect("an address");
        self.send_from(Client { address, tls: false, certificate: None }, request)
    }

    /// From a connection like this.
    pub fn send_from(&self, client: Client, request: Request<Body>) -> Got {
        self.runtime.block_on(async {
            let answer = self.dav.clone().answer(request, client).await;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.expect("the whole body").to_bytes();
            Got { status: head.status.as_u16(), headers: head.headers, body: body.to_vec() }
        })
    }

    /// Asks as bob.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Got {
        self.ask_as(BOB, method, path, headers, body)
    }

    /// As bob, and it must have this status.
    #[track_caller]
    pub fn must(&self, status: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Got {
        let got = self.ask(method, path, headers, body);
        assert_eq!(got.status, status, "{method} {path}: {}", got.text());
        got
    }

    /// Answers on a port of loopback.
    pub fn serve(&self) -> (String, Serving) {
        let bound = Bound::take(&["127.0.0.1:0".parse().expect("an address")], None).expect("a port");
        let url = bound.urls().remove(0);
        let serving = bound.serve(&self.env, self.runtime.handle(), self.dav.clone(), None).expect("served");
        (url, serving)
    }

    /// Names in a directory, as its owner in the mount sees them.
    pub fn names(&self, path: &str) -> Vec<String> {
        let op = Op::List { dir: self.node(path), after: b"", limit: 10_000, attrs: false };
        match self.cell.call(&Ctx::system(), op) {
            Ok(Reply::Entries(entries)) => {
                entries.iter().map(|e| String::from_utf8_lossy(&e.name).into()).collect()
            }
            other => panic!("{path}: {other:?}"),
        }
    }
}

/// Bytes that do not compress.
pub fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[track_caller]
pub fn is(status: StatusCode, got: &Got) {
    assert_eq!(got.status, status.as_u16(), "{}", got.text());
}
