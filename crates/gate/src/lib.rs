//! The fair queue behind the gates: who is next, by what each flow has used. No I/O, no clock, no lock of its own.
//!
//! [`FairQueue`] is start-time fair queueing: virtual time instead of rounds, so that a cost need not be known before the
//! work is done, and a turn takes O(log lines) whatever was charged (docs/decisions/0009 has the reasons).
//!
//! * **Fair**: while two lines have work waiting, what they get, divided by their weights, differs by at most what one turn of each
//!   costs (times the turns that run at once).
//! * **Sparse first**: a line that was quiet is served before all that have used their share, and owes nothing for
//!   having been quiet, nor has it saved anything up.
//! * **Work-conserving**: while something waits, [`FairQueue::pop`] gives something.
//! * **Bounded**: it remembers lines with work waiting or running, or that are ahead of the others; nothing after an idle moment.

mod queue;

pub use queue::{FairQueue, Line, Turn};
