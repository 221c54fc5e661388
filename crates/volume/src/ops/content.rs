//! Content of files: reads, writes, and moves changes into the records.

use super::merge::MERGES_MAX;
use crate::before::Before;
use crate::format::extents::{self, Extents, Source, WINDOW, window_of};
use crate::format::inode::{Body, Inode, Stats};
use crate::format::keys;
use crate::shard::Shard;
use crate::snapshots::versions::DataPosition;
use crate::state::pending::{Change, Pending};
use crate::state::{ContentChange, Effect};
use crate::tx::{Fail, Tx, TxResult};
use leeward_data::{Addr, Owner, PoolId};
use leeward_env::limits::{FILE_BYTES_MAX, WRITE_BYTES_MAX};
use leeward_env::{Ctx, Door};
use leeward_fs::rights::{self, CAPABILITY};
use leeward_fs::{Error, Kind, NodeId, Reply, Result};
use std::collections::BTreeSet;
use std::ops::Range;

/// Extents of window 0 that still fit the inode record.
const INLINE_EXTENTS_MAX: usize = 6;

/// A part of a file and where it is; `None`: a hole.
pub type Piece = (Range<u64>, Option<Source>);

/// Numbers of the windows that `range` touches.
pub(crate) fn windows_touching(range: &Range<u64>) -> Range<u32> {
    let last = range.end.min(FILE_BYTES_MAX + WINDOW).saturating_sub(1);
    window_of(range.start.min(FILE_BYTES_MAX))..window_of(last) + 1
}

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Anywhere,
    /// Only if the file ends there.
    AtEnd,
}

/// What an attempt at a write came to.
enum Written<C> {
    Done,
    /// The file does not end there any more.
    NotThere,
    /// So many extents are in this chunk that it is to be merged first.
    Crowded(C),
}

impl Tx<'_> {
    /// The inode of a regular file.
    pub(crate) fn file(&self, node: NodeId) -> TxResult<Inode> {
        let inode = self.inode(node)?;
        match inode.kind {
            Kind::File => Ok(inode),
            Kind::Dir => Err(Error::IsDir.into()),
            _ => Err(Error::Invalid.into()),
        }
    }

    /// Extents of a window, from the records (and the changes of this operation).
    pub(crate) fn window(&self, node: NodeId, inode: &Inode, window: u32) -> TxResult<Extents> {
        if let Some(edited) = self.edits.get(&(node, window)) {
            return Ok(edited.clone());
        }
        match &inode.body {
            Body::File { inline, spilled: false, .. } if window == 0 => Ok(inline.clone()),
            Body::File { windows: false, .. } if window > 0 => Ok(Extents::default()),
            Body::File { .. } => match self.get(&keys::extents(node, window))? {
                None => Ok(Extents::default()),
                Some(v) => Ok(Extents::decode(&v)
                    .ok_or_else(|| Error::Corrupt(format!("extents of {node:?}, window {window}")))?),
            },
            _ => Ok(Extents::default()),
        }
    }

    /// Writes the changed windows of a file back into records. Must be called before the inode is
    /// written, and before records are searched for windows.
    pub(crate) fn settle_windows(&mut self, node: NodeId, inode: &mut Inode) -> TxResult<()> {
        let mut changed: Vec<u32> = self.edits.keys().filter(|(n, _)| *n == node).map(|(_, w)| *w).collect();
        changed.sort_unstable();
        for window in changed {
            if let Some(list) = self.edits.remove(&(node, window)) {
                self.put_window(node, inode, window, list)?;
            }
        }
        Ok(())
    }

    fn put_window(&mut self, node: NodeId, inode: &mut Inode, window: u32, list: Extents) -> TxResult<()> {
        let Body::File { inline, spilled, windows } = &mut inode.body else { return Ok(()) };
        if window == 0 && !*spilled {
            if list.len() <= INLINE_EXTENTS_MAX {
                *inline = list;
                return Ok(());
            }
            *spilled = true;
            *inline = Extents::default();
        }
        *windows |= window > 0;
        if list.is_empty() {
            self.remove_versioned(keys::extents(node, window))
        } else {
            self.put_extents(node, window, &list)
        }
    }

    /// Windows that have extents in the records, at most `limit`; the last ones with `reverse`. In
    /// order.
    pub(crate) fn windows_in(
        &self,
        node: NodeId,
        inode: &Inode,
        range: Range<u32>,
        limit: usize,
        reverse: bool,
    ) -> TxResult<Vec<u32>> {
        let Body::File { inline, spilled, windows } = &inode.body else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        if *windows || *spilled {
            let (from, to) = (keys::extents(node, range.start), keys::extents(node, range.end));
            for (key, _) in self.scan(&from, &to, limit, reverse)? {
                let rest = keys::parse(&key).and_then(|p| p.rest.try_into().ok()).map(u32::from_be_bytes);
                found.extend(rest);
            }
            found.sort_unstable();
        }
        if range.start == 0 && !range.is_empty() && !*spilled && !inline.is_empty() && found.len() < limit {
            found.insert(0, 0);
        }
        Ok(found)
    }

    /// The pieces of a range of the file, pending changes included.
    pub(crate) fn view(&self, node: NodeId, inode: &Inode, range: Range<u64>) -> TxResult<Vec<Piece>> {
        let mut stored = Vec::new();
        self.view_records(node, inode, range.clone(), &mut stored)?;
        let Some(pending) = self.st.pending_of(node) else { return Ok(stored) };
        let mut out = Vec::with_capacity(stored.len());
        let mut first = 0;
        let mut show_stored = |part: Range<u64>, out: &mut Vec<Piece>| {
            if part.is_empty() {
                return; // nothing lies between two pieces that touch: not even a hole
            }
            while first < stored.len() && stored[first].0.end <= part.start {
                first += 1;
            }
            let within = stored[first..].iter().take_while(|(r, _)| r.start < part.end);
            out.extend(within.map(|(r, source)| {
                let from = r.start.max(part.start);
                (from..r.end.min(part.end), source.map(|s| s.skip((from - r.start) as u32)))
            }));
        };
        let mut at = range.start;
        for (part, source) in pending.within(range.clone()) {
            show_stored(at..part.start, &mut out);
            at = part.end;
            out.push((part, source));
        }
        show_stored(at..range.end, &mut out);
        Ok(out)
    }

    fn view_records(
        &self,
        node: NodeId,
        inode: &Inode,
        range: Range<u64>,
        out: &mut Vec<Piece>,
    ) -> TxResult<()> {
        for (window, part, _) in extents::windows(range) {
            let base = u64::from(window) * WINDOW;
            let mut at = part.start;
            for e in self.window(node, inode, window)?.within(part.clone()) {
                if e.offset > at {
                    out.push((base + u64::from(at)..base + u64::from(e.offset), None));
                }
                at = e.offset + e.len;
                out.push((base + u64::from(e.offset)..base + u64::from(at), Some(e.source)));
            }
            if at < part.end {
                out.push((base + u64::from(at)..base + u64::from(part.end), None));
            }
        }
        Ok(())
    }

    /// Allocated bytes of a range, pending changes included.
    pub(crate) fn allocated_in(&self, node: NodeId, inode: &Inode, range: Range<u64>) -> TxResult<u64> {
        let mut sum = 0;
        let mut at = range.start;
        if let Some(pending) = self.st.pending_of(node) {
            for (part, source) in pending.within(range.clone()) {
                sum += self.allocated_in_records(node, inode, at..part.start)?;
                sum += if source.is_some() { part.end - part.start } else { 0 };
                at = part.end;
            }
        }
        Ok(sum + self.allocated_in_records(node, inode, at..range.end)?)
    }

    fn allocated_in_records(&self, node: NodeId, inode: &Inode, range: Range<u64>) -> TxResult<u64> {
        let mut sum = 0;
        for (window, part, _) in extents::windows(range) {
            let (spilled, windows) = match &inode.body {
                Body::File { spilled, windows, .. } => (*spilled, *windows),
                _ => (false, false),
            };
            let stored = if window == 0 { spilled } else { windows };
            if !stored || self.edits.contains_key(&(node, window)) {
                sum += self.window(node, inode, window)?.within(part).map(|e| u64::from(e.len)).sum::<u64>();
            } else if let Some(value) = self.get(&keys::extents(node, window))? {
                sum += Extents::allocated_encoded(&value, part);
            }
        }
        Ok(sum)
    }

    /// Windows that hold anything, pending changes included; at most `limit` of those in the
    /// records.
    pub(crate) fn occupied(
        &self,
        node: NodeId,
        inode: &Inode,
        windows: Range<u32>,
        limit: usize,
    ) -> TxResult<BTreeSet<u32>> {
        let found = self.windows_in(node, inode, windows.clone(), limit, false)?;
        let mut found: BTreeSet<u32> = found.into_iter().collect();
        if let Some(pending) = self.st.pending_of(node) {
            for range in pending.allocated_ranges() {
                let (first, last) = (window_of(range.start), window_of(range.end - 1));
                found.extend(first.max(windows.start)..(last + 1).min(windows.end));
            }
        }
        Ok(found)
    }

    /// Allocated bytes of the occupied windows of a range.
    pub(crate) fn allocated_within(
        &self,
        node: NodeId,
        inode: &Inode,
        windows: &BTreeSet<u32>,
        range: Range<u64>,
    ) -> TxResult<u64> {
        let mut sum = 0;
        for window in windows {
            let base = u64::from(*window) * WINDOW;
            let part = range.start.max(base)..range.end.min(base + WINDOW);
            if part.start < part.end {
                sum += self.allocated_in(node, inode, part)?;
            }
        }
        Ok(sum)
    }

    /// Size and allocated bytes with pending changes.
    pub(crate) fn size_of(&self, node: NodeId, inode: &Inode) -> (u64, u64) {
        self.st.pending_of(node).map_or((inode.size, inode.allocated), |p| (p.size, p.allocated))
    }

    /// Changes content: the changes are queued behind pending ones, or (when they bring no data)
    /// done at once. `grows`: change of allocated bytes, charged here. `fills`: the holes that a
    /// Fill among them allocates. `windows`: how many windows of the records they clear or fill.
    /// Writes `inode`. The operation's last step. A full queue is moved into the records first, so
    /// that this takes bounded time.
    pub(crate) fn change(
        &mut self,
        node: NodeId,
        inode: &mut Inode,
        changes: Vec<Change>,
        grows: i64,
        fills: Vec<Range<u64>>,
        windows: usize,
    ) -> TxResult<()> {
        if self.st.files.get(&node).is_some_and(Pending::is_full) {
            return Err(Fail::Stage(node));
        }
        if inode.is_counted() {
            let by = Stats { bytes: grows, ..Stats::default() };
            self.charge(Self::counted_in(node, inode), by)?;
        }
        self.content_changes(node, inode);
        let writes = changes.iter().any(|c| matches!(c, Change::Write { .. }));
        if !writes && !self.st.files.contains_key(&node) {
            for change in &changes {
                self.apply_change(node, inode, change)?;
            }
            self.settle_windows(node, inode)?;
            inode.content_lsn = self.content_lsn(node, inode);
            return self.put_inode(node, inode);
        }
        self.put_inode(node, inode)?;
        self.count_pending(node, inode, grows);
        let (size, allocated) = (inode.size, inode.allocated);
        let change = ContentChange {
            lsn: self.content_lsn(node, inode),
            changes,
            grows,
            fills,
            windows,
            size,
            allocated,
        };
        self.then(Effect::Change(node, change));
        Ok(())
    }

    /// The number of this change of content. Where the content stays what it is, that of the last
    /// one.
    fn content_lsn(&self, node: NodeId, inode: &Inode) -> u64 {
        match self.is_quiet() {
            true => self.last_content_lsn(node, inode),
            false => self.lsn(),
        }
    }

    /// The number of the last change of content, pending ones included.
    pub(crate) fn last_content_lsn(&self, node: NodeId, inode: &Inode) -> u64 {
        let pending = self.st.files.get(&node).map_or(0, |pending| pending.lsn_of(u64::MAX));
        inode.content_lsn.max(pending)
    }

    /// Moves one change into the records. Does not write the inode record.
    fn apply_change(&mut self, node: NodeId, inode: &mut Inode, change: &Change) -> TxResult<()> {
        match change {
            Change::Write { offset, len, addr } => {
                for (window, part, skip) in extents::windows(*offset..offset + len) {
                    let addr = Addr { segment: addr.segment, offset: addr.offset + skip as u32 };
                    self.replace(node, inode, window, part, Some(Source::Data(addr)))?;
                }
                inode.size = inode.size.max(offset + len);
            }
            Change::Resize { size } => {
                if *size < inode.size {
                    self.clear_existing(node, inode, *size..u64::MAX)?;
                }
                inode.size = *size;
            }
            Change::Zero { range, allocated: false } => self.clear_existing(node, inode, range.clone())?,
            Change::Zero { range, allocated: true } => {
                for (window, part, _) in extents::windows(range.clone()) {
                    self.replace(node, inode, window, part, Some(Source::Unwritten))?;
                }
            }
            Change::Fill { range } => {
                for (window, part, _) in extents::windows(range.clone()) {
                    let base = u64::from(window) * WINDOW;
                    let mut pieces = Vec::new();
                    self.view_records(
                        node,
                        inode,
                        base + u64::from(part.start)..base + u64::from(part.end),
                        &mut pieces,
                    )?;
                    for (hole, _) in pieces.into_iter().filter(|(_, s)| s.is_none()) {
                        let part = (hole.start - base) as u32..(hole.end - base) as u32;
                        self.replace(node, inode, window, part, Some(Source::Unwritten))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn clear_existing(&mut self, node: NodeId, inode: &mut Inode, range: Range<u64>) -> TxResult<()> {
        self.settle_windows(node, inode)?;
        for window in self.windows_in(node, inode, windows_touching(&range), usize::MAX / 2, false)? {
            let base = u64::from(window) * WINDOW;
            let from = range.start.saturating_sub(base).min(WINDOW) as u32;
            let to = (range.end - base).min(WINDOW) as u32;
            self.replace(node, inode, window, from..to, None)?;
        }
        Ok(())
    }

    /// Puts `source` at a part of a window. [`Tx::settle_windows`] writes it back.
    pub(crate) fn replace(
        &mut self,
        node: NodeId,
        inode: &mut Inode,
        window: u32,
        part: Range<u32>,
        source: Option<Source>,
    ) -> TxResult<()> {
        let mut list = match self.edits.remove(&(node, window)) {
            Some(edited) => edited,
            None => self.window(node, inode, window)?,
        };
        let birth = self.epoch(node.volume())?;
        let mut dropped = Vec::new();
        let len = i64::from(part.end.saturating_sub(part.start));
        let mut grown = if source.is_some() { len } else { 0 };
        list.replace(part, source, birth, |e| {
            grown -= i64::from(e.len);
            if let Source::Data(addr) = e.source {
                dropped.push((e, addr));
            }
        });
        if let Some(Source::Data(addr)) = source {
            self.add_reference(addr.segment, len);
        }
        for (e, addr) in dropped {
            let offset = u64::from(window) * WINDOW + u64::from(e.offset);
            self.drop_data(DataPosition { node, offset, birth: e.birth }, addr, e.len)?;
        }
        inode.allocated = inode.allocated.saturating_add_signed(grown);
        if inode.is_counted() {
            self.add_stats(Self::counted_in(node, inode), Stats { bytes: grown, ..Stats::default() });
        }
        self.edits.insert((node, window), list);
        Ok(())
    }

    /// Applies the changes of `node` whose data is durable.
    pub(crate) fn apply_ready(&mut self, node: NodeId) -> TxResult<()> {
        let Some(pending) = self.st.files.get(&node) else { return Ok(()) };
        let ready = pending.ready(|segment| self.st.is_stored(segment));
        self.apply_queue(node, &ready)
    }

    /// Applies a prefix of the queue of `node`.
    pub(crate) fn apply_queue(&mut self, node: NodeId, ready: &[(u64, Change)]) -> TxResult<()> {
        let Some((last, _)) = ready.last() else { return Ok(()) };
        self.quietly();
        let mut inode = self.inode(node)?;
        // without a name it is in no later snapshot, and its records may be of a later epoch than
        // its content
        if let (Some(pending), 1..) = (self.st.files.get(&node), inode.nlink) {
            self.set_as_of(node.volume(), pending.epoch);
        }
        for (_, change) in ready {
            self.apply_change(node, &mut inode, change)?;
        }
        self.settle_windows(node, &mut inode)?;
        let lsn = self.st.files.get(&node).map_or(0, |pending| pending.lsn_of(*last));
        inode.content_lsn = inode.content_lsn.max(lsn);
        self.put_inode(node, &inode)?;
        self.then(Effect::Applied { node, last: *last, size: inode.size, allocated: inode.allocated });
        Ok(())
    }

    /// Notes in an inode that its content changes now. Of what is done again only the content may
    /// be missing, and later changes be there.
    pub(crate) fn touch_content(&mut self, node: NodeId, inode: &mut Inode) -> TxResult<()> {
        if !self.restores_content() {
            inode.touch(self.now);
            self.drop_privileges(node, inode)?;
        }
        Ok(())
    }

    /// Takes away what a program had when content changes: capabilities always, as Linux does;
    /// setuid and setgid when a user other than root changes it.
    pub(crate) fn drop_privileges(&mut self, node: NodeId, inode: &mut Inode) -> TxResult<()> {
        if self.ctx.uid != 0 && inode.mode & 0o6000 != 0 {
            self.take_set_ids(inode);
        }
        self.take_capabilities(node, inode)
    }

    /// Removes the attribute with capabilities.
    pub(crate) fn take_capabilities(&mut self, node: NodeId, inode: &mut Inode) -> TxResult<()> {
        if inode.xattrs > 0 && self.xattr(node, CAPABILITY)?.is_some() {
            inode.xattrs -= 1;
            self.remove_xattr_record(node, CAPABILITY)?;
        }
        Ok(())
    }

    /// Clears setuid, and setgid where it means something, or the caller could not set it.
    pub(crate) fn take_set_ids(&self, inode: &mut Inode) {
        inode.mode = rights::without_set_ids(inode.mode, || self.may_set_gid(inode));
    }

    /// Whether the caller is root or in the group of the inode: others cannot pass on its rights.
    pub(crate) fn may_set_gid(&self, inode: &Inode) -> bool {
        let ctx = self.ctx;
        ctx.uid == 0
            || ctx.gid == inode.gid
            || ctx.gids.contains(inode.gid)
            || ctx.groups().contains(&inode.gid)
    }

    /// The pieces of a read, already cut at the end of the file.
    fn read_plan(&self, node: NodeId, offset: u64, len: u64) -> TxResult<Vec<Piece>> {
        let inode = self.file(node)?;
        let end = self.size_of(node, &inode).0.min(offset.saturating_add(len));
        if offset >= end {
            return Ok(Vec::new());
        }
        self.view(node, &inode, offset..end)
    }
}

impl Shard {
    /// [`Op::Read`](leeward_fs::Op::Read).
    pub(crate) fn read(&self, ctx: &Ctx, node: NodeId, offset: u64, len: u32) -> Result<Reply> {
        let len = u64::from(len).min(WRITE_BYTES_MAX as u64);
        let first = |tx: &mut Tx<'_>| {
            tx.lease(node);
            tx.read_plan(node, offset, len)
        };
        let mut plan = self.transact(ctx, first)?;
        loop {
            match self.fetch(ctx, &plan) {
                // the data may have moved between the look-up and the read: overwritten and its
                // segment removed
                Err(Error::Corrupt(what)) => {
                    let again = self.transact(ctx, |tx| tx.read_plan(node, offset, len))?;
                    if again == plan {
                        tracing::error!("{}: {what}", self.describe(node));
                        return Err(Error::Corrupt(what));
                    }
                    plan = again;
                }
                other => return other.map(Reply::Data),
            }
        }
    }

    /// Reads the pieces, which follow each other, into one buffer.
    pub(crate) fn fetch(&self, ctx: &Ctx, plan: &[Piece]) -> Result<Vec<u8>> {
        let (Some(first), Some(last)) = (plan.first(), plan.last()) else { return Ok(Vec::new()) };
        let mut buf = vec![0u8; (last.0.end - first.0.start) as usize];
        let mut rest = &mut buf[..];
        let mut pieces = Vec::with_capacity(plan.len());
        for (range, source) in plan {
            let (part, more) = rest.split_at_mut((range.end - range.start) as usize);
            rest = more;
            if let Some(Source::Data(addr)) = source {
                pieces.push((*addr, part));
            }
        }
        self.log.read_all(ctx, pieces)?;
        Ok(buf)
    }

    /// The pool of a volume's data.
    pub(crate) fn pool_of_volume(&self, volume: u32) -> PoolId {
        if self.pools.are_one() {
            return 0;
        }
        self.lock().volumes.get(&volume).map_or(0, |v| v.properties.pool)
    }

    /// The pool that new data of a file goes to.
    pub(crate) fn pool_of(&self, ctx: &Ctx, node: NodeId) -> Result<PoolId> {
        if self.pools.are_one() {
            return Ok(0);
        }
        {
            let st = self.lock();
            let Some(v) = st.volumes.get(&node.volume()) else { return Err(Error::Stale) };
            if v.properties.dir_pools.is_empty() {
                return Ok(v.properties.pool);
            }
        }
        self.transact(ctx, |tx| Ok(tx.st.pool_for(node.volume(), tx.file(node)?.pool)))
    }

    /// [`Op::Write`](leeward_fs::Op::Write).
    pub(crate) fn write(&self, ctx: &Ctx, node: NodeId, offset: u64, data: &[u8]) -> Result<Reply> {
        self.write_at(ctx, node, (offset, Place::Anywhere), data)?.ok_or(Error::Invalid)
    }

    /// [`Op::Append`](leeward_fs::Op::Append). The kernel of this machine drops what it has of the
    /// file then: it takes the end for where it was when it asked.
    pub(crate) fn append(&self, ctx: &Ctx, node: NodeId, data: &[u8]) -> Result<Reply> {
        let is_here = ctx.door == Door::Mount && self.leases.are_used();
        if is_here {
            Self::may_wait(ctx)?;
        }
        loop {
            let end = self.transact(ctx, |tx| Ok(tx.size_of(node, &tx.file(node)?).0))?;
            if let Some(reply) = self.write_at(ctx, node, (end, Place::AtEnd), data)? {
                if is_here {
                    self.invalidate_inode(node);
                    self.wait_applied();
                }
                return Ok(reply);
            }
        }
    }

    /// `None`: the file does not end there any more.
    fn write_at(
        &self,
        ctx: &Ctx,
        node: NodeId,
        (offset, place): (u64, Place),
        data: &[u8],
    ) -> Result<Option<Reply>> {
        if data.len() > WRITE_BYTES_MAX {
            return Err(Error::Invalid);
        }
        let len = data.len() as u64;
        let range =
            offset..offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Error::TooBig)?;
        if len == 0 {
            self.transact(ctx, |tx| tx.may_write(node, &tx.file(node)?, u64::MAX))?;
            return Ok(Some(Reply::Written(0)));
        }
        let _recalling = self.recall_first(ctx, node)?;
        let pool = self.pool_of(ctx, node)?;
        self.need_room(ctx, node.volume(), pool, len)?;
        let owner = Owner { volume: node.volume(), inode: node.inode(), offset };
        let (mut merges, mut before) = (0, Before::default());
        loop {
            let addr = self.log.append(ctx, pool, owner, data)?;
            let write = &mut |tx: &mut Tx<'_>| {
                let mut inode = tx.file(node)?;
                tx.may_write(node, &inode, offset)?;
                if place == Place::AtEnd && tx.size_of(node, &inode).0 != offset {
                    return Ok(Written::NotThere);
                }
                // a copy has pieces where the other cell has them
                if merges < MERGES_MAX
                    && !tx.is_transfer()
                    && let Some(chunk) = tx.crowded_chunk(node, &inode, &range)?
                {
                    return Ok(Written::Crowded(chunk));
                }
                let grows = (len - tx.allocated_in(node, &inode, range.clone())?) as i64;
                tx.touch_content(node, &mut inode)?;
                tx.comes_to(NodeId(0), offset);
                tx.change(node, &mut inode, vec![Change::Write { offset, len, addr }], grows, Vec::new(), 0)?;
                Ok(Written::Done)
            };
            let done = self.attempt(ctx, write, &before);
            if !matches!(done, Ok(Ok(Written::Done))) {
                self.log.dead(addr, len as u32);
            }
            self.log.unhold(addr.segment);
            match done? {
                Ok(Written::Done) => {
                    self.watch_room_for_clients(pool);
                    return Ok(Some(Reply::Written(len)));
                }
                Ok(Written::NotThere) => return Ok(None),
                Ok(Written::Crowded(chunk)) => {
                    self.merge_chunk(ctx, node, chunk)?;
                    merges += 1;
                }
                // not while the segment is held: others may wait for older content in the same
                Err(unmet) => self.meet(ctx, unmet, &mut before)?,
            }
        }
    }
}
