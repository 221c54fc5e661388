//! A segment in memory: open, then sealed until its object is durable.
//!
//! Two locks: `state` (is it open, which chunks, what is dead) and `buffer` (the bytes). An append
//! holds both, a peek only the buffer. A long put reads the buffer, and is in nobody's way: a
//! sealed segment is never appended to, and nothing else writes the buffer except laying out the
//! object, before the put.

use crate::buffers::{Buffers, SMALL_BYTES};
use crate::format::Index;
use crate::lane::{Lane, Writer};
use crate::log::{Compression, Options};
use crate::pack;
use crate::{Chunk, Object, Owner, PoolId};
use leeward_env::{Flow, Nanos};
use leeward_pool::AlignedBuf;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A segment with this many chunks is sealed, which limits its index.
const CHUNKS_MAX: usize = 65_536;

pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) flow: Flow,
    /// Volume of all its data.
    pub(crate) volume: u32,
    /// The pool that it goes to.
    pub(crate) lane: Arc<Lane>,
    pub(crate) opened: Nanos,
    /// Callers that wait for it to be durable.
    pub(crate) waiters: AtomicU32,
    /// Appends that the owner has not recorded yet: until then the segment must not become durable.
    holds: AtomicU32,
    /// The flow whose transfers its put waited for, if any.
    pub(crate) behind: Mutex<Option<Flow>>,
    state: Mutex<SegmentState>,
    buffer: RwLock<Buffer>,
}

#[derive(Default)]
struct SegmentState {
    open: bool,
    chunks: Vec<Chunk>,
    appends: u64,
    dead: Vec<Range<u32>>,
    /// What was dead when it was laid out, and whether that counts from now on.
    left_out: Vec<Range<u32>>,
    repeat: bool,
}

struct Buffer {
    bytes: AlignedBuf,
    /// Bytes appended; 0 again when the memory was freed.
    used: usize,
    /// Up to here the bytes are as appended: laying out in place puts the index over a dead tail.
    intact: usize,
}

/// An object laid out and ready to be put.
pub(crate) struct Laid {
    pub(crate) index: Index,
    /// 0: all data had died, there is nothing to put.
    pub(crate) object_bytes: u64,
    /// The object, unless it is the segment's own buffer.
    pub(crate) copied: Option<AlignedBuf>,
}

impl Segment {
    pub(crate) fn new(number: u64, flow: Flow, volume: u32, lane: Arc<Lane>, opened: Nanos) -> Segment {
        Segment {
            number,
            flow,
            volume,
            lane,
            opened,
            waiters: AtomicU32::new(0),
            holds: AtomicU32::new(0),
            behind: Mutex::default(),
            state: Mutex::new(SegmentState { open: true, ..SegmentState::default() }),
            buffer: RwLock::new(Buffer { bytes: AlignedBuf::zeroed(0), used: 0, intact: 0 }),
        }
    }

    /// The object that the segment first becomes in this pool.
    pub(crate) fn object_in(&self, pool: PoolId) -> Object {
        Object { pool, segment: self.number, generation: 0 }
    }

    /// The writer that fills it.
    pub(crate) fn writer(&self) -> Writer {
        Writer { flow: self.flow, pool: self.lane.pool }
    }

    /// Appends, and returns the offset; `None` when the segment is sealed or has no room.
    pub(crate) fn append(&self, owner: Owner, data: &[u8], opts: &Options, buffers: &Buffers) -> Option<u32> {
        let mut state = self.state.lock();
        if !state.open {
            return None; // before touching the buffer: a put may be reading it for long
        }
        let mut buffer = self.buffer.write();
        let at = buffer.used;
        if at + data.len() > opts.segment_bytes || state.chunks.len() >= CHUNKS_MAX {
            return None;
        }
        buffer.make_room(at + data.len(), opts.segment_bytes, buffers);
        buffer.bytes[at..at + data.len()].copy_from_slice(data);
        buffer.used = at + data.len();
        buffer.intact = buffer.used;
        state.appends += 1;
        pack::push_chunk(&mut state.chunks, at as u32, data.len() as u32, owner);
        self.holds.fetch_add(1, Ordering::Relaxed);
        Some(at as u32)
    }

    /// The owner has recorded one append. True when that was the last one outstanding.
    pub(crate) fn unhold(&self) -> bool {
        let before = self.holds.fetch_sub(1, Ordering::Release);
        assert!(before > 0, "more unholds than appends to segment {}", self.number);
        before == 1
    }

    /// Whether the owner has yet to record an append.
    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Acquire) > 0
    }

    /// Marks a range as not needed; has an effect if the object is not laid out yet.
    pub(crate) fn dead(&self, range: Range<u32>) {
        let mut state = self.state.lock();
        match state.dead.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => state.dead.push(range),
        }
    }

    /// Copies bytes if the segment still has them.
    pub(crate) fn peek(&self, offset: u32, out: &mut [u8]) -> bool {
        let buffer = self.buffer.read();
        let at = offset as usize;
        let here = at + out.len() <= buffer.intact;
        if here {
            out.copy_from_slice(&buffer.bytes[at..at + out.len()]);
        }
        here
    }

    /// Closes the segment for appends. True for the one caller that closed it.
    pub(crate) fn close(&self) -> bool {
        std::mem::replace(&mut self.state.lock().open, false)
    }

    /// Bytes appended.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.buffer.read().used as u64
    }

    /// Number of appends.
    pub(crate) fn appends(&self) -> u64 {
        self.state.lock().appends
    }

    /// Whether somebody waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    /// From now on it is laid out as the last time, whatever died since: that object may be in the
    /// store, where it stays.
    pub(crate) fn repeat(&self) {
        self.state.lock().repeat = true;
    }

    /// Lays out the object of a sealed segment. May be repeated after a failed put.
    pub(crate) fn lay_out(&self, how: Compression, buffers: &Buffers) -> Laid {
        let (chunks, dead) = {
            let mut state = self.state.lock();
            if !state.repeat {
                state.left_out = state.dead.clone();
            }
            (state.chunks.clone(), state.left_out.clone())
        };
        let live = pack::without_dead(&chunks, &dead);
        if live.is_empty() {
            let index = Index { chunks: live, units: Vec::new(), block_crcs: Vec::new() };
            return Laid { index, object_bytes: 0, copied: None };
        }
        let live_end = live.last().map_or(0, Chunk::end) as usize;
        let body = {
            let buffer = self.buffer.read();
            pack::pack(&buffer.bytes[..buffer.intact], live, how, buffers)
        };
        let mut copied = body.copied;
        let (index, object_bytes) = match &mut copied {
            Some(object) => {
                let index =
                    pack::finish(self.object_in(self.lane.pool).id(), object, body.chunks, body.units);
                (index, object.len())
            }
            None => {
                let mut buffer = self.buffer.write();
                buffer.intact = buffer.intact.min(live_end);
                let object = &mut buffer.bytes;
                let index =
                    pack::finish(self.object_in(self.lane.pool).id(), object, body.chunks, body.units);
                (index, object.len())
            }
        };
        Laid { index, object_bytes: object_bytes as u64, copied }
    }

    /// The segment's own buffer, for the put of an object that was laid out in place.
    pub(crate) fn object(&self) -> impl std::ops::Deref<Target = AlignedBuf> + '_ {
        RwLockReadGuard::map(self.buffer.read(), |b| &b.bytes)
    }

    /// Frees the memory; peeks find nothing from now on.
    pub(crate) fn release(&self) -> AlignedBuf {
        let mut buffer = self.buffer.write();
        (buffer.used, buffer.intact) = (0, 0);
        std::mem::replace(&mut buffer.bytes, AlignedBuf::zeroed(0))
    }
}

impl Buffer {
    /// Starts small, then goes to full size in one step: few flows write much.
    fn make_room(&mut self, need: usize, segment_bytes: usize, buffers: &Buffers) {
        if need <= self.bytes.len() {
            return;
        }
        let first = self.bytes.len() < SMALL_BYTES && need <= SMALL_BYTES;
        let mut larger = buffers.take(if first { SMALL_BYTES } else { segment_bytes.max(need) });
        larger[..self.used].copy_from_slice(&self.bytes[..self.used]);
        buffers.give(std::mem::replace(&mut self.bytes, larger));
    }
}
