//! What can go wrong in a store.

use crate::ObjectId;

/// Result of a store call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a store. Names the object; callers add the path of the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such object.
    #[error("object {0:?} is missing")]
    NotFound(ObjectId),
    /// The object ends before the range that was asked for.
    #[error("object {0:?} is shorter than it should be")]
    Short(ObjectId),
    /// The store is full.
    #[error("the store is full")]
    Full,
    /// Too few of the object's pieces can be read now. The object is readable again when the stores
    /// that have the other pieces are back.
    #[error("object {id:?} cannot be read: {have} of its pieces can be had, {need} are needed; {why}")]
    Unavailable {
        /// The object.
        id: ObjectId,
        /// Pieces that could be read.
        have: usize,
        /// Pieces that are needed.
        need: usize,
        /// Why the others could not be read, by store.
        why: String,
    },
    /// Another object of this name exists already and stays: see [`crate::Store::put`].
    #[error("another object {0:?} is there already")]
    Exists(ObjectId),
    /// The store asks for fewer requests. Nothing was done; the same call may work in a moment.
    #[error("{0}")]
    Busy(String),
    /// The store does not answer. The call may have been carried out or not; the same call may work
    /// in a moment.
    #[error("{0}")]
    Away(String),
    /// The store refuses our requests: credentials, rights, a missing bucket. The text says what to
    /// do.
    #[error("{0}")]
    Refused(String),
    /// The store failed.
    #[error("store: {0}")]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Whether the same call may succeed in a moment, without any action on this side.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Busy(_) | Error::Away(_))
    }

    /// Whether the error is about the store and not about the object.
    pub fn is_failure(&self) -> bool {
        match self {
            Error::Io(_) | Error::Unavailable { .. } => true,
            Error::Busy(_) | Error::Away(_) | Error::Refused(_) => true,
            Error::NotFound(_) | Error::Short(_) | Error::Exists(_) | Error::Full => false,
        }
    }

    /// Whether the store says that it is overloaded.
    pub fn is_overload(&self) -> bool {
        use std::io::ErrorKind::{ResourceBusy, TimedOut, WouldBlock};
        match self {
            Error::Busy(_) => true,
            Error::Io(e) => matches!(e.kind(), ResourceBusy | TimedOut | WouldBlock),
            _ => false,
        }
    }
}
