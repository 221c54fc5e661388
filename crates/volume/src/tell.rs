//! Telling front ends that cache (the kernel's) what came in by another door.
//!
//! Only of what they know: names in directories, and inodes, that they hold references to. A door answers a change when its
//! [`Op::Fsync`] has returned, and that waits until everybody has taken note; so who was answered sees the change everywhere.

use crate::shard::Shard;
use leeward_fs::{Change, Effect, NodeId, Op};
use std::sync::atomic::Ordering;

impl Shard {
    /// Tells of what this operation has changed. One that makes changes durable waits until all that was told is heard.
    pub(crate) fn tell_of(&self, op: &Op<'_>) {
        op.announce(&mut |change| match change {
            Change::Entry(dir, name) => self.tell_known_entry(dir, name),
            Change::Inode(node) => self.tell_known_inode(node),
        });
        if op.effect() == Effect::Settles {
            self.wait_told();
        }
    }

    fn tell_known_entry(&self, dir: NodeId, name: &[u8]) {
        if self.lock().refs.get(dir) > 0 {
            self.tell_entry(dir, name);
            self.tell_inode(dir);
            self.told.said.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A file without a name is known to the door alone that writes it.
    fn tell_known_inode(&self, node: NodeId) {
        let known = {
            let st = self.lock();
            st.refs.get(node) > 0 && !st.orphans.contains(&node)
        };
        if known {
            self.tell_inode(node);
            self.told.said.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn wait_told(&self) {
        let said = self.told.said.load(Ordering::Acquire);
        if self.told.heard.load(Ordering::Acquire) < said {
            self.wait_heard();
            self.told.heard.fetch_max(said, Ordering::AcqRel);
        }
    }
}
