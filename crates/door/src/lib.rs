//! What doors on a network share: S3 and HTTP are translations of a protocol to what is here.
//!
//! * [`Files`]: the files of a cell by path, as a user, through the same gate, quotas and accounting as the mount. [`Tree`] is where a door's
//!   request works: a directory of the cell and below it, as one user. [`File`] reads, [`Upload`] writes: whole or not at all.
//! * [`Who`]: whom a request acts as; `who.rs` has the checks that the kernel makes for the mount.
//! * [`Path`]: what may be a path.
//! * [`keys`]: all files below a directory in the order of their paths as bytes, from anywhere.
//! * [`notes`]: what doors keep beside a file's content: checksums, headers.
//! * [`Shares`]: what users share of anything bounded.
//! * [`listen`]: connections: TLS, limits, time limits, overload, the access log, figures.
//!
//! Invariants: nothing is done to a file but by operations of the gate; no thread of the runtime waits for a store or a commit; memory is
//! bounded by [`limits`], whatever clients do.

// what instruments every program that `tests/fuzz` builds is in it
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
mod shares;
mod steps;
mod upload;
mod who;

pub use digest::Digest;
pub use error::status_of;
pub use file::File;
pub use files::{Files, Found, Spot, Tree};
pub use path::{BadPath, PATH_BYTES_MAX, Path};
pub use shares::{Share, Shares, Waiting};
pub use upload::{Finish, Upload};
pub use who::{R, W, Who, X};
