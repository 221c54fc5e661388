//! What the window promises, for any times; and simulations of stores behind it, from a seed.

use leeward_gate::{Kind, Transfer, Window};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SLICE: usize = 256 << 10;
const TAKES: u64 = SLICE as u64 + (16 << 10);

/// A store that serves `at_once` slices at a time, each in `nanos`, and the others after them.
struct Store {
    at_once: usize,
    nanos: u64,
    /// When each of its places is free.
    free: Vec<u64>,
    seed: u64,
}

impl Store {
    fn new(at_once: usize, nanos: u64) -> Store {
        Store { at_once, nanos, free: vec![0; at_once], seed: 7 }
    }

    /// When a slice ends that comes now: up to a half longer than it should, as things are.
    fn serve(&mut self, now: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let place = (0..self.at_once).min_by_key(|&n| self.free[n]).expect("one");
        let takes = self.nanos + self.seed % (self.nanos / 2);
        self.free[place] = self.free[place].max(now) + takes;
        self.free[place]
    }
}

/// A run of `wanting` threads that transfer slice after slice.
struct Run {
    window: Window,
    now: u64,
    on_way: BTreeMap<(u64, u64), (Transfer, u64)>,
    begun: u64,
    most: usize,
}

impl Run {
    fn new() -> Run {
        Run { window: Window::new(SLICE), now: 0, on_way: BTreeMap::new(), begun: 0, most: 0 }
    }

    /// Goes on for so many transfers; slices per second and slices on their way, on average.
    fn go(&mut self, store: &mut Store, wanting: usize, transfers: u64) -> (f64, f64) {
        let (from, mut weighed) = (self.now, 0.0);
        for _ in 0..transfers {
            while self.on_way.len() < wanting && self.window.has_room(Kind::Write, SLICE) {
                let transfer = self.window.begin(Kind::Write, SLICE);
                self.on_way.insert((store.serve(self.now), self.begun), (transfer, self.now));
                self.begun += 1;
            }
            self.most = self.most.max(self.on_way.len());
            let count = self.on_way.len();
            let ((ends, _), (transfer, since)) = self.on_way.pop_first().expect("never shut");
            weighed += (ends - self.now) as f64 * count as f64;
            self.now = ends;
            self.window.end(transfer, ends - since, count < wanting);
        }
        let time = (self.now - from) as f64;
        (transfers as f64 * 1e9 / time, weighed / time)
    }
}

#[test]
fn a_store_that_serves_one_at_a_time_gets_two() {
    let mut run = Run::new();
    let mut store = Store::new(1, 100_000);
    run.go(&mut store, 64, 2_000);
    run.most = 0;
    let (rate, on_way) = run.go(&mut store, 64, 20_000);
    assert!(rate > 0.98 * 8_000.0, "{rate} of 8,000 slices/s");
    assert!(run.most <= 3 && on_way < 2.3, "at most {}, on average {on_way}", run.most);
}

#[test]
fn a_store_that_serves_many_at_once_is_kept_busy() {
    for at_once in [4, 16, 64] {
        let mut run = Run::new();
        let mut store = Store::new(at_once, 20_000_000);
        run.go(&mut store, 500, 4_000);
        let (rate, on_way) = run.go(&mut store, 500, 20_000);
        let full = at_once as f64 * 1e9 / 25_000_000.0;
        assert!(rate > 0.93 * full, "{at_once} at once: {rate} of {full} slices/s");
        assert!(on_way < 1.5 * at_once as f64 + 2.0, "{at_once} at once: {on_way} on their way");
    }
}

#[test]
fn what_nobody_waits_for_opens_nothing() {
    let mut run = Run::new();
    run.go(&mut Store::new(64, 1_000_000), 3, 10_000);
    assert!(run.window.limit_bytes() <= 6 * TAKES, "{} bytes for three", run.window.limit_bytes());
}

#[test]
fn a_store_that_changes_is_found_out() {
    let mut run = Run::new();
    run.go(&mut Store::new(32, 1_000_000), 200, 5_000);
    let wide = run.window.limit_bytes();
    assert!(wide > 24 * TAKES, "{wide} bytes");
    // much slower, and one at a time
    let mut slow = Store::new(1, 10_000_000);
    slow.free[0] = run.now;
    run.go(&mut slow, 200, 20_000);
    let narrow = run.window.limit_bytes();
    assert!(narrow < 3 * TAKES, "{narrow} bytes");
    let (_, on_way) = run.go(&mut slow, 200, 1_000);
    assert!(on_way < 2.5, "{on_way}");
    let mut fast = Store::new(32, 1_000_000);
    fast.free.fill(run.now);
    run.go(&mut fast, 200, 20_000);
    assert!(run.window.limit_bytes() > 24 * TAKES, "{} bytes", run.window.limit_bytes());
}

#[test]
fn it_backs_off_by_half_and_comes_back() {
    let mut run = Run::new();
    let mut store = Store::new(32, 1_000_000);
    run.go(&mut store, 200, 5_000);
    let before = run.window.limit_bytes();
    run.window.back_off();
    assert_eq!(run.window.limit_bytes(), before / 2);
    for _ in 0..20 {
        run.window.back_off();
    }
    assert_eq!(run.window.limit_bytes(), TAKES, "one slice is the least");
    run.go(&mut store, 200, 5_000);
    assert!(run.window.limit_bytes() > before / 2);
}

proptest! {
    /// Whatever transfers take: there is room when nothing is on its way, no more than the window
    /// but one transfer, and nothing is left in it at the end.
    #[test]
    fn it_keeps_its_bounds(steps in proptest::collection::vec((0usize..4, 0usize..=SLICE, 0u64..1 << 40, any::<bool>()), 1..500)) {
        let mut window = Window::new(SLICE);
        let mut on_way: Vec<Transfer> = Vec::new();
        for (what, bytes, nanos, waiting) in steps {
            let kind = if bytes % 2 == 0 { Kind::Read } else { Kind::Write };
            if on_way.is_empty() {
                prop_assert!(window.has_room(kind, bytes));
            }
            match what {
                0 | 1 if window.has_room(kind, bytes) => {
                    on_way.push(window.begin(kind, bytes));
                    prop_assert!(on_way.len() == 1 || window.bytes() <= window.limit_bytes());
                }
                2 if !on_way.is_empty() => window.end(on_way.swap_remove(bytes % on_way.len()), nanos, waiting),
                3 if !on_way.is_empty() => {
                    window.failed(on_way.swap_remove(0));
                    window.back_off();
                }
                _ => {}
            }
            prop_assert!(window.limit_bytes() >= TAKES);
        }
        on_way.into_iter().for_each(|t| window.end(t, 1, false));
        prop_assert_eq!(window.bytes(), 0);
    }
}
