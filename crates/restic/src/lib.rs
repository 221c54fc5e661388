//! Repositories in restic's format: encrypted, deduplicated, and readable by restic without this
//! program. The work of `lee backup`.
//!
//! Nothing here knows Leeward. A tree that is backed up is a [`archive::Source`], which may know
//! what has changed.
//!
//! * [`files`]: where a repository is: a directory, a bucket, or behind [`sftp`]; [`lock`]: who
//!   works in it;
//! * `crypto`, `pack`, `chunk`, [`tree`], [`snapshot`], `index`: how it is stored, see restic's
//!   "Design";
//! * [`repository`]: a repository that is open; [`saver`]: adds blobs to it;
//! * [`archive`]: a tree as a snapshot; unchanged directories are taken over from an older one;
//! * [`prune`], [`check`], [`restore`]: what the names say; [`compare`]: a restore that only looks.
//!
//! Invariants: a file is written whole or not at all, and never changed. A snapshot is written when
//! all that it needs is durable and in an index. Packs are removed when no index names them any
//! more.

pub mod archive;
pub mod check;
mod chunk;
pub mod compare;
mod crypto;
mod error;
pub mod files;
mod id;
mod index;
pub mod lock;
mod pack;
pub mod prune;
pub mod repository;
pub mod restore;
pub mod saver;
pub mod sftp;
pub mod snapshot;
pub mod tree;

pub use error::{Error, ErrorKind, Result};
pub use id::Id;
pub use pack::BlobKind;

/// Who watches long work, and may end it.
pub trait Watch: Send + Sync {
    /// Whether the work is to stop.
    fn is_stopped(&self) -> bool;
    /// Goes on, unless the work is to stop.
    ///
    /// # Errors
    /// Stopped.
    fn go_on(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::stopped()) } else { Ok(()) }
    }
    /// How far it is: of `total`, 0 if that is not known.
    fn report(&self, phase: &str, done: u64, total: u64);
}

/// Nobody watches.
pub struct Unwatched;

impl Watch for Unwatched {
    fn is_stopped(&self) -> bool {
        false
    }

    fn report(&self, _: &str, _: u64, _: u64) {}
}
