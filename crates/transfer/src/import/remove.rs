//! Removes from the target what the source does not have any more.
//!
//! Each directory gets another name before anything in it is removed. The kernel refuses that for a
//! directory on which something is mounted, and Leeward for one where a volume is attached: neither
//! is emptied by mistake.

use super::pass::Pass;
use super::problem::{OnSide, Problem};
use crate::sys::{Dir, Kind};
use std::ffi::{CStr, CString};
use std::io;

/// The name of a directory that is being removed. A pass that is killed may leave one.
const GOING: &CStr = c".lee-import-removes";

impl Pass {
    /// Removes a directory of the target in whose place something else comes.
    pub(super) fn remove_directory_there(&self, dir: &Dir, name: &CStr) -> Result<(), Problem> {
        if !self.options.delete {
            return Err(Problem::DirectoryThere);
        }
        self.remove(dir, name)
    }

    /// Removes a name of the target, with all that is below.
    pub(super) fn remove(&self, dir: &Dir, name: &CStr) -> Result<(), Problem> {
        let Some(stat) = dir.look(name).target()? else { return Ok(()) };
        if !self.options.dry_run {
            match stat.kind {
                Kind::Directory => self.remove_tree(dir, name).target()?,
                _ => dir.remove_file(name).target()?,
            }
        }
        self.report.lock().summary.removed += 1;
        Ok(())
    }

    /// Removes a directory with all that is below. Goes down one directory at a time.
    fn remove_tree(&self, dir: &Dir, name: &CStr) -> io::Result<()> {
        let mut levels = vec![Level::enter(dir, name)?];
        loop {
            if self.is_over() {
                return Ok(());
            }
            let Some(level) = levels.last_mut() else { return Ok(()) };
            match level.names.pop() {
                Some(name) => {
                    let is_dir = level.dir.look(&name)?.is_some_and(|stat| stat.kind == Kind::Directory);
                    if is_dir {
                        let below = Level::enter(&level.dir, &name)?;
                        levels.push(below);
                    } else {
                        level.dir.remove_file(&name)?;
                    }
                }
                None => {
                    levels.pop();
                    levels.last().map_or(dir, |above| &above.dir).remove_dir(GOING)?;
                }
            }
        }
    }
}

struct Level {
    dir: Dir,
    names: Vec<CString>,
}

impl Level {
    fn enter(above: &Dir, name: &CStr) -> io::Result<Level> {
        if name != GOING {
            above.rename(name, GOING)?;
        }
        let dir = above.dir(GOING)?;
        let names = dir.names()?;
        Ok(Level { dir, names })
    }
}
