//! The vocabulary of the file system, for callers (doors, the gate) and for cells, which answer
//! them: requests, replies, errors, and the trait between them.
//!
//! * [`Op`], [`Reply`], [`Error`]: requests and answers. [`NodeId`], [`Attr`]: what they are about.
//! * [`Fs`] takes a request and answers it. [`Watcher`] is told of changes. [`Engine`] is an [`Fs`]
//!   that also works in the background.
//! * [`codec`]: requests and replies as bytes, for other machines.
//! * [`accounts`], [`groups`], [`flows`], [`uploads`], [`buckets`]: records and rules that cell and
//!   doors share. [`invitation`]: the token by which a machine becomes a host of a cell.
//! * [`leases`]: what clients on other machines may keep copies of.
//! * [`locks`]: locks that programs take on files.
//! * [`rights`]: what a user may do with an inode, for all who check that in place of a kernel.
//! * [`shards`]: which part of a cell answers an operation.
//! * [`sessions`]: what an engine keeps of sessions of clients, so that they survive its process.
//!
//! Requests and replies are values: caller and file system may be in different processes. Only an
//! [`Engine`] and its gate are always in one.

pub mod accounts;
mod args;
mod attr;
pub mod buckets;
pub mod codec;
mod engine;
mod error;
pub mod flows;
pub mod groups;
pub mod invitation;
pub mod leases;
pub mod locks;
mod node;
mod op;
mod reply;
pub mod rights;
pub mod sessions;
pub mod shards;
pub mod uploads;

pub use args::{Allocate, Make, Precondition, RenameMode, Seek, XattrMode};
pub use attr::{Attr, InodeFlags, Kind, SetAttr, SetTime, Time};
pub use engine::{Engine, Turns};
pub use error::{Error, Result};
pub use node::{
    DIRECTORIES_FIRST, INHERITED, NodeId, SHARDS_MAX, VIEW_END, VIEW_FIRST, VIEWS_OF_SHARD, VOLUMES_OF_SHARD,
};
pub use op::{Change, Effect, Op};
pub use reply::{Entry, Reply, StatFs, Usage};

use leeward_env::Ctx;
use std::sync::Arc;

/// A file system. Calls may come from several threads at once.
///
/// With [`leeward_env::Wait::Never`] in the context, a call that would wait for a store, a commit
/// or a budget answers [`Error::WouldBlock`] and has no effect. The front end then repeats it on a
/// thread that may wait.
pub trait Fs: Send + Sync + 'static {
    /// Runs one operation.
    ///
    /// # Errors
    /// Those of the operation; [`Error::WouldBlock`].
    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply>;

    /// From now on tells `watcher` of changes that did not come through its own front end but from
    /// an operator or another door.
    fn watch(&self, watcher: Arc<dyn Watcher>);

    /// Whether watchers were told of changes and have not said yet that they have dropped them.
    fn is_invalidating(&self) -> bool;

    /// Returns when all watchers have dropped what they were told of before, or after a second.
    fn wait_invalidated(&self);
}

/// Is told of changes that a front end must drop from its caches. The file system calls it without
/// holding locks; it must not call back.
pub trait Watcher: Send + Sync {
    /// The name in this directory changed.
    fn entry_changed(&self, dir: NodeId, name: &[u8]);
    /// Attributes or content of this inode changed.
    fn inode_changed(&self, node: NodeId);
    /// Attributes of this inode changed: it is dropped when this returns. Waits for nothing.
    fn attributes_changed(&self, node: NodeId);
    /// Returns when the front end has dropped everything that it was told of before, or after a
    /// second: the front end may be waiting for us.
    fn wait_applied(&self);
}
