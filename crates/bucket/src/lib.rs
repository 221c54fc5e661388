//! One bucket of an S3-compatible object store, below a prefix. A cell on an object store, and a
//! pool's store in a bucket, are built on it.
//!
//! * [`Location`]: which bucket, on which store; from a URL, the usual AWS variables and profiles.
//! * [`Keys`]: an access key from the same sources.
//! * [`Bucket`]: its objects, for threads that wait. Every call has a deadline. Retries are few,
//!   with backoff and jitter, and done by `object_store`. The layers above decide whether to try
//!   for longer.
//! * [`Bucket::objects`]: the same objects for libraries that bring their own calls and retries
//!   (the metadata engine).
//! * [`server`]: a store in memory, with faults, for tests.
//! * [`Error`] distinguishes a wrong key, a missing bucket, a store that is away and one that is
//!   overloaded, and says what to do.
//!
//! The client library needs threads of its own: one [`runtime`] a process, started at first use,
//! never ended. They only move bytes; nothing of the file system runs on them.

mod access;
mod client;
mod error;
mod keys;
mod location;
mod runtime;
pub mod server;
mod watched;

pub use access::{Bucket, Tag};
pub use error::{Error, Result};
pub use keys::Keys;
pub use location::{BucketUrl, Location};
pub use runtime::{Runtime, runtime};
