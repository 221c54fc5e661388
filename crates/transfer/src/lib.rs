//! Brings trees of files to a file system and away from it: the work of `lee import` and
//! `lee export`.
//!
//! Nothing here knows Leeward. There are only system calls on mounted trees, so every file system
//! can be the source or the target.
//!
//! * [`sys`]: directories, inodes, extended attributes and holes by system calls. Every step goes
//!   from an open directory to a name in it and follows no symbolic link, so a user who exchanges a
//!   directory for a link while it is read leads nobody out of the tree.
//! * [`acl`]: POSIX ACLs as text.
//! * [`tar`]: archives in the pax format of POSIX.
//! * [`manifest`]: lines that `sha256sum -c` reads.
//! * [`export`]: a tree as one archive, with a manifest.
//! * [`import`]: one pass that makes a target like its source. Passes are repeated while the source
//!   is used; each copies what changed since the one before.
//! * [`output`]: a thread that writes, so that a reader that hangs does not keep the rest.
//!
//! Names are bytes. Paths in messages and results are those below the root of the tree.

pub mod acl;
pub mod export;
pub mod import;
pub mod manifest;
pub mod output;
pub mod sys;
pub mod tar;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a transfer ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It was asked to stop.
    Stopped,
    /// A sentence that names the thing, the cause and the next step.
    Failed(String),
}

impl Error {
    /// About a path and an error of the system.
    pub fn at(path: &Path, what: &str, error: &io::Error) -> Error {
        Error::Failed(format!("{}: {what}: {}", printable(&path.to_string_lossy()), cause(error)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Stopped => f.write_str("stopped before the end"),
            Error::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// The system's text for an error, without "(os error N)", beginning in lower case.
pub fn cause(error: &io::Error) -> String {
    let full = error.to_string();
    let short = full.split(" (os error").next().unwrap_or_default();
    let mut chars = short.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// A path or name for a message: control characters, with which it could write over the screen, are
/// escaped.
pub fn printable(text: &str) -> String {
    if text.chars().any(char::is_control) { text.escape_debug().to_string() } else { text.to_string() }
}

/// How far a transfer is. Others read it while it runs.
#[derive(Debug, Default)]
pub struct Counters {
    names: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    /// Names that were looked at.
    pub fn names(&self) -> u64 {
        self.names.load(Ordering::Relaxed)
    }

    /// Bytes of content that were read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn add_name(&self) {
        self.names.fetch_add(1, Ordering::Relaxed);
    }

    fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Something that was left out, or is not as it should be, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Trouble {
    /// Where, below the root of the tree; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Why.
    pub cause: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_control_characters() {
        let error = Error::at(Path::new("a\x1b[2J\nb"), "is odd", &io::Error::from_raw_os_error(libc::EIO));
        assert!(error.to_string().starts_with("a\\u{1b}[2J\\nb: is odd: "), "{error}");
        assert_eq!(printable("b\u{e4}r"), "b\u{e4}r");
    }
}
