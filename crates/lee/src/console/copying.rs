//! Copies a file or a tree, as its reader, beside what is there.
//!
//! Directories are known by their inodes once they are found or made: somebody who renames one, or
//! puts a symbolic link in its place meanwhile, leads the copy nowhere else. Nobody else looks into
//! a directory before it has what it is to have, and is like the one that it was copied from.

use leeward_door::{Finish, Path, Tree};
use leeward_fs::{Entry, Error, Kind, NodeId, Precondition, Result};

/// Most files and directories that are copied at a time.
pub const COPIED_MAX: u64 = 20_000;
/// Names that are listed at a time.
const LISTED: usize = 200;
/// Bytes that are copied at a time.
const PIECE: u64 = 64 << 20;

/// How a copy went.
#[derive(Debug, Default)]
pub struct Copied {
    /// Files and directories that were copied.
    pub done: u64,
    /// Those that were not.
    pub failed: u64,
    /// The first of them, and why.
    pub first_failure: Option<(String, Error)>,
}

/// A directory that is to be filled.
struct Filling {
    from: Tree,
    into: Tree,
    /// Its path in what is copied.
    path: String,
}

struct Copying {
    copied: Copied,
    dirs: Vec<Filling>,
    /// Directories that were made, with those that they are to be like.
    made: Vec<(Tree, Tree)>,
}

/// Copies what is at `from` to `to`, where nothing is. What cannot be copied is left out, and
/// counted.
///
/// # Errors
/// Nothing was copied.
pub async fn copy(tree: &Tree, from: &Path, to: &Path) -> Result<Copied> {
    let (from, to) = (tree.spot(from, false).await?, tree.spot(to, false).await?);
    let attr = from.attr.ok_or(Error::NotFound)?;
    let mut copying = Copying { copied: Copied::default(), dirs: Vec::new(), made: Vec::new() };
    let names = (&from.name, &to.name);
    copying.one((attr.kind, attr.node), (&from.tree, &to.tree), names, from.name.to_string()).await?;
    copying.copied.done += 1;
    while let Some(dir) = copying.dirs.pop() {
        copying.fill(&dir).await;
    }
    for (new, old) in copying.made.iter().rev() {
        if let Err(e) = new.make_like(old, true).await {
            copying.copied.fail("permissions of a directory", e);
        }
    }
    Ok(copying.copied)
}

impl Copied {
    fn fail(&mut self, path: &str, e: Error) {
        self.failed += 1;
        self.first_failure.get_or_insert((path.to_owned(), e));
    }
}

impl Copying {
    async fn fill(&mut self, dir: &Filling) {
        let mut after = Vec::new();
        loop {
            let listed = dir.from.list(&Path::default(), &after, LISTED).await;
            let (entries, is_end) = match listed {
                Ok(listed) => listed,
                Err(e) => return self.copied.fail(&dir.path, e),
            };
            let Some(last) = entries.last() else { return };
            after = last.name.to_vec();
            for entry in &entries {
                if self.copied.done >= COPIED_MAX {
                    self.copied.fail(&dir.path, Error::TooBig);
                    return self.dirs.clear();
                }
                let path = format!("{}/{}", dir.path, String::from_utf8_lossy(&entry.name));
                match self.entry(dir, entry, &path).await {
                    Ok(()) => self.copied.done += 1,
                    Err(e) => self.copied.fail(&path, e),
                }
            }
            if is_end {
                return;
            }
        }
    }

    async fn entry(&mut self, dir: &Filling, entry: &Entry, path: &str) -> Result<()> {
        let name = Path::parse(&entry.name).map_err(|_| Error::Invalid)?;
        let what = (entry.kind, entry.node);
        self.one(what, (&dir.from, &dir.into), (&name, &name), path.to_owned()).await
    }

    async fn one(
        &mut self,
        (kind, node): (Kind, NodeId),
        (from, into): (&Tree, &Tree),
        (old, new): (&Path, &Path),
        path: String,
    ) -> Result<()> {
        match kind {
            Kind::Dir => {
                let made = into.make_private_dir(new).await?;
                let (from, into) = (from.within(node), into.within(made.node));
                self.made.push((into.clone(), from.clone()));
                self.dirs.push(Filling { from, into, path });
                Ok(())
            }
            Kind::File => file((from, old), (into, new)).await,
            Kind::Symlink => into.make_link(new, &from.read_link(old).await?).await,
            // pipes, sockets and devices
            _ => Err(Error::NotSupported),
        }
    }
}

async fn file((from, old): (&Tree, &Path), (into, new): (&Tree, &Path)) -> Result<()> {
    let file = from.open(old, &[]).await?;
    let size = file.attr.size;
    let mut upload = into.create(new, Some(size)).await?;
    upload.like(&file, true);
    let mut at = 0;
    while at < size {
        let end = size.min(at + PIECE);
        upload.copy(&file, at..end).await?;
        at = end;
    }
    let (xattrs, modified) = (file.notes().await?, Some(file.attr.mtime));
    let finish = Finish { over: Precondition::Nothing, xattrs, modified, ..Finish::default() };
    upload.finish(finish).await.map(drop)
}
