//! One process has a cell open at a time: flock on `DIR/lock`, which says who holds it and since
//! when, and inside `Cell` on `DIR/meta`, which nobody can remove.
//!
//! The kernel frees the lock when the process ends, however it ends; the file's content counts only
//! while the lock is held. The descriptor is close-on-exec, so no child keeps the lock alive. Only
//! the owner can open the file: anyone who can open it can lock it, and so keep the cell from being
//! opened.

use crate::control::client::{Client, Unreached};
use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::system::Process;
use crate::{mounts, system, when};
use leeward_env::{Env, FileLock};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOCK_TRIES: u32 = 5;
const LOCK_STEP: Duration = Duration::from_millis(10);
/// How long to wait for a command that has the cell open.
const COMMAND_WAIT: Duration = Duration::from_secs(10);
/// How long to wait for a process that writes its memory to the store and ends.
const ENDING_WAIT: Duration = Duration::from_secs(60);
/// The file's name.
const LOCK: &str = "lock";

/// The process that holds a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id on that host.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// Since when, seconds since 1970.
    pub since: i64,
    /// Name of the command, such as `up`.
    pub command: String,
    /// Process id of the keeper, which starts the process again after a crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<u32>,
}

impl Holder {
    fn me(env: &Env, command: &str, kept_by: Option<u32>) -> Holder {
        Holder {
            kept_by,
            pid: std::process::id(),
            host: system::host(),
            since: (env.wall() / 1_000_000_000) as i64,
            command: command.into(),
        }
    }

    /// Whether it runs on this machine, as far as names tell.
    pub fn is_here(&self) -> bool {
        self.host == system::host()
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "`lee {}`, process {} on {} since {}",
            self.command,
            self.pid,
            self.host,
            when::utc(self.since)
        )
    }
}

/// The lock, held as long as this lives.
#[derive(Debug)]
pub struct CellLock {
    _file: FileLock,
    /// The content of the lock file.
    pub holder: Holder,
}

/// Why the lock was not taken.
#[derive(Debug)]
pub enum NotTaken {
    /// Another process holds it. `None`: the holder cannot be read.
    Held(Option<Holder>),
    /// Anything else.
    Failed(Fail),
}

/// Takes the lock, without a long wait for its holder.
///
/// # Errors
/// See [`NotTaken`].
pub fn take(env: &Env, cell: &CellDir, command: &str) -> Result<CellLock, NotTaken> {
    take_as(env, cell, (command, None))
}

fn take_as(env: &Env, cell: &CellDir, (command, kept_by): (&str, Option<u32>)) -> Result<CellLock, NotTaken> {
    let path = cell.within().join(LOCK);
    let failed = |e: io::Error| {
        NotTaken::Failed(Fail::new(format!(
            "{}: cannot take the lock: {}: run as the user who owns {cell}",
            cell.lock().display(),
            text(&e)
        )))
    };
    let mut file = open(&path).map_err(failed)?;
    let mut locked = lock_soon(env, &file).map_err(failed)?;
    if is_open_to_others(&file).map_err(failed)? {
        // An older program made it, and others may have it open for as long as they like.
        let holder = read(&mut file);
        if locked || holder.as_ref().is_some_and(|h| h.is_here() && Process::open(h.pid).is_none()) {
            file = replace(&path).map_err(failed)?;
            locked = true;
        }
    }
    if !locked || !is_at(&file, &path).map_err(failed)? {
        return Err(NotTaken::Held(read(&mut file)));
    }
    if is_opened(env, cell).map_err(failed)? {
        return Err(NotTaken::Held(None)); // somebody removed the file of who holds it
    }
    let holder = Holder::me(env, command, kept_by);
    write(&mut file, &holder).map_err(failed)?;
    Ok(CellLock { _file: FileLock::of(file), holder })
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn is_open_to_others(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.permissions().mode() & 0o077 != 0)
}

/// Replaces the file by one of our own, which we have locked.
fn replace(path: &Path) -> io::Result<File> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let file = open(&new)?;
    let taken = try_lock(&file)?;
    std::fs::rename(&new, path)?;
    if taken { Ok(file) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

/// Whether the file still has this path: it may have been replaced between our opening and locking
/// it.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (ours, there) = (file.metadata()?, std::fs::metadata(path));
    Ok(there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())))
}

/// Whether a process has the cell itself open, whatever happened to the lock file.
fn is_opened(env: &Env, cell: &CellDir) -> io::Result<bool> {
    let meta = match File::open(cell.within().join("meta")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    for _ in 0..LOCK_TRIES {
        match meta.try_lock_shared() {
            Err(TryLockError::WouldBlock) => env.sleep(LOCK_STEP),
            // ours, or a file system that locks no directories
            _ => {
                drop(FileLock::of(meta));
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Takes the lock to serve the cell, as [`take`]. Waits some seconds for a command that has the
/// cell open only to answer a question, and longer for a process that has served it and is ending.
///
/// # Errors
/// As [`take`].
pub fn take_to_serve(env: &Env, cell: &CellDir, kept_by: Option<u32>) -> Result<CellLock, NotTaken> {
    let begun = env.now();
    let mut taken = take_as(env, cell, ("up", kept_by));
    loop {
        let wait = match &taken {
            Err(NotTaken::Held(Some(h))) if !h.is_here() => None,
            Err(NotTaken::Held(Some(h))) if h.command == "up" => is_ending(cell).then_some(ENDING_WAIT),
            Err(NotTaken::Held(_)) => Some(COMMAND_WAIT),
            _ => None,
        };
        if wait.is_none_or(|wait| u128::from(env.now() - begun) > wait.as_nanos()) {
            return taken;
        }
        env.sleep(LOCK_STEP);
        taken = take_as(env, cell, ("up", kept_by));
    }
}

/// Whether the process that holds the lock serves no more, or not yet: it does not listen, or its
/// mount is gone.
fn is_ending(cell: &CellDir) -> bool {
    match Client::connect(cell) {
        Ok(client) => match client.status() {
            Ok(running) => {
                running.mount.is_some() && !mounts::all().iter().any(|mount| mount.cell == cell.path())
            }
            Err(_) => true,
        },
        Err(Unreached::Silent) => true,
        Err(Unreached::Failed(_)) => false,
    }
}

/// The holder of the lock: `None` when there is none. Tries a shared lock for an instant.
///
/// # Errors
/// When the lock file cannot be read.
pub fn holder(env: &Env, cell: &CellDir) -> Result<Option<Option<Holder>>, Fail> {
    let unreadable = |path: PathBuf, e: io::Error| {
        Fail::new(format!("{}: {}: run as the owner of the cell", path.display(), text(&e)))
    };
    match File::open(cell.within().join(LOCK)) {
        Ok(mut file) => {
            // SAFETY: a valid descriptor.
            let free = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } == 0;
            if !free {
                return Ok(Some(read(&mut file)));
            }
            drop(FileLock::of(file));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(unreadable(cell.lock(), e)),
    }
    let opened = is_opened(env, cell).map_err(|e| unreadable(cell.path().join("meta"), e))?;
    Ok(opened.then_some(None))
}

/// Tries for a moment: another process may just be looking who holds it (see [`holder`]).
fn lock_soon(env: &Env, file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES {
        if try_lock(file)? {
            return Ok(true);
        }
        env.sleep(LOCK_STEP);
    }
    try_lock(file)
}

fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: a valid descriptor.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        e => Err(e),
    }
}

fn read(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write(file: &mut File, holder: &Holder) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(format!("{}\n", serde_json::to_string(holder)?).as_bytes())
}

/// The error when the cell is held.
pub fn held(cell: &CellDir, holder: Option<&Holder>) -> Fail {
    let next = match holder {
        Some(h) if h.command != "up" => "wait until it is done".to_string(),
        Some(h) if !h.is_here() => format!("end it there with `lee down {cell}`"),
        _ => format!("`lee status {cell}` says more, `lee down {cell}` ends it"),
    };
    let who = holder.map_or_else(|| "another process".into(), Holder::to_string);
    Fail::new(format!("{cell} is in use by {who}: {next}"))
}
