//! A cell on a real disk behind a gate, and trees of it: what the tests of doors share.
#![allow(dead_code)] // not every test needs everything

use leeward_door::{Files, Finish, Path, Principal, Tree};
use leeward_env::{Ctx, Door, Env};
use leeward_fs::{Attr, Fs, NodeId, Op, Reply, Result};
use leeward_vfs::{Gate, GateOptions};
use leeward_volume::admin;
use leeward_volume::{Cell, Config};
use std::sync::Arc;

pub struct Rig {
    pub dir: Option<tempfile::TempDir>,
    pub cell: Arc<Cell>,
    pub gate: Gate,
    pub files: Files,
    pub runtime: tokio::runtime::Runtime,
}

pub fn path(text: &str) -> Path {
    Path::parse(text.as_bytes()).expect("a path")
}

pub fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

impl Rig {
    pub fn new() -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        Cell::create(&Env::real(), dir.path(), &Config::default()).expect("made");
        Rig::open(dir)
    }

    pub fn open(dir: tempfile::TempDir) -> Rig {
        let env = Env::real();
        let cell = Cell::open(&env, dir.path(), &Config::default()).expect("opened");
        let gate = Gate::new(cell.clone(), &env, GateOptions::usual());
        let files = Files::new(&gate, &env);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Rig { dir: Some(dir), cell, gate, files, runtime: runtime.expect("a runtime") }
    }

    pub fn reopen(mut self) -> Rig {
        self.cell.close().expect("closed");
        let dir = self.dir.take().expect("taken here only");
        drop(self);
        Rig::open(dir)
    }

    pub fn tree(&self, uid: u32, base: &str) -> Tree {
        self.files.tree(&Principal::new("somebody", uid, uid, &[]), Door::S3, &path(base))
    }

    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub fn call(&self, op: Op<'_>) -> Result<Reply> {
        self.cell.call(&Ctx::system(), op)
    }

    pub fn root(&self, op: impl FnOnce(NodeId) -> Op<'static>) -> Reply {
        self.call(op(NodeId::ROOT)).expect("done")
    }

    /// Puts a file, with the directories above it.
    pub fn put(&self, tree: &Tree, at: &str, content: &[u8]) -> Result<Attr> {
        self.wait(async {
            let mut upload = tree.create(&path(at), Some(content.len() as u64)).await?;
            upload.write(content.to_vec().into()).await?;
            upload.finish(Finish { parents: true, ..Finish::default() }).await
        })
    }

    pub fn get(&self, tree: &Tree, at: &str) -> Result<Vec<u8>> {
        use futures_util::TryStreamExt;
        self.wait(async {
            let file = tree.open(&path(at), &[]).await?;
            let size = file.attr.size;
            let parts: Vec<bytes::Bytes> = file.stream(0..size).try_collect().await?;
            Ok(parts.concat())
        })
    }

    #[track_caller]
    pub fn check(&self) {
        let answer = self.cell.admin(&admin::SyncAll, &mut |_| {});
        answer.expect("synced");
        {
            let report = self.cell.admin(&admin::Fsck, &mut |_| {}).expect("checked");
            assert_eq!(report.findings, [])
        }
    }

    /// Files and bytes below the root.
    pub fn usage(&self) -> (u64, u64) {
        {
            let usage =
                self.cell.admin(&admin::UsageShow { path: "/".into() }, &mut |_| {}).expect("counted");
            (usage.files, usage.bytes)
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.cell.close();
    }
}
