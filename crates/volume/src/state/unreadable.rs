//! Records that background work has found damaged: it leaves them where they are, goes on with the
//! others, and logs them.
//!
//! In memory only: after opening they are found again. `lee fsck` names what is damaged.

use crate::format::keys::{EpochPair, Key};
use std::collections::BTreeSet;

/// What was found so far.
#[derive(Default)]
pub struct Unreadable {
    records: BTreeSet<Key>,
    pairs: BTreeSet<(u32, EpochPair)>,
}

impl Unreadable {
    /// Notes a record, which is left out from now on. Logged once.
    pub fn note(&mut self, work: &str, key: &Key, why: &dyn std::fmt::Display) {
        if self.records.insert(key.clone()) {
            tracing::error!("{work} leaves out the record {}: {why}; run lee fsck", key.escape_ascii());
        }
    }

    /// Whether the record is known to be damaged.
    pub fn has(&self, key: &Key) -> bool {
        self.records.contains(key)
    }

    /// Notes a deadlist with damaged entries: trim leaves this pair out from now on.
    pub fn leave_pair(&mut self, volume: u32, pair: EpochPair) {
        self.pairs.insert((volume, pair));
    }

    /// The pairs that trim leaves out.
    pub fn pairs(&self) -> &BTreeSet<(u32, EpochPair)> {
        &self.pairs
    }

    /// Number of records.
    pub fn count(&self) -> u64 {
        self.records.len() as u64
    }
}
