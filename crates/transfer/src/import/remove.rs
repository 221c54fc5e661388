//! Removes from the target what the source does not have any more.
//!
//! Each directory gets another name before anything in it is removed. The kernel refuses that for a
//! directory on which something is mounted, and Leeward for one where a volume is attached: neither
//! is emptied by mistake. What cannot be removed gets its name back.

use super::pass::Pass;
use super::problem::{OnSide, Problem};
use crate::sys::{Dir, Kind, c_string};
use std::ffi::{CStr, CString};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names for directories that are being removed. A pass that is killed may leave one, which the
/// next pass removes like any other.
fn going_name() -> io::Result<CString> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (process, n) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    c_string(format!(".lee-import-removes-{process}-{n}").as_bytes())
}

impl Pass {
    /// Removes a directory of the target in whose place something else comes.
    pub(super) fn remove_directory_there(&self, dir: &Dir, name: &CStr) -> Result<(), Problem> {
        if !self.options.delete {
            return Err(Problem::DirectoryThere);
        }
        if self.remove(dir, name)? { Ok(()) } else { Err(Problem::ExcludedThere) }
    }

    /// Removes a name of the target, with all that is below. Returns whether nothing of it is left:
    /// excluded names stay, and the directories above them.
    pub(super) fn remove(&self, dir: &Dir, name: &CStr) -> Result<bool, Problem> {
        let Some(stat) = dir.look(name).target()? else { return Ok(true) };
        let mut gone = true;
        if !self.options.dry_run {
            match stat.kind {
                Kind::Directory => gone = self.remove_tree(dir, name).target()?,
                _ => dir.remove_file(name).target()?,
            }
        }
        let summary = &mut self.report.lock().summary;
        *(if gone { &mut summary.removed } else { &mut summary.only_in_target }) += 1;
        Ok(gone)
    }

    /// Removes a directory with all that is below. Returns whether it is gone.
    fn remove_tree(&self, dir: &Dir, name: &CStr) -> io::Result<bool> {
        let mut levels = vec![Level::enter(dir, name)?];
        let removed = self.remove_levels(dir, &mut levels);
        // from below, so that each is found in the one above
        while let Some(level) = levels.pop() {
            let above = levels.last().map_or(dir, |above| &above.dir);
            above.rename(&level.going, &level.name)?;
        }
        removed
    }

    /// Goes down one directory at a time. Leaves in `levels` those that stay with what was not
    /// reached. Returns whether all is gone.
    fn remove_levels(&self, dir: &Dir, levels: &mut Vec<Level>) -> io::Result<bool> {
        let mut keeps = false;
        while let Some(level) = levels.last_mut() {
            if self.is_over() {
                return Ok(false);
            }
            if let Some(name) = level.names.pop() {
                if self.options.exclude.contains(&name) {
                    level.keeps = true;
                    continue;
                }
                match level.dir.look(&name)?.map(|stat| stat.kind) {
                    Some(Kind::Directory) => {
                        let below = Level::enter(&level.dir, &name)?;
                        levels.push(below);
                    }
                    Some(_) => level.dir.remove_file(&name)?,
                    None => {}
                }
                continue;
            }
            keeps = level.keeps;
            let (going, name) = (level.going.clone(), level.name.clone());
            let above = levels.iter().rev().nth(1).map_or(dir, |above| &above.dir);
            if keeps {
                above.rename(&going, &name)?
            } else {
                above.remove_dir(&going)?
            }
            levels.pop();
            if let Some(above) = levels.last_mut() {
                above.keeps |= keeps;
            }
        }
        Ok(!keeps)
    }
}

/// A directory that is being removed.
struct Level {
    dir: Dir,
    name: CString,
    /// Its name meanwhile.
    going: CString,
    names: Vec<CString>,
    /// Whether excluded names stay in it or below.
    keeps: bool,
}

impl Level {
    fn enter(above: &Dir, name: &CStr) -> io::Result<Level> {
        let going = going_name()?;
        above.rename(name, &going)?;
        let opened = above.dir(&going).and_then(|dir| Ok((dir.names()?, dir)));
        match opened {
            Ok((names, dir)) => Ok(Level { dir, name: name.to_owned(), going, names, keeps: false }),
            Err(e) => above.rename(&going, name).and(Err(e)),
        }
    }
}
