//! Sets of byte ranges.
//!
//! Invariant: ranges are half-open, not empty, disjoint and not adjacent, in order.

use std::collections::BTreeMap;

/// A set of byte offsets as half-open ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// The set of one range (empty when `start >= end`).
    pub fn of(start: u64, end: u64) -> Ranges {
        let mut r = Ranges::default();
        r.insert(start, end);
        r
    }

    /// Adds `start..end`.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        while let Some((&s, &e)) = self.0.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Takes `start..end` out.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((&s, &e)) = self.0.range(..end).next_back() {
            if e <= start {
                break;
            }
            self.0.remove(&s);
            if e > end {
                self.0.insert(end, e);
            }
            if s < start {
                self.0.insert(s, start);
            }
        }
    }

    /// The ranges within `start..end`, cut to it.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.0.range(..=start).next_back().map_or(start, |(&s, _)| s);
        self.0
            .range(first..end.max(first))
            .map(move |(&s, &e)| (s.max(start), e.min(end)))
            .filter(|(s, e)| s < e)
    }

    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(s, e)| e - s).sum()
    }

    /// The same set with each range rounded out to multiples of `unit`.
    pub fn rounded(&self, unit: u64) -> Ranges {
        let mut out = Ranges::default();
        for (s, e) in &self.0 {
            out.insert(s / unit * unit, e.next_multiple_of(unit));
        }
        out
    }
}
