//! What a front end asks about locks: of the table in this process, or of a server.

use super::{LockAnswer, LockTable, OWN_MOUNT};
use leeward_env::Ctx;
use leeward_fs::locks::{FileLock, LockOwner, LockRange, LockRequest};
use leeward_fs::{NodeId, Result};
use std::sync::Arc;

/// Locks that hold between machines, for a front end. Requests are answered by closures, at once or
/// later.
pub trait LockService: Send + Sync + 'static {
    /// Takes or converts a lock. `ticket`: the front end's number for it, which no other of its
    /// requests has.
    fn set(&self, ctx: &Ctx, request: LockRequest, ticket: u64, answer: LockAnswer);

    /// Whoever waits with this ticket has a signal. Where the lock is not there yet, the request is
    /// answered [`Error::Interrupted`](leeward_fs::Error::Interrupted), and never gets it.
    fn cancel(&self, ticket: u64);

    /// Gives up what the owner has in a range.
    fn unlock(&self, ctx: &Ctx, node: NodeId, owner: LockOwner, range: LockRange, answer: LockAnswer);

    /// Gives up all that the owner has of a file. It does not wait for a server that is away.
    fn release(&self, node: NodeId, owner: LockOwner, answer: LockAnswer);

    /// Looks for a lock that is in the way.
    fn test(&self, ctx: &Ctx, request: LockRequest, answer: Box<dyn FnOnce(Result<Option<FileLock>>) + Send>);

    /// From now on calls `lost` with what an owner has lost: others may have had it since.
    fn on_lost(&self, lost: Arc<dyn Fn(NodeId, LockOwner) + Send + Sync>);
}

/// The mount of the server itself. When it is dropped, its locks are gone.
pub struct OwnMount(Arc<LockTable>);

impl OwnMount {
    /// For one mount.
    pub fn new(table: Arc<LockTable>) -> OwnMount {
        table.begin_session(OWN_MOUNT);
        OwnMount(table)
    }
}

impl Drop for OwnMount {
    fn drop(&mut self) {
        self.0.end_session(OWN_MOUNT);
    }
}

impl LockService for OwnMount {
    fn set(&self, ctx: &Ctx, request: LockRequest, ticket: u64, answer: LockAnswer) {
        if let Some((answer, result)) = self.0.set((OWN_MOUNT, ctx.uid), &request, ticket, answer) {
            answer(result);
        }
    }

    fn cancel(&self, ticket: u64) {
        self.0.cancel(OWN_MOUNT, ticket);
    }

    fn unlock(&self, _: &Ctx, node: NodeId, owner: LockOwner, range: LockRange, answer: LockAnswer) {
        answer(self.0.unlock(OWN_MOUNT, node, owner, range));
    }

    fn release(&self, node: NodeId, owner: LockOwner, answer: LockAnswer) {
        self.0.release(OWN_MOUNT, node, owner);
        answer(Ok(()));
    }

    fn test(&self, _: &Ctx, request: LockRequest, answer: Box<dyn FnOnce(Result<Option<FileLock>>) + Send>) {
        answer(self.0.test(OWN_MOUNT, &request));
    }

    fn on_lost(&self, _: Arc<dyn Fn(NodeId, LockOwner) + Send + Sync>) {}
}
