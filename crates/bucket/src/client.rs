//! The HTTP client below the library for stores: one that acknowledges at once what it receives.
//!
//! Ceph's gateway sends the head of an answer and its body by two writes, by default with Nagle's
//! algorithm: the body goes out when the head is acknowledged. The kernel of the client puts that
//! off for 40 ms, to send it with data, and who waits for the body sends none. So the client asks
//! for an acknowledgement after each read ([`TcpStream::set_quickack`], which the kernel forgets
//! again). A small object of a gateway on the same machine then takes 0.5 ms in the place of 44.
//!
//! Where a proxy is set (`HTTPS_PROXY` and its like), `reqwest` is the client: it knows how.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector as Plain};
use hyper_util::client::legacy::{self, Client};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use object_store::{ClientConfigKey, ClientOptions};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};
use tower_service::Service;

/// What stores see in their logs.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("leeward/", env!("CARGO_PKG_VERSION")));
/// How long a connection without a request is kept.
const IDLE_WAIT: Duration = Duration::from_secs(90);
/// How often a connection without traffic is tried, and how often in vain until it is broken.
const ALIVE_STEP: Duration = Duration::from_secs(15);
const ALIVE_TRIES: u32 = 3;
/// Where a cloud tells its machines their keys: elsewhere nobody answers there, nor refuses.
const OF_CLOUDS: &str = "169.254.";
/// Time limit for a connection there.
const CLOUD_WAIT: Duration = Duration::from_secs(1);

type Direct = Client<Connecting, HttpRequestBody>;

/// Makes clients whose requests, answers included, take at most so long.
#[derive(Debug)]
pub(crate) struct Connector {
    /// For making a connection.
    pub connect_wait: Duration,
    /// For a request and all of its answer.
    pub wait: Duration,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let behind = match has_proxy() {
            true => Some((Matcher::from_env(), ReqwestConnector::default().connect(options)?)),
            false => None,
        };
        let mut plain = Plain::new();
        plain.set_nodelay(true);
        plain.enforce_http(false);
        plain.set_keepalive(Some(ALIVE_STEP));
        plain.set_keepalive_interval(Some(ALIVE_STEP));
        plain.set_keepalive_retries(Some(ALIVE_TRIES));
        let tls = ClientConfig::builder().with_platform_verifier();
        let tls = tls.map_err(|e| object_store::Error::Generic { store: "S3", source: Box::new(e) })?;
        let secure = HttpsConnectorBuilder::new().with_tls_config(tls.with_no_client_auth());
        let may_be_plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|v| v == "true");
        let secure = if may_be_plain { secure.https_or_http() } else { secure.https_only() };
        let connecting = Connecting {
            connector: secure.enable_http1().wrap_connector(Prompt(plain)),
            wait: self.connect_wait,
        };
        let direct = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_WAIT)
            .build(connecting);
        Ok(HttpClient::new(Requests { direct, behind, wait: self.wait }))
    }
}

fn has_proxy() -> bool {
    let is_set = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        let name = name.to_string_lossy().to_ascii_lowercase();
        ["http_proxy", "https_proxy", "all_proxy"].contains(&name.as_str()) && !value.is_empty()
    };
    std::env::vars_os().any(is_set)
}

/// See the module's head.
struct Requests {
    direct: Direct,
    /// Where a proxy is set: for what goes through it.
    behind: Option<(Matcher, HttpClient)>,
    wait: Duration,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("wait", &self.wait).finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpService for Requests {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some((proxies, client)) = &self.behind
            && proxies.intercept(request.uri()).is_some()
        {
            return client.execute(request).await;
        }
        let mut request: Request<HttpRequestBody> = request;
        request.headers_mut().entry(USER_AGENT).or_insert(AGENT);
        let deadline = Instant::now() + self.wait;
        let answer = timeout_at(deadline, self.direct.request(request)).await;
        let (head, body) = answer.map_err(|_| late())?.map_err(unanswered)?.into_parts();
        let body = InTime { body, deadline: Box::pin(sleep_until(deadline)) };
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

/// The body of an answer, until a time.
struct InTime {
    body: Incoming,
    deadline: Pin<Box<Sleep>>,
}

impl Body for InTime {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(|e| HttpError::new(kind_of(&e), e))));
        }
        self.deadline.as_mut().poll(cx).map(|()| Some(Err(late())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn late() -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut))
}

fn unanswered(e: legacy::Error) -> HttpError {
    let kind = if e.is_connect() { HttpErrorKind::Connect } else { kind_of(&e) };
    HttpError::new(kind, e)
}

/// What broke: the library that retries must know.
fn kind_of(e: &(dyn StdError + 'static)) -> HttpErrorKind {
    let mut next = Some(e);
    while let Some(e) = next {
        if let Some(e) = e.downcast_ref::<hyper::Error>() {
            if e.is_timeout() {
                return HttpErrorKind::Timeout;
            }
            if e.is_closed() || e.is_canceled() || e.is_incomplete_message() || e.is_body_write_aborted() {
                return HttpErrorKind::Request;
            }
        }
        match e.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::TimedOut) => return HttpErrorKind::Timeout,
            Some(
                io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof,
            ) => return HttpErrorKind::Interrupted,
            _ => next = e.source(),
        }
    }
    HttpErrorKind::Unknown
}

/// Makes connections within a time: the search for the name and the handshake count, too.
#[derive(Clone)]
struct Connecting {
    connector: HttpsConnector<Prompt>,
    wait: Duration,
}

type Boxed = Box<dyn StdError + Send + Sync>;

impl Service<Uri> for Connecting {
    type Response = MaybeHttpsStream<Socket>;
    type Error = Boxed;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Boxed>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let is_of_cloud = to.host().is_some_and(|host| host.starts_with(OF_CLOUDS));
        let wait = if is_of_cloud { CLOUD_WAIT.min(self.wait) } else { self.wait };
        let connecting = self.connector.call(to);
        Box::pin(async move {
            let late = |_| Boxed::from(io::Error::from(io::ErrorKind::TimedOut));
            timeout(wait, connecting).await.map_err(late)?
        })
    }
}

/// Makes connections that acknowledge at once.
#[derive(Clone)]
struct Prompt(Plain);

impl Service<Uri> for Prompt {
    type Response = Socket;
    type Error = <Plain as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Socket, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.0.call(to);
        Box::pin(async { connecting.await.map(Socket) })
    }
}

/// See the module's head.
struct Socket(TokioIo<TcpStream>);

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.0).poll_read(cx, into);
        if read.is_ready() {
            // one that cannot is only slower
            let _ = self.0.inner().set_quickack(true);
        }
        read
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, pieces)
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        self.0.inner().connected()
    }
}
