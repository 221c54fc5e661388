//! What the current operation waits for: noted where it waits, collected where the operation is
//! accounted for.
//!
//! An operation runs on one thread from beginning to end (or once to find that it would wait, then
//! again on another). So the notes are kept per thread: no parameter through every layer, no lock.
//! Code that measures an operation calls [`take`] before it and after it. Notes that nobody takes
//! are dropped with the next [`take`].

use crate::{Flow, Nanos};
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
}

impl Cause {
    /// All of them, in order.
    pub const ALL: [Cause; 11] = [
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
        }
    }
}

/// How long an operation waited for what, and behind whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    nanos: [Nanos; Cause::ALL.len()],
    behind: [Option<Flow>; Cause::ALL.len()],
}

impl Waits {
    /// No waits.
    pub const NONE: Waits = Waits { nanos: [0; Cause::ALL.len()], behind: [None; Cause::ALL.len()] };

    /// Adds a wait. `behind`: the flow that had what was waited for, where it is known; of several
    /// the last is kept.
    pub fn add(&mut self, cause: Cause, behind: Option<Flow>, nanos: Nanos) {
        self.nanos[cause as usize] += nanos;
        if behind.is_some() {
            self.behind[cause as usize] = behind;
        }
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Waits) {
        for cause in Cause::ALL {
            self.add(cause, other.behind[cause as usize], other.nanos[cause as usize]);
        }
    }

    /// Time waited for this cause.
    pub fn of(&self, cause: Cause) -> Nanos {
        self.nanos[cause as usize]
    }

    /// The flow that this cause was waited behind, where known.
    pub fn behind(&self, cause: Cause) -> Option<Flow> {
        self.behind[cause as usize]
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

/// The notes of this thread since the last [`take`].
pub fn noted() -> Waits {
    NOTED.with(Cell::get)
}

/// The notes of this thread since the last call; removes them.
pub fn take() -> Waits {
    NOTED.with(|noted| noted.replace(Waits::NONE))
}
