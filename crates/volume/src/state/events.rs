//! Event logs: what changed in each volume, and what operators asked of the cell.
//!
//! A transaction adds what it changes (`ops/events.rs`), and the commit that makes the changes
//! durable writes the events, too. So there is an event for each change that survives a crash, and
//! nobody is told of one that does not.

use crate::format::events::{Event, LogHead, Named, OpenBlock, digest_of};
use crate::format::keys::{self, Key};
use leeward_fs::NodeId;
use leeward_meta::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A log in memory.
#[derive(Default)]
struct Log {
    /// As it is stored, or will be with the transaction that is being committed.
    head: LogHead,
    /// What the running transaction adds.
    open: Vec<OpenBlock>,
    /// Nothing of it is to be removed before, nanoseconds since 1970.
    due: u64,
}

/// When an empty log is due.
const NEVER: u64 = u64::MAX;

/// The logs of all volumes; that of [`keys::CELL_LOG`] is the cell's own.
#[derive(Default)]
pub struct EventLogs {
    logs: BTreeMap<u32, Log>,
    /// Bytes of all blocks.
    bytes: u64,
    dirty: BTreeSet<u32>,
    /// All logs by when they are due.
    by_due: BTreeSet<(u64, u32)>,
    /// Where directories were, for events of the running transaction.
    moved: Vec<(NodeId, u64, Named)>,
}

impl EventLogs {
    /// Adds what is stored of a log.
    pub fn load(&mut self, volume: u32, head: LogHead) {
        self.bytes += head.bytes;
        self.logs.insert(volume, Log { head, ..Log::default() });
        self.by_due.insert((0, volume));
    }

    /// What is kept of a log. What the running transaction adds is not in it.
    pub fn head(&self, volume: u32) -> LogHead {
        self.logs.get(&volume).map(|log| log.head).unwrap_or_default()
    }

    /// All logs, and what is kept of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, LogHead)> + '_ {
        self.logs.iter().map(|(volume, log)| (*volume, log.head))
    }

    /// Bytes of the blocks of all logs.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The log that takes most space, and the first event in it.
    pub fn largest(&self) -> Option<(u32, u64)> {
        let (volume, log) = self.logs.iter().max_by_key(|(_, log)| log.head.bytes)?;
        Some((*volume, log.head.first))
    }

    /// A log that may have something to be removed, and the first event in it.
    pub fn due(&mut self, now: u64) -> Option<(u32, u64)> {
        while let Some(&(_, volume)) = self.by_due.first().filter(|(due, _)| *due <= now) {
            let head = self.head(volume);
            if head.first < head.next {
                return Some((volume, head.first));
            }
            self.look_again(volume, NEVER);
        }
        None
    }

    /// There is nothing to be removed of a log before this time, nanoseconds since 1970.
    pub fn look_again(&mut self, volume: u32, due: u64) {
        if let Some(log) = self.logs.get_mut(&volume) {
            self.by_due.remove(&(log.due, volume));
            self.by_due.insert((due, volume));
            log.due = due;
        }
    }

    /// Adds an event.
    pub fn add(&mut self, volume: u32, event: &Event) {
        let log = self.logs.entry(volume).or_insert_with(|| {
            self.by_due.insert((0, volume));
            Log::default()
        });
        if log.open.last().is_none_or(OpenBlock::is_full) {
            log.open.push(OpenBlock::default());
        }
        let Some(block) = log.open.last_mut() else { return };
        if !block.add(event, volume) {
            return;
        }
        if event.what.is_change() {
            log.head.changed_at = log.head.changed_at.max(event.at);
        }
        self.dirty.insert(volume);
        for (dir, at) in event.moved(volume) {
            let added: u64 = log.open.iter().map(|block| u64::from(block.count())).sum();
            self.moved.push((dir, log.head.next + added - 1, at.clone()));
        }
    }

    /// The blocks before this event are removed; they had so many bytes.
    pub fn trimmed(&mut self, volume: u32, first: u64, bytes: u64) {
        let Some(log) = self.logs.get_mut(&volume) else { return };
        log.head.first = first;
        log.head.bytes = log.head.bytes.saturating_sub(bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.dirty.insert(volume);
    }

    /// The volume is removed.
    pub fn drop_volume(&mut self, volume: u32) {
        if let Some(log) = self.logs.remove(&volume) {
            self.by_due.remove(&(log.due, volume));
            self.bytes = self.bytes.saturating_sub(log.head.bytes);
        }
        self.dirty.remove(&volume);
        self.moved.retain(|(dir, _, _)| dir.volume() != volume);
    }

    /// Whether something must be stored.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The records that the next commit writes.
    pub fn freeze(&mut self) -> Vec<(Key, Value)> {
        let mut records: Vec<(Key, Value)> = std::mem::take(&mut self.moved)
            .into_iter()
            .map(|(dir, event, at)| (keys::was_at(dir, event), at.encode()))
            .collect();
        for volume in std::mem::take(&mut self.dirty) {
            let Some(log) = self.logs.get_mut(&volume) else { continue };
            for block in std::mem::take(&mut log.open) {
                let (key, record) = (keys::events(volume, log.head.next), block.encode(&log.head.digest));
                log.head.digest = digest_of(&key, &record);
                log.head.next += u64::from(block.count());
                log.head.bytes += record.len() as u64;
                self.bytes += record.len() as u64;
                records.push((key, record));
            }
            records.push((keys::log_head(volume), log.head.encode()));
            if log.due == NEVER {
                self.look_again(volume, 0);
            }
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::events::{Actor, Block, What};
    use leeward_env::Door;
    use leeward_fs::Kind;

    fn removed(inode: u64, kind: Kind) -> Event {
        let by = Actor { uid: 7, door: Door::Mount, work: None, machine: None };
        let what = What::Removed { at: Named { dir: 1, name: (*b"n").into() } };
        Event { at: 1, by, node: NodeId::new(3, inode), kind, what }
    }

    #[test]
    fn blocks_follow_each_other() {
        let mut logs = EventLogs::default();
        for inode in 2..10_002 {
            logs.add(3, &removed(inode, Kind::File));
        }
        logs.add(3, &removed(10_002, Kind::Dir));
        let records = logs.freeze();
        assert!(!logs.is_dirty() && logs.freeze().is_empty());
        let head = logs.head(3);
        assert_eq!((head.first, head.next), (0, 10_001));
        // the place of the directory first, the head last
        assert_eq!(records[0].0, keys::was_at(NodeId::new(3, 10_002), 10_000));
        assert_eq!(records.last(), Some(&(keys::log_head(3), head.encode())));
        let blocks = &records[1..records.len() - 1];
        assert!(blocks.len() > 1, "all in one block");
        let (mut digest, mut next, mut bytes) = ([0; 32], 0, 0);
        for (key, record) in blocks {
            assert_eq!(keys::parse_event(key), Some(next));
            let block = Block::decode(3, record).expect("a block");
            assert_eq!(block.before, digest);
            (digest, bytes) = (digest_of(key, record), bytes + record.len() as u64);
            next += block.events.len() as u64;
        }
        assert_eq!((digest, next, bytes), (head.digest, head.next, head.bytes));
        assert_eq!(logs.bytes(), bytes);

        logs.trimmed(3, 5, bytes);
        assert_eq!((logs.head(3).first, logs.bytes()), (5, 0));
        assert_eq!(logs.freeze().len(), 1, "the head");
        logs.drop_volume(3);
        assert_eq!(logs.head(3), LogHead::default());
    }
}
