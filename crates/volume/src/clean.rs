//! Cleaning: segments that are mostly dead are rewritten without the dead parts; objects that nothing points to are deleted.
//!
//! Addresses are logical, so a rewritten segment needs no change of any extent. What is live is looked up, not
//! remembered: the index of a segment says for whom each part was written, back references who else uses it. If less is found
//! than the count of references says, the segment is left alone: deletion fails closed.

use crate::error::{Error, Result};
use crate::extents::{Extents, Source, window_of, windows};
use crate::inode::{Body, Inode};
use crate::keys::{self, Key};
use crate::op::NodeId;
use crate::records::{Fail, Tx, TxResult};
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_pool::ObjectId;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A segment is worth cleaning when at least one part in so many is dead.
const WORTH_PART: u64 = 6;
/// Nothing is cleaned while less than one part in so many of all data is dead.
const TOLERATED_PART: u64 = 12;
/// The same while users need the store and space is not short.
const TOLERATED_PART_BUSY: u64 = 4;
/// Users that have left the store alone for so long do not need it now.
const QUIET: Duration = Duration::from_millis(500);
/// Space is short when less than one part in so many is free.
const SHORT_PART: u64 = 8;
/// Windows looked up in one hold of the lock.
const LOOKUP_STEP: usize = 64;

impl Tx<'_> {
    /// The ranges of `segment` that a window of a file uses now. An inode that is gone uses nothing.
    fn used_by(&self, node: NodeId, window: u32, segment: u64) -> TxResult<Used> {
        let mut used = Used::default();
        match self.inode(node) {
            Err(Fail::Error(Error::Stale)) => {}
            Err(e) => return Err(e),
            Ok(inode) => used.live.extend(ranges_in(&self.window(node, &inode, window)?, segment)),
        }
        Ok(used)
    }
}

/// What a window uses of a segment. Data that is only in `history` is on the deadlist, and counted once.
#[derive(Default)]
struct Used {
    live: Vec<Range<u32>>,
    history: Vec<Range<u32>>,
}

impl Used {
    /// Bytes that the segment's count of references has for it.
    fn counted(&self) -> u64 {
        let bytes = |ranges: &[Range<u32>]| ranges.iter().map(|r| u64::from(r.end - r.start)).sum::<u64>();
        let live = merged(self.live.clone());
        let all = merged([&live[..], &self.history[..]].concat());
        bytes(&self.live) + bytes(&all) - bytes(&live)
    }
}

fn ranges_in(list: &Extents, segment: u64) -> impl Iterator<Item = Range<u32>> + '_ {
    list.iter().filter_map(move |e| match e.source {
        Source::Data(addr) if addr.segment == segment => Some(addr.offset..addr.offset + e.len),
        _ => None,
    })
}

fn unreadable(node: NodeId) -> Error {
    Error::Corrupt(format!("extents of {node:?} in a snapshot cannot be read"))
}

impl Shard {
    /// Cleans a segment; as [`Shard::clean_step`], but gives way to users.
    pub(crate) fn clean_turn(&self) -> Result<bool> {
        let (total, free) = self.space();
        let gives_way = self.log.quiet_for() < QUIET && free > total / SHORT_PART;
        self.clean_worst(if gives_way { TOLERATED_PART_BUSY } else { TOLERATED_PART })
    }

    /// Cleans the segment where most is to be gained; `true` when there was one.
    pub(crate) fn clean_step(&self) -> Result<bool> {
        self.clean_worst(TOLERATED_PART)
    }

    fn clean_worst(&self, tolerated_part: u64) -> Result<bool> {
        let Some(id) = self.worst_segment(tolerated_part) else { return Ok(false) };
        let done = self.clean(id);
        self.counters.cleaned_segments.fetch_add(u64::from(done == Ok(true)), Ordering::Relaxed);
        if done.is_err() || done == Ok(false) {
            // not again before something about it changes
            self.lock().segments.leave_alone(id.segment);
        }
        done.map(|_| true)
    }

    /// How many segments are worth cleaning now.
    pub(crate) fn segments_to_clean(&self) -> u64 {
        let st = self.lock();
        st.segments.iter().filter(|(_, r)| r.sealed && r.dead_bytes() * WORTH_PART > r.data_bytes).count()
            as u64
    }

    fn worst_segment(&self, tolerated_part: u64) -> Option<ObjectId> {
        let st = self.lock();
        let (mut data, mut dead) = (0, 0);
        let mut worst: Option<(u64, ObjectId)> = None;
        for (segment, r) in st.segments.iter().filter(|(_, r)| r.sealed) {
            data += r.data_bytes;
            dead += r.dead_bytes();
            let gain = r.dead_bytes() * 1024 / r.data_bytes.max(1);
            let worth = gain * WORTH_PART >= 1024 && !st.by_segment.contains_key(&segment);
            if worth && !st.segments.is_left_alone(segment) && worst.is_none_or(|(g, _)| gain > g) {
                worst = Some((gain, ObjectId { segment, generation: r.generation }));
            }
        }
        worst.filter(|_| dead * tolerated_part > data).map(|(_, id)| id)
    }

    /// Rewrites one segment; `false` when it had better be left alone.
    fn clean(&self, id: ObjectId) -> Result<bool> {
        let ctx = Ctx::system();
        let mut used: BTreeSet<(NodeId, u32)> = BTreeSet::new();
        for chunk in self.log.index(&ctx, id)? {
            let node = NodeId::new(chunk.owner.volume, chunk.owner.inode);
            let range = chunk.owner.offset..chunk.owner.offset + u64::from(chunk.len);
            used.extend(windows(range).map(|(window, ..)| (node, window)));
            debug_assert!(window_of(chunk.owner.offset) <= u32::MAX / 2);
        }
        used.extend(self.backrefs(id.segment)?);
        let (live, found) = self.lookup(&ctx, id.segment, used)?;
        let Some(record) = self.lock().segments.get(id.segment).copied() else { return Ok(true) };
        if found < record.live_bytes || record.generation != id.generation {
            return Ok(false);
        }
        let info = self.log.rewrite(&ctx, id, &merged(live))?;
        let mut st = self.lock();
        match st.segments.get(id.segment) {
            Some(_) => {
                st.segments.sealed(info);
                st.replaced.push(id);
            }
            None => st.replaced.push(ObjectId { generation: info.generation, ..id }),
        }
        Ok(true)
    }

    /// What these windows use of a segment, and how many bytes its count of references has for that.
    fn lookup(
        &self,
        ctx: &Ctx,
        segment: u64,
        users: BTreeSet<(NodeId, u32)>,
    ) -> Result<(Vec<Range<u32>>, u64)> {
        let users: Vec<_> = users.into_iter().collect();
        let (mut ranges, mut found) = (Vec::new(), 0);
        for step in users.chunks(LOOKUP_STEP) {
            let mut used = self.transact(ctx, |tx| {
                step.iter()
                    .map(|(node, window)| tx.used_by(*node, *window, segment))
                    .collect::<TxResult<Vec<_>>>()
            })?;
            // after what is live: what dies in between is then in both
            for ((node, window), used) in step.iter().zip(&mut used) {
                self.used_in_history(*node, *window, segment, used)?;
            }
            found += used.iter().map(Used::counted).sum::<u64>();
            ranges.extend(used.into_iter().flat_map(|u| u.live.into_iter().chain(u.history)));
        }
        Ok((ranges, found))
    }

    /// Adds the ranges of `segment` that a window of a file uses in snapshots.
    fn used_in_history(&self, node: NodeId, window: u32, segment: u64, used: &mut Used) -> Result<()> {
        if !self.lock().snapshots.has_history(node.volume()) {
            return Ok(());
        }
        let (from, to) = keys::versions(&keys::extents(node, window), 0);
        self.each_in(from, &to, |value| {
            let list = Extents::decode(value).ok_or_else(|| unreadable(node))?;
            used.history.extend(ranges_in(&list, segment));
            Ok(())
        })?;
        if window > 0 {
            return Ok(());
        }
        let (from, to) = keys::versions(&keys::inode(node), 0);
        self.each_in(from, &to, |value| {
            if let Body::File { inline, .. } = Inode::decode(value)?.body {
                used.history.extend(ranges_in(&inline, segment));
            }
            Ok(())
        })
    }

    fn each_in(&self, mut from: Key, to: &Key, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        loop {
            let (page, next) = self.scan(&from, to, 256)?;
            page.iter().try_for_each(|(_, value)| each(value))?;
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    fn backrefs(&self, segment: u64) -> Result<BTreeSet<(NodeId, u32)>> {
        let (mut from, to) = keys::backref_range(segment);
        let mut users = BTreeSet::new();
        loop {
            let (page, next) = self.scan(&from, &to, 1024)?;
            users.extend(page.iter().filter_map(|(k, _)| keys::parse_backref(k)));
            match next {
                Some(next) => from = next,
                None => return Ok(users),
            }
        }
    }

    /// Deletes objects that no durable record points to; `true` when there were any.
    pub(crate) fn delete_garbage(&self) -> Result<bool> {
        let garbage = self.committer.take_garbage();
        for (n, id) in garbage.iter().enumerate() {
            if let Err(e) = self.delete_object(*id) {
                self.committer.return_garbage(&garbage[n..]);
                return Err(e);
            }
        }
        if !garbage.is_empty() {
            self.look_at_space();
        }
        Ok(!garbage.is_empty())
    }

    fn delete_object(&self, id: ObjectId) -> Result<()> {
        let ctx = Ctx::system();
        let generation = self.lock().segments.get(id.segment).map(|r| r.generation);
        if generation == Some(id.generation) {
            // a leftover of a rewriting that a crash ended, and that has been done again since
            return Ok(());
        }
        self.log.delete(&ctx, id)?;
        match generation {
            None => self.forget_backrefs(&ctx, id.segment),
            Some(_) => Ok(()),
        }
    }

    pub(crate) fn forget_backrefs(&self, ctx: &Ctx, segment: u64) -> Result<()> {
        let (from, to) = keys::backref_range(segment);
        loop {
            let (page, _) = self.scan(&from, &to, 1024)?;
            if page.is_empty() {
                return Ok(());
            }
            self.transact(ctx, |tx| {
                page.iter().for_each(|(key, _)| tx.remove(key.clone()));
                Ok(())
            })?;
        }
    }
}

/// Sorted, without overlap.
pub(crate) fn merged(mut ranges: Vec<Range<u32>>) -> Vec<Range<u32>> {
    ranges.sort_by_key(|r| r.start);
    let mut out: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
    for r in ranges {
        match out.last_mut() {
            Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
            _ => out.push(r),
        }
    }
    out
}
