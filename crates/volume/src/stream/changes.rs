//! What leads from one tree to another, by inode numbers: names that go and come, inodes that are
//! new, and inodes of which something differs.
//!
//! Found from the deadlist, in time proportional to what changed; only new directories are listed.
//! Both sides of a stream find the same: what differs in records and not in what users see is left
//! out, and so is what no name leads to.

use super::receive::STAGING;
use crate::format::inode::{Dentry, Inode};
use crate::snapshots::diff::{Differing, TreeAt};
use crate::snapshots::tree::{Name, Tree};
use leeward_fs::{Kind, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// The root directory of each volume.
const ROOT: u64 = 1;

/// A tree, or none, and which of its inodes names lead to.
pub(crate) struct Reached<'a> {
    pub(crate) tree: Option<Tree<'a>>,
    /// Directories, and whether they are below the root.
    known: FxHashMap<u64, bool>,
    /// For inodes with several names.
    names: Option<TreeAt<'a>>,
}

impl<'a> Reached<'a> {
    pub(crate) fn new(tree: Option<Tree<'a>>) -> Reached<'a> {
        Reached { tree, known: FxHashMap::default(), names: None }
    }

    /// The inode, if names lead to it.
    pub(crate) fn inode(&mut self, inode: u64) -> Result<Option<Inode>> {
        let Some(tree) = &self.tree else { return Ok(None) };
        let found = tree.inode(inode)?.filter(|record| record.nlink > 0);
        match found {
            Some(record) if inode == ROOT || self.reaches(record.parent)? => Ok(Some(record)),
            // that is only one of its directories
            Some(record) if record.linked && self.reaches_another_name(inode, &record)? => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    /// Whether a name of an inode leads to it that is not in the directory of its record. That one
    /// is being freed.
    fn reaches_another_name(&mut self, inode: u64, record: &Inode) -> Result<bool> {
        let Some(tree) = self.tree else { return Ok(false) };
        let names = self.names.get_or_insert_with(|| TreeAt::new(tree.shard, tree.volume, ROOT));
        for name in names.names_of_linked(inode, record)? {
            if self.reaches(name.0)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a directory is below the root, or is the root.
    fn reaches(&mut self, dir: u64) -> Result<bool> {
        let Some(tree) = self.tree else { return Ok(false) };
        let (mut above, mut at) = (Vec::new(), dir);
        let reached = loop {
            if at == ROOT {
                break true;
            }
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            above.push(at);
            match tree.inode(at)? {
                Some(record) if record.is_dir() && record.nlink > 0 => at = record.parent,
                _ => break false,
            }
        };
        self.known.extend(above.into_iter().map(|dir| (dir, reached)));
        Ok(reached)
    }

    fn entry(&mut self, name: &Name) -> Result<Option<Dentry>> {
        let Some(tree) = self.tree else { return Ok(None) };
        if self.reaches(name.0)? { tree.dentry(name) } else { Ok(None) }
    }
}

/// A name that goes.
pub(crate) struct Gone {
    pub(crate) name: Name,
    pub(crate) inode: u64,
    /// Whether the inode is there afterwards.
    pub(crate) stays: bool,
}

/// What leads from one tree to another.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) gone: Vec<Gone>,
    /// New inodes.
    pub(crate) made: BTreeSet<u64>,
    /// New names in directories that were there.
    pub(crate) named: Vec<(Name, u64)>,
    /// Directories all of whose names are new.
    pub(crate) listed: Vec<u64>,
    /// Inodes that were there, of which records differ.
    pub(crate) touched: BTreeSet<u64>,
    /// Touched inodes that lose a name. Losing one changes their times at the receiver, also where
    /// the source removes the name later: in a tree that was replaced names are freed one by one.
    pub(crate) lost: FxHashSet<u64>,
}

impl Changes {
    /// From nothing to a tree, or from one to another by what differs.
    pub(crate) fn find(
        old: &mut Reached<'_>,
        new: &mut Reached<'_>,
        differing: &Differing,
    ) -> Result<Changes> {
        let mut changes = Changes::default();
        if old.tree.is_none() {
            changes.touched.insert(ROOT);
            changes.list(old, new, ROOT)?;
        }
        for name in &differing.names {
            changes.compare(old, new, name)?;
        }
        for inode in differing.inodes.keys() {
            if !changes.made.contains(inode) && old.inode(*inode)?.is_some() && new.inode(*inode)?.is_some() {
                changes.touched.insert(*inode);
            }
        }
        changes.listed.sort_unstable();
        Ok(changes)
    }

    fn compare(&mut self, old: &mut Reached<'_>, new: &mut Reached<'_>, name: &Name) -> Result<()> {
        // of what is there now: what is on its way has no place in the tree
        let in_tree = |entry: &Dentry| entry.node.inode() != STAGING;
        let (was, is) = (old.entry(name)?.filter(in_tree), new.entry(name)?.filter(in_tree));
        if was.map(|d| d.node.inode()) == is.map(|d| d.node.inode()) {
            return Ok(());
        }
        if let Some(was) = was {
            // those of a directory that goes, too, come with it
            if new.reaches(name.0)? {
                self.lose(old, new, (name.clone(), was))?;
            }
        }
        if let Some(is) = is
            && old.inode(name.0)?.is_some()
        {
            self.named.push((name.clone(), is.node.inode()));
            if self.is_new_dir(old, &is)? {
                self.list(old, new, is.node.inode())?;
            }
        }
        Ok(())
    }

    /// A name goes, and with a directory that goes all names that it had: whether they are gone
    /// from records, or are being freed, or the directory was removed as a whole.
    fn lose(&mut self, old: &mut Reached<'_>, new: &mut Reached<'_>, gone: (Name, Dentry)) -> Result<()> {
        let Some(tree) = old.tree else { return Ok(()) };
        let mut waiting = vec![gone];
        while let Some((name, entry)) = waiting.pop() {
            let inode = entry.node.inode();
            let stays = new.inode(inode)?.is_some();
            self.gone.push(Gone { name, inode, stays });
            if stays {
                self.touched.insert(inode);
                self.lost.insert(inode);
            }
            if entry.kind == Kind::Dir && !stays {
                tree.list(inode, |name, entry| waiting.push(((inode, name), entry)))?;
            }
        }
        Ok(())
    }

    /// A name leads to an inode, which is noted if it is new; whether it is a directory that was
    /// not met before.
    fn is_new_dir(&mut self, old: &mut Reached<'_>, entry: &Dentry) -> Result<bool> {
        let inode = entry.node.inode();
        Ok(old.inode(inode)?.is_none() && self.made.insert(inode) && entry.kind == Kind::Dir)
    }

    fn list(&mut self, old: &mut Reached<'_>, new: &mut Reached<'_>, dir: u64) -> Result<()> {
        let Some(tree) = new.tree else { return Ok(()) };
        let mut waiting = vec![dir];
        while let Some(dir) = waiting.pop() {
            self.listed.push(dir);
            let mut found = Vec::new();
            tree.list(dir, |_, entry| found.push(entry))?;
            for entry in found {
                if self.is_new_dir(old, &entry)? {
                    waiting.push(entry.node.inode());
                }
            }
        }
        Ok(())
    }
}
