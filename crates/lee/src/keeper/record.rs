//! The file `DIR/keeper`: who keeps the server of a cell, and what happened to it.
//!
//! The keeper holds flock on it as long as it lives, so a command knows whether the content counts.
//! The kernel frees the lock however the keeper ends.

use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::lock;
use crate::system::Process;
use leeward_env::Env;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

const NAME: &str = "keeper";
/// Commands hold the lock for an instant, when they look whether it is held.
const TRIES: u32 = 50;
const STEP: Duration = Duration::from_millis(10);
/// A keeper that is asked to end ends a server that may have to write its memory to a slow store.
const END_WAIT: Duration = Duration::from_secs(90);

/// What a keeper says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The keeper's process.
    pub pid: u32,
    /// The server's process, while it serves.
    pub server: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
    /// The last time.
    pub last_restart: Option<Restart>,
    /// Why the server does not run now.
    pub waiting: Option<Waiting>,
}

/// A server that was started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// When it served again, seconds since 1970.
    pub at: i64,
    /// Why the one before ended.
    pub cause: String,
    /// Time from its end until the mount was back.
    pub pause_ms: u64,
}

/// A server that is to be started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Why it does not run.
    pub cause: String,
    /// Seconds since 1970 of the next try.
    pub next: i64,
    /// Tries that failed.
    pub failed: u64,
}

/// The keeper's end of the file.
#[derive(Debug)]
pub struct RecordFile(File);

impl RecordFile {
    /// Takes the file for this process; `None`: another keeper has it.
    ///
    /// # Errors
    /// The file system's.
    pub fn take(env: &Env, cell: &CellDir) -> io::Result<Option<RecordFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path(cell))?;
        for _ in 0..TRIES {
            if flock(&file, libc::LOCK_EX)? {
                return Ok(Some(RecordFile(file)));
            }
            env.sleep(STEP);
        }
        Ok(None)
    }

    /// Replaces the content. On a full disk the old one may stay.
    pub fn write(&self, record: &Record) {
        let Ok(mut line) = serde_json::to_vec(record) else { return };
        line.push(b'\n');
        let _ = self.0.write_all_at(&line, 0).and_then(|()| self.0.set_len(line.len() as u64));
    }

    /// Empties the file: this keeper ends.
    pub fn clear(&self) {
        let _ = self.0.set_len(0);
    }
}

/// A keeper that lives.
pub struct Kept {
    /// What it says of itself.
    pub record: Record,
    process: Process,
}

impl Kept {
    /// The keeper of a cell; `None`: nothing keeps it, or the caller may not know.
    pub fn find(env: &Env, cell: &CellDir) -> Option<Kept> {
        for _ in 0..TRIES {
            let file = File::open(path(cell)).ok()?;
            if flock(&file, libc::LOCK_SH).unwrap_or(true) {
                return None;
            }
            if let Some(record) = read(&file) {
                return Process::open(record.pid).map(|process| Kept { record, process });
            }
            env.sleep(STEP); // it is just being written
        }
        None
    }

    /// Whether it has no server that serves: that has crashed, and another one may be starting. False
    /// for one that only does not listen.
    pub fn lacks_server(&self, env: &Env, cell: &CellDir) -> bool {
        self.record.waiting.is_some() || lock::holder(env, cell).is_ok_and(|holder| holder.is_none())
    }

    /// Asks the keeper to end its server in order, and then itself; returns when it is gone.
    ///
    /// # Errors
    /// When it may not be asked, or does not end.
    pub fn end(&self, cell: &CellDir) -> Result<(), Fail> {
        let keeper = format!("{cell}: the keeper of its server, process {}", self.record.pid);
        self.process
            .signal(libc::SIGTERM)
            .map_err(|e| Fail::new(format!("{keeper}, cannot be asked to end: {}", text(&e))))?;
        if self.process.ended_within(END_WAIT) {
            return Ok(());
        }
        Err(Fail::new(format!("{keeper}, was asked to end and is still there: see {}", cell.log().display())))
    }

    /// Sends the keeper a signal. SIGUSR1: when the server ends in order, go on as the program that the
    /// sender runs. SIGUSR2: no more.
    ///
    /// # Errors
    /// The system's.
    pub fn signal(&self, number: libc::c_int) -> io::Result<()> {
        self.process.signal(number)
    }

    /// Waits until the keeper is gone, which follows the end of its server.
    pub fn ended_within(&self, time: Duration) -> bool {
        self.process.ended_within(time)
    }
}

fn path(cell: &CellDir) -> PathBuf {
    cell.within().join(NAME)
}

fn read(mut file: &File) -> Option<Record> {
    let mut line = String::new();
    file.read_to_string(&mut line).ok()?;
    serde_json::from_str(line.split_once('\n')?.0).ok()
}

/// Takes the lock if it is free.
fn flock(file: &File, kind: libc::c_int) -> io::Result<bool> {
    // SAFETY: a valid descriptor.
    if unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        e => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_while_its_keeper_lives() {
        let dir = tempfile::tempdir().expect("a directory");
        let cell = CellDir::resolve(dir.path()).expect("it exists");
        let env = Env::real();
        assert!(Kept::find(&env, &cell).is_none());
        let file = RecordFile::take(&env, &cell).expect("a file").expect("free");
        assert!(RecordFile::take(&env, &cell).expect("a file").is_none(), "taken twice");
        let cause = "c".repeat(300);
        let waiting = Some(Waiting { cause, next: 1, failed: 2 });
        let mut record = Record { pid: std::process::id(), waiting, ..Record::default() };
        file.write(&record);
        record.waiting = None; // shorter
        file.write(&record);
        assert_eq!(Kept::find(&env, &cell).map(|kept| kept.record), Some(record));
        drop(file);
        assert!(Kept::find(&env, &cell).is_none());
    }
}
