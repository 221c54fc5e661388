//! What goes wrong, as HTTP says it: one way from every kind of error to a status, and from there to an answer.

use crate::head::BadHeader;
use crate::path::BadPath;
use crate::xml::answer;
use crate::xml::tree::BadXml;
use http::header::{self, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use leeward_auth::Refusal;
use leeward_fs::Error;

/// How somebody with a key says who he is.
const BASIC: &str = "Basic realm=\"leeward\", charset=\"UTF-8\"";
/// How somebody with a token does.
const BEARER: &str = "Bearer realm=\"leeward\"";

/// Why a request is refused, or failed.
#[derive(Clone, Debug)]
pub struct Oops {
    /// The status.
    pub status: StatusCode,
    /// Why, for people: names the thing, the cause and the next step. No secrets.
    pub why: String,
    /// The condition of RFC 4918 that was not met, and at which path.
    pub condition: Option<(&'static str, Option<String>)>,
    /// Headers of the answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// What a request leads to, if not to an answer.
pub type Result<T> = std::result::Result<T, Oops>;

impl Oops {
    /// With this status, because of this.
    pub fn new(status: StatusCode, why: impl Into<String>) -> Oops {
        Oops { status, why: why.into(), condition: None, headers: Vec::new() }
    }

    /// 400.
    pub fn bad(why: impl Into<String>) -> Oops {
        Oops::new(StatusCode::BAD_REQUEST, why)
    }

    /// 409: what should be above is not there.
    pub fn conflict(why: impl Into<String>) -> Oops {
        Oops::new(StatusCode::CONFLICT, why)
    }

    /// 412.
    pub fn precondition() -> Oops {
        let why = "what is there is not what the request expects: look at it, then ask anew";
        Oops::new(StatusCode::PRECONDITION_FAILED, why)
    }

    /// 423: a lock is in the way.
    pub fn locked(at: String) -> Oops {
        let why = format!("{at} is locked: send the lock's token in If, or wait until the lock ends");
        Oops::new(StatusCode::LOCKED, why).with("lock-token-submitted", Some(at))
    }

    /// Names the condition that was not met.
    pub fn with(self, condition: &'static str, at: Option<String>) -> Oops {
        Oops { condition: Some((condition, at)), ..self }
    }

    /// With a header.
    pub fn header(mut self, name: HeaderName, value: &str) -> Oops {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    /// An error of the file system at this path.
    pub fn at(path: &str, e: &Error) -> Oops {
        let oops = Oops::from(e);
        Oops { why: format!("{path}: {}", oops.why), ..oops }
    }

    /// 401: who comes without a credential is asked for one.
    #[must_use]
    pub fn ask_who(self) -> Oops {
        let why = format!("{}: send an S3 key as name and password, or a token", self.why);
        Oops { status: StatusCode::UNAUTHORIZED, why, ..self }
            .header(header::WWW_AUTHENTICATE, BASIC)
            .header(header::WWW_AUTHENTICATE, BEARER)
    }

    /// As an answer, with its body: XML where a condition is named, else a line of text.
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

impl From<&Error> for Oops {
    fn from(e: &Error) -> Oops {
        let status =
            StatusCode::from_u16(leeward_door::status_of(e)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let oops = Oops::new(status, e.to_string());
        match e {
            Error::Quota => oops.with("quota-not-exceeded", None),
            Error::NoSpace => oops.with("sufficient-disk-space", None),
            Error::WouldBlock => oops.header(header::RETRY_AFTER, "1"),
            _ => oops,
        }
    }
}

impl From<Error> for Oops {
    fn from(e: Error) -> Oops {
        Oops::from(&e)
    }
}

impl From<BadPath> for Oops {
    fn from(bad: BadPath) -> Oops {
        let status = match bad {
            BadPath::TooLong => StatusCode::URI_TOO_LONG,
            _ => StatusCode::BAD_REQUEST,
        };
        Oops::new(status, bad.to_string())
    }
}

impl From<BadHeader> for Oops {
    fn from(bad: BadHeader) -> Oops {
        Oops::bad(bad.to_string())
    }
}

impl From<BadXml> for Oops {
    fn from(bad: BadXml) -> Oops {
        Oops::bad(bad.to_string())
    }
}

impl From<Refusal> for Oops {
    fn from(refusal: Refusal) -> Oops {
        let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::FORBIDDEN);
        let oops = Oops::new(status, refusal.to_string());
        let bearer = refusal.bearer_error().map(|error| format!("{BEARER}, error=\"{error}\""));
        match (bearer, status) {
            (Some(bearer), StatusCode::UNAUTHORIZED) => {
                oops.header(header::WWW_AUTHENTICATE, &bearer).header(header::WWW_AUTHENTICATE, BASIC)
            }
            (Some(bearer), StatusCode::FORBIDDEN) => oops.header(header::WWW_AUTHENTICATE, &bearer),
            (_, StatusCode::SERVICE_UNAVAILABLE) => oops.header(header::RETRY_AFTER, "5"),
            _ => oops,
        }
    }
}

/// Word that there is too much to do for this user.
pub(crate) fn too_busy(retry_after_secs: u64) -> Oops {
    let why = "more is asked of this server in your name than it can do now: come back later";
    let oops = Oops::new(StatusCode::SERVICE_UNAVAILABLE, why);
    oops.header(header::RETRY_AFTER, &retry_after_secs.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_status_and_say_what_is_wrong() {
        let oops = Oops::at("/a", &Error::Quota);
        assert_eq!((oops.status.as_u16(), oops.why.as_str()), (507, "/a: quota exceeded"));
        let answer = oops.answer();
        assert!(answer.body().contains("<D:quota-not-exceeded></D:quota-not-exceeded>"), "{}", answer.body());
        assert_eq!(Oops::from(Error::NotFound).answer().body(), "no such file or directory\n");
        assert_eq!(Oops::from(BadPath::TooLong).status, StatusCode::URI_TOO_LONG);
    }

    #[test]
    fn refusals_say_how_to_come_in() {
        let challenges = |oops: Oops| oops.answer().headers().get_all("www-authenticate").iter().count();
        assert_eq!(challenges(Refusal::Expired.into()), 2);
        assert_eq!(challenges(Refusal::OutOfScope("x".into()).into()), 1);
        let asked = Oops::from(Error::Access).ask_who();
        assert_eq!((asked.status, challenges(asked.clone())), (StatusCode::UNAUTHORIZED, 2));
    }
}
