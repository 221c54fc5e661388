//! What doors send their requests to: a [`Backend`](crate::Backend) behind a pointer, so that the
//! code of doors is there once for both.

use crate::gate::{Attempt, Gate};
use crate::ledger::Outcome;
use leeward_env::Ctx;
use leeward_fs::{NodeId, Op, Reply, Result};

/// Takes the answer to an operation.
pub type Answer = Box<dyn FnOnce(Result<Reply>) + Send>;

/// Makes the operations of a request by [`DoorBackend::call`] with the context that it is given,
/// answers the request, and says what was done. `None`: it would have to wait, and is to be
/// repeated where it may.
pub type Steps = Box<dyn FnMut(&Ctx) -> Option<Outcome> + Send>;

/// The gate before a cell in this process, or the connection to the server of a cell on another
/// machine.
pub trait DoorBackend: Send + Sync + 'static {
    /// Runs one operation.
    fn run(&self, ctx: Ctx, op: Op<'_>, answer: Answer);

    /// Runs a request of several operations. `like`: the operation as which it is accounted for,
    /// and what counts against a ceiling, bytes.
    fn run_all(&self, ctx: Ctx, like: (Op<'static>, u64), steps: Steps);

    /// Runs one operation on this thread, now: for what [`DoorBackend::run_all`] runs.
    ///
    /// # Errors
    /// Those of the operation.
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply>;

    /// Runs one operation out of turn, which is answered from memory.
    fn ask(&self, ctx: Ctx, op: Op<'_>, answer: Answer);

    /// Returns references on an inode.
    fn forget(&self, ctx: Ctx, node: NodeId, count: u64);

    /// Names the session at the server, and the server's process. What was done in another one, and
    /// is not durable, may be lost, and references of then may not count.
    fn session(&self) -> u64;
}

impl DoorBackend for Gate {
    fn run(&self, ctx: Ctx, op: Op<'_>, answer: Answer) {
        Gate::run(self, ctx, op, answer);
    }

    fn run_all(&self, ctx: Ctx, like: (Op<'static>, u64), steps: Steps) {
        Gate::run_all(self, ctx, like, steps, |ctx, mut steps| match steps(ctx) {
            Some(outcome) => Attempt::Done(outcome),
            None => Attempt::Wait(steps),
        });
    }

    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        Gate::call(self, ctx, op)
    }

    fn ask(&self, ctx: Ctx, op: Op<'_>, answer: Answer) {
        answer(Gate::call(self, &ctx, op));
    }

    fn forget(&self, ctx: Ctx, node: NodeId, count: u64) {
        Gate::forget(self, ctx, node, count);
    }

    fn session(&self) -> u64 {
        0
    }
}
