//! Differences between two snapshots, or a snapshot and now, in time proportional to what changed.
//!
//! The deadlist shows the differences: the records that died after the older state and had been
//! born by then, and the names that did not exist before. A changed file's inode has its name.
//! Where it does not (hard links, records of old formats), its directory is read up to that name.
//! Only trees that were moved in or out are read as a whole.

use crate::admin::{Change, ChangeKind, PathText, Progress};
use crate::cell::turns::Paced;
use crate::format::inode::{Inode, time};
use crate::format::keys::{self, Dead, Key, tag};
use crate::ops::PAGE;
use crate::paths::{KnownPaths, ShownPath};
use crate::shard::Shard;
use crate::snapshots::tree::{Name, Tree};
use crate::state::snapshots::View;
use leeward_fs::{Error, Kind, NodeId, Result};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Most bytes of the changes that one answer tells.
const CHANGES_BYTES_MAX: usize = 64 << 20;

/// The same tree at one of two times.
pub(crate) struct TreeAt<'a> {
    tree: Tree<'a>,
    /// The directory that paths begin at.
    top: u64,
    /// Paths of directories; `None`: not below `top`.
    paths: KnownPaths<u64>,
    /// Known names of inodes.
    names: FxHashMap<u64, Name>,
    /// Directories that were read to find names, and where to continue; `None`: all of it is in
    /// `names`.
    read: FxHashMap<u64, Option<Key>>,
    /// The inodes with several names of directories that were read as a whole, by directory and
    /// inode.
    links: FxHashMap<u64, FxHashMap<u64, Vec<Name>>>,
    /// The same for names that are gone since; `None`: not searched yet.
    gone: Option<FxHashMap<u64, Vec<Name>>>,
}

impl<'a> TreeAt<'a> {
    pub(crate) fn new(shard: &'a Shard, volume: u32, top: u64) -> TreeAt<'a> {
        TreeAt {
            tree: Tree { shard, volume },
            top,
            paths: KnownPaths::default(),
            names: FxHashMap::default(),
            read: FxHashMap::default(),
            links: FxHashMap::default(),
            gone: None,
        }
    }

    fn leads_to(&self, name: &Name, inode: u64) -> Result<bool> {
        Ok(self.tree.dentry(name)?.is_some_and(|d| d.node.inode() == inode))
    }

    /// A name of an inode in the directory that its record names.
    fn name_of(&mut self, inode: u64, record: &Inode) -> Result<Option<Name>> {
        let parent = record.parent;
        if let Some(name) = record.name.clone().map(|name| (parent, name))
            && !record.linked
            && !self.names.contains_key(&inode)
            && self.leads_to(&name, inode)?
        {
            self.names.insert(inode, name);
        }
        while !self.names.contains_key(&inode) {
            let from = match self.read.get(&parent) {
                Some(None) => return Ok(None),
                Some(from) => from.clone(),
                None => None,
            };
            let mut found = Vec::new();
            let next = self
                .tree
                .page(parent, from, |name, entry| found.push((entry.node.inode(), (parent, name))))?;
            for (inode, name) in found {
                self.names.entry(inode).or_insert(name);
            }
            self.read.insert(parent, next);
        }
        Ok(self.names.get(&inode).cloned())
    }

    /// All names of an inode. Where it has several, the directories are read in which it has names
    /// now; names that are gone since are found by the deadlist.
    fn names_of(&mut self, inode: u64, record: &Inode) -> Result<Vec<Name>> {
        if record.is_dir() || record.nlink < 2 {
            return Ok(self.name_of(inode, record)?.into_iter().collect());
        }
        self.names_of_linked(inode, record)
    }

    /// All names of an inode that has, or had, several.
    pub(crate) fn names_of_linked(&mut self, inode: u64, record: &Inode) -> Result<Vec<Name>> {
        let mut found = BTreeSet::new();
        let mut dirs = self.linked_dirs(inode)?;
        dirs.insert(record.parent);
        for dir in dirs {
            if !self.links.contains_key(&dir) {
                let mut links: FxHashMap<u64, Vec<Name>> = FxHashMap::default();
                self.tree.list(dir, |name, entry| {
                    if entry.kind != Kind::Dir {
                        links.entry(entry.node.inode()).or_default().push((dir, name));
                    }
                })?;
                self.links.insert(dir, links);
            }
            found.extend(self.links[&dir].get(&inode).into_iter().flatten().cloned());
        }
        if found.len() < record.nlink as usize {
            found.extend(self.names_gone()?.get(&inode).into_iter().flatten().cloned());
        }
        Ok(found.into_iter().collect())
    }

    /// Directories in which an inode has names in the live volume.
    fn linked_dirs(&self, inode: u64) -> Result<BTreeSet<u64>> {
        let live = NodeId::new(self.tree.shard.lock().live_node(self.tree.node(inode)).volume(), inode);
        let (mut from, to) = keys::tag_range(live, tag::LINK);
        let mut dirs = BTreeSet::new();
        loop {
            let (page, next) = self.tree.shard.scan(&from, &to, PAGE)?;
            let rest = page.iter().filter_map(|(key, _)| keys::parse(key)?.rest.try_into().ok());
            dirs.extend(rest.map(u64::from_be_bytes));
            match next {
                Some(next) => from = next,
                None => return Ok(dirs),
            }
        }
    }

    /// Names that existed at this time and are gone now, by inode.
    fn names_gone(&mut self) -> Result<&FxHashMap<u64, Vec<Name>>> {
        if self.gone.is_none() {
            let mut all: FxHashMap<u64, Vec<Name>> = FxHashMap::default();
            let view = self.tree.shard.lock().snapshot_of(self.tree.volume);
            if let Ok((volume, epoch)) = view {
                let gone = self.tree.shard.differing(None, volume, (epoch, None), &mut |_| {})?;
                for name in gone.names {
                    if let Some(entry) = self.tree.dentry(&name)? {
                        all.entry(entry.node.inode()).or_default().push(name);
                    }
                }
            }
            self.gone = Some(all);
        }
        Ok(self.gone.get_or_insert_default())
    }

    /// The path of a directory; `None` when it is not below the top.
    fn path_of_dir(&mut self, dir: u64) -> Result<Option<ShownPath>> {
        let mut chain: Vec<(u64, Box<[u8]>)> = Vec::new();
        let mut at = dir;
        let mut path = loop {
            if at == self.top {
                break Some(ShownPath::default());
            }
            if let Some(known) = self.paths.get(&at) {
                break known.clone();
            }
            let name = match self.tree.inode(at)?.filter(|inode| inode.parent != 0) {
                Some(inode) => self.name_of(at, &inode)?,
                None => None,
            };
            let Some((above, name)) = name else {
                self.paths.insert(at, None);
                break None;
            };
            chain.push((at, name));
            at = above;
        };
        for (inode, name) in chain.into_iter().rev() {
            path = path.map(|path| path.with(&name));
            self.paths.insert(inode, path.clone());
        }
        Ok(path)
    }

    fn path_of(&mut self, name: &Name) -> Result<Option<ShownPath>> {
        Ok(self.path_of_dir(name.0)?.map(|dir| dir.with(&name.1)))
    }

    /// Adds all paths below a directory.
    fn walk(&self, dir: u64, path: &ShownPath, kind: ChangeKind, changes: &mut Changes) -> Result<()> {
        let mut waiting = vec![(dir, path.clone())];
        while let Some((dir, path)) = waiting.pop() {
            self.tree.list(dir, |name, entry| {
                let path = path.with(&name);
                changes.add(kind, &path, None);
                if entry.kind == Kind::Dir {
                    waiting.push((entry.node.inode(), path));
                }
            })?;
            changes.check()?;
        }
        Ok(())
    }
}

/// The changes that were found: as many as an answer has room for.
#[derive(Default)]
struct Changes {
    all: BTreeSet<Change>,
    bytes: usize,
}

impl Changes {
    fn add(&mut self, kind: ChangeKind, path: &ShownPath, from: Option<&ShownPath>) {
        if self.bytes > CHANGES_BYTES_MAX {
            return;
        }
        // without the slash in front
        let text = |path: &ShownPath| PathText::new(path.bytes().into_iter().skip(1).collect());
        let change = Change { path: text(path), kind, from_path: from.map(text) };
        let from = change.from_path.as_ref().map_or(0, |from| from.as_bytes().len());
        let size = size_of::<Change>() + change.path.as_bytes().len() + from;
        if self.all.insert(change) {
            self.bytes += size;
        }
    }

    /// # Errors
    /// `Range`: there are too many.
    fn check(&self) -> Result<()> {
        if self.bytes <= CHANGES_BYTES_MAX { Ok(()) } else { Err(Error::Range) }
    }
}

/// The differences that the deadlist shows.
#[derive(Default)]
pub(crate) struct Differing {
    pub(crate) names: BTreeSet<Name>,
    /// Inodes of which any record differs, and whether that is more than the inode's own.
    pub(crate) inodes: BTreeMap<u64, bool>,
}

impl Differing {
    fn note(&mut self, record: &Key) {
        let Some(parsed) = keys::parse(record) else { return };
        match parsed.tag {
            tag::DENTRY => {
                self.names.insert((parsed.node.inode(), parsed.rest.into()));
            }
            tag => *self.inodes.entry(parsed.node.inode()).or_default() |= tag != tag::INODE,
        }
    }
}

/// The changes of an inode's names.
#[derive(Default)]
struct Moves {
    kind: Option<Kind>,
    old: Vec<Name>,
    new: Vec<Name>,
}

impl Shard {
    /// The differences below the live directory `dir` between the snapshots of epochs `from` and
    /// `to` (`None`: now).
    ///
    /// # Errors
    /// `Range`: there are more than an answer has room for.
    pub(crate) fn diff(
        &self,
        dir: NodeId,
        from: u32,
        to: Option<u32>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<Change>> {
        let volume = dir.volume();
        let (old, new) = {
            let mut st = self.lock();
            let mut number = |epoch| st.snapshots.number(View::Snapshot { volume, epoch });
            (number(from), to.map_or(volume, number))
        };
        let differing = self.differing(None, volume, (from, to), progress)?;
        let mut old = TreeAt::new(self, old, dir.inode());
        let mut new = TreeAt::new(self, new, dir.inode());
        let mut changes = Changes::default();
        let moves = moves(&mut old, &mut new, differing.names)?;
        for (inode, moved) in &moves {
            report_moves(&mut old, &mut new, *inode, moved, &mut changes)?;
        }
        for (inode, beyond) in differing.inodes {
            let moved = moves.get(&inode);
            report_change(&mut old, &mut new, inode, beyond, moved, &mut changes)?;
        }
        Ok(changes.all.into_iter().collect())
    }

    /// What differs between the snapshots of epochs `from` and `to` (`None`: now), or may. `paced`:
    /// the work that asks; `None`: somebody waits for it.
    pub(crate) fn differing(
        &self,
        paced: Option<Paced<'_>>,
        volume: u32,
        (from, to): (u32, Option<u32>),
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Differing> {
        let mut out = Differing::default();
        self.lock().list_the_dead(&self.cache);
        let (mut start, end) = keys::deaths_range(volume, from + 1, to.map_or(u32::MAX, |to| to + 1));
        let mut seen = 0;
        loop {
            let most = paced.map_or(PAGE, |paced| paced.size(PAGE));
            let mut read = || self.note_differing((&start, &end), (from, most), &mut out);
            let (some, next) = match paced {
                Some(paced) => paced.step(read)?,
                None => read()?,
            };
            seen += some;
            progress(Progress { phase: "differences".into(), done: seen, total: 0 });
            match next {
                Some(next) => start = next,
                None => return Ok(out),
            }
        }
    }

    /// Notes what differs by some entries of a deadlist. Returns how many those are, and where to
    /// continue.
    fn note_differing(
        &self,
        (start, end): (&Key, &Key),
        (from, most): (u32, usize),
        out: &mut Differing,
    ) -> Result<(u64, Option<Key>)> {
        let (page, next) = self.scan(start, end, most)?;
        for (key, value) in &page {
            match keys::parse_dead(key, value) {
                Some((pair, Dead::Records(records))) if pair.birth <= from => {
                    records.iter().for_each(|record| out.note(record));
                }
                _ => {}
            }
        }
        Ok((page.len() as u64, next))
    }

    /// The directories in which inodes that have, or had, several names have them.
    pub(crate) fn dirs_of_links(&self, tree: Tree<'_>, inodes: &[u64]) -> Result<BTreeSet<u64>> {
        let mut at = TreeAt::new(self, tree.volume, 1);
        let mut dirs = BTreeSet::new();
        for inode in inodes {
            if let Some(record) = tree.inode(*inode)? {
                dirs.extend(at.names_of_linked(*inode, &record)?.into_iter().map(|name| name.0));
            }
        }
        Ok(dirs)
    }
}

/// Reports the renamed, removed and added names of one inode.
fn report_moves<'a>(
    old: &mut TreeAt<'a>,
    new: &mut TreeAt<'a>,
    inode: u64,
    moved: &Moves,
    changes: &mut Changes,
) -> Result<()> {
    let mut before = paths(old, &moved.old)?;
    let mut after = paths(new, &moved.new)?;
    while !before.is_empty() && !after.is_empty() {
        let (from, to) = (before.remove(0), after.remove(0));
        changes.add(ChangeKind::Renamed, &to, Some(&from));
    }
    let is_dir = moved.kind == Some(Kind::Dir);
    for (side, paths, kind) in [(old, before, ChangeKind::Removed), (new, after, ChangeKind::Added)] {
        for path in paths {
            if is_dir {
                side.walk(inode, &path, kind, changes)?;
            }
            changes.add(kind, &path, None);
        }
    }
    changes.check()
}

fn paths(side: &mut TreeAt<'_>, names: &[Name]) -> Result<Vec<ShownPath>> {
    let mut all = Vec::new();
    for name in names {
        all.extend(side.path_of(name)?);
    }
    Ok(all)
}

/// The changes of names of the inodes that differing names lead to.
fn moves(old: &mut TreeAt<'_>, new: &mut TreeAt<'_>, names: BTreeSet<Name>) -> Result<BTreeMap<u64, Moves>> {
    let mut moves: BTreeMap<u64, Moves> = BTreeMap::new();
    for name in names {
        let (was, is) = (old.tree.dentry(&name)?, new.tree.dentry(&name)?);
        if was.map(|d| d.node.inode()) == is.map(|d| d.node.inode()) {
            continue;
        }
        if let Some(was) = was {
            old.names.insert(was.node.inode(), name.clone());
            let moved = moves.entry(was.node.inode()).or_default();
            moved.kind = Some(was.kind);
            moved.old.push(name.clone());
        }
        if let Some(is) = is {
            new.names.insert(is.node.inode(), name.clone());
            let moved = moves.entry(is.node.inode()).or_default();
            moved.kind = Some(is.kind);
            moved.new.push(name);
        }
    }
    Ok(moves)
}

/// Reports an inode that exists at both times and has changed. `beyond`: more than its own record
/// differs.
fn report_change(
    old: &mut TreeAt<'_>,
    new: &mut TreeAt<'_>,
    inode: u64,
    beyond: bool,
    moved: Option<&Moves>,
    changes: &mut Changes,
) -> Result<()> {
    let (Some(was), Some(is)) = (old.tree.inode(inode)?, new.tree.inode(inode)?) else { return Ok(()) };
    if !beyond && same_to_users(&was, &is) {
        return Ok(());
    }
    // inodes that exist now, and were below the directory before under some name: usually the same,
    // and found sooner in the live volume than in a snapshot
    let mut names: BTreeSet<Name> = moved.into_iter().flat_map(|moved| moved.new.iter().cloned()).collect();
    if names.is_empty() || is.nlink > 1 && !is.is_dir() {
        names.extend(new.names_of(inode, &is)?);
    }
    let names: Vec<Name> = names.into_iter().collect();
    let mut before = (inode == old.top).then(ShownPath::default);
    for name in &names {
        if before.is_none() && old.leads_to(name, inode)? {
            before = old.path_of(name)?;
        }
    }
    if before.is_none() {
        let names = old.names_of(inode, &was)?;
        before = paths(old, &names)?.into_iter().next();
    }
    if inode == new.top {
        changes.add(ChangeKind::Changed, &ShownPath::default(), None);
    }
    for path in if before.is_some() { paths(new, &names)? } else { Vec::new() } {
        changes.add(ChangeKind::Changed, &path, None);
    }
    changes.check()
}

/// Whether two versions of an inode differ in nothing but names, links, and times that others set.
fn same_to_users(a: &Inode, b: &Inode) -> bool {
    let own = |i: &Inode| (i.kind, i.mode, i.uid, i.gid, i.rdev, i.xattrs, i.flags);
    let content = |i: &Inode| (i.content_lsn, i.size, i.allocated, i.times[time::M], i.body.clone());
    own(a) == own(b) && (a.is_dir() || content(a) == content(b))
}
