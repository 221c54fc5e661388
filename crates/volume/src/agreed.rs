//! What the leases of clients on other machines say to a transaction.

use leeward_fs::NodeId;

/// What must be done before a transaction takes effect.
pub(crate) enum First {
    /// Leases on these inodes must come back. Then it runs again.
    Recall(Vec<NodeId>),
    /// The same where it only looks: then it may get leases itself.
    Look(Vec<NodeId>),
    /// What others have changed must be durable. Then it runs again.
    Commit,
    /// It must not: its client has lost the leases under which it was told.
    Refuse,
}

/// How a transaction goes with leases.
#[derive(Default)]
pub(crate) struct Agreed {
    /// `None`: it takes effect.
    pub(crate) first: Option<First>,
    /// Leases on these are recalled when it has taken effect.
    pub(crate) told_later: Vec<NodeId>,
}

impl Agreed {
    /// It does not take effect before that.
    pub(crate) fn after(first: First) -> Agreed {
        Agreed { first: Some(first), told_later: Vec::new() }
    }
}
