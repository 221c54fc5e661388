//! Access keys and their secrets, for signatures; and the checks before a request's body is read.

use crate::call::Slot;
use crate::names::{pairs, unescaped};
use crate::pace::Holding;
use crate::{error, headers};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::{Method, Uri};
use leeward_door::listen::Certificate;
use leeward_door::{FairSemaphore, Principal};
use leeward_env::Env;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::sync::{Arc, OnceLock};

/// Operations that a client without a key may use on a public bucket.
const ANYBODY: [&str; 8] = [
    "GetBucketLocation",
    "GetBucketVersioning",
    "GetObject",
    "GetObjectTagging",
    "HeadBucket",
    "HeadObject",
    "ListObjects",
    "ListObjectsV2",
];
/// All other operations.
const OPERATIONS: [&str; 28] = [
    "AbortMultipartUpload",
    "CompleteMultipartUpload",
    "CopyObject",
    "CreateBucket",
    "CreateMultipartUpload",
    "DeleteBucket",
    "DeleteBucketCors",
    "DeleteBucketPolicy",
    "DeleteObject",
    "DeleteObjectTagging",
    "DeleteObjects",
    "GetBucketAcl",
    "GetBucketCors",
    "GetBucketPolicy",
    "GetObjectAcl",
    "GetObjectAttributes",
    "ListBuckets",
    "ListMultipartUploads",
    "ListParts",
    FORM,
    "PutBucketAcl",
    "PutBucketCors",
    "PutBucketPolicy",
    "PutObject",
    "PutObjectAcl",
    "PutObjectTagging",
    "UploadPart",
    "UploadPartCopy",
];

/// Names of the operations that the door answers, as S3 has them.
pub fn operations() -> impl Iterator<Item = &'static str> {
    ANYBODY.into_iter().chain(OPERATIONS)
}

/// An upload by an HTML form.
const FORM: &str = "PostObject";
/// Operations whose bodies are not read into memory as a whole.
const STREAMED: [&str; 3] = ["PutObject", "UploadPart", FORM];
/// Largest XML of a request: 1000 keys to delete, 10,000 parts.
pub(crate) const XML_BYTES_MAX: usize = 2 << 20;
/// Memory for XML larger than [`XML_BYTES_EASY`], of all requests.
pub(crate) const XML_BYTES_IN_ALL: usize = 32 << 20;
/// XML up to this size always has room: a connection's head may take as much.
const XML_BYTES_EASY: usize = 64 << 10;
/// Longest validity of a presigned URL, seconds: as S3.
const EXPIRES_SECS_MAX: u64 = 7 * 86_400;
/// Operations that a presigned URL of version 2 may be for, and the other parameters that its query
/// may have.
const OLD_OPERATIONS: [&str; 4] = ["DeleteObject", "GetObject", "HeadObject", "PutObject"];
const OLD_QUERY: [&str; 6] =
    ["AWSAccessKeyId", "Expires", "Signature", "content-md5", "content-type", "versionId"];

/// A key that was found.
pub struct Found {
    /// The secret that signs requests.
    pub secret: Box<str>,
    /// The user as whom they act.
    pub who: Principal,
}

/// Why no key was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// There is no such key, or it was revoked.
    Unknown,
    /// Its user may not use the door; the reason.
    Refused(String),
    /// The user database does not answer now.
    Later(String),
}

/// Looks access keys up.
#[async_trait::async_trait]
pub trait Keys: Send + Sync + 'static {
    /// The secret of an access key, and the user as whom requests act that are signed with it.
    async fn find(&self, access_key_id: &str) -> Result<Found, NotFound>;

    /// The user as whom unsigned requests act on a connection that has shown this certificate.
    async fn certified(&self, certificate: &Certificate) -> Result<Principal, NotFound> {
        Err(NotFound::Refused(format!(
            "Certificates, such as that of {}, count for nothing here.",
            certificate.subject
        )))
    }
}

/// The user of a connection's certificate: counts for requests that are not signed.
#[derive(Clone)]
pub(crate) struct Certified(pub(crate) Result<Principal, NotFound>);

/// User id for requests whose sender is not known.
const NOBODY: u32 = 65534;

/// The sender of a request, once it is known: before its body is read.
#[derive(Clone, Default)]
pub(crate) struct Asker(Arc<OnceLock<u32>>);

impl Asker {
    /// Sets the user.
    pub(crate) fn is(&self, uid: u32) {
        let _ = self.0.set(uid);
    }

    /// The user's id.
    pub(crate) fn uid(&self) -> u32 {
        self.0.get().copied().unwrap_or(NOBODY)
    }
}

/// The library takes the time from `x-amz-date`, which was made from `Date`: the signature covers
/// that time, and not this header.
#[derive(Clone, Copy)]
pub(crate) struct DateOnly;

/// The keys, for the library that checks signatures.
pub(crate) struct Secrets(pub(crate) Arc<dyn Keys>);

#[async_trait::async_trait]
impl S3Auth for Secrets {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        Ok(SecretKey::from(find(&*self.0, access_key).await?.secret))
    }
}

/// Looks a key up, or returns the error for its user.
pub(crate) async fn find(keys: &dyn Keys, access_key: &str) -> S3Result<Found> {
    keys.find(access_key).await.map_err(not_found)
}

/// The error for a key that was not found.
fn not_found(why: NotFound) -> S3Error {
    match why {
        NotFound::Unknown => S3Error::with_message(
            S3ErrorCode::InvalidAccessKeyId,
            "There is no such access key; lee key create USER makes one.",
        ),
        NotFound::Refused(why) => S3Error::with_message(S3ErrorCode::AccessDenied, why),
        NotFound::Later(why) => S3Error::with_message(S3ErrorCode::ServiceUnavailable, why),
    }
}

/// Which unsigned requests a client with a certificate may send: no forms, as other sites' pages
/// can make browsers send these, and no chunks, which are recognized by their signature.
fn unsigned(certified: Option<Certified>, operation: Option<&str>, headers: &HeaderMap) -> S3Result<u32> {
    let who = certified.map_or(Err(no_key()), |certified| certified.0.map_err(not_found))?;
    let chunked = |kind: &HeaderValue| kind.as_bytes().starts_with(b"STREAMING-");
    match operation == Some(FORM) || headers.get("x-amz-content-sha256").is_some_and(chunked) {
        false => Ok(who.uid),
        true => Err(S3Error::with_message(
            S3ErrorCode::AccessDenied,
            "Forms, and content in chunks, need a signature, also of who has a certificate.",
        )),
    }
}

/// Checks a request whose signature is valid (or that has none), before its body is read: the
/// signature must cover all that matters, a client without a key may only read, and there must be
/// memory for the request's XML. Whether a bucket is public is checked later.
pub(crate) struct Checks {
    /// Whether this is the service for forms, which answers nothing else.
    pub(crate) forms: bool,
    /// The clock.
    pub(crate) env: Env,
    /// The access keys.
    pub(crate) keys: Arc<dyn Keys>,
    /// Memory for large XML, which users share, bytes.
    pub(crate) xml: FairSemaphore,
}

#[async_trait::async_trait]
impl S3Access for Checks {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = operations().find(|known| *known == cx.s3_op().name());
        if let Some(slot) = cx.extensions_mut().get::<Slot>() {
            slot.lock().operation = operation;
        }
        let certified = cx.extensions_mut().get::<Certified>().cloned();
        let query = query_of(cx.uri());
        let asker = match (cx.credentials(), operation) {
            (None, operation) if certified.is_some() => unsigned(certified, operation, cx.headers())?,
            (None, Some(operation)) if ANYBODY.contains(&operation) => {
                if query.iter().any(|(name, _)| name.starts_with("response-")) {
                    let why = "Request specific response headers cannot be used for anonymous GET requests.";
                    return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
                }
                NOBODY
            }
            (None, _) => return Err(no_key()),
            (Some(credentials), operation) => {
                let who = find(&*self.keys, &credentials.access_key).await?.who;
                let date_only = cx.extensions_mut().get::<DateOnly>().is_some();
                if operation != Some(FORM) {
                    let now_secs = self.env.wall() / 1_000_000_000;
                    covered(operation, cx.uri(), cx.headers(), date_only, now_secs)?;
                }
                who.uid
            }
        };
        if let Some(known) = cx.extensions_mut().get::<Asker>() {
            known.is(asker);
        }
        let operation = operation.ok_or_else(|| error::not_implemented("Requests of this kind"))?;
        headers::check(cx.headers(), &query)?;
        if (operation == FORM) != self.forms {
            let why = "Only a form with an object is sent as multipart/form-data.";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        self.make_room(cx, operation, asker)
    }
}

impl Checks {
    /// Takes memory for XML, until the request is answered; XML over the limit is refused unread.
    fn make_room(&self, cx: &mut S3AccessContext<'_>, operation: &str, asker: u32) -> S3Result<()> {
        let bytes = body_bytes(cx.headers());
        if STREAMED.contains(&operation) || *cx.method() == Method::GET {
            return Ok(());
        }
        if bytes > XML_BYTES_MAX {
            let why = "XML has at most 2 MiB, and its Content-Length is said.";
            return Err(S3Error::with_message(S3ErrorCode::MaxMessageLengthExceeded, why));
        }
        if bytes <= XML_BYTES_EASY {
            return Ok(());
        }
        let room = self.xml.try_take(asker, bytes);
        let room =
            room.ok_or_else(|| error::later("Too many large requests are on their way: try again."))?;
        cx.extensions_mut().insert(Arc::new(room));
        if let Some(holding) = cx.extensions_mut().get::<Holding>() {
            holding.begin();
        }
        Ok(())
    }
}

/// Names and values of a query.
pub(crate) fn query_of(uri: &Uri) -> Vec<(String, String)> {
    pairs(uri.query().unwrap_or_default()).map(|(name, value)| (unescaped(name), unescaped(value))).collect()
}

/// Bytes that a body may have.
pub(crate) fn body_bytes(headers: &HeaderMap) -> usize {
    let length = headers.get(CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse().ok());
    length.unwrap_or(if headers.contains_key(TRANSFER_ENCODING) { usize::MAX } else { 0 })
}

pub(crate) fn no_key() -> S3Error {
    S3Error::with_message(S3ErrorCode::AccessDenied, "This needs a key: sign the request.")
}

/// The signature must cover the request: a presigned URL is for what its signer meant, so nobody
/// may add headers that change its meaning (`x-amz-copy-source`). `date_only`: see [`DateOnly`].
///
/// # Errors
/// `AccessDenied`, `InvalidRequest`, `AuthorizationQueryParametersError`.
pub(crate) fn covered(
    operation: Option<&str>,
    uri: &Uri,
    headers: &HeaderMap,
    date_only: bool,
    now_secs: u64,
) -> S3Result<()> {
    let query = query_of(uri);
    let parameter = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let presigned = parameter("X-Amz-Signature").is_some();
    let signed = if parameter("Signature").is_some() {
        return covered_by_old_url(operation, &query, headers, now_secs);
    } else if presigned {
        is_soon(parameter("X-Amz-Expires"), 0)?;
        parameter("X-Amz-SignedHeaders")
    } else {
        let authorization = headers.get(AUTHORIZATION).and_then(|a| a.to_str().ok());
        let rest = authorization.and_then(|a| a.strip_prefix("AWS4-")?.rsplit_once("SignedHeaders="));
        rest.and_then(|(_, rest)| rest.split(',').next())
    };
    let signed = signed.ok_or_else(old_signature)?;
    let is_covered = |name: &str| signed.split(';').any(|signed| signed == name);
    let is_free =
        |name: &str| presigned && name == "x-amz-content-sha256" || date_only && name == "x-amz-date";
    let mut names = own_headers(headers).filter(|name| !is_free(name) && !is_covered(name));
    match names.next().or((!is_covered("host")).then_some("host")) {
        None => is_text(headers),
        Some(name) => Err(S3Error::with_message(
            S3ErrorCode::AccessDenied,
            format!("The signature does not cover the header {name}: sign all x-amz-* headers and host."),
        )),
    }
}

/// Presigned URLs of version 2, which some clients still make, cover all headers that matter but
/// not the whole query. They are accepted for objects, with a query that cannot mean anything else.
fn covered_by_old_url(
    operation: Option<&str>,
    query: &[(String, String)],
    headers: &HeaderMap,
    now_secs: u64,
) -> S3Result<()> {
    // clients repeat in the query the headers that they will send; there they mean nothing
    let starts = |name: &str| name.starts_with("response-") || name.starts_with("x-amz-");
    let is_known = |name: &str| OLD_QUERY.contains(&name) || starts(name);
    let is_one = |name: &str| query.iter().filter(|(other, _)| other == name).count() == 1;
    let as_meant = query.iter().all(|(name, _)| is_known(name) && is_one(name));
    if !as_meant || !operation.is_some_and(|operation| OLD_OPERATIONS.contains(&operation)) {
        return Err(old_signature());
    }
    let expires = query.iter().find(|(name, _)| name == "Expires").map(|(_, value)| value.as_str());
    is_soon(expires, now_secs)?;
    is_text(headers)
}

/// Accepts an end that is at most a week away.
fn is_soon(end: Option<&str>, now_secs: u64) -> S3Result<()> {
    match end.and_then(|end| end.parse::<u64>().ok()) {
        Some(end) if end <= now_secs + EXPIRES_SECS_MAX => Ok(()),
        _ => Err(S3Error::with_message(
            S3ErrorCode::AuthorizationQueryParametersError,
            "A presigned URL is good for at most a week (604800 seconds).",
        )),
    }
}

fn own_headers(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("x-amz-"))
}

/// Refuses headers that are no text: these are left out of what is signed.
fn is_text(headers: &HeaderMap) -> S3Result<()> {
    let is_text = |value: &HeaderValue| std::str::from_utf8(value.as_bytes()).is_ok();
    match own_headers(headers).all(|name| headers.get_all(name).iter().all(is_text)) {
        true => Ok(()),
        false => Err(S3Error::with_message(S3ErrorCode::InvalidRequest, "A header x-amz-* is no text.")),
    }
}

fn old_signature() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::InvalidRequest,
        "Signatures of version 2 are taken in presigned URLs of objects and in forms only: use version 4 (AWS4-HMAC-SHA256).",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn check(uri: &str, headers: &[(&str, &str)]) -> Result<(), String> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        covered(Some("PutObject"), request.uri(), request.headers(), false, 1000)
            .map_err(|e| e.code().as_str().to_owned())
    }

    #[test]
    fn a_signature_covers_all_that_matters() {
        let signed =
            |names: &str| format!("AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders={names}, Signature=0");
        let url = |names: &str, secs: &str| {
            format!("/b/k?X-Amz-Signature=0&X-Amz-SignedHeaders={names}&X-Amz-Expires={secs}")
        };
        let denied = Err("AccessDenied".to_owned());
        let date = ("x-amz-date", "20260101T000000Z");
        assert_eq!(check("/b/k", &[("authorization", &signed("host;x-amz-date")), date]), Ok(()));
        assert_eq!(check("/b/k", &[("authorization", &signed("host")), date]), denied);
        assert_eq!(check("/b/k", &[("authorization", &signed("x-amz-date")), date]), denied, "host");
        assert_eq!(
            check("/b/k", &[("authorization", &signed("host;X-Amz-Date")), date]),
            denied,
            "covers nothing"
        );
        assert_eq!(check(&url("host", "60"), &[("x-amz-content-sha256", "UNSIGNED-PAYLOAD")]), Ok(()));
        let copy = ("x-amz-copy-source", "b/secret");
        assert_eq!(check(&url("host", "60"), &[copy]), denied);
        assert_eq!(check(&url("host%3bx-amz-copy-source", "60"), &[copy]), Ok(()), "that was meant");
        assert_eq!(check(&url("host", "604800"), &[]), Ok(()));
        let code = |code: &str| Err(code.to_owned());
        assert_eq!(check(&url("host", "604801"), &[]), code("AuthorizationQueryParametersError"));
        assert_eq!(check("/b/k", &[("authorization", "AWS AK:sig")]), code("InvalidRequest"));
        let both = url("host", "60") + "&Sig%6Eature=x";
        assert_eq!(check(&both, &[]), code("InvalidRequest"));
    }

    #[test]
    fn an_old_url_means_an_object_and_nothing_else() {
        let url = |secs: u64, more: &str| format!("/b/k?AWSAccessKeyId=AK&Expires={secs}&Signature=x{more}");
        assert_eq!(check(&url(1060, ""), &[("x-amz-tagging", "a=b")]), Ok(()), "it covers all headers");
        assert_eq!(check(&url(1060, "&response-content-type=a/b"), &[]), Ok(()));
        assert_eq!(check(&url(1060, "&content-type=a/b&x-amz-meta-a=b"), &[]), Ok(()), "as boto3 has it");
        let code = |code: &str| Err(code.to_owned());
        for more in ["&tagging&tagging", "&uploads", "&list-type=2", "&Expires=1"] {
            assert_eq!(check(&url(1060, more), &[]), code("InvalidRequest"), "{more}");
        }
        assert_eq!(check(&url(1001 + EXPIRES_SECS_MAX, ""), &[]), code("AuthorizationQueryParametersError"));
        let uri = url(1060, "").parse().expect("a URI");
        assert!(covered(Some("DeleteBucket"), &uri, &HeaderMap::new(), false, 1000).is_err());
    }
}
