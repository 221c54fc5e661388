//! Invalidates entries in the caches of front ends (the kernel's) after changes by another door.
//!
//! Only entries that they know: names in directories, and inodes, to which they hold references. A
//! door answers a change when its [`Op::Fsync`] has returned, and that waits until all front ends
//! have dropped the entries. So a client that has its answer sees the change everywhere.

use crate::shard::Shard;
use leeward_env::{Ctx, Door};
use leeward_fs::{Change, Effect, NodeId, Op, sessions};
use std::sync::atomic::Ordering;

impl Shard {
    /// Invalidates the entries that this operation has changed. An operation that makes changes
    /// durable waits until all front ends have dropped the entries.
    pub(crate) fn invalidate_changed(&self, ctx: &Ctx, op: &Op<'_>) {
        if !self.has_watchers() {
            return;
        }
        op.announce(&mut |change| match change {
            Change::Entry(dir, name) => self.invalidate_known_entry(dir, name),
            // of other callers' inodes the transaction has told
            Change::Inode(node) if ctx.door == Door::Mount => self.invalidate_known_inode(ctx, node),
            Change::Inode(_) => (),
        });
        if op.effect() == Effect::Settles {
            self.wait_invalidated();
        }
    }

    /// Whether front ends must be told what this caller changes.
    pub(crate) fn tells_others(&self, ctx: &Ctx) -> bool {
        ctx.door != Door::Mount && self.has_watchers()
    }

    fn invalidate_known_entry(&self, dir: NodeId, name: &[u8]) {
        if self.is_known(dir) {
            self.invalidate_entry(dir, name);
            // of other directories the transaction has told
            if dir.is_view() {
                self.invalidate_inode(dir);
            }
            self.note_announced();
        }
    }

    /// A mount knows the root without a reference.
    fn is_known(&self, node: NodeId) -> bool {
        node == NodeId::ROOT || self.lock().is_known_here(node)
    }

    /// A file without a name that a door writes is known only to that door. One of another machine
    /// may have had a name, and be open here.
    pub(crate) fn invalidate_known_inode(&self, ctx: &Ctx, node: NodeId) {
        let is_private = !ctx.door.is_kernel() && self.lock().orphans.contains(&node);
        if !is_private && self.is_known(node) {
            self.invalidate_inode(node);
            self.note_announced();
        }
    }

    fn note_announced(&self) {
        self.invalidations.sent.fetch_add(1, Ordering::AcqRel);
        sessions::announce();
    }

    /// Whether front ends have yet to drop entries.
    pub(crate) fn is_invalidating(&self) -> bool {
        let sent = self.invalidations.sent.load(Ordering::Acquire);
        self.invalidations.applied.load(Ordering::Acquire) < sent
    }

    /// Waits until all front ends have dropped the entries that they were told of before.
    pub(crate) fn wait_invalidated(&self) {
        let sent = self.invalidations.sent.load(Ordering::Acquire);
        if self.invalidations.applied.load(Ordering::Acquire) < sent {
            self.wait_applied();
            self.invalidations.applied.fetch_max(sent, Ordering::AcqRel);
        }
    }
}
