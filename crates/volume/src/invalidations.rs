//! Counts the invalidations after changes by a door, and how many of them front ends have applied.

use std::sync::atomic::AtomicU64;

/// Number of invalidations sent, and number of those applied.
#[derive(Default)]
pub struct Invalidations {
    pub(crate) sent: AtomicU64,
    pub(crate) applied: AtomicU64,
}
