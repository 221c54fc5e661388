//! Brings back a file or a tree from a snapshot.

use crate::admin::failure::about;
use crate::admin::volume::is_copy;
use crate::admin::{Caller, Concerns, Failure, Reply, Request};
use crate::shard::Shard;
use crate::snapshots::restore::Restore;
use leeward_env::Ctx;
use leeward_fs::rights::ACL;
use leeward_fs::{Error, NodeId, Usage};
use serde::{Deserialize, Serialize};

/// Brings back a file or a tree from a snapshot, with progress. No data is copied.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapRestore {
    /// The directory of the snapshot.
    pub path: String,
    /// The snapshot's name there.
    pub name: String,
    /// The path to restore, within the snapshot; empty: all of it.
    pub what: String,
    /// Where to, in the same volume; `None`: where it was.
    pub to: Option<String>,
    /// Whether it replaces what exists there.
    pub in_place: bool,
}

/// How much was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Restored(pub Usage);

impl Reply for Restored {
    const KIND: &'static str = "restored";
}

impl Request for SnapRestore {
    type Reply = Restored;

    fn concerns(&self) -> Concerns<'_> {
        Concerns::Path(&self.path)
    }

    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Restored, Failure> {
        let SnapRestore { path, name, to, in_place, .. } = self;
        let (dir, epoch) = shard.snapshot_at(path, name)?;
        let what = self.what.trim_matches('/');
        let source = shard.transact(&Ctx::system(), |tx| tx.in_snapshot(dir, epoch, what.as_bytes()));
        let source = source.map_err(about(format_args!("{what} in snapshot {name} of {path}")))?;
        let there = format!("{}/{what}", path.trim_end_matches('/'));
        let target = to.as_ref().unwrap_or(&there).trim_end_matches('/');
        let all_of_dir = what.is_empty() && to.is_none();
        if all_of_dir && !in_place {
            let message = format!("{path} is there: add --in-place to replace what is in it, or --to PATH");
            return Err(Failure::new(libc::EEXIST, message));
        }
        let (above, leaf) = target.rsplit_once('/').unwrap_or(("", target));
        let parent = if all_of_dir { dir } else { shard.node_at(above)? };
        if caller.ctx.delegate.is_some() && caller.ctx.uid != 0 {
            let above = what.rsplit_once('/').map_or("", |(above, _)| above);
            let was = shard.transact(&Ctx::system(), |tx| tx.in_snapshot(dir, epoch, above.as_bytes()));
            let was = was.map_err(about(format_args!("{above} in snapshot {name} of {path}")))?;
            if to.is_some() || was.inode() != parent.inode() {
                return Err(not_where_it_was(path, name));
            }
            if !shard.is_as_closed(caller.ctx, was, parent).map_err(about(path))? {
                return Err(more_open(path, name));
            }
        }
        if shard.is_copy(parent.volume()) {
            return Err(is_copy(shard, parent.volume()));
        }
        let restore =
            Restore { source, dir: parent, name: leaf.as_bytes(), in_place: *in_place, keeps: true };
        // nobody keeps or tells anything of the volume meanwhile: its steps tell other machines,
        // and do not wait
        let _recalling = shard.recall_volume(parent.volume());
        let done = shard.restore(&restore, all_of_dir, caller.progress).map_err(|e| refusal(e, target))?;
        shard.settle()?;
        shard.invalidate_entry(parent, leaf.as_bytes());
        shard.invalidate_inode(parent);
        Ok(Restored(done))
    }
}

impl Shard {
    /// Whether nobody gets to a directory who could not when it was as a snapshot shows it (`was`):
    /// it and those above it, up to the volume's root, are the same, and nobody has rights there
    /// that he had not. What is the caller's own he could have opened then.
    fn is_as_closed(&self, ctx: &Ctx, mut was: NodeId, mut is: NodeId) -> leeward_fs::Result<bool> {
        let look = |node| self.transact(&Ctx::system(), |tx| Ok((tx.inode(node)?, tx.xattr(node, ACL)?)));
        loop {
            let ((then, acl_then), (now, acl_now)) = (look(was)?, look(is)?);
            let is_own = [then.uid, now.uid] == [ctx.uid; 2];
            let is_of_same = (then.uid, then.gid, acl_then) == (now.uid, now.gid, acl_now);
            let adds_nothing = is_of_same && now.mode & !then.mode & 0o777 == 0;
            if was.inode() != is.inode() || !(is_own || adds_nothing) {
                return Ok(false);
            }
            if is.inode() == NodeId::ROOT.inode() {
                return Ok(true);
            }
            (was, is) = (NodeId::new(was.volume(), then.parent), NodeId::new(is.volume(), now.parent));
        }
    }
}

/// Where others may read it now who could not then.
fn more_open(path: &str, name: &str) -> Failure {
    let message = format!(
        "the directory that it was in, or one above that, was moved or is open to others than it was in snapshot \
         {name}: close it as it was, or let the owners copy their files, with cp -a, from {path}/.snap/{name}"
    );
    Failure::new(libc::EPERM, message)
}

/// Elsewhere others may read it who may not where it was.
fn not_where_it_was(path: &str, name: &str) -> Failure {
    let message = format!(
        "who looks after a project restores files of others only to the directory that they were in: \
         their owners may copy them, with cp -a, from {path}/.snap/{name}"
    );
    Failure::new(libc::EPERM, message)
}

fn refusal(e: Error, target: &str) -> Failure {
    match e {
        Error::Exists => Failure::new(
            libc::EEXIST,
            format!("{target} is there: add --in-place to replace it, or name another --to PATH"),
        ),
        Error::Busy => Failure::new(
            libc::EBUSY,
            format!(
                "{target} cannot be replaced: snapshots were taken, scheduled, or volumes attached below it; restore with --to PATH"
            ),
        ),
        e => about(target)(e),
    }
}
