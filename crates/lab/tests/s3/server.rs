//! An S3 server in memory that misbehaves as it is told.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const BUSY: &[u8] = b"<Error><Code>SlowDown</Code></Error>";

/// How a request is treated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Right,
    /// After this time.
    Slow(Duration),
    /// The connection is reset.
    Resets,
    /// It is closed without an answer.
    Closes,
    /// It is closed in the middle of an answer.
    ClosesWithin,
    /// Nothing comes.
    Hangs,
    /// This status, and a second to wait.
    Says(u16),
    /// The same before the body was read, which never is.
    SaysEarly(u16),
    /// One byte of what is read is another one.
    WrongByte,
    /// Half of what is read, as if it were all.
    Half,
    /// No HTTP.
    Garbage,
    /// The server ends.
    Dies,
}

/// A request, as far as the server decides by it.
pub struct Request<'a> {
    /// How many requests there were before.
    pub n: usize,
    pub method: &'a str,
    /// Whether it is for an object.
    pub object: bool,
    /// Connections that clients have open.
    pub open: usize,
}

type Decide = dyn Fn(&Request<'_>) -> Way + Send + Sync;

pub struct Server {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    decide: Box<Decide>,
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    connections: Mutex<Vec<TcpStream>>,
    requests: AtomicUsize,
    over: AtomicBool,
    port: u16,
}

impl Server {
    pub fn start(decide: impl Fn(&Request<'_>) -> Way + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            decide: Box::new(decide),
            objects: Mutex::default(),
            connections: Mutex::default(),
            requests: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            port,
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.over.load(Ordering::SeqCst) {
                    return;
                }
                let shared = serving.clone();
                shared.connections.lock().expect("lock").push(stream.try_clone().expect("a descriptor"));
                std::thread::spawn(move || shared.serve(&stream));
            }
        });
        Server { port, shared }
    }

    pub fn names(&self) -> Vec<String> {
        self.shared.objects.lock().expect("lock").keys().cloned().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)); // the listener looks
        for stream in self.connections.lock().expect("lock").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// What a client has closed before it asked is not counted, whether its thread has seen that or
    /// not.
    fn open(&self) -> usize {
        let mut all = self.connections.lock().expect("lock");
        all.retain(|stream| {
            let mut byte = 0u8;
            // SAFETY: room for one byte, on a valid descriptor.
            let got = unsafe {
                libc::recv(stream.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT)
            };
            got > 0 || got < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock
        });
        all.len()
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        // The first byte of TLS, which is not spoken here.
        if reader.fill_buf().is_ok_and(|bytes| bytes.first() == Some(&0x16)) {
            let _ = answer(stream, 400, "", b"");
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        while let Some((method, target, length)) = head(&mut reader) {
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let key = path.strip_prefix("/bucket").unwrap_or(path).trim_start_matches('/').to_string();
            let n = self.requests.fetch_add(1, Ordering::SeqCst);
            let request = Request { n, method: &method, object: !key.is_empty(), open: self.open() };
            let way = (self.decide)(&request);
            if let Way::SaysEarly(status) = way {
                let _ = answer(stream, status, "Connection: close\r\n", BUSY);
                let _ = stream.shutdown(Shutdown::Write);
                return;
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() || !self.treat(stream, way, &method, key, query, body) {
                return;
            }
        }
        // The list of connections has another descriptor of it.
        let _ = stream.shutdown(Shutdown::Both);
    }

    /// Whether the connection goes on.
    fn treat(
        &self,
        stream: &TcpStream,
        way: Way,
        method: &str,
        key: String,
        query: &str,
        body: Vec<u8>,
    ) -> bool {
        if let Way::Slow(time) = way {
            std::thread::sleep(time);
        }
        if let Way::Says(status) = way {
            return answer(stream, status, "Retry-After: 0\r\n", BUSY).is_ok();
        }
        let (status, mut answered) = self.answer(method, key, query, body);
        match way {
            Way::Right | Way::Slow(_) | Way::Says(_) | Way::SaysEarly(_) => {}
            Way::Resets => return reset(stream),
            Way::Closes => return close(stream),
            Way::ClosesWithin => {
                let mut to = stream;
                let _ = to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
                return close(stream);
            }
            Way::Hangs => {
                std::thread::sleep(Duration::from_secs(120));
                return close(stream);
            }
            Way::WrongByte => answered[0] ^= 1,
            Way::Half => answered.truncate(answered.len() / 2),
            Way::Garbage => {
                let mut to = stream;
                let _ = to.write_all(b"220 mail.example.org ESMTP\r\n\r\n");
                return close(stream);
            }
            Way::Dies => {
                self.end();
                return false;
            }
        }
        if method == "HEAD" {
            let mut to = stream;
            return to
                .write_all(
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answered.len()).as_bytes(),
                )
                .is_ok();
        }
        answer(stream, status, "", &answered).is_ok()
    }

    fn answer(&self, method: &str, key: String, query: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        let mut objects = self.objects.lock().expect("lock");
        match method {
            "PUT" => {
                objects.insert(key, body);
                (200, Vec::new())
            }
            "DELETE" => {
                objects.remove(&key);
                (204, Vec::new())
            }
            "GET" if key.is_empty() => {
                let asked = |name: &str| {
                    let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
                    found.unwrap_or_default().replace("%2F", "/")
                };
                let (prefix, after) = (asked("prefix"), asked("start-after"));
                let names =
                    objects.keys().filter(|name| name.starts_with(&prefix) && **name > after).take(1000);
                let names: String =
                    names.map(|name| format!("<Contents><Key>{name}</Key></Contents>")).collect();
                (200, format!("<?xml?><ListBucketResult>{names}</ListBucketResult>").into_bytes())
            }
            _ => match objects.get(&key) {
                Some(body) => (200, body.clone()),
                None => (404, b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
            },
        }
    }
}

fn head(reader: &mut impl BufRead) -> Option<(String, String, usize)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return Some((method, target, length));
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
}

fn answer(mut to: &TcpStream, status: u16, header: &str, body: &[u8]) -> std::io::Result<()> {
    let mut all =
        format!("HTTP/1.1 {status} X\r\n{header}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    all.extend_from_slice(body);
    to.write_all(&all)
}

fn close(stream: &TcpStream) -> bool {
    let _ = stream.shutdown(Shutdown::Both);
    false
}

/// Closing with time 0 to linger sends a reset.
fn reset(stream: &TcpStream) -> bool {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: a valid descriptor, and a struct with its size.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        );
        // The list of connections has another descriptor of it, so only the end of both would close
        // it.
        let unspecified = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
        libc::connect(
            stream.as_raw_fd(),
            &raw const unspecified,
            size_of::<libc::sockaddr>() as libc::socklen_t,
        );
    }
    false
}
