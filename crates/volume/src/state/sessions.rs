//! Sessions of clients in memory: those that there are, which of their changes are committed, and
//! what is kept for those of a process before.

use crate::format::each;
use crate::format::inode::Pair;
use crate::format::keys::{self, Table};
use crate::format::stored::Stored;
use crate::state::{RecordCache, State};
use leeward_fs::sessions::SessionRecord;
use leeward_fs::{Error, NodeId, Result};
use leeward_meta::{Kv, Moment};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bits of a change's number below that of the process.
pub(crate) const COUNTER_BITS: u32 = 40;
/// Inode numbers that are reserved for one client at most.
const RESERVED_MAX: u64 = 1 << 16;
/// More inodes than a process makes between two commits.
const UNCOMMITTED_INODES_MAX: u64 = 1 << 24;

/// See the module's head.
#[derive(Default)]
pub struct SessionTable {
    records: BTreeMap<u64, SessionRecord>,
    /// The number of this process: each opening has the next one.
    process: u64,
    /// The last change of a client in the running transaction or before.
    told: u64,
    /// It, or the number of the process, is not in a commit yet.
    is_dirty: bool,
    /// The last change of a client that the process before had committed.
    committed: u64,
    /// There are sessions of a process before, which have not caught up and were not away.
    awaited: bool,
    /// Inodes without a name are kept.
    keep_all: bool,
    /// Those that are kept only because of that.
    held: BTreeSet<NodeId>,
    /// The inode numbers of each volume that the process before may have given out without a
    /// commit.
    given_out: BTreeMap<u32, Range<u64>>,
    /// The inode numbers that are reserved for each client and not used yet.
    reserved: FxHashMap<u64, FxHashSet<NodeId>>,
}

impl SessionTable {
    /// A client was told of this change.
    pub(crate) fn told(&mut self, lsn: u64) {
        self.told = self.told.max(lsn);
        self.is_dirty = true;
    }

    /// The last change of a client.
    pub(crate) fn last_told(&self) -> u64 {
        self.told
    }

    /// Changes of clients up to this number are in the records, without their content.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// Whether a commit has something of it to write.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// The number of this process.
    pub(crate) fn process(&self) -> u64 {
        self.process
    }

    /// The first number of a change of this process.
    pub(crate) fn first_lsn(&self) -> u64 {
        self.process << COUNTER_BITS
    }

    /// The inode numbers of a volume that the process before may have given out without a commit.
    pub(crate) fn given_out(&self, volume: u32) -> Range<u64> {
        self.given_out.get(&volume).cloned().unwrap_or_default()
    }

    /// Whether inodes without a name are kept even if nobody is known to have a reference.
    pub(crate) fn keep_all(&self) -> bool {
        self.keep_all
    }

    pub(crate) fn set_keep_all(&mut self, keep: bool) -> BTreeSet<NodeId> {
        self.keep_all = keep;
        if keep { BTreeSet::new() } else { std::mem::take(&mut self.held) }
    }

    /// The inode is kept only because all are.
    pub(crate) fn hold(&mut self, node: NodeId) {
        self.held.insert(node);
    }

    /// Whether there is this session.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.records.contains_key(&number)
    }

    /// All sessions.
    pub(crate) fn all(&self) -> impl Iterator<Item = &SessionRecord> {
        self.records.values()
    }

    /// Whether [`State::leave_out_numbers`] has something to do.
    pub(crate) fn has_left_out(&self) -> bool {
        !self.given_out.is_empty()
    }

    pub(crate) fn set(&mut self, record: SessionRecord) {
        self.records.insert(record.number, record);
    }

    /// Whether it was the last one.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        self.reserved.remove(&number);
        self.records.remove(&number).is_some() && self.records.is_empty()
    }

    /// Whether an inode number is reserved for a client, and not used yet.
    pub(crate) fn has_number(&self, client: u64, node: NodeId) -> bool {
        self.reserved.get(&client).is_some_and(|numbers| numbers.contains(&node))
    }

    /// A client has used a number.
    pub(crate) fn use_number(&mut self, client: u64, node: NodeId) {
        if let Some(numbers) = self.reserved.get_mut(&client) {
            numbers.remove(&node);
        }
    }

    /// An inode has this number now, which came from elsewhere.
    pub(crate) fn give_to_nobody(&mut self, node: NodeId) {
        self.reserved.values_mut().for_each(|numbers| _ = numbers.remove(&node));
    }

    /// Clients of a process before may still come.
    pub(crate) fn are_awaited(&self) -> bool {
        self.awaited
    }

    /// They come no more.
    pub(crate) fn go_on(&mut self) {
        self.awaited = false;
    }
}

impl State {
    /// At opening.
    pub(crate) fn load_sessions(&mut self, kv: &dyn Kv, moment: &dyn Moment) -> Result<()> {
        let table = &mut self.sessions;
        if let Some(value) = kv.get(&keys::told())? {
            let Pair(told, process) = Pair::decode(&value)?;
            (table.told, table.committed, table.process) = (told, told, process);
        }
        table.process += 1;
        table.is_dirty = true;
        each(moment, keys::table_range(Table::Session), |_, value| {
            table.set(SessionRecord::decode(value)?);
            Ok(())
        })?;
        Ok(())
    }

    /// The number of this process, the counter of changes and the sessions are these in all shards
    /// of a cell. At opening.
    pub(crate) fn begin_sessions(&mut self, process: u64, lsn: Arc<AtomicU64>, sessions: &[SessionRecord]) {
        let table = &mut self.sessions;
        table.process = process;
        table.records = sessions.iter().map(|record| (record.number, record.clone())).collect();
        // who was away comes back for inodes that its programs have open
        table.keep_all = !table.records.is_empty();
        table.awaited = table.records.values().any(|session| !session.away);
        if table.awaited {
            for (number, volume) in self.volumes.iter() {
                let end = volume.next_inode + UNCOMMITTED_INODES_MAX;
                table.given_out.insert(*number, volume.next_inode..end);
            }
        }
        self.lsn = lsn;
        self.has_used_lsn(self.sessions.first_lsn());
    }

    /// Clients may know inode numbers that a crash has taken back: no new inode gets those. As long
    /// as they may come again for theirs, this is not called.
    pub(crate) fn leave_out_numbers(&mut self) {
        for (number, left_out) in std::mem::take(&mut self.sessions.given_out) {
            if let Some(volume) = self.volumes.get_mut(&number) {
                volume.next_inode = volume.next_inode.max(left_out.end);
                self.volumes_dirty.insert(number);
            }
        }
    }

    /// Reserves inode numbers of a volume for a client. Returns the first. They need not be durable
    /// before they are used: see [`SessionTable::given_out`].
    pub(crate) fn reserve_numbers(&mut self, client: u64, volume: u32, count: u64) -> Result<NodeId> {
        if self.sessions.has_left_out() {
            self.leave_out_numbers();
        }
        if !self.sessions.has(client) {
            return Err(Error::NotPermitted);
        }
        let reserved = self.sessions.reserved.entry(client).or_default();
        if reserved.len() as u64 + count > RESERVED_MAX {
            return Err(Error::NotPermitted);
        }
        let v = self.volumes.get_mut(&volume).filter(|v| !v.removing).ok_or(Error::Stale)?;
        let first = v.next_inode;
        v.next_inode += count;
        reserved.extend((first..first + count).map(|inode| NodeId::new(volume, inode)));
        self.volumes_dirty.insert(volume);
        Ok(NodeId::new(volume, first))
    }

    /// Moves what is not stored yet into the running transaction.
    pub(crate) fn enter_told(&mut self, cache: &RecordCache) {
        if std::mem::take(&mut self.sessions.is_dirty) {
            let value = Pair(self.sessions.told, self.sessions.process).encode();
            self.enter(keys::told(), Some(value), false, cache);
        }
    }
}
