//! Volumes: POSIX semantics over records and segments, and the cell that holds them.
//!
//! * [`remote`]: the same cell in a bucket; `identity`: what says that something is a cell.
//! * [`Cell`]: what front ends and operators hold; `dispatch`: the one way in; `ops/`: one file per group of operations.
//! * `shard`, `records`, `overlay`: state in memory, the running transaction; operations are pure functions over `records::Tx`.
//! * `pending`: content whose segment is not durable yet; `commit`: how the rest becomes durable.
//! * `snapshots`, `versions`, `trim`: snapshots, what is kept for them, how it is read and freed. `diff`, `restore`: their use.
//! * `schedule`: snapshots taken and removed by the time; `clock`: what their locks go by.
//! * `recycle`: the recycle bin. `buckets`: what is published at the S3 door. `tell`: what came in by a door is told to who caches.
//! * `pools`, `care`: where data is kept, and that it stays whole, also by the clock (`scrubs`); `moves`: how it gets from one pool to another.
//! * `keys`, `inode`, `extents`: the stored form. `segments`, `reclaim`, `clean`: space. `quota`, `flows`, `fsck`, `control`, `figures`: operators.
//! * [`accounts`]: who may come in by a door. [`uploads`]: uploads in parts.
//!
//! Invariants: records point to durable data only; nothing does I/O under the shard's lock but short scans.

pub mod accounts;
pub mod admin;
pub mod buckets;
mod care;
mod cell;
mod clean;
mod clock;
mod commit;
pub mod config;
mod control;
mod diff;
mod disk_cache;
mod dispatch;
pub mod extents;
mod figures;
pub mod flows;
mod fsck;
mod identity;
pub mod inode;
pub mod keys;
mod moves;
mod ops;
mod overlay;
mod paths;
mod pending;
mod pools;
mod quota;
mod reclaim;
mod records;
mod recycle;
mod refs;
pub mod remote;
mod restore;
pub mod schedule;
pub mod scrub_round;
pub mod scrubs;
mod segments;
mod shard;
mod snapshots;
mod statistics;
mod stored;
mod stores;
mod tell;
mod tiers;
mod trim;
mod turns;
mod unreadable;
pub mod uploads;
mod versions;
mod wake;

pub use cell::{Cell, first_batch};
pub use config::Config;
pub use figures::Figures;
pub use identity::FORMAT;
pub use leeward_pool::{CallFigures, Condition, GateFigures, Health, Layout, StoreState, TierHealth};
pub use pools::Opener;
pub use stored::Stored;
