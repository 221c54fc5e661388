//! The tests of this crate, as one program: it is linked once. `./test` runs each file in a process
//! of its own.

mod accounts;
mod acl;
mod bin;
mod bounded;
mod buckets;
mod census;
mod commit_path;
mod events;
mod extents;
mod flags;
mod flows;
mod formats;
mod golden;
mod groups;
mod hosts;
mod journal;
mod lists;
mod mirrors;
mod operators;
mod owners;
mod place;
mod pools;
mod projects;
mod rig;
mod samples;
mod scrubs;
mod sessions;
mod shards;
mod snapshots;
mod standing;
mod statistics;
mod strays;
mod tiers;
mod turns;
mod uploads;
