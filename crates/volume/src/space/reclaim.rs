//! Frees, in bounded steps in the background, the records of inodes that nobody can reach, and of
//! removed volumes.
//!
//! A step that a crash interrupts is found again by its orphan or volume record.

use crate::format::extents::{Extent, Extents, Source};
use crate::format::inode::{Body, Dentry, Inode};
use crate::format::keys::{self, Key, Table, tag};
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::sweep::{Sweep, volume_ranges};
use crate::tx::{Tx, TxResult};
use leeward_env::{Ctx, Work};
use leeward_fs::uploads::PartRecord;
use leeward_fs::{Kind, NodeId, Result};

/// Records that one step frees, of an inode in one hold of the lock.
const STEP_RECORDS: usize = 256;
/// Records of a removed volume that are freed in one hold of the lock.
const HOLD_RECORDS: usize = 64;

impl Tx<'_> {
    /// Removes a record of an inode that nobody can reach, and frees what it refers to; snapshots
    /// keep what they see.
    fn free_record(&mut self, key: Key, value: &[u8]) -> TxResult<()> {
        let Some(parsed) = keys::parse(&key) else { return Ok(()) };
        match parsed.tag {
            tag::EXTENTS => match (Extents::decode(value), parsed.rest.try_into().map(u32::from_be_bytes)) {
                (Some(list), Ok(window)) => self.drop_extents(parsed.node, window, &list)?,
                _ => tracing::error!("extents that cannot be read are dropped; run lee fsck"),
            },
            tag::INODE => {
                self.count_owner(parsed.node, &key, None)?;
                if let Ok(Inode { body: Body::File { inline, .. }, .. }) = Inode::decode(value) {
                    self.drop_extents(parsed.node, 0, &inline)?;
                }
            }
            tag::STATS | tag::LINK => {
                self.remove(key);
                return Ok(());
            }
            _ => {}
        }
        self.remove_versioned(key)
    }

    /// One step, of at most `most` records; `true` when the inode is gone. Everything below a
    /// directory goes first.
    fn free_inode_step(&mut self, node: NodeId, most: usize) -> TxResult<bool> {
        if self.get(&keys::inode(node))?.is_some() && self.inode(node)?.entries() > 0 {
            self.empty_step(node, most)?;
            return Ok(false);
        }
        self.quietly();
        self.discard_deltas(node);
        self.as_of_last_change(node)?;
        let (from, to) = keys::node_range(node);
        let records = self.scan(&from, &to, most + 1, true)?;
        let finished = records.len() <= most;
        for (key, value) in records.into_iter().take(most) {
            self.free_record(key, &value)?;
        }
        if finished {
            self.remove(keys::orphan(node));
        }
        Ok(finished)
    }

    /// Removes some names from a directory that nobody can reach. Its directories become orphans.
    fn empty_step(&mut self, dir: NodeId, most: usize) -> TxResult<()> {
        let (from, to) = keys::tag_range(dir, tag::DENTRY);
        for (key, value) in self.scan(&from, &to, most, false)? {
            let Some(parsed) = keys::parse(&key) else { continue };
            let entry = Dentry::decode(&value)?;
            self.remove_entry(dir, parsed.rest, Kind::File)?;
            match entry.kind {
                Kind::Dir => self.make_orphan(entry.node)?,
                _ => {
                    self.drop_link(dir, entry.node, None)?;
                }
            }
        }
        Ok(())
    }

    /// Removes a record of a volume that goes with all its snapshots, and frees what it refers to.
    fn drop_record(&mut self, key: Key, value: &[u8]) {
        let mut dropped = Vec::new();
        let data = |e: &Extent| match e.source {
            Source::Data(addr) => Some((addr.segment, e.len)),
            Source::Unwritten => None,
        };
        match keys::parse(&key).map(|p| p.tag) {
            Some(tag::EXTENTS) => match Extents::decode(value) {
                Some(list) => dropped.extend(list.iter().filter_map(data)),
                None => tracing::error!("extents that cannot be read are dropped; run lee fsck"),
            },
            Some(tag::INODE) => {
                if let Ok(Inode { body: Body::File { inline, .. }, .. }) = Inode::decode(value) {
                    dropped.extend(inline.iter().filter_map(data));
                }
            }
            Some(_) => {}
            None => {
                if let Some((_, keys::Dead::Data(_, _, addr, len))) = keys::parse_dead(&key, value) {
                    dropped.push((addr.segment, len));
                }
            }
        }
        dropped.into_iter().for_each(|(segment, len)| self.add_reference(segment, -i64::from(len)));
        self.remove(key);
    }

    /// Drops some records of a range. Returns the last of them.
    fn drop_some(&mut self, from: &Key, to: &Key, most: usize) -> TxResult<Option<Key>> {
        let records = self.scan(from, to, most, false)?;
        let last = records.last().map(|(key, _)| key.clone());
        records.into_iter().for_each(|(key, value)| self.drop_record(key, &value));
        Ok(last)
    }

    fn drop_volume(&mut self, volume: u32) {
        self.remove(keys::volume(volume));
        self.then(Effect::VolumeGone(volume));
    }
}

impl Shard {
    /// One step of freeing; `true` when there was something to do.
    pub(crate) fn reclaim_step(&self) -> Result<bool> {
        let (node, volume) = {
            let mut st = self.lock();
            let node = st.reclaim.pop_front();
            (node, st.volumes.removing().next())
        };
        if let Some(node) = node {
            let ctx = self.work_ctx(Work::Removal, Some(node.volume()));
            let most = self.step_size(STEP_RECORDS);
            let free = || self.transact(&ctx, |tx| tx.free_inode_step(node, most));
            match self.in_turn(&ctx, node.volume(), free) {
                Ok(true) => {}
                // behind the work that it may have left
                Ok(false) => self.lock().reclaim.push_back(node),
                Err(e) => {
                    self.lock().reclaim.push_back(node);
                    return Err(e);
                }
            }
            return Ok(true);
        }
        if let Some(volume) = volume {
            self.free_volume_step(&self.work_ctx(Work::Removal, Some(volume)), volume)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn free_volume_step(&self, ctx: &Ctx, volume: u32) -> Result<()> {
        let sweep = self.lock().sweep.take().filter(|s| s.volume == volume);
        let mut sweep = sweep.unwrap_or_else(|| Sweep::new(volume));
        if self.committer.is_behind() {
            self.commit_now(ctx)?;
        }
        self.lock().list_the_dead(&self.cache);
        let ranges = volume_ranges(volume);
        let to = &ranges[sweep.range].1;
        // into the engine's memory, for the reads under the lock
        self.scan(&sweep.from, to, STEP_RECORDS)?;
        let most = self.step_size(HOLD_RECORDS);
        for _ in 0..STEP_RECORDS / most {
            let drop = || self.transact(ctx, |tx| tx.drop_some(&sweep.from, to, most));
            match self.in_turn(ctx, volume, drop)? {
                Some(last) => (sweep.from, sweep.found) = (keys::after(&last), true),
                None => {
                    sweep.range += 1;
                    break;
                }
            }
        }
        match ranges.get(sweep.range) {
            Some((start, _)) => sweep.from = sweep.from.max(start.clone()),
            None if sweep.found => sweep = Sweep::new(volume),
            None => {
                return self.transact(ctx, |tx| {
                    tx.drop_volume(volume);
                    Ok(())
                });
            }
        }
        self.lock().sweep = Some(sweep);
        Ok(())
    }

    /// At open: inodes that a crash or a kill left without a name are freed, except parts of
    /// uploads.
    pub(crate) fn find_orphans(&self) -> Result<()> {
        let (mut from, to) = keys::table_range(Table::Orphan);
        loop {
            let (page, next) = self.scan(&from, &to, STEP_RECORDS)?;
            let mut st = self.lock();
            for (key, value) in &page {
                let node = NodeId(keys::table_id(key));
                let leaves = st.volumes.get(&node.volume()).is_none_or(|volume| volume.removing);
                let freed = match Option::<PartRecord>::decode(value)? {
                    _ if leaves => None, // freed with its volume
                    Some(part) => st.uploads.add(node, part),
                    None if st.sessions.keep_all() => {
                        st.orphans.insert(node);
                        st.sessions.hold(node);
                        None
                    }
                    None => Some(node),
                };
                st.reclaim.extend(freed);
            }
            drop(st);
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }
}
