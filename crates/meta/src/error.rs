//! What can go wrong in a metadata engine.

use std::io;

/// Result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a metadata engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No space: the batch does not count, and may be tried again.
    #[error("no space for metadata")]
    Full,
    /// Stored bytes are not what was written.
    #[error("metadata is damaged: {0}")]
    Corrupt(String),
    /// An earlier failure left the engine unusable; reopen the cell.
    #[error("the metadata engine stopped after an error: {0}")]
    Broken(String),
    /// Another process has this directory open.
    #[error("the metadata directory is in use by another process")]
    Locked,
    /// The store failed.
    #[error("metadata store: {0}")]
    Io(io::Error),
}

impl From<io::Error> for Error {
    /// Lack of space, of whatever kind, is [`Error::Full`].
    fn from(e: io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full,
            _ => Error::Io(e),
        }
    }
}

/// The error as a caller of the file system sees it.
impl From<Error> for leeward_fs::Error {
    fn from(e: Error) -> leeward_fs::Error {
        match e {
            Error::Full => leeward_fs::Error::NoSpace,
            Error::Corrupt(what) => leeward_fs::Error::Corrupt(what),
            e @ (Error::Broken(_) | Error::Locked | Error::Io(_)) => leeward_fs::Error::Io(e.to_string()),
        }
    }
}
