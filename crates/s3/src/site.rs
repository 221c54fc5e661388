//! The door: requests of `leeward_door::listen` to the service, answers back.

use crate::access::{Anybody, Keys, Secrets};
use crate::buckets::Buckets;
use crate::call::{Parts, Shared, Slot};
use crate::cors;
use crate::parts::Uploads;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Empty};
use hyper::header::{HOST, HeaderValue, ORIGIN, SERVER};
use hyper::{Method, Request, Response, StatusCode};
use leeward_door::Files;
use leeward_door::listen::{Answer, Body, Client, Site, Told, Turns};
use leeward_env::Door;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::host::{DomainError, MultiDomain};
use s3s::service::{S3Service, S3ServiceBuilder};
use std::sync::Arc;

/// Largest XML of a request: 1000 keys to delete, 10,000 parts.
const XML_BYTES_MAX: usize = 2 << 20;
/// Largest object from a form, which is held in memory.
const FORM_FILE_BYTES_MAX: u64 = 16 << 20;
/// All other fields of a form.
const FORM_BYTES_MAX: usize = 64 << 10;
/// How far a client's clock may be off, seconds.
const SKEW_SECS_MAX: u32 = 900;

/// How a door is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Names of the host; a name before one of them, as in `bucket.s3.example.org`, is a bucket. None: buckets are in paths only.
    pub domains: Vec<String>,
    /// What the door says its region is; empty: `us-east-1`. Signatures are good for any.
    pub region: String,
}

/// The S3 door. See the crate's head.
pub struct S3Door {
    service: S3Service,
    shared: Shared,
    domains: Vec<String>,
}

impl S3Door {
    /// A door to these files, for who has a key.
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
            uploads: Uploads::new(files.env()),
            region,
        }));
        let mut config = S3Config::default();
        config.xml_max_body_size = XML_BYTES_MAX;
        config.post_object_max_file_size = FORM_FILE_BYTES_MAX;
        config.form_max_field_size = FORM_BYTES_MAX;
        config.form_max_fields_size = FORM_BYTES_MAX;
        config.presigned_url_max_skew_time_secs = SKEW_SECS_MAX;
        let mut builder = S3ServiceBuilder::new(shared.clone());
        builder.set_auth(Secrets(keys));
        builder.set_access(Anybody);
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        if !options.domains.is_empty() {
            builder.set_host(MultiDomain::new(options.domains.iter())?);
        }
        Ok(S3Door { service: builder.build(), shared, domains: options.domains })
    }

    /// The name of the bucket that a request is about, as far as that can be seen without checking anything.
    fn bucket_of<B>(&self, request: &Request<B>) -> Option<String> {
        let host = request.headers().get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        let by_host = self.domains.iter().find_map(|d| host.strip_suffix(d.as_str())?.strip_suffix('.'));
        let by_path = || request.uri().path().trim_start_matches('/').split('/').next();
        by_host.or_else(by_path).filter(|name| !name.is_empty()).map(str::to_owned)
    }

    fn cors_of<B>(&self, request: &Request<B>) -> Arc<str> {
        let bucket = self.bucket_of(request).and_then(|name| self.shared.0.buckets.get(&name));
        bucket.map_or_else(|| "".into(), |bucket| bucket.cors.clone())
    }

    async fn serve(self: Arc<Self>, mut request: Request<Body>) -> Response<Body> {
        let method = request.method().clone();
        let origin =
            request.headers().get(ORIGIN).map(|_| (request.headers().clone(), self.cors_of(&request)));
        if method == Method::OPTIONS
            && let Some((headers, rules)) = &origin
        {
            return preflight(headers, rules);
        }
        let slot = Slot::default();
        request.extensions_mut().insert(slot.clone());
        let result = self.service.call(request.map(s3s::Body::http_body_unsync)).await;
        let mut response = match result {
            Ok(response) => response.map(|body| body.boxed_unsync()),
            Err(e) => {
                tracing::warn!("S3: an answer could not be made: {e:?}");
                empty(StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        if let Some((headers, rules)) = origin {
            response.headers_mut().extend(cors::headers_for(&rules, method.as_str(), &headers));
        }
        response.headers_mut().insert(SERVER, HeaderValue::from_static("Leeward"));
        let told: Told = slot.lock().clone();
        response.extensions_mut().insert(told);
        response
    }
}

impl Site for S3Door {
    fn door(&self) -> Door {
        Door::S3
    }

    fn answer(self: Arc<Self>, request: Request<Body>, _: Client) -> Answer {
        self.serve(request).boxed()
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
