//! Which segments are in memory, which of them are sealed and in what order they are put, and who may append how much.
//! Bookkeeping only: no I/O, no clock, no lock of its own (the log wraps it in one).
//!
//! **Budget.** A flow may hold `dirty_bytes / (active flows + 1)` bytes that are not durable, and one segment's worth
//! as long as all flows together stay below `dirty_bytes`; a flow that holds nothing may always write. So one greedy flow
//! leaves room for another, and nobody waits for what somebody else wrote.
//!
//! **Order of puts.** First what somebody waits for, then flows that have no put running, then the longest sealed.

use crate::log::Failure;
use crate::segment::Segment;
use leeward_env::{Flow, Nanos};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Delay before the first retry of a put; doubled up to the longest, which bounds how long a writer waits before it is
/// told that the store is full.
const RETRY_FIRST_NS: Nanos = 50_000_000;
const RETRY_LONGEST_NS: Nanos = 1_000_000_000;

#[derive(Default)]
pub(crate) struct Table {
    /// Open, queued and being put.
    memory: FxHashMap<u64, Entry>,
    flows: FxHashMap<Flow, FlowState>,
    queue: Vec<Queued>,
    /// Numbers that were allocated but not needed.
    pub(crate) spare_numbers: Vec<u64>,
    dirty_bytes: u64,
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
struct FlowState {
    open: Option<Arc<Segment>>,
    dirty_bytes: u64,
    /// Sealed segments that are not durable.
    sealed: u32,
    putting: u32,
    failures: u64,
    failure: Option<Failure>,
}

/// A sealed segment waiting for its put.
pub(crate) struct Queued {
    pub(crate) segment: Arc<Segment>,
    seal: u64,
    attempts: u32,
    due: Nanos,
    tried_at_close: bool,
}

/// Whether queued segments that failed are left alone until their time has come.
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
    /// Reserves `len` bytes for a flow, or refuses.
    pub(crate) fn reserve(&mut self, flow: Flow, len: u64, budget: u64, segment_bytes: u64) -> bool {
        let total = self.dirty_bytes;
        let state = self.flows.entry(flow).or_default();
        let (held, want) = (state.dirty_bytes, state.dirty_bytes + len);
        let active = self.flows.len() as u64; // a flow is forgotten when it holds nothing
        let fits =
            held == 0 || want <= budget / (active + 1) || (want <= segment_bytes && total + len <= budget);
        if fits {
            self.flows.entry(flow).or_default().dirty_bytes = want;
            self.dirty_bytes += len;
        }
        fits
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    pub(crate) fn dirty_by_flow(&self) -> Vec<(Flow, u64)> {
        let mut all: Vec<_> = self.flows.iter().map(|(flow, state)| (*flow, state.dirty_bytes)).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Segment>> {
        self.memory.get(&number).map(|e| e.segment.clone())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    pub(crate) fn open_of(&self, flow: Flow) -> Option<Arc<Segment>> {
        self.flows.get(&flow)?.open.clone()
    }

    pub(crate) fn all_open(&self) -> Vec<Arc<Segment>> {
        let mut open: Vec<_> = self.flows.values().filter_map(|f| f.open.clone()).collect();
        open.sort_by_key(|s| s.number);
        open
    }

    /// Whether a flow has something sealed, so that waiting for its puts makes room.
    pub(crate) fn has_sealed(&self, flow: Flow) -> bool {
        self.flows.get(&flow).is_some_and(|f| f.sealed > 0)
    }

    /// Makes a new segment its flow's open one.
    pub(crate) fn install(&mut self, segment: Arc<Segment>) {
        let entry = Entry { segment: segment.clone(), failures: 0, failure: None };
        self.memory.insert(segment.number, entry);
        let flow = self.flows.entry(segment.flow).or_default();
        flow.open = Some(segment);
    }

    /// The segment takes no more appends: the next one opens another.
    pub(crate) fn retire(&mut self, segment: &Arc<Segment>) {
        if let Some(flow) = self.flows.get_mut(&segment.flow)
            && flow.open.as_ref().is_some_and(|o| Arc::ptr_eq(o, segment))
        {
            flow.open = None;
        }
    }

    /// Queues a sealed segment, once.
    pub(crate) fn enqueue(&mut self, segment: Arc<Segment>) {
        self.flows.entry(segment.flow).or_default().sealed += 1;
        let seal = self.next_seal;
        self.next_seal += 1;
        self.queue.push(Queued { segment, seal, attempts: 0, due: 0, tried_at_close: false });
    }

    /// Whether a sealed segment waits for its put.
    pub(crate) fn is_queued(&self, number: u64) -> bool {
        self.queue.iter().any(|q| q.segment.number == number)
    }

    /// Takes the segment that is to be put next out of the queue.
    pub(crate) fn next(&mut self, backoff: Backoff) -> Next {
        let now = match backoff {
            Backoff::Respect(now) if !self.closing => now,
            _ => Nanos::MAX,
        };
        let eligible = |q: &Queued| !(self.closing && q.tried_at_close || q.segment.is_held());
        let rank = |q: &Queued| {
            let putting = self.flows.get(&q.segment.flow).map_or(0, |f| f.putting);
            (!q.segment.is_awaited(), putting, q.attempts, q.seal)
        };
        let ready = self.queue.iter().enumerate().filter(|(_, q)| eligible(q) && q.due <= now);
        if let Some((n, _)) = ready.min_by_key(|(_, q)| rank(q)) {
            let queued = self.queue.swap_remove(n);
            self.flows.entry(queued.segment.flow).or_default().putting += 1;
            return Next::Put(queued);
        }
        match self.queue.iter().filter(|q| eligible(q)).map(|q| q.due).min() {
            Some(due) => Next::Later(due),
            None => Next::Nothing,
        }
    }

    /// Somebody waits for this segment: no more backing off.
    pub(crate) fn hurry(&mut self, number: u64) {
        for q in self.queue.iter_mut().filter(|q| q.segment.number == number) {
            q.due = 0;
        }
    }

    /// The segment is durable: forget it.
    pub(crate) fn done(&mut self, segment: &Segment, used_bytes: u64) {
        self.memory.remove(&segment.number);
        self.dirty_bytes -= used_bytes;
        let Some(flow) = self.flows.get_mut(&segment.flow) else { return };
        flow.dirty_bytes -= used_bytes;
        flow.sealed -= 1;
        flow.putting -= 1;
        if flow.dirty_bytes == 0 && flow.open.is_none() && flow.sealed == 0 {
            self.flows.remove(&segment.flow);
        }
    }

    /// The put failed: keep it for later. Returns how often it has failed.
    pub(crate) fn failed(&mut self, mut queued: Queued, failure: Failure, now: Nanos) -> u32 {
        if let Some(e) = self.memory.get_mut(&queued.segment.number) {
            e.failures += 1;
            e.failure = Some(failure.clone());
        }
        if let Some(flow) = self.flows.get_mut(&queued.segment.flow) {
            flow.putting -= 1;
            flow.failures += 1;
            flow.failure = Some(failure);
        }
        let delay = RETRY_FIRST_NS.saturating_mul(1 << queued.attempts.min(16)).min(RETRY_LONGEST_NS);
        queued.due = now + delay;
        queued.attempts += 1;
        queued.tried_at_close = self.closing;
        let attempts = queued.attempts;
        self.queue.push(queued);
        attempts
    }

    /// How often puts of a flow have failed, and how the last time.
    pub(crate) fn flow_failures(&self, flow: Flow) -> (u64, Option<&Failure>) {
        self.flows.get(&flow).map_or((0, None), |f| (f.failures, f.failure.as_ref()))
    }

    /// The same of one segment; `None` when it is not in memory.
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
