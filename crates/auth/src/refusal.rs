//! Why a credential does not open a door, and what the door answers.

/// The reason. Its text may be shown to the client; it has no secret in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Only with [`Wait::Never`](leeward_env::Wait): ask again on a thread that may wait.
    #[error("this has to wait")]
    WouldBlock,
    /// Another thread is asking the issuer for its keys: they may be there in a moment, for a
    /// client that comes again.
    #[error("try again in a moment: the keys of the token's issuer are being fetched")]
    Fetching,
    /// The credential cannot be read: not a token, too long, a scope without a path.
    #[error("the credential cannot be read: {0}")]
    Malformed(String),
    /// The credential is not valid here: forged, unknown, for another audience, of an unknown
    /// issuer, revoked.
    #[error("the credential is not valid here: {0}")]
    Invalid(String),
    /// It was valid once.
    #[error("the credential has expired: get a new one from who gave it")]
    Expired,
    /// It is not valid yet.
    #[error("the credential is not valid yet: wait, or look at this machine's clock and the issuer's")]
    TooEarly,
    /// There is no such S3 key.
    #[error("there is no such access key")]
    NoSuchKey,
    /// The user may not use the door: disabled, or removed.
    #[error("{0}")]
    User(String),
    /// The credential is valid, but does not cover this.
    #[error("the credential does not cover this: {0}")]
    OutOfScope(String),
    /// The request for a token cannot be read.
    #[error("the request for a token cannot be read: {0}")]
    BadRequest(String),
    /// The authority to ask does not answer: the keys of an issuer cannot be fetched.
    #[error("try again later: {0}")]
    Unavailable(String),
}

impl Refusal {
    /// Whether the same credential may be good in a moment: whoever is to be asked has not
    /// answered.
    pub fn is_passing(&self) -> bool {
        matches!(self, Refusal::WouldBlock | Refusal::Fetching | Refusal::Unavailable(_))
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Refusal::Malformed(_) | Refusal::Invalid(_) | Refusal::Expired | Refusal::TooEarly => 401,
            Refusal::NoSuchKey | Refusal::User(_) | Refusal::OutOfScope(_) => 403,
            Refusal::BadRequest(_) => 400,
            Refusal::WouldBlock | Refusal::Fetching | Refusal::Unavailable(_) => 503,
        }
    }

    /// The `error` of `WWW-Authenticate: Bearer`, where there is one (RFC 6750).
    pub fn bearer_error(&self) -> Option<&'static str> {
        match self {
            Refusal::Malformed(_) | Refusal::Invalid(_) | Refusal::Expired | Refusal::TooEarly => {
                Some("invalid_token")
            }
            Refusal::OutOfScope(_) => Some("insufficient_scope"),
            Refusal::BadRequest(_) => Some("invalid_request"),
            _ => None,
        }
    }

    /// The error code of S3.
    pub fn s3_code(&self) -> &'static str {
        match self {
            Refusal::NoSuchKey => "InvalidAccessKeyId",
            Refusal::Expired => "ExpiredToken",
            Refusal::Malformed(_) | Refusal::Invalid(_) | Refusal::TooEarly => "InvalidToken",
            Refusal::User(_) | Refusal::OutOfScope(_) => "AccessDenied",
            Refusal::BadRequest(_) => "InvalidRequest",
            Refusal::WouldBlock | Refusal::Fetching | Refusal::Unavailable(_) => "ServiceUnavailable",
        }
    }

    /// A word for metrics and the access log.
    pub fn kind(&self) -> &'static str {
        match self {
            Refusal::WouldBlock => "would-block",
            Refusal::Malformed(_) => "malformed",
            Refusal::Invalid(_) => "invalid",
            Refusal::Expired => "expired",
            Refusal::TooEarly => "too-early",
            Refusal::NoSuchKey => "no-such-key",
            Refusal::User(_) => "user",
            Refusal::OutOfScope(_) => "out-of-scope",
            Refusal::BadRequest(_) => "bad-request",
            Refusal::Fetching | Refusal::Unavailable(_) => "unavailable",
        }
    }
}
