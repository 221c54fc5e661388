//! Connections of doors: who may connect, for how long, and how much of anything at a time.
//!
//! A door is a [`Site`]; [`Bound`] has its addresses, [`Bound::serve`] answers there. Between the two: TLS from files that are read again when they
//! change; bounds on heads, bodies' time, connections; a 503 for who comes when there are too many; the access log; figures. What a request is
//! about, and who asks, only the site knows: it says so with [`Told`] in its answer's extensions, and takes a turn for that user ([`Turns`])
//! before it works.
//!
//! HTTP/1.1 only: that is what clients of S3 and of the grid speak.

mod address;
mod certificate;
mod connection;
mod figures;
mod log;
mod memory;
mod tls;
mod turns;

pub use address::{AddressError, parse};
pub use certificate::Certificate;
pub use figures::{Family, Figures, OfPair};
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
/// What a site will answer.
pub type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A door's protocol.
pub trait Site: Send + Sync + 'static {
    /// Which door it is.
    fn door(&self) -> Door;
    /// Answers a request. Dropped when the client goes away.
    fn answer(self: Arc<Self>, request: Request<Body>, client: Client) -> Answer;
    /// What clients have begun to upload in more than one request, and not ended.
    fn unfinished(&self) -> Unfinished {
        Unfinished::default()
    }
}

/// Uploads that are not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// How many.
    pub uploads: u64,
    /// Bytes of what has come of them.
    pub bytes: u64,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its address.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// What it has shown, of an authority that the door knows.
    pub certificate: Option<Arc<Certificate>>,
}

impl Client {
    /// The certificate that speaks for a request with these headers. For one that another site's page has made a browser send none does: browsers show
    /// certificates unasked.
    pub fn certificate_for(&self, headers: &HeaderMap) -> Option<&Arc<Certificate>> {
        let own = |origin: &[u8]| {
            headers.get(HOST).is_some_and(|host| origin.strip_prefix(b"https://") == Some(host.as_bytes()))
        };
        self.certificate
            .as_ref()
            .filter(|_| headers.get_all(ORIGIN).iter().all(|origin| own(origin.as_bytes())))
    }
}

/// What a site tells of a request, in the extensions of its answer: for the access log and the figures. No secrets.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The user, when it is known who asks.
    pub user: Option<Arc<str>>,
    /// The bucket, at a door that has some.
    pub bucket: Option<Arc<str>>,
    /// What was asked for, in the protocol's words: `PutObject`, `PROPFIND`.
    pub operation: Option<&'static str>,
    /// Why it was refused, in the protocol's words: `NoSuchKey`.
    pub error: Option<Arc<str>>,
}

/// Addresses that are had and not answered yet.
pub struct Bound {
    listeners: Vec<std::net::TcpListener>,
    tls: Option<TlsFiles>,
}

/// A door that is answered; until it is dropped.
pub struct Serving {
    urls: Vec<String>,
    figures: Arc<Figures>,
    end: watch::Sender<bool>,
}

impl Bound {
    /// Takes addresses; a port 0 becomes a free one. Without TLS only loopback addresses.
    ///
    /// # Errors
    /// [`AddressError`]: which address cannot be had, and why; or the files of TLS.
    pub fn take(addresses: &[SocketAddr], tls: Option<TlsFiles>) -> Result<Bound, AddressError> {
        if tls.is_none()
            && let Some(open) = addresses.iter().find(|a| !a.ip().is_loopback())
        {
            return Err(AddressError::NotEncrypted(*open));
        }
        let listeners = address::listen(addresses)?;
        Ok(Bound { listeners, tls })
    }

    /// Where the door is.
    pub fn urls(&self) -> Vec<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.listeners
            .iter()
            .filter_map(|l| l.local_addr().ok())
            .map(|at| format!("{scheme}://{at}"))
            .collect()
    }

    /// Answers on these threads.
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
            let hall = Arc::new(Hall {
                env: env.clone(),
                site: site.clone(),
                log: log.clone(),
                figures: figures.clone(),
                tls: tls.clone(),
                ended: ended.clone(),
                turned_away: turned_away.clone(),
            });
            threads.spawn(hall.accept(listener));
        }
        Ok(Serving { urls, figures, end })
    }
}

impl Serving {
    /// Where the door is.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// What came in so far.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// No new connections and no new requests from now on.
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
struct Hall {
    env: Env,
    site: Arc<dyn Site>,
    log: Option<AccessLog>,
    figures: Arc<Figures>,
    tls: Option<Arc<tls::Tls>>,
    ended: watch::Receiver<bool>,
    /// For those who are told that there are too many.
    turned_away: Arc<Semaphore>,
}

/// What to wait when the system has no descriptor or memory left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// What is said to who comes when there are too many; then the connection ends.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

impl Hall {
    async fn accept(self: Arc<Hall>, listener: std::net::TcpListener) {
        let Ok(listener) = TcpListener::from_std(listener) else {
            tracing::error!("{} door: a listener was refused by the system", self.site.door().name());
            return;
        };
        let mut ended = self.ended.clone();
        loop {
            tokio::select! {
                client = listener.accept() => self.greet(client).await,
                () = over(&mut ended) => return,
            }
        }
    }

    async fn greet(self: &Arc<Hall>, client: std::io::Result<(TcpStream, SocketAddr)>) {
        let (stream, address) = match client {
            Ok(client) => client,
            Err(e) => {
                self.figures.accept_failed();
                tracing::debug!("accept: {e}");
                return tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        };
        let Some(place) = self.figures.enter(address, connections_max()) else {
            return self.turn_away(stream);
        };
        let _ = stream.set_nodelay(true);
        let hall = self.clone();
        tokio::spawn(async move {
            match &hall.tls {
                None => {
                    let client = Client { address, tls: false, certificate: None };
                    connection::serve(&hall, stream, client).await;
                }
                // boxed, or every connection would have the room for it
                Some(tls) => Box::pin(hall.encrypted(tls, stream, address)).await,
            }
            drop(place);
        });
    }

    async fn encrypted(self: &Arc<Hall>, tls: &tls::Tls, stream: TcpStream, address: SocketAddr) {
        let Some((stream, certificate)) = tls.shake_hands(stream).await else {
            return self.figures.handshake_failed();
        };
        let client = Client { address, tls: true, certificate };
        connection::serve(self, stream, client).await;
    }
}

impl Hall {
    /// Says that there are too many.
    fn turn_away(self: &Arc<Hall>, stream: TcpStream) {
        let Ok(place) = self.turned_away.clone().try_acquire_owned() else { return };
        let hall = self.clone();
        tokio::spawn(async move {
            match &hall.tls {
                None => say_full(stream).await,
                Some(tls) => match tls.shake_hands(stream).await {
                    Some((stream, _)) => say_full(stream).await,
                    None => hall.figures.handshake_failed(),
                },
            }
            drop(place);
        });
    }
}

async fn say_full(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let said = async {
        stream.write_all(FULL).await?;
        stream.shutdown().await?;
        // what comes is read: with something unread the system would take the answer back
        tokio::io::copy(&mut stream.take(limits::LINGER_BYTES_MAX as u64), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(Duration::from_secs(limits::LINGER_SECS_MAX), said).await;
}

/// Returns when the door is to close.
async fn over(ended: &mut watch::Receiver<bool>) {
    // the other end is dropped only then, too
    let _ = ended.wait_for(|ended| *ended).await;
}

/// Connections that the process's descriptors allow, less what is kept for the rest of it.
pub fn connections_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is valid for writing.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur.saturating_sub(limits::DESCRIPTORS_KEPT).max(16)
}
