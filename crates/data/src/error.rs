//! What can go wrong in the data log.

/// Result of a data log call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the data log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The call would have had to wait and the context forbids it. Nothing happened.
    #[error("would block")]
    WouldBlock,
    /// Stored bytes are not what was written.
    #[error("segment {segment} is damaged: {what}")]
    Corrupt {
        /// Segment number.
        segment: u64,
        /// What does not hold.
        what: String,
    },
    /// The address points to data that the segment does not hold: damage, or a programmer's error.
    #[error("segment {segment} holds no data at {offset}")]
    Absent {
        /// Segment number.
        segment: u64,
        /// Logical offset.
        offset: u32,
    },
    /// The object was written by a newer program.
    #[error(
        "segment {segment} has format {format}, newer than this program understands ({})",
        crate::format::FORMAT
    )]
    Newer {
        /// Segment number.
        segment: u64,
        /// Version of the format found.
        format: u16,
    },
    /// The store failed or is full.
    #[error(transparent)]
    Store(#[from] leeward_pool::Error),
}
