//! TLS from certificate files, which are read again when they change: a renewal needs no restart.
//! Clients may show certificates of their own, of authorities that are read once.

use super::{AddressError, Certificate};
use crate::limits::HANDSHAKE_SECS_MAX;
use leeward_env::{Env, Nanos};
use parking_lot::{Mutex, RwLock};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often the files are checked, when clients connect, nanoseconds.
const LOOK_AGAIN: Nanos = 5_000_000_000;

/// Files of certificate and key, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those that sign it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Authorities that sign certificates of clients. `None`: clients show no certificates.
    pub clients: Option<PathBuf>,
}

/// A connection, and the certificate that its client has shown.
type TlsConnection = (TlsStream<TcpStream>, Option<Arc<Certificate>>);

/// Encrypts connections.
pub(super) struct Tls {
    acceptor: TlsAcceptor,
    identity: Arc<Identity>,
}

/// The certificate and key that are shown now.
struct Identity {
    env: Env,
    files: TlsFiles,
    shown: RwLock<Arc<CertifiedKey>>,
    read: Mutex<Read>,
}

/// When the files were checked last, and their times of modification.
struct Read {
    at: Nanos,
    changed: [Option<SystemTime>; 2],
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.files.fmt(f)
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown.read().clone())
    }
}

impl Tls {
    pub(super) fn load(env: &Env, files: TlsFiles) -> Result<Tls, AddressError> {
        let read = Mutex::new(Read { at: env.now(), changed: changed(&files) });
        let shown = RwLock::new(Arc::new(load(&files).map_err(AddressError::Tls)?));
        let files_clients = files.clients.clone();
        let identity = Arc::new(Identity { env: env.clone(), files, shown, read });
        let clients = verifier(files_clients.as_deref()).map_err(AddressError::Tls)?;
        let config = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|e| AddressError::Tls(e.to_string()))?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(identity.clone());
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), identity })
    }

    /// Does the handshake: the encrypted stream, and the client's certificate; `None` when it fails
    /// or takes too long.
    pub(super) async fn handshake(&self, stream: TcpStream) -> Option<TlsConnection> {
        self.identity.reload_if_changed();
        let shaken =
            tokio::time::timeout(Duration::from_secs(HANDSHAKE_SECS_MAX), self.acceptor.accept(stream));
        let stream = shaken.await.ok()?.ok()?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
        let certificate = shown.map(|shown| Certificate::read(&shown).ok_or(())).transpose().ok()?;
        Some((stream, certificate.map(Arc::new)))
    }
}

impl Identity {
    /// Reads the files again where they have changed. Unusable files leave the current certificate
    /// in use.
    fn reload_if_changed(&self) {
        let now = self.env.now();
        let mut read = self.read.lock();
        if now.saturating_sub(read.at) < LOOK_AGAIN {
            return;
        }
        read.at = now;
        let changed = changed(&self.files);
        if changed == read.changed {
            return;
        }
        match load(&self.files) {
            Ok(identity) => {
                *self.shown.write() = Arc::new(identity);
                read.changed = changed;
                tracing::info!("{}: a new certificate is shown", self.files.certificate.display());
            }
            // they may be half written: they are read again later
            Err(why) => tracing::warn!("{why}; the old certificate is still shown"),
        }
    }
}

fn changed(files: &TlsFiles) -> [Option<SystemTime>; 2] {
    let of = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    [of(&files.certificate), of(&files.key)]
}

/// The verifier for certificates of clients. Clients need not show one, but a shown one must be
/// valid.
fn verifier(clients: Option<&Path>) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let Some(path) = clients else { return Ok(WebPkiClientVerifier::no_client_auth()) };
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(path)? {
        authorities.add(certificate).map_err(|e| wrong(path, e))?;
    }
    WebPkiClientVerifier::builder_with_provider(authorities.into(), ring::default_provider().into())
        .allow_unauthenticated()
        .build()
        .map_err(|e| wrong(path, e))
}

fn wrong(path: &Path, why: impl std::fmt::Display) -> String {
    format!("{}: {why}: name a file in PEM format", path.display())
}

fn unread(path: &Path, e: pem::Error) -> String {
    match e {
        pem::Error::Io(e) => wrong(path, format_args!("it cannot be read: {e}")),
        e => wrong(path, e),
    }
}

/// The certificates in a file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|e| unread(path, e))?;
    if all.is_empty() { Err(wrong(path, "holds no certificate")) } else { Ok(all) }
}

fn load(files: &TlsFiles) -> Result<CertifiedKey, String> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| unread(&files.key, e))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|e| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        format!("{certificate} and {key}: {e}: name a certificate and the key that belongs to it")
    })
}
