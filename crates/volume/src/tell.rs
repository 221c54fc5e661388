//! Telling front ends that cache (the kernel's) what came in by another door.
//!
//! Only of what they know: names in directories, and inodes, that they hold references to. A door answers a change when its
//! [`Op::Fsync`] has returned, and that waits until everybody has taken note; so who was answered sees the change everywhere.

use crate::shard::Shard;
use leeward_fs::{NodeId, Op};
use std::sync::atomic::{AtomicU64, Ordering};

/// How much was told, and how much of it was heard.
#[derive(Default)]
pub struct Told {
    said: AtomicU64,
    heard: AtomicU64,
}

impl Shard {
    /// Tells of what this operation has changed.
    pub(crate) fn tell_of(&self, op: &Op<'_>) {
        match *op {
            Op::Make { dir, name, .. }
            | Op::Place { dir, name, .. }
            | Op::CompleteUpload { dir, name, .. }
            | Op::Unlink { dir, name, .. }
            | Op::RmDir { dir, name } => self.tell_known_entry(dir, name),
            Op::Link { node, dir, name } => {
                self.tell_known_entry(dir, name);
                self.tell_known_inode(node);
            }
            Op::Rename { from_dir, from_name, to_dir, to_name, .. } => {
                self.tell_known_entry(from_dir, from_name);
                self.tell_known_entry(to_dir, to_name);
            }
            Op::SetAttr { node, .. }
            | Op::Write { node, .. }
            | Op::Allocate { node, .. }
            | Op::SetXattr { node, .. }
            | Op::RemoveXattr { node, .. }
            | Op::CopyRange { to: node, .. } => self.tell_known_inode(node),
            Op::Fsync { .. } | Op::SyncAll => self.wait_told(),
            _ => {}
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
