//! copy_file_range: large whole ranges share extents, the rest is copied.

use super::content::Piece;
use crate::format::extents::{self, Source};
use crate::format::inode::Stats;
use crate::format::keys;
use crate::shard::Shard;
use crate::tx::{Tx, TxResult};
use leeward_data::Addr;
use leeward_env::Ctx;
use leeward_env::limits::{FILE_BYTES_MAX, INLINE_BYTES_MAX, WRITE_BYTES_MAX};
use leeward_fs::{Error, NodeId, Reply, Result};
use std::ops::Range;

/// Bytes that one step shares.
const STEP_BYTES: u64 = 64 << 20;

/// Both ends of a copy.
#[derive(Clone, Copy)]
pub struct Copy {
    /// The source file.
    pub from: NodeId,
    /// Offset in the source file.
    pub from_offset: u64,
    /// The target file.
    pub to: NodeId,
    /// Offset in the target file.
    pub to_offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Tx<'_> {
    /// Length that can be copied: up to the end of the source.
    fn copy_len(&self, c: &Copy) -> TxResult<u64> {
        let from = self.file(c.from)?;
        let to = self.file(c.to)?;
        self.may_write(c.to, &to, c.to_offset)?;
        let size = self.size_of(c.from, &from).0;
        let len = c.len.min(size.saturating_sub(c.from_offset));
        if c.to_offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::TooBig.into());
        }
        if c.from == c.to && c.from_offset < c.to_offset + len && c.to_offset < c.from_offset + len {
            return Err(Error::Invalid.into());
        }
        Ok(len)
    }

    /// Shares one step's extents; `false` when that is impossible: some are not in records, as
    /// content is being written there, or the target has too many pieces already.
    fn share(&mut self, c: &Copy) -> TxResult<bool> {
        let range = c.from_offset..c.from_offset + c.len;
        let is_written = self.st.pending_of(c.from).is_some_and(|p| p.within(range).next().is_some());
        if is_written || self.st.files.contains_key(&c.to) {
            return Ok(false);
        }
        let source = self.file(c.from)?;
        let plan: Vec<Piece> = self.view(c.from, &source, c.from_offset..c.from_offset + c.len)?;
        let mut inode = self.file(c.to)?;
        self.may_write(c.to, &inode, c.to_offset)?;
        let range = c.to_offset..c.to_offset + c.len;
        if self.crowded_chunk(c.to, &inode, &range)?.is_some() {
            return Ok(false);
        }
        let was = self.allocated_in(c.to, &inode, range.clone())?;
        let is: u64 = plan.iter().filter(|(_, s)| s.is_some()).map(|(r, _)| r.end - r.start).sum();
        if inode.is_counted() {
            let by = Stats { bytes: is as i64 - was as i64, ..Stats::default() };
            self.charge(Self::counted_in(c.to, &inode), by)?;
        }
        for (part, from) in plan {
            let start = part.start - c.from_offset + c.to_offset;
            self.put_shared(c.to, &mut inode, start..start + (part.end - part.start), from)?;
        }
        self.settle_windows(c.to, &mut inode)?;
        inode.size = inode.size.max(range.end);
        inode.content_lsn = self.lsn();
        inode.touch(self.now);
        self.drop_privileges(c.to, &mut inode)?;
        self.put_inode(c.to, &inode)?;
        Ok(true)
    }

    fn put_shared(
        &mut self,
        node: NodeId,
        inode: &mut crate::format::inode::Inode,
        range: Range<u64>,
        source: Option<Source>,
    ) -> TxResult<()> {
        for (window, part, skip) in extents::windows(range) {
            let source = match source {
                Some(Source::Data(a)) => {
                    let addr = Addr { segment: a.segment, offset: a.offset + skip as u32 };
                    // cleaning finds users of data by the file it was written for; another user
                    // needs a back reference
                    self.put(keys::backref(addr.segment, addr.offset, node, window), [1u8][..].into());
                    Some(Source::Data(addr))
                }
                other => other,
            };
            self.replace(node, inode, window, part, source)?;
        }
        Ok(())
    }
}

impl Shard {
    /// [`Op::CopyRange`](leeward_fs::Op::CopyRange).
    pub(crate) fn copy_range(&self, ctx: &Ctx, c: &Copy) -> Result<Reply> {
        Self::may_wait(ctx)?;
        let len = self.transact(ctx, |tx| tx.copy_len(c))?;
        let source = self.lock().live_node(c.from);
        if source.volume() != c.to.volume() || len <= INLINE_BYTES_MAX as u64 {
            return self.copy_bytes(ctx, &Copy { len, ..*c }).map(Reply::Written);
        }
        let mut done = 0;
        while done < len {
            let step = Copy {
                from_offset: c.from_offset + done,
                to_offset: c.to_offset + done,
                len: (len - done).min(STEP_BYTES),
                ..*c
            };
            self.drain(ctx, source)?;
            self.drain(ctx, c.to)?;
            if self.transact(ctx, |tx| tx.share(&step))? {
                done += step.len;
                continue;
            }
            // another operation writes to one of them: what cannot be shared is copied, so that
            // this ends all the same
            let copied = self.copy_bytes(ctx, &step)?;
            done += copied;
            if copied < step.len {
                break;
            }
        }
        Ok(Reply::Written(done))
    }

    /// Reads and writes; less than asked for where the source has become shorter.
    fn copy_bytes(&self, ctx: &Ctx, c: &Copy) -> Result<u64> {
        let mut done = 0;
        while done < c.len {
            let n = (c.len - done).min(WRITE_BYTES_MAX as u64);
            let Reply::Data(data) = self.read(ctx, c.from, c.from_offset + done, n as u32)? else { break };
            if data.is_empty() {
                break;
            }
            self.write(ctx, c.to, c.to_offset + done, &data)?;
            done += data.len() as u64;
        }
        Ok(done)
    }
}
