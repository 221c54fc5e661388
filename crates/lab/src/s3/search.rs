//! Chooses the next number of connections: doubles it until an endpoint does not bear them, then
//! halves the gap.

/// The gap between a number that holds and one that does not is small enough at one part in this
/// many.
const FINE: u64 = 20;

/// A search for the highest load that holds. It does no I/O.
#[derive(Clone, Debug)]
pub struct Search {
    from: u64,
    to: u64,
    good: Option<u64>,
    bad: Option<u64>,
    halves: u32,
}

impl Search {
    /// A search from `from` connections to at most `to`, with `halves` halvings of the gap at the
    /// end.
    pub fn new(from: u64, to: u64, halves: u32) -> Search {
        Search { from: from.clamp(1, to.max(1)), to: to.max(1), good: None, bad: None, halves }
    }

    /// The next number of connections to try. `None` when the search is over.
    pub fn next(&self) -> Option<u64> {
        let Some(bad) = self.bad else {
            return match self.good {
                None => Some(self.from),
                Some(good) => (good < self.to).then(|| good.saturating_mul(2).min(self.to)),
            };
        };
        let good = self.good.unwrap_or(0);
        let gap = bad - good;
        (self.halves > 0 && gap > (bad / FINE).max(1)).then_some(good + gap / 2)
    }

    /// Records the result of a number of connections.
    pub fn record(&mut self, connections: u64, holds: bool) {
        self.halves -= u32::from(self.bad.is_some()).min(self.halves);
        if holds {
            self.good = self.good.max(Some(connections));
        } else {
            self.bad = Some(self.bad.map_or(connections, |bad| bad.min(connections)));
        }
    }

    /// The most connections that held.
    pub fn good(&self) -> Option<u64> {
        self.good
    }

    /// The fewest connections that did not hold.
    pub fn bad(&self) -> Option<u64> {
        self.bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that are tried where up to `holds` connections hold.
    fn tried(mut search: Search, holds: u64) -> (Vec<u64>, Search) {
        let mut tried = Vec::new();
        while let Some(connections) = search.next() {
            assert!(tried.len() < 100, "does not end: {tried:?}");
            tried.push(connections);
            search.record(connections, connections <= holds);
        }
        (tried, search)
    }

    #[test]
    fn the_highest_load_is_found_within_a_twentieth() {
        for holds in [16, 17, 100, 999, 1000, 5000, 70_000] {
            let (_, search) = tried(Search::new(16, 100_000, 30), holds);
            let good = search.good().expect("one holds");
            assert!(good <= holds && search.bad().is_some_and(|bad| bad > holds));
            assert!(good as f64 >= holds as f64 * 0.94, "{good} of {holds}");
        }
    }

    #[test]
    fn what_holds_everything_is_asked_no_more() {
        let (tried, search) = tried(Search::new(16, 100, 5), 1_000_000);
        assert_eq!((tried, search.good(), search.bad()), (vec![16, 32, 64, 100], Some(100), None));
    }

    #[test]
    fn below_the_first_load_it_goes_down() {
        let (tried_, search) = tried(Search::new(16, 100, 10), 3);
        assert_eq!((tried_, search.good()), (vec![16, 8, 4, 2, 3], Some(3)));
        let (tried_, search) = tried(Search::new(16, 100, 10), 0);
        assert_eq!((tried_, search.good(), search.bad()), (vec![16, 8, 4, 2, 1], None, Some(1)));
    }

    #[test]
    fn halvings_are_bounded() {
        let (tried, search) = tried(Search::new(1000, 100_000, 2), 1400);
        assert_eq!(
            (tried, search.good(), search.bad()),
            (vec![1000, 2000, 1500, 1250], Some(1250), Some(1500))
        );
        let (tried, _) = super::tests::tried(Search::new(0, 0, 2), 1);
        assert_eq!(tried, [1]);
    }
}
