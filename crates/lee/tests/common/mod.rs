//! Runs the real `lee`, and cleans up whatever it leaves, also when a test panics.
#![allow(clippy::disallowed_methods)]

pub mod machines;

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The binary under test.
pub const LEE: &str = env!("CARGO_BIN_EXE_lee");
/// Long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// `lee` with these arguments, without the environment's cell.
pub fn lee<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(LEE);
    command.args(args).env_remove("LEE_CELL").env_remove("LEE_LOG").stdin(Stdio::null());
    command
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Asserts that it went well; gives its standard output.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// Asserts that it failed with this code, printing one line `lee: ...` with all of `words` in
    /// it.
    #[track_caller]
    pub fn bad(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.starts_with("lee: "), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in {self:?}");
        }
        if code == 1 {
            assert_eq!(self.err.trim_end().lines().count(), 1, "{self:?}");
        }
    }

    /// The one JSON object on standard output.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.good()).expect("JSON")
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Said {
    let Output { status, stdout, stderr } = command.output().expect("the command starts");
    Said {
        code: status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Runs `lee` to its end.
#[track_caller]
pub fn say<S: AsRef<OsStr>>(args: &[S]) -> Said {
    run(&mut lee(args))
}

pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whether tests can mount here; says so when not.
pub fn can_mount() -> bool {
    let able = is_root() && Path::new("/dev/fuse").exists();
    if !able {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    able
}

/// The same command as another user, by number.
pub fn as_user(command: &mut Command, uid: u32) -> &mut Command {
    command.uid(uid).gid(uid)
}

/// Waits until something holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The day before this one, in UTC: a report from then on has all that a test did, also at the turn
/// of a month.
#[track_caller]
pub fn yesterday() -> String {
    run(Command::new("date").args(["-u", "-d", "yesterday", "+%F"])).good().trim().to_owned()
}

/// Sends a signal to a process that a test started.
#[track_caller]
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: a plain system call; no memory is involved.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "process {pid}");
}

/// Stops a process, and waits until none of its threads runs any more: SIGSTOP reaches one of them,
/// and until that one has heeded it the others go on.
#[track_caller]
pub fn stop(pid: i32) {
    signal(pid, libc::SIGSTOP);
    let state = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).ok();
    let is_stopped = |stat: String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 'Z']));
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    until("a process to stop", || tasks().flatten().filter_map(state).all(is_stopped));
}

/// Says when it goes that something is over, also when an assertion fails: threads that look at it
/// end, and the failure is seen.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A place for a cell. When it goes, what serves the cell is ended and what is mounted is
/// unmounted.
pub struct Place {
    root: tempfile::TempDir,
    pub dir: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let root = tempfile::Builder::new().prefix("lee-test-").tempdir().expect("a temporary directory");
        let dir = root.path().canonicalize().expect("it exists").join("cell");
        Place { root, dir }
    }

    /// Another path beside the cell.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.with_file_name(name)
    }

    /// Where it is mounted by default.
    pub fn mnt(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    pub fn arg(&self) -> &str {
        self.dir.to_str().expect("UTF-8")
    }

    /// Serves it in the background.
    #[track_caller]
    pub fn up(&self) -> String {
        say(&["up", self.arg(), "--background"]).good()
    }

    /// Serves it in the background, and nothing starts it again.
    #[track_caller]
    pub fn up_without_keeper(&self) -> String {
        say(&["up", self.arg(), "--background", "--no-keeper"]).good()
    }

    /// The keeper that its file names, if that runs.
    pub fn keeper(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.dir.join("keeper")).ok()?;
        let record: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
        i32::try_from(record["pid"].as_i64()?).ok().filter(|pid| Place::is_keeper(*pid))
    }

    /// Whether a process with that number is a keeper that runs.
    pub fn is_keeper(pid: i32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|s| s.contains("(lee-keeper)") && !s.contains(") Z "))
    }

    /// Asks about it.
    #[track_caller]
    pub fn ask(&self, args: &[&str]) -> Said {
        run(lee(args).env("LEE_CELL", &self.dir))
    }

    /// The process that the lock names.
    pub fn pid(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.dir.join("lock")).ok()?;
        let holder: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
        i32::try_from(holder["pid"].as_i64()?).ok()
    }

    /// Whether a process with that number is `lee`, and some thread of it runs: of a killed one the
    /// first may be a zombie while another still holds the cell's lock.
    pub fn is_lee(pid: i32) -> bool {
        let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|s| s.contains("(lee)") && (!s.contains(") Z ") || threads() > 1))
    }

    /// Whether it also works for what is below this path, as far as its command line says: what a
    /// file of a process that has ended names may be another's by now. One that ends has none.
    pub fn is_lee_at(pid: i32, root: &Path) -> bool {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let names = String::from_utf8_lossy(&line).contains(&*root.to_string_lossy());
        Place::is_lee(pid) && (line.is_empty() || names)
    }

    /// The process that serves it.
    fn server(&self) -> Option<i32> {
        self.pid().filter(|pid| Place::is_lee_at(*pid, &self.beside("")))
    }

    /// Ends the serving process the hard way.
    pub fn kill(&self) {
        if let Some(pid) = self.server() {
            // SAFETY: a plain system call on a process that a test started.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            until("the killed process to end", || !Place::is_lee(pid));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pid) = self.keeper() {
            // SAFETY: as in kill. A server that it is just starting ends by itself then.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            until("the killed keeper to end", || !Place::is_keeper(pid));
        }
        if let Some(pid) = self.server() {
            // SAFETY: as in kill.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let root = self.root.path().to_string_lossy().into_owned();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for at in mounts.lines().filter_map(|l| l.split(' ').nth(4)).filter(|at| at.starts_with(&root)) {
            let _ = Command::new("umount").args(["-l", at]).stderr(Stdio::null()).status();
        }
    }
}

/// A `lee up` in the foreground; killed when a test forgets it.
pub struct Foreground {
    child: Option<Child>,
    errors: PathBuf,
}

impl Foreground {
    /// Starts it and waits until it is mounted.
    #[track_caller]
    pub fn up(place: &Place) -> Foreground {
        let mut command = lee(&["up", place.arg()]);
        let errors = place.beside("errors");
        let file = std::fs::File::create(&errors).expect("a file");
        let child = command.stdout(Stdio::piped()).stderr(file).spawn().expect("lee starts");
        let mut up = Foreground { child: Some(child), errors };
        until("lee up", || {
            assert!(up.child.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(None))), "it ended");
            say(&["status", place.arg()]).code == 0 && is_mounted(&place.mnt())
        });
        up
    }

    pub fn signal(&self, signal: i32) {
        let pid = self.child.as_ref().map_or(0, Child::id) as i32;
        // SAFETY: a plain system call on our own child.
        unsafe { libc::kill(pid, signal) };
    }

    /// What it has said on standard error so far.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).expect("UTF-8")
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ended(mut self) -> Said {
        let mut child = self.child.take().expect("started");
        let end = Instant::now() + PATIENCE;
        while child.try_wait().expect("our child").is_none() {
            if Instant::now() > end {
                let _ = child.kill();
                panic!("lee up does not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let Output { status, stdout, .. } = child.wait_with_output().expect("our child");
        Said {
            code: status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&stdout).into_owned(),
            err: self.errors(),
        }
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether something is mounted exactly there.
pub fn is_mounted(at: &Path) -> bool {
    let at = at.to_string_lossy().into_owned();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|l| l.split(' ').nth(4) == Some(&at))
}
