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

use crate::admin::Failure;
use crate::shard::Shard;

/// The end of the time that is asked about: `None` is now, the beginning of the day after today.
fn end_of(shard: &Shard, from: Day, to: Option<Day>) -> Result<Day, Failure> {
    let tomorrow = Day(shard.today()).plus(1);
    let to = to.unwrap_or(tomorrow);
    if from >= to || to > tomorrow {
        let why = format!("there is no time from {from} to {to}: today is {}", tomorrow.minus(1));
        return Err(Failure::new(libc::EINVAL, why));
    }
    Ok(to)
}
