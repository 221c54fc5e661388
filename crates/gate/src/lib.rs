//! The parts of the gates: which request is next, by what each flow has used ([`FairQueue`]), and
//! how much may be in flight to a store at once ([`Window`]). No I/O, no clock, no lock of its own.
//!
//! [`FairQueue`] is start-time fair queueing. It uses virtual time instead of rounds, so the cost
//! need not be known before the work is done, and a turn takes O(log users) whatever was charged
//! (docs/decisions/0009 has the reasons). It has two levels: users (in a class) share by their
//! weights, then the jobs of a user share what the user gets (docs/decisions/0013).
//!
//! * **Fair**: while two users have work waiting, what they get, divided by their weights, differs
//!   by at most the cost of one turn of each (times the turns that run at once). The same holds for
//!   two jobs of a user. The number of a user's jobs changes nothing for others.
//! * **Sparse first**: a line that was quiet is served before all that have used their share. It
//!   owes nothing for having been quiet, nor has it saved anything up.
//! * **Work-conserving**: while an item waits that no ceiling holds back, [`FairQueue::pop`]
//!   returns one.
//! * **Ceilings**: a user who has one gets at most what a second allows at once, and as much in
//!   each further second, see [`Share`].
//! * **Bounded**: it keeps lines with work waiting or running, or that are ahead of the others.
//!   After an idle moment it keeps only the state of ceilings, for the second in which that counts.
//!
//! [`Window`] keeps a store's own queue short, because nobody can overtake there
//! (docs/decisions/0011).

mod ceiling;
mod jobs;
mod queue;
mod window;

pub use queue::{FairQueue, Line, Turn};
pub use window::{Kind, Transfer, Window};

/// Settings of a user: the weight relative to other users, and the ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Weight relative to other users; [`Line::USUAL`] if the operator set none.
    pub weight: u32,
    /// Most operations in a second; 0: no ceiling.
    pub ops_per_sec: u64,
    /// Most bytes read and written in a second; 0: no ceiling. An operation that began may cross
    /// it: the next ones wait for that.
    pub bytes_per_sec: u64,
}

impl Share {
    /// The share of a user without settings.
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
