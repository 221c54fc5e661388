//! What can go wrong in the data log.

/// Result of a data log call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the data log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The call would have to wait, and the context forbids it. Nothing was done.
    #[error("would block")]
    WouldBlock,
    /// Stored bytes are not what was written.
    #[error("segment {segment} is damaged: {what}")]
    Corrupt {
        /// Segment number.
        segment: u64,
        /// What is wrong.
        what: String,
    },
    /// The address points to data that the segment does not have: damage, or a bug.
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

/// The error as a caller of the file system sees it.
impl From<Error> for leeward_fs::Error {
    fn from(e: Error) -> leeward_fs::Error {
        match e {
            Error::WouldBlock => leeward_fs::Error::WouldBlock,
            Error::Store(leeward_pool::Error::Full) => leeward_fs::Error::NoSpace,
            Error::Store(e @ (leeward_pool::Error::NotFound(_) | leeward_pool::Error::Short(_))) => {
                leeward_fs::Error::Corrupt(e.to_string())
            }
            Error::Store(e) => leeward_fs::Error::Io(e.to_string()),
            e @ (Error::Corrupt { .. } | Error::Absent { .. } | Error::Newer { .. }) => {
                leeward_fs::Error::Corrupt(e.to_string())
            }
        }
    }
}
