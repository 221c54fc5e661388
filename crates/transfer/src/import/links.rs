//! Names of the same inode. The first name that a pass meets is brought like any file. The others
//! wait until all else is done, and then become further names of what the first one has become.

use super::pass::Pass;
use super::problem::{OnSide, Problem};
use crate::sys::{Dir, FileId, Kind, c_string};
use rustc_hash::FxHashMap;
use std::ffi::CString;
use std::io;
use std::sync::atomic::Ordering;

/// What a pass knows of inodes with several names.
#[derive(Default)]
pub(super) struct Links {
    /// By inode of the source.
    claims: FxHashMap<FileId, Claim>,
    /// By inode of the target: which one of the source it stands for.
    stand_for: FxHashMap<FileId, FileId>,
    later: Vec<Later>,
}

struct Claim {
    /// The first name.
    path: Vec<u8>,
    /// What it is in the target, when that is known.
    target: Option<FileId>,
}

struct Later {
    source: FileId,
    path: Vec<u8>,
}

impl Links {
    /// Whether this is the first name of an inode of the source. Others are kept for later.
    pub(super) fn is_first(&mut self, source: FileId, path: &[u8]) -> bool {
        if self.claims.contains_key(&source) {
            self.later.push(Later { source, path: path.to_vec() });
            return false;
        }
        self.claims.insert(source, Claim { path: path.to_vec(), target: None });
        true
    }

    /// Whether an inode of the target may stand for this one of the source: not if it stands for
    /// another one already.
    pub(super) fn may_stand_for(&mut self, target: FileId, source: FileId) -> bool {
        *self.stand_for.entry(target).or_insert(source) == source
    }

    /// The first name is brought.
    pub(super) fn is_brought(&mut self, source: FileId, target: FileId) {
        self.stand_for.insert(target, source);
        if let Some(claim) = self.claims.get_mut(&source) {
            claim.target = Some(target);
        }
    }
}

/// A path as its directory, with `/` at the end or empty, and its name.
fn divided(path: &[u8]) -> (&[u8], &[u8]) {
    path.split_at(path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1))
}

/// A directory below another one, by names, through no symbolic link.
fn descend(root: &Dir, path: &[u8]) -> io::Result<Dir> {
    let mut dir = root.dir(c".")?;
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        dir = dir.dir(&c_string(name)?)?;
    }
    Ok(dir)
}

/// The directory that was used last: names of one directory often follow each other.
#[derive(Default)]
struct Last(Option<(Vec<u8>, Dir)>);

impl Last {
    fn get(&mut self, root: &Dir, path: &[u8]) -> io::Result<&Dir> {
        let found = match self.0.take() {
            Some(last) if last.0 == path => last,
            _ => (path.to_vec(), descend(root, path)?),
        };
        Ok(&self.0.insert(found).1)
    }
}

impl Pass {
    /// Makes the names that waited.
    pub(super) fn link_later(&self, root: Option<&Dir>, stopped: &dyn Fn() -> bool) {
        let (mut to, mut from) = (Last::default(), Last::default());
        let later = std::mem::take(&mut self.links.lock().later);
        for Later { source, path } in later {
            if stopped() {
                self.stopped.store(true, Ordering::Relaxed);
            }
            if self.is_over() {
                return;
            }
            if let Err(problem) = self.link_one(root, (&mut to, &mut from), source, &path) {
                self.note(&path, problem);
            }
        }
    }

    fn link_one(
        &self,
        root: Option<&Dir>,
        (to, from): (&mut Last, &mut Last),
        source: FileId,
        path: &[u8],
    ) -> Result<(), Problem> {
        let (first, target) = {
            let links = self.links.lock();
            let claim = links.claims.get(&source).ok_or(Problem::NoFirstName)?;
            (claim.path.clone(), claim.target)
        };
        let (Some(root), Some(target)) = (root, target) else {
            return if self.options.dry_run { self.count_link() } else { Err(Problem::NoFirstName) };
        };
        let (dir, name) = divided(path);
        let name = c_string(name).source()?;
        let dir = match to.get(root, dir) {
            Err(e) if self.options.dry_run && e.raw_os_error() == Some(libc::ENOENT) => {
                return self.count_link();
            }
            dir => dir.target()?,
        };
        let there = dir.look(&name).target()?;
        if there.is_some_and(|there| there.id == target) {
            self.report.lock().summary.unchanged += 1;
            return Ok(());
        }
        if self.options.dry_run {
            return self.count_link();
        }
        // the directory has the times of its source already
        let times = dir.stat().target()?;
        match there.map(|there| there.kind) {
            Some(Kind::Directory) => self.remove_directory_there(dir, &name)?,
            Some(_) => dir.remove_file(&name).target()?,
            None => {}
        }
        let (from_dir, old) = divided(&first);
        let old: CString = c_string(old).source()?;
        let from = from.get(root, from_dir).target()?;
        dir.link(&name, from, &old).target()?;
        dir.as_inode().and_then(|inode| inode.set_times(times.atime, times.mtime)).target()?;
        self.count_link()
    }

    fn count_link(&self) -> Result<(), Problem> {
        self.report.lock().summary.hard_links += 1;
        Ok(())
    }
}
