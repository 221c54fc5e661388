//! A cell with pools whose stores are simulated disks, called directly.

use super::engine;
use leeward_env::disk::sim::SimDisk;
use leeward_env::{Ctx, Env};
use leeward_fs::{Error, Fs, Make, NodeId, Op, Reply};
use leeward_meta::Kv;
use leeward_pool::label::LABEL;
use leeward_pool::{DirStore, ObjectId, Store};
use leeward_volume::admin::{self, Failure, FsckReport, PoolInfo, Request, VolumeInfo};
use leeward_volume::{Cell, Config, Opener, first_batch};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};

pub type Meanwhile = Box<dyn FnOnce() + Send>;

/// Stores are directories of disks of their own, by name; those that are unplugged cannot be
/// opened.
#[derive(Default)]
pub struct Shelf {
    disks: Mutex<Vec<(String, SimDisk)>>,
    /// What happens once while a store is opened.
    pub meanwhile: Mutex<Option<(String, Meanwhile)>>,
    unplugged: Mutex<BTreeSet<String>>,
}

impl Shelf {
    pub fn disk(&self, url: &str) -> SimDisk {
        let mut disks = self.disks.lock().expect("no panic");
        if let Some((_, disk)) = disks.iter().find(|(name, _)| name == url) {
            return disk.clone();
        }
        let disk = SimDisk::new(disks.len() as u64 + 2);
        disks.push((url.into(), disk.clone()));
        disk
    }

    pub fn plug(&self, url: &str, there: bool) {
        let mut unplugged = self.unplugged.lock().expect("no panic");
        if there {
            unplugged.remove(url)
        } else {
            unplugged.insert(url.into())
        };
    }
}

struct Pluggable(Arc<Shelf>);

impl Opener for Pluggable {
    fn open(&self, url: &str) -> leeward_pool::Result<Arc<dyn Store>> {
        let is_now = |meanwhile: &mut (String, Meanwhile)| meanwhile.0 == url;
        let meanwhile = self.0.meanwhile.lock().expect("no panic").take_if(is_now);
        if let Some((_, meanwhile)) = meanwhile {
            meanwhile();
        }
        if self.0.unplugged.lock().expect("no panic").contains(url) {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        Ok(Arc::new(DirStore::new(Arc::new(self.0.disk(url)), "")))
    }
}

/// Its id.
const CELL: &str = "0123456789abcdef0123456789abcdef";

pub struct Rig {
    pub env: Env,
    pub disk: SimDisk,
    pub shelf: Arc<Shelf>,
    pub cell: Arc<Cell>,
}

pub fn start(env: &Env, disk: &SimDisk, shelf: &Arc<Shelf>) -> Arc<Cell> {
    let store = Arc::new(DirStore::new(Arc::new(disk.clone()), "data"));
    let opener = Arc::new(Pluggable(shelf.clone()));
    Cell::start_with(env, Box::new(engine(env, disk)), store, &Config::default(), (CELL, opener))
        .expect("the cell opens")
}

impl Rig {
    pub fn new() -> Rig {
        let (env, disk) = (Env::sim(1), SimDisk::new(1));
        engine(&env, &disk).commit(&first_batch(&env, 0, 0)).expect("the first commit");
        let shelf = Arc::new(Shelf::default());
        let cell = start(&env, &disk, &shelf);
        Rig { env, disk, shelf, cell }
    }

    /// With a pool `two` on the store `two`.
    pub fn with_two() -> Rig {
        let rig = Rig::new();
        rig.make_pool("two");
        rig
    }

    pub fn make_pool(&self, name: &str) -> PoolInfo {
        self.make_pool_of(name, "single", &[name])
    }

    pub fn make_pool_of(&self, name: &str, layout: &str, stores: &[&str]) -> PoolInfo {
        self.pool(&admin::PoolCreate {
            name: name.into(),
            layout: layout.into(),
            stores: stores.iter().map(|s| s.to_string()).collect(),
            force: false,
        })
    }

    pub fn reopen(&mut self) {
        self.cell.close().expect("a clean close");
        self.cell = start(&self.env, &self.disk, &self.shelf);
    }

    /// As after `kill -9`, or a power cut.
    pub fn crash(&mut self) {
        self.disk = self.disk.kill();
        self.cell = start(&self.env, &self.disk, &self.shelf);
    }

    /// As after `kill -9`, or a power cut, of the machine that has all the disks.
    pub fn crash_all(&mut self, seed: Option<u64>) {
        let left = |disk: &SimDisk| seed.map_or_else(|| disk.kill(), |seed| disk.power_cut(seed));
        self.disk = left(&self.disk);
        for (_, disk) in self.shelf.disks.lock().expect("no panic").iter_mut() {
            *disk = left(disk);
        }
        self.cell = start(&self.env, &self.disk, &self.shelf);
    }

    pub fn plug(&self, url: &str, there: bool) {
        self.shelf.plug(url, there);
    }

    pub fn ask<R: Request>(&self, request: &R) -> Result<R::Reply, Failure> {
        self.cell.admin(request, &mut |_| {})
    }

    #[track_caller]
    pub fn refused<R: Request>(&self, request: &R, words: &[&str]) {
        let failure = self.ask(request).expect_err("refused");
        for word in words {
            assert!(failure.message.contains(word), "`{word}` is not in {failure:?}");
        }
    }

    #[track_caller]
    pub fn pool(&self, request: &impl Request<Reply = PoolInfo>) -> PoolInfo {
        self.ask(request).expect("a pool")
    }

    #[track_caller]
    pub fn show(&self, name: &str) -> PoolInfo {
        self.pool(&admin::PoolShow { name: name.into() })
    }

    #[track_caller]
    pub fn volume(&self, request: &impl Request<Reply = VolumeInfo>) -> VolumeInfo {
        self.ask(request).expect("a volume")
    }

    /// A volume at `/NAME` in this pool; its root.
    pub fn new_volume(&self, name: &str, pool: &str) -> NodeId {
        let (at, pool) = (format!("/{name}"), Some(pool.into()));
        let info = self.volume(&admin::VolumeCreate { name: name.into(), at, uid: 0, gid: 0, pool });
        NodeId::new(info.id, 1)
    }

    pub fn move_data(&self, name: &str, to: &str, wait: bool) -> VolumeInfo {
        self.volume(&admin::VolumeMoveData { name: name.into(), to: to.into(), wait })
    }

    pub fn call(&self, op: Op<'_>) -> Result<Reply, Error> {
        self.cell.call(&Ctx::user(0, 0), op)
    }

    pub fn make(&self, dir: NodeId, name: &str, make: Make<'_>) -> NodeId {
        match self.call(Op::Make { dir, name: name.as_bytes(), make, mode: 0o755, umask: 0 }) {
            Ok(Reply::Attr(attr)) => attr.node,
            other => panic!("{other:?}"),
        }
    }

    pub fn file(&self, dir: NodeId, name: &str, data: &[u8]) -> NodeId {
        let node = self.make(dir, name, Make::File);
        self.write(node, data).expect("written");
        node
    }

    pub fn write(&self, node: NodeId, data: &[u8]) -> Result<Reply, Error> {
        let mut last = Ok(Reply::Done);
        for (n, part) in data.chunks(1 << 20).enumerate() {
            last = self.call(Op::Write { node, offset: (n as u64) << 20, data: part });
            last.as_ref().map_err(Clone::clone)?;
        }
        last
    }

    pub fn read(&self, node: NodeId, len: usize) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        while all.len() < len {
            match self.call(Op::Read { node, offset: all.len() as u64, len: 1 << 20 })? {
                Reply::Data(data) if data.is_empty() => break,
                Reply::Data(data) => all.extend(data),
                other => panic!("{other:?}"),
            }
        }
        Ok(all)
    }

    pub fn look_up(&self, dir: NodeId, name: &str) -> NodeId {
        match self.call(Op::Lookup { dir, name: name.as_bytes() }) {
            Ok(Reply::Attr(attr)) => attr.node,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub fn sync(&self) {
        self.ask(&admin::SyncAll).expect("synced");
    }

    #[track_caller]
    pub fn rest(&self) {
        let idle = (0..10_000).any(|_| !self.cell.step().expect("a step"));
        assert!(idle, "no rest");
    }

    pub fn fsck(&self) -> FsckReport {
        self.ask(&admin::Fsck).expect("answered")
    }

    #[track_caller]
    pub fn clean(&self) {
        self.rest();
        self.sync();
        assert_eq!(self.fsck().findings, []);
    }

    pub fn all_in(&self, url: &str) -> Vec<ObjectId> {
        let store = DirStore::new(Arc::new(self.shelf.disk(url)), "");
        store.list(&Ctx::system()).expect("listed").into_iter().map(|(id, _)| id).collect()
    }

    /// Objects in a store, without its label.
    pub fn objects(&self, url: &str) -> usize {
        self.all_in(url).into_iter().filter(|id| *id != LABEL).count()
    }

    pub fn own_objects(&self) -> usize {
        let store = DirStore::new(Arc::new(self.disk.clone()), "data");
        store.list(&Ctx::system()).expect("listed").len()
    }
}
