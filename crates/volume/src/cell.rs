//! A cell: one installation on one directory.

use crate::admin::{Failure, Progress, Reply as AdminReply, Request};
use crate::{Config, Op, Reply, Result};
use leeward_env::{Ctx, Env};
use std::path::Path;
use std::sync::Arc;

/// A running cell. Holding the directory exclusively is the caller's business (`lee` takes a lock file).
pub struct Cell {}

impl Cell {
    /// Makes a new cell in an existing, empty directory (files named `leeward.toml`, `lock` and `control.sock` are
    /// the caller's and do not count).
    pub fn create(_env: &Env, _dir: &Path, _config: &Config) -> std::result::Result<(), Failure> {
        Err(Failure { message: String::new(), errno: libc::ENOSYS })
    }

    /// Whether the directory holds a cell.
    pub fn exists(_dir: &Path) -> bool {
        false
    }

    /// Opens a cell and starts its threads.
    pub fn open(_env: &Env, _dir: &Path, _config: &Config) -> std::result::Result<Arc<Cell>, Failure> {
        Err(Failure { message: String::new(), errno: libc::ENOSYS })
    }

    /// Runs one operation.
    pub fn call(&self, _ctx: &Ctx, _op: Op<'_>) -> Result<Reply> {
        Err(crate::Error::NotSupported)
    }

    /// Runs an operator's request.
    pub fn admin(
        &self,
        _request: &Request,
        _progress: &mut dyn FnMut(Progress),
    ) -> std::result::Result<AdminReply, Failure> {
        Err(Failure { message: String::new(), errno: libc::ENOSYS })
    }

    /// Tells `watcher` of changes that no front end asked for (an operator's).
    pub fn watch(&self, _watcher: Arc<dyn Watcher>) {}

    /// Makes everything durable and ends the threads. Later calls fail. Idempotent.
    pub fn close(&self) -> std::result::Result<(), Failure> {
        Ok(())
    }
}

/// Hears of changes that a front end must drop from its caches. Called without locks held; must not call back.
pub trait Watcher: Send + Sync {
    /// The name in this directory changed.
    fn entry_changed(&self, dir: crate::NodeId, name: &[u8]);
    /// Attributes or content of this inode changed.
    fn inode_changed(&self, node: crate::NodeId);
}
