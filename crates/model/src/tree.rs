//! A whole tree read from a target once, with all snapshots, to be compared with several states of
//! the model.

use crate::compare::{list_all, read_content, same, same_shown};
use crate::content::Content;
use crate::harness::Target;
use crate::model::{Model, ROOT};
use crate::node::{Body, Ino, Name, Node};
use crate::side::ctx_of;
use crate::snapshots::{Namespace, View, place, snap_dir_of};
use crate::step::Path;
use crate::step::SNAP_DIR;
use crate::text::escape;
use leeward_fs::{Attr, Kind, NodeId, Op, Reply};
use std::collections::BTreeMap;

/// One inode as found.
#[derive(Clone, Debug)]
struct Found {
    attr: Attr,
    xattrs: BTreeMap<Name, Vec<u8>>,
    content: Option<Content>,
    link: Option<Vec<u8>>,
    entries: BTreeMap<Name, NodeId>,
    snap_dir: Option<NodeId>,
}

/// A tree as found.
#[derive(Clone, Debug)]
pub struct Tree {
    root: NodeId,
    nodes: BTreeMap<NodeId, Found>,
}

impl Tree {
    /// Reads everything. Fails where something cannot be read: a name without its inode, damaged
    /// content.
    pub fn read(target: &dyn Target) -> Result<Tree, String> {
        let root = target.root();
        let mut tree = Tree { root, nodes: BTreeMap::new() };
        let mut pending = vec![(Path::default(), root)];
        while let Some((path, node)) = pending.pop() {
            if tree.nodes.contains_key(&node) {
                continue;
            }
            let mut found = read_inode(target, node).map_err(|e| format!("{path}: {e}"))?;
            if found.attr.kind == Kind::Dir && target.has_snapshots() && !path.in_snapshots() {
                let snap_dir = read_snap_dir(target, node).map_err(|e| format!("{path}: {e}"))?;
                pending.push((path.join(SNAP_DIR), snap_dir));
                found.snap_dir = Some(snap_dir);
            }
            pending.extend(found.entries.iter().map(|(name, &child)| (path.join(name), child)));
            tree.nodes.insert(node, found);
        }
        Ok(tree)
    }

    /// The content of a file.
    pub fn content(&self, node: NodeId) -> Option<&Content> {
        self.nodes.get(&node)?.content.as_ref()
    }

    /// Compares names, link structure and attributes with the model, also in snapshots; size and
    /// times only there: live, they may be others after a crash. Returns the mapping of inodes.
    /// Snapshots that are missing and not `durable` are dropped from the model.
    pub fn same_names(
        &self,
        model: &mut Model,
        durable: impl Fn(View) -> bool,
    ) -> Result<Vec<(Path, Ino, NodeId)>, String> {
        let mut seen: BTreeMap<NodeId, Ino> = BTreeMap::new();
        let mut inodes: BTreeMap<Ino, NodeId> = BTreeMap::new();
        let mut out = vec![(Path::default(), ROOT, self.root)];
        let mut next = 0;
        while let Some((path, ino, node)) = out.get(next).cloned() {
            let at = |e: String| format!("{path}: {e}");
            let known = seen.contains_key(&node) || inodes.contains_key(&ino);
            same("link structure: inode", ino, *seen.entry(node).or_insert(ino)).map_err(at)?;
            same("link structure: inode", node, *inodes.entry(ino).or_insert(node)).map_err(at)?;
            if known {
                out.remove(next);
                continue;
            }
            next += 1;
            let found = self.nodes.get(&node).ok_or_else(|| at("not read".to_string()))?;
            if let Some(snap_dir) = found.snap_dir {
                self.drop_lost(model, ino, snap_dir, &durable).map_err(at)?;
                out.push((path.join(SNAP_DIR), snap_dir_of(ino), snap_dir));
            }
            let want = model.inode(ino).map_err(|e| at(e.to_string()))?;
            same_inode(&want, ino, found).map_err(at)?;
            same_shown(model, ino, &found.attr).map_err(at)?;
            let children = model.children(ino).into_iter().flatten().zip(found.entries.values());
            out.extend(children.map(|((name, ino), &node)| (path.join(&name), ino, node)));
        }
        Ok(out)
    }

    /// Drops the snapshots of `dir` that were not durable and did not survive.
    fn drop_lost(
        &self,
        model: &mut Model,
        dir: Ino,
        snap_dir: NodeId,
        durable: &impl Fn(View) -> bool,
    ) -> Result<(), String> {
        let found = self.nodes.get(&snap_dir).ok_or(".snap: not read")?;
        let own = model.snapshots().filter(|(_, s)| s.dir == dir && !found.entries.contains_key(&s.name));
        let lost: Vec<(View, Name)> = own.map(|(view, s)| (view, s.name.clone())).collect();
        for (view, name) in lost {
            if durable(view) {
                return Err(format!("snapshot {} was durable and is not there", escape(&name)));
            }
            model.drop_snapshot(view);
        }
        Ok(())
    }
}

fn same_inode(want: &Node, ino: Ino, found: &Found) -> Result<(), String> {
    let (w, g) = (want.attr(ino), found.attr);
    same("kind", w.kind, g.kind)?;
    let octal = |mode: u32| format!("{mode:o}");
    same("mode", octal(w.mode), octal(g.mode))?;
    same("flags", w.flags, g.flags)?;
    same("owner", (w.uid, w.gid), (g.uid, g.gid))?;
    same("nlink", w.nlink, g.nlink)?;
    if matches!(w.kind, Kind::CharDev | Kind::BlockDev) {
        same("rdev", w.rdev, g.rdev)?;
    }
    let names = |names: Vec<&Name>| names.into_iter().map(|n| escape(n)).collect::<Vec<_>>();
    same("attributes", names(want.xattrs.keys().collect()), names(found.xattrs.keys().collect()))?;
    if let Some((name, _)) =
        want.xattrs.iter().find(|(n, v)| found.xattrs.get(*n).is_none_or(|f| **f != ***v))
    {
        return Err(format!("attribute {}: other value", escape(name)));
    }
    match &want.body {
        Body::Symlink(target) => {
            same("target", escape(target), escape(found.link.as_deref().unwrap_or_default()))
        }
        Body::Dir { entries, .. } => {
            same("names", names(entries.keys().collect()), names(found.entries.keys().collect()))
        }
        Body::File(content) if place(ino) != Namespace::Live => {
            let got = found.content.clone().unwrap_or_default();
            match content.first_difference(&got) {
                None => Ok(()),
                Some(at) => Err(format!("content in the snapshot differs at {at}")),
            }
        }
        Body::File(_) | Body::Special(..) => Ok(()),
    }
}

fn read_inode(target: &dyn Target, node: NodeId) -> Result<Found, String> {
    let attr = match target.call(&ctx_of(0), Op::GetAttr { node }) {
        Ok(Reply::Attr(attr)) => attr,
        other => return Err(format!("GetAttr answers {other:?}")),
    };
    let mut found = Found {
        attr,
        xattrs: read_xattrs(target, node)?,
        content: None,
        link: None,
        entries: BTreeMap::new(),
        snap_dir: None,
    };
    match attr.kind {
        Kind::File => found.content = Some(read_content(target, node)?),
        Kind::Symlink => match target.call(&ctx_of(0), Op::ReadLink { node }) {
            Ok(Reply::Data(link)) => found.link = Some(link),
            other => return Err(format!("ReadLink answers {other:?}")),
        },
        Kind::Dir => {
            let entries = list_all(target, node, false)?;
            found.entries = entries.into_iter().map(|e| (e.name, e.node)).collect();
        }
        _ => {}
    }
    Ok(found)
}

fn read_snap_dir(target: &dyn Target, dir: NodeId) -> Result<NodeId, String> {
    match target.call(&ctx_of(0), Op::Lookup { dir, name: SNAP_DIR }) {
        Ok(Reply::Attr(attr)) => Ok(attr.node),
        other => Err(format!("looking up .snap answers {other:?}")),
    }
}

fn read_xattrs(target: &dyn Target, node: NodeId) -> Result<BTreeMap<Name, Vec<u8>>, String> {
    let names = match target.call(&ctx_of(0), Op::ListXattr { node }) {
        Ok(Reply::Names(names)) => names,
        other => return Err(format!("ListXattr answers {other:?}")),
    };
    let read = |name: Name| match target.call(&ctx_of(0), Op::GetXattr { node, name: &name }) {
        Ok(Reply::Data(value)) => Ok((name, value)),
        other => Err(format!("GetXattr {} answers {other:?}", escape(&name))),
    };
    names.into_iter().filter(|n| n.starts_with(b"user.")).map(read).collect()
}
