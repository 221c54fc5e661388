//! Position of freeing a removed volume.

use crate::format::keys::{self, Key};
use leeward_fs::NodeId;

/// Position of freeing the records of a removed volume. It continues where it was, not through what
/// it has removed. At the end it begins again until it finds nothing: an operation that began
/// before the removal may have added records behind it.
#[derive(Clone)]
pub struct Sweep {
    pub(crate) volume: u32,
    pub(crate) range: usize,
    pub(crate) from: Key,
    pub(crate) found: bool,
}

impl Sweep {
    pub(crate) fn new(volume: u32) -> Sweep {
        Sweep { volume, range: 0, from: volume_ranges(volume)[0].0.clone(), found: false }
    }
}

/// All stored records of a volume except its own record, in the order of keys: a sweep only goes
/// forward.
pub(crate) fn volume_ranges(volume: u32) -> [(Key, Key); 17] {
    let range = |key: fn(NodeId) -> Key| (key(NodeId::new(volume, 0)), key(NodeId::new(volume + 1, 0)));
    let [snapshots, tallies] = keys::snapshot_ranges(volume);
    let (live, history) = (keys::volume_range(volume), keys::history_range(volume));
    let bin = keys::bin_range(volume, 0);
    let [owned, owner_limits, uncounted] = keys::owner_ranges(volume);
    let [events, log_head, was_at] = keys::log_ranges(volume);
    [
        live,
        history,
        keys::deadlist_range(volume),
        range(keys::quota),
        range(keys::orphan),
        snapshots,
        tallies,
        range(keys::schedule),
        bin,
        range(keys::unfolded),
        range(keys::upload),
        owned,
        owner_limits,
        uncounted,
        events,
        log_head,
        was_at,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_of_a_volume_is_gone_through_in_order() {
        let ranges = volume_ranges(7);
        assert!(ranges.iter().all(|(from, to)| from < to));
        assert!(ranges.windows(2).all(|two| two[0].1 <= two[1].0), "{ranges:x?}");
    }
}
