//! What scrubbing found and when it runs. Records and the background use these words, too.

use serde::{Deserialize, Serialize};

/// What scrubbing a pool found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubInfo {
    /// Which pool.
    pub pool: String,
    /// Bytes read.
    pub bytes: u64,
    /// Pieces that were missing or damaged.
    pub bad_pieces: u64,
    /// Objects of which pieces were rebuilt.
    pub repaired_objects: u64,
    /// Objects that still lack pieces.
    pub degraded_objects: u64,
    /// Objects that cannot be read in full.
    pub lost_objects: u64,
}

impl ScrubInfo {
    /// Adds what was found in another shard's part of the pool.
    pub(super) fn add(&mut self, other: &ScrubInfo) {
        self.bytes += other.bytes;
        self.bad_pieces += other.bad_pieces;
        self.repaired_objects += other.repaired_objects;
        self.degraded_objects += other.degraded_objects;
        self.lost_objects += other.lost_objects;
    }
}

/// A complete scrub of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubPass {
    /// When it began, seconds since 1970.
    pub begun_secs: i64,
    /// When it ended, seconds since 1970.
    pub ended_secs: i64,
    /// What it found.
    pub found: ScrubInfo,
}

/// A scrub that is running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRun {
    /// When it began, seconds since 1970.
    pub begun_secs: i64,
    /// What it does now, as in [`Progress`](crate::admin::Progress).
    pub phase: String,
    /// How much is done.
    pub done: u64,
    /// How much there is to do; 0: unknown.
    pub total: u64,
}

/// How often a pool is scrubbed, and how that goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Interval in seconds; `None`: only on request.
    pub every_secs: Option<u32>,
    /// The next time by the clock, seconds since 1970.
    pub next_secs: Option<i64>,
    /// Whether the last complete scrub began longer ago than twice the interval.
    pub late: bool,
    /// The last complete scrub, by the clock or on request.
    pub last: Option<ScrubPass>,
    /// How long ago it began, seconds.
    pub age_secs: Option<i64>,
    /// The scrub that is running.
    pub running: Option<ScrubRun>,
    /// Why the last scrub by the clock failed. It is tried again.
    pub error: Option<String>,
}
