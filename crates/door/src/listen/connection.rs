//! One connection: its time limits, and what is logged of its requests.
//!
//! A connection is idle, or receives a head, or works on a request. Reading has a limit in the
//! first two states. While a request is worked on, the limits are on its body (`Coming`) and on the
//! part of the answer that the client does not take. Time counts only while the server waits for
//! the client. A client that always moves a little, but too slowly, runs out of time, too.
//!
//! hyper decides where a request ends. With two lengths that differ it refuses the request. With a
//! length and chunks the request ends with the chunks, and the length is removed before code here
//! could see it. So a proxy in front must not go by the length then (RFC 9112, 6.1).

use super::figures::Request as Counted;
use super::log::{Line, milliseconds};
use super::memory::MemoryGuard;
use super::{Body, BodyError, Client, Family, Figures, ListenerContext, RequestLabels, over};
use crate::limits::{
    HEAD_BYTES_MAX, HEAD_SECS_MAX, IDLE_SECS_MAX, LINGER_BYTES_MAX, LINGER_SECS_MAX, REST_SECS,
    SLOW_BYTES_PER_SEC, STALL_SECS_MAX,
};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use leeward_env::{Env, Nanos};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Most bytes of a path that are logged.
const PATH_BYTES_MAX: usize = 4 << 10;
/// Time for running requests to end once the door closes.
const END_WAIT: Duration = Duration::from_secs(10);

/// Answers a connection until it ends.
///
/// hyper has some 16 KiB for each connection, whatever it does. A connection that has rested for a
/// while is taken from hyper, and given to it again with the first byte that arrives. Meanwhile it
/// is only a socket and this future.
pub(super) async fn serve<S>(context: &Arc<ListenerContext>, mut stream: S, client: Client)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _connection = MemoryGuard::new();
    let mut read = Bytes::new();
    loop {
        if read.is_empty() {
            match first(context, &mut stream).await {
                Some(byte) => read = byte,
                None => return,
            }
        }
        match Box::pin(awake(context, (stream, read), client.clone())).await {
            Some(rested) => (stream, read) = rested,
            None => return,
        }
    }
}

/// Waits for the first byte; `None`: the connection must end.
async fn first<S: AsyncRead + Unpin>(context: &Arc<ListenerContext>, stream: &mut S) -> Option<Bytes> {
    let (mut ended, mut byte) = (context.ended.clone(), [0]);
    let limit = Duration::from_secs(IDLE_SECS_MAX);
    let read = tokio::select! {
        read = tokio::time::timeout(limit, stream.read(&mut byte)) => read,
        () = over(&mut ended) => return None,
    };
    match read {
        Ok(Ok(1)) => Some(Bytes::copy_from_slice(&byte)),
        Ok(_) => None,
        Err(_) => {
            context.figures.timed_out_one();
            None
        }
    }
}

/// Answers a connection until it ends, or rests: then it is returned, with the bytes that were read
/// and not parsed yet.
async fn awake<S>(
    context: &Arc<ListenerContext>,
    (stream, read): (S, Bytes),
    client: Client,
) -> Option<(S, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _buffers = MemoryGuard::new();
    let state = Arc::<ConnectionState>::default();
    state.set(HEAD);
    let io = Timed {
        stream,
        read,
        env: context.env.clone(),
        figures: context.figures.clone(),
        state: state.clone(),
        limit: None,
        writes: Patience::default(),
        lingers: None,
    };
    let address = client.address;
    let service = {
        let (context, state) = (context.clone(), state.clone());
        service_fn(move |request| Box::pin(answer(context.clone(), state.clone(), client.clone(), request)))
    };
    let mut http = http1::Builder::new();
    http.max_buf_size(HEAD_BYTES_MAX).half_close(false).auto_date_header(true);
    let mut connection = http.serve_connection(TokioIo::new(io), service);
    let mut ended = context.ended.clone();
    let result = tokio::select! {
        result = &mut connection => result,
        () = state.rests() => {
            let parts = connection.into_parts();
            // an empty buffer may still have its memory
            let read = if parts.read_buf.is_empty() { Bytes::new() } else { parts.read_buf };
            return Some((parts.io.into_inner().stream, read));
        }
        () = over(&mut ended) => {
            Pin::new(&mut connection).graceful_shutdown();
            tokio::time::timeout(END_WAIT, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(e) = result {
        tracing::debug!("{address}: {e}");
    }
    None
}

/// What a connection is doing, for its reader and its requests.
#[derive(Default)]
struct ConnectionState {
    doing: AtomicU8,
    /// Counts the changes of `doing`.
    changes: AtomicU32,
    /// Whether the client has yet to take part of an answer.
    writing: AtomicBool,
}

const IDLE: u8 = 0;
const HEAD: u8 = 1;
const WORK: u8 = 2;

impl ConnectionState {
    fn set(&self, doing: u8) {
        self.doing.store(doing, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns when no request came for a while, and all are answered.
    async fn rests(&self) {
        loop {
            let before = self.changes.load(Ordering::Acquire);
            tokio::time::sleep(Duration::from_secs(REST_SECS)).await;
            let rests = self.doing.load(Ordering::Acquire) == IDLE && !self.writing.load(Ordering::Acquire);
            if rests && self.changes.load(Ordering::Acquire) == before {
                return;
            }
        }
    }
}

/// How long the server waits for a client.
#[derive(Default)]
struct Patience {
    /// Since when it waits.
    since: Option<Nanos>,
    /// How long it has waited in all.
    waited: Nanos,
    bytes: u64,
    limit: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// Waits for the client; `true`: time is over.
    fn wait(&mut self, env: &Env, cx: &mut Context<'_>) -> bool {
        let now = env.now();
        let since = *self.since.get_or_insert(now);
        let waited_secs = (self.waited + now.saturating_sub(since)) / 1_000_000_000;
        if waited_secs > STALL_SECS_MAX && self.bytes / waited_secs < SLOW_BYTES_PER_SEC {
            return true;
        }
        let limit = self
            .limit
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_secs(STALL_SECS_MAX))));
        limit.as_mut().poll(cx).is_ready()
    }

    /// The client has moved bytes.
    fn moved(&mut self, env: &Env, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(since) = self.since.take() {
            self.waited += env.now().saturating_sub(since);
            self.limit = None;
        }
    }
}

fn timed_out(figures: &Figures) -> io::Error {
    figures.timed_out_one();
    io::Error::new(io::ErrorKind::TimedOut, "the client took too long")
}

/// A stream with time limits.
struct Timed<S> {
    stream: S,
    /// Bytes that were read before.
    read: Bytes,
    env: Env,
    figures: Arc<Figures>,
    state: Arc<ConnectionState>,
    /// The limit on reading, and the change of state that it belongs to.
    limit: Option<(u32, Pin<Box<Sleep>>)>,
    writes: Patience,
    /// After the last answer: until when to read on, and how many bytes.
    lingers: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S> Timed<S> {
    /// Whether reading has taken too long.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let secs = match self.state.doing.load(Ordering::Acquire) {
            IDLE => IDLE_SECS_MAX,
            HEAD => HEAD_SECS_MAX,
            _ => return false,
        };
        let changes = self.state.changes.load(Ordering::Acquire);
        let limit = match &mut self.limit {
            Some((of, limit)) if *of == changes => limit,
            limit => {
                let new = Box::pin(tokio::time::sleep(Duration::from_secs(secs)));
                &mut limit.insert((changes, new)).1
            }
        };
        limit.as_mut().poll(cx).is_ready()
    }

    fn watch_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
        bytes: usize,
    ) -> Poll<io::Result<T>> {
        self.state.writing.store(result.is_pending(), Ordering::Release);
        if result.is_ready() {
            self.writes.moved(&self.env, bytes);
        } else if self.writes.wait(&self.env, cx) {
            return Poll::Ready(Err(timed_out(&self.figures)));
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.read.is_empty() {
            let some = this.read.split_to(this.read.len().min(buf.remaining()));
            buf.put_slice(&some);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Pending if this.is_late(cx) => Poll::Ready(Err(timed_out(&this.figures))),
            Poll::Pending => Poll::Pending,
            ready => {
                if buf.filled().len() > before && this.state.doing.load(Ordering::Acquire) == IDLE {
                    this.state.set(HEAD);
                }
                ready
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let result = Pin::new(&mut this.stream).poll_write(cx, buf);
        let bytes = if let Poll::Ready(Ok(n)) = &result { *n } else { 0 };
        this.watch_write(cx, result, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let result = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        let bytes = if let Poll::Ready(Ok(n)) = &result { *n } else { 0 };
        this.watch_write(cx, result, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let result = Pin::new(&mut this.stream).poll_flush(cx);
        this.watch_write(cx, result, 0)
    }

    /// Says that nothing more comes, and reads for a while what the client still sends. If the
    /// socket were closed with unread input, the system would tell the client that the connection
    /// was reset, and the client might never see the answer that says why its upload was refused.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingers.is_none() {
            let result = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.watch_write(cx, result, 0))?;
        }
        let new = || (Box::pin(tokio::time::sleep(Duration::from_secs(LINGER_SECS_MAX))), LINGER_BYTES_MAX);
        let (end, left) = this.lingers.get_or_insert_with(new);
        let mut bytes = [MaybeUninit::uninit(); 4096];
        while *left > 0 {
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut this.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *left = left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
                Poll::Pending => return end.as_mut().poll(cx).map(Ok),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The incoming body of a request.
struct Coming {
    body: Incoming,
    env: Env,
    figures: Arc<Figures>,
    patience: Patience,
    received: Arc<AtomicU64>,
    /// Whether the body is wanted: then hyper says "100 Continue" to a client that waits for it.
    wanted: Arc<AtomicBool>,
}

impl HttpBody for Coming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        this.wanted.store(true, Ordering::Relaxed);
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            if this.patience.wait(&this.env, cx) {
                return Poll::Ready(Some(Err(timed_out(&this.figures).into())));
            }
            return Poll::Pending;
        };
        let bytes = frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        this.patience.moved(&this.env, bytes);
        this.received.fetch_add(bytes as u64, Ordering::Relaxed);
        Poll::Ready(frame.map(|f| f.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The outgoing body of an answer, with the log entry to write when it ends.
struct Going {
    body: Body,
    /// Its length in bytes, where that is known: hyper does not poll for the end after the last
    /// byte.
    length: Option<u64>,
    noted: Noted,
}

impl HttpBody for Going {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => this.noted.sent += frame.data_ref().map_or(0, Bytes::len) as u64,
            Some(Err(e)) => {
                tracing::warn!("{} {}: an answer broke off: {e}", this.noted.method, this.noted.path)
            }
            None => this.noted.complete = true,
        }
        if frame.is_some() && (this.body.is_end_stream() || Some(this.noted.sent) == this.length) {
            this.noted.complete = true;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The log entry of a request, written when the request is over, however it ends.
struct Noted {
    context: Arc<ListenerContext>,
    state: Arc<ConnectionState>,
    address: SocketAddr,
    begun: Nanos,
    method: String,
    path: String,
    /// 499 until it is answered: the client went away.
    status: u16,
    told: RequestLabels,
    received: Arc<AtomicU64>,
    sent: u64,
    complete: bool,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.state.set(IDLE);
        let received = self.received.load(Ordering::Relaxed);
        let RequestLabels { user, bucket, operation, error } = &self.told;
        self.context.figures.count(&Counted {
            family: Family::of(self.address),
            status: self.status,
            received,
            sent: self.sent,
            user: user.clone(),
            bucket: bucket.clone(),
        });
        let Some(log) = &self.context.log else { return };
        let env = &self.context.env;
        log.note(&Line {
            time: milliseconds(env.wall() / 1000),
            door: self.context.site.door().name(),
            client: self.address.to_string(),
            user: user.as_deref(),
            bucket: bucket.as_deref(),
            operation: *operation,
            method: &self.method,
            path: &self.path,
            status: self.status,
            error: error.as_deref(),
            received_bytes: received,
            sent_bytes: self.sent,
            complete: self.complete,
            milliseconds: milliseconds(env.now().saturating_sub(self.begun)),
        });
    }
}

async fn answer(
    context: Arc<ListenerContext>,
    state: Arc<ConnectionState>,
    client: Client,
    request: Request<Incoming>,
) -> Result<Response<Going>, Infallible> {
    state.set(WORK);
    let received = Arc::<AtomicU64>::default();
    let mut noted = Noted {
        begun: context.env.now(),
        state,
        address: client.address,
        method: request.method().to_string(),
        path: noted_path(request.uri().path()),
        status: 499,
        told: RequestLabels::default(),
        received: received.clone(),
        sent: 0,
        complete: false,
        context: context.clone(),
    };
    let waits = request.headers().contains_key(EXPECT);
    let wanted = Arc::new(AtomicBool::new(false));
    let coming = |body: Incoming| {
        let (env, figures, patience) = (context.env.clone(), context.figures.clone(), Patience::default());
        // no "100 Continue" for an empty body
        let wanted = if body.is_end_stream() { Arc::default() } else { wanted.clone() };
        Coming { body, env, figures, patience, received, wanted }
    };
    let names_host = names_host(request.version(), request.headers());
    let request = request.map(|body| coming(body).boxed_unsync());
    let mut response = match names_host {
        // a panic costs only the request that had it
        true => AssertUnwindSafe(context.site.clone().answer(request, client))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| refusal(StatusCode::INTERNAL_SERVER_ERROR)),
        false => {
            let mut response = refusal(StatusCode::BAD_REQUEST);
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            response
        }
    };
    noted.status = response.status().as_u16();
    noted.told = response.extensions().get::<RequestLabels>().cloned().unwrap_or_default();
    noted.complete = response.body().is_end_stream();
    if waits && !wanted.load(Ordering::Relaxed) {
        // nobody said "100 Continue": the body never comes, and botocore takes this answer for that
        // of the connection's next request
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let told = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let length = told.or(response.body().size_hint().exact());
    Ok(response.map(|body| Going { body, length, noted }))
}

/// Whether a request names its host as it must (RFC 9112, 3.2): once, with a valid name; with
/// HTTP/1.0 it may be missing.
fn names_host(version: Version, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => version < Version::HTTP_11,
        (Some(host), None) => {
            let host = host.as_bytes();
            host.is_empty() || !host.contains(&b'@') && Authority::try_from(host).is_ok()
        }
        _ => false,
    }
}

/// A path for the log: of a long one the beginning.
fn noted_path(path: &str) -> String {
    path[..path.floor_char_boundary(PATH_BYTES_MAX)].to_owned()
}

fn refusal(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::{HOST, HeaderMap, HeaderValue, Version, names_host};

    #[test]
    fn a_request_names_its_host_once() {
        let named = |version, hosts: &[&'static str]| {
            let hosts = hosts.iter().map(|host| (HOST, HeaderValue::from_static(host)));
            let mut headers = HeaderMap::new();
            hosts.for_each(|(name, host)| {
                headers.append(name, host);
            });
            names_host(version, &headers)
        };
        for host in ["a", "a:80", "[::1]:80", "127.0.0.1", ""] {
            assert!(named(Version::HTTP_11, &[host]) && named(Version::HTTP_10, &[host]), "{host}");
        }
        assert!(named(Version::HTTP_10, &[]) && !named(Version::HTTP_11, &[]));
        for version in [Version::HTTP_10, Version::HTTP_11] {
            for hosts in [&["a", "b"][..], &["a", "a"], &["a b"], &["a/b"], &["u@a"], &["a, b"]] {
                assert!(!named(version, hosts), "{hosts:?}");
            }
        }
    }

    #[test]
    fn of_a_long_path_the_beginning_is_noted() {
        let path = format!("/{}", "é".repeat(super::PATH_BYTES_MAX));
        let noted = super::noted_path(&path);
        assert!(path.starts_with(&noted) && noted.len() == super::PATH_BYTES_MAX - 1, "{}", noted.len());
        assert_eq!(super::noted_path("/a"), "/a");
    }
}
