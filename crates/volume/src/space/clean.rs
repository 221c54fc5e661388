//! Cleaning: segments that are mostly dead are rewritten without the dead parts; objects that
//! nothing points to are deleted.
//!
//! Addresses are logical, so a rewritten segment needs no change of any extent. Live data is looked
//! up, not remembered: the index of a segment names the file that each part was written for, and
//! back references name other users. If fewer references are found than are counted, the segment is
//! left alone: deletion fails closed.

use crate::format::extents::{Extents, Source, window_of, windows};
use crate::format::inode::{Body, Inode, SegmentRecord};
use crate::format::keys::{self, Key, Table};
use crate::shard::Shard;
use crate::tx::{Fail, Tx, TxResult};
use leeward_data::{Object, PoolId, SegmentInfo};
use leeward_env::{Class, Ctx, Nanos, Work};
use leeward_fs::{Error, NodeId, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A segment is worth cleaning when at least one part in this many is dead.
const WORTH_PART: u64 = 6;
/// Nothing is cleaned while less than one part in this many of all data is dead.
const TOLERATED_PART: u64 = 12;
/// The same while users need the store and space is not short.
const TOLERATED_PART_BUSY: u64 = 4;
/// Space is short when less than one part in this many is free.
const SHORT_PART: u64 = 8;
/// Windows looked up in one hold of the lock.
const LOOKUP_STEP: usize = 64;
/// Time that failing deletions may take in one turn: a store that is away may be slow to fail.
const FAILING_MAX: Nanos = 50_000_000;
/// Back references that are removed in one hold of the lock.
const FORGET_STEP: usize = 256;

/// The result of cleaning a segment.
pub(crate) enum Cleaned {
    /// It has another object now.
    Rewritten,
    /// References to it changed during the look-up, or it is gone: nothing was done.
    Changed,
    /// Fewer references were found than are counted: it is left alone.
    Unclear,
}

impl Tx<'_> {
    /// The ranges of `segment` that a window of a file uses now. An inode that is gone uses
    /// nothing.
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

/// The ranges of a segment that a window uses. Data that is only in `history` is on the deadlist,
/// and counted once.
#[derive(Default)]
struct Used {
    live: Vec<Range<u32>>,
    history: Vec<Range<u32>>,
}

impl Used {
    /// The bytes of these ranges in the segment's count of references.
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

/// Whether so much of a segment is dead that it should be rewritten.
pub(crate) fn is_worth(r: &SegmentRecord) -> bool {
    r.dead_bytes() * WORTH_PART > r.data_bytes
}

fn unreadable(node: NodeId) -> Error {
    Error::Corrupt(format!("extents of {node:?} in a snapshot cannot be read"))
}

impl Shard {
    /// Cleans a segment; as [`Shard::clean_step`], but gives way to users.
    pub(crate) fn clean_turn(&self) -> Result<bool> {
        let gives_way = self.stores_are_in_use() && !self.is_space_short();
        self.clean_worst(if gives_way { TOLERATED_PART_BUSY } else { TOLERATED_PART })
    }

    fn is_space_short(&self) -> bool {
        let (total, free) = self.space(0);
        free <= total / SHORT_PART
    }

    /// Cleans the segment with the most to gain; `true` when there was one.
    pub(crate) fn clean_step(&self) -> Result<bool> {
        self.clean_worst(TOLERATED_PART)
    }

    fn clean_worst(&self, tolerated_part: u64) -> Result<bool> {
        let Some((object, pool)) = self.worst_segment(tolerated_part) else { return Ok(false) };
        let done = self.clean(object, pool);
        match done {
            Ok(Cleaned::Rewritten) => {
                self.counters.cleaned_segments.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Cleaned::Changed) => {}
            // not again before something about it changes
            Ok(Cleaned::Unclear) | Err(_) => self.lock().segments.leave_alone(object.segment),
        }
        done.map(|_| true)
    }

    /// How many segments are worth cleaning now.
    pub(crate) fn segments_to_clean(&self) -> u64 {
        let st = self.lock();
        st.segments.iter().filter(|(_, r)| r.sealed && is_worth(r)).count() as u64
    }

    /// The object with the most to gain, in pools that are not away and do not hang, and the pool
    /// that it belongs in.
    fn worst_segment(&self, tolerated_part: u64) -> Option<(Object, PoolId)> {
        let away = self.pools.not_there();
        let is_there = |pool: &PoolId| !away.contains(pool);
        let st = self.lock();
        let (mut data, mut dead) = (0, 0);
        let mut worst: Option<(u64, Object, PoolId)> = None;
        for (segment, r) in st.segments.iter().filter(|(_, r)| r.sealed && is_there(&r.pool)) {
            data += r.data_bytes;
            dead += r.dead_bytes();
            let gain = r.dead_bytes() * 1024 / r.data_bytes.max(1);
            let worth = gain * WORTH_PART >= 1024 && !st.by_segment.contains_key(&segment);
            if worth && !st.segments.is_left_alone(segment) && worst.is_none_or(|(g, ..)| gain > g) {
                let home = st.home_of(r).filter(is_there).unwrap_or(r.pool);
                worst = Some((gain, r.object(segment), home));
            }
        }
        worst.filter(|_| dead * tolerated_part > data).map(|(_, object, pool)| (object, pool))
    }

    /// Rewrites one segment, into `pool`.
    pub(crate) fn clean(&self, object: Object, pool: PoolId) -> Result<Cleaned> {
        let mut ctx = self.work_ctx(Work::Cleaning, None);
        if self.is_space_short() {
            ctx.class = Class::Batch;
        }
        // before anything is looked up: it may have to commit
        let generation = self.next_generation(object.segment)?;
        self.lock().segments.watch(object.segment);
        let looked = self.users_of(&ctx, object).and_then(|used| self.lookup(&ctx, object.segment, used));
        let (changed, record) = {
            let mut st = self.lock();
            (st.segments.end_watch(object.segment), st.segments.get(object.segment).copied())
        };
        let (live, found) = looked?;
        let Some(record) = record.filter(|_| !changed) else { return Ok(Cleaned::Changed) };
        if found < record.live_bytes || record.object(object.segment) != object {
            return Ok(Cleaned::Unclear);
        }
        let info = self.log.rewrite(&ctx, object, &merged(live), (pool, generation))?;
        self.replace_object(object, info);
        Ok(Cleaned::Rewritten)
    }

    /// Windows of files that may use a segment: those it was written for, and those that share its
    /// data.
    fn users_of(&self, ctx: &Ctx, object: Object) -> Result<BTreeSet<(NodeId, u32)>> {
        let mut used: BTreeSet<(NodeId, u32)> = BTreeSet::new();
        for chunk in self.log.index(ctx, object)? {
            let node = NodeId::new(chunk.owner.volume, chunk.owner.inode);
            let range = chunk.owner.offset..chunk.owner.offset + u64::from(chunk.len);
            used.extend(windows(range).map(|(window, ..)| (node, window)));
            debug_assert!(window_of(chunk.owner.offset) <= u32::MAX / 2);
        }
        used.extend(self.backrefs(object.segment)?);
        Ok(used)
    }

    /// A generation for the next object of a segment, see
    /// [`crate::state::segments::Segments::next_generation`].
    pub(crate) fn next_generation(&self, segment: u64) -> Result<u32> {
        let give = || self.lock().segments.next_generation(segment);
        if let Some(generation) = give() {
            return Ok(generation);
        }
        self.commit_whole()?; // which reserves more
        give().ok_or_else(|| Error::Io("no names for new objects are left".into()))
    }

    /// A segment was rewritten: with the next commit the new object counts, and the old one is
    /// garbage.
    pub(crate) fn replace_object(&self, old: Object, new: SegmentInfo) {
        let mut st = self.lock();
        match st.segments.get(old.segment) {
            Some(_) => {
                st.segments.sealed(new);
                st.replaced.push(old);
            }
            None => st.replaced.push(new.object),
        }
    }

    /// The ranges of a segment that these windows use, and their bytes in its count of references.
    fn lookup(
        &self,
        ctx: &Ctx,
        segment: u64,
        users: BTreeSet<(NodeId, u32)>,
    ) -> Result<(Vec<Range<u32>>, u64)> {
        let users: Vec<_> = users.into_iter().collect();
        let (mut ranges, mut found) = (Vec::new(), 0);
        for step in users.chunks(self.step_size(LOOKUP_STEP)) {
            let look = |tx: &mut Tx<'_>| {
                step.iter()
                    .map(|(node, window)| tx.used_by(*node, *window, segment))
                    .collect::<TxResult<Vec<_>>>()
            };
            let mut used = self.in_turn(ctx, 0, || self.transact(ctx, look))?;
            // after live data: data that dies in between is then in both
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

    /// Deletes objects that no durable record points to; `true` when there were any. Those of a
    /// pool that hangs or is away wait for it. An object that cannot be deleted now holds up no
    /// other, and is tried again; the error is returned when nothing else is left to delete.
    pub(crate) fn delete_garbage(&self) -> Result<bool> {
        let mut pools: BTreeMap<PoolId, Vec<Object>> = BTreeMap::new();
        for object in self.committer.take_garbage() {
            pools.entry(object.pool).or_default().push(object);
        }
        let (mut any, mut failed) = (false, Ok(()));
        for (pool, garbage) in pools {
            if self.pools.hangs(pool) {
                self.committer.return_garbage(garbage);
                continue;
            }
            let (done, left) = self.delete_objects(garbage);
            any |= done;
            if let Some((objects, e)) = left {
                self.committer.return_garbage(objects);
                failed = Err(e);
            }
            self.look_at_space(pool);
        }
        if any { Ok(true) } else { failed.map(|()| false) }
    }

    /// Deletes objects of one pool. Returns whether any was deleted, and the objects to try again,
    /// with the last error. Untried ones come first.
    fn delete_objects(&self, garbage: Vec<Object>) -> (bool, Option<(Vec<Object>, Error)>) {
        let (mut any, mut failed, mut why) = (false, Vec::new(), None);
        let mut objects = garbage.into_iter();
        let mut lost_nanos = 0;
        while lost_nanos < FAILING_MAX
            && let Some(object) = objects.next()
        {
            let (done, nanos) = self.timed(|| self.delete_object(object));
            match done {
                Ok(()) => any = true,
                Err(e) => {
                    lost_nanos += nanos;
                    failed.push(object);
                    why = Some(e);
                }
            }
        }
        (any, why.map(|e| (objects.chain(failed).collect(), e)))
    }

    fn delete_object(&self, object: Object) -> Result<()> {
        let ctx = self.work_ctx(Work::Cleaning, None);
        let now = self.lock().segments.get(object.segment).map(|r| r.object(object.segment));
        if now == Some(object) {
            // a leftover of a rewriting that a crash ended, and that has been done again since
            return Ok(());
        }
        self.log.delete(&ctx, object)?;
        match now {
            None => self.forget_backrefs(&ctx, object.segment),
            Some(_) => Ok(()),
        }
    }

    /// Removes back references of segments that do not exist: a crash came between the removal of
    /// an object and theirs.
    pub(crate) fn forget_stray_backrefs(&self) -> Result<()> {
        let ctx = self.work_ctx(Work::Cleaning, None);
        for segment in self.stray_backrefs()? {
            self.forget_backrefs(&ctx, segment)?;
        }
        Ok(())
    }

    /// Segments that have back references, but no record and no object that is about to be deleted.
    pub(crate) fn stray_backrefs(&self) -> Result<Vec<u64>> {
        let (mut from, to) = keys::table_range(Table::Backref);
        let mut strays = Vec::new();
        loop {
            let (page, next) = self.scan(&from, &to, 1)?;
            if let Some((key, _)) = page.first() {
                let segment = keys::table_id(key);
                if self.lock().segments.get(segment).is_none() {
                    strays.push(segment);
                }
                from = keys::backref_range(segment).1;
            } else if let Some(next) = next {
                from = next;
            } else {
                break;
            }
        }
        let garbage: BTreeSet<u64> =
            self.with_commits_paused(|| self.committer.garbage_so_far()).iter().map(|o| o.segment).collect();
        strays.retain(|segment| !garbage.contains(segment));
        Ok(strays)
    }

    pub(crate) fn forget_backrefs(&self, ctx: &Ctx, segment: u64) -> Result<()> {
        let (mut from, to) = keys::backref_range(segment);
        loop {
            let (page, next) = self.scan(&from, &to, self.step_size(FORGET_STEP))?;
            let forget = |tx: &mut Tx<'_>| {
                page.iter().for_each(|(key, _)| tx.remove(key.clone()));
                Ok(())
            };
            self.in_turn(ctx, 0, || self.transact(ctx, forget))?;
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
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
