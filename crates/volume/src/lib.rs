//! Volumes: POSIX semantics over records and segments, and the cell that holds them.
//!
//! The modules, from the bottom up: data below, steps above. All of them use the types of [`admin`]
//! that describe the cell to operators.
//!
//! * [`format`]: how records are stored: keys and encodings;
//! * `state`: the data under the shard's lock, a table in each module; the effects of operations on
//!   it (`state::effect`);
//! * `tx`: the running transaction. Operations are pure functions over it;
//! * `shard`: the state, the engine and the data log; `attempt`: the one way to change them;
//! * `commit`: how changes become durable; `ops`: POSIX, a file for each group of operations;
//!   `uploads`: uploads in parts;
//! * `snapshots`, `space`, `pools`: versions for snapshots, freeing and cleaning of space, location
//!   of data. Most of this runs in steps, in the background; `stream`: snapshots that go to other
//!   cells;
//! * [`admin`]: requests of operators, `fsck` and figures among them;
//! * `dispatch`: the entry point for operations; `invalidate`: changes by doors are announced to
//!   front ends that cache;
//! * `cell`: opening, recovery and threads. Front ends and operators hold a [`Cell`]; [`remote`]:
//!   the same in a bucket.
//!
//! Invariants: records point to durable data only; nothing does I/O under the shard's lock except
//! short scans.

pub mod admin;
mod agreed;
mod attempt;
mod before;
mod calls;
mod cell;
mod clock;
mod commit;
pub mod config;
mod dispatch;
pub mod format;
mod invalidate;
mod invalidations;
mod leasing;
mod ops;
mod paths;
mod pools;
pub mod remote;
mod sessions;
mod shard;
mod snapshots;
mod space;
mod state;
mod store_check;
mod stream;
mod tx;
mod uploads;
mod wake;

pub use admin::figures::Figures;
pub use cell::{Cell, Trouble, first_batch, first_batch_of_shard};
pub use config::Config;
pub use format::stored::Stored;
pub use format::versions::{FORMAT, FORMAT_KEPT};
pub use leeward_pool::{
    CallFigures, Condition, GateFigures, Health, Layout, StoreFigures, StoreHealth, StoreState, TierHealth,
};
pub use pools::Opener;
pub use snapshots::reader::{SnapshotChanges, SnapshotEntry, SnapshotInode, SnapshotReader};
pub use state::uploads::{NOTE_BYTES_PER_USER_MAX, UPLOADS_PER_USER_MAX};
