//! Stores a tree as the tree of a snapshot.
//!
//! Where the source knows what has changed since an older tree, and the older snapshot is of that
//! one, directories below which nothing has changed keep their trees: neither they nor what is
//! below them is looked at. Else every directory is listed, and files are taken over that look as
//! before, as restic does.
//!
//! Directories are written from the bottom up. A tree is read and written node by node, beside the
//! listing, both in the order of names: so large directories need little memory.

use crate::chunk::{MAX_BYTES, MIN_BYTES};
use crate::pack::BlobKind;
use crate::repository::Repository;
use crate::saver::Saver;
use crate::tree::{Attribute, Base64, Moment, Node, NodeKind, TreeWriter};
use crate::{Error, ErrorKind, Id, Result, Watch};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The root directory's inode number.
pub const ROOT: u64 = 1;
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// A hole begins with so many zeros.
const LOOK_BYTES: usize = 4096;
const BUFFER_BYTES: usize = 2 * MAX_BYTES;
/// Zeros in longer holes are in longer chunks.
const LONG_HOLE_BYTES: u64 = 64 << 20;
/// A file has no more chunks: 64 TiB of holes, or some 8 TiB of data. They are held in memory, by
/// who restores, too.
const CHUNKS_MAX: u64 = 8 << 20;
/// Older trees whose subdirectories, or contents, are remembered.
const REMEMBERED: usize = 8;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Box<[u8]>,
    /// The inode that it leads to.
    pub inode: u64,
    /// Whether that is a directory.
    pub is_dir: bool,
}

/// Names and values of extended attributes.
pub type Attributes = Vec<(Box<[u8]>, Box<[u8]>)>;

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: NodeKind,
    /// Mode, 07777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of a file.
    pub size: u64,
    /// Names.
    pub links: u64,
    /// Device.
    pub device: u64,
    /// Times of modification, access, change.
    pub times: [Moment; 3],
    /// The target of a symbolic link.
    pub target: Box<[u8]>,
    /// Extended attributes.
    pub attributes: Attributes,
}

/// What has changed since an older tree.
#[derive(Debug, Default)]
pub struct Changes {
    /// Inodes of which anything may differ, and whether the content of files may.
    pub inodes: BTreeMap<u64, bool>,
    /// Directories with names that differ, or that lead to such inodes, and all above them.
    pub dirs: BTreeSet<u64>,
}

/// A tree that does not change.
pub trait Source {
    /// The next names of a directory after one (`None`: the first), in the order of their bytes;
    /// none: that was all.
    ///
    /// # Errors
    /// Source.
    fn page(&self, dir: u64, after: Option<&[u8]>) -> Result<Vec<Entry>>;
    /// An inode that a name leads to.
    ///
    /// # Errors
    /// Source.
    fn meta(&self, inode: u64) -> Result<Meta>;
    /// Bytes of a file, fewer only at its end.
    ///
    /// # Errors
    /// Source.
    fn read(&self, inode: u64, offset: u64, len: usize) -> Result<Vec<u8>>;
    /// Where the next data of a file begins that is no hole.
    ///
    /// # Errors
    /// Source.
    fn next_data(&self, inode: u64, offset: u64) -> Result<Option<u64>>;
    /// What has changed since the older tree, if that is known.
    fn changes(&self) -> Option<&Changes>;
    /// The directory that an inode was in, in the older tree.
    ///
    /// # Errors
    /// Source.
    fn was_in(&self, inode: u64) -> Result<Option<u64>>;
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Names in directories that were written.
    pub names: u64,
    /// Files whose content was read.
    pub files_read: u64,
    /// Bytes of them.
    pub bytes_read: u64,
    /// Directories that were written.
    pub dirs: u64,
    /// Directories that were taken over as they are.
    pub dirs_kept: u64,
    /// Files that are too long: they have too many chunks.
    pub files_left_out: u64,
    /// Extended attributes whose names are no UTF-8, which restic cannot store.
    pub left_out: u64,
}

/// Stores a tree below this name, after an older snapshot's tree. Returns the snapshot's tree.
///
/// # Errors
/// The source's, the place's, Stopped.
pub fn store(
    (source, name, device_id): (&dyn Source, &[u8], u64),
    older: Option<&Id>,
    saver: &mut Saver,
    repository: &Arc<Repository>,
    watch: &dyn Watch,
) -> Result<(Id, Summary)> {
    let old_root = older.map_or(Ok(None), |tree| root_of(repository, tree))?;
    let mut archive = Archive {
        source,
        device_id,
        old_root,
        saver,
        repository,
        watch,
        done: Summary::default(),
        built: FxHashMap::default(),
        old_trees: FxHashMap::default(),
        subdirs: VecDeque::new(),
        contents: VecDeque::new(),
        linked: FxHashMap::default(),
    };
    let subtree = archive.run()?;
    let mut top = TreeWriter::default();
    if let Some(mut node) = archive.node(name, ROOT, None)? {
        node.subtree = Some(subtree);
        top.add(&node)?;
    }
    let done = archive.done;
    Ok((saver.tree(top)?, done))
}

/// The tree of the directory that a snapshot of ours shows.
fn root_of(repository: &Repository, tree: &Id) -> Result<Option<Id>> {
    let mut found = None;
    if !repository.index.lock().has(BlobKind::Tree, tree) {
        return Ok(None);
    }
    repository.tree(tree, &mut |node| {
        found = found.or(node.subtree);
        Ok(())
    })?;
    Ok(found)
}

/// A directory whose subdirectories come first.
struct Frame {
    dir: u64,
    old: Option<Id>,
    waiting: Vec<(u64, Option<Id>)>,
}

type Remembered<T> = VecDeque<(Id, Arc<FxHashMap<u64, T>>)>;

struct Archive<'a> {
    source: &'a dyn Source,
    device_id: u64,
    old_root: Option<Id>,
    saver: &'a mut Saver,
    repository: &'a Arc<Repository>,
    watch: &'a dyn Watch,
    done: Summary,
    /// Trees of directories that were written, until the directory above is.
    built: FxHashMap<u64, Id>,
    /// Trees that directories had which were somewhere else, or are above such.
    old_trees: FxHashMap<u64, Option<Id>>,
    /// Subdirectories of older trees.
    subdirs: Remembered<Id>,
    /// Contents in older trees of files of which something has changed.
    contents: Remembered<Vec<Id>>,
    /// Contents that were read of files with several names.
    linked: FxHashMap<u64, Vec<Id>>,
}

impl Archive<'_> {
    fn run(&mut self) -> Result<Id> {
        if let (Some(changes), Some(old)) = (self.source.changes(), self.old_root)
            && !changes.dirs.contains(&ROOT)
            && self.is_there(&old)
        {
            self.done.dirs_kept += 1;
            return Ok(old);
        }
        let mut frames = vec![self.enter(ROOT, self.old_root)?];
        while let Some(frame) = frames.last_mut() {
            if let Some((child, old)) = frame.waiting.pop() {
                let child = self.enter(child, old)?;
                frames.push(child);
                continue;
            }
            let (dir, old) = (frame.dir, frame.old);
            frames.pop();
            let tree = self.write(dir, old)?;
            self.built.insert(dir, tree);
        }
        self.built.remove(&ROOT).ok_or_else(|| Error::new(ErrorKind::Source, "the tree has no root"))
    }

    fn is_there(&self, tree: &Id) -> bool {
        self.repository.index.lock().has(BlobKind::Tree, tree)
    }

    /// Finds the subdirectories that are to be written.
    fn enter(&mut self, dir: u64, old: Option<Id>) -> Result<Frame> {
        let (mut waiting, mut listing) = (Vec::new(), Listing::of(self.source, dir));
        let mut subdirs = None;
        while let Some(entry) = listing.next()? {
            if !entry.is_dir {
                continue;
            }
            if subdirs.is_none() {
                subdirs = Some(old.map_or_else(|| Ok(Arc::default()), |old| self.subdirs_of(&old))?);
            }
            let before = subdirs.as_ref().and_then(|all| all.get(&entry.inode)).copied();
            let before = match self.source.changes() {
                None => before,
                Some(changes) => {
                    let before = before.map_or_else(|| self.old_tree(entry.inode), |id| Ok(Some(id)))?;
                    if before.is_some_and(|tree| self.is_there(&tree)) && !changes.dirs.contains(&entry.inode)
                    {
                        self.done.dirs_kept += 1;
                        continue;
                    }
                    before
                }
            };
            waiting.push((entry.inode, before));
        }
        Ok(Frame { dir, old, waiting })
    }

    /// The subdirectories of an older tree, by inode.
    fn subdirs_of(&mut self, tree: &Id) -> Result<Arc<FxHashMap<u64, Id>>> {
        if let Some((_, known)) = self.subdirs.iter().find(|(id, _)| id == tree) {
            return Ok(known.clone());
        }
        let mut found = FxHashMap::default();
        if self.is_there(tree) {
            self.repository.tree(tree, &mut |node| {
                if let (NodeKind::Dir, Some(subtree)) = (node.kind, node.subtree) {
                    found.insert(node.inode, subtree);
                }
                Ok(())
            })?;
        }
        Ok(remember(&mut self.subdirs, *tree, found))
    }

    /// The tree that a directory had, wherever it was.
    fn old_tree(&mut self, dir: u64) -> Result<Option<Id>> {
        let (mut above, mut at) = (Vec::new(), dir);
        let mut tree = loop {
            if at == ROOT {
                break self.old_root;
            }
            if let Some(known) = self.old_trees.get(&at) {
                break *known;
            }
            above.push(at);
            match self.source.was_in(at)? {
                Some(parent) => at = parent,
                None => break None,
            }
        };
        for inode in above.into_iter().rev() {
            tree = tree.map_or(Ok(None), |of| Ok(self.subdirs_of(&of)?.get(&inode).copied()))?;
            self.old_trees.insert(inode, tree);
        }
        Ok(tree)
    }

    /// Writes a directory whose subdirectories are written or kept.
    fn write(&mut self, dir: u64, old: Option<Id>) -> Result<Id> {
        self.watch.go_on()?;
        self.done.dirs += 1;
        let mut tree = TreeWriter::default();
        let mut listing = Listing::of(self.source, dir);
        let mut next = listing.next()?;
        if let Some(old) = old.filter(|old| self.is_there(old)) {
            let repository = self.repository.clone();
            repository.tree(&old, &mut |node| {
                let Some(name) = node.name() else { return Ok(()) };
                while let Some(entry) = next.take_if(|entry| *entry.name < name[..]) {
                    self.add(&mut tree, &entry, None)?;
                    next = listing.next()?;
                }
                if let Some(entry) = next.take_if(|entry| *entry.name == name[..]) {
                    self.add(&mut tree, &entry, Some(node))?;
                    next = listing.next()?;
                }
                Ok(())
            })?;
        }
        while let Some(entry) = next {
            self.add(&mut tree, &entry, None)?;
            next = listing.next()?;
        }
        self.saver.tree(tree)
    }

    fn add(&mut self, tree: &mut TreeWriter, entry: &Entry, before: Option<Node>) -> Result<()> {
        self.done.names += 1;
        if self.done.names.is_multiple_of(256) {
            self.watch.go_on()?;
            self.watch.report("files", self.done.names, 0);
        }
        let before = before.filter(|node| node.inode == entry.inode);
        let Some(mut node) = self.node(&entry.name, entry.inode, before)? else { return Ok(()) };
        if entry.is_dir {
            let subtree = match self.built.remove(&entry.inode) {
                Some(built) => Some(built),
                None => match node.subtree.filter(|tree| self.is_there(tree)) {
                    Some(tree) => Some(tree),
                    None => self.old_tree(entry.inode)?,
                },
            };
            let lost = || Error::new(ErrorKind::Source, format!("directory {} is not written", entry.inode));
            node.subtree = Some(subtree.ok_or_else(lost)?);
        }
        tree.add(&node)
    }

    /// The node of an inode: as before, where nothing of it has changed. `None`: it cannot be
    /// stored.
    fn node(&mut self, name: &[u8], inode: u64, before: Option<Node>) -> Result<Option<Node>> {
        let changed = self.source.changes().map(|changes| changes.inodes.get(&inode).copied());
        let before = match before {
            Some(before) if changed == Some(None) && self.has_content(&before) => return Ok(Some(before)),
            other => other,
        };
        let meta = self.source.meta(inode)?;
        let mut node = self.node_of(name, inode, &meta);
        if node.kind == NodeKind::Dir {
            node.subtree = before.and_then(|before| before.subtree);
        } else if node.kind == NodeKind::File {
            let same = match changed {
                Some(changed) => changed != Some(true),
                None => before.as_ref().is_some_and(|before| looks_same(before, &node)),
            };
            let before = before.filter(|before| same && self.has_content(before)).and_then(|b| b.content);
            let kept = match before {
                Some(content) => Some(content),
                None if same => self.content_elsewhere(inode, node.size)?,
                None => None,
            };
            node.content = match kept {
                Some(content) => Some(content),
                None => self.content(inode, &meta)?,
            };
            if node.content.is_none() {
                tracing::warn!("inode {inode}, a file of {} bytes, is too long to be backed up", meta.size);
                self.done.files_left_out += 1;
                return Ok(None);
            }
        }
        Ok(Some(node))
    }

    fn node_of(&mut self, name: &[u8], inode: u64, meta: &Meta) -> Node {
        let mut node = Node::new(name, meta.kind, meta.mode);
        (node.uid, node.gid, node.inode, node.device_id) = (meta.uid, meta.gid, inode, self.device_id);
        [node.mtime, node.atime, node.ctime] = meta.times;
        (node.links, node.device) = (meta.links, meta.device);
        match meta.kind {
            NodeKind::File => node.size = meta.size,
            NodeKind::Symlink => node.set_target(&meta.target),
            _ => (),
        }
        for (name, value) in &meta.attributes {
            match std::str::from_utf8(name) {
                Ok(name) => {
                    node.extended_attributes
                        .push(Attribute { name: name.into(), value: Base64(value.to_vec()) });
                }
                Err(_) => self.done.left_out += 1,
            }
        }
        node
    }

    fn has_content(&self, node: &Node) -> bool {
        node.kind != NodeKind::File
            || node.content.as_ref().is_some_and(|content| self.is_content(content, node.size))
    }

    /// Whether all chunks are there, and make up a file of this size.
    fn is_content(&self, content: &[Id], size: u64) -> bool {
        let index = self.repository.index.lock();
        content.iter().map(|id| index.size(BlobKind::Data, id)).sum::<Option<u64>>() == Some(size)
    }

    /// The content that a file had which had another name.
    fn content_elsewhere(&mut self, inode: u64, size: u64) -> Result<Option<Vec<Id>>> {
        if let Some(known) = self.linked.get(&inode) {
            return Ok(Some(known.clone()));
        }
        let Some(changes) = self.source.changes() else { return Ok(None) };
        let Some(dir) = self.source.was_in(inode)? else { return Ok(None) };
        let Some(tree) = self.old_tree(dir)? else { return Ok(None) };
        let known = self.contents.iter().find(|(id, _)| *id == tree).map(|(_, known)| known.clone());
        let known = match known {
            Some(known) => known,
            None => {
                let mut found = FxHashMap::default();
                if self.is_there(&tree) {
                    self.repository.tree(&tree, &mut |node| {
                        if changes.inodes.contains_key(&node.inode) {
                            found.insert(node.inode, node.content.unwrap_or_default());
                        }
                        Ok(())
                    })?;
                }
                remember(&mut self.contents, tree, found)
            }
        };
        Ok(known.get(&inode).filter(|content| self.is_content(content, size)).cloned())
    }

    /// Reads a file and stores it. `None`: it has too many chunks.
    fn content(&mut self, inode: u64, meta: &Meta) -> Result<Option<Vec<Id>>> {
        if let Some(known) = self.linked.get(&inode) {
            return Ok(Some(known.clone()));
        }
        self.done.files_read += 1;
        let mut reading = Reading { buffer: Vec::new(), start: 0, at: 0, size: meta.size };
        let mut content = Vec::new();
        while reading.left() > 0 {
            self.watch.go_on()?;
            if !self.skip_hole(inode, &mut reading, &mut content)? || content.len() as u64 > CHUNKS_MAX {
                return Ok(None);
            }
            if reading.left() == 0 {
                break;
            }
            self.done.bytes_read += reading.fill(self.source, inode)?;
            let held = &reading.buffer[reading.start..];
            let end = self.repository.tables.first_end(held).unwrap_or(held.len());
            content.push(self.saver.data(&held[..end])?);
            reading.start += end;
        }
        if meta.links > 1 {
            self.linked.insert(inode, content.clone());
        }
        Ok(Some(content))
    }

    /// Chunks of zeros end as soon as they may: those in a hole are known. In a long one they are
    /// long. False: there are too many.
    fn skip_hole(&mut self, inode: u64, reading: &mut Reading, content: &mut Vec<Id>) -> Result<bool> {
        let looks_like_one = reading.buffer[reading.start..].iter().take(LOOK_BYTES).all(|byte| *byte == 0);
        if reading.left() < MIN_BYTES as u64 || !looks_like_one {
            return Ok(true);
        }
        let at = reading.at - reading.held() as u64;
        let next = self.source.next_data(inode, at)?.unwrap_or(reading.size).min(reading.size);
        let hole = next.saturating_sub(at);
        let len = if hole < LONG_HOLE_BYTES { MIN_BYTES } else { MAX_BYTES };
        let count = hole / len as u64;
        if count > 0 {
            if content.len() as u64 + count > CHUNKS_MAX {
                return Ok(false);
            }
            let zeros = self.saver.data(&vec![0; len])?;
            content.extend(std::iter::repeat_n(zeros, count as usize));
            reading.skip(count * len as u64);
        }
        Ok(true)
    }
}

/// Whether a file looks as it did.
fn looks_same(before: &Node, now: &Node) -> bool {
    (before.kind, before.inode, before.size, before.mtime, before.ctime)
        == (now.kind, now.inode, now.size, now.mtime, now.ctime)
}

fn remember<T>(all: &mut Remembered<T>, tree: Id, found: FxHashMap<u64, T>) -> Arc<FxHashMap<u64, T>> {
    let found = Arc::new(found);
    all.push_front((tree, found.clone()));
    all.truncate(REMEMBERED);
    found
}

/// A file that is being read: what is read of it and not stored yet.
struct Reading {
    buffer: Vec<u8>,
    start: usize,
    /// Where to read on.
    at: u64,
    size: u64,
}

impl Reading {
    fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Bytes that are not stored yet.
    fn left(&self) -> u64 {
        self.size - self.at + self.held() as u64
    }

    /// Leaves out the next bytes.
    fn skip(&mut self, len: u64) {
        if len <= self.held() as u64 {
            self.start += len as usize;
            return;
        }
        self.at += len - self.held() as u64;
        self.buffer.clear();
        self.start = 0;
    }

    /// Reads so much that a chunk ends in it. Returns the bytes that were read.
    fn fill(&mut self, source: &dyn Source, inode: u64) -> Result<u64> {
        let before = self.at;
        if self.held() < MAX_BYTES && self.at < self.size {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        while self.held() < MAX_BYTES && self.at < self.size && self.buffer.len() < BUFFER_BYTES {
            let len = READ_BYTES.min((self.size - self.at).min(usize::MAX as u64) as usize);
            let part = source.read(inode, self.at, len)?;
            if part.is_empty() {
                let text = format!("inode {inode} ends at {} of {} bytes", self.at, self.size);
                return Err(Error::new(ErrorKind::Source, text));
            }
            self.at += part.len() as u64;
            self.buffer.extend_from_slice(&part);
        }
        Ok(self.at - before)
    }
}

/// The names of a directory, page by page.
pub(crate) struct Listing<'a> {
    source: &'a dyn Source,
    dir: u64,
    page: VecDeque<Entry>,
    last: Option<Box<[u8]>>,
    has_ended: bool,
}

impl<'a> Listing<'a> {
    pub(crate) fn of(source: &'a dyn Source, dir: u64) -> Listing<'a> {
        Listing { source, dir, page: VecDeque::new(), last: None, has_ended: false }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Entry>> {
        if self.page.is_empty() && !self.has_ended {
            self.page = self.source.page(self.dir, self.last.as_deref())?.into();
            self.last = self.page.back().map(|entry| entry.name.clone());
            self.has_ended = self.page.is_empty();
        }
        Ok(self.page.pop_front())
    }
}
