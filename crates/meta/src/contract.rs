//! The contract of every engine, as functions that panic when an engine breaks it.
//!
//! [`run`] gets a function that makes an empty engine; [`reopened`] one that opens the same
//! directory again and again. Tests with other subjects (crashes, damage) compare with [`Model`]
//! and draw from [`Random`].

use crate::{Batch, InlineData, Kv, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Below and above every key the suite writes.
const EVERYTHING: (&[u8], &[u8]) = (&[0], &[0xff; 8]);

/// The content that an engine should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model(BTreeMap<Arc<[u8]>, Value>);

impl Model {
    /// Applies a batch.
    pub fn apply(&mut self, batch: &Batch) {
        for (key, value) in &batch.writes {
            match value {
                Some(value) => self.0.insert(key.clone(), value.clone()),
                None => self.0.remove(key),
            };
        }
    }

    /// All that an engine holds, by scans of a few pairs at a time.
    ///
    /// # Panics
    /// When a scan fails.
    pub fn of(kv: &dyn Kv) -> Model {
        let mut all = BTreeMap::new();
        let mut from = EVERYTHING.0.to_vec();
        loop {
            let part = kv.scan(&from, EVERYTHING.1, 97, false).expect("scan");
            let Some((last, _)) = part.last() else { return Model(all) };
            from = [last, &[0][..]].concat();
            all.extend(part);
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.0.get(key).map(|v| &**v)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize, reverse: bool) -> Vec<(Arc<[u8]>, Value)> {
        let inside = |k: &[u8]| from <= k && k < to;
        let pairs = self.0.iter().filter(|(k, _)| inside(k)).map(|(k, v)| (k.clone(), v.clone()));
        if reverse { pairs.rev().take(limit).collect() } else { pairs.take(limit).collect() }
    }

    /// Compares everything, and some keys and ranges one by one.
    ///
    /// # Panics
    /// If they differ.
    pub fn check(&self, kv: &dyn Kv, random: &mut Random) {
        assert_eq!(&Model::of(kv), self);
        for _ in 0..20 {
            let key = random.key();
            assert_eq!(kv.get(&key).expect("get"), self.0.get(&key).cloned());
            let (from, to) = (random.key(), random.key());
            let (limit, reverse) = (random.below(9) as usize, random.below(2) == 0);
            assert_eq!(
                kv.scan(&from, &to, limit, reverse).expect("scan"),
                self.scan(&from, &to, limit, reverse),
                "{from:?} to {to:?}, {limit}, reverse {reverse}"
            );
        }
    }
}

/// Reproducible random choices.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Less than `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// One of some hundred keys, of several lengths.
    pub fn key(&mut self) -> Arc<[u8]> {
        let mut key = vec![b'k'; 1 + self.below(3) as usize];
        key.extend((self.below(64) as u16).to_be_bytes());
        key.into()
    }

    /// Up to 300 bytes.
    pub fn value(&mut self) -> Value {
        let byte = self.below(256) as u8;
        vec![byte; self.below(300) as usize].into()
    }

    /// Some writes, a third of them removals, at times one key twice.
    pub fn batch(&mut self) -> Batch {
        let writes = (0..1 + self.below(20)).map(|_| {
            let value = if self.below(3) == 0 { None } else { Some(self.value()) };
            (self.key(), value)
        });
        Batch { writes: writes.collect(), inline_data: Vec::new() }
    }

    /// Inline data of up to 5000 bytes.
    pub fn inline(&mut self, segment: u64) -> InlineData {
        let bytes = vec![self.below(256) as u8; self.below(5000) as usize].into();
        InlineData {
            segment,
            offset: self.below(1 << 24) as u32,
            owner: (1, self.below(100), self.below(1 << 40)),
            bytes,
        }
    }
}

/// A batch of puts.
pub fn puts(pairs: &[(&[u8], &[u8])]) -> Batch {
    let writes = pairs.iter().map(|(k, v)| (Arc::from(*k), Some(Value::from(*v)))).collect();
    Batch { writes, inline_data: Vec::new() }
}

/// Maintains until there is nothing to do.
///
/// # Panics
/// When maintenance fails, or never ends.
pub fn settle(kv: &dyn Kv) {
    for _ in 0..10_000 {
        if !kv.maintain().expect("maintain") {
            return;
        }
    }
    panic!("maintenance never ends");
}

/// Tests everything that needs no reopening of an engine.
pub fn run(make: &dyn Fn() -> Box<dyn Kv>) {
    empty(&*make());
    order_and_bounds(&*make());
    later_writes_win(&*make());
    for seed in 0..5 {
        random_batches(&*make(), seed);
    }
    commits_are_atomic(&*make());
    what_is_appended_is_inserted_later(&*make());
    scans_are_of_one_moment(&*make());
    moments_stand_still(&*make());
    reserve_comes_and_goes(&*make());
}

fn empty(kv: &dyn Kv) {
    assert_eq!(kv.get(b"a").expect("get"), None);
    assert!(kv.scan(b"a", b"z", 10, false).expect("scan").is_empty());
    kv.commit(&Batch::default()).expect("an empty batch");
    assert!(all_inline_data(kv).is_empty());
    settle(kv);
}

fn order_and_bounds(kv: &dyn Kv) {
    kv.commit(&puts(&[(b"b", b"2"), (b"a", b"1"), (b"aa", b""), (b"c", b"3")])).expect("commit");
    let keys = |from: &[u8], to: &[u8], limit, reverse| -> Vec<Arc<[u8]>> {
        kv.scan(from, to, limit, reverse).expect("scan").into_iter().map(|(k, _)| k).collect()
    };
    let list = |keys: &[&[u8]]| -> Vec<Arc<[u8]>> { keys.iter().map(|k| Arc::from(*k)).collect() };
    for _ in 0..2 {
        assert_eq!(keys(b"a", b"z", 10, false), list(&[b"a", b"aa", b"b", b"c"]));
        assert_eq!(keys(b"a", b"c", 10, true), list(&[b"b", b"aa", b"a"]));
        assert_eq!(keys(b"aa", b"z", 2, false), list(&[b"aa", b"b"]));
        assert_eq!(keys(b"aa", b"z", 1, true), list(&[b"c"]));
        assert_eq!(keys(b"b", b"b", 9, false), list(&[]));
        assert_eq!(keys(b"c", b"a", 9, false), list(&[]));
        assert_eq!(keys(b"a", b"z", 0, false), list(&[]));
        assert_eq!(kv.get(b"aa").expect("get").as_deref(), Some(&b""[..]));
        assert_eq!(kv.get(b"ab").expect("get"), None);
        settle(kv);
    }
}

fn later_writes_win(kv: &dyn Kv) {
    let key: Arc<[u8]> = Arc::from(&b"k"[..]);
    let mut batch = puts(&[(b"k", b"1"), (b"k", b"2")]);
    kv.commit(&batch).expect("commit");
    assert_eq!(kv.get(b"k").expect("get").as_deref(), Some(&b"2"[..]));
    batch.writes.push((key.clone(), None));
    kv.commit(&batch).expect("commit");
    assert_eq!(kv.get(b"k").expect("get"), None);
    batch.writes.push((key, Some(Value::from(&b"3"[..]))));
    kv.commit(&batch).expect("commit");
    assert_eq!(kv.get(b"k").expect("get").as_deref(), Some(&b"3"[..]));
}

fn random_batches(kv: &dyn Kv, seed: u64) {
    let mut random = Random::new(seed);
    let mut model = Model::default();
    for round in 0..300 {
        let batch = random.batch();
        kv.commit(&batch).expect("commit");
        model.apply(&batch);
        if random.below(10) == 0 {
            kv.maintain().expect("maintain");
        }
        if round % 50 == 49 {
            model.check(kv, &mut random);
        }
    }
    settle(kv);
    model.check(kv, &mut random);
}

/// Runs `read` in two threads while `write` runs 400 times, with maintenance in parallel.
fn beside(kv: &dyn Kv, mut write: impl FnMut(u64), read: impl Fn() + Sync) {
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    read();
                }
            });
        }
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                kv.maintain().expect("maintain");
            }
        });
        (0..400).for_each(&mut write);
        done.store(true, Ordering::Relaxed);
    });
}

fn number(value: &[u8]) -> u64 {
    value.get(..8).and_then(|v| v.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// All keys carry the number of the commit: a reader that reads the first and then the last sees no
/// older number there.
fn commits_are_atomic(kv: &dyn Kv) {
    let write = |round: u64| {
        let value = [&round.to_be_bytes()[..], &[7; 200]].concat();
        let keys: Vec<[u8; 2]> = (0..50).map(|i| [b'a', i]).collect();
        let pairs: Vec<(&[u8], &[u8])> = keys.iter().map(|k| (&k[..], &value[..])).collect();
        kv.commit(&puts(&pairs)).expect("commit");
    };
    let read = |key: &[u8]| kv.get(key).expect("get").map_or(0, |v| number(&v));
    beside(kv, write, || {
        let (first, last) = (read(&[b'a', 0]), read(&[b'a', 49]));
        assert!(first <= last, "a commit was seen in parts: {first}, then {last}");
    });
}

/// One thread appends, another one inserts some later, with maintenance in parallel: readers see
/// all of each, in order.
fn what_is_appended_is_inserted_later(kv: &dyn Kv) {
    const COMMITS: u64 = 400;
    let own = |n: u64| [&b"own"[..], &n.to_be_bytes()].concat();
    let (give, take) = std::sync::mpsc::sync_channel(3);
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                let last = kv.get(b"last").expect("get").map_or(0, |v| number(&v));
                assert!(last >= seen, "{last} after {seen}");
                seen = last;
                assert!(seen == 0 || kv.get(&own(seen)).expect("get").is_some(), "{seen} in part");
            }
        });
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                kv.maintain().expect("maintain");
            }
        });
        let inserts = s.spawn(|| {
            for (n, appended, batch) in take {
                kv.insert(appended, &batch);
                assert!(kv.get(&own(n)).expect("get").is_some(), "{n} is inserted, and not to be seen");
            }
        });
        for n in 1..=COMMITS {
            let batch = puts(&[(b"last", &n.to_be_bytes()), (&own(n), &[n as u8; 300])]);
            while kv.wants_room() && kv.get(b"last").expect("get").map_or(0, |v| number(&v)) + 1 < n {
                std::thread::yield_now(); // for who inserts
            }
            let appended = kv.append(&batch).expect("append");
            give.send((n, appended, batch)).expect("there is somebody who inserts");
        }
        drop(give);
        let inserted = inserts.join();
        done.store(true, Ordering::Relaxed);
        inserted.expect("all are inserted");
    });
    assert_eq!(kv.get(b"last").expect("get").map(|v| number(&v)), Some(COMMITS));
    settle(kv);
    (1..=COMMITS).for_each(|n| assert!(kv.get(&own(n)).expect("get").is_some(), "{n} is gone"));
}

/// Every commit moves 20 pairs to other keys: a scan sees 20 of one commit.
fn scans_are_of_one_moment(kv: &dyn Kv) {
    let key =
        |round: u64, i: u64| Arc::<[u8]>::from([&b"m"[..], &(i * 7 + round % 7).to_be_bytes()[..]].concat());
    let write = |round: u64| {
        let mut batch = Batch::default();
        for i in 0..20 {
            batch.writes.push((key(round + 6, i), None));
            let value = [&round.to_be_bytes()[..], &[9; 300]].concat();
            batch.writes.push((key(round, i), Some(value.into())));
        }
        kv.commit(&batch).expect("commit");
    };
    write(0);
    beside(
        kv,
        |round| write(round + 1),
        || {
            for reverse in [false, true] {
                let pairs = kv.scan(b"m", b"n", 1000, reverse).expect("scan");
                assert_eq!(pairs.len(), 20);
                assert!(
                    pairs.windows(2).all(|w| number(&w[0].1) == number(&w[1].1)),
                    "a scan of two moments"
                );
            }
        },
    );
}

fn moments_stand_still(kv: &dyn Kv) {
    let mut random = Random::new(7);
    let mut model = Model::default();
    let mut held = Vec::new();
    for round in 0..60 {
        if round % 20 == 0 {
            held.push((kv.moment(), model.clone()));
        }
        let batch = random.batch();
        kv.commit(&batch).expect("commit");
        model.apply(&batch);
        if round % 7 == 0 {
            settle(kv);
        }
    }
    settle(kv);
    for (moment, then) in &held {
        let all = moment.scan(EVERYTHING.0, EVERYTHING.1, usize::MAX).expect("scan");
        assert_eq!(&Model(all.into_iter().collect()), then);
    }
    drop(held);
    settle(kv);
    assert_eq!(Model::of(kv), model);
}

fn reserve_comes_and_goes(kv: &dyn Kv) {
    kv.reserve(false).expect("give back what is not there");
    kv.reserve(true).expect("take");
    kv.reserve(true).expect("take again");
    kv.commit(&puts(&[(b"a", b"1")])).expect("commit");
    kv.reserve(false).expect("give back");
}

/// Tests what survives closing. `open` is called after the engine of the previous call is gone.
pub fn reopened(open: &dyn Fn() -> Box<dyn Kv>) {
    let mut random = Random::new(1);
    let mut model = Model::default();
    let mut inline_data: Vec<InlineData> = Vec::new();
    for round in 0..12u64 {
        let kv = open();
        model.check(&*kv, &mut random);
        assert!(is_within(&inline_data, &all_inline_data(&*kv)), "rides are missing");
        for segment in 0..round {
            kv.release_inline(segment);
        }
        inline_data.retain(|r| r.segment >= round);
        for _ in 0..random.below(60) {
            let mut batch = random.batch();
            if random.below(4) == 0 {
                let segment = round + random.below(3);
                batch.inline_data.push(random.inline(segment));
            }
            kv.commit(&batch).expect("commit");
            model.apply(&batch);
            inline_data.extend(batch.inline_data);
            if random.below(6) == 0 {
                kv.maintain().expect("maintain");
            }
        }
        match random.below(3) {
            0 => settle(&*kv),
            1 => drop(kv.maintain().expect("maintain")),
            _ => {}
        }
    }
}

/// All inline data that an engine has.
///
/// # Panics
/// When it cannot be read.
pub fn all_inline_data(kv: &dyn Kv) -> Vec<InlineData> {
    kv.inline_data(&kv.inline_segments().into_iter().collect()).expect("rides")
}

/// Whether `some` are in `all`.
pub fn is_within(some: &[InlineData], all: &[InlineData]) -> bool {
    some.iter().all(|inline| all.contains(inline))
}
