//! Snapshots of the model: clones of all its inodes (which share their content), as directories
//! below `.snap`.
//!
//! An inode in a snapshot has the number of the live inode with the snapshot's above bit 40, so all
//! code that reads an inode reads snapshots, too. A directory's `.snap` has the directory's number
//! with the top bit set. Neither can be changed, except that making, removing and renaming
//! directories in a `.snap` takes, removes and renames snapshots.

use crate::model::{Model, Nodes};
use crate::node::{Body, Ino, Name, Node};
use crate::step::SNAP_DIR;
use leeward_env::{Ctx, limits};
use leeward_fs::{Attr, Effect, Error, InodeFlags, Make, NodeId, Op, RenameMode, Reply, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a snapshot, from 1; never used again.
pub type View = u64;

const VIEW_SHIFT: u32 = 40;
const SNAP_DIR_BIT: Ino = 1 << 63;

/// The tree that an inode is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// In the live tree.
    Live,
    /// In this snapshot.
    In(View),
    /// It is the `.snap` of this directory.
    SnapDirOf(Ino),
}

/// The tree that an inode is in.
pub fn place(ino: Ino) -> Namespace {
    match ino >> VIEW_SHIFT {
        0 => Namespace::Live,
        _ if ino & SNAP_DIR_BIT != 0 => Namespace::SnapDirOf(ino & !SNAP_DIR_BIT),
        view => Namespace::In(view),
    }
}

/// The number of an entry of `dir` in the tree that `dir` is in; in a `.snap` each entry has its
/// own.
pub fn same_tree(dir: Ino, entry: Ino) -> Ino {
    match place(dir) {
        Namespace::SnapDirOf(_) => entry,
        _ => dir >> VIEW_SHIFT << VIEW_SHIFT | entry,
    }
}

/// The number of a directory's `.snap`.
pub fn snap_dir_of(dir: Ino) -> Ino {
    dir | SNAP_DIR_BIT
}

fn live_number(ino: Ino) -> Ino {
    ino & ((1 << VIEW_SHIFT) - 1)
}

/// What the system under test showed when a snapshot was taken.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Its number of the directory, which names of inherited snapshots end in.
    pub number: u64,
    /// The attributes of what was in it, exactly: so they must stay.
    pub attrs: BTreeMap<Ino, Attr>,
}

/// One snapshot.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The live directory it was taken of.
    pub dir: Ino,
    /// Its name there.
    pub name: Name,
    nodes: Nodes,
    shown: Arc<Shown>,
}

/// All snapshots.
#[derive(Clone, Debug, Default)]
pub struct Snapshots {
    all: BTreeMap<View, Snapshot>,
    last: View,
}

impl Snapshots {
    /// An inode in a snapshot.
    pub fn node(&self, view: View, ino: Ino) -> Result<&Node> {
        let snapshot = self.all.get(&view).ok_or(Error::Stale)?;
        snapshot.nodes.get(&live_number(ino)).map(|n| &**n).ok_or(Error::Stale)
    }
}

/// Queries of tests.
impl Model {
    /// All snapshots in the order in which they were taken.
    pub fn snapshots(&self) -> impl Iterator<Item = (View, &Snapshot)> {
        self.snapshots.all.iter().map(|(&view, snapshot)| (view, snapshot))
    }

    /// The root of a snapshot.
    pub fn snapshot_root(&self, view: View) -> Option<Ino> {
        Some(view << VIEW_SHIFT | self.snapshots.all.get(&view)?.dir)
    }

    /// An inode, `.snap` directories included.
    pub fn inode(&self, ino: Ino) -> Result<Cow<'_, Node>> {
        match place(ino) {
            Namespace::SnapDirOf(dir) => self.snap_dir(dir).map(Cow::Owned),
            _ => self.node(ino).map(Cow::Borrowed),
        }
    }

    /// What `..` in this directory leads to.
    pub fn parent(&self, dir: Ino) -> Result<Ino> {
        match (place(dir), &self.inode(dir)?.body) {
            (Namespace::In(view), _) if self.snapshot_root(view) == Some(dir) => {
                Ok(snap_dir_of(live_number(dir)))
            }
            (Namespace::SnapDirOf(dir), _) => Ok(dir),
            (_, Body::Dir { parent, .. }) => Ok(same_tree(dir, *parent)),
            _ => Err(Error::NotDir),
        }
    }

    /// Notes what the system under test showed when the snapshot was taken.
    pub fn note_shown(&mut self, view: View, shown: Shown) {
        if let Some(snapshot) = self.snapshots.all.get_mut(&view) {
            snapshot.shown = Arc::new(shown);
        }
    }

    /// The attributes that an inode in a snapshot must have, where they were noted; the number is
    /// the live inode's.
    pub fn shown(&self, ino: Ino) -> Option<&Attr> {
        let Namespace::In(view) = place(ino) else { return None };
        self.snapshots.all.get(&view)?.shown.attrs.get(&live_number(ino))
    }

    /// Drops a snapshot, as a crash does with one that was not durable.
    pub fn drop_snapshot(&mut self, view: View) {
        self.snapshots.all.remove(&view);
    }

    /// Whether snapshots were taken of this directory.
    pub fn has_snapshots(&self, dir: Ino) -> bool {
        self.snapshots.all.values().any(|s| s.dir == dir)
    }

    /// The entries of `.snap` of a live directory: its own snapshots, and those of directories
    /// above that contained it then.
    pub fn snap_entries(&self, dir: Ino) -> BTreeMap<Name, Ino> {
        let all = self.snapshots.all.iter().filter_map(|(view, s)| {
            let then = view << VIEW_SHIFT | dir;
            let inherited = || {
                let now = self.is_inside(dir, s.dir).unwrap_or(false);
                now && self.is_inside(then, same_tree(then, s.dir)).unwrap_or(false)
            };
            match s.dir == dir {
                true => Some((s.name.clone(), then)),
                false => inherited().then(|| (inherited_name(s), then)),
            }
        });
        all.collect()
    }

    fn snap_dir(&self, dir: Ino) -> Result<Node> {
        let of = self.node(dir)?;
        of.entries()?;
        if of.names == 0 {
            return Err(Error::NotFound);
        }
        let body = Body::Dir { entries: self.snap_entries(dir), parent: dir };
        Ok(Node {
            mode: 0o777,
            names: 1,
            subdirs: 0,
            refs: 0,
            flags: InodeFlags::default(),
            xattrs: BTreeMap::new(),
            body,
            ..of.clone()
        })
    }
}

fn inherited_name(snapshot: &Snapshot) -> Name {
    [b"_", &*snapshot.name, format!("_{}", snapshot.shown.number).as_bytes()].concat().into()
}

fn is_inherited(name: &[u8]) -> bool {
    name.starts_with(b"_")
}

/// Operations.
impl Model {
    /// Answers operations on snapshots; `None`: as in the live tree.
    pub(crate) fn snapshot_op(&mut self, ctx: &Ctx, op: &Op<'_>) -> Option<Result<Reply>> {
        match *op {
            Op::Rename { from_dir, from_name, to_dir, to_name, mode } => {
                self.rename_with_snapshots(ctx, (from_dir.0, from_name), (to_dir.0, to_name), mode)
            }
            Op::Link { node, dir, name } => self.link_with_snapshots(node.0, dir.0, name),
            _ => {
                let ino = subject(op)?;
                match place(ino) {
                    Namespace::Live => self.on_name(ino, op),
                    Namespace::In(_) => self.in_snapshot(ino, op),
                    Namespace::SnapDirOf(dir) => Some(self.in_snap_dir(ctx, dir, op)),
                }
            }
        }
    }

    /// The name `.snap` in live directories.
    fn on_name(&self, dir: Ino, op: &Op<'_>) -> Option<Result<Reply>> {
        let name = match *op {
            Op::Lookup { name, .. }
            | Op::Make { name, .. }
            | Op::Place { name, .. }
            | Op::Unlink { name, .. }
            | Op::RmDir { name, .. } => name,
            _ => return None,
        };
        if name != SNAP_DIR || self.node(dir).and_then(Node::entries).is_err() {
            return None;
        }
        Some(match op {
            Op::Place { node, .. } if place(node.0) != Namespace::Live => Err(Error::CrossVolume),
            Op::Lookup { .. } => self.attr_reply(snap_dir_of(dir)),
            Op::Make { .. } | Op::Place { .. } => Err(Error::Exists),
            _ => Err(Error::NotPermitted),
        })
    }

    fn in_snapshot(&self, ino: Ino, op: &Op<'_>) -> Option<Result<Reply>> {
        match op {
            Op::Forget { .. } => Some(Ok(Reply::Done)),
            _ if self.node(ino).is_err() => Some(Err(Error::Stale)),
            op if changes(op) => Some(Err(Error::ReadOnly)),
            _ => None,
        }
    }

    fn in_snap_dir(&mut self, ctx: &Ctx, dir: Ino, op: &Op<'_>) -> Result<Reply> {
        let snap_dir = self.snap_dir(dir)?;
        match *op {
            Op::Lookup { name: b"..", .. } => self.attr_reply(dir),
            Op::Lookup { name, .. } => {
                let root = *snap_dir.entries()?.get(name).ok_or(Error::NotFound)?;
                self.attr_reply(root)
            }
            Op::GetAttr { .. } => self.attr_reply(snap_dir_of(dir)),
            Op::List { after, limit, attrs, .. } => self.list(ctx, snap_dir_of(dir), after, limit, attrs),
            Op::Make { name, make, .. } => self.take_snapshot(ctx, dir, name, make),
            Op::RmDir { name, .. } => self.remove_snapshot(ctx, dir, name),
            Op::Unlink { .. } => Err(Error::IsDir),
            Op::Fsync { .. } | Op::Forget { .. } => Ok(Reply::Done),
            Op::ListXattr { .. } => Ok(Reply::Names(Vec::new())),
            Op::GetXattr { .. } => Err(Error::NoData),
            Op::ReadLink { .. } => Err(Error::Invalid),
            Op::Read { .. } | Op::SeekTo { .. } => Err(Error::IsDir),
            Op::StatFs { .. } => Ok(Reply::StatFs(Default::default())),
            _ => Err(Error::ReadOnly),
        }
    }

    /// Whether the caller is root or the owner of the volume.
    fn may_change_snapshots(&self, ctx: &Ctx) -> Result<()> {
        if ctx.uid == 0 || ctx.uid == self.owner { Ok(()) } else { Err(Error::NotPermitted) }
    }

    fn new_snapshot_name(&self, dir: Ino, name: &[u8]) -> Result<()> {
        if name.len() > limits::SNAPSHOT_NAME_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if is_inherited(name) || name == SNAP_DIR {
            return Err(Error::Invalid);
        }
        if self.snap_entries(dir).contains_key(name) { Err(Error::Exists) } else { Ok(()) }
    }

    fn take_snapshot(&mut self, ctx: &Ctx, dir: Ino, name: &[u8], make: Make<'_>) -> Result<Reply> {
        if make != Make::Dir {
            return Err(Error::ReadOnly);
        }
        self.may_change_snapshots(ctx)?;
        self.new_snapshot_name(dir, name)?;
        self.snapshots.last += 1;
        let view = self.snapshots.last;
        let shown = Arc::new(Shown { number: dir, attrs: BTreeMap::new() });
        let snapshot = Snapshot { dir, name: name.into(), nodes: self.nodes.clone(), shown };
        self.snapshots.all.insert(view, snapshot);
        self.attr_reply(view << VIEW_SHIFT | dir)
    }

    /// A snapshot of `dir` that may be removed or renamed.
    fn own_snapshot(&self, ctx: &Ctx, dir: Ino, name: &[u8]) -> Result<(View, Ino)> {
        let root = *self.snap_entries(dir).get(name).ok_or(Error::NotFound)?;
        if is_inherited(name) {
            return Err(Error::NotPermitted);
        }
        self.may_change_snapshots(ctx)?;
        match place(root) {
            Namespace::In(view) => Ok((view, root)),
            _ => Err(Error::NotFound),
        }
    }

    fn remove_snapshot(&mut self, ctx: &Ctx, dir: Ino, name: &[u8]) -> Result<Reply> {
        let (view, root) = self.own_snapshot(ctx, dir, name)?;
        self.drop_snapshot(view);
        Ok(Reply::Removed { node: NodeId(root), nlink: 0 })
    }

    fn rename_snapshot(
        &mut self,
        ctx: &Ctx,
        dir: Ino,
        (from, to): (&[u8], &[u8]),
        mode: RenameMode,
    ) -> Result<Reply> {
        if mode == RenameMode::Exchange {
            return Err(Error::Invalid);
        }
        let (view, _) = self.own_snapshot(ctx, dir, from)?;
        self.new_snapshot_name(dir, to)?;
        if let Some(snapshot) = self.snapshots.all.get_mut(&view) {
            snapshot.name = to.into();
        }
        Ok(Reply::Done)
    }

    fn rename_with_snapshots(
        &mut self,
        ctx: &Ctx,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Option<Result<Reply>> {
        let known = self.inode(from.0).and(self.inode(to.0)).map(drop);
        match (place(from.0), place(to.0)) {
            (Namespace::Live, Namespace::Live) => {
                let dirs = [from.0, to.0].iter().all(|ino| self.node(*ino).is_ok_and(Node::is_dir));
                let named = from.1 == SNAP_DIR || to.1 == SNAP_DIR;
                (dirs && named).then_some(Err(Error::NotPermitted))
            }
            _ if known.is_err() => Some(Err(Error::Stale)),
            (Namespace::SnapDirOf(a), Namespace::SnapDirOf(b)) if a == b || mode == RenameMode::Exchange => {
                Some(self.rename_snapshot(ctx, a, (from.1, to.1), mode))
            }
            (Namespace::In(a), Namespace::In(b)) if a == b => Some(Err(Error::ReadOnly)),
            _ => Some(Err(Error::CrossVolume)),
        }
    }

    fn link_with_snapshots(&self, ino: Ino, dir: Ino, name: &[u8]) -> Option<Result<Reply>> {
        let known = self.inode(ino).and(self.inode(dir)).map(drop);
        match (place(ino), place(dir)) {
            (Namespace::Live, Namespace::Live) => {
                (name == SNAP_DIR && self.node(dir).is_ok_and(Node::is_dir)).then_some(Err(Error::Exists))
            }
            (_, Namespace::In(_) | Namespace::SnapDirOf(_)) => Some(Err(Error::ReadOnly)),
            _ if known.is_err() => Some(Err(Error::Stale)),
            _ => Some(match self.vacant(dir, name) {
                Err(e) if e != Error::Exists => Err(e),
                _ => Err(Error::CrossVolume),
            }),
        }
    }
}

/// The inode that an operation changes or reads: of two, the one that it changes.
fn subject(op: &Op<'_>) -> Option<Ino> {
    match *op {
        Op::Link { .. } | Op::Rename { .. } => None,
        Op::Forget { node, .. } => Some(node.0),
        _ => op.node().map(|node| node.0),
    }
}

fn changes(op: &Op<'_>) -> bool {
    matches!(op.effect(), Effect::Changes | Effect::Grows)
}
