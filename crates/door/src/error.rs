//! What an error of the file system is in HTTP.

use leeward_fs::Error;

/// The status that HTTP doors answer with. Errors that say what a user must not know (whether something is there that he may not see) are
/// the same as in the mount.
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
        Error::Busy => 423,
        Error::NotSupported => 501,
        Error::Quota | Error::NoSpace | Error::TooManyUploads => 507,
        Error::WouldBlock => 503,
        Error::Corrupt(_) | Error::Io(_) => 500,
    }
}
