//! Certificates that clients show to a door with TLS, made here: who is let in as whom, and who is
//! not.
#![allow(missing_docs)]

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use leeward_door::listen::{Answer, Body, Bound, Client, Serving, Site, TlsFiles, parse};
use leeward_env::{Door, Env};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Says who has shown a certificate.
struct Whose;

impl Site for Whose {
    fn door(&self) -> Door {
        Door::Http
    }

    fn answer(self: Arc<Self>, request: Request<Body>, client: Client) -> Answer {
        async move {
            let shown = client.certificate_for(request.headers());
            let text = shown.map_or("nobody".to_owned(), |shown| shown.subject.clone());
            Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync())
        }
        .boxed()
    }
}

struct Signer {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Signer {
    fn new(name: &str) -> Signer {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Signer { pem, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, params: &CertificateParams) -> Shown {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Shown { chain: vec![certificate.der().clone()], pem: certificate.pem(), key }
    }
}

struct Shown {
    chain: Vec<CertificateDer<'static>>,
    pem: String,
    key: KeyPair,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

struct Rig {
    users: Signer,
    trusted: RootCertStore,
    serving: Serving,
    dir: tempfile::TempDir,
    _runtime: Runtime,
}

impl Rig {
    fn new() -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let (users, hosts) = (Signer::new("users"), Signer::new("hosts"));
        let host = hosts.sign(&params("localhost"));
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let tls = TlsFiles {
            certificate: file("host.pem", &host.pem),
            key: file("key.pem", &host.key.serialize_pem()),
            clients: Some(file("users.pem", &users.pem)),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads");
        let bound = Bound::take(&parse("127.0.0.1:0").expect("an address"), Some(tls)).expect("a port");
        let serving = bound.serve(&Env::real(), runtime.handle(), Arc::new(Whose), None).expect("served");
        let mut trusted = RootCertStore::empty();
        let root = rustls::pki_types::pem::PemObject::from_pem_slice(hosts.pem.as_bytes()).expect("one");
        trusted.add(root).expect("an authority");
        Rig { users, trusted, serving, dir, _runtime: runtime }
    }

    /// What a client hears that shows this; `None`: it is turned away.
    fn ask(&self, shown: Option<&Shown>, headers: &str) -> Option<String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_root_certificates(self.trusted.clone());
        let config = match shown {
            None => config.with_no_client_auth(),
            // whatever it is: our side of the library would not even send some
            Some(shown) => {
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(shown.key.serialize_der()));
                let key = any_supported_type(&key).expect("a key");
                let shown = CertifiedKey::new(shown.chain.clone(), key);
                config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(shown)))
            }
        };
        let name = "localhost".try_into().expect("a name");
        let session = ClientConnection::new(Arc::new(config), name).expect("a session");
        let at = self.serving.urls()[0].trim_start_matches("https://").to_owned();
        let mut stream = StreamOwned::new(session, TcpStream::connect(at).expect("connected"));
        let request = format!("GET / HTTP/1.1\r\nHost: se.example.org\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }
}

#[test]
fn who_shows_a_certificate_is_who_it_says_and_who_shows_none_is_let_in_too() {
    let rig = Rig::new();
    let alice = rig.users.sign(&params("alice"));
    assert_eq!(rig.ask(Some(&alice), "").as_deref(), Some("CN=alice"));
    assert_eq!(rig.ask(None, "").as_deref(), Some("nobody"));
}

#[test]
fn what_is_not_good_is_turned_away() {
    let rig = Rig::new();
    let other = Signer::new("users");
    assert_eq!(rig.ask(Some(&other.sign(&params("alice"))), ""), None, "of an authority that is not known");
    let mut expired = params("alice");
    (expired.not_before, expired.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    assert_eq!(rig.ask(Some(&rig.users.sign(&expired)), ""), None, "expired");
    let mut early = params("alice");
    (early.not_before, early.not_after) = (date_time_ymd(2999, 1, 1), date_time_ymd(3000, 1, 1));
    assert_eq!(rig.ask(Some(&rig.users.sign(&early)), ""), None, "not good yet");
}

/// Proxies of the grid (RFC 3820) are signed by their users, who are no authorities.
#[test]
fn proxies_are_turned_away() {
    let rig = Rig::new();
    let key = KeyPair::generate().expect("a key");
    let alice = params("alice");
    let signed = alice.signed_by(&key, &rig.users.issuer).expect("signed");
    let alice = Signer { pem: signed.pem(), issuer: Issuer::new(alice, key) };
    let mut proxy = params("1234");
    let no_limits = [0x30, 0x0c, 0x30, 0x0a, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 0x15, 1];
    let mut info = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 14], no_limits.to_vec());
    info.set_criticality(true);
    proxy.custom_extensions.push(info);
    let mut proxy = alice.sign(&proxy);
    proxy.chain.push(signed.der().clone());
    assert_eq!(rig.ask(Some(&proxy), ""), None);
}

#[test]
fn a_certificate_does_not_speak_for_the_page_of_another_site() {
    let rig = Rig::new();
    let alice = rig.users.sign(&params("alice"));
    for (origin, shown) in [
        ("https://se.example.org", "CN=alice"),
        ("https://evil.example.org", "nobody"),
        ("http://se.example.org", "nobody"),
        ("null", "nobody"),
    ] {
        assert_eq!(
            rig.ask(Some(&alice), &format!("Origin: {origin}\r\n")).as_deref(),
            Some(shown),
            "{origin}"
        );
    }
}

#[test]
fn authorities_that_cannot_be_read_are_said() {
    let rig = Rig::new();
    let serve = |clients: &Path| {
        let (certificate, key) = (rig.file("host.pem"), rig.file("key.pem"));
        let tls = TlsFiles { certificate, key, clients: Some(clients.to_path_buf()) };
        let bound = Bound::take(&parse("127.0.0.1:0").expect("an address"), Some(tls)).expect("a port");
        let served = bound.serve(&Env::real(), rig._runtime.handle(), Arc::new(Whose), None);
        served.err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert!(serve(&rig.file("none.pem")).contains("none.pem: it cannot be read"));
    assert!(serve(&rig.file("key.pem")).contains("key.pem: holds no certificate"));
}
