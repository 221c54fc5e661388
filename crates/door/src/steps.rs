//! The operations of one request, in its turn at the gate: lookups with the checks that the kernel makes for the mount.
//!
//! Steps run without waiting, and from the beginning again, where they may wait, when one of them would have to: so what changes
//! something comes last, or is remembered by whoever asks.

use crate::limits::SYMLINKS_MAX;
use crate::path::Path;
use crate::who::{self, R, W, X};
use leeward_env::Ctx;
use leeward_fs::{Attr, Entry, Error, Kind, Make, NodeId, Op, Reply, Result, XattrMode};
use leeward_vfs::{Gate, Outcome};
use std::cell::Cell;

/// What a new directory may be at most; default ACLs and setgid are handed down as in the mount.
pub(crate) const DIR_MODE: u32 = 0o777;
/// Bits that are taken from the modes of what doors make.
pub(crate) const UMASK: u32 = 0o022;
/// Attribute of a directory that a door made for a file's path: it goes with its last file.
pub(crate) const MADE_FOR_PATH: &[u8] = b"user.leeward.prefix";

/// See the module's head.
pub(crate) struct Steps<'a> {
    gate: &'a Gate,
    pub(crate) ctx: &'a Ctx,
    outcome: Cell<Outcome>,
}

/// Where the paths of a tree begin.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    /// The cell's root, or a directory that was come to before.
    start: NodeId,
    /// The way from there: directories, no symbolic links.
    way: Path,
    /// So many of its names must be there in any case; the others may be made.
    there: usize,
    /// Whether the first name of a path is no symbolic link either, and what is below it all of the tree.
    pinned: bool,
}

impl Base {
    /// A directory of the cell.
    pub(crate) fn of(way: &Path) -> Base {
        Base { start: NodeId::ROOT, way: way.clone(), there: usize::MAX, pinned: false }
    }

    /// The same for what has one name in it: that name is taken as it stands. All but the first `there` names of the way may be made.
    pub(crate) fn pinned(way: &Path, there: usize) -> Base {
        Base { there, pinned: true, ..Base::of(way) }
    }

    /// An inode, wherever it is by now; names in it are taken as they stand.
    pub(crate) fn at(node: NodeId) -> Base {
        Base { start: node, ..Base::pinned(&Path::default(), 0) }
    }

    /// The way from the start.
    pub(crate) fn way(&self) -> &Path {
        &self.way
    }
}

/// What becomes of directories that are missing above the last name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It is an error.
    Refused,
    /// They are made.
    Made,
    /// The walk ends at the first.
    Enough,
}

/// Where a path leads.
pub(crate) struct Walked {
    /// The directories on the way, from the tree's start.
    pub(crate) dirs: Vec<Attr>,
    /// Their names, but for the start.
    pub(crate) way: Vec<Box<[u8]>>,
    /// How many of them are not the tree's own.
    pub(crate) floor: usize,
    /// The last name, or the first that is missing; empty for the tree's root.
    pub(crate) name: Box<[u8]>,
    /// What is there.
    pub(crate) attr: Option<Attr>,
}

impl Walked {
    /// The directory that the name is in.
    pub(crate) fn dir(&self) -> &Attr {
        self.dirs.last().expect("the start at least")
    }

    /// What is there.
    pub(crate) fn found(&self) -> Result<&Attr> {
        self.attr.as_ref().ok_or(Error::NotFound)
    }
}

impl<'a> Steps<'a> {
    pub(crate) fn new(gate: &'a Gate, ctx: &'a Ctx) -> Steps<'a> {
        Steps { gate, ctx, outcome: Cell::default() }
    }

    /// What is to be entered of all steps.
    pub(crate) fn outcome(&self, failed: bool) -> Outcome {
        Outcome { failed, ..self.outcome.get() }
    }

    /// The request is about this inode.
    pub(crate) fn about(&self, node: NodeId) {
        self.outcome.set(Outcome { node: Some(node), ..self.outcome.get() });
    }

    pub(crate) fn call(&self, op: Op<'_>) -> Result<Reply> {
        self.call_as(self.ctx, op)
    }

    fn call_as(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let result = self.gate.call(ctx, op);
        let one = Outcome::of(&op, &result);
        let all = self.outcome.get();
        self.outcome.set(Outcome {
            read_bytes: all.read_bytes + one.read_bytes,
            written_bytes: all.written_bytes + one.written_bytes,
            ..all
        });
        result
    }

    pub(crate) fn attr_of(&self, op: Op<'_>) -> Result<Attr> {
        self.call(op)?.attr()
    }

    pub(crate) fn look_up(&self, dir: NodeId, name: &[u8]) -> Result<Attr> {
        self.attr_of(Op::Lookup { dir, name })
    }

    /// Looks up a name and holds a reference, which the caller gives back.
    pub(crate) fn hold(&self, dir: NodeId, name: &[u8]) -> Result<Attr> {
        self.call_as(&Ctx { refs: true, ..*self.ctx }, Op::Lookup { dir, name })?.attr()
    }

    /// Makes a file without a name and holds a reference, which the caller gives back.
    pub(crate) fn make_unnamed(&self, dir: NodeId, mode: u32, bytes: u64) -> Result<Attr> {
        let op = Op::MakeUnnamed { dir, mode, umask: UMASK, bytes };
        self.call_as(&Ctx { refs: true, ..*self.ctx }, op)?.attr()
    }

    /// Whether the user may do `want` with an inode.
    pub(crate) fn permit(&self, attr: &Attr, want: u32) -> Result<()> {
        let acl = if who::asks_acl(self.ctx, attr) { self.xattr(attr.node, who::ACL)? } else { None };
        who::permit(self.ctx, attr, acl.as_deref(), want)
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

    /// Entries of a directory after a name; not the directory of snapshots, where listings of the mount show it.
    pub(crate) fn list(
        &self,
        dir: &Attr,
        after: &[u8],
        limit: usize,
        attrs: bool,
    ) -> Result<(Vec<Entry>, bool)> {
        self.permit(dir, if attrs { R | X } else { R })?;
        let op = Op::List { dir: dir.node, after, limit, attrs };
        let mut entries = self.call(op)?.entries()?;
        let at_end = entries.len() < limit;
        if !dir.node.is_view() {
            entries.retain(|e| !e.node.is_view());
        }
        Ok((entries, at_end))
    }

    /// Goes to a path of a tree: each directory on the way must let the user through. Symbolic links are followed where they stay in the
    /// tree, the last one only with `follow`. `None` in [`Walked::attr`]: the last name is not there.
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

    /// The same with all directories made that are missing above the last name.
    pub(crate) fn walk_making(&self, base: &Base, path: &Path) -> Result<Walked> {
        self.go(base, path, path.is_root(), Missing::Made)
    }

    /// The same as far as there is something.
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

    /// What must not be done to a directory of snapshots or in one.
    pub(crate) fn changeable(dir: &Attr) -> Result<()> {
        // in `.snap` names that come and go take and remove snapshots
        if dir.node.is_view() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Makes a directory where nothing is. `mark`: an attribute that it gets.
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

/// A walk on its way.
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

    /// A directory on the way that was missing.
    fn make(&self, name: &[u8]) -> Result<Attr> {
        match self.steps.make_dir(self.here(), name, DIR_MODE, Some(MADE_FOR_PATH)) {
            // somebody else has just done it
            Err(Error::Exists) => self.step(name),
            made => made,
        }
    }

    fn all(mut self, path: &Path, mut pinned: bool, follow: bool, missing: Missing) -> Result<Walked> {
        let mut todo: Vec<Box<[u8]>> = path.names().rev().map(Box::from).collect();
        // names of the path itself that are left; what comes before them a link has brought
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

    /// Whether the name was one of the dots, which only links bring; then it has been followed, but not out of the tree.
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

    /// The names that a symbolic link stands for, last first. What leads out of the tree is not there.
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
