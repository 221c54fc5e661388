//! The operations of one request, in its turn at the gate: lookups with the checks that the kernel
//! makes for the mount.
//!
//! Steps run without waiting. When one of them would have to wait, all are run from the beginning
//! again, where they may wait. So a step that changes something comes last, or its caller remembers
//! the change.

use crate::limits::SYMLINKS_MAX;
use crate::path::Path;
use leeward_env::Ctx;
use leeward_fs::rights::{self, R, W, X};
use leeward_fs::{Attr, Entry, Error, Kind, Make, NodeId, Op, Reply, Result, XattrMode};
use leeward_vfs::{DoorBackend, Outcome};
use std::cell::Cell;

/// Most rights of a new directory; default ACLs and setgid are inherited as in the mount.
pub(crate) const DIR_MODE: u32 = 0o777;
/// Bits that are removed from the modes of what doors make.
pub(crate) const UMASK: u32 = 0o022;
/// Attribute of a directory that a door made for a file's path: it is removed with its last file.
pub(crate) const MADE_FOR_PATH: &[u8] = b"user.leeward.prefix";

/// The operations that a request may use, and its context.
pub(crate) struct Steps<'a> {
    backend: &'a dyn DoorBackend,
    pub(crate) ctx: &'a Ctx,
    outcome: Cell<Outcome>,
    /// The session in which the request has changed something first.
    changed_in: Cell<Option<u64>>,
}

/// Where the paths of a tree begin.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    /// The cell's root, or a directory that was reached before.
    start: NodeId,
    /// The path from there: directories, no symbolic links.
    way: Path,
    /// This many of its names must exist in any case; the others may be made.
    there: usize,
    /// Whether the first name of a path is not followed, too, and the tree is only what is below
    /// it.
    pinned: bool,
}

impl Base {
    /// A directory of the cell.
    pub(crate) fn of(way: &Path) -> Base {
        Base { start: NodeId::ROOT, way: way.clone(), there: usize::MAX, pinned: false }
    }

    /// A base with one name in it: that name is not followed. All names of the way except the first
    /// `there` may be made.
    pub(crate) fn pinned(way: &Path, there: usize) -> Base {
        Base { there, pinned: true, ..Base::of(way) }
    }

    /// An inode, wherever it is by now; names in it are not followed.
    pub(crate) fn at(node: NodeId) -> Base {
        Base { start: node, ..Base::pinned(&Path::default(), 0) }
    }

    /// The path from the start.
    pub(crate) fn way(&self) -> &Path {
        &self.way
    }
}

/// What happens when directories above the last name are missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It is an error.
    Refused,
    /// They are made.
    Made,
    /// The walk ends at the first missing one.
    Enough,
}

/// The result of a walk.
pub(crate) struct Walked {
    /// The directories on the way, from the tree's start.
    pub(crate) dirs: Vec<Attr>,
    /// Their names, except the start's.
    pub(crate) way: Vec<Box<[u8]>>,
    /// How many of them are above the tree.
    pub(crate) floor: usize,
    /// The last name, or the first that is missing; empty for the tree's root.
    pub(crate) name: Box<[u8]>,
    /// Attributes of what is there.
    pub(crate) attr: Option<Attr>,
}

impl Walked {
    /// The directory that the name is in.
    pub(crate) fn dir(&self) -> &Attr {
        self.dirs.last().expect("the start at least")
    }

    /// Attributes of what is there; an error if nothing is.
    pub(crate) fn found(&self) -> Result<&Attr> {
        self.attr.as_ref().ok_or(Error::NotFound)
    }
}

impl<'a> Steps<'a> {
    pub(crate) fn new(backend: &'a dyn DoorBackend, ctx: &'a Ctx) -> Steps<'a> {
        Steps { backend, ctx, outcome: Cell::default(), changed_in: Cell::new(None) }
    }

    /// The outcome of all steps, for the ledger.
    pub(crate) fn outcome(&self, failed: bool) -> Outcome {
        Outcome { failed, ..self.outcome.get() }
    }

    /// Notes that the request is about this inode.
    pub(crate) fn about(&self, node: NodeId) {
        self.outcome.set(Outcome { node: Some(node), ..self.outcome.get() });
    }

    pub(crate) fn call(&self, op: Op<'_>) -> Result<Reply> {
        self.call_as(self.ctx, op)
    }

    fn call_as(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let session = self.backend.session();
        let result = self.backend.call(ctx, op);
        let one = Outcome::of(&op, &result);
        let all = self.outcome.get();
        self.outcome.set(Outcome {
            read_bytes: all.read_bytes + one.read_bytes,
            written_bytes: all.written_bytes + one.written_bytes,
            ..all
        });
        if op.changes() && result.is_ok() && self.changed_in.get().is_none() {
            self.changed_in.set(Some(session));
        }
        // what was changed in a session that has ended may be lost, whatever an fsync says now
        match self.changed_in.get() {
            Some(before) if before != self.backend.session() => Err(Error::Unavailable),
            _ => result,
        }
    }

    pub(crate) fn attr_of(&self, op: Op<'_>) -> Result<Attr> {
        self.call(op)?.attr()
    }

    pub(crate) fn look_up(&self, dir: NodeId, name: &[u8]) -> Result<Attr> {
        self.attr_of(Op::Lookup { dir, name })
    }

    /// Looks up a name and takes a reference, which the caller returns.
    pub(crate) fn hold(&self, dir: NodeId, name: &[u8]) -> Result<Attr> {
        self.call_as(&Ctx { refs: true, ..*self.ctx }, Op::Lookup { dir, name })?.attr()
    }

    /// Makes a file without a name and takes a reference, which the caller returns.
    pub(crate) fn make_unnamed(&self, dir: NodeId, mode: u32, bytes: u64) -> Result<Attr> {
        let op = Op::MakeUnnamed { dir, mode, umask: UMASK, bytes };
        self.call_as(&Ctx { refs: true, ..*self.ctx }, op)?.attr()
    }

    /// Whether the user may do `want` with an inode.
    pub(crate) fn permit(&self, attr: &Attr, want: u32) -> Result<()> {
        let acl = if rights::asks_acl(self.ctx, attr) { self.xattr(attr.node, rights::ACL)? } else { None };
        rights::permit(self.ctx, attr, acl.as_deref(), want)
    }

    /// An extended attribute.
    pub(crate) fn xattr(&self, node: NodeId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.call(Op::GetXattr { node, name }) {
            Ok(reply) => reply.data().map(Some),
            Err(Error::NoData) => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8]) -> Result<()> {
        self.call(Op::SetXattr { node, name, value, mode: XattrMode::Set }).map(drop)
    }

    pub(crate) fn fsync(&self, node: NodeId) -> Result<()> {
        self.call(Op::Fsync { node }).map(drop)
    }

    /// Entries of a directory after a name; without the directory of snapshots, unless listings of
    /// the mount show it.
    pub(crate) fn list(
        &self,
        dir: &Attr,
        after: &[u8],
        limit: usize,
        attrs: bool,
    ) -> Result<(Vec<Entry>, bool)> {
        self.permit(dir, if attrs { R | X } else { R })?;
        let mut after = Box::from(after);
        loop {
            let op = Op::List { dir: dir.node, after: &after, limit, attrs };
            let mut entries = self.call(op)?.entries()?;
            let last = entries.last().filter(|_| entries.len() == limit).map(|e| e.name.clone());
            if !dir.node.is_view() {
                entries.retain(|e| !e.node.is_view());
            }
            match last {
                // the caller goes on after the last one that it gets
                Some(last) if entries.is_empty() => after = last,
                last => return Ok((entries, last.is_none())),
            }
        }
    }

    /// Walks to a path of a tree: each directory on the way must let the user through. Symbolic
    /// links are followed where they stay in the tree, the last one only with `follow`. `None` in
    /// [`Walked::attr`]: the last name does not exist.
    pub(crate) fn walk(&self, base: &Base, path: &Path, follow: bool) -> Result<Walked> {
        let walked = self.go(base, path, follow, Missing::Refused)?;
        if let Some(attr) = &walked.attr {
            self.about(attr.node);
            if path.wants_dir() && attr.kind != Kind::Dir {
                return Err(Error::NotDir);
            }
        }
        Ok(walked)
    }

    /// Walks to a path, and makes all missing directories above the last name.
    pub(crate) fn walk_making(&self, base: &Base, path: &Path) -> Result<Walked> {
        self.go(base, path, path.is_root(), Missing::Made)
    }

    /// Walks as far along a path as it exists.
    pub(crate) fn walk_far(&self, base: &Base, path: &Path) -> Result<Walked> {
        self.go(base, path, path.is_root(), Missing::Enough)
    }

    fn go(&self, base: &Base, path: &Path, follow: bool, missing: Missing) -> Result<Walked> {
        let start = self.attr_of(Op::GetAttr { node: base.start })?;
        let mut walk = Walk { steps: self, dirs: vec![start], way: Vec::new(), floor: 0, links: 0 };
        for (n, name) in base.way.names().enumerate() {
            let attr = match walk.step(name) {
                Err(Error::NotFound) if n < base.there || missing == Missing::Refused => {
                    return Err(Error::NotFound);
                }
                Err(Error::NotFound) if missing == Missing::Enough => return Ok(walk.ends(name, None)),
                Err(Error::NotFound) => walk.make(name)?,
                other => other?,
            };
            match attr.kind {
                Kind::Dir => walk.enter(attr, name.into()),
                _ => return Err(Error::NotDir),
            }
        }
        walk.floor = walk.way.len();
        walk.all(path, base.pinned, follow, missing)
    }

    /// Refuses changes of a directory of snapshots, or in a snapshot.
    pub(crate) fn changeable(dir: &Attr) -> Result<()> {
        // in `.snap`, making and removing names takes and removes snapshots
        if dir.node.is_view() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Makes a directory under a free name. `mark`: an attribute that it gets.
    pub(crate) fn make_dir(&self, dir: &Attr, name: &[u8], mode: u32, mark: Option<&[u8]>) -> Result<Attr> {
        Self::changeable(dir)?;
        self.permit(dir, W | X)?;
        let make = Make::Dir;
        let attr = self.attr_of(Op::Make { dir: dir.node, name, make, mode, umask: UMASK })?;
        if let Some(mark) = mark {
            self.set_xattr(attr.node, mark, b"1")?;
        }
        Ok(attr)
    }
}

/// A walk in progress.
struct Walk<'a, 'g> {
    steps: &'a Steps<'g>,
    dirs: Vec<Attr>,
    way: Vec<Box<[u8]>>,
    /// How many names are above the tree.
    floor: usize,
    links: usize,
}

impl Walk<'_, '_> {
    fn here(&self) -> &Attr {
        self.dirs.last().expect("the start at least")
    }

    fn enter(&mut self, dir: Attr, name: Box<[u8]>) {
        self.dirs.push(dir);
        self.way.push(name);
    }

    fn ends(self, name: &[u8], attr: Option<Attr>) -> Walked {
        let Walk { dirs, way, floor, .. } = self;
        Walked { dirs, way, floor, name: name.into(), attr }
    }

    /// What is under a name in the current directory.
    fn step(&self, name: &[u8]) -> Result<Attr> {
        let here = self.here();
        self.steps.permit(here, X)?;
        self.steps.look_up(here.node, name)
    }

    /// Makes a directory on the way that is missing.
    fn make(&self, name: &[u8]) -> Result<Attr> {
        match self.steps.make_dir(self.here(), name, DIR_MODE, Some(MADE_FOR_PATH)) {
            // another request has just done it
            Err(Error::Exists) => self.step(name),
            made => made,
        }
    }

    fn all(mut self, path: &Path, mut pinned: bool, follow: bool, missing: Missing) -> Result<Walked> {
        let mut todo: Vec<Box<[u8]>> = path.names().rev().map(Box::from).collect();
        // remaining names of the path itself; names before them come from a link
        let mut own = todo.len();
        while let Some(name) = todo.pop() {
            let (is_last, is_own) = (todo.is_empty(), todo.len() < own);
            own = own.min(todo.len());
            if self.dots(&name)? {
                continue;
            }
            let attr = match self.step(&name) {
                Err(Error::NotFound) if is_last || is_own && missing == Missing::Enough => {
                    return Ok(self.ends(&name, None));
                }
                Err(Error::NotFound) if is_own && missing == Missing::Made => self.make(&name)?,
                other => other?,
            };
            let is_pinned = std::mem::take(&mut pinned);
            match attr.kind {
                Kind::Symlink if is_pinned && (follow || !is_last) => return Err(Error::NotFound),
                Kind::Symlink if follow || !is_last => todo.extend(self.link(&attr)?),
                _ if is_last => return Ok(self.ends(&name, Some(attr))),
                Kind::Dir => {
                    self.enter(attr, name);
                    self.floor += usize::from(is_pinned);
                }
                _ => return Err(Error::NotDir),
            }
        }
        // it ended in `.`, `..` or at the root
        let attr = *self.here();
        Ok(self.ends(b"", Some(attr)))
    }

    /// Whether the name is one of the dots, which come only from links; then it was followed, but
    /// not out of the tree.
    fn dots(&mut self, name: &[u8]) -> Result<bool> {
        match name {
            b"." => Ok(true),
            b".." if self.way.len() > self.floor => {
                self.dirs.pop();
                self.way.pop();
                Ok(true)
            }
            b".." => Err(Error::NotFound),
            _ => Ok(false),
        }
    }

    /// The names that a symbolic link stands for, last first. A link that leads out of the tree
    /// counts as missing.
    fn link(&mut self, link: &Attr) -> Result<Vec<Box<[u8]>>> {
        self.links += 1;
        let Reply::Data(target) = self.steps.call(Op::ReadLink { node: link.node })? else {
            return Err(Error::Io("ReadLink answered otherwise".into()));
        };
        if self.links > SYMLINKS_MAX || target.first() == Some(&b'/') {
            return Err(Error::NotFound);
        }
        let names = target.split(|b| *b == b'/').filter(|name| !name.is_empty());
        Ok(names.rev().map(Box::from).collect())
    }
}
