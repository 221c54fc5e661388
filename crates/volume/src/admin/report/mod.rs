//! Requests about what was used, and when: from the samples of each day.

mod census;
mod day;
mod usage;

pub use census::*;
pub use day::*;
pub use usage::*;
