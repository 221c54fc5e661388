//! How a pool and its stores are, for people and for metrics. Plain data.

use super::spec::{Layout, StoreState};
use crate::StoreFigures;
use serde::{Deserialize, Serialize};

/// How a store behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// As it should.
    Ok,
    /// It answers much later than the others.
    Slow,
    /// It has no room.
    Full,
    /// Its last calls failed; it is asked again every now and then.
    Failing,
    /// It could not be opened, or was given up.
    Missing,
}

/// One store of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreHealth {
    /// Position in the group.
    pub slot: u16,
    /// What its label says.
    pub id: String,
    /// Where it is.
    pub url: String,
    /// What is to be done with it.
    pub state: StoreState,
    /// How it behaves.
    pub condition: Condition,
    /// Why it is not [`Condition::Ok`]: the last error, or how slow it is. Empty when it is.
    pub why: String,
    /// What was asked of it.
    pub figures: StoreFigures,
    /// Pieces that it gave and that were not what was written: damaged, old or others'.
    pub bad_pieces: u64,
    /// Reads that were begun on other stores, too, because this one did not answer in time.
    pub hedged: u64,
    /// 95 of 100 reads take less, nanoseconds; 0: not known yet.
    pub get_p95_nanos: u64,
}

/// How far a task in the background is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Objects done since the pool was assembled (repair), or in this pass (scrub).
    pub objects_done: u64,
    /// Objects known to be waiting.
    pub objects_waiting: u64,
    /// Bytes read for it.
    pub read_bytes: u64,
    /// Bytes written for it.
    pub written_bytes: u64,
}

/// How a pool is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// How objects are spread.
    pub layout: Layout,
    /// Its stores.
    pub stores: Vec<StoreHealth>,
    /// How many more stores may be lost, whichever they are, before data is. Stores that fail or are missing count
    /// as lost, and so does what is known to be missing of the worst object.
    pub may_lose: u16,
    /// Objects known to lack pieces.
    pub degraded_objects: u64,
    /// Objects known to lack more than may be: they cannot be read until stores come back.
    pub lost_objects: u64,
    /// Whether the pool was searched for missing pieces since it was assembled: before, the two counts above may be
    /// too low.
    pub searched: bool,
    /// Rebuilding and moving of pieces.
    pub repair: Progress,
    /// Reading and verifying all pieces: this pass, or the last one.
    pub scrub: Progress,
    /// The hot pool in front of this one.
    pub tier: Option<Box<TierHealth>>,
}

/// How a hot pool in front of another one is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierHealth {
    /// Bytes that it can take, in all.
    pub hot_total_bytes: u64,
    /// Bytes that it can take now.
    pub hot_available_bytes: u64,
    /// How full it is.
    pub hot_used_percent: u64,
    /// Which part of what is put its writers have to flush themselves: 0 and they are not slowed, 100 and they write at the speed
    /// of the cold pool.
    pub pressure_percent: u64,
    /// Whether the hot pool was listed: before, the counts below are too low.
    pub searched: bool,
    /// Objects that are only there.
    pub unflushed_objects: u64,
    /// Their bytes.
    pub unflushed_bytes: u64,
    /// Bytes copied to the cold pool since the cell was opened.
    pub flushed_bytes: u64,
    /// Bytes that are on both pools.
    pub evictable_bytes: u64,
    /// Why the last attempt to copy something failed; empty when it did not.
    pub last_error: String,
    /// The hot pool itself.
    pub hot: Health,
}

/// What one bounded step in the background did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// There is more that can be done now. If not, the caller waits before the next step.
    pub more: bool,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Pieces found bad or missing (scrub), or put in order (repair).
    pub pieces: u64,
}
