//! The user that a request acts as.

use leeward_env::{Class, Ctx, Door, Flow, Groups, Wait};
use std::sync::Arc;

/// The user that a request acts as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Name, for logs and errors.
    pub name: Arc<str>,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// The other groups.
    pub groups: Groups,
}

impl Principal {
    /// A user in these groups.
    pub fn new(name: &str, uid: u32, gid: u32, groups: &[u32]) -> Principal {
        Principal { name: name.into(), uid, gid, groups: Groups::of(groups) }
    }

    /// A user of the cell, in these groups now.
    pub fn of_user(name: &Arc<str>, uid: u32, gid: u32, groups: &[u32]) -> Principal {
        Principal { name: name.clone(), uid, gid, groups: Groups::of_user(name, groups) }
    }

    /// The context of this user's requests by a door: batch work, which shares fairly with
    /// everybody's and yields to interactive requests.
    pub fn ctx(&self, door: Door) -> Ctx {
        Ctx {
            uid: self.uid,
            gid: self.gid,
            gids: self.groups,
            door,
            client: 0,
            machine: None,
            call: None,
            again: None,
            foretold: None,
            delegate: None,
            pid: 0,
            flow: Flow { uid: self.uid, job: 0 },
            class: Class::Batch,
            wait: Wait::Never,
            refs: false,
        }
    }
}
