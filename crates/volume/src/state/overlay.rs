//! Records of one transaction, in memory: found by key in a hash map, in key order for scans.
//!
//! Most operations look up and write single records, many times, under the shard's lock; only
//! listings and the like need an order. So the order is made on demand: keys are noted as they come
//! and sorted by the next scan.
//!
//! A record that never was durable and is removed again stays as a slot that is
//! [`Slot::is_nothing`], so that keys are only ever added; it is not written.

use crate::format::keys::Key;
use leeward_meta::Value;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::ops::Bound;

/// A record in an overlay.
#[derive(Clone, Debug)]
pub struct Slot {
    /// `None`: removed.
    pub value: Option<Value>,
    /// The client that changed it last; 0: none on another machine.
    pub by: u64,
    /// Whether nothing below holds the key: then its removal leaves nothing to remember.
    fresh: bool,
}

impl Slot {
    /// Whether it was made here: nothing below holds the key.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Whether there is nothing to write: the record exists neither here nor below.
    pub fn is_nothing(&self) -> bool {
        self.fresh && self.value.is_none()
    }
}

/// The records of one transaction.
#[derive(Default)]
pub struct Overlay {
    slots: FxHashMap<Key, Slot>,
    /// Of keys and values.
    bytes: usize,
    order: Mutex<Order>,
}

/// All keys, each in one of the two.
#[derive(Default)]
struct Order {
    sorted: BTreeSet<Key>,
    /// Keys added since the last scan.
    noted: Vec<Key>,
}

impl Overlay {
    /// Keys in it.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of its keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it holds no key.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The slot of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Slot> {
        self.slots.get(key)
    }

    /// All slots, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Slot)> {
        self.slots.iter()
    }

    /// Writes a record or removes it. For a key that is new here, `is_fresh` tells whether nothing
    /// below holds it.
    pub fn enter(&mut self, key: Key, value: Option<Value>, by: u64, is_fresh: impl FnOnce(&Key) -> bool) {
        let bytes = value.as_ref().map_or(0, |value| value.len());
        match self.slots.entry(key) {
            Entry::Occupied(mut e) => {
                let slot = e.get_mut();
                let before = slot.value.as_ref().map_or(0, |value| value.len());
                self.bytes = self.bytes + bytes - before;
                (slot.value, slot.by) = (value, by);
            }
            Entry::Vacant(e) => {
                let fresh = is_fresh(e.key());
                if value.is_some() || !fresh {
                    self.bytes += e.key().len() + bytes;
                    self.order.get_mut().noted.push(e.key().clone());
                    e.insert(Slot { value, by, fresh });
                }
            }
        }
    }

    /// Calls `f` with the slots with `from <= key < to` in order until it returns false.
    pub fn scan(&self, from: &Key, to: &Key, mut f: impl FnMut(&Key, &Slot) -> bool) {
        let Order { sorted, noted } = &mut *self.order.lock();
        sorted.extend(noted.drain(..));
        let range = (Bound::Included(from), Bound::Excluded(to));
        for key in sorted.range::<Key, _>(range) {
            if !self.slots.get(key).is_none_or(|slot| f(key, slot)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        text.as_bytes().into()
    }

    fn value(text: &str) -> Option<Value> {
        Some(text.as_bytes().into())
    }

    fn all(o: &Overlay, from: &str, to: &str) -> Vec<(Key, Option<Value>)> {
        let mut out = Vec::new();
        o.scan(&key(from), &key(to), |k, s| {
            out.push((k.clone(), s.value.clone()));
            true
        });
        out
    }

    #[test]
    fn scans_in_order_what_came_before_and_between() {
        let mut o = Overlay::default();
        for k in ["d", "b", "a"] {
            o.enter(key(k), value(k), 0, |_| true);
        }
        assert_eq!(all(&o, "a", "c"), [(key("a"), value("a")), (key("b"), value("b"))]);
        o.enter(key("aa"), value("1"), 0, |_| true);
        o.enter(key("b"), value("2"), 0, |_| panic!("known"));
        let expected = [(key("aa"), value("1")), (key("b"), value("2")), (key("d"), value("d"))];
        assert_eq!(all(&o, "aa", "e"), expected);
        let mut seen = 0;
        o.scan(&key("a"), &key("z"), |_, _| {
            seen += 1;
            seen < 2
        });
        assert_eq!(seen, 2);
    }

    #[test]
    fn bytes_are_those_of_what_is_there() {
        let mut o = Overlay::default();
        o.enter(key("k"), value("four"), 0, |_| true);
        o.enter(key("l"), value("2"), 0, |_| true);
        assert_eq!(o.bytes(), 7);
        o.enter(key("k"), value("1"), 0, |_| true);
        o.enter(key("l"), None, 0, |_| true);
        o.enter(key("never"), None, 0, |_| true);
        assert_eq!(o.bytes(), 3);
    }

    #[test]
    fn a_record_that_never_was_leaves_nothing_to_write() {
        let mut o = Overlay::default();
        o.enter(key("never"), None, 0, |_| true);
        assert!(o.is_empty());
        o.enter(key("new"), value("1"), 0, |_| true);
        o.enter(key("new"), None, 0, |_| panic!("known"));
        assert!(o.get(b"new").is_some_and(Slot::is_nothing));
        o.enter(key("old"), None, 0, |_| false);
        assert!(o.get(b"old").is_some_and(|s| !s.is_nothing() && s.value.is_none()));
    }
}
