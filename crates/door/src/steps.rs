//! The operations of one request, in its turn at the gate: lookups with the checks that the kernel makes for the mount.
//!
//! Steps run without waiting, and from the beginning again, where they may wait, when one of them would have to: so what changes
//! something comes last, or is remembered by whoever asks.

use crate::limits::SYMLINKS_MAX;
use crate::path::Path;
use crate::who::{self, R, W, X};
use leeward_env::Ctx;
use leeward_vfs::{Gate, Outcome};
use leeward_volume::keys::VIEW_FIRST;
use leeward_volume::op::{Attr, Entry, Kind, Make, XattrMode};
use leeward_volume::{Error, NodeId, Op, Reply, Result};
use std::cell::Cell;

/// What a new directory may be at most; default ACLs and setgid are handed down as in the mount.
const DIR_MODE: u32 = 0o777;
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

/// Where a path leads.
pub(crate) struct Walked {
    /// The directories on the way, from the cell's root.
    pub(crate) dirs: Vec<Attr>,
    /// The last name; empty for the tree's root.
    pub(crate) name: Box<[u8]>,
    /// What is there.
    pub(crate) attr: Option<Attr>,
}

impl Walked {
    /// The directory that the name is in.
    pub(crate) fn dir(&self) -> &Attr {
        self.dirs.last().expect("the cell's root at least")
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
        match self.call(op)? {
            Reply::Attr(attr) => Ok(attr),
            other => Err(wrong(&other)),
        }
    }

    fn look_up(&self, dir: NodeId, name: &[u8]) -> Result<Attr> {
        self.attr_of(Op::Lookup { dir, name })
    }

    /// Looks up a name and holds a reference, which the caller gives back.
    pub(crate) fn hold(&self, dir: NodeId, name: &[u8]) -> Result<Attr> {
        match self.call_as(&Ctx { refs: true, ..*self.ctx }, Op::Lookup { dir, name })? {
            Reply::Attr(attr) => Ok(attr),
            other => Err(wrong(&other)),
        }
    }

    /// Makes a file without a name and holds a reference, which the caller gives back.
    pub(crate) fn make_unnamed(&self, dir: NodeId, mode: u32, bytes: u64) -> Result<Attr> {
        let op = Op::MakeUnnamed { dir, mode, umask: UMASK, bytes };
        match self.call_as(&Ctx { refs: true, ..*self.ctx }, op)? {
            Reply::Attr(attr) => Ok(attr),
            other => Err(wrong(&other)),
        }
    }

    /// Whether the user may do `want` with an inode.
    pub(crate) fn permit(&self, attr: &Attr, want: u32) -> Result<()> {
        let acl = if who::asks_acl(self.ctx, attr) { self.xattr(attr.node, who::ACL)? } else { None };
        who::permit(self.ctx, attr, acl.as_deref(), want)
    }

    /// An extended attribute.
    pub(crate) fn xattr(&self, node: NodeId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.call(Op::GetXattr { node, name }) {
            Ok(Reply::Data(value)) => Ok(Some(value)),
            Ok(other) => Err(wrong(&other)),
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
        let Reply::Entries(mut entries) = self.call(op)? else {
            return Err(Error::Io("List answered otherwise".into()));
        };
        let at_end = entries.len() < limit;
        if dir.node.volume() < VIEW_FIRST {
            entries.retain(|e| e.node.volume() < VIEW_FIRST);
        }
        Ok((entries, at_end))
    }

    /// Goes to a path of a tree: each directory on the way must let the user through. Symbolic links are followed where they stay in the
    /// tree, the last one only with `follow`. `None` in [`Walked::attr`]: the last name is not there.
    pub(crate) fn walk(&self, base: &Path, path: &Path, follow: bool) -> Result<Walked> {
        let root = self.attr_of(Op::GetAttr { node: NodeId::ROOT })?;
        let mut walk = Walk { steps: self, dirs: vec![root], floor: 0, links: 0 };
        for name in base.names() {
            let attr = walk.step(name)?;
            match attr.kind {
                Kind::Dir => walk.dirs.push(attr),
                _ => return Err(Error::NotDir),
            }
        }
        walk.floor = walk.dirs.len() - 1;
        let walked = walk.all(path, follow)?;
        if let Some(attr) = &walked.attr {
            self.about(attr.node);
            if path.wants_dir() && attr.kind != Kind::Dir {
                return Err(Error::NotDir);
            }
        }
        Ok(walked)
    }

    /// The same with all directories made that are missing above the last name. Returns it with the directory that exists for sure.
    pub(crate) fn walk_making(&self, base: &Path, path: &Path) -> Result<Walked> {
        let Some((above, name)) = path.split() else { return self.walk(base, path, true) };
        let dir = match self.walk(base, &above, true) {
            Err(Error::NotFound) => None,
            other => other?.attr,
        };
        let made;
        let dir = match dir {
            Some(dir) => dir,
            None => {
                made = self.walk_making(base, &above)?;
                self.make_dir(&made, Some(MADE_FOR_PATH))?
            }
        };
        if dir.kind != Kind::Dir {
            return Err(Error::NotDir);
        }
        self.permit(&dir, X)?;
        let attr = self.look_up(dir.node, name).map(Some).or_else(absent)?;
        Ok(Walked { dirs: vec![dir], name: name.into(), attr })
    }

    /// Makes a directory where a walk ended. `mark`: an attribute that it gets.
    pub(crate) fn make_dir(&self, at: &Walked, mark: Option<&[u8]>) -> Result<Attr> {
        if at.attr.is_some() {
            return at.found().copied();
        }
        let dir = at.dir();
        if dir.node.volume() >= VIEW_FIRST {
            // in `.snap` this would take a snapshot
            return Err(Error::ReadOnly);
        }
        self.permit(dir, W | X)?;
        let (dir, name) = (dir.node, &at.name[..]);
        let made = self.attr_of(Op::Make { dir, name, make: Make::Dir, mode: DIR_MODE, umask: UMASK });
        match made {
            // somebody else has just done it
            Err(Error::Exists) => self.look_up(dir, name),
            Err(e) => Err(e),
            Ok(attr) => {
                if let Some(mark) = mark {
                    self.set_xattr(attr.node, mark, b"1")?;
                }
                Ok(attr)
            }
        }
    }
}

fn absent(e: Error) -> Result<Option<Attr>> {
    if e == Error::NotFound { Ok(None) } else { Err(e) }
}

fn wrong(reply: &Reply) -> Error {
    Error::Io(format!("a reply of the wrong kind: {reply:?}"))
}

/// A walk on its way.
struct Walk<'a, 'g> {
    steps: &'a Steps<'g>,
    dirs: Vec<Attr>,
    /// Index of the tree's root.
    floor: usize,
    links: usize,
}

impl Walk<'_, '_> {
    fn here(&self) -> &Attr {
        self.dirs.last().expect("the cell's root at least")
    }

    /// What is under a name in the current directory.
    fn step(&self, name: &[u8]) -> Result<Attr> {
        let here = self.here();
        self.steps.permit(here, X)?;
        self.steps.look_up(here.node, name)
    }

    fn all(mut self, path: &Path, follow: bool) -> Result<Walked> {
        let mut todo: Vec<Box<[u8]>> = path.names().rev().map(Box::from).collect();
        while let Some(name) = todo.pop() {
            let is_last = todo.is_empty();
            if self.dots(&name)? {
                continue;
            }
            let attr = match self.step(&name) {
                Err(Error::NotFound) if is_last => return Ok(Walked { dirs: self.dirs, name, attr: None }),
                other => other?,
            };
            match attr.kind {
                Kind::Symlink if follow || !is_last => todo.extend(self.link(&attr)?),
                _ if is_last => return Ok(Walked { dirs: self.dirs, name, attr: Some(attr) }),
                Kind::Dir => self.dirs.push(attr),
                _ => return Err(Error::NotDir),
            }
        }
        // it ended in `.`, `..` or at the root
        let attr = self.here().to_owned();
        Ok(Walked { dirs: self.dirs, name: Box::default(), attr: Some(attr) })
    }

    /// Whether the name was one of the dots, which only links bring; then it has been followed, but not out of the tree.
    fn dots(&mut self, name: &[u8]) -> Result<bool> {
        match name {
            b"." => Ok(true),
            b".." if self.dirs.len() - 1 > self.floor => {
                self.dirs.pop();
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
