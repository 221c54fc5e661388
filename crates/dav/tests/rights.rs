//! Who may do what: credentials, scopes, links, anonymous readers.

use crate::rig;
use crate::rig::{BOB, Rig};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use leeward_door::listen::{Certificate, Client};
use leeward_env::Ctx;
use leeward_fs::{Fs, InodeFlags, Op, SetAttr};
use leeward_volume::admin::{self, PropertyChanges};
use serde_json::json;
use std::sync::Arc;

#[test]
fn who_comes_without_a_credential_is_asked_for_one() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"x");
    for (method, path) in
        [("GET", "/home/f"), ("PUT", "/home/f"), ("PROPFIND", "/"), ("GET", "/none"), ("DELETE", "/home/f")]
    {
        let got = rig.ask_as("", method, path, &[("depth", "0")], b"");
        assert_eq!(
            (got.status, got.headers.get_all("www-authenticate").iter().count()),
            (401, 2),
            "{method} {path}"
        );
    }
}

#[test]
fn anybody_reads_where_a_volume_says_so() {
    let rig = Rig::new();
    let (name, uid) = ("pub".to_string(), rig::BOB_UID);
    rig.admin(&admin::VolumeCreate { name: name.clone(), at: "/pub".into(), uid, gid: uid, pool: None });
    rig.must(201, "PUT", "/pub/f", &[], b"x");
    assert_eq!(rig.ask_as("", "GET", "/pub/f", &[], b"").status, 401);
    let set = PropertyChanges { public: Some(true), ..PropertyChanges::default() };
    rig.admin(&admin::VolumeSet { name, set });
    assert_eq!(rig.ask_as("", "GET", "/pub/f", &[], b"").body, b"x");
    assert_eq!(rig.ask_as("", "PROPFIND", "/pub", &[("depth", "1")], b"").status, 207);
    assert_eq!(rig.ask_as("", "PUT", "/pub/f", &[], b"y").status, 401);
    assert_eq!(rig.ask_as("", "GET", "/home", &[], b"").status, 401);
    rig.link("pub", "out", "../home");
    rig.must(201, "PUT", "/home/secret", &[], b"x");
    assert_eq!(
        rig.ask_as("", "GET", "/pub/out/secret", &[], b"").status,
        401,
        "what is there is another volume's"
    );
}

#[test]
fn who_shows_a_certificate_needs_nothing_else() {
    let rig = Rig::new();
    let ask = |subject: &str, header: (&str, &str)| {
        let shown = Certificate { subject: subject.into(), grid: None, until_secs: i64::MAX };
        let address = "127.0.0.1:1".parse().expect("an address");
        let client = Client { address, tls: true, certificate: Some(Arc::new(shown)) };
        let request = Request::put("/home/f").header("host", "here").header(header.0, header.1);
        let body = Full::new(Bytes::from("x")).map_err(|never| match never {}).boxed_unsync();
        rig.send_from(client, request.body(body).expect("a request")).status
    };
    let (bob, none) = ("CN=bob,O=Example,C=DE", ("x-none", ""));
    assert_eq!(ask(bob, none), 201);
    assert_eq!(ask("CN=carol", none), 403, "disabled");
    assert_eq!(ask("CN=mallory", none), 403, "nobody's");
    assert_eq!(ask(bob, ("origin", "https://here")), 204);
    assert_eq!(ask(bob, ("origin", "https://elsewhere")), 401, "a browser showed it, unasked");
    assert_eq!(ask(bob, ("authorization", "Bearer nonsense")), 401, "what is said counts first");
    assert_eq!(ask("CN=mallory", ("authorization", BOB)), 204);
}

#[test]
fn bad_credentials_are_refused() {
    let rig = Rig::new();
    let (now, read) = ((rig.env.wall() / 1_000_000_000) as i64, "storage.read:/");
    let bad = [
        "Basic !!".to_string(),
        "Basic S0VZT0ZCT0I6d3Jvbmc=".into(),
        "Bearer nonsense".into(),
        "Digest x".into(),
        rig.token_but(read, json!({"aud": "https://elsewhere"})),
        rig.token_but(read, json!({"exp": now - 600, "iat": now - 900, "nbf": now - 900})),
        rig.token_but(read, json!({"nbf": now + 600})),
        rig.token_but(read, json!({"iss": "https://unknown/"})),
        rig.token("storage.read"),
    ];
    for who in bad {
        let got = rig.ask_as(&who, "GET", "/atlas", &[], b"");
        assert_eq!(got.status, 401, "{who}: {}", got.text());
        assert!(got.headers.contains_key("www-authenticate") && !got.text().contains(&who[7..]), "{who}");
    }
}

#[test]
fn scopes_are_held_by_whole_names() {
    let rig = Rig::new();
    let all = rig.token("storage.modify:/ storage.read:/");
    let ask =
        |who: &str, method: &str, path: &str| rig.ask_as(who, method, path, &[("depth", "0")], b"x").status;
    assert_eq!(rig.ask_as(&all, "MKCOL", "/atlas/foo", &[], b"").status, 201);
    assert_eq!(rig.ask_as(&all, "MKCOL", "/atlas/foobar", &[], b"").status, 201);
    assert_eq!((ask(&all, "PUT", "/atlas/foo/f"), ask(&all, "PUT", "/atlas/foobar/f")), (201, 201));

    let read = rig.token("storage.read:/foo");
    assert_eq!(ask(&read, "GET", "/atlas/foo/f"), 200);
    for (method, path) in [
        ("GET", "/atlas/foobar/f"),
        ("PUT", "/atlas/foo/f"),
        ("PUT", "/atlas/foo/g"),
        ("DELETE", "/atlas/foo/f"),
        ("GET", "/home"),
        ("GET", "/foo/f"),
    ] {
        assert_eq!(ask(&read, method, path), 403, "{method} {path}");
    }
    assert_eq!(rig.ask_as(&read, "PROPFIND", "/atlas", &[("depth", "0")], b"").status, 207, "the way there");

    let create = rig.token("storage.create:/foo");
    assert_eq!(ask(&create, "PUT", "/atlas/foo/new"), 201);
    assert_eq!(ask(&create, "PUT", "/atlas/foo/new"), 403, "nothing is replaced");
    assert_eq!(ask(&create, "DELETE", "/atlas/foo/new"), 403);
    assert_eq!(ask(&create, "GET", "/atlas/foo/new"), 403);
    assert_eq!(rig.ask_as(&create, "MKCOL", "/atlas/foo/d", &[], b"").status, 201);
    let destination = [("destination", "/atlas/foo/newer")];
    assert_eq!(rig.ask_as(&create, "MOVE", "/atlas/foo/new", &destination, b"").status, 201);
    let elsewhere = [("destination", "/atlas/foobar/x")];
    assert_eq!(rig.ask_as(&create, "MOVE", "/atlas/foo/newer", &elsewhere, b"").status, 403);
}

#[test]
fn directories_are_made_for_who_comes_with_a_token() {
    let rig = Rig::new();
    rig.must(409, "PUT", "/home/x/y/f", &[], b"x");
    let ask = |scope: &str, path: &str| rig.ask_as(&rig.token(scope), "PUT", path, &[], b"x").status;
    assert_eq!(ask("storage.create:/", "/atlas/x/y/f"), 201);
    assert_eq!(rig.names("atlas/x/y"), ["f"]);
    assert_eq!(ask("storage.create:/x", "/atlas/x/z/f"), 201);
    assert_eq!(ask("storage.create:/x", "/atlas/w/f"), 403);
}

#[test]
fn a_right_may_be_for_one_file() {
    let rig = Rig::new();
    let ask = |scope: &str, method: &str, path: &str| {
        let body: &[u8] = if method == "PUT" { b"x" } else { b"" };
        let depth = if method == "PROPFIND" { "0" } else { "infinity" };
        rig.ask_as(&rig.token(scope), method, path, &[("depth", depth)], body).status
    };
    assert_eq!(ask("storage.create:/d/f", "PUT", "/atlas/d/f"), 201, "with the directory above it");
    assert_eq!(ask("storage.create:/d/f", "PUT", "/atlas/d/f"), 403, "nothing is replaced");
    assert_eq!(ask("storage.modify:/d/f", "PUT", "/atlas/d/f"), 204);
    assert_eq!(ask("storage.modify:/e/f", "PUT", "/atlas/e/f"), 201);
    for method in ["GET", "HEAD"] {
        assert_eq!(ask("storage.read:/d/f", method, "/atlas/d/f"), 200, "{method}");
        assert_eq!(ask("storage.read:/d/f", method, "/atlas/d/g"), 403, "{method}");
        assert_eq!(ask("storage.read:/d/none", method, "/atlas/d/none"), 404, "{method}");
    }
    assert_eq!(ask("storage.read:/d/f", "PROPFIND", "/atlas/d/f"), 207);
    assert_eq!(ask("storage.read:/d/f", "PROPFIND", "/atlas/d"), 207, "the way there");
    assert_eq!(ask("storage.read:/d/f", "GET", "/atlas/d/"), 403);
    rig.link("atlas/d", "out", "../e/f");
    rig.link("atlas/d", "way", "../../home");
    for scope in ["storage.read:/d/out", "storage.read:/d/out/"] {
        assert_ne!(ask(scope, "GET", "/atlas/d/out"), 200, "the name is not followed");
    }
    assert_eq!(ask("storage.read:/d/way/x", "PROPFIND", "/atlas/d/way"), 404, "nor are those on the way");
    assert_eq!(ask("storage.modify:/d/f", "DELETE", "/atlas/d/f"), 204);
    assert_eq!(ask("storage.modify:/d/new", "MKCOL", "/atlas/d/new"), 201);

    rig.must(201, "MKCOL", "/home/d", &[], b"");
    rig.must(201, "PUT", "/home/d/f", &[], b"x");
    let macaroon = |path: &str, activities: &str| {
        let kind = [("content-type", "application/macaroon-request")];
        let body = format!("{{\"caveats\":[\"activity:{activities}\"],\"validity\":\"PT30M\"}}");
        let got = rig.must(200, "POST", path, &kind, body.as_bytes());
        let said: serde_json::Value = serde_json::from_slice(&got.body).expect("JSON");
        format!("Bearer {}", said["macaroon"].as_str().expect("a token"))
    };
    let (read, write) = (macaroon("/home/d/f", "DOWNLOAD"), macaroon("/home/d/g", "UPLOAD"));
    assert_eq!(rig.ask_as(&read, "GET", "/home/d/f", &[], b"").body, b"x");
    assert_eq!(rig.ask_as(&write, "PUT", "/home/d/g", &[], b"y").status, 201);
    assert_eq!(rig.ask_as(&write, "PUT", "/home/d/h", &[], b"y").status, 403);
    assert_eq!(rig.names("home/d"), ["f", "g"]);
}

#[test]
fn both_ends_of_a_copy_may_be_covered_by_different_rights() {
    let rig = Rig::new();
    let all = rig.token("storage.modify:/ storage.read:/");
    let ask = |who: &str, method: &str, path: &str, to: &str| {
        rig.ask_as(who, method, path, &[("destination", to)], b"").status
    };
    assert_eq!(rig.ask_as(&all, "MKCOL", "/atlas/a", &[], b"").status, 201);
    assert_eq!(rig.ask_as(&all, "MKCOL", "/atlas/b", &[], b"").status, 201);
    assert_eq!(rig.ask_as(&all, "PUT", "/atlas/a/f", &[], b"x").status, 201);
    assert_eq!(ask(&all, "COPY", "/atlas/a/f", "/atlas/a/g"), 201);
    let some = rig.token("storage.read:/a storage.create:/b");
    assert_eq!(ask(&some, "COPY", "/atlas/a/f", "/atlas/b/f"), 201);
    assert_eq!(ask(&some, "COPY", "/atlas/a/f", "/atlas/b/f"), 403, "nothing is replaced");
    assert_eq!(ask(&some, "COPY", "/atlas/a", "/atlas/b/a"), 201);
    assert_eq!(ask(&some, "COPY", "/atlas/b/f", "/atlas/b/g"), 403);
    assert_eq!(ask(&some, "MOVE", "/atlas/a/f", "/atlas/b/h"), 403);
    let both = rig.token("storage.modify:/a storage.modify:/b");
    assert_eq!(ask(&both, "MOVE", "/atlas/a/g", "/atlas/b/g"), 201);
    assert_eq!(
        (rig.names("atlas/a"), rig.names("atlas/b/a")),
        (vec!["f".to_string()], vec!["f".into(), "g".to_string()])
    );
}

#[test]
fn a_link_leads_nowhere_that_the_token_does_not_cover() {
    let rig = Rig::new();
    let all = rig.token("storage.modify:/ storage.read:/");
    for path in ["/atlas/a", "/atlas/b"] {
        assert_eq!(rig.ask_as(&all, "MKCOL", path, &[], b"").status, 201);
    }
    assert_eq!(rig.ask_as(&all, "PUT", "/atlas/b/secret", &[], b"x").status, 201);
    rig.link("atlas/a", "out", "../b");
    rig.link("atlas/a", "far", "/atlas/b/secret");
    rig.link("atlas/a", "file", "../b/secret");
    assert_eq!(rig.ask_as(&all, "GET", "/atlas/a/out/secret", &[], b"").status, 200);
    let read = rig.token("storage.read:/a storage.modify:/a");
    for path in ["/atlas/a/out/secret", "/atlas/a/far", "/atlas/a/file"] {
        assert_eq!(rig.ask_as(&read, "GET", path, &[], b"").status, 404, "{path}");
    }
    assert_ne!(rig.ask_as(&read, "PUT", "/atlas/a/out/new", &[], b"x").status, 201);
    assert_eq!(rig.names("atlas/b"), ["secret"]);
}

#[test]
fn macaroons_narrow() {
    let rig = Rig::new();
    rig.must(201, "MKCOL", "/home/d", &[], b"");
    rig.must(201, "PUT", "/home/d/f", &[], b"x");
    let kind = [("content-type", "application/macaroon-request")];
    let got = rig.must(
        200,
        "POST",
        "/home/d",
        &kind,
        br#"{"caveats":["activity:DOWNLOAD,LIST"],"validity":"PT30M"}"#,
    );
    let said: serde_json::Value = serde_json::from_slice(&got.body).expect("JSON");
    assert_eq!(said["expires_in"], 1800);
    let who = format!("Bearer {}", said["macaroon"].as_str().expect("a token"));
    assert_eq!(rig.ask_as(&who, "GET", "/home/d/f", &[], b"").body, b"x");
    assert_eq!(rig.ask_as(&who, "PUT", "/home/d/g", &[], b"x").status, 403);
    assert_eq!(rig.ask_as(&who, "GET", "/home/", &[], b"").status, 403);
    rig.must(400, "POST", "/home/d", &kind, b"{");
    assert_eq!(rig.ask_as("", "POST", "/home/d", &kind, b"{}").status, 401);
}

#[test]
fn the_report_is_for_users() {
    let rig = Rig::new();
    assert_eq!(rig.must(200, "GET", "/.well-known/srr", &[], b"").body, b"{\"paths\": None}");
    let token = rig.token("storage.read:/");
    let limited = rig.ask_as(&token, "GET", "/.well-known/srr", &[], b"");
    assert_eq!(limited.text(), r#"{"paths": Some(["/atlas"])}"#, "what the token is for, and no more");
    let token = rig.token("storage.read:/none");
    let nothing = rig.ask_as(&token, "GET", "/.well-known/srr", &[], b"");
    assert_eq!(nothing.text(), r#"{"paths": Some([])}"#);
    assert_eq!(rig.ask_as("", "GET", "/.well-known/srr", &[], b"").status, 401);
}

#[test]
fn a_user_is_that_user() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"x");
    let alice = "Basic S0VZT0ZBTElDRTpzZWNyZXQgb2YgYWxpY2U=";
    assert_eq!(rig.ask_as(alice, "GET", "/home/f", &[], b"").status, 200, "the mode lets others read");
    assert_eq!(rig.ask_as(alice, "PUT", "/home/f", &[], b"y").status, 403);
    assert_eq!(rig.ask_as(alice, "DELETE", "/home/f", &[], b"").status, 403);
    assert_eq!(
        rig.ask_as("Basic S0VZT0ZST09UOnNlY3JldCBvZiByb290", "GET", "/home/f", &[], b"").status,
        403,
        "nobody is root here"
    );
    assert_eq!(rig.ask_as(BOB, "GET", "/home/f", &[], b"").status, 200);
}

/// `chattr +i` and `+a`, which only root of a mount can set, hold here, too.
#[test]
fn files_and_directories_with_flags_are_kept() {
    let rig = Rig::new();
    for path in ["/home/d", "/home/e"] {
        rig.must(201, "MKCOL", path, &[], b"");
    }
    for path in ["/home/kept", "/home/other", "/home/d/kept", "/home/d/other", "/home/e/new"] {
        rig.must(201, "PUT", path, &[], b"x");
    }
    let set_flags = |path: &str, flags| {
        let set = SetAttr { flags: Some(flags), ..SetAttr::default() };
        rig.cell.call(&Ctx::system(), Op::SetAttr { node: rig.node(path), set }).expect("set");
    };
    let to = |path| [("destination", path)];
    for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY] {
        set_flags("home/kept", flag);
        rig.must(403, "DELETE", "/home/kept", &[], b"");
        rig.must(403, "PUT", "/home/kept", &[], b"y");
        rig.must(403, "PROPPATCH", "/home/kept", &[], PROPERTY);
        rig.must(403, "COPY", "/home/other", &to("/home/kept"), b"");
        rig.must(403, "MOVE", "/home/other", &to("/home/kept"), b"");
        rig.must(403, "MOVE", "/home/kept", &to("/home/moved"), b"");
        assert_eq!(rig.ask("GET", "/home/kept", &[], b"").body, b"x");

        set_flags("home/d", flag);
        rig.must(403, "DELETE", "/home/d", &[], b"");
        rig.must(403, "DELETE", "/home/d/other", &[], b"");
        rig.must(403, "PUT", "/home/d/other", &[], b"y");
        let may_add = flag == InodeFlags::APPEND_ONLY;
        rig.must(if may_add { 201 } else { 403 }, "PUT", "/home/d/new", &[], b"y");
        rig.must(if may_add { 201 } else { 403 }, "MKCOL", "/home/d/sub", &[], b"");
    }
    set_flags("home/d", InodeFlags::default());
    set_flags("home/d/kept", InodeFlags::IMMUTABLE);
    let kept = rig.node("home/d/kept");
    rig.must(207, "DELETE", "/home/d", &[], b"");
    assert_eq!(rig.names("home/d"), ["kept"], "all but what it may not remove");
    rig.must(207, "COPY", "/home/e", &to("/home/d"), b"");
    assert!(rig.cell.call(&Ctx::system(), Op::GetAttr { node: kept }).is_ok(), "never removed");
    set_flags("home/kept", InodeFlags::default());
    rig.must(204, "DELETE", "/home/kept", &[], b"");
}

const PROPERTY: &[u8] = br#"<?xml version="1.0"?><D:propertyupdate xmlns:D="DAV:"><D:set><D:prop>
    <x:color xmlns:x="urn:x">red</x:color></D:prop></D:set></D:propertyupdate>"#;
