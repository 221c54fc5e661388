//! A small S3 server in memory, for tests: the requests that a cell makes of a store, strictly, and
//! the faults that stores have.
//!
//! One thread a connection, path-style requests. Signatures are not checked, only the name of the
//! access key. Conditional puts are atomic. It answers any other request with 501, so that a test
//! fails.

use leeward_env::{Env, hex};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The access key that is accepted.
pub const KEY: &str = "test";
/// Keys in one answer to a list.
const LIST_MAX: usize = 1000;
/// A racy server looks at the conditions of a put, and does it when another one has been looked at,
/// too, or when none has come for so long.
const RACE: Duration = Duration::from_secs(2);
/// How often it looks whether one has.
const RACE_STEP: Duration = Duration::from_millis(1);
/// How long a hanging request hangs: longer than any caller waits.
const HANG: Duration = Duration::from_secs(120);

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 503 SlowDown, nothing is done.
    Busy,
    /// 500, nothing is done.
    FailsBefore,
    /// It is done, and answered with 500.
    FailsAfter,
    /// It is done, and the connection breaks.
    BreaksAfter,
    /// 403 AccessDenied, nothing is done.
    Refused,
    /// It is not answered.
    Hangs,
}

struct Object {
    body: Arc<[u8]>,
    etag: u64,
    meta: Vec<(String, String)>,
}

#[derive(Default)]
struct ServerState {
    objects: BTreeMap<String, Object>,
    /// Faults for requests of this method whose path contains this text.
    faults: VecDeque<(String, String, Fault)>,
    /// All requests so far: method and path.
    asked: Vec<(String, String)>,
    /// Conditions are looked at some time before an object is stored.
    is_racy: bool,
    /// Puts whose conditions a racy server has found to hold.
    let_through: u64,
    /// Whether puts without a checksum are refused, as where objects are locked.
    locks_objects: bool,
}

/// A running server; it stops when this is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    bucket: String,
    state: Mutex<ServerState>,
    down: AtomicBool,
    ended: AtomicBool,
    delay_micros: AtomicU64,
    env: Env,
}

impl Server {
    /// Starts on a free port of this machine with one empty bucket.
    ///
    /// # Panics
    /// When there is no port.
    pub fn start(bucket: &str) -> Server {
        let env = Env::real();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            bucket: bucket.into(),
            state: Mutex::default(),
            down: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            delay_micros: AtomicU64::new(0),
            env: env.clone(),
        });
        let serving = shared.clone();
        env.spawn("s3-server", move || {
            for stream in listener.incoming().flatten() {
                if serving.ended.load(Ordering::Acquire) {
                    return;
                }
                let of_connection = serving.clone();
                serving.env.spawn("s3-connection", move || of_connection.connection(&stream));
            }
        });
        Server { shared, address }
    }

    /// Its URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The location of this prefix of the bucket.
    pub fn place(&self, prefix: &str) -> crate::Location {
        let url =
            crate::BucketUrl { bucket: self.shared.bucket.clone(), prefix: prefix.into(), profile: None };
        crate::Location { url, endpoint: Some(self.endpoint()), region: None }
    }

    /// The next `count` requests of this method whose path contains `part` meet this fault.
    pub fn fail(&self, method: &str, part: &str, fault: Fault, count: usize) {
        let mut state = self.shared.state.lock();
        state.faults.extend((0..count).map(|_| (method.to_string(), part.to_string(), fault)));
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.shared.state.lock().faults.clear();
    }

    /// With `true` every connection breaks from now on.
    pub fn set_down(&self, down: bool) {
        self.shared.down.store(down, Ordering::Release);
    }

    /// Every request takes this long from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.delay_micros.store(delay.as_micros() as u64, Ordering::Relaxed);
    }

    /// Whether conditions of a put are looked at some time before it is done, as by a store that
    /// keeps no order among those that ask at the same time.
    pub fn set_racy(&self, racy: bool) {
        self.shared.state.lock().is_racy = racy;
    }

    /// Whether objects are locked from now on: puts without a checksum are refused.
    pub fn set_locks_objects(&self, locks: bool) {
        self.shared.state.lock().locks_objects = locks;
    }

    /// Names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.shared.state.lock().objects.keys().cloned().collect()
    }

    /// How many requests of this method came for objects with this in their path.
    pub fn requests_of(&self, method: &str, part: &str) -> u64 {
        let state = self.shared.state.lock();
        state.asked.iter().filter(|(m, path)| m == method && path.contains(part)).count() as u64
    }

    /// How many requests of this method came.
    pub fn requests(&self, method: &str) -> u64 {
        self.requests_of(method, "")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.down.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address); // the listener looks
    }
}

struct Request {
    method: String,
    /// Bucket and key.
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Arc<[u8]>,
}

impl Answer {
    fn plain(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Arc::from([]) }
    }

    fn error(status: u16, code: &str) -> Answer {
        let body =
            format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>");
        Answer { status, headers: Vec::new(), body: Arc::from(body.into_bytes()) }
    }
}

impl Shared {
    fn connection(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader) {
            if self.down.load(Ordering::Acquire) {
                return;
            }
            let delay = self.delay_micros.load(Ordering::Relaxed);
            if delay > 0 {
                self.env.sleep(Duration::from_micros(delay));
            }
            let answer = match self.fault(&request) {
                Some(Fault::Busy) => Answer::error(503, "SlowDown"),
                Some(Fault::Refused) => Answer::error(403, "AccessDenied"),
                Some(Fault::FailsBefore) => Answer::error(500, "InternalError"),
                Some(Fault::FailsAfter) => {
                    self.answer(&request);
                    Answer::error(500, "InternalError")
                }
                Some(Fault::BreaksAfter) => {
                    self.answer(&request);
                    return;
                }
                Some(Fault::Hangs) => return self.env.sleep(HANG),
                None => self.answer(&request),
            };
            if write_answer(stream, &request.method, &answer).is_err() {
                return;
            }
        }
    }

    fn fault(&self, request: &Request) -> Option<Fault> {
        let mut state = self.state.lock();
        state.asked.push((request.method.clone(), request.path.clone()));
        let hits = |(method, part, _): &(String, String, Fault)| {
            *method == request.method && request.path.contains(part.as_str())
        };
        let n = state.faults.iter().position(hits)?;
        state.faults.remove(n).map(|(.., fault)| fault)
    }

    /// Until a put was let through after this one.
    fn wait_for_another(&self, mine: u64) {
        let steps = RACE.as_millis() / RACE_STEP.as_millis();
        for _ in 0..steps {
            if self.state.lock().let_through > mine {
                return;
            }
            self.env.sleep(RACE_STEP);
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let known = |text: &String| text.contains(&format!("Credential={KEY}/"));
        if !request.headers.get("authorization").is_some_and(known) {
            return Answer::error(403, "InvalidAccessKeyId");
        }
        let (bucket, key) = request.path.split_once('/').unwrap_or((&request.path, ""));
        if bucket != self.bucket {
            return Answer::error(404, "NoSuchBucket");
        }
        let mut state = self.state.lock();
        if state.is_racy && request.method == "PUT" {
            if let Some(refused) = refused(&state, key, request) {
                return refused;
            }
            state.let_through += 1;
            let mine = state.let_through;
            drop(state);
            self.wait_for_another(mine);
            return store(&mut self.state.lock(), key, request);
        }
        match (request.method.as_str(), key) {
            ("GET", "") => list(&state, request),
            ("GET" | "HEAD", key) => get(&state, key, request),
            ("PUT", key) => put(&mut state, key, request),
            ("DELETE", key) => {
                state.objects.remove(key);
                Answer::plain(204)
            }
            _ => Answer::error(501, "NotImplemented"),
        }
    }
}

fn put(state: &mut ServerState, key: &str, request: &Request) -> Answer {
    refused(state, key, request).unwrap_or_else(|| store(state, key, request))
}

/// The answer to a put whose conditions do not hold, or that the bucket does not take.
fn refused(state: &ServerState, key: &str, request: &Request) -> Option<Answer> {
    if state.locks_objects && !request.headers.keys().any(|name| name.starts_with("x-amz-checksum-")) {
        return Some(Answer::error(400, "InvalidRequest"));
    }
    let there = state.objects.get(key).map(|o| quoted(o.etag));
    let (none, same) = (request.headers.get("if-none-match"), request.headers.get("if-match"));
    let is_refused = none.is_some() && there.is_some() || same.is_some() && same != there.as_ref();
    is_refused.then(|| Answer::error(412, "PreconditionFailed"))
}

fn store(state: &mut ServerState, key: &str, request: &Request) -> Answer {
    // of the content, as most stores have it: two versions with the same bytes have the same
    let etag = BuildHasherDefault::<DefaultHasher>::default().hash_one(&request.body);
    let meta = request.headers.iter().filter(|(name, _)| name.starts_with("x-amz-meta-"));
    let meta = meta.map(|(name, value)| (name.clone(), value.clone())).collect();
    state.objects.insert(key.into(), Object { body: Arc::from(&request.body[..]), etag, meta });
    Answer { headers: vec![("ETag".into(), quoted(etag))], ..Answer::plain(200) }
}

fn get(state: &ServerState, key: &str, request: &Request) -> Answer {
    let Some(object) = state.objects.get(key) else { return Answer::error(404, "NoSuchKey") };
    let mut answer = Answer { body: object.body.clone(), ..Answer::plain(200) };
    if let Some(range) = request.headers.get("range") {
        let len = object.body.len();
        let (from, to) = range.trim_start_matches("bytes=").split_once('-').unwrap_or_default();
        let (from, to) = match (from.parse::<usize>(), to.parse::<usize>()) {
            (Ok(from), Ok(to)) => (from, (to + 1).min(len)),
            (Ok(from), Err(_)) => (from, len),
            (Err(_), Ok(last)) => (len.saturating_sub(last), len),
            _ => return Answer::error(400, "InvalidArgument"),
        };
        if from >= len {
            return Answer::error(416, "InvalidRange");
        }
        answer.status = 206;
        answer.headers.push(("Content-Range".into(), format!("bytes {from}-{}/{len}", to - 1)));
        answer.body = Arc::from(&object.body[from..to]);
    }
    answer.headers.push(("ETag".into(), quoted(object.etag)));
    answer.headers.push(("Last-Modified".into(), "Mon, 01 Jan 2024 00:00:00 GMT".into()));
    answer.headers.extend(object.meta.iter().cloned());
    answer
}

fn list(state: &ServerState, request: &Request) -> Answer {
    let asked = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default();
    let (prefix, delimiter) = (asked("prefix"), asked("delimiter"));
    let after = asked("continuation-token").max(asked("start-after"));
    let (mut entries, mut dirs, mut more) = (String::new(), Vec::<String>::new(), None);
    let mut count = 0;
    for (key, object) in
        state.objects.range(prefix.to_string()..).take_while(|(key, _)| key.starts_with(prefix))
    {
        let below = (!delimiter.is_empty()).then(|| key[prefix.len()..].find(delimiter)).flatten();
        let name = below.map_or(key.as_str(), |n| &key[..prefix.len() + n + delimiter.len()]);
        if key.as_str() <= after || below.is_some() && dirs.last().is_some_and(|last| last == name) {
            continue;
        }
        if count == LIST_MAX {
            more = Some(entries.len());
            break;
        }
        count += 1;
        match below {
            Some(_) => dirs.push(name.to_string()),
            None => entries.push_str(&format!(
                "<Contents><Key>{name}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>\
                 <ETag>&quot;{}&quot;</ETag><Size>{}</Size></Contents>",
                object.etag,
                object.body.len()
            )),
        }
    }
    let last =
        entries.rfind("<Key>").map(|at| entries[at + 5..].split('<').next().unwrap_or_default().to_string());
    let next = more
        .and(last)
        .map_or(String::new(), |last| format!("<NextContinuationToken>{last}</NextContinuationToken>"));
    let dirs: String =
        dirs.iter().map(|d| format!("<CommonPrefixes><Prefix>{d}</Prefix></CommonPrefixes>")).collect();
    let body = format!(
        "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>{}</IsTruncated>{next}{entries}{dirs}</ListBucketResult>",
        !next.is_empty()
    );
    Answer { body: Arc::from(body.into_bytes()), ..Answer::plain(200) }
}

fn quoted(etag: u64) -> String {
    format!("\"{etag}\"")
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_string());
    }
    let length = headers.get("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let query = query.map(|(name, value)| (decoded(name), decoded(value))).collect();
    Some(Request { method, path: decoded(path.trim_start_matches('/')), query, headers, body })
}

/// Decodes a text; what cannot be decoded becomes empty.
fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&hex::unescape(text).unwrap_or_default()).into_owned()
}

/// By two writes with Nagle's algorithm, as Ceph's gateway does: the second one waits in the kernel
/// until the client has acknowledged the first.
fn write_answer(mut to: &TcpStream, method: &str, answer: &Answer) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\nContent-Length: {}\r\n", answer.status, answer.body.len());
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    to.write_all(head.as_bytes())?;
    if method == "HEAD" { Ok(()) } else { to.write_all(&answer.body) }
}
