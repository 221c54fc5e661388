//! The log of failures that are caused by us or the store, not by a caller.

use leeward_env::{Ctx, Env};
use leeward_fs::{Error, Op};
use std::sync::atomic::{AtomicU64, Ordering};

/// Failures that are logged in one second; a damaged store would otherwise fill the log.
const LOGGED_PER_SEC_MAX: u64 = 10;

/// Logs failures that are caused by us or the store, not by a caller.
pub(super) struct FailureLog {
    env: Env,
    second: AtomicU64,
    count: AtomicU64,
}

impl FailureLog {
    pub(super) fn new(env: &Env) -> FailureLog {
        FailureLog { env: env.clone(), second: AtomicU64::new(0), count: AtomicU64::new(0) }
    }

    pub(super) fn failure(&self, ctx: &Ctx, op: &Op<'_>, e: &Error) {
        let second = self.env.now() / 1_000_000_000;
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        if self.count.fetch_add(1, Ordering::Relaxed) < LOGGED_PER_SEC_MAX {
            tracing::error!(operation = %Summary(op), uid = ctx.uid, "{e}");
        }
    }
}

/// An operation for the log: everything but the data.
struct Summary<'a>(&'a Op<'a>);

impl std::fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Op::Write { node, offset, data } => write!(f, "Write {node:?} at {offset} len {}", data.len()),
            Op::Append { node, data } => write!(f, "Append {node:?} len {}", data.len()),
            Op::SetXattr { node, name, value, .. } => {
                write!(f, "SetXattr {node:?} {} len {}", name.escape_ascii(), value.len())
            }
            Op::Lookup { dir, name } => write!(f, "Lookup {dir:?}/{}", name.escape_ascii()),
            op => write!(f, "{op:?}"),
        }
    }
}
