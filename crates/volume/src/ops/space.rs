//! fallocate and the searches for data and holes. Large ranges go in steps, so that nobody waits
//! long.

use super::content::windows_touching;
use super::flags::may_allocate;
use super::merge::MERGES_MAX;
use crate::format::extents::{Source, WINDOW, window_of};
use crate::format::inode::Inode;
use crate::shard::Shard;
use crate::state::pending::Change;
use crate::tx::{Tx, TxResult};
use leeward_env::Ctx;
use leeward_env::limits::FILE_BYTES_MAX;
use leeward_fs::{Allocate, Error, NodeId, Reply, Result, Seek};
use std::ops::Range;

/// Bytes of a file that one step handles.
const STEP_BYTES: u64 = 64 * WINDOW;

impl Tx<'_> {
    /// Allocates the holes of `range`.
    fn reserve(
        &mut self,
        node: NodeId,
        mut inode: Inode,
        range: Range<u64>,
        keep_size: bool,
    ) -> TxResult<()> {
        let view = self.view(node, &inode, range.clone())?;
        let holes: Vec<_> = view.into_iter().filter(|(_, s)| s.is_none()).map(|(r, _)| r).collect();
        let grows: u64 = holes.iter().map(|r| r.end - r.start).sum();
        let windows = windows_touching(&range).len();
        self.touch_content(node, &mut inode)?;
        let mut changes = self.grown(node, &inode, range.end, keep_size);
        changes.push(Change::Fill { range });
        self.change(node, &mut inode, changes, grows as i64, holes, windows)
    }

    /// The change of size that comes first, where the range must be within the file.
    fn grown(&self, node: NodeId, inode: &Inode, end: u64, keep_size: bool) -> Vec<Change> {
        match !keep_size && end > self.size_of(node, inode).0 {
            true => vec![Change::Resize { size: end }],
            false => Vec::new(),
        }
    }

    /// Makes `range` a hole or zeros.
    fn zero(
        &mut self,
        node: NodeId,
        mut inode: Inode,
        range: Range<u64>,
        allocated: bool,
        keep_size: bool,
    ) -> TxResult<()> {
        let windows = self.occupied(node, &inode, windows_touching(&range), usize::MAX / 2)?;
        let was = self.allocated_within(node, &inode, &windows, range.clone())?;
        let is = if allocated { range.end - range.start } else { 0 };
        self.touch_content(node, &mut inode)?;
        let mut changes = self.grown(node, &inode, range.end, keep_size || !allocated);
        let count = if allocated { windows_touching(&range).len() } else { windows.len() };
        changes.push(Change::Zero { range, allocated });
        self.change(node, &mut inode, changes, is as i64 - was as i64, Vec::new(), count)
    }

    /// The end of the range in which a hole can be punched.
    fn occupied_end(&self, node: NodeId) -> TxResult<u64> {
        let inode = self.file(node)?;
        let last = self.windows_in(node, &inode, 0..u32::MAX, 1, true)?.last().copied();
        let records = last.map_or(0, |w| (u64::from(w) + 1) * WINDOW);
        let pending = self.st.files.get(&node).and_then(|p| p.allocated_ranges().map(|r| r.end).max());
        Ok(records.max(pending.unwrap_or(0)))
    }

    /// The first data (or hole) in the occupied window at or after `offset`; `Err(next)`: search
    /// again from there.
    fn search(&self, node: NodeId, offset: u64, what: Seek) -> TxResult<std::result::Result<u64, u64>> {
        let inode = self.file(node)?;
        let size = self.size_of(node, &inode).0;
        if offset >= size {
            return Err(Error::NoSuchPosition.into());
        }
        let window = window_of(offset);
        let end = ((u64::from(window) + 1) * WINDOW).min(size);
        let is_data = |s: &Option<Source>| matches!(s, Some(Source::Data(_)));
        let view = self.view(node, &inode, offset..end)?;
        if let Some((range, _)) = view.iter().find(|(_, s)| is_data(s) == (what == Seek::Data)) {
            return Ok(Ok(range.start));
        }
        if end < size && what == Seek::Data {
            let next = self.occupied(node, &inode, window + 1..u32::MAX, 1)?.into_iter().next();
            let next = next.map(|w| u64::from(w) * WINDOW).filter(|at| *at < size);
            return Ok(Err(next.ok_or(Error::NoSuchPosition)?));
        }
        match (end < size, what) {
            (true, _) => Ok(Err(end)),
            (false, Seek::Data) => Err(Error::NoSuchPosition.into()),
            (false, Seek::Hole) => Ok(Ok(size)),
        }
    }
}

impl Shard {
    /// [`Op::Allocate`](leeward_fs::Op::Allocate).
    pub(crate) fn allocate(
        &self,
        ctx: &Ctx,
        node: NodeId,
        offset: u64,
        len: u64,
        mode: Allocate,
    ) -> Result<Reply> {
        if len == 0 {
            return Err(Error::Invalid);
        }
        let may = |file: &Inode| if ctx.again.is_some() { Ok(()) } else { may_allocate(file, mode) };
        self.transact(ctx, |tx| Ok(may(&tx.file(node)?)?))?;
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Error::TooBig)?;
        let end = match mode {
            Allocate::PunchHole => end.min(self.transact(ctx, |tx| tx.occupied_end(node))?),
            Allocate::Reserve { .. } => {
                self.need_room(ctx, node.volume(), self.pool_of(ctx, node)?, len)?;
                end
            }
            Allocate::ZeroRange { .. } => end,
        };
        let mut at = offset;
        while at < end {
            let next = end.min((at / STEP_BYTES + 1) * STEP_BYTES);
            let mut merges = 0;
            while let Some(chunk) = self.transact(ctx, |tx| {
                let inode = tx.file(node)?;
                may(&inode)?;
                if merges < MERGES_MAX
                    && !tx.is_transfer()
                    && let Some(chunk) = tx.crowded_chunk(node, &inode, &(at..next))?
                {
                    return Ok(Some(chunk));
                }
                tx.comes_to(node, 0);
                if next < end {
                    tx.goes_on();
                }
                match mode {
                    Allocate::Reserve { keep_size } => tx.reserve(node, inode, at..next, keep_size)?,
                    Allocate::PunchHole => tx.zero(node, inode, at..next, false, true)?,
                    Allocate::ZeroRange { keep_size } => tx.zero(node, inode, at..next, true, keep_size)?,
                }
                Ok(None)
            })? {
                self.merge_chunk(ctx, node, chunk)?;
                merges += 1;
            }
            at = next;
        }
        Ok(Reply::Done)
    }

    /// [`Op::SeekTo`](leeward_fs::Op::SeekTo).
    pub(crate) fn seek(&self, ctx: &Ctx, node: NodeId, offset: u64, what: Seek) -> Result<Reply> {
        let mut at = offset;
        loop {
            match self.transact(ctx, |tx| tx.search(node, at, what))? {
                Ok(found) => return Ok(Reply::Offset(found)),
                Err(next) => at = next,
            }
        }
    }
}
