//! TLS from certificate files, which are read again when they change: a renewal needs no restart.

use super::AddressError;
use crate::limits::HANDSHAKE_SECS_MAX;
use leeward_env::{Env, Nanos};
use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often the files are looked at, while somebody connects, nanoseconds.
const LOOK_AGAIN: Nanos = 5_000_000_000;

/// Where certificate and key are, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those that sign it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

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

/// When the files were looked at last, and how old they were.
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
        let identity = Arc::new(Identity { env: env.clone(), files, shown, read });
        let config = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|e| AddressError::Tls(e.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(identity.clone());
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), identity })
    }

    /// The encrypted stream; `None` when the client does not come to an agreement with us in time.
    pub(super) async fn shake_hands(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        self.identity.look_again();
        let shaken =
            tokio::time::timeout(Duration::from_secs(HANDSHAKE_SECS_MAX), self.acceptor.accept(stream));
        shaken.await.ok()?.ok()
    }
}

impl Identity {
    /// Reads the files where they have changed. Ones that cannot be used leave what is shown.
    fn look_again(&self) {
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
            // they may be half written: they are looked at again
            Err(why) => tracing::warn!("{why}; the old certificate is still shown"),
        }
    }
}

fn changed(files: &TlsFiles) -> [Option<SystemTime>; 2] {
    let of = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    [of(&files.certificate), of(&files.key)]
}

fn load(files: &TlsFiles) -> Result<CertifiedKey, String> {
    let wrong = |path: &Path, why: String| format!("{}: {why}: name a file in PEM format", path.display());
    let unread = |path: &Path, e: pem::Error| match e {
        pem::Error::Io(e) => wrong(path, format!("it cannot be read: {e}")),
        e => wrong(path, e.to_string()),
    };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| unread(&files.certificate, e))?;
    if chain.is_empty() {
        return Err(wrong(&files.certificate, "holds no certificate".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| unread(&files.key, e))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|e| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        format!("{certificate} and {key}: {e}: name a certificate and the key that belongs to it")
    })
}
