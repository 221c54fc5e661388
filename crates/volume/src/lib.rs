//! Volumes: POSIX semantics over records and segments.

pub mod admin;
mod cell;
pub mod config;
mod error;
pub mod op;

pub use cell::{Cell, Watcher};
pub use config::Config;
pub use error::{Error, Result};
pub use op::{NodeId, Op, Reply};
