//! A cell on a simulated disk, called directly.

use leeward_env::disk::sim::SimDisk;
use leeward_env::{Ctx, Env};
use leeward_fs::{Fs, Make, NodeId, Op, Precondition, Reply, Result};
use leeward_meta::mem::MemKv;
use leeward_meta::{Batch, Kv, Value};
use leeward_pool::DirStore;
use leeward_volume::admin::{self, Df, Failure, FsckReport, QuotaInfo, Request};
use leeward_volume::format::keys::Key;
use leeward_volume::{Cell, Config, first_batch};
use std::sync::Arc;

/// A cell and what it stands on.
pub struct SimCell {
    pub env: Env,
    pub disk: SimDisk,
    pub cell: Arc<Cell>,
}

fn engine(env: &Env, disk: &SimDisk) -> MemKv {
    MemKv::open(env.clone(), Arc::new(disk.clone())).expect("the engine opens")
}

fn start(env: &Env, disk: &SimDisk) -> Arc<Cell> {
    let store = Arc::new(DirStore::new(Arc::new(disk.clone()), "data"));
    Cell::start(env, Box::new(engine(env, disk)), store, &Config::default()).expect("the cell opens")
}

impl SimCell {
    pub fn new() -> SimCell {
        SimCell::with(Vec::new())
    }

    /// A new cell with these records besides (or instead of) the first ones.
    pub fn with(records: Vec<(Key, Option<Value>)>) -> SimCell {
        let (env, disk) = (Env::sim(1), SimDisk::new(1));
        let kv = engine(&env, &disk);
        kv.commit(&first_batch(&env, 0, 0)).expect("the first commit");
        kv.commit(&Batch { writes: records, inline_data: Vec::new() }).expect("the second commit");
        drop(kv);
        let cell = start(&env, &disk);
        SimCell { env, disk, cell }
    }

    /// What is there when the power fails now.
    pub fn after_power_cut(self) -> SimCell {
        let disk = self.disk.power_cut(1);
        let cell = start(&self.env, &disk);
        SimCell { cell, disk, ..self }
    }

    pub fn reopened(self) -> SimCell {
        self.cell.close().expect("a clean close");
        let cell = start(&self.env, &self.disk);
        SimCell { cell, ..self }
    }

    pub fn call(&self, op: Op<'_>) -> Result<Reply> {
        self.cell.call(&Ctx::user(0, 0), op)
    }

    pub fn admin<R: Request>(&self, request: &R) -> std::result::Result<R::Reply, Failure> {
        self.cell.admin(request, &mut |_| {})
    }

    pub fn make(&self, name: &str, make: Make<'_>) -> NodeId {
        self.make_in(NodeId::ROOT, name, make).expect("made")
    }

    pub fn make_in(&self, dir: NodeId, name: &str, make: Make<'_>) -> Result<NodeId> {
        match self.call(Op::Make { dir, name: name.as_bytes(), make, mode: 0o755, umask: 0 })? {
            Reply::Attr(attr) => Ok(attr.node),
            other => panic!("{other:?}"),
        }
    }

    /// The inode of this name, to which the kernel refers from now on.
    pub fn open(&self, name: &str) -> NodeId {
        let kernel = Ctx { refs: true, ..Ctx::user(0, 0) };
        match self.cell.call(&kernel, Op::Lookup { dir: NodeId::ROOT, name: name.as_bytes() }) {
            Ok(Reply::Attr(attr)) => attr.node,
            other => panic!("{other:?}"),
        }
    }

    pub fn write(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<()> {
        match self.call(Op::Write { node, offset, data })? {
            Reply::Written(n) if n == data.len() as u64 => Ok(()),
            other => panic!("{other:?}"),
        }
    }

    pub fn read(&self, node: NodeId, len: usize) -> Result<Vec<u8>> {
        match self.call(Op::Read { node, offset: 0, len: len as u32 })? {
            Reply::Data(data) => Ok(data),
            other => panic!("{other:?}"),
        }
    }

    pub fn quota(&self, request: &impl Request<Reply = QuotaInfo>) -> QuotaInfo {
        self.cell.admin(request, &mut |_| {}).expect("answered")
    }

    pub fn fsck(&self) -> FsckReport {
        self.cell.admin(&admin::Fsck, &mut |_| {}).expect("answered")
    }
}

/// Bytes that do not compress.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let next = |_| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// By paths.
impl SimCell {
    /// What is at this path.
    pub fn at(&self, path: &str) -> Result<NodeId> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(NodeId::ROOT, |dir, name| {
            match self.call(Op::Lookup { dir, name: name.as_bytes() })? {
                Reply::Attr(attr) => Ok(attr.node),
                other => panic!("{other:?}"),
            }
        })
    }

    /// Takes, as this user, the snapshot at a path that ends in `/.snap/NAME`.
    pub fn take_as(&self, uid: u32, path: &str) -> Result<NodeId> {
        let (dir, name) = path.rsplit_once('/').expect("a path");
        let op = Op::Make { dir: self.at(dir)?, name: name.as_bytes(), make: Make::Dir, mode: 0, umask: 0 };
        match self.cell.call(&Ctx::user(uid, uid), op)? {
            Reply::Attr(attr) => Ok(attr.node),
            other => panic!("{other:?}"),
        }
    }

    pub fn take(&self, path: &str) -> NodeId {
        self.take_as(0, path).expect("taken")
    }

    pub fn remove_as(&self, uid: u32, path: &str) -> Result<()> {
        let (dir, name) = path.rsplit_once('/').expect("a path");
        let op = Op::RmDir { dir: self.at(dir)?, name: name.as_bytes() };
        self.cell.call(&Ctx::user(uid, uid), op).map(drop)
    }

    pub fn unlink(&self, path: &str) {
        let (dir, name) = path.rsplit_once('/').expect("a path");
        let dir = self.at(dir).expect("the directory is there");
        self.call(Op::Unlink { dir, name: name.as_bytes(), over: Precondition::Any }).expect("unlinked");
    }

    pub fn list(&self, path: &str) -> Vec<String> {
        let dir = self.at(path).expect("the directory is there");
        match self.call(Op::List { dir, after: b"", limit: 1000, attrs: true }) {
            Ok(Reply::Entries(found)) => {
                found.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Steps until nothing is left to do, and checks.
    pub fn settle(&self) {
        let idle = (0..10_000).any(|_| !self.cell.step().expect("a step"));
        assert!(idle, "there is always something left to do");
        assert_eq!(self.fsck().findings, []);
    }

    pub fn df(&self) -> Df {
        self.admin(&admin::DfShow).expect("answered")
    }
}
