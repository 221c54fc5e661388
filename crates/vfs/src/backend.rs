//! What a front end sends its requests to: the gate before a cell in this process, or the
//! connection to the server of a cell on another machine.

use crate::gate::{Attempt, Gate};
use crate::locks::{LockService, OwnMount};
use leeward_env::Ctx;
use leeward_fs::{NodeId, Op, Reply, Result, Watcher};
use std::sync::Arc;
use std::time::Duration;

/// How long the kernel may keep names and attributes of a cell in this process. Whatever changes
/// does so through this kernel or is announced to it; the bound only limits what a lost
/// announcement could do.
const KEEP_IN_PROCESS: Duration = Duration::from_secs(3600);

/// Takes requests and answers each by a closure, at once or later, on this thread or another. Cheap
/// to clone.
pub trait Backend: Clone + Send + Sync + 'static {
    /// Runs one operation.
    fn run(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static);

    /// Runs a write that may be answered short.
    fn run_in_part(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static);

    /// Runs a request of several operations. `attempt` makes them by [`Backend::call`] with the
    /// context that it is given; it answers the request, or returns its state when it would have to
    /// wait, and is then repeated where it may. `like`: the operation as which it is accounted for.
    /// `bytes`: what counts against a ceiling.
    fn run_all<R: Send + 'static>(
        &self,
        ctx: Ctx,
        like: (Op<'static>, u64),
        request: R,
        attempt: impl Fn(&Ctx, R) -> Attempt<R> + Send + 'static,
    );

    /// Runs one operation on this thread, now: for what [`Backend::run_all`] attempts.
    ///
    /// # Errors
    /// Those of the operation.
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply>;

    /// Returns references on an inode.
    fn forget(&self, ctx: Ctx, node: NodeId, count: u64);

    /// Returns references on many inodes.
    fn forget_all(&self, ctx: Ctx, all: &[(NodeId, u64)]);

    /// From now on tells `watcher` of changes that did not come through its own front end.
    fn watch(&self, watcher: Arc<dyn Watcher>);

    /// How long the front end may keep names that it is told.
    fn keep_names(&self) -> Duration;

    /// How long the front end may keep attributes of an inode that it is told now. Zero: it keeps
    /// none, and no content either.
    fn keep_attr(&self, node: NodeId) -> Duration;

    /// The same for attributes that come with a name.
    fn keep_entry(&self, node: NodeId) -> Duration {
        self.keep_attr(node)
    }

    /// Whether a request may wait for a machine that does not answer, so that whoever asks must be
    /// able to give up.
    fn is_remote(&self) -> bool;

    /// Whether rights are checked behind this, with each operation, and by [`Backend::permit`]: the
    /// kernel does not know its users' numbers there and is not to check any. To be asked once, by
    /// a front end that heeds it.
    fn checks_rights(&self) -> bool {
        false
    }

    /// Finds out whether a user may do this with an inode, bits of [`leeward_fs::rights`]: where
    /// [`Backend::checks_rights`], before a file or directory is opened.
    ///
    /// # Errors
    /// [`leeward_fs::Error::Access`], and those of finding it out.
    fn permit(&self, _ctx: Ctx, _node: NodeId, _want: u32, answer: impl FnOnce(Result<()>) + Send + 'static) {
        answer(Ok(()));
    }

    /// Locks of programs that hold on all machines; `None`: only this mount has the cell, and the
    /// kernel's own locks do. For one front end.
    fn locks(&self) -> Option<Arc<dyn LockService>>;

    /// Threads that a front end needs to read requests.
    fn reading_threads(&self) -> usize;

    /// The same for threads each of which reads requests of its own between turns: it runs what is
    /// queued one at a time, by [`Backend::take_turn`].
    fn with_turns_asked_for(&self) -> Self;

    /// The same for operations that begin where another one is answered, which may be on any
    /// thread.
    fn with_turns_elsewhere(&self) -> Self;

    /// Whether something is queued for [`Backend::take_turn`].
    fn has_turns(&self) -> bool;

    /// Runs one operation that is queued, if it may begin; else false.
    fn take_turn(&self) -> bool;
}

impl Backend for Gate {
    fn run(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        Gate::run(self, ctx, op, answer);
    }

    fn run_in_part(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        Gate::run_in_part(self, ctx, op, answer);
    }

    fn run_all<R: Send + 'static>(
        &self,
        ctx: Ctx,
        like: (Op<'static>, u64),
        request: R,
        attempt: impl Fn(&Ctx, R) -> Attempt<R> + Send + 'static,
    ) {
        Gate::run_all(self, ctx, like, request, attempt);
    }

    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        Gate::call(self, ctx, op)
    }

    fn forget(&self, ctx: Ctx, node: NodeId, count: u64) {
        Gate::forget(self, ctx, node, count);
    }

    fn forget_all(&self, ctx: Ctx, all: &[(NodeId, u64)]) {
        Gate::forget_all(self, ctx, all);
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.fs().watch(watcher);
    }

    fn keep_names(&self) -> Duration {
        KEEP_IN_PROCESS
    }

    fn keep_attr(&self, _: NodeId) -> Duration {
        KEEP_IN_PROCESS
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn locks(&self) -> Option<Arc<dyn LockService>> {
        Gate::locks(self).map(|table| Arc::new(OwnMount::new(table)) as Arc<dyn LockService>)
    }

    fn reading_threads(&self) -> usize {
        Gate::reading_threads(self)
    }

    fn with_turns_asked_for(&self) -> Gate {
        Gate::with_turns_asked_for(self)
    }

    fn with_turns_elsewhere(&self) -> Gate {
        Gate::with_turns_elsewhere(self)
    }

    fn has_turns(&self) -> bool {
        Gate::has_turns(self)
    }

    fn take_turn(&self) -> bool {
        Gate::take_turn(self)
    }
}
