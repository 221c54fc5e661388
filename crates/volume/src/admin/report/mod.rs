//! Requests about what was used, and when, from the samples of each day; and what went through
//! doors.

mod census;
mod day;
mod transfers;
mod usage;

pub use census::*;
pub use day::*;
pub use transfers::*;
pub use usage::*;
