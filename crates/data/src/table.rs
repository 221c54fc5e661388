//! Which segments are in memory, which of them are sealed, in what order they are put, and who may
//! append how much. Bookkeeping only: no I/O, no clock, no lock of its own (the log wraps it in
//! one).
//!
//! **Budget.** A *writer* is a flow that writes to one pool. It may hold `dirty_bytes / (active
//! writers + 1)` bytes that are not durable, and one segment's worth as long as all together stay
//! below `dirty_bytes`. A writer that holds nothing may always write. So one greedy flow leaves
//! room for another. Nobody waits for another flow's data, nor for a pool to which it does not
//! write. In addition to its bytes each append counts [`APPEND_BYTES`] for its records: a flow that
//! writes single bytes holds little data and much memory.
//!
//! **Open segments.** A writer has one for each volume, for some volumes at a time. So a writer
//! that goes through a thousand volumes does not keep a thousand open.
//!
//! **Order of puts.** First segments that somebody waits for, then writers that have no put
//! running, then the segment that was sealed first.

use crate::PoolId;
use crate::lane::Writer;
use crate::log::Failure;
use crate::segment::Segment;
use leeward_env::{Flow, Nanos};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Delay before the first retry of a put. Each further retry doubles it up to the longest. That one
/// limits how long a writer waits before it is told that the store is full.
const RETRY_FIRST_NS: Nanos = 50_000_000;
const RETRY_LONGEST_NS: Nanos = 1_000_000_000;
/// Segments that a writer keeps open, each of another volume.
const OPEN_MAX: usize = 8;

/// Memory for one append in addition to its data: its chunk here, and the owner's pending change
/// and its outcome.
pub(crate) const APPEND_BYTES: u64 = 192;

#[derive(Default)]
pub(crate) struct Table {
    /// Segments that are open, queued or being put.
    memory: FxHashMap<u64, Entry>,
    writers: FxHashMap<Writer, WriterState>,
    queue: Vec<Queued>,
    dirty_bytes: u64,
    /// Number of appends that brought them.
    appends: u64,
    next_seal: u64,
    /// While closing, each segment is tried once more.
    closing: bool,
}

struct Entry {
    segment: Arc<Segment>,
    failures: u64,
    failure: Option<Failure>,
}

#[derive(Default)]
struct WriterState {
    /// Open segments of different volumes, the one open for longest first.
    open: Vec<Arc<Segment>>,
    dirty_bytes: u64,
    appends: u64,
    /// Sealed segments that are not durable.
    sealed: u32,
    putting: u32,
    failures: u64,
    failure: Option<Failure>,
}

/// A sealed segment waiting for its put.
#[derive(Clone)]
pub(crate) struct Queued {
    pub(crate) segment: Arc<Segment>,
    seal: u64,
    pub(crate) attempts: u32,
    due: Nanos,
    tried_at_close: bool,
}

/// Whether a queued segment whose put failed waits until its retry is due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backoff {
    Respect(Nanos),
    Ignore,
}

/// What a put thread does next.
pub(crate) enum Next {
    Put(Queued),
    Later(Nanos),
    Nothing,
}

impl Table {
    /// Reserves room for an append of `len` bytes of a writer, or refuses.
    pub(crate) fn reserve(&mut self, writer: Writer, len: u64, budget: u64, segment_bytes: u64) -> bool {
        let total = self.dirty_bytes + self.appends * APPEND_BYTES;
        let cost = len + APPEND_BYTES;
        let state = self.writers.entry(writer).or_default();
        let held = state.dirty_bytes + state.appends * APPEND_BYTES;
        let want = held + cost;
        let active = self.writers.len() as u64; // a writer is forgotten when it holds nothing
        let fits =
            held == 0 || want <= budget / (active + 1) || (want <= segment_bytes && total + cost <= budget);
        if fits {
            let state = self.writers.entry(writer).or_default();
            state.dirty_bytes += len;
            state.appends += 1;
            self.dirty_bytes += len;
            self.appends += 1;
        }
        fits
    }

    /// Gives reserved room back that no append used.
    pub(crate) fn give_back(&mut self, writer: Writer, len: u64) {
        self.dirty_bytes -= len;
        self.appends -= 1;
        if let Some(state) = self.writers.get_mut(&writer) {
            state.dirty_bytes -= len;
            state.appends -= 1;
            self.forget_idle(writer);
        }
    }

    fn forget_idle(&mut self, writer: Writer) {
        let is_idle = |w: &WriterState| w.dirty_bytes == 0 && w.open.is_empty() && w.sealed == 0;
        if self.writers.get(&writer).is_some_and(is_idle) {
            self.writers.remove(&writer);
        }
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// What a writer holds, and about how much it may hold.
    pub(crate) fn share_of(&self, writer: Writer, budget: u64, segment_bytes: u64) -> (u64, u64) {
        let held = self.writers.get(&writer).map_or(0, |w| w.dirty_bytes);
        (held, (budget / (self.writers.len() as u64 + 1)).max(segment_bytes))
    }

    pub(crate) fn dirty_bytes_to(&self, pool: PoolId) -> u64 {
        self.writers
            .iter()
            .filter(|(writer, _)| writer.pool == pool)
            .map(|(_, state)| state.dirty_bytes)
            .sum()
    }

    pub(crate) fn dirty_by_flow(&self) -> Vec<(Flow, u64)> {
        let mut all: BTreeMap<Flow, u64> = BTreeMap::new();
        for (writer, state) in &self.writers {
            *all.entry(writer.flow).or_default() += state.dirty_bytes;
        }
        all.into_iter().collect()
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Segment>> {
        self.memory.get(&number).map(|e| e.segment.clone())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The writer's open segment of this volume.
    pub(crate) fn open_of(&self, writer: Writer, volume: u32) -> Option<Arc<Segment>> {
        self.writers.get(&writer)?.open.iter().find(|s| s.volume == volume).cloned()
    }

    /// The segment that the writer has had open for longest.
    pub(crate) fn longest_open_of(&self, writer: Writer) -> Option<Arc<Segment>> {
        self.writers.get(&writer)?.open.first().cloned()
    }

    /// All open segments, in the order of their numbers.
    pub(crate) fn all_open(&self) -> Vec<Arc<Segment>> {
        let mut open: Vec<_> = self.writers.values().flat_map(|w| w.open.iter().cloned()).collect();
        open.sort_by_key(|s| s.number);
        open
    }

    /// Whether a writer has sealed segments, so that waiting for their puts makes room.
    pub(crate) fn has_sealed(&self, writer: Writer) -> bool {
        self.writers.get(&writer).is_some_and(|w| w.sealed > 0)
    }

    /// Makes a new segment the writer's open one of its volume. Returns another segment that the
    /// caller must seal for it.
    pub(crate) fn install(&mut self, segment: Arc<Segment>) -> Option<Arc<Segment>> {
        let entry = Entry { segment: segment.clone(), failures: 0, failure: None };
        self.memory.insert(segment.number, entry);
        let open = &mut self.writers.entry(segment.writer()).or_default().open;
        open.push(segment);
        (open.len() > OPEN_MAX).then(|| open[0].clone())
    }

    /// The segment takes no more appends: the next one opens another.
    pub(crate) fn retire(&mut self, segment: &Arc<Segment>) {
        if let Some(writer) = self.writers.get_mut(&segment.writer()) {
            writer.open.retain(|open| !Arc::ptr_eq(open, segment));
        }
    }

    /// Queues a sealed segment, once.
    pub(crate) fn enqueue(&mut self, segment: Arc<Segment>) {
        self.writers.entry(segment.writer()).or_default().sealed += 1;
        let seal = self.next_seal;
        self.next_seal += 1;
        self.queue.push(Queued { segment, seal, attempts: 0, due: 0, tried_at_close: false });
    }

    /// Whether a sealed segment waits for its put.
    pub(crate) fn is_queued(&self, number: u64) -> bool {
        self.queue.iter().any(|q| q.segment.number == number)
    }

    /// Whether nothing in memory goes to a pool.
    pub(crate) fn has_none_of(&self, pool: PoolId) -> bool {
        self.memory.values().all(|e| e.segment.lane.pool != pool)
    }

    /// Takes the segment to put next from the queue; with `pool`, of the segments that go there.
    pub(crate) fn next(&mut self, pool: Option<PoolId>, backoff: Backoff) -> Next {
        let now = match backoff {
            Backoff::Respect(now) if !self.closing => now,
            _ => Nanos::MAX,
        };
        let eligible = |q: &Queued| {
            !(self.closing && q.tried_at_close || q.segment.is_held())
                && pool.is_none_or(|pool| q.segment.lane.pool == pool)
        };
        let rank = |q: &Queued| {
            let putting = self.writers.get(&q.segment.writer()).map_or(0, |w| w.putting);
            (!q.segment.is_awaited(), putting, q.attempts, q.seal)
        };
        let ready = self.queue.iter().enumerate().filter(|(_, q)| eligible(q) && q.due <= now);
        if let Some((n, _)) = ready.min_by_key(|(_, q)| rank(q)) {
            let queued = self.queue.swap_remove(n);
            self.writers.entry(queued.segment.writer()).or_default().putting += 1;
            return Next::Put(queued);
        }
        match self.queue.iter().filter(|q| eligible(q)).map(|q| q.due).min() {
            Some(due) => Next::Later(due),
            None => Next::Nothing,
        }
    }

    /// A caller waits for this segment: no more backing off.
    pub(crate) fn hurry(&mut self, number: u64) {
        for q in self.queue.iter_mut().filter(|q| q.segment.number == number) {
            q.due = 0;
        }
    }

    /// The segment is durable: drops it.
    pub(crate) fn done(&mut self, segment: &Segment, (used_bytes, appends): (u64, u64)) {
        self.memory.remove(&segment.number);
        self.dirty_bytes -= used_bytes;
        self.appends -= appends;
        let Some(writer) = self.writers.get_mut(&segment.writer()) else { return };
        writer.dirty_bytes -= used_bytes;
        writer.appends -= appends;
        writer.sealed -= 1;
        writer.putting -= 1;
        self.forget_idle(segment.writer());
    }

    /// The put failed: keeps the segment for later. Returns how often it has failed. Callers that
    /// wait do not see a passing failure.
    pub(crate) fn failed(&mut self, mut queued: Queued, failure: Failure, now: Nanos) -> u32 {
        let told = u64::from(!matches!(failure, Failure::Passing(_)));
        if let Some(e) = self.memory.get_mut(&queued.segment.number) {
            e.failures += told;
            e.failure = Some(failure.clone());
        }
        if let Some(writer) = self.writers.get_mut(&queued.segment.writer()) {
            writer.putting -= 1;
            writer.failures += told;
            writer.failure = Some(failure);
        }
        let delay = RETRY_FIRST_NS.saturating_mul(1 << queued.attempts.min(16)).min(RETRY_LONGEST_NS);
        queued.due = now + delay;
        queued.attempts += 1;
        queued.tried_at_close = self.closing;
        let attempts = queued.attempts;
        self.queue.push(queued);
        attempts
    }

    /// How often puts of a writer have failed, and the last failure.
    pub(crate) fn failures_of(&self, writer: Writer) -> (u64, Option<&Failure>) {
        self.writers.get(&writer).map_or((0, None), |w| (w.failures, w.failure.as_ref()))
    }

    /// How often puts of a segment have failed, and the last failure; `None` when it is not in
    /// memory.
    pub(crate) fn segment_failures(&self, number: u64) -> Option<(u64, Option<&Failure>)> {
        self.memory.get(&number).map(|e| (e.failures, e.failure.as_ref()))
    }

    /// Any failure of a segment still in memory.
    pub(crate) fn any_failure(&self) -> Option<Failure> {
        self.memory.values().find_map(|e| e.failure.clone())
    }

    pub(crate) fn set_closing(&mut self, closing: bool) {
        self.closing = closing;
        for q in &mut self.queue {
            q.tried_at_close = false;
        }
    }
}
