//! Merges many small pieces into one: a user who writes single bytes here and there must not make
//! so many records that everybody waits.
//!
//! A file is handled in chunks of [`CHUNK_BYTES`]. An operation that would cut a chunk of more than
//! [`CHUNK_PIECES_MAX`] pieces into more rewrites the chunk first, in blocks of [`BLOCK_BYTES`].
//! Small holes between data become zeros, as on file systems that allocate whole blocks. So the
//! extents of a window stay few, whoever writes them.

use super::content::Piece;
use crate::before::Before;
use crate::format::extents::{self, Extents, Source};
use crate::format::inode::{Body, Inode};
use crate::format::keys;
use crate::shard::Shard;
use crate::state::pending::Change;
use crate::tx::{Tx, TxResult};
use leeward_data::Owner;
use leeward_env::Ctx;
use leeward_fs::{Error, NodeId, Result};
use std::ops::Range;

/// Bytes that are checked, and merged, at once.
const CHUNK_BYTES: u64 = 64 << 10;
/// A chunk with up to this many pieces is left as it is: data in pieces of 512 bytes.
const CHUNK_PIECES_MAX: usize = 128;
/// A merged range begins and ends at a multiple of this.
const BLOCK_BYTES: u64 = 4 << 10;
/// How often one operation merges before it goes on all the same: others may write there, too.
pub(super) const MERGES_MAX: usize = 8;

/// The planned content of a chunk.
#[derive(PartialEq, Eq)]
struct Merge {
    /// Pieces to rewrite, as they are now.
    data: Vec<Piece>,
    /// The range that becomes reserved space, without holes.
    reserved: Option<Range<u64>>,
    /// Holes in either.
    holes: Vec<Range<u64>>,
}

impl Tx<'_> {
    /// A chunk of many pieces that a change of this range would cut.
    pub(super) fn crowded_chunk(
        &self,
        node: NodeId,
        inode: &Inode,
        range: &Range<u64>,
    ) -> TxResult<Option<Range<u64>>> {
        for at in [range.start, range.end.saturating_sub(1)] {
            let start = at - at % CHUNK_BYTES;
            let chunk = start..start + CHUNK_BYTES;
            let is_replaced = range.start <= chunk.start && chunk.end <= range.end;
            if !is_replaced && self.is_crowded(node, inode, &chunk)? {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    fn is_crowded(&self, node: NodeId, inode: &Inode, chunk: &Range<u64>) -> TxResult<bool> {
        let pending = self.st.pending_of(node).map_or(0, |p| p.within(chunk.clone()).count());
        if pending + self.stored_pieces(node, inode, chunk)? <= CHUNK_PIECES_MAX {
            return Ok(false);
        }
        let view = self.view(node, inode, chunk.clone())?;
        Ok(view.iter().filter(|(_, source)| source.is_some()).count() > CHUNK_PIECES_MAX)
    }

    /// Extents in the records; a chunk is in one window.
    fn stored_pieces(&self, node: NodeId, inode: &Inode, chunk: &Range<u64>) -> TxResult<usize> {
        let Some((window, part, _)) = extents::windows(chunk.clone()).next() else { return Ok(0) };
        match &inode.body {
            Body::File { spilled: false, .. } if window == 0 => Ok(0),
            Body::File { windows: false, .. } if window > 0 => Ok(0),
            _ => {
                let stored = self.get(&keys::extents(node, window))?;
                Ok(stored.map_or(0, |value| Extents::count_encoded(&value, part)))
            }
        }
    }

    /// The planned content of a crowded chunk; `None` when it is not crowded.
    fn merge_of(&self, node: NodeId, inode: &Inode, chunk: &Range<u64>) -> TxResult<Option<Merge>> {
        if !self.is_crowded(node, inode, chunk)? {
            return Ok(None);
        }
        let view = self.view(node, inode, chunk.clone())?;
        let mut filled = view.iter().filter(|(_, source)| source.is_some()).map(|(r, _)| r);
        let (Some(first), Some(last)) = (filled.next(), filled.next_back()) else { return Ok(None) };
        let start = (first.start - first.start % BLOCK_BYTES).max(chunk.start);
        let end = last.end.next_multiple_of(BLOCK_BYTES).min(chunk.end);
        // data is never past the end of the file
        let middle = self.size_of(node, inode).0.clamp(start, end);
        let has_data = view.iter().any(|(_, source)| matches!(source, Some(Source::Data(_))));
        let data_end = if has_data { middle } else { start };
        let reserved = (data_end < end).then_some(data_end..end);
        let reserved =
            reserved.filter(|r| !has_data || view.iter().any(|(p, s)| s.is_some() && p.end > r.start));
        let end = reserved.as_ref().map_or(data_end, |r| r.end);
        let within = |(r, source): &Piece, from: u64, to: u64| {
            let part = r.start.max(from)..r.end.min(to);
            (!part.is_empty()).then(|| {
                let source = source.map(|s| s.skip((part.start - r.start) as u32));
                (part, source)
            })
        };
        let mut data: Vec<Piece> = Vec::new();
        for (part, source) in view.iter().filter_map(|p| within(p, start, data_end)) {
            // the same, whether it is in the records yet or not
            match data.last_mut() {
                Some((r, s)) if s.map(|s| s.skip((r.end - r.start) as u32)) == source => r.end = part.end,
                _ => data.push((part, source)),
            }
        }
        let holes = view.iter().filter(|(_, source)| source.is_none());
        let holes = holes.filter_map(|p| within(p, start, end)).map(|(r, _)| r).collect();
        Ok(Some(Merge { data, reserved, holes }))
    }

    /// Puts the merged chunk in place, if it is unchanged since it was read; `false`: it is not.
    fn put_merged(
        &mut self,
        node: NodeId,
        chunk: &Range<u64>,
        merge: &Merge,
        write: Option<Change>,
    ) -> TxResult<bool> {
        self.quietly();
        let mut inode = self.file(node)?;
        if self.merge_of(node, &inode, chunk)?.as_ref() != Some(merge) {
            return Ok(false);
        }
        let grows: u64 = merge.holes.iter().map(|r| r.end - r.start).sum();
        let mut changes: Vec<Change> = write.into_iter().collect();
        let mut fills = Vec::new();
        if let Some(range) = merge.reserved.clone() {
            fills = merge.holes.iter().filter(|r| r.start >= range.start).cloned().collect();
            changes.push(Change::Fill { range });
        }
        self.change(node, &mut inode, changes, grows as i64, fills, 1)?;
        Ok(true)
    }
}

impl Shard {
    /// Makes one piece of a crowded chunk, or leaves it: when others write there all the time, or
    /// it cannot be read.
    pub(super) fn merge_chunk(&self, ctx: &Ctx, node: NodeId, chunk: Range<u64>) -> Result<()> {
        let pool = self.pool_of(ctx, node)?;
        let mut before = Before::default();
        for _ in 0..MERGES_MAX {
            let merge = self.transact(ctx, |tx| {
                let inode = tx.file(node)?;
                tx.merge_of(node, &inode, &chunk)
            })?;
            let Some(merge) = merge else { return Ok(()) };
            let Some(start) = merge.data.first().map(|(r, _)| r.start) else {
                if self.transact(ctx, |tx| tx.put_merged(node, &chunk, &merge, None))? {
                    return Ok(());
                }
                continue;
            };
            let bytes = match self.fetch(ctx, &merge.data) {
                Err(e @ Error::WouldBlock) => return Err(e),
                // overwritten meanwhile, or damaged: the caller's write does not need it
                Err(_) => continue,
                Ok(bytes) => bytes,
            };
            let len = bytes.len() as u64;
            self.need_room(ctx, node.volume(), pool, len)?;
            let owner = Owner { volume: node.volume(), inode: node.inode(), offset: start };
            let addr = self.log.append(ctx, pool, owner, &bytes)?;
            let write = Change::Write { offset: start, len, addr };
            let put = &mut |tx: &mut Tx<'_>| tx.put_merged(node, &chunk, &merge, Some(write.clone()));
            let done = self.attempt(ctx, put, &before);
            if !matches!(done, Ok(Ok(true))) {
                self.log.dead(addr, len as u32);
            }
            self.log.unhold(addr.segment);
            match done? {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // not while the segment is held: others may wait for older content in the same
                Err(unmet) => self.meet(ctx, unmet, &mut before)?,
            }
        }
        Ok(())
    }
}
