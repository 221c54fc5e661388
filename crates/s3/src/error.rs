//! Errors in the form of S3.

use crate::buckets::BucketError;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use leeward_door::listen::Busy;
use leeward_fs::Error;
use s3s::{S3Error, S3ErrorCode};

/// An error with a code of our own, where S3 has none that fits.
pub(crate) fn own(code: &'static str, status: u16, message: &'static str) -> S3Error {
    let mut e = S3Error::with_message(S3ErrorCode::Custom(code.into()), message);
    e.set_status_code(hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::BAD_REQUEST));
    e
}

/// An error of an operation on an object.
pub(crate) fn of(e: Error) -> S3Error {
    let with = S3Error::with_message;
    match e {
        Error::NotFound | Error::Stale | Error::NoData => {
            with(S3ErrorCode::NoSuchKey, "There is no such object.")
        }
        Error::Access | Error::NotPermitted => {
            with(S3ErrorCode::AccessDenied, "The modes and ACLs of the files do not permit it to this user.")
        }
        Error::ReadOnly => with(S3ErrorCode::AccessDenied, "A snapshot cannot be changed."),
        Error::NotDir => own(
            "KeyConflict",
            409,
            "A part of the key before a slash is a file: a key cannot be both a file and a directory.",
        ),
        Error::IsDir => own(
            "KeyConflict",
            409,
            "There is a directory of this name: a key cannot be both a file and a directory.",
        ),
        Error::NotEmpty => own("KeyConflict", 409, "The directory is not empty."),
        Error::NameTooLong => {
            own("XMinioInvalidObjectName", 400, "A name in the key is longer than 255 bytes.")
        }
        Error::Changed | Error::Exists => {
            with(S3ErrorCode::PreconditionFailed, "The object is not as the condition says.")
        }
        Error::Quota => own("QuotaExceeded", 403, "A quota would be exceeded; lee quota list shows it."),
        Error::TooManyUploads => with(
            S3ErrorCode::InvalidRequest,
            "This user has 10,000 uploads, or 100,000 parts of such, that are not complete: complete or abort some.",
        ),
        Error::NoSpace => own("InsufficientStorage", 507, "The store is full."),
        Error::TooBig => with(S3ErrorCode::EntityTooLarge, "A file has at most 16 TiB."),
        Error::AttrTooBig | Error::Range => with(S3ErrorCode::MetadataTooLarge, "The metadata do not fit."),
        Error::NotSupported => with(S3ErrorCode::NoSuchKey, "There is something that is no file."),
        Error::CrossVolume | Error::Busy | Error::TooManyLinks => {
            own("OperationAborted", 409, "Another volume is there.")
        }
        // the last four are of locks that programs take, which doors do not
        Error::WouldBlock | Error::Locked | Error::Deadlock | Error::TooManyLocks | Error::Interrupted => {
            with(S3ErrorCode::SlowDown, "Try again.")
        }
        Error::Unavailable => own(
            "ServiceUnavailable",
            503,
            "The server of the cell does not answer. Whether this was done is not known. Try again.",
        ),
        e @ Error::Invalid => S3Error::with_message(S3ErrorCode::InvalidArgument, e.to_string()),
        e @ (Error::NoSuchPosition | Error::Corrupt(_) | Error::Io(_) | Error::Elsewhere(_)) => {
            S3Error::with_message(S3ErrorCode::InternalError, e.to_string())
        }
    }
}

/// The error for a client that should come back later.
pub(crate) fn busy(busy: Busy) -> S3Error {
    let why = "This user's requests are more than his share: come back later.";
    with_header(later(why), RETRY_AFTER, busy.retry_after_secs)
}

/// An error of an operation on a bucket's own directory.
pub(crate) fn of_root(e: Error) -> S3Error {
    match e {
        Error::NotFound | Error::NotDir | Error::Stale => S3Error::with_message(
            S3ErrorCode::NoSuchBucket,
            "The directory of this bucket is not there (any more).",
        ),
        e => of(e),
    }
}

/// The error when there is no room now.
pub(crate) fn later(why: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::SlowDown, why)
}

/// Adds a header to the answer.
pub(crate) fn with_header(mut e: S3Error, name: HeaderName, value: impl Into<HeaderValue>) -> S3Error {
    let mut headers = e.headers().cloned().unwrap_or_default();
    headers.insert(name, value.into());
    e.set_headers(headers);
    e
}

pub(crate) fn not_implemented(what: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::NotImplemented, format!("{what} are not supported."))
}

/// An error of making or changing a bucket.
pub(crate) fn of_bucket(e: BucketError) -> S3Error {
    match e {
        BucketError::Taken => S3Error::with_message(S3ErrorCode::BucketAlreadyExists, "The name is taken."),
        BucketError::Yours => {
            S3Error::with_message(S3ErrorCode::BucketAlreadyOwnedByYou, "You have this bucket already.")
        }
        BucketError::Unknown => no_such_bucket(),
        BucketError::Refused(why) => S3Error::with_message(S3ErrorCode::AccessDenied, why),
        BucketError::Failed(why) => S3Error::with_message(S3ErrorCode::InternalError, why),
    }
}

pub(crate) fn no_such_bucket() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::NoSuchBucket,
        "There is no such bucket; lee bucket list shows those that there are.",
    )
}
