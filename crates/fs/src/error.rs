//! Errors of the file system, and the one table from kind to errno.

use crate::NodeId;
use crate::codec::{Input, Malformed, Taken, Wire};

/// Result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident => $errno:ident, $text:literal;)*) => {
        /// An error of the file system.
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        pub enum Error {
            $($(#[$doc])* #[error($text)] $name,)*
            /// Stored bytes are damaged (EIO). The text says which object.
            #[error("damaged: {0}")]
            Corrupt(String),
            /// The store or the metadata engine failed (EIO). The text says how.
            #[error("{0}")]
            Io(String),
            /// Another shard of the cell has this inode (EREMOTE): [`crate::shards`] asks that one.
            #[error("inode {0:?} is in another shard")]
            Elsewhere(NodeId),
        }

        /// Positions in the list.
        #[derive(Clone, Copy)]
        enum Number {
            Corrupt,
            Io,
            $($name,)*
            Elsewhere = 0xff,
        }

        impl Wire<'_> for Error {
            fn put(&self, out: &mut Vec<u8>) {
                let number = match self {
                    Error::Corrupt(_) => Number::Corrupt,
                    Error::Io(_) => Number::Io,
                    $(Error::$name => Number::$name,)*
                    Error::Elsewhere(_) => Number::Elsewhere,
                };
                out.push(number as u8);
                match self {
                    Error::Corrupt(text) | Error::Io(text) => text.as_bytes().put(out),
                    Error::Elsewhere(node) => node.put(out),
                    _ => {}
                }
            }

            fn take(from: &mut Input<'_>) -> Taken<Error> {
                match u8::take(from)? {
                    n if n == Number::Corrupt as u8 => Wire::take(from).map(Error::Corrupt),
                    n if n == Number::Io as u8 => Wire::take(from).map(Error::Io),
                    $(n if n == Number::$name as u8 => Ok(Error::$name),)*
                    n if n == Number::Elsewhere as u8 => Wire::take(from).map(Error::Elsewhere),
                    _ => Err(Malformed::Unknown),
                }
            }
        }

        impl Error {
            /// The errno that a POSIX front end answers with.
            pub fn errno(&self) -> i32 {
                match self {
                    $(Error::$name => libc::$errno,)*
                    Error::Corrupt(_) | Error::Io(_) => libc::EIO,
                    Error::Elsewhere(_) => libc::EREMOTE,
                }
            }

            /// The kinds without a text of their own, with their errnos, for docs and tests.
            pub const TABLE: &'static [(&'static str, i32)] = &[$((stringify!($name), libc::$errno),)*];
        }
    };
}

errors! {
    /// No such name or inode.
    NotFound => ENOENT, "no such file or directory";
    /// The name is taken.
    Exists => EEXIST, "already exists";
    /// A directory was needed.
    NotDir => ENOTDIR, "not a directory";
    /// Anything but a directory was needed.
    IsDir => EISDIR, "is a directory";
    /// The directory has entries.
    NotEmpty => ENOTEMPTY, "directory not empty";
    /// Not allowed by permission bits or ACL.
    Access => EACCES, "permission denied";
    /// Only the owner or root may.
    NotPermitted => EPERM, "operation not permitted";
    /// An argument out of range.
    Invalid => EINVAL, "invalid argument";
    /// The name is longer than 255 bytes.
    NameTooLong => ENAMETOOLONG, "name too long";
    /// The file would exceed 16 TiB.
    TooBig => EFBIG, "file too large";
    /// A quota would be exceeded.
    Quota => EDQUOT, "quota exceeded";
    /// The store is full.
    NoSpace => ENOSPC, "no space left";
    /// The two are in different volumes.
    CrossVolume => EXDEV, "another volume";
    /// Too many hard links.
    TooManyLinks => EMLINK, "too many links";
    /// The user has too many uploads in parts, or parts in them.
    TooManyUploads => EDQUOT, "too many uploads in parts";
    /// No such attribute.
    NoData => ENODATA, "no such attribute";
    /// The attribute value does not fit the caller's buffer or our limit.
    Range => ERANGE, "value too large";
    /// An attribute larger than the limit.
    AttrTooBig => E2BIG, "attribute too large";
    /// In use (a volume is attached here).
    Busy => EBUSY, "busy";
    /// Not supported for this kind of inode.
    NotSupported => EOPNOTSUPP, "not supported";
    /// Seek past the end.
    NoSuchPosition => ENXIO, "no data there";
    /// Read-only.
    ReadOnly => EROFS, "read-only";
    /// The inode is gone.
    Stale => ESTALE, "stale";
    /// The inode to be replaced was changed or replaced meanwhile.
    Changed => EBUSY, "changed meanwhile";
    /// The call would wait and the context forbids it; nothing was done.
    WouldBlock => EAGAIN, "would block";
    /// Somebody else has a lock that is in the way.
    Locked => EAGAIN, "locked by another";
    /// To wait for the lock would be to wait for ever: others wait for this owner.
    Deadlock => EDEADLK, "waiting for the lock would be a deadlock";
    /// The session has too many locks.
    TooManyLocks => ENOLCK, "too many locks";
    /// Whoever asked had a signal.
    Interrupted => EINTR, "interrupted";
    /// The server of the cell, on another machine, does not answer, or another process serves there
    /// now. It is not known whether it was done.
    Unavailable => EIO, "the server of the cell does not answer";
}
