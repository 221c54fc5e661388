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
    /// The store failed.
    #[error("store: {0}")]
    Io(#[from] std::io::Error),
}
