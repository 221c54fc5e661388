//! Several servers of one cell in a bucket: one has it, the others take it over, clients follow,
//! and nothing is lost.
#![allow(clippy::disallowed_methods)]

use crate::common::machines::free_port;
use crate::common::{Place, Said, can_mount, lee, run, signal, stop, until};
use leeward_bucket::server::{KEY, Server as Store};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CELL: &str = "s3://b/cell";
/// Longer than the longest wait after a server has died: to see that it is dead, the rest of its
/// term, clients that do not come; and a busy machine.
const TAKE_OVER: Duration = Duration::from_secs(25);

struct Site {
    /// Cleans up.
    place: Place,
    store: Store,
    nodes: Mutex<Vec<Arc<Node>>>,
}

/// A server.
struct Node {
    child: Mutex<Child>,
    state: PathBuf,
    log: PathBuf,
    port: u16,
}

impl Site {
    fn new() -> Site {
        Site { place: Place::new(), store: Store::start("b"), nodes: Mutex::default() }
    }

    fn at_store<'a>(&self, command: &'a mut Command, state: &Path) -> &'a mut Command {
        command
            .env("AWS_ENDPOINT_URL", self.store.endpoint())
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_REGION", "us-east-1")
            .env("LEE_STATE_DIR", state)
    }

    /// A server in the foreground, which says that it serves or stands by.
    fn serve(&self, name: &str) -> Arc<Node> {
        self.serve_at(name, free_port())
    }

    fn serve_at(&self, name: &str, port: u16) -> Arc<Node> {
        let (state, log) = (self.place.beside(name), self.place.beside(&format!("{name}.log")));
        let at = format!("127.0.0.1:{port}");
        let out = File::options().create(true).append(true).open(&log).expect("a log");
        let mut command = lee(&["serve", CELL, "--listen", &at]);
        self.at_store(&mut command, &state).env("LEE_LOG", "info");
        let child = command.stdout(out.try_clone().expect("a file")).stderr(out).spawn().expect("lee starts");
        let node = Arc::new(Node { child: Mutex::new(child), state, log, port });
        self.nodes.lock().expect("no panic").push(node.clone());
        let before = node.said().matches("Ctrl-C ends it").count();
        until(&format!("{name} to serve or to stand by"), || {
            assert!(node.is_alive(), "{name} ended: {}", node.said());
            node.said().matches("Ctrl-C ends it").count() > before
                || before > 0 && node.ask(self, &["status"]).code == 0
        });
        node
    }

    fn list(&self) -> Value {
        run(self.at_store(
            &mut lee(&["server", "list", "--json", "--cell", CELL]),
            &self.place.beside("operator"),
        ))
        .json()
    }

    /// Whose the cell is, by the process.
    fn owner(&self) -> Option<u32> {
        let list = self.list();
        let owner = list["servers"].as_array()?.iter().find(|server| server["has_cell"] == true)?;
        u32::try_from(owner["pid"].as_u64()?).ok()
    }

    fn state_of(&self, node: &Node) -> String {
        let list = self.list();
        let servers = list["servers"].as_array().cloned().unwrap_or_default();
        let of = |server: &&Value| server["pid"] == node.pid();
        servers.iter().find(of).and_then(|server| server["state"].as_str()).unwrap_or_default().to_owned()
    }

    /// Mounts it as another machine, by these servers.
    fn mount(&self, name: &str, owner: &Node, servers: &[&Node]) -> Mount<'_> {
        let token = owner.ask(self, &["host", "add", name, "--json", "--cell", CELL]).json()["token"]
            .as_str()
            .expect("a token")
            .to_owned();
        let mut mount = Mount {
            site: self,
            at: self.place.beside(&format!("m-{name}")),
            keys: self.place.beside(&format!("k-{name}")),
            pid: 0,
        };
        fs::create_dir(&mount.at).expect("a mount point");
        let servers: Vec<String> = servers.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let (servers, at) = (servers.join(","), mount.at.to_str().expect("UTF-8"));
        let line = ["mount", &servers, at, "--background", "--token", &token, "--json"];
        mount.pid = mount.lee(&line).json()["pid"].as_i64().expect("a pid") as i32;
        told();
        mount
    }
}

/// Until servers that have just come are seen by the others, and clients are told of them.
fn told() {
    std::thread::sleep(Duration::from_millis(2500));
}

impl Drop for Site {
    fn drop(&mut self) {
        for node in self.nodes.lock().expect("no panic").iter() {
            let mut child = node.child.lock().expect("no panic");
            let _ = child.kill().and_then(|()| child.wait());
            drop(child);
            if std::thread::panicking() {
                eprintln!("{}:\n{}", node.log.display(), node.said());
            }
        }
    }
}

impl Node {
    fn pid(&self) -> u32 {
        self.child.lock().expect("no panic").id()
    }

    fn signal(&self, number: i32) {
        signal(self.pid() as i32, number);
    }

    fn is_alive(&self) -> bool {
        matches!(self.child.lock().expect("no panic").try_wait(), Ok(None))
    }

    fn ended(&self) -> i32 {
        until("a server to end", || !self.is_alive());
        let status = self.child.lock().expect("no panic").wait().expect("our child");
        status.code().unwrap_or(-1)
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A command on its machine.
    fn ask(&self, site: &Site, line: &[&str]) -> Said {
        run(site.at_store(&mut lee(line), &self.state).env("LEE_CELL", CELL))
    }
}

struct Mount<'a> {
    site: &'a Site,
    at: PathBuf,
    keys: PathBuf,
    pid: i32,
}

impl Mount<'_> {
    fn lee(&self, line: &[&str]) -> Said {
        let state = self.keys.with_extension("state");
        run(lee(line)
            .env("LEE_HOST_DIR", &self.keys)
            .env("LEE_STATE_DIR", state)
            .current_dir(self.site.place.beside("")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // SAFETY: a plain system call on a process that this test has started, which may have
        // ended.
        unsafe { libc::kill(self.pid, libc::SIGCONT) };
        if std::thread::panicking() {
            let state = self.keys.with_extension("state");
            let said = Command::new("sh").arg("-c").arg("cat \"$0\"/mounts/*/log").arg(state).output();
            said.iter().for_each(|said| {
                eprintln!("{}:\n{}", self.at.display(), String::from_utf8_lossy(&said.stdout))
            });
        }
        let _ = self.lee(&["down", self.at.to_str().unwrap_or_default()]);
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
    }
}

/// What a keeper keeps with this state directory; ended the hard way when a test fails.
struct Kept(PathBuf);

impl Drop for Kept {
    fn drop(&mut self) {
        let dirs = fs::read_dir(&self.0).into_iter().flatten().flatten();
        for file in dirs.flat_map(|dir| ["keeper", "lock"].map(|name| dir.path().join(name))) {
            let text = fs::read_to_string(file).unwrap_or_default();
            let pid = serde_json::from_str::<Value>(&text).ok().and_then(|value| value["pid"].as_i64());
            let pid = pid.and_then(|pid| i32::try_from(pid).ok());
            if let Some(pid) = pid.filter(|pid| Place::is_lee(*pid) || Place::is_keeper(*pid)) {
                // SAFETY: a plain system call; only on one that has the lock of this test's own
                // directory, or keeps it.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }
}

/// Programs that make files one after the other, some of them durable, and never hear of an error.
struct Writers {
    dir: PathBuf,
    ended: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: Option<JoinHandle<Duration>>,
}

impl Writers {
    fn start(mount: &Mount<'_>, name: &str) -> Writers {
        let dir = mount.path(name);
        fs::create_dir(&dir).expect("a directory");
        let (ended, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (at, until, count) = (dir.clone(), ended.clone(), done.clone());
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !until.load(Ordering::Acquire) {
                let (n, begun) = (count.load(Ordering::Acquire), Instant::now());
                let mut file = File::create_new(at.join(n.to_string())).expect("a file is made");
                file.write_all(n.to_string().repeat(100).as_bytes()).expect("it is written");
                if n % 3 == 0 {
                    file.sync_all().expect("it is durable");
                }
                drop(file);
                if n % 5 == 4 {
                    fs::rename(at.join((n - 1).to_string()), at.join(format!("{}.moved", n - 1)))
                        .expect("a rename");
                }
                longest = longest.max(begun.elapsed());
                count.store(n + 1, Ordering::Release);
            }
            longest
        });
        Writers { dir, ended, done, thread: Some(thread) }
    }

    fn count(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Waits until more is done.
    #[track_caller]
    fn go_on(&self, more: u64) {
        let (wanted, end) = (self.count() + more, Instant::now() + TAKE_OVER);
        while self.count() < wanted {
            assert!(
                self.thread.as_ref().is_some_and(|thread| !thread.is_finished()),
                "a program had an error"
            );
            assert!(Instant::now() < end, "programs do not go on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends them; all that they were told is there. The longest time for one file.
    fn verify(mut self) -> Duration {
        self.ended.store(true, Ordering::Release);
        let longest = self.thread.take().expect("started").join().expect("no error");
        let count = self.count();
        for n in 0..count {
            let was_moved = n % 5 == 3 && n + 1 < count;
            let name = if was_moved { format!("{n}.moved") } else { n.to_string() };
            let text =
                fs::read_to_string(self.dir.join(&name)).unwrap_or_else(|e| panic!("{name} of {count}: {e}"));
            assert_eq!(text, n.to_string().repeat(100), "{name}");
        }
        assert_eq!(fs::read_dir(&self.dir).expect("a list").count() as u64, count);
        longest
    }
}

#[test]
fn another_server_takes_over_from_one_that_is_killed() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let (a, b) = (site.serve("a"), site.serve("b"));
    until("b to stand by", || (site.owner(), site.state_of(&b).as_str()) == (Some(a.pid()), "stands by"));
    let standing_by = || a.ask(&site, &["status", "--json"]).json()["server"]["standing_by"].clone();
    until("a to see that b stands by", || standing_by() == 1);
    // by the server that stands by: it says who has the cell
    let mount = site.mount("m", &a, &[&b]);
    let writers = Writers::start(&mount, "w");
    writers.go_on(50);
    a.signal(libc::SIGKILL);
    writers.go_on(50);
    assert_eq!((site.owner(), site.state_of(&a).as_str()), (Some(b.pid()), "dead"));
    // one that comes new stands by, and takes over in its turn
    let c = site.serve("c");
    assert_eq!(site.state_of(&c), "stands by");
    told();
    b.signal(libc::SIGKILL);
    writers.go_on(20);
    assert_eq!(site.owner(), Some(c.pid()));
    println!("longest wait {:?}", writers.verify());
    let killed = run(site.at_store(
        &mut lee(&["server", "remove", &id_of(&site, &a), "--cell", CELL]),
        &site.place.beside("operator"),
    ));
    killed.good();
    assert_eq!(site.state_of(&a), "");
}

fn id_of(site: &Site, node: &Node) -> String {
    let list = site.list();
    let servers = list["servers"].as_array().expect("a list");
    let server = servers.iter().find(|server| server["pid"] == node.pid()).expect("it is there");
    server["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_server_that_was_stopped_answers_nothing_when_it_wakes_up() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let (a, b) = (site.serve("a"), site.serve("b"));
    let (mount, old) = (site.mount("m", &a, &[&a, &b]), site.mount("old", &a, &[&a]));
    // more than what a machine gets when it opens a file
    fs::write(mount.path("f"), vec![b'1'; 2 << 20]).expect("written");
    let file = File::open(old.path("f")).expect("open");
    let writers = Writers::start(&mount, "w");
    writers.go_on(20);
    // the one asks, the other is stopped before it can answer; then the machine that asks is
    // stopped, too
    stop(a.pid() as i32);
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 16];
        told.send(file.read_at(&mut bytes, 1 << 20).map(|_| bytes))
    });
    std::thread::sleep(Duration::from_millis(300));
    stop(old.pid);
    writers.go_on(20);
    let changed = File::options().write(true).open(mount.path("f")).expect("open");
    changed.write_all_at(&[b'2'; 16], 1 << 20).expect("written");
    changed.sync_all().expect("durable");
    // what it was asked is there when it wakes up
    a.signal(libc::SIGCONT);
    std::thread::sleep(Duration::from_millis(100));
    signal(old.pid, libc::SIGCONT);
    let read = heard.recv_timeout(TAKE_OVER).expect("an answer").expect("read");
    assert_eq!(read, [b'2'; 16], "an answer of before");
    assert_eq!(a.ended(), 5, "{}", a.said());
    assert!(a.said().contains("marked this one as dead") || a.said().contains("taken over"), "{}", a.said());
    assert_eq!(site.owner(), Some(b.pid()));
    println!("longest wait {:?}", writers.verify());
}

#[test]
fn a_server_is_drained_and_ended_and_programs_notice_nothing() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let a = site.serve("a");
    let alone = a.ask(&site, &["server", "drain", &id_of(&site, &a)]);
    alone.bad(1, &["no other server stands by"]);
    let b = site.serve("b");
    let mount = site.mount("m", &a, &[&a]);
    let writers = Writers::start(&mount, "w");
    writers.go_on(20);
    let begun = Instant::now();
    let drained = b.ask(&site, &["server", "drain", &id_of(&site, &a), "--json"]).json();
    assert_eq!(drained["drained"], true, "{drained}");
    println!("drained in {:?}: {drained}", begun.elapsed());
    writers.go_on(20);
    assert_eq!((site.owner(), site.state_of(&a).as_str()), (Some(b.pid()), "drained"));
    // what stands by says who has the cell, as soon as it does not answer for its own turn any more
    until("a to stand by", || {
        let status = a.ask(&site, &["status", "--json"]).json();
        status["state"] == "standing-by" && status["server"]["draining"] == true
    });
    until("a to see who has the cell", || {
        a.ask(&site, &["status"]).good().contains("stands by; the cell is served on")
    });
    a.ask(&site, &["volume", "list"]).bad(1, &["stands by", "run this there"]);
    b.ask(&site, &["volume", "list"]).good();
    // what alerts look at: a is not to take it
    let standing_by = || b.ask(&site, &["status", "--json"]).json()["server"]["standing_by"].clone();
    until("b to see that nobody stands by", || standing_by() == 0);
    // nobody opens it beside them
    let up = run(site.at_store(
        &mut lee(&["up", CELL, "--mount", mount.at.to_str().expect("UTF-8")]),
        &site.place.beside("up"),
    ));
    up.bad(1, &["is shared by servers", "lee server list"]);
    // b ends in order: a is not to have it, until nobody else is there; then it has
    b.signal(libc::SIGTERM);
    assert_eq!(b.ended(), 0, "{}", b.said());
    writers.go_on(20);
    assert_eq!(site.owner(), Some(a.pid()));
    a.ask(&site, &["server", "undrain", &id_of(&site, &a)]).good();
    until("a to be as before", || site.state_of(&a) == "has the cell");
    println!("longest wait {:?}", writers.verify());
    assert_eq!(a.ask(&site, &["down", CELL]).code, 0);
    assert_eq!(a.ended(), 0);
}

#[test]
fn when_the_store_is_away_for_a_while_requests_wait_and_one_server_has_the_cell() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let (a, b) = (site.serve("a"), site.serve("b"));
    let mount = site.mount("m", &a, &[&a]);
    let writers = Writers::start(&mount, "w");
    writers.go_on(20);
    for away in [1, 6] {
        site.store.set_down(true);
        std::thread::sleep(Duration::from_secs(away));
        site.store.set_down(false);
        writers.go_on(20);
        // on a busy machine it may be the other one by now
        let list = site.list();
        let all = list["servers"].as_array().expect("a list").iter();
        let owners: Vec<&Value> = all.filter(|server| server["has_cell"] == true).collect();
        assert_eq!(owners.len(), 1, "after {away} s: {list}");
        let has_it = |node: &Node| owners[0]["pid"] == node.pid() && node.is_alive();
        assert!(has_it(&a) != has_it(&b), "after {away} s: {list}");
        println!("after {away} s the first one has the cell: {}", has_it(&a));
    }
    println!("longest wait {:?}", writers.verify());
}

#[test]
fn a_keeper_brings_a_killed_server_back_as_another_one() {
    if !can_mount() {
        return;
    }
    let site = Site::new();
    let (state, at) = (site.place.beside("a"), format!("127.0.0.1:{}", free_port()));
    let line = ["serve", CELL, "--listen", &at, "--background", "--json"];
    let started = run(site.at_store(&mut lee(&line), &state)).json();
    let pid = started["pid"].as_i64().expect("a pid") as i32;
    let end = || run(site.at_store(&mut lee(&["down", CELL]), &state));
    let _kept = Kept(state.clone());
    let before = site.owner();
    assert_eq!(before, u32::try_from(pid).ok());
    signal(pid, libc::SIGKILL);
    let begun = Instant::now();
    until("another server to have the cell", || site.owner().is_some_and(|owner| Some(owner) != before));
    // nobody waits for the term of one whose keeper knows that it has ended
    println!("another one has the cell after {:?}", begun.elapsed());
    let list = site.list();
    let dead = list["servers"].as_array().expect("a list").iter().find(|server| server["pid"] == pid);
    assert_eq!(dead.map(|server| &server["state"]), Some(&"ended".into()), "{list}");
    let state_now =
        || run(site.at_store(&mut lee(&["status", CELL, "--json"]), &state)).json()["state"].clone();
    until("it to be served", || state_now() == "serving");
    // also one that another server has marked while it was stopped
    let other = site.serve("b");
    let server = || run(site.at_store(&mut lee(&["status", CELL, "--json"]), &state)).json();
    let pid = server()["pid"].as_i64().expect("a pid") as i32;
    stop(pid);
    until("the other server to have the cell", || site.owner() == Some(other.pid()));
    signal(pid, libc::SIGCONT);
    until("it to stand by again", || {
        let said = run(site.at_store(&mut lee(&["status", CELL, "--json"]), &state));
        let now: Value = serde_json::from_str(&said.out).unwrap_or_default();
        now["state"] == "standing-by" && now["pid"].as_i64() != Some(i64::from(pid))
    });
    let said = end();
    assert_eq!(said.code, 0, "{said:?}");
}
