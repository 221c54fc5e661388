//! Requests about what was used, and when: from the samples of each day.

mod day;
mod usage;

pub use day::*;
pub use usage::*;
