//! The fair queue. The head of the crate says what it promises.

use crate::Share;
use crate::ceiling::Ceilings;
use crate::jobs::Jobs;
use leeward_env::{Class, Flow, Nanos};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Virtual time of one nanosecond at weight 1.
const SCALE: u128 = 1 << 40;

/// What a queue is fair between: a flow, in one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    /// The flow.
    pub flow: Flow,
    /// The class: a weight.
    pub class: Class,
}

impl Line {
    /// The weight of a user without settings.
    pub const USUAL: u32 = 100;

    fn party(self) -> Party {
        Party { uid: self.flow.uid, class: self.class }
    }
}

/// A user in a class: the outer level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Party {
    uid: u32,
    class: Class,
}

impl Party {
    fn line(self, job: u32) -> Line {
        Line { flow: Flow { uid: self.uid, job }, class: self.class }
    }

    /// The weight of this class for a user of this weight (usually [`Line::USUAL`]).
    fn weight(self, of_user: u32) -> u128 {
        let of_class = u128::from(self.class.weight());
        of_class * u128::from(of_user.max(1))
    }
}

/// A line's turn, from [`FairQueue::pass`] or [`FairQueue::pop`] to [`FairQueue::done`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a turn ends with `done`"]
pub struct Turn {
    /// The line that has the turn.
    pub line: Line,
    charged: u64,
    weight: u128,
}

/// Items in lines, served in fair order.
pub struct FairQueue<T> {
    parties: FxHashMap<Party, PartyState<T>>,
    /// Parties with items, by the virtual time at which their next turn starts, then by arrival.
    ready: BTreeSet<(u128, u64, Party)>,
    /// Parties without items that are ahead of the virtual time: dropped when it has caught up.
    ahead: BTreeSet<(u128, u64, Party)>,
    /// Parties with items that a ceiling holds back, by when they may go on.
    held: BTreeSet<(Nanos, Party)>,
    ceilings: Ceilings,
    /// The time for ceilings, from the last [`FairQueue::advance`].
    time: Nanos,
    /// Start of the turn that was given last.
    now: u128,
    /// Breaks ties: first come, first served.
    arrivals: u64,
    waiting: usize,
    running: usize,
}

/// Which set has a party.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spot {
    Ready(u128, u64),
    Ahead(u128, u64),
    Held(Nanos),
    Nowhere,
}

struct PartyState<T> {
    jobs: Jobs<T>,
    /// When the next turn starts, in virtual time.
    start: u128,
    /// Arrival of the first item that waits.
    arrival: u64,
    running: usize,
    weight: u128,
    held_until: Option<Nanos>,
    spot: Spot,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue {
            parties: FxHashMap::default(),
            ready: BTreeSet::new(),
            ahead: BTreeSet::new(),
            held: BTreeSet::new(),
            ceilings: Ceilings::default(),
            time: 0,
            now: 0,
            arrivals: 0,
            waiting: 0,
            running: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Items that wait, also behind a ceiling.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Items of users who are held back by a ceiling, as far as that was checked.
    pub fn held(&self) -> usize {
        let of = |party| self.parties.get(party).map_or(0, |s| s.jobs.waiting());
        self.held.iter().map(|(_, party)| of(party)).sum()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether an item waits that is not known to be held back by a ceiling.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Turns that have begun and not ended.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Turns of this line's user, in its class, that have begun and not ended.
    pub fn running_of(&self, line: Line) -> usize {
        self.parties.get(&line.party()).map_or(0, |s| s.running)
    }

    /// Lines in memory.
    pub fn lines(&self) -> usize {
        self.parties.values().map(|s| s.jobs.count()).sum()
    }

    /// Lines with items that wait, and how many of them.
    pub fn backlog(&self) -> impl Iterator<Item = (Line, usize)> + '_ {
        let waiting =
            self.ready.iter().map(|(_, _, party)| party).chain(self.held.iter().map(|(_, party)| party));
        waiting.flat_map(|party| {
            let jobs = self.parties.get(party).into_iter().flat_map(|s| s.jobs.backlog());
            jobs.map(|(job, items)| (party.line(job), items))
        })
    }

    /// Sets the time: users whom a ceiling held back until then are in the queue again. Without
    /// ceilings the call is not needed.
    pub fn advance(&mut self, time: Nanos) {
        self.time = self.time.max(time);
        while let Some(&(until, party)) = self.held.first()
            && until <= self.time
        {
            self.release(party);
        }
    }

    /// The first moment at which a user whom a ceiling holds back may go on.
    pub fn held_until(&self) -> Option<Nanos> {
        self.held.first().map(|(until, _)| *until)
    }

    /// Whether a ceiling holds this line's user back now.
    pub fn is_held(&mut self, line: Line, share: impl Into<Share>) -> bool {
        let uid = line.flow.uid;
        self.ceilings.set(uid, share.into(), self.time);
        let held = self.parties.get(&line.party()).is_some_and(|s| s.held_until.is_some());
        held || self.ceilings.held_until(uid, self.time).is_some()
    }

    /// Counts an operation that begins now, and the bytes that it reads or writes, against its
    /// user's ceiling.
    pub fn spend(&mut self, line: Line, bytes: u64) {
        self.ceilings.spend(line.flow.uid, bytes);
    }

    /// Sets new shares, for waiting items, too.
    pub fn set_shares(&mut self, mut share: impl FnMut(u32) -> Share) {
        let parties: Vec<Party> = self.parties.keys().copied().collect();
        for party in parties {
            let share = share(party.uid);
            self.ceilings.set(party.uid, share, self.time);
            self.change(party, |state| {
                state.weight = party.weight(share.weight);
                Some(())
            });
            self.release(party);
        }
    }

    /// Adds an item at the end of its line. `share`: the user's, valid from now on.
    pub fn push(&mut self, line: Line, share: impl Into<Share>, item: T) {
        let share = share.into();
        self.ceilings.set(line.flow.uid, share, self.time);
        let arrival = self.arrivals;
        self.place(line, share.weight, |state| state.jobs.push(line.flow.job, arrival, item));
        self.waiting += 1;
    }

    /// A turn at once, for a line with nothing waiting, when the gate is open.
    pub fn pass(&mut self, line: Line, share: impl Into<Share>) -> Turn {
        let share = share.into();
        self.running += 1;
        if self.ready.is_empty() {
            // nobody is behind: what this party has used does not count against it when others come
            let started = self.parties.get(&line.party()).map_or(0, |s| s.start);
            self.now = self.now.max(started);
            self.forget_passed();
        }
        self.place(line, share.weight, |state| {
            let charged = state.jobs.pass(line.flow.job);
            state.begin(line, charged)
        })
    }

    /// The item that [`FairQueue::pop`] would give now, where nobody has a ceiling.
    pub fn peek(&self) -> Option<&T> {
        let (_, _, party) = self.ready.first()?;
        self.parties.get(party)?.jobs.peek()
    }

    /// The next item, if any.
    pub fn pop(&mut self) -> Option<(Turn, T)> {
        self.pop_if(|_, _| true)
    }

    /// The next item of a user (a line with job 0) for whom `may` allows one more turn, given the
    /// number of the user's running turns.
    pub fn pop_if(&mut self, may: impl Fn(Line, usize) -> bool) -> Option<(Turn, T)> {
        loop {
            let may = |party: &Party| may(party.line(0), self.running_of(party.line(0)));
            let &(start, _, party) = self.ready.iter().find(|(_, _, party)| may(party))?;
            match self.ceilings.held_until(party.uid, self.time) {
                Some(until) => self.hold(party, until),
                None => return self.begin(start, party),
            }
        }
    }

    fn begin(&mut self, start: u128, party: Party) -> Option<(Turn, T)> {
        self.now = self.now.max(start);
        let arrival = self.arrivals;
        let begun = self.change(party, |state| {
            let (job, charged, item) = state.jobs.pop(arrival)?;
            state.arrival = arrival;
            Some((state.begin(party.line(job), charged), item))
        })?;
        self.arrivals += 1;
        self.waiting -= 1;
        self.running += 1;
        self.forget_passed();
        Some(begun)
    }

    /// Ends a turn that cost `cost` nanoseconds.
    pub fn done(&mut self, turn: Turn, cost: u64) {
        self.running -= 1;
        self.change(turn.line.party(), |state| {
            state.running -= 1;
            state.jobs.done(turn.line.flow.job, turn.charged, cost);
            let of = |cost| virtual_time(cost, turn.weight);
            state.start = (state.start + of(cost)).saturating_sub(of(turn.charged));
            Some(())
        });
        if self.running == 0 && self.waiting == 0 {
            self.rest();
        }
    }

    /// An idle moment: nobody is ahead of anybody.
    fn rest(&mut self) {
        self.parties.clear();
        self.ready.clear();
        self.ahead.clear();
        self.held.clear();
        self.now = 0;
    }

    fn hold(&mut self, party: Party, until: Nanos) {
        self.change(party, |state| {
            state.held_until = Some(until);
            Some(())
        });
    }

    /// Lets a held party go on. What a ceiling did not allow is lost, like what a quiet line did
    /// not use.
    fn release(&mut self, party: Party) {
        let now = self.now;
        self.change(party, |state| {
            if state.held_until.take().is_some() {
                state.start = state.start.max(now);
            }
            Some(())
        });
    }

    /// Changes a party, known or new.
    fn place<R>(&mut self, line: Line, weight: u32, change: impl FnOnce(&mut PartyState<T>) -> R) -> R {
        let arrival = self.arrivals;
        self.arrivals += 1;
        let (now, party) = (self.now, line.party());
        self.parties.entry(party).or_insert_with(|| PartyState::new(now));
        let changed = self.change(party, |state| {
            state.weight = party.weight(weight);
            if state.jobs.waiting() == 0 {
                // time that a quiet line did not use is lost
                state.start = state.start.max(now);
                state.arrival = arrival;
            }
            Some(change(state))
        });
        changed.expect("the party is there")
    }

    /// Changes a known party, and moves it to the set where it belongs.
    fn change<R>(&mut self, party: Party, change: impl FnOnce(&mut PartyState<T>) -> Option<R>) -> Option<R> {
        let state = self.parties.get_mut(&party)?;
        let result = change(state);
        let (was, is) = (state.spot, state.belongs(self.now));
        state.spot = is;
        if was != is {
            match was {
                Spot::Ready(start, arrival) => _ = self.ready.remove(&(start, arrival, party)),
                Spot::Ahead(start, arrival) => _ = self.ahead.remove(&(start, arrival, party)),
                Spot::Held(until) => _ = self.held.remove(&(until, party)),
                Spot::Nowhere => (),
            }
            match is {
                Spot::Ready(start, arrival) => _ = self.ready.insert((start, arrival, party)),
                Spot::Ahead(start, arrival) => _ = self.ahead.insert((start, arrival, party)),
                Spot::Held(until) => _ = self.held.insert((until, party)),
                Spot::Nowhere => (),
            }
        }
        if is == Spot::Nowhere {
            self.parties.remove(&party);
        }
        result
    }

    /// Drops quiet parties that are not ahead any more.
    fn forget_passed(&mut self) {
        while let Some(&place) = self.ahead.first()
            && place.0 <= self.now
        {
            self.ahead.remove(&place);
            let party = place.2;
            match self.parties.get_mut(&party) {
                Some(state) if state.running > 0 => state.spot = Spot::Nowhere,
                _ => _ = self.parties.remove(&party),
            }
        }
    }
}

impl<T> PartyState<T> {
    fn new(now: u128) -> PartyState<T> {
        PartyState {
            jobs: Jobs::default(),
            start: now,
            arrival: 0,
            running: 0,
            weight: 1,
            held_until: None,
            spot: Spot::Nowhere,
        }
    }

    fn belongs(&self, now: u128) -> Spot {
        match (self.jobs.waiting(), self.held_until) {
            (0, _) if self.running > 0 || self.start > now => Spot::Ahead(self.start, self.arrival),
            (0, _) => Spot::Nowhere,
            (_, Some(until)) => Spot::Held(until),
            (_, None) => Spot::Ready(self.start, self.arrival),
        }
    }

    /// Begins a turn, and charges its expected cost.
    fn begin(&mut self, line: Line, charged: u64) -> Turn {
        self.running += 1;
        self.start += virtual_time(charged, self.weight);
        Turn { line, charged, weight: self.weight }
    }
}

fn virtual_time(cost: u64, weight: u128) -> u128 {
    u128::from(cost) * SCALE / weight
}
