//! The methods, through the whole door.

use crate::rig;
use crate::rig::{BOB, Rig, noise};
use http_body_util::{BodyExt, StreamBody};
use leeward_door::limits;
use leeward_door::listen::BodyError;
use leeward_env::Ctx;
use leeward_fs::{Fs, Op, Reply};
use leeward_volume::admin;

#[test]
fn a_file_comes_and_goes() {
    let rig = Rig::new();
    let data = noise(700_000, 1);
    let put = rig.must(201, "PUT", "/home/a%20b", &[], &data);
    assert!(put.header("etag").starts_with('"'));
    let got = rig.must(200, "GET", "//home/a%20b", &[], b"");
    assert!(got.body == data && got.header("etag") == put.header("etag"));
    let head = rig.must(200, "HEAD", "/home/a%20b", &[], b"");
    assert_eq!((head.header("content-length"), head.body.len()), ("700000", 0));
    rig.must(204, "PUT", "/home/a%20b", &[], b"less");
    assert_eq!(rig.must(200, "GET", "/home/a%20b", &[], b"").body, b"less");
    rig.must(204, "DELETE", "/home/a%20b", &[], b"");
    rig.must(404, "GET", "/home/a%20b", &[], b"");
    rig.must(404, "DELETE", "/home/a%20b", &[], b"");
}

#[test]
fn ranges() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f.txt", &[], b"0123456789");
    let got = rig.must(206, "GET", "/home/f.txt", &[("range", "bytes=2-4")], b"");
    assert_eq!((got.text().as_str(), got.header("content-range")), ("234", "bytes 2-4/10"));
    let got = rig.must(206, "GET", "/home/f.txt", &[("range", "bytes=0-0,-2")], b"");
    assert!(got.header("content-type").starts_with("multipart/byteranges; boundary="));
    let again = rig.must(206, "GET", "/home/f.txt", &[("range", "bytes=0-0,-2")], b"");
    assert_ne!(again.header("content-type"), got.header("content-type"), "nobody knows the next boundary");
    let text = got.text();
    assert!(text.contains("Content-Range: bytes 0-0/10\r\n\r\n0\r\n--"), "{text}");
    assert!(
        text.contains(
            "Content-Type: text/plain; charset=utf-8\r\nContent-Range: bytes 8-9/10\r\n\r\n89\r\n--"
        ),
        "{text}"
    );
    assert_eq!(got.header("content-length").parse(), Ok(got.body.len()));
    let got = rig.must(416, "GET", "/home/f.txt", &[("range", "bytes=10-")], b"");
    assert_eq!(got.header("content-range"), "bytes */10");
    let etag = rig.must(200, "HEAD", "/home/f.txt", &[], b"").header("etag").to_string();
    rig.must(206, "GET", "/home/f.txt", &[("range", "bytes=1-"), ("if-range", &etag)], b"");
    rig.must(200, "GET", "/home/f.txt", &[("range", "bytes=1-"), ("if-range", "\"x\"")], b"");
}

#[test]
fn conditions_are_kept() {
    let rig = Rig::new();
    let etag = rig.must(201, "PUT", "/home/f", &[("if-none-match", "*")], b"1").header("etag").to_string();
    rig.must(412, "PUT", "/home/f", &[("if-none-match", "*")], b"2");
    rig.must(412, "PUT", "/home/f", &[("if-match", "\"x\"")], b"2");
    rig.must(412, "PUT", "/home/g", &[("if-match", "*")], b"2");
    rig.must(304, "GET", "/home/f", &[("if-none-match", &etag)], b"");
    rig.must(412, "DELETE", "/home/f", &[("if-match", "\"x\"")], b"");
    let next = rig.must(204, "PUT", "/home/f", &[("if-match", &etag)], b"2").header("etag").to_string();
    assert_ne!(next, etag);
    assert_eq!(rig.must(200, "GET", "/home/f", &[], b"").body, b"2");
}

#[test]
fn what_cannot_be_put_is_told_and_leaves_nothing() {
    let rig = Rig::new();
    rig.must(409, "PUT", "/home/none/f", &[], b"x");
    rig.must(405, "PUT", "/home/", &[], b"x");
    rig.must(405, "PUT", "/home", &[], b"x");
    rig.must(400, "PUT", "/home/f", &[("content-range", "bytes 0-1/2")], b"x");
    rig.must(403, "PUT", "/atlas/f", &[], b"x");
    rig.must(400, "PUT", "/home/../atlas/f", &[], b"x");
    rig.must(400, "PUT", "/home/a%2Fb", &[], b"x");
    let cut = futures_util::stream::iter([
        Ok(http_body::Frame::data(bytes::Bytes::from_static(b"half"))),
        Err::<_, BodyError>("gone".into()),
    ]);
    let request = http::Request::builder().method("PUT").uri("/home/f").header("authorization", BOB);
    let got = rig.send(request.body(StreamBody::new(cut).boxed_unsync()).expect("a request"));
    assert_eq!(got.status, 400, "{}", got.text());
    assert_eq!(rig.names("home"), [""; 0]);
}

#[test]
fn checksums_are_computed_kept_and_held_against_claims() {
    let rig = Rig::new();
    rig.must(400, "PUT", "/home/f", &[("digest", "adler32=00000001")], b"Wikipedia");
    rig.must(404, "GET", "/home/f", &[], b"");
    rig.must(
        201,
        "PUT",
        "/home/f",
        &[("digest", "adler32=11e60398"), ("content-md5", "nGdyhoZqrTj46bZg9UEYFA==")],
        b"Wikipedia",
    );
    let digest = |wanted| {
        rig.must(200, "HEAD", "/home/f", &[("want-digest", wanted)], b"").header("digest").to_string()
    };
    assert_eq!(digest("adler32"), "adler32=11e60398");
    assert_eq!(digest("adler32,md5"), "adler32=11e60398,md5=nGdyhoZqrTj46bZg9UEYFA==");
    let got = rig.must(200, "GET", "/home/f", &[("want-repr-digest", "adler=5")], b"");
    assert_eq!(got.header("repr-digest"), "adler=:EeYDmA==:");

    // the mount changes it: what was kept is of other content
    let node = rig.node("home/f");
    rig.cell.call(&Ctx::system(), Op::Write { node, offset: 0, data: b"w" }).expect("written");
    assert_eq!(digest("adler32"), "adler32=130603b8");
    let Ok(Reply::Data(kept)) =
        rig.cell.call(&Ctx::system(), Op::GetXattr { node, name: b"user.leeward.sums" })
    else {
        panic!("kept again")
    };
    assert!(String::from_utf8_lossy(&kept).contains("adler32:130603b8"));
}

#[test]
fn directories() {
    let rig = Rig::new();
    rig.must(201, "MKCOL", "/home/d", &[], b"");
    rig.must(405, "MKCOL", "/home/d/", &[], b"");
    rig.must(409, "MKCOL", "/home/no/d", &[], b"");
    rig.must(415, "MKCOL", "/home/e", &[], b"<x/>");
    rig.must(403, "MKCOL", "/atlas/e", &[], b"");
    for n in 0..450 {
        rig.must(201, "PUT", &format!("/home/d/{n:03}"), &[], b"");
    }
    rig.must(301, "GET", "/home/d", &[], b"");
    let page = rig.must(200, "GET", "/home/d/", &[], b"").text();
    assert_eq!(page.matches("<tr><td><a href=\"/home/d/").count(), 450);
    let found = rig.must(207, "PROPFIND", "/home/d", &[("depth", "1")], b"").text();
    assert_eq!(found.matches("<D:response>").count(), 451);
    assert!(found.ends_with("</D:multistatus>\n"));
    rig.must(201, "MKCOL", "/home/d/sub", &[], b"");
    rig.must(201, "PUT", "/home/d/sub/x", &[], b"");
    rig.must(204, "DELETE", "/home/d/", &[], b"");
    assert_eq!(rig.names("home"), [""; 0]);
}

#[test]
fn what_is_found() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], &noise(5000, 2));
    rig.must(403, "PROPFIND", "/home", &[("depth", "infinity")], b"");
    // who says no depth, as Python's webdav4, has 1; of a file there is no more than itself
    let unsaid = rig.must(207, "PROPFIND", "/home", &[], b"").text();
    assert_eq!(unsaid, rig.must(207, "PROPFIND", "/home", &[("depth", "1")], b"").text());
    rig.must(207, "PROPFIND", "/home/f", &[("depth", "infinity")], b"");
    rig.must(400, "PROPFIND", "/home", &[("depth", "0")], b"<!DOCTYPE x []><x/>");
    rig.must(404, "PROPFIND", "/home/none", &[("depth", "0")], b"");
    let ask = |path: &str, props: &str| {
        let body = format!("<propfind xmlns='DAV:'><prop>{props}</prop></propfind>");
        rig.must(207, "PROPFIND", path, &[("depth", "0")], body.as_bytes()).text()
    };
    assert!(ask("/home/f", "<getcontentlength/>").contains("<D:getcontentlength>5000</D:getcontentlength>"));
    assert!(ask("/home", "<resourcetype/>").contains("<D:resourcetype><D:collection/></D:resourcetype>"));
    assert!(ask("/home/f", "<nothing/>").contains("404"));
    rig.admin(&admin::QuotaSet { path: "/home".into(), bytes: Some(100_000), files: None });
    let quota = ask("/home", "<quota-used-bytes/><quota-available-bytes/>");
    assert!(quota.contains("<D:quota-used-bytes>5000</D:quota-used-bytes>"), "{quota}");
    assert!(quota.contains("<D:quota-available-bytes>95000</D:quota-available-bytes>"), "{quota}");
    let full = rig.must(507, "PUT", "/home/g", &[], &noise(200_000, 3));
    assert!(full.text().contains("quota-not-exceeded"), "{}", full.text());
}

#[test]
fn properties_are_set_all_or_none() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"");
    let patch = |inner: &str| {
        let body = format!("<propertyupdate xmlns='DAV:' xmlns:u='u:'>{inner}</propertyupdate>");
        rig.must(207, "PROPPATCH", "/home/f", &[], body.as_bytes()).text()
    };
    let all = || rig.must(207, "PROPFIND", "/home/f", &[("depth", "0")], b"").text();
    assert!(patch("<set><prop><u:a>1 &lt; 2</u:a></prop></set>").contains("200 OK"));
    assert!(all().contains("<P:a xmlns:P=\"u:\">1 &lt; 2</P:a>"), "{}", all());
    let refused = patch("<set><prop><u:a>3</u:a><getetag>x</getetag></prop></set>");
    assert!(refused.contains("403 Forbidden") && refused.contains("424 Failed Dependency"), "{refused}");
    assert!(all().contains("1 &lt; 2"));
    rig.must(201, "COPY", "/home/f", &[("destination", "/home/g")], b"");
    rig.must(201, "MOVE", "/home/g", &[("destination", "http://here/home/h")], b"");
    assert!(rig.must(207, "PROPFIND", "/home/h", &[("depth", "0")], b"").text().contains("1 &lt; 2"));
    patch("<remove><prop><u:a/></prop></remove>");
    assert!(!all().contains("u:"));
    rig.must(
        404,
        "PROPPATCH",
        "/home/none",
        &[],
        b"<propertyupdate xmlns='DAV:'><set><prop><a/></prop></set></propertyupdate>",
    );
}

#[test]
fn copies_and_moves() {
    let rig = Rig::new();
    let data = noise(1_000_000, 4);
    rig.must(201, "MKCOL", "/home/d", &[], b"");
    rig.must(201, "PUT", "/home/d/f", &[], &data);
    rig.must(201, "COPY", "/home/d", &[("destination", "/home/e")], b"");
    assert!(rig.must(200, "GET", "/home/e/f", &[], b"").body == data);
    let digest = rig.must(200, "HEAD", "/home/e/f", &[("want-digest", "md5")], b"");
    assert!(digest.header("digest").starts_with("md5="));
    rig.must(412, "COPY", "/home/d", &[("destination", "/home/e"), ("overwrite", "F")], b"");
    rig.must(204, "COPY", "/home/d", &[("destination", "/home/e"), ("depth", "0")], b"");
    assert_eq!(rig.names("home/e"), [""; 0], "what was there is gone, and nothing below came");
    rig.must(204, "MOVE", "/home/d", &[("destination", "/home/e")], b"");
    assert_eq!((rig.names("home"), rig.names("home/e")), (vec!["e".to_string()], vec!["f".to_string()]));
    rig.must(409, "MOVE", "/home/e/f", &[("destination", "/home/none/f")], b"");
    rig.must(403, "COPY", "/home/e", &[("destination", "/home/e/x")], b"");
    rig.must(403, "MOVE", "/home/e", &[("destination", "/home/e")], b"");
    rig.must(403, "MOVE", "/home/e", &[("destination", "/atlas/e")], b"");
    rig.must(502, "MOVE", "/home/e", &[("destination", "https://elsewhere/e")], b"");
    rig.must(400, "MOVE", "/home/e", &[("destination", "/a/%2e%2e/e")], b"");
}

#[test]
fn a_move_to_another_volume_copies() {
    let rig = Rig::new();
    rig.admin(&admin::VolumeCreate {
        name: "v".into(),
        at: "/v".into(),
        uid: rig::BOB_UID,
        gid: rig::BOB_UID,
        pool: None,
    });
    rig.must(201, "MKCOL", "/home/d", &[], b"");
    rig.must(201, "PUT", "/home/d/f", &[], b"x");
    rig.must(201, "MOVE", "/home/d", &[("destination", "/v/d")], b"");
    assert_eq!((rig.names("home"), rig.names("v/d")), (vec![], vec!["f".to_string()]));
}

#[test]
fn locks_keep_others_out() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"1");
    let info =
        b"<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>";
    let got = rig.must(200, "LOCK", "/home/f", &[("depth", "0"), ("timeout", "Second-60")], info);
    let token = got.header("lock-token").trim_matches(['<', '>']).to_string();
    assert!(token.starts_with("urn:uuid:") && got.text().contains("<D:timeout>Second-60</D:timeout>"));
    rig.must(423, "PUT", "/home/f", &[], b"2");
    rig.must(423, "DELETE", "/home/f", &[], b"");
    rig.must(423, "MOVE", "/home/f", &[("destination", "/home/g")], b"");
    rig.must(423, "LOCK", "/home/f", &[("depth", "0")], info);
    rig.must(200, "GET", "/home/f", &[], b"");
    let held = format!("(<{token}>)");
    rig.must(204, "PUT", "/home/f", &[("if", &held)], b"2");
    rig.must(412, "PUT", "/home/f", &[("if", "(<urn:uuid:no>)")], b"3");
    rig.must(200, "LOCK", "/home/f", &[("if", &held)], b"");
    rig.must(204, "UNLOCK", "/home/f", &[("lock-token", &format!("<{token}>"))], b"");
    rig.must(409, "UNLOCK", "/home/f", &[("lock-token", &format!("<{token}>"))], b"");
    rig.must(204, "PUT", "/home/f", &[], b"3");
    rig.must(201, "LOCK", "/home/new", &[("depth", "0")], info);
    assert!(rig.must(200, "GET", "/home/new", &[], b"").body.is_empty());
}

#[test]
fn what_is_spoken_and_what_is_not() {
    let rig = Rig::new();
    let got = rig.ask_as("", "OPTIONS", "/", &[], b"");
    assert_eq!((got.status, got.header("dav")), (200, "1, 2"));
    rig.must(501, "BREW", "/home", &[], b"");
    rig.must(415, "POST", "/home/f", &[], b"");
    let long = format!("/{}", "a".repeat(20_000));
    rig.must(414, "GET", &long, &[], b"");
}

#[test]
fn files_are_read_for_checksums_a_few_at_a_time() {
    let rig = Rig::new();
    rig.must(201, "PUT", "/home/f", &[], b"Wikipedia");
    let node = rig.node("home/f");
    rig.cell.call(&Ctx::system(), Op::Write { node, offset: 0, data: b"w" }).expect("written");
    let hashing = rig.files.hashing().clone();
    let busy: Vec<_> = (0..limits::HASHING_MAX as u32).filter_map(|uid| hashing.try_take(uid, 1)).collect();
    assert_eq!(busy.len(), limits::HASHING_MAX, "somebody's each");
    let wanted = [("want-digest", "adler32")];
    std::thread::scope(|scope| {
        let waits =
            scope.spawn(|| rig.must(200, "HEAD", "/home/f", &wanted, b"").header("digest").to_string());
        while hashing.waiting() == 0 {
            assert!(!waits.is_finished(), "it did not wait");
            std::thread::yield_now();
        }
        drop(busy);
        assert_eq!(waits.join().expect("answered"), "adler32=130603b8");
    });
}

#[test]
fn a_time_that_is_not_understood_is_not_accepted() {
    let rig = Rig::new();
    for (time, said) in [("784111777", "accepted"), ("784111777.25", "accepted"), ("tomorrow", "")] {
        let put = rig.ask("PUT", "/home/f", &[("x-oc-mtime", time)], b"x");
        assert_eq!(put.header("x-oc-mtime"), said, "{time}");
    }
    let head = rig.must(200, "HEAD", "/home/f", &[], b"");
    assert_ne!(head.header("last-modified"), "Sun, 06 Nov 1994 08:49:37 GMT");
}
