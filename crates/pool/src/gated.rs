//! The gate before a store (gate 2): it decides which transfer is next, and how much is in flight
//! at once.
//!
//! Each transfer is cut into slices, and each slice waits for its turn. The slices queue in lines
//! of flows and classes as at the gate before the file system ([`FairQueue`], counted in bytes
//! here). The [`Window`] says how many bytes may be in flight. So requests queue here, where the
//! queue is fair, and not in the store.
//!
//! A read of a user who is alone is not cut and does not wait for the window, but its bytes count.
//!
//! However wide the window is, at most [`STORE_TRANSFERS_MAX`] transfers are in flight at once, or
//! as many as the settings say. This holds for all readers.
//!
//! Background work rests after each slice while users make requests ([`Activity`]). It does not
//! rest here where the threads of a pool call the store: it would hold a thread that others wait
//! for. There it rests further up ([`RestingStore`](crate::RestingStore)).
//!
//! One lock, never held over a call of the store. In simulations, and when the gate is open, all
//! transfers pass at once.

use crate::{AlignedBuf, ObjectId, Pace, Result, Store};
use leeward_env::disk::Space;
use leeward_env::limits::STORE_TRANSFERS_MAX;
use leeward_env::waits::{self, Cause};
use leeward_env::{Activity, Ctx, Env, Flow, Nanos};
use leeward_gate::{FairQueue, Kind, Line, Transfer, Turn, Window};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// What a request costs in addition to its bytes, in bytes.
const REQUEST_BYTES: u64 = 16 << 10;

/// A store behind its gate.
pub struct GatedStore {
    inner: Arc<dyn Store>,
    gate: Gate,
}

struct Gate {
    env: Env,
    activity: Arc<Activity>,
    slice_bytes: usize,
    /// The gate lets everything pass.
    open: bool,
    rests: bool,
    transfers_max: usize,
    state: Mutex<GateState>,
}

struct GateState {
    queue: FairQueue<Waiting>,
    window: Window,
    /// Flows of the transfers in flight.
    inside: Vec<Flow>,
    waits: u64,
    waited: Nanos,
}

/// A slice that waits for its turn.
struct Waiting {
    kind: Kind,
    bytes: usize,
    /// The slice does not wait for the window.
    lone: bool,
    seat: Arc<TurnWait>,
}

/// Where a thread waits for its turn.
#[derive(Default)]
struct TurnWait {
    given: Mutex<Option<(Turn, Transfer)>>,
    changed: Condvar,
}

/// What a gate did so far, and its state now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateFigures {
    /// Bytes that may be in flight at once.
    pub window_bytes: u64,
    /// Bytes in flight.
    pub on_way_bytes: u64,
    /// Slices that wait for their turn now.
    pub waiting: u64,
    /// Slices that had to wait.
    pub waits: u64,
    /// How long slices waited in all, nanoseconds.
    pub waited_nanos: u64,
}

impl std::iter::Sum for GateFigures {
    fn sum<I: Iterator<Item = GateFigures>>(all: I) -> GateFigures {
        all.fold(GateFigures::default(), |sum, one| GateFigures {
            window_bytes: sum.window_bytes + one.window_bytes,
            on_way_bytes: sum.on_way_bytes + one.on_way_bytes,
            waiting: sum.waiting + one.waiting,
            waits: sum.waits + one.waits,
            waited_nanos: sum.waited_nanos + one.waited_nanos,
        })
    }
}

impl GatedStore {
    /// A gate before `inner`, for slices of `slice_bytes`. `fair`: whether the gate makes anything
    /// wait.
    pub fn new(
        env: &Env,
        inner: Arc<dyn Store>,
        slice_bytes: usize,
        activity: Arc<Activity>,
        fair: bool,
    ) -> GatedStore {
        let state = GateState {
            queue: FairQueue::default(),
            window: Window::new(slice_bytes),
            inside: Vec::new(),
            waits: 0,
            waited: 0,
        };
        let open = !fair || env.is_sim();
        let gate = Gate {
            env: env.clone(),
            activity,
            slice_bytes,
            open,
            rests: true,
            transfers_max: STORE_TRANSFERS_MAX,
            state: Mutex::new(state),
        };
        GatedStore { inner, gate }
    }

    /// Limits the transfers in flight to this many; at least one.
    pub fn at_most(mut self, transfers: usize) -> GatedStore {
        self.gate.transfers_max = transfers.max(1);
        self
    }

    /// Turns rests of background work off.
    pub fn without_rests(mut self) -> GatedStore {
        self.gate.rests = false;
        self
    }

    /// The activity of users that this gate was given.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.gate.activity
    }

    /// What the gate did so far, and its state now.
    pub fn figures(&self) -> GateFigures {
        let state = self.gate.state.lock();
        GateFigures {
            window_bytes: state.window.limit_bytes(),
            on_way_bytes: state.window.bytes(),
            waiting: state.queue.len() as u64,
            waits: state.waits,
            waited_nanos: state.waited,
        }
    }
}

impl Gate {
    /// Runs a transfer of one slice when it is its turn.
    fn pass(&self, ctx: &Ctx, kind: Kind, bytes: usize, run: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.open {
            return run();
        }
        let mut inside =
            InFlight { gate: self, on_way: Some(self.enter(ctx, kind, bytes)), bytes, took: None };
        let begun = self.env.now();
        let result = run();
        let took = self.env.now().saturating_sub(begun);
        inside.took = result.is_ok().then_some(took);
        drop(inside);
        if result.as_ref().is_err_and(|e| e.is_overload()) {
            self.state.lock().window.back_off();
        }
        if self.rests && ctx.flow.work().is_some() {
            self.activity.rest(&self.env, ctx.class, took);
        }
        result
    }

    /// Whether this is a read of a user who is alone at the gate.
    fn is_lone(&self, ctx: &Ctx, kind: Kind) -> bool {
        kind == Kind::Read && ctx.flow.work().is_none() && !self.activity.is_shared(self.env.now())
    }

    /// How much of a read of `wanted` bytes is read at once: a slice, or more while nobody waits
    /// and there is room.
    fn piece(&self, ctx: &Ctx, wanted: usize) -> usize {
        if self.open || self.is_lone(ctx, Kind::Read) {
            return wanted;
        }
        let state = self.state.lock();
        let most = if state.queue.is_empty() { state.window.piece() as usize } else { self.slice_bytes };
        wanted.min(most & !0xfff)
    }

    fn enter(&self, ctx: &Ctx, kind: Kind, bytes: usize) -> (Turn, Transfer) {
        let line = Line { flow: ctx.flow, class: ctx.class };
        let asked = self.env.now();
        let lone = self.is_lone(ctx, kind);
        let mut state = self.state.lock();
        if state.queue.is_empty() && state.has_room(lone, kind, bytes, self.transfers_max) {
            let turn = state.queue.pass(line, Line::USUAL);
            return (turn, state.begin(line.flow, kind, bytes));
        }
        let behind = state.most_inside(line.flow);
        let seat = Arc::new(TurnWait::default());
        state.queue.push(line, Line::USUAL, Waiting { kind, bytes, lone, seat: seat.clone() });
        state.give(self.transfers_max);
        drop(state);
        let given = seat.wait();
        let waited = self.env.now().saturating_sub(asked);
        waits::note(Cause::Store, behind, waited);
        let mut state = self.state.lock();
        state.waits += 1;
        state.waited += waited;
        given
    }

    fn leave(&self, (turn, transfer): (Turn, Transfer), bytes: usize, took: Option<Nanos>) {
        let state = &mut *self.state.lock();
        match took {
            Some(nanos) => state.window.end(transfer, nanos, !state.queue.is_empty()),
            None => state.window.failed(transfer),
        }
        if let Some(n) = state.inside.iter().position(|flow| *flow == turn.line.flow) {
            state.inside.swap_remove(n);
        }
        state.queue.done(turn, bytes as u64 + REQUEST_BYTES);
        state.give(self.transfers_max);
    }
}

/// A slice in flight. It leaves the gate when this is dropped, also when the store panics.
struct InFlight<'a> {
    gate: &'a Gate,
    on_way: Option<(Turn, Transfer)>,
    bytes: usize,
    /// How long the slice took, if it succeeded.
    took: Option<Nanos>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(on_way) = self.on_way.take() {
            self.gate.leave(on_way, self.bytes, self.took);
        }
    }
}

impl TurnWait {
    fn wait(&self) -> (Turn, Transfer) {
        let mut given = self.given.lock();
        loop {
            match given.take() {
                Some(given) => return given,
                None => self.changed.wait(&mut given),
            }
        }
    }
}

impl GateState {
    fn has_room(&self, lone: bool, kind: Kind, bytes: usize, transfers_max: usize) -> bool {
        self.inside.len() < transfers_max && (lone || self.window.has_room(kind, bytes))
    }

    /// Gives turns while there is room.
    fn give(&mut self, transfers_max: usize) {
        let fits = |state: &GateState, next: &Waiting| {
            state.has_room(next.lone, next.kind, next.bytes, transfers_max)
        };
        while self.queue.peek().is_some_and(|next| fits(self, next)) {
            let Some((turn, next)) = self.queue.pop() else { return };
            let transfer = self.begin(turn.line.flow, next.kind, next.bytes);
            *next.seat.given.lock() = Some((turn, transfer));
            next.seat.changed.notify_one();
        }
    }

    fn begin(&mut self, flow: Flow, kind: Kind, bytes: usize) -> Transfer {
        self.inside.push(flow);
        self.window.begin(kind, bytes)
    }

    /// A flow that is in flight: another flow than this one if there is one.
    fn most_inside(&self, flow: Flow) -> Option<Flow> {
        self.inside.iter().find(|f| **f != flow).or(self.inside.first()).copied()
    }
}

impl Store for GatedStore {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        let pace: Pace<'_> = &|bytes, write| self.gate.pass(ctx, Kind::Write, bytes, write);
        self.inner.put_paced(ctx, id, body, pace)
    }

    fn replace(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.gate.pass(ctx, Kind::Write, body.len(), || self.inner.replace(ctx, id, body))
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, buf);
        loop {
            let (piece, more) = rest.split_at_mut(self.gate.piece(ctx, rest.len()));
            let bytes = piece.len();
            self.gate.pass(ctx, Kind::Read, bytes, || self.inner.get(ctx, id, at, piece))?;
            if more.is_empty() {
                return Ok(());
            }
            (at, rest) = (at + bytes as u64, more);
        }
    }

    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        self.inner.len(ctx, id)
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.inner.settle(ctx, id)
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.gate.pass(ctx, Kind::Delete, 0, || self.inner.delete(ctx, id))
    }

    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        self.inner.list(ctx)
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }
}
