//! Space: what removal, cleaning and moves free, in the background; and what is counted below each directory.

pub(crate) mod clean;
pub(crate) mod moves;
pub(crate) mod reclaim;
pub(crate) mod recycle;
pub(crate) mod statistics;
