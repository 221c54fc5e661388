//! The common part of doors on a network: S3 and HTTP translate their protocols to it.
//!
//! * [`Files`]: the files of a cell by path, as a user, through the same gate, quotas and
//!   accounting as the mount. A door's request works in a [`Tree`]: a directory of the cell and
//!   everything below it, as one user. [`File`] reads, [`Upload`] writes: whole or not at all.
//! * [`Principal`]: the user that a request acts as. What that user may do is checked by the rules
//!   of [`leeward_fs::rights`], as the kernel does for the mount.
//! * [`Path`]: the form of paths.
//! * [`keys`]: all files below a directory in the order of their paths as bytes, from any point on.
//! * [`notes`]: what doors keep beside a file's content: checksums, headers.
//! * [`FairSemaphore`]: shares a bounded resource between users.
//! * [`listen`]: connections: TLS, limits, time limits, overload, the access log, figures.
//!
//! Invariants: only operations of the gate change a file; no thread of the runtime waits for a
//! store or a commit; memory is bounded by [`limits`], whatever clients do.

// the library that instruments every program built by `tests/fuzz`
#[cfg(test)]
use bolero as _;

mod digest;
pub mod error;
pub mod file;
mod files;
pub mod keys;
mod like;
pub mod limits;
pub mod listen;
mod names;
pub mod notes;
mod parts;
mod path;
mod semaphore;
mod steps;
mod upload;
mod who;

pub use digest::Digest;
pub use error::status_of;
pub use file::File;
pub use files::{Files, Found, PathEntry, Tree};
pub use leeward_fs::rights::{R, W, X};
pub use path::{BadPath, PATH_BYTES_MAX, Path};
pub use semaphore::{FairPermit, FairSemaphore, Waiting};
pub use upload::{Finish, Upload};
pub use who::Principal;
