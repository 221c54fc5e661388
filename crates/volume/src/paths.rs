//! Paths within the cell: for operators, messages and reports. No operation of a front end goes by
//! path.

use crate::format::inode::Dentry;
use crate::format::keys::{self, tag};
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_fs::{Error, NodeId, Result};
use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::rc::Rc;

/// Longest path that lists show as it is, bytes: a system call takes none that is longer.
pub(crate) const SHOWN_BYTES_MAX: usize = 4096;
/// Bytes of paths that a list remembers.
const KNOWN_BYTES_MAX: usize = 16 << 20;
/// Levels that a list looks up.
const LEVELS_MAX: usize = 65_536;

/// A path as lists show it, with a slash in front; nothing for the top. Of one whose directory has
/// more than [`SHOWN_BYTES_MAX`] bytes the names at its beginning, `…` and its last name. So trees
/// with long paths make no list large, and what is below such a directory shares its text.
#[derive(Clone, Default)]
pub(crate) struct ShownPath {
    begin: Rc<[u8]>,
    /// Whether names behind `begin` are left out.
    is_cut: bool,
    /// The last name, where `begin` does not have it.
    last: Option<Rc<[u8]>>,
}

impl ShownPath {
    /// What has this name in the directory of this path.
    pub(crate) fn with(&self, name: &[u8]) -> ShownPath {
        if self.last.is_none() && self.begin.len() + 1 + name.len() <= SHOWN_BYTES_MAX {
            let begin = [&self.begin[..], b"/", name].concat().into();
            return ShownPath { begin, ..ShownPath::default() };
        }
        ShownPath { begin: self.begin.clone(), is_cut: self.last.is_some(), last: Some(name.into()) }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let left_out = if self.is_cut { "/…".as_bytes() } else { b"" };
        match &self.last {
            Some(last) => [&self.begin[..], left_out, b"/", last].concat(),
            None => self.begin.to_vec(),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

/// Paths that a list has looked up. It forgets them when they become too many.
pub(crate) struct KnownPaths<K> {
    paths: FxHashMap<K, Option<ShownPath>>,
    bytes: usize,
}

impl<K> Default for KnownPaths<K> {
    fn default() -> KnownPaths<K> {
        KnownPaths { paths: FxHashMap::default(), bytes: 0 }
    }
}

impl<K: Hash + Eq> KnownPaths<K> {
    pub(crate) fn get(&self, key: &K) -> Option<&Option<ShownPath>> {
        self.paths.get(key)
    }

    pub(crate) fn insert(&mut self, key: K, path: Option<ShownPath>) {
        if self.bytes > KNOWN_BYTES_MAX {
            (self.paths, self.bytes) = Default::default();
        }
        let own = |path: &ShownPath| path.last.as_ref().map_or(path.begin.len(), |last| last.len());
        self.bytes += size_of::<(K, Option<ShownPath>)>() + path.as_ref().map_or(0, own);
        self.paths.insert(key, path);
    }
}

/// Finds the paths of directories for a list.
pub(crate) struct DirPaths<'a> {
    shard: &'a Shard,
    known: KnownPaths<NodeId>,
}

impl<'a> DirPaths<'a> {
    pub(crate) fn new(shard: &'a Shard) -> DirPaths<'a> {
        DirPaths { shard, known: KnownPaths::default() }
    }

    /// The path of a directory. `removed` tells which directory and name one in a recycle bin had.
    pub(crate) fn of(
        &mut self,
        dir: NodeId,
        removed: impl Fn(NodeId) -> Option<(NodeId, Box<[u8]>)>,
    ) -> ShownPath {
        let (mut at, mut below) = (dir, Vec::new());
        let mut path = loop {
            if at == NodeId::ROOT {
                break ShownPath::default();
            }
            if let Some(Some(known)) = self.known.get(&at) {
                break known.clone();
            }
            let place = removed(at).or_else(|| self.shard.dir_and_name(at));
            match place.filter(|_| below.len() < LEVELS_MAX) {
                Some((above, name)) => {
                    below.push((at, name));
                    at = above;
                }
                None => {
                    let begin = format!("inode {at:?}").into_bytes().into();
                    break ShownPath { begin, ..ShownPath::default() };
                }
            }
        };
        for (at, name) in below.into_iter().rev() {
            path = path.with(&name);
            self.known.insert(at, Some(path.clone()));
        }
        path
    }
}

impl Shard {
    /// The inode at an absolute path; symbolic links are not followed.
    pub(crate) fn resolve(&self, path: &str) -> Result<NodeId> {
        // for somebody, who may have made it just now on another machine
        let ctx = Ctx::user(0, 0);
        let mut node = NodeId::ROOT;
        for part in Path::new(path).components() {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => {
                    let entry = self
                        .beside(node, |shard| shard.transact(&ctx, |tx| tx.dentry(node, name.as_bytes())))?;
                    let above = std::mem::replace(&mut node, entry.ok_or(Error::NotFound)?.node);
                    if !self.which.has(above) || !self.which.has(node) {
                        node = self.beside(node, |shard| Ok(shard.lock().shown(above, node)))?;
                    }
                }
                _ => return Err(Error::Invalid),
            }
        }
        Ok(node)
    }

    /// What is at a path, or the last on the way that is there, outside of snapshots.
    pub(crate) fn resolve_near(&self, path: &str) -> NodeId {
        self.nearest(path).unwrap_or_else(|nearest| nearest)
    }

    /// Asks the shard that has an inode.
    pub(crate) fn beside<T>(&self, node: NodeId, ask: impl FnOnce(&Shard) -> Result<T>) -> Result<T> {
        if self.which.has(node) {
            return ask(self);
        }
        self.ask(node.shard(), ask)
    }

    /// Asks a shard.
    pub(crate) fn ask<T>(&self, shard: usize, ask: impl FnOnce(&Shard) -> Result<T>) -> Result<T> {
        if shard == self.which.index {
            return ask(self);
        }
        let other = self.all.get().and_then(|all| all.get(shard)?.upgrade());
        ask(&*other.ok_or(Error::Stale)?)
    }

    /// What is at a path, outside of snapshots; `Err`: the last on the way that is there.
    pub(crate) fn nearest(&self, path: &str) -> std::result::Result<NodeId, NodeId> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(NodeId::ROOT, |dir, name| {
            let look = |shard: &Shard| shard.transact(&Ctx::user(0, 0), |tx| tx.dentry(dir, name.as_bytes()));
            let found = self.beside(dir, look);
            found.ok().flatten().map(|entry| entry.node).filter(|node| !node.is_view()).ok_or(dir)
        })
    }

    /// One path of an inode; `None` when it has none.
    pub(crate) fn path_of(&self, node: NodeId) -> Option<String> {
        let mut names: Vec<String> = Vec::new();
        let mut at = node;
        while at != NodeId::ROOT {
            let (dir, name) = self.dir_and_name(at).filter(|_| names.len() <= 4096)?;
            names.push(String::from_utf8_lossy(&name).into_owned());
            at = dir;
        }
        names.reverse();
        Some(format!("/{}", names.join("/")))
    }

    /// The path of an inode for people, as [`ShownPath`] has it.
    pub(crate) fn describe(&self, node: NodeId) -> String {
        let Some(path) = self.path_of(node) else { return format!("inode {node:?}") };
        let (dir, name) = path.rsplit_once('/').unwrap_or_default();
        if dir.len() <= SHOWN_BYTES_MAX {
            return path;
        }
        let end = dir.as_bytes()[..=SHOWN_BYTES_MAX].iter().rposition(|b| *b == b'/');
        format!("{}/…/{name}", &dir[..end.unwrap_or_default()])
    }

    /// The directory that an inode is in, and its name there; `None`: it has none.
    fn dir_and_name(&self, node: NodeId) -> Option<(NodeId, Box<[u8]>)> {
        self.beside(node, |shard| Ok(shard.own_dir_and_name(node))).ok()?
    }

    fn own_dir_and_name(&self, node: NodeId) -> Option<(NodeId, Box<[u8]>)> {
        let place = if node.inode() == 1 {
            let st = self.lock();
            let volume = st.volumes.get(&node.volume())?;
            (volume.attached_dir, volume.attached_name.clone())
        } else {
            let inode = self.transact(&Ctx::system(), |tx| tx.inode(node)).ok()?;
            let dir = NodeId::new(node.volume(), inode.parent);
            (dir, self.name_in(dir, node, inode.name)?)
        };
        Some(place).filter(|(dir, _)| dir.inode() != 0)
    }

    /// The name of `node` in `dir`: `hint`, if that leads there, else the result of a search
    /// through the directory.
    fn name_in(&self, dir: NodeId, node: NodeId, hint: Option<Box<[u8]>>) -> Option<Box<[u8]>> {
        if let Some(name) = hint
            && self.transact(&Ctx::system(), |tx| tx.dentry(dir, &name)).ok()?.is_some_and(|d| d.node == node)
        {
            return Some(name);
        }
        let (mut from, to) = keys::tag_range(dir, tag::DENTRY);
        loop {
            let (page, next) = self.scan(&from, &to, 1024).ok()?;
            for (key, value) in &page {
                if Dentry::decode(value).is_ok_and(|d| d.node == node) {
                    return keys::parse(key).map(|p| p.rest.into());
                }
            }
            from = next?;
        }
    }
}
