//! What can go wrong with a bucket.

use crate::Location;
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error as _;

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a bucket. The texts say what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such object.
    #[error("{0} is missing")]
    Missing(String),
    /// There is such an object already.
    #[error("{0} exists already")]
    Exists(String),
    /// The store asks for fewer requests (503, SlowDown). Nothing was done.
    #[error("{0}")]
    Busy(String),
    /// The store does not accept our key, or does not allow the call.
    #[error("{0}")]
    Refused(String),
    /// There is no such bucket.
    #[error("{0}")]
    NoBucket(String),
    /// The store does not answer, or fails. The call may have been carried out or not.
    #[error("{0}")]
    Away(String),
    /// A quota of the store is used up.
    #[error("{0}")]
    Full(String),
    /// An unusable setting: a URL, a profile.
    #[error("{0}")]
    Wrong(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// Whether the same call may work in a moment.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Busy(_) | Error::Away(_))
    }

    /// Translates an error of the client library about the object `name`.
    pub(crate) fn of(place: &Location, name: &str, e: &object_store::Error) -> Error {
        // The library's type for a refused request is private; status, code and text are in its
        // printed form.
        let text = e.to_string();
        let (code, status) = (between(&text, "<Code>", "</Code>"), status(&text));
        match (code, status) {
            (Some("NoSuchBucket"), _) => return Error::NoBucket(no_bucket(place)),
            (Some("QuotaExceeded" | "UserQuotaExceeded" | "BucketQuotaExceeded"), _) | (_, Some(507)) => {
                return Error::Full(format!("{place}: a quota of the store is used up: raise it there"));
            }
            (Some("SlowDown" | "ServiceUnavailable" | "TooManyRequests" | "RequestLimitExceeded"), _)
            | (_, Some(503 | 429)) => return Error::Busy(format!("{place} asks to slow down")),
            (Some(code), _) if refusal(code).is_some() => return Error::Refused(refused(place, code)),
            (_, Some(401 | 403)) => return Error::Refused(refused(place, code.unwrap_or("AccessDenied"))),
            (_, Some(301 | 307)) => return Error::Refused(other_region(place)),
            (_, Some(500..600)) => {
                return Error::Away(format!(
                    "{place}: the store fails ({}): see its log",
                    code.unwrap_or("500")
                ));
            }
            _ => (),
        }
        match e {
            object_store::Error::NotFound { .. } => Error::Missing(format!("{place}/{name}")),
            object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => {
                Error::Exists(format!("{place}/{name}"))
            }
            _ if text.contains("169.254.") || text.contains("credential") => Error::Refused(format!(
                "{place}: no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            )),
            _ if text.contains("configured region") => Error::Refused(other_region(place)),
            _ => match transport(e) {
                Some(why) => Error::away(place, &why),
                None => Error::Failed(format!("{place}/{name}: {}", one_line(&text))),
            },
        }
    }

    /// The store does not answer.
    pub(crate) fn away(place: &Location, why: &str) -> Error {
        let at = place.endpoint.as_deref().unwrap_or("the endpoint of AWS");
        Error::Away(format!("{place}: {at} does not answer ({why}): check the network and AWS_ENDPOINT_URL"))
    }
}

fn no_bucket(place: &Location) -> String {
    let at = place.endpoint.as_deref().unwrap_or("AWS");
    let bucket = &place.url.bucket;
    format!("{place}: {at} has no bucket {bucket}: create it there, or correct the name or AWS_ENDPOINT_URL")
}

fn other_region(place: &Location) -> String {
    format!("{place}: the bucket is in another region: set AWS_REGION to its region")
}

/// What a refusal means and what to do, by its code.
fn refusal(code: &str) -> Option<&'static str> {
    Some(match code {
        "InvalidAccessKeyId" => {
            "the store does not know the access key: check AWS_ACCESS_KEY_ID or the profile"
        }
        "SignatureDoesNotMatch" => "the secret key is wrong: check AWS_SECRET_ACCESS_KEY or the profile",
        "ExpiredToken" | "InvalidToken" => "the session token is not valid any more: get a new one",
        "RequestTimeTooSkewed" => "the clock here and the store's differ too much: set the clock",
        "AccessDenied" => "access denied: give this key the rights to get, put, delete and list there",
        "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException" => {
            "the store is in another region: set AWS_REGION to its region"
        }
        _ => return None,
    })
}

fn refused(place: &Location, code: &str) -> String {
    format!("{place}: {} ({code})", refusal(code).unwrap_or("the store refuses"))
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let rest = &text[text.find(from)? + from.len()..];
    Some(&rest[..rest.find(to)?])
}

fn status(text: &str) -> Option<u16> {
    let rest = &text[text.find("status code: ")? + "status code: ".len()..];
    rest.get(..3)?.parse().ok()
}

/// Why the request got no answer.
fn transport(e: &object_store::Error) -> Option<String> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = e.source();
    while let Some(e) = source {
        if let Some(http) = e.downcast_ref::<HttpError>() {
            return match http.kind() {
                HttpErrorKind::Connect => Some("cannot connect".into()),
                HttpErrorKind::Timeout => Some("timeout".into()),
                HttpErrorKind::Request | HttpErrorKind::Interrupted => Some("the connection broke".into()),
                _ => Some(one_line(&http.to_string())),
            };
        }
        source = e.source();
    }
    None
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_with(text: &str) -> Error {
        let place = Location::bare("s3://b/p").expect("a place");
        let e = object_store::Error::Generic { store: "S3", source: text.to_string().into() };
        Error::of(&place, "cell", &e)
    }

    #[test]
    fn what_stores_say_is_told_apart() {
        let said = |status: u16, code: &str| {
            error_with(&format!(
                "Server returned non-2xx status code: {status} X: <Error><Code>{code}</Code></Error>"
            ))
        };
        assert!(matches!(said(404, "NoSuchBucket"), Error::NoBucket(m) if m.contains("no bucket b")));
        assert!(
            matches!(said(403, "InvalidAccessKeyId"), Error::Refused(m) if m.contains("AWS_ACCESS_KEY_ID"))
        );
        assert!(matches!(said(403, "SignatureDoesNotMatch"), Error::Refused(m) if m.contains("secret key")));
        assert!(matches!(said(403, "QuotaExceeded"), Error::Full(_)));
        assert!(matches!(said(503, "SlowDown"), Error::Busy(_)));
        assert!(matches!(said(500, "UnknownError"), Error::Away(_)));
        assert!(
            matches!(error_with("http://169.254.169.254/latest"), Error::Refused(m) if m.contains("no credentials"))
        );
        assert!(matches!(error_with("odd\n thing"), Error::Failed(m) if m.ends_with("odd thing")));
    }
}
