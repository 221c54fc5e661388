//! A connection, plain or with TLS, from a chosen address.

use super::target::Target;
use super::{Class, Failure};
use crate::Refused;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::BuilderVerifierExt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An open connection.
pub enum Stream {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS over TCP. It is boxed because it is large, and most connections are plain.
    Secure(Box<TlsStream<TcpStream>>),
}

/// Makes connections to one endpoint.
pub struct Connector {
    address: SocketAddr,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Connector {
    /// A connector to a target at this address.
    ///
    /// # Errors
    /// Certificates that cannot be read, or a host name that no certificate can have.
    pub fn new(target: &Target, address: SocketAddr) -> Result<Connector, Refused> {
        let tls = target.tls.then(|| {
            let name = ServerName::try_from(target.host.clone());
            let name =
                name.map_err(|_| Refused(format!("{}: no certificate can be for this host", target.host)))?;
            Ok::<_, Refused>((TlsConnector::from(Arc::new(config(target.authorities.as_deref())?)), name))
        });
        Ok(Connector { address, tls: tls.transpose()? })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Any class but those of answers. It has no time limit of its own.
    pub async fn connect(&self, from: Option<IpAddr>) -> Result<Stream, Failure> {
        let stream = self.tcp(from).await.map_err(|e| Failure::of(&e))?;
        let Some((tls, name)) = &self.tls else { return Ok(Stream::Plain(stream)) };
        match tls.connect(name.clone(), stream).await {
            Ok(stream) => Ok(Stream::Secure(Box::new(stream))),
            Err(e) => {
                let failure = Failure::of(&e);
                let class = if failure.class == Class::Closed { Class::Tls } else { failure.class };
                Err(Failure { class, ..failure })
            }
        }
    }

    async fn tcp(&self, from: Option<IpAddr>) -> io::Result<TcpStream> {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(from) = from {
            choose_port_late(&socket)?;
            socket.bind(SocketAddr::new(from, 0))?;
        }
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Lets the system choose the port when it knows the other end: then a port is free if no
/// connection to the same address and port uses it.
fn choose_port_late(socket: &TcpSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: a valid descriptor, and an int with its size.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn config(authorities: Option<&Path>) -> Result<rustls::ClientConfig, Refused> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Refused(format!("no TLS: {e}")))?;
    let Some(path) = authorities else {
        let builder = builder.with_platform_verifier();
        let builder = builder.map_err(|e| {
            Refused(format!("the system's certificates cannot be read: {e}; name some with --ca"))
        })?;
        return Ok(builder.with_no_client_auth());
    };
    let wrong = |e: &dyn std::fmt::Display| {
        Refused(format!("{}: no certificates in PEM can be read: {e}; name another file", path.display()))
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))? {
        roots.add(certificate.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"it has none"));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

impl Stream {
    /// Reads the bytes that have arrived.
    pub fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Secure(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }

    /// Writes as much as fits.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Stream::Secure(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    /// Flushes everything that was written.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Secure(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    /// Whether the other end still has the connection open, as far as is known, and has sent
    /// nothing that was not asked for.
    pub fn is_quiet(&self) -> bool {
        let socket = match self {
            Stream::Plain(stream) => stream,
            Stream::Secure(stream) => stream.get_ref().0,
        };
        let mut byte = 0u8;
        // Not by `tokio`, which would take a connection for silent until its next turn.
        // SAFETY: room for one byte, on a valid descriptor.
        let got = unsafe {
            libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT)
        };
        // On a TLS connection the other end may have sent something that is not for us, such as a
        // ticket.
        let spoken = got > 0 && matches!(self, Stream::Secure(_));
        spoken || got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
    }
}
