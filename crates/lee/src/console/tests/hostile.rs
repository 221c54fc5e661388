//! Requests of other sites, of old and stolen sessions, and of who sends nonsense.

use super::rig::{ALICE, BOB, Rig, make, node, remove};
use crate::console::form::path_text;
use crate::console::sessions::{By, Told, Who};
use hyper::StatusCode;
use leeward_env::Ctx;
use leeward_fs::accounts::Trust;
use leeward_fs::{Fs, Make, Op, SetAttr, XattrMode};
use leeward_volume::admin;

fn alice() -> Who {
    Who::User("alice".into())
}

#[test]
fn a_form_counts_only_from_a_page_of_this_server_in_its_session() {
    let rig = Rig::new();
    let (cookie, other) = (rig.log_in(alice()), rig.log_in(Who::Operator("root".into())));
    let good = format!("token={}&path=/alice&name=by-form", rig.token(&cookie));
    let send = |headers: &[(&str, &str)], form: &str| {
        let headers: Vec<(&str, &str)> =
            [("cookie", &*cookie)].into_iter().chain(headers.iter().copied()).collect();
        rig.ask("POST", "/console/snapshots/create", &headers, form).status
    };
    let own = [("origin", "http://files.example"), ("sec-fetch-site", "same-origin")];
    for headers in [
        &[][..],
        &[("origin", "http://evil.example")],
        &[("origin", "https://files.example.evil")],
        &[("origin", "null")],
        &[("origin", "http://files.example:81")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("origin", "http://files.example"), ("sec-fetch-site", "cross-site")],
    ] {
        assert_eq!(send(headers, &good), StatusCode::FORBIDDEN, "{headers:?}");
    }
    let of_other = format!("token={}&path=/alice&name=by-form", rig.token(&other));
    for form in ["path=/alice&name=x", "token=&path=/alice&name=x", &of_other] {
        assert_eq!(send(&own, form), StatusCode::FORBIDDEN, "{form}");
    }
    assert_eq!(rig.admin(admin::SnapList { path: Some("/alice".into()), volume: None }).snapshots.len(), 1);
    assert_eq!(send(&own, &good), StatusCode::SEE_OTHER);
    assert_eq!(rig.admin(admin::SnapList { path: Some("/alice".into()), volume: None }).snapshots.len(), 2);
    // what only changes is not read
    let got = rig.get("/console/snapshots/create?path=/alice&name=by-link", &cookie);
    assert_eq!(got.status, StatusCode::NOT_FOUND);
}

#[test]
fn logging_in_is_asked_for_by_a_page_of_this_server_only() {
    let rig = Rig::new();
    let code = rig.sessions.code(alice(), None);
    let form = format!("code={code}");
    let got = rig.ask("POST", "/console/login", &[("origin", "http://evil.example")], &form);
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    let page = rig.get(&format!("/console/login?code={code}"), "");
    assert!(
        page.text.contains("alice") && page.header("set-cookie").is_empty(),
        "reading it uses nothing up"
    );
    let got = rig.post("/console/login", "", &format!("{form}&next=//evil.example"));
    assert_eq!((got.status, got.location()), (StatusCode::SEE_OTHER, "/console"));
    let cookie = got.header("set-cookie");
    assert!(cookie.starts_with("leeward=") && cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
    let again = rig.post("/console/login", "", &form);
    assert!(again.header("set-cookie").is_empty() && again.location().starts_with("/console/login"));
}

#[test]
fn a_key_logs_in_and_its_session_ends_with_it() {
    let rig = Rig::new();
    let operator = rig.log_in(Who::Operator("root".into()));
    let got = rig.post("/console/keys/create", &operator, "user=alice&label=");
    let Some(Told::Secret { parts, .. }) = rig.told(&operator, &got) else { panic!("no key") };
    let (id, secret) = (&parts[0].1, &parts[1].1);
    for form in
        [format!("id={id}&secret=wrong"), format!("id=LWNOSUCHKEY&secret={secret}"), "id=&secret=".into()]
    {
        let got = rig.post("/console/login", "", &form);
        assert!(got.header("set-cookie").is_empty() && got.location().contains("why="), "{form}");
        assert!(!got.location().contains("wrong") && !got.text.contains(secret));
    }
    let got = rig.post("/console/login", "", &format!("id={id}&secret={secret}"));
    let cookie = got.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    assert_eq!(rig.get("/console/volumes", &cookie).status, StatusCode::OK);
    let got = rig.post("/console/keys/create", &cookie, "label=to-stay");
    assert!(
        matches!(rig.told(&cookie, &got), Some(Told::Failed(why)) if why.contains("a key makes no keys"))
    );
    assert!(
        rig.post("/console/keys/revoke", &operator, &format!("user=alice&id={id}")).status.is_redirection()
    );
    let after = rig.get("/console/volumes", &cookie);
    assert!(after.location().starts_with("/console/login"), "{}", after.status);
}

#[test]
fn a_user_who_is_not_let_in_any_more_is_logged_out() {
    let rig = Rig::new();
    let (cookie, operator) = (rig.log_in(alice()), rig.log_in(Who::Operator("root".into())));
    let stolen = format!("leeward={}", "0".repeat(64));
    for none in [&*stolen, "leeward=", "leeward=%00", &format!("{cookie}; {cookie}x"), "other=1"] {
        let got = rig.get("/console/volumes", none);
        assert!(got.location().starts_with("/console/login"), "{none}: {}", got.status);
    }
    rig.admin(admin::UserSet { name: "alice".into(), disabled: Some(true), gids: None });
    // the process tells doors of it
    assert_eq!(rig.get("/console/machines", &operator).status, StatusCode::OK);
    rig.post("/console/keys/create", &operator, "user=bob&label=");
    let got = rig.get("/console/volumes", &cookie);
    assert!(
        got.location().starts_with("/console/login") && got.location().contains("disabled"),
        "{}",
        got.location()
    );
    assert!(rig.get("/console/login", &cookie).status.is_success());
}

#[test]
fn a_session_that_began_on_another_machine_ends_with_what_that_may() {
    let rig = Rig::new();
    let host = |read_only| admin::HostSet {
        name: "node7".into(),
        volumes: None,
        read_only: Some(read_only),
        uids: None,
        root_squash: None,
        gateway: None,
        trust: None,
    };
    rig.admin(admin::HostAdd {
        name: "node7".into(),
        volumes: Vec::new(),
        read_only: false,
        uids: Vec::new(),
        root_squash: true,
        gateway: false,
        mirror: false,
        trust: Trust::Host,
        valid_secs: 60,
    });
    let cookie = rig.log_in_by(alice(), By::Link(Some("node7".into())));
    assert_eq!(rig.get("/console/volume?name=alice", &cookie).status, StatusCode::OK);
    // a key outlives what the machine may: it is known where it was made
    let got = rig.post("/console/keys/create", &cookie, "label=to-stay");
    let told = rig.told(&cookie, &got);
    assert!(matches!(&told, Some(Told::Secret { .. })), "{told:?}");
    let keys = rig.admin(admin::KeyList { user: Some("alice".into()) }).keys;
    assert_eq!(keys.iter().filter(|key| key.host.as_deref() == Some("node7")).count(), 1);
    rig.admin(host(true));
    let got = rig.get("/console/volume?name=alice", &cookie);
    assert!(
        got.location().starts_with("/console/login") && got.location().contains("node7"),
        "{}",
        got.status
    );
    rig.admin(host(false));
    assert!(rig.get("/console", &cookie).location().starts_with("/console/login"), "it has ended");
    let unknown = rig.log_in_by(alice(), By::Link(Some("node8".into())));
    assert!(rig.get("/console", &unknown).location().starts_with("/console/login"));
}

#[test]
fn who_is_logged_in_may_log_in_as_somebody_else() {
    let rig = Rig::new();
    let (cookie, code) = (rig.log_in(alice()), rig.sessions.code(Who::Operator("root".into()), None));
    let own = [("cookie", &*cookie), ("sec-fetch-site", "same-origin")];
    let got = rig.ask("POST", "/console/login", &own, &format!("code={code}"));
    let operator = got.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    assert_eq!(rig.get("/console/pools", &operator).status, StatusCode::OK, "{}", got.status);
    assert!(rig.get("/console", &cookie).location().starts_with("/console/login"), "the old one has ended");
}

#[test]
fn names_and_contents_of_users_run_nowhere() {
    let rig = Rig::new();
    let cookie = rig.log_in(alice());
    let evil = "<script>alert(1)";
    remove(&rig.cell, node(&rig.cell, "/alice"), evil, ALICE);
    for page in [
        "/console/files?path=/alice/.snap/before&in=/alice/.snap/before",
        "/console/bin",
        "/console/bin?q=%3Cscript%3Ealert(1)",
        "/console/volumes?q=%22%3E%3Cscript%3Ealert(1)",
        "/console/volume?name=%3Cscript%3Ealert(1)",
        "/console/files?path=/%253Cscript%253Ealert(1)",
        "/console/login?why=%3Cscript%3Ealert(1)&next=%22%3E%3Cscript%3Ealert(1)",
        "/console/%3Cscript%3Ealert(1)",
        "/console/help?page=%3Cscript%3Ealert(1)",
        "/console/reports?by=%3Cscript%3Ealert(1)&from=%3Cscript%3Ealert(1)",
        "/console/latency?of=%3Cscript%3Ealert(1)",
    ] {
        let got = rig.get(page, &cookie);
        assert!(!got.text.contains("<script>"), "{page}: {}", got.text);
        assert!(got.header("content-security-policy").contains("script-src 'self'"), "{page}");
        assert_eq!(
            (got.header("x-content-type-options"), got.header("x-frame-options")),
            ("nosniff", "DENY")
        );
        assert_eq!(got.header("cache-control"), "no-store", "{page}");
    }
    let path = path_text(format!("/alice/.snap/before/{evil}").as_bytes());
    let got = rig.get(&format!("/console/file?path={}", path.replace('%', "%25")), &cookie);
    assert_eq!((got.status, &*got.text), (StatusCode::OK, "secret of the owner"));
    assert!(got.header("content-disposition").starts_with("attachment;"));
    assert!(got.header("content-security-policy").starts_with("sandbox"));
    assert_eq!(got.header("content-type"), "application/octet-stream");
}

#[test]
fn nonsense_is_refused() {
    let rig = Rig::new();
    let cookie = rig.log_in(alice());
    for (method, path, status) in [
        ("PUT", "/console", 405),
        ("DELETE", "/console/volumes", 405),
        ("PROPFIND", "/console/", 405),
        ("GET", "/console/none", 404),
        ("GET", "/console/files?path=/alice/../bob", 400),
        ("GET", "/console/files?path=/alice/%2500", 400),
        ("GET", "/console/file?path=/alice", 400),
        ("GET", "/console/files?path=/none", 404),
        ("GET", "/console/files?path=/bob", 403),
        ("GET", "/console/file?path=/bob/notes.txt", 403),
        ("GET", "/console/pools", 403),
        ("GET", "/console/month", 403),
    ] {
        let got = rig.ask(method, path, &[("cookie", &cookie)], "");
        assert_eq!(got.status.as_u16(), status, "{method} {path}: {}", got.text);
    }
    let large = rig.post("/console/snapshots/create", &cookie, &"x".repeat(100_000));
    assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
    let head = rig.ask("HEAD", "/console/volumes", &[("cookie", &cookie)], "");
    assert_eq!((head.status, &*head.text), (StatusCode::OK, ""));
    assert_eq!(rig.get("/consoles", &cookie).text, "behind");
    assert_eq!(rig.get("/alice/notes.txt", &cookie).text, "behind");
}

#[test]
fn what_is_restored_replaces_nothing() {
    let rig = Rig::new();
    let cookie = rig.log_in(alice());
    let dir = node(&rig.cell, "/alice");
    let restore = |what: &str| {
        let got = rig.post("/console/restore", &cookie, &format!("in=/alice/.snap/before&what={what}"));
        assert_eq!(got.status, StatusCode::SEE_OTHER, "{}", got.text);
        rig.told(&cookie, &got)
    };
    assert!(matches!(restore("gone.txt"), Some(Told::Done(_))));
    assert!(
        matches!(restore("notes.txt"), Some(Told::Done(text)) if text.contains("notes.txt.restored-before"))
    );
    assert!(matches!(restore("notes.txt"), Some(Told::Done(text)) if text.contains("restored-before-2")));
    for name in ["gone.txt", "notes.txt", "notes.txt.restored-before", "notes.txt.restored-before-2"] {
        let got = rig.get(&format!("/console/file?path=/alice/{name}"), &cookie);
        assert_eq!(got.text, "secret of the owner", "{name}");
    }
    assert!(matches!(restore("none"), Some(Told::Failed(_))));
    make(&rig.cell, dir, "later.txt", ALICE);
    for form in [
        "in=/alice/docs/a&what=x",
        "in=/alice/notes.txt&what=x",
        "in=/bob/.snap/before&what=notes.txt",
        "in=/alice&what=x",
        "in=/alice/.snap/before&what=",
        "in=&what=x",
        "what=x",
    ] {
        assert!(rig.post("/console/restore", &cookie, form).status.is_client_error(), "{form}");
    }
}

#[test]
fn a_tree_is_copied_as_far_as_it_can_be_read() {
    let rig = Rig::new();
    let cookie = rig.log_in(alice());
    let call = |uid: u32, op: Op<'_>| rig.cell.call(&Ctx::user(uid, uid), op).expect("done");
    let top = node(&rig.cell, "/alice");
    let dir = |above, name: &str, mode| {
        let op = Op::Make { dir: above, name: name.as_bytes(), make: Make::Dir, mode: 0o700, umask: 0 };
        let made = call(ALICE, op).attr().expect("made").node;
        (made, SetAttr { mode: Some(mode), ..SetAttr::default() })
    };
    let (tree, of_tree) = dir(top, "tree", 0o750);
    let (sub, of_sub) = dir(tree, "sub", 0o500);
    make(&rig.cell, tree, "a", ALICE);
    make(&rig.cell, sub, "b", ALICE);
    make(&rig.cell, tree, "c", 0);
    let set = SetAttr { uid: Some(BOB), gid: Some(BOB), ..SetAttr::default() };
    call(0, Op::SetAttr { node: node(&rig.cell, "/alice/tree/c"), set });
    let a = node(&rig.cell, "/alice/tree/a");
    call(ALICE, Op::SetXattr { node: a, name: b"user.k", value: b"v", mode: XattrMode::Set });
    call(ALICE, Op::Make { dir: tree, name: b"l", make: Make::Symlink(b"a"), mode: 0o777, umask: 0 });
    call(ALICE, Op::SetAttr { node: sub, set: of_sub });
    call(ALICE, Op::SetAttr { node: tree, set: of_tree });
    rig.admin(admin::SnapCreate { path: "/alice".into(), name: "tree".into() });
    let got = rig.post("/console/restore", &cookie, "in=/alice/.snap/tree&what=tree");
    let told = rig.told(&cookie, &got);
    let Some(Told::Failed(why)) = told else { panic!("{told:?}") };
    let is_told = why.starts_with("/alice/tree.restored-tree is not whole: 5 ") && why.contains("/tree/c: ");
    assert!(is_told && why.contains("1 is missing"), "{why}");
    let attr = |path: &str| {
        let node = node(&rig.cell, &format!("/alice/tree.restored-tree{path}"));
        call(0, Op::GetAttr { node }).attr().expect("attributes")
    };
    let (copy, copied_sub, copied_a) = (attr(""), attr("/sub"), attr("/a"));
    assert_eq!((copy.mode, copied_sub.mode, copied_a.mode), (0o750, 0o500, 0o600));
    assert_eq!((copy.uid, copied_a.uid, attr("/sub/b").size, attr("/l").size), (ALICE, ALICE, 19, 1));
    assert_eq!(copied_a.mtime, call(0, Op::GetAttr { node: a }).attr().expect("attributes").mtime);
    let value = call(ALICE, Op::GetXattr { node: copied_a.node, name: b"user.k" }).data().expect("a value");
    assert_eq!(&value[..], b"v");
}

#[test]
fn tokens_are_made_by_who_may_and_are_kept_nowhere() {
    let rig = Rig::new();
    let make = |cookie: &str, fields: &str| {
        let got = rig.post("/console/keys/token", cookie, &format!("may=both&for=3600&{fields}"));
        rig.told(cookie, &got)
    };
    let failed = |told: Option<Told>, why: &str| {
        assert!(matches!(&told, Some(Told::Failed(text)) if text.contains(why)), "{told:?}: {why}");
    };
    let cookie = rig.log_in(alice());
    assert!(matches!(make(&cookie, "path=/alice"), Some(Told::Secret { .. })));
    let by_key = rig.log_in_by(alice(), By::Key("AK".into()));
    assert!(!matches!(make(&by_key, "path=/alice"), Some(Told::Secret { .. })), "nor by a key that is gone");
    let keys = rig.admin(admin::KeyList { user: Some("alice".into()) }).keys;
    let by_key = rig.log_in_by(alice(), By::Key((&*keys[0].access_key_id).into()));
    failed(make(&by_key, "path=/alice"), "a key makes no keys and no tokens");
    failed(make(&cookie, &format!("path=/{}", "a".repeat(5000))), "too long");
    let got = rig.post("/console/keys/token", &cookie, "may=both&for=31536000&path=/alice");
    failed(rig.told(&cookie, &got), "no such right, or time");
    // nobody asks for what is said: a little of it is kept
    let first = rig.post("/console/keys/token", &cookie, "may=both&for=3600&path=nowhere");
    for _ in 0..16 {
        rig.post("/console/keys/token", &cookie, "may=both&for=3600&path=nowhere");
    }
    assert_eq!(rig.told(&cookie, &first), None);
    // a mistyped name is told, and leaves no record
    let operator = rig.log_in(Who::Operator("root".into()));
    let users = || rig.admin(admin::UserList).users.len();
    let before = users();
    for page in ["/console/keys/void", "/console/keys/create", "/console/keys/token"] {
        let fields = "user=alcie&label=x&path=/&may=read&for=3600";
        let got = rig.post(page, &operator, fields);
        assert!(matches!(rig.told(&operator, &got), Some(Told::Failed(_))), "{page}");
    }
    assert_eq!(users(), before);
}
