//! The one way in: every operation of every front end comes through [`Shard::call`].

use crate::error::{Error, Result};
use crate::keys::VIEW_FIRST;
use crate::op::{NodeId, Op, Reply};
use crate::ops::{Copy, NewNode, Placing, Rename};
use crate::shard::Shard;
use leeward_env::{Ctx, Door};
use std::sync::atomic::Ordering;

impl Op<'_> {
    /// Names of the kinds of operations, for reports; [`Op::number`] is the index.
    pub const NAMES: [&'static str; 29] = [
        "lookup",
        "getattr",
        "setattr",
        "readlink",
        "make",
        "link",
        "unlink",
        "rmdir",
        "rename",
        "read",
        "write",
        "fsync",
        "syncfs",
        "allocate",
        "seek",
        "copy",
        "list",
        "getxattr",
        "listxattr",
        "setxattr",
        "removexattr",
        "statfs",
        "forget",
        "makeunnamed",
        "place",
        "beginupload",
        "keeppart",
        "completeupload",
        "endupload",
    ];

    /// Number of its kind.
    pub fn number(&self) -> usize {
        match self {
            Op::Lookup { .. } => 0,
            Op::GetAttr { .. } => 1,
            Op::SetAttr { .. } => 2,
            Op::ReadLink { .. } => 3,
            Op::Make { .. } => 4,
            Op::Link { .. } => 5,
            Op::Unlink { .. } => 6,
            Op::RmDir { .. } => 7,
            Op::Rename { .. } => 8,
            Op::Read { .. } => 9,
            Op::Write { .. } => 10,
            Op::Fsync { .. } => 11,
            Op::SyncAll => 12,
            Op::Allocate { .. } => 13,
            Op::SeekTo { .. } => 14,
            Op::CopyRange { .. } => 15,
            Op::List { .. } => 16,
            Op::GetXattr { .. } => 17,
            Op::ListXattr { .. } => 18,
            Op::SetXattr { .. } => 19,
            Op::RemoveXattr { .. } => 20,
            Op::StatFs { .. } => 21,
            Op::Forget { .. } => 22,
            Op::MakeUnnamed { .. } => 23,
            Op::Place { .. } => 24,
            Op::BeginUpload { .. } => 25,
            Op::KeepPart { .. } => 26,
            Op::CompleteUpload { .. } => 27,
            Op::EndUpload { .. } => 28,
        }
    }

    /// The inode that an operation is about; of two, the directory that gets the name or the file that gets the data. `None`: it is
    /// about all, or about what the kernel forgets.
    pub fn node(&self) -> Option<NodeId> {
        Some(match *self {
            Op::Lookup { dir, .. }
            | Op::Make { dir, .. }
            | Op::MakeUnnamed { dir, .. }
            | Op::Place { dir, .. }
            | Op::BeginUpload { dir, .. }
            | Op::CompleteUpload { dir, .. }
            | Op::Link { dir, .. }
            | Op::Unlink { dir, .. }
            | Op::RmDir { dir, .. }
            | Op::List { dir, .. } => dir,
            Op::Rename { to_dir, .. } => to_dir,
            Op::GetAttr { node }
            | Op::SetAttr { node, .. }
            | Op::ReadLink { node }
            | Op::Read { node, .. }
            | Op::Write { node, .. }
            | Op::Fsync { node }
            | Op::KeepPart { node, .. }
            | Op::Allocate { node, .. }
            | Op::SeekTo { node, .. }
            | Op::GetXattr { node, .. }
            | Op::ListXattr { node }
            | Op::SetXattr { node, .. }
            | Op::RemoveXattr { node, .. }
            | Op::StatFs { node } => node,
            Op::CopyRange { to, .. } => to,
            Op::EndUpload { upload } => upload,
            Op::SyncAll | Op::Forget { .. } => return None,
        })
    }

    /// Whether it adds records.
    fn grows(&self) -> bool {
        matches!(
            self,
            Op::Make { .. }
                | Op::MakeUnnamed { .. }
                | Op::BeginUpload { .. }
                | Op::Link { .. }
                | Op::SetXattr { .. }
        )
    }

    /// Whether it is about a snapshot or a directory of snapshots.
    fn is_on_view(&self) -> bool {
        let is_view = |node: NodeId| node.volume() >= VIEW_FIRST;
        match self {
            Op::Rename { from_dir, to_dir, .. } => is_view(*from_dir) || is_view(*to_dir),
            op => op.node().is_some_and(is_view),
        }
    }

    /// Whether it changes anything.
    pub(crate) fn changes(&self) -> bool {
        !matches!(
            self,
            Op::Lookup { .. }
                | Op::GetAttr { .. }
                | Op::ReadLink { .. }
                | Op::Read { .. }
                | Op::SeekTo { .. }
                | Op::List { .. }
                | Op::GetXattr { .. }
                | Op::ListXattr { .. }
                | Op::StatFs { .. }
                | Op::Forget { .. }
        )
    }
}

impl Shard {
    /// Runs one operation. Of a door's changes others are told: who caches them has not seen them pass.
    pub(crate) fn call(&self, ctx: &Ctx, op: &Op<'_>) -> Result<Reply> {
        let reply = self.perform(ctx, op)?;
        if ctx.door != Door::Mount && op.changes() {
            self.tell_of(op);
        }
        Ok(reply)
    }

    fn perform(&self, ctx: &Ctx, op: &Op<'_>) -> Result<Reply> {
        self.counters.operations.fetch_add(1, Ordering::Relaxed);
        if op.is_on_view()
            && let Some(answer) = self.call_on_view(ctx, op)
        {
            return answer;
        }
        self.admit(ctx, op)?;
        match *op {
            Op::Lookup { dir, name } => self.transact(ctx, |tx| tx.lookup(dir, name)),
            Op::GetAttr { node } => self.transact(ctx, |tx| Ok(Reply::Attr(tx.attr(node, &tx.inode(node)?)))),
            Op::SetAttr { node, ref set } => self.set_attr(ctx, node, set),
            Op::ReadLink { node } => self.transact(ctx, |tx| tx.read_link(node)),
            Op::Make { dir, name, make, mode, umask } => {
                let new = NewNode { dir, name, make, mode, umask };
                self.transact(ctx, |tx| tx.make(&new))
            }
            Op::MakeUnnamed { dir, mode, umask, bytes } => {
                self.transact(ctx, |tx| tx.make_unnamed(dir, (mode, umask), bytes))
            }
            Op::Place { node, dir, name, over } => self.place(ctx, &Placing { node, dir, name, over }),
            Op::BeginUpload { dir, key, note } => self.transact(ctx, |tx| tx.begin_upload(dir, key, note)),
            Op::KeepPart { node, upload, number, note } => self.keep_part(ctx, upload, node, (number, note)),
            Op::CompleteUpload { upload, node, dir, name, over, note } => {
                self.complete_upload(ctx, upload, &Placing { node, dir, name, over }, note)
            }
            Op::EndUpload { upload } => self.transact(ctx, |tx| tx.end_upload(upload)),
            Op::Link { node, dir, name } => self.transact(ctx, |tx| tx.link(node, dir, name)),
            Op::Unlink { dir, name, over } => self.transact(ctx, |tx| tx.unlink(dir, name, over)),
            Op::RmDir { dir, name } => self.transact(ctx, |tx| tx.remove_dir(dir, name)),
            Op::Rename { from_dir, from_name, to_dir, to_name, mode } => {
                self.rename(ctx, &Rename { from_dir, from_name, to_dir, to_name, mode })
            }
            Op::Read { node, offset, len } => self.read(ctx, node, offset, len),
            Op::Write { node, offset, data } => self.write(ctx, node, offset, data),
            Op::Fsync { node } => self.fsync(ctx, node),
            Op::SyncAll => self.sync_all(ctx),
            Op::Allocate { node, offset, len, mode } => self.allocate(ctx, node, offset, len, mode),
            Op::SeekTo { node, offset, what } => self.seek(ctx, node, offset, what),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy_range(ctx, &Copy { from, from_offset, to, to_offset, len })
            }
            Op::List { dir, after, limit, attrs } => self.list(ctx, dir, after, limit, attrs),
            Op::GetXattr { node, name } => self.transact(ctx, |tx| tx.get_xattr(node, name)),
            Op::ListXattr { node } => self.transact(ctx, |tx| tx.list_xattr(node)),
            Op::SetXattr { node, name, value, mode } => {
                self.transact(ctx, |tx| tx.set_xattr(node, name, value, mode))
            }
            Op::RemoveXattr { node, name } => self.transact(ctx, |tx| tx.remove_xattr(node, name)),
            Op::StatFs { node } => Ok(self.stat_fs(node)),
            Op::Forget { node, count } => self.transact(ctx, |tx| tx.forget(node, count)),
        }
    }

    /// What every operation must pass.
    pub(crate) fn admit(&self, ctx: &Ctx, op: &Op<'_>) -> Result<()> {
        if let (Some(node), true) = (op.node(), self.is_cautious()) {
            let st = self.lock();
            if st.volumes.get(&st.live_node(node).volume()).is_none_or(|v| v.removing) {
                return Err(Error::Stale);
            }
            if let (Some(why), true) = (&st.broken, op.changes()) {
                return Err(Error::Io(why.clone()));
            }
        }
        if op.changes() && self.committer.is_behind() {
            Self::may_wait(ctx)?;
            self.commit_now(ctx)?;
        }
        if let (Some(node), true) = (op.node(), op.grows()) {
            self.need_room(ctx, node.volume(), self.pool_of_volume(node.volume()), 0)?;
        }
        Ok(())
    }
}
