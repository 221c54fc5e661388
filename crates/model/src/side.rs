//! Runs a step on one side: resolves its paths by Lookup, name by name, and calls the operation.
//! Both sides take exactly the same route, each with its own inode numbers.

use crate::model::Model;
use crate::step::{Act, New, Path, Step, Where};
use leeward_env::Ctx;
use leeward_fs::{Attr, Error, Make, NodeId, Op, Precondition, Reply, Result, SetAttr, SetTime};
use std::collections::BTreeMap;

/// Takes operations.
pub trait Caller {
    /// Runs one operation.
    fn call(&mut self, ctx: &Ctx, op: Op<'_>) -> Result<Reply>;
}

impl Caller for Model {
    fn call(&mut self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        self.apply(ctx, &op)
    }
}

/// The references that [`Act::Hold`] took, on one side.
#[derive(Clone, Debug, Default)]
pub struct Slots(pub BTreeMap<u8, NodeId>);

/// The caller's context: `uid` is its group, too.
pub fn ctx_of(uid: u32) -> Ctx {
    Ctx::user(uid, uid)
}

/// One side of a comparison.
pub struct Side<'a> {
    /// The file system.
    pub fs: &'a mut dyn Caller,
    /// Its root directory.
    pub root: NodeId,
    /// Its references.
    pub slots: &'a mut Slots,
}

impl Side<'_> {
    /// Runs a step. [`Act::Advance`], [`Act::Quota`], [`Act::MoveData`] and [`Act::Reopen`] do
    /// nothing here: the caller does them.
    pub fn perform(&mut self, step: &Step) -> Result<Reply> {
        let ctx = &ctx_of(step.uid);
        match &step.act {
            Act::Make { path, new, mode, umask } => {
                let make = match new {
                    New::File => Make::File,
                    New::Dir => Make::Dir,
                    New::Fifo => Make::Fifo,
                    New::Socket => Make::Socket,
                    New::CharDev(rdev) => Make::CharDev(*rdev),
                    New::Symlink(target) => Make::Symlink(target),
                };
                let (dir, name) = self.parent(path)?;
                self.fs.call(ctx, Op::Make { dir, name, make, mode: *mode, umask: *umask })
            }
            Act::Link { from, to } => {
                let node = self.find(from)?;
                let (dir, name) = self.parent(to)?;
                self.fs.call(ctx, Op::Link { node, dir, name })
            }
            Act::Unlink(path) => {
                let (dir, name) = self.parent(path)?;
                self.fs.call(ctx, Op::Unlink { dir, name, over: Precondition::Any })
            }
            Act::RmDir(path) => {
                let (dir, name) = self.parent(path)?;
                self.fs.call(ctx, Op::RmDir { dir, name })
            }
            Act::Rename { from, to, mode } => {
                let (from_dir, from_name) = self.parent(from)?;
                let (to_dir, to_name) = self.parent(to)?;
                self.fs.call(ctx, Op::Rename { from_dir, from_name, to_dir, to_name, mode: *mode })
            }
            Act::StatFs => self.fs.call(ctx, Op::StatFs { node: self.root }),
            Act::SyncAll => self.fs.call(ctx, Op::SyncAll),
            Act::Hold { slot, path } => self.hold(ctx, *slot, path),
            Act::Release(slot) => self.release(ctx, *slot),
            Act::MakeUnnamed { slot, dir, mode, umask } => {
                let dir = self.walk(dir)?;
                self.keep(ctx, *slot, Op::MakeUnnamed { dir, mode: *mode, umask: *umask, bytes: 0 })
            }
            Act::Place { file, to, over } => {
                let node = self.find(file)?;
                let (dir, name) = self.parent(to)?;
                self.fs.call(ctx, Op::Place { node, dir, name, over: *over })
            }
            Act::Advance { .. } | Act::Quota { .. } | Act::MoveData { .. } | Act::Reopen => Ok(Reply::Done),
            act => self.perform_on_inode(ctx, act),
        }
    }

    fn perform_on_inode(&mut self, ctx: &Ctx, act: &Act) -> Result<Reply> {
        let Some(place) = primary(act) else { return Err(Error::Invalid) };
        let node = self.find(place)?;
        let data;
        let op = match act {
            Act::Write { offset, fill, .. } => {
                data = fill.bytes();
                Op::Write { node, offset: *offset, data: &data }
            }
            Act::Append { fill, .. } => {
                data = fill.bytes();
                Op::Append { node, data: &data }
            }
            Act::Read { offset, len, .. } => Op::Read { node, offset: *offset, len: *len },
            Act::Allocate { offset, len, mode, .. } => {
                Op::Allocate { node, offset: *offset, len: *len, mode: *mode }
            }
            Act::Seek { offset, what, .. } => Op::SeekTo { node, offset: *offset, what: *what },
            Act::Copy { from_offset, to, to_offset, len, .. } => Op::CopyRange {
                from: node,
                from_offset: *from_offset,
                to: self.find(to)?,
                to_offset: *to_offset,
                len: *len,
            },
            Act::ReadLink(_) => Op::ReadLink { node },
            Act::List { after, limit, .. } => {
                Op::List { dir: node, after, limit: *limit as usize, attrs: limit % 2 == 0 }
            }
            Act::GetXattr { name, .. } => Op::GetXattr { node, name },
            Act::ListXattr(_) => Op::ListXattr { node },
            Act::SetXattr { name, fill, mode, .. } => {
                data = fill.bytes();
                Op::SetXattr { node, name, value: &data, mode: *mode }
            }
            Act::RemoveXattr { name, .. } => Op::RemoveXattr { node, name },
            Act::Stat(_) => Op::GetAttr { node },
            Act::Fsync(_) => Op::Fsync { node },
            act => Op::SetAttr { node, set: set_attr(act) },
        };
        self.fs.call(ctx, op)
    }

    fn hold(&mut self, ctx: &Ctx, slot: u8, path: &Path) -> Result<Reply> {
        let (dir, name) = self.parent(path)?;
        self.keep(ctx, slot, Op::Lookup { dir, name })
    }

    /// Takes a reference on the inode that is answered.
    fn keep(&mut self, ctx: &Ctx, slot: u8, op: Op<'_>) -> Result<Reply> {
        let ctx = Ctx { refs: true, ..*ctx };
        let reply = self.fs.call(&ctx, op)?;
        self.release(&ctx, slot)?;
        if let Reply::Attr(attr) = &reply {
            self.slots.0.insert(slot, attr.node);
        }
        Ok(reply)
    }

    fn release(&mut self, ctx: &Ctx, slot: u8) -> Result<Reply> {
        match self.slots.0.remove(&slot) {
            None => Ok(Reply::Done),
            Some(node) => self.fs.call(&Ctx { refs: true, ..*ctx }, Op::Forget { node, count: 1 }),
        }
    }

    /// The inode in question.
    pub fn find(&mut self, place: &Where) -> Result<NodeId> {
        match place {
            Where::Path(path) => self.walk(path),
            Where::Slot(slot) => self.slots.0.get(slot).copied().ok_or(Error::NotFound),
        }
    }

    /// Attributes, where the inode is there.
    pub fn stat(&mut self, node: NodeId) -> Option<Attr> {
        match self.fs.call(&ctx_of(0), Op::GetAttr { node }) {
            Ok(Reply::Attr(attr)) => Some(attr),
            _ => None,
        }
    }

    fn walk(&mut self, path: &Path) -> Result<NodeId> {
        let mut node = self.root;
        for name in &path.0 {
            node = match self.fs.call(&ctx_of(0), Op::Lookup { dir: node, name })? {
                Reply::Attr(attr) => attr.node,
                other => return Err(Error::Io(format!("Lookup answers {other:?}"))),
            };
        }
        Ok(node)
    }

    /// Directory and last name. The root has none: changing its own name is answered as invalid on
    /// both sides.
    fn parent<'p>(&mut self, path: &'p Path) -> Result<(NodeId, &'p [u8])> {
        let (dir, _) = path.split().ok_or(Error::Invalid)?;
        let name = path.0.last().ok_or(Error::Invalid)?;
        Ok((self.walk(&dir)?, name))
    }
}

/// The inode that an operation on an inode works on.
fn primary(act: &Act) -> Option<&Where> {
    match act {
        Act::Write { file, .. }
        | Act::Append { file, .. }
        | Act::Read { file, .. }
        | Act::Truncate { file, .. }
        | Act::Chmod { file, .. }
        | Act::Chown { file, .. }
        | Act::Flags { file, .. }
        | Act::Utimes { file, .. }
        | Act::Allocate { file, .. }
        | Act::Seek { file, .. }
        | Act::Copy { from: file, .. }
        | Act::ReadLink(file)
        | Act::List { dir: file, .. }
        | Act::GetXattr { file, .. }
        | Act::ListXattr(file)
        | Act::SetXattr { file, .. }
        | Act::RemoveXattr { file, .. }
        | Act::Stat(file)
        | Act::Fsync(file) => Some(file),
        _ => None,
    }
}

fn set_attr(act: &Act) -> SetAttr {
    let none = SetAttr::default();
    match act {
        Act::Truncate { size, .. } => SetAttr { size: Some(*size), ..none },
        Act::Chmod { mode, .. } => SetAttr { mode: Some(*mode), ..none },
        Act::Chown { uid, gid, .. } => SetAttr { uid: Some(*uid), gid: Some(*gid), ..none },
        Act::Flags { flags, .. } => SetAttr { flags: Some(*flags), ..none },
        Act::Utimes { to, .. } => {
            let time = Some(to.map_or(SetTime::Now, SetTime::To));
            SetAttr { atime: time, mtime: time, ..none }
        }
        _ => none,
    }
}

/// Every inode whose attributes a step may change, or must not.
pub fn places(act: &Act) -> Vec<Where> {
    let mut out: Vec<Where> = primary(act).cloned().into_iter().collect();
    let paths: Vec<&Path> = match act {
        Act::Make { path, .. } | Act::Unlink(path) | Act::RmDir(path) | Act::Hold { path, .. } => vec![path],
        Act::Rename { from, to, .. } => vec![from, to],
        Act::Link { from: file, to } | Act::Place { file, to, .. } => {
            out.push(file.clone());
            vec![to]
        }
        Act::Copy { to, .. } => {
            out.push(to.clone());
            vec![]
        }
        _ => vec![],
    };
    for path in paths {
        out.push(Where::Path(path.clone()));
        out.extend(path.split().map(|(dir, _)| Where::Path(dir)));
    }
    out
}
