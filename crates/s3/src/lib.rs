//! The S3 door: a bucket is a directory of the cell, an object is a file in it, and keys are paths.
//!
//! [`S3Door`] is a [`Site`](leeward_door::listen::Site) for `leeward_door::listen`. The crate `s3s`
//! implements the protocol (signatures in all their forms, XML, routes). `leeward_door` does the
//! work on files. This crate has what lies between: the file of a key (`names`), attributes beside
//! its content (`meta`), its checksums (`sums`), uploads in parts (`parts`); and the limits on the
//! library's memory (`access`, `chunks`, `site`).
//!
//! [`Keys`] looks up access keys, [`Buckets`] looks up buckets. Both are called for each request
//! and answer from memory.
//!
//! Invariants: every request acts as a user with that user's rights, none as root; an answer to a
//! change means that it is durable; no secret is in a `Debug` here.

mod access;
mod answers;
mod buckets;
mod call;
mod chunks;
mod conditions;
mod copy;
mod cors;
mod delete;
mod error;
mod forms;
mod headers;
mod host;
#[cfg(test)]
mod hostile;
mod list;
mod meta;
mod names;
mod objects;
mod pace;
mod parts;
mod service;
mod site;
mod sums;
mod uploads;

pub use access::{Found, Keys, NotFound, operations};
pub use buckets::{Bucket, BucketError, Buckets, PublicPolicy};
pub use site::{Options, S3Door};
