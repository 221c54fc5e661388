//! Reads objects: their layout, then verified bytes.
//!
//! All data that one request wants from an object is read together, in packed order, neighbours
//! with one request to the store. A small amount goes through the cache, in whole units: data
//! written together is read together. A large amount bypasses the cache and is decoded straight to
//! its destination; only the blocks that are needed are fetched and verified. Nothing unverified
//! ever enters the cache or a caller's result.
//!
//! **Reading ahead.** The kernel reads ahead in a file. A file whose blocks are in many segments is
//! read from each of them a little at a time. There the cache itself shows a sequential reader:
//! where the units before a missing one are in the cache, up to four units are fetched with it.
//! This needs no state per file or reader. From then on a separate thread stays ahead of the
//! reader: a reader that uses the first unit of what the thread has fetched makes it fetch the next
//! ones.
//!
//! One thread at a time fetches a thing for the cache (a claim). Other threads that miss the same
//! wait for it, or do something else first. A thread holds at most one claim and waits for none
//! while it holds one.

use crate::cache::{Cache, CachedUnit};
use crate::disk_cache::{DiskCache, PART_BLOCKS, Part};
use crate::format::{
    self, BLOCK_BYTES, Codec, Index, TRAILER_BYTES, Trailer, UNIT_BYTES, Unit, corrupt, crc,
};
use crate::lane::Lanes;
use crate::tail::Tail;
use crate::{Error, Object, Result};
use leeward_env::{Ctx, Wait};
use leeward_pool::AlignedBuf;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

/// Reads from this size on bypass the cache.
const LARGE_BYTES: usize = 128 << 10;
/// Most units that are fetched with one request.
const RUN_UNITS: usize = 16;
/// Unneeded units that are fetched, rather than making two requests for those around them.
const GAP_UNITS: usize = 1;
/// Units that are fetched ahead of a sequential reader.
const AHEAD_UNITS: usize = 3;
/// Units that the read-ahead thread fetches at once.
const AHEAD_RUN_UNITS: usize = 4;
/// Requests that may wait to be fetched ahead; more are left to the readers.
const AHEAD_QUEUE_MAX: usize = 16;
/// Bytes that are fetched around those units, to fill whole parts of the cache on disk.
const AROUND_BYTES: usize = 2 * PART_BLOCKS * BLOCK_BYTES;
/// First guess of the length of index and trailer.
const TAIL_GUESS_BYTES: u64 = 64 << 10;
/// Spare transfer buffers that are kept.
const BOUNCE_SPARE_MAX: usize = 8;

/// The layout of an object: its index, in the form that readers want.
pub(crate) struct Layout {
    object: Object,
    spans: Box<[Span]>,
    units: Box<[Unit]>,
    /// Where each unit begins in the body, and where the last one ends.
    unit_at: Box<[usize]>,
    block_crcs: Box<[u32]>,
    packed_bytes: u32,
}

/// Neighbouring chunks: a range that is contiguous in logical and packed space.
struct Span {
    logical: u32,
    len: u32,
    packed: u32,
}

impl Layout {
    pub(crate) fn new(object: Object, index: &Index) -> Layout {
        let mut spans: Vec<Span> = Vec::new();
        let mut packed = 0;
        for c in &index.chunks {
            match spans.last_mut() {
                Some(s) if s.logical + s.len == c.offset => s.len += c.len,
                _ => spans.push(Span { logical: c.offset, len: c.len, packed }),
            }
            packed += c.len;
        }
        spans.sort_unstable_by_key(|s| s.logical);
        let mut unit_at = vec![0];
        let mut at = 0;
        for u in &index.units {
            at += u.stored_bytes as usize;
            unit_at.push(at);
        }
        Layout {
            object,
            spans: spans.into(),
            units: index.units.clone().into(),
            unit_at: unit_at.into(),
            block_crcs: index.block_crcs.clone().into(),
            packed_bytes: packed,
        }
    }

    pub(crate) fn object(&self) -> Object {
        self.object
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Layout>()
            + size_of_val(&*self.spans)
            + size_of_val(&*self.units)
            + size_of_val(&*self.unit_at)
            + size_of_val(&*self.block_crcs)
    }

    pub(crate) fn units(&self) -> usize {
        self.units.len()
    }

    pub(crate) fn blocks(&self) -> usize {
        self.block_crcs.len()
    }

    /// Packed range of a unit.
    pub(crate) fn unit_range(&self, n: usize) -> Range<usize> {
        let start = n * UNIT_BYTES;
        start..start + format::unit_bytes(self.packed_bytes, n)
    }

    /// Blocks that hold a unit.
    pub(crate) fn unit_blocks(&self, n: usize) -> Range<usize> {
        self.unit_at[n] / BLOCK_BYTES..self.unit_at[n + 1].div_ceil(BLOCK_BYTES)
    }

    /// Packed range of unit `n` that cannot be read without this block of the body.
    pub(crate) fn lost_with(&self, n: usize, block: usize) -> Range<usize> {
        let unit = self.unit_range(n);
        if self.units[n].codec == Codec::Lz4 {
            return unit;
        }
        let at = self.unit_at[n];
        let (from, to) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
        unit.start + from.saturating_sub(at)..unit.end.min(unit.start + to - at)
    }

    /// The first part of a logical range that is contiguous in packed space.
    pub(crate) fn resolve(&self, offset: u32, len: usize) -> Result<Range<usize>> {
        let after = self.spans.partition_point(|s| s.logical <= offset);
        let span = after.checked_sub(1).map(|n| &self.spans[n]);
        match span {
            Some(s) if offset - s.logical < s.len => {
                let skipped = offset - s.logical;
                let start = (s.packed + skipped) as usize;
                Ok(start..start + len.min((s.len - skipped) as usize))
            }
            _ => Err(Error::Absent { segment: self.object.segment, offset }),
        }
    }

    /// Checks blocks from `first` on.
    pub(crate) fn verify(&self, first: usize, bytes: &[u8]) -> Result<()> {
        for (n, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            if crc(block) != self.block_crcs[first + n] {
                return Err(corrupt(self.object.id(), &format!("checksum of block {}", first + n)));
            }
        }
        Ok(())
    }

    /// Decodes a whole unit from its stored form.
    fn decode(&self, n: usize, stored: &[u8], out: &mut [u8]) -> Result<()> {
        match self.units[n].codec {
            Codec::Raw => out.copy_from_slice(stored),
            Codec::Lz4 => match lz4_flex::block::decompress_into(stored, out) {
                Ok(len) if len == out.len() => {}
                _ => return Err(corrupt(self.object.id(), &format!("unit {n} cannot be decompressed"))),
            },
        }
        Ok(())
    }
}

/// What a fetch leaves in the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Whole units.
    Units,
    /// Whole units, and when the first of them is used the following ones are fetched.
    Ahead,
    /// Only compressed units of which the caller used a part: the next read of a sequential reader
    /// wants the rest.
    Edges,
    /// Nothing: the reader is the system itself.
    Nothing,
}

impl Keep {
    /// Whether units are fetched whole, even if only a part is wanted.
    fn is_whole(self) -> bool {
        matches!(self, Keep::Units | Keep::Ahead)
    }
}

/// What a reader does about units that another thread is fetching.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// Leaves them out for now.
    Skip,
    /// Waits for them.
    Await,
}

/// A logical range, by its first offset, and the buffer for its bytes.
pub(crate) type Piece<'a> = (u32, &'a mut [u8]);

/// A part of one unit, and the buffer for its bytes.
struct Want<'a> {
    unit: usize,
    part: Range<usize>,
    out: &'a mut [u8],
}

pub(crate) struct Reader {
    lanes: Arc<Lanes>,
    cache: Cache,
    disk: OnceLock<Arc<DiskCache>>,
    bounce: Mutex<Vec<AlignedBuf>>,
    /// What threads are fetching for the cache.
    claims: Mutex<FxHashSet<Wanted>>,
    claim_ended: Condvar,
    /// To the thread that fetches ahead, if there is one.
    ahead: Mutex<Option<SyncSender<Ahead>>>,
}

/// Units of an object that a sequential reader will want, from `from` on.
pub(crate) struct Ahead {
    ctx: Ctx,
    object: Object,
    from: usize,
}

/// Something that the cache lacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Wanted {
    Layout(Object),
    Unit(Object, usize),
}

/// The right to fetch some things; ends when dropped.
struct Claim<'a> {
    reader: &'a Reader,
    what: Vec<Wanted>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut claims = self.reader.claims.lock();
        claims.retain(|what| !self.what.contains(what));
        self.reader.claim_ended.notify_all();
    }
}

impl Reader {
    pub(crate) fn new(lanes: Arc<Lanes>, cache_bytes: usize) -> Reader {
        Reader {
            lanes,
            cache: Cache::new(cache_bytes),
            disk: OnceLock::new(),
            bounce: Mutex::new(Vec::new()),
            claims: Mutex::new(FxHashSet::default()),
            claim_ended: Condvar::new(),
            ahead: Mutex::new(None),
        }
    }

    /// Keeps data that users read in this cache, too. Called once.
    pub(crate) fn use_disk_cache(&self, cache: Arc<DiskCache>) {
        let _ = self.disk.set(cache); // the first one stays
    }

    /// The cache on disk, if it is for this object.
    fn disk(&self, object: Object) -> Option<&DiskCache> {
        self.disk.get().filter(|disk| disk.serves(object.pool)).map(|disk| &**disk)
    }

    pub(crate) fn disk_cache(&self) -> Option<&DiskCache> {
        self.disk.get().map(|disk| &**disk)
    }

    /// Opens the queue of units to fetch ahead, for a thread that calls [`Reader::fetch_ahead`].
    pub(crate) fn start_ahead(&self) -> Receiver<Ahead> {
        let (sender, receiver) = sync_channel(AHEAD_QUEUE_MAX);
        *self.ahead.lock() = Some(sender);
        receiver
    }

    /// Ends fetching ahead; the thread's channel ends.
    pub(crate) fn end_ahead(&self) {
        self.ahead.lock().take();
    }

    fn ask_ahead(&self, ctx: &Ctx, l: &Layout, from: usize) {
        if from < l.units()
            && let Some(thread) = &*self.ahead.lock()
        {
            // when the thread has too much to do already, readers fetch for themselves
            let _ = thread.try_send(Ahead { ctx: ctx.with_wait(Wait::Allowed), object: l.object, from });
        }
    }

    /// Fetches into the cache what is not there and nobody else is fetching. Who needs it will see
    /// what goes wrong.
    pub(crate) fn fetch_ahead(&self, what: &Ahead) {
        let Some(l) = self.cache.layout(what.object) else { return };
        let mut run = what.from..l.units().min(what.from + AHEAD_RUN_UNITS);
        let Some(start) = run.clone().find(|&n| !self.cache.has_unit(l.object, n)) else { return };
        run.start = start;
        run.end = run.clone().find(|&n| self.cache.has_unit(l.object, n)).unwrap_or(run.end);
        let Some(claim) = self.claim(run.clone().map(|n| Wanted::Unit(l.object, n)), Fetched::Skip) else {
            return;
        };
        run.end = run.start + claim.what.len();
        let _ = self.fetch(&what.ctx, &l, run, &mut [], Keep::Ahead);
    }

    /// Claims the first of these and those after it up to one that is claimed already. When that is
    /// the first, `None`: at once, or when its claim has ended, so that the cache has it now.
    fn claim(&self, what: impl Iterator<Item = Wanted>, others: Fetched) -> Option<Claim<'_>> {
        let mut what = what.peekable();
        let first = *what.peek()?;
        let mut claims = self.claims.lock();
        if claims.contains(&first) {
            while others == Fetched::Await && claims.contains(&first) {
                self.claim_ended.wait(&mut claims);
            }
            return None;
        }
        let what = what.take_while(|what| claims.insert(*what)).collect();
        Some(Claim { reader: self, what })
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Reads logical ranges of an object. False when it has to be repeated: something was left out.
    pub(crate) fn read(
        &self,
        ctx: &Ctx,
        object: Object,
        pieces: &mut [Piece<'_>],
        others: Fetched,
    ) -> Result<bool> {
        let layout = self.layout(ctx, object)?;
        let bytes: usize = pieces.iter().map(|(_, out)| out.len()).sum();
        let keep = if bytes < LARGE_BYTES { Keep::Units } else { Keep::Edges };
        self.read_sparing(ctx, &layout, pieces, keep, others)
    }

    /// A read in which damage or loss around the pieces does not fail the pieces.
    fn read_sparing(
        &self,
        ctx: &Ctx,
        l: &Layout,
        pieces: &mut [Piece<'_>],
        keep: Keep,
        others: Fetched,
    ) -> Result<bool> {
        match self.read_wants(ctx, l, &mut l.wants(pieces)?, keep, others) {
            Err(e) if may_be_beside(&e, keep) => {
                for want in &mut l.wants(pieces)? {
                    self.read_wants(ctx, l, std::slice::from_mut(want), Keep::Nothing, others)?;
                }
                Ok(true)
            }
            other => other,
        }
    }

    /// The layout of an object, from the cache or the store.
    fn layout(&self, ctx: &Ctx, object: Object) -> Result<Arc<Layout>> {
        loop {
            if let Some(layout) = self.cache.layout(object) {
                return Ok(layout);
            }
            may_wait(ctx)?;
            let what = std::iter::once(Wanted::Layout(object));
            let Some(_claim) = self.claim(what, Fetched::Await) else { continue };
            if let Some(layout) = self.cache.layout(object) {
                return Ok(layout); // its claim ended between our look and our claim
            }
            let layout = Arc::new(Layout::new(object, &self.index_for_users(ctx, object)?));
            self.cache.layout_insert(layout.clone());
            return Ok(layout);
        }
    }

    /// The index of an object, from the cache on disk or the store.
    fn index_for_users(&self, ctx: &Ctx, object: Object) -> Result<Index> {
        let Some(disk) = self.disk(object) else { return self.index(ctx, object) };
        if let Some(index) = disk.index(object) {
            return Ok(index);
        }
        let (index, tail) = self.fetch_index(ctx, object)?;
        disk.keep_tail(object, &tail);
        Ok(index)
    }

    /// The index of an object, from the store.
    pub(crate) fn index(&self, ctx: &Ctx, object: Object) -> Result<Index> {
        self.fetch_index(ctx, object).map(|(index, _)| index)
    }

    fn fetch_index(&self, ctx: &Ctx, object: Object) -> Result<(Index, Tail)> {
        may_wait(ctx)?;
        let object_bytes = self.lanes.store(object.pool)?.len(ctx, object.id())?;
        let shortest = (TRAILER_BYTES as u64).next_multiple_of(BLOCK_BYTES as u64);
        let aligned = object_bytes.is_multiple_of(BLOCK_BYTES as u64);
        if !aligned || !(shortest..=format::OBJECT_BYTES_MAX).contains(&object_bytes) {
            return Err(corrupt(object.id(), &format!("it cannot be {object_bytes} bytes long")));
        }
        let tail = self.tail(ctx, object, object_bytes, object_bytes.saturating_sub(TAIL_GUESS_BYTES))?;
        let (_, last) = tail.split_last_chunk().ok_or_else(|| corrupt(object.id(), "it is too short"))?;
        let trailer = Trailer::decode(object.id(), object_bytes, last)?;
        let region_at = trailer.region_at();
        let tail_at = object_bytes - tail.len() as u64;
        let tail = if region_at < tail_at { self.tail(ctx, object, object_bytes, region_at)? } else { tail };
        let start = tail.len() - (object_bytes - region_at) as usize;
        let index = Index::decode(&trailer, &tail[start..tail.len() - TRAILER_BYTES])?;
        Ok((index, Tail { bytes: tail, start, object_bytes }))
    }

    /// The end of an object, from `at` on.
    fn tail(&self, ctx: &Ctx, object: Object, object_bytes: u64, at: u64) -> Result<AlignedBuf> {
        let mut tail = AlignedBuf::zeroed((object_bytes - at) as usize);
        self.get(ctx, object, at, &mut tail)?;
        Ok(tail)
    }

    /// Reads logical ranges for the system's own work: nothing of it stays in the cache.
    pub(crate) fn read_once(&self, ctx: &Ctx, l: &Layout, pieces: &mut [Piece<'_>]) -> Result<()> {
        self.read_sparing(ctx, l, pieces, Keep::Nothing, Fetched::Await).map(drop)
    }

    /// Reads the wanted parts, in order of units: cached units from the cache, runs of others from
    /// the store.
    fn read_wants(
        &self,
        ctx: &Ctx,
        l: &Layout,
        mut wants: &mut [Want<'_>],
        keep: Keep,
        others: Fetched,
    ) -> Result<bool> {
        let mut complete = true;
        while let Some(first) = wants.first() {
            let n = first.unit;
            let count = wants.iter().take_while(|w| w.unit == n).count();
            if let Some(unit) = self.cache.unit(l.object, n) {
                let (here, rest) = wants.split_at_mut(count);
                here.iter_mut().for_each(|w| w.out.copy_from_slice(&unit[w.part.clone()]));
                wants = rest;
                if let Some(from) = unit.take_ahead() {
                    self.ask_ahead(ctx, l, from);
                }
                continue;
            }
            may_wait(ctx)?;
            let mut run = self.run(l, wants, keep);
            let mut claim = None;
            if keep == Keep::Units {
                claim = self.claim(run.clone().map(|n| Wanted::Unit(l.object, n)), others);
                match &claim {
                    None if others == Fetched::Skip => {
                        complete = false;
                        wants = wants.split_at_mut(count).1;
                        continue;
                    }
                    None => continue,
                    // another thread's claim ended between our look and our claim
                    Some(_) if self.cache.has_unit(l.object, n) => continue,
                    Some(claim) => run.end = n + claim.what.len(),
                }
                if self.cached_before(l, n) == AHEAD_UNITS {
                    self.ask_ahead(ctx, l, run.end);
                }
            }
            let count = wants.iter().take_while(|w| w.unit < run.end).count();
            let (here, rest) = wants.split_at_mut(count);
            self.fetch(ctx, l, run, here, keep)?;
            drop(claim);
            wants = rest;
        }
        Ok(complete)
    }

    /// The units to fetch with the first wanted one: those wanted soon after it, over small gaps,
    /// and some more where the units before it are in the cache, as with a sequential reader.
    fn run(&self, l: &Layout, wants: &[Want<'_>], keep: Keep) -> Range<usize> {
        let start = wants[0].unit;
        let mut end = start + 1;
        for w in wants {
            if w.unit > end + GAP_UNITS || w.unit >= start + RUN_UNITS {
                break;
            }
            end = end.max(w.unit + 1);
        }
        if keep == Keep::Units {
            end = end.max(start + 1 + self.cached_before(l, start)).min(l.units());
        }
        let cached = (start + 1..end).find(|&n| self.cache.has_unit(l.object, n));
        start..cached.unwrap_or(end)
    }

    /// How many of the units just before unit `n` are in the cache.
    fn cached_before(&self, l: &Layout, n: usize) -> usize {
        (1..=AHEAD_UNITS).take_while(|b| *b <= n && self.cache.has_unit(l.object, n - b)).count()
    }

    /// Fetches a run of units and copies the wanted parts.
    fn fetch(
        &self,
        ctx: &Ctx,
        l: &Layout,
        run: Range<usize>,
        wants: &mut [Want<'_>],
        keep: Keep,
    ) -> Result<()> {
        let body = l.body_range(&run, wants, keep);
        let disk = self.disk(l.object).filter(|_| keep != Keep::Nothing);
        let mut blocks = body.start / BLOCK_BYTES..body.end.div_ceil(BLOCK_BYTES);
        if disk.is_some() {
            blocks.start -= blocks.start % PART_BLOCKS;
            blocks.end = blocks.end.next_multiple_of(PART_BLOCKS).min(l.blocks());
        }
        let at = blocks.start * BLOCK_BYTES;
        let mut bounce = self.take_bounce();
        let bytes = &mut bounce[..blocks.len() * BLOCK_BYTES];
        self.cache.missed(wants.chunk_by(|a, b| a.unit == b.unit).count());
        let result = match disk {
            Some(disk) => self.fetch_kept(ctx, l, blocks, bytes, disk),
            None => self.fetch_verified(ctx, l, blocks, bytes),
        };
        let result = result.and_then(|()| self.deliver(l, run, at, bytes, wants, keep));
        self.give_bounce(bounce);
        result
    }

    /// Blocks of the body, from the store.
    fn fetch_verified(&self, ctx: &Ctx, l: &Layout, blocks: Range<usize>, bytes: &mut [u8]) -> Result<()> {
        self.get(ctx, l.object, (blocks.start * BLOCK_BYTES) as u64, bytes)?;
        l.verify(blocks.start, bytes)
    }

    /// Blocks of the body, in whole parts, from the cache on disk if they are there and good; else
    /// from the store, and then they are kept.
    fn fetch_kept(
        &self,
        ctx: &Ctx,
        l: &Layout,
        blocks: Range<usize>,
        bytes: &mut [u8],
        disk: &DiskCache,
    ) -> Result<()> {
        let first = blocks.start / PART_BLOCKS;
        let numbered = bytes.chunks(PART_BLOCKS * BLOCK_BYTES).enumerate();
        let part = |n: usize| Part { object: l.object, number: (first + n) as u32 };
        let parts: Vec<(Part, usize)> = numbered.map(|(n, bytes)| (part(n), bytes.len())).collect();
        if let Some(kept) = disk.read(&parts) {
            if l.verify(blocks.start, &kept).is_ok() {
                bytes.copy_from_slice(&kept);
                return Ok(());
            }
            disk.forget(&parts);
        }
        self.fetch_verified(ctx, l, blocks, bytes)?;
        let kept = bytes.chunks(PART_BLOCKS * BLOCK_BYTES);
        parts.iter().zip(kept).for_each(|((part, _), bytes)| disk.keep(*part, bytes));
        Ok(())
    }

    /// Copies the wanted parts of a run of units from `bytes`, which is verified and begins at `at`
    /// in the body.
    fn deliver(
        &self,
        l: &Layout,
        run: Range<usize>,
        at: usize,
        bytes: &[u8],
        mut wants: &mut [Want<'_>],
        keep: Keep,
    ) -> Result<()> {
        for n in run.clone() {
            let count = wants.iter().take_while(|w| w.unit == n).count();
            let (here, rest) = wants.split_at_mut(count);
            wants = rest;
            if !keep.is_whole() {
                match (&mut here[..], l.units[n].codec) {
                    ([], _) => continue,
                    (here, Codec::Raw) => {
                        for w in here {
                            let from = l.unit_at[n] + w.part.start - at;
                            w.out.copy_from_slice(&bytes[from..from + w.part.len()]);
                        }
                        continue;
                    }
                    ([w], Codec::Lz4) if w.part.len() == l.unit_range(n).len() => {
                        l.decode(n, &bytes[l.unit_at[n] - at..l.unit_at[n + 1] - at], w.out)?;
                        continue;
                    }
                    _ => {}
                }
            }
            let unit = l.decoded(n, &bytes[l.unit_at[n] - at..l.unit_at[n + 1] - at])?;
            here.iter_mut().for_each(|w| w.out.copy_from_slice(&unit[w.part.clone()]));
            if keep == Keep::Ahead && n == run.start {
                unit.set_ahead(run.end);
            }
            if keep != Keep::Nothing {
                self.cache.unit_insert(l.object, n, Arc::new(unit));
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, ctx: &Ctx, object: Object, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.lanes.store(object.pool)?.get(ctx, object.id(), offset, buf) {
            Err(leeward_pool::Error::Short(id)) => Err(corrupt(id, "it ends too early")),
            other => Ok(other?),
        }
    }

    pub(crate) fn take_bounce(&self) -> AlignedBuf {
        let spare = self.bounce.lock().pop();
        spare.unwrap_or_else(|| AlignedBuf::zeroed(RUN_UNITS * UNIT_BYTES + BLOCK_BYTES + AROUND_BYTES))
    }

    pub(crate) fn give_bounce(&self, buf: AlignedBuf) {
        let mut spare = self.bounce.lock();
        if spare.len() < BOUNCE_SPARE_MAX {
            spare.push(buf);
        }
    }
}

impl Layout {
    /// Cuts logical ranges at the borders of units; in packed order.
    fn wants<'a>(&self, pieces: &'a mut [Piece<'_>]) -> Result<Vec<Want<'a>>> {
        let mut wants = Vec::with_capacity(pieces.len() + 1);
        for (offset, out) in pieces {
            let mut at = *offset;
            let mut rest = &mut out[..];
            while !rest.is_empty() {
                let packed = self.resolve(at, rest.len())?;
                let unit = packed.start / UNIT_BYTES;
                let part = packed.start - unit * UNIT_BYTES..UNIT_BYTES.min(packed.end - unit * UNIT_BYTES);
                let (out, more) = rest.split_at_mut(part.len());
                rest = more;
                at = at.saturating_add(part.len() as u32);
                wants.push(Want { unit, part, out });
            }
        }
        wants.sort_unstable_by_key(|w| (w.unit, w.part.start));
        Ok(wants)
    }

    /// The part of the body that must be fetched: whole units, except raw ones at the edges that
    /// are not kept.
    fn body_range(&self, run: &Range<usize>, wants: &[Want<'_>], keep: Keep) -> Range<usize> {
        let (mut start, mut end) = (self.unit_at[run.start], self.unit_at[run.end]);
        if !keep.is_whole() {
            let last = run.end - 1;
            if self.units[run.start].codec == Codec::Raw {
                start += wants.first().map_or(0, |w| w.part.start);
            }
            if self.units[last].codec == Codec::Raw {
                let wanted = wants.iter().filter(|w| w.unit == last).map(|w| w.part.end).max();
                end = self.unit_at[last] + wanted.unwrap_or(self.unit_range(last).len());
            }
        }
        start..end
    }

    /// Decodes a unit from its stored form.
    fn decoded(&self, n: usize, stored: &[u8]) -> Result<CachedUnit> {
        if self.units[n].codec == Codec::Raw {
            return Ok(CachedUnit::new(stored.into()));
        }
        let mut unit = vec![0; self.unit_range(n).len()].into_boxed_slice();
        self.decode(n, stored, &mut unit)?;
        Ok(CachedUnit::new(unit))
    }
}

/// Whether the error may concern only data read around the pieces. Where too many stores are lost,
/// much data is read around small pieces alone. To retry each part of a large read would take long
/// where stores hang.
fn may_be_beside(e: &Error, keep: Keep) -> bool {
    match e {
        Error::Corrupt { .. } | Error::Store(leeward_pool::Error::Io(_)) => true,
        Error::Store(leeward_pool::Error::Unavailable { .. }) => keep.is_whole(),
        _ => false,
    }
}

fn may_wait(ctx: &Ctx) -> Result<()> {
    if ctx.wait == Wait::Never { Err(Error::WouldBlock) } else { Ok(()) }
}
