//! All third-party copies of a door: how many may be on their way, and how they reach others.

use super::remote::Remote;
use leeward_door::Shares;

/// All third-party copies of a door.
pub struct Transfers {
    pub(super) remote: Remote,
    pub(super) slots: Shares,
}

impl Transfers {
    /// At most `most` at a time, of one user at most four fifths.
    pub fn new(remote: Remote, most: usize) -> Transfers {
        Transfers { remote, slots: Shares::new(most) }
    }
}
