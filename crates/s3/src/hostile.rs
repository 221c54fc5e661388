//! Fuzz targets: requests of unknown senders, in all shapes, before anything is known of them.
//! `docs/TESTING.md` says how they are run for longer.

use crate::access::Asker;
use crate::access::{Checks, Found, Keys, NotFound, XML_BYTES_IN_ALL};
use crate::chunks::{self, Room, SIGNED_BYTES_IN_ALL};
use crate::host::Domains;
use crate::names::path_of;
use crate::pace::Holding;
use crate::{cors, site};
use bolero::check;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{FutureExt, TryStreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RANGE};
use hyper::{Method, Request, StatusCode, Uri};
use leeward_door::listen::BodyError;
use leeward_door::{FairSemaphore, Principal};
use leeward_env::Env;
use leeward_fs::buckets::is_name;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::HttpRequestBody;
use parking_lot::Mutex;
use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::*;
use s3s::{S3, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use soup::{one, soup, text, unescaped};
use std::sync::Arc;

#[path = "../../door/tests/soup/mod.rs"]
mod soup;

/// The result of a request.
#[derive(Clone, Default, Debug)]
struct Seen {
    /// Bucket and key, as the library parses them.
    at: Option<(String, String)>,
    /// It was accepted as a request of the key's owner.
    known: bool,
    /// The whole content of an object arrived, and was what was signed.
    content: Option<Bytes>,
    /// Bytes of the texts in a body of XML.
    texts: usize,
    range: Option<Range>,
}

type Slot = Arc<Mutex<Seen>>;

struct OneKey;

#[async_trait::async_trait]
impl Keys for OneKey {
    async fn find(&self, id: &str) -> Result<Found, NotFound> {
        match id {
            "AK" => Ok(Found { secret: "secret".into(), who: Principal::new("ann", 1000, 1000, &[]) }),
            _ => Err(NotFound::Unknown),
        }
    }
}

/// The door's checks, with a record of their results; `open`: no checks.
struct Watched {
    checks: Checks,
    open: bool,
    seen: Slot,
}

#[async_trait::async_trait]
impl S3Access for Watched {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let key = cx.s3_path().get_object_key().unwrap_or_default().to_owned();
        let bucket = cx.s3_path().get_bucket_name().map(str::to_owned);
        let known = cx.credentials().is_some();
        *self.seen.lock() = Seen { at: bucket.map(|bucket| (bucket, key)), ..Seen::default() };
        if !self.open {
            self.checks.check(cx).await?;
            self.seen.lock().known = known;
        }
        Ok(())
    }
}

/// Operations that only record that they were called.
struct Noting(Slot);

#[async_trait::async_trait]
impl S3 for Noting {
    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let content: Result<Vec<Bytes>, _> = match req.input.body {
            Some(body) => body.try_collect().await,
            None => Ok(Vec::new()),
        };
        let content = content.map_err(|_| s3_error!(IncompleteBody))?;
        self.0.lock().content = Some(content.concat().into());
        Ok(S3Response::new(PutObjectOutput::default()))
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        self.0.lock().range = req.input.range;
        Err(s3_error!(NoSuchKey))
    }

    async fn delete_objects(
        &self,
        req: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        self.0.lock().texts = req.input.delete.objects.iter().map(|object| object.key.len()).sum();
        Err(s3_error!(NoSuchBucket))
    }

    async fn put_object_tagging(
        &self,
        req: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let bytes = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let tags = &req.input.tagging.tag_set;
        self.0.lock().texts = tags.iter().map(|tag| bytes(&tag.key) + bytes(&tag.value)).sum();
        Err(s3_error!(NoSuchKey))
    }

    async fn put_bucket_cors(
        &self,
        req: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        let rules = &req.input.cors_configuration;
        let kept = cors::to_text(rules).ok_or(S3ErrorCode::InvalidRequest)?;
        let again = CORSConfiguration { cors_rules: cors::from_text(&kept) };
        assert_eq!(cors::to_text(&again).as_ref(), Some(&kept), "what is kept is what is said");
        Err(s3_error!(NoSuchBucket))
    }
}

/// A service like the door's, without files.
struct Target {
    service: s3s::service::S3Service,
    seen: Slot,
}

/// A target that failed is not used again.
impl std::panic::RefUnwindSafe for Target {}

const DOMAIN: &str = "s3.example.org";

impl Target {
    fn new(forms: bool, open: bool) -> Target {
        let seen = Slot::default();
        let (keys, xml) = (Arc::new(OneKey), FairSemaphore::new(XML_BYTES_IN_ALL));
        let checks =
            Watched { checks: Checks { forms, env: Env::real(), keys, xml }, open, seen: seen.clone() };
        let domains = Domains::new(&[DOMAIN.to_owned()]).expect("a name");
        let service = site::service(Noting(seen.clone()), Arc::new(OneKey), checks, &domains, forms, None);
        Target { service, seen }
    }

    /// The status of the answer, and what was recorded meanwhile.
    fn ask(&self, request: Request<Bytes>) -> (StatusCode, Seen) {
        *self.seen.lock() = Seen::default();
        let answer = self.service.call(request.map(s3s::Body::from));
        let answer = answer.now_or_never().expect("everything is there").expect("an answer");
        let status = answer.status();
        assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "strangers are told what is wrong with theirs");
        (status, std::mem::take(&mut *self.seen.lock()))
    }
}

/// A request; `None` for one that the listener would not pass.
fn request(method: Method, uri: &str, headers: &[(&str, &[u8])], body: &[u8]) -> Option<Request<Bytes>> {
    let mut request = Request::new(Bytes::copy_from_slice(body));
    *request.method_mut() = method;
    *request.uri_mut() = uri.parse::<Uri>().ok()?;
    for (name, value) in headers {
        request.headers_mut().append(HeaderName::try_from(*name).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    Some(request)
}

const PATHS: &str = "\
    /|//|.|..|/..|/../|%2e|%2E%2e|%2f|%2F..|%00|%|%%|%2|%zz|%25|%252e|a|b|-|pub|/pub/|open|%C3%A9|\
    %ff|+|%20|?|#|&|;|\\|%5c|k/|\
    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const HOSTS: &str = "\
    pub|.|..|s3.example.org|S3.EXAMPLE.ORG|localhost|:9000|:|127.0.0.1|[::1]|a/b|-|%2e|@";

#[test]
fn a_key_is_what_the_path_says_and_never_leaves_its_bucket() {
    let target = Target::new(false, true);
    check!().with_iterations(4000).with_generator((text(PATHS), text(HOSTS))).for_each(|(path, host)| {
        let Some(request) =
            request(Method::GET, &format!("/{path}"), &[(HOST.as_str(), host.as_bytes())], b"")
        else {
            return;
        };
        let raw = request.uri().path().to_owned();
        let (_, seen) = target.ask(request);
        let Some((bucket, key)) = seen.at else { return };
        assert!(is_name(&bucket), "{bucket} is no name");
        let said = unescaped(&raw);
        let in_path = [b"/", bucket.as_bytes(), b"/", key.as_bytes()].concat();
        let in_host = host.to_ascii_lowercase().starts_with(&format!("{bucket}.{DOMAIN}"))
            && said == [b"/", key.as_bytes()].concat();
        let is_bucket = key.is_empty() && said == in_path[..in_path.len() - 1];
        assert!(said == in_path || in_host || is_bucket, "{raw} at {host} was read as {bucket} and {key}");
        let Ok(path) = path_of(&key) else { return };
        let names: Vec<&[u8]> = path.names().collect();
        assert!(names.iter().all(|name| !matches!(*name, b"" | b"." | b"..") && name.len() <= 255));
        assert!(names.iter().all(|name| !name.contains(&b'/') && !name.contains(&0)));
        let slash = if path.wants_dir() { "/" } else { "" };
        assert_eq!([&names.join(&b'/')[..], slash.as_bytes()].concat(), key.as_bytes());
    });
}

const QUERIES: &str = "\
    uploads|&|=|uploadId=|x|partNumber=1|delete|tagging|list-type=2|X-Amz-Signature=0|\
    X-Amz-Expires=60|X-Amz-SignedHeaders=host|\
    X-Amz-Credential=AK%2F20261122%2Fus-east-1%2Fs3%2Faws4_request|X-Amz-Algorithm=AWS4-HMAC-SHA256|\
    X-Amz-Date=20261122T120000Z|Signature=x|AWSAccessKeyId=AK|Expires=1|Expires=99999999999|%|%26|\
    %zz|versionId=null|cors|policy|acl|max-keys=-1|encoding-type=url|prefix=|\
    response-content-type=a";
const HEADERS: &str = "\
    AWS4-HMAC-SHA256 |Credential=AK/20261122/us-east-1/s3/aws4_request|Credential=AK|, |,|\
    SignedHeaders=host|SignedHeaders=host;x-amz-date|Signature=|0123456789abcdef|AWS AK:|AWS |\
    bytes=|0|-|18446744073709551615|9223372036854775807|\"|*|W/\"|etag|STREAMING-|\
    STREAMING-AWS4-HMAC-SHA256-PAYLOAD|UNSIGNED-PAYLOAD|20261122T120000Z|b/k|/b/k?versionId=|\
    multipart/form-data; boundary=b|Sun, 22 Nov 2026 12:00:00 GMT| |\t|a|=|;";
const NAMES: &str = "\
    authorization|x-amz-date|x-amz-content-sha256|range|if-match|if-none-match|if-modified-since|\
    if-unmodified-since|content-length|transfer-encoding|x-amz-copy-source|\
    x-amz-decoded-content-length|x-amz-copy-source-range|content-md5|x-amz-checksum-crc32|\
    x-amz-meta-a|x-amz-tagging|content-type|x-amz-trailer|x-amz-sdk-checksum-algorithm|expect|\
    x-amz-acl|x-amz-object-attributes";
const METHODS: &str = "\
    GET|HEAD|PUT|POST|DELETE|OPTIONS|PATCH";

/// Without the secret a request never acts as a user, whatever it contains; it is parsed or
/// refused.
#[test]
fn a_request_without_the_secret_is_nobodys() {
    let target = Target::new(false, false);
    let header = || (one(NAMES), soup(HEADERS));
    let input = (one(METHODS), text(PATHS), text(QUERIES), (header(), header(), header()));
    check!().with_iterations(4000).with_generator(input).for_each(|(method, path, query, (a, b, c))| {
        let method: Method = method.parse().expect("a method");
        let headers: Vec<(&str, &[u8])> = [(HOST.as_str(), &b"localhost"[..])]
            .into_iter()
            .chain([a, b, c].map(|(name, value)| (*name, &value[..])))
            .collect();
        let Some(request) = request(method.clone(), &format!("/open/{path}?{query}"), &headers, b"") else {
            return;
        };
        let (status, seen) = target.ask(request);
        assert!(!seen.known && seen.content.is_none(), "{seen:?}");
        assert!(!status.is_success(), "{method} {path}?{query}: {status} {seen:?}");
        if let Some(part) = seen.range.and_then(|range| range.check(1000).ok()) {
            assert!(part.start <= part.end && part.end <= 1000);
        }
    });
}

/// Changes that an attacker in between makes to a signed request.
const CHANGES: &str = "\
    nothing|method|path|query|host|new header|header|signature|date|key|content|header gone";

#[test]
fn a_signed_request_that_is_changed_is_refused() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let target = Target::new(false, false);
    let credential = AwsCredential { key_id: "AK".into(), secret_key: "secret".into(), token: None };
    let input =
        (one(CHANGES), one("|a|b/c/|a%20b|%C3%A9|x%2By"), bolero::produce::<(u8, u8)>(), soup(HEADERS));
    check!().with_iterations(1500).with_generator(input).for_each(|(change, path, (at, bit), value)| {
        let body = Bytes::copy_from_slice(value);
        let mut signed = Request::new(HttpRequestBody::from(body.clone()));
        *signed.method_mut() = Method::PUT;
        *signed.uri_mut() = format!("http://localhost/pub/k{path}").parse().expect("a URI");
        signed.headers_mut().insert("x-amz-meta-a", HeaderValue::from_static("as it was"));
        signed.headers_mut().insert(CONTENT_LENGTH, body.len().into());
        AwsAuthorizer::new(&credential, "s3", "us-east-1").try_authorize(&mut signed, None).expect("signed");
        let mut ours = Request::new(body.clone());
        *ours.method_mut() = Method::PUT;
        *ours.headers_mut() = signed.headers().clone();
        ours.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
        *ours.uri_mut() = signed.uri().path().parse().expect("a path");
        let as_signed = !changed(&mut ours, change, (*at, *bit), value);
        let (status, seen) = target.ask(ours);
        let taken = seen.known && seen.content.is_some();
        assert_eq!(taken, as_signed, "{change}: {status} {seen:?}");
        assert!(!taken || seen.content == Some(body));
    });
}

/// Changes a request; returns whether anything that matters is different now.
fn changed(request: &mut Request<Bytes>, change: &str, (at, bit): (u8, u8), value: &[u8]) -> bool {
    let flip = |text: &mut Vec<u8>, from: usize| {
        let at = from + usize::from(at) % (text.len() - from);
        text[at] = if text[at] == b'0' + bit % 10 { b'x' } else { b'0' + bit % 10 };
    };
    let put = |headers: &mut HeaderMap, name: &'static str, value: Vec<u8>| {
        HeaderValue::from_bytes(&value).is_ok_and(|value| headers.insert(name, value).is_some())
    };
    let path = request.uri().path().to_owned();
    let header = |name: &str| request.headers().get(name).expect("there").as_bytes().to_vec();
    match change {
        "method" => *request.method_mut() = Method::DELETE,
        "path" => {
            *request.uri_mut() = format!("{path}{}", char::from(b'a' + bit % 26)).parse().expect("a path")
        }
        "query" => *request.uri_mut() = format!("{path}?tagging").parse().expect("a path"),
        "host" => return put(request.headers_mut(), "host", format!("other{bit}").into()),
        "new header" => {
            _ = request.headers_mut().insert("x-amz-copy-source", HeaderValue::from_static("pub/k"))
        }
        "header" => {
            return value.trim_ascii() != b"as it was"
                && put(request.headers_mut(), "x-amz-meta-a", value.into());
        }
        "signature" | "date" | "key" => {
            let (name, from) = match change {
                "date" => ("x-amz-date", 0),
                "key" => ("authorization", "AWS4-HMAC-SHA256 Credential=".len()),
                _ => ("authorization", header("authorization").len() - 64),
            };
            let mut text = header(name);
            flip(&mut text, from);
            return put(request.headers_mut(), name, text);
        }
        "content" => match request.body().is_empty() {
            true => return false,
            false => {
                let mut content = request.body().to_vec();
                flip(&mut content, 0);
                let differs = content != *request.body();
                *request.body_mut() = content.into();
                return differs;
            }
        },
        "header gone" => _ = request.headers_mut().remove("x-amz-meta-a"),
        _ => return false,
    }
    true
}

const XML: &str = "\
    <Delete>|</Delete>|<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">|<Object>|\
    </Object>|<Key>|</Key>|<Object><Key>a</Key></Object>|<Quiet>true</Quiet>|<Tagging>|</Tagging>|\
    <TagSet>|</TagSet>|<Tag>|</Tag>|<Value>|</Value>|<CORSConfiguration>|</CORSConfiguration>|\
    <CORSRule>|</CORSRule>|<AllowedOrigin>*</AllowedOrigin>|<AllowedMethod>GET</AllowedMethod>|\
    <MaxAgeSeconds>|</MaxAgeSeconds>|<ID>|</ID>|-1|99999999999|<CompleteMultipartUpload>|\
    </CompleteMultipartUpload>|<Part>|</Part>|<PartNumber>1</PartNumber>|<ETag>\"x\"</ETag>|&amp;|\
    &lt;|&#0;|&#x41;|&x;|<![CDATA[|]]>|<!--|-->|<!DOCTYPE x [<!ENTITY x \"xxxxxxxxxx\">]>|\
    <?xml version=\"1.0\"?>|<x/>|<|>| |é|a";
const XML_REQUESTS: &[(&str, &str)] = &[
    ("POST", "/pub?delete"),
    ("PUT", "/pub/k?tagging"),
    ("PUT", "/pub?cors"),
    ("POST", "/pub/k?uploadId=x"),
    ("PUT", "/pub"),
];

#[test]
fn xml_is_read_or_refused_and_says_no_more_than_was_sent() {
    let target = Target::new(false, true);
    let of = bolero::produce::<u8>();
    check!().with_iterations(5000).with_generator((of, soup(XML))).for_each(|(of, body)| {
        let (method, uri) = XML_REQUESTS[usize::from(*of) % XML_REQUESTS.len()];
        let length = body.len().to_string();
        let headers = [(HOST.as_str(), &b"localhost"[..]), (CONTENT_LENGTH.as_str(), length.as_bytes())];
        let request = request(method.parse().expect("a method"), uri, &headers, body).expect("a request");
        let (_, seen) = target.ask(request);
        assert!(seen.texts <= body.len(), "{} bytes of {}", seen.texts, body.len());
    });
}

const FORM: &str = "\
    --b\r\n|--b--\r\n|\r\n|--|Content-Disposition: form-data; name=\"key\"|\
    Content-Disposition: form-data; name=\"file\"; filename=\"x\"|\
    Content-Disposition: form-data; name=\"policy\"|\
    Content-Disposition: form-data; name=\"x-amz-signature\"|\
    Content-Disposition: form-data; name=\"x-amz-credential\"|AK/20261122/us-east-1/s3/aws4_request|\
    Content-Disposition: form-data; name=\"x-amz-algorithm\"|AWS4-HMAC-SHA256|\
    Content-Disposition: form-data; name=\"x-amz-date\"|20261122T120000Z|\
    Content-Disposition: form-data; name=\"signature\"|\
    Content-Disposition: form-data; name=\"AWSAccessKeyId\"|AK|\
    eyJleHBpcmF0aW9uIjoiMjA5OS0wMS0wMVQwMDowMDowMFoiLCJjb25kaXRpb25zIjpbXX0=|\
    Content-Type: text/plain|${filename}|a|0|=";

/// A form of a sender without the secret, whatever is in it, makes no object.
#[test]
fn a_form_without_a_signature_makes_nothing() {
    let target = Target::new(true, false);
    check!().with_iterations(3000).with_generator((text(PATHS), soup(FORM))).for_each(|(path, body)| {
        let length = body.len().to_string();
        let headers = [
            (HOST.as_str(), &b"localhost"[..]),
            (CONTENT_TYPE.as_str(), b"multipart/form-data; boundary=b"),
            (CONTENT_LENGTH.as_str(), length.as_bytes()),
        ];
        let Some(request) = request(Method::POST, &format!("/pub{path}"), &headers, body) else { return };
        let (status, seen) = target.ask(request);
        assert!(!status.is_success() && !seen.known && seen.content.is_none(), "{status} {seen:?}");
    });
}

#[test]
fn a_range_is_within_the_object() {
    check!().with_iterations(5000).with_generator((soup(HEADERS), bolero::produce::<u64>())).for_each(
        |(range, size)| {
            let target = Target::new(false, true);
            let headers = [(HOST.as_str(), &b"localhost"[..]), (RANGE.as_str(), &range[..])];
            let Some(request) = request(Method::GET, "/pub/k", &headers, b"") else { return };
            let (_, seen) = target.ask(request);
            if let Some(Ok(part)) = seen.range.map(|range| range.check(*size)) {
                assert!(part.start <= part.end && part.end <= *size, "{part:?} of {size}");
            }
        },
    );
}

fn room() -> Room {
    Room {
        semaphore: FairSemaphore::new(SIGNED_BYTES_IN_ALL),
        asker: Asker::default(),
        holding: Holding::default(),
    }
}

/// The result of a body in chunks, sent in pieces of these sizes, in turns.
fn through(body: &[u8], sizes: &[u8], signed: bool, room: &Room) -> Result<Vec<Bytes>, String> {
    let mut headers = HeaderMap::new();
    let kind =
        if signed { "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" } else { "STREAMING-UNSIGNED-PAYLOAD-TRAILER" };
    headers.insert("x-amz-content-sha256", HeaderValue::from_static(kind));
    let (mut rest, mut pieces) = (Bytes::copy_from_slice(body), Vec::new());
    for size in sizes.iter().map(|size| usize::from(*size) + 1).cycle() {
        if rest.is_empty() {
            break;
        }
        pieces.push(Ok::<_, BodyError>(Frame::data(rest.split_to(size.min(rest.len())))));
    }
    let body = chunks::bounded(&headers, StreamBody::new(stream::iter(pieces)).boxed_unsync(), room);
    let all = body.into_data_stream().try_collect::<Vec<_>>().now_or_never().expect("all is there");
    all.map_err(|e| e.to_string())
}

/// The content of chunks, and what follows the last one; `None`: they are cut off or malformed.
/// Implemented independently.
fn content_of(mut body: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut content = Vec::new();
    loop {
        let line = body.iter().position(|byte| *byte == b'\n')?;
        let digits: String =
            body[..line].iter().take_while(|b| b.is_ascii_hexdigit()).map(|b| *b as char).collect();
        let size = usize::from_str_radix(&digits, 16).ok()?;
        body.advance(line + 1);
        if size == 0 {
            return Some((content, body.into()));
        }
        content.extend_from_slice(body.get(..size)?);
        body.advance(size);
        body = body.strip_prefix(b"\r\n")?;
    }
}

#[test]
fn chunks_come_out_as_they_were_put_in() {
    type Input = (Vec<Vec<u8>>, Vec<u8>, bool);
    let input = bolero::produce::<Input>();
    check!().with_iterations(3000).with_generator(input).for_each(|(chunks, sizes, signed)| {
        let room = room();
        let sizes = if sizes.is_empty() { &[255][..] } else { &sizes[..] };
        let (mut body, signature) = (BytesMut::new(), if *signed { ";chunk-signature=0" } else { "" });
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            body.extend_from_slice(format!("{:x}{signature}\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("0{signature}\r\nx-amz-checksum-crc32:AA==\r\n\r\n").as_bytes());
        let out = through(&body, sizes, *signed, &room).expect("well made").concat();
        let (content, trailer) = content_of(&out).expect("chunks again");
        assert_eq!((content, &trailer[..]), (chunks.concat(), &b"x-amz-checksum-crc32:AA==\r\n\r\n"[..]));
        assert!(!signed || out == body, "what is signed is not touched");
    });
}

const CHUNKS: &str = "\
    0|1|5|a|F|20001|fffffff|00000005|100000000|;chunk-signature=0|;|\r\n|\n|\r|hello|x|\
    5\r\nhello\r\n|0\r\n\r\n|x-amz-checksum-crc32:AA==\r\n| ";

#[test]
fn chunks_of_strangers_are_never_made_larger_or_different() {
    let input = (soup(CHUNKS), bolero::produce::<Vec<u8>>(), bolero::produce::<bool>());
    check!().with_iterations(5000).with_generator(input).for_each(|(body, sizes, signed)| {
        let room = room();
        let sizes = if sizes.is_empty() { &[7][..] } else { &sizes[..] };
        let out = through(body, sizes, *signed, &room);
        assert_eq!(room.semaphore.taken(), 0, "memory is given back");
        let Ok(pieces) = out else { return };
        let out = pieces.concat();
        if *signed {
            assert!(body.starts_with(&out), "as it came");
        }
        assert_eq!(content_of(&out), content_of(body));
    });
}
