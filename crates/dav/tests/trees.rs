//! DELETE, COPY and MOVE of what is not one plain file: directories, links, what is private, what
//! cannot be copied.

use crate::rig::{BOB, BOB_UID, Rig};
use http::Request;
use leeward_door::listen::{Body, Client, Site};
use leeward_env::Ctx;
use leeward_fs::{Attr, Fs, Make, NodeId, Op, Reply, SetAttr};
use leeward_volume::admin;
use std::task::Poll;
use std::time::Duration;

fn set_mode(rig: &Rig, path: &str, mode: u32) {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    rig.cell.call(&Ctx::system(), Op::SetAttr { node: rig.node(path), set }).expect("its mode");
}

fn attr(rig: &Rig, path: &str) -> Attr {
    match rig.cell.call(&Ctx::system(), Op::GetAttr { node: rig.node(path) }) {
        Ok(Reply::Attr(attr)) => attr,
        other => panic!("{path}: {other:?}"),
    }
}

fn mode(rig: &Rig, path: &str) -> u32 {
    attr(rig, path).mode
}

fn xattr(rig: &Rig, path: &str, name: &[u8]) -> Option<Vec<u8>> {
    match rig.cell.call(&Ctx::system(), Op::GetXattr { node: rig.node(path), name }) {
        Ok(Reply::Data(value)) => Some(value),
        _ => None,
    }
}

fn make(rig: &Rig, dir: NodeId, name: &[u8], make: Make<'_>) -> NodeId {
    match rig.cell.call(&Ctx::system(), Op::Make { dir, name, make, mode: 0o755, umask: 0 }) {
        Ok(Reply::Attr(attr)) => attr.node,
        other => panic!("{other:?}"),
    }
}

fn volume(rig: &Rig) {
    let (name, at) = ("v".to_string(), "/v".into());
    rig.admin(&admin::VolumeCreate { name, at, uid: BOB_UID, gid: BOB_UID, pool: None });
}

/// One named user may read.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, 1234), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        out.extend(id.to_le_bytes());
    }
    out
}

const ACL: &[u8] = b"system.posix_acl_access";

#[test]
fn what_is_private_stays_private() {
    let rig = Rig::new();
    volume(&rig);
    rig.must(201, "PUT", "/home/f", &[], b"1");
    assert_eq!(mode(&rig, "home/f"), 0o644);
    set_mode(&rig, "home/f", 0o710);
    rig.must(204, "PUT", "/home/f", &[], b"22");
    assert_eq!(mode(&rig, "home/f"), 0o710, "as if it were written to");
    rig.must(201, "COPY", "/home/f", &[("destination", "/home/g")], b"");
    assert_eq!(mode(&rig, "home/g"), 0o710);
    rig.must(204, "COPY", "/home/g", &[("destination", "/home/f")], b"");
    rig.must(201, "MOVE", "/home/g", &[("destination", "/v/g")], b"");
    assert_eq!((mode(&rig, "home/f"), mode(&rig, "v/g")), (0o710, 0o710));

    let value = acl();
    let mode_of = leeward_fs::XattrMode::Set;
    let set = Op::SetXattr { node: rig.node("home/f"), name: ACL, value: &value, mode: mode_of };
    rig.cell.call(&Ctx::system(), set).expect("an ACL");
    rig.must(204, "PUT", "/home/f", &[], b"333");
    rig.must(201, "COPY", "/home/f", &[("destination", "/v/h")], b"");
    for path in ["home/f", "v/h"] {
        assert_eq!((xattr(&rig, path, ACL), mode(&rig, path)), (Some(acl()), 0o640), "{path}");
    }

    rig.must(201, "MKCOL", "/home/d", &[], b"");
    rig.must(201, "PUT", "/home/d/x", &[], b"1");
    set_mode(&rig, "home/d", 0o500);
    rig.must(201, "COPY", "/home/d", &[("destination", "/home/e")], b"");
    rig.must(201, "COPY", "/home/d", &[("destination", "/v/e"), ("depth", "0")], b"");
    assert_eq!((mode(&rig, "home/e"), mode(&rig, "v/e")), (0o500, 0o500));
    assert_eq!((rig.names("home/e"), rig.names("v/e")), (vec!["x".to_string()], vec![]));
}

#[test]
fn a_group_that_is_another_gets_no_more() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"1");
    let set = SetAttr { gid: Some(77), mode: Some(0o664), ..SetAttr::default() };
    rig.cell.call(&Ctx::system(), Op::SetAttr { node: rig.node("home/f"), set }).expect("its group");
    rig.must(201, "COPY", "/home/f", &[("destination", "/home/g")], b"");
    assert_eq!((attr(&rig, "home/g").gid, mode(&rig, "home/g")), (BOB_UID, 0o644));
    set_mode(&rig, "home/f", 0o660);
    rig.must(204, "PUT", "/home/f", &[], b"2");
    assert_eq!((attr(&rig, "home/f").gid, mode(&rig, "home/f")), (BOB_UID, 0o600));
}

#[test]
fn a_copy_that_fails_leaves_what_it_was_to_replace() {
    let rig = Rig::new();
    volume(&rig);
    for path in ["/home/d", "/home/e", "/v/e"] {
        rig.must(201, "MKCOL", path, &[], b"");
    }
    for path in ["/home/d/ok", "/home/d/secret", "/home/e/old", "/v/e/old"] {
        rig.must(201, "PUT", path, &[], b"x");
    }
    let set = SetAttr { uid: Some(1), mode: Some(0o600), ..SetAttr::default() };
    rig.cell.call(&Ctx::system(), Op::SetAttr { node: rig.node("home/d/secret"), set }).expect("not his");
    let failed = rig.must(207, "COPY", "/home/d", &[("destination", "/home/e")], b"");
    assert!(failed.text().contains("<D:href>/home/e/secret</D:href>"), "{}", failed.text());
    rig.must(207, "MOVE", "/home/d", &[("destination", "/v/e")], b"");
    assert_eq!((rig.names("home/e"), rig.names("v/e")), (vec!["old".to_string()], vec!["old".to_string()]));
    assert_eq!(
        (rig.names("home"), rig.names("v")),
        (vec!["d".to_string(), "e".into()], vec!["e".to_string()])
    );
    assert_eq!(rig.names("home/d"), ["ok", "secret"]);

    let set = SetAttr { uid: Some(BOB_UID), ..SetAttr::default() };
    rig.cell.call(&Ctx::system(), Op::SetAttr { node: rig.node("home/d/secret"), set }).expect("his again");
    rig.must(204, "COPY", "/home/d", &[("destination", "/home/e")], b"");
    rig.must(204, "MOVE", "/home/d", &[("destination", "/v/e")], b"");
    assert_eq!(
        (rig.names("home/e"), rig.names("v/e")),
        (vec!["ok".into(), "secret".to_string()], vec!["ok".into(), "secret".to_string()])
    );
    assert_eq!((rig.names("home"), rig.names("v")), (vec!["e".to_string()], vec!["e".to_string()]));
    rig.must(201, "PUT", "/home/f", &[], b"x");
    rig.must(204, "MOVE", "/home/e", &[("destination", "/home/f")], b"");
    assert_eq!(rig.names("home/f"), ["ok", "secret"], "a directory in place of a file");
    rig.must(201, "PUT", "/home/g", &[], b"x");
    rig.must(204, "COPY", "/home/g", &[("destination", "/home/f")], b"");
    assert_eq!(rig.names("home"), ["f", "g"]);
    assert_eq!(rig.must(200, "GET", "/home/f", &[], b"").body, b"x");
}

#[test]
fn a_move_to_another_volume_removes_only_what_it_copied() {
    let rig = Rig::new();
    volume(&rig);
    rig.must(201, "MKCOL", "/home/d", &[], b"");
    rig.must(201, "PUT", "/home/d/f", &[], b"x");
    rig.link("home/d", "link", "f");
    make(&rig, rig.node("home/d"), b"pipe", Make::Fifo);
    rig.must(207, "MOVE", "/home/d", &[("destination", "/v/d")], b"");
    assert_eq!(rig.names("home/d"), ["f", "link", "pipe"]);
    rig.must(204, "DELETE", "/home/d/pipe", &[], b"");
    let note = Op::SetXattr {
        node: rig.node("home/d/f"),
        name: b"user.mine",
        value: b"1",
        mode: leeward_fs::XattrMode::Set,
    };
    rig.cell.call(&Ctx::system(), note).expect("noted");
    rig.must(204, "MOVE", "/home/d", &[("destination", "/v/d")], b"");
    assert_eq!((rig.names("home"), rig.names("v/d")), (vec![], vec!["f".to_string(), "link".into()]));
    assert_eq!(xattr(&rig, "v/d/f", b"user.mine"), Some(b"1".to_vec()));
    assert_eq!(rig.must(200, "GET", "/v/d/link", &[], b"").body, b"x");
    rig.must(201, "MOVE", "/v/d/link", &[("destination", "/home/link")], b"");
    assert_eq!(attr(&rig, "home/link").kind, leeward_fs::Kind::Symlink);
}

/// Begins a MOVE between volumes, stops it when `until` says so, does something else, and lets it
/// go on.
fn move_and_meanwhile(rig: &Rig, to: &str, until: impl Fn() -> bool, meanwhile: impl FnOnce()) -> u16 {
    let request = Request::builder().method("MOVE").uri("/home/d").header("authorization", BOB);
    let request = request.header("destination", to).body(Body::default()).expect("a request");
    let client =
        Client { address: "127.0.0.1:1".parse().expect("an address"), tls: false, certificate: None };
    let mut moving = rig.dav.clone().answer(request, client);
    rig.runtime.block_on(async {
        let copied = std::future::poll_fn(|cx| match moving.as_mut().poll(cx) {
            Poll::Ready(answer) => panic!("it was done already: {}", answer.status()),
            Poll::Pending if until() => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        });
        copied.await;
    });
    meanwhile();
    rig.runtime.block_on(moving).status().as_u16()
}

fn is_there(rig: &Rig, path: &str) -> bool {
    let mut dir = NodeId::ROOT;
    path.split('/').all(|name| {
        match rig.cell.call(&Ctx::system(), Op::Lookup { dir, name: name.as_bytes() }) {
            Ok(Reply::Attr(attr)) => {
                dir = attr.node;
                true
            }
            _ => false,
        }
    })
}

#[test]
fn a_move_to_another_volume_leaves_what_others_do_meanwhile() {
    for replaces in [false, true] {
        let rig = Rig::new();
        volume(&rig);
        for dir in ["/home/d", "/home/d/a", "/home/d/a/gone", "/home/d/a/swapped", "/home/d/b", "/home/other"]
        {
            rig.must(201, "MKCOL", dir, &[], b"");
        }
        for file in ["a/kept", "a/changed", "a/replaced", "a/gone/x", "a/swapped/x"] {
            rig.must(201, "PUT", &format!("/home/d/{file}"), &[], b"old");
        }
        rig.must(201, "PUT", "/home/other/x", &[], b"another");
        let two = Op::Link { node: rig.node("home/d/a/kept"), dir: rig.node("home/d/b"), name: b"too" };
        rig.cell.call(&Ctx::system(), two).expect("a second name");
        // these are copied after `a`, and not all in one go
        for n in 0..60 {
            rig.must(201, "PUT", &format!("/home/d/b/{n}"), &[], b"x");
        }
        if replaces {
            rig.must(201, "MKCOL", "/v/d", &[], b"");
            rig.must(201, "PUT", "/v/d/before", &[], b"x");
        }
        // what replaces something is made beside it, under another name
        let until = || rig.names("v").iter().any(|name| is_there(&rig, &format!("v/{name}/b/0")));
        let meanwhile = || {
            rig.must(201, "PUT", "/home/d/a/new", &[], b"new");
            rig.must(204, "PUT", "/home/d/a/replaced", &[], b"newer");
            let changed = rig.node("home/d/a/changed");
            rig.cell
                .call(&Ctx::system(), Op::Write { node: changed, offset: 0, data: b"newer" })
                .expect("written");
            rig.must(204, "DELETE", "/home/d/a/gone", &[], b"");
            rig.must(204, "DELETE", "/home/d/a/swapped", &[], b"");
            rig.must(201, "MOVE", "/home/other", &[("destination", "/home/d/a/swapped")], b"");
        };
        let status = move_and_meanwhile(&rig, "/v/d", until, meanwhile);
        assert_eq!(status, 207, "it says that something stays");
        assert_eq!(rig.names("home/d"), ["a"], "what was copied is gone");
        assert_eq!(rig.names("home/d/a"), ["changed", "new", "replaced", "swapped"]);
        assert_eq!(rig.must(200, "GET", "/home/d/a/changed", &[], b"").body, b"newer");
        assert_eq!(rig.must(200, "GET", "/home/d/a/replaced", &[], b"").body, b"newer");
        assert_eq!(rig.must(200, "GET", "/home/d/a/swapped/x", &[], b"").body, b"another");
        assert_eq!(rig.names("v/d/a"), ["changed", "gone", "kept", "replaced", "swapped"]);
        assert_eq!(rig.names("v/d/b").len(), 61);
    }
}

#[test]
fn nothing_is_copied_into_itself_by_another_name() {
    let rig = Rig::new();
    rig.must(201, "MKCOL", "/home/d", &[], b"");
    rig.must(201, "MKCOL", "/home/d/e", &[], b"");
    rig.must(201, "PUT", "/home/d/f", &[], b"x");
    rig.link("home", "l", "d/e");
    rig.must(403, "COPY", "/home/d", &[("destination", "/home/l/x")], b"");
    rig.must(403, "MOVE", "/home/d", &[("destination", "/home/l/x")], b"");
    rig.must(403, "COPY", "/home/l/", &[("destination", "/home/d")], b"");
    rig.link("home", "same", "d");
    rig.must(403, "COPY", "/home/d/f", &[("destination", "/home/same/f")], b"");
    assert_eq!((rig.names("home/d"), rig.names("home/d/e")), (vec!["e".to_string(), "f".into()], vec![]));
}

#[test]
fn two_names_of_one_file_are_two_things() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"x");
    let link = |name: &[u8]| {
        let op = Op::Link { node: rig.node("home/f"), dir: rig.node("home"), name };
        rig.cell.call(&Ctx::system(), op).expect("a second name")
    };
    link(b"g");
    rig.must(204, "MOVE", "/home/f", &[("destination", "/home/g")], b"");
    assert_eq!((rig.names("home"), attr(&rig, "home/g").nlink), (vec!["g".to_string()], 1));
    rig.must(201, "MOVE", "/home/g", &[("destination", "/home/f")], b"");
    link(b"g");
    rig.must(204, "COPY", "/home/f", &[("destination", "/home/g")], b"");
    assert_eq!(rig.names("home"), ["f", "g"]);
    assert_ne!(rig.node("home/f"), rig.node("home/g"), "a copy is another file");
    rig.must(403, "COPY", "/home/f", &[("destination", "/home/f")], b"");
}

/// What is noted of copies that are on their way.
fn notes(rig: &Rig) -> Option<Vec<u8>> {
    xattr(rig, "", b"trusted.leeward.copies")
}

/// In the end only these names are in `/home`, and nothing is noted.
#[track_caller]
fn comes_to(rig: &Rig, names: &[&str]) {
    for _ in 0..600 {
        if rig.names("home") == names && notes(rig).is_none() {
            return;
        }
        rig.env.sleep(Duration::from_millis(50));
    }
    panic!("{:?}, {:?}", rig.names("home"), notes(rig));
}

#[test]
fn a_copy_that_nobody_waits_for_any_more_goes() {
    let rig = Rig::new();
    for dir in ["/home/d", "/home/e"] {
        rig.must(201, "MKCOL", dir, &[], b"");
    }
    let dir = rig.node("home/d");
    for n in 0..400 {
        make(&rig, dir, format!("f{n}").as_bytes(), Make::File);
    }
    for patience in [0, 1, 5, 20, 60] {
        let request = Request::builder().method("COPY").uri("/home/d").header("authorization", BOB);
        let request = request.header("destination", "/home/e").body(Body::default()).expect("a request");
        let address = "127.0.0.1:1".parse().expect("an address");
        let client = Client { address, tls: false, certificate: None };
        let answer = rig.dav.clone().answer(request, client);
        let given_up = rig
            .runtime
            .block_on(async { tokio::time::timeout(Duration::from_millis(patience), answer).await.is_err() });
        comes_to(&rig, &["d", "e"]);
        let copied = rig.names("home/e").len();
        assert!(given_up && copied == 0 || copied == 400, "none of it or all: {copied}");
    }
}

#[test]
fn a_copy_that_a_crash_left_goes_when_the_door_is_opened() {
    let rig = Rig::new();
    let note = |random: u64, uid: u32| {
        let (dir, name) = (rig.node("home"), format!(".leeward-copy-{random:016x}"));
        let copy = make(&rig, dir, name.as_bytes(), Make::Dir);
        let set = SetAttr { uid: Some(BOB_UID), mode: Some(0o700), ..SetAttr::default() };
        rig.cell.call(&Ctx::system(), Op::SetAttr { node: copy, set }).expect("his");
        make(&rig, copy, b"f", Make::File);
        [&dir.0.to_le_bytes()[..], &random.to_le_bytes(), &uid.to_le_bytes(), &uid.to_le_bytes()].concat()
    };
    // bob's; one that is gone already; one of somebody who may not remove what is there now
    let (mut value, gone) = (note(7, BOB_UID), note(8, BOB_UID));
    rig.must(204, "DELETE", "/home/.leeward-copy-0000000000000008", &[], b"");
    value.extend(gone);
    value.extend(note(9, 4321));
    let mode = leeward_fs::XattrMode::Set;
    let set = Op::SetXattr { node: NodeId::ROOT, name: b"trusted.leeward.copies", value: &value, mode };
    rig.cell.call(&Ctx::system(), set).expect("noted");
    rig.runtime.block_on(rig.dav.sweep()).expect("swept");
    comes_to(&rig, &[".leeward-copy-0000000000000009"]);
}

#[test]
fn deep_trees_come_and_go() {
    let rig = Rig::new();
    rig.must(201, "MKCOL", "/home/d", &[], b"");
    let mut at = rig.node("home/d");
    for _ in 0..1000 {
        at = make(&rig, at, b"a name of some length", Make::Dir);
        let set = SetAttr { uid: Some(BOB_UID), ..SetAttr::default() };
        rig.cell.call(&Ctx::system(), Op::SetAttr { node: at, set }).expect("his");
    }
    rig.must(201, "COPY", "/home/d", &[("destination", "/home/e")], b"");
    rig.must(204, "DELETE", "/home/d", &[], b"");
    let mut at = rig.node("home/e");
    for _ in 0..1000 {
        let op = Op::Lookup { dir: at, name: b"a name of some length" };
        let Ok(Reply::Attr(attr)) = rig.cell.call(&Ctx::system(), op) else { panic!("not copied") };
        at = attr.node;
    }
    for _ in 0..30 {
        at = make(&rig, at, b"n", Make::Dir);
    }
    rig.must(207, "DELETE", "/home/e", &[], b"");
    assert_eq!(rig.names("home"), ["e"], "what is too deep for a path is told and stays");
}

#[test]
fn snapshots_can_only_be_read() {
    let rig = Rig::new();
    volume(&rig);
    rig.must(201, "PUT", "/v/f", &[], b"x");
    rig.admin(&admin::SnapCreate { path: "/v".into(), name: "s".into() });
    assert_eq!(rig.must(200, "GET", "/v/.snap/s/f", &[], b"").body, b"x");
    rig.must(403, "DELETE", "/v/.snap/s", &[], b"");
    rig.must(403, "DELETE", "/v/.snap/s/f", &[], b"");
    rig.must(403, "MOVE", "/v/.snap/s", &[("destination", "/v/.snap/t")], b"");
    rig.must(403, "MKCOL", "/v/.snap/u", &[], b"");
    assert_eq!(rig.names("v/.snap"), ["s"]);
    rig.admin(&admin::SnapCreate { path: "/v".into(), name: "t".into() });
    rig.must(204, "DELETE", "/v/f", &[], b"");
    rig.admin(&admin::SnapCreate { path: "/v".into(), name: "empty".into() });
    assert_eq!(rig.ask("DELETE", "/v/.snap/empty", &[], b"").status, 403, "nor when nothing is in it");
    assert_eq!(rig.names("v/.snap").len(), 3);
}

#[test]
fn links_are_what_they_lead_to_until_they_are_replaced() {
    let rig = Rig::new();
    rig.must(201, "MKCOL", "/home/d", &[], b"");
    let etag = rig.must(201, "PUT", "/home/d/f", &[], b"12345").header("etag").to_string();
    rig.link("home", "l", "d/f");
    rig.link("home", "to-dir", "d");
    rig.link("home", "nowhere", "none");
    let found = rig.must(207, "PROPFIND", "/home", &[("depth", "1")], b"").text();
    assert_eq!(found.matches("<D:getcontentlength>5</D:getcontentlength>").count(), 1, "{found}");
    assert!(found.contains("<D:href>/home/to-dir/</D:href>") && found.contains("/home/nowhere"), "{found}");
    let tag = etag.trim_matches('"');
    assert!(found.contains(tag), "{found}");
    rig.must(412, "PUT", "/home/l", &[("if-match", "\"x\"")], b"new");
    rig.must(204, "PUT", "/home/l", &[("if-match", &etag)], b"new");
    assert_eq!(rig.must(200, "GET", "/home/d/f", &[], b"").body, b"12345", "the link was replaced");
    rig.must(405, "PUT", "/home/to-dir", &[], b"x");
    rig.must(404, "GET", "/home/nowhere", &[], b"");
    rig.must(204, "DELETE", "/home/nowhere", &[], b"");
    rig.must(204, "DELETE", "/home/to-dir", &[], b"");
    assert_eq!(
        (rig.names("home"), rig.names("home/d")),
        (vec!["d".to_string(), "l".into()], vec!["f".to_string()])
    );
}

#[test]
fn properties_of_many_at_once_are_all_kept() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"");
    // who may write but not read keeps what is there, too
    set_mode(&rig, "home/f", 0o200);
    std::thread::scope(|threads| {
        for n in 0..8 {
            let rig = &rig;
            threads.spawn(move || {
                for m in 0..5 {
                    let body = format!(
                        "<propertyupdate xmlns='DAV:' xmlns:u='u:'><set><prop><u:p{n}-{m}>1</u:p{n}-{m}></prop></set></propertyupdate>"
                    );
                    rig.must(207, "PROPPATCH", "/home/f", &[], body.as_bytes());
                }
            });
        }
    });
    let kept = xattr(&rig, "home/f", b"user.leeward.properties").expect("some");
    assert_eq!(String::from_utf8_lossy(&kept).matches("\"u:\"").count(), 40);
    set_mode(&rig, "home/f", 0o600);
    rig.must(204, "PUT", "/home/f", &[], b"new");
    assert_eq!(xattr(&rig, "home/f", b"user.leeward.properties"), Some(kept), "another content changes none");
}
