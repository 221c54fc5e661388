//! The vocabulary of the file system, for everybody who asks it (doors, the gate) or answers (a cell): requests, replies, errors, and
//! the trait between them.
//!
//! * [`Op`], [`Reply`], [`Error`]: what is asked and answered. [`NodeId`], [`Attr`]: what they are about.
//! * [`Fs`]: takes a request and answers it. [`Watcher`]: hears of changes. [`Engine`]: an [`Fs`] with background work of its own.
//! * [`accounts`], [`flows`], [`uploads`], [`buckets`]: records and rules that engine and doors share.
//!
//! Everything is passed by value: what asks need not be in the process of what answers, but for an [`Engine`] and its gate.

pub mod accounts;
mod args;
mod attr;
pub mod buckets;
mod engine;
mod error;
pub mod flows;
mod node;
mod op;
mod reply;
pub mod uploads;

pub use args::{Allocate, Make, Over, RenameMode, Seek, XattrMode};
pub use attr::{Attr, Kind, SetAttr, SetTime, Time};
pub use engine::{Engine, Turns};
pub use error::{Error, Result};
pub use node::{DIRECTORIES_FIRST, INHERITED, NodeId, VIEW_END, VIEW_FIRST};
pub use op::{Change, Effect, Op};
pub use reply::{Entry, Reply, StatFs, Usage};

use leeward_env::Ctx;
use std::sync::Arc;

/// A file system. Calls may come from several threads at once.
///
/// With [`leeward_env::Wait::Never`] in the context a call answers [`Error::WouldBlock`], with no effect, where it would
/// wait for a store, a commit or a budget; the front end then repeats it on a thread that may wait.
pub trait Fs: Send + Sync + 'static {
    /// Runs one operation.
    ///
    /// # Errors
    /// Those of the operation; [`Error::WouldBlock`].
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply>;

    /// Registers who wants to hear of changes that did not come through its own front end (an operator's, another
    /// door's): the front end drops what it caches of them.
    fn watch(&self, watcher: Arc<dyn Watcher>);
}

/// Hears of changes that a front end must drop from its caches. Called without locks held; must not call back.
pub trait Watcher: Send + Sync {
    /// The name in this directory changed.
    fn entry_changed(&self, dir: NodeId, name: &[u8]);
    /// Attributes or content of this inode changed.
    fn inode_changed(&self, node: NodeId);
    /// Returns when what was said before has had its effect, or after a second: who must take note may be waiting for us.
    fn wait_heard(&self);
}
