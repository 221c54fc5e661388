//! One process has a cell open at a time: flock on `DIR/lock`, which says who holds it and since when.
//!
//! The kernel frees the lock when the process ends, however it ends; what the file says counts only while the lock
//! is held. The descriptor is close-on-exec, so no child keeps the lock alive.

use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::{system, when};
use leeward_env::Env;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const LOCK_TRIES: u32 = 5;
const LOCK_STEP: Duration = Duration::from_millis(10);
/// Each of these takes `LOCK_TRIES + 1` steps: about ten seconds.
const COMMAND_TRIES: u32 = 160;

/// Who holds a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id on that host.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// Seconds since 1970.
    pub since: i64,
    /// Which command it is, such as `up`.
    pub command: String,
}

impl Holder {
    fn me(env: &Env, command: &str) -> Holder {
        Holder {
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
    _file: File,
    /// What is written in it.
    pub holder: Holder,
}

/// Why the lock was not taken.
#[derive(Debug)]
pub enum NotTaken {
    /// Somebody holds it. `None`: who it is cannot be read.
    Held(Option<Holder>),
    /// Anything else.
    Failed(Fail),
}

/// Takes the lock, without waiting for who holds it for long.
///
/// # Errors
/// See [`NotTaken`].
pub fn take(env: &Env, cell: &CellDir, command: &str) -> Result<CellLock, NotTaken> {
    let path = cell.lock();
    let failed = |e: io::Error| {
        NotTaken::Failed(Fail::new(format!(
            "{}: cannot take the lock: {}: run as the user who owns {cell}",
            path.display(),
            text(&e)
        )))
    };
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    if !lock_soon(env, &file).map_err(failed)? {
        return Err(NotTaken::Held(read(&mut file)));
    }
    let holder = Holder::me(env, command);
    write(&mut file, &holder).map_err(failed)?;
    // Everybody who finds the cell in use may read who uses it.
    file.set_permissions(Permissions::from_mode(0o644)).map_err(failed)?;
    Ok(CellLock { _file: file, holder })
}

/// As [`take`], but waits some seconds for a command that has the cell open just to answer something.
///
/// # Errors
/// As [`take`].
pub fn take_after_commands(env: &Env, cell: &CellDir, command: &str) -> Result<CellLock, NotTaken> {
    let passes = |holder: &Option<Holder>| holder.as_ref().is_none_or(|h| h.command != "up" && h.is_here());
    let mut taken = take(env, cell, command);
    for _ in 0..COMMAND_TRIES {
        match &taken {
            Err(NotTaken::Held(holder)) if passes(holder) => env.sleep(LOCK_STEP),
            _ => break,
        }
        taken = take(env, cell, command);
    }
    taken
}

/// Who holds the lock: `None` when nobody does. Asks by trying a shared lock for an instant.
///
/// # Errors
/// When the lock file cannot be read.
pub fn holder(cell: &CellDir) -> Result<Option<Option<Holder>>, Fail> {
    let path = cell.lock();
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            return Err(Fail::new(format!("{}: {}: run as the owner of the cell", path.display(), text(&e))));
        }
    };
    // SAFETY: a valid descriptor.
    let free = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } == 0;
    Ok(if free { None } else { Some(read(&mut file)) })
}

/// Tries for a moment: somebody may just be asking who holds it (see [`holder`]).
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

/// What to say to somebody who finds the cell held.
pub fn held(cell: &CellDir, holder: Option<&Holder>) -> Fail {
    let next = match holder {
        Some(h) if h.command != "up" => "wait until it is done".to_string(),
        Some(h) if !h.is_here() => format!("end it there with `lee down {cell}`"),
        _ => format!("`lee status {cell}` says more, `lee down {cell}` ends it"),
    };
    let who = holder.map_or_else(|| "another process".into(), Holder::to_string);
    Fail::new(format!("{cell} is in use by {who}: {next}"))
}
