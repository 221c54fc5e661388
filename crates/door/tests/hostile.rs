//! Fuzz targets: paths, and whole connections of strangers to the listener.
#![allow(missing_docs)]

mod soup;

use bolero::{check, produce};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use leeward_door::Path;
use leeward_door::listen::{Answer, Body, Bound, Client, Site, parse};
use leeward_env::{Door, Env};
use soup::soup;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

const PATHS: &str = "\
    /|//|.|..|/..|../|a|b|\0|é|\
    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn a_path_is_its_names_or_none() {
    check!().with_iterations(20_000).with_generator((soup(PATHS), soup(PATHS))).for_each(|(text, below)| {
        let Ok(path) = Path::parse(text) else { return };
        let names: Vec<&[u8]> = path.names().collect();
        assert!(names.iter().all(|name| !matches!(*name, b"" | b"." | b"..") && name.len() <= 255));
        assert!(names.iter().all(|name| !name.contains(&b'/') && !name.contains(&0)));
        let slash: &[u8] = if path.wants_dir() && !path.is_root() { b"/" } else { b"" };
        assert_eq!([&names.join(&b'/')[..], slash].concat(), *text);
        let Ok(below) = Path::parse(below) else { return };
        let joined = path.join(&below);
        assert!(joined.is_below(&path) && joined.names().count() == names.len() + below.names().count());
        if let Some((dir, name)) = joined.split() {
            assert!(dir.join(&Path::parse(name).expect("a name")).names().eq(joined.names()));
        }
    });
}

/// Says what it was asked: how many bytes came with a request.
struct Echo;

impl Site for Echo {
    fn door(&self) -> Door {
        Door::Http
    }

    fn answer(self: Arc<Self>, request: Request<Body>, _: Client) -> Answer {
        async move {
            let text = match request.into_body().collect().await {
                Ok(body) => format!("<{}>", body.to_bytes().len()),
                Err(_) => "cut off".into(),
            };
            Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync())
        }
        .boxed()
    }
}

/// Answers of a connection: statuses, and what is in them. The last one may be cut off, where the
/// client has hung up.
fn answers(mut text: &str) -> Vec<(u16, &str)> {
    let mut all = Vec::new();
    while let Some((head, rest)) = text.split_once("\r\n\r\n") {
        let status = head.strip_prefix("HTTP/1.").and_then(|line| line.get(2..5)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{text:?} is no answer"));
        let header = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok();
        let length: usize = head.lines().find_map(header).unwrap_or(0);
        let Some(body) = rest.get(..if status == 100 { 0 } else { length }) else { break };
        all.push((status, body));
        text = &rest[body.len()..];
    }
    all
}

const HTTP: &str = "\
    GET / HTTP/1.1\r\n|PUT /a HTTP/1.1\r\n|POST http://h/ HTTP/1.1\r\n|GET / HTTP/1.0\r\n|\
    PRI * HTTP/2.0\r\n|GET /| HTTP/1.1\r\n|Host: h\r\n|Content-Length: 5\r\n|Content-Length: 6\r\n|\
    Content-Length: -1\r\n|Content-Length: 99999999999999999999\r\n|Transfer-Encoding: chunked\r\n|\
    Transfer-Encoding : chunked\r\n|Transfer-Encoding: x\r\n|Connection: close\r\n|\
    Connection: keep-alive\r\n|Expect: 100-continue\r\n|Upgrade: h2c\r\n|X: y\r\n| folded\r\n|\r\n|\
    \n|\r|hello|5\r\nhello\r\n|0\r\n\r\n|fffffffffffffffff\r\n|\0|:|\
    GET / HTTP/1.1\r\nHost: h\r\n\r\n|PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";

/// After this the door hangs up.
const LAST: &[u8] = b"PUT / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";

/// Whatever comes, the door answers in HTTP or hangs up, and the next one is served: after a
/// request that cannot be read nothing is read as another one.
#[test]
fn a_connection_is_answered_or_ended() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("threads");
    let bound = Bound::take(&parse("127.0.0.1:0").expect("an address"), None).expect("a port");
    let at = bound.urls()[0].trim_start_matches("http://").to_owned();
    let serving = bound.serve(&Env::real(), runtime.handle(), Arc::new(Echo), None).expect("served");
    let say = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&at).expect("connected");
        // it may have hung up by then
        let _ = stream.write_all(bytes);
        if bytes != LAST {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text")
    };
    let input = (soup(HTTP), produce::<bool>());
    check!().with_iterations(500).with_generator(input).for_each(|(bytes, begun)| {
        let begin = if *begun { &b"PUT /a HTTP/1.1\r\nHost: h\r\n"[..] } else { b"" };
        let said = say(&[begin, bytes].concat());
        let all = answers(&said);
        let refused = all.iter().position(|(status, _)| *status >= 400);
        assert!(refused.is_none_or(|at| at + 1 == all.len()), "{all:?}");
        assert_eq!(answers(&say(LAST)), [(200, "<5>")]);
    });
    drop(serving);
}
