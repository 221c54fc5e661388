//! Writes what a snapshot shows into a directory, with owners, modes, extended attributes and ACLs,
//! times, hard links and holes.
//!
//! Every step goes from an open directory to a name in it, and follows no link. What cannot be set
//! is told, and the rest goes on.

use crate::pack::BlobKind;
use crate::repository::Repository;
use crate::tree::{Node, NodeKind};
use crate::{Error, ErrorKind, Id, Result, Watch};
use leeward_transfer::sys::{Dir, Inode, Kind, Time, c_string};
use leeward_transfer::{Trouble, cause};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Blocks of a file that may be holes.
const BLOCK_BYTES: u64 = 4096;
/// So much of what is not right is told.
const TOLD_MAX: usize = 50;

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Directories.
    pub dirs: u64,
    /// Other inodes' names.
    pub files: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// How much is not as it should be.
    pub trouble_count: u64,
    /// The first of that.
    pub troubles: Vec<Trouble>,
}

/// A directory that is being restored, whose subdirectories come next.
struct Frame {
    dir: Dir,
    node: Option<Node>,
    path: Vec<CString>,
    waiting: Vec<Node>,
}

struct Restore<'a> {
    repository: &'a Repository,
    watch: &'a dyn Watch,
    root: Dir,
    /// The first names of inodes with several.
    links: FxHashMap<(u64, u64), Vec<CString>>,
    done: Restored,
}

/// Restores a tree into an empty directory. `node`: what the directory itself becomes.
///
/// # Errors
/// Damaged; the place's; when the directory is not empty or cannot be written to; Stopped.
pub fn restore(
    repository: &Repository,
    (tree, node): (&Id, Option<Node>),
    to: &Path,
    watch: &dyn Watch,
) -> Result<Restored> {
    let failed = |e: io::Error| Error::at(&to.to_string_lossy(), &e);
    let open = || Dir::open(to).map_err(failed);
    let root = open()?;
    if !root.names().map_err(failed)?.is_empty() {
        let text = format!("{} is not empty: name a directory that is empty, or not there yet", to.display());
        return Err(Error::new(ErrorKind::Failed, text));
    }
    let mut restore =
        Restore { repository, watch, root, links: FxHashMap::default(), done: Restored::default() };
    let mut frames = vec![restore.fill(open()?, (*tree, node), Vec::new())?];
    while let Some(frame) = frames.last_mut() {
        let Some(node) = frame.waiting.pop() else {
            let Some(Frame { dir, node, path, .. }) = frames.pop() else { break };
            restore.done.dirs += 1;
            if let Some(node) = node {
                let set = dir.as_inode().map(|inode| restore.set(&inode, &node, &path));
                set.unwrap_or_else(|e| restore.trouble(&path, &e));
            }
            continue;
        };
        let (dir, path) = (&frame.dir, frame.path.clone());
        if let Some((dir, path, subtree)) = restore.make_dir(dir, path, &node)? {
            let next = restore.fill(dir, (subtree, Some(node)), path)?;
            frames.push(next);
        }
    }
    restore.root.sync_file_system().map_err(failed)?;
    Ok(restore.done)
}

fn text(path: &[CString]) -> String {
    path.iter().map(|name| name.to_string_lossy()).collect::<Vec<_>>().join("/")
}

impl Restore<'_> {
    fn trouble(&mut self, path: &[CString], e: &io::Error) {
        self.tell(path, cause(e));
    }

    fn tell(&mut self, path: &[CString], cause: String) {
        self.done.trouble_count += 1;
        if self.done.troubles.len() < TOLD_MAX {
            self.done.troubles.push(Trouble { path: text(path), cause });
        }
    }

    /// Restores all names of a directory but those of directories.
    fn fill(&mut self, dir: Dir, (tree, node): (Id, Option<Node>), path: Vec<CString>) -> Result<Frame> {
        let (mut waiting, repository) = (Vec::new(), self.repository);
        let of = path.clone();
        let read = repository.tree(&tree, &mut |node| {
            if self.watch.is_stopped() {
                return Err(Error::new(
                    ErrorKind::Stopped,
                    "stopped before the end: what was restored is there",
                ));
            }
            if node.kind == NodeKind::Dir {
                waiting.push(node);
                return Ok(());
            }
            self.done.files += 1;
            self.watch.report("files", self.done.files, 0);
            let Some(name) = name_of(&node) else {
                self.tell(&path, "a name in it cannot be, and was left out".into());
                return Ok(());
            };
            let mut path = path.clone();
            path.push(name);
            self.one(&dir, &path, &node)
        });
        self.note(&of, read)?;
        Ok(Frame { dir, node, path, waiting })
    }

    fn make_dir(
        &mut self,
        dir: &Dir,
        mut path: Vec<CString>,
        node: &Node,
    ) -> Result<Option<(Dir, Vec<CString>, Id)>> {
        let (Some(name), Some(subtree)) = (name_of(node), node.subtree) else {
            self.tell(&path, "a directory in it has no name or no tree, and was left out".into());
            return Ok(None);
        };
        let made = dir.make_dir(&name).and_then(|()| dir.dir(&name));
        path.push(name);
        match made {
            Ok(made) => Ok(Some((made, path, subtree))),
            Err(e) => self.full_or_trouble(&path, &e).map(|()| None),
        }
    }

    /// What is damaged is told; anything else ends it.
    fn note(&mut self, path: &[CString], read: Result<()>) -> Result<()> {
        match read {
            Err(e) if e.kind == ErrorKind::Damaged => {
                self.tell(path, e.text);
                Ok(())
            }
            read => read,
        }
    }

    /// A full disk ends it; what else fails is told.
    fn full_or_trouble(&mut self, path: &[CString], e: &io::Error) -> Result<()> {
        if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return Err(Error::at(&text(path), e));
        }
        self.trouble(path, e);
        Ok(())
    }

    /// Restores a name that is no directory.
    fn one(&mut self, dir: &Dir, path: &[CString], node: &Node) -> Result<()> {
        let Some(name) = path.last() else { return Ok(()) };
        let link = (node.device_id, node.inode);
        if node.links > 1
            && let Some(first) = self.links.get(&link)
        {
            match self.link(dir, name, &first.clone()) {
                Ok(()) => return Ok(()),
                Err(e) => self.trouble(path, &e),
            }
        }
        let made = match node.kind {
            NodeKind::File => dir.make_file(name).map(Some),
            NodeKind::Symlink => {
                c_string(node.target()).and_then(|target| dir.make_symlink(name, &target)).map(|()| None)
            }
            NodeKind::Dev => dir.make_node(name, Kind::BlockDevice, node.device).map(|()| None),
            NodeKind::CharDev => dir.make_node(name, Kind::CharDevice, node.device).map(|()| None),
            NodeKind::Fifo => dir.make_node(name, Kind::Fifo, 0).map(|()| None),
            NodeKind::Socket => dir.make_node(name, Kind::Socket, 0).map(|()| None),
            NodeKind::Dir | NodeKind::Irregular => Err(io::Error::from(io::ErrorKind::Unsupported)),
        };
        let inode = match made.and_then(|file| Ok((dir.inode(name)?, file))) {
            Ok((inode, file)) => {
                if let Some(file) = file {
                    self.content(&file, path, node)?;
                }
                inode
            }
            Err(e) => return self.full_or_trouble(path, &e),
        };
        self.set(&inode, node, path);
        if node.links > 1 {
            self.links.entry(link).or_insert_with(|| path.to_vec());
        }
        Ok(())
    }

    fn link(&self, dir: &Dir, name: &CString, first: &[CString]) -> io::Result<()> {
        let (last, above) = first.split_last().ok_or(io::ErrorKind::NotFound)?;
        let mut from: Option<Dir> = None;
        for part in above {
            from = Some(from.as_ref().unwrap_or(&self.root).dir(part)?);
        }
        dir.link(name, from.as_ref().unwrap_or(&self.root), last)
    }

    /// Blocks of zeros are left out, and what is damaged: they become holes.
    fn content(&mut self, file: &File, path: &[CString], node: &Node) -> Result<()> {
        let failed = |e: &io::Error| Error::at(&text(path), e);
        let (mut at, mut zeros) = (0, None);
        for id in node.content.iter().flatten() {
            let size = self.repository.index.lock().size(BlobKind::Data, id);
            if zeros != Some(*id) {
                let read = self.repository.data(id);
                let is_zeros = read.as_ref().is_ok_and(|chunk| chunk.iter().all(|byte| *byte == 0));
                zeros = is_zeros.then_some(*id).or(zeros);
                let written = read.and_then(|chunk| write_data(file, &chunk, at).map_err(|e| failed(&e)));
                self.note(path, written)?;
            }
            let Some(size) = size else {
                // where the rest is to be nobody knows
                file.set_len(node.size).map_err(|e| failed(&e))?;
                return Ok(());
            };
            at += size;
            self.done.bytes += size;
            if self.watch.is_stopped() {
                return Err(Error::new(
                    ErrorKind::Stopped,
                    "stopped before the end: what was restored is there",
                ));
            }
        }
        file.set_len(at).map_err(|e| failed(&e))?;
        if at != node.size {
            self.tell(path, format!("has {at} bytes, and had {} when it was backed up", node.size));
        }
        Ok(())
    }

    /// Sets attributes: the owner first, which takes set-id bits away; of the others the mode last,
    /// which may take away the right to set them; times at the end. What the directory above has
    /// given, such as an ACL, goes.
    fn set(&mut self, inode: &Inode, node: &Node, path: &[CString]) {
        let mut troubles = Vec::new();
        let mut note = |done: io::Result<()>| troubles.extend(done.err());
        note(inode.give(node.uid, node.gid));
        let names = node.extended_attributes.iter().map(|attribute| attribute.name.as_bytes());
        let wanted: BTreeSet<&[u8]> = names.collect();
        let given = inode.attribute_names().unwrap_or_default();
        for name in given.iter().filter(|name| is_inherited(name) && !wanted.contains(name.to_bytes())) {
            note(inode.remove_attribute(name));
        }
        for attribute in &node.extended_attributes {
            let name = c_string(attribute.name.as_bytes());
            note(name.and_then(|name| inode.set_attribute(&name, &attribute.value.0)));
        }
        if node.kind != NodeKind::Symlink {
            note(inode.set_mode(node.mode()));
        }
        let time = |t: crate::tree::Moment| Time { secs: t.secs, nanos: t.nanos };
        note(inode.set_times(time(node.atime), time(node.mtime)));
        troubles.iter().for_each(|e| self.trouble(path, e));
    }
}

/// Whether new names get this attribute from the directory above.
fn is_inherited(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"system.posix_acl_")
}

/// Writes a chunk but blocks of the file that are zeros.
fn write_data(file: &File, chunk: &[u8], at: u64) -> io::Result<()> {
    let write = |run: Range<usize>| file.write_all_at(&chunk[run.clone()], at + run.start as u64);
    let (mut from, mut run) = (0, 0..0);
    while from < chunk.len() {
        let next = ((at + from as u64) / BLOCK_BYTES + 1) * BLOCK_BYTES - at;
        let end = chunk.len().min(next as usize);
        if chunk[from..end].iter().any(|byte| *byte != 0) {
            if run.end < from {
                write(std::mem::replace(&mut run, from..from))?;
            }
            run.end = end;
        }
        from = end;
    }
    write(run)
}

/// The name of a node, if it can be one in a directory.
fn name_of(node: &Node) -> Option<CString> {
    let name = node.name()?;
    let is_one = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
    is_one.then(|| CString::new(name).ok())?
}
