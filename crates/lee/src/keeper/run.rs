//! The keeper's process: starts the server, waits for its end, judges it.

use super::backoff::Backoff;
use super::record::{Record, RecordFile, Restart, Waiting};
use super::signals::{self, Signal, Signals};
use crate::background::{self, KEEPER, Outcome, Start};
use crate::fail::{BEGIN_ANEW, Fail, TAKEN_OVER, text};
use crate::locate::{self, CellDir};
use crate::serve::Started;
use crate::system::Process;
use crate::{output, when};
use leeward_env::{Env, Nanos};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

/// Exit code of a Rust program whose main thread panicked.
const PANICKED: i32 = 101;
/// Place of the cell in the command line: `up CELL ...`.
const CELL: usize = 1;
/// Place of the mount point in the command line of a mount from another machine:
/// `mount SERVER PATH ...`.
const MOUNT_POINT: usize = 2;

/// Runs the keeper of a server that this starts first; `caller` hears how that went.
///
/// # Errors
/// When the keeper cannot run.
pub fn start(caller: File) -> Result<ExitCode, Fail> {
    Keeper::new(0).map(|mut keeper| {
        keeper.caller = Some(caller);
        keeper.run()
    })
}

/// Runs the keeper in a newer program, for `lee restart`. The server has ended.
///
/// # Errors
/// When the keeper cannot run.
pub fn go_on(passed: &Passed) -> Result<ExitCode, Fail> {
    let mut keeper = Keeper::new(passed.restarts)?;
    let name = keeper.arguments.get(CELL).cloned().unwrap_or_default();
    let mut cell = locate::called(&name, "")?;
    let gone = || Fail::new(format!("{cell}: another directory has the path of the cell"));
    if let Some(file) = passed.file()? {
        keeper.file = Some(RecordFile::passed_on(file, &cell).ok_or_else(gone)?);
    }
    cell.hold().map_err(|e| Fail::new(format!("{cell}: {}", text(&e))))?;
    keeper.cell = Some(cell);
    keeper.take_file();
    keeper.after_crash = passed.after_crash;
    keeper.down = Some(Down { at: keeper.env.now(), cause: passed.cause.clone() });
    keeper.note();
    Ok(keeper.run())
}

/// What a keeper tells the program that it goes on as.
#[derive(Debug, Serialize, Deserialize)]
pub struct Passed {
    restarts: u64,
    /// Why the server ended.
    cause: String,
    /// Whether it crashed.
    after_crash: bool,
    /// Descriptor of the keeper's file.
    file: Option<RawFd>,
}

impl Passed {
    fn file(&self) -> Result<Option<File>, Fail> {
        let named = |fd: RawFd| background::inherited(KEEPER, OsStr::new(&fd.to_string()));
        self.file.map(named).transpose()
    }
}

struct Keeper {
    env: Env,
    /// The server's command line.
    arguments: Vec<OsString>,
    signals: Signals,
    /// Hears the outcome of the first start.
    caller: Option<File>,
    /// The cell, from its first successful start on.
    cell: Option<CellDir>,
    file: Option<RecordFile>,
    record: Record,
    backoff: Backoff,
    /// Process id of the running server.
    server: Option<u32>,
    /// Since when and why the mount is dead.
    down: Option<Down>,
    /// The keeper was asked to end.
    ending: bool,
    /// When the server has ended, or where there is none, the keeper goes on as this program.
    successor: Option<Successor>,
    /// The server before crashed.
    after_crash: bool,
    /// Processes that the OOM killer had ended when the server started.
    oom_kills: u64,
}

/// A program that is to serve the cell after this one.
struct Successor {
    program: PathBuf,
    /// The `lee restart` that has asked for it, and waits.
    sender: Option<Process>,
}

impl Successor {
    fn of(sender: u32) -> Successor {
        Successor { program: program_of(sender), sender: Process::open(sender) }
    }

    /// Whether somebody still waits for it.
    fn is_wanted(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.ended_within(Duration::ZERO))
    }
}

struct Down {
    at: Nanos,
    cause: String,
}

/// A server from its start to its end.
struct Run {
    outcome: Option<Outcome>,
    ended: Result<ExitStatus, String>,
    /// How long it served; `None`: it did not.
    served: Option<Duration>,
}

impl Run {
    /// As an exit code of the keeper.
    fn code(&self) -> ExitCode {
        let code = self.ended.as_ref().ok().and_then(ExitStatus::code);
        ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
    }

    fn is_taken_over(&self) -> bool {
        matches!(&self.outcome, Some(Outcome::Failed { code: TAKEN_OVER, .. }))
            || self.ended.as_ref().is_ok_and(|status| status.code() == Some(TAKEN_OVER.into()))
    }
}

impl Keeper {
    fn new(restarts: u64) -> Result<Keeper, Fail> {
        let failed = |e: io::Error| Fail::new(format!("the keeper cannot wait for signals: {}", text(&e)));
        // Keep no directory busy. All paths in the command line are absolute.
        let _ = std::env::set_current_dir("/");
        // SAFETY: a string that ends in NUL, read up to there.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"lee-keeper".as_ptr()) };
        Ok(Keeper {
            env: Env::real(),
            arguments: std::env::args_os().skip(1).collect(),
            signals: Signals::block().map_err(failed)?,
            caller: None,
            cell: None,
            file: None,
            record: Record { pid: std::process::id(), restarts, ..Record::default() },
            backoff: Backoff::default(),
            server: None,
            down: None,
            ending: false,
            successor: None,
            after_crash: false,
            oom_kills: 0,
        })
    }

    fn run(mut self) -> ExitCode {
        loop {
            let run = self.serve();
            let code = run.code();
            match self.judge(run) {
                Some(pause) => self.rest(pause),
                None => return self.end(code),
            }
            if self.ending {
                return self.end(ExitCode::SUCCESS);
            }
            if let Some(program) = self.take_successor() {
                self.succeed(&program);
            }
        }
    }

    fn end(&mut self, code: ExitCode) -> ExitCode {
        if let Some(file) = &self.file {
            file.clear();
        }
        code
    }

    /// Runs a server to its end.
    fn serve(&mut self) -> Run {
        let (mut reader, mut child) = match self.spawn() {
            Ok(spawned) => spawned,
            Err(e) => return Run { outcome: None, ended: Err(text(&e)), served: None },
        };
        self.server = Some(child.id());
        let outcome = self.hear(&mut reader, &child);
        drop(reader);
        let begun = self.env.now();
        let is_up = match &outcome {
            Some(Outcome::Up(started)) => {
                self.up(started);
                true
            }
            _ => false,
        };
        if let Some(outcome) = &outcome {
            self.relay(outcome);
        }
        let ended = self.reap(&mut child);
        self.server = None;
        let served = is_up.then(|| Duration::from_nanos(self.env.now() - begun));
        Run { outcome, ended, served }
    }

    /// Tells the caller how the first start went. A caller that is gone does not want the server.
    fn relay(&mut self, outcome: &Outcome) {
        let told = self.caller.take().map(|caller| background::tell(caller, outcome));
        if told.is_some_and(|told| told.is_err()) {
            self.ask_to_end();
        }
    }

    /// Starts a server, and gives the pipe by which it reports.
    fn spawn(&mut self) -> io::Result<(io::PipeReader, Child)> {
        self.oom_kills = oom_kills();
        let again = self.cell.is_some();
        self.follow_the_cell()?;
        let (reader, writer) = io::pipe()?;
        let program = background::myself();
        let start = match (again, self.after_crash) {
            (false, _) => Start::First,
            (true, false) => Start::Again,
            (true, true) => Start::AfterCrash,
        };
        let child = background::server(&program, &self.arguments, writer.as_raw_fd(), start).spawn()?;
        Ok((reader, child))
    }

    /// Whether it keeps the mount of a cell that another machine serves.
    fn is_of_mount(&self) -> bool {
        self.arguments.first().is_some_and(|command| command == "mount")
    }

    /// Whether it keeps a gateway to another machine.
    fn is_of_gateway(&self) -> bool {
        self.arguments.first().is_some_and(|command| command == "gateway")
    }

    /// Where the log and the file of this keeper are: with the cell, or of a mount in a directory
    /// of its own.
    fn state_of(&self, started: &Started) -> Result<CellDir, Fail> {
        match &started.mount {
            Some(at) if self.is_of_mount() => locate::mount_state(at),
            _ if self.is_of_gateway() => locate::gateway_state(&self.named(CELL).to_string_lossy()),
            _ => locate::called(started.cell.as_os_str(), ""),
        }
    }

    /// A renamed cell is served at its new path. Another directory that has the old path is not
    /// ours.
    fn follow_the_cell(&mut self) -> io::Result<()> {
        if self.is_of_mount() || self.is_of_gateway() {
            return Ok(());
        }
        let Some(held) = self.cell.as_ref().filter(|cell| cell.place().is_none()).and_then(CellDir::held)
        else {
            return Ok(());
        };
        if self.arguments.get(CELL).is_some_and(|path| held.is_at(Path::new(path))) {
            return Ok(());
        }
        let now = std::fs::read_link(held.path())?;
        if !held.is_at(&now) {
            let what = "the directory of the cell is gone, or its disk was unmounted";
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        self.arguments[CELL] = now.into();
        Ok(())
    }

    /// Waits for the server's report; `None`: it ended without one.
    fn hear(&mut self, reader: &mut io::PipeReader, child: &Child) -> Option<Outcome> {
        let mut told = Vec::new();
        loop {
            self.signals.wait(Some(reader.as_raw_fd()), None);
            self.take_signals();
            if !is_readable(reader.as_raw_fd()) {
                continue;
            }
            let mut some = [0; 4096];
            match reader.read(&mut some) {
                Ok(0) => return serde_json::from_slice(&told).ok(),
                Ok(count) => told.extend_from_slice(&some[..count]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
                Err(e) => {
                    self.say(&format!("cannot hear from the server, process {}: {}", child.id(), text(&e)));
                    return None;
                }
            }
        }
    }

    /// Waits for the server's end.
    fn reap(&mut self, child: &mut Child) -> Result<ExitStatus, String> {
        loop {
            // before the server is reaped: who asked for something did it before its end
            self.take_signals();
            match child.try_wait() {
                Ok(Some(status)) => {
                    self.take_signals(); // one may have come in between
                    return Ok(status);
                }
                Ok(None) => self.signals.wait(None, None),
                Err(e) => return Err(text(&e)),
            }
        }
    }

    fn take_signals(&mut self) {
        while let Some(Signal { number, sender }) = self.signals.next() {
            match number {
                libc::SIGCHLD => (),
                libc::SIGUSR1 => self.successor = Some(Successor::of(sender)),
                libc::SIGUSR2 => self.successor = None,
                _ => {
                    self.say(&format!("process {sender} asked it to end"));
                    self.ask_to_end();
                }
            }
        }
    }

    /// Ends the server in order; the keeper follows.
    fn ask_to_end(&mut self) {
        self.ending = true;
        if let Some(pid) = self.server.and_then(|pid| libc::pid_t::try_from(pid).ok()) {
            // SAFETY: a plain system call; our child is not reaped yet, so the number is its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
    }

    /// The server serves: notes it where commands look.
    fn up(&mut self, started: &Started) {
        if self.cell.is_none() {
            match self.state_of(started) {
                Ok(cell) => self.hold(cell),
                Err(fail) => output::note(&format!("lee: {fail}")),
            }
            started.mount.iter().for_each(|at| self.keep_the_mount_point(at));
        }
        self.take_file();
        if let Some(Down { at, cause }) = self.down.take() {
            let pause_ms = (self.env.now() - at) / 1_000_000;
            self.record.restarts += 1;
            self.record.last_restart = Some(Restart { at: self.seconds(), cause, pause_ms });
            self.say(&format!("the server is back as process {}, after {pause_ms} ms", started.pid));
        }
        self.record.server = Some(started.pid);
        self.record.waiting = None;
        self.note();
    }

    /// Holds the cell from now on.
    fn hold(&mut self, mut cell: CellDir) {
        let held = cell.hold();
        self.cell = Some(cell);
        if let Err(e) = held {
            self.say(&format!("the directory of the cell cannot be held: {}", text(&e)));
        }
    }

    /// Takes the file by which commands find this keeper, if it can be had now.
    fn take_file(&mut self) {
        let Some(cell) = self.cell.as_ref().filter(|_| self.file.is_none()) else { return };
        match RecordFile::take(&self.env, cell) {
            Ok(Some(file)) => self.file = Some(file),
            Ok(None) => self.say("another keeper has this cell: commands cannot find this one"),
            Err(e) => self.say(&format!("commands cannot find this keeper: {}", text(&e))),
        }
    }

    /// From now on the mount point is where it is now, whatever becomes of links on the way.
    fn keep_the_mount_point(&mut self, at: &Path) {
        let option = self.arguments.iter().position(|argument| argument == "--mount").map(|n| n + 1);
        let option = if self.is_of_mount() { Some(MOUNT_POINT) } else { option };
        if let Some(value) = option.and_then(|n| self.arguments.get_mut(n)) {
            *value = at.into();
        }
    }

    /// Decides what follows: the pause before the next start, or `None`: no other start.
    fn judge(&mut self, run: Run) -> Option<Duration> {
        self.record.server = None;
        if self.ending {
            return None;
        }
        if run.is_taken_over() {
            let why = match &run.outcome {
                Some(Outcome::Failed { message, .. }) => message,
                _ => "another process has taken the cell over",
            };
            self.say(&format!("{why}: the keeper ends"));
            return None;
        }
        let crash = crash(&run.ended, self.oom_kills);
        // one that is started after a crash and fails to start does not undo that
        self.after_crash = crash.is_some() || self.after_crash && run.served.is_none();
        if self.is_removed() {
            self.say("the directory of the cell was removed: the keeper ends");
            return None;
        }
        if let Some(program) = self.take_successor() {
            let cause = crash.unwrap_or_else(|| "lee restart".into());
            self.down.get_or_insert(Down { at: self.env.now(), cause });
            self.succeed(&program);
            return Some(Duration::ZERO);
        }
        match (run.served, crash) {
            (Some(_), None) => None,
            (Some(served), Some(cause)) => Some(self.crashed(served, cause)),
            (None, crash) if self.cell.is_none() => {
                self.report_early_end(crash, &run.ended);
                None
            }
            // SIGTERM while it started
            (None, None) if run.ended.as_ref().is_ok_and(|status| status.signal().is_some()) => None,
            (None, crash) => {
                let said = match run.outcome {
                    Some(Outcome::Failed { message, .. }) => Some(message),
                    _ => None,
                };
                let status = || run.ended.map_or_else(|why| why, |status| status.to_string());
                Some(self.failed(said.or(crash).unwrap_or_else(status)))
            }
        }
    }

    /// The program of a `lee restart` that waits, once there is a cell.
    fn take_successor(&mut self) -> Option<PathBuf> {
        let successor = self.successor.take().filter(|_| self.cell.is_some());
        successor.filter(Successor::is_wanted).map(|successor| successor.program)
    }

    /// Whether nobody can reach the cell any more.
    fn is_removed(&self) -> bool {
        let held = self.cell.as_ref().and_then(CellDir::held);
        held.and_then(|held| std::fs::metadata(held.path()).ok()).is_some_and(|dir| dir.nlink() == 0)
    }

    /// A server that was up crashed.
    fn crashed(&mut self, served: Duration, cause: String) -> Duration {
        let now = self.env.now();
        let pause = self.backoff.after_crash(now, served);
        let long = when::ago(served.as_secs() as i64);
        self.say(&format!("the server ended after {long}: {cause}; starting it again {}", in_words(pause)));
        self.down = Some(Down { at: now, cause: cause.clone() });
        self.wait_for(cause, pause, 0);
        pause
    }

    /// A server that was to be started again does not start.
    fn failed(&mut self, cause: String) -> Duration {
        let pause = self.backoff.after_failure();
        self.say(&format!("the server does not start again: {cause}; next try {}", in_words(pause)));
        let failed = self.record.waiting.as_ref().map_or(0, |waiting| waiting.failed) + 1;
        self.wait_for(cause, pause, failed);
        pause
    }

    fn wait_for(&mut self, cause: String, pause: Duration, failed: u64) {
        self.record.waiting = Some(Waiting { cause, next: self.seconds() + pause.as_secs() as i64, failed });
        self.note();
    }

    /// For `lee restart`: goes on as the program that it named. Where that cannot be, this one
    /// starts the server again.
    fn succeed(&mut self, program: &Path) {
        self.say(&format!("lee restart: starting {}", program.display()));
        let failed = match self.follow_the_cell() {
            Ok(()) => self.become_program(program),
            Err(e) => e,
        };
        self.say(&format!("{}: {}: this version goes on", program.display(), text(&failed)));
    }

    /// Goes on as another program; returns only when that cannot be.
    fn become_program(&self, program: &Path) -> io::Error {
        let file = match self.file.as_ref().map(RecordFile::pass_on).transpose() {
            Ok(file) => file,
            Err(e) => return e,
        };
        let cause = self.down.as_ref().map_or_else(|| "lee restart".into(), |down| down.cause.clone());
        let (restarts, after_crash) = (self.record.restarts, self.after_crash);
        match serde_json::to_string(&Passed { restarts, cause, after_crash, file }) {
            Ok(passed) => Command::new(program).args(&self.arguments).env(KEEPER, passed).exec(),
            Err(e) => e.into(),
        }
    }

    /// Tells the caller that the first server said nothing.
    fn report_early_end(&mut self, crash: Option<String>, ended: &Result<ExitStatus, String>) {
        let Some(caller) = self.caller.take() else { return };
        let how = crash.unwrap_or_else(|| match ended {
            Ok(status) => status.to_string(),
            Err(why) => why.clone(),
        });
        let of_state = |state: Result<CellDir, Fail>| state.map_or_else(|_| PathBuf::new(), |s| s.log());
        let log = match () {
            () if self.is_of_mount() => of_state(locate::mount_state(&self.named(MOUNT_POINT))),
            () if self.is_of_gateway() => {
                of_state(locate::gateway_state(&self.named(CELL).to_string_lossy()))
            }
            () => background::log_of(&self.named(CELL)),
        };
        let message = background::ended_early(&log, &how);
        let _ = background::tell(caller, &Outcome::Failed { message, code: 1 });
    }

    /// An argument, as a path.
    fn named(&self, place: usize) -> PathBuf {
        self.arguments.get(place).map(PathBuf::from).unwrap_or_default()
    }

    /// Waits before the next start, or until the keeper is asked to end.
    fn rest(&mut self, pause: Duration) {
        let end = self.env.now() + pause.as_nanos() as Nanos;
        loop {
            self.take_signals();
            let now = self.env.now();
            if self.ending || self.successor.is_some() || now >= end {
                return;
            }
            self.signals.wait(None, Some(Duration::from_nanos(end - now)));
        }
    }

    fn note(&self) {
        if let Some(file) = &self.file {
            file.write(&self.record);
        }
    }

    /// Writes a line to the cell's log. It may have been renamed since the last line.
    fn say(&self, what: &str) {
        if let Some(cell) = &self.cell {
            let _ = background::write_to_log(cell);
        }
        output::note(&format!("{} lee keeper {}: {what}", when::utc(self.seconds()), self.record.pid));
    }

    fn seconds(&self) -> i64 {
        (self.env.wall() / 1_000_000_000) as i64
    }
}

/// How a server crashed; `None`: it ended in order, with or without an error.
fn crash(ended: &Result<ExitStatus, String>, oom_kills_before: u64) -> Option<String> {
    let status = match ended {
        Ok(status) => status,
        Err(why) => return Some(format!("it cannot be run ({why})")),
    };
    match (status.signal(), status.code()) {
        (Some(libc::SIGTERM | libc::SIGINT | libc::SIGHUP), _) => None,
        (Some(libc::SIGKILL), _) if oom_kills() > oom_kills_before => {
            Some("killed by signal 9 (SIGKILL), while the kernel was out of memory".into())
        }
        (Some(signal), _) => Some(format!("killed by signal {signal} ({})", signals::name(signal))),
        (None, Some(PANICKED)) => Some("panic".into()),
        (None, Some(code)) if code == i32::from(BEGIN_ANEW) => {
            Some("it lost the cell to another server, or could not take it".into())
        }
        (None, _) => None,
    }
}

/// Processes that the OOM killer has ended on this machine.
fn oom_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// The program that a process runs: of `lee restart`, which waits and so is there.
fn program_of(pid: u32) -> PathBuf {
    let link = std::fs::read_link(format!("/proc/{pid}/exe"));
    link.ok().filter(|path| path.exists()).unwrap_or_else(background::myself)
}

fn is_readable(fd: std::os::fd::RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}

fn in_words(pause: Duration) -> String {
    match pause.as_millis() {
        0 => "at once".into(),
        millis => format!("in {}.{} s", millis / 1000, millis % 1000 / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(raw: i32) -> Option<String> {
        crash(&Ok(ExitStatus::from_raw(raw)), u64::MAX)
    }

    #[test]
    fn crashes_are_told_from_ends_in_order() {
        for code in [0, 1, 2, i32::from(TAKEN_OVER)] {
            assert_eq!(of(code << 8), None, "exit code {code}");
        }
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            assert_eq!(of(signal), None, "signal {signal}");
        }
        assert_eq!(of(PANICKED << 8).as_deref(), Some("panic"));
        assert!(of(i32::from(BEGIN_ANEW) << 8).is_some());
        assert_eq!(of(libc::SIGKILL).as_deref(), Some("killed by signal 9 (SIGKILL)"));
        assert_eq!(of(libc::SIGABRT | 0x80).as_deref(), Some("killed by signal 6 (SIGABRT)"));
        let oom = crash(&Ok(ExitStatus::from_raw(libc::SIGKILL)), 0);
        assert!(oom_kills() == 0 || oom.is_some_and(|how| how.contains("out of memory")));
        assert!(crash(&Err("no memory".into()), 0).is_some());
    }

    #[test]
    fn pauses_are_said_in_words() {
        assert_eq!(in_words(Duration::ZERO), "at once");
        assert_eq!(in_words(Duration::from_millis(100)), "in 0.1 s");
        assert_eq!(in_words(Duration::from_secs(30)), "in 30.0 s");
    }
}
