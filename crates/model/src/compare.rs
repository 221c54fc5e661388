//! What must be equal, and what may differ: answers, attributes, whole trees.
//!
//! Inode numbers are never compared, only the identities: one inode of the model stays one inode of
//! the target, under all its names and for all its life. Every difference is a text that begins
//! with the path.

use crate::content::{Allocation, Content};
use crate::harness::Target;
use crate::model::{Model, ROOT};
use crate::node::{Body, Ino, Name, Node, was_set};
use crate::side::ctx_of;
use crate::snapshots::{Namespace, place, snap_dir_of};
use crate::step::SNAP_DIR;
use crate::step::{Act, Path};
use leeward_fs::{Attr, Entry, Error, Kind, NodeId, Op, Reply, Seek};
use std::collections::{BTreeMap, BTreeSet};

/// `Ok`, or the first difference.
pub type Verdict = Result<(), String>;

/// Bytes read at once when content is compared.
const READ_BYTES: u64 = 1 << 20;
/// Most bytes of data in one file: more means that holes are not shown as such.
const DATA_BYTES_MAX: u64 = 256 << 20;
/// Entries listed at once when trees are compared: small, so that continuing is tested.
const LIST_LIMIT: usize = 5;

/// Whether two values are equal; the error has both.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, want: T, got: T) -> Verdict {
    if want == got { Ok(()) } else { Err(format!("{what}: expected {want:?}, got {got:?}")) }
}

/// Whether an error is legal where the model gives another. Only what POSIX leaves open or no
/// kernel lets through.
pub fn same_error(act: &Act, want: &Error, got: &Error) -> bool {
    let one_of = |set: &[Error]| set.contains(want) && set.contains(got);
    let wrong_kind = [Error::IsDir, Error::Invalid, Error::NotSupported];
    match act {
        _ if want.errno() == got.errno() => true,
        Act::Write { .. }
        | Act::Append { .. }
        | Act::Read { .. }
        | Act::Truncate { .. }
        | Act::Allocate { .. }
        | Act::Seek { .. }
        | Act::Copy { .. } => {
            let too_big = wrong_kind.contains(want) && *got == Error::TooBig;
            too_big || one_of(&wrong_kind)
        }
        Act::Unlink(path) if path.in_snapshots() => one_of(&[Error::IsDir, Error::NotPermitted]),
        Act::Link { .. } => {
            let taken = *want == Error::Exists && *got == Error::NotPermitted;
            taken || one_of(&[Error::CrossVolume, Error::Stale])
        }
        // of several errors, any may be returned. For a file onto the directory that it is in,
        // Linux says that the directory is not empty before it looks at the types
        Act::Rename { .. } => {
            let too_long = *want == Error::NameTooLong && *got == Error::Invalid;
            too_long
                || one_of(&[Error::NameTooLong, Error::NotFound])
                || one_of(&[Error::NameTooLong, Error::NotPermitted])
                || one_of(&[Error::IsDir, Error::NotEmpty])
        }
        Act::SetXattr { .. } => one_of(&[Error::AttrTooBig, Error::Range, Error::NoSpace]),
        _ => false,
    }
}

/// Compares attributes, except inode numbers and times that nobody set.
pub fn same_attr(node: &Node, want: &Attr, got: &Attr, by: Allocation) -> Verdict {
    same("kind", want.kind, got.kind)?;
    same_octal("mode", want.mode, got.mode)?;
    same("uid", want.uid, got.uid)?;
    same("gid", want.gid, got.gid)?;
    same("nlink", want.nlink, got.nlink)?;
    same("flags", want.flags, got.flags)?;
    if matches!(want.kind, Kind::CharDev | Kind::BlockDev) {
        same("rdev", want.rdev, got.rdev)?;
    }
    if matches!(want.kind, Kind::File | Kind::Symlink) {
        same("size", want.size, got.size)?;
    }
    if was_set(want.mtime) {
        same("mtime", want.mtime, got.mtime)?;
    }
    match node.file() {
        Ok(content) => legal_blocks(content, got.blocks, by),
        Err(_) => Ok(()),
    }
}

/// In a snapshot all attributes stay exactly what they were when it was taken.
pub(crate) fn same_shown(model: &Model, ino: Ino, got: &Attr) -> Verdict {
    match model.shown(ino) {
        Some(then) => same("attributes in the snapshot", Attr { node: got.node, ..*then }, *got),
        None => Ok(()),
    }
}

fn same_octal(what: &str, want: u32, got: u32) -> Verdict {
    if want == got { Ok(()) } else { Err(format!("{what}: expected {want:o}, got {got:o}")) }
}

fn legal_blocks(content: &Content, blocks: u64, by: Allocation) -> Verdict {
    let (least, most) = content.allocated(by);
    if (least.div_ceil(512)..=most.div_ceil(512)).contains(&blocks) {
        return Ok(());
    }
    Err(format!("blocks: {blocks}, but {least} to {most} bytes are allocated"))
}

/// Compares the answers to one step. `model` is as the step left it.
pub fn same_reply(model: &Model, act: &Act, want: &Reply, got: &Reply, by: Allocation) -> Verdict {
    match (want, got) {
        (Reply::Attr(w), Reply::Attr(g)) => {
            let node = model.inode(w.node.0).map_err(|e| format!("model: {e}"))?;
            same_attr(&node, w, g, by)?;
            same_shown(model, w.node.0, g)?;
            if matches!(act, Act::Utimes { .. }) && was_set(w.atime) {
                same("atime", w.atime, g.atime)?;
            }
            Ok(())
        }
        (Reply::Data(w), Reply::Data(g)) => same_bytes(w, g),
        (Reply::Names(w), Reply::Names(g)) => {
            let (mut w, mut g) = (w.clone(), g.clone());
            w.sort();
            g.sort();
            same("names", w, g)
        }
        (Reply::Entries(w), Reply::Entries(g)) => same_entries(model, w, g, by),
        (Reply::Removed { nlink: w, .. }, Reply::Removed { nlink: g, .. }) => same("nlink left", w, g),
        (Reply::StatFs(_), Reply::StatFs(_)) => Ok(()),
        (w, g) => same("answer", w, g),
    }
}

fn same_bytes(want: &[u8], got: &[u8]) -> Verdict {
    same("length", want.len(), got.len())?;
    match want.iter().zip(got).position(|(w, g)| w != g) {
        None => Ok(()),
        Some(i) => Err(format!("byte {i} of {}: expected {:#x}, got {:#x}", want.len(), want[i], got[i])),
    }
}

fn same_entries(model: &Model, want: &[Entry], got: &[Entry], by: Allocation) -> Verdict {
    let names = |entries: &[Entry]| entries.iter().map(|e| (text(&e.name), e.kind)).collect::<Vec<_>>();
    same("entries", names(want), names(got))?;
    for (w, g) in want.iter().zip(got) {
        same(&text(&g.name), w.attr.is_some(), g.attr.is_some())?;
        if let (Some(wa), Some(ga)) = (&w.attr, &g.attr) {
            same(&text(&g.name), g.node, ga.node)?;
            let node = model.inode(w.node.0).map_err(|e| format!("model: {e}"))?;
            let same = same_attr(&node, wa, ga, by).and_then(|()| same_shown(model, w.node.0, ga));
            same.map_err(|e| format!("{}: {e}", text(&g.name)))?;
        }
    }
    Ok(())
}

fn text(name: &[u8]) -> String {
    crate::text::escape(name)
}

/// Judges an answer to a search for data or a hole, of which POSIX allows several.
pub fn legal_seek(content: &Content, offset: u64, what: Seek, got: &leeward_fs::Result<Reply>) -> Verdict {
    let size = content.size();
    match (what, got) {
        (_, Err(Error::NoSuchPosition)) if offset >= size => Ok(()),
        _ if offset >= size => Err(format!("past the end at {size}: got {got:?}")),
        (Seek::Data, Err(Error::NoSuchPosition)) => no_data(content, offset, size),
        (Seek::Data, Ok(Reply::Offset(at))) if (offset..size).contains(at) => no_data(content, offset, *at),
        (Seek::Hole, Ok(Reply::Offset(at))) if (offset..size).contains(at) => no_data(content, *at, *at + 1),
        (Seek::Hole, Ok(Reply::Offset(at))) if *at == size => Ok(()),
        _ => Err(format!("size {size}: got {got:?}")),
    }
}

fn no_data(content: &Content, start: u64, end: u64) -> Verdict {
    match content.nonzero_in(start, end) {
        None => Ok(()),
        Some(at) => Err(format!("called a hole, but there is data at {at}")),
    }
}

/// The attributes of the inodes that a step concerns, before and after it.
pub type Witness = (Option<Attr>, Option<Attr>);

/// Compares which times a step changed. `content_changed`: the model's bytes differ from those
/// before.
pub fn same_changes(act: &Act, want: &Witness, got: &Witness, content_changed: bool) -> Verdict {
    let ((Some(w0), Some(w1)), (Some(g0), Some(g1))) = (want, got) else { return Ok(()) };
    let open = match act {
        Act::Truncate { .. } | Act::Allocate { .. } => !content_changed,
        _ => false,
    };
    if open {
        return Ok(());
    }
    same("mtime changed", w0.mtime != w1.mtime, g0.mtime != g1.mtime)?;
    same("ctime changed", w0.ctime != w1.ctime, g0.ctime != g1.ctime)?;
    same("birth time changed", w0.btime != w1.btime, g0.btime != g1.btime)
}

/// The mapping between inodes of the model and of the target.
#[derive(Clone, Debug, Default)]
pub struct Identities {
    target: BTreeMap<Ino, NodeId>,
    model: BTreeMap<NodeId, Ino>,
}

impl Identities {
    /// Notes that both are the same inode; fails when one of them was known as another's.
    pub(crate) fn meet(&mut self, ino: Ino, node: NodeId) -> Verdict {
        let known = *self.target.entry(ino).or_insert(node);
        same("inode number: has changed", known, node)?;
        let known = *self.model.entry(node).or_insert(ino);
        same(&format!("{node:?} is another inode: link structure"), known, ino)
    }

    /// The target's number of an inode of the model, if it was met.
    pub(crate) fn target_of(&self, ino: Ino) -> Option<NodeId> {
        self.target.get(&ino).copied()
    }

    /// Forgets inodes that the model no longer has: their numbers may come again.
    pub(crate) fn retain(&mut self, model: &Model) {
        self.target.retain(|&ino, _| model.inode(ino).is_ok());
        self.model.retain(|_, &mut ino| model.inode(ino).is_ok());
    }

    /// Forgets inodes in snapshots: their numbers hold until the file system is closed.
    pub(crate) fn forget_snapshots(&mut self) {
        self.target.retain(|&ino, _| place(ino) == Namespace::Live);
        self.model.retain(|_, &mut ino| place(ino) == Namespace::Live);
    }
}

/// A whole tree of the target, read and compared piece by piece.
pub struct Comparison<'a> {
    /// The expected state.
    pub model: &'a Model,
    /// The file system under test.
    pub target: &'a dyn Target,
    /// The mapping of inodes; kept between comparisons.
    pub identities: &'a mut Identities,
}

impl Comparison<'_> {
    /// Compares everything below the root, and all snapshots. The error begins with the path.
    pub fn tree(&mut self) -> Verdict {
        self.identities.retain(self.model);
        let mut seen = BTreeSet::new();
        let mut pending = vec![(Path::default(), ROOT, self.target.root())];
        while let Some((path, ino, node)) = pending.pop() {
            let at = |e| format!("{path}: {e}");
            if place(ino) != Namespace::Live && !seen.insert(ino) {
                self.identities.meet(ino, node).map_err(at)?;
                continue;
            }
            let children = self.inode(ino, node).map_err(at)?;
            self.usage(&path, ino, node).map_err(at)?;
            pending.extend(children.into_iter().map(|(name, ino, node)| (path.join(&name), ino, node)));
        }
        Ok(())
    }

    /// Compares one inode; of a directory, returns its entries, its snapshots among them.
    pub fn inode(&mut self, ino: Ino, node: NodeId) -> Result<Vec<(Name, Ino, NodeId)>, String> {
        self.identities.meet(ino, node)?;
        let want = self.model.inode(ino).map_err(|e| format!("model: {e}"))?;
        let got = self.attr(Op::GetAttr { node })?;
        same("inode number in its attributes", node, got.node)?;
        same_attr(&want, &want.attr(ino), &got, self.target.allocation())?;
        same_shown(self.model, ino, &got)?;
        self.xattrs(&want, node)?;
        match &want.body {
            Body::File(content) => self.content(content, node).map(|()| Vec::new()),
            Body::Symlink(target) => {
                let got = self.data(Op::ReadLink { node })?;
                same("target", text(target), text(&got)).map(|()| Vec::new())
            }
            Body::Special(..) => Ok(Vec::new()),
            Body::Dir { .. } => {
                let mut children = self.entries(ino, node)?;
                children.extend(self.snap_dir(ino, &want, node)?);
                Ok(children)
            }
        }
    }

    fn entries(&mut self, ino: Ino, dir: NodeId) -> Result<Vec<(Name, Ino, NodeId)>, String> {
        let want = self.model.children(ino).map_err(|e| format!("model: {e}"))?;
        let (got, with_attrs) = (list_all(self.target, dir, false)?, list_all(self.target, dir, true)?);
        let names = |entries: &[Entry]| entries.iter().map(|e| text(&e.name)).collect::<Vec<_>>();
        same("names", want.keys().map(|n| text(n)).collect(), names(&got))?;
        same("names listed with attributes", names(&got), names(&with_attrs))?;
        let mut children = Vec::new();
        for ((entry, with_attr), (name, child)) in got.iter().zip(with_attrs).zip(want) {
            let attr = self.attr(Op::Lookup { dir, name: &name })?;
            same(&format!("{}: Lookup and List", text(&name)), attr.node, entry.node)?;
            same(&format!("{}: kind in List", text(&name)), attr.kind, entry.kind)?;
            same(&format!("{}: attributes in List", text(&name)), Some(attr), with_attr.attr)?;
            if entry.kind == Kind::Dir {
                let parent = self.attr(Op::Lookup { dir: entry.node, name: b".." })?;
                let want = self.model.parent(child).map_err(|e| format!("model: {e}"))?;
                self.identities.meet(want, parent.node).map_err(|e| format!("{}/..: {e}", text(&name)))?;
            }
            children.push((name, child, entry.node));
        }
        Ok(children)
    }

    /// The directory of snapshots, which only live directories have.
    fn snap_dir(&self, ino: Ino, want: &Node, dir: NodeId) -> Result<Option<(Name, Ino, NodeId)>, String> {
        let found = self.target.call(&ctx_of(0), Op::Lookup { dir, name: SNAP_DIR });
        match (place(ino), found) {
            _ if !self.target.has_snapshots() => Ok(None),
            (Namespace::Live, Ok(Reply::Attr(attr))) if want.names > 0 => {
                Ok(Some((SNAP_DIR.into(), snap_dir_of(ino), attr.node)))
            }
            (Namespace::Live, other) if want.names > 0 => Err(format!("looking up .snap answers {other:?}")),
            (_, Err(Error::NotFound)) => Ok(None),
            (_, other) => Err(format!("looking up .snap, where there is none, answers {other:?}")),
        }
    }

    fn xattrs(&self, want: &Node, node: NodeId) -> Verdict {
        let names = match self.target.call(&ctx_of(0), Op::ListXattr { node }) {
            Ok(Reply::Names(names)) => names,
            other => return Err(format!("ListXattr answers {other:?}")),
        };
        let mut names: Vec<_> = names.iter().filter(|n| n.starts_with(b"user.")).map(|n| text(n)).collect();
        names.sort();
        same("attributes", want.xattrs.keys().map(|n| text(n)).collect(), names)?;
        for (name, value) in &want.xattrs {
            let got = self.data(Op::GetXattr { node, name })?;
            same_bytes(value, &got).map_err(|e| format!("attribute {}: {e}", text(name)))?;
        }
        Ok(())
    }

    fn content(&self, want: &Content, node: NodeId) -> Verdict {
        let got = read_content(self.target, node)?;
        match want.first_difference(&got) {
            None => self.ends(want, node),
            Some(at) if at >= want.size().min(got.size()) => {
                Err(format!("size: expected {}, got {}", want.size(), got.size()))
            }
            Some(at) => {
                let (w, g) = (want.read(at, 16), got.read(at, 16));
                Err(format!("content at {at}, size {}: expected {w:02x?}, got {g:02x?}", want.size()))
            }
        }
    }

    /// Reads around the end without asking where data is.
    fn ends(&self, want: &Content, node: NodeId) -> Verdict {
        let offset = want.size().saturating_sub(5000);
        let got = self.data(Op::Read { node, offset, len: 8192 })?;
        same_bytes(&want.read(offset, 8192), &got).map_err(|e| format!("content from {offset}: {e}"))
    }

    fn usage(&self, path: &Path, ino: Ino, node: NodeId) -> Verdict {
        if place(ino) != Namespace::Live {
            return Ok(());
        }
        let Some(got) = self.target.usage(path, node) else { return Ok(()) };
        let bounds = self.model.usage(ino, self.target.allocation()).map_err(|e| format!("model: {e}"))?;
        if bounds.allow(&got) { Ok(()) } else { Err(format!("usage: expected {bounds:?}, got {got:?}")) }
    }

    fn attr(&self, op: Op<'_>) -> Result<Attr, String> {
        match self.target.call(&ctx_of(0), op) {
            Ok(Reply::Attr(attr)) => Ok(attr),
            other => Err(format!("{op:?} answers {other:?}")),
        }
    }

    fn data(&self, op: Op<'_>) -> Result<Vec<u8>, String> {
        match self.target.call(&ctx_of(0), op) {
            Ok(Reply::Data(data)) => Ok(data),
            other => Err(format!("{op:?} answers {other:?}")),
        }
    }
}

/// All entries of a directory, in several listings.
pub fn list_all(target: &dyn Target, dir: NodeId, attrs: bool) -> Result<Vec<Entry>, String> {
    let mut out: Vec<Entry> = Vec::new();
    loop {
        let after = out.last().map(|e| e.name.clone()).unwrap_or_default();
        let op = Op::List { dir, after: &after, limit: LIST_LIMIT, attrs };
        match target.call(&ctx_of(0), op) {
            Ok(Reply::Entries(entries)) => {
                let last = entries.len() < LIST_LIMIT;
                if let Some(e) = entries.iter().find(|e| e.name <= after && !after.is_empty()) {
                    return Err(format!("listing after {}: got {}", text(&after), text(&e.name)));
                }
                out.extend(entries);
                if last {
                    return Ok(out);
                }
            }
            other => return Err(format!("{op:?} answers {other:?}")),
        }
    }
}

/// The content of a file, read where the target says that there is data.
pub fn read_content(target: &dyn Target, node: NodeId) -> Result<Content, String> {
    let size = match target.call(&ctx_of(0), Op::GetAttr { node }) {
        Ok(Reply::Attr(attr)) => attr.size,
        other => return Err(format!("GetAttr answers {other:?}")),
    };
    let mut content = Content::default();
    content.truncate(size);
    let (mut at, mut total) = (0, 0);
    while let Some((start, end)) = data_from(target, node, at, size)? {
        total += end - start;
        if total > DATA_BYTES_MAX {
            return Err(format!("more than {DATA_BYTES_MAX} bytes of {size} are called data"));
        }
        read_range(target, node, start, end, &mut content)?;
        at = end;
    }
    Ok(content)
}

fn data_from(
    target: &dyn Target,
    node: NodeId,
    offset: u64,
    size: u64,
) -> Result<Option<(u64, u64)>, String> {
    let seek = |offset, what| match target.call(&ctx_of(0), Op::SeekTo { node, offset, what }) {
        Ok(Reply::Offset(at)) if at >= offset && at <= size => Ok(Some(at)),
        Err(Error::NoSuchPosition) => Ok(None),
        other => Err(format!("seek {what:?} from {offset} of {size} answers {other:?}")),
    };
    if offset >= size {
        return Ok(None);
    }
    let Some(start) = seek(offset, Seek::Data)? else { return Ok(None) };
    match seek(start, Seek::Hole)? {
        Some(end) if end > start => Ok(Some((start, end))),
        other => Err(format!("data at {start}, but the next hole is at {other:?}")),
    }
}

fn read_range(target: &dyn Target, node: NodeId, start: u64, end: u64, into: &mut Content) -> Verdict {
    let mut at = start;
    while at < end {
        let len = READ_BYTES.min(end - at);
        match target.call(&ctx_of(0), Op::Read { node, offset: at, len: len as u32 }) {
            Ok(Reply::Data(data)) if data.len() as u64 == len => into.write(at, &data),
            Ok(Reply::Data(data)) => return Err(format!("read {len} at {at}: got {}", data.len())),
            other => return Err(format!("read {len} at {at} answers {other:?}")),
        }
        at += len;
    }
    Ok(())
}
