//! fsync: what it waits for, and no more.

use crate::shard::Shard;
use crate::state::pending::Change;
use crate::tx::{Tx, TxResult};
use leeward_env::Ctx;
use leeward_env::limits::INLINE_BYTES_MAX;
use leeward_env::waits::{self, Cause};
use leeward_fs::{Error, NodeId, Reply, Result};
use leeward_meta::InlineData;
use std::sync::Arc;
use std::time::Duration;

/// Most pending changes that become inline data: each is a record of its own in the journal.
const INLINE_CHANGES_MAX: usize = 4096;

/// What must happen before the content of a file can be committed.
enum Staged {
    /// Nothing: it is in the running transaction.
    Done,
    /// These segments must become durable.
    Segments(Vec<u64>),
}

impl Shard {
    /// [`Op::Fsync`](leeward_fs::Op::Fsync).
    pub(crate) fn fsync(&self, ctx: &Ctx, node: NodeId) -> Result<Reply> {
        Self::may_wait(ctx)?;
        if self.leases.are_exclusive() {
            let owned = self.leases.owned_by_others(ctx.client, &[node]);
            let _recalling = (!owned.is_empty()).then(|| self.recall(ctx, &owned)).transpose()?;
        }
        self.stage(ctx, node)?;
        self.commit_now(ctx)?;
        Ok(Reply::Done)
    }

    /// [`Op::SyncAll`](leeward_fs::Op::SyncAll). A client has sent its own changes before.
    pub(crate) fn sync_for(&self, ctx: &Ctx) -> Result<Reply> {
        if ctx.client == 0 {
            drop(self.recall_exclusive(ctx, None)?);
        }
        self.sync_all(ctx)
    }

    /// Makes all changes so far durable.
    pub(crate) fn sync_all(&self, ctx: &Ctx) -> Result<Reply> {
        Self::may_wait(ctx)?;
        let told = self.lock().sessions.last_told();
        self.log.seal_older(Duration::ZERO);
        let mut segments: Vec<u64> = self.lock().by_segment.keys().copied().collect();
        segments.sort_unstable();
        for segment in &segments {
            self.log.wait_durable(ctx, *segment)?;
        }
        self.apply_stored()?;
        let is_all_applied = {
            let st = self.lock();
            segments.iter().all(|segment| !st.by_segment.contains_key(segment))
        };
        self.commit_now(ctx)?;
        if is_all_applied {
            self.are_durable(told);
        }
        Ok(Reply::Done)
    }

    /// Moves the content that `node` has now into the running transaction: little data goes into
    /// the journal with the metadata, more waits for its segments.
    pub(crate) fn stage(&self, ctx: &Ctx, node: NodeId) -> Result<()> {
        if let Staged::Segments(segments) = self.transact(ctx, |tx| self.stage_step(tx, node))? {
            Self::may_wait(ctx)?;
            // data written meanwhile is not waited for
            let wait = || segments.into_iter().try_for_each(|segment| self.log.wait_durable(ctx, segment));
            let (durable, waited) = self.timed(wait);
            waits::note(Cause::Put, None, waited);
            durable?;
            // usually nothing is left to do
            self.apply_content(ctx, node)?;
        }
        Ok(())
    }

    fn stage_step(&self, tx: &mut Tx<'_>, node: NodeId) -> TxResult<Staged> {
        let Some(pending) = tx.st.files.get(&node) else { return Ok(Staged::Done) };
        let queue: Vec<(u64, Change)> = pending.queue().cloned().collect();
        let (bytes, changes) = pending.amount();
        if bytes > INLINE_BYTES_MAX as u64 || changes > INLINE_CHANGES_MAX {
            return Ok(Staged::Segments(pending.segments()));
        }
        let mut inline_data = Vec::new();
        for (_, change) in &queue {
            if let Change::Write { offset, len, addr } = change {
                if tx.st.is_stored(addr.segment) {
                    continue;
                }
                let mut bytes = vec![0u8; *len as usize];
                if !self.log.peek(*addr, &mut bytes) {
                    return Ok(Staged::Segments(pending.segments()));
                }
                let owner = (node.volume(), node.inode(), *offset);
                inline_data.push(InlineData {
                    segment: addr.segment,
                    offset: addr.offset,
                    owner,
                    bytes: Arc::from(bytes),
                });
            }
        }
        tx.apply_queue(node, &queue)?;
        tx.inline(inline_data);
        Ok(Staged::Done)
    }

    /// Waits until the content that `node` has now is in its records. Content written meanwhile is
    /// not waited for: a writer that never stops would hold the caller for ever.
    pub(crate) fn drain(&self, ctx: &Ctx, node: NodeId) -> Result<()> {
        let segments = match self.lock().files.get(&node) {
            None => return Ok(()),
            Some(pending) => pending.segments(),
        };
        Self::may_wait(ctx)?;
        segments
            .into_iter()
            .try_for_each(|segment| self.log.wait_durable(ctx, segment).map_err(Error::from))?;
        // usually nothing is left to do
        self.apply_content(ctx, node)
    }
}
