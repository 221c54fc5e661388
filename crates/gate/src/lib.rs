//! What the gates are made of: who is next, by what each flow has used ([`FairQueue`]), and how much may be on its way to a store at once
//! ([`Window`]). No I/O, no clock, no lock of its own.
//!
//! [`FairQueue`] is start-time fair queueing: virtual time instead of rounds, so that a cost need not be known before the
//! work is done, and a turn takes O(log users) whatever was charged (docs/decisions/0009 has the reasons). It has two levels: users (in a
//! class) share by their weights, then the jobs of a user share what he gets (docs/decisions/0013).
//!
//! * **Fair**: while two users have work waiting, what they get, divided by their weights, differs by at most what one turn of each
//!   costs (times the turns that run at once); so do two jobs of a user. How many jobs a user has changes nothing for others.
//! * **Sparse first**: a line that was quiet is served before all that have used their share, and owes nothing for
//!   having been quiet, nor has it saved anything up.
//! * **Work-conserving**: while something waits that no ceiling holds back, [`FairQueue::pop`] gives something.
//! * **Ceilings**: a user who has one gets at most what a second allows at once and so much in each second more, see [`Share`].
//! * **Bounded**: it remembers lines with work waiting or running, or that are ahead of the others; nothing after an idle moment but
//!   what is left of ceilings, for the second in which that counts.
//!
//! [`Window`] keeps a store's own queue short, where nobody can overtake (docs/decisions/0011).

mod ceiling;
mod jobs;
mod queue;
mod window;

pub use queue::{FairQueue, Line, Turn};
pub use window::{Kind, Transfer, Window};

/// What was said about a user: his part relative to others, and what he gets at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Relative to other users; [`Line::USUAL`] is that of whom nothing was said about.
    pub weight: u32,
    /// Most operations in a second; 0: no ceiling.
    pub ops_per_sec: u64,
    /// Most bytes read and written in a second; 0: no ceiling. An operation that began may cross it: the next ones wait for that.
    pub bytes_per_sec: u64,
}

impl Share {
    /// The share of a user about whom nothing was said.
    pub const USUAL: Share = Share { weight: Line::USUAL, ops_per_sec: 0, bytes_per_sec: 0 };

    /// Whether there is a ceiling.
    pub fn has_ceiling(&self) -> bool {
        self.ops_per_sec > 0 || self.bytes_per_sec > 0
    }
}

/// A weight without ceilings.
impl From<u32> for Share {
    fn from(weight: u32) -> Share {
        Share { weight, ..Share::USUAL }
    }
}
