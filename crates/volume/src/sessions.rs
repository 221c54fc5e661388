//! Sessions of clients that survive the process: their changes are done again after a crash, once.
//!
//! By number it is known which changes a crash has left: those of records up to the number that the
//! last commit wrote, as commits are in the order of numbers; those of content up to the number in
//! the file's inode, as content enters the records of a file in that order, but later than the
//! commit. `docs/decisions/0033` has the rules, a checked model of which is in `protocol-model`.

use crate::cell::Cell;
use crate::format::keys;
use crate::format::stored::Stored;
use crate::shard::Shard;
use crate::tx::Tx;
use leeward_env::{Ctx, Told, Wait};
use leeward_fs::sessions::{self, Again, Outcome, SessionRecord, Sessions};
use leeward_fs::{Error, NodeId, Op, Reply, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// Slots of a session, at most.
const SLOTS_MAX: usize = 1 << 16;

/// How far the search is for what is durable.
#[derive(Default)]
pub(crate) struct Horizon {
    durable: u64,
    next: Option<Candidate>,
}

/// Changes that become durable next.
struct Candidate {
    /// Up to this number.
    lsn: u64,
    /// Segments with their content that are not in the records yet.
    segments: BTreeSet<u64>,
    /// The commit that makes them durable, when no such segment is left.
    commit: Option<u64>,
}

impl Shard {
    /// See [`Sessions::durable_up_to`].
    fn durable_up_to(&self) -> u64 {
        let mut horizon = self.horizon.lock();
        let committed = self.committer.progress.lock().committed;
        let st = self.lock();
        let last_told = st.sessions.last_told();
        let durable = horizon.durable;
        let Some(candidate) = &mut horizon.next else {
            if last_told > durable {
                let segments = st.by_segment.keys().copied().collect();
                horizon.next = Some(Candidate { lsn: last_told, segments, commit: None });
            }
            return durable;
        };
        match candidate.commit {
            None => {
                candidate.segments.retain(|segment| st.by_segment.contains_key(segment));
                if candidate.segments.is_empty() {
                    candidate.commit = Some(st.running_id - u64::from(st.is_clean()));
                }
            }
            Some(commit) if committed >= commit => {
                horizon.durable = candidate.lsn;
                horizon.next = None;
            }
            Some(_) => (),
        }
        horizon.durable
    }

    /// Changes up to this number are durable, as somebody has seen to it. Not while changes are
    /// done again after a crash: those that are still to come have smaller numbers.
    pub(crate) fn are_durable(&self, lsn: u64) {
        let mut horizon = self.horizon.lock();
        horizon.durable = horizon.durable.max(lsn);
        if horizon.next.as_ref().is_some_and(|candidate| candidate.lsn <= lsn) {
            horizon.next = None;
        }
    }

    /// See [`Sessions::do_again`].
    fn do_again(&self, ctx: &Ctx, op: &Op<'_>, told: Told) -> Result<Option<Reply>> {
        let last_told = {
            let st = self.lock();
            if told.lsn == 0 || told.lsn >= st.sessions.first_lsn() {
                return Err(Error::Invalid);
            }
            if op.again() == Again::Change && told.lsn <= st.sessions.last_told() {
                return Ok(None);
            }
            st.sessions.last_told()
        };
        let ctx = Ctx { again: Some(told), wait: Wait::Allowed, ..*ctx };
        match (op.again(), *op) {
            (Again::Change, op) => self.call(&ctx, &op).map(Some),
            (Again::Content, op) => {
                let Some(node) = op.node() else { return Err(Error::Invalid) };
                let read = |tx: &mut Tx<'_>| Ok(tx.last_content_lsn(node, &tx.inode(node)?));
                match self.transact(&ctx, read) {
                    // it was removed since, and that is there
                    Err(Error::Stale) if told.lsn <= last_told => Ok(None),
                    Ok(last) if last >= told.lsn => Ok(None),
                    Ok(_) => self.call(&ctx, &of_content(op, told)).map(Some),
                    Err(e) => Err(e),
                }
            }
            (Again::Nothing | Again::Never, _) => Err(Error::Invalid),
        }
    }

    /// See [`Sessions::answer_again`].
    fn answer_again(&self, ctx: &Ctx, op: &Op<'_>, told: Told) -> Result<Reply> {
        let node = NodeId(told.node);
        let reply = match op {
            Op::Make { .. } | Op::MakeUnnamed { .. } | Op::Place { .. } | Op::Link { .. } => {
                self.transact(ctx, |tx| {
                    let attr = tx.attr(node, &tx.inode(node)?);
                    tx.show(node);
                    Ok(Reply::Attr(attr))
                })
            }
            Op::Unlink { .. } | Op::RmDir { .. } => Ok(Reply::Removed { node, nlink: told.number as u32 }),
            Op::SetAttr { node, .. } => {
                self.transact(ctx, |tx| Ok(Reply::Attr(tx.attr(*node, &tx.inode(*node)?))))
            }
            Op::Write { data, .. } | Op::Append { data, .. } => Ok(Reply::Written(data.len() as u64)),
            _ => Ok(Reply::Done),
        };
        if op.again() == Again::Content {
            // it may not be durable yet
            sessions::tell(told);
        }
        reply
    }
}

/// What changes the content in the same way, whatever others have done since.
fn of_content(op: Op<'_>, told: Told) -> Op<'_> {
    match op {
        Op::Append { node, data } => Op::Write { node, offset: told.number, data },
        op => op,
    }
}

/// The first shard has all sessions, and each has what came of its own changes. Numbers of changes
/// go up over all shards, and in each of them commits are in their order.
impl Sessions for Cell {
    fn sessions(&self) -> Vec<SessionRecord> {
        self.shard.lock().sessions.all().cloned().collect()
    }

    fn store_session(&self, record: &SessionRecord) -> Result<()> {
        self.shards().try_for_each(|shard| shard.store_session(record))
    }

    fn end_session(&self, number: u64) -> Result<()> {
        // the first one last: a crash in between leaves the session, and not more of it
        let shards: Vec<_> = self.shards().collect();
        shards.into_iter().rev().try_for_each(|shard| shard.end_session(number))
    }

    fn outcomes(&self, number: u64) -> Result<Vec<(u16, Outcome)>> {
        let mut last: BTreeMap<u16, Outcome> = BTreeMap::new();
        for shard in self.shards() {
            for (slot, outcome) in shard.outcomes(number)? {
                let is_later = |before: &Outcome| before.told.lsn < outcome.told.lsn;
                if last.get(&slot).is_none_or(is_later) {
                    last.insert(slot, outcome);
                }
            }
        }
        Ok(last.into_iter().collect())
    }

    fn do_again(&self, ctx: &Ctx, op: &Op<'_>, told: Told) -> Result<Option<Reply>> {
        self.shard_for(op).do_again(ctx, op, told)
    }

    fn answer_again(&self, ctx: &Ctx, op: &Op<'_>, told: Told) -> Result<Reply> {
        self.shard_for(op).answer_again(ctx, op, told)
    }

    fn durable_up_to(&self) -> u64 {
        if self.shards().nth(1).is_none() {
            return self.shard.durable_up_to();
        }
        let known = self.shard.lock().lsn.load(Ordering::Relaxed);
        let durable = self.shards().map(|shard| shard.durable_within(known)).min().unwrap_or_default();
        self.durable.fetch_max(durable, Ordering::Relaxed).max(durable)
    }

    fn keep_all_inodes(&self, keep: bool) {
        self.shards().for_each(|shard| shard.keep_all_inodes(keep));
    }

    fn refer(&self, nodes: &[NodeId]) {
        for shard in self.shards() {
            let mut st = shard.lock();
            nodes.iter().filter(|node| shard.which.has(**node)).for_each(|node| st.refs.add(*node));
        }
    }

    fn go_on(&self) -> Result<()> {
        for shard in self.shards() {
            let mut st = shard.lock();
            st.leave_out_numbers();
            st.sessions.go_on();
        }
        self.commit()
    }

    fn reserve_numbers(&self, number: u64, volume: u32, count: u64) -> Result<NodeId> {
        self.shard_of(NodeId::new(volume, 1)).lock().reserve_numbers(number, volume, count)
    }

    fn sync(&self) -> Result<()> {
        // of one that fails the others know nothing
        self.shards().map(|shard| shard.sync_all(&Ctx::system()).map(drop)).fold(Ok(()), Result::and)
    }

    fn commit(&self) -> Result<()> {
        self.shards().map(|shard| shard.commit_now(&Ctx::system())).fold(Ok(()), Result::and)
    }
}

impl Cell {
    fn shard_for(&self, op: &Op<'_>) -> &Shard {
        self.shard_of(op.node().unwrap_or(NodeId::ROOT))
    }
}

impl Shard {
    fn store_session(&self, record: &SessionRecord) -> Result<()> {
        self.transact(&Ctx::system(), |tx| {
            tx.put(keys::session(record.number), record.encode());
            tx.st.sessions.set(record.clone());
            Ok(())
        })
    }

    fn end_session(&self, number: u64) -> Result<()> {
        self.transact(&Ctx::system(), |tx| {
            let (from, to) = keys::outcome_range(number);
            for (key, _) in tx.scan(&from, &to, SLOTS_MAX, false)? {
                tx.remove(key);
            }
            tx.remove(keys::session(number));
            if tx.st.sessions.remove(number) {
                tx.st.leave_out_numbers();
            }
            Ok(())
        })
    }

    fn outcomes(&self, number: u64) -> Result<Vec<(u16, Outcome)>> {
        self.transact(&Ctx::system(), |tx| {
            let (from, to) = keys::outcome_range(number);
            let all = tx.scan(&from, &to, SLOTS_MAX, false)?;
            let decoded = all.iter().filter_map(|(key, value)| {
                let slot = keys::parse_outcome(key)?;
                Some(Outcome::decode(value).map(|outcome| (slot, outcome)))
            });
            Ok(decoded.collect::<Result<_>>()?)
        })
    }

    fn keep_all_inodes(&self, keep: bool) {
        let mut st = self.lock();
        let held = st.sessions.set_keep_all(keep);
        for node in held {
            if st.refs.get(node) == 0 && st.orphans.remove(&node) {
                st.reclaim.push_back(node);
            }
        }
        drop(st);
        self.maintenance.wake();
    }

    /// Of the changes up to `known`, a number that was given out before this is called, those of
    /// this shard are durable up to the result.
    fn durable_within(&self, known: u64) -> u64 {
        let durable = self.durable_up_to();
        // under the lock: a change that has its number and is not noted yet holds it
        let is_all = self.lock().sessions.last_told() <= durable;
        if is_all { known } else { durable }
    }
}
