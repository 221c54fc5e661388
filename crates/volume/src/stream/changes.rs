//! What leads from one tree to another, by inode numbers: names that go and come, inodes that are
//! new, and inodes of which something differs.
//!
//! Found from the deadlist, in time proportional to what changed; only new directories are listed.
//! That takes turns, as other background work does.
//! Both sides of a stream find the same: what differs in records and not in what users see is left
//! out, and so is what no name leads to.

use super::receive::STAGING;
use crate::cell::turns::Paced;
use crate::format::inode::{Dentry, Inode};
use crate::format::keys::Key;
use crate::snapshots::diff::{Differing, TreeAt};
use crate::snapshots::tree::{Name, Tree};
use leeward_fs::{Kind, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// The root directory of each volume.
const ROOT: u64 = 1;
/// Names or inodes that are looked at in a turn.
const STEP: usize = 1024;

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
    pub(crate) fn find<'a>(
        paced: Paced<'_>,
        (old, new): (&mut Reached<'a>, &mut Reached<'a>),
        differing: &Differing,
    ) -> Result<Changes> {
        let mut finding =
            Finding { changes: Changes::default(), old, new, lost: Vec::new(), lists: Vec::new() };
        if finding.old.tree.is_none() {
            finding.changes.touched.insert(ROOT);
            finding.lists.push((ROOT, None));
        }
        let mut names = differing.names.iter();
        while paced.step(|| finding.look_at_names(&mut names, paced.size(STEP)))? {}
        let mut inodes = differing.inodes.keys();
        while paced.step(|| finding.look_at_inodes(&mut inodes, paced.size(STEP)))? {}
        let mut changes = finding.changes;
        changes.listed.sort_unstable();
        Ok(changes)
    }
}

/// Finds changes, some at a time. What is found, and in which order, does not depend on how many.
struct Finding<'f, 'a> {
    changes: Changes,
    old: &'f mut Reached<'a>,
    new: &'f mut Reached<'a>,
    /// Names that go and are still to be looked at, the next one at the end; and old directories
    /// whose names go, and where to read on.
    lost: Vec<Lost>,
    /// New directories that are still to be listed, and where to read on.
    lists: Vec<(u64, Option<Key>)>,
}

enum Lost {
    Name(Name, Dentry),
    AllOf(u64, Option<Key>),
}

impl Finding<'_, '_> {
    /// Looks at names that differ, and at what comes and goes with them. Whether there is more.
    fn look_at_names<'n>(&mut self, names: &mut impl Iterator<Item = &'n Name>, most: usize) -> Result<bool> {
        let mut done = 0;
        while done < most {
            done += if let Some(lost) = self.lost.pop() {
                self.lose(lost)?
            } else if let Some((dir, from)) = self.lists.pop() {
                self.list(dir, from)?
            } else if let Some(name) = names.next() {
                self.compare(name)?;
                1
            } else {
                return Ok(false);
            };
        }
        Ok(true)
    }

    /// Looks at inodes of which records differ. Whether there are more.
    fn look_at_inodes<'n>(
        &mut self,
        inodes: &mut impl Iterator<Item = &'n u64>,
        most: usize,
    ) -> Result<bool> {
        for _ in 0..most {
            let Some(inode) = inodes.next() else { return Ok(false) };
            let is_new = self.changes.made.contains(inode);
            if !is_new && self.old.inode(*inode)?.is_some() && self.new.inode(*inode)?.is_some() {
                self.changes.touched.insert(*inode);
            }
        }
        Ok(true)
    }

    fn compare(&mut self, name: &Name) -> Result<()> {
        // of what is there now: what is on its way has no place in the tree
        let in_tree = |entry: &Dentry| entry.node.inode() != STAGING;
        let (was, is) = (self.old.entry(name)?.filter(in_tree), self.new.entry(name)?.filter(in_tree));
        if was.map(|d| d.node.inode()) == is.map(|d| d.node.inode()) {
            return Ok(());
        }
        if let Some(was) = was {
            // those of a directory that goes, too, come with it
            if self.new.reaches(name.0)? {
                self.lost.push(Lost::Name(name.clone(), was));
            }
        }
        if let Some(is) = is
            && self.old.inode(name.0)?.is_some()
        {
            self.changes.named.push((name.clone(), is.node.inode()));
            if self.is_new_dir(&is)? {
                self.lists.push((is.node.inode(), None));
            }
        }
        Ok(())
    }

    /// A name goes, and with a directory that goes all names that it had: whether they are gone
    /// from records, or are being freed, or the directory was removed as a whole. Returns how much
    /// was looked at.
    fn lose(&mut self, lost: Lost) -> Result<usize> {
        let (name, entry) = match lost {
            Lost::Name(name, entry) => (name, entry),
            Lost::AllOf(dir, from) => return self.lose_all_of(dir, from),
        };
        let inode = entry.node.inode();
        let stays = self.new.inode(inode)?.is_some();
        self.changes.gone.push(Gone { name, inode, stays });
        if stays {
            self.changes.touched.insert(inode);
            self.changes.lost.insert(inode);
        }
        if entry.kind == Kind::Dir && !stays {
            self.lost.push(Lost::AllOf(inode, None));
        }
        Ok(1)
    }

    fn lose_all_of(&mut self, dir: u64, from: Option<Key>) -> Result<usize> {
        let Some(tree) = self.old.tree else { return Ok(1) };
        let before = self.lost.len();
        let next = tree.page(dir, from, |name, entry| self.lost.push(Lost::Name((dir, name), entry)))?;
        let found = self.lost.len() - before;
        if next.is_some() {
            // before those that were found: the last name of all is the next
            self.lost.push(Lost::AllOf(dir, next));
        }
        Ok(found + 1)
    }

    /// A name leads to an inode, which is noted if it is new; whether it is a directory that was
    /// not met before.
    fn is_new_dir(&mut self, entry: &Dentry) -> Result<bool> {
        let inode = entry.node.inode();
        Ok(self.old.inode(inode)?.is_none() && self.changes.made.insert(inode) && entry.kind == Kind::Dir)
    }

    /// Returns how many names were found.
    fn list(&mut self, dir: u64, from: Option<Key>) -> Result<usize> {
        let Some(tree) = self.new.tree else { return Ok(1) };
        if from.is_none() {
            self.changes.listed.push(dir);
        }
        let mut found = Vec::new();
        let next = tree.page(dir, from, |_, entry| found.push(entry))?;
        if next.is_some() {
            self.lists.push((dir, next));
        }
        for entry in &found {
            if self.is_new_dir(entry)? {
                self.lists.push((entry.node.inode(), None));
            }
        }
        Ok(found.len() + 1)
    }
}
