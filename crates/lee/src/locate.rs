//! Finding the cell that a command is about: `--cell DIR`, else `LEE_CELL`, else the cell or the mount of a cell
//! that the current directory is in.

use crate::fail::{Fail, text};
use crate::mounts;
use leeward_volume::Cell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The variable that names a cell where `--cell` does not.
const VARIABLE: &str = "LEE_CELL";

/// The directory of a cell: absolute, without symbolic links, so that it means the same in every process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellDir(PathBuf);

impl CellDir {
    /// The directory as such; it must exist. Whether it holds a cell is not asked.
    ///
    /// # Errors
    /// When it cannot be resolved.
    pub fn resolve(dir: &Path) -> std::io::Result<CellDir> {
        dir.canonicalize().map(CellDir)
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The lock that whoever has the cell open holds.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// The settings.
    pub fn settings(&self) -> PathBuf {
        self.0.join("leeward.toml")
    }

    /// What a process in the background has to say.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Where it is mounted by default.
    pub fn mount_point(&self) -> PathBuf {
        self.0.join("mnt")
    }
}

impl std::fmt::Display for CellDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.display().fmt(f)
    }
}

/// Finds the cell; `named` is what the command line says.
///
/// # Errors
/// Says what was looked at and how to name a cell.
pub fn cell(named: Option<&OsStr>) -> Result<CellDir, Fail> {
    match told(named) {
        Some((dir, by)) => cell_at(Path::new(&dir), by),
        None => around(),
    }
}

/// What `--cell` or the environment says, and which of the two.
pub fn told(named: Option<&OsStr>) -> Option<(OsString, &'static str)> {
    let by_environment = || std::env::var_os(VARIABLE).filter(|v| !v.is_empty()).map(|v| (v, VARIABLE));
    named.map(|n| (n.to_os_string(), "--cell")).or_else(by_environment)
}

/// Refuses what names an object store.
///
/// # Errors
/// When `name` is a URL.
pub fn refuse_url(name: &OsStr) -> Result<(), Fail> {
    match name.to_string_lossy().split_once("://") {
        Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) && !scheme.is_empty() => {
            Err(Fail::new(format!(
                "{}: this version keeps cells in directories only, not in object stores: name a directory",
                name.to_string_lossy()
            )))
        }
        _ => Ok(()),
    }
}

fn cell_at(dir: &Path, by: &str) -> Result<CellDir, Fail> {
    refuse_url(dir.as_os_str())?;
    let wrong = |what: &str| Fail::new(format!("{}: {what} (named by {by})", dir.display()));
    let found = CellDir::resolve(dir).map_err(|e| wrong(&cannot_resolve(&e, dir)))?;
    // The mount of a cell stands for the cell.
    if let Some(mount) = mounts::all().into_iter().find(|m| m.at == found.0) {
        return Ok(CellDir(mount.cell));
    }
    if !found.0.is_dir() {
        return Err(wrong("not a directory: name the directory of a cell"));
    }
    // What cannot be entered looks empty.
    if let Err(e) = found.0.join(".").metadata() {
        return Err(wrong(&cannot_resolve(&e, dir)));
    }
    if !Cell::exists(&found.0) {
        return Err(wrong(&format!(
            "no cell in this directory: name the directory of one, or make one with `lee up {}`",
            dir.display()
        )));
    }
    Ok(found)
}

fn cannot_resolve(e: &std::io::Error, dir: &Path) -> String {
    match e.kind() {
        std::io::ErrorKind::NotFound => {
            format!(
                "no such directory: name the directory of a cell, or make one with `lee up {}`",
                dir.display()
            )
        }
        _ => format!("{}: name the directory of a cell that you may enter", text(e)),
    }
}

/// The cell or the mount that the current directory is in.
fn around() -> Result<CellDir, Fail> {
    let nowhere = |here: &str| {
        Fail::new(format!(
            "no cell found: {here} is neither in a cell nor in a mounted one; \
             name one with --cell DIR or {VARIABLE}=DIR, or make one with `lee up DIR`"
        ))
    };
    let Ok(here) = std::env::current_dir() else {
        return Err(nowhere("the current directory (which is gone)"));
    };
    // The mount comes first: a file in it may look like a cell's, but the cell is the one that is mounted.
    if let Some(mount) = mounts::containing(&here) {
        return Ok(CellDir(mount.cell));
    }
    match here.ancestors().find(|dir| Cell::exists(dir)) {
        Some(dir) => Ok(CellDir(dir.to_path_buf())),
        None => Err(nowhere(&here.display().to_string())),
    }
}
