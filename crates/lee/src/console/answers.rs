//! What goes back to the browser, with the headers that all answers have.

use super::html;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use leeward_door::File;
use leeward_door::listen::{Body, BodyError};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

/// What browsers may do with a page: show it, with our style and our script, and send its forms
/// here.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// What browsers may do with a file of a user: nothing, it is to be stored.
const OF_FILES: &str = "sandbox; default-src 'none'";
/// Names of the cookies of a session and of a login at a provider. Of encrypted connections they
/// have a prefix by which browsers take them from this host only.
const SESSION: [&str; 2] = ["__Host-leeward", "leeward"];
const SIGN_ON: [&str; 2] = ["__Host-leeward-sign-on", "leeward-sign-on"];

const ASSETS: [(&str, &str, &str); 3] = [
    ("/style.css", "text/css; charset=utf-8", include_str!("assets/console.css")),
    ("/icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ("/console.js", "text/javascript; charset=utf-8", include_str!("assets/console.js")),
];

/// What a page answers.
pub enum Reply {
    /// A page.
    Page(html::Page),
    /// Go on there: an address of the console.
    See(String),
    /// Go on there, perhaps elsewhere, with these cookies.
    Cookies(String, Vec<Cookie>),
    /// The file of this path, to store.
    File(Vec<u8>),
    /// A text to store: its kind, its name and itself.
    Text(&'static str, String, String),
}

/// A cookie that a browser is to keep; with an empty secret, to forget.
pub enum Cookie {
    /// Of a session.
    Session(String),
    /// Of a login at a provider.
    SignOn(String),
}

impl Cookie {
    /// The value of `Set-Cookie`.
    fn text(&self, is_encrypted: bool) -> String {
        let (name, secret) = match self {
            Cookie::Session(secret) => (session_cookie(is_encrypted), secret),
            Cookie::SignOn(secret) => (sign_on_cookie(is_encrypted), secret),
        };
        let path = if is_encrypted { "/; Secure" } else { "/console" };
        let age = if secret.is_empty() { "; Max-Age=0" } else { "" };
        format!("{name}={secret}; Path={path}; HttpOnly; SameSite=Lax{age}")
    }
}

/// Name of the cookie of a session.
pub fn session_cookie(is_encrypted: bool) -> &'static str {
    SESSION[usize::from(!is_encrypted)]
}

/// Name of the cookie of a login at a provider.
pub fn sign_on_cookie(is_encrypted: bool) -> &'static str {
    SIGN_ON[usize::from(!is_encrypted)]
}

/// A body that is in memory.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An answer with the headers that all have.
fn with(status: StatusCode, body: Body, more: &[(HeaderName, &str)]) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let all = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in all.iter().chain(more) {
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// A page.
pub fn page(status: StatusCode, html: impl Into<Bytes>) -> Response<Body> {
    with(status, full(html), &[(header::CONTENT_TYPE, "text/html; charset=utf-8")])
}

/// Go on there.
pub fn see(there: &str, cookies: &[Cookie], is_encrypted: bool) -> Response<Body> {
    let mut answer = with(StatusCode::SEE_OTHER, full(""), &[(header::LOCATION, there)]);
    let texts = cookies.iter().map(|cookie| cookie.text(is_encrypted));
    let values = texts.filter_map(|text| HeaderValue::from_str(&text).ok());
    values.for_each(|value| _ = answer.headers_mut().append(header::SET_COOKIE, value));
    answer
}

/// Style, script and picture of all pages. `None`: there is none of this path.
pub fn asset(path: &str) -> Option<Response<Body>> {
    let (_, kind, text) = ASSETS.iter().find(|(name, ..)| *name == path)?;
    let headers = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "max-age=300")];
    Some(with(StatusCode::OK, full(*text), &headers))
}

/// A file of a user, to be stored, whatever it is.
pub fn file(file: File, name: &[u8]) -> Response<Body> {
    let size = file.attr.size;
    let pieces = file.stream(0..size).map(|piece| piece.map(Frame::data).map_err(BodyError::from));
    let answer = with(
        StatusCode::OK,
        StreamBody::new(pieces).boxed_unsync(),
        &[
            (header::CONTENT_TYPE, "application/octet-stream"),
            (header::CONTENT_LENGTH, &size.to_string()),
            (header::CONTENT_SECURITY_POLICY, OF_FILES),
        ],
    );
    to_store(answer, name)
}

/// A text of this kind, to be stored.
pub fn text(kind: &str, name: &str, text: impl Into<Bytes>) -> Response<Body> {
    let answer = with(StatusCode::OK, full(text), &[(header::CONTENT_TYPE, kind)]);
    to_store(answer, name.as_bytes())
}

fn to_store(mut answer: Response<Body>, name: &[u8]) -> Response<Body> {
    let name = percent_encode(name, NON_ALPHANUMERIC);
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename*=UTF-8''{name}")) {
        answer.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    answer
}
