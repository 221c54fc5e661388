//! What one client may take of the door, and what it may keep from others.

use crate::rig;
use crate::rig::{ATLAS_UID, BOB, Rig};
use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use leeward_door::listen::{BodyError, Client, Site};
use leeward_fs::Fs;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

const ALICE: &str = "Basic S0VZT0ZBTElDRTpzZWNyZXQgb2YgYWxpY2U=";
const LOCK: &[u8] =
    b"<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>";

#[test]
fn names_that_come_to_more_than_they_are_sent_as_are_refused() {
    let rig = Rig::new();
    let space = format!("xmlns:a='{}'", "u".repeat(200 << 10));
    let many = "<a:b/>".repeat(4000);
    for (method, root) in [("PROPFIND", "propfind"), ("PROPPATCH", "propertyupdate"), ("LOCK", "lockinfo")] {
        let body = format!(
            "<{root} xmlns='DAV:' {space}><set><prop>{many}</prop></set><prop>{many}</prop></{root}>"
        );
        rig.must(400, method, "/home", &[("depth", "0")], body.as_bytes());
    }
}

#[test]
fn who_may_not_change_a_thing_may_not_lock_it() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"1");
    let lock =
        |who: &str, at: &str, depth: &str| rig.ask_as(who, "LOCK", at, &[("depth", depth)], LOCK).status;
    assert_eq!(lock(ALICE, "/home/f", "0"), 403, "the mode lets others read");
    assert_eq!(
        (lock(ALICE, "/home/", "0"), lock(ALICE, "/", "infinity"), lock(rig::BOB, "/", "0")),
        (403, 403, 403)
    );
    assert_eq!(lock(ALICE, "/home/new", "0"), 403);
    // everybody may write there, and nobody but its owner locks all of it
    let shared = rig.dir("shared", ATLAS_UID);
    let mode = leeward_fs::SetAttr { mode: Some(0o777), ..Default::default() };
    rig.cell
        .call(&leeward_env::Ctx::system(), leeward_fs::Op::SetAttr { node: shared, set: mode })
        .expect("a mode");
    assert_eq!((lock(ALICE, "/shared/", "infinity"), lock(ALICE, "/shared/", "0")), (403, 200));
    assert_eq!(lock(rig::BOB, "/home/", "infinity"), 200);
}

#[test]
fn long_listings_are_written_in_short_pages_and_tell_each_name_once() {
    let rig = Rig::new();
    let names: BTreeSet<String> = (0..450).map(|n| format!("{n:03}")).collect();
    for name in &names {
        rig.must(201, "MKCOL", &format!("/home/{name}"), &[], b"");
    }
    // each entry is long: the names of properties that there are not
    let asked: String = (0..200).map(|n| format!("<property-number-{n}/>")).collect();
    let body = format!("<propfind xmlns='DAV:'><prop>{asked}</prop></propfind>");
    let text = rig.must(207, "PROPFIND", "/home/", &[("depth", "1")], body.as_bytes()).text();
    let told: Vec<&str> =
        text.split("<D:href>/home/").skip(1).filter_map(|rest| rest.split("/</D:href>").next()).collect();
    let told: Vec<String> = told.into_iter().filter(|name| name.len() == 3).map(str::to_string).collect();
    assert_eq!(told, names.into_iter().collect::<Vec<_>>());
}

#[test]
fn who_sends_slowly_keeps_nobody_from_his_turn() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"1");
    let address = "127.0.0.1:1".parse().expect("an address");
    let client = Client { address, tls: false, certificate: None };
    for n in 0..1000 {
        let method = ["PROPFIND", "PROPPATCH", "LOCK", "MKCOL", "POST"][n % 5];
        let never = futures_util::stream::pending::<Result<Frame<Bytes>, BodyError>>();
        let request = Request::builder().method(method).uri("/home/f").header("authorization", rig::BOB);
        let request =
            request.header("content-length", "100").header("content-type", "application/macaroon-request");
        let request = request.body(StreamBody::new(never).boxed_unsync()).expect("a request");
        rig.runtime.spawn(rig.dav.clone().answer(request, client.clone()));
    }
    rig.must(200, "GET", "/home/f", &[], b"");
    assert_eq!(rig.ask_as(ALICE, "PROPFIND", "/home/f", &[("depth", "0")], b" ").status, 207);
}

#[test]
fn who_is_refused_while_he_sends_hears_why() {
    let rig = Rig::new();
    let (url, _serving) = rig.serve();
    let at = url.trim_start_matches("http://");
    for _ in 0..20 {
        let mut client = TcpStream::connect(at).expect("connected");
        let head = "PUT /home/f HTTP/1.1\r\nhost: here\r\ncontent-length: 600000\r\n\r\n";
        client.write_all(head.as_bytes()).expect("sent");
        let mut answer = client.try_clone().expect("a second handle");
        // it does not listen before all of it has gone
        client.write_all(&vec![0; 600_000]).expect("nobody hangs up on it");
        let mut heard = String::new();
        answer.read_to_string(&mut heard).expect("the answer, and its end");
        assert!(heard.starts_with("HTTP/1.1 401 "), "{heard}");
    }
}

#[test]
fn who_is_refused_before_he_sends_hears_that_the_connection_ends() {
    let rig = Rig::new();
    let (url, _serving) = rig.serve();
    let ask = |who: &str, content: &str| {
        let mut client = TcpStream::connect(url.trim_start_matches("http://")).expect("connected");
        let head = "PUT /home/f HTTP/1.1\r\nhost: here\r\nexpect: 100-continue\r\ncontent-length: 3\r\n";
        client.write_all(format!("{head}authorization: {who}\r\n\r\n").as_bytes()).expect("sent");
        let mut heard = [0; 4096];
        let n = client.read(&mut heard).expect("an answer");
        let mut heard = String::from_utf8_lossy(&heard[..n]).to_lowercase();
        if heard.starts_with("http/1.1 100 ") {
            client
                .write_all(
                    format!("{content}GET /home/f HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
                        .as_bytes(),
                )
                .expect("sent");
        }
        client.read_to_string(&mut heard).expect("the rest");
        heard.to_lowercase()
    };
    let refused = ask("Basic x", "");
    assert!(
        refused.starts_with("http/1.1 401 ") && refused.contains("\r\nconnection: close\r\n"),
        "{refused}"
    );
    let taken = ask(BOB, "abc");
    let answers =
        ["http/1.1 100 ", "http/1.1 201 ", "http/1.1 401 "].map(|status| taken.matches(status).count());
    assert_eq!(answers, [1, 1, 1], "the connection is used again: {taken}");
}

#[test]
fn what_a_user_asks_is_counted_as_his() {
    let rig = Rig::new();
    let (url, serving) = rig.serve();
    let mut client = TcpStream::connect(url.trim_start_matches("http://")).expect("connected");
    let head =
        format!("GET /home/f HTTP/1.1\r\nhost: here\r\nauthorization: {BOB}\r\nconnection: close\r\n\r\n");
    client.write_all(head.as_bytes()).expect("sent");
    client.read_to_string(&mut String::new()).expect("an answer");
    let pairs = serving.figures().pairs();
    let counted: Vec<_> =
        pairs.iter().map(|pair| (pair.user.as_str(), pair.bucket.as_str(), pair.requests)).collect();
    assert_eq!(counted, [("bob", "", [0, 0, 0, 1, 0])]);
}

#[test]
fn a_connection_that_has_rested_goes_on_where_it_was() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"THE END");
    let (url, _serving) = rig.serve();
    let mut client = TcpStream::connect(url.trim_start_matches("http://")).expect("connected");
    let rest = std::time::Duration::from_millis(leeward_door::limits::REST_SECS * 2500);
    let ask = format!("GET /home/f HTTP/1.1\r\nhost: here\r\nauthorization: {}\r\n\r\n", rig::BOB);
    let (one, two) = ask.split_at(30);
    let hear = |client: &mut TcpStream| {
        let mut heard = Vec::new();
        let mut byte = [0];
        while !heard.ends_with(b"THE END") && client.read(&mut byte).expect("an answer") == 1 {
            heard.push(byte[0]);
        }
        assert!(heard.starts_with(b"HTTP/1.1 200 "));
    };
    // one and a half, a pause, the other half
    client.write_all(format!("{ask}{one}").as_bytes()).expect("sent");
    hear(&mut client);
    rig.env.sleep(rest);
    client.write_all(two.as_bytes()).expect("sent");
    hear(&mut client);
    rig.env.sleep(rest);
    client.write_all(ask.as_bytes()).expect("sent");
    hear(&mut client);
}
