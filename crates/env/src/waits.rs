//! What the current operation waits for: noted where it waits, collected where the operation is
//! accounted for.
//!
//! An operation runs on one thread from beginning to end (or once to find that it would wait, then
//! again on another). So the notes are kept per thread: no parameter through every layer, no lock.
//! Code that measures an operation calls [`take`] before it and after it. Notes that nobody takes
//! are dropped with the next [`take`].

use crate::{Flow, Machine, Nanos};
use std::cell::Cell;

/// What an operation can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// Its turn: others are served first.
    Turn,
    /// Its user's ceiling.
    Ceiling,
    /// A thread that may wait.
    Thread,
    /// The lock of the metadata.
    Lock,
    /// Records that are not in memory.
    Records,
    /// A commit of the metadata.
    Commit,
    /// Its own data to become durable.
    Put,
    /// Memory for data that is not durable yet: more was written than its share.
    Memory,
    /// Data that is read from a store.
    Read,
    /// Its turn at a store: others' transfers are served first.
    Store,
    /// Other machines to drop their copies of what it changes.
    Leases,
    /// The server, which was not heard of by the others, to be sure that the cell is still its own.
    Term,
}

impl Cause {
    /// All of them, in order.
    pub const ALL: [Cause; 12] = [
        Cause::Turn,
        Cause::Ceiling,
        Cause::Thread,
        Cause::Lock,
        Cause::Records,
        Cause::Commit,
        Cause::Put,
        Cause::Memory,
        Cause::Read,
        Cause::Store,
        Cause::Leases,
        Cause::Term,
    ];

    /// The name in reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Turn => "turn",
            Cause::Ceiling => "ceiling",
            Cause::Thread => "thread",
            Cause::Lock => "lock",
            Cause::Records => "records",
            Cause::Commit => "commit",
            Cause::Put => "put",
            Cause::Memory => "memory",
            Cause::Read => "read",
            Cause::Store => "store",
            Cause::Leases => "leases",
            Cause::Term => "term",
        }
    }
}

/// A machine that had leases which an operation waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The machine.
    pub machine: Machine,
    /// It did not give them back: they were taken.
    pub were_taken: bool,
}

/// How long an operation waited for what, and behind whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    nanos: [Nanos; Cause::ALL.len()],
    behind: [Option<Flow>; Cause::ALL.len()],
    /// Who had the leases that were waited for, and for how long in the longest of these waits.
    holder: Option<(Holder, Nanos)>,
}

impl Waits {
    /// No waits.
    pub const NONE: Waits =
        Waits { nanos: [0; Cause::ALL.len()], behind: [None; Cause::ALL.len()], holder: None };

    /// Adds a wait. `behind`: the flow that had what was waited for, where it is known; of several
    /// the last is kept.
    pub fn add(&mut self, cause: Cause, behind: Option<Flow>, nanos: Nanos) {
        self.nanos[cause as usize] += nanos;
        if behind.is_some() {
            self.behind[cause as usize] = behind;
        }
    }

    /// Adds a wait for leases. `holder`: who gave them back last, where it is known; of several
    /// waits the longest counts.
    pub fn add_leases(&mut self, holder: Option<Holder>, nanos: Nanos) {
        self.nanos[Cause::Leases as usize] += nanos;
        self.note_holder(holder.map(|holder| (holder, nanos)));
    }

    fn note_holder(&mut self, other: Option<(Holder, Nanos)>) {
        if let Some((_, nanos)) = other
            && self.holder.is_none_or(|(_, longest)| nanos > longest)
        {
            self.holder = other;
        }
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Waits) {
        for cause in Cause::ALL {
            self.add(cause, other.behind[cause as usize], other.nanos[cause as usize]);
        }
        self.note_holder(other.holder);
    }

    /// Time waited for this cause.
    pub fn of(&self, cause: Cause) -> Nanos {
        self.nanos[cause as usize]
    }

    /// The flow that this cause was waited behind, where known.
    pub fn behind(&self, cause: Cause) -> Option<Flow> {
        self.behind[cause as usize]
    }

    /// Who had the leases that were waited for, where known.
    pub fn holder(&self) -> Option<Holder> {
        self.holder.map(|(holder, _)| holder)
    }

    /// Time waited in all.
    pub fn total(&self) -> Nanos {
        self.nanos.iter().sum()
    }

    /// All waits, the longest first.
    pub fn longest_first(&self) -> Vec<(Cause, Option<Flow>, Nanos)> {
        let mut all: Vec<_> =
            Cause::ALL.iter().map(|c| (*c, self.behind(*c), self.of(*c))).filter(|w| w.2 > 0).collect();
        all.sort_by_key(|w| std::cmp::Reverse(w.2));
        all
    }
}

thread_local! {
    static NOTED: Cell<Waits> = const { Cell::new(Waits::NONE) };
}

/// Notes a wait of the operation that this thread runs.
pub fn note(cause: Cause, behind: Option<Flow>, nanos: Nanos) {
    NOTED.with(|noted| {
        let mut waits = noted.get();
        waits.add(cause, behind, nanos);
        noted.set(waits);
    });
}

/// Notes a wait for leases, see [`Waits::add_leases`].
pub fn note_leases(holder: Option<Holder>, nanos: Nanos) {
    NOTED.with(|noted| {
        let mut waits = noted.get();
        waits.add_leases(holder, nanos);
        noted.set(waits);
    });
}

/// The notes of this thread since the last [`take`].
pub fn noted() -> Waits {
    NOTED.with(Cell::get)
}

/// The notes of this thread since the last call; removes them.
pub fn take() -> Waits {
    NOTED.with(|noted| noted.replace(Waits::NONE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(name: &str) -> Option<Holder> {
        Some(Holder { machine: Machine::named(name), were_taken: false })
    }

    #[test]
    fn of_several_waits_for_leases_the_longest_says_who_had_them() {
        let mut waits = Waits::NONE;
        waits.add_leases(holder("quick"), 1);
        waits.add_leases(holder("slow"), 7);
        waits.add_leases(None, 9);
        let mut all = Waits::NONE;
        all.add_leases(holder("other"), 3);
        all.add_all(&waits);
        assert_eq!((all.of(Cause::Leases), all.holder()), (20, holder("slow")));
        note_leases(holder("quick"), 2);
        assert_eq!((take().holder(), take().holder()), (holder("quick"), None));
    }
}
