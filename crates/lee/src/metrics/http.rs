//! A web server of one page, for a scraper: HTTP/1.1, GET only, one request a connection.
//!
//! Limited: connections at once, bytes of a request, and the time of a client in all. It knows
//! nothing of the content: a function makes the page.

use crate::fail::{Fail, text};
use leeward_env::{Env, Nanos};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Connections to one address at once; more are closed unanswered.
const CONNECTIONS_MAX: usize = 8;
/// Longest request, with its headers.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Time for a client to send its request, nanoseconds.
const ASK_NANOS_MAX: Nanos = 5_000_000_000;
/// Time for a write of the answer to make progress.
const WRITE_WAIT: Duration = Duration::from_secs(5);
/// Pause when the system has no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Path of the page.
const PATH: &str = "/metrics";

/// An address on the command line or in the settings: `9547` and `:9547` mean loopback.
///
/// # Errors
/// A sentence.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| {
        format!("`{text}` is no address: write a port, such as 9547, or 127.0.0.1:9547, or [::1]:9547")
    })
}

/// Addresses that are bound and not served yet.
pub struct Listeners(Vec<TcpListener>);

impl Listeners {
    /// Binds the addresses; a port 0 becomes a free one.
    ///
    /// # Errors
    /// When one cannot be bound.
    pub fn bind(addresses: &[SocketAddr]) -> Result<Listeners, Fail> {
        let bind = |address: &SocketAddr| TcpListener::bind(address).map_err(|e| refused(*address, &e));
        addresses.iter().map(bind).collect::<Result<_, _>>().map(Listeners)
    }

    /// URLs of the page.
    pub fn urls(&self) -> Vec<String> {
        self.0.iter().filter_map(|l| l.local_addr().ok()).map(|at| format!("http://{at}{PATH}")).collect()
    }

    /// Serves until the process ends. `index`: the page at `/`, as HTML.
    pub fn serve(
        self,
        env: &Env,
        content_type: &'static str,
        index: Option<&'static str>,
        page: impl Fn() -> String + Send + Sync + 'static,
    ) {
        let page: Arc<Page> = Arc::new(page);
        for listener in self.0 {
            let (clock, page, open) = (env.clone(), page.clone(), Arc::default());
            let site = Site { env: clock, content_type, index, page, open };
            env.spawn("metrics", move || site.accept(&listener));
        }
    }
}

type Page = dyn Fn() -> String + Send + Sync;

fn refused(address: SocketAddr, e: &io::Error) -> Fail {
    let why = match e.kind() {
        io::ErrorKind::AddrInUse => "is in use by another program: choose another port".to_string(),
        io::ErrorKind::AddrNotAvailable => {
            "is no address of this machine: name one that it has, or only a port".into()
        }
        io::ErrorKind::PermissionDenied => "is not permitted: choose a port from 1024 on".into(),
        _ => format!("cannot be had: {}", text(e)),
    };
    Fail::new(format!("--metrics {address} {why}"))
}

/// A connection that counts as open, until this is dropped: also when the page panics.
struct ConnectionGuard(Arc<AtomicUsize>);

impl ConnectionGuard {
    fn take(open: &Arc<AtomicUsize>) -> ConnectionGuard {
        open.fetch_add(1, Ordering::AcqRel);
        ConnectionGuard(open.clone())
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Clone)]
struct Site {
    env: Env,
    content_type: &'static str,
    index: Option<&'static str>,
    page: Arc<Page>,
    open: Arc<AtomicUsize>,
}

impl Site {
    fn accept(&self, listener: &TcpListener) {
        for client in listener.incoming() {
            let Ok(client) = client else {
                self.env.sleep(ACCEPT_PAUSE);
                continue;
            };
            let place = ConnectionGuard::take(&self.open);
            if self.open.load(Ordering::Acquire) > CONNECTIONS_MAX {
                continue;
            }
            let site = self.clone();
            let answered = self.env.try_spawn("metrics-call", move || {
                let _place = place;
                // a client that went away misses no answer
                let _ = site.answer(&client);
            });
            if let Err(e) = answered {
                tracing::warn!("no thread to answer with metrics: {e}");
            }
        }
    }

    fn answer(&self, mut client: &TcpStream) -> io::Result<()> {
        client.set_write_timeout(Some(WRITE_WAIT))?;
        let answer = match self.read_request(client)? {
            Some(head) => self.answer_to(&head),
            None => Answer::text("431 Request Header Fields Too Large", "the request is too long\n"),
        };
        let Answer { status, content_type, body } = answer;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        client.write_all(head.as_bytes())?;
        client.write_all(body.as_bytes())
    }

    fn answer_to(&self, head: &[u8]) -> Answer {
        let line = String::from_utf8_lossy(head);
        let mut words = line.lines().next().unwrap_or_default().split(' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        let (Some(method), Some(target), Some(version)) = (method, target, version) else {
            return Answer::text("400 Bad Request", "this is no HTTP request\n");
        };
        if !version.starts_with("HTTP/1.") || words.next().is_some() {
            return Answer::text("400 Bad Request", "this is no HTTP/1.1 request\n");
        }
        if method != "GET" {
            return Answer::text("405 Method Not Allowed\r\nAllow: GET", "only GET is answered\n");
        }
        match (target.split('?').next(), self.index) {
            (Some(PATH), _) => {
                Answer { status: "200 OK", content_type: self.content_type, body: (self.page)() }
            }
            (Some("/"), Some(index)) => {
                Answer { status: "200 OK", content_type: "text/html; charset=utf-8", body: index.into() }
            }
            _ => Answer::text("404 Not Found", "metrics are at /metrics\n"),
        }
    }

    /// The request up to the empty line that ends its headers; `None` when it is too long.
    fn read_request(&self, mut client: &TcpStream) -> io::Result<Option<Vec<u8>>> {
        let deadline = self.env.now() + ASK_NANOS_MAX;
        let mut head = Vec::new();
        let mut part = [0; 2048];
        while !ends(&head) {
            let left = deadline.saturating_sub(self.env.now());
            if left == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            client.set_read_timeout(Some(Duration::from_nanos(left)))?;
            match client.read(&mut part)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => head.extend_from_slice(&part[..n]),
            }
            if head.len() > REQUEST_BYTES_MAX {
                return Ok(None);
            }
        }
        Ok(Some(head))
    }
}

fn ends(head: &[u8]) -> bool {
    head.windows(4).any(|w| w == b"\r\n\r\n") || head.windows(2).any(|w| w == b"\n\n")
}

struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Answer {
    fn text(status: &'static str, body: &str) -> Answer {
        Answer { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        for (text, expected) in [
            ("9547", "127.0.0.1:9547"),
            (":9547", "127.0.0.1:9547"),
            ("[::1]:9547", "[::1]:9547"),
            (":9180", "127.0.0.1:9180"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("0.0.0.0:1", "0.0.0.0:1"),
        ] {
            assert_eq!(parse(text).map(|a| a.to_string()), Ok(expected.into()));
        }
        for text in [
            "",
            ":",
            "localhost",
            "99999",
            "localhost:9547",
            "127.0.0.1",
            "::1:9547",
            "70000",
            "127.0.0.1:x",
            "9547/metrics",
        ] {
            assert!(parse(text).expect_err(text).contains("is no address"), "{text}");
        }
    }

    fn served() -> SocketAddr {
        let listeners = Listeners::bind(&[parse("0").expect("an address")]).expect("a port");
        let address = listeners.0[0].local_addr().expect("an address");
        assert_eq!(listeners.urls(), [format!("http://{address}/metrics")]);
        listeners.serve(&Env::real(), "text/x", Some("<p>"), || "the page\n".into());
        address
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).expect("connected");
        client.write_all(request).expect("asked");
        let mut said = Vec::new();
        // a request that was not read to its end may end in a reset
        let _ = client.read_to_end(&mut said);
        String::from_utf8(said).expect("UTF-8")
    }

    #[test]
    fn one_page_is_served() {
        let address = served();
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Type: text/x\r\n"),
            ("GET /metrics?a=b HTTP/1.0\n\n", "HTTP/1.1 200 OK\r\n"),
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Type: text/html"),
            ("GET /metricsx HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
            ("GET /../etc HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
            ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
            ("GET /metrics\r\n\r\n", "HTTP/1.1 400 "),
            ("GET /metrics SMTP\r\n\r\n", "HTTP/1.1 400 "),
            ("\r\n\r\n", "HTTP/1.1 400 "),
        ] {
            let said = ask(address, request.as_bytes());
            assert!(said.starts_with(expected), "{request:?}: {said}");
        }
        assert!(ask(address, b"\xff\xfe /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; REQUEST_BYTES_MAX]].concat();
        assert!(ask(address, &long).starts_with("HTTP/1.1 431 "));
        let said = ask(address, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(said.contains("Content-Length: 9\r\n") && said.ends_with("\r\n\r\nthe page\n"), "{said}");
    }

    #[test]
    fn connections_are_bounded_and_silent_ones_end() {
        let address = served();
        let connect = || TcpStream::connect(address).expect("connected");
        let mut silent: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect()).collect();
        // connections are accepted in turn, so this one is after them
        assert_eq!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n"), "");
        drop(silent.pop());
        let end = Env::real().now() + ASK_NANOS_MAX;
        while ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").is_empty() {
            assert!(Env::real().now() < end, "a place that was left is not taken");
        }
        let mut rest = Vec::new();
        silent[0].set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        assert!(matches!(silent[0].read_to_end(&mut rest), Ok(0)), "who says nothing is hung up on");
    }

    #[test]
    fn an_address_that_cannot_be_had_is_explained() {
        let taken = served();
        let fail = |address: SocketAddr| match Listeners::bind(&[address]) {
            Ok(_) => panic!("{address} was had"),
            Err(fail) => fail.to_string(),
        };
        assert_eq!(
            fail(taken),
            format!("--metrics {taken} is in use by another program: choose another port")
        );
        assert!(
            fail(parse("203.0.113.1:9547").expect("an address")).contains("is no address of this machine")
        );
    }
}
