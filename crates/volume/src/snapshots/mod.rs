//! Snapshots: what is kept for them and how it is read ([`versions`]), how it is freed ([`trim`]),
//! and their use: [`diff`], [`restore`], [`schedule`], [`reader`]; [`tree`] is what a snapshot
//! shows.

pub(crate) mod diff;
pub(crate) mod reader;
pub(crate) mod restore;
pub(crate) mod schedule;
pub(crate) mod tree;
pub(crate) mod trim;
pub(crate) mod versions;
