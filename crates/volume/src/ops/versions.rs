//! Versions of content, by which other machines know whether what they have on a disk of theirs is
//! what a file has now.
//!
//! A version says where the bytes of a block are: in which segments, and where there. That address
//! never changes, and no number of a segment is used twice, whatever crashes. So two blocks with
//! one version have the same bytes. Only a cell that was put back from a backup uses numbers again
//! that the same cell has used before. Therefore each opening of the cell has a random number,
//! which is stored before a segment is made, and the version has that of the opening in which each
//! segment was made.

use super::content::Piece;
use crate::format::extents::Source;
use crate::shard::Shard;
use crate::tx::{Tx, TxResult};
use leeward_env::Ctx;
use leeward_env::limits::{VERSION_BLOCK_BYTES, VERSION_BLOCKS_MAX};
use leeward_fs::{NodeId, Reply, Result};
use ring::digest::{Context, SHA256};

impl Shard {
    /// [`Op::ContentVersions`](leeward_fs::Op::ContentVersions).
    pub(crate) fn content_versions(&self, ctx: &Ctx, node: NodeId, block: u64) -> Result<Reply> {
        let versions = self.transact(ctx, |tx| {
            tx.lease(node);
            tx.content_versions(node, block)
        })?;
        Ok(Reply::Data(versions.into_iter().flat_map(u64::to_le_bytes).collect()))
    }
}

impl Tx<'_> {
    fn content_versions(&self, node: NodeId, first: u64) -> TxResult<Vec<u64>> {
        let inode = self.file(node)?;
        let (size, _) = self.size_of(node, &inode);
        let mut versions = Vec::new();
        for block in (first..first.saturating_add(VERSION_BLOCKS_MAX))
            .take_while(|block| block.saturating_mul(VERSION_BLOCK_BYTES) < size)
        {
            let from = block * VERSION_BLOCK_BYTES;
            let range = from..(from + VERSION_BLOCK_BYTES).min(size);
            let pieces = self.view(node, &inode, range.clone())?;
            versions.push(self.version(&pieces, range.start, range.end));
        }
        Ok(versions)
    }

    /// The version of these pieces, however they are cut.
    fn version(&self, pieces: &[Piece], from: u64, to: u64) -> u64 {
        let mut digest = Context::new(&SHA256);
        // what the piece before leads to, if the next one goes on there
        let mut goes_on: Option<Option<Source>> = None;
        for (range, source) in pieces {
            // zeros, allocated or not
            let source = source.filter(|source| matches!(source, Source::Data(_)));
            if goes_on != Some(source) {
                digest.update(&(range.start - from).to_le_bytes());
                match source {
                    Some(Source::Data(addr)) => {
                        digest.update(&self.st.segments.opening_of(addr.segment).to_le_bytes());
                        digest.update(&addr.segment.to_le_bytes());
                        digest.update(&addr.offset.to_le_bytes());
                    }
                    _ => digest.update(b"zeros"),
                }
            }
            goes_on = Some(source.map(|source| source.skip((range.end - range.start) as u32)));
        }
        digest.update(&(to - from).to_le_bytes());
        let version = digest.finish().as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        // 0 says nothing
        version.max(1)
    }
}
