//! Errors of the file system as HTTP statuses.

use leeward_fs::Error;

/// The status that HTTP doors answer with. Errors hide the same as in the mount: for example
/// whether a file exists that the user may not see.
pub fn status_of(e: &Error) -> u16 {
    match e {
        Error::NotFound | Error::NoData | Error::Stale => 404,
        Error::Access | Error::NotPermitted | Error::ReadOnly => 403,
        Error::Exists
        | Error::NotDir
        | Error::IsDir
        | Error::NotEmpty
        | Error::CrossVolume
        | Error::TooManyLinks => 409,
        Error::Changed => 412,
        Error::Invalid | Error::NameTooLong => 400,
        Error::TooBig | Error::AttrTooBig | Error::Range => 413,
        Error::NoSuchPosition => 416,
        Error::Busy | Error::Locked => 423,
        Error::NotSupported => 501,
        Error::Quota | Error::NoSpace | Error::TooManyUploads => 507,
        Error::WouldBlock
        | Error::Deadlock
        | Error::TooManyLocks
        | Error::Interrupted
        | Error::Unavailable => 503,
        Error::Corrupt(_) | Error::Io(_) | Error::Elsewhere(_) => 500,
    }
}
