//! Directories: their names on both sides before anything in them is brought, their attributes
//! after it.

use super::attributes::looks_same;
use super::pass::{Node, Pass, Work};
use super::problem::{OnSide, Problem};
use crate::sys::{Dir, FileId, Kind};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many names are one piece of work.
const PART_NAMES: usize = 128;

impl Pass {
    /// Opens a directory on both sides, and makes work of its names.
    pub(super) fn enter(
        self: &Arc<Pass>,
        above: &Node,
        name: &CStr,
        path: &[u8],
        is_new: bool,
    ) -> Result<(), Problem> {
        let source = above.source.dir(name).source()?;
        // a file system may have been mounted there since the look at the name
        if self.is_left_out(source.stat().source()?.id) {
            self.report.lock().summary.mounts_left_out += 1;
            return Ok(());
        }
        let target = match &above.target {
            Some(_) if is_new && self.options.dry_run => None,
            Some(dir) => Some(dir.dir(name).target()?),
            None => None,
        };
        self.names(source, target, [path, b"/"].concat(), is_new)
    }

    /// Whether a directory belongs to another file system, which is not to be brought.
    pub(super) fn is_left_out(&self, id: FileId) -> bool {
        id.dev != self.device && !self.options.cross_file_systems
    }

    /// Sees to it that the target has a directory. Returns whether it was made.
    pub(super) fn directory_there(&self, above: &Node, name: &CStr) -> Result<bool, Problem> {
        let there = match above.target.as_ref().filter(|_| !above.is_new) {
            Some(dir) => dir.look(name).target()?,
            None => None,
        };
        if there.is_some_and(|there| there.kind == Kind::Directory) {
            return Ok(false);
        }
        self.report.lock().summary.directories_made += 1;
        if let Some(dir) = above.target.as_ref().filter(|_| !self.options.dry_run) {
            if there.is_some() {
                dir.remove_file(name).target()?;
            }
            dir.make_dir(name).target()?;
        }
        Ok(true)
    }

    /// Makes work of the names of a directory.
    pub(super) fn names(
        self: &Arc<Pass>,
        source: Dir,
        target: Option<Dir>,
        path: Vec<u8>,
        is_new: bool,
    ) -> Result<(), Problem> {
        let stat = source.stat().source()?;
        let mut names = source.names().source()?;
        names.retain(|name| !self.options.exclude.contains(name));
        self.report.lock().summary.directories += 1;
        if let Some(target) = target.as_ref().filter(|_| !is_new) {
            self.vanished(target, &names, &path)?;
        }
        // the newest work is done first: the first names come last
        let parts: Vec<Vec<CString>> = names.chunks(PART_NAMES).rev().map(<[CString]>::to_vec).collect();
        let count = AtomicUsize::new(parts.len());
        let node = Arc::new(Node { source, target, stat, path, is_new, parts: count });
        if parts.is_empty() {
            return self.leave(&node);
        }
        self.queue.add(parts.into_iter().map(|names| Work::Names(node.clone(), names)));
        Ok(())
    }

    /// Names of the target that the source does not have.
    fn vanished(&self, target: &Dir, names: &[CString], path: &[u8]) -> Result<(), Problem> {
        let is_extra =
            |name: &CString| names.binary_search(name).is_err() && !self.options.exclude.contains(name);
        let extra: Vec<CString> = target.names().target()?.into_iter().filter(is_extra).collect();
        // its file system may be away, as it may be for the root
        let may_be_away = self.options.cross_file_systems && names.is_empty() && !path.is_empty();
        if self.options.delete && may_be_away && !extra.is_empty() {
            return Err(Problem::EmptySource);
        }
        for name in extra {
            if !self.options.delete {
                self.report.lock().summary.only_in_target += 1;
            } else if let Err(problem) = self.remove(target, &name) {
                self.note(&[path, name.to_bytes()].concat(), problem);
            }
        }
        Ok(())
    }

    /// All names of a directory are brought: its attributes follow.
    pub(super) fn leave(&self, node: &Node) -> Result<(), Problem> {
        debug_assert_eq!(node.parts.load(Ordering::Relaxed), 0, "all parts are done");
        let Some(target) = node.target.as_ref().filter(|_| !self.options.dry_run) else { return Ok(()) };
        let there = target.stat().target()?;
        if !node.is_new && looks_same(&node.stat, &there) && self.state.is_known(&node.stat, &there) {
            return Ok(());
        }
        self.attributes(&node.source.as_inode().source()?, &node.stat, &target.as_inode().target()?)
    }
}
