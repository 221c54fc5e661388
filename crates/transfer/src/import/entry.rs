//! One name of a directory.

use super::attributes::looks_same;
use super::pass::{Node, Pass, Work, Worker};
use super::problem::{OnSide, Problem};
use crate::sys::{Dir, FileId, Inode, Kind, Stat};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// The ACL that says who may open a file.
const ACL: &CStr = c"system.posix_acl_access";
/// Set-uid and set-gid.
const SET_ID: u32 = 0o6000;

/// A name on both sides.
struct Pair<'a> {
    name: &'a CStr,
    path: &'a [u8],
    /// What is to be brought.
    from: &'a Inode,
    stat: Stat,
    /// What the target has, and can become it.
    there: Option<Stat>,
}

impl Pass {
    /// Brings what a name stands for.
    pub(super) fn entry(
        self: &Arc<Pass>,
        worker: &mut Worker,
        node: &Arc<Node>,
        name: &CStr,
        path: &[u8],
    ) -> Result<(), Problem> {
        let from = node.source.inode(name).source()?;
        let stat = from.stat().source()?;
        if stat.kind == Kind::Directory {
            if self.is_left_out(stat.id) {
                self.report.lock().summary.mounts_left_out += 1;
            } else if stat.id != self.target_root {
                // made here, for it changes the time of the directory that it is in
                let is_new = self.directory_there(node, name)?;
                self.queue.add([Work::Directory(node.clone(), name.to_owned(), is_new)]);
            }
            return Ok(());
        }
        if stat.nlink > 1 && !self.links.lock().is_first(stat.id, path) {
            return Ok(());
        }
        let there = match node.target.as_ref().filter(|_| !node.is_new) {
            Some(dir) => self.usable(dir, name, &stat)?,
            None => None,
        };
        let pair = Pair { name, path, from: &from, stat, there };
        let target = match stat.kind {
            Kind::File => self.file(worker, node.target.as_ref(), &pair)?,
            _ => self.special(node.target.as_ref(), &pair)?,
        };
        if let Some(target) = target.filter(|_| stat.nlink > 1) {
            self.links.lock().is_brought(stat.id, target);
        }
        Ok(())
    }

    /// What the target has under a name, if it can become what the source has. Anything else is
    /// removed.
    fn usable(&self, dir: &Dir, name: &CStr, stat: &Stat) -> Result<Option<Stat>, Problem> {
        let Some(there) = dir.look(name).target()? else { return Ok(None) };
        if there.kind == Kind::Directory {
            return self.remove_directory_there(dir, name).map(|()| None);
        }
        // an inode with other names must not get the content of this one
        let is_ours = match stat.nlink {
            1 => there.nlink == 1,
            // nor one that must change, for whoever has its other names
            _ if there.nlink > 1 && !(looks_same(stat, &there) && stat.size == there.size) => false,
            _ => self.links.lock().may_stand_for(there.id, stat.id),
        };
        let is_device = matches!(stat.kind, Kind::CharDevice | Kind::BlockDevice);
        if is_ours && there.kind == stat.kind && (!is_device || there.rdev == stat.rdev) {
            return Ok(Some(there));
        }
        if !self.options.dry_run {
            dir.remove_file(name).target()?;
        }
        Ok(None)
    }

    fn file(
        &self,
        worker: &mut Worker,
        dir: Option<&Dir>,
        pair: &Pair<'_>,
    ) -> Result<Option<FileId>, Problem> {
        let is_same = match (dir, pair.there) {
            (Some(dir), Some(there)) => self.is_same_file(worker, dir, pair, &there)?,
            _ => false,
        };
        if is_same {
            self.report.lock().summary.unchanged += 1;
            return Ok(pair.there.map(|there| there.id));
        }
        let Some(dir) = dir.filter(|_| !self.options.dry_run) else {
            let summary = &mut self.report.lock().summary;
            summary.files_copied += 1;
            summary.bytes_copied += pair.stat.size;
            return Ok(None);
        };
        self.copy_file(worker, dir, pair).map(Some)
    }

    /// Whether the target has this file; then it gets the attributes, too.
    fn is_same_file(
        &self,
        worker: &mut Worker,
        dir: &Dir,
        pair: &Pair<'_>,
        there: &Stat,
    ) -> Result<bool, Problem> {
        if (pair.stat.size, pair.stat.mtime) != (there.size, there.mtime) {
            return Ok(false);
        }
        let is_known = !self.options.compare && self.state.is_known(&pair.stat, there);
        if is_known && looks_same(&pair.stat, there) {
            return Ok(true);
        }
        let to = same_inode(dir, pair.name, there)?;
        if !is_known {
            self.report.lock().summary.files_compared += 1;
            let file = to.open().target()?;
            if !self.is_same_content(worker, &open_source(pair)?, &file)? {
                return Ok(false);
            }
        }
        if !self.options.dry_run {
            self.attributes(pair.from, &pair.stat, &to)?;
        }
        Ok(true)
    }

    fn copy_file(&self, worker: &mut Worker, dir: &Dir, pair: &Pair<'_>) -> Result<FileId, Problem> {
        let source = open_source(pair)?;
        let kept = kept_inode(dir, pair)?;
        let is_new = kept.is_none();
        let (file, to) = match (kept, pair.there) {
            (Some(to), Some(there)) => (open_target(&to, &there).target()?, to),
            _ => make_anew(dir, pair).target()?,
        };
        let copied = self.copy(worker, &source, &file, is_new)?;
        self.attributes(pair.from, &copied.before, &to)?;
        if !copied.settled {
            self.unsettled(pair.path);
        }
        let summary = &mut self.report.lock().summary;
        summary.files_copied += 1;
        summary.bytes_copied += copied.before.size;
        Ok(to.stat().target()?.id)
    }

    /// A symbolic link, a FIFO, a socket or a device.
    fn special(&self, dir: Option<&Dir>, pair: &Pair<'_>) -> Result<Option<FileId>, Problem> {
        let leads = match pair.stat.kind {
            Kind::Symlink => Some(pair.from.link_target().source()?),
            _ => None,
        };
        let mut there = pair.there;
        if let (Some(dir), Some(_), Some(leads)) = (dir, there, &leads)
            && dir.inode(pair.name).and_then(|inode| inode.link_target()).target()? != *leads
        {
            if !self.options.dry_run {
                dir.remove_file(pair.name).target()?;
            }
            there = None;
        }
        let is_known = there
            .is_some_and(|there| looks_same(&pair.stat, &there) && self.state.is_known(&pair.stat, &there));
        {
            let summary = &mut self.report.lock().summary;
            *(if there.is_some() { &mut summary.unchanged } else { &mut summary.specials_made }) += 1;
        }
        let Some(dir) = dir.filter(|_| !self.options.dry_run && !is_known) else {
            return Ok(there.map(|there| there.id));
        };
        match (there, &leads) {
            (Some(_), _) => {}
            (None, Some(leads)) => dir.make_symlink(pair.name, leads).target()?,
            (None, None) => dir.make_node(pair.name, pair.stat.kind, pair.stat.rdev).target()?,
        }
        let to = dir.inode(pair.name).target()?;
        self.attributes(pair.from, &pair.stat, &to)?;
        Ok(Some(to.stat().target()?.id))
    }
}

/// The inode of the target that was looked at, or nothing: users may be at work there.
fn same_inode(dir: &Dir, name: &CStr, there: &Stat) -> Result<Inode, Problem> {
    let inode = dir.inode(name).target()?;
    if inode.stat().target()?.id == there.id { Ok(inode) } else { Err(Problem::Changed) }
}

/// The inode of the target, if the new content may be written into it: whoever may read or run it
/// now may do so with the source. Otherwise a new one takes its place, which nobody else may open
/// until its content is whole.
fn kept_inode(dir: &Dir, pair: &Pair<'_>) -> Result<Option<Inode>, Problem> {
    let (Some(there), stat) = (pair.there, &pair.stat) else { return Ok(None) };
    let same_rights = (there.uid, there.gid, there.mode) == (stat.uid, stat.gid, stat.mode);
    if !same_rights || there.mode & SET_ID != 0 || there.nlink > 1 {
        return Ok(None);
    }
    let to = same_inode(dir, pair.name, &there)?;
    let same_acl = to.attribute(ACL).target()? == pair.from.attribute(ACL).source()?;
    Ok(same_acl.then_some(to))
}

fn make_anew(dir: &Dir, pair: &Pair<'_>) -> io::Result<(File, Inode)> {
    if pair.there.is_some() {
        dir.remove_file(pair.name)?;
    }
    let file = dir.make_file(pair.name)?;
    Inode::of_file(&file).map(|to| (file, to))
}

fn open_source(pair: &Pair<'_>) -> Result<File, Problem> {
    pair.from.open().source()
}

/// Opens a file for writing; its own permissions may be in the way of a user who is not root.
fn open_target(to: &Inode, there: &Stat) -> io::Result<File> {
    to.open_to_write().or_else(|e| match e.raw_os_error() {
        Some(libc::EACCES) => to.set_mode(there.mode | 0o600).and_then(|()| to.open_to_write()),
        _ => Err(e),
    })
}
