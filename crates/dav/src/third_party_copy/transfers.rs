//! All third-party copies of a door: their limit, and the client for other servers.

use super::remote::Remote;
use leeward_door::FairSemaphore;

/// All third-party copies of a door.
pub struct Transfers {
    pub(super) remote: Remote,
    pub(super) slots: FairSemaphore,
}

impl Transfers {
    /// At most `most` at a time, of one user at most four fifths.
    pub fn new(remote: Remote, most: usize) -> Transfers {
        Transfers { remote, slots: FairSemaphore::new(most) }
    }
}
