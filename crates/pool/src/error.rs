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
    /// Too few of the object's pieces can be had just now; with the stores that have the others it comes back.
    #[error("object {id:?} cannot be read: {have} of its pieces can be had, {need} are needed; {why}")]
    Unavailable {
        /// The object.
        id: ObjectId,
        /// Pieces that were had.
        have: usize,
        /// Pieces that are enough.
        need: usize,
        /// What became of the others, by store.
        why: String,
    },
    /// Another object of this name is there already and stays: see [`crate::Store::put`].
    #[error("another object {0:?} is there already")]
    Exists(ObjectId),
    /// The store asks to be asked less. Nothing was done; the same call may work in a moment.
    #[error("{0}")]
    Busy(String),
    /// The store does not answer. What was asked may have been done or not; the same call may work in a moment.
    #[error("{0}")]
    Away(String),
    /// The store refuses us: credentials, rights, a bucket that is not there. The text says what to do.
    #[error("{0}")]
    Refused(String),
    /// The store failed.
    #[error("store: {0}")]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Whether the same call may work in a moment, without anybody doing anything about it here.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Busy(_) | Error::Away(_))
    }

    /// Whether it says nothing about the object, but that the store does not do as it is asked.
    pub fn is_failure(&self) -> bool {
        match self {
            Error::Io(_) | Error::Unavailable { .. } => true,
            Error::Busy(_) | Error::Away(_) | Error::Refused(_) => true,
            Error::NotFound(_) | Error::Short(_) | Error::Exists(_) | Error::Full => false,
        }
    }

    /// Whether the store says that it has too much to do.
    pub fn is_overload(&self) -> bool {
        use std::io::ErrorKind::{ResourceBusy, TimedOut, WouldBlock};
        match self {
            Error::Busy(_) => true,
            Error::Io(e) => matches!(e.kind(), ResourceBusy | TimedOut | WouldBlock),
            _ => false,
        }
    }
}
