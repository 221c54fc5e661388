//! The entry point: every operation of every front end comes through [`Shard::call`].

use crate::ops::{Copy, NewNode, Placing, Rename};
use crate::shard::Shard;
use crate::tx::{Tx, TxResult};
use leeward_env::{Ctx, Door};
use leeward_fs::leases;
use leeward_fs::sessions::{self, Again};
use leeward_fs::{Effect, Error, NodeId, Op, Reply, Result};
use std::sync::atomic::Ordering;

/// Attributes that tell of all that is below a directory.
const SUMS: [&[u8]; 4] = [b"leeward.rbytes", b"leeward.rfiles", b"leeward.rdirs", b"leeward.left"];

impl Shard {
    /// Runs one operation. Changes by a door are announced to other front ends: these may have
    /// cached the old state.
    pub(crate) fn call(&self, ctx: &Ctx, op: &Op<'_>) -> Result<Reply> {
        if self.leases.are_used() {
            leases::take_granted();
            sessions::take_told();
        }
        sessions::take_announced();
        let is_lasting = ctx.client > 0 && op.again() == Again::Never;
        if is_lasting {
            Self::may_wait(ctx)?;
        }
        let reply = self.perform(ctx, op)?;
        if is_lasting {
            self.make_lasting(ctx, op)?;
        }
        // the kernel does not know that flags, which the mount sets, change the time of change
        let sets_flags = matches!(op, Op::SetAttr { set, .. } if set.flags.is_some());
        if ctx.door != Door::Mount && op.changes() || sets_flags {
            self.invalidate_changed(ctx, op);
        }
        Ok(reply)
    }

    /// What a client could not ask for again after a crash is durable before it is answered.
    pub(crate) fn make_lasting(&self, ctx: &Ctx, op: &Op<'_>) -> Result<()> {
        match op.node().filter(|_| !op.is_on_view()) {
            Some(node) => {
                self.stage(ctx, node)?;
                self.commit_now(ctx)?;
            }
            // a snapshot is there when the content is that it shows
            None => drop(self.sync_all(ctx)?),
        }
        sessions::take_told();
        Ok(())
    }

    fn perform(&self, ctx: &Ctx, op: &Op<'_>) -> Result<Reply> {
        self.counters.operations.fetch_add(1, Ordering::Relaxed);
        if op.is_on_view()
            && let Some(answer) = self.call_on_view(ctx, op)
        {
            return answer;
        }
        self.admit(ctx, op)?;
        self.may_touch(op)?;
        match *op {
            Op::Lookup { dir, name } => self.leasing(ctx, dir, |tx| tx.lookup(dir, name)),
            Op::GetAttr { node } => {
                self.leasing(ctx, node, |tx| Ok(Reply::Attr(tx.attr(node, &tx.inode(node)?))))
            }
            Op::SetAttr { node, ref set } => self.set_attr(ctx, node, set),
            Op::ReadLink { node } => self.transact(ctx, |tx| tx.read_link(node)),
            Op::Make { dir, name, make, mode, umask } => {
                let new = NewNode { dir, name, make, mode, umask };
                self.leasing(ctx, dir, |tx| tx.make(&new).inspect(|_| tx.tell_snapshot_dir(&new)))
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
            Op::GetUpload { upload } => self.get_upload(upload),
            Op::ListParts { upload, after, limit } => Ok(self.list_parts(upload, after, limit)),
            Op::ListUploads { prefix, after, after_upload, limit } => {
                self.list_uploads(ctx, prefix, (after, after_upload), limit)
            }
            Op::StatUploads { bucket } => self.stat_uploads(ctx, bucket),
            Op::Link { node, dir, name } => self.leasing(ctx, dir, |tx| tx.link(node, dir, name)),
            Op::Unlink { dir, name, over } => self.leasing(ctx, dir, |tx| tx.unlink(dir, name, over)),
            Op::RmDir { dir, name } => self.leasing(ctx, dir, |tx| tx.remove_dir(dir, name)),
            Op::Rename { from_dir, from_name, to_dir, to_name, mode } => {
                self.rename(ctx, &Rename { from_dir, from_name, to_dir, to_name, mode })
            }
            Op::Read { node, offset, len } => self.read(ctx, node, offset, len),
            Op::Write { node, offset, data } => self.write(ctx, node, offset, data),
            Op::Append { node, data } => self.append(ctx, node, data),
            Op::ContentVersions { node, block } => self.content_versions(ctx, node, block),
            Op::Fsync { node } => self.fsync(ctx, node),
            Op::SyncAll => self.sync_for(ctx),
            Op::Allocate { node, offset, len, mode } => self.allocate(ctx, node, offset, len, mode),
            Op::SeekTo { node, offset, what } => self.seek(ctx, node, offset, what),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy_range(ctx, &Copy { from, from_offset, to, to_offset, len })
            }
            Op::List { dir, after, limit, attrs } => self.list(ctx, dir, after, limit, attrs),
            Op::GetXattr { node, name } => {
                if SUMS.contains(&name) {
                    drop(self.recall_exclusive(ctx, Some(node.volume()))?);
                }
                self.leasing(ctx, node, |tx| tx.get_xattr(node, name))
            }
            Op::ListXattr { node } => self.transact(ctx, |tx| tx.list_xattr(node)),
            Op::SetXattr { node, name, value, mode } => {
                self.transact(ctx, |tx| tx.set_xattr(node, name, value, mode))
            }
            Op::RemoveXattr { node, name } => self.transact(ctx, |tx| tx.remove_xattr(node, name)),
            Op::StatFs { node } => Ok(self.stat_fs(node)),
            Op::Forget { node, count } => self.transact(ctx, |tx| tx.forget(node, count)),
        }
    }

    /// Runs a step whose answer, with what it says of `node`, a client on another machine may keep.
    fn leasing(
        &self,
        ctx: &Ctx,
        node: NodeId,
        mut f: impl FnMut(&mut Tx<'_>) -> TxResult<Reply>,
    ) -> Result<Reply> {
        self.transact(ctx, |tx| {
            tx.lease(node);
            let reply = f(tx)?;
            reply.references().for_each(|node| tx.lease(node));
            Ok(reply)
        })
    }

    /// Users change nothing in a copy; and they see only what it shows, not where streams change
    /// it: some may have files open from before it was a copy.
    fn may_touch(&self, op: &Op<'_>) -> Result<()> {
        let (Some(node), true) = (op.node(), self.checks_every_operation()) else { return Ok(()) };
        let st = self.lock();
        let is_copy = st.volumes.get(&node.volume()).is_some_and(|v| v.properties.copy.is_some());
        // a name in another shard leads to its root
        let is_root =
            matches!(op, Op::Lookup { dir, name: b"." } if dir.inode() == 1 && self.which.count > 1);
        if is_copy && !is_root && !matches!(op, Op::Forget { .. }) {
            return Err(Error::Stale);
        }
        if op.changes() && st.is_unchangeable(node.volume()) { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// The checks that every operation must pass.
    pub(crate) fn admit(&self, ctx: &Ctx, op: &Op<'_>) -> Result<()> {
        if let (Some(node), true) = (op.node(), self.checks_every_operation()) {
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
        if let (Some(node), true) = (op.node(), op.effect() == Effect::Grows) {
            self.need_room(ctx, node.volume(), self.pool_of_volume(node.volume()), 0)?;
        }
        Ok(())
    }
}
