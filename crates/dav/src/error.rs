//! Errors as HTTP has them: every kind of error becomes a status, and then an answer.

use crate::head::BadHeader;
use crate::path::BadPath;
use crate::xml::answer;
use crate::xml::tree::BadXml;
use http::header::{self, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use leeward_auth::Refusal;
use leeward_fs::Error;

/// The challenge for clients with a key.
const BASIC: &str = "Basic realm=\"leeward\", charset=\"UTF-8\"";
/// The challenge for clients with a token.
const BEARER: &str = "Bearer realm=\"leeward\"";

/// Why a request is refused, or failed.
#[derive(Clone, Debug)]
pub struct HttpError {
    /// The status.
    pub status: StatusCode,
    /// The reason, for people: names the thing, the cause and the next step. No secrets.
    pub why: String,
    /// The condition of RFC 4918 that was not met, and at which path.
    pub condition: Option<(&'static str, Option<String>)>,
    /// Headers of the answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, HttpError>;

impl HttpError {
    /// An error with this status and reason.
    pub fn new(status: StatusCode, why: impl Into<String>) -> HttpError {
        HttpError { status, why: why.into(), condition: None, headers: Vec::new() }
    }

    /// 400.
    pub fn bad(why: impl Into<String>) -> HttpError {
        HttpError::new(StatusCode::BAD_REQUEST, why)
    }

    /// 409: the directory above is missing.
    pub fn conflict(why: impl Into<String>) -> HttpError {
        HttpError::new(StatusCode::CONFLICT, why)
    }

    /// 412.
    pub fn precondition() -> HttpError {
        let why = "what is there is not what the request expects: look at it, then ask anew";
        HttpError::new(StatusCode::PRECONDITION_FAILED, why)
    }

    /// 423: a lock is in the way.
    pub fn locked(at: String) -> HttpError {
        let why = format!("{at} is locked: send the lock's token in If, or wait until the lock ends");
        HttpError::new(StatusCode::LOCKED, why).with("lock-token-submitted", Some(at))
    }

    /// Adds the condition that was not met.
    pub fn with(self, condition: &'static str, at: Option<String>) -> HttpError {
        HttpError { condition: Some((condition, at)), ..self }
    }

    /// Adds a header.
    pub fn header(mut self, name: HeaderName, value: &str) -> HttpError {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    /// An error of the file system at this path.
    pub fn at(path: &str, e: &Error) -> HttpError {
        let error = HttpError::from(e);
        HttpError { why: format!("{path}: {}", error.why), ..error }
    }

    /// 401 with a challenge: a client without a credential is asked for one.
    #[must_use]
    pub fn with_challenge(self) -> HttpError {
        let why = format!("{}: send an S3 key as name and password, or a token", self.why);
        HttpError { status: StatusCode::UNAUTHORIZED, why, ..self }
            .header(header::WWW_AUTHENTICATE, BASIC)
            .header(header::WWW_AUTHENTICATE, BEARER)
    }

    /// The error as an answer, with its body: XML where a condition is named, else a line of text.
    pub fn answer(&self) -> Response<String> {
        let (kind, body) = match &self.condition {
            Some((condition, at)) => {
                (answer::CONTENT_TYPE, answer::error(condition, at.as_deref(), &self.why))
            }
            None => ("text/plain; charset=utf-8", format!("{}\n", self.why)),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        for (name, value) in &self.headers {
            response.headers_mut().append(name, value.clone());
        }
        response
    }
}

impl From<&Error> for HttpError {
    fn from(e: &Error) -> HttpError {
        let status =
            StatusCode::from_u16(leeward_door::status_of(e)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let error = HttpError::new(status, e.to_string());
        match e {
            Error::Quota => error.with("quota-not-exceeded", None),
            Error::NoSpace => error.with("sufficient-disk-space", None),
            Error::WouldBlock | Error::Unavailable => error.header(header::RETRY_AFTER, "1"),
            _ => error,
        }
    }
}

impl From<Error> for HttpError {
    fn from(e: Error) -> HttpError {
        HttpError::from(&e)
    }
}

impl From<BadPath> for HttpError {
    fn from(bad: BadPath) -> HttpError {
        let status = match bad {
            BadPath::TooLong => StatusCode::URI_TOO_LONG,
            _ => StatusCode::BAD_REQUEST,
        };
        HttpError::new(status, bad.to_string())
    }
}

impl From<BadHeader> for HttpError {
    fn from(bad: BadHeader) -> HttpError {
        HttpError::bad(bad.to_string())
    }
}

impl From<BadXml> for HttpError {
    fn from(bad: BadXml) -> HttpError {
        HttpError::bad(bad.to_string())
    }
}

impl From<Refusal> for HttpError {
    fn from(refusal: Refusal) -> HttpError {
        let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::FORBIDDEN);
        let error = HttpError::new(status, refusal.to_string());
        let bearer = refusal.bearer_error().map(|error| format!("{BEARER}, error=\"{error}\""));
        match (bearer, status) {
            (Some(bearer), StatusCode::UNAUTHORIZED) => {
                error.header(header::WWW_AUTHENTICATE, &bearer).header(header::WWW_AUTHENTICATE, BASIC)
            }
            (Some(bearer), StatusCode::FORBIDDEN) => error.header(header::WWW_AUTHENTICATE, &bearer),
            (_, StatusCode::SERVICE_UNAVAILABLE) => error.header(header::RETRY_AFTER, "5"),
            _ => error,
        }
    }
}

/// The error for a user who makes too many requests.
pub(crate) fn too_busy(retry_after_secs: u64) -> HttpError {
    let why = "more is asked of this server in your name than it can do now: come back later";
    let error = HttpError::new(StatusCode::SERVICE_UNAVAILABLE, why);
    error.header(header::RETRY_AFTER, &retry_after_secs.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_status_and_say_what_is_wrong() {
        let error = HttpError::at("/a", &Error::Quota);
        assert_eq!((error.status.as_u16(), error.why.as_str()), (507, "/a: quota exceeded"));
        let answer = error.answer();
        assert!(answer.body().contains("<D:quota-not-exceeded></D:quota-not-exceeded>"), "{}", answer.body());
        assert_eq!(HttpError::from(Error::NotFound).answer().body(), "no such file or directory\n");
        assert_eq!(HttpError::from(BadPath::TooLong).status, StatusCode::URI_TOO_LONG);
    }

    #[test]
    fn refusals_say_how_to_come_in() {
        let challenges =
            |error: HttpError| error.answer().headers().get_all("www-authenticate").iter().count();
        assert_eq!(challenges(Refusal::Expired.into()), 2);
        assert_eq!(challenges(Refusal::OutOfScope("x".into()).into()), 1);
        let challenged = HttpError::from(Error::Access).with_challenge();
        assert_eq!((challenged.status, challenges(challenged.clone())), (StatusCode::UNAUTHORIZED, 2));
    }
}
