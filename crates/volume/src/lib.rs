//! Volumes: POSIX semantics over records and segments.

pub mod admin;
mod error;
pub mod op;

pub use error::{Error, Result};
pub use op::{NodeId, Op, Reply};
