//! The file `DIR/keeper`: who keeps the server of a cell, and what happened to it.
//!
//! The keeper holds a record lock on it as long as it lives, so a command knows whether the content
//! counts. The kernel frees the lock however the keeper ends, and says which process holds it, as
//! the asking process sees it: who can write the file cannot have a command signal somebody else's
//! process. A record lock is lost when its process closes any descriptor of the file: the keeper
//! has one.

use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::lock;
use crate::system::Process;
use leeward_env::Env;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

const NAME: &str = "keeper";
/// Somebody may have put something else there.
const OPEN_FLAGS: libc::c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK;
/// The keeper before may be just ending; a record may be just being written.
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
        let file = options.custom_flags(OPEN_FLAGS).open(path(cell))?;
        for _ in 0..TRIES {
            if lock_record(&file)? {
                file.set_len(0)?;
                return Ok(Some(RecordFile(file)));
            }
            env.sleep(STEP);
        }
        Ok(None)
    }

    /// Leaves the file open, and so locked, for the program that this process goes on as.
    ///
    /// # Errors
    /// The system's.
    pub fn pass_on(&self) -> io::Result<RawFd> {
        // SAFETY: a plain system call on our descriptor.
        let done = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETFD, 0) };
        if done == 0 { Ok(self.0.as_raw_fd()) } else { Err(io::Error::last_os_error()) }
    }

    /// The file that the program before has passed on; `None` when it is not this cell's.
    pub fn passed_on(file: File, cell: &CellDir) -> Option<RecordFile> {
        let (ours, named) = (file.metadata().ok()?, std::fs::symlink_metadata(path(cell)).ok()?);
        ((ours.dev(), ours.ino()) == (named.dev(), named.ino())).then_some(RecordFile(file))
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
            let mut options = OpenOptions::new();
            let file = options.read(true).custom_flags(OPEN_FLAGS).open(path(cell)).ok()?;
            let pid = lock_holder(&file)?;
            let process = Process::open(pid)?;
            // while it is held, the number cannot come to mean another process
            if lock_holder(&file) == Some(pid)
                && let Some(record) = read(&file)
            {
                return Some(Kept { record: Record { pid, ..record }, process });
            }
            env.sleep(STEP);
        }
        None
    }

    /// Whether it has no server that serves: that has crashed, and another one may be starting.
    /// False for one that only does not listen.
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

    /// Sends the keeper a signal. SIGUSR1: when the server ends in order, go on as the program that
    /// the sender runs. SIGUSR2: no more.
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

fn lock_of(kind: libc::c_int) -> libc::flock {
    // SAFETY: a structure for which all zeros are valid: the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock
}

/// Takes the lock if it is free.
fn lock_record(file: &File) -> io::Result<bool> {
    // SAFETY: a valid descriptor and structure.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock_of(libc::F_WRLCK)) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        e => Err(e),
    }
}

/// Which other process holds the lock; `None`: none does, or one that this process cannot see, on
/// another machine or in another container.
fn lock_holder(file: &File) -> Option<u32> {
    let mut lock = lock_of(libc::F_RDLCK);
    // SAFETY: a valid descriptor and structure.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    let is_held = done == 0 && lock.l_type != libc::F_UNLCK as libc::c_short;
    u32::try_from(lock.l_pid).ok().filter(|pid| is_held && *pid > 0)
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
        let cause = "c".repeat(300);
        let waiting = Some(Waiting { cause, next: 1, failed: 2 });
        let mut record = Record { pid: 1, waiting, ..Record::default() };
        file.write(&record);
        record.waiting = None; // shorter
        file.write(&record);
        assert!(Kept::find(&env, &cell).is_none(), "nobody else holds it");
        drop(file);
        let keeper = holder_of(&path(&cell));
        // the number in the file does not count
        let found = Kept::find(&env, &cell).map(|kept| kept.record);
        assert_eq!(found, Some(Record { pid: keeper.0, ..record }));
        assert!(RecordFile::take(&env, &cell).expect("a file").is_none(), "taken twice");
        drop(keeper);
        assert!(Kept::find(&env, &cell).is_none());
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let dir = tempfile::tempdir().expect("a directory");
        let cell = CellDir::resolve(dir.path()).expect("it exists");
        let fifo = std::ffi::CString::new(path(&cell).into_os_string().into_encoded_bytes()).expect("a path");
        // SAFETY: a string that ends in NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert!(Kept::find(&Env::real(), &cell).is_none());
    }

    /// A process that holds the lock until it is dropped.
    struct Holding(u32);

    fn holder_of(path: &std::path::Path) -> Holding {
        let file = OpenOptions::new().write(true).open(path).expect("there");
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let (lock, fd, told) = (lock_of(libc::F_WRLCK), file.as_raw_fd(), writer.as_raw_fd());
        // SAFETY: the child makes system calls only.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::fcntl(fd, libc::F_SETLK, &lock);
                libc::write(told, c"x".as_ptr().cast(), 1);
                loop {
                    libc::pause();
                }
            }
            child
        };
        drop(writer);
        reader.read_exact(&mut [0]).expect("locked");
        Holding(u32::try_from(child).expect("a child"))
    }

    impl Drop for Holding {
        fn drop(&mut self) {
            // SAFETY: our own child, not waited for yet.
            unsafe {
                libc::kill(self.0 as libc::pid_t, libc::SIGKILL);
                libc::waitpid(self.0 as libc::pid_t, std::ptr::null_mut(), 0);
            }
        }
    }
}
