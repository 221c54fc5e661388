//! A cell in a bucket, through the real binary and a real mount, on a store in memory: its life,
//! two processes that want it, and a store that fails. Two machines are two state directories.
//! Needs root and /dev/fuse; says so and skips elsewhere.
#![allow(clippy::disallowed_methods)]

use crate::common::{PATIENCE, Place, Said, can_mount, is_mounted, lee, run, signal, stop, until};
use leeward_bucket::server::{Fault, KEY, Server};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const URL: &str = "s3://bucket/a/cell";

/// One machine: its state directory and its mount point.
struct Machine {
    root: tempfile::TempDir,
    endpoint: String,
    serving: Option<Child>,
}

impl Machine {
    fn new(server: &Server) -> Machine {
        let root = tempfile::Builder::new().prefix("lee-test-").tempdir().expect("a temporary directory");
        fs::create_dir(root.path().join("mnt")).expect("mkdir");
        Machine { root, endpoint: server.endpoint(), serving: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().expect("it exists").join(name)
    }

    fn mnt(&self) -> PathBuf {
        self.path("mnt")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = lee(args);
        command.env("AWS_ENDPOINT_URL", &self.endpoint).env("AWS_ACCESS_KEY_ID", KEY);
        command.env("AWS_SECRET_ACCESS_KEY", "secret").env("AWS_REGION", "us-east-1");
        command.env("LEE_STATE_DIR", self.path("state")).env_remove("AWS_PROFILE");
        command
    }

    fn say(&self, args: &[&str]) -> Said {
        run(&mut self.command(args))
    }

    /// Asks about the cell.
    fn ask(&self, args: &[&str]) -> Said {
        run(self.command(args).env("LEE_CELL", URL))
    }

    /// Serves it as a child and waits until it is mounted.
    fn up(&mut self) {
        self.up_with(&[]);
    }

    fn up_with(&mut self, options: &[&str]) {
        let mnt = self.mnt();
        let errors =
            fs::OpenOptions::new().append(true).create(true).open(self.path("errors")).expect("a file");
        let mut command = self.command(&["up", URL, "--mount", mnt.to_str().expect("UTF-8")]);
        command.args(options);
        self.serving = Some(command.stdout(Stdio::null()).stderr(errors).spawn().expect("lee starts"));
        until("lee up", || {
            let child = self.serving.as_mut().expect("started");
            assert!(matches!(child.try_wait(), Ok(None)), "it ended: {}", self.errors());
            is_mounted(&mnt) && self.ask(&["status"]).out.contains("in memory")
        });
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.path("errors")).expect("UTF-8")
    }

    /// The exit code of the serving process, which ends by itself.
    fn ended(&mut self) -> Option<i32> {
        let mut child = self.serving.take().expect("started");
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Ok(Some(status)) = child.try_wait() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.serving = Some(child);
        panic!("it did not end: {}", self.errors());
    }

    fn kill(&mut self) {
        let mut child = self.serving.take().expect("started");
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
}

impl Machine {
    /// What a file of its only state directory says: `lock` of the server, `keeper` of its keeper.
    fn pid_in(&self, file: &str) -> Option<i32> {
        let state = fs::read_dir(self.path("state")).ok()?.next()?.ok()?.path();
        let said: serde_json::Value = serde_json::from_slice(&fs::read(state.join(file)).ok()?).ok()?;
        i32::try_from(said["pid"].as_i64()?).ok()
    }

    fn up_in_the_background(&self) -> (i32, i32) {
        self.say(&["up", URL, "--mount", self.mnt().to_str().expect("UTF-8"), "--background"]).good();
        (self.pid_in("lock").expect("a server"), self.pid_in("keeper").expect("a keeper"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let keeper = self.pid_in("keeper").filter(|pid| Place::is_keeper(*pid));
        keeper.into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
        let server = self.pid_in("lock").filter(|pid| Place::is_lee_at(*pid, &self.path("")));
        server.into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
        if let Some(mut child) = self.serving.take() {
            let _ = child.kill().and_then(|()| child.wait());
        }
        let _ = Command::new("umount").arg("-l").arg(self.mnt()).stderr(Stdio::null()).status();
    }
}

fn write_durably(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn server() -> Option<Server> {
    can_mount().then(|| Server::start("bucket"))
}

#[test]
fn a_cell_lives_in_a_bucket() {
    let Some(server) = server() else { return };
    let mut here = Machine::new(&server);
    here.ask(&["df"]).bad(1, &["no cell there", "lee up"]);
    here.up();
    let mnt = here.mnt();
    fs::create_dir(mnt.join("dir")).expect("mkdir");
    write_durably(&mnt.join("dir/small"), b"small").expect("write");
    let large: Vec<u8> = (0..20_000_000u32).map(|n| (n / 7) as u8).collect();
    write_durably(&mnt.join("large"), &large).expect("write");

    let status = here.ask(&["status", "--json"]).json();
    assert_eq!((status["cell"].as_str(), &status["running"]), (Some(URL), &true.into()));
    here.ask(&["volume", "create", "home"]).good();
    here.ask(&["quota", "set", "home", "--bytes", "1G"]).good();
    here.ask(&["snap", "create", "/dir", "before"]).good();
    here.ask(&["df"]).good();
    assert!(here.ask(&["fsck"]).good().contains("clean"));
    // where it is mounted stands for the cell, whatever the environment says
    let inside =
        run(here.command(&["status"]).current_dir(&mnt).env("AWS_ENDPOINT_URL", "http://127.0.0.1:1"));
    assert!(inside.good().contains(URL));
    assert!(here.ask(&["down"]).good().contains("everything is durable"));
    assert_eq!(here.ended(), Some(0));
    assert!(!server.names().iter().any(|name| name.ends_with("/served")), "{:?}", server.names());

    assert_eq!(here.ask(&["status"]).code, 3);
    assert!(here.ask(&["fsck"]).good().contains("clean"));
    assert!(here.ask(&["volume", "list"]).good().contains("home"));
    // nothing of it was here
    let mut there = Machine::new(&server);
    there.up();
    assert_eq!(fs::read(there.mnt().join("large")).expect("read"), large);
    assert_eq!(fs::read(there.mnt().join("dir/.snap/before/small")).expect("read"), b"small");
    there.ask(&["down"]).good();
    assert!(server.names().iter().all(|name| name.starts_with("a/cell/")));
}

#[test]
fn a_second_machine_takes_the_cell_over() {
    let Some(server) = server() else { return };
    let (mut first, mut second) = (Machine::new(&server), Machine::new(&server));
    first.up();
    write_durably(&first.mnt().join("kept"), b"by the first").expect("write");
    second.ask(&["df"]).bad(1, &["is served by `lee up`", "takes the cell over"]);

    let mut late = fs::File::create(first.mnt().join("late")).expect("create");
    late.sync_all().expect("sync");

    second.up();
    write_durably(&second.mnt().join("new"), b"by the second").expect("write");
    assert_eq!(fs::read(second.mnt().join("kept")).expect("read"), b"by the first");
    // the first ends by itself, and nothing that it still writes is acknowledged or seen
    assert!(late.write_all(b"x").and_then(|()| late.sync_all()).is_err(), "acknowledged after the take-over");
    drop(late);
    assert_eq!(first.ended(), Some(4));
    assert!(first.errors().contains("was taken over by another process"), "{}", first.errors());
    assert!(!is_mounted(&first.mnt()));
    assert_eq!(fs::read(second.mnt().join("late")).expect("read"), b"");
    assert!(second.ask(&["fsck"]).good().contains("clean"));

    // and back, after a kill: what was acknowledged is there
    write_durably(&second.mnt().join("last"), b"acknowledged").expect("write");
    second.kill();
    let begun = Instant::now();
    first.up();
    write_durably(&first.mnt().join("after"), b"x").expect("write");
    eprintln!("taken over in {:?}", begun.elapsed());
    assert_eq!(fs::read(first.mnt().join("last")).expect("read"), b"acknowledged");
    assert!(first.ask(&["fsck"]).good().contains("clean"));
    first.ask(&["down"]).good();
}

#[test]
fn a_killed_server_comes_back_unless_another_machine_has_the_cell() {
    let Some(server) = server() else { return };
    let (first, mut second) = (Machine::new(&server), Machine::new(&server));
    let (_, keeper) = first.up_in_the_background();
    let file = first.mnt().join("file");
    for n in 0..3u8 {
        write_durably(&file, &[n]).expect("write");
        let pid = first.pid_in("lock").expect("a server");
        signal(pid, libc::SIGKILL);
        until("the killed server to end", || !Place::is_lee(pid));
        until("the path to be back", || fs::read(&file).is_ok_and(|content| content == [n]));
        // until then `lee status` says that it is coming back
        until("the keeper to note it", || {
            let said = first.ask(&["status", "--json"]);
            said.code == 0 && said.json()["restarts"] == n + 1
        });
    }
    // While its keeper is slow, another machine takes the cell: then this one does not take it
    // back.
    stop(keeper);
    let pid = first.pid_in("lock").expect("a server");
    signal(pid, libc::SIGKILL);
    until("the killed server to end", || !Place::is_lee(pid));
    second.up();
    signal(keeper, libc::SIGCONT);
    until("the keeper to end", || !Place::is_keeper(keeper));
    assert!(!is_mounted(&first.mnt()), "the dead mount is taken away");
    write_durably(&second.mnt().join("file"), b"by the second").expect("it serves");
    let state = fs::read_dir(first.path("state")).expect("a directory").next().expect("one").expect("one");
    let log = fs::read_to_string(state.path().join("log")).expect("a log");
    assert!(log.contains("was taken over by `lee up`") && log.contains("the keeper ends"), "{log}");
    second.ask(&["down"]).good();
    assert_eq!(second.ended(), Some(0));
}

#[test]
fn a_server_that_is_killed_before_it_ever_served_stays_down() {
    if !can_mount() {
        return;
    }
    // it takes connections and never answers
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = Server::start("bucket");
    let mut machine = Machine::new(&server);
    machine.endpoint = format!("http://{}", silent.local_addr().expect("bound"));
    let mnt = machine.mnt();
    let said = std::thread::scope(|s| {
        let up =
            s.spawn(|| machine.say(&["up", URL, "--mount", mnt.to_str().expect("UTF-8"), "--background"]));
        until("a server that starts", || machine.pid_in("lock").is_some_and(Place::is_lee));
        signal(machine.pid_in("lock").expect("a server"), libc::SIGKILL);
        up.join().expect("it ends")
    });
    said.bad(1, &["ended before it was mounted", "killed by signal 9 (SIGKILL)", "without --background"]);
    assert_eq!(machine.pid_in("keeper"), None);
}

#[test]
fn a_store_that_is_away_is_waited_for() {
    let Some(server) = server() else { return };
    let mut here = Machine::new(&server);
    here.up();
    let mnt = here.mnt();
    write_durably(&mnt.join("before"), b"before").expect("write");
    assert_eq!(fs::read(mnt.join("before")).expect("read"), b"before");
    server.set_down(true);
    let (during, content) = (mnt.join("during"), vec![7u8; 3_000_000]);
    let waiting = std::thread::spawn({
        let (during, content) = (during.clone(), content.clone());
        move || write_durably(&during, &content)
    });
    std::thread::sleep(Duration::from_secs(3));
    assert!(!waiting.is_finished(), "durable without a store");
    // what is in memory is read, by others too
    assert_eq!(fs::read(mnt.join("before")).expect("read"), b"before");
    server.set_down(false);
    waiting.join().expect("no panic").expect("durable when the store is back");
    assert!(here.errors().contains("does not answer"), "{}", here.errors());

    for fault in [Fault::Busy, Fault::FailsBefore, Fault::FailsAfter, Fault::BreaksAfter] {
        server.fail("PUT", "/data/", fault, 2);
        server.fail("PUT", "/meta/", fault, 2);
        write_durably(&mnt.join(format!("{fault:?}")), &content).expect("write");
    }
    here.kill();
    here.up();
    for name in ["during", "Busy", "FailsBefore", "FailsAfter", "BreaksAfter"] {
        assert!(fs::read(mnt.join(name)).expect("read") == content, "{name}");
    }
    assert!(here.ask(&["fsck"]).good().contains("clean"));
    here.ask(&["down"]).good();
}

#[test]
fn what_is_wrong_is_said_within_seconds() {
    let server = Server::start("bucket");
    let here = Machine::new(&server);
    let begun = Instant::now();
    let up = ["up", URL];
    run(here.command(&up).env("AWS_ACCESS_KEY_ID", "nobody")).bad(1, &[URL, "AWS_ACCESS_KEY_ID"]);
    here.say(&["up", "s3://other/cell"]).bad(1, &["no bucket other", "create it"]);
    run(here.command(&up).env("AWS_ENDPOINT_URL", "http://127.0.0.1:1"))
        .bad(1, &["does not answer", "AWS_ENDPOINT_URL"]);
    run(here.command(&up).env("AWS_ENDPOINT_URL", "nonsense"))
        .bad(1, &["AWS_ENDPOINT_URL=nonsense", "http://HOST"]);
    run(here.command(&up).env("AWS_PROFILE", "none").env("HOME", here.path("")))
        .bad(1, &["AWS_PROFILE=none", "no such profile"]);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert_eq!(server.names(), [""; 0]);
}

#[test]
fn what_was_read_is_kept_on_a_local_disk() {
    let Some(server) = server() else { return };
    let mut here = Machine::new(&server);
    let cache = here.path("cache");
    let with = ["--cache", cache.to_str().expect("UTF-8"), "--cache-size", "64M"];
    here.up_with(&with);
    let content: Vec<u8> = (0..6_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    write_durably(&here.mnt().join("file"), &content).expect("write");
    here.ask(&["down"]).good();
    assert_eq!(here.ended(), Some(0));
    here.up_with(&with);
    assert!(fs::read(here.mnt().join("file")).expect("read") == content);
    here.ask(&["down"]).good();
    assert_eq!(here.ended(), Some(0));
    assert!(fs::metadata(cache.join("leeward.blocks")).expect("a cache").len() > 0);
    // what was on its way there when the process ended comes with the next read
    until("all of it is in the cache", || {
        here.up_with(&with);
        let before = server.requests_of("GET", "/data/");
        assert!(fs::read(here.mnt().join("file")).expect("read") == content);
        let asked = server.requests_of("GET", "/data/") - before;
        here.ask(&["down"]).good();
        assert_eq!(here.ended(), Some(0));
        asked == 0
    });

    // one that cannot be had is said, and done without
    here.up_with(&["--cache", "/proc/nowhere"]);
    assert!(fs::read(here.mnt().join("file")).expect("read") == content);
    assert!(here.errors().contains("no cache on disk: /proc/nowhere"), "{}", here.errors());
    here.ask(&["down"]).good();
}

/// A pool of two buckets at two sites and a directory: any one may be away.
#[test]
fn a_pool_of_buckets() {
    if !can_mount() {
        return;
    }
    let sites = [Server::start("bucket"), Server::start("bucket"), Server::start("bucket")];
    let place = Place::new();
    let profiles: String = (0..3)
        .map(|n| {
            let at = sites[n].endpoint();
            format!("[profile site{n}]\nendpoint_url = {at}\naws_access_key_id = {KEY}\naws_secret_access_key = s\n")
        })
        .chain(["[profile wrong]\naws_access_key_id = nobody\naws_secret_access_key = s\n".to_string()])
        .collect();
    let (config, dir) = (place.beside("config"), place.beside("store"));
    fs::write(&config, profiles + &format!("endpoint_url = {}\n", sites[0].endpoint())).expect("write");
    fs::create_dir(&dir).expect("mkdir");
    let with_profiles = |args: &[&str]| {
        let mut command = lee(args);
        command.env("AWS_CONFIG_FILE", &config).env_remove("AWS_PROFILE").env_remove("AWS_ENDPOINT_URL");
        run(&mut command)
    };
    with_profiles(&["up", place.arg(), "--background"]).good();
    let ask = |args: &[&str]| place.ask(args);
    let create = |stores: &[&str], more: &[&str]| {
        let mut args = vec!["pool", "create", "sites", "--layout", "erasure(2+1)"];
        stores.iter().for_each(|store| args.extend(["--store", store]));
        ask(&[&args[..], more].concat())
    };
    let force: &[&str] = &["--force"];
    let (one, two) = ("s3://bucket/pool?profile=site0", "s3://bucket//pool/?profile=site1");
    let dir = dir.to_str().expect("UTF-8");
    let begun = Instant::now();
    create(&[one, two, "s3://bucket/pool?profile=wrong"], force).bad(1, &["AWS_ACCESS_KEY_ID"]);
    create(&[one, two, "s3://none/pool?profile=site2"], force).bad(1, &["no bucket none"]);
    create(&[one, two, "s3://bucket/pool?profile=nobody"], force)
        .bad(1, &["profile=nobody", "no such profile"]);
    create(&[one, two, "s3://bucket/pool?profile=site1"], force).bad(1, &["named twice"]);
    create(&[one, two, "http://bucket/pool"], force).bad(1, &["s3://BUCKET/PREFIX"]);
    // both are on this machine
    create(&[one, two, dir], &[]).bad(1, &["127.0.0.1", "--force"]);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    create(&[one, two, dir], force).good();
    ask(&["volume", "create", "data", "--pool", "sites"]).good();

    let file = |name: &str| place.mnt().join("data").join(name);
    let content =
        |n: u32| -> Vec<u8> { (0..3_000_000u32).map(|i| (i.wrapping_mul(n + 7) >> 9) as u8).collect() };
    write_durably(&file("first"), &content(1)).expect("write");
    ask(&["sync"]).good();
    assert!(sites[0].names().len() > 1 && sites[1].names().iter().all(|name| name.starts_with("pool/")));
    sites[1].set_down(true);
    write_durably(&file("second"), &content(2)).expect("write");
    ask(&["sync"]).good();
    ask(&["down"]).good();
    // it starts without the site, within seconds, and says so
    with_profiles(&["up", place.arg(), "--background"]).good();
    assert!(fs::read(file("first")).expect("read") == content(1));
    assert!(fs::read(file("second")).expect("read") == content(2));
    assert!(ask(&["pool", "show", "sites"]).good().contains("does not answer"));
    sites[1].set_down(false);
    let whole = || {
        let health = &ask(&["pool", "show", "sites", "--json"]).json()["health"];
        health["may_lose"] == 1 && health["searched"] == true && health["degraded_objects"] == 0
    };
    until("the site is back and has what it missed", whole);
    // another site takes the place of one
    ask(&["pool", "store", "drain", "sites", two, "--to", "s3://bucket/new?profile=site2", "--force"]).good();
    until("drained", || ask(&["pool", "store", "remove", "sites", two]).code == 0);
    until("whole", whole);
    assert_eq!(sites[1].names(), [""; 0]);
    sites[0].set_down(true);
    ask(&["down"]).good();
    with_profiles(&["up", place.arg(), "--background"]).good();
    assert!(fs::read(file("first")).expect("read") == content(1));
    assert!(fs::read(file("second")).expect("read") == content(2));
    sites[0].set_down(false);
    until("whole", whole);
    assert!(ask(&["scrub", "sites"]).code == 0);
    assert!(ask(&["fsck"]).good().contains("clean"));
}
