//! How much front ends were told of changes that came in by another door, and how much of it they have heard.

use std::sync::atomic::AtomicU64;

/// How much was told, and how much of it was heard.
#[derive(Default)]
pub struct Invalidations {
    pub(crate) said: AtomicU64,
    pub(crate) heard: AtomicU64,
}
