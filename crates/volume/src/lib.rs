//! Volumes: POSIX semantics over records and segments, and the cell that holds them.
//!
//! Rooms, from the bottom up: data below, steps above. What an operator is told ([`admin`]) has words that all rooms use.
//!
//! * [`format`]: how records are stored: keys and encodings;
//! * `state`: what the shard's lock protects, a table in each module; what an operation does to them (`state::effect`);
//! * `tx`: the running transaction. Operations are pure functions over it;
//! * `shard`: the state, the engine and the data log, and the one way to change them;
//! * `commit`: how changes become durable; `ops`: POSIX, a file for each group of operations; `uploads`: uploads in parts;
//! * `snapshots`, `space`, `pools`: what snapshots keep, what removal and cleaning free, where data is. Most of it in steps, in the background;
//! * [`admin`]: what operators ask for, `fsck` and figures among it;
//! * `dispatch`: the one way in for operations; `tell`: what came in by a door is told to front ends that cache;
//! * `cell`: opening, recovery and threads. [`Cell`] is what front ends and operators hold; [`remote`]: the same in a bucket.
//!
//! Invariants: records point to durable data only; nothing does I/O under the shard's lock but short scans.

pub mod admin;
mod cell;
mod clock;
mod commit;
pub mod config;
mod dispatch;
pub mod format;
mod invalidations;
mod ops;
mod paths;
mod pools;
pub mod remote;
mod shard;
mod snapshots;
mod space;
mod state;
mod tell;
mod tx;
mod uploads;
mod wake;

pub use admin::figures::Figures;
pub use cell::identity::FORMAT;
pub use cell::{Cell, first_batch};
pub use config::Config;
pub use format::stored::Stored;
pub use leeward_pool::{CallFigures, Condition, GateFigures, Health, Layout, StoreState, TierHealth};
pub use pools::Opener;
pub use state::uploads::{NOTE_BYTES_PER_USER_MAX, UPLOADS_PER_USER_MAX};
