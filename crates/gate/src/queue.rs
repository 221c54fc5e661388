//! See the crate's head.

use leeward_env::{Class, Flow};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};

/// Expected cost of the first turn of a line, nanoseconds: an operation on records in memory. Corrected by what turns cost.
const FIRST_COST: u64 = 20_000;
/// Virtual time of one nanosecond at weight 1.
const SCALE: u128 = 1 << 16;

/// What a queue is fair between: a flow, in one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    /// Who.
    pub flow: Flow,
    /// How urgent: a weight.
    pub class: Class,
}

impl Line {
    /// Share of this line relative to others, for a flow of this weight (usually [`Line::USUAL`]).
    fn weight(self, of_flow: u32) -> u128 {
        let of_class = match self.class {
            Class::Interactive => 16,
            Class::Batch => 4,
            Class::Background => 1,
        };
        of_class * u128::from(of_flow.max(1))
    }

    /// The weight of a flow about which nothing was said.
    pub const USUAL: u32 = 100;
}

/// A line's turn, from [`FairQueue::pass`] or [`FairQueue::pop`] to [`FairQueue::done`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a turn ends with `done`"]
pub struct Turn {
    /// Whose.
    pub line: Line,
    charged: u64,
    weight: u128,
}

/// Items in lines, and whose turn it is.
pub struct FairQueue<T> {
    lines: FxHashMap<Line, State<T>>,
    /// Lines with items, by the virtual time at which their next turn starts.
    ready: BTreeSet<(u128, u64, Line)>,
    /// Lines without items that are ahead of the virtual time: to be forgotten when it has caught up.
    ahead: BTreeSet<(u128, u64, Line)>,
    /// Start of the turn that was given last.
    now: u128,
    /// Settles ties: first come, first served.
    arrivals: u64,
    waiting: usize,
    running: usize,
}

struct State<T> {
    items: VecDeque<T>,
    /// When the next turn starts, in virtual time.
    start: u128,
    /// Of the first item that waits.
    arrival: u64,
    running: usize,
    /// What a turn cost lately, nanoseconds.
    usual_cost: u64,
    weight: u128,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue {
            lines: FxHashMap::default(),
            ready: BTreeSet::new(),
            ahead: BTreeSet::new(),
            now: 0,
            arrivals: 0,
            waiting: 0,
            running: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Items that wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Turns that have begun and not ended.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Turns of this line that have begun and not ended.
    pub fn running_of(&self, line: Line) -> usize {
        self.lines.get(&line).map_or(0, |s| s.running)
    }

    /// Lines that are remembered.
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Lines with items that wait, and how many of them.
    pub fn backlog(&self) -> impl Iterator<Item = (Line, usize)> + '_ {
        self.ready.iter().map(|(_, _, line)| (*line, self.lines.get(line).map_or(0, |s| s.items.len())))
    }

    /// Adds an item at the end of its line. `weight`: of the flow, counts from now on.
    pub fn push(&mut self, line: Line, weight: u32, item: T) {
        self.place(line, weight, |state| state.items.push_back(item));
        self.waiting += 1;
    }

    /// A turn for a line that has nothing waiting, at once: for who finds the gate open.
    pub fn pass(&mut self, line: Line, weight: u32) -> Turn {
        self.running += 1;
        self.place(line, weight, |state| state.begin(line))
    }

    /// The next item, if any.
    pub fn pop(&mut self) -> Option<(Turn, T)> {
        self.pop_if(|_, _| true)
    }

    /// The next item of a line that `may` have one more turn, given how many of its turns run.
    pub fn pop_if(&mut self, may: impl Fn(Line, usize) -> bool) -> Option<(Turn, T)> {
        let running = |line| self.lines.get(line).map_or(0, |s| s.running);
        let &(start, _, line) = self.ready.iter().find(|(_, _, line)| may(*line, running(line)))?;
        self.now = self.now.max(start);
        let arrival = self.arrivals;
        let begun = self.change(line, |state| {
            let item = state.items.pop_front()?;
            state.arrival = arrival;
            Some((state.begin(line), item))
        })?;
        self.arrivals += 1;
        self.waiting -= 1;
        self.running += 1;
        self.forget_passed();
        Some(begun)
    }

    /// The turn has ended and has cost so much, in nanoseconds.
    pub fn done(&mut self, turn: Turn, cost: u64) {
        self.running -= 1;
        self.change(turn.line, |state| {
            state.running -= 1;
            state.usual_cost = (state.usual_cost * 7 + cost) / 8;
            state.correct(turn.charged, cost, turn.weight);
            Some(())
        });
        if self.running == 0 && self.waiting == 0 {
            self.rest();
        }
    }

    /// An idle moment: nobody is ahead of anybody.
    fn rest(&mut self) {
        self.lines.clear();
        self.ready.clear();
        self.ahead.clear();
        self.now = 0;
    }

    /// Changes a line, known or new.
    fn place<R>(&mut self, line: Line, weight: u32, change: impl FnOnce(&mut State<T>) -> R) -> R {
        let arrival = self.arrivals;
        self.arrivals += 1;
        let now = self.now;
        self.lines.entry(line).or_insert_with(|| State::new(now));
        let changed = self.change(line, |state| {
            state.weight = line.weight(weight);
            if state.items.is_empty() {
                // what a quiet line did not use is gone
                state.start = state.start.max(now);
                state.arrival = arrival;
            }
            Some(change(state))
        });
        changed.expect("the line is there")
    }

    /// Changes a line that is known, and keeps it where it belongs.
    fn change<R>(&mut self, line: Line, change: impl FnOnce(&mut State<T>) -> Option<R>) -> Option<R> {
        let state = self.lines.get_mut(&line)?;
        let place = (state.start, state.arrival, line);
        let was_ready = !state.items.is_empty();
        let result = change(state);
        let (is_ready, new_place) = (!state.items.is_empty(), (state.start, state.arrival, line));
        if was_ready != is_ready || place != new_place {
            match was_ready {
                true => self.ready.remove(&place),
                false => self.ahead.remove(&place),
            };
        }
        if is_ready {
            self.ready.insert(new_place);
        } else if state.running > 0 || state.start > self.now {
            self.ahead.insert(new_place);
        } else {
            self.ahead.remove(&new_place);
            self.lines.remove(&line);
        }
        result
    }

    /// Forgets quiet lines that are not ahead any more.
    fn forget_passed(&mut self) {
        while let Some(&place) = self.ahead.first()
            && place.0 <= self.now
        {
            self.ahead.remove(&place);
            if self.lines.get(&place.2).is_some_and(|s| s.running == 0) {
                self.lines.remove(&place.2);
            }
        }
    }
}

impl<T> State<T> {
    fn new(now: u128) -> State<T> {
        State {
            items: VecDeque::new(),
            start: now,
            arrival: 0,
            running: 0,
            usual_cost: FIRST_COST,
            weight: 1,
        }
    }

    /// Begins a turn, and charges what it will probably cost.
    fn begin(&mut self, line: Line) -> Turn {
        self.running += 1;
        self.start += virtual_time(self.usual_cost, self.weight);
        Turn { line, charged: self.usual_cost, weight: self.weight }
    }

    /// Puts right what was charged.
    fn correct(&mut self, charged: u64, cost: u64, weight: u128) {
        let (charged, cost) = (virtual_time(charged, weight), virtual_time(cost, weight));
        self.start = (self.start + cost).saturating_sub(charged);
    }
}

fn virtual_time(cost: u64, weight: u128) -> u128 {
    u128::from(cost) * SCALE / weight
}
