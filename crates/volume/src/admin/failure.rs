//! How far a request is, and why it failed. The rooms below the requests use these
//! words, too.

use leeward_bucket::Error as BucketError;
use leeward_fs::Error;
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// How far a long request is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What it does now, such as `names` or `segments`.
    pub phase: String,
    /// How much is done.
    pub done: u64,
    /// How much there is to do; 0: unknown.
    pub total: u64,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Failure {
    /// The thing, the cause and the next step, for a person.
    pub message: String,
    /// errno of the cause; 0 where there is none.
    pub errno: i32,
}

impl Failure {
    /// A failure with this text.
    pub(crate) fn new(errno: i32, message: impl Into<String>) -> Failure {
        Failure { message: message.into(), errno }
    }
}

/// Makes a failure of an error; the text names `what` failed.
pub(super) fn about(what: impl Display) -> impl FnOnce(Error) -> Failure {
    move |e| Failure::new(e.errno(), format!("{what}: {e}"))
}

/// What a bucket says.
pub(crate) fn refused(e: BucketError) -> Failure {
    let errno = match e {
        BucketError::Refused(_) => libc::EACCES,
        BucketError::Full(_) => libc::ENOSPC,
        BucketError::NoBucket(_) | BucketError::Missing(_) => libc::ENOENT,
        BucketError::Away(_) | BucketError::Busy(_) => libc::ETIMEDOUT,
        _ => 0,
    };
    Failure { message: e.to_string(), errno }
}
