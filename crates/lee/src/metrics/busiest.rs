//! Chooses the keys that have series of their own: the busiest, so that a site with a thousand
//! volumes does not make a million series.
//!
//! The busiest keys change, but a counter must not decrease, and the counts of `other` must not
//! jump. So only the increase between two updates is passed on: to the key's own series if it has
//! one, else to `other`. A series that a key gets later begins at zero; one that is given up ends.
//! A key loses its series only to one that was twice as busy recently, so that series do not come
//! and go.

use super::OTHER;
use std::collections::BTreeMap;

/// Most series of their own.
pub const SHOWN_MAX: usize = 100;
/// Weight of an earlier update in the measure of activity, at each later one.
const FADING: f64 = 0.9;

/// `N` counts for each of many `K`.
pub struct Busiest<K, const N: usize> {
    known: BTreeMap<K, Known<N>>,
    other: [u64; N],
}

struct Known<const N: usize> {
    /// The counts at the last update, and the increase since the one before.
    last: [u64; N],
    added: [u64; N],
    shown: Option<[u64; N]>,
    /// Recent increase, all counts together.
    busy: f64,
}

impl<K, const N: usize> Default for Busiest<K, N> {
    fn default() -> Busiest<K, N> {
        Busiest { known: BTreeMap::new(), other: [0; N] }
    }
}

impl<K: Copy + Ord, const N: usize> Busiest<K, N> {
    /// Takes the current counts and returns those to show, by label, `other` last. `label`: `None`
    /// for keys that cannot have a series of their own.
    pub fn update(
        &mut self,
        counts: impl Iterator<Item = (K, [u64; N])>,
        label: impl Fn(&K) -> Option<String>,
    ) -> Vec<(String, [u64; N])> {
        let labels: BTreeMap<K, String> =
            counts.filter_map(|(key, now)| self.enter(key, now, &label)).collect();
        self.choose(&labels);
        for known in self.known.values_mut() {
            let to = known.shown.as_mut().unwrap_or(&mut self.other);
            to.iter_mut()
                .zip(std::mem::replace(&mut known.added, [0; N]))
                .for_each(|(sum, added)| *sum += added);
        }
        let own = labels.into_iter().filter_map(|(key, label)| Some((label, self.known[&key].shown?)));
        own.chain([(OTHER.into(), self.other)]).collect()
    }

    fn enter(&mut self, key: K, now: [u64; N], label: impl Fn(&K) -> Option<String>) -> Option<(K, String)> {
        let new = || Known { last: [0; N], added: [0; N], shown: None, busy: 0.0 };
        let known = self.known.entry(key).or_insert_with(new);
        known.added = std::array::from_fn(|n| now[n].saturating_sub(known.last[n]));
        known.last = now;
        known.busy = known.busy * FADING + known.added.iter().map(|n| *n as f64).sum::<f64>();
        let label = label(&key);
        if label.is_none() {
            known.shown = None;
        }
        label.map(|label| (key, label))
    }

    fn choose(&mut self, labels: &BTreeMap<K, String>) {
        let mut waiting: Vec<(f64, K)> = self.ranked(labels, false);
        let mut shown: Vec<(f64, K)> = self.ranked(labels, true);
        let mut free = SHOWN_MAX - shown.len();
        while let Some((busy, key)) = waiting.pop() {
            if free > 0 {
                free -= 1;
            } else if let Some((_, least)) = shown.first().filter(|(least, _)| busy > 2.0 * least).copied() {
                shown.remove(0);
                self.known.entry(least).and_modify(|k| k.shown = None);
            } else {
                return;
            }
            self.known.entry(key).and_modify(|k| k.shown = Some([0; N]));
        }
    }

    /// Keys with a series of their own or those without, the busiest last.
    fn ranked(&self, labels: &BTreeMap<K, String>, shown: bool) -> Vec<(f64, K)> {
        let all = labels.keys().map(|key| (self.known[key].busy, *key));
        let mut ranked: Vec<_> = all.filter(|(_, key)| self.known[key].shown.is_some() == shown).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(shown: &[(String, [u64; 1])]) -> u64 {
        shown.iter().map(|(_, [n])| n).sum()
    }

    fn of(shown: &[(String, [u64; 1])], label: &str) -> Option<u64> {
        shown.iter().find(|(l, _)| l == label).map(|(_, [n])| *n)
    }

    #[test]
    fn the_busiest_are_shown_and_nothing_goes_back() {
        let mut busiest = Busiest::<u32, 1>::default();
        let label = |key: &u32| Some(key.to_string());
        let mut counts: Vec<u64> = (0..300).map(|n| n + 1).collect();
        let ask = |b: &mut Busiest<u32, 1>, counts: &[u64]| {
            b.update(counts.iter().enumerate().map(|(n, c)| (n as u32, [*c])), label)
        };
        let first = ask(&mut busiest, &counts);
        assert_eq!((first.len(), total(&first)), (SHOWN_MAX + 1, counts.iter().sum()));
        assert_eq!((of(&first, "299"), of(&first, "200"), of(&first, "199")), (Some(300), Some(201), None));
        let others = of(&first, OTHER).expect("others");

        assert_eq!(ask(&mut busiest, &counts), first, "nothing was done");
        counts[0] += 10_000;
        counts[1] += 5;
        let second = ask(&mut busiest, &counts);
        assert_eq!((second.len(), of(&second, "0"), of(&second, "200")), (SHOWN_MAX + 1, Some(10_000), None));
        assert_eq!(of(&second, OTHER), Some(others + 5), "what was counted there stays there");
        for (label, [n]) in &second {
            assert!(of(&first, label).is_none_or(|before| before <= *n), "{label}");
        }
    }

    #[test]
    fn what_has_no_label_counts_with_the_others() {
        let mut busiest = Busiest::<u32, 1>::default();
        let mut gone = false;
        for (count, expected) in [(5, [Some(5), Some(7)]), (6, [None, Some(8)])] {
            let label = |key: &u32| (*key == 1 && !gone).then(|| "one".to_string());
            let shown = busiest.update([(1, [count]), (2, [7])].into_iter(), label);
            assert_eq!([of(&shown, "one"), of(&shown, OTHER)], expected);
            gone = true;
        }
    }
}
