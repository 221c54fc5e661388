//! Why something in a repository is not done. The texts say what to do.

use std::fmt;
use std::io;

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no repository.
    NoRepository,
    /// The password opens no key of the repository.
    Password,
    /// Others work in the repository.
    Locked,
    /// The place has no space left.
    Full,
    /// The place does not answer, or refuses.
    Place,
    /// What is stored is not what was written.
    Damaged,
    /// The tree that is backed up cannot be read.
    Source,
    /// It was asked to stop.
    Stopped,
    /// Anything else.
    Failed,
}

/// A failure: its kind, and a sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What kind it is.
    pub kind: ErrorKind,
    /// Names the thing, the cause and the next step.
    pub text: String,
}

impl Error {
    /// A failure.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into() }
    }

    pub(crate) fn damaged(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Damaged, text)
    }

    /// About a path and an error of the system.
    pub fn at(path: &str, e: &io::Error) -> Error {
        let cause = leeward_transfer::cause(e);
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::new(ErrorKind::Full, format!("{path}: {cause}: make room there"))
            }
            _ => Error::new(ErrorKind::Place, format!("{path}: {cause}")),
        }
    }

    /// That it was asked to stop.
    pub fn stopped() -> Error {
        Error::new(ErrorKind::Stopped, "stopped before the end: the next run goes on")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
