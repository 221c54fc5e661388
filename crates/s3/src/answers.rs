//! Work that the library leaves undone: on requests before it is called, and on its answers.

use crate::access::{Certified, DateOnly, Keys, covered, find, query_of};
use crate::names::encoded;
use hyper::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RANGE,
};
use hyper::http::Extensions;
use hyper::{Method, Request, Response, StatusCode, Uri};
use leeward_env::Env;
use s3s::route::S3Route;
use s3s::service::S3Service;
use s3s::{Body, HttpResponse, S3Error, S3Request, S3Response, S3Result};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const ID_2: HeaderName = HeaderName::from_static("x-amz-id-2");
/// Browsers must not guess that users' content is a page or a program.
const NO_SNIFF: (HeaderName, &str) = (HeaderName::from_static("x-content-type-options"), "nosniff");

/// A signed request that has the time only in `Date` gets the header that the library reads.
pub(crate) fn date<B>(request: &mut Request<B>) {
    let headers = request.headers();
    // signatures of version 2 cover `Date` itself
    let is_v4 = headers.get(AUTHORIZATION).is_some_and(|by| by.as_bytes().starts_with(b"AWS4-"));
    if headers.contains_key(AMZ_DATE) || !is_v4 {
        return;
    }
    let text = headers.get(DATE).and_then(|date| date.to_str().ok());
    if let Some(value) = text.and_then(amz_date).and_then(|text| HeaderValue::from_str(&text).ok()) {
        request.headers_mut().insert(AMZ_DATE, value);
        request.extensions_mut().insert(DateOnly);
    }
}

/// Converts a time in HTTP's form, or in that of `x-amz-date`, to the latter.
fn amz_date(text: &str) -> Option<String> {
    let is_basic = text.len() == 16 && text.as_bytes()[8] == b'T' && text.ends_with('Z');
    if is_basic {
        return Some(text.to_owned());
    }
    let secs = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let (day, secs) = ((secs / 86_400) as i64, secs % 86_400);
    let (year, month, day) = civil(day);
    Some(format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", secs / 3600, secs / 60 % 60, secs % 60))
}

/// Year, month and day, of days since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The answer to a request signed for a wrong region: it names the right one, and clients sign
/// again.
pub(crate) fn other_region(uri: &Uri, headers: &HeaderMap, region: &str) -> Option<HttpResponse> {
    let in_header = headers.get(AUTHORIZATION).and_then(|a| a.to_str().ok()).and_then(|text| {
        let (_, rest) = text.strip_prefix("AWS4-HMAC-SHA256")?.split_once("Credential=")?;
        Some(rest.split(',').next()?.trim().to_owned())
    });
    let in_url =
        || query_of(uri).into_iter().find(|(name, _)| name == "X-Amz-Credential").map(|(_, value)| value);
    let (credential, code) = match in_header {
        Some(credential) => (credential, "AuthorizationHeaderMalformed"),
        None => (in_url()?, "AuthorizationQueryParametersError"),
    };
    // KEY/DAY/REGION/s3/aws4_request; a key may have slashes
    let asked = credential.rsplit('/').nth(2)?;
    let is_one =
        !asked.is_empty() && asked.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if is_one {
        return None;
    }
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>The region is wrong; expecting '{region}'.</Message><Region>{region}</Region></Error>"
    );
    Some(xml(StatusCode::BAD_REQUEST, text))
}

fn xml(status: StatusCode, text: String) -> HttpResponse {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// Corrects the answer to a form that does not meet its policy: the library says that the policy is
/// invalid.
pub(crate) fn refused_by_policy(response: HttpResponse) -> HttpResponse {
    const NOT_MET: [&str; 3] = ["Policy condition ", "Bucket in form field ", " does not match policy"];
    let text = response.body().bytes().and_then(|text| String::from_utf8(text.to_vec()).ok());
    let Some(text) = text.filter(|_| response.status() == StatusCode::BAD_REQUEST) else { return response };
    let is_policy = text.contains("<Code>InvalidPolicyDocument</Code>");
    match is_policy && NOT_MET.iter().any(|why| text.contains(why)) {
        true => xml(
            StatusCode::FORBIDDEN,
            text.replace("<Code>InvalidPolicyDocument</Code>", "<Code>AccessDenied</Code>"),
        ),
        false => response,
    }
}

/// Adds what each answer has: a unique request id, and the header against guessing of types.
pub(crate) fn finish(env: &Env, operation: Option<&str>, mut response: HttpResponse) -> HttpResponse {
    let (id, more) =
        (format!("{:016X}", env.random()), format!("{:016x}{:016x}", env.random(), env.random()));
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let is_read = is_error || operation == Some("GetObjectAttributes");
    let text = response.body().bytes().filter(|_| is_read);
    let text = text.and_then(|text| String::from_utf8(text.to_vec()).ok());
    let text = match text {
        Some(text) if is_error && text.contains("</Error>") => {
            let ids = format!("<RequestId>{id}</RequestId><HostId>{more}</HostId></Error>");
            Some(text.replacen("</Error>", &ids, 1))
        }
        // for attributes it is the value alone
        Some(text) if !is_error && text.contains("<ETag>") => {
            let bare = |text: String, quote: &str| {
                text.replacen(&format!("<ETag>{quote}"), "<ETag>", 1).replacen(
                    &format!("{quote}</ETag>"),
                    "</ETag>",
                    1,
                )
            };
            Some(bare(bare(text, "&quot;"), "\""))
        }
        _ => None,
    };
    if let Some(text) = text {
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(text);
    }
    let headers = response.headers_mut();
    for (name, value) in [(REQUEST_ID, id.as_str()), (ID_2, &more), NO_SNIFF] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    response
}

/// Whether a header `Range` means nothing: unknown units, several ranges, or no range. Then the
/// whole object is sent.
fn means_nothing(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(RANGE).iter();
    let (Some(one), None) = (all.next(), all.next()) else { return headers.contains_key(RANGE) };
    let spec = one.to_str().ok().and_then(|text| text.split_once('='));
    let Some((unit, spec)) = spec else { return true };
    let Some((first, last)) = spec.split_once('-') else { return true };
    let number = |text: &str| text.is_empty() || text.parse::<i64>().is_ok_and(|n| n >= 0);
    let backwards = || matches!((first.parse::<i64>(), last.parse::<i64>()), (Ok(a), Ok(b)) if a > b);
    unit != "bytes" || first.is_empty() && last.is_empty() || !number(first) || !number(last) || backwards()
}

/// Handles requests with such a header, which the library refuses: once their signature is checked
/// they are repeated without it.
pub(crate) struct Whole {
    /// The service with the same operations.
    pub(crate) service: S3Service,
    pub(crate) keys: Arc<dyn Keys>,
    pub(crate) env: Env,
}

#[async_trait::async_trait]
impl S3Route for Whole {
    fn is_match(&self, method: &Method, _: &Uri, headers: &HeaderMap, _: &mut Extensions) -> bool {
        [Method::GET, Method::HEAD].contains(method) && means_nothing(headers)
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        let Some(credentials) = &request.credentials else { return Ok(()) };
        let date_only = request.extensions.get::<DateOnly>().is_some();
        let operation = if request.method == Method::HEAD { "HeadObject" } else { "GetObject" };
        let now_secs = self.env.wall() / 1_000_000_000;
        covered(Some(operation), &request.uri, &request.headers, date_only, now_secs)?;
        let who = find(&*self.keys, &credentials.access_key).await?.who;
        request.extensions.insert(Certified(Ok(who)));
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let mut again = Request::new(request.input);
        *again.method_mut() = request.method;
        *again.uri_mut() = unsigned(&request.uri)?;
        *again.headers_mut() = request.headers;
        *again.extensions_mut() = request.extensions;
        for name in [RANGE, AUTHORIZATION, HeaderName::from_static("x-amz-content-sha256")] {
            again.headers_mut().remove(name);
        }
        let answer =
            self.service.call(again).await.map_err(|e| S3Error::internal_error(Failed(format!("{e:?}"))))?;
        let (head, body) = answer.into_parts();
        let mut response = S3Response::with_status(body, head.status);
        response.headers = head.headers;
        Ok(response)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(String);

/// A URL without its signature.
fn unsigned(uri: &Uri) -> S3Result<Uri> {
    const OLD: [&str; 3] = ["AWSAccessKeyId", "Signature", "Expires"];
    let kept = query_of(uri)
        .into_iter()
        .filter(|(name, _)| !name.starts_with("X-Amz-") && !OLD.contains(&name.as_str()));
    let kept: Vec<String> = kept.map(|(name, value)| format!("{}={}", plain(&name), plain(&value))).collect();
    let text =
        if kept.is_empty() { uri.path().to_owned() } else { format!("{}?{}", uri.path(), kept.join("&")) };
    text.parse().map_err(S3Error::internal_error)
}

fn plain(text: &str) -> String {
    encoded(text).replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HOST;
    use std::time::Duration;

    #[test]
    fn dates_are_read_as_they_are_written() {
        assert_eq!(amz_date("Sun, 06 Nov 1994 08:49:37 GMT").as_deref(), Some("19941106T084937Z"));
        assert_eq!(amz_date("20260101T000000Z").as_deref(), Some("20260101T000000Z"));
        assert_eq!(amz_date("yesterday"), None);
        for secs in [0u64, 951_782_399, 951_782_400, 1_709_164_800, 4_102_444_799] {
            let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(secs));
            let ours = amz_date(&text).expect("a date");
            let day: String = text.split(' ').nth(1).expect("a day").into();
            assert_eq!((&ours[6..8], &ours[..4]), (&*day, text.split(' ').nth(3).expect("a year")), "{text}");
        }
    }

    #[test]
    fn ranges_that_mean_nothing_are_known() {
        let nothing = |text: &'static str| {
            means_nothing(&HeaderMap::from_iter([(RANGE, HeaderValue::from_static(text))]))
        };
        for text in ["bytes=0-1", "bytes=0-", "bytes=-5", "bytes=9223372036854775807-"] {
            assert!(!nothing(text), "{text}");
        }
        for text in ["lines=1-2", "bytes=0-1,3-4", "bytes=", "bytes=-", "bytes", "bytes=a-b", "bytes=3-1"] {
            assert!(nothing(text), "{text}");
        }
        assert!(!means_nothing(&HeaderMap::new()));
    }

    #[test]
    fn who_signs_for_no_region_is_told_one() {
        let told = |credential: &str| {
            let value = format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0");
            let headers = HeaderMap::from_iter([
                (AUTHORIZATION, HeaderValue::from_str(&value).expect("a value")),
                (HOST, HeaderValue::from_static("h")),
            ]);
            other_region(&Uri::from_static("/"), &headers, "us-east-1")
        };
        assert!(told("AK/20260101/eu-west-3/s3/aws4_request").is_none());
        let answer = told("AK/20260101/US/s3/aws4_request").expect("another region");
        let text = String::from_utf8(answer.body().bytes().expect("a text").to_vec()).expect("text");
        assert!(text.contains("AuthorizationHeaderMalformed") && text.contains("<Region>us-east-1</Region>"));
        let url = Uri::from_static("/b/k?X-Amz-Credential=AK%2F20260101%2FUS%2Fs3%2Faws4_request");
        assert!(other_region(&url, &HeaderMap::new(), "us-east-1").is_some());
    }

    #[test]
    fn a_url_is_asked_for_again_without_its_signature() {
        let url = Uri::from_static(
            "/b/k%20k?X-Amz-Signature=0&versionId=null&X-Amz-Date=1&response-content-type=a%2Fb",
        );
        assert_eq!(unsigned(&url).expect("a URL"), "/b/k%20k?versionId=null&response-content-type=a%2Fb");
        assert_eq!(unsigned(&Uri::from_static("/b/k?Signature=x&Expires=1")).expect("a URL"), "/b/k");
    }
}
