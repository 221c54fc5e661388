//! Changes that a client's programs take for done and that a crash of the server could take, for
//! `lee session`: how many, how large, how old.
//!
//! A change is here from when the server hears of it, if the client has told its program already
//! (`docs/decisions/0036`), else from when it is answered, until it is durable. What a client has
//! told is in the same stream as its keepalives, in front of them: so of what it told before it was
//! heard last nothing is missing here.

use leeward_env::{Nanos, Told};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Changes that were answered within this time are counted together: they become durable together,
/// too.
const BATCH_TIME: Nanos = 5_000_000;
/// Batches at most, where nothing becomes durable.
const BATCHES_MAX: usize = 4096;

/// What of a client's changes is not durable, also in the answers to commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnflushedFigures {
    /// Changes.
    pub changes: u64,
    /// Bytes of content that they bring.
    pub bytes: u64,
    /// How old the oldest is, milliseconds; 0: there is none.
    pub oldest_ms: u64,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Unflushed(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those that were told and are not answered, by numbers of their own: when they were told, and
    /// their bytes.
    coming: BTreeMap<u64, (u64, u64)>,
    last: u64,
    /// Those that were answered, the oldest first.
    answered: VecDeque<Batch>,
}

struct Batch {
    /// The highest number of a change in it.
    lsn: u64,
    /// When the first was made, nanoseconds since 1970.
    since: u64,
    changes: u64,
    bytes: u64,
}

impl Unflushed {
    /// A change comes that its client has told its program then. Its number, for
    /// [`Unflushed::has_gone`].
    pub(super) fn comes(&self, at: u64, bytes: u64) -> u64 {
        let mut state = self.0.lock();
        state.last += 1;
        let number = state.last;
        state.coming.insert(number, (at, bytes));
        number
    }

    /// A change that had come is answered, or is not made.
    pub(super) fn has_gone(&self, number: u64) {
        self.0.lock().coming.remove(&number);
    }

    /// A change is answered that is not durable yet, as far as `is_durable` knows.
    pub(super) fn answered(&self, told: &Told, bytes: u64, is_durable: impl FnOnce() -> bool) {
        let mut state = self.0.lock();
        if is_durable() {
            return;
        }
        let is_full = state.answered.len() >= BATCHES_MAX;
        let last = state.answered.back_mut();
        match last.filter(|batch| is_full || told.at.saturating_sub(batch.since) < BATCH_TIME) {
            Some(batch) => {
                batch.lsn = batch.lsn.max(told.lsn);
                batch.changes += 1;
                batch.bytes += bytes;
            }
            None => {
                state.answered.push_back(Batch { lsn: told.lsn, since: told.at, changes: 1, bytes });
            }
        }
    }

    /// Changes up to this number are durable.
    pub(super) fn are_durable(&self, lsn: u64) {
        let mut state = self.0.lock();
        while state.answered.front().is_some_and(|batch| batch.lsn <= lsn) {
            state.answered.pop_front();
        }
    }

    /// `wall`: the time, nanoseconds since 1970.
    pub(super) fn figures(&self, wall: u64) -> UnflushedFigures {
        let state = self.0.lock();
        let coming = state.coming.values().map(|(at, bytes)| (*at, 1, *bytes));
        let answered = state.answered.iter().map(|batch| (batch.since, batch.changes, batch.bytes));
        let all = coming.chain(answered);
        let (mut figures, mut oldest) = (UnflushedFigures::default(), wall);
        for (since, changes, bytes) in all {
            oldest = oldest.min(since);
            figures.changes += changes;
            figures.bytes += bytes;
        }
        UnflushedFigures { oldest_ms: (wall - oldest) / 1_000_000, ..figures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lsn: u64, at: u64) -> Told {
        Told { lsn, at, ..Told::default() }
    }

    fn counts(unflushed: &Unflushed) -> (u64, u64) {
        let figures = unflushed.figures(0);
        (figures.changes, figures.bytes)
    }

    #[test]
    fn a_change_counts_from_when_it_comes_until_it_is_durable() {
        let unflushed = Unflushed::default();
        let number = unflushed.comes(1_000_000, 10);
        assert_eq!(unflushed.figures(9_000_000), UnflushedFigures { changes: 1, bytes: 10, oldest_ms: 8 });
        unflushed.answered(&told(5, 1_000_000), 10, || false);
        unflushed.has_gone(number);
        unflushed.answered(&told(4, 2_000_000), 7, || false);
        unflushed.answered(&told(6, 20_000_000), 1, || false);
        unflushed.answered(&told(3, 20_000_000), 1, || true);
        assert_eq!(unflushed.figures(21_000_000), UnflushedFigures { changes: 3, bytes: 18, oldest_ms: 20 });
        unflushed.are_durable(4);
        assert_eq!(counts(&unflushed), (3, 18), "5 is answered with 4");
        unflushed.are_durable(5);
        assert_eq!(unflushed.figures(21_000_000), UnflushedFigures { changes: 1, bytes: 1, oldest_ms: 1 });
        unflushed.are_durable(6);
        assert_eq!(unflushed.figures(21_000_000), UnflushedFigures::default());
    }

    #[test]
    fn where_nothing_becomes_durable_it_takes_bounded_memory() {
        let unflushed = Unflushed::default();
        let all = 2 * BATCHES_MAX as u64;
        (0..all).for_each(|n| unflushed.answered(&told(n + 1, n * BATCH_TIME), 1, || false));
        assert_eq!(counts(&unflushed), (all, all));
        assert_eq!(unflushed.0.lock().answered.len(), BATCHES_MAX);
        unflushed.are_durable(all);
        assert_eq!(counts(&unflushed), (0, 0));
    }

    /// The clock was set back, or that of the client is ahead.
    #[test]
    fn what_was_told_in_the_future_has_no_age() {
        let unflushed = Unflushed::default();
        unflushed.comes(9_000_000, 1);
        assert_eq!(unflushed.figures(1_000_000).oldest_ms, 0);
    }
}
