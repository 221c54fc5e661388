//! Finds the cell that a command is about: `--cell DIR` or `--cell s3://BUCKET/PREFIX`, else
//! `LEE_CELL`, else the cell or the mount of a cell that the current directory is in.
//!
//! What a process keeps on this machine for a cell (lock, control socket, log, default mount point)
//! is in the cell's directory. For a cell in a bucket it is in its **state directory** below
//! `/run/leeward` (root), `$XDG_RUNTIME_DIR/leeward`, else `/tmp/leeward-UID`; `LEE_STATE_DIR`
//! names another parent. The file `place` in it names the bucket. So the state directory stands for
//! the cell: the mount names it.

use crate::fail::{Fail, text};
use crate::{mounts, system};
use leeward_bucket::{BucketUrl, Location};
use leeward_env::disk::held::HeldDir;
use leeward_volume::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The variable that names a cell when `--cell` does not.
const VARIABLE: &str = "LEE_CELL";

/// The variable that names another parent for state directories.
const STATE_VARIABLE: &str = "LEE_STATE_DIR";
/// The parent of state directories of gateways that run as a service
/// (`contrib/systemd/leeward-gateway@.service`).
const SERVICE_STATES: &str = "/run/leeward-gateway";
/// The file in a state directory that names the cell's bucket.
const PLACE: &str = "place";

/// The directory of a cell, or the state directory of one in a bucket: absolute, without symbolic
/// links, so that it means the same in every process.
#[derive(Clone, Debug)]
pub struct CellDir {
    dir: PathBuf,
    place: Option<Location>,
    held: Option<Arc<HeldDir>>,
    remote: Option<RemoteMount>,
}

/// The mount of a cell that another machine serves.
#[derive(Clone, Debug)]
pub struct RemoteMount {
    /// Where.
    pub at: PathBuf,
    /// The control socket of its process.
    pub socket: PathBuf,
    /// The user who mounted it.
    pub owner: u32,
}

impl CellDir {
    /// The directory itself; it must exist. It is not checked whether it holds a cell.
    ///
    /// # Errors
    /// When it cannot be resolved.
    pub fn resolve(dir: &Path) -> std::io::Result<CellDir> {
        dir.canonicalize().map(CellDir::of)
    }

    fn of(dir: PathBuf) -> CellDir {
        let place = std::fs::read(dir.join(PLACE)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        CellDir { dir, place, held: None, remote: None }
    }

    /// The state directory of a cell in a bucket; it need not exist.
    ///
    /// # Errors
    /// When the URL or the environment make no sense.
    pub fn in_bucket(url: &str) -> Result<CellDir, Fail> {
        let place = Location::find(url).map_err(|e| Fail::new(e.to_string()))?;
        let dir = states().join(place.fingerprint());
        // as mounts name it
        Ok(CellDir { dir: dir.canonicalize().unwrap_or(dir), place: Some(place), held: None, remote: None })
    }

    /// Where it is mounted, if another machine serves it. Its path is the server's name then.
    pub fn remote(&self) -> Option<&RemoteMount> {
        self.remote.as_ref()
    }

    /// Refuses a cell that another machine serves.
    ///
    /// # Errors
    /// It is one.
    pub fn here(self) -> Result<CellDir, Fail> {
        match &self.remote {
            None => Ok(self),
            Some(mount) => Err(Fail::new(format!(
                "{} is mounted from {}: run this on the machine that serves it",
                mount.at.display(),
                self.dir.display()
            ))),
        }
    }

    /// The bucket that it is in; `None`: it is in this directory.
    pub fn place(&self) -> Option<&Location> {
        self.place.as_ref()
    }

    /// Makes the state directory of a cell in a bucket. Other users must get through to the mount;
    /// what is in the directory is private.
    ///
    /// # Errors
    /// When it cannot be made, or belongs to another user.
    pub fn prepare(&mut self) -> Result<(), Fail> {
        let Some(place) = &self.place else { return Ok(()) };
        let dir = &self.dir;
        make_own(dir)?;
        let failed = |e: std::io::Error| not_made(dir, &e);
        for dir in [Some(&**dir), dir.parent()].into_iter().flatten() {
            // directories above belong to the system
            let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755));
        }
        let text = serde_json::to_vec(place).map_err(|e| Fail::new(e.to_string()))?;
        std::fs::write(dir.join(PLACE), text).map_err(failed)?;
        self.dir = self.dir.canonicalize().map_err(failed)?;
        Ok(())
    }

    /// Holds the directory: from now on files are opened in this one, whatever happens to its path.
    ///
    /// # Errors
    /// When it is gone.
    pub fn hold(&mut self) -> std::io::Result<Arc<HeldDir>> {
        let held = match &self.held {
            Some(held) => held.clone(),
            None => Arc::new(HeldDir::open(&self.dir)?),
        };
        self.held = Some(held.clone());
        Ok(held)
    }

    /// The path, for messages and as the name of the cell.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The path to open files in it: of the directory itself if it is held.
    pub fn within(&self) -> &Path {
        self.held.as_ref().map_or(&self.dir, |held| held.path())
    }

    /// The directory, if it is held.
    pub fn held(&self) -> Option<&Arc<HeldDir>> {
        self.held.as_ref()
    }

    /// Its name for people: the directory, or the URL.
    pub fn name(&self) -> PathBuf {
        self.place.as_ref().map_or_else(|| self.dir.clone(), |place| place.to_string().into())
    }

    /// The lock file, which the process that has the cell open holds.
    pub fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// The settings file.
    pub fn settings(&self) -> PathBuf {
        self.name().join("leeward.toml")
    }

    /// The log of a process in the background.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The default mount point.
    pub fn mount_point(&self) -> PathBuf {
        self.dir.join("mnt")
    }
}

impl std::fmt::Display for CellDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.name().display().fmt(f)
    }
}

fn not_made(dir: &Path, e: &std::io::Error) -> Fail {
    let dir = dir.display();
    Fail::new(format!("{dir}: cannot be made: {}: name another place with {STATE_VARIABLE}", text(e)))
}

/// Makes a directory that is this user's own, as others may have made one of that name first.
fn make_own(dir: &Path) -> Result<(), Fail> {
    std::fs::create_dir_all(dir).map_err(|e| not_made(dir, &e))?;
    let meta = std::fs::symlink_metadata(dir).map_err(|e| not_made(dir, &e))?;
    if !meta.is_dir() || (meta.uid() != system::uid() && system::uid() != 0) {
        let dir = dir.display();
        return Err(Fail::new(format!(
            "{dir}: belongs to somebody else: name another place with {STATE_VARIABLE}"
        )));
    }
    Ok(())
}

/// The parent of state directories.
fn states() -> PathBuf {
    let named = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = named(STATE_VARIABLE) {
        return dir;
    }
    match (system::uid(), named("XDG_RUNTIME_DIR")) {
        (0, _) => PathBuf::from("/run/leeward"),
        (_, Some(dir)) => dir.join("leeward"),
        (uid, None) => PathBuf::from(format!("/tmp/leeward-{uid}")),
    }
}

/// Makes the parent of state directories mean the same in a child with another current directory.
pub fn make_state_absolute() {
    if let Some(Ok(dir)) = std::env::var_os(STATE_VARIABLE).filter(|v| !v.is_empty()).map(std::path::absolute)
    {
        // SAFETY: this process has one thread when it starts another in the background.
        unsafe { std::env::set_var(STATE_VARIABLE, dir) };
    }
}

/// Finds the cell; `named` comes from the command line.
///
/// # Errors
/// The text says where a cell was looked for and how to name one.
pub fn cell(named: Option<&OsStr>) -> Result<CellDir, Fail> {
    match told(named) {
        Some((name, by)) => called(&name, &format!(" (named by {by})")),
        None => around(),
    }
}

/// The cell of this name; `by` ends the message when there is none.
///
/// # Errors
/// There is none.
pub fn called(name: &OsStr, by: &str) -> Result<CellDir, Fail> {
    match is_bucket(name) {
        true => CellDir::in_bucket(&name.to_string_lossy()),
        false => cell_at(Path::new(name), by),
    }
}

/// The value of `--cell` or of the environment, and which of the two it is.
pub fn told(named: Option<&OsStr>) -> Option<(OsString, &'static str)> {
    let by_environment = || std::env::var_os(VARIABLE).filter(|v| !v.is_empty()).map(|v| (v, VARIABLE));
    named.map(|n| (n.to_os_string(), "--cell")).or_else(by_environment)
}

/// Whether this names a bucket.
pub fn is_bucket(name: &OsStr) -> bool {
    BucketUrl::is_meant(&name.to_string_lossy())
}

/// Refuses URLs of other kinds.
///
/// # Errors
/// When `name` is a URL.
pub fn refuse_url(name: &OsStr) -> Result<(), Fail> {
    match name.to_string_lossy().split_once("://") {
        Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) && !scheme.is_empty() => {
            Err(Fail::new(format!(
                "{}: a cell is in a directory or at s3://BUCKET/PREFIX (AWS_ENDPOINT_URL names another store than AWS)",
                name.to_string_lossy()
            )))
        }
        _ => Ok(()),
    }
}

fn cell_at(dir: &Path, by: &str) -> Result<CellDir, Fail> {
    refuse_url(dir.as_os_str())?;
    let wrong = |what: &str| Fail::new(format!("{}: {what}{by}", dir.display()));
    // not asked, as it may be dead, or its server away
    if let Some(mount) = remote_at(dir) {
        return Ok(of_mount(mount));
    }
    let found = CellDir::resolve(dir).map_err(|e| wrong(&cannot_resolve(&e, dir)))?;
    // The mount of a cell stands for the cell.
    if let Some(mount) = mounts::all().into_iter().find(|m| m.at == found.dir) {
        return Ok(of_mount(mount));
    }
    if found.place.is_some() {
        return Ok(found);
    }
    if !found.dir.is_dir() {
        return Err(wrong("not a directory: name the directory of a cell"));
    }
    // What cannot be entered looks empty.
    if let Err(e) = found.dir.join(".").metadata() {
        return Err(wrong(&cannot_resolve(&e, dir)));
    }
    if !Cell::exists(&found.dir) {
        return Err(wrong(&format!(
            "no cell in this directory: name the directory of one, or make one with `lee up {}`",
            dir.display()
        )));
    }
    Ok(found)
}

/// The mount from another machine exactly there.
fn remote_at(at: &Path) -> Option<mounts::CellMount> {
    let at = mounts::resolve(at)?;
    mounts::all().into_iter().rev().find(|m| m.at == at && m.server().is_some())
}

/// The cell of a mount.
fn of_mount(mount: mounts::CellMount) -> CellDir {
    if mount.server().is_none() {
        return CellDir::of(mount.cell);
    }
    let remote = RemoteMount { at: mount.at.clone(), socket: mount_socket(&mount), owner: mount.owner };
    CellDir { dir: mount.cell, place: None, held: None, remote: Some(remote) }
}

/// The control socket of a mount from another machine. Every user of this machine finds it by the
/// mount: it is below the parent of state directories of the user who mounted.
pub fn mount_socket(mount: &mounts::CellMount) -> PathBuf {
    let name = Path::new("mounts").join(format!("{}.sock", mount.device.replace(':', "-")));
    let own = states();
    let of_owner = match mount.owner {
        uid if uid == system::uid() || std::env::var_os(STATE_VARIABLE).is_some_and(|v| !v.is_empty()) => own,
        0 => PathBuf::from("/run/leeward"),
        uid => {
            let running = PathBuf::from(format!("/run/user/{uid}/leeward"));
            if running.is_dir() { running } else { PathBuf::from(format!("/tmp/leeward-{uid}")) }
        }
    };
    of_owner.join(name)
}

/// Makes the directory of the sockets of mounts, which other users must get through.
///
/// # Errors
/// When it cannot be made.
pub fn prepare_mounts() -> Result<PathBuf, Fail> {
    let dir = states().join("mounts");
    make_own(&dir)?;
    for dir in [Some(&*dir), dir.parent()].into_iter().flatten() {
        // directories above belong to the system
        let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755));
    }
    Ok(dir)
}

/// What is kept on this machine for a mount from another machine: its log, and the file of its
/// keeper. Makes the directory.
///
/// # Errors
/// When it cannot be made.
pub fn mount_state(at: &Path) -> Result<CellDir, Fail> {
    // as systemd names units of mounts
    let name = at.to_string_lossy().trim_matches('/').replace('-', "\\x2d").replace('/', "-");
    let dir = prepare_mounts()?.join(name);
    make_own(&dir)?;
    CellDir::resolve(&dir).map_err(|e| not_made(&dir, &e))
}

/// What is kept on this machine for a gateway to this server: its log, its control socket, and the
/// file of its keeper. Makes the directory.
///
/// # Errors
/// When it cannot be made.
pub fn gateway_state(server: &str) -> Result<CellDir, Fail> {
    let dir = states().join("gateways").join(server);
    make_own(&dir)?;
    CellDir::resolve(&dir).map_err(|e| not_made(&dir, &e))
}

/// What is kept of the gateway to this server that runs as a service, if one did.
pub fn gateway_of_service(server: &str) -> Option<CellDir> {
    CellDir::resolve(&Path::new(SERVICE_STATES).join("gateways").join(server)).ok()
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
        let mounted = mounts::all();
        let next = match mounted.first() {
            Some(mount) => format!("such as --cell {}", mount.at.display()),
            None => "or make one with `lee up DIR`".to_owned(),
        };
        Fail::new(format!(
            "no cell found: {here} is neither in a cell nor in a mounted one; \
             name one with --cell DIR or {VARIABLE}=DIR, {next}"
        ))
    };
    let Ok(here) = std::env::current_dir() else {
        return Err(nowhere("the current directory (which is gone)"));
    };
    // The mount comes first: a file in it may look like a cell's, but the cell is the mounted one.
    if let Some(mount) = mounts::containing(&here) {
        return Ok(of_mount(mount));
    }
    match here.ancestors().find(|dir| Cell::exists(dir)) {
        Some(dir) => Ok(CellDir::of(dir.to_path_buf())),
        None => Err(nowhere(&here.display().to_string())),
    }
}
