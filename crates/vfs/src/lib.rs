//! What front ends talk to: the [`Fs`] trait (a cell in this process; later a remote one over the wire).

use leeward_env::Ctx;
use leeward_volume::{NodeId, Op, Reply, Result};

/// A file system. Calls may come from several threads at once.
///
/// With [`leeward_env::Wait::Never`] in the context a call answers `Error::WouldBlock`, with no effect, where it would wait for a
/// store, a commit or a budget; the front end then repeats it on a thread that may wait.
pub trait Fs: Send + Sync + 'static {
    /// Runs one operation.
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply>;

    /// Registers who wants to hear of changes that did not come through this front end (another door, an operator):
    /// the front end drops what it caches of them.
    fn watch(&self, watcher: std::sync::Arc<dyn Watcher>);
}

/// Hears of changes that a front end must drop from its caches. Called without locks held; must not call back.
pub trait Watcher: Send + Sync {
    /// The name in this directory changed.
    fn entry_changed(&self, dir: NodeId, name: &[u8]);
    /// Attributes or content of this inode changed.
    fn inode_changed(&self, node: NodeId);
}
