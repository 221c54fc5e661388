//! Runs operations: at once where they do not wait, else on the pool with their bytes and their reply moved along.
//!
//! Called by `door` and `listing` on the kernel's threads. A panic in the file system becomes an error here.

use crate::pool::Pool;
use leeward_env::{Ctx, Env, Wait};
use leeward_vfs::{Fs, OwnedOp};
use leeward_volume::{Error, NodeId, Op, Reply, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failures that are logged in one second; a damaged store would otherwise fill the log.
const LOGGED_PER_SEC_MAX: u64 = 10;

/// The file system and the threads that may wait for it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Carrier {
    fs: Arc<dyn Fs>,
    pool: Pool,
    log: Arc<FailureLog>,
}

impl Carrier {
    pub(crate) fn new(fs: Arc<dyn Fs>, env: &Env) -> Carrier {
        let log = FailureLog { env: env.clone(), second: AtomicU64::new(0), count: AtomicU64::new(0) };
        Carrier { fs, pool: Pool::new(env), log: Arc::new(log) }
    }

    /// Runs one operation on this thread.
    pub(crate) fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let result = catch_unwind(AssertUnwindSafe(|| self.fs.call(ctx, op)))
            .unwrap_or_else(|panic| Err(Error::Io(format!("panic: {}", panic_text(&*panic)))));
        if let Err(e @ (Error::Io(_) | Error::Corrupt(_))) = &result {
            self.log.failure(ctx, &op, e);
        }
        result
    }

    /// Runs one operation and answers it, here or, where it would wait, on the pool.
    pub(crate) fn run(&self, ctx: Ctx, op: Op<'_>, answer: impl FnOnce(Result<Reply>) + Send + 'static) {
        match self.call(&ctx.with_wait(Wait::Never), op) {
            Err(Error::WouldBlock) => self.run_waiting(ctx, op, answer),
            result => answer(result),
        }
    }

    /// Runs one operation that waits by its nature on the pool.
    pub(crate) fn run_waiting(
        &self,
        ctx: Ctx,
        op: Op<'_>,
        answer: impl FnOnce(Result<Reply>) + Send + 'static,
    ) {
        let (this, op) = (self.clone(), OwnedOp::from(op));
        self.submit(ctx, move |ctx| answer(this.call(ctx, op.as_op())));
    }

    /// Gives a thread that may wait to a job.
    pub(crate) fn submit(&self, ctx: Ctx, job: impl FnOnce(&Ctx) + Send + 'static) {
        let ctx = ctx.with_wait(Wait::Allowed);
        self.pool.submit(ctx.flow, move || job(&ctx));
    }

    /// Gives references back.
    pub(crate) fn forget(&self, ctx: Ctx, node: NodeId, count: u64) {
        self.run(ctx, Op::Forget { node, count }, |_| ());
    }
}

/// Where failures that are nobody's fault but ours or the store's are told.
struct FailureLog {
    env: Env,
    second: AtomicU64,
    count: AtomicU64,
}

impl FailureLog {
    fn failure(&self, ctx: &Ctx, op: &Op<'_>, e: &Error) {
        let second = self.env.now() / 1_000_000_000;
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        if self.count.fetch_add(1, Ordering::Relaxed) < LOGGED_PER_SEC_MAX {
            tracing::error!(operation = %Summary(op), uid = ctx.uid, "{e}");
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// An operation for the log: everything but the data.
struct Summary<'a>(&'a Op<'a>);

impl std::fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Op::Write { node, offset, data } => write!(f, "Write {node:?} at {offset} len {}", data.len()),
            Op::SetXattr { node, name, value, .. } => {
                write!(f, "SetXattr {node:?} {} len {}", name.escape_ascii(), value.len())
            }
            Op::Lookup { dir, name } => write!(f, "Lookup {dir:?}/{}", name.escape_ascii()),
            op => write!(f, "{op:?}"),
        }
    }
}
