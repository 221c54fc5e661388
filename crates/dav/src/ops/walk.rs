//! A walk through a directory and everything below it, for removing and copying.
//!
//! Each directory is entered from its parent and stays the same from then on: names that are
//! changed meanwhile, also to symbolic links, lead nowhere. Memory and depth are bounded.

use crate::path::{DEPTH_MAX, DavPath};
use leeward_door::limits::LIST_STEP;
use leeward_door::{Path, Tree};
use leeward_fs::{Attr, Entry, Error, Kind, NodeId, Result};

/// Fewest names that are listed at a time, however deep the walk is.
const NAMES_MIN: usize = 16;

/// A walk in progress. `T`: data of the caller for each directory.
pub(crate) struct Walk<T> {
    top: DavPath,
    levels: Vec<Level<T>>,
}

struct Level<T> {
    tree: Tree,
    node: NodeId,
    name: Box<[u8]>,
    after: Box<[u8]>,
    dirs: std::vec::IntoIter<Entry>,
    at_end: bool,
    with: T,
}

/// What the walk has met.
pub(crate) enum Step<T> {
    /// Entries of the current directory that are no directories.
    Entries(Vec<Entry>),
    /// A directory in it: the caller enters it, or leaves it alone.
    Dir(Entry),
    /// The current directory cannot be listed (further).
    Failed(Error),
    /// A directory of this name in the current one is finished; for the top directory the name is
    /// empty.
    Done(Box<[u8]>, Tree, T),
}

/// A name as a path.
pub(crate) fn path_of(name: &[u8]) -> Path {
    Path::parse(name).expect("a name is a path")
}

impl<T> Walk<T> {
    /// A walk through the directory with this number, as the user of this tree; `at`: its path.
    pub(crate) fn new(tree: &Tree, node: NodeId, at: &DavPath, with: T) -> Walk<T> {
        let mut walk = Walk { top: at.clone().with_slash(false), levels: Vec::new() };
        walk.push(tree.within(node), node, Box::default(), with);
        walk
    }

    fn push(&mut self, tree: Tree, node: NodeId, name: Box<[u8]>, with: T) {
        let dirs = Vec::new().into_iter();
        self.levels.push(Level { tree, node, name, after: Box::default(), dirs, at_end: false, with });
    }

    /// The next thing to do; `None`: that was all.
    pub(crate) async fn next(&mut self) -> Option<Step<T>> {
        let limit = (LIST_STEP / self.levels.len().max(1)).max(NAMES_MIN);
        loop {
            let level = self.levels.last_mut()?;
            if let Some(dir) = level.dirs.next() {
                return Some(Step::Dir(dir));
            }
            if level.at_end {
                let level = self.levels.pop()?;
                return Some(Step::Done(level.name, level.tree, level.with));
            }
            match level.tree.list(&Path::default(), &level.after, limit).await {
                Ok((entries, at_end)) => {
                    level.at_end = at_end || entries.is_empty();
                    level.after = entries.last().map(|entry| entry.name.clone()).unwrap_or_default();
                    let (dirs, others): (Vec<Entry>, Vec<Entry>) =
                        entries.into_iter().partition(|entry| entry.kind == Kind::Dir);
                    level.dirs = dirs.into_iter();
                    if !others.is_empty() {
                        return Some(Step::Entries(others));
                    }
                }
                Err(e) => {
                    level.at_end = true;
                    return Some(Step::Failed(e));
                }
            }
        }
    }

    /// Enters a directory of the current one, which was met under this name, if `may` accepts the
    /// inode that has the name now.
    ///
    /// # Errors
    /// As for `stat`; [`Error::NotDir`]: it is none any more; [`Error::NameTooLong`]: too deep;
    /// those of `may`.
    pub(crate) async fn enter(
        &mut self,
        dir: &Entry,
        with: T,
        may: impl FnOnce(NodeId, &Attr) -> Result<()>,
    ) -> Result<()> {
        if self.levels.len() >= DEPTH_MAX {
            return Err(Error::NameTooLong);
        }
        let there = self.tree().spot(&path_of(&dir.name), false).await?.attr.ok_or(Error::NotFound)?;
        if there.kind != Kind::Dir {
            return Err(Error::NotDir);
        }
        may(self.node(), &there)?;
        self.push(self.tree().within(there.node), there.node, dir.name.clone(), with);
        Ok(())
    }

    fn here(&self) -> &Level<T> {
        self.levels.last().expect("a walk that is not at its end is somewhere")
    }

    /// The current directory.
    pub(crate) fn tree(&self) -> &Tree {
        &self.here().tree
    }

    /// Its number.
    pub(crate) fn node(&self) -> NodeId {
        self.here().node
    }

    /// The caller's data for it.
    pub(crate) fn with(&self) -> &T {
        &self.here().with
    }

    /// Path of an entry; with an empty name, of the current directory.
    pub(crate) fn at(&self, name: &[u8]) -> DavPath {
        let names = self.levels.iter().map(|level| &*level.name).chain([name]);
        names.filter(|name| !name.is_empty()).fold(self.top.clone(), |at, name| at.join(name))
    }
}
