//! The door with a client of its protocol, and with what is none.
#![allow(missing_docs)]

use bytes::Bytes;
use futures_util::TryStreamExt;
use http_body_util::{BodyExt, Full};
use hyper::header::HeaderName;
use hyper::{Method, Request};
use leeward_door::listen::{Bound, Certificate, Client, Serving, Site, Unfinished, parse};
use leeward_door::{Files, Path, Principal};
use leeward_env::{Ctx, Env};
use leeward_fs::{Fs, InodeFlags, Make, NodeId, Op, Reply, SetAttr};
use leeward_s3::{Bucket, BucketError, Buckets, Found, Keys, NotFound, Options, PublicPolicy, S3Door};
use leeward_vfs::{Gate, GateOptions};
use leeward_volume::admin;
use leeward_volume::{Cell, Config};
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsAuthorizer, AwsCredential};
use object_store::client::HttpRequestBody;
use object_store::multipart::MultipartStore;
use object_store::signer::Signer;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

struct OneKey;

#[async_trait::async_trait]
impl Keys for OneKey {
    async fn find(&self, id: &str) -> Result<Found, NotFound> {
        match id {
            "AK" => Ok(Found { secret: "secret".into(), who: Principal::new("ann", 1000, 1000, &[]) }),
            "GONE" => Err(NotFound::Refused("user ann is disabled".into())),
            _ => Err(NotFound::Unknown),
        }
    }

    async fn certified(&self, certificate: &Certificate) -> Result<Principal, NotFound> {
        match certificate.subject.as_str() {
            "CN=ann" => Ok(Principal::new("ann", 1000, 1000, &[])),
            _ => Err(NotFound::Refused("it is nobody's".into())),
        }
    }
}

struct OneBucket;

#[async_trait::async_trait]
impl Buckets for OneBucket {
    fn get(&self, name: &str) -> Option<Arc<Bucket>> {
        let bucket = || Bucket {
            name: name.into(),
            path: Path::default(),
            created_secs: 0,
            public: name == "open",
            cors: "".into(),
        };
        ["pub", "open"].contains(&name).then(|| Arc::new(bucket()))
    }

    fn all(&self) -> Vec<Arc<Bucket>> {
        self.get("pub").into_iter().collect()
    }

    async fn create(&self, _: &Principal, _: &str) -> Result<(), BucketError> {
        Err(BucketError::Refused("not here".into()))
    }

    async fn remove(&self, _: &Principal, _: &str) -> Result<(), BucketError> {
        Err(BucketError::Refused("not here".into()))
    }

    async fn set_public(&self, _: &Principal, _: &str, _: PublicPolicy) -> Result<(), BucketError> {
        Err(BucketError::Refused("not here".into()))
    }

    async fn set_cors(&self, _: &Principal, _: &str, _: &str) -> Result<(), BucketError> {
        Err(BucketError::Refused("not here".into()))
    }
}

struct Rig {
    runtime: tokio::runtime::Runtime,
    serving: Serving,
    site: Arc<S3Door>,
    cell: Arc<Cell>,
    dir: Arc<tempfile::TempDir>,
}

impl Rig {
    fn new() -> Rig {
        let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
        Cell::create(&env, dir.path(), &Config::default()).expect("made");
        let cell = Cell::open(&env, dir.path(), &Config::default()).expect("opened");
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        cell.call(&Ctx::system(), Op::SetAttr { node: NodeId::ROOT, set }).expect("open to all");
        let bucket = admin::BucketCreate { name: "pub".into(), path: "/".into(), public: false };
        cell.admin(&bucket, &mut |_| {}).expect("published");
        Rig::on(&env, cell, Arc::new(dir))
    }

    fn on(env: &Env, cell: Arc<Cell>, dir: Arc<tempfile::TempDir>) -> Rig {
        let files = Files::new(&Gate::new(cell.clone(), env, GateOptions::usual()), env);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let site = S3Door::new(&files, Arc::new(OneKey), Arc::new(OneBucket), Options::default());
        let bound = Bound::take(&parse("127.0.0.1:0").expect("an address"), None).expect("a port");
        let site = Arc::new(site.expect("a door"));
        let serving = bound.serve(env, runtime.handle(), site.clone(), None);
        Rig { serving: serving.expect("served"), site, runtime, cell, dir }
    }

    /// The cell is closed, and opened again behind another door.
    fn again(self) -> Rig {
        self.serving.end();
        self.cell.close().expect("a clean close");
        let (env, dir) = (Env::real(), self.dir.clone());
        let cell = Cell::open(&env, dir.path(), &Config::default()).expect("opened");
        Rig::on(&env, cell, dir)
    }

    fn url(&self) -> &str {
        &self.serving.urls()[0]
    }

    fn client(&self, key: &str, secret: &str, bucket: &str) -> AmazonS3 {
        let builder = AmazonS3Builder::new()
            .with_endpoint(self.url())
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_bucket_name(bucket)
            .with_access_key_id(key)
            .with_secret_access_key(secret);
        builder.build().expect("a client")
    }

    /// Says something to the door, and what it answers until it hangs up: who says `close` waits
    /// for that, else that was all.
    fn say(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(self.url().trim_start_matches("http://")).expect("connected");
        let _ = stream.write_all(text.as_bytes());
        if !text.contains("Connection: close") {
            // it may have hung up by then
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.serving.end();
        let _ = self.cell.close();
    }
}

fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[test]
fn a_client_gets_what_it_put() {
    install_crypto();
    let rig = Rig::new();
    let store = rig.client("AK", "secret", "pub");
    rig.runtime.block_on(async {
        let at = |key: &str| object_store::path::Path::from(key);
        for size in [0usize, 5, 100_000, 3_000_000] {
            let content = bytes::Bytes::from(vec![size as u8; size]);
            store.put(&at("a/b"), content.clone().into()).await.expect("put");
            assert_eq!(store.get(&at("a/b")).await.expect("there").bytes().await.expect("read"), content);
        }
        let part = store.get_range(&at("a/b"), 10..20).await.expect("a range");
        assert_eq!(part.len(), 10);
        let new = PutOptions::from(PutMode::Create);
        assert!(store.put_opts(&at("a/b"), "x".into(), new.clone()).await.is_err(), "it is there");
        store.put_opts(&at("a/c"), "x".into(), new).await.expect("it was not there");
        store.copy(&at("a/b"), &at("d")).await.expect("copied");
        let listed: Vec<_> = store.list(None).try_collect().await.expect("listed");
        let keys: Vec<String> = listed.iter().map(|o| o.location.to_string()).collect();
        assert_eq!(keys, ["a/b", "a/c", "d"]);
        let by_dir = store.list_with_delimiter(None).await.expect("listed");
        assert_eq!((by_dir.objects.len(), by_dir.common_prefixes.len()), (1, 1));
        let mut upload = store.put_multipart(&at("parts")).await.expect("begun");
        for byte in [1u8, 2, 3] {
            upload.put_part(vec![byte; 5 << 20].into()).await.expect("a part");
        }
        upload.complete().await.expect("put together");
        let whole = store.get(&at("parts")).await.expect("there").bytes().await.expect("read");
        assert!(whole.len() == 15 << 20 && whole[5 << 20] == 2 && whole[(15 << 20) - 1] == 3);
        for key in ["a/b", "a/c", "d", "parts"] {
            store.delete(&at(key)).await.expect("removed");
        }
        assert!(store.list(None).try_collect::<Vec<_>>().await.expect("listed").is_empty());
    });
}

#[test]
fn who_has_no_right_is_refused() {
    install_crypto();
    let rig = Rig::new();
    let at = object_store::path::Path::from("x");
    for (key, secret, bucket, code) in [
        ("AK", "wrong", "pub", "SignatureDoesNotMatch"),
        ("NOBODY", "x", "pub", "InvalidAccessKeyId"),
        ("GONE", "x", "pub", "AccessDenied"),
        ("AK", "secret", "none", "NoSuchBucket"),
    ] {
        let store = rig.client(key, secret, bucket);
        let put = rig.runtime.block_on(store.put(&at, "x".into()));
        let why = format!("{:?}", put.expect_err(code));
        assert!(why.contains(code), "{why}");
    }
    let status = |text: &str| rig.say(text).split(' ').nth(1).map(str::to_owned).unwrap_or_default();
    let host = "Host: localhost\r\nConnection: close\r\n";
    assert_eq!(status(&format!("GET /pub/x HTTP/1.1\r\n{host}\r\n")), "403", "anonymous");
    assert_eq!(status(&format!("GET /open/x HTTP/1.1\r\n{host}\r\n")), "404", "anybody may read there");
    assert_eq!(status(&format!("PUT /open/x HTTP/1.1\r\n{host}Content-Length: 1\r\n\r\nx")), "403");
    assert_eq!(status(&format!("GET /open/../../etc/passwd HTTP/1.1\r\n{host}\r\n")), "400");
    assert_eq!(status(&format!("GET /open/%2e%2e/x HTTP/1.1\r\n{host}\r\n")), "400");
}

#[test]
fn who_shows_a_certificate_signs_nothing() {
    let rig = Rig::new();
    let ask = |subject: &str, (method, at): (&str, &str), header: (&str, &str)| {
        let shown = Certificate { subject: subject.into(), grid: None, until_secs: i64::MAX };
        let address = "127.0.0.1:1".parse().expect("an address");
        let client = Client { address, tls: true, certificate: Some(Arc::new(shown)) };
        let request =
            Request::builder().method(method).uri(at).header("host", "h").header("content-length", "1");
        let body = Full::new(Bytes::from("x")).map_err(|never| match never {}).boxed_unsync();
        let request = request.header(header.0, header.1).body(body).expect("a request");
        rig.runtime.block_on(rig.site.clone().answer(request, client)).status().as_u16()
    };
    let (put, none) = (("PUT", "/pub/x"), ("x-none", ""));
    assert_eq!(ask("CN=ann", put, none), 200);
    assert_eq!(ask("CN=mallory", put, none), 403);
    assert_eq!(ask("CN=mallory", ("GET", "/open/x"), none), 403, "who says who he is, is asked");
    assert_eq!(ask("CN=ann", put, ("origin", "https://h")), 200);
    assert_eq!(ask("CN=ann", put, ("origin", "https://elsewhere")), 403, "a browser showed it, unasked");
    assert_eq!(ask("CN=ann", put, ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")), 403);
    let form = ("content-type", "multipart/form-data; boundary=b");
    assert_ne!(ask("CN=ann", ("POST", "/pub"), form), 200);
    assert_eq!(
        ask("CN=ann", put, ("authorization", "AWS4-HMAC-SHA256 nonsense")),
        400,
        "what is said counts first"
    );
}

#[test]
fn a_presigned_url_is_for_what_was_signed() {
    install_crypto();
    let rig = Rig::new();
    let store = rig.client("AK", "secret", "pub");
    let at = |key: &str| object_store::path::Path::from(key);
    let ask = |key: &str, headers: &str| {
        let key = at(key);
        let url = rig.runtime.block_on(store.signed_url(Method::PUT, &key, Duration::from_secs(60)));
        let url = url.expect("signed");
        let url = url.as_str().trim_start_matches("http://").to_owned();
        let (host, path) = url.split_once('/').expect("a path");
        rig.say(&format!("PUT /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\nnew"))
    };
    rig.runtime.block_on(store.put(&at("secret"), "old".into())).expect("put");
    let answer = ask("given", "x-amz-copy-source: /pub/secret\r\n");
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("x-amz-copy-source"), "{answer}");
    let answer = ask("given", "Content-Length: 3\r\nx-amz-tagging: a=b\r\n");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let answer = ask("given", "Content-Length: 3\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn who_has_no_key_takes_no_memory() {
    let rig = Rig::new();
    let head = "Host: localhost\r\nConnection: close\r\n";
    // no body follows: it is refused before one is waited for
    let answer = rig.say(&format!("POST /open?delete HTTP/1.1\r\n{head}Content-Length: 1000000\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let form = |more: &str| {
        let kind = "Content-Type: Multipart/Form-Data; boundary=b\r\n";
        rig.say(&format!("POST /open HTTP/1.1\r\n{head}{kind}{more}\r\n{}", "x".repeat(99)))
    };
    assert!(form("Content-Length: 20000000\r\n").contains("EntityTooLarge"));
    assert!(form("Transfer-Encoding: chunked\r\n").contains("EntityTooLarge"));
    // who waits to be asked for a body hears that nothing more is read here
    let waits = "Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 1\r\n";
    let answer =
        rig.say(&format!("PUT /open/x HTTP/1.1\r\n{waits}X: Connection: close\r\n\r\n")).to_lowercase();
    assert!(answer.starts_with("http/1.1 403") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
    // as many at a time as there is memory for
    let host = rig.url().trim_start_matches("http://").to_owned();
    let begun = format!(
        "POST /open HTTP/1.1\r\n{head}Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 99\r\n\r\n"
    );
    let mut held = Vec::new();
    let full = (0..200).any(|_| {
        let mut stream = TcpStream::connect(&host).expect("connected");
        stream.write_all(begun.as_bytes()).expect("said");
        held.push(stream);
        form("Content-Length: 99\r\n").contains("SlowDown")
    });
    assert!(full, "eight are at work");
    drop(held);
    let free = (0..2000).any(|_| !form("Content-Length: 99\r\n").contains("SlowDown"));
    assert!(free, "they are given back");
}

#[test]
fn a_condition_on_a_link_is_about_what_it_leads_to() {
    install_crypto();
    let rig = Rig::new();
    let store = rig.client("AK", "secret", "pub");
    let (file, link) = (object_store::path::Path::from("file"), object_store::path::Path::from("link"));
    let make = Make::Symlink(b"file");
    let make = Op::Make { dir: NodeId::ROOT, name: b"link", make, mode: 0, umask: 0 };
    rig.runtime.block_on(async {
        store.put(&file, "old".into()).await.expect("put");
        rig.cell.call(&Ctx::system(), make).expect("a link");
        let e_tag = store.head(&link).await.expect("followed").e_tag;
        let put = async |e_tag| {
            let version = UpdateVersion { e_tag, version: None };
            store.put_opts(&link, "new".into(), PutOptions::from(PutMode::Update(version))).await
        };
        assert!(put(Some("\"other\"".into())).await.is_err());
        put(e_tag.clone()).await.expect("it is as wanted");
        assert!(put(e_tag).await.is_err(), "it is not any more");
        let read = async |at| store.get(at).await.expect("there").bytes().await.expect("read");
        assert_eq!(
            (read(&file).await, read(&link).await),
            ("old".into(), "new".into()),
            "the link was replaced"
        );
    });
}

#[test]
fn a_directory_is_copied_as_a_key_with_its_metadata() {
    install_crypto();
    let rig = Rig::new();
    let store = rig.client("AK", "secret", "pub");
    let ask = |method: &str, to: &str, headers: &[(&str, &str)]| {
        let credential = AwsCredential { key_id: "AK".into(), secret_key: "secret".into(), token: None };
        let mut request = Request::new(HttpRequestBody::empty());
        *request.method_mut() = method.parse().expect("a method");
        *request.uri_mut() = format!("{}/pub/{to}", rig.url()).parse().expect("a URL");
        for (name, value) in headers {
            request
                .headers_mut()
                .insert(HeaderName::try_from(*name).expect("a name"), value.parse().expect("a value"));
        }
        AwsAuthorizer::new(&credential, "s3", "us-east-1").try_authorize(&mut request, None).expect("signed");
        let host = rig.url().trim_start_matches("http://");
        let mut text = format!(
            "{method} /pub/{to} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n"
        );
        for (name, value) in request.headers() {
            text += &format!("{name}: {}\r\n", value.to_str().expect("text"));
        }
        rig.say(&(text + "\r\n"))
    };
    let copy = |to: &str, more: &[(&str, &str)]| {
        ask("PUT", to, &[&[("x-amz-copy-source", "/pub/dir/")], more].concat())
    };
    assert!(ask("PUT", "dir/", &[("x-amz-meta-mode", "16877")]).starts_with("HTTP/1.1 200"));
    let answer = copy("dir/", &[("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-mode", "16832")]);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = copy("other/", &[]);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("<ETag>"), "{answer}");
    let answer = ask("HEAD", "other/", &[]);
    assert!(answer.contains("x-amz-meta-mode: 16832"), "{answer}");
    assert!(!copy("file", &[]).starts_with("HTTP/1.1 200"), "a directory is no file");
    let listed = rig.runtime.block_on(store.list(None).try_collect::<Vec<_>>()).expect("listed");
    assert!(listed.iter().all(|object| object.size == 0), "{listed:?}");
}

#[test]
fn parts_count_against_quotas_before_they_have_a_name() {
    install_crypto();
    let rig = Rig::new();
    let quota = admin::QuotaSet { path: "/".into(), bytes: Some(12 << 20), files: None };
    rig.cell.admin(&quota, &mut |_| {}).expect("a quota");
    let store = rig.client("AK", "secret", "pub");
    rig.runtime.block_on(async {
        let begin =
            async |key: &str| store.put_multipart(&object_store::path::Path::from(key)).await.expect("begun");
        let (mut one, mut other) = (begin("one").await, begin("other").await);
        let part = || vec![1u8; 5 << 20].into();
        one.put_part(part()).await.expect("there is room");
        other.put_part(part()).await.expect("there is room");
        let why = format!("{:?}", one.put_part(part()).await.expect_err("no room"));
        assert!(why.contains("QuotaExceeded"), "{why}");
        let all = Unfinished { uploads: 2, bytes: 10 << 20 };
        assert_eq!(rig.serving.figures().unfinished(), all, "as an operator sees them");
        other.abort().await.expect("given up");
        one.put_part(part()).await.expect("there is room again");
    });
}

#[test]
fn an_upload_goes_on_at_the_next_server() {
    install_crypto();
    let rig = Rig::new();
    let (at, other) = (object_store::path::Path::from("d/whole"), object_store::path::Path::from("given-up"));
    let part = |byte: u8| vec![byte; 5 << 20].into();
    let store = rig.client("AK", "secret", "pub");
    let (id, first, given_up) = rig.runtime.block_on(async {
        let id = store.create_multipart(&at).await.expect("begun");
        let first = store.put_part(&at, &id, 0, part(1)).await.expect("a part");
        store.put_part(&at, &id, 1, part(9)).await.expect("a part, to be replaced");
        let given_up = store.create_multipart(&other).await.expect("begun");
        store.put_part(&other, &given_up, 0, part(1)).await.expect("a part");
        (id, first, given_up)
    });
    let rig = rig.again();
    let store = rig.client("AK", "secret", "pub");
    let all = Unfinished { uploads: 2, bytes: 15 << 20 };
    assert_eq!(rig.serving.figures().unfinished(), all);
    let (parts, etag) = rig.runtime.block_on(async {
        let second = store.put_part(&at, &id, 1, part(2)).await.expect("goes on");
        let wrong = format!("{:?}", store.put_part(&other, &id, 1, part(2)).await.expect_err("another key"));
        assert!(wrong.contains("NoSuchUpload"), "{wrong}");
        store.abort_multipart(&other, &given_up).await.expect("given up");
        assert!(store.abort_multipart(&other, &given_up).await.is_err(), "it was");
        let parts = vec![first, second];
        let done = store.complete_multipart(&at, &id, parts.clone()).await.expect("put together");
        let whole = store.get(&at).await.expect("there").bytes().await.expect("read");
        assert!(whole.len() == 10 << 20 && whole[0] == 1 && whole[5 << 20] == 2);
        assert_eq!(store.head(&at).await.expect("there").e_tag, done.e_tag);
        (parts, done.e_tag)
    });
    // the answer may have been lost; the object may be another by now
    let rig = rig.again();
    let store = rig.client("AK", "secret", "pub");
    rig.runtime.block_on(async {
        store.put(&at, "new".into()).await.expect("put");
        let again = store.complete_multipart(&at, &id, parts).await.expect("it was done");
        assert_eq!(again.e_tag, etag);
        assert_eq!(store.get(&at).await.expect("there").bytes().await.expect("read"), "new");
        assert!(store.put_part(&at, &id, 2, part(3)).await.is_err(), "nothing is added to it");
        assert!(store.abort_multipart(&at, &id).await.is_err(), "nothing is left of it");
    });
    assert_eq!(rig.serving.figures().unfinished(), Unfinished::default());
}

#[test]
fn what_is_no_request_is_answered_and_ended() {
    let rig = Rig::new();
    let both =
        "PUT /open/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(!rig.say(both).contains(" 200 "), "two who read it must not disagree about its end");
    let twice = "PUT /open/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy";
    assert!(!rig.say(twice).contains(" 200 "));
    let long = format!("GET /open/x HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(200 << 10));
    let answer = rig.say(&long);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert!(rig.say("\0\0\0\r\n\r\n").starts_with("HTTP/1.1 400"));
    // and it is still there
    let answer = rig.say("GET /open/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

#[test]
fn a_request_names_its_host_once() {
    let rig = Rig::new();
    for hosts in ["", "Host: a\r\nHost: b\r\n", "Host: a b\r\n"] {
        let answer = rig.say(&format!("GET /open HTTP/1.1\r\nConnection: close\r\n{hosts}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{hosts}: {answer}");
    }
    assert!(rig.say("GET /open HTTP/1.0\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.0 200"));
}

#[test]
fn who_has_no_key_says_nothing_of_answers() {
    let rig = Rig::new();
    let ask = |what: &str, more: &str| {
        rig.say(&format!("GET /open{what} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}\r\n"))
    };
    let answer = ask("", "").to_lowercase();
    assert!(
        answer.contains("x-content-type-options: nosniff") && answer.contains("x-amz-request-id: "),
        "{answer}"
    );
    let answer = ask("/none?response-content-type=text/html", "");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("<Code>InvalidRequest</Code>"), "{answer}");
    let answer = ask("/none", "x-amz-expected-bucket-owner: ann\r\n");
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("<RequestId>"), "{answer}");
    assert!(ask("/none", "x-amz-expected-bucket-owner: 0\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask("/none", "Range: lines=1-2\r\n").starts_with("HTTP/1.1 404"));
}

/// `chattr +i` and `+a`, which only root of a mount can set, hold here, too.
#[test]
fn objects_with_flags_are_kept() {
    install_crypto();
    let rig = Rig::new();
    let store = rig.client("AK", "secret", "pub");
    let at = |key: &str| object_store::path::Path::from(key);
    let put = |key: &str| rig.runtime.block_on(store.put(&at(key), "x".into())).map(drop);
    let delete = |key: &str| rig.runtime.block_on(store.delete(&at(key)));
    let node = |path: &str| {
        path.split('/').fold(NodeId::ROOT, |dir, name| {
            let found = rig.cell.call(&Ctx::system(), Op::Lookup { dir, name: name.as_bytes() });
            found.and_then(Reply::attr).expect("there").node
        })
    };
    let set_flags = |path: &str, flags| {
        let set = SetAttr { flags: Some(flags), ..SetAttr::default() };
        rig.cell.call(&Ctx::system(), Op::SetAttr { node: node(path), set }).expect("set");
    };
    let refused = |result: object_store::Result<()>| {
        let why = format!("{:?}", result.expect_err("refused"));
        assert!(why.contains("AccessDenied"), "{why}");
    };
    ["a/kept", "a/other", "b"].into_iter().for_each(|key| put(key).expect("put"));
    for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY] {
        set_flags("a/kept", flag);
        refused(put("a/kept"));
        refused(delete("a/kept"));
        refused(rig.runtime.block_on(store.copy(&at("b"), &at("a/kept"))));
        set_flags("a", flag);
        refused(put("a/other"));
        refused(delete("a/other"));
    }
    put("a/new").expect("a directory that is append-only takes it");
    set_flags("a", InodeFlags::IMMUTABLE);
    refused(put("a/newer"));
    refused(rig.runtime.block_on(store.put_multipart(&at("a/newer"))).map(drop));
    set_flags("a", InodeFlags::default());
    set_flags("a/kept", InodeFlags::default());
    delete("a/kept").expect("deleted");
}
