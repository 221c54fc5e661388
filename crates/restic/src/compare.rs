//! Compares what a snapshot of a repository gives back with the tree that it was made of: a restore
//! that writes nothing.
//!
//! Directories are taken in a random order until enough was compared: of each all names and
//! attributes, and the content of files, chosen at random where there are too many; of a large file
//! a part that begins anywhere. What is smaller than the limit is compared as a whole.

use crate::archive::{Attributes, Listing, Meta, ROOT, Source};
use crate::repository::Repository;
use crate::tree::{Node, NodeKind};
use crate::{ErrorKind, Id, Result, Watch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many differences are told.
const TOLD_MAX: usize = 50;
/// Directories that wait to be compared.
const WAITING_MAX: usize = 10_000;
/// Bytes of a file that are compared at once.
const READ_BYTES: usize = 1 << 20;

/// How much is compared, about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Names; files whose content is compared are no more than these.
    pub names: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Names whose attributes were compared.
    pub names: u64,
    /// Files whose content was.
    pub files: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Whether that was all.
    pub is_whole: bool,
    /// How much differs.
    pub difference_count: u64,
    /// The first of that, in words.
    pub differences: Vec<String>,
}

impl Compared {
    fn differs(&mut self, path: &str, how: &str) {
        self.difference_count += 1;
        if self.differences.len() < TOLD_MAX {
            self.differences.push(format!("{path}: {how}"));
        }
    }
}

/// A directory that is to be compared.
struct Dir {
    inode: u64,
    tree: Id,
    path: String,
}

/// A file whose content is to be compared.
struct File {
    name: Box<[u8]>,
    inode: u64,
    size: u64,
}

struct Compare<'a> {
    repository: &'a Arc<Repository>,
    source: &'a dyn Source,
    limit: Limit,
    watch: &'a dyn Watch,
    waiting: Vec<Dir>,
    found: Compared,
}

/// Compares the tree of a snapshot, as [`store`](crate::archive::store) has made it, with its
/// source.
///
/// # Errors
/// The source's, the place's, Stopped. What is damaged, or differs, is told and not failed at.
pub fn compare(
    repository: &Arc<Repository>,
    tree: &Id,
    source: &dyn Source,
    limit: Limit,
    watch: &dyn Watch,
) -> Result<Compared> {
    let found = Compared { is_whole: true, ..Compared::default() };
    let mut compare = Compare { repository, source, limit, watch, waiting: Vec::new(), found };
    let mut top = Vec::new();
    let read = repository.tree(tree, &mut |node| {
        top.push(node);
        Ok(())
    });
    compare.note("the snapshot", read)?;
    match &top[..] {
        [root] => compare.name("", ROOT, root)?,
        _ => compare.found.differs("the snapshot", "shows no volume"),
    }
    while !compare.waiting.is_empty() {
        if compare.found.names >= limit.names || compare.found.bytes >= limit.bytes {
            compare.found.is_whole = false;
            break;
        }
        let at = compare.random_below(compare.waiting.len() as u64) as usize;
        let dir = compare.waiting.swap_remove(at);
        compare.dir(&dir)?;
    }
    Ok(compare.found)
}

impl Compare<'_> {
    fn random_below(&self, end: u64) -> u64 {
        self.repository.env.random() % end.max(1)
    }

    /// What is damaged differs; anything else is a failure.
    fn note(&mut self, path: &str, read: Result<()>) -> Result<()> {
        match read {
            Err(e) if e.kind == ErrorKind::Damaged => {
                self.found.differs(path, &e.text);
                Ok(())
            }
            read => read,
        }
    }

    /// Compares the names of a directory beside the listing of the source, and then contents.
    fn dir(&mut self, dir: &Dir) -> Result<()> {
        let (mut chosen, mut seen) = (Vec::new(), 0);
        let mut listing = Listing::of(self.source, dir.inode);
        let mut next = listing.next()?;
        let repository = self.repository;
        let read = repository.tree(&dir.tree, &mut |node| {
            self.watch.go_on()?;
            let Some(name) = node.name() else {
                self.found.differs(&dir.path, "has a name that cannot be");
                return Ok(());
            };
            while let Some(entry) = next.take_if(|entry| *entry.name < name[..]) {
                self.found.differs(&below(&dir.path, &entry.name), "is not in the backup");
                next = listing.next()?;
            }
            let Some(entry) = next.take_if(|entry| *entry.name == name[..]) else {
                self.found.differs(&below(&dir.path, &name), "is in the backup only");
                return Ok(());
            };
            next = listing.next()?;
            self.name(&below(&dir.path, &name), entry.inode, &node)?;
            if node.kind == NodeKind::File {
                seen += 1;
                let file = File { name: entry.name, inode: entry.inode, size: node.size };
                self.choose(&mut chosen, seen, file);
            }
            Ok(())
        });
        let is_damaged = read.as_ref().is_err_and(|e| e.kind == ErrorKind::Damaged);
        self.note(&dir.path, read)?;
        while let Some(entry) = next.filter(|_| !is_damaged) {
            self.found.differs(&below(&dir.path, &entry.name), "is not in the backup");
            next = listing.next()?;
        }
        self.contents(dir, chosen)
    }

    /// Each file of a directory is chosen with the same probability.
    fn choose(&mut self, chosen: &mut Vec<File>, seen: u64, file: File) {
        let room = self.limit.names.saturating_sub(self.found.files);
        if (chosen.len() as u64) < room {
            chosen.push(file);
            return;
        }
        self.found.is_whole = false;
        let at = self.random_below(seen) as usize;
        if let Some(place) = chosen.get_mut(at) {
            *place = file;
        }
    }

    /// Compares attributes, and remembers directories.
    fn name(&mut self, path: &str, inode: u64, node: &Node) -> Result<()> {
        self.found.names += 1;
        self.watch.report("names that are compared", self.found.names, 0);
        let meta = self.source.meta(inode)?;
        for how in differences(inode, &meta, node) {
            self.found.differs(path, how);
        }
        let (NodeKind::Dir, Some(tree)) = (node.kind, node.subtree) else { return Ok(()) };
        let dir = Dir { inode, tree, path: path.into() };
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(dir);
        } else {
            self.found.is_whole = false;
            let at = self.random_below(WAITING_MAX as u64) as usize;
            self.waiting[at] = dir;
        }
        Ok(())
    }

    /// Compares the content of these files.
    fn contents(&mut self, dir: &Dir, chosen: Vec<File>) -> Result<()> {
        let mut left: BTreeMap<Box<[u8]>, File> =
            chosen.into_iter().map(|file| (file.name.clone(), file)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let repository = self.repository;
        let read = repository.tree(&dir.tree, &mut |node| {
            let file = node.name().and_then(|name| left.remove(&name[..]));
            let Some(file) = file else { return Ok(()) };
            let path = below(&dir.path, &file.name);
            let read = self.content(&path, &file, &node);
            self.note(&path, read)
        });
        self.note(&dir.path, read)
    }

    fn content(&mut self, path: &str, file: &File, node: &Node) -> Result<()> {
        if self.found.bytes >= self.limit.bytes {
            self.found.is_whole = false;
            return Ok(());
        }
        self.found.files += 1;
        let (mut chunks, mut end) = (Vec::new(), 0);
        for id in node.content.iter().flatten() {
            chunks.push((end, id));
            end += self.repository.data_len(id)?;
        }
        if end != file.size {
            self.found.differs(path, &format!("gives {end} bytes of {}", file.size));
            return Ok(());
        }
        // one large file is not all that is compared, and each of its parts is one time or another
        let most = self.limit.bytes / 4;
        let first = if end > most { self.random_below(chunks.len() as u64) as usize } else { 0 };
        chunks.rotate_left(first);
        let mut done = 0;
        for (at, id) in chunks {
            self.watch.go_on()?;
            if end > most && done >= most {
                self.found.is_whole = false;
                return Ok(());
            }
            let chunk = self.repository.data(id)?;
            if !self.is_same(file, at, &chunk)? {
                self.found.differs(path, &format!("its content differs after byte {at}"));
                return Ok(());
            }
            done += chunk.len() as u64;
            self.found.bytes += chunk.len() as u64;
        }
        Ok(())
    }

    fn is_same(&self, file: &File, mut at: u64, mut chunk: &[u8]) -> Result<bool> {
        while !chunk.is_empty() {
            let part = self.source.read(file.inode, at, chunk.len().min(READ_BYTES))?;
            if part.is_empty() || part.len() > chunk.len() || chunk[..part.len()] != part[..] {
                return Ok(false);
            }
            at += part.len() as u64;
            chunk = &chunk[part.len()..];
        }
        Ok(true)
    }
}

fn below(path: &str, name: &[u8]) -> String {
    format!("{path}/{}", leeward_transfer::printable(&String::from_utf8_lossy(name)))
}

/// In what a name of the backup is not what it was.
fn differences<'a>(inode: u64, meta: &Meta, node: &'a Node) -> impl Iterator<Item = &'static str> + use<'a> {
    let is_file = meta.kind == NodeKind::File;
    let is_link = meta.kind == NodeKind::Symlink;
    let is_device = matches!(meta.kind, NodeKind::Dev | NodeKind::CharDev);
    [
        ("its kind differs", node.kind != meta.kind),
        ("its mode differs", node.mode() != meta.mode & 0o7777),
        ("its owner differs", (node.uid, node.gid) != (meta.uid, meta.gid)),
        ("it is another inode", node.inode != inode),
        ("its number of names differs", node.links != meta.links),
        ("its size differs", is_file && node.size != meta.size),
        ("its target differs", is_link && node.target() != &meta.target[..]),
        ("its device differs", is_device && node.device != meta.device),
        ("its times differ", [node.mtime, node.atime, node.ctime] != meta.times),
        ("its attributes differ", !same_attributes(&meta.attributes, node)),
    ]
    .into_iter()
    .filter_map(|(how, differs)| differs.then_some(how))
}

/// Names that are no UTF-8 cannot be backed up.
fn same_attributes(are: &Attributes, node: &Node) -> bool {
    let are = are.iter().filter(|(name, _)| std::str::from_utf8(name).is_ok());
    let are: BTreeMap<&[u8], &[u8]> = are.map(|(name, value)| (&name[..], &value[..])).collect();
    let given = node.extended_attributes.iter();
    are == given.map(|a| (a.name.as_bytes(), &a.value.0[..])).collect()
}
