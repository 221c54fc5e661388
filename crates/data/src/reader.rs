//! Reading objects: their layout, then verified bytes.
//!
//! Small reads go through the cache, a whole unit at a time: files written together are read together. Large ones go
//! past it: whole runs of units with one request to the store, decoded straight to where they are wanted; only the
//! blocks that are needed are fetched and verified. Nothing unverified ever enters the cache or a caller's result.
//!
//! What goes into the cache is fetched by one thread at a time (a claim); others who miss the same wait for it. A thread
//! holds at most one claim and waits for none while it holds one.

use crate::cache::Cache;
use crate::format::{
    self, BLOCK_BYTES, Codec, Index, TRAILER_BYTES, Trailer, UNIT_BYTES, Unit, corrupt, crc,
};
use crate::{Error, Result};
use leeward_env::{Ctx, Wait};
use leeward_pool::{AlignedBuf, ObjectId, Store};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;
use std::ops::Range;
use std::sync::Arc;

/// Reads from this size on go past the cache.
const LARGE_BYTES: usize = 128 << 10;
/// Units that are fetched with one request.
const RUN_UNITS: usize = 16;
/// First guess how long index and trailer are.
const TAIL_GUESS_BYTES: u64 = 64 << 10;
/// Spare transfer buffers that are kept.
const BOUNCE_SPARE_MAX: usize = 8;

/// How an object is laid out: its index, in the form that readers want.
pub(crate) struct Layout {
    id: ObjectId,
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
    pub(crate) fn new(id: ObjectId, index: &Index) -> Layout {
        let mut spans: Vec<Span> = Vec::new();
        let mut packed = 0;
        for c in &index.chunks {
            match spans.last_mut() {
                Some(s) if s.logical + s.len == c.offset => s.len += c.len,
                _ => spans.push(Span { logical: c.offset, len: c.len, packed }),
            }
            packed += c.len;
        }
        let mut unit_at = vec![0];
        let mut at = 0;
        for u in &index.units {
            at += u.stored_bytes as usize;
            unit_at.push(at);
        }
        Layout {
            id,
            spans: spans.into(),
            units: index.units.clone().into(),
            unit_at: unit_at.into(),
            block_crcs: index.block_crcs.clone().into(),
            packed_bytes: packed,
        }
    }

    pub(crate) fn id(&self) -> ObjectId {
        self.id
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
            _ => Err(Error::Absent { segment: self.id.segment, offset }),
        }
    }

    /// Checks blocks from `first` on.
    pub(crate) fn verify(&self, first: usize, bytes: &[u8]) -> Result<()> {
        for (n, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            if crc(block) != self.block_crcs[first + n] {
                return Err(corrupt(self.id, &format!("checksum of block {}", first + n)));
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
                _ => return Err(corrupt(self.id, &format!("unit {n} cannot be decompressed"))),
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
    /// Only compressed units of which the caller used a part: the next read of a sequential reader wants the rest.
    Edges,
    /// Nothing: the reader is the system itself.
    Nothing,
}

pub(crate) struct Reader {
    store: Arc<dyn Store>,
    cache: Cache,
    bounce: Mutex<Vec<AlignedBuf>>,
    /// What is being fetched for the cache.
    claims: Mutex<FxHashSet<Wanted>>,
    claim_ended: Condvar,
}

/// Something that the cache lacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Wanted {
    Layout(ObjectId),
    Unit(ObjectId, usize),
}

/// The right to fetch something; ends when dropped.
struct Claim<'a> {
    reader: &'a Reader,
    what: Wanted,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.reader.claims.lock().remove(&self.what);
        self.reader.claim_ended.notify_all();
    }
}

impl Reader {
    pub(crate) fn new(store: Arc<dyn Store>, cache_bytes: usize) -> Reader {
        Reader {
            store,
            cache: Cache::new(cache_bytes),
            bounce: Mutex::new(Vec::new()),
            claims: Mutex::new(FxHashSet::default()),
            claim_ended: Condvar::new(),
        }
    }

    /// Claims something; `None` after somebody else's claim to it ended: look into the cache again.
    fn claim(&self, what: Wanted) -> Option<Claim<'_>> {
        let mut claims = self.claims.lock();
        if claims.insert(what) {
            return Some(Claim { reader: self, what });
        }
        while claims.contains(&what) {
            self.claim_ended.wait(&mut claims);
        }
        None
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Reads a logical range of an object.
    pub(crate) fn read(&self, ctx: &Ctx, id: ObjectId, offset: u32, buf: &mut [u8]) -> Result<()> {
        let layout = self.layout(ctx, id)?;
        let keep = if buf.len() < LARGE_BYTES { Keep::Units } else { Keep::Edges };
        let mut done = 0;
        while done < buf.len() {
            let at = u32::try_from(offset as usize + done)
                .map_err(|_| Error::Absent { segment: id.segment, offset: u32::MAX })?;
            let packed = layout.resolve(at, buf.len() - done)?;
            let len = packed.len();
            let part = &mut buf[done..done + len];
            match self.read_packed(ctx, &layout, packed.clone(), part, keep) {
                // the damage may be in what was read around the range: that alone must not fail it
                Err(Error::Corrupt { .. }) if keep == Keep::Units => {
                    self.read_packed(ctx, &layout, packed, part, Keep::Nothing)?;
                }
                other => other?,
            }
            done += len;
        }
        Ok(())
    }

    /// The layout of an object, from the cache or the store.
    fn layout(&self, ctx: &Ctx, id: ObjectId) -> Result<Arc<Layout>> {
        loop {
            if let Some(layout) = self.cache.layout(id) {
                return Ok(layout);
            }
            may_wait(ctx)?;
            let Some(_claim) = self.claim(Wanted::Layout(id)) else { continue };
            if let Some(layout) = self.cache.layout(id) {
                return Ok(layout); // its claim ended between our look and our claim
            }
            let layout = Arc::new(Layout::new(id, &self.index(ctx, id)?));
            self.cache.layout_insert(layout.clone());
            return Ok(layout);
        }
    }

    /// The index of an object, from the store.
    pub(crate) fn index(&self, ctx: &Ctx, id: ObjectId) -> Result<Index> {
        may_wait(ctx)?;
        let object_bytes = self.store.len(ctx, id)?;
        let shortest = (TRAILER_BYTES as u64).next_multiple_of(BLOCK_BYTES as u64);
        let aligned = object_bytes.is_multiple_of(BLOCK_BYTES as u64);
        if !aligned || !(shortest..=format::OBJECT_BYTES_MAX).contains(&object_bytes) {
            return Err(corrupt(id, &format!("it cannot be {object_bytes} bytes long")));
        }
        let tail = self.tail(ctx, id, object_bytes, object_bytes.saturating_sub(TAIL_GUESS_BYTES))?;
        let (_, last) = tail.split_last_chunk().ok_or_else(|| corrupt(id, "it is too short"))?;
        let trailer = Trailer::decode(id, object_bytes, last)?;
        let region_at = trailer.region_at();
        let tail_at = object_bytes - tail.len() as u64;
        let tail = if region_at < tail_at { self.tail(ctx, id, object_bytes, region_at)? } else { tail };
        let start = tail.len() - (object_bytes - region_at) as usize;
        Index::decode(&trailer, &tail[start..tail.len() - TRAILER_BYTES])
    }

    /// The end of an object, from `at` on.
    fn tail(&self, ctx: &Ctx, id: ObjectId, object_bytes: u64, at: u64) -> Result<AlignedBuf> {
        let mut tail = AlignedBuf::zeroed((object_bytes - at) as usize);
        self.get(ctx, id, at, &mut tail)?;
        Ok(tail)
    }

    /// Reads a packed range for the system's own work: nothing of it stays in the cache.
    pub(crate) fn read_once(&self, ctx: &Ctx, l: &Layout, want: Range<usize>, out: &mut [u8]) -> Result<()> {
        self.read_packed(ctx, l, want, out, Keep::Nothing)
    }

    /// Reads a packed range: units that are cached from the cache, runs of others from the store.
    fn read_packed(
        &self,
        ctx: &Ctx,
        l: &Layout,
        want: Range<usize>,
        out: &mut [u8],
        keep: Keep,
    ) -> Result<()> {
        let end = want.end.div_ceil(UNIT_BYTES);
        let mut n = want.start / UNIT_BYTES;
        while n < end {
            if let Some(unit) = self.cache.unit(l.id, n) {
                let part = overlap(&l.unit_range(n), &want);
                out[shift(&part, want.start)].copy_from_slice(&unit[shift(&part, n * UNIT_BYTES)]);
                n += 1;
                continue;
            }
            may_wait(ctx)?;
            let claim = match keep {
                Keep::Units => match self.claim(Wanted::Unit(l.id, n)) {
                    None => continue,
                    claim => claim,
                },
                Keep::Edges | Keep::Nothing => None,
            };
            if claim.is_some() && self.cache.unit(l.id, n).is_some() {
                continue; // somebody's claim ended between our look and our claim
            }
            let longest = end.min(n + RUN_UNITS);
            let run_end = (n + 1..longest).find(|&m| self.cache.unit(l.id, m).is_some()).unwrap_or(longest);
            self.fetch(ctx, l, n..run_end, &want, out, keep)?;
            drop(claim);
            n = run_end;
        }
        Ok(())
    }

    /// Fetches a run of units and copies what is wanted of it.
    fn fetch(
        &self,
        ctx: &Ctx,
        l: &Layout,
        run: Range<usize>,
        want: &Range<usize>,
        out: &mut [u8],
        keep: Keep,
    ) -> Result<()> {
        let body = l.body_range(&run, want, keep);
        let blocks = body.start / BLOCK_BYTES..body.end.div_ceil(BLOCK_BYTES);
        let at = blocks.start * BLOCK_BYTES;
        let run_range = run.start * UNIT_BYTES..l.unit_range(run.end - 1).end;
        let target = shift(&overlap(&run_range, want), want.start);
        let all_raw = run.clone().all(|n| l.units[n].codec == Codec::Raw);
        if keep != Keep::Units && all_raw && is_aligned(&body, &out[target.clone()]) {
            self.get(ctx, l.id, at as u64, &mut out[target.clone()])?;
            return l.verify(blocks.start, &out[target]);
        }
        let mut bounce = self.take_bounce();
        let bytes = &mut bounce[..blocks.len() * BLOCK_BYTES];
        let result = self
            .get(ctx, l.id, at as u64, bytes)
            .and_then(|()| l.verify(blocks.start, bytes))
            .and_then(|()| run.into_iter().try_for_each(|n| self.deliver(l, n, at, bytes, want, out, keep)));
        self.give_bounce(bounce);
        result
    }

    /// Copies the wanted part of unit `n` out of `bytes`, verified and fetched from `at` in the body.
    #[allow(clippy::too_many_arguments)] // one step of `fetch`
    fn deliver(
        &self,
        l: &Layout,
        n: usize,
        at: usize,
        bytes: &[u8],
        want: &Range<usize>,
        out: &mut [u8],
        keep: Keep,
    ) -> Result<()> {
        let unit = l.unit_range(n);
        let part = overlap(&unit, want);
        let out = &mut out[shift(&part, want.start)];
        if keep != Keep::Units && l.units[n].codec == Codec::Raw {
            let from = l.unit_at[n] + part.start - unit.start - at;
            out.copy_from_slice(&bytes[from..from + part.len()]);
            return Ok(());
        }
        let stored = &bytes[l.unit_at[n] - at..l.unit_at[n + 1] - at];
        if keep != Keep::Units && part == unit {
            return l.decode(n, stored, out);
        }
        let mut whole: Arc<[u8]> = std::iter::repeat_n(0, unit.len()).collect();
        let memory = Arc::get_mut(&mut whole).expect("nobody else has it yet");
        l.decode(n, stored, memory)?;
        out.copy_from_slice(&whole[shift(&part, unit.start)]);
        if keep != Keep::Nothing {
            self.cache.unit_insert(l.id, n, whole);
        }
        Ok(())
    }

    pub(crate) fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.store.get(ctx, id, offset, buf) {
            Err(leeward_pool::Error::Short(_)) => Err(corrupt(id, "it ends too early")),
            other => Ok(other?),
        }
    }

    pub(crate) fn take_bounce(&self) -> AlignedBuf {
        let spare = self.bounce.lock().pop();
        spare.unwrap_or_else(|| AlignedBuf::zeroed(RUN_UNITS * UNIT_BYTES + BLOCK_BYTES))
    }

    pub(crate) fn give_bounce(&self, buf: AlignedBuf) {
        let mut spare = self.bounce.lock();
        if spare.len() < BOUNCE_SPARE_MAX {
            spare.push(buf);
        }
    }
}

impl Layout {
    /// The part of the body that must be fetched: whole units, except raw ones at the edges that are not kept.
    fn body_range(&self, run: &Range<usize>, want: &Range<usize>, keep: Keep) -> Range<usize> {
        let (mut start, mut end) = (self.unit_at[run.start], self.unit_at[run.end]);
        if keep != Keep::Units {
            let (first, last) = (run.start, run.end - 1);
            if self.units[first].codec == Codec::Raw {
                start += want.start.saturating_sub(self.unit_range(first).start);
            }
            if self.units[last].codec == Codec::Raw {
                end -= self.unit_range(last).end.saturating_sub(want.end);
            }
        }
        start..end
    }
}

fn may_wait(ctx: &Ctx) -> Result<()> {
    if ctx.wait == Wait::Never { Err(Error::WouldBlock) } else { Ok(()) }
}

/// Whether a body range can be read around the page cache right into `out`.
fn is_aligned(body: &Range<usize>, out: &[u8]) -> bool {
    body.start.is_multiple_of(BLOCK_BYTES)
        && body.end.is_multiple_of(BLOCK_BYTES)
        && out.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

fn shift(r: &Range<usize>, origin: usize) -> Range<usize> {
    r.start - origin..r.end - origin
}
