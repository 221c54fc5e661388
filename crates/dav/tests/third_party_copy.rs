//! Third-party copies between two cells, and with servers that do not behave.

use crate::rig::{BOB, Got, Rig, noise};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

fn last(got: &Got) -> String {
    got.text().lines().last().unwrap_or_default().to_string()
}

/// COPY as bob, who is bob there, too.
fn copy(rig: &Rig, path: &str, headers: &[(&str, &str)]) -> Got {
    let mut all = vec![("transferheaderauthorization", BOB), ("credential", "none")];
    all.extend(headers);
    rig.ask("COPY", path, &all, b"")
}

#[test]
fn a_file_is_pulled_and_pushed() {
    let (here, there) = (Rig::new(), Rig::new());
    let (url, _serving) = there.serve();
    let data = noise(3_000_000, 1);
    there.must(201, "PUT", "/home/f", &[], &data);

    let got = copy(
        &here,
        "/home/pulled",
        &[("source", &format!("{url}/home/f")), ("requirechecksumverification", "true")],
    );
    assert_eq!((got.status, got.header("content-type")), (201, "text/perf-marker-stream"));
    assert_eq!(last(&got), "success: Created", "{}", got.text());
    let text = got.text();
    assert!(
        text.contains(
            "Stripe Bytes Transferred: 3000000\nTotal Stripe Count: 1\nRemoteConnections: tcp:127.0.0.1:"
        ),
        "{text}"
    );
    assert!(here.must(200, "GET", "/home/pulled", &[], b"").body == data);

    let got = copy(
        &here,
        "/home/pulled",
        &[("destination", &format!("{url}/home/pushed")), ("requirechecksumverification", "true")],
    );
    assert_eq!((got.status, last(&got)), (201, "success: Created".into()), "{}", got.text());
    assert!(there.must(200, "GET", "/home/pushed", &[], b"").body == data);

    let none = copy(&here, "/home/empty", &[("source", &format!("{url}/home/f")), ("overwrite", "F")]);
    assert_eq!(last(&none), "success: Created");
    let again = copy(&here, "/home/empty", &[("source", &format!("{url}/home/f")), ("overwrite", "F")]);
    assert_eq!(again.status, 412);
}

#[test]
fn what_cannot_be_copied_is_told() {
    let (here, there) = (Rig::new(), Rig::new());
    let (url, serving) = there.serve();
    there.must(201, "PUT", "/home/f", &[], b"x");
    let source = format!("{url}/home/none");
    let got = copy(&here, "/home/f", &[("source", &source)]);
    assert!(
        got.status == 201 && last(&got).starts_with("failure: ") && last(&got).contains("404"),
        "{}",
        got.text()
    );
    let got = here.ask("COPY", "/home/f", &[("source", &format!("{url}/home/f"))], b"");
    assert!(last(&got).contains("401"), "{}", got.text());
    assert!(!got.text().contains("S0VZ"), "no credential in what is said");
    for (headers, status) in [
        (vec![("source", "https://a/b"), ("destination", "https://a/c")], 400),
        (vec![("source", "gsiftp://a/b")], 501),
        (vec![("source", "https://a/b"), ("credential", "gridsite")], 400),
        (vec![], 400),
    ] {
        assert_eq!(here.ask("COPY", "/home/f", &headers, b"").status, status, "{headers:?}");
    }
    assert_eq!(
        copy(&here, "/atlas/f", &[("source", &source)]).status,
        403,
        "told before anything is fetched"
    );
    assert_eq!(copy(&here, "/home/none/f", &[("source", &source)]).status, 409);
    serving.end();
    drop(serving);
    // that of a client: nobody listens there
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let free = client.local_addr().expect("an address");
    let refused = copy(&here, "/home/f", &[("source", &format!("http://{free}/f"))]);
    let nobody = copy(&here, "/home/f", &[("source", "http://nobody.invalid/f")]);
    assert!(last(&refused).starts_with("failure: 127.0.0.1 cannot be reached"), "{}", refused.text());
    let same = last(&nobody).replace("nobody.invalid", "127.0.0.1");
    assert_eq!(same, last(&refused), "what is there and what is not are told in the same words");
    assert_eq!(here.names("home"), [""; 0]);
}

/// A server that says what it is told to for each connection, and passes on what it was asked.
fn odd_server(rig: &Rig, answers: Vec<Vec<u8>>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (tell, told) = channel();
    rig.env.spawn("odd", move || {
        for answer in answers {
            if let Ok((stream, _)) = listener.accept() {
                serve_one(stream, &answer, &tell);
            }
        }
    });
    (url, told)
}

fn serve_one(mut stream: TcpStream, answer: &[u8], tell: &Sender<String>) {
    let mut asked = Vec::new();
    let mut byte = [0];
    while !asked.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
        asked.push(byte[0]);
    }
    let _ = tell.send(String::from_utf8_lossy(&asked).into());
    let _ = stream.write_all(answer);
}

#[test]
fn content_that_is_not_what_its_server_says_is_refused() {
    let here = Rig::new();
    let says = |headers: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\n{headers}connection: close\r\n\r\n{body}").into_bytes()
    };
    let good = "content-length: 9\r\n";
    for (answers, headers, expected) in [
        (
            vec![says("content-length: 9\r\ndigest: adler32=11e60398\r\n", "Wikipedia")],
            vec![],
            "success: Created",
        ),
        (
            vec![says("content-length: 9\r\ndigest: adler32=11e60399\r\n", "Wikipedia")],
            vec![],
            "failure: the content has adler32",
        ),
        (
            vec![says("content-length: 9\r\ndigest: adler32=11e60399\r\n", "Wikipedia")],
            vec![("requirechecksumverification", "false")],
            "success: Created",
        ),
        (
            vec![says(good, "Wikipedia"), says("digest: adler32=1\r\n", "")],
            vec![],
            "failure: the content has adler32",
        ),
        (vec![says(good, "Wikipedia"), says("", "")], vec![], "success: Created"),
        (
            vec![says(good, "Wikipedia"), says("", "")],
            vec![("requirechecksumverification", "true")],
            "failure: the source says no checksum",
        ),
        (vec![says("content-length: 10\r\n", "Wikipedia")], vec![], "failure: http://127.0.0.1"),
        // whose end is that of the connection may have been cut off
        (vec![says("", "Wikipedia"), says("", "")], vec![], "failure: http://127.0.0.1"),
        (vec![says("digest: adler32=11e60398\r\n", "Wikipedia")], vec![], "success: Created"),
        (
            vec![says("transfer-encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n"), says("", "")],
            vec![],
            "success: Created",
        ),
        (vec![b"nonsense".to_vec()], vec![], "failure: 127.0.0.1"),
        (vec![says("content-length: 10\r\n", "")[..20].to_vec()], vec![], "failure: 127.0.0.1"),
    ] {
        let (url, _told) = odd_server(&here, answers);
        let source = format!("{url}/f");
        let mut headers = headers;
        headers.push(("source", &source));
        let got = here.ask("COPY", "/home/f", &headers, b"");
        assert!(last(&got).starts_with(expected), "{expected}: {}", got.text());
        let is_there = expected.starts_with("success");
        assert_eq!(here.ask("DELETE", "/home/f", &[], b"").status, if is_there { 204 } else { 404 });
    }
}

#[test]
fn headers_are_passed_on_and_credentials_stay_with_their_server() {
    let here = Rig::new();
    let file = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ndigest: adler32=00790079\r\n\r\nx";
    let (second, told_second) = odd_server(&here, vec![file.to_vec()]);
    let to = format!("HTTP/1.1 307 x\r\nlocation: {second}/b?authz=cap\r\ncontent-length: 0\r\n\r\n");
    let (first, told_first) = odd_server(&here, vec![to.into_bytes()]);
    let source = format!("{first}/a");
    let headers = [
        ("source", source.as_str()),
        ("transferheaderauthorization", "Bearer secret"),
        ("transferheaderx-more", "1"),
        ("transferheadercookie", "secret=1"),
        ("transferheaderscitag", "65"),
        ("transferheadercontent-length", "77"),
    ];
    let got = here.ask("COPY", "/home/f", &headers, b"");
    assert_eq!(last(&got), "success: Created", "{}", got.text());
    let wait = Duration::from_secs(10);
    let (first, second) =
        (told_first.recv_timeout(wait).expect("asked"), told_second.recv_timeout(wait).expect("asked"));
    assert!(
        first.contains("authorization: Bearer secret") && first.contains("want-digest: adler32"),
        "{first}"
    );
    assert!(
        first.contains("x-more: 1") && !first.contains("content-length") && !first.contains("S0VZ"),
        "{first}"
    );
    assert!(second.starts_with("GET /b?authz=cap ") && !second.contains("secret"), "{second}");
    assert!(
        !second.contains("x-more") && second.contains("scitag: 65") && second.contains("want-digest"),
        "{second}"
    );
}

#[test]
fn a_push_that_is_sent_on_goes_to_the_second_server_alone() {
    let here = Rig::new();
    let data = noise(400_000, 1);
    here.must(201, "PUT", "/home/f", &[], &data);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (tell, told) = channel();
    here.env.spawn("sends-on", move || {
        let head_of = |stream: &mut TcpStream| {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            tell.send(head).expect("heard");
        };
        let (mut first, _) = listener.accept().expect("a connection");
        head_of(&mut first);
        // a name alone: beside what was asked for
        first.write_all(b"HTTP/1.1 307 x\r\nlocation: pool\r\ncontent-length: 0\r\n\r\n").expect("sent");
        let mut rest = Vec::new();
        let _ = first.read_to_end(&mut rest);
        tell.send(rest).expect("heard");
        let (mut second, _) = listener.accept().expect("a connection");
        head_of(&mut second);
        second.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").expect("sent");
        let mut body = vec![0; 400_000];
        second.read_exact(&mut body).expect("all of it");
        tell.send(body).expect("heard");
        second.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").expect("sent");
    });
    let to = format!("{url}/dir/f");
    let got = copy(&here, "/home/f", &[("destination", &to), ("requirechecksumverification", "false")]);
    assert_eq!(last(&got), "success: Created", "{}", got.text());
    let heard: Vec<Vec<u8>> = told.iter().collect();
    let text = |n: usize| String::from_utf8_lossy(&heard[n]).to_string();
    assert!(text(0).starts_with("PUT /dir/f ") && text(0).contains("expect: 100-continue"), "{}", text(0));
    assert!(heard[1].is_empty(), "nothing of the body goes to the first");
    assert!(text(2).starts_with("PUT /dir/pool ") && heard[3] == data, "{}", text(2));
    assert!(
        got.text().contains("Stripe Bytes Transferred: 400000\n"),
        "each byte counts once: {}",
        got.text()
    );
}

#[test]
fn who_goes_away_takes_the_transfer_along_and_its_place_is_free() {
    let here = Rig::with_transfers(1);
    // says how much will come, and sends a part; holds the line until it is dropped
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let source = format!("http://{}/f", listener.local_addr().expect("an address"));
    let (tell, held) = channel();
    here.env.spawn("slow", move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\nbegin").expect("sent");
        let _ = tell.send(stream);
    });
    let (url, _serving) = here.serve();
    let mut client = TcpStream::connect(url.trim_start_matches("http://")).expect("connected");
    let ask = |source: &str| {
        format!("COPY /home/f HTTP/1.1\r\nhost: here\r\nauthorization: {BOB}\r\nsource: {source}\r\n\r\n")
    };
    client.write_all(ask(&source).as_bytes()).expect("asked");
    let mut stream = held.recv_timeout(Duration::from_secs(10)).expect("the source is asked");
    let refused = here.ask("COPY", "/home/g", &[("source", &source)], b"");
    assert_eq!((refused.status, refused.header("retry-after")), (429, "15"), "{}", refused.text());
    drop(client);
    // the other end of its connection to the source is closed
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let mut rest = [0; 16];
    let closed = match stream.read(&mut rest) {
        Ok(count) => count == 0,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    };
    assert!(closed, "the transfer ended with its client");
    assert_eq!(here.names("home"), [""; 0]);
}

#[test]
fn a_token_for_the_one_file_is_enough() {
    let (here, there) = (Rig::new(), Rig::new());
    let (url, _serving) = there.serve();
    there.must(201, "PUT", "/home/f", &[], b"content");
    let source = format!("{url}/home/f");
    let headers = [("transferheaderauthorization", BOB), ("credential", "none"), ("source", &source[..])];
    let token = here.token("storage.create:/d/f");
    let got = here.ask_as(&token, "COPY", "/atlas/d/f", &headers, b"");
    assert_eq!((got.status, last(&got)), (201, "success: Created".into()), "{}", got.text());
    assert_eq!(here.names("atlas/d"), ["f"]);
}
