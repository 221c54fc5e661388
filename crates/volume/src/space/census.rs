//! Counts, in bounded steps in the background, what users and groups own in a cell of before format
//! 15. Where a step ends is stored with what it has counted, so a crash counts nothing twice.

use crate::format::keys;
use crate::format::owned::Owned;
use crate::shard::Shard;
use crate::state::Effect;
use crate::tx::{Tx, TxResult};
use leeward_env::Work;
use leeward_fs::{NodeId, Result};

/// Records that one step looks at, in one hold of the lock.
const STEP_RECORDS: usize = 256;

impl Tx<'_> {
    /// Counts some inodes of a volume from `from` on.
    fn count_some(&mut self, volume: u32, from: u64, most: usize) -> TxResult<()> {
        if self.st.owners.next_uncounted() != Some((volume, from)) {
            return Ok(()); // it was removed meanwhile
        }
        let (start, _) = keys::node_range(NodeId::new(volume, from));
        let (_, end) = keys::volume_range(volume);
        let page = self.scan(&start, &end, most, false)?;
        for (key, record) in &page {
            if let Some(node) = keys::parse_inode(key) {
                self.count_found(node, Owned::of_record(record));
            }
        }
        // other records of the last inode are left out: its own is the first
        let last = page.last().filter(|_| page.len() == most);
        let next = last.map(|(key, _)| keys::table_id(key) + 1);
        self.then(Effect::Counted(volume, next));
        Ok(())
    }
}

impl Shard {
    /// One step of counting; `true` when there was something to do.
    pub(crate) fn census_step(&self) -> Result<bool> {
        let Some((volume, from)) = self.lock().owners.next_uncounted() else { return Ok(false) };
        let ctx = self.work_ctx(Work::Census, Some(volume));
        let most = self.step_size(STEP_RECORDS);
        // into the engine's memory, for the read under the lock
        let (start, _) = keys::node_range(NodeId::new(volume, from));
        self.scan(&start, &keys::volume_range(volume).1, most)?;
        self.in_turn(&ctx, volume, || self.transact(&ctx, |tx| tx.count_some(volume, from, most)))?;
        Ok(true)
    }
}
