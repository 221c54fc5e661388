//! Versions of records: what is kept when a record that a snapshot sees is changed, and how a
//! snapshot's view finds it again.
//!
//! The live path never looks at history. A change of a record that the newest snapshot sees copies
//! the old version there first; later changes in the same epoch do not. History holds no references
//! to segments of its own. What a live record refers to is counted with it. Data that it drops
//! while a snapshot sees it is counted by its entry on the deadlist.

use crate::before::ViewScan;
use crate::format::extents::{Extents, Source, WINDOW};
use crate::format::inode::{Dentry, StoredDentry, birth_of, encode_xattr, xattr_value};
use crate::format::keys::{self, EpochPair, Key, tag};
use crate::ops::{PAGE, Page};
use crate::shard::Shard;
use crate::state::State;
use crate::state::pending::Pending;
use crate::state::snapshots::{Tally, View};
use crate::tx::{Fail, Tx, TxResult};
use leeward_data::Addr;
use leeward_fs::{Error, Kind, NodeId, Result};
use leeward_meta::Value;
use std::collections::BTreeMap;

/// The position of data in a file, and its epoch.
#[derive(Clone, Copy, Debug)]
pub struct DataPosition {
    /// The inode.
    pub node: NodeId,
    /// Offset of its first byte.
    pub offset: u64,
    /// The epoch in which it came there.
    pub birth: u32,
}

impl Tx<'_> {
    /// The epoch that changes of this volume belong to.
    pub(crate) fn epoch(&self, volume: u32) -> TxResult<u32> {
        match self.as_of() {
            Some(epoch) => Ok(epoch),
            None => Ok(self.st.volumes.get(&volume).ok_or(Error::Stale)?.epoch),
        }
    }

    /// Content that was written before the last snapshot must be in the records before the inode
    /// changes.
    pub(crate) fn settle_content(&self, node: NodeId, epoch: u32) -> TxResult<()> {
        match self.st.files.get(&node) {
            Some(p) if p.epoch < epoch && self.inode(node).is_ok_and(|i| i.nlink > 0) => {
                Err(Fail::Stage(node))
            }
            _ => Ok(()),
        }
    }

    /// Keeps the version of a record that is about to be changed or removed in `epoch`, if a
    /// snapshot sees it.
    pub(crate) fn keep_version(&mut self, key: &Key, epoch: u32) -> TxResult<()> {
        match self.st.snapshots.newest_before(keys::volume_of(key), epoch) {
            Some(_) => self.keep_old(key, epoch, self.get(key)?),
            None => self.keep_old(key, epoch, None),
        }
    }

    /// [`Tx::keep_version`] of a record whose value is known.
    fn keep_old(&mut self, key: &Key, epoch: u32, old: Option<Value>) -> TxResult<()> {
        self.note_before(key);
        let (volume, Some(old)) = (keys::volume_of(key), old) else { return Ok(()) };
        let Some(newest) = self.st.snapshots.newest_before(volume, epoch) else { return Ok(()) };
        let birth = birth_of(key[12], &old)?;
        if birth <= newest && !self.has_written(key) {
            let pair = EpochPair { death: epoch, birth };
            // a version dies only once
            self.put_new(keys::version(key, epoch), old);
            self.dies(key.clone(), pair);
            self.tally(volume, pair, Tally { records: 1, bytes: 0 });
        }
        Ok(())
    }

    /// Keeps the version of an inode that was read with this `birth`: most inodes that change have
    /// changed in this epoch before.
    pub(crate) fn keep_inode(&mut self, key: &Key, epoch: u32, birth: u32) -> TxResult<()> {
        if self.as_of().is_none() && birth == epoch {
            debug_assert!(self.get(key)?.is_none_or(|old| birth_of(key[12], &old) == Ok(epoch)));
            return Ok(());
        }
        self.keep_version(key, epoch)
    }

    /// Removes a record that has versions.
    pub(crate) fn remove_versioned(&mut self, key: Key) -> TxResult<()> {
        let epoch = self.epoch(keys::volume_of(&key))?;
        self.keep_version(&key, epoch)?;
        self.remove(key);
        Ok(())
    }

    /// Gives a name to an inode. A name that did not exist is noted on the deadlist, so that
    /// differences between snapshots are found without reading all names.
    pub(crate) fn put_dentry(&mut self, dir: NodeId, name: &[u8], node: NodeId, kind: Kind) -> TxResult<()> {
        let (volume, key) = (dir.volume(), keys::dentry(dir, name));
        let birth = self.epoch(volume)?;
        let value = self.get(&key)?;
        let old = value.as_ref().map(|v| StoredDentry::decode(v)).transpose()?;
        self.keep_old(&key, birth, value)?;
        let noted = match old {
            Some(old) => old.birth == birth && old.noted,
            None => self.st.snapshots.newest_before(volume, birth).is_some(),
        };
        if noted && old.is_none() {
            let pair = EpochPair { death: birth, birth: 0 };
            self.put(keys::dead_record(&key, pair), Value::default());
            self.tally(volume, pair, Tally { records: 1, bytes: 0 });
        }
        self.put(key, StoredDentry { dentry: Dentry { node, kind }, birth, noted }.encode());
        Ok(())
    }

    /// Removes a name.
    pub(crate) fn remove_dentry(&mut self, dir: NodeId, name: &[u8]) -> TxResult<()> {
        let (volume, key) = (dir.volume(), keys::dentry(dir, name));
        let epoch = self.epoch(volume)?;
        let value = self.get(&key)?;
        let old = value.as_ref().map(|v| StoredDentry::decode(v)).transpose()?;
        let noted_now = old.is_some_and(|o| o.noted && o.birth == epoch);
        if noted_now && self.st.snapshots.newest_before(volume, epoch).is_some() {
            let pair = EpochPair { death: epoch, birth: 0 };
            self.remove(keys::dead_record(&key, pair));
            self.tally(volume, pair, Tally { records: -1, bytes: 0 });
        }
        self.keep_old(&key, epoch, value)?;
        self.remove(key);
        Ok(())
    }

    /// Writes the record of a window's extents.
    pub(crate) fn put_extents(&mut self, node: NodeId, window: u32, list: &Extents) -> TxResult<()> {
        let key = keys::extents(node, window);
        let epoch = self.epoch(node.volume())?;
        self.keep_version(&key, epoch)?;
        let mut out = Vec::with_capacity(8 + 24 * list.len());
        list.encode(epoch, &mut out);
        self.put(key, out.into());
        Ok(())
    }

    /// The value of an attribute.
    pub(crate) fn xattr(&self, node: NodeId, name: &[u8]) -> TxResult<Option<Value>> {
        if let Some(value) = self.get(&keys::xattr(node, name))? {
            return Ok(Some(xattr_value(tag::XATTR, &value).into()));
        }
        self.get(&keys::xattr_plain(node, name))
    }

    /// Writes an attribute; does not count it.
    pub(crate) fn put_xattr(&mut self, node: NodeId, name: &[u8], value: &[u8]) -> TxResult<()> {
        let (epoch, plain) = (self.epoch(node.volume())?, keys::xattr_plain(node, name));
        if self.get(&plain)?.is_some() {
            self.remove_versioned(plain)?;
        }
        let key = keys::xattr(node, name);
        self.keep_version(&key, epoch)?;
        self.put(key, encode_xattr(epoch, value));
        Ok(())
    }

    /// Removes an attribute; does not count it.
    pub(crate) fn remove_xattr_record(&mut self, node: NodeId, name: &[u8]) -> TxResult<()> {
        for key in [keys::xattr(node, name), keys::xattr_plain(node, name)] {
            if self.get(&key)?.is_some() {
                self.remove_versioned(key)?;
            }
        }
        Ok(())
    }

    /// A live record no longer refers to this data: it is freed, or goes on the deadlist while a
    /// snapshot sees it.
    pub(crate) fn drop_data(&mut self, place: DataPosition, addr: Addr, len: u32) -> TxResult<()> {
        let volume = place.node.volume();
        let death = self.epoch(volume)?;
        let seen = self.st.snapshots.newest_before(volume, death).is_some_and(|s| place.birth <= s);
        if !seen {
            self.add_reference(addr.segment, -i64::from(len));
            return Ok(());
        }
        let pair = EpochPair { death, birth: place.birth };
        self.put_new(keys::dead_data(place.node, place.offset, pair), keys::dead_data_value(addr, len));
        self.tally(volume, pair, Tally { records: 1, bytes: i64::from(len) });
        Ok(())
    }

    /// [`Tx::drop_data`] of all extents of a window.
    pub(crate) fn drop_extents(&mut self, node: NodeId, window: u32, list: &Extents) -> TxResult<()> {
        for e in list.iter() {
            if let Source::Data(addr) = e.source {
                let offset = u64::from(window) * WINDOW + u64::from(e.offset);
                self.drop_data(DataPosition { node, offset, birth: e.birth }, addr, e.len)?;
            }
        }
        Ok(())
    }

    /// The inode that a name in `dir` leads to, seen from there: within a view everything is in the
    /// view, and other volumes are missing.
    pub(crate) fn seen_from(&self, dir: NodeId, entry: Dentry) -> Option<Dentry> {
        if !dir.is_view() {
            return Some(entry);
        }
        seen_in(self.st.snapshots.view(dir.volume()), dir, entry)
    }

    /// [`Tx::scan`] of a snapshot: that reads live records and versions, and how many more than are
    /// asked for is not known. So it is done before the attempt, without the lock.
    pub(crate) fn scan_view(
        &self,
        view: u32,
        from: &Key,
        to: &Key,
        limit: usize,
        reverse: bool,
    ) -> TxResult<Vec<(Key, Value)>> {
        self.st.snapshot_of(view)?;
        let scan = ViewScan { view, from: from.clone(), to: to.clone(), limit, reverse };
        match self.before.of_snapshot(&scan, self.st.views_changed) {
            Some(found) => Ok(found.to_vec()),
            None => Err(Fail::Scan(scan)),
        }
    }
}

/// As [`Tx::seen_from`]; `view`: the view that `dir` is in.
pub(crate) fn seen_in(view: Option<View>, dir: NodeId, entry: Dentry) -> Option<Dentry> {
    match view {
        None => Some(entry),
        Some(view) if view.volume() == entry.node.volume() => {
            Some(Dentry { node: NodeId::new(dir.volume(), entry.node.inode()), ..entry })
        }
        Some(_) => None,
    }
}

/// Picks from versions in order those that a snapshot sees: of each record the first that died
/// after it, if it was born by then.
pub(crate) struct Seen {
    epoch: u32,
    decided: Option<Key>,
}

impl Seen {
    /// For the snapshot of this epoch.
    pub(crate) fn new(epoch: u32) -> Seen {
        Seen { epoch, decided: None }
    }

    /// Continues with these versions.
    pub(crate) fn versions(&mut self, page: &[(Key, Value)], out: &mut BTreeMap<Key, Value>) -> Result<()> {
        for (key, value) in page {
            let Some((record, death)) = keys::parse_version(key) else { continue };
            if death <= self.epoch || self.decided.as_ref() == Some(&record) {
                continue;
            }
            if birth_of(record[12], value)? <= self.epoch {
                out.insert(record.clone(), value.clone());
            }
            self.decided = Some(record);
        }
        Ok(())
    }
}

/// Adds live records that existed at `epoch`.
pub(crate) fn seen_live(live: Vec<(Key, Value)>, epoch: u32, out: &mut BTreeMap<Key, Value>) -> Result<()> {
    for (key, value) in live {
        if birth_of(key[12], &value)? <= epoch {
            out.entry(key).or_insert(value);
        }
    }
    Ok(())
}

impl State {
    /// Volume and epoch of the snapshot that a view shows.
    pub(crate) fn snapshot_of(&self, view: u32) -> Result<(u32, u32)> {
        self.snapshots.view(view).and_then(View::snapshot).ok_or(Error::Stale)
    }

    /// What a name in `dir` that leads to this inode shows: of a copy the root directory of a
    /// snapshot.
    pub(crate) fn shown(&self, dir: NodeId, node: NodeId) -> NodeId {
        let volume = node.volume();
        if volume == dir.volume() {
            return node;
        }
        let copy = self.volumes.get(&volume).and_then(|v| v.properties.copy.as_ref());
        let view = copy.and_then(|copy| self.snapshots.known(View::Shown { volume, epoch: copy.shown }));
        view.map_or(node, |view| NodeId::new(view, node.inode()))
    }

    /// What copies show has a number.
    pub(crate) fn number_copies(&mut self) {
        for (volume, v) in self.volumes.iter() {
            if let Some(copy) = &v.properties.copy {
                self.snapshots.number(View::Shown { volume: *volume, epoch: copy.shown });
            }
        }
    }

    /// The inode that a node of a view shows; any other node is an inode itself.
    pub(crate) fn live_node(&self, node: NodeId) -> NodeId {
        match self.snapshots.view(node.volume()) {
            Some(view) => NodeId::new(view.volume(), node.inode()),
            None => node,
        }
    }

    /// Content of a file that is not in its records yet; for a view only content that existed then.
    pub(crate) fn pending_of(&self, node: NodeId) -> Option<&Pending> {
        if !node.is_view() {
            return self.files.get(&node);
        }
        let (volume, epoch) = self.snapshot_of(node.volume()).ok()?;
        self.files.get(&NodeId::new(volume, node.inode())).filter(|p| p.epoch <= epoch)
    }

    /// The first version in a range, given the first stored one.
    fn first_version(&self, stored: Option<(Key, Value)>, from: &Key, to: &Key) -> Option<Value> {
        let mut first = stored;
        for overlay in self.overlays() {
            overlay.scan(from, to, |key, slot| {
                let Some(value) = &slot.value else { return true };
                if first.as_ref().is_none_or(|(known, _)| key < known) {
                    first = Some((key.clone(), value.clone()));
                }
                false
            });
        }
        first.map(|(_, value)| value)
    }
}

impl Shard {
    /// All that [`Tx::scan`] gives of a range of a snapshot.
    pub(crate) fn scan_all_of_view(&self, scan: &ViewScan) -> Result<Vec<(Key, Value)>> {
        let (mut found, mut at) = (Vec::new(), Some(scan.from.clone()));
        while let Some(from) = at.filter(|_| scan.reverse || found.len() < scan.limit) {
            let (page, next) = self.scan_view(scan.view, &from, &scan.to, PAGE.min(scan.limit))?;
            found.extend(page);
            at = next;
        }
        if scan.reverse {
            found.reverse();
        }
        found.truncate(scan.limit);
        Ok(found)
    }

    /// [`Shard::scan`] of a snapshot: live records first, then versions. A record that dies in
    /// between is then in both.
    pub(crate) fn scan_view(&self, view: u32, from: &Key, to: &Key, limit: usize) -> Result<Page> {
        let (volume, epoch) = self.lock().snapshot_of(view)?;
        let (from, to) = (keys::with_volume(from, volume), keys::with_volume(to, volume));
        let (live, mut next) = self.scan(&from, &to, limit)?;
        let mut seen = BTreeMap::new();
        let mut versions = Seen::new(epoch);
        let end = keys::versions_from(next.as_ref().unwrap_or(&to));
        let mut at = Some(keys::versions_from(&from));
        while let Some(start) = at {
            let (page, more) = self.scan(&start, &end, PAGE)?;
            versions.versions(&page, &mut seen)?;
            at = more;
            if seen.len() >= limit && at.is_some() {
                // live records beyond the last version are left for the next page
                let last = seen.keys().next_back().expect("not empty").clone();
                next = Some(keys::after(&last));
                at = None;
            }
        }
        let known = |key: &Key| next.as_ref().is_none_or(|next| key < next);
        seen_live(live.into_iter().filter(|(key, _)| known(key)).collect(), epoch, &mut seen)?;
        if let Some(more) = seen.keys().nth(limit).cloned() {
            seen.split_off(&more);
            next = Some(more);
        }
        let records = seen.into_iter().map(|(key, value)| (keys::with_volume(&key, view), value)).collect();
        Ok((records, next.map(|next| keys::with_volume(&next, view))))
    }

    /// Loads a record of a snapshot into the cache, under the view's key. A record that has not
    /// changed since is the live one, and then there is no version that died later.
    pub(crate) fn load_view(&self, key: &Key, view: u32) -> Result<()> {
        loop {
            let (volume, epoch, seq, overlaid) = {
                let st = self.lock();
                let Ok((volume, epoch)) = st.snapshot_of(view) else {
                    // the snapshot is gone, and everything in it
                    self.cache.insert(key.clone(), None);
                    return Ok(());
                };
                (volume, epoch, st.publish_seq, st.overlay(&keys::with_volume(key, volume)))
            };
            let record = keys::with_volume(key, volume);
            let stored = match &overlaid {
                Some(value) => value.clone(),
                None => self.kv.get(&record)?,
            };
            let (from, to) = keys::versions(&record, epoch + 1);
            let versions = match is_seen(&record, stored.as_ref(), epoch)? {
                true => Vec::new(),
                false => self.kv.scan(&from, &to, 1, false)?,
            };
            let st = self.lock();
            let live = st.overlay(&record);
            if st.publish_seq != seq || overlaid.is_some() && live.is_none() {
                continue;
            }
            let live = live.unwrap_or(stored);
            let seen = match is_seen(&record, live.as_ref(), epoch)? {
                true => live,
                false => {
                    let first = st.first_version(versions.into_iter().next(), &from, &to);
                    let seen = is_seen(&record, first.as_ref(), epoch)?;
                    first.filter(|_| seen)
                }
            };
            self.cache.insert(key.clone(), seen);
            return Ok(());
        }
    }
}

/// Whether this value of a record existed at `epoch`.
fn is_seen(key: &Key, value: Option<&Value>, epoch: u32) -> Result<bool> {
    Ok(value.map(|value| birth_of(key[12], value)).transpose()?.is_some_and(|birth| birth <= epoch))
}
