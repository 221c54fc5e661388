//! What front ends talk to: the [`Fs`] trait (a cell in this process; later a remote one over the wire), the [`Gate`] before it, and
//! what every front end needs with them.
//!
//! * [`Gate`]: runs operations in an order that is fair between flows, at once or on a thread that may wait.
//! * [`People`]: who tells the gate about groups of users and jobs of processes.
//! * [`ledger`]: what each flow used, what it waited for, behind whom.
//! * [`OwnedOp`]: an operation with its bytes, for carrying it to another thread.
//! * [`Cursor`]: where a directory stream is, so that a listing can go on while the directory changes.
//!
//! Nothing here does I/O or knows a protocol.

mod background;
mod cursor;
mod gate;
mod held;
mod jobs;
pub mod ledger;
mod owned;
mod owners;
mod people;
mod shares;
mod waiting;

pub use cursor::{Cursor, Place};
pub use gate::{Attempt, Gate, Options as GateOptions};
pub use ledger::Outcome;
pub use owned::OwnedOp;
pub use people::{People, Subordinates};

use leeward_env::{Activity, Ctx};
use leeward_volume::uploads::Uploads;
use leeward_volume::{Cell, Op, Reply, Result, Turns, Watcher};
use std::sync::Arc;

/// A file system. Calls may come from several threads at once.
///
/// With [`leeward_env::Wait::Never`] in the context a call answers `Error::WouldBlock`, with no effect, where it would
/// wait for a store, a commit or a budget; the front end then repeats it on a thread that may wait.
pub trait Fs: Send + Sync + 'static {
    /// Runs one operation.
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply>;

    /// Registers who wants to hear of changes that did not come through a front end (an operator's, later another
    /// door's): the front end drops what it caches of them.
    fn watch(&self, watcher: Arc<dyn Watcher>);

    /// Uploads in parts that there are.
    fn uploads(&self) -> Arc<Uploads> {
        Arc::default()
    }

    /// Where it is to be told that users ask for something.
    fn activity(&self) -> Arc<Activity> {
        Arc::default()
    }

    /// From now on background work waits for its turns there.
    fn give_turns(&self, _: Arc<dyn Turns>) {}
}

impl Fs for Cell {
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        Cell::call(self, ctx, op)
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        Cell::watch(self, watcher);
    }

    fn uploads(&self) -> Arc<Uploads> {
        Cell::uploads(self)
    }

    fn activity(&self) -> Arc<Activity> {
        Cell::activity(self).clone()
    }

    fn give_turns(&self, turns: Arc<dyn Turns>) {
        Cell::give_turns(self, turns);
    }
}
