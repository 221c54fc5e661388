//! The tree that is exported, which does not change: a snapshot that is there, or one that lives as
//! long as the export.

use crate::cmd::Invocation;
use crate::fail::{Fail, text};
use crate::{locate, mounts, session};
use leeward_env::dates;
use leeward_volume::admin;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

/// How names of snapshots begin that live as long as an export.
const TEMPORARY: &str = "lee-export-";
/// The directory with the snapshots of a directory.
const SNAPSHOTS: &str = ".snap";

/// A tree in a snapshot.
pub(super) struct Source {
    path: PathBuf,
    /// The directory of which it is, as it is now.
    live: PathBuf,
    /// The snapshot to remove in the end.
    temporary: Option<PathBuf>,
}

impl Source {
    /// The snapshot that is named, or a new one of the directory that is named.
    ///
    /// # Errors
    /// When it is in no mount of ours, or no snapshot can be taken.
    pub(super) fn freeze(invocation: &Invocation, path: &Path) -> Result<Source, Fail> {
        let failed = |why: &str| Fail::new(format!("{}: cannot be exported: {why}", path.display()));
        let found = path.canonicalize().map_err(|e| failed(&text(&e)))?;
        if mounts::containing(&found).is_none() {
            return Err(failed("it is in no mount of a cell; use tar for other file systems"));
        }
        if !found.is_dir() {
            return Err(failed("it is no directory"));
        }
        if found.file_name() == Some(OsStr::new(SNAPSHOTS)) {
            return Err(failed("name one of the snapshots in it"));
        }
        match live(&found) {
            Some(live) => Ok(Source { path: found, live, temporary: None }),
            None => Source::take(invocation, found),
        }
    }

    fn take(invocation: &Invocation, live: PathBuf) -> Result<Source, Fail> {
        let now = dates::second((invocation.env.wall() / 1_000_000_000) as i64);
        let name = format!("{TEMPORARY}{now}-{}", std::process::id());
        let path = live.join(SNAPSHOTS).join(name);
        std::fs::create_dir(&path).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => Fail::new(format!(
                "{}: you may not take a snapshot of it: name one that is there, {0}/{SNAPSHOTS}/NAME",
                live.display()
            )),
            _ => Fail::new(format!("{}: no snapshot can be taken of it: {}", live.display(), text(&e))),
        })?;
        Ok(Source { path: path.clone(), live, temporary: Some(path) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Volumes attached below, which no snapshot of a directory above has; none where that is not
    /// told.
    pub(super) fn volumes_below(&self, invocation: &Invocation) -> Vec<String> {
        let Some(mount) = mounts::containing(&self.live) else { return Vec::new() };
        let Ok(cell) = locate::called(mount.at.as_os_str(), "") else { return Vec::new() };
        let Ok(here) = mounts::path_in_cell(cell.path(), &self.live) else { return Vec::new() };
        let asked = session::with(&invocation.env, &cell, "export", |s| s.ask(&admin::VolumeList));
        let all = asked.map_or(Vec::new(), |reply| reply.volumes);
        let below = |at: &String| *at != here && mounts::is_below(at, &here);
        all.into_iter().map(|volume| volume.at).filter(below).collect()
    }

    /// Removes the snapshot that lives as long as the export.
    ///
    /// # Errors
    /// When it stays.
    pub(super) fn release(mut self) -> Result<(), Fail> {
        let Some(path) = self.temporary.take() else { return Ok(()) };
        std::fs::remove_dir(&path).map_err(|e| {
            Fail::new(format!("{}: the snapshot stays: {}: remove it with rmdir", path.display(), text(&e)))
        })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(path) = &self.temporary {
            let _ = std::fs::remove_dir(path);
        }
    }
}

/// The directory as it is now for a path in a snapshot; `None` for any other path.
fn live(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components();
    let mut above = PathBuf::new();
    for part in parts.by_ref() {
        if part == Component::Normal(OsStr::new(SNAPSHOTS)) {
            // the snapshot's own name
            parts.next()?;
            return Some(above.join(parts.as_path()));
        }
        above.push(part);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_snapshots_are_known() {
        let live = |path| live(Path::new(path)).map(|path| path.display().to_string());
        assert_eq!(live("/mnt/d/.snap/s"), Some("/mnt/d/".into()));
        assert_eq!(live("/mnt/.snap/s/a/b"), Some("/mnt/a/b".into()));
        assert_eq!(live("/mnt/d"), None);
        assert_eq!(live("/mnt/d/.snap"), None);
    }
}
