//! The other server of a third-party copy: one HTTP/1.1 request at a time, each on a connection of
//! its own.
//!
//! The connection is our own, and not from a client library's pool: performance markers name the
//! peer while bytes flow, and a cancelled transfer must end at once. Nothing that is sent or
//! answered is logged: it has credentials in it.
//!
//! Any user who may upload can make this server connect to an address. So the allowed addresses are
//! a setting ([`AllowedServers`]). Each address is checked when it is connected to, whatever a name
//! led to before, also after redirects. The reason why a server could not be reached goes to the
//! log. The client always gets the same words, and of an answer only the status; otherwise it could
//! explore networks that it does not see.

use super::body::Outgoing;
use super::reach::AllowedServers;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use leeward_door::limits::SLOW_BYTES_PER_SEC;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

/// Time limit for a connection, to each address.
const CONNECT: Duration = Duration::from_secs(15);
/// Time limit for an answer to begin after the request was sent: a server may have to compute a
/// checksum, or fetch a file from tape.
pub const FIRST_BYTE: Duration = Duration::from_secs(120);
/// Time limit without progress of bytes.
pub const IDLE: Duration = Duration::from_secs(60);
/// Time limit for the other server to say that the body may come, or to redirect: a server that
/// does not support that says nothing.
const CONTINUE: Duration = Duration::from_secs(3);
/// Headers that are sent to a server that the first one redirects to. All others may be
/// credentials.
const HARMLESS: [HeaderName; 4] = [
    header::ACCEPT,
    HeaderName::from_static("want-digest"),
    HeaderName::from_static("want-repr-digest"),
    HeaderName::from_static("scitag"),
];
/// Most redirects that are followed.
const REDIRECTS_MAX: usize = 8;

/// Why the other server could not be used; may be shown to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// Connects to other servers. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    tls: Arc<ClientConfig>,
    reach: Arc<AllowedServers>,
}

/// An answer, and the server that gave it.
pub struct Answer {
    /// Status, headers, body.
    pub response: Response<Incoming>,
    /// Address of the server.
    pub peer: SocketAddr,
    /// URL that answered, after redirects.
    pub uri: Uri,
    /// The connection, which lives as long as this.
    pub connection: Connection,
}

/// A connection, which ends when this is dropped.
pub struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Remote {
    /// Trusts the CA certificates of this machine, and those in `trusted`: a file in PEM, or a
    /// directory of such files.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn new(trusted: Option<&Path>, reach: AllowedServers) -> Result<Remote, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = trusted {
            let count = roots.add_parsable_certificates(certificates(path)?).0;
            if count == 0 {
                return Err(format!(
                    "{}: no certificate in PEM: name a file or directory with some",
                    path.display()
                ));
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|e| format!("TLS: {e}"))?;
        let tls = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        Ok(Remote { tls, reach: Arc::new(reach) })
    }

    /// Whether the scheme is supported.
    pub fn speaks(uri: &Uri) -> bool {
        matches!(uri.scheme_str(), Some("https" | "davs" | "http" | "dav"))
            && uri.host().is_some_and(|host| !host.is_empty())
    }

    /// Sends a request without a body, and follows redirects.
    ///
    /// # Errors
    /// It cannot be reached, or does not answer in time. Any status is an answer.
    pub async fn ask(&self, method: Method, uri: &Uri, headers: &HeaderMap) -> Result<Answer, Failed> {
        self.send(method, uri, headers, |_| Outgoing::empty(), |_| ()).await
    }

    /// Sends a body, which `body` makes anew for each redirect; `peer` gets the address that it is
    /// sent to.
    ///
    /// # Errors
    /// As of [`Remote::ask`].
    pub async fn send(
        &self,
        method: Method,
        uri: &Uri,
        headers: &HeaderMap,
        mut body: impl FnMut(&mut HeaderMap) -> Outgoing,
        mut peer: impl FnMut(SocketAddr),
    ) -> Result<Answer, Failed> {
        let (mut uri, mut headers) = (uri.clone(), headers.clone());
        for _ in 0..=REDIRECTS_MAX {
            let mut sent = headers.clone();
            let outgoing = body(&mut sent);
            let answer = self.once(&method, &uri, sent, outgoing, &mut peer).await?;
            let Some(next) = redirected(&answer)? else { return Ok(answer) };
            if next.authority() != uri.authority() {
                // the headers are for the first server alone; what it wants to tell the next one is
                // in the URL
                headers = harmless(&headers);
            }
            uri = next;
        }
        Err(Failed(format!("{} redirects too often", shown(&uri))))
    }

    async fn once(
        &self,
        method: &Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Outgoing,
        peer: &mut impl FnMut(SocketAddr),
    ) -> Result<Answer, Failed> {
        let tls = match uri.scheme_str() {
            Some("https" | "davs") => true,
            Some("http" | "dav") if self.reach.is_everything() => false,
            _ => return Err(Failed(format!("{} is not https", shown(uri)))),
        };
        let host = uri.host().ok_or_else(|| Failed("the URL names no host".into()))?.trim_matches(['[', ']']);
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let (stream, address) = self.connect(host, port).await?;
        peer(address);
        let request = request(method, uri, host, headers, body)?;
        let sends_body = *method == Method::PUT;
        let (response, connection) = if tls {
            let name = ServerName::try_from(host.to_string()).map_err(|_| unreachable(host))?;
            let connecting = TlsConnector::from(self.tls.clone()).connect(name, stream);
            let stream = within(CONNECT, "TLS with", (host, port), connecting).await?;
            exchange(stream, request, host, sends_body).await?
        } else {
            exchange(stream, request, host, sends_body).await?
        };
        Ok(Answer { response, peer: address, uri: uri.clone(), connection })
    }

    /// Connects to the first address that answers.
    async fn connect(&self, host: &str, port: u16) -> Result<(TcpStream, SocketAddr), Failed> {
        let found =
            within(CONNECT, "looking up", (host, port), tokio::net::lookup_host((host, port))).await?;
        let own = if self.reach.is_everything() { Vec::new() } else { own_addresses()? };
        for address in found {
            if !self.reach.may(address.ip(), address.port(), &own) {
                tracing::info!(
                    "third-party copy: {host} is {address}, which the settings do not let copies reach"
                );
                continue;
            }
            let stream = TcpStream::connect(address);
            if let Ok(stream) = within(CONNECT, "connecting to", (host, port), stream).await {
                let _ = stream.set_nodelay(true);
                return Ok((stream, address));
            }
        }
        Err(unreachable(host))
    }
}

/// The error for a server that does not exist, does not answer, may not be reached from here, or
/// has the wrong identity.
fn unreachable(host: &str) -> Failed {
    Failed(format!("{host} cannot be reached by copies from here, or not by TLS: the server's log says why"))
}

/// The certificates in a file, or in all files of a directory; other files in a directory are
/// skipped.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable =
        |e: std::io::Error| format!("{}: {e}: name a file or directory that can be read", path.display());
    if !path.is_dir() {
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        return found.map_err(|e| {
            format!("{}: {e}: name a file in PEM format, or a directory of such", path.display())
        });
    }
    let mut all = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let found = CertificateDer::pem_file_iter(entry.map_err(unreadable)?.path());
        all.extend(found.into_iter().flatten().flatten());
    }
    Ok(all)
}

/// The headers that another server than the intended one may get.
fn harmless(headers: &HeaderMap) -> HeaderMap {
    let all = headers.iter().filter(|(name, _)| HARMLESS.contains(name));
    all.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The addresses of this machine, on all its interfaces.
fn own_addresses() -> Result<Vec<IpAddr>, Failed> {
    let unknown = |e| Failed(format!("the addresses of this server cannot be told from others: {e}"));
    let all = nix::ifaddrs::getifaddrs().map_err(unknown)?.filter_map(|interface| interface.address);
    let ip = |address: nix::sys::socket::SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    };
    Ok(all.filter_map(ip).collect())
}

fn request(
    method: &Method,
    uri: &Uri,
    host: &str,
    headers: HeaderMap,
    body: Outgoing,
) -> Result<Request<Outgoing>, Failed> {
    let wrong = |_| Failed(format!("{} cannot be asked for", shown(uri)));
    let target: Uri = uri
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .parse()
        .map_err(|_| Failed(format!("{} has no path", shown(uri))))?;
    let mut request = Request::new(body);
    *request.method_mut() = method.clone();
    *request.uri_mut() = target;
    *request.headers_mut() = headers;
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let agent = concat!("leeward/", env!("CARGO_PKG_VERSION"));
    request.headers_mut().insert(header::HOST, HeaderValue::from_str(authority).map_err(wrong)?);
    request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(agent));
    request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    if !request.body().sent().ended() {
        // many servers redirect a PUT: then nothing of the body goes to the first one
        request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        let go_on = Arc::new(Notify::new());
        let told = go_on.clone();
        hyper::ext::on_informational(&mut request, move |answer| {
            if answer.status() == StatusCode::CONTINUE {
                told.notify_one();
            }
        });
        let wait = async move { tokio::time::timeout(CONTINUE, go_on.notified()).await.unwrap_or_default() };
        request.body_mut().hold_until(wait);
    }
    Ok(request)
}

/// Sends the request; the connection lives in a task of its own. An outgoing body has its own time
/// limit for progress, and may take any time in all.
async fn exchange<S>(
    stream: S,
    request: Request<Outgoing>,
    host: &str,
    sends_body: bool,
) -> Result<(Response<Incoming>, Connection), Failed>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let said = |e: hyper::Error| {
        tracing::info!("third-party copy: {host}: {e}");
        Failed(format!("{host} does not answer as it should"))
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(said)?;
    let sent = request.body().sent();
    let connection = Connection(tokio::spawn(connection).abort_handle());
    let answer = sender.send_request(request);
    tokio::pin!(answer);
    let mut before = 0;
    let least = IDLE.as_secs() * SLOW_BYTES_PER_SEC;
    loop {
        let limit = if sends_body && !sent.ended() { IDLE } else { FIRST_BYTE };
        match tokio::time::timeout(limit, &mut answer).await {
            Ok(answer) => return Ok((answer.map_err(said)?, connection)),
            Err(_) if sent.bytes() > before && (sent.ended() || sent.bytes() - before >= least) => {
                before = sent.bytes();
            }
            Err(_) => return Err(Failed(format!("{host} does not answer"))),
        }
    }
}

/// Runs `future` with a time limit. The cause of an error is logged, and not returned.
async fn within<T, E: std::fmt::Display>(
    limit: Duration,
    doing: &str,
    (host, port): (&str, u16),
    what: impl Future<Output = Result<T, E>>,
) -> Result<T, Failed> {
    let why = match tokio::time::timeout(limit, what).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(e)) => e.to_string(),
        Err(_) => "no answer".into(),
    };
    tracing::info!("third-party copy: {doing} {host}:{port}: {why}");
    Err(unreachable(host))
}

/// The URL that an answer redirects to.
fn redirected(answer: &Answer) -> Result<Option<Uri>, Failed> {
    use StatusCode as S;
    let redirects =
        [S::MOVED_PERMANENTLY, S::FOUND, S::SEE_OTHER, S::TEMPORARY_REDIRECT, S::PERMANENT_REDIRECT];
    if !redirects.contains(&answer.response.status()) {
        return Ok(None);
    }
    let wrong = || Failed(format!("{} redirects to nowhere", shown(&answer.uri)));
    let text =
        answer.response.headers().get(header::LOCATION).and_then(|l| l.to_str().ok()).ok_or_else(wrong)?;
    let base = url::Url::parse(&answer.uri.to_string()).map_err(|_| wrong())?;
    let next: Uri = base.join(text).ok().and_then(|next| next.as_str().parse().ok()).ok_or_else(wrong)?;
    let is_open = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "dav"));
    if !Remote::speaks(&next) {
        return Err(wrong());
    }
    if is_open(&next) && !is_open(&answer.uri) {
        return Err(Failed(format!("{} redirects away from https", shown(&answer.uri))));
    }
    Ok(Some(next))
}

/// A URL for messages: without its query, which may have capabilities.
pub fn shown(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |a| a.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{}://{host}{}", uri.scheme_str().unwrap_or_default(), uri.path())
}

/// The error for a server that refused: its status, and nothing of its text.
pub fn refusal(what: &str, answer: &Answer) -> Failed {
    Failed(format!("{what} {}: {}", shown(&answer.uri), answer.response.status()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_its_interfaces_are_known() {
        assert!(own_addresses().unwrap().iter().any(|ip| ip.is_loopback()));
    }

    #[test]
    fn what_is_shown_has_no_capability_in_it() {
        let uri: Uri = "https://user:pw@host:1094/a/b?authz=secret".parse().unwrap();
        assert_eq!(shown(&uri), "https://host:1094/a/b");
    }

    #[test]
    fn which_urls_can_be_asked() {
        let speaks = |text: &str| Remote::speaks(&text.parse().unwrap());
        assert!(speaks("https://a/b") && speaks("davs://a/b") && speaks("http://a/b"));
        assert!(!speaks("gsiftp://a/b") && !speaks("root://a//b") && !speaks("/b"));
    }
}
