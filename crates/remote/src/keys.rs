//! Keys of both ends, and TLS that knows nothing but them.
//!
//! Each end has an Ed25519 key pair. In the handshake both show their public keys as they are (RFC
//! 7250) and prove that they have the secret ones. There are no names, dates or authorities: the
//!       client knows the server's key from the token that it was invited with, the server knows
//!       the keys of hosts that have enrolled. TLS 1.3 only, and no session tickets: a removed host
//!       cannot come back with one.

use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use std::fmt;
use std::sync::Arc;

/// A public key.
pub type PublicKey = [u8; 32];

/// The name of the protocol in the handshake.
const PROTOCOL: &[u8] = b"leeward";
/// What comes before an Ed25519 public key in its DER form (RFC 8410).
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// What comes before a seed in the DER form of a secret key (RFC 8410).
const SECRET_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The key pair of one end.
pub struct Keys {
    certified: Arc<CertifiedKey>,
    public: PublicKey,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("public", &self.public).finish_non_exhaustive()
    }
}

impl Keys {
    /// The pair that this seed makes. Whoever has the seed is that end.
    ///
    /// # Errors
    /// What the library of cryptography says.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Keys, Error> {
        let refused = |e: &dyn fmt::Display| Error::General(format!("the key cannot be used: {e}"));
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|e| refused(&e))?;
        let public = PublicKey::try_from(pair.public_key().as_ref()).map_err(|e| refused(&e))?;
        let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from([&SECRET_HEAD[..], seed].concat()));
        let signing = rustls::crypto::ring::sign::any_supported_type(&secret)?;
        let shown = CertificateDer::from([&PUBLIC_HEAD[..], &public].concat());
        Ok(Keys { certified: Arc::new(CertifiedKey::new(vec![shown], signing)), public })
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Settings of a client that talks to the server with this key only.
    ///
    /// # Errors
    /// What the library of TLS says.
    pub(crate) fn client(&self, server: PublicKey) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new(Some(server), &provider);
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                self.certified.clone(),
            )));
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Arc::new(config))
    }

    /// Settings of a server. It takes any key: who may do what is decided by the key that was
    /// shown.
    ///
    /// # Errors
    /// What the library of TLS says.
    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new(None, &provider);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(self.certified.clone())));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Arc::new(config))
    }
}

/// The key that the other end of a connection has shown and proved, after the handshake.
pub(crate) fn shown(certificates: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    certificates?.first()?.strip_prefix(&PUBLIC_HEAD[..])?.try_into().ok()
}

/// Checks the raw key that the other end shows, and the proof that it has the secret one.
#[derive(Debug)]
struct Verifier {
    /// The only key that is taken; `None`: any.
    only: Option<PublicKey>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(only: Option<PublicKey>, provider: &CryptoProvider) -> Arc<Verifier> {
        Arc::new(Verifier { only, algorithms: provider.signature_verification_algorithms })
    }

    fn takes(&self, certificate: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        let key = shown(Some(std::slice::from_ref(certificate))).ok_or(CertificateError::BadEncoding)?;
        if !others.is_empty() || self.only.is_some_and(|only| only != key) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(())
    }
}

/// What verifiers of clients and of servers say alike.
macro_rules! verifies_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("TLS 1.3 only".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(certificate.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.takes(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    verifies_signatures!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.takes(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    verifies_signatures!();
}
