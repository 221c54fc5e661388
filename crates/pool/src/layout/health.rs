//! The state of a pool and its stores, for people and for metrics. Plain data.

use super::spec::{Layout, StoreState};
use crate::StoreFigures;
use serde::{Deserialize, Serialize};

/// How a store behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// It works.
    Ok,
    /// It answers much later than the others.
    Slow,
    /// It is full.
    Full,
    /// Its last calls failed; it is tried again now and then.
    Failing,
    /// It could not be opened, or an operator gave it up.
    Missing,
}

/// One store of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreHealth {
    /// Position in the group.
    pub slot: u16,
    /// Id of the store, as its label has it.
    pub id: String,
    /// URL of the store.
    pub url: String,
    /// What the operator wants done with it.
    pub state: StoreState,
    /// How it behaves.
    pub condition: Condition,
    /// Why it is not [`Condition::Ok`]: the last error, or how slow it is. Empty when it is Ok.
    pub why: String,
    /// Counts of its calls.
    pub figures: StoreFigures,
    /// Pieces read from it that were not what was written: damaged, old, or of another object.
    pub bad_pieces: u64,
    /// Reads that other stores were asked for, too, because this one did not answer in time.
    pub hedged: u64,
    /// 95th percentile of its read times, nanoseconds; 0: not known yet.
    pub get_p95_nanos: u64,
}

/// Progress of a background task.
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

/// The state of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The layout.
    pub layout: Layout,
    /// Its stores.
    pub stores: Vec<StoreHealth>,
    /// How many more stores may be lost, whichever they are, before data is lost. Stores that fail
    /// or are missing count as lost, and so do the pieces that the worst object is known to lack.
    pub may_lose: u16,
    /// Objects known to lack pieces.
    pub degraded_objects: u64,
    /// Objects known to lack too many pieces: they cannot be read until stores come back.
    pub lost_objects: u64,
    /// Whether missing pieces were searched for since the pool was assembled. Before that the two
    /// counts above may be too low.
    pub searched: bool,
    /// Rebuilding and moving of pieces.
    pub repair: Progress,
    /// Reading and verifying all pieces: this pass, or the last one.
    pub scrub: Progress,
    /// The hot pool in front of this one.
    pub tier: Option<Box<TierHealth>>,
}

/// The state of a hot pool in front of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierHealth {
    /// Bytes that it can take in all.
    pub hot_total_bytes: u64,
    /// Bytes that it can take now.
    pub hot_available_bytes: u64,
    /// Used share of it, percent.
    pub hot_used_percent: u64,
    /// The part of its puts that each writer has to flush itself, percent. At 0 writers are not
    /// slowed; at 100 they write at the speed of the cold pool.
    pub pressure_percent: u64,
    /// Whether the hot pool was listed. Before that the counts below are too low.
    pub searched: bool,
    /// Objects that only the hot pool has.
    pub unflushed_objects: u64,
    /// Bytes of these objects.
    pub unflushed_bytes: u64,
    /// Bytes copied to the cold pool since the cell was opened.
    pub flushed_bytes: u64,
    /// Bytes that both pools have.
    pub evictable_bytes: u64,
    /// Why the last attempt to copy something failed; empty when it did not.
    pub last_error: String,
    /// The hot pool itself.
    pub hot: Health,
}

/// What one bounded step of background work did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Whether more can be done now. If not, the caller waits before the next step.
    pub more: bool,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Pieces found bad or missing (scrub), or repaired (repair).
    pub pieces: u64,
}
