//! Changes of names: makes directories and links, removes and renames entries of all kinds. Each
//! change is durable when it is answered.

use crate::files::{LOOK, SET, Tree};
use crate::like;
use crate::path::Path;
use crate::steps::{DIR_MODE, MADE_FOR_PATH, Steps, Walked};
use leeward_fs::rights::{self, W, X};
use leeward_fs::{Attr, Error, Kind, Make, NodeId, Op, Precondition, RenameMode, Result, SetAttr, SetTime};

const UNLINK: (Op<'static>, u64) = (Op::Unlink { dir: NodeId::ROOT, name: b"", over: Precondition::Any }, 0);
const MKDIR: (Op<'static>, u64) =
    (Op::Make { dir: NodeId::ROOT, name: b"", make: Make::Dir, mode: 0, umask: 0 }, 0);
const RENAME: (Op<'static>, u64) = (
    Op::Rename {
        from_dir: NodeId::ROOT,
        from_name: b"",
        to_dir: NodeId::ROOT,
        to_name: b"",
        mode: RenameMode::Replace,
    },
    0,
);

impl Tree {
    /// Makes a directory, durably. With `parents` also the missing ones above it, and an existing
    /// directory is no error.
    ///
    /// # Errors
    /// As for `mkdir`.
    pub async fn make_dir(&self, path: &Path, parents: bool) -> Result<Attr> {
        self.make_dir_with(path, parents, DIR_MODE).await
    }

    /// Makes a directory that nobody else may enter, durably.
    ///
    /// # Errors
    /// As for `mkdir`.
    pub async fn make_private_dir(&self, path: &Path) -> Result<Attr> {
        self.make_dir_with(path, false, 0o700).await
    }

    async fn make_dir_with(&self, path: &Path, parents: bool, mode: u32) -> Result<Attr> {
        let path = path.clone();
        let mut made: Option<Attr> = None;
        self.run(MKDIR, move |steps, base| {
            let attr = match made {
                Some(attr) => attr,
                None if parents => {
                    let walked = steps.walk_making(base, &path)?;
                    match walked.attr {
                        Some(attr) => attr,
                        None => match steps.make_dir(walked.dir(), &walked.name, mode, None) {
                            // another request has just done it
                            Err(Error::Exists) => *steps.walk(base, &path, false)?.found()?,
                            made => made?,
                        },
                    }
                }
                None => {
                    let walked = steps.walk(base, &path, false)?;
                    if walked.attr.is_some() {
                        return Err(Error::Exists);
                    }
                    steps.make_dir(walked.dir(), &walked.name, mode, None)?
                }
            };
            if attr.kind != Kind::Dir {
                return Err(Error::Exists);
            }
            made = Some(attr);
            steps.fsync(attr.node)?;
            Ok(attr)
        })
        .await
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As for `readlink`.
    pub async fn read_link(&self, path: &Path) -> Result<Vec<u8>> {
        let path = path.clone();
        self.run(LOOK, move |steps, base| {
            let node = steps.walk(base, &path, false)?.found()?.node;
            steps.call(Op::ReadLink { node })?.data()
        })
        .await
    }

    /// Makes a symbolic link, durably.
    ///
    /// # Errors
    /// As for `symlink`.
    pub async fn make_link(&self, path: &Path, target: &[u8]) -> Result<()> {
        let (path, target) = (path.clone(), target.to_vec());
        let mut made = None;
        self.run(MKDIR, move |steps, base| {
            let node = match made {
                Some(node) => node,
                None => {
                    let walked = steps.walk(base, &path, false)?;
                    Steps::changeable(walked.dir())?;
                    steps.permit(walked.dir(), W | X)?;
                    let (dir, make) = (walked.dir().node, Make::Symlink(&target));
                    steps.attr_of(Op::Make { dir, name: &walked.name, make, mode: 0o777, umask: 0 })?.node
                }
            };
            made = Some(node);
            steps.fsync(node)
        })
        .await
    }

    /// Removes a file (or link, or anything but a directory), durably. `prune`: also the
    /// directories above that it leaves empty, if a door made them for a path.
    ///
    /// # Errors
    /// As for `unlink`.
    pub async fn remove(&self, path: &Path, prune: bool) -> Result<()> {
        self.remove_if(path, Precondition::Any, prune).await
    }

    /// Removes a file as [`Tree::remove`] does, if it meets the condition `over`.
    ///
    /// # Errors
    /// As for `unlink`; [`Error::Changed`].
    pub async fn remove_if(&self, path: &Path, over: Precondition, prune: bool) -> Result<()> {
        let path = path.clone();
        let mut removed: Option<Walked> = None;
        self.run(UNLINK, move |steps, base| {
            if removed.is_none() {
                let walked = steps.walk(base, &path, false)?;
                permit_removal(steps, walked.dir(), walked.found()?)?;
                steps.call(Op::Unlink { dir: walked.dir().node, name: &walked.name, over })?;
                removed = Some(walked);
            }
            match &mut removed {
                Some(walked) if prune => prune_above(steps, walked)?,
                _ => {}
            }
            steps.fsync(NodeId::ROOT)
        })
        .await
    }

    /// Removes an empty directory, durably.
    ///
    /// # Errors
    /// As for `rmdir`.
    pub async fn remove_dir(&self, path: &Path) -> Result<()> {
        let path = path.clone();
        let mut removed = false;
        self.run(UNLINK, move |steps, base| {
            if !removed {
                let walked = steps.walk(base, &path, false)?;
                permit_removal(steps, walked.dir(), walked.found()?)?;
                steps.call(Op::RmDir { dir: walked.dir().node, name: &walked.name })?;
                removed = true;
            }
            steps.fsync(NodeId::ROOT)
        })
        .await
    }

    /// Renames an entry, in this tree or to another tree of the same user, durably.
    ///
    /// # Errors
    /// As for `renameat2`; [`Error::CrossVolume`] to another volume: copy, then remove.
    pub async fn rename(&self, from: &Path, there: &Tree, to: &Path, mode: RenameMode) -> Result<()> {
        let (from, to, there) = (from.clone(), to.clone(), there.base.clone());
        let mut renamed = false;
        self.run(RENAME, move |steps, base| {
            if !renamed {
                let (a, b) = (steps.walk(base, &from, false)?, steps.walk(&there, &to, false)?);
                let entry = a.found()?;
                permit_removal(steps, a.dir(), entry)?;
                match &b.attr {
                    Some(target) => permit_removal(steps, b.dir(), target)?,
                    None => permit_new(steps, b.dir())?,
                }
                let goes_back = b.attr.iter().filter(|_| mode == RenameMode::Exchange);
                for moved in goes_back.chain([entry]) {
                    if moved.kind == Kind::Dir && a.dir().node != b.dir().node {
                        // its `..` changes
                        steps.permit(moved, W)?;
                    }
                }
                steps.call(Op::Rename {
                    from_dir: a.dir().node,
                    from_name: &a.name,
                    to_dir: b.dir().node,
                    to_name: &b.name,
                    mode,
                })?;
                renamed = true;
            }
            steps.fsync(NodeId::ROOT)
        })
        .await
    }

    /// Makes a directory, the root of this tree, like the root of another tree, durably: mode,
    /// ACLs, time of modification, and attributes that users may name. `keeps_group`: also its
    /// group, where the user is in it.
    ///
    /// # Errors
    /// As for `chmod`, `setxattr` and `utimensat`.
    pub async fn make_like(&self, other: &Tree, keeps_group: bool) -> Result<()> {
        let other = other.base.clone();
        self.run(SET, move |steps, base| {
            let root = Path::default();
            let from = *steps.walk(&other, &root, false)?.found()?;
            let to = *steps.walk(base, &root, false)?.found()?;
            like::same_notes(steps, &from, &to)?;
            like::same_rights(steps, &from, &to, keeps_group)?;
            like::same_default(steps, &from, &to)?;
            let set = SetAttr { mtime: Some(SetTime::To(from.mtime)), ..SetAttr::default() };
            steps.call(Op::SetAttr { node: to.node, set })?;
            steps.fsync(to.node)
        })
        .await
    }
}

fn permit_removal(steps: &Steps<'_>, dir: &Attr, entry: &Attr) -> Result<()> {
    permit_new(steps, dir)?;
    rights::permit_removal(steps.ctx, dir, entry)
}

fn permit_new(steps: &Steps<'_>, dir: &Attr) -> Result<()> {
    Steps::changeable(dir)?;
    steps.permit(dir, W | X)
}

/// Removes the directories above a removed entry that are empty now and were made for paths, from
/// the bottom up. A directory that cannot be removed stays. Removed ones are taken out of `gone`,
/// so this can be called again.
fn prune_above(steps: &Steps<'_>, gone: &mut Walked) -> Result<()> {
    while gone.way.len() > gone.floor {
        let [.., parent, dir] = &gone.dirs[..] else { return Ok(()) };
        let name = gone.way.last().expect("it is below the floor");
        let is_it = match steps.look_up(parent.node, name) {
            Ok(now) => now.node == dir.node && now.kind == Kind::Dir && now.size == 0,
            Err(Error::WouldBlock) => return Err(Error::WouldBlock),
            Err(_) => false,
        };
        let may = is_it
            && steps.xattr(dir.node, MADE_FOR_PATH)?.is_some()
            && permit_removal(steps, parent, dir).is_ok();
        if !may {
            return Ok(());
        }
        match steps.call(Op::RmDir { dir: parent.node, name }) {
            Ok(_) => {}
            Err(Error::WouldBlock) => return Err(Error::WouldBlock),
            Err(_) => return Ok(()),
        }
        gone.dirs.pop();
        gone.way.pop();
    }
    Ok(())
}
