//! Checks of snapshots: history, deadlists and tallies agree, and data that only snapshots see is
//! still there.

use crate::format::each;
use crate::format::extents::{Extents, Source};
use crate::format::inode::{Body, Inode, Pair, SnapshotRecord, StoredDentry, birth_of};
use crate::format::keys::{self, Dead, EpochPair, Key, Table, tag};
use crate::shard::Shard;
use crate::state::snapshots::Tally;
use leeward_data::Addr;
use leeward_env::Work;
use leeward_fs::{Error, NodeId, Result};
use leeward_meta::Moment;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// The history of one volume, as it was found.
#[derive(Default)]
pub(super) struct History {
    /// Versions of records, and what the deadlist says about them.
    versions: FxHashSet<(Key, EpochPair)>,
    listed: FxHashSet<(Key, EpochPair)>,
    /// Names, live ones and versions, whose records say that the deadlist has them.
    noted: FxHashSet<(Key, u32)>,
    tallies: FxHashMap<EpochPair, Tally>,
    /// Data that versions refer to, by node and segment.
    used: Vec<(EpochPair, NodeId, u64, Range<u32>)>,
    /// Data on the deadlist.
    dead: Vec<(u64, Range<u32>)>,
    /// Findings: kind, inode, detail.
    pub bad: Vec<(&'static str, Option<NodeId>, String)>,
}

impl History {
    /// A live record.
    pub fn live(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        if key[12] == tag::DENTRY {
            let stored = StoredDentry::decode(value)?;
            if stored.noted {
                self.noted.insert((key.clone(), stored.birth));
            }
        }
        Ok(())
    }

    fn version(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let unreadable = || Error::Corrupt("a key in the history cannot be read".into());
        let (record, death) = keys::parse_version(key).ok_or_else(unreadable)?;
        let node = keys::parse(&record).ok_or_else(unreadable)?.node;
        self.live(&record, value)?;
        let pair = EpochPair { death, birth: birth_of(record[12], value)? };
        for (addr, len) in data_of(record[12], value)? {
            self.used.push((pair, node, addr.segment, addr.offset..addr.offset + len));
        }
        self.versions.insert((record, pair));
        Ok(())
    }

    fn entry(&mut self, key: &Key, value: &[u8]) -> Result<Option<(Addr, u32)>> {
        let unreadable = || Error::Corrupt("an entry of a deadlist cannot be read".into());
        let (pair, dead) = keys::parse_dead(key, value).ok_or_else(unreadable)?;
        let tally = self.tallies.entry(pair).or_default();
        tally.records += dead.count() as i64;
        match dead {
            Dead::Records(records) => {
                self.listed.extend(records.into_iter().map(|record| (record, pair)));
                Ok(None)
            }
            Dead::Data(_, _, addr, len) => {
                tally.bytes += i64::from(len);
                self.dead.push((addr.segment, addr.offset..addr.offset + len));
                Ok(Some((addr, len)))
            }
        }
    }

    fn check_lists(&mut self, is_seen: impl Fn(EpochPair) -> bool) {
        let node = |key: &Key| keys::parse(key).map(|p| p.node);
        for (key, pair) in self.versions.difference(&self.listed) {
            self.bad.push(("history", node(key), format!("a version of {pair:?} is not on the deadlist")));
        }
        for (key, pair) in self.listed.difference(&self.versions) {
            // a listed name may be gone with every snapshot that saw it; the deadlist keeps a name
            // that did not exist before
            if pair.birth > 0 {
                self.bad.push(("history", node(key), format!("the version of {pair:?} is missing")));
            }
        }
        for (key, birth) in &self.noted {
            let pair = EpochPair { death: *birth, birth: 0 };
            if is_seen(pair) && !self.listed.contains(&(key.clone(), pair)) {
                self.bad.push(("history", node(key), format!("a name of epoch {birth} is not noted")));
            }
        }
    }

    fn check_tallies(&mut self, volume: u32, stored: &[(u32, EpochPair, Tally)]) {
        let mut found = std::mem::take(&mut self.tallies);
        for (_, pair, tally) in stored.iter().filter(|(v, ..)| *v == volume) {
            let there = found.remove(pair).unwrap_or_default();
            if there != *tally {
                self.bad.push(("deadlist", None, format!("{pair:?}: counted {tally:?}, found {there:?}")));
            }
        }
        for (pair, tally) in found {
            self.bad.push(("deadlist", None, format!("{pair:?}: found {tally:?}, not counted")));
        }
    }

    /// `live`: ranges of segments that live records refer to.
    fn check_data(&mut self, live: Vec<(u64, Range<u32>)>) {
        let mut kept: FxHashMap<u64, Vec<Range<u32>>> = FxHashMap::default();
        for (segment, range) in live.into_iter().chain(std::mem::take(&mut self.dead)) {
            kept.entry(segment).or_default().push(range);
        }
        kept.values_mut().for_each(|ranges| *ranges = crate::space::clean::merged(std::mem::take(ranges)));
        for (_, node, segment, range) in std::mem::take(&mut self.used) {
            let covers = |r: &Range<u32>| r.start <= range.start && range.end <= r.end;
            if !kept.get(&segment).is_some_and(|ranges| ranges.iter().any(covers)) {
                let detail = format!("data of a snapshot in segment {segment} at {range:?} is not kept");
                self.bad.push(("snapshot-data", Some(node), detail));
            }
        }
    }
}

/// Data that a record refers to.
pub(super) fn data_of(tag: u8, value: &[u8]) -> Result<Vec<(Addr, u32)>> {
    let list = match tag {
        tag::EXTENTS => {
            Extents::decode(value).ok_or_else(|| Error::Corrupt("extents cannot be read".into()))?
        }
        tag::INODE => match Inode::decode(value)?.body {
            Body::File { inline, .. } => inline,
            _ => return Ok(Vec::new()),
        },
        _ => return Ok(Vec::new()),
    };
    let data = list.iter().filter_map(|e| match e.source {
        Source::Data(addr) => Some((addr, e.len)),
        Source::Unwritten => None,
    });
    Ok(data.collect())
}

impl Shard {
    /// Reads history and deadlist of a volume; calls `references` for data on the deadlist.
    pub(super) fn census_history(
        &self,
        moment: &dyn Moment,
        volume: u32,
        history: &mut History,
        mut references: impl FnMut(Addr, u32),
    ) -> Result<()> {
        self.each_in_turn(Work::Check, moment, keys::history_range(volume), |k, v| {
            let done = history.version(k, v);
            done.or_else(|e| note(history, e))
        })?;
        self.each_in_turn(Work::Check, moment, keys::deadlist_range(volume), |k, v| {
            match history.entry(k, v) {
                Ok(Some((addr, len))) => references(addr, len),
                Ok(None) => {}
                Err(e) => note(history, e)?,
            }
            Ok(())
        })
    }

    /// Checks the history of a volume.
    pub(super) fn check_history(
        &self,
        moment: &dyn Moment,
        volume: u32,
        history: &mut History,
    ) -> Result<()> {
        let mut stored = Vec::new();
        each(moment, keys::table_range(Table::Tally), |key, value| {
            let Pair(records, bytes) = Pair::decode(value)?;
            let tally = Tally { records: records as i64, bytes: bytes as i64 };
            stored.extend(keys::parse_tally(key).map(|(volume, pair)| (volume, pair, tally)));
            Ok(())
        })?;
        let [(from, to), _] = keys::snapshot_ranges(volume);
        let mut dirs = Vec::new();
        each(moment, (from, to), |_, value| {
            dirs.push(SnapshotRecord::decode(value)?.dir);
            Ok(())
        })?;
        for dir in dirs {
            let node = NodeId::new(volume, dir);
            let (from, to) = keys::tag_range(node, tag::INODE);
            if moment.scan(&from, &to, 1)?.is_empty() {
                history.bad.push(("snapshot", Some(node), "the directory of a snapshot is gone".into()));
            }
        }
        history.check_tallies(volume, &stored);
        let is_seen = |pair| self.lock().snapshots.is_seen(volume, pair);
        history.check_lists(is_seen);
        // data of entries that wait for trim may be gone
        history.used.retain(|(pair, ..)| is_seen(*pair));
        if !history.used.is_empty() {
            let segments: FxHashSet<u64> = history.used.iter().map(|(_, _, segment, _)| *segment).collect();
            let mut live = Vec::new();
            each(moment, keys::volume_range(volume), |key, value| {
                let data = data_of(key[12], value).unwrap_or_default();
                let wanted = data.into_iter().filter(|(addr, _)| segments.contains(&addr.segment));
                live.extend(wanted.map(|(addr, len)| (addr.segment, addr.offset..addr.offset + len)));
                Ok(())
            })?;
            history.check_data(live);
        }
        Ok(())
    }
}

fn note(history: &mut History, e: Error) -> Result<()> {
    history.bad.push(("damaged-record", None, e.to_string()));
    Ok(())
}
