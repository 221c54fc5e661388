//! Freeing in bounded steps, in the background: the records of inodes that nobody can reach, and of removed volumes.
//!
//! A step that a crash interrupts is found again by its orphan or volume record.

use crate::error::Result;
use crate::extents::{Extents, Source};
use crate::inode::{Body, Inode};
use crate::keys::{self, Table, tag};
use crate::op::NodeId;
use crate::records::{Effect, Tx, TxResult};
use crate::shard::Shard;
use leeward_env::Ctx;

/// Records that one step frees.
const STEP_RECORDS: usize = 256;

impl Tx<'_> {
    fn drop_extents(&mut self, extents: &Extents) {
        for e in extents.iter() {
            if let Source::Data(addr) = e.source {
                self.add_reference(addr.segment, -i64::from(e.len));
            }
        }
    }

    /// Removes one record and what it refers to.
    fn free_record(&mut self, key: keys::Key, value: &[u8]) {
        match keys::parse(&key).map(|p| p.tag) {
            Some(tag::EXTENTS) => match Extents::decode(value) {
                Some(list) => self.drop_extents(&list),
                None => tracing::error!("extents that cannot be read are dropped; run lee fsck"),
            },
            Some(tag::INODE) => {
                if let Ok(Inode { body: Body::File { inline, .. }, .. }) = Inode::decode(value) {
                    self.drop_extents(&inline);
                }
            }
            _ => {}
        }
        self.remove(key);
    }

    /// One step; `true` when the inode is gone.
    fn free_inode_step(&mut self, node: NodeId) -> TxResult<bool> {
        let (from, to) = keys::node_range(node);
        let records = self.scan(&from, &to, STEP_RECORDS + 1, true)?;
        let finished = records.len() <= STEP_RECORDS;
        for (key, value) in records.into_iter().take(STEP_RECORDS) {
            self.free_record(key, &value);
        }
        if finished {
            self.remove(keys::orphan(node));
        }
        Ok(finished)
    }

    /// One step; `true` when the volume is gone.
    fn free_volume_step(&mut self, volume: u32) -> TxResult<bool> {
        let (from, to) = keys::volume_range(volume);
        let mut records = self.scan(&from, &to, STEP_RECORDS, false)?;
        if records.is_empty() {
            let (from, to) = (keys::orphan(NodeId::new(volume, 0)), keys::orphan(NodeId::new(volume + 1, 0)));
            records = self.scan(&from, &to, STEP_RECORDS, false)?;
        }
        if records.is_empty() {
            self.remove(keys::volume(volume));
            self.then(Effect::VolumeGone(volume));
            return Ok(true);
        }
        for (key, value) in records {
            self.free_record(key, &value);
        }
        Ok(false)
    }
}

impl Shard {
    /// One step of freeing; `true` when there was something to do.
    pub(crate) fn reclaim_step(&self) -> Result<bool> {
        let ctx = Ctx::system();
        let (node, volume) = {
            let mut st = self.lock();
            let node = st.reclaim.pop_front();
            (node, st.volumes.iter().find(|(_, v)| v.removing).map(|(id, _)| *id))
        };
        if let Some(node) = node {
            match self.transact(&ctx, |tx| tx.free_inode_step(node)) {
                Ok(true) => {}
                Ok(false) => self.lock().reclaim.push_front(node),
                Err(e) => {
                    self.lock().reclaim.push_back(node);
                    return Err(e);
                }
            }
            return Ok(true);
        }
        if let Some(volume) = volume {
            self.transact(&ctx, |tx| tx.free_volume_step(volume))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// At open: what a crash or a kill left without a name is freed.
    pub(crate) fn find_orphans(&self) -> Result<()> {
        let (mut from, to) = keys::table_range(Table::Orphan);
        loop {
            let (page, next) = self.scan(&from, &to, STEP_RECORDS)?;
            let mut st = self.lock();
            st.reclaim.extend(page.iter().map(|(k, _)| NodeId(keys::table_id(k))));
            drop(st);
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }
}
