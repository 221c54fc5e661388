//! The door: passes requests of `leeward_door::listen` to the service, and answers back.

use crate::access::{Asker, Certified, Checks, Keys, Secrets, XML_BYTES_IN_ALL, XML_BYTES_MAX, body_bytes};
use crate::answers::{self, Whole};
use crate::buckets::Buckets;
use crate::call::{Parts, Posted, Shared, Slot};
use crate::chunks::{self, Room, SIGNED_BYTES_IN_ALL};
use crate::host::Domains;
use crate::names::{encoded, unescaped};
use crate::pace::{self, Holding};
use crate::uploads::Uploads;
use crate::{cors, error, forms};
use futures_util::FutureExt;
use http_body_util::{BodyExt, Empty};
use hyper::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderValue, LOCATION, ORIGIN, SERVER};
use hyper::{Method, Request, Response, StatusCode};
use leeward_door::listen::{Answer, Body, Client, RequestLabels, Site, Turns, Unfinished};
use leeward_door::{FairSemaphore, Files};
use leeward_env::Door;
use leeward_fs::buckets::is_name;
use s3s::access::S3Access;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::host::DomainError;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::validation::NameValidation;
use s3s::{HttpError, HttpResponse, S3, S3Error, S3ErrorCode};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Largest object from a form, which is held in memory.
const FORM_FILE_BYTES_MAX: u64 = 16 << 20;
/// Limit on all other fields of a form.
const FORM_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a form that are read at once, and of the field that is put before it.
const FORM_READ_MAX: usize = (64 << 10) + 1024;
/// Forms that are read at a time, which client addresses share: they are read before it is known
/// who sends them, and whether the sender may write.
const FORMS_MAX: usize = 8;
/// Time for a form to arrive and to be written.
const FORM_WAIT: Duration = Duration::from_secs(120);
/// Allowed difference of a client's clock, seconds.
const SKEW_SECS_MAX: u32 = 900;
/// Greatest age of a form's signature, seconds; its policy has the end of validity.
const FORM_AGE_SECS_MAX: u32 = 7 * 86_400;

/// Settings of a door.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Names of the host; a name before one of them, as in `bucket.s3.example.org`, is a bucket.
    /// None: buckets are in paths only.
    pub domains: Vec<String>,
    /// The region that the door reports; empty: `us-east-1`. Signatures for any region are
    /// accepted.
    pub region: String,
}

/// The S3 door.
pub struct S3Door {
    service: S3Service,
    /// The service for forms, whose signatures may be older.
    forms: S3Service,
    /// Permits to read a form, by client address.
    forms_read: FairSemaphore,
    /// Memory for large signed chunks, bytes.
    chunks_read: FairSemaphore,
    shared: Shared,
    domains: Domains,
}

impl S3Door {
    /// A door to these files.
    ///
    /// # Errors
    /// A domain that is none.
    pub fn new(
        files: &Files,
        keys: Arc<dyn Keys>,
        buckets: Arc<dyn Buckets>,
        options: Options,
    ) -> Result<S3Door, DomainError> {
        let region = if options.region.is_empty() { "us-east-1".into() } else { options.region };
        let shared = Shared(Arc::new(Parts {
            files: files.clone(),
            keys: keys.clone(),
            buckets,
            turns: Turns::new(files.env()),
            uploads: Uploads::new(files),
            region,
        }));
        let domains = Domains::new(&options.domains)?;
        let xml = FairSemaphore::new(XML_BYTES_IN_ALL);
        let service = |forms: bool, route: Option<Whole>| {
            let checks = Checks { forms, env: files.env().clone(), keys: keys.clone(), xml: xml.clone() };
            service(shared.clone(), keys.clone(), checks, &domains, forms, route)
        };
        let whole = Whole { service: service(false, None), keys: keys.clone(), env: files.env().clone() };
        Ok(S3Door {
            service: service(false, Some(whole)),
            forms: service(true, None),
            forms_read: FairSemaphore::new(FORMS_MAX),
            chunks_read: FairSemaphore::new(SIGNED_BYTES_IN_ALL),
            shared,
            domains,
        })
    }

    /// The name of a request's bucket, as far as it can be seen without checking anything.
    fn bucket_of<B>(&self, request: &Request<B>) -> Option<String> {
        let host = request.headers().get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
        let by_path = || request.uri().path().trim_start_matches('/').split('/').next().map(str::to_owned);
        self.domains.bucket(host).or_else(by_path).filter(|name| !name.is_empty())
    }

    fn cors_of<B>(&self, request: &Request<B>) -> Arc<str> {
        let bucket = self.bucket_of(request).and_then(|name| self.shared.0.buckets.get(&name));
        bucket.map_or_else(|| "".into(), |bucket| bucket.cors.clone())
    }

    async fn serve(self: Arc<Self>, mut request: Request<Body>, client: Client) -> Response<Body> {
        let method = request.method().clone();
        let origin =
            request.headers().get(ORIGIN).map(|_| (request.headers().clone(), self.cors_of(&request)));
        if method == Method::OPTIONS
            && let Some((headers, rules)) = &origin
        {
            return preflight(headers, rules);
        }
        let expects = request.headers().contains_key(EXPECT);
        let slot = Slot::default();
        request.extensions_mut().insert(slot.clone());
        if let Some(certificate) = client.certificate_for(request.headers()) {
            let who = self.shared.0.keys.certified(certificate).await;
            request.extensions_mut().insert(Certified(who));
        }
        answers::date(&mut request);
        let region = answers::other_region(request.uri(), request.headers(), &self.shared.0.region);
        let result = match (region, is_form(&request)) {
            (Some(answer), _) => Ok(answer),
            (None, true) => self.form(request, &client).await,
            (None, false) => self.service.call(self.bounded(request)).await,
        };
        let mut response = match result {
            Ok(response) => {
                let operation = slot.lock().operation;
                let response = answers::finish(self.shared.0.files.env(), operation, response);
                slot.lock().error = code_of(&response);
                response.map(|body| body.boxed_unsync())
            }
            Err(e) => {
                tracing::warn!("S3: an answer could not be made: {e:?}");
                empty(StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        if let Some((headers, rules)) = origin {
            response.headers_mut().extend(cors::headers_for(&rules, method.as_str(), &headers));
        }
        if expects && !response.status().is_success() {
            // the body was perhaps not asked for; botocore takes this answer for that of the
            // connection's next request, too
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response.headers_mut().insert(SERVER, HeaderValue::from_static("Leeward"));
        let told: RequestLabels = slot.lock().clone();
        response.extensions_mut().insert(told);
        response
    }

    /// A request whose body takes no more memory than its user's share, and holds that no longer
    /// than it must.
    fn bounded(&self, mut request: Request<Body>) -> Request<s3s::Body> {
        let (asker, holding) = (Asker::default(), Holding::default());
        request.extensions_mut().insert(asker.clone());
        request.extensions_mut().insert(holding.clone());
        let (head, body) = request.into_parts();
        let body = pace::paced(self.shared.0.files.env(), body, &holding);
        let room = Room { semaphore: self.chunks_read.clone(), asker, holding };
        let body = chunks::bounded(&head.headers, body, &room);
        Request::from_parts(head, s3s::Body::http_body_unsync(body))
    }

    /// Answers a form, which is in memory as a whole: its turn, its size and its time are limited,
    /// as nothing is known of its sender.
    async fn form(&self, mut request: Request<Body>, client: &Client) -> Result<HttpResponse, HttpError> {
        let Some(_room) = self.forms_read.try_take(network(client.address.ip()), 1) else {
            return refused(error::later("Too many forms are on their way: try again."));
        };
        if body_bytes(request.headers()) as u64 > FORM_FILE_BYTES_MAX + 2 * FORM_BYTES_MAX as u64 {
            let why = "A form's file has at most 16 MiB, and its Content-Length is said.";
            return refused(S3Error::with_message(S3ErrorCode::EntityTooLarge, why));
        }
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let scheme = if client.tls { "https" } else { "http" };
        let at = format!("{scheme}://{host}{}", request.uri().path().trim_end_matches('/'));
        let posted = Posted::default();
        request.extensions_mut().insert(posted.clone());
        let holding = Holding::default();
        holding.begin();
        let env = self.shared.0.files.env();
        let body = |body| s3s::Body::http_body_unsync(pace::paced(env, body, &holding));
        let bucket = self.bucket_of(&request).map(|name| unescaped(&name)).filter(|name| is_name(name));
        let answer =
            self.forms.call(forms::with_bucket(request, bucket.as_deref().unwrap_or_default()).map(body));
        let late = |_| refused(S3Error::with_message(S3ErrorCode::RequestTimeout, "The form took too long."));
        let answer = tokio::time::timeout(FORM_WAIT, answer).await.unwrap_or_else(late)?;
        let mut answer = answers::refused_by_policy(answer);
        if let Some(key) = posted.lock().take()
            && let Ok(value) = HeaderValue::from_str(&format!("{at}/{}", encoded(&key)))
        {
            // unless the form names the page to go to
            answer.headers_mut().entry(LOCATION).or_insert(value);
        }
        Ok(answer)
    }
}

/// The owner of an address, as far as it can be told, as a number: for IPv6 a network of 64 bits.
fn network(address: IpAddr) -> u32 {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => {
            let mut hasher = rustc_hash::FxHasher::default();
            (v6.to_bits() >> 64).hash(&mut hasher);
            hasher.finish() as u32
        }
    }
}

/// The library's service for the door; `forms`: for forms; `route`: answers all other requests.
pub(crate) fn service(
    operations: impl S3,
    keys: Arc<dyn Keys>,
    checks: impl S3Access,
    domains: &Domains,
    forms: bool,
    route: Option<Whole>,
) -> S3Service {
    let mut builder = S3ServiceBuilder::new(operations);
    builder.set_auth(Secrets(keys));
    builder.set_access(checks);
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config(forms)))));
    builder.set_host(domains.clone());
    builder.set_validation(BucketNames);
    if let Some(route) = route {
        builder.set_route(route);
    }
    builder.build()
}

/// The allowed names of buckets.
struct BucketNames;

impl NameValidation for BucketNames {
    fn validate_bucket_name(&self, name: &str) -> bool {
        is_name(name)
    }
}

fn config(forms: bool) -> S3Config {
    let mut config = S3Config::default();
    config.xml_max_body_size = XML_BYTES_MAX;
    // a request that is no form is not read as one
    config.post_object_max_file_size = if forms { FORM_FILE_BYTES_MAX } else { 0 };
    config.form_max_field_size = if forms { FORM_BYTES_MAX } else { 0 };
    // the library counts what it has read so far, a part of which may belong to the file
    config.form_max_fields_size = if forms { FORM_BYTES_MAX + FORM_READ_MAX } else { 0 };
    config.presigned_url_max_skew_time_secs = if forms { FORM_AGE_SECS_MAX } else { SKEW_SECS_MAX };
    config
}

fn is_form<B>(request: &Request<B>) -> bool {
    const KIND: &[u8] = b"multipart/form-data";
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().get(..KIND.len()));
    *request.method() == Method::POST && kind.is_some_and(|kind| kind.eq_ignore_ascii_case(KIND))
}

fn refused(e: S3Error) -> Result<HttpResponse, HttpError> {
    e.to_http_response().map_err(|e| HttpError::new(Box::new(e)))
}

/// Why a request was refused, for the log.
fn code_of(response: &HttpResponse) -> Option<Arc<str>> {
    let refused = response.status().is_client_error() || response.status().is_server_error();
    let text = response.body().bytes().filter(|_| refused)?;
    let (_, rest) = std::str::from_utf8(&text).ok()?.split_once("<Code>")?;
    rest.split_once("</Code>").map(|(code, _)| code.into())
}

impl Site for S3Door {
    fn door(&self) -> Door {
        Door::S3
    }

    fn answer(self: Arc<Self>, request: Request<Body>, client: Client) -> Answer {
        self.serve(request, client).boxed()
    }

    fn unfinished(&self) -> Unfinished {
        self.shared.0.uploads.in_all()
    }
}

fn preflight(headers: &hyper::HeaderMap, rules: &str) -> Response<Body> {
    match cors::preflight(rules, headers) {
        Some(headers) => {
            let mut response = empty(StatusCode::OK);
            response.headers_mut().extend(headers);
            response
        }
        None => empty(StatusCode::FORBIDDEN),
    }
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}
