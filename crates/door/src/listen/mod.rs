//! Connections of doors: who may connect, for how long, and how much of each resource they may use
//! at a time.
//!
//! A door is a [`Site`]; [`Bound`] has its addresses, [`Bound::serve`] answers there. Between the
//! two: TLS from files that are read again when they change; limits on heads, times of bodies,
//! connections; a 503 when there are too many connections; the access log; figures. Only the site
//! knows what a request is about and who asks. It says so with [`RequestLabels`] in its answer's
//! extensions, and takes a turn for that user ([`Turns`]) before it works.
//!
//! HTTP/1.1 only: that is what clients of S3 and of the grid use.

mod address;
mod certificate;
mod connection;
mod figures;
mod guarded;
mod log;
mod memory;
mod tls;
mod turns;

pub use address::{AddressError, listen as listen_at, parse};
pub use certificate::Certificate;
pub use figures::{Family, Figures, OfPair};
pub use guarded::{Guard, Guarded, Readiness};
pub use log::AccessLog;
pub use tls::TlsFiles;
pub use turns::{Busy, Turn, Turns};

use crate::limits;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::header::{HOST, HeaderMap, ORIGIN};
use hyper::{Request, Response};
use leeward_env::{Door, Env};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

/// Why a body ended early.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a request or an answer.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;
/// The future answer of a site.
pub type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A door's protocol.
pub trait Site: Send + Sync + 'static {
    /// The door that it is.
    fn door(&self) -> Door;
    /// Answers a request. The future is dropped when the client goes away.
    fn answer(self: Arc<Self>, request: Request<Body>, client: Client) -> Answer;
    /// Uploads that clients have begun in more than one request, and not ended.
    fn unfinished(&self) -> Unfinished {
        Unfinished::default()
    }
}

/// Uploads that are not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Number of uploads.
    pub uploads: u64,
    /// Bytes of them that have arrived.
    pub bytes: u64,
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its address.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The certificate that it has shown, of an authority that the door knows.
    pub certificate: Option<Arc<Certificate>>,
}

impl Client {
    /// The certificate that speaks for a request with these headers. None if another site's page
    /// made a browser send the request: browsers show certificates without asking.
    pub fn certificate_for(&self, headers: &HeaderMap) -> Option<&Arc<Certificate>> {
        let own = |origin: &[u8]| {
            headers.get(HOST).is_some_and(|host| origin.strip_prefix(b"https://") == Some(host.as_bytes()))
        };
        self.certificate
            .as_ref()
            .filter(|_| headers.get_all(ORIGIN).iter().all(|origin| own(origin.as_bytes())))
    }
}

/// What a site says about a request, in the extensions of its answer: for the access log and the
/// figures. No secrets.
#[derive(Clone, Debug, Default)]
pub struct RequestLabels {
    /// The user, when it is known.
    pub user: Option<Arc<str>>,
    /// The bucket, at a door that has buckets.
    pub bucket: Option<Arc<str>>,
    /// The operation, in the protocol's words: `PutObject`, `PROPFIND`.
    pub operation: Option<&'static str>,
    /// Why it was refused, in the protocol's words: `NoSuchKey`.
    pub error: Option<Arc<str>>,
}

/// Addresses that are bound and not served yet.
pub struct Bound {
    listeners: Vec<std::net::TcpListener>,
    tls: Option<TlsFiles>,
}

/// A door that is served, until this is dropped.
pub struct Serving {
    urls: Vec<String>,
    figures: Arc<Figures>,
    end: watch::Sender<bool>,
}

impl Bound {
    /// Binds addresses; a port 0 becomes a free one. Without TLS only loopback addresses.
    ///
    /// # Errors
    /// [`AddressError`]: which address cannot be bound, and why; or the files of TLS.
    pub fn take(addresses: &[SocketAddr], tls: Option<TlsFiles>) -> Result<Bound, AddressError> {
        if tls.is_none()
            && let Some(open) = addresses.iter().find(|a| !a.ip().is_loopback())
        {
            return Err(AddressError::NotEncrypted(*open));
        }
        let listeners = address::listen(addresses)?;
        Ok(Bound { listeners, tls })
    }

    /// URLs of the door.
    pub fn urls(&self) -> Vec<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.listeners
            .iter()
            .filter_map(|l| l.local_addr().ok())
            .map(|at| format!("{scheme}://{at}"))
            .collect()
    }

    /// Serves on these threads.
    ///
    /// # Errors
    /// [`AddressError::Tls`]: certificate and key cannot be used.
    pub fn serve(
        self,
        env: &Env,
        threads: &Handle,
        site: Arc<dyn Site>,
        log: Option<AccessLog>,
    ) -> Result<Serving, AddressError> {
        let (end, ended) = watch::channel(false);
        let figures = Arc::new(Figures::new(&site));
        let urls = self.urls();
        let tls = self.tls.map(|files| tls::Tls::load(env, files)).transpose()?.map(Arc::new);
        threads.spawn(memory::give_back(env.clone(), ended.clone()));
        let turned_away = Arc::new(Semaphore::new(limits::TURNED_AWAY_MAX));
        for listener in self.listeners {
            let context = Arc::new(ListenerContext {
                env: env.clone(),
                site: site.clone(),
                log: log.clone(),
                figures: figures.clone(),
                tls: tls.clone(),
                ended: ended.clone(),
                turned_away: turned_away.clone(),
            });
            threads.spawn(context.accept(listener));
        }
        Ok(Serving { urls, figures, end })
    }
}

impl Serving {
    /// URLs of the door.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Counts so far.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Ends the door: no new connections and no new requests.
    pub fn end(&self) {
        self.end.send_replace(true);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

/// What all connections of an address share.
struct ListenerContext {
    env: Env,
    site: Arc<dyn Site>,
    log: Option<AccessLog>,
    figures: Arc<Figures>,
    tls: Option<Arc<tls::Tls>>,
    ended: watch::Receiver<bool>,
    /// Permits for telling clients that there are too many connections.
    turned_away: Arc<Semaphore>,
}

/// Pause when the system has no descriptor or memory left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// The answer when there are too many connections; then the connection ends.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

impl ListenerContext {
    async fn accept(self: Arc<ListenerContext>, listener: std::net::TcpListener) {
        let Ok(listener) = TcpListener::from_std(listener) else {
            tracing::error!("{} door: a listener was refused by the system", self.site.door().name());
            return;
        };
        let mut ended = self.ended.clone();
        loop {
            tokio::select! {
                client = listener.accept() => self.start_connection(client).await,
                () = over(&mut ended) => return,
            }
        }
    }

    async fn start_connection(self: &Arc<ListenerContext>, client: std::io::Result<(TcpStream, SocketAddr)>) {
        let (stream, address) = match client {
            Ok(client) => client,
            Err(e) => {
                self.figures.accept_failed();
                tracing::debug!("accept: {e}");
                return tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        };
        let Some(place) = self.figures.enter(address, connections_max()) else {
            return self.refuse_full(stream);
        };
        let _ = stream.set_nodelay(true);
        let context = self.clone();
        tokio::spawn(async move {
            match &context.tls {
                None => {
                    let client = Client { address, tls: false, certificate: None };
                    connection::serve(&context, stream, client).await;
                }
                // boxed, or every connection would have the room for it
                Some(tls) => Box::pin(context.encrypted(tls, stream, address)).await,
            }
            drop(place);
        });
    }

    async fn encrypted(self: &Arc<ListenerContext>, tls: &tls::Tls, stream: TcpStream, address: SocketAddr) {
        let Some((stream, certificate)) = tls.handshake(stream).await else {
            return self.figures.handshake_failed();
        };
        let client = Client { address, tls: true, certificate };
        connection::serve(self, stream, client).await;
    }
}

impl ListenerContext {
    /// Tells the client that there are too many connections.
    fn refuse_full(self: &Arc<ListenerContext>, stream: TcpStream) {
        let Ok(place) = self.turned_away.clone().try_acquire_owned() else { return };
        let context = self.clone();
        tokio::spawn(async move {
            match &context.tls {
                None => answer_full(stream).await,
                Some(tls) => match tls.handshake(stream).await {
                    Some((stream, _)) => answer_full(stream).await,
                    None => context.figures.handshake_failed(),
                },
            }
            drop(place);
        });
    }
}

async fn answer_full(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let said = async {
        stream.write_all(FULL).await?;
        stream.shutdown().await?;
        // input is read: with unread input the system would take the answer back
        tokio::io::copy(&mut stream.take(limits::LINGER_BYTES_MAX as u64), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(Duration::from_secs(limits::LINGER_SECS_MAX), said).await;
}

/// Returns when the door must close.
async fn over(ended: &mut watch::Receiver<bool>) {
    // the other end is dropped only then, too
    let _ = ended.wait_for(|ended| *ended).await;
}

/// Connections that the process's descriptors allow, less those kept for the rest of it.
pub fn connections_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is valid for writing.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur.saturating_sub(limits::DESCRIPTORS_KEPT).max(16)
}
