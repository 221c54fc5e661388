//! Locks of programs on several machines, by real programs on real mounts.

use super::*;
use std::io::{BufRead, BufReader};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// Does what it is told, line by line, and says how it went.
const PROGRAM: &str = r#"
import errno, fcntl, os, signal, struct, sys
files = {}
MODES = {"sh": fcntl.LOCK_SH, "ex": fcntl.LOCK_EX, "un": fcntl.LOCK_UN}
KINDS = {"sh": fcntl.F_RDLCK, "ex": fcntl.F_WRLCK, "un": fcntl.F_UNLCK}
def interrupted(*_):
    raise OSError(errno.EINTR, "a signal")
signal.signal(signal.SIGUSR1, interrupted)
signal.signal(signal.SIGUSR2, lambda *_: None)
def run(what, name, mode="", start="0", len="0", now=""):
    if what == "open":
        files[name] = os.open(mode, os.O_RDWR | os.O_CREAT, 0o666)
    elif what == "close":
        os.close(files.pop(name))
    elif what == "flock":
        fcntl.flock(files[name], MODES[mode] | (fcntl.LOCK_NB if start == "now" else 0))
    elif what == "lockf":
        nb = fcntl.LOCK_NB if now and mode != "un" else 0
        fcntl.lockf(files[name], MODES[mode] | nb, int(len), int(start))
    elif what == "ofd":
        lock = struct.pack("hhqqi4x", KINDS[mode], 0, int(start), int(len), 0)
        fcntl.fcntl(files[name], 37 if now else 38, lock)
    elif what == "test":
        lock = struct.pack("hhqqi4x", KINDS[mode], 0, int(start), int(len), 0)
        kind, _, start, len, _ = struct.unpack("hhqqi4x", fcntl.fcntl(files[name], fcntl.F_GETLK, lock))
        return {fcntl.F_UNLCK: "free", fcntl.F_RDLCK: f"sh {start} {len}"}.get(kind, f"ex {start} {len}")
    elif what == "read":
        os.pread(files[name], 1, 0)
    elif what == "write":
        os.pwrite(files[name], b"x", 0)
    elif what == "fsync":
        os.fsync(files[name])
    return "ok"
for line in sys.stdin:
    try:
        said = run(*line.split())
    except OSError as e:
        said = errno.errorcode[e.errno]
    print(said, flush=True)
"#;

const SOON: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(30);

/// Waits until a process is in a call for a lock, where the numbers of those are known.
fn asks_for_a_lock(process: &Child) {
    let at = PathBuf::from(format!("/proc/{}/syscall", process.id()));
    if cfg!(target_arch = "x86_64") && at.exists() {
        let is_fcntl_or_flock = |call: String| ["72 ", "73 "].iter().any(|number| call.starts_with(number));
        until("a process to ask for a lock", || fs::read_to_string(&at).is_ok_and(is_fcntl_or_flock));
    }
}

/// A running [`PROGRAM`].
struct Program {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl Program {
    /// With the file `f` open.
    fn at(path: &Path) -> Program {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (send, output) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        let input = child.stdin.take().expect("its input");
        let mut program = Program { child, input, output };
        program.good(&format!("open f {}", path.display()));
        program
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it listens");
    }

    fn heard(&self) -> String {
        self.output.recv_timeout(LONG).expect("it says something")
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.heard()
    }

    fn good(&mut self, line: &str) {
        assert_eq!(self.ask(line), "ok", "{line}");
    }

    /// Says it, and finds that it takes its time.
    fn waits(&mut self, line: &str) {
        self.say(line);
        asks_for_a_lock(&self.child);
        self.still_waits();
    }

    fn still_waits(&self) {
        assert_eq!(self.output.recv_timeout(SOON), Err(RecvTimeoutError::Timeout), "it does not wait");
    }

    fn is_done(&self) {
        assert_eq!(self.heard(), "ok");
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child that was not waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Kills it, and finds that it is dead at once.
    fn kill(&mut self) {
        let begun = Instant::now();
        self.child.kill().expect("killed");
        self.child.wait().expect("waited for");
        println!("dead after {:?}", begun.elapsed());
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cell that is mounted where it is served, and by two more machines.
fn three() -> Option<(Served, Machine, Machine)> {
    three_with(&[])
}

/// The same, with options of the mount of the first one.
fn three_with(options: &[&str]) -> Option<(Served, Machine, Machine)> {
    let is_there = |program| Command::new(program).arg("--version").output().is_ok();
    if !["python3", "flock"].into_iter().all(is_there) {
        eprintln!("skipped: python3 or flock (util-linux) is missing");
        return None;
    }
    if !can_mount() {
        return None;
    }
    let served = Served::mounted();
    let (a, b) = (served.machine("a", &[], options), served.machine("b", &[], &[]));
    Some((served, a, b))
}

fn locks_of(served: &Served, host: &str) -> u64 {
    let sessions = sessions(served);
    let session = sessions.iter().find(|session| session["host"] == host).expect("a session");
    session["locks"].as_u64().expect("a number")
}

#[test]
fn locks_exclude_between_machines_and_the_mount_of_the_server() {
    let Some((served, a, b)) = three() else { return };
    let paths = [a.path("file"), b.path("file"), served.place.mnt().join("file")];
    let mut programs = paths.each_ref().map(|path| Program::at(path));
    for holder in 0..3 {
        let (one, other) = ((holder + 1) % 3, (holder + 2) % 3);
        // flock
        programs[holder].good("flock f ex");
        assert_eq!(programs[one].ask("flock f sh now"), "EAGAIN");
        programs[other].waits("flock f ex");
        programs[holder].good("flock f sh");
        programs[other].still_waits();
        programs[one].good("flock f sh now");
        programs[holder].good("flock f un");
        programs[one].good("flock f un");
        programs[other].is_done();
        assert_eq!(programs[holder].ask("flock f sh now"), "EAGAIN");
        programs[other].good("flock f un");
        // fcntl, which does not exclude flock
        programs[one].good("flock f ex");
        programs[holder].good("lockf f ex 0 100");
        programs[holder].good("lockf f sh 40 20");
        programs[holder].good("lockf f un 90 10");
        programs[one].good("lockf f sh 45 10 now");
        programs[one].good("lockf f ex 90 10 now");
        assert_eq!(programs[one].ask("lockf f ex 45 10 now"), "EAGAIN");
        assert_eq!(programs[one].ask("test f ex 0 0"), "ex 0 40");
        assert_eq!(programs[one].ask("test f sh 40 30"), "ex 60 30");
        assert_eq!(programs[other].ask("test f ex 40 20"), "sh 40 20");
        assert_eq!(programs[other].ask("test f ex 100 0"), "free");
        programs[other].waits("lockf f ex 0 0");
        programs[one].good("lockf f un 0 0");
        programs[one].good("flock f un");
        programs[other].still_waits();
        programs[holder].good("lockf f un 0 0");
        programs[other].is_done();
        programs[other].good("lockf f un 0 0");
    }
    // two who wait for each other: whoever comes second is refused
    programs[0].good("lockf f ex 0 1");
    programs[1].good("lockf f ex 1 1");
    programs[0].waits("lockf f ex 1 1");
    programs[1].say("lockf f ex 0 1");
    let mut second = None;
    until("one of them to be refused", || {
        second = (0..2).find(|n| programs[*n].output.try_recv().is_ok_and(|said| said == "EDEADLOCK"));
        second.is_some()
    });
    let second = second.expect("refused");
    programs[second].good("lockf f un 0 0");
    programs[1 - second].is_done();
    let counts = [locks_of(&served, "a"), locks_of(&served, "b")];
    assert_eq!((counts[1 - second], counts[second]), (1, 0));
}

#[test]
fn a_close_gives_locks_up_as_posix_says() {
    let Some((served, a, b)) = three() else { return };
    for path in [a.path("file"), served.place.mnt().join("file")] {
        let (mut one, mut other) = (Program::at(&path), Program::at(&b.path("file")));
        one.good(&format!("open g {}", path.display()));
        one.good("lockf f ex 0 0");
        assert_eq!(other.ask("lockf f sh 0 0 now"), "EAGAIN");
        one.good("close g");
        other.good("lockf f sh 0 0 now");
        other.good("lockf f un 0 0");
        // locks of open files stay until that open file is closed
        one.good(&format!("open g {}", path.display()));
        for kind in ["ofd f ex 0 10", "flock f ex"] {
            one.good(kind);
            one.good("close g");
            let ask = if kind.starts_with("ofd") { "ofd f sh 0 1 now" } else { "flock f sh now" };
            assert_eq!(other.ask(ask), "EAGAIN");
            one.good(&format!("open g {}", path.display()));
            if kind.starts_with("ofd") {
                assert_eq!(one.ask("ofd g sh 5 1 now"), "EAGAIN", "another open file of the process");
                assert_eq!(one.ask("lockf g sh 5 1 now"), "EAGAIN", "the process itself");
            }
            one.good("close f");
            until("the lock to be free", || other.ask(ask) == "ok");
            other.good("close f");
            other.good(&format!("open f {}", b.path("file").display()));
            one.good(&format!("open f {}", path.display()));
        }
    }
    until("no lock to be left", || (locks_of(&served, "a"), locks_of(&served, "b")) == (0, 0));
}

#[test]
fn who_dies_or_is_interrupted_has_and_gets_no_lock() {
    let Some((served, a, b)) = three() else { return };
    let own = served.place.mnt();
    for (holds, waits) in
        [(a.path("f1"), b.path("f1")), (own.join("f2"), a.path("f2")), (b.path("f3"), own.join("f3"))]
    {
        for kind in ["lockf f ex 0 0", "flock f ex", "ofd f ex 0 5"] {
            let mut holder = Program::at(&holds);
            let mut waiter = Program::at(&waits);
            holder.good(kind);
            // a signal whose handler ends the wait
            waiter.waits(kind);
            waiter.signal(libc::SIGUSR1);
            assert_eq!(waiter.heard(), "EINTR", "{kind}");
            // one that does not
            waiter.waits(kind);
            waiter.signal(libc::SIGUSR2);
            waiter.still_waits();
            waiter.kill();
            let mut waiter = Program::at(&waits);
            waiter.waits(kind);
            holder.kill();
            waiter.is_done();
            // neither the one that was interrupted nor the one that was killed has it
            waiter.kill();
            let mut next = Program::at(&holds);
            next.good(kind);
        }
    }
}

#[test]
fn others_do_not_notice_how_many_wait() {
    let Some((served, a, b)) = three() else { return };
    for path in [b.path("file"), served.place.mnt().join("file")] {
        let mut holder = Program::at(&a.path("file"));
        holder.good("flock f ex");
        // more than a ring has for requests that do not wait
        let wait = |_| Command::new("flock").arg(&path).arg("true").spawn().expect("flock");
        let mut waiting: Vec<Child> = (0..300).map(wait).collect();
        waiting.iter().for_each(asks_for_a_lock);
        std::thread::sleep(Duration::from_secs(1));
        let begun = Instant::now();
        for number in 0..50 {
            fs::write(path.with_extension(number.to_string()), "x").expect("written");
        }
        println!("50 files took {:?}", begun.elapsed());
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
        assert!(waiting.iter_mut().all(|child| child.try_wait().expect("asked").is_none()));
        holder.good("flock f un");
        assert!(waiting.iter_mut().all(|child| child.wait().expect("waited for").success()));
    }
}

/// Those who wait get them, the others stay until the session ends.
#[test]
fn a_machine_that_dies_loses_its_locks() {
    let Some((served, a, b)) = three_with(&["--no-keeper"]) else { return };
    let (mut one, mut other) = (Program::at(&a.path("file")), Program::at(&b.path("file")));
    one.good("flock f ex");
    one.good(&format!("open g {}", a.path("other").display()));
    one.good("flock g ex");
    other.waits("flock f ex");
    assert_eq!(locks_of(&served, "a"), 2);
    kill(a.pid().expect("its process"));
    let begun = Instant::now();
    other.still_waits();
    other.is_done();
    println!("a lock of a machine that died was free after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    assert_eq!(locks_of(&served, "a"), 1);
    let number = sessions(&served).iter().find(|s| s["host"] == "a").expect("kept")["session"].to_string();
    served.ask(&["session", "end", &number]).good();
    other.good(&format!("open g {}", b.path("other").display()));
    other.good("flock g ex now");
}

/// Its programs go on when it is back, and none of them writes under a lock that another one has.
#[test]
fn a_machine_that_was_frozen_is_told_which_locks_it_has_lost() {
    let Some((served, a, b)) = three() else { return };
    let (mut one, mut other) = (Program::at(&a.path("file")), Program::at(&b.path("file")));
    let mut third = Program::at(&a.path("kept"));
    one.good("lockf f ex 0 0");
    one.good("write f");
    third.good("flock f ex");
    other.waits("lockf f ex 0 0");
    let (pid, begun) = (a.pid().expect("its process"), Instant::now());
    stop(pid);
    other.is_done();
    println!("a lock of a machine that was frozen was free after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    other.good("write f");
    other.good("fsync f");
    // it asks for this while it is frozen, and does not know yet
    one.say("write f");
    std::thread::sleep(Duration::from_secs(20).saturating_sub(begun.elapsed()));
    signal(pid, libc::SIGCONT);
    assert_eq!(one.heard(), "EIO");
    for what in ["read f", "write f", "fsync f", "lockf f sh 0 1", "close f"] {
        assert_eq!(one.ask(what), "EIO", "{what}");
    }
    // others of its files, and this one when it is opened again, are not concerned
    third.good("write f");
    third.good("fsync f");
    one.good(&format!("open f {}", a.path("file").display()));
    one.good("read f");
    assert_eq!(one.ask("lockf f sh 0 1 now"), "EAGAIN");
    other.good("lockf f un 0 0");
    one.good("lockf f ex 0 0");
    one.good("write f");
    let why = served.ask(&["why"]).good();
    assert!(why.contains("a has lost a lock of") && why.contains("others wanted the same locks"), "{why}");
    assert_eq!(locks_of(&served, "a"), 2);
}

#[test]
fn a_lock_that_was_lost_fails_what_is_done_by_its_file() {
    let Some((served, a, b)) = three() else { return };
    let (mut one, mut other) = (Program::at(&a.path("file")), Program::at(&b.path("file")));
    one.good("lockf f ex 0 0");
    one.good("write f");
    other.waits("lockf f ex 0 0");
    let number = sessions(&served).iter().find(|s| s["host"] == "a").expect("there")["session"].to_string();
    served.ask(&["session", "end", &number]).good();
    other.is_done();
    until("the machine to know", || one.ask("read f") == "EIO");
    for what in ["write f", "fsync f", "lockf f sh 0 1", "flock f sh", "close f"] {
        assert_eq!(one.ask(what), "EIO", "{what}");
    }
    one.good(&format!("open f {}", a.path("file").display()));
    one.good("read f");
    assert_eq!(one.ask("lockf f sh 0 1 now"), "EAGAIN");
}

#[test]
fn locks_outlive_a_server_that_is_killed() {
    let Some((served, a, b)) = three() else { return };
    let (mut one, mut other) = (Program::at(&a.path("file")), Program::at(&b.path("file")));
    one.good("lockf f ex 0 10");
    one.good("flock f sh");
    other.waits("lockf f ex 5 1");
    served.place.kill();
    other.still_waits();
    let mut third = Program::at(&b.path("file"));
    // also who does not want to wait waits until it is known what others have
    assert_eq!(third.ask("flock f ex now"), "EAGAIN");
    assert_eq!(third.ask("test f ex 0 0"), "ex 0 10");
    other.still_waits();
    one.good("lockf f un 0 0");
    other.is_done();
    one.good("fsync f");
    assert_eq!((locks_of(&served, "a"), locks_of(&served, "b")), (1, 1));
}

#[test]
fn who_waits_for_a_server_that_is_away_can_be_killed_and_files_can_be_closed() {
    let Some((served, a, b)) = three() else { return };
    let (mut one, mut other) = (Program::at(&a.path("file")), Program::at(&b.path("file")));
    let mut third = Program::at(&b.path("file"));
    one.good("lockf f ex 0 10");
    third.good("flock f ex");
    other.waits("lockf f ex 5 1");
    served.ask(&["down", served.place.arg()]).good();
    other.still_waits();
    other.kill();
    third.kill();
    one.waits("lockf f un 0 5");
    served.serve_again();
    one.is_done();
    let mut other = Program::at(&b.path("file"));
    other.good("flock f ex");
    other.waits("lockf f ex 0 0");
    one.good("close f");
    other.is_done();
    assert_eq!((locks_of(&served, "a"), locks_of(&served, "b")), (0, 2));
}

/// Counts in a database, as often as it is told.
const COUNTER: &str = r#"
import sqlite3, sys
path, times = sys.argv[1], int(sys.argv[2])
db = sqlite3.connect(path, timeout=120, isolation_level=None)
for _ in range(times):
    db.execute("BEGIN IMMEDIATE")
    (count,) = db.execute("SELECT count FROM counter").fetchone()
    db.execute("UPDATE counter SET count = ?", (count + 1,))
    db.execute("COMMIT")
db.close()
"#;

#[test]
fn a_database_is_used_from_several_machines() {
    let Some((served, a, b)) = three() else { return };
    let make = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n\
        db.execute('CREATE TABLE counter (count INTEGER)')\ndb.execute('INSERT INTO counter VALUES (0)')\ndb.commit()";
    run(Command::new("python3").args(["-c", make]).arg(a.path("db"))).good();
    let paths = [a.path("db"), b.path("db"), served.place.mnt().join("db"), a.path("db")];
    let count = |path: &PathBuf| Command::new("python3").args(["-c", COUNTER]).arg(path).arg("25").spawn();
    let all: Vec<Child> = paths.iter().map(|path| count(path).expect("python3")).collect();
    for mut child in all {
        assert!(child.wait().expect("waited for").success());
    }
    let read = "import sqlite3, sys\nprint(sqlite3.connect(sys.argv[1]).execute('SELECT count FROM counter').fetchone()[0])";
    for path in &paths {
        assert_eq!(run(Command::new("python3").args(["-c", read]).arg(path)).good().trim(), "100");
    }
}
