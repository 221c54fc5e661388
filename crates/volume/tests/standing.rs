//! What a cell stands on: a directory that is one, is only opened once, and threads that live.

use crate::rig::watched::{Watch, WatchedKv};
use leeward_bucket::Bucket;
use leeward_bucket::server::{Fault, KEY, Server};
use leeward_env::disk::sim::SimDisk;
use leeward_env::{Ctx, Env};
use leeward_fs::{Fs, Make, NodeId, Op, Reply};
use leeward_meta::Kv;
use leeward_meta::mem::MemKv;
use leeward_pool::{DirStore, HookedStore, MemStore};
use leeward_volume::format::keys::{self, tag};
use leeward_volume::{Cell, Config, first_batch};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

fn config() -> Config {
    Config { dirty_mib: 16, cache_mib: 1, metadata_cache_mib: 8, ..Config::default() }
}

/// Every file below a directory, with what is in it.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.insert(path.clone(), fs::read(&path).expect("read"));
        }
    }
    all
}

#[test]
fn half_a_cell_is_refused_and_stays_as_it_is() {
    let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
    let dir = dir.path();
    Cell::create(&env, dir, &config()).expect("made");
    fs::write(dir.join("data/something"), "stored").expect("written");
    fs::remove_file(dir.join("cell")).expect("gone");
    for part in ["meta", "data"] {
        let before = files(dir);
        let refused = Cell::create(&env, dir, &config()).expect_err("half a cell").message;
        assert!(refused.contains("restore `cell`"), "{refused}");
        assert!(Cell::check_place(dir).is_err());
        assert_eq!(files(dir), before);
        fs::remove_dir_all(dir.join(part)).expect("removed");
    }
    Cell::create(&env, dir, &config()).expect("empty by now");
    fs::write(dir.join("foreign"), "").expect("written");
    fs::remove_file(dir.join("cell")).expect("gone");
    assert!(Cell::create(&env, dir, &config()).is_err());
}

#[test]
fn making_a_cell_goes_on_where_it_was_interrupted() {
    let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
    let dir = dir.path();
    // a power cut took what was written of it
    fs::write(dir.join("cell.new"), [0; 100]).expect("written");
    Cell::create(&env, dir, &config()).expect("made");
    let identity = fs::read(dir.join("cell")).expect("an identity");
    fs::rename(dir.join("cell"), dir.join("cell.new")).expect("renamed");
    Cell::create(&env, dir, &config()).expect("finished");
    assert_eq!(fs::read(dir.join("cell")).expect("an identity"), identity);
    Cell::open(&env, dir, &config()).expect("open").close().expect("closed");
    // nothing is stored before the end
    fs::rename(dir.join("cell"), dir.join("cell.new")).expect("renamed");
    fs::write(dir.join("data/something"), "stored").expect("written");
    assert!(Cell::create(&env, dir, &config()).is_err());
}

#[test]
fn a_cell_is_open_once() {
    let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
    Cell::create(&env, dir.path(), &config()).expect("made");
    let cell = Cell::open(&env, dir.path(), &config()).expect("open");
    let refused = Cell::open(&env, dir.path(), &config()).map(drop).expect_err("open already");
    assert!(refused.message.contains("in use"), "{}", refused.message);
    cell.close().expect("closed");
    Cell::open(&env, dir.path(), &config()).expect("free again").close().expect("closed");
}

/// A disk that hangs is a fifo here: it cannot be opened before somebody reads it.
#[test]
fn a_cache_on_a_disk_that_hangs_does_not_keep_a_cell_from_opening() {
    let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
    let (cell_dir, cache) = (dir.path().join("cell"), dir.path().join("cache"));
    [&cell_dir, &cache].into_iter().for_each(|dir| fs::create_dir(dir).expect("made"));
    let lock = cache.join("leeward.lock");
    let name = std::ffi::CString::new(lock.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: the name is a string that ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let disk_cache = cache.to_str().expect("a name").to_string();
    let config = Config { disk_cache, disk_cache_mib: 16, ..config() };
    Cell::create(&env, &cell_dir, &config).expect("made");
    let (opened, (of, config)) = (channel(), (cell_dir, config));
    let sender = opened.0;
    drop(env.spawn("opening", move || {
        sender.send(Cell::open(&Env::real(), &of, &config).map_err(|e| e.message))
    }));
    let cell = opened.1.recv_timeout(Duration::from_secs(60)).expect("the cell waits").expect("opened");
    assert!(cell.figures().disk_cache.is_none(), "it hangs");
    let fifo = fs::File::options().read(true).write(true).open(&lock).expect("read");
    let is_used = (0..3000).any(|_| {
        env.sleep(Duration::from_millis(10));
        cell.figures().disk_cache.is_some()
    });
    assert!(is_used, "it answers again");
    drop(fifo);
    cell.close().expect("closed");
}

#[test]
fn half_a_cell_in_a_bucket_is_refused() {
    let (env, server) = (Env::real(), Server::start("b"));
    let bucket = Bucket::with_keys(&server.place("half"), KEY, "secret").expect("a bucket");
    bucket.create("data/00/0000000000000001.0", "stored".into()).expect("put");
    for part in ["data/00/0000000000000001.0", "meta/manifest/1"] {
        let before = server.names();
        let refused = Cell::create_in(&env, &bucket, &config()).expect_err("half a cell").message;
        assert!(refused.contains("restore `cell`"), "{refused}");
        assert_eq!(server.names(), before);
        bucket.delete(part).expect("deleted");
        if part.starts_with("data") {
            bucket.create("meta/manifest/1", "a manifest".into()).expect("put");
        }
    }
    Cell::create_in(&env, &bucket, &config()).expect("made");
    assert!(!server.names().iter().any(|name| name.ends_with("cell.new")));
}

/// Stores in which several win that write at the same moment: they look all right to one who asks
/// alone.
#[test]
fn a_store_in_which_two_win_is_refused() {
    let (env, server) = (Env::real(), Server::start("b"));
    let bucket = Bucket::with_keys(&server.place("racy"), KEY, "secret").expect("a bucket");
    server.set_racy(true);
    let refused = Cell::create_in(&env, &bucket, &config()).expect_err("two processes could write");
    for part in ["racy", "of 32 writers win", "use one that does"] {
        assert!(refused.message.contains(part), "{}", refused.message);
    }
    assert!(server.names().is_empty(), "nothing is left: {:?}", server.names());
    server.set_racy(false);
    Cell::create_in(&env, &bucket, &config()).expect("made");
    assert!(!server.names().iter().any(|name| name.contains("probe")), "{:?}", server.names());
}

/// A store that loses answers, or is busy, has no two winners.
#[test]
fn a_store_that_stumbles_is_not_taken_for_one_in_which_two_win() {
    let (env, server) = (Env::real(), Server::start("b"));
    for (fault, times) in [(Fault::Busy, 2), (Fault::FailsAfter, 2), (Fault::BreaksAfter, 2)] {
        let prefix = format!("{fault:?}");
        let bucket = Bucket::with_keys(&server.place(&prefix), KEY, "secret").expect("a bucket");
        server.fail("PUT", "probe-", fault, times);
        Cell::create_in(&env, &bucket, &config()).unwrap_or_else(|e| panic!("{fault:?}: {}", e.message));
        server.heal();
    }
}

#[test]
fn a_thread_that_panics_breaks_the_cell_and_nobody_waits_for_it() {
    let env = Env::real();
    let kv = MemKv::open(env.clone(), Arc::new(SimDisk::new(1))).expect("an engine");
    kv.commit(&first_batch(&env, 0, 0)).expect("the first commit");
    let store = HookedStore::new(Arc::new(MemStore::new()), |_, _| panic!("a defect"));
    let cell = Cell::start(&env, Box::new(kv), Arc::new(store), &config()).expect("open");
    let ctx = Ctx::system();
    let make = |name| Op::Make { dir: NodeId::ROOT, name, make: Make::File, mode: 0o644, umask: 0 };
    let Ok(Reply::Attr(file)) = cell.call(&ctx, make(b"file")) else { panic!("no file") };
    let data = vec![7; 1 << 20];
    cell.call(&ctx, Op::Write { node: file.node, offset: 0, data: &data }).expect("written to memory");
    let told = cell.call(&ctx, Op::Fsync { node: file.node }).expect_err("nothing can be stored");
    assert_eq!(told.errno(), 5, "{told}");
    assert!(cell.call(&ctx, make(b"another")).is_err(), "nothing can be changed");
    let troubles = cell.troubles().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(troubles.contains("a defect") && troubles.contains("nothing can be changed"), "{troubles}");
    assert!(cell.close().is_err(), "not everything is durable");
}

/// Reading a name's record waits for this, once it is set; says first that somebody waits.
#[derive(Default)]
struct Held {
    wanted: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Watch for Arc<Held> {
    fn get(&self, key: &[u8]) -> leeward_meta::Result<()> {
        let is_name = keys::parse(&keys::Key::from(key)).is_some_and(|key| key.tag == tag::DENTRY);
        if let Some((is_there, go_on)) = self.wanted.lock().take_if(|_| is_name) {
            is_there.send(()).expect("the test waits for it");
            go_on.recv().expect("the test lets it go on");
        }
        Ok(())
    }
}

#[test]
fn all_that_is_answered_while_a_cell_is_being_closed_is_there() {
    let (env, disk, held) = (Env::real(), SimDisk::new(1), Arc::new(Held::default()));
    let engine = || MemKv::open(env.clone(), Arc::new(disk.clone())).expect("an engine");
    let start = |kv| {
        let store = Arc::new(DirStore::new(Arc::new(disk.clone()), "data"));
        Cell::start(&env, kv, store, &config()).expect("open")
    };
    engine().commit(&first_batch(&env, 0, 0)).expect("the first commit");
    let cell = start(Box::new(WatchedKv { inner: engine(), watch: held.clone() }));
    let ((is_there, begun), (go_on, may)) = (channel(), channel());
    *held.wanted.lock() = Some((is_there, may));
    let (at_work, closed) = (cell.clone(), cell.clone());
    let at_work = env.spawn("at work", move || {
        let (dir, name, make) = (NodeId::ROOT, &b"late"[..], Make::File);
        at_work.call(&Ctx::system(), Op::Make { dir, name, make, mode: 0o644, umask: 0 })
    });
    begun.recv().expect("it has begun");
    let closing = env.spawn("closing", move || closed.close());
    env.sleep(Duration::from_millis(100));
    go_on.send(()).expect("it goes on");
    let made = at_work.join().expect("no panic").and_then(Reply::attr).expect("made");
    closing.join().expect("no panic").expect("closed");
    drop(cell);
    let cell = start(Box::new(engine()));
    let found = cell.call(&Ctx::system(), Op::Lookup { dir: NodeId::ROOT, name: b"late" });
    assert_eq!(found.and_then(Reply::attr).map(|attr| attr.node), Ok(made.node));
}
