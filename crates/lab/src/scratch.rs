//! A directory of our own on the file system that is measured. It is removed when the run ends, in
//! every way that lets us do so. After `kill -9` it stays, under a name that says whose it was.

use crate::sys::Identity;
use crate::{Refused, sys};
use leeward_env::Env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A directory that is removed with everything in it when this is dropped.
#[derive(Debug)]
pub struct ScratchDir {
    dir: PathBuf,
}

impl ScratchDir {
    /// Makes a directory below `parent`, with a name that begins with `prefix`. Others may pass
    /// through it, but not change it.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn make(env: &Env, parent: &Path, prefix: &str) -> io::Result<ScratchDir> {
        let name = format!(".{prefix}-{}-{:06x}", std::process::id(), env.random() & 0xff_ffff);
        let dir = parent.join(name);
        fs::create_dir(&dir)?;
        let place = ScratchDir { dir };
        fs::set_permissions(&place.dir, fs::Permissions::from_mode(0o755))?;
        Ok(place)
    }

    /// The directory's path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a directory in it that belongs to another user, or to us.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn subdirectory(&self, name: &str, owner: Option<Identity>) -> io::Result<PathBuf> {
        let dir = self.dir.join(name);
        fs::create_dir(&dir)?;
        if let Some(owner) = owner {
            sys::give(&dir, owner)?;
        }
        Ok(dir)
    }

    /// Removes the directory, and returns the error if that fails.
    ///
    /// # Errors
    /// Those of the system calls. What could not be removed stays.
    pub fn remove(mut self) -> io::Result<()> {
        remove_tree(&std::mem::take(&mut self.dir))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if !self.dir.as_os_str().is_empty() {
            // A caller that needs the error calls `remove`.
            let _ = remove_tree(&self.dir);
        }
    }
}

/// Removes a tree, its own snapshots first: a directory that has snapshots cannot be removed.
///
/// # Errors
/// Those of the system calls, except that the tree does not exist.
pub fn remove_tree(dir: &Path) -> io::Result<()> {
    remove_snapshots(dir);
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Removes the snapshots that were taken of this very directory. The names of those of directories
/// above begin with `_`.
fn remove_snapshots(dir: &Path) {
    let Ok(found) = fs::read_dir(dir.join(".snap")) else { return };
    for entry in found.flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(b"_") {
            // A snapshot that stays makes the removal of the directory fail, and that is reported.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Checks that a path is a directory in which we may make files.
///
/// # Errors
/// A sentence with the next step.
pub fn check(path: &Path) -> Result<(), Refused> {
    let next = "name a directory on the file system to be measured";
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(Refused(format!("{}: no such directory: {next}", path.display())))
        }
        Err(e) => Err(Refused(format!("{}: {}: {next}", path.display(), crate::text::cause(&e)))),
        Ok(found) if !found.is_dir() => Err(Refused(format!("{}: not a directory: {next}", path.display()))),
        Ok(_) => Ok(()),
    }
}

/// Makes a scratch directory.
///
/// # Errors
/// A sentence as of [`check`], or that the directory cannot be made there.
pub fn checked(env: &Env, parent: &Path, prefix: &str) -> Result<ScratchDir, Refused> {
    check(parent)?;
    ScratchDir::make(env, parent, prefix).map_err(|e| refusal(parent, &e))
}

/// The sentence for a directory of ours that cannot be made.
pub fn refusal(parent: &Path, error: &io::Error) -> Refused {
    let next = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "; name a directory you may write to",
        Some(libc::EROFS) => "; only what can be written to can be measured",
        Some(libc::ENOSPC | libc::EDQUOT) => "; make room first",
        _ => "",
    };
    let cause = crate::text::cause(error);
    Refused(format!("{}: cannot make a directory in it: {cause}{next}", parent.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_goes_with_what_is_in_it() {
        let (env, root) = (Env::real(), tempfile::tempdir().expect("a directory"));
        let place = ScratchDir::make(&env, root.path(), "lee-test").expect("made");
        let dir = place.subdirectory("a", None).expect("made");
        fs::write(dir.join("f"), "x").expect("write");
        drop(place);
        assert_eq!(fs::read_dir(root.path()).expect("list").count(), 0);
        let place = ScratchDir::make(&env, root.path(), "lee-test").expect("made");
        place.remove().expect("removed");
        assert_eq!(fs::read_dir(root.path()).expect("list").count(), 0);
    }

    #[test]
    fn what_cannot_be_measured_is_explained() {
        let root = tempfile::tempdir().expect("a directory");
        let file = root.path().join("f");
        fs::write(&file, "x").expect("write");
        assert!(check(&file).unwrap_err().0.contains("not a directory"));
        assert!(check(&root.path().join("none")).unwrap_err().0.contains("no such directory"));
    }
}
