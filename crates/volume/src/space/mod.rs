//! Space: freeing by removal, cleaning and moves, in the background; and the figures below each
//! directory.

pub(crate) mod census;
pub(crate) mod clean;
pub(crate) mod events;
pub(crate) mod moves;
pub(crate) mod reclaim;
pub(crate) mod recycle;
pub(crate) mod samples;
pub(crate) mod statistics;
